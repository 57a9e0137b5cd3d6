//! Differential fuzzer for DNSSEC validators: an authoritative server with signed zones, whose responses are mutated, and
//! a client that collects the verdicts of validators.
//!
//! ```text
//!                          seed, number of the case
//!                                    │
//!                          question, mutated responses (case)
//!                                    │
//!  validator ─► authority ─► zones (tree) ─► correct response (lookup, denial) ─► mutation, signatures (draft) ─► message
//!      ▲
//!      └─ client: the question of each case ─► secure, insecure or bogus
//! ```
//!
//! Each case has names that no other case has. Its responses depend only on the seed and on the number, so that a case
//! can be repeated. The program that starts the validators and compares their verdicts is `cargo xtask dnssec-fuzz`.
#![forbid(unsafe_code)]

mod authority;
mod case;
mod client;
mod denial;
mod draft;
mod fuzz;
mod keys;
mod lookup;
mod mutation;
mod names;
mod tree;

pub use self::authority::Authority;
pub use self::case::Case;
pub use self::client::{Progress, Status, ask, ask_all};
pub use self::fuzz::{Fuzz, Response};
pub use self::names::{ADDRESS, ROOT};
