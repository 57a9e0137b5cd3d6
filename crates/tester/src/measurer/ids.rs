//! Mapping between queries and their combinations of source port and message id, without a table of outstanding
//! queries.
//!
//! ```text
//! query k of the trial ─► id = π(k mod M)                                       M = 65 521
//!
//! k = index of query n of a sender/receiver pair
//! n ─► round q = n div M, position r = n mod M in it ─► block b = r div B ─► port (b + q) mod P
//! ```
//!
//! The permutation π maps each number below the prime M to a different random 16-bit id. In a trial with N pairs of
//! threads, each pair sends every N-th query of the trial. N and M are coprime, so M consecutive queries of a pair have
//! M different ids. In the next M queries of the pair, each id is used on the next port. If the pair has P ports, P·M
//! consecutive queries therefore have P·M different combinations of port and id. Both mappings can be inverted, so port
//! and id of a reply identify its query.
//!
//! The id of a query depends only on k and the seed, not on the number of testers and threads that share the trial.
//!
//! A block of B queries is sent together from one port. The next block is sent from the next port.

use method::schedule::Part;
use rand::Rng;
use rand::seq::SliceRandom;
use units::QueryIndex;

/// Number of ids in use (M): the largest prime below 2¹⁶.
pub(super) const IDS: u64 = 65_521;

/// Blocks: groups of queries that a pair of threads sends together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    len: u64,
    /// Number of blocks in a round of M (65 521) queries. The last block of a round may be shorter than the others.
    per_round: u64,
}

impl Blocks {
    /// Creates blocks of `len` queries each; `len` is at least 1.
    pub(super) fn new(len: u16) -> Blocks {
        let len = u64::from(len);
        Blocks { len, per_round: IDS.div_ceil(len) }
    }

    /// Returns the first query after the block that contains the pair's query `n`.
    #[inline]
    pub(super) fn end(self, n: u64) -> u64 {
        let position = n % IDS;
        n - position + ((position / self.len + 1) * self.len).min(IDS)
    }

    /// Returns the block index, counted from the trial's start, for the pair's query `n`.
    #[inline]
    pub(super) fn number(self, n: u64) -> u64 {
        n / IDS * self.per_round + n % IDS / self.len
    }

    /// Returns the number of blocks for the first `count` queries of a pair.
    pub(super) fn of(self, count: u64) -> u64 {
        count.checked_sub(1).map_or(0, |last| self.number(last) + 1)
    }
}

/// The ids of a trial's queries.
pub(super) struct Ids {
    /// For each index of a query in the trial, taken modulo M (65 521), the message id of the query.
    forth: Box<[u16]>,
    /// For each message id, the index modulo M (65 521) of the queries that have this id; [`NONE`] for unused ids.
    back: Box<[u16]>,
}

/// Value in [`Ids::back`] for unused ids. It is above all valid values, which are below M (65 521).
const NONE: u16 = u16::MAX;

impl Ids {
    /// Creates a random mapping from queries to message ids.
    pub(super) fn new(rng: &mut impl Rng) -> Ids {
        let mut forth: Vec<u16> = (0..=u16::MAX).collect();
        forth.shuffle(rng);
        forth.truncate(IDS as usize);
        let mut back = vec![NONE; 1 << 16].into_boxed_slice();
        for (position, &id) in (0..).zip(&forth) {
            back[usize::from(id)] = position;
        }
        Ids { forth: forth.into(), back }
    }

    /// Returns the id of the trial's query `k`.
    #[inline]
    pub(super) fn of(&self, QueryIndex(k): QueryIndex) -> u16 {
        self.forth[(k % IDS) as usize]
    }

    /// Returns the index, modulo M (65 521), of the trial's queries that have this id; `None` if the id is not used.
    #[inline]
    fn position(&self, id: u16) -> Option<u64> {
        Some(self.back[usize::from(id)]).filter(|&position| position != NONE).map(u64::from)
    }
}

/// Message ids and source ports of the queries that a pair of threads sends.
pub(crate) struct IdPlan {
    ids: std::sync::Arc<Ids>,
    part: Part,
    ports: u64,
    blocks: Blocks,
    /// Constants that convert the index k of a query in the trial to its number n within the pair, both modulo M: n ≡
    /// (k − first)·inverse.
    first: u64,
    inverse: u64,
}

impl IdPlan {
    /// Creates the plan of ids and ports for the pair that sends `part` of a trial from `ports` source ports.
    ///
    /// # Panics
    /// Panics if `ports` is 0, or if the distance between the indices of consecutive queries in `part` is a multiple of
    /// M (65 521). `TrialPlan::check` rejects such plans.
    pub(super) fn new(ids: std::sync::Arc<Ids>, part: Part, ports: u16, blocks: Blocks) -> IdPlan {
        assert!(ports > 0, "TrialPlan::check rejects a thread without ports");
        let (first, step) = (part.index(0).0 % IDS, (part.index(1).0 - part.index(0).0) % IDS);
        let inverse = inverse(step).expect("TrialPlan::check rejects too many testers");
        IdPlan { ids, part, ports: ports.into(), blocks, first, inverse }
    }

    /// Returns the port index and the id of the pair's query `n`.
    #[inline]
    pub(crate) fn place(&self, n: u64) -> (usize, u16) {
        (self.port(n), self.ids.of(self.part.index(n)))
    }

    #[inline]
    fn port(&self, n: u64) -> usize {
        ((n % IDS / self.blocks.len + n / IDS) % self.ports) as usize
    }

    /// Returns the index of the first query after the block that contains query `n`.
    #[inline]
    pub(super) fn block_end(&self, n: u64) -> u64 {
        self.blocks.end(n)
    }

    /// Returns the latest query that has the source port `port` and the message id `id`, among the first `head` queries
    /// of the pair. Returns `None` if there is none.
    #[inline]
    pub(crate) fn find(&self, port: usize, id: u16, head: u64) -> Option<u64> {
        let k = self.ids.position(id)?;
        let position = (k + IDS - self.first) % IDS * self.inverse % IDS;
        // From the last round that reached this position, go back to the last round in which this port was used at this
        // position.
        let last = head.checked_sub(position + 1)? / IDS;
        let off = (position / self.blocks.len + last + self.ports - port as u64) % self.ports;
        Some(last.checked_sub(off)? * IDS + position)
    }
}

/// Returns the inverse of `step` modulo M; `None` for 0. By Fermat's little theorem, step^(M−1) = 1 modulo the prime M,
/// so the inverse is step^(M−2).
fn inverse(step: u64) -> Option<u64> {
    let mut power = IDS - 2;
    let (mut base, mut product) = (step % IDS, 1);
    while power > 0 {
        if power % 2 == 1 {
            product = product * base % IDS;
        }
        base = base * base % IDS;
        power /= 2;
    }
    (!step.is_multiple_of(IDS)).then_some(product)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use method::schedule::Schedule;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::collections::HashSet;
    use std::sync::Arc;
    use units::Qps;

    /// Returns the plan of ids and ports for pair number `number` of a trial with `of` pairs.
    pub(in super::super) fn plan_of(
        (number, of): (u64, u64),
        ports: u16,
        block: u16,
        seed: u64,
    ) -> IdPlan {
        let ids = Arc::new(Ids::new(&mut StdRng::seed_from_u64(seed)));
        let part = Schedule::with_count(Qps(1), u64::MAX / 2).part(number, of);
        IdPlan::new(ids, part, ports, Blocks::new(block))
    }

    #[test]
    fn ids_take_turns_modulo_a_prime() {
        let is_prime = |n: u64| (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        assert!(is_prime(IDS) && !(IDS + 1..1 << 16).any(is_prime));
        for step in [1, 2, 3, 1000, IDS - 1, IDS + 7] {
            assert_eq!(inverse(step).unwrap() * (step % IDS) % IDS, 1, "{step}");
        }
        assert_eq!((inverse(0), inverse(IDS)), (None, None));
    }

    proptest! {
        #[test]
        fn the_latest_query_is_found(of in 1u64..40, number in 0u64..40, ports in 1u16..70, block in 1u16..=64, n in 0u64..40_000_000, ahead in 1u64..60_000, seed: u64) {
            let plan = plan_of((number % of, of), ports, block, seed);
            let (port, id) = plan.place(n);
            prop_assert!(port < usize::from(ports));
            prop_assert_eq!(plan.find(port, id, n + ahead), Some(n));
            prop_assert_ne!(plan.find(port, id, n), Some(n), "not sent yet");
            // The id is used on all other ports before it is used on this port again.
            let turn = IDS * u64::from(ports);
            prop_assert_eq!(plan.find(port, id, n), n.checked_sub(turn));
            prop_assert_eq!(plan.find(port, id, n + turn), Some(n));
            prop_assert_eq!(plan.find(port, id, n + turn + 1), Some(n + turn));
        }

        #[test]
        fn ids_follow_from_query_and_seed_alone(of in 1u64..9, ports in 1u16..9, block in 1u16..9, k in 0u64..1_000_000, seed: u64) {
            let alone = plan_of((0, 1), 64, 1, seed).place(k).1;
            let shared = plan_of((k % of, of), ports, block, seed).place(k / of).1;
            prop_assert_eq!(alone, shared);
            prop_assert_eq!(plan_of((0, 1), 64, 1, seed).place(k + IDS).1, alone);
        }

        #[test]
        fn consecutive_blocks_use_consecutive_ports(ports in 2u16..9, block in 1u16..=64, n in 0u64..300_000) {
            let (plan, blocks) = (plan_of((0, 1), ports, block, 1), Blocks::new(block));
            let end = plan.block_end(n);
            prop_assert!(end > n && end - n <= block.into());
            let ports_of: HashSet<usize> = (n..end).map(|n| plan.place(n).0).collect();
            prop_assert_eq!(ports_of.len(), 1);
            prop_assert_eq!(blocks.number(end), blocks.number(n) + 1);
            prop_assert_eq!((blocks.of(end), blocks.of(end + 1)), (blocks.number(n) + 1, blocks.number(n) + 2));
            if end % IDS != 0 {
                prop_assert_eq!(plan.place(end).0, (plan.place(n).0 + 1) % usize::from(ports));
            }
        }
    }

    #[test]
    fn port_and_id_are_unique_within_a_full_cycle() {
        for (of, ports, block) in [(1, 1, 1), (3, 3, 5), (2, 4, 64)] {
            let plan = plan_of((of - 1, of), ports, block, 1);
            for start in [0, 7_777_777] {
                let all: HashSet<_> =
                    (start..start + IDS * u64::from(ports)).map(|n| plan.place(n)).collect();
                assert_eq!(all.len() as u64, IDS * u64::from(ports), "{of} {ports} {block}");
            }
        }
    }

    #[test]
    fn unused_ids_match_no_query() {
        let plan = plan_of((1, 3), 2, 1, 2);
        let sent: HashSet<_> = (0..10).map(|n| plan.place(n)).collect();
        for port in 0..2 {
            for id in 0..=u16::MAX {
                assert_eq!(plan.find(port, id, 10).is_some(), sent.contains(&(port, id)));
            }
        }
        assert_eq!(plan.find(0, 0, 0), None);
    }
}
