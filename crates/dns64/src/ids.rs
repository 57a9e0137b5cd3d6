//! Numbers that name things, a type for each, so that the compiler tells them apart.

/// Names an upstream server, as one worker's resolver numbers them. It stays the same when the
/// configuration is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServerId(pub u16);

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
    /// The place in a list that has one entry for each server.
    #[inline]
    pub(crate) fn place(self) -> usize {
        usize::from(self.0)
    }
}
