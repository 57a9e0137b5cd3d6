//! Cumulative histograms of times. The difference between two reads of a histogram covers the time between the reads.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::Nanos;

/// Maximum recorded time; longer times are clamped.
const LONGEST: u64 = 600 * Nanos::SECOND.0;

/// A histogram of times with a precision of 1 %. In JSON it is a list of `[nanoseconds, count]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(
            Histogram::new_with_bounds(1, LONGEST, 2)
                .expect("constant bounds that HdrHistogram accepts"),
        )
    }
}

impl Times {
    /// Adds one time to the histogram.
    #[inline]
    pub fn add(&mut self, time: Nanos) {
        self.0.saturating_record(time.0.max(1));
    }

    /// Adds `count` entries to the histogram, all with the same time.
    pub(crate) fn add_all(&mut self, time: Nanos, count: u64) {
        self.0.saturating_record_n(time.0.max(1), count);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Times) {
        self.0.add(&other.0).expect("equal bounds");
    }

    /// Returns the times added after `earlier`, an older state of the same histogram. Returns an empty histogram if
    /// `earlier` is not an older state.
    #[must_use]
    pub fn since(&self, earlier: &Times) -> Times {
        let mut difference = self.clone();
        if difference.0.subtract(&earlier.0).is_err() {
            difference.0.clear();
        }
        difference
    }

    /// Returns the number of recorded times.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns how many of the recorded times are shorter than `limit`, with a precision of 1 %.
    pub fn count_below(&self, limit: Nanos) -> u64 {
        self.0
            .iter_recorded()
            .filter(|v| v.value_iterated_to() < limit.0)
            .map(|v| v.count_at_value())
            .sum()
    }

    /// Returns the given quantile (0 to 1) of the times, or `None` if there are no times.
    pub fn quantile(&self, quantile: f64) -> Option<Nanos> {
        (!self.0.is_empty()).then(|| Nanos(self.0.value_at_quantile(quantile)))
    }

    /// Returns the maximum, or `None` if there are no times.
    pub fn max(&self) -> Option<Nanos> {
        (!self.0.is_empty()).then(|| Nanos(self.0.max()))
    }
}

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.0.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())),
        )
    }
}

impl schemars::JsonSchema for Times {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Times".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // Upper bound in nanoseconds, and count.
        <Vec<(u64, u64)>>::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Times, D::Error> {
        let mut times = Times::default();
        for (value, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            times.0.saturating_record_n(value.max(1), count);
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(all: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        all.into_iter().for_each(|us| times.add(Nanos::from_micros(us)));
        times
    }

    #[test]
    fn the_difference_of_two_reads_survives_json() {
        let before = times(1..=1000);
        let mut after = before.clone();
        after.merge(&times((0..10).map(|_| 50_000)));
        let wire =
            |t: &Times| serde_json::from_str::<Times>(&serde_json::to_string(t).unwrap()).unwrap();
        let between = wire(&after).since(&wire(&before));
        assert_eq!(between.count(), 10);
        let p999 = between.quantile(0.999).unwrap().0 as f64;
        assert!((p999 / 50e6 - 1.0).abs() < 0.02, "{p999}");
        assert_eq!(before.since(&after).count(), 0, "looks in the wrong order");
    }

    #[test]
    fn counting_below_a_limit() {
        let all = times([10, 20, 30, 40]);
        assert_eq!(
            (all.count_below(Nanos::from_micros(25)), all.count_below(Nanos::SECOND)),
            (2, 4)
        );
        assert_eq!(Times::default().quantile(0.5), None);
    }
}
