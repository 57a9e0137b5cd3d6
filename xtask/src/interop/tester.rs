//! Tests of dns64bench with other servers, and of its AuthDNS with other clients.

use anyhow::{Context, Result, ensure};
use hosts::servers::{Auth, Dut};
use serde_json::Value;

use super::harness::{Bench, LIGHT, LIGHT_QUERIES, LIMIT, Lab, TOLERANT, all_noerror};
use super::tally::Skipped;
use super::test::Test;
use crate::process::{self, free_port, output};
use crate::servers::DUT;

pub(super) static TESTS: &[Test] = &[
    Test::new("Measurer against NSD with our zone file", &["nsd"], measurer_against_nsd),
    Test::new("Measurer against Knot DNS with our zone file", &["knotd"], measurer_against_knot),
    Test::new("dnsperf against AuthDNS", &["dnsperf"], dnsperf_against_auth),
    Test::new("kxdpgun against AuthDNS", &["kxdpgun"], kxdpgun_against_auth),
    Test::new("dig against AuthDNS, UDP and TCP", &["dig"], dig_against_auth),
    Test::new("Measurer with AF_XDP", &["ip"], measurer_with_xdp).retried(
        "AF_XDP has no arrival time from the kernel, so a stall of the reference DUT reduces its \
         capacity",
    ),
    Test::new("search against Unbound in the lab", &["unbound", "ip"], search_against_unbound),
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
    let queries: String = (0..1000)
        .map(|n| format!("010-000-{:03}-{:03}.dns64perf.test AAAA\n", n / 256, n % 256))
        .collect();
    let queries = bench.file("queries", &queries)?;
    let args = ["-s", "127.0.0.1", "-p", &port.to_string(), "-d", &queries, "-l", "1", "-Q", "500"];
    let sent = all_noerror(&output("dnsperf", &args, LIMIT)?)?;
    ensure!(sent > 100, "{sent} sent");
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    let [aaaa, noerror] = [&counters["queries"]["aaaa"], &counters["replies"]["noerror"]];
    ensure!(*aaaa == sent && *noerror == sent, "{sent} sent: {counters}");
    Ok(())
}

/// kxdpgun needs a real interface, so this test uses the lab.
fn kxdpgun_against_auth(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let auth = bench
        .in_lab("auth", &["auth", "--listen", "198.18.1.2:53", "--aaaa-share", "1", "--json"])?;
    let queries: String = (0..1000)
        .map(|n| format!("010-000-{:03}-{:03}.dns64perf.test AAAA\n", n / 256, n % 256))
        .collect();
    let queries = bench.file("queries", &queries)?;
    let args = [
        "lab",
        "exec",
        "tester",
        "--",
        "kxdpgun",
        "-t",
        "1",
        "-Q",
        "500",
        "-i",
        &queries,
        "198.18.1.2",
    ];
    let ran = process::run(bench.program(), &args, LIMIT)?;
    // "total queries: 500 (500 pps)", "total replies: 500 (500 pps) (100%)".
    let total = |what: &str| -> Result<u64> {
        let line = ran.stdout.lines().find_map(|line| line.trim().strip_prefix(what));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        Ok(number.with_context(|| format!("no {what} in {}{}", ran.stdout, ran.stderr))?.parse()?)
    };
    let (queries, replies) = (total("total queries:")?, total("total replies:")?);
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    let count = |pointer: &str| {
        counters.pointer(pointer).and_then(Value::as_u64).context(pointer.to_owned())
    };
    let (asked, dropped) = (count("/queries/aaaa")?, count("/socket_drops")?);
    ensure!(queries > 0 && asked + dropped == queries, "{queries} queries: {counters}");
    // kxdpgun does not wait for the last replies before it ends.
    ensure!(
        count("/replies/noerror")? == asked && replies > 0 && replies <= asked,
        "{replies} replies: {counters}"
    );
    Ok(())
}

fn dig_against_auth(bench: &Bench) -> Result<()> {
    let port = free_port()?;
    let _auth = bench.auth(port)?;
    let port = port.to_string();
    let dig = |more: &[&str]| {
        let args = [
            &["@127.0.0.1", "-p", &port, "+norec", "+tries=1", "010-000-000-001.dns64perf.test"],
            more,
        ]
        .concat();
        output("dig", &args, LIMIT)
    };
    for transport in ["+notcp", "+tcp"] {
        let printed = dig(&[transport, "A", "+short"])?;
        ensure!(printed.trim() == "10.0.0.1", "{printed}");
    }
    let printed = dig(&["TXT"])?;
    ensure!(
        printed.contains("status: NOERROR")
            && printed.contains("IN\tSOA")
            && printed.contains("EDNS: version: 0"),
        "{printed}"
    );
    let printed = dig(&["AAAA", "+edns=1", "+noednsnegotiation"])?;
    ensure!(printed.contains("BADVERS"), "{printed}");
    Ok(())
}

/// Trials over AF_XDP with each mode, with both IP versions, and with many source addresses. Invalid options are
/// rejected before a packet is sent.
fn measurer_with_xdp(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let listen = ["auth", "--listen", "198.18.1.2:53", "--listen", "[2001:2:1::2]:53"];
    let auth = bench.in_lab("auth", &[&listen[..], &["--aaaa-share", "1", "--json"]].concat())?;
    let mut asked = 0;
    let mut measure = |server: &str, mode: &str, more: &[&str]| -> Result<Value> {
        let xdp = ["--server", server, "--xdp", "to-auth", "--xdp-mode", mode];
        let names = ["--aaaa-share", "1"];
        let trial = bench.measure_in_lab(&[&xdp[..], &names, &LIGHT, more].concat())?;
        let is_whole = trial["verdict"] == "passed" && trial["valid"] == LIGHT_QUERIES;
        ensure!(is_whole, "{server}, {mode}: {trial}");
        asked += LIGHT_QUERIES;
        Ok(trial["sending"].clone())
    };
    for (server, mode, way) in [
        ("198.18.1.2", "copy", "copy"),
        ("2001:2:1::2", "generic", "generic"),
        ("2001:2:1::2", "auto", "copy"),
    ] {
        let sending = measure(server, mode, &[])?;
        let past_stack = &sending["past_stack"];
        ensure!(past_stack["way"] == way && past_stack["interface"] == "to-auth", "{past_stack}");
    }
    bench.shell("tester", "ip -6 route add local 2001:2:0:ff::/64 dev lo")?;
    bench.shell("auth", "ip -6 route add 2001:2:0:ff::/64 via 2001:2:1::1")?;
    for mode in ["copy", "generic"] {
        let from = ["--source-addresses", "2001:2:0:ff::/64"];
        let sending = measure("2001:2:1::2", mode, &from)?;
        ensure!(sending["source_addresses"]["count"] == 256, "{sending}");
        ensure!(sending["past_stack"]["way"] == mode, "{sending}");
    }
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    // AuthDNS counts more queries than the trials send, because each trial begins with a liveness check and may be
    // repeated.
    let aaaa = counters["queries"]["aaaa"].as_u64();
    ensure!(aaaa >= Some(asked), "{asked} queries sent: {counters}");
    xdp_at_both_ends(bench)?;
    for (more, words) in [
        (&["--xdp", "to-dut"][..], "write --xdp to-auth"),
        (&["--xdp", "to-auth", "--threads", "2"], "one pair of threads"),
    ] {
        let ours = ["lab", "exec", "tester", "--", bench.program(), "measure"];
        let asked = ["--server", "198.18.1.2", "--liveness", "false"];
        let ran =
            process::run(bench.program(), &[&ours[..], &asked, &LIGHT, more].concat(), LIMIT)?;
        ensure!(ran.status == Some(2) && ran.stderr.contains(words), "{}", ran.stderr);
    }
    Ok(())
}

/// The tester and the reference DUT both use AF_XDP. The DUT must answer up to its capacity, and no more.
fn xdp_at_both_ends(bench: &Bench) -> Result<()> {
    let listen = ["reference-dut", "--listen", "[2001:2::1]:53", "--capacity", "500"];
    let dut = bench.in_lab(
        "dut",
        &[&listen[..], &["--burst", "500ms", "--json", "--xdp", "to-tester"]].concat(),
    )?;
    let measure = |rate: &str| {
        let load = ["--server", "2001:2::1", "--rate", rate, "--xdp", "to-dut"];
        bench.measure_in_lab(&[&load[..], &LIGHT[2..]].concat())
    };
    let within = measure("300")?;
    ensure!(within["verdict"] == "passed" && within["valid"] == 300, "{within}");
    let beyond = measure("1000")?;
    let valid = beyond["valid"].as_u64().context("no count")?;
    let counters: Value = serde_json::from_str(&dut.end()?)?;
    let count = |key: &str| counters[key].as_u64().context(counters.to_string());
    ensure!(beyond["verdict"] == "failed", "{beyond}");
    // The upper limit is the capacity for one second, plus that for the half second that the DUT may save.
    ensure!((400..=760).contains(&valid), "{beyond}");
    ensure!(count("over_capacity")? > 0 && count("answered")? >= valid + 300, "{counters}");
    ensure!(counters["refused"] == 0, "{counters}");
    ensure!(counters["past_stack"]["interface"] == "to-tester", "{counters}");
    Ok(())
}

/// Limit in Unbound of queries per second for each client. Because of the limit, the search ends at a rate that does
/// not depend on this machine.
const RATE_LIMIT: [&str; 2] = ["ip-ratelimit: 400", "ip-ratelimit-factor: 0"];

fn search_against_unbound(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let auth =
        bench.in_lab("auth", &["auth", "--listen", "198.18.0.2:53", "--threads", "1", "--json"])?;
    let unbound = bench.dut_in_lab(Dut::Unbound, None, &RATE_LIMIT)?;
    let journal = bench.path("journal.jsonl");
    let ours = ["lab", "exec", "tester", "--", bench.program(), "search", "--json", "--quiet"];
    let range = "--min 100 --max 1300 --resolution 200 --repeat 2 --pause 0s --invalid-retries 1";
    let range: Vec<_> = range.split(' ').collect();
    let more = ["--server", DUT, "--expect-prefix", "64:ff9b::/96", "--journal", &journal];
    let search =
        [&ours[..], &range, &["--timeout", "1s", "--duration", "1s"], TOLERANT, &more].concat();
    let ran = process::run(bench.program(), &search, LIMIT)?;
    if ran.status == Some(3) {
        return Err(Skipped(format!("two invalid trials: {}", ran.stderr.trim())).into());
    }
    ensure!(
        ran.status == Some(0),
        "search ended with {:?}\n{}\n{}",
        ran.status,
        ran.stdout,
        ran.stderr
    );
    let found: Value = serde_json::from_str(&ran.stdout)?;
    drop(unbound);
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    let asked = counters["queries"]["aaaa"].as_u64().unwrap_or(0)
        + counters["queries"]["a"].as_u64().unwrap_or(0);
    judge_search(&found, asked).with_context(|| ran.stderr)
}

/// Compares the result of a search with Unbound with the trials of the search and the counters of AuthDNS.
///
/// # Errors
/// Returns an error that describes the first difference.
fn judge_search(found: &Value, asked: u64) -> Result<()> {
    let trials = found["trials"].as_array().context("no trials")?;
    let sent: u64 = trials.iter().filter_map(|t| t["sent"].as_u64()).sum();
    println!(
        "        Unbound: median {} queries/s, dispersion {} %; AuthDNS received {:.3} queries for each client query",
        found["median"],
        found["dispersion_pct"],
        asked as f64 / sent as f64
    );
    // Unbound sends two upstream queries for each name that it answers, and none for queries above its limit.
    let valid: u64 = trials.iter().filter_map(|t| t["valid"].as_u64()).sum();
    ensure!(
        asked >= 2 * valid && asked * 50 <= sent * 101,
        "{asked} upstream queries for {sent} queries, {valid} answered"
    );
    for (number, search) in found["repeats"].as_array().context("no searches")?.iter().enumerate() {
        let (highest, failed) = (&search["highest"], &search["failed"]);
        let has = |rate: &Value, verdict: &str| {
            trials.iter().any(|t| t["rate"] == *rate && t["verdict"] == verdict)
        };
        ensure!(
            has(highest, "passed") && (failed.is_null() || has(failed, "failed")),
            "search {number}: {search}; trials: {}",
            found["trials"]
        );
        let apart = failed
            .as_u64()
            .zip(highest.as_u64())
            .map_or(0, |(failed, highest)| failed.abs_diff(highest));
        ensure!(apart <= 200, "search {number} ends {apart} queries/s from the rate that failed");
    }
    // Unbound counts queries per second of its clock, and a trial may overlap two such seconds.
    let median = found["median"].as_f64().context("no median")?;
    ensure!((300.0..=900.0).contains(&median), "{median} with a limit of 400");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns two searches that found 500, and the number of upstream queries.
    fn sound() -> (Value, u64) {
        let trial = |rate: u64, verdict: &str, valid: u64| json!({ "rate": rate, "verdict": verdict, "sent": 2 * rate, "valid": valid });
        let search = json!({ "highest": 500, "failed": 700 });
        let found = json!({
            "median": 500.0,
            "dispersion_pct": 0.0,
            "trials": [
                trial(500, "passed", 1000),
                trial(700, "failed", 800),
                trial(500, "passed", 1000),
                trial(700, "invalid", 1200),
                trial(700, "failed", 800),
            ],
            "repeats": [search, search],
        });
        (found, 2 * 4_800)
    }

    /// Returns true if `judge_search` finds a fault after the change.
    fn finds(change: impl FnOnce(&mut Value, &mut u64)) -> bool {
        let (mut found, mut asked) = sound();
        change(&mut found, &mut asked);
        judge_search(&found, asked).is_err()
    }

    #[test]
    fn a_search_is_held_against_its_trials_and_authdns() {
        assert!(!finds(|_, _| ()));
        assert!(finds(|_, asked| *asked = 2 * 4_800 - 1), "too few upstream queries");
        assert!(
            finds(|_, asked| *asked = 2 * 6_200 * 102 / 100),
            "more than twice the upstream \
            queries"
        );
        assert!(finds(|found, _| found["median"] = json!(200.0)));
        assert!(finds(|found, _| found["repeats"][1]["highest"] = json!(450)), "no such trial");
        assert!(finds(|found, _| found["repeats"][0]["failed"] = json!(699)), "no such trial");
        assert!(finds(|found, _| {
            found["repeats"][0] = json!({ "highest": 500, "failed": 750 });
            found["trials"][1]["rate"] = json!(750);
        }));
        assert!(!finds(|found, _| found["repeats"][0]["failed"] = Value::Null), "the range's end");
    }
}
