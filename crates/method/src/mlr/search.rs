//! The search as a state machine without I/O: the next load and its duration, until every goal has its bounds.
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
//! Once a load has a trial, further trials follow at that load until the load is classified for the current target.
//! Every trial counts for all goals.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::goal::{Goal, GoalError};
use super::tally::{LoadClass, Trial, classify, conditional_throughput};
use crate::records::Counts;
use crate::verdict::Verdict;
use units::{Nanos, Qps};

/// Number of targets before the goal itself.
const STEPS: u32 = 2;

/// Range of rates of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Limits {
    /// Minimum rate in queries per second, at least 1.
    pub min: Qps,
    /// Maximum rate in queries per second.
    pub max: Qps,
    /// Maximum number of repetitions at one rate after invalid trials.
    pub invalid_retries: u32,
}

/// Next trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlrDue {
    /// Rate in queries per second.
    pub rate: Qps,
    /// Sending time.
    pub duration: Nanos,
    /// Index of the goal for which the trial runs.
    pub goal: usize,
    /// Relevant lower and upper bound of the goal's current target, if known.
    pub bracket: (Option<Qps>, Option<Qps>),
}

/// Result for one goal (RFC 9971, "Goal Result").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GoalResult {
    /// Goal of the search.
    pub goal: Goal,
    /// Highest lower bound below the upper bound; `None` if the lowest rate is already an upper bound.
    pub relevant_lower_bound: Option<Qps>,
    /// Lowest upper bound; `None` if the highest measurable rate is a lower bound.
    pub relevant_upper_bound: Option<Qps>,
    /// Valid replies per second at the lower bound.
    pub conditional_throughput: Option<f64>,
    /// Lowest rate that the tester could not measure, if such a rate ended the search.
    pub unmeasurable: Option<Qps>,
}

impl GoalResult {
    /// True if both bounds were found; otherwise RFC 9971 calls the result irregular.
    pub fn is_regular(&self) -> bool {
        self.relevant_lower_bound.is_some() && self.relevant_upper_bound.is_some()
    }
}

/// Lower and upper bound.
type Bounds = (Option<Qps>, Option<Qps>);

/// Load under test.
#[derive(Clone, Copy, Debug)]
struct Focus {
    due: MlrDue,
    stage: usize,
    retries: u32,
}

/// One search. Run each [`due`](MlrSearch::due) trial and report its verdict and counts, until there is a
/// [`result`](MlrSearch::result).
#[derive(Clone, Debug)]
pub struct MlrSearch {
    limits: Limits,
    /// Targets of each goal, widest first; the last target is the goal itself.
    goals: Vec<Vec<Goal>>,
    loads: BTreeMap<Qps, Vec<Trial>>,
    /// Lowest rate that the tester could not measure.
    unmeasurable: Option<Qps>,
    focus: Option<Focus>,
    /// Number of steps that the current stage has made away from its only bound.
    outward: u32,
}

impl MlrSearch {
    /// Creates a search for `goals` within `limits`.
    ///
    /// # Errors
    /// Returns an error if there is no goal, a goal is invalid, or the limits are empty.
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

    /// Records the verdict and counts of the trial that was [due](MlrSearch::due). Passed and failed trials are treated
    /// alike, because each goal defines its own tolerated loss.
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

    /// Returns the trials at each load.
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

    /// Selects the next trial. Targets are examined stage by stage, and the trial is for the first target that is not
    /// met.
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

    /// True if a target with these bounds needs no further load.
    fn is_met(&self, target: &Goal, (lower, upper): Bounds) -> bool {
        match (lower, self.ceiling(upper)) {
            (None, Some(above)) => above <= self.limits.min,
            (Some(lower), Some(above)) => target.is_met_by(lower, above),
            (Some(lower), None) => lower >= self.limits.max,
            (None, None) => false,
        }
    }

    /// Returns the load below which the search continues: the upper bound or the unmeasurable rate, if that is lower.
    fn ceiling(&self, upper: Option<Qps>) -> Option<Qps> {
        [upper, self.unmeasurable].into_iter().flatten().min()
    }

    /// Returns the load to try for a target that is not met.
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
            // The interval is narrow enough, but its bounds come from the stage before and need trials for this target.
            (Some(low), _) if Some(low) == hinted_lower => low,
            (_, Some(high)) if Some(high) == hinted_upper => high,
            (Some(low), _) => self.away(low, &target, Direction::Up),
            (None, Some(high)) => self.away(high, &target, Direction::Down),
            (None, None) => self.limits.max,
        }
    }

    /// Returns the bounds of the previous stage.
    fn hints(&self, goal: usize, stage: usize) -> Bounds {
        stage.checked_sub(1).map_or((None, None), |before| self.bounds(&self.goals[goal][before]))
    }

    /// Returns a load away from the only known bound; each step of a stage is twice as long as the previous one.
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

    /// Returns the valid replies per second of the best trial at a load, as an estimate of an overloaded DUT's limit.
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

/// Returns the geometric mean of two loads at least 2 apart. The rounded mean is strictly between the loads: the mean
/// is more than half a query per second above the lower load and at most their arithmetic mean.
fn middle(low: Qps, high: Qps) -> Qps {
    Qps((low.0 as f64 * high.0 as f64).sqrt().round() as u64)
}

#[cfg(test)]
mod tests;
