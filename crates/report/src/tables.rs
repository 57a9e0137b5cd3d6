//! Tables of results.

use crate::places::PointWords;
use campaign::results::{DutResult, HostChange, PointResult, Spread};
use hosts::environment::Environment;
use units::counted;

use crate::format::{number, percent};
use crate::run::{Run, ranked};
use crate::sections::self_test;
use crate::table::Table;

/// Returns a table with the versions of the servers and the facts about the hosts.
pub(crate) fn environment(run: &Run) -> Table {
    let mut table = Table::new("Environment", "", &["Item", "Value", "Concern"]);
    let mut row = |what: &str, found: &str, concern: &str| {
        table.rows.push(vec![what.into(), found.into(), concern.into()]);
    };
    for dut in &run.results.duts {
        row(&dut.name, &dut.version, "");
    }
    if run.results.authdns.is_empty() {
        row("AuthDNS", &run.results.auth, "");
    }
    for auth in &run.results.authdns {
        row(&run.results.plan.auth_named(Some(&auth.name)).role(), &auth.version, "");
    }
    let hosts = &run.results.hosts;
    // If every role has a separate host, the controlling machine does not affect the results.
    let mut all: Vec<(&str, &Environment)> =
        hosts.iter().map(|host| (host.role.as_str(), &host.environment)).collect();
    if all.is_empty() {
        all.push(("", &run.results.environment));
    }
    table.rows.extend(facts_of_hosts(&all));
    table.rows.extend(run.results.host_changes.iter().flat_map(changes_of));
    table
}

/// Returns the facts about each host, labelled with the host's role. Facts that are the same on all
/// hosts are listed once, without a role.
fn facts_of_hosts(hosts: &[(&str, &Environment)]) -> Vec<Vec<String>> {
    let mut facts: Vec<([String; 3], Vec<&str>)> = Vec::new();
    for (role, environment) in hosts {
        for fact in facts_of(environment) {
            match facts.iter_mut().find(|(known, _)| *known == fact) {
                Some((_, roles)) => roles.push(role),
                None => facts.push((fact, vec![role])),
            }
        }
    }
    let row = |([what, found, concern], roles): ([String; 3], Vec<&str>)| {
        let on_all = roles.len() == hosts.len();
        vec![if on_all { what } else { format!("{}: {what}", roles.join(", ")) }, found, concern]
    };
    facts.into_iter().map(row).collect()
}

/// Returns a row for each fact about the hosts that changed during the run, with its values before
/// and after the change.
fn changes_of(change: &HostChange) -> impl Iterator<Item = Vec<String>> {
    let (roles, when) = (change.roles.join(", "), change.when());
    change.facts.iter().map(move |fact| {
        let concern = format!("{} before the change", fact.before);
        vec![format!("{roles}: {}, {when}", fact.what), fact.after.clone(), concern]
    })
}

fn facts_of(e: &Environment) -> Vec<[String; 3]> {
    let fact =
        |what: &str, found: &str, concern: String| [what.to_owned(), found.to_owned(), concern];
    let none = String::new;
    let mut all = vec![
        fact("dns64bench", &e.dns64bench, none()),
        fact("host", &e.host, none()),
        fact("kernel", &e.kernel, none()),
        fact("CPU", &format!("{} × {}", e.cpus, e.cpu), none()),
        fact("memory", &format!("{} MiB", e.memory >> 20), none()),
    ];
    for finding in &e.findings {
        let concern = finding.concern.as_ref().map(|c| match &c.fix {
            Some(fix) => format!("{}; fix: {fix}", c.why),
            None => c.why.clone(),
        });
        all.push(fact(&finding.subject, &finding.value, concern.unwrap_or_default()));
    }
    all
}

/// Columns that identify a measurement point with searches.
const POINT: [&str; 5] = ["DUT", "Cores", "Criterion", "α requested", "β requested"];

fn point_names(dut: &DutResult, p: &PointResult) -> Vec<String> {
    let c = &p.conditions;
    let (aaaa, cached) = (percent(c.aaaa.per_hundred()), percent(c.cached.per_hundred()));
    vec![dut.name.clone(), p.column(), format!("{} %", number(c.accept * 100.0)), aaaa, cached]
}

/// Adds a row for each measurement point with searches. The row contains the cells that identify this point, followed
/// by the cells that `cells` returns.
fn of_points(run: &Run, table: &mut Table, cells: impl Fn(&PointResult) -> Vec<String>) {
    table.keys = POINT.len();
    for dut in ranked(&run.results) {
        let row = |p: &PointResult| [point_names(dut, p), cells(p)].concat();
        table.rows.extend(dut.points.iter().map(row));
    }
}

/// Returns a table of two quantities: the AAAA record rate (α) and the cache hit rate (β). The values computed from
/// AuthDNS's counters are compared with those in the plan.
pub(crate) fn cross_check(run: &Run) -> Table {
    let note = "From AuthDNS's counters, over the passed trials of full length. Retries: upstream queries that the DUT repeated within the timeout; \
                α and β exclude them. A point is invalid if its α or β differs by more than 2 percentage points from the requested one.";
    let header =
        [&POINT[..], &["α observed", "β observed", "Upstream queries per query", "Retries"]]
            .concat();
    let mut table = Table::new("Cross-check against AuthDNS counters", note, &header);
    let share = |value: Option<f64>| value.map_or("–".into(), one_decimal);
    of_points(run, &mut table, |p| {
        vec![
            share(p.real.and_then(|r| r.aaaa_share)),
            share(p.real.map(|r| r.cached_share)),
            p.real.map_or("–".into(), |r| format!("{:.2}", r.questions_per_query)),
            share(p.real.map(|r| r.retries_per_question)),
        ]
    });
    table
}

/// Formats a fraction in per cent with one decimal, and never as "-0.0 %".
fn one_decimal(share: f64) -> String {
    // Adding 0 turns a negative zero into a positive one.
    format!("{:.1} %", (share * 1000.0).round() / 10.0 + 0.0)
}

/// Returns a table of trial counts, with a row for each measurement point that consists of searches.
pub(crate) fn trials(run: &Run) -> Table {
    let note = "Probes: short trials, which can only show that a rate fails; for an MLRsearch, all trials below full length. Invalid: because of the tester, and \
                repeated. Skipped: full trials made unnecessary by failed probes.";
    let mut table = Table::new(
        "Trials of the searches",
        note,
        &[&POINT[..], &["Probes", "Trials", "Invalid", "Skipped"]].concat(),
    );
    of_points(run, &mut table, |p| {
        let t = &p.trials;
        [t.probes, t.full, t.invalid, t.saved].map(|n| n.to_string()).into()
    });
    table
}

/// Returns a table about the tester itself: pacing, invalid trials and warnings.
pub(crate) fn health(run: &Run) -> Table {
    let mut table = Table::new("The tester itself", "", &["Item", "Value"]);
    let mut row = |what: &str, found: String| table.rows.push(vec![what.into(), found]);
    let h = &run.results.health;
    let pair = |spread: Option<Spread>, unit: &str| {
        spread.map_or("–".into(), |s| {
            format!("median {} {unit}, worst {} {unit}", number(s.median), number(s.worst))
        })
    };
    row("Worst 100 ms window of each trial, deviation", pair(h.window_pct, "%"));
    row("p99.9 lateness of each trial", pair(h.lateness_us, "µs"));
    let t = h.trials;
    let probes = counted(t.probes as u64, "probe", "probes");
    row(
        "Trials",
        format!("{} of full length, {probes}, {} invalid because of the tester", t.full, t.invalid),
    );
    row("Full trials skipped after failed probes", t.saved.to_string());
    for invalid in &h.invalid_reasons {
        row("Invalid", format!("{} × {}", invalid.trials, invalid.reason));
    }
    if let Some(test) = run.results.own_self_test() {
        row("Self-test", self_test::in_words(test));
    }
    for s in &h.stolen {
        let [median, max, worst] = [s.median_pct, s.max_pct, s.worst_cpu_pct].map(number);
        let found = format!("median {median} %, maximum {max} %; up to {worst} % of one CPU");
        row(&format!("CPU time of host {} stolen by a hypervisor in a trial", s.role), found);
    }
    table
}

#[cfg(test)]
mod tests {
    use hosts::environment::Finding;

    use super::*;

    #[test]
    fn a_share_next_to_zero_has_no_sign() {
        assert_eq!([-0.0001, 0.0, 0.5].map(one_decimal), ["0.0 %", "0.0 %", "50.0 %"]);
        assert_eq!(one_decimal(-0.0012), "-0.1 %");
    }

    #[test]
    fn facts_shared_by_all_hosts_are_listed_once() {
        let with = |interface: &str| Environment {
            dns64bench: "0.1.0".into(),
            host: "h".into(),
            kernel: "Linux".into(),
            cpu: "c".into(),
            cpus: 2,
            memory: 1 << 30,
            findings: vec![Finding {
                subject: "interface a".into(),
                value: interface.into(),
                unavailable: false,
                concern: None,
            }],
        };
        let (tester, dut, auth) = (with("veth, 10 Mbit/s"), with("veth"), with("veth"));
        let rows = facts_of_hosts(&[("tester", &tester), ("dut", &dut), ("auth", &auth)]);
        let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        let last = ["tester: interface a", "dut, auth: interface a"];
        assert_eq!(names, [&["dns64bench", "host", "kernel", "CPU", "memory"], &last[..]].concat());
    }
}
