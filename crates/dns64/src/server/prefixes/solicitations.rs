//! Schedule of Router Solicitations on a link (RFC 4861 §6.3.7).
//!
//! ```text
//! no prefix is known ─► at once ─► 4 s ─► 4 s ─► a minute ─► a minute … ─► a prefix is known
//!                          └─ send error: restart in 4 s
//! ```
//!
//! RFC 4861 stops after three solicitations, because routers advertise periodically. dns64d
//! continues, because queries that need a prefix cannot be answered until the next advertisement.

use units::Nanos;

/// Number of initial solicitations (`MAX_RTR_SOLICITATIONS`, RFC 4861 §10).
const AT_FIRST: u32 = 3;
/// Interval between the initial solicitations (`RTR_SOLICITATION_INTERVAL`, RFC 4861 §10).
const INTERVAL: Nanos = Nanos::from_millis(4_000);
/// Interval between solicitations after the initial ones.
const LATER: Nanos = Nanos::from_millis(60_000);

/// State of the solicitations on one link.
#[derive(Clone, Debug, Default)]
pub(super) struct Solicitations {
    /// Time of the last attempt to send a solicitation, successful or not.
    last: Option<Nanos>,
    /// Number of solicitations sent since a prefix was last known, or since the last send error, whichever is later.
    sent: u32,
    /// True if the last attempt to send a solicitation failed.
    fails: bool,
}

impl Solicitations {
    /// True if a solicitation is due. `wanted` is true if prefixes from this link are used, and no such prefix is
    /// known. The interval between two solicitations is at least 4 s, regardless of how often `wanted` changes.
    pub(super) fn is_due(&mut self, wanted: bool, now: Nanos) -> bool {
        if !wanted {
            self.sent = 0;
        }
        let pause = if self.sent < AT_FIRST { INTERVAL } else { LATER };
        wanted && self.last.is_none_or(|last| now.since(last) >= pause)
    }

    /// Records a sent solicitation.
    pub(super) fn sent(&mut self, now: Nanos) {
        (self.last, self.fails) = (Some(now), false);
        self.sent = self.sent.saturating_add(1);
    }

    /// Records a send error. Returns true for the first of several consecutive errors.
    pub(super) fn failed(&mut self, now: Nanos) -> bool {
        (self.last, self.sent) = (Some(now), 0);
        !std::mem::replace(&mut self.fails, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds in which a solicitation is sent, with five checks per second. `wanted`
    /// and `can` are true for the seconds in which a solicitation is needed and can be sent.
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
    fn solicitations_slow_down_after_three() {
        assert_eq!(asked(0..200, |_| true, |_| true), [0, 4, 8, 68, 128, 188]);
        assert_eq!(asked(0..200, |second| second < 6, |_| true), [0, 4]);
        assert_eq!(asked(0..200, |_| false, |_| true), [0; 0]);
    }

    #[test]
    fn expiry_of_the_last_prefix_causes_a_solicitation() {
        let wanted = |second: u64| !(70..150).contains(&second);
        assert_eq!(asked(0..170, wanted, |_| true), [0, 4, 8, 68, 150, 154, 158]);
        // Frequent changes of `wanted` do not cause additional solicitations.
        assert_eq!(asked(0..16, |second| second % 2 == 0, |_| true), [0, 4, 8, 12]);
    }

    #[test]
    fn a_link_that_is_not_up_yet_is_tried_again() {
        assert_eq!(asked(0..120, |_| true, |second| second >= 10), [12, 16, 20, 80]);
        let is_up = |second: u64| !(60..100).contains(&second);
        assert_eq!(asked(0..120, |_| true, is_up), [0, 4, 8, 100, 104, 108]);
        let mut solicitations = Solicitations::default();
        assert!(solicitations.failed(Nanos(0)) && !solicitations.failed(INTERVAL), "reported once");
        solicitations.sent(LATER);
        assert!(solicitations.failed(LATER + LATER), "and once more");
    }
}
