//! Contradictions in the results of a campaign, for the summary of the report.

use method::precision::Interval;
use serde::{Deserialize, Serialize};
use units::Qps;

use crate::plan::{Cores, Point};
use crate::results::dut::{DutResult, by_key};
use crate::results::search::PointResult;

/// Two results that cannot both be correct.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Contradiction {
    /// At some rates, the DUT passed when every reply was required, but failed with a lower
    /// acceptance ratio.
    LessForLess {
        /// The DUT and its CPU placement.
        dut: String,
        /// The acceptance ratio, a fraction below 1.
        accept: f64,
        /// Interval that contains the DUT's maximum rate if some replies may be missing.
        less: Interval,
        /// Interval that contains the DUT's maximum rate if every reply is required.
        all: Interval,
    },
    /// Trials of the plan's `[measure.loads]` failed, although their rate was not above the DUT's
    /// worst-case rate (median of its worst-case searches).
    DoesNotHold {
        /// The DUT and its CPU placement.
        dut: String,
        /// The lowest rate of the failed trials, queries per second.
        rate: Qps,
        /// Share of valid replies in the trials at the lowest failed rate, from 0 to 1.
        valid: f64,
    },
    /// Searches found passing rates that are too high for the tester: the self-test does not
    /// validate the tester at these rates.
    BeyondSelfTest {
        /// The DUT and the conditions of the searches.
        point: String,
        /// The highest rate that passed in a search, queries per second.
        passed: f64,
        /// The rate up to which the self-test validates the tester at this measurement point.
        allowed: Qps,
    },
}

/// Returns all contradictions in the results of a campaign. For a measurement point, the function
/// `allowed` returns the rate up to which the self-test validates the tester.
pub(super) fn contradictions(
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
            // If the self-test passed at no rate, the report contains a caveat about the whole run
            // instead.
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

/// Returns a text that names a DUT and its CPU placement.
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
