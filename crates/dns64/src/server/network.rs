//! The world of a worker's resolver: sockets towards the upstreams, the thread for TCP, and the
//! mailboxes of other workers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use method::units::Nanos;
use net::poller::Poller;
use net::socket::Endpoint;
use rand::rngs::StdRng;

use super::mail::Mail;
use super::shared::Shared;
use crate::ids::{FetchId, ServerId, WorkerId};
use crate::name::Key;
use crate::resolver::outcome::Outcome;
use crate::resolver::outside::{Outside, TcpQuestion};
use crate::resolver::upstreams::ports::{Expected, FIRST_TOKEN, PortId, Ports};

/// A worker's sockets towards the upstreams, and its way to others.
pub(super) struct Network {
    /// What waits for all of the worker's sockets, those of clients as well.
    pub(super) poller: Poller,
    pub(super) ports: Ports,
    shared: Arc<Shared>,
}

/// Tokens of the poller: client endpoints from 0 on, then this, then upstream ports.
pub(super) const INBOX: usize = FIRST_TOKEN - 1;
/// Sockets that one wait reports.
const READY: usize = 256;

impl Network {
    /// No upstream is known yet; what comes from clients, and into the worker's mailbox, is waited
    /// for.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub(super) fn new(
        worker: WorkerId,
        shared: Arc<Shared>,
        endpoints: &[Endpoint],
    ) -> io::Result<Network> {
        let poller = Poller::new(READY)?;
        for (token, endpoint) in endpoints.iter().enumerate() {
            endpoint.use_receive_offload();
            poller.add(endpoint, token)?;
        }
        poller.add(&*shared.mailboxes[worker.0].alarm, INBOX)?;
        Ok(Network { poller, ports: Ports::default(), shared })
    }
}

impl Outside for Network {
    fn configure(&mut self, servers: impl Iterator<Item = (SocketAddr, u16)>) {
        self.ports.configure(servers);
    }

    #[inline]
    fn ask(
        &mut self,
        server: ServerId,
        fetch: FetchId,
        now: Nanos,
        rng: &mut StdRng,
        write: impl FnOnce(u16, &mut Vec<u8>),
    ) -> io::Result<Expected> {
        self.ports.ask(server, fetch, &self.poller, now, rng, write)
    }

    #[inline]
    fn expects(&self, at: Expected) -> Option<FetchId> {
        self.ports.expects(at)
    }

    #[inline]
    fn forget(&mut self, at: Expected) {
        self.ports.forget(at);
    }

    fn waiting_on(&self, port: PortId) -> Vec<FetchId> {
        self.ports.waiting_on(port)
    }

    fn ask_over_tcp(&mut self, question: TcpQuestion) {
        // Sending fails only when the thread for TCP has ended, and then the process is about to
        // end.
        let _ = self.shared.tcp_questions.send(question);
    }

    fn tell(&mut self, worker: WorkerId, key: Key, outcome: Outcome) {
        self.shared.mailboxes[worker.0].post(Mail::Landed(key, outcome));
    }
}
