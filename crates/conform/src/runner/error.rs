//! Errors of a run.

use std::net::SocketAddr;

use crate::message::Name;
use crate::selection::NoCheck;

/// Reasons why no check was run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The server does not reply to any query.
    #[error("{server} does not reply to any query over UDP or TCP ({queries}): check the address")]
    Silent {
        /// Address of the server.
        server: SocketAddr,
        /// The queries that were sent, as text.
        queries: String,
    },
    /// No query can be sent to the address of the server.
    #[error("cannot send to {server}: {reason}")]
    Unreachable {
        /// Address of the server.
        server: SocketAddr,
        /// Error returned by the system call, as text.
        reason: String,
    },
    /// Prefix discovery (RFC 7050) found no prefix, and the user specified none.
    #[error(
        "{server} does not show its prefix in AAAA records of ipv4only.arpa (RFC 7050 §3): {came}; \
         if it is a DNS64 server, set its prefix with --expect-prefix"
    )]
    NoPrefix {
        /// Address of the server.
        server: SocketAddr,
        /// The server's replies for ipv4only.arpa, as text.
        came: String,
    },
    /// The server does not query the test authoritative server for the test zone.
    #[error(
        "{server} does not query the test authoritative server for {zone}: {came}; forward or \
         delegate the zone to it, or omit --zone"
    )]
    NoZone {
        /// Address of the server.
        server: SocketAddr,
        /// The test zone.
        zone: Name,
        /// The server's replies for names in the test zone, as text.
        came: String,
    },
    /// The query log is not from the test authoritative server that the server under test queries.
    #[error(
        "the test authoritative server of --auth-status received no query for {name}, which the \
         server has answered: the server forwards to another one"
    )]
    OtherView {
        /// Queried name for which the server sent an answer.
        name: Name,
    },
    /// The query log is not available.
    #[error("--auth-status: cannot read the queries of the test authoritative server: {reason}")]
    NoView {
        /// The error, as text.
        reason: String,
    },
    /// A name given by the user matches no check.
    #[error(transparent)]
    NoCheck(NoCheck),
}

impl RunError {
    /// True if the server under test is the reason that nothing can be checked: it is silent, shows no DNS64 prefix, or
    /// does not resolve the test zone. Other errors are on the tester's side.
    pub fn is_of_the_server(&self) -> bool {
        match self {
            RunError::Silent { .. } | RunError::NoPrefix { .. } | RunError::NoZone { .. } => true,
            RunError::Unreachable { .. }
            | RunError::OtherView { .. }
            | RunError::NoView { .. }
            | RunError::NoCheck(_) => false,
        }
    }
}
