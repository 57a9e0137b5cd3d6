//! Listen addresses with their transports and certificates (key `listen`).

use std::fmt;
use std::path::Path;

use net::address::ServiceAddr;
use toml::Value;

use super::files::absolute_path;
use super::notes::{Notes, shortened};
use super::origin::{Located, Origin};

/// Default path of the URI for DNS over HTTPS.
pub(super) const DEFAULT_PATH: &str = "/dns-query";

/// True if dns64d accepts this path of a URI for DNS over HTTPS (key `https-path`).
pub fn is_https_path(path: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    path.starts_with('/') && path.chars().all(is_plain)
}

/// Transport of a listen address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// DNS over UDP and TCP.
    Udp,
    Tls,
    Https,
    Quic,
}

impl Transport {
    /// Returns the value of dns64d's key `transport`.
    fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tls => "tls",
            Transport::Https => "https",
            Transport::Quic => "quic",
        }
    }

    /// Returns the port that applies if an address has none.
    pub(super) fn default_port(self) -> u16 {
        match self {
            Transport::Udp => 53,
            Transport::Tls | Transport::Quic => 853,
            Transport::Https => 443,
        }
    }

    /// Returns whether the transport uses a UDP port, and whether it uses a TCP port.
    fn ports(self) -> [bool; 2] {
        match self {
            Transport::Udp => [true, true],
            Transport::Tls | Transport::Https => [false, true],
            Transport::Quic => [true, false],
        }
    }
}

/// Encryption of listen addresses.
#[derive(Clone, Debug)]
pub(super) enum Encryption {
    /// No encryption.
    None,
    Files(CertificateFiles),
    /// A certificate that the imported configuration does not contain, with the reason.
    Unknown(&'static str),
}

/// Absolute paths of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateFiles {
    certificate: String,
    key: String,
    /// True if TLS 1.2 is accepted in addition to TLS 1.3.
    tls12: bool,
}

impl Encryption {
    /// Returns the encryption with this certificate and key. Relative paths are resolved against `folder`. If one of the
    /// two files is not given, returns [`Encryption::Unknown`] with the reason `absence`.
    pub(super) fn with_files(
        folder: &Path,
        [certificate, key]: [Option<&str>; 2],
        tls12: bool,
        absence: &'static str,
    ) -> Encryption {
        let path =
            |name: Option<&str>| absolute_path(&folder.join(name.filter(|name| !name.is_empty())?));
        match (path(certificate), path(key)) {
            (Some(certificate), Some(key)) => {
                Encryption::Files(CertificateFiles { certificate, key, tls12 })
            }
            _ => Encryption::Unknown(absence),
        }
    }

    /// Returns the same encryption with TLS 1.3 only.
    pub(super) fn without_tls12(&self) -> Encryption {
        match self.clone() {
            Encryption::Files(files) => {
                Encryption::Files(CertificateFiles { tls12: false, ..files })
            }
            other => other,
        }
    }
}

/// A listen address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    address: ServiceAddr,
    transport: Transport,
    /// Certificate and key; `None` for UDP and for HTTP without encryption.
    files: Option<CertificateFiles>,
    /// Path of the URI for DNS over HTTPS, if it is not the default.
    https_path: Option<String>,
}

impl Listener {
    /// Returns a listener for DNS over UDP and TCP.
    pub(super) fn plain(address: ServiceAddr) -> Listener {
        Listener { address, transport: Transport::Udp, files: None, https_path: None }
    }

    /// Returns a listener with this transport, or the reason why dns64d cannot have it. `path` is the path of the URI for
    /// DNS over HTTPS; other transports ignore it. UDP ignores `encryption`.
    pub(super) fn new(
        address: ServiceAddr,
        transport: Transport,
        encryption: &Encryption,
        path: &str,
    ) -> Result<Listener, String> {
        if transport == Transport::Udp {
            return Ok(Listener::plain(address));
        }
        let name = transport.name();
        let is_loopback = address.ip().to_canonical().is_loopback();
        let files = match encryption {
            Encryption::Files(files) => Some(CertificateFiles {
                tls12: files.tls12 && transport != Transport::Quic,
                ..files.clone()
            }),
            Encryption::None if transport == Transport::Https && is_loopback => None,
            Encryption::None => {
                let loopback = match transport {
                    Transport::Https => "serve a loopback address for a reverse proxy, or ",
                    _ => "",
                };
                return Err(format!(
                    "it is not encrypted: {loopback}set transport = \"{name}\", certificate and key"
                ));
            }
            Encryption::Unknown(reason) => {
                return Err(format!(
                    "{reason}: add the address to listen, with transport = \"{name}\", certificate and key"
                ));
            }
        };
        let is_https = transport == Transport::Https;
        if is_https && !is_https_path(path) {
            return Err(format!(
                "https-path begins with / and consists of letters, digits, /, -, ., _ and ~, not '{}'",
                shortened(path)
            ));
        }
        let https_path = (is_https && path != DEFAULT_PATH).then(|| path.to_owned());
        Ok(Listener { address, transport, files, https_path })
    }

    /// True if the two listeners need the same address, and the same port of UDP or of TCP.
    fn conflicts_with(&self, other: &Listener) -> bool {
        let mut ports = self.transport.ports().into_iter().zip(other.transport.ports());
        self.address == other.address && ports.any(|(ours, theirs)| ours && theirs)
    }

    /// Returns this listener at `address`, if this listener has the wildcard address of the same family.
    fn at(&self, address: ServiceAddr) -> Option<Listener> {
        let is_wildcard = self.address.ip().is_unspecified()
            && self.address.is_ipv4() == address.is_ipv4()
            && self.address.port() == address.port();
        is_wildcard.then(|| Listener { address, ..self.clone() })
    }
}

/// Formats a listener as an entry of dns64d's key `listen`.
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        if self.transport == Transport::Udp {
            return write!(f, "\"{address}\"");
        }
        write!(f, "{{ address = \"{address}\", transport = \"{}\"", self.transport.name())?;
        let mut tls12 = false;
        if let Some(files) = &self.files {
            let quoted = |path: &str| Value::String(path.to_owned());
            let (certificate, key) = (quoted(&files.certificate), quoted(&files.key));
            write!(f, ", certificate = {certificate}, key = {key}")?;
            tls12 = files.tls12;
        }
        if let Some(path) = &self.https_path {
            write!(f, ", https-path = \"{path}\"")?;
        }
        f.write_str(if tls12 { ", tls12 = true }" } else { " }" })
    }
}

/// The listen addresses of a configuration.
#[derive(Debug, Default)]
pub(super) struct Listeners(Vec<Located<Listener>>);

impl Listeners {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn addresses(&self) -> Vec<ServiceAddr> {
        self.0.iter().map(|located| located.value.address).collect()
    }

    /// Adds a listener. If an earlier one has the same address and port, with other settings, only a note is added.
    pub(super) fn add(&mut self, value: Listener, origin: Origin, notes: &mut Notes) {
        match self.0.iter().find(|known| known.value.conflicts_with(&value)) {
            None => self.0.push(Located { value, origin }),
            Some(known) if known.value == value => (),
            Some(known) => note_conflict(&origin, known, notes),
        }
    }

    /// Removes listeners that dns64d cannot bind: link-local addresses without an interface, and addresses for which the
    /// wildcard address of the same family is in the list.
    pub(super) fn remove_unusable(&mut self, notes: &mut Notes) {
        let (lacking, served) = std::mem::take(&mut self.0)
            .into_iter()
            .partition::<Vec<_>, _>(|located| located.value.address.host().lacks_zone());
        for Located { origin, .. } in lacking {
            let why = "a link-local address needs its interface, as in fe80::1%eth0";
            notes.answers(&origin.location, &origin.words, why);
        }
        let wildcards: Vec<Located<Listener>> = served
            .iter()
            .filter(|located| located.value.address.ip().is_unspecified())
            .cloned()
            .collect();
        self.0 = served;
        self.0.retain(|Located { value, origin }| {
            let is_wildcard = value.address.ip().is_unspecified();
            let covering = wildcards.iter().filter(|_| !is_wildcard).find_map(|all| {
                let here = all.value.at(value.address)?;
                here.conflicts_with(value).then_some((all, here))
            });
            match &covering {
                Some((all, here)) if here != value => note_conflict(origin, all, notes),
                _ => (),
            }
            covering.is_none()
        });
    }

    /// Writes the key `listen`.
    pub(super) fn write(&self, text: &mut String) {
        if self.0.is_empty() {
            text.push_str("# No address.\nlisten = []\n");
            return;
        }
        text.push_str("listen = [\n");
        for Located { value, origin } in &self.0 {
            *text += &format!("    {}    {value},\n", origin.comment());
        }
        text.push_str("]\n");
    }
}

fn note_conflict(origin: &Origin, known: &Located<Listener>, notes: &mut Notes) {
    let why = format!(
        "this address and port already have a different transport, certificate or path ({})",
        known.origin.location
    );
    notes.answers(&origin.location, &origin.words, why);
}
