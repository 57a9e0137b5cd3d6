//! The searches of a plan, whichever way their rates are chosen.

use method::mlr::goal::{Goal, GoalError};
use method::mlr::search::{GoalResult, Limits};
use method::mlr::set::MlrSet;
use method::precision::Figures;
use method::search::{Found, Shortfall};
use method::set::Set;
use method::units::{Nanos, Qps};
use serde::{Deserialize, Serialize};
use tester::measurer::result::TrialResult;

use crate::search_plan::{Method, SearchPlan};

/// The trial that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueTrial {
    /// Of which search, from 0.
    pub(super) repeat: u32,
    pub(super) rate: Qps,
    pub(super) duration: Nanos,
    pub(super) bracket: (Option<Qps>, Option<Qps>),
}

/// What was found for one goal of an MLRsearch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GoalFigures {
    /// The goal.
    pub goal: Goal,
    /// Median, interval and so on of the lower bounds, in queries per second.
    pub figures: Figures,
    /// What each search found.
    pub searches: Vec<GoalResult>,
}

/// Where the searches stand.
pub(super) enum SearchCourse {
    Bisection { set: Box<Set>, duration: Nanos },
    MlrSearch(Box<MlrSet>),
}

impl SearchCourse {
    pub(super) fn new(plan: &SearchPlan) -> Result<SearchCourse, GoalError> {
        Ok(match &plan.method {
            Method::Bisection => SearchCourse::Bisection {
                set: Box::new(Set::new(plan.set())),
                duration: plan.trial.duration,
            },
            Method::MlrSearch(goals) => {
                let range = plan.range;
                let limits = Limits {
                    min: range.min,
                    max: range.max,
                    invalid_retries: range.invalid_retries,
                };
                SearchCourse::MlrSearch(Box::new(MlrSet::new(limits, goals.clone(), plan.repeat)?))
            }
        })
    }

    /// The trial to carry out next; `None` when all searches are over.
    pub(super) fn next(&self) -> Option<DueTrial> {
        match self {
            SearchCourse::Bisection { set, duration } => set.next().map(|due| DueTrial {
                repeat: due.repeat,
                rate: due.rate,
                duration: *duration,
                bracket: due.bracket,
            }),
            SearchCourse::MlrSearch(set) => set.due().map(|(repeat, due)| DueTrial {
                repeat,
                rate: due.rate,
                duration: due.duration,
                bracket: due.bracket,
            }),
        }
    }

    /// About how many trials are left; `None` where that cannot be known.
    pub(super) fn trials_left(&self) -> Option<u64> {
        match self {
            SearchCourse::Bisection { set, .. } => Some(set.trials_left()),
            SearchCourse::MlrSearch(_) => None,
        }
    }

    pub(super) fn report(&mut self, trial: &TrialResult) {
        match self {
            SearchCourse::Bisection { set, .. } => set.report(trial.verdict, &trial.counts),
            SearchCourse::MlrSearch(set) => set.report(trial.verdict, &trial.counts),
        }
    }

    /// What each search found for the goal of RFC 8219.
    pub(super) fn found(&self) -> Vec<Found> {
        match self {
            SearchCourse::Bisection { set, .. } => set.found().to_vec(),
            SearchCourse::MlrSearch(set) => set.found(0),
        }
    }

    pub(super) fn failed_by(&self) -> Vec<Option<Shortfall>> {
        match self {
            SearchCourse::Bisection { set, .. } => set.failed_by().to_vec(),
            SearchCourse::MlrSearch(set) => set.failed_by().to_vec(),
        }
    }

    /// The distance of passed and failed rates that was wanted or, of an MLRsearch, reached.
    pub(super) fn resolution(&self, plan: &SearchPlan) -> Qps {
        let distance = |found: &Found| Some(Qps(found.failed?.0.saturating_sub(found.highest?.0)));
        match self {
            SearchCourse::Bisection { .. } => plan.range.resolution,
            SearchCourse::MlrSearch(set) => {
                set.found(0).iter().filter_map(distance).max().unwrap_or(Qps(1))
            }
        }
    }

    /// What was found for each goal; empty for a bisection, which has one.
    pub(super) fn goals(&self, overstatement: f64) -> Vec<GoalFigures> {
        let SearchCourse::MlrSearch(set) = self else { return Vec::new() };
        let goals = set.results().first().map_or(0, Vec::len);
        let of = |at: usize| {
            let searches: Vec<GoalResult> =
                set.results().iter().map(|results| results[at]).collect();
            GoalFigures {
                goal: searches[0].goal,
                figures: Figures::of(&set.found(at), overstatement),
                searches,
            }
        };
        (0..goals).map(of).collect()
    }
}
