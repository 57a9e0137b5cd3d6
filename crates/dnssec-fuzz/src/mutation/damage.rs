//! Changes of a signed response.

use domain::base::Ttl;
use domain::base::iana::Rtype;
use domain::rdata::{Rrsig, ZoneRecordData};
use rand::RngExt;
use testbed::signed::{TestName, records};

use super::data::{change_record, changed, changed_rrsig};
use super::scene::{Mutation, Scene};
use crate::draft::{Section, Set};
use crate::keys::{record, set_owner};
use crate::names::mixed_case;

pub(super) const ALL: &[&Mutation] = &[
    &Mutation::new("other data", other_data),
    &Mutation::new("other field of a signature", other_field),
    &Mutation::new("other field of a signature", other_field),
    &Mutation::new("one more signature with another field", one_more_signature),
    &Mutation::new("no signature", no_signature),
    &Mutation::new("no records", no_records),
    &Mutation::new("no RRset", no_set),
    &Mutation::new("no signatures at all", no_signatures),
    &Mutation::new("one record less", one_less),
    &Mutation::new("one more record", one_more),
    &Mutation::new("a record twice", twice),
    &Mutation::new("other order", other_order),
    &Mutation::new("other owner", other_owner),
    &Mutation::new("owners exchanged", exchanged_owners),
    &Mutation::new("owner in mixed case", mixed_owner),
    &Mutation::new("other section", other_section),
    &Mutation::new("signatures exchanged", exchanged_signatures),
    &Mutation::new("signature of another zone", replayed_signature),
    &Mutation::new("other TTL", other_ttl),
    &Mutation::new("one more RRset", one_more_set),
];

type TestRrsig = Rrsig<Vec<u8>, TestName>;

/// True if the RRset has records. The alias that follows from a DNAME record is left out: some validators replace it, and
/// others check it.
fn has_records(set: &Set) -> bool {
    let is_synthesized = set.rtype() == Rtype::CNAME && set.plans.is_empty();
    !set.records.is_empty() && !is_synthesized
}

fn has_signatures(set: &Set) -> bool {
    !set.signatures.is_empty()
}

/// Changes a record. The alias that follows from a DNAME record is left out, even if it has a signature.
fn other_data(scene: &mut Scene<'_>) -> bool {
    let has_dname = scene.draft.sets.iter().any(|set| set.rtype() == Rtype::DNAME);
    let is_alias = move |set: &Set| has_dname && set.rtype() == Rtype::CNAME;
    change_record(scene, |set| has_records(set) && !is_alias(set))
}

fn other_field(scene: &mut Scene<'_>) -> bool {
    let other = scene.some_name();
    // Of several signatures, some validators use fields of the first one for all.
    let Some(index) = scene.find(|set| set.signatures.len() == 1) else { return false };
    let signature = &mut scene.draft.sets[index].signatures[0];
    let ZoneRecordData::Rrsig(rrsig) = signature.data() else { return false };
    let Some(rrsig) = changed_rrsig(rrsig, other, scene.rng) else { return false };
    *signature.data_mut() = ZoneRecordData::Rrsig(rrsig);
    true
}

fn one_more_signature(scene: &mut Scene<'_>) -> bool {
    let other = scene.some_name();
    let Some(index) = scene.find(has_signatures) else { return false };
    let signatures = &mut scene.draft.sets[index].signatures;
    let mut copy = signatures[0].clone();
    let ZoneRecordData::Rrsig(good) = copy.data() else { return false };
    let Some(rrsig) = changed_rrsig(good, other, scene.rng) else { return false };
    // Some validators use these fields of the first signature for all.
    let header =
        |rrsig: &TestRrsig| (rrsig.signer_name().clone(), rrsig.type_covered(), rrsig.labels());
    if header(&rrsig) != header(good) {
        return false;
    }
    *copy.data_mut() = ZoneRecordData::Rrsig(rrsig);
    let at = if scene.rng.random_bool(0.5) { 0 } else { signatures.len() };
    signatures.insert(at, copy);
    true
}

fn no_signature(scene: &mut Scene<'_>) -> bool {
    scene.set(has_signatures).is_some_and(|set| set.signatures.pop().is_some())
}

/// Removes the records of an RRset, but not its signature. SOA records are left out, because not all validators need them.
fn no_records(scene: &mut Scene<'_>) -> bool {
    let Some(set) = scene.set(|set| has_records(set) && set.rtype() != Rtype::SOA) else {
        return false;
    };
    set.records.clear();
    true
}

fn no_set(scene: &mut Scene<'_>) -> bool {
    let Some(index) = scene.find(|set| set.rtype() != Rtype::SOA) else { return false };
    scene.draft.sets.remove(index);
    true
}

fn no_signatures(scene: &mut Scene<'_>) -> bool {
    let all = scene.rng.random_bool(0.5);
    for set in scene.draft.sets.iter_mut().filter(|set| all || set.is_proof()) {
        set.signatures.clear();
    }
    true
}

fn one_less(scene: &mut Scene<'_>) -> bool {
    let Some(index) = scene.find(|set| set.records.len() > 1) else { return false };
    let records = &mut scene.draft.sets[index].records;
    records.remove(scene.rng.random_range(..records.len()));
    true
}

fn one_more(scene: &mut Scene<'_>) -> bool {
    let other = scene.some_name();
    let Some(index) = scene.find(has_records) else { return false };
    let records = &mut scene.draft.sets[index].records;
    let Some(data) = changed(records[0].data(), other, scene.rng) else { return false };
    let (owner, ttl) = (records[0].owner().clone(), records[0].ttl().as_secs());
    records.push(record(&owner, ttl, data));
    true
}

/// Repeats a record. DNAME records are left out: Unbound rejects them.
fn twice(scene: &mut Scene<'_>) -> bool {
    let is_wanted = |set: &Set| has_records(set) && set.rtype() != Rtype::DNAME;
    let Some(set) = scene.set(is_wanted) else { return false };
    let copy = set.records[0].clone();
    set.records.push(copy);
    true
}

fn other_order(scene: &mut Scene<'_>) -> bool {
    scene.draft.sets.reverse();
    scene.draft.sets.iter_mut().for_each(|set| set.records.reverse());
    true
}

fn other_owner(scene: &mut Scene<'_>) -> bool {
    let other = scene.some_name();
    let Some(set) = scene.set(has_records) else { return false };
    set.set_owner(&other);
    true
}

fn exchanged_owners(scene: &mut Scene<'_>) -> bool {
    let (Some(one), Some(other)) = (scene.find(has_records), scene.find(has_records)) else {
        return false;
    };
    let owner =
        |index: usize, scene: &Scene<'_>| scene.draft.sets[index].records[0].owner().clone();
    let (first, second) = (owner(one, scene), owner(other, scene));
    scene.draft.sets[one].set_owner(&second);
    scene.draft.sets[other].set_owner(&first);
    first != second
}

fn mixed_owner(scene: &mut Scene<'_>) -> bool {
    let is_partial = scene.rng.random_bool(0.5);
    let Some(set) = scene.set(has_records) else { return false };
    let owner = mixed_case(set.records[0].owner());
    if is_partial {
        set_owner(&mut set.records[0], &owner);
    } else {
        set.set_owner(&owner);
    }
    true
}

fn other_section(scene: &mut Scene<'_>) -> bool {
    let section =
        scene.pick(&[Section::Answer, Section::Authority, Section::Additional]).expect("not empty");
    let Some(set) = scene.set(|set| set.section != section) else { return false };
    set.section = section;
    true
}

fn exchanged_signatures(scene: &mut Scene<'_>) -> bool {
    let (Some(one), Some(other)) = (scene.find(has_signatures), scene.find(has_signatures)) else {
        return false;
    };
    if one == other {
        return false;
    }
    let first = std::mem::take(&mut scene.draft.sets[one].signatures);
    scene.draft.sets[one].signatures =
        std::mem::replace(&mut scene.draft.sets[other].signatures, first);
    for index in [one, other] {
        let set = &mut scene.draft.sets[index];
        if let Some(record) = set.records.first() {
            let owner = record.owner().clone();
            set.signatures.iter_mut().for_each(|signature| set_owner(signature, &owner));
        }
    }
    true
}

/// Replaces a signature by that of the same type at the apex of another zone.
fn replayed_signature(scene: &mut Scene<'_>) -> bool {
    let zones: Vec<usize> = (0..scene.signer.tree.zones.len()).collect();
    let Some(zone) = scene.pick(&zones) else { return false };
    let zone = &scene.signer.tree.zones[zone];
    let Some(index) = scene.find(has_signatures) else { return false };
    let rtype = scene.draft.sets[index].rtype();
    let Some(other) = zone.sets.iter().find(|set| set.rtype() == rtype) else { return false };
    let mut other = scene.signer.signed(zone, Section::Answer, other);
    let set = &mut scene.draft.sets[index];
    let Some(owner) = set.records.first().map(|record| record.owner().clone()) else {
        return false;
    };
    let mut draft = crate::draft::Draft { rcode: scene.draft.rcode, sets: vec![other.clone()] };
    draft.sign(scene.signer.pool);
    other.signatures.clone_from(&draft.sets[0].signatures);
    other.set_owner(&owner);
    scene.draft.sets[index].signatures = other.signatures;
    true
}

fn other_ttl(scene: &mut Scene<'_>) -> bool {
    let ttl = scene.pick(&[0, 1, 299, 301, 86_400]).unwrap_or_default();
    let Some(set) = scene.set(has_records) else { return false };
    set.records.iter_mut().for_each(|record| record.set_ttl(Ttl::from_secs(ttl)));
    true
}

/// Adds an RRset without signature. Of those in the authority section, all validators check only proofs.
fn one_more_set(scene: &mut Scene<'_>) -> bool {
    let owner = scene.some_name();
    let (section, kind) = match scene.rng.random_range(..4_usize) {
        0 => (Section::Authority, format!("NSEC 0.{owner}. A")),
        1 => (Section::Additional, format!("NSEC 0.{owner}. A")),
        2 => (Section::Additional, "A 192.0.2.99".into()),
        _ => (Section::Answer, "HINFO x y".into()),
    };
    let records = records(&format!("{owner}. {kind}"));
    let is_other = |set: &Set| {
        !set.records
            .iter()
            .any(|one| one.owner() == records[0].owner() && one.rtype() == records[0].rtype())
    };
    if !scene.draft.sets.iter().all(is_other) {
        return false;
    }
    scene.draft.sets.push(Set { section, records, plans: Vec::new(), signatures: Vec::new() });
    true
}
