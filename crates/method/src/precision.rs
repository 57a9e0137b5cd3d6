//! How precisely a rate is known: the interval that trials prove, ratios of intervals, and no digit
//! beyond the resolution.
//!
//! ```text
//! search 1   passed ──────┤├── failed            each search proves [highest rate that passed, lowest that failed)
//! search 2      passed ──────┤├── failed
//! point      from ────────────────── to          smallest pass … largest fail; open where nothing failed
//! ```

use serde::{Deserialize, Serialize};

use crate::search::Found;
use crate::stats::Summary;
use crate::units::{Nanos, Qps};

/// Searches from which on the 1st and the 99th percentile say more than minimum and maximum
/// (RFC 8219 §9.2 asks for 20 repetitions at least).
pub const PERCENTILES_FROM: usize = 20;

/// Below this duration what waits in queues when a trial ends weighs so much that the default
/// timeout shrinks with it.
const SHORT: Nanos = Nanos(20 * Nanos::SECOND.0);
/// The default timeout of a short trial is this part of its duration, and no longer one is taken at
/// its word.
const PART: u64 = 20;

/// The timeout of a trial for which the user gave none: 1 s (RFC 8219 §9.2), and a twentieth of the
/// duration where that is shorter than 20 s, because replies that come after the end of the sending
/// count as well.
pub fn default_timeout(duration: Nanos) -> Nanos {
    if duration < SHORT { Nanos((duration.0 / PART).max(1)) } else { Nanos::SECOND }
}

/// By how much a trial may overstate what the DUT keeps up: up to 1 + timeout ÷ duration, since the
/// DUT has `duration + timeout` to answer what was sent in `duration`. 1 where the timeout is no
/// longer than [`default_timeout`] allows.
pub fn overstatement(duration: Nanos, timeout: Nanos) -> f64 {
    if timeout <= default_timeout(duration) {
        1.0
    } else {
        1.0 + timeout.0 as f64 / duration.0.max(1) as f64
    }
}

/// The rates between which the DUT's limit lies: `from` passed, `to` failed. Queries per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Interval {
    /// The smallest of the highest rates that passed, divided by [`overstatement`]; absent where a
    /// search passed nowhere.
    pub from: Option<f64>,
    /// The largest of the lowest rates that failed; absent where a search found none that failed.
    pub to: Option<f64>,
}

impl Interval {
    /// What one or several searches prove together; `overstated` is at least 1.
    pub fn of(found: &[Found], overstated: f64) -> Interval {
        let each = |rate: fn(&Found) -> Option<Qps>| -> Option<Vec<f64>> {
            found.iter().map(|f| rate(f).map(|Qps(rate)| rate as f64)).collect()
        };
        let passed = each(|f| f.highest).and_then(|all| all.into_iter().reduce(f64::min));
        let failed = each(|f| f.failed).and_then(|all| all.into_iter().reduce(f64::max));
        Interval { from: passed.map(|rate| rate / overstated.max(1.0)), to: failed }
    }

    /// The ratio of this to `other`: [a.from ÷ b.to, a.to ÷ b.from].
    pub fn ratio_to(&self, other: &Interval) -> Ratio {
        let quotient =
            |a: Option<f64>, b: Option<f64>| a.zip(b.filter(|&b| b > 0.0)).map(|(a, b)| a / b);
        Ratio { from: quotient(self.from, other.to), to: quotient(self.to, other.from) }
    }
}

/// How many times as fast one server is as another, as far as that is proven.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Ratio {
    /// At least so many times; absent where nothing bounds it.
    pub from: Option<f64>,
    /// At most so many times; absent where nothing bounds it.
    pub to: Option<f64>,
}

impl Ratio {
    /// Whether it says who is faster: only if it does not contain 1.
    pub fn is_decided(&self) -> bool {
        self.from.is_some_and(|from| from > 1.0) || self.to.is_some_and(|to| to < 1.0)
    }
}

/// The statistics of a point, each only where there are enough searches for it. Queries per second.
///
/// A search of which no rate could be measured is left out: it says nothing about the DUT. A search
/// that passed nowhere counts as 0, which stands for "less than the lowest rate".
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Figures {
    /// Searches that say something.
    pub n: usize,
    /// The median of the highest rates that passed; absent where n = 0.
    pub median: Option<f64>,
    /// The 1st percentile; from n = 20 on.
    pub p1: Option<f64>,
    /// The 99th percentile; from n = 20 on.
    pub p99: Option<f64>,
    /// The smallest of the highest rates that passed.
    pub min: Option<f64>,
    /// The largest of the highest rates that passed.
    pub max: Option<f64>,
    /// (max − min) ÷ median · 100 %; from n = 2 on.
    pub dispersion_pct: Option<f64>,
    /// Between which rates the limit lies.
    pub interval: Interval,
}

impl Figures {
    /// What searches amount to; `overstated` as in [`Interval::of`].
    pub fn of(found: &[Found], overstated: f64) -> Figures {
        let telling: Vec<Found> = found.iter().filter(|f| !f.says_nothing()).copied().collect();
        let rates: Vec<f64> =
            telling.iter().map(|f| f.highest.map_or(0.0, |rate| rate.0 as f64)).collect();
        let summary = Summary::of(&rates);
        let many = summary.filter(|s| s.n >= PERCENTILES_FROM);
        Figures {
            n: telling.len(),
            median: summary.map(|s| s.median),
            p1: many.map(|s| s.p1),
            p99: many.map(|s| s.p99),
            min: summary.map(|s| s.min),
            max: summary.map(|s| s.max),
            dispersion_pct: summary.filter(|s| s.n >= 2).and_then(|s| s.dispersion_pct),
            interval: Interval::of(&telling, overstated),
        }
    }

    /// The same where a self-test vouches for the tester up to `allowed` only: what failed above that
    /// may be the tester's failure, and bounds the DUT no more.
    #[must_use]
    pub fn vouched_to(mut self, allowed: Option<Qps>) -> Figures {
        let is_vouched = |failed: &f64| allowed.is_none_or(|allowed| *failed <= allowed.0 as f64);
        self.interval.to = self.interval.to.filter(is_vouched);
        self
    }

    /// Whether at least one rate passed in the median search; otherwise the result is "less than
    /// the lowest rate".
    pub fn has_rate(&self) -> bool {
        self.median.is_some_and(|median| median > 0.0)
    }
}

/// The smallest step in which a rate may be written that was searched with `resolution`: the power
/// of ten not above it.
pub fn step(resolution: Qps) -> u64 {
    10u64.pow(resolution.0.max(1).ilog10())
}

/// `rate` without digits beyond the resolution, rounded down: what passed is never overstated.
pub fn rounded_down(rate: f64, resolution: Qps) -> u64 {
    // The small term takes back what division of binary fractions lost of a whole number.
    let step = step(resolution);
    ((rate / step as f64 + 1e-9).floor() as u64) * step
}

/// `rate` without digits beyond the resolution, rounded up: what failed is never understated.
pub fn rounded_up(rate: f64, resolution: Qps) -> u64 {
    let step = step(resolution);
    ((rate / step as f64 - 1e-9).ceil() as u64) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(highest: Option<u64>, failed: Option<u64>) -> Found {
        Found {
            highest: highest.map(Qps),
            failed: failed.map(Qps),
            lower_bound: highest.is_some() && failed.is_none(),
            unmeasurable: None,
        }
    }

    #[test]
    fn what_failed_above_the_self_tests_rate_bounds_nothing() {
        let figures = Figures::of(&[found(Some(900), Some(1000))], 1.0);
        let to = |allowed| figures.vouched_to(allowed).interval.to;
        assert_eq!(
            (to(None), to(Some(Qps(1000))), to(Some(Qps(999)))),
            (Some(1000.0), Some(1000.0), None)
        );
    }

    #[test]
    fn an_interval_reaches_from_the_smallest_pass_to_the_largest_fail() {
        let all = [
            found(Some(900), Some(1000)),
            found(Some(1100), Some(1200)),
            found(Some(1000), Some(1100)),
        ];
        assert_eq!(Interval::of(&all, 1.0), Interval { from: Some(900.0), to: Some(1200.0) });
        assert_eq!(Interval::of(&all, 1.5).from, Some(600.0));
        let open = [found(Some(900), Some(1000)), found(Some(1100), None)];
        assert_eq!(Interval::of(&open, 1.0), Interval { from: Some(900.0), to: None });
        let nowhere = [found(None, Some(100)), found(Some(100), Some(200))];
        assert_eq!(Interval::of(&nowhere, 1.0), Interval { from: None, to: Some(200.0) });
        assert_eq!(Interval::of(&[], 1.0), Interval { from: None, to: None });
    }

    #[test]
    fn a_ratio_is_said_only_if_it_does_not_contain_one() {
        let interval =
            |from: u64, to: u64| Interval { from: Some(from as f64), to: Some(to as f64) };
        let ratio = interval(60, 80).ratio_to(&interval(10, 20));
        assert_eq!((ratio.from, ratio.to, ratio.is_decided()), (Some(3.0), Some(8.0), true));
        assert!(!interval(60, 80).ratio_to(&interval(70, 90)).is_decided());
        assert!(interval(10, 20).ratio_to(&interval(60, 80)).is_decided());
        // Both limits may be 20.
        assert!(!interval(10, 20).ratio_to(&interval(20, 30)).is_decided());
        assert!(!interval(20, 30).ratio_to(&interval(10, 20)).is_decided());
        // Nothing is so many times as much as nothing.
        let nothing = interval(10, 20).ratio_to(&interval(0, 0));
        assert_eq!((nothing.from, nothing.to), (None, None));
        // The smoke run of November 2026: at least 66 000 against [1 000, 3 500) is "at least 18
        // times", not 66.
        let open = Interval { from: Some(66_000.0), to: None };
        let ratio = open.ratio_to(&interval(1_000, 3_500));
        assert_eq!((ratio.from.unwrap().floor(), ratio.to), (18.0, None));
        assert!(!open.ratio_to(&open).is_decided());
    }

    #[test]
    fn statistics_wait_for_enough_searches() {
        let same = |n: usize| vec![found(Some(1000), Some(1001)); n];
        let one = Figures::of(&same(1), 1.0);
        assert_eq!((one.median, one.dispersion_pct, one.p1), (Some(1000.0), None, None));
        assert_eq!(Figures::of(&same(2), 1.0).dispersion_pct, Some(0.0));
        assert_eq!(Figures::of(&same(19), 1.0).p1, None);
        assert_eq!(Figures::of(&same(20), 1.0).p99, Some(1000.0));
    }

    #[test]
    fn a_server_that_passed_nowhere_has_no_rate() {
        let has_rate = |each: &[Found]| Figures::of(each, 1.0).has_rate();
        let (nowhere, somewhere) = (found(None, Some(100)), found(Some(100), Some(101)));
        assert!(has_rate(&[somewhere]) && !has_rate(&[nowhere]) && !has_rate(&[]));
        assert!(!has_rate(&[nowhere, nowhere, somewhere]));
    }

    #[test]
    fn what_could_not_be_measured_is_not_zero() {
        let blocked =
            Found { highest: None, failed: None, lower_bound: true, unmeasurable: Some(Qps(10)) };
        assert_eq!(
            (Figures::of(&[blocked], 1.0).n, Figures::of(&[blocked], 1.0).median),
            (0, None)
        );
        let both = Figures::of(&[blocked, found(Some(50), Some(60))], 1.0);
        assert_eq!((both.n, both.median, both.interval.from), (1, Some(50.0), Some(50.0)));
        assert!(!Figures::of(&[found(None, Some(10))], 1.0).has_rate());
    }

    #[test]
    fn short_trials_have_short_timeouts_or_wide_intervals() {
        let s = |n: u64| Nanos(n * Nanos::SECOND.0);
        assert_eq!(default_timeout(s(60)), s(1));
        assert_eq!(default_timeout(s(20)), s(1));
        assert_eq!(default_timeout(s(2)), Nanos::from_millis(100));
        assert_eq!(overstatement(s(2), Nanos::from_millis(100)), 1.0);
        assert_eq!(overstatement(s(2), s(1)), 1.5);
        assert_eq!(overstatement(s(60), s(1)), 1.0);
    }

    #[test]
    fn no_digit_is_written_beyond_the_resolution() {
        assert_eq!(
            (rounded_down(22_875.0, Qps(3_000)), rounded_up(25_312.0, Qps(3_000))),
            (22_000, 26_000)
        );
        assert_eq!(
            (rounded_down(65_535.0, Qps(1)), rounded_up(65_535.5, Qps(1))),
            (65_535, 65_536)
        );
        assert_eq!(
            (rounded_down(66_000.0, Qps(4_000)), rounded_up(66_000.0, Qps(4_000))),
            (66_000, 66_000)
        );
    }
}
