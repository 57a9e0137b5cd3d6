//! Limits on fetches in flight and on client queries that wait for them, and the division of these
//! limits among clients. A *place* is the capacity for one fetch, or for one waiting query.
//!
//! The number of fetches in flight is limited to the number that upstreams can answer in time (`rate`). This number is
//! divided among the networks of clients at every prefix length ([`crate::shares`]), so that heavy load from some
//! networks does not exclude the others. A failing subtree (`failing_subtrees`) gets one more fetch while it holds
//! fewer than an eighth of the free places. This share is divided among the networks of clients in the same way. The
//! first fetch of a client in a subtree that fails because of an attack is therefore admitted.
//!
//! Places for waiting queries are divided in the same way, because a query that waits for a fetch
//! of another client holds a place too. Queries that wait for a fetch in a failing subtree may hold
//! at most an eighth of the free places.
//!
//! Shares matter only when places are scarce. While less than an eighth of the places is taken, every client is
//! admitted. This first eighth is not counted for any network, even when more places are taken later, so that usual
//! load causes no overhead. Only the remaining places are divided.

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
use crate::shares::{Place, Places};

/// Divisor of the number of free places. The result is the number of places that a failing subtree may hold.
const SUBTREE_DIVISOR: usize = 8;
/// Identifier for the places that do not belong to a failing subtree.
const ALL: u64 = 0;

/// The budget of one worker.
pub(super) struct Budget {
    rate: Rate,
    /// Fetches in flight. A fetch in a failing subtree is also counted for that subtree.
    questions: Counts,
    /// Places of waiting queries.
    places: Counts,
    /// Number of places taken by waiting queries.
    waiting: usize,
    failing_subtrees: FailingSubtrees,
}

/// The places held by a fetch.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdmissionTicket {
    place: Place,
    subtree: Option<SubtreeId>,
}

impl AdmissionTicket {
    /// Returns the client that caused the fetch.
    pub(super) fn client(&self) -> ClientId {
        self.place.client
    }
}

impl Budget {
    /// Returns a budget without fetches.
    pub(super) fn new() -> Budget {
        Budget {
            rate: Rate::default(),
            questions: Counts::default(),
            places: Counts::default(),
            waiting: 0,
            failing_subtrees: FailingSubtrees::default(),
        }
    }

    /// Returns the place for a waiting query from `client`. `most` is the total number of places.
    /// `first` is true for the first upstream query of a client query. Later upstream queries are
    /// limited only by the number of places, because upstreams have already done work for the
    /// client query.
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
    ) -> Result<Place, Rejection> {
        let places = Places { taken: self.waiting, most };
        if places.free() == 0 {
            return Err(Rejection::NoRoom);
        }
        let place = places.next(client);
        if first && place.counted && !self.places.admit(ALL, client, places) {
            return Err(Rejection::ClientShare);
        }
        Ok(place)
    }

    /// Checks whether one more query may wait for a fetch for `name` (wire format, lower case) that
    /// has `others` waiters. `most` is the total number of places.
    ///
    /// # Errors
    ///
    /// Returns an error if the fetch belongs to a failing subtree with too many waiting queries.
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

    /// Takes a place for a waiting query.
    #[inline]
    pub(super) fn enter_waiter(&mut self, place: Place) {
        self.waiting += 1;
        if place.counted {
            self.places.enter(ALL, place.client);
        }
    }

    /// Releases the place of a waiting query.
    #[inline]
    pub(super) fn leave_waiter(&mut self, place: Place) {
        self.waiting -= 1;
        if place.counted {
            self.places.leave(ALL, place.client);
        }
    }

    /// Returns the number of fetches that may be in flight if each may take `timeout`.
    #[inline]
    pub(super) fn questions(&self, timeout: Nanos) -> usize {
        self.rate.questions(timeout)
    }

    /// Returns the places that `client` needs for a fetch of `name` (wire format, lower case).
    #[inline]
    pub(super) fn ticket(
        &self,
        client: ClientId,
        name: &[u8],
        places: Places,
        now: Nanos,
    ) -> AdmissionTicket {
        AdmissionTicket {
            place: places.next(client),
            subtree: self.failing_subtrees.failing(name, now),
        }
    }

    /// Checks whether one more fetch may be in flight.
    ///
    /// # Errors
    ///
    /// Returns the limit that rejects the fetch.
    #[inline]
    pub(super) fn admit(&self, ticket: AdmissionTicket, places: Places) -> Result<(), Rejection> {
        let AdmissionTicket { place, subtree } = ticket;
        if places.free() == 0 {
            return Err(Rejection::NoRoom);
        }
        if place.counted && !self.questions.admit(ALL, place.client, places) {
            return Err(Rejection::ClientShare);
        }
        match subtree {
            Some(subtree) if !self.admits_to_subtree(subtree, place.client, places) => {
                Err(Rejection::FailingSubtree)
            }
            _ => Ok(()),
        }
    }

    /// True if a client may have one more fetch in flight in a failing subtree.
    fn admits_to_subtree(&self, subtree: SubtreeId, client: ClientId, places: Places) -> bool {
        let most = places.free().div_ceil(SUBTREE_DIVISOR);
        let places = Places { taken: self.failing_subtrees.questions(subtree), most };
        places.free() > 0 && self.questions.admit(subtree.number(), client, places)
    }

    /// Takes the places of a fetch that begins.
    #[inline]
    pub(super) fn enter(&mut self, AdmissionTicket { place, subtree }: AdmissionTicket) {
        if place.counted {
            self.questions.enter(ALL, place.client);
        }
        if let Some(subtree) = subtree {
            self.failing_subtrees.enter(subtree);
            self.questions.enter(subtree.number(), place.client);
        }
    }

    /// Releases the places of a fetch that ends.
    #[inline]
    pub(super) fn leave(&mut self, AdmissionTicket { place, subtree }: AdmissionTicket) {
        if place.counted {
            self.questions.leave(ALL, place.client);
        }
        if let Some(subtree) = subtree {
            self.failing_subtrees.leave(subtree);
            self.questions.leave(subtree.number(), place.client);
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

    /// True if there were recent failures. Answers must then be recorded too.
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
