//! The searches of a point or of a plan, whichever way their rates are chosen.

use method::evidence::Deviation;
use method::mlr::goal::{Goal, GoalError};
use method::mlr::search::{GoalResult, Limits};
use method::mlr::set::MlrSet;
use method::narrow::Length;
use method::precision::{Figures, overstatement};
use method::records::Counts;
use method::search::{Found, Shortfall};
use method::set::{Due, LowerBound, Set, SetPlan, lower_bounds};
use method::units::{Nanos, Qps};
use method::verdict::{Acceptance, Verdict};
use serde::{Deserialize, Serialize};

use tester::measurer::result::TrialResult;

use crate::goal::distance;
use crate::search_plan::Method;

/// What was found for one goal of an MLRsearch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GoalFigures {
    /// The goal.
    pub goal: Goal,
    /// Median, interval and so on of the lower bounds, in queries per second.
    pub figures: Figures,
    /// By how much they may be overstated because replies after the end of the goal's trials count
    /// as well; the interval's lower end is divided by it. 1: not at all.
    pub overstatement: f64,
    /// How far the bounds of a search are apart, at the most.
    pub resolution: Qps,
    /// Why the DUT may do more; empty where nothing says that it may.
    pub lower_bound_reasons: Vec<LowerBound>,
    /// What each search found.
    pub searches: Vec<GoalResult>,
}

/// How far the rates that passed and failed are apart; `None` where one of them is missing.
fn apart(found: &Found) -> Option<Qps> {
    Some(Qps(found.failed?.0.saturating_sub(found.highest?.0)))
}

/// Where the searches stand.
#[derive(Clone, Debug)]
pub enum SearchCourse {
    /// Halving the range.
    Bisection(Box<Set>),
    /// MLRsearch, of which trials of the length `full` are full ones.
    MlrSearch {
        /// The searches.
        set: Box<MlrSet>,
        /// The length of trials as RFC 8219 wants them.
        full: Nanos,
    },
}

impl SearchCourse {
    /// Searches of which nothing is done; full trials last `full`.
    ///
    /// # Errors
    /// If a goal of an MLRsearch cannot be searched for.
    pub fn new(plan: SetPlan, method: &Method, full: Nanos) -> Result<SearchCourse, GoalError> {
        let Method::MlrSearch(goals) = method else { return Ok(SearchCourse::bisection(plan)) };
        let range = plan.range;
        let limits =
            Limits { min: range.min, max: range.max, invalid_retries: range.invalid_retries };
        let set = Box::new(MlrSet::new(limits, goals.clone(), plan.repeat)?);
        Ok(SearchCourse::MlrSearch { set, full })
    }

    /// Searches by halving of which nothing is done.
    pub(crate) fn bisection(plan: SetPlan) -> SearchCourse {
        SearchCourse::Bisection(Box::new(Set::new(plan)))
    }

    /// The trial to carry out next; `None` when all searches are over.
    pub fn next(&self) -> Option<Due> {
        match self {
            SearchCourse::Bisection(set) => set.next(),
            SearchCourse::MlrSearch { set, full } => set.due().map(|(repeat, due)| Due {
                repeat,
                rate: due.rate,
                length: if due.duration == *full { Length::Full } else { Length::Of(due.duration) },
                bracket: due.bracket,
            }),
        }
    }

    /// About how many trials are left; `None` where that cannot be known.
    pub fn trials_left(&self) -> Option<u64> {
        match self {
            SearchCourse::Bisection(set) => Some(set.trials_left()),
            SearchCourse::MlrSearch { .. } => None,
        }
    }

    /// What a trial says to all goals. Where the tester's own losses or a slow AuthDNS decide for any
    /// of them, or the DUT was not asked what the trial wanted, the trial is none: it was judged by
    /// the first goal alone.
    pub fn verdict_of(&self, trial: &TrialResult) -> Verdict {
        let in_doubt = self.accepted_besides().any(|accept| trial.is_in_doubt(accept));
        if in_doubt || self.deviation_of(trial).is_some() {
            Verdict::Invalid
        } else {
            trial.verdict
        }
    }

    /// In which way a trial that counts for any goal was not the one that was asked for.
    pub fn deviation_of(&self, trial: &TrialResult) -> Option<Deviation> {
        let mut judged = self.accepted_besides().map(|accept| trial.deviation_by(accept));
        trial.deviation.or_else(|| judged.find_map(|deviation| deviation))
    }

    /// The acceptances of the goals, where a trial is judged by more than its own.
    fn accepted_besides(&self) -> impl Iterator<Item = Acceptance> {
        let goals = match self {
            SearchCourse::Bisection(_) => &[],
            SearchCourse::MlrSearch { set, .. } => set.goals(),
        };
        goals.iter().map(|goal| Acceptance(1.0 - goal.loss_ratio))
    }

    /// Books verdict and counts of the trial that was due.
    pub fn report(&mut self, verdict: Verdict, counts: &Counts) {
        match self {
            SearchCourse::Bisection(set) => set.report(verdict, counts),
            SearchCourse::MlrSearch { set, .. } => set.report(verdict, counts),
        }
    }

    /// What each search that is over found for the goal of RFC 8219.
    pub fn found(&self) -> Vec<Found> {
        match self {
            SearchCourse::Bisection(set) => set.found().to_vec(),
            SearchCourse::MlrSearch { set, .. } => set.found(0),
        }
    }

    /// By how much the lowest rate that failed failed, search by search.
    pub fn failed_by(&self) -> Vec<Option<Shortfall>> {
        match self {
            SearchCourse::Bisection(set) => set.failed_by().to_vec(),
            SearchCourse::MlrSearch { set, .. } => set.failed_by().to_vec(),
        }
    }

    /// The distance of passed and failed rates: the one that was `wanted` or, of an MLRsearch of
    /// which a search has both, reached.
    pub fn resolution(&self, wanted: Qps) -> Qps {
        match self {
            SearchCourse::Bisection(_) => wanted,
            SearchCourse::MlrSearch { set, .. } => {
                set.found(0).iter().filter_map(apart).max().unwrap_or(wanted)
            }
        }
    }

    /// What was found for each goal up to the rate `max`, where trials all had this timeout and a
    /// self-test vouches up to `allowed`; empty for a bisection, which has one goal.
    pub fn goals(&self, timeout: Nanos, max: Qps, allowed: Option<Qps>) -> Vec<GoalFigures> {
        let SearchCourse::MlrSearch { set, .. } = self else { return Vec::new() };
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
