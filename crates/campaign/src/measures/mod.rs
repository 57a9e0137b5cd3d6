//! What a campaign can measure, a file each: its keys of the plan, its points, the trials of a
//! point, what comes of them, and the tables and figures that show it.
//!
//! ```text
//! plan ─► Measure::points ─► Measure::course ─► task ─► (a trial runs elsewhere) ─► journal
//!                                 ▲                                                    │
//!                                 └───────────── Recorded::walk ◄──────────────────────┤
//!                                                                                      ▼
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

/// Something that can be measured.
pub trait Measure: Sync {
    /// What the report calls the section that shows it.
    fn title(&self) -> &'static str;

    /// What `campaign plan` and `results.csv` call it.
    fn name(&self) -> &'static str;

    /// Its points of a DUT, or (none given) those that belong to none, in their order.
    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point>;

    /// Finds what makes its keys meaningless.
    ///
    /// # Errors
    /// The first such thing, with its key.
    fn check(&self, plan: &Plan) -> Result<(), String>;

    /// Trials of a point, at the most, and how long they take if none is repeated.
    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration);

    /// The trials of a point as a state machine of which nothing is done; `None` where there is no
    /// rate to begin with, because what is recorded of another point gives none.
    fn course(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Course>;

    /// Whether a point without a course will never have one: all that its rate depends on is
    /// measured, and gave none.
    fn is_hopeless(&self, _recorded: &Recorded<'_>, _point: &Point) -> bool {
        false
    }

    /// Whether every repetition has servers that are started for it, so that nothing is in a cache.
    fn starts_anew(&self) -> bool;

    /// Whether a trial is repeated because the DUT ended in it; else that it ended is what was
    /// found.
    fn repeats_deaths(&self) -> bool {
        true
    }

    /// What the tester is to do in a trial. `base` is what all trials have in common.
    fn task(&self, plan: &Plan, step: &Step, base: TrialPlan) -> Task;

    /// Whether the campaign has a result for a point that is complete.
    fn has_result(&self, recorded: &Recorded<'_>, point: &Point) -> bool;

    /// The reason why a point has no number; `None` if it has one.
    fn missing(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Missing>;

    /// Which tables and figures of the papers a point is a part of, none of them where it is a part
    /// of none.
    fn fills(&self, plan: &Plan, point: &Point) -> Vec<Filled>;

    /// Its tables of one run.
    fn tables(&self, run: &Run) -> Vec<Table>;

    /// Its tables that set several runs beside each other, a column each.
    fn comparisons(&self, _runs: &[Run]) -> Vec<Table> {
        Vec::new()
    }

    /// Its figures of all runs.
    fn figures(&self, runs: &[Run]) -> Vec<Figure>;

    /// What the page has of it below its figures and tables, as HTML.
    fn html(&self, _runs: &[Run]) -> String {
        String::new()
    }

    /// The same for `tables.md`.
    fn markdown(&self, _runs: &[Run]) -> String {
        String::new()
    }

    /// Every number that it has found, for `results.csv`.
    fn rows(&self, run: &Run) -> Vec<Row>;
}

/// All measures, in the order in which the points of a DUT are measured: what others build on comes
/// first.
pub const ALL: [&dyn Measure; 6] = [
    &self_test::SelfTestMeasure,
    &search::SearchMeasure,
    &load::LoadMeasure,
    &constant_rate::ConstantRateMeasure,
    &closed_loop::ClosedLoopMeasure,
    &conform::ConformMeasure,
];

/// What is measured at a point.
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

/// Finds what makes a plan's measures meaningless.
///
/// # Errors
/// The first such thing, with its key.
pub(crate) fn check(plan: &Plan) -> Result<(), String> {
    keys::check(plan)?;
    ALL.iter().try_for_each(|measure| measure.check(plan))
}

/// What the tester is to do in a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Send at a rate.
    Trial(Box<TrialPlan>),
    /// Send when the answer before has come.
    ClosedLoop(LoopPlan),
    /// Check its answers.
    Conform(ConformPlan),
}

/// The trials of a point, walked through one by one.
#[derive(Clone, Debug)]
pub enum Course {
    /// Searches.
    Searches(SearchCourse),
    /// Repetitions at one rate.
    Repeats(Repeats),
}

impl Course {
    /// The trial that is due; `None` when all are done.
    pub fn next(&self) -> Option<Due> {
        match self {
            Course::Searches(searches) => searches.next(),
            Course::Repeats(repeats) => repeats.next(),
        }
    }

    /// Books verdict and counts of the trial that was due.
    pub fn report(&mut self, verdict: Verdict, counts: &Counts) {
        match self {
            Course::Searches(searches) => searches.report(verdict, counts),
            Course::Repeats(repeats) => repeats.report(verdict),
        }
    }

    /// The searches, if that is what it is.
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
    /// Of which paper.
    pub paper: Paper,
    /// Which, as the paper numbers it.
    pub what: &'static str,
}

/// The papers whose programme a campaign can carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// G. Lencse and Y. Kadobayashi, 2018.
    Benchmarking,
    /// G. Lencse, on MTD64 and dns64perf2.
    Mtd64,
}

impl Paper {
    /// All.
    pub const ALL: [Paper; 2] = [Paper::Benchmarking, Paper::Mtd64];

    /// A short name for columns.
    pub fn short(self) -> &'static str {
        match self {
            Paper::Benchmarking => "Benchmarking",
            Paper::Mtd64 => "MTD64",
        }
    }

    /// Its authors and title.
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

    /// A table or figure of it.
    pub(crate) fn has(self, what: &'static str) -> Filled {
        Filled { paper: self, what }
    }
}

#[cfg(test)]
mod fills_tests;
