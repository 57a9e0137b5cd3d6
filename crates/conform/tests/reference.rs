//! The reference server passes every check that applies to it. If it fails a check, the check or the reference server
//! is wrong. Each check must apply to at least one configuration of the reference server, because the check would
//! otherwise never be tested. If two checks contradict each other, the reference server passes one of them.
//!
//! `CONFORM_RUNS=20 cargo test -p conform --test reference` runs everything 20 times.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;

use common::Server;
use conform::authority::Authority;
use conform::check::Check;
use conform::checks;
use conform::outcome::{Outcome, Report, Verdict};
use conform_reference::mutant::NO_HOOKS;

/// Configurations of the reference server: four sets of prefixes with and without validation, then the remaining prefix
/// lengths.
const SERVERS: [Server; 11] = [
    Server { prefixes: "64:ff9b::/96", validates: false },
    Server { prefixes: "64:ff9b::/96", validates: true },
    Server { prefixes: "3fff:64::/96", validates: false },
    Server { prefixes: "3fff:64::/96", validates: true },
    Server { prefixes: "3fff:64:64:64::/64", validates: false },
    Server { prefixes: "3fff:64:64:64::/64", validates: true },
    Server { prefixes: "3fff:64::/96 3fff:65:65::/48", validates: false },
    Server { prefixes: "3fff:64::/96 3fff:65:65::/48", validates: true },
    Server { prefixes: "3fff:64::/32", validates: false },
    Server { prefixes: "3fff:64:6400::/40", validates: false },
    Server { prefixes: "3fff:64:64:6400::/56", validates: false },
];

/// Number of servers that are checked in parallel. Most of the time, the checks wait for a timeout.
const AT_ONCE: usize = SERVERS.len();

/// Results of all runs.
#[derive(Default)]
struct Found {
    /// Ids of checks that passed under some settings, or whose opposite passed.
    passed: BTreeSet<String>,
    /// Faults, with the settings under which they occurred.
    faults: BTreeMap<String, Vec<String>>,
}

impl Found {
    fn note(&mut self, fault: String, server: &str) {
        self.faults.entry(fault).or_default().push(server.into());
    }
}

#[test]
fn the_reference_passes_all_checks_that_apply() {
    // Eleven servers in parallel, each with many clients.
    let limit = net::descriptors::raise_limit();
    if limit < 8_000 {
        let why = format!("the clients need more descriptors than the limit {limit} of this user");
        return testbed::skip("the_reference_passes_all_checks_that_apply", &why);
    }
    let runs = std::env::var("CONFORM_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1);
    let waiting: Mutex<Vec<Server>> = Mutex::new(SERVERS.repeat(runs));
    let found = Mutex::new(Found::default());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no thread panics with it").pop();
                    let Some(server) = next else { break };
                    examine(server, &found);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no thread panics with it");
    let passed = std::mem::take(&mut found.passed);
    for check in checks::all().filter(|check| !passed.contains(check.id)) {
        found.note(format!("{} never passes", check.id), "all settings");
    }
    let explanation = found.faults.iter().map(|(fault, servers)| {
        format!("{fault}\n  {} times, with {}", servers.len(), servers.join("; "))
    });
    assert!(found.faults.is_empty(), "{}", explanation.collect::<Vec<_>>().join("\n\n"));
}

fn examine(server: Server, found: &Mutex<Found>) {
    let far = common::authority();
    let mut report = server.run(&far, false, &[], |_| {}, NO_HOOKS);
    repeat_failed(server, &far, &mut report);
    let mut found = found.lock().expect("no thread panics with it");
    let kind = if server.validates { "validating" } else { "not validating" };
    let name = format!("{}, {kind}", server.prefixes);
    eprintln!("{name}: {} checks in {:.1} s", report.outcomes.len(), report.duration_s);
    let own: Vec<String> =
        common::prefixes(server.prefixes).iter().map(ToString::to_string).collect();
    if report.prefixes != own {
        found.note(format!("RFC 7050 finds {:?}", report.prefixes), &name);
    }
    if report.outcomes.len() != checks::all().count() {
        found.note(format!("there are {} outcomes", report.outcomes.len()), &name);
    }
    judge(&report, &name, &mut found);
}

/// Runs failed checks a second time and replaces their outcomes. Ten other servers run at the same time, so a reply may
/// arrive later than a check tolerates.
fn repeat_failed(server: Server, far: &Authority, report: &mut Report) {
    let has_failed = |outcome: &&Outcome| {
        matches!(outcome.verdict, Verdict::Failed | Verdict::NotTried)
            && report.passed_opposite(outcome).is_none()
    };
    let failed: Vec<&Check> = report
        .outcomes
        .iter()
        .filter(has_failed)
        .filter_map(|outcome| common::check(&outcome.id))
        .collect();
    if failed.is_empty() {
        return;
    }
    for second in server.run(far, false, &failed, |_| {}, NO_HOOKS).outcomes {
        if let Some(first) = report.outcomes.iter_mut().find(|first| first.id == second.id) {
            *first = second;
        }
    }
}

fn judge(report: &Report, server: &str, found: &mut Found) {
    for outcome in &report.outcomes {
        let is_other_way = report.passed_opposite(outcome).is_some();
        match outcome.verdict {
            Verdict::Passed => {
                if is_other_way {
                    found.note(format!("{} passes, and so does its opposite", outcome.id), server);
                }
                found.passed.insert(outcome.id.clone());
            }
            Verdict::Failed if is_other_way => {
                found.passed.insert(outcome.id.clone());
            }
            Verdict::NotOffered => {}
            Verdict::Failed | Verdict::NotTried => {
                let last = outcome.exchanges.last();
                let came = last.map_or_else(String::new, |e| format!("\n$ {}\n{}", e.dig, e.reply));
                eprintln!("{server}: {}: {}{came}\n", outcome.id, outcome.reason);
                found.note(format!("{}: {:?}", outcome.id, outcome.verdict), server);
            }
        }
    }
}
