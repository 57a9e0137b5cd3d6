//! Outcome of a fetch: an answer with its age, or the reason why there is none.

use std::sync::Arc;

use dnssec::Security;

use crate::resolver::answer::Answer;

/// Reason why a fetch has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No upstream answered in time.
    Timeout,
    /// A response was malformed, and no upstream sent a usable one.
    Malformed,
    /// An answer had an alias loop, or too many aliases.
    AliasLoop,
    /// A local limit on client queries in flight, or on upstream queries over TCP, was reached.
    Overload,
    /// No upstream is reachable: each refused the query, or there is no route.
    Unreachable,
    /// No upstream is configured, neither in the configuration file nor in resolv.conf.
    NoUpstream,
    /// DNSSEC validation rejected the answer. The value is the extended DNS error (RFC 8914) that explains the reason.
    Bogus(u16),
    /// The answer was not validated: too many validations waited, or the DS or DNSKEY records could not be fetched. The
    /// value is the extended DNS error that explains the reason.
    NotValidated(u16),
}

/// Outcome of a fetch.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// An answer, including error responses.
    Answered(CachedAnswer),
    /// No answer, for this reason.
    Failed(Failure),
}

impl Outcome {
    /// Returns the answer, if there is one.
    #[inline]
    pub(crate) fn kept(&self) -> Option<&CachedAnswer> {
        match self {
            Outcome::Answered(kept) => Some(kept),
            Outcome::Failed(_) => None,
        }
    }

    /// Returns the result of the DNSSEC validation by this server, or `None` if there was no validation.
    pub(crate) fn security(&self) -> Option<Security> {
        match self {
            Outcome::Answered(kept) => kept.answer.security(),
            Outcome::Failed(Failure::Bogus(_)) => Some(Security::Bogus),
            Outcome::Failed(_) => None,
        }
    }
}

/// An answer with its age.
#[derive(Clone, Debug)]
pub(crate) struct CachedAnswer {
    /// The upstream's answer with its original TTLs.
    pub answer: Arc<Answer>,
    /// Seconds since the answer arrived.
    pub age: u32,
    /// True if the answer has expired (RFC 8767).
    pub stale: bool,
    /// Used only for a stale answer. Number of seconds since an upstream responded to a refresh with SERVFAIL without
    /// an extended error, or `None` if there was no such response. The upstream may have rejected the new answer's
    /// signatures. In that case the old answer must not replace the new one.
    pub doubted: Option<u32>,
}

/// TTL of expired records in replies, in seconds (RFC 8767 §4).
pub(crate) const STALE_TTL: u32 = 30;

impl CachedAnswer {
    /// Creates an entry with age 0 for an answer that has just arrived.
    pub(crate) fn fresh(answer: Arc<Answer>) -> CachedAnswer {
        CachedAnswer { answer, age: 0, stale: false, doubted: None }
    }

    /// True if the answer is marked as validated. The signatures of a stale answer may have expired.
    #[inline]
    pub(crate) fn is_authentic(&self) -> bool {
        self.answer.is_authentic() && !self.stale
    }

    /// For an error response, returns its age in seconds. For a stale answer, returns the number of seconds since a
    /// refresh failed with SERVFAIL, or 0 if no refresh failed in this way.
    pub(crate) fn since_failure(&self) -> u32 {
        if self.stale { self.doubted.unwrap_or(0) } else { self.age }
    }

    /// Returns the TTL minus the answer's age, in seconds. For a stale answer, returns the fixed TTL of expired records
    /// (`STALE_TTL`).
    #[inline]
    pub(crate) fn left(&self, ttl: u32) -> u32 {
        if self.stale { STALE_TTL } else { ttl.saturating_sub(self.age) }
    }
}
