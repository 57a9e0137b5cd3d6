//! Identifiers of workers, upstreams and similar objects, with a separate type for each kind of
//! object.

/// Identifier of an upstream server in one worker's resolver. A reload of the configuration does not change the
/// identifier. After the server has been removed from the configuration and its last query has ended, the identifier
/// is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServerId(pub u32);

/// Index of a route, which assigns upstreams to a domain, in the current settings. After a reload, the same index may
/// refer to a different route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteId(pub usize);

/// Index of a worker, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerId(pub usize);

/// Identifier of a client query that waits for upstreams: the index in the table of waiting
/// queries, and a serial number. A reused index gets a different serial number, so that an answer
/// to an earlier query is not mistaken for an answer to the current query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobId {
    pub(crate) index: u32,
    pub(crate) serial: u32,
}

/// Identifier of a fetch, which resolves one question by upstream queries. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FetchId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Identifier of a source port for upstream queries: the upstream server, and the index of the port
/// among the ports for this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortId {
    pub(crate) server: ServerId,
    pub(crate) number: u16,
}

/// Identifier of an expected response: the source port and the message ID of the upstream query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expected {
    pub(crate) port: PortId,
    pub(crate) id: u16,
}

impl ServerId {
    /// Returns the identifier of the server at index `index` in the list of upstream servers.
    pub(crate) fn from_index(index: usize) -> ServerId {
        // The configuration is limited to 1 MiB, which is too small for 2^32 upstreams.
        ServerId(u32::try_from(index).expect("fewer than 2^32 upstreams"))
    }

    /// Returns the index of the server in the list of upstream servers.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
