//! For the tests of `conform` only: a small DNS64 server written from the RFCs, and its mutants.
//!
//! ```text
//! UDP, TCP ─► front: refuses or resolves ─► resolver: AAAA, PTR, ipv4only.arpa, other types ─► walk: aliases
//!     ▲         │                                                                               │
//!     └─────────┘                              upstream: one query, one socket ◄── cache ◄──────┘
//! ```
//!
//! The reference passes each check that applies to it. A mutant is the reference with one defect,
//! and names the check that must fail on it: a check that passes on all mutants detects nothing.
//! The reference shares with the checks only [`conform::label`] and [`conform::message`].
#![forbid(unsafe_code)]

mod cache;
mod cookies;
mod front;
pub mod mutant;
pub mod mutants;
mod resolver;
pub mod rules;
mod server;
mod translate;
mod upstream;
mod walk;

pub use server::{Reference, ReferenceConfig, start};
