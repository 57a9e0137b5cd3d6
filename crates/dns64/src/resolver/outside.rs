//! What the resolver does to the world: it sends questions, and tells other workers. The server
//! does it with sockets and mailboxes; tests note down what was done.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use method::units::Nanos;
use net::address::ServiceAddr;
use rand::rngs::StdRng;

use super::outcome::Outcome;
use crate::ids::{Expected, FetchId, PortId, ServerId, WorkerId};
use crate::name::Key;
use crate::shares::client::ClientId;

/// A question that an upstream is to be asked over TCP.
#[derive(Debug)]
pub(crate) struct TcpQuestion {
    /// The worker that gets the answer.
    pub(crate) worker: WorkerId,
    pub(crate) fetch: FetchId,
    /// The client that caused the question first.
    pub(crate) client: ClientId,
    /// Address and port of the upstream.
    pub(crate) address: ServiceAddr,
    /// The query, without the two octets of its length.
    pub(crate) query: Vec<u8>,
    /// How long it may take, connecting included.
    pub(crate) timeout: Duration,
    /// Set when there is room for it, and the upstream is asked.
    pub(crate) begun: Arc<AtomicBool>,
}

/// Why a question to an upstream got no answer over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpFailure {
    /// The upstream did not answer in time.
    Timeout,
    /// It did not take the question, or broke off.
    NoAnswer,
    /// It was not asked: too many questions were under way.
    NoRoom,
}

/// How a server may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Its address and port.
    pub(crate) address: ServiceAddr,
    /// From so many source ports; none if it is no longer in the configuration.
    pub(crate) source_ports: u16,
    /// Past the kernel's network stack, where there is such a way.
    pub(crate) past_stack: bool,
}

/// The world, as far as a resolver changes it.
pub(crate) trait Outside {
    /// Replaces the list of servers: the number of each, and how it may be asked. Servers that are
    /// not in the list are forgotten.
    fn configure(&mut self, servers: impl Iterator<Item = (ServerId, Access)>);

    /// Asks over UDP; `write` writes the query with the id that it is given.
    ///
    /// # Errors
    /// If it cannot be sent.
    fn ask(
        &mut self,
        server: ServerId,
        fetch: FetchId,
        now: Nanos,
        rng: &mut StdRng,
        write: impl FnOnce(u16, &mut Vec<u8>),
    ) -> io::Result<Expected>;

    /// The question that is expected to be answered there.
    fn expects(&self, at: Expected) -> Option<FetchId>;

    /// Nothing more is expected there.
    fn forget(&mut self, at: Expected);

    /// The questions that expect answers on a port.
    fn waiting_on(&self, port: PortId) -> Vec<FetchId>;

    /// Asks over TCP. What comes of it is told to [`Resolver::on_tcp`](super::Resolver::on_tcp).
    fn ask_over_tcp(&mut self, question: TcpQuestion);

    /// Tells another worker what came of a question that it waits for.
    fn tell(&mut self, worker: WorkerId, key: Key, outcome: Outcome);
}
