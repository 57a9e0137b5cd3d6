//! Replies to clients. The UDP replies of one iteration of the worker's event loop are sent
//! together. The reply to a query from a connection is passed to this connection.

use std::net::SocketAddr;

use dnssec::Security;
use net::batch::Peer;
use net::queue::SendQueue;
use net::socket::Endpoint;
use net::xdp::Outbox;
use units::Nanos;
use wire::view::Message;

use crate::metrics::{Count, WorkerMetrics};
use crate::observe::{self, End, Ends, MessageKind, Tap};
use crate::transport::client::Client;

/// A worker's client sockets, and the replies queued on each.
pub(super) struct Replies {
    endpoints: Vec<Endpoint>,
    /// Local address of each client socket; `None` if the system does not report it.
    addresses: Vec<Option<SocketAddr>>,
    queues: Vec<SendQueue>,
    /// Replies to send over AF_XDP, for each of the worker's rings.
    outboxes: Vec<Outbox>,
    /// Datagrams dropped by the kernel since this worker started; `None` if another worker counts
    /// them for the same sockets.
    drops: Option<Drops>,
    /// Time of the next read of the drop counters.
    next_drop_check: Nanos,
    /// dnstap tap that receives a copy of each message to and from clients.
    tap: Option<Tap>,
}

/// Interval between reads of the drop counters.
const DROPS_EACH: Nanos = Nanos::from_millis(100);

impl Replies {
    /// Creates empty queues for these sockets (one per listen address) and for `rings` AF_XDP rings. `counts_drops` is
    /// false if another worker with the same sockets counts the kernel's drops. `tap` receives a copy of each message
    /// to and from clients, for dnstap.
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        rings: usize,
        counts_drops: bool,
        tap: Option<Tap>,
    ) -> Replies {
        let queues = endpoints.iter().map(|_| SendQueue::new()).collect();
        let drops = counts_drops.then(|| Drops::since(counters(&endpoints)));
        let address = |endpoint: &Endpoint| endpoint.local_address().ok();
        let addresses = endpoints.iter().map(address).collect();
        let outboxes = (0..rings).map(|_| Outbox::default()).collect();
        Replies { endpoints, addresses, queues, outboxes, drops, next_drop_check: Nanos(0), tap }
    }

    /// Returns the queued replies for the worker's AF_XDP rings at index `number`.
    pub(super) fn outbox(&mut self, number: usize) -> &mut Outbox {
        &mut self.outboxes[number]
    }

    /// Returns the worker's client sockets, one per listen address.
    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Passes a copy of a received query to dnstap, if dnstap is configured.
    #[inline]
    pub(super) fn report_query(&self, client: &Client, bytes: &[u8], metrics: &WorkerMetrics) {
        if let Some(tap) = &self.tap {
            let ends = ends(client, &self.addresses);
            let message = message(MessageKind::ClientQuery, client, ends, None, bytes);
            message.into_iter().for_each(|message| tap.put(message, metrics));
        }
    }

    /// Sends the reply that `write` produces for a query. `took` is the time since the query arrived, and `security`
    /// returns the result of the DNSSEC validation. If `write` produces no octets, no reply is sent. In this case, a
    /// connection is informed that its query gets no reply.
    #[inline]
    pub(super) fn send(
        &mut self,
        client: &Client,
        metrics: &WorkerMetrics,
        took: Nanos,
        security: impl FnOnce() -> Option<Security>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let (tap, addresses) = (self.tap.as_ref(), &self.addresses);
        let write = |out: &mut Vec<u8>| {
            let start = out.len();
            write(out);
            if let Some(tap) = tap {
                let (kind, ends) = (MessageKind::ClientResponse, ends(client, addresses));
                let message = message(kind, client, ends, Some(took), &out[start..]);
                if let Some(message) = message {
                    tap.put(observe::Message { security: security(), ..message }, metrics);
                }
            }
        };
        let mut truncated = false;
        match client {
            Client::Udp(number, peer) => {
                if self.queues[*number].is_full() {
                    flush_one(&mut self.queues[*number], &self.endpoints[*number], metrics);
                }
                let peer: Peer = *peer;
                self.queues[*number].push(Some(peer), |out| truncated = is_truncated(out, write));
            }
            Client::Xdp(past, peer) => {
                let Some(from) = addresses[usize::from(past.endpoint)] else { return };
                let outbox = &mut self.outboxes[usize::from(past.rings)];
                let is_taken = outbox.push(&past.link, from, peer.address, |out| {
                    truncated = is_truncated(out, write);
                });
                if !is_taken {
                    metrics.count(Count::SendRefused);
                }
            }
            Client::Stream(stream) => {
                let mut message = Vec::new();
                write(&mut message);
                stream.options.add_to(&mut message);
                // Sending fails if the client has closed the connection.
                let _ = stream.reply.send(message);
            }
        }
        if truncated {
            metrics.count(Count::Truncated);
        }
    }

    /// Sends the queued replies, and periodically reads the kernel's drop counters.
    pub(super) fn flush(&mut self, now: Nanos, metrics: &WorkerMetrics) {
        for (queue, endpoint) in self.queues.iter_mut().zip(&self.endpoints) {
            flush_one(queue, endpoint, metrics);
        }
        if let Some(drops) = &mut self.drops
            && now >= self.next_drop_check
        {
            self.next_drop_check = now + DROPS_EACH;
            metrics.set(Count::SocketDrops, drops.count(counters(&self.endpoints)));
        }
    }
}

/// Calls `write` to append a reply to `out`. Returns true if the reply is truncated.
#[inline]
fn is_truncated(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> bool {
    let start = out.len();
    write(out);
    Message::new(&out[start..]).is_some_and(|reply| reply.is_truncated())
}

fn flush_one(queue: &mut SendQueue, endpoint: &Endpoint, metrics: &WorkerMetrics) {
    let flushed = queue.flush(endpoint);
    if flushed.refused > 0 {
        metrics.add(Count::SendRefused, flushed.refused as u64);
    }
}

/// Returns a copy of a message for dnstap. A query that cannot be parsed is not reported, because
/// readers of dnstap expect DNS messages. The reply to such a query has no question, and is not
/// reported either.
fn message(
    kind: MessageKind,
    client: &Client,
    ends: Ends,
    took: Option<Nanos>,
    octets: &[u8],
) -> Option<observe::Message> {
    let has_question = Message::new(octets).is_some_and(|message| message.qdcount() == 1);
    has_question.then(|| observe::Message::now(kind, client.transport(), ends, took, octets))
}

/// Returns the addresses of both ends of a message to or from a client. `addresses` contains the
/// local address of each client socket.
fn ends(client: &Client, addresses: &[Option<SocketAddr>]) -> Ends {
    let (number, peer) = match client {
        Client::Udp(number, peer) => (*number, peer),
        Client::Xdp(past, peer) => (usize::from(past.endpoint), peer),
        Client::Stream(stream) => {
            return Ends { initiator: Some(End { ip: stream.ip, port: None }), responder: None };
        }
    };
    let socket = addresses.get(number).copied().flatten().map(End::from);
    // If the socket is bound to all addresses, the responder is the address to which the client
    // sent its query.
    let responder = socket.map(|end| End { ip: peer.local.unwrap_or(end.ip), ..end });
    Ends { initiator: Some(peer.address.into()), responder }
}

/// Returns the kernel's drop counter of each socket, or `None` if it cannot be read.
fn counters(endpoints: &[Endpoint]) -> impl Iterator<Item = Option<u32>> {
    endpoints.iter().map(|endpoint| endpoint.drop_counter().ok())
}

/// Growth of the kernel's 32-bit drop counters, one per socket. The counters may start above 0, because sockets passed
/// by systemd are older than this process.
struct Drops {
    /// For each socket, the last value of its drop counter.
    last: Vec<Option<u32>>,
    total: u64,
}

impl Drops {
    /// Starts to count the growth of the drop counters from the values in `counters`. `None` means that a counter could
    /// not be read.
    fn since(counters: impl Iterator<Item = Option<u32>>) -> Drops {
        Drops { last: counters.collect(), total: 0 }
    }

    /// Returns the total growth of all drop counters since the start. `counters` contains their current values. If a
    /// counter could not be read (`None`), its growth since the last successful read is included in the result of a
    /// later call.
    fn count(&mut self, counters: impl Iterator<Item = Option<u32>>) -> u64 {
        for (last, counter) in self.last.iter_mut().zip(counters) {
            let Some(counter) = counter else { continue };
            let before = last.replace(counter).unwrap_or(counter);
            self.total += u64::from(counter.wrapping_sub(before));
        }
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_counts_survive_overflow_and_read_errors() {
        let mut drops = Drops::since([Some(7), Some(u32::MAX - 1), None].into_iter());
        let mut count = |counters: [Option<u32>; 3]| drops.count(counters.into_iter());
        assert_eq!(count([Some(7), Some(u32::MAX - 1), Some(40)]), 0, "before this process");
        assert_eq!(count([Some(9), Some(u32::MAX), Some(40)]), 3);
        assert_eq!(count([None, None, None]), 3, "the calls have failed");
        assert_eq!(count([Some(10), Some(4), Some(41)]), 10, "5 behind the largest value");
    }
}
