//! What a running client can be asked about from another thread.

use std::sync::atomic::{AtomicU64, Ordering};

use method::records::Counts;

/// The sums of all threads so far, some milliseconds behind at most.
#[derive(Debug, Default)]
pub struct Progress {
    threads: Vec<ThreadSums>,
}

/// The sums of one thread, which alone writes them. On a cache line of its own, so that no other
/// thread waits for it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct ThreadSums {
    sent: AtomicU64,
    valid: AtomicU64,
    decided: AtomicU64,
}

impl Progress {
    /// For so many threads.
    pub fn new(threads: usize) -> Progress {
        Progress { threads: (0..threads).map(|_| ThreadSums::default()).collect() }
    }

    /// Queries sent so far.
    pub fn sent(&self) -> u64 {
        self.sum(|lane| &lane.sent)
    }

    /// Valid answers so far.
    pub fn valid(&self) -> u64 {
        self.sum(|lane| &lane.valid)
    }

    /// Queries whose outcome is known.
    pub fn decided(&self) -> u64 {
        self.sum(|lane| &lane.decided)
    }

    fn sum(&self, of: fn(&ThreadSums) -> &AtomicU64) -> u64 {
        self.threads.iter().map(|lane| of(lane).load(Ordering::Relaxed)).sum()
    }

    /// Where a thread tells its sums; none for a thread that it was not made for.
    pub(super) fn of(&self, thread: usize) -> Option<&ThreadSums> {
        self.threads.get(thread)
    }
}

impl ThreadSums {
    /// Takes over the sums of the thread.
    pub(super) fn set(&self, counts: &Counts) {
        self.sent.store(counts.sent, Ordering::Relaxed);
        self.valid.store(counts.valid, Ordering::Relaxed);
        let decided = counts.valid + counts.late + counts.lost + counts.wrong.total();
        self.decided.store(decided, Ordering::Relaxed);
    }
}
