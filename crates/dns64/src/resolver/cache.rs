//! The cache: raw answers by question, shared by all workers.
//!
//! Failures are cached as well (RFC 9520). The first failure for a question is cached for `failure-ttl`. This time is
//! doubled each time the same question fails again, up to `failure-max-ttl` (§3.2). Timeouts cached while an upstream
//! was down are discarded when that upstream is up again.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use quick_cache::sync::{Cache as QuickCache, DefaultLifecycle, EntryAction, EntryResult};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use units::Nanos;
use wire::view::rtype;

use crate::name::{Key, KeyBuf, LowerName, is_at_or_below};
use crate::resolver::answer::{Answer, AnswerKind};
use crate::resolver::outcome::{CachedAnswer, Failure, Outcome};
use crate::resolver::ttl::TtlLimits;

/// Memory of an entry in the tables, in octets: 64 in a slab, and at most 12 in a hash table. The hash table takes 5
/// octets per slot, and at least 7/16 of its slots are in use.
const SLOT: u64 = 64 + 12;
/// Memory of a typical entry, in octets. The size of the tables is derived from this value.
const TYPICAL: u64 = 300;
/// Number of evicted keys that the cache remembers, as a fraction of the typical number of entries. If an answer for a
/// remembered key is cached again, this answer is evicted later than others. A remembered key takes as much table
/// memory as an entry.
const EVICTED: f64 = 0.5;

/// Maximum number of entries for which the tables reserve memory at startup. This corresponds to a cache of 5 GB.
const MOST_RESERVED: usize = 1 << 24;

/// Placeholder for a time in seconds that is not set.
const NEVER: u32 = u32::MAX;

/// Time for which an expired answer is served before the upstreams are queried again, in seconds
/// (RFC 8767 §5).
const STALE_RECHECK: u32 = 30;

#[derive(Clone)]
struct Entry {
    /// The answer, or the reason why there is none, for example a timeout (RFC 9520 §2).
    answer: Result<Arc<Answer>, Failure>,
    /// Time in seconds at which the entry was stored, according to the clock that all calls of the cache use (`now`).
    stored: u32,
    /// Time, in seconds of the cache's clock, until which the expired answer is served without a new upstream query.
    revived_until: u32,
    /// Time in seconds at which an upstream responded to a refresh with SERVFAIL without an extended error; [`NEVER`]
    /// if there was no such response (see [`CachedAnswer::doubted`]).
    doubted: u32,
    /// Number of consecutive earlier failures of this question; zero for an answer.
    repeats: u8,
}

/// Result of a cache lookup.
#[derive(Clone, Debug)]
pub(crate) enum CacheLookup {
    /// A usable answer.
    Usable(CachedAnswer),
    /// A cached failure.
    Failed {
        /// Reason for the failure.
        failure: Failure,
        /// Seconds since the failure.
        age: u32,
    },
    /// No usable entry: the upstreams must be queried.
    Missing,
}

impl CacheLookup {
    /// Returns the cached answer or failure if it is at most `max_age` seconds old.
    #[inline]
    pub(crate) fn outcome(self, max_age: u32) -> Option<Outcome> {
        match self {
            CacheLookup::Usable(kept) if kept.age <= max_age => Some(Outcome::Answered(kept)),
            CacheLookup::Failed { failure, age } if age <= max_age => {
                Some(Outcome::Failed(failure))
            }
            _ => None,
        }
    }
}

impl Entry {
    fn new(answer: Result<Arc<Answer>, Failure>, stored: u32) -> Entry {
        Entry { answer, stored, revived_until: 0, doubted: NEVER, repeats: 0 }
    }

    /// True for an answer with data and for a negative answer; false for failures.
    fn is_good(&self) -> bool {
        self.answer.as_ref().is_ok_and(|answer| answer.kind() != AnswerKind::Failed)
    }

    /// Returns the lifetime of the entry in seconds.
    #[inline]
    fn ttl(&self, limits: &TtlLimits) -> u32 {
        match &self.answer {
            Ok(answer) if answer.kind() != AnswerKind::Failed => answer.ttl(),
            _ => limits.failure_after(self.repeats),
        }
    }

    /// Called when this question fails again. Returns the number of consecutive earlier failures for the new entry. The
    /// result is 0 if the old entry is an answer, or if it expired longer ago than the maximum failure TTL.
    fn repeats_after(&self, second: u32, limits: &TtlLimits) -> u8 {
        let over = self.stored.saturating_add(self.ttl(limits));
        match second.checked_sub(over) {
            _ if self.is_good() => 0,
            // The earlier failure is still cached, for example because two workers sent the same
            // query at once.
            None => self.repeats,
            Some(since) if since <= limits.failure_max => self.repeats.saturating_add(1),
            Some(_) => 0,
        }
    }

    /// Returns the answer if it has not expired, or expired less than `stale` ago.
    fn revivable(&self, second: u32, stale: Duration) -> Option<&Arc<Answer>> {
        let answer =
            self.answer.as_ref().ok().filter(|answer| answer.kind() != AnswerKind::Failed)?;
        let stale = u32::try_from(stale.as_secs()).unwrap_or(u32::MAX);
        let over = second.saturating_sub(self.stored).saturating_sub(answer.ttl());
        (over < stale).then_some(answer)
    }

    /// Allows an expired answer to be served for 30 seconds (see [`Cache::revive`]).
    fn revive(
        &mut self,
        second: u32,
        stale: Duration,
        failed: Option<&Answer>,
    ) -> Option<CachedAnswer> {
        let answer = Arc::clone(self.revivable(second, stale)?);
        let age = second.saturating_sub(self.stored);
        if age < answer.ttl() {
            return Some(CachedAnswer { age, ..CachedAnswer::fresh(answer) });
        }
        // Without a response there is no new information, so that `doubted` does not change.
        self.doubted = match failed {
            Some(answer) if answer.is_unexplained() => second,
            Some(_) => NEVER,
            None => self.doubted,
        };
        self.revived_until = second + STALE_RECHECK;
        Some(CachedAnswer { answer, age, stale: true, doubted: self.doubted_for(second) })
    }

    /// Returns the number of seconds since a refresh failed with SERVFAIL without an extended error, or `None` if no
    /// refresh failed in this way.
    fn doubted_for(&self, second: u32) -> Option<u32> {
        (self.doubted != NEVER).then(|| second.saturating_sub(self.doubted))
    }
}

#[derive(Clone)]
struct BySize;

impl Weighter<Key, Entry> for BySize {
    fn weight(&self, key: &Key, entry: &Entry) -> u64 {
        let answer = entry.answer.as_ref().map_or(0, |answer| {
            allocated(ARC + size_of::<Answer>()) + allocated(answer.octets_len())
        });
        SLOT + allocated(key.size()) + answer
    }
}

/// Size of the reference counters of an `Arc`, in octets.
const ARC: usize = 2 * size_of::<usize>();

/// Returns the memory that an allocation of this size takes: glibc adds 8 octets and rounds up to
/// 16.
fn allocated(octets: usize) -> u64 {
    (octets as u64 + 8).next_multiple_of(16).max(32)
}

/// Cached answers and failures; the least useful ones are evicted when the memory limit of the cache is reached.
pub struct Cache {
    entries: QuickCache<Key, Entry, BySize>,
    keeps: bool,
    /// True once a nonexistent name has been cached. Until then, lookups skip the check for nonexistent names.
    has_nonexistent_names: AtomicBool,
    /// Time in seconds of the cache's clock. Timeouts that were cached before this time are discarded.
    timeouts_discarded_before: AtomicU32,
}

impl Cache {
    /// Returns a cache of at most `mebibytes` MiB, including its tables; 0 disables caching.
    pub fn new(mebibytes: u64) -> Cache {
        let memory = mebibytes << 20;
        let items = usize::try_from(memory / TYPICAL).unwrap_or(usize::MAX).max(16);
        let weight = memory.saturating_sub((items as f64 * EVICTED) as u64 * SLOT).max(1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(weight)
            .ghost_allocation(EVICTED)
            .build()
            .expect("both capacities are set");
        let entries = QuickCache::with_options(
            options,
            BySize,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        // A growing table is moved as a whole, and lookups wait until the move is complete. While the cache grew from
        // 300 000 answers to 500 000, lookups stalled for 60 ms in total. Reserved memory uses no RAM until it is
        // written.
        entries.reserve(items.min(MOST_RESERVED));
        Cache {
            entries,
            keeps: mebibytes > 0,
            has_nonexistent_names: AtomicBool::new(false),
            timeouts_discarded_before: AtomicU32::new(0),
        }
    }

    /// Looks up a question ([`crate::name::KeyBuf::octets`]). An NXDOMAIN answer for the name
    /// applies to all types, regardless of the type in its question (RFC 2308 §5).
    #[inline]
    pub(crate) fn get(&self, question: &[u8], now: Nanos, limits: &TtlLimits) -> CacheLookup {
        let found = self.get_of_type(question, now, limits);
        if !matches!(found, CacheLookup::Missing)
            || !self.has_nonexistent_names.load(Ordering::Relaxed)
        {
            return found;
        }
        let of_name =
            KeyBuf::for_any_type(question).map(|name| self.get_of_type(name.octets(), now, limits));
        match of_name {
            Some(CacheLookup::Usable(kept)) if kept.answer.kind() == AnswerKind::NxDomain => {
                CacheLookup::Usable(kept)
            }
            _ => found,
        }
    }

    #[inline]
    fn get_of_type(&self, question: &[u8], now: Nanos, limits: &TtlLimits) -> CacheLookup {
        let Some(entry) = self.entries.get(question) else { return CacheLookup::Missing };
        let second = second(now);
        let age = second.saturating_sub(entry.stored);
        let ttl = entry.ttl(limits);
        let doubted = entry.doubted_for(second);
        match entry.answer {
            Ok(answer) if age < ttl => {
                CacheLookup::Usable(CachedAnswer { age, ..CachedAnswer::fresh(answer) })
            }
            Ok(answer) if second < entry.revived_until => {
                CacheLookup::Usable(CachedAnswer { answer, age, stale: true, doubted })
            }
            Err(failure) if age < ttl && !self.is_discarded(failure, entry.stored, age) => {
                CacheLookup::Failed { failure, age }
            }
            _ => CacheLookup::Missing,
        }
    }

    /// Caches an answer for its TTL. If the TTL is zero, an existing entry is removed instead. An
    /// error response is cached as a failure.
    pub(crate) fn put(&self, key: Key, answer: Arc<Answer>, now: Nanos, limits: &TtlLimits) {
        if !self.keeps {
            return;
        }
        self.record_existence(&key, &answer, now);
        if answer.kind() == AnswerKind::Failed {
            self.remember(&key, Entry::new(Ok(answer), second(now)), limits);
        } else if answer.ttl() > 0 {
            self.entries.insert(key, Entry::new(Ok(answer), second(now)));
        } else {
            self.entries.remove(&key);
        }
    }

    /// Records that the queried name does not exist, or that it exists again. An answer that contains aliases proves
    /// that the queried name exists, even if the RCODE is NXDOMAIN.
    fn record_existence(&self, key: &Key, answer: &Arc<Answer>, now: Nanos) {
        let denies = answer.kind() == AnswerKind::NxDomain && !answer.has_aliases();
        if answer.kind() == AnswerKind::Failed
            || !(denies || self.has_nonexistent_names.load(Ordering::Relaxed))
            // The answer to a query for DS records can come from other upstreams than that for other types.
            || key.qtype() == rtype::DS
        {
            return;
        }
        let Some(name) = key.for_any_type() else { return };
        if denies && answer.ttl() > 0 {
            self.entries.insert(name.to_key(), Entry::new(Ok(Arc::clone(answer)), second(now)));
            self.has_nonexistent_names.store(true, Ordering::Relaxed);
        } else {
            self.entries.remove(name.octets());
        }
    }

    /// Caches a failure.
    pub(crate) fn put_failure(&self, key: &Key, failure: Failure, now: Nanos, limits: &TtlLimits) {
        if self.keeps {
            self.remember(key, Entry::new(Err(failure), second(now)), limits);
        }
    }

    /// Caches a failure. Each repeated failure gets a longer lifetime. The failure does not replace an unexpired answer
    /// with data or an unexpired negative answer.
    fn remember(&self, key: &Key, failed: Entry, limits: &TtlLimits) {
        let second = failed.stored;
        let remembered = self.entries.entry(key, Some(Duration::ZERO), |_, entry| {
            let age = second.saturating_sub(entry.stored);
            if !(entry.is_good() && age < entry.ttl(limits)) {
                let timeouts_discarded_before = entry
                    .answer
                    .as_ref()
                    .is_err_and(|failure| self.is_discarded(*failure, entry.stored, age));
                let repeats =
                    if timeouts_discarded_before { 0 } else { entry.repeats_after(second, limits) };
                *entry = Entry { repeats, ..failed.clone() };
            }
            EntryAction::Retain(())
        });
        if let EntryResult::Vacant(place) = remembered {
            // Inserting fails if another worker has stored an entry in the meantime, which is
            // equally good.
            let _ = place.insert(failed);
        }
    }

    /// Discards cached timeouts after an upstream that was marked down is up again.
    pub(crate) fn discard_timeouts(&self, now: Nanos) {
        self.timeouts_discarded_before.fetch_max(second(now) + 1, Ordering::Relaxed);
    }

    /// True if a failure must no longer be used. This is the case for a timeout that was stored while an upstream was down.
    /// `stored` is the time of its storage in seconds. Each failure is cached for at least one second (RFC 9520 §3.2).
    fn is_discarded(&self, failure: Failure, stored: u32, age: u32) -> bool {
        failure == Failure::Timeout
            && age >= 1
            && stored < self.timeouts_discarded_before.load(Ordering::Relaxed)
    }

    /// Called after the upstreams failed to refresh an expired answer. Returns this answer if it expired at most
    /// `limits.stale` ago (RFC 8767). The answer is then served for the next 30 seconds. `failed` is the upstream's
    /// error response, or `None` if there was no response. An answer that failed validation (RFC 8914) is not replaced
    /// by a stale one.
    pub(crate) fn revive(
        &self,
        key: &Key,
        now: Nanos,
        limits: &TtlLimits,
        failed: Option<&Answer>,
    ) -> Option<CachedAnswer> {
        if failed.is_some_and(Answer::is_rejected) {
            return None;
        }
        let stale = limits.stale?;
        let second = second(now);
        // The entry is read and written in one step. A newer answer that another worker stores in
        // the meantime is kept.
        let revived = self.entries.entry(key, Some(Duration::ZERO), |_, entry| {
            EntryAction::Retain(entry.revive(second, stale, failed))
        });
        match revived {
            EntryResult::Retained(kept) => kept,
            // There is no entry, or another worker is just storing one.
            _ => None,
        }
    }

    /// True if the question has an expired answer that may still be served ([`revive`](Cache::revive)).
    pub(crate) fn is_revivable(&self, question: &[u8], now: Nanos, stale: Duration) -> bool {
        self.entries
            .peek(question)
            .is_some_and(|entry| entry.revivable(second(now), stale).is_some())
    }

    /// Removes the answers and failures of all types for `name` and for the names below it. Also removes answers to
    /// other questions if their aliases lead to one of these names. Returns the number of removed entries. Visits the
    /// whole cache, and locks only a part of it at a time.
    pub(crate) fn flush(&self, name: &LowerName) -> u64 {
        let removed = Cell::new(0);
        self.entries.retain(|key, entry| {
            let answer = entry.answer.as_ref();
            let is_kept = !is_at_or_below(key.name(), name.wire())
                && !answer.is_ok_and(|answer| answer.leads_to(name.wire()));
            removed.set(removed.get() + u64::from(!is_kept));
            is_kept
        });
        removed.get()
    }

    /// Removes all answers and failures, and returns their number.
    pub(crate) fn flush_all(&self) -> u64 {
        let removed = self.entries.len() as u64;
        self.clear();
        removed
    }

    /// Removes all answers and failures, and keeps the allocated memory. This has the same effect as creating a new
    /// cache, but is faster.
    pub fn clear(&self) {
        self.entries.clear();
    }

    /// Returns the number of cached answers and failures.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory of all entries in octets, as estimated by the cache.
    pub(crate) fn weight(&self) -> u64 {
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
    use crate::testing::{TestAnswer, said};
    use wire::view::rtype::{A, AAAA};

    const TXT: u16 = 16;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn key(name: &str) -> Key {
        KeyBuf::new(&name.parse().unwrap(), A, 1, false, false).to_key()
    }

    fn at(second: u64) -> Nanos {
        Nanos(second * Nanos::SECOND.0)
    }

    #[test]
    fn rfc2308_5_nxdomain_covers_all_types() {
        let (cache, limits) = (Cache::new(1), TtlLimits::default());
        let of = |qtype: u16, checking_disabled: bool| {
            KeyBuf::new(&"a.test".parse().unwrap(), qtype, 1, false, checking_disabled)
        };
        let is_known = |qtype: u16, cd: bool, second: u64| {
            matches!(cache.get(of(qtype, cd).octets(), at(second), &limits), CacheLookup::Usable(_))
        };
        let denied = said("a.test", A).rcode(3).soa("test", 60, 60);
        cache.put(of(A, false).to_key(), Arc::new(denied.parse().unwrap()), at(0), &limits);
        for qtype in [A, AAAA, TXT] {
            assert!(is_known(qtype, false, 10), "{qtype}");
            assert!(!is_known(qtype, true, 10), "{qtype} with CD");
            assert!(!is_known(qtype, false, 60), "{qtype}: expired");
        }
        // NODATA proves nothing about other types, except that the name exists.
        let empty = said("a.test", AAAA).soa("test", 60, 60);
        cache.put(of(AAAA, false).to_key(), Arc::new(empty.parse().unwrap()), at(20), &limits);
        assert!(!is_known(TXT, false, 21));
        // An NXDOMAIN for an alias's target does not apply to the alias.
        let behind = said("a.test", A).cname("a.test", 60, "b.test").rcode(3).soa("test", 60, 60);
        cache.put(of(A, false).to_key(), Arc::new(behind.parse().unwrap()), at(30), &limits);
        assert!(!is_known(TXT, false, 31));
    }

    fn address(ttl: u32) -> Arc<Answer> {
        Arc::new(said("a.test", A).a("a.test", ttl, "192.0.2.1").parse().unwrap())
    }

    /// One worker revives an entry while a second worker replaces it. The new entry stays,
    /// regardless of the order.
    #[test]
    fn rfc8767_5_revival_keeps_a_newer_answer() {
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
                cache.put(key("a.test"), Arc::clone(&old), at(0), &limits);
                barrier.wait();
                cache.put(key("a.test"), Arc::clone(&new), at(100), &limits);
                barrier.wait();
                match cache.get(key("a.test").octets(), at(101), &limits) {
                    CacheLookup::Usable(kept) => {
                        assert!(!kept.stale, "round {round}: the old answer is back");
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
    }

    fn is_remembered(cache: &Cache, second: u64, limits: &TtlLimits) -> bool {
        match cache.get(key("a.test").octets(), at(second), limits) {
            CacheLookup::Failed { .. } => true,
            CacheLookup::Usable(kept) => kept.answer.kind() == AnswerKind::Failed,
            CacheLookup::Missing => false,
        }
    }

    #[test]
    fn rfc9520_3_2_repeated_failure_has_longer_ttl() {
        let limits = TtlLimits { failure: 5, failure_max: 60, ..TtlLimits::default() };
        let servfail = || Arc::new(said("a.test", A).rcode(2).parse().unwrap());
        for silent in [true, false] {
            let cache = Cache::new(1);
            let mut second = 100;
            for lasts in [5, 10, 20, 40, 60, 60] {
                match silent {
                    true => {
                        cache.put_failure(&key("a.test"), Failure::Timeout, at(second), &limits);
                    }
                    false => cache.put(key("a.test"), servfail(), at(second), &limits),
                }
                assert!(is_remembered(&cache, second + lasts - 1, &limits), "{lasts} s");
                second += lasts;
                assert!(!is_remembered(&cache, second, &limits), "{lasts} s");
            }
            // After an answer, or a longer time without queries, counting begins again.
            cache.put_failure(&key("a.test"), Failure::Timeout, at(second + 61), &limits);
            assert!(
                is_remembered(&cache, second + 65, &limits)
                    && !is_remembered(&cache, second + 66, &limits)
            );
            cache.put(key("a.test"), address(1), at(second + 66), &limits);
            cache.put_failure(&key("a.test"), Failure::Timeout, at(second + 67), &limits);
            assert!(
                is_remembered(&cache, second + 71, &limits)
                    && !is_remembered(&cache, second + 72, &limits)
            );
        }
    }

    #[test]
    fn rfc9520_3_2_failure_seen_twice_counts_once() {
        let limits = TtlLimits { failure: 5, failure_max: 60, ..TtlLimits::default() };
        let cache = Cache::new(1);
        for _ in 0..3 {
            cache.put_failure(&key("a.test"), Failure::Timeout, at(100), &limits);
        }
        assert!(is_remembered(&cache, 104, &limits) && !is_remembered(&cache, 105, &limits));
        cache.put(key("a.test"), address(600), at(105), &limits);
        cache.put_failure(&key("a.test"), Failure::Timeout, at(106), &limits);
        assert!(matches!(
            cache.get(key("a.test").octets(), at(107), &limits),
            CacheLookup::Usable(_)
        ));
    }

    #[test]
    fn recovery_discards_timeouts_older_than_a_second() {
        let limits = TtlLimits { failure: 5, failure_max: 60, ..TtlLimits::default() };
        let cache = Cache::new(1);
        cache.put_failure(&key("a.test"), Failure::Timeout, at(100), &limits);
        cache.discard_timeouts(at(100));
        assert!(is_remembered(&cache, 100, &limits) && !is_remembered(&cache, 101, &limits));
        cache.put_failure(&key("a.test"), Failure::Timeout, at(101), &limits);
        assert!(
            is_remembered(&cache, 105, &limits) && !is_remembered(&cache, 106, &limits),
            "counting begins again"
        );
        cache.put_failure(&key("a.test"), Failure::AliasLoop, at(200), &limits);
        cache.discard_timeouts(at(201));
        assert!(is_remembered(&cache, 202, &limits), "an alias loop is not a timeout");
    }

    /// Returns a unique key for `number`, and an answer with `records` address records.
    fn unique(number: u64, records: u64) -> (Key, Arc<Answer>) {
        let name = format!("n{number}.cache.test");
        let record = |answer: TestAnswer, n: u64| answer.a(&name, 3_600, &format!("192.0.2.{n}"));
        let answer = (1..=records).fold(said(&name, A), record);
        (key(&name), Arc::new(answer.parse().unwrap()))
    }

    /// Returns the resident memory of this process, not counting mapped files, in octets (proc_pid_statm(5)).
    fn resident() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: Vec<u64> = statm.split_whitespace().map(|n| n.parse().unwrap()).collect();
        (pages[1] - pages[2])
            * nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).unwrap().unwrap() as u64
    }

    const FULL: u64 = 16;

    /// Helper process of the test below: fills a cache of [`FULL`] MiB three times, and prints the
    /// growth of the process.
    #[test]
    fn a_process_with_a_full_cache() {
        let Ok(records) = std::env::var("DNS64D_TEST_FULL_CACHE") else { return };
        let sizes: Vec<u64> = records.split(',').map(|n| n.parse().unwrap()).collect();
        let (limits, before) = (TtlLimits::default(), resident());
        let cache = Cache::new(FULL);
        let mut stored = 0;
        for (number, &records) in (0_u64..).zip(sizes.iter().cycle()) {
            let (key, answer) = unique(number, records);
            stored += BySize.weight(&key, &Entry::new(Ok(Arc::clone(&answer)), 0));
            cache.put(key, answer, at(0), &limits);
            if stored >= 3 * (FULL << 20) {
                break;
            }
        }
        println!("grown: {} of {} used", resident() - before, cache.weight());
    }

    #[test]
    fn a_full_cache_takes_the_configured_memory() {
        for records in ["1", "60", "1,4,60"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "resolver::cache::tests::a_process_with_a_full_cache"])
                .arg("--nocapture")
                .env("DNS64D_TEST_FULL_CACHE", records)
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&child.stdout);
            let grown = printed.lines().find_map(|line| line.split_once("grown: "));
            let words: Vec<&str> = grown.expect(&printed).1.split(' ').collect();
            let [grown, used] = [words[0], words[2]].map(|word| word.parse::<u64>().unwrap());
            let configured = FULL << 20;
            assert!(used >= configured * 3 / 4 && used <= configured, "{records}: {printed}");
            // The remainder is free memory between allocations.
            assert!(grown <= configured * 9 / 8, "{records}: {printed}");
        }
    }

    #[test]
    fn flush_removes_name_subtree_and_aliases() {
        let limits = TtlLimits::default();
        let cached = || {
            let cache = Cache::new(1);
            let put = |name: &str, qtype: u16, cd: bool, answer: TestAnswer| {
                let key = KeyBuf::new(&name.parse().unwrap(), qtype, 1, false, cd).to_key();
                cache.put(key, Arc::new(answer.parse().unwrap()), at(0), &limits);
            };
            for name in ["a.test", "b.a.test", "xa.test", "test"] {
                put(name, A, false, said(name, A).a(name, 60, "192.0.2.1"));
            }
            put("a.test", A, true, said("a.test", A).a("a.test", 60, "192.0.2.1"));
            put("a.test", AAAA, false, said("a.test", AAAA).nodata(60));
            let chain = said("www.other", A)
                .cname("www.other", 60, "A.test")
                .cname("A.test", 60, "c.other")
                .a("c.other", 60, "192.0.2.1");
            put("www.other", A, false, chain);
            let no_data = said("v6.other", AAAA).cname("v6.other", 60, "d.a.test").nodata(60);
            put("v6.other", AAAA, false, no_data);
            cache.put_failure(&key("broken.a.test"), Failure::Timeout, at(0), &limits);
            cache
        };
        for (name, removed, left) in [
            ("A.Test.", 7, vec!["test", "xa.test"]),
            ("b.a.test", 1, vec!["a.test", "test", "xa.test"]),
            ("c.other", 1, vec!["a.test", "b.a.test"]),
            ("none.test", 0, vec!["a.test", "b.a.test", "test", "xa.test"]),
            (".", 9, vec![]),
        ] {
            let cache = cached();
            assert_eq!(cache.len(), 9);
            assert_eq!(cache.flush(&name.parse().unwrap()), removed, "{name}");
            assert_eq!(cache.len() as u64, 9 - removed, "{name}");
            for left in left {
                let found = cache.get(key(left).octets(), at(1), &limits);
                assert!(matches!(found, CacheLookup::Usable(_)), "{left} after {name}");
            }
        }
        let cache = cached();
        assert_eq!((cache.flush_all(), cache.len()), (9, 0));
    }

    #[test]
    fn cleared_cache_is_empty() {
        let cache = Cache::new(1);
        let key = KeyBuf::new(&"host.test".parse().unwrap(), 1, 1, false, false);
        let limits = TtlLimits { failure: 5, ..TtlLimits::default() };
        cache.put_failure(&key.to_key(), Failure::Timeout, Nanos(0), &limits);
        assert!(matches!(
            cache.get(key.octets(), Nanos(0), &limits),
            CacheLookup::Failed { failure: Failure::Timeout, .. }
        ));
        cache.clear();
        assert!(matches!(cache.get(key.octets(), Nanos(0), &limits), CacheLookup::Missing));
        assert_eq!((cache.len(), cache.weight()), (0, 0));
    }
}
