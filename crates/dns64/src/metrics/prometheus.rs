//! The metrics in the Prometheus text format.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use units::Nanos;

use super::counters::{Count, Metrics, RTT_BOUNDS, Row, UpstreamSum, WorkerMetrics};
use crate::resolver::cache::Cache;

/// Metrics of a prefix.
#[derive(Clone, Debug)]
pub(crate) struct PrefixRow {
    /// Prefix in text form.
    pub prefix: String,
    /// Name of the prefix. Empty if the prefix has no name.
    pub name: String,
    /// Sources that announced a discovered prefix. For a configured prefix, the text is "configuration".
    pub from: String,
    /// Remaining lifetime of the prefix in seconds, or `None` if the lifetime is unlimited.
    pub seconds_left: Option<f64>,
    /// True if the prefix is not used for new answers.
    pub draining: bool,
    /// Result of the probes: "healthy", "unhealthy" or "unknown". `None` if the prefix is not
    /// probed.
    pub health: Option<&'static str>,
}

/// Returns all counters, cache statistics and the state of prefixes in the OpenMetrics text format.
pub(crate) fn to_text(metrics: &Metrics, cache: &Arc<Cache>, prefixes: &[PrefixRow]) -> String {
    let mut registry = Registry::with_prefix("dns64d");
    registry.register_collector(Box::new(Snapshot {
        metrics: metrics.clone(),
        cache: Arc::clone(cache),
        prefixes: prefixes.to_vec(),
    }));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

struct Snapshot {
    metrics: Metrics,
    cache: Arc<Cache>,
    prefixes: Vec<PrefixRow>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for family in Count::ALL.chunk_by(|a, b| a.row().family == b.row().family) {
            let Row { family: name, help, label, .. } = family[0].row();
            let mut described = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for count in family {
                let sum = self.metrics.total(*count);
                if label.is_empty() {
                    described.encode_counter::<NoLabelSet, u64, f64>(&sum, None)?;
                } else {
                    ConstCounter::new(sum)
                        .encode(described.encode_family(&[(label, count.row().value)])?)?;
                }
            }
        }
        let gauges = [
            ("in_flight", "Client queries that wait for upstreams", self.metrics.in_flight()),
            ("cache_entries", "Answers in the cache", self.cache.len() as u64),
            ("cache_bytes", "Estimated memory of the cache", self.cache.weight()),
            (
                "validation_active",
                "1 if answers are validated (DNSSEC)",
                u64::from(self.metrics.validation.is_active.load(Ordering::Relaxed)),
            ),
            (
                "validations_waiting",
                "Steps of validations that wait for a thread",
                self.metrics.validation.waiting.load(Ordering::Relaxed),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let seconds = Nanos(self.metrics.validation.nanos.load(Ordering::Relaxed)).as_secs_f64();
        let (name, help) = ("validation_seconds", "CPU time of all validations");
        let mut described = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        described.encode_counter::<NoLabelSet, f64, f64>(&seconds, None)?;
        self.encode_upstreams(&mut encoder)?;
        self.encode_prefixes(&mut encoder)?;
        let sum =
            |of: &dyn Fn(&WorkerMetrics) -> u64| self.metrics.workers.iter().map(of).sum::<u64>();
        let buckets: Vec<(f64, u64)> = RTT_BOUNDS
            .iter()
            .enumerate()
            .map(|(i, &bound)| (bound, sum(&|w| w.rtt_buckets[i].load(Ordering::Relaxed))))
            .collect();
        let seconds = Nanos(sum(&|w| w.rtt_nanos.load(Ordering::Relaxed))).as_secs_f64();
        let count = buckets.iter().map(|(_, n)| n).sum();
        let name = "upstream_rtt_seconds";
        let mut described = encoder.encode_descriptor(
            name,
            "Response time of upstreams",
            None,
            MetricType::Histogram,
        )?;
        described.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }
}

impl Snapshot {
    /// Encodes the state of each prefix.
    fn encode_prefixes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Prefixes and their source; 0 for draining ones";
        let mut described = encoder.encode_descriptor("prefix", help, None, MetricType::Gauge)?;
        for row in &self.prefixes {
            let labels = [("prefix", &*row.prefix), ("name", &*row.name), ("from", &*row.from)];
            let used = ConstGauge::new(i64::from(!row.draining));
            used.encode(described.encode_family(&labels)?)?;
        }
        let help = "Remaining lifetime of a discovered prefix";
        let mut described =
            encoder.encode_descriptor("prefix_left_seconds", help, None, MetricType::Gauge)?;
        for row in &self.prefixes {
            let Some(seconds) = row.seconds_left else { continue };
            let left = ConstGauge::new(seconds);
            left.encode(described.encode_family(&[("prefix", &*row.prefix)])?)?;
        }
        let help = "Health of a prefix from probes: 1 for its current state";
        let mut described =
            encoder.encode_descriptor("prefix_health", help, None, MetricType::Gauge)?;
        for row in &self.prefixes {
            let Some(health) = row.health else { continue };
            for state in ["healthy", "unhealthy", "unknown"] {
                let is_so = ConstGauge::new(i64::from(state == health));
                let labels = [("prefix", &*row.prefix), ("state", state)];
                is_so.encode(described.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Encodes counters and state of each upstream.
    fn encode_upstreams(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let upstreams: Vec<(String, UpstreamSum)> = self
            .metrics
            .upstreams()
            .into_iter()
            .map(|(address, sum)| (address.to_string(), sum))
            .collect();
        type Counter = (&'static str, &'static str, fn(&UpstreamSum) -> f64);
        let counters: [Counter; 4] = [
            ("upstream_server_queries", "UDP queries to each upstream", |sum| sum.asked as f64),
            ("upstream_server_answers", "UDP answers of each upstream, including errors", |sum| {
                sum.answered as f64
            }),
            ("upstream_server_answer_seconds", "Total response time of these answers", |sum| {
                Nanos(sum.rtt_nanos).as_secs_f64()
            }),
            (
                "upstream_server_failures",
                "Upstream queries that timed out (0.2 to 0.8 s over UDP) or could not be sent, including TCP",
                |sum| sum.failures as f64,
            ),
        ];
        for (name, help, value) in counters {
            let mut described = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (address, sum) in &upstreams {
                ConstCounter::new(value(sum))
                    .encode(described.encode_family(&[("upstream", address.as_str())])?)?;
            }
        }
        let help = "Workers that have marked the upstream down: three consecutive failures and no answer since";
        let mut described =
            encoder.encode_descriptor("upstream_server_down", help, None, MetricType::Gauge)?;
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
    use crate::ids::WorkerId;
    use crate::metrics::UpstreamFailure;

    fn rows() -> [PrefixRow; 2] {
        let south = PrefixRow {
            prefix: "2001:db8::/96".into(),
            name: "south".into(),
            from: "upstreams".into(),
            seconds_left: Some(7.5),
            draining: false,
            health: Some("unhealthy"),
        };
        let north = PrefixRow {
            prefix: "64:ff9b::/96".into(),
            name: String::new(),
            from: "configuration".into(),
            seconds_left: None,
            draining: true,
            health: None,
        };
        [south, north]
    }

    #[test]
    fn prometheus_gets_every_counter() {
        let metrics = Metrics::new(2);
        metrics.worker(WorkerId(0)).add(Count::UdpAaaa, 3);
        metrics.worker(WorkerId(1)).count(Count::UdpAaaa);
        metrics.worker(WorkerId(1)).count(Count::UpstreamMalformed);
        metrics.tcp().count(Count::TcpRefusedAcl);
        metrics.validation.is_active.store(true, Ordering::Relaxed);
        metrics.validation.waiting.store(3, Ordering::Relaxed);
        metrics.validation.nanos.store(250_000_000, Ordering::Relaxed);
        metrics.worker(WorkerId(1)).rtt(Nanos::from_millis(2));
        let [near, far] =
            ["192.0.2.1:53", "[2001:db8::1]:53"].map(|address| address.parse().unwrap());
        for address in [near, near, far] {
            let upstream = metrics.add_upstream(address);
            upstream.asked();
            if address == near {
                upstream.answered(Nanos::from_millis(2));
            } else {
                upstream.failed(UpstreamFailure::Timeout);
                upstream.set_down(Some(Nanos::SECOND));
            }
        }
        let text = to_text(&metrics, &Arc::new(Cache::new(1)), &rows());
        for line in [
            "dns64d_prefix{prefix=\"2001:db8::/96\",name=\"south\",from=\"upstreams\"} 1",
            "dns64d_prefix{prefix=\"64:ff9b::/96\",name=\"\",from=\"configuration\"} 0",
            "dns64d_prefix_left_seconds{prefix=\"2001:db8::/96\"} 7.5",
            "dns64d_prefix_health{prefix=\"2001:db8::/96\",state=\"unhealthy\"} 1",
            "dns64d_prefix_health{prefix=\"2001:db8::/96\",state=\"healthy\"} 0",
            "dns64d_queries_total{kind=\"udp_aaaa\"} 4",
            "dns64d_upstream_results_total{result=\"malformed\"} 1",
            "dns64d_replies_truncated_total 0",
            "dns64d_tcp_connections_refused_total{reason=\"acl\"} 1",
            "dns64d_tcp_connections_refused_total{reason=\"limit\"} 0",
            "dns64d_tcp_connections_refused_total{reason=\"unread\"} 0",
            "dns64d_tcp_connections_refused_total{reason=\"displaced\"} 0",
            "dns64d_in_flight 0",
            "dns64d_validation_active 1",
            "dns64d_validations_waiting 3",
            "dns64d_validation_seconds_total 0.25",
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
    }

    /// Returns the text of all metrics, including those of a prefix and of an upstream.
    fn all() -> String {
        let metrics = Metrics::new(1);
        metrics.add_upstream("192.0.2.1:53".parse().unwrap());
        to_text(&metrics, &Arc::new(Cache::new(1)), &rows())
    }

    /// Checks that the metrics named in `text` are exported, with the label values used there.
    fn are_exported(text: &str, least: usize) {
        let exported = all();
        let name = |(at, _): (usize, &str)| -> &str {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            text[at..].split(|c| !is_part(c)).next().unwrap()
        };
        let asked: std::collections::BTreeSet<&str> =
            text.match_indices("dns64d_").map(name).collect();
        assert!(asked.len() >= least, "{asked:?}");
        for name in asked {
            let is_it = |line: &str| line.split(['{', ' ']).next() == Some(name);
            assert!(exported.lines().any(is_it), "{name} is not exported:\n{exported}");
        }
        for (label, values) in
            text.match_indices("=\"").chain(text.match_indices("=~\"")).map(|(at, sign)| {
                let label = text[..at].rsplit(['{', ',']).next().unwrap();
                (label, text[at + sign.len()..].split('"').next().unwrap())
            })
        {
            for value in values.split('|').filter(|_| !["instance", "job"].contains(&label)) {
                let pair = format!("{label}=\"{value}\"");
                assert!(exported.contains(&pair), "{pair} is not exported:\n{exported}");
            }
        }
    }

    /// All panel queries in the Grafana dashboard, one per line.
    fn dashboard_queries() -> String {
        let dashboard = include_str!("../../../../dist/grafana/dns64d.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        let mut all = String::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["id"]);
            for target in panel["targets"].as_array().unwrap() {
                all += target["expr"].as_str().unwrap();
                all.push('\n');
            }
        }
        all
    }

    /// A panel with a metric that is not exported would be empty.
    #[test]
    fn the_dashboard_asks_for_metrics_that_are_exported() {
        are_exported(&dashboard_queries(), 25);
    }

    #[test]
    fn metrics_to_watch_are_on_the_dashboard() {
        let queries = dashboard_queries();
        let book = include_str!("../../../../docs/src/dns64d/monitoring.md");
        let mut watched = 0;
        for row in book.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            // The columns are metrics, labels, meaning, and the text under "What to watch for".
            let &[_, metrics, _, _, watch, _] = &cells[..] else { continue };
            for metric in metrics.split('`').skip(1).step_by(2).filter(|_| !watch.is_empty()) {
                let forms = ["_total{", "{"].map(|end| format!("dns64d_{metric}{end}"));
                assert!(forms.iter().any(|form| queries.contains(form)), "no panel for {metric}");
                watched += 1;
            }
        }
        assert!(watched >= 15, "{watched}");
    }

    #[test]
    fn alert_rules_ask_for_metrics_that_are_exported() {
        let rules = include_str!("../../../../dist/grafana/dns64d-alerts.yaml");
        are_exported(rules, 9);
        let count =
            |key: &str| rules.lines().filter(|line| line.trim_start().starts_with(key)).count();
        let alerts = count("- alert: ");
        for key in ["expr: ", "for: ", "labels:", "severity: ", "annotations:", "summary: "] {
            assert_eq!(count(key), alerts, "{key}");
        }
        // Rows in the book that recommend an alert.
        let book = include_str!("../../../../docs/src/dns64d/monitoring.md");
        let rows = book.lines().filter(|line| line.starts_with("| `") && line.contains("alert"));
        for row in rows {
            let metric = row.split('`').nth(1).unwrap();
            assert!(rules.contains(&format!("dns64d_{metric}")), "no rule for {metric}");
        }
    }
}
