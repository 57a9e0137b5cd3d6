//! Whom a reply goes to.

use std::net::IpAddr;

use net::batch::Peer;
use net::xdp::EthernetLink;

use super::Transport;
use super::backlog::ToStream;

/// Whom a reply goes to.
#[derive(Clone)]
pub(crate) enum Client {
    /// A datagram's source, and the number of the endpoint that it came to.
    Udp(usize, Peer),
    /// The same, past the kernel's network stack.
    PastStack(PastStack, Peer),
    /// A connection, and the address of its other end.
    Stream(Transport, IpAddr, ToStream),
}

/// How a datagram came past the stack, and how its reply goes back.
#[derive(Clone, Copy)]
pub(crate) struct PastStack {
    /// The number of the endpoint of its destination.
    pub(crate) endpoint: u16,
    /// The number of the rings among the worker's.
    pub(crate) rings: u16,
    pub(crate) link: EthernetLink,
}

impl Client {
    /// Its address; an IPv4 client of a socket for both families is one of IPv4.
    pub(crate) fn ip(&self) -> IpAddr {
        match self {
            Client::Udp(_, peer) | Client::PastStack(_, peer) => peer.address.ip().to_canonical(),
            Client::Stream(_, ip, _) => *ip,
        }
    }

    /// The transport over which its query came.
    #[inline]
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Client::Udp(..) | Client::PastStack(..) => Transport::Udp,
            Client::Stream(transport, ..) => *transport,
        }
    }
}
