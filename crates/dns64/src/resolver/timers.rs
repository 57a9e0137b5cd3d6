//! Timers of fetches. Each available delay has a queue. The entries of a queue become due in the
//! order in which they were added, and need no sorting. Timers are not removed when an answer
//! arrives.

use std::collections::VecDeque;

use units::Nanos;

use crate::ids::FetchId;

/// The shortest delay except zero. Shorter delays are rounded up to this value.
pub(super) const LEAST_DELAY: Nanos = DELAYS[1];

/// Available delays. A timer with zero delay fires in the next iteration of the worker's loop.
const DELAYS: [Nanos; 8] = [
    Nanos(0),
    Nanos::from_millis(25),
    Nanos::from_millis(50),
    Nanos::from_millis(100),
    Nanos::from_millis(200),
    Nanos::from_millis(400),
    Nanos::from_millis(800),
    Nanos::from_millis(1_600),
];

/// Timers of fetches, one queue per available delay.
#[derive(Default)]
pub(super) struct Timers {
    queues: [VecDeque<(Nanos, FetchId)>; DELAYS.len()],
}

impl Timers {
    /// Sets a timer for `fetch`, and returns the time at which it fires. `delay` is rounded up to an available delay.
    /// If the result exceeds `most`, the largest available delay up to `most` is used instead, with a minimum of 25 ms.
    pub(super) fn set(&mut self, fetch: FetchId, now: Nanos, delay: Nanos, most: Nanos) -> Nanos {
        let wanted = DELAYS.iter().position(|&d| d >= delay).unwrap_or(DELAYS.len() - 1);
        let last = DELAYS.iter().rposition(|&d| d <= most).unwrap_or(0).max(1);
        let class = wanted.min(last);
        let due = now + DELAYS[class];
        self.queues[class].push_back((due, fetch));
        due
    }

    /// Returns a fetch with a timer that is due.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<FetchId> {
        let due =
            |queue: &VecDeque<(Nanos, FetchId)>| queue.front().is_some_and(|(at, _)| *at <= now);
        self.queues.iter_mut().find(|queue| due(queue))?.pop_front().map(|(_, fetch)| fetch)
    }

    /// Returns the time at which the next timer fires.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.queues.iter().filter_map(|queue| queue.front()).map(|(at, _)| *at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_rounded_up_within_the_deadline() {
        let mut timers = Timers::default();
        let fetch = FetchId { index: 0, generation: 0 };
        let mut set = |delay, most| {
            let due = timers.set(
                fetch,
                Nanos::SECOND,
                Nanos::from_millis(delay),
                Nanos::from_millis(most),
            );
            due.since(Nanos::SECOND).0 / 1_000_000
        };
        assert_eq!(
            [set(200, 1_700), set(201, 1_700), set(1_000, 1_700), set(9_000, 1_700)],
            [200, 400, 1_600, 1_600]
        );
        assert_eq!([set(300, 300), set(1_000, 500), set(60, 10)], [200, 400, 25]);
        assert_eq!([set(0, 0), set(0, 1_700), set(1, 0)], [0, 0, 25]);
        assert_eq!(timers.next(), Some(Nanos::SECOND));
        assert_eq!(std::iter::from_fn(|| timers.pop(Nanos::SECOND)).count(), 2);
        assert_eq!(timers.next(), Some(Nanos::SECOND + Nanos::from_millis(25)));
        assert_eq!(
            std::iter::from_fn(|| timers.pop(Nanos::SECOND + Nanos::from_millis(400))).count(),
            6
        );
    }
}
