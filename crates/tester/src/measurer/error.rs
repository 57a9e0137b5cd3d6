//! Errors that prevent a trial.

use std::io;
use std::net::{IpAddr, SocketAddr};

use net::xdp::XdpError;

use super::liveness::outcome::Liveness;
use super::plan::PlanError;
use super::plan::shard::Moment;
use super::plan::sources::{SourceAddresses, return_route};
use super::recorder::RecordError;
use super::wrong_replies::WrongReplies;

/// Reasons why a trial has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The records of the queries cannot be written.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// No socket towards the server could be opened.
    #[error("cannot open a socket towards {server}: {source}")]
    Socket {
        /// Address and port of the queried server.
        server: SocketAddr,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The interface's counters cannot be read.
    #[error(
        "cannot find or read the interface towards {server}, which is needed to count its drops: {source}"
    )]
    Interface {
        /// Address and port of the queried server.
        server: SocketAddr,
        /// Error returned by the system.
        source: io::Error,
    },
    /// AF_XDP does not work (`--xdp`).
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// AuthDNS's counters cannot be read.
    #[error(
        "cannot read AuthDNS's counters from {path}: {source}; is it running with --status {path}?"
    )]
    AuthStatus {
        /// The status socket of AuthDNS (`--status`).
        path: std::path::PathBuf,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The next hop's link-layer address cannot be resolved, so queries cannot leave this host.
    #[error("cannot resolve the link-layer address of {address} on {interface}: {source}")]
    Neighbour {
        /// Address of the next hop: the server, or the gateway towards it.
        address: IpAddr,
        /// Interface to the next hop.
        interface: String,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The server does not answer.
    #[error("{} {server}: {found}", if .found.is_path_error() { "there is no route to" } else { "no answer from" })]
    NoAnswer {
        /// Address and port of the queried server.
        server: SocketAddr,
        /// Result of the liveness check.
        found: Liveness,
    },
    /// The server does not answer queries from the first source address.
    #[error(
        "no answer from {server} to {}: {found}; its host needs a route back to --source-addresses {from}, such as: {}",
        .from.first(),
        return_route(.from)
    )]
    NoAnswerToSource {
        /// Address and port of the queried server.
        server: SocketAddr,
        /// Result of the liveness check.
        found: Liveness,
        /// All source addresses from which the trial sends queries.
        from: SourceAddresses,
    },
    /// Every reply is wrong in the same way, so a measurement is meaningless.
    #[error("every reply from {server} is wrong: {replies}")]
    WrongReplies {
        /// Address and port of the queried server.
        server: SocketAddr,
        /// The fault of the replies, and advice for the user.
        replies: Box<WrongReplies>,
    },
    /// The common start time of all testers has passed, or is too soon.
    #[error(
        "--start-at {start}: that {}, it is {now} here; all testers need a few seconds before the first query",
        if .start < .now { "is past" } else { "is too soon" }
    )]
    TooLate {
        /// Scheduled send time of the first query.
        start: Moment,
        /// Time of this host's wall clock at the check of the start time.
        now: Moment,
    },
    /// The user interrupted the trial before the first query was sent.
    #[error("interrupted")]
    Interrupted,
    /// The cost of sending, which determines the burst size, cannot be measured.
    #[error(
        "cannot measure the cost of sending on this host's loopback interface: {source}; set it up (ip link set lo \
         up), or give --max-burst, such as 200us"
    )]
    SendCost {
        /// Error returned by the system.
        source: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start a thread: {source}")]
    Thread {
        /// Error returned by the system.
        source: io::Error,
    },
}
