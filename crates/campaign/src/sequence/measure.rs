//! The trait that all kinds of measurement implement, and the tables and figures of papers that a
//! campaign can reproduce.

use std::time::Duration;

use tester::measurer::plan::TrialPlan;

use crate::plan::{DutPlan, Plan, Point};
use crate::record::Step;
use crate::sequence::replay::Recorded;
use crate::sequence::steps::{Task, TrialSequence};

/// A kind of measurement.
pub trait Measure: Sync {
    /// Returns the name that this kind of measurement has in the output of `campaign plan` and in
    /// `results.csv`.
    fn name(&self) -> &'static str;

    /// Returns the measurement points of this kind for a DUT, in order. If `dut` is `None`, returns
    /// the measurement points that belong to no DUT.
    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point>;

    /// Checks the plan keys of this kind of measurement.
    ///
    /// # Errors
    /// Returns an error if a key has an invalid value. The message names the first such key.
    fn check(&self, plan: &Plan) -> Result<(), String>;

    /// Returns the maximum number of trials of a measurement point, and their total duration.
    /// Repetitions of invalid trials are not included.
    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration);

    /// Returns the sequence of trials of a measurement point, positioned at the first trial. Returns `None` if the rate
    /// of these trials depends on the result of a different point, and that point has no result yet.
    fn sequence(&self, recorded: &Recorded<'_>, point: &Point) -> Option<TrialSequence>;

    /// True if the measurement point can never be measured, because its rate depends on a different
    /// point that is complete but has no median rate.
    fn can_never_run(&self, _recorded: &Recorded<'_>, _point: &Point) -> bool {
        false
    }

    /// True if the servers are restarted before every search or repetition, so that their caches
    /// are empty.
    fn restarts_servers(&self) -> bool;

    /// True if a trial in which the DUT died or hung is repeated. If false, the failure of the DUT
    /// is the result of the trial.
    fn repeats_deaths(&self) -> bool {
        true
    }

    /// Returns the tester's task in a trial. `base` contains the settings that all trials have in
    /// common.
    fn task(&self, plan: &Plan, step: &Step, base: TrialPlan) -> Task;

    /// Returns the tables and figures of the papers to which this measurement point contributes.
    /// The list may be empty.
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

/// Papers with measurements that a campaign can reproduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Paper by G. Lencse and Y. Kadobayashi, 2018.
    Benchmarking,
    /// Paper by G. Lencse on MTD64 and dns64perf2.
    Mtd64,
}

impl Paper {
    /// All papers.
    pub const ALL: [Paper; 2] = [Paper::Benchmarking, Paper::Mtd64];

    /// Returns a short name of the paper for column headings.
    pub fn short(self) -> &'static str {
        match self {
            Paper::Benchmarking => "Benchmarking",
            Paper::Mtd64 => "MTD64",
        }
    }

    /// Returns the authors and the title of the paper.
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

    /// Returns table or figure number `what` of this paper.
    pub fn has(self, what: &'static str) -> PaperItem {
        PaperItem { paper: self, what }
    }
}
