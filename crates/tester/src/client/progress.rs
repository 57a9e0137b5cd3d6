//! Progress of a running client, readable from another thread.

use std::sync::atomic::{AtomicU64, Ordering};

use method::records::Counts;

/// Totals of all threads so far, at most a few milliseconds old.
#[derive(Debug, Default)]
pub struct Progress {
    threads: Vec<ThreadSums>,
}

/// Totals of one thread, written only by that thread. The totals have a separate cache line, so that threads do not
/// slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct ThreadSums {
    sent: AtomicU64,
    valid: AtomicU64,
    decided: AtomicU64,
}

impl Progress {
    /// Creates the totals of `threads` threads.
    pub fn new(threads: usize) -> Progress {
        Progress { threads: (0..threads).map(|_| ThreadSums::default()).collect() }
    }

    /// Returns the number of queries sent so far.
    pub fn sent(&self) -> u64 {
        self.sum(|client_thread| &client_thread.sent)
    }

    /// Returns the number of valid responses so far.
    pub fn valid(&self) -> u64 {
        self.sum(|client_thread| &client_thread.valid)
    }

    /// Returns the number of queries with a known outcome.
    pub fn decided(&self) -> u64 {
        self.sum(|client_thread| &client_thread.decided)
    }

    fn sum(&self, of: fn(&ThreadSums) -> &AtomicU64) -> u64 {
        self.threads.iter().map(|client_thread| of(client_thread).load(Ordering::Relaxed)).sum()
    }

    /// Returns the totals of the thread with the given index; `None` if there is no such thread.
    pub(super) fn of(&self, thread: usize) -> Option<&ThreadSums> {
        self.threads.get(thread)
    }
}

impl ThreadSums {
    /// Publishes the thread's totals.
    pub(super) fn set(&self, counts: &Counts) {
        self.sent.store(counts.sent, Ordering::Relaxed);
        self.valid.store(counts.valid, Ordering::Relaxed);
        let decided = counts.valid + counts.late + counts.lost + counts.wrong.total();
        self.decided.store(decided, Ordering::Relaxed);
    }
}
