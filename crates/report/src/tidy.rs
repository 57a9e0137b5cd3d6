//! Tidy tables of a run as comma-separated values (RFC 4180). Each measurement point, search or trial has a line, and
//! each variable has a column.

use std::fmt::Write;

use campaign::plan::Point;
use campaign::results::{PointResult, Trial};
use hosts::place::CpuPlacement;
use method::narrow::Length;
use method::search::{Found, Shortfall};
use method::verdict::Verdict;

use crate::csv::row::{KEYS, MetricSubject, Row, key_cells, option, quote};
use crate::run::Run;
use crate::sections;

/// Quantities that are rows in `results.csv` and columns in `points.csv`, each with its column name
/// in `points.csv`.
const VALUES: [(&str, &str); 15] = [
    ("resolution", "resolution_qps"),
    ("vouched", "validated_qps"),
    ("allows", "allows_qps"),
    ("valid", "valid_share"),
    ("cpu", "cpu_cores"),
    ("cprdp", "cprdp"),
    ("rtt_p50", "rtt_p50_us"),
    ("rtt_p99", "rtt_p99_us"),
    ("rtt_p999", "rtt_p999_us"),
    ("auth_p999", "auth_p999_us"),
    ("time_of_256", "time_of_256_ms"),
    ("probes", "probes"),
    ("trials", "trials"),
    ("spoiled", "invalid"),
    ("saved", "saved"),
];

/// Returns `points.csv`: a line for each measurement point.
pub(crate) fn points(runs: &[Run]) -> String {
    let mut out = format!(
        "{KEYS},rate,n,median,p1,p99,min,max,dispersion_pct,interval_from,interval_to,at_least,{},mark\n",
        VALUES.map(|(_, column)| column).join(",")
    );
    for run in runs {
        let rows: Vec<Row> = sections::ALL.iter().flat_map(|measure| measure.rows(run)).collect();
        for group in rows.chunk_by(|a, b| a.of.point() == b.of.point()) {
            let _ = writeln!(out, "{}", point_cells(run, group).join(","));
        }
    }
    out
}

/// Returns the cells of a measurement point's line in `points.csv`. `rows` contains all rows of `results.csv` about
/// this point.
fn point_cells(run: &Run, rows: &[Row]) -> Vec<String> {
    let row = |quantity: &str| rows.iter().find(|row| row.quantity == quantity);
    let mut cells =
        rows.first().map_or(Vec::new(), |first| key_cells(run, &first.of, first.ran_on.as_ref()));
    let sent = rows.first().and_then(|first| first.rate);
    cells.push(sent.map_or(String::new(), |rate| rate.to_string()));
    let rate = row("rate");
    cells.push(rate.map_or(String::new(), |rate| rate.n.to_string()));
    let of_rate: [fn(&Row) -> Option<f64>; 8] = [
        |rate| rate.median,
        |rate| rate.p1,
        |rate| rate.p99,
        |rate| rate.min,
        |rate| rate.max,
        |rate| rate.dispersion_pct,
        |rate| rate.interval.from,
        |rate| rate.interval.to,
    ];
    cells.extend(of_rate.map(|get| option(rate.and_then(get))));
    cells.push(rate.map_or(String::new(), |rate| rate.at_least.to_string()));
    let value = |quantity: &str| row(quantity).and_then(|row| row.median.or(row.mean));
    cells.extend(VALUES.map(|(quantity, _)| option(value(quantity))));
    let mark = rows.iter().map(|row| row.mark.as_str()).find(|mark| !mark.is_empty());
    cells.push(quote(mark.unwrap_or_default()));
    cells
}

/// Returns `searches.csv`: a line for each search at each measurement point.
pub(crate) fn searches(runs: &[Run]) -> String {
    let mut out = format!("{KEYS},search,passed,failed,unmeasurable,missing,of,at_least\n");
    for run in runs {
        let points = run.results.plan.points();
        let tests = points.iter().filter(|point| matches!(point, Point::SelfTest(_)));
        for (point, test) in tests.zip(&run.results.self_tests) {
            search_lines(&mut out, run, point, None, &test.found, &[]);
        }
        for p in run.results.duts.iter().flat_map(|dut| &dut.points) {
            let PointResult { conditions, place, found, failed_by, .. } = p;
            let point = Point::Search(conditions.clone());
            search_lines(&mut out, run, &point, place.as_ref(), found, failed_by);
        }
    }
    out
}

fn search_lines(
    out: &mut String,
    run: &Run,
    point: &Point,
    place: Option<&CpuPlacement>,
    found: &[Found],
    failed_by: &[Option<Shortfall>],
) {
    let keys = key_cells(run, &MetricSubject::Point(Box::new(point.clone())), place);
    for (n, search) in found.iter().enumerate() {
        let by = failed_by.get(n).copied().flatten();
        let count = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        let cells = [
            (n + 1).to_string(),
            count(search.highest.map(|rate| rate.0)),
            count(search.failed.map(|rate| rate.0)),
            count(search.unmeasurable.map(|rate| rate.0)),
            count(by.map(|by| by.missing)),
            count(by.map(|by| by.of)),
            search.lower_bound.to_string(),
        ];
        let _ = writeln!(out, "{},{}", keys.join(","), cells.join(","));
    }
}

/// Returns `trials.csv`: a line for each trial, in the order in which they ended.
pub(crate) fn trials(runs: &[Run]) -> String {
    let mut out = format!(
        "{KEYS},trial,repeat,length,started_unix_s,duration_s,rate,sent,valid,lost,late,wrong,rtt_p50_us,rtt_p99_us,\
         cpu_cores,verdict,reason\n"
    );
    for run in runs {
        for (n, trial) in run.results.trials.iter().enumerate() {
            let keys = key_cells(run, &MetricSubject::Point(Box::new(trial.point.clone())), None);
            let _ = writeln!(out, "{},{},{}", keys.join(","), n + 1, trial_cells(trial).join(","));
        }
    }
    out
}

fn trial_cells(trial: &Trial) -> Vec<String> {
    let c = &trial.counts;
    let mut cells = vec![
        trial.repeat.to_string(),
        quote(length(trial.length)),
        trial.started_unix_s.to_string(),
        trial.duration_s.to_string(),
        trial.rate.map_or(String::new(), |rate| rate.to_string()),
    ];
    cells.extend([c.sent, c.valid, c.lost, c.late, c.wrong.total()].map(|n| n.to_string()));
    cells.extend([
        option(trial.rtt_us.map(|rtt| rtt.p50)),
        option(trial.rtt_us.map(|rtt| rtt.p99)),
        option(trial.cpu),
        quote(verdict(trial.verdict)),
    ]);
    let ended = trial.ended.as_ref().map(ToString::to_string);
    let reasons: Vec<String> = trial.reasons.iter().map(ToString::to_string).chain(ended).collect();
    cells.push(quote(&reasons.join("; ").replace('\u{202f}', " ")));
    cells
}

fn length(length: Length) -> &'static str {
    match length {
        Length::Probe => "probe",
        Length::Full => "full",
        Length::Of(_) => "other",
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
        Verdict::Invalid => "invalid",
    }
}
