//! Results of searches: median, dispersion, lower bounds, and the trials behind them.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use hosts::place::CpuPlacement;
use method::evidence::{Deviation, OfferedLoad, Real, UpstreamQueries};
use method::narrow::Length;
use method::precision::{Figures, lower_end, overstatement};
use method::records::Wrong;
use method::search::{Found, Shortfall};
use method::set::{LowerBound, lower_bounds};
use method::verdict::Verdict;
use serde::{Deserialize, Serialize};
use units::{Nanos, Qps, counted};

use crate::plan::{Conditions, Point};
use crate::record::{DutEnd, Measured};
use crate::results::no_result::NoResult;
use crate::sequence::{GoalFigures, Recorded, SearchSequence, void_deviation, wanted_resolution};

/// Result of a set of searches.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PointResult {
    /// The conditions of the searches.
    pub conditions: Conditions,
    /// Median, percentiles, relative range and interval, queries per second; empty for a void
    /// point.
    pub figures: Figures,
    /// Reason for a missing result.
    pub missing: Option<NoResult>,
    /// Factor by which short trials may overstate the rates; the interval is widened by it.
    pub overstatement: f64,
    /// Result of each search, in order; rates in queries per second.
    pub found: Vec<Found>,
    /// Shortfall at the lowest failed rate, search by search; absent if none failed.
    pub failed_by: Vec<Option<Shortfall>>,
    /// True if all repetitions are done.
    pub complete: bool,
    /// Deviation that rules out a result: the DUT was not queried under the conditions of the
    /// point.
    pub void: Option<Deviation>,
    /// Reasons why the DUT's limit may be higher.
    pub lower_bound_reasons: Vec<LowerBound>,
    /// Rate up to which a self-test with the point's AuthDNS validates the tester; absent without
    /// one.
    #[serde(default)]
    pub vouched: Option<Qps>,
    /// Observed α and β of the trials that passed at full length. Absent if AuthDNS does not count
    /// queries; then nothing proves that new names were not answered from a cache.
    pub real: Option<Real>,
    /// CPU placement of the DUT in all its trials, which gives the number of cores its meaning.
    /// Absent if it was not observed.
    pub place: Option<CpuPlacement>,
    /// Numbers of probes, full trials, and invalid trials.
    pub trials: Trials,
    /// Numbers of trials in which the DUT died or hung.
    #[serde(default)]
    pub ends: DutEndCounts,
    /// Requested distance of passed and failed rates or, for an MLRsearch, the actual one; a median
    /// of two rates is rounded to it.
    pub resolution: Qps,
    /// Results of an MLRsearch for each goal, that of RFC 8219 first; the other fields refer to the
    /// first goal. Empty for a bisection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<GoalFigures>,
}

impl PointResult {
    /// True if the DUT had the number of cores that the point asks for.
    pub fn has_its_cores(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_cores(self.conditions.place.cores))
    }

    /// Includes a failure of the DUT at `rate` in a later trial under the same conditions. Passes
    /// at that rate or above were not reproducible: the interval is extended down to the next lower
    /// rate that passed, and a median at or above it is refuted.
    pub(crate) fn include_failure(&mut self, recorded: &Recorded<'_>, rate: Qps) {
        let point = Point::Search(self.conditions.clone());
        let trials = recorded.replay(&point).map(|replay| replay.trials).unwrap_or_default();
        let passed = |m: &&&Measured| {
            m.step.length == Length::Full && m.verdict() == Verdict::Passed && m.step.rate < rate
        };
        let below = trials.iter().filter(passed).map(|m| m.step.rate).max();
        self.figures.refute(rate, below.map(|below| lower_end(below, self.overstatement)));
        // The first goal has the same result.
        if let Some(first) = self.goals.first_mut() {
            first.figures = self.figures;
        }
    }

    /// Compares results for sorting, the highest first: by the median, otherwise by the proven
    /// lower end; a point without either comes last.
    pub fn by_result(&self, other: &PointResult) -> Ordering {
        let rate = |point: &PointResult| {
            point.figures.median.or(point.figures.interval.from).unwrap_or(-1.0)
        };
        rate(other).total_cmp(&rate(self))
    }

    /// True if both were observed on the same CPUs.
    pub fn is_on_the_cpus_of(&self, other: &PointResult) -> bool {
        self.place.as_ref().zip(other.place.as_ref()).is_some_and(|(a, b)| a.is_on_the_cpus_of(b))
    }
}

/// Returns the CPU placement of a DUT in all trials of a point, as far as it was observed.
pub(super) fn place_of<'a>(trials: impl Iterator<Item = &'a Measured>) -> Option<CpuPlacement> {
    CpuPlacement::merge_all(trials.filter_map(|m| m.cpu.place.as_ref()))
}

/// Numbers of trials.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Trials {
    /// Trials of other lengths: short ones that precede those of full length.
    pub probes: usize,
    /// Trials of full length that count.
    pub full: usize,
    /// Invalid trials among these, and among the other lengths that decide in an MLRsearch.
    pub invalid: usize,
    /// Full trials that were skipped because their probes failed.
    pub saved: usize,
}

/// Trials of a point in which a DUT died or hung. Most of them were repeated, which biases a rate
/// upwards.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct DutEndCounts {
    /// Trials in which its process ended.
    pub died: usize,
    /// Trials after which it did not reply any more.
    pub hung: usize,
    /// All trials, including repeated ones.
    pub of: usize,
}

impl DutEndCounts {
    fn count<'a>(all: impl Iterator<Item = &'a Measured>) -> DutEndCounts {
        let mut ends = DutEndCounts::default();
        for measured in all {
            ends.of += 1;
            match measured.dut_end {
                Some(DutEnd::Died(_)) => ends.died += 1,
                Some(DutEnd::Hung) => ends.hung += 1,
                None => {}
            }
        }
        ends
    }

    /// Returns the sum over several points.
    pub fn plus(self, other: DutEndCounts) -> DutEndCounts {
        DutEndCounts {
            died: self.died + other.died,
            hung: self.hung + other.hung,
            of: self.of + other.of,
        }
    }

    /// Returns text like `died in 2 of 5 trials`; `None` if it never did.
    pub fn in_words(&self) -> Option<String> {
        let how = match (self.died, self.hung) {
            (0, 0) => return None,
            (died, 0) => format!("died in {died}"),
            (0, hung) => format!("hung in {hung}"),
            (died, hung) => format!("died in {died} and hung in {hung}"),
        };
        Some(format!("{how} of {}", counted(self.of as u64, "trial", "trials")))
    }
}

/// True if there is a result for the point, which is complete.
pub(crate) fn has_result(recorded: &Recorded<'_>, point: &Point) -> bool {
    result(recorded, point).is_some_and(|point| point.missing.is_none())
}

/// The reason why the point has no number; `None` if it has one.
pub(crate) fn missing(recorded: &Recorded<'_>, point: &Point) -> Option<NoResult> {
    result(recorded, point)?.missing
}

/// Returns the result at a point of a DUT.
pub(super) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<PointResult> {
    let Point::Search(conditions) = point else { return None };
    let replay = recorded.replay(point)?;
    let searches = replay.sequence.searches()?;
    let wrong = misconfigured(&replay.trials, searches);
    let is_void = replay.void.is_some() || wrong.is_some();
    let found = if is_void { Vec::new() } else { searches.found() };
    let plan = recorded.plan;
    let range = plan.range(plan.dut(&conditions.dut)?);
    let timeout = Nanos::from(plan.trial.timeout(plan.trial.duration));
    let overstatement = overstatement(plan.trial.duration.into(), timeout);
    let vouched = recorded.allowed(point);
    let resolution = searches.resolution(wanted_resolution(plan, &range));
    let figures = Figures::of(&found, overstatement, resolution).validated_to(vouched);
    let missing = match replay.void {
        Some(why) => Some(NoResult::Void(why)),
        None if wrong.is_some() => wrong.map(NoResult::WrongReplies),
        None if figures.n > 0 => None,
        None if replay.trials.is_empty() => Some(NoResult::not_begun(recorded, point)),
        None if found.is_empty() => Some(NoResult::Unfinished),
        None => Some(NoResult::Spoiled),
    };
    Some(PointResult {
        conditions: conditions.clone(),
        complete: replay.due().is_none(),
        failed_by: if is_void { Vec::new() } else { searches.failed_by() },
        goals: if is_void { Vec::new() } else { searches.goals(timeout, range.max, vouched) },
        lower_bound_reasons: if is_void {
            Vec::new()
        } else {
            lower_bounds(&found, range.max, &figures, vouched)
        },
        missing,
        vouched,
        figures,
        overstatement,
        found,
        void: replay.void,
        real: real(&replay.trials, searches),
        place: place_of(replay.trials.iter().copied()),
        trials: count(replay.trials.iter().copied()),
        ends: DutEndCounts::count(replay.trials.iter().copied().chain(recorded.repeated(point))),
        resolution,
    })
}

/// Returns the way in which the replies of the first trial were wrong, if no rate passed because of
/// it.
fn misconfigured(trials: &[&Measured], searches: &SearchSequence) -> Option<Wrong> {
    let wrong = trials.first()?.counts().wrong_in_one_way()?;
    searches.found().iter().all(|found| found.highest.is_none()).then_some(wrong)
}

/// Returns the observed α and β over all trials that passed at full length or deviated from the
/// requested conditions.
fn real(trials: &[&Measured], searches: &SearchSequence) -> Option<Real> {
    let judged = |m: &&&Measured| {
        let passed = m.verdict() == Verdict::Passed && m.step.length == Length::Full;
        passed || void_deviation(m, Some(searches)).is_some()
    };
    let mut sum: Option<(UpstreamQueries, OfferedLoad)> = None;
    for trial in trials.iter().filter(judged).filter_map(|m| m.at_rate()) {
        // Only the counters of dns64bench's AuthDNS can be compared.
        let (asked, wanted) = (trial.auth.as_ref()?.asked, trial.wanted());
        sum = Some(match sum {
            None => (asked, wanted),
            Some((a, w)) => {
                let sum = OfferedLoad {
                    sent: w.sent + wanted.sent,
                    valid: w.valid + wanted.valid,
                    preloaded: w.preloaded + wanted.preloaded,
                    ..w
                };
                (a.plus(&asked), sum)
            }
        });
    }
    let (asked, wanted) = sum?;
    asked.real(&wanted)
}

/// Counts the trials of one point: a probe can be matched with the trial it saved within a point
/// only.
pub(super) fn count<'a>(all: impl Iterator<Item = &'a Measured>) -> Trials {
    let mut trials = Trials::default();
    let mut probed_failed = 0;
    let mut confirmed = 0;
    let mut last_failed_probe: BTreeSet<(u32, Qps)> = BTreeSet::new();
    for m in all {
        let (repeat, rate) = (m.step.repeat, m.step.rate);
        match m.step.length {
            Length::Probe => {
                trials.probes += 1;
                if m.verdict() == Verdict::Failed {
                    probed_failed += 1;
                    last_failed_probe.insert((repeat, rate));
                }
            }
            Length::Of(_) => {
                trials.probes += 1;
                trials.invalid += usize::from(m.verdict() == Verdict::Invalid);
            }
            Length::Full => {
                trials.full += 1;
                trials.invalid += usize::from(m.verdict() == Verdict::Invalid);
                confirmed += usize::from(last_failed_probe.remove(&(repeat, rate)));
            }
        }
    }
    trials.saved = probed_failed - confirmed;
    trials
}
