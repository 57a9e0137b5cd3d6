//! The checks, with one file for each RFC or topic. The order of the checks here is their order in all tables.

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

/// Returns all checks.
pub fn all() -> impl Iterator<Item = &'static Check> {
    let others = [
        rfc6147_other::CHECKS,
        rfc6147_dnssec::CHECKS,
        rfc6052::CHECKS,
        rfc7050::CHECKS,
        records::CHECKS,
        messages::CHECKS,
        transport::CHECKS,
        hostile::CHECKS,
    ];
    rfc6147_synthesis::CHECKS.iter().copied().chain(others).flatten()
}
