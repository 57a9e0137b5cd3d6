//! dns64bench against other servers, and other clients against its AuthDNS.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use campaign::servers::{Auth, Dut};
use serde_json::Value;

use super::{Bench, LIMIT, Lab, PATIENT, Test, all_noerror};
use crate::process::{self, free_port, output};
use crate::servers::DUT;

pub(super) const TESTS: [Test; 7] = [
    ("Measurer against NSD with our zone file", &["nsd"], measurer_against_nsd),
    ("Measurer against Knot DNS with our zone file", &["knotd"], measurer_against_knot),
    ("dnsperf against AuthDNS", &["dnsperf"], dnsperf_against_auth),
    ("kxdpgun against AuthDNS", &["kxdpgun"], kxdpgun_against_auth),
    ("dig against AuthDNS, UDP and TCP", &["dig"], dig_against_auth),
    ("Measurer past the stack", &["ip"], measurer_past_stack),
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
    let queries: String = (0..1000)
        .map(|n| format!("010-000-{:03}-{:03}.dns64perf.test AAAA\n", n / 256, n % 256))
        .collect();
    let queries = bench.file("queries", &queries)?;
    let args =
        ["-s", "127.0.0.1", "-p", &port.to_string(), "-d", &queries, "-l", "2", "-Q", "2000"];
    let sent = all_noerror(&output("dnsperf", &args, LIMIT)?)?;
    ensure!(sent > 2_000, "{sent} sent");
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    let [aaaa, noerror] = [&counters["queries"]["aaaa"], &counters["replies"]["noerror"]];
    ensure!(*aaaa == sent && *noerror == sent, "{sent} sent: {counters}");
    Ok(())
}

/// kxdpgun needs a real interface, so this goes through the lab.
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
        "2",
        "-Q",
        "5000",
        "-i",
        &queries,
        "198.18.1.2",
    ];
    let ran = process::run(bench.program(), &args, LIMIT)?;
    // "total queries: 10000 (5000 pps)", "total replies: 10000 (5000 pps) (100%)".
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
    ensure!(dropped * 100 <= queries, "AuthDNS dropped {dropped} of {queries}: {counters}");
    ensure!(queries > 5_000 && asked + dropped == queries, "{queries} queries: {counters}");
    // kxdpgun looks at its interface, where it may miss a few at the end.
    ensure!(
        count("/replies/noerror")? == asked && replies * 100 >= asked * 99,
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

/// AF_XDP at the Measurer's side: each way, both versions of IP, many source addresses, and what is
/// wrong said before anything is sent.
fn measurer_past_stack(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let listen = ["auth", "--listen", "198.18.1.2:53", "--listen", "[2001:2:1::2]:53"];
    let auth = bench.in_lab("auth", &[&listen[..], &["--aaaa-share", "1", "--json"]].concat())?;
    let measure = |more: &[&str]| {
        let ours = ["lab", "exec", "tester", "--", bench.program(), "measure", "--json", "--quiet"];
        let load = ["--rate", "5000", "--duration", "2s", "--aaaa-share", "1"];
        bench.sound(&[&ours[..], &load, &PATIENT, more].concat())
    };
    let mut asked = 0;
    for (mode, way) in [("copy", "copy"), ("generic", "generic"), ("auto", "copy")] {
        for server in ["198.18.1.2", "2001:2:1::2"] {
            let ran = measure(&["--server", server, "--xdp", "to-auth", "--xdp-mode", mode])?;
            let trial: Value = serde_json::from_str(&ran.stdout).with_context(|| ran.stderr)?;
            ensure!(trial["verdict"] == "passed" && trial["valid"] == 10_000, "{trial}");
            let told = &trial["sending"]["past_stack"];
            ensure!(told["way"] == way && told["interface"] == "to-auth", "{told}");
            asked += 10_000;
        }
    }
    bench.shell("tester", "ip -6 route add local 2001:2:0:ff::/64 dev lo")?;
    bench.shell("auth", "ip -6 route add 2001:2:0:ff::/64 via 2001:2:1::1")?;
    for mode in ["copy", "generic"] {
        let from = ["--source-addresses", "2001:2:0:ff::/64", "--xdp", "to-auth"];
        let more = ["--server", "2001:2:1::2", "--xdp-mode", mode];
        let ran = measure(&[from, more].concat())?;
        let trial: Value = serde_json::from_str(&ran.stdout).with_context(|| ran.stderr)?;
        ensure!(trial["verdict"] == "passed" && trial["valid"] == 10_000, "{trial}");
        let sending = &trial["sending"];
        ensure!(sending["source_addresses"]["count"] == 256, "{sending}");
        ensure!(sending["past_stack"]["way"] == mode, "{sending}");
        asked += 10_000;
    }
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    // Whether it is there is asked before each trial, and a trial that was spoiled is done again.
    let aaaa = counters["queries"]["aaaa"].as_u64();
    ensure!(aaaa >= Some(asked), "{asked} queries left: {counters}");
    past_stack_at_both_ends(bench)?;
    for (more, words) in [
        (&["--xdp", "to-dut"][..], "write --xdp to-auth"),
        (&["--xdp", "to-auth", "--threads", "2"], "one pair of threads"),
    ] {
        let ran = measure(&[&["--server", "198.18.1.2", "--liveness", "false"], more].concat())?;
        ensure!(ran.status == Some(2) && ran.stderr.contains(words), "{}", ran.stderr);
    }
    Ok(())
}

/// The reference DUT past the stack too: it answers up to its capacity, and no further.
fn past_stack_at_both_ends(bench: &Bench) -> Result<()> {
    let listen = ["reference-dut", "--listen", "[2001:2::1]:53", "--capacity", "20000", "--json"];
    let dut = bench.in_lab("dut", &[&listen[..], &["--xdp", "to-tester"]].concat())?;
    let measure = |rate: &str| -> Result<Value> {
        let ours = ["lab", "exec", "tester", "--", bench.program(), "measure", "--json", "--quiet"];
        let load = ["--server", "2001:2::1", "--rate", rate, "--duration", "2s"];
        let args = [&ours[..], &load, &PATIENT, &["--xdp", "to-dut"]].concat();
        let ran = bench.sound(&args)?;
        serde_json::from_str(&ran.stdout).with_context(|| ran.stderr)
    };
    let within = measure("10000")?;
    ensure!(within["verdict"] == "passed" && within["valid"] == 20_000, "{within}");
    let beyond = measure("40000")?;
    let valid = beyond["valid"].as_u64().context("no count")?;
    ensure!(beyond["verdict"] == "failed" && (39_000..42_000).contains(&valid), "{beyond}");
    let counters: Value = serde_json::from_str(&dut.end()?)?;
    ensure!(counters["answered"].as_u64() >= Some(valid + 20_000), "{counters}");
    ensure!(counters["refused"] == 0, "{counters}");
    ensure!(counters["past_stack"]["interface"] == "to-tester", "{counters}");
    Ok(())
}

fn search_against_unbound(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let auth =
        bench.in_lab("auth", &["auth", "--listen", "198.18.0.2:53", "--threads", "1", "--json"])?;
    let unbound = bench.dut_in_lab(Dut::Unbound, None)?;
    let journal = bench.path("journal.jsonl");
    let ours = ["lab", "exec", "tester", "--", bench.program(), "search", "--json", "--quiet"];
    let range = "--min 200 --max 20000 --resolution 1000 --repeat 2 --pause 1s --duration 2s";
    let range: Vec<_> = range.split(' ').collect();
    let more = ["--server", DUT, "--expect-prefix", "64:ff9b::/96", "--journal", &journal];
    let search = [&ours[..], &range, &PATIENT, &more].concat();
    let ran = process::run(bench.program(), &search, Duration::from_secs(400))?;
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

/// Whether what a search of Unbound found is right in itself, and with what AuthDNS was asked.
///
/// # Errors
/// What is not.
fn judge_search(found: &Value, asked: u64) -> Result<()> {
    let trials = found["trials"].as_array().context("no trials")?;
    let sent: u64 = trials.iter().filter_map(|t| t["sent"].as_u64()).sum();
    println!(
        "        Unbound: median {} queries/s, dispersion {} %; AuthDNS was asked {:.3} times for each query",
        found["median"],
        found["dispersion_pct"],
        asked as f64 / sent as f64
    );
    // Unbound asks twice for each name that it answers; what it is too busy for it may ask once or
    // not at all.
    let valid: u64 = trials.iter().filter_map(|t| t["valid"].as_u64()).sum();
    ensure!(
        asked >= 2 * valid && asked * 50 <= sent * 101,
        "{asked} questions for {sent} queries, {valid} answered"
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
        ensure!(apart <= 1_000, "search {number} ends {apart} queries/s from what failed");
    }
    let spoiled = trials.iter().filter(|t| t["verdict"] == "invalid").count();
    ensure!(spoiled * 2 <= trials.len(), "{spoiled} of {} trials were spoiled", trials.len());
    ensure!(found["median"].as_f64() >= Some(1_000.0), "{}", found["median"]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two searches that found 3 000, and what was asked for the queries that were answered.
    fn sound() -> (Value, u64) {
        let trial = |rate: u64, verdict: &str, valid: u64| json!({ "rate": rate, "verdict": verdict, "sent": 2 * rate, "valid": valid });
        let search = json!({ "highest": 3000, "failed": 4000 });
        let found = json!({
            "median": 3000.0,
            "dispersion_pct": 0.0,
            "trials": [
                trial(3000, "passed", 6000),
                trial(4000, "failed", 7000),
                trial(3000, "passed", 6000),
                trial(4000, "invalid", 8000),
                trial(4000, "failed", 7000),
            ],
            "repeats": [search, search],
        });
        (found, 2 * 34_000)
    }

    /// Whether the judgement finds what is wrong after a change.
    fn finds(change: impl FnOnce(&mut Value, &mut u64)) -> bool {
        let (mut found, mut asked) = sound();
        change(&mut found, &mut asked);
        judge_search(&found, asked).is_err()
    }

    #[test]
    fn a_search_is_held_against_its_trials_and_authdns() {
        assert!(!finds(|_, _| ()));
        assert!(finds(|_, asked| *asked = 2 * 34_000 - 1), "answers that nobody was asked for");
        assert!(finds(|_, asked| *asked = 2 * 36_000 * 102 / 100), "asked more than twice");
        assert!(finds(|found, _| found["median"] = json!(999.0)));
        assert!(finds(|found, _| found["repeats"][1]["highest"] = json!(3500)), "no such trial");
        assert!(finds(|found, _| found["repeats"][0]["failed"] = json!(3999)), "no such trial");
        assert!(finds(|found, _| {
            found["repeats"][0] = json!({ "highest": 3000, "failed": 4500 });
            found["trials"][1]["rate"] = json!(4500);
        }));
        assert!(finds(|found, _| {
            let spoiled = json!({ "rate": 5000, "verdict": "invalid", "sent": 0, "valid": 0 });
            let trials = found["trials"].as_array_mut().unwrap();
            trials.extend(vec![spoiled; 4]);
        }));
        assert!(!finds(|found, _| found["repeats"][0]["failed"] = Value::Null), "the range's end");
    }
}
