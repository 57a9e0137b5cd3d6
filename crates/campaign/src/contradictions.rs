//! What contradicts itself in the results of a campaign: said in the summary, with what to do about
//! it.

use method::precision::Interval;
use method::units::{Qps, Share};
use serde::{Deserialize, Serialize};

use crate::measures::search::PointResult;
use crate::point::{Cores, Point};
use crate::report::chart::number;
use crate::results::DutResult;
use crate::wording;

/// Two results that cannot both be right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Contradiction {
    /// With a lower acceptance ratio the DUT failed at rates at which it passed with a higher one.
    LessForLess {
        /// The DUT, and where it ran.
        dut: String,
        /// The acceptance ratio below 1, a fraction.
        accept: f64,
        /// Between which rates its limit lies with that ratio.
        less: Interval,
        /// And with every reply demanded.
        all: Interval,
        /// How close passed and failed rates had to be.
        resolution: Qps,
    },
    /// The median does not hold in a trial at that rate.
    DoesNotHold {
        /// The DUT, and where it ran.
        dut: String,
        /// The median at which the trials of their own were sent, queries per second.
        rate: Qps,
        /// Share of valid replies in the trials at that rate.
        valid: f64,
    },
    /// The median is above what the self-test vouches for.
    BeyondSelfTest {
        /// The DUT, and under which conditions.
        point: String,
        /// The median that the self-test does not vouch for, queries per second.
        median: f64,
        /// Up to which rate the self-test vouches for the tester there.
        allowed: Qps,
        /// How close passed and failed rates had to be.
        resolution: Qps,
    },
}

impl Contradiction {
    /// In words, with what to do; rates without digits beyond their resolution.
    pub fn in_words(&self) -> String {
        match self {
            Contradiction::LessForLess { dut, accept, less, all, resolution } => format!(
                "{dut} did less where less is demanded: {} queries/s with {} % accepted, {} with all. This is noise: longer trials \
                 and more searches.",
                wording::interval(less, *resolution),
                number(accept * 100.0),
                wording::interval(all, *resolution)
            ),
            Contradiction::DoesNotHold { dut, rate, valid } => format!(
                "{dut}'s median does not hold: in trials of their own at {} queries/s {} of the queries got a valid reply. The \
                 median is that of lucky moments, so its interval reaches down to the next lower rate that passed: longer trials \
                 and more searches.",
                number(rate.0 as f64),
                almost(*valid)
            ),
            Contradiction::BeyondSelfTest { point, median, allowed, resolution } => format!(
                "{point}: {} queries/s passed, the self-test vouches for the tester up to {} only. Nothing is known above that: a \
                 faster tester, or fewer roles on its CPUs.",
                number(method::precision::rounded_down(*median, *resolution) as f64),
                number(allowed.0 as f64)
            ),
        }
    }
}

/// A share in per cent that is never rounded to all.
pub(crate) fn almost(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 100.0 {
        "100 %".into()
    } else {
        format!("{} %", number((percent * 1000.0).floor() / 1000.0))
    }
}

/// All contradictions of a campaign; `allowed` is up to which rate the self-test vouches for a
/// point.
pub(crate) fn contradictions(
    duts: &[DutResult],
    allowed: impl Fn(&Point) -> Option<Qps>,
) -> Vec<Contradiction> {
    let mut all = Vec::new();
    for dut in duts {
        all.extend(dut.points.iter().filter_map(|point| less_for_less(dut, point)));
        let full = dut
            .loads
            .iter()
            .filter(|load| load.share == Share::ONE && load.found.passed == Some(false));
        all.extend(full.filter_map(|load| {
            let dut = on(&dut.name, &load.place);
            Some(Contradiction::DoesNotHold { dut, rate: load.rate?, valid: load.found.valid? })
        }));
        for point in &dut.points {
            let named = Point::Search(point.conditions.clone());
            if let (Some(median), Some(allowed)) = (point.figures.median, allowed(&named))
                && median > allowed.0 as f64
            {
                let resolution = point.resolution;
                all.push(Contradiction::BeyondSelfTest {
                    point: named.to_string(),
                    median,
                    allowed,
                    resolution,
                });
            }
        }
    }
    all
}

/// A DUT and where it ran.
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
    let (dut, accept, resolution) = (on(&dut.name, &c.place), c.accept, point.resolution);
    contradicts.then_some(Contradiction::LessForLess { dut, accept, less, all, resolution })
}
