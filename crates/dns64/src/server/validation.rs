//! Threads that check DNSSEC signatures, so that workers never wait for a signature.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use dnssec::Progress;
use net::clock;
use nix::time::{ClockId, clock_gettime};
use units::Nanos;

use crate::guard::{self, guard_thread};
use crate::metrics::ValidationMetrics;
use crate::resolver::outside::ValidationTask;
use crate::shares::Slots;
use crate::shares::client::ClientId;
use crate::shares::counts::Counts;
use crate::shares::fair_queue::FairQueue;

/// Maximum number of validations that wait for a thread. A step usually takes less than 0.2 ms, so that the wait is at
/// most 50 ms.
const MOST_WAITING: usize = 256;
/// Maximum CPU time for the validation of one answer.
const MOST_TIME: Duration = Duration::from_millis(50);
/// Number of validations that a thread runs at the same time.
const ONE: Slots = Slots { taken: 0, most: 1 };

/// Queues of the validation threads.
#[derive(Default)]
pub(super) struct ValidationThreads {
    queues: Vec<Arc<Queue<ValidationTask>>>,
}

/// Queues whose threads have not started yet.
pub(super) struct Queues(Vec<Arc<Queue<ValidationTask>>>);

/// Validations that wait for one thread. The places and the CPU time are divided fairly among the networks of clients
/// ([`crate::shares`]), because the validation of a hostile zone can take much more time than usual.
struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    /// Signals that a validation waits, or that the queue is closed.
    changed: Condvar,
    metrics: Arc<ValidationMetrics>,
}

struct Waiting<T> {
    tasks: FairQueue<(ClientId, T)>,
    /// Places in use by waiting validations.
    places: Counts,
    count: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    fn new(metrics: &Arc<ValidationMetrics>) -> Queue<T> {
        let (tasks, places) = (FairQueue::default(), Counts::default());
        let waiting = Waiting { tasks, places, count: 0, is_closed: false };
        let metrics = Arc::clone(metrics);
        Queue { waiting: Mutex::new(waiting), changed: Condvar::new(), metrics }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a validation of a client. Returns false if too many validations wait, or too many of this client.
    fn submit(&self, client: ClientId, task: T) -> bool {
        let mut waiting = self.lock();
        let slots = Slots { taken: waiting.count, most: MOST_WAITING };
        if slots.free() == 0 || !waiting.places.admit(0, client, slots) {
            return false;
        }
        waiting.places.enter(0, client);
        waiting.count += 1;
        self.metrics.waiting.fetch_add(1, Ordering::Relaxed);
        waiting.tasks.wait(client, (client, task));
        drop(waiting);
        self.changed.notify_one();
        true
    }

    /// Waits for the next validation. Returns `None` if the queue is closed.
    fn next(&self) -> Option<T> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some((client, task)) = waiting.tasks.take(ONE) {
                waiting.places.leave(0, client);
                waiting.count -= 1;
                self.metrics.waiting.fetch_sub(1, Ordering::Relaxed);
                // Networks take turns, regardless of the validations that have ended.
                waiting.tasks.give_back(client);
                return Some(task);
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl ValidationThreads {
    /// Returns the queues of `count` threads.
    pub(super) fn new(
        count: usize,
        metrics: &Arc<ValidationMetrics>,
    ) -> (ValidationThreads, Queues) {
        let queues: Vec<_> = (0..count).map(|_| Arc::new(Queue::new(metrics))).collect();
        (ValidationThreads { queues: queues.clone() }, Queues(queues))
    }

    /// Passes a validation to a thread. All steps of a validation go to the same thread. Returns false if too many
    /// validations wait for this thread.
    pub(super) fn submit(&self, task: ValidationTask) -> bool {
        let number = task.worker.0 + task.fetch.index as usize;
        let queue = self.queues.get(number % self.queues.len().max(1));
        queue.is_some_and(|queue| queue.submit(task.client, task))
    }
}

impl Drop for ValidationThreads {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.close());
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
        for (number, queue) in self.0.into_iter().enumerate() {
            let deliver = deliver.clone();
            thread::Builder::new()
                .name(format!("validator-{number}"))
                .spawn(move || guard_thread(|| run(&queue, deliver)))?;
        }
        Ok(())
    }
}

fn run(queue: &Queue<ValidationTask>, deliver: impl Fn(ValidationTask, Option<Progress>) -> bool) {
    while let Some(mut task) = queue.next() {
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
        queue.metrics.nanos.fetch_add(used.as_nanos() as u64, Ordering::Relaxed);
        if !deliver(task, progress.ok()) {
            return;
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> ClientId {
        ClientId::from_address([192, 0, last, 1].into())
    }

    #[test]
    fn a_flood_neither_blocks_nor_delays_others() {
        let metrics = Arc::default();
        let queue = Queue::new(&metrics);
        let admitted = (0..2 * MOST_WAITING).filter(|_| queue.submit(client(1), 1)).count();
        assert!(admitted > MOST_WAITING / 2 && admitted < MOST_WAITING, "{admitted}");
        for _ in 0..4 {
            assert!(queue.submit(client(2), 2));
        }
        let order: Vec<u8> = (0..8).filter_map(|_| queue.next()).collect();
        assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 2]);
        let rest = (0..admitted - 4).filter_map(|_| queue.next()).count();
        assert_eq!(rest, admitted - 4);
        assert_eq!(metrics.waiting.load(Ordering::Relaxed), 0);
        let waiting = queue.lock();
        assert!(waiting.count == 0 && waiting.tasks.is_empty() && waiting.places.is_empty());
    }

    #[test]
    fn a_thread_ends_with_its_queue() {
        let (threads, queues) = ValidationThreads::new(1, &Arc::default());
        let queue = Arc::clone(&queues.0[0]);
        let thread = thread::spawn(move || queue.next().is_none());
        drop(threads);
        assert!(thread.join().unwrap());
    }
}
