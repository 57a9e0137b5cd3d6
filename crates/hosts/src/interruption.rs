//! The user's request to stop, shared by all parts of a campaign that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Number of stop requests: after the first the campaign ends in order, after the second at once.
/// Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Interruption(Arc<AtomicU32>);

impl Interruption {
    /// Creates the state without a request.
    pub fn new() -> Interruption {
        Interruption::default()
    }

    /// Requests the end; call it for each signal.
    pub fn request(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// True if the end was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// True after a second request: nothing may be waited for any more.
    pub(crate) fn is_urgent(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }

    /// Sleeps for `time`, or until the end is requested.
    pub fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_requested() && Instant::now() < end {
            thread::sleep(POLL_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_when_the_end_is_asked_for() {
        let interruption = Interruption::new();
        assert!(!interruption.is_requested() && !interruption.is_urgent());
        let other = interruption.clone();
        let asking = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            other.request();
        });
        let begun = Instant::now();
        interruption.sleep(Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(30));
        asking.join().unwrap();
        assert!(interruption.is_requested() && !interruption.is_urgent());
        interruption.request();
        assert!(interruption.is_urgent());
    }
}
