//! What sender and receiver of a pair have in common: their ports, and what others may know of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use net::socket::Endpoint;

use super::plan::TrialPlan;

/// What a running trial can be asked about from another thread; a second or so behind at most.
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
    /// For a trial of `plan`.
    pub fn new(plan: &TrialPlan) -> Arc<Progress> {
        Progress::until(plan, Arc::default())
    }

    /// For a trial of `plan` that ends before its time when `stop` is set.
    pub fn until(plan: &TrialPlan, stop: Arc<AtomicBool>) -> Arc<Progress> {
        Arc::new(Progress {
            sent: AtomicU64::new(0),
            pairs: (0..plan.threads).map(|_| PairProgress::default()).collect(),
            stop,
        })
    }

    /// Set when the trial is to end before its time.
    pub(super) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Whether the trial is to end before its time.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Queries sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Valid replies so far.
    pub fn valid(&self) -> u64 {
        self.pairs.iter().map(|s| s.valid.load(Ordering::Relaxed)).sum()
    }

    /// Queries whose outcome is known.
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

/// The source ports of a pair.
pub(super) struct Ports {
    /// The sockets that queries leave from, one for each port: connected to the server, or bound to
    /// all addresses of this host where queries leave from many ([`super::sources`]).
    pub(super) asking: Vec<Endpoint>,
    /// The sockets that catch what others send to the ports of connected ones.
    pub(super) strays: Vec<Endpoint>,
}
