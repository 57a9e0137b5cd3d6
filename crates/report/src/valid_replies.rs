//! Figure of valid replies by offered rate, from all trials of the worst case.

use campaign::plan::{Cores, Point};
use campaign::results::{DutResult, Trial};
use method::verdict::Verdict;
use units::Share;

use crate::chart::{COLOURS, Dot, Figure, Series, Shape};
use crate::run::{Run, each_dut, legend, worst_point};

/// File name of the first figure.
const FILE: &str = "valid-replies";

/// Returns figures with a curve for each server at its first CPU placement: the percentage of valid replies by offered
/// rate. If there are more servers than colours, further figures follow.
pub(crate) fn figures(runs: &[Run]) -> Vec<Figure> {
    let curve = |(run, dut): (&Run, &DutResult)| {
        let dots = dots(run, dut);
        let name = legend(run, &dut.name, runs.len() > 1);
        (!dots.is_empty()).then_some(Series { name, dots })
    };
    let all: Vec<Series> = each_dut(runs).filter_map(curve).collect();
    let figure = |(n, series): (usize, &[Series])| Figure {
        file: if n == 0 { FILE.into() } else { format!("{FILE}-{}", n + 1) },
        title: "Valid replies by offered rate: worst case, all trials".into(),
        x_label: "offered rate, queries/s".into(),
        y_label: "valid replies, %".into(),
        shape: Shape::Shares(series.to_vec()),
    };
    all.chunks(COLOURS).enumerate().map(figure).collect()
}

/// Returns a dot for each rate. The dot shows the percentage of valid replies in all trials at that rate, and the range
/// of the percentages in single trials. Invalid trials are excluded, because their results do not depend on the DUT
/// alone.
fn dots(run: &Run, dut: &DutResult) -> Vec<Dot> {
    let Some(place) = worst_point(dut).map(|point| &point.conditions.place) else {
        return Vec::new();
    };
    let counts = |trial: &&Trial| {
        trial.verdict != Verdict::Invalid && is_worst_case(&trial.point, &dut.name, place)
    };
    let mut trials: Vec<&Trial> = run.results.trials.iter().filter(counts).collect();
    trials.sort_by_key(|trial| trial.rate);
    let of_rate = |trials: &[&Trial]| {
        let (rate, sum) = (trials.first()?.rate?, |get: fn(&Trial) -> u64| -> f64 {
            trials.iter().map(|trial| get(trial)).sum::<u64>() as f64
        });
        let (valid, sent) = (sum(|t| t.counts.valid), sum(|t| t.counts.sent));
        let shares = || trials.iter().filter_map(|trial| trial.valid());
        let low = shares().reduce(f64::min)?;
        let high = shares().reduce(f64::max)?;
        let range = (100.0 * low, 100.0 * high);
        Some(Dot { range, ..Dot::at(rate.0 as f64, 100.0 * valid / sent) })
    };
    trials.chunk_by(|a, b| a.rate == b.rate).filter_map(of_rate).collect()
}

/// True if a measurement point belongs to the DUT `dut` and the CPU placement `place`, and its trials query new names
/// without AAAA records. The point may consist of searches (with any acceptance ratio), load trials, or trials at
/// constant rates.
fn is_worst_case(point: &Point, dut: &str, place: &Cores) -> bool {
    let is_plain = match point {
        Point::Search(c) => (c.aaaa, c.cached) == (Share::ZERO, Share::ZERO),
        Point::Load(_) | Point::ConstantRate(_) => true,
        Point::SelfTest(_) | Point::ClosedLoop(_) | Point::Conform(_) => false,
    };
    is_plain && point.dut() == Some(dut) && point.place() == Some(place)
}
