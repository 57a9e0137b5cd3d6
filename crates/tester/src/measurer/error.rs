//! Why a trial cannot be carried out at all. What the server does is never the reason.

use std::io;
use std::net::{IpAddr, SocketAddr};

use net::xdp::XdpError;

use super::liveness::Liveness;
use super::plan::PlanError;
use super::recorder::RecordError;
use super::shards::Moment;
use super::sources::{SourceAddresses, way_back};
use super::wrong_replies::WrongReplies;

/// Why there is no result at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The records cannot be written.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// No socket towards the server.
    #[error("cannot open a socket towards {server}: {source}")]
    Socket {
        /// The server that the trial is for.
        server: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The interface's counters cannot be read.
    #[error(
        "cannot find or read the interface towards {server}, whose drops must be known: {source}"
    )]
    Interface {
        /// The server that the trial is for.
        server: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Queries cannot leave past the stack (`--xdp`).
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// AuthDNS cannot be asked how it is.
    #[error(
        "cannot read AuthDNS's counters from {path}: {source}; is it running with --status {path}?"
    )]
    AuthStatus {
        /// The status socket of AuthDNS (`--status`).
        path: std::path::PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The next hop does not tell its link-layer address: no query would leave this host.
    #[error("no neighbour answers for {address} on {interface}: {source}")]
    Neighbour {
        /// The server, or the gateway towards it.
        address: IpAddr,
        /// The interface that it should be reached by.
        interface: String,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody is there who could be measured.
    #[error("{} {server}: {found}", if .found.is_on_the_way() { "there is no way to" } else { "nobody answers at" })]
    NobodyAnswers {
        /// The server that the trial is for.
        server: SocketAddr,
        /// What came of asking it.
        found: Liveness,
    },
    /// Nobody answers one of the addresses that queries are to leave from; others may get answers.
    #[error(
        "nobody at {server} answers {}: {found}; its host needs a way back to --source-addresses {from}, such as: {}",
        .from.first(),
        way_back(.from)
    )]
    NobodyAnswersThere {
        /// The server that the trial is for.
        server: SocketAddr,
        /// What came of asking it.
        found: Liveness,
        /// The addresses, of which the first asked.
        from: SourceAddresses,
    },
    /// Every reply is wrong in the same way, so that there is no speed to measure.
    #[error("every reply of {server} is wrong: {replies}")]
    WrongReplies {
        /// The server that the trial is for.
        server: SocketAddr,
        /// The way, and what to change.
        replies: Box<WrongReplies>,
    },
    /// The moment at which all testers begin has passed, or nearly so.
    #[error(
        "--start-at {start}: that {}, it is {now} here; all testers need a few seconds for what comes before the first query",
        if .start < .now { "is past" } else { "is too soon" }
    )]
    TooLate {
        /// When query 0 was to leave.
        start: Moment,
        /// This host's wall clock.
        now: Moment,
    },
    /// The user wanted to stop, before the first query was sent.
    #[error("interrupted")]
    Interrupted,
    /// What sending costs here cannot be measured, by which queries that leave together are chosen.
    #[error(
        "cannot measure what sending costs, on this host's loopback interface: {source}; let it be up (ip link set lo up), \
         or give --max-burst, such as 200us"
    )]
    SendCost {
        /// What the system says.
        source: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start a thread: {source}")]
    Thread {
        /// What the system says.
        source: io::Error,
    },
}
