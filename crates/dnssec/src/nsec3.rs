//! Proofs with NSEC3 records (RFC 5155 §8).

use std::collections::HashMap;

use bytes::Bytes;
use domain::base::iana::{Nsec3HashAlgorithm, Rtype};
use domain::dnssec::common::nsec3_hash;
use domain::rdata::AllRecordData;
use domain::rdata::dnssec::RtypeBitmap;
use domain::rdata::nsec3::{Nsec3Salt, OwnerHash};
use domain::utils::base32;

use crate::limits::{Limit, Limits, Work};
use crate::name::Name;
use crate::proof::{Delegation, Proof, lacks, wildcard_below};
use crate::rrset::{Data, RrSet};
use crate::verdict::Fault;

/// Length of a hash with SHA-1.
const HASH_OCTETS: usize = 20;

/// Parameters of the hashes of a zone (RFC 5155 §3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) iterations: u16,
    salt: Nsec3Salt<Bytes>,
}

/// An NSEC3 record with a valid signature.
#[derive(Debug)]
pub(crate) struct Nsec3 {
    pub(crate) parameters: Parameters,
    owner: Vec<u8>,
    next: OwnerHash<Bytes>,
    opt_out: bool,
    types: RtypeBitmap<Bytes>,
}

impl Nsec3 {
    /// Returns the usable records of an RRset. All of them have the same hash, which is the label of the owner name
    /// directly below the zone. If one of them has the flag Opt-Out, it applies to all.
    pub(crate) fn all_of_set(set: &RrSet, zone: &Name) -> Vec<Nsec3> {
        let Some(owner) = owner_hash(&set.owner, zone) else { return Vec::new() };
        let opt_out =
            |data: &Data| matches!(data, AllRecordData::Nsec3(record) if record.opt_out());
        let opt_out = set.data().any(opt_out);
        let usable = |data: &Data| match data {
            AllRecordData::Nsec3(record) if is_usable(record) => Some(Nsec3 {
                parameters: Parameters {
                    iterations: record.iterations(),
                    salt: record.salt().clone(),
                },
                owner: owner.clone(),
                next: record.next_owner().clone(),
                opt_out,
                types: record.types().clone(),
            }),
            _ => None,
        };
        set.data().filter_map(usable).collect()
    }

    fn covers(&self, hash: &[u8]) -> bool {
        let (owner, next) = (self.owner.as_slice(), self.next.as_slice());
        let after = hash > owner;
        if next > owner { after && hash < next } else { after || hash < next }
    }

    fn is_delegation(&self) -> bool {
        self.types.contains(Rtype::NS) && !self.types.contains(Rtype::SOA)
    }

    /// True if the record proves that the name with its hash has no records of the type and no alias (RFC 5155 §8.5,
    /// §8.6).
    fn lacks(&self, rtype: Rtype) -> bool {
        let of_right_side = if rtype == Rtype::DS {
            !self.types.contains(Rtype::SOA)
        } else {
            !self.is_delegation()
        };
        of_right_side && lacks(&self.types, rtype)
    }
}

/// NSEC3 records of one zone with the same parameters.
pub(crate) struct Chain<'a> {
    zone: &'a Name,
    records: &'a [Nsec3],
    parameters: &'a Parameters,
    hashes: HashMap<Name, OwnerHash<Vec<u8>>>,
    limits: &'a Limits,
    work: &'a mut Work,
}

/// The closest encloser of a name that does not exist (RFC 5155 §8.3).
struct Encloser {
    name: Name,
    /// True if the record that covers the next closer name has the flag Opt-Out. The next closer name may then be an
    /// unsigned delegation.
    opt_out: bool,
}

impl<'a> Chain<'a> {
    /// Returns the records of a zone, or `None` if there are none.
    pub(crate) fn new(
        zone: &'a Name,
        records: &'a [Nsec3],
        limits: &'a Limits,
        work: &'a mut Work,
    ) -> Option<Chain<'a>> {
        let parameters = &records.first()?.parameters;
        Some(Chain { zone, records, parameters, hashes: HashMap::new(), limits, work })
    }

    /// Proves that a name has no records of a type.
    ///
    /// # Errors
    /// Returns a fault if the limit on hashes is reached.
    pub(crate) fn no_data(&mut self, name: &Name, rtype: Rtype) -> Result<Proof, Fault> {
        if let Some(record) = self.matching(name)? {
            return Ok(if record.lacks(rtype) { Proof::Given } else { Proof::Missing });
        }
        let Some(encloser) = self.closest_encloser(name)? else { return Ok(Proof::Missing) };
        if let Some(wildcard) = wildcard_below(&encloser.name)
            && let Some(record) = self.matching(&wildcard)?
        {
            return Ok(if record.lacks(rtype) { encloser.proof() } else { Proof::Missing });
        }
        // RFC 5155 §8.6, and erratum 3441 for types other than DS.
        Ok(if encloser.opt_out { Proof::OptOut } else { Proof::Missing })
    }

    /// Proves that a name does not exist and that no wildcard matches it.
    ///
    /// # Errors
    /// Returns a fault if the limit on hashes is reached.
    pub(crate) fn no_name(&mut self, name: &Name) -> Result<Proof, Fault> {
        let Some(encloser) = self.closest_encloser(name)? else { return Ok(Proof::Missing) };
        let Some(wildcard) = wildcard_below(&encloser.name) else { return Ok(Proof::Missing) };
        let is_absent = self.covering(&wildcard)?.is_some();
        Ok(if is_absent { encloser.proof() } else { Proof::Missing })
    }

    /// Proves that a name does not exist, and that `encloser` is its closest encloser (RFC 5155 §8.8).
    ///
    /// # Errors
    /// Returns a fault if the limit on hashes is reached.
    pub(crate) fn no_closer_name(&mut self, name: &Name, encloser: &Name) -> Result<Proof, Fault> {
        let Some(next) = next_closer(name, encloser) else { return Ok(Proof::Missing) };
        Ok(match self.covering(&next)? {
            Some(record) if record.opt_out => Proof::OptOut,
            Some(_) => Proof::Given,
            None => Proof::Missing,
        })
    }

    /// Returns what the records prove about a delegation at this name.
    ///
    /// # Errors
    /// Returns a fault if the limit on hashes is reached.
    pub(crate) fn delegation(&mut self, name: &Name) -> Result<Delegation, Fault> {
        if let Some(record) = self.matching(name)? {
            let types = &record.types;
            return Ok(match (types.contains(Rtype::DS), types.contains(Rtype::SOA)) {
                (true, _) | (false, true) => Delegation::Unproven,
                (false, false) if types.contains(Rtype::NS) => Delegation::Unsigned,
                (false, false) => Delegation::None,
            });
        }
        Ok(match self.closest_encloser(name)? {
            Some(encloser) if encloser.opt_out => Delegation::Unsigned,
            Some(_) => Delegation::None,
            None => Delegation::Unproven,
        })
    }

    /// Returns the closest encloser of a name, if the records prove that the name does not exist.
    fn closest_encloser(&mut self, name: &Name) -> Result<Option<Encloser>, Fault> {
        let mut next: Option<Name> = None;
        for candidate in name.iter_suffixes() {
            if !candidate.ends_with(self.zone) {
                break;
            }
            if let Some(record) = self.matching(&candidate)? {
                if record.is_delegation() || record.types.contains(Rtype::DNAME) {
                    return Ok(None);
                }
                let Some(next) = next else { return Ok(None) };
                let covering = self.covering(&next)?;
                return Ok(
                    covering.map(|record| Encloser { name: candidate, opt_out: record.opt_out })
                );
            }
            next = Some(candidate);
        }
        Ok(None)
    }

    fn matching(&mut self, name: &Name) -> Result<Option<&'a Nsec3>, Fault> {
        let hash = self.hash(name)?;
        Ok(self.of_chain().find(|record| record.owner == hash))
    }

    fn covering(&mut self, name: &Name) -> Result<Option<&'a Nsec3>, Fault> {
        let hash = self.hash(name)?;
        Ok(self.of_chain().find(|record| record.covers(&hash)))
    }

    fn of_chain(&self) -> impl Iterator<Item = &'a Nsec3> + use<'a> {
        let parameters = self.parameters;
        self.records.iter().filter(move |record| record.parameters == *parameters)
    }

    fn hash(&mut self, name: &Name) -> Result<Vec<u8>, Fault> {
        if let Some(known) = self.hashes.get(name) {
            return Ok(known.as_slice().to_vec());
        }
        self.work.begin_hash(self.limits).map_err(Fault::Limit)?;
        let Parameters { iterations, salt } = self.parameters;
        let hash: OwnerHash<Vec<u8>> =
            nsec3_hash(name, Nsec3HashAlgorithm::SHA1, *iterations, salt)
                .map_err(|_| Fault::Limit(Limit::Hashes))?;
        let octets = hash.as_slice().to_vec();
        self.hashes.insert(name.clone(), hash);
        Ok(octets)
    }
}

impl Encloser {
    fn proof(&self) -> Proof {
        if self.opt_out { Proof::OptOut } else { Proof::Given }
    }
}

/// Returns the hash in the owner name of a record, which is directly below the zone.
pub(crate) fn owner_hash(owner: &Name, zone: &Name) -> Option<Vec<u8>> {
    if owner.parent()? != *zone {
        return None;
    }
    let label = std::str::from_utf8(owner.first().as_slice()).ok()?.to_owned();
    base32::decode_hex(&label).ok().filter(|hash: &Vec<u8>| hash.len() == HASH_OCTETS)
}

/// True if the hash algorithm and all flags are known (RFC 5155 §8.1, §8.2), and the next hash has the right length.
fn is_usable(record: &domain::rdata::Nsec3<Bytes>) -> bool {
    record.hash_algorithm() == Nsec3HashAlgorithm::SHA1
        && record.flags() <= 1
        && record.next_owner().as_slice().len() == HASH_OCTETS
}

/// Returns the ancestor of `name` with one label more than `encloser`.
fn next_closer(name: &Name, encloser: &Name) -> Option<Name> {
    let labels = encloser.label_count() + 1;
    name.iter_suffixes().find(|suffix| suffix.label_count() == labels)
}
