//! Connections to the hosts of a campaign, requests over these connections, and handles for the
//! processes that run on the hosts.
//!
//! ```text
//!                  ┌─ pipe ─────────► dns64bench agent      this machine, or a namespace of it
//! Machine ─ Link ──┼─ ssh's stdio ──► dns64bench agent      another host
//!                  └─ ssh's stdio ──► sh                    a host without dns64bench
//! ```
//!
//! No agent listens on the network. All processes that were started over a pipe or an ssh
//! connection are stopped when that connection closes.

pub mod agent;
mod connect;
mod machine;
mod pipe;
mod protocol;
mod shell;

pub use connect::{SshHost, local_agent, over_ssh};
pub use machine::{HostError, Machine, Running};
pub use protocol::Ended;
