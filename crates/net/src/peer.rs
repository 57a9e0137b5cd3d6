//! The two addresses of a datagram: peer and local address.

use std::net::{IpAddr, SocketAddr};

/// The addresses that a reply to a datagram needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Address and port of the peer.
    pub address: SocketAddr,
    /// Local destination address if the socket is bound to a wildcard. The reply must be sent from this address.
    pub local: Option<IpAddr>,
}
