//! The checks, a file for each RFC or family. The order here is the order of every table.

mod hostile;
mod messages;
mod records;
mod rfc6052;
mod rfc6147_dnssec;
mod rfc6147_other;
mod rfc6147_synthesis;
mod rfc7050;
mod transport;

use crate::check::Check;
use crate::mutants::Mutant;

/// A file of checks, with the mutants that prove them.
pub struct File {
    /// The checks.
    pub checks: &'static [Check],
    /// Defects of the reference, each caught by one of them.
    pub mutants: &'static [Mutant],
}

/// All files.
pub const FILES: &[File] = &[
    rfc6147_synthesis::FILE,
    rfc6147_other::FILE,
    rfc6147_dnssec::FILE,
    rfc6052::FILE,
    rfc7050::FILE,
    records::FILE,
    messages::FILE,
    transport::FILE,
    hostile::FILE,
];

/// All checks.
pub fn all() -> impl Iterator<Item = &'static Check> {
    FILES.iter().flat_map(|file| file.checks)
}
