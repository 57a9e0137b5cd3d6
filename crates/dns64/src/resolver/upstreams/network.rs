//! Network errors of one upstream, for example a missing route or a host that refuses queries.
//!
//! After an error, queries usually fail at once. However, the upstream may be restarting, or the ICMP message that
//! reported the error may be forged. If the upstream answered in the second before the error, queries are therefore
//! sent until errors have lasted for a second. A missing route that this host reports when a socket is opened takes
//! effect at once. An error expires after five seconds without a further error.

use std::io;

use units::Nanos;

/// Grace period, in which queries are still sent to an upstream after its first network error. It applies only if the
/// upstream's last answer arrived less than one second before that error.
const GRACE: Nanos = Nanos::SECOND;
/// Time after which a network error of an upstream expires.
const LIFETIME: Nanos = Nanos::from_millis(5_000);
/// Minimum time between two queries to the same unreachable upstream.
const PROBE_EACH: Nanos = Nanos::from_millis(200);

/// Network errors of an upstream since its last answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NetworkErrors {
    seen: Option<Seen>,
    /// Time of the upstream's last answer.
    answered: Option<Nanos>,
    /// Time of the last query to the upstream.
    asked: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Nanos,
    last: Nanos,
    /// True if the cause of the last error was a missing route.
    no_route: bool,
}

impl Seen {
    fn is_recent(&self, now: Nanos) -> bool {
        now.since(self.last) < LIFETIME
    }
}

impl NetworkErrors {
    /// Records a network error. `opening` is true if opening a socket failed, which means that this
    /// host reported the error. Other errors may come from an ICMP message.
    pub(super) fn note(&mut self, now: Nanos, error: &io::Error, opening: bool) {
        let no_route = opening && is_missing_route(error);
        let before = self.seen.filter(|seen| seen.no_route == no_route && seen.is_recent(now));
        let first = before.map_or(now, |seen| seen.first);
        self.seen = Some(Seen { first, last: now, no_route });
    }

    /// Records that a query was sent.
    #[inline]
    pub(super) fn asked(&mut self, now: Nanos) {
        self.asked = now;
    }

    /// Records that a query timed out. Discards the recorded network errors if the latest of them occurred at least
    /// five seconds ago.
    pub(super) fn timed_out(&mut self, now: Nanos) {
        self.seen = self.seen.filter(|seen| seen.is_recent(now));
    }

    /// Records an answer. Returns true if network errors were recorded since the previous answer.
    pub(super) fn answered(&mut self, now: Nanos) -> bool {
        self.answered = Some(now);
        self.seen.take().is_some()
    }

    /// True if recent network errors suggest that a query to the upstream would fail at once.
    pub(super) fn is_unreachable(&self, now: Nanos) -> bool {
        let has_grace = |seen: Seen| {
            !seen.no_route
                && now.since(seen.first) < GRACE
                && self.answered.is_some_and(|answered| seen.first.since(answered) < GRACE)
        };
        self.seen.is_some_and(|seen| seen.is_recent(now) && !has_grace(seen))
    }

    /// True if the upstream was queried within the last 0.2 s. The result of that query shows whether a further query
    /// is worth sending.
    pub(super) fn is_just_asked(&self, now: Nanos) -> bool {
        now.since(self.asked) < PROBE_EACH
    }
}

/// True for errors caused by this host's routing table and interfaces.
fn is_missing_route(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkDown, NetworkUnreachable};
    matches!(error.kind(), NetworkUnreachable | HostUnreachable | NetworkDown | AddrNotAvailable)
        || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Nanos {
        Nanos(Nanos::SECOND.0 + Nanos::from_millis(ms).0)
    }

    #[test]
    fn refusals_after_an_answer_must_last_a_second() {
        let refused = io::ErrorKind::ConnectionRefused.into();
        let mut errors = NetworkErrors::default();
        assert!(!errors.is_unreachable(at(0)));
        errors.note(at(0), &refused, false);
        assert!(errors.is_unreachable(at(0)), "it has never answered");
        assert!(errors.answered(at(100)) && !errors.answered(at(100)));
        errors.note(at(1_099), &refused, false);
        errors.note(at(1_900), &refused, false);
        assert!(!errors.is_unreachable(at(2_098)) && errors.is_unreachable(at(2_099)));
        assert!(errors.answered(at(2_100)));
        errors.note(at(3_100), &refused, false);
        assert!(errors.is_unreachable(at(3_100)), "its last answer is a second old");
    }

    #[test]
    fn a_missing_route_counts_at_once() {
        for kind in [
            io::ErrorKind::NetworkUnreachable,
            io::ErrorKind::HostUnreachable,
            io::ErrorKind::NetworkDown,
            io::ErrorKind::AddrNotAvailable,
        ] {
            let mut errors = NetworkErrors::default();
            errors.answered(at(0));
            errors.note(at(0), &kind.into(), false);
            assert!(!errors.is_unreachable(at(0)), "{kind}: it may be an ICMP message");
            errors.note(at(1), &kind.into(), true);
            assert!(errors.is_unreachable(at(1)), "{kind}");
        }
        let mut errors = NetworkErrors::default();
        errors.note(at(0), &io::Error::from_raw_os_error(libc::EAFNOSUPPORT), true);
        assert!(errors.is_unreachable(at(0)));
    }

    #[test]
    fn errors_are_forgotten_in_five_seconds_of_silence() {
        let mut errors = NetworkErrors::default();
        errors.note(at(0), &io::ErrorKind::HostUnreachable.into(), true);
        errors.timed_out(at(4_999));
        assert!(errors.is_unreachable(at(4_999)));
        assert!(!errors.is_unreachable(at(5_000)));
        // An expired error does not count towards a new refusal.
        let refused = io::ErrorKind::ConnectionRefused.into();
        errors.answered(at(60_000));
        errors.note(at(60_000), &refused, false);
        assert!(!errors.is_unreachable(at(60_500)));
    }

    #[test]
    fn a_question_is_recent_for_200_ms() {
        let mut errors = NetworkErrors::default();
        errors.asked(at(0));
        assert!(errors.is_just_asked(at(199)) && !errors.is_just_asked(at(200)));
    }
}
