//! Results of closed-loop trials.

use hosts::place::CpuPlacement;
use method::stats::MeanAndDeviation;
use serde::{Deserialize, Serialize};
use tester::client::experiments::NAMES;

use crate::plan::{Cores, Point};
use crate::record::{DutEnd, Measured};
use crate::results::no_result::NoResult;
use crate::results::sustained::ValidTrials;
use crate::sequence::Recorded;

/// Result of the closed-loop trials with a given number of threads.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClosedLoopResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// Number of threads of the tester.
    pub threads: usize,
    /// Requested frequency governor of the DUT's CPUs; absent if the governor was not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Number of valid trials.
    pub trials: usize,
    /// Number of invalid trials.
    #[serde(rename = "spoiled")]
    pub invalid: usize,
    /// True if all trials of the plan are done.
    pub complete: bool,
    /// Reason why there is no result; absent if there is a result.
    pub missing: Option<NoResult>,
    /// True if every name got a valid answer in all valid trials; absent if no trial is valid.
    pub passed: Option<bool>,
    /// For each valid trial in which the DUT died or hung, the way in which it failed.
    pub ended: Vec<DutEnd>,
    /// CPU placement of the DUT in all trials of the measurement point; absent if it was not
    /// observed.
    #[serde(rename = "place")]
    pub seen: Option<CpuPlacement>,
    /// Duration of an experiment with 256 names, in ms.
    pub time_ms: Option<MeanAndDeviation>,
    /// Answered queries per second: 256 divided by the mean duration of an experiment in seconds.
    pub qps: Option<f64>,
    /// CPU use of the DUT's host in per cent of all its CPUs (100 % minus idle time): mean and
    /// standard deviation of the per-second values.
    pub host_cpu_pct: Option<MeanAndDeviation>,
    /// CPU use of the DUT's processes in per cent of one CPU: mean and standard deviation of the
    /// per-second values.
    pub dut_cpu_pct: Option<MeanAndDeviation>,
}

/// Returns the reason why the measurement point has no result, or `None` if it has a result.
pub(crate) fn missing(recorded: &Recorded<'_>, point: &Point) -> Option<NoResult> {
    result(recorded, point)?.missing
}

/// Returns the result of the closed-loop trials with a given number of threads.
pub(super) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<ClosedLoopResult> {
    let Point::ClosedLoop(with) = point else { return None };
    let replay = recorded.replay(point)?;
    let ValidTrials { counted, invalid, ended, missing, passed } =
        ValidTrials::new(recorded, point, Some(&replay));
    let figured: &[&Measured] = if missing.is_none() { &counted } else { &[] };
    let times: Vec<f64> = figured
        .iter()
        .filter_map(|m| m.in_loop())
        .flat_map(|t| t.experiments.experiments_ms.iter().copied())
        .collect();
    let seconds = |get: fn(&Measured) -> &[f64]| -> Vec<f64> {
        figured.iter().flat_map(|m| get(m).iter().map(|share| share * 100.0)).collect()
    };
    let time_ms = MeanAndDeviation::of(&times);
    Some(ClosedLoopResult {
        place: with.place.clone(),
        threads: with.threads,
        governor: with.governor.clone(),
        trials: counted.len(),
        invalid,
        complete: replay.due().is_none(),
        missing,
        passed,
        ended,
        seen: crate::results::search::place_of(replay.trials.iter().copied()),
        time_ms,
        qps: time_ms.filter(|t| t.mean > 0.0).map(|t| NAMES as f64 * 1e3 / t.mean),
        host_cpu_pct: MeanAndDeviation::of(&seconds(|m| &m.cpu.host)),
        dut_cpu_pct: MeanAndDeviation::of(&seconds(|m| &m.cpu.dut)),
    })
}

/// CPU placement of the DUT, and frequency governor of its CPUs. A table contains only results with
/// the same placement and governor.
pub type Circumstances<'a> = (&'a Cores, Option<&'a str>);

impl ClosedLoopResult {
    /// Returns the CPU placement and the frequency governor of this result.
    pub fn circumstances(&self) -> Circumstances<'_> {
        (&self.place, self.governor.as_deref())
    }

    /// Returns a text for the report if there is no result, or if the DUT did not answer every
    /// name. Otherwise returns `None`.
    pub fn state(&self) -> Option<String> {
        match (&self.missing, self.passed) {
            (Some(why), _) => Some(why.to_string()),
            (None, Some(false)) => Some("failed: not every name got a valid answer".into()),
            _ => None,
        }
    }
}
