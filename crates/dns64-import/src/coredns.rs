//! Conversion of the Corefile of CoreDNS: server blocks with one plugin per line.
//!
//! The dns64 plugin has no list of AAAA records to exclude. It queries for A records even after errors, except after
//! NXDOMAIN. It ignores the DO and CD bits. By default, the plugin synthesizes only for clients that query over IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::Ipv6Net;
use net::address::{HostAddr, ServiceAddr};

use super::addresses::{Addresses, FirstMatch, network};
use super::draft::{Draft, Group, Located, Origin, PrefixDraft, Translation};
use super::error::ImportError;
use super::files::{called, folder_of, read};
use super::listeners::{DEFAULT_PATH, Encryption, Transport};
use super::notes::Location;
use super::prefix;
use super::statements::{Statement, Style, parse};
use super::values::{seconds, socket};

/// Plugins of CoreDNS that do not affect answers.
const IDLE: &[&str] = &[
    "bufsize",
    "cancel",
    "chaos",
    "debug",
    "dnstap",
    "errors",
    "health",
    "https",
    "log",
    "loop",
    "metadata",
    "minimal",
    "nsid",
    "pprof",
    "prometheus",
    "quic",
    "ready",
    "reload",
    "root",
    "timeouts",
    "trace",
];

/// Keys of the plugin `forward` that do not affect answers.
const IDLE_FORWARD: &[&str] = &[
    "expire",
    "failfast_all_unhealthy_upstreams",
    "force_tcp",
    "health_check",
    "max_concurrent",
    "max_connect_attempts",
    "max_fails",
    "max_idle_conns",
    "prefer_udp",
];

/// Converts a Corefile. The result is added to `draft`.
pub(super) fn import(file: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let blocks = parse(file, Style::Lines)?;
    // A block whose name is in parentheses is a snippet, which `import` refers to by name.
    let (snippets, servers): (Vec<&Statement>, Vec<&Statement>) =
        blocks.iter().partition(|block| block.name().starts_with('('));
    let has = |server: &Statement, name: &str| {
        plugins(server, &snippets).iter().any(|plugin| plugin.name() == name)
    };
    let mut translating = servers.iter().filter(|server| has(server, "dns64")).peekable();
    let translates = translating.peek().is_some();
    // Server blocks often differ only in their transport.
    let differs = |name: &str, servers: &[&Statement]| {
        let texts = servers.iter().map(|server| {
            let plugins = plugins(server, &snippets);
            let named = plugins.iter().filter(|plugin| plugin.name() == name);
            named.map(|plugin| plugin.written()).collect::<Vec<String>>()
        });
        texts.collect::<Vec<_>>().windows(2).any(|two| two[0] != two[1])
    };
    let translating: Vec<&Statement> = translating.copied().collect();
    if let [first, .., last] = &translating[..]
        && differs("dns64", &translating)
    {
        let why = format!("the dns64 of {} applies to all names", last.location);
        draft.notes.answers(&first.location, &first.words.join(" "), why);
    }
    for server in &servers {
        block(server, &snippets, folder_of(file), draft)?;
        if translates && !has(server, "dns64") {
            untranslated(server, draft);
        }
        if has(server, "acl") && differs("acl", &servers) {
            let why = "dns64d has only one list of clients; the last acl is used";
            draft.notes.answers(&server.location, &server.words.join(" "), why);
        }
    }
    let location = Location::new(&called(file), 1);
    draft.dnssec.set_validate(false, Origin::new(&location, "CoreDNS does not validate"));
    let everybody = || Located {
        value: Addresses::all(),
        origin: Origin::new(&location, "no acl: all clients"),
    };
    draft.access.get_or_insert_with(everybody);
    Ok(())
}

/// Adds the zones of a server block as domains without synthesis. Called for server blocks without the dns64 plugin, if
/// a different server block uses this plugin.
fn untranslated(server: &Statement, draft: &mut Draft) {
    let origin = Origin::new(&server.location, format!("{} without dns64", server.words.join(" ")));
    for Zone { name: zone, .. } in zones(server) {
        if zone == "." {
            let why = "dns64d translates all names in the same way on all its addresses";
            draft.notes.answers(&origin.location, &origin.words, why);
        } else {
            draft.add_untranslated_domain(zone, origin.clone());
        }
    }
}

/// A zone of a server block.
struct Zone<'a> {
    name: &'a str,
    transport: Transport,
    /// `None` if the port is not valid.
    port: Option<u16>,
}

/// Returns the zones of a server block, except those with a transport that dns64d does not have.
fn zones(server: &Statement) -> Vec<Zone<'_>> {
    let mut zones = Vec::new();
    for word in &server.words {
        let word = word.trim_end_matches(',');
        let (scheme, word) = word.split_once("://").unwrap_or(("dns", word));
        let transport = match scheme {
            "dns" => Transport::Udp,
            "tls" => Transport::Tls,
            "https" => Transport::Https,
            "quic" => Transport::Quic,
            _ => continue,
        };
        let (zone, port) = match word.rsplit_once(':') {
            Some((zone, port)) => (zone, port.parse().ok()),
            None => (word, Some(transport.default_port())),
        };
        let name = if zone.is_empty() { "." } else { zone };
        zones.push(Zone { name, transport, port });
    }
    zones
}

/// Returns the plugins of a server block, including those of imported snippets.
fn plugins<'a>(server: &'a Statement, snippets: &[&'a Statement]) -> Vec<&'a Statement> {
    let mut all = Vec::new();
    for plugin in server.body() {
        let snippet = plugin
            .argument()
            .filter(|_| plugin.name() == "import")
            .and_then(|name| snippets.iter().find(|snippet| snippet.name() == format!("({name})")));
        match snippet {
            Some(snippet) => all.extend(snippet.body()),
            None => all.push(plugin),
        }
    }
    all
}

/// Converts a server block: its zones, ports and plugins.
fn block(
    server: &Statement,
    snippets: &[&Statement],
    folder: &Path,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let plugins = plugins(server, snippets);
    let zones = zones(server);
    if zones.len() < server.words.len() {
        let why = "dns64d serves only UDP, TCP, TLS, HTTPS with HTTP/2, and QUIC";
        draft.notes.answers(&server.location, &server.words.join(" "), why);
    }
    let encryption = encryption(&plugins, folder);
    for zone in &zones {
        listen(server, &plugins, zone, &encryption, draft);
    }
    let names: Vec<&str> = zones.iter().map(|zone| zone.name).collect();
    plugins.into_iter().try_for_each(|plugin| self::plugin(plugin, &names, folder, draft))
}

/// Adds the listen addresses of a zone: those given in the `bind` plugin, or all addresses if there is no such plugin.
fn listen(
    server: &Statement,
    plugins: &[&Statement],
    zone: &Zone<'_>,
    encryption: &Encryption,
    draft: &mut Draft,
) {
    let written = server.words.join(" ");
    let Some(port) = zone.port else {
        let why = format!("the port of zone {} is not a number from 0 to 65535", zone.name);
        return draft.notes.answers(&server.location, &written, why);
    };
    let add = |host: HostAddr, origin, draft: &mut Draft| {
        let address = ServiceAddr::new(host, port);
        draft.listen_with(address, zone.transport, encryption, DEFAULT_PATH, origin);
    };
    let bind = plugins.iter().find(|plugin| plugin.name() == "bind");
    let Some(bind) = bind else {
        for ip in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            add(ip.into(), Origin::new(&server.location, written.clone()), draft);
        }
        return;
    };
    // The location of the plugin may be in a snippet that several server blocks use.
    let words = match zone.transport {
        Transport::Udp => bind.written(),
        _ => format!("{written} with {}", bind.written()),
    };
    for address in &bind.words[1..] {
        match address.parse::<HostAddr>() {
            Ok(ip) => add(ip, Origin::new(&bind.location, words.clone()), draft),
            Err(_) => {
                let why = "list the addresses of the interface";
                draft.notes.answers(&bind.location, &bind.written(), why);
            }
        }
    }
}

/// Returns the encryption of a server block: plugin `tls CERTIFICATE KEY [CA]`. Relative paths are resolved against the
/// path in the plugin `root`.
fn encryption(plugins: &[&Statement], folder: &Path) -> Encryption {
    let find = |name: &str| plugins.iter().find(|plugin| plugin.name() == name);
    let Some(tls) = find("tls") else { return Encryption::None };
    let root = find("root").and_then(|root| root.argument());
    let folder = root.map_or_else(|| folder.to_owned(), |root| folder.join(root));
    let file = |at: usize| tls.words.get(at).map(String::as_str);
    let absence = "CoreDNS obtains the certificate with ACME, or there is no key";
    Encryption::with_files(&folder, [file(1), file(2)], true, absence)
}

/// Adds notes on the options of the plugin `tls`.
fn tls_options(plugin: &Statement, draft: &mut Draft) {
    for key in plugin.body() {
        let (location, written) = (&key.location, key.written());
        match (key.name(), key.argument()) {
            ("client_auth", Some("nocert")) => (),
            ("client_auth", _) => {
                let why = "dns64d does not request certificates of clients";
                draft.notes.answers(location, &written, why);
            }
            // The block of ACME options, in which the certificate is the only part that affects clients.
            ("keylog" | "acme" | "email" | "ca" | "storage" | "ca_root" | "resolver", _) => {
                draft.notes.nothing(location, &written, "dns64d does not need it");
            }
            _ => draft.notes.answers(location, &written, "dns64d has no equivalent"),
        }
    }
}

fn plugin(
    plugin: &Statement,
    zones: &[&str],
    folder: &Path,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let written = plugin.written();
    match plugin.name() {
        "bind" => (),
        "dns64" => translate(plugin, draft),
        "forward" | "proxy" => forward(plugin, zones, folder, draft)?,
        "cache" => cache(plugin, draft),
        "acl" => acl(plugin, draft),
        "tls" => tls_options(plugin, draft),
        name if IDLE.contains(&name) => {
            draft.notes.nothing(&plugin.location, &written, "dns64d does not need it");
        }
        _ => draft.notes.answers(&plugin.location, &written, "dns64d has no equivalent"),
    }
    Ok(())
}

fn translate(plugin: &Statement, draft: &mut Draft) {
    let origin = Origin::new(&plugin.location, plugin.written());
    // A prefix may be given on the line of the plugin and in its block. The last prefix applies.
    let mut prefix = Some(prefix::WELL_KNOWN);
    let mut allows_ipv4 = false;
    draft.ignore_aaaa.clear();
    if plugin.words.len() > 1 {
        prefix = prefix_argument(plugin, draft);
    }
    for key in plugin.body() {
        match (key.name(), key.words.len()) {
            ("prefix", _) => prefix = prefix_argument(key, draft),
            ("allow_ipv4", 1) => allows_ipv4 = true,
            ("translate_all", 1) => {
                let origin = Origin::new(&key.location, key.written());
                draft.add_ignore_aaaa(".", origin);
            }
            ("allow_ipv4" | "translate_all", _) => {
                draft.notes.answers(&key.location, &key.written(), "it takes no argument");
            }
            _ => draft.notes.answers(&key.location, &key.written(), "dns64d has no equivalent"),
        }
    }
    let Some(prefix) = prefix else { return };
    draft.synthesizes_with_cd("CoreDNS", &origin);
    draft.translation = Translation {
        prefixes: vec![PrefixDraft { prefix, suffix: None, ranges: None, origin: origin.clone() }],
        exclude: Some(Addresses::default()),
        mode: Some("strict"),
        flags: vec![("break-dnssec", true)],
    };
    draft.groups.clear();
    if !allows_ipv4 {
        let origin = Origin::new(&plugin.location, format!("{} without allow_ipv4", origin.words));
        draft.groups.push(Group {
            clients: Addresses::all_ipv4(),
            translation: Translation::default(),
            origin: Some(origin),
        });
    }
}

/// Returns the prefix in `dns64 PREFIX` or `prefix PREFIX`. For other arguments, returns `None` and
/// adds a note.
fn prefix_argument(statement: &Statement, draft: &mut Draft) -> Option<Ipv6Net> {
    let (prefix, why) = match &statement.words[1..] {
        [prefix] => (prefix::parse(prefix), prefix::rejection(prefix)),
        _ => (None, "it takes one prefix of RFC 6052, such as 64:ff9b::/96"),
    };
    if prefix.is_none() {
        draft.notes.answers(&statement.location, &statement.written(), why);
    }
    prefix
}

/// Converts the plugin `forward FROM TO...`. TO may be a file such as /etc/resolv.conf. CoreDNS resolves a relative
/// path against its working directory, which is not stated in the Corefile. Therefore `folder`, the folder of the
/// Corefile, is used instead.
fn forward(
    plugin: &Statement,
    zones: &[&str],
    folder: &Path,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let from = plugin.argument().unwrap_or(".").trim_end_matches('.');
    let mut upstreams = Vec::new();
    for to in plugin.words.iter().skip(2) {
        if to.starts_with("tls://") {
            let why = "dns64d queries only over UDP and TCP";
            draft.notes.answers(&plugin.location, to, why);
        } else if let Some(address) = socket(to.trim_start_matches("dns://"), 53) {
            upstreams.push(address);
        } else {
            let text =
                read(&folder.join(to)).map_err(|error| error.of_include(&plugin.location))?;
            let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
            upstreams.extend(servers.filter_map(|server| socket(server.trim(), 53)));
        }
    }
    for key in plugin.body() {
        match (key.name(), key.argument()) {
            ("policy", Some("sequential")) => {
                let origin = Origin::new(&key.location, key.written());
                draft.set("forwarding", "order", "listed", origin);
            }
            ("policy", Some("random" | "round_robin")) => {
                let why = "dns64d prefers the fastest upstreams";
                draft.notes.nothing(&key.location, &key.written(), why);
            }
            (name, _) if IDLE_FORWARD.contains(&name) => (),
            _ => {
                let why =
                    "dns64d queries these upstreams for all names of the zone, over UDP and TCP";
                draft.notes.answers(&key.location, &key.written(), why);
            }
        }
    }
    let origin = Origin::new(&plugin.location, plugin.written());
    if upstreams.is_empty() {
        let why = "no usable address";
        draft.notes.answers(&plugin.location, &origin.words, why);
        return Ok(());
    }
    let domains = if from.is_empty() { zones.to_vec() } else { vec![from] };
    for domain in domains {
        if domain.contains('/') {
            let why = format!("write the reverse zone of {domain} as a domain name");
            draft.notes.answers(&origin.location, &origin.words, why);
        } else {
            draft.forward(domain, &upstreams, &origin);
        }
    }
    Ok(())
}

/// Converts the plugin `cache [TTL] [ZONES...] { success CAPACITY [TTL] denial CAPACITY [TTL] serve_stale [TIME] … }`.
fn cache(plugin: &Statement, draft: &mut Draft) {
    let words = plugin.words.get(1..).unwrap_or_default();
    // If the first word is not a number, it is not a TTL but a zone.
    let (ttl, zones) = match words.split_first() {
        Some((first, zones)) if first.parse::<u64>().is_ok() => (Some(first.as_str()), zones),
        _ => (None, words),
    };
    if !zones.is_empty() && zones.iter().all(|zone| zone != ".") {
        let why = "dns64d has one cache for all names; these limits apply to it";
        draft.notes.answers(&plugin.location, &plugin.written(), why);
    }
    let mut set = |key: &'static str, of: &Statement, text: Option<&str>| {
        if let Some(text) = text {
            let origin = Origin::new(&of.location, of.written());
            draft.set_number("cache", key, seconds(text), origin);
        }
    };
    set("max-ttl", plugin, ttl.or(Some("3600")));
    set("negative-max-ttl", plugin, ttl.or(Some("1800")));
    for key in plugin.body() {
        let ttl = key.words.get(2).map(String::as_str);
        match key.name() {
            "success" => set("max-ttl", key, ttl),
            "denial" => set("negative-max-ttl", key, ttl),
            _ => (),
        }
    }
    for key in plugin.body() {
        let has_least = matches!(key.name(), "success" | "denial") && key.words.len() > 3;
        let is_known = matches!(key.name(), "success" | "denial" | "prefetch" | "serve_stale");
        if has_least || !is_known {
            let why = "dns64d has no equivalent";
            draft.notes.answers(&key.location, &key.written(), why);
        }
    }
    if let Some(stale) = plugin.body().iter().find(|key| key.name() == "serve_stale") {
        let verifies = stale.words.iter().any(|word| word.eq_ignore_ascii_case("verify"));
        let origin = || Origin::new(&stale.location, stale.written());
        let Some(time) = stale.argument().map_or(Some(3_600), seconds) else {
            return draft.notes.answers(&stale.location, &stale.written(), "not a time such as 1h");
        };
        if time > 0 {
            draft.serve_stale(time, origin());
            draft.set("cache", "stale-at-once", !verifies, origin());
        }
    }
}

/// Converts the plugin `acl`, with its lines `allow net NETWORK…` and `block net NETWORK…`. The first matching line
/// decides. Clients that match no line are allowed.
fn acl(plugin: &Statement, draft: &mut Draft) {
    let mut list = FirstMatch::default();
    let mut lost =
        |of: &Statement, why: &str| draft.notes.answers(&of.location, &of.written(), why);
    if plugin.words.len() > 1 {
        lost(plugin, "dns64d has only one list of clients, for all zones");
    }
    for rule in plugin.body() {
        let action = rule.name();
        let at = rule.words.iter().position(|word| word == "net");
        let types = rule.words.iter().skip_while(|word| *word != "type").skip(1);
        let of_type = types.take_while(|word| *word != "net").any(|word| word != "*");
        if of_type || !matches!(action, "allow" | "block" | "filter" | "drop") {
            lost(rule, "dns64d has no access lists by type");
            continue;
        }
        if matches!(action, "filter" | "drop") {
            lost(rule, "dns64d answers them with REFUSED");
        }
        let words = at.map(|at| &rule.words[at + 1..]).unwrap_or_default();
        let mut covered = Addresses::default();
        if words.is_empty() {
            covered = Addresses::all();
        }
        for word in words {
            match (word.as_str(), network(word)) {
                ("*", _) => covered = Addresses::all(),
                (_, Some(network)) => covered = covered.or(&network.into()),
                _ => lost(rule, "not a network"),
            }
        }
        list.then(&covered, action == "allow");
    }
    list.then(&Addresses::all(), true);
    let origin = Origin::new(&plugin.location, plugin.written());
    draft.access = Some(Located { value: list.allowed(), origin });
}
