//! Where the queries of a worker of ours come from, AuthDNS's or the reference DUT's: a socket of the
//! kernel's network stack, or the rings of an interface's queue.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use net::batch::{Datagram, ServerBatch, Source, Turn, Wait};
use net::socket::Endpoint;
use net::xdp;

use crate::authdns::answer::MAX_REPLY;
use crate::past_stack::{PastStack, joined_behind};

/// The longest query that is read: larger than any that we send or answer with more than an error.
const QUERY_LEN: usize = 1500;

/// Both ways in, and out again.
pub(crate) enum Port {
    /// Through the stack.
    Socket(Arc<Endpoint>, Box<ServerBatch>),
    /// Past it; whether datagrams may come joined that way, and how many queries came behind others,
    /// which are not read.
    Rings { server: Box<xdp::Server>, may_join: bool, joined: u64 },
}

impl Port {
    /// A socket, whose receive timeout is how long a turn that waits may take.
    pub(crate) fn socket(endpoint: Arc<Endpoint>) -> Port {
        Port::Socket(endpoint, Box::new(ServerBatch::new(QUERY_LEN, MAX_REPLY)))
    }

    /// The rings of a queue of this interface.
    pub(crate) fn rings(server: xdp::Server, interface: &PastStack) -> Port {
        Port::Rings { server: Box::new(server), may_join: interface.may_join(), joined: 0 }
    }

    /// The socket, through which replies can leave later.
    pub(crate) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        match self {
            Port::Socket(endpoint, _) => Some(Arc::clone(endpoint)),
            Port::Rings { .. } => None,
        }
    }

    /// Receives queries, or waits for one for `limit` at most (zero: not at all), lets `answer` write
    /// a reply to each (it returns the length, 0 for none), and sends the replies.
    ///
    /// # Errors
    /// An ICMP error that was waiting at a socket; an interface that is gone.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        limit: Duration,
        mut answer: impl FnMut(&Datagram<'_>, Source<'_>, &mut [u8]) -> usize,
    ) -> io::Result<Turn> {
        match self {
            Port::Socket(endpoint, batch) => {
                let wait = if limit.is_zero() { Wait::Dont } else { Wait::ForOne };
                batch.turn(endpoint, wait, answer)
            }
            Port::Rings { server, may_join, joined } => {
                let turn = server.turn(limit, |query, source, out| {
                    if *may_join {
                        *joined += joined_behind(query.bytes, query.checksum_left);
                    }
                    answer(query, source, out)
                });
                // Where the interface is gone there is nothing to wait for.
                turn.inspect_err(|_| std::thread::sleep(limit))
            }
        }
    }

    /// Queries that came and that the worker did not get, because it was too slow, or because they
    /// were joined to others.
    pub(crate) fn drops(&self) -> u64 {
        match self {
            Port::Socket(endpoint, _) => endpoint.drops(),
            Port::Rings { server, joined, .. } => server.drops() + joined,
        }
    }
}
