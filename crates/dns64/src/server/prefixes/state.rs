//! State shared by the tasks for prefixes: discovered prefixes, probes, and the time of the next
//! discovery query to the upstreams.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use net::address::ServiceAddr;
use units::Nanos;

use super::probes::Probes;
use crate::config::Settings;
use crate::prefixes::known::KnownPrefixes;
use crate::prefixes::{LivePrefixes, PrefixReport};
use crate::translation::prefix::Prefix;

/// Interval between checks for due queries and probes, expired prefixes and other changes.
pub(super) const TICK: Duration = Duration::from_millis(200);
/// Time by which a discovery query precedes the end of the TTL of the previous discovery answer. This gives the
/// upstreams time to answer. If a tenth of the TTL is longer than this constant, a tenth of the TTL is used. The
/// minimum and the maximum pause take precedence.
const MARGIN: Nanos = Nanos::from_millis(2_500);
/// Minimum pause before the next discovery query to the upstreams. After a failure, the pause has this length, and
/// doubles with each further failure.
const MIN_PAUSE: Nanos = Nanos::SECOND;
/// Maximum pause before the next discovery query after an answer that announces a prefix.
const MAX_PAUSE: Nanos = Nanos::from_millis(3_600_000);
/// Maximum pause before the next discovery query after a failure, or after an answer without prefixes.
const MAX_FAILURE_PAUSE: Nanos = Nanos::from_millis(60_000);
/// Minimum lifetime of a discovered prefix. A prefix with a short TTL thus remains in use until the
/// next answer.
const LEAST_LIFETIME: Nanos = Nanos::from_millis(4_000);

/// Shared state of the tasks for prefixes.
#[derive(Default)]
pub(super) struct State {
    pub(super) known: KnownPrefixes,
    pub(super) probes: Probes,
    asking: QueryState,
}

/// Reference to the state that the tasks for prefixes share. No task holds a borrow across an await point.
pub(super) type SharedState = Rc<RefCell<State>>;

/// State of the discovery queries to the upstreams.
#[derive(Debug, Default)]
pub(super) struct QueryState {
    /// Upstreams that are queried for their prefixes.
    upstreams: Vec<ServiceAddr>,
    /// Upstream that announced the prefixes now in use.
    announcer: Option<ServiceAddr>,
    /// Time of the next discovery query.
    at: Nanos,
    /// Length of the last pause after a failed discovery query. `None` if the last discovery query succeeded.
    failure_pause: Option<Nanos>,
}

/// Prefixes and their lifetime.
pub(super) type PrefixesWithTtl = (Vec<Prefix>, Nanos);

/// Result of a discovery query to all upstreams.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// Upstream that announces the prefixes. `None` if all upstreams have answered and none
    /// announces a prefix.
    pub(super) by: Option<ServiceAddr>,
    pub(super) found: PrefixesWithTtl,
}

impl State {
    /// Returns the current state of the prefixes.
    pub(super) fn live(&self, now: Nanos) -> LivePrefixes {
        let until = |prefix| self.known.until(prefix).unwrap_or(now);
        let announced = self.known.prefixes(now);
        let unhealthy = self.probes.unhealthy();
        LivePrefixes {
            announced: announced.into_iter().map(|p| (p, until(p))).collect(),
            unhealthy,
        }
    }

    /// Returns all prefixes in use, each once, for status output and metrics.
    pub(super) fn in_use(&self, settings: &Settings, now: Nanos) -> Vec<PrefixReport> {
        let live = self.live(now);
        let mut all: Vec<PrefixReport> = Vec::new();
        let lists = settings.config.prefix_lists();
        for (keys, list) in lists.flat_map(|list| list.iter().map(move |keys| (keys, list))) {
            for (prefix, until) in keys.prefixes(&live) {
                let draining = keys.is_draining(&prefix, list);
                if let Some(known) = all.iter_mut().find(|known| known.prefix == prefix) {
                    // A prefix is not draining if at least one list uses it for new answers.
                    known.draining &= draining;
                    continue;
                }
                let announcers = self.known.announcers(prefix).filter(|_| until.is_some());
                all.push(PrefixReport {
                    prefix,
                    name: keys.name().map(str::to_owned),
                    announced_by: announcers.map(ToString::to_string).collect(),
                    until,
                    draining,
                    health: keys.probe().map(|_| self.probes.health(&prefix, now)),
                });
            }
        }
        all
    }

    /// True if a discovery query to these upstreams is due. If the list of upstreams has changed, prefixes of a removed
    /// upstream are discarded, and a query is due immediately.
    pub(super) fn is_due(&mut self, upstreams: &[ServiceAddr], now: Nanos) -> bool {
        if self.asking.upstreams != upstreams {
            let announcer = self.asking.announcer.filter(|by| upstreams.contains(by));
            if announcer.is_none() {
                self.known.answered(&[], Nanos(0), now);
            }
            self.asking =
                QueryState { upstreams: upstreams.to_vec(), announcer, ..QueryState::default() };
        }
        !upstreams.is_empty() && self.asking.at <= now
    }

    /// Records the result of a discovery query: an answer from the upstreams, or a failure (`None`).
    pub(super) fn record_announcement(&mut self, announcement: Option<Announcement>, now: Nanos) {
        let pause = match announcement {
            // The next query is sent before the TTL expires, so that no client query waits for the
            // answer.
            Some(Announcement { by, found: (prefixes, ttl) }) => {
                self.known.answered(&prefixes, ttl.max(LEAST_LIFETIME), now);
                (self.asking.announcer, self.asking.failure_pause) = (by, None);
                // Without a prefix, the pause is shorter, because a DNS64 may be introduced in the
                // network later.
                let most = if prefixes.is_empty() { MAX_FAILURE_PAUSE } else { MAX_PAUSE };
                Nanos(ttl.0.saturating_sub(MARGIN.0.max(ttl.0 / 10))).clamp(MIN_PAUSE, most)
            }
            None => {
                let doubled = self.asking.failure_pause.map_or(MIN_PAUSE, |last| Nanos(last.0 * 2));
                *self.asking.failure_pause.insert(doubled.min(MAX_FAILURE_PAUSE))
            }
        };
        self.asking.at = now + pause;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// An announcement by this upstream, or an empty one by all upstreams (`None`).
    fn said(by: Option<ServiceAddr>, prefixes: &[Prefix], ttl: Nanos) -> Option<Announcement> {
        Some(Announcement { by, found: (prefixes.to_vec(), ttl) })
    }

    #[test]
    fn announcements_of_removed_upstreams_are_discarded() {
        let mut state = State::default();
        let [one, other]: [ServiceAddr; 2] =
            ["192.0.2.1:53", "192.0.2.2:53"].map(|a| a.parse().unwrap());
        let minute = Nanos::from_millis(60_000);
        assert!(state.is_due(&[one], Nanos(0)));
        state.record_announcement(said(Some(one), &[Prefix::WELL_KNOWN], minute), Nanos(0));
        assert!(!state.is_due(&[one], Nanos::SECOND));
        assert!(!state.known.prefixes(Nanos::SECOND).is_empty());
        assert!(state.is_due(&[other], Nanos::SECOND), "at once");
        assert!(state.known.prefixes(Nanos::SECOND).is_empty());
        assert!(!state.is_due(&[], Nanos::SECOND), "there is no upstream to query");
    }

    #[test]
    fn announcements_of_kept_upstreams_stay_valid() {
        let mut state = State::default();
        let [one, other, third]: [ServiceAddr; 3] =
            ["192.0.2.1:53", "192.0.2.2:53", "192.0.2.3:53"].map(|a| a.parse().unwrap());
        let (now, prefixes) = (Nanos::SECOND, [Prefix::WELL_KNOWN]);
        state.is_due(&[one, other], now);
        state.record_announcement(said(Some(other), &prefixes, Nanos::from_millis(60_000)), now);
        for upstreams in [&[other, one][..], &[third, other], &[other]] {
            assert!(state.is_due(upstreams, now), "{upstreams:?} are asked at once");
            assert_eq!(state.known.prefixes(now), prefixes, "{upstreams:?}");
            // A failure changes nothing.
            state.record_announcement(None, now);
            assert!(!state.is_due(upstreams, now));
        }
        assert!(state.is_due(&[one, third], now) && state.known.prefixes(now).is_empty());
        // An announcement by a removed upstream is not restored.
        assert!(state.is_due(&[other], now) && state.known.prefixes(now).is_empty());
    }

    #[test]
    fn a_prefix_that_no_list_uses_for_new_answers_drains() {
        let draining = |prefixes: &str, more: &str| {
            let text = format!(
                "[dns64]\nprefixes = [{prefixes}]\n{more}[[upstream]]\naddress = '192.0.2.1'\n"
            );
            let settings = Settings::from_text(&text, Path::new("test.toml")).unwrap();
            let mut state = State::default();
            state.record_announcement(said(None, &[Prefix::WELL_KNOWN], Nanos::SECOND), Nanos(0));
            let used = state.in_use(&settings, Nanos(0));
            used.into_iter().map(|used| (used.prefix, used.draining)).collect::<Vec<_>>()
        };
        let (own, discover) =
            ("{ prefix = '64:ff9b::/96', draining = true }", "{ prefix = 'discover' }");
        let drains = |is_so| vec![(Prefix::WELL_KNOWN, is_so)];
        assert_eq!(draining(&format!("{own}, {discover}"), ""), drains(true));
        assert_eq!(draining(&format!("{discover}, {own}"), ""), drains(true));
        let group = format!("[[group]]\nclients = ['10.0.0.0/8']\ndns64.prefixes = [{discover}]\n");
        assert_eq!(draining(own, &group), drains(false), "the group is given it");
        assert_eq!(
            draining("{ prefix = 'discover', draining = true }, { prefix = '64:ff9b::/96' }", ""),
            drains(false)
        );
    }

    #[test]
    fn queries_precede_expiry_and_back_off_on_failure() {
        let mut state = State::default();
        let prefix = vec![Prefix::WELL_KNOWN];
        let at = |seconds: u64| Nanos(seconds * Nanos::SECOND.0);
        state.record_announcement(said(None, &prefix, at(100)), at(0));
        assert_eq!(state.asking.at, at(90));
        // The query is sent 2.5 s before the TTL expires, because an upstream may need time to
        // answer.
        state.record_announcement(said(None, &prefix, at(10)), at(0));
        assert_eq!(state.asking.at, Nanos::from_millis(7_500));
        // A TTL of zero does not remove the prefix before the next query.
        state.record_announcement(said(None, &prefix, at(0)), at(90));
        assert_eq!(state.asking.at, at(91));
        assert_eq!(state.known.prefixes(at(91)), prefix);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let now = state.asking.at;
            state.record_announcement(None, now);
            pauses.push(state.asking.at.since(now).0 / Nanos::SECOND.0);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        let now = state.asking.at;
        state.record_announcement(said(None, &[], at(86_400)), now);
        assert_eq!(state.asking.at.since(now), at(60), "no DNS64, so far");
    }
}
