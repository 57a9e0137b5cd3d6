//! `bench dns64`: dns64d compared with Unbound, BIND, PowerDNS Recursor and Knot Resolver in one run. Each server runs
//! on one core. The other servers are those of current Debian releases, and run in the chroots of `versions`.
//!
//! ```text
//! chroots ─► servers ─► rates and CPU time ─► latencies ─► start-up time, memory ─► instructions ─► tables, claims
//! ```

pub(crate) mod against;
mod dut;
mod figures;
mod footprint;
mod instructions;
mod latency;
mod load;

use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Result, anyhow};
use hosts::servers::{Dut as Kind, Operator};
use method::stats::Summary;
use net::cpu_time::CpuTimes;
use serde_json::json;

use self::dut::{DUT_CPU, Dut, compared, compared_names, serve_auth, wait_until_ready};
use self::figures::{CLIENTS, Figures, NAME_SETS, RATES, Round, tables};
use self::footprint::Footprint;
use self::instructions::Valgrind;
use self::load::{
    CACHED_NAMES, Load, Names, OUTSTANDING, answered_by_dnsperf, closed_loop, dnsperf, under_load,
};
use crate::bench::lab::{LIMIT, Lab};
use crate::claims::{Bound, Claims, ResultOptions};
use crate::process::{self, Build, Server, output};
use crate::servers::{DUT, DUT_HOST, dut_in_lab, wait_until_listens};
use crate::versions::cell::Site;

pub(crate) use self::load::answers;

/// Number of rounds. All servers are measured in each round, so that a slow phase of this machine affects all of them.
const ROUNDS: usize = 3;
/// Duration of a closed loop of dnsperf.
const LOOP_SECONDS: &str = "3";

pub(crate) fn run(keeping: &ResultOptions) -> Result<ExitCode> {
    let (lab, mut claims) = (Lab::up(keeping.build())?, Claims::default());
    let site = Site::new((&lab.program).into(), false)?;
    let names = Names::write(lab.folder.path())?;
    let mut all = available(&site);
    let auth = serve_auth(&lab)?;
    let ceiling = rates(&lab, &mut all, &names, &mut claims)?;
    latencies(&lab, &mut all, &mut claims)?;
    two_cores(&lab, &names, &mut claims)?;
    drop(auth);
    let valgrind = Valgrind::copy(site.work().join("valgrind"));
    for figures in &mut all {
        println!("{}: start-up time, memory and instructions", figures.name());
        let footprint = Footprint::measure(&lab, &figures.dut);
        figures.footprint = footprint.map_err(|error| format!("{error:#}"));
        let valgrind = valgrind.as_ref().map_err(|error| anyhow!("{error:#}"));
        let counts = valgrind.and_then(|valgrind| valgrind.count(&lab, &figures.dut));
        figures.instructions = counts.map_err(|error| format!("{error:#}"));
        figures.missing().iter().for_each(|reason| println!("  not measured: {reason}"));
    }
    println!(
        "\nMedians of the rounds; {OUTSTANDING} queries in flight, unless the row gives another number"
    );
    println!("\n{}", tables(&all, &ceiling));
    ratios(&all, (0, "Unbound's", 5.0), |name| name == "Unbound", &mut claims);
    ratios(&all, (1, "the best of the others'", 2.0), |name| name != "dns64d", &mut claims);
    print_latency(&all, &mut claims);
    claims.keep("servers", all.iter().map(Figures::raw).collect());
    claims.conclude(keeping)
}

/// Returns the servers that are available here, and prints the reason for each of the others.
fn available(site: &Site) -> Vec<Figures> {
    let with_version = |dut: Dut| dut.version().map(|version| Figures::new(dut, version));
    let mut all = Vec::new();
    for (name, dut) in compared(site) {
        match dut.and_then(with_version) {
            Ok(figures) => all.push(figures),
            Err(error) => println!("SKIPPED {name}: {error:#}"),
        }
    }
    all
}

/// Measures the rates of all servers in several rounds. Returns the rates without any lookup in each round.
fn rates(
    lab: &Lab,
    all: &mut Vec<Figures>,
    names: &Names,
    claims: &mut Claims,
) -> Result<Vec<[Load; CLIENTS.len()]>> {
    let (mut ceiling, mut stolen) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = CpuTimes::now()?;
        each(all, |figures| {
            throughput(lab, &figures.dut, names).map(|round| figures.rounds.push(round))
        });
        ceiling.push(without_lookup(lab, names)?);
        stolen.push(CpuTimes::now()?.stolen_since(&before).all_pct);
    }
    print_stolen("rates", &stolen);
    claims.keep("stolen in rounds of throughput, %", json!(stolen));
    Ok(ceiling)
}

/// Calls `measure` for each server. A server for which `measure` fails is removed.
fn each(all: &mut Vec<Figures>, mut measure: impl FnMut(&mut Figures) -> Result<()>) {
    all.retain_mut(|figures| {
        let measured = measure(figures);
        if let Err(error) = &measured {
            println!("FAILED {}: {error:#}", figures.name());
        }
        measured.is_ok()
    });
}

/// Rates at which one server answers queries for different names, in answers per second, as measured by two closed
/// loops.
pub(crate) struct ClosedLoops {
    pub(crate) dnsperf: f64,
    /// Rate of our closed loop with UDP_SEGMENT.
    pub(crate) ours: f64,
}

/// Measures how many answers per second dns64d sends on one core to a closed loop with different names. Each name needs
/// two answers from AuthDNS. `operator` is additional configuration.
pub(crate) fn dns64d_of_different_names(
    lab: &Lab,
    operator: &Operator,
    offload: bool,
) -> Result<f64> {
    let [server, _auth] = start_dns64d(lab, operator, &[])?;
    let names = ["--names", "13.0.0.0/8", "--expect-prefix", "64:ff9b::/96"];
    Ok(closed_loop(lab, &server, &names, if offload { "true" } else { "false" })?.rate)
}

/// Starts dns64d and AuthDNS. `within` is the beginning of a command that runs dns64d, or is empty.
pub(crate) fn start_dns64d(
    lab: &Lab,
    operator: &Operator,
    within: &[String],
) -> Result<[Server; 2]> {
    let auth = serve_auth(lab)?;
    let server = Dut::dns64d(lab).launch(lab, DUT, operator, within)?;
    wait_until_ready(lab, DUT)?;
    Ok([server, auth])
}

/// Measures each installed server with closed loops.
pub(crate) fn different_names() -> Result<Vec<(&'static str, ClosedLoops)>> {
    // Neither the sender nor the reflector of xtask runs here, so no release build of xtask is needed.
    let lab = Lab::up_with(&Build::Release.dns64bench()?, &process::this_program()?)?;
    let names = Names::write(lab.folder.path())?;
    let _auth = serve_auth(&lab)?;
    let mut rates = Vec::new();
    let installed = [Kind::Unbound, Kind::Bind, Kind::Powerdns];
    let installed = installed.iter().filter_map(|&kind| Dut::of_host(&lab, kind));
    for dut in [Dut::dns64d(&lab)].into_iter().chain(installed) {
        let server = dut.start(&lab)?;
        let dnsperf = dnsperf(&lab, &server, &names.different, &["-n", "1", "-l", "4"])?.rate;
        let ours = ["--names", "13.0.0.0/8", "--expect-prefix", "64:ff9b::/96"];
        let ours = closed_loop(&lab, &server, &ours, "true")?.rate;
        rates.push((dut.name(), ClosedLoops { dnsperf, ours }));
    }
    Ok(rates)
}

/// Runs all clients one after the other, first with new names, then with cached names.
fn throughput(lab: &Lab, dut: &Dut, names: &Names) -> Result<Round> {
    let server = dut.start(lab)?;
    let translated = ["--expect-prefix", "64:ff9b::/96"];
    let closed_loop = |names: &[&str], offload| {
        closed_loop(lab, &server, &[names, &translated].concat(), offload)
    };
    let different = [
        dnsperf(lab, &server, &names.different, &["-n", "1", "-l", LOOP_SECONDS])?,
        closed_loop(&["--names", "12.0.0.0/8"], "false")?,
        closed_loop(&["--names", "13.0.0.0/8"], "true")?,
    ];
    dnsperf(lab, &server, &names.cached, &["-n", "1"])?;
    let few = CACHED_NAMES.to_string();
    let cached_names = ["--names", "11.0.0.0/8", "--count", &few];
    let cached = [
        dnsperf(lab, &server, &names.cached, &["-l", LOOP_SECONDS])?,
        closed_loop(&cached_names, "false")?,
        closed_loop(&cached_names, "true")?,
    ];
    Ok([different, cached])
}

/// Runs the clients against an AuthDNS that takes the place of the DUT. AuthDNS answers without any lookup, so a server
/// that answers queries one by one can hardly be faster.
fn without_lookup(lab: &Lab, names: &Names) -> Result<[Load; CLIENTS.len()]> {
    let auth = ["taskset", "-c", DUT_CPU, &lab.program, "auth", "--listen", DUT, "--threads", "1"];
    let server = Server::start(
        &lab.program,
        &lab.exec("dut", &[&auth[..], &["--aaaa-share", "1"]].concat()),
    )?;
    wait_until_listens(&[&[lab.program.as_str()], &lab.exec("dut", &[])[..]].concat(), 53)?;
    let few = CACHED_NAMES.to_string();
    let cached_names = ["--names", "11.0.0.0/8", "--count", &few];
    Ok([
        dnsperf(lab, &server, &names.cached, &["-l", LOOP_SECONDS])?,
        closed_loop(lab, &server, &cached_names, "false")?,
        closed_loop(lab, &server, &cached_names, "true")?,
    ])
}

/// Prints the range of the stolen CPU time over the rounds, if any. Stolen time is CPU time that the host of a virtual
/// machine used for other purposes.
fn print_stolen(what: &str, percent: &[f64]) {
    let Some(spread) = Summary::of(percent).filter(|spread| spread.max >= 1.0) else { return };
    println!(
        "The host took {:.0} to {:.0} % of this machine's CPU time in the rounds of {what}, which are worse by that share",
        spread.min, spread.max
    );
}

/// Measures the latencies of all servers in several rounds.
fn latencies(lab: &Lab, all: &mut Vec<Figures>, claims: &mut Claims) -> Result<()> {
    let common = all.iter().find(|f| f.name() == "Unbound").map_or(5_000, Figures::half_rate);
    let mut stolen = Vec::new();
    for round in 0..latency::ROUNDS {
        let before = CpuTimes::now()?;
        each(all, |figures| {
            let rates = [figures.half_rate(), common];
            latency::at_rates(lab, &figures.dut, rates, round % 2)
                .map(|p99_us| figures.p99_us.push(p99_us))
        });
        stolen.push(CpuTimes::now()?.stolen_since(&before).all_pct);
    }
    print_stolen("latencies", &stolen);
    claims.keep("stolen in rounds of latency, %", json!(stolen));
    Ok(())
}

/// Reports the ratio of dns64d's rate to that of the fastest of the `others`. There is a ratio for each client, with
/// its range over the rounds, and a ratio of the highest rates with any client.
fn ratios(
    all: &[Figures],
    (set, whose, wanted): (usize, &str, f64),
    others: fn(&str) -> bool,
    claims: &mut Claims,
) {
    let what = format!("{}, dns64d's highest rate by {whose}", NAME_SETS[set]);
    let ours = all.iter().find(|f| f.name() == "dns64d");
    // If a server is missing, the fastest of the remaining servers may not be the fastest of all.
    let is_measured = |name: &&str| all.iter().any(|f| f.name() == *name);
    let wanted_names = compared_names().filter(|name| *name == "dns64d" || others(name));
    let missing: Vec<&str> = wanted_names.filter(|name| !is_measured(name)).collect();
    let Some(ours) = ours.filter(|_| missing.is_empty()) else {
        let why = format!("not measured: {}", missing.join(", "));
        claims.hold(&what, Bound::AtLeast(wanted), Err(why));
        return;
    };
    let best = |rate: &dyn Fn(&Figures) -> f64| {
        all.iter().filter(|f| others(f.name())).map(rate).fold(f64::MIN_POSITIVE, f64::max)
    };
    println!("{}, dns64d's rate by {whose}:", NAME_SETS[set]);
    for (client, label) in CLIENTS.iter().enumerate() {
        let by_round = (0..ROUNDS).map(|round| {
            ours.rounds[round][set][client].rate / best(&|f| f.rounds[round][set][client].rate)
        });
        let Some(spread) = Summary::of(&by_round.collect::<Vec<f64>>()) else { continue };
        let load = ours.load(set, client);
        let idle = if load.cpu < 0.9 { "; dns64d waited for the client" } else { "" };
        println!(
            "  {label:<14} {:.2} ({:.2} to {:.2}){idle}",
            spread.median, spread.min, spread.max
        );
    }
    let highest = ours.highest(set) / best(&|f| f.highest(set));
    println!("  {:<14} {highest:.2}", "each's highest");
    claims.hold(&what, Bound::AtLeast(wanted), Ok(highest));
}

fn print_latency(all: &[Figures], claims: &mut Claims) {
    println!("\np99 of the round-trip time: medians of the rounds (least to greatest)");
    for (rate, at) in RATES.iter().enumerate() {
        for f in all {
            println!("{:<13} {} {at}", f.name(), latency::words(&f.latencies(rate)));
        }
    }
    let get = |name: &str| all.iter().find(|f| f.name() == name);
    println!("dns64d / Unbound in the same round:");
    for (rate, at) in RATES.iter().enumerate() {
        let ratio = match (get("dns64d"), get("Unbound")) {
            (Some(ours), Some(theirs)) => {
                let pairs = ours.latencies(rate).into_iter().zip(theirs.latencies(rate));
                latency::ratio(&pairs.collect::<Vec<_>>())
            }
            _ => Err("at least one of them was not measured".into()),
        };
        match &ratio {
            Ok(ratio) => {
                println!("  {at:<24} {:.2} ({:.2} to {:.2})", ratio.median, ratio.min, ratio.max);
            }
            Err(why) => println!("  {at:<24} {why}"),
        }
        let what = format!("p99 of dns64d divided by Unbound's in the same round, {at}");
        claims.hold(&what, Bound::AtMost(1.0), ratio.map(|ratio| ratio.median));
    }
}

/// Measures dns64d on two cores. If this machine has only two cores, the client and AuthDNS share them with dns64d.
fn two_cores(lab: &Lab, names: &Names, claims: &mut Claims) -> Result<()> {
    let rate = |threads: usize| -> Result<Load> {
        let program = Path::new(&lab.program).with_file_name("dns64d");
        let words = dut_in_lab(Kind::Dns64d, &lab.folder.path().join("scale"), &program, threads)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let server = Server::start(&lab.program, &lab.exec("dut", &words))?;
        wait_until_ready(lab, DUT)?;
        // There are ten sockets, so that the kernel can distribute their queries over both workers.
        let args = [
            "dnsperf",
            "-s",
            DUT_HOST,
            "-d",
            &names.different,
            "-q",
            OUTSTANDING,
            "-c",
            "10",
            "-n",
            "1",
        ];
        under_load(&server, || {
            answered_by_dnsperf(&output(&lab.program, &lab.exec("tester", &args), LIMIT)?)
        })
    };
    let (one, two) = (rate(1)?, rate(2)?);
    println!("\nTwo workers, different names, dnsperf with ten sockets");
    for (workers, load) in [("one", one), ("two", two)] {
        println!(
            "  {workers}: {:.0}/s with {:.2} CPUs, {:.1} µs of CPU each",
            load.rate,
            load.cpu,
            load.us_per_answer()
        );
    }
    println!("two / one: {:.2}", two.rate / one.rate);
    println!(
        "rate per second of CPU time, two / one: {:.2} (1 if workers do not hinder each other)",
        two.per_cpu_second() / one.per_cpu_second()
    );
    claims.keep("one and two workers", json!([[one.rate, one.cpu], [two.rate, two.cpu]]));
    let cpus = thread::available_parallelism()?.get();
    if cpus < 4 {
        // There is no claim about this figure.
        println!(
            "This machine has {cpus} CPUs: dnsperf and AuthDNS need the CPU of a second worker"
        );
    } else {
        claims.hold(
            "rate of two workers divided by that of one",
            Bound::AtLeast(1.8),
            Ok(two.rate / one.rate),
        );
    }
    Ok(())
}
