//! Replies on their way to clients: those of one turn leave together over UDP; over TCP each goes to its connection.

use net::batch::Peer;
use net::queue::SendQueue;
use net::socket::Endpoint;
use wire::view::Message;

use crate::metrics::{Count, WorkerMetrics};
use crate::transport::client::Client;

/// A worker's sockets towards clients, and the replies that wait on each.
pub(super) struct Replies {
    endpoints: Vec<Endpoint>,
    queues: Vec<SendQueue>,
}

impl Replies {
    /// Nothing waits on these sockets, one per address served.
    pub(super) fn new(endpoints: Vec<Endpoint>) -> Replies {
        let queues = endpoints.iter().map(|_| SendQueue::new()).collect();
        Replies { endpoints, queues }
    }

    /// The sockets.
    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Sends what `write` writes; nothing if it writes nothing, which a connection is told.
    #[inline]
    pub(super) fn send(&mut self, client: &Client, metrics: &WorkerMetrics, write: impl FnOnce(&mut Vec<u8>)) {
        match client {
            Client::Udp(number, peer) => {
                if self.queues[*number].is_full() {
                    self.flush_one(*number, metrics);
                }
                let peer: Peer = *peer;
                let mut truncated = false;
                self.queues[*number].push(Some(peer), |out| {
                    let start = out.len();
                    write(out);
                    truncated = Message::new(&out[start..]).is_some_and(|reply| reply.is_truncated());
                });
                if truncated {
                    metrics.count(Count::Truncated);
                }
            }
            Client::Stream(_, _, connection) => {
                let mut message = Vec::new();
                write(&mut message);
                // The client may have gone.
                let _ = connection.send(message);
            }
        }
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self, metrics: &WorkerMetrics) {
        for number in 0..self.queues.len() {
            self.flush_one(number, metrics);
        }
    }

    fn flush_one(&mut self, number: usize, metrics: &WorkerMetrics) {
        let flushed = self.queues[number].flush(&self.endpoints[number]);
        if flushed.refused > 0 {
            metrics.add(Count::SendRefused, flushed.refused as u64);
        }
    }

    /// Datagrams that found the sockets full since they were opened.
    pub(super) fn drops(&self) -> u64 {
        self.endpoints.iter().map(Endpoint::drops).sum()
    }
}
