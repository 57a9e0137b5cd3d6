//! Prefetching: frequently requested answers are refreshed before they expire, so that no client
//! waits for them.
//!
//! ```text
//! stored ────────────── nine tenths of the TTL ─────────── expired
//!         served from the cache      │ first request: noted │ second request: refreshed
//! ```
//!
//! Two requests in the last tenth of the TTL count as frequent. There is at most one refresh per ten client queries,
//! and there are at most a hundred refreshes in a row. Upstreams therefore receive only slightly more queries than
//! without prefetching.

use super::answer::AnswerKind;
use super::fetch::KeyHash;
use super::outcome::CachedAnswer;

/// Minimum TTL of refreshed answers, in seconds. A tenth of a shorter TTL is too short for two
/// requests.
const LEAST_TTL: u32 = 10;
/// Number of slots in the table of questions. A slot stores a question that was asked once in the last tenth of the TTL
/// of its cached answer. A different question may overwrite the slot. The overwritten question must then be asked at
/// least twice more before its answer is refreshed.
const SLOTS: usize = 4_096;
/// Number of client queries after which one more refresh is permitted.
const QUESTIONS: u32 = 10;
/// Maximum number of refreshes in a row. Client queries that would permit further refreshes are not counted.
const SAVED: u32 = 100;

/// Selection of the answers to refresh.
#[derive(Debug)]
pub(super) struct Prefetcher {
    /// Hashes of the questions that were asked exactly once while the cached answer was in the last tenth of its TTL.
    once: Box<[Option<KeyHash>]>,
    /// Number of client queries that count towards the next refreshes. Each refresh subtracts [`QUESTIONS`] from this
    /// number.
    saved: u32,
}

impl Default for Prefetcher {
    fn default() -> Prefetcher {
        Prefetcher { once: vec![None; SLOTS].into(), saved: 0 }
    }
}

impl Prefetcher {
    /// Counts a client query. Ten client queries permit one refresh.
    #[inline]
    pub(super) fn count(&mut self) {
        self.saved = (self.saved + 1).min(SAVED * QUESTIONS);
    }

    /// True if an answer is in the last tenth of its TTL and suitable for a refresh.
    #[inline]
    pub(super) fn is_near_end(kept: &CachedAnswer) -> bool {
        let ttl = kept.answer.ttl();
        ttl >= LEAST_TTL
            && kept.age >= ttl - ttl / 10
            && !kept.stale
            && kept.answer.kind() != AnswerKind::Failed
    }

    /// Called when a question is asked while its cached answer is in the last tenth of its TTL. Returns true if the
    /// answer is to be refreshed.
    pub(super) fn should_refresh(&mut self, question: KeyHash) -> bool {
        let slot = &mut self.once[question.index(SLOTS)];
        if *slot != Some(question) {
            *slot = Some(question);
            return false;
        }
        let Some(left) = self.saved.checked_sub(QUESTIONS) else { return false };
        *slot = None;
        self.saved = left;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolver::fetches::Fetches;

    fn hash(n: u32) -> KeyHash {
        // All calls use the same hasher, because each hasher has a different random key.
        thread_local!(static FETCHES: Fetches = Fetches::default());
        FETCHES.with(|fetches| fetches.hash(&n.to_be_bytes()))
    }

    fn with_questions(count: u32) -> Prefetcher {
        let mut prefetcher = Prefetcher::default();
        (0..count).for_each(|_| prefetcher.count());
        prefetcher
    }

    #[test]
    fn second_late_request_causes_one_refresh() {
        let mut prefetcher = with_questions(1_000);
        let asked: Vec<bool> = (0..4).map(|_| prefetcher.should_refresh(hash(1))).collect();
        assert_eq!(asked, [false, true, false, true]);
        assert!(!prefetcher.should_refresh(hash(2)));
    }

    #[test]
    fn refreshes_are_a_tenth_of_queries_burst_100() {
        let renewed = |prefetcher: &mut Prefetcher| {
            (0..5_000)
                .filter(|&n| {
                    prefetcher.should_refresh(hash(n)) | prefetcher.should_refresh(hash(n))
                })
                .count()
        };
        let mut prefetcher = with_questions(250);
        assert_eq!(renewed(&mut prefetcher), 25);
        assert_eq!(renewed(&mut with_questions(1_000_000)), 100);
        // A refresh that was withheld takes place when the quota allows it again.
        (0..10).for_each(|_| prefetcher.count());
        assert_eq!(renewed(&mut prefetcher), 1);
    }
}
