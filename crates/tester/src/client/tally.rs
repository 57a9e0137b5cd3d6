//! Totals and histograms of a client thread, overall and by interval.

use hdrhistogram::Histogram;
use method::records::{Counts, Outcome};
use net::queue::Flushed;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::transport::Transport;
use crate::intervals::{Interval, Intervals, add, histogram, note};

/// Counts of the TCP connections of a client, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Connections {
    /// Established connections.
    pub made: u64,
    /// Failed connection attempts.
    pub failed: u64,
    /// Connections that the server closed, or that broke.
    pub closed: u64,
    /// Queries that were in flight on closed or broken connections.
    pub lost_with: u64,
}

/// All counters of a client.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Outcomes of the queries.
    pub counts: Counts,
    /// Responses by RCODE of the header: 0 to 15.
    pub rcodes: [u64; 16],
    /// Responses with TC set.
    pub truncated: u64,
    /// Queries retried over TCP after truncation.
    pub retried: u64,
    /// Total octets of all queries, and of all responses.
    pub octets: (u64, u64),
    /// Round-trip times of the valid responses in ns.
    pub rtt: Histogram<u64>,
    /// Counts of the TCP connections, by outcome.
    pub connections: Connections,
    /// Connection setup times in ns.
    pub connecting: Histogram<u64>,
    /// Datagrams dropped on this host because its socket buffers were full.
    pub client_drops: u64,
    /// Queries that were in flight when the user interrupted the client; they are not part of the counts. `None` if
    /// there was no interruption.
    pub interrupted: Option<u64>,
    /// Send time of the last query (monotonic).
    pub last_sent: Nanos,
    /// Arrival time of the last response (monotonic).
    pub last_answer: Nanos,
    /// Totals for each interval of send time; `None` if the plan requests no intervals.
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

    /// Counts a sent query of `octets` octets.
    #[inline]
    pub(super) fn sent(&mut self, since_start: Nanos, octets: usize) {
        self.counts.sent += 1;
        self.octets.0 += octets as u64;
        if let Some(interval) = self.interval(since_start) {
            interval.sent += 1;
        }
    }

    /// Counts send errors of queries that were just recorded as sent. Queries rejected because of an ICMP port
    /// unreachable message still count as sent, and as lost by the server.
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

    /// Counts an answered query. `sent` is its send time, measured from the start, and `rtt` is the round-trip time.
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

    /// Returns the counts of the connections, and their setup times. Returns `None` unless all queries are sent over
    /// TCP.
    pub fn tcp(&self, transport: Transport) -> Option<(&Connections, &Histogram<u64>)> {
        (transport == Transport::Tcp).then_some((&self.connections, &self.connecting))
    }

    /// Records `in_flight`, the number of queries in flight when the user interrupted the client, and subtracts it from
    /// the number of sent queries. These queries have no outcome.
    pub(super) fn interrupt(&mut self, in_flight: u64) {
        self.counts.sent = self.counts.sent.saturating_sub(in_flight);
        self.interrupted = Some(self.interrupted.unwrap_or(0) + in_flight);
    }

    /// Removes queries with send errors from the counts. These queries were counted as lost after the timeout, although
    /// the server did not lose them.
    pub(super) fn settle_refused(&mut self) {
        let counts = &mut self.counts;
        let lost = counts.refused.min(counts.lost);
        counts.lost -= lost;
        counts.sent = counts.sent.saturating_sub(lost);
        // The remaining queries with send errors were still in flight at the interruption.
        if let Some(in_flight) = &mut self.interrupted {
            *in_flight = in_flight.saturating_sub(counts.refused - lost);
        }
    }

    /// Adds the totals of a second thread to these totals.
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
