//! Callers waiting for a fetch, and the results delivered to them.

use smallvec::SmallVec;
use units::Nanos;

use super::outcome::Outcome;
use crate::ids::{FetchId, JobId};
use crate::name::{Key, text};
use crate::shares::Slot;
use crate::shares::client::ClientId;

/// A caller waiting for a fetch. The resolver returns waiters unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A client query that has not been answered yet (`server::jobs`).
    Job(JobId),
    /// A fetch with an answer that cannot be validated without DS or DNSKEY records.
    Validation(FetchId),
}

/// A caller that waits for a fetch, with its slot in the budget for outstanding queries, and the time at which it gets
/// a stale answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedWaiter {
    /// The caller that gets the result.
    pub(crate) waiter: Waiter,
    /// Slot that the client query occupies in the budget for outstanding queries.
    pub(super) slot: Slot,
    /// Time at which the waiter gets a stale answer if there is no other answer yet, or [`NEVER`]
    /// if the waiter waits until the fetch completes.
    pub(super) answer_by: Nanos,
}

/// A time that is never reached.
pub(super) const NEVER: Nanos = Nanos(u64::MAX);

/// The waiters of one fetch, nearly always a single one.
pub(crate) type Waiters = SmallVec<[QueuedWaiter; 1]>;

/// A request to resolve a question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolveRequest {
    /// The caller that gets the result.
    pub(crate) waiter: Waiter,
    /// Client that sent the query.
    pub(crate) client: ClientId,
    /// Arrival time of the client query.
    pub(crate) since: Nanos,
    /// True for the first upstream query of a client query. The limits per client apply only to this first upstream
    /// query, because the rejection of a later one would waste the work done so far.
    pub(crate) first: bool,
    /// True if the client query has already waited unsuccessfully for upstreams. A second wait would be too long for
    /// its client (RFC 8767 §5), so a stale answer is used at once.
    pub(crate) waited_before: bool,
    /// Maximum age of the answer, in seconds.
    pub(crate) max_age: u32,
    /// True for a DNSSEC probe on behalf of a client query for which a stale answer is available. If the probe does not
    /// finish in time, the stale answer is served.
    pub(crate) optional: bool,
}

/// Immediate result of a request to resolve a question.
#[derive(Debug)]
pub(crate) enum Resolve {
    /// The outcome is available at once; it may be a cached failure. The caller is not queued.
    Ready(Outcome),
    /// The caller is queued and will get the result.
    Pending,
    /// Rejected: no upstream query was sent and the caller is not queued.
    Rejected(Rejection),
}

/// Reason why a request to resolve a question was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The client query is so old that its client is about to retry.
    TooLate,
    /// The maximum number of fetches in flight, or of waiting client queries, has been reached.
    NoRoom,
    /// The client, or a network that contains it, has reached its limit on outstanding queries.
    ClientShare,
    /// The name is in a subtree of the DNS for which upstream queries fail. The limit on outstanding queries for this
    /// subtree, or the client's limit within the subtree, has been reached.
    FailingSubtree,
}

/// A completed fetch.
#[derive(Debug)]
pub(crate) struct Completed {
    /// The waiters, in order of arrival.
    pub(crate) waiters: Waiters,
    /// Outcome of the fetch.
    pub(crate) outcome: Outcome,
}

/// A fetch that is being completed. Not all of its waiters have been notified yet.
pub(super) struct Completion {
    pub(super) waiters: Waiters,
    /// The question, if other workers may wait for its result.
    pub(super) claimed_key: Option<Key>,
}

impl Completion {
    /// Returns the name and type of the question, or `None` if they are not stored.
    pub(super) fn question(&self) -> Option<String> {
        self.claimed_key.as_ref().map(|key| format!("{} of type {}", text(key.name()), key.qtype()))
    }
}
