//! A message on its way: what is told of it.

use std::net::{IpAddr, SocketAddr};

use method::units::Nanos;
use net::clock;

use crate::observe::queue::Load;
use crate::transport::Transport;

/// What a message is. The numbers are those of dnstap's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// A client's query.
    ClientQuery = 5,
    /// The reply to one.
    ClientResponse = 6,
    /// A question to an upstream.
    ForwarderQuery = 7,
    /// What came from one.
    ForwarderResponse = 8,
}

impl MessageKind {
    /// Whether it is a query, and no response.
    pub(super) fn is_query(self) -> bool {
        matches!(self, MessageKind::ClientQuery | MessageKind::ForwarderQuery)
    }
}

/// One end of a message's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Its address.
    pub(crate) ip: IpAddr,
    /// Its port, where it is known.
    pub(crate) port: Option<u16>,
}

impl From<SocketAddr> for End {
    /// An IPv4 address of a socket for both families is one of IPv4.
    fn from(address: SocketAddr) -> End {
        End { ip: address.ip().to_canonical(), port: Some(address.port()) }
    }
}

/// The two ends of a message's way, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Who asks, and is answered.
    pub(crate) initiator: Option<End>,
    /// Who is asked, and answers.
    pub(crate) responder: Option<End>,
}

/// A message that came or went.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// What it is.
    pub(crate) kind: MessageKind,
    /// The way on which it travelled.
    pub(crate) transport: Transport,
    /// Between whom.
    pub(crate) ends: Ends,
    /// When it came or went, since 1970.
    pub(crate) at: Nanos,
    /// Of a response: when its query came or went, since 1970, if that is known.
    pub(crate) asked: Option<Nanos>,
    /// Its octets.
    pub(crate) octets: Box<[u8]>,
}

impl Load for Message {
    fn octets(&self) -> usize {
        self.octets.len()
    }
}

impl Message {
    /// A message that comes or goes at this moment; the query to which it is the response, if that
    /// is known, came or went `took` ago.
    pub(crate) fn now(
        kind: MessageKind,
        transport: Transport,
        ends: Ends,
        took: Option<Nanos>,
        octets: &[u8],
    ) -> Message {
        let at = clock::wall();
        let asked = took.map(|took| Nanos(at.0.saturating_sub(took.0)));
        Message { kind, transport, ends, at, asked, octets: octets.into() }
    }
}
