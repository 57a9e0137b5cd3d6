//! RFC 6147 §5.1 to §5.2: when AAAA records are made of A records, what they look like, and what
//! else is in the answer.
//!
//! Each file has the checks of some sections, in the RFC's order:
//!
//! | file | sections |
//! |---|---|
//! | `native` | 5.1 (which queries), 5.1.1 (AAAA records exist) |
//! | `failures` | 5.1.2 (errors), 5.1.3 (timeouts) |
//! | `excluded` | 5.1.4 (AAAA records that do not count) |
//! | `aliases` | 5.1.5 (CNAME and DNAME) |
//! | `made` | 5.1.6 (which data), 5.1.7 (fields and TTL), 5.1.8 (in parallel) |
//! | `addresses` | 5.2 (the IPv6 representation), 5.3.3 as far as A records go |

mod addresses;
mod aliases;
mod common;
mod excluded;
mod failures;
mod made;
mod native;

use crate::check::Check;

pub(super) const CHECKS: &[&[Check]] = &[
    native::CHECKS,
    failures::CHECKS,
    excluded::CHECKS,
    aliases::CHECKS,
    made::CHECKS,
    addresses::CHECKS,
];
