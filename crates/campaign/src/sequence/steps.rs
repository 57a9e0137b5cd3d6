//! The trials of a point, one by one: searches or repetitions at one rate, and the tester's task in each trial.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hosts::servers::CHECKED_ZONE;
use method::evidence::Deviation;
use method::mlr::goal::{Goal, GoalError};
use method::mlr::search::{GoalResult, Limits};
use method::mlr::set::MlrSet;
use method::narrow::Length;
use method::precision::{Figures, overstatement};
use method::records::Counts;
use method::search::{Found, Shortfall};
use method::set::{Due, LowerBound, Repeats, Set, SetPlan, lower_bounds};
use method::verdict::{Acceptance, Verdict};
use serde::{Deserialize, Serialize};
use tester::client::experiments::NAMES;
use tester::measurer::expect::Prefix;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use units::{Nanos, Qps};

use crate::plan::{Method, distance};

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

/// Settings of a closed-loop trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Queries at a rate.
    Trial(Box<TrialPlan>),
    /// Closed loop: each query follows the answer to the previous one.
    ClosedLoop(LoopPlan),
    /// Conformance checks.
    Conform(ConformPlan),
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

/// Experiments per block.
pub(super) const BLOCK: u32 = 256;

/// The tester's task in a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopPlan {
    /// Address and port of the DUT.
    pub server: SocketAddr,
    /// Threads, each with one query in flight.
    pub threads: usize,
    /// Blocks of 256 experiments.
    pub blocks: u8,
    /// Timeout of a query.
    pub timeout: Duration,
    /// First octet of all names.
    pub space: u8,
    /// DNS64 prefix that the addresses must have.
    pub prefix: Prefix,
    /// CPUs of the tester; empty: any.
    pub cpus: Vec<usize>,
}

impl LoopPlan {
    /// Returns the number of names in a trial.
    pub(crate) fn names(&self) -> u64 {
        u64::from(BLOCK) * u64::from(self.blocks) * NAMES
    }

    /// Returns the arguments of `dns64bench closed-loop`.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words: Vec<String> =
            ["closed-loop", "--json", "--quiet", "--liveness", "false", "--expect-prefix"]
                .map(str::to_owned)
                .into();
        words.push(self.prefix.to_string());
        if !self.cpus.is_empty() {
            let cpus: Vec<String> = self.cpus.iter().map(ToString::to_string).collect();
            words.extend(["--cpus".into(), cpus.join(",")]);
        }
        let timeout = self.timeout.as_secs_f64().to_string();
        words.push("--dns64perf2".into());
        words.extend([
            self.space.to_string(),
            self.blocks.to_string(),
            self.threads.to_string(),
            timeout,
        ]);
        words.extend([self.server.ip().to_string(), self.server.port().to_string()]);
        words
    }
}

impl LoopPlan {
    /// Returns the number of experiments in a trial.
    pub(crate) fn experiments(&self) -> usize {
        BLOCK as usize * usize::from(self.blocks)
    }
}

/// Settings of the conformance checks.
#[derive(Clone, Debug, PartialEq)]
pub struct ConformPlan {
    /// Address and port of the DUT.
    pub server: SocketAddr,
    /// Name of the DUT in the plan.
    pub name: String,
    /// The configured DNS64 prefixes.
    pub prefixes: Vec<Prefix>,
    /// True if configured to validate; `None` if unknown, in which case it is detected.
    pub validates: Option<bool>,
    /// The configured range of excluded IPv6 addresses, in addition to ::ffff:0:0/96.
    pub excluded: Option<&'static str>,
    /// Ids of the checks to execute; empty: all.
    pub only: Vec<&'static str>,
}

/// Access of the tester to the queries that AuthDNS received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarView {
    /// AuthDNS's status socket: a path, or `ssh:HOST:PATH`.
    pub status: String,
    /// Configuration file for ssh, if it is not the user's.
    pub ssh_config: Option<PathBuf>,
}

impl ConformPlan {
    /// Returns the arguments of `dns64bench conform`. Without a view, checks that depend on the
    /// DUT's upstream queries are skipped.
    pub fn arguments(&self, view: Option<FarView>) -> Vec<String> {
        // Option and value in one argument, because a name may begin with a hyphen.
        let mut words = vec!["conform".to_owned()];
        words.push(format!("--server={}", self.server));
        words.push(format!("--name={}", self.name));
        words.extend(self.prefixes.iter().map(|prefix| format!("--expect-prefix={prefix}")));
        words.push(format!("--zone={CHECKED_ZONE}"));
        words.extend(self.validates.map(|validates| format!("--validates={validates}")));
        words.extend(self.excluded.map(|range| format!("--excludes={range}")));
        if let Some(FarView { status, ssh_config }) = view {
            words.push(format!("--auth-status={status}"));
            words.extend(ssh_config.map(|file| format!("--ssh-config={}", file.display())));
        }
        if !self.only.is_empty() {
            words.push(format!("--only={}", self.only.join(",")));
        }
        words.extend(["--forwards-all", "--json", "--quiet"].map(str::to_owned));
        words
    }
}
