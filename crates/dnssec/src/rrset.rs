//! RRsets of a response, each with its signatures.

use bytes::Bytes;
use domain::base::iana::{Class, OptRcode, Rtype};
use domain::base::name::{FlattenInto, ToName};
use domain::base::rdata::ComposeRecordData;
use domain::base::wire::ParseError;
use domain::base::{Message, ParsedName, ParsedRecord};
use domain::rdata::{AllRecordData, Rrsig};

use crate::name::Name;

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

    /// Returns the name of the zone that signed the RRset: the longest signer name that is the owner name or an
    /// ancestor of it. DS records are in the parent zone, so their signer is always an ancestor.
    pub(crate) fn signer(&self) -> Option<&Name> {
        let signers = self.signatures.iter().map(|signature| signature.signer_name());
        signers
            .filter(|signer| self.owner.ends_with(*signer))
            .filter(|signer| self.rtype != Rtype::DS || **signer != self.owner)
            .max_by_key(|signer| signer.label_count())
    }
}

/// RRsets of one section of a response.
#[derive(Debug, Default)]
pub(crate) struct Section {
    sets: Vec<RrSet>,
}

impl Section {
    /// Returns the index of the RRset with this owner name and type. RRsets without records are ignored.
    pub(crate) fn find(&self, owner: &Name, rtype: Rtype) -> Option<usize> {
        self.sets
            .iter()
            .position(|set| set.rtype == rtype && set.owner == *owner && !set.records.is_empty())
    }

    /// Returns the RRset with this index.
    pub(crate) fn get(&self, index: usize) -> &RrSet {
        &self.sets[index]
    }

    /// Returns the RRsets that have records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &RrSet)> {
        self.sets.iter().enumerate().filter(|(_, set)| !set.records.is_empty())
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
        let data: Data = record.to_any_record()?.into_data();
        if let AllRecordData::Rrsig(signature) = data {
            let signature: Rrsig<Bytes, domain::base::Name<Bytes>> = signature.flatten_into();
            let signature = with_canonical_signer(&signature);
            let set = self.entry(owner, signature.type_covered());
            if !set.signatures.contains(&signature) {
                set.signatures.push(signature);
            }
            return Ok(());
        }
        let set = self.entry(owner, record.rtype());
        set.ttl = set.ttl.min(ttl);
        let mut canonical = Vec::new();
        let Ok(()) = data.compose_canonical_rdata(&mut canonical);
        if let Err(at) = set.records.binary_search_by(|(other, _)| other.cmp(&canonical)) {
            set.records.insert(at, (canonical, data));
        }
        Ok(())
    }

    fn entry(&mut self, owner: Name, rtype: Rtype) -> &mut RrSet {
        let found = self.sets.iter().position(|set| set.rtype == rtype && set.owner == owner);
        let index = found.unwrap_or(self.sets.len());
        if found.is_none() {
            let (records, signatures) = (Vec::new(), Vec::new());
            self.sets.push(RrSet { owner, rtype, records, signatures, ttl: u32::MAX });
        }
        &mut self.sets[index]
    }
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
    pub(crate) rcode: OptRcode,
    pub(crate) answer: Section,
    pub(crate) authority: Section,
}

impl Response {
    /// Reads a response.
    ///
    /// # Errors
    /// Returns an error if the response is malformed, or has a record with a class other than IN.
    pub(crate) fn parse(octets: &Bytes) -> Result<Response, ParseError> {
        let message = Message::from_octets(octets.clone()).map_err(|_| ParseError::ShortInput)?;
        let (mut answer, mut authority) = (Section::default(), Section::default());
        for record in message.answer()? {
            answer.add(&record?)?;
        }
        for record in message.authority()? {
            authority.add(&record?)?;
        }
        Ok(Response { rcode: message.opt_rcode(), answer, authority })
    }
}
