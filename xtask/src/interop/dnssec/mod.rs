//! DNSSEC validation by dns64d, compared with delv and Unbound. Zones that three programs have signed are damaged in one
//! way after another. Each verdict of dns64d must be that of delv or of Unbound; see [`followed`] for the cases in which
//! these two differ.
//!
//! ```text
//! dnssec-signzone ─┐                                      ┌─ dns64d
//! ldns-signzone ───┼─► zone files ─► damage ─► named ◄────┼─ Unbound     the same queries: secure, insecure or bogus
//! kzonesign ───────┘                  proxy that damages  └─ delv
//! ```

mod damages;
mod followed;
mod hostile;
mod proxy;
mod validators;
mod zones;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::damages::{Change, Damage, Spares, damages};
use self::followed::is_expected;
use self::validators::{Difference, QUERIES, Verdicts, validate};
use self::zones::{Denial, Keys, Plan, Signer, Validity, Zones};
use super::harness::Bench;
use super::test::Test;
use crate::process::at_the_same_time;

const NSEC: Denial = Denial::Nsec;
const NSEC3: Denial = Denial::Nsec3 { iterations: 1 };
const OPT_OUT: Denial = Denial::OptOut { iterations: 0 };

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "dnssec: hostile zones, compared with BIND and Unbound",
        &["dnssec-signzone", "dnssec-keygen", "dnssec-dsfromkey", "named", "unbound"],
        hostile::hostile_zones,
    ),
    Test::new("dnssec: damaged zones of dnssec-signzone with NSEC records", NEEDS, |bench| {
        compare(bench, Signer::Bind, NSEC)
    }),
    Test::new("dnssec: damaged zones of dnssec-signzone with NSEC3 records", NEEDS, |bench| {
        compare(bench, Signer::Bind, NSEC3)
    }),
    Test::new("dnssec: damaged zones of dnssec-signzone with Opt-Out", NEEDS, |bench| {
        compare(bench, Signer::Bind, OPT_OUT)
    }),
    Test::new("dnssec: damaged zones of ldns-signzone with NSEC records", NEEDS, |bench| {
        compare(bench, Signer::Ldns, NSEC)
    }),
    Test::new("dnssec: damaged zones of ldns-signzone with NSEC3 records", NEEDS, |bench| {
        compare(bench, Signer::Ldns, NSEC3)
    }),
    Test::new("dnssec: damaged zones of ldns-signzone with Opt-Out", NEEDS, |bench| {
        compare(bench, Signer::Ldns, OPT_OUT)
    }),
    Test::new("dnssec: damaged zones of Knot DNS with NSEC records", KNOT, |bench| {
        compare(bench, Signer::Knot, NSEC)
    }),
    Test::new("dnssec: damaged zones of Knot DNS with NSEC3 records", KNOT, |bench| {
        compare(bench, Signer::Knot, NSEC3)
    }),
    Test::new("dnssec: damaged zones of Knot DNS with Opt-Out", KNOT, |bench| {
        compare(bench, Signer::Knot, OPT_OUT)
    }),
];

/// ldns-signzone signs some zones of all tests.
const NEEDS: &[&str] = &[
    "dnssec-signzone",
    "dnssec-keygen",
    "dnssec-dsfromkey",
    "ldns-signzone",
    "named",
    "delv",
    "unbound",
];
const KNOT: &[&str] = &[
    "kzonesign",
    "keymgr",
    "dnssec-keygen",
    "dnssec-dsfromkey",
    "ldns-signzone",
    "named",
    "delv",
    "unbound",
];

/// Number of damages that are compared at the same time.
const AT_ONCE: usize = 2;

/// Zones that damages need, and the keys of all zones.
struct Trees {
    signer: Signer,
    denial: Denial,
    keys: Keys,
    undamaged: Zones,
    spares: Spares,
}

impl Trees {
    fn sign(signer: Signer, denial: Denial, folder: &Path) -> Result<Trees> {
        let keys = Keys::generate(folder)?;
        let signed = |name: &str, change: &dyn Fn(&mut Plan)| {
            let mut plan = Plan::new(denial);
            change(&mut plan);
            plan.sign(signer, &keys, &folder.join(name)).with_context(|| name.to_owned())
        };
        let both = |validity| {
            move |plan: &mut Plan| {
                (plan.parent_validity, plan.child_validity) = (validity, validity);
            }
        };
        let undamaged = signed("undamaged", &|_| {})?;
        let without_www = signed("without-www", &|plan| {
            plan.parent = plan.parent.replace("www A 192.0.2.1\n", "");
        })?;
        let spares = Spares {
            past: signed("past", &both(Validity::Past))?,
            future: signed("future", &both(Validity::Future))?,
            without_www,
        };
        Ok(Trees { signer, denial, keys, undamaged, spares })
    }
}

fn compare(bench: &Bench, signer: Signer, denial: Denial) -> Result<()> {
    let trees = Trees::sign(signer, denial, bench.folder.path())?;
    let anchor = trees.keys.anchor()?;
    let (_, ds) = anchor.trim().split_once(" DS ").with_context(|| anchor.clone())?;
    let all = damages(denial);
    let one = |(index, damage): (usize, &&'static Damage)| {
        differences(bench, &trees, ds, damage, &format!("damage-{index}"))
            .with_context(|| damage.name.to_owned())
    };
    let found = at_the_same_time(AT_ONCE, all.iter().enumerate(), one);
    let found: Vec<Vec<Difference>> = found.into_iter().collect::<Result<_>>()?;
    let found: Vec<Difference> = found.into_iter().flatten().collect();
    let (expected, other): (Vec<&Difference>, Vec<&Difference>) =
        found.iter().partition(|one| is_expected(one, denial));
    let alone = found.iter().filter(|one| one.is_alone()).count();
    println!(
        "        {} damages, {} queries each: {} verdicts differ, {alone} of dns64d from both",
        all.len(),
        QUERIES.len(),
        found.len()
    );
    // The many verdicts in which dns64d follows Unbound are not listed.
    let of_interest = expected.iter().filter(|one| one.verdicts.unbound != one.verdicts.dns64d);
    of_interest.for_each(|one| println!("            {one}"));
    let other: Vec<String> = other.into_iter().map(Difference::to_string).collect();
    ensure!(other.is_empty(), "no case covers these differences: {other:#?}");
    Ok(())
}

/// Returns the verdicts on the damaged zones that differ.
fn differences(
    bench: &Bench,
    trees: &Trees,
    ds: &str,
    damage: &'static Damage,
    folder: &str,
) -> Result<Vec<Difference>> {
    let path = bench.folder.path().join(folder);
    fs::create_dir(&path)?;
    let (mut zones, mut edit) = (trees.undamaged.clone(), None);
    match damage.change {
        Change::Zones(change) => change(&mut zones, &trees.spares),
        Change::Plan(change) => {
            let mut plan = Plan::new(trees.denial);
            change(&mut plan);
            zones = plan.sign(trees.signer, &trees.keys, &path.join("signed"))?;
        }
        Change::Replies(change) => edit = Some(change),
    }
    let verdicts = validate(bench, folder, &zones, edit, ds)?;
    let all = QUERIES.iter().zip(verdicts);
    let differs = |verdicts: &Verdicts| {
        verdicts.dns64d != verdicts.unbound || verdicts.dns64d != verdicts.delv
    };
    let differ = all.filter(|(_, verdicts)| differs(verdicts));
    Ok(differ
        .map(|((name, rtype, _), verdicts)| Difference {
            damage: damage.name,
            query: format!("{name} {rtype}"),
            verdicts,
        })
        .collect())
}
