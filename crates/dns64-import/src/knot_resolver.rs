//! Conversion of Knot Resolver configurations: kresd.conf (version 5, Lua) and config.yaml (version 6).
//!
//! The dns64 module of Knot Resolver ignores the DO bit. By default, the module excludes AAAA records in `::ffff/96`.
//! This prefix equals `::/96`, although the authors of the module intended the IPv4-mapped addresses (`::ffff:0:0/96`).
//! If one record of an RRset is excluded, the whole RRset is ignored. Knot Resolver queries for A records only after an
//! answer without AAAA records.

mod dnssec;
mod listen;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::Ipv6Net;
use net::address::ServiceAddr;

use super::addresses::{Addresses, most_specific, network};
use super::draft::{Draft, Group, Located, Origin, PrefixDraft, Translation};
use super::error::ImportError;
use super::files::{called, folder_of};
use super::listeners::Encryption;
use super::lua::{self, Statement};
use super::notes::Location;
use super::prefix;
use super::tree::{self, Node, Value};
use super::values::{mebibytes, seconds, socket};

/// Addresses of AAAA records that the dns64 module excludes by default.
const DEFAULT_EXCLUDE: &str = "::ffff/96";
/// Modules of Knot Resolver that do not affect answers.
const IDLE_MODULES: &[&str] = &[
    "bogus_log",
    "detect_time_jump",
    "detect_time_skew",
    "ta_signal_query",
    "ta_update",
    "edns_keepalive",
    "graphite",
    "http",
    "nsid",
    "predict",
    "prefetch",
    "stats",
    "watchdog",
    "extended_error",
];
/// Functions of Knot Resolver that do not affect answers. An entry is the name of a function, or the beginning of its
/// name.
const IDLE_CALLS: &[&str] = &[
    "log_", "user", "verbose", "cache.", "event.", "net.tls_", "nsid.", "stats.", "predict.",
    "worker.",
];

/// Converts a configuration of Knot Resolver. The result is added to `draft`. The file is read as YAML if its name ends
/// with `.yaml` or `.yml`, otherwise as Lua.
pub(super) fn import(file: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let location = Location::new(&called(file), 1);
    if file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
        let root = tree::yaml(file)?;
        dnssec::import_yaml(&root, file, draft);
        yaml(&root, folder_of(file), draft);
    } else {
        let statements = lua::parse(file)?;
        dnssec::import_lua(&statements, file, draft);
        let encryption = listen::encryption(&statements, folder_of(file));
        for statement in &statements {
            match statement {
                Statement::Call(node) => call(node, &encryption, draft),
                Statement::Set(path, node) => assignment(path, node, draft),
                Statement::Variable => (),
                Statement::Other(location, text) => {
                    let why = "only calls and assignments with literal arguments can be converted";
                    draft.notes.answers(location, text, why);
                }
            }
        }
    }
    if draft.listen.is_empty() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            draft.listen_at((ip, 53).into(), Origin::new(&location, "no listen address: loopback"));
        }
    }
    if draft.access.is_none() {
        let origin = Origin::new(&location, "no view: all clients");
        draft.access = Some(Located { value: Addresses::all(), origin });
    }
    Ok(())
}

fn lost(draft: &mut Draft, node: &Node, what: &str, why: &str) {
    draft.notes.answers(&node.location, what, why);
}

fn call(node: &Node, encryption: &Encryption, draft: &mut Draft) {
    let written = node.written();
    let origin = Origin::new(&node.location, written.clone());
    let (name, arguments) = node.call();
    match name {
        "net.listen" => listen::call(node, arguments, encryption, draft),
        // Converted together with the listen addresses.
        "net.tls" => (),
        "modules.load" => {
            arguments.iter().flat_map(Node::elements).for_each(|module| load(module, draft));
        }
        "dns64.config" => {
            let argument = arguments.first().unwrap_or(node);
            match argument.text() {
                Some(prefix) => translate(Some(prefix), None, origin, draft),
                None => translate_table(argument, origin, draft),
            }
        }
        "cache.min_ttl" | "cache.max_ttl" => {
            let key = if name.ends_with("min_ttl") { "min-ttl" } else { "max-ttl" };
            let value = arguments.first().and_then(Node::text).and_then(seconds);
            draft.set_number("cache", key, value, origin);
        }
        "net.tcp_pipeline" => {
            let value = arguments.first().and_then(Node::text).and_then(|text| text.parse().ok());
            draft.set_number("limits", "tcp-pipeline", value, origin);
        }
        "policy.add" => policy(node, arguments, draft),
        name if dnssec::is_call(name) => (),
        "modules.unload" if arguments.iter().flat_map(Node::elements).all(is_idle_module) => {
            draft.notes.nothing(&node.location, &written, "dns64d does not need it");
        }
        "view:addr" | "view.addr" => {
            lost(draft, node, &written, "add the clients to [access], or to a [[group]]");
        }
        name if IDLE_CALLS.iter().any(|idle| name.starts_with(idle)) => {
            draft.notes.nothing(&node.location, &written, "dns64d does not need it");
        }
        "net.ipv4" | "net.ipv6" | "net.bufsize" | "net.outgoing_v4" | "net.outgoing_v6" => {
            draft.notes.nothing(&node.location, &written, "dns64d does not need it");
        }
        _ => lost(draft, node, &written, "dns64d has no equivalent"),
    }
}

/// True for the name of a module that does not affect answers, or the module for root key sentinels (RFC 8509), which
/// dns64d does not have.
fn is_idle_module(module: &Node) -> bool {
    module.text().is_some_and(|name| name == "ta_sentinel" || IDLE_MODULES.contains(&name))
}

fn assignment(path: &str, node: &Node, draft: &mut Draft) {
    let written = format!("{path} = {}", node.written());
    match path {
        "modules" => {
            if let Value::List(modules) = &node.value {
                modules.iter().for_each(|module| load(module, draft));
            }
            for (name, settings) in node.entries() {
                if name.is_empty() {
                    load(settings, draft);
                } else if name == "dns64" {
                    let origin = Origin::new(&settings.location, settings.written());
                    match settings.text() {
                        Some("true") => translate(None, None, origin, draft),
                        Some(prefix) => translate(Some(prefix), None, origin, draft),
                        None => translate_table(settings, origin, draft),
                    }
                } else if !IDLE_MODULES.contains(&name.as_str()) {
                    lost(draft, settings, name, "dns64d has no equivalent");
                }
            }
        }
        "cache.size" => cache(node, &written, draft),
        path if dnssec::is_idle(path) => {
            draft.notes.nothing(&node.location, &written, "dns64d does not need it");
        }
        _ => lost(draft, node, &written, "dns64d has no equivalent"),
    }
}

/// Converts the cache size: `100 * MB`, or a number of octets.
fn cache(node: &Node, written: &str, draft: &mut Draft) {
    let size = node.text().map(|text| text.replace([' ', '*'], ""));
    let size = size.as_deref().and_then(mebibytes);
    draft.set_number("cache", "mebibytes", size, Origin::new(&node.location, written));
}

/// Converts an entry that loads a module. The name of the module may be followed by its position relative to a
/// different module, as in `hints > iterate`.
fn load(module: &Node, draft: &mut Draft) {
    let text = module.text().unwrap_or_default();
    let name = text.split([' ', '<', '>']).next().unwrap_or_default();
    let origin = Origin::new(&module.location, text);
    match name {
        // An earlier `dns64.config` call takes precedence over the defaults.
        "dns64" if draft.translation.prefixes.is_empty() => translate(None, None, origin, draft),
        "dns64" | "hints" | "view" | "policy" => (),
        name if IDLE_MODULES.contains(&name) => (),
        _ => lost(draft, module, text, "dns64d has no equivalent"),
    }
}

/// Sets the translation: `prefix`, whose text may end with `/96`, and `exclude`, the addresses of AAAA records to
/// ignore.
fn translate(prefix: Option<&str>, exclude: Option<Addresses>, origin: Origin, draft: &mut Draft) {
    let address = prefix.map(|text| text.strip_suffix("/96").unwrap_or(text).parse::<Ipv6Addr>());
    let prefix = match address {
        None => Some(prefix::WELL_KNOWN),
        Some(Ok(address)) => Ipv6Net::new(address, 96).ok().and_then(prefix::checked),
        Some(Err(_)) => None,
    };
    let Some(prefix) = prefix else {
        let why = "not a 96-bit prefix that dns64d accepts";
        return draft.notes.answers(&origin.location, &origin.words, why);
    };
    let why = "Knot Resolver synthesizes if one of several AAAA records is excluded; dns64d returns the others (RFC 6147 §5.1.4)";
    draft.notes.answers(&origin.location, &origin.words, why);
    let default = || network(DEFAULT_EXCLUDE).map(Addresses::from);
    draft.translation = Translation {
        prefixes: vec![PrefixDraft { prefix, suffix: None, ranges: None, origin }],
        exclude: exclude.or_else(default),
        mode: Some("nodata-only"),
        flags: vec![("break-dnssec", true)],
    };
}

/// Sets the translation (see [`translate`]) to the values in a Lua or YAML table.
fn translate_table(table: &Node, origin: Origin, draft: &mut Draft) {
    let mut exclude = None;
    for (key, node) in table.entries() {
        match key.as_str() {
            "prefix" | "enable" | "enabled" => (),
            "exclude_subnets" | "exclude-subnets" | "exclude" => {
                let mut subnets = Addresses::default();
                for subnet in node.elements() {
                    match subnet.text().and_then(network) {
                        Some(network) => subnets = subnets.or(&network.into()),
                        None => lost(draft, subnet, &subnet.written(), "not a network"),
                    }
                }
                exclude = Some(subnets);
            }
            "rev_ttl" | "rev-ttl" | "reverse-ttl" => {
                let origin = Origin::new(&node.location, format!("{key} {}", node.written()));
                draft.set_number("local", "reverse-ttl", node.text().and_then(seconds), origin);
            }
            _ => lost(draft, node, key, "dns64d has no equivalent"),
        }
    }
    let prefix = table.get("prefix").and_then(Node::text);
    translate(prefix, exclude, origin, draft);
}

/// Converts a policy: `policy.add(policy.all(policy.FORWARD(…)))` for all names, or
/// `policy.suffix(policy.STUB(…), policy.todnames({…}))` for some domains.
fn policy(node: &Node, arguments: &[Node], draft: &mut Draft) {
    let (rule, of_rule) = arguments.first().map(Node::call).unwrap_or_default();
    let (action, of_action) = of_rule.first().map(Node::call).unwrap_or_default();
    let domains: Option<Vec<&str>> = match (rule, of_rule.get(1)) {
        ("policy.all", None) => Some(vec!["."]),
        ("policy.suffix", Some(names)) => domains(names),
        _ => None,
    };
    let forwards = matches!(action, "policy.FORWARD" | "policy.STUB" | "policy.TLS_FORWARD");
    let (Some(domains), true) = (domains, forwards) else {
        let why = "only the policies FORWARD and STUB for literal domains are converted";
        return lost(draft, node, &node.written(), why);
    };
    if action == "policy.TLS_FORWARD" {
        return lost(draft, node, &node.written(), "dns64d queries only over UDP and TCP");
    }
    let mut upstreams: Vec<ServiceAddr> = Vec::new();
    for server in of_action.iter().flat_map(Node::elements) {
        match server.text().and_then(|text| socket(text, 53)) {
            Some(address) => upstreams.push(address),
            None => lost(draft, server, &server.written(), "no usable address"),
        }
    }
    if domains != ["."] && !draft.upstreams.is_empty() {
        lost(draft, node, &node.written(), "an earlier policy applies to all names");
        return;
    }
    let origin = Origin::new(&node.location, node.written());
    // With STUB, answers are not validated.
    let validate = action != "policy.STUB";
    for domain in domains {
        draft.forward_with(domain, &upstreams, validate, &origin);
    }
}

/// Returns the domain names in the list of a policy: `policy.todnames({ … })` or `{ todname('…') }`.
fn domains(names: &Node) -> Option<Vec<&str>> {
    match &names.value {
        Value::Text(text) => Some(vec![text]),
        Value::List(elements) => {
            elements.iter().map(domains).collect::<Option<Vec<_>>>().map(|lists| lists.concat())
        }
        Value::Call(name, arguments) if name.contains("todname") => domains(arguments.first()?),
        _ => None,
    }
}

/// Converts the contents of a config.yaml of Knot Resolver 6.
fn yaml(root: &Node, folder: &Path, draft: &mut Draft) {
    for (key, node) in root.entries() {
        let written = format!("{key}: {}", node.written());
        match key.as_str() {
            // Converted by another function.
            "dnssec" => (),
            "network" => network_yaml(node, folder, draft),
            "dns64" => dns64_yaml(node, draft),
            "forward" => node.elements().iter().for_each(|rule| forward_yaml(rule, draft)),
            "views" => views_yaml(node.elements(), draft),
            "cache" => cache_yaml(node, draft),
            // The value "auto" means the number of CPUs, which is also the default of dns64d.
            "workers" if node.text() == Some("auto") => (),
            "workers" => {
                let value = node.text().unwrap_or_default();
                draft.set_threads(value, Origin::new(&node.location, written));
            }
            "rundir" | "hostname" | "nsid" | "monitoring" | "management" | "logging" => {
                draft.notes.nothing(&node.location, &written, "dns64d does not need it");
            }
            _ => lost(draft, node, &written, "dns64d has no equivalent"),
        }
    }
}

fn network_yaml(node: &Node, folder: &Path, draft: &mut Draft) {
    let encryption = listen::encryption_yaml(node.get("tls"), folder, draft);
    for (key, node) in node.entries() {
        match key.as_str() {
            "listen" => {
                node.elements().iter().for_each(|entry| listen::entry(entry, &encryption, draft));
            }
            // Converted together with the listen addresses.
            "tls" => (),
            "tcp-pipeline" => {
                let origin = Origin::new(&node.location, format!("{key}: {}", node.written()));
                let value = node.text().and_then(|text| text.parse().ok());
                draft.set_number("limits", "tcp-pipeline", value, origin);
            }
            "do-ipv4" | "do-ipv6" | "out-interface-v4" | "out-interface-v6"
            | "edns-tcp-keepalive" | "edns-buffer-size" | "quic" => {
                draft.notes.nothing(&node.location, key, "dns64d does not need it");
            }
            _ => lost(draft, node, key, "dns64d has no equivalent"),
        }
    }
}

fn cache_yaml(node: &Node, draft: &mut Draft) {
    for (key, node) in node.entries() {
        let written = format!("{key}: {}", node.written());
        let origin = Origin::new(&node.location, written.clone());
        let time = node.text().and_then(seconds);
        match key.as_str() {
            "size-max" => cache(node, &written, draft),
            "ttl-min" => draft.set_number("cache", "min-ttl", time, origin),
            "ttl-max" => draft.set_number("cache", "max-ttl", time, origin),
            "storage" | "garbage-collector" | "prefetch" => {
                draft.notes.nothing(&node.location, &written, "dns64d does not need it");
            }
            _ => lost(draft, node, &written, "dns64d has no equivalent"),
        }
    }
}

fn dns64_yaml(node: &Node, draft: &mut Draft) {
    let origin = Origin::new(&node.location, format!("dns64: {}", node.written()));
    match node.text() {
        Some("true") => translate(None, None, origin, draft),
        Some(_) => (),
        None if ["enable", "enabled"].iter().any(|key| is_off(node, key)) => (),
        None => translate_table(node, origin, draft),
    }
}

/// True if the value of a key in a table is `false`.
fn is_off(table: &Node, key: &str) -> bool {
    table.get(key).and_then(Node::text) == Some("false")
}

fn forward_yaml(rule: &Node, draft: &mut Draft) {
    let subtrees = rule.get("subtree").map(Node::elements).unwrap_or_default();
    let option = |key: &str| {
        rule.get("options").and_then(|options| options.get(key)).and_then(Node::text)
            == Some("true")
    };
    if option("authoritative") {
        let why = "dns64d only forwards to resolvers";
        return lost(draft, rule, &rule.written(), why);
    }
    let validate = !rule.get("options").is_some_and(|options| is_off(options, "dnssec"));
    let mut upstreams = Vec::new();
    for server in rule.get("servers").map(Node::elements).unwrap_or_default() {
        let addresses = server.get("address").unwrap_or(server).elements();
        let over_tls = server.get("transport").and_then(Node::text) == Some("tls");
        for address in addresses {
            match address.text().and_then(|text| socket(text, 53)) {
                Some(address) if !over_tls => upstreams.push(address),
                _ => lost(
                    draft,
                    server,
                    &server.written(),
                    "dns64d queries only IP addresses, over UDP and TCP",
                ),
            }
        }
    }
    let origin = Origin::new(&rule.location, rule.written());
    for subtree in subtrees.iter().filter_map(Node::text) {
        if !upstreams.is_empty() {
            draft.forward_with(subtree, &upstreams, validate, &origin);
        }
    }
}

/// Converts views that refuse clients or disable synthesis. If several views match an address, the view with the
/// smallest network applies. For each part of a view that cannot be converted, a note is added.
fn views_yaml(views: &[Node], draft: &mut Draft) {
    let (mut allowed, mut untranslated) = (everything(true), everything(false));
    for view in views {
        let is_refused = view.get("answer").and_then(Node::text) == Some("refused");
        let is_off = view.get("options").is_some_and(|options| is_off(options, "dns64"));
        for subnet in view.get("subnets").map(Node::elements).unwrap_or_default() {
            match subnet.text().and_then(network) {
                Some(network) => {
                    allowed.push((network, !is_refused));
                    untranslated.push((network, is_off));
                }
                None => lost(draft, subnet, &subnet.written(), "not a network"),
            }
        }
        let of_options = view.get("options").map(Node::entries).unwrap_or_default();
        let is_known = |key: &str| matches!(key, "subnets" | "answer" | "options");
        let others = view.entries().iter().filter(|(key, _)| !is_known(key));
        for (key, node) in others.chain(of_options.iter().filter(|(key, _)| key != "dns64")) {
            lost(draft, node, key, "only refused and untranslated clients of views are converted");
        }
        let answer = view.get("answer").and_then(Node::text);
        if answer.is_some_and(|answer| !matches!(answer, "refused" | "allow")) {
            lost(
                draft,
                view,
                &view.written(),
                "only refused and untranslated clients of views are converted",
            );
        }
    }
    let Some(first) = views.first() else { return };
    let origin = Origin::new(&first.location, "views");
    let clients = most_specific(allowed);
    let without = most_specific(untranslated).and(&clients);
    if !without.is_empty() {
        let (translation, origin) = (Translation::default(), Some(origin.clone()));
        draft.groups.push(Group { clients: without, translation, origin });
    }
    draft.access = Some(Located { value: clients, origin });
}

/// Returns two entries: one for all IPv4 addresses and one for all IPv6 addresses. Both have the flag `is_so`, which
/// applies to clients that match no view.
fn everything(is_so: bool) -> Vec<(ipnet::IpNet, bool)> {
    Addresses::all().networks().into_iter().map(|network| (network, is_so)).collect()
}
