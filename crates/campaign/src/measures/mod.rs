//! The measurements of a campaign, one file each: plan keys, points, trials of a point, results,
//! tables and figures.
//!
//! ```text
//! plan ─► Measure::points ─► Measure::course ─► task ─► (trial, executed elsewhere) ─► journal
//!                                 ▲                                                       │
//!                                 └────────────── Recorded::walk ◄────────────────────────┤
//!                                                                                         ▼
//!                                        tables, figures ◄── Results ◄── result of each point
//! ```

pub mod closed_loop;
pub mod conform;
pub mod constant_rate;
pub mod keys;
pub mod load;
pub mod search;
pub mod self_test;
pub mod sustained;

use std::time::Duration;

use method::records::Counts;
use method::set::{Due, Repeats};
use method::verdict::Verdict;
use tester::measurer::plan::TrialPlan;

use self::conform::ConformPlan;
use crate::archive::Step;
use crate::missing::Missing;
use crate::plan::{DutPlan, Plan};
use crate::point::Point;
use crate::recorded::Recorded;
use crate::report::Run;
use crate::report::chart::Figure;
use crate::report::csv::Row;
use crate::report::table::Table;
use crate::search::SearchCourse;
use closed_loop::LoopPlan;

/// A kind of measurement.
pub trait Measure: Sync {
    /// Returns the heading of its section in the report.
    fn title(&self) -> &'static str;

    /// Returns its name in `campaign plan` and `results.csv`.
    fn name(&self) -> &'static str;

    /// Returns its points for a DUT, or, without one, those that belong to no DUT, in order.
    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point>;

    /// Checks that its plan keys make sense.
    ///
    /// # Errors
    /// The first error, with its key.
    fn check(&self, plan: &Plan) -> Result<(), String>;

    /// Returns the maximum number of trials of a point, and their duration without repetitions.
    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration);

    /// Returns the sequence of trials of a point, before the first trial; `None` if there is no
    /// starting rate, because another point has no result.
    fn course(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Course>;

    /// True if the point can never be measured, because the results it depends on are complete and
    /// give no rate.
    fn is_hopeless(&self, _recorded: &Recorded<'_>, _point: &Point) -> bool {
        false
    }

    /// True if servers are restarted for every repetition, so that caches are empty.
    fn starts_anew(&self) -> bool;

    /// True if a trial in which the DUT ended is repeated; otherwise the end of the DUT is the
    /// result.
    fn repeats_deaths(&self) -> bool {
        true
    }

    /// Returns the tester's task in a trial. `base` contains the settings that all trials have in
    /// common.
    fn task(&self, plan: &Plan, step: &Step, base: TrialPlan) -> Task;

    /// True if the campaign has a result for a complete point.
    fn has_result(&self, recorded: &Recorded<'_>, point: &Point) -> bool;

    /// Returns the reason why a point has no result; `None` if it has one.
    fn missing(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Missing>;

    /// Tables and figures of the papers that need this point; may be empty.
    fn fills(&self, plan: &Plan, point: &Point) -> Vec<Filled>;

    /// Returns its tables for one run.
    fn tables(&self, run: &Run) -> Vec<Table>;

    /// Returns its tables that compare several runs, one column each.
    fn comparisons(&self, _runs: &[Run]) -> Vec<Table> {
        Vec::new()
    }

    /// Returns its figures for all runs.
    fn figures(&self, runs: &[Run]) -> Vec<Figure>;

    /// Returns the HTML that follows its figures and tables on the page.
    fn html(&self, _runs: &[Run]) -> String {
        String::new()
    }

    /// Returns the Markdown that follows its tables in `tables.md`.
    fn markdown(&self, _runs: &[Run]) -> String {
        String::new()
    }

    /// Returns all its results for `results.csv`.
    fn rows(&self, run: &Run) -> Vec<Row>;
}

/// All measurements, in the order in which the points of a DUT are measured: those that others
/// depend on come first.
pub const ALL: [&dyn Measure; 6] = [
    &self_test::SelfTestMeasure,
    &search::SearchMeasure,
    &load::LoadMeasure,
    &constant_rate::ConstantRateMeasure,
    &closed_loop::ClosedLoopMeasure,
    &conform::ConformMeasure,
];

/// Returns the measurement of a point.
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

/// Checks the plan keys of all measurements.
///
/// # Errors
/// The first error, with its key.
pub(crate) fn check(plan: &Plan) -> Result<(), String> {
    keys::check(plan)?;
    ALL.iter().try_for_each(|measure| measure.check(plan))
}

/// The tester's task in a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Queries at a rate.
    Trial(Box<TrialPlan>),
    /// Closed loop: each query follows the answer to the previous one.
    ClosedLoop(LoopPlan),
    /// Conformance checks.
    Conform(ConformPlan),
}

/// The sequence of trials of a point.
#[derive(Clone, Debug)]
pub enum Course {
    /// Searches.
    Searches(SearchCourse),
    /// Repetitions at one rate.
    Repeats(Repeats),
}

impl Course {
    /// Returns the trial that is due; `None` when all are done.
    pub fn next(&self) -> Option<Due> {
        match self {
            Course::Searches(searches) => searches.next(),
            Course::Repeats(repeats) => repeats.next(),
        }
    }

    /// Records verdict and counts of the trial that was due.
    pub fn report(&mut self, verdict: Verdict, counts: &Counts) {
        match self {
            Course::Searches(searches) => searches.report(verdict, counts),
            Course::Repeats(repeats) => repeats.report(verdict),
        }
    }

    /// Returns the searches, if the point consists of searches.
    pub fn searches(&self) -> Option<&SearchCourse> {
        match self {
            Course::Searches(searches) => Some(searches),
            Course::Repeats(_) => None,
        }
    }
}

/// A table or figure of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The paper.
    pub paper: Paper,
    /// The table or figure, as numbered in the paper.
    pub what: &'static str,
}

/// Papers whose measurements a campaign can reproduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// G. Lencse and Y. Kadobayashi, 2018.
    Benchmarking,
    /// G. Lencse, on MTD64 and dns64perf2.
    Mtd64,
}

impl Paper {
    /// All papers.
    pub const ALL: [Paper; 2] = [Paper::Benchmarking, Paper::Mtd64];

    /// Returns a short name for columns.
    pub fn short(self) -> &'static str {
        match self {
            Paper::Benchmarking => "Benchmarking",
            Paper::Mtd64 => "MTD64",
        }
    }

    /// Returns the authors and the title.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Benchmarking => {
                "G. Lencse, Y. Kadobayashi: Benchmarking DNS64 Implementations: Theory and Practice (2018)"
            }
            Paper::Mtd64 => {
                "G. Lencse: Performance Analysis of MTD64, our Tiny Multi-Threaded DNS64 Server Implementation: Proof of Concept"
            }
        }
    }

    /// Returns a table or figure of the paper.
    pub(crate) fn has(self, what: &'static str) -> Filled {
        Filled { paper: self, what }
    }
}

#[cfg(test)]
mod fills_tests;
