//! Send time of each query: t(i) = t₁ + i·T (equation 2 of G. Lencse and A. Pivoda, "Checking and Increasing the
//! Accuracy of the Dns64perf++ Measurement Tool for Benchmarking DNS64 Servers", 2018, DOI 10.11601/ijates.v7i1.255).

use units::{Nanos, Qps, QueryIndex};

/// The schedule of a trial. The send time of a query is relative to the trial's start and is computed from the query's
/// index alone. Rounding errors therefore do not accumulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    rate: Qps,
    count: u64,
}

impl Schedule {
    /// Creates the schedule of a trial from its rate and duration. The schedule has ⌊rate · duration⌋ queries, but at
    /// least one.
    pub fn new(rate: Qps, duration: Nanos) -> Schedule {
        let count = u128::from(rate.0) * u128::from(duration.0) / u128::from(Nanos::SECOND.0);
        Schedule { rate, count: u64::try_from(count).unwrap_or(u64::MAX).max(1) }
    }

    /// Creates a schedule of exactly `count` queries at the rate `rate`.
    pub fn with_count(rate: Qps, count: u64) -> Schedule {
        Schedule { rate, count }
    }

    /// Returns the number of queries.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the rate in queries per second.
    pub fn rate(&self) -> Qps {
        self.rate
    }

    /// Returns the send time of query `i` in nanoseconds after the trial's start, rounded down.
    pub fn deadline(&self, QueryIndex(i): QueryIndex) -> Nanos {
        // i·10⁹ fits into u64 up to 1.8·10¹⁰ queries; beyond that the slow path is taken.
        match i.checked_mul(Nanos::SECOND.0) {
            Some(product) => Nanos(product / self.rate.0),
            None => Nanos(
                (u128::from(i) * u128::from(Nanos::SECOND.0) / u128::from(self.rate.0)) as u64,
            ),
        }
    }

    /// Returns the number of queries that are due strictly before `moment`, a time relative to the trial's start.
    pub(crate) fn due_before(&self, moment: Nanos) -> u64 {
        // Query i is due before m iff ⌊i·10⁹/r⌋ < m iff i·10⁹ < m·r iff i < ⌈m·r/10⁹⌉.
        let scaled = u128::from(moment.0) * u128::from(self.rate.0);
        let due = scaled.div_ceil(u128::from(Nanos::SECOND.0));
        u64::try_from(due).unwrap_or(u64::MAX).min(self.count)
    }

    /// Returns the interval T between two queries in nanoseconds, rounded down. The result is used to choose a send
    /// strategy. It is too inexact for computing send times.
    pub fn interval(&self) -> Nanos {
        Nanos(Nanos::SECOND.0 / self.rate.0)
    }

    /// Returns the whole schedule as the part for a single sender.
    pub fn whole(self) -> Part {
        self.part(0, 1)
    }

    /// Returns the part that starts with the query of index `number` and contains every `of`-th query after it.
    /// `number` must be less than `of`.
    pub fn part(self, number: u64, of: u64) -> Part {
        debug_assert!(number < of, "part {number} of {of}");
        Part { schedule: self, number, of }
    }
}

/// The queries of a schedule that one of n senders sends: every n-th query. The n parts together contain each query of
/// the schedule exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    schedule: Schedule,
    number: u64,
    of: u64,
}

impl Part {
    /// Returns the complete schedule that contains this part.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the number of queries in this part.
    pub fn count(&self) -> u64 {
        self.among(self.schedule.count())
    }

    /// Returns the rate of this part in queries per second.
    pub fn rate(&self) -> f64 {
        self.schedule.rate.0 as f64 / self.of as f64
    }

    /// Returns the interval between two queries of this part, rounded down. The result is used to choose a send
    /// strategy. It is too inexact for computing send times.
    pub fn interval(&self) -> Nanos {
        Nanos(self.schedule.interval().0 * self.of)
    }

    /// Converts an index: `k` is the index of a query in this part, and the result is the index of the same query in
    /// the whole schedule.
    #[inline]
    pub fn index(&self, k: u64) -> QueryIndex {
        QueryIndex(k * self.of + self.number)
    }

    /// Returns the number of queries of this part that are due strictly before `moment`, a time relative to the trial's
    /// start.
    pub(crate) fn due_before(&self, moment: Nanos) -> u64 {
        self.among(self.schedule.due_before(moment))
    }

    /// Returns the send time of the part's last query. If the part is empty, returns the time at which its first query
    /// would be due.
    pub fn end(&self) -> Nanos {
        self.schedule.deadline(self.index(self.count().saturating_sub(1)))
    }

    /// Returns how many of the first `n` queries of the whole schedule belong to this part of it.
    fn among(&self, n: u64) -> u64 {
        n.saturating_sub(self.number).div_ceil(self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sixty_seconds_at_a_quarter_million_are_fifteen_million() {
        let schedule = Schedule::new(Qps(250_000), Nanos(60 * Nanos::SECOND.0));
        assert_eq!(schedule.count(), 15_000_000);
        assert_eq!(schedule.deadline(QueryIndex(1)), Nanos(4_000));
        // A third of a nanosecond per query does not accumulate (table I of the paper: 6 667 ns at
        // 150 000 qps).
        let odd = Schedule::new(Qps(150_000), Nanos(60 * Nanos::SECOND.0));
        assert_eq!(odd.deadline(QueryIndex(150_000)), Nanos::SECOND);
    }

    #[test]
    fn a_deadline_is_right_however_many_queries_went_before() {
        // Beyond 2⁶⁴ ns · queries, and beyond a century.
        let schedule = Schedule::with_count(Qps(10), u64::MAX);
        for i in [18_446_744_073, 18_446_744_074, 50_000_000_000] {
            assert_eq!(schedule.deadline(QueryIndex(i)), Nanos(i * 100_000_000), "{i}");
        }
    }

    #[test]
    fn intervals_and_rates_of_parts() {
        let schedule = Schedule::new(Qps(30_000), Nanos::SECOND);
        assert_eq!(schedule.interval(), Nanos(33_333));
        let part = schedule.part(1, 3);
        assert_eq!((part.rate(), part.interval()), (10_000.0, Nanos(99_999)));
        assert_eq!(
            (schedule.whole().rate(), schedule.whole().interval()),
            (30_000.0, Nanos(33_333))
        );
    }

    proptest! {
        #[test]
        fn due_before_inverts_deadline(rate in 1u64..2_000_000, i in 0u64..10_000_000) {
            let schedule = Schedule::with_count(Qps(rate), u64::MAX);
            let deadline = schedule.deadline(QueryIndex(i));
            prop_assert!(schedule.due_before(deadline) <= i);
            prop_assert!(schedule.due_before(deadline + Nanos(1)) > i);
        }

        #[test]
        fn parts_have_each_query_once(rate in 1u64..100_000, of in 1u64..20, ms in 0u64..2_000) {
            let schedule = Schedule::new(Qps(rate), Nanos::SECOND);
            let parts: Vec<Part> = (0..of).map(|number| schedule.part(number, of)).collect();
            let moment = Nanos::from_millis(ms);
            prop_assert_eq!(parts.iter().map(Part::count).sum::<u64>(), schedule.count());
            let due = |part: &Part| part.due_before(moment);
            prop_assert_eq!(parts.iter().map(due).sum::<u64>(), schedule.due_before(moment));
            for part in &parts {
                let first = (0..part.count()).map(|k| part.index(k)).take_while(|i| schedule.deadline(*i) < moment);
                prop_assert_eq!(first.count() as u64, part.due_before(moment));
            }
            let last = parts.iter().filter(|part| part.count() > 0).map(Part::end).max();
            prop_assert_eq!(last, Some(schedule.whole().end()));
        }

        #[test]
        fn deadlines_never_decrease(rate in 1u64..100_000_000, i in 0u64..u64::from(u32::MAX)) {
            let schedule = Schedule::with_count(Qps(rate), u64::MAX);
            prop_assert!(schedule.deadline(QueryIndex(i)) <= schedule.deadline(QueryIndex(i + 1)));
        }
    }
}
