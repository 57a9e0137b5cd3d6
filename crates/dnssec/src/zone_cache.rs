//! Cache of the trust in zones.

use std::sync::Arc;

use domain::base::iana::ExtendedErrorCode;
use quick_cache::sync::Cache;

use crate::name::Name;
use crate::signature::Zone;
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

/// Cache of the steps from zone to zone, shared by all validations.
pub(crate) struct ZoneCache {
    entries: Cache<Name, Entry>,
}

impl ZoneCache {
    /// Returns an empty cache for `most` names.
    pub(crate) fn new(most: usize) -> ZoneCache {
        ZoneCache { entries: Cache::new(most) }
    }

    /// Returns the step to this name, unless it has expired.
    pub(crate) fn get(&self, name: &Name, now: u32) -> Option<Step> {
        let entry = self.entries.get(name)?;
        let left = entry.until.wrapping_sub(now);
        (left != 0 && left < 1 << 31).then_some(entry.step)
    }

    /// Stores the step to a name for a number of seconds.
    pub(crate) fn insert(&self, name: Name, step: Step, seconds: u32, now: u32) {
        if seconds > 0 {
            let until = now.wrapping_add(seconds.min(MOST_SECONDS));
            self.entries.insert(name, Entry { step, until });
        }
    }
}
