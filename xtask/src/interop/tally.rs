//! What became of the tests. A test that did not run is named with the reason and never counted as
//! passed.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

/// Names of the tests that must pass where CI runs as root on Debian, one a line.
const REQUIRED: &str = include_str!("../../required-tests.txt");

/// Before the name of a test that CI cannot run.
const OPTIONAL: &str = "optional ";

fn listed() -> impl Iterator<Item = &'static str> {
    REQUIRED.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The tests that must pass in CI.
pub(super) fn required() -> impl Iterator<Item = &'static str> {
    listed().filter(|line| !line.starts_with(OPTIONAL))
}

/// The tests that need what CI cannot install.
#[cfg(test)]
pub(super) fn optional() -> impl Iterator<Item = &'static str> {
    listed().filter_map(|line| line.strip_prefix(OPTIONAL))
}

/// This machine cannot run the test: why.
#[derive(Debug)]
pub(super) struct Skipped(pub(super) String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// Counts tests, and keeps what did not run.
#[derive(Default)]
pub(super) struct Tally {
    passed: Vec<&'static str>,
    failed: usize,
    skipped: Vec<(&'static str, String)>,
}

impl Tally {
    /// Notes and prints how a test ended, and how long it took.
    pub(super) fn add(&mut self, name: &'static str, outcome: &Result<()>, took: Duration) {
        let seconds = took.as_secs();
        match outcome {
            Ok(()) => {
                self.passed.push(name);
                println!("passed  {name} ({seconds} s)");
            }
            Err(error) if error.is::<Skipped>() => {
                self.skipped.push((name, error.to_string()));
                println!("SKIPPED {name}: {error}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED  {name} ({seconds} s): {error:#}");
            }
        }
    }

    /// Prints what did not run and the numbers; returns whether all is well. If `all_required`, a
    /// required test that did not pass is a failure.
    pub(super) fn conclude(&self, all_required: bool) -> bool {
        if !self.skipped.is_empty() {
            println!("\nNot run on this machine:");
            self.skipped.iter().for_each(|(name, why)| println!("  {name}: {why}"));
        }
        let absent: Vec<_> = required().filter(|name| !self.passed.contains(name)).collect();
        if all_required && !absent.is_empty() {
            println!(
                "\nRequired in CI (xtask/required-tests.txt) and not passed:\n  {}",
                absent.join("\n  ")
            );
        }
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed.len(),
            self.failed,
            self.skipped.len()
        );
        self.failed == 0 && (!all_required || absent.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_no_failure_unless_it_is_required() {
        let mut tally = Tally::default();
        required().for_each(|name| tally.add(name, &Ok(()), Duration::ZERO));
        assert!(tally.conclude(true));
        let mut tally = Tally::default();
        required().skip(1).for_each(|name| tally.add(name, &Ok(()), Duration::ZERO));
        let skipped = Err(Skipped("not found: nsd".into()).into());
        tally.add(required().next().unwrap(), &skipped, Duration::ZERO);
        assert!(tally.conclude(false));
        assert!(!tally.conclude(true));
        tally.add("another", &Err(anyhow::anyhow!("wrong")), Duration::ZERO);
        assert!(!tally.conclude(false));
    }
}
