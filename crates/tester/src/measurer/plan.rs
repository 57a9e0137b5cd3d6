//! The definition of a trial, validated before anything is sent.

pub mod shard;
pub mod sources;

use std::net::SocketAddr;
use std::path::PathBuf;

use method::compliance::{DEFAULT_AUTH_LIMIT, Fact, Facts, TesterProof};
use method::pacing::PacingLimits;
use method::reason::ZoneFacts;
use method::schedule::Schedule;
use method::verdict::Acceptance;
use net::xdp::Mode;
use serde::{Deserialize, Serialize};
use units::{CpuId, Nanos, Qps, Share};
use wire::name::{Domain, NameRange};

use self::shard::ShardPlan;
use self::sources::{SourceAddresses, SourceError, is_over_ipv6};
use super::burst::{Burst, SendCost};
use super::expect::{Expectation, Prefix};
use super::ids::IDS;
use super::names::NameSequence;
use crate::xdp::XdpConfig;

/// Determines whether senders may busy-wait for exact timing.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Spin {
    /// Senders busy-wait if this host has enough CPUs: one for each sender and receiver, and two for other threads.
    #[default]
    Auto,
    /// Senders busy-wait until the next query is due.
    Always,
    /// Senders sleep until the next query is due.
    Never,
}

/// Tested system of a trial: the DUT, or the tester itself in a self-test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The DUT. Faults of the Measurer or of AuthDNS make the trial invalid.
    #[default]
    Dut,
    /// The tester itself, in a self-test. A slow AuthDNS makes the self-test fail.
    Tester {
        /// Ratio of the self-test's rate to the rate of the DUT trials that the self-test validates.
        factor: f64,
        /// The reserve δ of RFC 8219 §9.2.1 on top of the required rate, as a share: 0.1 is 10 %.
        delta: f64,
    },
}

/// Send settings of a trial. To validate a trial, a self-test must use the same settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SenderSettings {
    /// Number of sender/receiver pairs, each of two threads; at least 1.
    pub threads: u16,
    /// Number of UDP source ports across all pairs of threads; at least one per pair.
    pub source_ports: u16,
    /// Number of source addresses; absent if the kernel selects a single address. The send settings do not contain the
    /// prefix of these addresses, because it does not affect the cost of sending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_addresses: Option<u32>,
    /// Requested AF_XDP mode; absent if sockets are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<Mode>,
    /// CPUs in the order of their assignment to threads; empty if the threads may use any CPU.
    pub cpus: Vec<CpuId>,
    /// Determines whether senders sleep or busy-wait until the next query is due.
    pub spin: Spin,
    /// Maximum deviation of a query from its schedule because of batching.
    pub max_burst: Burst,
    /// True if batched queries are sent in one system call.
    pub offload: bool,
    /// True if sleeping senders may use real-time priority.
    pub real_time: bool,
}

/// A trial: its queries, their rate, and the criteria for a valid reply. In JSON it is the input of `measure --plan`,
/// with times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialPlan {
    /// Address and port of the server.
    pub server: SocketAddr,
    /// Queries per second across all pairs of threads.
    pub rate: Qps,
    /// Duration of sending. RFC 8219 §9.2 requires at least 60 s.
    pub duration: Nanos,
    /// Reply timeout, measured from the sending of the query. A reply that arrives after the timeout counts as late.
    /// RFC 8219 §9.2 requires a timeout of at most 1 s.
    pub timeout: Nanos,
    /// Zone that contains the names of the queries.
    pub domain: Domain,
    /// Block of names that contains all names queried in the trial.
    pub names: NameRange,
    /// Index, within the block of names, of the first name that the trial uses.
    pub first_name: u64,
    /// Share of names with a native AAAA record (α).
    pub aaaa_share: Share,
    /// Share of queries for names that the DUT has recently resolved (β).
    pub cached_share: Share,
    /// DNS64 prefixes for synthesized addresses. If there are none, any address is accepted as synthesized.
    pub prefixes: Vec<Prefix>,
    /// True if a native AAAA record must have the address that AuthDNS assigns to its name.
    pub check_own_aaaa: bool,
    /// Minimum share of valid replies for the trial to pass.
    pub accept: Acceptance,
    /// Number of sender/receiver pairs, each of two threads; at least 1.
    pub threads: u16,
    /// Number of UDP source ports across all pairs of threads (RFC 4814 §4).
    pub source_ports: u16,
    /// Source addresses of the queries (RFC 4814 §4), which must be local to this host; absent if the kernel selects
    /// the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_addresses: Option<SourceAddresses>,
    /// Interface for sending queries and receiving replies by AF_XDP; absent if sockets are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<XdpConfig>,
    /// CPUs of the threads, assigned round robin to the sender and the receiver of each pair; if empty, the kernel
    /// selects the CPUs.
    pub cpus: Vec<CpuId>,
    /// Determines whether senders sleep or busy-wait until the next query is due.
    pub spin: Spin,
    /// Maximum deviation of a query from its schedule because of batching.
    pub max_burst: Burst,
    /// CPU time needed to send queries on this host, from which [`Burst::Auto`] computes the burst size. If absent, it
    /// is measured before the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_cost: Option<SendCost>,
    /// True if sleeping senders may use real-time priority. A sender then uses it if no other thread of dns64bench or
    /// dns64d uses its CPU.
    pub real_time: bool,
    /// True if queries that are sent together may be sent from one port in one system call (`UDP_SEGMENT`).
    pub offload: bool,
    /// Limits of the pacing audit, which compares the actual with the scheduled send times.
    pub limits: PacingLimits,
    /// AuthDNS's status socket, which is read before and after the trial; absent if the status is not read.
    pub auth_status: Option<PathBuf>,
    /// Limit for the 99.9th percentile of AuthDNS's processing time.
    pub auth_limit: Nanos,
    /// Tested system: the DUT, or the tester itself in a self-test.
    pub subject: Subject,
    /// True if the user states that the DUT, AuthDNS and the Measurer have separate hosts, and therefore separate CPUs.
    pub separate_hosts: bool,
    /// File for per-query records.
    pub records: Option<PathBuf>,
    /// Width of the intervals of send time for which separate totals and histograms are recorded; absent if there are
    /// no intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Nanos>,
    /// This tester's index and the settings common to all testers, if several testers share the trial; absent for a
    /// single tester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardPlan>,
}

impl TrialPlan {
    /// Creates a plan for trials of `server` at `rate`, with the defaults of the command `measure`.
    pub fn new(server: SocketAddr, rate: Qps) -> TrialPlan {
        TrialPlan {
            server,
            rate,
            duration: Nanos(60 * Nanos::SECOND.0),
            timeout: Nanos::SECOND,
            domain: Domain::dns64perf(),
            names: "10.0.0.0/8".parse().expect("a constant"),
            first_name: 0,
            aaaa_share: Share::ZERO,
            cached_share: Share::ZERO,
            prefixes: Vec::new(),
            check_own_aaaa: true,
            accept: Acceptance::ALL,
            threads: 1,
            source_ports: DEFAULT_SOURCE_PORTS,
            source_addresses: None,
            xdp: None,
            cpus: Vec::new(),
            spin: Spin::Auto,
            max_burst: Burst::Auto,
            send_cost: None,
            real_time: true,
            offload: true,
            limits: PacingLimits::default(),
            auth_status: None,
            auth_limit: DEFAULT_AUTH_LIMIT,
            subject: Subject::Dut,
            separate_hosts: false,
            records: None,
            interval: None,
            shard: None,
        }
    }

    /// Returns the send time of each query.
    pub fn schedule(&self) -> Schedule {
        Schedule::new(self.rate, self.duration)
    }

    /// Returns the name of each query.
    pub(crate) fn name_sequence(&self) -> NameSequence {
        NameSequence::new(self.names, self.first_name, self.cached_share, self.rate, self.timeout)
    }

    /// Returns the requirements for the replies.
    pub(super) fn expectation(&self) -> Expectation {
        Expectation {
            aaaa_share: self.aaaa_share,
            check_own_aaaa: self.check_own_aaaa,
            prefixes: self.prefixes.clone(),
        }
    }

    /// Returns the zone that AuthDNS must serve for the trial.
    pub fn zone(&self) -> ZoneFacts {
        ZoneFacts { domain: self.domain.to_string(), aaaa_share: self.aaaa_share }
    }

    /// Returns the number of names that the trial uses from its block of names. The number includes the names that are
    /// resolved before the trial so that they are cached.
    pub fn names_needed(&self) -> u64 {
        self.name_sequence().names_used(self.schedule().count())
    }

    /// Returns the send settings.
    pub fn sender_settings(&self) -> SenderSettings {
        SenderSettings {
            threads: self.threads,
            source_ports: self.source_ports,
            source_addresses: self.source_addresses.map(|sources| sources.count()),
            xdp: self.xdp.as_ref().map(|xdp| xdp.mode),
            cpus: self.cpus.clone(),
            spin: self.spin,
            max_burst: self.max_burst,
            offload: self.offload,
            real_time: self.real_time,
        }
    }

    /// Returns the rate of this tester in queries per second.
    pub fn own_rate(&self) -> f64 {
        self.own_part().rate()
    }

    /// Returns the query rate from which the burst size is computed, in queries per second. For a self-test, this is
    /// the rate of the trials that the self-test validates.
    pub(crate) fn paced_rate(&self) -> f64 {
        match self.subject {
            Subject::Dut => self.own_rate(),
            Subject::Tester { factor, .. } => self.own_rate() / factor.max(1.0),
        }
    }

    /// Returns the facts that determine whether the trial complies with RFC 8219. `shares_host` states whether the
    /// server and the tester share a host.
    pub fn facts(&self, shares_host: Fact) -> Facts {
        Facts {
            shares_host,
            // A server on another host shares no CPU with the tester.
            shares_cpus: match shares_host {
                Fact::Yes => Fact::NotKnown,
                other => other,
            },
            over_ipv6: is_over_ipv6(&self.server),
            duration: self.duration,
            timeout: self.timeout,
            accept: self.accept,
            checks_prefix: !self.prefixes.is_empty(),
            checks_own_aaaa: self.check_own_aaaa,
            limits: self.limits,
            auth_limit: self.auth_status.is_some().then_some(self.auth_limit),
            repeats: None,
            resolution: None,
            reuses_names: false,
            proof: match self.subject {
                Subject::Dut => TesterProof::None,
                Subject::Tester { delta, .. } => TesterProof::IsSelfTest { delta },
            },
        }
    }

    /// Returns the number of source ports, rounded down to a multiple of the number of thread pairs. If some pairs have
    /// one port more than the others, these extra ports are not counted.
    fn ports_alike(&self) -> u64 {
        let threads = self.threads.max(1);
        u64::from(self.source_ports / threads * threads)
    }

    /// Returns the time for which the receiver remembers a query to recognize late replies and duplicates. It is twice
    /// the timeout, or less if the message ids of the source ports are reused before that.
    pub fn retention(&self) -> Nanos {
        let ids = self.ports_alike() * USABLE_IDS;
        let allowed = Nanos((ids as f64 * Nanos::SECOND.0 as f64 / self.own_rate()) as u64);
        Nanos(self.timeout.0 * 2).min(allowed)
    }

    /// Checks for settings that would make the trial impossible or meaningless.
    ///
    /// # Errors
    /// Returns an error that contains the first such setting and its command line option.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.threads == 0 || self.source_ports < self.threads {
            return Err(PlanError::Ports { ports: self.source_ports, threads: self.threads });
        }
        let ports = self.source_ports;
        if self.xdp.is_some() && (self.threads > 1 || ports > MAX_XDP_PORTS) {
            return Err(PlanError::Xdp { threads: self.threads, ports });
        }
        if !(self.accept.0 > 0.0 && self.accept.0 <= 1.0) {
            return Err(PlanError::Accept { given: self.accept.0 });
        }
        if !(1..=HIGHEST_RATE).contains(&self.rate.0) {
            return Err(PlanError::Rate { given: self.rate });
        }
        let times = [
            ("--duration", self.duration),
            ("--timeout", self.timeout),
            ("--auth-limit", self.auth_limit),
        ];
        let others = [
            ("--lateness-limit", self.limits.lateness_p999),
            ("--interval", self.interval.unwrap_or(Nanos(1))),
        ];
        let is_wrong = |(_, time): &(&str, Nanos)| !(1..=LONGEST.0).contains(&time.0);
        if let Some((option, given)) = times.into_iter().chain(others).find(is_wrong) {
            return Err(PlanError::Time { option, given });
        }
        if self.schedule().count() == 0 || self.duration < self.schedule().interval() {
            return Err(PlanError::NoQuery { rate: self.rate, duration: self.duration });
        }
        if let Some(shard) = self.shard {
            let pairs = u64::from(shard.of) * u64::from(self.threads);
            if shard.index >= shard.of || pairs >= IDS || self.own_part().count() == 0 {
                return Err(PlanError::Shard { index: shard.index, of: shard.of });
            }
            if self.auth_status.is_some() {
                return Err(PlanError::AuthOfShard);
            }
        }
        let PacingLimits { window_100ms_pct, total_pct, .. } = self.limits;
        if !(0.0..=MAX_WINDOW_LIMIT_PCT).contains(&window_100ms_pct)
            || !(0.0..=100.0).contains(&total_pct)
            || window_100ms_pct == 0.0
        {
            return Err(PlanError::Limits { window_100ms_pct, total_pct });
        }
        let outstanding = self.own_rate() * self.timeout.as_secs_f64();
        let needed = (outstanding / USABLE_IDS as f64).ceil() as u64;
        if needed > self.ports_alike() {
            let needed = needed.next_multiple_of(self.threads.into());
            return Err(PlanError::Ids { rate: self.rate, ports: self.source_ports, needed });
        }
        let needed = self.names_needed();
        if needed > self.names.count() {
            return Err(PlanError::Names { range: self.names, has: self.names.count(), needed });
        }
        if self.server.port() == 0 || self.server.ip().is_unspecified() {
            return Err(PlanError::Server { server: self.server });
        }
        if let Some(sources) = self.source_addresses {
            sources.check(self.server)?;
        }
        Ok(())
    }
}

/// Returns advice for a trial that needs more names than the user's block of names contains.
fn name_advice(needed: u64) -> &'static str {
    if needed <= NameRange::ALL.count() {
        "a larger block such as 0.0.0.0/0"
    } else {
        "a lower rate or a shorter trial"
    }
}

/// Maximum query rate, which is also the maximum that `Qps` accepts as text.
const HIGHEST_RATE: u64 = 100_000_000;

/// Highest permitted limit for the deviation in a 100 ms window, in per cent. At this limit, a window may contain as
/// many queries as are due in ten seconds, so pacing no longer affects the verdict.
pub const MAX_WINDOW_LIMIT_PCT: f64 = 10_000.0;
/// Maximum time in a plan: a year.
const LONGEST: Nanos = Nanos(365 * 86_400 * Nanos::SECOND.0);

/// Maximum number of source ports with AF_XDP, which needs a contiguous range of free ports.
pub(super) const MAX_XDP_PORTS: u16 = 16_384;

/// Default number of source ports. The kernel distributes queries over a DUT's sockets by source port, so each socket
/// needs several ports.
pub const DEFAULT_SOURCE_PORTS: u16 = 64;

/// Number of message ids per source port that outstanding queries may use. The remaining ids are a reserve for batches
/// of queries that are sent together.
pub(crate) const USABLE_IDS: u64 = 65_536 - 1024;

/// Errors of a plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The plan has too few source ports for its threads.
    #[error(
        "--source-ports {ports} with --threads {threads}: every thread needs a source port, and there must be at \
         least one thread"
    )]
    Ports {
        /// Number of UDP source ports (`--source-ports`).
        ports: u16,
        /// Number of sender/receiver pairs (`--threads`).
        threads: u16,
    },
    /// The plan has more threads or ports than AF_XDP supports.
    #[error(
        "--xdp with --threads {threads} and --source-ports {ports}: one pair of threads reads all queues of the interface, \
         and there are up to {MAX_XDP_PORTS} source ports"
    )]
    Xdp {
        /// Number of sender/receiver pairs (`--threads`).
        threads: u16,
        /// Number of UDP source ports (`--source-ports`).
        ports: u16,
    },
    /// The route to the server uses a different interface.
    #[error("--xdp {interface}: the route to {server} uses {is}; write --xdp {is}")]
    XdpInterface {
        /// Address and port of the queried server.
        server: SocketAddr,
        /// Network interface requested for AF_XDP.
        interface: String,
        /// Interface to which the kernel routes packets for the server.
        is: String,
    },
    /// The route to the server uses loopback.
    #[error(
        "--xdp {interface}: the route to {server} uses loopback, where AF_XDP does not work; leave --xdp out"
    )]
    XdpLoopback {
        /// Address and port of the queried server.
        server: SocketAddr,
        /// Network interface requested for AF_XDP.
        interface: String,
    },
    /// The acceptance criterion is out of range.
    #[error("--accept {given}: a share above 0 and up to 1 is needed")]
    Accept {
        /// Requested share of valid replies; `1.0` means all replies.
        given: f64,
    },
    /// The rate is 0 or above the maximum.
    #[error("--rate {given}: a rate from 1 to {HIGHEST_RATE} queries per second is needed")]
    Rate {
        /// Requested rate in queries per second.
        given: Qps,
    },
    /// A time in the plan is 0 or more than a year.
    #[error("{option} {} s: a time above 0 and up to a year is needed", .given.as_secs_f64())]
    Time {
        /// Command line option with the rejected time, such as `--timeout`.
        option: &'static str,
        /// Rejected value of the option, in nanoseconds.
        given: Nanos,
    },
    /// Sending ends before the first query is due, so no query is sent.
    #[error("{rate} queries/s for {} s: that is less than one query", .duration.as_secs_f64())]
    NoQuery {
        /// Requested rate in queries per second.
        rate: Qps,
        /// Requested duration of sending in nanoseconds.
        duration: Nanos,
    },
    /// The tester's index is not below the number of testers, or the tester would send no query, or all testers
    /// together have too many threads.
    #[error(
        "--shard {index}/{of}: write for example 0/3, 1/3 and 2/3, counted from 0, of no more testers than there are queries,          and of fewer than {IDS} threads together"
    )]
    Shard {
        /// Index of the tester.
        index: u16,
        /// Number of testers.
        of: u16,
    },
    /// AuthDNS's counters were requested in a trial of several testers. The counters would include the queries of all
    /// testers.
    #[error(
        "--auth-status: AuthDNS's counters include all testers' queries, so --shard cannot use them"
    )]
    AuthOfShard,
    /// The pacing limits are not valid percentages.
    #[error(
        "--window-limit {window_100ms_pct}, and {total_pct} for the total: percentages up to {MAX_WINDOW_LIMIT_PCT} and 100 are needed, the first above 0"
    )]
    Limits {
        /// Requested limit for the deviation in a 100 ms window, in per cent.
        window_100ms_pct: f64,
        /// Requested limit for the deviation in the whole trial, in per cent.
        total_pct: f64,
    },
    /// The source ports have too few 16-bit message ids for the outstanding queries.
    #[error(
        "{rate} queries/s with this --timeout keep more queries outstanding than the 16-bit ids of {ports} source \
         ports can distinguish; --source-ports {needed} or more is needed"
    )]
    Ids {
        /// Requested rate in queries per second.
        rate: Qps,
        /// Number of UDP source ports (`--source-ports`).
        ports: u16,
        /// Number of source ports that would be sufficient.
        needed: u64,
    },
    /// The block has fewer names than the trial needs, so names would repeat.
    #[error(
        "--names {range} has {has} names, and the trial needs {needed}; names must not repeat, so use {}",
         name_advice(*needed)
    )]
    Names {
        /// Block of names (`--names`).
        range: NameRange,
        /// Number of names in the block.
        has: u64,
        /// Number of names that the trial needs.
        needed: u64,
    },
    /// The server's address or port is not a valid destination.
    #[error("--server {server}: an address and a port of the server are needed")]
    Server {
        /// The given address and port, at least one of which is invalid: the address is unspecified, or the port is 0.
        server: SocketAddr,
    },
    /// The source addresses cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurer::plan::shard::Moment;
    use proptest::prelude::*;

    fn plan(rate: u64) -> TrialPlan {
        TrialPlan::new("[::1]:53".parse().unwrap(), Qps(rate))
    }

    #[test]
    fn the_defaults_are_the_compulsory_trial() {
        let plan = plan(50_000);
        plan.check().unwrap();
        assert_eq!(plan.names_needed(), 3_000_000);
        assert_eq!(plan.retention(), Nanos(2 * Nanos::SECOND.0));
    }

    #[test]
    fn a_mapped_ipv4_address_is_queried_over_ipv4() {
        let over_ipv6 = |server: &str| {
            TrialPlan::new(server.parse().unwrap(), Qps(1)).facts(Fact::NotKnown).over_ipv6
        };
        assert!(over_ipv6("[2001:2::1]:53"));
        assert!(!over_ipv6("192.0.2.1:53") && !over_ipv6("[::ffff:192.0.2.1]:53"));
    }

    #[test]
    fn impossible_plans_are_rejected() {
        let mut few = plan(100_000);
        few.source_ports = 1;
        assert_eq!(few.check(), Err(PlanError::Ids { rate: Qps(100_000), ports: 1, needed: 2 }));
        few.rate = Qps(60_000);
        few.check().unwrap();
        assert!(
            few.retention() < Nanos(2 * Nanos::SECOND.0),
            "late replies are told apart for a shorter time"
        );
        assert!(matches!(plan(300_000).check(), Err(PlanError::Names { needed: 18_000_000, .. })));
        // Two pairs have two ports each, and the third has one.
        let uneven = TrialPlan {
            threads: 3,
            source_ports: 5,
            names: "0.0.0.0/0".parse().unwrap(),
            ..plan(300_000)
        };
        assert_eq!(uneven.check(), Err(PlanError::Ids { rate: Qps(300_000), ports: 5, needed: 6 }));
        TrialPlan { source_ports: 6, ..uneven }.check().unwrap();
        let mut unspecified = plan(1);
        unspecified.server = "0.0.0.0:53".parse().unwrap();
        assert!(matches!(unspecified.check(), Err(PlanError::Server { .. })));
    }

    #[test]
    fn out_of_range_numbers_are_rejected() {
        let limits = PacingLimits::default();
        let xdp = Some(XdpConfig { interface: Some("eth1".into()), mode: Mode::Auto });
        let each = [
            TrialPlan { rate: Qps(0), ..plan(1) },
            TrialPlan { rate: Qps(u64::MAX), ..plan(1) },
            TrialPlan { duration: Nanos(0), ..plan(1) },
            TrialPlan { timeout: Nanos(u64::MAX), ..plan(1) },
            TrialPlan { auth_limit: Nanos(0), ..plan(1) },
            TrialPlan { interval: Some(Nanos(0)), ..plan(1) },
            TrialPlan { limits: PacingLimits { window_100ms_pct: 0.0, ..limits }, ..plan(1) },
            TrialPlan { limits: PacingLimits { total_pct: -1.0, ..limits }, ..plan(1) },
            TrialPlan { xdp: xdp.clone(), threads: 2, ..plan(1) },
            TrialPlan { xdp, source_ports: MAX_XDP_PORTS + 1, ..plan(1) },
            TrialPlan { limits: PacingLimits { lateness_p999: Nanos(0), ..limits }, ..plan(1) },
        ];
        for wrong in each {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    /// Strategy for arbitrary plans; each new field of a plan must be added here.
    fn any_plan() -> impl Strategy<Value = TrialPlan> {
        let time = || any::<u64>().prop_map(Nanos);
        let share = || (0u8..=100).prop_map(Share::percent);
        let spin = prop_oneof![Just(Spin::Auto), Just(Spin::Always), Just(Spin::Never)];
        let burst = prop_oneof![
            Just(Burst::Auto),
            (0u64..10_000_000_000).prop_map(|ns| Burst::Fixed(Nanos(ns)))
        ];
        let cost =
            (any::<u32>(), any::<u32>()).prop_map(|(w, q)| (Nanos(w.into()), Nanos(q.into())));
        let cost = cost.prop_map(|(wake_up, query)| SendCost { wake_up, query });
        let limits = (0.0..100f64, time(), 0.0..100f64).prop_map(
            |(window_100ms_pct, lateness_p999, total_pct)| PacingLimits {
                window_100ms_pct,
                lateness_p999,
                total_pct,
            },
        );
        let tester =
            (0.0..10f64, 0.0..10f64).prop_map(|(factor, delta)| Subject::Tester { factor, delta });
        let path = || prop::option::of("[a-z/ é]{1,20}".prop_map(PathBuf::from));
        let prefix = prop::sample::select(vec!["64:ff9b::/96", "2001:db8::/32", "2001:db8:1::/64"]);
        let prefixes = prop::collection::vec(prefix.prop_map(|text| text.parse().unwrap()), 0..3);
        let names = (any::<u32>(), 0u32..=32).prop_map(|(address, len)| {
            let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
            format!("{}/{len}", std::net::Ipv4Addr::from(address & mask)).parse().unwrap()
        });
        let domain = "[a-z]{1,10}(\\.[a-z]{1,10}){0,3}".prop_map(|text| text.parse().unwrap());
        let server = any::<(std::net::IpAddr, u16)>().prop_map(SocketAddr::from);
        let where_to = (server, any::<u64>().prop_map(Qps), time(), time());
        let asked =
            (domain, names, any::<u64>(), share(), share(), prefixes, any::<bool>(), 0.0..2f64);
        let cpus = prop::collection::vec((0usize..5000).prop_map(CpuId), 0..5);
        let sources = prop::sample::select(vec!["127.1.0.0/24", "2001:2::/64,1000"]);
        let sources = prop::option::of(sources.prop_map(|text| text.parse().unwrap()));
        let mode = prop_oneof![
            Just(Mode::Auto),
            Just(Mode::ZeroCopy),
            Just(Mode::Copy),
            Just(Mode::Generic)
        ];
        let xdp = (prop::option::of("[a-z0-9]{1,15}"), mode);
        let xdp = prop::option::of(xdp.prop_map(|(interface, mode)| XdpConfig { interface, mode }));
        let sent = (
            any::<u16>(),
            (any::<u16>(), sources, xdp),
            cpus,
            spin,
            burst,
            prop::option::of(cost),
            any::<bool>(),
            any::<bool>(),
        );
        let subject = prop_oneof![Just(Subject::Dut), tester];
        let judged =
            (limits, path(), time(), subject, any::<bool>(), path(), prop::option::of(time()));
        (where_to, asked, sent, judged).prop_map(|(where_to, asked, sent, judged)| {
            let (server, rate, duration, timeout) = where_to;
            let (
                domain,
                names,
                first_name,
                aaaa_share,
                cached_share,
                prefixes,
                check_own_aaaa,
                accept,
            ) = asked;
            let (threads, from, cpus, spin, max_burst, send_cost, real_time, offload) = sent;
            let (source_ports, source_addresses, xdp) = from;
            let (limits, auth_status, auth_limit, subject, separate_hosts, records, interval) =
                judged;
            TrialPlan {
                server,
                rate,
                duration,
                timeout,
                domain,
                names,
                first_name,
                aaaa_share,
                cached_share,
                prefixes,
                check_own_aaaa,
                accept: Acceptance(accept),
                threads,
                source_ports,
                source_addresses,
                xdp,
                cpus,
                spin,
                max_burst,
                send_cost,
                real_time,
                offload,
                limits,
                auth_status,
                auth_limit,
                subject,
                separate_hosts,
                records,
                interval,
                shard: interval.map(|time| ShardPlan {
                    index: 1,
                    of: 3,
                    seed: time.0,
                    start: Moment(time),
                }),
            }
        })
    }

    proptest! {
        #[test]
        fn a_plan_is_read_back_from_its_json(plan in any_plan()) {
            let text = serde_json::to_string(&plan).unwrap();
            prop_assert_eq!(serde_json::from_str::<TrialPlan>(&text).unwrap(), plan, "{}", text);
        }
    }
}
