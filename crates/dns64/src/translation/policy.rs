//! Policies: the DNS64 settings of a client group for the names of a domain.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{Ipv4Net, Ipv6Net};
use smallvec::SmallVec;
use units::Nanos;

use crate::networks::Networks;
use crate::translation::empty_zones::EmptyZones;
use crate::translation::prefix::Prefix;
use crate::translation::zones::LocalZones;

/// The two IPv4 addresses of `ipv4only.arpa` (RFC 7050 §2.2). Every prefix embeds these addresses.
pub(crate) const IPV4ONLY: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// Maximum TTL of synthesized records in seconds if the AAAA answer had no SOA (RFC 6147 §5.1.7).
pub(crate) const TTL_WITHOUT_SOA: u32 = 600;

/// Maximum number of AAAA records or address hints that are synthesized for an answer. A DNS message can contain
/// about 2 300 such records.
pub(crate) const MAX_SYNTHESIZED: usize = 2_000;

/// Condition for querying A records.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Behaviour of RFC 6147 §5.1.2 and §5.1.3. If the AAAA query yields no usable AAAA record, an A query follows,
    /// except after NXDOMAIN.
    #[default]
    Strict,
    /// Only NODATA leads to an A query. If the AAAA query ends with an error or a timeout, the client gets an error.
    NodataOnly,
    /// NODATA and timeouts lead to an A query. If the AAAA query ends with an error, the client gets this error.
    Timeout,
}

/// Treatment of address hints in HTTPS and SVCB records (RFC 9460 §7.3).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Hints {
    /// Hints are not changed.
    #[default]
    Keep,
    /// IPv4 hints (`ipv4hint`) and excluded addresses in IPv6 hints (`ipv6hint`) are removed.
    Strip,
    /// Hints are changed as for `strip`. In addition, IPv4 hints (`ipv4hint`) are converted to IPv6 hints (`ipv6hint`)
    /// if the target has no AAAA records. The conversion departs from RFC 9460 §4.2.1.
    Translate,
}

/// Selection of prefixes if several prefixes can embed an IPv4 address.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// All prefixes that can embed the IPv4 address, in the order of the configuration.
    #[default]
    All,
    /// The first prefix in the configuration that can embed the IPv4 address.
    First,
    /// One prefix per client. A client keeps the same prefix while that prefix works.
    Spread,
}

/// State of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixState {
    /// True if the prefix is not used for new answers, so that clients gradually leave its NAT64.
    pub draining: bool,
    /// Time at which the NAT64 of the prefix stopped responding. `None` for a healthy prefix. If all prefixes are
    /// unhealthy, the prefix with the NAT64 that responded most recently is used.
    pub unhealthy_since: Option<Nanos>,
    /// Expiry time of the prefix. `None` for a configured prefix.
    pub until: Option<Nanos>,
}

/// A prefix with the IPv4 addresses that it embeds.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    prefix: Prefix,
    ranges: Networks<Ipv4Net>,
    /// True if `ranges` contains all IPv4 addresses, which is the usual case.
    everything: bool,
    /// True if the prefix embeds only global addresses. This restriction applies to the well-known prefix (RFC 6052
    /// §3.1).
    global_only: bool,
    state: PrefixState,
}

impl Mapping {
    /// Returns a mapping from the IPv4 addresses in `ranges` to IPv6 addresses with the prefix `prefix`. If
    /// `allow_non_global` is false, the well-known prefix embeds only global addresses (RFC 6052 §3.1).
    pub(crate) fn new(
        prefix: Prefix,
        ranges: impl Into<Networks<Ipv4Net>>,
        allow_non_global: bool,
    ) -> Mapping {
        let ranges = ranges.into();
        let everything = ranges == Networks::from(vec![Ipv4Net::default()]);
        let global_only = prefix == Prefix::WELL_KNOWN && !allow_non_global;
        Mapping { prefix, ranges, everything, global_only, state: PrefixState::default() }
    }

    /// Returns this mapping with a new state of its prefix.
    pub(crate) fn with_state(self, state: PrefixState) -> Mapping {
        Mapping { state, ..self }
    }

    /// Returns the mapping of all global addresses to the well-known prefix.
    pub(crate) fn well_known() -> Mapping {
        Mapping::new(Prefix::WELL_KNOWN, vec![Ipv4Net::default()], false)
    }

    /// True if the prefix is used for new answers.
    #[inline]
    fn is_used(&self) -> bool {
        !self.state.draining
    }

    /// Returns the state of the prefix, such as its health.
    pub(crate) fn state(&self) -> &PrefixState {
        &self.state
    }

    /// Returns the prefix.
    pub(crate) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// True if the prefix embeds `address`. The addresses of `ipv4only.arpa` are always embedded
    /// (RFC 7050).
    #[inline]
    pub(crate) fn carries(&self, address: Ipv4Addr) -> bool {
        let in_range = self.everything || self.ranges.contains(&address);
        in_range && (!self.global_only || is_global(address)) || IPV4ONLY.contains(&address)
    }
}

impl Mapping {
    /// Returns the first address of each range, the first address after each range, and the first address of each
    /// block of global addresses.
    fn edges(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.ranges.edges().into_iter().chain(GLOBAL_AGAIN)
    }

    /// True if the prefix embeds at least one address in its configured IPv4 ranges.
    pub(crate) fn carries_something(&self) -> bool {
        let carried = |edge: Ipv4Addr| !self.global_only || is_global(edge);
        self.edges().any(|edge| self.ranges.contains(&edge) && carried(edge))
    }

    /// Returns the ranges that contain no global address and therefore have no effect. Empty if the
    /// prefix may embed addresses that are not global.
    pub(crate) fn not_carried(&self) -> Vec<Ipv4Net> {
        let is_dead = |range: &Ipv4Net| {
            let mut of_range = self
                .edges()
                .filter(|edge| range.contains(edge) && self.ranges.contains(edge))
                .peekable();
            of_range.peek().is_some() && !of_range.any(is_global)
        };
        let ranges = if self.global_only { self.ranges.included() } else { Vec::new() };
        ranges.into_iter().filter(is_dead).collect()
    }
}

/// DNS64 settings of a client group for the names of a domain.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Prefixes for synthesis, in the order in which their AAAA records appear in an answer. If there are none,
    /// either DNS64 is off, or [`Policy::awaits_prefix`] is true.
    pub mappings: Vec<Mapping>,
    /// True if prefixes are to be discovered and none is available yet. Queries that need a prefix
    /// then get SERVFAIL.
    pub awaits_prefix: bool,
    /// Selection of prefixes if several prefixes can embed an IPv4 address.
    pub select: Select,
    /// The prefixes of all groups and the well-known prefix. Queries for names in their reverse trees
    /// are answered for every client (RFC 6147 §5.3.1). Empty if no group has a prefix.
    pub reverse: Arc<[Mapping]>,
    /// SOA and NS records of local zones.
    pub zones: Arc<LocalZones>,
    /// Empty zones (key `local-zones`), which are the same for all clients.
    pub empty_zones: Arc<EmptyZones>,
    /// Ranges of excluded AAAA records (RFC 6147 §5.1.4).
    pub exclude: Networks<Ipv6Net>,
    /// True to exclude all AAAA records, so that synthesis takes place even if AAAA records exist
    /// (Unbound's `dns64-ignore-aaaa`).
    pub ignore_aaaa: bool,
    /// True to return excluded AAAA records if there is no usable A record. IPv4-mapped addresses
    /// (::ffff:0:0/96) are never returned.
    pub fallback_native: bool,
    /// Condition for A queries. A forward rule can override this condition unless [`Policy::mode_of_domain`] is true.
    pub mode: Mode,
    /// True if `mode` is configured for the domain that contains the queried name. `mode` then overrides the mode in a
    /// forward rule.
    pub mode_of_domain: bool,
    /// True to withhold A records of names that have native or synthesized AAAA records. This is for
    /// clients that use only IPv6, and departs from RFC 6147 §5.3.3.
    pub filter_a: bool,
    /// Treatment of address hints in HTTPS and SVCB records.
    pub hints: Hints,
    /// True to synthesize from signed answers even for clients that set DO.
    pub break_dnssec: bool,
    /// True to synthesize only for queries with RD (BIND's `recursive-only`).
    pub recursive_only: bool,
    /// True to query A records in parallel with AAAA records (RFC 6147 §5.1.8).
    pub parallel: bool,
}

/// Lookup of policies by client and name.
pub(crate) trait PolicyByName: std::fmt::Debug {
    /// Returns the policy for a client and a name (wire format, lower case).
    fn policy_by_name(&self, client: IpAddr, name: &[u8]) -> &Policy;
}

impl PolicyByName for Policy {
    /// Returns this policy, which applies to all clients and names.
    fn policy_by_name(&self, _: IpAddr, _: &[u8]) -> &Policy {
        self
    }
}

/// Origin of the AD bit in replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdSource {
    /// The bit is never set.
    None,
    /// The upstream's answer. The bit is set only if this answer is passed on unchanged.
    Upstream,
    /// The DNSSEC validation of this server.
    Validation,
}

/// The rules for one client query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    /// Policy of the client's group for the name.
    pub policy: &'a Policy,
    /// Policies for names other than the queried name, for example for the targets of address hints.
    pub others: &'a dyn PolicyByName,
    /// The client's address.
    pub client: IpAddr,
    /// Condition for A queries. It comes from the name's forward rule or from the policy.
    pub mode: Mode,
    /// Domain of the name's forward rule, in wire format. The root if no rule applies.
    pub forward: &'a [u8],
    /// Origin of the AD bit in replies.
    pub ad: AdSource,
    /// Time of the reply.
    pub now: Nanos,
}

impl Rules<'_> {
    /// Returns the remaining lifetime of the policy's prefixes in seconds. This lifetime limits the
    /// TTL of synthesized records.
    #[inline]
    pub(crate) fn lifetime(&self) -> u32 {
        self.policy.lifetime(self.now)
    }
}

#[cfg(test)]
impl<'a> Rules<'a> {
    /// Returns rules with one policy for all names.
    pub(crate) fn for_all_names(policy: &'a Policy, client: IpAddr) -> Rules<'a> {
        let mode = policy.mode;
        let (forward, now) = (&b"\0"[..], Nanos(0));
        Rules { policy, others: policy, client, mode, forward, ad: AdSource::None, now }
    }
}

impl Policy {
    /// True if synthesis is enabled for this client group.
    #[inline]
    pub(crate) fn synthesizes(&self) -> bool {
        !self.mappings.is_empty() || self.awaits_prefix
    }

    /// True if AAAA records with this address are excluded.
    #[inline]
    pub(crate) fn excludes(&self, address: Ipv6Addr) -> bool {
        self.ignore_aaaa || self.exclude.contains(&address)
    }

    /// True if an IPv6 address can be synthesized for `address`.
    #[inline]
    pub(crate) fn carries(&self, address: Ipv4Addr) -> bool {
        self.mappings.iter().any(|mapping| mapping.is_used() && mapping.carries(address))
    }

    /// Returns the synthesized IPv6 addresses for `address` and a client. Each selected prefix that
    /// embeds `address` yields one IPv6 address.
    #[inline]
    pub(crate) fn embed(
        &self,
        address: Ipv4Addr,
        client: IpAddr,
    ) -> impl Iterator<Item = Ipv6Addr> + use<'_> {
        let mut used: SmallVec<[&Mapping; 2]> = SmallVec::new();
        for mapping in &self.mappings {
            if mapping.is_used() && mapping.carries(address) {
                used.push(mapping);
            }
        }
        if used.len() > 1 {
            self.choose(&mut used, client);
        }
        used.into_iter().map(move |mapping| mapping.prefix.embed(address))
    }

    /// Removes from `used` all prefixes that are not selected for this client.
    fn choose(&self, used: &mut SmallVec<[&Mapping; 2]>, client: IpAddr) {
        let since = |mapping: &&Mapping| mapping.state.unhealthy_since;
        if used.iter().any(|mapping| since(mapping).is_none()) {
            used.retain(|mapping| since(mapping).is_none());
        } else if let Some(&last) = used.iter().max_by_key(|mapping| since(mapping)) {
            *used = SmallVec::from_slice(&[last]);
        }
        match self.select {
            Select::All => (),
            Select::First => used.truncate(1),
            // Each client uses the prefix with the highest value of `draw`. If a prefix is added or
            // removed, only the clients of this prefix move (rendezvous hashing: Thaler and
            // Ravishankar, "Using name-based mappings to increase hit rates", 1998, DOI
            // 10.1109/90.663936).
            Select::Spread => {
                let drawn = used.iter().max_by_key(|mapping| draw(client, &mapping.prefix));
                if let Some(&drawn) = drawn {
                    *used = SmallVec::from_slice(&[drawn]);
                }
            }
        }
    }

    /// Returns the number of seconds from `now` until the first prefix in use expires, or `u32::MAX` if no prefix
    /// expires.
    #[inline]
    pub(crate) fn lifetime(&self, now: Nanos) -> u32 {
        let used = self.mappings.iter().filter(|mapping| mapping.is_used());
        let ends = used.filter_map(|mapping| mapping.state.until);
        ends.min().map_or(u32::MAX, |end| {
            u32::try_from(end.since(now).0 / Nanos::SECOND.0).unwrap_or(u32::MAX)
        })
    }
}

/// Returns a hash value that depends only on the client and the prefix. A client is an IPv4 address, an IPv6 /64, or
/// a link-local address.
fn draw(client: IpAddr, prefix: &Prefix) -> u64 {
    let client = match client {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        // The interface identifier is used, because all links have the same prefix.
        IpAddr::V6(address) if address.is_unicast_link_local() => u128::from(address) as u64,
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64,
    };
    let mut hasher = DefaultHasher::new();
    (client, prefix).hash(&mut hasher);
    hasher.finish()
}

impl Default for Policy {
    /// Returns the default policy. It uses the well-known prefix for all global addresses (item 13 of
    /// docs/src/dns64-items.md), and behaves as described in RFC 6147.
    fn default() -> Policy {
        let well_known = Mapping::well_known();
        Policy {
            reverse: Arc::new([well_known.clone()]),
            zones: Arc::default(),
            empty_zones: Arc::default(),
            mappings: vec![well_known],
            awaits_prefix: false,
            select: Select::All,
            exclude: vec!["::ffff:0:0/96".parse().expect("a constant")].into(),
            ignore_aaaa: false,
            fallback_native: false,
            mode: Mode::Strict,
            mode_of_domain: false,
            filter_a: false,
            hints: Hints::Keep,
            break_dnssec: false,
            recursive_only: false,
            parallel: false,
        }
    }
}

/// The first global address after each block of non-global addresses.
const GLOBAL_AGAIN: [Ipv4Addr; 12] = [
    Ipv4Addr::new(1, 0, 0, 0),
    Ipv4Addr::new(11, 0, 0, 0),
    Ipv4Addr::new(100, 128, 0, 0),
    Ipv4Addr::new(128, 0, 0, 0),
    Ipv4Addr::new(169, 255, 0, 0),
    Ipv4Addr::new(172, 32, 0, 0),
    Ipv4Addr::new(192, 0, 1, 0),
    Ipv4Addr::new(192, 0, 3, 0),
    Ipv4Addr::new(192, 169, 0, 0),
    Ipv4Addr::new(198, 20, 0, 0),
    Ipv4Addr::new(198, 51, 101, 0),
    Ipv4Addr::new(203, 0, 114, 0),
];

/// True if `address` is globally unique. Such an address is not in the special-purpose registry (RFC
/// 6890 and its updates), and is not a multicast address.
pub(crate) fn is_global(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127 | 224..=255, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 168, ..]
            | [192, 0, 0 | 2, _]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn v4(s: &str) -> Ipv4Addr {
        s.parse().unwrap()
    }

    /// The first and the last address of each block of the registry, and their neighbours.
    #[test]
    fn addresses_of_the_registry_are_not_global() {
        for block in [
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ] {
            let block: Ipv4Net = block.parse().unwrap();
            let [first, last] = [block.network(), block.broadcast()].map(u32::from);
            assert!(!is_global(first.into()) && !is_global(last.into()), "{block}");
            let outside = [first.checked_sub(1), last.checked_add(1)].into_iter().flatten();
            for address in outside.map(Ipv4Addr::from) {
                // The last two blocks are adjacent.
                assert!(is_global(address) == (address.octets()[0] < 224), "{address}");
            }
        }
    }

    #[test]
    fn global_blocks_begin_at_the_listed_addresses() {
        // All blocks are /24s or larger.
        let is_global = |net: u32| is_global((net << 8).into());
        let begins = (1..1 << 24).filter(|&net| is_global(net) && !is_global(net - 1));
        assert!(begins.map(|net| Ipv4Addr::from(net << 8)).eq(GLOBAL_AGAIN));
    }

    /// Returns the numbers N of the prefixes 2001:db8:N::/96 selected for a client. `standings` are
    /// the states of the prefixes.
    fn given(standings: &[PrefixState], select: Select, client: IpAddr) -> Vec<u128> {
        let mapping = |(n, &state): (u128, &PrefixState)| {
            let network = Ipv6Addr::from((0x2001_0db8 << 96) | n << 80);
            let prefix = Prefix::new(network, 96).unwrap();
            Mapping::new(prefix, vec![Ipv4Net::default()], false).with_state(state)
        };
        let mappings = (1..).zip(standings).map(mapping).collect();
        let policy = Policy { mappings, select, ..Policy::default() };
        let number = |address: Ipv6Addr| u128::from(address) >> 80 & 0xffff;
        policy.embed(v4("8.8.8.8"), client).map(number).collect()
    }

    #[test]
    fn draining_and_unhealthy_prefixes_are_skipped() {
        let good = PrefixState::default();
        let bad = |since| PrefixState { unhealthy_since: Some(Nanos(since)), ..good };
        let draining = PrefixState { draining: true, ..good };
        let given = |standings: &[PrefixState]| given(standings, Select::All, CLIENT);
        assert_eq!(given(&[good, good]), [1, 2]);
        assert_eq!(given(&[good, bad(1), good]), [1, 3]);
        assert_eq!(given(&[draining, good]), [2]);
        assert_eq!(given(&[bad(5), bad(7), bad(6)]), [2], "the one that responded last");
        assert_eq!(given(&[draining, bad(5)]), [2]);
        assert_eq!(given(&[bad(5)]), [1]);
        assert_eq!(given(&[draining]), [0; 0]);
    }

    #[test]
    fn select_first_or_spread() {
        let (good, bad) = (PrefixState::default(), Some(Nanos(1)));
        let bad = PrefixState { unhealthy_since: bad, ..good };
        assert_eq!(given(&[good, good], Select::First, CLIENT), [1]);
        assert_eq!(given(&[bad, good, good], Select::First, CLIENT), [2]);
        let client = |n: u32| IpAddr::V4(n.into());
        let mut of_each = [0; 5];
        for n in 0..1_000 {
            let one = given(&[good; 4], Select::Spread, client(n));
            assert_eq!(one.len(), 1);
            assert_eq!(given(&[good; 4], Select::Spread, client(n)), one, "always the same one");
            of_each[one[0] as usize] += 1;
            // Only the clients of the failing prefix move to other prefixes.
            let without = given(&[good, bad, good, good], Select::Spread, client(n));
            assert!(without == one || one == [2] && without != [2], "{one:?} {without:?}");
        }
        assert!(of_each[1..].iter().all(|&clients| clients > 150), "{of_each:?}");
        // All addresses of an IPv6 /64 are one client.
        let host = |n: u128| IpAddr::V6((0x2001_0db8_u128 << 96 | n).into());
        let spread = |client| given(&[good; 4], Select::Spread, client);
        assert!((0..50).all(|n| spread(host(n)) == spread(host(0))));
        // Many clients use all prefixes, and so do the hosts of a link, each of which is a client.
        let link_local = |n: u128| IpAddr::V6((0xfe80_u128 << 112 | n).into());
        let clients: [&dyn Fn(u128) -> IpAddr; 2] = [&|n| host(n << 64), &link_local];
        for client in clients {
            let mut used: Vec<_> = (0..50).flat_map(|n| spread(client(n))).collect();
            used.sort_unstable();
            used.dedup();
            assert_eq!(used, [1, 2, 3, 4]);
        }
    }

    #[test]
    fn the_lifetime_is_that_of_the_prefix_that_ends_first() {
        let until = |seconds: u64| PrefixState {
            until: Some(Nanos(seconds * Nanos::SECOND.0)),
            ..PrefixState::default()
        };
        let mapping = |state| Mapping::well_known().with_state(state);
        let lifetime = |mappings| Policy { mappings, ..Policy::default() }.lifetime(Nanos::SECOND);
        assert_eq!(lifetime(vec![mapping(PrefixState::default())]), u32::MAX);
        assert_eq!(
            lifetime(vec![mapping(until(61)), mapping(until(31)), Mapping::well_known()]),
            30
        );
        assert_eq!(lifetime(vec![mapping(until(0))]), 0, "over");
    }

    #[test]
    fn item_10_ranges_have_their_prefixes() {
        let own: Prefix = "2001:db8:64::/96".parse().unwrap();
        let policy = Policy {
            mappings: vec![
                Mapping::new(Prefix::WELL_KNOWN, vec![Ipv4Net::default()], false),
                Mapping::new(own, vec!["10.0.0.0/8".parse().unwrap()], false),
            ],
            ..Policy::default()
        };
        assert_eq!(
            policy.embed(v4("8.8.8.8"), CLIENT).collect::<Vec<_>>(),
            ["64:ff9b::808:808".parse::<Ipv6Addr>().unwrap()]
        );
        assert_eq!(
            policy.embed(v4("10.0.0.1"), CLIENT).collect::<Vec<_>>(),
            [own.embed(v4("10.0.0.1"))]
        );
        assert_eq!(policy.embed(v4("192.168.0.1"), CLIENT).count(), 0);
    }

    #[test]
    fn items_14_and_15_well_known_prefix_is_global_only() {
        let strict = Mapping::new(Prefix::WELL_KNOWN, vec![Ipv4Net::default()], false);
        let lax = Mapping::new(Prefix::WELL_KNOWN, vec![Ipv4Net::default()], true);
        for private in [
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.1.1",
            "172.16.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            assert!(!strict.carries(v4(private)), "{private}");
            assert!(lax.carries(v4(private)), "{private}");
        }
        for global in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.32.0.1",
            "198.17.255.255",
            "198.20.0.0",
        ] {
            assert!(strict.carries(v4(global)), "{global}");
        }
        let narrow = Mapping::new(Prefix::WELL_KNOWN, vec!["8.8.0.0/16".parse().unwrap()], false);
        assert!(!narrow.carries(v4("1.1.1.1")));
        assert!(IPV4ONLY.iter().all(|&a| strict.carries(a) && narrow.carries(a)));
    }
}
