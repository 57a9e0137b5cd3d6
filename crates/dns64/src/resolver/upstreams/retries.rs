//! How many questions an upstream may be asked once more: a thousand at once, then a hundred a
//! second, and one more for every eight answers.
//!
//! If most questions time out, asking each of them twice makes the overload worse, and keeps it up
//! when its cause is gone. An upstream that loses a packet now and then answers nearly every
//! question, and so earns the retries that it needs.

use method::units::Nanos;

/// Questions that may be asked again at once.
pub(super) const AT_ONCE: u64 = 1_000;
/// Time after which one more may be.
const EACH: Nanos = Nanos::from_millis(10);
/// Answers for which one more may be.
const ANSWERS_FOR_ONE: u64 = 8;

/// The budget of one upstream, as a generic cell rate algorithm (ITU-T I.371): a single moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retries {
    /// When all retries will be there again.
    whole_at: Nanos,
}

impl Retries {
    /// Whether one more question may be asked again.
    pub(super) fn are_left(&self, now: Nanos) -> bool {
        self.after_one(now).is_some()
    }

    /// Takes one, if there is one.
    pub(super) fn take(&mut self, now: Nanos) -> bool {
        let after = self.after_one(now);
        self.whole_at = after.unwrap_or(self.whole_at);
        after.is_some()
    }

    /// The upstream has answered a question.
    #[inline]
    pub(super) fn answered(&mut self) {
        self.whole_at = Nanos(self.whole_at.0.saturating_sub(EACH.0 / ANSWERS_FOR_ONE));
    }

    /// When all retries will be there again after one more has been taken; `None` if none is left.
    fn after_one(&self, now: Nanos) -> Option<Nanos> {
        let next = self.whole_at.max(now) + EACH;
        (next <= now + Nanos(AT_ONCE * EACH.0)).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_asked_again_as_far_as_answers_come() {
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
        // What is not used is not kept for later.
        for _ in 0..100_000 {
            retries.answered();
        }
        assert_eq!(taken(&mut retries, 100_000), AT_ONCE);
    }
}
