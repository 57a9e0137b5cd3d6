//! Network access for the resolver of a worker: sockets to the upstreams, the TCP thread, and the
//! inboxes of other workers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use net::poller::Poller;
use net::socket::Endpoint;
use rand::rngs::StdRng;
use units::Nanos;

use super::inbox::WorkerMessage;
use super::shared::Shared;
use super::xdp::Rings;
use crate::ids::{Expected, FetchId, PortId, ServerId, WorkerId};
use crate::name::Key;
use crate::observe::{End, Ends, Message, MessageKind, Tap};
use crate::resolver::outcome::Outcome;
use crate::resolver::outside::{Access, ResolverIo, TcpQuery, ValidationTask};
use crate::resolver::upstreams::ports::{FIRST_TOKEN, Ports};
use crate::transport::Transport;

/// A worker's sockets to the upstreams, and its channels to other threads.
pub(super) struct Network {
    /// Waits on all sockets of the worker, including the client sockets.
    pub(super) poller: Poller,
    pub(super) ports: Ports,
    worker: WorkerId,
    shared: Arc<Shared>,
    /// dnstap tap that receives a copy of each message to and from upstreams.
    tap: Option<Tap>,
}

/// First poller token of the worker's AF_XDP rings. Smaller tokens belong to client endpoints.
pub(super) const FIRST_RINGS: usize = FIRST_TOKEN / 2;
/// Poller token of the worker's inbox. Larger tokens belong to upstream ports.
pub(super) const INBOX: usize = FIRST_TOKEN - 1;
/// Maximum number of ready sockets that one wait of the poller reports.
const READY: usize = 256;

impl Network {
    /// Creates the network access of a worker, without upstreams. Its poller waits on the client endpoints, the AF_XDP
    /// rings and the worker's inbox.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptor left.
    pub(super) fn new(
        worker: WorkerId,
        shared: Arc<Shared>,
        endpoints: &[Endpoint],
        rings: &[Rings],
        tap: Option<Tap>,
    ) -> io::Result<Network> {
        let poller = Poller::new(READY)?;
        for (token, endpoint) in endpoints.iter().enumerate() {
            endpoint.use_receive_offload();
            poller.add(endpoint, token)?;
        }
        poller.add(&*shared.worker_inboxes[worker.0].alarm, INBOX)?;
        for (number, rings) in rings.iter().enumerate() {
            for socket in rings.exchange.receiver.sockets() {
                poller.add(&socket, FIRST_RINGS + number)?;
            }
        }
        let ports = Ports::new(Rings::ways(rings, worker));
        Ok(Network { poller, ports, worker, shared, tap })
    }

    /// If dnstap is configured, passes to dnstap a copy of a datagram that arrived from an upstream.
    #[inline]
    pub(super) fn report_response(&self, port: PortId, octets: &[u8]) {
        if let Some(tap) = &self.tap {
            let upstream = self.ports.address(port.server);
            let kind = MessageKind::ForwarderResponse;
            let message = message(kind, Transport::Udp, upstream, octets);
            tap.put(message, self.shared.metrics().worker(self.worker));
        }
    }
}

/// Returns a message to or from an upstream in the form that dnstap needs.
pub(super) fn message(
    kind: MessageKind,
    transport: Transport,
    upstream: Option<SocketAddr>,
    octets: &[u8],
) -> Message {
    let ends = Ends { initiator: None, responder: upstream.map(End::from) };
    Message::now(kind, transport, ends, None, octets)
}

impl ResolverIo for Network {
    fn configure(&mut self, servers: impl Iterator<Item = (ServerId, Access)>) {
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
        let Some(tap) = &self.tap else {
            return self.ports.ask(server, fetch, &self.poller, now, rng, write);
        };
        let upstream = self.ports.address(server);
        let metrics = self.shared.metrics().worker(self.worker);
        self.ports.ask(server, fetch, &self.poller, now, rng, |id, out| {
            let start = out.len();
            write(id, out);
            let kind = MessageKind::ForwarderQuery;
            tap.put(message(kind, Transport::Udp, upstream, &out[start..]), metrics);
        })
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

    fn query_over_tcp(&mut self, question: TcpQuery) {
        if let Some(tap) = &self.tap {
            let (kind, upstream) =
                (MessageKind::ForwarderQuery, Some(question.address.without_zone()));
            let message = message(kind, Transport::Tcp, upstream, &question.query);
            tap.put(message, self.shared.metrics().worker(self.worker));
        }
        // Sending fails only after the TCP thread has exited. In this case, the process is about to
        // exit.
        let _ = self.shared.tcp_questions.send(question);
    }

    fn validate(&mut self, task: ValidationTask) -> bool {
        self.shared.validation.submit(task)
    }

    fn tell(&mut self, worker: WorkerId, key: Key, outcome: Outcome) {
        self.shared.worker_inboxes[worker.0].post(WorkerMessage::Completed(key, outcome));
    }
}
