//! `resperf`: increases the query rate linearly, as the original resperf does. The status lines, statistics and plot
//! file are those of the original resperf.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Context;
use hosts::new_file::write_whole;
use report::chart::{Dot, Figure, Series, Shape};
use report::page;
use tester::client::ramp::{self, Bucket, Ending, RampPlan, RampResult, Status};
use units::Nanos;

use crate::args::Resperf;
use crate::interruption;
use crate::intervals::{Files, Load, arguments};
use crate::output::{Failure, INTERRUPTED, Outcome, rcodes, wrong_line};

/// Threshold for a pacing warning: deviation of the send rate from the target rate in an interval, in per cent.
const PACING_PCT: f64 = 1.0;
/// First line of the plot file.
const HEADER: &str = "# time target_qps actual_qps responses_per_sec failures_per_sec avg_latency connections conn_avg_latency";

pub(crate) fn run(args: &Resperf) -> Outcome {
    interruption::install_handlers()?;
    let output = Output::default();
    output.line("DNS Resolution Performance Testing Tool");
    output.line(&format!("Version {}\n", env!("CARGO_PKG_VERSION")));
    let command: Vec<String> =
        arguments().skip_while(|word| word.ends_with("dns64bench")).collect();
    output.line(&format!("[Status] Command line: {}", command.join(" ")));
    let warn = |warning: &str| {
        let line = format!("Warning: {warning}");
        if args.warnings_to_stdout { output.line(&line) } else { eprintln!("{line}") }
    };
    let plan = args.resolve(&warn)?;
    // The plot file is created before any query is sent. If it cannot be written, no traffic is wasted.
    write_plot(&args.plot, &[])?;
    let files = Files::open(args.hdr_log.as_deref(), args.json_lines.as_deref())?;
    output.line("[Status] Sending");
    let result = ramp::run(&plan, &interruption::flag(), &|status| output.status(status))
        .map_err(Failure::environment)?;
    let is_interrupted = result.ending == Ending::Interrupted;
    let complete = if is_interrupted { " (interruption)" } else { "" };
    output.line(&format!("[Status] Testing complete{complete}"));
    output.line(&statistics(args, &result));
    if args.verbose {
        output.line(&details(&result));
    }
    for warning in warnings(&result) {
        warn(&warning);
    }
    write_plot(&args.plot, &result.buckets)?;
    write_intervals(files, &plan, &result)?;
    if args.report {
        report(&result, &output.text())?;
    }
    Ok(if is_interrupted { INTERRUPTED.into() } else { ExitCode::SUCCESS })
}

/// Output that is printed, and collected for `--report`.
#[derive(Default)]
struct Output(Mutex<String>);

impl Output {
    fn line(&self, line: &str) {
        println!("{line}");
        let mut text = self.0.lock().expect("no thread panics while it holds the lock");
        text.push_str(line);
        text.push('\n');
    }

    fn text(&self) -> String {
        self.0.lock().expect("no thread panics while it holds the lock").clone()
    }

    fn status(&self, status: Status) {
        match status {
            Status::Plateau => self.line("[Status] Ramp-up done, sending constant traffic"),
            Status::Ended(ending) => {
                match ending {
                    Ending::Outstanding { queries } => {
                        self.line(&format!("[Status] Reached {queries} outstanding queries"));
                    }
                    Ending::Behind { queries, rate } => {
                        self.line(&format!("[Status] Fell behind by {queries} queries, ending test at {rate:.0} qps"));
                    }
                    Ending::NoMore { rate } => {
                        self.line(&format!(
                            "[Status] Ran out of query data, ending test at {rate:.0} qps"
                        ));
                    }
                    Ending::Interrupted => {
                        self.line("[Status] Interrupted; once more ends it at once");
                    }
                    Ending::Time | Ending::Other => {}
                }
                self.line("[Status] Waiting for more responses");
            }
        }
    }
}

/// Formats a time in seconds with six decimals, like resperf.
fn seconds(time: Nanos) -> String {
    format!("{}.{:06}", time.0 / 1_000_000_000, time.0 / 1_000 % 1_000_000)
}

fn statistics(args: &Resperf, result: &RampResult) -> String {
    let sent = result.tally.counts.sent;
    let completed: u64 = result.tally.rcodes.iter().sum();
    let mut text = String::from("\nStatistics:\n\n");
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {:<21} {value}", format!("{name}:"));
    };
    row("Queries sent", sent.to_string());
    row("Queries completed", completed.to_string());
    row("Queries lost", sent.saturating_sub(completed).to_string());
    let share = |n: u64| n as f64 / completed.max(1) as f64 * 100.0;
    let codes: Vec<String> = rcodes(&result.tally.rcodes)
        .map(|(name, n)| format!("{name} {n} ({:.2}%)", share(n)))
        .collect();
    row("Response codes", codes.join(", "));
    let best = result.best(args.max_loss);
    let rows = [
        ("Run time (s)", seconds(result.total)),
        ("Maximum throughput", format!("{:.6} qps", best.map_or(0.0, |b| b.responses_per_sec))),
        ("Lost at that point", format!("{:.2}%", best.map_or(0.0, |b| b.loss_pct()))),
    ];
    text.push('\n');
    for (name, value) in rows {
        let _ = writeln!(text, "  {:<21} {value}", format!("{name}:"));
    }
    text
}

/// Returns the additional statistics that the option `-v` requests.
fn details(result: &RampResult) -> String {
    let t = &result.tally;
    let us = |ns: u64| ns as f64 / 1e3;
    let late = |q| us(result.lateness.value_at_quantile(q));
    let rtt = |q| us(t.rtt.value_at_quantile(q));
    let mut text = format!(
        "  Sending ended after:  {} s\n  Lateness (us):        {:.0} median, {:.0} p99, {:.0} p99.9, \
         {:.0} max; worst interval off by {:.2}%\n  Latency (us):         {:.0} median, {:.0} p90, \
         {:.0} p99, {:.0} p99.9, {:.0} max\n  Other:                {} late, {} unmatched, {} \
         truncated, {} send errors\n",
        seconds(result.sending),
        late(0.5),
        late(0.99),
        late(0.999),
        us(result.lateness.max()),
        result.worst_pacing_pct(),
        rtt(0.5),
        rtt(0.9),
        rtt(0.99),
        rtt(0.999),
        us(t.rtt.max()),
        t.counts.late,
        t.counts.stray,
        t.truncated,
        t.counts.refused
    );
    if let Some(wrong) = wrong_line(&t.counts.wrong) {
        let _ = writeln!(text, "  Not valid:            {wrong}");
    }
    let k = &t.connections;
    if k.made + k.failed > 0 {
        let mean = if t.connecting.is_empty() { 0.0 } else { t.connecting.mean() / 1e3 };
        let _ = writeln!(
            text,
            "  Connections:          {} made in {mean:.0} us on average, {} failed, {} closed by the server with {} queries in flight",
            k.made, k.failed, k.closed, k.lost_with
        );
    }
    text
}

fn warnings(result: &RampResult) -> Vec<String> {
    let mut warnings = Vec::new();
    let off = result.worst_pacing_pct();
    if off > PACING_PCT {
        warnings.push(format!(
            "in one interval the rate of sent queries was {off:.1} % off the target: this machine did not send evenly"
        ));
    }
    let signature = result.tally.counts.wrong.signature;
    if signature > 0 {
        warnings.push(format!("{signature} replies had no correct signature"));
    }
    if result.tally.client_drops > 0 {
        let n = result.tally.client_drops;
        warnings.push(format!(
            "this machine dropped {n} replies, because its socket buffers were full: raise net.core.rmem_max, or -b"
        ));
    }
    if result.tally.counts.refused > 0 {
        warnings.push(format!("{} send errors", result.tally.counts.refused));
    }
    if result.tally.counts.stray > 0 {
        warnings.push(format!("{} packets matched no query in flight", result.tally.counts.stray));
    }
    warnings
}

fn write_plot(path: &Path, buckets: &[Bucket]) -> Result<(), Failure> {
    let text = plot(buckets);
    if path.is_symlink() || path.exists() && !path.is_file() {
        // A pipe or device, such as /dev/null, must be written to and not replaced by a file.
        let written =
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()));
        return written.map_err(Failure::environment);
    }
    write_whole(path, text.as_bytes()).map_err(Failure::environment)
}

fn plot(buckets: &[Bucket]) -> String {
    let mut text = format!("{HEADER}\n");
    for b in buckets {
        let _ = writeln!(
            text,
            "{:7.3} {:8.2} {:8.2} {:8.2} {:8.2} {:8.6} {:8.2} {:8.6}",
            b.time,
            b.target_qps,
            b.actual_qps,
            b.responses_per_sec,
            b.failures_per_sec,
            b.avg_latency,
            b.connections,
            b.conn_avg_latency
        );
    }
    text
}

fn write_intervals(files: Files, plan: &RampPlan, result: &RampResult) -> Result<(), Failure> {
    let Some(intervals) = &result.tally.intervals else { return Ok(()) };
    let run = Load {
        generator: "dns64bench resperf",
        timeout: plan.settings.timeout,
        began: result.began,
        ended: result.began + result.total,
        counts: &result.tally.counts,
        intervals,
        connections: result.tally.tcp(plan.settings.transport),
    };
    files.write(&run)
}

/// Writes the files that the option `--report` requests. Their names begin with the date and time, like those of
/// resperf-report.
fn report(result: &RampResult, printed: &str) -> Result<(), Failure> {
    let stem = timestamp(result.began);
    let curve = |name: &str, value: fn(&Bucket) -> f64| Series {
        name: name.into(),
        dots: result.buckets.iter().map(|b| Dot::at(b.time, value(b))).collect(),
    };
    let figure = |file: &str, title: &str, y_label: &str, series| Figure {
        file: format!("{stem}.{file}"),
        title: title.into(),
        x_label: "send time, s".into(),
        y_label: y_label.into(),
        shape: Shape::Lines(series),
    };
    let figures = [
        figure(
            "rate",
            "Query, response and failure rate",
            "per second",
            vec![
                curve("queries, target", |b| b.target_qps),
                curve("queries sent", |b| b.actual_qps),
                curve("responses", |b| b.responses_per_sec),
                curve("failures", |b| b.failures_per_sec),
            ],
        ),
        figure("latency", "Latency", "ms", vec![curve("average latency", |b| b.avg_latency * 1e3)]),
    ];
    let write = |name: String, text: &str| {
        write_whole(Path::new(&name), text.as_bytes()).map_err(Failure::environment)
    };
    for figure in &figures {
        write(format!("{}.svg", figure.file), &figure.svg(true))?;
    }
    write(format!("{stem}.output"), printed)?;
    write(format!("{stem}.gnuplot"), &plot(&result.buckets))?;
    let html = format!("{stem}.html");
    write(html.clone(), &page(&format!("Resperf report {stem}"), &figures, printed))?;
    println!("Report: {html}");
    Ok(())
}

/// Formats date and time (UTC) as YYYYmmdd-HHMM.
fn timestamp(moment: Nanos) -> String {
    let now = humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + moment.into()).to_string();
    let digits: String = now.chars().filter(char::is_ascii_digit).collect();
    format!("{}-{}", &digits[..8], &digits[8..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(time: f64, rate: f64) -> Bucket {
        Bucket {
            time,
            width: 0.5,
            target_qps: rate,
            actual_qps: rate,
            responses_per_sec: rate / 2.0,
            failures_per_sec: 1.0,
            avg_latency: 0.00125,
            connections: 0.0,
            conn_avg_latency: 0.0,
        }
    }

    #[test]
    fn the_plot_file_has_the_originals_columns() {
        let text = plot(&[bucket(0.25, 416.5), bucket(0.75, 123_456.789)]);
        assert_eq!(
            text,
            format!(
                "{HEADER}\n  0.250   416.50   416.50   208.25     1.00 0.001250     0.00 0.000000\n  \
                 0.750 123456.79 123456.79 61728.39     1.00 0.001250     0.00 0.000000\n"
            )
        );
    }

    #[test]
    fn names_of_reports_are_date_and_time() {
        assert_eq!(timestamp(Nanos(1_800_000_000 * 1_000_000_000)), "20270115-0800");
    }

    #[test]
    fn times_are_printed_to_the_microsecond() {
        assert_eq!(seconds(Nanos(12_000_345_999)), "12.000345");
    }
}
