//! Self-tests in the report: the table, the figure, and the rows of the CSV file.

use campaign::plan::{Family, Point};
use campaign::results::SelfTestResult;
use campaign::sequence::SelfTestMeasure;
use hosts::place::cores_in_words;
use units::Qps;

use crate::chart::{Dot, Figure, Series, Shape};
use crate::csv::row::Row;
use crate::format::number;
use crate::run::Run;
use crate::section::Section;
use crate::sections::search::dot_of;
use crate::sections::search::rows::{each_search, trial_counts, without_pass};
use crate::table::Table;
use crate::wording;

impl Section for SelfTestMeasure {
    fn title(&self) -> &'static str {
        "Self-test"
    }

    fn tables(&self, _: &Run) -> Vec<Table> {
        Vec::new()
    }

    fn comparisons(&self, runs: &[Run]) -> Vec<Table> {
        let all = || runs.iter().flat_map(|run| &run.results.self_tests);
        let mut kinds: Vec<(String, Option<Family>, Option<usize>)> = Vec::new();
        for test in all() {
            let kind = (test.server.clone(), test.family, test.cores);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.iter().map(|kind| table(runs, kind)).collect()
    }

    fn figures(&self, runs: &[Run]) -> Vec<Figure> {
        figure(runs).into_iter().collect()
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        let points = run.results.plan.points();
        let tests = points.into_iter().filter(|point| matches!(point, Point::SelfTest(_)));
        tests
            .zip(&run.results.self_tests)
            .flat_map(|(point, result)| rows(&point, result))
            .collect()
    }
}

fn rows(point: &Point, result: &SelfTestResult) -> Vec<Row> {
    let mut rows = vec![Row {
        mark: match &result.missing {
            Some(why) => why.to_string(),
            None => wording::objection(&result.figures),
        },
        ..Row::from_figures(point.clone(), "rate", "queries/s", &result.figures)
    }];
    for (quantity, rate) in [("passed", result.passed), ("allows", result.allows)] {
        let rate = rate.map(|rate| rate.0 as f64);
        rows.push(Row::from_value(point.clone(), quantity, "queries/s", result.figures.n, rate));
    }
    rows.extend(each_search(point, &result.found));
    rows.push(without_pass(point, &result.figures));
    rows.extend(trial_counts(point, &result.trials));
    rows
}

/// Returns the title of a self-test.
fn title(server: &str, family: Option<Family>, cores: Option<usize>) -> String {
    let family = family.map_or(String::new(), |family| format!(" over {family}"));
    let cores = match cores {
        None => String::new(),
        Some(1) => ", single CPU core".into(),
        Some(cores) => format!(", {cores} CPU cores"),
    };
    format!("Self-test: authoritative DNS performance of {server}{family}{cores}")
}

/// Returns a table with a column for each run. The rows are the statistics that the papers on DNS64
/// benchmarking show in their tables.
fn table(runs: &[Run], (server, family, cores): &(String, Option<Family>, Option<usize>)) -> Table {
    let note = "Queries/s of the tester against that server alone. The smallest result is the tester's own limit.";
    let mut table = Table::new(&title(server, *family, *cores), note, &["Run"]);
    table.rows = wording::STATISTICS.map(|name| vec![name.to_owned()]).into();
    for run in runs {
        let is_it = |test: &&SelfTestResult| {
            (&test.server, &test.family, &test.cores) == (server, family, cores)
        };
        table.header.push(run.name.clone());
        let test = run.results.self_tests.iter().find(is_it);
        let cells = match test {
            Some(SelfTestResult { missing: None, figures, .. }) => wording::statistics(figures),
            Some(SelfTestResult { missing: Some(why), .. }) => {
                std::array::from_fn(|_| why.to_string())
            }
            None => std::array::from_fn(|_| "not in this run's plan".into()),
        };
        for (row, cell) in table.rows.iter_mut().zip(cells) {
            row.push(cell);
        }
    }
    table
}

fn figure(runs: &[Run]) -> Option<Figure> {
    let mut groups: Vec<String> = Vec::new();
    let mut series: Vec<Series> =
        runs.iter().map(|run| Series { name: run.name.clone(), dots: Vec::new() }).collect();
    for (r, run) in runs.iter().enumerate() {
        for test in &run.results.self_tests {
            if test.missing.is_some() {
                continue;
            }
            let family = test.family.map_or(String::new(), |family| format!(" {family}"));
            let cores =
                test.cores.map_or(String::new(), |cores| format!(", {}", cores_in_words(cores)));
            let group = format!("{}{family}{cores}", test.server);
            let at = groups.iter().position(|g| *g == group).unwrap_or_else(|| {
                groups.push(group);
                groups.len() - 1
            });
            let dot = dot_of(at as f64, &test.figures, &test.found);
            let range = (test.figures.min.unwrap_or(0.0), test.figures.max.unwrap_or(0.0));
            series[r].dots.push(Dot { range, ..dot });
        }
    }
    (!groups.is_empty()).then(|| Figure {
        file: "self-test".into(),
        title: "Self-test: the tester against authoritative servers alone".into(),
        x_label: String::new(),
        y_label: "queries/s".into(),
        shape: Shape::Bars { groups, series },
    })
}

/// Returns the result of the self-test as text.
pub(crate) fn in_words(test: &SelfTestResult) -> String {
    let rate = |rate: Qps| number(rate.0 as f64);
    match (&test.missing, test.passed, test.allows) {
        (Some(why), ..) => why.to_string(),
        (None, Some(passed), Some(allows)) => format!(
            "passed at up to {} queries/s, which validates tests up to {} in the worst case",
            rate(passed),
            rate(allows)
        ),
        _ => "no rate passed; results cannot be validated".into(),
    }
}
