//! Time of the last query for each name. The time since that query distinguishes a DUT's retries from cache misses.
//!
//! ```text
//! slot:  name number mod SLOTS, type      names of a trial are consecutive, so they have different slots
//! word:  name number ÷ SLOTS │ time of the last query in units of 1 024 ns
//! ```
//!
//! The table is shared by all workers, because a DUT may send a retry from a different port. Two names with the same
//! table entry overwrite each other. A retry may then count as a new query, but a new query never counts as a retry.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use units::Nanos;

use super::answer::QueryType;

/// Number of names in the table. At 200 000 new names per second, a name remains in the table for more than five
/// seconds.
const SLOTS: usize = 1 << 20;
/// Number of bits for the time in a table entry. In units of 1 024 ns, 52 bits are enough for 146 years.
const TIME_BITS: u32 = 52;

/// Table with the time of the last query for each name. The table has 16 MiB, but the kernel allocates only the pages
/// that are used.
pub(super) struct RecentQueries(Box<[[AtomicU64; 2]]>);

impl RecentQueries {
    pub(super) fn new() -> RecentQueries {
        RecentQueries((0..SLOTS).map(|_| Default::default()).collect())
    }

    /// Records a query at `now`. Returns the time since the previous query for the same name and type, if there was
    /// one.
    #[inline]
    pub(super) fn note(&self, name: Ipv4Addr, qtype: QueryType, now: Nanos) -> Option<Nanos> {
        let number = u64::from(u32::from(name));
        let pair = &self.0[number as usize % SLOTS];
        let slot = match qtype {
            QueryType::Aaaa => &pair[0],
            QueryType::A => &pair[1],
            QueryType::Other => return None,
        };
        let tag = number / SLOTS as u64;
        // Never 0, which marks an unused slot.
        let time = (now.0 >> 10).max(1);
        let before = slot.swap(tag << TIME_BITS | time, Ordering::Relaxed);
        let (its_tag, its_time) = (before >> TIME_BITS, before & ((1 << TIME_BITS) - 1));
        (its_time != 0 && its_tag == tag).then(|| Nanos(time.saturating_sub(its_time) << 10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_queries_are_found_with_their_age() {
        let recent = RecentQueries::new();
        let (name, other) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 16, 0, 1));
        let at = Nanos::from_millis;
        assert_eq!(recent.note(name, QueryType::Aaaa, at(1_000)), None);
        assert_eq!(
            recent.note(name, QueryType::A, at(1_001)),
            None,
            "another type is another question"
        );
        let age = recent.note(name, QueryType::Aaaa, at(1_250)).unwrap();
        assert!(age.0.abs_diff(at(250).0) <= 2_048, "{age:?}");
        assert_eq!(
            recent.note(other, QueryType::Aaaa, at(1_260)),
            None,
            "the same slot, another name"
        );
        assert_eq!(
            recent.note(name, QueryType::Aaaa, at(1_270)),
            None,
            "forgotten for the other name"
        );
        assert_eq!(recent.note(name, QueryType::Other, at(1_280)), None);
    }
}
