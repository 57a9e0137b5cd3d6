//! Proofs of non-existence, by NSEC (RFC 4035 §3.1.3) or NSEC3 (RFC 5155 §7.2).
//!
//! A signed zone has no fixed list of names, because every nonce creates a new name. Each proof is therefore generated
//! for one query and denies only the queried name (RFC 4470, RFC 7129 appendix B).

use domain::base::ToName;
use domain::base::iana::Rtype;
use domain::dnssec::common::nsec3_default_hash;
use domain::rdata::dnssec::RtypeBitmap;
use domain::utils::base32;

use crate::label::{self, Tree};
use crate::message::{Name, Record};

/// Statement about a name that is proved by NSEC or NSEC3 records.
pub(super) enum Denial<'a> {
    /// The name has records of only these types.
    NoData(&'a [Rtype]),
    /// The name does not exist.
    NoName,
    /// The name exists only because of a wildcard.
    Expanded,
}

/// Zone for which a proof is generated.
pub(super) struct Chain<'a> {
    /// Kind of the zone, which selects NSEC or NSEC3.
    pub(super) tree: Tree,
    /// The apex of the zone.
    pub(super) apex: &'a Name,
    /// TTL of the NSEC and NSEC3 records, which is the negative TTL of the zone (RFC 9077 §3).
    pub(super) ttl: u32,
}

impl Chain<'_> {
    /// Returns the NSEC or NSEC3 records that prove the statement `denial` about `name`, which must be in lower case.
    /// If the name comes from a wildcard, `wildcard` is the parent of the wildcard. Returns no records if their names
    /// would be too long.
    pub(super) fn prove(
        &self,
        denial: &Denial<'_>,
        name: &Name,
        wildcard: Option<&Name>,
    ) -> Vec<Record> {
        let Some(encloser) = wildcard.cloned().or_else(|| suffix(name, name.label_count() - 1))
        else {
            return Vec::new();
        };
        // One label longer than the closest encloser (RFC 5155 §1.3).
        let next_closer = || self.covers(&suffix(name, encloser.label_count() + 1)?);
        let star = label::prepend("*", &encloser);
        let records = match denial {
            Denial::NoData(types) if wildcard.is_none() => vec![self.matches(name, types)],
            Denial::NoData(types) => {
                vec![self.encloses(&encloser), next_closer(), self.matches(&star, types)]
            }
            Denial::NoName => vec![self.encloses(&encloser), next_closer(), self.covers(&star)],
            Denial::Expanded => vec![next_closer()],
        };
        records.into_iter().flatten().collect()
    }

    /// Returns the record that proves which ancestor of the name is its closest encloser. Only NSEC3 needs such a
    /// record, because the names in NSEC records reveal the closest encloser.
    fn encloses(&self, encloser: &Name) -> Option<Record> {
        (self.tree == Tree::Nsec3).then(|| self.matches(encloser, &[]))?
    }

    /// Returns an NSEC or NSEC3 record that has the name (or its hash) as its owner and lists the types of the name.
    /// The next name in the record is the immediate successor of the owner.
    fn matches(&self, name: &Name, types: &[Rtype]) -> Option<Record> {
        if self.tree == Tree::Nsec3 {
            let hash = hash(name)?;
            return self.nsec3(&hash, &next(hash.clone()), types);
        }
        Some(self.nsec(name.clone(), &before(b"\0", name)?, types))
    }

    /// Returns an NSEC or NSEC3 record that denies the existence of a name. The interval of an NSEC3 record contains
    /// only the hash of this name. The interval of an NSEC record contains this name and all names below it.
    fn covers(&self, name: &Name) -> Option<Record> {
        if self.tree == Tree::Nsec3 {
            let hash = hash(name)?;
            return self.nsec3(&previous(hash.clone()), &next(hash), &[]);
        }
        let (label, parent) = (name.first().as_slice(), suffix(name, name.label_count() - 1)?);
        let (last, rest) = label.split_last()?;
        let smaller = [rest, &[last.checked_sub(1)?, 0xff]].concat();
        let greater = [label, b"\0"].concat();
        Some(self.nsec(before(&smaller, &parent)?, &before(&greater, &parent)?, &[]))
    }

    fn nsec(&self, owner: Name, next: &Name, types: &[Rtype]) -> Record {
        let types = bitmap(types.iter().copied().chain([Rtype::RRSIG, Rtype::NSEC]));
        Record::new(owner, Rtype::NSEC, self.ttl, [next.as_slice(), &types].concat())
    }

    fn nsec3(&self, owner: &[u8], next: &[u8], types: &[Rtype]) -> Option<Record> {
        let owner = base32::encode_string_hex(owner).to_lowercase();
        // A name without records has no signatures (RFC 5155 §7.1).
        let signed = (!types.is_empty()).then_some(Rtype::RRSIG);
        let types = bitmap(types.iter().copied().chain(signed));
        // SHA-1, no flags, no additional iterations, no salt, as in the NSEC3PARAM record.
        let fixed = [1, 0, 0, 0, 0, u8::try_from(next.len()).ok()?];
        let data = [&fixed, next, &types].concat();
        Some(Record::new(before(owner.as_bytes(), self.apex)?, Rtype::NSEC3, self.ttl, data))
    }
}

/// Returns the last `labels` labels of a name, including the root label.
fn suffix(name: &Name, labels: usize) -> Option<Name> {
    let skipped = name.label_count().checked_sub(labels)?;
    name.iter_suffixes().nth(skipped).map(|name| name.to_name())
}

/// Prepends a label, which may contain any octets, to a name.
fn before(label: &[u8], name: &Name) -> Option<Name> {
    let len = u8::try_from(label.len()).ok()?;
    Name::from_octets([&[len], label, name.as_slice()].concat()).ok()
}

fn hash(name: &Name) -> Option<Vec<u8>> {
    nsec3_default_hash::<_, Vec<u8>>(name).ok().map(|hash| hash.into_octets())
}

/// Adds one to the hash, which is treated as a number, and returns the sum.
fn next(mut hash: Vec<u8>) -> Vec<u8> {
    for octet in hash.iter_mut().rev() {
        *octet = octet.wrapping_add(1);
        if *octet != 0 {
            break;
        }
    }
    hash
}

/// Subtracts one from the hash, which is treated as a number, and returns the difference.
fn previous(mut hash: Vec<u8>) -> Vec<u8> {
    for octet in hash.iter_mut().rev() {
        *octet = octet.wrapping_sub(1);
        if *octet != 0xff {
            break;
        }
    }
    hash
}

fn bitmap(types: impl Iterator<Item = Rtype>) -> Vec<u8> {
    let mut bitmap = RtypeBitmap::<Vec<u8>>::builder();
    for rtype in types {
        // Appending to a vector cannot fail.
        let Ok(()) = bitmap.add(rtype);
    }
    bitmap.finalize().as_slice().to_vec()
}
