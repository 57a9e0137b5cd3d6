//! Changes of records before they are signed.

use domain::base::iana::{Rcode, Rtype};
use domain::base::name::ToName;
use domain::rdata::{Nsec, Nsec3, ZoneRecordData};
use rand::RngExt;
use testbed::signed::TestData;

use super::data::{change_record, changed, toggled, with_other_parameters};
use super::scene::{Mutation, Scene};
use crate::draft::{Draft, Section, Set};
use crate::keys::{ENTRY_KEY, KeyId, ZONE_KEY, ds, record};
use crate::names::mixed_case;

pub(super) const ALL: &[&Mutation] = &[
    &Mutation::new("signed: other data", other_data),
    &Mutation::new("signed: other data of DS or DNSKEY", other_key_data),
    &Mutation::new("signed: other next name or hash", other_next),
    &Mutation::new("signed: other types", other_types),
    &Mutation::new("signed: other NSEC3 parameters", other_parameters),
    &Mutation::new("signed: other owner", other_owner),
    &Mutation::new("signed: owner in mixed case", mixed_owner),
    &Mutation::new("signed: data in mixed case", mixed_data),
    &Mutation::new("signed: one more record", one_more),
    &Mutation::new("signed: one more key or DS", one_more_key),
    &Mutation::new("signed: one record less", one_less),
    &Mutation::new("signed: other TTL", other_ttl),
    &Mutation::new("other RCODE", other_rcode),
    &Mutation::new("end of the aliases missing", short_chain),
    &Mutation::new("synthesized alias signed", signed_alias),
    &Mutation::new("answer of another name", answer_of_other),
];

fn is_signed(set: &Set) -> bool {
    !set.plans.is_empty()
}

/// Changes a record. Aliases that lead to other records of the response are left out: some validators query the new
/// target, and others use these records.
fn other_data(scene: &mut Scene<'_>) -> bool {
    let queried = scene.rtype;
    let is_alias = move |rtype| matches!(rtype, Rtype::CNAME | Rtype::DNAME) && rtype != queried;
    change_record(scene, |set| is_signed(set) && !is_alias(set.rtype()))
}

fn other_key_data(scene: &mut Scene<'_>) -> bool {
    change_record(scene, |set| is_signed(set) && matches!(set.rtype(), Rtype::DS | Rtype::DNSKEY))
}

fn other_next(scene: &mut Scene<'_>) -> bool {
    change_record(scene, |set| is_signed(set) && set.is_proof())
}

/// Changes the salt or the iterations of all NSEC3 records. Some validators accept records with different parameters.
fn other_parameters(scene: &mut Scene<'_>) -> bool {
    let is_salt = scene.rng.random_bool(0.5);
    let mut is_changed = false;
    for record in scene.draft.sets.iter_mut().flat_map(|set| &mut set.records) {
        if let ZoneRecordData::Nsec3(nsec3) = record.data() {
            *record.data_mut() = ZoneRecordData::Nsec3(with_other_parameters(nsec3, is_salt));
            is_changed = true;
        }
    }
    is_changed
}

/// Changes a type bitmap. The type SOA at a wildcard is left out: it matters only to some validators.
fn other_types(scene: &mut Scene<'_>) -> bool {
    let rtype = scene.rtype;
    let Some(index) = scene.find(|set| is_signed(set) && set.is_proof()) else { return false };
    let record = &mut scene.draft.sets[index].records[0];
    let is_wildcard = record.owner().first().is_wildcard();
    let data: TestData = match record.data() {
        ZoneRecordData::Nsec(nsec) => {
            let types = toggled(nsec.types(), rtype, scene.rng);
            if is_wildcard && types.contains(Rtype::SOA) {
                return false;
            }
            ZoneRecordData::Nsec(Nsec::new(nsec.next_name().clone(), types))
        }
        ZoneRecordData::Nsec3(nsec3) => ZoneRecordData::Nsec3(Nsec3::new(
            nsec3.hash_algorithm(),
            nsec3.flags(),
            nsec3.iterations(),
            nsec3.salt().clone(),
            nsec3.next_owner().clone(),
            toggled(nsec3.types(), rtype, scene.rng),
        )),
        _ => return false,
    };
    *record.data_mut() = data;
    true
}

/// Changes the owner of an RRset. SOA records are left out, because not all validators compare their owner with the zone.
fn other_owner(scene: &mut Scene<'_>) -> bool {
    let other = scene.some_name();
    // Records at the owner of an alias would contradict it.
    let has_other = |set: &Set| set.records.iter().any(|record| *record.owner() == other);
    if scene.draft.sets.iter().any(has_other) {
        return false;
    }
    let is_wanted = |set: &Set| is_signed(set) && set.rtype() != Rtype::SOA;
    let Some(set) = scene.set(is_wanted) else { return false };
    set.set_owner(&other);
    for plan in &mut set.plans {
        plan.owner = other.clone();
        plan.labels = other.rrsig_label_count();
    }
    true
}

fn mixed_owner(scene: &mut Scene<'_>) -> bool {
    let Some(set) = scene.set(is_signed) else { return false };
    let owner = mixed_case(set.records[0].owner());
    set.set_owner(&owner);
    true
}

fn mixed_data(scene: &mut Scene<'_>) -> bool {
    let Some(set) = scene.set(is_signed) else { return false };
    let record = &mut set.records[0];
    let mut rng = rand::SeedableRng::seed_from_u64(0);
    let data = match record.data() {
        ZoneRecordData::Cname(cname) => changed(record.data(), mixed_case(cname.cname()), &mut rng),
        ZoneRecordData::Dname(dname) => changed(record.data(), mixed_case(dname.dname()), &mut rng),
        ZoneRecordData::Ns(ns) => changed(record.data(), mixed_case(ns.nsdname()), &mut rng),
        ZoneRecordData::Nsec(nsec) => {
            changed(record.data(), mixed_case(nsec.next_name()), &mut rng)
        }
        _ => None,
    };
    data.is_some_and(|data| {
        *record.data_mut() = data;
        true
    })
}

/// Adds a record. RRsets with two proofs, SOA records or aliases are left out: validators use different ones.
fn one_more(scene: &mut Scene<'_>) -> bool {
    let other = scene.some_name();
    let queried = scene.rtype;
    let is_alias = move |rtype| matches!(rtype, Rtype::CNAME | Rtype::DNAME) && rtype != queried;
    let is_single = |set: &Set| set.is_proof() || set.rtype() == Rtype::SOA;
    let is_wanted = |set: &Set| is_signed(set) && !is_single(set) && !is_alias(set.rtype());
    let Some(index) = scene.find(is_wanted) else { return false };
    let records = &mut scene.draft.sets[index].records;
    let Some(data) = changed(records[0].data(), other, scene.rng) else { return false };
    let (owner, ttl) = (records[0].owner().clone(), records[0].ttl().as_secs());
    records.push(record(&owner, ttl, data));
    true
}

/// Adds a DNSKEY record of another key pair, or its DS record.
fn one_more_key(scene: &mut Scene<'_>) -> bool {
    let pool = scene.signer.pool;
    let id = KeyId(scene.rng.random_range(..pool.len()));
    let flags = if scene.rng.random_bool(0.5) { ENTRY_KEY } else { ZONE_KEY };
    let is_first = scene.rng.random_bool(0.5);
    let is_key = |set: &Set| matches!(set.rtype(), Rtype::DS | Rtype::DNSKEY);
    let Some(set) = scene.set(is_key) else { return false };
    let owner = set.records[0].owner().clone();
    let key = pool.dnskey(id, flags);
    let data = match set.rtype() {
        Rtype::DS => ds(&owner, &key, false),
        _ => ZoneRecordData::Dnskey(key),
    };
    let at = if is_first { 0 } else { set.records.len() };
    set.records.insert(at, record(&owner, 3600, data));
    true
}

fn one_less(scene: &mut Scene<'_>) -> bool {
    let Some(index) = scene.find(|set| is_signed(set) && set.records.len() > 1) else {
        return false;
    };
    let records = &mut scene.draft.sets[index].records;
    records.remove(scene.rng.random_range(..records.len()));
    true
}

fn other_ttl(scene: &mut Scene<'_>) -> bool {
    let ttl = scene.pick(&[0, 1, 299, 301, 86_400]).unwrap_or_default();
    let Some(set) = scene.set(is_signed) else { return false };
    set.plans.iter_mut().for_each(|plan| plan.ttl = ttl);
    true
}

/// Changes the RCODE of a denial. Not all validators compare the RCODE with the records of an answer.
fn other_rcode(scene: &mut Scene<'_>) -> bool {
    if scene.draft.sets.iter().any(|set| set.section == Section::Answer) {
        return false;
    }
    scene.draft.rcode = match scene.draft.rcode {
        Rcode::NOERROR => Rcode::NXDOMAIN,
        _ => Rcode::NOERROR,
    };
    true
}

/// Removes all RRsets after the first alias.
fn short_chain(scene: &mut Scene<'_>) -> bool {
    let is_alias = |set: &Set| set.rtype() == Rtype::CNAME && set.section == Section::Answer;
    let Some(index) = scene.draft.sets.iter().position(is_alias) else { return false };
    scene.draft.sets.truncate(index + 1);
    scene.draft.rcode = Rcode::NOERROR;
    true
}

/// Signs an alias that follows from a DNAME record.
fn signed_alias(scene: &mut Scene<'_>) -> bool {
    let Some(dname) = scene.draft.sets.iter().find(|set| set.rtype() == Rtype::DNAME) else {
        return false;
    };
    let Some(plan) = dname.plans.first().cloned() else { return false };
    let is_synthesized = |set: &Set| set.rtype() == Rtype::CNAME && set.plans.is_empty();
    let Some(set) = scene.set(is_synthesized) else { return false };
    let owner = set.records[0].owner().clone();
    let labels = owner.rrsig_label_count();
    set.plans.push(crate::draft::Plan { owner, labels, covered: Rtype::CNAME, ..plan });
    true
}

/// Replaces the response by that to another question, and keeps the queried name as its owner.
fn answer_of_other(scene: &mut Scene<'_>) -> bool {
    let other = scene.some_name();
    let Draft { rcode, mut sets } = scene.signer.draft(&other, scene.rtype);
    if sets.is_empty() {
        return false;
    }
    if scene.rng.random_bool(0.5) {
        let first = &mut sets[0];
        if first.section == Section::Answer {
            first.set_owner(scene.name);
        }
    }
    *scene.draft = Draft { rcode, sets };
    true
}
