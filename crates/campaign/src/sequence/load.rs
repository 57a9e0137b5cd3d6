//! Load trials: queries to a DUT at fractions of its worst-case rate on the same CPUs (median of
//! its worst-case searches). The results are CPU use, latency, and efficiency (CPRDP, Lencse and
//! Kadobayashi 2018, §VI).

use std::time::Duration;

use method::set::Repeats;
use tester::measurer::plan::TrialPlan;
use units::Qps;

use crate::plan::{AtShare, Conditions, Cores, DutPlan, Loads, Plan, Point};
use crate::record::Step;
use crate::sequence::measure::{Measure, Paper, PaperItem};
use crate::sequence::replay::Recorded;
use crate::sequence::steps::{Task, TrialSequence};

/// The measurement of `[measure.loads]`: trials at fractions of the DUT's worst-case rate (median
/// of its worst-case searches).
pub struct LoadMeasure;

impl Measure for LoadMeasure {
    fn name(&self) -> &'static str {
        "load"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut else { return Vec::new() };
        let keys = plan.keys_of(dut);
        let Some(loads) = &keys.loads else { return Vec::new() };
        let name = dut.name();
        let of = |place: Cores| {
            let at = move |&share| {
                Point::Load(AtShare { dut: name.into(), place: place.clone(), share })
            };
            loads.shares.iter().map(at)
        };
        keys.places_at(loads.at.as_deref()).into_iter().flat_map(of).collect()
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        for dut in &plan.duts {
            let keys = plan.keys_of(dut);
            let Some(loads) = keys.loads.as_ref().filter(|loads| !loads.shares.is_empty()) else {
                continue;
            };
            if loads.transient >= loads.duration || loads.repeat == 0 {
                return Err(
                    "[measure.loads]: transient must be shorter than duration, and repeat at least 1"
                        .into(),
                );
            }
            if let Some(stray) = keys.unknown_placement(loads.at.as_deref()) {
                return Err(format!(
                    "[measure.loads] at: {stray} is not one of the cores and placements of {}",
                    dut.name()
                ));
            }
        }
        Ok(())
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        loads_of(plan, point)
            .map_or((0, Duration::ZERO), |l| (l.repeat, plan.takes(l.duration) * l.repeat))
    }

    fn sequence(&self, recorded: &Recorded<'_>, point: &Point) -> Option<TrialSequence> {
        let (Point::Load(at), loads) = (point, loads_of(recorded.plan, point)?) else {
            return None;
        };
        let rate = Qps((recorded.median_at(&at.dut, &at.place)? * at.share.fraction()) as u64);
        let retries = recorded.plan.search.invalid_retries;
        (rate.0 > 0).then(|| TrialSequence::Repeats(Repeats::new(rate, loads.repeat, retries)))
    }

    fn can_never_run(&self, recorded: &Recorded<'_>, point: &Point) -> bool {
        let Point::Load(at) = point else { return false };
        let worst = Point::Search(Conditions::worst_case(&at.dut, at.place.clone()));
        self.sequence(recorded, point).is_none() && recorded.is_complete(&worst)
    }

    fn restarts_servers(&self) -> bool {
        false
    }

    fn repeats_deaths(&self) -> bool {
        false
    }

    fn task(&self, plan: &Plan, step: &Step, mut base: TrialPlan) -> Task {
        if let Some(loads) = loads_of(plan, &step.point) {
            (base.duration, base.timeout) =
                (loads.duration.into(), plan.trial.timeout(loads.duration).into());
        }
        Task::Trial(Box::new(base))
    }

    fn paper_items(&self, _: &Plan, _: &Point) -> Vec<PaperItem> {
        vec![Paper::Benchmarking.has("Tables XIX-XXI")]
    }
}

pub(crate) fn loads_of(plan: &Plan, point: &Point) -> Option<Loads> {
    loads_for(plan, point.dut()?)
}

/// Returns the load settings of a DUT; `None` if the plan has no loads for this DUT.
pub fn loads_for(plan: &Plan, dut: &str) -> Option<Loads> {
    plan.keys_of(plan.dut(dut)?).loads
}
