//! What a trial found, as it is printed, journalled and read back.

use hdrhistogram::Histogram;
use method::compliance::Facts;
use method::evidence::{Deviation, Wanted};
use method::pacing::Pacing;
use method::reason::Reason;
use method::records::Counts;
use method::units::{Nanos, Qps, Share};
use method::verdict::Verdict;
use serde::{Deserialize, Serialize};

use super::plan::{SenderSettings, Subject, TrialPlan};
use super::topology;
use crate::authdns::part::AuthPart;
use crate::intervals::Intervals;

/// A finished trial. Serialized it is the trial object of `measure --json`.
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
    /// How the sending was to be done.
    pub settings: SenderSettings,
    /// How the sending was done.
    pub sending: Sending,
    /// AuthDNS's part, if it was looked at.
    #[serde(default)]
    pub auth: Option<AuthPart>,
    /// In which way the trial was not the one that was asked for; only of trials that would have passed.
    #[serde(default)]
    pub deviation: Option<Deviation>,
    /// The verdict.
    pub verdict: Verdict,
    /// What decided it; empty for a passed trial. In JSON `reasons` are the words and `causes` the data.
    #[serde(flatten, with = "method::reason::in_words")]
    pub reasons: Vec<Reason>,
    /// What a reader of the result should know and that did not decide.
    pub warnings: Vec<String>,
    /// What decides over compliance.
    pub facts: Facts,
    /// Whether the trial is one of RFC 8219 §9.2.
    pub compliant: bool,
    /// In which points it is not, or not known to be.
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

/// How the kernel scheduled a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// As other threads.
    Ordinary,
    /// Before others, with the smallest nice value and short turns.
    Favoured,
    /// Real time: nothing ordinary delays it.
    RealTime,
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
    /// With which priority the senders ran; of several the lowest.
    pub priority: Priority,
    /// Whether every sender had its CPU for itself, as far as our own threads go.
    pub owns_cpu: bool,
    /// How far from its time a query could leave so that queries left together, in microseconds.
    pub max_burst_us: f64,
    /// Whether that was chosen by what sending costs here.
    pub auto_burst: bool,
    /// Queries that left together.
    pub run: u16,
    /// Of these, queries that left from one port in one system call.
    pub block: u16,
    /// The smallest receive buffer that the kernel granted, in octets of its accounting.
    pub receive_buffer: usize,
}

impl TrialResult {
    /// The result of a trial of `plan` that has not been carried out: nothing sent, failed.
    pub fn blank(plan: &TrialPlan) -> TrialResult {
        TrialResult::blank_at(plan, net::clock::wall())
    }

    /// As [`TrialResult::blank`], begun at `wall_start` of the wall clock.
    pub(super) fn blank_at(plan: &TrialPlan, wall_start: Nanos) -> TrialResult {
        let facts = plan.facts(topology::shares_host(plan.server, plan.separate_hosts));
        let noncompliance = facts.noncompliance();
        TrialResult {
            rate: plan.rate,
            duration_s: plan.duration.as_secs_f64(),
            timeout_s: plan.timeout.as_secs_f64(),
            server: plan.server.to_string(),
            names: NamesUsed { range: plan.names.to_string(), first: plan.first_name, count: plan.names_needed() },
            aaaa_share: plan.aaaa_share,
            cached_share: plan.cached_share,
            started_unix_s: wall_start.as_secs_f64(),
            counts: Counts::default(),
            throughput: 0.0,
            tester_drops: 0,
            tester_drops_at: TesterDrops::default(),
            rtt_us: None,
            pacing: method::pacing::Pacing::default(),
            settings: plan.sender_settings(),
            sending: Sending {
                threads: plan.threads,
                source_ports: plan.source_ports,
                spinning: false,
                real_time: false,
                priority: Priority::Ordinary,
                owns_cpu: false,
                max_burst_us: 0.0,
                auto_burst: false,
                run: 1,
                block: 1,
                receive_buffer: 0,
            },
            auth: None,
            deviation: None,
            verdict: Verdict::Failed,
            reasons: Vec::new(),
            warnings: Vec::new(),
            facts,
            compliant: noncompliance.is_empty(),
            noncompliance,
            intervals: plan.interval.map(Intervals::new),
        }
    }

    /// Names that were resolved before the trial so that its cached queries find them.
    pub fn preloaded(&self) -> u64 {
        let fresh = self.counts.sent - self.cached_share.count_below(self.counts.sent);
        self.names.count.saturating_sub(fresh)
    }

    /// What the DUT was asked, as AuthDNS's counters are held against it.
    pub fn wanted(&self) -> Wanted {
        let sent = self.counts.sent;
        let cached = self.cached_share.count_below(sent) as f64 / sent.max(1) as f64;
        Wanted { valid: self.counts.valid, preloaded: self.preloaded(), aaaa: self.aaaa_share, cached }
    }

    /// Holds the trial against AuthDNS's part in it. What AuthDNS spoiled (drops, more than `limit` of its own time for one query in a
    /// thousand, or for as many as would have let the trial pass) makes a trial of the DUT invalid and a self-test fail. A trial that passed and was not the one that was asked for is invalid.
    pub fn weigh_auth(&mut self, part: AuthPart, limit: Nanos, subject: Subject) {
        let mut faults = part.faults(limit);
        if faults.is_empty() && self.verdict == Verdict::Failed && self.would_pass_with(part.slow) {
            let unanswered = self.counts.late + self.counts.lost;
            faults.push(Reason::AuthDecides { questions: part.slow, limit, unanswered });
        }
        if !faults.is_empty() {
            self.verdict = match (self.verdict, subject) {
                (Verdict::Invalid, _) | (_, Subject::Dut) => Verdict::Invalid,
                (_, Subject::Tester { .. }) => Verdict::Failed,
            };
            self.reasons.extend(faults);
        }
        if self.verdict == Verdict::Passed
            && let Some(deviation) = part.asked.deviation(&self.wanted())
        {
            self.verdict = Verdict::Invalid;
            self.reasons.push(Reason::Deviation { deviation });
            self.deviation = Some(deviation);
        }
        self.auth = Some(part);
        self.facts.auth_limit = Some(limit);
        self.set_facts(self.facts);
    }

    /// Whether the trial would have passed if so many more of the queries without a reply in time had got a valid one.
    fn would_pass_with(&self, more: u64) -> bool {
        let mut counts = self.counts.clone();
        counts.valid += more.min(counts.late + counts.lost);
        more > 0 && self.facts.accept.is_met(&counts)
    }

    /// Judges the trial's compliance by `facts`.
    pub fn set_facts(&mut self, facts: Facts) {
        self.noncompliance = facts.noncompliance();
        self.compliant = self.noncompliance.is_empty();
        self.facts = facts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trial of 1000 queries of which `late` came late, with `slow` questions at AuthDNS.
    fn weighed(late: u64, slow: u64) -> Verdict {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1000));
        let mut trial = TrialResult::blank(&plan);
        (trial.counts.sent, trial.counts.valid, trial.counts.late) = (1000, 1000 - late, late);
        let part = AuthPart { slow, ..AuthPart::default() };
        trial.weigh_auth(part, plan.auth_limit, plan.subject);
        trial.verdict
    }

    #[test]
    fn a_slow_authdns_that_covers_what_came_late_makes_the_trial_invalid() {
        assert_eq!(weighed(11, 11), Verdict::Invalid);
        assert_eq!(weighed(11, 10), Verdict::Failed);
        assert_eq!(weighed(11, 0), Verdict::Failed);
    }
}
