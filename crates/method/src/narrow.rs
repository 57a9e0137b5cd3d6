//! The binary search of [`crate::search`] with a short trial, a *probe*, before each full trial. This search takes less
//! time than the plain search and has the same result.
//!
//! ```text
//! plain search asks for rate r ─► probe at r ── fails ──────────────► r has failed (a full trial would contain the failure)
//!                                    │ passes, or is invalid
//!                                    └─► full trial at r ───────────► its verdict counts
//! plain search is over ─► was the lowest failed rate only probed? ─► full trial there: it must fail, or the search goes on
//! ```
//!
//! Full trials decide on every passed rate, and on the failed rate just above the result. The result equals that of the
//! plain search, provided that a probe fails only at rates at which the full trial also fails. The two results are
//! equal even if a DUT passes at some rates above a failed rate.

use std::collections::BTreeMap;

use crate::search::{Found, Search, SearchRange};
use crate::verdict::Verdict;
use units::{Nanos, Qps};

/// Length of a trial.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    /// A short trial. It can prove that the DUT fails at a rate, but it cannot prove that the DUT passes.
    Probe,
    /// A trial of the full duration given by the plan.
    Full,
    /// A trial that sends queries for the given time. MLRsearch uses such trials, because it varies their duration.
    Of(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Probe,
    Full,
    /// A full trial must confirm the lowest failed rate, at which only a probe was run.
    Confirm(Qps),
    Done,
}

/// One search with probes. Run the trial that [`next`](NarrowedSearch::next) returns, and pass its verdict to
/// [`report`](NarrowedSearch::report), until there is a [`result`](NarrowedSearch::result).
#[derive(Clone, Debug)]
pub struct NarrowedSearch {
    search: Search,
    range: SearchRange,
    probes: bool,
    state: State,
    /// Failed rates, each with the length of the trial that failed.
    failed: BTreeMap<Qps, Length>,
    retries: u32,
    found: Option<Found>,
}

impl NarrowedSearch {
    /// Creates a search over `range`. If `probes` is false, the search is a plain binary search of full trials.
    pub fn new(range: SearchRange, probes: bool) -> NarrowedSearch {
        let state = if probes { State::Probe } else { State::Full };
        let search = Search::new(range);
        NarrowedSearch {
            search,
            range,
            probes,
            state,
            failed: BTreeMap::new(),
            retries: 0,
            found: None,
        }
    }

    /// Returns the next trial, or `None` once the search is over.
    pub fn next(&self) -> Option<(Qps, Length)> {
        match self.state {
            State::Probe => self.search.next().map(|rate| (rate, Length::Probe)),
            State::Full => self.search.next().map(|rate| (rate, Length::Full)),
            State::Confirm(rate) => Some((rate, Length::Full)),
            State::Done => None,
        }
    }

    /// Returns the highest passed rate and the lowest failed rate; each is `None` if it is unknown.
    pub fn bracket(&self) -> (Option<Qps>, Option<Qps>) {
        self.search.bracket()
    }

    /// Records the verdict of the trial returned by [`next`](NarrowedSearch::next).
    pub fn report(&mut self, verdict: Verdict) {
        let Some((rate, length)) = self.next() else { return };
        match (self.state, verdict) {
            (State::Probe, Verdict::Passed | Verdict::Invalid) => {
                self.state = State::Full;
                return;
            }
            (State::Confirm(_), Verdict::Invalid) if self.retries < self.range.invalid_retries => {
                self.retries += 1;
                return;
            }
            (State::Confirm(_), Verdict::Passed) => return self.go_on_above(rate),
            // If the full trial cannot be measured, the probe's result stands.
            (State::Confirm(_), _) => {
                self.failed.insert(rate, length);
                self.state = State::Done;
                return;
            }
            _ => {}
        }
        if verdict == Verdict::Failed {
            self.failed.insert(rate, length);
        }
        self.search.report(verdict);
        let asks_again = verdict == Verdict::Invalid && self.search.next() == Some(rate);
        self.state = if self.probes && !asks_again { State::Probe } else { State::Full };
        self.settle();
    }

    /// Returns the result, or `None` while the search is running.
    pub fn result(&self) -> Option<Found> {
        if self.state == State::Done { self.found } else { None }
    }

    /// Handles the end of the binary search. If only a probe was run at the failed rate above the result, a full trial
    /// must confirm the failure. Otherwise the whole search is over.
    fn settle(&mut self) {
        let Some(found) = self.search.result() else { return };
        self.found = Some(found);
        let above = self
            .failed
            .iter()
            .find(|(rate, _)| found.highest.is_none_or(|highest| **rate > highest));
        self.state = match above {
            Some((&rate, Length::Probe)) => State::Confirm(rate),
            _ => State::Done,
        };
    }

    /// Continues the search after a full trial passed at `rate`, although the probe at this rate failed. This happens
    /// if the DUT's results vary. The search continues between `rate` and the next higher failed rate.
    fn go_on_above(&mut self, rate: Qps) {
        self.failed.remove(&rate);
        self.retries = 0;
        let next = self.failed.range(rate..).next().map(|(&failed, _)| failed);
        self.search = Search::between(self.range, rate, next);
        self.state = if self.probes { State::Probe } else { State::Full };
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(min: u64, max: u64, resolution: u64) -> SearchRange {
        SearchRange {
            min: Qps(min),
            max: Qps(max),
            resolution: Qps(resolution),
            invalid_retries: 2,
        }
    }

    fn plain(range: SearchRange, mut dut: impl FnMut(Qps) -> Verdict) -> Found {
        let mut search = Search::new(range);
        while let Some(rate) = search.next() {
            search.report(dut(rate));
        }
        search.result().unwrap()
    }

    /// Returns the result, and the numbers of probes and full trials.
    fn narrowed(
        range: SearchRange,
        mut dut: impl FnMut(Qps, Length) -> Verdict,
    ) -> (Found, usize, usize) {
        let mut search = NarrowedSearch::new(range, true);
        let (mut probes, mut full) = (0, 0);
        while let Some((rate, length)) = search.next() {
            *(if length == Length::Probe { &mut probes } else { &mut full }) += 1;
            assert!(probes + full < 300, "the search does not end");
            search.report(dut(rate, length));
        }
        (search.result().unwrap(), probes, full)
    }

    fn verdict(passes: bool) -> Verdict {
        if passes { Verdict::Passed } else { Verdict::Failed }
    }

    proptest! {
        #[test]
        fn equals_the_plain_search(capacity in 0u64..70_000, resolution in 1u64..50, slack in 0u64..3_000) {
            // A probe passes at rates up to a little above the capacity.
            let range = range(100, 65_536, resolution);
            let expected = plain(range, |rate| verdict(rate.0 <= capacity));
            let (found, ..) = narrowed(range, |rate, length| {
                verdict(rate.0 <= capacity + if length == Length::Probe { slack } else { 0 })
            });
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn equals_the_plain_search_where_it_is_not_monotonic(holes in prop::collection::btree_set(0u64..64, 0..40), probe_sees: bool) {
            // Rates in a hole fail. Probes fail in all holes, or only in every second hole.
            let range = range(1, 4_096, 1);
            let fails = |rate: Qps| holes.contains(&(rate.0 / 64));
            let expected = plain(range, |rate| verdict(!fails(rate)));
            let (found, ..) = narrowed(range, |rate, length| {
                let seen = length == Length::Full || probe_sees || rate.0 / 64 % 2 == 0;
                verdict(!(fails(rate) && seen))
            });
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn flaky_ones_end_and_the_neighbours_had_full_trials(seed: u64, capacity in 200u64..4_000) {
            let mut state = seed | 1;
            let mut full = BTreeMap::new();
            let (found, ..) = narrowed(range(100, 4_096, 1), |rate, length| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let verdict = match state >> 60 {
                    0 => Verdict::Failed,
                    1 => Verdict::Invalid,
                    _ => verdict(rate.0 <= capacity),
                };
                if length == Length::Full {
                    full.insert(rate, verdict);
                }
                verdict
            });
            if let Some(highest) = found.highest {
                prop_assert_eq!(full.get(&highest), Some(&Verdict::Passed));
                if !found.lower_bound {
                    prop_assert!(full.contains_key(&Qps(highest.0 + 1)), "the failure above was only probed");
                }
            }
        }
    }

    use Length::{Full, Probe};
    use Verdict::{Failed, Invalid, Passed};

    /// Reports these trials to a search over `range`. Each trial must be the one that is due. Returns the result if the
    /// search is over.
    fn after(range: SearchRange, trials: &[(u64, Length, Verdict)]) -> Option<Found> {
        let mut search = NarrowedSearch::new(range, true);
        for &(rate, length, verdict) in trials {
            assert_eq!(search.next(), Some((Qps(rate), length)), "before {verdict:?}");
            assert_eq!(search.result(), None);
            search.report(verdict);
        }
        assert_eq!(search.next().is_none(), search.result().is_some());
        search.result()
    }

    /// Trials of a search with the result 101. Rate 102 failed only in a probe.
    const PROBED_ABOVE: [(u64, Length, Verdict); 5] = [
        (100, Probe, Passed),
        (100, Full, Passed),
        (102, Probe, Failed),
        (101, Probe, Passed),
        (101, Full, Passed),
    ];

    #[test]
    fn a_full_trial_decides_above_the_result() {
        let found = |more: &[_]| after(range(100, 102, 1), &[&PROBED_ABOVE, more].concat());
        let (is_101, is_102) = (
            Found {
                highest: Some(Qps(101)),
                failed: Some(Qps(102)),
                lower_bound: false,
                unmeasurable: None,
            },
            Found { highest: Some(Qps(102)), failed: None, lower_bound: true, unmeasurable: None },
        );
        let full = |verdict| (102, Full, verdict);
        assert_eq!(found(&[full(Failed)]), Some(is_101));
        assert_eq!(found(&[full(Passed)]), Some(is_102));
        assert_eq!(found(&[full(Invalid), full(Invalid), full(Passed)]), Some(is_102));
        // If the full trial cannot be measured, the probe's result stands.
        assert_eq!(found(&[full(Invalid), full(Invalid)]), None);
        assert_eq!(found(&[full(Invalid); 3]), Some(is_101));
    }

    #[test]
    fn an_invalid_full_trial_is_repeated_without_a_probe() {
        let begin = [(100, Probe, Passed), (100, Full, Invalid), (100, Full, Passed)];
        // An invalid probe proves nothing, so the full trial decides. The search continues below an unmeasurable rate,
        // and starts with a probe at the next rate.
        let unmeasurable = [(104, Probe, Invalid), (104, Full, Invalid), (104, Full, Invalid)];
        let end = [(104, Full, Invalid), (102, Probe, Failed)];
        let trials = [&begin[..], &unmeasurable, &end].concat();
        assert_eq!(after(range(100, 104, 1), &trials), None);
    }

    #[test]
    fn the_bracket_includes_failed_probes() {
        let mut search = NarrowedSearch::new(range(100, 102, 1), true);
        assert_eq!(search.bracket(), (None, None));
        PROBED_ABOVE.iter().take(3).for_each(|&(.., verdict)| search.report(verdict));
        assert_eq!(search.bracket(), (Some(Qps(100)), Some(Qps(102))));
    }

    #[test]
    fn failures_cost_a_probe_each_and_one_full_trial() {
        let (found, probes, full) =
            narrowed(range(100, 65_536, 1), |rate, _| verdict(rate.0 <= 100));
        assert_eq!(found.highest, Some(Qps(100)));
        assert_eq!((probes, full), (17, 2), "full trials at 100 and 101 only");
    }
}
