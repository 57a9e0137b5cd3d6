//! Clients that wait for answers before they ask on: the closed loop (dnsperf, dns64perf2) and the
//! ramp (resperf).
//!
//! ```text
//!                  drive: how many may be asked now
//!                          │
//! source ─► additional ─► port ─► UDP socket or TCP stream ─► server
//! (name     (EDNS,        (id, in flight)                       │
//!   or file)  TSIG)        ▲                                    │
//!                          └── is it the answer? is it right? ◄─┘        tally: sums, histograms, intervals
//! ```
//!
//! Each lane is one thread with ports, names and a tally of its own. Neither finds the rate of
//! RFC 8219, which wants every query of a constant rate answered; that is the Measurer's.

mod additional;
mod lane;
mod port;
pub mod progress;
mod schedule;
mod source;
mod stream;
mod tally;

pub mod closed_loop;
pub mod experiments;
pub mod ramp;

use std::io;
use std::net::SocketAddr;

use method::units::Nanos;

pub use additional::{Additional, Edns, EdnsOption, OptionError};
pub use source::{FileError, Names, QueryFile, Source};
pub use tally::{Connections, Tally};

use crate::measurer::expect::Expectation;

/// The transport of questions, and what becomes of truncated answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams; truncated answers are answers.
    Udp,
    /// Datagrams; what comes truncated is asked again over TCP, and the answer to that counts.
    UdpThenTcp,
    /// Streams that are kept open, with many questions in flight on each (RFC 7766 §6.2).
    Tcp,
}

/// What makes an answer a valid one.
#[derive(Clone, Debug)]
pub enum Check {
    /// The address that a name of ours must have.
    Address(Expectation),
    /// NOERROR or NXDOMAIN, as resperf counts.
    Rcode,
}

/// What all lanes of a client have in common.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Where the questions go.
    pub server: SocketAddr,
    /// Address and first port to ask from; none: whatever the kernel takes.
    pub local: Option<SocketAddr>,
    /// The transport of the questions.
    pub transport: Transport,
    /// Where the questions come from.
    pub source: Source,
    /// What stands in the additional section of each question.
    pub additional: Additional,
    /// What makes an answer a valid one.
    pub check: Check,
    /// A query without an answer by then is given up.
    pub timeout: Nanos,
    /// Whether datagrams leave and arrive several at a time (`UDP_SEGMENT`, `UDP_GRO`), as behind a
    /// NIC that does so.
    pub offload: bool,
    /// Socket buffers in octets; none: as large as the system allows.
    pub buffer: Option<usize>,
    /// Width of the intervals that sums and histograms are kept for, by the time when a query left;
    /// none: no intervals.
    pub interval: Option<Nanos>,
}

/// There is no way to the server, or it was lost.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask {server}: {source}")]
pub struct SocketError {
    /// The server that was to be asked.
    pub server: SocketAddr,
    /// What the system says.
    pub source: io::Error,
}
