//! Transport of messages between clients, this server and upstreams.
//!
//! ```text
//! clients ── UDP ─► server::worker                      upstreams ◄─ UDP ── resolver::upstreams::ports
//!         ── TCP ─► stream ─► worker ─► stream ─► client          ◄─ TCP ── upstream_tcp
//!                   framing, backlog, connections                 permits, framing
//! ```

pub(crate) mod backlog;
pub(crate) mod client;
pub(crate) mod connections;
pub(crate) mod framing;
mod permits;
pub(crate) mod requests;
pub(crate) mod stream;
pub(crate) mod upstream_tcp;

use std::fmt;

use wire::edns::{LEAST_PAYLOAD, UDP_PAYLOAD};

/// Transport protocol of a client query and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP. Long replies are truncated, and the source address of a query may be forged.
    Udp,
    /// TCP (RFC 7766).
    Tcp,
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
            Transport::Tcp => usize::from(u16::MAX),
        }
    }

    /// True if the source address of a message cannot be forged.
    #[inline]
    pub(crate) fn is_proven(self) -> bool {
        match self {
            Transport::Udp => false,
            Transport::Tcp => true,
        }
    }

    /// True if a reply that is too long is sent truncated, with TC set. The client can then retry over TCP (RFC 7766
    /// §5).
    #[inline]
    pub(crate) fn truncates(self) -> bool {
        match self {
            Transport::Udp => true,
            Transport::Tcp => false,
        }
    }

    /// Returns the name of the protocol for messages: "UDP" or "TCP".
    pub(crate) fn label(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
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
