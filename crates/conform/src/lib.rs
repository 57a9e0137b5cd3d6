//! Is this DNS64 server right? A black-box conformance suite, by RFC paragraph.
//!
//! ```text
//! checks (data) ─► runner ─► trial: question ─► server under test ─► far side (a name's labels say how it behaves)
//!                    │         ▲                      │                   │
//!                    │         └────── reply ◄────────┘                   └─► log: what the server asked ─► trial
//!                    ▼
//!                 outcomes ─► show: terminal, JSON, JUnit, scoreboard
//! ```
//!
//! The far side and the checks agree without talking, because both read [`label`]: a name such as
//! `x1f.a-v4-1-2-3-4.aaaa-rcode-2.conform.example` says what is answered for it. Nothing else is
//! shared: the expected answer stands in each check as a literal or is made by [`expected`], which
//! implements RFC 6052 separately. The tests of this crate run the checks against
//! `crates/conform-reference`: a DNS64 server written from the RFCs, and mutants of that server.
#![forbid(unsafe_code)]

pub mod ask;
pub mod check;
pub mod checks;
pub mod expected;
pub mod far;
pub mod label;
pub mod message;
pub mod outcome;
pub mod runner;
pub mod selection;
pub mod show;
pub mod trial;
