//! A DNS64 server (RFC 6147): forwards, caches, and answers AAAA queries with addresses made from A
//! records.
//!
//! ```text
//! clients ─► server ─► client ─► translation ─► resolver ─► upstreams
//!             worker    query     decide         cache
//!             tcp       reply     policy, prefix  fetch
//!                       cookies   local           upstreams
//! ```
//!
//! This is a query's way. `translation` is pure: no sockets, no clock. `server` has a worker thread
//! per core that shares nothing with the others but the cache and what they must agree on. Which
//! room uses which is drawn in docs/ARCHITECTURE.md, and tested.
//!
//! Other crates see what a server is made with (`config`, `server`), its program (`process`), its
//! counters (`metrics`), what it says of itself (`control`), and the way of one query without
//! sockets (`walk`); all else is this crate's own.
#![forbid(unsafe_code)]

mod client;
pub mod config;
pub mod control;
mod guard;
mod ids;
mod import;
pub mod metrics;
mod name;
mod networks;
mod observe;
mod prefixes;
pub mod process;
mod resolver;
pub mod server;
mod shares;
#[cfg(test)]
mod testing;
mod translation;
mod transport;
pub mod walk;

/// The version of dns64d, and the commit that it was built from, as in `0.2.0 (486a6f3a1b2c)`; with a
/// `+` if sources had been changed. Without the commit where it was not built in a checkout.
pub const BUILD: &str = env!("BUILD_VERSION");

pub use client::cookies::Cookies;
pub use name::KeyBuf;
pub use resolver::cache::Cache;
pub use translation::prefix::Prefix;
pub use transport::Transport;
