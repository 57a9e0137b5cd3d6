//! Health of an upstream: round-trip time and reachability.
//!
//! The round-trip time is smoothed according to RFC 6298 §2. Three failures in a row, without an
//! answer in between, mark an upstream down. The upstream then gets no queries for a second. After
//! that, it gets one query as a probe. After each failed probe this delay is doubled, up to half a
//! minute. A single answer marks the upstream up again, regardless of earlier failures.
//!
//! ```text
//!            failure, failure, failure              backoff is over
//!   up ─────────────────────────────────► marked down ───────────────► one query probes
//!     ▲                                       ▲                            │         │
//!     │                                       └── no answer, time doubled ─┘         │
//!     └──────────────────────────── any answer ──────────────────────────────────────┘
//! ```

use units::Nanos;

/// Assumed response time of an upstream before its first answer.
const FIRST_RTO: Nanos = Nanos::from_millis(400);
/// Minimum wait for an answer, even from a fast upstream. With a shorter wait, every query to a briefly busy upstream
/// would be sent twice.
pub(crate) const LEAST_RTO: Nanos = Nanos::from_millis(200);
/// Maximum wait for an answer before a retransmission.
const MOST_RTO: Nanos = Nanos::from_millis(800);
/// Number of consecutive failures that mark an upstream down.
pub(super) const FAILURES: u32 = 3;
/// Time for which an upstream stays marked down before the first probe.
const FIRST_BACKOFF: Nanos = Nanos::SECOND;
/// Maximum time for which an upstream stays marked down before the next probe.
const MOST_BACKOFF: Nanos = Nanos::from_millis(30_000);
/// Maximum time for which a pending probe prevents other queries to an upstream that is marked down.
const PROBE: Nanos = Nanos::SECOND;
/// Minimum interval between log lines about an upstream that is marked down.
const LOG_INTERVAL: Nanos = Nanos::from_millis(10_000);

/// Health of one upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UpstreamHealth {
    /// Smoothed round-trip time and its variation; `None` before the first answer.
    smoothed: Option<(Nanos, Nanos)>,
    /// Number of failures since the last answer.
    failures: u32,
    backoff: Nanos,
    /// Time of the failure that marked the upstream down.
    down_since: Nanos,
    down_until: Nanos,
    /// True if the upstream is down and a probe is in flight.
    probed: bool,
    /// Time at which "marked down" was last logged.
    logged_down_at: Option<Nanos>,
    /// True if, since the last "marked down" log line, a log line has reported the upstream as up again.
    logged_up: bool,
}

/// A change in the health of an upstream, to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthChange {
    /// The upstream is marked down.
    MarkedDown,
    /// The upstream is marked up again.
    MarkedUp,
}

impl UpstreamHealth {
    /// True if the upstream is marked down.
    pub(super) fn is_down(&self) -> bool {
        self.failures >= FAILURES
    }

    /// Returns the time at which the upstream was marked down, or `None` if it is up.
    pub(super) fn down_since(&self) -> Option<Nanos> {
        self.is_down().then_some(self.down_since)
    }

    /// Returns the time until which the upstream is marked down. The time is in the past if the
    /// upstream is up.
    pub(super) fn down_until(&self) -> Nanos {
        self.down_until
    }

    /// Returns the round-trip time by which upstreams are selected. An upstream that was never queried counts as fast,
    /// so that it gets queries.
    pub(super) fn speed(&self) -> Nanos {
        match self.smoothed {
            Some((srtt, _)) => srtt,
            None if self.failures > 0 => FIRST_RTO,
            None => Nanos(0),
        }
    }

    /// Returns the time to wait for an answer before a retransmission. This time is longer than in
    /// RFC 6298, because the round-trip time of an overloaded upstream grows with each query.
    pub(super) fn patience(&self) -> Nanos {
        let Some((srtt, var)) = self.smoothed else { return FIRST_RTO };
        Nanos((2 * srtt.0 + 4 * var.0).clamp(LEAST_RTO.0, MOST_RTO.0))
    }

    /// Records that the upstream is about to be queried. If the upstream is down, this query is the probe. No other
    /// query is sent until the probe is answered or fails, or a second has passed.
    pub(super) fn chosen(&mut self, now: Nanos) {
        if self.is_down() {
            self.down_until = now + PROBE;
            self.probed = true;
        }
    }

    /// Records an answer that arrived after `rtt`. An error response (`is_error`) is recorded with a round-trip time of
    /// at least 400 ms, so that an upstream that fails quickly is not preferred.
    pub(super) fn answered(&mut self, rtt: Nanos, is_error: bool) -> Option<HealthChange> {
        let rtt = if is_error { rtt.max(FIRST_RTO) } else { rtt };
        let (srtt, var) = match self.smoothed {
            None => (rtt.0, rtt.0 / 2),
            Some((srtt, var)) => {
                ((7 * srtt.0 + rtt.0) / 8, (3 * var.0 + srtt.0.abs_diff(rtt.0)) / 4)
            }
        };
        let news = (self.is_down() && !self.logged_up).then_some(HealthChange::MarkedUp);
        let logged_up = self.logged_up || news.is_some();
        *self = UpstreamHealth {
            smoothed: Some((Nanos(srtt), Nanos(var))),
            logged_down_at: self.logged_down_at,
            logged_up,
            ..UpstreamHealth::default()
        };
        news
    }

    /// Records that the upstream did not answer, or was unreachable.
    pub(super) fn failed(&mut self, now: Nanos) -> Option<HealthChange> {
        self.failures = self.failures.saturating_add(1);
        if self.failures == FAILURES {
            self.down_since = now;
        }
        let counts = self.down_until <= now || std::mem::take(&mut self.probed);
        if !self.is_down() || !counts {
            return None;
        }
        self.backoff = Nanos((self.backoff.0 * 2).clamp(FIRST_BACKOFF.0, MOST_BACKOFF.0));
        self.down_until = now + self.backoff;
        if self.failures > FAILURES
            || self
                .logged_down_at
                .is_some_and(|logged_down_at| now.since(logged_down_at) <= LOG_INTERVAL)
        {
            return None;
        }
        (self.logged_down_at, self.logged_up) = (Some(now), false);
        Some(HealthChange::MarkedDown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Nanos {
        Nanos(Nanos::SECOND.0 + Nanos::from_millis(ms).0)
    }

    #[test]
    fn patience_follows_the_round_trip_time_within_its_limits() {
        let mut health = UpstreamHealth::default();
        assert_eq!((health.patience(), health.speed()), (FIRST_RTO, Nanos(0)));
        for (rtt, least, most) in [(1, 200, 200), (100, 400, 400), (2_000, 800, 800)] {
            let mut health = UpstreamHealth::default();
            health.answered(Nanos::from_millis(rtt), false);
            let patience = health.patience();
            assert!(
                (Nanos::from_millis(least)..=Nanos::from_millis(most)).contains(&patience),
                "{rtt}: {patience:?}"
            );
        }
        health.answered(Nanos::from_millis(1), true);
        assert_eq!(health.speed(), FIRST_RTO, "an error response does not count as fast");
    }

    #[test]
    fn backoff_doubles_and_one_answer_ends_it() {
        let mut health = UpstreamHealth::default();
        assert_eq!([health.failed(at(0)), health.failed(at(1))], [None, None]);
        assert!(!health.is_down() && health.down_since().is_none());
        assert_eq!(health.failed(at(2)), Some(HealthChange::MarkedDown));
        let mut expected = 1_000;
        let mut now = 2;
        for _ in 0..8 {
            assert_eq!(health.down_until(), at(now + expected));
            // A failure of an earlier query does not extend the backoff.
            assert_eq!(health.failed(at(now + 1)), None);
            assert_eq!(health.down_until(), at(now + expected));
            now += expected;
            health.chosen(at(now));
            assert_eq!(health.down_until(), at(now + 1_000), "one query at a time");
            now += 400;
            assert_eq!(health.failed(at(now)), None);
            assert_eq!(health.down_since(), Some(at(2)));
            expected = (2 * expected).min(30_000);
        }
        assert_eq!(health.answered(Nanos::from_millis(5), false), Some(HealthChange::MarkedUp));
        assert!(!health.is_down() && health.down_until() == Nanos(0));
        assert_eq!(health.down_since(), None);
        assert_eq!(health.answered(Nanos::from_millis(5), false), None);
    }

    #[test]
    fn repeated_mark_downs_are_logged_once() {
        let mut health = UpstreamHealth::default();
        let mut logged_down_at = 0;
        for ms in (0..9_000).step_by(100) {
            logged_down_at += usize::from(
                (0..3).any(|_| health.failed(at(ms)) == Some(HealthChange::MarkedDown)),
            );
            health.answered(Nanos::from_millis(5), false);
        }
        assert_eq!(logged_down_at, 1);
    }
}
