//! Cache of the reference server. It contains upstream replies, and entries for upstream queries in flight.
//!
//! The entry for a query in flight has no content. Further queries with the same key wait for the reply to the query in
//! flight. A reply that must not be cached gets a lifetime of zero, and is returned to the waiting queries only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use conform::message::{Message, Name, Record, rcode};
use domain::base::iana::Rtype;

use crate::rules::Rules;

/// Time for which a failure is cached. RFC 9520 §3.2 requires at least one second.
const FAILURE: Duration = Duration::from_secs(3);
/// Number of entries that triggers the removal of expired entries.
const FULL: usize = 50_000;

/// Cache key: the properties of an upstream query on which the reply depends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) name: Name,
    pub(super) qtype: Rtype,
    pub(super) dnssec_ok: bool,
    pub(super) cd: bool,
}

impl Key {
    /// Returns the key for a name error (NXDOMAIN) of this name. A name error applies to all types (RFC 2308 §5), so
    /// the key uses type 0, which occurs in no query (RFC 6895 §3.1).
    fn of_all_types(&self) -> Key {
        Key { qtype: Rtype::from_int(0), ..self.clone() }
    }
}

/// Cached replies and queries in flight, by key.
pub(super) struct Cache {
    entries: Mutex<HashMap<Key, Arc<Entry>>>,
    rules: Rules,
}

type Entry = OnceLock<CachedReply>;

struct CachedReply {
    /// The cached reply, or `None` if the upstream did not reply.
    reply: Option<Message>,
    since: Instant,
    lives: Duration,
}

impl CachedReply {
    /// True if the reply denies the existence of the queried name itself, and not of an alias target.
    fn says_that_there_is_no_such_name(&self) -> bool {
        let is_error = |reply: &Message| reply.rcode == rcode::NXDOMAIN && reply.answer.is_empty();
        self.reply.as_ref().is_some_and(is_error)
    }
}

impl Cache {
    pub(super) fn new(rules: Rules) -> Cache {
        Cache { entries: Mutex::default(), rules }
    }

    /// Returns the cached reply. If no reply is cached, calls `ask`, caches the result, and returns it. Returns `None`
    /// if the upstream did not reply.
    pub(super) fn get(&self, key: &Key, ask: impl FnOnce() -> Option<Message>) -> Option<Message> {
        let entry = self.entry(key);
        let mut is_new = false;
        let kept = entry.get_or_init(|| {
            is_new = true;
            self.kept(ask())
        });
        if is_new && kept.says_that_there_is_no_such_name() && self.rules.nxdomain_ends {
            self.lock().insert(key.of_all_types(), entry.clone());
        }
        let mut reply = kept.reply.clone();
        if let Some(reply) = reply.as_mut().filter(|_| self.rules.ages) {
            let age = u32::try_from(kept.since.elapsed().as_secs()).unwrap_or(u32::MAX);
            for record in all_records(reply) {
                record.ttl = record.ttl.saturating_sub(age);
            }
        }
        reply
    }

    /// Caches a reply to a query that was not sent. Only a mutant (a deliberately faulty variant of the server) uses
    /// this function.
    pub(super) fn put(&self, key: Key, reply: Message) {
        self.lock().insert(key, Arc::new(OnceLock::from(self.kept(Some(reply)))));
    }

    /// Returns the cached entry for the key. If the cache has no such entry, or the entry has expired, adds and returns
    /// a new one.
    fn entry(&self, key: &Key) -> Arc<Entry> {
        let mut entries = self.lock();
        if entries.len() >= FULL {
            entries.retain(|_, entry| self.is_of_use(entry));
        }
        for known in [&key.of_all_types(), key] {
            if let Some(entry) = entries.get(known).filter(|entry| self.is_of_use(entry)) {
                return entry.clone();
            }
        }
        let entry = Arc::new(Entry::new());
        entries.insert(key.clone(), entry.clone());
        entry
    }

    fn is_of_use(&self, entry: &Entry) -> bool {
        entry.get().map_or(self.rules.asks_once, |kept| kept.since.elapsed() < kept.lives)
    }

    fn kept(&self, reply: Option<Message>) -> CachedReply {
        let lives = if self.rules.caches { lifetime(reply.as_ref()) } else { Duration::ZERO };
        CachedReply { reply, since: Instant::now(), lives }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time for which a reply is cached. A negative answer without a SOA record is not cached (RFC 2308 §5).
fn lifetime(reply: Option<&Message>) -> Duration {
    let Some(reply) = reply.filter(|reply| matches!(reply.rcode, rcode::NOERROR | rcode::NXDOMAIN))
    else {
        return FAILURE;
    };
    let denies = reply.answer.is_empty() || reply.rcode == rcode::NXDOMAIN;
    if denies && !reply.authority.iter().any(|record| record.rtype == Rtype::SOA) {
        return Duration::ZERO;
    }
    let records = reply.answer.iter().chain(&reply.authority).chain(&reply.additional);
    Duration::from_secs(u64::from(records.map(|record| record.ttl).min().unwrap_or(0)))
}

/// Returns the records in all sections of a message.
pub(super) fn all_records(message: &mut Message) -> impl Iterator<Item = &mut Record> {
    let Message { answer, authority, additional, .. } = message;
    answer.iter_mut().chain(authority).chain(additional)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use conform::message::name;

    fn key() -> Key {
        Key { name: name("x.example"), qtype: Rtype::A, dnssec_ok: false, cd: false }
    }

    fn reply(ttl: u32) -> Message {
        let mut reply = Message::query(&name("x.example"), Rtype::A).response();
        reply.answer.push(Record::a(name("x.example"), ttl, Ipv4Addr::LOCALHOST));
        reply
    }

    #[test]
    fn cache_lifetimes() {
        let denial = |soa: Option<u32>, code| {
            let mut reply = Message { rcode: code, answer: Vec::new(), ..reply(0) };
            reply.authority.extend(soa.map(|ttl| Record::soa(&name("example"), ttl, ttl)));
            reply
        };
        for (message, seconds) in [
            (reply(7), 7),
            (reply(0), 0),
            (denial(Some(9), rcode::NOERROR), 9),
            (denial(Some(9), rcode::NXDOMAIN), 9),
            (denial(None, rcode::NXDOMAIN), 0),
            (denial(None, rcode::SERVFAIL), 3),
        ] {
            assert_eq!(lifetime(Some(&message)), Duration::from_secs(seconds), "{message:?}");
        }
        assert_eq!(lifetime(None), FAILURE);
    }

    #[test]
    fn names_differ_by_more_than_letter_case() {
        let cache = Cache::new(Rules::default());
        assert!(cache.get(&key(), || Some(reply(9))).is_some());
        let other_case = Key { name: name("X.EXAMPLE"), ..key() };
        assert!(cache.get(&other_case, || panic!("it is cached")).is_some());
        assert_eq!(cache.get(&Key { cd: true, ..key() }, || None), None);
    }

    #[test]
    fn rfc_2308_5_a_name_error_is_of_all_types() {
        let mut error = Message { rcode: rcode::NXDOMAIN, answer: Vec::new(), ..reply(0) };
        error.authority.push(Record::soa(&name("example"), 9, 9));
        let cache = Cache::new(Rules::default());
        assert!(cache.get(&key(), || Some(error.clone())).is_some());
        let other_type = Key { qtype: Rtype::AAAA, ..key() };
        assert!(cache.get(&other_type, || panic!("it is cached")).is_some());
        let other_name = Key { name: name("y.example"), ..key() };
        assert!(cache.get(&other_name, || None).is_none());
    }

    #[test]
    fn simultaneous_queries_share_one_upstream_query() {
        for (asks_once, expected) in [(true, 1), (false, 8)] {
            let cache = Cache::new(Rules { asks_once, caches: false, ..Rules::default() });
            let asked = AtomicUsize::new(0);
            let ask = || {
                asked.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(200));
                Some(reply(0))
            };
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| assert!(cache.get(&key(), ask).is_some()));
                }
            });
            assert_eq!(asked.load(Ordering::Relaxed), expected);
        }
    }
}
