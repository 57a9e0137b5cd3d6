//! `bench tester --against`: this checkout's dns64bench and another build of it, in turn.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{AUTH, LIMIT, Lab};
use crate::builds::{Build, compare};
use crate::process::{self, Server, output};

/// The rate at which the Measurer's own CPU time is looked at.
const RATE: &str = "50000";

/// Measures AuthDNS's replies per second, the closed-loop client's, and queries per second of CPU
/// time that the Measurer takes at a constant rate; what is not measured is this checkout's.
pub(crate) fn run(other: &Path, at_least: f64) -> Result<ExitCode> {
    let other = other
        .canonicalize()
        .with_context(|| format!("no dns64bench to measure against: {}", other.display()))?;
    let other = other.to_string_lossy().into_owned();
    let lab = Lab::up()?;
    let figures = [
        "AuthDNS, replies per second",
        "closed loop, replies per second",
        "Measurer, queries per CPU second",
    ];
    compare(figures, at_least, 1, |build, _| {
        let theirs = if build == Build::Ours { &lab.program } else { &other };
        Ok([
            closed_loop(&lab, theirs, &lab.program)?,
            closed_loop(&lab, &lab.program, theirs)?,
            measurer(&lab, theirs)?,
        ])
    })
}

fn auth(lab: &Lab, program: &str) -> Result<Server> {
    lab.serve_authdns(program, &["--cpus", "1"])
}

/// Replies per second of one client on CPU 0 from one AuthDNS on CPU 1, of single datagrams.
fn closed_loop(lab: &Lab, auth_program: &str, client: &str) -> Result<f64> {
    let _auth = auth(lab, auth_program)?;
    let address = format!("{AUTH}:53");
    let args = [
        client,
        "closed-loop",
        "--server",
        &address,
        "--outstanding",
        "200",
        "--cpus",
        "0",
        "--duration",
        "3s",
    ];
    let more = ["--names", "0.0.0.0/0", "--aaaa-share", "1", "--offload", "false", "--json"];
    let printed = output(&lab.program, &lab.exec("tester", &[&args[..], &more].concat()), LIMIT)?;
    let result: Value = serde_json::from_str(&printed)?;
    result["qps"].as_f64().with_context(|| printed)
}

/// Queries per second of CPU time of the whole program, as the shell counts its children's time.
fn measurer(lab: &Lab, program: &str) -> Result<f64> {
    let _auth = auth(lab, &lab.program)?;
    let address = format!("{AUTH}:53");
    let timed = [
        "bash",
        "-c",
        "\"$@\" >/dev/null 2>&1; times",
        "timed",
        program,
        "measure",
        "--server",
        &address,
    ];
    let more = [
        "--rate",
        RATE,
        "--duration",
        "3s",
        "--timeout",
        "250ms",
        "--names",
        "0.0.0.0/0",
        "--aaaa-share",
        "1",
    ];
    let args =
        [&timed[..], &more, &["--cpus", "0", "--max-burst", "200us", "--json", "--quiet"]].concat();
    let ran = process::run(&lab.program, &lab.exec("tester", &args), LIMIT)?;
    let seconds = children(&ran.stdout)
        .with_context(|| format!("no CPU times: {} {}", ran.stdout, ran.stderr))?;
    Ok(RATE.parse::<f64>()? * 3.0 / seconds)
}

/// User and system time of the shell's children, the second line of `times`: "0m1.234s 0m0.500s".
fn children(times: &str) -> Option<f64> {
    let seconds = |text: &str| {
        let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let mut fields = times.lines().nth(1)?.split_whitespace();
    Some(seconds(fields.next()?)? + seconds(fields.next()?)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_shells_times() {
        let times = "0m0.001s 0m0.002s\n1m1.250s 0m0.500s\n";
        assert_eq!(super::children(times), Some(61.75));
        assert_eq!(super::children("nothing"), None);
    }
}
