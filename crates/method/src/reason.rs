//! Reasons why a trial did not pass. A reason is stored as data, and `Display` converts it to text. No code makes
//! decisions based on the text.
//!
//! ```text
//! pacing ──┐
//! host ────┼─► Reason ─┬─► journal, JSON      {"kind": "auth_slow", "p999_us": 15321.0, …} and its text
//! AuthDNS ─┤           ├─► Reason::kind ────► counts of reasons over many trials
//! DUT ─────┘           └─► Display ─────────► terminal, report
//! ```

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::evidence::Deviation;
use crate::records::Counts;
use units::{CpuId, Nanos, Share, counted, grouped};

/// Packets that were lost or delayed on the tester's host. The cause is this host, and not the DUT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum HostLoss {
    /// The Measurer's socket buffers were full.
    Sockets {
        /// Number of dropped packets.
        packets: u64,
    },
    /// The Measurer's AF_XDP rings were full.
    Rings {
        /// Number of dropped packets.
        packets: u64,
        /// The interface's name.
        interface: String,
    },
    /// An interface dropped incoming packets.
    InterfaceReceive {
        /// Number of dropped packets.
        packets: u64,
        /// The interface's name.
        interface: String,
    },
    /// An interface dropped outgoing packets.
    InterfaceSend {
        /// Number of dropped packets.
        packets: u64,
        /// The interface's name.
        interface: String,
    },
    /// A queueing discipline dropped the Measurer's packets.
    QueueingDiscipline {
        /// Number of dropped packets. If several queries were sent in one system call (`UDP_SEGMENT`), they count as
        /// one packet.
        packets: u64,
        /// Kind of the queueing discipline as shown by tc(8); `None` if unknown.
        discipline: Option<String>,
        /// Interface to which the queueing discipline is attached.
        interface: String,
    },
    /// Packets waited in a queueing discipline for longer than the limit.
    Waited {
        /// Number of packets that waited in the queue for longer than the limit.
        packets: u64,
        /// Longest waiting time found in samples of the queue.
        longest: Nanos,
        /// Maximum permitted waiting time of a packet.
        limit: Nanos,
        /// Kind of the queueing discipline as shown by tc(8); `None` if unknown.
        discipline: Option<String>,
        /// Interface to which the queueing discipline is attached.
        interface: String,
    },
    /// The link-layer address of the next hop was unknown. Packets for this address waited in a short queue, and the
    /// kernel dropped packets when the queue was full.
    Neighbour {
        /// Number of dropped packets; `None` if the kernel's counter is not visible.
        packets: Option<u64>,
        /// Address of the next hop.
        address: IpAddr,
        /// Interface to the next hop.
        interface: String,
        /// Time for which the link-layer address was unknown. It is only as accurate as the sampling interval.
        unresolved: Nanos,
    },
}

/// Properties of a zone that determine the replies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ZoneFacts {
    /// Name of the zone.
    pub domain: String,
    /// Fraction of the names in the zone that have an AAAA record (α).
    pub aaaa_share: Share,
}

impl fmt::Display for ZoneFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ZoneFacts { domain, aaaa_share } = self;
        write!(f, "{domain} with an AAAA share of {} %", aaaa_share.per_hundred())
    }
}

/// CPU time used by anything except the DUT and the tester, in per cent of the total time of the DUT's CPUs in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OtherUse {
    /// CPU time used by other programs; absent if the host does not show all of its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs_pct: Option<f64>,
    /// CPU time taken by a hypervisor.
    pub stolen_pct: f64,
    /// CPU time used by interrupts. The trial's packets may cause such interrupts.
    pub interrupts_pct: f64,
}

impl OtherUse {
    /// Returns the CPU time used by other programs plus the CPU time taken by a hypervisor, in per cent.
    pub fn total_pct(&self) -> f64 {
        self.programs_pct.unwrap_or(0.0) + self.stolen_pct
    }
}

impl fmt::Display for OtherUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.programs_pct {
            Some(programs) => write!(f, "other programs used {programs:.1} %")?,
            None => f.write_str("the use by other programs is unknown")?,
        }
        let OtherUse { stolen_pct, interrupts_pct, .. } = self;
        write!(f, ", a hypervisor {stolen_pct:.1} % and interrupts {interrupts_pct:.1} %")
    }
}

/// One thread of a thread pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// The sending thread.
    Sender,
    /// The receiving thread.
    Receiver,
}

/// Reason why a trial failed or is invalid. In JSON, a reason is an object with the variant's data and the member
/// `kind`, which contains the variant's name in snake case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// In a 100 ms window, the number of queries sent differed too much from the schedule
    /// (`PacingLimits::window_100ms_pct`).
    WindowOff {
        /// Largest deviation from the schedule in any 100 ms window, in per cent of the queries due in that window.
        worst_pct: f64,
        /// Maximum permitted deviation from the schedule in a 100 ms window, in per cent.
        limit_pct: f64,
    },
    /// At least one query in a thousand was sent too late (`PacingLimits::lateness_p999`).
    Late {
        /// 99.9th percentile of lateness in microseconds.
        p999_us: f64,
        /// Limit for the lateness, which was exceeded.
        limit: Nanos,
    },
    /// More or fewer queries were sent than planned (`PacingLimits::total_pct`).
    TotalOff {
        /// Number of queries sent.
        sent: u64,
        /// Number of planned queries.
        planned: u64,
        /// Maximum permitted difference between the queries sent and planned, in per cent of the planned queries.
        limit_pct: f64,
    },
    /// A thread could not be pinned to its CPU.
    NotPinned {
        /// Thread that could not be pinned.
        half: Half,
        /// CPU to which the thread should be pinned.
        cpu: CpuId,
        /// Error returned by the system.
        error: String,
    },
    /// The receiver was too slow. The table of outstanding queries had no space for further queries.
    LedgerFull,
    /// The kernel returned a send error.
    SendRefused {
        /// Index of the first query with a send error, among the queries of its thread pair. If an AF_XDP device still
        /// has unsent packets at the end, the index of the last query passed to it.
        query: u64,
        /// Error returned by the system. `None` if the kernel already accepts packets again, because the error can then
        /// no longer be determined.
        error: Option<String>,
    },
    /// In a closed-loop measurement, the kernel returned send errors for some queries, so these queries got no reply.
    QueriesRefused {
        /// Number of queries that were not sent.
        queries: u64,
    },
    /// The receiving thread could not receive packets.
    CannotReceive {
        /// Error returned by the system.
        error: String,
    },
    /// The disk was too slow to store a record of each query.
    RecordsLost {
        /// Number of queries for which no record was stored.
        records: u64,
    },
    /// The tester's host lost packets in its sockets or in a lower layer of the network stack.
    HostLoss(HostLoss),
    /// The numbers of outcomes do not add up to the number of queries sent. This is a defect of the tester.
    Unbalanced {
        /// Number of queries sent.
        sent: u64,
    },
    /// The tester's interface received datagrams that did not reach the tester's sockets. With these datagrams as
    /// additional valid replies, the trial would have passed.
    Missed {
        /// Number of datagrams that did not reach a socket of the tester.
        datagrams: u64,
        /// Number of queries that count as lost.
        lost: u64,
    },
    /// The trial could not begin, because the DUT did not resolve all names that should have been in its cache.
    NotPreloaded {
        /// Number of names that the DUT did not resolve.
        names: u64,
    },
    /// The receive buffers of AuthDNS's sockets were full.
    AuthDropped {
        /// Number of queries that AuthDNS did not read.
        queries: u64,
    },
    /// The kernel returned send errors for AuthDNS's replies.
    AuthSendRefused {
        /// Number of replies that were not sent.
        replies: u64,
    },
    /// AuthDNS's host lost packets in a layer below AuthDNS's sockets.
    AuthHostLoss(HostLoss),
    /// AuthDNS was restarted during the trial. Its counters from before the restart are unknown, and queries that
    /// arrived during the restart are lost.
    AuthRestarted,
    /// AuthDNS's counters could not be read after the trial. AuthDNS either ended, or was restarted without its status
    /// socket.
    AuthLost {
        /// Error returned by the status socket.
        error: String,
    },
    /// AuthDNS took too long to process at least one query in a thousand.
    AuthSlow {
        /// 99.9th percentile of AuthDNS's processing time in microseconds.
        p999_us: f64,
        /// Limit for the processing time, which was exceeded.
        limit: Nanos,
    },
    /// AuthDNS was slow for so many queries that it may have caused the failure of a trial.
    AuthDecides {
        /// Number of queries for which AuthDNS took longer than the limit.
        questions: u64,
        /// Limit for AuthDNS's processing time, which was exceeded.
        limit: Nanos,
        /// Number of queries in the trial that got SERVFAIL, or got no reply in time.
        unanswered: u64,
    },
    /// The interfaces of AuthDNS's host received datagrams for AuthDNS that did not reach AuthDNS's sockets. More than
    /// one datagram in a thousand is missing, or the missing datagrams may have caused the failure of a trial.
    AuthMissed {
        /// Number of datagrams that did not reach a socket of AuthDNS.
        datagrams: u64,
        /// Number of datagrams for AuthDNS that the interfaces of its host received.
        came: u64,
    },
    /// AuthDNS serves a different zone than the trial needs.
    AuthServes {
        /// Zone for which AuthDNS answers.
        served: ZoneFacts,
        /// Zone that the trial needs.
        wanted: ZoneFacts,
    },
    /// AuthDNS answered REFUSED or NXDOMAIN in a trial that would otherwise count as failed.
    AuthRefused {
        /// Number of AuthDNS's replies with REFUSED or NXDOMAIN.
        refused: u64,
        /// Number of all queries that AuthDNS received.
        questions: u64,
    },
    /// Other trials used the same AuthDNS at the same time.
    OtherTrials {
        /// Number of other trials that used the same AuthDNS at the same time.
        trials: u64,
    },
    /// AuthDNS was queried for more names than the trial contains.
    OtherNames {
        /// Number of names for which AuthDNS was queried.
        asked: u64,
        /// Number of names in the trial.
        names: u64,
    },
    /// The user interrupted the trial.
    Interrupted {
        /// Time for which queries were sent.
        duration: Nanos,
        /// Planned duration of sending queries.
        planned: Nanos,
    },
    /// The load on the DUT differed from the planned load.
    Deviation {
        /// Requested and observed value of the property that differs: the AAAA record rate (α) or the cache hit rate
        /// (β).
        deviation: Deviation,
    },
    /// One of several testers made the trial invalid.
    OfShard {
        /// Index of the tester.
        shard: u16,
        /// Reason why the tester made the trial invalid.
        reason: Box<Reason>,
    },
    /// A reason that concerns only one of the hosts in a campaign. Hosts have the names given in the campaign's plan.
    OnHost {
        /// Name of the host.
        host: String,
        /// The reason itself, without the host's name.
        reason: Box<Reason>,
    },
    /// One of several testers was not ready when the trial began, and sent none of its queries.
    NotReady {
        /// Delay of the tester's start, measured by the tester's clock.
        late: Nanos,
    },
    /// One of several testers had not finished long after the trial, so its observations are missing.
    NotEnded {
        /// Time for which the campaign waited for this tester after the end of the trial.
        waited: Nanos,
    },
    /// The clock of one of several testers differed too much from another tester's clock, or the difference is unknown.
    ClockOff {
        /// Largest possible difference between this tester's clock and another tester's clock; absent if unknown.
        error: Option<Nanos>,
        /// Maximum permitted difference between the clocks of two testers.
        limit: Nanos,
    },
    /// One of several testers got no valid reply at all, while the others did, so the DUT is not the cause.
    NothingCameBack {
        /// Number of queries sent by this tester.
        sent: u64,
        /// Number of valid replies that this tester should have received, estimated from the results of the other
        /// testers.
        expected: u64,
    },
    /// A time daemon slewed the clock used for sending, which changed the rate of the queries.
    ClockSlewed {
        /// Frequency offset of the clock used for sending, relative to the hardware's clock, in parts per million.
        /// Negative if the clock used for sending is slower.
        ppm: f64,
        /// Maximum permitted frequency offset in parts per million.
        limit_ppm: f64,
    },
    /// Other programs, or a hypervisor, used the DUT's CPUs in a trial that failed.
    OtherPrograms {
        /// Use of the DUT's CPUs by other programs, a hypervisor and interrupts.
        used: OtherUse,
        /// Limit for the CPU time used by other programs plus the CPU time taken by a hypervisor, in per cent.
        limit_pct: f64,
    },
    /// Too few queries got a valid reply. This is the only reason that is a failure of the DUT.
    TooFewValid {
        /// Number of queries sent.
        sent: u64,
        /// Number of queries with a valid reply.
        valid: u64,
        /// Number of queries without any reply.
        lost: u64,
        /// Number of queries with a reply at or after the timeout.
        late: u64,
        /// Number of queries with a wrong reply.
        wrong: u64,
    },
}

/// Kind of a reason: the variant of a reason ([`Reason`]) or of a loss on a host ([`HostLoss`]), without the data in
/// its fields.
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
    AuthLost,
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
    /// Returns the kind of the reason.
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
    /// Creates the reason "too few valid replies" ([`Reason::TooFewValid`]) from the counts of a trial.
    pub fn too_few_valid(counts: &Counts) -> Reason {
        let Counts { sent, valid, lost, late, .. } = *counts;
        Reason::TooFewValid { sent, valid, lost, late, wrong: counts.wrong.total() }
    }

    /// Returns the kind of the reason.
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
            Reason::AuthLost { .. } => ReasonKind::AuthLost,
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
            ReasonKind::Late => "pacing: one query in a thousand was sent late",
            ReasonKind::TotalOff => "pacing: the number of queries sent differs from the plan",
            ReasonKind::NotPinned => "a thread could not be pinned to its CPU",
            ReasonKind::LedgerFull => "the receiver was too slow",
            ReasonKind::SendRefused => "send errors",
            ReasonKind::QueriesRefused => "send errors in a closed loop",
            ReasonKind::CannotReceive => "the tester could not receive",
            ReasonKind::RecordsLost => "the disk was too slow for the records",
            ReasonKind::Sockets => "the tester's sockets dropped packets",
            ReasonKind::Rings => "the tester's AF_XDP rings dropped packets",
            ReasonKind::InterfaceReceive => "the tester's interface dropped received packets",
            ReasonKind::InterfaceSend => "the tester's interface dropped packets to be sent",
            ReasonKind::QueueingDiscipline => "the tester's queueing discipline dropped packets",
            ReasonKind::Waited => "packets waited in the tester's queueing discipline",
            ReasonKind::Neighbour => "the tester's neighbour was not resolved",
            ReasonKind::Unbalanced => "internal error: outcomes do not add up",
            ReasonKind::Missed => "the interface received datagrams that the sockets did not",
            ReasonKind::NotPreloaded => "names to be cached could not be resolved before the trial",
            ReasonKind::AuthDropped => "AuthDNS dropped queries",
            ReasonKind::AuthSendRefused => "send errors for AuthDNS's replies",
            ReasonKind::AuthHostLoss => "AuthDNS's host lost packets below its sockets",
            ReasonKind::AuthRestarted => "AuthDNS was restarted",
            ReasonKind::AuthLost => "AuthDNS's counters could not be read after the trial",
            ReasonKind::AuthSlow => "AuthDNS was slow for one query in a thousand",
            ReasonKind::AuthDecides => "AuthDNS was slow for enough queries to decide the trial",
            ReasonKind::AuthMissed => {
                "AuthDNS's interface received datagrams that its sockets did not"
            }
            ReasonKind::AuthServes => "AuthDNS serves another zone than the trial needs",
            ReasonKind::AuthRefused => "AuthDNS refused queries",
            ReasonKind::OtherTrials => "other trials used AuthDNS at the same time",
            ReasonKind::OtherNames => "AuthDNS was queried for more names than the trial has",
            ReasonKind::Interrupted => "interrupted",
            ReasonKind::Deviation => "the DUT's load differed from the plan",
            ReasonKind::NotReady => "one of several testers was not ready in time",
            ReasonKind::NotEnded => "one of several testers did not finish in time",
            ReasonKind::ClockOff => "a tester's clock was off",
            ReasonKind::NothingCameBack => "one of several testers got no valid reply",
            ReasonKind::ClockSlewed => "the tester's clock was being slewed",
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
                    "the tester's queueing discipline ({discipline} on {interface}) dropped {}",
                    packets_of(*packets)
                )
            }
            HostLoss::Waited { packets, longest, limit, discipline, interface } => {
                let discipline = discipline.as_deref().unwrap_or("of unknown kind");
                write!(
                    f,
                    "{} waited longer than {} ms in the tester's queueing discipline ({discipline} on \
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
                    None => write!(f, "the number of packets dropped by its queue is unknown"),
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
                write!(f, "the receiver was too slow: no room for further queries in the ledger")
            }
            Reason::SendRefused { query, error } => {
                let error = error.as_deref().unwrap_or("sending works again");
                write!(f, "send error for query {}: {error}", grouped(*query))
            }
            Reason::QueriesRefused { queries } => {
                let queries = counted(*queries, "query", "queries");
                write!(f, "send errors for {queries}")
            }
            Reason::CannotReceive { error } => write!(f, "cannot receive: {error}"),
            Reason::RecordsLost { records } => {
                write!(
                    f,
                    "the disk was too slow: {} missing",
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
                "the interface received {} for the tester that its sockets did not; {} as lost: check for a packet \
                 filter (dns64bench check)",
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
                "not ready when the trial began, only {:.3} s later by its clock; it sent nothing",
                late.as_secs_f64()
            ),
            Reason::NotEnded { waited } => write!(
                f,
                "not finished {:.0} s after the time of the last reply; its results are missing",
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
                        "the error of its clock is unknown, limit {} µs: synchronize it with chrony (rtcsync), or \
                         give --offset",
                        us(limit)
                    ),
                }
            }
            Reason::NothingCameBack { sent, expected } => write!(
                f,
                "none of its {} got a valid reply; about {} were expected from the results of the others: is there a \
                 route back to it?",
                counted(*sent, "query", "queries"),
                grouped(*expected)
            ),
            Reason::ClockSlewed { ppm, limit_ppm } => {
                let how = if *ppm < 0.0 { "slower" } else { "faster" };
                write!(
                    f,
                    "the clock ran {:.2} % {how} than the hardware's, limit {:.2} %, and so did the sending: it was \
                     being slewed; wait until that is over (chronyc tracking)",
                    ppm.abs() / 1e4,
                    limit_ppm / 1e4
                )
            }
            Reason::OtherPrograms { used, limit_pct } => {
                write!(f, "on the DUT's CPUs {used}; the limit of the first two is {limit_pct} %")
            }
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
            | Reason::AuthLost { .. }
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
    /// Writes the text of a reason that concerns AuthDNS.
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
                write!(f, "send errors for {} of AuthDNS's replies", grouped(*replies))
            }
            Reason::AuthHostLoss(loss) => write!(f, "at AuthDNS: {loss}"),
            Reason::AuthRestarted => f.write_str("AuthDNS was restarted during the trial"),
            Reason::AuthLost { error } => write!(
                f,
                "AuthDNS's counters cannot be read after the trial, so it probably ended: {error}"
            ),
            Reason::AuthSlow { p999_us, limit } => {
                let (took, limit) = (p999_us / 1e3, limit.as_millis_f64());
                write!(f, "AuthDNS took {took:.1} ms for one query in a thousand, limit {limit} ms")
            }
            Reason::AuthDecides { questions, limit, unanswered } => {
                let limit = limit.as_millis_f64();
                let questions = counted(*questions, "query", "queries");
                write!(
                    f,
                    "AuthDNS took longer than {limit} ms for {questions}, which may be why "
                )?;
                write!(f, "{} got no valid reply in time", counted(*unanswered, "query", "queries"))
            }
            Reason::AuthMissed { datagrams, came } => write!(
                f,
                "the interface of AuthDNS's host received {} for AuthDNS, but AuthDNS's sockets did not receive {} of \
                 them: check for a packet filter there (dns64bench check)",
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
                counted(*questions, "query", "queries")
            ),
            Reason::OtherTrials { trials } => write!(
                f,
                "{} used this AuthDNS at the same time: names cached for one trial count for both",
                counted(*trials, "other trial", "other trials")
            ),
            Reason::OtherNames { asked, names } => write!(
                f,
                "AuthDNS was queried for {}, but the trial has {}: another client used the DUT or AuthDNS at the same \
                 time",
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
