//! Messages to workers, from the TCP thread and from other workers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use dnssec::Progress;
use net::poller::Alarm;

use super::explain::Trace;
use crate::ids::{FetchId, PortId};
use crate::name::Key;
use crate::resolver::outcome::Outcome;
use crate::resolver::outside::{TcpFailure, ValidationTask};
use crate::transport::client::Client;

/// A message to a worker.
pub(super) enum WorkerMessage {
    /// A query received over a TCP connection.
    Query { bytes: Vec<u8>, client: Client },
    /// A query to explain, processed as if sent by a client with this address.
    Explain { bytes: Vec<u8>, client: IpAddr, trace: Box<Trace> },
    /// The result of an upstream query over TCP.
    TcpAnswer { fetch: FetchId, message: Result<Vec<u8>, TcpFailure> },
    /// A datagram for a port of this worker that arrived on the AF_XDP rings of a different worker.
    Answer { port: PortId, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>, may_be_joined: bool },
    /// The result of a step of a validation; `None` if it panicked.
    Validation(ValidationTask, Option<Progress>),
    /// The result of a fetch that another worker performed.
    Completed(Key, Outcome),
}

/// Maximum number of upstream datagrams waiting in an inbox: twice the number that fits into the rings of an AF_XDP
/// queue. All other messages belong to connections or fetches, which are limited elsewhere.
pub(super) const MOST_ANSWERS: usize = 4096;

/// Sending side of a worker's inbox.
pub(super) struct Inbox {
    sender: Sender<WorkerMessage>,
    pub(super) alarm: Arc<Alarm>,
    /// Number of upstream datagrams ([`WorkerMessage::Answer`]) that wait in the inbox.
    answers: AtomicUsize,
}

impl Inbox {
    /// Returns the sending side of an inbox. Messages posted to it are passed to `sender`.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptor left.
    pub(super) fn new(sender: Sender<WorkerMessage>) -> io::Result<Inbox> {
        Ok(Inbox { sender, alarm: Arc::new(Alarm::new()?), answers: AtomicUsize::new(0) })
    }

    /// Posts a datagram from an upstream, and wakes the worker. `may_be_joined` is true if the
    /// datagram may consist of several joined datagrams. Returns false if [`MOST_ANSWERS`]
    /// datagrams already wait. The datagram is then lost, as with a full socket buffer.
    pub(super) fn post_answer(
        &self,
        port: PortId,
        from: SocketAddr,
        to: SocketAddr,
        octets: &[u8],
        may_be_joined: bool,
    ) -> bool {
        if self.answers.fetch_add(1, Ordering::Relaxed) >= MOST_ANSWERS {
            self.answers.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.post(WorkerMessage::Answer { port, from, to, bytes: octets.to_vec(), may_be_joined });
        true
    }

    /// Records that the worker has removed an upstream datagram from the inbox.
    pub(super) fn answer_taken(&self) {
        self.answers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Posts a message and wakes the worker.
    pub(super) fn post(&self, inbox: WorkerMessage) {
        // Sending fails only after the worker has exited. In this case, the process is about to
        // exit.
        if self.sender.send(inbox).is_ok() {
            self.alarm.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::ids::ServerId;

    /// Without a limit, a sender that guesses a port of another worker could exhaust the memory.
    #[test]
    fn the_number_of_answers_in_an_inbox_is_bounded() {
        let (sender, messages) = channel();
        let inbox = Inbox::new(sender).unwrap();
        let port = PortId { server: ServerId(0), number: 0 };
        let [from, to] = ["192.0.2.1:53", "192.0.2.2:1053"].map(|text| text.parse().unwrap());
        let post = |count: usize| -> usize {
            (0..count).filter(|_| inbox.post_answer(port, from, to, b"an answer", false)).count()
        };
        assert_eq!(post(3 * MOST_ANSWERS), MOST_ANSWERS);
        // Other messages are never dropped.
        inbox.post(WorkerMessage::Query { bytes: Vec::new(), client: test_client() });
        assert_eq!(messages.try_iter().count(), MOST_ANSWERS + 1);
        for _ in 0..7 {
            inbox.answer_taken();
        }
        assert_eq!(post(10), 7);
    }

    fn test_client() -> Client {
        Client::Udp(0, net::batch::Peer { address: "192.0.2.1:1".parse().unwrap(), local: None })
    }
}
