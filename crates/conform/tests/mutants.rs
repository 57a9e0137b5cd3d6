//! Each check has a mutant, and each mutant is caught by the check that it names: the check passes on the reference
//! server (see `reference.rs`) and fails on the mutant. Other checks do not count.
//!
//! `MUTANT=ttl cargo test -p conform --test mutants` runs the mutants whose names contain `ttl`.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use common::Server;
use conform::authority::Authority;
use conform::check::{Check, Level, Need};
use conform::checks;
use conform::outcome::Verdict;
use conform::runner::{self, Phase};
use conform_reference::mutant::{Mutant, NO_HOOKS};
use conform_reference::mutants;
use conform_reference::rules::Rules;

/// Number of mutants that run in parallel. They need little CPU time, because most of them wait for a timeout.
const AT_ONCE: usize = 64;

/// Sets of prefixes. Each mutant runs with one set after the other until its check fails. The first set reveals most
/// defects, but an octet at a wrong position may appear with a single prefix length only.
const PREFIXES: [&str; 8] = [
    "64:ff9b::/96",
    "3fff:64::/96",
    "3fff:64:64:64::/64",
    "3fff:64::/96 3fff:65:65::/48",
    "3fff:64::/32",
    "3fff:64:6400::/40",
    "3fff:64:64::/48",
    "3fff:64:64:6400::/56",
];

#[test]
fn checks_that_run_together_catch_their_mutants() {
    catch(|phase| phase != Phase::Alone);
}

#[test]
fn checks_that_run_alone_catch_their_mutants() {
    catch(|phase| phase == Phase::Alone);
}

/// Runs the mutants whose checks are in the wanted phases. Checks of [`Phase::Alone`] would disturb other checks on the
/// same server. Here each mutant is a separate server, so these checks can run in parallel too.
fn catch(is_wanted: fn(Phase) -> bool) {
    // Each simulated client needs a socket, and so does each upstream query.
    let limit = net::descriptors::raise_limit();
    if limit < 8_000 {
        let why = format!("64 servers and their clients need more than {limit} descriptors");
        return testbed::skip("mutants", &why);
    }
    let part = std::env::var("MUTANT").unwrap_or_default();
    let named: Vec<&Mutant> = mutants::all().filter(|mutant| mutant.name.contains(&part)).collect();
    assert!(!named.is_empty(), "no mutant's name contains {part:?}");
    let wanted: Vec<&Mutant> =
        named.into_iter().filter(|mutant| is_wanted(Phase::from_id(mutant.caught_by))).collect();
    let missed = missed(&wanted);
    assert!(
        missed.is_empty(),
        "{} of {} mutants are not caught:\n{}",
        missed.len(),
        wanted.len(),
        missed.join("\n")
    );
}

/// Returns a line for each mutant that is not caught.
fn missed(mutants: &[&Mutant]) -> Vec<String> {
    let far = common::authority();
    let next = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(mutants.len()) {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begin = Instant::now();
                    // A panic is reported with the mutant's name, and does not hide the others.
                    let caught = catch_unwind(AssertUnwindSafe(|| hunt(mutant, &far)));
                    eprintln!("{:4.1} s {}", begin.elapsed().as_secs_f64(), mutant.name);
                    let result = caught.unwrap_or_else(|_| Err("a panic, see above".into()));
                    if let Err(why) = result {
                        let line = format!("{}: {}: {why}", mutant.name, mutant.caught_by);
                        missed.lock().expect("no thread panics with it").push(line);
                    }
                }
            });
        }
    });
    missed.into_inner().expect("no thread panics with it")
}

/// Runs a mutant's check with one prefix after the other until the check fails.
///
/// # Errors
/// Returns the verdicts if the check passes with all prefixes.
fn hunt(mutant: &Mutant, far: &Authority) -> Result<(), String> {
    let check = common::check(mutant.caught_by).ok_or("there is no such check")?;
    let mut verdicts = Vec::new();
    for prefixes in PREFIXES.into_iter().filter(|prefixes| applies(check, prefixes)) {
        let server = Server { prefixes, validates: check.needs.contains(&Need::Validation) };
        // If two checks contradict each other, the reference server fails one of them. A mutant proves nothing about a
        // check that the reference server fails.
        if check.contradicts.is_some() && try_one(server, far, check, None)?.0 == Verdict::Failed {
            return Err("the reference fails it too".into());
        }
        match try_one(server, far, check, Some(mutant))? {
            (Verdict::Failed, _) => return Ok(()),
            // If the mutant lacks an optional feature (MAY), the verdict is `NotOffered` (feature not supported)
            // instead of `Failed`.
            (Verdict::NotOffered, _) if check.level == Level::May => return Ok(()),
            (verdict, why) => verdicts.push(format!("{prefixes}: {verdict:?} {why}")),
        }
    }
    Err(verdicts.join("; "))
}

/// Runs one check against a mutant, or against the reference server itself. Returns the verdict and the reason.
fn try_one(
    server: Server,
    far: &Authority,
    check: &Check,
    mutant: Option<&Mutant>,
) -> Result<(Verdict, String), String> {
    let unbroken: fn(&mut Rules) = |_| {};
    let (rules, hooks) = mutant.map_or((unbroken, NO_HOOKS), |m| (m.rules, m.hooks));
    let report = server.run(far, true, &[check], rules, hooks);
    let outcome = report.outcomes.into_iter().find(|outcome| outcome.id == check.id);
    outcome.map(|outcome| (outcome.verdict, outcome.reason)).ok_or_else(|| "no outcome".into())
}

fn applies(check: &Check, prefixes: &str) -> bool {
    let is_well_known = prefixes == PREFIXES[0];
    let is_out = if is_well_known { Need::OwnPrefix } else { Need::WellKnownPrefix };
    !check.needs.contains(&is_out)
}

#[test]
fn each_check_has_a_mutant_and_each_mutant_a_check() {
    let checks: BTreeSet<&str> = checks::all().map(|check| check.id).collect();
    let caught: BTreeSet<&str> = mutants::all().map(|mutant| mutant.caught_by).collect();
    // The reference server fails these checks, so no mutant can prove them (see
    // `advice_against_an_rfc_can_be_followed`).
    let against_an_rfc =
        |check: &&Check| check.level == Level::Hardening && check.contradicts.is_some();
    let exempt: BTreeSet<&str> =
        checks::all().filter(against_an_rfc).map(|check| check.id).collect();
    let proved: BTreeSet<&str> = caught.union(&exempt).copied().collect();
    let without_mutant: Vec<_> = checks.difference(&proved).collect();
    let without_check: Vec<_> = caught.difference(&checks).collect();
    assert!(without_mutant.is_empty(), "checks without a mutant: {without_mutant:#?}");
    assert!(
        without_check.is_empty(),
        "mutants name these checks, which do not exist: {without_check:#?}"
    );
}

/// Discovery by RFC 7050 finds no prefix of these mutants, and the test gives none to the runner.
#[test]
fn wrong_places_are_caught_without_expected_prefix() {
    let is_of_addresses =
        |check: &&Check| check.id.starts_with("rfc6052-2.2") || check.id == "rfc8880-7.1-aaaa";
    let (far, only) =
        (common::authority(), checks::all().filter(is_of_addresses).collect::<Vec<_>>());
    for (name, prefixes) in [
        ("octet-u-set", "64:ff9b::/96"),
        ("octet-u-set", "3fff:64:64:64::/64"),
        ("octet-u-used-64", "3fff:64:64:64::/64"),
        ("octets-swapped-96", "3fff:64::/96"),
        ("embedded-in-host-order", "3fff:64::/32"),
    ] {
        let mutant =
            mutants::all().find(|mutant| mutant.name == name).expect("its name is a literal");
        let server = Server { prefixes, validates: false };
        let report = server.run(&far, false, &only, mutant.rules, mutant.hooks);
        assert_eq!(report.prefixes, [prefixes], "{name}");
        assert!(report.fails_a_must(), "{name} with {prefixes}: {:?}", report.outcomes);
    }
}

#[test]
fn names_of_checks_and_mutants_are_unique() {
    let ids = checks::all().map(|check| check.id).chain([runner::EXPECTED_PREFIX]);
    assert_eq!(repeated(ids), BTreeSet::new(), "ids of checks");
    assert_eq!(repeated(mutants::all().map(|mutant| mutant.name)), BTreeSet::new(), "mutants");
}

/// Returns the names that occur more than once.
fn repeated(names: impl Iterator<Item = &'static str>) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}

/// The reference server follows the RFCs, so it fails the checks of advice that contradicts an RFC. Each of these
/// checks must pass on a mutant that fails the contradicted check.
#[test]
fn advice_against_an_rfc_can_be_followed() {
    let far = common::authority();
    for check in checks::all().filter(|check| check.level == Level::Hardening) {
        let Some(opposite) = check.contradicts else { continue };
        let server = Server { prefixes: PREFIXES[0], validates: false };
        let passes = |mutant: &&Mutant| {
            matches!(try_one(server, &far, check, Some(mutant)), Ok((Verdict::Passed, _)))
        };
        let found = mutants::all().filter(|mutant| mutant.caught_by == opposite).find(passes);
        assert!(found.is_some(), "{} passes on no mutant that {opposite} catches", check.id);
    }
}

#[test]
fn each_check_has_its_source() {
    let mut faults = Vec::new();
    for check in checks::all() {
        let mut want = |condition: bool, what: &str| {
            if !condition {
                faults.push(format!("{}: {what}", check.id));
            }
        };
        let of_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        want(check.id.chars().all(of_id), "an id is in lower case");
        want(!check.title.is_empty(), "it has no title");
        let begin = if check.rfc == 0 {
            "hardening-".to_owned()
        } else {
            format!("rfc{}-{}-", check.rfc, check.section)
        };
        want(check.id.starts_with(&begin), &format!("its id does not begin with {begin}"));
        want((check.rfc == 0) == (check.level == Level::Hardening), "hardening has no RFC");
        want(check.rfc == 0 || !check.section.is_empty(), "it has no section");
        want(check.rfc == 0 || !check.sentence.is_empty(), "it has no sentence");
        let needs: BTreeSet<Need> = check.needs.iter().copied().collect();
        want(needs.len() == check.needs.len(), "a need occurs twice");
        let both = |a, b| needs.contains(&a) && needs.contains(&b);
        want(!both(Need::Validation, Need::NoValidation), "its needs exclude each other");
        want(!both(Need::WellKnownPrefix, Need::OwnPrefix), "its needs exclude each other");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_contradiction_is_seen_from_both_sides() {
    let all: BTreeMap<&str, &Check> = checks::all().map(|check| (check.id, check)).collect();
    let mut faults = Vec::new();
    for check in checks::all() {
        let Some(opposite) = check.contradicts else { continue };
        match all.get(opposite).map(|other| other.contradicts) {
            None => faults.push(format!("{} contradicts {opposite}, which is no check", check.id)),
            // It is sufficient if one of the two checks names the other. If both name a check, they must name each
            // other.
            Some(Some(back)) if back != check.id => {
                faults
                    .push(format!("{} contradicts {opposite}, which contradicts {back}", check.id));
            }
            Some(_) => {}
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
