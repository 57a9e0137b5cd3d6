//! A set of searches of one server, as RFC 8219 §9.2 requires: repeated searches, statistics, and
//! the limit set by the self-test.

use std::time::Duration;

use method::compliance::{Facts, noncompliance_of};
use method::mlr::goal::GoalError;
use method::narrow::Length;
use method::noncompliance::Noncompliance;
use method::precision::Figures;
use method::search::{Found, Shortfall};
use method::set::{Due, LowerBound, lower_bounds};
use method::verdict::Verdict;
use serde::{Deserialize, Serialize};
use tester::measurer::TrialError;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use units::{Nanos, Qps};

use crate::journal::{Finished, Journal, JournalError, SearchEntry, Started};
use crate::plan::{Method, SearchPlan};
use crate::sequence::{GoalFigures, SearchSequence};

/// Result of a set of searches. Its JSON form is the output of `search --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SearchResult {
    /// Statistics of the results of all searches. Median, percentiles and interval are in queries
    /// per second. The relative range is in per cent.
    #[serde(flatten)]
    pub figures: Figures,
    /// Distance between the highest passed and the lowest failed rate at the end of a search. A median that is the mean
    /// of two different rates is rounded down to a multiple of a power of ten. This power of ten is the largest one
    /// that does not exceed the distance.
    pub resolution: Qps,
    /// Largest factor by which short trials may overstate the rates. Short trials overstate rates,
    /// because replies that arrive after the end of sending also count. The lower end of the
    /// interval is divided by this factor. A factor of 1 means that the rates are not overstated.
    pub overstatement: f64,
    /// The facts that determine the compliance with RFC 8219.
    pub facts: Facts,
    /// True if the searches comply with RFC 8219 §9.2.
    pub compliant: bool,
    /// Deviations from RFC 8219, including unknown facts. The JSON form has two lists:
    /// `noncompliance` contains each deviation as a sentence, and `noncompliance_causes` contains
    /// the data of each deviation.
    #[serde(flatten, with = "method::noncompliance::in_words")]
    #[schemars(with = "method::noncompliance::in_words::Written<'static>")]
    pub noncompliance: Vec<Noncompliance>,
    /// Facts that the user stated but that could not be verified.
    pub statements: Vec<String>,
    /// True if the highest passing rate of the DUT may be above the median.
    pub lower_bound: bool,
    /// Reasons why the highest passing rate of the DUT may be above the median; empty if there are
    /// none.
    pub lower_bound_reasons: Vec<LowerBound>,
    /// Rate up to which the self-test validates the tester; absent without a self-test.
    pub self_test_allows: Option<Qps>,
    /// The method that chose the rates.
    pub method: Method,
    /// Result of each search.
    pub repeats: Vec<Found>,
    /// Results of an MLRsearch for each goal, starting with the goal of RFC 8219. The other fields of this structure
    /// contain the result for the goal of RFC 8219. The list is empty for a bisection.
    pub goals: Vec<GoalFigures>,
    /// For each search, the number of queries without a valid reply at the lowest failed rate. An
    /// entry is absent if no rate failed.
    pub failed_by: Vec<Option<Shortfall>>,
    /// Number of invalid trials.
    pub invalid_trials: usize,
    /// All trials, in the order in which they ended.
    pub trials: Vec<TrialResult>,
    /// True if the user ended the searches early; absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

impl SearchResult {
    fn conclude(
        plan: &SearchPlan,
        sequence: &SearchSequence,
        trials: Vec<TrialResult>,
    ) -> Option<SearchResult> {
        let repeats = sequence.found();
        let overstatement = plan.overstatement();
        let allowed = plan.allowed();
        let resolution = sequence.resolution(plan.wanted_resolution());
        let figures = Figures::of(&repeats, overstatement, resolution).validated_to(allowed);
        let reasons = lower_bounds(&repeats, plan.range.max, &figures, allowed);
        let of = |trial| Facts {
            resolution: Some(resolution),
            // Searches that could not measure even the lowest rate do not count.
            repeats: Some(figures.n as u32),
            ..plan.facts(trial)
        };
        // A resumed set may use other send settings than before, so the facts of all trials are
        // taken into account. Trials that could not start have no send settings.
        let mut sent: Vec<_> = trials.iter().filter(|trial| trial.counts.sent > 0).collect();
        if sent.is_empty() {
            sent.extend(trials.first());
        }
        let all: Vec<Facts> = sent.into_iter().map(of).collect();
        // Facts of the trial with the most deviations, or of the first such trial if there are
        // several.
        let facts = *all.iter().rev().max_by_key(|facts| facts.noncompliance().len())?;
        let noncompliance = noncompliance_of(&all);
        Some(SearchResult {
            figures,
            resolution,
            overstatement,
            compliant: noncompliance.is_empty(),
            noncompliance,
            statements: facts.statements(),
            facts,
            lower_bound: !reasons.is_empty(),
            lower_bound_reasons: reasons,
            self_test_allows: allowed,
            method: plan.method.clone(),
            repeats,
            goals: sequence.goals(plan.trial.timeout, plan.range.max, allowed),
            failed_by: sequence.failed_by(),
            invalid_trials: trials.iter().filter(|t| t.verdict == Verdict::Invalid).count(),
            trials,
            interrupted: false,
        })
    }
}

/// Error that ended a set of searches.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// A trial could not be executed.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The goals are invalid.
    #[error(transparent)]
    Goal(#[from] GoalError),
    /// The journal contains a trial that does not follow from the earlier trials.
    #[error(
        "the journal has a trial at {found} queries/s in search {repeat}, but {expected:?} was due"
    )]
    Replay {
        /// Index of the search to which the trial belongs. The first search has index 0.
        repeat: u32,
        /// Rate of the trial in the journal, queries per second.
        found: Qps,
        /// Rate that the earlier trials require for this trial, queries per second; `None` if the earlier trials
        /// complete all searches.
        expected: Option<Qps>,
    },
    /// The block of names has too few unused names for one more trial.
    #[error("the names of {range} are used up; take {}--reuse-names", if range == "0.0.0.0/0" { "" } else { "a larger block such as --names 0.0.0.0/0, or " })]
    NamesUsedUp {
        /// The block of names, in the notation of `--names`.
        range: String,
        /// Result of the searches that were completed before the names were used up; `None` if no search was completed.
        found: Option<Box<SearchResult>>,
    },
}

/// Progress of a set of searches, for display.
#[derive(Clone, Copy, Debug)]
pub struct SearchProgress {
    /// Index of the search. The first search has index 0.
    pub repeat: u32,
    /// Total number of searches.
    pub of: u32,
    /// Rate of the next trial, queries per second.
    pub rate: Qps,
    /// Highest passed and lowest failed rate of this search so far; `None` if there is no such rate
    /// yet.
    pub bracket: (Option<Qps>, Option<Qps>),
    /// Number of the next trial in the set of searches. The first trial has number 1. Invalid
    /// trials are included in the count.
    pub number: u64,
    /// Forecast of the remaining trials. `None` for an MLRsearch, because the number of its trials
    /// depends on their results.
    pub forecast: Option<Forecast>,
}

/// Forecast of a set of searches.
#[derive(Clone, Copy, Debug)]
pub struct Forecast {
    /// Estimated total number of trials: the trials executed so far, plus the remaining trials. The
    /// number of remaining trials is estimated by [`method::set::Set::trials_left`].
    pub trials: u64,
    /// Estimated time from the start of the next trial to the end of the set of searches, including
    /// pauses.
    pub left: Duration,
}

impl SearchProgress {
    /// Returns this progress with a forecast for `left` remaining trials, including the next trial.
    /// If `left` is `None`, there is no forecast. `each` is the duration of a trial.
    pub fn with_trials_left(self, left: Option<u64>, each: Duration) -> SearchProgress {
        let forecast = |left: u64| Forecast {
            trials: self.number - 1 + left,
            left: each.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)),
        };
        SearchProgress { forecast: left.map(forecast), ..self }
    }
}

/// Interface through which a set of searches executes its trials and reports its progress.
pub trait Runner {
    /// Executes one trial.
    ///
    /// # Errors
    /// Returns an error if the trial cannot be executed.
    fn trial(
        &mut self,
        plan: &TrialPlan,
        standing: SearchProgress,
    ) -> Result<TrialResult, TrialError>;
    /// Examines the first trial of the set of searches. The result of this trial may come from the journal.
    ///
    /// # Errors
    /// Returns an error if the trial shows that the server is misconfigured. The set of searches
    /// then ends.
    fn first(&mut self, _plan: &TrialPlan, _trial: &TrialResult) -> Result<(), TrialError> {
        Ok(())
    }
    /// Receives the result of each new trial.
    fn finished(&mut self, trial: &TrialResult);
    /// Waits between two trials. `standing` is the progress before the next trial.
    fn pause(&mut self, pause: Duration, standing: SearchProgress);
}

/// Starts or continues a set of searches. `done` contains the journal's entries, and is empty for a
/// new set.
///
/// # Errors
/// Returns an error if a trial cannot be executed, the journal cannot be written, or the names are
/// used up.
pub fn run(
    plan: &SearchPlan,
    journal: &mut Journal,
    done: Vec<SearchEntry>,
    runner: &mut dyn Runner,
) -> Result<Option<SearchResult>, SearchError> {
    let mut names_until = plan.trial.first_name;
    let mut replay = Vec::new();
    for entry in done {
        match entry {
            SearchEntry::Started(started) => {
                names_until = names_until.max(started.first_name + started.names);
            }
            SearchEntry::Finished(finished) => replay.push(*finished),
            SearchEntry::Plan(_) => {}
        }
    }
    let mut replay = replay.into_iter();
    let mut sequence = SearchSequence::new(plan.set(), &plan.method, plan.trial.duration)?;
    let mut trials = Vec::new();
    while let Some(due) = sequence.next() {
        let Due { repeat, rate, .. } = due;
        let duration = match due.length {
            Length::Of(duration) => duration,
            Length::Full | Length::Probe => plan.trial.duration,
        };
        let trial = match replay.next() {
            Some(finished) if is_of(&finished, (repeat, rate, duration)) => finished.trial,
            Some(finished) => {
                return Err(SearchError::Replay {
                    repeat,
                    found: finished.trial.rate,
                    expected: Some(rate),
                });
            }
            None => {
                let standing = SearchProgress {
                    repeat,
                    of: plan.repeat,
                    rate,
                    bracket: due.bracket,
                    number: trials.len() as u64 + 1,
                    forecast: None,
                }
                .with_trials_left(sequence.trials_left(), plan.each());
                if !trials.is_empty() {
                    runner.pause(plan.pause, standing);
                }
                let trial = new_trial(plan, standing, duration, &mut names_until, journal, runner)?;
                let Some(trial) = trial else {
                    let found = SearchResult::conclude(plan, &sequence, trials);
                    let found = found.filter(|found| !found.repeats.is_empty()).map(Box::new);
                    let range = plan.trial.names.to_string();
                    return Err(SearchError::NamesUsedUp { range, found });
                };
                runner.finished(&trial);
                trial
            }
        };
        if trials.is_empty() {
            runner.first(&plan.trial_at(rate, plan.trial.first_name), &trial)?;
        }
        sequence.report(sequence.verdict_of(&trial), &trial.counts);
        trials.push(trial);
    }
    if let Some(finished) = replay.next() {
        return Err(SearchError::Replay {
            repeat: finished.repeat,
            found: finished.trial.rate,
            expected: None,
        });
    }
    Ok(SearchResult::conclude(plan, &sequence, trials))
}

/// Returns the result of an interrupted set of searches, or `None` if no trial has ended. `done`
/// contains the journal's entries.
///
/// # Errors
/// Returns an error if the goals are invalid.
pub fn interrupted(
    plan: &SearchPlan,
    done: Vec<SearchEntry>,
) -> Result<Option<SearchResult>, SearchError> {
    let mut sequence = SearchSequence::new(plan.set(), &plan.method, plan.trial.duration)?;
    let mut trials = Vec::new();
    for entry in done {
        let SearchEntry::Finished(finished) = entry else { continue };
        if sequence.next().is_none() {
            break;
        }
        sequence.report(sequence.verdict_of(&finished.trial), &finished.trial.counts);
        trials.push(finished.trial);
    }
    let found = SearchResult::conclude(plan, &sequence, trials);
    Ok(found.map(|found| SearchResult { interrupted: true, ..found }))
}

/// True if a finished trial matches the trial `due`: search, rate and duration must be the same.
fn is_of(finished: &Finished, due: (u32, Qps, Nanos)) -> bool {
    let trial = &finished.trial;
    (finished.repeat, trial.rate, trial.facts.duration) == due
}

/// Executes a trial and records it in the journal. Returns `None` if there are too few unused
/// names.
fn new_trial(
    plan: &SearchPlan,
    standing: SearchProgress,
    duration: Nanos,
    names_until: &mut u64,
    journal: &mut Journal,
    runner: &mut dyn Runner,
) -> Result<Option<TrialResult>, SearchError> {
    let of_its_length =
        |first_name| TrialPlan { duration, ..plan.trial_at(standing.rate, first_name) };
    let needed = of_its_length(0).names_needed();
    let first = plan.trial.first_name;
    // Positions of names are taken modulo the size of the block. Trials may therefore start in the
    // middle of the block and continue at its beginning.
    if *names_until - first + needed > plan.trial.names.count() {
        if !plan.reuse_names {
            return Ok(None);
        }
        *names_until = first;
    }
    let trial = of_its_length(*names_until);
    let started = Started {
        repeat: standing.repeat,
        rate: standing.rate,
        first_name: *names_until,
        names: needed,
    };
    *names_until += needed;
    journal.append(&SearchEntry::Started(started))?;
    let trial = runner.trial(&trial, standing)?;
    journal.append(&SearchEntry::Finished(Box::new(Finished {
        repeat: standing.repeat,
        trial: trial.clone(),
    })))?;
    Ok(Some(trial))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use method::evidence::UpstreamQueries;
    use method::mlr::goal::Goal;
    use method::precision::Interval;
    use method::records::Counts;
    use method::search::SearchRange;
    use tester::authdns::auth_delta::AuthDelta;

    use crate::plan::PassedSelfTest;

    use super::*;

    fn plan(repeat: u32) -> SearchPlan {
        let mut trial = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1));
        trial.duration = Nanos::SECOND;
        SearchPlan {
            trial,
            range: SearchRange {
                min: Qps(10),
                max: Qps(1000),
                resolution: Qps(1),
                invalid_retries: 2,
            },
            repeat,
            pause: Duration::ZERO,
            reuse_names: false,
            self_test: Some(PassedSelfTest {
                passed: Qps(1100),
                delta: 0.1,
                compliant: false,
                sent: None,
            }),
            method: Method::Bisection,
        }
    }

    fn result(plan: &TrialPlan, passes: bool) -> TrialResult {
        let lost = u64::from(!passes);
        TrialResult::simulated(
            plan,
            Counts { sent: 100, valid: 100 - lost, lost, ..Counts::default() },
        )
    }

    /// A simulated DUT that passes at rates up to `capacity`. After `lives` trials, the tester dies
    /// as if by kill -9.
    struct Simulated {
        capacity: u64,
        lives: usize,
        asked: Vec<(Qps, u64, u64)>,
    }

    impl Runner for Simulated {
        fn trial(
            &mut self,
            plan: &TrialPlan,
            _: SearchProgress,
        ) -> Result<TrialResult, TrialError> {
            self.asked.push((plan.rate, plan.first_name, plan.names_needed()));
            if self.asked.len() > self.lives {
                return Err(TrialError::Thread { source: std::io::Error::other("killed") });
            }
            Ok(result(plan, plan.rate.0 <= self.capacity))
        }
        fn finished(&mut self, _: &TrialResult) {}
        fn pause(&mut self, _: Duration, _: SearchProgress) {}
    }

    fn simulated(capacity: u64, lives: usize) -> Simulated {
        Simulated { capacity, lives, asked: Vec::new() }
    }

    fn whole(
        path: &Path,
        plan: &SearchPlan,
        capacity: u64,
    ) -> (SearchResult, Vec<(Qps, u64, u64)>) {
        let mut dut = simulated(capacity, usize::MAX);
        let mut journal = Journal::create(path, plan).unwrap();
        (run(plan, &mut journal, vec![], &mut dut).unwrap().unwrap(), dut.asked)
    }

    #[test]
    fn trials_take_disjoint_names() {
        let folder = tempfile::tempdir().unwrap();
        let (_, asked) = whole(&folder.path().join("j"), &plan(3), 300);
        for pair in asked.windows(2) {
            assert_eq!(pair[0].1 + pair[0].2, pair[1].1);
        }
    }

    #[test]
    fn a_result_above_the_self_tests_limit_is_a_lower_bound() {
        let folder = tempfile::tempdir().unwrap();
        let (found, _) = whole(&folder.path().join("a"), &plan(3), 400);
        assert_eq!(
            (found.figures.median, found.lower_bound, found.self_test_allows),
            (Some(400.0), false, Some(Qps(500)))
        );
        let (found, _) = whole(&folder.path().join("b"), &plan(3), 600);
        assert_eq!(
            (found.figures.median, found.lower_bound),
            (Some(600.0), true),
            "{:?}",
            found.lower_bound_reasons
        );
        let (found, _) = whole(&folder.path().join("c"), &plan(1), 5);
        assert_eq!((found.figures.median, found.repeats[0].highest), (None, None));
        let json = serde_json::to_value(&found).unwrap();
        for key in ["median", "min", "max", "p1", "p99", "dispersion_pct"] {
            assert!(json[key].is_null(), "{key}: {}", json[key]);
        }
        assert_eq!((json["n"].as_u64(), json["without_pass"].as_u64()), (Some(1), Some(1)));
        let shortfall = found.failed_by[0].unwrap();
        assert_eq!((shortfall.rate, shortfall.missing, shortfall.of), (Qps(10), 1, 100));
        assert_eq!(found.figures.interval, Interval { from: None, to: Some(10.0) });
    }

    /// The DUT passes at a rate of 400 and fails at 401. The self-test validates the tester up to
    /// 400, so the tester may have caused the failure.
    #[test]
    fn a_failure_above_the_self_tests_limit_bounds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = plan(1);
        plan.self_test.as_mut().unwrap().passed = Qps(880);
        let (found, _) = whole(&folder.path().join("a"), &plan, 400);
        assert_eq!(found.self_test_allows, Some(Qps(400)));
        // The lower end is half of the rate: trials send for one second, and replies count for one
        // more second.
        assert_eq!(found.figures.interval, Interval { from: Some(200.0), to: None });
        assert!(found.lower_bound, "{:?}", found.lower_bound_reasons);
    }

    /// Runner that makes the trials of all searches invalid, except those of the first `self.0`
    /// searches.
    struct InvalidLater(u32);

    impl Runner for InvalidLater {
        fn trial(
            &mut self,
            plan: &TrialPlan,
            at: SearchProgress,
        ) -> Result<TrialResult, TrialError> {
            let mut trial = result(plan, plan.rate.0 <= 300);
            if at.repeat >= self.0 {
                trial.verdict = Verdict::Invalid;
            }
            Ok(trial)
        }
        fn finished(&mut self, _: &TrialResult) {}
        fn pause(&mut self, _: Duration, _: SearchProgress) {}
    }

    #[test]
    fn searches_without_a_result_do_not_comply() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(20);
        let searched = |sound: u32| {
            let mut journal =
                Journal::create(&folder.path().join(sound.to_string()), &plan).unwrap();
            run(&plan, &mut journal, vec![], &mut InvalidLater(sound)).unwrap().unwrap()
        };
        let few = |found: &SearchResult| {
            found
                .noncompliance
                .iter()
                .any(|point| matches!(point, Noncompliance::FewSearches { searches: 3 }))
        };
        let found = searched(3);
        assert!(found.figures.n == 3 && few(&found), "{:?}", found.noncompliance);
        assert!(!few(&searched(20)));
    }

    /// Returns an MLRsearch with two goals: no loss, and at most 0.5 % loss.
    fn with_two_goals() -> (SearchPlan, SearchSequence) {
        let goals = [0.0, 0.005]
            .map(|loss_ratio| Goal { loss_ratio, ..Goal::rfc8219(Nanos::SECOND, 0.01) });
        let plan = SearchPlan { method: Method::MlrSearch(goals.into()), ..plan(1) };
        let sequence = SearchSequence::new(plan.set(), &plan.method, plan.trial.duration).unwrap();
        (plan, sequence)
    }

    /// The tester may have lost 12 of the 15 missing replies. Without this loss, the trial would
    /// still fail the first goal, but would pass the second goal.
    #[test]
    fn possible_tester_losses_count_against_no_goal() {
        let (plan, sequence) = with_two_goals();
        let counts = Counts { sent: 1000, valid: 985, lost: 15, ..Counts::default() };
        let mut trial = TrialResult::simulated(&plan.trial, counts);
        assert_eq!(sequence.verdict_of(&trial), Verdict::Failed);
        trial.tester_drops_at.missed = Some(12);
        assert_eq!(sequence.verdict_of(&trial), Verdict::Invalid);
        trial.tester_drops_at.missed = Some(5);
        assert_eq!(sequence.verdict_of(&trial), Verdict::Failed);
        let halving = SearchSequence::new(plan.set(), &Method::Bisection, plan.trial.duration);
        trial.tester_drops_at.missed = Some(12);
        assert_eq!(halving.unwrap().verdict_of(&trial), Verdict::Failed);
    }

    #[test]
    fn a_set_is_as_compliant_as_its_least_compliant_trial() {
        let plan = plan(20);
        let sequence = SearchSequence::new(plan.set(), &plan.method, plan.trial.duration).unwrap();
        let of = |sent, over_ipv6| {
            let counts = Counts { sent, valid: sent, ..Counts::default() };
            let mut trial = TrialResult::simulated(&plan.trial, counts);
            trial.set_facts(Facts { over_ipv6, ..trial.facts });
            trial
        };
        let is_over_ipv4 = |trials| {
            let found = SearchResult::conclude(&plan, &sequence, trials).unwrap();
            let points = &found.noncompliance;
            let count = points.iter().filter(|p| **p == Noncompliance::OverIpv4).count();
            assert_eq!((count, count == 1), (count, !found.facts.over_ipv6));
            count == 1
        };
        assert!(!is_over_ipv4(vec![of(9, true), of(9, true)]));
        assert!(is_over_ipv4(vec![of(9, true), of(9, false), of(9, false)]));
        // The first trial could not start.
        assert!(!is_over_ipv4(vec![of(0, false), of(9, true)]));
        assert!(is_over_ipv4(vec![of(0, false)]));
    }

    /// A trial with one lost query fails the first goal, even without a deviation, and would pass
    /// the second goal. If the DUT sent too few upstream queries, the DUT may have answered from
    /// its cache, and the trial is invalid.
    #[test]
    fn deviating_trials_count_for_no_goal() {
        let (plan, sequence) = with_two_goals();
        let of = |lost, asked| {
            let counts = Counts { sent: 1000, valid: 1000 - lost, lost, ..Counts::default() };
            let mut trial = TrialResult::simulated(&plan.trial, counts);
            let asked = UpstreamQueries { aaaa: asked, a: asked, ..UpstreamQueries::default() };
            let part = AuthDelta { asked, ..AuthDelta::default() };
            trial.apply_auth(part, plan.trial.auth_limit, plan.trial.subject);
            trial
        };
        assert_eq!(sequence.verdict_of(&of(1, 1000)), Verdict::Failed);
        let cached = of(1, 900);
        assert_eq!(cached.verdict, Verdict::Failed);
        assert_eq!(sequence.verdict_of(&cached), Verdict::Invalid);
        assert!(sequence.deviation_of(&cached).is_some());
        // This trial fails both goals, so its deviation does not matter: an overloaded DUT sends
        // fewer upstream queries.
        assert_eq!(sequence.verdict_of(&of(6, 900)), Verdict::Failed);
    }

    /// Opens a journal, and retries while it is locked. A child process that a different test has just forked holds the
    /// lock until the child calls exec.
    fn reopened(path: &Path) -> Result<(Journal, SearchPlan, Vec<SearchEntry>), JournalError> {
        loop {
            match Journal::open(path) {
                Err(JournalError::Busy { .. }) => std::thread::yield_now(),
                other => return other,
            }
        }
    }

    #[test]
    fn a_search_killed_anywhere_resumes_exactly() {
        let folder = tempfile::tempdir().unwrap();
        let (expected, all) = whole(&folder.path().join("whole"), &plan(2), 300);
        for lives in 0..all.len() {
            let path = folder.path().join(lives.to_string());
            let mut first = simulated(300, lives);
            let mut journal = Journal::create(&path, &plan(2)).unwrap();
            run(&plan(2), &mut journal, vec![], &mut first).unwrap_err();
            drop(journal);
            let (mut journal, read, done) = reopened(&path).unwrap();
            assert_eq!(read, plan(2));
            let mut second = simulated(300, usize::MAX);
            let found = run(&read, &mut journal, done, &mut second).unwrap().unwrap();
            assert_eq!(
                (found.figures, found.failed_by),
                (expected.figures, expected.failed_by.clone())
            );
            let rates = |asked: &[(Qps, u64, u64)]| asked.iter().map(|a| a.0).collect::<Vec<_>>();
            // Only the killed trial is repeated, and the repetition uses new names.
            let mut both = rates(&first.asked[..lives]);
            both.extend(rates(&second.asked));
            assert_eq!(both, rates(&all));
            let killed = first.asked[lives];
            assert!(
                second.asked[0].1 >= killed.1 + killed.2,
                "names of the killed trial are used again"
            );
        }
    }

    #[test]
    fn a_journal_cut_at_any_byte_is_read_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        whole(&path, &plan(1), 300);
        let bytes = std::fs::read(&path).unwrap();
        let lines = |b: &[u8]| b.iter().filter(|&&c| c == b'\n').count();
        for cut in (0..bytes.len()).step_by(7) {
            // Each cut uses a separate file, because a child process that another test has just
            // forked may still hold the lock on the previous file.
            let path = folder.path().join(format!("cut-{cut}"));
            std::fs::write(&path, &bytes[..cut]).unwrap();
            match reopened(&path) {
                Ok((_, _, entries)) => assert_eq!(entries.len() + 1, lines(&bytes[..cut])),
                Err(error) => assert_eq!(lines(&bytes[..cut]), 0, "{error}"),
            }
        }
    }

    #[test]
    fn a_journal_is_locked_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let open = Journal::create(&path, &plan(1)).unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::Busy { .. })));
        drop(open);
        assert!(matches!(Journal::create(&path, &plan(1)), Err(JournalError::Io { .. })));
    }

    #[test]
    fn names_are_not_reused_unless_asked_to() {
        let folder = tempfile::tempdir().unwrap();
        let mut small = plan(1);
        small.trial.names = "10.0.0.0/22".parse().unwrap();
        let mut journal = Journal::create(&folder.path().join("a"), &small).unwrap();
        let error = run(&small, &mut journal, vec![], &mut simulated(300, usize::MAX)).unwrap_err();
        assert!(matches!(error, SearchError::NamesUsedUp { found: None, .. }), "{error}");
        // The block has names for only one of two searches. The result of this search is returned.
        let mut two = plan(2);
        two.trial.names = "10.0.0.0/19".parse().unwrap();
        let mut journal = Journal::create(&folder.path().join("c"), &two).unwrap();
        let error = run(&two, &mut journal, vec![], &mut simulated(300, usize::MAX)).unwrap_err();
        let SearchError::NamesUsedUp { found: Some(found), .. } = error else { panic!("{error}") };
        assert_eq!((found.repeats.len(), found.figures.median), (1, Some(300.0)));
        small.reuse_names = true;
        let mut journal = Journal::create(&folder.path().join("b"), &small).unwrap();
        let found =
            run(&small, &mut journal, vec![], &mut simulated(300, usize::MAX)).unwrap().unwrap();
        assert!(!found.compliant && found.figures.median == Some(300.0));
    }
}
