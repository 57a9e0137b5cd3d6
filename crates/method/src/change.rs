//! Comparison of a server's rate with the rate of a baseline. The program computes the ratio of the two medians and
//! compares the 95 % confidence interval for this ratio with a limit.
//!
//! ```text
//! searches of the baseline  ─► medians of all resamples ─┐
//!                                                        ├─► interval of the ratio ─► regressed, no regression,
//! searches of the candidate ─► medians of all resamples ─┘                            improved, undecided
//! ```
//!
//! The interval is computed by a bootstrap over searches (B. Efron, "Bootstrap Methods: Another Look at the Jackknife",
//! Annals of Statistics 7, 1979, DOI 10.1214/aos/1176344552). Instead of drawing random resamples, the program computes
//! the probability of each possible median ([`resamples`]). The same searches therefore always give the same interval.
//! Percentile intervals computed from few values are too short. The percentiles are therefore moved outwards as in T.
//! Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69, 2015, DOI
//! 10.1080/00031305.2015.1089789, section 5.1. The shift is computed from Student's t distribution with n − 1 degrees
//! of freedom, and from the factor √(n ÷ (n − 1)). Here, n is the number of searches in the smaller of the two sets.
//!
//! A search proves only that the server's maximum rate lies between a rate that passed and a rate that failed. The
//! lower end of the interval is therefore a rate that the candidate passed divided by a rate that the baseline failed.
//! The upper end is a rate that the candidate failed divided by a rate that the baseline passed. A coarse resolution
//! widens the interval but cannot make the outcome wrong.

mod resamples;

use serde::{Deserialize, Serialize};

use crate::precision::Ratio;
use crate::search::Found;
use resamples::Medians;

/// Minimum number of searches per server. With three searches per server, the results of two equally fast servers do
/// not overlap in 2 of the 20 possible orders. Fewer than four searches per server are therefore not sufficient at a
/// significance level of 5 %.
pub const LEAST_SEARCHES: usize = 4;
/// Maximum number of searches per server, existing and further ones together, that [`WouldDecide`] suggests.
pub(crate) const MOST_SEARCHES: usize = 1_000;

/// Results of all searches for one server at one measurement point.
#[derive(Clone, Debug, PartialEq)]
pub struct Searches {
    /// Passed rates of the searches in ascending order. A search in which no rate passed has the passed rate 0.
    passed: Vec<f64>,
    /// Failed rates of the searches in ascending order. A search in which no rate failed has an infinite failed rate.
    failed: Vec<f64>,
}

impl Searches {
    /// Selects the searches in `found`, except those in which the tester could not measure even the lowest rate.
    /// `overstated` is the factor (at least 1) by which a trial may overstate the server's sustainable rate
    /// ([`crate::precision::overstatement`]). Failures above `proven` queries per second are ignored, because a
    /// self-test validates the tester only up to that rate.
    pub fn of(found: &[Found], overstated: f64, proven: Option<u64>) -> Searches {
        let telling: Vec<&Found> =
            found.iter().filter(|search| !search.is_unmeasurable()).collect();
        let passed = telling
            .iter()
            .map(|search| search.highest.map_or(0.0, |rate| rate.0 as f64 / overstated.max(1.0)));
        let failed = telling.iter().map(|search| {
            let failed = search.failed.filter(|rate| proven.is_none_or(|proven| rate.0 <= proven));
            failed.map_or(f64::INFINITY, |rate| rate.0 as f64)
        });
        Searches { passed: sorted(passed.collect()), failed: sorted(failed.collect()) }
    }

    /// Returns the searches of both sets in one set.
    pub fn and(mut self, other: &Searches) -> Searches {
        self.passed.extend(&other.passed);
        self.failed.extend(&other.failed);
        Searches { passed: sorted(self.passed), failed: sorted(self.failed) }
    }

    /// Returns the number of searches.
    pub fn len(&self) -> usize {
        self.passed.len()
    }

    /// True if there are no searches.
    pub fn is_empty(&self) -> bool {
        self.passed.is_empty()
    }

    /// Returns the median of the passed rates in queries per second. Returns `None` if there is no search, or if one of
    /// the searches in the middle of the sorted list found no passing rate.
    fn median(&self) -> Option<f64> {
        let n = self.passed.len();
        let lower = *self.passed.get(n.checked_sub(1)? / 2)?;
        median(&self.passed).filter(|_| lower > 0.0)
    }
}

fn sorted(mut rates: Vec<f64>) -> Vec<f64> {
    rates.sort_by(f64::total_cmp);
    rates
}

fn median(sorted: &[f64]) -> Option<f64> {
    let n = sorted.len();
    (n > 0).then(|| (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0)
}

/// Result of comparing a server with a baseline: the confidence interval for the ratio of the two medians is compared
/// with 1 minus the tolerated decrease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOutcome {
    /// The whole confidence interval is below 1 minus the tolerated decrease: the server is slower than tolerated.
    Regressed,
    /// The whole confidence interval is above 1 minus the tolerated decrease, but not all of it is above 1.
    NoRegression,
    /// The whole confidence interval is above 1: the server is faster than the baseline.
    Improved,
    /// The confidence interval contains 1 minus the tolerated decrease, so that the comparison is undecided.
    Undecided,
}

/// Condition under which an undecided comparison would be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WouldDecide {
    /// The comparison would be decided after this number of further searches per server, if their results vary as much
    /// as those of the existing searches.
    Searches(usize),
    /// More than this number of searches per server, including the existing ones, would be necessary, because the
    /// difference between the servers is close to the limit.
    MoreSearchesThan(usize),
    /// Searches with a finer resolution would be necessary. The limit lies in the gap between passed and failed rates,
    /// and further searches with the same resolution cannot narrow this gap.
    Resolution,
    /// Searches that find both a passed and a failed rate would be necessary. The existing searches of a server prove
    /// only a lower bound or only an upper bound.
    Bounds,
}

/// Result of comparing a candidate with a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Change {
    /// Number of the baseline's searches, without those in which the tester could not measure even the lowest rate.
    pub baseline_searches: usize,
    /// Number of the candidate's searches, without those in which the tester could not measure even the lowest rate.
    pub searches: usize,
    /// Median of the candidate's passed rates, divided by the median of the baseline's passed rates; absent if either
    /// median is absent.
    pub ratio: Option<f64>,
    /// The 95 % confidence interval for the ratio of the medians. The interval has no bounds if either server has fewer
    /// than [`LEAST_SEARCHES`] searches.
    pub interval: Ratio,
    /// Result of comparing the interval with the limit.
    pub outcome: ChangeOutcome,
    /// Condition under which the comparison would be decided; absent if it is already decided.
    pub wanted: Option<WouldDecide>,
}

/// Compares a candidate with a baseline. `limit` is the largest tolerated decrease of the rate, as a fraction from 0 to
/// 1.
pub fn compare(baseline: &Searches, candidate: &Searches, limit: f64) -> Change {
    let interval = interval(baseline, candidate, (baseline.len(), candidate.len()));
    let outcome = judge(&interval, limit);
    let (before, now) = (baseline.median(), candidate.median());
    Change {
        baseline_searches: baseline.len(),
        searches: candidate.len(),
        ratio: now.zip(before).map(|(now, before)| now / before),
        interval,
        outcome,
        wanted: (outcome == ChangeOutcome::Undecided).then(|| wanted(baseline, candidate, limit)),
    }
}

/// Compares the confidence interval for a ratio with the values 1 and 1 − `limit`, and returns the outcome.
fn judge(interval: &Ratio, limit: f64) -> ChangeOutcome {
    let least = 1.0 - limit;
    match interval {
        Ratio { from: Some(from), .. } if *from > 1.0 => ChangeOutcome::Improved,
        Ratio { from: Some(from), .. } if *from > least => ChangeOutcome::NoRegression,
        Ratio { to: Some(to), .. } if *to < least => ChangeOutcome::Regressed,
        _ => ChangeOutcome::Undecided,
    }
}

/// Returns the confidence interval that is expected for the ratio of the medians. `searches` contains the assumed
/// numbers of searches of the baseline and of the candidate. The results of further searches are assumed to vary as
/// much as those of the existing ones. If both assumed numbers are at least [`LEAST_SEARCHES`], each server must
/// already have at least one search.
fn interval(baseline: &Searches, candidate: &Searches, searches: (usize, usize)) -> Ratio {
    let fewest = searches.0.min(searches.1);
    if fewest < LEAST_SEARCHES {
        return Ratio { from: None, to: None };
    }
    let tail = tail(fewest);
    let [then_passed, then_failed] =
        [&baseline.passed, &baseline.failed].map(|all| Medians::of(all, searches.0));
    let [passed, failed] =
        [&candidate.passed, &candidate.failed].map(|all| Medians::of(all, searches.1));
    let from = passed.ratio_to(&then_failed).below(tail).filter(|&from| from > 0.0);
    Ratio { from, to: failed.ratio_to(&then_passed).above(tail) }
}

/// Returns the condition under which an undecided comparison would be decided.
fn wanted(baseline: &Searches, candidate: &Searches, limit: f64) -> WouldDecide {
    let fewest = baseline.len().min(candidate.len());
    if fewest == 0 {
        return WouldDecide::Searches(LEAST_SEARCHES);
    }
    let decides = |more: usize| {
        let planned =
            interval(baseline, candidate, (baseline.len() + more, candidate.len() + more));
        judge(&planned, limit) != ChangeOutcome::Undecided
    };
    // No number of searches makes the interval narrower than this.
    let quotient = |a: Option<f64>, b: Option<f64>| {
        a.zip(b).map(|(a, b)| a / b).filter(|ratio| ratio.is_finite())
    };
    let from =
        quotient(median(&candidate.passed), median(&baseline.failed)).filter(|&from| from > 0.0);
    let to = quotient(median(&candidate.failed), median(&baseline.passed));
    if judge(&Ratio { from, to }, limit) == ChangeOutcome::Undecided {
        return if from.is_none() || to.is_none() {
            WouldDecide::Bounds
        } else {
            WouldDecide::Resolution
        };
    }
    let most = MOST_SEARCHES.saturating_sub(fewest).max(1);
    let (mut short, mut enough) = (0, 1);
    while !decides(enough) {
        if enough == most {
            return WouldDecide::MoreSearchesThan(MOST_SEARCHES);
        }
        (short, enough) = (enough, (2 * enough).min(most));
    }
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        if decides(middle) { enough = middle } else { short = middle }
    }
    WouldDecide::Searches(enough)
}

/// Returns a probability p for the bootstrap of `n` values: the interval from the percentile for p to the percentile
/// for 1 − p is a 95 % interval.
fn tail(n: usize) -> f64 {
    let n = n.max(2) as f64;
    normal_below(-((n / (n - 1.0)).sqrt() * student(n - 1.0)))
}

/// Returns the 97.5th percentile of Student's t distribution with `freedom` degrees of freedom (M. Abramowitz, I.
/// Stegun, "Handbook of Mathematical Functions", 26.7.5). The result is accurate to 1 % for three or more degrees of
/// freedom.
fn student(freedom: f64) -> f64 {
    let z: f64 = 1.959_963_985;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1_482.0 * z.powi(5)
            - 1_920.0 * z.powi(3)
            - 945.0 * z)
            / 92_160.0,
    ];
    z + (1..).zip(terms).map(|(power, term)| term / freedom.powi(power)).sum::<f64>()
}

/// Returns the value of the normal distribution function at `x`, which must be below 0 (M. Abramowitz, I. Stegun,
/// "Handbook of Mathematical Functions", 26.2.17). The result is accurate to 10⁻⁷.
fn normal_below(x: f64) -> f64 {
    let t = 1.0 / (1.0 - 0.231_641_9 * x);
    let polynomial = t
        * (0.319_381_530
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

#[cfg(test)]
mod tests;
