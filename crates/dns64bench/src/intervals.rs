//! Files with the statistics of each time interval, for other tools. An HDR interval log contains histograms of
//! round-trip times. A file in the dns-metrics format of DNS-OARC contains counts and histograms.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use hosts::new_file::NewFile;
use method::records::Counts;
use serde_json::{Value, json};
use tester::client::Connections;
use tester::intervals::{Interval, Intervals};
use units::Nanos;

use crate::output::{Failure, fill, open, rcodes};

/// Version of the dns-metrics schema: the date of the implemented revision of the schema's repository.
const SCHEMA: u64 = 20_230_209;

/// Returns the words of the command line, with TSIG secrets removed.
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

/// Statistics of the queries that were sent, from which the files are written.
pub(crate) struct Load<'a> {
    pub(crate) generator: &'a str,
    pub(crate) timeout: Nanos,
    pub(crate) began: Nanos,
    pub(crate) ended: Nanos,
    pub(crate) counts: &'a Counts,
    pub(crate) intervals: &'a Intervals,
    /// For TCP: the connection counts, and a histogram of the time needed to establish a connection.
    pub(crate) connections: Option<(&'a Connections, &'a Histogram<u64>)>,
}

/// Output files that the user requested. They are opened before the measurement, so that errors are reported early. If
/// [`Files::write`] is not called, no file remains.
pub(crate) struct Files {
    hdr_log: Option<NewFile>,
    json_lines: Option<NewFile>,
}

impl Files {
    /// Opens the files with the statistics of each interval, if the user requested them.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub(crate) fn open(
        hdr_log: Option<&Path>,
        json_lines: Option<&Path>,
    ) -> Result<Files, Failure> {
        Ok(Files { hdr_log: open(hdr_log)?, json_lines: open(json_lines)? })
    }

    /// Writes the requested files. If both files are requested, and one cannot be written, the other is still written.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub(crate) fn write(self, load: &Load<'_>) -> Result<(), Failure> {
        let hdr_log = fill(self.hdr_log, |out| load.write_hdr_log(out));
        let json_lines = fill(self.json_lines, |out| load.write_lines(out));
        hdr_log.and(json_lines)
    }
}

impl Load<'_> {
    fn write_lines(&self, out: &mut NewFile) -> anyhow::Result<()> {
        let lines: String = self.objects().iter().map(|object| format!("{object}\n")).collect();
        Ok(out.write_all(lines.as_bytes())?)
    }

    /// Writes a histogram of round-trip times in µs for each interval, as an HDR interval log.
    fn write_hdr_log(&self, file: &mut NewFile) -> anyhow::Result<()> {
        let mut out = BufWriter::new(file);
        let (mut serializer, start) =
            (V2DeflateSerializer::new(), UNIX_EPOCH + Duration::from_nanos(self.began.0));
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment(&format!(
                "dns64bench {}, round-trip times in microseconds",
                env!("CARGO_PKG_VERSION")
            ))
            .with_start_time(start)
            .with_base_time(start)
            .with_max_value_divisor(1.0)
            .begin_log_with(&mut out, &mut serializer)?;
        let width = Duration::from_nanos(self.intervals.width.0);
        for (i, interval) in self.intervals.list.iter().enumerate() {
            let mut in_us: Histogram<u64> = Histogram::new(3)?;
            for value in interval.rtt.iter_recorded() {
                in_us.record_n(
                    value.value_iterated_to().div_ceil(1_000).max(1),
                    value.count_at_value(),
                )?;
            }
            log.write_histogram(&in_us, width * i as u32, width, None)
                .map_err(|e| anyhow::anyhow!("the histogram cannot be written: {e:?}"))?;
        }
        Ok(out.flush()?)
    }

    /// Returns the JSON objects of an output in DNS-OARC's dns-metrics format: a header, the statistics of each
    /// interval, and the statistics of the whole measurement.
    fn objects(&self) -> Vec<Value> {
        let (width, sum) = (self.intervals.width, self.intervals.sum());
        let id = format!("{}-{}", self.began.0, std::process::id());
        let mut objects = vec![json!({
            "runid": id,
            "type": "header",
            "schema_version": SCHEMA,
            "generator": self.generator,
            "generator_version": env!("CARGO_PKG_VERSION"),
            "generator_params": arguments().skip(1).collect::<Vec<_>>(),
            "time_units_per_sec": Nanos::SECOND.0,
            "stats_interval": width.as_secs_f64(),
            "timeout": self.timeout.as_secs_f64(),
        })];
        for (i, interval) in self.intervals.list.iter().enumerate() {
            let since = self.began.0 + width.0 * i as u64;
            // An interval can begin after the planned end, because queries that are behind schedule are still sent.
            let end = since + width.0;
            let until = if self.ended.0 > since { end.min(self.ended.0) } else { end };
            objects.push(periodic(interval, &id, since, until, self.connections.is_some()));
        }
        objects.push(json!({
            "runid": id,
            "type": "stats_sum",
            "since": self.began.0,
            "until": self.ended.0,
            "sent": { "queries": self.counts.sent },
            "received": { "responses": sum.answered() },
            "timeouts": { "queries": self.counts.lost },
            "unexpected": { "responses": self.counts.stray },
            "response_rcodes": rcodes(&sum.rcodes).collect::<std::collections::BTreeMap<_, _>>(),
            "response_latency": latency(&sum.rtt),
            "conn_info": match self.connections {
                Some((made, took)) => json!({
                    "type": "tcp",
                    "handshakes": made.made,
                    "handshakes_failed": made.failed,
                    "conn_latency": { "handshake": latency(took) }
                }),
                None => json!({ "type": "udp" }),
            },
        }));
        objects
    }
}

fn periodic(interval: &Interval, id: &str, since: u64, until: u64, over_tcp: bool) -> Value {
    let answered = interval.answered();
    json!({
        "runid": id,
        "type": "stats_periodic",
        "since": since,
        "until": until,
        "sent": { "queries": interval.sent },
        "received": { "responses": answered },
        "timeouts": { "queries": interval.sent.saturating_sub(answered) },
        "response_latency": latency(&interval.rtt),
        "conn_info": match over_tcp {
            true => json!({ "type": "tcp", "handshakes": interval.connections }),
            false => json!({ "type": "udp" }),
        },
    })
}

/// Returns the latency statistics in ns; an empty object if the histogram is empty.
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
