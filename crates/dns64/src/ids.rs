//! Numbers that name things, a type for each, so that the compiler tells them apart.

/// Number of an upstream server in one worker's resolver. A reload keeps it. It is used again after
/// the server has been removed from the configuration and no question to it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServerId(pub u32);

/// Names a route of the settings in use. Other settings have other routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteId(pub usize);

/// Names a worker, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerId(pub usize);

/// Names a client query that waits for upstreams. A place that is used again has another serial
/// number then, so that no query gets the answer of one that was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobId {
    pub(crate) place: usize,
    pub(crate) serial: u32,
}

/// Names a question in flight; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FetchId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Names a source port: its server and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortId {
    pub(crate) server: ServerId,
    pub(crate) number: u16,
}

/// Where an answer is expected: on a port, under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expected {
    pub(crate) port: PortId,
    pub(crate) id: u16,
}

impl ServerId {
    /// The number for a place in a list of servers.
    pub(crate) fn of_place(place: usize) -> ServerId {
        // A configuration of 1 MiB names fewer upstreams.
        ServerId(u32::try_from(place).expect("fewer than 2^32 upstreams"))
    }

    /// The place in a list of servers.
    #[inline]
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}
