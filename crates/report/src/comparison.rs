//! Comparison of the searches in runs with the searches in a baseline, for regression tests in a
//! pipeline.
//!
//! ```text
//! baseline ─┐
//!           ├─► same point? same plan, placement, machines? ─► method::change ─► regressed, no regression, improved, undecided
//! run ──────┘                    └─ no ─► not comparable, with the reason
//! ```

use crate::places::PointWords;
use std::fmt;

use campaign::plan::{Conditions, DutPlan, Plan, Point, plan_diff};
use campaign::results::{DutResult, NoResult, PointResult, Results};
use method::change::{Change, ChangeOutcome, LEAST_SEARCHES, Searches, WouldDecide, compare};
use method::mlr::goal::Goal;
use method::mlr::search::GoalResult;
use method::precision::Figures;
use method::search::Found;
use serde::Serialize;
use units::{Qps, counted};

use crate::run::Run;
use crate::wording::{self, counted_searches};

/// Format version of the JSON form of [`Comparison`].
pub const VERSION: u32 = 1;

/// Comparison of runs with a baseline.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Comparison {
    /// Format version of this JSON object: [`VERSION`].
    pub schema_version: u32,
    /// Name of the baseline.
    pub baseline: String,
    /// The largest tolerated decrease of the rate, in per cent.
    pub max_regression_pct: f64,
    /// The rows of each run. Each measurement point of the baseline or the run has a row for the goal of RFC 8219, and
    /// a row for each additional goal of its MLRsearches.
    pub rows: Vec<Row>,
}

/// Comparison of the searches at a measurement point in a run with those at the same point in the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Row {
    /// Name of the run.
    pub run: String,
    /// Conditions that identify the measurement point: DUT, CPU placement, AAAA record rate, cache hit rate and
    /// acceptance ratio.
    pub conditions: Conditions,
    /// The goal of an MLRsearch (RFC 9971); absent for the goal of RFC 8219.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// Median of the rates that passed in the baseline, in queries per second, rounded as in the
    /// baseline's report. Absent if there is no median.
    pub baseline_median: Option<f64>,
    /// Median of the rates that passed in the run, in queries per second, rounded as in the run's
    /// report. Absent if there is no median.
    pub median: Option<f64>,
    /// Result of the comparison; absent if the run cannot be compared with the baseline at this measurement point.
    pub change: Option<Change>,
    /// Reason why the run cannot be compared with the baseline at this measurement point; absent if a comparison is
    /// possible.
    pub incomparable: Option<Incomparable>,
}

/// Reason why a run cannot be compared with the baseline at a measurement point.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Incomparable {
    /// The baseline's plan does not contain the measurement point.
    NotInBaseline,
    /// The run's plan does not contain the measurement point.
    NotInRun,
    /// The baseline has no result for the measurement point.
    BaselineMissing(NoResult),
    /// The run has no result for the measurement point.
    #[serde(rename = "missing")]
    NoResult(NoResult),
    /// The plans of the baseline and the run differ in these keys. Keys that describe the server are excluded.
    Plans(Vec<String>),
    /// The CPU placement of the server differs. The fields contain the placement in the baseline and the placement in
    /// the run.
    Places(String, String),
    /// The CPU model or the number of CPUs of a host differs. The fields contain the CPUs in the baseline and the CPUs
    /// in the run.
    Hosts(String, String),
}

impl fmt::Display for Incomparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incomparable::NotInBaseline => write!(f, "not in the baseline"),
            Incomparable::NotInRun => write!(f, "in the baseline only"),
            Incomparable::BaselineMissing(why) => write!(f, "no result in the baseline: {why}"),
            Incomparable::NoResult(why) => write!(f, "no result: {why}"),
            Incomparable::Plans(keys) => {
                write!(f, "measured with another plan: {} differ", plan_diff::sentence(keys))
            }
            Incomparable::Places(then, now) => {
                write!(f, "the cores differ: {then} in the baseline, {now} in this run")
            }
            Incomparable::Hosts(then, now) => {
                write!(f, "the machines differ: {then} in the baseline, {now} in this run")
            }
        }
    }
}

impl Row {
    /// Returns the text that is shown beside the numbers of a comparison. The text contains the outcome and, if it is
    /// undecided, the number of searches that would decide it. If no comparison is possible, the text contains the
    /// reason.
    pub fn in_words(&self) -> String {
        match (&self.change, &self.incomparable) {
            (Some(change), _) => change_in_words(change),
            (None, Some(why)) => format!("not comparable: {why}"),
            (None, None) => "not comparable".into(),
        }
    }

    /// Returns the outcome of the comparison; `None` if no comparison is possible.
    pub fn outcome(&self) -> Option<ChangeOutcome> {
        self.change.map(|change| change.outcome)
    }
}

/// Returns the outcome of a comparison as text.
pub fn word(outcome: ChangeOutcome) -> &'static str {
    match outcome {
        ChangeOutcome::Regressed => "regressed",
        ChangeOutcome::NoRegression => "no regression",
        ChangeOutcome::Improved => "improved",
        ChangeOutcome::Undecided => "undecided",
    }
}

fn change_in_words(change: &Change) -> String {
    let outcome = word(change.outcome);
    let more = |n: usize| counted(n as u64, "more search", "more searches");
    match change.wanted {
        None => outcome.into(),
        Some(WouldDecide::Searches(n))
            if change.searches.min(change.baseline_searches) < LEAST_SEARCHES =>
        {
            format!("{outcome}: at least {} of each are needed", more(n))
        }
        Some(WouldDecide::Searches(n)) => {
            format!("{outcome}: about {} of each are needed", more(n))
        }
        Some(WouldDecide::MoreSearchesThan(n)) => {
            format!(
                "{outcome}: the ratio is too close to the limit; even {} of each would not decide it",
                counted_searches(n)
            )
        }
        Some(WouldDecide::Resolution) => {
            format!(
                "{outcome}: a finer resolution (mlrsearch: width) is needed, or a shorter timeout for short trials"
            )
        }
        Some(WouldDecide::Bounds) => {
            format!(
                "{outcome}: the searches end at a bound; a wider range or a faster tester is needed"
            )
        }
    }
}

impl Comparison {
    /// Compares each run with all searches of the baselines together. All baselines must have the same plan. Baselines
    /// and runs must have been measured alternately. `limit` is the largest tolerated decrease of the rate, as a
    /// fraction from 0 to 1.
    pub fn new(baselines: &[&Run], runs: &[&Run], limit: f64) -> Comparison {
        let names: Vec<&str> = baselines.iter().map(|run| run.name.as_str()).collect();
        Comparison {
            schema_version: VERSION,
            baseline: names.join(" and "),
            max_regression_pct: limit * 100.0,
            rows: runs.iter().flat_map(|run| rows(baselines, run, limit)).collect(),
        }
    }

    /// Compares all searches of the runs together with all searches of the baselines together.
    pub fn in_turn(baselines: &[&Run], runs: &[&Run], limit: f64) -> Comparison {
        let mut comparison = Comparison::new(baselines, &[], limit);
        let name = runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(" and ");
        comparison.rows = together(baselines, runs, &name, limit);
        comparison
    }

    /// True if a row shows a regression.
    pub fn has_regressed(&self) -> bool {
        self.rows.iter().any(|row| row.outcome() == Some(ChangeOutcome::Regressed))
    }

    /// True if there is at least one row, and each row has a comparison with a decided outcome.
    pub fn is_decided(&self) -> bool {
        let decided =
            |row: &Row| row.outcome().is_some_and(|outcome| outcome != ChangeOutcome::Undecided);
        !self.rows.is_empty() && self.rows.iter().all(decided)
    }
}

fn rows(baselines: &[&Run], run: &Run, limit: f64) -> Vec<Row> {
    together(baselines, &[run], &run.name, limit)
}

/// Returns the rows for all measurement points of the runs and the baselines, in plan order. A point has a row for each
/// goal of its searches.
fn together(baselines: &[&Run], runs: &[&Run], name: &str, limit: f64) -> Vec<Row> {
    let mut all: Vec<(Conditions, Vec<Option<Goal>>)> = Vec::new();
    for point in baselines
        .iter()
        .chain(runs)
        .flat_map(|run| run.results.duts.iter().flat_map(|dut| &dut.points))
    {
        let at = all.iter().position(|(conditions, _)| *conditions == point.conditions);
        let at = at.unwrap_or_else(|| {
            all.push((point.conditions.clone(), vec![None]));
            all.len() - 1
        });
        // The first goal is that of RFC 8219.
        for further in point.goals.iter().skip(1).map(|found| Some(found.goal)) {
            if !all[at].1.contains(&further) {
                all[at].1.push(further);
            }
        }
    }
    all.iter()
        .flat_map(|(conditions, goals)| {
            goals.iter().map(|goal| row(baselines, runs, name, conditions, *goal, limit))
        })
        .collect()
}

/// The searches at one measurement point and for one goal, and all results of the run that contains these searches.
struct GoalSearches<'a> {
    results: &'a Results,
    point: &'a PointResult,
    found: Vec<Found>,
    overstatement: f64,
    resolution: Qps,
    is_refuted: bool,
}

impl<'a> GoalSearches<'a> {
    /// Selects the searches at a measurement point that were run for `goal`. If `goal` is `None`, selects the searches
    /// for the goal of RFC 8219. Returns `None` if there was no search for the goal.
    fn new(
        results: &'a Results,
        point: &'a PointResult,
        goal: Option<Goal>,
    ) -> Option<GoalSearches<'a>> {
        let (found, overstatement, resolution, figures) = match goal {
            None => (point.found.clone(), point.overstatement, point.resolution, &point.figures),
            Some(goal) => match point.goals.iter().find(|figures| figures.goal == goal) {
                Some(of) => (
                    of.searches.iter().map(GoalResult::found).collect(),
                    of.overstatement,
                    of.resolution,
                    &of.figures,
                ),
                None if point.missing.is_some() || point.void.is_some() => {
                    (Vec::new(), 1.0, point.resolution, &point.figures)
                }
                None => return None,
            },
        };
        let is_refuted = figures.refuted_at.is_some();
        Some(GoalSearches { results, point, found, overstatement, resolution, is_refuted })
    }

    /// Returns the searches in the form that the statistical comparison needs. Short trials may overstate passed rates,
    /// so the rates are divided by the largest possible factor of overstatement.
    fn searches(&self) -> Searches {
        Searches::of(&self.found, self.overstatement, self.point.vouched.map(|rate| rate.0))
    }
}

/// The searches of one of the two groups of runs in a comparison: the baselines, or the runs that are compared with
/// them.
type Side<'a> = Vec<GoalSearches<'a>>;

fn side<'a>(runs: &[&'a Run], conditions: &Conditions, goal: Option<Goal>) -> Side<'a> {
    let of_dut =
        |dut: &'a DutResult| dut.points.iter().find(|point| point.conditions == *conditions);
    let of_run = |run: &&'a Run| {
        let point = run.results.duts.iter().find_map(of_dut)?;
        GoalSearches::new(&run.results, point, goal)
    };
    runs.iter().filter_map(of_run).collect()
}

fn row(
    baselines: &[&Run],
    runs: &[&Run],
    name: &str,
    conditions: &Conditions,
    goal: Option<Goal>,
    limit: f64,
) -> Row {
    let (before, now) = (side(baselines, conditions, goal), side(runs, conditions, goal));
    let incomparable = incomparable(&before, &now);
    let [then, after] = [&before, &now].map(searches);
    let (baseline_median, median) = (median(&before), median(&now));
    let ratio = median.zip(baseline_median).map(|(now, before)| now / before);
    let compared = || Change { ratio, ..compare(&then, &after, limit) };
    Row {
        run: name.into(),
        baseline_median,
        median,
        change: incomparable.is_none().then(compared),
        conditions: conditions.clone(),
        goal,
        incomparable,
    }
}

/// Combines the searches of all runs in a group: the baselines, or the runs that are compared with them.
fn searches(side: &Side<'_>) -> Searches {
    side.iter()
        .map(GoalSearches::searches)
        .reduce(|all, more| all.and(&more))
        .unwrap_or_else(|| Searches::of(&[], 1.0, None))
}

/// Returns the median of all searches in a group of runs (the baselines, or the runs that are compared with them),
/// rounded as in a report. Returns `None` if a later trial refuted the median of one of the runs.
fn median(side: &Side<'_>) -> Option<f64> {
    let resolution = side.iter().map(|numbers| numbers.resolution).max()?;
    if side.iter().any(|numbers| numbers.is_refuted) {
        return None;
    }
    let found: Vec<Found> = side.iter().flat_map(|numbers| &numbers.found).copied().collect();
    Figures::of(&found, 1.0, resolution).median
}

/// Returns the reason why measurement points cannot be compared, or `None` if they can. Each point is checked against
/// the first point of the baselines.
fn incomparable(before: &Side<'_>, now: &Side<'_>) -> Option<Incomparable> {
    let (Some(&GoalSearches { results: then, point: first, .. }), false) =
        (before.first(), now.is_empty())
    else {
        return Some(if before.is_empty() {
            Incomparable::NotInBaseline
        } else {
            Incomparable::NotInRun
        });
    };
    if let Some(why) = before.iter().find_map(|of| of.point.missing.clone()) {
        return Some(Incomparable::BaselineMissing(why));
    }
    if let Some(why) = now.iter().find_map(|of| of.point.missing.clone()) {
        return Some(Incomparable::NoResult(why));
    }
    let wanted = measured_by(&then.plan, &first.conditions);
    for &GoalSearches { results: other, point, .. } in before[1..].iter().chain(now) {
        let keys = plan_diff::differing_keys(&wanted, &measured_by(&other.plan, &point.conditions));
        if !keys.is_empty() {
            return Some(Incomparable::Plans(keys));
        }
        if let Some((then, now)) =
            machines(then).into_iter().zip(machines(other)).find(|(then, now)| then != now)
        {
            return Some(Incomparable::Hosts(then, now));
        }
        let is_same = match (&first.place, &point.place) {
            (Some(then), Some(now)) => then.is_like(now),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            return Some(Incomparable::Places(first.ran_on(), point.ran_on()));
        }
    }
    None
}

/// Describes the CPUs of each machine in a run: the controlling machine first, then the hosts.
fn machines(results: &Results) -> Vec<String> {
    let here = std::iter::once(&results.environment);
    let all = here.chain(results.hosts.iter().map(|host| &host.environment));
    all.map(|e| format!("{} × {}", e.cpus, e.cpu)).collect()
}

/// Returns the part of a plan that affects the searches at a measurement point. The description of the server (program,
/// configuration and commands) is excluded, because the server is the subject of the comparison.
fn measured_by(plan: &Plan, conditions: &Conditions) -> Plan {
    let mut plan = plan.clone();
    let place = plan
        .measure
        .placements
        .iter()
        .find(|p| Some(&p.name) == conditions.place.placement.as_ref())
        .cloned();
    plan.duts.retain(|dut| dut.name() == conditions.dut);
    for dut in &mut plan.duts {
        *dut = DutPlan {
            name: None,
            program: None,
            threads: None,
            extra: Vec::new(),
            config: None,
            cores: None,
            placements: None,
            measure: None,
            custom: None,
            ..dut.clone()
        };
    }
    plan.name = String::new();
    plan.self_test = None;
    plan.search.repeat = 0;
    plan.trial.records = None;
    plan.measure =
        campaign::plan::Keys { placements: place.into_iter().collect(), ..Default::default() };
    plan
}

impl Row {
    /// Formats the measurement point as `campaign status` does. If the searches had a different goal from that of RFC
    /// 8219, their goal is appended.
    pub fn point(&self) -> String {
        let point = Point::Search(self.conditions.clone()).to_string();
        match &self.goal {
            Some(goal) => format!("{point}, {}", wording::goal(goal)),
            None => point,
        }
    }
}

#[cfg(test)]
mod tests;
