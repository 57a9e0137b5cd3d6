//! Listen addresses of Unbound. The port of an interface determines its transports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use net::address::ServiceAddr;

use super::clauses::{Clause, Entry};
use crate::draft::{Draft, Origin};
use crate::listeners::{DEFAULT_PATH, Encryption, Transport};
use crate::values::socket;

const TLS_PORT: [&str; 2] = ["tls-port", "ssl-port"];
const TLS_KEY: [&str; 2] = ["tls-service-key", "ssl-service-key"];
const TLS_CERTIFICATE: [&str; 2] = ["tls-service-pem", "ssl-service-pem"];
const MORE_TLS_PORTS: [&str; 4] =
    ["tls-additional-port", "tls-additional-ports", "additional-tls-port", "additional-ssl-port"];

/// Keys that this module converts.
pub(super) const CONVERTED: [&str; 19] = [
    "additional-ssl-port",
    "additional-tls-port",
    "http-endpoint",
    "http-notls-downstream",
    "https-port",
    "interface",
    "interface-automatic",
    "ip-address",
    "port",
    "quic-port",
    "ssl-port",
    "ssl-service-key",
    "ssl-service-pem",
    "tls-additional-port",
    "tls-additional-ports",
    "tls-port",
    "tls-protocols",
    "tls-service-key",
    "tls-service-pem",
];

/// Sets the listen addresses. The default is loopback. `directory` is the working directory of Unbound.
pub(super) fn import(server: &Clause, directory: &Path, draft: &mut Draft) {
    let port = port(server, &["port"], 53);
    let encrypted = Encrypted::of(server, directory);
    if let Some(versions) = server.find("tls-protocols")
        && !versions.has_word("TLSv1.3")
    {
        let why = "dns64d always accepts TLS 1.3";
        draft.notes.nothing(&versions.location, &versions.written(), why);
    }
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    if let Some(entry) = server.find("interface-automatic").filter(|entry| entry.is_yes()) {
        any.iter()
            .for_each(|&ip| encrypted.listen(ServiceAddr::new(ip, port), &entry.origin(), draft));
    }
    for entry in &server.entries {
        if !matches!(entry.key.as_str(), "interface" | "ip-address") {
            continue;
        }
        match socket(entry.value(), port) {
            Some(address) => encrypted.listen(address, &entry.origin(), draft),
            None => draft.notes.answers(
                &entry.location,
                &entry.written(),
                "list the addresses of the interface",
            ),
        }
    }
    if draft.listen.is_empty() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let origin = Origin::new(&server.location, "no interface: loopback");
            draft.listen_at(ServiceAddr::new(ip, port), origin);
        }
    }
}

/// Ports of encrypted transports. Without a TLS key, there are none.
struct Encrypted<'a> {
    tls: Vec<u16>,
    https: Option<u16>,
    /// Port of DNS over QUIC, if it is set. By default, it is 853 if Unbound was built with QUIC.
    quic: Option<u16>,
    encryption: Encryption,
    of_https: Encryption,
    path: &'a str,
}

impl Encrypted<'_> {
    fn of<'a>(server: &'a Clause, directory: &Path) -> Encrypted<'a> {
        let file = |keys: &[&str]| find(server, keys).map(Entry::value);
        let files = [file(&TLS_CERTIFICATE), file(&TLS_KEY)];
        let tls12 =
            server.find("tls-protocols").is_none_or(|versions| versions.has_word("TLSv1.2"));
        let absence = "there is no tls-service-pem for this key";
        let encryption = Encryption::with_files(directory, files, tls12, absence);
        let is_plain_http = server.find("http-notls-downstream").is_some_and(Entry::is_yes);
        let has_key = files[1].is_some_and(|key| !key.is_empty());
        let more =
            server.entries.iter().filter(|entry| MORE_TLS_PORTS.contains(&entry.key.as_str()));
        let more = more.filter_map(|entry| entry.value().parse().ok());
        let tls = std::iter::once(port(server, &TLS_PORT, 853)).chain(more);
        Encrypted {
            tls: tls.filter(|_| has_key).collect(),
            https: (has_key || is_plain_http).then(|| port(server, &["https-port"], 443)),
            quic: server
                .find("quic-port")
                .filter(|_| has_key)
                .and_then(|port| port.value().parse().ok()),
            of_https: if is_plain_http { Encryption::None } else { encryption.clone() },
            encryption,
            path: server.find("http-endpoint").map_or(DEFAULT_PATH, Entry::value),
        }
    }

    /// Adds a listen address with the transports of its port.
    fn listen(&self, address: ServiceAddr, origin: &Origin, draft: &mut Draft) {
        let port = address.port();
        let of_tcp = match port {
            _ if self.tls.contains(&port) => Some((Transport::Tls, &self.encryption)),
            _ if self.https == Some(port) => Some((Transport::Https, &self.of_https)),
            _ => None,
        };
        let of_udp = (self.quic == Some(port)).then_some((Transport::Quic, &self.encryption));
        if of_tcp.is_none() && of_udp.is_none() {
            return draft.listen_at(address, origin.clone());
        }
        for (transport, encryption) in of_tcp.into_iter().chain(of_udp) {
            draft.listen_with(address, transport, encryption, self.path, origin.clone());
        }
    }
}

/// Returns the last entry with one of these keys.
fn find<'a>(server: &'a Clause, keys: &[&str]) -> Option<&'a Entry> {
    server.entries.iter().rev().find(|entry| keys.contains(&entry.key.as_str()))
}

/// Returns the port in the last entry with one of these keys.
fn port(server: &Clause, keys: &[&str], default: u16) -> u16 {
    find(server, keys).and_then(|entry| entry.value().parse().ok()).unwrap_or(default)
}
