//! Replacement of NSEC3 records with more iterations than dns64d accepts (RFC 9276 §3.2). Unbound accepts 150, and many
//! scenarios have 123, so that dns64d would find all their denials insecure.
//!
//! ```text
//! names of the scenario ─► hashes with 123 iterations ─► which names does the record match or cover?
//!        │                                                      │
//!        └────────────────► hashes with 50 iterations ──────────┴─► records that match or cover the same names
//! ```
//!
//! A record that covers several names becomes several records. Signatures are made again by [`super::resign`].

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use domain::base::RecordData;
use domain::base::iana::Rtype;
use domain::base::name::{Label, RelativeName, ToName};
use domain::dnssec::common::nsec3_hash;
use domain::rdata::Nsec3;
use domain::rdata::nsec3::OwnerHash;

use super::reader::{Data, Entry, Name, Record, Scenario};

/// Maximum number of iterations that dns64d accepts.
const MOST: u16 = 50;
/// Maximum number of iterations that Unbound accepts.
const MOST_OF_UNBOUND: u16 = 150;

type Hash = OwnerHash<Vec<u8>>;

/// Place of a name's hash in an NSEC3 record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The record matches the name.
    Owner,
    /// The record covers the name.
    Span,
}

/// Returns the place of a name in an NSEC3 record, or `None` if the record neither matches nor covers it.
pub(super) fn place_in(record: &Record, nsec3: &Nsec3<Bytes>, name: &Name) -> Option<Place> {
    record.owner().parent().filter(|zone| name.ends_with(zone))?;
    let owner: Hash = record.owner().first().to_string().parse().ok()?;
    let hash = hash(name, nsec3, nsec3.iterations()).ok()?;
    if hash == owner {
        return Some(Place::Owner);
    }
    let (owner, next) = (owner.as_slice(), nsec3.next_owner().as_slice());
    let [after, before] = [owner < hash.as_slice(), hash.as_slice() < next];
    let is_covered = if owner < next { after && before } else { after || before };
    is_covered.then_some(Place::Span)
}

fn hash(name: &Name, record: &Nsec3<Bytes>, iterations: u16) -> Result<Hash> {
    nsec3_hash(name, record.hash_algorithm(), iterations, record.salt())
        .map_err(|error| anyhow::anyhow!("NSEC3 hash: {error}"))
}

/// Replaces all NSEC3 records with more iterations than dns64d accepts.
///
/// # Errors
/// Returns an error if an owner name is not a hash.
pub(super) fn rehash(scenario: &mut Scenario) -> Result<()> {
    let names = names(scenario)?;
    for entry in scenario.entries_mut() {
        for section in entry.sections_mut() {
            let old = std::mem::take(section);
            for record in &old {
                match excessive(&old, record) {
                    Some((of_record, nsec3)) => {
                        section.extend(replaced(record, of_record, nsec3, &names)?);
                    }
                    None => section.push(record.clone()),
                }
            }
        }
    }
    Ok(())
}

/// Returns the NSEC3 record with too many iterations which a record is, or which a signature covers.
fn excessive<'a>(
    section: &'a [Record],
    record: &'a Record,
) -> Option<(&'a Record, &'a Nsec3<Bytes>)> {
    let is_one = match record.data() {
        Data::Rrsig(signature) => signature.type_covered() == Rtype::NSEC3,
        data => data.rtype() == Rtype::NSEC3,
    };
    let mut of_owner = section.iter().filter(|other| is_one && other.owner() == record.owner());
    let found = of_owner.find_map(|other| match other.data() {
        Data::Nsec3(nsec3) => Some((other, nsec3)),
        _ => None,
    });
    found.filter(|(_, nsec3)| (MOST + 1..=MOST_OF_UNBOUND).contains(&nsec3.iterations()))
}

/// Returns the names that denials can be about: all names of questions and records, their ancestors, and the wildcards
/// below these.
fn names(scenario: &Scenario) -> Result<BTreeSet<Name>> {
    let mut names = BTreeSet::new();
    let questions = scenario.entries().filter_map(|entry| entry.question.as_ref());
    let records = scenario.entries().flat_map(Entry::records);
    let owners = records.filter(|record| record.rtype() != Rtype::NSEC3).map(Record::owner);
    let wildcard = RelativeName::wildcard_bytes();
    for name in questions.map(|(name, _)| name).chain(owners) {
        for suffix in name.iter_suffixes() {
            names.insert(suffix.to_canonical_name());
            if suffix.first() != Label::wildcard() {
                let below = wildcard.clone().chain(&suffix);
                names.insert(below.context("a name that is too long")?.to_canonical_name());
            }
        }
    }
    Ok(names)
}

/// Returns the records that match and cover the same names as an NSEC3 record, with fewer iterations. For a signature,
/// returns one for each of these records.
fn replaced(
    record: &Record,
    of_record: &Record,
    nsec3: &Nsec3<Bytes>,
    names: &BTreeSet<Name>,
) -> Result<Vec<Record>> {
    let zone = record.owner().parent().context("an NSEC3 record of the root")?;
    let (mut matched, mut covered) = (Vec::new(), Vec::new());
    for name in names {
        let new = hash(name, nsec3, MOST)?;
        match place_in(of_record, nsec3, name) {
            Some(Place::Owner) => matched.push((new.clone(), moved(&new, true))),
            Some(Place::Span) => covered.push((moved(&new, false), moved(&new, true))),
            None => {}
        }
    }
    ensure!(
        matched.is_empty() || covered.is_empty(),
        "{}: an NSEC3 record that matches a name and covers another",
        record.owner()
    );
    let spans = matched.into_iter().chain(covered);
    spans.map(|(from, to)| with_span(record, &zone, nsec3, &from, to)).collect()
}

/// Returns the next or the previous hash.
fn moved(hash: &Hash, is_up: bool) -> Hash {
    let mut octets = hash.as_slice().to_vec();
    for octet in octets.iter_mut().rev() {
        *octet = if is_up { octet.wrapping_add(1) } else { octet.wrapping_sub(1) };
        if *octet != if is_up { 0 } else { 255 } {
            break;
        }
    }
    OwnerHash::from_octets(octets).unwrap_or_else(|_| hash.clone())
}

/// Returns an NSEC3 record, or a signature of one, with another span.
fn with_span(
    record: &Record,
    zone: &impl ToName,
    nsec3: &Nsec3<Bytes>,
    from: &Hash,
    to: Hash,
) -> Result<Record> {
    let label = RelativeName::from_octets(label(&from.to_string()))?;
    let owner = label.chain(zone).context("a name that is too long")?.to_bytes();
    let data = match record.data() {
        Data::Nsec3(_) => Data::Nsec3(Nsec3::new(
            nsec3.hash_algorithm(),
            nsec3.flags(),
            MOST,
            nsec3.salt().clone(),
            OwnerHash::from_octets(Bytes::from(to.into_octets()))?,
            nsec3.types().clone(),
        )),
        other => other.clone(),
    };
    Ok(Record::new(owner, record.class(), record.ttl(), data))
}

/// Returns a label in wire format. A hash in Base 32 has 32 characters.
fn label(text: &str) -> Bytes {
    let mut octets = vec![text.len() as u8];
    octets.extend_from_slice(text.as_bytes());
    octets.into()
}

#[cfg(test)]
mod tests {
    use super::super::reader::testing::scenario;
    use super::*;

    #[test]
    fn new_records_match_and_cover_the_same_names() {
        // The first record matches example.com, and the second one covers www.example.com.
        let mut scenario =
            scenario(&["MATCH opcode qtype qname\nREPLY QR NXDOMAIN\nSECTION QUESTION\n\
            www.example.com. IN A\nSECTION AUTHORITY\n\
            b6fuorg741ufili49mg9j4328ig53sqg.example.com. IN NSEC3 1 1 123 aabb00123456bbccdd \
            b6fuorg741ufili49mg9j4328ig54sqg NS SOA\n\
            s1unhcti19bkdr98fegs0v46mbu3t4m2.example.com. NSEC3 1 1 123 aabb00123456bbccdd \
            s1unhcti19bkdr98fegs0v46mbu3t4m4 A\n"]);
        let places = |scenario: &Scenario| -> Vec<_> {
            let records = &scenario.ranges[0].entries[0].authority;
            let places = records.iter().map(|record| {
                let Data::Nsec3(nsec3) = record.data() else { panic!("{record:?}") };
                let place = |name: &str| place_in(record, nsec3, &name.parse().unwrap());
                (place("example.com."), place("www.example.com."), place("other.example.com."))
            });
            places.collect()
        };
        let expected = [(Some(Place::Owner), None, None), (None, Some(Place::Span), None)];
        assert_eq!(places(&scenario), expected);
        rehash(&mut scenario).unwrap();
        assert_eq!(places(&scenario), expected);
        let Data::Nsec3(nsec3) = scenario.ranges[0].entries[0].authority[0].data() else {
            panic!()
        };
        assert_eq!((nsec3.iterations(), nsec3.flags()), (MOST, 1));
    }
}
