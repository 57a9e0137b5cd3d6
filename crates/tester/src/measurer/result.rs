//! What a trial found, as it is printed, journalled and read back.

use hdrhistogram::Histogram;
use method::pacing::Pacing;
use method::records::Counts;
use method::units::{Nanos, Qps, Share};
use method::verdict::Verdict;
use serde::{Deserialize, Serialize};

use super::plan::TrialPlan;
use crate::intervals::Intervals;

/// A finished trial. Serialized it is the contract's trial object (design.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Offered queries per second.
    pub rate: Qps,
    /// Length of the sending in seconds.
    pub duration_s: f64,
    /// Timeout in seconds.
    pub timeout_s: f64,
    /// The server that was asked.
    pub server: String,
    /// The names that were used.
    pub names: NamesUsed,
    /// AAAA share (α) that was asked for.
    pub aaaa_share: Share,
    /// Cached share (β) that was asked for.
    pub cached_share: Share,
    /// When it began: seconds since 1970-01-01 UTC.
    pub started_unix_s: f64,
    /// What became of the queries.
    #[serde(flatten)]
    pub counts: Counts,
    /// Valid replies per second of sending.
    pub throughput: f64,
    /// Packets that the tester's host dropped.
    pub tester_drops: u64,
    /// Where.
    pub tester_drops_at: TesterDrops,
    /// Round-trip times of valid replies in microseconds; absent if there was none.
    pub rtt_us: Option<Rtt>,
    /// The audit of the sending.
    pub pacing: Pacing,
    /// How the sending was done.
    pub sending: Sending,
    /// The verdict.
    pub verdict: Verdict,
    /// What decided it; empty for a passed trial.
    pub reasons: Vec<String>,
    /// What a reader of the result should know and that did not decide.
    pub warnings: Vec<String>,
    /// Whether the trial's parameters are those of RFC 8219 §9.2.
    pub compliant: bool,
    /// In which points they are not.
    pub noncompliance: Vec<String>,
    /// By the time when the queries left, if the plan wants it; not part of the object.
    #[serde(skip)]
    pub intervals: Option<Intervals>,
}

/// The names that a trial took from its block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamesUsed {
    /// The block.
    pub range: String,
    /// The position of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// Drops on the tester's host during the trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TesterDrops {
    /// At the Measurer's sockets (the counter of `SO_RXQ_OVFL`).
    pub sockets: u64,
    /// On the interface towards the server, received packets.
    pub interface_receive: u64,
    /// On the interface towards the server, packets to be sent.
    pub interface_send: u64,
    /// In the queueing discipline of the interface towards the server.
    #[serde(default)]
    pub queueing_discipline: u64,
    /// In the queue of a next hop whose link-layer address was not known, as far as the kernel tells.
    #[serde(default)]
    pub neighbour: u64,
    /// Datagrams that the interface got for the Measurer's ports and its sockets did not have, nor drop; `None` where nobody
    /// watched. Not part of [`TesterDrops::total`]: what it means depends on the losses (`method::verdict::weigh_missed`).
    #[serde(default)]
    pub missed: Option<u64>,
}

impl TesterDrops {
    /// All that are certain: everything but `missed`.
    pub fn total(&self) -> u64 {
        self.sockets + self.interface_receive + self.interface_send + self.queueing_discipline + self.neighbour
    }
}

/// Percentiles of round-trip times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rtt {
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    #[serde(default)]
    pub stdev: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

impl Rtt {
    /// Of a histogram of nanoseconds; `None` if it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<Rtt> {
        let us = |q| histogram.value_at_quantile(q) as f64 / 1000.0;
        (!histogram.is_empty()).then(|| Rtt {
            min: histogram.min() as f64 / 1000.0,
            mean: histogram.mean() / 1000.0,
            stdev: histogram.stdev() / 1000.0,
            p50: us(0.5),
            p90: us(0.9),
            p99: us(0.99),
            p999: us(0.999),
            max: histogram.max() as f64 / 1000.0,
        })
    }
}

/// How the queries were sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sending {
    /// Sender/receiver pairs.
    pub threads: u16,
    /// UDP source ports.
    pub source_ports: u16,
    /// Whether the senders spun from query to query.
    pub spinning: bool,
    /// Whether all senders ran with real-time priority.
    pub real_time: bool,
    /// Queries that left together.
    pub run: u16,
    /// Of these, queries that left from one port in one system call.
    pub block: u16,
    /// The smallest receive buffer that the kernel granted, in octets of its accounting.
    pub receive_buffer: usize,
}

/// In which points a trial's parameters are not those of RFC 8219 §9.2.
pub fn noncompliance(plan: &TrialPlan) -> Vec<String> {
    let mut points = Vec::new();
    if plan.duration < Nanos(60 * Nanos::SECOND.0) {
        points.push(format!("trials last {} s, not at least 60 s", plan.duration.as_secs_f64()));
    }
    if plan.timeout > Nanos::SECOND {
        points.push(format!("the timeout is {} s, more than 1 s", plan.timeout.as_secs_f64()));
    }
    if plan.accept.0 < 1.0 {
        points.push(format!("{} % of valid replies are accepted, not only 100 %", plan.accept.0 * 100.0));
    }
    points.extend(plan.limits.noncompliance());
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noncompliance_names_each_point() {
        let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1));
        assert_eq!(noncompliance(&plan), [""; 0]);
        plan.duration = Nanos::SECOND;
        plan.timeout = Nanos(2 * Nanos::SECOND.0);
        plan.accept = method::verdict::Acceptance(0.99);
        plan.limits.window_100ms_pct = 2.0;
        plan.limits.lateness_p999 = Nanos::SECOND;
        assert_eq!(noncompliance(&plan).len(), 5);
    }
}
