//! Age of client datagrams in the receive queue of a socket.
//!
//! A worker that cannot keep up reads datagrams long after their arrival. If the client has already retried, a reply is
//! useless. The time spent on it delays datagrams that could be answered in time. During overload, datagrams are
//! therefore dropped in two places:
//!
//! - The kernel drops arriving datagrams at random, so that the oldest one in the queue has an age of about [`TARGET`].
//!   The drop probability is controlled as in PIE (RFC 8033 §4.2). This saves the CPU time of reading a datagram that
//!   is dropped.
//! - The worker drops datagrams older than [`OLDEST`].
//!
//! ```text
//! idle ── datagrams left for BEHIND ──► watching ◄── datagram younger than YOUNG ──┐
//!   ▲                                   │  │                                       │
//!   └──── no datagrams left for CALM ───┘  └── datagram of age OLDEST ──► dropping ┘
//! ```
//!
//! Timestamps cost instructions for each datagram, in the kernel too. They are therefore enabled only while a worker
//! watches the age. For a datagram that was queued before timestamps were enabled, the timestamp is the time at which
//! the worker reads it.

use units::{Nanos, Share};

/// Age at which a worker drops a datagram. Clients wait at least one second before they retry.
const OLDEST: Nanos = Nanos::SECOND;
/// Age limit of a worker that already drops datagrams. The worker stops dropping at the first datagram below this age.
/// If the limit were [`OLDEST`], the worker would answer queries only slightly younger than that, and every reply would
/// be late.
const YOUNG: Nanos = Nanos::from_millis(500);
/// Time for which datagrams must remain in the queue before a worker starts to watch their age.
const BEHIND: Nanos = Nanos::from_millis(100);
/// Time for which a worker continues to watch the age of datagrams after a backlog that lasted at least [`BEHIND`]. A
/// backlog is a period in which every loop iteration leaves datagrams in the queue.
const CALM: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Intended age of the oldest datagram in the queue. The drop probability is adjusted to reach this age.
const TARGET: Nanos = Nanos::from_millis(50);
/// Minimum time between two changes of the drop probability (`T_UPDATE` of RFC 8033).
const INTERVAL: Nanos = Nanos::from_millis(20);
/// Change of the drop probability for each second by which the age differs from [`TARGET`] (`alpha` of RFC 8033).
const OFFSET_GAIN: f64 = 0.5;
/// Change of the drop probability for each second by which the age has grown (`beta` of RFC 8033).
const GROWTH_GAIN: f64 = 2.5;
/// Largest single change of the drop probability.
const MOST_CHANGE: f64 = 0.1;
/// Highest drop probability.
const MOST_DROPPED: f64 = 0.9;

/// Change to the options of a client socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// New probability with which the kernel drops an arriving datagram.
    Drop(Share),
    /// Disable timestamps, because they are no longer needed.
    StopTimestamps,
}

/// Age of the datagrams in the queue of one socket, and the drop probability.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    /// Start of the current backlog: since this time, every loop iteration has left datagrams in the queue. `None` if
    /// the last iteration emptied the queue.
    behind_since: Option<Nanos>,
    /// Time at which the worker stops watching the age of datagrams. `None` while the worker does not watch the age.
    watches_until: Option<Nanos>,
    /// True while the worker drops datagrams older than [`YOUNG`].
    drops: bool,
    /// Age of the oldest datagram that remained in the last batch after the worker had dropped old datagrams.
    age: Nanos,
    /// Age of the oldest datagram at the last change of the drop probability.
    age_before: Nanos,
    /// Earliest time of the next change of the drop probability.
    next_change: Nanos,
    /// Probability with which the kernel drops an arriving datagram, from 0 to [`MOST_DROPPED`].
    share: f64,
}

impl Lateness {
    /// True while the worker watches the ages of datagrams.
    #[inline]
    pub(super) fn is_watching(&self) -> bool {
        self.watches_until.is_some()
    }

    /// Records the end of a loop iteration. `is_empty` is true if the iteration emptied the queue. Returns a change to
    /// the socket's options if one is necessary.
    #[inline]
    pub(super) fn end_turn(&mut self, is_empty: bool, now: Nanos) -> Option<Change> {
        if is_empty {
            self.behind_since = None;
            if self.share > 0.0 {
                (self.share, self.age, self.age_before) = (0.0, Nanos(0), Nanos(0));
                return Some(Change::Drop(Share::ZERO));
            }
        } else if now.since(*self.behind_since.get_or_insert(now)) >= BEHIND {
            self.watches_until = Some(now + CALM);
            return self.control(now);
        }
        self.watches_until.take_if(|until| now >= *until).map(|_| Change::StopTimestamps)
    }

    /// Adjusts the drop probability, if an adjustment is due.
    #[cold]
    fn control(&mut self, now: Nanos) -> Option<Change> {
        if now < self.next_change {
            return None;
        }
        self.next_change = now + INTERVAL;
        let [target, age, before] =
            [TARGET, self.age, self.age_before].map(|age| age.as_secs_f64());
        self.age_before = self.age;
        let change = OFFSET_GAIN * (age - target) + GROWTH_GAIN * (age - before);
        let share = self.share + change.clamp(-MOST_CHANGE, MOST_CHANGE);
        self.share = share.clamp(0.0, MOST_DROPPED);
        Some(Change::Drop(Share::percent((100.0 * self.share) as u8)))
    }

    /// Returns the number of datagrams to drop at the start of a batch. The oldest datagram comes first in `ages`, so
    /// the function stops at the first datagram that is not too old.
    pub(super) fn too_old(&mut self, ages: impl Iterator<Item = Nanos>) -> usize {
        let mut dropped = 0;
        for age in ages {
            self.drops = age >= if self.drops { YOUNG } else { OLDEST };
            if !self.drops {
                self.age = age;
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
        // A burst that is read within a few loop iterations is not an overload, even after a long pause.
        for start in [1_000, 3_600_000] {
            for (is_empty, at) in [(false, 0), (false, 99), (true, 100), (false, 150)] {
                assert_eq!(lateness.end_turn(is_empty, ms(start + at)), None);
                assert!(!lateness.is_watching(), "{start} {at}");
            }
            assert_eq!(lateness.end_turn(true, ms(start + 160)), None);
        }
        let start = 4_000_000;
        for at in [0, 100] {
            assert_ne!(lateness.end_turn(false, ms(start + at)), Some(Change::StopTimestamps));
        }
        assert!(lateness.is_watching());
        // The end of watching is computed from the last iteration that left datagrams in the queue.
        lateness.end_turn(false, ms(start + 5_000));
        assert_eq!(lateness.end_turn(true, ms(start + 14_999)), None);
        assert!(lateness.is_watching());
        assert_eq!(lateness.end_turn(true, ms(start + 15_000)), Some(Change::StopTimestamps));
        assert!(!lateness.is_watching());
        assert_eq!(lateness.end_turn(true, ms(start + 15_001)), None, "ends once");
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

    #[test]
    fn item_42_an_empty_queue_ends_drops_in_the_kernel() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.end_turn(false, ms(0)), None);
        lateness.too_old([ms(60)].into_iter());
        assert_eq!(lateness.end_turn(false, ms(100)), Some(Change::Drop(Share::percent(10))));
        assert_eq!(lateness.end_turn(false, ms(119)), None, "not yet time");
        lateness.too_old([ms(70)].into_iter());
        assert_eq!(lateness.end_turn(false, ms(120)), Some(Change::Drop(Share::percent(13))));
        lateness.too_old([ms(60)].into_iter());
        assert_eq!(lateness.end_turn(false, ms(140)), Some(Change::Drop(Share::percent(11))));
        assert_eq!(lateness.end_turn(true, ms(141)), Some(Change::Drop(Share::ZERO)));
        assert_eq!(lateness.end_turn(true, ms(142)), None);
    }

    /// An unlimited queue at twice the worker's capacity, without drops in the kernel: dropping costs
    /// no reply, and every reply is younger than a client's retry.
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

    /// Simulates loads above the worker's capacity. Dropping a datagram takes the worker a quarter
    /// of the time of an answer, and the receive buffer is unlimited. Goodput stays near the
    /// capacity, and answers are younger than a client's retry.
    #[test]
    fn item_42_goodput_if_drops_cost_time() {
        /// Answers per second.
        const CAPACITY: u64 = 1_000;
        /// Time needed to drop a datagram.
        const TICK: Nanos = Nanos(Nanos::SECOND.0 / CAPACITY / 4);
        const SECONDS: u64 = 60;
        for load in [1.1, 1.5, 2.0, 4.0, 8.0] {
            let mut lateness = Lateness::default();
            let mut queue = std::collections::VecDeque::new();
            let (mut share, mut arrived, mut admitted) = (Share::ZERO, 0, 0.0);
            let (mut served, mut busy_until) = (0, Nanos(0));
            for tick in 0..4 * CAPACITY * SECONDS {
                let now = Nanos(tick * TICK.0);
                let due = (load * now.as_secs_f64() * CAPACITY as f64) as u64;
                while arrived < due {
                    arrived += 1;
                    admitted += 1.0 - share.fraction();
                    if admitted >= 1.0 {
                        admitted -= 1.0;
                        queue.push_back(now);
                    }
                }
                if now < busy_until {
                    continue;
                }
                let late = lateness.too_old(queue.iter().map(|at| now.since(*at)));
                queue.drain(..late);
                busy_until = now + Nanos(late as u64 * TICK.0);
                if let Some(at) = queue.pop_front() {
                    assert!(now.since(at) < OLDEST);
                    served += 1;
                    busy_until = busy_until + Nanos(4 * TICK.0);
                }
                if let Some(Change::Drop(new)) = lateness.end_turn(queue.is_empty(), now) {
                    share = new;
                }
            }
            assert!(served >= SECONDS * CAPACITY * 97 / 100, "{load}: {served}");
        }
    }
}
