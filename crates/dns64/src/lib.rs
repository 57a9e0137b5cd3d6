//! A DNS64 server (RFC 6147): forwards, caches, and answers AAAA queries with addresses made from A records.
//!
//! ```text
//! client ─► query ─► local ─► cache ──────────────► translate ─► reply ─► client
//!                               │ miss                  ▲  │ ask the next question
//!                               ▼                       │  ▼
//!                             server (pending questions, upstreams) ─► answer ─► cache
//! ```
//!
//! `prefix`, `policy`, `local`, `answer`, `translate` and `reply` are pure: no sockets, no clock. `server` does the rest, with a
//! worker thread per core that shares nothing with the others but the cache and what they must agree on.
#![forbid(unsafe_code)]

pub mod answer;
pub mod cache;
pub mod config;
pub mod daemon;
pub mod harden;
pub mod local;
pub mod name;
pub mod policy;
pub mod prefix;
pub mod query;
pub mod reply;
pub mod server;
pub mod translate;
pub mod walk;
