//! The outcome of a measurement point: a result, or the reason why there is no result.

use method::verdict::Verdict;

use crate::plan::Point;
use crate::results::no_result::NoResult;
use crate::results::{closed_loop, conform, constant_rate, load, search, self_test};
use crate::sequence::Recorded;

impl<'a> Recorded<'a> {
    /// True if a measurement point is complete and has a result. A DUT that fails even at the
    /// lowest rate also has a result.
    pub fn has_result(&self, point: &Point) -> bool {
        let complete = self
            .replay(point)
            .is_some_and(|replay| replay.void.is_none() && replay.sequence.next().is_none());
        complete && has_result(self, point)
    }
}

impl Recorded<'_> {
    /// Returns the reason why a measurement point has no result, or `None` if it has a result.
    pub fn missing(&self, point: &Point) -> Option<NoResult> {
        match point {
            Point::SelfTest(_) => self_test::missing(self, point),
            Point::Search(_) => search::missing(self, point),
            Point::Load(_) => load::missing(self, point),
            Point::ConstantRate(_) => constant_rate::missing(self, point),
            Point::ClosedLoop(_) => closed_loop::missing(self, point),
            Point::Conform(_) => conform::missing(self, point),
        }
    }
}

/// True if a complete measurement point has a result. The caller checks that the point is complete.
fn has_result(recorded: &Recorded<'_>, point: &Point) -> bool {
    match point {
        Point::SelfTest(_) => self_test::has_result(recorded, point),
        Point::Search(_) => search::has_result(recorded, point),
        Point::Load(_) | Point::ConstantRate(_) | Point::ClosedLoop(_) => {
            has_valid_trial(recorded, point)
        }
        Point::Conform(_) => conform::has_result(recorded, point),
    }
}

/// True if the measurement point has at least one valid trial.
fn has_valid_trial(recorded: &Recorded<'_>, point: &Point) -> bool {
    let replay = recorded.replay(point);
    replay.is_some_and(|replay| replay.trials.iter().any(|m| m.verdict() != Verdict::Invalid))
}
