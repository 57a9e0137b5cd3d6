//! Check of the signatures of an RRset (RFC 4035 §5.3).

use bytes::Bytes;
use domain::base::iana::{Class, DigestAlgorithm};
use domain::base::name::ToName;
use domain::base::rdata::ComposeRecordData;
use domain::crypto::common::{AlgorithmError, DigestBuilder, DigestType, PublicKey};
use domain::rdata::dnssec::Timestamp;
use domain::rdata::{Dnskey, Ds, Rrsig};

use crate::limits::{Limit, Limits, Work};
use crate::name::Name;
use crate::rrset::RrSet;
use crate::verdict::{Fault, is_supported};

/// A key of a zone.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) tag: u16,
    pub(crate) dnskey: Dnskey<Bytes>,
}

impl Key {
    /// Copies a key out of a response, so that the response is not kept.
    pub(crate) fn copy(key: &Dnskey<Bytes>) -> Key {
        let octets = Bytes::copy_from_slice(key.public_key());
        let copy = Dnskey::new(key.flags(), key.protocol(), key.algorithm(), octets);
        Key { tag: key.key_tag(), dnskey: copy.unwrap_or_else(|_| key.clone()) }
    }

    /// True if a DS record of the zone `name` is of this key (RFC 4034 §5.1.4, §5.2).
    pub(crate) fn matches(&self, ds: &Ds<Bytes>, name: &Name) -> bool {
        if ds.key_tag() != self.tag
            || ds.algorithm() != self.dnskey.algorithm()
            || !self.dnskey.is_zone_key()
        {
            return false;
        }
        let kind = match ds.digest_type() {
            DigestAlgorithm::SHA1 => DigestType::Sha1,
            DigestAlgorithm::SHA256 => DigestType::Sha256,
            DigestAlgorithm::SHA384 => DigestType::Sha384,
            _ => return false,
        };
        let mut rdata = Vec::new();
        let Ok(()) = self.dnskey.compose_canonical_rdata(&mut rdata);
        let mut digest = DigestBuilder::new(kind);
        digest.update(name.as_slice());
        digest.update(&rdata);
        digest.finish().as_ref() == ds.digest().as_ref()
    }
}

/// A zone whose keys have been validated.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    pub(crate) name: Name,
    pub(crate) keys: Vec<Key>,
}

/// An RRset with a valid signature.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    /// Closest encloser of the owner name, if the RRset was expanded from the wildcard below it (RFC 4035 §5.3.4).
    pub(crate) expanded_below: Option<Name>,
    /// Maximum TTL of the RRset, in seconds (RFC 4035 §5.3.3).
    pub(crate) ttl: u32,
}

/// State of a validation that signature checks need.
pub(crate) struct Checks<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) work: &'a mut Work,
    /// Current time, in seconds since 1970, modulo 2³².
    pub(crate) now: u32,
    /// True if the validation has used the CPU time that the caller allows.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

impl Checks<'_> {
    fn begin(&mut self) -> Result<(), Limit> {
        if (self.is_over)() {
            return Err(Limit::Time);
        }
        self.work.begin_check(self.limits)
    }
}

/// Checks the signatures of an RRset with the keys of a zone until one is valid.
///
/// # Errors
/// Returns a fault if no signature is valid, if the RRset has more records than its type permits, or if a limit is
/// reached.
pub(crate) fn verify(set: &RrSet, zone: &Zone, checks: &mut Checks<'_>) -> Result<Verified, Fault> {
    if set.has_too_many_records() {
        return Err(Fault::Wrong);
    }
    let mut worst = Fault::NoSignature;
    for signature in &set.signatures {
        if signature.signer_name() != &zone.name {
            continue;
        }
        match verify_one(set, signature, zone, checks) {
            Ok(verified) => return Ok(verified),
            Err(limit @ Fault::Limit(_)) => return Err(limit),
            Err(fault) => worst = worst.max(fault),
        }
    }
    Err(worst)
}

fn verify_one(
    set: &RrSet,
    signature: &Rrsig<Bytes, Name>,
    zone: &Zone,
    checks: &mut Checks<'_>,
) -> Result<Verified, Fault> {
    if !is_supported(signature.algorithm(), checks.limits.accept_sha1) {
        return Err(Fault::NoSignature);
    }
    let labels = set.owner.rrsig_label_count();
    // A wildcard is in the zone that signed it.
    let of_zone = signature.signer_name().rrsig_label_count();
    if !(of_zone..=labels).contains(&signature.labels()) {
        return Err(Fault::Wrong);
    }
    let now = Timestamp::from(checks.now);
    if is_after(now, signature.expiration()) {
        return Err(Fault::Expired);
    }
    if is_after(signature.inception(), now) {
        return Err(Fault::NotYetValid);
    }
    let mut fault = Fault::NoKey;
    let mut signed = None;
    for key in &zone.keys {
        if key.tag != signature.key_tag() || key.dnskey.algorithm() != signature.algorithm() {
            continue;
        }
        if !key.dnskey.is_zone_key() {
            fault = fault.max(Fault::NoZoneKey);
            continue;
        }
        checks.begin().map_err(Fault::Limit)?;
        let signed = signed.get_or_insert_with(|| signed_data(set, signature));
        let check = PublicKey::from_dnskey(&key.dnskey)
            .and_then(|key| key.verify(signed, signature.signature()));
        match check {
            Ok(()) => return Ok(verified(set, signature, labels, checks.now)),
            // The key is too short for the cryptographic library. It counts as missing.
            Err(AlgorithmError::Unsupported) => {}
            Err(AlgorithmError::BadSig | AlgorithmError::InvalidData) => {
                checks.work.fail_check();
                fault = Fault::Wrong;
            }
        }
    }
    Err(fault)
}

fn verified(set: &RrSet, signature: &Rrsig<Bytes, Name>, labels: u8, now: u32) -> Verified {
    let left = signature.expiration().into_int().wrapping_sub(now);
    let ttl = set.ttl.min(signature.original_ttl().as_secs()).min(left);
    let is_expanded = signature.labels() < labels;
    Verified { expanded_below: is_expanded.then(|| suffix(&set.owner, signature.labels())), ttl }
}

/// Returns the last `labels` labels of a name, not counting the root label.
pub(crate) fn suffix(name: &Name, labels: u8) -> Name {
    let excess = name.label_count().saturating_sub(1 + usize::from(labels));
    name.iter_suffixes().nth(excess).unwrap_or_else(Name::root_bytes)
}

/// True if `time` is later than `other` in serial number arithmetic (RFC 4034 §3.1.5).
fn is_after(time: Timestamp, other: Timestamp) -> bool {
    let ahead = time.into_int().wrapping_sub(other.into_int());
    ahead != 0 && ahead < 1 << 31
}

/// Returns the data that a signature covers (RFC 4034 §3.1.8.1).
fn signed_data(set: &RrSet, signature: &Rrsig<Bytes, Name>) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(signature.type_covered().to_int().to_be_bytes());
    out.extend([signature.algorithm().to_int(), signature.labels()]);
    out.extend(signature.original_ttl().as_secs().to_be_bytes());
    out.extend(signature.expiration().into_int().to_be_bytes());
    out.extend(signature.inception().into_int().to_be_bytes());
    out.extend(signature.key_tag().to_be_bytes());
    out.extend(signature.signer_name().as_slice());
    let mut owner = Vec::new();
    if signature.labels() < set.owner.rrsig_label_count() {
        owner.extend_from_slice(b"\x01*");
        owner.extend_from_slice(suffix(&set.owner, signature.labels()).as_slice());
    } else {
        owner.extend_from_slice(set.owner.as_slice());
    }
    for data in set.canonical() {
        out.extend_from_slice(&owner);
        out.extend(set.rtype.to_int().to_be_bytes());
        out.extend(Class::IN.to_int().to_be_bytes());
        out.extend(signature.original_ttl().as_secs().to_be_bytes());
        // Data of a record are shorter than 64 KiB.
        out.extend((data.len() as u16).to_be_bytes());
        out.extend_from_slice(data);
    }
    out
}
