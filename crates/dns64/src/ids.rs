//! Identifiers of workers, upstreams and similar objects, with a separate type for each kind.

/// Number of an upstream server in one worker's resolver. A reload keeps it. It is reused after the
/// server has been removed from the configuration and no fetch uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServerId(pub u32);

/// Number of a route in the current settings. Other settings have other routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteId(pub usize);

/// Number of a worker, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerId(pub usize);

/// Identifies a client query that waits for upstreams. A reused place gets another serial number,
/// so that no query gets the answer of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobId {
    pub(crate) place: usize,
    pub(crate) serial: u32,
}

/// Identifies a fetch; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FetchId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Identifies a source port: its server and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortId {
    pub(crate) server: ServerId,
    pub(crate) number: u16,
}

/// Expected response: port and message id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expected {
    pub(crate) port: PortId,
    pub(crate) id: u16,
}

impl ServerId {
    /// Converts a place in a list of servers.
    pub(crate) fn from_place(place: usize) -> ServerId {
        // A configuration of 1 MiB contains fewer upstreams.
        ServerId(u32::try_from(place).expect("fewer than 2^32 upstreams"))
    }

    /// Returns the place in a list of servers.
    #[inline]
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}
