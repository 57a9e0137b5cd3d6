//! Where a worker's queries come from: a socket of the kernel's network stack, or the rings of an
//! interface's queue.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use net::batch::{Datagram, ServerBatch, Source, Turn, Wait};
use net::socket::Endpoint;
use net::xdp;

use super::answer::MAX_REPLY;

/// The longest query that is read: larger than any that we send or answer with more than an error.
const QUERY_LEN: usize = 1500;

/// Both ways in, and out again.
pub(super) enum Port {
    /// Through the stack.
    Socket(Arc<Endpoint>, Box<ServerBatch>),
    /// Past it.
    Rings(Box<xdp::Server>),
}

impl Port {
    /// A socket, whose receive timeout is how long a turn may wait.
    pub(super) fn socket(endpoint: Arc<Endpoint>) -> Port {
        Port::Socket(endpoint, Box::new(ServerBatch::new(QUERY_LEN, MAX_REPLY)))
    }

    /// The socket, through which replies can leave later.
    pub(super) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        match self {
            Port::Socket(endpoint, _) => Some(Arc::clone(endpoint)),
            Port::Rings(_) => None,
        }
    }

    /// Receives queries, or waits for one for `limit` at most, lets `answer` write a reply to each
    /// (it returns the reply's length, 0 for none), and sends the replies.
    ///
    /// # Errors
    /// An ICMP error that was waiting at a socket; an interface that is gone.
    #[inline]
    pub(super) fn turn(
        &mut self,
        limit: Duration,
        answer: impl FnMut(&Datagram<'_>, Source<'_>, &mut [u8]) -> usize,
    ) -> io::Result<Turn> {
        match self {
            Port::Socket(endpoint, batch) => batch.turn(endpoint, Wait::ForOne, answer),
            // Where the interface is gone there is nothing to wait for.
            Port::Rings(server) => {
                server.turn(limit, answer).inspect_err(|_| std::thread::sleep(limit))
            }
        }
    }

    /// Queries that came and that the worker did not get, because it was too slow.
    pub(super) fn drops(&self) -> u64 {
        match self {
            Port::Socket(endpoint, _) => endpoint.drops(),
            Port::Rings(server) => server.drops(),
        }
    }
}
