//! AuthDNS: the authoritative server of the tester. It answers the whole name space without a zone file.
//!
//! ```text
//! client ─► socket (one per worker and address) ─► zone: what is the answer? ─► loss, delay ─► client
//!                                                        │
//!                                             counters: what was asked, what was answered
//! ```

pub mod answer;
pub mod counters;
mod server;
pub mod zonefile;

pub use server::{AuthConfig, AuthError, RunningAuth, start};
