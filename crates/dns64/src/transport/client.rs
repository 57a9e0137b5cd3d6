//! Destination of a reply.

use std::net::IpAddr;

use net::batch::Peer;
use net::xdp::EthernetLink;

use super::Transport;
use super::backlog::ToStream;

/// Destination of a reply.
#[derive(Clone)]
pub(crate) enum Client {
    /// A datagram's source, and the number of the endpoint that received it.
    Udp(usize, Peer),
    /// The same for AF_XDP.
    Xdp(Xdp, Peer),
    /// A connection, and the address of its peer.
    Stream(Transport, IpAddr, ToStream),
}

/// Path of a datagram received by AF_XDP, and of its reply.
#[derive(Clone, Copy)]
pub(crate) struct Xdp {
    /// Number of its destination endpoint.
    pub(crate) endpoint: u16,
    /// Number of its rings among the worker's.
    pub(crate) rings: u16,
    pub(crate) link: EthernetLink,
}

impl Client {
    /// Returns its address; an IPv4-mapped IPv6 address is converted to IPv4.
    pub(crate) fn ip(&self) -> IpAddr {
        match self {
            Client::Udp(_, peer) | Client::Xdp(_, peer) => peer.address.ip().to_canonical(),
            Client::Stream(_, ip, _) => *ip,
        }
    }

    /// Returns the transport of its query.
    #[inline]
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Client::Udp(..) | Client::Xdp(..) => Transport::Udp,
            Client::Stream(transport, ..) => *transport,
        }
    }
}
