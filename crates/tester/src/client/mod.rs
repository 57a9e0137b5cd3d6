//! Closed-loop client (dnsperf, dns64perf2) and ramp client (resperf).
//!
//! ```text
//!                  load model: number of queries that may be sent now
//!                          │
//! source ─► additional ─► port ─► UDP socket or TCP stream ─► server
//! (name     (EDNS,        (id, in flight)                       │
//!   or file)  TSIG)        ▲                                    │
//!                          └── match, then check ◄──────────────┘        tally: totals, histograms, intervals
//! ```
//!
//! Each client thread has separate ports, names and totals. These clients do not measure the rate that RFC 8219
//! defines, which is the highest constant query rate at which every query is answered. The Measurer measures the rate
//! of RFC 8219.

mod additional;
mod client_thread;
mod port;
pub mod progress;
mod schedule;
mod source;
mod stream;
mod tally;
mod transport;

pub mod closed_loop;
pub mod experiments;
pub mod ramp;

use std::io;
use std::net::SocketAddr;

use units::Nanos;

pub use additional::{Additional, Edns, EdnsOption, OptionError};
pub use source::{FileError, Names, QueryFile, Source};
pub use tally::{Connections, Tally};
pub use transport::Transport;

use crate::measurer::expect::Expectation;

/// Condition for a valid response.
#[derive(Clone, Debug)]
pub enum Check {
    /// The response must contain the correct address for the queried name.
    Address(Expectation),
    /// The RCODE must be NOERROR or NXDOMAIN, as in resperf.
    Rcode,
}

/// Settings shared by all threads of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Address of the server.
    pub server: SocketAddr,
    /// Source address and first source port; if `None`, the kernel selects both.
    pub local: Option<SocketAddr>,
    /// Transport of the queries.
    pub transport: Transport,
    /// Source of the queries.
    pub source: Source,
    /// Additional section of each query.
    pub additional: Additional,
    /// Condition for a valid response.
    pub check: Check,
    /// Time after which a query without a response is given up.
    pub timeout: Nanos,
    /// True if one system call may send or receive several datagrams (`UDP_SEGMENT`, `UDP_GRO`).
    pub offload: bool,
    /// Size of the socket buffers in octets; if `None`, the system's maximum.
    pub buffer: Option<usize>,
    /// Width of the intervals of send time for which separate totals and histograms are recorded; `None` if there are
    /// no intervals.
    pub interval: Option<Nanos>,
}

/// A socket error: the server is unreachable, or the connection was lost.
#[derive(Debug, thiserror::Error)]
#[error("cannot query {server}: {source}")]
pub struct SocketError {
    /// Address and port of the queried server.
    pub server: SocketAddr,
    /// Error returned by the system.
    pub source: io::Error,
}
