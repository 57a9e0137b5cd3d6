//! Client queries, from their arrival to their reply.

use std::net::IpAddr;

use method::units::Nanos;
use net::batch::Peer;
use tokio::sync::mpsc::UnboundedSender;

use crate::client::inquiry::Inquiry;

/// Whom the reply goes to.
#[derive(Clone)]
pub(super) enum Client {
    /// A datagram's source, and the number of the endpoint that it came to.
    Udp(usize, Peer),
    /// A connection: it gets one message for each query, empty if there is no reply.
    Tcp(IpAddr, UnboundedSender<Vec<u8>>),
}

impl Client {
    /// Its address; an IPv4 client of a socket for both families is one of IPv4.
    pub(super) fn ip(&self) -> IpAddr {
        match self {
            Client::Udp(_, peer) => peer.address.ip().to_canonical(),
            Client::Tcp(ip, _) => *ip,
        }
    }

    pub(super) fn is_tcp(&self) -> bool {
        matches!(self, Client::Tcp(..))
    }
}

/// A client query that has not been answered yet.
pub(super) struct Job {
    pub(super) client: Client,
    pub(super) inquiry: Inquiry,
    pub(super) arrived: Nanos,
}
