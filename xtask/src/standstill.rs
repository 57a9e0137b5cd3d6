//! Whether this machine's CPUs ran. What a machine that stands still does to a server is neither the
//! server's fault nor the tester's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use method::units::CpuId;
use net::affinity::pin_to;

/// How often it is looked whether a CPU runs.
const NAP: Duration = Duration::from_millis(20);

/// Does something. Returns what it returns, and the longest time by which a thread on one of these
/// CPUs began later than it wanted meanwhile; it is as urgent as the one that asks, which may be
/// pinned elsewhere.
pub(crate) fn watched<R>(cpus: &[CpuId], what: impl FnOnce() -> R) -> (R, Duration) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let watch = |cpu| scope.spawn(move || longest_pause(cpu, is_over));
        let watching: Vec<_> = cpus.iter().copied().map(watch).collect();
        let end = Ending(is_over);
        let returned = what();
        drop(end);
        let pauses = watching.into_iter().map(|one| one.join().expect("watching does not panic"));
        (returned, pauses.max().unwrap_or_default())
    })
}

/// Ends the watching, also when what is watched panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The longest time by which a thread on a CPU began later than it wanted, until the end.
fn longest_pause(cpu: CpuId, is_over: &AtomicBool) -> Duration {
    // Where it may not be there, it does not know.
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
    fn watching_ends_with_what_is_watched() {
        let cpus = allowed_cpus();
        let (returned, pause) = watched(&cpus, || 7);
        assert_eq!(returned, 7);
        assert!(pause < Duration::from_secs(60), "{pause:?}");
        assert!(std::panic::catch_unwind(|| watched(&cpus, || panic!("as it should"))).is_err());
    }
}
