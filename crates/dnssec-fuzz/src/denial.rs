//! NSEC and NSEC3 records of a zone.

use std::collections::BTreeSet;

use domain::base::iana::{Nsec3HashAlgorithm, Rtype};
use domain::base::name::ToName;
use domain::dnssec::common::nsec3_hash;
use domain::rdata::dnssec::RtypeBitmap;
use domain::rdata::nsec3::{Nsec3Salt, OwnerHash};
use domain::rdata::{Nsec, Nsec3, ZoneRecordData};
use domain::utils::base32;
use testbed::signed::TestName;

use crate::names::{below, next_closer, parent};
use crate::tree::{Denial, Rrset, Zone};

/// Claim that a response makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The name has no records of the type.
    NoData,
    /// The name does not exist.
    NoName,
    /// The name does not exist, and the response is from a wildcard.
    Wildcard,
}

/// TTL of the records, in seconds.
const TTL: u32 = 60;

impl Zone {
    /// Returns the RRsets that prove a claim about a name.
    pub(crate) fn proof(&self, name: &TestName, claim: Claim) -> Vec<Rrset> {
        if !self.is_signed() {
            return Vec::new();
        }
        let mut sets = match &self.denial {
            Denial::Nsec { .. } => self.nsec_proof(name, claim),
            Denial::Nsec3 { .. } => self.nsec3_proof(name, claim),
        };
        sets.sort_by(|one, other| one.owner.cmp(&other.owner));
        sets.dedup_by(|one, other| one.owner == other.owner);
        sets
    }

    /// Returns the record whose owner is this name, or between whose owner and next name it lies.
    pub(crate) fn record_at(&self, name: &TestName) -> Rrset {
        match &self.denial {
            Denial::Nsec { .. } => self.nsec(name),
            Denial::Nsec3 { iterations, salt, .. } => {
                let hash = hash(name, *iterations, salt);
                let chain = self.hashed();
                let matching = chain.iter().position(|(one, _)| *one == hash);
                self.nsec3(&chain, matching.unwrap_or_else(|| covering(&chain, &hash)))
            }
        }
    }

    /// Returns the longest ancestor of a name that exists.
    pub(crate) fn closest_encloser(&self, name: &TestName) -> TestName {
        let mut encloser = name.clone();
        while encloser != self.apex && !self.exists(&encloser) {
            match parent(&encloser) {
                Some(parent) => encloser = parent,
                None => return self.apex.clone(),
            }
        }
        encloser
    }

    fn nsec_proof(&self, name: &TestName, claim: Claim) -> Vec<Rrset> {
        let wildcard = below("*", &self.closest_encloser(name));
        let is_of_wildcard = !self.exists(name) && claim != Claim::Wildcard;
        let mut sets = vec![self.nsec(name)];
        sets.extend(is_of_wildcard.then(|| self.nsec(&wildcard)));
        sets
    }

    /// Returns the NSEC record whose owner is the name, or the last one before it.
    fn nsec(&self, name: &TestName) -> Rrset {
        let owners: BTreeSet<&TestName> = self.sets.iter().map(|set| &set.owner).collect();
        let owner = owners.iter().rfind(|owner| **owner <= name).map_or(&self.apex, |owner| *owner);
        let end = match &self.denial {
            Denial::Nsec { end } => end,
            Denial::Nsec3 { .. } => &self.apex,
        };
        let next = owners.iter().find(|other| **other > owner).map_or(end, |next| next);
        let mut types = self.types(owner);
        types.extend([Rtype::RRSIG, Rtype::NSEC]);
        let nsec = Nsec::new(next.clone(), bitmap(&types));
        Rrset { owner: owner.clone(), data: vec![ZoneRecordData::Nsec(nsec)], ttl: TTL }
    }

    fn nsec3_proof(&self, name: &TestName, claim: Claim) -> Vec<Rrset> {
        let Denial::Nsec3 { iterations, salt, .. } = &self.denial else { return Vec::new() };
        let chain = self.hashed();
        let of = |name: &TestName| hash(name, *iterations, salt);
        let matching = |name: &TestName| {
            let wanted = of(name);
            chain.iter().position(|(hash, _)| *hash == wanted)
        };
        let cover = |name: &TestName| covering(&chain, &of(name));
        if let Some(index) = matching(name) {
            return vec![self.nsec3(&chain, index)];
        }
        // An unsigned delegation may be absent from the chain (Opt-Out).
        let mut encloser = parent(name).unwrap_or_else(|| self.apex.clone());
        while encloser != self.apex && matching(&encloser).is_none() {
            encloser = parent(&encloser).unwrap_or_else(|| self.apex.clone());
        }
        let mut indices = vec![cover(&next_closer(name, &encloser))];
        if claim != Claim::Wildcard {
            let wildcard = below("*", &encloser);
            indices.extend(matching(&encloser));
            if !self.is_cut(name) {
                indices.push(matching(&wildcard).unwrap_or_else(|| cover(&wildcard)));
            }
        }
        indices.into_iter().map(|index| self.nsec3(&chain, index)).collect()
    }

    /// Returns the hashes of the names of the zone in order, each with the name.
    fn hashed(&self) -> Vec<(Vec<u8>, TestName)> {
        let Denial::Nsec3 { iterations, salt, opt_out } = &self.denial else { return Vec::new() };
        let is_omitted = |owner: &TestName| {
            *opt_out && self.is_cut(owner) && self.set(owner, Rtype::DS).is_none()
        };
        let mut names = BTreeSet::new();
        for set in self.sets.iter().filter(|set| !is_omitted(&set.owner)) {
            let mut name = Some(set.owner.clone());
            while let Some(one) = name.filter(|name| name.ends_with(&self.apex)) {
                name = parent(&one);
                names.insert(one);
            }
        }
        let mut chain: Vec<_> =
            names.into_iter().map(|name| (hash(&name, *iterations, salt), name)).collect();
        chain.sort();
        chain
    }

    fn nsec3(&self, chain: &[(Vec<u8>, TestName)], index: usize) -> Rrset {
        let Denial::Nsec3 { iterations, salt, opt_out } = &self.denial else {
            return self.nsec(&self.apex);
        };
        let (owner, name) = &chain[index];
        let next = &chain[(index + 1) % chain.len()].0;
        let mut types = self.types(name);
        let has_signatures = types.contains(&Rtype::DS) || !self.is_cut(name);
        if has_signatures && !types.is_empty() {
            types.push(Rtype::RRSIG);
        }
        let nsec3 = Nsec3::new(
            Nsec3HashAlgorithm::SHA1,
            (*opt_out).into(),
            *iterations,
            salt.clone(),
            OwnerHash::from_octets(next.clone()).expect("a hash is short"),
            bitmap(&types),
        );
        let owner = below(&base32::encode_string_hex(owner).to_lowercase(), &self.apex);
        Rrset { owner, data: vec![ZoneRecordData::Nsec3(nsec3)], ttl: TTL }
    }
}

/// Returns the index of the last hash before this one.
fn covering(chain: &[(Vec<u8>, TestName)], hash: &[u8]) -> usize {
    let before = chain.iter().filter(|(one, _)| one.as_slice() < hash).count();
    before.checked_sub(1).unwrap_or(chain.len() - 1)
}

/// Returns the NSEC3 hash of a name.
pub(crate) fn hash(name: &TestName, iterations: u16, salt: &Nsec3Salt<Vec<u8>>) -> Vec<u8> {
    let name: TestName = name.to_canonical_name();
    let hash: OwnerHash<Vec<u8>> =
        nsec3_hash(name, Nsec3HashAlgorithm::SHA1, iterations, salt).expect("a supported hash");
    hash.into_octets()
}

/// Returns a type bitmap.
pub(crate) fn bitmap(types: &[Rtype]) -> RtypeBitmap<Vec<u8>> {
    let mut builder = RtypeBitmap::<Vec<u8>>::builder();
    for rtype in types {
        builder.add(*rtype).expect("a vector can grow");
    }
    builder.finalize()
}
