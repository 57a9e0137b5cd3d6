//! The far side: what the server under test asks.
//!
//! ```text
//! server under test ─UDP, TCP─► server ─► log (what was asked) ─► view: checks of this process
//!                                 │         │
//!                                 │         └─► status (a socket) ─► view: checks elsewhere
//!                                 ▼
//!                               answer: question ─► zones: nodes, by aliases ─► reply ─► sendings
//!                                                     ▲                           ▲
//!                            node: labels · reverse ──┘                           │
//!                            signed: signatures · denial: proofs ─────────────────┘
//! ```
//!
//! It plays an authoritative server and a forwarder's upstream at once: all its replies have AA and
//! RA set. [`crate::label`] says how each name behaves.

mod answer;
mod config;
mod denial;
mod log;
mod node;
mod reverse;
mod server;
mod signed;
pub mod status;
pub mod view;
mod zones;

pub use config::{FarConfig, FarError};
pub use log::Log;
pub use server::{Far, start};
