//! Interface of the resolver to sockets and other workers. The server implements it with sockets
//! and inboxes; tests record the calls.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dnssec::{Validation, Validator};
use net::address::ServiceAddr;
use rand::rngs::StdRng;
use units::Nanos;

use super::outcome::Outcome;
use crate::ids::{Expected, FetchId, PortId, ServerId, WorkerId};
use crate::name::Key;
use crate::shares::client::ClientId;

/// An upstream query over TCP.
#[derive(Debug)]
pub(crate) struct TcpQuery {
    /// Worker that receives the answer.
    pub(crate) worker: WorkerId,
    pub(crate) fetch: FetchId,
    /// Client that caused the fetch with its query.
    pub(crate) client: ClientId,
    /// Address and port of the upstream.
    pub(crate) address: ServiceAddr,
    /// The query without its two-octet length prefix.
    pub(crate) query: Vec<u8>,
    /// Maximum duration of the query over TCP, including the connection setup.
    pub(crate) timeout: Duration,
    /// Initially false. Becomes true when the query gets a connection slot, before the query is sent.
    pub(crate) begun: Arc<AtomicBool>,
}

/// Reason why a TCP query got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpFailure {
    /// The upstream did not answer in time.
    Timeout,
    /// The upstream closed or refused the connection.
    NoAnswer,
    /// No query was sent: too many TCP queries were in progress.
    NoRoom,
}

/// A validation that continues on a validation thread.
pub(crate) struct ValidationTask {
    /// Worker that gets the result.
    pub(crate) worker: WorkerId,
    /// Fetch with the answer that is validated.
    pub(crate) fetch: FetchId,
    /// Client for which the answer was fetched.
    pub(crate) client: ClientId,
    pub(crate) validator: Arc<Validator>,
    pub(crate) validation: Box<Validation>,
    /// CPU time that the validation has used so far.
    pub(crate) spent: Duration,
}

/// Parameters for sending queries to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Address and port of the server.
    pub(crate) address: ServiceAddr,
    /// Number of source ports; zero if the server is no longer configured.
    pub(crate) source_ports: u16,
    /// True if queries to the server use AF_XDP where it is available.
    pub(crate) xdp: bool,
}

/// Sockets and other workers, as used by a resolver.
pub(crate) trait ResolverIo {
    /// Replaces the list of servers, each with its identifier and parameters. Servers that are not
    /// in the list are removed.
    fn configure(&mut self, servers: impl Iterator<Item = (ServerId, Access)>);

    /// Sends a query over UDP. `write` writes the query with the given id.
    ///
    /// # Errors
    ///
    /// Returns an error if the query cannot be sent.
    fn ask(
        &mut self,
        server: ServerId,
        fetch: FetchId,
        now: Nanos,
        rng: &mut StdRng,
        write: impl FnOnce(u16, &mut Vec<u8>),
    ) -> io::Result<Expected>;

    /// Returns the fetch that expects a response on this port with this id.
    fn expects(&self, at: Expected) -> Option<FetchId>;

    /// Stops expecting the response with this port and id.
    fn forget(&mut self, at: Expected);

    /// Returns the fetches that expect responses on a port.
    fn waiting_on(&self, port: PortId) -> Vec<FetchId>;

    /// Sends a query over TCP. Its result is passed to
    /// [`Resolver::on_tcp`](super::Resolver::on_tcp).
    fn query_over_tcp(&mut self, question: TcpQuery);

    /// Passes a validation to a validation thread. Its result is passed to
    /// [`Resolver::on_validation`](super::Resolver::on_validation). Returns false if too many validations wait.
    fn validate(&mut self, task: ValidationTask) -> bool;

    /// Sends the outcome of a fetch to a different worker that waits for it.
    fn tell(&mut self, worker: WorkerId, key: Key, outcome: Outcome);
}
