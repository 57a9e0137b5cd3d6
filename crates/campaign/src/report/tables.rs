//! From results to tables.

use method::stats::Summary;

use super::chart::{AT_LEAST, number};
use super::figures::{axes, cell};
use super::table::Table;
use super::{Run, percent};
use crate::environment::Environment;
use crate::results::{DutResult, PointResult};

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
    let here = ("".to_owned(), &run.results.environment);
    let hosts = run.results.hosts.iter().map(|host| (format!("{}: ", host.role), &host.environment));
    // Where all hosts are others, the machine that gave the orders does not matter.
    let all: Vec<_> = if hosts.len() == 0 { vec![here] } else { hosts.collect() };
    for (role, e) in all {
        machine(&mut table, &role, e);
    }
    table
}

fn machine(table: &mut Table, role: &str, e: &Environment) {
    let mut row = |what: &str, found: &str, concern: &str| {
        table.rows.push(vec![format!("{role}{what}"), found.into(), concern.into()]);
    };
    row("dns64bench", &e.dns64bench, "");
    row("host", &e.host, "");
    row("kernel", &e.kernel, "");
    row("CPU", &format!("{} × {}", e.cpus, e.cpu), "");
    row("memory", &format!("{} MiB", e.memory >> 20), "");
    for finding in &e.findings {
        let concern = finding.concern.as_ref().map(|c| match &c.mend {
            Some(mend) => format!("{}; mend: {mend}", c.why),
            None => c.why.clone(),
        });
        row(&finding.subject, &finding.value, &concern.unwrap_or_default());
    }
}

fn bound(point: &PointResult) -> &'static str {
    if point.lower_bound_reasons.is_empty() { "" } else { AT_LEAST }
}

fn dispersion(summary: &Summary) -> String {
    summary.dispersion_pct.map_or("–".into(), |d| format!("{d:.2} %"))
}

fn worst_case(run: &Run) -> Table {
    let note =
        "Queries/s. 1 AAAA query in, 2 queries upstream for each; every name new. ≥: a lower bound, reasons below.";
    let header = ["DUT", "Cores", "Median", "p1", "p99", "Min", "Max", "Dispersion", "Searches"];
    let mut table = Table::new("Worst case: 0 % AAAA, 0 % cached", note, &header);
    for dut in &run.results.duts {
        for p in dut.points.iter().filter(|p| p.conditions.is_worst_case() || p.conditions.placement.is_some()) {
            let s = &p.summary;
            let place = p.conditions.placement.as_ref().map_or(String::new(), |name| format!(" ({name})"));
            let mut row = vec![dut.name.clone(), format!("{}{place}", p.conditions.cores)];
            row.push(format!("{}{}", bound(p), number(s.median)));
            row.extend([s.p1, s.p99, s.min, s.max].map(number));
            row.extend([dispersion(s), format!("{} of {}", s.n, run.results.plan.search.repeat)]);
            table.rows.push(row);
        }
        if dut.points.is_empty() {
            let mut row = vec![dut.name.clone(), "not measured".into()];
            row.resize(header.len(), "–".into());
            table.rows.push(row);
        }
    }
    table
}

fn by_condition(run: &Run, title: &str, columns: &[usize], key: fn(&PointResult) -> Option<usize>) -> Table {
    let mut table = Table::new(title, "", &["DUT"]);
    table.header.extend(columns.iter().map(ToString::to_string));
    for dut in &run.results.duts {
        let mut row = vec![dut.name.clone()];
        for column in columns {
            let point = dut.points.iter().find(|p| key(p) == Some(*column));
            row.push(point.map_or("–".into(), |p| format!("{}{}", bound(p), number(p.summary.median))));
        }
        table.rows.push(row);
    }
    table
}

fn acceptance(run: &Run) -> Table {
    let note = "Not RFC 8219 compliant below 100 %.";
    let header = ["DUT", "Accepted", "Median", "Min", "Max", "Dispersion"];
    let mut table = Table::new("Worst case by acceptance ratio", note, &header);
    let cores = run.results.plan.cores()[0];
    for dut in &run.results.duts {
        for p in &dut.points {
            let c = &p.conditions;
            if c.placement.is_none() && c.cores == cores && c.aaaa.per_hundred() == 0 && c.cached.per_hundred() == 0 {
                let s = &p.summary;
                table.rows.push(vec![
                    dut.name.clone(),
                    format!("{} %", number(c.accept * 100.0)),
                    format!("{}{}", bound(p), number(s.median)),
                    number(s.min),
                    number(s.max),
                    dispersion(s),
                ]);
            }
        }
    }
    table
}

fn shares(run: &Run, dut: &DutResult, aaaa: &[u8], cached: &[u8]) -> Table {
    let title = format!("{}: median queries/s by AAAA share α (rows) and cached share β (columns)", dut.name);
    let note = "In brackets minimum and maximum. With everything cached the AAAA share does not matter.";
    let mut table = Table::new(&title, note, &["α \\ β"]);
    table.header.extend(cached.iter().map(|&b| percent(b)));
    for &a in aaaa {
        let mut row = vec![percent(a)];
        for &b in cached {
            row.push(cell(run, dut, a, b).map_or("–".into(), |p| {
                let s = &p.summary;
                format!("{}{} ({}–{})", bound(p), number(s.median), number(s.min), number(s.max))
            }));
        }
        if row[1..].iter().any(|cell| cell != "–") {
            table.rows.push(row);
        }
    }
    table
}

fn loads(run: &Run) -> Table {
    let note = "At shares of the worst-case median. CPU: cores in use without the initial transient, median over the trials. CPRDP: \
                queries/s for each core in use (seed 001; fine at loads of 25, 50 and 75 %, coarse at 50 %).";
    let header = ["DUT", "Load", "Queries/s", "CPU", "CPRDP", "RTT p50, µs", "p99, µs", "p99.9, µs", "Valid"];
    let mut table = Table::new("CPU use and latency", note, &header);
    for dut in &run.results.duts {
        for load in &dut.loads {
            let mut row = vec![dut.name.clone(), percent(load.share.per_hundred()), number(load.rate.0 as f64)];
            row.push(load.cpu.as_ref().map_or("–".into(), |cpu| format!("{:.3}", cpu.median)));
            row.push(load.cprdp.map_or("–".into(), number));
            match load.rtt_us {
                Some(rtt) => row.extend(rtt.map(number)),
                None => row.extend(["–", "–", "–"].map(str::to_owned)),
            }
            row.push(format!("{:.4} %", load.valid * 100.0));
            table.rows.push(row);
        }
    }
    table
}

fn cross_check(run: &Run) -> Table {
    let note = "From AuthDNS's counters, over the passed trials of full length: what the DUT really asked. A trial that should find \
                nothing cached and did is invalid.";
    let header = [
        "DUT",
        "α asked for",
        "α real",
        "β asked for",
        "β real",
        "Upstream per query",
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
                share(p.real_aaaa),
                percent(c.cached.per_hundred()),
                share(p.real_cached),
                p.upstream_per_query.map_or("–".into(), |n| format!("{n:.3}")),
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
    if let Some((hit, miss)) = h.numa {
        row(
            "NUMA page allocations",
            format!("{} on the wanted node, {} elsewhere", number(hit as f64), number(miss as f64)),
        );
    }
    table
}
