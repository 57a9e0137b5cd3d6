//! A DNS message with the properties reported to dnstap.

use std::net::{IpAddr, SocketAddr};

use dnssec::Security;
use net::clock;
use units::Nanos;

use crate::observe::queue::HeapSize;
use crate::transport::Transport;

/// Kind of a message. The values are those of dnstap's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Query from a client.
    ClientQuery = 5,
    /// Reply to a client.
    ClientResponse = 6,
    /// Query to an upstream.
    ForwarderQuery = 7,
    /// Response from an upstream.
    ForwarderResponse = 8,
}

impl MessageKind {
    /// True if the message is a query.
    pub(super) fn is_query(self) -> bool {
        matches!(self, MessageKind::ClientQuery | MessageKind::ForwarderQuery)
    }
}

/// Address and port of one endpoint of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// IP address.
    pub(crate) ip: IpAddr,
    /// Port, or `None` if it is not known.
    pub(crate) port: Option<u16>,
}

impl From<SocketAddr> for End {
    /// Converts an IPv4-mapped address of a dual-stack socket to IPv4.
    fn from(address: SocketAddr) -> End {
        End { ip: address.ip().to_canonical(), port: Some(address.port()) }
    }
}

/// Both endpoints of a message, to the extent that they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Sender of the query.
    pub(crate) initiator: Option<End>,
    /// Sender of the response.
    pub(crate) responder: Option<End>,
}

/// A sent or received message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Kind of the message.
    pub(crate) kind: MessageKind,
    /// Transport of the message.
    pub(crate) transport: Transport,
    /// Endpoints of the message.
    pub(crate) ends: Ends,
    /// Time of sending or receipt, in nanoseconds since 1970.
    pub(crate) at: Nanos,
    /// For a response, the time of the query in nanoseconds since 1970. `None` if this time is not known.
    pub(crate) asked: Option<Nanos>,
    /// Octets of the message.
    pub(crate) octets: Box<[u8]>,
    /// For a reply to a client, the result of the DNSSEC validation; `None` if there was no validation.
    pub(crate) security: Option<Security>,
}

impl HeapSize for Message {
    fn octets(&self) -> usize {
        self.octets.len()
    }
}

impl Message {
    /// Creates a message with the current time. For a response, `took` is the time since the query, or `None` if this
    /// time is not known.
    pub(crate) fn now(
        kind: MessageKind,
        transport: Transport,
        ends: Ends,
        took: Option<Nanos>,
        octets: &[u8],
    ) -> Message {
        let at = clock::wall();
        let asked = took.map(|took| Nanos(at.0.saturating_sub(took.0)));
        let octets = octets.into();
        Message { kind, transport, ends, at, asked, octets, security: None }
    }
}
