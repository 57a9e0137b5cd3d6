//! Who waits for a question, and what they are told.

use method::units::Nanos;
use smallvec::SmallVec;

use super::outcome::Outcome;
use crate::ids::JobId;
use crate::name::{Key, text};
use crate::shares::Place;
use crate::shares::client::ClientId;

/// Who waits for a question. What else is to wait, a validation for example, gets a variant here;
/// the resolver hands waiters back as it got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A client query that is not answered yet (`server::jobs`).
    Job(JobId),
}

/// One who waits for a question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Whom to tell.
    pub(crate) waiter: Waiter,
    /// The place in which the client's query waits.
    pub(super) place: Place,
    /// When it is told something else if there is no answer yet: that an old one has to do;
    /// [`NEVER`] if it waits to the end.
    pub(super) answer_by: Nanos,
}

/// A moment that never comes.
pub(super) const NEVER: Nanos = Nanos(u64::MAX);

/// Those who wait for one question: one, nearly always.
pub(crate) type Waiters = SmallVec<[Waiting; 1]>;

/// Who asks, and how urgent it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Whom to tell what comes of the question.
    pub(crate) waiter: Waiter,
    /// Client of the query.
    pub(crate) client: ClientId,
    /// When the query came for which this is asked.
    pub(crate) since: Nanos,
    /// Whether nothing has been asked for that query yet. A query for which something has been
    /// asked gets the rest as well: else that were for nothing.
    pub(crate) first: bool,
    /// Whether that query has waited for upstreams in vain before: waiting once more would be too
    /// long for its client (RFC 8767 §5), and a stale answer will do at once.
    pub(crate) in_vain: bool,
    /// How old the answer may be, seconds.
    pub(crate) max_age: u32,
    /// Whether the query has a stale answer, and this question only finds out whether it may be
    /// served: it is, where nobody says in time that it must not.
    pub(crate) dispensable: bool,
}

/// The reply to a demand.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The outcome is known at once, be it a failure that is remembered: nobody waits.
    Known(Outcome),
    /// The waiter will be told.
    Waiting,
    /// Nobody has been asked, and nobody waits.
    Denied(Denial),
}

/// Why a question is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The query is so old that its client is about to ask again.
    TooLate,
    /// As many questions are in flight, or as many queries wait, as may.
    NoRoom,
    /// The client, or a network around it, holds its share of the places.
    ClientShare,
    /// The name is in a dead branch, and the share of that branch, or of the client in it, is held.
    DeadBranch,
}

/// A question that is over.
#[derive(Debug)]
pub(crate) struct Landed {
    /// Who waited, in the order in which they came.
    pub(crate) waiters: Waiters,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

/// A question that is over, of which not all who wait have been told.
pub(super) struct Landing {
    pub(super) waiters: Waiters,
    /// The question, if other workers may wait for it.
    pub(super) told: Option<Key>,
}

impl Landing {
    /// The question in words, where it is known.
    pub(super) fn question(&self) -> Option<String> {
        self.told.as_ref().map(|key| format!("{} of type {}", text(key.name()), key.qtype()))
    }
}
