//! Age of client datagrams in the receive queue of a socket.
//!
//! A worker that cannot keep up reads datagrams long after their arrival. A reply after the
//! client's retry is useless, and delays datagrams that could be answered in time. Datagrams older
//! than [`OLDEST`] are therefore dropped.
//!
//! ```text
//! idle ── datagrams left for BEHIND ──► watching ◄── datagram younger than YOUNG ──┐
//!   ▲                                   │  │                                       │
//!   └──── no datagrams left for CALM ───┘  └── datagram of age OLDEST ──► dropping ┘
//! ```
//!
//! Timestamps cost instructions for each datagram, in the kernel too, so they are enabled only
//! while a worker watches. For datagrams that were queued before, the timestamp is the time of
//! reading.

use units::Nanos;

/// Age at which a datagram is dropped. Clients retry after one second or later.
const OLDEST: Nanos = Nanos::SECOND;
/// Age below which dropping stops. Without this hysteresis every reply would be as old as
/// [`OLDEST`].
const YOUNG: Nanos = Nanos::from_millis(500);
/// Time for which datagrams must remain in the queue before a worker starts to watch their age.
const BEHIND: Nanos = Nanos::from_millis(100);
/// Time without datagrams left in the queue before a worker stops watching the age of datagrams.
const CALM: Nanos = Nanos(10 * Nanos::SECOND.0);

/// State of one socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    /// End of the first loop iteration that left datagrams in the queue. `None` if the last
    /// iteration emptied the queue.
    behind_since: Option<Nanos>,
    /// Time at which the worker stops watching the age of datagrams. `None` if it does not watch.
    watches_until: Option<Nanos>,
    drops: bool,
}

impl Lateness {
    /// True while the ages of datagrams are needed.
    #[inline]
    pub(super) fn is_watching(&self) -> bool {
        self.watches_until.is_some()
    }

    /// Records the end of a loop iteration. `is_empty` is true if the iteration emptied the queue.
    /// Returns true if timestamps are no longer needed.
    #[inline]
    pub(super) fn end_turn(&mut self, is_empty: bool, now: Nanos) -> bool {
        if is_empty {
            self.behind_since = None;
        } else if now.since(*self.behind_since.get_or_insert(now)) >= BEHIND {
            self.watches_until = Some(now + CALM);
        }
        self.watches_until.take_if(|until| now >= *until).is_some()
    }

    /// Returns the number of datagrams to drop at the start of a batch. The `ages` decrease from
    /// first to last, so only as many ages are read as necessary.
    pub(super) fn too_old(&mut self, ages: impl Iterator<Item = Nanos>) -> usize {
        let mut dropped = 0;
        for age in ages {
            self.drops = age >= if self.drops { YOUNG } else { OLDEST };
            if !self.drops {
                break;
            }
            dropped += 1;
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Nanos {
        Nanos::from_millis(milliseconds)
    }

    #[test]
    fn item_42_a_worker_watches_while_it_is_behind() {
        let mut lateness = Lateness::default();
        // A burst that is read within a few turns is not an overload, even after a long pause.
        for start in [1_000, 3_600_000] {
            for (is_empty, at) in [(false, 0), (false, 99), (true, 100), (false, 150)] {
                assert!(!lateness.end_turn(is_empty, ms(start + at)));
                assert!(!lateness.is_watching(), "{start} {at}");
            }
            assert!(!lateness.end_turn(true, ms(start + 160)));
        }
        let start = 4_000_000;
        assert!(!lateness.end_turn(false, ms(start)) && !lateness.end_turn(false, ms(start + 100)));
        assert!(lateness.is_watching());
        // The end of watching is computed from the last iteration that left datagrams in the queue.
        assert!(!lateness.end_turn(false, ms(start + 5_000)));
        assert!(!lateness.end_turn(true, ms(start + 14_999)) && lateness.is_watching());
        assert!(lateness.end_turn(true, ms(start + 15_000)) && !lateness.is_watching());
        assert!(!lateness.end_turn(true, ms(start + 15_001)), "ends once");
    }

    #[test]
    fn item_42_old_datagrams_are_dropped() {
        let mut lateness = Lateness::default();
        let mut dropped = |ages: &[u64]| lateness.too_old(ages.iter().map(|age| ms(*age)));
        assert_eq!(dropped(&[999, 998, 400]), 0);
        assert_eq!(dropped(&[1_000, 900, 501]), 3, "down to half of the limit");
        assert_eq!(dropped(&[]), 0);
        assert_eq!(dropped(&[500, 499, 400]), 1);
        assert_eq!(dropped(&[900]), 0, "dropping has ended");
        assert_eq!(dropped(&[5_000, 0]), 1);
    }

    /// An unlimited queue at twice the worker's capacity: dropping costs no reply, and every reply
    /// is younger than a client's retry.
    #[test]
    fn item_42_goodput_stays_at_capacity() {
        const CAPACITY: u64 = 1_000;
        let mut lateness = Lateness::default();
        let (mut first, mut served, mut oldest) = (0, 0, Nanos(0));
        for tick in 0..60 * CAPACITY {
            let now = Nanos(tick * Nanos::SECOND.0 / CAPACITY);
            let age = |n: u64| now.since(Nanos(n * Nanos::SECOND.0 / (2 * CAPACITY)));
            let arrived = 2 * tick;
            first += lateness.too_old((first..arrived).map(age)) as u64;
            if first < arrived {
                oldest = oldest.max(age(first));
                first += 1;
                served += 1;
            }
        }
        assert!(served >= 60 * CAPACITY - 1, "{served}");
        assert!(oldest < OLDEST, "{oldest:?}");
    }
}
