//! Conversion of the configuration of PowerDNS Recursor: recursor.conf (`key=value`) and, since
//! version 5, recursor.yml.
//!
//! In `allow-from`, the most specific network decides. PowerDNS Recursor has no list of AAAA records to exclude. It
//! ignores the DO bit.

mod dnssec;
mod settings;

use std::net::Ipv4Addr;
use std::path::Path;

use ipnet::IpNet;
use net::address::ServiceAddr;
use toml::Value;

use self::settings::{Setting, find, read_settings};
use super::addresses::{Addresses, most_specific, network};
use super::draft::{Draft, Located, Origin, PrefixDraft};
use super::error::ImportError;
use super::files::called;
use super::local_zones::standard_local_zones;
use super::notes::Location;
use super::prefix;
use super::values::socket;

/// Settings of PowerDNS Recursor that do not affect answers. An entry is the name of a setting, or the beginning of its
/// name.
const IDLE: &[&str] = &[
    "aggressive-",
    "allow-notify",
    "allow-trust-anchor-query",
    "any-to-tcp",
    "api-",
    "carbon-",
    "chroot",
    "client-tcp-timeout",
    "config-",
    "cpu-map",
    "daemon",
    "disable-packetcache",
    "disable-syslog",
    "distribution-",
    "distributor-threads",
    "dnssec-log-bogus",
    "dont-query",
    "dont-throttle",
    "dot-to-",
    "ecs-",
    "edns-",
    "entropy-source",
    "event-trace",
    "extended-resolution-errors",
    "gettag",
    "hint-file",
    "ignore-unknown-settings",
    "latency-statistic-size",
    "log",
    "lowercase-outgoing",
    "max-busy",
    "max-cache-bogus-ttl",
    "max-cache-entries",
    "max-dnskeys",
    "max-ds-per-zone",
    "max-generate",
    "max-include-depth",
    "max-mthreads",
    "max-ns",
    "max-packetcache-entries",
    "max-qperq",
    "max-recursion-depth",
    "max-rrs",
    "max-signature",
    "max-tcp-queries",
    "max-total-msec",
    "max-udp-queries",
    "network-timeout",
    "no-shuffle",
    "non-",
    "nothing-below-nxdomain",
    "packetcache-",
    "pdns-distributes-queries",
    "processes",
    "protobuf",
    "proxy-protocol",
    "public-suffix-list-file",
    "qname-",
    "query-local-address",
    "quiet",
    "record-cache",
    "refresh-on-ttl-perc",
    "reuseport",
    "rng",
    "save-parent-ns-set",
    "security-poll-suffix",
    "server-",
    "setgid",
    "setuid",
    "single-socket",
    "snmp-",
    "socket-",
    "spoof-nearmiss-max",
    "stack-size",
    "statistics-interval",
    "stats-",
    "structured-logging",
    "tcp-",
    "trace",
    "udp-",
    "version-string",
    "webserver",
    "write-pid",
];

/// Converts a configuration of PowerDNS Recursor. The result is added to `draft`.
pub(super) fn import(file: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let settings = read_settings(file)?;
    let location = Location::new(&called(file), 1);
    if settings.iter().all(|setting| setting.key != "dns64-prefix") {
        draft.notes.nothing(&location, "dns64-prefix", "there is none: translation is off");
    }
    dnssec::import(&settings, file, draft);
    reverse_zones(&settings, &location, draft);
    queries_without_rd(&settings, &location, draft);
    let port = settings.iter().rev().find(|setting| setting.key == "local-port");
    let port = port.and_then(|setting| setting.value().parse().ok()).unwrap_or(53);
    settings.iter().for_each(|setting| carry(setting, port, draft));
    if draft.listen.is_empty() {
        let origin = Origin::new(&location, "no local-address: loopback");
        draft.listen_at((Ipv4Addr::LOCALHOST, port).into(), origin);
    }
    Ok(())
}

/// Adds the reverse zones that PowerDNS Recursor answers locally. `serve-rfc1918=no` disables all
/// of them. `serve-rfc6303=no` disables all except those of private IPv4 addresses and loopback.
fn reverse_zones(settings: &[Setting], location: &Location, draft: &mut Draft) {
    let [private, others] = ["serve-rfc1918", "serve-rfc6303"].map(|key| find(settings, key));
    if private.is_some_and(Setting::is_off) {
        return;
    }
    if others.is_none() {
        let why = "the default since 5.1.3 is used; earlier versions resolve zones of RFC 6303 such as 113.0.203.in-addr.arpa and 8.b.d.0.1.0.0.2.ip6.arpa";
        draft.notes.answers(location, "serve-rfc6303", why);
    }
    let serves_others = !others.is_some_and(Setting::is_off);
    let is_served = |zone: &String| is_private_reverse(zone) || (serves_others && is_rfc6303(zone));
    let value = Value::Array(standard_local_zones().filter(is_served).map(Value::String).collect());
    let default = "serve-rfc1918=yes, serve-rfc6303=yes";
    let origin = others.or(private).map_or_else(|| Origin::new(location, default), Setting::origin);
    draft.local_zones = Some(Located { value, origin });
}

/// True if `zone` is a reverse zone within 10/8, 172.16/12 or 192.168/16 (RFC 1918), or 127/8.
fn is_private_reverse(zone: &str) -> bool {
    match octets(zone).as_deref() {
        Some([10 | 127] | [192, 168]) => true,
        Some([172, second]) => (16..32).contains(second),
        _ => false,
    }
}

/// True if `zone` is a reverse zone of RFC 6303. The reverse zones of 100.64/10 are defined in RFC
/// 7793, and PowerDNS Recursor does not answer them locally.
fn is_rfc6303(zone: &str) -> bool {
    match octets(zone).as_deref() {
        Some(octets) => !matches!(octets, [100, _]),
        None => zone.ends_with(".ip6.arpa"),
    }
}

/// Returns the octets of the IPv4 prefix that belongs to a reverse zone. The first octet of the prefix comes first, in
/// contrast to the name of the zone.
fn octets(zone: &str) -> Option<Vec<u8>> {
    let octets = zone.strip_suffix(".in-addr.arpa")?;
    octets.split('.').rev().map(|octet| octet.parse().ok()).collect()
}

/// Adds a note about queries with RD=0, which PowerDNS Recursor has refused by default since
/// version 5.0.
fn queries_without_rd(settings: &[Setting], location: &Location, draft: &mut Draft) {
    const REFUSED: &str = "PowerDNS Recursor refuses queries with RD=0; dns64d answers them";
    match find(settings, "allow-no-rd") {
        None => draft.notes.answers(location, "allow-no-rd=no (default since 5.0)", REFUSED),
        Some(setting) if setting.is_off() => lost(setting, REFUSED, draft),
        Some(setting) => {
            let why = "PowerDNS Recursor answers queries with RD=0 from its cache; dns64d answers them like others";
            lost(setting, why, draft);
        }
    }
}

fn carry(setting: &Setting, port: u16, draft: &mut Draft) {
    let value = setting.value();
    let mut set = |table: &'static str, key: &'static str| {
        draft.set_number(table, key, value.parse().ok(), setting.origin());
    };
    match setting.key.as_str() {
        "local-port" => (),
        "local-address" => listen(setting, port, draft),
        "allow-from" => access(setting, draft),
        "forward-zones" | "forward-zones-recurse" => forward(setting, draft),
        "dns64-prefix" => translate(setting, draft),
        "threads" => draft.set_threads(value, setting.origin()),
        "max-cache-ttl" => set("cache", "max-ttl"),
        "minimum-ttl-override" => set("cache", "min-ttl"),
        "max-negative-ttl" => set("cache", "negative-max-ttl"),
        "max-tcp-clients" => set("limits", "tcp-connections"),
        "max-tcp-per-client" if value == "0" => (),
        "max-tcp-per-client" => set("limits", "tcp-per-client"),
        "max-concurrent-requests-per-tcp-connection" => set("limits", "tcp-pipeline"),
        // The value is a number of extensions of 30 s each.
        "serve-stale-extensions" => {
            let times = value.parse::<u64>().unwrap_or(0);
            draft.serve_stale(times.saturating_mul(30), setting.origin());
        }
        _ if dnssec::setting(setting, draft) => (),
        "lua-dns-script"
        | "auth-zones"
        | "forward-zones-file"
        | "etc-hosts-file"
        | "export-etc-hosts-search-suffix"
        | "hint-file"
            if value.is_empty() => {}
        key if IDLE.iter().any(|idle| key.starts_with(idle)) => {
            draft.notes.nothing(&setting.location, &setting.written(), "dns64d does not need it");
        }
        // These settings are converted by other functions.
        "serve-rfc1918" | "serve-rfc6303" | "allow-no-rd" => (),
        "export-etc-hosts" if setting.is_off() => (),
        _ => lost(setting, "dns64d has no equivalent", draft),
    }
}

fn lost(setting: &Setting, why: &str, draft: &mut Draft) {
    draft.notes.answers(&setting.location, &setting.written(), why);
}

fn listen(setting: &Setting, port: u16, draft: &mut Draft) {
    for address in words(setting) {
        match socket(address, port) {
            Some(address) => draft.listen_at(address, setting.origin()),
            None => lost(setting, "not an address", draft),
        }
    }
}

/// Returns the words of a list. They are separated by commas, semicolons or blanks.
fn words(setting: &Setting) -> impl Iterator<Item = &str> {
    let parts = setting.values.iter().flat_map(|value| value.split([',', ';', ' ']));
    parts.filter(|word| !word.is_empty())
}

/// Converts an access list, in which the most specific matching network decides.
fn access(setting: &Setting, draft: &mut Draft) {
    let mut networks: Vec<(IpNet, bool)> = Vec::new();
    let mut is_empty = true;
    for word in words(setting) {
        is_empty = false;
        let (word, is_allowed) = match word.strip_prefix('!') {
            Some(word) => (word, false),
            None => (word, true),
        };
        match network(word) {
            Some(network) => networks.push((network, is_allowed)),
            None => lost(setting, &format!("'{word}' is not a network"), draft),
        }
    }
    // An empty list allows all clients.
    let value = if is_empty { Addresses::all() } else { most_specific(networks) };
    draft.access = Some(Located { value, origin: setting.origin() });
}

/// Converts a list of forward zones in the form `zone=address;address`.
fn forward(setting: &Setting, draft: &mut Draft) {
    for zone in setting.values.iter().filter(|value| !value.is_empty()) {
        let (name, servers) = zone.split_once('=').unwrap_or((zone, ""));
        let is_recursive = name.trim_start().starts_with('+') || setting.key.ends_with("recurse");
        let name = name.trim().trim_start_matches(['+', '^']);
        let mut upstreams: Vec<ServiceAddr> = Vec::new();
        for server in servers.split([';', ' ']).filter(|server| !server.is_empty()) {
            match socket(server, 53) {
                Some(address) => upstreams.push(address),
                None => lost(setting, &format!("'{server}' is not an address"), draft),
            }
        }
        if upstreams.is_empty() {
            lost(setting, "no usable address", draft);
        } else {
            let origin = Origin::new(&setting.location, zone.as_str());
            if !is_recursive {
                let why = "they are asked with RD, as resolvers: right where they answer for all of the zone";
                draft.notes.answers(&origin.location, &origin.words, why);
            }
            draft.forward(name, &upstreams, &origin);
        }
    }
}

fn translate(setting: &Setting, draft: &mut Draft) {
    if setting.value().is_empty() {
        return;
    }
    let Some(prefix) = prefix::parse(setting.value()) else {
        return lost(setting, prefix::rejection(setting.value()), draft);
    };
    let origin = setting.origin();
    draft.synthesizes_with_cd("PowerDNS Recursor", &origin);
    draft.translation.prefixes = vec![PrefixDraft { prefix, suffix: None, ranges: None, origin }];
    draft.translation.exclude = Some(Addresses::default());
    draft.translation.mode = Some("strict");
    draft.translation.flags = vec![("break-dnssec", true)];
}
