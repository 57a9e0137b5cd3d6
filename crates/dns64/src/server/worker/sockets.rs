//! What a worker reads in a turn, and what it sends at its end.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use net::batch::{BATCH, ReceiveBatch, Wait};

use super::Worker;
use crate::resolver::upstreams::ports::PortId;
use crate::server::mail::Mail;
use crate::transport::client::Client;

/// Batches that are read from an upstream's socket before the others have their turn.
const BATCHES: usize = 4;

impl Worker {
    pub(super) fn read_clients(&mut self, number: usize, batch: &mut ReceiveBatch) {
        self.intake.begin();
        loop {
            let most = self.intake.datagrams();
            if most == 0 {
                break;
            }
            let endpoint = &self.frontend.replies().endpoints()[number];
            // An error is the ICMP message of a client that has gone.
            let received = batch.receive_up_to(most, endpoint, Wait::Dont).unwrap_or(0);
            self.look_at_the_clock();
            let (mut queries, mut joined) = (0, 0);
            for i in 0..received {
                let before = queries;
                // No host sends from port 0: such a datagram is forged, and the kernel would refuse
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
            self.intake.took(queries, joined);
            if received < most {
                break;
            }
        }
    }

    pub(super) fn read_upstream(&mut self, port: PortId, batch: &mut ReceiveBatch) {
        for _ in 0..BATCHES {
            let Some(endpoint) = self.resolver.outside().ports.endpoint(port) else { return };
            match batch.receive(endpoint, Wait::Dont) {
                Ok(received) => {
                    self.look_at_the_clock();
                    for i in 0..received {
                        for datagram in batch.get(i).segments() {
                            self.resolver.outside().tell_response(port, datagram);
                            self.resolve(|resolver| resolver.on_datagram(port, datagram));
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

    pub(super) fn read_inbox(&mut self) {
        self.shared.mailboxes[self.id.0].alarm.reset();
        while let Ok(mail) = self.inbox.try_recv() {
            match mail {
                Mail::Query { bytes, client } => self.on_query(&client, &bytes),
                Mail::Explain { bytes, client, trace } => self.on_explain(client, &bytes, trace),
                Mail::TcpAnswer { fetch, message } => {
                    self.resolve(|resolver| resolver.on_tcp(fetch, message));
                }
                Mail::Landed(key, outcome) => {
                    self.resolve(|resolver| resolver.on_elsewhere(&key, outcome));
                }
            }
        }
    }

    /// Sends what has come together in this turn, and shows what waits.
    pub(super) fn flush(&mut self) {
        let refused = self.resolver.outside().ports.flush();
        if !refused.is_empty() {
            for port in refused {
                self.resolve(|resolver| {
                    resolver.on_unreachable(port, &ErrorKind::ConnectionRefused.into());
                });
            }
            // This sends the questions that other servers are asked instead. If these refuse as
            // well, timers find that out.
            self.resolver.outside().ports.flush();
        }
        self.frontend.flush();
        self.shared
            .metrics()
            .worker(self.id)
            .in_flight
            .store(self.frontend.waiting() as u64, Ordering::Relaxed);
    }
}
