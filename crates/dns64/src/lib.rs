//! A DNS64 server (RFC 6147): forwards, caches, and answers AAAA queries with addresses synthesized
//! from A records.
//!
//! ```text
//! clients ─► server ─► client ─► translation ─► resolver ─► upstreams
//!             worker    query     decide         cache
//!             tcp       reply     policy, prefix  fetch
//!                       cookies   local           upstreams
//! ```
//!
//! The diagram shows the path of a query. `translation` is pure: it has no sockets and no clock.
//! `server` runs a worker thread on each core. Workers share only the cache and the state on which
//! they must agree. The dependencies between the modules are drawn in docs/ARCHITECTURE.md and
//! tested.
//!
//! Other crates can access the configuration of a server (`config`, `server`), its program
//! (`process`), its counters (`metrics`), its control interface (`control`), and the processing of
//! one query without sockets (`walk`). All other modules are private.
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

/// Version of dns64d and the commit that it was built from, for example `0.2.0 (486a6f3a1b2c)`;
/// with a `+` if sources had been changed. It contains no commit if it was not built in a checkout.
pub const BUILD: &str = env!("BUILD_VERSION");

pub use client::cookies::Cookies;
pub use name::KeyBuf;
pub use resolver::cache::Cache;
pub use translation::prefix::Prefix;
pub use transport::Transport;
