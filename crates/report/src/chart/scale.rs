//! Axes: the positions of values, and the values that have tick marks.

use crate::chart::figure::UNEQUAL;

/// An axis: its range, and the values of its tick marks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scale {
    /// Linear axis from `low` to `high`. `marks` are the values at the tick marks.
    Linear { low: f64, high: f64, marks: Vec<f64> },
    /// Logarithmic axis from `bottom` to `top`. `marks` are the values at the tick marks.
    Logarithmic { bottom: f64, top: f64, marks: Vec<f64> },
}

/// Maximum number of positions on an axis with a tick mark at every position. If there are more positions, only round
/// numbers have tick marks.
const PLACES: usize = 12;

impl Scale {
    /// Creates a scale from 0 to at least `highest`.
    pub(super) fn linear(highest: f64) -> Scale {
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let step = ticks(highest);
        let n = (highest / step).ceil();
        Scale::Linear {
            low: 0.0,
            high: n * step,
            marks: (0..=n as usize).map(|i| i as f64 * step).collect(),
        }
    }

    /// Creates a scale on which all `values` are legible. The scale extends at least to the highest number in `values`
    /// and `tops`. Values at or below 0 are at the lower end of the scale.
    pub(super) fn for_all(values: &[f64], tops: impl Iterator<Item = f64>) -> Scale {
        let highest = values.iter().copied().chain(tops).fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|v| *v > 0.0);
        let (low, high) =
            positive.fold((f64::MAX, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        if high <= low * UNEQUAL {
            return Scale::linear(highest);
        }
        // A value that is a power of ten needs a visible bar too.
        let bottom = 10_f64.powf((low * 0.7).log10().floor());
        let top = 10_f64.powf(highest.log10().ceil());
        let decades = (top / bottom).log10().round() as i32;
        let between: &[f64] = if decades <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all =
            (0..=decades).flat_map(|d| between.iter().map(move |n| n * bottom * 10_f64.powi(d)));
        Scale::Logarithmic { bottom, top, marks: all.filter(|mark| *mark <= top * 1.001).collect() }
    }

    /// Creates a scale from the smallest to the largest of the positions `places`. If there are only a few positions,
    /// each of them has a tick mark.
    pub(super) fn for_places(places: &[f64]) -> Scale {
        let mut marks = places.to_vec();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        let (low, high) = match marks[..] {
            [] => (0.0, 1.0),
            [one] => (one - 1.0, one + 1.0),
            [low, .., high] => (low, high),
        };
        if low > 0.0 && high > low * UNEQUAL && marks.len() <= PLACES {
            return Scale::Logarithmic { bottom: low, top: high, marks };
        }
        if marks.len() > PLACES {
            let step = ticks(high - low);
            let first = (low / step).ceil() as i64;
            marks = (first..=(high / step).floor() as i64).map(|i| i as f64 * step).collect();
        }
        Scale::Linear { low, high, marks }
    }

    /// Creates a scale from the smallest to the largest of many rates, with some space at both ends. The tick marks are
    /// at round numbers.
    pub(super) fn for_rates(rates: &[f64]) -> Scale {
        let (low, high) = rates
            .iter()
            .fold((f64::MAX, 0.0_f64), |(low, high), &rate| (low.min(rate), high.max(rate)));
        if high <= 0.0 {
            return Scale::Linear { low: 0.0, high: 1.0, marks: vec![0.0, 1.0] };
        }
        let between = |low: f64, high: f64| move |mark: &f64| *mark >= low && *mark <= high;
        if low > 0.0 && high > low * UNEQUAL {
            let (bottom, top) = (low / 1.15, high * 1.15);
            let decades = bottom.log10().floor() as i32..=top.log10().ceil() as i32;
            let all = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|n| n * 10_f64.powi(d)));
            return Scale::Logarithmic {
                bottom,
                top,
                marks: all.filter(between(bottom, top)).collect(),
            };
        }
        let room = ((high - low) * 0.03).max(high * 0.01);
        let (low, high) = ((low - room).max(0.0), high + room);
        let step = ticks(high - low);
        let all = (low / step).floor() as i64..=(high / step).ceil() as i64;
        let marks = all.map(|i| i as f64 * step).filter(between(low, high)).collect();
        Scale::Linear { low, high, marks }
    }

    pub(super) fn is_logarithmic(&self) -> bool {
        matches!(self, Scale::Logarithmic { .. })
    }

    /// Returns the relative position of a value along the axis, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        match self {
            Scale::Linear { low, high, .. } => (value.max(*low) - low) / (high - low),
            Scale::Logarithmic { bottom, top, .. } => {
                (value.max(*bottom) / bottom).ln() / (top / bottom).ln()
            }
        }
    }

    /// Returns the values of the tick marks, in ascending order.
    pub(super) fn marks(&self) -> Vec<f64> {
        match self {
            Scale::Linear { marks, .. } | Scale::Logarithmic { marks, .. } => marks.clone(),
        }
    }
}

/// Returns a step of 1, 2 or 5 times a power of ten that divides `range` into three to eight parts.
fn ticks(range: f64) -> f64 {
    let rough = range / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|n| n * power)
        .find(|step| *step >= rough)
        .unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_spans_powers_of_ten_and_keeps_the_order() {
        let scale = Scale::for_all(&[1_000.0, 66_000.0, 0.0], [70_000.0].into_iter());
        assert!(scale.is_logarithmic());
        assert_eq!(scale.marks(), [100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5]);
        let places = [100.0, 1_000.0, 66_000.0, 100_000.0].map(|value| scale.share(value));
        assert!(places.is_sorted() && places[3] <= 1.0 + 1e-9, "{places:?}");
        assert!(scale.share(0.0).abs() < 1e-9, "zero is at the lower end");
    }

    #[test]
    fn similar_values_have_a_linear_axis_from_zero() {
        let scale = Scale::for_all(&[1_000.0, 19_000.0], std::iter::empty());
        assert!(!scale.is_logarithmic());
        assert_eq!(scale.marks().first(), Some(&0.0));
        assert!(!Scale::for_all(&[], std::iter::empty()).is_logarithmic());
    }

    #[test]
    fn few_places_are_marked_themselves() {
        assert_eq!(Scale::for_places(&[4.0, 1.0, 2.0, 1.0]).marks(), [1.0, 2.0, 4.0]);
        let wide = Scale::for_places(&[500.0, 1_000.0, 25_000.0]);
        assert!(
            wide.is_logarithmic()
                && wide.share(500.0) == 0.0
                && (wide.share(25_000.0) - 1.0).abs() < 1e-9
        );
        let seconds: Vec<f64> = (1..=180).map(f64::from).collect();
        let over_time = Scale::for_places(&seconds);
        assert!(
            !over_time.is_logarithmic() && over_time.marks().len() < PLACES,
            "{:?}",
            over_time.marks()
        );
        assert!((Scale::for_places(&[7.0]).share(7.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn many_rates_are_marked_at_round_numbers() {
        let near = Scale::for_rates(&[1_000.0, 2_937.0, 4_000.0]);
        assert_eq!(near.marks(), [1_000.0, 1_500.0, 2_000.0, 2_500.0, 3_000.0, 3_500.0, 4_000.0]);
        let far = Scale::for_rates(&[150.0, 131_072.0]);
        assert!(far.is_logarithmic() && far.share(150.0) > 0.0 && far.share(131_072.0) < 1.0);
        assert_eq!(far.marks()[..3], [200.0, 500.0, 1_000.0]);
        assert!(!Scale::for_rates(&[]).is_logarithmic());
    }

    #[test]
    fn an_axis_without_values_has_different_marks() {
        let marks: Vec<String> =
            Scale::linear(0.0).marks().into_iter().map(crate::format::number).collect();
        assert!(marks.windows(2).all(|two| two[0] != two[1]), "{marks:?}");
    }

    #[test]
    fn axes_have_a_handful_of_round_marks() {
        for range in [0.7, 3.0, 17.0, 99.0, 131_072.0, 1e-3] {
            let step = ticks(range);
            assert!((3.0..=10.0).contains(&(range / step)), "{range} by {step}");
        }
    }
}
