//! dns64bench against other servers, and other clients against its AuthDNS.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use campaign::servers::{Auth, Dut};
use serde_json::Value;

use super::{Bench, LIMIT, Lab, Test};
use crate::process::{self, free_port, output};

pub(super) const TESTS: [Test; 6] = [
    ("Measurer against NSD with our zone file", &["nsd"], measurer_against_nsd),
    ("Measurer against Knot DNS with our zone file", &["knotd"], measurer_against_knot),
    ("dnsperf against AuthDNS", &["dnsperf"], dnsperf_against_auth),
    ("kxdpgun against AuthDNS", &["kxdpgun"], kxdpgun_against_auth),
    ("dig against AuthDNS, UDP and TCP", &["dig"], dig_against_auth),
    ("search against Unbound in the lab", &["unbound", "ip"], search_against_unbound),
];

fn measurer_against_nsd(bench: &Bench) -> Result<()> {
    let (_nsd, port) = bench.authoritative(Auth::Nsd, &bench.zone_file("1")?, &[])?;
    bench.measure_zone(port)
}

fn measurer_against_knot(bench: &Bench) -> Result<()> {
    let (_knot, port) = bench.authoritative(Auth::Knot, &bench.zone_file("1")?, &[])?;
    bench.measure_zone(port)
}

fn dnsperf_against_auth(bench: &Bench) -> Result<()> {
    let port = free_port()?;
    let auth = bench.auth(port)?;
    let queries: String =
        (0..1000).map(|n| format!("010-000-{:03}-{:03}.dns64perf.test AAAA\n", n / 256, n % 256)).collect();
    let queries = bench.file("queries", &queries)?;
    let args = ["-s", "127.0.0.1", "-p", &port.to_string(), "-d", &queries, "-l", "2", "-Q", "2000"];
    let printed = output("dnsperf", &args, LIMIT)?;
    ensure!(printed.contains("NOERROR") && printed.contains("Queries lost:         0 (0.00%)"), "{printed}");
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    ensure!(counters["queries"]["aaaa"] == counters["replies"]["noerror"], "{counters}");
    Ok(())
}

/// kxdpgun needs a real interface, so this goes through the lab.
fn kxdpgun_against_auth(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let auth = bench.in_lab("auth", &["auth", "--listen", "198.18.1.2:53", "--aaaa-share", "1", "--json"])?;
    let queries: String =
        (0..1000).map(|n| format!("010-000-{:03}-{:03}.dns64perf.test AAAA\n", n / 256, n % 256)).collect();
    let queries = bench.file("queries", &queries)?;
    let args = ["lab", "exec", "tester", "--", "kxdpgun", "-t", "2", "-Q", "5000", "-i", &queries, "198.18.1.2"];
    let ran = process::run(bench.program(), &args, LIMIT)?;
    let replies = ran.stdout.lines().find(|l| l.contains("total replies")).unwrap_or_default().to_owned();
    ensure!(replies.contains("(100%)") || replies.contains("(99%)"), "{}\n{}", ran.stdout, ran.stderr);
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    ensure!(counters["replies"]["noerror"].as_u64() > Some(5_000), "{counters}");
    Ok(())
}

fn dig_against_auth(bench: &Bench) -> Result<()> {
    let port = free_port()?;
    let _auth = bench.auth(port)?;
    let port = port.to_string();
    let dig = |more: &[&str]| {
        let args =
            [&["@127.0.0.1", "-p", &port, "+norec", "+tries=1", "010-000-000-001.dns64perf.test"], more].concat();
        output("dig", &args, LIMIT)
    };
    for transport in ["+notcp", "+tcp"] {
        let printed = dig(&[transport, "A", "+short"])?;
        ensure!(printed.trim() == "10.0.0.1", "{printed}");
    }
    let printed = dig(&["TXT"])?;
    ensure!(
        printed.contains("status: NOERROR") && printed.contains("IN\tSOA") && printed.contains("EDNS: version: 0"),
        "{printed}"
    );
    let printed = dig(&["AAAA", "+edns=1", "+noednsnegotiation"])?;
    ensure!(printed.contains("BADVERS"), "{printed}");
    Ok(())
}

fn search_against_unbound(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let auth = bench.in_lab("auth", &["auth", "--listen", "198.18.0.2:53", "--threads", "1", "--json"])?;
    let unbound = bench.dut_in_lab(Dut::Unbound, None)?;
    let journal = bench.path("journal.jsonl");
    let search = [
        "lab",
        "exec",
        "tester",
        "--",
        bench.program(),
        "search",
        "--server",
        "[2001:2::1]:53",
        "--min",
        "200",
        "--max",
        "20000",
        "--resolution",
        "1000",
        "--repeat",
        "2",
        "--pause",
        "1s",
        "--duration",
        "2s",
        "--expect-prefix",
        "64:ff9b::/96",
        "--journal",
        &journal,
        "--json",
        "--quiet",
    ];
    let ran = process::run(bench.program(), &search, Duration::from_secs(400))?;
    ensure!(ran.status == Some(0), "search ended with {:?}\n{}\n{}", ran.status, ran.stdout, ran.stderr);
    let found: Value = serde_json::from_str(&ran.stdout)?;
    drop(unbound);
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    let trials = found["trials"].as_array().context("no trials")?;
    let sent: u64 = trials.iter().filter_map(|t| t["sent"].as_u64()).sum();
    let asked = counters["queries"]["aaaa"].as_u64().unwrap_or(0) + counters["queries"]["a"].as_u64().unwrap_or(0);
    println!(
        "        Unbound: median {} queries/s, dispersion {} %; AuthDNS was asked {:.3} times for each query",
        found["median"],
        found["dispersion_pct"],
        asked as f64 / sent as f64
    );
    ensure!(found["median"].as_f64() > Some(0.0), "{}", ran.stderr);
    Ok(())
}
