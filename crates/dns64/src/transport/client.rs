//! Destination of a reply.

use std::net::IpAddr;

use net::batch::Peer;
use net::xdp::EthernetLink;

use super::Transport;
use super::backlog::ToStream;
use super::stream_options::StreamOptions;

/// Destination of a reply.
#[derive(Clone)]
pub(crate) enum Client {
    /// The query arrived over UDP. The values are the index of the endpoint that received the datagram, and the source
    /// of the datagram.
    Udp(usize, Peer),
    /// The query arrived over AF_XDP. The values are the path of the datagram, and the source of the datagram.
    Xdp(Xdp, Peer),
    /// The query arrived over a connection.
    Stream(StreamClient),
}

/// Destination of a reply over a connection.
#[derive(Clone)]
pub(crate) struct StreamClient {
    pub(crate) transport: Transport,
    /// Options that are added to the reply.
    pub(crate) options: StreamOptions,
    /// Address of the peer. An IPv4-mapped IPv6 address is converted to IPv4.
    pub(crate) ip: IpAddr,
    pub(crate) reply: ToStream,
}

impl StreamClient {
    /// Returns a client at `ip` to which no reply can be sent.
    pub(crate) fn closed(ip: IpAddr) -> StreamClient {
        let (transport, reply) = (Transport::Tcp, ToStream::closed());
        StreamClient { transport, options: StreamOptions::default(), ip, reply }
    }
}

/// Path of a datagram received over AF_XDP. The reply is sent over the same path.
#[derive(Clone, Copy)]
pub(crate) struct Xdp {
    /// Index of the endpoint to which the datagram was sent.
    pub(crate) endpoint: u16,
    /// Index into the worker's AF_XDP rings.
    pub(crate) rings: u16,
    pub(crate) link: EthernetLink,
}

impl Client {
    /// Returns the client's address. An IPv4-mapped IPv6 address is converted to IPv4.
    pub(crate) fn ip(&self) -> IpAddr {
        match self {
            Client::Udp(_, peer) | Client::Xdp(_, peer) => peer.address.ip().to_canonical(),
            Client::Stream(client) => client.ip,
        }
    }

    /// Returns the transport of the query.
    #[inline]
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Client::Udp(..) | Client::Xdp(..) => Transport::Udp,
            Client::Stream(client) => client.transport,
        }
    }
}
