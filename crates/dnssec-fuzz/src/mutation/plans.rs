//! Changes of the header of a signature before it is made.

use domain::base::iana::Rtype;
use domain::base::name::ToName;
use rand::RngExt;
use testbed::signed::{TestName, name};

use super::data::{some_algorithm, some_labels, some_type};
use super::scene::{Mutation, Scene};
use crate::draft::{Plan, Set};
use crate::keys::KeyId;
use crate::names::{ROOT, below, mixed_case, parent};
use crate::tree::Zone;

pub(super) const ALL: &[&Mutation] = &[
    &Mutation::new("signed: label count", labels),
    &Mutation::new("signed: original TTL", original_ttl),
    &Mutation::new("signed: period", period),
    &Mutation::new("signed: signer", signer),
    &Mutation::new("signed: signer in mixed case", mixed_signer),
    &Mutation::new("signed: key tag", key_tag),
    &Mutation::new("signed: algorithm", algorithm),
    &Mutation::new("signed: covered type", covered),
    &Mutation::new("signed with another key", other_key),
    &Mutation::new("signed with the key of another zone", key_of_other_zone),
    &Mutation::new("one more signature", one_more),
];

/// Changes the plan of the only signature of an RRset.
fn change(scene: &mut Scene<'_>, change: impl FnOnce(&mut Scene<'_>, &mut Plan)) -> bool {
    let Some(index) = scene.find(|set| set.plans.len() == 1) else { return false };
    let mut plan = scene.draft.sets[index].plans[0].clone();
    change(scene, &mut plan);
    scene.draft.sets[index].plans[0] = plan;
    true
}

/// Changes the label count. In most cases, the signed data has the wildcard name that follows from the new count, so that
/// the signature is valid. DNSKEY and DS records stay as they are: some validators accept them from a wildcard.
fn labels(scene: &mut Scene<'_>) -> bool {
    let is_key = |set: &Set| matches!(set.rtype(), Rtype::DNSKEY | Rtype::DS);
    if scene.draft.sets.iter().any(is_key) {
        return false;
    }
    change(scene, |scene, plan| {
        plan.labels = some_labels(plan.labels, scene.rng);
        let owner = &plan.owner;
        let encloser = owner
            .iter_suffixes()
            .find(|suffix| suffix.label_count() == usize::from(plan.labels) + 1)
            .map(|suffix| suffix.to_name());
        if let (Some(encloser), true) = (encloser, scene.rng.random_bool(0.7))
            && encloser != *owner
        {
            plan.owner = below("*", &encloser);
        }
    })
}

fn original_ttl(scene: &mut Scene<'_>) -> bool {
    change(scene, |scene, plan| {
        plan.ttl = scene.pick(&[0, 1, 59, 61, 3601, u32::MAX]).unwrap_or_default();
    })
}

fn period(scene: &mut Scene<'_>) -> bool {
    let now = scene.signer.now;
    const HOUR: u32 = 3600;
    const HALF: u32 = 1 << 31;
    change(scene, |scene, plan| {
        let all = [
            (now - 2 * HOUR, now - HOUR),
            (now + HOUR, now + 2 * HOUR),
            (now + HOUR, now - HOUR),
            // A period of 2³¹ seconds is left out, because it has no meaning in serial arithmetic.
            (now - HOUR, now.wrapping_add(HALF - 2 * HOUR)),
            (now.wrapping_sub(HALF - 2 * HOUR), now + HOUR),
            (now - HOUR, now.wrapping_add(HALF + HOUR)),
            (now.wrapping_add(HALF + 2 * HOUR), now + HOUR),
            (now - HOUR, 0),
        ];
        plan.valid = scene.pick(&all).unwrap_or(plan.valid);
    })
}

fn is_of_denial(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::SOA | Rtype::NSEC | Rtype::NSEC3)
}

fn has_alias(scene: &Scene<'_>) -> bool {
    scene.draft.sets.iter().any(|set| matches!(set.rtype(), Rtype::CNAME | Rtype::DNAME))
}

/// Changes the signer, except of SOA records and proofs after an alias: some validators accept the signer of the alias.
fn signer(scene: &mut Scene<'_>) -> bool {
    change(scene, |scene, plan| {
        if is_of_denial(plan.covered) && has_alias(scene) {
            return;
        }
        let mut all = vec![scene.some_name(), name(ROOT), name("test"), TestName::root_vec()];
        all.extend(scene.signer.tree.zones.iter().map(|zone| zone.apex.clone()));
        all.extend(parent(&plan.signer));
        plan.signer = scene.pick(&all).unwrap_or_else(TestName::root_vec);
    })
}

fn mixed_signer(scene: &mut Scene<'_>) -> bool {
    change(scene, |_, plan| plan.signer = mixed_case(&plan.signer))
}

fn key_tag(scene: &mut Scene<'_>) -> bool {
    change(scene, |scene, plan| plan.tag ^= 1 << scene.rng.random_range(..16_usize))
}

fn algorithm(scene: &mut Scene<'_>) -> bool {
    change(scene, |scene, plan| plan.algorithm = some_algorithm(scene.rng))
}

fn covered(scene: &mut Scene<'_>) -> bool {
    change(scene, |scene, plan| plan.covered = some_type(scene.rng))
}

/// Signs with a key that is not in the zone, or with the wrong key of the zone.
fn other_key(scene: &mut Scene<'_>) -> bool {
    let pool = scene.signer.pool;
    change(scene, |scene, plan| {
        let zone = scene.signer.tree.zones.iter().find(|zone| zone.apex == plan.signer);
        let own = zone.map(|zone| zone.keys.clone()).unwrap_or_default();
        let id = match scene.pick(&own) {
            Some(key) if scene.rng.random_bool(0.5) => key.id,
            _ => KeyId(scene.rng.random_range(..pool.len())),
        };
        let flags = scene.pick(&[256, 257]).unwrap_or_default();
        plan.key = id;
        if scene.rng.random_bool(0.8) {
            plan.tag = pool.dnskey(id, flags).key_tag();
            plan.algorithm = pool.algorithm(id);
        }
    })
}

/// Signs with the key of another zone of the case, in most cases in its name. After an alias, SOA records and proofs keep
/// the signer, because some validators accept that of the alias.
fn key_of_other_zone(scene: &mut Scene<'_>) -> bool {
    let pool = scene.signer.pool;
    let zones: Vec<&Zone> =
        scene.signer.tree.zones.iter().filter(|zone| zone.is_signed()).collect();
    let Some(zone) = scene.pick(&zones) else { return false };
    let Some(key) = zone.keys.last() else { return false };
    change(scene, |scene, plan| {
        plan.key = key.id;
        plan.tag = pool.dnskey(key.id, key.flags).key_tag();
        plan.algorithm = pool.algorithm(key.id);
        let is_kept = is_of_denial(plan.covered) && has_alias(scene);
        if scene.rng.random_bool(0.8) && !is_kept {
            plan.signer = zone.apex.clone();
        }
    })
}

/// Adds a signature with one changed field, before or after the correct one. The signer, the covered type and the label
/// count remain: some validators use those of the first signature for all.
fn one_more(scene: &mut Scene<'_>) -> bool {
    let Some(index) = scene.find(|set: &Set| set.plans.len() == 1) else { return false };
    let good = scene.draft.sets[index].plans[0].clone();
    let changes = [period, original_ttl, key_tag, algorithm, other_key];
    // The changes apply to all RRsets, so that the good signature is put back.
    let others: Vec<Set> = scene.draft.sets.clone();
    scene.draft.sets = vec![others[index].clone()];
    let Some(change) = scene.pick(&changes) else { return false };
    change(scene);
    let bad = scene.draft.sets[0].plans[0].clone();
    scene.draft.sets = others;
    let is_first = scene.rng.random_bool(0.5);
    scene.draft.sets[index].plans = if is_first { vec![bad, good] } else { vec![good, bad] };
    true
}
