//! Replies on their way to clients: those of one turn leave together over UDP; over TCP each goes
//! to its connection.

use std::net::SocketAddr;

use method::units::Nanos;
use net::batch::Peer;
use net::queue::SendQueue;
use net::socket::Endpoint;
use wire::view::Message;

use crate::metrics::{Count, WorkerMetrics};
use crate::observe::{self, End, Ends, MessageKind, Tap};
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
    /// Who is told of messages to and from clients.
    tap: Option<Tapped>,
}

/// Who is told of messages, and between whom these travel.
struct Tapped {
    tap: Tap,
    /// The address of each endpoint, where it is known.
    addresses: Vec<Option<SocketAddr>>,
}

/// How often the kernel is asked what it has thrown away.
const DROPS_EACH: Nanos = Nanos::from_millis(100);

impl Replies {
    /// Nothing waits on these sockets, one per address served. `counts_drops`: what the kernel
    /// drops on them is counted here, and not by another worker that shares them. `tap`: who is
    /// told of messages to and from clients.
    pub(super) fn new(endpoints: Vec<Endpoint>, counts_drops: bool, tap: Option<Tap>) -> Replies {
        let queues = endpoints.iter().map(|_| SendQueue::new()).collect();
        let drops_before = counts_drops.then(|| drops(&endpoints));
        let address = |endpoint: &Endpoint| endpoint.local_address().ok();
        let addresses = endpoints.iter().map(address).collect();
        let tap = tap.map(|tap| Tapped { tap, addresses });
        Replies { endpoints, queues, drops_before, drops_due: Nanos(0), tap }
    }

    /// The worker's sockets towards clients, one per address served.
    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Tells of a query that has come, if somebody wants to hear of it.
    #[inline]
    pub(super) fn tell_query(&self, client: &Client, bytes: &[u8], metrics: &WorkerMetrics) {
        if let Some(tapped) = &self.tap {
            tapped.put(MessageKind::ClientQuery, client, None, bytes, metrics);
        }
    }

    /// Sends what `write` writes, to a query that came `took` ago; nothing if it writes nothing,
    /// which a connection is told.
    #[inline]
    pub(super) fn send(
        &mut self,
        client: &Client,
        metrics: &WorkerMetrics,
        took: Nanos,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let tap = self.tap.as_ref();
        let write = |out: &mut Vec<u8>| {
            let start = out.len();
            write(out);
            if let Some(tapped) = tap {
                let octets = &out[start..];
                tapped.put(MessageKind::ClientResponse, client, Some(took), octets, metrics);
            }
        };
        match client {
            Client::Udp(number, peer) => {
                if self.queues[*number].is_full() {
                    flush_one(&mut self.queues[*number], &self.endpoints[*number], metrics);
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
        for (queue, endpoint) in self.queues.iter_mut().zip(&self.endpoints) {
            flush_one(queue, endpoint, metrics);
        }
        if let Some(before) = self.drops_before
            && now >= self.drops_due
        {
            self.drops_due = now + DROPS_EACH;
            metrics.set(Count::SocketDrops, drops(&self.endpoints) - before);
        }
    }
}

fn flush_one(queue: &mut SendQueue, endpoint: &Endpoint, metrics: &WorkerMetrics) {
    let flushed = queue.flush(endpoint);
    if flushed.refused > 0 {
        metrics.add(Count::SendRefused, flushed.refused as u64);
    }
}

impl Tapped {
    /// Tells of a message, unless it is none: a query that gets no reply. Queries that cannot be
    /// read are nothing for programs that read DNS messages, and their replies have no question.
    fn put(
        &self,
        kind: MessageKind,
        client: &Client,
        took: Option<Nanos>,
        octets: &[u8],
        metrics: &WorkerMetrics,
    ) {
        if Message::new(octets).is_none_or(|message| message.qdcount() != 1) {
            return;
        }
        let ends = match client {
            Client::Udp(number, peer) => {
                let socket = self.addresses.get(*number).copied().flatten().map(End::from);
                // Of a socket for all addresses the one that was asked.
                let responder = socket.map(|end| End { ip: peer.local.unwrap_or(end.ip), ..end });
                Ends { initiator: Some(peer.address.into()), responder }
            }
            Client::Stream(_, ip, _) => {
                Ends { initiator: Some(End { ip: *ip, port: None }), responder: None }
            }
        };
        let message = observe::Message::now(kind, client.transport(), ends, took, octets);
        self.tap.put(message, metrics);
    }
}

/// Datagrams that found these sockets full since they were opened.
fn drops(endpoints: &[Endpoint]) -> u64 {
    endpoints.iter().map(Endpoint::drops).sum()
}
