//! Failing subtrees of the name space. Fetches for names in these subtrees may use only a part of the budget.
//!
//! A failed fetch (no answer in time, SERVFAIL and similar) records a failure for each ancestor of its name. An answer
//! is recorded for its name and for each ancestor. Both records last half a minute. A subtree is *failing* if a failure
//! is recorded for its top name, and no answer is recorded for this name. An ancestor of an answered name is therefore
//! never failing. A fetch is counted for the nearest failing subtree above its name:
//!
//! ```text
//!            test           failure and answer: not failing
//!           /    \
//!     www.test   dead.test  failures only: failing; n1.dead.test, n2.dead.test, … belong to it
//! ```
//!
//! Without failures, no subtrees are recorded, and the check whether a name is in a failing subtree costs nothing.

use std::hash::{BuildHasher, RandomState};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use units::Nanos;

use crate::name::ancestors;

/// Time for which a recorded failure or answer is taken into account.
const MEMORY: Nanos = Nanos(30 * Nanos::SECOND.0);
/// Maximum number of recorded subtrees. Above this number, expired subtrees are removed first, then
/// all subtrees without fetches in flight.
const MOST: usize = 16_384;
/// Maximum depth of a recorded subtree, in labels from the root. For a name with more labels, only the ancestors up to
/// this depth are recorded.
const DEEPEST: usize = 8;

/// Identifier of a subtree: a keyed hash of its name, which clients cannot predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SubtreeId(u64);

impl SubtreeId {
    /// Returns the identifier as a number, which clients cannot predict.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// Recorded failures and answers of a subtree, and the number of its fetches in flight.
#[derive(Clone, Copy, Debug, Default)]
struct FailingSubtree {
    /// Time at which the last failure in the subtree expires.
    failed_until: Nanos,
    /// Time at which the last answer in the subtree expires.
    answered_until: Nanos,
    /// Number of fetches in flight that are counted for the subtree.
    questions: u32,
}

/// All subtrees for which a failure is recorded.
#[derive(Default)]
pub(super) struct FailingSubtrees {
    known: FxHashMap<SubtreeId, FailingSubtree>,
    hasher: RandomState,
    /// Time at which the last failure in any subtree expires.
    failed_until: Nanos,
}

impl FailingSubtrees {
    /// Returns the nearest failing subtree above a name (wire format, lower case).
    #[inline]
    pub(super) fn failing(&self, name: &[u8], now: Nanos) -> Option<SubtreeId> {
        if self.no_recent_failure(now) {
            return None;
        }
        let is_failing =
            |id: &SubtreeId| self.known.get(id).is_some_and(|subtree| subtree.is_failing(now));
        self.failing_subtrees(parent(name)).into_iter().find(is_failing)
    }

    /// True if no fetch failed within the last half minute.
    #[inline]
    pub(super) fn no_recent_failure(&self, now: Nanos) -> bool {
        now >= self.failed_until
    }

    /// Returns the number of fetches in flight that are counted for a subtree.
    pub(super) fn questions(&self, id: SubtreeId) -> usize {
        self.known.get(&id).map_or(0, |subtree| subtree.questions as usize)
    }

    /// Counts a fetch that begins for a name in this failing subtree.
    pub(super) fn enter(&mut self, id: SubtreeId) {
        if let Some(subtree) = self.known.get_mut(&id) {
            subtree.questions += 1;
        }
    }

    /// Removes a fetch from the count of its subtree when the fetch ends. The fetch was
    /// [counted](FailingSubtrees::enter) when it began.
    pub(super) fn leave(&mut self, id: SubtreeId) {
        if let Some(subtree) = self.known.get_mut(&id) {
            subtree.questions -= 1;
        }
    }

    /// Records a fetch for `name` that failed, or that takes longer than usual.
    pub(super) fn failed(&mut self, name: &[u8], now: Nanos) {
        if self.known.len() >= MOST {
            self.forget(now);
        }
        self.failed_until = now + MEMORY;
        for id in self.failing_subtrees(parent(name)) {
            self.known.entry(id).or_default().failed_until = now + MEMORY;
        }
    }

    /// Records an answer. `living` is usually the answered name. It is the parent of this name if the SOA or NS records
    /// in the answer are those of a zone with its apex above the name. The answered name may then be the apex of a
    /// separate zone, whose servers may not answer.
    #[inline]
    pub(super) fn answered(&mut self, living: &[u8], now: Nanos) {
        if self.no_recent_failure(now) {
            return;
        }
        for id in self.failing_subtrees(living) {
            if let Some(subtree) = self.known.get_mut(&id) {
                subtree.answered_until = now + MEMORY;
            }
        }
    }

    /// Returns the subtrees of a name and of all names above it except the root, the nearest first.
    fn failing_subtrees(&self, name: &[u8]) -> SmallVec<[SubtreeId; DEEPEST]> {
        let all: SmallVec<[&[u8]; 16]> = ancestors(name).filter(|name| name.len() > 1).collect();
        let nearest = all.len().saturating_sub(DEEPEST);
        all[nearest..].iter().map(|name| SubtreeId(self.hasher.hash_one(name))).collect()
    }

    /// Removes subtrees with expired failures. If too many remain, all subtrees without fetches in flight are removed.
    fn forget(&mut self, now: Nanos) {
        self.known.retain(|_, subtree| subtree.questions > 0 || subtree.failed_until > now);
        if self.known.len() >= MOST {
            self.known.retain(|_, subtree| subtree.questions > 0);
        }
    }
}

/// Returns the parent of `name`, both in wire format. The parent of the root is the root.
pub(super) fn parent(name: &[u8]) -> &[u8] {
    ancestors(name).nth(1).unwrap_or(name)
}

impl FailingSubtree {
    fn is_failing(&self, now: Nanos) -> bool {
        now < self.failed_until && now >= self.answered_until
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

    /// Returns the subtree of a name.
    fn subtree(failing_subtrees: &FailingSubtrees, name: &str) -> Option<SubtreeId> {
        failing_subtrees.failing_subtrees(&wire(name)).first().copied()
    }

    #[test]
    fn fetch_belongs_to_nearest_failing_subtree() {
        let mut failing_subtrees = FailingSubtrees::default();
        let failing = |failing_subtrees: &FailingSubtrees, name: &str| {
            failing_subtrees.failing(&wire(name), NOW)
        };
        assert_eq!(failing(&failing_subtrees, "n1.dead.test"), None);
        failing_subtrees.failed(&wire("n1.dead.test"), NOW);
        for name in ["n1.dead.test", "n2.dead.test", "a.b.c.n3.dead.test"] {
            assert_eq!(
                failing(&failing_subtrees, name),
                subtree(&failing_subtrees, "dead.test"),
                "{name}"
            );
        }
        assert_eq!(
            failing(&failing_subtrees, "www.test"),
            subtree(&failing_subtrees, "test"),
            "no answers in it"
        );
        failing_subtrees.answered(&wire("www.test"), NOW);
        assert_eq!(failing(&failing_subtrees, "mail.test"), None);
        assert_eq!(
            failing(&failing_subtrees, "n2.dead.test"),
            subtree(&failing_subtrees, "dead.test")
        );
        // The parent zone's answer about the apex does not show that the zone responds.
        failing_subtrees.answered(parent(&wire("dead.test")), NOW);
        assert_eq!(
            failing(&failing_subtrees, "n2.dead.test"),
            subtree(&failing_subtrees, "dead.test")
        );
        failing_subtrees.answered(&wire("one.dead.test"), NOW);
        assert_eq!(failing(&failing_subtrees, "n2.dead.test"), None);
        assert_eq!(failing(&failing_subtrees, "other.example"), None);
    }

    #[test]
    fn failures_and_answers_expire_after_30_seconds() {
        let mut failing_subtrees = FailingSubtrees::default();
        let failing = |failing_subtrees: &FailingSubtrees, seconds: u64| {
            failing_subtrees
                .failing(&wire("n2.dead.test"), NOW + Nanos(seconds * Nanos::SECOND.0))
                .is_some()
        };
        failing_subtrees.failed(&wire("n1.dead.test"), NOW);
        failing_subtrees.answered(&wire("n3.dead.test"), NOW);
        failing_subtrees.failed(&wire("n1.dead.test"), NOW + Nanos::SECOND);
        assert!(!failing(&failing_subtrees, 29));
        assert!(failing(&failing_subtrees, 30), "the answer has expired, the failure has not");
        assert!(!failing(&failing_subtrees, 31));
    }

    #[test]
    fn fetches_of_a_subtree_count_while_in_flight() {
        let mut failing_subtrees = FailingSubtrees::default();
        failing_subtrees.failed(&wire("n1.dead.test"), NOW);
        let id = failing_subtrees.failing(&wire("n2.dead.test"), NOW).unwrap();
        let other = failing_subtrees.failing(&wire("www.test"), NOW).unwrap();
        failing_subtrees.enter(id);
        failing_subtrees.enter(id);
        failing_subtrees.enter(other);
        assert_eq!((failing_subtrees.questions(id), failing_subtrees.questions(other)), (2, 1));
        failing_subtrees.leave(id);
        assert_eq!(failing_subtrees.questions(id), 1);
    }

    #[test]
    fn random_names_do_not_fill_the_memory() {
        let mut failing_subtrees = FailingSubtrees::default();
        failing_subtrees.failed(&wire("n.dead.test"), NOW);
        let id = failing_subtrees.failing(&wire("m.dead.test"), NOW).unwrap();
        failing_subtrees.enter(id);
        for n in 0..2 * MOST {
            failing_subtrees.failed(&wire(&format!("n.b{n}.dead.test")), NOW);
        }
        assert!(failing_subtrees.known.len() <= MOST + DEEPEST);
        assert_eq!(failing_subtrees.questions(id), 1, "fetches in flight stay counted");
        // A name of many labels creates no more subtrees than others.
        let deep: String = (0..60).map(|n| format!("l{n}.")).collect();
        assert_eq!(failing_subtrees.failing_subtrees(&wire(&format!("{deep}test"))).len(), DEEPEST);
    }
}
