//! Whether a NAT64 works, from probes through its prefix.
//!
//! ```text
//!             threshold failures in a row
//! Unknown ──┬─────────────────────────────► Unhealthy
//!           │  a success       ▲              │
//!           └────────► Healthy ┘ ◄────────────┘ threshold successes in a row
//! ```
//!
//! A probe that this host cannot even send, because it has no route to the prefix for example, says
//! nothing: the clients' way is another one.

/// What is known of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PrefixHealth {
    /// Nothing, or nothing that counts.
    #[default]
    Unknown,
    /// Probes are answered.
    Healthy,
    /// They are not.
    Unhealthy,
}

impl PrefixHealth {
    /// As metrics and logs have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PrefixHealth::Unknown => "unknown",
            PrefixHealth::Healthy => "healthy",
            PrefixHealth::Unhealthy => "unhealthy",
        }
    }
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Somebody has answered, be it with a refusal: the way is there.
    Answered,
    /// Nobody has, in time; or the network says that there is no way.
    Failed,
    /// This host has no route to the prefix, or no address, port, file descriptor or leave of its
    /// own packet filter to ask.
    NotSent,
}

/// The probes of one prefix so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    health: PrefixHealth,
    /// Probes in a row that speak against `health`.
    against: u32,
    /// How many of them change it, 1 at the least.
    threshold: u32,
}

impl Record {
    /// Nothing is known yet; `threshold` probes in a row change what is.
    pub(crate) fn new(threshold: u32) -> Record {
        Record { health: PrefixHealth::Unknown, against: 0, threshold: threshold.max(1) }
    }

    /// So many probes in a row change what is known, from now on.
    pub(crate) fn set_threshold(&mut self, threshold: u32) {
        self.threshold = threshold.max(1);
    }

    /// What is known.
    pub(crate) fn health(&self) -> PrefixHealth {
        self.health
    }

    /// One more probe; whether it changes what is known.
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
        // One success is enough where nothing is known.
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
    fn only_several_probes_in_a_row_change_what_is_known() {
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
    fn a_host_without_a_route_knows_nothing() {
        assert_eq!(after(2, &[Answered, NotSent]), Unknown);
        assert_eq!(after(2, &[Failed, Failed, NotSent, Failed]), Unknown);
        assert_eq!(after(1, &[NotSent; 5]), Unknown);
    }
}
