//! The question of an upstream query, and the reasons why a message is not usable as its answer.

use wire::view::{Malformed, rtype};

/// Maximum length of an alias chain. Longer chains are treated as loops.
pub(crate) const MAX_ALIASES: usize = 16;

/// Reason why a message is not usable as an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Unusable {
    /// The message is malformed, or contradicts itself.
    #[error("malformed")]
    Malformed,
    /// The message answers a different question.
    #[error("answers another question")]
    OtherQuestion,
    /// The message's aliases form a loop, or there are too many aliases.
    #[error("alias loop")]
    AliasLoop,
}

impl From<Malformed> for Unusable {
    fn from(_: Malformed) -> Unusable {
        Unusable::Malformed
    }
}

/// DNSSEC records that an answer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DnssecRecords {
    /// All records are kept. The answer is not validated.
    AsReceived,
    /// Signatures and proofs are kept. In the authority section, no other records are kept, because they are not
    /// validated, and the AD bit covers the whole section (RFC 4035 §3.2.3).
    Proofs,
    /// As with `Proofs`, but RRSIG, NSEC and NSEC3 records are removed, except those of the queried type (RFC 4035
    /// §3.2.1).
    None,
}

/// The question of an upstream query.
#[derive(Clone, Copy)]
pub(super) struct UpstreamQuestion<'a> {
    /// Name in lower case, type and class.
    pub(super) question: &'a [u8],
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    /// DNSSEC records that the answer keeps.
    pub(super) dnssec: DnssecRecords,
}

impl<'a> UpstreamQuestion<'a> {
    /// Parses a question section. Returns `None` if the section is too short.
    pub(super) fn of(question: &'a [u8], dnssec: DnssecRecords) -> Option<UpstreamQuestion<'a>> {
        let [.., _, t0, t1, c0, c1] = *question else { return None };
        Some(UpstreamQuestion {
            question,
            qtype: u16::from_be_bytes([t0, t1]),
            qclass: u16::from_be_bytes([c0, c1]),
            dnssec,
        })
    }

    /// True if a record of this type must be removed from the answer and additional sections.
    #[inline]
    pub(super) fn drops(&self, rtype: u16) -> bool {
        self.dnssec == DnssecRecords::None
            && matches!(rtype, rtype::RRSIG | rtype::NSEC | rtype::NSEC3)
            && self.qtype != rtype::ANY
            && rtype != self.qtype
    }

    /// True if a record of this type must be removed from the authority section. `covered` returns the type that a
    /// signature covers.
    #[inline]
    pub(super) fn drops_authority(
        &self,
        rtype: u16,
        covered: impl FnOnce() -> Option<u16>,
    ) -> bool {
        self.dnssec != DnssecRecords::AsReceived
            && (self.drops(rtype)
                || !matches!(covered().unwrap_or(rtype), rtype::SOA | rtype::NSEC | rtype::NSEC3))
    }
}

/// Returns the TTL, or zero if its top bit is set (RFC 2181 §8).
pub(super) fn sane(ttl: u32) -> u32 {
    if ttl > i32::MAX as u32 { 0 } else { ttl }
}
