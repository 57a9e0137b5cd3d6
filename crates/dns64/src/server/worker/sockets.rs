//! Reading from the sockets and rings of a worker at the start of an iteration of its event loop, and sending at the
//! end.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use net::batch::{BATCH, Peer, ReceiveBatch, Wait};
use net::clock;
use net::xdp::Arrived;
use units::Nanos;

use super::Worker;
use crate::ids::PortId;
use crate::metrics::Count;
use crate::server::inbox::WorkerMessage;
use crate::server::lateness::Change;
use crate::server::xdp::{self, DatagramOwner, Destinations, Rings};
use crate::transport::client::{Client, Xdp};

/// Maximum number of batches read from an upstream socket, or from rings, per iteration of the event loop.
const BATCHES: usize = 4;
/// Maximum number of messages from other threads that are read from the worker's inbox per iteration of the event loop.
const MESSAGES: usize = BATCHES * BATCH;
/// Maximum number of sending rounds per iteration of the event loop. If sending to a server fails in one round, the
/// query is sent to another server in the next round.
const ROUNDS: usize = 8;
/// Interval between reads of the drop counters of the AF_XDP rings.
const LOSSES_EACH: Nanos = Nanos::from_millis(100);

impl Worker {
    pub(super) fn read_clients(&mut self, number: usize, batch: &mut ReceiveBatch) {
        self.quota.begin();
        let mut is_empty = false;
        while !is_empty {
            let most = self.quota.datagrams();
            if most == 0 {
                break;
            }
            let endpoint = &self.frontend.replies().endpoints()[number];
            // An error means that an ICMP message reported an unreachable client.
            let received = batch.receive_up_to(most, endpoint, Wait::NonBlocking).unwrap_or(0);
            self.read_clock();
            let is_watching = self.lateness[number].is_watching();
            let (late, mut queries) =
                if is_watching { self.drop_late(number, batch, received) } else { (0, 0) };
            let mut joined = 0;
            for i in late..received {
                let before = queries;
                // No host sends from port 0. Such a datagram is forged, and the kernel would refuse
                // to send the reply.
                let Some(peer) = batch.peer(i).filter(|peer| peer.address.port() != 0) else {
                    queries += 1;
                    continue;
                };
                for datagram in batch.get(i).segments() {
                    self.on_query(&Client::Udp(number, peer), datagram);
                    queries += 1;
                }
                joined = joined.max(queries - before);
            }
            self.quota.record_batch(queries, joined);
            is_empty = received < most;
        }
        if let Some(change) = self.lateness[number].end_turn(is_empty, self.now) {
            let endpoint = &self.frontend.replies().endpoints()[number];
            // If a change fails, the only effect is that the worker spends more instructions on
            // each datagram.
            let _ = match change {
                Change::Drop(share) => endpoint.drop_arrivals(share),
                Change::StopTimestamps => endpoint.stop_kernel_timestamps(),
            };
        }
    }

    /// Drops the datagrams at the beginning of a batch if they are too old to be answered. Returns the number of
    /// dropped datagrams, and the number of queries in them. The numbers can differ, because the kernel may join
    /// several datagrams into one.
    #[cold]
    fn drop_late(
        &mut self,
        number: usize,
        batch: &ReceiveBatch,
        received: usize,
    ) -> (usize, usize) {
        if received == 0 {
            return (0, 0);
        }
        if batch.get(0).received.is_none() {
            // The worker has just started to watch, or another worker with the same socket has
            // turned timestamps off. Without timestamps, no datagram counts as too old.
            let _ = self.frontend.replies().endpoints()[number].use_kernel_timestamps();
        }
        let wall = clock::wall();
        let age = |i| batch.get(i).received.map_or(Nanos(0), |received| wall.since(received));
        let late = self.lateness[number].too_old((0..received).map(age));
        let queries = (0..late).map(|i| batch.get(i).segments().count()).sum();
        self.shared.metrics().worker(self.id).add(Count::DroppedLate, queries as u64);
        (late, queries)
    }

    pub(super) fn read_upstream(&mut self, port: PortId, batch: &mut ReceiveBatch) {
        for _ in 0..BATCHES {
            let Some(endpoint) = self.resolver.outside().ports.endpoint(port) else { return };
            match batch.receive(endpoint, Wait::NonBlocking) {
                Ok(received) => {
                    self.read_clock();
                    for i in 0..received {
                        for datagram in batch.get(i).segments() {
                            self.resolver.outside().report_response(port, datagram);
                            self.resolve(|resolver| {
                                resolver.on_datagram(port, datagram);
                            });
                        }
                    }
                    if received < BATCH {
                        return;
                    }
                }
                Err(error) => {
                    return self.resolve(|resolver| resolver.on_unreachable(port, &error));
                }
            }
        }
    }

    /// Reads client queries and upstream answers from AF_XDP rings. The answers may belong to
    /// another worker. Returns true if the rings were drained.
    pub(super) fn read_rings(&mut self, number: usize) -> bool {
        self.quota.begin();
        // Take the rings out of `self` for the duration of the loop: the callback borrows the
        // worker mutably.
        let mut all = std::mem::take(&mut self.rings);
        let Rings { exchange, destinations, .. } = &mut all[number];
        let mut is_empty = false;
        for _ in 0..BATCHES {
            let most = self.quota.datagrams();
            if most == 0 {
                break;
            }
            self.read_clock();
            let (mut queries, mut joined) = (0, 0);
            let received = exchange.receiver.receive(0, most, |arrived| {
                let of_clients = self.on_arrived(number, destinations, arrived);
                queries += of_clients;
                joined = joined.max(of_clients);
            });
            self.quota.record_batch(queries, joined);
            // A removed interface delivers nothing more.
            is_empty = received.unwrap_or(0) < most;
            if is_empty {
                break;
            }
        }
        self.rings = all;
        is_empty
    }

    /// Processes a datagram that arrived over AF_XDP. Returns the number of client queries in it.
    #[inline]
    fn on_arrived(
        &mut self,
        rings: usize,
        destinations: &Destinations,
        arrived: &Arrived<'_>,
    ) -> usize {
        let (from, to) = (arrived.source, arrived.destination);
        match destinations.owner_of(to) {
            // As on sockets: no host sends from port 0.
            DatagramOwner::Clients(_) if from.port() == 0 => return 1,
            DatagramOwner::Clients(endpoint) => {
                let (rings, link) = (rings as u16, arrived.link);
                let past = Xdp { endpoint: endpoint as u16, rings, link };
                let client = Client::Xdp(past, Peer { address: from, local: Some(to.ip()) });
                let mut queries = 0;
                for message in destinations.messages(arrived) {
                    self.on_query(&client, message);
                    queries += 1;
                }
                return queries;
            }
            DatagramOwner::Port(worker, port) if worker == self.id => {
                self.on_answers(port, from, to, arrived.bytes, destinations.may_be_joined(arrived));
            }
            DatagramOwner::Port(worker, port) if destinations.is_asked(from, to) => {
                let inbox = &self.shared.worker_inboxes[worker.0];
                let may_be_joined = destinations.may_be_joined(arrived);
                let is_posted = inbox.post_answer(port, from, to, arrived.bytes, may_be_joined);
                self.undelivered += u64::from(!is_posted);
            }
            DatagramOwner::Port(..) | DatagramOwner::ClosedPort => {
                self.shared.metrics().worker(self.id).count(Count::UpstreamStray);
            }
        }
        0
    }

    /// Processes a datagram received over AF_XDP for an upstream port, which may have been closed
    /// in the meantime. If the datagram may consist of several joined datagrams, these are
    /// processed up to the first one that is not an expected answer. An attacker therefore has one
    /// guess per datagram (RFC 5452 §4), as on sockets.
    #[inline]
    fn on_answers(
        &mut self,
        port: PortId,
        from: SocketAddr,
        to: SocketAddr,
        octets: &[u8],
        may_be_joined: bool,
    ) {
        for bytes in xdp::messages(octets, may_be_joined) {
            let outside = self.resolver.outside();
            if !outside.ports.is_for(port, from, to) {
                return self.shared.metrics().worker(self.id).count(Count::UpstreamStray);
            }
            outside.report_response(port, bytes);
            let mut is_expected = false;
            self.resolve(|resolver| is_expected = resolver.on_datagram(port, bytes));
            if !is_expected {
                break;
            }
        }
    }

    /// Reads up to [`MESSAGES`] messages of other threads from the worker's inbox. Returns true if no messages are
    /// left.
    pub(super) fn read_inbox(&mut self) -> bool {
        self.shared.worker_inboxes[self.id.0].alarm.reset();
        for _ in 0..MESSAGES {
            let Ok(message) = self.inbox.try_recv() else { return true };
            match message {
                WorkerMessage::Query { bytes, client } => self.on_query(&client, &bytes),
                WorkerMessage::Explain { bytes, client, trace } => {
                    self.on_explain(client, &bytes, trace);
                }
                WorkerMessage::TcpAnswer { fetch, message } => {
                    self.resolve(|resolver| resolver.on_tcp(fetch, message));
                }
                WorkerMessage::Answer { port, from, to, bytes, may_be_joined } => {
                    self.shared.worker_inboxes[self.id.0].answer_taken();
                    self.on_answers(port, from, to, &bytes, may_be_joined);
                }
                WorkerMessage::Validation(task, progress) => {
                    self.resolve(|resolver| resolver.on_validation(task, progress));
                }
                WorkerMessage::Completed(key, outcome) => {
                    self.resolve(|resolver| resolver.on_worker_result(&key, outcome));
                }
            }
        }
        // The remaining messages are read in the next iteration of the event loop.
        self.shared.worker_inboxes[self.id.0].alarm.ring();
        false
    }

    /// Sends the queries and replies of this iteration of the event loop, and updates the gauge of waiting queries.
    pub(super) fn flush(&mut self) {
        // If servers refused queries in one round, these queries are sent to other servers in the
        // next round. Timers retry the remaining ones.
        for _ in 0..ROUNDS {
            let refused = self.resolver.outside().ports.flush();
            if refused.is_empty() {
                break;
            }
            for (port, error) in refused {
                self.resolve(|resolver| resolver.on_unreachable(port, &error.into()));
            }
        }
        self.frontend.flush();
        self.flush_rings();
        self.shared
            .metrics()
            .worker(self.id)
            .in_flight
            .store(self.jobs.len() as u64, Ordering::Relaxed);
    }

    /// Sends the queued AF_XDP packets, and counts lost datagrams.
    fn flush_rings(&mut self) {
        let metrics = self.shared.metrics().worker(self.id);
        for (number, rings) in self.rings.iter_mut().enumerate() {
            let questions = self.resolver.outside().ports.ways().outbox(number);
            let (lost, is_gone) = rings.send([questions, self.frontend.outbox(number)]);
            metrics.add(Count::RingsLostOut, lost);
            if is_gone && self.resolver.outside().ports.ways().give_up(number) {
                tracing::warn!(
                    "interface {} was removed: upstream queries use the network stack until a restart",
                    rings.name()
                );
            }
        }
        if !self.rings.is_empty() && self.now >= self.next_loss_check {
            self.next_loss_check = self.now + LOSSES_EACH;
            // If the kernel reports no value, the previous value is kept.
            let lost: io::Result<u64> = self.rings.iter().map(Rings::drops).sum();
            if let Ok(lost) = lost {
                metrics.set(Count::RingsLostIn, lost + self.undelivered);
            }
        }
    }
}
