//! Prefixes while the server runs: who announces them, and whether their NAT64 works. Pure: no
//! sockets, no clock.
//!
//! ```text
//! discovery: an upstream's ipv4only.arpa ──┐
//! advertisement: a router's ───────────────┴─► known ──┐
//! health: what became of probes ───────────────────────┴─► Live ─► config: policies are made anew
//! ```

pub(crate) mod advertisement;
pub(crate) mod discovery;
pub(crate) mod health;
pub(crate) mod known;

use method::units::Nanos;

use self::health::PrefixHealth;
use crate::translation::prefix::Prefix;

/// How prefixes stand at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    /// Those that somebody announces, in the order in which they became known, and until when.
    pub announced: Vec<(Prefix, Nanos)>,
    /// Those whose NAT64 does not answer, and since when.
    pub unhealthy: Vec<(Prefix, Nanos)>,
}

impl Live {
    /// Whether things stand otherwise now, so that who goes by this must be told. That a prefix is
    /// known for longer matters when a tenth of that is to be gained: routers say so every few
    /// seconds.
    pub(crate) fn is_outdated_by(&self, now: &Live, at: Nanos) -> bool {
        let has_changed =
            |((prefix, until), (other, later)): (&(Prefix, Nanos), &(Prefix, Nanos))| {
                let (left, gained) = (until.since(at).0, later.since(*until).0);
                prefix != other || later < until || gained > left / 10
            };
        self.unhealthy != now.unhealthy
            || self.announced.len() != now.announced.len()
            || self.announced.iter().zip(&now.announced).any(has_changed)
    }

    /// Since when the NAT64 of a prefix does not answer, if that is so.
    pub(crate) fn unhealthy_since(&self, prefix: &Prefix) -> Option<Nanos> {
        self.unhealthy.iter().find(|(known, _)| known == prefix).map(|(_, since)| *since)
    }
}

/// A prefix in use and how it stands, for people and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InUse {
    /// The prefix, with its suffix.
    pub prefix: Prefix,
    /// What the configuration calls it.
    pub name: Option<String>,
    /// Who announces it, in words; nobody, if it is configured.
    pub announced_by: Vec<String>,
    /// Until when it is known, if it is announced.
    pub until: Option<Nanos>,
    /// It is used for no new answer.
    pub draining: bool,
    /// Whether its NAT64 answers, and since when that is so, if it is probed.
    pub health: Option<(PrefixHealth, Nanos)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_by_it_is_told_of_what_matters() {
        let at = |seconds: u64| Nanos(seconds * Nanos::SECOND.0);
        let (one, other) = (Prefix::WELL_KNOWN, "2001:db8::/96".parse().unwrap());
        let live = |prefix, until| Live { announced: vec![(prefix, at(until))], ..Live::default() };
        let before = live(one, 1_000);
        assert!(!before.is_outdated_by(&before, at(500)));
        assert!(!before.is_outdated_by(&live(one, 1_050), at(500)), "a tenth of what is left");
        assert!(before.is_outdated_by(&live(one, 1_051), at(500)));
        assert!(before.is_outdated_by(&live(one, 999), at(500)), "it ends sooner");
        assert!(before.is_outdated_by(&live(other, 1_000), at(500)));
        assert!(before.is_outdated_by(&Live::default(), at(500)));
        assert!(Live::default().is_outdated_by(&before, at(500)));
        let dead = Live { unhealthy: vec![(one, at(1))], ..before.clone() };
        assert!(before.is_outdated_by(&dead, at(500)) && dead.is_outdated_by(&before, at(500)));
    }
}
