//! Detection of stalls of this machine's CPUs. Neither the server nor the tester is responsible for the effects of a
//! stall.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use net::affinity::pin_to;
use units::CpuId;

/// Interval between two checks of a CPU.
const NAP: Duration = Duration::from_millis(20);

/// Runs the function `what`. Returns its result, and the longest delay in waking up a thread on one of these CPUs
/// meanwhile. These threads have the priority of the caller, which may be pinned to other CPUs.
pub(crate) fn watched<R>(cpus: &[CpuId], what: impl FnOnce() -> R) -> (R, Duration) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let watch = |cpu| scope.spawn(move || longest_pause(cpu, is_over));
        let watching: Vec<_> = cpus.iter().copied().map(watch).collect();
        let end = StopGuard(is_over);
        let returned = what();
        drop(end);
        let pauses = watching.into_iter().map(|one| one.join().expect("watching does not panic"));
        (returned, pauses.max().unwrap_or_default())
    })
}

/// Guard that ends the watching threads, even if the watched function panics.
struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the longest delay in waking up this thread on the CPU `cpu`, until `is_over` is set.
fn longest_pause(cpu: CpuId, is_over: &AtomicBool) -> Duration {
    // A CPU on which this thread may not run cannot be measured.
    if pin_to(cpu).is_err() {
        return Duration::ZERO;
    }
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let due = Instant::now() + NAP;
        thread::sleep(NAP);
        longest = longest.max(due.elapsed());
    }
    longest
}

#[cfg(test)]
mod tests {
    use net::affinity::allowed_cpus;

    use super::*;

    #[test]
    fn watching_ends_with_the_function() {
        let cpus = allowed_cpus();
        let (returned, pause) = watched(&cpus, || 7);
        assert_eq!(returned, 7);
        assert!(pause < Duration::from_secs(60), "{pause:?}");
        assert!(std::panic::catch_unwind(|| watched(&cpus, || panic!("expected"))).is_err());
    }
}
