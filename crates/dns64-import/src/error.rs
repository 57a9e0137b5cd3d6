//! Errors that can occur during an import.

use std::path::PathBuf;

use super::notes::Location;

/// Maximum length of a configuration file of dns64d or of another server, in octets.
pub(crate) const LONGEST_FILE: u64 = 1 << 20;

/// Errors that can occur during an import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// Error returned by the system call.
        source: std::io::Error,
    },
    /// A file or folder named in another file cannot be read.
    #[error("{location}: cannot read {file}: {source}")]
    Include {
        /// File and line in which the name of the file or folder occurs.
        location: Location,
        /// Path of the file or folder that could not be read.
        file: PathBuf,
        /// Error returned by the system call.
        source: std::io::Error,
    },
    /// A syntax error.
    #[error("{location}: {reason}")]
    Syntax {
        /// File and line of the syntax error.
        location: Location,
        /// Description of the error.
        reason: String,
    },
    /// A YAML file with a syntax error, too many nesting levels, or too many aliases.
    #[error("{file}: {reason}")]
    Yaml {
        /// Path of the YAML file.
        file: PathBuf,
        /// Description of the error, with its line.
        reason: String,
    },
    /// The result would exceed the maximum length of a configuration file.
    #[error("{file} is too long: the result would be longer than {LONGEST_FILE} octets")]
    TooLong {
        /// Path of the imported file.
        file: PathBuf,
    },
    /// The server software cannot be detected from the file.
    #[error(
        "{file}: cannot detect the server; name it with --from (bind, unbound, powerdns, knot-resolver, coredns, mtd64-ng)"
    )]
    UnknownServer {
        /// Path of the file that was not recognized.
        file: PathBuf,
    },
}

impl ImportError {
    /// Adds the file and line of the include directive to an error about a file that cannot be read.
    pub(super) fn of_include(self, location: &Location) -> ImportError {
        match self {
            ImportError::Read { file, source } => {
                ImportError::Include { location: location.clone(), file, source }
            }
            other => other,
        }
    }
}
