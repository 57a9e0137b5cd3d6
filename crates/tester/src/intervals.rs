//! Totals and histograms for each time interval. A query belongs to the interval in which it was sent. The intervals
//! show how results change during a long load.

use hdrhistogram::Histogram;
use units::Nanos;

/// Totals for the queries sent in one interval, and for the responses to these queries.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Number of queries sent in this interval.
    pub sent: u64,
    /// For each RCODE, the number of responses to the queries sent in this interval.
    pub rcodes: [u64; 16],
    /// Round-trip times of the responses in nanoseconds.
    pub rtt: Histogram<u64>,
    /// Number of established connections.
    pub connections: u64,
    /// Sum of the connections' setup times in ns.
    pub connecting: u64,
}

impl Default for Interval {
    fn default() -> Interval {
        Interval { sent: 0, rcodes: [0; 16], rtt: histogram(), connections: 0, connecting: 0 }
    }
}

impl Interval {
    /// Returns the number of answered queries.
    pub fn answered(&self) -> u64 {
        self.rcodes.iter().sum()
    }

    /// Returns the number of responses with an RCODE other than NOERROR and NXDOMAIN.
    pub fn failed(&self) -> u64 {
        self.answered() - self.rcodes[0] - self.rcodes[3]
    }

    /// Counts a response to a query of this interval.
    #[inline]
    pub fn answer(&mut self, rtt: Nanos, rcode: u8) {
        self.rcodes[usize::from(rcode & 0xf)] += 1;
        note(&mut self.rtt, rtt);
    }

    /// Adds the counts of another thread in the same interval.
    pub fn merge(&mut self, other: &Interval) {
        self.sent += other.sent;
        for (sum, n) in self.rcodes.iter_mut().zip(&other.rcodes) {
            *sum += n;
        }
        add(&mut self.rtt, &other.rtt);
        self.connections += other.connections;
        self.connecting += other.connecting;
    }
}

/// All intervals of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervals {
    /// Width of each interval.
    pub width: Nanos,
    /// The intervals, in order of time. The first interval begins at the start of the measurement.
    pub list: Vec<Interval>,
}

impl Intervals {
    /// Creates an empty list of intervals with this width, which must be above 0.
    pub fn new(width: Nanos) -> Intervals {
        Intervals { width, list: Vec::new() }
    }

    /// Returns the interval that contains a time after the start.
    #[inline]
    pub fn at(&mut self, since_start: Nanos) -> &mut Interval {
        let at = (since_start.0 / self.width.0.max(1)) as usize;
        if at >= self.list.len() {
            self.list.resize_with(at + 1, Interval::default);
        }
        &mut self.list[at]
    }

    /// Adds the intervals of another thread.
    pub fn merge(&mut self, other: &Intervals) {
        if self.list.len() < other.list.len() {
            self.list.resize_with(other.list.len(), Interval::default);
        }
        for (sum, interval) in self.list.iter_mut().zip(&other.list) {
            sum.merge(interval);
        }
    }

    /// Returns the sum of all intervals.
    pub fn sum(&self) -> Interval {
        let mut sum = Interval::default();
        self.list.iter().for_each(|interval| sum.merge(interval));
        sum
    }
}

/// Records a time in a growing histogram.
#[inline]
pub(crate) fn note(histogram: &mut Histogram<u64>, time: Nanos) {
    // A growing histogram can hold every u64.
    let _ = histogram.record(time.0.max(1));
}

/// Creates a histogram that grows as needed.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are possible")
}

/// Adds a histogram to a growing histogram.
pub(crate) fn add(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    sum.add(other).expect("a histogram that grows takes any other");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_sending() {
        let mut intervals = Intervals::new(Nanos::from_millis(100));
        for ms in [0, 99, 100, 250] {
            intervals.at(Nanos::from_millis(ms)).sent += 1;
        }
        intervals.at(Nanos::from_millis(99)).answer(Nanos::from_millis(200), 3);
        intervals.at(Nanos::from_millis(250)).answer(Nanos::from_millis(1), 2);
        let mut other = Intervals::new(intervals.width);
        other.at(Nanos::from_millis(350)).sent += 1;
        other.merge(&intervals);
        assert_eq!(other.list.iter().map(|i| i.sent).collect::<Vec<_>>(), [2, 1, 1, 1]);
        assert_eq!(other.list.iter().map(Interval::answered).collect::<Vec<_>>(), [1, 0, 1, 0]);
        let sum = other.sum();
        assert_eq!((sum.sent, sum.answered(), sum.failed(), sum.rtt.len()), (5, 2, 1, 2));
    }
}
