//! Limit on fetches in flight: the number that the upstreams can answer in time.
//!
//! More queries than that would wait in an upstream's queue until they time out. The upstream would then spend its time
//! on queries whose clients have given up.

use units::Nanos;

/// The limit on fetches in flight is never below this value, however slow the upstreams are. This value permits 5 000
/// fetches per second if each of them takes 1.6 s.
const LEAST: u64 = 8_192;
/// Maximum time for which a fetch may wait in queues, as a fraction of the time limit of the fetch (numerator and
/// denominator). If all answers take a third of the time limit, retransmissions wait longer than that, so no query is
/// sent twice. A client query causes two fetches, but the second begins only after the answer to the first. During a
/// pause of the upstreams, the number of fetches in flight therefore grows at only half of the usual fetch rate. The
/// limit on this number is reached only after a pause that is longer than a third of the time limit.
const SHARE: (u64, u64) = (1, 3);

/// Recent answer rate of the upstreams. It does not decrease during a pause, because a pause is no
/// evidence of a lower rate.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Start of the interval in which `answers` are counted.
    since: Nanos,
    answers: u64,
    /// Recent maximum number of answers per second. The value decays by an eighth each second.
    most: u64,
}

impl Rate {
    /// Counts an answer from an upstream.
    #[inline]
    pub(super) fn answered(&mut self, now: Nanos) {
        self.answers += 1;
        let elapsed = now.since(self.since);
        if elapsed >= Nanos::SECOND {
            let rate = (self.answers as f64 / elapsed.as_secs_f64()) as u64;
            let seconds = elapsed.as_secs_f64().min(1_000.0);
            self.most = rate.max((self.most as f64 * 0.875_f64.powf(seconds)) as u64);
            (self.since, self.answers) = (now, 0);
        }
    }

    /// Returns the maximum number of fetches in flight if each may take up to `timeout`.
    #[inline]
    pub(super) fn questions(&self, timeout: Nanos) -> usize {
        let millis = timeout.0 / 1_000_000;
        let in_time =
            self.most.max(self.answers).saturating_mul(millis * SHARE.0 / SHARE.1) / 1_000;
        usize::try_from(in_time.max(LEAST)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_flight_limit_follows_the_answer_rate() {
        let timeout = Nanos::from_millis(1_500);
        let mut rate = Rate::default();
        let mut now = Nanos::SECOND;
        let mut answers = |rate: &mut Rate, seconds: u64, per_second: u64| {
            for _ in 0..seconds * per_second {
                now = now + Nanos(1_000_000_000 / per_second);
                rate.answered(now);
            }
        };
        assert_eq!(rate.questions(timeout), LEAST as usize);
        answers(&mut rate, 3, 50_000);
        let fast = rate.questions(timeout);
        assert!((24_500..=25_000).contains(&fast), "{fast}: half a second's worth");
        // Slow upstreams: the former rate decays.
        answers(&mut rate, 2, 20_000);
        assert!((15_000..fast).contains(&rate.questions(timeout)));
        answers(&mut rate, 30, 20_000);
        assert!((9_900..=10_100).contains(&rate.questions(timeout)));
        answers(&mut rate, 60, 100);
        assert_eq!(rate.questions(timeout), LEAST as usize);
    }
}
