//! Runs of the workspace's tests. cargo-nextest runs all test binaries in parallel.
//!
//! ```text
//! cargo-nextest ─► a process for each test ─► target/nextest/default/junit.xml ──► tests, failures
//!                            │                                                             │
//!                            └─ testbed::skip ─► target/skipped-tests ─► not run, ─────────┴─► totals
//!                                                                        with reasons
//! ```
//!
//! nextest counts a test that returns early as passed. A test that skips itself therefore writes a line to a file, from
//! which skipped tests are counted and listed here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::packages::{self, Consent};
use crate::process;
use crate::{servers, tools};

/// Runs the tests of the workspace with cargo-nextest. If cargo-nextest is missing and may not be installed, cargo runs
/// the tests.
///
/// If a server is installed, the tests that check files with that server's configuration checker must run. In CI, as
/// root on Debian, tests that need root must run too.
///
/// # Errors
/// Returns an error if a test fails, or if a required test does not run.
pub(crate) fn run(consent: Consent) -> Result<()> {
    let skipped = process::target().join("skipped-tests");
    let _ = fs::remove_file(&skipped);
    let mut variables = vec![
        ("DNS64BENCH_MUST_CHECK", servers::installed()),
        ("DNS64BENCH_SKIPPED", skipped.display().to_string()),
    ];
    if Consent::in_ci() && packages::can_install() {
        variables.push(("DNS64BENCH_MUST_RUN", "1".to_owned()));
    }
    let read_skipped = || Skipped::parse(&fs::read_to_string(&skipped).unwrap_or_default());
    let nextest = match consent {
        Consent::Given => tools::get("cargo-nextest"),
        _ => tools::locate("cargo-nextest").context(
            "install it with cargo xtask tools \
            cargo-nextest",
        ),
    };
    let nextest = match nextest {
        Ok(program) => program,
        Err(error) => {
            println!(
                "cargo-nextest is not installed ({error:#}): running cargo test, which is slower"
            );
            let words = ["test", "--workspace", "--no-fail-fast", "--quiet"];
            let tested = process::in_workspace(env!("CARGO"), &words, &variables);
            read_skipped().print();
            return tested;
        }
    };
    let junit = process::target().join("nextest/default/junit.xml");
    let _ = fs::remove_file(&junit);
    let words = ["nextest", "run", "--workspace", "--no-fail-fast"];
    let tested = process::in_workspace(&nextest, &words, &variables);
    let skipped = read_skipped();
    skipped.print();
    if !junit.is_file() {
        return tested.and_then(|()| bail!("nextest wrote no {}", junit.display()));
    }
    let totals = Totals::read(&junit)?;
    let passed = totals.tests.saturating_sub(totals.failed + skipped.tests());
    println!("{passed} passed, {} failed, {} skipped", totals.failed, skipped.tests());
    tested
}

/// Reasons why tests did not run, by test.
#[derive(Debug, Default, PartialEq)]
struct Skipped(BTreeMap<String, BTreeSet<String>>);

impl Skipped {
    /// Parses lines written by `testbed::skip`: the name of the test, a tab, and the reason.
    fn parse(lines: &str) -> Skipped {
        let mut all = Skipped::default();
        for (test, reason) in lines.lines().filter_map(|line| line.split_once('\t')) {
            all.0.entry(test.to_owned()).or_default().insert(reason.to_owned());
        }
        all
    }

    fn tests(&self) -> usize {
        self.0.len()
    }

    fn print(&self) {
        if !self.0.is_empty() {
            println!("\nTests that did not run on this machine, completely or in part:");
        }
        for (test, reasons) in &self.0 {
            reasons.iter().for_each(|reason| println!("  {test}: {reason}"));
        }
    }
}

/// Totals of a nextest run.
#[derive(Debug, PartialEq)]
struct Totals {
    tests: usize,
    failed: usize,
}

impl Totals {
    fn read(junit: &Path) -> Result<Totals> {
        let text = fs::read_to_string(junit)
            .with_context(|| format!("cannot read {}", junit.display()))?;
        Totals::parse(&text).with_context(|| format!("{} has no totals", junit.display()))
    }

    /// Reads the attributes of the element `testsuites`.
    fn parse(xml: &str) -> Option<Totals> {
        let (_, element) = xml.split_once("<testsuites ")?;
        let (element, _) = element.split_once('>')?;
        let attribute = |name: &str| {
            let (_, value) = element.split_once(&format!(" {name}=\""))?;
            value.split_once('"')?.0.parse::<usize>().ok()
        };
        Some(Totals {
            tests: attribute("tests")?,
            failed: attribute("failures")? + attribute("errors")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_come_from_the_root_element() {
        let xml = "<?xml version=\"1.0\"?>\n<testsuites name=\"nextest-run\" tests=\"12\" failures=\"2\" errors=\"1\" uuid=\"x\">\n\
                   <testsuite name=\"a\" tests=\"5\" failures=\"0\" errors=\"0\">";
        assert_eq!(Totals::parse(xml), Some(Totals { tests: 12, failed: 3 }));
        assert_eq!(Totals::parse("<testsuites name=\"x\">"), None);
        assert_eq!(Totals::parse(""), None);
    }

    #[test]
    fn a_skipped_test_counts_once_with_all_reasons() {
        let skipped = Skipped::parse("a::b\tneeds root\na::b\tneeds ip\na::b\tneeds root\nc\tno\n");
        assert_eq!(skipped.tests(), 2);
        assert_eq!(skipped.0["a::b"].len(), 2);
        assert_eq!(Skipped::parse("").tests(), 0);
    }
}
