//! Contradictions in the results of a campaign, for the summary, with advice.

use method::precision::Interval;
use method::units::{Qps, grouped};
use serde::{Deserialize, Serialize};

use crate::measures::search::PointResult;
use crate::point::{Cores, Point};
use crate::report::by_key;
use crate::report::chart::number;
use crate::results::DutResult;
use crate::wording;

/// Two results that cannot both be correct.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Contradiction {
    /// With a lower acceptance ratio the DUT failed at rates at which it passed with a higher one.
    LessForLess {
        /// The DUT and its CPU placement.
        dut: String,
        /// The acceptance ratio below 1, a fraction.
        accept: f64,
        /// The interval of its limit with that ratio.
        less: Interval,
        /// The interval of its limit with every reply required.
        all: Interval,
    },
    /// Trials at a rate at or below the median failed.
    DoesNotHold {
        /// The DUT and its CPU placement.
        dut: String,
        /// The lowest rate of these trials, queries per second.
        rate: Qps,
        /// Share of valid replies in the trials at that rate.
        valid: f64,
    },
    /// Searches passed above the rate up to which the self-test validates the tester.
    BeyondSelfTest {
        /// The DUT and the conditions.
        point: String,
        /// The highest rate that passed in a search, queries per second.
        passed: f64,
        /// The rate up to which the self-test validates the tester there.
        allowed: Qps,
    },
}

impl Contradiction {
    /// Returns the contradiction as text, with advice.
    pub fn in_words(&self) -> String {
        match self {
            Contradiction::LessForLess { dut, accept, less, all } => format!(
                "{dut} reached less with a lower acceptance criterion: {} queries/s with {} % accepted, {} with 100 %. This is \
                 noise; use longer trials and more searches.",
                wording::interval(less),
                number(accept * 100.0),
                wording::interval(all)
            ),
            Contradiction::DoesNotHold { dut, rate, valid } => format!(
                "{dut}: the median is not reproducible. In trials at {} queries/s, {} of the queries had a valid reply. The \
                 interval is extended down to the next lower rate that passed. Use longer trials and more searches.",
                grouped(rate.0),
                almost(*valid)
            ),
            Contradiction::BeyondSelfTest { point, passed, allowed } => format!(
                "{point}: searches passed at up to {} queries/s, but the self-test validates the tester only up to {}. Higher \
                 rates are unverified; use a faster tester or give each role its own CPUs.",
                number(*passed),
                grouped(allowed.0)
            ),
        }
    }
}

/// Formats a share in per cent that is never rounded up to 100 %.
pub(crate) fn almost(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 100.0 {
        "100 %".into()
    } else {
        format!("{} %", number((percent * 1000.0).floor() / 1000.0))
    }
}

/// Returns all contradictions of a campaign; `allowed` is the rate up to which the self-test
/// validates the tester at a point.
pub(crate) fn contradictions(
    duts: &[DutResult],
    allowed: impl Fn(&Point) -> Option<Qps>,
) -> Vec<Contradiction> {
    let mut all = Vec::new();
    for dut in duts {
        all.extend(dut.points.iter().filter_map(|point| less_for_less(dut, point)));
        for (place, loads) in by_key(&dut.loads, |load| &load.place) {
            let failed = loads.iter().filter(|load| load.found.passed == Some(false));
            let refuting = failed.min_by_key(|load| load.rate).and_then(|load| {
                let dut = on(&dut.name, place);
                Some(Contradiction::DoesNotHold { dut, rate: load.rate?, valid: load.found.valid? })
            });
            all.extend(refuting);
        }
        for point in &dut.points {
            let named = Point::Search(point.conditions.clone());
            // A self-test that passed at no rate is a caveat of the whole run.
            let allowed = allowed(&named).filter(|&allowed| allowed > Qps(0));
            if let (Some(passed), Some(allowed)) = (point.figures.max, allowed)
                && passed > allowed.0 as f64
            {
                let point = named.to_string();
                all.push(Contradiction::BeyondSelfTest { point, passed, allowed });
            }
        }
    }
    all
}

/// Names a DUT and its placement.
fn on(dut: &str, place: &Cores) -> String {
    format!("{dut} on {place}")
}

fn less_for_less(dut: &DutResult, point: &PointResult) -> Option<Contradiction> {
    let c = &point.conditions;
    let strict = dut.points.iter().find(|other| {
        let o = &other.conditions;
        o.accept >= 1.0 && (&o.place, o.aaaa, o.cached) == (&c.place, c.aaaa, c.cached)
    })?;
    let (less, all) = (point.figures.interval, strict.figures.interval);
    let contradicts = c.accept < 1.0 && less.to? <= all.from?;
    let (dut, accept) = (on(&dut.name, &c.place), c.accept);
    contradicts.then_some(Contradiction::LessForLess { dut, accept, less, all })
}
