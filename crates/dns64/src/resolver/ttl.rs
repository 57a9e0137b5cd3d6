//! How long answers are kept.

use std::time::Duration;

/// How long a client waits for a question to be answered before it gets an answer whose time is
/// over, where there is one: leaves 50 ms of the 1.8 s of RFC 8767 §5 for timers and threads.
pub(crate) const STALE_AFTER: Duration = Duration::from_millis(1_750);

/// Bounds of the time for which answers are kept and served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TtlLimits {
    /// At least this, seconds.
    pub min: u32,
    /// At most this, seconds.
    pub max: u32,
    /// Negative answers at most this, seconds (RFC 2308 §5 advises one to three hours).
    pub negative_max: u32,
    /// Failures this long at first, at least 1 second (RFC 9520 §3.2; item 38).
    pub failure: u32,
    /// Failures that are repeated this long at the most, 300 seconds at the most (RFC 9520 §3.2).
    pub failure_max: u32,
    /// Answers that have run out are kept this much longer, to serve while all upstreams fail
    /// (RFC 8767).
    pub stale: Option<Duration>,
    /// Such answers are served at once, and renewed behind that, instead of when a client has waited
    /// for [`STALE_AFTER`] (RFC 8767 §5 leaves that to the operator).
    pub stale_at_once: bool,
    /// Answers that are asked for often are renewed before their time is over.
    pub prefetch: bool,
}

impl Default for TtlLimits {
    fn default() -> TtlLimits {
        TtlLimits {
            min: 0,
            max: 86_400,
            negative_max: 3_600,
            failure: 5,
            failure_max: 60,
            stale: None,
            stale_at_once: false,
            prefetch: false,
        }
    }
}

impl TtlLimits {
    /// How long a failure is remembered, seconds, before which the question has failed `repeats`
    /// times in a row: twice as long each time (RFC 9520 §3.2).
    #[inline]
    pub(crate) fn failure_after(&self, repeats: u8) -> u32 {
        let doubled = u64::from(self.failure) << repeats.min(32);
        u32::try_from(doubled).unwrap_or(u32::MAX).min(self.failure_max.max(self.failure))
    }
}
