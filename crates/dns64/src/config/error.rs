//! Why a configuration cannot be used.

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
}
