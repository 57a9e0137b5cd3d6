//! Clients that send queries to a server in the lab, and the load that they put on the server.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::dut::TESTER_CPU;
use crate::bench::lab::Lab;
use crate::claims::NotDecided;
use crate::process::{Server, cpu_seconds, output, run};
use crate::servers::{DUT, DUT_HOST};

/// Number of queries in flight in a closed loop.
pub(super) const OUTSTANDING: &str = "200";
pub(super) const CACHED_NAMES: u32 = 10_000;
pub(super) const MILLION: u32 = 1_000_000;
/// Duration of a closed loop.
const LOOP: Duration = Duration::from_secs(3);
/// Time limit of a client. The slowest server takes four minutes to answer queries for a million names.
const LIMIT: Duration = Duration::from_secs(600);

/// Answers per second, and the share of a core that the server used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) rate: f64,
    pub(super) cpu: f64,
}

impl Load {
    /// Returns answers per second of the server's CPU time.
    pub(super) fn per_cpu_second(self) -> f64 {
        self.rate / self.cpu
    }

    /// Returns the server's CPU time per answer in microseconds.
    pub(super) fn us_per_answer(self) -> f64 {
        1e6 / self.per_cpu_second()
    }
}

/// Result of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answered {
    pub(super) answers: f64,
    /// Answers per second.
    pub(super) rate: f64,
}

/// Query files for dnsperf.
pub(super) struct Names {
    pub(super) different: String,
    pub(super) cached: String,
}

impl Names {
    pub(super) fn write(folder: &Path) -> Result<Names> {
        let file = |name: &str, first: u32, count: u32| {
            write_names(&folder.join(name), first..first + count)
        };
        Ok(Names {
            different: file("different", 10 << 24, MILLION)?,
            cached: file("cached", 11 << 24, CACHED_NAMES)?,
        })
    }
}

/// Writes queries for the names of these addresses to a file. Returns the path of the file.
pub(super) fn write_names(path: &Path, addresses: impl Iterator<Item = u32>) -> Result<String> {
    let mut text = String::new();
    for address in addresses {
        let [a, b, c, d] = address.to_be_bytes();
        writeln!(text, "{a:03}-{b:03}-{c:03}-{d:03}.dns64perf.test AAAA")?;
    }
    fs::write(path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

pub(super) fn dnsperf(lab: &Lab, server: &Server, file: &str, more: &[&str]) -> Result<Load> {
    let pinned = ["taskset", "-c", TESTER_CPU, "dnsperf", "-s", DUT_HOST, "-d", file];
    let args = [&pinned[..], &["-q", OUTSTANDING, "-c", "1"], more].concat();
    under_load(server, || {
        answered_by_dnsperf(&output(&lab.program, &lab.exec("tester", &args), LIMIT)?)
    })
}

/// Reads the output of dnsperf.
pub(super) fn answered_by_dnsperf(printed: &str) -> Result<Answered> {
    let number = |label: &str| {
        let rest = printed.lines().find_map(|line| line.trim().strip_prefix(label))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let (answers, rate) = (number("Queries completed:"), number("Queries per second:"));
    let of = |(answers, rate)| Answered { answers, rate };
    answers.zip(rate).map(of).with_context(|| printed.to_owned())
}

/// Runs our own client.
pub(super) fn closed_loop(
    lab: &Lab,
    server: &Server,
    names: &[&str],
    offload: &str,
) -> Result<Load> {
    closed_loop_at(DUT, LOOP, lab, server, names, offload)
}

/// Runs our closed loop at another address of the server, for another duration.
pub(super) fn closed_loop_at(
    address: &str,
    time: Duration,
    lab: &Lab,
    server: &Server,
    names: &[&str],
    offload: &str,
) -> Result<Load> {
    let time = format!("{}ms", time.as_millis());
    let args = ["--server", address, "--outstanding", OUTSTANDING];
    let args = [&args[..], names, &["--duration", &time, "--offload", offload]].concat();
    under_load(server, || {
        let result = answers(lab, &args)?;
        let [answers, rate] = ["valid", "qps"].map(|key| result[key].as_f64());
        let of = |(answers, rate)| Answered { answers, rate };
        answers.zip(rate).map(of).context("no rate")
    })
}

/// Runs our closed loop, and returns its result. At most one query in a thousand has no answer.
pub(crate) fn answers(lab: &Lab, more: &[&str]) -> Result<Value> {
    let result = replies(lab, more)?;
    // A query may occasionally be lost because of a full socket buffer, but no answer may be wrong.
    let [sent, valid, lost, dropped] =
        ["sent", "valid", "lost", "client_drops"].map(|key| result[key].as_u64().unwrap_or(0));
    if dropped > 0 {
        bail!(NotDecided(format!("this host dropped {dropped} answers")));
    }
    ensure!(sent == valid + lost && lost * 1000 < sent, "{sent} sent, {valid} valid, {lost} lost");
    Ok(result)
}

/// Runs our closed loop, and returns its result, whatever the replies are.
pub(super) fn replies(lab: &Lab, more: &[&str]) -> Result<Value> {
    let args = [&lab.program, "closed-loop", "--cpus", TESTER_CPU, "--json"];
    let args = lab.exec("tester", &[&args[..], more].concat());
    // The exit status depends on the replies.
    let ran = run(&lab.program, &args, LIMIT)?;
    serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())
}

/// Returns the load on the server while `load` runs. The share of a core is that of the time in which the answers
/// arrived. At its end, a client may also wait several seconds for lost answers.
pub(super) fn under_load(server: &Server, load: impl FnOnce() -> Result<Answered>) -> Result<Load> {
    let before = cpu_seconds(server.pid()?)?;
    let Answered { answers, rate } = load()?;
    let used = cpu_seconds(server.pid()?)? - before;
    Ok(Load { rate, cpu: used * rate / answers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_answers_are_read_from_dnsperf() {
        let printed = "Statistics:\n\n  Queries sent:         30100\n  Queries completed:    30000 (99.67%)\n\
                       \x20 Queries lost:         100 (0.33%)\n\n  Queries per second:   9999.5\n";
        let read = answered_by_dnsperf(printed).unwrap();
        assert_eq!(read, Answered { answers: 30_000.0, rate: 9_999.5 });
        assert!(answered_by_dnsperf("Queries completed: 7\n").is_err());
    }
}
