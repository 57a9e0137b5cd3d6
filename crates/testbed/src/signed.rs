//! Signed zones for tests: keys, signed records, and the responses of a resolver to queries for DS and DNSKEY records.

use std::str::FromStr;

use bytes::Bytes;
use domain::base::iana::{Class, DigestAlgorithm, Rcode, Rtype};
use domain::base::name::FlattenInto;
use domain::base::rdata::ComposeRecordData;
use domain::base::{MessageBuilder, Record, Serial, Ttl};
use domain::crypto::common::{DigestBuilder, DigestType};
use domain::crypto::sign::{GenerateParams, KeyPair, generate};
use domain::dnssec::sign::keys::SigningKey;
use domain::dnssec::sign::records::Rrset;
use domain::dnssec::sign::signatures::rrsigs::sign_rrset;
use domain::rdata::dnssec::Timestamp;
use domain::rdata::{Ds, ZoneRecordData};
use domain::zonefile::inplace::{Entry, Zonefile};

/// A name in a test.
pub type TestName = domain::base::Name<Vec<u8>>;
/// Data of a record in a test.
pub type TestData = ZoneRecordData<Vec<u8>, TestName>;
/// A record in a test.
pub type TestRecord = Record<TestName, TestData>;
type TestKey = SigningKey<Vec<u8>, KeyPair>;

/// Time of all validations, in seconds since 1970.
pub const NOW: u32 = 1_800_000_000;
const DAY: u32 = 86_400;

/// Returns the name in presentation format `text`.
///
/// # Panics
/// Panics if the text is not a name.
pub fn name(text: &str) -> TestName {
    TestName::from_str(text).unwrap()
}

/// Reads records in the form of a zone file, one per line. The origin is the root.
///
/// # Panics
/// Panics if the text is malformed.
pub fn records(text: &str) -> Vec<TestRecord> {
    let text = format!("$TTL 300\n{text}\n");
    let mut file = Zonefile::from(text.as_str());
    file.set_origin(domain::base::Name::root_bytes());
    file.set_default_class(Class::IN);
    let record = |entry| match entry {
        Ok(Entry::Record(record)) => {
            let record: Record<
                domain::base::Name<Bytes>,
                ZoneRecordData<Bytes, domain::base::Name<Bytes>>,
            > = record.flatten_into();
            let (owner, ttl) = (name(&record.owner().to_string()), record.ttl());
            let data = record.into_data().try_flatten_into().unwrap();
            Some(TestRecord::new(owner, Class::IN, ttl, data))
        }
        Ok(Entry::Include { .. }) => None,
        Err(error) => panic!("{text}: {error}"),
    };
    file.map(record).map(Option::unwrap).collect()
}

/// A signed zone.
pub struct TestZone {
    /// Apex of the zone.
    pub name: TestName,
    /// Key that signs all records.
    pub key: TestKey,
    /// Period in which the signatures are valid.
    pub valid: (u32, u32),
}

impl TestZone {
    /// Returns a zone with a new key. Its signatures are valid around the time [`NOW`].
    ///
    /// # Panics
    /// Panics if the text is not a name, or if the algorithm is not supported.
    pub fn new(text: &str, params: &GenerateParams) -> TestZone {
        let (secret, public) = generate(params, 257).unwrap();
        let pair = KeyPair::from_bytes(&secret, &public).unwrap();
        let key = SigningKey::new(name(text), 257, pair);
        TestZone { name: name(text), key, valid: (NOW - DAY, NOW + DAY) }
    }

    /// Returns the records, which form one RRset, and their signature.
    ///
    /// # Panics
    /// Panics if the records are not an RRset.
    pub fn sign_set(&self, set: &[TestRecord]) -> Vec<TestRecord> {
        let (from, to) = self.valid;
        let rrset = Rrset::new_from_owned(set).unwrap();
        let signature =
            sign_rrset(&self.key, &rrset, Timestamp::from(from), Timestamp::from(to)).unwrap();
        let (owner, ttl) = (signature.owner().clone(), signature.ttl());
        let mut all = set.to_vec();
        all.push(Record::new(owner, Class::IN, ttl, ZoneRecordData::Rrsig(signature.into_data())));
        all
    }

    /// Returns records in the form of a zone file with the signatures of their RRsets. Records of an RRset are on
    /// consecutive lines.
    ///
    /// # Panics
    /// Panics if the text is malformed.
    pub fn sign(&self, text: &str) -> Vec<TestRecord> {
        let records = records(text);
        let of_one_set =
            |a: &TestRecord, b: &TestRecord| a.owner() == b.owner() && a.rtype() == b.rtype();
        records.chunk_by(of_one_set).flat_map(|set| self.sign_set(set)).collect()
    }

    /// Returns the key as a record.
    pub fn dnskey(&self) -> TestRecord {
        let key = ZoneRecordData::Dnskey(self.key.dnskey().convert());
        TestRecord::new(self.name.clone(), Class::IN, Ttl::from_secs(3600), key)
    }

    /// Returns the DS record of the key, with a SHA-256 digest.
    ///
    /// # Panics
    /// Does not panic: the digest has the right length.
    pub fn ds(&self) -> TestRecord {
        let key = self.key.dnskey();
        let mut rdata = Vec::new();
        let Ok(()) = key.compose_canonical_rdata(&mut rdata);
        let mut digest = DigestBuilder::new(DigestType::Sha256);
        digest.update(self.name.as_slice());
        digest.update(&rdata);
        let digest = digest.finish().as_ref().to_vec();
        let ds = Ds::new(key.key_tag(), key.algorithm(), DigestAlgorithm::SHA256, digest).unwrap();
        TestRecord::new(self.name.clone(), Class::IN, Ttl::from_secs(3600), ZoneRecordData::Ds(ds))
    }
}

/// Responses to queries, by name and type.
type Responses = Vec<(TestName, Rtype, Option<Bytes>)>;

/// A tree of signed zones. The first zone is the trust anchor.
pub struct World {
    /// The zones. Each name belongs to the lowest zone that contains it.
    pub zones: Vec<TestZone>,
    /// Names that are delegated to unsigned zones.
    pub unsigned: Vec<TestName>,
    /// Responses that replace those of the tree.
    pub other: Responses,
}

impl World {
    /// Returns a tree with these zones, whose signatures are valid around the time [`NOW`].
    pub fn new(zones: &[&str]) -> World {
        World::at(NOW, zones)
    }

    /// Returns a tree with these zones, whose signatures are valid around the time `now`, in seconds since 1970.
    pub fn at(now: u32, zones: &[&str]) -> World {
        let zone = |text: &&str| {
            let zone = TestZone::new(text, &GenerateParams::EcdsaP256Sha256);
            TestZone { valid: (now - DAY, now + DAY), ..zone }
        };
        World { zones: zones.iter().map(zone).collect(), unsigned: Vec::new(), other: Vec::new() }
    }

    /// Returns the zone with this name.
    ///
    /// # Panics
    /// Panics if there is no such zone.
    pub fn zone(&self, text: &str) -> &TestZone {
        self.zones.iter().find(|zone| zone.name == name(text)).unwrap()
    }

    /// Returns the trust anchor of the tree, as a line of a zone file.
    pub fn anchor(&self) -> String {
        let ds = self.zones[0].ds();
        let owner = if ds.owner().is_root() { String::new() } else { ds.owner().to_string() };
        format!("{owner}. IN DS {}", ds.data())
    }

    /// Returns the response to a query for DS or DNSKEY records. A name without a zone has neither, and is in the zone
    /// of its parent unless it is listed in `unsigned`. Returns `None` if the query is for a name outside of the tree.
    pub fn response(&self, owner: &TestName, rtype: Rtype) -> Option<Bytes> {
        let other = self.other.iter().find(|(name, of, _)| name == owner && *of == rtype);
        if let Some((_, _, response)) = other {
            return response.clone();
        }
        let zone = self.zones.iter().find(|zone| zone.name == *owner);
        let parents =
            self.zones.iter().filter(|zone| owner.ends_with(&zone.name) && *owner != zone.name);
        let parent = parents.max_by_key(|zone| zone.name.label_count());
        let answer = match (rtype, zone, parent) {
            (Rtype::DNSKEY, Some(zone), _) => zone.sign_set(&[zone.dnskey()]),
            (Rtype::DS, Some(zone), Some(parent)) => parent.sign_set(&[zone.ds()]),
            (_, _, Some(parent)) => {
                let types =
                    if self.unsigned.contains(owner) { "NS RRSIG NSEC" } else { "A RRSIG NSEC" };
                let text = format!("{owner}. NSEC \\000.{owner}. {types}");
                let denial = parent.sign(&text);
                return Some(message(owner, rtype, Rcode::NOERROR, &[], &denial));
            }
            _ => return None,
        };
        Some(message(owner, rtype, Rcode::NOERROR, &answer, &[]))
    }
}

/// Returns a response with these records.
///
/// # Panics
/// Panics if the message would be too long.
pub fn message(
    owner: &TestName,
    rtype: Rtype,
    rcode: Rcode,
    answer: &[TestRecord],
    authority: &[TestRecord],
) -> Bytes {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_qr(true);
    builder.header_mut().set_rcode(rcode);
    let mut question = builder.question();
    question.push((owner, rtype)).unwrap();
    let mut section = question.answer();
    for record in answer {
        section.push(record.clone()).unwrap();
    }
    let mut section = section.authority();
    for record in authority {
        section.push(record.clone()).unwrap();
    }
    Bytes::from(section.finish())
}

/// Returns records with another owner name, as if they were expanded from a wildcard.
pub fn renamed(records: Vec<TestRecord>, owner: &str) -> Vec<TestRecord> {
    let rename = |record: TestRecord| {
        TestRecord::new(name(owner), record.class(), record.ttl(), record.into_data())
    };
    records.into_iter().map(rename).collect()
}

/// Returns an SOA record of a zone in the form of a zone file.
pub fn soa(zone: &str) -> String {
    format!("{zone} SOA ns.{zone} admin.{zone} {} 3600 600 86400 60", Serial::from(1))
}
