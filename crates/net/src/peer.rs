//! The two addresses of a datagram: the peer's address and the local address.

use std::net::{IpAddr, SocketAddr};

/// The addresses that a reply to a datagram needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Address and port of the peer.
    pub address: SocketAddr,
    /// Destination address of the received datagram if the socket is bound to a wildcard address, otherwise `None`. The
    /// reply must be sent from this address.
    pub local: Option<IpAddr>,
}
