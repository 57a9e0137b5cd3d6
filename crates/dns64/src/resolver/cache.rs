//! The cache: raw answers by question, shared by all workers (item 37).

use std::sync::Arc;
use std::time::Duration;

use method::units::Nanos;
use quick_cache::Weighter;
use quick_cache::sync::{Cache as Shared, EntryAction, EntryResult};

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

impl Entry {
    /// The answer, if it may be served though its time is over for less than `stale`, or if its time is not over.
    fn revivable(&self, second: u32, stale: Duration) -> Option<&Arc<Answer>> {
        let answer = self.answer.as_ref().ok().filter(|answer| answer.kind() != Kind::Failed)?;
        let stale = u32::try_from(stale.as_secs()).unwrap_or(u32::MAX);
        let over = second.saturating_sub(self.stored).saturating_sub(answer.ttl());
        (over < stale).then_some(answer)
    }

    /// Lets an answer whose time is over do for a while; see [`Cache::revive`].
    fn revive(&mut self, second: u32, stale: Duration, failed: Option<&Answer>) -> Option<Kept> {
        let answer = Arc::clone(self.revivable(second, stale)?);
        let age = second.saturating_sub(self.stored);
        if age < answer.ttl() {
            return Some(Kept { answer, age, stale: false, doubtful: false });
        }
        // Silence says nothing about what was doubtful before.
        self.doubtful = failed.map_or(self.doubtful, Answer::is_unexplained);
        self.revived_until = second + STALE_RECHECK;
        Some(Kept { answer, age, stale: true, doubtful: self.doubtful })
    }
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
        let stale = limits.stale?;
        let second = second(now);
        // Read and written at once: what another worker puts there meanwhile is newer, and stays.
        let revived = self.entries.entry(key, Some(Duration::ZERO), |_, entry| {
            EntryAction::Retain(entry.revive(second, stale, failed))
        });
        match revived {
            EntryResult::Retained(kept) => kept,
            // There is nothing, or a failure is just being put there.
            _ => None,
        }
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
    use std::sync::Barrier;

    use super::*;
    use crate::name::KeyBuf;
    use crate::testing::said;
    use wire::view::rtype::A;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn key(name: &str) -> Key {
        KeyBuf::new(&name.parse().unwrap(), A, 1, false, false).to_key()
    }

    fn at(second: u64) -> Nanos {
        Nanos(second * Nanos::SECOND.0)
    }

    fn address(ttl: u32) -> Arc<Answer> {
        Arc::new(said("a.test", A).a("a.test", ttl, "192.0.2.1").parse().unwrap())
    }

    /// One worker revives what another one replaces: what is new stays, whoever is first.
    #[test]
    fn rfc8767_5_a_new_answer_is_not_replaced_by_the_old_one_that_is_revived() {
        const ROUNDS: usize = 3_000;
        let limits = TtlLimits { stale: Some(HOUR), ..TtlLimits::default() };
        let cache = Cache::new(1);
        let (old, new) = (address(1), address(600));
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    assert!(cache.revive(&key("a.test"), at(100), &limits, None).is_some());
                    barrier.wait();
                }
            });
            for round in 0..ROUNDS {
                cache.put(key("a.test"), Arc::clone(&old), at(0));
                barrier.wait();
                cache.put(key("a.test"), Arc::clone(&new), at(100));
                barrier.wait();
                match cache.get(key("a.test").octets(), at(101), &limits) {
                    Found::Usable(kept) => assert!(!kept.stale, "round {round}: the old answer is back"),
                    other => panic!("{other:?}"),
                }
            }
        });
    }
}
