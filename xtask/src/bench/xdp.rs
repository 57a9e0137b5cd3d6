//! `bench xdp`: gain of AF_XDP over sockets on one core. Both are measured in the same run.
//!
//! To measure the capacity of a server, the server runs alone on CPU 1 and is overloaded from CPU 0. To measure the
//! capacity of the Measurer, the Measurer runs alone on CPU 0 with a rate above its capacity. The sender's CPU also
//! carries each packet over veth up to the server's socket or ring. dns64d runs alone on CPU 1, and is queried by a
//! closed loop that shares CPU 0 with AuthDNS. The methods are measured alternately, and in a changing order, because
//! this machine's speed drifts.
//!
//! For dns64d, rates over veth show no dependable gain, so instructions and system calls per answer are counted as well.

mod cost;
mod transport;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use method::stats::Summary;
use serde_json::{Value, json};

use self::transport::TRANSPORTS;
use super::lab::{AUTH, LIMIT, Lab, highest, reasons, valid_trial, verdict, words};
use crate::bench_dns64::dns64d_of_different_names;
use crate::claims::{Bound, Claims, NotDecided, ResultOptions};
use crate::process::{self, Server, find, output};
use crate::servers::wait_until_answers;

/// Number of measurements of each method with each client.
const ROUNDS: usize = 5;

/// Methods by which AuthDNS receives queries: name, and arguments of `auth`.
const WAYS: [(&str, &[&str]); 3] = [
    ("sockets", &[]),
    ("AF_XDP, native", &["--xdp", "to-tester", "--xdp-mode", "copy"]),
    ("AF_XDP, generic", &["--xdp", "to-tester", "--xdp-mode", "generic"]),
];

/// Queries per second that a client tries to send. No client reaches this rate, and no server here could answer it.
const OFFERED: &str = "1400000";
/// Methods by which the Measurer sends queries: name, and arguments of `measure`.
const WAYS_OUT: [(&str, &[&str]); 4] = [
    ("sockets, one by one", &["--offload", "false"]),
    ("sockets, UDP_SEGMENT", &[]),
    ("AF_XDP, native", &["--xdp", "to-auth", "--xdp-mode", "copy"]),
    ("AF_XDP, generic", &["--xdp", "to-auth", "--xdp-mode", "generic"]),
];

pub(crate) fn run(keeping: &ResultOptions) -> Result<ExitCode> {
    let (lab, mut claims) = (Lab::up(keeping.build())?, Claims::default());
    sending(&lab, &mut claims)?;
    pacing(&lab, &mut claims)?;
    answering(&lab, &mut claims)?;
    translating(&lab, &mut claims)?;
    cost::measure(&lab, &mut claims)?;
    self_test(&lab, &mut claims)?;
    claims.conclude(keeping)
}

/// Measures each method in each round, and returns the results by method. Each round starts with a different method.
fn in_turn(names: &[&str], mut measure: impl FnMut(usize) -> Result<f64>) -> Result<Vec<Vec<f64>>> {
    let mut all = vec![Vec::new(); names.len()];
    for round in 0..ROUNDS {
        for turn in 0..names.len() {
            let way = (turn + round) % names.len();
            let measured = measure(way)?;
            println!("{:<22} {measured:>9.0}", names[way]);
            all[way].push(measured);
        }
    }
    Ok(all)
}

/// Prints the ratio of the rate of each method to that of the first method. Returns the medians of the ratios.
fn ratios(names: &[&str], measured: &[Vec<f64>]) -> Result<Vec<f64>> {
    let mut medians = vec![1.0];
    for (name, of_way) in names.iter().zip(measured).skip(1) {
        let by_first: Vec<f64> =
            of_way.iter().zip(&measured[0]).map(|(ours, first)| ours / first).collect();
        let summary = Summary::of(&by_first).context("there are rounds")?;
        println!(
            "{name} divided by {}: {:.2} (median; {:.2} to {:.2})",
            names[0], summary.median, summary.min, summary.max
        );
        medians.push(summary.median);
    }
    Ok(medians)
}

/// Returns the results of each method, for the results file.
fn named(names: &[&str], measured: &[Vec<f64>]) -> Value {
    let by_name: BTreeMap<&str, &Vec<f64>> = names.iter().copied().zip(measured).collect();
    json!(by_name)
}

/// Measures how many queries per second the Measurer sends on one core if the configured rate is above its capacity.
fn sending(lab: &Lab, claims: &mut Claims) -> Result<()> {
    println!("Measurer on one core, overloaded: queries per second");
    let names = WAYS_OUT.map(|(name, _)| name);
    let sent = in_turn(&names, |way| {
        let _auth = lab.serve_with_xdp()?;
        let trial = lab.overload(WAYS_OUT[way].1)?;
        let number = |pointer: &str| {
            trial.pointer(pointer).and_then(Value::as_f64).with_context(|| reasons(&trial))
        };
        // The last query is sent later than scheduled by up to this time.
        Ok(number("/sent")? / (number("/duration_s")? + number("/pacing/max_us")? / 1e6))
    })?;
    let medians = ratios(&names, &sent)?;
    let what =
        "the Measurer's queries over native AF_XDP, divided by those over sockets one by one";
    claims.hold(what, Bound::AtLeast(1.5), Ok(medians[2]));
    claims.keep("queries sent per second", named(&names, &sent));
    Ok(())
}

/// Measures the pacing at 200 000 queries/s with each method.
fn pacing(lab: &Lab, claims: &mut Claims) -> Result<()> {
    println!("\nPacing at 200000 queries/s");
    println!("{:<22} {:>12} {:>13} {:>9}", "", "p99.9 late", "10 ms window", "verdict");
    let address = format!("{AUTH}:53");
    let mut all = Vec::new();
    for _ in 0..3 {
        for (name, more) in [WAYS_OUT[1], WAYS_OUT[2]] {
            let _auth = lab.serve_with_xdp()?;
            let offer = ["--server", &address, "--rate", "200000", "--duration", "10s"];
            let words = [&offer[..], &["--timeout", "250ms"], more].concat();
            let trial = match valid_trial(|_| lab.measure(&words)) {
                Err(error) if error.is::<NotDecided>() => {
                    println!("{name:<22} {error}");
                    continue;
                }
                trial => trial?,
            };
            let number =
                |pointer: &str| trial.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN);
            let (late, window) =
                (number("/pacing/p999_us"), number("/pacing/window_10ms_worst_pct"));
            let verdict = trial["verdict"].as_str().unwrap_or("?").to_owned();
            println!("{name:<22} {late:>9.0} µs {window:>11.2} % {verdict:>9}");
            all.push(json!({ "way": name, "trial": trial }));
        }
    }
    claims.keep("pacing at 200000 queries/s", Value::Array(all));
    Ok(())
}

/// Measures how many answers AuthDNS sends on one core in 3 s. The client is kxdpgun, because the Measurer records each
/// query and would need more than one core to overload AuthDNS. There is no claim about the ratio: it was 1.14 to 2.19
/// in the rounds on one host.
fn answering(lab: &Lab, claims: &mut Claims) -> Result<()> {
    println!("\nAuthDNS on one core, overloaded: replies in 3 s");
    let client = "kxdpgun";
    if find(client).is_none() {
        println!("not measured: {client} was not found");
        return Ok(());
    }
    let file = lab.queries()?;
    let others: Vec<Other> = Other::ALL.into_iter().filter(Other::is_there).collect();
    let names: Vec<&str> =
        WAYS.iter().map(|(name, _)| *name).chain(others.iter().map(|other| other.name)).collect();
    let replies = in_turn(&names, |way| match WAYS.get(way) {
        Some((_, more)) => Ok(lab.saturated_authdns(client, &file, &[], more)? as f64),
        None => lab.saturated_other(&others[way - WAYS.len()], &file),
    })?;
    ratios(&names, &replies)?;
    claims.keep("replies of AuthDNS, and of others", named(&names, &replies));
    Ok(())
}

/// An authoritative server of another project that supports AF_XDP.
struct Other {
    /// Name in the table.
    name: &'static str,
    /// Program: a name, or an environment variable with the path.
    program: Result<&'static str, &'static str>,
    /// Function that returns the configuration, given a folder for the server's files and a zone file.
    configuration: fn(folder: &str, zone: &str) -> String,
    /// Arguments between the program and the configuration file.
    arguments: &'static [&'static str],
}

impl Other {
    /// All servers. NSD supports AF_XDP only if it was built with `--enable-xdp`, which is not the case for the
    /// packages.
    const ALL: [Other; 2] = [
        Other {
            name: "knotd, AF_XDP, native",
            program: Ok("knotd"),
            configuration: |folder, zone| {
                format!(
                    "server:\n  rundir: \"{folder}\"\n  listen: {AUTH}@53\n  udp-workers: 1\n  background-workers: 1\n\
                     xdp:\n  listen: to-tester@53\ndatabase:\n  storage: \"{folder}\"\n\
                     zone:\n  - domain: dns64perf.test\n    file: \"{zone}\"\n    zonefile-load: whole\n    journal-content: none\n"
                )
            },
            arguments: &["-c"],
        },
        Other {
            name: "NSD, AF_XDP",
            program: Err("NSD_XDP"),
            configuration: |folder, zone| {
                format!(
                    "server:\n  ip-address: {AUTH}\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  zonesdir: \"{folder}\"\n  \
                     pidfile: \"\"\n  zonelistfile: \"{folder}/zone.list\"\n  xfrdfile: \"{folder}/xfrd.state\"\n  \
                     xfrdir: \"{folder}\"\n  xdp-interface: to-tester\n\
                     remote-control:\n  control-enable: no\nzone:\n  name: dns64perf.test\n  zonefile: \"{zone}\"\n"
                )
            },
            arguments: &["-d", "-c"],
        },
    ];

    /// Returns the path of the server's program, if the server is installed.
    fn path(&self) -> Option<PathBuf> {
        match self.program {
            Ok(name) => find(name),
            Err(variable) => std::env::var_os(variable).map(PathBuf::from),
        }
    }

    fn is_there(&self) -> bool {
        self.path().is_some()
    }
}

/// Measures how many answers per second dns64d sends on one core to queries for different names. Each name needs two
/// upstream queries. There is no claim about these rates, because the sender's core does the work of the other end's
/// network stack over veth, and the share of this work differs between hosts.
fn translating(lab: &Lab, claims: &mut Claims) -> Result<()> {
    println!("\ndns64d on one core, different names: answers per second");
    let names = TRANSPORTS.map(|transport| transport.name);
    let answers = in_turn(&names, |way| {
        let transport = &TRANSPORTS[way];
        lab.set_send_offload(transport.together)?;
        dns64d_of_different_names(lab, &transport.operator(), transport.together)
    });
    let answers = match answers {
        Err(error) if error.is::<NotDecided>() => {
            println!("{error:#}");
            return Ok(());
        }
        answers => answers?,
    };
    ratios(&names, &answers)?;
    claims.keep("answers of dns64d, different names", named(&names, &answers));
    Ok(())
}

/// Measures the highest rate at which the self-test passes with each method. Both ends use the same method.
fn self_test(lab: &Lab, claims: &mut Claims) -> Result<()> {
    println!("\nHighest rate of the self-test, tester and AuthDNS on a core each");
    let address = format!("{AUTH}:53");
    let ways = [
        (WAYS_OUT[0].0, WAYS_OUT[0].1, WAYS[0].1),
        (WAYS_OUT[1].0, WAYS_OUT[1].1, WAYS[0].1),
        (WAYS_OUT[2].0, WAYS_OUT[2].1, WAYS[1].1),
    ];
    let mut all = BTreeMap::new();
    for (name, out, at_auth) in ways {
        let _auth = lab.serve_authdns(&lab.program, &[&["--cpus", "1"], at_auth].concat())?;
        let found = highest(|rate| {
            let rate = rate.to_string();
            let offer = ["--server", &address, "--rate", &rate, "--duration", "2s"];
            let names = ["--timeout", "250ms", "--names", "0.0.0.0/0"];
            verdict(&lab.measure(&[&offer[..], &names, out].concat())?)
        })?;
        println!("{name:<22} {:>9}", words(&found));
        all.insert(name, found);
    }
    claims.keep("highest rate of the self-test", json!(all));
    Ok(())
}

impl Lab {
    /// Writes a file of queries for kxdpgun.
    pub(super) fn queries(&self) -> Result<String> {
        let queries: String = (0..10_000)
            .map(|n| format!("010-000-{:03}-{:03}.dns64perf.test AAAA\n", n / 256, n % 256))
            .collect();
        let file = self.folder.path().join("queries");
        std::fs::write(&file, queries)?;
        Ok(file.to_string_lossy().into_owned())
    }

    /// Overloads the server at AuthDNS's address for 3 s. `more` contains additional arguments of the Measurer.
    pub(super) fn saturate(&self, client: &str, queries: &str, more: &[&str]) -> Result<()> {
        if client == "Measurer" {
            self.overload(more).map(drop)
        } else {
            self.kxdpgun(queries).map(drop)
        }
    }

    /// Runs kxdpgun on CPU 0 for 3 s, with more queries than any server can answer here. Returns the output of kxdpgun.
    fn kxdpgun(&self, queries: &str) -> Result<String> {
        let args = ["taskset", "-c", "0", "kxdpgun", "-t", "3", "-Q", OFFERED, "-i", queries, AUTH];
        let printed = output(&self.program, &self.exec("tester", &args), LIMIT)?;
        self.take_filter_off("tester", "to-auth")?;
        Ok(printed)
    }

    /// Removes an XDP program (native or generic) that Knot DNS has left on an interface, because it would block the
    /// programs of other servers.
    fn take_filter_off(&self, host: &str, interface: &str) -> Result<()> {
        for hook in ["xdp", "xdpgeneric"] {
            let words = self.exec(host, &["ip", "link", "set", "dev", interface, hook, "off"]);
            process::run(&self.program, &words, LIMIT)?;
        }
        Ok(())
    }

    /// Turns checksum offload on the DUT's interfaces on or off. Without checksum offload, the kernel refuses to send
    /// several datagrams as one (`UDP_SEGMENT`), so a server sends them one by one.
    fn set_send_offload(&self, is_on: bool) -> Result<()> {
        let state = if is_on { "on" } else { "off" };
        for interface in ["to-tester", "to-auth"] {
            let words = self.exec("dut", &["ethtool", "-K", interface, "tx", state]);
            output(&self.program, &words, LIMIT).context("ethtool")?;
        }
        Ok(())
    }

    /// Returns the number of replies that kxdpgun receives from a server of another project. The server runs alone on
    /// CPU 1 with AF_XDP.
    fn saturated_other(&self, server: &Other, queries: &str) -> Result<f64> {
        let folder = self.folder.path();
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let zone = text(folder.join("dns64perf.test.zone"));
        let of_zone = ["zone", "--names", "10.0.0.0/16", "--aaaa-share", "1", "--output", &zone];
        output(&self.program, &of_zone, LIMIT)?;
        let place = text(folder.join("other"));
        std::fs::create_dir_all(&place)?;
        let file = text(folder.join("other.conf"));
        std::fs::write(&file, (server.configuration)(&place, &zone))?;
        let program = text(server.path().context(server.name)?);
        let words =
            [&["taskset", "-c", "1", &program], server.arguments, &[file.as_str()]].concat();
        let running = self.serve(&words)?;
        let names = ["--names", "10.0.255.0/24", "--aaaa-share", "1"];
        wait_until_answers(&self.program, &format!("{AUTH}:53"), &names)?;
        let printed = self.kxdpgun(queries)?;
        drop(running);
        self.take_filter_off("auth", "to-tester")?;
        let line = printed.lines().find_map(|line| line.trim().strip_prefix("total replies:"));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        Ok(number.with_context(|| printed.clone())?.parse()?)
    }

    /// Runs the Measurer on CPU 0 against AuthDNS for 3 s, with a rate that neither of them can reach.
    fn overload(&self, more: &[&str]) -> Result<Value> {
        let address = format!("{AUTH}:53");
        let offer = ["--server", &address, "--rate", OFFERED, "--duration", "3s"];
        let names = ["--timeout", "100ms", "--names", "0.0.0.0/0", "--cpus", "0"];
        // A reflector returns the query as its reply, so a liveness check would end the measurement.
        let saturated = ["--liveness", "false"];
        self.measure(&[&offer[..], &names, &saturated, more].concat())
    }

    /// Starts AuthDNS on CPU 1 with AF_XDP, which leaves the most CPU time to the sender.
    fn serve_with_xdp(&self) -> Result<Server> {
        self.serve_authdns(&self.program, &[&["--cpus", "1"], WAYS[1].1].concat())
    }

    /// Returns the number of replies that AuthDNS, alone on CPU 1, sends to a client that overloads it. `offer`
    /// contains options of the client, and `more` contains options of AuthDNS.
    pub(super) fn saturated_authdns(
        &self,
        client: &str,
        queries: &str,
        offer: &[&str],
        more: &[&str],
    ) -> Result<u64> {
        let arguments = [&["--cpus", "1", "--json"], more].concat();
        let auth = self.serve_authdns(&self.program, &arguments)?;
        self.saturate(client, queries, offer)?;
        let counters: Value = serde_json::from_str(&auth.end()?)?;
        Ok(counters["replies"]["noerror"].as_u64().unwrap_or(0))
    }
}
