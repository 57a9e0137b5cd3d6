//! Why a configuration cannot be imported.

use std::path::PathBuf;

use super::notes::Place;
use crate::config::LONGEST_FILE;

/// Why a configuration cannot be imported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Its path.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{place}: {reason}")]
    Syntax {
        /// Where.
        place: Place,
        /// What is wrong.
        reason: String,
    },
    /// YAML that cannot be read, or is too deep or too much.
    #[error("{file}: {reason}")]
    Yaml {
        /// Its path.
        file: PathBuf,
        /// What is wrong, with its line.
        reason: String,
    },
    /// What would be written is longer than a configuration may be.
    #[error("{file} is too long: what is made of it would be longer than {LONGEST_FILE} octets")]
    TooLong {
        /// Its path.
        file: PathBuf,
    },
    /// Nobody knows whose configuration it is.
    #[error(
        "{file} could be anybody's: say whose it is with --from (bind, unbound, powerdns, knot-resolver, coredns, mtd64-ng)"
    )]
    Whose {
        /// Its path.
        file: PathBuf,
    },
    /// What was made of it is no configuration of ours.
    #[error("what was made of {file} is not right, which is a fault of this program: {reason}")]
    Fault {
        /// Its path.
        file: PathBuf,
        /// What `check` says.
        reason: String,
    },
}
