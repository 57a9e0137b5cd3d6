//! For each prefix, the results of its probes and the time of its next probe.

use std::collections::HashMap;

use units::Nanos;

use crate::config::ProbeKeys;
use crate::prefixes::health::{PrefixHealth, Probe, Record};
use crate::translation::prefix::Prefix;

/// Probe results of each prefix.
#[derive(Debug, Default)]
pub(super) struct Probes(HashMap<Prefix, Probed>);

#[derive(Debug)]
struct Probed {
    record: Record,
    /// Time of the last change of the prefix's health.
    since: Nanos,
    /// Time of the next probe.
    next: Nanos,
}

impl Probes {
    /// Returns the health of a prefix, and the time at which it last changed.
    pub(super) fn health(&self, prefix: &Prefix, now: Nanos) -> (PrefixHealth, Nanos) {
        let known = self.0.get(prefix).map(|probed| (probed.record.health(), probed.since));
        known.unwrap_or((PrefixHealth::Unknown, now))
    }

    /// Returns the unhealthy prefixes, each with the time at which it became unhealthy. The list is ordered by this
    /// time.
    pub(super) fn unhealthy(&self) -> Vec<(Prefix, Nanos)> {
        let mut unhealthy: Vec<(Prefix, Nanos)> = self
            .0
            .iter()
            .filter(|(_, probed)| probed.record.health() == PrefixHealth::Unhealthy)
            .map(|(prefix, probed)| (*prefix, probed.since))
            .collect();
        unhealthy.sort_by_key(|&(_, since)| since);
        unhealthy
    }

    /// Deletes the results of prefixes that are not in `wanted`. Then removes from `wanted` all prefixes whose next
    /// probe is not due yet.
    pub(super) fn retain_due(&mut self, wanted: &mut Vec<(Prefix, ProbeKeys)>, now: Nanos) {
        self.0.retain(|prefix, _| wanted.iter().any(|(other, _)| other == prefix));
        wanted.retain(|(prefix, probe)| {
            let fresh = || Probed { record: Record::new(probe.threshold), since: now, next: now };
            let probed = self.0.entry(*prefix).or_insert_with(fresh);
            probed.record.set_threshold(probe.threshold);
            let is_due = probed.next <= now;
            if is_due {
                probed.next = now + Nanos::from(probe.interval);
            }
            is_due
        });
    }

    /// Adds a probe result for a prefix.
    pub(super) fn add(&mut self, prefix: &Prefix, found: Probe, now: Nanos) {
        if let Some(probed) = self.0.get_mut(prefix)
            && probed.record.add(found)
        {
            probed.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    const NOW: Nanos = Nanos(1_000_000_000_000);

    fn probe(threshold: u32) -> ProbeKeys {
        ProbeKeys {
            address: Ipv4Addr::new(192, 0, 2, 1),
            port: 80,
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            threshold,
        }
    }

    /// Number of wanted probes that are due.
    fn due(probes: &mut Probes, wanted: &[(Prefix, ProbeKeys)], now: Nanos) -> usize {
        let mut due = wanted.to_vec();
        probes.retain_due(&mut due, now);
        due.len()
    }

    #[test]
    fn a_wanted_prefix_is_probed_once_per_interval() {
        let mut probes = Probes::default();
        let wanted = [(Prefix::WELL_KNOWN, probe(2))];
        let at = |seconds: u64| NOW + Nanos(seconds * Nanos::SECOND.0);
        let counts = [0, 1, 9, 10, 11, 20].map(|second| due(&mut probes, &wanted, at(second)));
        assert_eq!(counts, [1, 0, 0, 1, 0, 1]);
        probes.add(&Prefix::WELL_KNOWN, Probe::Failed, at(20));
        assert!(probes.unhealthy().is_empty());
        probes.add(&Prefix::WELL_KNOWN, Probe::Failed, at(30));
        assert_eq!(probes.unhealthy(), [(Prefix::WELL_KNOWN, at(30))]);
        // After a reload has removed a prefix, its state is deleted, and a late probe result is
        // ignored.
        assert_eq!(due(&mut probes, &[], at(31)), 0);
        probes.add(&Prefix::WELL_KNOWN, Probe::Answered, at(32));
        assert_eq!(probes.health(&Prefix::WELL_KNOWN, at(32)), (PrefixHealth::Unknown, at(32)));
        assert!(probes.unhealthy().is_empty());
    }

    #[test]
    fn a_reload_changes_the_threshold_and_keeps_health() {
        let mut probes = Probes::default();
        due(&mut probes, &[(Prefix::WELL_KNOWN, probe(5))], NOW);
        probes.add(&Prefix::WELL_KNOWN, Probe::Answered, NOW);
        due(&mut probes, &[(Prefix::WELL_KNOWN, probe(1))], NOW);
        assert_eq!(probes.health(&Prefix::WELL_KNOWN, NOW).0, PrefixHealth::Healthy);
        probes.add(&Prefix::WELL_KNOWN, Probe::Failed, NOW);
        assert_eq!(probes.health(&Prefix::WELL_KNOWN, NOW).0, PrefixHealth::Unhealthy);
    }
}
