//! The user's request to stop a campaign. All waiting functions of the campaign check this request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which [`Interruption::sleep`] checks for a stop request.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Counter of the user's requests to stop. After the first request, the campaign ends in an orderly way. After the
/// second request, it ends at once. Clones share the same counter.
#[derive(Clone, Debug, Default)]
pub struct Interruption(Arc<AtomicU32>);

impl Interruption {
    /// Creates a counter of stop requests that starts at 0.
    pub fn new() -> Interruption {
        Interruption::default()
    }

    /// Adds a stop request. Call this function once for each signal that requests a stop.
    pub fn request(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// True if a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// True after a second stop request. All waits must then end immediately.
    pub(crate) fn is_urgent(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }

    /// Sleeps for `time`, or until a stop is requested.
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
