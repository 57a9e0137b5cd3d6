//! The transport of a client's queries: UDP or TCP.

/// Transport of the queries, and handling of truncated responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP. A truncated response counts as a response.
    Udp,
    /// UDP. After a truncated response, the query is repeated over TCP, and only the response over TCP is counted.
    UdpThenTcp,
    /// TCP connections that are kept open, with many queries in flight on each (RFC 7766 §6.2).
    Tcp,
}
