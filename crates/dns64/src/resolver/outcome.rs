//! What became of a question to the upstreams: an answer, with its age, or the reason why there is
//! none.

use std::sync::Arc;

use crate::resolver::answer::Answer;

/// Why there is no answer to a question of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No upstream answered in time.
    Timeout,
    /// A reply was malformed, and no upstream gave one that could be used.
    Malformed,
    /// An answer had an alias loop, or aliases without end.
    AliasLoop,
    /// Too much is in flight: queries, or questions to upstreams over TCP.
    Overload,
    /// No upstream is known yet: the configuration names none, nor does resolv.conf.
    NoUpstream,
}

/// What became of a question.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// An answer, be it an error of the upstream.
    Answered(Kept),
    /// No answer, for this reason.
    Failed(Failure),
}

impl Outcome {
    /// The answer, if there is one.
    #[inline]
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match self {
            Outcome::Answered(kept) => Some(kept),
            Outcome::Failed(_) => None,
        }
    }
}

/// An answer and when it came.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// The upstream's answer, its TTLs as they were when it came.
    pub answer: Arc<Answer>,
    /// Seconds since the answer came.
    pub age: u32,
    /// Whether its time is over (RFC 8767).
    pub stale: bool,
    /// Of a stale answer: how many seconds ago an upstream, asked anew, said SERVFAIL without a
    /// reason, if it did. It may have rejected the new answer for its signatures, and then the old
    /// one must not stand for it.
    pub doubted: Option<u32>,
}

/// TTL of records that are served though their time is over, seconds (RFC 8767 §4).
pub(crate) const STALE_TTL: u32 = 30;

impl Kept {
    /// An answer that has just come.
    pub(crate) fn fresh(answer: Arc<Answer>) -> Kept {
        Kept { answer, age: 0, stale: false, doubted: None }
    }

    /// Of an error, or a stale answer that is doubtful: seconds since the upstream failed.
    pub(crate) fn since_failure(&self) -> u32 {
        if self.stale { self.doubted.unwrap_or(0) } else { self.age }
    }

    /// What is left of a TTL.
    #[inline]
    pub(crate) fn left(&self, ttl: u32) -> u32 {
        if self.stale { STALE_TTL } else { ttl.saturating_sub(self.age) }
    }
}
