//! What is counted: counters of the workers, each written by one thread and read by anybody, so
//! that counting costs an ordinary addition and no locked instruction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use method::units::Nanos;
use net::address::ServiceAddr;
use wire::rcode::Rcode;
use wire::view::rtype;

use super::trouble::Trouble;
use crate::ids::WorkerId;
use crate::transport::Transport;

/// How one counter is exposed: `dns64d_FAMILY_total{LABEL="VALUE"}`, without braces if `label` is
/// empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) family: &'static str,
    pub(super) help: &'static str,
    pub(super) label: &'static str,
    pub(super) value: &'static str,
}

/// Defines [`Count`]. Each counter stands below its family, with the value of its label beside it,
/// so that neither can be mistaken for that of another counter.
macro_rules! counters {
    ($($family:literal, $help:literal, $label:literal { $($name:ident $value:literal,)+ })+) => {
        /// An event that is counted, each in a counter of its own per thread.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count {
            $($(
                #[doc = concat!("`dns64d_", $family, "_total`, ", $label, " \"", $value, "\": ", $help, ".")]
                $name,
            )+)+
        }

        impl Count {
            /// All counters, those of one family together.
            pub(super) const ALL: &[Count] = &[$($(Count::$name,)+)+];

            /// How this counter is exposed.
            pub(super) const fn row(self) -> Row {
                match self {
                    $($(Count::$name => Row { family: $family, help: $help, label: $label, value: $value },)+)+
                }
            }
        }
    };
}

counters! {
    "queries", "Client queries by transport and type; ignored: responses and fragments", "kind" {
        UdpA "udp_a",
        UdpAaaa "udp_aaaa",
        UdpPtr "udp_ptr",
        UdpOther "udp_other",
        TcpA "tcp_a",
        TcpAaaa "tcp_aaaa",
        TcpPtr "tcp_ptr",
        TcpOther "tcp_other",
        Ignored "ignored",
    }
    "replies", "Replies to clients by RCODE", "rcode" {
        Noerror "noerror",
        Formerr "formerr",
        Servfail "servfail",
        Nxdomain "nxdomain",
        Notimp "notimp",
        Refused "refused",
        OtherRcode "other",
    }
    "replies_truncated", "UDP replies that did not fit and sent the client to TCP", "" { Truncated "", }
    "large_replies_withheld", "UDP replies above four times the query's size and the limit, replaced by truncated ones", "" {
        LargeWithheld "",
    }
    "synthesized", "AAAA answers made from A records, by why there were no AAAA records", "reason" {
        SynthesizedNodata "nodata",
        SynthesizedRcode "rcode",
        SynthesizedTimeout "timeout",
        SynthesizedExcluded "excluded",
    }
    "not_synthesized", "AAAA queries left alone though they might have been translated, by reason", "reason" {
        WithheldUnmapped "unmapped",
        WithheldSigned "signed",
        WithheldCd "cd",
    }
    "excluded_stripped", "AAAA answers of which excluded records were left out", "" { Stripped "", }
    "a_filtered", "A queries answered with no data because the client is given AAAA records", "" { FilteredA "", }
    "local_answers", "Answers without an upstream: ipv4only.arpa and the prefixes' reverse trees", "" { Local "", }
    "denied", "Client queries not served, by reason", "reason" {
        AclRefused "acl",
        RateLimited "rate",
        Overload "overload",
        ClientShare "client-share",
        DeadBranch "dead-branch",
    }
    "defects", "Panics that cost one query's work; each is in the log with its question", "" { Defect "", }
    "queries_dropped_by_kernel",
    "Client queries over UDP that the kernel threw away, mostly for want of room: the worker does not keep up", "" {
        SocketDrops "",
    }
    "queries_dropped_late", "Client queries over UDP dropped because they waited 1 s for the worker", "" { DroppedLate "", }
    "xdp_lost", "Datagrams lost past the network stack, in: the worker did not keep up; out: the device did not", "direction" {
        RingsLostIn "in",
        RingsLostOut "out",
    }
    "replies_not_sent", "Replies that the kernel refused to send", "" { SendRefused "", }
    "tcp_connections_refused", "TCP connections of clients that were closed, by reason: acl and limit at once, displaced for others", "reason" {
        TcpRefusedAcl "acl",
        TcpRefusedLimit "limit",
        TcpUnread "unread",
        TcpDisplaced "displaced",
    }
    "tcp_accepts_failed", "Times that no TCP connection could be accepted, mostly for want of file descriptors", "" {
        TcpAcceptFailed "",
    }
    "query_log_lines", "Lines of the query log; dropped: there was no room, or they could not be written", "result" {
        LogWritten "written",
        LogDropped "dropped",
    }
    "dnstap_messages", "Messages for dnstap's reader; dropped: it was not there, or too slow", "result" {
        TapSent "sent",
        TapDropped "dropped",
    }
    "cache_lookups", "Questions looked up in the cache", "result" {
        CacheHit "hit",
        CacheMiss "miss",
    }
    "prefetched", "Answers renewed before their time was over", "" { Prefetched "", }
    "stale_answers", "Answers served after their time because upstreams failed", "" { StaleServed "", }
    "collapsed", "Questions that waited for the same question already in flight", "" { Collapsed "", }
    "upstream_queries", "Queries to upstreams by transport", "transport" {
        UpstreamUdp "udp",
        UpstreamTcp "tcp",
    }
    "upstream_retries",
    "Questions for the same upstream again; withheld: times that it was too much, as too few were answered", "result" {
        RetrySent "sent",
        RetryWithheld "withheld",
    }
    "upstream_results", "What came of them; stray: no question of ours; other-case: not in the letter case of randomize-case", "result" {
        UpstreamAnswer "answer",
        UpstreamTimeout "timeout",
        UpstreamUnreachable "unreachable",
        UpstreamStray "stray",
        UpstreamMalformed "malformed",
        UpstreamOtherCase "other-case",
    }
}

/// Number of counters.
const COUNTS: usize = Count::ALL.len();

/// Upper bounds of the RTT histogram's buckets, seconds.
pub(super) const RTT_BOUNDS: [f64; 12] =
    [0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, f64::INFINITY];

/// Counters of one worker, or of the thread for TCP: written by it alone, read by anybody.
#[derive(Debug)]
pub(crate) struct WorkerMetrics {
    counts: [AtomicU64; COUNTS],
    pub(super) rtt_buckets: [AtomicU64; RTT_BOUNDS.len()],
    pub(super) rtt_nanos: AtomicU64,
    /// Client queries that wait for upstreams.
    pub in_flight: AtomicU64,
}

impl Default for WorkerMetrics {
    fn default() -> Self {
        WorkerMetrics {
            counts: [const { AtomicU64::new(0) }; COUNTS],
            rtt_buckets: [const { AtomicU64::new(0) }; RTT_BOUNDS.len()],
            rtt_nanos: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
        }
    }
}

impl WorkerMetrics {
    /// Counts one event.
    #[inline]
    pub(crate) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Counts `n` events at once.
    #[inline]
    pub(crate) fn add(&self, what: Count, n: u64) {
        add(&self.counts[what as usize], n);
    }

    /// Counts a client query by transport and type.
    pub(crate) fn count_query(&self, transport: Transport, qtype: u16) {
        self.count(match (transport, qtype) {
            (Transport::Udp, rtype::A) => Count::UdpA,
            (Transport::Udp, rtype::AAAA) => Count::UdpAaaa,
            (Transport::Udp, rtype::PTR) => Count::UdpPtr,
            (Transport::Udp, _) => Count::UdpOther,
            (Transport::Tcp, rtype::A) => Count::TcpA,
            (Transport::Tcp, rtype::AAAA) => Count::TcpAaaa,
            (Transport::Tcp, rtype::PTR) => Count::TcpPtr,
            (Transport::Tcp, _) => Count::TcpOther,
        });
    }

    /// Counts a reply to a client by RCODE.
    pub(crate) fn count_rcode(&self, code: Rcode) {
        self.count(match code {
            Rcode::NOERROR => Count::Noerror,
            Rcode::FORMERR => Count::Formerr,
            Rcode::SERVFAIL => Count::Servfail,
            Rcode::NXDOMAIN => Count::Nxdomain,
            Rcode::NOTIMP => Count::Notimp,
            Rcode::REFUSED => Count::Refused,
            _ => Count::OtherRcode,
        });
    }

    /// Takes over a counter that somebody else keeps.
    pub(crate) fn set(&self, what: Count, total: u64) {
        self.counts[what as usize].store(total, Ordering::Relaxed);
    }

    /// Notes how long an upstream took.
    #[inline]
    pub(crate) fn rtt(&self, rtt: Nanos) {
        let seconds = rtt.as_secs_f64();
        let bucket =
            RTT_BOUNDS.iter().position(|&bound| seconds <= bound).unwrap_or(RTT_BOUNDS.len() - 1);
        add(&self.rtt_buckets[bucket], 1);
        add(&self.rtt_nanos, rtt.0);
    }

    /// How many of these events this thread has counted since the start.
    pub(crate) fn get(&self, what: Count) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }
}

/// What one worker knows of one upstream: written by it alone, read by anybody.
#[derive(Debug)]
pub(crate) struct UpstreamMetrics {
    address: ServiceAddr,
    asked: AtomicU64,
    answered: AtomicU64,
    /// Of all answers together.
    rtt_nanos: AtomicU64,
    failures: AtomicU64,
    /// Failures that were timeouts.
    timeouts: AtomicU64,
    /// Reason of the last failure.
    trouble: AtomicI32,
    /// Moment at which the worker marked it down, nanoseconds of the monotonic clock; 0: it is up.
    down_since: AtomicU64,
    /// True if it has answered in another letter case than it was asked in.
    other_case: AtomicBool,
}

impl UpstreamMetrics {
    /// Nothing is known of it yet.
    pub(crate) fn new(address: ServiceAddr) -> UpstreamMetrics {
        UpstreamMetrics {
            address,
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            rtt_nanos: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            trouble: AtomicI32::new(0),
            down_since: AtomicU64::new(0),
            other_case: AtomicBool::new(false),
        }
    }

    /// Counts a query over UDP.
    #[inline]
    pub(crate) fn asked(&self) {
        add(&self.asked, 1);
    }

    /// Counts an answer over UDP, be it an error, that came after `rtt`.
    #[inline]
    pub(crate) fn answered(&self, rtt: Nanos) {
        add(&self.answered, 1);
        add(&self.rtt_nanos, rtt.0);
    }

    /// Counts a query that it did not answer, for this reason.
    pub(crate) fn failed(&self, trouble: Trouble) {
        add(&self.failures, 1);
        add(&self.timeouts, u64::from(trouble.is_timeout()));
        self.trouble.store(trouble.to_number(), Ordering::Relaxed);
    }

    /// Notes the moment at which the worker marked it down; `None`: it is up.
    #[inline]
    pub(crate) fn set_down(&self, since: Option<Nanos>) {
        self.down_since.store(since.map_or(0, |since| since.0.max(1)), Ordering::Relaxed);
    }
}

/// Adds to a counter that has one writer, so that no locked instruction is needed.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// One upstream, all workers together.
#[derive(Clone, Copy, Default)]
pub(crate) struct UpstreamSum {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    pub(super) rtt_nanos: u64,
    pub(crate) failures: u64,
    /// Failures that were timeouts.
    pub(crate) timeouts: u64,
    /// Workers that have marked it down.
    pub(crate) down: u64,
    /// The first of these: the moment, and the reason of its last failure.
    pub(crate) down_since: Option<(Nanos, Trouble)>,
}

impl UpstreamSum {
    fn add(&mut self, of_worker: &UpstreamMetrics) {
        self.asked += of_worker.asked.load(Ordering::Relaxed);
        self.answered += of_worker.answered.load(Ordering::Relaxed);
        self.rtt_nanos += of_worker.rtt_nanos.load(Ordering::Relaxed);
        self.failures += of_worker.failures.load(Ordering::Relaxed);
        self.timeouts += of_worker.timeouts.load(Ordering::Relaxed);
        let since = Nanos(of_worker.down_since.load(Ordering::Relaxed));
        if since > Nanos(0) {
            self.down += 1;
            if self.down_since.is_none_or(|(first, _)| since < first) {
                let trouble = Trouble::of_number(of_worker.trouble.load(Ordering::Relaxed));
                self.down_since = Some((since, trouble));
            }
        }
    }
}

/// Threads that count beside the workers.
const OTHER_THREADS: usize = 3;

/// The counters of all workers.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Behind those of the workers: of the thread that writes the query log, of that for dnstap,
    /// and of that for TCP.
    pub(super) workers: Arc<[WorkerMetrics]>,
    /// The upstreams of each worker, in no order.
    upstreams: Arc<Mutex<Vec<Arc<UpstreamMetrics>>>>,
}

impl Metrics {
    /// Counters for so many workers, and for the other threads.
    pub(crate) fn new(workers: usize) -> Metrics {
        let workers = (0..workers + OTHER_THREADS).map(|_| WorkerMetrics::default()).collect();
        Metrics { workers, upstreams: Arc::default() }
    }

    /// A worker's own counters of an upstream that is new to it.
    pub(crate) fn add_upstream(&self, address: ServiceAddr) -> Arc<UpstreamMetrics> {
        let metrics = Arc::new(UpstreamMetrics::new(address));
        self.upstreams.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&metrics));
        metrics
    }

    /// Forgets the upstreams that their workers have forgotten. If an upstream is configured again
    /// later, its counters begin at 0.
    pub(crate) fn forget_upstreams(&self) {
        let mut upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        upstreams.retain(|upstream| Arc::strong_count(upstream) > 1);
    }

    /// Notes that an upstream answers in another letter case than it was asked in; returns true the
    /// first time.
    pub(crate) fn is_first_other_case(&self, address: ServiceAddr) -> bool {
        let upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_it = upstreams.iter().filter(|of_worker| of_worker.address == address);
        !of_it.any(|of_worker| of_worker.other_case.swap(true, Ordering::Relaxed))
    }

    /// Upstreams by address, all workers together.
    pub(crate) fn upstreams(&self) -> BTreeMap<ServiceAddr, UpstreamSum> {
        let mut sums = BTreeMap::<_, UpstreamSum>::new();
        for of_worker in &*self.upstreams.lock().unwrap_or_else(PoisonError::into_inner) {
            sums.entry(of_worker.address).or_default().add(of_worker);
        }
        sums
    }

    /// Those of one worker.
    #[inline]
    pub(crate) fn worker(&self, id: WorkerId) -> &WorkerMetrics {
        &self.workers[id.0]
    }

    /// Those of the thread for TCP.
    pub(crate) fn tcp(&self) -> &WorkerMetrics {
        &self.workers[self.workers.len() - 1]
    }

    /// Those of the thread that writes for dnstap.
    pub(crate) fn tap_writer(&self) -> &WorkerMetrics {
        &self.workers[self.workers.len() - 2]
    }

    /// Those of the thread that writes the query log.
    pub(crate) fn log_writer(&self) -> &WorkerMetrics {
        &self.workers[self.workers.len() - 3]
    }

    /// All counters, all threads together: family, value of its label, sum.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let sum = move |count: &Count| {
            let row = count.row();
            (row.family, row.value, self.total(*count))
        };
        Count::ALL.iter().map(sum)
    }

    /// A counter, all workers together.
    pub fn total(&self, what: Count) -> u64 {
        self.workers.iter().map(|worker| worker.get(what)).sum()
    }

    /// Client queries that wait for upstreams now.
    pub fn in_flight(&self) -> u64 {
        self.workers.iter().map(|worker| worker.in_flight.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_place_and_a_name_of_its_own() {
        for (place, count) in Count::ALL.iter().enumerate() {
            assert_eq!(*count as usize, place);
            let row = count.row();
            assert_eq!(row.label.is_empty(), row.value.is_empty(), "{row:?}");
            let same = Count::ALL
                .iter()
                .filter(|other| (other.row().family, other.row().value) == (row.family, row.value));
            assert_eq!(same.count(), 1, "{row:?}");
        }
    }
}
