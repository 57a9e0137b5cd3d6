//! Transmit and receive paths of a pair of threads: the sockets of its ports, or AF_XDP.
//!
//! ```text
//! Sender ─► TxPath ─┬─ sockets of the ports, one system call for a block (UDP_SEGMENT)
//!                   └─ frames ─► ring of the interface
//! Receiver ◄─┬─ sockets of the ports: replies, or with AF_XDP packets not redirected by the filter
//!            └─ XdpRxPath: rings of the interface ◄─ filter: to our addresses and ports
//! ```
//!
//! With AF_XDP the sockets are open as well. They reserve the ports, and receive packets that the filter does not
//! redirect, such as fragments.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use net::batch::Peer;
use net::neighbour::NextHop;
use net::socket::Endpoint;
use net::xdp::{self, Arrived, Claim, Client};

use super::error::TrialError;
use super::plan::{PlanError, TrialPlan};
use super::sources::SourcePlan;
use super::thread_pair::Ports;
use crate::xdp::{XdpConfig, XdpInterface};

/// Queries sent together from one address and port.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    /// The messages of the queries, one directly after the other.
    pub(super) packets: &'a [u8],
    /// Length of each message.
    pub(super) len: usize,
    /// Index of the queries' source port among the ports of the pair of threads (sender and receiver).
    pub(super) port: usize,
    /// Index of the block's first query among all queries of the pair of threads.
    pub(super) first: u64,
}

impl<'a> Block<'a> {
    /// Returns the part of the block that begins with query `k`.
    fn from(self, k: u64) -> Block<'a> {
        Block { packets: &self.packets[(k - self.first) as usize * self.len..], ..self }
    }

    /// Iterates over the queries of the block, beginning with query `k`. Each item consists of a query's index and a
    /// block that contains only this query.
    pub(super) fn singly(self, k: u64) -> impl Iterator<Item = (u64, Block<'a>)> {
        let packets = self.from(k).packets.chunks(self.len);
        (k..).zip(packets).map(move |(k, packets)| (k, Block { packets, ..self }))
    }
}

/// Result of sending queries.
#[derive(Debug)]
pub(super) enum SendOutcome {
    /// The first queries were sent; the value is their number. If queries remain, there was no buffer space for them.
    First(u64),
    /// No query was sent, and all queries may be retried one by one. The value is the send error. The value is `None`
    /// if an earlier query caused the error, or if the queries can only be sent one by one.
    None(Option<io::Error>),
    /// An unknown number of the queries was sent, so none may be retried.
    Unknown(io::Error),
}

impl SendOutcome {
    /// Converts `sent`, the result of a system call that sends `queries` queries through a socket, to a
    /// [`SendOutcome`]. A pending ICMP error is not included as a send error, because an earlier query caused it. Any
    /// other error is included, for example EPERM from a packet filter.
    fn of_socket(queries: u64, sent: io::Result<()>) -> SendOutcome {
        match sent {
            Ok(()) => SendOutcome::First(queries),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                SendOutcome::None(None)
            }
            Err(error) => SendOutcome::None(Some(error)),
        }
    }
}

/// Transmit path for queries: sockets or AF_XDP.
pub(super) enum TxPath {
    /// Sockets of the kernel's network stack.
    Sockets {
        /// The sockets through which queries are sent.
        ports: Arc<Ports>,
        /// Source address of each query, if the trial has several source addresses.
        sources: Option<Arc<SourcePlan>>,
        /// True if a block may be sent in one system call. After the kernel has rejected `UDP_SEGMENT`, the value is
        /// false.
        offload: bool,
    },
    /// AF_XDP rings.
    XdpRings(Box<XdpTxPath>),
}

/// Transmit path through AF_XDP rings.
pub(super) struct XdpTxPath {
    sender: xdp::Sender,
    link: xdp::EthernetLink,
    ends: AddressPair,
}

impl TxPath {
    /// Creates a transmit path through sockets. If `offload` is true, a block of queries may be sent in one system
    /// call.
    pub(super) fn sockets(
        ports: Arc<Ports>,
        sources: Option<Arc<SourcePlan>>,
        offload: bool,
    ) -> TxPath {
        TxPath::Sockets { ports, sources, offload }
    }

    /// Returns true if this number of queries on one port can be sent in one call.
    #[inline]
    pub(super) fn joins(&self, queries: u64) -> bool {
        match self {
            TxPath::Sockets { offload, .. } => *offload && queries > 1,
            TxPath::XdpRings(_) => true,
        }
    }

    /// Sends a block of queries in one call.
    #[inline]
    pub(super) fn send_together(&mut self, block: Block<'_>) -> SendOutcome {
        match self {
            TxPath::Sockets { ports, sources, offload } => {
                let port = &ports.asking[block.port];
                let segment = block.len as u16;
                let sent = match sources {
                    None => port.send_segmented(block.packets, segment),
                    Some(sources) => {
                        port.send_from(block.packets, Some(segment), sources.ends(block.first))
                    }
                };
                match sent {
                    // Segmentation is not supported; the packets have not been sent.
                    Err(e)
                        if matches!(
                            e.raw_os_error(),
                            Some(libc_errors::EIO | libc_errors::EINVAL)
                        ) =>
                    {
                        *offload = false;
                        SendOutcome::None(None)
                    }
                    sent => SendOutcome::of_socket((block.packets.len() / block.len) as u64, sent),
                }
            }
            TxPath::XdpRings(rings) => rings.send(block),
        }
    }

    /// Sends a block of one query.
    #[inline]
    pub(super) fn send(&mut self, block: Block<'_>) -> SendOutcome {
        match self {
            TxPath::Sockets { ports, sources, .. } => {
                let port = &ports.asking[block.port];
                let sent = match sources {
                    None => port.send(block.packets),
                    Some(sources) => port.send_from(block.packets, None, sources.ends(block.first)),
                };
                SendOutcome::of_socket(1, sent)
            }
            TxPath::XdpRings(rings) => rings.send(block),
        }
    }

    /// In zero-copy mode, waits for at most `limit` until the device has sent all queries, and returns the number of
    /// unsent queries. Returns 0 at once in copy mode and with sockets.
    pub(super) fn unsent(&mut self, limit: Duration) -> usize {
        match self {
            TxPath::XdpRings(rings) if rings.sender.is_read_by_device() => {
                rings.sender.settle(limit)
            }
            TxPath::XdpRings(_) | TxPath::Sockets { .. } => 0,
        }
    }
}

impl XdpTxPath {
    #[inline]
    fn send(&mut self, block: Block<'_>) -> SendOutcome {
        let from = self.ends.ours(block);
        let server = self.ends.server;
        match self.sender.send(block.packets, block.len, &self.link, from, server) {
            Ok(0) => SendOutcome::None(Some(io::ErrorKind::WouldBlock.into())),
            Ok(taken) => SendOutcome::First(taken as u64),
            Err(error) => SendOutcome::Unknown(error),
        }
    }
}

/// Receive path through AF_XDP rings.
pub(super) struct XdpRxPath {
    pub(super) receiver: xdp::Receiver,
    pub(super) ends: AddressPair,
    /// True if datagrams may be joined before they reach the XDP filter ([`xdp::may_join`]).
    pub(super) may_be_joined: bool,
}

impl AddressPair {
    /// Returns the index of a datagram's destination port; `None` if the datagram is not from the server (RFC 5452
    /// §9.1).
    #[inline]
    pub(super) fn port(&self, arrived: &Arrived<'_>) -> Option<usize> {
        let AddressPair { server, first_port, .. } = *self;
        let is_servers =
            (arrived.source.ip(), arrived.source.port()) == (server.ip(), server.port());
        is_servers.then(|| usize::from(arrived.destination.port().wrapping_sub(first_port)))
    }
}

/// Source and destination of queries sent by AF_XDP.
#[derive(Clone)]
pub(super) struct AddressPair {
    server: SocketAddr,
    /// Source address that the kernel would select for queries to the server.
    address: IpAddr,
    first_port: u16,
    sources: Option<Arc<SourcePlan>>,
}

impl AddressPair {
    /// Returns the source address and source port of the queries in a block.
    #[inline]
    fn ours(&self, block: Block<'_>) -> SocketAddr {
        let source = self.sources.as_deref().and_then(|sources| sources.ends(block.first).local);
        SocketAddr::new(source.unwrap_or(self.address), self.first_port + block.port as u16)
    }
}

impl TrialPlan {
    /// Checks that the route to the server uses the interface selected for AF_XDP. No packet is sent.
    ///
    /// # Errors
    /// Returns [`PlanError::XdpInterface`] if the route uses a different interface, [`PlanError::XdpLoopback`] if it
    /// uses loopback, and [`TrialError::Interface`] if there is no route.
    pub fn check_xdp(&self) -> Result<(), TrialError> {
        let Some(wanted) = self.xdp.as_ref().and_then(|xdp| xdp.interface.as_ref()) else {
            return Ok(());
        };
        let at = |source| TrialError::Interface { server: self.server, source };
        let (server, interface) = (self.server, wanted.clone());
        let hop = NextHop::towards(server).map_err(at)?;
        match hop.interface {
            _ if hop.loopback => Err(PlanError::XdpLoopback { server, interface }.into()),
            is if is == interface => Ok(()),
            is => Err(PlanError::XdpInterface { server, interface, is }.into()),
        }
    }
}

/// AF_XDP rings that are opened before sending begins. They receive replies for the ports of a pair of threads. With
/// AF_XDP, a trial has only one pair.
pub(super) struct XdpRings {
    client: Client,
    ends: AddressPair,
    xdp: XdpInterface,
}

impl XdpRings {
    /// Opens AF_XDP rings on the next hop's interface. Datagrams to these ports, which must be consecutive, are
    /// redirected to the rings.
    pub(super) fn open(
        plan: &TrialPlan,
        wanted: &XdpConfig,
        hop: &NextHop,
        ports: &Ports,
    ) -> Result<XdpRings, TrialError> {
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
        let xdp = XdpInterface {
            interface: hop.interface.clone(),
            attach_mode: client.attach_mode(),
            queues: client.queues(),
        };
        let server = plan.canonical_server();
        let ends = AddressPair { server, address, first_port: first.port(), sources: None };
        Ok(XdpRings { client, ends, xdp })
    }

    /// Returns the interface and its attach mode.
    pub(super) fn xdp(&self) -> &XdpInterface {
        &self.xdp
    }

    /// Returns the transmit and receive paths, for queries from these source addresses.
    pub(super) fn into_halves(self, sources: Option<&Arc<SourcePlan>>) -> (TxPath, XdpRxPath) {
        let link = self.client.link();
        let (sender, receiver) = self.client.into_halves();
        let ends = AddressPair { sources: sources.cloned(), ..self.ends };
        let tx_path = XdpTxPath { sender, link, ends: ends.clone() };
        let may_be_joined = self.xdp.may_join();
        (TxPath::XdpRings(Box::new(tx_path)), XdpRxPath { receiver, ends, may_be_joined })
    }
}

/// Converts source and destination of an AF_XDP datagram to the form used for sockets.
#[inline]
pub(super) fn ends_of(arrived: &Arrived<'_>) -> Option<Peer> {
    Some(Peer { address: arrived.source, local: Some(arrived.destination.ip()) })
}

/// Error numbers that the kernel returns if segmentation is not supported. They are the same on all Linux
/// architectures.
mod libc_errors {
    pub(super) const EIO: i32 = 5;
    pub(super) const EINVAL: i32 = 22;
}
