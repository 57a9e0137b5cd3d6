//! A sequence of trials as a state machine without I/O. It returns the next trial and receives the verdict on this
//! trial, until all trials are done.
//!
//! ```text
//! Set      search 1 ─► search 2 ─► … ─► search n          each a [`NarrowedSearch`]; result, missing replies of each
//! Repeats  trial 1 ─► trial 2 ─► … ─► trial n             all at one rate; an invalid trial is repeated
//! ```
//!
//! The same code determines the sequence of trials in three cases: trials are run, an interrupted run is continued from
//! its journal, or results are computed from a journal. The sequence is therefore the same in all cases.

use serde::{Deserialize, Serialize};

use crate::narrow::{Length, NarrowedSearch};
use crate::precision::Figures;
use crate::records::Counts;
use crate::search::{Found, SearchRange, Shortfall};
use crate::verdict::Verdict;
use units::Qps;

/// Number and parameters of the searches to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SetPlan {
    /// Rate range of each search.
    pub range: SearchRange,
    /// Number of searches, at least 1.
    pub repeat: u32,
    /// True if a short trial precedes each full-length trial.
    pub probes: bool,
}

/// The next trial to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Index of the search, or of the repetition if all trials have the same rate.
    pub repeat: u32,
    /// Rate in queries per second.
    pub rate: Qps,
    /// Length of the trial: a short probe or a full trial.
    pub length: Length,
    /// Highest passed rate and lowest failed rate of the current search; each is `None` if it is unknown.
    pub bracket: (Option<Qps>, Option<Qps>),
}

/// Reason why the DUT may be faster than the median of a set of searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LowerBound {
    /// At least one search passed at the highest rate of the range.
    RangeEnd {
        /// Number of searches that passed at the highest rate.
        searches: usize,
        /// Total number of searches.
        of: usize,
        /// The highest rate of the range, in queries per second.
        max: Qps,
    },
    /// At least one search ended because the tester could not measure a higher rate.
    Unmeasurable {
        /// Number of searches that ended because the tester could not measure a higher rate.
        searches: usize,
        /// Total number of searches.
        of: usize,
    },
    /// The median or a failed rate is above the rate up to which the self-test validates the tester.
    SelfTest {
        /// Rate up to which the self-test validates the tester.
        allowed: Qps,
    },
}

/// Several searches, one after the other. Run the trial that [`next`](Set::next) returns, and pass its verdict and
/// counts to [`report`](Set::report). Repeat this until no trial is left.
#[derive(Clone, Debug)]
pub struct Set {
    plan: SetPlan,
    search: NarrowedSearch,
    repeat: u32,
    /// Failed trials of the current search.
    failed: Vec<(Length, Shortfall)>,
    found: Vec<Found>,
    failed_by: Vec<Option<Shortfall>>,
}

impl Set {
    /// Creates the searches of a plan; no trial has been run yet.
    ///
    /// # Panics
    /// Panics if the range is empty; see [`crate::search::Search::new`].
    pub fn new(plan: SetPlan) -> Set {
        let search = NarrowedSearch::new(plan.range, plan.probes);
        Set {
            plan,
            search,
            repeat: 0,
            failed: Vec::new(),
            found: Vec::new(),
            failed_by: Vec::new(),
        }
    }

    /// Returns the next trial, or `None` once all searches are over.
    pub fn next(&self) -> Option<Due> {
        if self.repeat >= self.plan.repeat {
            return None;
        }
        let (rate, length) = self.search.next()?;
        Some(Due { repeat: self.repeat, rate, length, bracket: self.search.bracket() })
    }

    /// Records the verdict and the counts of the trial returned by [`next`](Set::next).
    pub fn report(&mut self, verdict: Verdict, counts: &Counts) {
        let Some(due) = self.next() else { return };
        if verdict == Verdict::Failed {
            self.failed.push((due.length, Shortfall::of(due.rate, counts)));
        }
        self.search.report(verdict);
        let Some(found) = self.search.result() else { return };
        self.failed_by.push(shortfall(&self.failed, &found));
        self.found.push(found);
        self.failed.clear();
        self.repeat += 1;
        self.search = NarrowedSearch::new(self.plan.range, self.plan.probes);
    }

    /// Estimates the number of remaining trials, including the next trial. The estimate assumes that the DUT's maximum
    /// rate is the result of the last search. For the first search, it assumes the middle of the range that is still
    /// open. No trial is assumed to be invalid. The estimate is valid for searches without probes, because their number
    /// of trials hardly depends on the rate.
    pub fn trials_left(&self) -> u64 {
        let Some(due) = self.next() else { return 0 };
        let capacity = match (self.found.last(), due.bracket) {
            (Some(found), _) => found.highest.unwrap_or(Qps(0)),
            (None, (passed, failed)) => {
                let SearchRange { min, max, .. } = self.plan.range;
                Qps(u64::midpoint(passed.unwrap_or(min).0, failed.unwrap_or(max).0))
            }
        };
        let mut set = self.clone();
        let mut trials = 0;
        while let Some(due) = set.next() {
            let verdict = if due.rate <= capacity { Verdict::Passed } else { Verdict::Failed };
            set.report(verdict, &Counts::default());
            trials += 1;
        }
        trials
    }

    /// Returns the results of the finished searches.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// For each search, returns the number of missing replies at the lowest failed rate; `None` if no rate failed.
    pub fn failed_by(&self) -> &[Option<Shortfall>] {
        &self.failed_by
    }

    /// Returns the reasons why the DUT may be faster than the median in `figures` (see [`lower_bounds`]). `figures`
    /// must be computed from the results of these searches.
    pub fn lower_bounds(&self, figures: &Figures, allowed: Option<Qps>) -> Vec<LowerBound> {
        lower_bounds(&self.found, self.plan.range.max, figures, allowed)
    }
}

/// Returns the reasons why the DUT may be faster than the median of the searches. `found` contains the results of the
/// searches, and `figures` their statistics. There are three possible reasons:
///
/// - A search ended at `max`, the end of the range.
/// - A search ended at a rate that the tester could not measure.
/// - The median or a failed rate is above `allowed`, the rate up to which a self-test validates the tester.
///
/// The list is empty if no search has a result (n = 0).
pub fn lower_bounds(
    found: &[Found],
    max: Qps,
    figures: &Figures,
    allowed: Option<Qps>,
) -> Vec<LowerBound> {
    if figures.n == 0 {
        return Vec::new();
    }
    let of = found.len();
    let count = |is: fn(&&Found) -> bool| found.iter().filter(is).count();
    let open = count(|f| f.lower_bound && f.unmeasurable.is_none());
    let blocked = count(|f| f.unmeasurable.is_some());
    let above = allowed.filter(|allowed| {
        figures.median.is_some_and(|median| median > allowed.0 as f64)
            || found.iter().any(|f| f.failed.is_some_and(|failed| failed > *allowed))
    });
    let open = (open > 0).then_some(LowerBound::RangeEnd { searches: open, of, max });
    let blocked = (blocked > 0).then_some(LowerBound::Unmeasurable { searches: blocked, of });
    let above = above.map(|allowed| LowerBound::SelfTest { allowed });
    open.into_iter().chain(blocked).chain(above).collect()
}

/// Returns the smallest of the highest passed rates. Returns `None` if there are no searches, or if a search found no
/// passing rate.
pub fn smallest_pass(found: &[Found]) -> Option<Qps> {
    // `None` is less than any rate.
    found.iter().map(|f| f.highest).min().flatten()
}

/// Returns the number of missing replies at the lowest failed rate of a search. If both a full trial and a shorter one
/// (a probe) were run at this rate, the number is from the full trial.
fn shortfall(failed: &[(Length, Shortfall)], found: &Found) -> Option<Shortfall> {
    let at = || failed.iter().filter(|(_, shortfall)| Some(shortfall.rate) == found.failed);
    at().find(|(length, _)| *length == Length::Full)
        .or(at().next())
        .map(|(_, shortfall)| *shortfall)
}

/// Several valid trials at one rate. An invalid trial is repeated up to a limited number of times.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    rate: Qps,
    repeat: u32,
    invalid_retries: u32,
    done: u32,
    retries: u32,
}

impl Repeats {
    /// Creates `repeat` trials at the rate `rate`. An invalid trial is repeated up to `invalid_retries` times and is
    /// then skipped.
    pub fn new(rate: Qps, repeat: u32, invalid_retries: u32) -> Repeats {
        Repeats { rate, repeat, invalid_retries, done: 0, retries: 0 }
    }

    /// Returns the next trial, or `None` if all trials are done or skipped.
    pub fn next(&self) -> Option<Due> {
        let due =
            Due { repeat: self.done, rate: self.rate, length: Length::Full, bracket: (None, None) };
        (self.done < self.repeat).then_some(due)
    }

    /// Records the verdict of the trial returned by [`next`](Repeats::next).
    pub fn report(&mut self, verdict: Verdict) {
        if verdict == Verdict::Invalid && self.retries < self.invalid_retries {
            self.retries += 1;
        } else {
            (self.done, self.retries) = (self.done + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(repeat: u32, probes: bool) -> SetPlan {
        let range =
            SearchRange { min: Qps(100), max: Qps(500), resolution: Qps(100), invalid_retries: 1 };
        SetPlan { range, repeat, probes }
    }

    fn counts(valid: u64) -> Counts {
        Counts { sent: 100, valid, lost: 100 - valid, ..Counts::default() }
    }

    /// Returns a search that ended within the range.
    fn ended(highest: Option<u64>, failed: Option<u64>) -> Found {
        Found {
            highest: highest.map(Qps),
            failed: failed.map(Qps),
            lower_bound: false,
            unmeasurable: None,
        }
    }

    /// Runs a set of searches against a simulated DUT with the capacity `capacity`. Short trials overstate the capacity
    /// by `slack`.
    fn walked(plan: SetPlan, capacity: u64, slack: u64) -> (Set, Vec<Due>) {
        let (mut set, mut asked) = (Set::new(plan), Vec::new());
        while let Some(due) = set.next() {
            assert!(asked.len() < 100, "the set does not end");
            let limit = capacity + if due.length == Length::Probe { slack } else { 0 };
            let passed = due.rate.0 <= limit;
            let valid = if passed { 100 } else { 99 - u64::from(due.length == Length::Probe) };
            set.report(if passed { Verdict::Passed } else { Verdict::Failed }, &counts(valid));
            asked.push(due);
        }
        (set, asked)
    }

    #[test]
    fn searches_run_in_sequence_with_their_shortfalls() {
        for (probes, slack) in [(false, 0), (true, 0), (true, 60)] {
            let (set, asked) = walked(plan(3, probes), 250, slack);
            assert_eq!(asked.iter().map(|due| due.repeat).max(), Some(2));
            assert!(asked.windows(2).all(|pair| pair[0].repeat <= pair[1].repeat));
            let highest: Vec<_> = set.found().iter().map(|f| (f.highest, f.failed)).collect();
            assert_eq!(highest, [(Some(Qps(200)), Some(Qps(300))); 3], "probes: {probes}");
            // The shortfall is that of the full trial, not of the probe before it.
            let shortfall = Shortfall { rate: Qps(300), missing: 1, of: 100 };
            assert_eq!(set.failed_by(), [Some(shortfall); 3], "probes: {probes}");
            assert_eq!(smallest_pass(set.found()), Some(Qps(200)));
        }
    }

    #[test]
    fn the_number_of_remaining_trials_is_estimated() {
        let range = SearchRange {
            min: Qps(100),
            max: Qps(1_000_000),
            resolution: Qps(1),
            invalid_retries: 1,
        };
        let mut set = Set::new(SetPlan { range, repeat: 3, probes: false });
        let mut left = Vec::new();
        while let Some(due) = set.next() {
            left.push((due.repeat, set.trials_left()));
            let verdict = if due.rate.0 <= 123_456 { Verdict::Passed } else { Verdict::Failed };
            set.report(verdict, &Counts::default());
        }
        for (done, (repeat, said)) in left.iter().enumerate() {
            let truth = (left.len() - done) as u64;
            // During the first search, the estimate for each of the three searches may be off by one trial.
            let allowed = if *repeat == 0 { 3 } else { 0 };
            assert!(
                said.abs_diff(truth) <= allowed,
                "{said} said, {truth} left, in search {repeat}"
            );
        }
        assert_eq!(set.trials_left(), 0);
    }

    #[test]
    fn a_dut_that_passes_nowhere_or_everywhere() {
        let (set, asked) = walked(plan(2, false), 50, 0);
        assert_eq!((asked.len(), smallest_pass(set.found())), (2, None));
        let (set, _) = walked(plan(2, false), 900, 0);
        let figures = Figures::of(set.found(), 1.0, Qps(1));
        let end = LowerBound::RangeEnd { searches: 2, of: 2, max: Qps(500) };
        assert_eq!(set.lower_bounds(&figures, None), [end]);
        assert_eq!(
            set.lower_bounds(&figures, Some(Qps(400))),
            [end, LowerBound::SelfTest { allowed: Qps(400) }]
        );
        assert_eq!(
            (set.failed_by(), smallest_pass(set.found())),
            (&[None, None][..], Some(Qps(500)))
        );
        assert_eq!(smallest_pass(&[]), None);
    }

    #[test]
    fn an_unmeasurable_rate_leaves_a_lower_bound() {
        let mut set = Set::new(plan(1, false));
        while let Some(due) = set.next() {
            set.report(
                if due.rate.0 > 100 { Verdict::Invalid } else { Verdict::Passed },
                &counts(100),
            );
        }
        let figures = Figures::of(set.found(), 1.0, Qps(1));
        assert_eq!(
            set.lower_bounds(&figures, None),
            [LowerBound::Unmeasurable { searches: 1, of: 1 }]
        );
    }

    #[test]
    fn without_a_result_there_is_no_lower_bound() {
        let mut set = Set::new(plan(2, false));
        while set.next().is_some() {
            set.report(Verdict::Invalid, &counts(100));
        }
        let figures = Figures::of(set.found(), 1.0, Qps(1));
        assert_eq!((figures.n, set.found().len()), (0, 2));
        assert_eq!(set.lower_bounds(&figures, Some(Qps(1))), []);
    }

    #[test]
    fn invalid_trials_are_repeated_and_then_given_up() {
        let mut trials = Repeats::new(Qps(7), 2, 1);
        let mut asked = Vec::new();
        for verdict in [Verdict::Invalid, Verdict::Passed, Verdict::Invalid, Verdict::Invalid] {
            asked.extend(trials.next().map(|due| (due.repeat, due.rate, due.length)));
            trials.report(verdict);
        }
        let full = |repeat| (repeat, Qps(7), Length::Full);
        assert_eq!(asked, [full(0), full(0), full(1), full(1)]);
        assert_eq!(trials.next(), None);
        assert_eq!(Repeats::new(Qps(7), 0, 1).next(), None);
    }

    /// A failure above the rate validated by a self-test may be caused by the tester. A failure or a median exactly at
    /// this rate is attributed to the DUT.
    #[test]
    fn lower_bounds_of_searches_that_ended_within_the_range() {
        let found = |highest, failed| ended(Some(highest), Some(failed));
        let all = [found(200, 300), found(200, 300), found(300, 400)];
        let figures = Figures::of(&all, 1.0, Qps(1));
        assert_eq!(figures.median, Some(200.0));
        let bounds = |found: &[Found], allowed: Option<u64>| {
            lower_bounds(found, Qps(500), &figures, allowed.map(Qps))
        };
        assert_eq!(bounds(&all, None), []);
        assert_eq!(bounds(&all, Some(400)), []);
        assert_eq!(bounds(&all, Some(399)), [LowerBound::SelfTest { allowed: Qps(399) }]);
        assert_eq!(bounds(&[], Some(200)), []);
        assert_eq!(bounds(&[], Some(199)), [LowerBound::SelfTest { allowed: Qps(199) }]);
        assert_eq!(smallest_pass(&all), Some(Qps(200)));
        assert_eq!(smallest_pass(&[all[0], ended(None, Some(100))]), None);
    }

    /// If a rate failed both in its probe and in its full trial, the shortfall is that of the full trial. Otherwise it
    /// is that of the probe.
    #[test]
    fn the_shortfall_is_that_of_the_rate_that_failed() {
        let of = |rate, missing| Shortfall { rate: Qps(rate), missing, of: 100 };
        let failed = [
            (Length::Full, of(400, 9)),
            (Length::Probe, of(300, 5)),
            (Length::Full, of(300, 2)),
            (Length::Probe, of(200, 7)),
        ];
        let passed = [Some(300), Some(200), Some(100), None];
        assert_eq!(
            passed.map(|rate| shortfall(&failed, &ended(None, rate))),
            [Some(of(300, 2)), Some(of(200, 7)), None, None]
        );
    }
}
