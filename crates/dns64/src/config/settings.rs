//! The settings derived from a configuration. All keys have been checked, and all names in them
//! have been resolved.
//!
//! ```text
//! text ─► keys (file, line and column of each) ─► Checker ─┬─► upstreams, routes by domain, groups
//!                                                          ├─► policies for all clients and names
//!                                                          └─► ConfigError: the first invalid key
//! ```
//!
//! Workers get the rules for a client and a name from [`Settings`], and do not read the keys. A
//! reload builds new settings. The old settings remain in use until the new settings are complete.
//! Similarly, [`Settings::with_prefixes`] returns new settings with the discovered prefixes, and
//! does not change the old settings.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dns64_import::{MAX_THREADS, read_file};
use dnssec::{Limits, TrustAnchors, Validator};
use ipnet::IpNet;
use net::address::{HostAddr, ServiceAddr};
use net::clock;
use toml::Spanned;
use toml_faults::line_of;
use units::Nanos;
use wire::view::rtype;

use super::addresses::lack_of_zone;
use super::dnssec::Validate;
use super::error::{ConfigError, RESOLV_CONF};
use super::keys::{CacheKeys, Config, ForwardKeys, PrefixKeys, UpstreamKeys, UpstreamOrder};
use super::listen::ListenKeys;
use super::networks::{BadList, NamedNetworks};
use super::policies::{
    BadPolicy, Policies, PolicySource, check_ranges, domain_name, prefix_locations,
};
use super::read::read;
use super::system::{NameServers, ResolvConf, is_own};
use super::{local_zones, observe};
use crate::ids::RouteId;
use crate::name::{DomainTable, LowerName, ancestors};
use crate::networks::Networks;
use crate::prefixes::LivePrefixes;
use crate::resolver::scope::UpstreamSets;
use crate::resolver::ttl::{STALE_AFTER, TtlLimits};
use crate::signatures::SignatureSupport;
use crate::translation::policy::{AdSource, Mapping, Mode, Policy, Rules};
use crate::translation::prefix::Prefix;

/// An upstream server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upstream {
    /// Address and port, the same for UDP and TCP.
    pub address: ServiceAddr,
    /// Weight among upstreams of similar speed, 1 to 1 000 000.
    pub weight: u32,
    /// True if the upstream is queried over AF_XDP.
    pub xdp: bool,
}

/// Upstreams for the names in a domain.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The domain, in wire format and lower case.
    pub domain: LowerName,
    /// Indices of the upstreams for this domain. The list is empty only if the settings contain no upstream.
    pub upstreams: Vec<usize>,
    /// Condition under which A records are queried (key `mode`). It overrides the key `mode` of the client's group. It
    /// does not apply to domains with a key `mode` in `[[domain]]` or `[[group.domain]]`.
    pub mode: Option<Mode>,
}

/// The settings derived from a configuration. A reload replaces them as a whole.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Keys of the configuration, with defaults filled in.
    pub config: Config,
    /// Path of the configuration file, or a description if there is no file.
    pub(crate) source: PathBuf,
    pub(super) policies: Policies,
    /// Clients that `[access]` allows.
    pub(super) clients: Networks<IpNet>,
    /// All upstreams. Routes contain indices into this list. The list is empty if the upstreams
    /// come from resolv.conf and this file currently lists no usable address.
    pub(crate) upstreams: Vec<Upstream>,
    /// True if the upstreams are those of the system's resolv.conf.
    pub(crate) follows_system: bool,
    /// Addresses in resolv.conf on which this server itself listens. They are not queried.
    pub(crate) left_out: Vec<ServiceAddr>,
    /// Link-local addresses in resolv.conf that cannot be used, because they have no zone identifier.
    without_zone: Vec<HostAddr>,
    /// Routes, beginning with the longest domain. The last route is for the root.
    pub(crate) routes: Vec<Route>,
    /// For each domain, the index of its route in `routes`. The route for the root has no entry here.
    routes_by_domain: DomainTable<usize>,
    /// Sets of domain names. The names in a set have the same upstreams.
    pub(crate) upstream_sets: UpstreamSets,
    /// Limits on the times for which answers and failures are cached and served.
    pub(crate) ttl: TtlLimits,
    /// Validator of the upstreams' answers; `None` if validation is off.
    pub(crate) validator: Option<Arc<Validator>>,
    /// Value of the key `validate`.
    pub(crate) validate: Validate,
    /// Upstreams with and without DNSSEC signatures.
    pub(crate) signatures: SignatureSupport,
    /// Maximum total number of TCP connections to all upstreams, from all workers. At least 1.
    pub upstream_connections: usize,
    origin: Arc<Origin>,
}

/// Inputs from which settings are derived.
#[derive(Clone, Debug)]
struct Origin {
    text: String,
    /// Addresses of sockets that are already open, because systemd passed them or because the
    /// server is running. They may differ from `listen` in the configuration. If empty, the server
    /// uses the addresses of `listen`.
    served: Vec<ServiceAddr>,
    listen: Vec<ServiceAddr>,
    resolv_conf: ResolvConf,
}

/// Example of the configuration lines that define an upstream.
pub(crate) const UPSTREAM_LINES: &str = "[[upstream]]\naddress = \"2001:db8::53\"\nport = 53";

/// Memory in which the validator stores keys of zones, and proofs that zones are unsigned, in octets.
pub(crate) const VALIDATOR_OCTETS: usize = 8 << 20;

/// Maximum number of TCP connections to upstreams. The number is reduced if the system allows too few open files.
const UPSTREAM_CONNECTIONS: usize = 100;

impl Settings {
    /// Reads and checks a configuration file. If `file` is `None`, the default configuration is used. The server
    /// listens on the addresses in `served`, which are those of sockets that are already open. If `served` is empty,
    /// the server opens its sockets later, on the addresses in the argument `listen`. If this argument is also empty,
    /// the listen addresses in the file apply.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not valid.
    pub(crate) fn load(
        file: Option<&Path>,
        served: &[SocketAddr],
        listen: &[ServiceAddr],
    ) -> Result<Settings, ConfigError> {
        let (text, file) = match file {
            Some(file) => (
                read_file(file)
                    .map_err(|source| ConfigError::Read { file: file.into(), source })?,
                file,
            ),
            None => (String::new(), Path::new("the default configuration")),
        };
        Settings::from_origin(
            file,
            Origin {
                text,
                served: served.iter().copied().map(ServiceAddr::from).collect(),
                listen: listen.to_vec(),
                resolv_conf: ResolvConf::read(),
            },
        )
    }

    /// Checks the text of a configuration. The path `file` appears only in error messages.
    ///
    /// # Errors
    /// Returns an error if the configuration is not valid.
    pub fn from_text(text: &str, file: &Path) -> Result<Settings, ConfigError> {
        Settings::from_origin(
            file,
            Origin {
                text: text.to_owned(),
                served: Vec::new(),
                listen: Vec::new(),
                resolv_conf: ResolvConf::read(),
            },
        )
    }

    /// Returns the settings that result from the same configuration with new contents of resolv.conf.
    ///
    /// # Errors
    /// Returns an error if the configuration is not valid with these contents of resolv.conf.
    pub(crate) fn with_resolv_conf(
        &self,
        resolv_conf: ResolvConf,
    ) -> Result<Settings, ConfigError> {
        Settings::from_origin(&self.source, Origin { resolv_conf, ..(*self.origin).clone() })
    }

    fn from_origin(file: &Path, origin: Origin) -> Result<Settings, ConfigError> {
        let origin = Arc::new(origin);
        let Origin { text, served, listen, resolv_conf } = &*origin;
        let mut config = read(text, file)?;
        if !listen.is_empty() {
            config.listen = listen.iter().copied().map(ListenKeys::new).collect();
        }
        let listen = addresses(&config, served);
        let checker = Checker { text, file, listen };
        if !config.upstreams.is_empty() {
            let written = |u: &UpstreamKeys| Upstream {
                address: ServiceAddr::new(u.address, *u.port.get_ref()),
                weight: *u.weight.get_ref(),
                xdp: u.xdp,
            };
            let upstreams = config.upstreams.iter().map(written).collect();
            return checker.settings(config, upstreams, Arc::clone(&origin));
        }
        let NameServers { others, own, without_zone } =
            NameServers::parse(resolv_conf.text(), &checker.listen);
        let found = |address| Upstream { address, weight: 1, xdp: false };
        let upstreams = others.into_iter().map(found).collect();
        let settings = checker.settings(config, upstreams, Arc::clone(&origin))?;
        Ok(Settings { left_out: own, without_zone, ..settings })
    }

    /// Returns the rule for the order in which the upstreams of a route are queried, such as fastest first.
    pub(crate) fn upstream_order(&self) -> UpstreamOrder {
        let default = match self.follows_system {
            true => UpstreamOrder::Listed,
            false => UpstreamOrder::Fastest,
        };
        self.config.forwarding.order.unwrap_or(default)
    }

    /// Returns a description of the upstreams and of their source: resolv.conf or the configuration.
    pub(crate) fn upstreams_in_words(&self) -> String {
        let list = |addresses: &mut dyn Iterator<Item = ServiceAddr>| {
            addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(", ")
        };
        let asked = match self.upstreams.as_slice() {
            [] => "none".to_owned(),
            all => list(&mut all.iter().map(|upstream| upstream.address)),
        };
        let source = if self.follows_system { RESOLV_CONF } else { "the configuration" };
        match self.left_out.as_slice() {
            [] => format!("upstreams of {source}: {asked}"),
            own => format!(
                "upstreams of {source}: {asked}; skipped (this server itself): {}",
                list(&mut own.iter().copied())
            ),
        }
    }

    /// Returns the upstreams of the root domain. They are used for all names outside of
    /// `[[forward]]` domains.
    pub(crate) fn default_upstreams(&self) -> Vec<String> {
        let route = &self.routes[self.route(&[0]).0];
        route.upstreams.iter().map(|number| self.upstreams[*number].address.to_string()).collect()
    }

    /// Returns the zones that are answered locally, except the reverse zones of the prefixes and
    /// the domains of `[[forward]]` entries.
    pub(crate) fn local_zones(&self) -> Vec<String> {
        local_zones::in_effect(&self.config.local_zones, |zone| self.routes_by_domain.has(zone))
    }

    /// True if the server listens only on loopback addresses, so that only programs on this host
    /// can reach it.
    pub(super) fn is_local(&self) -> bool {
        let mut all = addresses(&self.config, &self.origin.served);
        all.extend(self.config.listen.iter().map(|keys| keys.address));
        !all.is_empty() && all.iter().all(|address| address.ip().to_canonical().is_loopback())
    }

    /// Returns the text of the configuration file.
    pub(super) fn text(&self) -> &str {
        &self.origin.text
    }

    /// Returns the contents of resolv.conf, which lists the upstreams if none are configured.
    pub(crate) fn resolv_conf(&self) -> &ResolvConf {
        &self.origin.resolv_conf
    }

    /// Returns the reason why there is no upstream, or `None` if there is one.
    pub(crate) fn no_upstream(&self) -> Option<String> {
        if !self.upstreams.is_empty() {
            return None;
        }
        let reason = match (&self.origin.resolv_conf, self.left_out.as_slice()) {
            (ResolvConf::Unreadable(error), _) => format!("cannot be read: {error}"),
            (ResolvConf::Text(_), []) if self.without_zone.is_empty() => "names none".to_owned(),
            (ResolvConf::Text(_), []) => {
                "names only link-local addresses without a zone".to_owned()
            }
            (ResolvConf::Text(_), own) => {
                let own: Vec<String> = own.iter().map(ToString::to_string).collect();
                format!("names only this server itself ({})", own.join(", "))
            }
        };
        Some(format!("no upstream: {} has none, and {RESOLV_CONF} {reason}", self.source.display()))
    }

    /// Returns the address of an upstream, and its name if it has one.
    pub(crate) fn upstream_name(&self, number: usize) -> String {
        let Some(upstream) = self.upstreams.get(number) else { return String::new() };
        let name = self.config.upstreams.get(number).and_then(|keys| keys.name.as_deref());
        name.map_or(upstream.address.to_string(), |name| format!("{} '{name}'", upstream.address))
    }

    /// Returns the policy for a client's query for `name`.
    #[inline]
    pub(crate) fn policy(&self, client: IpAddr, name: &LowerName) -> &Policy {
        self.policies.of(client, name.wire())
    }

    /// Returns the configuration entries that determine the policy for a client's query for `name`.
    pub(crate) fn policy_source(&self, client: IpAddr, name: &LowerName) -> PolicySource {
        self.policies.whose(client, name.wire())
    }

    /// True if the configuration allows queries from the address `client`.
    #[inline]
    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        self.clients.contains(&client)
    }

    /// Returns the route for a name in wire format and lower case.
    #[inline]
    pub(crate) fn route(&self, name: &[u8]) -> RouteId {
        RouteId(self.routes_by_domain.get(name).copied().unwrap_or(self.routes.len() - 1))
    }

    /// Returns the route for a question. DS records are in the zone of the parent (RFC 4035 §2.4).
    #[inline]
    pub(crate) fn route_of(&self, name: &[u8], qtype: u16) -> RouteId {
        let parent = if qtype == rtype::DS { ancestors(name).nth(1) } else { None };
        self.route(parent.unwrap_or(name))
    }

    /// Returns the rules for a client's query for `name` at the time `now`.
    #[inline]
    pub(crate) fn rules(&self, client: IpAddr, name: &LowerName, now: Nanos) -> Rules<'_> {
        let policy = self.policy(client, name);
        let route = &self.routes[self.route(name.wire()).0];
        let mode = match route.mode {
            Some(mode) if !policy.mode_of_domain => mode,
            _ => policy.mode,
        };
        let ad = match (self.active_validator(), self.config.forwarding.trust_ad) {
            (Some(_), _) => AdSource::Validation,
            (None, true) => AdSource::Upstream,
            (None, false) => AdSource::None,
        };
        let forward = route.domain.wire();
        Rules { policy, others: &self.policies, client, mode, forward, ad, now }
    }

    /// Returns the validator if answers are validated now.
    #[inline]
    pub(crate) fn active_validator(&self) -> Option<&Arc<Validator>> {
        let is_active = self.validate == Validate::Yes || self.signatures.is_proven;
        self.validator.as_ref().filter(|_| is_active)
    }

    /// True if answers are validated, and the upstream returns answers without signatures.
    pub(crate) fn lacks_signatures(&self, upstream: ServiceAddr) -> bool {
        self.active_validator().is_some() && self.signatures.without.contains(&upstream)
    }

    /// Returns a copy of these settings for a new state of the upstreams' DNSSEC signatures.
    pub(crate) fn with_signatures(&self, signatures: SignatureSupport) -> Settings {
        Settings { signatures, ..self.clone() }
    }

    /// Returns a copy of these settings, with policies built from `live`, a new state of the prefixes.
    pub(crate) fn with_prefixes(&self, live: &LivePrefixes) -> Settings {
        // Errors do not occur here, because the same configuration was checked when the file was
        // read.
        let policies = NamedNetworks::new(&self.config.networks)
            .ok()
            .and_then(|named| Policies::new(&self.config, &named, live).ok());
        match policies {
            Some(policies) => Settings { policies, ..self.clone() },
            None => self.clone(),
        }
    }

    /// Returns the prefixes of all policies, without duplicates. The prefixes of the default policy come first.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &Prefix> {
        let mut once: Vec<&Prefix> = Vec::new();
        for prefix in self.policies.all().flat_map(|policy| &policy.mappings).map(Mapping::prefix) {
            if !once.contains(&prefix) {
                once.push(prefix);
            }
        }
        once.into_iter()
    }

    /// Returns warnings about unusable lines in resolv.conf.
    pub(crate) fn unusable_name_servers(&self) -> impl Iterator<Item = String> {
        self.without_zone.iter().map(|host| {
            format!("{RESOLV_CONF}: {host} is a link-local address without a zone such as {host}%eth0, and is not used")
        })
    }

    /// Returns the time limit for one lookup, including all attempts. If expired answers may be served, the limit is at
    /// most [`STALE_AFTER`]. After this time, a client gets an expired answer (RFC 8767 §5 suggests 1.8 s).
    pub(crate) fn timeout(&self) -> Duration {
        let timeout = self.config.forwarding.timeout;
        if self.ttl.stale.is_some() { timeout.min(STALE_AFTER) } else { timeout }
    }

    /// Returns the effective configuration as the text of a configuration file.
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.config).unwrap_or_else(|e| format!("# cannot be formatted: {e}\n"))
    }
}

struct Checker<'a> {
    text: &'a str,
    file: &'a Path,
    /// Addresses on which the server listens.
    listen: Vec<ServiceAddr>,
}

impl Checker<'_> {
    fn settings(
        &self,
        mut config: Config,
        upstreams: Vec<Upstream>,
        origin: Arc<Origin>,
    ) -> Result<Settings, ConfigError> {
        config.dns64.fill_in();
        let named = NamedNetworks::new(&config.networks).map_err(|bad| self.bad_list(bad))?;
        let clients = named.look_up(&config.access.allow).map_err(|bad| self.bad_list(bad))?;
        self.check_values(&config, &clients, &upstreams)?;
        let bad_policy = |bad| match bad {
            BadPolicy::List(bad) => self.bad_list(bad),
            BadPolicy::At(offset, reason) => self.at(offset, reason),
            BadPolicy::Path(path, reason) => self.at_path(&path, reason),
        };
        let policies =
            Policies::new(&config, &named, &LivePrefixes::default()).map_err(bad_policy)?;
        check_ranges(&config, &named).map_err(bad_policy)?;
        let all: Vec<usize> = (0..upstreams.len()).collect();
        let mut routes = Vec::new();
        for forward in &config.forwards {
            let domain = domain_name(forward.domain.get_ref())
                .map_err(|reason| self.invalid(&forward.domain, reason))?;
            let numbers = if forward.upstreams.is_empty() {
                all.clone()
            } else {
                self.numbers(&config, forward)?
            };
            routes.push(Route { domain, upstreams: numbers, mode: forward.mode });
        }
        routes.sort_by_key(|route| std::cmp::Reverse(route.domain.wire().len()));
        let mut routes_by_domain = DomainTable::default();
        // If two entries have the same domain, the first one applies.
        for (index, route) in routes.iter().enumerate().rev() {
            routes_by_domain.insert(&route.domain, index);
        }
        routes.push(Route { domain: LowerName::from_wire(&[0]), upstreams: all, mode: None });
        let upstream_sets =
            UpstreamSets::new(routes.iter().map(|route| (&route.domain, &route.upstreams[..])));
        let ttl = ttl_limits(&config.cache);
        if config.threads == 0 {
            config.threads = net::affinity::allowed_cpus().len().clamp(1, MAX_THREADS);
        }
        let follows_system = config.upstreams.is_empty();
        if follows_system {
            config.upstreams = upstreams.iter().map(|u| UpstreamKeys::new(u.address)).collect();
        }
        let validator = self.validator(&config)?;
        Ok(Settings {
            validate: config.dnssec.validate,
            signatures: SignatureSupport::default(),
            config,
            source: self.file.into(),
            policies,
            clients,
            upstreams,
            follows_system,
            left_out: Vec::new(),
            without_zone: Vec::new(),
            routes,
            routes_by_domain,
            upstream_sets,
            ttl,
            validator,
            upstream_connections: UPSTREAM_CONNECTIONS,
            origin,
        })
    }

    /// Returns the validator if validation is turned on.
    fn validator(&self, config: &Config) -> Result<Option<Arc<Validator>>, ConfigError> {
        let keys = &config.dnssec;
        if keys.validate == Validate::No {
            return Ok(None);
        }
        let anchors = match &keys.trust_anchors {
            None => TrustAnchors::root(),
            Some(path) => {
                let file = path.get_ref();
                let text = read_file(file).map_err(|error| {
                    self.invalid(path, format!("cannot read {}: {error}", file.display()))
                })?;
                let read = match text.trim_start().starts_with('<') {
                    true => TrustAnchors::from_xml(&text, clock::wall().0 / Nanos::SECOND.0),
                    false => TrustAnchors::from_lines(&text),
                };
                read.map_err(|error| self.invalid(path, format!("{}: {error}", file.display())))?
            }
        };
        let name_of = |domain: &str| {
            let octets = domain_name(domain)?.wire().to_vec();
            dnssec::Name::from_octets(octets.into()).map_err(|error| error.to_string())
        };
        let mut negative = Vec::new();
        for written in &keys.negative_trust_anchors {
            let anchor = written.get_ref();
            let read = name_of(anchor.domain()).and_then(|name| Ok((name, anchor.until()?)));
            negative.push(read.map_err(|reason| self.invalid(written, reason))?);
        }
        for forward in config.forwards.iter().filter(|forward| !forward.validate) {
            let name = name_of(forward.domain.get_ref());
            negative.push((name.map_err(|reason| self.invalid(&forward.domain, reason))?, None));
        }
        let anchors = anchors.with_negative(negative);
        Ok(Some(Arc::new(Validator::new(anchors, Limits::default(), VALIDATOR_OCTETS))))
    }

    fn numbers(&self, config: &Config, forward: &ForwardKeys) -> Result<Vec<usize>, ConfigError> {
        let number = |name: &Spanned<String>| {
            config.upstreams.iter().position(|u| u.is_called(name.get_ref())).ok_or_else(|| {
                let reason =
                    format!("no [[upstream]] has the name or address '{}'", name.get_ref());
                self.invalid(name, reason)
            })
        };
        forward.upstreams.iter().map(number).collect()
    }

    fn check_values(
        &self,
        config: &Config,
        clients: &Networks<IpNet>,
        upstreams: &[Upstream],
    ) -> Result<(), ConfigError> {
        if let Some(net) = covers_all_clients(clients).filter(|_| !config.access.open_resolver) {
            let reason = format!(
                "access.allow covers {net}, which makes an open resolver; list your clients' addresses, or set access.open-resolver = true"
            );
            return Err(self.at_path("access.allow", reason));
        }
        let is_own = |upstream: &Upstream| is_own(&self.listen, upstream.address);
        if let Some(number) = upstreams.iter().position(is_own) {
            let reason = format!("the upstream {} is dns64d itself", upstreams[number].address);
            return Err(self.at_path(&format!("upstream.{number}"), reason));
        }
        self.check_listen(config)?;
        if config.threads > MAX_THREADS {
            return Err(self.at_path("threads", format!("at most {MAX_THREADS} threads")));
        }
        if config.cache.stale_at_once && config.cache.serve_stale.is_zero() {
            let reason =
                "stale-at-once needs serve-stale, the time limit; for example serve-stale = \"1h\"";
            return Err(self.at_path("cache.stale-at-once", reason.into()));
        }
        self.check_numbers(config)?;
        let fault = observe::fault(&config.control, &config.query_log, &config.dnstap);
        if let Some((path, reason)) = fault {
            return Err(self.at_path(path, reason));
        }
        for upstream in &config.upstreams {
            let weight = *upstream.weight.get_ref();
            if !(1..=1_000_000).contains(&weight) {
                let reason = format!("weight must be 1 to 1000000, not {weight}");
                return Err(self.invalid(&upstream.weight, reason));
            }
            if *upstream.port.get_ref() == 0 {
                return Err(self.invalid(&upstream.port, "port must be 1 to 65535, not 0".into()));
            }
        }
        Ok(())
    }

    /// Checks the listen addresses.
    fn check_listen(&self, config: &Config) -> Result<(), ConfigError> {
        let at = |number: usize, reason| Err(self.at_path(&format!("listen.{number}"), reason));
        for (number, keys) in config.listen.iter().enumerate() {
            let address = keys.address;
            if let Some(reason) = lack_of_zone(address.host()) {
                return at(number, reason);
            }
            if config.listen[..number].iter().any(|before| before.conflicts_with(keys)) {
                return at(number, format!("{address} is listed twice"));
            }
            if let Some((key, reason)) = keys.fault() {
                let path = format!("listen.{number}");
                let path = if key.is_empty() { path } else { format!("{path}.{key}") };
                return Err(self.at_path(&path, reason));
            }
        }
        Ok(())
    }

    /// Checks that sizes, times and numbers in `[cache]`, `[forwarding]` and `[limits]` are within
    /// their bounds.
    fn check_numbers(&self, config: &Config) -> Result<(), ConfigError> {
        self.check_probes(config)?;
        let between = |path: &str, value: u128, least: u128, most: u128, unit: &str| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let key = path.rsplit('.').next().unwrap_or(path);
            let reason = format!("{key} must be {least} to {most}{unit}, not {value}");
            Err(self.at_path(path, reason))
        };
        between("cache.mebibytes", config.cache.mebibytes.into(), 0, 1 << 20, " (1 TiB)")?;
        between(
            "cache.failure-ttl",
            config.cache.failure_ttl.into(),
            1,
            MOST_FAILURE_TTL,
            " seconds (RFC 9520)",
        )?;
        let (least, most) = (u128::from(config.cache.failure_ttl), MOST_FAILURE_TTL);
        between(
            "cache.failure-max-ttl",
            config.cache.failure_max_ttl.into(),
            least,
            most,
            " seconds (failure-ttl; RFC 9520)",
        )?;
        between(
            "cache.min-ttl",
            config.cache.min_ttl.into(),
            0,
            u128::from(config.cache.max_ttl),
            " seconds (max-ttl)",
        )?;
        // Two lookups in sequence must take less than five seconds, after which clients retry.
        between("forwarding.timeout", config.forwarding.timeout.as_millis(), 100, 1_900, " ms")?;
        between("forwarding.source-ports", config.forwarding.source_ports.into(), 1, 4_096, "")?;
        between("local.ttl", config.local.ttl.into(), 0, 86_400, " seconds")?;
        between("local.reverse-ttl", config.local.reverse_ttl.into(), 0, 86_400, " seconds")?;
        between("limits.in-flight", config.limits.in_flight as u128, 1, 1 << 24, "")?;
        between("limits.tcp-connections", config.limits.tcp_connections as u128, 1, 1 << 20, "")?;
        between("limits.tcp-per-client", config.limits.tcp_per_client as u128, 1, 1 << 20, "")?;
        between("limits.tcp-idle", config.limits.tcp_idle.as_millis(), 100, 86_400_000, " ms")?;
        between("limits.tcp-pipeline", config.limits.tcp_pipeline as u128, 1, 10_000, "")
    }

    /// Checks the settings for health checks of prefixes, and the names of prefixes. If an entry with `prefix =
    /// "discover"` exists, also checks that `[discovery]` has a source.
    fn check_probes(&self, config: &Config) -> Result<(), ConfigError> {
        for (path, prefix) in prefix_locations(config) {
            if let Some(probe) = prefix.probe() {
                let (interval, timeout) = (probe.interval.as_millis(), probe.timeout.as_millis());
                let is_right = (1_000..=86_400_000).contains(&interval)
                    && (100..=interval).contains(&timeout)
                    && (1..=100).contains(&probe.threshold)
                    && probe.port > 0;
                if !is_right {
                    let reason = "a probe needs a port, an interval of 1s to 1day, a timeout of 100ms to the interval, and a threshold of 1 to 100";
                    return Err(self.at_path(&format!("{path}.probe"), reason.to_owned()));
                }
            }
            let same =
                |other: &&PrefixKeys| other.name().is_some() && other.name() == prefix.name();
            let differs = |other: &PrefixKeys| !other.is_same_prefix(prefix);
            if let Some(name) = prefix.name()
                && config.written_prefixes().filter(same).any(differs)
            {
                let reason = format!("two prefixes have the name '{name}'");
                return Err(self.at_path(&format!("{path}.name"), reason));
            }
            let nowhere = !config.discovery.upstreams && config.discovery.interfaces.is_empty();
            if prefix.is_discovered() && nowhere {
                let reason =
                    "prefix = \"discover\", but [discovery] has neither upstreams nor interfaces";
                return Err(self.at_path(&path, reason.to_owned()));
            }
        }
        Ok(())
    }

    fn invalid<T>(&self, value: &Spanned<T>, reason: String) -> ConfigError {
        self.at(value.span().start, reason)
    }

    /// Returns an error with the line of a key such as `cache.min-ttl`. If the file does not
    /// contain the key, the error gives the line of the table.
    fn at_path(&self, path: &str, reason: String) -> ConfigError {
        let line = line_of(self.text, path);
        ConfigError::Invalid { file: self.file.into(), line, reason }
    }

    /// Returns an error with the line where the invalid entry of a list of networks first occurs.
    fn bad_list(&self, BadList { word, reason }: BadList) -> ConfigError {
        let quoted =
            ['"', '\''].iter().find_map(|quote| self.text.find(&format!("{quote}{word}{quote}")));
        self.at(quoted.or_else(|| self.text.find(&word)).unwrap_or(0), reason)
    }

    fn at(&self, offset: usize, reason: String) -> ConfigError {
        let line = self.text[..offset.min(self.text.len())].matches('\n').count() + 1;
        ConfigError::Invalid { file: self.file.into(), line, reason }
    }
}

/// Returns the addresses in `served`, or the configured listen addresses if `served` is empty.
fn addresses(config: &Config, served: &[ServiceAddr]) -> Vec<ServiceAddr> {
    if served.is_empty() { config.addresses().collect() } else { served.to_vec() }
}

/// Returns the times for which answers and failures are cached and served.
fn ttl_limits(cache: &CacheKeys) -> TtlLimits {
    TtlLimits {
        min: cache.min_ttl,
        max: cache.max_ttl,
        negative_max: cache.negative_max_ttl,
        failure: cache.failure_ttl,
        failure_max: cache.failure_max_ttl,
        stale: (!cache.serve_stale.is_zero()).then_some(cache.serve_stale),
        stale_at_once: cache.stale_at_once,
        prefetch: cache.prefetch,
    }
}

/// Returns the path of the control socket in a configuration file, or `None` if the file contains no such path. The
/// other settings in the file need not be valid for this machine or this user.
///
/// # Errors
/// Returns an error if the file cannot be read, or is not a configuration.
pub(crate) fn control_socket(file: &Path) -> Result<Option<PathBuf>, ConfigError> {
    let text = read_file(file).map_err(|source| ConfigError::Read { file: file.into(), source })?;
    Ok(read(&text, file)?.control.socket)
}

/// Maximum time for which failures may be cached, in seconds (RFC 9520 §3.2).
const MOST_FAILURE_TTL: u128 = 300;

/// Returns a network in `clients` that is too large for a single operator: its prefix is shorter than 8 bits, and it is
/// not fc00::/7. Returns `None` if there is none.
pub(super) fn covers_all_clients(clients: &Networks<IpNet>) -> Option<IpNet> {
    let unique_local: IpNet = "fc00::/7".parse().expect("a constant");
    // The networks are aggregated, so that two halves of the address space count as the whole
    // address space.
    IpNet::aggregate(&clients.included())
        .into_iter()
        .find(|net| net.prefix_len() < 8 && *net != unique_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPSTREAM: &str = "[[upstream]]\naddress = '192.0.2.1'\n";

    fn read(text: &str) -> Result<Settings, ConfigError> {
        Settings::from_text(text, Path::new("test.toml"))
    }

    fn name(text: &str) -> LowerName {
        text.parse().unwrap()
    }

    fn refused(text: &str) -> String {
        read(text).expect_err(text).to_string()
    }

    fn parsed(addresses: &[&str]) -> Vec<ServiceAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn beside(text: &str, served: &[&str], resolv_conf: &str) -> Result<Settings, ConfigError> {
        Settings::from_origin(
            Path::new("test.toml"),
            Origin {
                text: text.to_owned(),
                served: parsed(served),
                listen: Vec::new(),
                resolv_conf: ResolvConf::Text(resolv_conf.to_owned()),
            },
        )
    }

    #[test]
    fn given_listen_addresses_replace_those_of_the_file() {
        let addresses = |listen: &[&str]| {
            let origin = Origin {
                text: format!("listen = ['[::1]:53']\n{UPSTREAM}"),
                served: Vec::new(),
                listen: parsed(listen),
                resolv_conf: ResolvConf::Text(String::new()),
            };
            let settings = Settings::from_origin(Path::new("test.toml"), origin).unwrap();
            settings.config.addresses().map(|address| address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(addresses(&[]), ["[::1]:53"]);
        assert_eq!(addresses(&["127.0.0.1:54", "[::1]:54"]), ["127.0.0.1:54", "[::1]:54"]);
    }

    #[test]
    fn system_upstreams_are_used_without_this_server() {
        let system = "nameserver ::1\nnameserver 192.0.2.1\nnameserver 2001:db8::53\n";
        let asked = |settings: &Settings| {
            settings.upstreams.iter().map(|u| u.address.to_string()).collect::<Vec<_>>()
        };
        let settings = beside("listen = ['[::1]:53']\n", &[], system).unwrap();
        assert_eq!(asked(&settings), ["192.0.2.1:53", "[2001:db8::53]:53"]);
        assert!(settings.follows_system);
        let words = "upstreams of /etc/resolv.conf: 192.0.2.1:53, [2001:db8::53]:53; skipped (this server itself): [::1]:53";
        assert_eq!(settings.upstreams_in_words(), words);
        // Sockets passed by systemd override `listen`.
        let settings = beside("", &["[::1]:53"], system).unwrap();
        assert_eq!(asked(&settings), ["192.0.2.1:53", "[2001:db8::53]:53"]);
        let settings = beside("listen = ['[::1]:53']\n", &["192.0.2.1:53"], system).unwrap();
        assert_eq!(asked(&settings), ["[::1]:53", "[2001:db8::53]:53"]);
        // Configured upstreams override resolv.conf, and must not be this server either.
        let settings = beside(UPSTREAM, &[], "nameserver 192.0.2.7\n").unwrap();
        assert_eq!(settings.upstreams_in_words(), "upstreams of the configuration: 192.0.2.1:53");
        let error = beside(UPSTREAM, &["192.0.2.1:53"], system).unwrap_err().to_string();
        assert!(error.starts_with("test.toml:1:") && error.contains("itself"), "{error}");
    }

    /// The name servers of resolv.conf are queried "in the order listed" (resolv.conf(5)).
    #[test]
    fn order_of_upstreams_depends_on_their_source() {
        let system = "nameserver 192.0.2.1\nnameserver 2001:db8::53\n";
        let listed = format!("{UPSTREAM}[forwarding]\norder = 'listed'\n");
        for (text, expected) in [
            ("", UpstreamOrder::Listed),
            ("[forwarding]\norder = 'fastest'\n", UpstreamOrder::Fastest),
            (UPSTREAM, UpstreamOrder::Fastest),
            (listed.as_str(), UpstreamOrder::Listed),
        ] {
            let settings = beside(text, &[], system).unwrap();
            assert_eq!(settings.upstream_order(), expected, "{text}");
        }
    }

    #[test]
    fn no_upstream_causes_a_warning_with_the_reason() {
        let text = |text: &str| ResolvConf::Text(text.to_owned());
        let settings = beside("listen = ['[::1]:53']\n", &[], "nameserver 192.0.2.1\n").unwrap();
        assert!(settings.no_upstream().is_none() && settings.warnings().is_empty());
        for (resolv_conf, reason) in [
            (text(""), "names none"),
            (text("search example.org\n"), "names none"),
            (text("nameserver ::1\n"), "names only this server itself ([::1]:53)"),
            (text("nameserver fe80::1\n"), "names only link-local addresses without a zone"),
            (
                ResolvConf::Unreadable("Permission denied".into()),
                "cannot be read: Permission denied",
            ),
        ] {
            let settings = settings.with_resolv_conf(resolv_conf).unwrap();
            let warning = settings.warnings().concat();
            assert!(warning.contains(reason) && warning.contains("test.toml"), "{warning}");
            assert!(settings.follows_system && settings.upstreams.is_empty());
            assert!(
                settings.upstreams_in_words().starts_with("upstreams of /etc/resolv.conf: none")
            );
            assert!(settings.routes.iter().all(|route| route.upstreams.is_empty()));
        }
        // The suggested lines are valid.
        assert!(!read(UPSTREAM_LINES).unwrap().follows_system);
    }

    #[test]
    fn following_resolv_conf_keeps_other_settings() {
        let before = beside("threads = 3\n", &["[::1]:53"], "nameserver 192.0.2.1\n").unwrap();
        let now = "nameserver ::1\nnameserver 192.0.2.2\n".to_owned();
        let after = before.with_resolv_conf(ResolvConf::Text(now)).unwrap();
        let words =
            "upstreams of /etc/resolv.conf: 192.0.2.2:53; skipped (this server itself): [::1]:53";
        assert_eq!(after.upstreams_in_words(), words);
        assert_eq!(after.config.threads, 3);
        let configured = read(UPSTREAM).unwrap();
        let same =
            configured.with_resolv_conf(ResolvConf::Text("nameserver ::1\n".into())).unwrap();
        assert_eq!(same.upstreams, configured.upstreams);
    }

    #[test]
    fn item_49_zones_are_kept_and_needed() {
        let listen = "listen = ['[fe80::1%eth0]:53', '[fe80::1%eth1]:53']\nmetrics.listen = '[fe80::1%3]:9153'\n";
        let upstream = "[[upstream]]\naddress = 'fe80::2%eth0'\nname = 'link'\n";
        let forward = "[[forward]]\ndomain = '.'\nupstreams = ['fe80::2%eth0']\n";
        let settings = read(&format!("{listen}{upstream}{forward}")).unwrap();
        let words = "upstreams of the configuration: [fe80::2%eth0]:53";
        assert_eq!(settings.upstreams_in_words(), words);
        let toml = settings.to_toml();
        for text in ["[fe80::1%eth0]:53", "[fe80::1%eth1]:53", "[fe80::1%3]:9153", "fe80::2%eth0"] {
            assert!(toml.contains(&format!("\"{text}\"")), "{toml}");
        }
        assert_eq!(read(&toml).unwrap().to_toml(), toml);
        for (text, line, reason) in [
            ("[[upstream]]\naddress = 'fe80::2'\n", "line 2", "\"fe80::2%eth0\""),
            ("[[upstream]]\naddress = '2001:db8::2%eth0'\n", "line 2", "link-local"),
            ("[[upstream]]\naddress = 'fe80::2%'\n", "line 2", "interface"),
            ("\nlisten = ['[fe80::1]:53']\n", "test.toml:2", "\"fe80::1%eth0\""),
            ("metrics.listen = '[fe80::1]:9153'\n", "line 1", "\"fe80::1%eth0\""),
            (
                "listen = ['[fe80::2%eth0]:53']\n[[upstream]]\naddress = 'fe80::2%eth0'\n",
                "test.toml:2",
                "itself",
            ),
        ] {
            let error = refused(text);
            assert!(error.contains(line) && error.contains(reason), "{error}");
        }
        let settings = beside("", &[], "nameserver fe80::7\nnameserver fe80::8%eth0\n").unwrap();
        let warnings = settings.warnings().concat();
        assert!(
            warnings.contains("fe80::7 is a link-local") && !warnings.contains("fe80::8"),
            "{warnings}"
        );
    }

    #[test]
    fn item_13_the_well_known_prefix_is_the_default() {
        let settings = read(UPSTREAM).unwrap();
        let policy = settings.policy("10.0.0.1".parse().unwrap(), &name("a.test"));
        assert_eq!(*policy.mappings[0].prefix(), Prefix::WELL_KNOWN);
        assert!(policy.excludes("::ffff:1.2.3.4".parse().unwrap()), "item 9");
        assert!(settings.config.addresses().eq(["[::1]:5380".parse().unwrap()]));
    }

    #[test]
    fn max_ttl_bounds_local_answers() {
        let max_ttl = |text: &str| {
            let settings = read(&format!("{UPSTREAM}{text}")).unwrap();
            settings.policy("10.0.0.1".parse().unwrap(), &name("a.test")).zones.max_ttl
        };
        assert_eq!(max_ttl(""), 86_400);
        assert_eq!(max_ttl("[cache]\nmax-ttl = 300\n"), 300);
    }

    #[test]
    fn item_12_bad_prefixes_are_refused_with_file_and_line() {
        let text = format!("{UPSTREAM}\n[dns64]\nprefixes = [{{ prefix = '64:ff9b::/72' }}]\n");
        let error = refused(&text);
        assert!(
            error.starts_with("test.toml")
                && error.contains("line 5")
                && error.contains("32, 40, 48, 56"),
            "{error}"
        );
        let text = format!(
            "{UPSTREAM}[dns64]\nprefixes = [{{ prefix = '64:ff9b::/96', suffix = '::1' }}]\n"
        );
        assert!(refused(&text).contains("overlaps"), "{}", refused(&text));
    }

    #[test]
    fn unknown_keys_are_errors_everywhere() {
        for text in [
            "lisen = []",
            "[dns64]\nprefix = '64:ff9b::/96'",
            "[dns64]\nprefixes = [{ prefix = '64:ff9b::/96', range = [] }]",
            "[cache]\nsize = 1",
            "[[group]]\nclients = []\nprefixes = []",
            "[[forward]]\ndomain = 'a'\nupstream = []",
        ] {
            let error = refused(text);
            assert!(
                error.starts_with("test.toml:") && error.contains("has no key"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn item_42_open_resolver_needs_confirmation() {
        for open in
            ["0.0.0.0/0", "::/0", "2000::/3", "0.0.0.0/1', '128.0.0.0/1", "::/1', '8000::/1"]
        {
            let text = format!("{UPSTREAM}[access]\nallow = ['{open}']\n");
            let error = refused(&text);
            assert!(
                error.starts_with("test.toml:4:") && error.contains("open resolver"),
                "{error}"
            );
            assert!(read(&text.replace("[access]", "[access]\nopen-resolver = true")).is_ok());
        }
        let settings = read(UPSTREAM).unwrap();
        for (client, allowed) in [
            ("127.0.0.1", true),
            ("192.168.1.1", true),
            ("fd00::1", true),
            ("8.8.8.8", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(settings.allows(client.parse().unwrap()), allowed, "{client}");
        }
    }

    #[test]
    fn item_41_groups_differ_where_they_say_so() {
        let settings = read(&format!(
            "{UPSTREAM}[dns64]\nbreak-dnssec = true\n[[group]]\nclients = ['10.1.0.0/16']\ndns64.prefixes = []\n\
             [[group]]\nclients = ['10.0.0.0/8']\n[group.dns64]\nprefixes = [{{ prefix = '2001:db8::/32', suffix = '::1' }}]\n"
        ))
        .unwrap();
        let policy = |client: &str| settings.policy(client.parse().unwrap(), &name("a.test"));
        assert!(!policy("10.1.2.3").synthesizes());
        assert_eq!(policy("10.2.2.3").mappings[0].prefix().len(), 32);
        assert!(policy("10.2.2.3").break_dnssec);
        assert_eq!(*policy("192.168.0.1").mappings[0].prefix(), Prefix::WELL_KNOWN);
    }

    #[test]
    fn a_single_address_needs_no_length() {
        let settings = read(&format!(
            "{UPSTREAM}[access]\nallow = ['192.0.2.1', '2001:db8::1', '10.0.0.0/8']\n[dns64]\nexclude = ['2001:db8::7']\n\
             prefixes = [{{ prefix = '2001:db8:64::/96', ranges = ['192.0.2.9'] }}]\n\
             [[group]]\nclients = ['10.0.0.1']\ndns64.prefixes = []\n"
        ))
        .unwrap();
        for (client, allowed) in [
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("2001:db8::1", true),
            ("2001:db8::2", false),
        ] {
            assert_eq!(settings.allows(client.parse().unwrap()), allowed, "{client}");
        }
        let policy = settings.policy("10.0.0.2".parse().unwrap(), &name("a.test"));
        assert!(
            policy.excludes("2001:db8::7".parse().unwrap())
                && !policy.excludes("2001:db8::8".parse().unwrap())
        );
        assert!(policy.carries("192.0.2.9".parse().unwrap()));
        assert!(!policy.carries("192.0.2.8".parse().unwrap()));
        assert!(!settings.policy("10.0.0.1".parse().unwrap(), &name("a.test")).synthesizes());
        let error =
            refused(&format!("{UPSTREAM}[access]\nallow = [\n  '10.0.0.0/8',\n  '10.0.0'\n]\n"));
        assert!(error.contains("line 6") && error.contains("192.0.2.0/24"), "{error}");
    }

    #[test]
    fn stale_answers_come_before_a_client_gives_up() {
        let timeout =
            |text: &str| read(&format!("{text}{UPSTREAM}")).unwrap().timeout().as_millis();
        assert_eq!(timeout("[forwarding]\ntimeout = '1900ms'\n"), 1_900);
        assert_eq!(
            timeout("[forwarding]\ntimeout = '1900ms'\n[cache]\nserve-stale = '1h'\n"),
            1_750
        );
    }

    #[test]
    fn routes_are_found_by_their_longest_domain() {
        let settings = read(
            "[[upstream]]\naddress = '192.0.2.1'\n[[upstream]]\naddress = '192.0.2.2'\nport = 5300\nname = 'b'\n\
             [[forward]]\ndomain = 'example.org'\nupstreams = ['b']\n[[forward]]\ndomain = 'sub.example.org'\nmode = 'nodata-only'\n",
        )
        .unwrap();
        let route = |text: &str| &settings.routes[settings.route(name(text).wire()).0];
        assert_eq!(route("www.Example.org").upstreams, [1]);
        assert_eq!(route("a.sub.example.org").mode, Some(Mode::NodataOnly));
        assert_eq!(route("a.sub.example.org").upstreams, [0, 1]);
        assert_eq!(route("notexample.org").upstreams, [0, 1]);
        assert_eq!(settings.upstreams[1].address, "192.0.2.2:5300".parse().unwrap());
        let error =
            refused(&format!("{UPSTREAM}[[forward]]\ndomain = 'a'\nupstreams = ['nobody']\n"));
        assert!(error.starts_with("test.toml:5:") && error.contains("nobody"), "{error}");
    }

    #[test]
    fn values_out_of_range_and_loops_are_refused() {
        for (text, what, line) in [
            ("[cache]\nfailure-ttl = 0\n", "failure-ttl", 2),
            ("[cache]\nfailure-ttl = 301\n", "failure-ttl", 2),
            ("[cache]\nfailure-max-ttl = 301\n", "failure-max-ttl", 2),
            ("[cache]\nfailure-max-ttl = 4\n", "failure-max-ttl", 2),
            ("[cache]\nmin-ttl = 90000\n", "min-ttl", 2),
            ("# timeout = '5s'\n[forwarding]\n\ntimeout = '5s' # timeout\n", "timeout", 4),
            ("forwarding.timeout = '5s'\n", "timeout", 1),
            ("threads = 1000\n", "threads", 1),
            ("[cache]\nstale-at-once = true\n", "needs serve-stale", 2),
            ("limits = { in-flight = 0 }\n", "in-flight", 1),
            ("limits = { tcp-idle = '0s' }\n", "tcp-idle", 1),
            ("limits = { tcp-connections = 0 }\n", "tcp-connections", 1),
            ("limits = { tcp-per-client = 0 }\n", "tcp-per-client", 1),
            ("listen = ['192.0.2.1:53']\n", "itself", 2),
            ("listen = ['0.0.0.0:53']\n[[upstream]]\naddress = '127.0.0.1'\n", "itself", 2),
            (
                "[[upstream]]\naddress = '192.0.2.2'\nweight = 3\n[[upstream]]\naddress = '::1'\nweight = 0\n",
                "weight",
                6,
            ),
            (
                "[[upstream]]\naddress = '192.0.2.2'\nport = 53\n[[upstream]]\naddress = '::1'\nport = 0\n",
                "port",
                6,
            ),
        ] {
            let error = refused(&format!("{text}{UPSTREAM}"));
            assert!(
                error.contains(what) && error.starts_with(&format!("test.toml:{line}:")),
                "{error}"
            );
        }
    }

    #[test]
    fn the_effective_configuration_means_the_same() {
        let settings = read(&format!(
            "{UPSTREAM}[dns64]\nprefixes = [{{ prefix = '2001:db8::/32', suffix = '::1' }}]\n"
        ))
        .unwrap();
        let again = read(&settings.to_toml()).unwrap();
        assert_eq!(again.to_toml(), settings.to_toml());
        assert_eq!(format!("{:?}", again.policies), format!("{:?}", settings.policies));
    }
}
