//! A known slowdown, for tests of comparisons (feature `three-percent-slower`): each turn of a worker takes 3 % more CPU time.

use nix::time::{ClockId, clock_gettime};

/// The part of the work's CPU time that is burnt besides: one of so many.
const PART: u64 = 33;

/// What slows a worker down.
pub(super) struct Brake {
    /// CPU time of the thread when it was last slowed down, nanoseconds.
    last: u64,
}

impl Brake {
    /// For the calling thread.
    pub(super) fn new() -> Brake {
        Brake { last: cpu_time() }
    }

    /// Burns a share of the CPU time that the thread has used since the last time.
    pub(super) fn slow_down(&mut self) {
        let now = cpu_time();
        let until = now + (now - self.last) / PART;
        while cpu_time() < until {
            std::hint::spin_loop();
        }
        self.last = cpu_time();
    }
}

/// CPU time of the calling thread, nanoseconds.
fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_its_part_more() {
        let mut brake = Brake::new();
        let begin = brake.last;
        while cpu_time() < begin + 20_000_000 {
            std::hint::spin_loop();
        }
        let worked = cpu_time() - begin;
        brake.slow_down();
        assert!(brake.last - begin >= worked + worked / PART, "{} of {worked}", brake.last - begin);
    }
}
