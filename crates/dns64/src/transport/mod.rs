//! Transport of messages between clients, this server and upstreams.
//!
//! ```text
//! clients ── UDP ──────► server::worker                      upstreams ◄─ UDP ── resolver::upstreams::ports
//!         ── TCP, TLS ─► stream ─► worker ─► stream ─► client          ◄─ TCP ── upstream_tcp
//!         ── HTTPS ────► https  ─► worker ─► https  ─► client                    permits, framing
//!         ── QUIC ─────► quic   ─► worker ─► quic   ─► client
//!                        tls, framing, backlog, connections
//! ```

pub(crate) mod backlog;
pub(crate) mod certificate;
pub(crate) mod client;
pub(crate) mod connections;
pub(crate) mod framing;
pub(crate) mod https;
mod permits;
pub(crate) mod quic;
pub(crate) mod requests;
pub(crate) mod stream;
pub(crate) mod stream_options;
pub(crate) mod tls;
pub(crate) mod upstream_tcp;

use std::fmt;

use wire::edns::{LEAST_PAYLOAD, UDP_PAYLOAD};

/// Maximum length of a query over HTTPS or QUIC, in octets. It is small, because all queries of a connection can be
/// incomplete at the same time.
const LONGEST_QUERY: usize = 4_096;

/// Transport protocol of a client query and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP. Long replies are truncated, and the source address of a query may be forged.
    Udp,
    /// TCP (RFC 7766).
    Tcp,
    /// DNS over TLS (RFC 7858).
    Tls,
    /// DNS over HTTPS (RFC 8484), or over HTTP behind a reverse proxy.
    Https,
    /// DNS over QUIC (RFC 9250).
    Quic,
}

impl Transport {
    /// Returns the maximum length of a reply in octets. `payload` is the client's maximum UDP
    /// payload size in octets, or `None` if the query has no EDNS.
    #[inline]
    pub fn limit(self, payload: Option<usize>) -> usize {
        match self {
            Transport::Udp => {
                payload.map_or(LEAST_PAYLOAD, |payload| payload.clamp(LEAST_PAYLOAD, UDP_PAYLOAD))
            }
            _ => usize::from(u16::MAX),
        }
    }

    /// True if the source address of a message cannot be forged.
    #[inline]
    pub(crate) fn is_proven(self) -> bool {
        self != Transport::Udp
    }

    /// True if a reply that is too long is sent truncated, with TC set. The client can then retry over TCP (RFC 7766
    /// §5).
    #[inline]
    pub(crate) fn truncates(self) -> bool {
        self == Transport::Udp
    }

    /// True if messages are encrypted. Replies to padded queries are then padded too (RFC 7830 §6).
    pub(crate) fn is_encrypted(self) -> bool {
        matches!(self, Transport::Tls | Transport::Https | Transport::Quic)
    }

    /// Returns the name of the protocol for messages, for example "UDP".
    pub(crate) fn label(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
            Transport::Https => "HTTPS",
            Transport::Quic => "QUIC",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_limit_by_client_and_path() {
        for (payload, limit) in
            [(None, 512), (Some(100), 512), (Some(1_000), 1_000), (Some(4_096), 1_232)]
        {
            assert_eq!(Transport::Udp.limit(payload), limit);
            assert_eq!(Transport::Tcp.limit(payload), 65_535);
        }
    }
}
