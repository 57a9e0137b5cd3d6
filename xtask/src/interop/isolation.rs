//! Processes of the tests. Each test is a process of this program. If run as root, it has separate namespaces (mounts,
//! network, processes), so that parallel tests share no ports, labs or `/proc`. No process outlives its test.
//!
//! ```text
//! scheduler ─► timeout ─► unshare ─► sh (process 1) ─► xtask interop NAME --inside PROGRAM
//!     ▲                                                     │ status, details, reason
//!     └─────────────────────────────────────────────────────┘
//! ```

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Error, Result};

use super::harness::Bench;
use super::tally::Skipped;
use super::test::Test;
use crate::packages::is_root;
use crate::process;

/// Exit status of a skipped test, as in Automake. The reason is the last line of the test's standard error.
const SKIPPED: u8 = 77;
/// Time limit of a test. A test that exceeds the limit is killed together with all processes that it started.
const LIMIT: Duration = Duration::from_secs(900);
/// Shell script that runs as process 1 of a test. It sets up loopback and an empty folder for named namespaces, and
/// reaps orphans until the test ends. Because of the dummy address (RFC 7600), getaddrinfo returns IPv4 addresses,
/// which Slurm needs.
const INIT: &str = "ip link set lo up; ip address add 192.0.0.8/32 dev lo; mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && \
                    \"$@\"; exit $?";

/// True if tests can have separate namespaces here.
pub(super) fn is_possible() -> bool {
    is_root()
        && process::run("unshare", &["--mount", "--net", "--pid", "--fork", "true"], LIMIT)
            .is_ok_and(|ran| ran.status == Some(0))
}

/// Runs a test in a separate process, with separate namespaces if `isolated` is true. Returns the details that the test
/// printed, and its result.
pub(super) fn run(test: &Test, program: &Path, isolated: bool) -> (String, Result<()>) {
    match run_process(test, program, isolated) {
        Ok((details, outcome)) => (details, outcome),
        Err(error) => (String::new(), Err(error)),
    }
}

fn run_process(test: &Test, program: &Path, isolated: bool) -> Result<(String, Result<()>)> {
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--signal=KILL", &LIMIT.as_secs().to_string()]);
    if isolated {
        command.args(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args((!test.downloads).then_some("--net"));
        command.args(["sh", "-c", INIT, "sh"]);
    }
    command.arg(process::this_program()?);
    command.args(["interop", test.name, "--inside"]).arg(program);
    let ended = command.stdin(Stdio::null()).output();
    let ended = ended.context("cannot run timeout (Debian package coreutils)")?;
    let [details, said] =
        [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let outcome = match ended.status.code() {
        Some(0) => Ok(()),
        Some(code) if code == i32::from(SKIPPED) => {
            let reason = said.lines().next_back().unwrap_or("no reason was given");
            Err(Skipped(reason.to_owned()).into())
        }
        _ => Err(Error::msg(format!("{}: {}", ended.status, said.trim()))),
    };
    Ok((details, outcome))
}

/// Runs a test in this process, for [`run`].
pub(super) fn run_here(test: &Test, program: &Path) -> Result<ExitCode> {
    let bench = Bench::new(program)?;
    Ok(match (test.run)(&bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Skipped>() => {
            eprintln!("{error:#}");
            ExitCode::from(SKIPPED)
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    })
}
