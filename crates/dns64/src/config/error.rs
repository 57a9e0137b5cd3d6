//! Why a configuration cannot be used.

use std::path::PathBuf;

/// Where the upstreams are taken from when none is configured.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Why a configuration cannot be used. Each message names the file, and the line where it can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Its path.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value that makes no sense; the parser's message shows the place.
    #[error("{file}: {source}")]
    Parse {
        /// Its path.
        file: PathBuf,
        /// What and where.
        source: Box<toml::de::Error>,
    },
    /// Values that make no sense together.
    #[error("{file}:{line}: {reason}")]
    Invalid {
        /// Its path.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// No upstream, neither configured nor in the system's resolv.conf.
    #[error("no upstream: {file} configures none, and {RESOLV_CONF} names none that can be used; add an [[upstream]]")]
    NoUpstream {
        /// Its path.
        file: PathBuf,
    },
}
