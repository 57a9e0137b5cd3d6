//! Threads that check DNSSEC signatures, so that workers never wait for a signature.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use dnssec::Progress;
use net::clock;
use nix::time::{ClockId, clock_gettime};
use units::Nanos;

use crate::guard::{self, guard_thread};
use crate::metrics::ValidationMetrics;
use crate::resolver::outside::ValidationTask;

/// Maximum number of validations that wait for a thread. A step usually takes less than 0.2 ms, so that the wait is at
/// most 50 ms.
const MOST_WAITING: usize = 256;
/// Maximum CPU time for the validation of one answer.
const MOST_TIME: Duration = Duration::from_millis(50);

/// Queues of the validation threads.
#[derive(Debug)]
pub(super) struct ValidationThreads {
    queues: Vec<SyncSender<ValidationTask>>,
    metrics: Arc<ValidationMetrics>,
}

/// Receiving sides of the queues, before their threads have started.
pub(super) struct Queues {
    receivers: Vec<Receiver<ValidationTask>>,
    metrics: Arc<ValidationMetrics>,
}

impl ValidationThreads {
    /// Returns the queues of `count` threads.
    pub(super) fn new(
        count: usize,
        metrics: &Arc<ValidationMetrics>,
    ) -> (ValidationThreads, Queues) {
        let (queues, receivers) = (0..count).map(|_| sync_channel(MOST_WAITING)).unzip();
        let metrics = || Arc::clone(metrics);
        (ValidationThreads { queues, metrics: metrics() }, Queues { receivers, metrics: metrics() })
    }

    /// Passes a validation to a thread. All steps of a validation go to the same thread. Returns false if too many
    /// validations wait for this thread.
    pub(super) fn submit(&self, task: ValidationTask) -> bool {
        let number = task.worker.0 + task.fetch.index as usize;
        let queue = self.queues.get(number % self.queues.len().max(1));
        let waiting = &self.metrics.waiting;
        waiting.fetch_add(1, Ordering::Relaxed);
        let is_accepted = queue.is_some_and(|queue| queue.try_send(task).is_ok());
        if !is_accepted {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
        is_accepted
    }
}

impl Queues {
    /// Starts the threads. Each step of a validation ends with a call of `deliver`, which returns false if the server has
    /// ended.
    ///
    /// # Errors
    /// Returns an error if the system cannot create a thread.
    pub(super) fn start(
        self,
        deliver: impl Fn(ValidationTask, Option<Progress>) -> bool + Clone + Send + 'static,
    ) -> io::Result<()> {
        for (number, queue) in self.receivers.into_iter().enumerate() {
            let (deliver, metrics) = (deliver.clone(), Arc::clone(&self.metrics));
            thread::Builder::new()
                .name(format!("validator-{number}"))
                .spawn(move || guard_thread(|| run(&queue, &metrics, deliver)))?;
        }
        Ok(())
    }
}

fn run(
    queue: &Receiver<ValidationTask>,
    metrics: &ValidationMetrics,
    deliver: impl Fn(ValidationTask, Option<Progress>) -> bool,
) {
    while let Ok(mut task) = queue.recv() {
        metrics.waiting.fetch_sub(1, Ordering::Relaxed);
        let (begun, spent) = (cpu_time(), task.spent);
        let used = || cpu_time().saturating_sub(begun);
        let is_over = || spent + used() > MOST_TIME;
        let now = clock::wall().0 / Nanos::SECOND.0;
        let ValidationTask { validation, validator, .. } = &mut task;
        let progress = guard::catch(|| validation.step(validator, now, &is_over));
        if let Err(panic) = &progress {
            tracing::error!("defect in the validation of an answer: {panic}");
        }
        let used = used();
        task.spent += used;
        metrics.nanos.fetch_add(used.as_nanos() as u64, Ordering::Relaxed);
        if !deliver(task, progress.ok()) {
            return;
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
