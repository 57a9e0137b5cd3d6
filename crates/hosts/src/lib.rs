//! Control of the programs on the hosts of a measurement. A host is this machine, a network
//! namespace of the lab on this machine, or another machine reached over ssh.
//!
//! ```text
//! host::Machine ─► agent, or a shell over ssh ─► process, servers ─► place, numa, environment: facts
//!       ▲                                                              │
//!       └── lab: three hosts on one machine                            └─► report
//! ```
//!
//! Campaign plans and trials are in the crate `campaign`.
#![forbid(unsafe_code)]

pub mod cpu_list;
pub mod environment;
pub mod host;
pub mod interruption;
pub mod lab;
pub mod new_file;
pub mod numa;
pub mod place;
pub mod process;
pub mod servers;
pub mod state;
pub mod text;
pub mod topology;

/// Version of this program and the commit from which it was built, such as `0.2.0 (486a6f3a1b2c)`.
/// A `+` marks a build from modified sources. The commit is absent if the program was not built in
/// a Git checkout.
pub const BUILD: &str = env!("BUILD_VERSION");
