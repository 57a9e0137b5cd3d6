//! Counters of events. Each thread has a separate set of counters, to which only that thread
//! writes. Incrementing a counter is therefore an ordinary addition without a locked instruction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use net::address::ServiceAddr;
use units::Nanos;
use wire::rcode::Rcode;
use wire::view::rtype;

use super::failure::UpstreamFailure;
use crate::ids::WorkerId;
use crate::transport::Transport;

/// Name and label of a counter in the metrics: `dns64d_FAMILY_total{LABEL="VALUE"}`. If `label` is empty, the braces
/// are omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) family: &'static str,
    pub(super) help: &'static str,
    pub(super) label: &'static str,
    pub(super) value: &'static str,
}

/// Defines [`Count`]. In the input of this macro, each counter is listed under its metric family, next to the value of
/// its label. Family and label can therefore not be mixed up.
macro_rules! counters {
    ($($family:literal, $help:literal, $label:literal { $($name:ident $value:literal,)+ })+) => {
        /// A counted event. Each thread has one counter per event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count {
            $($(
                #[doc = concat!("`dns64d_", $family, "_total`, ", $label, " \"", $value, "\": ", $help, ".")]
                $name,
            )+)+
        }

        impl Count {
            /// All counters, grouped by metric family.
            pub(super) const ALL: &[Count] = &[$($(Count::$name,)+)+];

            /// Returns the name and the label of this counter in the metrics.
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
        TlsA "tls_a",
        TlsAaaa "tls_aaaa",
        TlsPtr "tls_ptr",
        TlsOther "tls_other",
        HttpsA "https_a",
        HttpsAaaa "https_aaaa",
        HttpsPtr "https_ptr",
        HttpsOther "https_other",
        QuicA "quic_a",
        QuicAaaa "quic_aaaa",
        QuicPtr "quic_ptr",
        QuicOther "quic_other",
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
    "replies_truncated", "UDP replies truncated because they did not fit; the client retries over TCP", "" { Truncated "", }
    "large_replies_withheld", "UDP replies truncated because they exceeded four times the query's size and the amplification limit", "" {
        LargeWithheld "",
    }
    "synthesized", "Synthesized AAAA answers, by reason for the missing AAAA records", "reason" {
        SynthesizedNodata "nodata",
        SynthesizedRcode "rcode",
        SynthesizedTimeout "timeout",
        SynthesizedExcluded "excluded",
    }
    "not_synthesized", "AAAA queries without synthesis although A records might exist, by reason", "reason" {
        WithheldUnmapped "unmapped",
        WithheldSigned "signed",
        WithheldCd "cd",
    }
    "excluded_stripped", "AAAA answers from which excluded records were removed", "" { Stripped "", }
    "a_filtered", "A queries answered with NODATA because the client gets AAAA records", "" { FilteredA "", }
    "local_answers", "Answers without an upstream query: ipv4only.arpa, reverse zones of the prefixes, and local zones", "" { Local "", }
    "denied", "Rejected client queries, by reason", "reason" {
        AclRefused "acl",
        RateLimited "rate",
        Overload "overload",
        ClientShare "client-share",
        FailingSubtree "dead-branch",
    }
    "defects", "Panics in the processing of a query; each is logged with its question", "" { Defect "", }
    "queries_dropped_by_kernel",
    "UDP client queries dropped by the kernel, usually because the socket buffer was full and the worker did not keep up", "" {
        SocketDrops "",
    }
    "queries_dropped_late", "UDP client queries dropped because they waited 1 s for the worker", "" { DroppedLate "", }
    "xdp_lost", "Datagrams lost over AF_XDP; in: the worker did not keep up; out: the device did not keep up", "direction" {
        RingsLostIn "in",
        RingsLostOut "out",
    }
    "replies_not_sent", "Replies with a send error", "" { SendRefused "", }
    "tcp_connections_refused", "Connections (TCP, TLS, HTTPS, QUIC) closed by the server, by reason: acl and limit on accept, unread replies, displaced by other clients", "reason" {
        TcpRefusedAcl "acl",
        TcpRefusedLimit "limit",
        TcpUnread "unread",
        TcpDisplaced "displaced",
    }
    "tcp_accepts_failed", "Failed accepts of TCP connections, usually because of missing file descriptors", "" {
        TcpAcceptFailed "",
    }
    "handshakes", "Handshakes of TLS (full or resumed) and QUIC; timeout: not finished within 5 s", "result" {
        HandshakeFull "full",
        HandshakeResumed "resumed",
        HandshakeQuic "quic",
        HandshakeFailed "failed",
        HandshakeTimeout "timeout",
    }
    "quic_retries", "QUIC connections that had to prove their address because they, or all clients, had many connections", "" {
        QuicRetry "",
    }
    "certificates", "Certificates that were read again; rejected: the old certificate stays in use", "result" {
        CertificateRenewed "renewed",
        CertificateRejected "rejected",
    }
    "query_log_lines", "Lines of the query log; dropped: the queue was full, or they could not be written", "result" {
        LogWritten "written",
        LogDropped "dropped",
    }
    "dnstap_messages", "Messages for the dnstap reader; dropped: it was not connected, or too slow", "result" {
        TapSent "sent",
        TapDropped "dropped",
    }
    "cache_lookups", "Questions looked up in the cache", "result" {
        CacheHit "hit",
        CacheMiss "miss",
    }
    "prefetched", "Answers refreshed before they expired", "" { Prefetched "", }
    "stale_answers", "Expired answers served because upstreams failed", "" { StaleServed "", }
    "collapsed", "Questions that joined an identical upstream query in flight", "" { Collapsed "", }
    "upstream_queries", "Upstream queries by transport", "transport" {
        UpstreamUdp "udp",
        UpstreamTcp "tcp",
    }
    "upstream_retries",
    "Retries to the same upstream; withheld: retries suppressed by the retry budget", "result" {
        RetrySent "sent",
        RetryWithheld "withheld",
    }
    "upstream_results", "Results of upstream queries; stray: unmatched responses; other-case: responses in another letter case than the query", "result" {
        UpstreamAnswer "answer",
        UpstreamTimeout "timeout",
        UpstreamUnreachable "unreachable",
        UpstreamStray "stray",
        UpstreamMalformed "malformed",
        UpstreamOtherCase "other-case",
    }
    "validations", "Answers by result of the DNSSEC validation; overload: too many validations waited", "result" {
        Secure "secure",
        Insecure "insecure",
        Indeterminate "indeterminate",
        Unchecked "unchecked",
        Bogus "bogus",
        ValidationOverload "overload",
    }
    "validation_limits", "Validations that ended at a limit: signature checks, failed checks, keys with one tag, NSEC3 hashes, queries, CPU time", "limit" {
        LimitChecks "checks",
        LimitFailedChecks "failed-checks",
        LimitKeys "keys",
        LimitHashes "hashes",
        LimitQueries "queries",
        LimitTime "time",
    }
}

/// Number of event counters per thread.
const COUNTS: usize = Count::ALL.len();

/// Upper bounds of the RTT histogram's buckets, in seconds.
pub(super) const RTT_BOUNDS: [f64; 12] =
    [0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, f64::INFINITY];

/// Counters of one worker or of the TCP thread. Only that thread writes the counters. Any thread
/// may read them.
#[derive(Debug)]
pub(crate) struct WorkerMetrics {
    counts: [AtomicU64; COUNTS],
    pub(super) rtt_buckets: [AtomicU64; RTT_BOUNDS.len()],
    pub(super) rtt_nanos: AtomicU64,
    /// Number of client queries that wait for upstreams.
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
            (Transport::Tls, rtype::A) => Count::TlsA,
            (Transport::Tls, rtype::AAAA) => Count::TlsAaaa,
            (Transport::Tls, rtype::PTR) => Count::TlsPtr,
            (Transport::Tls, _) => Count::TlsOther,
            (Transport::Https, rtype::A) => Count::HttpsA,
            (Transport::Https, rtype::AAAA) => Count::HttpsAaaa,
            (Transport::Https, rtype::PTR) => Count::HttpsPtr,
            (Transport::Https, _) => Count::HttpsOther,
            (Transport::Quic, rtype::A) => Count::QuicA,
            (Transport::Quic, rtype::AAAA) => Count::QuicAaaa,
            (Transport::Quic, rtype::PTR) => Count::QuicPtr,
            (Transport::Quic, _) => Count::QuicOther,
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

    /// Sets a counter to a total that is counted outside of this module, for example in the kernel.
    pub(crate) fn set(&self, what: Count, total: u64) {
        self.counts[what as usize].store(total, Ordering::Relaxed);
    }

    /// Records the response time of an upstream.
    #[inline]
    pub(crate) fn rtt(&self, rtt: Nanos) {
        let seconds = rtt.as_secs_f64();
        let bucket =
            RTT_BOUNDS.iter().position(|&bound| seconds <= bound).unwrap_or(RTT_BOUNDS.len() - 1);
        add(&self.rtt_buckets[bucket], 1);
        add(&self.rtt_nanos, rtt.0);
    }

    /// Returns this thread's count of an event since the start.
    pub(crate) fn get(&self, what: Count) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }
}

/// Counters and state of one upstream in one worker. Only that worker writes these values. Any
/// thread may read them.
#[derive(Debug)]
pub(crate) struct UpstreamMetrics {
    address: ServiceAddr,
    asked: AtomicU64,
    answered: AtomicU64,
    /// Sum of the response times of all UDP answers, in nanoseconds.
    rtt_nanos: AtomicU64,
    failures: AtomicU64,
    /// Number of queries to the upstream that failed because of a timeout.
    timeouts: AtomicU64,
    /// Reason for the last failed query to the upstream.
    trouble: AtomicI32,
    /// Time at which the worker marked the upstream down, in nanoseconds of the monotonic clock. 0
    /// if the upstream is up.
    down_since: AtomicU64,
    /// True if the upstream has answered in a letter case different from that of the query.
    other_case: AtomicBool,
}

impl UpstreamMetrics {
    /// Creates the counters of one upstream with the value zero.
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

    /// Counts a UDP query to the upstream.
    #[inline]
    pub(crate) fn asked(&self) {
        add(&self.asked, 1);
    }

    /// Counts a UDP answer, which may be an error, received after `rtt`.
    #[inline]
    pub(crate) fn answered(&self, rtt: Nanos) {
        add(&self.answered, 1);
        add(&self.rtt_nanos, rtt.0);
    }

    /// Counts an unanswered query, and records the reason for the failure.
    pub(crate) fn failed(&self, trouble: UpstreamFailure) {
        add(&self.failures, 1);
        add(&self.timeouts, u64::from(trouble.is_timeout()));
        self.trouble.store(trouble.to_number(), Ordering::Relaxed);
    }

    /// Records the time at which the worker marked the upstream down, or `None` if the upstream is up.
    #[inline]
    pub(crate) fn set_down(&self, since: Option<Nanos>) {
        self.down_since.store(since.map_or(0, |since| since.0.max(1)), Ordering::Relaxed);
    }
}

/// Adds to a counter. The counter has a single writer, so no locked instruction is needed.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// Counters and state of one upstream, summed over all workers.
#[derive(Clone, Copy, Default)]
pub(crate) struct UpstreamSum {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    pub(super) rtt_nanos: u64,
    pub(crate) failures: u64,
    /// Number of queries to the upstream that failed because of a timeout.
    pub(crate) timeouts: u64,
    /// Number of workers that have marked the upstream down.
    pub(crate) down: u64,
    /// Earliest time at which a worker marked the upstream down, and the reason for that worker's
    /// last failure. `None` if the upstream is up.
    pub(crate) down_since: Option<(Nanos, UpstreamFailure)>,
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
                let trouble = UpstreamFailure::of_number(of_worker.trouble.load(Ordering::Relaxed));
                self.down_since = Some((since, trouble));
            }
        }
    }
}

/// Number of threads that have counters and are not workers.
const OTHER_THREADS: usize = 4;

/// Counters and state of the validation of answers, written by several threads.
#[derive(Debug, Default)]
pub(crate) struct ValidationMetrics {
    /// True if answers are validated.
    pub(crate) is_active: AtomicBool,
    /// Number of signature checks that wait for a free thread.
    pub(crate) waiting: AtomicU64,
    /// CPU time of all validations, in nanoseconds.
    pub(crate) nanos: AtomicU64,
}

/// The counters of all threads.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Counters of the workers, then of the thread of the encrypted transports, the query log thread, the dnstap thread and
    /// the TCP thread.
    pub(super) workers: Arc<[WorkerMetrics]>,
    /// Counters of the upstreams of all workers, in no particular order.
    upstreams: Arc<Mutex<Vec<Arc<UpstreamMetrics>>>>,
    pub(crate) validation: Arc<ValidationMetrics>,
}

impl Metrics {
    /// Creates the counters of `workers` workers and of the other threads.
    pub(crate) fn new(workers: usize) -> Metrics {
        let workers = (0..workers + OTHER_THREADS).map(|_| WorkerMetrics::default()).collect();
        Metrics { workers, upstreams: Arc::default(), validation: Arc::default() }
    }

    /// Adds counters for an upstream that a worker has not used before, and returns them.
    pub(crate) fn add_upstream(&self, address: ServiceAddr) -> Arc<UpstreamMetrics> {
        let metrics = Arc::new(UpstreamMetrics::new(address));
        self.upstreams.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&metrics));
        metrics
    }

    /// Removes the counters of upstreams that no worker uses any longer. If such an upstream is
    /// configured again later, its counters start at 0.
    pub(crate) fn forget_upstreams(&self) {
        let mut upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        upstreams.retain(|upstream| Arc::strong_count(upstream) > 1);
    }

    /// Records that an upstream answers in a letter case different from that of the query. Returns
    /// true if this is the first record for this upstream.
    pub(crate) fn is_first_other_case(&self, address: ServiceAddr) -> bool {
        let upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_it = upstreams.iter().filter(|of_worker| of_worker.address == address);
        !of_it.any(|of_worker| of_worker.other_case.swap(true, Ordering::Relaxed))
    }

    /// Returns the counters and state of each upstream, summed over all workers. The key is the address of the
    /// upstream.
    pub(crate) fn upstreams(&self) -> BTreeMap<ServiceAddr, UpstreamSum> {
        let mut sums = BTreeMap::<_, UpstreamSum>::new();
        for of_worker in &*self.upstreams.lock().unwrap_or_else(PoisonError::into_inner) {
            sums.entry(of_worker.address).or_default().add(of_worker);
        }
        sums
    }

    /// Returns the counters of one worker.
    #[inline]
    pub(crate) fn worker(&self, id: WorkerId) -> &WorkerMetrics {
        &self.workers[id.0]
    }

    /// Returns the counters of the TCP thread.
    pub(crate) fn tcp(&self) -> &WorkerMetrics {
        &self.workers[self.workers.len() - 1]
    }

    /// Returns the counters of the thread of the encrypted transports.
    pub(crate) fn encrypted(&self) -> &WorkerMetrics {
        &self.workers[self.workers.len() - 4]
    }

    /// Returns the counters of the dnstap thread.
    pub(crate) fn tap_writer(&self) -> &WorkerMetrics {
        &self.workers[self.workers.len() - 2]
    }

    /// Returns the counters of the query log thread.
    pub(crate) fn log_writer(&self) -> &WorkerMetrics {
        &self.workers[self.workers.len() - 3]
    }

    /// For each counter, returns the metric family, the value of the label, and the sum over all threads.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let sum = move |count: &Count| {
            let row = count.row();
            (row.family, row.value, self.total(*count))
        };
        Count::ALL.iter().map(sum)
    }

    /// Returns the value of a counter, summed over all threads.
    pub fn total(&self, what: Count) -> u64 {
        self.workers.iter().map(|worker| worker.get(what)).sum()
    }

    /// Returns the number of client queries that wait for upstreams.
    pub fn in_flight(&self) -> u64 {
        self.workers.iter().map(|worker| worker.in_flight.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_place_and_a_name_of_its_own() {
        for (index, count) in Count::ALL.iter().enumerate() {
            assert_eq!(*count as usize, index);
            let row = count.row();
            assert_eq!(row.label.is_empty(), row.value.is_empty(), "{row:?}");
            let same = Count::ALL
                .iter()
                .filter(|other| (other.row().family, other.row().value) == (row.family, row.value));
            assert_eq!(same.count(), 1, "{row:?}");
        }
    }
}
