//! What is written in the configuration file, key by key. `dns64d.example.toml` in the repository's
//! `dist` explains every key to users; this module is its other half.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use method::units::Nanos;
use net::address::{HostAddr, ServiceAddr};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::local_zones::LocalZoneKeys;
use super::networks::{BadList, NamedNetworks, NetworkList};
use super::observe::{ControlKeys, DnstapKeys, LogFormat, QueryLogKeys};
use super::{addresses, times};
use crate::name::LowerName;
use crate::prefixes::Live;
use crate::resolver::ttl::TtlLimits;
use crate::translation::policy::{Hints, Mapping, Mode, Policy, Select, Standing};
use crate::translation::prefix::Prefix;
use crate::translation::zones::LocalZones;

/// What is written in the file. `Default` is the configuration of an empty one.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Addresses to serve, UDP and TCP.
    pub listen: Vec<ListenKeys>,
    /// How datagrams get past the kernel's network stack, where `xdp` is set.
    #[serde(skip_serializing_if = "is_auto")]
    pub xdp_mode: net::xdp::Mode,
    /// Whether there are sockets instead where kernel, driver or privileges do not allow any way of
    /// `xdp-mode = "auto"`; otherwise it does not start then.
    #[serde(skip_serializing_if = "is_true")]
    pub xdp_fallback: bool,
    /// Worker threads; 0 is one per CPU that the process may use.
    pub threads: usize,
    /// CPUs to pin the workers to, round robin; none leaves it to the kernel.
    pub cpus: Vec<usize>,
    /// The user to become after start, when started as root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Zones that are answered locally without data: `true` for `test`, `local`, `home.arpa`,
    /// `service.arpa` and the reverse zones of RFC 6303 and RFC 7793, `false` for none, or a list.
    pub local_zones: LocalZoneKeys,
    /// `[networks]`: lists of networks that other lists may name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Vec<String>>")]
    pub networks: BTreeMap<String, NetworkList<IpNet>>,
    /// `[dns64]`: prefixes, and which answers are translated.
    pub dns64: TranslationKeys,
    /// `[discovery]`: where prefixes that are announced are looked for.
    pub discovery: DiscoveryKeys,
    /// `[local]`: SOA and NS records of the zones that are answered locally.
    pub local: LocalKeys,
    /// `[access]`: which clients are answered.
    pub access: AccessKeys,
    /// `[cache]`: how much is kept, and for how long.
    pub cache: CacheKeys,
    /// What bounds work and memory.
    pub limits: LimitKeys,
    /// How upstreams are asked.
    pub forwarding: ForwardingKeys,
    /// `[metrics]`: where Prometheus fetches the counters.
    pub metrics: MetricsKeys,
    /// `[log]`: which lines are logged, and in which form.
    pub log: LogKeys,
    /// `[control]`: the socket of `dns64d status`, `explain`, `reload` and `flush`.
    pub control: ControlKeys,
    /// `[query-log]`: a line for each query that is answered.
    pub query_log: QueryLogKeys,
    /// `[dnstap]`: queries and replies for whoever reads them at a socket.
    pub dnstap: DnstapKeys,
    /// `[[upstream]]`: the resolvers that are asked; none: those of /etc/resolv.conf.
    #[serde(rename = "upstream")]
    pub upstreams: Vec<UpstreamKeys>,
    /// Domains with upstreams of their own.
    #[serde(rename = "forward")]
    pub forwards: Vec<ForwardKeys>,
    /// Domains with a translation of their own.
    #[serde(rename = "domain")]
    pub domains: Vec<DomainKeys>,
    /// Clients with a translation of their own.
    #[serde(rename = "group")]
    pub groups: Vec<GroupKeys>,
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

/// `listen`: an address to serve, by itself or in a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(from = "RawListenKeys", into = "RawListenKeys")]
pub struct ListenKeys {
    /// Address and port, UDP and TCP.
    #[schemars(with = "String")]
    pub address: ServiceAddr,
    /// Datagrams to it come past the kernel's network stack (AF_XDP), on the interface that has the
    /// address.
    pub xdp: bool,
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(
    untagged,
    expecting = "an address and port, or a table with one; write for example \"[::1]:53\" or { address = \"192.0.2.1:53\", xdp = true }"
)]
enum RawListenKeys {
    /// Through the kernel's network stack.
    Address(#[schemars(with = "String")] ServiceAddr),
    /// With what is to be said of it.
    Table(ListenTable),
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ListenTable {
    /// Address and port, UDP and TCP.
    #[schemars(with = "String")]
    address: ServiceAddr,
    /// Past the kernel's network stack (AF_XDP), on the interface that has the address.
    #[serde(default)]
    xdp: bool,
}

impl From<RawListenKeys> for ListenKeys {
    fn from(raw: RawListenKeys) -> ListenKeys {
        match raw {
            RawListenKeys::Address(address) => ListenKeys::new(address),
            RawListenKeys::Table(ListenTable { address, xdp }) => ListenKeys { address, xdp },
        }
    }
}

impl From<ListenKeys> for RawListenKeys {
    fn from(keys: ListenKeys) -> RawListenKeys {
        let ListenKeys { address, xdp } = keys;
        if xdp {
            RawListenKeys::Table(ListenTable { address, xdp })
        } else {
            RawListenKeys::Address(address)
        }
    }
}

impl ListenKeys {
    /// An address that is served through the kernel's network stack.
    pub fn new(address: ServiceAddr) -> ListenKeys {
        ListenKeys { address, xdp: false }
    }
}

impl Config {
    /// The addresses to serve.
    pub fn addresses(&self) -> impl Iterator<Item = ServiceAddr> {
        self.listen.iter().map(|keys| keys.address)
    }

    /// All prefixes as they are written, in all tables.
    pub(crate) fn written_prefixes(&self) -> impl Iterator<Item = &PrefixKeys> {
        self.prefix_lists().flatten()
    }

    /// The same, list by list.
    pub(crate) fn prefix_lists(&self) -> impl Iterator<Item = &[PrefixKeys]> {
        let of_groups = self.groups.iter().flat_map(|group| {
            group.dns64.prefixes.iter().chain(group.domains.iter().flat_map(|keys| &keys.prefixes))
        });
        let of_domains = self.domains.iter().flat_map(|keys| &keys.prefixes);
        self.dns64.prefixes.iter().chain(of_groups).chain(of_domains).map(Vec::as_slice)
    }
}

/// `[dns64]`, and what a `[[group]]` may change of it. Keys that are not there keep their default,
/// in a group that of `[dns64]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TranslationKeys {
    /// Prefixes; an empty list turns translation off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<Vec<PrefixKeys>>,
    /// Which of several prefixes that carry an address a client is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub select: Option<Select>,
    /// AAAA records that count as none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub exclude: Option<NetworkList<Ipv6Net>>,
    /// When A records are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Translate signed answers for clients with DO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub break_dnssec: Option<bool>,
    /// Translate for queries with RD only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive_only: Option<bool>,
    /// Ask for A together with AAAA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<bool>,
    /// No A records where AAAA records are given: the clients use IPv6 only. Of a group it is a key
    /// of `[[group]]` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_a: Option<bool>,
    /// Treatment of address hints in HTTPS and SVCB records (RFC 9460 §7.3). Of a group it is a
    /// key of `[[group]]` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_hints: Option<Hints>,
}

impl TranslationKeys {
    /// Writes the defaults where nothing is written.
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

/// A prefix with its ranges. Checked as a whole when it is read, so that the error has the line.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "RawPrefixKeys", rename_all = "kebab-case")]
pub struct PrefixKeys {
    #[serde(rename = "prefix")]
    written: WrittenPrefix,
    /// With the suffix; `None`: those that are announced.
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

/// A prefix, or the word for all that are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
enum WrittenPrefix {
    Fixed(Prefix),
    Discover,
}

/// What stands for all prefixes that are announced.
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

/// How it is found out whether a prefix's NAT64 works: by connections over TCP through it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProbeKeys {
    /// An address behind the NAT64 that answers.
    pub address: std::net::Ipv4Addr,
    /// Its port.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: u16,
    /// Time between two probes; 1 s to a day.
    #[serde(
        default = "ten_seconds",
        serialize_with = "humantime_serde::serialize",
        deserialize_with = "times::one"
    )]
    #[schemars(with = "String")]
    pub interval: Duration,
    /// How long an answer may take; 100 ms to the interval.
    #[serde(
        default = "two_seconds",
        serialize_with = "humantime_serde::serialize",
        deserialize_with = "times::one"
    )]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Probes in a row that change what is known; 1 to 100.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 100))]
    pub threshold: u32,
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
    /// `prefix` for all IPv4 addresses.
    pub fn new(prefix: Prefix, allow_non_global: bool) -> PrefixKeys {
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

    /// Whether both stand for the same prefix.
    pub(crate) fn is_same_prefix(&self, other: &PrefixKeys) -> bool {
        self.prefix == other.prefix
    }

    /// Whether it stands for the prefixes that are announced.
    pub(crate) fn is_discovered(&self) -> bool {
        self.prefix.is_none()
    }

    /// What logs and metrics call it, if it has a name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether `prefix`, for which it stands, is used for no new answer. An announcement does not
    /// undo what the same `list` says of that prefix in an entry of its own.
    pub(crate) fn is_draining(&self, prefix: &Prefix, list: &[PrefixKeys]) -> bool {
        let is_same = |own: &Prefix| own.network() == prefix.network() && own.len() == prefix.len();
        let drains = |keys: &PrefixKeys| keys.draining && keys.prefix.as_ref().is_some_and(is_same);
        self.draining || self.is_discovered() && list.iter().any(drains)
    }

    /// How it is found out whether it works.
    pub(crate) fn probe(&self) -> Option<&ProbeKeys> {
        self.probe.as_ref()
    }

    /// The prefixes that it stands for as things are.
    pub(crate) fn prefixes(&self, live: &Live) -> Vec<(Prefix, Option<Nanos>)> {
        match self.prefix {
            Some(prefix) => vec![(prefix, None)],
            None => live.announced.iter().map(|&(prefix, end)| (prefix, Some(end))).collect(),
        }
    }

    /// The mappings that it stands for as things are; `list` is the one in which it is written.
    pub(super) fn mappings(
        &self,
        list: &[PrefixKeys],
        named: &NamedNetworks<'_>,
        live: &Live,
    ) -> Result<Vec<Mapping>, BadList> {
        let ranges = named.look_up(&self.ranges)?;
        let mapping = |(prefix, until)| {
            let unhealthy_since = live.unhealthy_since(&prefix);
            let draining = self.is_draining(&prefix, list);
            let standing = Standing { draining, unhealthy_since, until };
            Mapping::new(prefix, ranges.clone(), self.allow_non_global).standing(standing)
        };
        Ok(self.prefixes(live).into_iter().map(mapping).collect())
    }
}

/// `[discovery]`: where prefixes that are announced are looked for, if one is written as
/// `"discover"`.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct DiscoveryKeys {
    /// In the upstreams' answers for ipv4only.arpa (RFC 7050).
    pub upstreams: bool,
    /// In the advertisements of routers on these interfaces (RFC 8781).
    pub interfaces: Vec<String>,
}

impl Default for DiscoveryKeys {
    fn default() -> DiscoveryKeys {
        DiscoveryKeys { upstreams: true, interfaces: Vec::new() }
    }
}

/// `[[domain]]`, and `[[group.domain]]` for the clients of a group: names with a translation of
/// their own. Keys that are not there are those of the group, or of `[dns64]`.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DomainKeys {
    /// The domain; names at and below it are meant, but for those of a longer `domain`.
    #[schemars(with = "String")]
    pub domain: Spanned<String>,
    /// No translation; `false` in a `[[group.domain]]`: translation, whatever `[[domain]]` and the
    /// group say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<bool>,
    /// Synthesize although there are native AAAA records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_aaaa: Option<bool>,
    /// Prefixes; an empty list turns translation off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<Vec<PrefixKeys>>,
    /// AAAA records that count as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub exclude: Option<NetworkList<Ipv6Net>>,
    /// When A records are asked for. It counts before that of a `[[forward]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What was excluded after all, if there is no usable A record; IPv4-mapped addresses never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_native: Option<bool>,
}

/// `[[group]]`: clients with a translation of their own.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GroupKeys {
    /// Addresses of its clients.
    #[schemars(with = "Vec<String>")]
    pub clients: NetworkList<IpNet>,
    /// No A records where AAAA records are given: the clients use IPv6 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_a: Option<bool>,
    /// Treatment of address hints in HTTPS and SVCB records (RFC 9460 §7.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_hints: Option<Hints>,
    /// What differs from `[dns64]`.
    #[serde(default)]
    pub dns64: TranslationKeys,
    /// Domains with a translation of their own for these clients.
    #[serde(default, rename = "domain", skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainKeys>,
}

/// `[local]`: SOA and NS records of the zones that are answered locally.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LocalKeys {
    /// The name server in NS and SOA records of the reverse zones of prefixes. Zones of `local-zones`
    /// name themselves (RFC 6303 §3).
    pub name_server: String,
    /// The mailbox in SOA records, as `hostmaster@example.org` or `hostmaster.example.org`.
    pub contact: String,
    /// TTL of SOA and NS records, and of negative answers, seconds; 0 to 86 400.
    #[schemars(range(min = 0, max = 86_400))]
    pub ttl: u32,
    /// TTL of the CNAME records of pointers below a prefix, seconds; 0 to 86 400.
    #[schemars(range(min = 0, max = 86_400))]
    pub reverse_ttl: u32,
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
    /// What they mean, where no TTL is above `max_ttl` seconds; an error has the key at fault, and what
    /// is wrong.
    pub(super) fn zones(&self, max_ttl: u32) -> Result<LocalZones, (&'static str, String)> {
        let name = |key, text: &str| {
            text.parse::<LowerName>().map_err(|e| (key, format!("{key} '{text}': {e}")))
        };
        // A dot of the mailbox itself is no end of a label (RFC 1035 §8).
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
        })
    }
}

/// `[access]`: which clients are answered.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AccessKeys {
    /// Clients that are answered; others get REFUSED.
    #[schemars(with = "Vec<String>")]
    pub allow: NetworkList<IpNet>,
    /// Needed to allow everybody.
    pub open_resolver: bool,
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

/// `[cache]`: how much is kept, and for how long.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CacheKeys {
    /// Memory for answers and their tables, in MiB; 0 keeps nothing; at most 1 TiB. If a limit on the
    /// memory of the process does not leave room for it, the cache gets less.
    #[schemars(range(min = 0, max = 1_048_576))]
    pub mebibytes: u64,
    /// The least TTL of positive answers, seconds; 0 to `max-ttl`.
    pub min_ttl: u32,
    /// The largest TTL of answers, seconds.
    pub max_ttl: u32,
    /// The largest TTL of negative answers, seconds (RFC 2308 §5).
    pub negative_max_ttl: u32,
    /// How long a failure is remembered at first, 1 to 300 seconds.
    #[schemars(range(min = 1, max = 300))]
    pub failure_ttl: u32,
    /// How long one is that is repeated, at the most: `failure_ttl` to 300 seconds.
    #[schemars(range(min = 1, max = 300))]
    pub failure_max_ttl: u32,
    /// How long answers are served after their time while upstreams fail; 0s is never.
    #[serde(serialize_with = "humantime_serde::serialize", deserialize_with = "times::one")]
    #[schemars(with = "String")]
    pub serve_stale: Duration,
    /// Such answers are served at once and renewed behind that, not only when a client has waited
    /// for 1750 ms.
    pub stale_at_once: bool,
    /// Answers that are asked for twice in the last tenth of their time are renewed before it is
    /// over.
    pub prefetch: bool,
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

/// What happens to queries beyond a limit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Overload {
    /// Their clients get SERVFAIL.
    #[default]
    Servfail,
    /// Their clients get no reply over UDP, and SERVFAIL over TCP.
    Drop,
}

/// `[limits]`: what bounds work and memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LimitKeys {
    /// Client queries that may wait for upstreams, per worker; 1 to 16 777 216. About 1 KiB each.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub in_flight: usize,
    /// What the clients of further queries get.
    pub overload: Overload,
    /// Queries per second of a client (IPv4 address, IPv6 /64, link-local address); 0 is no limit.
    pub client_rate: u32,
    /// Queries that a client may ask at once after a pause; 0 counts as 1.
    pub client_burst: u32,
    /// Octets per second by which UDP replies may exceed four times their queries, for the clients of
    /// a network (IPv4 /24 or IPv6 /56) without a valid DNS cookie; 0 is no limit. Replies beyond it
    /// are truncated.
    pub amplification_rate: u32,
    /// Such octets at once after a pause. If they are fewer than a reply needs, it is truncated.
    pub amplification_burst: u32,
    /// TCP connections; 1 to 1 048 576.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub tcp_connections: usize,
    /// TCP connections of a client (IPv4 address, IPv6 /64, link-local address); 1 to 1 048 576.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub tcp_per_client: usize,
    /// Queries in progress on a TCP connection; 1 to 10 000.
    #[schemars(range(min = 1, max = 10_000))]
    pub tcp_pipeline: usize,
    /// How long a TCP connection may be idle, or a message on it incomplete; 100 ms to a day.
    #[serde(serialize_with = "humantime_serde::serialize", deserialize_with = "times::one")]
    #[schemars(with = "String")]
    pub tcp_idle: Duration,
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

/// `[forwarding]`: how upstreams are asked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ForwardingKeys {
    /// How long a question may take, all upstreams and attempts together; 100 ms to 1.9 s. A
    /// translated query takes two.
    #[serde(serialize_with = "humantime_serde::serialize", deserialize_with = "times::one")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Source ports per upstream and worker, all random; 1 to 4 096. Each is given up after 10 000
    /// questions or ten minutes.
    #[schemars(range(min = 1, max = 4_096))]
    pub source_ports: u16,
    /// Order in which upstreams are asked; absent: `listed` for those of resolv.conf, otherwise
    /// `fastest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<UpstreamOrder>,
    /// Random letter case in questions (draft-vixie-dnsext-dns0x20).
    pub randomize_case: bool,
    /// Pass on the upstreams' AD to clients with DO or AD.
    pub trust_ad: bool,
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

/// Order in which the upstreams of a route are asked.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamOrder {
    /// The fastest upstreams share the questions by weight.
    #[default]
    Fastest,
    /// The first upstream in the list, the next one if it fails, as resolv.conf(5) has it.
    Listed,
}

/// `[metrics]`: where Prometheus fetches the counters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MetricsKeys {
    /// Where Prometheus fetches `/metrics`; none: no listener.
    #[serde(deserialize_with = "addresses::service", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub listen: Option<ServiceAddr>,
}

/// Least severity that is logged.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// What keeps it from serving.
    Error,
    /// What somebody should look at.
    Warn,
    /// Start, reload, stop, upstreams that fail and return.
    #[default]
    Info,
    /// What developers look for, beside all that.
    Debug,
}

/// `[log]`: which lines are logged, and in which form.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LogKeys {
    /// The form of each line.
    pub format: LogFormat,
    /// The least severity that is logged.
    pub level: LogLevel,
}

/// `[[upstream]]`: a resolver that is asked.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UpstreamKeys {
    /// The IP address of the resolver; a link-local one with its interface, as in `fe80::1%eth0`.
    #[serde(deserialize_with = "addresses::host")]
    #[schemars(with = "String")]
    pub address: HostAddr,
    /// Its port, UDP and TCP.
    #[serde(default = "dns_port")]
    #[schemars(with = "u16", range(min = 1, max = 65_535))]
    pub port: Spanned<u16>,
    /// Its share of the questions among upstreams of like speed; 1 to 1 000 000.
    #[serde(default = "one")]
    #[schemars(with = "u32", range(min = 1, max = 1_000_000))]
    pub weight: Spanned<u32>,
    /// What forward rules call it; its address if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// It is asked, and answers, past the kernel's network stack (AF_XDP), on the interface that is
    /// the way to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub xdp: bool,
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
    /// The upstream at `address`.
    pub fn new(address: ServiceAddr) -> UpstreamKeys {
        let port = Spanned::new(0..0, address.port());
        UpstreamKeys { address: address.host(), port, weight: one(), name: None, xdp: false }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name) || self.address.to_string() == name
    }
}

/// `[[forward]]`: a domain with upstreams, or a mode, of its own.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ForwardKeys {
    /// The domain; names at and below it are meant.
    #[schemars(with = "String")]
    pub domain: Spanned<String>,
    /// Names of its upstreams; none: all.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub upstreams: Vec<Spanned<String>>,
    /// When A records are asked for, if not as in `[dns64]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}
