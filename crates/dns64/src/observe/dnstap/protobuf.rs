//! Messages in dnstap's schema (`dnstap.proto`), with the schema's field names and numbers.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the derived code has an unused public method for each optional field"
)]

use std::net::IpAddr;

use prost::Message as _;
use units::Nanos;

use super::message::{End, Message};
use crate::transport::Transport;

/// The outermost message in the schema. It contains a DNS message.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Dnstap {
    /// Identity of the server.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(super) identity: Option<Vec<u8>>,
    /// Name and version of the program.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) version: Option<Vec<u8>>,
    /// Annotation: the result of the DNSSEC validation, such as `dnssec=secure`.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(super) extra: Option<Vec<u8>>,
    #[prost(message, optional, tag = "14")]
    pub(super) message: Option<DnsMessage>,
    /// Type of the payload. The schema defines only one type, for DNS messages.
    #[prost(int32, required, tag = "15")]
    pub(super) r#type: i32,
}

/// A DNS message, named `Message` in the schema.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DnsMessage {
    /// Kind of the message, as a number in the schema (see [`MessageKind`](super::message::MessageKind)).
    #[prost(int32, required, tag = "1")]
    pub(super) r#type: i32,
    #[prost(int32, optional, tag = "2")]
    pub(super) socket_family: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub(super) socket_protocol: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) query_address: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(super) response_address: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) query_port: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    pub(super) response_port: Option<u32>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) query_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "9")]
    pub(super) query_time_nsec: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "10")]
    pub(super) query_message: Option<Vec<u8>>,
    #[prost(uint64, optional, tag = "12")]
    pub(super) response_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "13")]
    pub(super) response_time_nsec: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "14")]
    pub(super) response_message: Option<Vec<u8>>,
}

/// Number of the payload type for DNS messages (`Dnstap.Type.MESSAGE`).
const MESSAGE: i32 = 1;
/// Number of the address family IPv4 (`SocketFamily.INET`).
const INET: i32 = 1;
/// Number of the address family IPv6 (`SocketFamily.INET6`).
const INET6: i32 = 2;
/// Number of the transport protocol UDP (`SocketProtocol.UDP`).
const UDP: i32 = 1;
/// Number of the transport protocol TCP (`SocketProtocol.TCP`).
const TCP: i32 = 2;

/// Number of the transport protocol DNS over TLS (`SocketProtocol.DOT`).
const DOT: i32 = 3;
/// Number of the transport protocol DNS over HTTPS (`SocketProtocol.DOH`).
const DOH: i32 = 4;
/// Number of the transport protocol DNS over QUIC (`SocketProtocol.DOQ`).
const DOQ: i32 = 7;

/// Encodes a message in dnstap's schema.
pub(super) fn encode(message: &Message, identity: &[u8]) -> Vec<u8> {
    let address = |end: Option<End>| {
        end.map(|end| match end.ip {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        })
    };
    let port = |end: Option<End>| end.and_then(|end| end.port).map(u32::from);
    let family = message.ends.initiator.or(message.ends.responder).map(|end| match end.ip {
        IpAddr::V4(_) => INET,
        IpAddr::V6(_) => INET6,
    });
    let is_query = message.kind.is_query();
    let queried = if is_query { Some(message.at) } else { message.asked };
    let answered = (!is_query).then_some(message.at);
    let dns = DnsMessage {
        r#type: message.kind as i32,
        socket_family: family,
        socket_protocol: Some(match message.transport {
            Transport::Udp => UDP,
            Transport::Tcp => TCP,
            Transport::Tls => DOT,
            Transport::Https => DOH,
            Transport::Quic => DOQ,
        }),
        query_address: address(message.ends.initiator),
        response_address: address(message.ends.responder),
        query_port: port(message.ends.initiator),
        response_port: port(message.ends.responder),
        query_time_sec: queried.map(seconds),
        query_time_nsec: queried.map(nanoseconds),
        query_message: is_query.then(|| message.octets.to_vec()),
        response_time_sec: answered.map(seconds),
        response_time_nsec: answered.map(nanoseconds),
        response_message: (!is_query).then(|| message.octets.to_vec()),
    };
    let dnstap = Dnstap {
        identity: (!identity.is_empty()).then(|| identity.to_vec()),
        version: Some(format!("dns64d {}", crate::BUILD).into()),
        extra: message.security.map(|security| format!("dnssec={security}").into()),
        message: Some(dns),
        r#type: MESSAGE,
    };
    dnstap.encode_to_vec()
}

fn seconds(at: Nanos) -> u64 {
    at.0 / Nanos::SECOND.0
}

fn nanoseconds(at: Nanos) -> u32 {
    (at.0 % Nanos::SECOND.0) as u32
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::observe::dnstap::{Ends, MessageKind};
    use dnssec::Security;

    pub(in super::super) fn decode(octets: &[u8]) -> Dnstap {
        Dnstap::decode(octets).unwrap()
    }

    #[test]
    fn a_query_and_its_response_have_their_fields() {
        let message = Message {
            kind: MessageKind::ClientQuery,
            transport: Transport::Udp,
            ends: Ends {
                initiator: Some(End { ip: [192, 0, 2, 7].into(), port: Some(1_234) }),
                responder: Some(End { ip: [192, 0, 2, 1].into(), port: Some(53) }),
            },
            at: Nanos(1_767_322_923_000_000_007),
            asked: None,
            octets: b"query".as_slice().into(),
            security: None,
        };
        let query = decode(&encode(&message, b"ns1"));
        assert_eq!((query.identity.as_deref(), query.r#type), (Some(&b"ns1"[..]), 1));
        assert!(query.version.unwrap().starts_with(b"dns64d "));
        let dns = query.message.unwrap();
        assert_eq!((dns.r#type, dns.socket_family, dns.socket_protocol), (5, Some(1), Some(1)));
        assert_eq!(dns.query_address.as_deref(), Some(&[192, 0, 2, 7][..]));
        assert_eq!((dns.query_port, dns.response_port), (Some(1_234), Some(53)));
        let time = (dns.query_time_sec, dns.query_time_nsec);
        assert_eq!(time, (Some(1_767_322_923), Some(7)));
        assert_eq!(dns.query_message.as_deref(), Some(&b"query"[..]));
        assert_eq!((dns.response_time_sec, dns.response_message), (None, None));

        let response = Message {
            kind: MessageKind::ForwarderResponse,
            transport: Transport::Tcp,
            ends: Ends {
                initiator: None,
                responder: Some(End { ip: "2001:db8::53".parse().unwrap(), port: None }),
            },
            asked: Some(Nanos(Nanos::SECOND.0)),
            security: Some(Security::Secure),
            ..message
        };
        let decoded = decode(&encode(&response, b""));
        assert_eq!(decoded.extra.as_deref(), Some(&b"dnssec=secure"[..]));
        let dns = decoded.message.unwrap();
        assert_eq!((dns.r#type, dns.socket_family, dns.socket_protocol), (8, Some(2), Some(2)));
        assert_eq!(dns.response_address.map(|octets| octets.len()), Some(16));
        assert_eq!((dns.query_address, dns.response_port), (None, None));
        assert_eq!((dns.query_time_sec, dns.query_message), (Some(1), None));
        assert_eq!(dns.response_time_sec, Some(1_767_322_923));
        assert_eq!(dns.response_message.as_deref(), Some(&b"query"[..]));
    }

    #[test]
    fn the_octets_are_those_of_the_schema() {
        // 0x78 is the tag of field 15 (a varint), and 0x72 is the tag of field 14 (octets). Within
        // field 14, 0x08 is the tag of field 1, and 0x4d is the tag of field 9 (four octets).
        let message = Message {
            kind: MessageKind::ClientQuery,
            transport: Transport::Udp,
            ends: Ends::default(),
            at: Nanos(Nanos::SECOND.0 + 2),
            asked: None,
            octets: b"q".as_slice().into(),
            security: None,
        };
        let octets = encode(&message, b"");
        let inner = b"\x08\x05\x18\x01\x40\x01\x4d\x02\0\0\0\x52\x01q";
        let (version, rest) = octets.split_at(octets.len() - inner.len() - 4);
        assert!(version.starts_with(b"\x12"));
        assert_eq!(rest, [&[0x72, inner.len() as u8][..], inner, &[0x78, 1]].concat());
    }
}
