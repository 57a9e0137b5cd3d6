//! Results of searches: median, dispersion, reasons for lower bounds, and trial counts.

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

/// Result of the searches of a measurement point.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PointResult {
    /// The conditions under which the searches ran.
    pub conditions: Conditions,
    /// Statistics of the results of all searches. Median, percentiles and interval are in queries per second. The
    /// relative range is in per cent. The statistics are empty if the DUT was not measured under the requested
    /// conditions.
    pub figures: Figures,
    /// Reason why there is no result; absent if there is a result.
    pub missing: Option<NoResult>,
    /// Largest factor by which short trials may overstate the rates. The lower end of the interval for the DUT's
    /// maximum rate is a passed rate divided by this factor.
    pub overstatement: f64,
    /// Result of each search, in order; rates in queries per second.
    pub found: Vec<Found>,
    /// For each search, the number of queries without a valid reply at the lowest failed rate. An
    /// entry is absent if no rate failed.
    pub failed_by: Vec<Option<Shortfall>>,
    /// True if all searches have ended.
    pub complete: bool,
    /// Present if the measurement point is void: AuthDNS's counters show that the DUT was not
    /// measured under the conditions of this point.
    pub void: Option<Deviation>,
    /// Reasons why the highest passing rate of the DUT may be higher than the result.
    pub lower_bound_reasons: Vec<LowerBound>,
    /// Rate up to which the self-test with the same AuthDNS validates the tester; absent if there
    /// is no such self-test.
    #[serde(default)]
    pub vouched: Option<Qps>,
    /// Shares of names with an AAAA record (α) and of cached names (β), computed from AuthDNS's counters. Two kinds of
    /// trials are used: full-length trials that passed, and trials that deviated from the requested conditions. Absent
    /// if there are no such trials, or if AuthDNS does not count queries.
    pub real: Option<Real>,
    /// CPU placement of the DUT, as observed in the trials of this measurement point; absent if it
    /// was not observed.
    pub place: Option<CpuPlacement>,
    /// Counts of the short trials (probes), the full-length trials and the invalid trials.
    pub trials: Trials,
    /// How often the DUT died or hung in the trials.
    #[serde(default)]
    pub ends: DutEndCounts,
    /// Distance between the highest passed and the lowest failed rate of a search. For a bisection, this is the
    /// requested distance. For an MLRsearch, it is the largest distance that any search reached. If the median of the
    /// searches is the mean of two different rates, it is rounded down to a multiple of a power of ten. This power of
    /// ten is the largest one that does not exceed the distance.
    pub resolution: Qps,
    /// Results of an MLRsearch for each goal, starting with the goal of RFC 8219. The other fields of this structure
    /// contain the result for the goal of RFC 8219. The list is empty for a bisection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<GoalFigures>,
}

impl PointResult {
    /// True if the DUT ran on the number of cores that the measurement point requires.
    pub fn has_its_cores(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_cores(self.conditions.place.cores))
    }

    /// Takes into account that the DUT failed at `rate` in a later trial under the same conditions. The failure shows
    /// that the DUT does not always pass at `rate` or above. The interval for the DUT's maximum rate is therefore
    /// extended down to the next lower rate that passed. A median at or above `rate` is refuted.
    pub(crate) fn include_failure(&mut self, recorded: &Recorded<'_>, rate: Qps) {
        let point = Point::Search(self.conditions.clone());
        let trials = recorded.replay(&point).map(|replay| replay.trials).unwrap_or_default();
        let passed = |m: &&&Measured| {
            m.step.length == Length::Full && m.verdict() == Verdict::Passed && m.step.rate < rate
        };
        let below = trials.iter().filter(passed).map(|m| m.step.rate).max();
        self.figures.refute(rate, below.map(|below| lower_end(below, self.overstatement)));
        // The result of an MLRsearch is the result for its first goal.
        if let Some(first) = self.goals.first_mut() {
            first.figures = self.figures;
        }
    }

    /// Compares results for sorting, highest first. The medians are compared; for a measurement
    /// point without a median, the lower end of its interval is used instead. A point with neither
    /// comes last.
    pub fn by_result(&self, other: &PointResult) -> Ordering {
        let rate = |point: &PointResult| {
            point.figures.median.or(point.figures.interval.from).unwrap_or(-1.0)
        };
        rate(other).total_cmp(&rate(self))
    }

    /// True if the DUT of this result and the DUT of `other` were observed on the same CPUs.
    pub fn is_on_the_cpus_of(&self, other: &PointResult) -> bool {
        self.place.as_ref().zip(other.place.as_ref()).is_some_and(|(a, b)| a.is_on_the_cpus_of(b))
    }
}

/// Returns the CPU placement of a DUT, as observed in the trials of a measurement point. Returns
/// `None` if the placement was never observed.
pub(super) fn place_of<'a>(trials: impl Iterator<Item = &'a Measured>) -> Option<CpuPlacement> {
    CpuPlacement::merge_all(trials.filter_map(|m| m.cpu.place.as_ref()))
}

/// Counts of the trials of a measurement point, by length and verdict.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Trials {
    /// Number of short trials, which precede trials of full length.
    pub probes: usize,
    /// Number of trials of full length, including invalid trials.
    pub full: usize,
    /// Number of invalid trials of full length. For an MLRsearch, invalid short trials are
    /// included.
    pub invalid: usize,
    /// Number of full-length trials that were skipped because the short trials before them failed.
    pub saved: usize,
}

/// How often the DUT died or hung in the trials of a measurement point. Most of the trials in which this happened were
/// repeated, and only the last repetition is used for the result. The result may therefore be overstated.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct DutEndCounts {
    /// Number of trials in which the DUT's process ended.
    pub died: usize,
    /// Number of trials after which the DUT no longer replied.
    pub hung: usize,
    /// Total number of trials, including repeated trials.
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

    /// Returns the sums of the trial counts of two results.
    pub fn plus(self, other: DutEndCounts) -> DutEndCounts {
        DutEndCounts {
            died: self.died + other.died,
            hung: self.hung + other.hung,
            of: self.of + other.of,
        }
    }

    /// Returns a text about the trials in which the DUT died or hung, such as `died in 2 of 5
    /// trials`. Returns `None` if the DUT never died or hung.
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

/// True if a complete measurement point has a result. The caller checks that the point is complete.
pub(crate) fn has_result(recorded: &Recorded<'_>, point: &Point) -> bool {
    result(recorded, point).is_some_and(|point| point.missing.is_none())
}

/// Returns the reason why the measurement point has no result, or `None` if it has a result.
pub(crate) fn missing(recorded: &Recorded<'_>, point: &Point) -> Option<NoResult> {
    result(recorded, point)?.missing
}

/// Returns the result of the searches of a measurement point.
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
        None => Some(NoResult::Invalid),
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

/// If nearly all replies in the first trial were wrong in the same way and no rate passed, returns
/// the fault of these replies. Otherwise returns `None`.
fn misconfigured(trials: &[&Measured], searches: &SearchSequence) -> Option<Wrong> {
    let wrong = trials.first()?.counts().wrong_in_one_way()?;
    searches.found().iter().all(|found| found.highest.is_none()).then_some(wrong)
}

/// Returns the shares of names with an AAAA record (α) and of cached names (β), as counted by AuthDNS. Two kinds of
/// trials are used: full-length trials that passed, and trials that deviated from the requested conditions.
fn real(trials: &[&Measured], searches: &SearchSequence) -> Option<Real> {
    let judged = |m: &&&Measured| {
        let passed = m.verdict() == Verdict::Passed && m.step.length == Length::Full;
        passed || void_deviation(m, Some(searches)).is_some()
    };
    let mut sum: Option<(UpstreamQueries, OfferedLoad)> = None;
    for trial in trials.iter().filter(judged).filter_map(|m| m.at_rate()) {
        // Only dns64bench's AuthDNS has counters that can be compared with the offered load.
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

/// Counts the trials of one measurement point. The caller must not pass trials of several points, because a failed
/// short trial (probe) and the full-length trial after it are matched only by search and rate.
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
