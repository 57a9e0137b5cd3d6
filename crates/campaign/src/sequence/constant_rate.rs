//! Measurements of a DUT at rates from the plan (Lencse and Kadobayashi 2018, §VI and §VII). The
//! results are the DUT's efficiency at each rate, the initial transient of its CPU use, and its
//! page allocations by NUMA node.

use std::time::Duration;

use method::set::Repeats;
use tester::measurer::plan::TrialPlan;
use units::Qps;

use crate::plan::{AtRate, ConstantRates, DutPlan, Plan, Point};
use crate::record::Step;
use crate::sequence::measure::{Measure, Paper, PaperItem};
use crate::sequence::replay::Recorded;
use crate::sequence::steps::{Task, TrialSequence};

/// The measurement of `[[measure.constant-rates]]`: trials at rates from the plan.
pub struct ConstantRateMeasure;

impl Measure for ConstantRateMeasure {
    fn name(&self) -> &'static str {
        "constant rate"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut else { return Vec::new() };
        let keys = plan.keys_of(dut);
        let mut points = Vec::new();
        for block in &keys.constant_rates {
            for place in keys.places_or_first(block.at.as_deref()) {
                let at = |&rate| {
                    Point::ConstantRate(AtRate {
                        dut: dut.name().into(),
                        place: place.clone(),
                        rate,
                    })
                };
                points.extend(block.rates.iter().map(at));
            }
        }
        points
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        for dut in &plan.duts {
            let keys = plan.keys_of(dut);
            for block in &keys.constant_rates {
                if block.transient >= block.duration
                    || block.repeat == 0
                    || block.rates.contains(&Qps(0))
                {
                    return Err(
                        "[[measure.constant-rates]]: transient must be shorter than duration, and rates and repeat at \
                                least 1"
                            .into(),
                    );
                }
                if let Some(stray) = keys.unknown_placement(block.at.as_deref()) {
                    let name = dut.name();
                    let why =
                        format!("at: {stray} is not one of the cores and placements of {name}");
                    return Err(format!("[[measure.constant-rates]] {why}"));
                }
            }
            let mut points = self.points(plan, Some(dut));
            while let Some(point) = points.pop() {
                if points.contains(&point) {
                    return Err(format!(
                        "[[measure.constant-rates]]: two of them have the point {point}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        block_of(plan, point)
            .map_or((0, Duration::ZERO), |b| (b.repeat, plan.takes(b.duration) * b.repeat))
    }

    fn sequence(&self, recorded: &Recorded<'_>, point: &Point) -> Option<TrialSequence> {
        let (Point::ConstantRate(at), block) = (point, block_of(recorded.plan, point)?) else {
            return None;
        };
        Some(TrialSequence::Repeats(Repeats::new(
            at.rate,
            block.repeat,
            recorded.plan.search.invalid_retries,
        )))
    }

    fn restarts_servers(&self) -> bool {
        false
    }

    fn repeats_deaths(&self) -> bool {
        false
    }

    fn task(&self, plan: &Plan, step: &Step, mut base: TrialPlan) -> Task {
        if let Some(block) = block_of(plan, &step.point) {
            (base.duration, base.timeout) =
                (block.duration.into(), plan.trial.timeout(block.duration).into());
        }
        Task::Trial(Box::new(base))
    }

    /// Returns the tables and figures of the paper to which a measurement point contributes. Tables
    /// with the minimum and maximum number of memory pages need several trials. A curve over time
    /// needs a trial of at least two seconds, and a curve over rates needs two rates at the same
    /// placement.
    fn paper_items(&self, plan: &Plan, point: &Point) -> Vec<PaperItem> {
        let (Some(block), Point::ConstantRate(at)) = (block_of(plan, point), point) else {
            return Vec::new();
        };
        let is_beside = |other: &Point| matches!(other, Point::ConstantRate(o) if (&o.dut, &o.place) == (&at.dut, &at.place) && o.rate != at.rate);
        let has_others =
            plan.dut(&at.dut).is_some_and(|dut| self.points(plan, Some(dut)).iter().any(is_beside));
        let all = [
            (block.repeat > 1, "Tables XXII-XXIII"),
            (block.duration >= Duration::from_secs(2), "Fig. 3"),
            (has_others, "Fig. 4"),
        ];
        all.into_iter()
            .filter(|(paper_items, _)| *paper_items)
            .map(|(_, what)| Paper::Benchmarking.has(what))
            .collect()
    }
}

/// Returns the `[[measure.constant-rates]]` table that contains the placement and the rate of a
/// measurement point.
pub fn block_of(plan: &Plan, point: &Point) -> Option<ConstantRates> {
    let Point::ConstantRate(at) = point else { return None };
    let keys = plan.keys_of(plan.dut(&at.dut)?);
    let has = |block: &&ConstantRates| {
        block.rates.contains(&at.rate)
            && keys.places_or_first(block.at.as_deref()).contains(&at.place)
    };
    keys.constant_rates.iter().find(has).cloned()
}
