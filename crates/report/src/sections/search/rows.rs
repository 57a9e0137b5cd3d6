//! Rows of searches for `results.csv`.

use crate::places::PointWords;
use campaign::plan::Point;
use campaign::results::{PointResult, Trials};
use method::precision::Figures;
use method::search::{Found, Shortfall};

use crate::csv::row::Row;
use crate::wording;

pub(super) fn rows(result: &PointResult) -> Vec<Row> {
    let point = Point::Search(result.conditions.clone());
    let mut rows = vec![Row {
        mark: result.mark(),
        real: result.real,
        ..Row::from_figures(point.clone(), "rate", "queries/s", &result.figures)
    }];
    rows.push(Row::from_value(
        point.clone(),
        "overstatement",
        "factor",
        1,
        Some(result.overstatement),
    ));
    let resolution = Some(result.resolution.0 as f64);
    rows.push(Row::from_value(point.clone(), "resolution", "queries/s", 1, resolution));
    if let Some(vouched) = result.vouched {
        let vouched = Some(vouched.0 as f64);
        rows.push(Row::from_value(point.clone(), "vouched", "queries/s", 1, vouched));
    }
    rows.extend(each_search(&point, &result.found));
    rows.push(without_pass(&point, &result.figures));
    for (at, goal) in result.goals.iter().enumerate() {
        let name = format!("goal_{}", at + 1);
        rows.push(Row {
            mark: wording::objection(&goal.figures),
            ..Row::from_figures(point.clone(), &name, "queries/s", &goal.figures)
        });
    }
    for (i, shortfall) in result.failed_by.iter().enumerate() {
        let Some(Shortfall { rate, missing, of }) = *shortfall else { continue };
        let row = |what: &str, n: u64| Row {
            rate: Some(rate),
            ..Row::from_value(
                point.clone(),
                &format!("search_{}_{what}", i + 1),
                "queries",
                1,
                Some(n as f64),
            )
        };
        rows.extend([row("missing", missing), row("sent", of)]);
    }
    rows.extend(trial_counts(&point, &result.trials));
    let ends = [("died", result.ends.died), ("hung", result.ends.hung), ("tried", result.ends.of)];
    let row = |(what, n)| Row::from_value(point.clone(), what, "trials", 1, Some(n as f64));
    rows.extend(ends.map(row));
    rows.iter_mut().for_each(|row| row.ran_on.clone_from(&result.place));
    rows
}

/// Returns the result of each search at a measurement point.
pub(crate) fn each_search(point: &Point, found: &[Found]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (i, search) in found.iter().enumerate() {
        let rates = [
            ("passed", search.highest),
            ("failed", search.failed),
            ("unmeasurable", search.unmeasurable),
        ];
        for (what, rate) in rates.into_iter().filter_map(|(what, rate)| Some((what, rate?))) {
            let quantity = format!("search_{}_{what}", i + 1);
            rows.push(Row::from_value(
                point.clone(),
                &quantity,
                "queries/s",
                1,
                Some(rate.0 as f64),
            ));
        }
    }
    rows
}

/// Returns the number of searches that found no passing rate.
pub(crate) fn without_pass(point: &Point, figures: &Figures) -> Row {
    let searches = Some(figures.without_pass as f64);
    Row::from_value(point.clone(), "without_pass", "searches", figures.n, searches)
}

/// Returns a row for each kind of trial at a measurement point. The row contains the number of trials of this kind:
/// short, full-length, invalid, or skipped.
pub(crate) fn trial_counts(point: &Point, trials: &Trials) -> Vec<Row> {
    let all = [
        ("probes", trials.probes),
        ("trials", trials.full),
        ("spoiled", trials.invalid),
        ("saved", trials.saved),
    ];
    all.map(|(what, n)| Row::from_value(point.clone(), what, "trials", 1, Some(n as f64))).into()
}
