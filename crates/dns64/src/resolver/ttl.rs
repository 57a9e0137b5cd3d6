//! How long answers are kept.

use std::time::Duration;

/// Bounds of the time for which answers are kept and served.
#[derive(Clone, Copy, Debug)]
pub struct TtlLimits {
    /// At least this, seconds.
    pub min: u32,
    /// At most this, seconds.
    pub max: u32,
    /// Negative answers at most this, seconds (RFC 2308 §5 advises one to three hours).
    pub negative_max: u32,
    /// Failures this long, 1 to 30 seconds (RFC 9520 §3.2; item 38).
    pub failure: u32,
    /// Answers that have run out are kept this much longer, to serve while all upstreams fail (RFC 8767).
    pub stale: Option<Duration>,
}

impl Default for TtlLimits {
    fn default() -> TtlLimits {
        TtlLimits { min: 0, max: 86_400, negative_max: 3_600, failure: 5, stale: None }
    }
}
