//! Whom a reply goes to.

use std::net::IpAddr;

use net::batch::Peer;
use tokio::sync::mpsc::UnboundedSender;

use super::Transport;

/// Whom a reply goes to.
#[derive(Clone)]
pub(crate) enum Client {
    /// A datagram's source, and the number of the endpoint that it came to.
    Udp(usize, Peer),
    /// A connection, and the address of its other end.
    Stream(Transport, IpAddr, ToStream),
}

/// The way to a connection's writer: it gets one message for each query, empty if there is no
/// reply.
pub(crate) type ToStream = UnboundedSender<Vec<u8>>;

impl Client {
    /// Its address; an IPv4 client of a socket for both families is one of IPv4.
    pub(crate) fn ip(&self) -> IpAddr {
        match self {
            Client::Udp(_, peer) => peer.address.ip().to_canonical(),
            Client::Stream(_, ip, _) => *ip,
        }
    }

    /// The transport over which its query came.
    #[inline]
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Client::Udp(..) => Transport::Udp,
            Client::Stream(transport, ..) => *transport,
        }
    }
}
