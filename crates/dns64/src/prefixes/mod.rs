//! State of the DNS64 prefixes at run time: the upstreams and routers that announce them, and the health of their
//! NAT64s. This module uses neither sockets nor a clock.
//!
//! ```text
//! discovery: an upstream's ipv4only.arpa ──┐
//! advertisement: a router's ───────────────┴─► known ──┐
//! health: results of probes ───────────────────────────┴─► Live ─► config: policies are rebuilt
//! ```

pub(crate) mod advertisement;
pub(crate) mod discovery;
pub(crate) mod health;
pub(crate) mod known;

use units::Nanos;

use self::health::PrefixHealth;
use crate::translation::prefix::Prefix;

/// State of all prefixes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LivePrefixes {
    /// Discovered prefixes with their expiry times, in order of discovery.
    pub announced: Vec<(Prefix, Nanos)>,
    /// Prefixes with a NAT64 that does not respond, each with the time since which it has been unhealthy.
    pub unhealthy: Vec<(Prefix, Nanos)>,
}

impl LivePrefixes {
    /// True if the new state `now` must be published to the workers. A longer lifetime of a prefix is published only
    /// if the remaining lifetime grows by more than a tenth. Without this rule, each of the frequent Router
    /// Advertisements would cause an update.
    pub(crate) fn is_outdated_by(&self, now: &LivePrefixes, at: Nanos) -> bool {
        let has_changed =
            |((prefix, until), (other, later)): (&(Prefix, Nanos), &(Prefix, Nanos))| {
                let (left, gained) = (until.since(at).0, later.since(*until).0);
                prefix != other || later < until || gained > left / 10
            };
        self.unhealthy != now.unhealthy
            || self.announced.len() != now.announced.len()
            || self.announced.iter().zip(&now.announced).any(has_changed)
    }

    /// Returns the time since which a prefix has been unhealthy, or `None` if it is not unhealthy.
    pub(crate) fn unhealthy_since(&self, prefix: &Prefix) -> Option<Nanos> {
        self.unhealthy.iter().find(|(known, _)| known == prefix).map(|(_, since)| *since)
    }
}

/// A prefix in use and its state, for status output and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrefixReport {
    /// The prefix, with its suffix.
    pub prefix: Prefix,
    /// Name of the prefix in the configuration.
    pub name: Option<String>,
    /// Descriptions of the upstreams and routers that announce the prefix. Empty for a configured prefix.
    pub announced_by: Vec<String>,
    /// Expiry time of a discovered prefix.
    pub until: Option<Nanos>,
    /// True if the prefix is not used for new answers.
    pub draining: bool,
    /// Health of the prefix's NAT64, and the time at which the health last changed. `None` if the NAT64 is not probed.
    pub health: Option<(PrefixHealth, Nanos)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relevant_changes_are_published() {
        let at = |seconds: u64| Nanos(seconds * Nanos::SECOND.0);
        let (one, other) = (Prefix::WELL_KNOWN, "2001:db8::/96".parse().unwrap());
        let live = |prefix, until| LivePrefixes {
            announced: vec![(prefix, at(until))],
            ..LivePrefixes::default()
        };
        let before = live(one, 1_000);
        assert!(!before.is_outdated_by(&before, at(500)));
        assert!(!before.is_outdated_by(&live(one, 1_050), at(500)), "a tenth of what is left");
        assert!(before.is_outdated_by(&live(one, 1_051), at(500)));
        assert!(before.is_outdated_by(&live(one, 999), at(500)), "it ends sooner");
        assert!(before.is_outdated_by(&live(other, 1_000), at(500)));
        assert!(before.is_outdated_by(&LivePrefixes::default(), at(500)));
        assert!(LivePrefixes::default().is_outdated_by(&before, at(500)));
        let dead = LivePrefixes { unhealthy: vec![(one, at(1))], ..before.clone() };
        assert!(before.is_outdated_by(&dead, at(500)) && dead.is_outdated_by(&before, at(500)));
    }
}
