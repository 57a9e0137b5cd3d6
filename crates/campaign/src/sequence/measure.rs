//! The trait of all measures, and the tables and figures of papers that their points fill.

use std::time::Duration;

use tester::measurer::plan::TrialPlan;

use crate::plan::{DutPlan, Plan, Point};
use crate::record::Step;
use crate::sequence::replay::Recorded;
use crate::sequence::steps::{Task, TrialSequence};

/// A kind of measurement.
pub trait Measure: Sync {
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

    /// Returns the sequence of trials of a point, before the first trial, or `None` if there is no
    /// starting rate, because another point has no result.
    fn sequence(&self, recorded: &Recorded<'_>, point: &Point) -> Option<TrialSequence>;

    /// True if the point can never be measured, because the results it depends on are complete and
    /// give no rate.
    fn can_never_run(&self, _recorded: &Recorded<'_>, _point: &Point) -> bool {
        false
    }

    /// True if servers are restarted for every repetition, so that caches are empty.
    fn restarts_servers(&self) -> bool;

    /// True if a trial in which the DUT ended is repeated; otherwise the end of the DUT is the
    /// result.
    fn repeats_deaths(&self) -> bool {
        true
    }

    /// Returns the tester's task in a trial. `base` contains the settings that all trials have in
    /// common.
    fn task(&self, plan: &Plan, step: &Step, base: TrialPlan) -> Task;

    /// Tables and figures of the papers that need this point; may be empty.
    fn paper_items(&self, plan: &Plan, point: &Point) -> Vec<PaperItem>;
}

/// A table or figure of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperItem {
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
    /// All.
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
    pub fn has(self, what: &'static str) -> PaperItem {
        PaperItem { paper: self, what }
    }
}
