//! Caching times of answers.

use std::time::Duration;

/// Time after which a waiting client gets an expired answer, if there is one. It is 50 ms less than
/// the 1.8 s of RFC 8767 §5, as a margin for timers and threads.
pub(crate) const STALE_AFTER: Duration = Duration::from_millis(1_750);

/// Limits for caching times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TtlLimits {
    /// Minimum caching time of answers with data, in seconds.
    pub min: u32,
    /// Maximum caching time of all answers, in seconds.
    pub max: u32,
    /// Maximum caching time of negative answers, in seconds (RFC 2308 §5 advises one to three hours).
    pub negative_max: u32,
    /// Caching time of a first failure, in seconds; at least 1 (RFC 9520 §3.2).
    pub failure: u32,
    /// Maximum caching time of repeated failures, in seconds; at most 300 (RFC 9520 §3.2).
    pub failure_max: u32,
    /// Time for which expired answers are kept, to be served if all upstreams fail (RFC 8767).
    pub stale: Option<Duration>,
    /// True to serve expired answers at once and refresh them in the background. If false, clients first wait for up to
    /// [`STALE_AFTER`]. RFC 8767 §5 leaves this choice to the operator.
    pub stale_at_once: bool,
    /// True to refresh frequently requested answers before they expire.
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
    /// Returns the caching time of a failure in seconds, after `repeats` consecutive earlier
    /// failures. Each earlier failure doubles the time (RFC 9520 §3.2).
    #[inline]
    pub(crate) fn failure_after(&self, repeats: u8) -> u32 {
        let doubled = u64::from(self.failure) << repeats.min(32);
        u32::try_from(doubled).unwrap_or(u32::MAX).min(self.failure_max.max(self.failure))
    }
}
