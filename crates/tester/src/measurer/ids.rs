//! From query to (source port, message id) and back, without a table of outstanding queries.
//!
//! ```text
//! query k of a shard ─► block k/B ─► port (k/B) mod P, position on that port n = (k/B)/P·B + k mod B ─► id = π((n + offset) mod 2¹⁶)
//! ```
//!
//! B queries that leave together share a port; ports take turns. π is a random permutation of the
//! 16-bit numbers, so ids cannot be predicted, and 65 536 consecutive queries of a port have 65 536
//! different ones. Both steps can be inverted, so a reply's port and id name the query that it
//! answers.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

const IDS: u64 = 1 << 16;

/// The ids and ports of a shard's queries.
pub(crate) struct IdPlan {
    ports: u64,
    block: u64,
    permutation: Box<[u16]>,
    inverse: Box<[u16]>,
    offsets: Box<[u16]>,
}

impl IdPlan {
    /// A plan for `ports` source ports with blocks of `block` queries, as random as `rng`.
    ///
    /// # Panics
    /// If either is zero.
    pub(crate) fn new(ports: u16, block: u16, rng: &mut impl Rng) -> IdPlan {
        assert!(ports > 0 && block > 0, "TrialPlan::check refuses a shard without ports");
        let mut permutation: Box<[u16]> = (0..=u16::MAX).collect();
        permutation.shuffle(rng);
        let mut inverse = vec![0; permutation.len()].into_boxed_slice();
        for (n, &id) in permutation.iter().enumerate() {
            inverse[usize::from(id)] = n as u16;
        }
        let offsets = (0..ports).map(|_| rng.random()).collect();
        IdPlan { ports: ports.into(), block: block.into(), permutation, inverse, offsets }
    }

    /// Port and id of the shard's query `k`.
    #[inline]
    pub(crate) fn place(&self, k: u64) -> (usize, u16) {
        let block = k / self.block;
        let port = (block % self.ports) as usize;
        let position = block / self.ports * self.block + k % self.block;
        (port, self.permutation[usize::from((position as u16).wrapping_add(self.offsets[port]))])
    }

    /// The latest of the first `head` queries of the shard that left from `port` with `id`, if
    /// there is one.
    #[inline]
    pub(crate) fn find(&self, port: usize, id: u16, head: u64) -> Option<u64> {
        let low = self.inverse[usize::from(id)].wrapping_sub(self.offsets[port]);
        // No position on this port up to `head` is larger than this.
        let bound = (head / (self.block * self.ports) + 1) * self.block;
        let mut position = bound / IDS * IDS + u64::from(low);
        if position > bound {
            position = position.checked_sub(IDS)?;
        }
        loop {
            let k = position / self.block * self.ports * self.block
                + port as u64 * self.block
                + position % self.block;
            if k < head {
                return Some(k);
            }
            position = position.checked_sub(IDS)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn the_latest_query_is_found(ports in 1u16..70, block in 1u16..64, k in 0u64..40_000_000, ahead in 1u64..60_000, seed: u64) {
            let plan = IdPlan::new(ports, block, &mut StdRng::seed_from_u64(seed));
            let (port, id) = plan.place(k);
            prop_assert!(port < usize::from(ports));
            prop_assert_eq!(plan.find(port, id, k + ahead), Some(k));
            prop_assert_ne!(plan.find(port, id, k), Some(k), "not sent yet");
        }
    }

    #[test]
    fn ids_of_a_port_are_unique_among_65536_in_a_row() {
        let plan = IdPlan::new(3, 5, &mut StdRng::seed_from_u64(1));
        for start in [0, 7_777_777] {
            let mut seen = vec![HashSet::new(); 3];
            for k in start..start + 3 * 65_000 {
                let (port, id) = plan.place(k);
                assert!(seen[port].insert(id), "id {id} twice on port {port}");
            }
        }
    }

    #[test]
    fn strange_ids_find_nothing_before_they_are_sent() {
        let plan = IdPlan::new(2, 1, &mut StdRng::seed_from_u64(2));
        let sent: HashSet<_> = (0..10).map(|k| plan.place(k)).collect();
        for port in 0..2 {
            for id in 0..=u16::MAX {
                assert_eq!(plan.find(port, id, 10).is_some(), sent.contains(&(port, id)));
            }
        }
        assert_eq!(plan.find(0, 0, 0), None);
    }
}
