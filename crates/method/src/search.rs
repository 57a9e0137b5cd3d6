//! Binary search for the highest rate at which a trial passes, as a state machine without I/O.
//!
//! ```text
//!            min fails                          max passes
//! TryMin ───────────────► done(None)   TryMax ───────────► done(max, lower bound)
//!   │ min passes            ▲            ▲ │ max fails
//!   └───────────────────────┼────────────┘ ▼
//!                           │          Bisect(passed, failed) ──► done(passed) when failed − passed ≤ resolution
//! ```
//!
//! An invalid trial is repeated at the same rate. If all repetitions are invalid, the rate is *unmeasurable*, and the
//! search continues below that rate. If no lower rate fails, the result is a lower bound, because the rate was limited
//! by the tester and not by the DUT.

use serde::{Deserialize, Serialize};

use crate::records::Counts;
use crate::verdict::Verdict;
use units::Qps;

/// Range of rates and resolution of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SearchRange {
    /// Lowest rate of the range, which is tried first.
    pub min: Qps,
    /// Highest rate of the range, which is tried second.
    pub max: Qps,
    /// Maximum difference between the highest passed rate and the lowest failed rate at the end of the search; at least
    /// 1.
    pub resolution: Qps,
    /// Maximum number of repetitions of invalid trials at one rate.
    pub invalid_retries: u32,
}

/// Result of one search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Found {
    /// Highest rate that *passed*, which may differ from the last rate that was tried; `None` if the lowest rate
    /// failed.
    pub highest: Option<Qps>,
    /// Lowest rate above `highest` that *failed*; `None` if no rate failed. A rate that the tester could not measure
    /// does not count as failed.
    #[serde(default)]
    pub failed: Option<Qps>,
    /// True if the DUT may be faster, because the highest rate of the range passed or the tester could not measure
    /// higher rates.
    pub lower_bound: bool,
    /// Lowest rate that the tester could not measure, if such a rate ended the search; otherwise `None`.
    pub unmeasurable: Option<Qps>,
}

impl Found {
    /// True if the tester could not even measure the lowest rate. The result then gives no information about the DUT.
    pub fn is_unmeasurable(&self) -> bool {
        self.highest.is_none() && self.failed.is_none()
    }
}

/// Number of missing replies at a failed rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Shortfall {
    /// Failed rate in queries per second.
    pub rate: Qps,
    /// Number of queries without a valid reply in the trial at this rate.
    pub missing: u64,
    /// Total number of queries in the trial at this rate.
    pub of: u64,
}

impl Shortfall {
    /// Computes the number of missing replies of a failed trial at `rate`.
    pub fn of(rate: Qps, counts: &Counts) -> Shortfall {
        Shortfall { rate, missing: counts.sent.saturating_sub(counts.valid), of: counts.sent }
    }

    /// Returns the number of missing replies at the lowest failed rate of all searches at a measurement point. Returns
    /// `None` if no rate failed.
    pub fn lowest(each: &[Option<Shortfall>]) -> Option<Shortfall> {
        each.iter().flatten().min_by_key(|shortfall| shortfall.rate).copied()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    TryMin,
    TryMax { passed: Qps },
    Bisect { passed: Qps, failed: Qps },
    Done { highest: Option<Qps>, open_end: bool },
}

/// One binary search. Run a trial at the rate that [`next`](Search::next) returns, and pass its verdict to
/// [`report`](Search::report), until there is a [`result`](Search::result).
#[derive(Clone, Debug)]
pub struct Search {
    range: SearchRange,
    state: State,
    retries: u32,
    unmeasurable: Option<Qps>,
    /// Lowest rate that has failed so far.
    failed: Option<Qps>,
}

impl Search {
    /// Creates a search over `range`.
    ///
    /// # Panics
    /// Panics if the lowest rate is above the highest rate (`min > max`). The command line rejects such a range
    /// earlier.
    pub fn new(range: SearchRange) -> Search {
        assert!(range.min <= range.max, "the caller checks min ≤ max");
        Search { range, state: State::TryMin, retries: 0, unmeasurable: None, failed: None }
    }

    /// Creates a search that starts with known results: the rate `passed` has passed, and the rate `failed` has failed.
    /// `failed` is `None` if no failed rate is known.
    pub fn between(range: SearchRange, passed: Qps, failed: Option<Qps>) -> Search {
        let mut search = Search { failed, ..Search::new(range) };
        search.state = match failed {
            Some(failed) => search.narrowed(passed, failed),
            None if passed >= range.max => State::Done { highest: Some(passed), open_end: true },
            None => State::TryMax { passed },
        };
        search
    }

    /// Returns the rate of the next trial, or `None` once the search is over.
    pub fn next(&self) -> Option<Qps> {
        match self.state {
            State::TryMin => Some(self.range.min),
            State::TryMax { .. } => Some(self.range.max),
            State::Bisect { passed, failed } => Some(Qps(passed.0 + (failed.0 - passed.0) / 2)),
            State::Done { .. } => None,
        }
    }

    /// Returns the highest passed rate and the lowest failed rate; each is `None` if it is unknown.
    pub fn bracket(&self) -> (Option<Qps>, Option<Qps>) {
        match self.state {
            State::TryMin => (None, None),
            State::TryMax { passed } => (Some(passed), None),
            State::Bisect { passed, failed } => (Some(passed), Some(failed)),
            State::Done { highest, .. } => (highest, None),
        }
    }

    /// Records the verdict of the trial at the rate returned by [`next`](Search::next).
    pub fn report(&mut self, verdict: Verdict) {
        let Some(rate) = self.next() else { return };
        if verdict == Verdict::Invalid {
            if self.retries < self.range.invalid_retries {
                self.retries += 1;
                return;
            }
            self.unmeasurable = Some(rate);
        }
        if verdict == Verdict::Failed {
            // After a failure the search continues only below this rate.
            self.failed = Some(rate);
        }
        self.retries = 0;
        let passed = verdict == Verdict::Passed;
        self.state = match self.state {
            State::TryMin if passed && rate == self.range.max => {
                State::Done { highest: Some(rate), open_end: true }
            }
            State::TryMin if passed => State::TryMax { passed: rate },
            State::TryMin => State::Done { highest: None, open_end: false },
            State::TryMax { .. } if passed => State::Done { highest: Some(rate), open_end: true },
            State::TryMax { passed } => self.narrowed(passed, rate),
            State::Bisect { failed, .. } if passed => self.narrowed(rate, failed),
            State::Bisect { passed, .. } => self.narrowed(passed, rate),
            done @ State::Done { .. } => done,
        };
    }

    /// Returns the result, or `None` while the search is running.
    pub fn result(&self) -> Option<Found> {
        let State::Done { highest, open_end } = self.state else { return None };
        // The result is a lower bound only if the unmeasurable rate is just above the highest passed rate. Otherwise a
        // failed rate below the unmeasurable rate ended the search.
        let blocked = self
            .unmeasurable
            .filter(|u| highest.is_none_or(|h| u.0 - h.0 <= self.range.resolution.0.max(1)));
        Some(Found {
            highest,
            failed: self.failed,
            lower_bound: open_end || blocked.is_some(),
            unmeasurable: blocked,
        })
    }

    fn narrowed(&self, passed: Qps, failed: Qps) -> State {
        if failed.0 - passed.0 <= self.range.resolution.0.max(1) {
            State::Done { highest: Some(passed), open_end: false }
        } else {
            State::Bisect { passed, failed }
        }
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

    /// Runs a search against a simulated DUT; returns the result and the rates that were tried.
    fn run(range: SearchRange, mut dut: impl FnMut(Qps) -> Verdict) -> (Found, Vec<Qps>) {
        let mut search = Search::new(range);
        let mut tried = Vec::new();
        while let Some(rate) = search.next() {
            tried.push(rate);
            search.report(dut(rate));
            assert!(tried.len() < 200, "the search does not end");
        }
        (search.result().unwrap(), tried)
    }

    fn capacity(c: u64) -> impl FnMut(Qps) -> Verdict {
        move |rate| if rate.0 <= c { Verdict::Passed } else { Verdict::Failed }
    }

    #[test]
    fn sixteen_or_seventeen_steps_over_the_papers_range() {
        let (found, tried) = run(range(1, 131_072, 1), capacity(65_535));
        assert_eq!(
            found,
            Found {
                highest: Some(Qps(65_535)),
                failed: Some(Qps(65_536)),
                lower_bound: false,
                unmeasurable: None
            }
        );
        assert!((18..=19).contains(&tried.len()), "both ends and 17 halvings: {}", tried.len());
    }

    #[test]
    fn both_ends_are_tried() {
        let (found, tried) = run(range(100, 5000, 1), capacity(10_000));
        assert_eq!((found.highest, found.lower_bound), (Some(Qps(5000)), true));
        assert_eq!(tried, [Qps(100), Qps(5000)]);
        let (found, tried) = run(range(100, 5000, 1), capacity(99));
        assert_eq!((found.highest, found.lower_bound, tried.len()), (None, false, 1));
        let (found, tried) = run(range(100, 100, 1), capacity(100));
        assert_eq!((found.highest, found.lower_bound), (Some(Qps(100)), true));
        assert_eq!(tried, [Qps(100)], "once, if they are the same");
    }

    #[test]
    fn one_random_failure_shows_as_in_the_paper() {
        // G. Lencse and Y. Kadobayashi, DOI 10.1016/j.comcom.2018.05.005: a search over [0, 131
        // 072] that fails once, at 65 536, ends at 65 535.
        let (found, _) = run(range(1, 131_071, 1), |rate| {
            if rate.0 < 70_000 && rate.0 != 65_536 { Verdict::Passed } else { Verdict::Failed }
        });
        assert_eq!(found.highest, Some(Qps(65_535)));
    }

    #[test]
    fn the_result_passed_even_on_a_non_monotonic_dut() {
        let dut = |rate: Qps| {
            if rate.0.is_multiple_of(3) && rate.0 < 900 {
                Verdict::Failed
            } else {
                capacity(700)(rate)
            }
        };
        let (found, tried) = run(range(1, 1000, 1), dut);
        let highest = found.highest.unwrap();
        assert!(tried.contains(&highest));
        assert_eq!(dut(highest), Verdict::Passed);
    }

    #[test]
    fn a_known_failure_is_part_of_the_result() {
        // Nothing is left to try: the rates are close enough.
        let found =
            Search::between(range(1, 1_000, 10), Qps(300), Some(Qps(310))).result().unwrap();
        assert_eq!((found.highest, found.failed), (Some(Qps(300)), Some(Qps(310))));
        // Every rate that it tries passes.
        let mut search = Search::between(range(1, 1_000, 10), Qps(300), Some(Qps(350)));
        while search.next().is_some() {
            search.report(Verdict::Passed);
        }
        assert_eq!(search.result().unwrap().failed, Some(Qps(350)));
        let open = Search::between(range(1, 1_000, 10), Qps(1_000), None).result().unwrap();
        assert_eq!((open.failed, open.lower_bound), (None, true));
        // Nothing has failed, and the range's end is still to be tried.
        let mut search = Search::between(range(1, 1_000, 10), Qps(300), None);
        assert_eq!((search.next(), search.bracket()), (Some(Qps(1_000)), (Some(Qps(300)), None)));
        search.report(Verdict::Failed);
        assert_eq!(search.bracket(), (Some(Qps(300)), Some(Qps(1_000))));
    }

    #[test]
    fn invalid_trials_are_repeated_then_given_up_as_a_lower_bound() {
        let mut spoiled = 0;
        let (found, _) = run(range(1, 1000, 1), |rate| {
            if rate.0 == 500 && spoiled < 2 {
                spoiled += 1;
                return Verdict::Invalid;
            }
            capacity(600)(rate)
        });
        assert_eq!(
            found,
            Found {
                highest: Some(Qps(600)),
                failed: Some(Qps(601)),
                lower_bound: false,
                unmeasurable: None
            }
        );

        let (found, tried) =
            run(
                range(1, 1000, 1),
                |rate| if rate.0 > 400 { Verdict::Invalid } else { Verdict::Passed },
            );
        assert_eq!(
            found,
            Found {
                highest: Some(Qps(400)),
                failed: None,
                lower_bound: true,
                unmeasurable: Some(Qps(401))
            }
        );
        assert_eq!(tried.iter().filter(|r| r.0 == 1000).count(), 3, "two retries");

        // The tester cannot send 1000, but the DUT's limit is far below that.
        let (found, _) = run(range(1, 1000, 1), |rate| {
            if rate.0 == 1000 { Verdict::Invalid } else { capacity(600)(rate) }
        });
        assert_eq!(
            found,
            Found {
                highest: Some(Qps(600)),
                failed: Some(Qps(601)),
                lower_bound: false,
                unmeasurable: None
            }
        );
    }

    #[test]
    fn the_shortfall_of_a_point_is_that_of_its_lowest_rate() {
        let at = |rate, valid| {
            Some(Shortfall::of(
                Qps(rate),
                &Counts { sent: rate, valid, lost: rate - valid, ..Counts::default() },
            ))
        };
        assert_eq!(Shortfall::lowest(&[]), None);
        assert_eq!(Shortfall::lowest(&[None, None]), None);
        let lowest = Shortfall { rate: Qps(400), missing: 1, of: 400 };
        assert_eq!(
            Shortfall::lowest(&[at(500, 100), None, at(400, 399), at(600, 599)]),
            Some(lowest)
        );
    }

    proptest! {
        #[test]
        fn a_monotonic_dut_is_found_to_the_resolution(min in 1u64..1000, span in 0u64..200_000, c in 0u64..300_000, resolution in 1u64..100) {
            let range = range(min, min + span, resolution);
            let (found, tried) = run(range, capacity(c));
            match found.highest {
                None => prop_assert!(c < min),
                Some(Qps(highest)) => {
                    prop_assert!(highest <= c);
                    if found.lower_bound { prop_assert_eq!(highest, min + span); } else { prop_assert!(c - highest < resolution); }
                }
            }
            prop_assert!(tried.len() <= 22);
        }

        #[test]
        fn a_flaky_dut_never_breaks_the_search(verdicts in prop::collection::vec(0u8..3, 200)) {
            let mut given = verdicts.into_iter();
            let mut passed = Vec::new();
            let (found, _) = run(range(10, 100_000, 1), |rate| match given.next().unwrap() {
                0 => { passed.push(rate); Verdict::Passed }
                1 => Verdict::Failed,
                _ => Verdict::Invalid,
            });
            if let Some(highest) = found.highest {
                prop_assert!(passed.contains(&highest));
                prop_assert_eq!(passed.iter().max(), Some(&highest));
            } else {
                prop_assert!(passed.is_empty());
            }
        }
    }
}
