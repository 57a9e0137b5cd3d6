//! Cache of the trust in zones.

use std::sync::Arc;

use bytes::Bytes;
use domain::base::iana::ExtendedErrorCode;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::name::Name;
use crate::signature::{Key, Zone};
use crate::verdict::Fault;

/// Maximum time for which the keys of a zone are stored, in seconds.
pub(crate) const MOST_SECONDS: u32 = 86_400;

/// Trust in the zone of a name.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// The keys of the zone are valid.
    Keys(Arc<Zone>),
    /// The zone is unsigned, or uses only unsupported algorithms.
    Insecure(Option<ExtendedErrorCode>),
    /// The keys of the zone, or the proof that it is unsigned, are wrong.
    Bogus(Fault),
    /// No trust anchor is above the name.
    Indeterminate,
    /// A negative trust anchor applies to the name, for this number of seconds.
    Unchecked(u32),
}

/// What is known about a name below a zone.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The name is the apex of a zone.
    Cut(Trust),
    /// The name belongs to the zone of its parent.
    Inside,
}

#[derive(Clone, Debug)]
struct Entry {
    step: Step,
    /// Time until which the entry is valid, in seconds since 1970, modulo 2³².
    until: u32,
}

/// Memory of an entry, in octets, in addition to its name and the keys of its zone.
const ENTRY_OCTETS: usize = 192;
/// Usual memory of an entry, in octets.
const USUAL_OCTETS: usize = 512;

/// Estimated memory of an entry, in octets.
#[derive(Clone)]
struct Octets;

impl Weighter<Bytes, Entry> for Octets {
    fn weight(&self, name: &Bytes, entry: &Entry) -> u64 {
        let keys = match &entry.step {
            Step::Cut(Trust::Keys(zone)) => {
                let of_key = |key: &Key| size_of::<Key>() + key.dnskey.public_key().len();
                zone.name.len() + zone.keys.iter().map(of_key).sum::<usize>()
            }
            Step::Cut(_) | Step::Inside => 0,
        };
        (ENTRY_OCTETS + name.len() + keys) as u64
    }
}

/// Cache of the steps from zone to zone, shared by all validations.
pub(crate) struct ZoneCache {
    /// The keys are names in wire format and lower case.
    entries: Cache<Bytes, Entry, Octets>,
}

impl ZoneCache {
    /// Returns an empty cache. Its entries occupy up to `most` octets.
    pub(crate) fn new(most: usize) -> ZoneCache {
        ZoneCache { entries: Cache::with_weighter(most / USUAL_OCTETS, most as u64, Octets) }
    }

    /// Returns the step to this name, in wire format and lower case, unless it has expired.
    pub(crate) fn get(&self, name: &[u8], now: u32) -> Option<Step> {
        let entry = self.entries.get(name)?;
        let left = entry.until.wrapping_sub(now);
        (left != 0 && left < 1 << 31).then_some(entry.step)
    }

    /// Stores the step to a name for a number of seconds.
    pub(crate) fn insert(&self, name: &Name, step: Step, seconds: u32, now: u32) {
        if seconds > 0 {
            let until = now.wrapping_add(seconds.min(MOST_SECONDS));
            self.entries.insert(Bytes::copy_from_slice(name.as_slice()), Entry { step, until });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_bounded_by_their_memory() {
        let cache = ZoneCache::new(64 << 10);
        for number in 0..4_000 {
            let name = Name::bytes_from_str(&format!("n{number}.example.")).unwrap();
            cache.insert(&name, Step::Inside, 60, 1);
        }
        assert!(cache.entries.weight() <= 64 << 10);
        assert!((100..400).contains(&cache.entries.len()), "{}", cache.entries.len());
    }
}
