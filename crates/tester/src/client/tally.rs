//! What a lane counts: sums, histograms, and the same by intervals.

use hdrhistogram::Histogram;
use method::records::{Counts, Outcome};
use method::units::Nanos;
use serde::{Deserialize, Serialize};

/// Connections of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Connections that were made.
    pub made: u64,
    /// Connections that could not be made.
    pub failed: u64,
    /// Connections that the server closed, or that broke.
    pub closed: u64,
    /// Questions that were in flight on those.
    pub lost_with: u64,
}

/// What left in one interval, and what became of it.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Queries that left.
    pub sent: u64,
    /// Of these, those that were answered, in whatever way.
    pub answered: u64,
    /// Of these, answers with an rcode other than NOERROR and NXDOMAIN.
    pub failed: u64,
    /// Round-trip times of the answers in ns.
    pub rtt: Histogram<u64>,
    /// Connections that were made.
    pub connections: u64,
    /// Sum of the time that took, in ns.
    pub connecting: u64,
}

impl Default for Interval {
    fn default() -> Interval {
        let rtt = histogram();
        Interval { sent: 0, answered: 0, failed: 0, rtt, connections: 0, connecting: 0 }
    }
}

impl Interval {
    /// Adds another one.
    pub(super) fn merge(&mut self, other: &Interval) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.failed += other.failed;
        add(&mut self.rtt, &other.rtt);
        self.connections += other.connections;
        self.connecting += other.connecting;
    }
}

/// Enters a time into a histogram that grows.
#[inline]
pub(super) fn note(histogram: &mut Histogram<u64>, time: Nanos) {
    // It has room for every u64 when it has grown.
    let _ = histogram.record(time.0.max(1));
}

/// A histogram that grows with what it holds.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are possible")
}

/// All that a client counts.
#[derive(Clone, Debug)]
pub struct Tally {
    /// What became of the queries.
    pub counts: Counts,
    /// Answers by rcode.
    pub rcodes: [u64; 16],
    /// Answers with TC.
    pub truncated: u64,
    /// Questions that were asked again over TCP for that.
    pub retried: u64,
    /// Octets of all queries and of all answers.
    pub octets: (u64, u64),
    /// Round-trip times of the valid answers in ns.
    pub rtt: Histogram<u64>,
    /// Connections.
    pub connections: Connections,
    /// How long connecting took, in ns.
    pub connecting: Histogram<u64>,
    /// Datagrams that this host dropped because its own socket buffers were full.
    pub client_drops: u64,
    /// When the last query left (monotonic).
    pub last_sent: Nanos,
    /// When the last answer came (monotonic).
    pub last_answer: Nanos,
    /// By the time when the queries left.
    pub intervals: Vec<Interval>,
    /// Width of those; none are kept without it.
    pub width: Option<Nanos>,
}

impl Tally {
    pub(super) fn new(width: Option<Nanos>) -> Tally {
        Tally {
            counts: Counts::default(),
            rcodes: [0; 16],
            truncated: 0,
            retried: 0,
            octets: (0, 0),
            rtt: histogram(),
            connections: Connections::default(),
            connecting: histogram(),
            client_drops: 0,
            last_sent: Nanos(0),
            last_answer: Nanos(0),
            intervals: Vec::new(),
            width,
        }
    }

    /// The interval of a moment after the start.
    #[inline]
    fn interval(&mut self, since_start: Nanos) -> Option<&mut Interval> {
        let at = (since_start.0 / self.width?.0) as usize;
        if at >= self.intervals.len() {
            self.intervals.resize_with(at + 1, Interval::default);
        }
        Some(&mut self.intervals[at])
    }

    /// A query left.
    #[inline]
    pub(super) fn sent(&mut self, since_start: Nanos, octets: usize) {
        self.counts.sent += 1;
        self.octets.0 += octets as u64;
        if let Some(interval) = self.interval(since_start) {
            interval.sent += 1;
        }
    }

    /// The kernel refused queries that were just booked as sent.
    pub(super) fn refused(&mut self, since_start: Nanos, queries: usize) {
        self.counts.refused += queries as u64;
        if let Some(interval) = self.interval(since_start) {
            interval.sent = interval.sent.saturating_sub(queries as u64);
        }
    }

    /// A query that left `sent` after the start was answered `rtt` later.
    #[inline]
    pub(super) fn answered(&mut self, sent: Nanos, rtt: Nanos, rcode: u8, octets: usize, outcome: Outcome) {
        self.counts.add(outcome);
        self.rcodes[usize::from(rcode)] += 1;
        self.octets.1 += octets as u64;
        if outcome == Outcome::Valid {
            note(&mut self.rtt, rtt);
        }
        if let Some(interval) = self.interval(sent) {
            interval.answered += 1;
            interval.failed += u64::from(rcode != 0 && rcode != 3);
            note(&mut interval.rtt, rtt);
        }
    }

    pub(super) fn connected(&mut self, since_start: Nanos, took: Nanos) {
        self.connections.made += 1;
        note(&mut self.connecting, took);
        if let Some(interval) = self.interval(since_start) {
            interval.connections += 1;
            interval.connecting += took.0;
        }
    }

    /// What the kernel refused was waited for like the rest, and is no query that the server lost.
    pub(super) fn settle_refused(&mut self) {
        let counts = &mut self.counts;
        counts.sent = counts.sent.saturating_sub(counts.refused);
        counts.lost = counts.lost.saturating_sub(counts.refused);
    }

    /// Adds what another lane counted.
    pub(super) fn merge(&mut self, other: &Tally) {
        self.counts.merge(&other.counts);
        for (sum, n) in self.rcodes.iter_mut().zip(&other.rcodes) {
            *sum += n;
        }
        self.truncated += other.truncated;
        self.retried += other.retried;
        self.octets = (self.octets.0 + other.octets.0, self.octets.1 + other.octets.1);
        add(&mut self.rtt, &other.rtt);
        add(&mut self.connecting, &other.connecting);
        let (mine, theirs) = (&mut self.connections, &other.connections);
        mine.made += theirs.made;
        mine.failed += theirs.failed;
        mine.closed += theirs.closed;
        mine.lost_with += theirs.lost_with;
        self.client_drops += other.client_drops;
        self.last_sent = self.last_sent.max(other.last_sent);
        self.last_answer = self.last_answer.max(other.last_answer);
        if self.intervals.len() < other.intervals.len() {
            self.intervals.resize_with(other.intervals.len(), Interval::default);
        }
        for (sum, interval) in self.intervals.iter_mut().zip(&other.intervals) {
            sum.merge(interval);
        }
    }
}

fn add(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    sum.add(other).expect("a histogram that grows takes any other");
}
