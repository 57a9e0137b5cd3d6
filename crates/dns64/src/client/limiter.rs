//! Rate limits for clients and networks. The generic cell rate algorithm (ITU-T I.371) needs one machine word of
//! memory per client or network. Rates are in queries or octets per second.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use units::Nanos;

use crate::shares::client::ClientId;

/// Maximum number of recorded clients. The least active clients are evicted first.
const CLIENTS: usize = 65_536;

/// Rate limiter, shared by all workers.
pub(crate) struct Limiter {
    /// For each client or network, the time from which it may use its full burst again.
    whole_at: Cache<u64, Arc<AtomicU64>>,
}

impl Limiter {
    pub(crate) fn new() -> Limiter {
        let whole_at = Cache::new(CLIENTS);
        whole_at.reserve(CLIENTS);
        Limiter { whole_at }
    }

    /// True if the client may send another query. Its limit is `rate` queries per second with a burst of `burst`
    /// queries. A rate of 0 means no limit.
    pub(crate) fn admits(&self, client: IpAddr, now: Nanos, rate: u32, burst: u32) -> bool {
        self.grants(network(client), 1, now, rate, burst.max(1))
    }

    /// Deducts `amount` from the allowance of a client or network, and returns true. The allowance grows by `rate`
    /// per second up to `burst`. If the allowance is smaller than `amount`, this function returns false and deducts
    /// nothing. A rate of 0 means no limit.
    pub(crate) fn grants(&self, key: u64, amount: u32, now: Nanos, rate: u32, burst: u32) -> bool {
        if rate == 0 {
            return true;
        }
        let slot = self.whole_at.get(&key).unwrap_or_else(|| {
            let slot = Arc::new(AtomicU64::new(0));
            self.whole_at.insert(key, Arc::clone(&slot));
            slot
        });
        let time_for = |amount: u32| u64::from(amount) * Nanos::SECOND.0 / u64::from(rate);
        let (cost, tolerance) = (time_for(amount), time_for(burst));
        let take = |whole_at: u64| {
            let next = whole_at.max(now.0) + cost;
            (next <= now.0 + tolerance).then_some(next)
        };
        slot.try_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Returns the identifier of a client, as a number ([`ClientId`]).
pub(crate) fn network(client: IpAddr) -> u64 {
    ClientId::from_address(client).0
}

/// Returns the identifier of the client's site: an IPv4 /24, an IPv6 /56, or a link-local address. Replies are
/// limited per site, because replies to forged source addresses may flood a whole site.
pub(crate) fn wide_network(client: IpAddr) -> u64 {
    ClientId::from_address(client).site()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_42_a_client_has_its_rate_and_its_burst() {
        let limiter = Limiter::new();
        let (one, other): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let at = |ms| Nanos::SECOND + Nanos::from_millis(ms);
        let admitted = |client, ms, tries| {
            (0..tries).filter(|_| limiter.admits(client, at(ms), 10, 5)).count()
        };
        assert_eq!(admitted(one, 0, 100), 5);
        assert_eq!(admitted(one, 100, 100), 1);
        assert_eq!(admitted(other, 100, 3), 3);
        assert_eq!(admitted(one, 10_000, 100), 5);
        assert!((0..1000).all(|_| limiter.admits(one, at(0), 0, 0)));
    }

    #[test]
    fn item_42_octets_are_granted_as_the_rate_allows() {
        let limiter = Limiter::new();
        let granted = |ms, amount, tries| {
            let now = Nanos::SECOND + Nanos::from_millis(ms);
            (0..tries).filter(|_| limiter.grants(7, amount, now, 1_000, 5_000)).count()
        };
        assert_eq!(granted(0, 5_001, 1), 0, "more than the burst");
        assert_eq!(granted(0, 500, 100), 10);
        // A refused request takes nothing from the allowance, so a smaller amount can still be granted.
        assert_eq!((granted(100, 101, 9), granted(100, 100, 9)), (0, 1));
        assert_eq!(granted(60_100, 500, 100), 10, "an allowance is never above the burst");
    }

    #[test]
    fn item_42_an_ipv6_client_is_its_network() {
        let limiter = Limiter::new();
        let host = |n: u16| IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, n]);
        assert_eq!((0..10).filter(|&n| limiter.admits(host(n), Nanos::SECOND, 1, 4)).count(), 4);
    }
}
