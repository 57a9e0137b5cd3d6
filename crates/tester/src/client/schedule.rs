//! When a ramp's queries are due, and what ends it.
//!
//! ```text
//! rate  max ┤      ┌────────        query i is due at √(2·i·r/m) while the rate grows to m over r seconds,
//!           │    ／                 and every 1/m after that
//!           │  ／
//!         0 └──────┼───────┼─► t
//!                  r      r + c
//! ```

use method::units::{Nanos, Qps};
use serde::Serialize;

/// A rate that grows from 0 in proportion to the time, and then stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// The highest rate, at the end of the growing.
    pub max: Qps,
    /// How long the rate grows.
    pub growing: Nanos,
    /// How long it stays after that.
    pub constant: Nanos,
}

impl Ramp {
    /// How long queries are sent.
    pub fn length(&self) -> Nanos {
        self.growing + self.constant
    }

    /// The rate at a moment after the start.
    pub fn rate(&self, moment: Nanos) -> f64 {
        let share =
            if moment < self.growing { moment.0 as f64 / self.growing.0 as f64 } else { 1.0 };
        self.max.0 as f64 * share
    }

    /// How many queries are due up to a moment, as a number with its fraction.
    pub fn area(&self, moment: Nanos) -> f64 {
        let (t, r, m) = (
            moment.min(self.length()).as_secs_f64(),
            self.growing.as_secs_f64(),
            self.max.0 as f64,
        );
        if t < r { m * t * t / (2.0 * r) } else { m * r / 2.0 + m * (t - r) }
    }

    /// How many queries are due up to a moment after the start.
    pub fn due(&self, moment: Nanos) -> u64 {
        self.area(moment) as u64
    }

    /// When query `i` is due after the start.
    pub fn deadline(&self, i: u64) -> Nanos {
        // The first query is due when the area has reached 1.
        let (n, r, m) = ((i + 1) as f64, self.growing.as_secs_f64(), self.max.0 as f64);
        let growing = m * r / 2.0;
        let seconds = if n <= growing { (2.0 * n * r / m).sqrt() } else { r + (n - growing) / m };
        Nanos((seconds * 1e9) as u64)
    }
}

/// Why the sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The time was over.
    Time,
    /// Too many queries in flight.
    Outstanding {
        /// How many queries were in flight.
        queries: usize,
    },
    /// The tester could not keep up.
    Behind {
        /// By how many queries.
        queries: u64,
        /// The rate then, in queries per second.
        rate: f64,
    },
    /// There were no more questions.
    NoMore {
        /// The rate then, in queries per second.
        rate: f64,
    },
    /// The user wants to stop.
    Interrupted,
    /// Another thread ended it.
    Other,
}

/// What a ramp tells while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Status {
    /// The rate has reached its maximum and stays.
    Plateau,
    /// The sending has ended.
    Ended(Ending),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn deadlines_and_dues_agree(max in 1u64..1_000_000, growing in 0u64..100_000, constant in 0u64..100_000, i in 0u64..1_000_000) {
            let ramp = Ramp { max: Qps(max), growing: Nanos::from_millis(growing), constant: Nanos::from_millis(constant) };
            let deadline = ramp.deadline(i);
            prop_assume!(deadline + Nanos(1_000) < ramp.length());
            // A microsecond for the rounding of the square root.
            prop_assert!(ramp.due(deadline + Nanos(1_000)) > i);
            prop_assert!(ramp.due(Nanos(deadline.0.saturating_sub(1_000))) <= i);
            prop_assert!(ramp.deadline(i + 1) >= deadline);
        }
    }

    #[test]
    fn the_ramp_of_the_manual() {
        let ramp =
            Ramp { max: Qps(100_000), growing: Nanos(60 * Nanos::SECOND.0), constant: Nanos(0) };
        assert_eq!(ramp.due(ramp.length()), 3_000_000);
        assert_eq!(ramp.rate(Nanos(30 * Nanos::SECOND.0)), 50_000.0);
        assert_eq!(
            ramp.due(Nanos(90 * Nanos::SECOND.0)),
            3_000_000,
            "nothing is due after the end"
        );
    }
}
