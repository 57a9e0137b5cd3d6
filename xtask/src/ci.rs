//! `ci`: the checks for every change (`.ci/run`) and the nightly checks (`--nightly`), in one list, [`CHECKS`].
//!
//! A check is a command. All checks of a tier run, even if one of them fails. A table at the end shows the result and
//! the duration of each check. A check that cannot run is listed with the reason, and never counts as passed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use net::affinity::run_in_background;

use crate::packages::Consent;
use crate::process::{self, Build, git, root};
use crate::{bench, tools, workspace_tests};

/// Schedule of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    /// At every change (`.ci/run`).
    EveryChange,
    /// Once for each issue and before a version is tagged, while nothing else uses the machine.
    Nightly,
}

/// One check of CI.
struct Check {
    /// Name in the table and in `cargo xtask ci NAME`.
    name: &'static str,
    tier: Tier,
    /// Function that runs the check. The argument is true if servers and tools may be installed.
    run: fn(bool) -> Result<Ended>,
    /// True if the check runs at low priority in parallel with the next check.
    beside_next: bool,
}

impl Check {
    const fn every_change(name: &'static str, run: fn(bool) -> Result<Ended>) -> Check {
        Check { name, tier: Tier::EveryChange, run, beside_next: false }
    }

    const fn nightly(name: &'static str, run: fn(bool) -> Result<Ended>) -> Check {
        Check { name, tier: Tier::Nightly, run, beside_next: false }
    }

    /// Makes the check run at low priority in parallel with the next check.
    const fn beside_next(self) -> Check {
        Check { beside_next: true, ..self }
    }
}

/// Result of a check that found no fault.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    /// The check cannot run here; contains the reason.
    NotRun(String),
}

/// All checks, in the order in which they run: cheap checks first. To add a check, add a line. `xtask("WORDS")` runs
/// `cargo xtask WORDS`, and `cargo("WORDS")` runs `cargo WORDS`. Both expect status 0.
const CHECKS: &[Check] = &[
    Check::every_change("format", |_| cargo("fmt --check")),
    // Downloads packages while clippy uses the CPU. This check precedes all tests, because unit tests use the servers'
    // configuration checkers.
    Check::every_change("packages", |install| {
        xtask(if install { "packages --install" } else { "packages" })
    })
    .beside_next(),
    Check::every_change("clippy", |_| cargo("clippy --workspace --all-targets -- -D warnings")),
    Check::every_change("tools", |install| {
        install_tools(install, "cargo-nextest cargo-deny cargo-deb")
    }),
    Check::every_change("deny", |_| deny("bans licenses sources")),
    // Detects an outdated lock file of the fuzz targets at every change, before a nightly build fails because of it.
    Check::every_change("fuzz-lock", |_| cargo("fetch --locked --manifest-path fuzz/Cargo.toml")),
    Check::every_change("documents", |_| xtask("docs")),
    Check::every_change("msrv", |_| oldest_compiler()),
    Check::every_change("build", |_| cargo(Build::Dev.words())),
    Check::every_change("tests", |install| {
        workspace_tests::run(Consent::of(install)).map(|()| Ended::Passed)
    }),
    // The only build with a different profile. It runs in parallel with the interop tests, which mostly wait.
    Check::every_change("release-build", |_| cargo(Build::Release.words())).beside_next(),
    Check::every_change("interop", |_| xtask("interop")),
    Check::every_change("instructions", |_| instructions()),
    Check::every_change("weight", |_| xtask("weight")),
    Check::nightly("advisories", advisories),
    Check::nightly("book", book),
    Check::nightly("fuzz", |_| fuzz()),
    // Runs alone, because two validators and the server use both CPUs for about half an hour.
    Check::nightly("dnssec-fuzz", |_| measured("dnssec-fuzz")),
    Check::nightly("certify", |_| measured("certify --capacities 2154,12345,50000")),
    Check::nightly("soak", |_| measured("soak --duration 60")),
    Check::nightly("qemu", |install| measured(if install { "qemu --install" } else { "qemu" })),
    Check::nightly("interop-all", |_| xtask("interop --all")),
    Check::nightly("versions", |install| {
        measured(if install { "versions --install" } else { "versions" })
    }),
    Check::nightly("bench", |_| measured("bench tester")),
    Check::nightly("bench-dns64", |_| measured("bench dns64")),
];

#[derive(Debug, Args)]
pub(crate) struct Ci {
    /// Run only these checks, of either tier [default: all checks of the tier]
    #[arg(value_parser = PossibleValuesParser::new(CHECKS.iter().map(|check| check.name)))]
    names: Vec<String>,
    /// Run the nightly checks, except those that have already passed at this commit
    #[arg(long, conflicts_with = "names")]
    nightly: bool,
}

impl Ci {
    pub(crate) fn run(&self, install: bool) -> ExitCode {
        let tier = if self.nightly { Tier::Nightly } else { Tier::EveryChange };
        let is_wanted = |check: &&Check| match &self.names[..] {
            [] => check.tier == tier,
            names => names.iter().any(|name| name == check.name),
        };
        let record = NightlyRecord::of_this_commit();
        let (done, wanted): (Vec<&Check>, Vec<&Check>) = CHECKS
            .iter()
            .filter(is_wanted)
            .partition(|check| self.nightly && record.as_ref().is_some_and(|r| r.has(check.name)));
        for check in done {
            println!("{}: already passed at this commit", check.name);
        }
        let start = Instant::now();
        let results = run_all(&wanted, install);
        if let Some(record) = record {
            let passed = |result: &&CheckResult| matches!(result.outcome, Ok(Ended::Passed));
            results.iter().filter(passed).for_each(|result| record.add(result.name));
        }
        conclude(&results, start.elapsed())
    }
}

/// Record of the checks that passed at one commit. There is an empty file in `target/ci/COMMIT` for each of these
/// checks. A nightly run skips the checks, so that it can continue after an interruption.
struct NightlyRecord(PathBuf);

impl NightlyRecord {
    /// Returns the record of the current commit, or `None` if tracked files have been changed since that commit.
    fn of_this_commit() -> Option<NightlyRecord> {
        process::is_committed().ok().filter(|&is_committed| is_committed)?;
        let commit = git(&["rev-parse", "HEAD"]).ok()?;
        Some(NightlyRecord(process::target().join("ci").join(commit)))
    }

    fn has(&self, check: &str) -> bool {
        self.0.join(check).is_file()
    }

    fn add(&self, check: &str) {
        // An error is ignored, because without the file the check is merely repeated.
        let _ = fs::create_dir_all(&self.0).and_then(|()| fs::write(self.0.join(check), ""));
    }
}

/// Runs the checks, and returns their results in the same order. A check that runs in parallel with the next check must
/// end before the check after the next one begins.
fn run_all(checks: &[&Check], install: bool) -> Vec<CheckResult> {
    let Some((first, rest)) = checks.split_first() else { return Vec::new() };
    let run = |check| CheckResult::of(check, install);
    let (mut results, rest) = match rest.split_first() {
        Some((next, rest)) if first.beside_next => thread::scope(|scope| {
            let beside = scope.spawn(|| {
                run_in_background(&[]);
                run(first)
            });
            let next = run(next);
            (vec![beside.join().expect("a check returns its errors"), next], rest)
        }),
        _ => (vec![run(first)], rest),
    };
    results.extend(run_all(rest, install));
    results
}

/// Result of one check.
struct CheckResult {
    name: &'static str,
    outcome: Result<Ended>,
    took: Duration,
}

impl CheckResult {
    /// Runs a check.
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
            Ok(Ended::NotRun(reason)) => write!(f, "NOT RUN: {reason}"),
            Err(error) => write!(f, "FAILED: {error:#}"),
        }
    }
}

/// Prints the table. The status is 1 if a check failed.
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

/// Runs `cargo WORDS`.
fn cargo(words: &str) -> Result<Ended> {
    run(process::build_command(env!("CARGO")).args(words.split(' ')), words)
}

/// Runs `cargo xtask WORDS` in a separate process, so that its CPU affinity and mounts end with it.
fn xtask(words: &str) -> Result<Ended> {
    run(&mut this_program(words)?, words)
}

/// Runs `cargo xtask WORDS`, a measurement. Status 3 means that this machine invalidated the measurement or cannot run
/// it. In this case, the measurement is repeated once.
fn measured(words: &str) -> Result<Ended> {
    spoilable(&mut this_program(words)?, words)
}

/// Status of an invalidated measurement.
const INVALID: i32 = 3;
/// Maximum number of attempts if the machine invalidates a measurement.
const ATTEMPTS: usize = 2;

/// Returns a command that runs this program with the given arguments.
fn this_program(words: &str) -> Result<Command> {
    let mut command = Command::new(process::this_program()?);
    command.args(words.split(' '));
    Ok(command)
}

/// Runs a measurement; see [`measured`].
fn spoilable(command: &mut Command, words: &str) -> Result<Ended> {
    for attempt in 1..=ATTEMPTS {
        match status_of(command, words)? {
            status if status.code() == Some(INVALID) => {
                println!("{words}: status {INVALID}, attempt {attempt} of {ATTEMPTS}");
            }
            status => return passed(status, words),
        }
    }
    Ok(Ended::NotRun(format!("status {INVALID} in {ATTEMPTS} attempts; the reason is above")))
}

/// Runs a check that passes only if its status is 0.
fn run(command: &mut Command, words: &str) -> Result<Ended> {
    passed(status_of(command, words)?, words)
}

fn status_of(command: &mut Command, words: &str) -> Result<ExitStatus> {
    let status = command.current_dir(root()).stdin(Stdio::null()).status();
    status.with_context(|| format!("cannot run {words}"))
}

fn passed(status: ExitStatus, words: &str) -> Result<Ended> {
    ensure!(status.success(), "{words}: {status}");
    Ok(Ended::Passed)
}

/// Installs tools that checks need, if installing is allowed.
fn install_tools(install: bool, names: &str) -> Result<Ended> {
    if Consent::of(install) != Consent::Given {
        return Ok(Ended::NotRun("installing is not allowed (--install)".into()));
    }
    xtask(&format!("tools {names}"))
}

/// Compares the instructions per query with the recorded counts.
fn instructions() -> Result<Ended> {
    match bench::instructions::not_run_because() {
        Some(reason) => Ok(Ended::NotRun(reason.into())),
        None => xtask("bench instructions"),
    }
}

/// Builds the book.
fn book(install: bool) -> Result<Ended> {
    match tools::locate("mdbook") {
        Some(_) => xtask("docs"),
        None if install => xtask("docs --install"),
        None => Ok(Ended::NotRun("mdbook is not installed (cargo xtask docs --install)".into())),
    }
}

/// Runs all fuzz targets for a minute each. libFuzzer needs a C++ compiler.
fn fuzz() -> Result<Ended> {
    if process::find("c++").is_none() && !Consent::in_ci() {
        return Ok(Ended::NotRun("there is no c++ (Debian package g++)".into()));
    }
    xtask("fuzz --time 60")
}

/// Runs `cargo deny check WORDS`, without network access.
fn deny(words: &str) -> Result<Ended> {
    let program = match tools::locate("cargo-deny") {
        Some(program) => program,
        // In CI, the check `tools` has installed cargo-deny.
        None if Consent::in_ci() => anyhow::bail!("cargo-deny is not installed"),
        None => return Ok(Ended::NotRun("cargo-deny is not installed (cargo xtask tools)".into())),
    };
    run(Command::new(program).args(["--log-level", "error", "check"]).args(words.split(' ')), words)
}

/// Compiles the workspace with the oldest compiler that Cargo.toml allows. If the installed compiler is that version,
/// the other checks are sufficient. Otherwise, that version must be available in rustup.
fn oldest_compiler() -> Result<Ended> {
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = process::output(rustc, &["--version"], Duration::from_secs(60))?;
    if is_release(&version, wanted) {
        return Ok(Ended::Passed);
    }
    let toolchain = format!("+{wanted}");
    let exists = Command::new("cargo").args([&toolchain, "--version"]).output();
    if !exists.is_ok_and(|ran| ran.status.success()) {
        return Ok(Ended::NotRun(format!("rustup has no Rust {wanted}")));
    }
    let words = ["check", "--workspace", "--all-targets", "--locked"];
    run(Command::new("cargo").arg(toolchain).args(words), "check with the oldest compiler")
}

/// True if a line of `rustc --version` names the release `wanted`, such as 1.95.
fn is_release(line: &str, wanted: &str) -> bool {
    let version = line.split_whitespace().nth(1).unwrap_or_default();
    version.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Checks dependencies for known vulnerabilities. The database of vulnerabilities is a repository on the web, which not
/// every machine can reach.
fn advisories(install: bool) -> Result<Ended> {
    install_tools(install, "cargo-deny")?;
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
    let stderr = String::from_utf8_lossy(&fetched.stderr);
    let reason = stderr.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    Ok(Ended::NotRun(format!("the database cannot be fetched: {reason}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn result(outcome: Result<Ended>) -> CheckResult {
        CheckResult { name: "x", outcome, took: Duration::from_secs(61) }
    }

    #[test]
    fn one_failed_check_fails_the_run() {
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
    fn parallel_check_ends_before_the_one_after_next() {
        static ENDED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        fn ended(name: &'static str) -> Result<Ended> {
            ENDED.lock().unwrap().push(name);
            Ok(Ended::Passed)
        }
        let checks = [
            Check::every_change("a", |_| ended("a")),
            Check::every_change("b", |_| {
                while !ENDED.lock().unwrap().contains(&"c") {
                    thread::yield_now();
                }
                ended("b")
            })
            .beside_next(),
            Check::every_change("c", |_| ended("c")),
            Check::every_change("d", |_| ended("d")),
            // No check follows this one.
            Check::every_change("e", |_| ended("e")).beside_next(),
        ];
        let results = run_all(&checks.iter().collect::<Vec<_>>(), false);
        assert_eq!(results.iter().map(|result| result.name).collect::<String>(), "abcde");
        assert_eq!(*ENDED.lock().unwrap(), ["a", "c", "b", "d", "e"]);
    }

    #[test]
    fn names_are_unique_and_both_tiers_have_checks() {
        let mut names: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
        for tier in [Tier::EveryChange, Tier::Nightly] {
            assert!(CHECKS.iter().any(|check| check.tier == tier), "{tier:?}");
        }
    }

    #[test]
    fn other_releases_are_not_the_oldest_compiler() {
        let of = |says: &str| is_release(says, "1.95");
        assert!(of("rustc 1.95.0 (f2d3ce0bd 2026-03-21)") && of("rustc 1.95"));
        assert!(!of("rustc 1.96.1 (0 2026-05-01)") && !of("rustc 1.9.5 (0 2016-05-01)") && !of(""));
    }

    #[test]
    fn a_failed_command_is_a_failed_check() {
        assert_eq!(run(&mut Command::new("true"), "true").unwrap(), Ended::Passed);
        assert!(run(&mut Command::new("false"), "false").is_err());
        let ended = |code: &str| spoilable(Command::new("sh").args(["-c", code]), "sh");
        assert_eq!(ended("exit 0").unwrap(), Ended::Passed);
        assert!(matches!(ended("exit 3").unwrap(), Ended::NotRun(_)) && ended("exit 1").is_err());
        // If the first attempt is invalidated, the second attempt decides.
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
