//! Signed proofs of other claims.

use domain::base::iana::{Rcode, Rtype};
use rand::RngExt;
use rand::rngs::StdRng;

use super::scene::{Mutation, Scene};
use crate::denial::Claim;
use crate::draft::{Draft, Section, Set};
use crate::names::below;
use crate::tree::Zone;

pub(super) const ALL: &[&Mutation] = &[
    &Mutation::new("proof of another name", other_name),
    &Mutation::new("proof of another name in addition", one_more),
    &Mutation::new("proof of another zone", other_zone),
    &Mutation::new("proof incomplete", incomplete),
    &Mutation::new("answer denied", denied),
    &Mutation::new("answer denied with a record of the name", denied_by_name),
    &Mutation::new("delegation denied", undelegated),
    &Mutation::new("wildcard for another name", wildcard),
    &Mutation::new("SOA of another zone", other_soa),
];

fn is_proof(set: &Set) -> bool {
    set.section == Section::Authority && set.is_proof()
}

fn some_claim(rng: &mut StdRng) -> Claim {
    [Claim::NoData, Claim::NoName, Claim::Wildcard][rng.random_range(..3_usize)]
}

fn other_name(scene: &mut Scene<'_>) -> bool {
    let has_proof = scene.draft.sets.iter().any(is_proof);
    let (Some(zone), true) = (scene.zone(), has_proof) else { return false };
    scene.draft.sets.retain(|set| !is_proof(set));
    let (name, claim) = (scene.some_name(), some_claim(scene.rng));
    if !name.ends_with(&zone.apex) {
        return false;
    }
    scene.signer.prove(scene.draft, zone, &name, claim);
    true
}

/// Adds the records of the proof that the response does not have yet.
fn one_more(scene: &mut Scene<'_>) -> bool {
    let Some(zone) = scene.zone() else { return false };
    let (name, claim) = (scene.some_name(), some_claim(scene.rng));
    if !name.ends_with(&zone.apex) {
        return false;
    }
    let before = scene.draft.sets.len();
    scene.signer.prove(scene.draft, zone, &name, claim);
    let added = scene.draft.sets.split_off(before);
    let owner = |set: &Set| set.records.first().map(|record| record.owner().clone());
    let known: Vec<_> = scene.draft.sets.iter().map(owner).collect();
    scene.draft.sets.extend(added.into_iter().filter(|set| !known.contains(&owner(set))));
    scene.draft.sets.len() > before
}

/// Replaces the proof by the record that another zone has at or before the queried name.
fn other_zone(scene: &mut Scene<'_>) -> bool {
    let zones: Vec<usize> = (0..scene.signer.tree.zones.len()).collect();
    let Some(zone) = scene.pick(&zones) else { return false };
    let zone = &scene.signer.tree.zones[zone];
    if !zone.is_signed() || !scene.draft.sets.iter().any(is_proof) {
        return false;
    }
    scene.draft.sets.retain(|set| !is_proof(set));
    let record = zone.record_at(scene.name);
    scene.draft.sets.push(scene.signer.signed(zone, Section::Authority, &record));
    true
}

fn incomplete(scene: &mut Scene<'_>) -> bool {
    let Some(index) = scene.find(is_proof) else { return false };
    scene.draft.sets.remove(index);
    true
}

fn deny(scene: &mut Scene<'_>, prove: impl FnOnce(&mut Scene<'_>, &Zone)) -> bool {
    let Some(zone) = scene.zone() else { return false };
    let rcode = if scene.rng.random_bool(0.5) { Rcode::NOERROR } else { Rcode::NXDOMAIN };
    *scene.draft = Draft { rcode, sets: Vec::new() };
    if let Some(soa) = zone.set(&zone.apex, Rtype::SOA) {
        let soa = scene.signer.signed(zone, Section::Authority, soa);
        scene.draft.sets.push(soa);
    }
    prove(scene, zone);
    true
}

/// Denies the name with the proof of another name.
fn denied(scene: &mut Scene<'_>) -> bool {
    deny(scene, |scene, zone| {
        let (name, claim) = (scene.some_name(), some_claim(scene.rng));
        if name.ends_with(&zone.apex) {
            scene.signer.prove(scene.draft, zone, &name, claim);
        }
    })
}

/// Denies a name with an existing NSEC or NSEC3 record: that of the name itself, or the last one before it.
fn denied_by_name(scene: &mut Scene<'_>) -> bool {
    deny(scene, |scene, zone| {
        let claim = some_claim(scene.rng);
        scene.signer.prove(scene.draft, zone, scene.name, claim);
    })
}

/// Denies the DS records of a delegation.
fn undelegated(scene: &mut Scene<'_>) -> bool {
    if scene.rtype != Rtype::DS {
        return false;
    }
    let mut has_ds = false;
    let mut parent = None;
    if let Some(zone) = scene.zone() {
        has_ds = zone.set(scene.name, Rtype::DS).is_some();
        let sets = zone.sets.iter();
        let sets =
            sets.filter(|set| !(set.rtype() == Rtype::DS && set.owner == *scene.name)).cloned();
        parent = Some(Zone {
            apex: zone.apex.clone(),
            keys: zone.keys.clone(),
            denial: zone.denial.clone(),
            sets: sets.collect(),
        });
    }
    let (Some(zone), true) = (parent, has_ds) else { return false };
    *scene.draft = Draft { rcode: Rcode::NOERROR, sets: Vec::new() };
    scene.signer.deny(scene.draft, &zone, scene.name, Claim::NoData);
    true
}

/// Answers the question from a wildcard that does not apply to the name, with or without a proof.
fn wildcard(scene: &mut Scene<'_>) -> bool {
    let Some(zone) = scene.zone() else { return false };
    let base = &scene.signer.tree.base;
    let wildcards = [below("*.w", &zone.apex), below("*.w", base), below("*.cw", base)];
    let is_one = |set: &&crate::tree::Rrset| wildcards.contains(&set.owner);
    let sets: Vec<_> = zone.sets.iter().filter(is_one).collect();
    let Some(set) = scene.pick(&sets) else { return false };
    let expanded = scene.signer.expanded(zone, set, scene.name);
    *scene.draft = Draft { rcode: Rcode::NOERROR, sets: vec![expanded] };
    if scene.rng.random_bool(0.7) {
        scene.signer.prove(scene.draft, zone, scene.name, Claim::Wildcard);
    }
    true
}

/// Replaces the SOA record. Responses with aliases are left out: some validators query the target again.
fn other_soa(scene: &mut Scene<'_>) -> bool {
    let zones: Vec<usize> = (0..scene.signer.tree.zones.len()).collect();
    let Some(zone) = scene.pick(&zones) else { return false };
    let zone = &scene.signer.tree.zones[zone];
    let Some(soa) = zone.set(&zone.apex, Rtype::SOA) else { return false };
    let has_alias = scene.draft.sets.iter().any(|set| set.section == Section::Answer);
    let Some(index) = scene.find(|set| set.rtype() == Rtype::SOA && !has_alias) else {
        return false;
    };
    scene.draft.sets[index] = scene.signer.signed(zone, Section::Authority, soa);
    true
}
