//! Results of trials at fractions of the DUT's worst-case rate (`[measure.loads]`), and of trials at constant rates
//! (`[[measure.constant-rates]]`). All these trials last for minutes. The results are CPU use (without the initial
//! transient), efficiency, latency and memory.

use hosts::numa::{NodePages, Numa};
use hosts::place::CpuPlacement;
use method::evidence::Deviation;
use method::precision::four_digits;
use method::stats::Summary;
use method::verdict::Verdict;
use serde::{Deserialize, Serialize};
use tester::measurer::result::Rtt;

use crate::plan::Point;
use crate::record::{DutEnd, Measured};
use crate::results::no_result::NoResult;
use crate::results::search::place_of;
use crate::sequence::{Recorded, Replay};

/// Result of the trials at one rate. Invalid trials are excluded.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Sustained {
    /// Number of valid trials.
    pub trials: usize,
    /// Number of invalid trials.
    #[serde(rename = "spoiled")]
    pub invalid: usize,
    /// True if all trials that the plan requires at this rate are done.
    pub complete: bool,
    /// Reason why there are no measured values; absent if there are measured values.
    pub missing: Option<NoResult>,
    /// True if all valid trials passed; absent if no trial is valid.
    pub passed: Option<bool>,
    /// For each valid trial in which the DUT died or hung, the way in which it failed. If there is
    /// such a trial, there are no values for CPU use, latency and memory.
    pub ended: Vec<DutEnd>,
    /// Difference between the observed and the requested AAAA record rate (α) or cache hit rate (β), as shown by
    /// AuthDNS's counters. Such a difference makes the measurement point void: the point has no result. Absent if there
    /// is no such difference.
    pub void: Option<Deviation>,
    /// CPU use of the DUT without the transient, in cores, summarized over the trials.
    pub cpu: Option<Summary>,
    /// CPRDP: valid replies per second, divided by the number of cores in use. The values are
    /// summarized over the trials, and have four significant digits.
    pub cprdp: Option<Summary>,
    /// CPU use of the DUT in each second of the first trial, in cores. These values show the
    /// initial transient.
    pub cpu_by_second: Vec<f64>,
    /// Percentiles of the round-trip time of valid replies, in µs. Each percentile is the median
    /// over the trials.
    pub rtt_us: Option<Latency>,
    /// 99.9th percentile of AuthDNS's response time in µs: the median over the trials. The DUT does
    /// not cause this part of the round-trip time.
    pub auth_p999_us: Option<f64>,
    /// Share of valid replies in all valid trials, from 0 to 1; absent if no query was sent.
    pub valid: Option<f64>,
    /// CPU placement of the DUT in all trials of the measurement point; absent if it was not
    /// observed.
    pub place: Option<CpuPlacement>,
    /// Page allocations during each trial, by NUMA node; empty if the kernel does not count them.
    pub numa: Vec<NodeResult>,
}

/// Percentiles of round-trip times in µs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Latency {
    /// Median of the round-trip times, µs.
    pub p50: f64,
    /// 99th percentile of the round-trip times, µs.
    pub p99: f64,
    /// 99.9th percentile of the round-trip times, µs.
    pub p999: f64,
}

/// Page allocations on one NUMA node or on all nodes, summarized over the trials.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NodeResult {
    /// Number of the NUMA node; absent for the sum of all nodes.
    pub node: Option<usize>,
    /// Number of pages allocated on this NUMA node while it was the preferred node.
    pub hit: Summary,
    /// Number of pages allocated on this NUMA node although a different node was preferred.
    pub miss: Summary,
}

impl Sustained {
    /// True if the DUT passed all valid trials, did not die or hang, and was measured under the
    /// requested conditions.
    pub fn is_sound(&self) -> bool {
        self.passed == Some(true) && self.ended.is_empty() && self.void.is_none()
    }

    /// True if there is a valid trial, and one of these conditions holds: a valid trial failed, the DUT died or hung,
    /// or the requested conditions were not met. Charts then show a mark instead of the value.
    pub fn has_failed(&self) -> bool {
        self.passed.is_some() && !self.is_sound()
    }

    /// Returns the state of the trials as text: the number of trials that passed or failed, or the
    /// reason why there are no measured values.
    pub fn state(&self) -> String {
        let invalid = match self.invalid {
            0 => String::new(),
            n => format!(", {n} invalid"),
        };
        let state = match (&self.missing, self.passed, self.ended.first()) {
            (Some(why @ NoResult::Void(_)), ..) => format!("INVALID: {why}"),
            (_, _, Some(DutEnd::Hung)) => "HUNG".into(),
            (_, _, Some(DutEnd::Died(_))) => "DIED".into(),
            (Some(why), None, None) => why.to_string(),
            (_, Some(true), None) => format!("{} passed", self.trials),
            (_, Some(false), None) => format!("{} FAILED", self.trials),
            (None, None, None) => NoResult::Unfinished.to_string(),
        };
        state + &invalid
    }

    /// Returns the text of a table cell: the value, labelled if trials failed, or the reason why
    /// there is no value.
    pub fn cell(&self, value: Option<String>) -> String {
        let failed = if self.passed == Some(false) { " (failed)" } else { "" };
        match (value, &self.missing) {
            (Some(value), _) => format!("{value}{failed}"),
            (None, Some(why)) => why.to_string(),
            (None, None) => NoResult::NotCounted.to_string(),
        }
    }
}

/// The valid trials of a measurement point, and a summary of their outcomes.
pub(super) struct ValidTrials<'a> {
    /// The valid trials, in order.
    pub counted: Vec<&'a Measured>,
    /// Number of invalid trials.
    pub invalid: usize,
    /// For each valid trial in which the DUT died or hung, the way in which it failed.
    pub ended: Vec<DutEnd>,
    /// Reason why there are no measured values; absent if there are measured values.
    pub missing: Option<NoResult>,
    /// True if all valid trials passed; `None` if no trial is valid.
    pub passed: Option<bool>,
}

impl<'a> ValidTrials<'a> {
    /// Collects the valid trials of a measurement point. `replay` contains the trials of the point. It is `None` if the
    /// rate depends on a different point that has no result.
    pub(super) fn new(
        recorded: &Recorded<'_>,
        point: &Point,
        replay: Option<&Replay<'a>>,
    ) -> ValidTrials<'a> {
        let all: &[&Measured] = replay.map_or(&[], |replay| &replay.trials);
        let counted: Vec<&Measured> =
            all.iter().copied().filter(|m| m.verdict() != Verdict::Invalid).collect();
        let ended: Vec<DutEnd> = counted.iter().filter_map(|m| m.dut_end.clone()).collect();
        let cannot = replay.and_then(|replay| replay.cannot);
        let void = replay.and_then(|replay| replay.void);
        let missing = match (void, ended.first(), counted.is_empty(), all.is_empty()) {
            _ if cannot.is_some() => cannot.cloned().map(NoResult::CannotBeMade),
            (Some(why), ..) => Some(NoResult::Void(why)),
            (_, Some(end), ..) => Some(NoResult::Ended(end.clone())),
            (_, _, true, true) if point.measure().can_never_run(recorded, point) => {
                Some(NoResult::NoRate)
            }
            (_, _, true, true) => Some(NoResult::not_begun(recorded, point)),
            (_, _, true, false) => Some(NoResult::Invalid),
            _ => None,
        };
        let passed =
            (!counted.is_empty()).then(|| counted.iter().all(|m| m.verdict() == Verdict::Passed));
        ValidTrials { invalid: all.len() - counted.len(), counted, ended, missing, passed }
    }
}

/// Returns the result of the trials at one rate. `replay` contains the trials. It is `None` if the rate depends on a
/// different measurement point that has no result. `duration` is the duration of sending in each trial, in seconds. The
/// first `transient` seconds of each trial are excluded from the CPU use.
pub(super) fn result(
    recorded: &Recorded<'_>,
    point: &Point,
    replay: Option<&Replay<'_>>,
    (transient, duration): (f64, f64),
) -> Sustained {
    let ValidTrials { counted, invalid, ended, missing, passed } =
        ValidTrials::new(recorded, point, replay);
    // If the DUT died or hung, its CPU use and latency are meaningless.
    let figured: &[&Measured] = if missing.is_none() { &counted } else { &[] };
    let steady = |m: &Measured| steady_cpu(m, transient, duration);
    let cpu: Vec<f64> = figured.iter().filter_map(|m| steady(m)).collect();
    let efficiency = |m: &&Measured| {
        let cpu = steady(m).filter(|&cpu| cpu > 0.0)?;
        Some(m.at_rate()?.throughput / cpu)
    };
    let cprdp: Vec<f64> = figured.iter().filter_map(efficiency).collect();
    let trials = || figured.iter().filter_map(|m| m.at_rate());
    let own: Vec<f64> =
        trials().filter_map(|t| t.auth.as_ref()?.own_time_us.map(|own| own.p999)).collect();
    let sum = |get: fn(&Measured) -> u64| counted.iter().map(|m| get(m)).sum::<u64>();
    let (valid, sent) = (sum(|m| m.counts().valid), sum(|m| m.counts().sent));
    Sustained {
        trials: counted.len(),
        invalid,
        complete: recorded.is_complete(point),
        missing,
        passed,
        void: replay.and_then(|replay| replay.void),
        cpu: Summary::of(&cpu),
        cprdp: Summary::of(&cprdp).map(|cprdp| cprdp.rounded(four_digits)),
        cpu_by_second: figured.first().map(|m| m.cpu.dut.clone()).unwrap_or_default(),
        rtt_us: latency(&trials().filter_map(|t| t.rtt_us).collect::<Vec<_>>()),
        auth_p999_us: Summary::of(&own).map(|summary| summary.median),
        valid: (sent > 0).then(|| valid as f64 / sent as f64),
        ended,
        place: place_of(replay.into_iter().flat_map(|replay| replay.trials.iter().copied())),
        numa: nodes(figured),
    }
}

pub(crate) fn latency(all: &[Rtt]) -> Option<Latency> {
    let median = |get: fn(&Rtt) -> f64| {
        Summary::of(&all.iter().map(get).collect::<Vec<_>>()).map(|s| s.median)
    };
    Some(Latency { p50: median(|r| r.p50)?, p99: median(|r| r.p99)?, p999: median(|r| r.p999)? })
}

/// Returns the mean CPU use of a trial without its initial transient, in cores. An incomplete last second is excluded,
/// because part of it may lie after the end of the trial.
fn steady_cpu(m: &Measured, transient: f64, duration: f64) -> Option<f64> {
    let (skip, length) = (transient.ceil() as usize, duration as usize);
    let steady = m.cpu.dut.get(skip..length.min(m.cpu.dut.len()))?;
    (!steady.is_empty()).then(|| steady.iter().sum::<f64>() / steady.len() as f64)
}

/// Returns the page allocations on each NUMA node, and then their sum over all nodes. The list is
/// empty if a trial has no counters, or if not all trials list the same nodes.
fn nodes(trials: &[&Measured]) -> Vec<NodeResult> {
    let Some(all) = trials.iter().map(|m| m.numa.as_ref()).collect::<Option<Vec<&Numa>>>() else {
        return Vec::new();
    };
    let numbers = |of: &Numa| of.nodes.iter().map(|n| n.node).collect::<Vec<_>>();
    let Some(first) = all.first().map(|first| numbers(first)) else { return Vec::new() };
    if first.is_empty() || all.iter().any(|trial| numbers(trial) != first) {
        return Vec::new();
    }
    let of = |node: Option<usize>| {
        let sum = |get: fn(&NodePages) -> u64| {
            let each = |trial: &&Numa| {
                trial
                    .nodes
                    .iter()
                    .filter(|n| node.is_none_or(|node| n.node == node))
                    .map(get)
                    .sum::<u64>() as f64
            };
            Summary::of(&all.iter().map(each).collect::<Vec<_>>())
        };
        Some(NodeResult { node, hit: sum(|n| n.hit)?, miss: sum(|n| n.miss)? })
    };
    first.iter().map(|&node| Some(node)).chain([None]).filter_map(of).collect()
}
