//! Source addresses of the queries, if there are several, as recommended by RFC 4814 §4. Servers, network cards and
//! routers distribute packets to sockets and queues by a hash of addresses and ports. A few flows would use only some
//! of these sockets and queues.
//!
//! ```text
//! query n of a pair ─► block b, counted from the start ─► address (b + b/L) mod N     L = lcm(P, N)
//! ```
//!
//! Queries that are sent together form a block. They share the port and the address (see `ids`), because the kernel
//! sends them as one packet. With N addresses, N consecutive blocks have N different addresses. The blocks use the P
//! ports in turn. The order changes only at the end of a round, when all M message ids have been used once. P·N
//! consecutive blocks of a round use each port with each address once. The position of address number n (from 0) in the
//! prefix is (n + 1)·s modulo the size of the prefix. Here s is the size of the prefix divided by the golden ratio,
//! rounded down and made odd. This distributes any number of different addresses evenly over the prefix, and their last
//! bits vary too. The port and the address of a query follow from its index.
//!
//! The addresses need no interface: a route of type local makes a whole prefix local to this host. Each port has one
//! socket, bound to all addresses of this host. The source address is selected for each block (`IP_PKTINFO`,
//! `IPV6_PKTINFO`), and the destination address is reported for each received datagram.

use std::net::{IpAddr, SocketAddr};

use net::batch::Peer;
use net::neighbour::first_not_local;
use serde::{Deserialize, Serialize};

use super::error::TrialError;
use super::ids::Blocks;
use super::plan::sources::{SourceAddresses, SourceError};
use super::plan::{PlanError, TrialPlan};

impl TrialPlan {
    /// Checks that the source addresses are local to this host according to the kernel's routes. No packet is sent.
    ///
    /// # Errors
    /// Returns a [`SourceError`] within a plan error if an address is not local. Returns [`TrialError::Interface`] if
    /// the kernel does not report its routes.
    pub fn check_sources(&self) -> Result<(), TrialError> {
        let Some(given) = self.source_addresses else { return Ok(()) };
        given.check(self.server).map_err(PlanError::from)?;
        let at = |source| TrialError::Interface { server: self.server, source };
        match first_not_local(given.addresses()).map_err(at)? {
            None => Ok(()),
            Some(address) => Err(PlanError::from(SourceError::NotLocal { given, address }).into()),
        }
    }

    /// Returns the server's address and port, with an IPv4-mapped IPv6 address converted to IPv4.
    pub(super) fn canonical_server(&self) -> SocketAddr {
        match self.server.ip().to_canonical() {
            IpAddr::V4(address) => SocketAddr::new(address.into(), self.server.port()),
            IpAddr::V6(_) => self.server,
        }
    }
}

/// Source address of each query that a pair of threads sends.
pub(super) struct SourcePlan {
    server: SocketAddr,
    addresses: Box<[IpAddr]>,
    blocks: Blocks,
    /// Number of blocks after which the combinations of port and address repeat (L in the module's diagram).
    cycle: u64,
}

impl SourcePlan {
    /// Creates the source address plan for a pair of threads with `ports` source ports (at least 1). `blocks` divides
    /// the queries of the pair into blocks of queries that are sent together.
    pub(super) fn new(
        plan: &TrialPlan,
        sources: SourceAddresses,
        ports: usize,
        blocks: Blocks,
    ) -> SourcePlan {
        let (ports, count) = (ports as u64, u64::from(sources.count()));
        SourcePlan {
            server: plan.canonical_server(),
            addresses: sources.addresses().collect(),
            blocks,
            cycle: ports / gcd(ports, count) * count,
        }
    }

    /// Returns the source address of query `k` of the pair of threads.
    #[inline]
    fn address(&self, k: u64) -> IpAddr {
        let block = self.blocks.number(k);
        self.addresses[((block + block / self.cycle) % self.addresses.len() as u64) as usize]
    }

    /// Returns the server's address, and the source address of query `k` of the pair of threads.
    #[inline]
    pub(super) fn ends(&self, k: u64) -> Peer {
        Peer { address: self.server, local: Some(self.address(k)) }
    }

    /// Returns true if `peer` is the address and port of the queried server (RFC 5452 §9.1).
    #[inline]
    pub(super) fn is_servers(&self, peer: Option<Peer>) -> bool {
        let ends = |address: SocketAddr| (address.ip(), address.port());
        peer.is_some_and(|peer| ends(peer.address) == ends(self.server))
    }

    /// Returns true if the destination address of a datagram received from `peer` is the source address of query `k`
    /// (RFC 5452 §9.1).
    #[inline]
    pub(super) fn is_back(&self, k: u64, peer: Option<Peer>) -> bool {
        peer.and_then(|peer| peer.local) == Some(self.address(k))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Prefix and number of the source addresses of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SourcesUsed {
    /// Prefix of the source addresses, such as `2001:2:0:ff::/64`.
    pub prefix: String,
    /// Number of different source addresses of the queries, including addresses from which sending failed.
    pub count: u32,
}

impl SourcesUsed {
    /// Computes the prefix and number of the source addresses that a trial used, if its blocks consist of `block`
    /// queries. Returns `None` if the kernel selected the address.
    ///
    /// `sent` is the number of queries that each pair sent or tried to send.
    pub(super) fn of(
        plan: &TrialPlan,
        block: u16,
        sent: impl Iterator<Item = u64>,
    ) -> Option<SourcesUsed> {
        let given = plan.source_addresses?;
        // All pairs begin with the same address, and continue in the same order.
        let blocks = Blocks::new(block).of(sent.max().unwrap_or(0));
        let count = blocks.min(given.count().into()) as u32;
        Some(SourcesUsed { prefix: given.prefix().to_string(), count })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ipnet::IpNet;

    use super::super::plan::sources::{DEFAULT_ADDRESSES, MAX_ADDRESSES};
    use super::*;
    use crate::measurer::ids::tests::plan_of;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use units::Qps;

    fn sources(text: &str) -> SourceAddresses {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn plan(server: &str, from: &str) -> TrialPlan {
        TrialPlan {
            source_addresses: Some(sources(from)),
            ..TrialPlan::new(server.parse().unwrap(), Qps(1000))
        }
    }

    #[test]
    fn a_prefix_has_the_default_or_given_address_count() {
        for (text, count, first, last) in [
            ("198.19.0.0/24", 256, "198.19.0.159", "198.19.0.0"),
            ("198.19.0.0/30", 4, "198.19.0.3", "198.19.0.0"),
            ("198.19.0.7/32", 1, "198.19.0.7", "198.19.0.7"),
            ("127.0.0.0/8,3", 3, "127.158.55.121", "127.218.166.107"),
            (
                "2001:2:0:ff::/64",
                256,
                "2001:2:0:ff:9e37:79b9:7f4a:7c15",
                "2001:2:0:ff:3779:b97f:4a7c:1500",
            ),
            ("2001:db8::1/128", 1, "2001:db8::1", "2001:db8::1"),
        ] {
            let sources = sources(text);
            let all: Vec<String> = sources.addresses().map(|a| a.to_string()).collect();
            assert_eq!((sources.count(), all.len()), (count, count as usize), "{text}");
            assert_eq!((all[0].as_str(), all[all.len() - 1].as_str()), (first, last), "{text}");
            assert_eq!(sources.first().to_string(), first);
            assert_eq!(sources.to_string(), text);
        }
        assert_eq!(sources("198.19.0.0/16,256").to_string(), "198.19.0.0/16", "the default number");
        assert_eq!(sources("2001:2::/48,65536").count(), MAX_ADDRESSES);
        assert_eq!(sources("::/0").count(), DEFAULT_ADDRESSES);
    }

    #[test]
    fn bad_prefixes_are_rejected_with_an_example_route() {
        for (text, why, route) in [
            ("198.19.0.0/33", "0 to 32", "ip route add local 198.19.0.0/24 dev lo"),
            ("2001:2::/129", "0 to 128", "ip -6 route add local 2001:2:0:ff::/64 dev lo"),
            ("198.19.0.0/300", "too long", "ip route add local 198.19.0.0/24 dev lo"),
            ("198.19.3.9/24", "beyond", "ip route add local 198.19.3.0/24 dev lo"),
            ("2001:2::9/64", "beyond", "ip -6 route add local 2001:2::/64 dev lo"),
            ("198.19.0.0", "length is missing", "ip route add local 198.19.0.0/24 dev lo"),
            ("2001:2::", "length is missing", "ip -6 route add local 2001:2:0:ff::/64 dev lo"),
            ("198.19/16", "not an IPv4 or IPv6", "ip route add local 198.19.0.0/24 dev lo"),
            ("198.19.0.0/x", "not a number", "ip route add local 198.19.0.0/24 dev lo"),
            ("198.19.0.0/24,257", "1 to 256", "ip route add local 198.19.0.0/24 dev lo"),
            ("198.19.0.0/24,0", "1 to 256", "ip route add local 198.19.0.0/24 dev lo"),
            ("2001:2::/48,65537", "1 to 65536", "ip -6 route add local 2001:2::/48 dev lo"),
            ("198.19.0.0/24,all", "1 to 256", "ip route add local 198.19.0.0/24 dev lo"),
        ] {
            let error = text.parse::<SourceAddresses>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(route), "{error}");
        }
    }

    #[test]
    fn foreign_source_addresses_are_rejected_early() {
        let fault = |server: &str, from: &str| plan(server, from).check_sources().unwrap_err();
        for (server, from, words, line) in [
            ("[::1]:9", "127.1.0.0/24", "IPv6", "ip -6 route add local 2001:2:0:ff::/64 dev lo"),
            ("127.0.0.1:9", "2001:db8::/64", "IPv4", "ip route add local 198.19.0.0/24 dev lo"),
            ("127.0.0.1:9", "192.0.2.0/24", "192.0.2.", "ip route add local 192.0.2.0/24 dev lo"),
            (
                "[::1]:9",
                "2001:db8::/64",
                "2001:db8::",
                "ip -6 route add local 2001:db8::/64 dev lo",
            ),
            // The prefix adjacent to 127.0.0.0/8.
            ("127.0.0.1:9", "126.0.0.0/7", "126.", "ip route add local 126.0.0.0/7 dev lo"),
        ] {
            let error = fault(server, from);
            assert!(matches!(error, TrialError::Plan(PlanError::Source(_))), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(words) && text.contains(line), "{text}");
        }
        for server in ["127.0.0.1:9", "[::ffff:127.0.0.1]:9"] {
            plan(server, "127.1.0.0/24").check_sources().unwrap();
            plan(server, "127.0.0.0/8").check_sources().unwrap();
        }
        plan("[::1]:9", "::1/128").check_sources().unwrap();
        let wrong = plan("[::1]:9", "127.1.0.0/24").check();
        assert!(matches!(wrong, Err(PlanError::Source(SourceError::Family { .. }))), "{wrong:?}");
    }

    #[test]
    fn addresses_in_use_are_counted() {
        let used = |from: &str, block, sent: &[u64]| {
            SourcesUsed::of(&plan("127.0.0.1:9", from), block, sent.iter().copied()).unwrap()
        };
        let of = |prefix: &str, count| SourcesUsed { prefix: prefix.into(), count };
        assert_eq!(used("127.1.0.0/24", 1, &[1000]), of("127.1.0.0/24", 256));
        assert_eq!(used("127.1.0.0/24", 1, &[100, 99]), of("127.1.0.0/24", 100));
        assert_eq!(used("127.1.0.0/24", 50, &[1001]), of("127.1.0.0/24", 21));
        assert_eq!(used("127.1.0.0/24", 1, &[0]), of("127.1.0.0/24", 0));
        let none = TrialPlan::new("127.0.0.1:9".parse().unwrap(), Qps(1));
        assert_eq!(SourcesUsed::of(&none, 1, [7].into_iter()), None);
    }

    #[test]
    fn replies_are_matched_by_both_addresses() {
        let plan = plan("[::ffff:127.0.0.1]:9", "127.1.0.0/24");
        let sources = SourcePlan::new(&plan, sources("127.1.0.0/24"), 64, Blocks::new(1));
        let ends = sources.ends(7);
        assert_eq!(ends.address, "127.0.0.1:9".parse().unwrap());
        assert!(sources.is_servers(Some(ends)) && sources.is_back(7, Some(ends)));
        assert!(!sources.is_back(8, Some(ends)), "that one left from another address");
        for stranger in ["127.0.0.1:10", "127.0.0.2:9"] {
            let peer = Peer { address: stranger.parse().unwrap(), ..ends };
            assert!(!sources.is_servers(Some(peer)), "{stranger}");
        }
        assert!(!sources.is_servers(None) && !sources.is_back(7, None));
        assert!(!sources.is_back(7, Some(Peer { local: None, ..ends })));
    }

    proptest! {
        #[test]
        fn addresses_are_different_and_spread_over_the_prefix(network: u128, len in 0u8..=128, ipv6: bool) {
            let most = if ipv6 { 128 } else { 32 };
            let ip: IpAddr =
                if ipv6 { Ipv6Addr::from(network).into() } else { Ipv4Addr::from(network as u32).into() };
            let prefix = IpNet::new(ip, len.min(most)).unwrap().trunc();
            let sources = sources(&prefix.to_string());
            let all: HashSet<IpAddr> = sources.addresses().collect();
            prop_assert_eq!(all.len() as u32, sources.count());
            prop_assert!(all.iter().all(|address| prefix.contains(address)));
            prop_assert_eq!(sources.to_string().parse::<SourceAddresses>().unwrap(), sources);
            if sources.count() == DEFAULT_ADDRESSES {
                // Each eighth of the prefix contains about an eighth of the addresses.
                for eighth in prefix.subnets(prefix.prefix_len() + 3).unwrap() {
                    let n = all.iter().filter(|address| eighth.contains(*address)).count();
                    prop_assert!((28..=38).contains(&n), "{n} in {eighth}");
                }
                let last = |address: &IpAddr| match address {
                    IpAddr::V4(a) => a.octets()[3],
                    IpAddr::V6(a) => a.octets()[15],
                };
                prop_assert_eq!(all.iter().map(last).collect::<HashSet<_>>().len(), 256);
            }
        }

        #[test]
        fn each_address_takes_its_turn_and_meets_each_port(ports in 1u16..40, count in 1u32..70, block in 1u16..9, first in 0u64..8_000) {
            let text = format!("127.1.0.0/24,{count}");
            let plan = plan("127.0.0.1:9", &text);
            let sources = SourcePlan::new(&plan, sources(&text), ports.into(), Blocks::new(block));
            let ids = plan_of((0, 1), ports, block, 1);
            let (block, count) = (u64::from(block), u64::from(count));
            // The first blocks of a trial.
            let used: HashSet<IpAddr> = (0..count).map(|b| sources.address(b * block)).collect();
            prop_assert_eq!(used.len() as u64, count);
            let pairs = |from: u64| -> HashSet<(usize, IpAddr)> {
                let of = |b| (ids.place(b * block).0, sources.address(b * block));
                (from..from + u64::from(ports) * count).map(of).collect()
            };
            prop_assert_eq!(pairs(0).len() as u64, u64::from(ports) * count);
            // All queries of a block have the same address.
            let k = first * block;
            let of_block: HashSet<IpAddr> = (k..k + block).map(|k| sources.address(k)).collect();
            prop_assert_eq!(of_block.len(), 1);
        }
    }
}
