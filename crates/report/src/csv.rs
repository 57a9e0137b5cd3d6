//! All results of a run as comma-separated values: a line for each quantity at each measurement point.

pub(crate) mod row;

use std::fmt::Write;

use crate::csv::row::{KEYS, MetricSubject, Row};
use crate::run::Run;
use crate::sections;

/// Columns of `results.csv` for the name, unit and statistics of a quantity.
const QUANTITY: &str = "rate,quantity,unit,n,median,p1,p99,min,max,dispersion_pct,mean,stdev,interval_from,interval_to,at_least,\
                        real_aaaa_share,real_cached_share,questions_per_query,retries_per_question,mark";

/// Returns all results of the given runs as comma-separated values.
pub(crate) fn csv(runs: &[Run]) -> String {
    let mut out = format!("{KEYS},{QUANTITY}\n");
    for run in runs {
        let measured = sections::ALL.iter().flat_map(|measure| measure.rows(run));
        for row in measured.chain(pacing(run)).chain(tester(run)) {
            let _ = writeln!(out, "{}", row.cells(run).join(","));
        }
    }
    out
}

/// Returns rows about the trials in the report's pacing figures. Each trial is divided into periods. For each period,
/// the rows contain the minimum and maximum deviation of the number of queries from the schedule, in windows of 100 ms
/// and of 10 ms.
fn pacing(run: &Run) -> Vec<Row> {
    let mut rows = Vec::new();
    for (dut, paced) in run.results.duts.iter().filter_map(|dut| Some((dut, dut.paced.as_ref()?))) {
        let row = |quantity: &str, unit, value: f64| Row {
            rate: Some(paced.rate),
            ..Row::new(MetricSubject::Pacing(dut.name.clone()), quantity, unit, 1, Some(value))
        };
        let w = &paced.windows;
        rows.push(row("stretch", "ms", w.stretch_ms as f64));
        let series = [
            ("least_100ms", &w.least_100ms),
            ("most_100ms", &w.most_100ms),
            ("least_10ms", &w.least_10ms),
            ("most_10ms", &w.most_10ms),
        ];
        for (name, windows) in series {
            let of = |(i, &off): (usize, &i32)| {
                row(&format!("{name}_{}", i + 1), "queries", f64::from(off))
            };
            rows.extend(windows.iter().enumerate().map(of));
        }
    }
    rows
}

/// Returns the rows about the accuracy of the tester, the CPU time stolen from the hosts, and the times of the run.
fn tester(run: &Run) -> Vec<Row> {
    let (r, h) = (&run.results, &run.results.health);
    let row = |quantity: &str, unit, value: f64| {
        Row::new(MetricSubject::Tester, quantity, unit, 1, Some(value))
    };
    let count = |quantity: &str, n: usize| row(quantity, "trials", n as f64);
    let t = h.trials;
    let mut rows = vec![
        count("probes", t.probes),
        count("trials", t.full),
        count("spoiled", t.invalid),
        count("saved", t.saved),
    ];
    for (quantity, unit, spread) in
        [("window_off", "%", h.window_pct), ("lateness_p999", "us", h.lateness_us)]
    {
        let Some(spread) = spread else { continue };
        rows.push(Row { max: Some(spread.worst), ..row(quantity, unit, spread.median) });
    }
    rows.extend(
        h.invalid_reasons
            .iter()
            .map(|of| Row { mark: of.reason.clone(), ..count("invalid", of.trials) }),
    );
    rows.extend(
        h.warnings.iter().map(|of| Row { mark: of.words.clone(), ..count("warned", of.trials) }),
    );
    for s in &h.stolen {
        let whose = |what: &str| format!("stolen_{}{what}", s.role);
        rows.push(Row { max: Some(s.max_pct), ..row(&whose(""), "%", s.median_pct) });
        rows.push(row(&whose("_worst_cpu"), "%", s.worst_cpu_pct));
    }
    if let Some(period) = r.period_unix_s {
        rows.extend([
            row("begun", "unix s", period.begun),
            row("ended", "unix s", period.ended),
            row("trials_took", "s", period.trials_s),
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use crate::csv::row::quote;

    #[test]
    fn a_cell_of_text_is_no_formula() {
        for (text, cell) in [
            ("=HYPERLINK(\"x\")", "\"'=HYPERLINK(\"\"x\"\")\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@x", "\"'@x\""),
            ("\u{202e}=1\r", "\"'=1\""),
            ("a=b, c", "\"a=b, c\""),
            ("", "\"\""),
        ] {
            assert_eq!(quote(text), cell, "{text:?}");
        }
    }
}
