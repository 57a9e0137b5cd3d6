//! Result of a validation.

use domain::base::iana::{ExtendedErrorCode, SecurityAlgorithm};

use crate::limits::Limit;

/// Security status of data (RFC 4035 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Security {
    /// Signatures lead from a trust anchor to the data.
    Secure,
    /// A signed proof shows that the zone of the data is unsigned, or is signed only with unsupported algorithms.
    Insecure,
    /// No trust anchor is above the name.
    Indeterminate,
    /// A negative trust anchor (RFC 7646) turns validation off for the name.
    Unchecked,
    /// The data must be signed, and a signature or a proof is missing or invalid.
    Bogus,
}

impl std::fmt::Display for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Security::Secure => "secure",
            Security::Insecure => "insecure",
            Security::Indeterminate => "indeterminate",
            Security::Unchecked => "unchecked",
            Security::Bogus => "bogus",
        })
    }
}

/// Result of the validation of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Security status of the response.
    pub security: Security,
    /// Extended DNS error (RFC 8914) that explains a status other than secure.
    pub extended_error: Option<ExtendedErrorCode>,
    /// Maximum TTL of the records of the response, in seconds. No signature expires earlier, and no signed TTL is
    /// smaller (RFC 4035 §5.3.3).
    pub ttl: u32,
    /// Limit that ended the validation.
    pub limit: Option<Limit>,
}

impl Verdict {
    pub(crate) const fn secure(ttl: u32) -> Verdict {
        Verdict { security: Security::Secure, extended_error: None, ttl, limit: None }
    }

    pub(crate) const fn insecure(extended_error: Option<ExtendedErrorCode>) -> Verdict {
        Verdict { security: Security::Insecure, extended_error, ttl: u32::MAX, limit: None }
    }

    pub(crate) const fn bogus(fault: Fault) -> Verdict {
        let limit = match fault {
            Fault::Limit(limit) => Some(limit),
            _ => None,
        };
        let extended_error = Some(fault.extended_error());
        Verdict { security: Security::Bogus, extended_error, ttl: 0, limit }
    }

    /// Returns the verdict on two parts of one response: the worse status and the smaller TTL.
    pub(crate) fn and(self, other: Verdict) -> Verdict {
        let worse = if other.security > self.security { other } else { self };
        Verdict { ttl: self.ttl.min(other.ttl), ..worse }
    }
}

/// Reason why data are bogus. If several signatures fail, the greatest reason is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// No signature of the zone was found.
    NoSignature,
    /// The zone has no key that matches a DS record or a signature.
    NoKey,
    /// The proof that a name or type does not exist is missing or incomplete.
    NoProof,
    /// The matching key does not have the Zone Key flag.
    NoZoneKey,
    /// The signature is not valid yet.
    NotYetValid,
    /// The signature has expired.
    Expired,
    /// A signature or a proof is wrong.
    Wrong,
    /// The DS or DNSKEY records of a zone could not be fetched.
    Unreachable,
    /// A limit on the work for one response was reached.
    Limit(Limit),
}

impl Fault {
    /// Returns the extended DNS error of the fault (RFC 8914 §4).
    pub(crate) const fn extended_error(self) -> ExtendedErrorCode {
        match self {
            Fault::NoSignature => ExtendedErrorCode::RRSIGS_MISSING,
            Fault::NoKey => ExtendedErrorCode::DNSKEY_MISSING,
            Fault::NoProof => ExtendedErrorCode::NSEC_MISSING,
            Fault::NoZoneKey => ExtendedErrorCode::NO_ZONE_KEY_BIT_SET,
            Fault::NotYetValid => ExtendedErrorCode::SIGNATURE_NOT_YET_VALID,
            Fault::Expired => ExtendedErrorCode::SIGNATURE_EXPIRED,
            Fault::Wrong | Fault::Limit(_) => ExtendedErrorCode::DNSSEC_BOGUS,
            Fault::Unreachable => ExtendedErrorCode::NO_REACHABLE_AUTHORITY,
        }
    }
}

/// True if signatures of this algorithm can be checked. The algorithms 5 and 7 use SHA-1; RFC 9905 §3 requires
/// that validators treat zones that are signed only with them as unsigned.
pub(crate) fn is_supported(algorithm: SecurityAlgorithm, with_sha1: bool) -> bool {
    match algorithm {
        SecurityAlgorithm::RSASHA256
        | SecurityAlgorithm::RSASHA512
        | SecurityAlgorithm::ECDSAP256SHA256
        | SecurityAlgorithm::ECDSAP384SHA384
        | SecurityAlgorithm::ED25519 => true,
        SecurityAlgorithm::RSASHA1 | SecurityAlgorithm::RSASHA1_NSEC3_SHA1 => with_sha1,
        _ => false,
    }
}
