//! List of the tests and their tiers, and results of the tests. A test that did not run is listed with the reason, and
//! never counts as passed.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

/// List of tests. Each line contains the tier and the name of a test.
const LIST: &str = include_str!("../../required-tests.txt");

/// Set of tests to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// The tests that every change must pass.
    First,
    /// All tests: the first tier, the nightly ones, and the optional ones.
    All,
}

/// Schedule of a listed test, which also determines whether the test is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Required, and run with each change.
    First,
    /// Required, and run every night, because it compares two rates, takes more than a minute, or downloads files.
    Nightly,
    /// Not required, because it needs software that CI cannot install.
    Optional,
}

/// A line of the list.
struct Entry {
    kind: Kind,
    name: &'static str,
    /// Comment directly above the line; empty if there is none.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the list"))]
    reason: &'static str,
}

fn entries() -> impl Iterator<Item = Entry> {
    let mut reason = "";
    LIST.lines().filter_map(move |line| {
        if let Some(comment) = line.strip_prefix('#') {
            reason = comment.trim();
            return None;
        }
        let reason = std::mem::take(&mut reason);
        let (word, name) = line.split_once(' ')?;
        let kind = match word {
            "first" => Kind::First,
            "nightly" => Kind::Nightly,
            "optional" => Kind::Optional,
            _ => return None,
        };
        Some(Entry { kind, name, reason })
    })
}

impl Tier {
    /// Returns all tests if `all`, otherwise the first tier.
    pub(crate) fn of(all: bool) -> Tier {
        if all { Tier::All } else { Tier::First }
    }

    /// True if the test of this name runs in this tier.
    pub(super) fn has(self, name: &str) -> bool {
        self == Tier::All || entries().any(|entry| entry.name == name && entry.kind == Kind::First)
    }

    /// Returns the names of the tests that must pass in CI.
    fn required(self) -> impl Iterator<Item = &'static str> {
        let is_required = move |kind| match kind {
            Kind::First => true,
            Kind::Nightly => self == Tier::All,
            Kind::Optional => false,
        };
        entries().filter(move |entry| is_required(entry.kind)).map(|entry| entry.name)
    }
}

/// Error of a test that was not run. The text is the reason.
#[derive(Debug)]
pub(super) struct Skipped(pub(super) String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// Counts of tests by result, and the tests that did not run.
#[derive(Default)]
pub(super) struct Tally {
    passed: Vec<&'static str>,
    failed: usize,
    skipped: Vec<(&'static str, String)>,
}

impl Tally {
    /// Counts a test, and prints its result and duration.
    pub(super) fn add(&mut self, name: &'static str, outcome: &Result<()>, took: Duration) {
        let seconds = took.as_secs_f64();
        match outcome {
            Ok(()) => {
                self.passed.push(name);
                println!("passed  {name} ({seconds:.1} s)");
            }
            Err(error) if error.is::<Skipped>() => {
                self.skipped.push((name, error.to_string()));
                println!("SKIPPED {name} ({seconds:.1} s): {error}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED  {name} ({seconds:.1} s): {error:#}");
            }
        }
    }

    /// Prints the tests that did not run, and the totals. Returns false if a test failed, or if a required test of the
    /// given tier did not pass.
    pub(super) fn conclude(&self, required: Option<Tier>) -> bool {
        if !self.skipped.is_empty() {
            println!("\nNot run:");
            self.skipped.iter().for_each(|(name, why)| println!("  {name}: {why}"));
        }
        let required = required.into_iter().flat_map(Tier::required);
        let absent: Vec<_> = required.filter(|name| !self.passed.contains(name)).collect();
        if !absent.is_empty() {
            println!(
                "\nRequired in CI (xtask/required-tests.txt) but not passed:\n  {}",
                absent.join("\n  ")
            );
        }
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed.len(),
            self.failed,
            self.skipped.len()
        );
        self.failed == 0 && absent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::*;

    #[test]
    fn the_list_and_the_tests_have_the_same_names() {
        let tests: Vec<&str> = all().map(|test| test.name).collect();
        let listed: Vec<&str> = entries().map(|entry| entry.name).collect();
        for name in &tests {
            assert_eq!(listed.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
        for name in &listed {
            assert!(tests.contains(name), "{name} in required-tests.txt is no test");
        }
        let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(lines.count(), listed.len(), "a line has no tier");
    }

    #[test]
    fn every_nightly_test_has_its_reason() {
        for Entry { name, reason, .. } in entries().filter(|entry| entry.kind == Kind::Nightly) {
            let seconds = reason.strip_prefix("takes ").and_then(|rest| rest.split_once(" s"));
            let is_slow = seconds.is_some_and(|(n, _)| n.parse::<u32>().is_ok_and(|n| n > 60));
            let is_other =
                ["compares two rates", "downloads "].iter().any(|one| reason.starts_with(one));
            assert!(is_slow || is_other, "{name}: '{reason}'");
        }
    }

    #[test]
    fn skipped_test_fails_the_run_only_if_required() {
        let first: Vec<&str> = Tier::First.required().collect();
        let tally = |names: &[&'static str]| {
            let mut tally = Tally::default();
            names.iter().for_each(|name| tally.add(name, &Ok(()), Duration::ZERO));
            tally
        };
        assert!(tally(&first).conclude(Some(Tier::First)));
        assert!(!tally(&first).conclude(Some(Tier::All)), "the nightly ones did not run");
        let mut tally = tally(&first[1..]);
        let skipped = Err(Skipped("not found: nsd".into()).into());
        tally.add(first[0], &skipped, Duration::ZERO);
        assert!(tally.conclude(None));
        assert!(!tally.conclude(Some(Tier::First)));
        tally.add("another", &Err(anyhow::anyhow!("wrong")), Duration::ZERO);
        assert!(!tally.conclude(None));
    }
}
