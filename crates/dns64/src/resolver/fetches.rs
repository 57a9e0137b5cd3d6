//! The questions in flight of a resolver: found by name of the question and by number, each in flight only once.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use slab::Slab;

use super::fetch::Fetch;
use crate::config::Settings;
use crate::ids::FetchId;
use crate::name::LowerName;

/// A question, and by what it is found.
struct Entry {
    fetch: Fetch,
    generation: u32,
    /// Of its key.
    hash: u64,
}

/// The questions in flight of a resolver.
#[derive(Default)]
pub(super) struct Fetches {
    slab: Slab<Entry>,
    /// Where they are in `slab`, by their keys.
    by_key: HashTable<u32>,
    /// Clients choose the keys: the hash must be one that they cannot foresee.
    hasher: RandomState,
    generation: u32,
}

impl Fetches {
    /// Adds a question that is not in flight yet.
    pub(super) fn insert(&mut self, fetch: Fetch) -> FetchId {
        debug_assert!(self.find(fetch.query.key().octets()).is_none(), "it is in flight already");
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let hash = self.hasher.hash_one(fetch.query.key().octets());
        let index = self.slab.insert(Entry { fetch, generation, hash }) as u32;
        self.by_key.insert_unique(hash, index, |at| self.slab[*at as usize].hash);
        FetchId { index, generation }
    }

    /// The one that asks this ([`KeyBuf::octets`](crate::name::KeyBuf::octets)).
    #[inline]
    pub(super) fn find(&self, question: &[u8]) -> Option<FetchId> {
        let hash = self.hasher.hash_one(question);
        let index = *self.by_key.find(hash, |at| self.slab[*at as usize].fetch.query.key().octets() == question)?;
        Some(FetchId { index, generation: self.slab[index as usize].generation })
    }

    /// The one with this number, while it is in flight.
    #[inline]
    pub(super) fn get(&mut self, id: FetchId) -> Option<&mut Fetch> {
        let entry = self.slab.get_mut(id.index as usize)?;
        (entry.generation == id.generation).then_some(&mut entry.fetch)
    }

    /// Takes it out: it is in flight no more.
    pub(super) fn remove(&mut self, id: FetchId) -> Option<Fetch> {
        let hash = self.slab.get(id.index as usize).filter(|entry| entry.generation == id.generation)?.hash;
        let entry = self.by_key.find_entry(hash, |at| *at == id.index);
        debug_assert!(entry.is_ok(), "what is in the slab is in the table");
        if let Ok(entry) = entry {
            entry.remove();
        }
        Some(self.slab.remove(id.index as usize).fetch)
    }

    /// Finds the routes anew, in a new configuration.
    pub(super) fn reroute(&mut self, settings: &Settings) {
        for (_, entry) in &mut self.slab {
            let fetch = &mut entry.fetch;
            fetch.route = settings.route(&LowerName::of_wire(fetch.query.key().name()));
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RouteId;
    use crate::name::{Key, KeyBuf};
    use crate::resolver::budget::Budget;
    use crate::resolver::fetch::State;
    use method::units::Nanos;

    fn key(name: &str) -> Key {
        KeyBuf::new(&name.parse().unwrap(), 28, 1, false, false).to_key()
    }

    #[test]
    fn questions_are_found_by_key_until_they_are_removed() {
        let mut fetches = Fetches::default();
        let budget = Budget::new(&mut rand::rng());
        let charge = budget.whose(budget.client(0), &[0], Nanos(0));
        let new = |name: &str| {
            Fetch::new(key(name), RouteId(0), charge, Nanos(0), State::Elsewhere, None::<&mut rand::rngs::StdRng>)
        };
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
}
