//! Listen addresses of Knot Resolver, and the certificate for all of them.

use std::path::Path;

use net::address::{HostAddr, ServiceAddr};

use crate::draft::{Draft, Origin};
use crate::listeners::{DEFAULT_PATH, Encryption, Transport};
use crate::lua::Statement;
use crate::tree::Node;
use crate::values::socket;

const SELF_SIGNED: &str = "Knot Resolver creates a self-signed certificate";

/// Returns the certificate in the last call `net.tls(CERTIFICATE, KEY)`.
pub(super) fn encryption(statements: &[Statement], folder: &Path) -> Encryption {
    let arguments = statements.iter().rev().find_map(|statement| match statement {
        Statement::Call(node) => match node.call() {
            ("net.tls", [certificate, key]) => Some([certificate.text(), key.text()]),
            _ => None,
        },
        _ => None,
    });
    let absence = match arguments {
        Some([Some(_), Some(_)]) | None => SELF_SIGNED,
        Some(_) => "the arguments of net.tls are not literal",
    };
    Encryption::with_files(folder, arguments.unwrap_or_default(), true, absence)
}

/// Returns the certificate in the section `network.tls` of a config.yaml.
pub(super) fn encryption_yaml(tls: Option<&Node>, folder: &Path, draft: &mut Draft) -> Encryption {
    for (key, node) in tls.map(Node::entries).unwrap_or_default() {
        match key.as_str() {
            "cert-file" | "key-file" => (),
            "auto-discovery"
            | "files-watchdog"
            | "padding"
            | "sticket-secret"
            | "sticket-secret-file"
            | "watchdog" => {
                draft.notes.nothing(&node.location, key, "dns64d does not need it");
            }
            _ => lost(draft, node, key, "dns64d has no equivalent"),
        }
    }
    let file = |key| tls.and_then(|tls| tls.get(key)).and_then(Node::text);
    Encryption::with_files(folder, [file("cert-file"), file("key-file")], true, SELF_SIGNED)
}

/// Returns the transport and the encryption of a kind of listen address. `encryption` has the server's certificate. DNS
/// over HTTPS needs TLS 1.3.
fn of_kind(kind: &str, encryption: &Encryption) -> Option<(Transport, Encryption)> {
    match kind {
        "dns" => Some((Transport::Udp, Encryption::None)),
        "tls" | "dot" => Some((Transport::Tls, encryption.clone())),
        "doh2" => Some((Transport::Https, encryption.without_tls12())),
        "doh2-insecure" => Some((Transport::Https, Encryption::None)),
        "doq" => Some((Transport::Quic, encryption.clone())),
        _ => None,
    }
}

/// Converts a call `net.listen(ADDRESSES, PORT, { kind = KIND })`.
pub(super) fn call(node: &Node, arguments: &[Node], encryption: &Encryption, draft: &mut Draft) {
    let option = |key| arguments.get(2).and_then(|options| options.get(key)).and_then(Node::text);
    let port = arguments.get(1).and_then(Node::text).and_then(|port| port.parse().ok());
    let port = port.unwrap_or(53);
    let kind = match (option("kind"), option("tls"), port) {
        (Some(kind), ..) => kind.to_ascii_lowercase(),
        (None, Some("true"), 443) | (None, None, 443) => "doh2".to_owned(),
        (None, Some("true"), _) | (None, None, 853) => "tls".to_owned(),
        _ => "dns".to_owned(),
    };
    if matches!(kind.as_str(), "control" | "webmgmt") {
        let why = "it serves no DNS; dns64d has [control] and [metrics]";
        return draft.notes.nothing(&node.location, &node.written(), why);
    }
    let Some((transport, encryption)) = of_kind(&kind, encryption) else {
        return lost(draft, node, &node.written(), "dns64d has no equivalent of this kind");
    };
    let origin = || Origin::new(&node.location, node.written());
    for address in arguments.first().map(Node::elements).unwrap_or_default() {
        match address.text().and_then(|text| text.parse::<HostAddr>().ok()) {
            Some(host) => {
                let address = ServiceAddr::new(host, port);
                draft.listen_with(address, transport, &encryption, DEFAULT_PATH, origin());
            }
            None => lost(draft, node, &node.written(), "list the addresses of the interface"),
        }
    }
}

/// Converts an entry of `network.listen` in a config.yaml.
pub(super) fn entry(listening: &Node, encryption: &Encryption, draft: &mut Draft) {
    let kind = listening.get("kind").and_then(Node::text).unwrap_or("dns");
    let port = listening.get("port").and_then(Node::text).and_then(|port| port.parse().ok());
    let interfaces = listening.get("interface").map(Node::elements).unwrap_or_default();
    if interfaces.is_empty() {
        return lost(draft, listening, &listening.written(), "dns64d serves only IP addresses");
    }
    let Some((transport, encryption)) = of_kind(kind, encryption) else {
        let why = "dns64d has no equivalent of this kind";
        return lost(draft, listening, &listening.written(), why);
    };
    let port = port.unwrap_or(match kind {
        "doh2-insecure" => 80,
        _ => transport.default_port(),
    });
    for interface in interfaces {
        match interface.text().and_then(|text| socket(text, port)) {
            Some(address) => {
                let origin = Origin::new(&interface.location, listening.written());
                draft.listen_with(address, transport, &encryption, DEFAULT_PATH, origin);
            }
            None => {
                lost(draft, listening, &listening.written(), "list the addresses of the interface");
            }
        }
    }
}

fn lost(draft: &mut Draft, node: &Node, what: &str, why: &str) {
    draft.notes.answers(&node.location, what, why);
}
