//! What a group of clients gets for the names of a domain: which prefixes, for which IPv4 addresses,
//! and how willingly.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{Ipv4Net, Ipv6Net};

use crate::networks::Networks;
use crate::translation::prefix::Prefix;
use crate::translation::zones::LocalZones;

/// The addresses of `ipv4only.arpa` (RFC 7050 §2.2), which every prefix carries.
pub(crate) const IPV4ONLY: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// The largest TTL of synthesized records where the AAAA answer had no SOA, seconds (RFC 6147
/// §5.1.7).
pub(crate) const TTL_WITHOUT_SOA: u32 = 600;

/// When the A records are asked for.
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
    /// As RFC 6147 §5.1.2 and §5.1.3 have it: no AAAA records, whatever the reason (but NXDOMAIN),
    /// lead to the A records.
    #[default]
    Strict,
    /// Only an authentic "no such data" does; errors and timeouts are passed on.
    NodataOnly,
    /// As `nodata-only`, and silence does: errors are passed on.
    Timeout,
}

/// What becomes of the `ipv4hint` of HTTPS and SVCB records (RFC 9460 §7.3).
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
    /// It is left alone.
    #[default]
    Keep,
    /// It is left out.
    Strip,
    /// It becomes an `ipv6hint`, as A records become AAAA records.
    Translate,
}

/// A prefix and the IPv4 addresses that it carries.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    prefix: Prefix,
    ranges: Networks<Ipv4Net>,
    /// Whether `ranges` is all of IPv4, as it is for most.
    everything: bool,
    /// The well-known prefix, kept to global addresses.
    global_only: bool,
}

impl Mapping {
    /// `prefix` for the addresses in `ranges`. The well-known prefix must not carry addresses that
    /// are not global (RFC 6052 §3.1) unless `allow_non_global` says so.
    pub(crate) fn new(
        prefix: Prefix,
        ranges: impl Into<Networks<Ipv4Net>>,
        allow_non_global: bool,
    ) -> Mapping {
        let ranges = ranges.into();
        let everything = ranges == Networks::from(vec![Ipv4Net::default()]);
        let global_only = prefix == Prefix::WELL_KNOWN && !allow_non_global;
        Mapping { prefix, ranges, everything, global_only }
    }

    /// The well-known prefix for all global addresses.
    pub(crate) fn well_known() -> Mapping {
        Mapping::new(Prefix::WELL_KNOWN, vec![Ipv4Net::default()], false)
    }

    /// The prefix into which the addresses are embedded.
    pub(crate) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Whether it carries `address`. The addresses of `ipv4only.arpa` always are (RFC 7050).
    #[inline]
    pub(crate) fn carries(&self, address: Ipv4Addr) -> bool {
        if IPV4ONLY.contains(&address) {
            return true;
        }
        let in_range = self.everything || self.ranges.contains(&address);
        in_range && (is_global(address) || !self.global_only)
    }
}

/// How queries of a client group for the names of a domain are answered.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Prefixes, in the order of their records in answers. None: DNS64 is off.
    pub mappings: Vec<Mapping>,
    /// The prefixes of all groups and the well-known one: names below them are answered whoever
    /// asks (RFC 6147 §5.3.1). None if no group has a prefix.
    pub reverse: Arc<[Mapping]>,
    /// What the zones of these names say of themselves.
    pub zones: Arc<LocalZones>,
    /// AAAA records in these ranges count as none (RFC 6147 §5.1.4).
    pub exclude: Networks<Ipv6Net>,
    /// All AAAA records count as none: synthesize although there are some (Unbound's
    /// `dns64-ignore-aaaa`).
    pub ignore_aaaa: bool,
    /// Where all AAAA records count as none and no usable A record is there, the AAAA records are
    /// given after all, but for IPv4-mapped ones (::ffff:0:0/96).
    pub fallback_native: bool,
    /// When A records are asked for, unless a forward rule says otherwise.
    pub mode: Mode,
    /// Whether the mode is that of the name's domain, which counts before that of a forward rule.
    pub mode_of_domain: bool,
    /// No A records for names of which the clients are given AAAA records, native or made: they use
    /// IPv6 only. Departs from RFC 6147 §5.3.3.
    pub filter_a: bool,
    /// What becomes of IPv4 addresses in HTTPS and SVCB records.
    pub hints: Hints,
    /// Synthesize even for clients that set DO and got a signed answer.
    pub break_dnssec: bool,
    /// Synthesize only for queries with RD (BIND's `recursive-only`).
    pub recursive_only: bool,
    /// Ask for the A records together with the AAAA records (RFC 6147 §5.1.8).
    pub parallel: bool,
}

/// The policies of clients, by name.
pub(crate) trait PolicyByName: std::fmt::Debug {
    /// The policy for a client and a name (wire format, lower case).
    fn policy_by_name(&self, client: IpAddr, name: &[u8]) -> &Policy;
}

impl PolicyByName for Policy {
    /// The same one for all.
    fn policy_by_name(&self, _: IpAddr, _: &[u8]) -> &Policy {
        self
    }
}

/// What applies to one query of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    /// What the client's group gets for the name.
    pub policy: &'a Policy,
    /// What it gets for other names.
    pub others: &'a dyn PolicyByName,
    /// The client's address.
    pub client: IpAddr,
    /// When A records are asked for: as the name's forward rule says, or else the policy.
    pub mode: Mode,
    /// Whether the upstream's AD is passed on.
    pub trust_ad: bool,
}

impl Policy {
    /// Whether this group gets synthesized records at all.
    #[inline]
    pub(crate) fn translates(&self) -> bool {
        !self.mappings.is_empty()
    }

    /// Whether a AAAA record counts as none.
    #[inline]
    pub(crate) fn excludes(&self, address: Ipv6Addr) -> bool {
        self.ignore_aaaa || self.exclude.contains(&address)
    }

    /// The IPv6 addresses that stand for `address`, one per prefix that carries it.
    #[inline]
    pub(crate) fn embed(&self, address: Ipv4Addr) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.mappings
            .iter()
            .filter(move |m| m.carries(address))
            .map(move |m| m.prefix.embed(address))
    }
}

impl Default for Policy {
    /// The well-known prefix for all global addresses (item 13), RFC 6147's behaviour.
    fn default() -> Policy {
        let well_known = Mapping::well_known();
        Policy {
            reverse: Arc::new([well_known.clone()]),
            zones: Arc::default(),
            mappings: vec![well_known],
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

/// Whether `address` is globally unique: not in the special-purpose registry (RFC 6890 and its
/// updates).
pub(crate) fn is_global(address: Ipv4Addr) -> bool {
    let o = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || o[0] == 0
        || o[0] == 100 && o[1] & 0xc0 == 64
        || o[..3] == [192, 0, 0]
        || o[0] == 198 && o[1] & 0xfe == 18
        || o[0] >= 240)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(s: &str) -> Ipv4Addr {
        s.parse().unwrap()
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
            policy.embed(v4("8.8.8.8")).collect::<Vec<_>>(),
            ["64:ff9b::808:808".parse::<Ipv6Addr>().unwrap()]
        );
        assert_eq!(policy.embed(v4("10.0.0.1")).collect::<Vec<_>>(), [own.embed(v4("10.0.0.1"))]);
        assert_eq!(policy.embed(v4("192.168.0.1")).count(), 0);
    }

    #[test]
    fn items_14_and_15_the_well_known_prefix_carries_global_addresses_only() {
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
