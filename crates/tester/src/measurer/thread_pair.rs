//! State shared by the sender and the receiver of a pair of threads: their ports and their progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use net::socket::Endpoint;

use super::plan::TrialPlan;

/// Progress of a running trial, readable from another thread. The values are at most about a second old.
pub struct Progress {
    sent: AtomicU64,
    pairs: Vec<PairProgress>,
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct PairProgress {
    valid: AtomicU64,
    decided: AtomicU64,
}

impl Progress {
    /// Creates the counters of a trial of `plan`, all at zero.
    pub fn new(plan: &TrialPlan) -> Arc<Progress> {
        Progress::until(plan, Arc::default())
    }

    /// Creates the counters of a trial of `plan`, all at zero. The trial is interrupted when the flag `stop` is set.
    pub fn until(plan: &TrialPlan, stop: Arc<AtomicBool>) -> Arc<Progress> {
        Arc::new(Progress {
            sent: AtomicU64::new(0),
            pairs: (0..plan.threads).map(|_| PairProgress::default()).collect(),
            stop,
        })
    }

    /// Returns the flag that interrupts the trial.
    pub(super) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Returns true if the trial is to be interrupted.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the number of queries sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of valid replies so far.
    pub fn valid(&self) -> u64 {
        self.pairs.iter().map(|s| s.valid.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of queries with a known outcome.
    pub fn decided(&self) -> u64 {
        self.pairs.iter().map(|s| s.decided.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn add_sent(&self, n: u64) {
        self.sent.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn set_received(&self, pair: u16, valid: u64, decided: u64) {
        let progress = &self.pairs[usize::from(pair)];
        progress.valid.store(valid, Ordering::Relaxed);
        progress.decided.store(decided, Ordering::Relaxed);
    }
}

/// The source ports of a pair of threads.
pub(super) struct Ports {
    /// Sending sockets, one for each port. If queries have a single source address, the sockets are connected to the
    /// server. If queries have several source addresses, the sockets are bound to all addresses of this host
    /// ([`super::sources`]).
    pub(super) asking: Vec<Endpoint>,
    /// Sockets for datagrams that arrive at the source ports from senders other than the server. The connected sending
    /// sockets do not accept these datagrams.
    pub(super) unmatched: Vec<Endpoint>,
}
