//! Queues of replies that wait to be written to the connections of clients. The number of waiting octets is limited, because
//! clients could otherwise exhaust memory by requesting long answers without reading them.
//!
//! ```text
//! workers ─► ToStream::send ─┬─► Backlog::replies ─► stream ─► client
//!                            └─► Backlog::refused, if the limits are exceeded
//! ```
//!
//! The length of a reply cannot be predicted from its query. A client that requests many long answers at once and
//! reads them must get all of them. One connection may therefore exceed its own limit ([`MOST_EACH`]) while the total
//! of all connections is below [`MOST`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Number of reply octets that may wait to be written to one connection, regardless of other connections. While more
/// octets are waiting, no query is read from the connection.
pub(crate) const MOST_EACH: usize = 256 << 10;
/// Number of reply octets that may wait to be written to all connections together. While more octets are waiting, a
/// connection is closed if a reply increases its waiting octets above [`MOST_EACH`]. The total is therefore at most
/// this value plus [`MOST_EACH`] per connection.
pub(crate) const MOST: usize = 64 << 20;

/// Number of reply octets that wait to be written to all connections together.
#[derive(Clone, Default)]
pub(crate) struct Backlogs {
    octets: Arc<AtomicUsize>,
}

impl Backlogs {
    /// Creates the queue of replies for a new connection. Returns its sender and its receiver.
    pub(crate) fn connection(&self) -> (ToStream, Backlog) {
        self.multiplexed().queue()
    }

    /// Creates the count of waiting octets for a new connection that has one queue for each query.
    pub(crate) fn multiplexed(&self) -> ConnectionBacklog {
        ConnectionBacklog { counter: Arc::new(Counter { all: self.clone(), ..Counter::default() }) }
    }
}

/// The waiting replies of one connection. If the connection has several queues, their octets are counted together.
#[derive(Clone)]
pub(crate) struct ConnectionBacklog {
    counter: Arc<Counter>,
}

impl ConnectionBacklog {
    /// Creates a queue of replies. Returns its sender and its receiver.
    pub(crate) fn queue(&self) -> (ToStream, Backlog) {
        let (sender, replies) = mpsc::unbounded_channel();
        let counter = Arc::clone(&self.counter);
        (ToStream { sender, counter: Arc::clone(&counter) }, Backlog { replies, counter })
    }
}

/// Number of reply octets that wait to be written to one connection.
#[derive(Default)]
struct Counter {
    octets: AtomicUsize,
    all: Backlogs,
    /// Notification that the number of waiting octets has decreased.
    drained: Notify,
    /// Notification that a reply was refused, because too many octets were waiting.
    refused: Notify,
}

/// Sender of replies to the task that writes them to a connection. One message is sent per query. The message is
/// empty if the query gets no reply.
#[derive(Clone)]
pub(crate) struct ToStream {
    sender: UnboundedSender<QueuedReply>,
    counter: Arc<Counter>,
}

/// Error for a reply that was not passed to its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendError;

impl ToStream {
    /// Returns a sender of replies for a connection that is already closed.
    pub(crate) fn closed() -> ToStream {
        Backlogs::default().connection().0
    }

    /// Queues a message for the connection's writer.
    ///
    /// # Errors
    /// Returns an error if the client has closed the connection. If too many octets are waiting,
    /// returns an error and causes the connection to be closed.
    pub(crate) fn send(&self, mut message: Vec<u8>) -> Result<(), SendError> {
        // The count must equal the allocated memory.
        message.shrink_to_fit();
        let (octets, counter) = (message.len(), &self.counter);
        // `Relaxed` is sufficient because the order relative to other memory accesses is irrelevant.
        let each = counter.octets.fetch_add(octets, Ordering::Relaxed) + octets;
        let all = counter.all.octets.fetch_add(octets, Ordering::Relaxed) + octets;
        let waiting = QueuedReply { message, counter: Arc::clone(counter) };
        if each > MOST_EACH && all > MOST {
            counter.refused.notify_one();
            return Err(SendError);
        }
        self.sender.send(waiting).map_err(|_| SendError)
    }

    /// Returns as soon as the number of reply octets that wait to be written to this connection is at most
    /// [`MOST_EACH`].
    pub(crate) async fn below_limit(&self) {
        while self.counter.octets.load(Ordering::Relaxed) > MOST_EACH {
            self.counter.drained.notified().await;
        }
        // Another task of the connection may be waiting too.
        self.counter.drained.notify_one();
    }
}

/// Receiving end of the queue of replies for a connection.
pub(crate) struct Backlog {
    replies: UnboundedReceiver<QueuedReply>,
    counter: Arc<Counter>,
}

impl Backlog {
    /// Returns the next reply, or `None` if there are no more replies.
    pub(super) async fn next(&mut self) -> Option<QueuedReply> {
        self.replies.recv().await
    }

    /// Returns the receiver of the waiting replies, and the notification that a reply was refused.
    pub(super) fn parts(&mut self) -> (&mut UnboundedReceiver<QueuedReply>, &Notify) {
        (&mut self.replies, &self.counter.refused)
    }
}

/// A reply that waits to be written. Its octets are counted until this value is dropped.
pub(crate) struct QueuedReply {
    message: Vec<u8>,
    counter: Arc<Counter>,
}

impl QueuedReply {
    /// Returns the DNS message of the reply. It is empty if the query gets no reply.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }
}

impl AsRef<[u8]> for QueuedReply {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

impl Drop for QueuedReply {
    fn drop(&mut self) {
        let octets = self.message.len();
        self.counter.all.octets.fetch_sub(octets, Ordering::Relaxed);
        self.counter.octets.fetch_sub(octets, Ordering::Relaxed);
        self.counter.drained.notify_one();
    }
}

#[cfg(test)]
impl Backlogs {
    /// Returns the number of reply octets that wait to be written to all connections together.
    pub(super) fn octets(&self) -> usize {
        self.octets.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum length of a reply.
    const LONG: usize = 65_535;

    #[test]
    fn waiting_octets_are_bounded() {
        let backlogs = Backlogs::default();
        let connections: Vec<_> = (0..100).map(|_| backlogs.connection()).collect();
        let mut refused = 0;
        for (to, _) in &connections {
            refused += (0..64).filter(|_| to.send(vec![0; LONG]).is_err()).count();
            assert!(backlogs.octets() <= MOST + connections.len() * MOST_EACH);
        }
        assert!(refused > 0, "replies of 400 MiB were requested");
        drop(connections);
        assert_eq!(backlogs.octets(), 0);
    }

    #[test]
    fn one_reading_connection_gets_all_replies() {
        let backlogs = Backlogs::default();
        let (to, mut backlog) = backlogs.connection();
        assert!((0..64).all(|_| to.send(vec![0; LONG]).is_ok()));
        for left in (0..64).rev() {
            assert_eq!(backlog.replies.try_recv().unwrap().message().len(), LONG);
            assert_eq!(backlogs.octets(), left * LONG);
        }
    }

    #[test]
    fn closed_connection_counts_nothing() {
        let to = ToStream::closed();
        assert!(to.send(vec![0; LONG]).is_err());
        assert_eq!(to.counter.octets.load(Ordering::Relaxed), 0);
    }
}
