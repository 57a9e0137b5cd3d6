//! Counters of the workers, and how Prometheus reads them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use method::units::Nanos;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use wire::rcode::Rcode;
use wire::view::rtype;

use crate::resolver::cache::Cache;

/// What is counted. The order is that of [`TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Count {
    UdpA,
    UdpAaaa,
    UdpPtr,
    UdpOther,
    TcpA,
    TcpAaaa,
    TcpPtr,
    TcpOther,
    Ignored,
    Noerror,
    Formerr,
    Servfail,
    Nxdomain,
    Notimp,
    Refused,
    OtherRcode,
    Truncated,
    SynthesizedNodata,
    SynthesizedRcode,
    SynthesizedTimeout,
    SynthesizedExcluded,
    WithheldUnmapped,
    WithheldSigned,
    WithheldCd,
    Stripped,
    Local,
    AclRefused,
    RateLimited,
    Overload,
    SocketDrops,
    SendRefused,
    TcpRefusedAcl,
    TcpRefusedLimit,
    CacheHit,
    CacheMiss,
    StaleServed,
    Collapsed,
    UpstreamUdp,
    UpstreamTcp,
    RetrySent,
    RetryWithheld,
    UpstreamAnswer,
    UpstreamTimeout,
    UpstreamUnreachable,
    UpstreamStray,
    UpstreamMalformed,
    Total,
}

/// Family, label and its value for each [`Count`].
const TABLE: [(&str, &str, &str); Count::Total as usize] = [
    ("queries", "kind", "udp_a"),
    ("queries", "kind", "udp_aaaa"),
    ("queries", "kind", "udp_ptr"),
    ("queries", "kind", "udp_other"),
    ("queries", "kind", "tcp_a"),
    ("queries", "kind", "tcp_aaaa"),
    ("queries", "kind", "tcp_ptr"),
    ("queries", "kind", "tcp_other"),
    ("queries", "kind", "ignored"),
    ("replies", "rcode", "noerror"),
    ("replies", "rcode", "formerr"),
    ("replies", "rcode", "servfail"),
    ("replies", "rcode", "nxdomain"),
    ("replies", "rcode", "notimp"),
    ("replies", "rcode", "refused"),
    ("replies", "rcode", "other"),
    ("replies_truncated", "", ""),
    ("synthesized", "reason", "nodata"),
    ("synthesized", "reason", "rcode"),
    ("synthesized", "reason", "timeout"),
    ("synthesized", "reason", "excluded"),
    ("not_synthesized", "reason", "unmapped"),
    ("not_synthesized", "reason", "signed"),
    ("not_synthesized", "reason", "cd"),
    ("excluded_stripped", "", ""),
    ("local_answers", "", ""),
    ("denied", "reason", "acl"),
    ("denied", "reason", "rate"),
    ("denied", "reason", "overload"),
    ("queries_dropped_by_kernel", "", ""),
    ("replies_not_sent", "", ""),
    ("tcp_connections_refused", "reason", "acl"),
    ("tcp_connections_refused", "reason", "limit"),
    ("cache_lookups", "result", "hit"),
    ("cache_lookups", "result", "miss"),
    ("stale_answers", "", ""),
    ("collapsed", "", ""),
    ("upstream_queries", "transport", "udp"),
    ("upstream_queries", "transport", "tcp"),
    ("upstream_retries", "result", "sent"),
    ("upstream_retries", "result", "withheld"),
    ("upstream_results", "result", "answer"),
    ("upstream_results", "result", "timeout"),
    ("upstream_results", "result", "unreachable"),
    ("upstream_results", "result", "stray"),
    ("upstream_results", "result", "malformed"),
];

fn help(family: &str) -> &'static str {
    match family {
        "queries" => "Client queries by transport and type; ignored: responses and fragments",
        "replies" => "Replies to clients by RCODE",
        "replies_truncated" => "UDP replies that did not fit and sent the client to TCP",
        "synthesized" => "AAAA answers made from A records, by why there were no AAAA records",
        "not_synthesized" => "AAAA queries left alone though they might have been translated, by reason",
        "excluded_stripped" => "AAAA answers of which excluded records were left out",
        "local_answers" => "Answers without an upstream: ipv4only.arpa and the prefixes' reverse trees",
        "denied" => "Client queries not served, by reason",
        "queries_dropped_by_kernel" => {
            "Client queries over UDP that the kernel threw away, mostly for want of room: the worker does not keep up"
        }
        "replies_not_sent" => "Replies that the kernel refused to send",
        "tcp_connections_refused" => "TCP connections of clients that were closed at once, by reason",
        "cache_lookups" => "Questions looked up in the cache",
        "stale_answers" => "Answers served after their time because upstreams failed",
        "collapsed" => "Questions that waited for the same question already in flight",
        "upstream_queries" => "Queries to upstreams by transport",
        "upstream_retries" => {
            "Questions for the same upstream again; withheld: times that it was too much, as too few were answered"
        }
        "upstream_results" => "What came of them; stray: no question of ours",
        _ => "",
    }
}

/// Upper bounds of the RTT histogram's buckets, seconds.
const RTT_BOUNDS: [f64; 12] = [0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, f64::INFINITY];

/// Counters of one worker, or of the thread for TCP: written by it alone, read by anybody.
#[derive(Debug)]
pub struct WorkerMetrics {
    counts: [AtomicU64; Count::Total as usize],
    rtt_buckets: [AtomicU64; RTT_BOUNDS.len()],
    rtt_nanos: AtomicU64,
    /// Client queries that wait for upstreams.
    pub in_flight: AtomicU64,
}

impl Default for WorkerMetrics {
    fn default() -> Self {
        WorkerMetrics {
            counts: [const { AtomicU64::new(0) }; Count::Total as usize],
            rtt_buckets: [const { AtomicU64::new(0) }; RTT_BOUNDS.len()],
            rtt_nanos: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
        }
    }
}

impl WorkerMetrics {
    /// Counts one.
    #[inline]
    pub fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Counts `n`.
    #[inline]
    pub fn add(&self, what: Count, n: u64) {
        add(&self.counts[what as usize], n);
    }

    /// Counts a client query by transport and type.
    pub fn count_query(&self, tcp: bool, qtype: u16) {
        self.count(match (tcp, qtype) {
            (false, rtype::A) => Count::UdpA,
            (false, rtype::AAAA) => Count::UdpAaaa,
            (false, rtype::PTR) => Count::UdpPtr,
            (false, _) => Count::UdpOther,
            (true, rtype::A) => Count::TcpA,
            (true, rtype::AAAA) => Count::TcpAaaa,
            (true, rtype::PTR) => Count::TcpPtr,
            (true, _) => Count::TcpOther,
        });
    }

    /// Counts a reply to a client by RCODE.
    pub fn count_rcode(&self, code: Rcode) {
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
    pub fn set(&self, what: Count, total: u64) {
        self.counts[what as usize].store(total, Ordering::Relaxed);
    }

    /// Notes how long an upstream took.
    #[inline]
    pub fn rtt(&self, rtt: Nanos) {
        let seconds = rtt.as_secs_f64();
        let bucket = RTT_BOUNDS.iter().position(|&bound| seconds <= bound).unwrap_or(RTT_BOUNDS.len() - 1);
        add(&self.rtt_buckets[bucket], 1);
        add(&self.rtt_nanos, rtt.0);
    }

    /// Reads a counter.
    pub fn get(&self, what: Count) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }
}

/// What one worker knows of one upstream: written by it alone, read by anybody.
#[derive(Debug)]
pub struct UpstreamMetrics {
    address: SocketAddr,
    asked: AtomicU64,
    answered: AtomicU64,
    /// Of all answers together.
    rtt_nanos: AtomicU64,
    failures: AtomicU64,
    down: AtomicBool,
}

impl UpstreamMetrics {
    /// Nothing is known of it yet.
    pub fn new(address: SocketAddr) -> UpstreamMetrics {
        let [asked, answered, rtt_nanos, failures] = [const { AtomicU64::new(0) }; 4];
        UpstreamMetrics { address, asked, answered, rtt_nanos, failures, down: AtomicBool::new(false) }
    }

    /// Counts a query over UDP.
    #[inline]
    pub fn asked(&self) {
        add(&self.asked, 1);
    }

    /// Counts an answer over UDP, be it an error, that came after `rtt`.
    #[inline]
    pub fn answered(&self, rtt: Nanos) {
        add(&self.answered, 1);
        add(&self.rtt_nanos, rtt.0);
    }

    /// Counts that it did not answer in time, or could not be reached.
    pub fn failed(&self) {
        add(&self.failures, 1);
    }

    /// Notes whether it has failed so often that it is taken for dead.
    #[inline]
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }
}

/// Adds to a counter that has one writer, so that no locked instruction is needed.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// One upstream, all workers together.
#[derive(Clone, Copy, Default)]
struct UpstreamSum {
    asked: u64,
    answered: u64,
    rtt_nanos: u64,
    failures: u64,
    down: u64,
}

impl UpstreamSum {
    fn add(&mut self, of_worker: &UpstreamMetrics) {
        self.asked += of_worker.asked.load(Ordering::Relaxed);
        self.answered += of_worker.answered.load(Ordering::Relaxed);
        self.rtt_nanos += of_worker.rtt_nanos.load(Ordering::Relaxed);
        self.failures += of_worker.failures.load(Ordering::Relaxed);
        self.down += u64::from(of_worker.down.load(Ordering::Relaxed));
    }
}

/// The counters of all workers.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Those of the thread for TCP are the last.
    workers: Arc<[WorkerMetrics]>,
    /// For each worker, in no order, the upstreams that it has been configured with since the process began.
    upstreams: Arc<Mutex<Vec<Arc<UpstreamMetrics>>>>,
}

impl Metrics {
    /// Counters for so many workers, and for TCP.
    pub fn new(workers: usize) -> Metrics {
        let workers = (0..=workers).map(|_| WorkerMetrics::default()).collect();
        Metrics { workers, upstreams: Arc::default() }
    }

    /// A worker's own counters of an upstream that is new to it.
    pub fn add_upstream(&self, address: SocketAddr) -> Arc<UpstreamMetrics> {
        let metrics = Arc::new(UpstreamMetrics::new(address));
        self.upstreams.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&metrics));
        metrics
    }

    /// Upstreams by address, all workers together.
    fn upstreams(&self) -> BTreeMap<SocketAddr, UpstreamSum> {
        let mut sums = BTreeMap::<_, UpstreamSum>::new();
        for of_worker in &*self.upstreams.lock().unwrap_or_else(PoisonError::into_inner) {
            sums.entry(of_worker.address).or_default().add(of_worker);
        }
        sums
    }

    /// Those of one worker.
    pub fn worker(&self, number: usize) -> &WorkerMetrics {
        &self.workers[number]
    }

    /// Those of the thread for TCP.
    pub fn tcp(&self) -> &WorkerMetrics {
        &self.workers[self.workers.len() - 1]
    }

    /// A counter, all workers together.
    pub fn total(&self, what: Count) -> u64 {
        self.workers.iter().map(|worker| worker.get(what)).sum()
    }

    /// Client queries that wait for upstreams now.
    pub fn in_flight(&self) -> u64 {
        self.workers.iter().map(|worker| worker.in_flight.load(Ordering::Relaxed)).sum()
    }

    /// All of them in the text format that Prometheus reads.
    pub fn to_text(&self, cache: &Arc<Cache>) -> String {
        let mut registry = Registry::with_prefix("dns64d");
        registry.register_collector(Box::new(Snapshot { metrics: self.clone(), cache: Arc::clone(cache) }));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

struct Snapshot {
    metrics: Metrics,
    cache: Arc<Cache>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut at = 0;
        while at < TABLE.len() {
            let family = TABLE[at].0;
            let mut described = encoder.encode_descriptor(family, help(family), None, MetricType::Counter)?;
            while let Some((_, label, value)) = TABLE.get(at).filter(|row| row.0 == family) {
                let sum: u64 = self.metrics.workers.iter().map(|w| w.counts[at].load(Ordering::Relaxed)).sum();
                if label.is_empty() {
                    described.encode_counter::<NoLabelSet, u64, f64>(&sum, None)?;
                } else {
                    ConstCounter::new(sum).encode(described.encode_family(&[(*label, *value)])?)?;
                }
                at += 1;
            }
        }
        let gauges = [
            ("in_flight", "Client queries that wait for upstreams", self.metrics.in_flight()),
            ("cache_entries", "Answers in the cache", self.cache.len() as u64),
            ("cache_bytes", "Memory for them, estimated", self.cache.weight()),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        self.encode_upstreams(&mut encoder)?;
        let sum = |of: &dyn Fn(&WorkerMetrics) -> u64| self.metrics.workers.iter().map(of).sum::<u64>();
        let buckets: Vec<(f64, u64)> = RTT_BOUNDS
            .iter()
            .enumerate()
            .map(|(i, &bound)| (bound, sum(&|w| w.rtt_buckets[i].load(Ordering::Relaxed))))
            .collect();
        let seconds = Nanos(sum(&|w| w.rtt_nanos.load(Ordering::Relaxed))).as_secs_f64();
        let count = buckets.iter().map(|(_, n)| n).sum();
        let name = "upstream_rtt_seconds";
        let mut described =
            encoder.encode_descriptor(name, "Time until an upstream answered", None, MetricType::Histogram)?;
        described.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }
}

impl Snapshot {
    /// What is known of each upstream.
    fn encode_upstreams(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let upstreams: Vec<(String, UpstreamSum)> =
            self.metrics.upstreams().into_iter().map(|(address, sum)| (address.to_string(), sum)).collect();
        type Counter = (&'static str, &'static str, fn(&UpstreamSum) -> f64);
        let counters: [Counter; 4] = [
            ("upstream_server_queries", "Queries over UDP to each upstream", |sum| sum.asked as f64),
            ("upstream_server_answers", "What it answered of them, errors included", |sum| sum.answered as f64),
            ("upstream_server_answer_seconds", "How long these answers took, all together", |sum| {
                Nanos(sum.rtt_nanos).as_secs_f64()
            }),
            (
                "upstream_server_failures",
                "Times that it did not answer in time (0.2 to 0.8 s over UDP) or could not be reached, TCP included",
                |sum| sum.failures as f64,
            ),
        ];
        for (name, help, value) in counters {
            let mut described = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (address, sum) in &upstreams {
                ConstCounter::new(value(sum)).encode(described.encode_family(&[("upstream", address.as_str())])?)?;
            }
        }
        let help = "Workers that take it for dead: three failures in a row and no answer since";
        let mut described = encoder.encode_descriptor("upstream_server_down", help, None, MetricType::Gauge)?;
        for (address, sum) in &upstreams {
            let down = ConstGauge::new(i64::try_from(sum.down).unwrap_or(i64::MAX));
            down.encode(described.encode_family(&[("upstream", address.as_str())])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_every_counter() {
        let metrics = Metrics::new(2);
        metrics.worker(0).add(Count::UdpAaaa, 3);
        metrics.worker(1).count(Count::UdpAaaa);
        metrics.worker(1).count(Count::UpstreamMalformed);
        metrics.tcp().count(Count::TcpRefusedAcl);
        metrics.worker(1).rtt(Nanos::from_millis(2));
        let [near, far] = ["192.0.2.1:53", "[2001:db8::1]:53"].map(|address| address.parse().unwrap());
        for address in [near, near, far] {
            let upstream = metrics.add_upstream(address);
            upstream.asked();
            if address == near {
                upstream.answered(Nanos::from_millis(2));
            } else {
                upstream.failed();
                upstream.set_down(true);
            }
        }
        let text = metrics.to_text(&Arc::new(Cache::new(1)));
        for line in [
            "dns64d_queries_total{kind=\"udp_aaaa\"} 4",
            "dns64d_upstream_results_total{result=\"malformed\"} 1",
            "dns64d_replies_truncated_total 0",
            "dns64d_tcp_connections_refused_total{reason=\"acl\"} 1",
            "dns64d_tcp_connections_refused_total{reason=\"limit\"} 0",
            "dns64d_in_flight 0",
            "dns64d_upstream_server_queries_total{upstream=\"192.0.2.1:53\"} 2.0",
            "dns64d_upstream_server_answers_total{upstream=\"192.0.2.1:53\"} 2.0",
            "dns64d_upstream_server_answer_seconds_total{upstream=\"192.0.2.1:53\"} 0.004",
            "dns64d_upstream_server_failures_total{upstream=\"[2001:db8::1]:53\"} 1.0",
            "dns64d_upstream_server_down{upstream=\"192.0.2.1:53\"} 0",
            "dns64d_upstream_server_down{upstream=\"[2001:db8::1]:53\"} 1",
            "dns64d_upstream_rtt_seconds_count 1",
            "dns64d_upstream_rtt_seconds_bucket{le=\"0.003\"} 1",
            "dns64d_upstream_rtt_seconds_bucket{le=\"+Inf\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(TABLE.iter().all(|row| !help(row.0).is_empty()));
    }
}
