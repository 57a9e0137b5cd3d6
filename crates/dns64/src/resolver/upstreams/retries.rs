//! Retry budget per upstream. It permits a burst of a thousand retries, then a hundred per second,
//! and one more per eight answers.
//!
//! If most queries time out, retrying each query worsens the overload and prolongs it after its
//! cause is gone. An upstream that loses only an occasional packet answers nearly every query, and
//! these answers add enough retries to its budget.

use units::Nanos;

/// Maximum number of retries in a burst.
pub(super) const AT_ONCE: u64 = 1_000;
/// Time after which the budget grows by one retry.
const EACH: Nanos = Nanos::from_millis(10);
/// Number of answers after which the budget grows by one retry.
const ANSWERS_FOR_ONE: u64 = 8;

/// Retry budget of one upstream. It uses the generic cell rate algorithm (ITU-T I.371), which needs a single timestamp
/// as its state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retries {
    /// Time at which the budget will be full.
    whole_at: Nanos,
}

impl Retries {
    /// True if a retry is permitted.
    pub(super) fn are_left(&self, now: Nanos) -> bool {
        self.after_one(now).is_some()
    }

    /// Deducts one retry from the budget. Returns false if the budget is exhausted.
    pub(super) fn take(&mut self, now: Nanos) -> bool {
        let after = self.after_one(now);
        self.whole_at = after.unwrap_or(self.whole_at);
        after.is_some()
    }

    /// Records an answer from the upstream.
    #[inline]
    pub(super) fn answered(&mut self) {
        self.whole_at = Nanos(self.whole_at.0.saturating_sub(EACH.0 / ANSWERS_FOR_ONE));
    }

    /// Returns the time at which the budget will be full after one more retry, or `None` if the
    /// budget is exhausted.
    fn after_one(&self, now: Nanos) -> Option<Nanos> {
        let next = self.whole_at.max(now) + EACH;
        (next <= now + Nanos(AT_ONCE * EACH.0)).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_budget_grows_with_answers() {
        let mut retries = Retries::default();
        let taken = |retries: &mut Retries, ms| {
            let now = Nanos::SECOND + Nanos::from_millis(ms);
            (0..100_000).filter(|_| retries.take(now)).count() as u64
        };
        assert_eq!(taken(&mut retries, 0), AT_ONCE);
        assert!(!retries.are_left(Nanos::SECOND));
        assert_eq!(taken(&mut retries, 1_000), 100);
        for _ in 0..800 {
            retries.answered();
        }
        assert_eq!(taken(&mut retries, 1_000), 800 / ANSWERS_FOR_ONE);
        // Unused credit above the maximum is not saved.
        for _ in 0..100_000 {
            retries.answered();
        }
        assert_eq!(taken(&mut retries, 100_000), AT_ONCE);
    }
}
