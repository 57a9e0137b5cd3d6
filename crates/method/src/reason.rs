//! Why a trial did not pass, as data. Whoever prints a reason puts it into words with its
//! `Display`; nobody decides by the words.
//!
//! ```text
//! pacing ──┐
//! host ────┼─► Reason ─┬─► journal, JSON      {"kind": "auth_slow", "p999_us": 15321.0, …} and the words beside it
//! AuthDNS ─┤           ├─► Reason::kind ────► reasons of many trials counted
//! DUT ─────┘           └─► Display ─────────► terminal, report
//! ```

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::evidence::Deviation;
use crate::records::Counts;
use crate::units::{CpuId, Nanos, Share, counted, grouped};

/// A loss on the tester's host: in its sending or receiving, so that it says nothing about the DUT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum HostLoss {
    /// The Measurer's socket buffers were full.
    Sockets {
        /// How many packets were dropped.
        packets: u64,
    },
    /// The Measurer's AF_XDP rings were full.
    Rings {
        /// How many packets were dropped.
        packets: u64,
        /// The interface's name.
        interface: String,
    },
    /// An interface dropped what it received.
    InterfaceReceive {
        /// How many packets were dropped.
        packets: u64,
        /// The interface's name.
        interface: String,
    },
    /// An interface dropped what it had to send.
    InterfaceSend {
        /// How many packets were dropped.
        packets: u64,
        /// The interface's name.
        interface: String,
    },
    /// A queueing discipline dropped what the Measurer had sent.
    QueueingDiscipline {
        /// Packets; several queries that left in one call (`UDP_SEGMENT`) are one packet here.
        packets: u64,
        /// What tc(8) calls it; `None` where it is not known.
        discipline: Option<String>,
        /// The interface that it belongs to.
        interface: String,
    },
    /// Packets waited in a queueing discipline for longer than the limit.
    Waited {
        /// Number of packets that waited for longer.
        packets: u64,
        /// The longest wait, as far as looks at the queue show.
        longest: Nanos,
        /// The limit for a wait.
        limit: Nanos,
        /// Kind of the discipline as in tc(8); `None` if it is not known.
        discipline: Option<String>,
        /// The interface of the discipline.
        interface: String,
    },
    /// The next hop's link-layer address was not known: packets waited in a short queue, which
    /// drops what it cannot hold.
    Neighbour {
        /// Packets dropped; `None` where the kernel's counter is not to be seen.
        packets: Option<u64>,
        /// The next hop's address.
        address: IpAddr,
        /// The interface that it is reached by.
        interface: String,
        /// For how long the address was not known, to the accuracy of the looks at it.
        unresolved: Nanos,
    },
}

/// The facts of a zone that replies depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ZoneFacts {
    /// Name of the zone.
    pub domain: String,
    /// Share of names with an AAAA record (α).
    pub aaaa_share: Share,
}

impl fmt::Display for ZoneFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ZoneFacts { domain, aaaa_share } = self;
        write!(f, "{domain} with an AAAA share of {} %", aaaa_share.per_hundred())
    }
}

/// Use of the DUT's CPUs by neither the DUT nor the tester, in per cent of their time in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OtherUse {
    /// Other programs; absent if the host does not show all of its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs_pct: Option<f64>,
    /// Time taken by a hypervisor.
    pub stolen_pct: f64,
    /// Interrupts, which may be those of the trial's packets.
    pub interrupts_pct: f64,
}

impl OtherUse {
    /// Other programs and stolen time together, in per cent.
    pub fn total_pct(&self) -> f64 {
        self.programs_pct.unwrap_or(0.0) + self.stolen_pct
    }
}

impl fmt::Display for OtherUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.programs_pct {
            Some(programs) => write!(f, "other programs used {programs:.1} %")?,
            None => f.write_str("the use by other programs is not known")?,
        }
        let OtherUse { stolen_pct, interrupts_pct, .. } = self;
        write!(f, ", a hypervisor {stolen_pct:.1} % and interrupts {interrupts_pct:.1} %")
    }
}

/// One half of a pair of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// The thread that sends.
    Sender,
    /// The thread that receives.
    Receiver,
}

/// Why a trial failed or is invalid. In JSON an object whose `kind` is the variant's name in snake
/// case, beside the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The queries of a window of 100 ms were too far from the schedule
    /// (`PacingLimits::window_100ms_pct`).
    WindowOff {
        /// The worst window's deviation, in per cent of what was due in it.
        worst_pct: f64,
        /// The limit, in per cent.
        limit_pct: f64,
    },
    /// One query in a thousand left too late (`PacingLimits::lateness_p999`).
    Late {
        /// 99.9th percentile of lateness in microseconds.
        p999_us: f64,
        /// The limit that was exceeded.
        limit: Nanos,
    },
    /// More or fewer queries were sent than planned (`PacingLimits::total_pct`).
    TotalOff {
        /// Queries that were sent.
        sent: u64,
        /// Queries that the schedule holds.
        planned: u64,
        /// The limit, in per cent of the plan.
        limit_pct: f64,
    },
    /// A thread could not be kept on its CPU.
    NotPinned {
        /// The thread that could not be kept there.
        half: Half,
        /// The CPU that it should run on.
        cpu: CpuId,
        /// What the system says.
        error: String,
    },
    /// The receiver did not keep up: the ledger had no room for further queries.
    LedgerFull,
    /// The kernel refused to send.
    SendRefused {
        /// The pair's first query that was refused.
        query: u64,
        /// What the system says; `None` where it takes packets again.
        error: Option<String>,
    },
    /// The kernel refused to send queries, each of which was waited for like the others.
    QueriesRefused {
        /// How many.
        queries: u64,
    },
    /// The receiver could not receive.
    CannotReceive {
        /// What the system says.
        error: String,
    },
    /// The disk did not keep up with the records of the queries.
    RecordsLost {
        /// Records that are missing.
        records: u64,
    },
    /// The tester's host lost packets below its sockets, or in them.
    HostLoss(HostLoss),
    /// The outcomes do not add up: a defect of the tester.
    Unbalanced {
        /// Queries that were sent.
        sent: u64,
    },
    /// The interface got datagrams for the tester that its sockets did not, as many as would have
    /// let the trial pass.
    Missed {
        /// Datagrams that no socket of the tester got.
        datagrams: u64,
        /// Queries that count as lost.
        lost: u64,
    },
    /// The DUT did not resolve names that the trial was to find in its cache, so that the trial
    /// could not begin.
    NotPreloaded {
        /// Names that were not resolved.
        names: u64,
    },
    /// AuthDNS's sockets were full.
    AuthDropped {
        /// Queries that AuthDNS did not read.
        queries: u64,
    },
    /// The kernel refused to send what AuthDNS answered.
    AuthSendRefused {
        /// Replies that were not sent.
        replies: u64,
    },
    /// AuthDNS's host lost packets below AuthDNS's sockets.
    AuthHostLoss(HostLoss),
    /// AuthDNS was started anew during the trial: what it was asked before is not known, and what
    /// came meanwhile is lost.
    AuthRestarted,
    /// AuthDNS itself took too long for one query in a thousand.
    AuthSlow {
        /// 99.9th percentile of its own time in microseconds.
        p999_us: f64,
        /// The limit that was exceeded.
        limit: Nanos,
    },
    /// AuthDNS was slow for as many questions as would have let a failed trial pass.
    AuthDecides {
        /// Questions for which it took longer than the limit.
        questions: u64,
        /// The limit that was exceeded.
        limit: Nanos,
        /// Queries of the trial without a reply in time, or with SERVFAIL.
        unanswered: u64,
    },
    /// The interface of AuthDNS's host got datagrams for AuthDNS that AuthDNS's sockets did not: more
    /// than one in a thousand, or as many as would have let a failed trial pass.
    AuthMissed {
        /// Datagrams that no socket of AuthDNS got.
        datagrams: u64,
        /// Datagrams for AuthDNS that its interfaces got.
        came: u64,
    },
    /// AuthDNS serves another zone than the trial needs.
    AuthServes {
        /// The zone that AuthDNS serves.
        served: ZoneFacts,
        /// The zone that the trial needs.
        wanted: ZoneFacts,
    },
    /// AuthDNS refused questions, or denied their names, in a trial that would have failed.
    AuthRefused {
        /// Replies with REFUSED or NXDOMAIN.
        refused: u64,
        /// All questions to AuthDNS.
        questions: u64,
    },
    /// Other trials used the same AuthDNS at the same time.
    OtherTrials {
        /// Number of other trials.
        trials: u64,
    },
    /// AuthDNS was asked for more names than the trial has.
    OtherNames {
        /// Names that AuthDNS was asked for.
        asked: u64,
        /// Names of the trial.
        names: u64,
    },
    /// The user ended the trial before its time.
    Interrupted {
        /// For how long queries were sent.
        duration: Nanos,
        /// For how long they were to be sent.
        planned: Nanos,
    },
    /// The DUT was not asked what the trial wanted.
    Deviation {
        /// What was wanted, and what was found.
        deviation: Deviation,
    },
    /// One of several testers spoiled the trial.
    OfShard {
        /// Which of them, from 0 on.
        shard: u16,
        /// In which way.
        reason: Box<Reason>,
    },
    /// Of a reason that is one host's: which host that is, as a campaign's plan calls it.
    OnHost {
        /// The host.
        host: String,
        /// What happened there.
        reason: Box<Reason>,
    },
    /// One of several testers was not ready when the trial began, and sent none of its queries.
    NotReady {
        /// By how much it was late, by its own clock.
        late: Nanos,
    },
    /// One of several testers had not ended long after the trial, so that what it saw is not known.
    NotEnded {
        /// For how long it was waited for after the time of the last reply.
        waited: Nanos,
    },
    /// The clock of one of several testers was too far from the time of the others, or nobody knows
    /// how far.
    ClockOff {
        /// By how much, as far as it is known.
        error: Option<Nanos>,
        /// How far it may be off.
        limit: Nanos,
    },
    /// One of several testers got no valid reply at all, and the others did: what keeps replies from
    /// it is not the DUT.
    NothingCameBack {
        /// Queries that it sent.
        sent: u64,
        /// Valid replies that it had got if it had fared as the others did.
        expected: u64,
    },
    /// The clock that queries are sent by was being set right by running faster or slower, and so
    /// was the rate.
    ClockSlewed {
        /// How much faster than the hardware's it ran, in millionths; below 0, slower.
        ppm: f64,
        /// How much it may.
        limit_ppm: f64,
    },
    /// Other programs, or a hypervisor, used the DUT's CPUs in a trial that failed.
    OtherPrograms {
        /// The use of the CPUs on which the DUT may run.
        used: OtherUse,
        /// The limit for other programs and stolen time together, in per cent.
        limit_pct: f64,
    },
    /// Too few queries got a valid reply: this, and nothing else, is the DUT's failure.
    TooFewValid {
        /// Queries that were sent.
        sent: u64,
        /// Of these: with a valid reply.
        valid: u64,
        /// Queries without any reply.
        lost: u64,
        /// With a reply at or after the timeout.
        late: u64,
        /// With a wrong reply.
        wrong: u64,
    },
}

/// What sort of reason it is, whatever its numbers are.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "each is the variant of `Reason` or `HostLoss` of its name")]
pub enum ReasonKind {
    WindowOff,
    Late,
    TotalOff,
    NotPinned,
    LedgerFull,
    SendRefused,
    QueriesRefused,
    CannotReceive,
    RecordsLost,
    Sockets,
    Rings,
    InterfaceReceive,
    InterfaceSend,
    QueueingDiscipline,
    Waited,
    Neighbour,
    Unbalanced,
    Missed,
    NotPreloaded,
    AuthDropped,
    AuthSendRefused,
    AuthHostLoss,
    AuthRestarted,
    AuthSlow,
    AuthDecides,
    AuthMissed,
    AuthServes,
    AuthRefused,
    OtherTrials,
    OtherNames,
    Interrupted,
    Deviation,
    NotReady,
    NotEnded,
    ClockOff,
    NothingCameBack,
    ClockSlewed,
    OtherPrograms,
    TooFewValid,
}

impl HostLoss {
    /// What sort of reason it is.
    pub fn kind(&self) -> ReasonKind {
        match self {
            HostLoss::Sockets { .. } => ReasonKind::Sockets,
            HostLoss::Rings { .. } => ReasonKind::Rings,
            HostLoss::InterfaceReceive { .. } => ReasonKind::InterfaceReceive,
            HostLoss::InterfaceSend { .. } => ReasonKind::InterfaceSend,
            HostLoss::QueueingDiscipline { .. } => ReasonKind::QueueingDiscipline,
            HostLoss::Waited { .. } => ReasonKind::Waited,
            HostLoss::Neighbour { .. } => ReasonKind::Neighbour,
        }
    }
}

impl Reason {
    /// That so few of a trial's queries got a valid reply.
    pub fn too_few_valid(counts: &Counts) -> Reason {
        let Counts { sent, valid, lost, late, .. } = *counts;
        Reason::TooFewValid { sent, valid, lost, late, wrong: counts.wrong.total() }
    }

    /// What sort of reason it is.
    pub fn kind(&self) -> ReasonKind {
        match self {
            Reason::WindowOff { .. } => ReasonKind::WindowOff,
            Reason::Late { .. } => ReasonKind::Late,
            Reason::TotalOff { .. } => ReasonKind::TotalOff,
            Reason::NotPinned { .. } => ReasonKind::NotPinned,
            Reason::LedgerFull => ReasonKind::LedgerFull,
            Reason::SendRefused { .. } => ReasonKind::SendRefused,
            Reason::QueriesRefused { .. } => ReasonKind::QueriesRefused,
            Reason::CannotReceive { .. } => ReasonKind::CannotReceive,
            Reason::RecordsLost { .. } => ReasonKind::RecordsLost,
            Reason::HostLoss(loss) => loss.kind(),
            Reason::Unbalanced { .. } => ReasonKind::Unbalanced,
            Reason::Missed { .. } => ReasonKind::Missed,
            Reason::NotPreloaded { .. } => ReasonKind::NotPreloaded,
            Reason::AuthDropped { .. } => ReasonKind::AuthDropped,
            Reason::AuthSendRefused { .. } => ReasonKind::AuthSendRefused,
            Reason::AuthHostLoss(_) => ReasonKind::AuthHostLoss,
            Reason::AuthRestarted => ReasonKind::AuthRestarted,
            Reason::AuthSlow { .. } => ReasonKind::AuthSlow,
            Reason::AuthDecides { .. } => ReasonKind::AuthDecides,
            Reason::AuthMissed { .. } => ReasonKind::AuthMissed,
            Reason::AuthServes { .. } => ReasonKind::AuthServes,
            Reason::AuthRefused { .. } => ReasonKind::AuthRefused,
            Reason::OtherTrials { .. } => ReasonKind::OtherTrials,
            Reason::OtherNames { .. } => ReasonKind::OtherNames,
            Reason::Interrupted { .. } => ReasonKind::Interrupted,
            Reason::Deviation { .. } => ReasonKind::Deviation,
            Reason::OfShard { reason, .. } | Reason::OnHost { reason, .. } => reason.kind(),
            Reason::NotReady { .. } => ReasonKind::NotReady,
            Reason::NotEnded { .. } => ReasonKind::NotEnded,
            Reason::ClockOff { .. } => ReasonKind::ClockOff,
            Reason::NothingCameBack { .. } => ReasonKind::NothingCameBack,
            Reason::ClockSlewed { .. } => ReasonKind::ClockSlewed,
            Reason::OtherPrograms { .. } => ReasonKind::OtherPrograms,
            Reason::TooFewValid { .. } => ReasonKind::TooFewValid,
        }
    }
}

impl fmt::Display for ReasonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReasonKind::WindowOff => "pacing: a 100 ms window was off",
            ReasonKind::Late => "pacing: one query in a thousand left late",
            ReasonKind::TotalOff => "pacing: another number of queries was sent than planned",
            ReasonKind::NotPinned => "a thread could not be pinned to its CPU",
            ReasonKind::LedgerFull => "the receiver did not keep up",
            ReasonKind::SendRefused => "the kernel refused to send queries",
            ReasonKind::QueriesRefused => "the kernel refused to send queries of a closed loop",
            ReasonKind::CannotReceive => "the tester could not receive",
            ReasonKind::RecordsLost => "the disk did not keep up with the records",
            ReasonKind::Sockets => "the tester's sockets dropped packets",
            ReasonKind::Rings => "the tester's AF_XDP rings dropped packets",
            ReasonKind::InterfaceReceive => "the tester's interface dropped received packets",
            ReasonKind::InterfaceSend => "the tester's interface dropped packets to be sent",
            ReasonKind::QueueingDiscipline => "the tester's queueing discipline dropped packets",
            ReasonKind::Waited => "packets waited in the tester's queueing discipline",
            ReasonKind::Neighbour => "the tester's neighbour was not resolved",
            ReasonKind::Unbalanced => "internal error: outcomes do not add up",
            ReasonKind::Missed => "the interface got datagrams that the sockets did not",
            ReasonKind::NotPreloaded => "names to be cached could not be resolved before the trial",
            ReasonKind::AuthDropped => "AuthDNS dropped queries",
            ReasonKind::AuthSendRefused => "the kernel refused AuthDNS's replies",
            ReasonKind::AuthHostLoss => "AuthDNS's host lost packets below its sockets",
            ReasonKind::AuthRestarted => "AuthDNS was started anew",
            ReasonKind::AuthSlow => "AuthDNS was slow for one query in a thousand",
            ReasonKind::AuthDecides => "AuthDNS was slow for as many questions as decided",
            ReasonKind::AuthMissed => "AuthDNS's interface got datagrams that its sockets did not",
            ReasonKind::AuthServes => "AuthDNS serves another zone than the trial needs",
            ReasonKind::AuthRefused => "AuthDNS refused questions",
            ReasonKind::OtherTrials => "other trials used AuthDNS at the same time",
            ReasonKind::OtherNames => "AuthDNS was asked for more names than the trial has",
            ReasonKind::Interrupted => "interrupted",
            ReasonKind::Deviation => "the DUT was not asked what the trial wanted",
            ReasonKind::NotReady => "one of several testers was not ready in time",
            ReasonKind::NotEnded => "one of several testers did not end in time",
            ReasonKind::ClockOff => "a tester's clock was off",
            ReasonKind::NothingCameBack => "one of several testers got nothing back",
            ReasonKind::ClockSlewed => "the tester's clock was being set right",
            ReasonKind::OtherPrograms => "other programs used the DUT's CPUs",
            ReasonKind::TooFewValid => "too few queries got a valid reply",
        })
    }
}

fn packets_of(n: u64) -> String {
    counted(n, "packet", "packets")
}

impl fmt::Display for HostLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostLoss::Sockets { packets } => {
                write!(
                    f,
                    "the tester's sockets had no room for {}, which were dropped",
                    packets_of(*packets)
                )
            }
            HostLoss::Rings { packets, interface } => {
                write!(
                    f,
                    "the tester's AF_XDP rings on {interface} had no room for {}, which were dropped",
                    packets_of(*packets)
                )
            }
            HostLoss::InterfaceReceive { packets, interface } => {
                write!(
                    f,
                    "the tester's interface {interface} dropped {}",
                    counted(*packets, "received packet", "received packets")
                )
            }
            HostLoss::InterfaceSend { packets, interface } => {
                write!(
                    f,
                    "the tester's interface {interface} dropped {} to be sent",
                    packets_of(*packets)
                )
            }
            HostLoss::QueueingDiscipline { packets, discipline, interface } => {
                let discipline = discipline.as_deref().unwrap_or("of unknown kind");
                write!(
                    f,
                    "the tester's own queueing discipline ({discipline} on {interface}) dropped {}",
                    packets_of(*packets)
                )
            }
            HostLoss::Waited { packets, longest, limit, discipline, interface } => {
                let discipline = discipline.as_deref().unwrap_or("of unknown kind");
                write!(
                    f,
                    "{} waited longer than {} ms in the tester's own queueing discipline ({discipline} on \
                     {interface}), up to {:.0} ms",
                    packets_of(*packets),
                    limit.as_millis_f64(),
                    longest.as_millis_f64()
                )
            }
            HostLoss::Neighbour { packets, address, interface, unresolved } => {
                let ms = unresolved.0 / 1_000_000;
                write!(
                    f,
                    "the tester's neighbour {address} on {interface} was not resolved for {ms} ms; "
                )?;
                match packets {
                    Some(packets) => write!(f, "its queue dropped {}", packets_of(*packets)),
                    None => write!(f, "how many packets its queue dropped is not known"),
                }
            }
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Half::Sender => "sender",
            Half::Receiver => "receiver",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::WindowOff { worst_pct, limit_pct } => {
                write!(
                    f,
                    "pacing: a 100 ms window was off by {worst_pct:.2} %, limit {limit_pct} %"
                )
            }
            Reason::Late { p999_us, limit } => {
                let [late, limit] =
                    [*p999_us, limit.0 as f64 / 1e3].map(|us| grouped(us.round() as u64));
                write!(f, "pacing: p99.9 lateness {late} µs, limit {limit} µs")
            }
            Reason::TotalOff { sent, planned, limit_pct } => {
                let (sent, planned) = (counted(*sent, "query", "queries"), grouped(*planned));
                write!(
                    f,
                    "pacing: {sent} sent of {planned} planned, limit ± {limit_pct} % of the total"
                )
            }
            Reason::NotPinned { half, cpu, error } => {
                write!(f, "cannot pin the {half} to CPU {}: {error}", cpu.0)
            }
            Reason::LedgerFull => {
                write!(f, "the receiver did not keep up: no room for further queries in the ledger")
            }
            Reason::SendRefused { query, error } => {
                let error = error.as_deref().unwrap_or("no longer");
                write!(f, "the kernel refused to send query {}: {error}", grouped(*query))
            }
            Reason::QueriesRefused { queries } => {
                let queries = counted(*queries, "query", "queries");
                write!(f, "the kernel refused to send {queries}")
            }
            Reason::CannotReceive { error } => write!(f, "cannot receive: {error}"),
            Reason::RecordsLost { records } => {
                write!(
                    f,
                    "the disk did not keep up: {} missing",
                    counted(*records, "record is", "records are")
                )
            }
            Reason::HostLoss(loss) => loss.fmt(f),
            Reason::Unbalanced { sent } => {
                let sent = counted(*sent, "query", "queries");
                write!(f, "internal error: outcomes do not add up to {sent} sent")
            }
            Reason::Missed { datagrams, lost } => write!(
                f,
                "the interface got {} for the tester that its sockets did not; {} as lost: look for a packet filter \
                 (dns64bench check)",
                counted(*datagrams, "datagram", "datagrams"),
                counted(*lost, "query counts", "queries count")
            ),
            Reason::NotPreloaded { names } => {
                write!(
                    f,
                    "{} of the names to be cached could not be resolved before the trial",
                    grouped(*names)
                )
            }
            Reason::Interrupted { duration, planned } => {
                let (duration, planned) = (duration.as_secs_f64(), planned.as_secs_f64());
                write!(f, "interrupted after {duration:.1} of {planned:.1} s")
            }
            Reason::Deviation { deviation } => deviation.fmt(f),
            Reason::OfShard { shard, reason } => write!(f, "shard {shard}: {reason}"),
            Reason::OnHost { host, reason } => write!(f, "{host}: {reason}"),
            Reason::NotReady { late } => write!(
                f,
                "it was not ready when the trial began, but {:.3} s later by its clock, and sent nothing",
                late.as_secs_f64()
            ),
            Reason::NotEnded { waited } => write!(
                f,
                "it had not ended {:.0} s after the time of the last reply, and what it saw is not known",
                waited.as_secs_f64()
            ),
            Reason::ClockOff { error, limit } => {
                let us = |time: &Nanos| grouped(time.0.div_ceil(1000));
                match error {
                    Some(error) => {
                        write!(
                            f,
                            "its clock may be off by {} µs, limit {} µs",
                            us(error),
                            us(limit)
                        )
                    }
                    None => write!(
                        f,
                        "nobody knows how far its clock is off, limit {} µs: let chrony set it (with rtcsync), or say --offset",
                        us(limit)
                    ),
                }
            }
            Reason::NothingCameBack { sent, expected } => write!(
                f,
                "none of its {} got a valid reply, and some {} had if it fared as the others: is there a way back to it?",
                counted(*sent, "query", "queries"),
                grouped(*expected)
            ),
            Reason::ClockSlewed { ppm, limit_ppm } => {
                let how = if *ppm < 0.0 { "slower" } else { "faster" };
                write!(
                    f,
                    "the clock ran {:.2} % {how} than the hardware's, limit {:.2} %, and queries left so: it was being set \
                     right; wait until that is over (chronyc tracking)",
                    ppm.abs() / 1e4,
                    limit_ppm / 1e4
                )
            }
            Reason::OtherPrograms { used, limit_pct } => write!(
                f,
                "of the CPU time that the DUT may use, {used}; the limit of the first two is {limit_pct} %"
            ),
            Reason::TooFewValid { sent, valid, lost, late, wrong } => {
                let share = *valid as f64 / *sent as f64 * 100.0;
                let sent = counted(*sent, "query", "queries");
                let [valid, lost, late, wrong] = [*valid, *lost, *late, *wrong].map(grouped);
                write!(
                    f,
                    "{valid} of {sent} got a valid reply ({share:.4} %): {lost} lost, {late} late, {wrong} wrong"
                )
            }
            Reason::AuthDropped { .. }
            | Reason::AuthSendRefused { .. }
            | Reason::AuthHostLoss(_)
            | Reason::AuthRestarted
            | Reason::AuthSlow { .. }
            | Reason::AuthDecides { .. }
            | Reason::AuthMissed { .. }
            | Reason::AuthServes { .. }
            | Reason::AuthRefused { .. }
            | Reason::OtherTrials { .. }
            | Reason::OtherNames { .. } => self.of_auth(f),
        }
    }
}

impl Reason {
    /// The words of reasons that concern AuthDNS.
    fn of_auth(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::AuthDropped { queries } => {
                write!(
                    f,
                    "AuthDNS dropped {}: it was too slow to read",
                    counted(*queries, "query", "queries")
                )
            }
            Reason::AuthSendRefused { replies } => {
                write!(f, "the kernel refused {} of AuthDNS's replies", grouped(*replies))
            }
            Reason::AuthHostLoss(loss) => write!(f, "at AuthDNS: {loss}"),
            Reason::AuthRestarted => f.write_str("AuthDNS was started anew during the trial"),
            Reason::AuthSlow { p999_us, limit } => {
                let (took, limit) = (p999_us / 1e3, limit.as_millis_f64());
                write!(f, "AuthDNS took {took:.1} ms for one query in a thousand, limit {limit} ms")
            }
            Reason::AuthDecides { questions, limit, unanswered } => {
                let limit = limit.as_millis_f64();
                let questions = counted(*questions, "question", "questions");
                write!(
                    f,
                    "AuthDNS took longer than {limit} ms for {questions}, which may be why "
                )?;
                write!(f, "{} got no valid reply in time", counted(*unanswered, "query", "queries"))
            }
            Reason::AuthMissed { datagrams, came } => write!(
                f,
                "the interface of AuthDNS's host got {} for AuthDNS, and AuthDNS's sockets did not get {} of them: look \
                 for a packet filter there (dns64bench check)",
                counted(*came, "datagram", "datagrams"),
                grouped(*datagrams)
            ),
            Reason::AuthServes { served, wanted } => {
                write!(f, "AuthDNS serves {served}, and the trial needs {wanted}")
            }
            Reason::AuthRefused { refused, questions } => write!(
                f,
                "AuthDNS refused or denied {} of {}: their names are not in its zone",
                grouped(*refused),
                counted(*questions, "question", "questions")
            ),
            Reason::OtherTrials { trials } => write!(
                f,
                "{} used this AuthDNS at the same time: names cached for one trial count for both",
                counted(*trials, "other trial", "other trials")
            ),
            Reason::OtherNames { asked, names } => write!(
                f,
                "AuthDNS was asked for {}, and the trial has {}: another client used the DUT or AuthDNS at the same time",
                counted(*asked, "name", "names"),
                grouped(*names)
            ),
            _ => Ok(()),
        }
    }
}

crate::in_words::in_words!(Reason: "reasons", "causes");

#[cfg(test)]
mod tests;
