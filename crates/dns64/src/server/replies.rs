//! Replies on their way to clients: those of one turn leave together over UDP; over TCP each goes
//! to its connection.

use method::units::Nanos;
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
    /// What the kernel had thrown away when this worker began; `None` if another worker has the
    /// same sockets and counts.
    drops_before: Option<u64>,
    /// When the kernel is asked again.
    drops_due: Nanos,
}

/// How often the kernel is asked what it has thrown away.
const DROPS_EACH: Nanos = Nanos::from_millis(100);

impl Replies {
    /// Nothing waits on these sockets, one per address served. `counts_drops`: what the kernel
    /// drops on them is counted here, and not by another worker that shares them.
    pub(super) fn new(endpoints: Vec<Endpoint>, counts_drops: bool) -> Replies {
        let queues = endpoints.iter().map(|_| SendQueue::new()).collect();
        let drops_before = counts_drops.then(|| drops(&endpoints));
        Replies { endpoints, queues, drops_before, drops_due: Nanos(0) }
    }

    /// The worker's sockets towards clients, one per address served.
    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Sends what `write` writes; nothing if it writes nothing, which a connection is told.
    #[inline]
    pub(super) fn send(
        &mut self,
        client: &Client,
        metrics: &WorkerMetrics,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
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
                    truncated =
                        Message::new(&out[start..]).is_some_and(|reply| reply.is_truncated());
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

    /// Sends what waits, and counts now and then what the kernel has thrown away.
    pub(super) fn flush(&mut self, now: Nanos, metrics: &WorkerMetrics) {
        for number in 0..self.queues.len() {
            self.flush_one(number, metrics);
        }
        if let Some(before) = self.drops_before
            && now >= self.drops_due
        {
            self.drops_due = now + DROPS_EACH;
            metrics.set(Count::SocketDrops, drops(&self.endpoints) - before);
        }
    }

    fn flush_one(&mut self, number: usize, metrics: &WorkerMetrics) {
        let flushed = self.queues[number].flush(&self.endpoints[number]);
        if flushed.refused > 0 {
            metrics.add(Count::SendRefused, flushed.refused as u64);
        }
    }
}

/// Datagrams that found these sockets full since they were opened.
fn drops(endpoints: &[Endpoint]) -> u64 {
    endpoints.iter().map(Endpoint::drops).sum()
}
