//! The monotonic clock to measure, the wall clock only to label and to read kernel timestamps.

use method::units::Nanos;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

fn read(clock: ClockId) -> Nanos {
    let t = clock_gettime(clock).expect("Linux has these clocks");
    Nanos(t.tv_sec() as u64 * Nanos::SECOND.0 + t.tv_nsec() as u64)
}

/// This moment on the monotonic clock.
#[inline]
pub fn now() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// This moment on the wall clock, since 1970-01-01 UTC.
pub fn wall() -> Nanos {
    read(ClockId::CLOCK_REALTIME)
}

/// CPU time that the calling thread has used, in the kernel for it included.
pub fn thread_cpu_time() -> Nanos {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until `moment` of the monotonic clock; returns at once if that has passed. Signals do not
/// shorten it.
pub fn sleep_until(moment: Nanos) {
    let until =
        TimeSpec::new((moment.0 / Nanos::SECOND.0) as i64, (moment.0 % Nanos::SECOND.0) as i64);
    while let Err(nix::Error::EINTR) =
        clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until)
    {}
}

/// Lets the calling thread's sleeps end as exactly as the kernel's timers can (the default slack is
/// 50 µs). Returns whether the kernel agreed.
pub fn use_exact_timers() -> bool {
    nix::sys::prctl::set_timerslack(1).is_ok()
}

/// Both clocks at one moment, to convert kernel timestamps (wall clock) to the monotonic clock.
/// Taken anew for every batch, so that a step of the wall clock spoils one batch at the most.
#[derive(Clone, Copy, Debug)]
pub struct ClockPair {
    monotonic: Nanos,
    wall: Nanos,
}

impl ClockPair {
    /// Reads both clocks, again where something came between the two readings. The monotonic one is
    /// read last: what still came between makes a kernel timestamp later and a reply slower, never
    /// faster, than it was.
    #[inline]
    pub fn sample() -> ClockPair {
        let mut best = (Nanos(u64::MAX), ClockPair { monotonic: Nanos(0), wall: Nanos(0) });
        for _ in 0..5 {
            let before = now();
            let wall = wall();
            let monotonic = now();
            let between = monotonic.since(before);
            if between < best.0 {
                best = (between, ClockPair { monotonic, wall });
            }
            if between < Nanos(1_000) {
                break;
            }
        }
        best.1
    }

    /// The monotonic moment of this sample.
    pub fn monotonic(&self) -> Nanos {
        self.monotonic
    }

    /// The wall-clock moment of this sample.
    pub fn wall(&self) -> Nanos {
        self.wall
    }

    /// The wall-clock moment of one of the monotonic clock.
    #[inline]
    pub fn to_wall(self, monotonic: Nanos) -> Nanos {
        Nanos(self.wall.0.saturating_sub(self.monotonic.0.saturating_sub(monotonic.0)))
    }

    /// The monotonic moment of a kernel timestamp. A timestamp from after this sample (the wall
    /// clock was set back) counts as this sample's moment.
    #[inline]
    pub fn to_monotonic(self, kernel: Nanos) -> Nanos {
        Nanos(self.monotonic.0.saturating_sub(self.wall.0.saturating_sub(kernel.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_timestamps_convert_to_the_same_distance() {
        let pair = ClockPair { monotonic: Nanos(5_000), wall: Nanos(1_000_000) };
        assert_eq!(pair.to_monotonic(Nanos(999_000)), Nanos(4_000));
        assert_eq!(pair.to_monotonic(Nanos(1_000_500)), Nanos(5_000));
    }

    #[test]
    fn sleeping_does_not_end_early() {
        let until = now() + Nanos::from_millis(3);
        sleep_until(until);
        assert!(now() >= until);
        sleep_until(Nanos(1));
    }
}
