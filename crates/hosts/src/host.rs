//! The hosts of a campaign: requests to a host, and a handle on its processes.
//!
//! ```text
//!                  ┌─ pipe ─────────► dns64bench agent      this machine, or a namespace of it
//! Machine ─ Link ──┼─ ssh's stdio ──► dns64bench agent      another host
//!                  └─ ssh's stdio ──► sh                    a host without dns64bench
//! ```
//!
//! No agent listens on the network. When the pipe or the connection closes, all processes that were
//! started over it are stopped.

pub mod agent;
mod connect;
mod machine;
mod pipe;
mod protocol;
mod shell;

pub use connect::{SshHost, local_agent, over_ssh};
pub use machine::{HostError, Machine, Running};
pub use protocol::Ended;
