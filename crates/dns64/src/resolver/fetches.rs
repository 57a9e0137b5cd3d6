//! The fetches in flight of a resolver. A fetch can be found by its question or by its identifier.
//! Each question is in flight only once.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use quick_cache::DefaultHashBuilder;
use rustc_hash::FxHashSet;
use slab::Slab;

use super::fetch::{Fetch, KeyHash};
use crate::config::Settings;
use crate::ids::{FetchId, ServerId};

/// The fetches in flight of a resolver.
#[derive(Default)]
pub(super) struct Fetches {
    slab: Slab<Fetch>,
    /// Hash table from the key of a question to the index of its fetch in `slab`.
    by_key: HashTable<u32>,
    /// Hasher with random seeds, as in the cache: clients choose the keys and should not be able to compute keys that
    /// collide.
    hasher: DefaultHashBuilder,
    generation: u32,
    /// Generation number of the last fetch that was inserted before the last reload. Each inserted fetch gets the next
    /// generation number.
    rerouted_at: u32,
    /// Number of fetches in flight that began before the last reload.
    older: usize,
}

impl Fetches {
    /// Returns the hash of a question ([`KeyBuf::octets`](crate::name::KeyBuf::octets)).
    #[inline]
    pub(super) fn hash(&self, question: &[u8]) -> KeyHash {
        KeyHash::new(self.hasher.hash_one(question))
    }

    /// Inserts a fetch. Its question must not be in flight yet. Returns the identifier of the fetch
    /// and a reference to it.
    pub(super) fn insert(&mut self, mut fetch: Fetch) -> (FetchId, &mut Fetch) {
        let hash = fetch.hash;
        debug_assert_eq!(hash, self.hash(fetch.query.key().octets()), "hash of another question");
        debug_assert!(self.find(fetch.query.key().octets(), hash).is_none(), "already in flight");
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        fetch.generation = generation;
        let index = self.slab.insert(fetch) as u32;
        self.by_key.insert_unique(hash.get(), index, |at| self.slab[*at as usize].hash.get());
        (FetchId { index, generation }, &mut self.slab[index as usize])
    }

    /// Finds the fetch for a question by its precomputed hash.
    #[inline]
    pub(super) fn find(&self, question: &[u8], hash: KeyHash) -> Option<FetchId> {
        let index = *self
            .by_key
            .find(hash.get(), |at| self.slab[*at as usize].query.key().octets() == question)?;
        Some(FetchId { index, generation: self.slab[index as usize].generation })
    }

    /// Returns the fetch with this identifier, or `None` if it is no longer in flight.
    #[inline]
    pub(super) fn get(&mut self, id: FetchId) -> Option<&mut Fetch> {
        self.slab.get_mut(id.index as usize).filter(|fetch| fetch.generation == id.generation)
    }

    /// Removes a fetch.
    pub(super) fn remove(&mut self, id: FetchId) -> Option<Fetch> {
        let hash = self
            .slab
            .get(id.index as usize)
            .filter(|fetch| fetch.generation == id.generation)?
            .hash;
        let entry = self.by_key.find_entry(hash.get(), |at| *at == id.index);
        debug_assert!(entry.is_ok(), "every entry of the slab is in the table");
        if let Ok(entry) = entry {
            entry.remove();
        }
        if self.older > 0 && self.is_older(id) {
            self.older -= 1;
        }
        Some(self.slab.remove(id.index as usize))
    }

    /// True if the fetch began before the last reload. The comparison allows for generation numbers that have wrapped
    /// around.
    fn is_older(&self, id: FetchId) -> bool {
        self.rerouted_at.wrapping_sub(id.generation) < 1 << 31
    }

    /// True if a fetch from before the last reload is still in flight.
    #[inline]
    pub(super) fn has_older(&self) -> bool {
        self.older > 0
    }

    /// Returns the servers that were queried by fetches in flight.
    pub(super) fn servers(&self) -> FxHashSet<ServerId> {
        self.slab.iter().flat_map(|(_, fetch)| fetch.state.servers()).collect()
    }

    /// Called after a reload: assigns to each fetch in flight the upstreams that now apply to its name.
    pub(super) fn reroute(&mut self, settings: &Settings) {
        (self.rerouted_at, self.older) = (self.generation, self.slab.len());
        for (_, fetch) in &mut self.slab {
            let key = fetch.query.key();
            fetch.route = settings.route_of(key.name(), key.qtype());
        }
    }

    /// Returns the number of fetches in flight.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ids::RouteId;
    use crate::name::{Key, KeyBuf};
    use crate::resolver::budget::Budget;
    use crate::resolver::fetch::{State, UpstreamQuery};
    use crate::shares::Slots;
    use crate::shares::client::ClientId;
    use units::Nanos;

    const UPSTREAM: &str = "[[upstream]]\naddress = '192.0.2.1'\n";

    fn key(name: &str) -> Key {
        KeyBuf::new(&name.parse().unwrap(), 28, 1, false, false).to_key()
    }

    #[test]
    fn questions_are_found_by_key_until_they_are_removed() {
        let mut fetches = Fetches::default();
        let slots = Slots { taken: 0, most: 1 };
        let ticket = Budget::new().ticket(ClientId(0), &[0], slots, Nanos(0));
        let new = |name: &str, hash: KeyHash| {
            let query = UpstreamQuery::new(key(name), false, None::<&mut rand::rngs::StdRng>);
            Fetch::new(query, hash, RouteId(0), ticket, Nanos(0), State::OtherWorker)
        };
        let insert = |fetches: &mut Fetches, name: &str| {
            let hash = fetches.hash(key(name).octets());
            fetches.insert(new(name, hash)).0
        };
        let find = |fetches: &Fetches, name: &str| {
            let key = key(name);
            fetches.find(key.octets(), fetches.hash(key.octets()))
        };
        let ids: Vec<_> = (0..1_000).map(|n| insert(&mut fetches, &format!("n{n}.test"))).collect();
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(find(&fetches, &format!("N{n}.test")), Some(*id));
            assert!(n % 2 == 0 || fetches.remove(*id).is_some());
        }
        assert!(fetches.remove(ids[1]).is_none() && find(&fetches, "n1.test").is_none());
        // A later fetch in the same slot is distinguished from the old one.
        let again = insert(&mut fetches, "n1.test");
        assert!(fetches.get(ids[999]).is_none() && find(&fetches, "n1.test") == Some(again));
        assert_eq!(fetches.len(), 501);
        // Fetches from before a reload are counted until they end.
        fetches.reroute(&Settings::from_text(UPSTREAM, Path::new("test.toml")).unwrap());
        let younger = insert(&mut fetches, "younger.test");
        for id in ids.iter().copied().step_by(2).chain([again]) {
            assert!(fetches.has_older());
            fetches.remove(id);
        }
        assert!(!fetches.has_older() && fetches.get(younger).is_some());
    }
}
