//! State that is shared by all validations, and the state of one step.

use bytes::Bytes;
use domain::base::iana::{ExtendedErrorCode, Rtype};

use crate::anchors::TrustAnchors;
use crate::limits::{Limits, Work};
use crate::name::Name;
use crate::signature::Checks;
use crate::verdict::{Security, Verdict};
use crate::zone_cache::{Step, Trust, ZoneCache};

/// State that all validations share.
pub struct Validator {
    anchors: TrustAnchors,
    pub(crate) limits: Limits,
    zones: ZoneCache,
}

impl Validator {
    /// Returns a validator. It stores the keys of zones, and the proofs that zones are unsigned, in up to `most_octets`
    /// octets of memory.
    pub fn new(anchors: TrustAnchors, limits: Limits, most_octets: usize) -> Validator {
        Validator { anchors, limits, zones: ZoneCache::new(most_octets) }
    }

    /// Returns the verdict on an unsigned answer without aliases, if it is already known that the name of the question is
    /// in an unsigned zone. Otherwise the answer needs a [`Validation`](crate::Validation). `name` is in wire format and
    /// lower case, and `now` is the time in seconds since 1970. The answer must not be one to a query for DS records,
    /// which are in the zone above.
    pub fn known_insecure(&self, name: &[u8], now: u64) -> Option<Verdict> {
        // The closest zone that is stored decides: below an unsigned zone, everything is insecure.
        let mut zone = None;
        for suffix in suffixes(name) {
            if self.anchors.negative_for(suffix, now).is_some() {
                return None;
            }
            if zone.is_none()
                && let Some(Step::Cut(trust)) = self.zones.get(suffix, now as u32)
            {
                zone = Some(trust);
            }
            if self.anchors.has(suffix) {
                let Some(Trust::Insecure(cause)) = zone else { return None };
                return Some(Verdict::insecure(cause));
            }
        }
        None
    }

    /// Returns the zones from the trust anchor down to the zone of a name, as far as they are stored. `now` is the time in
    /// seconds since 1970. The list is empty if no trust anchor is above the name.
    pub fn chain(&self, name: &Name, now: u64) -> Vec<ZoneStatus> {
        let Some((_, names)) = self.anchors.path_to(name) else { return Vec::new() };
        let status = |zone: Name| match self.zones.get(zone.as_slice(), now as u32) {
            Some(Step::Cut(trust)) => Some(ZoneStatus::new(zone, &trust)),
            Some(Step::Inside) | None => None,
        };
        names.into_iter().filter_map(status).collect()
    }

    /// Returns the highest zone with a trust anchor, usually the root. If a resolver returns signatures at all, it
    /// returns those of this zone. `None` if there is no trust anchor.
    pub fn top_zone(&self) -> Option<&Name> {
        self.anchors.top()
    }
}

impl std::fmt::Debug for Validator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Validator").field("anchors", &self.anchors).finish_non_exhaustive()
    }
}

/// Returns a name in wire format and all its ancestors, down to the root.
fn suffixes(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |name| parent(name))
}

fn parent(name: &[u8]) -> Option<&[u8]> {
    let len = usize::from(*name.first()?);
    if len == 0 { None } else { name.get(1 + len..) }
}

/// Security status of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneStatus {
    /// Apex of the zone.
    pub zone: Name,
    /// Security status of the zone.
    pub security: Security,
    /// Tags of the keys of a secure zone.
    pub key_tags: Vec<u16>,
    /// Extended DNS error (RFC 8914) that explains a status other than secure.
    pub extended_error: Option<ExtendedErrorCode>,
}

impl ZoneStatus {
    fn new(zone: Name, trust: &Trust) -> ZoneStatus {
        let (security, key_tags, extended_error) = match trust {
            Trust::Keys(keys) => {
                (Security::Secure, keys.keys.iter().map(|key| key.tag).collect(), None)
            }
            Trust::Insecure(cause) => (Security::Insecure, Vec::new(), *cause),
            Trust::Bogus(fault) => (Security::Bogus, Vec::new(), Some(fault.extended_error())),
            Trust::Indeterminate => (Security::Indeterminate, Vec::new(), None),
            Trust::Unchecked(_) => (Security::Unchecked, Vec::new(), None),
        };
        ZoneStatus { zone, security, key_tags, extended_error }
    }
}

/// A query for DS or DNSKEY records, which the caller must send with DO and CD set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Name of the query.
    pub name: Name,
    /// Type of the query: DS or DNSKEY.
    pub rtype: Rtype,
}

/// State of a validation during one step.
pub(crate) struct Context<'a> {
    validator: &'a Validator,
    fetched: &'a [(Query, Option<Bytes>)],
    work: &'a mut Work,
    now: u64,
    is_over: &'a dyn Fn() -> bool,
}

impl<'a> Context<'a> {
    /// Returns the state of a step.
    pub(crate) fn new(
        validator: &'a Validator,
        fetched: &'a [(Query, Option<Bytes>)],
        work: &'a mut Work,
        now: u64,
        is_over: &'a dyn Fn() -> bool,
    ) -> Context<'a> {
        Context { validator, fetched, work, now, is_over }
    }

    pub(crate) fn anchors(&self) -> &'a TrustAnchors {
        &self.validator.anchors
    }

    pub(crate) fn zones(&self) -> &'a ZoneCache {
        &self.validator.zones
    }

    pub(crate) fn limits(&self) -> &'a Limits {
        &self.validator.limits
    }

    /// Returns the time in seconds since 1970.
    pub(crate) fn time(&self) -> u64 {
        self.now
    }

    /// Returns the time in the form of times in signatures: seconds since 1970, modulo 2³² (RFC 4034 §3.1.5).
    pub(crate) fn now(&self) -> u32 {
        self.now as u32
    }

    pub(crate) fn is_over(&self) -> &'a dyn Fn() -> bool {
        self.is_over
    }

    pub(crate) fn limits_and_work(&mut self) -> (&'a Limits, &mut Work) {
        (&self.validator.limits, self.work)
    }

    /// Returns the response to a query for DS or DNSKEY records, or `None` if no server answered.
    ///
    /// # Errors
    /// Returns the query if it has not been sent yet.
    pub(crate) fn response(&self, name: &Name, rtype: Rtype) -> Result<Option<Bytes>, Query> {
        let query = Query { name: name.clone(), rtype };
        let found = self.fetched.iter().find(|(sent, _)| *sent == query);
        found.map(|(_, response)| response.clone()).ok_or(query)
    }

    /// Returns the state that signature checks need.
    pub(crate) fn checks(&mut self) -> Checks<'_> {
        let (now, is_over) = (self.now(), self.is_over());
        let (limits, work) = self.limits_and_work();
        Checks { limits, work, now, is_over }
    }
}
