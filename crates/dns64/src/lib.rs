//! A DNS64 server (RFC 6147). It forwards queries, caches the responses, and answers AAAA queries
//! with addresses synthesized from A records.
//!
//! ```text
//! clients ─► server ─► client ─► translation ─► resolver ─► upstreams
//!             worker    query     decide         cache
//!             tcp       reply     policy, prefix  fetch
//!                       cookies   local           upstreams
//! ```
//!
//! The diagram shows the path of a query. The module `translation` uses neither sockets nor a
//! clock. The module `server` runs the worker threads, by default one per CPU. Workers share only
//! the cache, and state that must be the same for all of them, such as rate limits and cookie
//! secrets. docs/ARCHITECTURE.md shows the dependencies between the modules, and a test checks
//! them.
//!
//! Other crates can access the configuration of a server (`config`, `server`), the program dns64d
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
mod signatures;
#[cfg(test)]
mod testing;
mod translation;
mod transport;
pub mod walk;

/// Version of dns64d, and the commit of its sources, for example `0.2.0 (486a6f3a1b2c)`. A `+`
/// after the commit means that the sources had uncommitted changes. If dns64d was built outside a
/// Git checkout, the commit is missing. A debug build has `(dev)` instead of the commit.
pub const BUILD: &str = env!("BUILD_VERSION");

pub use client::cookies::Cookies;
pub use name::KeyBuf;
pub use resolver::cache::Cache;
pub use translation::prefix::Prefix;
pub use transport::Transport;
