//! `ci`: everything that must hold before a change lands. [`CHECKS`] is the list; `.ci/run` runs
//! all of it.
//!
//! A check is a command. All of them run, whatever becomes of the others, and a table at the end
//! says how each ended and how long it took. What could not run is listed with the reason and is
//! never counted as passed.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use net::affinity::stand_back;

use crate::packages::{self, Consent};
use crate::process::{self, root};
use crate::{servers, tools};

/// One thing that CI checks.
struct Check {
    /// What the table, and `cargo xtask ci NAME`, call it.
    name: &'static str,
    /// Carries it out; whether it may install servers and clients.
    run: fn(bool) -> Result<Ended>,
    /// Whether it runs beside the check that follows it, with what that leaves of the CPUs.
    stands_back: bool,
}

impl Check {
    /// A check that has the machine for itself.
    const fn new(name: &'static str, run: fn(bool) -> Result<Ended>) -> Check {
        Check { name, run, stands_back: false }
    }

    /// A check that runs beside the one that follows it.
    const fn beside_next(name: &'static str, run: fn(bool) -> Result<Ended>) -> Check {
        Check { name, run, stands_back: true }
    }
}

/// How a check ended that found nothing wrong.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    /// It could not be carried out here; why.
    NotRun(String),
}

/// All checks, in the order in which they run: what is cheap comes first, and nothing heavy runs
/// beside a measurement. A new check is a line: `xtask("WORDS")` runs `cargo xtask WORDS`,
/// `cargo("WORDS")` runs cargo. Both want status 0.
const CHECKS: &[Check] = &[
    Check::new("format", |_| cargo("fmt --check")),
    // Before any test, so that unit tests find the checkers of the servers.
    Check::new("packages", |install| {
        xtask(if install { "packages --install" } else { "packages" })
    }),
    Check::new("tools", |_| xtask("tools --ci")),
    Check::new("deny", |_| deny("bans licenses sources")),
    Check::new("advisories", |_| advisories()),
    Check::new("documents", |_| xtask("docs --install")),
    Check::new("msrv", |_| oldest_compiler()),
    Check::new("clippy", |_| cargo(&clippy())),
    // The tests wait more than they compute.
    Check::beside_next("fuzz", |_| fuzz()),
    Check::new("tests", |_| workspace_tests().map(|()| Ended::Passed)),
    // What the checks after it measure with, and `cargo xtask` again for each of them; here, so that
    // its time is told on its own.
    Check::new("release-build", |_| cargo(&process::release_build().join(" "))),
    Check::new("certify", |_| measured("certify --capacities 2154,12345,50000")),
    Check::new("soak", |_| measured("soak --duration 60")),
    Check::new("interop", |_| xtask("interop")),
];

#[derive(Debug, Args)]
pub(crate) struct Ci {
    /// Only these checks; without any, all of them
    #[arg(value_parser = PossibleValuesParser::new(CHECKS.iter().map(|check| check.name)))]
    names: Vec<String>,
}

impl Ci {
    pub(crate) fn run(&self, install: bool) -> ExitCode {
        let is_wanted = |check: &&Check| {
            self.names.is_empty() || self.names.iter().any(|name| name == check.name)
        };
        let wanted: Vec<&Check> = CHECKS.iter().filter(is_wanted).collect();
        let start = Instant::now();
        let results = all_of(&wanted, install);
        conclude(&results, start.elapsed())
    }
}

/// Carries the checks out; their results in the same order. One that stands back has ended before
/// the second check after it begins.
fn all_of(checks: &[&Check], install: bool) -> Vec<CheckResult> {
    let Some((first, rest)) = checks.split_first() else { return Vec::new() };
    let of = |check| CheckResult::of(check, install);
    let (mut results, rest) = match rest.split_first() {
        Some((next, rest)) if first.stands_back => thread::scope(|scope| {
            let behind = scope.spawn(|| {
                stand_back(&[]);
                of(first)
            });
            let next = of(next);
            (vec![behind.join().expect("a check fails, and does not panic"), next], rest)
        }),
        _ => (vec![of(first)], rest),
    };
    results.extend(all_of(rest, install));
    results
}

/// What became of a check.
struct CheckResult {
    name: &'static str,
    outcome: Result<Ended>,
    took: Duration,
}

impl CheckResult {
    /// Carries the check out.
    fn of(check: &Check, install: bool) -> CheckResult {
        println!("\n=== {}", check.name);
        let start = Instant::now();
        let outcome = (check.run)(install);
        let result = CheckResult { name: check.name, outcome, took: start.elapsed() };
        println!("=== {result}");
        result
    }
}

impl std::fmt::Display for CheckResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, seconds) = (self.name, self.took.as_secs());
        write!(f, "{name:<14} {:>3} min {:>2} s  ", seconds / 60, seconds % 60)?;
        match &self.outcome {
            Ok(Ended::Passed) => write!(f, "passed"),
            Ok(Ended::NotRun(why)) => write!(f, "NOT RUN: {why}"),
            Err(error) => write!(f, "FAILED: {error:#}"),
        }
    }
}

/// Prints the table; a check that failed makes the status 1.
fn conclude(results: &[CheckResult], took: Duration) -> ExitCode {
    println!("\n=== All checks");
    results.iter().for_each(|result| println!("{result}"));
    let seconds = took.as_secs();
    println!("{:<14} {:>3} min {:>2} s", "all", seconds / 60, seconds % 60);
    let count = |is: fn(&CheckResult) -> bool| results.iter().filter(|result| is(result)).count();
    let failed = count(|result| result.outcome.is_err());
    let passed = count(|result| matches!(result.outcome, Ok(Ended::Passed)));
    println!("{passed} passed, {failed} failed, {} skipped", results.len() - passed - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The words for clippy. In CI what compilers run, such as build scripts and procedural macros, is
/// that of the release build, which all checks share: see `process::build_settings`.
fn clippy() -> String {
    let profile = if Consent::in_ci() { "--release " } else { "" };
    format!("clippy {profile}--workspace --all-targets -- -D warnings")
}

/// `cargo WORDS`.
fn cargo(words: &str) -> Result<Ended> {
    run(Command::new(env!("CARGO")).args(words.split(' ')), words)
}

/// `cargo xtask WORDS`, in a process of its own: what it pins or mounts ends with it.
fn xtask(words: &str) -> Result<Ended> {
    run(&mut ourselves(words)?, words)
}

/// `cargo xtask WORDS`, a measurement: status 3 says that this machine spoiled it, which is neither
/// a pass nor a failure. It gets a second chance then.
fn measured(words: &str) -> Result<Ended> {
    spoilable(&mut ourselves(words)?, words)
}

/// The status of a measurement that this machine spoiled.
const SPOILED: i32 = 3;
/// How often a measurement is carried out that the machine spoils.
const CHANCES: usize = 2;

/// This program with other words.
fn ourselves(words: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("where is xtask?")?);
    command.args(words.split(' '));
    Ok(command)
}

/// Runs a measurement; see [`measured`].
fn spoilable(command: &mut Command, words: &str) -> Result<Ended> {
    for chance in 1..=CHANCES {
        match status_of(command, words)? {
            status if status.code() == Some(SPOILED) => {
                println!("{words}: this machine spoiled it, {chance} of {CHANCES} times");
            }
            status => return passed(status, words),
        }
    }
    Ok(Ended::NotRun(format!("this machine spoiled the measurement {CHANCES} times")))
}

/// Runs a check that is passed with status 0 only.
fn run(command: &mut Command, words: &str) -> Result<Ended> {
    passed(status_of(command, words)?, words)
}

fn status_of(command: &mut Command, words: &str) -> Result<ExitStatus> {
    command.envs(process::build_settings());
    let status = command.current_dir(root()).stdin(Stdio::null()).status();
    status.with_context(|| format!("cannot run {words}"))
}

fn passed(status: ExitStatus, words: &str) -> Result<Ended> {
    ensure!(status.success(), "{words}: {status}");
    Ok(Ended::Passed)
}

/// The workspace's tests. Those that hold files against a server's own checker must run where the
/// server is installed, and in CI, as root on Debian, those that need root.
pub(crate) fn workspace_tests() -> Result<()> {
    let mut variables = vec![("DNS64BENCH_MUST_CHECK", servers::installed())];
    if Consent::in_ci() && packages::can_install() {
        variables.push(("DNS64BENCH_MUST_RUN", "1".to_owned()));
    }
    let words: &[&str] = if Consent::in_ci() {
        // One build for tests and programs: see `process::build_settings`.
        &["test", "--release", "--workspace", "--no-fail-fast", "--quiet"]
    } else {
        &["test", "--workspace", "--no-fail-fast", "--quiet"]
    };
    let skipped = process::target().join("skipped-tests");
    let _ = fs::remove_file(&skipped);
    variables.push(("DNS64BENCH_SKIPPED", skipped.display().to_string()));
    let tested = process::cargo_with(words, &variables);
    list_skipped(&fs::read_to_string(&skipped).unwrap_or_default());
    tested
}

/// Lists the tests that did not run, by the lines that they have left.
fn list_skipped(lines: &str) {
    let lines: BTreeSet<&str> = lines.lines().collect();
    if !lines.is_empty() {
        println!("\nTests of the workspace, or parts of them, that did not run on this machine:");
        lines.iter().for_each(|line| println!("  {line}"));
    }
}

/// Each fuzz target for a minute. libFuzzer is compiled for it, which takes a compiler of C++.
fn fuzz() -> Result<Ended> {
    if process::find("c++").is_none() && !Consent::in_ci() {
        return Ok(Ended::NotRun("there is no c++ (Debian package g++)".into()));
    }
    xtask("fuzz --time 60")
}

/// `cargo deny check WORDS`, without asking the network for anything that is here already.
fn deny(words: &str) -> Result<Ended> {
    let program = match tools::locate("cargo-deny") {
        Some(program) => program,
        // In CI its installation was a check of its own.
        None if Consent::in_ci() => anyhow::bail!("cargo-deny is not installed"),
        None => return Ok(Ended::NotRun("cargo-deny is not installed (cargo xtask tools)".into())),
    };
    run(Command::new(program).args(["--log-level", "error", "check"]).args(words.split(' ')), words)
}

/// Whether the oldest compiler that Cargo.toml allows compiles it. Where that is the one that is
/// installed, the other checks show it; otherwise rustup must have it.
fn oldest_compiler() -> Result<Ended> {
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = process::output(rustc, &["--version"], Duration::from_secs(60))?;
    if is_release(&said, wanted) {
        return Ok(Ended::Passed);
    }
    let toolchain = format!("+{wanted}");
    let has_it = Command::new("cargo").args([&toolchain, "--version"]).output();
    if !has_it.is_ok_and(|ran| ran.status.success()) {
        return Ok(Ended::NotRun(format!("rustup has no Rust {wanted}")));
    }
    let words = ["check", "--workspace", "--all-targets", "--locked"];
    run(Command::new("cargo").arg(toolchain).args(words), "check with the oldest compiler")
}

/// Whether what `rustc --version` says is of the release `wanted`, such as 1.95.
fn is_release(says: &str, wanted: &str) -> bool {
    let version = says.split_whitespace().nth(1).unwrap_or_default();
    version.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Known faults of dependencies. Their list is a repository on the web, which not every machine
/// reaches.
fn advisories() -> Result<Ended> {
    let Some(program) = tools::locate("cargo-deny") else {
        return Ok(Ended::NotRun("cargo-deny is not installed (cargo xtask tools)".into()));
    };
    let fetched = Command::new(program)
        .args(["fetch", "db"])
        .current_dir(root())
        .output()
        .context("cargo deny")?;
    if fetched.status.success() {
        return deny("advisories");
    }
    let said = String::from_utf8_lossy(&fetched.stderr);
    let reason = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    Ok(Ended::NotRun(format!("their database cannot be had: {reason}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn result(outcome: Result<Ended>) -> CheckResult {
        CheckResult { name: "x", outcome, took: Duration::from_secs(61) }
    }

    #[test]
    fn a_check_that_failed_fails_all_and_one_that_did_not_run_says_why() {
        let is_success = |results: &[CheckResult]| {
            format!("{:?}", conclude(results, Duration::ZERO)) == format!("{:?}", ExitCode::SUCCESS)
        };
        assert!(is_success(&[
            result(Ok(Ended::Passed)),
            result(Ok(Ended::NotRun("no network".into())))
        ]));
        assert!(!is_success(&[result(Ok(Ended::Passed)), result(Err(anyhow::anyhow!("wrong")))]));
        assert_eq!(
            result(Ok(Ended::NotRun("no network".into()))).to_string(),
            "x                1 min  1 s  NOT RUN: no network"
        );
    }

    #[test]
    fn a_check_that_stands_back_ends_before_the_second_one_after_it() {
        static ENDED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        fn ended(name: &'static str) -> Result<Ended> {
            ENDED.lock().unwrap().push(name);
            Ok(Ended::Passed)
        }
        let checks = [
            Check::new("a", |_| ended("a")),
            // It ends after the one that it runs beside.
            Check::beside_next("b", |_| {
                while !ENDED.lock().unwrap().contains(&"c") {
                    thread::yield_now();
                }
                ended("b")
            }),
            Check::new("c", |_| ended("c")),
            Check::new("d", |_| ended("d")),
            // Nothing follows it.
            Check::beside_next("e", |_| ended("e")),
        ];
        let results = all_of(&checks.iter().collect::<Vec<_>>(), false);
        assert_eq!(results.iter().map(|result| result.name).collect::<String>(), "abcde");
        assert_eq!(*ENDED.lock().unwrap(), ["a", "c", "b", "d", "e"]);
    }

    #[test]
    fn another_release_of_the_compiler_is_not_the_oldest_one() {
        let of = |says: &str| is_release(says, "1.95");
        assert!(of("rustc 1.95.0 (f2d3ce0bd 2026-03-21)") && of("rustc 1.95"));
        assert!(!of("rustc 1.96.1 (0 2026-05-01)") && !of("rustc 1.9.5 (0 2016-05-01)") && !of(""));
    }

    #[test]
    fn a_command_that_fails_is_no_check_that_passed() {
        assert_eq!(run(&mut Command::new("true"), "true").unwrap(), Ended::Passed);
        assert!(run(&mut Command::new("false"), "false").is_err());
        let ended = |code: &str| spoilable(Command::new("sh").args(["-c", code]), "sh");
        assert_eq!(ended("exit 0").unwrap(), Ended::Passed);
        assert!(matches!(ended("exit 3").unwrap(), Ended::NotRun(_)) && ended("exit 1").is_err());
        // Once spoiled, then passed, and once spoiled, then failed: the second time counts.
        let folder = tempfile::tempdir().unwrap();
        let second = |then: &str| {
            let file = folder.path().join(then).display().to_string();
            ended(&format!("test -e {file} && exit {then}; touch {file}; exit 3"))
        };
        assert_eq!(second("0").unwrap(), Ended::Passed);
        assert!(second("1").is_err());
        assert!(run(&mut Command::new("no-such-program-anywhere"), "").is_err());
    }
}
