//! What the tasks know together: announced prefixes, probes, and when upstreams are asked again.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use method::units::Nanos;

use super::probes::Probes;
use crate::config::Settings;
use crate::prefixes::known::Known;
use crate::prefixes::{InUse, Live};
use crate::translation::prefix::Prefix;

/// How often it is looked at what is due, over or changed.
pub(super) const TICK: Duration = Duration::from_millis(200);
/// When the upstreams are asked again: after an answer at nine tenths of its TTL, but so long before
/// its end that they may take their time, and within these bounds; after none as soon, and each time
/// that there is none again twice as late.
const MARGIN: Nanos = Nanos::from_millis(2_500);
const LEAST_PAUSE: Nanos = Nanos::SECOND;
const MOST_PAUSE: Nanos = Nanos::from_millis(3_600_000);
const MOST_PAUSE_IN_VAIN: Nanos = Nanos::from_millis(60_000);
/// For how long a prefix is known at the least: until the next answer, however short the TTL.
const LEAST_LIFETIME: Nanos = Nanos::from_millis(4_000);

/// What the tasks know together.
#[derive(Default)]
pub(super) struct State {
    pub(super) known: Known,
    pub(super) probes: Probes,
    asking: Asking,
}

/// All tasks have it, none of them while it waits.
pub(super) type Shares = Rc<RefCell<State>>;

/// What is known of the answers so far.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Whose answers they are.
    upstreams: Vec<SocketAddr>,
    /// When the upstreams are to be asked again.
    at: Nanos,
    /// How long was waited after they had not answered, if they had not.
    in_vain: Option<Nanos>,
}

/// Prefixes, and for how long they are good.
pub(super) type Found = (Vec<Prefix>, Nanos);

impl State {
    /// How prefixes stand now.
    pub(super) fn live(&self, now: Nanos) -> Live {
        let until = |prefix| self.known.until(prefix).unwrap_or(now);
        let announced = self.known.prefixes(now);
        let unhealthy = self.probes.unhealthy();
        Live { announced: announced.into_iter().map(|p| (p, until(p))).collect(), unhealthy }
    }

    /// All prefixes in use, each once, for people and metrics.
    pub(super) fn in_use(&self, settings: &Settings, now: Nanos) -> Vec<InUse> {
        let live = self.live(now);
        let mut all: Vec<InUse> = Vec::new();
        for keys in settings.config.written_prefixes() {
            for (prefix, until) in keys.prefixes(&live) {
                if all.iter().any(|other| other.prefix == prefix) {
                    continue;
                }
                let announcers = self.known.announcers(prefix).filter(|_| until.is_some());
                all.push(InUse {
                    prefix,
                    name: keys.name().map(str::to_owned),
                    announced_by: announcers.map(ToString::to_string).collect(),
                    until,
                    draining: keys.is_draining(),
                    health: keys.probe().map(|_| self.probes.health(&prefix, now)),
                });
            }
        }
        all
    }

    /// Whether these upstreams are to be asked now. What others have said counts no more.
    pub(super) fn is_due(&mut self, upstreams: &[SocketAddr], now: Nanos) -> bool {
        if self.asking.upstreams != upstreams {
            self.known.answered(&[], Nanos(0), now);
            self.asking = Asking { upstreams: upstreams.to_vec(), ..Asking::default() };
        }
        !upstreams.is_empty() && self.asking.at <= now
    }

    /// The upstreams have answered, or not.
    pub(super) fn note(&mut self, found: Option<Found>, now: Nanos) {
        let pause = match found {
            // Before it is over, so that no answer must wait for the next one.
            Some((prefixes, ttl)) => {
                self.known.answered(&prefixes, ttl.max(LEAST_LIFETIME), now);
                self.asking.in_vain = None;
                // A network without a DNS64 may get one.
                let most = if prefixes.is_empty() { MOST_PAUSE_IN_VAIN } else { MOST_PAUSE };
                Nanos(ttl.0.saturating_sub(MARGIN.0.max(ttl.0 / 10))).clamp(LEAST_PAUSE, most)
            }
            None => {
                let doubled = self.asking.in_vain.map_or(LEAST_PAUSE, |last| Nanos(last.0 * 2));
                *self.asking.in_vain.insert(doubled.min(MOST_PAUSE_IN_VAIN))
            }
        };
        self.asking.at = now + pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_upstreams_said_counts_no_more() {
        let mut state = State::default();
        let [one, other]: [SocketAddr; 2] =
            ["192.0.2.1:53", "192.0.2.2:53"].map(|a| a.parse().unwrap());
        assert!(state.is_due(&[one], Nanos(0)));
        state.note(Some((vec![Prefix::WELL_KNOWN], Nanos::from_millis(60_000))), Nanos(0));
        assert!(!state.is_due(&[one], Nanos::SECOND));
        assert!(!state.known.prefixes(Nanos::SECOND).is_empty());
        assert!(state.is_due(&[other], Nanos::SECOND), "at once");
        assert!(state.known.prefixes(Nanos::SECOND).is_empty());
        assert!(!state.is_due(&[], Nanos::SECOND), "nobody is to be asked");
    }

    #[test]
    fn they_are_asked_again_before_the_answer_is_over_and_seldom_in_vain() {
        let mut state = State::default();
        let prefix = vec![Prefix::WELL_KNOWN];
        let at = |seconds: u64| Nanos(seconds * Nanos::SECOND.0);
        state.note(Some((prefix.clone(), at(100))), at(0));
        assert_eq!(state.asking.at, at(90));
        // An upstream may need its time to answer.
        state.note(Some((prefix.clone(), at(10))), at(0));
        assert_eq!(state.asking.at, Nanos::from_millis(7_500));
        // A TTL of zero does not take the prefix away before the next question.
        state.note(Some((prefix.clone(), at(0))), at(90));
        assert_eq!(state.asking.at, at(91));
        assert_eq!(state.known.prefixes(at(91)), prefix);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let now = state.asking.at;
            state.note(None, now);
            pauses.push(state.asking.at.since(now).0 / Nanos::SECOND.0);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        let now = state.asking.at;
        state.note(Some((vec![], at(86_400))), now);
        assert_eq!(state.asking.at.since(now), at(60), "no DNS64, so far");
    }
}
