//! Errors in a configuration.

use std::path::PathBuf;

/// File from which the upstreams are read if the configuration lists no upstream.
pub(crate) const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Errors in a configuration. Each message gives the file, and the line if it is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Path of the configuration file.
        file: PathBuf,
        /// Error returned by the system call.
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key or an invalid value. The parser's message shows
    /// the position.
    #[error("{file}: {source}")]
    Parse {
        /// Path of the configuration file.
        file: PathBuf,
        /// Error returned by the parser, with line and column.
        source: Box<toml::de::Error>,
    },
    /// An invalid value, or values that contradict each other.
    #[error("{file}:{line}: {reason}")]
    Invalid {
        /// Path of the configuration file.
        file: PathBuf,
        /// Line of the invalid value. The first line of the file has the number 1.
        line: usize,
        /// Description of the error, and the correct form.
        reason: String,
    },
}
