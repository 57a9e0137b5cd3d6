//! Times for which packets wait in a queueing discipline of a tester's host. The Measurer and AuthDNS share this code.

use method::reason::HostLoss;
use net::queueing::{Queueing, Waiting};
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::authdns::times::Times;

/// Waiting times of packets in one queueing discipline, including packets of other programs. The times are lower
/// bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Waits {
    /// Packets that have left the queueing discipline, counted by waiting time. Each pair consists of an upper bound in
    /// nanoseconds and a count.
    pub left: Times,
    /// Number of packets that are waiting in the queueing discipline now.
    pub waiting: u64,
    /// Time that the first of the waiting packets has waited, in nanoseconds.
    pub oldest: Nanos,
}

impl Waits {
    /// Adds the waiting times of a different queueing discipline.
    pub(crate) fn merge(&mut self, other: &Waits) {
        self.left.merge(&other.left);
        self.waiting += other.waiting;
        self.oldest = self.oldest.max(other.oldest);
    }

    /// Returns the waiting times that were recorded after `before` was read.
    pub(crate) fn since(&self, before: &Waits) -> Waits {
        Waits { left: self.left.since(&before.left), ..*self }
    }

    /// Returns true if no packet waited.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.count() == 0 && self.waiting == 0
    }

    /// Returns the packets that waited longer than `limit`; `None` if there are none.
    ///
    /// `interface` and `discipline` (the kind of the queueing discipline) are copied to the result.
    pub(crate) fn beyond(
        &self,
        limit: Nanos,
        interface: &str,
        discipline: Option<&str>,
    ) -> Option<HostLoss> {
        let longest = self.left.max().unwrap_or_default().max(self.oldest);
        let waiting = if self.oldest > limit { self.waiting } else { 0 };
        let packets = self.left.count() - self.left.count_below(limit) + waiting;
        (longest > limit && packets > 0).then(|| HostLoss::Waited {
            packets,
            longest,
            limit,
            discipline: discipline.map(Into::into),
            interface: interface.to_owned(),
        })
    }
}

/// Measures the waiting times of packets in one queueing discipline by repeated samples.
#[derive(Debug, Default)]
pub(crate) struct WaitWatch {
    waiting: Waiting,
    waits: Waits,
}

impl WaitWatch {
    /// Adds a sample of the queueing discipline's counters, taken at the time `now`.
    pub(crate) fn sample(&mut self, now: Nanos, queue: &Queueing) {
        let left = &mut self.waits.left;
        self.waiting.sample(now, queue, |time, packets| left.add_all(time, packets));
        self.waits.waiting = queue.waiting.into();
        self.waits.oldest = self.waiting.oldest();
    }

    /// Records that the queueing discipline, including its waiting packets, no longer exists.
    pub(crate) fn clear(&mut self) {
        self.waiting = Waiting::default();
        (self.waits.waiting, self.waits.oldest) = (0, Nanos(0));
    }

    /// Returns the waiting times of all packets so far.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Nanos = Nanos::from_millis(10);

    fn beyond(waits: &Waits) -> Option<(u64, u64)> {
        match waits.beyond(LIMIT, "to-dut", Some("tbf"))? {
            HostLoss::Waited { packets, longest, .. } => Some((packets, longest.0 / 1_000_000)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn packets_count_if_they_waited_beyond_the_limit() {
        let mut waits = Waits::default();
        waits.left.add_all(Nanos::from_millis(5), 100);
        waits.waiting = 7;
        assert_eq!(beyond(&waits), None);
        waits.oldest = Nanos::from_millis(40);
        assert_eq!(beyond(&waits), Some((7, 40)), "a queue that nothing leaves");
        let before = waits.clone();
        waits.left.add_all(Nanos::from_millis(320), 3);
        let (packets, longest) = beyond(&waits).unwrap();
        assert!(packets == 10 && longest.abs_diff(320) <= 4, "{packets} {longest}");
        waits.oldest = Nanos(0);
        assert_eq!(beyond(&waits.since(&before)).unwrap().0, 3);
        assert_eq!(beyond(&waits.since(&waits)), None);
    }

    #[test]
    fn a_full_queue_shows_in_its_counters() {
        let mut watch = WaitWatch::default();
        for number in 1..=4u32 {
            let queue = Queueing {
                left: u64::from(number) * 100,
                packets: number,
                backlog: 500,
                waiting: 5,
                ..Queueing::default()
            };
            watch.sample(Nanos::from_millis(20 * u64::from(number)), &queue);
        }
        assert_eq!(watch.waits().oldest, Nanos::from_millis(60));
        assert_eq!(beyond(watch.waits()).unwrap().1, 60);
        assert!(!watch.waits().is_empty() && Waits::default().is_empty());
    }
}
