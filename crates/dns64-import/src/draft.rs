//! The draft of a dns64d configuration, which is built during an import. Each setting is stored
//! with the source line that it comes from.

use std::fmt::Write as _;
use std::str::FromStr;

use domain::base::Name;
use ipnet::Ipv6Net;
use net::address::ServiceAddr;
use toml::Value;

use super::addresses::Addresses;
use super::listeners::{Encryption, Listener, Listeners, Transport};
use super::notes::Notes;
pub(super) use super::origin::{Located, Origin};
use super::prefix::WELL_KNOWN;
use super::validation::DnssecDraft;

/// Maximum number of worker threads of dns64d, which stores one bit for each thread in a 64-bit
/// word.
pub const MAX_THREADS: usize = 64;

/// Function that detects a server that is its own upstream. The first argument contains the listen
/// addresses of the server. Returns true if this server would itself receive queries to the address
/// in the second argument.
pub type IsOwn = fn(&[ServiceAddr], ServiceAddr) -> bool;

/// A DNS64 prefix.
#[derive(Clone, Debug)]
pub(super) struct PrefixDraft {
    pub prefix: Ipv6Net,
    /// Suffix: the bits after the embedded IPv4 address.
    pub suffix: Option<std::net::Ipv6Addr>,
    /// IPv4 addresses that may be embedded in the prefix; `None` for all.
    pub ranges: Option<Addresses>,
    pub origin: Origin,
}

/// Translation rules: keys of a `[dns64]` table. For a missing key, the default of dns64d applies.
#[derive(Clone, Debug, Default)]
pub(super) struct Translation {
    pub prefixes: Vec<PrefixDraft>,
    /// Addresses of AAAA records to ignore; `None` for dns64d's default.
    pub exclude: Option<Addresses>,
    /// Value of the key `mode`: the condition under which A records are queried.
    pub mode: Option<&'static str>,
    /// Boolean keys of the table that have been set, each with its value.
    pub flags: Vec<(&'static str, bool)>,
}

/// Minimum length, in octets, of a prefix entry in the resulting configuration, including its comment.
pub(super) const LEAST_OF_PREFIX: usize = 32;

impl Translation {
    /// Returns a lower bound, in octets, for the length of this table in the resulting configuration.
    pub(super) fn least_len(&self) -> usize {
        let ranges = self.prefixes.iter().filter_map(|prefix| prefix.ranges.as_ref());
        let exclude = self.exclude.as_ref().map(|exclude| exclude.without(&Addresses::all_ipv4()));
        self.prefixes.len() * LEAST_OF_PREFIX
            + ranges.map(Addresses::least_len).sum::<usize>()
            + exclude.map_or(0, |exclude| exclude.least_len())
    }
}

/// Clients, and the translation rules for these clients (`[[group]]`).
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub clients: Addresses,
    pub translation: Translation,
    pub origin: Option<Origin>,
}

/// A domain with its upstreams (`[[forward]]`).
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub domain: String,
    pub upstreams: Vec<ServiceAddr>,
    /// False if the imported server does not validate answers for this domain, although it validates others.
    pub validate: bool,
    pub origin: Origin,
}

/// A key of dns64d with its value, and the setting of the imported configuration from which it was derived.
#[derive(Clone, Debug)]
struct Setting {
    table: &'static str,
    key: &'static str,
    value: Value,
    origin: Origin,
}

/// Default of dns64d's key `max-ttl`, in seconds.
const LONGEST_TTL: i64 = 86_400;
/// Bounds of some numeric keys of dns64d: table, key, minimum and maximum. All other numeric keys accept 32-bit
/// numbers.
const BOUNDS: [(&str, &str, u64, u64); 5] = [
    ("cache", "mebibytes", 0, 1 << 20),
    ("limits", "tcp-connections", 1, 1 << 20),
    ("limits", "tcp-per-client", 1, 1 << 20),
    ("limits", "tcp-pipeline", 1, 10_000),
    ("local", "reverse-ttl", 0, 86_400),
];

/// Draft of a dns64d configuration, with notes on the settings that are not carried over.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub listen: Listeners,
    pub threads: Option<Located<usize>>,
    pub translation: Translation,
    pub groups: Vec<Group>,
    /// Domains in which addresses are synthesized even if there are native AAAA records (`ignore-aaaa` in a
    /// `[[domain]]` entry).
    pub ignore_aaaa: Vec<Located<String>>,
    /// Domains without synthesis (`off` in a `[[domain]]` entry).
    off: Vec<Located<String>>,
    /// Allowed clients; `None` for dns64d's default.
    pub access: Option<Located<Addresses>>,
    /// Upstreams for the root domain, that is, for all names that no [`Forward`] covers.
    pub upstreams: Vec<Located<ServiceAddr>>,
    pub forwards: Vec<Forward>,
    /// Setting because of which answers of the root domain's upstreams are not validated.
    unvalidated_root: Option<Origin>,
    pub dnssec: DnssecDraft,
    /// Zones that dns64d answers locally (`local-zones`); `None` for dns64d's default.
    pub local_zones: Option<Located<Value>>,
    /// Domains that dns64d would answer locally by default, but whose queries must go to the root domain's upstreams.
    as_root: Vec<Located<String>>,
    settings: Vec<Setting>,
    pub notes: Notes,
}

impl Draft {
    /// Sets a numeric key (`[table] key = value`), with the value clamped to the bounds of dns64d. If the text of the
    /// value is not a number (`None`), only a note is added.
    pub(super) fn set_number(
        &mut self,
        table: &'static str,
        key: &'static str,
        value: Option<u64>,
        origin: Origin,
    ) {
        let Some(value) = value else {
            return self.notes.nothing(&origin.location, &origin.words, "not a number");
        };
        let (.., least, most) = BOUNDS
            .into_iter()
            .find(|bounds| (bounds.0, bounds.1) == (table, key))
            .unwrap_or((table, key, 0, u32::MAX.into()));
        let taken = value.clamp(least, most);
        if taken != value {
            let why = format!("{key} of dns64d is {least} to {most}; {taken} is used");
            self.notes.answers(&origin.location, &origin.words, why);
        }
        // The conversion cannot fail, because the bounds are far below `i64::MAX`.
        self.set(table, key, i64::try_from(taken).unwrap_or(i64::MAX), origin);
    }

    /// Adds a note that `server`, the software of the imported configuration, also synthesizes for queries with CD=1.
    /// `origin` is the setting that enables synthesis.
    pub(super) fn synthesizes_with_cd(&mut self, server: &str, origin: &Origin) {
        let why = format!(
            "{server} also synthesizes if a query has CD=1 (without DO); dns64d does not (RFC 6147 §5.5)"
        );
        self.notes.answers(&origin.location, &origin.words, why);
    }

    /// Sets the time for which expired answers may be served (`[cache] serve-stale`), limited to one year.
    pub(super) fn serve_stale(&mut self, seconds: u64, origin: Origin) {
        const YEAR: u64 = 365 * 86_400;
        self.set("cache", "serve-stale", format!("{}s", seconds.min(YEAR)), origin);
    }

    /// Sets the number of threads, clamped to dns64d's maximum.
    pub(super) fn set_threads(&mut self, value: &str, origin: Origin) {
        match value.parse::<usize>() {
            Ok(value) => self.threads = Some(Located { value: value.min(MAX_THREADS), origin }),
            Err(_) => self.notes.nothing(&origin.location, &origin.words, "not a number"),
        }
    }

    /// Adds a `[[domain]]` entry that enables synthesis even if there are native AAAA records (`ignore-aaaa`).
    pub(super) fn add_ignore_aaaa(&mut self, domain: &str, origin: Origin) {
        if let Some(domain) = self.domain(domain, &origin)
            && self.ignore_aaaa.iter().all(|known| known.value != domain)
        {
            self.ignore_aaaa.push(Located { value: domain, origin });
        }
    }

    /// Adds a `[[domain]]` entry that disables synthesis (`off`).
    pub(super) fn add_untranslated_domain(&mut self, domain: &str, origin: Origin) {
        let known =
            |all: &[Located<String>], domain: &str| all.iter().any(|one| one.value == domain);
        if let Some(domain) = self.domain(domain, &origin)
            && !known(&self.off, &domain)
            && !known(&self.ignore_aaaa, &domain)
        {
            self.off.push(Located { value: domain, origin });
        }
    }

    /// Returns a domain in canonical form: lower case without a final dot, or `.` for the root. For
    /// an invalid domain, returns `None` and adds a note.
    fn domain(&mut self, text: &str, origin: &Origin) -> Option<String> {
        match Name::<Vec<u8>>::from_str(text) {
            // After the conversion, an escaped dot in a label would look like a separator.
            _ if text.contains('\\') => {
                let why = format!("'{text}' is a domain name that cannot be converted");
                self.notes.answers(&origin.location, &origin.words, why);
                None
            }
            // dns64d rejects this label, because a domain covers all names below it.
            _ if text.split('.').any(|label| label == "*") => {
                let why = format!("'{text}' has the label '*'");
                self.notes.answers(&origin.location, &origin.words, why);
                None
            }
            Ok(_) => {
                let name = text.trim_end_matches('.').to_ascii_lowercase();
                Some(if name.is_empty() { ".".to_owned() } else { name })
            }
            Err(error) => {
                let why = format!("'{text}' is not a domain name: {error}");
                self.notes.answers(&origin.location, &origin.words, why);
                None
            }
        }
    }

    /// Sets a key (`[table] key = value`), and replaces an earlier value of this key.
    pub(super) fn set(
        &mut self,
        table: &'static str,
        key: &'static str,
        value: impl Into<Value>,
        origin: Origin,
    ) {
        self.settings.retain(|known| (known.table, known.key) != (table, key));
        self.settings.push(Setting { table, key, value: value.into(), origin });
    }

    /// True if the key (`[table] key`) has been set.
    pub(super) fn has(&self, table: &str, key: &str) -> bool {
        self.settings.iter().any(|known| (known.table, known.key) == (table, key))
    }

    /// Adds a listen address for DNS over UDP and TCP.
    pub(super) fn listen_at(&mut self, address: ServiceAddr, origin: Origin) {
        self.listen.add(Listener::plain(address), origin, &mut self.notes);
    }

    /// Adds a listen address with this transport. `path` is the path of the URI for DNS over HTTPS. If dns64d cannot
    /// serve the address in this way, only a note is added.
    pub(super) fn listen_with(
        &mut self,
        address: ServiceAddr,
        transport: Transport,
        encryption: &Encryption,
        path: &str,
        origin: Origin,
    ) {
        match Listener::new(address, transport, encryption, path) {
            Ok(listener) => self.listen.add(listener, origin, &mut self.notes),
            Err(why) => self.notes.answers(&origin.location, &origin.words, why),
        }
    }

    /// Adds upstreams for a domain; `.` is the root domain. If this function is called several times for a domain, the
    /// first list of upstreams applies. If a later list is different, a note is added.
    pub(super) fn forward(&mut self, domain: &str, upstreams: &[ServiceAddr], origin: &Origin) {
        self.forward_with(domain, upstreams, true, origin);
    }

    /// Adds upstreams for a domain, as [`Draft::forward`] does. If `validate` is false, their answers are not validated.
    pub(super) fn forward_with(
        &mut self,
        domain: &str,
        upstreams: &[ServiceAddr],
        validate: bool,
        origin: &Origin,
    ) {
        let Some(domain) = self.domain(domain, origin) else { return };
        let before: Vec<ServiceAddr> = if domain == "." {
            self.upstreams.iter().map(|located| located.value).collect()
        } else {
            let known = self.forwards.iter().filter(|known| known.domain == domain);
            known.flat_map(|known| known.upstreams.iter().copied()).collect()
        };
        if !before.is_empty() {
            if before != upstreams {
                let why = "this domain already has upstreams";
                self.notes.answers(&origin.location, &origin.words, why);
            }
        } else if domain == "." {
            let located = |&value: &ServiceAddr| Located { value, origin: origin.clone() };
            self.upstreams.extend(upstreams.iter().map(located));
            self.unvalidated_root = (!validate).then(|| origin.clone());
        } else {
            let (upstreams, origin) = (upstreams.to_vec(), origin.clone());
            self.forwards.push(Forward { domain, upstreams, validate, origin });
        }
    }

    /// Adds a domain whose queries must go to the root domain's upstreams, although dns64d would answer it locally by
    /// default.
    pub(super) fn add_root_domain(&mut self, domain: &str, origin: Origin) {
        if let Some(value) = self.domain(domain, &origin) {
            self.as_root.push(Located { value, origin });
        }
    }

    /// For each domain added by [`Draft::add_root_domain`], adds a `[[forward]]` entry with the root domain's
    /// upstreams.
    fn add_root_forwards(&mut self) {
        let upstreams: Vec<ServiceAddr> =
            self.upstreams.iter().map(|located| located.value).collect();
        for Located { value: domain, origin } in std::mem::take(&mut self.as_root) {
            if self.forwards.iter().any(|known| known.domain == domain) {
                continue;
            }
            if upstreams.is_empty() {
                let why = "dns64d answers it locally; add a [[forward]] for it";
                self.notes.answers(&origin.location, &origin.words, why);
            } else {
                let upstreams = upstreams.clone();
                self.forwards.push(Forward { domain, upstreams, validate: true, origin });
            }
        }
    }

    /// Adds a negative trust anchor. For an invalid name, adds a note.
    pub(super) fn add_negative_anchor(&mut self, domain: &str, origin: Origin) {
        if let Some(domain) = self.domain(domain, &origin) {
            self.dnssec.add_negative(domain, origin);
        }
    }

    /// Adds a note on a DNSSEC option that is not carried over. `effect` is its effect on answers, or `None` if it has none.
    /// Without validation, no such option affects answers.
    pub(super) fn dnssec_option(&mut self, option: &Origin, effect: Option<&str>) {
        let Origin { location, words } = option;
        match effect {
            _ if !self.dnssec.validates() => {
                self.notes.nothing(location, words, "validation is off");
            }
            Some(why) => self.notes.answers(location, words, why),
            None => self.notes.nothing(location, words, "dns64d does not need it"),
        }
    }

    /// Turns validation off if the imported server does not validate the answers of the root domain's upstreams. In
    /// dns64d, a domain cannot be validated without the root.
    fn resolve_unvalidated_root(&mut self) {
        let Some(root) = self.unvalidated_root.take().filter(|_| self.dnssec.validates()) else {
            return;
        };
        for Forward { origin, .. } in self.forwards.iter().filter(|forward| forward.validate) {
            let why = "it is validated, and the root domain is not; dns64d validates neither";
            self.notes.answers(&origin.location, &origin.words, why);
        }
        self.dnssec.set_validate(false, root);
    }

    /// Removes upstreams that cannot be queried: those with port 0, link-local addresses without an
    /// interface, and dns64d itself.
    fn remove_unusable_upstreams(&mut self, is_own: IsOwn) {
        let listen = self.listen.addresses();
        let is_good = |address: &ServiceAddr| {
            address.port() > 0 && !address.host().lacks_zone() && !is_own(&listen, *address)
        };
        let why =
            "dns64d cannot query itself, port 0, or a link-local address without its interface";
        let notes = &mut self.notes;
        self.upstreams.retain(|located| {
            if !is_good(&located.value) {
                notes.answers(&located.origin.location, &located.origin.words, why);
            }
            is_good(&located.value)
        });
        for forward in &mut self.forwards {
            let before = forward.upstreams.len();
            forward.upstreams.retain(is_good);
            if forward.upstreams.len() < before {
                notes.answers(&forward.origin.location, &forward.origin.words, why);
            }
        }
        self.forwards.retain(|forward| !forward.upstreams.is_empty());
        if self.upstreams.is_empty() {
            for Forward { origin, .. } in &self.forwards {
                let why = "commented out: no default upstream is configured";
                notes.answers(&origin.location, &origin.words, why);
            }
        }
    }

    /// Resolves conflicts between settings that are individually valid.
    fn resolve_conflicts(&mut self, is_own: IsOwn) {
        self.remove_unusable_upstreams(is_own);
        self.listen.remove_unusable(&mut self.notes);
        self.add_root_forwards();
        self.resolve_unvalidated_root();
        self.dnssec.resolve(&mut self.notes);
        let number = |settings: &[Setting], key| {
            let setting = settings.iter().find(|known| (known.table, known.key) == ("cache", key));
            setting.and_then(|known| known.value.as_integer())
        };
        let most = number(&self.settings, "max-ttl").unwrap_or(LONGEST_TTL);
        if number(&self.settings, "min-ttl").is_some_and(|least| least > most) {
            let location = self.settings.iter().position(|known| known.key == "min-ttl");
            if let Some(least) = location.map(|location| self.settings.remove(location)) {
                let why = "it is above the maximum TTL";
                self.notes.answers(&least.origin.location, &least.origin.words, why);
            }
        }
    }

    /// Returns the text of the configuration file. `origin` is the name of the source, which is
    /// written in the first comment.
    pub(super) fn finish(&mut self, origin: &str, is_own: IsOwn) -> String {
        self.resolve_conflicts(is_own);
        let mut text = format!(
            "# Generated by `dns64d import` from {origin}. The comments have the source line of each setting.\n\n"
        );
        self.write_head(&mut text);
        self.write_table(&mut text, "dns64", |text| write_translation(text, &self.translation));
        self.write_access(&mut text);
        self.dnssec.write(&mut text);
        for table in ["local", "cache", "limits", "forwarding"] {
            self.write_table(&mut text, table, |_| ());
        }
        self.write_upstreams(&mut text);
        for (key, domains) in [("ignore-aaaa", &self.ignore_aaaa), ("off", &self.off)] {
            for domain in domains {
                let (comment, name) = (domain.origin.comment(), quoted(&domain.value));
                let _ = writeln!(text, "{comment}[[domain]]\ndomain = {name}\n{key} = true\n");
            }
        }
        for group in &self.groups {
            text += &group.origin.as_ref().map(Origin::comment).unwrap_or_default();
            let clients = networks(&group.clients);
            let _ = writeln!(text, "[[group]]\nclients = {clients}\n[group.dns64]");
            write_translation(&mut text, &group.translation);
            text.push('\n');
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }

    fn write_head(&self, text: &mut String) {
        self.listen.write(text);
        if let Some(threads) = &self.threads {
            let _ = writeln!(text, "{}threads = {}", threads.origin.comment(), threads.value);
        }
        if let Some(Located { value, origin }) = &self.local_zones {
            let _ = writeln!(text, "{}local-zones = {}", origin.comment(), in_lines(value));
        }
        text.push('\n');
    }

    /// Writes the heading of a table, its settings, and the output of `more`. Writes nothing if there are no settings
    /// and `more` writes nothing.
    fn write_table(&self, text: &mut String, table: &str, more: impl Fn(&mut String)) {
        let mut body = String::new();
        more(&mut body);
        for setting in self.settings.iter().filter(|setting| setting.table == table) {
            body += &setting.origin.comment();
            let _ = writeln!(body, "{} = {}", setting.key, setting.value);
        }
        if !body.is_empty() {
            let _ = writeln!(text, "[{table}]\n{body}");
        }
    }

    fn write_access(&self, text: &mut String) {
        let Some(access) = &self.access else { return };
        let _ = writeln!(
            text,
            "[access]\n{}allow = {}",
            access.origin.comment(),
            networks(&access.value)
        );
        if is_open(&access.value) {
            text.push_str("open-resolver = true\n");
        }
        text.push('\n');
    }

    /// Writes the upstreams (`[[upstream]]`), and the entries that assign domains to upstreams (`[[forward]]`). If such
    /// an entry exists for any domain, the root domain also needs one. Without this entry, dns64d would use all
    /// upstreams for the root domain, including those of the other domains.
    fn write_upstreams(&self, text: &mut String) {
        let root: Vec<ServiceAddr> = self.upstreams.iter().map(|located| located.value).collect();
        let mut body = String::new();
        let mut written: Vec<ServiceAddr> = Vec::new();
        let of_root = self.upstreams.iter().map(|located| (located.value, &located.origin));
        let of_domains = self.forwards.iter().flat_map(|forward| {
            forward.upstreams.iter().map(|&address| (address, &forward.origin))
        });
        for (address, origin) in of_root.chain(of_domains) {
            if written.contains(&address) {
                continue;
            }
            written.push(address);
            let (host, port) = (address.host(), address.port());
            let _ = writeln!(
                body,
                "{}[[upstream]]\naddress = \"{host}\"\nport = {port}\nname = \"{address}\"\n",
                origin.comment()
            );
        }
        if !self.forwards.is_empty() && !root.is_empty() {
            write_forward(&mut body, ".", &root, true);
        }
        for forward in &self.forwards {
            body += &forward.origin.comment();
            let validate = forward.validate || !self.dnssec.validates();
            write_forward(&mut body, &forward.domain, &forward.upstreams, validate);
        }
        if root.is_empty() {
            // Upstreams for individual domains are commented out. Without an upstream for the root
            // domain, dns64d would use them for all names.
            text.push_str(OPEN);
            body = body
                .lines()
                .map(|line| format!("#| {line}").trim_end().to_owned() + "\n")
                .collect();
        }
        text.push_str(&body);
    }
}

/// Text that is written if there are no upstreams for the root domain.
const OPEN: &str = "\
# No default upstream is configured, and dns64d does not resolve from the root servers. Until you add one here, the
# servers of /etc/resolv.conf are used.
#| [[upstream]]
#| address = \"192.0.2.53\"
#| name = \"resolver\"
#| [[forward]]
#| domain = \".\"
#| upstreams = [\"resolver\"]

";

/// Writes a `[[forward]]` entry. The key `validate` is written only if it is false.
fn write_forward(text: &mut String, domain: &str, upstreams: &[ServiceAddr], validate: bool) {
    let names = upstreams.iter().map(|address| Value::String(address.to_string()));
    let names = Value::Array(names.collect());
    let validate = if validate { "" } else { "validate = false\n" };
    let domain = quoted(domain);
    let _ = writeln!(text, "[[forward]]\ndomain = {domain}\nupstreams = {names}\n{validate}");
}

fn write_translation(text: &mut String, translation: &Translation) {
    let Translation { prefixes, exclude, mode, flags } = translation;
    if prefixes.is_empty() {
        text.push_str("# No translation.\nprefixes = []\n");
    } else {
        text.push_str("prefixes = [\n");
        for prefix in prefixes {
            let _ = writeln!(text, "    {}    {},", prefix.origin.comment(), written(prefix));
        }
        text.push_str("]\n");
    }
    if let Some(exclude) = exclude {
        // The key `exclude` does not accept IPv4 networks.
        let exclude = exclude.without(&Addresses::all_ipv4());
        let _ = writeln!(text, "exclude = {}", networks(&exclude));
    }
    if let Some(mode) = mode {
        let _ = writeln!(text, "mode = \"{mode}\"");
    }
    for (key, value) in flags {
        let _ = writeln!(text, "{key} = {value}");
    }
}

/// Formats a prefix as an inline table. `allow-non-global` is set for the well-known prefix,
/// because all supported servers embed private addresses in it, although RFC 6052 §3.1 forbids
/// this.
fn written(draft: &PrefixDraft) -> String {
    let mut text = format!("{{ prefix = \"{}\"", draft.prefix);
    if let Some(suffix) = draft.suffix {
        let _ = write!(text, ", suffix = \"{suffix}\"");
    }
    if let Some(ranges) = &draft.ranges {
        let _ = write!(text, ", ranges = {}", networks(ranges));
    }
    if draft.prefix == WELL_KNOWN {
        text.push_str(", allow-non-global = true");
    }
    text + " }"
}

/// Formats a value. An array is written on several lines of at most 100 characters, and any other value on one line.
fn in_lines(value: &Value) -> String {
    let Value::Array(items) = value else { return value.to_string() };
    let mut text = "[".to_owned();
    let mut line = 100;
    for item in items.iter().map(|item| format!("{item},")) {
        line += 1 + item.len();
        if line > 100 {
            text += "\n   ";
            line = 4 + item.len();
        }
        text += &format!(" {item}");
    }
    text + "\n]"
}

fn networks(addresses: &Addresses) -> Value {
    Value::Array(addresses.written().into_iter().map(Value::String).collect())
}

/// True if dns64d requires `open-resolver` for these clients. The key is required if the clients include a network with
/// a prefix length below 8, except fc00::/7.
fn is_open(clients: &Addresses) -> bool {
    let of_more = |text: String| {
        let len = text.rsplit_once('/').and_then(|(_, len)| len.parse::<u8>().ok());
        !text.starts_with('!') && text != "fc00::/7" && len.is_some_and(|len| len < 8)
    };
    clients.written().into_iter().any(of_more)
}

fn quoted(text: &str) -> Value {
    Value::String(text.to_owned())
}
