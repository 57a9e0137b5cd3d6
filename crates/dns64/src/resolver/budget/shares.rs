//! How many questions in flight each client has caused, so that one client cannot take the room of all.
//!
//! A client is an IPv4 address or an IPv6 /64. Clients are not remembered one by one: each has one counter in each of two rows,
//! by two hashes of its address, and the lesser one is taken for its number. A client's number is never less than what it has
//! caused, and more only if others share both of its counters (a count-min sketch: Cormode and Muthukrishnan, "An improved data
//! stream summary", 2005, DOI 10.1016/j.jalgor.2003.12.001).

use rand::Rng;

/// Counters in a row, a power of two.
const WIDTH: usize = 4_096;

/// Names the counters of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters([u16; 2]);

/// Questions in flight, by client.
pub(super) struct Shares {
    rows: [Box<[u32]>; 2],
    /// Odd factors that nobody outside can foresee.
    factors: [u64; 2],
}

impl Shares {
    /// Nobody has caused any.
    pub(super) fn new(rng: &mut impl Rng) -> Shares {
        Shares { rows: [(); 2].map(|()| vec![0; WIDTH].into()), factors: [(); 2].map(|()| rng.next_u64() | 1) }
    }

    /// The counters of a client ([`network`](crate::client::limiter::network)).
    #[inline]
    pub(super) fn of(&self, client: u64) -> Counters {
        // Multiplicative hashing: the upper bits of the product depend on all bits of the address.
        let hash = |factor: u64| (client.wrapping_add(1).wrapping_mul(factor) >> (64 - WIDTH.ilog2())) as u16;
        Counters(self.factors.map(hash))
    }

    /// How many questions in flight a client has caused, at the most.
    #[inline]
    pub(super) fn questions(&self, of: Counters) -> usize {
        let [a, b] = of.0;
        self.rows[0][usize::from(a)].min(self.rows[1][usize::from(b)]) as usize
    }

    /// A client has caused one more.
    #[inline]
    pub(super) fn enter(&mut self, of: Counters) {
        for (row, at) in self.rows.iter_mut().zip(of.0) {
            row[usize::from(at)] += 1;
        }
    }

    /// One that a client has caused is in flight no more.
    #[inline]
    pub(super) fn leave(&mut self, of: Counters) {
        for (row, at) in self.rows.iter_mut().zip(of.0) {
            row[usize::from(at)] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn a_client_that_causes_many_is_told_from_the_others() {
        let mut shares = Shares::new(&mut StdRng::seed_from_u64(1));
        let greedy = shares.of(0x0a00_0001);
        for _ in 0..5_000 {
            shares.enter(greedy);
        }
        // Ten thousand others, one question each, in networks beside it and far away.
        let others: Vec<Counters> =
            (0..10_000).map(|n| shares.of(if n % 2 == 0 { 0x0a00_0002 + n } else { n << 40 })).collect();
        others.iter().for_each(|other| shares.enter(*other));
        assert!((5_000..5_020).contains(&shares.questions(greedy)));
        let mistaken = others.iter().filter(|other| shares.questions(**other) > 100).count();
        assert!(mistaken <= 10, "{mistaken} of 10 000 are taken for the greedy one");
        others.iter().for_each(|other| shares.leave(*other));
        (0..5_000).for_each(|_| shares.leave(greedy));
        assert!(shares.rows.iter().flatten().all(|count| *count == 0));
    }
}
