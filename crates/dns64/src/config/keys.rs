//! Keys of the configuration file. The file `dist/dns64d.example.toml` in the repository documents
//! each key for users.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use net::address::{HostAddr, ServiceAddr};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use units::Nanos;

use super::ddr::DdrKeys;
use super::dnssec::DnssecKeys;
use super::listen::{ListenKeys, ListenTransport};
use super::local_zones::LocalZoneKeys;
use super::networks::{BadList, NamedNetworks, NetworkList};
use super::observe::{ControlKeys, DnstapKeys, LogFormat, QueryLogKeys};
use super::{addresses, times};
use crate::name::LowerName;
use crate::prefixes::LivePrefixes;
use crate::resolver::ttl::TtlLimits;
use crate::translation::policy::{Hints, Mapping, Mode, Policy, PrefixState, Select};
use crate::translation::prefix::Prefix;
use crate::translation::zones::LocalZones;

/// Configuration of dns64d. `Default` is the configuration of an empty file.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Listen addresses. A string is an address for UDP and TCP; a table can select an encrypted transport.
    pub(crate) listen: Vec<ListenKeys>,
    /// AF_XDP mode of all listen addresses and upstreams that use AF_XDP (`xdp = true`).
    #[serde(skip_serializing_if = "is_auto")]
    pub(crate) xdp_mode: net::xdp::Mode,
    /// With `xdp-mode = "auto"`, use ordinary sockets if AF_XDP is not available because of the
    /// kernel, the driver or missing privileges. If this key is `false`, the server does not start
    /// without AF_XDP.
    #[serde(skip_serializing_if = "is_true")]
    pub(crate) xdp_fallback: bool,
    /// Number of worker threads. 0 starts one per available CPU.
    pub threads: usize,
    /// CPUs to which the workers are pinned, round robin. With an empty list, the kernel chooses
    /// the CPUs.
    pub(crate) cpus: Vec<usize>,
    /// User to which the server switches after being started as root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// Zones that the server answers locally, as empty zones (RFC 6303). `true` selects `test`,
    /// `local`, `home.arpa`, `service.arpa` and the reverse zones of RFC 6303 and RFC 7793. `false`
    /// selects no zones. A list selects exactly the listed zones.
    pub(crate) local_zones: LocalZoneKeys,
    /// `[networks]`: named lists of networks, for use in other lists.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Vec<String>>")]
    pub(crate) networks: BTreeMap<String, NetworkList<IpNet>>,
    /// `[dns64]`: prefixes and other translation rules.
    pub(crate) dns64: TranslationKeys,
    /// `[discovery]`: sources of discovered prefixes.
    pub(crate) discovery: DiscoveryKeys,
    /// `[local]`: SOA and NS records of locally answered zones.
    pub(crate) local: LocalKeys,
    /// `[access]`: allowed clients.
    pub(crate) access: AccessKeys,
    /// `[cache]`: size of the cache, and TTLs.
    pub(crate) cache: CacheKeys,
    /// `[limits]`: limits on outstanding queries, query rates and TCP connections.
    pub(crate) limits: LimitKeys,
    /// `[forwarding]`: queries to upstreams.
    pub forwarding: ForwardingKeys,
    /// `[dnssec]`: DNSSEC validation.
    pub(crate) dnssec: DnssecKeys,
    /// `[ddr]`: discovery of the encrypted transports by clients (RFC 9462).
    pub(crate) ddr: DdrKeys,
    /// `[metrics]`: the metrics listener for Prometheus.
    pub(crate) metrics: MetricsKeys,
    /// `[log]`: severity and format of the log.
    pub(crate) log: LogKeys,
    /// `[control]`: the Unix socket for `dns64d status`, `explain`, `reload` and `flush`.
    pub(crate) control: ControlKeys,
    /// `[query-log]`: log with one line for each answered query.
    pub(crate) query_log: QueryLogKeys,
    /// `[dnstap]`: copies of queries and replies for a program that reads them from a Unix socket.
    pub(crate) dnstap: DnstapKeys,
    /// `[[upstream]]`: the upstream resolvers. If there is none, the name servers of
    /// /etc/resolv.conf are used.
    #[serde(rename = "upstream")]
    pub upstreams: Vec<UpstreamKeys>,
    /// `[[forward]]`: domains with separate upstreams.
    #[serde(rename = "forward")]
    pub(crate) forwards: Vec<ForwardKeys>,
    /// `[[domain]]`: domains with separate translation rules.
    #[serde(rename = "domain")]
    pub(crate) domains: Vec<DomainKeys>,
    /// `[[group]]`: clients with separate translation rules.
    #[serde(rename = "group")]
    pub(crate) groups: Vec<GroupKeys>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: vec![ListenKeys::new("[::1]:5380".parse().expect("a constant"))],
            xdp_mode: net::xdp::Mode::Auto,
            xdp_fallback: true,
            threads: 0,
            cpus: Vec::new(),
            user: None,
            local_zones: LocalZoneKeys::default(),
            networks: BTreeMap::new(),
            dns64: TranslationKeys::default(),
            discovery: DiscoveryKeys::default(),
            local: LocalKeys::default(),
            access: AccessKeys::default(),
            cache: CacheKeys::default(),
            limits: LimitKeys::default(),
            forwarding: ForwardingKeys::default(),
            dnssec: DnssecKeys::default(),
            ddr: DdrKeys::default(),
            metrics: MetricsKeys::default(),
            log: LogKeys::default(),
            control: ControlKeys::default(),
            query_log: QueryLogKeys::default(),
            dnstap: DnstapKeys::default(),
            upstreams: Vec::new(),
            forwards: Vec::new(),
            domains: Vec::new(),
            groups: Vec::new(),
        }
    }
}

impl Config {
    /// Returns the listen addresses for DNS over UDP and TCP.
    pub fn addresses(&self) -> impl Iterator<Item = ServiceAddr> {
        let plain = self.listen.iter().filter(|keys| keys.transport == ListenTransport::Udp);
        plain.map(|keys| keys.address)
    }

    /// Returns the addresses of this resolver as clients reach them.
    pub(crate) fn resolver_addresses(&self) -> Vec<IpAddr> {
        self.ddr.addresses(&self.listen)
    }

    /// Returns the prefixes in all lists of the configuration.
    pub(crate) fn written_prefixes(&self) -> impl Iterator<Item = &PrefixKeys> {
        self.prefix_lists().flatten()
    }

    /// Returns all lists of prefixes in the configuration.
    pub(crate) fn prefix_lists(&self) -> impl Iterator<Item = &[PrefixKeys]> {
        let of_groups = self.groups.iter().flat_map(|group| {
            group.dns64.prefixes.iter().chain(group.domains.iter().flat_map(|keys| &keys.prefixes))
        });
        let of_domains = self.domains.iter().flat_map(|keys| &keys.prefixes);
        self.dns64.prefixes.iter().chain(of_groups).chain(of_domains).map(Vec::as_slice)
    }
}

/// Translation rules: `[dns64]`, or `[group.dns64]` for the clients of a group. A key that is missing in the table of a
/// group inherits its value from `[dns64]`. A key that is missing in `[dns64]` has its default value.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TranslationKeys {
    /// Prefixes of synthesized addresses. An empty list disables translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prefixes: Option<Vec<PrefixKeys>>,
    /// Selection of prefixes for an IPv4 address to which the ranges (`ranges`) of several prefixes apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) select: Option<Select>,
    /// AAAA records with addresses in these networks are ignored (RFC 6147 §5.1.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) exclude: Option<NetworkList<Ipv6Net>>,
    /// Condition under which A records are queried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
    /// Synthesize from signed answers even for clients that set DO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) break_dnssec: Option<bool>,
    /// Synthesize only for queries with RD=1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recursive_only: Option<bool>,
    /// Query A and AAAA records at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parallel: Option<bool>,
    /// Withhold A records of names with AAAA records, for clients that use only IPv6. In a group,
    /// set this key directly in `[[group]]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filter_a: Option<bool>,
    /// Treatment of address hints in HTTPS and SVCB records (RFC 9460 §7.3). In a group, set this
    /// key directly in `[[group]]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) https_hints: Option<Hints>,
}

impl TranslationKeys {
    /// Fills in the defaults of missing keys.
    pub(super) fn fill_in(&mut self) {
        let default = Policy::default();
        self.prefixes.get_or_insert_with(|| vec![PrefixKeys::new(Prefix::WELL_KNOWN, false)]);
        self.select.get_or_insert(default.select);
        self.exclude.get_or_insert_with(|| default.exclude.included().into());
        self.mode.get_or_insert(default.mode);
        self.break_dnssec.get_or_insert(default.break_dnssec);
        self.recursive_only.get_or_insert(default.recursive_only);
        self.parallel.get_or_insert(default.parallel);
        self.filter_a.get_or_insert(default.filter_a);
        self.https_hints.get_or_insert(default.hints);
    }
}

/// A prefix with its ranges of IPv4 addresses. The whole entry is checked while the file is parsed,
/// so that an error message gives the line of the entry.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "RawPrefixKeys", rename_all = "kebab-case")]
pub(crate) struct PrefixKeys {
    #[serde(rename = "prefix")]
    written: WrittenPrefix,
    /// The prefix with its suffix, or `None` if the entry stands for the discovered prefixes.
    #[serde(skip)]
    prefix: Option<Prefix>,
    suffix: std::net::Ipv6Addr,
    #[schemars(with = "Vec<String>")]
    ranges: NetworkList<Ipv4Net>,
    allow_non_global: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    draining: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<ProbeKeys>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table; write for example { prefix = \"64:ff9b::/96\" }"
)]
#[schemars(example = serde_json::json!({ "prefix": "64:ff9b::/96" }))]
struct RawPrefixKeys {
    prefix: WrittenPrefix,
    #[serde(default = "no_suffix")]
    suffix: std::net::Ipv6Addr,
    #[serde(default = "all_of_ipv4")]
    #[schemars(with = "Vec<String>")]
    ranges: NetworkList<Ipv4Net>,
    #[serde(default)]
    allow_non_global: bool,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    draining: bool,
    #[serde(default)]
    probe: Option<ProbeKeys>,
}

/// Value of the key `prefix`: a prefix, or the keyword for all discovered prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
enum WrittenPrefix {
    Fixed(Prefix),
    Discover,
}

/// Keyword that stands for all discovered prefixes in a list of prefixes.
const DISCOVER: &str = "discover";

impl TryFrom<String> for WrittenPrefix {
    type Error = crate::translation::prefix::PrefixError;
    fn try_from(text: String) -> Result<WrittenPrefix, Self::Error> {
        if text == DISCOVER {
            return Ok(WrittenPrefix::Discover);
        }
        Prefix::try_from(text).map(WrittenPrefix::Fixed)
    }
}

impl From<WrittenPrefix> for String {
    fn from(written: WrittenPrefix) -> String {
        match written {
            WrittenPrefix::Fixed(prefix) => prefix.into(),
            WrittenPrefix::Discover => DISCOVER.to_owned(),
        }
    }
}

/// Health checks of a prefix's NAT64. Each check opens a TCP connection through the NAT64.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ProbeKeys {
    /// IPv4 address of a host that accepts TCP connections through the NAT64.
    pub(crate) address: std::net::Ipv4Addr,
    /// TCP port to which the health checks connect.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) port: u16,
    /// Interval between health checks; 1 s to 1 day.
    #[serde(
        default = "ten_seconds",
        serialize_with = "humantime_serde::serialize",
        deserialize_with = "times::one"
    )]
    #[schemars(with = "String")]
    pub(crate) interval: Duration,
    /// Time limit for one health check; 100 ms to `interval`.
    #[serde(
        default = "two_seconds",
        serialize_with = "humantime_serde::serialize",
        deserialize_with = "times::one"
    )]
    #[schemars(with = "String")]
    pub(crate) timeout: Duration,
    /// Number of consecutive health checks that must contradict the current state before the state changes; 1 to 100.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 100))]
    pub(crate) threshold: u32,
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn two_seconds() -> Duration {
    Duration::from_secs(2)
}

fn three() -> u32 {
    3
}

fn is_false(value: &bool) -> bool {
    !value
}

fn no_suffix() -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::UNSPECIFIED
}

fn all_of_ipv4() -> NetworkList<Ipv4Net> {
    vec![Ipv4Net::default()].into()
}

impl TryFrom<RawPrefixKeys> for PrefixKeys {
    type Error = crate::translation::prefix::PrefixError;
    fn try_from(raw: RawPrefixKeys) -> Result<PrefixKeys, Self::Error> {
        let prefix = match raw.prefix {
            WrittenPrefix::Fixed(prefix) => Some(prefix.with_suffix(raw.suffix)?),
            WrittenPrefix::Discover if raw.suffix != no_suffix() => {
                return Err(crate::translation::prefix::PrefixError::DiscoveredSuffix);
            }
            WrittenPrefix::Discover => None,
        };
        let RawPrefixKeys { prefix: written, suffix, ranges, allow_non_global, .. } = raw;
        let (name, draining, probe) = (raw.name, raw.draining, raw.probe);
        Ok(PrefixKeys { written, prefix, suffix, ranges, allow_non_global, name, draining, probe })
    }
}

impl PrefixKeys {
    /// Creates an entry for `prefix`, without a restriction of the IPv4 addresses (key `ranges`).
    pub(crate) fn new(prefix: Prefix, allow_non_global: bool) -> PrefixKeys {
        PrefixKeys {
            written: WrittenPrefix::Fixed(prefix),
            prefix: Some(prefix),
            suffix: no_suffix(),
            ranges: all_of_ipv4(),
            allow_non_global,
            name: None,
            draining: false,
            probe: None,
        }
    }

    /// True if this entry and `other` have the same prefix.
    pub(crate) fn is_same_prefix(&self, other: &PrefixKeys) -> bool {
        self.prefix == other.prefix
    }

    /// True if the entry stands for the discovered prefixes.
    pub(crate) fn is_discovered(&self) -> bool {
        self.prefix.is_none()
    }

    /// Returns the name of the prefix in logs and metrics, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// True if `prefix` is draining, so that it is not used for new answers. `prefix` is one of the prefixes for which
    /// this entry stands. If the entry stands for the discovered prefixes, the key `draining = true` may also be in a
    /// separate entry for this prefix in the list `list`.
    pub(crate) fn is_draining(&self, prefix: &Prefix, list: &[PrefixKeys]) -> bool {
        let is_same = |own: &Prefix| own.network() == prefix.network() && own.len() == prefix.len();
        let drains = |keys: &PrefixKeys| keys.draining && keys.prefix.as_ref().is_some_and(is_same);
        self.draining || self.is_discovered() && list.iter().any(drains)
    }

    /// Returns the keys of the health checks for the prefixes of this entry, or `None` if no health checks are
    /// configured.
    pub(crate) fn probe(&self) -> Option<&ProbeKeys> {
        self.probe.as_ref()
    }

    /// Returns the prefixes for which the entry currently stands. Each discovered prefix has an
    /// expiry time, and a configured prefix has `None`.
    pub(crate) fn prefixes(&self, live: &LivePrefixes) -> Vec<(Prefix, Option<Nanos>)> {
        match self.prefix {
            Some(prefix) => vec![(prefix, None)],
            None => live.announced.iter().map(|&(prefix, end)| (prefix, Some(end))).collect(),
        }
    }

    /// Returns one mapping (prefix, IPv4 ranges and state) for each prefix that the entry currently represents. The
    /// state depends on `list`, the list of entries that contains this entry.
    pub(super) fn mappings(
        &self,
        list: &[PrefixKeys],
        named: &NamedNetworks<'_>,
        live: &LivePrefixes,
    ) -> Result<Vec<Mapping>, BadList> {
        let ranges = named.look_up(&self.ranges)?;
        let mapping = |(prefix, until)| {
            let unhealthy_since = live.unhealthy_since(&prefix);
            let draining = self.is_draining(&prefix, list);
            let state = PrefixState { draining, unhealthy_since, until };
            Mapping::new(prefix, ranges.clone(), self.allow_non_global).with_state(state)
        };
        Ok(self.prefixes(live).into_iter().map(mapping).collect())
    }
}

/// `[discovery]`: sources of discovered prefixes. The entry `prefix = "discover"` in a list stands
/// for all of these prefixes.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct DiscoveryKeys {
    /// Discover prefixes from the upstreams' answers for ipv4only.arpa (RFC 7050).
    pub(crate) upstreams: bool,
    /// Discover prefixes from Router Advertisements received on these interfaces (RFC 8781).
    pub(crate) interfaces: Vec<String>,
}

impl Default for DiscoveryKeys {
    fn default() -> DiscoveryKeys {
        DiscoveryKeys { upstreams: true, interfaces: Vec::new() }
    }
}

/// `[[domain]]`: a domain with separate translation rules. `[[group.domain]]` applies only to
/// the clients of a group. A missing key inherits its value from the next table in this order:
/// `[[group.domain]]`, `[[domain]]`, `[group.dns64]`, `[dns64]`.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct DomainKeys {
    /// Name of the domain. The entry applies to this name and to all names below it. If several
    /// entries match, the longest domain applies.
    #[schemars(with = "String")]
    pub(crate) domain: Spanned<String>,
    /// Disable translation. In a `[[group.domain]]` entry, the value `false` enables translation even if the group or a
    /// `[[domain]]` entry disables it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) off: Option<bool>,
    /// Synthesize even if there are native AAAA records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ignore_aaaa: Option<bool>,
    /// Prefixes of synthesized addresses. An empty list disables translation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefixes: Option<Vec<PrefixKeys>>,
    /// AAAA records with addresses in these networks are ignored (RFC 6147 §5.1.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) exclude: Option<NetworkList<Ipv6Net>>,
    /// Condition under which A records are queried. This key takes precedence over the key `mode` of a `[[forward]]`
    /// entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
    /// If there is no usable A record, return the AAAA records that were ignored. IPv4-mapped
    /// addresses are never returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fallback_native: Option<bool>,
}

/// `[[group]]`: clients with separate translation rules.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct GroupKeys {
    /// Addresses of the clients.
    #[schemars(with = "Vec<String>")]
    pub(crate) clients: NetworkList<IpNet>,
    /// Withhold A records of names with AAAA records, for clients that use only IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) filter_a: Option<bool>,
    /// Treatment of address hints in HTTPS and SVCB records (RFC 9460 §7.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) https_hints: Option<Hints>,
    /// `[group.dns64]`: translation rules that replace those of `[dns64]` for the clients of the group.
    #[serde(default)]
    pub(crate) dns64: TranslationKeys,
    /// `[[group.domain]]`: domains with separate translation rules for the clients of the group.
    #[serde(default, rename = "domain", skip_serializing_if = "Vec::is_empty")]
    pub(crate) domains: Vec<DomainKeys>,
}

/// `[local]`: SOA and NS records of locally answered zones.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct LocalKeys {
    /// Name server in the NS and SOA records of the prefixes' reverse zones. In the zones that `local-zones` selects,
    /// the name server is the apex of the zone (RFC 6303 §3).
    pub(crate) name_server: String,
    /// Mailbox in SOA records, written as `hostmaster@example.org` or `hostmaster.example.org`.
    pub(crate) contact: String,
    /// TTL of SOA and NS records, and of negative answers, in seconds; 0 to 86 400.
    #[schemars(range(min = 0, max = 86_400))]
    pub(crate) ttl: u32,
    /// TTL of the CNAME records that answer PTR queries for addresses in a prefix, in seconds; 0 to
    /// 86 400.
    #[schemars(range(min = 0, max = 86_400))]
    pub(crate) reverse_ttl: u32,
}

impl Default for LocalKeys {
    fn default() -> LocalKeys {
        let zones = LocalZones::default();
        LocalKeys {
            name_server: "localhost".into(),
            contact: "nobody.invalid".into(),
            ttl: zones.ttl,
            reverse_ttl: zones.alias_ttl,
        }
    }
}

impl LocalKeys {
    /// Returns the names and TTLs for the records of locally answered zones. TTLs are limited to `max_ttl` seconds. An
    /// error contains the invalid key and the reason.
    pub(super) fn zones(&self, max_ttl: u32) -> Result<LocalZones, (&'static str, String)> {
        let name = |key, text: &str| {
            text.parse::<LowerName>().map_err(|e| (key, format!("{key} '{text}': {e}")))
        };
        // Escape a dot in the local part, because it does not separate labels (RFC 1035 §8).
        let contact = match self.contact.split_once('@') {
            Some((mailbox, domain)) => format!("{}.{domain}", mailbox.replace('.', "\\.")),
            None => self.contact.clone(),
        };
        Ok(LocalZones {
            name_server: name("name-server", &self.name_server)?,
            contact: name("contact", &contact)?,
            ttl: self.ttl,
            alias_ttl: self.reverse_ttl,
            max_ttl,
            resolvers: Vec::new(),
        })
    }
}

/// `[access]`: allowed clients.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct AccessKeys {
    /// Clients that get answers. Other clients get REFUSED.
    #[schemars(with = "Vec<String>")]
    pub(crate) allow: NetworkList<IpNet>,
    /// Confirms that very large networks, such as `::/0`, are intended. Must be `true` if `allow` contains such a
    /// network.
    pub(crate) open_resolver: bool,
}

impl Default for AccessKeys {
    fn default() -> AccessKeys {
        let private = [
            "127.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "::1/128",
            "fc00::/7",
            "fe80::/10",
        ];
        AccessKeys {
            allow: Vec::from(private.map(|net| net.parse().expect("a constant"))).into(),
            open_resolver: false,
        }
    }
}

/// `[cache]`: size of the cache, and TTLs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct CacheKeys {
    /// Memory in MiB for cached answers and the tables that index them; at most 1 TiB. 0 disables
    /// the cache. The cache is smaller if the memory limit of the process is too low.
    #[schemars(range(min = 0, max = 1_048_576))]
    pub(crate) mebibytes: u64,
    /// Minimum TTL of positive answers, in seconds; 0 to `max-ttl`.
    pub(crate) min_ttl: u32,
    /// Maximum TTL of answers, in seconds.
    pub(crate) max_ttl: u32,
    /// Maximum TTL of negative answers, in seconds (RFC 2308 §5).
    pub(crate) negative_max_ttl: u32,
    /// Initial time for which a failure is cached, 1 to 300 seconds.
    #[schemars(range(min = 1, max = 300))]
    pub(crate) failure_ttl: u32,
    /// Maximum time for which a repeated failure is cached, in seconds; `failure-ttl` to 300.
    #[schemars(range(min = 1, max = 300))]
    pub(crate) failure_max_ttl: u32,
    /// Time after expiry during which an answer may still be served if all upstreams fail. With
    /// `0s`, expired answers are never served.
    #[serde(serialize_with = "humantime_serde::serialize", deserialize_with = "times::one")]
    #[schemars(with = "String")]
    pub(crate) serve_stale: Duration,
    /// Serve expired answers immediately, and refresh them in the background. If this key is
    /// `false`, a query first waits up to 1750 ms for the upstreams.
    pub(crate) stale_at_once: bool,
    /// Refresh an answer before it expires if it is queried twice in the last tenth of its TTL.
    pub(crate) prefetch: bool,
}

impl Default for CacheKeys {
    fn default() -> CacheKeys {
        let ttl = TtlLimits::default();
        CacheKeys {
            mebibytes: 256,
            min_ttl: ttl.min,
            max_ttl: ttl.max,
            negative_max_ttl: ttl.negative_max,
            failure_ttl: ttl.failure,
            failure_max_ttl: ttl.failure_max,
            serve_stale: Duration::ZERO,
            stale_at_once: false,
            prefetch: false,
        }
    }
}

/// Treatment of client queries that are rejected because too many queries are outstanding.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Overload {
    /// A client whose query is rejected gets SERVFAIL.
    #[default]
    Servfail,
    /// A client whose query is rejected gets SERVFAIL over TCP, and no reply over UDP.
    Drop,
}

/// `[limits]`: limits on outstanding queries, query rates and TCP connections.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct LimitKeys {
    /// Maximum number of client queries that wait for upstreams, per worker; 1 to 16 777 216. Each
    /// query needs about 1 KiB of memory.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(crate) in_flight: usize,
    /// Treatment of further queries while the number of waiting queries is at the limit `in-flight`.
    pub(crate) overload: Overload,
    /// Maximum rate of UDP queries per client (IPv4 address, IPv6 /64, link-local address), in
    /// queries per second. 0 disables the limit.
    pub(crate) client_rate: u32,
    /// Number of queries that a client may send at once after a pause. 0 counts as 1.
    pub(crate) client_burst: u32,
    /// Limit on UDP replies that are larger than four times their queries. The octets beyond four
    /// times the size of the query are limited to this rate, in octets per second. The limit
    /// applies to clients without a valid DNS cookie, per network (IPv4 /24 or IPv6 /56). Replies
    /// beyond the limit are truncated. 0 disables the limit.
    pub(crate) amplification_rate: u32,
    /// Maximum burst, in octets, of the traffic that `amplification-rate` limits. A reply that needs more octets is
    /// truncated.
    pub(crate) amplification_burst: u32,
    /// Maximum number of TCP connections; 1 to 1 048 576.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub(crate) tcp_connections: usize,
    /// Maximum number of TCP connections from a client (IPv4 address, IPv6 /64, link-local
    /// address); 1 to 1 048 576.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub(crate) tcp_per_client: usize,
    /// Maximum number of queries in progress on a TCP connection; 1 to 10 000.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) tcp_pipeline: usize,
    /// Maximum time for which a TCP connection may be idle, or a message may be incomplete; 100 ms
    /// to 1 day.
    #[serde(serialize_with = "humantime_serde::serialize", deserialize_with = "times::one")]
    #[schemars(with = "String")]
    pub(crate) tcp_idle: Duration,
}

impl Default for LimitKeys {
    fn default() -> LimitKeys {
        LimitKeys {
            in_flight: 65_536,
            overload: Overload::Servfail,
            client_rate: 0,
            client_burst: 100,
            amplification_rate: 16_384,
            amplification_burst: 65_536,
            tcp_connections: 1_000,
            tcp_per_client: 50,
            tcp_pipeline: 64,
            tcp_idle: Duration::from_secs(10),
        }
    }
}

/// `[forwarding]`: queries to upstreams.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ForwardingKeys {
    /// Time limit for one lookup, including all upstreams and attempts; 100 ms to 1.9 s. A
    /// translated query needs two lookups.
    #[serde(serialize_with = "humantime_serde::serialize", deserialize_with = "times::one")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Number of random source ports per upstream and worker; 1 to 4 096. A port is replaced after
    /// 10 000 queries or ten minutes.
    #[schemars(range(min = 1, max = 4_096))]
    pub(crate) source_ports: u16,
    /// Order in which the upstreams are queried. The default is `listed` for the name servers of resolv.conf, and
    /// `fastest` for upstreams in `[[upstream]]` entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<UpstreamOrder>,
    /// Randomize the letter case of upstream queries (draft-vixie-dnsext-dns0x20).
    pub(crate) randomize_case: bool,
    /// Pass on the upstreams' AD bit to clients that set DO or AD.
    pub(crate) trust_ad: bool,
}

impl Default for ForwardingKeys {
    fn default() -> ForwardingKeys {
        ForwardingKeys {
            timeout: Duration::from_millis(1_700),
            source_ports: 64,
            order: None,
            randomize_case: false,
            trust_ad: false,
        }
    }
}

/// Order in which the upstreams for a name are queried.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UpstreamOrder {
    /// Queries are distributed among the fastest upstreams by weight.
    #[default]
    Fastest,
    /// The first upstream in the list is queried. If it fails, the next one is queried, as in
    /// resolv.conf(5).
    Listed,
}

/// `[metrics]`: the metrics listener for Prometheus.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct MetricsKeys {
    /// Address from which Prometheus fetches `/metrics`. Without this key, there is no listener.
    #[serde(deserialize_with = "addresses::service", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) listen: Option<ServiceAddr>,
}

/// Lowest severity that is logged.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogLevel {
    /// Severity of errors that prevent the server from answering queries.
    Error,
    /// Severity of problems that need the operator's attention.
    Warn,
    /// Severity of messages about the start, reload and stop of the server, and about upstreams that fail or recover.
    #[default]
    Info,
    /// Severity of additional details for developers.
    Debug,
}

/// `[log]`: severity and format of the log.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct LogKeys {
    /// Format of each line of the log.
    pub(crate) format: LogFormat,
    /// Lowest severity that is logged.
    pub(crate) level: LogLevel,
}

/// `[[upstream]]`: an upstream resolver.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UpstreamKeys {
    /// IP address of the resolver. A link-local address needs its interface, as in `fe80::1%eth0`.
    #[serde(deserialize_with = "addresses::host")]
    #[schemars(with = "String")]
    pub(crate) address: HostAddr,
    /// Port, for UDP and TCP.
    #[serde(default = "dns_port")]
    #[schemars(with = "u16", range(min = 1, max = 65_535))]
    pub(crate) port: Spanned<u16>,
    /// Weight in the distribution of queries among upstreams of similar speed; 1 to 1 000 000.
    #[serde(default = "one")]
    #[schemars(with = "u32", range(min = 1, max = 1_000_000))]
    pub(crate) weight: Spanned<u32>,
    /// Name by which a `[[forward]]` entry refers to this upstream. The default is the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Query this upstream over AF_XDP (kernel bypass), on the interface that leads to the upstream.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) xdp: bool,
}

fn yes() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_auto(mode: &net::xdp::Mode) -> bool {
    *mode == net::xdp::Mode::Auto
}

fn dns_port() -> Spanned<u16> {
    Spanned::new(0..0, 53)
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

impl UpstreamKeys {
    /// Creates an upstream at `address`.
    pub fn new(address: ServiceAddr) -> UpstreamKeys {
        let port = Spanned::new(0..0, address.port());
        UpstreamKeys { address: address.host(), port, weight: one(), name: None, xdp: false }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name) || self.address.to_string() == name
    }
}

/// `[[forward]]`: a domain with separate upstreams, or with a separate condition for A queries (`mode`).
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ForwardKeys {
    /// Name of the domain. The entry applies to this name and to all names below it.
    #[schemars(with = "String")]
    pub(crate) domain: Spanned<String>,
    /// Names of the upstreams for this domain. An empty list selects all upstreams.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) upstreams: Vec<Spanned<String>>,
    /// Condition under which A records are queried. Without this key, the key `mode` of the client's group or of
    /// `[dns64]` applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
    /// With `false`, answers for this domain are not validated, even if `validate` in `[dnssec]` is on.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub(crate) validate: bool,
}
