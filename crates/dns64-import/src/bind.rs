//! Conversion of BIND 9's named.conf.
//!
//! Several `dns64` statements can apply to one client: those with a `clients` list that contains the client. The client
//! gets the prefixes of all these statements, in the order of the file. An AAAA record is ignored only if all these
//! statements exclude it. Clients with the same statements become one group. BIND queries for A records only after an
//! answer without AAAA records, and never after an error.

mod dnssec;
mod listen;

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::path::Path;
use std::str::FromStr;

use domain::base::Name;
use ipnet::{IpNet, Ipv6Net};

use super::addresses::{Addresses, FirstMatch, network};
use super::draft::{Draft, Group, LEAST_OF_PREFIX, Located, Origin, PrefixDraft, Translation};
use super::error::{ImportError, LONGEST_FILE};
use super::files::{DEEPEST, called, changed_directory, folder_of};
use super::notes::Location;
use super::prefix;
use super::statements::{Statement, Style, parse};
use super::values::{is_no, mebibytes, seconds, socket};

/// AAAA records that BIND excludes if a `dns64` statement has no `exclude` (RFC 6147 §5.1.4).
const EXCLUDED: &str = "::ffff:0.0.0.0/96";

/// Default time for which BIND serves expired answers, in seconds.
const DAY: u64 = 86_400;
/// Statements of BIND that do not affect answers.
const IDLE: &[&str] = &[
    "acl",
    "controls",
    "dnssec-policy",
    "http",
    "key",
    "logging",
    "masters",
    "parental-agents",
    "primaries",
    "statistics-channels",
    "tls",
];
/// Options of BIND that do not affect answers. An entry matches all option names that begin with its text.
const IDLE_OPTIONS: &[&str] = &[
    "allow-new-zones",
    "allow-notify",
    "allow-transfer",
    "allow-update",
    "also-notify",
    "auth-nxdomain",
    "cookie",
    "directory",
    "dump-file",
    "edns-udp-size",
    "empty-zones-enable",
    "geoip-directory",
    "hostname",
    "http-",
    "interface-interval",
    "key-directory",
    "lock-file",
    "max-udp-size",
    "memstatistics",
    "minimal-",
    "notify",
    "pid-file",
    "prefetch",
    "qname-minimization",
    "query-source",
    "querylog",
    "recursive-clients",
    "resolver-",
    "secroots-file",
    "server-id",
    "session-key",
    "statistics-file",
    "transfer",
    "version",
];

/// Converts a configuration of BIND. The result is added to `draft`.
pub(super) fn import(file: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let statements = parse(file, Style::Semicolons)?;
    let named = statements.iter().filter(|statement| statement.name() == "acl");
    let acl = |acl: &'_ Statement| Some((acl.argument()?.to_owned(), acl.body().to_vec()));
    let acls = named.filter_map(acl).collect();
    let options: Vec<&Statement> =
        statements.iter().filter(|statement| statement.name() == "options").collect();
    let all = || options.iter().flat_map(|options| options.body());
    let port = all().find(|option| option.name() == "port").and_then(Statement::argument);
    let port = port.and_then(|port| port.parse().ok()).unwrap_or(53);
    let directory = all().find(|option| option.name() == "directory").and_then(Statement::argument);
    let folder = match directory {
        Some(directory) => changed_directory(folder_of(file), directory),
        None => folder_of(file).to_owned(),
    };
    dnssec::import(file, &folder, &statements, draft);
    let mut reader = Reader {
        draft,
        acls,
        meant: HashMap::new(),
        port,
        rules: Vec::new(),
        access: Access::default(),
        stale_for: None,
    };
    for statement in &statements {
        reader.statement(statement);
    }
    let forwarders =
        all().find(|option| option.name() == "forwarders" && !option.body().is_empty());
    if let Some(forwarders) = forwarders.filter(|_| all().all(|option| option.name() != "forward"))
    {
        reader.lost(
            forwarders,
            "BIND queries the root servers if they fail (forward first); dns64d does not",
        );
    }
    let option = |name| all().find(|option| option.name() == name).and_then(Statement::argument);
    let has_empty_zones =
        option("forward") != Some("only") && !option("empty-zones-enable").is_some_and(is_no);
    if has_empty_zones {
        let why = "BIND answers the reverse zones of private addresses itself; set local-zones = true for the same";
        reader.draft.notes.answers(&Location::new(&called(file), 1), "empty-zones-enable yes", why);
    }
    let nowhere = Location::new(&called(file), 1);
    let location = options.first().map_or(nowhere, |options| options.location.clone());
    listen::import(&statements, &options, &folder, &location, reader.draft);
    reader.clients(&location);
    reader.translation(file)
}

/// Values of a `dns64` statement in named.conf.
struct Rule {
    prefix: PrefixDraft,
    clients: Addresses,
    exclude: Addresses,
    recursive_only: bool,
    break_dnssec: bool,
}

/// Clients allowed by each of the access options.
#[derive(Default)]
struct Access {
    query: Option<Located<Addresses>>,
    recursion: Option<Located<Addresses>>,
    cache: Option<Located<Addresses>>,
    blackhole: Option<Addresses>,
}

struct Reader<'a> {
    draft: &'a mut Draft,
    /// Contents of each `acl` statement, by the name of the list.
    acls: HashMap<String, Vec<Statement>>,
    /// Addresses of each `acl` statement, by the name of the list. The value is `None` while the statement is being
    /// evaluated.
    meant: HashMap<String, Option<Addresses>>,
    port: u16,
    rules: Vec<Rule>,
    access: Access,
    /// Time for which expired answers are served, in seconds; `None` if not configured.
    stale_for: Option<u64>,
}

impl Reader<'_> {
    fn statement(&mut self, statement: &Statement) {
        let notes = &mut self.draft.notes;
        match statement.name() {
            "options" => statement.body().iter().for_each(|option| self.option(option)),
            "zone" => self.zone(statement),
            "view" => notes.answers(
                &statement.location,
                &statement.written(),
                "dns64d has no views: add a [[group]] for its clients",
            ),
            name if dnssec::ANCHORS.contains(&name) => (),
            "server" => {
                notes.nothing(
                    &statement.location,
                    &statement.written(),
                    "dns64d queries only its upstreams",
                );
            }
            name if IDLE.contains(&name) => (),
            _ => {
                notes.answers(
                    &statement.location,
                    &statement.written(),
                    "dns64d has no equivalent",
                );
            }
        }
    }

    fn option(&mut self, option: &Statement) {
        let origin = || Origin::new(&option.location, option.written());
        let word = option.argument().unwrap_or_default();
        match option.name() {
            "dns64" => self.dns64(option),
            "dns64-server" => self.name("name-server", option),
            "dns64-contact" => self.name("contact", option),
            "allow-query" => self.access.query = Some(self.located(option)),
            "allow-recursion" => self.access.recursion = Some(self.located(option)),
            "allow-query-cache" => self.access.cache = Some(self.located(option)),
            "blackhole" => self.access.blackhole = Some(self.located(option).value),
            // These options depend on each other, and are evaluated after all others.
            name if listen::CONVERTED.contains(&name) => (),
            "forward" if word == "only" => (),
            "forward" => self.lost(option, "dns64d queries only its upstreams"),
            "forwarders" => self.forwarders(".", option),
            "max-cache-ttl" => self.limit("max-ttl", option, seconds(word)),
            "min-cache-ttl" => self.limit("min-ttl", option, seconds(word)),
            "max-ncache-ttl" => self.limit("negative-max-ttl", option, seconds(word)),
            // These values mean no limit or a fraction of the memory. dns64d uses its default instead.
            "max-cache-size" if matches!(word, "0" | "unlimited" | "default") => self.idle(option),
            "max-cache-size" => self.limit("mebibytes", option, mebibytes(word)),
            "stale-answer-enable" | "stale-cache-enable" if is_no(word) => (),
            "stale-answer-enable" => {
                self.draft.serve_stale(self.stale_for.unwrap_or(DAY), origin());
            }
            "max-stale-ttl" => {
                self.stale_for = seconds(word);
                if let (Some(time), true) = (self.stale_for, self.draft.has("cache", "serve-stale"))
                {
                    self.draft.serve_stale(time, origin());
                }
            }
            "tcp-clients" => {
                self.draft.set_number("limits", "tcp-connections", word.parse().ok(), origin());
            }
            "recursion" if is_no(word) => self.lost(option, "dns64d always forwards"),
            "recursion" => (),
            _ if dnssec::option(option, self.draft) => (),
            name if IDLE_OPTIONS.iter().any(|idle| name.starts_with(idle)) => self.idle(option),
            _ => self.lost(option, "dns64d has no equivalent"),
        }
    }

    fn idle(&mut self, option: &Statement) {
        self.draft.notes.nothing(&option.location, &option.written(), "dns64d does not need it");
    }

    fn lost(&mut self, option: &Statement, why: &str) {
        self.draft.notes.answers(&option.location, &option.written(), why);
    }

    /// Sets a numeric key in the table `[cache]` of the draft.
    fn limit(&mut self, key: &'static str, option: &Statement, value: Option<u64>) {
        self.draft.set_number("cache", key, value, Origin::new(&option.location, option.written()));
    }

    /// Sets a domain name in the table `[local]` of the draft.
    fn name(&mut self, key: &'static str, option: &Statement) {
        let is_name = |name: &&str| !name.contains('@') && Name::<Vec<u8>>::from_str(name).is_ok();
        match option.argument().filter(is_name) {
            Some(name) => {
                self.draft.set("local", key, name, Origin::new(&option.location, option.written()));
            }
            None => self.lost(option, "not a name"),
        }
    }

    /// Evaluates the address list of an option.
    fn located(&mut self, option: &Statement) -> Located<Addresses> {
        let value = self.addresses(option.body());
        Located { value, origin: Origin::new(&option.location, option.written()) }
    }

    /// Evaluates an address list. The first element that covers an address determines whether the address matches the
    /// list. If a nested list excludes an address, the nested list does not cover it, and the elements after the nested
    /// list are evaluated.
    fn addresses(&mut self, elements: &[Statement]) -> Addresses {
        self.nested(elements, 0)
    }

    fn nested(&mut self, elements: &[Statement], depth: usize) -> Addresses {
        let mut list = FirstMatch::default();
        for element in elements {
            let (is_allowed, words) = match element.words.split_first() {
                Some((first, rest)) if first == "!" => (false, rest),
                _ => (true, &element.words[..]),
            };
            let covered = match (words, &element.block) {
                ([], Some(block)) => Some(self.nested(block, depth + 1)),
                ([word], None) => self.named(word, element, depth),
                _ => None,
            };
            match covered {
                Some(covered) => list.then(&covered, is_allowed),
                None => self.lost(element, "these addresses are not known from the file"),
            }
        }
        list.allowed()
    }

    /// Evaluates one word of an address list.
    fn named(&mut self, word: &str, element: &Statement, depth: usize) -> Option<Addresses> {
        if let Some(network) = network(word) {
            return Some(network.into());
        }
        match word {
            "any" => return Some(Addresses::all()),
            "none" => return Some(Addresses::default()),
            "localhost" | "localnets" => {
                self.lost(
                    element,
                    "it stands for the addresses or networks of the host's interfaces; only loopback is included: add the others",
                );
                return Some(Addresses::loopback());
            }
            _ => (),
        }
        // An `acl` that contains itself has an entry without a value here, which ends the
        // recursion.
        if let Some(meant) = self.meant.get(word) {
            return meant.clone();
        }
        let list = self.acls.get(word).filter(|_| depth < DEEPEST)?.clone();
        self.meant.insert(word.to_owned(), None);
        let meant = self.nested(&list, depth + 1);
        self.meant.insert(word.to_owned(), Some(meant.clone()));
        Some(meant)
    }

    fn dns64(&mut self, option: &Statement) {
        let origin = Origin::new(&option.location, option.written());
        let text = option.argument().unwrap_or_default();
        let Some(prefix) = prefix::parse(text) else {
            return self.lost(option, prefix::rejection(text));
        };
        if self.rules.is_empty() {
            self.draft.synthesizes_with_cd("BIND", &origin);
        }
        let mut rule = Rule {
            prefix: PrefixDraft { prefix, suffix: None, ranges: None, origin },
            clients: Addresses::all(),
            exclude: excluded(),
            recursive_only: false,
            break_dnssec: false,
        };
        for key in option.body() {
            let word = key.argument().unwrap_or_default();
            match key.name() {
                "clients" => rule.clients = self.addresses(key.body()),
                "exclude" => rule.exclude = self.addresses(key.body()),
                "mapped" => {
                    let mapped = self.addresses(key.body()).and(&Addresses::all_ipv4());
                    rule.prefix.ranges = (mapped != Addresses::all_ipv4()).then_some(mapped);
                }
                "suffix" => match word.parse::<Ipv6Addr>() {
                    Ok(suffix) if prefix::takes_suffix(prefix, suffix) => {
                        rule.prefix.suffix = (!suffix.is_unspecified()).then_some(suffix);
                    }
                    _ => self.lost(key, "the suffix does not fit the prefix"),
                },
                "recursive-only" => rule.recursive_only = !is_no(word),
                "break-dnssec" => rule.break_dnssec = !is_no(word),
                _ => self.lost(key, "dns64d has no equivalent"),
            }
        }
        self.rules.push(rule);
    }

    fn forwarders(&mut self, domain: &str, option: &Statement) {
        let port = option.after("port").and_then(|port| port.parse().ok()).unwrap_or(self.port);
        let mut upstreams = Vec::new();
        for element in option.body() {
            let own = element.after("port").and_then(|port| port.parse().ok()).unwrap_or(port);
            match socket(element.name(), own) {
                Some(_) if element.after("tls").is_some() => {
                    self.lost(element, "dns64d queries only over UDP and TCP");
                }
                Some(address) => upstreams.push(address),
                None => self.lost(element, "not an address"),
            }
        }
        if upstreams.is_empty() {
            return self
                .lost(option, "without forwarders BIND queries the servers of the zone itself");
        }
        self.draft.forward(domain, &upstreams, &Origin::new(&option.location, option.written()));
    }

    fn zone(&mut self, zone: &Statement) {
        let name = zone.argument().unwrap_or_default().to_owned();
        let key = |key: &str| zone.body().iter().find(|statement| statement.name() == key);
        match key("type").and_then(Statement::argument) {
            Some("hint") => (),
            Some("forward") => {
                if key("forward").is_none_or(|forward| forward.argument() != Some("only")) {
                    self.lost(zone, "dns64d queries only its upstreams (forward first)");
                }
                if let Some(forwarders) = key("forwarders") {
                    self.forwarders(&name, forwarders);
                }
            }
            _ => self.lost(zone, "dns64d has no zones: queries for it go to the upstreams"),
        }
    }

    /// Sets the allowed clients to the intersection of the lists `allow-recursion`, `allow-query-cache` and
    /// `allow-query`, as far as these exist. Clients in the list `blackhole` are removed. If none of the three lists
    /// exists, only a note is added.
    fn clients(&mut self, location: &Location) {
        let Access { query, recursion, cache, blackhole } = std::mem::take(&mut self.access);
        let located = match (recursion, cache) {
            (Some(recursion), Some(cache)) => {
                Some(Located { value: recursion.value.and(&cache.value), ..recursion })
            }
            (recursion, cache) => recursion.or(cache),
        };
        let Some(mut located) = located.or_else(|| query.clone()) else {
            let why = "without allow-recursion BIND answers the networks of its host; dns64d answers loopback and private addresses: add yours to [access]";
            return self.draft.notes.answers(location, "options", why);
        };
        if let Some(query) = query {
            located.value = located.value.and(&query.value);
        }
        if let Some(blackhole) = blackhole {
            located.value = located.value.without(&blackhole);
        }
        self.draft.access = Some(located);
    }

    /// Splits the clients into groups. The same `dns64` statements apply to all clients of a group. Each statement may
    /// double the number of groups, so the length of the result is checked after each statement.
    fn translation(&mut self, file: &Path) -> Result<(), ImportError> {
        let fits = |len: usize| {
            let is_too_long = len as u64 > LONGEST_FILE;
            if is_too_long { Err(ImportError::TooLong { file: file.to_owned() }) } else { Ok(()) }
        };
        let access = self.draft.access.as_ref();
        let allowed = access.map_or_else(Addresses::all, |access| access.value.clone());
        let mut parts: Vec<(Addresses, Vec<usize>)> = vec![(allowed, Vec::new())];
        for (location, rule) in self.rules.iter().enumerate() {
            let mut cut = Vec::with_capacity(parts.len() + 1);
            for (clients, rules) in parts {
                let both = [&rules[..], &[location]].concat();
                cut.push((clients.and(&rule.clients), both));
                cut.push((clients.without(&rule.clients), rules));
            }
            cut.retain(|(clients, _)| !clients.is_empty());
            parts = cut;
            let prefixes: usize = parts.iter().map(|(_, rules)| rules.len()).sum();
            fits(prefixes * LEAST_OF_PREFIX)?;
        }
        // Statements that apply to all clients are written to [dns64].
        let of_all: Vec<usize> = (0..self.rules.len())
            .filter(|&location| self.rules[location].clients == Addresses::all())
            .collect();
        self.draft.translation = self.translation_of(&of_all);
        let mut len = 0;
        for (clients, rules) in parts {
            if rules == of_all {
                continue;
            }
            let translation = self.translation_of(&rules);
            len += clients.least_len() + translation.least_len();
            fits(len)?;
            let origin = rules.last().map(|&location| self.rules[location].prefix.origin.clone());
            self.draft.groups.push(Group { clients, translation, origin });
        }
        Ok(())
    }

    fn translation_of(&mut self, locations: &[usize]) -> Translation {
        let rules: Vec<&Rule> = locations.iter().map(|&location| &self.rules[location]).collect();
        let Some(first) = rules.first() else { return Translation::default() };
        let alike = rules.iter().all(|rule| {
            (rule.recursive_only, rule.break_dnssec) == (first.recursive_only, first.break_dnssec)
        });
        let exclude =
            rules.iter().skip(1).fold(first.exclude.clone(), |all, rule| all.and(&rule.exclude));
        let flags =
            [("recursive-only", first.recursive_only), ("break-dnssec", first.break_dnssec)];
        let origin = first.prefix.origin.clone();
        let translation = Translation {
            prefixes: rules.iter().map(|rule| rule.prefix.clone()).collect(),
            exclude: Some(exclude),
            mode: Some("nodata-only"),
            // Both flags are written for each group, because a group inherits missing flags from
            // [dns64].
            flags: flags.to_vec(),
        };
        if !alike {
            let why = "if several dns64 match a client, recursive-only and break-dnssec are taken from the first one";
            self.draft.notes.answers(&origin.location, &origin.words, why);
        }
        translation
    }
}

fn excluded() -> Addresses {
    let network: Ipv6Net = EXCLUDED.parse().expect("a constant");
    IpNet::from(network).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of importing a named.conf with these options.
    fn imported(options: &str) -> (Draft, Result<(), ImportError>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("named.conf");
        std::fs::write(&file, format!("options {{ {options} }};\n")).unwrap();
        let mut draft = Draft::default();
        let result = import(&file, &mut draft);
        (draft, result)
    }

    /// Returns `count` elements of an address list, with gaps between the addresses.
    fn scattered(count: usize) -> String {
        (0..count).map(|n| format!("10.0.{}.{}; ", n / 100, 2 * (n % 100))).collect()
    }

    #[test]
    fn an_origin_is_short_however_long_its_statement_is() {
        let clients = scattered(1_000);
        let (draft, result) =
            imported(&format!("dns64 64:ff9b::/96 {{ clients {{ {clients} }}; }};"));
        result.unwrap();
        let prefixes = draft.groups.iter().flat_map(|group| &group.translation.prefixes);
        let lens: Vec<usize> = prefixes.map(|prefix| prefix.origin.words.chars().count()).collect();
        assert_eq!(lens, [60]);
    }

    #[test]
    fn groups_too_large_for_a_file_are_rejected() {
        let of_all = |n: usize| format!("dns64 2001:db8:{n:x}::/96 {{ }};\n");
        let of_one =
            |n: usize| format!("dns64 2001:db8:64::/96 {{ clients {{ 10.0.0.{n}; }}; }};\n");
        let options: String = (0..200).map(of_all).chain((0..200).map(of_one)).collect();
        let (draft, result) = imported(&options);
        assert!(matches!(result, Err(ImportError::TooLong { .. })), "{result:?}");
        assert!(draft.groups.is_empty(), "{} groups", draft.groups.len());
        // Few groups, each with a long list.
        let of_one: String = (0..100).map(of_one).collect();
        let mapped = scattered(2_000);
        let (_, result) =
            imported(&format!("dns64 64:ff9b::/96 {{ mapped {{ {mapped} }}; }};\n{of_one}"));
        assert!(matches!(result, Err(ImportError::TooLong { .. })), "{result:?}");
    }
}
