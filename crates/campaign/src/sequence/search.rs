//! Searches for the highest rate at which a DUT passes (RFC 8219 §9.2). The searches cover every CPU placement, lower
//! acceptance ratios, several cache hit rates, and several AAAA record rates (fractions of names that have AAAA
//! records).

use std::time::Duration;

use method::mlr::goal::Goal;
use method::narrow::Length;
use method::search::SearchRange;
use method::set::SetPlan;
use method::verdict::Acceptance;
use tester::measurer::plan::TrialPlan;
use units::{Nanos, Qps, Share};

use crate::plan::{Conditions, DutPlan, Method, Plan, Point, WIDTH};
use crate::record::Step;
use crate::sequence::measure::{Measure, Paper, PaperItem};
use crate::sequence::replay::Recorded;
use crate::sequence::steps::{SearchSequence, Task, TrialSequence};

/// The basic measurement of every DUT: searches for the highest rate that passes (RFC 8219 §9.2).
pub struct SearchMeasure;

impl Measure for SearchMeasure {
    fn name(&self) -> &'static str {
        "search"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut else { return Vec::new() };
        let keys = plan.keys_of(dut);
        let worst = |place| Conditions::worst_case(dut.name(), place);
        let mut all: Vec<Conditions> = keys.places().into_iter().map(worst).collect();
        for &accept in &keys.acceptance {
            let places = keys.places_at(keys.acceptance_at.as_deref());
            all.extend(places.into_iter().map(|place| Conditions { accept, ..worst(place) }));
        }
        for place in keys.share_places() {
            let with =
                |aaaa: Share, cached: Share| Conditions { aaaa, cached, ..worst(place.clone()) };
            all.extend(keys.aaaa_shares.iter().map(|&aaaa| with(aaaa, Share::ZERO)));
            all.extend(keys.cached_shares.iter().map(|&cached| with(Share::ZERO, cached)));
            for &aaaa in keys.aaaa_shares.iter().filter(|_| keys.table) {
                all.extend(keys.cached_shares.iter().map(|&cached| with(aaaa, cached)));
            }
        }
        all.into_iter().map(Point::Search).collect()
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        let search = &plan.search;
        check_range("search", (search.min, search.max), search.resolution, search.repeat)?;
        check_method(plan)?;
        for dut in &plan.duts {
            if dut.max.is_some_and(|max| max < search.min) {
                return Err(format!("[[dut]] {}: max is below min in [search]", dut.name()));
            }
            if dut.resolution == Some(Qps(0)) {
                return Err(format!("[[dut]] {}: resolution must be at least 1", dut.name()));
            }
            let keys = plan.keys_of(dut);
            if let Some(ratio) =
                keys.acceptance.iter().find(|&&ratio| !(ratio > 0.0 && ratio < 1.0))
            {
                return Err(format!(
                    "[measure] acceptance: {ratio} is not between 0 and 1; 1 is always measured"
                ));
            }
        }
        Ok(())
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        let set = set_of(plan, point);
        if let (Some(set), Some(Method::MlrSearch(goals))) = (&set, method_of(plan, point)) {
            return mlr_effort(plan, set, &goals);
        }
        let probe = plan.search.probe.map(|probe| plan.takes(probe));
        set.map_or((0, Duration::ZERO), |set| effort(&set, plan.takes(plan.trial.duration), probe))
    }

    fn sequence(&self, recorded: &Recorded<'_>, point: &Point) -> Option<TrialSequence> {
        let plan = recorded.plan;
        let (set, method) = (set_of(plan, point)?, method_of(plan, point)?);
        // `check_method` already rejected invalid goals when the plan was read.
        SearchSequence::new(set, &method, plan.trial.duration.into())
            .ok()
            .map(TrialSequence::Searches)
    }

    fn restarts_servers(&self) -> bool {
        true
    }

    fn task(&self, plan: &Plan, step: &Step, mut base: TrialPlan) -> Task {
        match (step.length, plan.search.probe) {
            (Length::Of(duration), _) => base.duration = duration,
            (Length::Probe, Some(probe)) => base.duration = probe.into(),
            _ => {}
        }
        if let Point::Search(c) = &step.point {
            (base.aaaa_share, base.cached_share, base.accept) =
                (c.aaaa, c.cached, Acceptance(c.accept));
        }
        Task::Trial(Box::new(base))
    }

    fn paper_items(&self, plan: &Plan, point: &Point) -> Vec<PaperItem> {
        let Point::Search(c) = point else { return Vec::new() };
        let is_mtd64 =
            plan.dut(&c.dut).is_some_and(|dut| dut.driver == hosts::servers::Dut::Mtd64Ng);
        let shares =
            plan.dut(&c.dut).map(|dut| plan.keys_of(dut).share_places()).unwrap_or_default();
        let paper = |what| Paper::Benchmarking.has(what);
        let mut all = Vec::new();
        let plain = (c.aaaa, c.cached) == (Share::ZERO, Share::ZERO);
        match (&c.place.placement, plain, c.accept >= 1.0) {
            (None, true, true) if is_mtd64 => all.push(paper("Table III")),
            (None, true, true) => all.push(paper("Tables V-VII")),
            (None, true, false) => all.push(paper("Tables VIII-X")),
            (Some(_), true, true) => all.push(paper("Table XI")),
            (Some(_), true, false) => all.push(paper("Table XII")),
            _ => {}
        }
        let keys = plan.dut(&c.dut).map(|dut| plan.keys_of(dut)).unwrap_or_default();
        let swept = c.accept >= 1.0 && shares.contains(&c.place) && !is_mtd64;
        if swept && c.cached == Share::ZERO && !keys.aaaa_shares.is_empty() {
            all.push(paper("Tables XIII-XV"));
        }
        if swept && c.aaaa == Share::ZERO && !keys.cached_shares.is_empty() {
            all.push(paper("Tables XVI-XVIII"));
        }
        // The first row of the following tables is the worst case, at the full rate.
        let loads = keys.loads.as_ref().filter(|loads| !loads.shares.is_empty());
        if c.is_worst_case()
            && loads.is_some_and(|loads| keys.places_at(loads.at.as_deref()).contains(&c.place))
        {
            all.push(paper("Tables XIX-XXI"));
        }
        all
    }
}

/// Returns the number and the range of the searches of a measurement point, or `None` if the point
/// does not consist of searches.
fn set_of(plan: &Plan, point: &Point) -> Option<SetPlan> {
    let Point::Search(conditions) = point else { return None };
    let range = plan.range(plan.dut(&conditions.dut)?);
    let s = &plan.search;
    Some(SetPlan { range, repeat: s.repeat, probes: s.probe.is_some() })
}

/// Returns the search method of a measurement point, or `None` if the point does not consist of
/// searches.
fn method_of(plan: &Plan, point: &Point) -> Option<Method> {
    let Point::Search(conditions) = point else { return None };
    Some(plan.search.method_for(plan.trial.duration, conditions.accept))
}

/// Rejects invalid goals, and keys that do not belong to the selected search method.
fn check_method(plan: &Plan) -> Result<(), String> {
    let search = &plan.search;
    let Method::MlrSearch(goals) = search.method_for(plan.trial.duration, 1.0) else {
        return match search.goals.is_empty() && search.width == WIDTH {
            true => Ok(()),
            false => Err(
                "[search]: width and goals are for method = \"mlrsearch\"; a bisection has only \
                          the goal of RFC 8219, and resolution"
                    .into(),
            ),
        };
    };
    let duts = || plan.duts.iter();
    if search.resolution != Qps(1) || duts().any(|dut| dut.resolution.is_some()) {
        return Err(
            "[search]: resolution is for method = \"bisection\"; for mlrsearch use width, such as \
                    width = 0.005"
                .into(),
        );
    }
    if search.min.0 == 0 {
        return Err("[search]: min of an mlrsearch must be at least 1".into());
    }
    if search.probe.is_some() {
        return Err("[search]: probe is for method = \"bisection\"; an mlrsearch has its own \
                    short trials"
            .into());
    }
    goals
        .iter()
        .try_for_each(|goal| goal.validate().map_err(|why| format!("[search] goals: {why}")))
}

/// Estimates the number and the total duration of the trials of an MLRsearch. For each goal, short trials first halve
/// the range repeatedly, until its two bounds are close together. Trials of full length then decide on these bounds.
fn mlr_effort(plan: &Plan, set: &SetPlan, goals: &[Goal]) -> (u32, Duration) {
    let span = set.range.max.0 / set.range.min.0.max(1);
    let short = u64::from(span.max(1).ilog2()) + 4;
    let timeout = plan.trial.timeout(plan.trial.duration);
    let of = |goal: &Goal| {
        let decisive = 2 * goal.duration_sum.0.div_ceil(goal.final_duration.0.max(1));
        let time = |trials: u64, length: Nanos| {
            // Short trials wait for late replies as long as full trials do.
            let each = Duration::from(length) + timeout + plan.trial.pause;
            each.saturating_mul(u32::try_from(trials).unwrap_or(u32::MAX))
        };
        let took =
            time(short, goal.initial_duration).saturating_add(time(decisive, goal.final_duration));
        (u32::try_from(short + decisive).unwrap_or(u32::MAX), took)
    };
    let (trials, time) = goals.iter().map(of).fold((0_u32, Duration::ZERO), |sum, one| {
        (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
    });
    (trials.saturating_mul(set.repeat), time.saturating_mul(set.repeat))
}

/// Checks the keys `min`, `max`, `resolution` and `repeat` of a table of the plan.
///
/// # Errors
/// Returns an error if a key is invalid. The message names the key.
pub(super) fn check_range(
    table: &str,
    (min, max): (Qps, Qps),
    resolution: Qps,
    repeat: u32,
) -> Result<(), String> {
    if min > max {
        return Err(format!("[{table}] min: {min} is above max, which is {max}"));
    }
    let zeros = [("resolution", resolution == Qps(0)), ("repeat", repeat == 0)];
    match zeros.into_iter().find(|(_, is_zero)| *is_zero) {
        Some((key, _)) => Err(format!("[{table}] {key} must be at least 1, not 0")),
        None => Ok(()),
    }
}

/// Returns the maximum number of trials of a set of searches, and their total duration. The
/// durations of a full trial and of a probe are `full` and `probe`.
pub(super) fn effort(set: &SetPlan, full: Duration, probe: Option<Duration>) -> (u32, Duration) {
    let SearchRange { min, max, resolution, .. } = set.range;
    let steps = ((max.0 - min.0) / resolution.0.max(1)).max(1).ilog2() + 3;
    // About half of the steps fail. With probes, a step that fails ends after the probe.
    let (trials, one) = match probe {
        Some(probe) => (steps * 3 / 2 + 1, probe * steps + full * (steps / 2 + 1)),
        None => (steps, full * steps),
    };
    (trials * set.repeat, one * set.repeat)
}
