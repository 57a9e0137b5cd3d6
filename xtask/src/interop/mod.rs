//! Tests with real servers and clients. `xtask/required-tests.txt` defines the tier of each test. A test that cannot
//! run is listed with the reason, and never counts as passed.

mod attack;
mod campaign;
mod clients;
mod conform;
mod dns64d;
mod dnssec;
mod dnstap;
mod encrypted;
mod gate;
mod harness;
mod hosts;
mod import;
mod isolation;
mod losses;
mod losses_auth;
mod memory;
mod mlrsearch;
mod packages;
mod placement;
mod points;
mod prefixes;
mod rpl;
mod schedule;
mod shards;
mod shares;
mod systemd;
mod tally;
mod test;
mod tester;
mod try_server;
mod xdp;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Result, bail};

pub(crate) use self::tally::Tier;

use self::tally::{Skipped, Tally};
use self::test::{Resource, Test};
use crate::packages::{Consent, can_install, install};
use crate::process::{self};
use crate::tools;

/// Number of tests that run in parallel. Tests mostly wait.
const AT_ONCE: usize = 4;

/// Returns all tests. Long tests come first, so that no long test remains at the end. Tests that hold all CPUs come
/// last, because nothing else runs in parallel with them.
fn all() -> impl Iterator<Item = &'static Test> {
    let long = conform::TESTS.iter().chain(packages::TESTS).chain(hosts::TESTS);
    let long = long.chain(shards::TESTS).chain(prefixes::TESTS).chain(campaign::READERS);
    let short = points::TESTS.iter().chain(import::TESTS).chain(losses::TESTS);
    let short = short.chain(losses_auth::TESTS);
    let short = short.chain(xdp::TESTS).chain(tester::TESTS).chain(systemd::TESTS);
    let short = short.chain(clients::TESTS).chain(dns64d::TESTS).chain(dnstap::TESTS);
    let short = short.chain(encrypted::TESTS).chain(attack::TESTS).chain(shares::TESTS);
    let short = short.chain(try_server::TESTS).chain(memory::TESTS);
    let short = short.chain(dnssec::TESTS).chain(rpl::TESTS);
    let rates = mlrsearch::TESTS.iter().chain(clients::RATES).chain(campaign::TESTS);
    long.chain(short).chain(rates).chain(gate::TESTS)
}

/// Lists all tests with `part` in their names. If a test cannot run here, the list contains the reason. Runs and
/// installs nothing.
pub(crate) fn list(part: &str) -> ExitCode {
    let (mut would, mut would_not) = (0, 0);
    for test in all().filter(|test| test.name.contains(part)) {
        let tier = if Tier::First.has(test.name) { "first  " } else { "nightly" };
        match test.missing() {
            None => {
                would += 1;
                println!("{tier} runs     {}", test.name);
            }
            Some(why) => {
                would_not += 1;
                println!("{tier} does not {}: {why}", test.name);
            }
        }
    }
    println!("{would} tests would run here, {would_not} would not");
    ExitCode::SUCCESS
}

/// Runs the tests of a tier or, if `part` is not empty, all tests with `part` in their names. In CI, every required
/// test of the tier must pass.
pub(crate) fn run(part: &str, consent: Consent, tier: Tier) -> Result<ExitCode> {
    install(consent);
    let program = process::Build::Dev.dns64bench()?;
    let isolated = isolation::is_possible();
    let is_wanted = |test: &&Test| match part {
        "" => tier.has(test.name),
        part => test.name.contains(part),
    };
    // cargo-deb is installed before the tests, because tests have no network access.
    let makes_packages = |test: &Test| test.holds == Some(Resource::Stage);
    if consent == Consent::Given
        && all().filter(is_wanted).any(makes_packages)
        && let Err(error) = tools::get("cargo-deb")
    {
        println!("cargo-deb is not installed: {error:#}");
    }
    let tally = Mutex::new(Tally::default());
    let one = |test: &'static Test| {
        let start = Instant::now();
        let (details, outcome) = outcome_of(test, || isolation::run(test, &program, isolated));
        let mut tally = tally.lock().expect("no thread panics while it holds the tally");
        print!("{details}");
        tally.add(test.name, &outcome, start.elapsed());
    };
    let start = Instant::now();
    // Without separate namespaces, tests would share the lab and the ports.
    schedule::run_all(all().filter(is_wanted).collect(), if isolated { AT_ONCE } else { 1 }, one);
    println!(
        "
All tests took {} s",
        start.elapsed().as_secs()
    );
    let is_strict = part.is_empty() && Consent::in_ci() && can_install();
    let tally = tally.into_inner().expect("no thread panics while it holds the tally");
    Ok(if tally.conclude(is_strict.then_some(tier)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the test with this name in this process, which [`run`] has started for the test.
pub(crate) fn run_inside(name: &str, program: &Path) -> Result<ExitCode> {
    let Some(test) = all().find(|test| test.name == name) else { bail!("no test '{name}'") };
    isolation::run_here(test, program)
}

/// Runs a test by calling `once`, which returns the printed details and the result. If a test that allows a retry does
/// not pass, it is run once more.
fn outcome_of(test: &Test, once: impl Fn() -> (String, Result<()>)) -> (String, Result<()>) {
    if let Some(why) = test.missing() {
        return (String::new(), Err(Skipped(why).into()));
    }
    let (first_details, first) = once();
    match (first, test.retry) {
        (Err(error), Some(reason)) => {
            let (details, outcome) = once();
            let again = format!("again   {} ({reason}): {error:#}\n", test.name);
            (first_details + &again + &details, outcome)
        }
        (outcome, _) => (first_details, outcome),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn at_most_ten_tests_have_a_retry() {
        assert!(all().filter(|test| test.retry.is_some()).count() <= 10);
    }

    #[test]
    fn only_a_test_with_a_retry_is_run_again() {
        static PLAIN: Test = Test::new("plain", &[], |_| Ok(()));
        static RETRIED: Test = Test::new("retried", &[], |_| Ok(())).retried("a reason");
        static IMPOSSIBLE: Test = Test::new("impossible", &["no-such-program"], |_| Ok(()));
        let runs = |test: &Test, fails: u32| {
            let number = Cell::new(0);
            let (details, outcome) = outcome_of(test, || {
                number.set(number.get() + 1);
                let failed = || Err(anyhow::anyhow!("wrong"));
                (String::new(), if number.get() <= fails { failed() } else { Ok(()) })
            });
            (number.get(), outcome.is_ok(), details)
        };
        let again = "again   retried (a reason): wrong\n";
        assert_eq!(runs(&PLAIN, 1), (1, false, String::new()));
        assert_eq!(runs(&RETRIED, 0), (1, true, String::new()));
        assert_eq!(runs(&RETRIED, 1), (2, true, again.into()));
        assert_eq!(runs(&RETRIED, 2), (2, false, again.into()));
        assert_eq!(runs(&IMPOSSIBLE, 0), (0, false, String::new()));
    }
}
