//! Trust in zones: the chain of DS and DNSKEY records from a trust anchor to a zone (RFC 4035 §5.2).

use std::sync::Arc;

use bytes::Bytes;
use domain::base::iana::{DigestAlgorithm, ExtendedErrorCode, Rcode, Rtype};
use domain::rdata::{AllRecordData, Dnskey, Ds};

use crate::anchors::Anchor;
use crate::context::{Context, Query};
use crate::denial::Denial;
use crate::limits::Limit;
use crate::name::Name;
use crate::proof::Delegation;
use crate::rrset::{Response, RrSet};
use crate::signature::{Key, Zone, verify};
use crate::verdict::{Fault, Security, is_supported};
use crate::zone_cache::{MOST_SECONDS, Step, Trust};

/// Maximum number of keys of a zone.
const MOST_KEYS: usize = 32;
/// Maximum size of all keys of a zone, in octets.
const MOST_KEY_OCTETS: usize = 8 << 10;
/// Maximum number of DS records of a zone that are used.
const MOST_DS: usize = 8;
/// Time for which it is stored that a zone is bogus, in seconds. RFC 9520 §3.2 requires 1 second to 5 minutes.
const BOGUS_SECONDS: u32 = 5;

/// Returns the trust in the zone to which a name belongs.
///
/// # Errors
/// Returns the next query if a response is missing.
pub(crate) fn zone_of(name: &Name, context: &mut Context<'_>) -> Result<Trust, Query> {
    let anchors = context.anchors();
    let Some((anchor, path)) = anchors.path_to(name) else { return Ok(Trust::Indeterminate) };
    // The zones above a negative trust anchor do not matter.
    let now = context.time();
    let negative = path.iter().filter_map(|name| anchors.negative_for(name.as_slice(), now));
    if let Some(seconds) = negative.max() {
        return Ok(Trust::Unchecked(seconds));
    }
    let mut trust = anchor_zone(anchor, context)?;
    for child in path.into_iter().skip(1) {
        let Trust::Keys(zone) = &trust else { return Ok(trust) };
        let known = context.zones().get(child.as_slice(), context.now());
        let step = match known {
            Some(step) => step,
            None => {
                let (step, seconds) = step_to(&child, zone, context)?;
                context.zones().insert(&child, step.clone(), seconds, context.now());
                step
            }
        };
        if let Step::Cut(cut) = step {
            trust = cut;
        }
    }
    Ok(trust)
}

/// Returns the trust in the zone of a trust anchor.
fn anchor_zone(anchor: &Anchor, context: &mut Context<'_>) -> Result<Trust, Query> {
    if let Some(Step::Cut(trust)) = context.zones().get(anchor.name.as_slice(), context.now()) {
        return Ok(trust);
    }
    let (trust, seconds) = keys_of(&anchor.name, &anchor.ds, &anchor.keys, context)?;
    let step = Step::Cut(trust.clone());
    context.zones().insert(&anchor.name, step, seconds, context.now());
    Ok(trust)
}

/// Determines whether a name is the apex of a zone, and whether this zone is signed. `zone` is the zone of the parent of
/// the name. Also returns the time for which the result is valid, in seconds.
fn step_to(name: &Name, zone: &Zone, context: &mut Context<'_>) -> Result<(Step, u32), Query> {
    let bogus = |fault| (Step::Cut(Trust::Bogus(fault)), seconds_of(fault));
    let Some(octets) = context.response(name, Rtype::DS)? else {
        return Ok((Step::Cut(Trust::Bogus(Fault::Unreachable)), 0));
    };
    let Ok(response) = Response::parse(&octets) else { return Ok(bogus(Fault::Wrong)) };
    if let Some(index) = response.answer.find(name, Rtype::DS) {
        if response.rcode != Rcode::NOERROR {
            return Ok(bogus(Fault::Wrong));
        }
        let set = response.answer.get(index);
        let verified = match verify(set, zone, &mut context.checks()) {
            Ok(verified) if verified.expanded_below.is_none() => verified,
            Ok(_) => return Ok(bogus(Fault::Wrong)),
            Err(fault) => return Ok(bogus(fault)),
        };
        let all: Vec<Ds<Bytes>> = set.data().filter_map(as_ds).cloned().collect();
        let (trust, seconds) = keys_of(name, &all, &[], context)?;
        return Ok((Step::Cut(trust), seconds.min(verified.ttl.max(1))));
    }
    if let Some(alias) = alias(&response, name) {
        // A name with an alias, and a name below a DNAME record, has no delegation. An alias that was expanded from a
        // wildcard needs the proof that the name itself does not exist.
        let is_dname = alias.rtype == Rtype::DNAME;
        let verified = match verify(alias, zone, &mut context.checks()) {
            Ok(verified) => verified,
            Err(fault) => return Ok(bogus(fault)),
        };
        let Some(encloser) = verified.expanded_below else {
            return Ok((Step::Inside, verified.ttl.max(1)));
        };
        if is_dname {
            return Ok(bogus(Fault::Wrong));
        }
        let (denial, seconds) = match denial_of(&response, zone, context) {
            Ok(found) => found,
            Err(fault) => return Ok(bogus(fault)),
        };
        let (limits, work) = context.limits_and_work();
        let proof = denial.no_closer_name(name, &encloser, limits, work);
        return Ok(match proof.security {
            Security::Secure => (Step::Inside, seconds.min(verified.ttl).max(1)),
            Security::Bogus => bogus(Fault::NoProof),
            _ => (Step::Cut(Trust::Insecure(proof.extended_error)), seconds),
        });
    }
    if !matches!(response.rcode, Rcode::NOERROR | Rcode::NXDOMAIN) {
        return Ok((Step::Cut(Trust::Bogus(Fault::Unreachable)), 0));
    }
    let (denial, seconds) = match denial_of(&response, zone, context) {
        Ok(found) => found,
        Err(fault) => return Ok(bogus(fault)),
    };
    let (limits, work) = context.limits_and_work();
    Ok(match denial.delegation(name, limits, work) {
        Ok((Delegation::Unsigned, cause)) => (Step::Cut(Trust::Insecure(cause)), seconds),
        Ok((Delegation::None, _)) => (Step::Inside, seconds),
        Ok((Delegation::Unproven, _)) => bogus(Fault::NoProof),
        Err(fault) => bogus(fault),
    })
}

/// Returns the NSEC and NSEC3 records of a response that have a valid signature of the zone, and the time for which they
/// are valid, in seconds.
fn denial_of(
    response: &Response,
    zone: &Zone,
    context: &mut Context<'_>,
) -> Result<(Denial, u32), Fault> {
    let mut denial = Denial::new(zone.name.clone());
    let (mut fault, mut seconds) = (Fault::NoSignature, MOST_SECONDS);
    for (_, set) in response.authority.iter() {
        if !matches!(set.rtype, Rtype::NSEC | Rtype::NSEC3) {
            continue;
        }
        match verify(set, zone, &mut context.checks()) {
            Ok(verified) if verified.expanded_below.is_none() => {
                seconds = seconds.min(verified.ttl.max(1));
                denial.add(set);
            }
            Ok(_) => {}
            Err(limit @ Fault::Limit(_)) => return Err(limit),
            Err(other) => fault = fault.max(other),
        }
    }
    match denial.is_empty() {
        true if fault == Fault::NoSignature => Err(Fault::NoProof),
        true => Err(fault),
        false => Ok((denial, seconds)),
    }
}

/// Returns the time for which it is stored that a zone is bogus, in seconds. A limit on the work for one response does
/// not make its zone bogus.
fn seconds_of(fault: Fault) -> u32 {
    match fault {
        Fault::Limit(limit) if limit != Limit::KeysWithOneTag => 0,
        _ => BOGUS_SECONDS,
    }
}

/// Returns the signed alias that a response to a DS query has for this name.
fn alias<'a>(response: &'a Response, name: &Name) -> Option<&'a RrSet> {
    let dname = |set: &&RrSet| set.is_dname_above(name);
    let sets = || response.answer.iter().map(|(_, set)| set);
    let cname = |set: &&RrSet| set.rtype == Rtype::CNAME && set.owner == *name;
    sets().find(dname).or_else(|| sets().find(cname))
}

/// Returns the trust in the zone `name`, whose keys are published as `ds` in its parent zone or in a trust anchor. A
/// trust anchor can also consist of the keys themselves. Also returns the time for which the result is valid, in seconds.
fn keys_of(
    name: &Name,
    ds: &[Ds<Bytes>],
    trusted: &[Dnskey<Bytes>],
    context: &mut Context<'_>,
) -> Result<(Trust, u32), Query> {
    let with_sha1 = context.limits().accept_sha1;
    let usable = match usable(ds, with_sha1) {
        Ok(usable) => usable,
        Err(cause) if trusted.is_empty() => {
            return Ok((Trust::Insecure(Some(cause)), MOST_SECONDS));
        }
        Err(_) => Vec::new(),
    };
    let Some(octets) = context.response(name, Rtype::DNSKEY)? else {
        return Ok((Trust::Bogus(Fault::Unreachable), 0));
    };
    let bogus = |fault| Ok((Trust::Bogus(fault), seconds_of(fault)));
    let Ok(response) = Response::parse(&octets) else { return bogus(Fault::Wrong) };
    if response.rcode != Rcode::NOERROR {
        return bogus(Fault::NoKey);
    }
    let Some(index) = response.answer.find(name, Rtype::DNSKEY) else {
        return bogus(Fault::NoKey);
    };
    let set = response.answer.get(index);
    let published = set.data().filter_map(as_dnskey);
    // Keys for other purposes, and revoked keys (RFC 5011 §2.1), sign no data.
    let keys: Vec<Key> =
        published.filter(|key| key.protocol() == 3 && !key.is_revoked()).map(Key::copy).collect();
    let octets: usize = keys.iter().map(|key| key.dnskey.public_key().len()).sum();
    if keys.len() > MOST_KEYS || octets > MOST_KEY_OCTETS {
        return bogus(Fault::Wrong);
    }
    let most = context.limits().keys_with_one_tag;
    let same = |tag| keys.iter().filter(|key| key.tag == tag).count();
    if keys.iter().any(|key| same(key.tag) > most) {
        return bogus(Fault::Limit(Limit::KeysWithOneTag));
    }
    let is_entry = |key: &&Key| {
        trusted.iter().any(|trusted| trusted == &key.dnskey)
            || usable.iter().any(|ds| key.matches(ds, name))
    };
    let entries: Vec<Key> = keys.iter().filter(is_entry).cloned().collect();
    if entries.is_empty() {
        return bogus(Fault::NoKey);
    }
    let entry_zone = Zone { name: name.clone(), keys: entries };
    match verify(set, &entry_zone, &mut context.checks()) {
        Ok(verified) if verified.expanded_below.is_none() => {
            Ok((Trust::Keys(Arc::new(Zone { keys, ..entry_zone })), verified.ttl.max(1)))
        }
        Ok(_) => bogus(Fault::Wrong),
        Err(fault) => bogus(fault),
    }
}

/// Returns the DS records that can be used. If a record with SHA-256 or SHA-384 is present, those with SHA-1 are ignored
/// (RFC 4509 §3).
///
/// # Errors
/// Returns the reason why no record can be used.
fn usable(ds: &[Ds<Bytes>], with_sha1: bool) -> Result<Vec<Ds<Bytes>>, ExtendedErrorCode> {
    let of_known_algorithm = |ds: &&Ds<Bytes>| is_supported(ds.algorithm(), with_sha1);
    let is_strong = |ds: &&Ds<Bytes>| {
        matches!(ds.digest_type(), DigestAlgorithm::SHA256 | DigestAlgorithm::SHA384)
    };
    let known = || ds.iter().filter(of_known_algorithm);
    if known().next().is_none() {
        return Err(ExtendedErrorCode::UNSUPPORTED_DNSKEY_ALGORITHM);
    }
    let strong: Vec<_> = known().filter(is_strong).take(MOST_DS).cloned().collect();
    if !strong.is_empty() {
        return Ok(strong);
    }
    let weak: Vec<_> = known()
        .filter(|ds| with_sha1 && ds.digest_type() == DigestAlgorithm::SHA1)
        .cloned()
        .collect();
    if weak.is_empty() { Err(ExtendedErrorCode::UNSUPPORTED_DS_DIGEST_TYPE) } else { Ok(weak) }
}

fn as_ds(data: &crate::rrset::Data) -> Option<&Ds<Bytes>> {
    match data {
        AllRecordData::Ds(ds) => Some(ds),
        _ => None,
    }
}

fn as_dnskey(data: &crate::rrset::Data) -> Option<&Dnskey<Bytes>> {
    match data {
        AllRecordData::Dnskey(key) => Some(key),
        _ => None,
    }
}
