//! Errors of an import.

use std::path::PathBuf;

use super::files::LONGEST_FILE;
use super::notes::Place;

/// Errors of an import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Wrong syntax.
    #[error("{place}: {reason}")]
    Syntax {
        /// File and line.
        place: Place,
        /// The mistake.
        reason: String,
    },
    /// Wrong syntax of YAML, too many levels, or too many aliases.
    #[error("{file}: {reason}")]
    Yaml {
        /// The file.
        file: PathBuf,
        /// The mistake, with its line.
        reason: String,
    },
    /// The result is longer than a configuration file may be.
    #[error("{file} is too long: the result would be longer than {LONGEST_FILE} octets")]
    TooLong {
        /// The file that was read.
        file: PathBuf,
    },
    /// The file belongs to no server that is recognized.
    #[error(
        "{file}: cannot recognize the server; name it with --from (bind, unbound, powerdns, knot-resolver, coredns, mtd64-ng)"
    )]
    Whose {
        /// The file.
        file: PathBuf,
    },
}
