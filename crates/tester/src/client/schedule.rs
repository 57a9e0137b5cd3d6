//! Send times of a ramp's queries, and conditions for its end.
//!
//! ```text
//! rate  max ┤      ┌────────        query i is due at √(2·i·r/m) while the rate grows to m over r seconds,
//!           │    ／                 and every 1/m after that
//!           │  ／
//!         0 └──────┼───────┼─► t
//!                  r      r + c
//! ```

use serde::Serialize;
use units::{Nanos, Qps};

/// A rate that grows linearly from 0, and then stays constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// Maximum rate, which is reached when the growth ends.
    pub max: Qps,
    /// Time during which the rate grows.
    pub growing: Nanos,
    /// Time during which the rate is constant, after it has reached its maximum.
    pub constant: Nanos,
}

impl Ramp {
    /// Returns the duration of sending.
    pub fn length(&self) -> Nanos {
        self.growing + self.constant
    }

    /// Returns the rate at a time after the start.
    pub fn rate(&self, moment: Nanos) -> f64 {
        let share =
            if moment < self.growing { moment.0 as f64 / self.growing.0 as f64 } else { 1.0 };
        self.max.0 as f64 * share
    }

    /// Returns the integral of the rate up to a time after the start. This integral is the number of queries due,
    /// including a fraction of the next query.
    pub fn area(&self, moment: Nanos) -> f64 {
        let (t, r, m) = (
            moment.min(self.length()).as_secs_f64(),
            self.growing.as_secs_f64(),
            self.max.0 as f64,
        );
        if t < r { m * t * t / (2.0 * r) } else { m * r / 2.0 + m * (t - r) }
    }

    /// Returns the number of queries due up to a time after the start.
    pub fn due(&self, moment: Nanos) -> u64 {
        self.area(moment) as u64
    }

    /// Returns the send time of query `i`, measured from the start.
    pub fn deadline(&self, i: u64) -> Nanos {
        // The first query is due when the integral of the rate has reached 1.
        let (n, r, m) = ((i + 1) as f64, self.growing.as_secs_f64(), self.max.0 as f64);
        let growing = m * r / 2.0;
        let seconds = if n <= growing { (2.0 * n * r / m).sqrt() } else { r + (n - growing) / m };
        Nanos((seconds * 1e9) as u64)
    }
}

/// Reason why sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Sending ended because the planned time was over.
    Time,
    /// Sending ended because too many queries were in flight.
    Outstanding {
        /// Number of queries in flight.
        queries: usize,
    },
    /// Sending ended because the tester was too slow.
    Behind {
        /// Number of queries that are due but have not been sent.
        queries: u64,
        /// Current rate in queries per second.
        rate: f64,
    },
    /// Sending ended because there were no more queries.
    NoMore {
        /// Current rate in queries per second.
        rate: f64,
    },
    /// The user interrupted the ramp.
    Interrupted,
    /// Another thread ended the ramp.
    Other,
}

/// Status of a running ramp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Status {
    /// The rate has reached its maximum and stays constant.
    Plateau,
    /// Sending has ended.
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
            // A microsecond is allowed for the rounding of the square root.
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
