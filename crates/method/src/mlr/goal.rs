//! Attributes of a search goal (RFC 9971, "Search Goal").

use serde::{Deserialize, Serialize};

use units::{Nanos, Qps};

/// A search goal.
///
/// If `loss_ratio` and `exceed_ratio` are 0 and one trial of the final duration is sufficient, the goal is that of
/// RFC 8219 §9.2 and RFC 2544 §26.1 ([`Goal::rfc8219`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Goal {
    /// A trial counts as low loss if the fraction of its queries without a valid reply is at most this value. The value
    /// is at least 0 and less than 1.
    pub loss_ratio: f64,
    /// A load can be a lower bound only if the total duration of its trials with high loss is at most this fraction of
    /// the duration sum. The value is at least 0 and less than 1.
    pub exceed_ratio: f64,
    /// Maximum distance between the bounds at the end of the search, relative to the upper bound; more than 0 and less
    /// than 1.
    pub width: f64,
    /// Duration of the first trials; more than 0.
    pub initial_duration: Nanos,
    /// Duration of a full-length trial; at least the initial duration.
    pub final_duration: Nanos,
    /// Total duration of the trials that classify a load; at least the final duration.
    pub duration_sum: Nanos,
}

/// Reasons why a goal is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GoalError {
    /// No goal was given.
    #[error("there is no goal to search for; give at least one")]
    NoGoal,
    /// A ratio is negative, or it is 1 or more.
    #[error("the {what} of a goal is {given}; it must be at least 0 and below 1")]
    Ratio {
        /// Name of the ratio, for use in the error message.
        what: &'static str,
        /// Value that was given for the ratio.
        given: f64,
    },
    /// The width is not between 0 and 1.
    #[error("the width of a goal is {0}; it must be above 0 and below 1")]
    Width(f64),
    /// The initial duration is 0, the final duration is shorter than the initial duration, or [`Goal::duration_sum`] is
    /// shorter than the final duration.
    #[error(
        "the durations of a goal are {initial} s at first, {last} s in the end and {sum} s in sum; each must be above 0 and at \
         least as long as the one before"
    )]
    Durations {
        /// Initial duration in seconds.
        initial: f64,
        /// Final duration in seconds.
        last: f64,
        /// Duration sum in seconds.
        sum: f64,
    },
    /// The lowest rate is 0 or above the highest rate.
    #[error(
        "the lowest rate is {min} and the highest {max} queries/s; the lowest must be at least 1 and no more than the highest"
    )]
    Range {
        /// Lowest rate in queries per second.
        min: Qps,
        /// Highest rate in queries per second.
        max: Qps,
    },
}

impl Goal {
    /// Returns the goal of RFC 8219 §9.2: in one trial that lasts `duration`, every query gets a valid reply. The
    /// shorter trials that precede this trial last at least one second, or `duration` if that is less than a second.
    pub fn rfc8219(duration: Nanos, width: f64) -> Goal {
        let initial_duration = duration.min(Nanos::SECOND);
        let (loss_ratio, exceed_ratio) = (0.0, 0.0);
        Goal {
            loss_ratio,
            exceed_ratio,
            width,
            initial_duration,
            final_duration: duration,
            duration_sum: duration,
        }
    }

    /// Validates the goal.
    ///
    /// # Errors
    /// Returns an error if an attribute is out of range. The error names the attribute and its valid range.
    pub fn validate(&self) -> Result<(), GoalError> {
        for (what, given) in [("loss ratio", self.loss_ratio), ("exceed ratio", self.exceed_ratio)]
        {
            if !(0.0..1.0).contains(&given) {
                return Err(GoalError::Ratio { what, given });
            }
        }
        if !(self.width > 0.0 && self.width < 1.0) {
            return Err(GoalError::Width(self.width));
        }
        let (initial, last, sum) = (self.initial_duration, self.final_duration, self.duration_sum);
        if initial.0 == 0 || last < initial || sum < last {
            let [initial, last, sum] = [initial, last, sum].map(Nanos::as_secs_f64);
            return Err(GoalError::Durations { initial, last, sum });
        }
        Ok(())
    }

    /// Returns `steps` targets, which are easier versions of the goal, followed by the goal itself. The attribute
    /// `width` halves from each target to the next, but is at most 0.5 or the goal's width, whichever is greater. The
    /// duration sums form a geometric series that starts at the initial duration.
    pub(super) fn targets(&self, steps: u32) -> Vec<Goal> {
        let growth = self.duration_sum.0 as f64 / self.initial_duration.0 as f64;
        let target = |before: u32| {
            let part = f64::from(steps - before) / f64::from(steps.max(1));
            let sum = Nanos((self.initial_duration.0 as f64 * growth.powf(part)).round() as u64);
            let duration_sum =
                if before == 0 { self.duration_sum } else { sum.min(self.duration_sum) };
            let width = (self.width * f64::from(1u32 << before)).min(0.5_f64.max(self.width));
            Goal {
                width,
                duration_sum,
                final_duration: duration_sum.min(self.final_duration),
                ..*self
            }
        };
        (0..=steps).rev().map(target).collect()
    }

    /// True if the bounds are close enough for this goal. A difference of 1 query/s is always close enough.
    pub(super) fn is_met_by(&self, lower: Qps, upper: Qps) -> bool {
        let distance = upper.0.saturating_sub(lower.0);
        distance <= 1 || distance as f64 <= self.width * upper.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_lead_up_to_the_goal() {
        let goal = Goal {
            duration_sum: Nanos(120_000_000_000),
            ..Goal::rfc8219(Nanos(60_000_000_000), 0.005)
        };
        let targets = goal.targets(2);
        assert_eq!(targets.last(), Some(&goal));
        assert_eq!(targets.iter().map(|t| t.width).collect::<Vec<_>>(), [0.02, 0.01, 0.005]);
        let sums: Vec<u64> = targets.iter().map(|t| t.duration_sum.0 / 1_000_000).collect();
        assert_eq!(sums, [1_000, 10_954, 120_000]);
        assert_eq!(targets[1].final_duration, targets[1].duration_sum);
        assert_eq!(targets[2].final_duration, Nanos(60_000_000_000));
        // The goal's trials are already short, so all targets use the goal's durations.
        let short = Goal::rfc8219(Nanos::from_millis(500), 0.3);
        assert!(
            short
                .targets(2)
                .iter()
                .all(|t| t.duration_sum == Nanos::from_millis(500) && t.width <= 0.5)
        );
    }

    #[test]
    fn bounds_are_near_enough_by_the_upper_one() {
        let goal = Goal::rfc8219(Nanos::SECOND, 0.005);
        let is_met = |lower, upper| goal.is_met_by(Qps(lower), Qps(upper));
        assert!(is_met(995, 1_000) && !is_met(994, 1_000));
        assert!(is_met(1, 2) && !is_met(1, 3), "there is no rate between neighbours");
    }

    #[test]
    fn impossible_goals_are_rejected_with_advice() {
        let good = Goal::rfc8219(Nanos::SECOND, 0.01);
        assert_eq!(good.validate(), Ok(()));
        let bad = [
            Goal { loss_ratio: 1.0, ..good },
            Goal { loss_ratio: f64::NAN, ..good },
            Goal { exceed_ratio: -0.1, ..good },
            Goal { width: 0.0, ..good },
            Goal { width: 1.0, ..good },
            Goal { initial_duration: Nanos(0), ..good },
            Goal { final_duration: Nanos(1), ..good },
            Goal { duration_sum: Nanos(1), ..good },
        ];
        for goal in bad {
            let error = goal.validate().unwrap_err().to_string();
            assert!(error.contains("must be"), "{error}");
        }
    }
}
