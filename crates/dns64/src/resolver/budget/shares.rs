//! How many of something each client has, so that one client cannot take the room of all: of
//! questions in flight that it has caused, and of places in which its queries wait.
//!
//! A client is an IPv4 address, an IPv6 /64 or a link-local address. Clients are not remembered one
//! by one: each has one counter in each of two rows, by two hashes of its address, and the lesser
//! one is taken for its number. A client's number is never less than what it has, and more only if
//! others share both of its counters (a count-min sketch: Cormode and Muthukrishnan, "An improved
//! data stream summary", 2005, DOI 10.1016/j.jalgor.2003.12.001).

use rand::Rng;

/// Counters in a row, a power of two.
const WIDTH: usize = 4_096;

/// Names the counters of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters([u16; 2]);

/// Finds the counters of clients, which are the same in all [`Shares`].
pub(super) struct Clients {
    /// Odd factors that nobody outside can foresee.
    factors: [u64; 2],
}

impl Clients {
    /// Draws factors, which no client can foresee.
    pub(super) fn new(rng: &mut impl Rng) -> Clients {
        Clients { factors: [(); 2].map(|()| rng.next_u64() | 1) }
    }

    /// The counters of a client ([`network`](crate::client::limiter::network)).
    #[inline]
    pub(super) fn counters(&self, client: u64) -> Counters {
        // Multiplicative hashing: the upper bits of the product depend on all bits of the address.
        let hash = |factor: u64| {
            (client.wrapping_add(1).wrapping_mul(factor) >> (64 - WIDTH.ilog2())) as u16
        };
        Counters(self.factors.map(hash))
    }
}

/// How many each client has.
pub(super) struct Shares {
    rows: [Box<[u32]>; 2],
}

impl Default for Shares {
    /// Nobody has any.
    fn default() -> Shares {
        Shares { rows: [(); 2].map(|()| vec![0; WIDTH].into()) }
    }
}

impl Shares {
    /// How many a client has, at the most.
    #[inline]
    pub(super) fn of(&self, client: Counters) -> usize {
        let [a, b] = client.0;
        self.rows[0][usize::from(a)].min(self.rows[1][usize::from(b)]) as usize
    }

    /// A client has one more.
    #[inline]
    pub(super) fn enter(&mut self, client: Counters) {
        for (row, at) in self.rows.iter_mut().zip(client.0) {
            row[usize::from(at)] += 1;
        }
    }

    /// A client has one less.
    #[inline]
    pub(super) fn leave(&mut self, client: Counters) {
        for (row, at) in self.rows.iter_mut().zip(client.0) {
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
        let clients = Clients::new(&mut StdRng::seed_from_u64(1));
        let mut shares = Shares::default();
        let greedy = clients.counters(0x0a00_0001);
        for _ in 0..5_000 {
            shares.enter(greedy);
        }
        // Ten thousand others, one question each, in networks beside it and far away.
        let others: Vec<Counters> = (0..10_000)
            .map(|n| clients.counters(if n % 2 == 0 { 0x0a00_0002 + n } else { n << 40 }))
            .collect();
        others.iter().for_each(|other| shares.enter(*other));
        assert!((5_000..5_020).contains(&shares.of(greedy)));
        let mistaken = others.iter().filter(|other| shares.of(**other) > 100).count();
        assert!(mistaken <= 10, "{mistaken} of 10 000 are taken for the greedy one");
        others.iter().for_each(|other| shares.leave(*other));
        (0..5_000).for_each(|_| shares.leave(greedy));
        assert!(shares.rows.iter().flatten().all(|count| *count == 0));
    }
}
