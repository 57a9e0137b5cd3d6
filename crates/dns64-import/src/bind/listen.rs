//! Listen addresses of BIND: the options `listen-on` and `listen-on-v6`, and the statements `tls` and `http`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use net::address::{HostAddr, ServiceAddr};

use crate::draft::{Draft, Origin};
use crate::listeners::{DEFAULT_PATH, Encryption, Transport};
use crate::notes::Location;
use crate::statements::Statement;

/// Options that contain listen addresses, each with the wildcard address of its family.
const FAMILIES: [(&str, IpAddr); 2] = [
    ("listen-on", IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    ("listen-on-v6", IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
];

/// Options that this module converts.
pub(super) const CONVERTED: [&str; 6] =
    ["http-port", "https-port", "listen-on", "listen-on-v6", "port", "tls-port"];

/// Sets the listen addresses. The default is all addresses, over UDP and TCP. `options` are the statements `options`,
/// `location` is that of the first one, and `folder` is the working directory of BIND.
pub(super) fn import(
    statements: &[Statement],
    options: &[&Statement],
    folder: &Path,
    location: &Location,
    draft: &mut Draft,
) {
    let options: Vec<&Statement> = options.iter().flat_map(|options| options.body()).collect();
    let is_list = |option: &Statement| FAMILIES.iter().any(|(key, _)| option.name() == *key);
    // Statements that no listen address refers to are for outgoing connections.
    let named = |kind: &'static str| {
        let lists = options.iter().filter(|option| is_list(option));
        let names: Vec<&str> = lists.filter_map(|option| option.after(kind)).collect();
        let all = statements.iter().filter(move |statement| statement.name() == kind);
        let all = all.filter_map(|statement| Some((statement.argument()?.to_owned(), statement)));
        all.filter(move |(name, _)| names.contains(&name.as_str())).collect::<Vec<_>>()
    };
    let tls = named("tls").into_iter().map(|(name, tls)| (name, encryption(tls, folder, draft)));
    let tls: HashMap<String, Encryption> = tls.collect();
    let http = named("http").into_iter().map(|(name, http)| (name, path(http, draft)));
    let http: HashMap<String, String> = http.collect();
    let mut reader = Reader { draft, options: &options, tls, http };
    for (key, any) in FAMILIES {
        let mut lists = options.iter().filter(|option| option.name() == key).peekable();
        if lists.peek().is_none() {
            let address = ServiceAddr::new(any, reader.port("port", 53));
            reader.draft.listen_at(address, Origin::new(location, format!("no {key}: any")));
        }
        lists.for_each(|list| reader.list(list, any));
    }
}

struct Reader<'a> {
    draft: &'a mut Draft,
    options: &'a [&'a Statement],
    /// Certificates of the `tls` statements, by name.
    tls: HashMap<String, Encryption>,
    /// Paths of the `http` statements, by name.
    http: HashMap<String, String>,
}

impl Reader<'_> {
    /// Returns the port in the option `key`.
    fn port(&self, key: &str, default: u16) -> u16 {
        let option = self.options.iter().find(|option| option.name() == key);
        let port = option.and_then(|option| option.argument()).and_then(|port| port.parse().ok());
        port.unwrap_or(default)
    }

    /// Converts a list of addresses: `listen-on [port PORT] [tls NAME] [http NAME] { ADDRESS; ... }`.
    fn list(&mut self, list: &Statement, any: IpAddr) {
        if list.after("proxy").is_some() {
            return self.lost(list, "dns64d does not have the PROXY protocol");
        }
        let encryption = match list.after("tls") {
            None => Encryption::None,
            Some(name) if name.eq_ignore_ascii_case("none") => Encryption::None,
            Some(name) if name.eq_ignore_ascii_case("ephemeral") => {
                Encryption::Unknown("BIND creates a self-signed certificate")
            }
            Some(name) => match self.tls.get(name) {
                Some(encryption) => encryption.clone(),
                None => return self.lost(list, "there is no such tls statement"),
            },
        };
        let is_encrypted = !matches!(encryption, Encryption::None);
        let path = match list.after("http") {
            None => None,
            Some(name) => match self.http.get(name) {
                Some(path) => Some(path.clone()),
                None if name.eq_ignore_ascii_case("default") => Some(DEFAULT_PATH.to_owned()),
                None => return self.lost(list, "there is no such http statement"),
            },
        };
        let (transport, key, default) = match (&path, is_encrypted) {
            (Some(_), true) => (Transport::Https, "https-port", 443),
            (Some(_), false) => (Transport::Https, "http-port", 80),
            (None, true) => (Transport::Tls, "tls-port", 853),
            (None, false) => (Transport::Udp, "port", 53),
        };
        let port = list.after("port").and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| self.port(key, default));
        for element in list.body() {
            let host = match (element.name(), &element.block) {
                ("none", _) => continue,
                ("any", _) => Some(HostAddr::from(any)),
                (word, None) => word.parse().ok(),
                _ => None,
            };
            let Some(host) = host else {
                self.lost(element, "list each address to serve");
                continue;
            };
            let words = match transport {
                Transport::Udp => element.written(),
                _ => format!("{} {{ {} }}", list.words.join(" "), element.written()),
            };
            let (address, origin) =
                (ServiceAddr::new(host, port), Origin::new(&element.location, words));
            let path = path.as_deref().unwrap_or(DEFAULT_PATH);
            self.draft.listen_with(address, transport, &encryption, path, origin);
        }
    }

    fn lost(&mut self, statement: &Statement, why: &str) {
        self.draft.notes.answers(&statement.location, &statement.written(), why);
    }
}

/// Returns the certificate of a `tls` statement.
fn encryption(tls: &Statement, folder: &Path, draft: &mut Draft) -> Encryption {
    let mut tls12 = true;
    for key in tls.body() {
        let (location, written) = (&key.location, key.written());
        let notes = &mut draft.notes;
        match key.name() {
            "cert-file" | "key-file" => (),
            "protocols" => {
                let has = |version| key.body().iter().any(|known| known.name() == version);
                tls12 = has("TLSv1.2");
                if !has("TLSv1.3") {
                    notes.nothing(location, &written, "dns64d always accepts TLS 1.3");
                }
            }
            "ca-file" => {
                let why = "dns64d does not request certificates of clients";
                notes.answers(location, &written, why);
            }
            "cipher-suites"
            | "ciphers"
            | "dhparam-file"
            | "prefer-server-ciphers"
            | "remote-hostname"
            | "session-tickets" => {
                notes.nothing(location, &written, "dns64d does not need it");
            }
            _ => notes.answers(location, &written, "dns64d has no equivalent"),
        }
    }
    let file = |key| tls.body().iter().find(|known| known.name() == key)?.argument();
    let files = [file("cert-file"), file("key-file")];
    let absence = "the tls statement does not have both cert-file and key-file";
    Encryption::with_files(folder, files, tls12, absence)
}

/// Returns the first path of an `http` statement.
fn path(http: &Statement, draft: &mut Draft) -> String {
    let mut path = DEFAULT_PATH;
    for key in http.body() {
        let (location, written) = (&key.location, key.written());
        match (key.name(), key.body()) {
            ("endpoints", []) => (),
            ("endpoints", [first, others @ ..]) => {
                path = first.name();
                for other in others {
                    let why = "a listen address has only one https-path; the first path is used";
                    draft.notes.answers(&other.location, &written, why);
                }
            }
            ("listener-clients" | "streams-per-connection", _) => {
                draft.notes.nothing(location, &written, "dns64d does not need it");
            }
            _ => draft.notes.answers(location, &written, "dns64d has no equivalent"),
        }
    }
    path.to_owned()
}
