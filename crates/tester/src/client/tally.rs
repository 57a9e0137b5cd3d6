//! What a lane counts: sums, histograms, and the same by intervals.

use hdrhistogram::Histogram;
use method::records::{Counts, Outcome};
use method::units::Nanos;
use net::queue::Flushed;
use serde::{Deserialize, Serialize};

use super::Transport;
use crate::intervals::{Interval, Intervals, add, histogram, note};

/// Connections of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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

/// All that a client counts.
#[derive(Clone, Debug)]
pub struct Tally {
    /// What became of the queries.
    pub counts: Counts,
    /// Answers by rcode, the one of the header: 0 to 15.
    pub rcodes: [u64; 16],
    /// Answers that came with TC set.
    pub truncated: u64,
    /// Questions that were asked again over TCP for that.
    pub retried: u64,
    /// Octets of all queries and of all answers.
    pub octets: (u64, u64),
    /// Round-trip times of the valid answers in ns.
    pub rtt: Histogram<u64>,
    /// What became of TCP connections.
    pub connections: Connections,
    /// How long connecting took, in ns.
    pub connecting: Histogram<u64>,
    /// Datagrams that this host dropped because its own socket buffers were full.
    pub client_drops: u64,
    /// Queries in flight when the user interrupted; not part of the counts. `None`: no interruption.
    pub interrupted: Option<u64>,
    /// When the last query left (monotonic).
    pub last_sent: Nanos,
    /// When the last answer came (monotonic).
    pub last_answer: Nanos,
    /// By the time when the queries left, if wanted.
    pub intervals: Option<Intervals>,
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
            interrupted: None,
            last_sent: Nanos(0),
            last_answer: Nanos(0),
            intervals: width.map(Intervals::new),
        }
    }

    #[inline]
    fn interval(&mut self, since_start: Nanos) -> Option<&mut Interval> {
        Some(self.intervals.as_mut()?.at(since_start))
    }

    /// Counts a query of so many octets that has left.
    #[inline]
    pub(super) fn sent(&mut self, since_start: Nanos, octets: usize) {
        self.counts.sent += 1;
        self.octets.0 += octets as u64;
        if let Some(interval) = self.interval(since_start) {
            interval.sent += 1;
        }
    }

    /// The kernel refused queries that were just booked as sent. Those that it refused because nobody
    /// listens there, as it was told, are queries that the server lost.
    pub(super) fn refused(&mut self, since_start: Nanos, flushed: &Flushed) {
        if flushed.unreachable.is_some() {
            return;
        }
        let queries = flushed.refused;
        self.counts.refused += queries as u64;
        if let Some(interval) = self.interval(since_start) {
            interval.sent = interval.sent.saturating_sub(queries as u64);
        }
    }

    /// A query that left `sent` after the start was answered `rtt` later.
    #[inline]
    pub(super) fn answered(
        &mut self,
        sent: Nanos,
        rtt: Nanos,
        rcode: u8,
        octets: usize,
        outcome: Outcome,
    ) {
        self.counts.add(outcome);
        self.rcodes[usize::from(rcode)] += 1;
        self.octets.1 += octets as u64;
        if outcome == Outcome::Valid {
            note(&mut self.rtt, rtt);
        }
        if let Some(interval) = self.interval(sent) {
            interval.answer(rtt, rcode);
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

    /// The connections, and how long each took to make, where questions travel over TCP only.
    pub fn tcp(&self, transport: Transport) -> Option<(&Connections, &Histogram<u64>)> {
        (transport == Transport::Tcp).then_some((&self.connections, &self.connecting))
    }

    /// Takes the queries in flight at an interruption out of the counts: they have no outcome.
    pub(super) fn interrupt(&mut self, in_flight: u64) {
        self.counts.sent = self.counts.sent.saturating_sub(in_flight);
        self.interrupted = Some(self.interrupted.unwrap_or(0) + in_flight);
    }

    /// Takes queries that the kernel refused out of the counts: the client waited for them like for
    /// the rest, and the server did not lose them.
    pub(super) fn settle_refused(&mut self) {
        let counts = &mut self.counts;
        let lost = counts.refused.min(counts.lost);
        counts.lost -= lost;
        counts.sent = counts.sent.saturating_sub(lost);
        // The others were still in flight.
        if let Some(in_flight) = &mut self.interrupted {
            *in_flight = in_flight.saturating_sub(counts.refused - lost);
        }
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
        self.interrupted = match (self.interrupted, other.interrupted) {
            (None, None) => None,
            (mine, theirs) => Some(mine.unwrap_or(0) + theirs.unwrap_or(0)),
        };
        self.last_sent = self.last_sent.max(other.last_sent);
        self.last_answer = self.last_answer.max(other.last_answer);
        if let (Some(mine), Some(theirs)) = (&mut self.intervals, &other.intervals) {
            mine.merge(theirs);
        }
    }
}
