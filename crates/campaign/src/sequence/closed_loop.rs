//! Closed loop: n threads with one query in flight each. An experiment queries 256 names, and its duration is measured,
//! as in dns64perf2 (G. Lencse: Performance Analysis of MTD64, our Tiny Multi-Threaded DNS64 Server Implementation:
//! Proof of Concept).

use std::time::Duration;

use method::set::Repeats;
use tester::client::experiments::NAMES;
use tester::measurer::plan::TrialPlan;
use units::Qps;

use crate::plan::{ClosedLoops, DutPlan, FIXED, Plan, Point, WithThreads};
use crate::record::Step;
use crate::sequence::measure::{Measure, Paper, PaperItem};
use crate::sequence::replay::Recorded;
use crate::sequence::steps::{BLOCK, LoopPlan, Task, TrialSequence};

/// Placeholder for the rate, because a closed loop has no rate.
const NO_RATE: Qps = Qps(1);
/// Assumed rate of a DUT with one thread, for time estimates; queries per second.
const ASSUMED: u64 = 4_000;

/// The measurement of `[measure.closed-loop]`: experiments in which each thread has one query in
/// flight.
pub struct ClosedLoopMeasure;

impl Measure for ClosedLoopMeasure {
    fn name(&self) -> &'static str {
        "closed loop"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut else { return Vec::new() };
        let keys = plan.keys_of(dut);
        let Some(loops) = &keys.closed_loop else { return Vec::new() };
        let governors: Vec<Option<String>> = match loops.governors.is_empty() {
            true => vec![None],
            false => loops.governors.iter().cloned().map(Some).collect(),
        };
        let mut points = Vec::new();
        for place in keys.places_or_first(loops.at.as_deref()) {
            for governor in &governors {
                let (place, governor) = (&place, governor.clone());
                let with = move |&threads| {
                    let (place, governor) = (place.clone(), governor.clone());
                    Point::ClosedLoop(WithThreads {
                        dut: dut.name().into(),
                        place,
                        threads,
                        governor,
                    })
                };
                points.extend(loops.threads.iter().map(with));
            }
        }
        points
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        for dut in &plan.duts {
            let keys = plan.keys_of(dut);
            let Some(loops) = &keys.closed_loop else { continue };
            let bad =
                loops.threads.iter().find(|threads| !threads.is_power_of_two() || **threads > 256);
            if let Some(threads) = bad {
                return Err(format!(
                    "[measure.closed-loop] threads: {threads} is not one of 1, 2, 4 … 256"
                ));
            }
            let is_word = |name: &String| {
                !name.is_empty()
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
            };
            if let Some(odd) = loops.governors.iter().find(|name| !is_word(name)) {
                return Err(format!(
                    "[measure.closed-loop] governors: {odd:?} is not the name of a frequency governor"
                ));
            }
            if !(1..=10).contains(&loops.blocks) || loops.repeat == 0 || loops.timeout.is_zero() {
                return Err(
                    "[measure.closed-loop]: blocks must be 1 to 10, and repeat and timeout above 0"
                        .into(),
                );
            }
            if let Some(stray) = keys.unknown_placement(loops.at.as_deref()) {
                let name = dut.name();
                return Err(format!(
                    "[measure.closed-loop] at: {stray} is not one of the cores and placements of {name}"
                ));
            }
        }
        Ok(())
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        let (Some(loops), Point::ClosedLoop(with)) = (loops_of(plan, point), point) else {
            return (0, Duration::ZERO);
        };
        let names = u64::from(BLOCK) * u64::from(loops.blocks) * NAMES;
        let each =
            Duration::from_secs(names / (ASSUMED * with.threads.min(8) as u64)) + plan.trial.pause;
        (loops.repeat, each * loops.repeat)
    }

    fn sequence(&self, recorded: &Recorded<'_>, point: &Point) -> Option<TrialSequence> {
        let loops = loops_of(recorded.plan, point)?;
        Some(TrialSequence::Repeats(Repeats::new(
            NO_RATE,
            loops.repeat,
            recorded.plan.search.invalid_retries,
        )))
    }

    fn restarts_servers(&self) -> bool {
        true
    }

    fn repeats_deaths(&self) -> bool {
        false
    }

    fn task(&self, plan: &Plan, step: &Step, base: TrialPlan) -> Task {
        let loops = loops_of(plan, &step.point).unwrap_or_default();
        let threads = if let Point::ClosedLoop(with) = &step.point { with.threads } else { 1 };
        Task::ClosedLoop(LoopPlan {
            server: base.server,
            threads,
            blocks: loops.blocks,
            timeout: loops.timeout,
            space: base.names.address(base.first_name).octets()[0],
            prefix: plan.trial.prefix,
            cpus: plan.cpus.tester.clone(),
        })
    }

    /// Returns the tables and figures of the paper on MTD64 to which this measurement point
    /// corresponds. The paper has separate tables for CPUs with and without dynamic frequency
    /// scaling.
    fn paper_items(&self, _: &Plan, point: &Point) -> Vec<PaperItem> {
        let what: &[&str] = match point.governor() {
            None | Some(FIXED) => &["Tables I-II", "Fig. 2"],
            Some(_) => &["Tables III-IV"],
        };
        what.iter().map(|what| Paper::Mtd64.has(what)).collect()
    }
}

fn loops_of(plan: &Plan, point: &Point) -> Option<ClosedLoops> {
    plan.keys_of(plan.dut(point.dut()?)?).closed_loop
}
