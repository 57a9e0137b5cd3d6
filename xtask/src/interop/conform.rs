//! Conformance checks of real servers: a campaign for each server, and one scoreboard. The outcomes are compared with
//! the known behaviour of each server.
//!
//! ```text
//! a campaign for each, with conform = true ─► results.json ─► checks that a server does not pass ◄─ compared ─►
//! golden/conform/SERVER.txt
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::harness::{Bench, LIMIT, Lab, SHORT_TRIALS};
use super::hosts::{SSH, Sshds};
use super::test::Test;
use crate::process::output;

pub(super) static TESTS: &[Test] = &[
    Test::new("conform: dns64d", &[], |bench| side_by_side(bench, &["dns64d"])),
    Test::new(
        "conform: Unbound, BIND, PowerDNS, Knot Resolver and CoreDNS side by side",
        &["unbound", "named", "pdns_recursor", "kresd", "coredns"],
        |bench| side_by_side(bench, &OTHERS),
    ),
    Test::new("conform: dns64d in the lab", &["ip"], in_lab),
    Test::new("conform: dns64d over ssh", SSH, over_ssh),
    Test::new("conform: query log of the test authoritative server by ssh", SSH, view_by_ssh),
];

/// Servers that may fail checks without failing the test.
const OTHERS: [&str; 5] = ["unbound", "bind", "powerdns", "knot-resolver", "coredns"];

/// Checks servers and compares the outcomes with the golden files. A failed check of dns64d is a failure.
fn side_by_side(bench: &Bench, drivers: &[&'static str]) -> Result<()> {
    // All servers are checked in parallel, because a check mostly waits for replies.
    let runs = thread::scope(|scope| -> Result<Vec<String>> {
        let threads: Vec<_> =
            drivers.iter().map(|driver| scope.spawn(move || checked(bench, driver))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })?;
    let all = bench.path("conform-all");
    let words = runs.iter().map(String::as_str).chain(["--output", &all]);
    output(bench.program(), &["report"].into_iter().chain(words).collect::<Vec<_>>(), LIMIT)?;
    let page = fs::read_to_string(format!("{all}/report.html"))?;
    ensure!(page.contains("Conformance"), "the report has no scoreboard");
    let mut faults = Vec::new();
    for (driver, run) in drivers.iter().zip(&runs) {
        let results: Value = serde_json::from_slice(&fs::read(format!("{run}/results.json"))?)?;
        let report = &results["duts"][0]["conform"]["report"];
        let outcomes =
            report["outcomes"].as_array().with_context(|| format!("{driver}: {results}"))?;
        let short = unpassed_checks(outcomes);
        let version = report["version"].as_str().unwrap_or_default();
        let news = compare(driver, version, &short)?;
        let failed = short.iter().filter(|line| !line.ends_with(NOT_OFFERED)).count();
        println!(
            "        {driver} ({version}): {failed} of {} checks failed{news}",
            outcomes.len()
        );
        if *driver == "dns64d" {
            let wrong = short
                .iter()
                .filter(|line| !line.ends_with(CONTRADICTED) && !line.ends_with(NOT_OFFERED));
            faults.extend(wrong.cloned());
            // Known unsupported features are listed in the file. Any other unsupported feature is a fault.
            ensure!(news.is_empty(), "dns64d differs from its golden file:{news}");
        }
    }
    ensure!(faults.is_empty(), "dns64d fails {}", faults.join(", "));
    Ok(())
}

/// Returns the folder of a campaign that checks one server.
fn checked(bench: &Bench, driver: &str) -> Result<String> {
    let plan = format!(
        "name = 'conform {driver}'\ntopology = 'loopback'\n{SHORT_TRIALS}[measure]\nconform = true\n[[dut]]\ndriver = '{driver}'\n"
    );
    let ran = bench.campaign(&format!("conform-{driver}"), &plan);
    Ok(ran.with_context(|| driver.to_owned())?.0)
}

/// Part of a plan for checks of dns64d. Its answers are the same on every host.
const CHECKED: &str = "[measure]\nconform = true\n[[dut]]\ndriver = 'dns64d'\n";

fn in_lab(bench: &Bench) -> Result<()> {
    let plan = format!("name = 'near'\ntopology = 'lab'\n{SHORT_TRIALS}{CHECKED}");
    is_as_known(&bench.campaign("near", &plan)?.1)
}

fn over_ssh(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let sshds = Sshds::start(bench)?;
    let hosts = sshds.hosts(bench);
    let plan = format!("name = 'far'\ntopology = 'ssh'\n{SHORT_TRIALS}{hosts}{CHECKED}");
    is_as_known(&Sshds::campaign(bench, "far", &plan)?.1)
}

/// Compares the checks in a campaign's results with the golden file of dns64d.
fn is_as_known(results: &Value) -> Result<()> {
    let report = &results["duts"][0]["conform"]["report"];
    let outcomes = report["outcomes"].as_array().with_context(|| report.to_string())?;
    let version = report["version"].as_str().unwrap_or_default();
    let news = compare("dns64d", version, &unpassed_checks(outcomes))?;
    ensure!(news.is_empty(), "dns64d differs from its golden file:{news}");
    Ok(())
}

/// The test reaches the status of the test authoritative server by ssh, as if the tester were on another host.
fn view_by_ssh(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let sshds = Sshds::start(bench)?;
    let socket = bench.path("far.socket");
    let listen = "198.18.0.2:53";
    let far = ["auth", "--conform", "--listen", listen, "--status", &socket];
    let _far = bench.in_lab("auth", &far)?;
    let config = "listen = ['[2001:2::1]:53']\n[access]\nallow = ['::/0']\nopen-resolver = true\n[[upstream]]\naddress = '198.18.0.2'\n";
    let config = bench.file("checked.toml", config)?;
    let _dut = bench.in_lab_at("dut", &["dns64d", "--config", &config], 53)?;
    let status = format!("ssh:far-auth:{socket}");
    let words = [
        &["lab", "exec", "tester", "--", bench.program(), "conform"][..],
        &["--server", "[2001:2::1]:53", "--zone", "conform.example", "--forwards-all"],
        &["--only", "rfc6147-5.1,rfc8880"],
        &["--auth-status", &status, "--ssh-config", &sshds.config, "--json", "--quiet"],
    ]
    .concat();
    let report: Value = serde_json::from_str(&output(bench.program(), &words, LIMIT)?)?;
    let outcomes = report["outcomes"].as_array().context("no outcomes")?;
    let is_not_tried = |outcome: &&Value| outcome["verdict"] == "not-tried";
    let not_tried: Vec<&Value> = outcomes.iter().filter(is_not_tried).collect();
    ensure!(outcomes.len() > 50 && not_tried.is_empty(), "{not_tried:?} of {}", outcomes.len());
    Ok(())
}

/// Suffix of a check that our advice contradicts, if the server follows the advice.
const CONTRADICTED: &str = " (contradicted)";
/// Suffix of a check that could not be run. Such a check is a failure, because all requirements of the checks are met
/// here.
const NOT_TRIED: &str = " (not tried)";
/// Suffix of a check of an unsupported feature.
const NOT_OFFERED: &str = " (not offered)";

/// Returns the checks that a server does not pass, one per line. Checks of level MAY and of our own advice are
/// excluded.
fn unpassed_checks(outcomes: &[Value]) -> BTreeSet<String> {
    let is = |outcome: &Value, verdict: &str| outcome["verdict"] == verdict;
    let passes =
        |id: &Value| outcomes.iter().any(|other| other["id"] == *id && is(other, "passed"));
    let counts = |outcome: &&Value| {
        !is(outcome, "passed") && outcome["level"] != "may" && outcome["level"] != "hardening"
    };
    let line = |outcome: &Value| {
        let word = |key: &str| outcome[key].as_str().unwrap_or_default().to_owned();
        let mark = if is(outcome, "not-tried") {
            NOT_TRIED
        } else if is(outcome, "not-offered") {
            NOT_OFFERED
        } else if passes(&outcome["contradicts"]) {
            CONTRADICTED
        } else {
            ""
        };
        format!("{} {}{mark}", word("level"), word("id"))
    };
    outcomes.iter().filter(counts).map(line).collect()
}

/// Prints the checks in which a server differs from its golden file. Differences in a different version of the server
/// are reported, but are not failures. If BLESS is set, the file is rewritten.
fn compare(driver: &str, version: &str, short: &BTreeSet<String>) -> Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/conform");
    let file: PathBuf = folder.join(format!("{driver}.txt"));
    if std::env::var_os("BLESS").is_some() {
        let lines: String = short.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&file, format!("# {version}\n{lines}"))?;
    }
    let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let known: BTreeSet<String> =
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let list = |lines: Vec<&String>| lines.into_iter().cloned().collect::<Vec<_>>().join(", ");
    let [more, less] =
        [list(short.difference(&known).collect()), list(known.difference(short).collect())];
    let mut news = String::new();
    for (what, which) in [("new", more), ("no longer", less)] {
        if !which.is_empty() {
            news.push_str(&format!("\n            {what}: {which}"));
        }
    }
    Ok(news)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn untried_check_is_no_pass() {
        let outcome = |id: &str, level: &str, verdict: &str| json!({ "id": id, "level": level, "verdict": verdict });
        let mut opposed = outcome("d", "should", "failed");
        opposed["contradicts"] = "e".into();
        let outcomes = [
            outcome("a", "must", "passed"),
            outcome("b", "must", "failed"),
            outcome("c", "must", "not-tried"),
            opposed,
            outcome("e", "hardening", "passed"),
            outcome("f", "says", "not-offered"),
            outcome("g", "may", "failed"),
        ];
        let wanted =
            ["must b", "must c (not tried)", "says f (not offered)", "should d (contradicted)"];
        assert!(unpassed_checks(&outcomes).iter().eq(wanted));
    }
}
