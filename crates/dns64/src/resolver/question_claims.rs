//! Coordination between workers, so that only one worker at a time queries the upstreams for a question.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::ids::WorkerId;
use crate::name::Key;

const SHARDS: usize = 64;

/// The questions in flight, each with the other workers that wait for its result (one bit per
/// worker).
pub(crate) struct QuestionClaims {
    shards: Vec<Mutex<HashMap<Key, u64>>>,
    hasher: RandomState,
    /// True if there are several workers.
    shared: bool,
}

impl QuestionClaims {
    pub(crate) fn new(workers: usize) -> QuestionClaims {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        QuestionClaims { shards, hasher: RandomState::new(), shared: workers > 1 }
    }

    /// True if there are several workers.
    pub(crate) fn are_shared(&self) -> bool {
        self.shared
    }

    /// Returns true if `worker` is to begin a fetch for this question. Otherwise, another worker's fetch is in flight,
    /// and that worker will send its result to `worker`.
    pub(crate) fn claim(&self, key: &Key, worker: WorkerId) -> bool {
        if !self.shared {
            return true;
        }
        let mut shard = self.shard(key);
        if let Some(waiting) = shard.get_mut(key) {
            *waiting |= 1 << worker.0;
            return false;
        }
        shard.insert(key.clone(), 0);
        true
    }

    /// Removes a completed question. Returns the workers that wait for its result.
    pub(crate) fn complete(&self, key: &Key) -> impl Iterator<Item = WorkerId> + use<> {
        let mut waiting = if self.shared { self.shard(key).remove(key).unwrap_or(0) } else { 0 };
        std::iter::from_fn(move || {
            let worker = waiting.trailing_zeros();
            // Clears the lowest bit; fails if no bit is set.
            waiting &= waiting.checked_sub(1)?;
            Some(WorkerId(worker as usize))
        })
    }

    fn shard(&self, key: &Key) -> std::sync::MutexGuard<'_, HashMap<Key, u64>> {
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        // A panic in another thread leaves the map consistent, because each change is a single operation.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::KeyBuf;

    #[test]
    fn one_worker_claims_and_the_others_are_returned() {
        let questions = QuestionClaims::new(3);
        let key = KeyBuf::new(&"a.test".parse().unwrap(), 28, 1, false, false).to_key();
        assert!(questions.claim(&key, WorkerId(1)));
        assert!(
            !questions.claim(&key, WorkerId(0))
                && !questions.claim(&key, WorkerId(2))
                && !questions.claim(&key, WorkerId(0))
        );
        assert_eq!(questions.complete(&key).collect::<Vec<_>>(), [WorkerId(0), WorkerId(2)]);
        assert!(questions.claim(&key, WorkerId(0)));
        assert_eq!(questions.complete(&key).count(), 0);
    }
}
