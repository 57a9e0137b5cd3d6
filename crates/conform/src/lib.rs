//! Black-box conformance checks for DNS64 servers, by RFC section.
//!
//! ```text
//! checks (data) ─► runner ─► trial: query ─► server under test ─► test authoritative server (behaviour by labels)
//!                    │         ▲                    │                         │
//!                    │         └────── reply ◄──────┘                         └─► log: queries of the server ─► trial
//!                    ▼
//!                 outcomes ─► show: terminal, JSON, JUnit, scoreboard
//! ```
//!
//! The test authoritative server and the checks agree on answers without communicating, because both use the module
//! [`label`]: a name such as `x1f.v4-1-2-3-4.aaaa-rcode-2.conform.example` encodes its own answer. The two share no
//! other code that determines answers. The expected answer is a literal in each check, or is computed by [`expected`],
//! a separate implementation of RFC 6052.
//!
//! The tests of this crate run the checks against the crate `crates/conform-reference`, which contains a DNS64 server
//! written from the RFCs, and faulty variants (mutants) of that server.
#![forbid(unsafe_code)]

pub mod ask;
pub mod authority;
pub mod check;
pub mod checks;
pub mod expected;
pub mod label;
pub mod message;
pub mod outcome;
pub mod runner;
pub mod selection;
pub mod show;
pub mod trial;
