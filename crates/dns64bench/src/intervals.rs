//! Sums and histograms by interval, in files that other tools read: HDR interval logs, and DNS-OARC's dns-metrics.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use campaign::archive::write_whole;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use method::units::Nanos;
use serde_json::{Value, json};
use tester::client::{Interval, Tally, Transport};

/// Version of the schema of dns-metrics that is followed: the state of its repository at that day.
const SCHEMA: u64 = 20_230_209;
/// Names of the rcodes that fit into a header (IANA).
const RCODES: [&str; 16] = [
    "NOERROR",
    "FORMERR",
    "SERVFAIL",
    "NXDOMAIN",
    "NOTIMP",
    "REFUSED",
    "YXDOMAIN",
    "YXRRSET",
    "NXRRSET",
    "NOTAUTH",
    "NOTZONE",
    "DSOTYPENI",
    "RESERVED12",
    "RESERVED13",
    "RESERVED14",
    "RESERVED15",
];

/// The command line, without the secrets of keys.
pub(crate) fn arguments() -> impl Iterator<Item = String> {
    let mut is_key = false;
    std::env::args().map(move |word| {
        let hidden = std::mem::replace(&mut is_key, word == "-y" || word == "--tsig")
            || word.starts_with("--tsig=")
            || word.starts_with("-y");
        match word.rsplit_once(':') {
            Some((front, _)) if hidden => format!("{front}:…"),
            _ => word,
        }
    })
}

/// The rcodes that came, with how often.
pub(crate) fn rcodes(counts: &[u64; 16]) -> impl Iterator<Item = (&'static str, u64)> {
    RCODES.into_iter().zip(*counts).filter(|&(_, n)| n > 0)
}

/// Writes every interval's round-trip times in µs as HDR interval log.
pub(crate) fn write_hdr_log(path: &Path, tally: &Tally, began: Nanos) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        let (mut serializer, start) = (V2DeflateSerializer::new(), UNIX_EPOCH + Duration::from_nanos(began.0));
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment(&format!("dns64bench {}, round-trip times in microseconds", env!("CARGO_PKG_VERSION")))
            .with_start_time(start)
            .with_base_time(start)
            .with_max_value_divisor(1.0)
            .begin_log_with(&mut out, &mut serializer)?;
        let width = tally.width.map_or(Duration::ZERO, |width| Duration::from_nanos(width.0));
        for (i, interval) in tally.intervals.iter().enumerate() {
            let mut in_us: Histogram<u64> = Histogram::new(3)?;
            for value in interval.rtt.iter_recorded() {
                in_us.record_n(value.value_iterated_to().div_ceil(1_000).max(1), value.count_at_value())?;
            }
            log.write_histogram(&in_us, width * i as u32, width, None)
                .map_err(|e| anyhow::anyhow!("the histogram cannot be written: {e:?}"))?;
        }
        out.flush()?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// What a file of dns-metrics is about.
pub(crate) struct Run<'a> {
    pub(crate) generator: &'a str,
    pub(crate) transport: Transport,
    pub(crate) timeout: Nanos,
    pub(crate) began: Nanos,
    pub(crate) ended: Nanos,
}

/// Writes intervals and their sum as JSON lines of dns-metrics.
pub(crate) fn write_json_lines(path: &Path, tally: &Tally, run: &Run<'_>) -> anyhow::Result<()> {
    let mut text = String::new();
    for object in objects(tally, run) {
        text.push_str(&object.to_string());
        text.push('\n');
    }
    Ok(write_whole(path, text.as_bytes())?)
}

fn objects(tally: &Tally, run: &Run<'_>) -> Vec<Value> {
    let width = tally.width.unwrap_or(Nanos(1));
    let id = format!("{}-{}", run.began.0, std::process::id());
    let mut objects = vec![json!({
        "runid": id,
        "type": "header",
        "schema_version": SCHEMA,
        "generator": run.generator,
        "generator_version": env!("CARGO_PKG_VERSION"),
        "generator_params": arguments().skip(1).collect::<Vec<_>>(),
        "time_units_per_sec": Nanos::SECOND.0,
        "stats_interval": width.as_secs_f64(),
        "timeout": run.timeout.as_secs_f64(),
    })];
    for (i, interval) in tally.intervals.iter().enumerate() {
        let since = run.began.0 + width.0 * i as u64;
        objects.push(periodic(interval, &id, since, (since + width.0).min(run.ended.0.max(since)), run.transport));
    }
    let mut sum: Histogram<u64> = Histogram::new(3).expect("three digits are possible");
    for interval in &tally.intervals {
        sum.add(&interval.rtt).expect("a histogram that grows takes any other");
    }
    let c = &tally.counts;
    objects.push(json!({
        "runid": id,
        "type": "stats_sum",
        "since": run.began.0,
        "until": run.ended.0,
        "sent": { "queries": c.sent },
        "received": { "responses": tally.rcodes.iter().sum::<u64>() },
        "timeouts": { "queries": c.lost },
        "unexpected": { "responses": c.stray },
        "response_rcodes": rcodes(&tally.rcodes).collect::<std::collections::BTreeMap<_, _>>(),
        "response_latency": latency(&sum),
        "conn_info": connections(run.transport, tally.connections.made, tally.connections.failed, &tally.connecting),
    }));
    objects
}

fn periodic(interval: &Interval, id: &str, since: u64, until: u64, transport: Transport) -> Value {
    json!({
        "runid": id,
        "type": "stats_periodic",
        "since": since,
        "until": until,
        "sent": { "queries": interval.sent },
        "received": { "responses": interval.answered },
        "timeouts": { "queries": interval.sent - interval.answered.min(interval.sent) },
        "response_latency": latency(&interval.rtt),
        "conn_info": match transport {
            Transport::Tcp => json!({ "type": "tcp", "handshakes": interval.connections }),
            _ => json!({ "type": "udp" }),
        },
    })
}

fn connections(transport: Transport, made: u64, failed: u64, took: &Histogram<u64>) -> Value {
    match transport {
        Transport::Tcp => json!({
            "type": "tcp", "handshakes": made, "handshakes_failed": failed, "conn_latency": { "handshake": latency(took) }
        }),
        _ => json!({ "type": "udp" }),
    }
}

/// Latency in ns; empty where there was none.
fn latency(rtt: &Histogram<u64>) -> Value {
    if rtt.is_empty() {
        return json!({});
    }
    let buckets: Vec<[u64; 3]> = rtt
        .iter_recorded()
        .map(|v| {
            let highest = v.value_iterated_to();
            [rtt.lowest_equivalent(highest), highest, v.count_at_value()]
        })
        .collect();
    json!({
        "avg": rtt.mean() as u64, "min": rtt.min(), "max": rtt.max(), "stddev": rtt.stdev() as u64, "buckets": buckets
    })
}
