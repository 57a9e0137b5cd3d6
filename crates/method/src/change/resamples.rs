//! The medians of all resamples of a set, and the probability of each median. An infinite bootstrap would give the same
//! probabilities (A. Hutson, M. Ernst, "The Exact Bootstrap Mean and Variance of an L-estimator", Journal of the Royal
//! Statistical Society B 62, 2000, DOI 10.1111/1467-9868.00221).

/// Maximum number of draws per resample. More draws would hardly reduce the scatter of the median, and the products in
/// the computation would exceed the range of floating-point numbers.
const MOST_DRAWS: usize = 1_000;

/// Medians of resamples in ascending order, with the probability of each median and the cumulative probabilities.
pub(super) struct Medians {
    values: Vec<f64>,
    up_to: Vec<f64>,
    each: Vec<f64>,
}

impl Medians {
    /// Computes the medians of all resamples of `sorted`. Each resample consists of `draws` values.
    pub(super) fn of(sorted: &[f64], draws: usize) -> Medians {
        let draws = draws.clamp(1, MOST_DRAWS);
        let mut all = if draws % 2 == 1 { odd(sorted, draws) } else { even(sorted, draws) };
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sum = 0.0;
        let up_to = all.iter().map(|(_, probability)| {
            sum += probability;
            sum
        });
        let up_to = up_to.collect();
        let (values, each) = all.into_iter().unzip();
        Medians { values, up_to, each }
    }

    /// Returns the probability that the median is at most `value`.
    fn up_to(&self, value: f64) -> f64 {
        match self.values.partition_point(|median| *median <= value) {
            0 => 0.0,
            n => self.up_to[n - 1],
        }
    }

    /// Returns the ratios of the possible medians of this set to the possible medians of `other`.
    pub(super) fn ratio_to<'a>(&'a self, other: &'a Medians) -> Ratios<'a> {
        Ratios { of: self, to: other }
    }
}

/// Ratios between two sets of resamples: each possible median of one set, divided by each possible median of the other.
/// Each ratio has a probability.
pub(super) struct Ratios<'a> {
    of: &'a Medians,
    to: &'a Medians,
}

impl Ratios<'_> {
    /// Returns the probability that the ratio is at most `ratio`. If the divisor is 0, the ratio counts as infinite; if
    /// the divisor is infinite, the ratio counts as 0.
    fn up_to(&self, ratio: f64) -> f64 {
        let each = self.to.values.iter().zip(&self.to.each);
        each.map(|(&divisor, probability)| match divisor {
            0.0 => 0.0,
            f64::INFINITY => *probability,
            _ => probability * self.of.up_to(ratio * divisor),
        })
        .sum()
    }

    /// Returns the lower bound of the ratio: the quantile `tail`. The bound is 0 if the ratio is 0 with a probability
    /// above `tail`. Returns `None` if there is no bound.
    pub(super) fn below(&self, tail: f64) -> Option<f64> {
        self.first_beyond(tail)
    }

    /// Returns the upper bound of the ratio: the quantile 1 − `tail`. Returns `None` if there is no bound.
    pub(super) fn above(&self, tail: f64) -> Option<f64> {
        // Allow for the rounding error of a sum of many probabilities.
        self.first_beyond(1.0 - tail - 1e-12)
    }

    /// Returns the quantile `share` of the ratio: the lowest value at which the cumulative probability exceeds `share`.
    /// Returns `None` if this value is infinite, or above 16¹² (about 3 · 10¹⁴).
    fn first_beyond(&self, share: f64) -> Option<f64> {
        let (mut low, mut high) = (0.0, 1.0);
        if self.up_to(low) > share {
            return Some(low);
        }
        while self.up_to(high) <= share {
            high *= 16.0;
            if high > 1e15 {
                return None;
            }
        }
        loop {
            let middle = low + (high - low) / 2.0;
            if middle <= low || middle >= high {
                // There is no representable number between `low` and `high`.
                return Some(high);
            }
            if self.up_to(middle) > share { high = middle } else { low = middle }
        }
    }
}

/// Returns the possible medians of an odd number of draws, with the probability of each. These medians are values of
/// the set.
fn odd(sorted: &[f64], draws: usize) -> Vec<(f64, f64)> {
    let n = sorted.len();
    let up_to: Vec<f64> =
        (0..=n).map(|i| at_least(draws.div_ceil(2), draws, i as f64 / n as f64)).collect();
    sorted.iter().enumerate().map(|(i, &value)| (value, up_to[i + 1] - up_to[i])).collect()
}

/// Returns the possible medians of an even number of draws, with the probability of each. A median is the mean of the
/// two middle draws.
fn even(sorted: &[f64], draws: usize) -> Vec<(f64, f64)> {
    let (n, half) = (sorted.len(), draws / 2);
    let power = |i: usize| (i as f64 / n as f64).powi(i32::try_from(half).unwrap_or(i32::MAX));
    let ways = (ln_ways(draws, half)).exp();
    let mut all = Vec::with_capacity(n * (n + 1) / 2);
    for i in 0..n {
        let lower = at_least(half, draws, (i + 1) as f64 / n as f64)
            - at_least(half, draws, i as f64 / n as f64);
        let mut apart = 0.0;
        for j in i + 1..n {
            let probability = ways * (power(i + 1) - power(i)) * (power(n - j) - power(n - j - 1));
            apart += probability;
            all.push(((sorted[i] + sorted[j]) / 2.0, probability));
        }
        all.push((sorted[i], (lower - apart).max(0.0)));
    }
    all
}

/// Returns the probability that an event of probability `hit` occurs in at least `k` of `draws` draws (binomial
/// distribution).
fn at_least(k: usize, draws: usize, hit: f64) -> f64 {
    if hit >= 1.0 {
        // The event is certain. Its complement has probability 0, which has no logarithm.
        return 1.0;
    }
    let term = |i: usize| {
        (ln_ways(draws, i) + i as f64 * hit.ln() + (draws - i) as f64 * (1.0 - hit).ln()).exp()
    };
    (k..=draws).map(term).sum::<f64>().min(1.0)
}

/// Returns the natural logarithm of the number of ways to choose `k` of `n` elements.
fn ln_ways(n: usize, k: usize) -> f64 {
    (0..k.min(n - k)).map(|i| ((n - i) as f64 / (i + 1) as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enumerates all resamples.
    fn enumerated(sorted: &[f64], draws: usize) -> Vec<(f64, f64)> {
        let n = sorted.len();
        let all = n.pow(u32::try_from(draws).unwrap());
        let mut counts: std::collections::BTreeMap<u64, usize> = std::collections::BTreeMap::new();
        for number in 0..all {
            let mut values: Vec<f64> =
                (0..draws).map(|d| sorted[number / n.pow(d as u32) % n]).collect();
            values.sort_by(f64::total_cmp);
            let median = (values[(draws - 1) / 2] + values[draws / 2]) / 2.0;
            *counts.entry(median.to_bits()).or_default() += 1;
        }
        counts.into_iter().map(|(bits, n)| (f64::from_bits(bits), n as f64 / all as f64)).collect()
    }

    #[test]
    fn the_probabilities_are_those_of_all_resamples() {
        for sorted in
            [&[10.0, 20.0, 70.0][..], &[5.0], &[1.0, 1.0, 2.0, 9.0], &[3.0, 4.0, 8.0, 16.0, 17.0]]
        {
            for draws in 1..=6 {
                let medians = Medians::of(sorted, draws);
                assert!((medians.up_to.last().unwrap() - 1.0).abs() < 1e-12);
                for (value, _) in enumerated(sorted, draws) {
                    let wanted: f64 = enumerated(sorted, draws)
                        .iter()
                        .filter(|(v, _)| *v <= value)
                        .map(|(_, p)| p)
                        .sum();
                    let got = medians.up_to(value);
                    assert!(
                        (got - wanted).abs() < 1e-12,
                        "{sorted:?}, {draws} draws, up to {value}: {got}, {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    fn many_draws_come_close_to_the_median() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        for draws in [500, 501, 999, 1_000, 5_000] {
            let medians = Medians::of(&values, draws);
            assert!((medians.up_to.last().unwrap() - 1.0).abs() < 1e-9, "{draws}");
            assert!(medians.up_to(3.0) - medians.up_to(2.9) > 0.99, "{draws}");
        }
    }

    #[test]
    fn ratios_without_bounds_are_open() {
        let (some, none, nothing) = ([2.0, 4.0], [f64::INFINITY; 2], [0.0; 2]);
        let [some, none, nothing] = [some, none, nothing].map(|set| Medians::of(&set, 2));
        assert_eq!(some.ratio_to(&none).below(0.025), Some(0.0));
        assert_eq!(none.ratio_to(&some).above(0.025), None);
        assert_eq!(some.ratio_to(&nothing).above(0.025), None);
        assert_eq!(nothing.ratio_to(&some).above(0.025), Some(0.0));
        let ratios = some.ratio_to(&some);
        assert_eq!((ratios.below(0.01), ratios.above(0.01)), (Some(0.5), Some(2.0)));
        assert_eq!(nothing.ratio_to(&nothing).above(0.025), None);
    }

    /// A cumulative probability equal to the share does not exceed the share.
    #[test]
    fn a_share_that_is_reached_exactly_is_not_exceeded() {
        let [halves, two, some] =
            [&[2.0, 4.0][..], &[2.0], &[0.0, 4.0]].map(|set| Medians::of(set, 1));
        let ratios = halves.ratio_to(&two);
        assert_eq!((ratios.below(0.5), ratios.above(0.5)), (Some(2.0), Some(1.0)));
        assert_eq!(some.ratio_to(&two).below(0.5), Some(2.0));
        assert_eq!(some.ratio_to(&two).below(0.49), Some(0.0));
    }
}
