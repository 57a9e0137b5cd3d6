//! DNSSEC validation of DNS responses (RFC 4033 to RFC 4035, RFC 5155, RFC 6840), without I/O and without a clock.
//!
//! ```text
//! response ─► Validation::new ─► step ─┬─► Verdict
//!                                  ▲   └─► Query: DS or DNSKEY records of a name
//!                                  └─ add ◄─ response to the query ◄─ resolver of the caller
//! ```
//!
//! A [`Validator`] has the trust anchors, the limits, and a cache of the keys of zones. All threads share it. A
//! [`Validation`] is the validation of one response. Each [`step`](Validation::step) continues until it needs a response
//! that it does not have, or until it has a [`Verdict`].
//!
//! The cryptography is that of the crate `domain`. The validator of that crate is not used: its limit on failed signature
//! checks applies to each RRset instead of to the response, it treats zones that are signed only with algorithm 14 or 15
//! as unsigned, it stores the outcome of a signature check without the time until which the signature is valid, and it
//! reads the clock.
#![forbid(unsafe_code)]

mod anchors;
mod context;
mod denial;
mod limits;
mod name;
mod nsec;
mod nsec3;
mod proof;
mod rrset;
mod signature;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod validation;
mod verdict;
mod zone_cache;
mod zones;

pub use self::anchors::{AnchorError, TrustAnchors};
pub use self::context::{Query, Validator, ZoneStatus};
pub use self::limits::{Limit, Limits};
pub use self::name::Name;
pub use self::validation::{Progress, Validation};
pub use self::verdict::{Security, Verdict};
