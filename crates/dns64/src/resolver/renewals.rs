//! Answers that are renewed before their time is over, because they are asked for often: so nobody
//! waits for them.
//!
//! ```text
//! stored ────────────── nine tenths of its TTL ──────────── over
//!         served from the cache      │ asked once: noted │ asked again: renewed
//! ```
//!
//! What is asked for twice in the last tenth of its time is asked for often enough. Renewals are at
//! most a tenth of the clients' questions, and a hundred at once: so upstreams are not asked much
//! more than they would be without.

use super::answer::AnswerKind;
use super::fetches::KeyHash;
use super::outcome::Kept;

/// Shortest TTL of what is renewed, seconds: a tenth of less is no time in which to be asked twice.
const LEAST_TTL: u32 = 10;
/// Questions that are remembered as asked once. Others take their places, so that a question that is
/// asked often among very many different ones may have to be asked a third time.
const PLACES: usize = 4_096;
/// Questions of clients for each renewal.
const QUESTIONS: u32 = 10;
/// Renewals that are saved up at the most.
const SAVED: u32 = 100;

/// Which answers are to be renewed.
#[derive(Debug)]
pub(super) struct Renewals {
    /// Hashes of questions that were asked once in the last tenth.
    once: Box<[Option<KeyHash>]>,
    /// Questions that no renewal has used up.
    saved: u32,
}

impl Default for Renewals {
    fn default() -> Renewals {
        Renewals { once: vec![None; PLACES].into(), saved: 0 }
    }
}

impl Renewals {
    /// A client has asked.
    #[inline]
    pub(super) fn count(&mut self) {
        self.saved = (self.saved + 1).min(SAVED * QUESTIONS);
    }

    /// Whether an answer is near its end and may be worth to be renewed.
    #[inline]
    pub(super) fn is_near_end(kept: &Kept) -> bool {
        let ttl = kept.answer.ttl();
        ttl >= LEAST_TTL
            && kept.age >= ttl - ttl / 10
            && !kept.stale
            && kept.answer.kind() != AnswerKind::Failed
    }

    /// Whether the answer to a question that is asked now, in the last tenth of its time, is to be
    /// renewed.
    pub(super) fn wants(&mut self, question: KeyHash) -> bool {
        let place = &mut self.once[question.place(PLACES)];
        if *place != Some(question) {
            *place = Some(question);
            return false;
        }
        let Some(left) = self.saved.checked_sub(QUESTIONS) else { return false };
        *place = None;
        self.saved = left;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolver::fetches::Fetches;

    fn hash(n: u32) -> KeyHash {
        // One hasher for all: each has its own key.
        thread_local!(static FETCHES: Fetches = Fetches::default());
        FETCHES.with(|fetches| fetches.hash(&n.to_be_bytes()))
    }

    fn with_questions(count: u32) -> Renewals {
        let mut renewals = Renewals::default();
        (0..count).for_each(|_| renewals.count());
        renewals
    }

    #[test]
    fn what_is_asked_for_twice_near_its_end_is_renewed_once() {
        let mut renewals = with_questions(1_000);
        let asked: Vec<bool> = (0..4).map(|_| renewals.wants(hash(1))).collect();
        assert_eq!(asked, [false, true, false, true]);
        assert!(!renewals.wants(hash(2)));
    }

    #[test]
    fn renewals_are_a_tenth_of_the_questions_and_a_hundred_at_once() {
        let renewed = |renewals: &mut Renewals| {
            (0..5_000).filter(|&n| renewals.wants(hash(n)) | renewals.wants(hash(n))).count()
        };
        let mut renewals = with_questions(250);
        assert_eq!(renewed(&mut renewals), 25);
        assert_eq!(renewed(&mut with_questions(1_000_000)), 100);
        // What could not be renewed then is when there is room again.
        (0..10).for_each(|_| renewals.count());
        assert_eq!(renewed(&mut renewals), 1);
    }
}
