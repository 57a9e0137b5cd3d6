//! Listen addresses (key `listen`), their transports and certificates.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use dns64_import::is_https_path;
use net::address::{HostAddr, ServiceAddr};
use serde::{Deserialize, Serialize};

use crate::transport::Transport;
use crate::transport::certificate::CertificateFiles;

/// An entry of `listen`: an address, or a table with an address and further keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(from = "RawListenKeys", into = "RawListenKeys")]
pub(crate) struct ListenKeys {
    /// Address and port.
    #[schemars(with = "String")]
    pub(crate) address: ServiceAddr,
    pub(crate) transport: ListenTransport,
    /// Certificate and private key of an encrypted transport.
    pub(crate) files: ListenFiles,
    /// Path of the URI for DNS over HTTPS, without scheme and host.
    pub(crate) https_path: Option<String>,
    /// Accept TLS 1.2 too.
    pub(crate) tls12: bool,
    /// Receive datagrams for this address over AF_XDP (kernel bypass), on the interface that has
    /// the address.
    pub(crate) xdp: bool,
}

/// Paths of a certificate and its key, if the keys `certificate` and `key` are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenFiles {
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// Transport of a listen address.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ListenTransport {
    /// DNS over UDP and TCP.
    #[default]
    Udp,
    /// DNS over TLS (RFC 7858).
    Tls,
    /// DNS over HTTPS (RFC 8484).
    Https,
    /// DNS over QUIC (RFC 9250).
    Quic,
}

impl ListenTransport {
    /// Returns the transport of queries to this address, without TCP beside UDP.
    pub(crate) fn transport(self) -> Transport {
        match self {
            ListenTransport::Udp => Transport::Udp,
            ListenTransport::Tls => Transport::Tls,
            ListenTransport::Https => Transport::Https,
            ListenTransport::Quic => Transport::Quic,
        }
    }

    /// Returns the port that applies if an address has none.
    pub(crate) fn default_port(self) -> u16 {
        match self {
            ListenTransport::Udp => 53,
            ListenTransport::Tls | ListenTransport::Quic => 853,
            ListenTransport::Https => 443,
        }
    }

    /// Returns whether the transport uses a UDP port, and whether it uses a TCP port.
    pub(crate) fn ports(self) -> [bool; 2] {
        match self {
            ListenTransport::Udp => [true, true],
            ListenTransport::Tls | ListenTransport::Https => [false, true],
            ListenTransport::Quic => [true, false],
        }
    }
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(
    untagged,
    expecting = "an address and port, or a table with one; write for example \"[::1]:53\" or { address = \"192.0.2.1:53\", xdp = true }"
)]
enum RawListenKeys {
    /// An address and port, for UDP and TCP. Datagrams pass through the kernel's network stack.
    Address(#[schemars(with = "String")] ServiceAddr),
    /// An address and port with further keys.
    Table(ListenTable),
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ListenTable {
    /// Address and port. Without a port, the port is 53, 853 (`tls`, `quic`) or 443 (`https`).
    #[schemars(with = "String")]
    address: WrittenAddress,
    /// Transport of DNS: `udp` (UDP and TCP), `tls`, `https` or `quic`.
    #[serde(default, skip_serializing_if = "is_default")]
    transport: ListenTransport,
    /// PEM file with the certificate for `tls`, `https` or `quic`, followed by the certificates of its issuers. `https`
    /// needs no certificate at a loopback address, for a reverse proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<PathBuf>,
    /// Path of the URI for `https`; `/dns-query` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    https_path: Option<String>,
    /// Accept TLS 1.2 in addition to TLS 1.3, for `tls` and `https`.
    #[serde(default, skip_serializing_if = "is_default")]
    tls12: bool,
    /// Receive datagrams for this address over AF_XDP (kernel bypass), on the interface that has
    /// the address.
    #[serde(default, skip_serializing_if = "is_default")]
    xdp: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// An address with or without a port.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
enum WrittenAddress {
    WithPort(ServiceAddr),
    WithoutPort(HostAddr),
}

impl FromStr for WrittenAddress {
    type Err = net::address::BadAddress;

    fn from_str(text: &str) -> Result<WrittenAddress, Self::Err> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        match bare.parse() {
            Ok(host) => Ok(WrittenAddress::WithoutPort(host)),
            Err(_) => text.parse().map(WrittenAddress::WithPort),
        }
    }
}

impl TryFrom<String> for WrittenAddress {
    type Error = net::address::BadAddress;

    fn try_from(text: String) -> Result<WrittenAddress, Self::Error> {
        text.parse()
    }
}

impl From<WrittenAddress> for String {
    fn from(address: WrittenAddress) -> String {
        address.to_string()
    }
}

impl fmt::Display for WrittenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WrittenAddress::WithPort(address) => address.fmt(f),
            WrittenAddress::WithoutPort(host) => host.fmt(f),
        }
    }
}

impl From<RawListenKeys> for ListenKeys {
    fn from(raw: RawListenKeys) -> ListenKeys {
        let table = match raw {
            RawListenKeys::Address(address) => return ListenKeys::new(address),
            RawListenKeys::Table(table) => table,
        };
        let address = match table.address {
            WrittenAddress::WithPort(address) => address,
            WrittenAddress::WithoutPort(host) => {
                ServiceAddr::new(host, table.transport.default_port())
            }
        };
        ListenKeys {
            address,
            transport: table.transport,
            files: ListenFiles { certificate: table.certificate, key: table.key },
            https_path: table.https_path,
            tls12: table.tls12,
            xdp: table.xdp,
        }
    }
}

impl From<ListenKeys> for RawListenKeys {
    fn from(keys: ListenKeys) -> RawListenKeys {
        if keys == ListenKeys::new(keys.address) {
            return RawListenKeys::Address(keys.address);
        }
        RawListenKeys::Table(ListenTable {
            address: WrittenAddress::WithPort(keys.address),
            transport: keys.transport,
            certificate: keys.files.certificate,
            key: keys.files.key,
            https_path: keys.https_path,
            tls12: keys.tls12,
            xdp: keys.xdp,
        })
    }
}

impl ListenKeys {
    /// Returns an entry for `address` that uses UDP, TCP and the kernel's network stack.
    pub(crate) fn new(address: ServiceAddr) -> ListenKeys {
        ListenKeys {
            address,
            transport: ListenTransport::Udp,
            files: ListenFiles::default(),
            https_path: None,
            tls12: false,
            xdp: false,
        }
    }

    /// Returns the paths of certificate and key, or `None` if there is no certificate.
    pub(crate) fn certificate(&self) -> Option<CertificateFiles> {
        let ListenFiles { certificate: Some(certificate), key: Some(key) } = self.files.clone()
        else {
            return None;
        };
        Some(CertificateFiles { certificate, key })
    }

    /// Returns the path of the URI for DNS over HTTPS.
    pub(crate) fn path(&self) -> &str {
        self.https_path.as_deref().unwrap_or("/dns-query")
    }

    /// True if the two entries need the same address, and the same port of UDP or of TCP.
    pub(super) fn conflicts_with(&self, other: &ListenKeys) -> bool {
        let mut ports = self.transport.ports().into_iter().zip(other.transport.ports());
        // The kernel chooses another port for each port 0.
        let is_fixed = self.address.port() != 0;
        is_fixed && self.address == other.address && ports.any(|(ours, theirs)| ours && theirs)
    }

    /// Returns the key of this entry that is not valid, with the reason, or `None` if all keys are valid. An empty key
    /// stands for the whole entry.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        let address = self.address;
        let is_encrypted = self.transport != ListenTransport::Udp;
        let is_https = self.transport == ListenTransport::Https;
        if self.xdp && is_encrypted {
            return Some(("xdp", "xdp = true needs transport = \"udp\"".into()));
        }
        if self.xdp && address.ip().is_unspecified() {
            let reason = format!(
                "xdp = true needs an address of one interface, and {address} is on all of them; list each address"
            );
            return Some(("", reason));
        }
        let ListenFiles { certificate, key } = &self.files;
        match (certificate, key) {
            (Some(_), None) => {
                return Some((
                    "certificate",
                    "certificate needs the file of its private key: key".into(),
                ));
            }
            (None, Some(_)) => {
                return Some(("key", "key needs the file of its certificate: certificate".into()));
            }
            (Some(_), Some(_)) if !is_encrypted => {
                let reason = "certificate needs transport = \"tls\", \"https\" or \"quic\"";
                return Some(("certificate", reason.into()));
            }
            (None, None) if is_https && is_loopback(address.ip()) => {}
            (None, None) if is_encrypted => {
                let and = if is_https { "; only a loopback address needs none" } else { "" };
                return Some((
                    "",
                    format!("this transport needs the files certificate and key{and}"),
                ));
            }
            _ => {}
        }
        if self.https_path.is_some() && !is_https {
            return Some(("https-path", "https-path needs transport = \"https\"".into()));
        }
        if !is_https_path(self.path()) {
            let reason =
                "https-path must begin with / and consist of letters, digits, /, -, ., _ and ~";
            return Some(("https-path", reason.into()));
        }
        if self.tls12 && (certificate.is_none() || self.transport == ListenTransport::Quic) {
            return Some((
                "tls12",
                "tls12 needs transport = \"tls\" or \"https\" with a certificate".into(),
            ));
        }
        None
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Settings;

    fn listen(text: &str) -> Result<Vec<String>, String> {
        let upstream = "[[upstream]]\naddress = '192.0.2.1'\n";
        let settings = Settings::from_text(&format!("{text}\n{upstream}"), Path::new("test.toml"));
        let settings = settings.map_err(|error| error.to_string())?;
        Ok(settings.config.listen.iter().map(|keys| keys.address.to_string()).collect())
    }

    #[test]
    fn ports_depend_on_the_transport() {
        let files = "certificate = 'a.pem', key = 'b.pem'";
        for (entry, address) in [
            ("'[::1]:5380'".to_owned(), "[::1]:5380"),
            ("{ address = '::1' }".to_owned(), "[::1]:53"),
            ("{ address = '192.0.2.1:5353' }".to_owned(), "192.0.2.1:5353"),
            (
                format!("{{ address = '[2001:db8::1]', transport = 'tls', {files} }}"),
                "[2001:db8::1]:853",
            ),
            (
                format!("{{ address = '2001:db8::1', transport = 'quic', {files} }}"),
                "[2001:db8::1]:853",
            ),
            (format!("{{ address = '192.0.2.1', transport = 'https', {files} }}"), "192.0.2.1:443"),
            ("{ address = '127.0.0.1:8053', transport = 'https' }".to_owned(), "127.0.0.1:8053"),
        ] {
            assert_eq!(
                listen(&format!("listen = [{entry}]")),
                Ok(vec![address.to_owned()]),
                "{entry}"
            );
        }
        // DoT and DoQ have the same port number.
        let both = format!(
            "listen = ['[::1]:53', {{ address = '::1', transport = 'tls', {files} }}, {{ address = '::1', transport = 'quic', {files} }}]"
        );
        assert_eq!(listen(&both).unwrap().len(), 3);
    }

    #[test]
    fn invalid_entries_are_rejected() {
        let files = "certificate = 'a.pem'\nkey = 'b.pem'\n";
        for (keys, line, reason) in [
            ("transport = 'tls'".to_owned(), 1, "needs the files certificate and key"),
            ("transport = 'https'".to_owned(), 1, "only a loopback address"),
            ("transport = 'tls'\ncertificate = 'a.pem'".to_owned(), 4, "private key"),
            ("transport = 'quic'\nkey = 'b.pem'".to_owned(), 4, "its certificate"),
            (files.to_owned(), 3, "needs transport"),
            (
                format!("transport = 'tls'\n{files}https-path = '/x'"),
                6,
                "needs transport = \"https\"",
            ),
            (format!("transport = 'https'\n{files}https-path = 'x'"), 6, "must begin with /"),
            (format!("transport = 'https'\n{files}https-path = '/x?y'"), 6, "must begin with /"),
            (format!("transport = 'quic'\n{files}tls12 = true"), 6, "tls12 needs"),
            (format!("transport = 'tls'\n{files}xdp = true"), 6, "xdp = true needs"),
        ] {
            let error =
                listen(&format!("[[listen]]\naddress = '192.0.2.2'\n{keys}\n")).unwrap_err();
            assert!(error.contains(reason), "{keys}: {error}");
            assert!(error.contains(&format!("test.toml:{line}:")), "{keys}: {error}");
        }
        let twice = format!(
            "[[listen]]\naddress = '[::1]:853'\n[[listen]]\naddress = '[::1]:853'\ntransport = 'tls'\n{files}"
        );
        assert!(listen(&twice).is_err());
    }
}
