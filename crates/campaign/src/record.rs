//! Lines of the journal: everything that a campaign records about its servers, hosts and trials.

use std::fmt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use conform::outcome::Report;
use hosts::environment::Environment;
use hosts::numa::Numa;
use hosts::place::CpuPlacement;
use method::evidence::{Deviation, OfferedLoad};
use method::narrow::Length;
use method::reason::{HostLoss, OtherUse, Reason, ReasonKind};
use method::records::Counts;
use method::verdict::Verdict;
use method::warning::Warning;
use net::cpu_time::Stolen;
use serde::{Deserialize, Serialize};
use tester::authdns::auth_delta::AuthDelta;
use tester::client::experiments::Experiments;
use tester::measurer::burst::SendCost;
use tester::measurer::result::{TrialResult, unanswered};
use units::{Nanos, Qps, Share};

use crate::plan::{Plan, Point};

/// Format version of run folders and `results.json`. In version 1, values were identified by
/// position instead of by name, and measurement points had no CPU placement.
pub const VERSION: u32 = 2;

/// A line of a campaign's journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// First line of the journal.
    Begun {
        /// Version of the run folder's format: [`VERSION`].
        version: u32,
        /// The plan at the start of the run. It applies to all further lines of the journal.
        plan: Box<Plan>,
    },
    /// Version of a server.
    Version {
        /// Name of the DUT. For AuthDNS: "AuthDNS" if this is the server's name, otherwise "AuthDNS" followed by the
        /// server's name.
        dut: String,
        /// First line of the server's version output.
        text: String,
    },
    /// Configuration of a server at its first start.
    Configuration {
        /// Name of the DUT. If the configuration is for conformance checks, "for conform" follows, and then the
        /// difference from the usual configuration, if any. For AuthDNS: "AuthDNS" if this is the server's name,
        /// otherwise "AuthDNS" followed by the server's name.
        server: String,
        /// The command and the configuration file of the server.
        #[serde(rename = "told")]
        configuration: Configuration,
    },
    /// Facts about a host: a machine other than this one, or a network namespace of this machine.
    Host {
        /// Role of the host: "tester", "dut" or "auth". With several hosts of a role, this value stands for the first
        /// host. The second host is "tester 1" or "auth 1", the third host is "tester 2" or "auth 2", and so on.
        role: String,
        /// The facts that `dns64bench check` reports on the host.
        environment: Environment,
    },
    /// A host on which the kernel, the CPUs or the dns64bench build has changed since the previous
    /// record. The campaign continues on the changed host.
    HostChanged {
        /// Role of the host, with the same values as in `Host`. On loopback, "all" stands for the
        /// single machine of the campaign.
        role: String,
        /// The facts that `dns64bench check` reports on the host after the change.
        environment: Environment,
    },
    /// CPU time that the tester's host needs to send a query. This time determines the burst size in all trials.
    SendCost(SendCost),
    /// Start of a trial.
    Started(Step),
    /// End of a trial.
    Finished(Box<Measured>),
    /// A trial in which the DUT died or hung. The trial was repeated with a restarted server and is
    /// not included in any result.
    Repeated(Box<Measured>),
    /// Request to measure certain measurement points again. The trials of these points in earlier
    /// lines are ignored.
    Redone(Redo),
    /// A measurement point that cannot be measured, because the CPU frequency governor that the point requires cannot
    /// be set on the DUT's host. The point is not tried again after a resume.
    CannotBeMade {
        /// The measurement point that cannot be measured. It has no trials.
        point: Point,
        /// The missing feature, or the error message of the host.
        why: CannotBeMade,
    },
    /// An incident that is not a result: a server died or hung, or a measurement point cannot be
    /// measured.
    #[serde(rename = "mishap")]
    Incident {
        /// The measurement point at which the incident happened.
        point: Point,
        /// Description of the incident.
        what: String,
        /// Last lines of the server's log.
        log: String,
    },
}

/// Measurement points that `campaign resume --redo` measures again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Redo {
    /// All self-tests of the plan.
    SelfTest,
}

impl Redo {
    /// True if `point` is measured again.
    pub(crate) fn covers(self, point: &Point) -> bool {
        match self {
            Redo::SelfTest => matches!(point, Point::SelfTest(_)),
        }
    }
}

/// Command and configuration file of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Configuration {
    /// The command that starts the server.
    pub command: Vec<String>,
    /// Name of the configuration file; empty if there is no file.
    pub file: String,
    /// Contents of the configuration file.
    pub text: String,
}

impl Entry {
    /// Returns the first line of a journal.
    pub fn begun(plan: &Plan) -> Entry {
        Entry::Begun { version: VERSION, plan: Box::new(plan.clone()) }
    }
}

/// Identity of a trial: its measurement point, its search or repetition, its rate and its length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Step {
    /// The measurement point of the trial.
    pub point: Point,
    /// Index of the search or repetition. The first one has index 0.
    pub repeat: u32,
    /// Offered rate, queries per second.
    pub rate: Qps,
    /// Length of the trial: a short trial (probe), a full-length trial, or the duration chosen by MLRsearch.
    pub length: Length,
}

/// A finished trial: the tester's result, and observations of the servers and hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measured {
    /// Measurement point, search, rate and length of the trial.
    #[serde(flatten)]
    pub step: Step,
    /// The result that the tester reported.
    #[serde(flatten)]
    pub found: TaskResult,
    /// Present if the DUT died or hung during the trial. CPU use and latency are then meaningless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut_end: Option<DutEnd>,
    /// CPU use of the DUT, of AuthDNS and of the Measurer, and CPU placement of the DUT.
    pub cpu: Cpu,
    /// Page allocations of the DUT's host during the trial, by NUMA node; absent if the kernel does
    /// not count them.
    pub numa: Option<Numa>,
    /// CPU time stolen by a hypervisor.
    #[serde(default)]
    pub stolen: StolenFrom,
    /// Warnings about the tester that did not make the trial invalid. The JSON form has two lists: `warnings` contains
    /// the warnings as sentences, and `warning_causes` contains them as data.
    #[serde(flatten, with = "method::warning::in_words")]
    #[schemars(with = "method::warning::in_words::Written<'static>")]
    pub warnings: Vec<Warning>,
    /// Path of the trial's per-query records, relative to the run folder. Absent if the plan has no
    /// `records`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<PathBuf>,
}

impl Measured {
    /// Returns the verdict.
    pub fn verdict(&self) -> Verdict {
        match &self.found {
            TaskResult::Trial(trial) => trial.verdict,
            TaskResult::ClosedLoop(trial) => trial.verdict,
            TaskResult::Conform(trial) => trial.verdict(),
        }
    }

    /// Returns the reasons for the verdict. Empty if the trial passed, or if it consisted of
    /// conformance checks.
    pub fn reasons(&self) -> &[Reason] {
        match &self.found {
            TaskResult::Trial(trial) => &trial.reasons,
            TaskResult::ClosedLoop(trial) => &trial.reasons,
            TaskResult::Conform(_) => &[],
        }
    }

    /// Returns the trial's deviation from the conditions in the plan, or `None` if there is no
    /// deviation.
    pub fn deviation(&self) -> Option<Deviation> {
        match &self.found {
            TaskResult::Trial(trial) => trial.deviation,
            TaskResult::ClosedLoop(trial) => trial.deviation,
            TaskResult::Conform(_) => None,
        }
    }

    /// Returns the trial if it sent queries at a constant rate.
    pub fn at_rate(&self) -> Option<&TrialResult> {
        match &self.found {
            TaskResult::Trial(trial) => Some(trial),
            TaskResult::ClosedLoop(_) | TaskResult::Conform(_) => None,
        }
    }

    /// Returns the trial if it was a closed-loop trial.
    pub fn in_loop(&self) -> Option<&LoopTrial> {
        match &self.found {
            TaskResult::ClosedLoop(trial) => Some(trial),
            TaskResult::Trial(_) | TaskResult::Conform(_) => None,
        }
    }

    /// Returns the trial if it consisted of conformance checks.
    pub fn checked(&self) -> Option<&ConformTrial> {
        match &self.found {
            TaskResult::Conform(trial) => Some(trial),
            TaskResult::Trial(_) | TaskResult::ClosedLoop(_) => None,
        }
    }

    /// True if the DUT may have ended during the trial. This is possible if queries had no reply, or if the trial
    /// consisted of conformance checks.
    pub(crate) fn may_have_ended_the_dut(&self) -> bool {
        self.counts().lost > 0 || self.checked().is_some()
    }

    /// Returns the number of queries with each outcome. The numbers are 0 for conformance checks,
    /// because their queries are not counted.
    pub fn counts(&self) -> &Counts {
        static NOT_COUNTED: LazyLock<Counts> = LazyLock::new(Counts::default);
        match &self.found {
            TaskResult::Trial(trial) => &trial.counts,
            TaskResult::ClosedLoop(trial) => &trial.experiments.counts,
            TaskResult::Conform(_) => &NOT_COUNTED,
        }
    }
}

/// Result of a trial, as the tester reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskResult {
    /// A trial at a constant rate.
    Trial(Box<TrialResult>),
    /// A closed loop: each thread waited for an answer before it sent its next query.
    ClosedLoop(Box<LoopTrial>),
    /// Results of the conformance checks.
    Conform(Box<ConformTrial>),
}

/// The way in which a DUT failed during a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DutEnd {
    /// The DUT's process ended with this exit status or signal.
    Died(String),
    /// The DUT's process is running, but does not answer even a few seconds after the trial.
    Hung,
}

impl std::fmt::Display for DutEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DutEnd::Died(how) => write!(f, "the DUT ended with {how}"),
            DutEnd::Hung => write!(f, "the DUT hangs"),
        }
    }
}

/// CPU use of the DUT, AuthDNS and the Measurer during a trial, and CPU placement of the DUT.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cpu {
    /// CPU use of the DUT in each second, in cores.
    pub dut: Vec<f64>,
    /// For each second, the share of time, from 0 to 1, in which the CPUs of the DUT's host were
    /// not idle. Empty if the host does not report it.
    #[serde(default)]
    pub host: Vec<f64>,
    /// Mean CPU use of AuthDNS, in cores. With several AuthDNS servers, this is the CPU use of the
    /// busiest server.
    pub auth: f64,
    /// Mean CPU use of the Measurer, in cores.
    pub tester: f64,
    /// CPU placement of the DUT, observed in the middle of the trial; absent in self-tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<CpuPlacement>,
    /// Use of the DUT's CPUs by processes other than the DUT and the tester. Absent in self-tests,
    /// and if the host does not report this use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OtherUse>,
}

/// CPU time that a hypervisor stole from each host during a trial, if the host reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StolenFrom {
    /// CPU time stolen from the tester's host. With several testers, the value applies to the host
    /// that lost the most CPU time.
    pub tester: Option<Stolen>,
    /// CPU time stolen from the DUT's host.
    pub dut: Option<Stolen>,
    /// CPU time stolen from AuthDNS's host. With several AuthDNS hosts, the value applies to the
    /// host that lost the most CPU time. Absent if no host reports it.
    pub auth: Option<Stolen>,
}

/// Sysfs folder that describes the CPUs.
pub(crate) const CPUS: &str = "/sys/devices/system/cpu";

/// Reason why the CPU frequency governor that a measurement point requires cannot be set on the DUT's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CannotBeMade {
    /// The CPUs of the DUT's host have no frequency scaling.
    NoScaling,
    /// The CPUs have frequency scaling, but do not support the requested governor.
    NoSuchGovernor {
        /// The frequency governor that the plan requests.
        wanted: String,
        /// The frequency governors that the host supports.
        known: Vec<String>,
    },
    /// The host refused to set the governor. A different user may have permission to set it.
    Refused {
        /// Output of the command that should set the frequency governor.
        why: String,
    },
}

impl CannotBeMade {
    /// True if a second attempt to set the frequency governor would fail for the same reason.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, CannotBeMade::Refused { .. })
    }
}

impl fmt::Display for CannotBeMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotBeMade::NoScaling => {
                write!(f, "the DUT's host has no dynamic frequency scaling (no cpufreq in {CPUS})")
            }
            CannotBeMade::NoSuchGovernor { wanted, known } => {
                write!(
                    f,
                    "the CPUs of the DUT's host have no frequency governor {wanted}, only {}",
                    known.join(", ")
                )
            }
            CannotBeMade::Refused { why } => {
                write!(f, "cannot set the frequency governor of the DUT's host: {why}")
            }
        }
    }
}

/// A closed-loop trial with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoopTrial {
    /// The result that the tester reported.
    #[serde(flatten)]
    pub experiments: Experiments,
    /// Change in AuthDNS's counters during the trial; absent if AuthDNS does not count queries.
    #[serde(default)]
    pub auth: Option<AuthDelta>,
    /// Deviation of the trial from the conditions in the plan. Present only if the trial would
    /// otherwise have passed.
    #[serde(default)]
    pub deviation: Option<Deviation>,
    /// Verdict of the trial. A trial is invalid if the tester's host lost a query or an answer.
    /// Otherwise, the trial passed if every name got a valid answer.
    pub verdict: Verdict,
    /// Reasons for the verdict; empty if the trial passed.
    pub reasons: Vec<Reason>,
}

impl LoopTrial {
    /// Determines the verdict of a closed-loop trial from the tester's result. A trial is invalid
    /// if the tester's host dropped a packet or refused to send a packet. A trial fails if a name
    /// has no valid answer.
    pub(crate) fn judge(experiments: Experiments) -> LoopTrial {
        let (drops, c) = (experiments.client_drops, &experiments.counts);
        let too_few = Reason::TooFewValid {
            sent: c.sent,
            valid: c.valid,
            lost: c.lost,
            late: c.late,
            wrong: c.wrong.total(),
        };
        let (verdict, reasons) = match c.sent - c.valid {
            _ if drops > 0 => {
                (Verdict::Invalid, vec![Reason::HostLoss(HostLoss::Sockets { packets: drops })])
            }
            // A thread waits for the answer to each query, so a query that could not be sent delays
            // the whole experiment.
            _ if c.refused > 0 => {
                (Verdict::Invalid, vec![Reason::QueriesRefused { queries: c.refused }])
            }
            0 => (Verdict::Passed, Vec::new()),
            _ => (Verdict::Failed, vec![too_few]),
        };
        LoopTrial { experiments, auth: None, deviation: None, verdict, reasons }
    }

    /// Checks the verdict of the trial against the change in AuthDNS's counters, as for trials at a
    /// constant rate. The trial becomes invalid in any of these cases:
    /// - AuthDNS had a fault.
    /// - The trial failed, but AuthDNS alone may be the cause. This is so if two conditions hold. For every name
    ///   without a valid answer, the reply was missing, late or SERVFAIL. The number of upstream queries that AuthDNS
    ///   missed or answered too late is at least the number of these names.
    /// - The trial passed, but the DUT did not send an upstream query for each name.
    pub(crate) fn apply_auth(&mut self, part: AuthDelta, limit: Nanos) {
        let mut faults = part.faults(limit, limit);
        let counts = &self.experiments.counts;
        let unanswered = unanswered(counts);
        let decides = counts.valid + unanswered.min(part.doubtful()) >= counts.sent;
        if faults.is_empty() && self.verdict == Verdict::Failed && decides {
            faults.extend(part.doubts(limit, unanswered));
        }
        if !faults.is_empty() {
            self.verdict = Verdict::Invalid;
            // The number of valid answers has no meaning in an invalid trial, so it must not be a
            // reason for the verdict.
            self.reasons.retain(|reason| reason.kind() != ReasonKind::TooFewValid);
            self.reasons.extend(faults);
        }
        let wanted = OfferedLoad {
            sent: self.experiments.counts.sent,
            valid: self.experiments.counts.valid,
            preloaded: 0,
            aaaa: Share::ZERO,
            cached: 0.0,
        };
        if self.verdict == Verdict::Passed
            && let Some(deviation) = part.asked.deviation(&wanted)
        {
            self.verdict = Verdict::Invalid;
            self.reasons.push(Reason::Deviation { deviation });
            self.deviation = Some(deviation);
        }
        self.auth = Some(part);
    }
}

/// Result of the conformance checks of a DUT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConformTrial {
    /// Start of the checks, seconds since 1970-01-01 UTC.
    pub started_unix_s: f64,
    /// Duration of the checks, in seconds.
    #[serde(alias = "seconds")]
    pub duration_s: f64,
    /// Result of each check; absent if no check could be executed.
    pub report: Option<Report>,
    /// Reason why there is no report; empty if there is a report.
    pub why: String,
}

impl ConformTrial {
    /// Returns the result of checks that began at the time `begun` and ended with a report.
    pub(crate) fn new(begun: SystemTime, report: Report) -> ConformTrial {
        let started_unix_s = unix_s(begun);
        let duration_s = report.duration_s;
        ConformTrial { started_unix_s, duration_s, report: Some(report), why: String::new() }
    }

    /// Returns the result of checks that began at the time `begun` and have just ended without a
    /// report. `why` is the reason for the missing report.
    pub(crate) fn without_report(begun: SystemTime, why: String) -> ConformTrial {
        let duration_s = begun.elapsed().unwrap_or_default().as_secs_f64();
        ConformTrial { started_unix_s: unix_s(begun), duration_s, report: None, why }
    }

    /// Returns `Passed` if there is a report and no check of level MUST failed, otherwise `Failed`.
    /// Conformance checks are never invalid.
    pub(crate) fn verdict(&self) -> Verdict {
        match &self.report {
            Some(report) if !report.fails_a_must() => Verdict::Passed,
            _ => Verdict::Failed,
        }
    }
}

fn unix_s(moment: SystemTime) -> f64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_error_is_not_a_slow_answer() {
        let judged = |valid, refused| {
            let mut found = Experiments::begin("[::1]:53".into(), 1, 0.0);
            found.counts.sent = 256 - refused;
            (found.counts.valid, found.counts.refused) = (valid, refused);
            LoopTrial::judge(found).verdict
        };
        assert_eq!(judged(256, 0), Verdict::Passed);
        assert_eq!(judged(255, 0), Verdict::Failed);
        assert_eq!(judged(255, 1), Verdict::Invalid);
    }

    #[test]
    fn unanswered_names_may_be_due_to_a_slow_authdns() {
        let judged = |lost, slow| {
            let mut found = Experiments::begin("[::1]:53".into(), 1, 0.0);
            found.counts.sent = 25_600;
            (found.counts.valid, found.counts.lost) = (25_600 - lost, lost);
            let mut trial = LoopTrial::judge(found);
            trial.apply_auth(AuthDelta { slow, ..AuthDelta::default() }, Nanos::from_millis(10));
            (trial.verdict, trial.reasons.iter().map(Reason::kind).collect::<Vec<_>>())
        };
        assert_eq!(judged(16, 15), (Verdict::Failed, vec![ReasonKind::TooFewValid]));
        assert_eq!(judged(16, 16), (Verdict::Invalid, vec![ReasonKind::AuthDecides]));
    }
}
