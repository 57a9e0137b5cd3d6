//! Network errors of one upstream: there is no route to the upstream, or its host refuses queries.
//!
//! If this host reports a missing route when a socket is opened, queries fail at once. Any other
//! error counts only if it lasted for a second without an answer in between, because a server that
//! is starting listens by then. An ICMP message, which may be forged, therefore does not fail
//! queries to a server that answers. Errors expire after five seconds without a further error.

use std::io;

use units::Nanos;

/// Time for which an upstream refuses queries before they fail at once.
const REFUSES: Nanos = Nanos::SECOND;
/// Time after which an error expires.
const LIFETIME: Nanos = Nanos::from_millis(5_000);
/// Minimum time between two queries to unreachable upstreams.
const PROBE_EACH: Nanos = Nanos::from_millis(200);

/// Network errors of an upstream since its last answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NetworkErrors {
    seen: Option<Seen>,
    /// Time of the last query to the upstream.
    asked: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Nanos,
    last: Nanos,
    /// True if the last error was a missing route.
    no_route: bool,
}

impl Seen {
    fn is_recent(&self, now: Nanos) -> bool {
        now.since(self.last) < LIFETIME
    }
}

impl NetworkErrors {
    /// Records a network error. `opening` is true if opening a socket failed, so that the error is
    /// from this host; other errors may come from an ICMP message.
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

    /// Records a timeout.
    pub(super) fn timed_out(&mut self, now: Nanos) {
        self.seen = self.seen.filter(|seen| seen.is_recent(now));
    }

    /// Records an answer; returns true if there were errors before it.
    pub(super) fn answered(&mut self) -> bool {
        self.seen.take().is_some()
    }

    /// True if queries to the upstream fail at once.
    pub(super) fn is_unreachable(&self, now: Nanos) -> bool {
        let lasts = |seen: Seen| seen.no_route || now.since(seen.first) >= REFUSES;
        self.seen.is_some_and(|seen| seen.is_recent(now) && lasts(seen))
    }

    /// True if the last query to the upstream is so recent that another one gives no new
    /// information.
    pub(super) fn is_just_asked(&self, now: Nanos) -> bool {
        now.since(self.asked) < PROBE_EACH
    }
}

/// True for errors of this host's routing table and interfaces.
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
    fn refusals_count_after_a_second_without_an_answer() {
        let refused = io::ErrorKind::ConnectionRefused.into();
        let mut errors = NetworkErrors::default();
        assert!(!errors.is_unreachable(at(0)));
        errors.note(at(0), &refused, false);
        errors.note(at(900), &refused, false);
        assert!(!errors.is_unreachable(at(999)) && errors.is_unreachable(at(1_000)));
        assert!(errors.answered() && !errors.answered());
        errors.note(at(1_100), &refused, false);
        assert!(!errors.is_unreachable(at(2_000)), "an answer arrived in between");
        assert!(errors.is_unreachable(at(2_100)));
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
