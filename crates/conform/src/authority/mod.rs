//! The test authoritative server, which the server under test queries.
//!
//! ```text
//! server under test ─UDP, TCP─► server ─► log (queries received) ─► view: checks of this process
//!                                 │         │
//!                                 │         └─► status (a socket) ─► view: checks elsewhere
//!                                 ▼
//!                               answer: question ─► zones: nodes, by aliases ─► reply ─► sendings
//!                                                     ▲                           ▲
//!                            node: labels · reverse ──┘                           │
//!                            signed: signatures · denial: proofs ─────────────────┘
//! ```
//!
//! The server can act both as an authoritative server and as the upstream of a forwarder, because all its replies have
//! AA and RA set. [`crate::label`] defines the behaviour of each name.

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

pub use config::{AuthorityConfig, AuthorityError};
pub use log::Log;
pub use server::{Authority, start};
