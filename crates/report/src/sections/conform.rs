//! Results of conformance checks: tables, rows of the CSV file, and the scoreboard (a table of all checks and servers).

use campaign::plan::{AtPlace, Point};
use campaign::results::{ConformResult, Counts, DutResult, NoResult};
use campaign::sequence::ConformMeasure;
use conform::outcome::{Count, Report};
use conform::show;
use hosts::servers::Variant;

use crate::chart::Figure;
use crate::csv::row::Row;
use crate::run::{Run, legend};
use crate::section::Section;
use crate::table::Table;

impl Section for ConformMeasure {
    fn title(&self) -> &'static str {
        "Conformance"
    }

    fn tables(&self, run: &Run) -> Vec<Table> {
        let all = of_runs(std::slice::from_ref(run));
        if all.is_empty() { Vec::new() } else { vec![table(&all)] }
    }

    fn figures(&self, _: &[Run]) -> Vec<Figure> {
        Vec::new()
    }

    /// Returns a table of all checks and DUTs in HTML (the scoreboard), for this section of the report.
    fn html(&self, runs: &[Run]) -> String {
        match reports(runs).as_slice() {
            [] => String::new(),
            // Text in the scoreboard is escaped, so that only tags contain `<`.
            all => show::html::scoreboard(all).replace("<h2>", "<h3>").replace("</h2>", "</h3>"),
        }
    }

    fn markdown(&self, runs: &[Run]) -> String {
        match reports(runs).as_slice() {
            [] => String::new(),
            all => {
                format!("## Conformance, check by check\n\n{}\n", show::markdown::scoreboard(all))
            }
        }
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        let duts = run.results.duts.iter();
        duts.filter_map(|dut| Some(rows(dut, dut.conform.as_ref()?))).flatten().collect()
    }
}

/// Returns the checked DUTs of all runs with their names. They are sorted by the number of failed MUST checks, and then
/// by that of failed SHOULD checks, lowest first. DUTs without counts of checks are last.
fn of_runs(runs: &[Run]) -> Vec<(String, &ConformResult)> {
    let each = runs.iter().flat_map(|run| run.results.duts.iter().map(move |dut| (run, dut)));
    let mut all: Vec<_> = each
        .filter_map(|(run, dut)| {
            Some((legend(run, &dut.name, runs.len() > 1), dut.conform.as_ref()?))
        })
        .collect();
    all.sort_by_key(|(_, result)| result.faults());
    all
}

/// Returns the conformance reports of the servers in all runs. They are the columns of the scoreboard, a table of
/// checks and servers.
fn reports(runs: &[Run]) -> Vec<Report> {
    let named = |(name, result): (String, &ConformResult)| {
        Some(Report { server: name, ..result.report.clone()? })
    };
    of_runs(runs).into_iter().filter_map(named).collect()
}

/// Returns a table with a row for each DUT: the number of checks with each verdict, by requirement level.
fn table(all: &[(String, &ConformResult)]) -> Table {
    let note = "Numbers of checks: passed / failed / not offered / not tried. It is no fault if a server does not \
                support an optional feature (MAY). Checks that were not tried do not count as passed.";
    let mut table = Table::new("Conformance by requirement level", note, &["DUT"]);
    table
        .header
        .extend(["MUST", "SHOULD, RFC says", "MAY", "hardening", "State"].map(str::to_owned));
    for (name, result) in all {
        let cell = |(_, _, count): (_, _, Count)| {
            let Count { passed, failed, not_offered, not_tried } = count;
            format!("{passed} / {failed} / {not_offered} / {not_tried}")
        };
        let cells = match &result.counts {
            Some(counts) => counts.by_level().map(cell),
            None => std::array::from_fn(|_| "–".to_owned()),
        };
        let first = std::iter::once(name.clone());
        table.rows.push(first.chain(cells).chain([result.state()]).collect());
    }
    table
}

fn rows(dut: &DutResult, result: &ConformResult) -> Vec<Row> {
    let point = Point::Conform(AtPlace {
        dut: dut.name.clone(),
        place: result.place.clone(),
        variant: Variant::Usual,
    });
    let row = |quantity: &str, unit, value: Option<f64>| Row {
        ran_on: result.seen.clone(),
        mark: result.state(),
        ..Row::from_value(point.clone(), quantity, unit, usize::from(value.is_some()), value)
    };
    let mut rows = vec![row("took", "s", result.duration_s)];
    for (level, _, count) in result.counts.iter().flat_map(Counts::by_level) {
        let Count { passed, failed, not_offered, not_tried } = count;
        for (verdict, number) in [
            ("passed", passed),
            ("failed", failed),
            ("not_offered", not_offered),
            ("not_tried", not_tried),
        ] {
            rows.push(row(&format!("{level}_{verdict}"), "checks", Some(number as f64)));
        }
    }
    rows
}

/// Returns the caveat about a server with wrong answers, for the summary.
pub(crate) fn caveat(dut: &DutResult) -> Option<String> {
    let result = dut.conform.as_ref()?;
    if let Some(NoResult::NotChecked { why }) = &result.missing {
        return Some(format!("{}: its answers could not be checked: {why}", dut.name));
    }
    let failed = result.counts.map_or(0, |counts| counts.must.failed);
    match (&result.ended, failed) {
        (Some(end), _) => {
            let setting =
                result.ended_in.as_ref().map_or(String::new(), |variant| format!(" {variant}"));
            Some(format!("{}: {end} during the conformance checks{setting}.", dut.name))
        }
        (None, 0) => None,
        (None, 1) => Some(format!("{} fails a check of level MUST, see Conformance.", dut.name)),
        (None, n) => Some(format!("{} fails {n} checks of level MUST, see Conformance.", dut.name)),
    }
}
