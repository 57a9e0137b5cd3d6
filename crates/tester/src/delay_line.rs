//! Delayed replies: a queue in the order of due times, and a thread that sends each reply when it is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use net::clock;
use net::socket::Endpoint;
use units::Nanos;

/// Maximum number of waiting replies; further replies are dropped, as on a real network link.
const CAPACITY: usize = 1 << 20;

/// Range of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Minimum delay.
    pub min: Nanos,
    /// Maximum delay. Delays are uniformly distributed between `min` and `max`.
    pub max: Nanos,
}

impl Delay {
    /// No delay.
    pub const NONE: Delay = Delay { min: Nanos(0), max: Nanos(0) };

    /// True if there is no delay.
    pub fn is_none(&self) -> bool {
        self.max == Nanos(0)
    }

    /// Draws a random delay.
    pub fn draw(&self, rng: &mut impl rand::Rng) -> Nanos {
        use rand::RngExt;
        if self.min >= self.max {
            self.min
        } else {
            Nanos(rng.random_range(self.min.0..=self.max.0))
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Nanos,
    /// Sequence number, which keeps replies with equal due times in order.
    number: u64,
    to: SocketAddr,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Queue {
    heap: BinaryHeap<Reverse<Waiting>>,
    next: u64,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Sends replies at their due times from the socket that received the queries. Dropping this value discards the replies
/// that have not been sent.
pub(crate) struct DelayLine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl DelayLine {
    /// Creates a delay line that sends its replies from the socket `endpoint`.
    pub(crate) fn new(endpoint: Arc<Endpoint>) -> DelayLine {
        let shared = Arc::new(Shared::default());
        let line = Arc::clone(&shared);
        let thread = thread::spawn(move || deliver(&line, &endpoint));
        DelayLine { shared, thread: Some(thread) }
    }

    /// Sends the reply `bytes` to the address `to` at the time `due` (monotonic clock).
    pub(crate) fn send_at(&self, due: Nanos, to: SocketAddr, bytes: &[u8]) {
        // The other thread cannot panic, so the lock is never poisoned.
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.heap.len() >= CAPACITY {
            return;
        }
        let number = queue.next;
        queue.next += 1;
        let is_first = queue.heap.peek().is_none_or(|Reverse(first)| due < first.due);
        queue.heap.push(Reverse(Waiting { due, number, to, bytes: bytes.to_vec() }));
        drop(queue);
        if is_first {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn deliver(shared: &Shared, endpoint: &Endpoint) {
    clock::use_exact_timers();
    let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
    while !queue.closed {
        let wait = queue.heap.peek().map(|Reverse(first)| first.due.since(clock::now()));
        queue = match wait {
            None => shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            Some(Nanos(0)) => {
                let Some(Reverse(reply)) = queue.heap.pop() else { continue };
                drop(queue);
                // An error means that the client no longer listens, so it is ignored.
                let _ = endpoint.send_to(&reply.bytes, reply.to);
                shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
            }
            Some(wait) => {
                shared
                    .changed
                    .wait_timeout(queue, wait.into())
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::batch::{ReceiveBatch, Wait};

    #[test]
    fn replies_leave_in_the_order_of_their_due_times() {
        let server =
            Arc::new(Endpoint::listen("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0));
        let (client, _strays) = Endpoint::client_pair(server.local_address().unwrap(), 0).unwrap();
        client.set_receive_timeout(testbed::LAST_RESORT).unwrap();
        let mut to = client.local_address().unwrap();
        to.set_ip("127.0.0.1".parse().unwrap());
        let line = DelayLine::new(server);
        let now = clock::now();
        for (name, ms) in [(b"c", 40), (b"a", 10), (b"b", 20)] {
            line.send_at(now + Nanos::from_millis(ms), to, name);
        }
        let mut batch = ReceiveBatch::new(512);
        let mut order = Vec::new();
        while order.len() < 3 {
            assert!(batch.receive(&client, Wait::ForFirst).unwrap() > 0, "timeout");
            order.extend(batch.iter().map(|d| d.bytes[0]));
        }
        assert_eq!(order, b"abc");
        assert!(clock::now() >= now + Nanos::from_millis(40));
    }
}
