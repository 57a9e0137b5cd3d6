//! All mutants. Each file contains the mutants for the checks in the file of the same name in
//! `crates/conform/src/checks`. The file `proxies` contains mutants for checks in several files.

mod common;
mod hostile;
mod messages;
mod proxies;
mod records;
mod rfc6052;
mod rfc6147_dnssec;
mod rfc6147_other;
mod rfc6147_synthesis;
mod rfc7050;
mod transport;

use crate::mutant::Mutant;

/// Returns all mutants, file by file. The order of the files is that of the check files in `conform`, followed by
/// `proxies`.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    let others = [
        rfc6147_other::MUTANTS,
        rfc6147_dnssec::MUTANTS,
        rfc6052::MUTANTS,
        rfc7050::MUTANTS,
        records::MUTANTS,
        messages::MUTANTS,
        transport::MUTANTS,
        hostile::MUTANTS,
        proxies::MUTANTS,
    ];
    rfc6147_synthesis::MUTANTS.iter().copied().chain(others).flatten()
}
