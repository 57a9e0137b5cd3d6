//! Questions to upstreams that are in flight.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use method::units::Nanos;
use rand::Rng;
use slab::Slab;
use smallvec::SmallVec;
use wire::edns::{UDP_PAYLOAD, put_opt};
use wire::rcode::Rcode;

use crate::config::Settings;
use crate::name::{Key, LowerName};
use crate::resolver::answer::Answer;

/// Names a question in flight; never reused for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FetchId {
    index: u32,
    generation: u32,
}

/// One time that a question was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) server: usize,
    pub(super) socket: usize,
    pub(super) id: u16,
    pub(super) sent: Nanos,
    pub(super) edns: bool,
    /// It was not answered in time.
    pub(super) expired: bool,
}

/// A question in flight.
pub(super) struct Fetch {
    pub(super) key: Key,
    /// The question section as it is sent, if that is in random letter case.
    random_case: Option<Box<[u8]>>,
    pub(super) route: usize,
    pub(super) attempts: SmallVec<[Attempt; 1]>,
    pub(super) tried: SmallVec<[usize; 1]>,
    pub(super) deadline: Nanos,
    /// When it is looked at next; timers that ring earlier were set before something else happened.
    pub(super) due: Nanos,
    /// Jobs that wait for it.
    pub(super) waiters: SmallVec<[usize; 1]>,
    /// The server that did not like the question with EDNS; it is asked without from then on.
    pub(super) plain: Option<usize>,
    /// The server that is being asked over TCP.
    pub(super) over_tcp: Option<usize>,
    /// Another worker asks; this one only waits.
    pub(super) elsewhere: bool,
    /// An error that an upstream answered, should the others do no better.
    pub(super) fallback: Option<Arc<Answer>>,
    generation: u32,
    /// Of its key.
    hash: u64,
}

/// The questions in flight of a worker.
#[derive(Default)]
pub(super) struct Fetches {
    slab: Slab<Fetch>,
    /// Where they are in `slab`, by their keys.
    by_key: HashTable<u32>,
    /// Clients choose the keys: the hash must be one that they cannot foresee.
    hasher: RandomState,
    generation: u32,
}

impl Fetches {
    /// Adds a question that is not in flight yet.
    pub(super) fn insert(&mut self, mut fetch: Fetch) -> FetchId {
        self.generation = self.generation.wrapping_add(1);
        fetch.generation = self.generation;
        fetch.hash = self.hasher.hash_one(fetch.key.octets());
        let hash = fetch.hash;
        debug_assert!(self.find(fetch.key.octets()).is_none(), "it is in flight already");
        let index = self.slab.insert(fetch) as u32;
        self.by_key.insert_unique(hash, index, |at| self.slab[*at as usize].hash);
        FetchId { index, generation: self.generation }
    }

    /// The one that asks this ([`KeyBuf::octets`](crate::name::KeyBuf::octets)).
    #[inline]
    pub(super) fn find(&self, question: &[u8]) -> Option<FetchId> {
        let hash = self.hasher.hash_one(question);
        let index = *self.by_key.find(hash, |at| self.slab[*at as usize].key.octets() == question)?;
        Some(FetchId { index, generation: self.slab[index as usize].generation })
    }

    #[inline]
    pub(super) fn get(&mut self, id: FetchId) -> Option<&mut Fetch> {
        self.slab.get_mut(id.index as usize).filter(|fetch| fetch.generation == id.generation)
    }

    pub(super) fn remove(&mut self, id: FetchId) -> Option<Fetch> {
        let hash = self.get(id)?.hash;
        let entry = self.by_key.find_entry(hash, |at| *at == id.index);
        debug_assert!(entry.is_ok(), "what is in the slab is in the table");
        if let Ok(entry) = entry {
            entry.remove();
        }
        Some(self.slab.remove(id.index as usize))
    }

    /// Finds the routes anew, in a new configuration.
    pub(super) fn reroute(&mut self, settings: &Settings) {
        for (_, fetch) in &mut self.slab {
            fetch.route = settings.route(&LowerName::of_wire(fetch.key.name()));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}

impl Fetch {
    pub(super) fn new(key: Key, route: usize, deadline: Nanos, random_case: Option<&mut impl Rng>) -> Fetch {
        let random_case = random_case.map(|rng| {
            let mut question: Box<[u8]> = key.question().into();
            randomize_case(&mut question, key.name().len(), rng);
            question
        });
        Fetch {
            key,
            random_case,
            route,
            attempts: SmallVec::new(),
            tried: SmallVec::new(),
            deadline,
            due: deadline,
            waiters: SmallVec::new(),
            plain: None,
            over_tcp: None,
            elsewhere: false,
            fallback: None,
            generation: 0,
            hash: 0,
        }
    }

    /// Whether this is the question section that was sent; letter by letter if its case is random.
    #[inline]
    pub(super) fn has_sent(&self, question: &[u8]) -> bool {
        match &self.random_case {
            Some(sent) => *question == **sent,
            None => question.eq_ignore_ascii_case(self.key.question()),
        }
    }

    /// Writes the query for it (items 31, 32: an id of its own, EDNS of this hop).
    pub(super) fn write_query(&self, id: u16, edns: bool, out: &mut Vec<u8>) {
        // AD asks for the upstream's AD where DO is not set (RFC 6840 §5.7); it is of use to clients only if they are told so.
        let ad_cd = 0x20 | u8::from(self.key.checking_disabled()) << 4;
        out.extend(id.to_be_bytes());
        out.extend([0x01, ad_cd, 0, 1, 0, 0, 0, 0, 0, u8::from(edns)]);
        out.extend(self.random_case.as_deref().unwrap_or(self.key.question()));
        if edns {
            put_opt(out, UDP_PAYLOAD as u16, Rcode::NOERROR, self.key.dnssec_ok(), &[]);
        }
    }
}

/// Random letter case for the letters of a name (draft-vixie-dnsext-dns0x20).
fn randomize_case(question: &mut [u8], name_len: usize, rng: &mut impl Rng) {
    for octet in &mut question[..name_len] {
        if octet.is_ascii_lowercase() && rng.next_u32() & 1 == 1 {
            octet.make_ascii_uppercase();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    use crate::name::KeyBuf;

    fn key(name: &str) -> Key {
        KeyBuf::new(&name.parse().unwrap(), 28, 1, false, false).to_key()
    }

    #[test]
    fn questions_are_found_by_key_until_they_are_removed() {
        let mut fetches = Fetches::default();
        let new = |name: &str| Fetch::new(key(name), 0, Nanos(0), None::<&mut rand::rngs::StdRng>);
        let ids: Vec<_> = (0..1_000).map(|n| fetches.insert(new(&format!("n{n}.test")))).collect();
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(fetches.find(key(&format!("N{n}.test")).octets()), Some(*id));
            assert!(n % 2 == 0 || fetches.remove(*id).is_some());
        }
        assert!(fetches.remove(ids[1]).is_none() && fetches.find(key("n1.test").octets()).is_none());
        // Another question in the same place is not taken for the old one.
        let again = fetches.insert(new("n1.test"));
        assert!(fetches.get(ids[999]).is_none() && fetches.find(key("n1.test").octets()) == Some(again));
        assert_eq!(fetches.len(), 501);
    }

    /// An id for tests in which ids do not matter.
    pub(in crate::server) fn any_id() -> FetchId {
        FetchId { index: 0, generation: 0 }
    }
}
