//! Vertical axes: where a value lies, and which values are marked.

use super::{BOTTOM, HEIGHT, TOP, UNEQUAL};

/// The vertical axis of a figure.
pub(super) enum Scale {
    /// From 0 to `top`, marked each `step`.
    Linear { top: f64, step: f64 },
    /// From `bottom` to `top`, both powers of ten.
    Logarithmic { bottom: f64, top: f64 },
}

impl Scale {
    /// From 0 to at least `highest`.
    pub(super) fn linear(highest: f64) -> Scale {
        let highest = highest.max(1e-9);
        let step = ticks(highest);
        Scale::Linear { top: (highest / step).ceil() * step, step }
    }

    /// One on which all `values` can be read, `room` times as high as the highest of them and of `tops` (1 is just as high).
    /// What is not above 0 lies on its floor.
    pub(super) fn for_all(values: &[f64], tops: impl Iterator<Item = f64>, room: f64) -> Scale {
        let highest = values.iter().copied().chain(tops).fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|v| *v > 0.0);
        let (low, high) = positive.fold((f64::MAX, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        if high <= low * UNEQUAL {
            return Scale::linear(highest * room);
        }
        // A value that is a power of ten itself needs a bar that can be seen.
        let bottom = 10_f64.powf((low * 0.7).log10().floor());
        Scale::Logarithmic { bottom, top: 10_f64.powf((highest * room).log10().ceil()) }
    }

    pub(super) fn is_logarithmic(&self) -> bool {
        matches!(self, Scale::Logarithmic { .. })
    }

    /// Where a value lies in the figure.
    pub(super) fn y(&self, value: f64) -> f64 {
        let share = match self {
            Scale::Linear { top, .. } => value.max(0.0) / top,
            Scale::Logarithmic { bottom, top } => (value.max(*bottom) / bottom).ln() / (top / bottom).ln(),
        };
        let floor = HEIGHT - BOTTOM;
        floor - share * (floor - TOP)
    }

    /// The values that are marked, from the least.
    pub(super) fn marks(&self) -> Vec<f64> {
        match *self {
            Scale::Linear { top, step } => (0..=(top / step).round() as usize).map(|i| i as f64 * step).collect(),
            Scale::Logarithmic { bottom, top } => {
                let decades = (top / bottom).log10().round() as i32;
                let between: &[f64] = if decades <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let all = (0..=decades).flat_map(|d| between.iter().map(move |n| n * bottom * 10_f64.powi(d)));
                all.filter(|mark| *mark <= top * 1.001).collect()
            }
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides `range` into three to eight.
pub(super) fn ticks(range: f64) -> f64 {
    let rough = range / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough).unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_spans_powers_of_ten_and_keeps_the_order() {
        let scale = Scale::for_all(&[1_000.0, 66_000.0, 0.0], [70_000.0].into_iter(), 1.0);
        assert!(scale.is_logarithmic());
        assert_eq!(scale.marks(), [100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5]);
        let places = [100_000.0, 66_000.0, 1_000.0, 100.0].map(|value| scale.y(value));
        assert!(places.is_sorted(), "{places:?}");
        assert!((scale.y(0.0) - (HEIGHT - BOTTOM)).abs() < 1e-9, "nothing lies on the floor");
    }

    #[test]
    fn values_of_one_size_keep_an_axis_from_nothing() {
        let scale = Scale::for_all(&[1_000.0, 19_000.0], std::iter::empty(), 1.0);
        assert!(!scale.is_logarithmic());
        assert_eq!(scale.marks().first(), Some(&0.0));
        assert!(!Scale::for_all(&[], std::iter::empty(), 1.0).is_logarithmic());
    }
}
