//! A small DNS64 server that was written from the RFCs (the reference server), and faulty variants of it (mutants).
//! Only the tests of `conform` use this crate.
//!
//! ```text
//! UDP, TCP ─► front: refuses or resolves ─► resolver: AAAA, PTR, ipv4only.arpa, other types ─► walk: aliases
//!     ▲         │                                                                               │
//!     └─────────┘                              upstream: one query, one socket ◄── cache ◄──────┘
//! ```
//!
//! The reference server passes each check that applies to it. A mutant is the reference server with one defect,
//! together with the id of the check that must fail because of that defect. A check that passes for all mutants detects
//! no defect. The reference server and the checks share no code except [`conform::label`] and [`conform::message`].
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
