//! Replies that wait to be written to connections. Their octets are bounded, so that clients that
//! ask for long answers and read none of them do not take the memory.
//!
//! ```text
//! workers ─► ToStream::send ─┬─► Backlog::replies ─► stream ─► client
//!                            └─► Backlog::refused, where too much waits already
//! ```
//!
//! A query does not tell how long its reply will be, and a client that asks for many long ones at once
//! and reads them must get them all. So one connection may have more than its share as long as all
//! together have not too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Octets that may wait on one connection whatever waits on the others. While more of them wait, no
/// query is read from it.
pub(crate) const MOST_EACH: usize = 256 << 10;
/// Octets that may wait on all connections together. While more of them wait, a reply that takes a
/// connection beyond [`MOST_EACH`] closes it. So never more wait than this and [`MOST_EACH`] for each
/// connection.
pub(crate) const MOST: usize = 64 << 20;

/// What waits on all connections together.
#[derive(Clone, Default)]
pub(crate) struct Backlogs {
    octets: Arc<AtomicUsize>,
}

impl Backlogs {
    /// A new connection: where its replies go, and where they come out.
    pub(crate) fn connection(&self) -> (ToStream, Backlog) {
        let (sender, replies) = mpsc::unbounded_channel();
        let counter = Arc::new(Counter { all: self.clone(), ..Counter::default() });
        (ToStream { sender, counter: Arc::clone(&counter) }, Backlog { replies, counter })
    }
}

/// What waits on one connection.
#[derive(Default)]
struct Counter {
    octets: AtomicUsize,
    all: Backlogs,
    /// Told when less waits.
    lessened: Notify,
    /// Told when a reply was refused.
    refused: Notify,
}

/// The way to a connection's writer: it gets one message for each query, empty if there is no
/// reply.
#[derive(Clone)]
pub(crate) struct ToStream {
    sender: UnboundedSender<Waiting>,
    counter: Arc<Counter>,
}

/// A reply did not go to its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsent;

impl ToStream {
    /// The way to a connection that is no more.
    pub(crate) fn closed() -> ToStream {
        Backlogs::default().connection().0
    }

    /// Lets a message wait for the connection's writer.
    ///
    /// # Errors
    /// If the client has gone, or so much waits that its connection is closed.
    pub(crate) fn send(&self, mut message: Vec<u8>) -> Result<(), Unsent> {
        // What is counted is what it takes.
        message.shrink_to_fit();
        let (octets, counter) = (message.len(), &self.counter);
        // These only count: in which order others see them does not matter.
        let each = counter.octets.fetch_add(octets, Ordering::Relaxed) + octets;
        let all = counter.all.octets.fetch_add(octets, Ordering::Relaxed) + octets;
        let waiting = Waiting { message, counter: Arc::clone(counter) };
        if each > MOST_EACH && all > MOST {
            counter.refused.notify_one();
            return Err(Unsent);
        }
        self.sender.send(waiting).map_err(|_| Unsent)
    }

    /// Waits until no more waits than [`MOST_EACH`]. Only one task may do so.
    pub(crate) async fn caught_up(&self) {
        while self.counter.octets.load(Ordering::Relaxed) > MOST_EACH {
            self.counter.lessened.notified().await;
        }
    }
}

/// Where a connection's replies come out.
pub(crate) struct Backlog {
    replies: UnboundedReceiver<Waiting>,
    counter: Arc<Counter>,
}

impl Backlog {
    /// The replies that wait, and what is told when one was refused.
    pub(super) fn parts(&mut self) -> (&mut UnboundedReceiver<Waiting>, &Notify) {
        (&mut self.replies, &self.counter.refused)
    }
}

/// A reply that counts while it lives.
pub(crate) struct Waiting {
    message: Vec<u8>,
    counter: Arc<Counter>,
}

impl Waiting {
    /// The message; empty if the query gets none.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let octets = self.message.len();
        self.counter.all.octets.fetch_sub(octets, Ordering::Relaxed);
        self.counter.octets.fetch_sub(octets, Ordering::Relaxed);
        self.counter.lessened.notify_one();
    }
}

#[cfg(test)]
impl Backlogs {
    /// Octets that wait on all connections together.
    pub(super) fn octets(&self) -> usize {
        self.octets.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest reply.
    const LONG: usize = 65_535;

    #[test]
    fn what_waits_is_bounded_however_many_do_not_read() {
        let backlogs = Backlogs::default();
        let connections: Vec<_> = (0..100).map(|_| backlogs.connection()).collect();
        let mut refused = 0;
        for (to, _) in &connections {
            refused += (0..64).filter(|_| to.send(vec![0; LONG]).is_err()).count();
            assert!(backlogs.octets() <= MOST + connections.len() * MOST_EACH);
        }
        assert!(refused > 0, "they had asked for 400 MiB");
        drop(connections);
        assert_eq!(backlogs.octets(), 0);
    }

    #[test]
    fn one_connection_may_have_all_that_it_asked_for() {
        let backlogs = Backlogs::default();
        let (to, mut backlog) = backlogs.connection();
        assert!((0..64).all(|_| to.send(vec![0; LONG]).is_ok()));
        for left in (0..64).rev() {
            assert_eq!(backlog.replies.try_recv().unwrap().message().len(), LONG);
            assert_eq!(backlogs.octets(), left * LONG);
        }
    }

    #[test]
    fn a_connection_that_is_no_more_counts_nothing() {
        let to = ToStream::closed();
        assert!(to.send(vec![0; LONG]).is_err());
        assert_eq!(to.counter.octets.load(Ordering::Relaxed), 0);
    }
}
