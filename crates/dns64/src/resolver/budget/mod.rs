//! Limits on the number of fetches in flight, and on the number of client queries that wait for them. Each limit is
//! divided among the clients. A *slot* is the capacity for one fetch, or for one waiting query.
//!
//! The number of fetches in flight is limited to the number that upstreams can answer in time (`rate`). This limit is
//! divided among the networks of clients at every prefix length ([`crate::shares`]), so that heavy load from some
//! networks does not exclude the others. One more fetch in a failing subtree (`failing_subtrees`) is admitted while the
//! subtree has fewer fetches in flight than an eighth of the free slots. This eighth is divided among the networks of
//! clients in the same way. Even if a subtree fails because of an attack, each client's first fetch in it is therefore
//! admitted.
//!
//! The limit on waiting queries is divided in the same way, because a query that waits for a fetch of a different
//! client occupies a slot too. The number of queries that wait for one fetch in a failing subtree is limited to an
//! eighth of the free slots.
//!
//! The division takes effect only when slots are scarce. While less than an eighth of the slots is in use, every client
//! is admitted. A slot that is taken in this state is never counted for a network, even when more slots are in use
//! later. Usual load therefore causes no overhead. Only the other slots are divided.

mod failing_subtrees;
mod rate;
#[cfg(test)]
mod tests;

use units::Nanos;

use self::failing_subtrees::{FailingSubtrees, SubtreeId};
use self::rate::Rate;
use super::waiter::Rejection;
use crate::shares::client::ClientId;
use crate::shares::counts::Counts;
use crate::shares::{Slot, Slots};

/// The number of free slots, divided by this number, is the maximum number of fetches in flight in a failing subtree.
const SUBTREE_DIVISOR: usize = 8;
/// Identifier of the counts that include the fetches, or the waiting queries, for all names. Any other identifier
/// stands for a failing subtree.
const ALL: u64 = 0;

/// Fetches in flight and waiting queries of one worker, and the limits on both.
pub(super) struct Budget {
    rate: Rate,
    /// Fetches in flight, counted per client network. A fetch in a failing subtree is also counted for that subtree.
    questions: Counts,
    /// Queries that wait for fetches, counted per client network.
    slots: Counts,
    /// Number of queries that wait for fetches.
    waiting: usize,
    failing_subtrees: FailingSubtrees,
}

/// Client and failing subtree for which a fetch is counted in the budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdmissionTicket {
    slot: Slot,
    subtree: Option<SubtreeId>,
}

impl AdmissionTicket {
    /// Returns the client that caused the fetch.
    pub(super) fn client(&self) -> ClientId {
        self.slot.client
    }
}

impl Budget {
    /// Returns a budget with no fetches in flight and no waiting queries.
    pub(super) fn new() -> Budget {
        Budget {
            rate: Rate::default(),
            questions: Counts::default(),
            slots: Counts::default(),
            waiting: 0,
            failing_subtrees: FailingSubtrees::default(),
        }
    }

    /// Returns a budget slot for one more waiting query from `client`. `most` is the total number of slots. `first` is
    /// true for the first upstream query of a client query. Later upstream queries are limited only by the total number
    /// of slots, because upstreams have already done work for the client query.
    ///
    /// # Errors
    ///
    /// Returns the limit that rejects the query.
    #[inline]
    pub(super) fn admit_waiter(
        &self,
        client: ClientId,
        most: usize,
        first: bool,
    ) -> Result<Slot, Rejection> {
        let slots = Slots { taken: self.waiting, most };
        if slots.free() == 0 {
            return Err(Rejection::NoRoom);
        }
        let slot = slots.next(client);
        if first && slot.counted && !self.slots.admit(ALL, client, slots) {
            return Err(Rejection::ClientShare);
        }
        Ok(slot)
    }

    /// Checks whether one more client query may wait for the fetch of `name` (wire format, lower case), for which
    /// `others` queries already wait. `most` is the maximum number of waiting queries in total.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is in a failing subtree and too many queries already wait for the fetch.
    pub(super) fn admit_beside(
        &self,
        others: usize,
        name: &[u8],
        most: usize,
        now: Nanos,
    ) -> Result<(), Rejection> {
        let many = others * SUBTREE_DIVISOR >= most.saturating_sub(self.waiting);
        if many && self.failing_subtrees.failing(name, now).is_some() {
            Err(Rejection::FailingSubtree)
        } else {
            Ok(())
        }
    }

    /// Increments the number of waiting queries: in total and, if the slot is counted, for the client's networks.
    #[inline]
    pub(super) fn enter_waiter(&mut self, slot: Slot) {
        self.waiting += 1;
        if slot.counted {
            self.slots.enter(ALL, slot.client);
        }
    }

    /// Decrements the number of waiting queries: in total and, if the slot is counted, for the client's networks.
    #[inline]
    pub(super) fn leave_waiter(&mut self, slot: Slot) {
        self.waiting -= 1;
        if slot.counted {
            self.slots.leave(ALL, slot.client);
        }
    }

    /// Returns the maximum number of fetches in flight if each may take up to `timeout`.
    #[inline]
    pub(super) fn questions(&self, timeout: Nanos) -> usize {
        self.rate.questions(timeout)
    }

    /// Returns the client and the failing subtree for which a fetch of `name` (wire format, lower case) is to be
    /// counted.
    #[inline]
    pub(super) fn ticket(
        &self,
        client: ClientId,
        name: &[u8],
        slots: Slots,
        now: Nanos,
    ) -> AdmissionTicket {
        AdmissionTicket {
            slot: slots.next(client),
            subtree: self.failing_subtrees.failing(name, now),
        }
    }

    /// Checks whether one more fetch may be in flight.
    ///
    /// # Errors
    ///
    /// Returns the limit that rejects the fetch.
    #[inline]
    pub(super) fn admit(&self, ticket: AdmissionTicket, slots: Slots) -> Result<(), Rejection> {
        let AdmissionTicket { slot, subtree } = ticket;
        if slots.free() == 0 {
            return Err(Rejection::NoRoom);
        }
        if slot.counted && !self.questions.admit(ALL, slot.client, slots) {
            return Err(Rejection::ClientShare);
        }
        match subtree {
            Some(subtree) if !self.admits_to_subtree(subtree, slot.client, slots) => {
                Err(Rejection::FailingSubtree)
            }
            _ => Ok(()),
        }
    }

    /// True if a client may have one more fetch in flight in a failing subtree.
    fn admits_to_subtree(&self, subtree: SubtreeId, client: ClientId, slots: Slots) -> bool {
        let most = slots.free().div_ceil(SUBTREE_DIVISOR);
        let slots = Slots { taken: self.failing_subtrees.questions(subtree), most };
        slots.free() > 0 && self.questions.admit(subtree.number(), client, slots)
    }

    /// Adds a fetch to the counts. Called when the fetch begins.
    #[inline]
    pub(super) fn enter(&mut self, AdmissionTicket { slot, subtree }: AdmissionTicket) {
        if slot.counted {
            self.questions.enter(ALL, slot.client);
        }
        if let Some(subtree) = subtree {
            self.failing_subtrees.enter(subtree);
            self.questions.enter(subtree.number(), slot.client);
        }
    }

    /// Removes a fetch from the counts. Called when the fetch has ended.
    #[inline]
    pub(super) fn leave(&mut self, AdmissionTicket { slot, subtree }: AdmissionTicket) {
        if slot.counted {
            self.questions.leave(ALL, slot.client);
        }
        if let Some(subtree) = subtree {
            self.failing_subtrees.leave(subtree);
            self.questions.leave(subtree.number(), slot.client);
        }
    }

    /// Counts an upstream response that arrived in time.
    #[inline]
    pub(super) fn count_answer(&mut self, now: Nanos) {
        self.rate.answered(now);
    }

    /// Records a fetch for `name` that failed or timed out.
    pub(super) fn failed(&mut self, name: &[u8], now: Nanos) {
        self.failing_subtrees.failed(name, now);
    }

    /// True if a fetch failed within the last half minute. If false, answers need not be recorded.
    #[inline]
    pub(super) fn has_failures(&self, now: Nanos) -> bool {
        !self.failing_subtrees.no_recent_failure(now)
    }

    /// Records an answer for `name`. `by_parent` is true if the answer comes from a zone above that
    /// name.
    pub(super) fn answered(&mut self, name: &[u8], by_parent: bool, now: Nanos) {
        self.failing_subtrees
            .answered(if by_parent { failing_subtrees::parent(name) } else { name }, now);
    }
}
