//! The sequence of trials of a measurement point: searches, or repetitions at one rate. This module
//! also defines the tester's task in each trial.

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
    /// The goal of the search.
    pub goal: Goal,
    /// Statistics of the searches' lower bounds, in queries per second.
    pub figures: Figures,
    /// Largest factor by which short trials may overstate the lower bounds. Short trials overstate them, because
    /// replies that arrive after the end of sending also count. The lower end of the interval in `figures` has been
    /// divided by this factor. A factor of 1 means that the bounds are not overstated.
    pub overstatement: f64,
    /// Maximum distance between the two bounds of a search.
    pub resolution: Qps,
    /// Reasons why the highest passing rate of the DUT may be above the median; empty if there are
    /// none.
    pub lower_bound_reasons: Vec<LowerBound>,
    /// Result of each search.
    pub searches: Vec<GoalResult>,
}

/// Returns the distance between the highest passed and the lowest failed rate, or `None` if one of
/// the rates is missing.
fn apart(found: &Found) -> Option<Qps> {
    Some(Qps(found.failed?.0.saturating_sub(found.highest?.0)))
}

/// The searches of a measurement point, and their progress.
#[derive(Clone, Debug)]
pub enum SearchSequence {
    /// Searches by bisection of the range.
    Bisection(Box<Set>),
    /// Searches by MLRsearch. Trials of the length `full` count as full trials.
    MlrSearch {
        /// The searches.
        set: Box<MlrSet>,
        /// The trial length required by RFC 8219.
        full: Nanos,
    },
}

impl SearchSequence {
    /// Creates searches that have no trials yet. Full trials send queries for the time `full`.
    ///
    /// # Errors
    /// Returns an error if a goal of an MLRsearch is invalid.
    pub fn new(plan: SetPlan, method: &Method, full: Nanos) -> Result<SearchSequence, GoalError> {
        let Method::MlrSearch(goals) = method else { return Ok(SearchSequence::bisection(plan)) };
        let range = plan.range;
        let limits =
            Limits { min: range.min, max: range.max, invalid_retries: range.invalid_retries };
        let set = Box::new(MlrSet::new(limits, goals.clone(), plan.repeat)?);
        Ok(SearchSequence::MlrSearch { set, full })
    }

    /// Creates bisections that have no trials yet.
    pub(crate) fn bisection(plan: SetPlan) -> SearchSequence {
        SearchSequence::Bisection(Box::new(Set::new(plan)))
    }

    /// Returns the next trial, or `None` if all searches have ended.
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

    /// Estimates the number of remaining trials. Returns `None` for an MLRsearch, for which no
    /// estimate is possible.
    pub fn trials_left(&self) -> Option<u64> {
        match self {
            SearchSequence::Bisection(set) => Some(set.trials_left()),
            SearchSequence::MlrSearch { .. } => None,
        }
    }

    /// Returns the verdict of a trial for all goals. The verdict recorded with the trial applies only to the first
    /// goal. The trial is invalid in two cases:
    /// - The trial fails for a goal, but would pass without losses and delays that the tester or AuthDNS may have
    ///   caused.
    /// - The trial passes for a goal, but deviates from the requested conditions.
    pub(crate) fn verdict_of(&self, trial: &TrialResult) -> Verdict {
        let in_doubt = self.goal_acceptances().any(|accept| trial.is_in_doubt(accept));
        if in_doubt || self.deviation_of(trial).is_some() {
            Verdict::Invalid
        } else {
            trial.verdict
        }
    }

    /// Returns the trial's deviation from the requested conditions if the trial passes for at least
    /// one goal.
    pub(crate) fn deviation_of(&self, trial: &TrialResult) -> Option<Deviation> {
        let mut judged = self.goal_acceptances().map(|accept| trial.deviation_by(accept));
        trial.deviation.or_else(|| judged.find_map(|deviation| deviation))
    }

    /// Returns the acceptance criteria of the goals of an MLRsearch. The list is empty for a
    /// bisection, because a bisection uses only the criterion of its trials.
    fn goal_acceptances(&self) -> impl Iterator<Item = Acceptance> {
        let goals = match self {
            SearchSequence::Bisection(_) => &[],
            SearchSequence::MlrSearch { set, .. } => set.goals(),
        };
        goals.iter().map(|goal| Acceptance(1.0 - goal.loss_ratio))
    }

    /// Records the verdict and the counts of the trial that `next` returned.
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

    /// Returns the number of queries without a valid reply at the lowest failed rate of each
    /// search. `None` stands for a search without a failed rate.
    pub fn failed_by(&self) -> Vec<Option<Shortfall>> {
        match self {
            SearchSequence::Bisection(set) => set.failed_by().to_vec(),
            SearchSequence::MlrSearch { set, .. } => set.failed_by().to_vec(),
        }
    }

    /// Returns the distance between the highest passed and the lowest failed rate. For a bisection,
    /// the distance is `wanted`. For an MLRsearch, the distance is the largest that any search
    /// reached, or `wanted` if no search found both rates.
    pub fn resolution(&self, wanted: Qps) -> Qps {
        match self {
            SearchSequence::Bisection(_) => wanted,
            SearchSequence::MlrSearch { set, .. } => {
                set.found(0).iter().filter_map(apart).max().unwrap_or(wanted)
            }
        }
    }

    /// Returns the result for each goal of an MLRsearch; empty for a bisection. `max` is the
    /// highest rate of the range, `timeout` is the timeout of all trials, and `allowed` is the rate
    /// validated by the self-test.
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

/// The tester's task in a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Queries at a constant rate.
    Trial(Box<TrialPlan>),
    /// Closed loop: each thread waits for an answer before its next query.
    ClosedLoop(LoopPlan),
    /// Conformance checks.
    Conform(ConformPlan),
}

/// The sequence of trials of a measurement point.
#[derive(Clone, Debug)]
pub enum TrialSequence {
    /// Searches.
    Searches(SearchSequence),
    /// Repetitions at one rate.
    Repeats(Repeats),
}

impl TrialSequence {
    /// Returns the next trial, or `None` if all trials are done.
    pub(crate) fn next(&self) -> Option<Due> {
        match self {
            TrialSequence::Searches(searches) => searches.next(),
            TrialSequence::Repeats(repeats) => repeats.next(),
        }
    }

    /// Records the verdict and the counts of the trial that `next` returned.
    pub(crate) fn report(&mut self, verdict: Verdict, counts: &Counts) {
        match self {
            TrialSequence::Searches(searches) => searches.report(verdict, counts),
            TrialSequence::Repeats(repeats) => repeats.report(verdict),
        }
    }

    /// Returns the searches, or `None` if the measurement point does not consist of searches.
    pub(crate) fn searches(&self) -> Option<&SearchSequence> {
        match self {
            TrialSequence::Searches(searches) => Some(searches),
            TrialSequence::Repeats(_) => None,
        }
    }
}

/// Number of experiments in a block of a closed-loop trial. An experiment queries 256 names.
pub(super) const BLOCK: u32 = 256;

/// Settings of a trial in a closed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopPlan {
    /// Address and port of the DUT.
    pub server: SocketAddr,
    /// Number of threads, each with one query in flight.
    pub threads: usize,
    /// Number of blocks. A block has 256 experiments, each with 256 names.
    pub blocks: u8,
    /// Timeout of a query.
    pub timeout: Duration,
    /// First octet of the IPv4 addresses that are encoded in the queried names; the same for all
    /// names.
    pub space: u8,
    /// DNS64 prefix that the synthesized addresses must have.
    pub prefix: Prefix,
    /// CPUs of the tester; empty if any CPU may be used.
    pub cpus: Vec<usize>,
}

impl LoopPlan {
    /// Returns the number of names in a trial.
    pub(crate) fn names(&self) -> u64 {
        u64::from(BLOCK) * u64::from(self.blocks) * NAMES
    }

    /// Returns the command-line arguments of `dns64bench closed-loop` for this trial.
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
    /// Returns the number of experiments in a trial. An experiment queries 256 names.
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
    /// DNS64 prefixes that the DUT is configured with.
    pub prefixes: Vec<Prefix>,
    /// True if the DUT is configured for DNSSEC validation. `None` if this is unknown, in which
    /// case the checks detect it.
    pub validates: Option<bool>,
    /// Range of IPv6 addresses that the DUT is configured to exclude (RFC 6147 §5.1.4), in addition
    /// to ::ffff:0:0/96.
    pub excluded: Option<&'static str>,
    /// Ids of the checks to execute; empty for all checks.
    pub only: Vec<&'static str>,
}

/// The tester's access to AuthDNS's log of received queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarView {
    /// Address of AuthDNS's status socket: a path, or `ssh:HOST:PATH`.
    pub status: String,
    /// Configuration file for ssh; `None` for the user's own file.
    pub ssh_config: Option<PathBuf>,
}

impl ConformPlan {
    /// Returns the command-line arguments of `dns64bench conform` for these checks. If `view` is
    /// `None`, checks that depend on the DUT's upstream queries are skipped.
    pub fn arguments(&self, view: Option<FarView>) -> Vec<String> {
        // Each option and its value form a single argument, because a name may begin with a hyphen.
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
