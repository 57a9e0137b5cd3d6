//! Precision of rates: the intervals that follow from the trials, the medians, and the ratios.
//!
//! ```text
//! search 1   passed ──────┤├── failed            each search proves [highest rate that passed, lowest that failed)
//! search 2      passed ──────┤├── failed
//! point      from ────────────────── to          smallest pass … largest fail; open where nothing failed
//! ```
//!
//! A rate at which a trial was run is exact. Derived values are rounded by functions of this module, so that every
//! output shows the same value. These functions are [`median`] for medians, [`lower_end`] for the lower ends of
//! intervals (divided by [`overstatement`]), [`Ratio::rounded`] for ratios, and [`four_digits`] for the CPRDP.

use serde::{Deserialize, Serialize};

use crate::search::Found;
use units::{Nanos, Qps};

/// Minimum number of searches for which the 1st and the 99th percentile are given. With fewer searches, minimum and
/// maximum are as informative (RFC 8219 §9.2 requires at least 20 repetitions).
pub(crate) const PERCENTILES_FROM: usize = 20;

/// Trial duration below which the default timeout is proportional to the duration. With a fixed timeout, replies that
/// are still queued at the end would have too much weight in short trials.
const SHORT: Nanos = Nanos(20 * Nanos::SECOND.0);
/// Ratio of a short trial's duration to its default timeout. A longer timeout requires a correction by the factor that
/// [`overstatement`] returns.
const PART: u64 = 20;

/// Returns the default timeout of a trial: 1 s (RFC 8219 §9.2), or a twentieth of the duration if the duration is
/// shorter than 20 s. In a short trial, a long timeout would give too much weight to replies after the end of sending.
pub fn default_timeout(duration: Nanos) -> Nanos {
    if duration < SHORT { Nanos((duration.0 / PART).max(1)) } else { Nanos::SECOND }
}

/// Returns the factor by which a trial may overstate the rate that the DUT can sustain: up to 1 + timeout ÷ duration.
/// The reason is that the DUT can still answer queries during the timeout that follows the last query. The factor is 1
/// if the timeout is not longer than [`default_timeout`].
pub fn overstatement(duration: Nanos, timeout: Nanos) -> f64 {
    if timeout <= default_timeout(duration) {
        1.0
    } else {
        1.0 + timeout.0 as f64 / duration.0.max(1) as f64
    }
}

/// Interval that contains the DUT's maximum rate, in queries per second. The lower end comes from passed trials, and
/// the upper end from failed trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Interval {
    /// Lower end of the interval. Each search has a highest passed rate; the smallest of these rates is divided by the
    /// factor that [`overstatement`] returns. Absent if a search found no passing rate.
    pub from: Option<f64>,
    /// Upper end of the interval. Each search has a lowest failed rate; the upper end is the largest of these rates.
    /// Absent if a search found no failing rate.
    pub to: Option<f64>,
}

impl Interval {
    /// Returns the interval that follows from the results of one or more searches. `overstated` is the factor returned
    /// by [`overstatement`]; it is at least 1.
    pub fn of(found: &[Found], overstated: f64) -> Interval {
        let each = |rate: fn(&Found) -> Option<Qps>| -> Option<Vec<Qps>> {
            found.iter().map(rate).collect()
        };
        let passed = each(|f| f.highest).and_then(|all| all.into_iter().min());
        let failed = each(|f| f.failed).and_then(|all| all.into_iter().max());
        Interval {
            from: passed.map(|rate| lower_end(rate, overstated)),
            to: failed.map(|rate| rate.0 as f64),
        }
    }

    /// Returns the bounds of the ratio of this interval's rate (a) to the rate of `other` (b): [a.from ÷ b.to, a.to ÷
    /// b.from].
    pub fn ratio_to(&self, other: &Interval) -> Ratio {
        let quotient =
            |a: Option<f64>, b: Option<f64>| a.zip(b.filter(|&b| b > 0.0)).map(|(a, b)| a / b);
        Ratio { from: quotient(self.from, other.to), to: quotient(self.to, other.from) }
    }
}

/// Returns the lower end of an interval: a passed rate divided by the factor `overstated` (see [`overstatement`]). If
/// this factor is above 1, the result is rounded down to whole queries per second.
pub fn lower_end(passed: Qps, overstated: f64) -> f64 {
    if overstated > 1.0 { (passed.0 as f64 / overstated).floor() } else { passed.0 as f64 }
}

/// Lower and upper bound of the ratio of two servers' rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Ratio {
    /// Lower bound of the ratio; absent if the ratio has no lower bound.
    pub from: Option<f64>,
    /// Upper bound of the ratio; absent if the ratio has no upper bound.
    pub to: Option<f64>,
}

impl Ratio {
    /// True if 1 lies outside the bounds, so that the ratio shows which server is faster.
    pub fn is_decided(&self) -> bool {
        self.from.is_some_and(|from| from > 1.0) || self.to.is_some_and(|to| to < 1.0)
    }

    /// Returns the ratio with two decimals: the lower bound rounded down, the upper bound rounded up.
    #[must_use]
    pub fn rounded(self) -> Ratio {
        // The small terms correct quotients of binary fractions that should be whole hundredths.
        Ratio {
            from: self.from.map(|from| (from * 100.0 + 1e-6).floor() / 100.0),
            to: self.to.map(|to| (to * 100.0 - 1e-6).ceil() / 100.0),
        }
    }
}

/// Statistics of all searches at one measurement point, in queries per second. Each value is present only if there are
/// enough searches to compute it.
///
/// A search in which the tester could not measure any rate is omitted. A search that found no passing rate is sorted
/// below all other searches. Its rate is absent instead of 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Figures {
    /// Number of searches in which at least one rate passed or failed.
    pub n: usize,
    /// Number of searches in which at least one rate failed but no rate passed.
    #[serde(default)]
    pub without_pass: usize,
    /// Median of the highest passed rates. The median is absent if there are no searches, if one of the middle searches
    /// found no passing rate, or if a later trial failed at or below this median.
    pub median: Option<f64>,
    /// Rate of a later trial that failed at or below the median; absent if there was no such failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuted_at: Option<Qps>,
    /// 1st percentile of the highest passed rates; absent if there are fewer than 20 searches.
    pub p1: Option<f64>,
    /// 99th percentile of the highest passed rates; absent if there are fewer than 20 searches.
    pub p99: Option<f64>,
    /// Smallest of the highest passed rates of the searches; absent if a search found no passing rate.
    pub min: Option<f64>,
    /// Largest of the highest passed rates of the searches; absent if no search found a passing rate.
    pub max: Option<f64>,
    /// Dispersion of the highest passed rates: (max − min) ÷ median · 100 %, to two decimals. Absent if there are fewer
    /// than 2 searches, or if the maximum, minimum or median is absent.
    pub dispersion_pct: Option<f64>,
    /// Interval that contains the DUT's maximum rate.
    pub interval: Interval,
}

impl Figures {
    /// Computes the statistics of searches that were run with the given resolution. `overstated` is the factor by which
    /// a trial may overstate rates (see [`Interval::of`]).
    pub fn of(found: &[Found], overstated: f64, resolution: Qps) -> Figures {
        let telling: Vec<Found> = found.iter().filter(|f| !f.is_unmeasurable()).copied().collect();
        let mut rates: Vec<Option<Qps>> = telling.iter().map(|f| f.highest).collect();
        rates.sort_unstable();
        let n = rates.len();
        let rate = |at: usize| rates.get(at).copied().flatten().map(|rate| rate.0 as f64);
        // Percentiles are computed by nearest rank. RFC 8219 uses minimum and maximum for fewer than 100 results.
        let (cut, last) = (n / 100, n.saturating_sub(1));
        let has_percentiles = n >= PERCENTILES_FROM;
        let (median, min, max) = (median(&rates, resolution), rate(0), rate(last));
        Figures {
            n,
            without_pass: rates.iter().filter(|rate| rate.is_none()).count(),
            median,
            refuted_at: None,
            p1: rate(cut).filter(|_| has_percentiles),
            p99: rate(last - cut).filter(|_| has_percentiles),
            min,
            max,
            dispersion_pct: (median.zip(min).zip(max).filter(|_| n >= 2))
                .map(|((median, min), max)| two_decimals((max - min) / median * 100.0)),
            interval: Interval::of(&telling, overstated),
        }
    }

    /// Removes the upper end of the interval if it is above `allowed`, the rate up to which a self-test validates the
    /// tester. A failure above that rate may be caused by the tester, so it is no upper bound for the DUT's rate.
    #[must_use]
    pub fn validated_to(mut self, allowed: Option<Qps>) -> Figures {
        let is_valid = |failed: &f64| allowed.is_none_or(|allowed| *failed <= allowed.0 as f64);
        self.interval.to = self.interval.to.filter(is_valid);
        self
    }

    /// Records that a later trial failed at `rate`. Passed rates at or above `rate` no longer count, and a median at or
    /// above `rate` is removed. If the lower end of the interval is above `below`, it is reduced to `below`. `below` is
    /// the lower end that follows from the highest passed rate under `rate`. If `below` is absent, the interval loses
    /// its lower end.
    pub fn refute(&mut self, rate: Qps, below: Option<f64>) {
        self.interval.from = self.interval.from.zip(below).map(|(from, below)| from.min(below));
        if self.median.is_some_and(|median| rate.0 as f64 <= median) || self.refuted_at.is_some() {
            self.refuted_at = Some(self.refuted_at.map_or(rate, |known| known.min(rate)));
            (self.median, self.dispersion_pct) = (None, None);
        }
    }

    /// True if the median equals the lower end of the interval, and the interval has no upper end. Only such a median
    /// is shown with "≥".
    pub fn is_at_least(&self) -> bool {
        self.interval.to.is_none() && self.median.is_some() && self.median == self.interval.from
    }
}

/// Returns the median of a list of rates in ascending order: the middle rate or, for an even number of rates, the mean
/// of the two middle rates. If these two rates differ, the mean is rounded down to a multiple of the largest power of
/// ten that does not exceed `resolution`. If the rounded mean is below the lower rate, the lower rate is returned.
/// Otherwise, the median is exact. Returns `None` if the list is empty, or if a middle rate is absent.
pub fn median(sorted: &[Option<Qps>], resolution: Qps) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let (Qps(lower), Qps(upper)) = (sorted[last / 2]?, sorted[sorted.len() / 2]?);
    let step = 10u64.pow(resolution.0.max(1).ilog10());
    Some((u64::midpoint(lower, upper) / step * step).max(lower) as f64)
}

/// Rounds a value to four significant digits, for the efficiency of a server (CPRDP).
pub fn four_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    // Multiplying and dividing by whole powers of ten leaves no binary remainder.
    match digits {
        ..0 => (value / 10f64.powi(-digits)).round() * 10f64.powi(-digits),
        _ => (value * 10f64.powi(digits)).round() / 10f64.powi(digits),
    }
}

fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
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

    /// Returns the figures of searches with a resolution of 1 query/s and an overstatement of 1.
    fn of(found: &[Found]) -> Figures {
        Figures::of(found, 1.0, Qps(1))
    }

    #[test]
    fn failures_above_the_validated_rate_do_not_bound() {
        let figures = of(&[found(Some(900), Some(1000))]);
        let to = |allowed| figures.validated_to(allowed).interval.to;
        assert_eq!(
            (to(None), to(Some(Qps(1000))), to(Some(Qps(999)))),
            (Some(1000.0), Some(1000.0), None)
        );
    }

    #[test]
    fn an_interval_spans_smallest_pass_to_largest_fail() {
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
    fn a_ratio_is_decided_if_it_excludes_one() {
        let interval =
            |from: u64, to: u64| Interval { from: Some(from as f64), to: Some(to as f64) };
        let ratio = interval(60, 80).ratio_to(&interval(10, 20));
        assert_eq!((ratio.from, ratio.to, ratio.is_decided()), (Some(3.0), Some(8.0), true));
        assert!(!interval(60, 80).ratio_to(&interval(70, 90)).is_decided());
        assert!(interval(10, 20).ratio_to(&interval(60, 80)).is_decided());
        // The maximum rate of both servers may be 20.
        assert!(!interval(10, 20).ratio_to(&interval(20, 30)).is_decided());
        assert!(!interval(20, 30).ratio_to(&interval(10, 20)).is_decided());
        // A ratio of nothing to nothing is undefined.
        let nothing = interval(10, 20).ratio_to(&interval(0, 0));
        assert_eq!((nothing.from, nothing.to), (None, None));
        // The smoke run of November 2026: the ratio of "at least 66 000" to [1 000, 3 500) is "at
        // least 18", not 66.
        let open = Interval { from: Some(66_000.0), to: None };
        let ratio = open.ratio_to(&interval(1_000, 3_500));
        assert_eq!((ratio.from.unwrap().floor(), ratio.to), (18.0, None));
        assert!(!open.ratio_to(&open).is_decided());
    }

    #[test]
    fn statistics_wait_for_enough_searches() {
        let same = |n: usize| vec![found(Some(1000), Some(1001)); n];
        let one = of(&same(1));
        assert_eq!((one.median, one.dispersion_pct, one.p1), (Some(1000.0), None, None));
        assert_eq!(of(&same(2)).dispersion_pct, Some(0.0));
        assert_eq!(of(&same(19)).p1, None);
        assert_eq!(of(&same(20)).p99, Some(1000.0));
    }

    #[test]
    fn percentiles_are_the_extremes_below_100_searches() {
        let ranks = |n: u64| of(&(1..=n).map(|i| found(Some(i), None)).collect::<Vec<_>>());
        let percentiles = |n| (ranks(n).p1, ranks(n).p99);
        assert_eq!(percentiles(20), (Some(1.0), Some(20.0)));
        assert_eq!(percentiles(100), (Some(2.0), Some(99.0)));
    }

    #[test]
    fn a_search_without_a_passing_rate_is_not_zero() {
        let (nowhere, low, high) =
            (found(None, Some(100)), found(Some(100), Some(101)), found(Some(300), Some(301)));
        let figures = |each: &[Found]| {
            let f = of(each);
            (f.n, f.without_pass, f.median, f.min, f.max, f.dispersion_pct)
        };
        assert_eq!(figures(&[]), (0, 0, None, None, None, None));
        assert_eq!(figures(&[nowhere]), (1, 1, None, None, None, None));
        assert_eq!(figures(&[nowhere, high]), (2, 1, None, None, Some(300.0), None));
        // The search in the middle found a passing rate.
        let one_of_three = [high, nowhere, low];
        assert_eq!(figures(&one_of_three), (3, 1, Some(100.0), None, Some(300.0), None));
        assert_eq!(
            figures(&[high, low]),
            (2, 0, Some(200.0), Some(100.0), Some(300.0), Some(100.0))
        );
    }

    #[test]
    fn an_unmeasurable_search_is_not_zero() {
        let blocked =
            Found { highest: None, failed: None, lower_bound: true, unmeasurable: Some(Qps(10)) };
        assert_eq!((of(&[blocked]).n, of(&[blocked]).median), (0, None));
        let both = of(&[blocked, found(Some(50), Some(60))]);
        assert_eq!((both.n, both.median, both.interval.from), (1, Some(50.0), Some(50.0)));
    }

    #[test]
    fn a_failed_trial_refutes_a_median_at_or_above_it() {
        let figures = |rate: u64, below: Option<f64>| {
            let mut figures = of(&[found(Some(200), Some(300)), found(Some(400), Some(500))]);
            figures.refute(Qps(rate), below);
            figures
        };
        let above = figures(350, Some(200.0));
        assert_eq!((above.median, above.refuted_at), (Some(300.0), None));
        let at = figures(300, Some(200.0));
        assert_eq!((at.median, at.dispersion_pct, at.refuted_at), (None, None, Some(Qps(300))));
        assert_eq!((at.interval.from, at.max), (Some(200.0), Some(400.0)));
        let mut twice = figures(300, Some(200.0));
        twice.refute(Qps(150), None);
        assert_eq!((twice.refuted_at, twice.interval.from), (Some(Qps(150)), None));
    }

    #[test]
    fn only_a_proven_lower_end_without_an_upper_one_is_at_least() {
        let open = found(Some(400), None);
        assert!(of(&[open]).is_at_least() && of(&[open, open]).is_at_least());
        assert!(!of(&[open, found(Some(300), None)]).is_at_least(), "300 is proven, not 350");
        assert!(!of(&[found(Some(400), Some(500))]).is_at_least());
        assert!(!Figures::of(&[open], 1.5, Qps(1)).is_at_least());
        assert!(!of(&[]).is_at_least() && !of(&[found(None, Some(100))]).is_at_least());
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
    fn only_the_mean_of_two_rates_is_rounded() {
        let of = |rates: &[u64], resolution| {
            let rates: Vec<_> = rates.iter().map(|&rate| Some(Qps(rate))).collect();
            median(&rates, Qps(resolution))
        };
        assert_eq!(of(&[], 1), None);
        assert_eq!(of(&[22_875], 3_000), Some(22_875.0), "a rate that was tried");
        assert_eq!(of(&[200, 200], 1_000), Some(200.0), "a rate that was tried");
        assert_eq!(of(&[1_000, 22_875, 30_000], 3_000), Some(22_875.0));
        assert_eq!(of(&[22_875, 25_312], 3_000), Some(24_000.0));
        assert_eq!(of(&[65_535, 65_536], 1), Some(65_535.0));
        assert_eq!(of(&[250, 260], 100), Some(250.0), "not below the lower one");
        assert_eq!(of(&[1_000, 3_050], 200), Some(2_000.0));
    }

    #[test]
    fn ratios_have_two_decimals_and_claim_no_more() {
        let ratio = |from: f64, to: f64| {
            let Ratio { from, to } = Ratio { from: Some(from), to: Some(to) }.rounded();
            (from.unwrap(), to.unwrap())
        };
        assert_eq!(ratio(1.419, 2.001), (1.41, 2.01));
        assert_eq!(ratio(1.1, 2.2), (1.1, 2.2));
        assert_eq!(ratio(66_000.0 / 3_500.0, 3.0), (18.85, 3.0));
    }

    #[test]
    fn efficiency_has_four_significant_digits() {
        for (value, rounded) in [
            (23_419.5, 23_420.0),
            (6_847.4, 6_847.0),
            (123.45, 123.5),
            (0.123_449, 0.1234),
            (9_999.6, 10_000.0),
            (1_234_567.0, 1_235_000.0),
            (0.0, 0.0),
        ] {
            assert_eq!(four_digits(value), rounded, "{value}");
        }
        assert!(four_digits(f64::INFINITY).is_infinite());
    }
}
