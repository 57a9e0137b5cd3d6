//! `bench dns64`: dns64d compared with Unbound, BIND and PowerDNS Recursor in one run. Each server runs on one core.

pub(crate) mod against;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hosts::servers::{self, Operator};
use method::stats::Summary;
use net::cpu_time::CpuTimes;
use serde_json::{Value, json};

use crate::bench::lab::{LIMIT, Lab, valid_trial};
use crate::claims::{Bound, Claims, NotDecided, ResultOptions};
use crate::process::{self, Build, Server, cpu_seconds, find, memory, output};
use crate::servers::{
    AUTH, DUT, DUT_HOST, dut_in_lab, dut_of_operator, wait_until_answers, wait_until_listens,
};

/// CPU of the DUT, and the CPU that the tester and AuthDNS share.
const DUT_CPU: &str = "1";
const TESTER_CPU: &str = "0";
/// Number of queries in flight in a closed loop.
const OUTSTANDING: &str = "200";
/// Duration of a closed loop.
const LOOP: Duration = Duration::from_secs(4);
const CACHED_NAMES: u32 = 10_000;
const MEMORY_NAMES: u32 = 1_000_000;

/// A server under test.
struct Dut {
    kind: servers::Dut,
    /// True if the memory for a million names is also measured.
    for_memory: bool,
}

impl Dut {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
}

const DUTS: [Dut; 4] = [
    Dut { kind: servers::Dut::Dns64d, for_memory: true },
    Dut { kind: servers::Dut::Unbound, for_memory: true },
    Dut { kind: servers::Dut::Bind, for_memory: false },
    Dut { kind: servers::Dut::Powerdns, for_memory: false },
];

/// Number of rounds. All servers are measured in each round, so that a slow phase of this machine affects all of them.
const ROUNDS: usize = 3;
const LATENCY_ROUNDS: usize = 8;
/// Duration of a trial that measures latencies, in seconds.
const LATENCY_SECONDS: u64 = 3;

/// Clients, in order of decreasing CPU time per query. The less CPU time the client leaves to AuthDNS, the longer a
/// fast server waits.
const CLIENTS: [&str; 3] = ["dnsperf", "closed-loop", "+ UDP_SEGMENT"];
const NAME_SETS: [&str; 2] = ["different names", "cached names"];

/// Answers per second, and the share of a core that the server used.
#[derive(Clone, Copy, Default)]
struct Load {
    rate: f64,
    cpu: f64,
}

impl Load {
    /// Returns answers per second of the server's CPU time.
    fn per_cpu_second(self) -> f64 {
        self.rate / self.cpu
    }
}

/// Results of one round for a server: one result for each client and each set of names.
type Round = [[Load; CLIENTS.len()]; NAME_SETS.len()];

/// Results of one server.
struct Figures<'a> {
    dut: &'a Dut,
    program: PathBuf,
    rounds: Vec<Round>,
    mebibytes: Option<f64>,
    /// Latencies in each round: at half of the server's highest rate, and at half of Unbound's.
    p99_us: Vec<[Latency; 2]>,
}

/// 99th percentile of the round-trip time in µs at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Latency {
    /// Latency in microseconds, from a trial in which at most one query in a thousand had no valid reply.
    Of(f64),
    /// The server does not answer all queries.
    Overloaded,
    /// The tester invalidated the trial and its repetitions.
    Invalid,
}

impl Latency {
    /// Returns the time, if it is known.
    fn us(self) -> Option<f64> {
        if let Latency::Of(us) = self { Some(us) } else { None }
    }
}

impl Figures<'_> {
    /// Returns all results as raw data for the results file.
    fn raw(&self) -> Value {
        let loads = |set: &[Load; CLIENTS.len()]| {
            let load = |(client, load): (&&str, &Load)| json!({ "client": client, "answers_per_s": load.rate, "cpu": load.cpu });
            CLIENTS.iter().zip(set).map(load).collect::<Vec<_>>()
        };
        let rounds = self
            .rounds
            .iter()
            .map(|round| json!({ "different": loads(&round[0]), "cached": loads(&round[1]) }));
        let p99 = self.p99_us.iter().map(|round| round.map(|latency| format!("{latency:?}")));
        json!({
            "name": self.dut.name(),
            "rounds": rounds.collect::<Vec<_>>(),
            "mebibytes_of_a_million_names": self.mebibytes,
            "p99_us_at_half_of_its_own_rate_and_of_unbounds": p99.collect::<Vec<_>>(),
        })
    }

    /// Returns the medians over the rounds.
    fn load(&self, set: usize, client: usize) -> Load {
        let of = |pick: fn(&Load) -> f64| {
            median(self.rounds.iter().map(|round| pick(&round[set][client])))
        };
        Load { rate: of(|load| load.rate), cpu: of(|load| load.cpu) }
    }

    /// Returns the highest rate of any client, as the median over the rounds.
    fn highest(&self, set: usize) -> f64 {
        (0..CLIENTS.len()).map(|client| self.load(set, client).rate).fold(0.0, f64::max)
    }

    /// Returns half of dnsperf's rate with different names.
    fn half_rate(&self) -> u64 {
        (self.load(0, 0).rate / 2.0) as u64
    }
}

fn summary(values: impl Iterator<Item = f64>) -> Option<Summary> {
    Summary::of(&values.collect::<Vec<f64>>())
}

/// Returns the summary if there is a value for every round.
fn summary_if_all(values: impl Iterator<Item = Option<f64>>) -> Option<Summary> {
    Summary::of(&values.collect::<Option<Vec<f64>>>()?)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    summary(values).map_or(0.0, |summary| summary.median)
}

pub(crate) fn run(keeping: &ResultOptions) -> Result<ExitCode> {
    let (lab, mut claims) = (Lab::up(keeping.build())?, Claims::default());
    let names = Names::write(lab.folder.path())?;
    let _auth = serve_auth(&lab)?;
    let mut all: Vec<Figures<'_>> = Vec::new();
    for dut in &DUTS {
        match program(&lab, dut) {
            Some(program) => {
                all.push(Figures {
                    dut,
                    program,
                    rounds: Vec::new(),
                    mebibytes: None,
                    p99_us: Vec::new(),
                });
            }
            None => println!("SKIPPED {}: its program is not found", dut.name()),
        }
    }
    let (mut ceiling, mut stolen) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = CpuTimes::now()?;
        each(&mut all, |figures| {
            throughput(&lab, figures, &names).map(|round| figures.rounds.push(round))
        });
        ceiling.push(without_lookup(&lab)?);
        stolen.push(CpuTimes::now()?.stolen_since(&before).all_pct);
    }
    for figures in all.iter_mut().filter(|figures| figures.dut.for_memory) {
        figures.mebibytes = Some(million_names(&lab, figures, &names)?);
    }
    print_throughput(&all, &ceiling, &mut claims);
    print_stolen(&stolen);
    claims.keep("stolen in rounds of throughput, %", json!(stolen));
    let stolen = latencies(&lab, &mut all)?;
    print_latency(&all, &mut claims);
    print_stolen(&stolen);
    claims.keep("stolen in rounds of latency, %", json!(stolen));
    two_cores(&lab, &names, &mut claims)?;
    claims.keep("servers", all.iter().map(Figures::raw).collect());
    claims.conclude(keeping)
}

/// Calls `measure` for each server. A server for which `measure` fails is removed.
fn each(all: &mut Vec<Figures<'_>>, mut measure: impl FnMut(&mut Figures<'_>) -> Result<()>) {
    all.retain_mut(|figures| {
        let measured = measure(figures);
        if let Err(error) = &measured {
            println!("FAILED {}: {error:#}", figures.dut.name());
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
    let dut = DUTS.iter().find(|dut| dut.kind == servers::Dut::Dns64d).context("dns64d")?;
    let program = program(lab, dut).context("dns64d was not found")?;
    let auth = serve_auth(lab)?;
    Ok([start_within(lab, dut, &program, DUT, operator, within)?, auth])
}

/// Measures each installed server with closed loops.
pub(crate) fn different_names() -> Result<Vec<(&'static str, ClosedLoops)>> {
    // Neither the sender nor the reflector of xtask runs here, so no release build of xtask is needed.
    let lab = Lab::up_with(&Build::Release.dns64bench()?, &process::this_program()?)?;
    let names = Names::write(lab.folder.path())?;
    let _auth = serve_auth(&lab)?;
    let mut rates = Vec::new();
    for dut in &DUTS {
        let Some(program) = program(&lab, dut) else { continue };
        let server = start(&lab, dut, &program)?;
        let dnsperf = dnsperf(&lab, &server, &names.different, &["-n", "1", "-l", "4"])?.rate;
        let ours = ["--names", "13.0.0.0/8", "--expect-prefix", "64:ff9b::/96"];
        let ours = closed_loop(&lab, &server, &ours, "true")?.rate;
        rates.push((dut.name(), ClosedLoops { dnsperf, ours }));
    }
    Ok(rates)
}

fn serve_auth(lab: &Lab) -> Result<Server> {
    lab.serve(&[
        "taskset",
        "-c",
        TESTER_CPU,
        &lab.program,
        "auth",
        "--listen",
        AUTH,
        "--threads",
        "1",
    ])
}

/// Query files for dnsperf.
struct Names {
    different: String,
    cached: String,
}

impl Names {
    fn write(folder: &Path) -> Result<Names> {
        let file = |name: &str, first: u32, count: u32| -> Result<String> {
            let mut text = String::with_capacity(count as usize * 36);
            for n in first..first + count {
                let [a, b, c, d] = n.to_be_bytes();
                writeln!(text, "{a:03}-{b:03}-{c:03}-{d:03}.dns64perf.test AAAA")?;
            }
            let path = folder.join(name);
            fs::write(&path, text)?;
            Ok(path.to_string_lossy().into_owned())
        };
        Ok(Names {
            different: file("different", 10 << 24, MEMORY_NAMES)?,
            cached: file("cached", 11 << 24, CACHED_NAMES)?,
        })
    }
}

fn program(lab: &Lab, dut: &Dut) -> Option<PathBuf> {
    let name = dut.kind.driver().program_name()?;
    let ours = dut.kind == servers::Dut::Dns64d;
    if ours { Some(Path::new(&lab.program).with_file_name(name)) } else { find(name) }
}

/// Starts a server with one thread on the DUT's CPU, and waits until it answers, which takes some servers several
/// seconds.
fn start(lab: &Lab, dut: &Dut, program: &Path) -> Result<Server> {
    start_with(lab, dut, program, DUT, &Operator::default())
}

/// Starts a server at an address of the DUT, with additional configuration lines.
fn start_with(
    lab: &Lab,
    dut: &Dut,
    program: &Path,
    address: &str,
    operator: &Operator,
) -> Result<Server> {
    start_within(lab, dut, program, address, operator, &[])
}

/// Same as [`start_with`]. `within` is the beginning of a command that runs the server.
fn start_within(
    lab: &Lab,
    dut: &Dut,
    program: &Path,
    address: &str,
    operator: &Operator,
    within: &[String],
) -> Result<Server> {
    let folder = lab.folder.path().join(dut.name());
    let words = dut_of_operator(dut.kind, &folder, program, 1, address, operator)?;
    let mut command = vec!["taskset", "-c", DUT_CPU];
    command.extend(within.iter().chain(&words).map(String::as_str));
    let server = Server::start(&lab.program, &lab.exec("dut", &command))?;
    wait_until_ready(lab, address)?;
    Ok(server)
}

fn wait_until_ready(lab: &Lab, address: &str) -> Result<()> {
    wait_until_answers(
        &lab.program,
        address,
        &["--names", "9.0.0.0/24", "--expect-prefix", "64:ff9b::/96"],
    )
}

/// Runs all clients one after the other, first with new names, then with cached names.
fn throughput(lab: &Lab, figures: &Figures<'_>, names: &Names) -> Result<Round> {
    let server = start(lab, figures.dut, &figures.program)?;
    let translated = ["--expect-prefix", "64:ff9b::/96"];
    let closed_loop = |names: &[&str], offload| {
        closed_loop(lab, &server, &[names, &translated].concat(), offload)
    };
    let different = [
        dnsperf(lab, &server, &names.different, &["-n", "1", "-l", "4"])?,
        closed_loop(&["--names", "12.0.0.0/8"], "false")?,
        closed_loop(&["--names", "13.0.0.0/8"], "true")?,
    ];
    dnsperf(lab, &server, &names.cached, &["-n", "1"])?;
    let few = CACHED_NAMES.to_string();
    let cached_names = ["--names", "11.0.0.0/8", "--count", &few];
    let cached = [
        dnsperf(lab, &server, &names.cached, &["-l", "4"])?,
        closed_loop(&cached_names, "false")?,
        closed_loop(&cached_names, "true")?,
    ];
    Ok([different, cached])
}

/// Runs the clients against an AuthDNS that takes the place of the DUT. AuthDNS answers without any lookup, so a server
/// that answers queries one by one can hardly be faster.
fn without_lookup(lab: &Lab) -> Result<[Load; CLIENTS.len()]> {
    let auth = ["taskset", "-c", DUT_CPU, &lab.program, "auth", "--listen", DUT, "--threads", "1"];
    let server = Server::start(
        &lab.program,
        &lab.exec("dut", &[&auth[..], &["--aaaa-share", "1"]].concat()),
    )?;
    wait_until_listens(&[&[lab.program.as_str()], &lab.exec("dut", &[])[..]].concat(), 53)?;
    let (few, file) = (CACHED_NAMES.to_string(), lab.folder.path().join("cached"));
    let names = ["--names", "11.0.0.0/8", "--count", &few];
    Ok([
        dnsperf(lab, &server, &file.to_string_lossy(), &["-l", "4"])?,
        closed_loop(lab, &server, &names, "false")?,
        closed_loop(lab, &server, &names, "true")?,
    ])
}

/// Returns the memory in MiB that a server uses for a million names.
fn million_names(lab: &Lab, figures: &Figures<'_>, names: &Names) -> Result<f64> {
    let server = start(lab, figures.dut, &figures.program)?;
    let before = memory(server.pid()?)?;
    dnsperf(lab, &server, &names.different, &["-n", "1", "-l", "300"])?;
    Ok(memory(server.pid()?)? - before)
}

fn dnsperf(lab: &Lab, server: &Server, file: &str, more: &[&str]) -> Result<Load> {
    let args = [
        &[
            "taskset",
            "-c",
            TESTER_CPU,
            "dnsperf",
            "-s",
            DUT_HOST,
            "-d",
            file,
            "-q",
            OUTSTANDING,
            "-c",
            "1",
        ],
        more,
    ]
    .concat();
    under_load(server, || {
        let printed = output(&lab.program, &lab.exec("tester", &args), Duration::from_secs(400))?;
        rate_of_dnsperf(&printed)
    })
}

fn rate_of_dnsperf(printed: &str) -> Result<f64> {
    let rate = printed.lines().find_map(|line| line.trim().strip_prefix("Queries per second:"));
    rate.and_then(|rate| rate.trim().parse().ok()).with_context(|| printed.to_owned())
}

/// Runs our own client.
fn closed_loop(lab: &Lab, server: &Server, names: &[&str], offload: &str) -> Result<Load> {
    closed_loop_at(DUT, LOOP, lab, server, names, offload)
}

/// Runs our closed loop at another address of the server, for another duration.
fn closed_loop_at(
    address: &str,
    time: Duration,
    lab: &Lab,
    server: &Server,
    names: &[&str],
    offload: &str,
) -> Result<Load> {
    let time = format!("{}ms", time.as_millis());
    let args = ["--server", address, "--outstanding", OUTSTANDING];
    let args = [&args[..], names, &["--duration", &time, "--offload", offload]].concat();
    under_load(server, || answers(lab, &args)?["qps"].as_f64().context("no rate"))
}

/// Runs our closed loop, and returns its result. At most one query in a thousand has no answer.
pub(crate) fn answers(lab: &Lab, more: &[&str]) -> Result<Value> {
    let args = [&lab.program, "closed-loop", "--cpus", TESTER_CPU, "--json"];
    let args = lab.exec("tester", &[&args[..], more].concat());
    let result: Value = serde_json::from_str(&output(&lab.program, &args, LIMIT)?)?;
    // A query may occasionally be lost because of a full socket buffer, but no answer may be wrong.
    let [sent, valid, lost, dropped] =
        ["sent", "valid", "lost", "client_drops"].map(|key| result[key].as_u64().unwrap_or(0));
    if dropped > 0 {
        bail!(NotDecided(format!("this host dropped {dropped} answers")));
    }
    ensure!(sent == valid + lost && lost * 1000 < sent, "{sent} sent, {valid} valid, {lost} lost");
    Ok(result)
}

fn under_load(server: &Server, load: impl FnOnce() -> Result<f64>) -> Result<Load> {
    let (before, started) = (cpu_seconds(server.pid()?)?, Instant::now());
    let rate = load()?;
    let cpu = (cpu_seconds(server.pid()?)? - before) / started.elapsed().as_secs_f64();
    Ok(Load { rate, cpu })
}

/// Prints the range of the stolen CPU time over the rounds, if any. Stolen time is CPU time that the host of a virtual
/// machine used for other purposes.
fn print_stolen(percent: &[f64]) {
    let Some(spread) = Summary::of(percent).filter(|spread| spread.max >= 1.0) else { return };
    println!(
        "The host took {:.0} to {:.0} % of this machine's CPU time, round by round: the figures are lower by that share",
        spread.min, spread.max
    );
}

/// Measures the latencies of all servers in several rounds. Returns the stolen CPU time in each round.
fn latencies(lab: &Lab, all: &mut Vec<Figures<'_>>) -> Result<Vec<f64>> {
    let common = all.iter().find(|f| f.dut.name() == "Unbound").map_or(5_000, Figures::half_rate);
    let mut stolen = Vec::new();
    for round in 0..LATENCY_ROUNDS {
        let before = CpuTimes::now()?;
        each(all, |figures| {
            both_latencies(lab, figures, common, round % 2)
                .map(|p99_us| figures.p99_us.push(p99_us))
        });
        stolen.push(CpuTimes::now()?.stolen_since(&before).all_pct);
    }
    Ok(stolen)
}

/// Measures the latency of a server at half of its own rate and at the rate `common`. `first` is the index of the rate
/// that is measured first.
fn both_latencies(
    lab: &Lab,
    figures: &Figures<'_>,
    common: u64,
    first: usize,
) -> Result<[Latency; 2]> {
    let _server = start(lab, figures.dut, &figures.program)?;
    let loads = [(figures.half_rate(), "14.0.0.0/8"), (common, "15.0.0.0/8")];
    let mut p99_us = [Latency::Invalid; 2];
    for load in [first, 1 - first] {
        let (rate, names) = loads[load];
        p99_us[load] = latency(lab, rate, names)?;
    }
    Ok(p99_us)
}

/// Measures the 99th percentile of the round-trip time at a constant rate, if at most one query in a thousand has no
/// valid reply. Queries may deviate from the schedule by 200 µs, so that the sender leaves enough CPU time to AuthDNS,
/// which shares the CPU. Each repetition of an invalid trial uses different names.
fn latency(lab: &Lab, rate: u64, names: &str) -> Result<Latency> {
    let per_trial = rate.max(1) * LATENCY_SECONDS;
    let (rate, seconds) = (rate.max(1).to_string(), format!("{LATENCY_SECONDS}s"));
    let args = ["--server", DUT, "--rate", &rate, "--duration", &seconds, "--names", names];
    let args = [&args[..], &["--cpus", TESTER_CPU, "--max-burst", "200us"]].concat();
    let trial = valid_trial(|attempt| {
        let first = (u64::from(attempt) * per_trial).to_string();
        lab.measure_names_without_aaaa(&[&args[..], &["--first-name", &first]].concat())
    });
    let trial = match trial {
        Err(error) if error.is::<NotDecided>() => return Ok(Latency::Invalid),
        trial => trial?,
    };
    let [sent, valid] = ["sent", "valid"].map(|key| trial[key].as_u64().unwrap_or(0));
    let p99 =
        trial["rtt_us"]["p99"].as_f64().filter(|_| valid > 0 && (sent - valid) * 1000 <= sent);
    Ok(p99.map_or(Latency::Overloaded, Latency::Of))
}

fn print_throughput(all: &[Figures<'_>], ceiling: &[[Load; CLIENTS.len()]], claims: &mut Claims) {
    println!(
        "\nOne core for the DUT, {OUTSTANDING} queries in flight, AuthDNS and the client on the other core"
    );
    println!(
        "Answers per second, and the share of its core that the DUT used: medians of {ROUNDS} rounds"
    );
    let cell = |load: Load| format!("{:.0} {:>3.0} %", load.rate, load.cpu * 100.0);
    for (set, what) in NAME_SETS.iter().enumerate() {
        println!(
            "\n{what:<16} {:>17} {:>17} {:>17} {:>10}",
            CLIENTS[0], CLIENTS[1], CLIENTS[2], "1 M names"
        );
        for f in all {
            let cells = [0, 1, 2].map(|client| cell(f.load(set, client)));
            let memory =
                f.mebibytes.filter(|_| set == 0).map_or(String::new(), |m| format!("{m:.0} MiB"));
            println!(
                "{:<16} {:>17} {:>17} {:>17} {memory:>10}",
                f.dut.name(),
                cells[0],
                cells[1],
                cells[2]
            );
        }
    }
    let of = |client: usize, pick: fn(&Load) -> f64| {
        median(ceiling.iter().map(|loads| pick(&loads[client])))
    };
    let cells = [0, 1, 2]
        .map(|client| cell(Load { rate: of(client, |l| l.rate), cpu: of(client, |l| l.cpu) }));
    println!("{:<16} {:>17} {:>17} {:>17}", "no lookup at all", cells[0], cells[1], cells[2]);
    println!("(the last line: AuthDNS in the DUT's place, replies one by one)\n");
    ratios(all, (0, "Unbound's", 5.0), |name| name == "Unbound", claims);
    ratios(all, (1, "the best of the others'", 2.0), |name| name != "dns64d", claims);
}

/// Reports the ratio of dns64d's rate to that of the fastest of the `others`. There is a ratio for each client, with
/// its range over the rounds, and a ratio of the highest rates with any client.
fn ratios(
    all: &[Figures<'_>],
    (set, whose, wanted): (usize, &str, f64),
    others: fn(&str) -> bool,
    claims: &mut Claims,
) {
    let what = format!("{}, dns64d's highest rate by {whose}", NAME_SETS[set]);
    let ours = all.iter().find(|f| f.dut.name() == "dns64d");
    // If a server is missing, the fastest of the remaining servers may not be the fastest of all.
    let is_measured = |dut: &&Dut| all.iter().any(|f| f.dut.name() == dut.name());
    let wanted_ones = DUTS.iter().filter(|dut| dut.name() == "dns64d" || others(dut.name()));
    let missing: Vec<&str> = wanted_ones.filter(|dut| !is_measured(dut)).map(Dut::name).collect();
    let Some(ours) = ours.filter(|_| missing.is_empty()) else {
        let why = format!("not measured: {}", missing.join(", "));
        claims.hold(&what, Bound::AtLeast(wanted), Err(why));
        return;
    };
    let best = |rate: &dyn Fn(&Figures<'_>) -> f64| {
        all.iter().filter(|f| others(f.dut.name())).map(rate).fold(f64::MIN_POSITIVE, f64::max)
    };
    println!("{}, dns64d's rate by {whose}:", NAME_SETS[set]);
    for (client, label) in CLIENTS.iter().enumerate() {
        let by_round = (0..ROUNDS).map(|round| {
            ours.rounds[round][set][client].rate / best(&|f| f.rounds[round][set][client].rate)
        });
        let Some(spread) = summary(by_round) else { continue };
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

fn print_latency(all: &[Figures<'_>], claims: &mut Claims) {
    println!(
        "\np99 of the round-trip time: medians of {LATENCY_ROUNDS} rounds (least to greatest)"
    );
    let loads = ["at half of its own rate", "at half of Unbound's"];
    for (i, load) in loads.iter().enumerate() {
        for f in all {
            let rounds: Vec<Latency> = f.p99_us.iter().map(|round| round[i]).collect();
            println!("{:<9} {} {load}", f.dut.name(), latency_words(&rounds));
        }
    }
    println!("dns64d / Unbound in the same round:");
    for (i, load) in loads.iter().enumerate() {
        let ratio = latency_ratio(all, i);
        match &ratio {
            Ok(ratio) => {
                println!("  {load:<24} {:.2} ({:.2} to {:.2})", ratio.median, ratio.min, ratio.max);
            }
            Err(why) => println!("  {load:<24} {why}"),
        }
        let what = format!("p99 of dns64d divided by Unbound's in the same round, {load}");
        claims.hold(&what, Bound::AtMost(1.0), ratio.map(|ratio| ratio.median));
    }
}

/// Returns the latencies of a server in all rounds in words.
fn latency_words(rounds: &[Latency]) -> String {
    let valid: Vec<Latency> =
        rounds.iter().copied().filter(|round| *round != Latency::Invalid).collect();
    let note = match rounds.len() - valid.len() {
        0 => String::new(),
        invalid => format!(" ({invalid} rounds were invalid)"),
    };
    match summary_if_all(valid.iter().map(|round| round.us())) {
        Some(Summary { median, min, max, .. }) => {
            format!("{median:>8.0} µs ({min:.0} to {max:.0}){note}")
        }
        None if valid.is_empty() => format!("not decided{note}"),
        None => format!("does not answer all queries{note}"),
    }
}

/// Returns dns64d's 99th percentile divided by Unbound's, at the load with index `i`. Only rounds in which both trials
/// are valid count, and at least half of the rounds must be valid.
fn latency_ratio(all: &[Figures<'_>], i: usize) -> Result<Summary, String> {
    let get = |name: &str| all.iter().find(|f| f.dut.name() == name);
    let (Some(ours), Some(unbound)) = (get("dns64d"), get("Unbound")) else {
        return Err("at least one of them was not measured".into());
    };
    let rounds = ours.p99_us.iter().zip(&unbound.p99_us).map(|(ours, theirs)| (ours[i], theirs[i]));
    let sound: Vec<_> =
        rounds.filter(|round| ![round.0, round.1].contains(&Latency::Invalid)).collect();
    if sound.len() * 2 < LATENCY_ROUNDS {
        return Err(format!(
            "not decided: the tester invalidated all but {} of {LATENCY_ROUNDS} rounds",
            sound.len()
        ));
    }
    // There is no 99th percentile for a server that does not answer all queries. The claim is missed if there is none
    // for dns64d, and kept if there is none for Unbound only.
    let ratios = sound.iter().map(|(ours, theirs)| match (ours.us(), theirs.us()) {
        (Some(ours), Some(theirs)) => ours / theirs,
        (None, _) => f64::INFINITY,
        (Some(_), None) => 0.0,
    });
    summary(ratios).ok_or_else(|| "no round was valid".into())
}

/// Measures dns64d on two cores. If this machine has only two cores, the client and AuthDNS share them with dns64d.
fn two_cores(lab: &Lab, names: &Names, claims: &mut Claims) -> Result<()> {
    let rate = |threads: usize| -> Result<Load> {
        let program = Path::new(&lab.program).with_file_name("dns64d");
        let words =
            dut_in_lab(servers::Dut::Dns64d, &lab.folder.path().join("scale"), &program, threads)?;
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
            rate_of_dnsperf(&output(&lab.program, &lab.exec("tester", &args), LIMIT)?)
        })
    };
    let (one, two) = (rate(1)?, rate(2)?);
    let cost = |load: Load| load.cpu * 1e6 / load.rate;
    println!("\nTwo workers, different names, dnsperf with ten sockets");
    for (workers, load) in [("one", one), ("two", two)] {
        println!(
            "  {workers}: {:.0}/s with {:.2} CPUs, {:.1} µs of CPU each",
            load.rate,
            load.cpu,
            cost(load)
        );
    }
    println!("two / one: {:.2}", two.rate / one.rate);
    println!(
        "rate per second of CPU time, two / one: {:.2} (1 if workers do not hinder each other)",
        cost(one) / cost(two)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_of_invalid_rounds_only_is_not_decided() {
        let (known, invalid) = (Latency::Of(200.0), Latency::Invalid);
        assert_eq!(latency_words(&[invalid; 8]), "not decided (8 rounds were invalid)");
        let some = latency_words(&[known, invalid]);
        assert_eq!(some.trim(), "200 µs (200 to 200) (1 rounds were invalid)");
        assert_eq!(latency_words(&[known, Latency::Overloaded]), "does not answer all queries");
    }
}
