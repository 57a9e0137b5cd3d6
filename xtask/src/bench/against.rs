//! `bench tester --against`: compares this checkout's dns64bench with another build. The two builds are measured
//! alternately.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use super::lab::{AUTH, LIMIT, Lab, valid_trial};
use crate::builds::{Build, Wanted, compare};
use crate::process::{self, Server, cpu_seconds};

/// Number of short measurements of each build in a round. Each measurement starts the programs again.
const LOOKS: usize = 4;
/// Duration of a measurement in seconds.
const LOOK: u32 = 1;
/// Rate at which the Measurer's own CPU time is measured.
const RATE: u32 = 50_000;
/// CPUs of the client and of AuthDNS. No other program runs on either CPU.
const CLIENT_CPU: &str = "0";
const AUTH_CPU: &str = "1";

/// Measures replies per second of CPU time for AuthDNS and for the closed-loop client, and queries per second of CPU
/// time for the Measurer at a constant rate. CPU time is independent of the speed of the program at the other end. The
/// programs that are not measured are from this checkout.
pub(crate) fn run(other: &Path, wanted: Wanted) -> Result<ExitCode> {
    let other = other
        .canonicalize()
        .with_context(|| format!("no dns64bench to compare with: {}", other.display()))?;
    let other = other.to_string_lossy().into_owned();
    let lab = Lab::up(process::Build::Release)?;
    let figures = [
        "AuthDNS, replies per CPU second",
        "closed loop, replies per CPU second",
        "Measurer, queries per CPU second",
    ];
    compare(
        figures,
        wanted,
        LOOKS,
        |_| Ok(()),
        |(), build| {
            let theirs = if build == Build::Ours { &lab.program } else { &other };
            Ok([
                closed_loop(&lab, theirs, &lab.program)?.of_server(),
                closed_loop(&lab, &lab.program, theirs)?.of_client(),
                measurer(&lab, theirs)?,
            ])
        },
    )
}

fn auth(lab: &Lab, program: &str) -> Result<Server> {
    lab.serve_authdns(program, &["--cpus", AUTH_CPU])
}

/// Number of replies in a closed loop, and the CPU time in seconds that the loop took at each end.
struct Exchanged {
    replies: f64,
    server: f64,
    client: f64,
}

impl Exchanged {
    fn of_server(&self) -> f64 {
        self.replies / self.server
    }

    fn of_client(&self) -> f64 {
        self.replies / self.client
    }
}

/// Runs one client and one AuthDNS, which exchange single datagrams as fast as they can.
fn closed_loop(lab: &Lab, auth_program: &str, client: &str) -> Result<Exchanged> {
    let auth = auth(lab, auth_program)?;
    let (address, duration) = (format!("{AUTH}:53"), format!("{LOOK}s"));
    let args = [client, "closed-loop", "--server", &address, "--outstanding", "200"];
    let more = ["--names", "0.0.0.0/0", "--aaaa-share", "1", "--offload", "false"];
    let last = ["--cpus", CLIENT_CPU, "--duration", &duration, "--json"];
    let before = cpu_seconds(auth.pid()?)?;
    let (printed, client) = timed(lab, &[&args[..], &more, &last].concat())?;
    let server = cpu_seconds(auth.pid()?)? - before;
    let result: Value = serde_json::from_str(&printed)?;
    let replies = result["valid"].as_f64().with_context(|| printed)?;
    Ok(Exchanged { replies, server, client })
}

/// Returns the number of queries that the Measurer sends per second of its CPU time, in a valid trial. All its threads
/// are included.
fn measurer(lab: &Lab, program: &str) -> Result<f64> {
    let _auth = auth(lab, &lab.program)?;
    let [address, rate, duration] = [format!("{AUTH}:53"), RATE.to_string(), format!("{LOOK}s")];
    let args = [program, "measure", "--server", &address, "--rate", &rate];
    let more = ["--duration", &duration, "--timeout", "250ms", "--names", "0.0.0.0/0"];
    let last = ["--aaaa-share", "1", "--cpus", CLIENT_CPU, "--max-burst", "200us", "--quiet"];
    let mut seconds = f64::NAN;
    let trial = valid_trial(|_| {
        let printed;
        (printed, seconds) = timed(lab, &[&args[..], &more, &last, &["--json"]].concat())?;
        serde_json::from_str(&printed).context(printed)
    })?;
    Ok(trial["sent"].as_f64().context("a trial without queries")? / seconds)
}

/// Runs a program in the tester's namespace and ignores the exit status. Returns the program's output, and its CPU time
/// in seconds as counted by the shell.
fn timed(lab: &Lab, words: &[&str]) -> Result<(String, f64)> {
    let shell = ["bash", "-c", "\"$@\" 2>/dev/null; times", "timed"];
    let ran =
        process::run(&lab.program, &lab.exec("tester", &[&shell[..], words].concat()), LIMIT)?;
    let seconds = children(&ran.stdout)
        .with_context(|| format!("no CPU times: {} {}", ran.stdout, ran.stderr))?;
    let printed = ran.stdout.lines().rev().skip(2).collect::<Vec<_>>();
    Ok((printed.into_iter().rev().collect::<Vec<_>>().join("\n"), seconds))
}

/// Returns the sum of the user and system time of the shell's children, parsed from the last line of `times`: "0m1.234s
/// 0m0.500s".
fn children(times: &str) -> Option<f64> {
    let seconds = |text: &str| {
        let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let mut fields = times.lines().next_back()?.split_whitespace();
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
