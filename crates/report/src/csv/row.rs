//! Rows of `results.csv`, and their cells.

use campaign::plan::Point;
use hosts::place::CpuPlacement;
use hosts::text::visible;
use method::evidence::Real;
use method::precision::{Figures, Interval};
use method::stats::Summary;
use units::Qps;

use crate::places::ran_on;
use crate::run::Run;

/// Subject of a row in `results.csv`.
#[derive(Clone, Debug)]
pub(crate) enum MetricSubject {
    /// A measurement point of the plan.
    Point(Box<Point>),
    /// Pacing of the tester in a trial of this DUT.
    Pacing(String),
    /// The tester. The row describes all trials of the run.
    Tester,
}

impl MetricSubject {
    pub(crate) fn point(&self) -> Option<&Point> {
        if let MetricSubject::Point(point) = self { Some(point) } else { None }
    }

    /// Returns the name of the kind of measurement.
    fn measure(&self) -> &'static str {
        match self {
            MetricSubject::Point(point) => point.measure().name(),
            MetricSubject::Pacing(_) => "pacing",
            MetricSubject::Tester => "tester",
        }
    }

    fn dut(&self) -> Option<&str> {
        match self {
            MetricSubject::Point(point) => point.dut(),
            MetricSubject::Pacing(dut) => Some(dut),
            MetricSubject::Tester => None,
        }
    }
}

/// A quantity, with its statistics over trials or searches. Statistics without a value are absent.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Measurement point, pacing or tester that the quantity describes.
    pub of: MetricSubject,
    /// CPU placement of the DUT; absent if it was not observed.
    pub ran_on: Option<CpuPlacement>,
    /// The offered rate; absent if the quantity itself is a rate.
    pub rate: Option<Qps>,
    /// The quantity's name.
    pub quantity: String,
    /// Unit of all values except the relative range, which is in per cent.
    pub unit: &'static str,
    /// Number of trials or searches from which the statistics are computed.
    pub n: usize,
    /// Median of the quantity, or its only value.
    pub median: Option<f64>,
    /// 1st percentile of the quantity.
    pub p1: Option<f64>,
    /// 99th percentile of the quantity.
    pub p99: Option<f64>,
    /// Smallest value of the quantity.
    pub min: Option<f64>,
    /// Largest value of the quantity.
    pub max: Option<f64>,
    /// Relative range: (max − min) ÷ median · 100 %.
    pub dispersion_pct: Option<f64>,
    /// Mean of the quantity.
    pub mean: Option<f64>,
    /// Sample standard deviation of the quantity.
    pub stdev: Option<f64>,
    /// Interval that contains the highest passing rate.
    pub interval: Interval,
    /// True if the median equals the lower end of the interval, and the interval has no upper end.
    pub at_least: bool,
    /// Observed properties of the load in the trials, computed from AuthDNS's counters. They include the fraction of
    /// names with an AAAA record (α) and the cache hit rate (β).
    pub real: Option<Real>,
    /// Caveats about the value, or the reason why there is no value.
    pub mark: String,
}

impl Row {
    /// Creates a row for a single value at a measurement point, without statistics.
    pub(crate) fn from_value(
        point: Point,
        quantity: &str,
        unit: &'static str,
        n: usize,
        value: Option<f64>,
    ) -> Row {
        let rate = if let Point::ConstantRate(at) = &point { Some(at.rate) } else { None };
        Row { rate, ..Row::new(MetricSubject::Point(Box::new(point)), quantity, unit, n, value) }
    }

    /// Creates a row for a single value, without statistics.
    pub(crate) fn new(
        of: MetricSubject,
        quantity: &str,
        unit: &'static str,
        n: usize,
        value: Option<f64>,
    ) -> Row {
        Row {
            of,
            ran_on: None,
            rate: None,
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

    /// Creates a row for the statistics of trials.
    pub(crate) fn from_summary(
        point: Point,
        quantity: &str,
        unit: &'static str,
        summary: Option<&Summary>,
    ) -> Row {
        let n = summary.map_or(0, |s| s.n);
        Row {
            p1: summary.map(|s| s.p1),
            p99: summary.map(|s| s.p99),
            min: summary.map(|s| s.min),
            max: summary.map(|s| s.max),
            dispersion_pct: summary.filter(|s| s.n > 1).and_then(|s| s.dispersion_pct),
            ..Row::from_value(point, quantity, unit, n, summary.map(|s| s.median))
        }
    }

    /// Creates a row for the statistics of searches.
    pub(crate) fn from_figures(
        point: Point,
        quantity: &str,
        unit: &'static str,
        figures: &Figures,
    ) -> Row {
        Row {
            p1: figures.p1,
            p99: figures.p99,
            min: figures.min,
            max: figures.max,
            dispersion_pct: figures.dispersion_pct,
            interval: figures.interval,
            at_least: figures.is_at_least(),
            ..Row::from_value(point, quantity, unit, figures.n, figures.median)
        }
    }

    pub(crate) fn cells(&self, run: &Run) -> Vec<String> {
        let mut cells = key_cells(run, &self.of, self.ran_on.as_ref());
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

/// Columns that identify a measurement point.
pub(crate) const KEYS: &str = "run,measure,dut,cores,ran_on,placement,authdns,family,aaaa_share,cached_share,acceptance,load,threads,governor";

/// Returns the cells for the columns [`KEYS`]. `seen` is the observed CPU placement of the DUT.
pub(crate) fn key_cells(run: &Run, of: &MetricSubject, seen: Option<&CpuPlacement>) -> Vec<String> {
    let (plan, point) = (&run.results.plan, of.point());
    let place = point.and_then(Point::place);
    // A self-test has no DUT: its cores are those of AuthDNS.
    let of_auth =
        point.filter(|point| point.dut().is_none()).map(|point| plan.auth_cpus(point).len());
    let cores = place.map(|place| place.cores).or(of_auth.filter(|&cores| cores > 0));
    let mut cells = vec![
        quote(&run.name),
        quote(of.measure()),
        quote(of.dut().unwrap_or_default()),
        cores.map_or(String::new(), |cores| cores.to_string()),
        quote(&place.map_or(String::new(), |place| ran_on(place, seen))),
        quote(place.and_then(|place| place.placement.as_deref()).unwrap_or_default()),
        quote(&point.map_or(String::new(), |point| plan.auth_at(point).name().to_owned())),
    ];
    cells.extend(point.map(conditions).unwrap_or_default());
    cells
}

/// Returns the cells of the last seven columns in [`KEYS`]: IP version of a self-test, AAAA record rate, cache hit
/// rate, acceptance ratio, load, threads, frequency governor. A cell is empty if it does not apply to the measurement
/// point.
fn conditions(point: &Point) -> [String; 7] {
    let mut cells: [String; 7] = Default::default();
    match point {
        Point::SelfTest(at) => {
            cells[0] = at.family.map_or(String::new(), |family| quote(&family.to_string()));
        }
        Point::Search(c) => {
            (cells[1], cells[2], cells[3]) =
                (c.aaaa.to_string(), c.cached.to_string(), c.accept.to_string());
        }
        Point::Load(at) => cells[4] = at.share.to_string(),
        Point::ConstantRate(_) | Point::Conform(_) => {}
        Point::ClosedLoop(with) => {
            cells[5] = with.threads.to_string();
            cells[6] = quote(with.governor.as_deref().unwrap_or_default());
        }
    }
    cells
}

/// Quotes a text cell (RFC 4180 §2). Text that a spreadsheet would evaluate as a formula gets a
/// leading apostrophe.
pub(crate) fn quote(text: &str) -> String {
    let text = visible(text).replace('"', "\"\"");
    let formula = if text.starts_with(['=', '+', '-', '@', '\t']) { "'" } else { "" };
    format!("\"{formula}{text}\"")
}

pub(crate) fn option(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}
