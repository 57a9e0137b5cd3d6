//! The cache: raw answers by question, shared by all workers (item 37).

use std::sync::Arc;

use method::units::Nanos;
use quick_cache::Weighter;
use quick_cache::sync::Cache as Shared;

use crate::name::Key;
use crate::resolver::answer::{Answer, Kind};
use crate::resolver::outcome::{Failure, Kept};
use crate::resolver::ttl::TtlLimits;

/// Memory that an entry takes beside its key and answer: the cache's own tables and the allocator's.
const OVERHEAD: u64 = 120;
/// What an entry takes on average, to size the tables.
const TYPICAL: u64 = 300;

/// Entries that the tables have room for from the start, at the most: a cache of 5 GB.
const MOST_RESERVED: usize = 1 << 24;

/// How long answers that have run out are served before the upstreams are tried again, seconds (RFC 8767 §5).
const STALE_RECHECK: u32 = 30;

#[derive(Clone)]
struct Entry {
    /// An error: no upstream answered, or aliases lead in a circle (RFC 9520 §2, §3.2).
    answer: Result<Arc<Answer>, Failure>,
    /// Second in which it was stored, by the clock that `now` is of.
    stored: u32,
    /// Until this second it is served though its time is over.
    revived_until: u32,
    /// See [`Kept::doubtful`].
    doubtful: bool,
}

/// What the cache has for a question.
#[derive(Clone, Debug)]
pub enum Found {
    /// An answer to use.
    Usable(Kept),
    /// That there was no answer a moment ago.
    Failed(Failure),
    /// Nothing.
    Missing,
}

#[derive(Clone)]
struct BySize;

impl Weighter<Key, Entry> for BySize {
    fn weight(&self, key: &Key, entry: &Entry) -> u64 {
        OVERHEAD + key.size() as u64 + entry.answer.as_ref().map_or(0, |answer| answer.size() as u64)
    }
}

/// Answers, the least useful ones thrown out when memory runs out.
pub struct Cache {
    entries: Shared<Key, Entry, BySize>,
    keeps: bool,
}

impl Cache {
    /// A cache of at most `mebibytes` MiB; none at all for 0.
    pub fn new(mebibytes: u64) -> Cache {
        let weight = mebibytes << 20;
        let items = usize::try_from(weight / TYPICAL).unwrap_or(usize::MAX).max(16);
        let entries = Shared::with_weighter(items, weight.max(1), BySize);
        // Tables that grow are moved as a whole, and whoever asks meanwhile waits: 60 ms of stalls on the way from 300 000
        // answers to 500 000. Memory is taken when it is used.
        entries.reserve(items.min(MOST_RESERVED));
        Cache { entries, keeps: mebibytes > 0 }
    }

    /// What is known of a question ([`crate::name::KeyBuf::octets`]).
    #[inline]
    pub fn get(&self, question: &[u8], now: Nanos, limits: &TtlLimits) -> Found {
        let Some(entry) = self.entries.get(question) else { return Found::Missing };
        let second = second(now);
        let age = second.saturating_sub(entry.stored);
        match entry.answer {
            Ok(answer) if age < answer.ttl() => Found::Usable(Kept { answer, age, stale: false, doubtful: false }),
            Ok(answer) if second < entry.revived_until => {
                Found::Usable(Kept { answer, age, stale: true, doubtful: entry.doubtful })
            }
            Err(failure) if age < limits.failure => Found::Failed(failure),
            _ => Found::Missing,
        }
    }

    /// Keeps an answer for its TTL; if that is zero, what it replaces is forgotten.
    pub fn put(&self, key: Key, answer: Arc<Answer>, now: Nanos) {
        if !self.keeps {
            return;
        }
        if answer.ttl() > 0 {
            self.entries
                .insert(key, Entry { answer: Ok(answer), stored: second(now), revived_until: 0, doubtful: false });
        } else {
            self.entries.remove(&key);
        }
    }

    /// Remembers for a moment that there was no answer.
    pub fn put_failure(&self, key: Key, failure: Failure, now: Nanos) {
        if self.keeps {
            self.entries
                .insert(key, Entry { answer: Err(failure), stored: second(now), revived_until: 0, doubtful: false });
        }
    }

    /// The answer to a question that upstreams fail to answer anew, if its time is not over for longer than `limits.stale`
    /// (RFC 8767). It will do for the next half minute. `failed`: what an upstream said in its stead, if anything; an answer that
    /// validation has rejected (RFC 8914) is not replaced.
    pub fn revive(&self, key: &Key, now: Nanos, limits: &TtlLimits, failed: Option<&Answer>) -> Option<Kept> {
        if failed.is_some_and(Answer::is_rejected) {
            return None;
        }
        let stale = u32::try_from(limits.stale?.as_secs()).unwrap_or(u32::MAX);
        let mut entry = self.entries.get(key)?;
        let answer = entry.answer.clone().ok().filter(|answer| answer.kind() != Kind::Failed)?;
        let second = second(now);
        let age = second.saturating_sub(entry.stored);
        if age.saturating_sub(answer.ttl()) >= stale {
            return None;
        }
        // Silence says nothing about what was doubtful before.
        let doubtful = failed.map_or(entry.doubtful, Answer::is_unexplained);
        entry.revived_until = second + STALE_RECHECK;
        entry.doubtful = doubtful;
        self.entries.insert(key.clone(), entry);
        Some(Kept { stale: age >= answer.ttl(), answer, age, doubtful })
    }

    /// Forgets all answers and failures. Takes no memory and gives none back: a cache that is cleared is as good as a new one, and
    /// sooner there.
    pub fn clear(&self) {
        self.entries.clear();
    }

    /// Answers that it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory for them by its own account, octets.
    pub fn weight(&self) -> u64 {
        self.entries.weight()
    }
}

fn second(now: Nanos) -> u32 {
    (now.0 / Nanos::SECOND.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::KeyBuf;

    #[test]
    fn a_cleared_cache_knows_nothing() {
        let cache = Cache::new(1);
        let key = KeyBuf::new(&"host.test".parse().unwrap(), 1, 1, false, false);
        cache.put_failure(key.to_key(), Failure::Timeout, Nanos(0));
        let limits = TtlLimits { failure: 5, ..TtlLimits::default() };
        assert!(matches!(cache.get(key.octets(), Nanos(0), &limits), Found::Failed(Failure::Timeout)));
        cache.clear();
        assert!(matches!(cache.get(key.octets(), Nanos(0), &limits), Found::Missing));
        assert_eq!((cache.len(), cache.weight()), (0, 0));
    }
}
