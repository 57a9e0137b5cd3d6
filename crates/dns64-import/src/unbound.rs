//! Unbound's unbound.conf: clauses (`server:`), and in them a key and its values on each line.
//!
//! Of `access-control` the most specific network decides. The dns64 module counts every AAAA record,
//! asks for A records after errors too, and does not look at DO.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use ipnet::IpNet;

use super::addresses::{Addresses, most_specific, network};
use super::draft::{Draft, Origin, PrefixDraft, Told};
use super::error::ImportError;
use super::files::{DEEPEST, MOST, called, included, read, too_many};
use super::notes::Place;
use super::prefix;
use super::values::{mebibytes, seconds, socket};

/// Clauses of the file; whatever else ends in a colon is a key.
const CLAUSES: &[&str] = &[
    "server",
    "remote-control",
    "forward-zone",
    "stub-zone",
    "auth-zone",
    "view",
    "python",
    "dynlib",
    "dnscrypt",
    "cachedb",
    "ipset",
    "rpz",
    "dnstap",
    "dns64",
];
/// The beginnings of keys of `server` on which no answer depends.
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

/// A key with its values.
struct Entry {
    place: Place,
    key: String,
    values: Vec<String>,
}

impl Entry {
    fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    fn written(&self) -> String {
        format!("{}: {}", self.key, self.values.join(" "))
    }

    fn origin(&self) -> Origin {
        Origin::new(&self.place, self.written())
    }

    fn is_yes(&self) -> bool {
        self.value() == "yes"
    }
}

/// A clause with its entries.
struct Clause {
    place: Place,
    name: String,
    entries: Vec<Entry>,
}

impl Clause {
    fn find(&self, key: &str) -> Option<&Entry> {
        // Of several the last one counts.
        self.entries.iter().rev().find(|entry| entry.key == key)
    }
}

/// Reads `file` into `draft`.
pub(super) fn import(file: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let mut clauses = Clauses::default();
    clauses.read(file, 0)?;
    let mut server =
        Clause { place: Place::new(&called(file), 1), name: "server".into(), entries: Vec::new() };
    let (of_server, others): (Vec<Clause>, Vec<Clause>) =
        clauses.all.into_iter().partition(|clause| clause.name == "server");
    server.entries.extend(of_server.into_iter().flat_map(|clause| clause.entries));
    for clause in others {
        match clause.name.as_str() {
            "forward-zone" => forward_zone(&clause, &server, draft),
            "remote-control" | "dnstap" | "cachedb" => (),
            name => draft.notes.answers(
                &clause.place,
                name,
                "dns64d asks resolvers only, and has no zones, views and scripts",
            ),
        }
    }
    translation(&server, draft);
    listen(&server, draft);
    access(&server, draft);
    server.entries.iter().for_each(|entry| setting(entry, &server, draft));
    Ok(())
}

/// What has been read of the files.
#[derive(Default)]
struct Clauses {
    all: Vec<Clause>,
    /// How many files have been included.
    files: usize,
}

impl Clauses {
    /// Reads the lines of a file, and of those that it includes.
    fn read(&mut self, file: &Path, depth: usize) -> Result<(), ImportError> {
        let name = called(file);
        for (number, line) in read(file)?.lines().enumerate() {
            let place = Place::new(&name, number + 1);
            let bad = |reason| ImportError::Syntax { place: place.clone(), reason };
            let words = words(line, &place)?;
            let mut rest = &words[..];
            while let Some((first, after)) = rest.split_first() {
                let Some(key) = first.strip_suffix(':') else {
                    return Err(bad(format!("'{first}' is no key: a key ends in ':'")));
                };
                // Its values end where the line does, or another key begins.
                let len = after.iter().position(|word| is_key(word)).unwrap_or(after.len());
                let (values, more) = after.split_at(len);
                rest = more;
                if key.starts_with("include") {
                    // A pattern may name nothing.
                    for path in values.iter().flat_map(|value| included(file, value)) {
                        self.files += 1;
                        if depth >= DEEPEST || self.files > MOST {
                            return Err(too_many(&place));
                        }
                        self.read(&path, depth + 1)?;
                    }
                } else if CLAUSES.contains(&key) {
                    let (place, name) = (place.clone(), key.to_owned());
                    self.all.push(Clause { place, name, entries: Vec::new() });
                } else {
                    let Some(clause) = self.all.last_mut() else {
                        let reason = format!("'{key}:' stands in no clause such as 'server:'");
                        return Err(bad(reason));
                    };
                    let (place, key) = (place.clone(), key.to_owned());
                    clause.entries.push(Entry { place, key, values: values.to_vec() });
                }
            }
        }
        Ok(())
    }
}

/// Whether a word is a key, and no address that ends in a colon.
fn is_key(word: &str) -> bool {
    word.strip_suffix(':').is_some_and(|key| {
        key.starts_with(|c: char| c.is_ascii_lowercase())
            && key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    })
}

/// The words of a line, without quotes and comment.
fn words(line: &str, place: &Place) -> Result<Vec<String>, ImportError> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (word, taken) = match quote {
            Some(quote) => match rest[1..].find(quote) {
                Some(len) => (&rest[1..=len], len + 2),
                None => {
                    let reason = format!("a {quote} without its other one");
                    return Err(ImportError::Syntax { place: place.clone(), reason });
                }
            },
            None => {
                let len = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (&rest[..len], len)
            }
        };
        words.push(word.to_owned());
        rest = rest[taken..].trim_start();
    }
    Ok(words)
}

fn forward_zone(clause: &Clause, server: &Clause, draft: &mut Draft) {
    let name = clause.find("name").map_or(".", |entry| entry.value()).to_owned();
    let over_tls = ["forward-tls-upstream", "forward-ssl-upstream"]
        .iter()
        .find_map(|key| clause.find(key))
        .or_else(|| ["tls-upstream", "ssl-upstream"].iter().find_map(|key| server.find(key)))
        .filter(|entry| entry.is_yes());
    if let Some(entry) = over_tls {
        let why = "dns64d asks over UDP and TCP only: name a resolver that answers there";
        return draft.notes.answers(&entry.place, &format!("{name} {}", entry.written()), why);
    }
    let mut upstreams = Vec::new();
    for entry in &clause.entries {
        let mut lost = |why: &str| draft.notes.answers(&entry.place, &entry.written(), why);
        match entry.key.as_str() {
            // Of TLS only a yes matters, which has been seen to.
            "name" | "forward-tls-upstream" | "forward-ssl-upstream" => (),
            "forward-addr" => match socket(entry.value(), 53) {
                Some(address) => upstreams.push(address),
                None => lost("not an address"),
            },
            "forward-host" => lost("name the resolver's address"),
            "forward-first" if entry.is_yes() => {
                lost("dns64d never asks anybody but its upstreams");
            }
            // These say no where nothing is said.
            "forward-first" | "forward-no-cache" | "forward-tcp-upstream"
                if entry.value() == "no" => {}
            _ => lost("nothing of dns64d is like it"),
        }
    }
    let origin = Origin::new(&clause.place, format!("forward-zone: {name}"));
    if upstreams.is_empty() {
        let why = "no address that could be asked";
        return draft.notes.answers(&clause.place, &origin.words, why);
    }
    draft.forward(&name, &upstreams, &origin);
}

/// What the dns64 module does, if it is there.
fn translation(server: &Clause, draft: &mut Draft) {
    let modules = server.find("module-config");
    let Some(modules) =
        modules.filter(|entry| entry.values.iter().any(|value| has(value, "dns64")))
    else {
        return;
    };
    let (prefix, origin) = match server.find("dns64-prefix") {
        Some(entry) => (prefix::parse(entry.value()), entry.origin()),
        None => (Some(prefix::WELL_KNOWN), modules.origin()),
    };
    let Some(prefix) = prefix else {
        let why = "not a prefix of RFC 6052 that dns64d takes";
        return draft.notes.answers(&origin.place, &origin.words, why);
    };
    draft.translation.prefixes = vec![PrefixDraft { prefix, suffix: None, ranges: None, origin }];
    draft.translation.exclude = Some(Addresses::default());
    draft.translation.mode = Some("strict");
    draft.translation.flags = vec![("break-dnssec", true)];
    let known = ["dns64", "iterator", "validator"];
    for module in modules.values.iter().flat_map(|value| value.split_whitespace()) {
        if !known.contains(&module) {
            draft.notes.answers(&modules.place, module, "dns64d has no such module");
        }
    }
    if let Some(all) = server.find("dns64-synthall").filter(|entry| entry.is_yes()) {
        draft.ignore_aaaa_of(".", all.origin());
    }
    for some in server.entries.iter().filter(|entry| entry.key == "dns64-ignore-aaaa") {
        draft.ignore_aaaa_of(some.value(), some.origin());
    }
}

/// Whether a list of modules in one word has this one.
fn has(modules: &str, module: &str) -> bool {
    modules.split_whitespace().any(|word| word == module)
}

/// Where it serves; loopback if nothing is said.
fn listen(server: &Clause, draft: &mut Draft) {
    let port: u16 = server.find("port").and_then(|entry| entry.value().parse().ok()).unwrap_or(53);
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    if let Some(entry) = server.find("interface-automatic").filter(|entry| entry.is_yes()) {
        any.iter().for_each(|&ip| draft.listen_at(SocketAddr::new(ip, port), entry.origin()));
    }
    for entry in &server.entries {
        if !matches!(entry.key.as_str(), "interface" | "ip-address") {
            continue;
        }
        match socket(entry.value(), port) {
            Some(address) if tls_ports(server).contains(&address.port()) => {
                let why = "dns64d serves UDP and TCP only";
                draft.notes.answers(&entry.place, &entry.written(), why);
            }
            Some(address) => draft.listen_at(address, entry.origin()),
            None => draft.notes.answers(
                &entry.place,
                &entry.written(),
                "name the addresses of the interface",
            ),
        }
    }
    if draft.listen.is_empty() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let origin = Origin::new(&server.place, "no interface: loopback");
            draft.listen_at(SocketAddr::new(ip, port), origin);
        }
    }
}

/// The ports on which it speaks TLS or HTTPS, if it has a key.
fn tls_ports(server: &Clause) -> Vec<u16> {
    if server.find("tls-service-key").or_else(|| server.find("ssl-service-key")).is_none() {
        return Vec::new();
    }
    let port = |key, default| {
        server.find(key).and_then(|entry| entry.value().parse().ok()).unwrap_or(default)
    };
    vec![port("tls-port", 853), port("https-port", 443)]
}

/// Whom it answers: of several networks that an address is in, the smallest one decides, of two
/// like ones the later. Loopback is allowed by itself.
fn access(server: &Clause, draft: &mut Draft) {
    let mut networks: Vec<(IpNet, bool)> =
        Addresses::loopback().networks().into_iter().map(|network| (network, true)).collect();
    let entries = || server.entries.iter().filter(|entry| entry.key == "access-control");
    for entry in entries() {
        let action = entry.values.get(1).map_or("", String::as_str);
        match network(entry.value()) {
            Some(network) => networks.push((network, action.starts_with("allow"))),
            None => draft.notes.answers(&entry.place, &entry.written(), "not a network"),
        }
        if action == "deny" {
            let why = "dns64d refuses them with an answer";
            draft.notes.nothing(&entry.place, &entry.written(), why);
        }
    }
    let origin = match entries().next() {
        Some(entry) => Origin::new(&entry.place, "access-control"),
        None => Origin::new(&server.place, "no access-control: loopback only"),
    };
    draft.access = Some(Told { value: most_specific(networks), origin });
}

/// Whatever else stands in `server`.
fn setting(entry: &Entry, server: &Clause, draft: &mut Draft) {
    let mut set = |table: &'static str, key: &'static str, value: Option<u64>| {
        draft.set_number(table, key, value, entry.origin());
    };
    match entry.key.as_str() {
        "access-control"
        | "dns64-ignore-aaaa"
        | "dns64-prefix"
        | "dns64-synthall"
        | "interface"
        | "ip-address"
        | "interface-automatic"
        | "module-config"
        | "port"
        | "tls-upstream"
        | "ssl-upstream" => (),
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
        // Takes back a zone that it has by itself.
        "local-zone" if entry.values.last().is_some_and(|kind| kind == "nodefault") => (),
        "auto-trust-anchor-file" | "trust-anchor-file" | "trust-anchor" | "trusted-keys-file" => {
            let validates = server
                .find("module-config")
                .is_none_or(|entry| entry.values.iter().any(|value| has(value, "validator")));
            if validates {
                let why = "dns64d does not validate: have the upstream validate, and see trust-ad";
                draft.notes.answers(&entry.place, &entry.written(), why);
            }
        }
        key if IDLE.iter().any(|idle| key.starts_with(idle)) || key == "username" => {
            draft.notes.nothing(&entry.place, &entry.written(), "dns64d has no use for it");
        }
        _ => draft.notes.answers(&entry.place, &entry.written(), "nothing of dns64d is like it"),
    }
}

/// Expired answers: for how long, and whether a client waits for a new one first.
fn serve_expired(entry: &Entry, server: &Clause, draft: &mut Draft) {
    let ttl = server.find("serve-expired-ttl").and_then(|entry| seconds(entry.value()));
    // Zero is for ever.
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
            let why = "before Unbound 1.23 expired answers are served at once, as is written; since then after 1.8 s";
            draft.notes.nothing(&entry.place, &entry.written(), why);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn words_are_told_apart_as_unbound_does() {
        let place = Place::new(&Arc::from("unbound.conf"), 1);
        let read = |line| words(line, &place).unwrap();
        assert_eq!(read("  interface: ::1 # loopback"), ["interface:", "::1"]);
        assert_eq!(read("module-config: \"dns64 iterator\""), ["module-config:", "dns64 iterator"]);
        assert_eq!(read("name: '.'"), ["name:", "."]);
        assert!(read("# nothing").is_empty() && words("chroot: \"", &place).is_err());
    }
}
