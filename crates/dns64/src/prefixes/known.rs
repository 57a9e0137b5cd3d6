//! Discovered prefixes with their announcers and expiry times.
//!
//! ```text
//! upstream's ipv4only.arpa ── all prefixes of an answer, for its TTL ─┐
//!                                                                     ├─► Known ─► prefixes with their expiry
//! router's advertisements ─── each prefix, for its lifetime ──────────┘
//! ```
//!
//! A prefix remains known until it has expired or been withdrawn for each of its announcers.

use std::fmt;
use std::net::Ipv6Addr;

use units::Nanos;

use super::advertisement::AnnouncedPrefix;
use crate::translation::prefix::Prefix;

/// Maximum number of recorded prefixes. A prefix with several announcers counts once per announcer. Real networks have
/// far fewer prefixes. Prefixes above this number are ignored, because an announcer may be malicious.
const MOST: usize = 64;

/// Source that announced a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Announcer {
    /// The upstreams, which announce prefixes in answers for `ipv4only.arpa` (RFC 7050).
    Upstreams,
    /// A router on a link, which announces prefixes in Router Advertisements (RFC 8781).
    Router {
        /// Name of the interface on which the router announced the prefix.
        interface: String,
        /// The router's link-local address.
        address: Ipv6Addr,
    },
}

impl fmt::Display for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Announcer::Upstreams => f.write_str("upstreams"),
            Announcer::Router { interface, address } => write!(f, "{address}%{interface}"),
        }
    }
}

/// A prefix with one of its announcers and an expiry time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    prefix: Prefix,
    by: Announcer,
    until: Nanos,
}

/// Prefixes with their announcers, in order of discovery.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPrefixes(Vec<Entry>);

impl KnownPrefixes {
    /// Replaces the upstreams' prefixes with `prefixes`, which expire after `ttl`. Returns true if the set of known
    /// prefixes changes.
    pub(crate) fn answered(&mut self, prefixes: &[Prefix], ttl: Nanos, now: Nanos) -> bool {
        let before = self.prefixes(now);
        let gone =
            |entry: &Entry| entry.by == Announcer::Upstreams && !prefixes.contains(&entry.prefix);
        self.0.retain(|entry| !gone(entry));
        for &prefix in prefixes {
            self.put(prefix, Announcer::Upstreams, now + ttl);
        }
        self.prefixes(now) != before
    }

    /// Records prefixes that a router announced or withdrew. Other prefixes of this router remain
    /// known (RFC 8781 §5). Returns true if the set of known prefixes changes.
    pub(crate) fn announced(
        &mut self,
        by: &Announcer,
        announced: &[AnnouncedPrefix],
        now: Nanos,
    ) -> bool {
        let before = self.prefixes(now);
        for one in announced {
            if one.lifetime.is_zero() {
                self.0.retain(|entry| entry.prefix != one.prefix || entry.by != *by);
            } else {
                let lifetime = Nanos(u64::try_from(one.lifetime.as_nanos()).unwrap_or(u64::MAX));
                self.put(one.prefix, by.clone(), now + lifetime);
            }
        }
        self.prefixes(now) != before
    }

    fn put(&mut self, prefix: Prefix, by: Announcer, until: Nanos) {
        let is_full = self.0.len() >= MOST;
        match self.0.iter_mut().find(|entry| entry.prefix == prefix && entry.by == by) {
            Some(entry) => entry.until = until,
            None if is_full => (),
            None => self.0.push(Entry { prefix, by, until }),
        }
    }

    /// Removes expired entries. Returns true if at least one entry was removed.
    pub(crate) fn expire(&mut self, now: Nanos) -> bool {
        let before = self.0.len();
        self.0.retain(|entry| entry.until > now);
        self.0.len() != before
    }

    /// Returns the earliest expiry time of all entries.
    pub(crate) fn next_end(&self) -> Option<Nanos> {
        self.0.iter().map(|entry| entry.until).min()
    }

    /// Removes the prefixes of routers on interfaces that are not in `interfaces`.
    pub(crate) fn listen_on(&mut self, interfaces: &[String]) {
        self.0.retain(|entry| match &entry.by {
            Announcer::Upstreams => true,
            Announcer::Router { interface, .. } => interfaces.contains(interface),
        });
    }

    /// Returns the known prefixes without duplicates, in order of discovery.
    pub(crate) fn prefixes(&self, now: Nanos) -> Vec<Prefix> {
        let mut prefixes: Vec<Prefix> = Vec::new();
        for entry in self.0.iter().filter(|entry| entry.until > now) {
            if !prefixes.contains(&entry.prefix) {
                prefixes.push(entry.prefix);
            }
        }
        prefixes
    }

    /// Returns the expiry time of a prefix. If the prefix has several announcers, returns the latest of their expiry
    /// times.
    pub(crate) fn until(&self, prefix: Prefix) -> Option<Nanos> {
        self.0.iter().filter(|entry| entry.prefix == prefix).map(|entry| entry.until).max()
    }

    /// True if at least one prefix from a router on this interface is known.
    pub(crate) fn has_router_on(&self, interface: &str, now: Nanos) -> bool {
        let is_there = |by: &Announcer| match by {
            Announcer::Upstreams => false,
            Announcer::Router { interface: other, .. } => other == interface,
        };
        self.0.iter().any(|entry| entry.until > now && is_there(&entry.by))
    }

    /// Returns the announcers of a prefix.
    pub(crate) fn announcers(&self, prefix: Prefix) -> impl Iterator<Item = &Announcer> {
        self.0.iter().filter(move |entry| entry.prefix == prefix).map(|entry| &entry.by)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn router(n: u16) -> Announcer {
        let address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n);
        Announcer::Router { interface: "eth0".into(), address }
    }

    const fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_answer_replaces_the_one_before_it() {
        let (one, other) = (prefix("2001:db8:1::/96"), prefix("2001:db8:2::/96"));
        let mut known = KnownPrefixes::default();
        assert!(known.answered(&[one, other], at(60), at(0)));
        assert!(!known.answered(&[one, other], at(60), at(30)), "only for longer");
        assert_eq!((known.until(one), known.next_end()), (Some(at(90)), Some(at(90))));
        assert!(known.answered(&[other], at(60), at(40)));
        assert_eq!(known.prefixes(at(40)), [other]);
        assert!(
            known.prefixes(at(100)).is_empty() && known.expire(at(100)) && !known.expire(at(100))
        );
    }

    #[test]
    fn a_prefix_is_known_while_a_router_announces_it() {
        let prefix = prefix("64:ff9b::/96");
        let for_seconds =
            |seconds| [AnnouncedPrefix { prefix, lifetime: Duration::from_secs(seconds) }];
        let mut known = KnownPrefixes::default();
        assert!(known.announced(&router(1), &for_seconds(600), at(0)));
        assert!(!known.announced(&router(2), &for_seconds(1_800), at(0)));
        assert!(!known.announced(&router(2), &[], at(10)), "an advertisement without the option");
        assert!(!known.announced(&router(1), &for_seconds(0), at(20)), "the other one stays");
        assert_eq!(known.announcers(prefix).collect::<Vec<_>>(), [&router(2)]);
        assert!(known.announced(&router(2), &for_seconds(0), at(30)));
        assert!(known.prefixes(at(30)).is_empty());
        // Expiry also removes a prefix, and so does reloading a configuration without the
        // interface.
        assert!(known.announced(&router(1), &for_seconds(8), at(40)) && known.expire(at(48)));
        assert!(known.announced(&router(1), &for_seconds(8), at(50)));
        known.answered(&[prefix], at(60), at(50));
        assert!(known.has_router_on("eth0", at(57)) && !known.has_router_on("eth1", at(50)));
        assert!(
            !known.has_router_on("eth0", at(58)),
            "upstream prefixes do not count as a router's"
        );
        known.answered(&[], at(0), at(50));
        known.listen_on(&["eth0".into()]);
        assert_eq!(known.prefixes(at(50)), [prefix]);
        known.listen_on(&["eth1".into()]);
        assert!(known.prefixes(at(50)).is_empty());
    }

    #[test]
    fn the_number_of_prefixes_is_bounded() {
        let mut known = KnownPrefixes::default();
        for n in 0..10_000_u16 {
            let prefix = Prefix::new(Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 0), 96).unwrap();
            let lifetime = Duration::from_secs(600);
            known.announced(&router(n), &[AnnouncedPrefix { prefix, lifetime }], at(0));
        }
        assert_eq!(known.prefixes(at(0)).len(), MOST);
    }
}
