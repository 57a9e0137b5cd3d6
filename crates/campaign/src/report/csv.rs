//! Every number of a run as comma-separated values: a line for each quantity of each point.

use std::fmt::Write;

use method::evidence::Real;
use method::precision::{Figures, Interval};
use method::stats::Summary;
use method::units::Qps;

use super::Run;
use crate::measures;
use crate::measures::search::ran_on;
use crate::place::Place;
use crate::point::Point;

/// A quantity of a point: its statistics over trials or searches, each absent where there is none.
#[derive(Clone, Debug)]
pub struct Row {
    /// Whose.
    pub point: Point,
    /// Where the DUT ran; absent where that was not seen.
    pub ran_on: Option<Place>,
    /// The rate that was sent, where it is not the quantity itself.
    pub rate: Option<Qps>,
    /// What was found.
    pub quantity: String,
    /// In which unit.
    pub unit: &'static str,
    /// Over how many trials or searches.
    pub n: usize,
    /// Median, or the one value.
    pub median: Option<f64>,
    /// 1st percentile.
    pub p1: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// (max − min) ÷ median · 100 %.
    pub dispersion_pct: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Sample standard deviation.
    pub stdev: Option<f64>,
    /// Between which rates the limit lies.
    pub interval: Interval,
    /// Whether the DUT may do more.
    pub at_least: bool,
    /// What the trials really were, by AuthDNS's counters.
    pub real: Option<Real>,
    /// What speaks against the number, or why there is none.
    pub mark: String,
}

impl Row {
    /// One value without statistics.
    pub fn of_value(point: Point, quantity: &str, unit: &'static str, n: usize, value: Option<f64>) -> Row {
        let rate = if let Point::ConstantRate(at) = &point { Some(at.rate) } else { None };
        Row {
            point,
            ran_on: None,
            rate,
            quantity: quantity.into(),
            unit,
            n,
            median: value,
            p1: None,
            p99: None,
            min: None,
            max: None,
            dispersion_pct: None,
            mean: None,
            stdev: None,
            interval: Interval::default(),
            at_least: false,
            real: None,
            mark: String::new(),
        }
    }

    /// The statistics of trials.
    pub fn of_summary(point: Point, quantity: &str, unit: &'static str, summary: Option<&Summary>) -> Row {
        let n = summary.map_or(0, |s| s.n);
        Row {
            min: summary.map(|s| s.min),
            max: summary.map(|s| s.max),
            dispersion_pct: summary.filter(|s| s.n > 1).and_then(|s| s.dispersion_pct),
            ..Row::of_value(point, quantity, unit, n, summary.map(|s| s.median))
        }
    }

    /// The statistics of searches.
    pub fn of_figures(point: Point, quantity: &str, unit: &'static str, figures: &Figures) -> Row {
        Row {
            p1: figures.p1,
            p99: figures.p99,
            min: figures.min,
            max: figures.max,
            dispersion_pct: figures.dispersion_pct,
            interval: figures.interval,
            ..Row::of_value(point, quantity, unit, figures.n, figures.median)
        }
    }

    fn cells(&self, run: &Run) -> Vec<String> {
        let place = self.point.place();
        let mut cells = vec![
            quote(&run.name),
            quote(self.point.measure().name()),
            quote(self.point.dut().unwrap_or_default()),
            place.map_or(String::new(), |place| place.cores.to_string()),
            quote(&place.map_or(String::new(), |place| ran_on(place, self.ran_on.as_ref()))),
            quote(place.and_then(|place| place.placement.as_deref()).unwrap_or_default()),
        ];
        cells.push(quote(run.results.plan.auth_at(&self.point).name()));
        cells.extend(conditions(&self.point));
        cells.push(self.rate.map_or(String::new(), |rate| rate.to_string()));
        cells.extend([quote(&self.quantity), quote(self.unit), self.n.to_string()]);
        let values = [
            self.median,
            self.p1,
            self.p99,
            self.min,
            self.max,
            self.dispersion_pct,
            self.mean,
            self.stdev,
            self.interval.from,
            self.interval.to,
        ];
        cells.extend(values.map(option));
        cells.push(self.at_least.to_string());
        let real = |get: fn(&Real) -> Option<f64>| option(self.real.as_ref().and_then(get));
        cells.extend([
            real(|r| r.aaaa_share),
            real(|r| Some(r.cached_share)),
            real(|r| Some(r.questions_per_query)),
            real(|r| Some(r.retries_per_question)),
        ]);
        cells.push(quote(&self.mark));
        cells
    }
}

const HEADER: &str = "run,measure,dut,cores,ran_on,placement,authdns,family,aaaa_share,cached_share,acceptance,load,threads,rate,quantity,unit,n,median,\
                      p1,p99,min,max,dispersion_pct,mean,stdev,interval_from,interval_to,at_least,real_aaaa_share,real_cached_share,\
                      questions_per_query,retries_per_question,mark";

/// All numbers of runs.
pub(super) fn csv(runs: &[Run]) -> String {
    let mut out = format!("{HEADER}\n");
    for run in runs {
        for row in measures::ALL.iter().flat_map(|measure| measure.rows(run)) {
            let _ = writeln!(out, "{}", row.cells(run).join(","));
        }
    }
    out
}

/// What else tells points apart: version of IP of a self-test, shares, acceptance, load, threads.
fn conditions(point: &Point) -> [String; 6] {
    let mut cells: [String; 6] = Default::default();
    match point {
        Point::SelfTest(at) => cells[0] = at.family.map_or(String::new(), |family| quote(&family.to_string())),
        Point::Search(c) => {
            (cells[1], cells[2], cells[3]) = (c.aaaa.to_string(), c.cached.to_string(), c.accept.to_string());
        }
        Point::Load(at) => cells[4] = at.share.to_string(),
        Point::ConstantRate(_) => {}
        Point::ClosedLoop(with) => cells[5] = with.threads.to_string(),
    }
    cells
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn option(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}
