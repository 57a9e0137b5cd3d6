//! Branches of the name tree below which nothing answers, so that questions for them take no more
//! than a share of the budget.
//!
//! A question that fails (no answer in time, SERVFAIL and the like) makes each name above its own a
//! *failing* branch, for half a minute. An answer makes its name, and each name above, *living* for
//! as long. A branch is dead if it is failing and not living; so a name above a living one is never
//! dead. A question belongs to the nearest dead branch above its name:
//!
//! ```text
//!            test           failing and living: not dead
//!           /    \
//!     www.test   dead.test  failing only: dead; n1.dead.test, n2.dead.test, … belong to it
//! ```
//!
//! While nothing fails there are no branches, and none of this costs anything.

use std::hash::{BuildHasher, RandomState};

use method::units::Nanos;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::name::ancestors;

/// How long a failure, or an answer, says something of a branch.
const MEMORY: Nanos = Nanos(30 * Nanos::SECOND.0);
/// Branches that are remembered. Beyond them those that say nothing any more are forgotten, then
/// all that no question belongs to.
const MOST: usize = 16_384;
/// Labels, from the root on, of which branches are made: what is longer belongs to a branch of so
/// many.
const DEEPEST: usize = 8;

/// Names a branch: the hash of its name, under a key that nobody outside can foresee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BranchId(u64);

impl BranchId {
    /// A number that clients cannot foresee.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// What is known of a branch.
#[derive(Clone, Copy, Debug, Default)]
struct Branch {
    /// Until when a failure, and an answer, below it count.
    failing_until: Nanos,
    living_until: Nanos,
    /// Questions in flight that belong to it.
    questions: u32,
}

/// The branches of which something is known.
#[derive(Default)]
pub(super) struct Branches {
    known: FxHashMap<BranchId, Branch>,
    hasher: RandomState,
    /// Until when the last failure of all counts.
    failing_until: Nanos,
}

impl Branches {
    /// The nearest dead branch above a name (wire format, lower case).
    #[inline]
    pub(super) fn dead(&self, name: &[u8], now: Nanos) -> Option<BranchId> {
        if self.are_quiet(now) {
            return None;
        }
        let is_dead = |id: &BranchId| self.known.get(id).is_some_and(|branch| branch.is_dead(now));
        self.branches(parent(name)).into_iter().find(is_dead)
    }

    /// Whether nothing has failed of late.
    #[inline]
    pub(super) fn are_quiet(&self, now: Nanos) -> bool {
        now >= self.failing_until
    }

    /// How many questions in flight belong to a branch.
    pub(super) fn questions(&self, id: BranchId) -> usize {
        self.known.get(&id).map_or(0, |branch| branch.questions as usize)
    }

    /// A question of this branch is in flight.
    pub(super) fn enter(&mut self, id: BranchId) {
        if let Some(branch) = self.known.get_mut(&id) {
            branch.questions += 1;
        }
    }

    /// A question that has [entered](Branches::enter) a branch is in flight no more.
    pub(super) fn leave(&mut self, id: BranchId) {
        if let Some(branch) = self.known.get_mut(&id) {
            branch.questions -= 1;
        }
    }

    /// A question for `name` has failed, or has not been answered for as long as an answer usually
    /// takes.
    pub(super) fn failed(&mut self, name: &[u8], now: Nanos) {
        if self.known.len() >= MOST {
            self.forget(now);
        }
        self.failing_until = now + MEMORY;
        for id in self.branches(parent(name)) {
            self.known.entry(id).or_default().failing_until = now + MEMORY;
        }
    }

    /// A question has been answered. `living` is its name; or the one above, if the answer comes
    /// from a zone above the name, which may be the apex of another zone that is dead.
    #[inline]
    pub(super) fn answered(&mut self, living: &[u8], now: Nanos) {
        if self.are_quiet(now) {
            return;
        }
        for id in self.branches(living) {
            if let Some(branch) = self.known.get_mut(&id) {
                branch.living_until = now + MEMORY;
            }
        }
    }

    /// The branches of a name and of all names above it but the root, the nearest first.
    fn branches(&self, name: &[u8]) -> SmallVec<[BranchId; DEEPEST]> {
        let all: SmallVec<[&[u8]; 16]> = ancestors(name).filter(|name| name.len() > 1).collect();
        let nearest = all.len().saturating_sub(DEEPEST);
        all[nearest..].iter().map(|name| BranchId(self.hasher.hash_one(name))).collect()
    }

    /// Forgets what says nothing any more, or everything that no question belongs to.
    fn forget(&mut self, now: Nanos) {
        self.known.retain(|_, branch| branch.questions > 0 || branch.failing_until > now);
        if self.known.len() >= MOST {
            self.known.retain(|_, branch| branch.questions > 0);
        }
    }
}

/// The name above `name`, both in wire format; the root's is the root.
pub(super) fn parent(name: &[u8]) -> &[u8] {
    ancestors(name).nth(1).unwrap_or(name)
}

impl Branch {
    fn is_dead(&self, now: Nanos) -> bool {
        now < self.failing_until && now >= self.living_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::LowerName;

    const NOW: Nanos = Nanos(1_000 * Nanos::SECOND.0);

    fn wire(name: &str) -> Vec<u8> {
        name.parse::<LowerName>().unwrap().wire().to_vec()
    }

    /// The branch of a name.
    fn branch(branches: &Branches, name: &str) -> Option<BranchId> {
        branches.branches(&wire(name)).first().copied()
    }

    #[test]
    fn a_question_belongs_to_the_nearest_branch_in_which_nothing_answers() {
        let mut branches = Branches::default();
        let dead = |branches: &Branches, name: &str| branches.dead(&wire(name), NOW);
        assert_eq!(dead(&branches, "n1.dead.test"), None);
        branches.failed(&wire("n1.dead.test"), NOW);
        for name in ["n1.dead.test", "n2.dead.test", "a.b.c.n3.dead.test"] {
            assert_eq!(dead(&branches, name), branch(&branches, "dead.test"), "{name}");
        }
        assert_eq!(
            dead(&branches, "www.test"),
            branch(&branches, "test"),
            "nothing in it has answered"
        );
        branches.answered(&wire("www.test"), NOW);
        assert_eq!(dead(&branches, "mail.test"), None);
        assert_eq!(dead(&branches, "n2.dead.test"), branch(&branches, "dead.test"));
        // The parent zone's answer about the apex says nothing of the zone.
        branches.answered(parent(&wire("dead.test")), NOW);
        assert_eq!(dead(&branches, "n2.dead.test"), branch(&branches, "dead.test"));
        branches.answered(&wire("one.dead.test"), NOW);
        assert_eq!(dead(&branches, "n2.dead.test"), None);
        assert_eq!(dead(&branches, "other.example"), None);
    }

    #[test]
    fn what_was_half_a_minute_ago_says_nothing() {
        let mut branches = Branches::default();
        let dead = |branches: &Branches, seconds: u64| {
            branches.dead(&wire("n2.dead.test"), NOW + Nanos(seconds * Nanos::SECOND.0)).is_some()
        };
        branches.failed(&wire("n1.dead.test"), NOW);
        branches.answered(&wire("n3.dead.test"), NOW);
        branches.failed(&wire("n1.dead.test"), NOW + Nanos::SECOND);
        assert!(!dead(&branches, 29));
        assert!(dead(&branches, 30), "no answer for so long, and a failure since");
        assert!(!dead(&branches, 31));
    }

    #[test]
    fn the_questions_of_a_branch_are_counted_while_they_are_in_flight() {
        let mut branches = Branches::default();
        branches.failed(&wire("n1.dead.test"), NOW);
        let id = branches.dead(&wire("n2.dead.test"), NOW).unwrap();
        let other = branches.dead(&wire("www.test"), NOW).unwrap();
        branches.enter(id);
        branches.enter(id);
        branches.enter(other);
        assert_eq!((branches.questions(id), branches.questions(other)), (2, 1));
        branches.leave(id);
        assert_eq!(branches.questions(id), 1);
    }

    #[test]
    fn random_names_do_not_fill_the_memory() {
        let mut branches = Branches::default();
        branches.failed(&wire("n.dead.test"), NOW);
        let id = branches.dead(&wire("m.dead.test"), NOW).unwrap();
        branches.enter(id);
        for n in 0..2 * MOST {
            branches.failed(&wire(&format!("n.b{n}.dead.test")), NOW);
        }
        assert!(branches.known.len() <= MOST + DEEPEST);
        assert_eq!(branches.questions(id), 1, "what is in flight stays counted");
        // A name of many labels makes no more branches than others.
        let deep: String = (0..60).map(|n| format!("l{n}.")).collect();
        assert_eq!(branches.branches(&wire(&format!("{deep}test"))).len(), DEEPEST);
    }
}
