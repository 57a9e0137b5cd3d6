//! Why a configuration cannot be used.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the upstreams are taken from when none is configured.
pub(crate) const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Why a configuration cannot be used. Each message names the file, and the line where it can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Path of the configuration file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value that makes no sense; the parser's message shows the
    /// place.
    #[error("{file}: {source}")]
    Parse {
        /// Path of the configuration file.
        file: PathBuf,
        /// What is wrong, with line and column.
        source: Box<toml::de::Error>,
    },
    /// Values that make no sense together.
    #[error("{file}:{line}: {reason}")]
    Invalid {
        /// Path of the configuration file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// No upstream, neither configured nor in the system's resolv.conf. The message ends with the
    /// lines to write.
    #[error(
        "no upstream: {file} has none, and {RESOLV_CONF} names {}. Write these lines into the configuration file, with the \
         address of your resolver:\n\n[[upstream]]\naddress = \"2001:db8::53\"\nport = 53",
        NamedBySystem(.own)
    )]
    NoUpstream {
        /// Path of the configuration file.
        file: PathBuf,
        /// What resolv.conf names: addresses of this server itself.
        own: Vec<SocketAddr>,
    },
}

/// What resolv.conf names where it names nobody to ask, in words.
struct NamedBySystem<'a>(&'a [SocketAddr]);

impl std::fmt::Display for NamedBySystem<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let own: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "only this server itself ({})", own.join(", "))
    }
}
