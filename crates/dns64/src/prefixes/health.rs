//! Health of a NAT64, as determined by probes to addresses in its prefix.
//!
//! ```text
//!             threshold failures in a row
//! Unknown ──┬─────────────────────────────► Unhealthy
//!           │  a success       ▲              │
//!           └────────► Healthy ┘ ◄────────────┘ threshold successes in a row
//! ```
//!
//! If this host cannot send a probe, for example because it has no route to the prefix, the health
//! becomes unknown. Even then, clients may have a working path to the NAT64.

/// Health of the NAT64 behind a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PrefixHealth {
    /// The health has not been determined yet, or the last probe could not be sent.
    #[default]
    Unknown,
    /// Healthy: probes to addresses in the prefix are answered.
    Healthy,
    /// Unhealthy: probes to addresses in the prefix are not answered.
    Unhealthy,
}

impl PrefixHealth {
    /// Returns the name of the health state in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PrefixHealth::Unknown => "unknown",
            PrefixHealth::Healthy => "healthy",
            PrefixHealth::Unhealthy => "unhealthy",
        }
    }
}

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The probe was answered. If the target refused the connection, the probe also counts as
    /// answered, because the path works.
    Answered,
    /// The probe timed out, or the network reported that there is no path.
    Failed,
    /// The probe was not sent, because this host lacks a route, address, port or file descriptor, or
    /// because the packet filter of this host blocks the probe.
    NotSent,
}

/// Probe history of one prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    health: PrefixHealth,
    /// Number of consecutive probes that contradict the current health.
    against: u32,
    /// Number of consecutive probes that must contradict the current health before it changes; at least 1.
    threshold: u32,
}

impl Record {
    /// Returns a probe history without results. The health changes after `threshold` consecutive probes that contradict
    /// it.
    pub(crate) fn new(threshold: u32) -> Record {
        Record { health: PrefixHealth::Unknown, against: 0, threshold: threshold.max(1) }
    }

    /// Sets the number of consecutive probes that must contradict the health before it changes. The new number applies
    /// to later probes.
    pub(crate) fn set_threshold(&mut self, threshold: u32) {
        self.threshold = threshold.max(1);
    }

    /// Returns the current health.
    pub(crate) fn health(&self) -> PrefixHealth {
        self.health
    }

    /// Adds a probe result. Returns true if the health changes.
    pub(crate) fn add(&mut self, probe: Probe) -> bool {
        let before = self.health;
        let found = match probe {
            Probe::Answered => PrefixHealth::Healthy,
            Probe::Failed => PrefixHealth::Unhealthy,
            Probe::NotSent => {
                (self.health, self.against) = (PrefixHealth::Unknown, 0);
                return before != PrefixHealth::Unknown;
            }
        };
        if found == self.health {
            self.against = 0;
            return false;
        }
        self.against += 1;
        // If the health is unknown, one success is enough.
        let is_first = self.health == PrefixHealth::Unknown && found == PrefixHealth::Healthy;
        if is_first || self.against >= self.threshold {
            (self.health, self.against) = (found, 0);
        }
        self.health != before
    }
}

#[cfg(test)]
mod tests {
    use super::PrefixHealth::{Healthy, Unhealthy, Unknown};
    use super::Probe::{Answered, Failed, NotSent};
    use super::*;

    fn after(threshold: u32, probes: &[Probe]) -> PrefixHealth {
        let mut record = Record::new(threshold);
        for &probe in probes {
            let before = record.health();
            assert_eq!(record.add(probe), before != record.health());
        }
        record.health()
    }

    #[test]
    fn only_consecutive_probes_change_the_health() {
        assert_eq!(after(3, &[]), Unknown);
        assert_eq!(after(3, &[Answered]), Healthy);
        assert_eq!(after(3, &[Failed, Failed]), Unknown);
        assert_eq!(after(3, &[Failed; 3]), Unhealthy);
        assert_eq!(after(3, &[Answered, Failed, Failed, Answered, Failed, Failed]), Healthy);
        assert_eq!(after(3, &[Answered, Failed, Failed, Failed]), Unhealthy);
        assert_eq!(after(2, &[Failed, Failed, Answered, Failed, Answered]), Unhealthy);
        assert_eq!(after(2, &[Failed, Failed, Answered, Answered]), Healthy);
        assert_eq!(after(0, &[Failed]), Unhealthy);
    }

    #[test]
    fn probes_that_were_not_sent_are_ignored() {
        assert_eq!(after(2, &[Answered, NotSent]), Unknown);
        assert_eq!(after(2, &[Failed, Failed, NotSent, Failed]), Unknown);
        assert_eq!(after(1, &[NotSent; 5]), Unknown);
    }
}
