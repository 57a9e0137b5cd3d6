//! RRsets of a response, each with its signatures.

use std::collections::HashMap;

use bytes::Bytes;
use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::name::{FlattenInto, ToName};
use domain::base::rdata::{ComposeRecordData, UnknownRecordData};
use domain::base::wire::ParseError;
use domain::base::{Message, ParsedName, ParsedRecord};
use domain::rdata::{AllRecordData, Rrsig};

use crate::name::Name;

/// Maximum number of RRsets in a section.
const MOST_SETS: usize = 512;
/// Maximum number of signatures of an RRset.
const MOST_SIGNATURES: usize = 64;

/// Data of a record. Names in it are as received.
pub(crate) type Data = AllRecordData<Bytes, ParsedName<Bytes>>;

/// Records with the same owner name and type, and the signatures of this RRset.
#[derive(Debug)]
pub(crate) struct RrSet {
    pub(crate) owner: Name,
    pub(crate) rtype: Rtype,
    /// Data of the records, without duplicates, in canonical order (RFC 4034 §6.3). The first element of each pair is
    /// the canonical form (RFC 4034 §6.2).
    records: Vec<(Vec<u8>, Data)>,
    pub(crate) signatures: Vec<Rrsig<Bytes, Name>>,
    /// Smallest TTL of the records, in seconds.
    pub(crate) ttl: u32,
}

impl RrSet {
    /// Returns the data of the records.
    pub(crate) fn data(&self) -> impl Iterator<Item = &Data> {
        self.records.iter().map(|(_, data)| data)
    }

    /// Returns the canonical forms of the data, in canonical order.
    pub(crate) fn canonical(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(|(canonical, _)| canonical.as_slice())
    }

    /// True for a DNAME record that replaces a suffix of `name` (RFC 6672 §2.3).
    pub(crate) fn is_dname_above(&self, name: &Name) -> bool {
        self.rtype == Rtype::DNAME && name.ends_with(&self.owner) && *name != self.owner
    }

    /// True if the RRset has more records than its type permits (RFC 1034 §3.6.2, RFC 6672 §2.4).
    pub(crate) fn has_too_many_records(&self) -> bool {
        self.records.len() > 1
            && matches!(self.rtype, Rtype::CNAME | Rtype::DNAME | Rtype::SOA | Rtype::NSEC)
    }

    /// Returns the name of the zone that signed the RRset: the longest signer name that is the owner name or an
    /// ancestor of it. DS records are in the parent zone, so their signer is always an ancestor. SOA and DNSKEY records are
    /// at the apex, so their signer is the owner.
    pub(crate) fn signer(&self) -> Option<&Name> {
        let signers = self.signatures.iter().map(|signature| signature.signer_name());
        signers
            .filter(|signer| match self.rtype {
                Rtype::SOA | Rtype::DNSKEY => **signer == self.owner,
                Rtype::DS => self.owner.ends_with(*signer) && **signer != self.owner,
                _ => self.owner.ends_with(*signer),
            })
            .max_by_key(|signer| signer.label_count())
    }
}

/// RRsets of one section of a response.
#[derive(Debug, Default)]
pub(crate) struct Section {
    sets: Vec<RrSet>,
    indices: HashMap<(Name, Rtype), usize>,
}

impl Section {
    /// Returns the index of the RRset with this owner name and type. RRsets without records are ignored.
    pub(crate) fn find(&self, owner: &Name, rtype: Rtype) -> Option<usize> {
        let index = *self.indices.get(&(owner.clone(), rtype))?;
        self.sets.get(index).filter(|set| !set.records.is_empty()).map(|_| index)
    }

    /// Returns the RRset with this index.
    pub(crate) fn get(&self, index: usize) -> &RrSet {
        &self.sets[index]
    }

    /// Returns the RRsets that have records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &RrSet)> {
        self.sets.iter().enumerate().filter(|(_, set)| !set.records.is_empty())
    }

    /// Returns the types of the RRsets that have only signatures.
    pub(crate) fn types_without_records(&self) -> impl Iterator<Item = Rtype> {
        self.sets.iter().filter(|set| set.records.is_empty()).map(|set| set.rtype)
    }

    /// Returns the number of RRsets, with those that have only signatures.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    fn add(&mut self, record: &ParsedRecord<'_, Bytes>) -> Result<(), ParseError> {
        if record.class() != Class::IN {
            return Err(ParseError::form_error("class other than IN"));
        }
        let owner: Name = record.owner().to_canonical_name();
        let ttl = record.ttl().as_secs();
        let data = match record.to_any_record::<Data>() {
            Ok(record) => record.into_data(),
            Err(error) if is_needed(record.rtype()) => return Err(error),
            // Only clients may reject malformed data, for example of HTTPS records (RFC 9460 §2.2).
            Err(_) => {
                let raw = record.to_record::<UnknownRecordData<Bytes>>()?;
                let raw = raw.ok_or(ParseError::form_error("record data"))?;
                AllRecordData::Unknown(raw.into_data())
            }
        };
        if let AllRecordData::Rrsig(signature) = data {
            let signature: Rrsig<Bytes, domain::base::Name<Bytes>> = signature.flatten_into();
            let signature = with_canonical_signer(&signature);
            let set = self.entry(owner, signature.type_covered())?;
            if !set.signatures.contains(&signature) {
                set.signatures.push(signature);
            }
            if set.signatures.len() > MOST_SIGNATURES {
                return Err(ParseError::form_error("too many signatures"));
            }
            return Ok(());
        }
        let set = self.entry(owner, record.rtype())?;
        set.ttl = set.ttl.min(ttl);
        let mut canonical = Vec::new();
        let Ok(()) = data.compose_canonical_rdata(&mut canonical);
        set.records.push((canonical, data));
        Ok(())
    }

    /// Sorts the records of each RRset, and removes duplicates.
    fn sort(&mut self) {
        for set in &mut self.sets {
            set.records.sort_by(|(one, _), (other, _)| one.cmp(other));
            set.records.dedup_by(|(one, _), (other, _)| one == other);
        }
    }

    fn entry(&mut self, owner: Name, rtype: Rtype) -> Result<&mut RrSet, ParseError> {
        let next = self.sets.len();
        let index = *self.indices.entry((owner.clone(), rtype)).or_insert(next);
        if index == next {
            if index >= MOST_SETS {
                return Err(ParseError::form_error("too many RRsets"));
            }
            let (records, signatures) = (Vec::new(), Vec::new());
            self.sets.push(RrSet { owner, rtype, records, signatures, ttl: u32::MAX });
        }
        Ok(&mut self.sets[index])
    }
}

/// True if the data of this type are used here, or can have compressed names.
fn is_needed(rtype: Rtype) -> bool {
    matches!(
        rtype,
        Rtype::NS
            | Rtype::CNAME
            | Rtype::SOA
            | Rtype::PTR
            | Rtype::MX
            | Rtype::MINFO
            | Rtype::MB
            | Rtype::MD
            | Rtype::MF
            | Rtype::MG
            | Rtype::MR
            | Rtype::SRV
            | Rtype::NAPTR
            | Rtype::DNAME
            | Rtype::DS
            | Rtype::DNSKEY
            | Rtype::RRSIG
            | Rtype::NSEC
            | Rtype::NSEC3
    )
}

/// Returns the signature with its signer name in lower case (RFC 6840 §5.1).
fn with_canonical_signer(signature: &Rrsig<Bytes, Name>) -> Rrsig<Bytes, Name> {
    Rrsig::new(
        signature.type_covered(),
        signature.algorithm(),
        signature.labels(),
        signature.original_ttl(),
        signature.expiration(),
        signature.inception(),
        signature.key_tag(),
        signature.signer_name().to_canonical_name(),
        signature.signature().clone(),
    )
    .unwrap_or_else(|_| signature.clone())
}

/// Sections of a response that are validated.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) rcode: Rcode,
    pub(crate) answer: Section,
    pub(crate) authority: Section,
}

impl Response {
    /// Reads a response.
    ///
    /// # Errors
    /// Returns an error if the response is malformed, is too large, has an extended RCODE, or has a record with a class
    /// other than IN.
    pub(crate) fn parse(octets: &Bytes) -> Result<Response, ParseError> {
        let message = Message::from_octets(octets.clone()).map_err(|_| ParseError::ShortInput)?;
        let (mut answer, mut authority) = (Section::default(), Section::default());
        for record in message.answer()? {
            answer.add(&record?)?;
        }
        answer.sort();
        for record in message.authority()? {
            authority.add(&record?)?;
        }
        authority.sort();
        let rcode = message.header().rcode();
        if message.opt_rcode().to_int() != u16::from(rcode.to_int()) {
            return Err(ParseError::form_error("extended RCODE"));
        }
        Ok(Response { rcode, answer, authority })
    }
}
