//! Median, percentiles and dispersion of repeated searches (RFC 8219 §9.2; equation 3 of G. Lencse
//! and A. Pivoda, "Checking and Increasing the Accuracy of the Dns64perf++ Measurement Tool for
//! Benchmarking DNS64 Servers", 2018, DOI 10.11601/ijates.v7i1.255).

use serde::{Deserialize, Serialize};

/// Summary of a set of results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Summary {
    /// Number of results.
    pub n: usize,
    /// Median. For an even number of results, it is the mean of the two middle results.
    pub median: f64,
    /// The 1st percentile by nearest rank; the minimum if there are fewer than 100 results.
    pub p1: f64,
    /// The 99th percentile by nearest rank; the maximum if there are fewer than 100 results.
    pub p99: f64,
    /// The smallest result, in the unit of the results.
    pub min: f64,
    /// The largest result, in the unit of the results.
    pub max: f64,
    /// Dispersion of the results: (max − min) / median · 100 %; absent if the median is 0.
    pub dispersion_pct: Option<f64>,
}

impl Summary {
    /// Computes the summary of `values`, which may be in any order. Returns `None` if there are no values.
    ///
    /// # Panics
    /// Panics if a value is NaN. Results are counts and therefore never NaN.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(|a, b| a.partial_cmp(b).expect("results are counts, never NaN"));
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let n = sorted.len();
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        // RFC 8219 uses minimum and maximum as percentiles for fewer than 100 results. The nearest rank from the
        // outside, with ⌊n/100⌋ results cut at each end, gives the same without a special case.
        let cut = n / 100;
        Some(Summary {
            n,
            median,
            p1: sorted[cut],
            p99: sorted[n - 1 - cut],
            min,
            max,
            dispersion_pct: dispersion(min, median, max),
        })
    }

    /// Returns the summary with each value rounded by the function `round`. The dispersion is computed from the rounded
    /// values.
    #[must_use]
    pub fn rounded(self, round: fn(f64) -> f64) -> Summary {
        let [median, p1, p99, min, max] =
            [self.median, self.p1, self.p99, self.min, self.max].map(round);
        let dispersion_pct = dispersion(min, median, max);
        Summary { n: self.n, median, p1, p99, min, max, dispersion_pct }
    }
}

/// Returns the dispersion of results in per cent; `None` if the median is 0.
fn dispersion(min: f64, median: f64, max: f64) -> Option<f64> {
    (median > 0.0).then(|| (max - min) / median * 100.0)
}

/// Mean and sample standard deviation of a set of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MeanAndDeviation {
    /// Number of values.
    pub n: usize,
    /// Mean, in the unit of the values.
    pub mean: f64,
    /// Sample standard deviation, in the unit of the values; 0 for a single value.
    pub stdev: f64,
}

impl MeanAndDeviation {
    /// Computes the mean and standard deviation of `values`, which may be in any order. Returns `None` if there are no
    /// values.
    pub fn of(values: &[f64]) -> Option<MeanAndDeviation> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Some(MeanAndDeviation { n, mean, stdev: (squares / (n as f64 - 1.0).max(1.0)).sqrt() })
    }
}

/// Returns an interval that contains the true median with a probability of at least 95 %, for any distribution of the
/// values. The interval reaches from the k-th smallest to the k-th largest value. The number k follows from the
/// binomial distribution (Le Boudec, "Performance Evaluation of Computer and Communication Systems", EPFL Press 2010,
/// theorem 2.1). Returns `None` for fewer than 6 values, which are not sufficient.
///
/// # Panics
/// Panics if a value is NaN.
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len();
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("results are never NaN"));
    // The probability that exactly i of n values are below the median, starting with i = 0.
    let mut exactly = 0.5_f64.powi(i32::try_from(n).ok()?);
    let (mut outside, mut k) = (0.0, 0);
    for i in 0..n {
        outside += 2.0 * exactly;
        if outside > 0.05 {
            break;
        }
        k = i + 1;
        exactly *= (n - i) as f64 / (i + 1) as f64;
    }
    (k > 0).then(|| (sorted[k - 1], sorted[n - k]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_medians_interval_has_the_ranks_of_the_tables() {
        // Ranks for 95 % as listed in the book's appendix.
        for (n, lower, upper) in
            [(6, 1, 6), (8, 1, 8), (9, 2, 8), (20, 6, 15), (30, 10, 21), (50, 18, 33)]
        {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            assert_eq!(median_interval(&values), Some((f64::from(lower), f64::from(upper))), "{n}");
        }
        assert_eq!(median_interval(&[1.0; 5]), None);
    }

    #[test]
    fn dispersion_of_the_papers_tables_2_and_3() {
        // Table II, corrected: median 54 853, 54 223 … 55 459, dispersion 2.25 %; Table III:
        // 177 051, 0.59 %.
        for (min, median, max, percent) in
            [(54_223.0, 54_853.0, 55_459.0, 2.25), (176_127.0, 177_051.0, 177_169.0, 0.59)]
        {
            let summary = Summary::of(&[max, median, min]).unwrap();
            assert_eq!((summary.min, summary.median, summary.max), (min, median, max));
            assert!((summary.dispersion_pct.unwrap() - percent).abs() < 0.01, "{summary:?}");
        }
    }

    #[test]
    fn percentiles_are_the_extremes_below_100_results() {
        let twenty: Vec<f64> = (1..=20).map(f64::from).collect();
        let summary = Summary::of(&twenty).unwrap();
        assert_eq!((summary.p1, summary.p99, summary.median), (1.0, 20.0, 10.5));
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        let summary = Summary::of(&hundred).unwrap();
        assert_eq!((summary.p1, summary.p99), (2.0, 99.0));
    }

    #[test]
    fn rounded_values_have_the_dispersion_of_those_values() {
        let summary = Summary::of(&[1.4, 2.2, 3.4]).unwrap().rounded(f64::round);
        assert_eq!((summary.min, summary.median, summary.max), (1.0, 2.0, 3.0));
        assert_eq!((summary.n, summary.dispersion_pct), (3, Some(100.0)));
    }

    #[test]
    fn mean_and_sample_deviation() {
        assert_eq!(MeanAndDeviation::of(&[]), None);
        assert_eq!(
            MeanAndDeviation::of(&[3.0]),
            Some(MeanAndDeviation { n: 1, mean: 3.0, stdev: 0.0 })
        );
        let found = MeanAndDeviation::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        let wanted = (32.0f64 / 7.0).sqrt();
        assert!(
            found.n == 8
                && (found.mean - 5.0).abs() < 1e-12
                && (found.stdev - wanted).abs() < 1e-12
        );
    }

    #[test]
    fn small_and_degenerate_sets() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.p1, one.median, one.p99, one.dispersion_pct), (7.0, 7.0, 7.0, Some(0.0)));
        assert_eq!(Summary::of(&[0.0, 0.0]).unwrap().dispersion_pct, None);
    }
}
