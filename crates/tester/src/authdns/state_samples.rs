//! Samples of state that the kernel of AuthDNS's host does not count: packets waiting in a queueing discipline, and
//! neighbours without a link-layer address. Samples are taken every 20 ms after the status was first read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use net::clock;
use net::neighbour::{Neighbours, all_discards};
use net::queueing::{Disciplines, Queueing};
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::waits::{WaitWatch, Waits};

/// Sampling interval.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// A neighbour that was unresolved while packets waited for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UnresolvedNeighbour {
    /// Interface through which the neighbour is reached.
    pub interface: String,
    /// Address of the neighbour.
    pub address: IpAddr,
    /// Time for which the neighbour's link-layer address was unknown, in nanoseconds.
    pub unresolved: Nanos,
}

impl UnresolvedNeighbour {
    /// Returns true if `other` is the same neighbour.
    pub(super) fn is(&self, other: &UnresolvedNeighbour) -> bool {
        self.address == other.address && self.interface == other.interface
    }
}

/// Samples of the queues and neighbours on a server's interfaces.
#[derive(Default)]
pub(super) struct StateSamples {
    queues: BTreeMap<String, WaitWatch>,
    disciplines: Option<Disciplines>,
    neighbours: Option<Neighbours>,
    unresolved: Vec<UnresolvedNeighbour>,
    /// Packets dropped from the queues of unresolved neighbours.
    neighbour_drops: u64,
    /// Last value of the kernel's counter of packets that were dropped for unresolved neighbours.
    discards: Option<u64>,
    last_sample: Nanos,
}

impl StateSamples {
    /// Samples the neighbours on `interfaces`. If packets can wait in at least one of the queueing disciplines
    /// `queueing`, also samples all queueing disciplines of this host.
    pub(super) fn sample<'a>(
        &mut self,
        queueing: impl Iterator<Item = &'a Queueing>,
        interfaces: impl Iterator<Item = &'a String>,
    ) {
        let now = clock::now();
        let mut seen = None;
        if queueing.into_iter().any(Queueing::can_hold) {
            self.disciplines = self.disciplines.take().or_else(|| Disciplines::open().ok());
            seen = self.disciplines.as_mut().and_then(|open| open.sample().ok());
        }
        self.add_queues(now, &seen.unwrap_or_default());
        let interfaces: Vec<&String> = interfaces.collect();
        self.neighbours = self.neighbours.take().or_else(|| Neighbours::open().ok());
        let unresolved = self.neighbours.as_mut().and_then(|open| open.unresolved().ok());
        let mut unresolved = unresolved.unwrap_or_default();
        unresolved.retain(|(interface, _)| interfaces.contains(&interface));
        // The counter covers all neighbours of the host, so it is read only while a neighbour of `interfaces` is
        // unresolved.
        let discards = if unresolved.is_empty() { None } else { all_discards() };
        self.add_neighbours(now, unresolved, discards);
    }

    /// Reads the kernel's counter of packets dropped for unresolved neighbours. Later samples count from this value.
    pub(super) fn note_discards(&mut self) {
        self.discards = all_discards();
    }

    fn add_queues(&mut self, now: Nanos, seen: &[Queueing]) {
        let holds = |queue: &&Queueing| queue.can_hold();
        for (name, watch) in &mut self.queues {
            if !seen.iter().filter(holds).any(|queue| queue.interface == *name) {
                watch.clear();
            }
        }
        for queue in seen.iter().filter(holds) {
            self.queues.entry(queue.interface.clone()).or_default().sample(now, queue);
        }
    }

    fn add_neighbours(
        &mut self,
        now: Nanos,
        unresolved: Vec<(String, IpAddr)>,
        discards: Option<u64>,
    ) {
        // There is no previous sample before the first one, so no time has passed.
        let since_last =
            if self.last_sample == Nanos(0) { Nanos(0) } else { now.since(self.last_sample) };
        for (interface, address) in unresolved {
            let found = UnresolvedNeighbour { interface, address, unresolved: since_last };
            match self.unresolved.iter_mut().find(|one| one.is(&found)) {
                Some(one) => one.unresolved = one.unresolved + since_last,
                None => self.unresolved.push(found),
            }
        }
        if let Some(now) = discards {
            self.neighbour_drops += now.saturating_sub(self.discards.unwrap_or(now));
            self.discards = Some(now);
        }
        self.last_sample = now;
    }

    /// Returns the waiting times of packets in the queueing discipline of an interface, since sampling began.
    pub(super) fn waits(&self, interface: &str) -> Waits {
        self.queues.get(interface).map(|watch| watch.waits().clone()).unwrap_or_default()
    }

    /// Returns all neighbours that were unresolved in any sample.
    pub(super) fn unresolved(&self) -> Vec<UnresolvedNeighbour> {
        self.unresolved.clone()
    }

    /// Returns the number of packets that queues of unresolved neighbours have dropped; `None` if the kernel's counter
    /// cannot be read.
    pub(super) fn neighbour_drops(&self) -> Option<u64> {
        self.discards.map(|_| self.neighbour_drops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn unresolved_time_and_discards_add_up() {
        let mut state_samples =
            StateSamples { last_sample: at(100), discards: Some(7), ..StateSamples::default() };
        let dut = || ("to-dut".to_owned(), IpAddr::from([198, 18, 0, 1]));
        state_samples.add_neighbours(at(120), Vec::new(), None);
        assert_eq!(
            (state_samples.unresolved(), state_samples.neighbour_drops()),
            (vec![], Some(0))
        );
        state_samples.add_neighbours(at(140), vec![dut()], Some(9));
        state_samples.add_neighbours(at(165), vec![dut()], Some(29));
        state_samples.add_neighbours(at(185), Vec::new(), None);
        let (interface, address) = dut();
        let found = UnresolvedNeighbour { interface, address, unresolved: at(45) };
        assert_eq!(
            (state_samples.unresolved(), state_samples.neighbour_drops()),
            (vec![found], Some(22))
        );
    }

    #[test]
    fn only_disciplines_that_hold_packets_have_waits() {
        let mut state_samples = StateSamples::default();
        let queue = |kind: &str, waiting| Queueing {
            interface: "to-dut".into(),
            kind: kind.into(),
            backlog: waiting * 100,
            waiting,
            ..Queueing::default()
        };
        state_samples.add_queues(at(20), &[queue("noqueue", 0)]);
        assert!(state_samples.waits("to-dut").is_empty());
        state_samples.add_queues(at(40), &[queue("tbf", 3)]);
        state_samples.add_queues(at(60), &[queue("tbf", 4)]);
        let waits = state_samples.waits("to-dut");
        assert_eq!((waits.waiting, waits.oldest), (4, at(20)));
        assert!(state_samples.waits("eth9").is_empty());
        // The discipline is removed, with its packets, and a different discipline is installed.
        state_samples.add_queues(at(80), &[queue("noqueue", 0)]);
        assert!(state_samples.waits("to-dut").is_empty());
        state_samples.add_queues(at(100), &[queue("tbf", 2)]);
        assert_eq!(state_samples.waits("to-dut").oldest, at(0));
    }
}
