//! From results to tables.

use method::precision::{Figures, rounded_down};
use method::search::Shortfall;
use method::units::Qps;

use super::chart::{AT_LEAST, number};
use super::figures::{axes, cell};
use super::table::Table;
use super::{Run, percent};
use crate::archive::DutEnd;
use crate::contradictions::almost;
use crate::environment::Environment;
use crate::results::{DutResult, LoadResult, PointResult};
use crate::servers::Auth;
use crate::wording;

/// All tables of a run.
pub(super) fn tables(run: &Run) -> Vec<Table> {
    let mut all = vec![worst_case(run)];
    let plan = &run.results.plan;
    if plan.cores().len() > 1 {
        all.push(by_condition(run, "Scale-up: median queries/s by cores", &plan.cores(), |p| {
            p.conditions.is_worst_case().then_some(p.conditions.cores)
        }));
    }
    if !plan.measure.acceptance.is_empty() {
        all.push(acceptance(run));
    }
    let (aaaa, cached) = axes(run);
    if aaaa.len() > 1 || cached.len() > 1 {
        for dut in run.results.duts.iter().filter(|dut| !dut.points.is_empty()) {
            all.push(shares(run, dut, &aaaa, &cached));
        }
    }
    if plan.measure.loads.is_some() {
        all.push(loads(run));
    }
    all.push(cross_check(run));
    all.push(health(run));
    all
}

/// The versions of the servers, and the machine.
pub(super) fn environment(run: &Run) -> Table {
    let mut table = Table::new("Environment", "", &["What", "Found", "Concern"]);
    let mut row = |what: &str, found: &str, concern: &str| {
        table.rows.push(vec![what.into(), found.into(), concern.into()]);
    };
    for dut in &run.results.duts {
        row(&dut.name, &dut.version, "");
    }
    row("AuthDNS", &run.results.auth, "");
    let hosts = &run.results.hosts;
    // Where all hosts are others, the machine that gave the orders does not matter.
    let mut all: Vec<(&str, &Environment)> = hosts.iter().map(|host| (host.role.as_str(), &host.environment)).collect();
    if all.is_empty() {
        all.push(("", &run.results.environment));
    }
    table.rows.extend(facts_of_hosts(&all));
    table
}

/// The facts of hosts by role; what is the same on all of them stands there once, and without their roles.
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

fn facts_of(e: &Environment) -> Vec<[String; 3]> {
    let fact = |what: &str, found: &str, concern: String| [what.to_owned(), found.to_owned(), concern];
    let none = String::new;
    let mut all = vec![
        fact("dns64bench", &e.dns64bench, none()),
        fact("host", &e.host, none()),
        fact("kernel", &e.kernel, none()),
        fact("CPU", &format!("{} × {}", e.cpus, e.cpu), none()),
        fact("memory", &format!("{} MiB", e.memory >> 20), none()),
    ];
    for finding in &e.findings {
        let concern = finding.concern.as_ref().map(|c| match &c.mend {
            Some(mend) => format!("{}; mend: {mend}", c.why),
            None => c.why.clone(),
        });
        all.push(fact(&finding.subject, &finding.value, concern.unwrap_or_default()));
    }
    all
}

/// What a point found, for one cell: one look shows its interval only, several searches their median and the interval.
fn found(point: &PointResult, resolution: Qps) -> String {
    let figures = &point.figures;
    if let Some(why) = &point.void {
        return format!("invalid: {why}");
    }
    let bound = if point.lower_bound_reasons.is_empty() { "" } else { AT_LEAST };
    match figures.n {
        0 => "not measured".into(),
        1 => wording::interval(&figures.interval, resolution),
        _ => {
            let (median, interval) =
                (wording::median(figures, resolution), wording::interval(&figures.interval, resolution));
            format!("{bound}{median} in {interval}")
        }
    }
}

/// A note, with what is unproven where nobody counts what AuthDNS is asked.
fn with_proof(run: &Run, note: &str) -> String {
    match run.results.plan.auth.driver {
        Auth::Dns64bench => note.into(),
        _ => format!("{note} Cached shares are unproven: {} does not count what it is asked.", run.results.auth),
    }
}

fn dispersion(figures: &Figures) -> String {
    figures.dispersion_pct.map_or("–".into(), |d| format!("{d:.1} %"))
}

/// By how much the lowest failed rate failed in the search that found the least.
fn failed_by(point: &PointResult) -> String {
    Shortfall::lowest(&point.failed_by).map_or("–".into(), |s| {
        let [rate, missing, of] = [s.rate.0, s.missing, s.of].map(|n| number(n as f64));
        format!("{rate} by {missing} of {of}")
    })
}

fn worst_case(run: &Run) -> Table {
    let note = "Queries/s. Every name new and without an AAAA record: 1 AAAA query in, 2 questions to AuthDNS for each. [passed, failed): \
                from the smallest rate that passed to the largest that failed. p1 and p99 from 20 searches on, dispersion from 2. \
                ≥: a lower bound, reasons above.";
    let header = [
        "DUT",
        "Cores",
        "Median in [passed, failed)",
        "Searches",
        "p1",
        "p99",
        "Dispersion",
        "Failed at, by",
        "AuthDNS asked",
    ];
    let mut table = Table::new("Worst case: 0 % AAAA, 0 % cached", note, &header);
    let resolution = run.results.plan.search.resolution;
    let rounded = |rate: Option<f64>| rate.map_or("–".into(), |r| number(rounded_down(r, resolution) as f64));
    for dut in &run.results.duts {
        for p in dut.points.iter().filter(|p| p.conditions.is_worst_case() || p.conditions.placement.is_some()) {
            let f = &p.figures;
            let place = p.conditions.placement.as_ref().map_or(String::new(), |name| format!(" ({name})"));
            let asked = p.real.as_ref().map(|real| format!("{:.2} per query", real.questions_per_query));
            table.rows.push(vec![
                dut.name.clone(),
                format!("{}{place}", p.ran_on()),
                found(p, resolution),
                format!("{} of {}", f.n, run.results.plan.search.repeat),
                rounded(f.p1),
                rounded(f.p99),
                dispersion(f),
                failed_by(p),
                asked.unwrap_or_else(|| "0 % cached unproven".into()),
            ]);
        }
        if dut.points.is_empty() {
            let mut row = vec![dut.name.clone(), "–".into(), "not measured".into()];
            row.resize(header.len(), "–".into());
            table.rows.push(row);
        }
    }
    table
}

fn by_condition(run: &Run, title: &str, columns: &[usize], key: fn(&PointResult) -> Option<usize>) -> Table {
    let mut table = Table::new(title, &with_proof(run, "In brackets as in the worst case."), &["DUT"]);
    table.header.extend(columns.iter().map(ToString::to_string));
    for dut in &run.results.duts {
        let mut row = vec![dut.name.clone()];
        for column in columns {
            let point = dut.points.iter().find(|p| key(p) == Some(*column));
            // A column says cores: what ran on something else says so itself.
            let other = |p: &PointResult| if p.has_its_cores() { String::new() } else { format!(" ({})", p.ran_on()) };
            let resolution = run.results.plan.search.resolution;
            row.push(point.map_or("not measured".into(), |p| found(p, resolution) + &other(p)));
        }
        table.rows.push(row);
    }
    table
}

fn acceptance(run: &Run) -> Table {
    let note = "Queries/s. Not RFC 8219 compliant below 100 %.";
    let header = ["DUT", "Accepted", "Median in [passed, failed)", "Searches", "Dispersion", "Failed at, by"];
    let mut table = Table::new("Worst case by acceptance ratio", &with_proof(run, note), &header);
    let (cores, resolution) = (run.results.plan.cores()[0], run.results.plan.search.resolution);
    for dut in &run.results.duts {
        for p in &dut.points {
            let c = &p.conditions;
            if c.placement.is_none() && c.cores == cores && c.aaaa.per_hundred() == 0 && c.cached.per_hundred() == 0 {
                table.rows.push(vec![
                    dut.name.clone(),
                    format!("{} %", number(c.accept * 100.0)),
                    found(p, resolution),
                    p.figures.n.to_string(),
                    dispersion(&p.figures),
                    failed_by(p),
                ]);
            }
        }
    }
    table
}

fn shares(run: &Run, dut: &DutResult, aaaa: &[u8], cached: &[u8]) -> Table {
    let title = format!("{}: median queries/s by AAAA share α (rows) and cached share β (columns)", dut.name);
    let note = "In brackets from the smallest rate that passed to the largest that failed.";
    let mut table = Table::new(&title, &with_proof(run, note), &["α \\ β"]);
    table.header.extend(cached.iter().map(|&b| percent(b)));
    for &a in aaaa {
        let mut row = vec![percent(a)];
        for &b in cached {
            let point = cell(run, dut, a, b);
            row.push(point.map_or("–".into(), |p| found(p, run.results.plan.search.resolution)));
        }
        if row[1..].iter().any(|cell| cell != "–") {
            table.rows.push(row);
        }
    }
    table
}

fn loads(run: &Run) -> Table {
    let note = "At shares of the worst-case median. CPU: cores in use without the initial transient. CPRDP: valid replies/s for each core \
                in use (fine at loads of 25, 50 and 75 %, coarse at 50 %). Medians over the trials that count; latency is that of the \
                valid replies, in trials that failed of those that came; AuthDNS's own time is part of it.";
    let header = [
        "DUT",
        "Load",
        "Queries/s",
        "Trials",
        "Valid",
        "CPU",
        "CPRDP",
        "RTT p50, ms",
        "p99, ms",
        "p99.9, ms",
        "AuthDNS p99.9, ms",
    ];
    let mut table = Table::new("CPU use and latency", note, &header);
    for dut in &run.results.duts {
        for load in &dut.loads {
            let mut row = vec![dut.name.clone(), percent(load.share.per_hundred()), number(load.rate.0 as f64)];
            row.extend([trials_of(load), load.valid.map_or("–".into(), almost)]);
            row.push(load.cpu.as_ref().map_or("–".into(), |cpu| format!("{:.2}", cpu.median)));
            row.push(load.cprdp.as_ref().map_or("–".into(), |cprdp| number(cprdp.median.round())));
            match load.rtt_us {
                Some(rtt) => row.extend(rtt.map(|us| format!("{:.2}", us / 1e3))),
                None => row.extend(["–", "–", "–"].map(str::to_owned)),
            }
            row.push(load.auth_p999_us.map_or("–".into(), |us| format!("{:.2}", us / 1e3)));
            table.rows.push(row);
        }
    }
    table
}

/// What became of the trials at a load: a mark where its figures are not those of a sound server.
fn trials_of(load: &LoadResult) -> String {
    let spoiled = match load.spoiled {
        0 => String::new(),
        n => format!(", {n} spoiled"),
    };
    let state = match (load.passed, load.ended.first()) {
        _ if load.void.is_some() => format!("INVALID: {}", load.void.map_or(String::new(), |why| why.to_string())),
        (None, _) => "not measured".into(),
        (_, Some(DutEnd::Hung)) => "HUNG".into(),
        (_, Some(DutEnd::Died(_))) => "DIED".into(),
        (Some(true), None) => format!("{} passed", load.trials),
        (Some(false), None) => format!("{} FAILED", load.trials),
    };
    state + &spoiled
}

fn cross_check(run: &Run) -> Table {
    let note = "From AuthDNS's counters, over the passed trials of full length: what the DUT really asked, questions asked again within the \
                timeout (retries) apart. A point whose α or β is further than 2 points from the one asked for is invalid.";
    let header = [
        "DUT",
        "α asked for",
        "α real",
        "β asked for",
        "β real",
        "Questions per query",
        "Retries",
        "Accepted",
        "Probes",
        "Trials",
        "Spoiled",
        "Saved",
    ];
    let mut table = Table::new("Measured, not assumed", note, &header);
    let share = |value: Option<f64>| value.map_or("–".into(), |v| format!("{:.1} %", v * 100.0));
    for dut in &run.results.duts {
        for p in &dut.points {
            let c = &p.conditions;
            table.rows.push(vec![
                dut.name.clone(),
                percent(c.aaaa.per_hundred()),
                share(p.real.and_then(|r| r.aaaa_share)),
                percent(c.cached.per_hundred()),
                share(p.real.map(|r| r.cached_share)),
                p.real.map_or("–".into(), |r| format!("{:.2}", r.questions_per_query)),
                p.real.map_or("–".into(), |r| format!("{:.1} %", r.retries_per_question * 100.0)),
                format!("{} %", number(c.accept * 100.0)),
                p.trials.probes.to_string(),
                p.trials.full.to_string(),
                p.trials.invalid.to_string(),
                p.trials.saved.to_string(),
            ]);
        }
    }
    table
}

fn health(run: &Run) -> Table {
    let mut table = Table::new("The tester itself", "", &["What", "Found"]);
    let mut row = |what: &str, found: String| table.rows.push(vec![what.into(), found]);
    let h = &run.results.health;
    let pair = |pair: Option<(f64, f64)>, unit: &str| {
        pair.map_or("–".into(), |(median, max)| {
            format!("median {} {unit}, worst {} {unit}", number(median), number(max))
        })
    };
    row("Worst 100 ms window of each trial, off by", pair(h.window_pct, "%"));
    row("p99.9 lateness of each trial", pair(h.lateness_us, "µs"));
    let t = h.trials;
    row("Trials", format!("{} of full length, {} probes, {} spoiled by the tester", t.full, t.probes, t.invalid));
    row("Full trials that failed probes made unnecessary", t.saved.to_string());
    for (reason, n) in &h.invalid_reasons {
        row("Invalid", format!("{n} × {reason}"));
    }
    if let Some(test) = &run.results.self_test {
        let passed = test.passed.map_or("nothing".into(), |rate| number(rate.0 as f64));
        let allows = test.allows.map_or("nothing".into(), |rate| number(rate.0 as f64));
        row(
            "Self-test",
            format!("passed up to {passed} queries/s, which allows tests up to {allows} in the worst case"),
        );
    }
    for s in &h.stolen {
        let [median, max, worst] = [s.median_pct, s.max_pct, s.worst_cpu_pct].map(number);
        let found = format!("median {median} %, most {max} %; of one CPU up to {worst} %");
        row(&format!("CPU time of host {} taken by a hypervisor in a trial", s.role), found);
    }
    if let Some((hit, miss)) = h.numa {
        row(
            "NUMA page allocations",
            format!("{} on the wanted node, {} elsewhere", number(hit as f64), number(miss as f64)),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Finding;

    #[test]
    fn what_all_hosts_share_is_told_once() {
        let with = |interface: &str| Environment {
            dns64bench: "0.1.0".into(),
            host: "h".into(),
            kernel: "Linux".into(),
            cpu: "c".into(),
            cpus: 2,
            memory: 1 << 30,
            findings: vec![Finding { subject: "interface a".into(), value: interface.into(), concern: None }],
        };
        let (tester, dut, auth) = (with("veth, 10 Mbit/s"), with("veth"), with("veth"));
        let rows = facts_of_hosts(&[("tester", &tester), ("dut", &dut), ("auth", &auth)]);
        let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        let last = ["tester: interface a", "dut, auth: interface a"];
        assert_eq!(names, [&["dns64bench", "host", "kernel", "CPU", "memory"], &last[..]].concat());
    }
}
