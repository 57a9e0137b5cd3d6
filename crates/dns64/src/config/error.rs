//! Errors of a configuration.

use std::path::PathBuf;

/// File that lists the upstreams if the configuration has none.
pub(crate) const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Errors of a configuration. Each message has the file, and the line if known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Path of the configuration file.
        file: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key or an invalid value. The parser's message shows
    /// the position.
    #[error("{file}: {source}")]
    Parse {
        /// Path of the configuration file.
        file: PathBuf,
        /// The fault, with line and column.
        source: Box<toml::de::Error>,
    },
    /// An invalid value, or values that contradict each other.
    #[error("{file}:{line}: {reason}")]
    Invalid {
        /// Path of the configuration file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The fault and the right form.
        reason: String,
    },
}
