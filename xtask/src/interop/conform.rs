//! The conformance suite on real servers: one campaign, one scoreboard, held against what is known of
//! each server.
//!
//! ```text
//! campaign with conform = true ─► results.json ─► what each server does not pass ◄─ compared ─► golden/conform/SERVER.txt
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Bench, Test};
use crate::process;

pub(super) const TESTS: [Test; 1] = [(
    "conform: dns64d, Unbound, BIND, PowerDNS, Knot Resolver and CoreDNS side by side",
    &["unbound", "named", "pdns_recursor", "kresd", "coredns"],
    side_by_side,
)];

/// Servers, dns64d first: of it a failed check is a fault, of the others news at most.
const DRIVERS: [&str; 6] = ["dns64d", "unbound", "bind", "powerdns", "knot-resolver", "coredns"];
/// The shortest search there is: rates are not what this is about.
const SEARCH: &str = "[trial]\nduration = '300ms'\ntimeout = '300ms'\npause = '0s'\nmax-burst = '500us'\n\
    [search]\nmin = 50\nmax = 50\nresolution = 50\nrepeat = 1\ninvalid-retries = 20\n";
/// How long all of them may take together.
const PATIENCE: Duration = Duration::from_secs(600);

fn side_by_side(bench: &Bench) -> Result<()> {
    let servers = DRIVERS.map(|driver| format!("[[dut]]\ndriver = '{driver}'\n")).concat();
    let plan = format!(
        "name = 'conform'\ntopology = 'loopback'\n{SEARCH}[measure]\nconform = true\n{servers}"
    );
    let (plan, run) = (bench.file("conform.toml", &plan)?, bench.path("conform-run"));
    let args = ["campaign", "run", &plan, "--dir", &run, "--quiet"];
    let ran = process::run(bench.program(), &args, PATIENCE)?;
    ensure!(ran.status == Some(0), "{args:?}: {}", ran.stderr);
    let results: Value = serde_json::from_slice(&fs::read(format!("{run}/results.json"))?)?;
    let page = fs::read_to_string(format!("{run}/report.html"))?;
    ensure!(page.contains("Conformance"), "the report has no scoreboard");
    let mut faults = Vec::new();
    // The results have the servers in the order of the plan.
    let duts = results["duts"].as_array().context("no DUTs")?;
    ensure!(duts.len() == DRIVERS.len(), "{} servers in the results", duts.len());
    for (driver, dut) in DRIVERS.into_iter().zip(duts) {
        let report = &dut["conform"]["report"];
        let outcomes = report["outcomes"].as_array().with_context(|| format!("{driver}: {dut}"))?;
        let short = falls_short(outcomes);
        let version = report["version"].as_str().unwrap_or_default();
        let news = compare(driver, version, &short)?;
        let failed = short.iter().filter(|line| !line.ends_with(NOT_OFFERED)).count();
        println!(
            "        {driver} ({version}): {failed} of {} checks failed{news}",
            outcomes.len()
        );
        if driver == "dns64d" {
            let wrong = short
                .iter()
                .filter(|line| !line.ends_with(CONTRADICTED) && !line.ends_with(NOT_OFFERED));
            faults.extend(wrong.cloned());
            // What it does not offer is written down; more of that is a fault as well.
            ensure!(news.is_empty(), "dns64d is not what its file says:{news}");
        }
    }
    ensure!(faults.is_empty(), "dns64d fails {}", faults.join(", "));
    Ok(())
}

/// Behind a sentence that our advice contradicts, and whose opposite the server does.
const CONTRADICTED: &str = " (contradicted)";
/// Behind a check that could not be tried. That is a failure: all that checks need is here.
const NOT_TRIED: &str = " (not tried)";
/// Behind a check of what the server does not have.
const NOT_OFFERED: &str = " (not offered)";

/// The checks that a server does not pass, MAY and our own advice left out, a line each.
fn falls_short(outcomes: &[Value]) -> BTreeSet<String> {
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

/// Says in which checks a server differs from what was written down of it. Another version of it may
/// do so; that is news, and no failure. With BLESS set it is written down.
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
    fn what_was_not_tried_is_no_pass() {
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
        assert!(falls_short(&outcomes).iter().eq(wanted));
    }
}
