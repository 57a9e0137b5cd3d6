//! The transport of a client's queries: UDP or TCP.

/// Transport of the queries, and handling of truncated responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams; truncated responses count as responses.
    Udp,
    /// Datagrams; after a truncated response the query is retried over TCP, and the response over TCP counts.
    UdpThenTcp,
    /// Connections that are kept open, with many queries in flight on each (RFC 7766 §6.2).
    Tcp,
}
