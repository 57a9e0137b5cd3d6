//! A DNS64 server (RFC 6147): forwards, caches, and answers AAAA queries with addresses made from A records.
//!
//! ```text
//! clients ─► server ─► client ─► translation ─► resolver ─► upstreams
//!             worker    query     decide         cache
//!             tcp       reply     policy, prefix  fetch
//!                       cookies   local           upstreams
//! ```
//!
//! This is a query's way. `translation` is pure: no sockets, no clock. `server` has a worker thread per core that shares nothing with
//! the others but the cache and what they must agree on. Which room uses which is drawn in docs/ARCHITECTURE.md, and tested.
#![forbid(unsafe_code)]

pub mod client;
pub mod config;
pub mod guard;
pub mod ids;
pub mod metrics;
pub mod name;
pub mod process;
pub mod resolver;
pub mod server;
#[cfg(test)]
mod testing;
pub mod translation;
pub mod transport;
pub mod walk;
