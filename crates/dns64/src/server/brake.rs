//! A known slowdown, for tests of comparisons (feature `three-percent-slower`): each turn of a
//! worker takes 3 % more CPU time.

use method::units::Nanos;
use net::clock::thread_cpu_time;

/// The part of the work's CPU time that is burnt besides: one of so many.
const PART: u64 = 33;

/// What slows a worker down.
pub(super) struct Brake {
    /// CPU time of the thread when it was last slowed down.
    last: Nanos,
}

impl Brake {
    /// For the calling thread.
    pub(super) fn new() -> Brake {
        Brake { last: thread_cpu_time() }
    }

    /// Burns a share of the CPU time that the thread has used since the last time.
    pub(super) fn slow_down(&mut self) {
        let now = thread_cpu_time();
        let until = now + Nanos(now.since(self.last).0 / PART);
        while thread_cpu_time() < until {
            std::hint::spin_loop();
        }
        self.last = thread_cpu_time();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_its_part_more() {
        let mut brake = Brake::new();
        let begin = brake.last;
        while thread_cpu_time() < begin + Nanos::from_millis(20) {
            std::hint::spin_loop();
        }
        let worked = thread_cpu_time().since(begin).0;
        brake.slow_down();
        let slowed = brake.last.since(begin).0;
        assert!(slowed >= worked + worked / PART, "{slowed} of {worked}");
    }
}
