//! The kinds of measurement, one file for each kind. Each file defines the measurement points of
//! one kind, the checks of plan keys, and the sequence of trials of a point. In `results`, the file
//! of the same name computes the results. In the crate `report`, the file of the same name creates
//! tables and figures.
//!
//! ```text
//! plan ─► Measure::points ─► Measure::sequence ─► task ─► (a trial runs elsewhere) ─► journal
//!                                   ▲                                                    │
//!                                   └───────────── Recorded::replay ◄────────────────────┘
//! ```

mod closed_loop;
mod conform;
mod constant_rate;
mod load;
mod measure;
mod replay;
mod search;
mod self_test;
mod steps;

use crate::plan::{Plan, Point, duts};

pub use closed_loop::ClosedLoopMeasure;
pub use conform::ConformMeasure;
pub use constant_rate::{ConstantRateMeasure, block_of};
pub(crate) use load::loads_of;
pub use load::{LoadMeasure, loads_for};
pub use measure::{Measure, Paper};
pub use replay::Recorded;
pub(crate) use replay::{Replay, resolution, void_deviation, wanted_resolution};
pub use search::SearchMeasure;
pub use self_test::SelfTestMeasure;
pub use steps::{ConformPlan, GoalFigures, SearchSequence};
pub(crate) use steps::{FarView, Task};

/// All kinds of measurement, in the order in which a DUT is measured. A measurement comes after the
/// measurements on which it depends.
pub const ALL: [&dyn Measure; 6] = [
    &self_test::SelfTestMeasure,
    &search::SearchMeasure,
    &load::LoadMeasure,
    &constant_rate::ConstantRateMeasure,
    &closed_loop::ClosedLoopMeasure,
    &conform::ConformMeasure,
];

/// Returns the kind of a measurement point.
pub fn of(point: &Point) -> &'static dyn Measure {
    match point {
        Point::SelfTest(_) => &self_test::SelfTestMeasure,
        Point::Search(_) => &search::SearchMeasure,
        Point::Load(_) => &load::LoadMeasure,
        Point::ConstantRate(_) => &constant_rate::ConstantRateMeasure,
        Point::ClosedLoop(_) => &closed_loop::ClosedLoopMeasure,
        Point::Conform(_) => &conform::ConformMeasure,
    }
}

/// Checks the plan keys of all kinds of measurement.
///
/// # Errors
/// Returns an error if a key has an invalid value. The message names the first such key.
pub(crate) fn check(plan: &Plan) -> Result<(), String> {
    duts::check(plan)?;
    ALL.iter().try_for_each(|measure| measure.check(plan))
}

impl Point {
    /// Returns the kind of this measurement point.
    pub fn measure(&self) -> &'static dyn Measure {
        of(self)
    }
}

#[cfg(test)]
mod paper_items_tests;
