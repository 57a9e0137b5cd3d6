//! The ledger shared by the sender and receiver of a pair: the send time of each query.
//!
//! ```text
//!     swept                               head
//! ──────┼───────────────────────────────────┼──────► query k
//!  done │  outstanding, or kept for late    │ not sent yet
//!       │  replies and duplicates           │
//!       receiver moves it                   sender moves it
//! ```
//!
//! The send times are in a ring buffer, with one slot for each query from `swept` to `head`. For each query, the sender
//! writes the send time, then advances `head`, then sends the packet. The receiver therefore finds the send time of
//! every query that has a reply.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use units::Nanos;

const NOT_SENT: u64 = u64::MAX;

/// Send times of the queries of one pair of threads, shared by its sender and its receiver.
pub(crate) struct Ledger {
    sent: Box<[AtomicU64]>,
    head: AtomicU64,
    swept: AtomicU64,
    finished: AtomicBool,
}

impl Ledger {
    /// Creates a ledger that has slots for at least `capacity` queries.
    pub(crate) fn new(capacity: u64) -> Ledger {
        let len = capacity.next_power_of_two().max(1024) as usize;
        Ledger {
            sent: (0..len).map(|_| AtomicU64::new(0)).collect(),
            head: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            finished: AtomicBool::new(false),
        }
    }

    /// Returns the maximum number of queries that the ledger can contain at the same time.
    pub(crate) fn capacity(&self) -> u64 {
        self.sent.len() as u64
    }

    fn slot(&self, k: u64) -> &AtomicU64 {
        &self.sent[(k & (self.capacity() - 1)) as usize]
    }

    /// Called by the sender. Returns true if the ledger has a slot for each query with an index below `end`.
    #[inline]
    pub(crate) fn has_room(&self, end: u64) -> bool {
        end - self.swept.load(Ordering::Acquire) <= self.capacity()
    }

    /// Called by the sender. Records the send time of query `k`, in nanoseconds since the trial's start.
    #[inline]
    pub(crate) fn stamp(&self, k: u64, sent: Nanos) {
        self.slot(k).store(sent.0, Ordering::Relaxed);
    }

    /// Called by the sender before it sends the queries with an index below `end`. Makes the send times of these
    /// queries visible to the receiver.
    #[inline]
    pub(crate) fn publish(&self, end: u64) {
        self.head.store(end, Ordering::Release);
    }

    /// Called by the sender. Marks query `k` as not sent because of a send error.
    pub(crate) fn withdraw(&self, k: u64) {
        self.slot(k).store(NOT_SENT, Ordering::Release);
    }

    /// Called by the sender. Records that sending has ended.
    pub(crate) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// Called by the receiver. Returns true if sending has ended. If it has, a later call of [`Ledger::head`] returns
    /// the final value.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Called by the receiver. Returns the index below which all queries have been sent, or are about to be sent.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// Called by the receiver. Returns the send time of query `k`, or `None` if query `k` could not be sent. The slot
    /// of query `k` must be in use.
    #[inline]
    pub(crate) fn sent(&self, k: u64) -> Option<Nanos> {
        match self.slot(k).load(Ordering::Acquire) {
            NOT_SENT => None,
            sent => Some(Nanos(sent)),
        }
    }

    /// Called by the receiver. Frees the slots of all queries with an index below `end`.
    pub(crate) fn sweep_to(&self, end: u64) {
        self.swept.store(end, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back_with_sweeping() {
        let ledger = Ledger::new(1000);
        assert_eq!(ledger.capacity(), 1024);
        for k in 0..1024 {
            ledger.stamp(k, Nanos(k * 10));
        }
        ledger.publish(1024);
        assert!(!ledger.has_room(1025));
        assert_eq!((ledger.head(), ledger.sent(7)), (1024, Some(Nanos(70))));
        ledger.sweep_to(1);
        assert!(ledger.has_room(1025));
        ledger.withdraw(5);
        assert_eq!(ledger.sent(5), None);
    }
}
