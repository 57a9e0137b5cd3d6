//! Result of a trial. It is printed, recorded in the journal, and read back from the journal.

use hdrhistogram::Histogram;
use method::compliance::Facts;
use method::evidence::{Deviation, OfferedLoad};
use method::noncompliance::Noncompliance;
use method::pacing::{Pacing, Windows};
use method::reason::{Reason, ReasonKind, ZoneFacts};
use method::records::Counts;
use method::verdict::{Acceptance, Evidence, Verdict, decide};
use method::warning::Warning;
use net::cpu_time::Stolen;
use serde::{Deserialize, Serialize};
use units::{Nanos, Qps, Share};
use wire::name::Domain;

use super::plan::{SenderSettings, Subject, TrialPlan};
use super::shards::ShardPart;
use super::sources::SourcesUsed;
use super::topology;
use crate::authdns::auth_delta::AuthDelta;
use crate::intervals::Intervals;
use crate::xdp::XdpInterface;

/// The RCODE with which a DUT replies if it got no answer from AuthDNS (RFC 1035 §4.1.1).
const SERVFAIL: u8 = 2;

/// A finished trial. Its JSON form is the trial object of `measure --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TrialResult {
    /// Offered queries per second.
    pub rate: Qps,
    /// Duration of sending in seconds.
    pub duration_s: f64,
    /// Time in seconds within which a query must be answered. A reply after this time counts as late.
    pub timeout_s: f64,
    /// The queried server.
    pub server: String,
    /// Zone that contains the names of the queries; absent in results of versions that do not report it.
    #[serde(default)]
    pub domain: Option<Domain>,
    /// Names used by the trial.
    pub names: NamesUsed,
    /// Requested share of names with a native AAAA record (α).
    pub aaaa_share: Share,
    /// Requested share of queries for cached names (β).
    pub cached_share: Share,
    /// Start time: seconds since 1970-01-01 UTC.
    pub started_unix_s: f64,
    /// Number of queries with each outcome.
    #[serde(flatten)]
    pub counts: Counts,
    /// Number of valid replies divided by the duration of sending in seconds.
    pub throughput: f64,
    /// Packets that the tester's host dropped.
    pub tester_drops: u64,
    /// Number of packets dropped on the tester's host, for each point at which packets can be dropped.
    pub tester_drops_at: TesterDrops,
    /// Round-trip times of valid replies in microseconds; absent if no reply was valid.
    pub rtt_us: Option<Rtt>,
    /// Result of the pacing audit, which compares the actual with the scheduled send times.
    pub pacing: Pacing,
    /// Number of sent queries minus the number of due queries, in windows of 100 ms and 10 ms; absent for a trial that
    /// could not begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// Requested send settings.
    pub settings: SenderSettings,
    /// Actual send settings.
    pub sending: Sending,
    /// CPU time of this host stolen by a hypervisor during the trial, if the host reports it.
    #[serde(default)]
    pub stolen: Option<Stolen>,
    /// AuthDNS's queries, losses and delays in the trial; absent if AuthDNS's counters were not read.
    #[serde(default)]
    pub auth: Option<AuthDelta>,
    /// Deviation of the DUT's load from the planned load. The share of names with an AAAA record is always checked. The
    /// share of queries for cached names is checked only if the trial would otherwise have passed.
    #[serde(default)]
    pub deviation: Option<Deviation>,
    /// Passed, failed, or invalidated by the tester.
    pub verdict: Verdict,
    /// Reasons for the verdict; empty for a passed trial. In JSON, `reasons` contains the text and `causes` the data.
    #[serde(flatten, with = "method::reason::in_words")]
    #[schemars(with = "method::reason::in_words::Written<'static>")]
    pub reasons: Vec<Reason>,
    /// Observations that did not affect the verdict but should be reported. In JSON, `warnings` contains the text and
    /// `warning_causes` the data.
    #[serde(flatten, with = "method::warning::in_words")]
    #[schemars(with = "method::warning::in_words::Written<'static>")]
    pub warnings: Vec<Warning>,
    /// Facts that determine compliance with RFC 8219 §9.2.
    pub facts: Facts,
    /// True if the trial complies with RFC 8219 §9.2.
    pub compliant: bool,
    /// Requirements of RFC 8219 §9.2 that the trial does not meet, or may not meet. In JSON, `noncompliance` contains
    /// the text and `noncompliance_causes` the data.
    #[serde(flatten, with = "method::noncompliance::in_words")]
    #[schemars(with = "method::noncompliance::in_words::Written<'static>")]
    pub noncompliance: Vec<Noncompliance>,
    /// If several testers shared the trial: data for the verdict on the whole trial. In this case, the rest of the
    /// object is the result of one tester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Box<ShardPart>>,
    /// Results for each time interval, if requested by the plan. A query belongs to the interval in which it was sent.
    /// Not part of the JSON object.
    #[serde(skip)]
    pub intervals: Option<Intervals>,
    /// Error that prevented writing the file with a record of each query. In case of an error, this file is missing,
    /// but the trial is otherwise unaffected. Not part of the JSON object.
    #[serde(skip)]
    pub records_error: Option<String>,
}

/// The names that a trial used, and the block that contains them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NamesUsed {
    /// Block of IPv4 addresses from which the names are generated, such as `10.0.0.0/8`.
    pub range: String,
    /// Position of the trial's first name within the block `range`. The first position is 0.
    pub first: u64,
    /// Number of names used. Each name occurs in at least one query.
    pub count: u64,
}

/// Number of packets dropped on the tester's host during the trial, for each point at which packets can be dropped.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct TesterDrops {
    /// Packets dropped at the Measurer's sockets (the counter of `SO_RXQ_OVFL`).
    pub sockets: u64,
    /// Packets dropped at the AF_XDP rings (`XDP_STATISTICS`).
    #[serde(default)]
    pub rings: u64,
    /// Received packets dropped on the interface towards the server.
    pub interface_receive: u64,
    /// Packets that were dropped on the interface towards the server before they were sent.
    pub interface_send: u64,
    /// Packets dropped in the queueing discipline of the interface towards the server.
    #[serde(default)]
    pub queueing_discipline: u64,
    /// Packets dropped from the queue of a next hop with an unknown link-layer address, if reported by the kernel.
    #[serde(default)]
    pub neighbour: u64,
    /// Datagrams for the Measurer's ports that the interface received, but that the Measurer's sockets neither received
    /// nor dropped; `None` if they were not counted. [`TesterDrops::total`] does not include them, because their effect
    /// depends on the number of lost queries (`method::verdict::evaluate_missed`).
    #[serde(default)]
    pub missed: Option<u64>,
}

impl TesterDrops {
    /// Returns the total number of dropped packets. Datagrams that did not reach the Measurer's sockets (`missed`) are
    /// not included, because it is uncertain where they were lost.
    pub fn total(&self) -> u64 {
        self.sockets
            + self.rings
            + self.interface_receive
            + self.interface_send
            + self.queueing_discipline
            + self.neighbour
    }

    /// Returns the sum of the drops of two testers.
    pub(super) fn plus(&self, other: &TesterDrops) -> TesterDrops {
        let missed = [self.missed, other.missed].into_iter().flatten().reduce(|a, b| a + b);
        TesterDrops {
            sockets: self.sockets + other.sockets,
            rings: self.rings + other.rings,
            interface_receive: self.interface_receive + other.interface_receive,
            interface_send: self.interface_send + other.interface_send,
            queueing_discipline: self.queueing_discipline + other.queueing_discipline,
            neighbour: self.neighbour + other.neighbour,
            missed,
        }
    }
}

/// Percentiles of round-trip times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Rtt {
    /// Minimum round-trip time.
    pub min: f64,
    /// Arithmetic mean of the round-trip times.
    pub mean: f64,
    /// Standard deviation of the round-trip times.
    #[serde(default)]
    pub stdev: f64,
    /// Median of the round-trip times.
    pub p50: f64,
    /// 90th percentile of the round-trip times.
    pub p90: f64,
    /// 99th percentile of the round-trip times.
    pub p99: f64,
    /// 99.9th percentile of the round-trip times.
    pub p999: f64,
    /// Maximum round-trip time.
    pub max: f64,
}

impl Rtt {
    /// Summarizes a histogram of nanoseconds; `None` if it is empty.
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

/// Scheduling priority of a sender thread.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Default priority of threads.
    Ordinary,
    /// Minimum nice value and short time slices.
    Favoured,
    /// Real-time priority, so that ordinary threads do not delay the sender.
    RealTime,
}

/// Actual send settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Sending {
    /// Number of sender/receiver pairs, each of two threads.
    pub threads: u16,
    /// Number of UDP source ports across all pairs of threads.
    pub source_ports: u16,
    /// Prefix and number of the source addresses; absent if the kernel selected the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_addresses: Option<SourcesUsed>,
    /// Interface used by AF_XDP; absent if sockets were used. With AF_XDP, the send time of a query is the time at
    /// which the query was put into the ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "past_stack")]
    pub xdp: Option<XdpInterface>,
    /// True if the senders busy-waited until the next query was due.
    pub spinning: bool,
    /// True if all senders had real-time priority.
    pub real_time: bool,
    /// Priority of the senders; the lowest if they differ.
    pub priority: Priority,
    /// True if each sender had a CPU that no other thread of dns64bench or dns64d used.
    pub owns_cpu: bool,
    /// Maximum deviation of a query from its schedule because of batching, in microseconds.
    pub max_burst_us: f64,
    /// True if the burst size was computed from the cost of sending on this host.
    pub auto_burst: bool,
    /// Number of queries in a group. The queries of a group are sent together when the last of them is due.
    pub run: u16,
    /// Number of queries sent from one port in one system call.
    pub block: u16,
    /// Smallest receive buffer granted by the kernel, in octets as counted by the kernel.
    pub receive_buffer: usize,
}

impl Sending {
    /// Returns the settings of a trial of `plan` in which nothing was sent.
    pub fn none(plan: &TrialPlan) -> Sending {
        Sending {
            threads: plan.threads,
            source_ports: plan.source_ports,
            source_addresses: None,
            xdp: None,
            spinning: false,
            real_time: false,
            priority: Priority::Ordinary,
            owns_cpu: false,
            max_burst_us: 0.0,
            auto_burst: false,
            run: 1,
            block: 1,
            receive_buffer: 0,
        }
    }
}

/// Findings of the Measurer in a trial. The rest of the trial's result follows from the plan.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Start time by the wall clock.
    pub began: Nanos,
    /// Number of queries with each outcome.
    pub counts: Counts,
    /// Packets dropped on the tester's host.
    pub drops: TesterDrops,
    /// Round-trip times of valid replies; absent if no reply was valid.
    pub rtt: Option<Rtt>,
    /// Result of the pacing audit, which compares the actual with the scheduled send times.
    pub pacing: Pacing,
    /// Number of sent queries minus the number of due queries, in windows of 100 ms and 10 ms; absent if nothing was
    /// sent.
    pub windows: Option<Windows>,
    /// Actual send settings.
    pub sending: Sending,
    /// Passed, failed, or invalidated by the tester.
    pub verdict: Verdict,
    /// Reasons for the verdict; empty if the trial passed.
    pub reasons: Vec<Reason>,
    /// Observations that did not affect the verdict.
    pub warnings: Vec<Warning>,
    /// Results for each time interval, if requested by the plan. A query belongs to the interval in which it was sent.
    pub intervals: Option<Intervals>,
}

impl TrialResult {
    /// Creates the result of a trial of `plan` with these findings. AuthDNS's counters are added by
    /// [`TrialResult::apply_auth`].
    pub fn new(plan: &TrialPlan, found: Findings) -> TrialResult {
        let facts = plan.facts(topology::shares_host(plan.server, plan.separate_hosts));
        let noncompliance = facts.noncompliance();
        TrialResult {
            rate: plan.rate,
            duration_s: plan.duration.as_secs_f64(),
            timeout_s: plan.timeout.as_secs_f64(),
            server: plan.server.to_string(),
            domain: Some(plan.domain.clone()),
            names: NamesUsed {
                range: plan.names.to_string(),
                first: plan.first_name,
                count: plan.names_needed(),
            },
            aaaa_share: plan.aaaa_share,
            cached_share: plan.cached_share,
            started_unix_s: found.began.as_secs_f64(),
            throughput: found.counts.valid as f64 / plan.duration.as_secs_f64(),
            counts: found.counts,
            tester_drops: found.drops.total(),
            tester_drops_at: found.drops,
            rtt_us: found.rtt,
            pacing: found.pacing,
            windows: found.windows,
            settings: plan.sender_settings(),
            sending: found.sending,
            stolen: None,
            auth: None,
            deviation: None,
            verdict: found.verdict,
            reasons: found.reasons,
            warnings: found.warnings,
            facts,
            compliant: noncompliance.is_empty(),
            noncompliance,
            shard: None,
            intervals: found.intervals,
            records_error: None,
        }
    }

    /// Creates the result of a trial of `plan` that could not begin for these reasons. Nothing was measured, so the
    /// trial is invalid rather than failed.
    pub fn not_begun(plan: &TrialPlan, reasons: Vec<Reason>) -> TrialResult {
        let decided = (Verdict::Invalid, reasons);
        TrialResult {
            shard: plan.shard.map(|_| Box::new(ShardPart::of_nothing(plan))),
            ..TrialResult::without_losses(plan, Counts::default(), decided)
        }
    }

    /// Creates the result of a trial of `plan` with a simulated DUT. The outcomes of the queries are given in `counts`.
    /// All `counts.sent` queries were sent in time, and the tester's host lost nothing.
    pub fn simulated(plan: &TrialPlan, counts: Counts) -> TrialResult {
        let pacing = Pacing::default();
        let (planned, counted) = (counts.sent, counts.clone());
        let evidence = Evidence {
            planned,
            counts: &counted,
            pacing: &pacing,
            host_losses: &[],
            missed: 0,
            faults: &[],
        };
        let verdict = decide(&evidence, plan.accept, &plan.limits);
        TrialResult::without_losses(plan, counts, verdict)
    }

    fn without_losses(
        plan: &TrialPlan,
        counts: Counts,
        decided: (Verdict, Vec<Reason>),
    ) -> TrialResult {
        let (verdict, reasons) = decided;
        TrialResult::new(
            plan,
            Findings {
                began: net::clock::wall(),
                counts,
                drops: TesterDrops::default(),
                rtt: None,
                pacing: Pacing::default(),
                windows: None,
                sending: Sending::none(plan),
                verdict,
                reasons,
                warnings: Vec::new(),
                intervals: plan.interval.map(Intervals::new),
            },
        )
    }

    /// Returns the number of names that were resolved before the trial so that they are cached.
    pub fn preloaded(&self) -> u64 {
        let fresh = self.counts.sent - self.cached_share.count_below(self.counts.sent);
        self.names.count.saturating_sub(fresh)
    }

    /// Returns the load offered to the DUT, for comparison with AuthDNS's counters.
    pub fn wanted(&self) -> OfferedLoad {
        let sent = self.counts.sent;
        let cached = self.cached_share.count_below(sent) as f64 / sent.max(1) as f64;
        OfferedLoad {
            sent,
            valid: self.counts.valid,
            preloaded: self.preloaded(),
            aaaa: self.aaaa_share,
            cached,
        }
    }

    /// Adjusts the verdict according to AuthDNS's counters for the trial, in this order:
    ///
    /// 1. The trial is invalid if AuthDNS served a zone that differs from the planned zone, or if other clients sent
    ///    queries. A failed trial is invalid if AuthDNS refused queries.
    /// 2. Losses and delays of AuthDNS or its host make a trial of the DUT invalid, and a self-test fail. A delay is a
    ///    processing time above `limit` for one query in a thousand, or for enough queries to explain a failed trial.
    /// 3. A trial is invalid if the DUT's load differed from the plan. In a failed trial, only the share of names with
    ///    an AAAA record is compared.
    pub fn apply_auth(&mut self, part: AuthDelta, limit: Nanos, subject: Subject) {
        let mut disagreements = part.disagreements(self.zone().as_ref(), self.names.count);
        if self.verdict == Verdict::Failed {
            disagreements.extend(part.refusal());
        }
        self.invalidate(disagreements);
        self.judge_by_auth(&part, limit, subject);
        let deviation = match self.verdict {
            Verdict::Passed => part.asked.deviation(&self.wanted()),
            Verdict::Failed => part.asked.other_aaaa_share(self.aaaa_share),
            Verdict::Invalid => None,
        };
        self.invalidate(deviation.map(|deviation| Reason::Deviation { deviation }));
        self.deviation = self.deviation.or(deviation);
        if self.verdict != Verdict::Invalid && part.missed() > 0 {
            self.warnings.push(Warning::AuthMissed { datagrams: part.missed() });
        }
        self.auth = Some(part);
        self.facts.auth_limit = Some(limit);
        self.set_facts(self.facts);
    }

    /// Returns the zone that AuthDNS must serve for the trial; `None` for results of versions that do not report it.
    fn zone(&self) -> Option<ZoneFacts> {
        let domain = self.domain.as_ref()?.to_string();
        Some(ZoneFacts { domain, aaaa_share: self.aaaa_share })
    }

    /// Makes the trial invalid for these reasons, if there are any.
    pub(super) fn invalidate(&mut self, reasons: impl IntoIterator<Item = Reason>) {
        let before = self.reasons.len();
        self.reasons.extend(reasons);
        if self.reasons.len() > before {
            self.verdict = Verdict::Invalid;
            // In an invalid trial, the number of valid replies gives no information about the DUT.
            self.reasons.retain(|reason| reason.kind() != ReasonKind::TooFewValid);
        }
    }

    /// Adjusts the verdict according to the losses and delays of AuthDNS and its host.
    fn judge_by_auth(&mut self, part: &AuthDelta, limit: Nanos, subject: Subject) {
        let mut faults = part.faults(limit, self.facts.limits.lateness_p999);
        let decides = self.would_pass_with(0, part.doubtful(), self.facts.accept);
        if faults.is_empty() && self.verdict == Verdict::Failed && decides {
            faults = part.doubts(limit, unanswered(&self.counts));
        }
        match (self.verdict, subject) {
            (Verdict::Passed | Verdict::Failed, Subject::Tester { .. }) => {
                if !faults.is_empty() {
                    self.verdict = Verdict::Failed;
                    self.reasons.extend(faults);
                }
            }
            _ => self.invalidate(faults),
        }
    }

    /// Returns true if losses or delays of the tester were possible, and the trial would pass under the criterion
    /// `accept` without them. To test this, additional queries are counted as valid: one for each datagram that did not
    /// reach the Measurer's sockets (`missed`), and one for each query that AuthDNS missed or answered too late
    /// (`at_auth`).
    fn would_pass_with(&self, missed: u64, at_auth: u64, accept: Acceptance) -> bool {
        let mut counts = self.counts.clone();
        counts.valid += (missed.min(counts.lost) + at_auth).min(unanswered(&counts));
        missed + at_auth > 0 && accept.is_met(&counts)
    }

    /// Returns true if the trial fails under the criterion `accept`, but would pass without the possible losses of the
    /// tester or AuthDNS. This criterion may differ from the trial's own criterion.
    pub fn is_in_doubt(&self, accept: Acceptance) -> bool {
        let at_auth = self.auth.as_ref().map_or(0, AuthDelta::doubtful);
        let missed = self.tester_drops_at.missed.unwrap_or(0);
        !accept.is_met(&self.counts) && self.would_pass_with(missed, at_auth, accept)
    }

    /// Returns the deviation from the planned load if the trial passed. Also returns the deviation if the trial passes
    /// under the criterion `accept`, which may differ from the trial's own criterion.
    pub fn deviation_by(&self, accept: Acceptance) -> Option<Deviation> {
        let judged_now = || {
            let auth = self.auth.as_ref().filter(|_| accept.is_met(&self.counts))?;
            auth.asked.deviation(&self.wanted())
        };
        self.deviation.or_else(judged_now)
    }

    /// Determines from `facts` whether the trial complies with RFC 8219 §9.2.
    pub fn set_facts(&mut self, facts: Facts) {
        self.noncompliance = facts.noncompliance();
        self.compliant = self.noncompliance.is_empty();
        self.facts = facts;
    }
}

/// Returns the number of queries that may have failed because AuthDNS was slow or lossy. The DUT did not reply to these
/// queries in time, or replied with SERVFAIL.
pub fn unanswered(counts: &Counts) -> u64 {
    counts.late + counts.lost + counts.wrong.rcode.get(&SERVFAIL).unwrap_or(&0)
}

#[cfg(test)]
mod tests {
    use method::evidence::UpstreamQueries;

    use super::*;
    use crate::authdns::host_drops::{Arrived, HostDrops, Waits};

    /// Returns a trial of 1000 queries with `late` late replies, `failures` SERVFAIL replies, and `slow` queries to
    /// which AuthDNS replied slowly.
    fn weighed_with(late: u64, failures: u64, slow: u64) -> TrialResult {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1000));
        let mut counts =
            Counts { sent: 1000, valid: 1000 - late - failures, late, ..Counts::default() };
        counts.wrong.rcode.insert(SERVFAIL, failures);
        let mut trial = TrialResult::simulated(&plan, counts);
        let part = AuthDelta { slow, ..AuthDelta::default() };
        trial.apply_auth(part, plan.auth_limit, plan.subject);
        trial
    }

    fn weighed(late: u64, slow: u64) -> Verdict {
        weighed_with(late, 0, slow).verdict
    }

    #[test]
    fn simulated_and_unstarted_trials_have_verdicts() {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1000));
        let of = |valid, lost| {
            TrialResult::simulated(&plan, Counts { sent: 10, valid, lost, ..Counts::default() })
        };
        assert_eq!((of(10, 0).verdict, of(10, 0).reasons), (Verdict::Passed, vec![]));
        assert_eq!((of(9, 1).verdict, of(9, 1).reasons.len()), (Verdict::Failed, 1));
        assert_eq!(of(9, 0).verdict, Verdict::Invalid, "they do not add up");
        let none = TrialResult::not_begun(&plan, vec![Reason::NotPreloaded { names: 7 }]);
        assert_eq!(
            (none.verdict, none.reasons),
            (Verdict::Invalid, vec![Reason::NotPreloaded { names: 7 }])
        );
    }

    /// Returns a trial of 1000 queries with `failures` SERVFAIL replies and the AuthDNS counters `part`.
    fn judged(failures: u64, part: AuthDelta, change: fn(&mut TrialPlan)) -> TrialResult {
        let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1000));
        change(&mut plan);
        let mut counts = Counts { sent: 1000, valid: 1000 - failures, ..Counts::default() };
        counts.wrong.rcode.insert(SERVFAIL, failures);
        // The trial has as many names as queries.
        plan.duration = Nanos::SECOND;
        let mut trial = TrialResult::simulated(&plan, counts);
        trial.apply_auth(part, plan.auth_limit, plan.subject);
        trial
    }

    /// Returns the AuthDNS counters of a trial of 1000 names, each queried once.
    fn right_part() -> AuthDelta {
        let zone = ZoneFacts { domain: "dns64perf.test".into(), aaaa_share: Share::ZERO };
        AuthDelta {
            asked: UpstreamQueries { aaaa: 1000, a: 1000, ..UpstreamQueries::default() },
            names: Some(1000),
            zones: vec![zone],
            ..AuthDelta::default()
        }
    }

    fn kinds(trial: &TrialResult) -> (Verdict, Vec<ReasonKind>) {
        (trial.verdict, trial.reasons.iter().map(Reason::kind).collect())
    }

    #[test]
    fn a_dut_without_upstream_queries_is_not_measured() {
        let silent =
            AuthDelta { asked: UpstreamQueries::default(), names: Some(0), ..right_part() };
        let trial = judged(0, silent, |_| ());
        assert_eq!(kinds(&trial), (Verdict::Invalid, vec![ReasonKind::Deviation]));
        assert_eq!(trial.deviation, Some(Deviation::CachedShare { wanted: 0.0, real: 1.0 }));
        assert_eq!(kinds(&judged(0, right_part(), |_| ())), (Verdict::Passed, vec![]));
    }

    #[test]
    fn another_zone_makes_any_trial_invalid() {
        let self_test: fn(&mut TrialPlan) =
            |plan| plan.subject = Subject::Tester { factor: 1.0, delta: 0.1 };
        for (domain, aaaa) in [("other.test", 0), ("dns64perf.test", 50)] {
            let aaaa_share = Share::percent(aaaa);
            let zones = vec![ZoneFacts { domain: domain.into(), aaaa_share }];
            let part = AuthDelta { zones, ..right_part() };
            let invalid = (Verdict::Invalid, vec![ReasonKind::AuthServes]);
            for failures in [0, 500, 1000] {
                assert_eq!(kinds(&judged(failures, part.clone(), |_| ())), invalid);
                assert_eq!(kinds(&judged(failures, part.clone(), self_test)), invalid);
            }
        }
    }

    #[test]
    fn another_aaaa_share_makes_a_failed_trial_invalid() {
        let asked =
            UpstreamQueries { aaaa: 1000, a: 500, aaaa_present: 500, ..UpstreamQueries::default() };
        let part = AuthDelta { asked, zones: Vec::new(), ..right_part() };
        let trial = judged(500, part, |_| ());
        assert_eq!(kinds(&trial), (Verdict::Invalid, vec![ReasonKind::Deviation]));
        assert!(matches!(trial.deviation, Some(Deviation::AaaaShare { .. })), "{trial:?}");
        // The DUT drops half of the queries.
        let asked = UpstreamQueries { aaaa: 500, a: 500, ..UpstreamQueries::default() };
        let part = AuthDelta { asked, names: Some(500), ..right_part() };
        assert_eq!(
            kinds(&judged(500, part, |_| ())),
            (Verdict::Failed, vec![ReasonKind::TooFewValid])
        );
    }

    #[test]
    fn refused_queries_make_a_failed_trial_invalid() {
        let refusing = |refused| AuthDelta { refused, ..right_part() };
        let failed = |part| judged(1000, part, |_| ()).verdict;
        assert_eq!(
            kinds(&judged(1000, refusing(2000), |_| ())),
            (Verdict::Invalid, vec![ReasonKind::AuthRefused])
        );
        // A few refused queries are tolerated, such as queries for trust anchors.
        assert_eq!(
            (failed(refusing(40)), failed(refusing(43))),
            (Verdict::Failed, Verdict::Invalid)
        );
        assert_eq!(judged(0, refusing(500), |_| ()).verdict, Verdict::Passed);
    }

    #[test]
    fn other_clients_make_any_trial_invalid() {
        for failures in [0, 300] {
            let part = AuthDelta { other_trials: 2, ..right_part() };
            let trial = judged(failures, part, |_| ());
            assert_eq!(trial.verdict, Verdict::Invalid);
            assert_eq!(trial.reasons, [Reason::OtherTrials { trials: 2 }]);
            let part = AuthDelta { names: Some(1500), ..right_part() };
            let trial = judged(failures, part, |_| ());
            assert_eq!(trial.reasons, [Reason::OtherNames { asked: 1500, names: 1000 }]);
        }
        // Two cases: a few names of an earlier trial, and several AuthDNS instances that were queried for the same
        // names.
        for names in [Some(1020), None] {
            let part = AuthDelta { names, ..right_part() };
            assert_eq!(judged(0, part, |_| ()).verdict, Verdict::Passed);
        }
    }

    #[test]
    fn datagrams_that_authdns_missed_decide_or_warn() {
        let missing = |missed: u64| {
            let arrived = Some(Arrived { interfaces: 8000 + missed, sockets: 8000 });
            AuthDelta { host_drops: HostDrops { arrived, ..HostDrops::default() }, ..right_part() }
        };
        let invalid = judged(5, missing(5), |_| ());
        let reason = Reason::AuthMissed { datagrams: 5, came: 8005 };
        assert_eq!((invalid.verdict, invalid.reasons), (Verdict::Invalid, vec![reason]));
        for (failures, verdict) in [(5, Verdict::Failed), (0, Verdict::Passed)] {
            let trial = judged(failures, missing(4), |_| ());
            assert_eq!(trial.verdict, verdict);
            assert_eq!(trial.warnings, [Warning::AuthMissed { datagrams: 4 }]);
        }
        // Slow and missed queries are added.
        let both = judged(5, AuthDelta { slow: 2, ..missing(3) }, |_| ());
        assert_eq!(
            kinds(&both),
            (Verdict::Invalid, vec![ReasonKind::AuthDecides, ReasonKind::AuthMissed])
        );
        assert!(judged(5, missing(4), |_| ()).is_in_doubt(Acceptance(0.999)));
        // More than one datagram in a thousand was missed, so the outcomes of the queries do not matter.
        for failures in [0, 1000] {
            let trial = judged(failures, missing(9), |_| ());
            assert_eq!(kinds(&trial), (Verdict::Invalid, vec![ReasonKind::AuthMissed]));
        }
    }

    #[test]
    fn waits_beyond_the_lateness_limit_make_a_trial_invalid() {
        let waited = |ms| {
            let mut waits = Waits::default();
            waits.left.add(Nanos::from_millis(ms));
            let waits = [("to-dut".into(), waits)].into();
            AuthDelta { host_drops: HostDrops { waits, ..HostDrops::default() }, ..right_part() }
        };
        assert_eq!(judged(3, waited(8), |_| ()).verdict, Verdict::Failed);
        let trial = judged(3, waited(40), |_| ());
        assert_eq!(kinds(&trial), (Verdict::Invalid, vec![ReasonKind::AuthHostLoss]));
        let patient: fn(&mut TrialPlan) = |plan| plan.limits.lateness_p999 = Nanos::SECOND;
        assert_eq!(judged(3, waited(40), patient).verdict, Verdict::Failed);
    }

    #[test]
    fn results_of_older_versions_are_read() {
        let trial = judged(5, right_part(), |_| ());
        let mut json = serde_json::to_value(&trial).unwrap();
        json.as_object_mut().unwrap().remove("domain").unwrap();
        let auth = json["auth"].as_object_mut().unwrap();
        for new in ["refused", "names", "zones", "other_trials"] {
            auth.remove(new).unwrap();
        }
        auth["asked"].as_object_mut().unwrap().remove("aaaa_repeats").unwrap();
        let read: TrialResult = serde_json::from_value(json).unwrap();
        assert_eq!((read.verdict, read.domain), (trial.verdict, None));
    }

    #[test]
    fn a_decisively_slow_authdns_makes_a_trial_invalid() {
        assert_eq!(weighed(11, 11), Verdict::Invalid);
        assert_eq!(weighed(11, 10), Verdict::Failed);
        assert_eq!(weighed(11, 0), Verdict::Failed);
    }

    #[test]
    fn a_slow_authdns_may_explain_servfail() {
        assert_eq!(weighed_with(0, 5, 5).verdict, Verdict::Invalid);
        assert_eq!(weighed_with(3, 5, 7).verdict, Verdict::Failed);
    }

    #[test]
    fn a_failure_may_be_in_doubt_for_a_lower_acceptance() {
        // 15 of 1000 queries failed. Without the 12 queries for which AuthDNS was slow, only 3 would have failed.
        let trial = weighed_with(15, 0, 12);
        assert_eq!(trial.verdict, Verdict::Failed);
        let doubted =
            [1.0, 0.998, 0.997, 0.99, 0.985, 0.9].map(|a| trial.is_in_doubt(Acceptance(a)));
        assert_eq!(doubted, [false, false, true, true, false, false]);
    }
}
