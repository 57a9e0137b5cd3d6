//! How queries leave and replies come: through the sockets of a pair's ports, or past the kernel's
//! network stack (AF_XDP).
//!
//! ```text
//! Sender ─► Outlet ─┬─ sockets of the ports, one system call for a block (UDP_SEGMENT)
//!                   └─ frames ─► ring of the interface
//! Receiver ◄─┬─ sockets of the ports: replies, or with AF_XDP what the filter leaves to the stack
//!            └─ Inlet: rings of the interface ◄─ filter: to our addresses and ports
//! ```
//!
//! With AF_XDP the sockets are there all the same: they keep the ports from others, and get what
//! the filter does not take, such as fragments. So nothing is lost to it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use net::batch::Peer;
use net::neighbour::NextHop;
use net::socket::Endpoint;
use net::xdp::{self, Arrived, Claim, Client};

use super::error::TrialError;
use super::pair::Ports;
use super::plan::{PlanError, TrialPlan};
use super::sources::SourcePlan;
use crate::past_stack::{PastStack, XdpConfig};

/// Queries that leave together, from one address and port.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    /// The messages, laid end to end.
    pub(super) packets: &'a [u8],
    /// The length of each of them.
    pub(super) len: usize,
    /// The number of their port among those of the pair.
    pub(super) port: usize,
    /// The number of the first among the pair's queries.
    pub(super) first: u64,
}

impl<'a> Block<'a> {
    /// Those of its queries from number `k` on.
    fn from(self, k: u64) -> Block<'a> {
        Block { packets: &self.packets[(k - self.first) as usize * self.len..], ..self }
    }

    /// Its queries one by one, from number `k` on: the numbers, and a block of each.
    pub(super) fn singly(self, k: u64) -> impl Iterator<Item = (u64, Block<'a>)> {
        let packets = self.from(k).packets.chunks(self.len);
        (k..).zip(packets).map(move |(k, packets)| (k, Block { packets, ..self }))
    }
}

/// What became of queries that were to leave.
#[derive(Debug)]
pub(super) enum Left {
    /// The first so many have left, and there was no room for the others, if there are any.
    First(u64),
    /// None has, and they may be sent again, one by one. Why the kernel refused them; nothing if what
    /// it reported was of an earlier query, or if only leaving together is not possible.
    None(Option<io::Error>),
    /// Nobody knows which of them have, so none may be sent again.
    Unknown(io::Error),
}

impl Left {
    /// Of so many queries, what a socket says of them. An ICMP error that was waiting concerns the
    /// call that reports it only; anything else is a refusal (EPERM: a packet filter).
    fn of_socket(queries: u64, sent: io::Result<()>) -> Left {
        match sent {
            Ok(()) => Left::First(queries),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Left::None(None),
            Err(error) => Left::None(Some(error)),
        }
    }
}

/// How queries leave.
pub(super) enum Outlet {
    /// Through the stack.
    Sockets {
        /// The sockets that they leave from.
        ports: Arc<Ports>,
        /// Where queries leave from many addresses: from which each of them does.
        sources: Option<Arc<SourcePlan>>,
        /// Whether the kernel segments; found out by trying.
        offload: bool,
    },
    /// Past it.
    Rings(Box<RingOutlet>),
}

/// The sending half past the stack.
pub(super) struct RingOutlet {
    sender: xdp::Sender,
    link: xdp::EthernetLink,
    ends: Ends,
}

impl Outlet {
    /// Through sockets; `offload` says whether a block may leave in one system call.
    pub(super) fn sockets(
        ports: Arc<Ports>,
        sources: Option<Arc<SourcePlan>>,
        offload: bool,
    ) -> Outlet {
        Outlet::Sockets { ports, sources, offload }
    }

    /// Whether so many queries, if they have one port, leave in one call.
    #[inline]
    pub(super) fn joins(&self, queries: u64) -> bool {
        match self {
            Outlet::Sockets { offload, .. } => *offload && queries > 1,
            Outlet::Rings(_) => true,
        }
    }

    /// Sends a block in one call.
    #[inline]
    pub(super) fn send_together(&mut self, block: Block<'_>) -> Left {
        match self {
            Outlet::Sockets { ports, sources, offload } => {
                let port = &ports.asking[block.port];
                let segment = block.len as u16;
                let sent = match sources {
                    None => port.send_segmented(block.packets, segment),
                    Some(sources) => {
                        port.send_from(block.packets, Some(segment), sources.ends(block.first))
                    }
                };
                match sent {
                    // No segmentation here; the packets have not left.
                    Err(e)
                        if matches!(
                            e.raw_os_error(),
                            Some(libc_errors::EIO | libc_errors::EINVAL)
                        ) =>
                    {
                        *offload = false;
                        Left::None(None)
                    }
                    sent => Left::of_socket((block.packets.len() / block.len) as u64, sent),
                }
            }
            Outlet::Rings(rings) => rings.send(block),
        }
    }

    /// Sends a block of one query by itself.
    #[inline]
    pub(super) fn send(&mut self, block: Block<'_>) -> Left {
        match self {
            Outlet::Sockets { ports, sources, .. } => {
                let port = &ports.asking[block.port];
                let sent = match sources {
                    None => port.send(block.packets),
                    Some(sources) => port.send_from(block.packets, None, sources.ends(block.first)),
                };
                Left::of_socket(1, sent)
            }
            Outlet::Rings(rings) => rings.send(block),
        }
    }

    /// Queries that a device was handed, which reads them itself, and that it has not sent after
    /// `limit`. Where the kernel copies, or there is a stack, none waits at the end.
    pub(super) fn unsent(&mut self, limit: Duration) -> usize {
        match self {
            Outlet::Rings(rings) if rings.sender.is_read_by_device() => rings.sender.settle(limit),
            Outlet::Rings(_) | Outlet::Sockets { .. } => 0,
        }
    }
}

impl RingOutlet {
    #[inline]
    fn send(&mut self, block: Block<'_>) -> Left {
        let from = self.ends.ours(block);
        let server = self.ends.server;
        match self.sender.send(block.packets, block.len, &self.link, from, server) {
            Ok(0) => Left::None(Some(io::ErrorKind::WouldBlock.into())),
            Ok(taken) => Left::First(taken as u64),
            Err(error) => Left::Unknown(error),
        }
    }
}

/// Replies that come past the stack.
pub(super) struct Inlet {
    pub(super) receiver: xdp::Receiver,
    pub(super) ends: Ends,
    /// Whether datagrams may be joined when the filter sees them ([`xdp::may_join`]).
    pub(super) may_be_joined: bool,
}

impl Ends {
    /// The number of the port that a datagram came to, if it is the server's (RFC 5452 §9.1).
    #[inline]
    pub(super) fn port(&self, arrived: &Arrived<'_>) -> Option<usize> {
        let Ends { server, first_port, .. } = *self;
        let is_servers =
            (arrived.source.ip(), arrived.source.port()) == (server.ip(), server.port());
        is_servers.then(|| usize::from(arrived.destination.port().wrapping_sub(first_port)))
    }
}

/// Both ends of the queries that leave past the stack.
#[derive(Clone)]
pub(super) struct Ends {
    server: SocketAddr,
    /// The address that the kernel would choose.
    address: IpAddr,
    first_port: u16,
    sources: Option<Arc<SourcePlan>>,
}

impl Ends {
    /// The end of a block that is ours.
    #[inline]
    fn ours(&self, block: Block<'_>) -> SocketAddr {
        let source = self.sources.as_deref().and_then(|sources| sources.ends(block.first).local);
        SocketAddr::new(source.unwrap_or(self.address), self.first_port + block.port as u16)
    }
}

impl TrialPlan {
    /// Finds out whether the way to the server is by the interface that queries are to leave by past
    /// the stack. That asks the kernel for its routes, and sends nothing.
    ///
    /// # Errors
    /// [`PlanError::XdpInterface`] if it is not; [`TrialError::Interface`] if there is no way.
    pub fn check_xdp(&self) -> Result<(), TrialError> {
        let Some(wanted) = self.xdp.as_ref().and_then(|xdp| xdp.interface.as_ref()) else {
            return Ok(());
        };
        let at = |source| TrialError::Interface { server: self.server, source };
        let is = NextHop::towards(self.server).map_err(at)?.interface;
        if is == *wanted {
            return Ok(());
        }
        let interface = wanted.clone();
        Err(PlanError::XdpInterface { server: self.server, interface, is }.into())
    }
}

/// AF_XDP for the ports of a trial's only pair, open and not in use yet.
pub(super) struct Rings {
    client: Client,
    ends: Ends,
    past_stack: PastStack,
}

impl Rings {
    /// Takes what comes to these ports, whose numbers follow each other, from the interface that
    /// the next hop is on.
    pub(super) fn open(
        plan: &TrialPlan,
        wanted: &XdpConfig,
        hop: &NextHop,
        ports: &Ports,
    ) -> Result<Rings, TrialError> {
        let at = |source| TrialError::Socket { server: plan.server, source };
        let numbers: Vec<SocketAddr> = ports
            .asking
            .iter()
            .map(Endpoint::local_address)
            .collect::<io::Result<_>>()
            .map_err(at)?;
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        let address = first.ip().to_canonical();
        let addresses = plan.source_addresses.map_or(address.into(), |sources| sources.prefix());
        let claim = Claim { addresses, ports: (first.port()..=last.port()).into() };
        let client = Client::open(hop, &[claim], wanted.mode)?;
        let past_stack = PastStack {
            interface: hop.interface.clone(),
            way: client.way(),
            queues: client.queues(),
        };
        let server = plan.canonical_server();
        let ends = Ends { server, address, first_port: first.port(), sources: None };
        Ok(Rings { client, ends, past_stack })
    }

    /// How packets come and go.
    pub(super) fn past_stack(&self) -> &PastStack {
        &self.past_stack
    }

    /// The ways out and in, of queries that leave from these addresses.
    pub(super) fn into_halves(self, sources: Option<&Arc<SourcePlan>>) -> (Outlet, Inlet) {
        let link = self.client.link();
        let (sender, receiver) = self.client.into_halves();
        let ends = Ends { sources: sources.cloned(), ..self.ends };
        let outlet = RingOutlet { sender, link, ends: ends.clone() };
        let may_be_joined = self.past_stack.may_join();
        (Outlet::Rings(Box::new(outlet)), Inlet { receiver, ends, may_be_joined })
    }
}

/// Both ends of a datagram that came past the stack, as a receiver knows those of sockets.
#[inline]
pub(super) fn ends_of(arrived: &Arrived<'_>) -> Option<Peer> {
    Some(Peer { address: arrived.source, local: Some(arrived.destination.ip()) })
}

/// The error numbers by which a kernel says that it has no segmentation (the same on all Linux
/// architectures).
mod libc_errors {
    pub(super) const EIO: i32 = 5;
    pub(super) const EINVAL: i32 = 22;
}
