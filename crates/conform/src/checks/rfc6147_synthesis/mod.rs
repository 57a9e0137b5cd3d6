//! RFC 6147 §5.1 to §5.2: conditions for synthesizing AAAA records from A records, contents of the synthesized records,
//! and the rest of the answer.
//!
//! Each file contains the checks for some sections, in the order of the RFC:
//!
//! | file | sections |
//! |---|---|
//! | `existing_aaaa` | 5.1 (applicable queries), 5.1.1 (AAAA records exist) |
//! | `failures` | 5.1.2 (errors), 5.1.3 (timeouts) |
//! | `excluded` | 5.1.4 (AAAA records treated as missing) |
//! | `aliases` | 5.1.5 (CNAME and DNAME) |
//! | `synthesis` | 5.1.6 (source data), 5.1.7 (fields and TTL), 5.1.8 (in parallel) |
//! | `addresses` | 5.2 (the IPv6 representation), 5.3.3 for A records |

mod addresses;
mod aliases;
mod common;
mod excluded;
mod existing_aaaa;
mod failures;
mod synthesis;

use crate::check::Check;

pub(super) const CHECKS: &[&[Check]] = &[
    existing_aaaa::CHECKS,
    failures::CHECKS,
    excluded::CHECKS,
    aliases::CHECKS,
    synthesis::CHECKS,
    addresses::CHECKS,
];
