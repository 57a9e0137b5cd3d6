//! The searches of a point or of a plan, with either method.

use method::evidence::Deviation;
use method::mlr::goal::{Goal, GoalError};
use method::mlr::search::{GoalResult, Limits};
use method::mlr::set::MlrSet;
use method::narrow::Length;
use method::precision::{Figures, overstatement};
use method::records::Counts;
use method::search::{Found, Shortfall};
use method::set::{Due, LowerBound, Repeats, Set, SetPlan, lower_bounds};
use method::units::{Nanos, Qps};
use method::verdict::{Acceptance, Verdict};
use serde::{Deserialize, Serialize};
use tester::measurer::result::TrialResult;

use crate::plan::goal::distance;
use crate::plan::search_plan::Method;

/// Result for one goal of an MLRsearch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GoalFigures {
    /// The goal.
    pub goal: Goal,
    /// Statistics of the lower bounds, in queries per second.
    pub figures: Figures,
    /// Factor by which they may be overstated because replies after the end of the goal's trials
    /// count too; the interval's lower end is divided by it. 1: not overstated.
    pub overstatement: f64,
    /// Maximum distance of a search's bounds.
    pub resolution: Qps,
    /// Reasons why the DUT's limit may be higher; empty if there are none.
    pub lower_bound_reasons: Vec<LowerBound>,
    /// Result of each search.
    pub searches: Vec<GoalResult>,
}

/// Returns the distance of the passed and failed rates; `None` if one of them is missing.
fn apart(found: &Found) -> Option<Qps> {
    Some(Qps(found.failed?.0.saturating_sub(found.highest?.0)))
}

/// The searches and their progress.
#[derive(Clone, Debug)]
pub enum SearchSequence {
    /// Bisection of the range.
    Bisection(Box<Set>),
    /// MLRsearch in which trials of the length `full` count as full ones.
    MlrSearch {
        /// The searches.
        set: Box<MlrSet>,
        /// The trial length required by RFC 8219.
        full: Nanos,
    },
}

impl SearchSequence {
    /// Creates searches without trials; full trials last `full`.
    ///
    /// # Errors
    /// If a goal of an MLRsearch is invalid.
    pub fn new(plan: SetPlan, method: &Method, full: Nanos) -> Result<SearchSequence, GoalError> {
        let Method::MlrSearch(goals) = method else { return Ok(SearchSequence::bisection(plan)) };
        let range = plan.range;
        let limits =
            Limits { min: range.min, max: range.max, invalid_retries: range.invalid_retries };
        let set = Box::new(MlrSet::new(limits, goals.clone(), plan.repeat)?);
        Ok(SearchSequence::MlrSearch { set, full })
    }

    /// Creates bisections without trials.
    pub(crate) fn bisection(plan: SetPlan) -> SearchSequence {
        SearchSequence::Bisection(Box::new(Set::new(plan)))
    }

    /// Returns the next trial; `None` when all searches have ended.
    pub fn next(&self) -> Option<Due> {
        match self {
            SearchSequence::Bisection(set) => set.next(),
            SearchSequence::MlrSearch { set, full } => set.due().map(|(repeat, due)| Due {
                repeat,
                rate: due.rate,
                length: if due.duration == *full { Length::Full } else { Length::Of(due.duration) },
                bracket: due.bracket,
            }),
        }
    }

    /// Estimates the number of remaining trials; `None` if that is impossible.
    pub fn trials_left(&self) -> Option<u64> {
        match self {
            SearchSequence::Bisection(set) => Some(set.trials_left()),
            SearchSequence::MlrSearch { .. } => None,
        }
    }

    /// Returns the verdict of a trial for all goals. The trial was judged by the first goal only.
    /// It is invalid if the tester's own losses or a slow AuthDNS decide it for any goal, or if it
    /// deviates from the requested conditions.
    pub(crate) fn verdict_of(&self, trial: &TrialResult) -> Verdict {
        let in_doubt = self.goal_acceptances().any(|accept| trial.is_in_doubt(accept));
        if in_doubt || self.deviation_of(trial).is_some() {
            Verdict::Invalid
        } else {
            trial.verdict
        }
    }

    /// Returns the trial's deviation from the requested conditions, if the trial counts for any
    /// goal.
    pub(crate) fn deviation_of(&self, trial: &TrialResult) -> Option<Deviation> {
        let mut judged = self.goal_acceptances().map(|accept| trial.deviation_by(accept));
        trial.deviation.or_else(|| judged.find_map(|deviation| deviation))
    }

    /// Returns the acceptance criteria of the goals, if a trial is judged by more than its own.
    fn goal_acceptances(&self) -> impl Iterator<Item = Acceptance> {
        let goals = match self {
            SearchSequence::Bisection(_) => &[],
            SearchSequence::MlrSearch { set, .. } => set.goals(),
        };
        goals.iter().map(|goal| Acceptance(1.0 - goal.loss_ratio))
    }

    /// Records verdict and counts of the trial that was due.
    pub fn report(&mut self, verdict: Verdict, counts: &Counts) {
        match self {
            SearchSequence::Bisection(set) => set.report(verdict, counts),
            SearchSequence::MlrSearch { set, .. } => set.report(verdict, counts),
        }
    }

    /// Returns the result of each finished search for the goal of RFC 8219.
    pub fn found(&self) -> Vec<Found> {
        match self {
            SearchSequence::Bisection(set) => set.found().to_vec(),
            SearchSequence::MlrSearch { set, .. } => set.found(0),
        }
    }

    /// Returns the shortfall at the lowest failed rate, search by search.
    pub fn failed_by(&self) -> Vec<Option<Shortfall>> {
        match self {
            SearchSequence::Bisection(set) => set.failed_by().to_vec(),
            SearchSequence::MlrSearch { set, .. } => set.failed_by().to_vec(),
        }
    }

    /// Returns the distance of passed and failed rates: the `wanted` one, or the one reached if an
    /// MLRsearch found both rates.
    pub fn resolution(&self, wanted: Qps) -> Qps {
        match self {
            SearchSequence::Bisection(_) => wanted,
            SearchSequence::MlrSearch { set, .. } => {
                set.found(0).iter().filter_map(apart).max().unwrap_or(wanted)
            }
        }
    }

    /// Returns the results for each goal up to the rate `max`. All trials had this timeout, and a
    /// self-test validates up to `allowed`. Empty for a bisection, which has one goal.
    pub fn goals(&self, timeout: Nanos, max: Qps, allowed: Option<Qps>) -> Vec<GoalFigures> {
        let SearchSequence::MlrSearch { set, .. } = self else { return Vec::new() };
        let goals = set.results().first().map_or(0, Vec::len);
        let of = |at: usize| {
            let searches: Vec<GoalResult> =
                set.results().iter().map(|results| results[at]).collect();
            let goal = searches[0].goal;
            let overstatement = overstatement(goal.final_duration, timeout);
            let found = set.found(at);
            let wanted = distance(goal.width, max);
            let resolution = found.iter().filter_map(apart).max().unwrap_or(wanted);
            let figures = Figures::of(&found, overstatement, resolution).validated_to(allowed);
            let lower_bound_reasons = lower_bounds(&found, max, &figures, allowed);
            GoalFigures { goal, figures, overstatement, resolution, lower_bound_reasons, searches }
        };
        (0..goals).map(of).collect()
    }
}

/// The sequence of trials of a point.
#[derive(Clone, Debug)]
pub enum TrialSequence {
    /// Searches.
    Searches(SearchSequence),
    /// Repetitions at one rate.
    Repeats(Repeats),
}

impl TrialSequence {
    /// Returns the trial that is due; `None` when all are done.
    pub(crate) fn next(&self) -> Option<Due> {
        match self {
            TrialSequence::Searches(searches) => searches.next(),
            TrialSequence::Repeats(repeats) => repeats.next(),
        }
    }

    /// Records verdict and counts of the trial that was due.
    pub(crate) fn report(&mut self, verdict: Verdict, counts: &Counts) {
        match self {
            TrialSequence::Searches(searches) => searches.report(verdict, counts),
            TrialSequence::Repeats(repeats) => repeats.report(verdict),
        }
    }

    /// Returns the searches, if the point consists of searches.
    pub(crate) fn searches(&self) -> Option<&SearchSequence> {
        match self {
            TrialSequence::Searches(searches) => Some(searches),
            TrialSequence::Repeats(_) => None,
        }
    }
}
