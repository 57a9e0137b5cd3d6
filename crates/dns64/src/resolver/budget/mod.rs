//! Limits for questions in flight and for queries that wait for them, and the shares of clients.
//!
//! The number of questions in flight is at most what upstreams answer in time (`rate`). It is
//! shared out among the networks of clients at every prefix length ([`crate::shares`]), so that
//! heavy load from some networks does not exclude the others. A dead branch of the name tree
//! (`branches`) gets one more question while it has fewer than an eighth of the free places. That
//! share is divided among the networks of clients in the same way. The first question of a client
//! in a branch that an attack made dead is therefore admitted.
//!
//! Places for waiting queries are shared out alike, because a query that waits for a question of
//! another client holds a place too. Beside a question of a dead branch at most an eighth of the
//! free places may be held.
//!
//! Shares matter only when places are scarce. While less than an eighth of them is taken, every client
//! is admitted, and the places are not counted as held by a network, so that usual load costs
//! nothing. They remain uncounted when places become scarce; the others are then shared out.

mod branches;
mod rate;
#[cfg(test)]
mod tests;

use method::units::Nanos;

use self::branches::{BranchId, Branches};
use self::rate::Rate;
use super::waiter::Denial;
use crate::shares::client::ClientId;
use crate::shares::counts::Counts;
use crate::shares::{Place, Places};

/// Divisor: a dead branch may hold this part of the free places.
const BRANCH: usize = 8;
/// Kind of places that do not belong to a dead branch.
const ALL: u64 = 0;

/// The budget of one worker.
pub(super) struct Budget {
    rate: Rate,
    /// Questions in flight; those of dead branches are counted once more for their branch.
    questions: Counts,
    /// Places in which queries wait.
    places: Counts,
    /// Number of places that are taken.
    waiting: usize,
    branches: Branches,
}

/// The places that a question in flight holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    place: Place,
    branch: Option<BranchId>,
}

impl Charge {
    /// The client that caused the question.
    pub(super) fn client(&self) -> ClientId {
        self.place.client
    }
}

impl Budget {
    /// Nothing is in flight yet.
    pub(super) fn new() -> Budget {
        Budget {
            rate: Rate::default(),
            questions: Counts::default(),
            places: Counts::default(),
            waiting: 0,
            branches: Branches::default(),
        }
    }

    /// Returns the place in which a query of `client` waits, where `most` may wait in all. `first`:
    /// nothing was asked for the query yet; otherwise only the number of places counts, because
    /// upstreams have already worked for it.
    ///
    /// # Errors
    /// If the query may not wait, with the limit that it meets.
    #[inline]
    pub(super) fn admit_waiter(
        &self,
        client: ClientId,
        most: usize,
        first: bool,
    ) -> Result<Place, Denial> {
        let places = Places { taken: self.waiting, most };
        if places.free() == 0 {
            return Err(Denial::NoRoom);
        }
        let place = places.next(client);
        if first && place.counted && !self.places.admit(ALL, client, places) {
            return Err(Denial::ClientShare);
        }
        Ok(place)
    }

    /// Checks if one more query may wait for a question in flight for `name` (wire format, lower
    /// case), for which `others` wait, where `most` may wait in all.
    ///
    /// # Errors
    /// If the question belongs to a dead branch, and enough queries wait for it.
    pub(super) fn admit_beside(
        &self,
        others: usize,
        name: &[u8],
        most: usize,
        now: Nanos,
    ) -> Result<(), Denial> {
        let many = others * BRANCH >= most.saturating_sub(self.waiting);
        if many && self.branches.dead(name, now).is_some() {
            Err(Denial::DeadBranch)
        } else {
            Ok(())
        }
    }

    /// Takes a place for a query that waits.
    #[inline]
    pub(super) fn enter_waiter(&mut self, place: Place) {
        self.waiting += 1;
        if place.counted {
            self.places.enter(ALL, place.client);
        }
    }

    /// Gives back the place of a query that waited.
    #[inline]
    pub(super) fn leave_waiter(&mut self, place: Place) {
        self.waiting -= 1;
        if place.counted {
            self.places.leave(ALL, place.client);
        }
    }

    /// Returns the number of questions that may be in flight if each may take `timeout`.
    #[inline]
    pub(super) fn questions(&self, timeout: Nanos) -> usize {
        self.rate.questions(timeout)
    }

    /// Returns the places that a question for `name` (wire format, lower case) by `client` takes.
    #[inline]
    pub(super) fn charge(
        &self,
        client: ClientId,
        name: &[u8],
        places: Places,
        now: Nanos,
    ) -> Charge {
        Charge { place: places.next(client), branch: self.branches.dead(name, now) }
    }

    /// Checks if one more question may be in flight.
    ///
    /// # Errors
    /// If it may not, with the limit that it meets.
    #[inline]
    pub(super) fn admit(&self, charge: Charge, places: Places) -> Result<(), Denial> {
        let Charge { place, branch } = charge;
        if places.free() == 0 {
            return Err(Denial::NoRoom);
        }
        if place.counted && !self.questions.admit(ALL, place.client, places) {
            return Err(Denial::ClientShare);
        }
        match branch {
            Some(branch) if !self.admits_to_branch(branch, place.client, places) => {
                Err(Denial::DeadBranch)
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a client may have one more question in flight in a dead branch.
    fn admits_to_branch(&self, branch: BranchId, client: ClientId, places: Places) -> bool {
        let most = places.free().div_ceil(BRANCH);
        let places = Places { taken: self.branches.questions(branch), most };
        places.free() > 0 && self.questions.admit(branch.number(), client, places)
    }

    /// Takes the places of a question that is in flight from now on.
    #[inline]
    pub(super) fn enter(&mut self, Charge { place, branch }: Charge) {
        if place.counted {
            self.questions.enter(ALL, place.client);
        }
        if let Some(branch) = branch {
            self.branches.enter(branch);
            self.questions.enter(branch.number(), place.client);
        }
    }

    /// Gives back the places of a question that is over.
    #[inline]
    pub(super) fn leave(&mut self, Charge { place, branch }: Charge) {
        if place.counted {
            self.questions.leave(ALL, place.client);
        }
        if let Some(branch) = branch {
            self.branches.leave(branch);
            self.questions.leave(branch.number(), place.client);
        }
    }

    /// An upstream has said something in time.
    #[inline]
    pub(super) fn heard(&mut self, now: Nanos) {
        self.rate.answered(now);
    }

    /// A question for `name` has failed, or is not answered in time.
    pub(super) fn failed(&mut self, name: &[u8], now: Nanos) {
        self.branches.failed(name, now);
    }

    /// Whether anything has failed of late, so that answers are of interest.
    #[inline]
    pub(super) fn has_failures(&self, now: Nanos) -> bool {
        !self.branches.are_quiet(now)
    }

    /// A question for `name` has been answered by a server of that name's zone; or of one above, if
    /// `by_parent` says so.
    pub(super) fn answered(&mut self, name: &[u8], by_parent: bool, now: Nanos) {
        self.branches.answered(if by_parent { branches::parent(name) } else { name }, now);
    }
}
