//! Replacement of keys and signatures that use SHA-1. dns64d treats zones with such keys as unsigned (RFC 9905), and
//! most scenarios are older than SHA-2 in DNSSEC.
//!
//! ```text
//! DNSKEY 3, 5, 6, 7 ─► new key of the same zone, flags and protocol: DSA becomes 13, RSA becomes 15
//! DS of that key    ─► DS of the new key with SHA-256; with a wrong digest if the digest was wrong
//! RRSIG             ─► made again by the new key over the RRset in the same message, with the same times, labels, TTL
//!                      and signer
//! ```
//!
//! The two kinds of old keys get different algorithms, because some scenarios compare algorithms. Unbound runs these
//! scenarios with `fake-sha1: yes`, and then accepts every signature with SHA-1 that has a key, a valid time and data.
//! Signatures that must fail have no data. They stay wrong here; all others become valid.

use std::collections::HashMap;

use anyhow::{Context, Result};
use bytes::Bytes;
use domain::base::iana::{Class, DigestAlgorithm, SecurityAlgorithm};
use domain::base::name::ToName;
use domain::base::rdata::ComposeRecordData;
use domain::crypto::common::{DigestBuilder, DigestType};
use domain::crypto::sign::{GenerateParams, KeyPair, SignRaw, generate};
use domain::rdata::dnssec::ProtoRrsig;
use domain::rdata::{Dnskey, Ds, Rrsig};

use super::reader::{Data, Entry, Name, Record, Scenario};

/// Flags of a key that only signatures and DS records refer to.
const ZONE_KEY: u16 = 256;

/// Replaces all keys with SHA-1, and the records that belong to them.
///
/// # Errors
/// Returns an error if a key cannot be generated, or cannot sign.
pub(super) fn resign(scenario: &mut Scenario) -> Result<()> {
    let mut keys = Keys::default();
    let records = scenario.entries().flat_map(Entry::records).chain(&scenario.config.anchors);
    for record in records {
        if let Data::Dnskey(key) = record.data() {
            keys.add(record.owner(), key)?;
        }
    }
    for anchor in &mut scenario.config.anchors {
        keys.replace(anchor, &[])?;
    }
    for entry in scenario.entries_mut() {
        for section in entry.sections_mut() {
            let strong = strong_owners(section);
            for record in section {
                keys.replace(record, &strong)?;
            }
        }
        keys.sign(entry)?;
    }
    Ok(())
}

/// Identity of an old key: zone, algorithm and tag.
type Id = (Name, SecurityAlgorithm, u16);

/// New keys by the identities of the old ones.
#[derive(Default)]
struct Keys(HashMap<Id, Replaced>);

/// An old key, and its replacement.
struct Replaced {
    /// `None` if only signatures and DS records refer to the key.
    old: Option<Dnskey<Bytes>>,
    pair: KeyPair,
    new: Dnskey<Bytes>,
}

impl Keys {
    /// Generates the replacement of a key if it uses SHA-1.
    fn add(&mut self, zone: &Name, old: &Dnskey<Bytes>) -> Result<()> {
        self.get(zone, old.algorithm(), old.key_tag(), Some(old))?;
        Ok(())
    }

    /// Returns the replacement of a key, or `None` if the key stays.
    fn get(
        &mut self,
        zone: &Name,
        algorithm: SecurityAlgorithm,
        tag: u16,
        old: Option<&Dnskey<Bytes>>,
    ) -> Result<Option<&Replaced>> {
        let Some(parameters) = replacement(algorithm) else { return Ok(None) };
        let id = (zone.clone(), algorithm, tag);
        if !self.0.contains_key(&id) {
            let flags = old.map_or(ZONE_KEY, Dnskey::flags);
            let protocol = old.map_or(3, Dnskey::protocol);
            let (secret, public) = generate(&parameters, flags)?;
            let pair = KeyPair::from_bytes(&secret, &public)?;
            let octets = Bytes::copy_from_slice(public.public_key());
            let new = Dnskey::new(flags, protocol, public.algorithm(), octets)?;
            self.0.insert(id.clone(), Replaced { old: old.cloned(), pair, new });
        }
        Ok(self.0.get(&id))
    }

    /// Replaces a DNSKEY or DS record. `strong` are the owner names that have DS records with SHA-2.
    fn replace(&mut self, record: &mut Record, strong: &[Name]) -> Result<()> {
        let zone = record.owner().clone();
        let data = match record.data() {
            Data::Dnskey(key) => {
                let found = self.get(&zone, key.algorithm(), key.key_tag(), None)?;
                found.map(|key| Data::Dnskey(key.new.clone()))
            }
            Data::Ds(ds) => {
                let found = self.get(&zone, ds.algorithm(), ds.key_tag(), None)?;
                let is_weak = strong.contains(&zone);
                found.map(|key| key.ds(&zone, ds, is_weak)).transpose()?.map(Data::Ds)
            }
            _ => None,
        };
        if let Some(data) = data {
            *record = Record::new(zone, record.class(), record.ttl(), data);
        }
        Ok(())
    }

    /// Replaces the signatures of an entry.
    fn sign(&mut self, entry: &mut Entry) -> Result<()> {
        let all: Vec<Record> = entry.records().cloned().collect();
        for section in entry.sections_mut() {
            let own = section.clone();
            for record in section.iter_mut() {
                let Data::Rrsig(old) = record.data() else { continue };
                let found = self.get(old.signer_name(), old.algorithm(), old.key_tag(), None)?;
                let Some(key) = found else { continue };
                let sets = [&own, &all].map(|records| set(records, record.owner(), old));
                let signed = sets.into_iter().find(|set| !set.is_empty());
                let new = key.signature(old, record.owner(), &signed.unwrap_or_default())?;
                let (owner, ttl) = (record.owner().clone(), record.ttl());
                *record = Record::new(owner, Class::IN, ttl, Data::Rrsig(new));
            }
        }
        Ok(())
    }
}

/// Returns the parameters of the key that replaces a key of this algorithm, or `None` if the key stays.
fn replacement(old: SecurityAlgorithm) -> Option<GenerateParams> {
    match old {
        SecurityAlgorithm::DSA | SecurityAlgorithm::DSA_NSEC3_SHA1 => {
            Some(GenerateParams::EcdsaP256Sha256)
        }
        SecurityAlgorithm::RSASHA1 | SecurityAlgorithm::RSASHA1_NSEC3_SHA1 => {
            Some(GenerateParams::Ed25519)
        }
        _ => None,
    }
}

/// Returns the owner names of the DS records with SHA-2.
fn strong_owners(records: &[Record]) -> Vec<Name> {
    let is_strong = |record: &&Record| match record.data() {
        Data::Ds(ds) => {
            matches!(ds.digest_type(), DigestAlgorithm::SHA256 | DigestAlgorithm::SHA384)
        }
        _ => false,
    };
    records.iter().filter(is_strong).map(|record| record.owner().clone()).collect()
}

/// Returns the records of the RRset that a signature covers.
fn set(records: &[Record], owner: &Name, signature: &Rrsig<Bytes, Name>) -> Vec<Record> {
    let covered = records
        .iter()
        .filter(|record| record.owner() == owner && record.rtype() == signature.type_covered());
    covered.cloned().collect()
}

impl Replaced {
    /// Returns the DS record of the new key. Its digest is wrong if that of the old record was. Digests of unknown types
    /// stay, because no validator can use them. A digest with SHA-1 stays one if it must be ignored because of another
    /// DS record (RFC 4509 §3).
    fn ds(&self, zone: &Name, old: &Ds<Bytes>, is_ignored: bool) -> Result<Ds<Bytes>> {
        let (tag, algorithm) = (self.new.key_tag(), self.new.algorithm());
        let Some(kind) = digest_type(old.digest_type()) else {
            return Ok(Ds::new(tag, algorithm, old.digest_type(), old.digest().clone())?);
        };
        let is_right = self.old.as_ref().is_none_or(|key| digest(zone, key, kind) == *old.digest());
        let (kind, of_ds) = match old.digest_type() {
            DigestAlgorithm::SHA1 if is_ignored => (DigestType::Sha1, DigestAlgorithm::SHA1),
            _ => (DigestType::Sha256, DigestAlgorithm::SHA256),
        };
        let mut new = digest(zone, &self.new, kind);
        if !is_right {
            new.iter_mut().for_each(|octet| *octet = !*octet);
        }
        Ok(Ds::new(tag, algorithm, of_ds, new.into())?)
    }

    /// Returns a signature of an RRset with the fields of the old signature.
    fn signature(
        &self,
        old: &Rrsig<Bytes, Name>,
        owner: &Name,
        set: &[Record],
    ) -> Result<Rrsig<Bytes, Name>> {
        let fields = ProtoRrsig::new(
            old.type_covered(),
            self.new.algorithm(),
            old.labels(),
            old.original_ttl(),
            old.expiration(),
            old.inception(),
            self.new.key_tag(),
            old.signer_name().clone(),
        );
        // A signature without data must fail, and one without records cannot be made.
        if old.signature().len() <= 1 || set.is_empty() {
            return Ok(fields.into_rrsig(old.signature().clone())?);
        }
        let mut signed = Vec::new();
        let Ok(()) = fields.compose_canonical(&mut signed);
        let owner = signed_owner(owner, old.labels())?;
        let mut records = Vec::new();
        for record in set {
            let mut data = Vec::new();
            let Ok(()) = record.data().compose_canonical_rdata(&mut data);
            records.push((data, record));
        }
        records.sort_by(|(one, _), (other, _)| one.cmp(other));
        records.dedup_by(|(one, _), (other, _)| one == other);
        for (_, record) in records {
            let data = record.data().clone();
            let record = Record::new(owner.clone(), Class::IN, old.original_ttl(), data);
            let Ok(()) = record.compose_canonical(&mut signed);
        }
        let signature = self.pair.sign_raw(&signed)?;
        Ok(fields.into_rrsig(Bytes::copy_from_slice(signature.as_ref()))?)
    }
}

/// Returns the owner name in the signed data: with fewer labels than the owner, that of the wildcard (RFC 4035 §5.3.2).
fn signed_owner(owner: &Name, labels: u8) -> Result<Name> {
    let own = owner.rrsig_label_count();
    if labels >= own {
        return Ok(owner.clone());
    }
    let suffix = owner.iter_suffixes().nth(owner.label_count() - 1 - usize::from(labels));
    let suffix = suffix.context("a signature with too many labels")?;
    let mut wildcard = b"\x01*".to_vec();
    wildcard.extend_from_slice(suffix.as_slice());
    Ok(Name::from_octets(wildcard.into())?)
}

fn digest_type(of_ds: DigestAlgorithm) -> Option<DigestType> {
    match of_ds {
        DigestAlgorithm::SHA1 => Some(DigestType::Sha1),
        DigestAlgorithm::SHA256 => Some(DigestType::Sha256),
        DigestAlgorithm::SHA384 => Some(DigestType::Sha384),
        _ => None,
    }
}

/// Returns the digest of a key (RFC 4034 §5.1.4).
fn digest(zone: &Name, key: &Dnskey<Bytes>, kind: DigestType) -> Vec<u8> {
    let mut data = Vec::new();
    let Ok(()) = key.compose_canonical_rdata(&mut data);
    let mut digest = DigestBuilder::new(kind);
    digest.update(zone.to_canonical_name::<Vec<u8>>().as_slice());
    digest.update(&data);
    digest.finish().as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::reader::testing::scenario;
    use super::*;

    const ENTRY: &str = "MATCH opcode qtype qname\nREPLY QR NOERROR\nSECTION QUESTION\nexample. IN DNSKEY\n\
        SECTION ANSWER\nexample. IN DNSKEY 257 3 5 AQPQ41chR9DEHt/aIzIFAqanbDlRflJoRs5yz1jFsoRIT7dWf0r+PeDuewdxkszNH6wn\
        U4QL8pfKFRh5PIYVBLK3\n\
        example. IN RRSIG DNSKEY 5 1 60 20070926134150 20070829134150 30900 example. AAAAAAAA\n\
        example. IN RRSIG DNSKEY 5 1 60 20070926134150 20070829134150 30900 example.\n\
        example. IN RRSIG DNSKEY 8 1 60 20070926134150 20070829134150 30900 example. AAAAAAAA\n\
        SECTION AUTHORITY\nexample. IN DS 30900 5 2 0000000000000000000000000000000000000000000000000000000000000000\n";

    #[test]
    fn keys_and_their_signatures_are_replaced() {
        let mut scenario = scenario(&[ENTRY]);
        resign(&mut scenario).unwrap();
        let entry = &scenario.ranges[0].entries[0];
        let Data::Dnskey(key) = entry.answer[0].data() else { panic!("{entry:?}") };
        assert_eq!((key.algorithm(), key.flags()), (SecurityAlgorithm::ED25519, 257));
        let signatures: Vec<_> = entry.answer[1..]
            .iter()
            .map(|record| match record.data() {
                Data::Rrsig(signature) => {
                    (signature.algorithm(), signature.key_tag(), signature.signature().len())
                }
                data => panic!("{data}"),
            })
            .collect();
        // The second signature has no data, so it stays wrong. The third one is not made with SHA-1.
        let (new, old) = (SecurityAlgorithm::ED25519, SecurityAlgorithm::RSASHA256);
        let tag = key.key_tag();
        assert_eq!(signatures, [(new, tag, 64), (new, tag, 1), (old, 30900, 6)]);
    }

    #[test]
    fn a_wrong_digest_stays_wrong() {
        let mut scenario = scenario(&[ENTRY]);
        resign(&mut scenario).unwrap();
        let entry = &scenario.ranges[0].entries[0];
        let (Data::Dnskey(key), Data::Ds(ds)) = (entry.answer[0].data(), entry.authority[0].data())
        else {
            panic!("{entry:?}")
        };
        assert_eq!((ds.key_tag(), ds.algorithm()), (key.key_tag(), key.algorithm()));
        let right = digest(&"example.".parse().unwrap(), key, DigestType::Sha256);
        assert_ne!(ds.digest().as_ref(), right);
    }
}
