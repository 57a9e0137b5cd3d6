//! Section of the report about closed-loop measurements: tables, a figure, and the rows of the CSV file.

use campaign::plan::{Point, WithThreads};
use campaign::results::{Circumstances, ClosedLoopResult, DutResult, NoResult, by_key};
use campaign::sequence::ClosedLoopMeasure;
use hosts::place::CpuPlacement;
use method::stats::MeanAndDeviation;

use crate::chart::{Curve, Dot, Figure, curves};
use crate::csv::row::Row;
use crate::format::number;
use crate::places::on_cores;
use crate::run::{Run, each_dut, legend, ranked};
use crate::section::Section;
use crate::table::Table;

impl Section for ClosedLoopMeasure {
    fn title(&self) -> &'static str {
        "Closed loop"
    }

    fn tables(&self, run: &Run) -> Vec<Table> {
        let mut all = Vec::new();
        for dut in ranked(&run.results) {
            let groups = by_key(&dut.closed_loops, ClosedLoopResult::circumstances);
            all.extend(groups.into_iter().map(|(of, here)| table(dut, of, &here)));
        }
        all
    }

    fn figures(&self, runs: &[Run]) -> Vec<Figure> {
        figure(runs).into_iter().collect()
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        run.results
            .duts
            .iter()
            .flat_map(|dut| dut.closed_loops.iter().flat_map(|at| rows(dut, at)))
            .collect()
    }
}

fn rows(dut: &DutResult, at: &ClosedLoopResult) -> Vec<Row> {
    let (place, governor) = (at.place.clone(), at.governor.clone());
    let point = Point::ClosedLoop(WithThreads {
        dut: dut.name.clone(),
        place,
        threads: at.threads,
        governor,
    });
    let mark = at.state().unwrap_or_default();
    let spread = |quantity: &str, unit, spread: Option<MeanAndDeviation>| Row {
        ran_on: at.seen.clone(),
        mark: mark.clone(),
        n: spread.map_or(0, |s| s.n),
        mean: spread.map(|s| s.mean),
        stdev: spread.map(|s| s.stdev),
        ..Row::from_value(point.clone(), quantity, unit, 0, None)
    };
    let count = |quantity: &str, n: usize| Row {
        ran_on: at.seen.clone(),
        ..Row::from_value(point.clone(), quantity, "trials", 1, Some(n as f64))
    };
    vec![
        spread("time_of_256", "ms", at.time_ms),
        Row {
            ran_on: at.seen.clone(),
            mark: mark.clone(),
            ..Row::from_value(point.clone(), "rate", "queries/s", at.trials, at.qps)
        },
        spread("host_cpu", "% of all CPUs", at.host_cpu_pct),
        spread("dut_cpu", "% of one CPU", at.dut_cpu_pct),
        count("trials", at.trials),
        count("spoiled", at.invalid),
    ]
}

pub(crate) fn cell(found: &ClosedLoopResult, value: Option<f64>, digits: usize) -> String {
    let failed = if found.passed == Some(false) { " (failed)" } else { "" };
    match (value, &found.missing) {
        (Some(value), _) if digits == 0 => format!("{}{failed}", number(value.round())),
        (Some(value), _) => format!("{value:.digits$}{failed}"),
        (None, Some(why)) => why.to_string(),
        (None, None) => NoResult::NotCounted.to_string(),
    }
}

/// Returns a table with a column for each number of tester threads. Its rows are those of the table in the MTD64 paper.
fn table(
    dut: &DutResult,
    (place, governor): Circumstances<'_>,
    all: &[&ClosedLoopResult],
) -> Table {
    let note = "Each experiment resolves 256 names, with the given number of threads and one query in flight each. CPU utilization as in the \
                paper: 100 % minus the idle time of the DUT's host. CPU of the server's processes: 100 % is one CPU.";
    let seen = CpuPlacement::merge_all(all.iter().filter_map(|at| at.seen.as_ref()));
    let governor =
        governor.map_or(String::new(), |governor| format!(", frequency governor: {governor}"));
    let title = format!("Closed loop: {}, {}{governor}", dut.name, on_cores(place, seen.as_ref()));
    let mut table = Table::new(&title, note, &["Number of threads"]);
    table.header.extend(all.iter().map(|at| at.threads.to_string()));
    let mut row = |name: &str, cell: &dyn Fn(&ClosedLoopResult) -> String| {
        table
            .rows
            .push(std::iter::once(name.to_owned()).chain(all.iter().map(|at| cell(at))).collect());
    };
    row("Exec. time of 256 queries (ms), average", &|at| cell(at, at.time_ms.map(|t| t.mean), 2));
    row("Exec. time of 256 queries (ms), std. dev.", &|at| {
        cell(at, at.time_ms.map(|t| t.stdev), 2)
    });
    row("Number of queries per second", &|at| cell(at, at.qps, 0));
    row("DNS64 server CPU utilization (%), average", &|at| {
        cell(at, at.host_cpu_pct.map(|c| c.mean), 2)
    });
    row("DNS64 server CPU utilization (%), std. dev.", &|at| {
        cell(at, at.host_cpu_pct.map(|c| c.stdev), 2)
    });
    row("CPU of the server's processes (%), average", &|at| {
        cell(at, at.dut_cpu_pct.map(|c| c.mean), 2)
    });
    row("CPU of the server's processes (%), std. dev.", &|at| {
        cell(at, at.dut_cpu_pct.map(|c| c.stdev), 2)
    });
    table
}

fn figure(runs: &[Run]) -> Option<Figure> {
    let mut all: Vec<Curve> = Vec::new();
    for (run, dut) in each_dut(runs) {
        for ((place, governor), here) in by_key(&dut.closed_loops, ClosedLoopResult::circumstances)
        {
            let dot = |at: &ClosedLoopResult| {
                // If a name has no answer, the figure shows a mark instead of a value.
                let failed = at.passed == Some(false);
                let y = if failed { 0.0 } else { at.qps? };
                Some(Dot { failed, ..Dot::at(at.threads as f64, y) })
            };
            let dots: Vec<Dot> = here.iter().copied().filter_map(dot).collect();
            let seen = CpuPlacement::merge_all(here.iter().filter_map(|at| at.seen.as_ref()));
            let governor = governor.map_or(String::new(), |governor| format!(", {governor}"));
            let what = on_cores(place, seen.as_ref()) + &governor;
            let of = legend(run, &dut.name, runs.len() > 1);
            all.extend((!dots.is_empty()).then_some(Curve { of, what, dots }));
        }
    }
    (!all.is_empty()).then(|| Figure {
        file: "closed-loop".into(),
        title: "Closed loop: queries per second by the tester's threads".into(),
        x_label: "threads, one query in flight each".into(),
        y_label: "queries/s".into(),
        shape: curves(all, ""),
    })
}
