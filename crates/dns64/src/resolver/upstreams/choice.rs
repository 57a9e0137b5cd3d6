//! Selection of the next upstream.
//!
//! A *route* is the list of the upstreams for a domain. The order [`UpstreamOrder::Listed`] selects the first upstream
//! of the route that is up and has not been queried for this question.
//!
//! With the order [`UpstreamOrder::Fastest`], candidates are the upstreams of a route that are up and have not been
//! queried for this question. The load is distributed by weight among the candidates that are at most 20 ms slower than
//! the fastest candidate. For one query in 64, a candidate is selected by weight alone, so that an upstream that has
//! become fast again is noticed. An upstream that has never been queried counts as the fastest.
//!
//! If every upstream that is up has been queried for this question, an upstream that is marked down is queried next.
//! The upstream whose probe is due earliest is preferred. If these upstreams have been queried too, an upstream is
//! queried again, preferably one that is up and has retries left.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use smallvec::SmallVec;
use units::Nanos;

use crate::config::UpstreamOrder;
use crate::ids::ServerId;

/// An upstream receives part of the load if its round-trip time exceeds that of the fastest upstream by at most this
/// duration.
const LIKE_SPEED: Nanos = Nanos::from_millis(20);
/// Reciprocal of the fraction of queries for which round-trip times are ignored. The upstream for such a query is
/// selected by weight alone, from those that are up and have not been queried for this question.
const EXPLORE: u32 = 64;

/// Properties of an upstream that determine its selection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) server: ServerId,
    /// Weight in the distribution of the load, at least 1.
    pub(super) weight: u32,
    /// Smoothed round-trip time of queries to the upstream.
    pub(super) speed: Nanos,
    /// Time until which the upstream is marked down.
    pub(super) down_until: Nanos,
    /// True if the upstream's retry budget permits another query for the same question.
    pub(super) may_ask_again: bool,
}

/// Selects the upstream for the next query. `route` lists the upstreams for the domain, and `tried` the upstreams that
/// have already been queried.
///
/// # Panics
///
/// Panics if `route` is empty.
pub(super) fn choose(
    route: &[Candidate],
    order: UpstreamOrder,
    tried: &[ServerId],
    now: Nanos,
    rng: &mut StdRng,
) -> ServerId {
    let fresh = |standing: &&Candidate| !tried.contains(&standing.server);
    let up: SmallVec<[&Candidate; 8]> =
        route.iter().filter(fresh).filter(|standing| standing.down_until <= now).collect();
    if let (UpstreamOrder::Listed, Some(first)) = (order, up.first()) {
        return first.server;
    }
    let Some(best) = up.iter().map(|standing| standing.speed).min() else {
        return last_resort(route, tried, now);
    };
    let any = rng.random_ratio(1, EXPLORE);
    by_weight(up.into_iter().filter(|standing| any || standing.speed <= best + LIKE_SPEED), rng)
}

/// Selects a candidate at random, in proportion to the weights.
fn by_weight<'a>(among: impl Iterator<Item = &'a Candidate>, rng: &mut impl Rng) -> ServerId {
    let among: SmallVec<[&Candidate; 8]> = among.collect();
    let mut ticket =
        rng.random_range(0..among.iter().map(|standing| u64::from(standing.weight)).sum::<u64>());
    for standing in &among {
        match ticket.checked_sub(u64::from(standing.weight)) {
            Some(left) => ticket = left,
            None => return standing.server,
        }
    }
    unreachable!("the ticket is less than the sum of all weights")
}

/// Selects an upstream in the case that every upstream that is up has already been queried.
fn last_resort(route: &[Candidate], tried: &[ServerId], now: Nanos) -> ServerId {
    let by_rank = |standing: &&Candidate| (standing.down_until.max(now), !standing.may_ask_again);
    let fresh =
        route.iter().filter(|standing| !tried.contains(&standing.server)).min_by_key(by_rank);
    fresh.or_else(|| route.iter().min_by_key(by_rank)).expect("a route has an upstream").server
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const NOW: Nanos = Nanos::SECOND;

    /// Returns a route. For each upstream, `servers` has the weight, the round-trip time in
    /// milliseconds, the second until which the upstream is marked down, and the retry flag.
    fn route(servers: &[(u32, u64, u64, bool)]) -> Vec<Candidate> {
        let standing =
            |(i, &(weight, ms, down, may_ask_again)): (usize, &(u32, u64, u64, bool))| Candidate {
                server: ServerId(i as u32),
                weight,
                speed: Nanos::from_millis(ms),
                down_until: Nanos(down * Nanos::SECOND.0),
                may_ask_again,
            };
        servers.iter().enumerate().map(standing).collect()
    }

    fn shares(route: &[Candidate], tried: &[u32], times: usize) -> Vec<usize> {
        let mut rng = StdRng::seed_from_u64(1);
        let tried: Vec<ServerId> = tried.iter().copied().map(ServerId).collect();
        let mut shares = vec![0; route.len()];
        for _ in 0..times {
            shares[choose(route, UpstreamOrder::Fastest, &tried, NOW, &mut rng).index()] += 1;
        }
        shares
    }

    #[test]
    fn similar_servers_share_load_slow_ones_are_explored() {
        let route = route(&[(1, 1, 0, true), (3, 15, 0, true), (1_000, 100, 0, true)]);
        let chosen = shares(&route, &[], 64_000);
        assert!((2.8..3.2).contains(&(chosen[1] as f64 / chosen[0] as f64)), "{chosen:?}");
        // One in 64 is selected by weight alone.
        assert!((900..1100).contains(&chosen[2]), "{chosen:?}");
    }

    #[test]
    fn deterministic_choices() {
        let (up, down, longer) = ((1, 1, 0, true), (1, 1, 2, true), (1, 1, 3, true));
        let spent = (1, 1, 0, false);
        for (what, servers, tried, chosen) in [
            ("up before marked down", vec![down, up], vec![], 1),
            ("untried before tried", vec![up, up], vec![0], 1),
            ("marked down before tried", vec![up, down], vec![0], 1),
            ("marked down: the earliest end first", vec![longer, down], vec![], 1),
            ("tried: one with retries left", vec![spent, up], vec![0, 1], 1),
            ("tried: up without retries before marked down", vec![down, spent], vec![0, 1], 1),
            ("the only one", vec![spent], vec![0], 0),
        ] {
            assert_eq!(shares(&route(&servers), &tried, 50)[chosen], 50, "{what}");
        }
    }

    #[test]
    fn listed_upstreams_are_asked_in_their_order() {
        let (fast, slow, down) = ((9, 1, 0, true), (1, 900, 0, true), (1, 1, 2, true));
        let first = |servers: &[(u32, u64, u64, bool)], tried: &[u32]| {
            let tried: Vec<ServerId> = tried.iter().copied().map(ServerId).collect();
            let mut rng = StdRng::seed_from_u64(1);
            choose(&route(servers), UpstreamOrder::Listed, &tried, NOW, &mut rng).index()
        };
        for _ in 0..200 {
            assert_eq!(first(&[slow, fast], &[]), 0);
        }
        assert_eq!(first(&[slow, fast], &[0]), 1, "the first has failed");
        assert_eq!(first(&[down, slow, fast], &[]), 1, "the first is marked down");
        assert_eq!(first(&[down, down], &[0]), 1);
    }
}
