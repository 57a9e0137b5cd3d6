//! All results of a DUT.

use method::pacing::Windows;
use serde::{Deserialize, Serialize};
use units::Qps;

use crate::results::closed_loop::ClosedLoopResult;
use crate::results::conform::ConformResult;
use crate::results::constant_rate::ConstantRateResult;
use crate::results::load::LoadResult;
use crate::results::search::PointResult;

/// Groups items by a key, for example results by placement. Groups and items keep their order.
pub fn by_key<'a, T, K: PartialEq>(all: &'a [T], key: impl Fn(&'a T) -> K) -> Vec<(K, Vec<&'a T>)> {
    let mut groups: Vec<(K, Vec<&T>)> = Vec::new();
    for one in all {
        let of = key(one);
        match groups.iter_mut().find(|(known, _)| *known == of) {
            Some((_, known)) => known.push(one),
            None => groups.push((of, vec![one])),
        }
    }
    groups
}

/// Results of one DUT.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DutResult {
    /// Name of the DUT in the plan.
    pub name: String,
    /// Version output of the DUT.
    pub version: String,
    /// Results of the searches, in plan order.
    pub points: Vec<PointResult>,
    /// CPU use and latency at fractions of the DUT's worst-case rate (median of its worst-case
    /// searches).
    pub loads: Vec<LoadResult>,
    /// CPU use, latency and memory at rates from the plan.
    pub constant_rates: Vec<ConstantRateResult>,
    /// Results of the closed-loop trials: durations of experiments with 256 names each.
    pub closed_loops: Vec<ClosedLoopResult>,
    /// Results of the conformance checks; absent if the plan has no checks for this DUT.
    #[serde(default)]
    pub conform: Option<ConformResult>,
    /// Accuracy of the query schedule in the trial at the highest rate that passed at full length;
    /// absent if no trial passed.
    #[serde(default)]
    pub paced: Option<PacedTrial>,
}

/// Accuracy with which the tester kept the query schedule in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PacedTrial {
    /// Offered rate of the trial, queries per second.
    pub rate: Qps,
    /// Deviations of the number of queries from the schedule, in the time windows of the trial.
    pub windows: Windows,
}
