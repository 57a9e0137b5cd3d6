//! Results of trials at one rate that is sustained for minutes: CPU use without its transient,
//! efficiency, latency, memory. Shared by loads and constant rates.

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

/// Result at a rate. Invalid trials are excluded.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Sustained {
    /// Number of trials that count: all that the tester did not invalidate.
    pub trials: usize,
    /// Number of trials that the tester invalidated.
    pub spoiled: usize,
    /// True if all trials of the plan are done.
    pub complete: bool,
    /// Reason for missing figures.
    pub missing: Option<NoResult>,
    /// True if all trials that count passed; absent if none counts.
    pub passed: Option<bool>,
    /// Ends of the DUT in these trials. If there are any, there are no figures of CPU use, latency
    /// or memory.
    pub ended: Vec<DutEnd>,
    /// Deviation that rules out a result: the DUT was not queried under the conditions of the
    /// point.
    pub void: Option<Deviation>,
    /// CPU use of the DUT without the transient, in cores, summarized over the trials.
    pub cpu: Option<Summary>,
    /// Valid replies per second for each core in use (CPRDP) to four significant digits, summarized
    /// over the trials.
    pub cprdp: Option<Summary>,
    /// CPU use second by second of the first trial: the transient.
    pub cpu_by_second: Vec<f64>,
    /// Round-trip times of valid replies in µs, each the median over the trials.
    pub rtt_us: Option<Latency>,
    /// 99.9th percentile of AuthDNS's response time in µs, the median over the trials: the tester's
    /// share of the round-trip times.
    pub auth_p999_us: Option<f64>,
    /// Share of valid replies in all trials that count; absent if none counts.
    pub valid: Option<f64>,
    /// CPU placement of the DUT in all its trials; absent if it was not observed.
    pub place: Option<CpuPlacement>,
    /// Page allocations during each trial, by NUMA node; empty if the kernel does not count them.
    pub numa: Vec<NodeResult>,
}

/// Percentiles of round-trip times in µs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Latency {
    /// Median, µs.
    pub p50: f64,
    /// 99th percentile, µs.
    pub p99: f64,
    /// 99.9th percentile, µs.
    pub p999: f64,
}

/// Page allocations on a NUMA node, or on all of them, summarized over the trials.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NodeResult {
    /// The node's number; absent: all nodes together.
    pub node: Option<usize>,
    /// Pages allocated on the intended node.
    pub hit: Summary,
    /// Pages allocated on this node although another one was preferred.
    pub miss: Summary,
}

impl Sustained {
    /// True if the figures are those of a DUT that answered all queries.
    pub fn is_sound(&self) -> bool {
        self.passed == Some(true) && self.ended.is_empty() && self.void.is_none()
    }

    /// True if the DUT did not answer all queries: such a result has a mark instead of a value in
    /// figures.
    pub fn has_failed(&self) -> bool {
        self.passed.is_some() && !self.is_sound()
    }

    /// Returns the state of the trials: a label if the figures are not those of a sound server.
    pub fn state(&self) -> String {
        let spoiled = match self.spoiled {
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
        state + &spoiled
    }

    /// Returns a figure for a cell, or the reason why there is none, with a label if trials failed.
    pub fn cell(&self, value: Option<String>) -> String {
        let failed = if self.passed == Some(false) { " (failed)" } else { "" };
        match (value, &self.missing) {
            (Some(value), _) => format!("{value}{failed}"),
            (None, Some(why)) => why.to_string(),
            (None, None) => NoResult::NotCounted.to_string(),
        }
    }
}

/// The valid trials of a point, and their common outcome.
pub(super) struct ValidTrials<'a> {
    /// Those trials, in order.
    pub counted: Vec<&'a Measured>,
    /// Number of trials that the tester invalidated.
    pub spoiled: usize,
    /// Ends of the DUT in these trials.
    pub ended: Vec<DutEnd>,
    /// Reason for missing figures.
    pub missing: Option<NoResult>,
    /// True if all of them passed; absent if there are none.
    pub passed: Option<bool>,
}

impl<'a> ValidTrials<'a> {
    /// Collects the trials of a point; `replay` is `None` if there was no starting rate.
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
            (_, _, true, false) => Some(NoResult::Spoiled),
            _ => None,
        };
        let passed =
            (!counted.is_empty()).then(|| counted.iter().all(|m| m.verdict() == Verdict::Passed));
        ValidTrials { spoiled: all.len() - counted.len(), counted, ended, missing, passed }
    }
}

/// Returns the result at a rate; `replay` is `None` if there was no starting rate. The first
/// `transient` of `duration`, both in seconds, is excluded from the CPU use.
pub(super) fn result(
    recorded: &Recorded<'_>,
    point: &Point,
    replay: Option<&Replay<'_>>,
    (transient, duration): (f64, f64),
) -> Sustained {
    let ValidTrials { counted, spoiled, ended, missing, passed } =
        ValidTrials::new(recorded, point, replay);
    // A DUT that ended used CPU time without replies.
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
        spoiled,
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

/// Returns the mean CPU use of a trial after its transient; the last second may be partly after the
/// trial.
fn steady_cpu(m: &Measured, transient: f64, duration: f64) -> Option<f64> {
    let (skip, length) = (transient.ceil() as usize, duration as usize);
    let steady = m.cpu.dut.get(skip..length.min(m.cpu.dut.len()))?;
    (!steady.is_empty()).then(|| steady.iter().sum::<f64>() / steady.len() as f64)
}

/// Returns the page allocations by node, then their sum; empty unless all trials have counters of
/// the same nodes.
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
