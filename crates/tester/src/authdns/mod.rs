//! AuthDNS: the authoritative server of the tester. It answers the whole name space without a zone file.
//!
//! ```text
//! client ─► crate::port: a socket (one per worker and address), or the rings of an interface ─► zone: answer ─► loss,
//! delay ─► client
//!                                                        │
//!                                             counters: queries, replies, processing times
//!                                                        │      host_drops, arrivals, state_samples: losses and waits
//! of the host
//!                                                        │
//!                                             status ─► auth_delta: AuthDNS in one trial, compared with its limits
//! ```

pub mod answer;
mod arrivals;
pub mod auth_delta;
pub mod counters;
pub mod host_drops;
mod recent;
mod server;
mod state_samples;
pub mod status;
pub mod times;
pub mod zonefile;

pub use server::{AuthConfig, AuthError, RunningAuth, start};
