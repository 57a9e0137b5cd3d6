//! A set of trials as a state machine without any I/O: the next trial, its verdict, until there is
//! nothing left to do.
//!
//! ```text
//! Set      search 1 ─► search 2 ─► … ─► search n          each a [`NarrowedSearch`]; what each found, and how narrowly
//! Repeats  trial 1 ─► trial 2 ─► … ─► trial n             all at one rate; a spoiled trial is tried again
//! ```
//!
//! Whoever carries trials out, continues a journal, or computes results from one walks the same
//! set, so all three agree on which trial belongs where.

use serde::{Deserialize, Serialize};

use crate::narrow::{Length, NarrowedSearch};
use crate::precision::Figures;
use crate::records::Counts;
use crate::search::{Found, SearchRange, Shortfall};
use crate::units::Qps;
use crate::verdict::Verdict;

/// The searches to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SetPlan {
    /// The rates between which each search looks.
    pub range: SearchRange,
    /// How many searches there are, at least 1.
    pub repeat: u32,
    /// Whether a short trial goes before each full one.
    pub probes: bool,
}

/// The trial that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Of which search or repetition, from 0.
    pub repeat: u32,
    /// The rate to send, queries per second.
    pub rate: Qps,
    /// A probe, or of full length.
    pub length: Length,
    /// The highest rate that passed in this search, and the lowest that did not, as far as known.
    pub bracket: (Option<Qps>, Option<Qps>),
}

/// Why the DUT may do more than the median of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LowerBound {
    /// Searches passed at the highest rate of the range.
    RangeEnd {
        /// How many searches did.
        searches: usize,
        /// How many searches there are.
        of: usize,
        /// The highest rate of the range, queries per second.
        max: Qps,
    },
    /// The tester could not measure the rate above what passed.
    Unmeasurable {
        /// In how many searches.
        searches: usize,
        /// How many searches there are.
        of: usize,
    },
    /// The median is above what the self-test vouches for.
    SelfTest {
        /// Up to which rate it does.
        allowed: Qps,
    },
}

/// A set of searches. Ask for the [`next`](Set::next) trial, [`report`](Set::report) what it was,
/// until nothing is due.
#[derive(Clone, Debug)]
pub struct Set {
    plan: SetPlan,
    search: NarrowedSearch,
    repeat: u32,
    /// Failed trials of the search that is under way.
    failed: Vec<(Length, Shortfall)>,
    found: Vec<Found>,
    failed_by: Vec<Option<Shortfall>>,
}

impl Set {
    /// A set of which nothing is done.
    ///
    /// # Panics
    /// If the range is empty, as [`crate::search::Search::new`].
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

    /// The trial to carry out next; `None` when all searches are over.
    pub fn next(&self) -> Option<Due> {
        if self.repeat >= self.plan.repeat {
            return None;
        }
        let (rate, length) = self.search.next()?;
        Some(Due { repeat: self.repeat, rate, length, bracket: self.search.bracket() })
    }

    /// Books verdict and counts of the trial that [`next`](Set::next) gave.
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

    /// How many trials are left, the one that is due among them, if the DUT goes on as it has: the
    /// last search's rate passes, or in the first search the middle of what is still open, and
    /// nothing is spoiled. For sets without probes, whose number of trials hardly depends on the
    /// rate.
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

    /// What each search found that is over.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// By how much the lowest rate that failed failed, search by search; `None` where none failed.
    pub fn failed_by(&self) -> &[Option<Shortfall>] {
        &self.failed_by
    }

    /// Why the DUT may do more than the median of `figures`, which are those of this set: see
    /// [`lower_bounds`].
    pub fn lower_bounds(&self, figures: &Figures, allowed: Option<Qps>) -> Vec<LowerBound> {
        lower_bounds(&self.found, self.plan.range.max, figures, allowed)
    }
}

/// The reasons why the DUT may do more than the median of `figures`, which are those of `found`:
/// searches that ended at `max`, the end of the range, or at a rate that could not be measured; and
/// a median, or a rate that failed, above `allowed`, up to which a self-test validates the tester.
/// Without a result (n = 0) there is nothing that could be a lower bound.
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

/// The smallest of the highest rates that passed; `None` where a search passed nowhere, or there is
/// none.
pub fn smallest_pass(found: &[Found]) -> Option<Qps> {
    // `None` is less than any rate.
    found.iter().map(|f| f.highest).min().flatten()
}

/// By how much the lowest failed rate of a search failed: in its full trial, or else in its probe.
fn shortfall(failed: &[(Length, Shortfall)], found: &Found) -> Option<Shortfall> {
    let at = || failed.iter().filter(|(_, shortfall)| Some(shortfall.rate) == found.failed);
    at().find(|(length, _)| *length == Length::Full)
        .or(at().next())
        .map(|(_, shortfall)| *shortfall)
}

/// Trials at one rate: so many that the tester did not spoil, each tried again a few times if it
/// did.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    rate: Qps,
    repeat: u32,
    invalid_retries: u32,
    done: u32,
    retries: u32,
}

impl Repeats {
    /// `repeat` trials at `rate`; a spoiled one is tried again `invalid_retries` times and then
    /// given up.
    pub fn new(rate: Qps, repeat: u32, invalid_retries: u32) -> Repeats {
        Repeats { rate, repeat, invalid_retries, done: 0, retries: 0 }
    }

    /// The trial to carry out next; `None` when all are done or given up.
    pub fn next(&self) -> Option<Due> {
        let due =
            Due { repeat: self.done, rate: self.rate, length: Length::Full, bracket: (None, None) };
        (self.done < self.repeat).then_some(due)
    }

    /// Books the verdict of the trial that [`next`](Repeats::next) gave.
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

    /// A search that ended within the range.
    fn ended(highest: Option<u64>, failed: Option<u64>) -> Found {
        Found {
            highest: highest.map(Qps),
            failed: failed.map(Qps),
            lower_bound: false,
            unmeasurable: None,
        }
    }

    /// Walks a set against a DUT that does `capacity`; short trials overstate by `slack`.
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
    fn searches_follow_each_other_and_say_how_narrowly_they_failed() {
        for (probes, slack) in [(false, 0), (true, 0), (true, 60)] {
            let (set, asked) = walked(plan(3, probes), 250, slack);
            assert_eq!(asked.iter().map(|due| due.repeat).max(), Some(2));
            assert!(asked.windows(2).all(|pair| pair[0].repeat <= pair[1].repeat));
            let highest: Vec<_> = set.found().iter().map(|f| (f.highest, f.failed)).collect();
            assert_eq!(highest, [(Some(Qps(200)), Some(Qps(300))); 3], "probes: {probes}");
            // That of the full trial, not of the probe before it.
            let shortfall = Shortfall { rate: Qps(300), missing: 1, of: 100 };
            assert_eq!(set.failed_by(), [Some(shortfall); 3], "probes: {probes}");
            assert_eq!(smallest_pass(set.found()), Some(Qps(200)));
        }
    }

    #[test]
    fn how_many_trials_are_left_is_known_from_the_first_search_on() {
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
            // The first search is a guess, off by one for each search.
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
    fn what_cannot_be_measured_leaves_a_lower_bound() {
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
    fn spoiled_trials_at_one_rate_are_tried_again_and_then_given_up() {
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

    /// A rate that failed above what a self-test vouches for may be the tester's failure; one at the
    /// limit is not, and neither is a median there.
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

    /// Where a rate failed in its probe and in its full trial, the full one tells by how much; where
    /// it failed in its probe only, that does.
    #[test]
    fn the_shortfall_is_that_of_the_rate_that_failed() {
        let of = |rate, missing| Shortfall { rate: Qps(rate), missing, of: 100 };
        let failed = [
            (Length::Full, of(400, 9)),
            (Length::Probe, of(300, 5)),
            (Length::Full, of(300, 2)),
            (Length::Probe, of(200, 7)),
        ];
        let told = [Some(300), Some(200), Some(100), None];
        assert_eq!(
            told.map(|rate| shortfall(&failed, &ended(None, rate))),
            [Some(of(300, 2)), Some(of(200, 7)), None, None]
        );
    }
}
