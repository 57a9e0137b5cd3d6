//! Name of each query. Queries for new names use the names in order. If a share of the queries is for cached names,
//! these queries repeat recently used names.
//!
//! ```text
//! name number:   0 … half … 2·half … 2·half+F(i)
//!                └────── window ──────┘ └ next fresh name
//! query i, cached:  F(i) + (C(i) mod half)      F, C: fresh and cached queries before i
//! ```
//!
//! A query for a cached name repeats a name from the working set. The working set is the older half of a window of
//! names that moves along with the new names. If the share of queries for cached names is at most 80 %, such a name was
//! first queried 1.5 to 3 timeouts ago. The name is therefore resolved, and is still in any cache that can store the
//! names of a few seconds of traffic. For shares above 80 %, the working set is as large as for 80 %. Otherwise the
//! working set would shrink to nothing at 100 %, and results at 80 % and 100 % would not be comparable. The names of
//! the first window are resolved before the trial ([`NameSequence::preloaded_count`]).

use std::net::Ipv4Addr;

use units::{Nanos, Qps, QueryIndex, Share};
use wire::name::NameRange;

/// Minimum number of names in the working set. It applies at low rates.
const MIN_HALF: u64 = 500;
/// Lower limit for the share of queries for new names in the computation of the working set's size. If the actual share
/// is smaller, this value is used instead.
const LEAST_FRESH: f64 = 0.2;

/// Returns the number of names that are queried repeatedly, so that their replies come from the cache. The arguments
/// are the share of queries for these names (`cached`), and the rate and timeout of the trial. The number is 0 if no
/// query of the trial is to be answered from the cache.
pub fn working_set(cached: Share, rate: Qps, timeout: Nanos) -> u64 {
    if cached == Share::ZERO {
        return 0;
    }
    let fresh_rate = rate.0 as f64 * (1.0 - cached.fraction()).max(LEAST_FRESH);
    ((fresh_rate * timeout.as_secs_f64() * 1.5).ceil() as u64).max(MIN_HALF)
}

/// Mapping from the index of a query to the name that it asks for.
#[derive(Clone, Debug)]
pub(crate) struct NameSequence {
    range: NameRange,
    first: u64,
    cached: Share,
    half: u64,
    /// For each position in a repeating pattern of 100 queries, the number of preceding queries in the pattern that ask
    /// for cached names.
    cached_before: [u8; 100],
}

impl NameSequence {
    /// Creates the sequence that begins at name number `first` of the block of names `range`. The rate and the timeout
    /// are those of the trial.
    pub(crate) fn new(
        range: NameRange,
        first: u64,
        cached: Share,
        rate: Qps,
        timeout: Nanos,
    ) -> NameSequence {
        let half = working_set(cached, rate, timeout);
        let cached_before = std::array::from_fn(|n| cached.count_below(n as u64) as u8);
        NameSequence { range, first, cached, half, cached_before }
    }

    /// Returns the name of query `i`.
    #[inline]
    pub(crate) fn address(&self, QueryIndex(i): QueryIndex) -> Ipv4Addr {
        let cached_before = i / 100 * u64::from(self.cached.per_hundred())
            + u64::from(self.cached_before[(i % 100) as usize]);
        let fresh_before = i - cached_before;
        let number = if self.cached.selects(i) {
            fresh_before + cached_before % self.half
        } else {
            2 * self.half + fresh_before
        };
        self.range.address(self.first + number)
    }

    /// Returns the number of names that must be resolved before the first query. The number is 0 if no query of the
    /// trial is for a cached name. The names begin with the trial's first name.
    pub(crate) fn preloaded_count(&self) -> u64 {
        2 * self.half
    }

    /// Returns the number of names that a trial of `count` queries uses, including the names resolved before the trial.
    pub(crate) fn names_used(&self, count: u64) -> u64 {
        2 * self.half + count - self.cached.count_below(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    fn sequence(cached: u8, rate: u64) -> NameSequence {
        NameSequence::new(NameRange::ALL, 1000, Share::percent(cached), Qps(rate), Nanos::SECOND)
    }

    fn preloaded(sequence: &NameSequence) -> impl Iterator<Item = Ipv4Addr> + '_ {
        (0..sequence.preloaded_count()).map(|n| sequence.range.address(sequence.first + n))
    }

    #[test]
    fn without_cached_share_every_name_is_new() {
        let sequence = sequence(0, 50_000);
        assert_eq!(sequence.preloaded_count(), 0);
        assert_eq!(sequence.address(QueryIndex(0)), Ipv4Addr::from(1000));
        assert_eq!(sequence.address(QueryIndex(77)), Ipv4Addr::from(1077));
        assert_eq!(sequence.names_used(500), 500);
    }

    #[test]
    fn all_cached_goes_over_a_preloaded_set() {
        let sequence = sequence(100, 50_000);
        let preloaded: Vec<_> = preloaded(&sequence).collect();
        assert!((0..5000).all(|i| preloaded.contains(&sequence.address(QueryIndex(i)))));
        assert_eq!(sequence.names_used(1_000_000), preloaded.len() as u64);
    }

    #[test]
    fn working_set_does_not_shrink_above_80_percent() {
        for (percent, rate, names) in [
            (0, 20_000, 0),
            (20, 20_000, 24_000),
            (80, 20_000, 6_000),
            (99, 20_000, 6_000),
            (100, 20_000, 6_000),
            (80, 1_000, 500),
            (100, 1_000, 500),
        ] {
            let sequence = sequence(percent, rate);
            let cached = |i: &u64| sequence.cached.selects(*i);
            let asked = |i| sequence.address(QueryIndex(i));
            assert_eq!(sequence.half, names, "{percent} % at {rate}");
            if percent == 100 {
                let distinct: HashSet<_> = (0..50_000).filter(cached).map(asked).collect();
                assert_eq!(distinct.len() as u64, names, "{percent} % at {rate}");
            }
        }
    }

    proptest! {
        #[test]
        fn cached_names_were_queried_in_the_right_time_span(percent in 1u8..100, rate in 100u64..3000) {
            let sequence = sequence(percent, rate);
            // Time of the last resolution of each name, counted in queries. Preloading happens at time 0.
            let mut asked: HashMap<Ipv4Addr, u64> = preloaded(&sequence).map(|a| (a, 0)).collect();
            let mut repeats = 0u64;
            let n = 20_000u64;
            for i in 0..n {
                let address = sequence.address(QueryIndex(i));
                if let Some(&when) = asked.get(&address) {
                    repeats += 1;
                    let age = (i - when) as f64 / rate as f64;
                    prop_assert!(when == 0 || age >= 1.5 * 0.98, "query {i} repeats a name of {age} s ago");
                } else {
                    asked.insert(address, i);
                }
            }
            prop_assert_eq!(repeats, Share::percent(percent).count_below(n));
            prop_assert_eq!(asked.len() as u64, sequence.names_used(n));
        }
    }
}
