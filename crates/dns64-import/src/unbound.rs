//! Conversion of Unbound's unbound.conf.
//!
//! In `access-control`, the most specific network decides. The dns64 module of Unbound has no list of AAAA records to
//! exclude. It queries for A records even after errors, and ignores the DO bit.

mod clauses;
mod dnssec;
mod listen;

use std::path::Path;

use ipnet::IpNet;
use toml::Value;

use self::clauses::{Clause, Clauses, Entry};
use super::addresses::{Addresses, most_specific, network};
use super::draft::{Draft, Located, Origin, PrefixDraft};
use super::error::ImportError;
use super::files::called;
use super::local_zones::{is_lan_reverse_zone, standard_local_zones};
use super::notes::Location;
use super::prefix;
use super::values::{mebibytes, seconds, socket};

/// Keys in the clause `server` that do not affect answers. An entry matches all key names that begin with its text.
const IDLE: &[&str] = &[
    "aggressive-nsec",
    "cache-min-negative-ttl",
    "chroot",
    "delay-close",
    "directory",
    "discard-timeout",
    "do-daemonize",
    "do-ip",
    "do-nat64",
    "do-not-query",
    "do-tcp",
    "do-udp",
    "ede",
    "edns-buffer-size",
    "edns-tcp",
    "extended-statistics",
    "fast-server",
    "harden-",
    "hide-",
    "http",
    "identity",
    "incoming-num-tcp",
    "infra-",
    "ip-dscp",
    "ip-freebind",
    "ip-transparent",
    "jostle-timeout",
    "key-cache",
    "log-",
    "logfile",
    "low-rtt",
    "max-udp-size",
    "minimal-responses",
    "msg-buffer-size",
    "msg-cache-slabs",
    "neg-cache-size",
    "num-queries-per-thread",
    "outgoing",
    "pad-responses",
    "pidfile",
    "prefer-ip",
    "prefetch",
    "qname-minimisation",
    "quic",
    "root-hints",
    "rrset-",
    "so-",
    "ssl-",
    "statistics",
    "target-fetch-policy",
    "tcp-",
    "tls-",
    "use-syslog",
    "verbosity",
];

/// Types of `local-zone` for which names without local data are still resolved.
const RESOLVED: &[&str] =
    &["always_transparent", "inform", "nodefault", "noview", "transparent", "typetransparent"];
/// Local zones that are built into Unbound, and that dns64d answers locally in every configuration.
const FIXED: [&str; 3] = ["localhost", "invalid", "onion"];

/// Converts an unbound.conf. The result is added to `draft`.
pub(super) fn import(file: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let clauses = Clauses::of(file)?;
    let directory = clauses.directory.clone();
    let mut server = Clause {
        location: Location::new(&called(file), 1),
        name: "server".into(),
        entries: Vec::new(),
    };
    let (of_server, others): (Vec<Clause>, Vec<Clause>) =
        clauses.all.into_iter().partition(|clause| clause.name == "server");
    server.entries.extend(of_server.into_iter().flat_map(|clause| clause.entries));
    for clause in others {
        match clause.name.as_str() {
            "forward-zone" => forward_zone(&clause, &server, draft),
            "remote-control" | "dnstap" | "cachedb" => (),
            name => draft.notes.answers(
                &clause.location,
                name,
                "dns64d only forwards to resolvers, and has no zones, views or scripts",
            ),
        }
    }
    dnssec::import(&server, &directory, draft);
    translation(&server, draft);
    local_zones(&server, draft);
    listen::import(&server, &directory, draft);
    access(&server, draft);
    server.entries.iter().for_each(|entry| setting(entry, &server, draft));
    Ok(())
}

fn forward_zone(clause: &Clause, server: &Clause, draft: &mut Draft) {
    let name = clause.find("name").map_or(".", |entry| entry.value()).to_owned();
    let over_tls = ["forward-tls-upstream", "forward-ssl-upstream"]
        .iter()
        .find_map(|key| clause.find(key))
        .or_else(|| ["tls-upstream", "ssl-upstream"].iter().find_map(|key| server.find(key)))
        .filter(|entry| entry.is_yes());
    if let Some(entry) = over_tls {
        let why = "dns64d queries only over UDP and TCP: name a resolver that answers there";
        return draft.notes.answers(&entry.location, &format!("{name} {}", entry.written()), why);
    }
    let mut upstreams = Vec::new();
    for entry in &clause.entries {
        let mut lost = |why: &str| draft.notes.answers(&entry.location, &entry.written(), why);
        match entry.key.as_str() {
            // `forward-tls-upstream: yes` was handled above, and `no` is the default.
            "name" | "forward-tls-upstream" | "forward-ssl-upstream" => (),
            "forward-addr" => match socket(entry.value(), 53) {
                Some(address) => upstreams.push(address),
                None => lost("not an address"),
            },
            "forward-host" => lost("use the resolver's address"),
            "forward-first" if entry.is_yes() => {
                lost("dns64d queries only its upstreams");
            }
            // The value "no" is the default of these keys.
            "forward-first" | "forward-no-cache" | "forward-tcp-upstream"
                if entry.value() == "no" => {}
            _ => lost("dns64d has no equivalent"),
        }
    }
    let origin = Origin::new(&clause.location, format!("forward-zone: {name}"));
    if upstreams.is_empty() {
        let why = "no usable address";
        return draft.notes.answers(&clause.location, &origin.words, why);
    }
    draft.forward(&name, &upstreams, &origin);
}

/// Converts the settings of the dns64 module, if the module is enabled.
fn translation(server: &Clause, draft: &mut Draft) {
    let modules = server.find("module-config");
    let Some(modules) = modules.filter(|entry| entry.has_word("dns64")) else {
        return;
    };
    let (prefix, origin) = match server.find("dns64-prefix") {
        Some(entry) => {
            let origin = entry.origin();
            let Some(prefix) = prefix::parse(entry.value()) else {
                let why = prefix::rejection(entry.value());
                return draft.notes.answers(&origin.location, &origin.words, why);
            };
            (prefix, origin)
        }
        None => (prefix::WELL_KNOWN, modules.origin()),
    };
    draft.translation.prefixes = vec![PrefixDraft { prefix, suffix: None, ranges: None, origin }];
    draft.translation.exclude = Some(Addresses::default());
    draft.translation.mode = Some("strict");
    draft.translation.flags = vec![("break-dnssec", true)];
    let known = ["dns64", "iterator", "validator"];
    for module in modules.values.iter().flat_map(|value| value.split_whitespace()) {
        if !known.contains(&module) {
            draft.notes.answers(&modules.location, module, "dns64d has no equivalent");
        }
    }
    if let Some(all) = server.find("dns64-synthall").filter(|entry| entry.is_yes()) {
        draft.add_ignore_aaaa(".", all.origin());
    }
    for some in server.entries.iter().filter(|entry| entry.key == "dns64-ignore-aaaa") {
        draft.add_ignore_aaaa(some.value(), some.origin());
    }
}

/// Converts the built-in local zones. A `local-zone` with the name of a built-in zone replaces that zone. A
/// `local-zone` may also have a name below a built-in zone. If the type of the `local-zone` does not block resolution,
/// its names are resolved, although the built-in zone contains them.
fn local_zones(server: &Clause, draft: &mut Draft) {
    let canonical = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
    let is_resolved =
        |entry: &&Entry| entry.values.last().is_some_and(|kind| RESOLVED.contains(&kind.as_str()));
    let opened: Vec<(String, &Entry)> = server
        .entries
        .iter()
        .filter(|entry| entry.key == "local-zone")
        .filter(is_resolved)
        .map(|entry| (canonical(entry.value()), entry))
        .collect();
    let unblocked = server.find("unblock-lan-zones").filter(|entry| entry.is_yes());
    // dns64d answers `local` locally, but Unbound has no built-in zone of this name.
    let blocks_local = server.entries.iter().any(|entry| {
        entry.key == "local-zone" && canonical(entry.value()) == "local" && !is_resolved(&entry)
    });
    let is_kept = |zone: &String| {
        (zone != "local" || blocks_local)
            && opened.iter().all(|(name, _)| name != zone)
            && !(unblocked.is_some() && is_lan_reverse_zone(zone))
    };
    let mut kept: Vec<String> = standard_local_zones().filter(is_kept).collect();
    let is_standard = kept.len() + usize::from(!blocks_local) == standard_local_zones().count();
    let origin = match unblocked.or_else(|| opened.first().map(|(_, entry)| *entry)) {
        Some(entry) if !is_standard => entry.origin(),
        _ => Origin::new(&server.location, "built-in local zones"),
    };
    if is_standard && !blocks_local {
        draft.add_root_domain(
            "local",
            Origin::new(&server.location, "local is not a built-in zone"),
        );
    }
    let value = match is_standard {
        true => Value::Boolean(true),
        false => Value::Array(kept.iter().cloned().map(Value::String).collect()),
    };
    draft.local_zones = Some(Located { value, origin });
    kept.extend(FIXED.map(str::to_owned));
    for (name, entry) in &opened {
        if kept.iter().any(|zone| is_at_or_below(name, zone)) {
            draft.add_root_domain(name, entry.origin());
        }
    }
    shadowed_forwards(&kept, &opened, draft);
}

/// Adds notes on forward zones within local zones. Unbound answers names in these zones locally, whereas dns64d queries
/// the upstreams of the forward zones.
fn shadowed_forwards(local: &[String], opened: &[(String, &Entry)], draft: &mut Draft) {
    let is_in = |domain: &str, zone: &str| {
        let is_open = |name: &str| is_at_or_below(domain, name) && is_at_or_below(name, zone);
        is_at_or_below(domain, zone) && !opened.iter().any(|(name, _)| is_open(name))
    };
    for forward in &draft.forwards {
        if let Some(zone) = local.iter().find(|zone| is_in(&forward.domain, zone)) {
            let why = format!("Unbound answers {zone} locally; dns64d queries these upstreams");
            draft.notes.answers(&forward.origin.location, &forward.origin.words, why);
        }
    }
}

fn is_at_or_below(name: &str, zone: &str) -> bool {
    name.strip_suffix(zone).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Converts the `access-control` entries. The most specific matching network decides. If a network occurs several
/// times, its last entry decides. Loopback is allowed by default.
fn access(server: &Clause, draft: &mut Draft) {
    let mut networks: Vec<(IpNet, bool)> =
        Addresses::loopback().networks().into_iter().map(|network| (network, true)).collect();
    let entries = || server.entries.iter().filter(|entry| entry.key == "access-control");
    for entry in entries() {
        let action = entry.values.get(1).map_or("", String::as_str);
        match network(entry.value()) {
            Some(network) => networks.push((network, action.starts_with("allow"))),
            None => draft.notes.answers(&entry.location, &entry.written(), "not a network"),
        }
        if action == "deny" {
            let why = "dns64d answers them with REFUSED";
            draft.notes.nothing(&entry.location, &entry.written(), why);
        }
    }
    let origin = match entries().next() {
        Some(entry) => Origin::new(&entry.location, "access-control"),
        None => Origin::new(&server.location, "no access-control: loopback only"),
    };
    draft.access = Some(Located { value: most_specific(networks), origin });
}

/// Converts a key of the clause `server` if no other function converts this key.
fn setting(entry: &Entry, server: &Clause, draft: &mut Draft) {
    let mut set = |table: &'static str, key: &'static str, value: Option<u64>| {
        draft.set_number(table, key, value, entry.origin());
    };
    match entry.key.as_str() {
        "access-control" | "dns64-ignore-aaaa" | "dns64-prefix" | "dns64-synthall"
        | "module-config" | "tls-upstream" | "ssl-upstream" | "unblock-lan-zones" => (),
        "cache-max-ttl" => set("cache", "max-ttl", seconds(entry.value())),
        "cache-min-ttl" => set("cache", "min-ttl", seconds(entry.value())),
        "cache-max-negative-ttl" => {
            set("cache", "negative-max-ttl", seconds(entry.value()));
        }
        "msg-cache-size" | "rrset-cache-size" => {
            let size = |key| server.find(key).map_or(Some(4), |entry| mebibytes(entry.value()));
            let sum = size("msg-cache-size").zip(size("rrset-cache-size"));
            set("cache", "mebibytes", sum.map(|(one, other)| one.saturating_add(other)));
        }
        "num-threads" => draft.set_threads(entry.value(), entry.origin()),
        "ip-ratelimit" => set("limits", "client-rate", entry.value().parse().ok()),
        "use-caps-for-id" => {
            draft.set("forwarding", "randomize-case", entry.is_yes(), entry.origin());
        }
        "prefetch" if entry.is_yes() => draft.set("cache", "prefetch", true, entry.origin()),
        "serve-expired" if entry.is_yes() => serve_expired(entry, server, draft),
        key if key.starts_with("serve-expired") => (),
        // The type `nodefault` only removes a built-in local zone, and these zones have already been converted.
        "local-zone" if entry.values.last().is_some_and(|kind| kind == "nodefault") => (),
        key if listen::CONVERTED.contains(&key) => (),
        _ if dnssec::setting(entry, draft) => (),
        key if IDLE.iter().any(|idle| key.starts_with(idle)) || key == "username" => {
            draft.notes.nothing(&entry.location, &entry.written(), "dns64d does not need it");
        }
        _ => draft.notes.answers(&entry.location, &entry.written(), "dns64d has no equivalent"),
    }
}

/// Converts the keys that control how long expired answers may be served, and whether a client first waits for a new
/// answer.
fn serve_expired(entry: &Entry, server: &Clause, draft: &mut Draft) {
    let ttl = server.find("serve-expired-ttl").and_then(|entry| seconds(entry.value()));
    // The value 0 means no limit.
    let time = match ttl {
        Some(0) => u64::MAX,
        ttl => ttl.unwrap_or(86_400),
    };
    draft.serve_stale(time, entry.origin());
    match server.find("serve-expired-client-timeout") {
        Some(patience) if patience.value() == "0" => {
            draft.set("cache", "stale-at-once", true, patience.origin());
        }
        Some(_) => (),
        None => {
            draft.set("cache", "stale-at-once", true, entry.origin());
            let why = "before Unbound 1.23, expired answers were served at once, as configured here; since then, after 1.8 s";
            draft.notes.nothing(&entry.location, &entry.written(), why);
        }
    }
}
