//! MLRsearch as a state machine without I/O. It returns the load and the duration of the next trial, until the bounds
//! for every goal are known.
//!
//! Each goal is searched in stages. The *target* of a stage is an easier version of the goal, with a wider interval and
//! shorter trials. The target of the last stage is the goal itself.
//!
//! ```text
//! stage 0 of every goal ─► stage 1 of every goal ─► … ─► the goals themselves
//!    │
//!    ├─ no bound known:         the highest rate, then the rate of valid replies in that trial
//!    ├─ bounds of the stage before: their middle, then the lower bound, then the upper bound
//!    ├─ one bound only:         away from this bound, in steps that double
//!    └─ both, but too far apart: their geometric mean
//! ```
//!
//! After the first trial at a load, further trials follow at the same load, until the load is classified for the
//! current target. Every trial counts for all goals.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::goal::{Goal, GoalError};
use super::tally::{LoadClass, Trial, classify, conditional_throughput};
use crate::records::Counts;
use crate::verdict::Verdict;
use units::{Nanos, Qps};

/// Number of easier targets that precede each goal.
const STEPS: u32 = 2;

/// Rates that a search may try, and the maximum number of repetitions of an invalid trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Limits {
    /// Minimum rate in queries per second, at least 1.
    pub min: Qps,
    /// Maximum rate in queries per second.
    pub max: Qps,
    /// Maximum number of repetitions of invalid trials at one rate.
    pub invalid_retries: u32,
}

/// The next trial to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlrDue {
    /// Rate in queries per second.
    pub rate: Qps,
    /// Time for which queries are sent.
    pub duration: Nanos,
    /// Index of the goal for which the trial runs.
    pub goal: usize,
    /// The relevant lower bound and the relevant upper bound (terms of RFC 9971) for the current target of the goal, if
    /// known.
    pub bracket: (Option<Qps>, Option<Qps>),
}

/// Result for one goal (RFC 9971, "Goal Result").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GoalResult {
    /// Goal of the search.
    pub goal: Goal,
    /// Highest lower bound that is below the upper bound; `None` if even the lowest rate is an upper bound.
    pub relevant_lower_bound: Option<Qps>,
    /// Lowest upper bound; `None` if the highest measurable rate is a lower bound.
    pub relevant_upper_bound: Option<Qps>,
    /// Valid replies per second at the lower bound.
    pub conditional_throughput: Option<f64>,
    /// Lowest rate that the tester could not measure, if such a rate ended the search; otherwise absent.
    pub unmeasurable: Option<Qps>,
}

impl GoalResult {
    /// True if both bounds were found. Otherwise RFC 9971 calls the result irregular.
    pub fn is_regular(&self) -> bool {
        self.relevant_lower_bound.is_some() && self.relevant_upper_bound.is_some()
    }
}

/// Relevant lower and upper bound for a target; each is `None` if it is unknown.
type Bounds = (Option<Qps>, Option<Qps>);

/// Load at which trials are currently run.
#[derive(Clone, Copy, Debug)]
struct Focus {
    due: MlrDue,
    stage: usize,
    retries: u32,
}

/// One MLRsearch. Run the trial that [`due`](MlrSearch::due) returns, and pass its verdict and counts to
/// [`report`](MlrSearch::report), until there is a [`result`](MlrSearch::result).
#[derive(Clone, Debug)]
pub struct MlrSearch {
    limits: Limits,
    /// For each goal, its targets in order of decreasing width. The last target is the goal itself.
    goals: Vec<Vec<Goal>>,
    loads: BTreeMap<Qps, Vec<Trial>>,
    /// Lowest rate that the tester could not measure.
    unmeasurable: Option<Qps>,
    focus: Option<Focus>,
    /// Number of steps that the search has made for the current target, away from the only known bound.
    outward: u32,
}

impl MlrSearch {
    /// Creates a search for the given goals, at rates within `limits`.
    ///
    /// # Errors
    /// Returns an error if there is no goal, if a goal is invalid, or if the range of rates is empty.
    pub fn new(limits: Limits, goals: &[Goal]) -> Result<MlrSearch, GoalError> {
        if goals.is_empty() {
            return Err(GoalError::NoGoal);
        }
        if limits.min.0 == 0 || limits.min > limits.max {
            return Err(GoalError::Range { min: limits.min, max: limits.max });
        }
        for goal in goals {
            goal.validate()?;
        }
        let goals = goals.iter().map(|goal| goal.targets(STEPS)).collect();
        let loads = BTreeMap::new();
        let mut search =
            MlrSearch { limits, goals, loads, unmeasurable: None, focus: None, outward: 0 };
        search.choose();
        Ok(search)
    }

    /// Returns the next trial, or `None` once the search is over.
    pub fn due(&self) -> Option<MlrDue> {
        self.focus.map(|focus| focus.due)
    }

    /// Records the verdict and the counts of the trial returned by [`due`](MlrSearch::due). Passed and failed trials
    /// are treated alike, because each goal defines its own tolerated loss.
    pub fn report(&mut self, verdict: Verdict, counts: &Counts) {
        let Some(mut focus) = self.focus else { return };
        if verdict == Verdict::Invalid {
            focus.retries += 1;
            if focus.retries <= self.limits.invalid_retries {
                self.focus = Some(focus);
                return;
            }
            self.unmeasurable =
                Some(self.unmeasurable.map_or(focus.due.rate, |u| u.min(focus.due.rate)));
        } else {
            self.loads
                .entry(focus.due.rate)
                .or_default()
                .push(Trial::of(focus.due.duration, counts));
            let target = &self.goals[focus.due.goal][focus.stage];
            if classify(target, &self.loads[&focus.due.rate]) == LoadClass::Undecided {
                self.focus = Some(Focus { retries: 0, ..focus });
                return;
            }
        }
        self.choose();
    }

    /// Returns the result for each goal, or `None` while the search is running.
    pub fn result(&self) -> Option<Vec<GoalResult>> {
        if self.focus.is_some() {
            return None;
        }
        let result = |targets: &Vec<Goal>| {
            let goal = targets[STEPS as usize];
            let (lower, upper) = self.bounds(&goal);
            let conditional =
                lower.map(|load| conditional_throughput(&goal, load, &self.loads[&load]));
            // If there is an upper bound below the unmeasurable rate, the upper bound ended the search.
            let unmeasurable =
                self.unmeasurable.filter(|blocked| upper.is_none_or(|upper| *blocked < upper));
            GoalResult {
                goal,
                relevant_lower_bound: lower,
                relevant_upper_bound: upper,
                conditional_throughput: conditional,
                unmeasurable,
            }
        };
        Some(self.goals.iter().map(result).collect())
    }

    /// Returns all trials, grouped by load.
    pub fn loads(&self) -> &BTreeMap<Qps, Vec<Trial>> {
        &self.loads
    }

    /// Returns the relevant lower and upper bound for `target`.
    fn bounds(&self, target: &Goal) -> Bounds {
        let mut lower = None;
        for (&load, trials) in &self.loads {
            match classify(target, trials) {
                LoadClass::Lower => lower = Some(load),
                LoadClass::Upper => return (lower, Some(load)),
                LoadClass::Undecided => {}
            }
        }
        (lower, None)
    }

    /// Selects the next trial. The targets of all goals are examined stage by stage, and the next trial is for the
    /// first target that is not reached yet.
    fn choose(&mut self) {
        let last = self.focus.map(|focus| (focus.stage, focus.due.goal));
        for stage in 0..=STEPS as usize {
            for goal in 0..self.goals.len() {
                let target = self.goals[goal][stage];
                let bracket = self.bounds(&target);
                if self.is_met(&target, bracket) {
                    continue;
                }
                if last != Some((stage, goal)) {
                    self.outward = 0;
                }
                let rate = self.candidate(goal, stage, bracket);
                let due = MlrDue { rate, duration: target.final_duration, goal, bracket };
                self.focus = Some(Focus { due, stage, retries: 0 });
                return;
            }
        }
        self.focus = None;
    }

    /// True if the bounds are sufficient for the target, so that no further load needs to be tried.
    fn is_met(&self, target: &Goal, (lower, upper): Bounds) -> bool {
        match (lower, self.ceiling(upper)) {
            (None, Some(above)) => above <= self.limits.min,
            (Some(lower), Some(above)) => target.is_met_by(lower, above),
            (Some(lower), None) => lower >= self.limits.max,
            (None, None) => false,
        }
    }

    /// Returns the load below which the search continues. This is the lower of two loads: the upper bound, and the
    /// lowest rate that the tester could not measure.
    fn ceiling(&self, upper: Option<Qps>) -> Option<Qps> {
        [upper, self.unmeasurable].into_iter().flatten().min()
    }

    /// Returns the next load to try for a target that is not reached yet.
    fn candidate(&mut self, goal: usize, stage: usize, (lower, upper): Bounds) -> Qps {
        let target = self.goals[goal][stage];
        let above = self.ceiling(upper);
        let is_between = |load: &Qps| {
            lower.is_none_or(|lower| *load > lower) && above.is_none_or(|above| *load < above)
        };
        let (hinted_lower, hinted_upper) = self.hints(goal, stage);
        let hinted_lower = hinted_lower.filter(is_between);
        let hinted_upper = hinted_upper.filter(is_between);
        let (low, high) = (hinted_lower.or(lower), hinted_upper.or(above));
        match (low, high) {
            (Some(low), Some(high)) if !target.is_met_by(low, high) => middle(low, high),
            // The interval is narrow enough, but its bounds come from the previous stage. For this target, both bounds
            // still need trials.
            (Some(low), _) if Some(low) == hinted_lower => low,
            (_, Some(high)) if Some(high) == hinted_upper => high,
            (Some(low), _) => self.away(low, &target, Direction::Up),
            (None, Some(high)) => self.away(high, &target, Direction::Down),
            (None, None) => self.limits.max,
        }
    }

    /// Returns the bounds for the target that precedes target `stage` of a goal. These bounds suggest the first loads
    /// to try for target `stage`.
    fn hints(&self, goal: usize, stage: usize) -> Bounds {
        stage.checked_sub(1).map_or((None, None), |before| self.bounds(&self.goals[goal][before]))
    }

    /// Called while only one bound is known: returns a load above or below this bound. Each further step away from the
    /// bound is twice as long as the step before it.
    fn away(&mut self, from: Qps, target: &Goal, direction: Direction) -> Qps {
        let steps = f64::from(1u32 << self.outward.min(20));
        self.outward += 1;
        let factor = (1.0 - target.width).powf(steps);
        let rate = match direction {
            Direction::Up => from.0 as f64 / factor,
            Direction::Down => {
                (from.0 as f64 * factor).min(self.replies_at(from).unwrap_or(f64::INFINITY))
            }
        };
        let rate = match direction {
            // A step is at least one query per second.
            Direction::Up => (rate as u64).max(from.0 + 1),
            Direction::Down => rate as u64,
        };
        Qps(rate).clamp(self.limits.min, self.limits.max)
    }

    /// Returns the rate of valid replies in the trial with the lowest loss at a load. If the DUT was overloaded, this
    /// rate is an estimate of its maximum rate.
    fn replies_at(&self, load: Qps) -> Option<f64> {
        let best = self.loads.get(&load)?.iter().map(Trial::loss_ratio).min_by(f64::total_cmp)?;
        Some(load.0 as f64 * (1.0 - best))
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Up,
    Down,
}

/// Returns the geometric mean of two loads that differ by at least 2, rounded. The result is always strictly between
/// the two loads: the exact mean is more than half a query per second above the lower load, and at most the arithmetic
/// mean.
fn middle(low: Qps, high: Qps) -> Qps {
    Qps((low.0 as f64 * high.0 as f64).sqrt().round() as u64)
}

#[cfg(test)]
mod tests;
