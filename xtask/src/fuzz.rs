//! `fuzz`: builds the fuzz targets with address sanitizer and runs them.
//!
//! ```text
//! fuzz/corpus/TARGET ─── seeds ──┐
//!                                ▼
//! target/fuzz/corpus/TARGET ◄─► target ─► an input that crashes it ─► fuzz/artifacts/TARGET
//!            │
//!            └─ --keep: the shortest inputs that reach all code ─► fuzz/corpus/TARGET
//! ```
//!
//! By default, only a nightly compiler accepts the flags for address sanitizer and coverage. The stable compiler
//! contains the same code, and is shipped with the sanitizer runtime. `RUSTC_BOOTSTRAP=1` makes the stable compiler
//! accept the flags, so that no second toolchain is needed. The package libfuzzer-sys contains and compiles libFuzzer.

mod corpus;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::corpus::{SANITIZER, options};
use crate::process::{self, root};

/// Compiler flags for fuzz targets: coverage in the format of libFuzzer, and address sanitizer.
const RUSTFLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Cforce-frame-pointers=yes";

/// Options that disable statistics of rare features and the search for shorter inputs, because both take more time than
/// the target itself.
const FUZZER: [&str; 2] = ["-entropic=0", "-reduce_inputs=0"];
/// Number of seconds after which an input that is still being processed counts as a fault.
const SLOWEST: u32 = 25;
/// Number of lines of a target's log that are shown if the target fails.
const SHOWN: usize = 30;

#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// Run only these targets [default: all]
    targets: Vec<String>,
    /// End each target after this number of runs
    #[arg(long, conflicts_with = "time")]
    runs: Option<u64>,
    /// End each target after this number of seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time: u64,
    /// Number of targets that run in parallel [default: number of CPUs]
    #[arg(long)]
    jobs: Option<usize>,
    /// Run one target with one input, such as an input that made it crash
    #[arg(long, value_name = "FILE", conflicts_with_all = ["runs", "time", "keep"])]
    input: Option<PathBuf>,
    /// Add the findings to the corpus of the repository: one short input for each piece of code that the seeds do not
    /// reach
    #[arg(long)]
    keep: bool,
}

/// Result of a target.
struct TargetResult {
    /// Number of runs. All figures are from libFuzzer's last line of statistics.
    runs: u64,
    reached: u64,
    per_second: u64,
    is_good: bool,
}

impl Fuzz {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let targets = self.wanted()?;
        let programs = build()?;
        if let Some(input) = &self.input {
            let [target] = &targets[..] else { bail!("--input is for a single target: name it") };
            let status = Command::new(programs.join(target))
                .arg(input)
                .status()
                .context("cannot run the target")?;
            return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let jobs =
            self.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        let one = |target: String| {
            let row = self.one(&programs, &target);
            (target, row)
        };
        conclude(process::at_the_same_time(jobs, targets.into_iter(), one))
    }

    /// Returns the targets named by the user, or all targets if none is named.
    fn wanted(&self) -> Result<Vec<String>> {
        let all = targets()?;
        if let Some(unknown) = self.targets.iter().find(|target| !all.contains(target)) {
            bail!("no target {unknown}; there are {}", all.join(", "));
        }
        Ok(if self.targets.is_empty() { all } else { self.targets.clone() })
    }

    /// Runs one target, starting from the corpus of the repository and the findings of earlier runs.
    fn one(&self, programs: &Path, target: &str) -> Result<TargetResult> {
        let found = process::target().join("fuzz/corpus").join(target);
        let artifacts = root().join("fuzz/artifacts").join(target);
        for folder in [&found, &artifacts] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let log = process::target().join("fuzz").join(format!("{target}.log"));
        let mut command = Command::new(programs.join(target));
        command.arg(match self.runs {
            Some(runs) => format!("-runs={runs}"),
            None => format!("-max_total_time={}", self.time),
        });
        command.args(FUZZER).args(options(target)?).arg(format!("-timeout={SLOWEST}"));
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.arg(&found).arg(root().join("fuzz/corpus").join(target));
        command.env("ASAN_OPTIONS", SANITIZER).stdin(Stdio::null()).stdout(Stdio::null());
        let status =
            command.stderr(File::create(&log)?).status().context("cannot run the target")?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        if !status.success() {
            let last: Vec<&str> = text.lines().rev().take(SHOWN).collect();
            println!("{target} failed ({status}), the end of {}:", log.display());
            last.iter().rev().for_each(|line| println!("    {line}"));
            println!(
                "{target}: cargo xtask fuzz {target} --input FILE repeats it; FILE is in {}",
                artifacts.display()
            );
        }
        let (runs, reached, per_second) =
            statistics(&text).context("libFuzzer printed no statistics")?;
        if self.keep && status.success() {
            corpus::keep(&programs.join(target), target, &found)?;
        }
        Ok(TargetResult { runs, reached, per_second, is_good: status.success() })
    }
}

/// Prints the result of each target. The status is 1 if a target failed.
fn conclude(mut rows: Vec<(String, Result<TargetResult>)>) -> Result<ExitCode> {
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    println!("{:<16} {:>12} {:>8} {:>8}", "target", "runs", "runs/s", "reached");
    let mut is_good = true;
    for (target, row) in rows {
        let row = row.with_context(|| target.clone())?;
        let verdict = if row.is_good { "" } else { "  FAILED" };
        println!(
            "{:<16} {:>12} {:>8} {:>8}{verdict}",
            target, row.runs, row.per_second, row.reached
        );
        is_good &= row.is_good;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the names of all targets.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in fs::read_dir(root().join("fuzz/fuzz_targets")).context("fuzz/fuzz_targets")? {
        let path = file?.path();
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Builds all targets and returns the folder of their programs.
fn build() -> Result<PathBuf> {
    let (triple, folder) = (process::host()?, process::target().join("fuzz"));
    let mut command = process::build_command(env!("CARGO"));
    command.args(["build", "--quiet", "--locked", "--bins", "--manifest-path", "fuzz/Cargo.toml"]);
    // If a target is given, build scripts and procedural macros are built without the flags.
    command.args(["--target", &triple, "--target-dir"]).arg(&folder).current_dir(root());
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", RUSTFLAGS).env("CARGO_INCREMENTAL", "0");
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "the fuzz targets cannot be built");
    Ok(folder.join(triple).join("debug"))
}

/// Parses the number of runs, the number of code pieces reached, and the runs per second from the last line of
/// statistics in a log of libFuzzer: `#1000 DONE cov: 120 ft: 300 corp: 7/100b lim: 64 exec/s: 500 rss: 40Mb`.
fn statistics(log: &str) -> Option<(u64, u64, u64)> {
    log.lines().rev().find_map(|line| {
        let (runs, rest) = line.strip_prefix('#')?.split_once(['\t', ' '])?;
        let number =
            |key: &str| rest.split_once(key)?.1.split_whitespace().next()?.parse::<u64>().ok();
        Some((runs.parse().ok()?, number("cov: ")?, number("exec/s: ")?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_built_and_has_seeds_and_options() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        let targets = targets().unwrap();
        assert!(targets.len() >= 6, "{targets:?}");
        for target in targets {
            assert!(
                manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")),
                "{target} is not built"
            );
            let seeds = fs::read_dir(root().join("fuzz/corpus").join(&target)).unwrap().count();
            assert!(seeds > 0, "{target} has no seed");
            for option in options(&target).unwrap() {
                let (key, value) =
                    option.split_once('=').unwrap_or_else(|| panic!("{target}: {option}"));
                match key {
                    "-dict" => assert!(Path::new(value).is_file(), "{target}: {value}"),
                    "-max_len" => assert!(value.parse::<usize>().is_ok(), "{target}: {value}"),
                    _ => panic!("{target}: {option} is not an option in use here"),
                }
            }
        }
    }

    #[test]
    fn the_last_line_of_statistics_counts() {
        let log = "INFO: seed\n#2\tINITED cov: 3 ft: 4 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                   #1048576\tpulse  cov: 11 ft: 12 corp: 4/9b lim: 8 exec/s: 524288 rss: 31Mb\n\
                   #2000000\tDONE   cov: 17 ft: 20 corp: 5/11b lim: 8 exec/s: 400000 rss: 31Mb\nDone 2000000 runs in 5 second(s)\n";
        assert_eq!(statistics(log), Some((2_000_000, 17, 400_000)));
        assert_eq!(statistics("== ERROR: libFuzzer: deadly signal\n"), None);
    }
}
