//! Proofs with NSEC records (RFC 4035 §5.4, RFC 6840 §4).

use bytes::Bytes;
use domain::base::iana::Rtype;
use domain::base::name::ToName;
use domain::rdata::AllRecordData;
use domain::rdata::dnssec::RtypeBitmap;

use crate::name::Name;
use crate::proof::{Delegation, Proof, lacks, wildcard_below};
use crate::rrset::RrSet;

/// An NSEC record with a valid signature.
#[derive(Debug)]
pub(crate) struct Nsec {
    owner: Name,
    next: Name,
    types: RtypeBitmap<Bytes>,
}

impl Nsec {
    /// Returns the record of an RRset, or `None` if the RRset has more than one record, or if one of the two names is not
    /// in the zone (RFC 4034 §4.1.1). The next name may be above the zone, which Unbound and BIND accept too.
    pub(crate) fn from_set(set: &RrSet, zone: &Name) -> Option<Nsec> {
        let mut data = set.data();
        let (AllRecordData::Nsec(nsec), None) = (data.next()?, data.next()) else { return None };
        let next: Name = nsec.next_name().to_canonical_name();
        let owner = set.owner.clone();
        let are_in_zone = owner.ends_with(zone) && (next.ends_with(zone) || zone.ends_with(&next));
        are_in_zone.then(|| Nsec { owner, next, types: nsec.types().clone() })
    }

    /// True if the record proves that no name lies between its owner and its next name, and `name` lies there. If the
    /// next name is not after the owner, the record is the last one of the zone, and the next name is the apex (RFC 4034
    /// §4.1.1). Like Unbound, this function accepts another name instead of the apex, but only for the names below it.
    fn covers(&self, name: &Name) -> bool {
        let is_last = self.next <= self.owner;
        let before_next = if is_last { name.ends_with(&self.next) } else { *name < self.next };
        *name > self.owner && before_next
    }

    /// True if names below `name` exist, although `name` has no records (empty non-terminal).
    fn is_above_next(&self, name: &Name) -> bool {
        self.covers(name) && self.next.ends_with(name)
    }

    /// True if the record is of the parent side of a delegation.
    fn is_delegation(&self) -> bool {
        self.types.contains(Rtype::NS) && !self.types.contains(Rtype::SOA)
    }

    /// True if the record proves nothing about `name`, because `name` is below a delegation or a DNAME record (RFC 6840
    /// §4.1).
    fn excludes_below(&self, name: &Name) -> bool {
        let below = name.ends_with(&self.owner) && *name != self.owner;
        below && (self.is_delegation() || self.types.contains(Rtype::DNAME))
    }

    /// True if the record proves that its owner has no records of the type and no alias.
    fn lacks(&self, rtype: Rtype) -> bool {
        let of_right_side = if rtype == Rtype::DS {
            !self.types.contains(Rtype::SOA) || self.owner.is_root()
        } else {
            !self.is_delegation()
        };
        of_right_side && lacks(&self.types, rtype)
    }

    /// Returns the longest ancestor of `name` that exists, if this record covers `name`.
    fn closest_encloser(&self, name: &Name) -> Name {
        let mut ancestors = name.iter_suffixes();
        let exists = |one: &Name| self.owner.ends_with(one) || self.next.ends_with(one);
        ancestors.find(exists).unwrap_or_else(Name::root_bytes)
    }
}

/// Proves that a name has no records of a type.
pub(crate) fn no_data(records: &[Nsec], name: &Name, rtype: Rtype) -> Proof {
    if exists_without(records, name, rtype) {
        return Proof::Given;
    }
    let Some(encloser) = absent(records, name) else { return Proof::Missing };
    let wildcard = wildcard_below(&encloser);
    match wildcard {
        Some(wildcard) if exists_without(records, &wildcard, rtype) => Proof::Given,
        _ => Proof::Missing,
    }
}

/// Proves that a name does not exist and that no wildcard matches it. A record whose owner or next name is the name, or
/// below it, proves the opposite.
pub(crate) fn no_name(records: &[Nsec], name: &Name) -> Proof {
    let contradicts = |record: &Nsec| record.owner.ends_with(name) || record.next.ends_with(name);
    if records.iter().any(contradicts) {
        return Proof::Missing;
    }
    let wildcard = absent(records, name).and_then(|encloser| wildcard_below(&encloser));
    match wildcard {
        Some(wildcard) if absent(records, &wildcard).is_some() => Proof::Given,
        _ => Proof::Missing,
    }
}

/// Proves that a name does not exist, and that `encloser` is its closest encloser. The name was then answered from the
/// wildcard below `encloser`.
pub(crate) fn no_closer_name(records: &[Nsec], name: &Name, encloser: &Name) -> Proof {
    match absent(records, name) {
        Some(found) if found == *encloser => Proof::Given,
        _ => Proof::Missing,
    }
}

/// Returns what the records prove about a delegation at this name.
pub(crate) fn delegation(records: &[Nsec], name: &Name) -> Delegation {
    for record in records {
        if record.owner == *name {
            let types = &record.types;
            return match (types.contains(Rtype::DS), types.contains(Rtype::SOA)) {
                (true, _) | (false, true) => Delegation::Unproven,
                (false, false) if types.contains(Rtype::NS) => Delegation::Unsigned,
                (false, false) => Delegation::None,
            };
        }
        if record.is_above_next(name) {
            return Delegation::None;
        }
    }
    if absent(records, name).is_some() { Delegation::None } else { Delegation::Unproven }
}

/// True if a name exists, or has names below it, and has no records of a type.
fn exists_without(records: &[Nsec], name: &Name, rtype: Rtype) -> bool {
    records
        .iter()
        .any(|record| (record.owner == *name && record.lacks(rtype)) || record.is_above_next(name))
}

/// Returns the closest encloser of a name if the records prove that the name does not exist.
fn absent(records: &[Nsec], name: &Name) -> Option<Name> {
    let proves = |record: &&Nsec| {
        record.covers(name) && !record.is_above_next(name) && !record.excludes_below(name)
    };
    records.iter().find(proves).map(|record| record.closest_encloser(name))
}
