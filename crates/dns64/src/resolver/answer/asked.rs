//! The question that an answer must answer, and why a message cannot be its answer.

use wire::view::Malformed;

/// Aliases in a row that are followed; more are taken for a loop (item 8).
pub(crate) const MAX_ALIASES: usize = 16;

/// Why a message cannot be an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Unusable {
    /// It breaks the format, or contradicts itself.
    #[error("malformed")]
    Malformed,
    /// It answers something else.
    #[error("not the question that was asked")]
    OtherQuestion,
    /// Its aliases lead back to themselves, or too far.
    #[error("alias loop")]
    AliasLoop,
}

impl From<Malformed> for Unusable {
    fn from(_: Malformed) -> Unusable {
        Unusable::Malformed
    }
}

/// The question to which an answer is wanted.
#[derive(Clone, Copy)]
pub(super) struct AskedQuestion<'a> {
    /// Name in lower case, type and class.
    pub(super) question: &'a [u8],
    pub(super) qtype: u16,
    pub(super) qclass: u16,
}

impl<'a> AskedQuestion<'a> {
    /// The question of a section; `None` if that is too short.
    pub(super) fn of(question: &'a [u8]) -> Option<AskedQuestion<'a>> {
        let [.., _, t0, t1, c0, c1] = *question else { return None };
        Some(AskedQuestion {
            question,
            qtype: u16::from_be_bytes([t0, t1]),
            qclass: u16::from_be_bytes([c0, c1]),
        })
    }
}

/// RFC 2181 §8: a TTL with the top bit set is zero.
pub(super) fn sane(ttl: u32) -> u32 {
    if ttl > i32::MAX as u32 { 0 } else { ttl }
}
