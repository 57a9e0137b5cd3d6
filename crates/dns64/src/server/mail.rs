//! Messages to workers, from the thread for TCP and from each other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use net::poller::Alarm;

use super::explain::Trace;
use crate::ids::{FetchId, PortId};
use crate::name::Key;
use crate::resolver::outcome::Outcome;
use crate::resolver::outside::TcpFailure;
use crate::transport::client::Client;

/// A message to a worker.
pub(super) enum Mail {
    /// A query that came over a connection.
    Query { bytes: Vec<u8>, client: Client },
    /// A query, as if a client with this address had sent it, that is to be explained.
    Explain { bytes: Vec<u8>, client: IpAddr, trace: Box<Trace> },
    /// What came of a question to an upstream over TCP.
    TcpAnswer { fetch: FetchId, message: Result<Vec<u8>, TcpFailure> },
    /// A datagram that came past the stack to the rings of another worker, and is for a port of
    /// this one.
    Answer { port: PortId, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>, may_be_joined: bool },
    /// What came of a question that another worker asked.
    Landed(Key, Outcome),
}

/// Datagrams of upstreams that wait in an inbox, at the most: twice as many as the rings of a queue
/// keep. All other mail is about connections and questions, whose numbers are limited.
pub(super) const MOST_ANSWERS: usize = 4096;

/// The inbox of a worker, as others see it.
pub(super) struct Mailbox {
    sender: Sender<Mail>,
    pub(super) alarm: Arc<Alarm>,
    /// How many messages wait that are [`Mail::Answer`].
    answers: AtomicUsize,
}

impl Mailbox {
    /// The one whose mail the other end of this channel gets.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub(super) fn new(sender: Sender<Mail>) -> io::Result<Mailbox> {
        Ok(Mailbox { sender, alarm: Arc::new(Alarm::new()?), answers: AtomicUsize::new(0) })
    }

    /// Puts a datagram of an upstream, which may be several that were joined, into the inbox, and
    /// wakes the worker; false if so many wait there that it is lost, as it would be where a socket's
    /// buffer is full.
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
        self.post(Mail::Answer { port, from, to, bytes: octets.to_vec(), may_be_joined });
        true
    }

    /// An answer has been taken out.
    pub(super) fn took_answer(&self) {
        self.answers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Puts a message into the inbox, and wakes the worker.
    pub(super) fn post(&self, mail: Mail) {
        // Sending fails only when the worker has ended, and then the process is about to end.
        if self.sender.send(mail).is_ok() {
            self.alarm.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::ids::ServerId;

    /// Whoever guesses a port of another worker's could fill the memory otherwise.
    #[test]
    fn an_inbox_takes_so_many_answers_and_no_more() {
        let (sender, inbox) = channel();
        let mailbox = Mailbox::new(sender).unwrap();
        let port = PortId { server: ServerId(0), number: 0 };
        let [from, to] = ["192.0.2.1:53", "192.0.2.2:1053"].map(|text| text.parse().unwrap());
        let post = |count: usize| -> usize {
            (0..count).filter(|_| mailbox.post_answer(port, from, to, b"an answer", false)).count()
        };
        assert_eq!(post(3 * MOST_ANSWERS), MOST_ANSWERS);
        // Other mail is never lost.
        mailbox.post(Mail::Query { bytes: Vec::new(), client: test_client() });
        assert_eq!(inbox.try_iter().count(), MOST_ANSWERS + 1);
        for _ in 0..7 {
            mailbox.took_answer();
        }
        assert_eq!(post(10), 7);
    }

    fn test_client() -> Client {
        Client::Udp(0, net::batch::Peer { address: "192.0.2.1:1".parse().unwrap(), local: None })
    }
}
