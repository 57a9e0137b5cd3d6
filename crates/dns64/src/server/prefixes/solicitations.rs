//! When the routers of a link are asked for an advertisement (RFC 4861 §6.3.7).
//!
//! ```text
//! no prefix of theirs is known ─► at once ─► 4 s ─► 4 s ─► a minute ─► a minute … ─► one is known
//!                                    └─ it could not be sent: in 4 s, from the beginning
//! ```
//!
//! RFC 4861 leaves it at three, as routers speak by themselves from time to time; but until they do,
//! names that need a prefix have no answer.

use method::units::Nanos;

/// How many come soon after each other, and how soon (`MAX_RTR_SOLICITATIONS` and
/// `RTR_SOLICITATION_INTERVAL`, RFC 4861 §10).
const AT_FIRST: u32 = 3;
const INTERVAL: Nanos = Nanos::from_millis(4_000);
/// The time between later ones.
const LATER: Nanos = Nanos::from_millis(60_000);

/// The questions to the routers of one link so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Solicitations {
    /// When the last one was sent, or could not be.
    last: Option<Nanos>,
    /// How many have been sent since the routers' prefixes went, or since one could not be sent.
    sent: u32,
    /// The last one could not be sent.
    fails: bool,
}

impl Solicitations {
    /// Whether the routers are to be asked now; `wanted`: a prefix of theirs is, and none is known.
    /// However often that changes, they are asked once in 4 s at the most.
    pub(super) fn is_due(&mut self, wanted: bool, now: Nanos) -> bool {
        if !wanted {
            self.sent = 0;
        }
        let pause = if self.sent < AT_FIRST { INTERVAL } else { LATER };
        wanted && self.last.is_none_or(|last| now.since(last) >= pause)
    }

    /// They have been asked.
    pub(super) fn sent(&mut self, now: Nanos) {
        (self.last, self.fails) = (Some(now), false);
        self.sent = self.sent.saturating_add(1);
    }

    /// They could not be asked; whether that is the first time in a row.
    pub(super) fn failed(&mut self, now: Nanos) -> bool {
        (self.last, self.sent) = (Some(now), 0);
        !std::mem::replace(&mut self.fails, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds among these, looked at five times each, in which the routers are asked; a
    /// question can be sent, and is wanted, in those seconds of which that is said.
    fn asked(
        seconds: std::ops::Range<u64>,
        wanted: impl Fn(u64) -> bool,
        can: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let mut solicitations = Solicitations::default();
        let mut asked = Vec::new();
        for moment in seconds.start * 5..seconds.end * 5 {
            let (now, second) = (Nanos::from_millis(moment * 200), moment / 5);
            if !solicitations.is_due(wanted(second), now) {
                continue;
            }
            if can(second) {
                solicitations.sent(now);
                asked.push(second);
            } else {
                solicitations.failed(now);
            }
        }
        asked
    }

    #[test]
    fn routers_are_asked_three_times_and_then_each_minute_until_they_answer() {
        assert_eq!(asked(0..200, |_| true, |_| true), [0, 4, 8, 68, 128, 188]);
        assert_eq!(asked(0..200, |second| second < 6, |_| true), [0, 4]);
        assert_eq!(asked(0..200, |_| false, |_| true), [0; 0]);
    }

    #[test]
    fn they_are_asked_at_once_when_their_last_prefix_is_over() {
        let wanted = |second: u64| !(70..150).contains(&second);
        assert_eq!(asked(0..170, wanted, |_| true), [0, 4, 8, 68, 150, 154, 158]);
        // One that comes and goes all the time makes no flood.
        assert_eq!(asked(0..16, |second| second % 2 == 0, |_| true), [0, 4, 8, 12]);
    }

    #[test]
    fn a_link_that_is_not_up_yet_is_tried_again() {
        assert_eq!(asked(0..120, |_| true, |second| second >= 10), [12, 16, 20, 80]);
        let is_up = |second: u64| !(60..100).contains(&second);
        assert_eq!(asked(0..120, |_| true, is_up), [0, 4, 8, 100, 104, 108]);
        let mut solicitations = Solicitations::default();
        assert!(solicitations.failed(Nanos(0)) && !solicitations.failed(INTERVAL), "told once");
        solicitations.sent(LATER);
        assert!(solicitations.failed(LATER + LATER), "and once more");
    }
}
