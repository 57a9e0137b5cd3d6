//! Results of a campaign, computed only from the plan and the journal. A report can therefore be
//! rewritten without new trials.

mod closed_loop;
mod conform;
mod consistency;
mod constant_rate;
mod dut;
mod host_change;
mod load;
mod no_result;
mod outcome;
mod search;
mod self_test;
mod sustained;
mod trials;

use hosts::environment::Environment;
use method::compliance::{Fact, Facts, TesterProof, noncompliance_of};
use method::narrow::Length;
use method::noncompliance::Noncompliance;
use method::reason::{Reason, ReasonKind};
use method::stats::Summary;
use method::verdict::Verdict;
use method::warning::Warning;
use net::cpu_time::Stolen;
use serde::{Deserialize, Serialize};
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use units::{Qps, Share};

use crate::journal::plausible::span;
use crate::plan::{AuthPlan, Conditions, Plan, Point};
use crate::record::{Configuration, Entry, Measured, StolenFrom, VERSION};
use crate::results::consistency::contradictions;
use crate::results::host_change::host_changes;
use crate::sequence::{self, Recorded, SearchSequence};

pub use closed_loop::{Circumstances, ClosedLoopResult};
pub use conform::{ConformResult, Counts};
pub use consistency::Contradiction;
pub use constant_rate::ConstantRateResult;
pub use dut::{DutResult, PacedTrial, by_key};
pub use host_change::HostChange;
pub(crate) use host_change::{ALL_ROLES, changed_facts, last_recorded};
pub use load::LoadResult;
pub use no_result::NoResult;
pub use search::{DutEndCounts, PointResult, Trials};
pub(crate) use self_test::FailedSelfTest;
pub use self_test::SelfTestResult;
pub use sustained::{Latency, NodeResult, Sustained};
pub use trials::Trial;

/// Contents of `results.json`: all data of a report. `dns64bench schema results` prints its JSON
/// Schema.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Results {
    /// Format version of `results.json`: [`VERSION`].
    pub schema_version: u32,
    /// The plan at the start of the run, including defaults.
    pub plan: Plan,
    /// The machine on which the campaign was started.
    pub environment: Environment,
    /// Facts about each host: machines other than this one, and network namespaces of this machine.
    pub hosts: Vec<HostFacts>,
    /// Hosts with facts that changed while the campaign was interrupted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_changes: Vec<HostChange>,
    /// Version of the AuthDNS that `[auth]` configures.
    pub auth: String,
    /// Each AuthDNS that a DUT queries.
    pub authdns: Vec<AuthResult>,
    /// Configuration of each server.
    pub configurations: Vec<ServerConfig>,
    /// True if every measurement point of the plan has a result, except points with a CPU frequency
    /// governor that the DUT's host does not support.
    pub complete: bool,
    /// The measurement points without a result, in plan order.
    #[serde(default)]
    pub without_result: Vec<WithoutResult>,
    /// The self-tests of the plan. The first self-test validates the trials with the AuthDNS of
    /// `[auth]`.
    pub self_tests: Vec<SelfTestResult>,
    /// Results of each DUT, in plan order.
    pub duts: Vec<DutResult>,
    /// Pacing errors and other errors of the tester, over all trials.
    pub health: Health,
    /// Deviations of the campaign from RFC 8219 §9.2, determined from its trials. The JSON form has
    /// two lists: `noncompliance` contains each deviation as a sentence, and `noncompliance_causes`
    /// contains the data of each deviation.
    #[serde(flatten, with = "method::noncompliance::in_words")]
    #[schemars(with = "method::noncompliance::in_words::Written<'static>")]
    pub noncompliance: Vec<Noncompliance>,
    /// Contradictions: results that cannot both be correct.
    pub contradictions: Vec<Contradiction>,
    /// Start of the first trial and end of the last trial; absent if there is no trial.
    pub period_unix_s: Option<Period>,
    /// Incidents: servers that died, hung or could not be started.
    #[serde(rename = "mishaps")]
    pub incidents: Vec<Incident>,
    /// All trials of the journal; not part of `results.json`.
    #[serde(skip)]
    pub trials: Vec<Trial>,
}

/// Configuration of a server.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ServerConfig {
    /// Name of the DUT. If the configuration is for conformance checks, "for conform" follows, and then the difference
    /// from the usual configuration, if any. For AuthDNS: "AuthDNS" if this is the server's name, otherwise "AuthDNS"
    /// followed by the server's name.
    pub server: String,
    /// Command and configuration file of the server at its first start.
    #[serde(flatten)]
    pub configuration: Configuration,
}

/// A server that acts as AuthDNS.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuthResult {
    /// Name of the server in the plan.
    pub name: String,
    /// Version that the server reports.
    pub version: String,
    /// True if the server counts queries. Without counters, there is no proof that the DUT sent
    /// upstream queries for new names.
    pub counts: bool,
}

/// Start, end and total duration of the trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Period {
    /// Start of the first trial, in seconds since 1970-01-01 UTC.
    pub begun: f64,
    /// End of the last trial, in seconds since 1970-01-01 UTC.
    pub ended: f64,
    /// Total duration of all trials, including their timeouts, in seconds.
    pub trials_s: f64,
}

/// Facts about a host.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HostFacts {
    /// Role of the host, such as "tester", "dut" or "auth".
    pub role: String,
    /// The facts that `dns64bench check` reports on the host.
    pub environment: Environment,
}

/// Accuracy of the tester over all trials of a run: pacing errors, invalid trials and warnings.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Health {
    /// Number of trials of each kind: probes, full trials, invalid trials and skipped trials.
    pub trials: Trials,
    /// For each trial, the largest deviation of the number of queries from the schedule in any 100
    /// ms window, in per cent.
    pub window_pct: Option<Spread>,
    /// For each trial, the 99.9th percentile of the lateness of its queries, in µs.
    pub lateness_us: Option<Spread>,
    /// Reasons why trials were invalid, with the number of trials for each kind of reason.
    pub invalid_reasons: Vec<InvalidReason>,
    /// Warnings of trials, with the number of trials for each kind of warning.
    pub warnings: Vec<WarningCount>,
    /// CPU time stolen by a hypervisor, for each host that reports it.
    #[serde(default)]
    pub stolen: Vec<StolenTime>,
}

/// CPU time that a hypervisor stole from a host during the trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StolenTime {
    /// Role of the host, such as "tester", "dut" or "auth".
    pub role: String,
    /// CPU time stolen by a hypervisor, in per cent of the time of all CPUs: the median over the
    /// trials.
    pub median_pct: f64,
    /// CPU time stolen by a hypervisor, in per cent of the time of all CPUs: the largest value in
    /// any trial.
    pub max_pct: f64,
    /// CPU time stolen by a hypervisor, in per cent of the time of a single CPU: the largest value
    /// for any CPU in any trial.
    pub worst_cpu_pct: f64,
}

/// Median and largest value of a measured quantity over all trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Spread {
    /// Median of the quantity over the trials.
    pub median: f64,
    /// Largest value of the quantity in any trial.
    pub worst: f64,
}

/// A kind of reason why trials were invalid, and the number of trials with this kind of reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InvalidReason {
    /// Kind of reason why the trials were invalid.
    pub kind: ReasonKind,
    /// Text that describes this kind of reason.
    pub reason: String,
    /// Number of trials that were invalid for this reason.
    pub trials: usize,
}

impl InvalidReason {
    /// Creates an entry for a kind of reason, with the number of trials.
    fn new(kind: ReasonKind, trials: usize) -> InvalidReason {
        InvalidReason { kind, reason: kind.to_string(), trials }
    }
}

/// A kind of warning, and the number of trials with such a warning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WarningCount {
    /// The first warning of this kind.
    #[serde(flatten)]
    pub warning: Warning,
    /// Text of the first warning.
    pub words: String,
    /// Number of trials with a warning of this kind.
    pub trials: usize,
}

/// A measurement point without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WithoutResult {
    /// Description of the measurement point.
    pub point: String,
    /// Reason why the measurement point has no result.
    pub missing: NoResult,
}

/// An incident that is not a result: a server died or hung, or a measurement point could not be
/// measured.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Incident {
    /// Description of the measurement point at which the incident happened.
    pub point: String,
    /// Description of the incident.
    pub what: String,
    /// Last lines of the server's log.
    pub log: String,
}

impl Results {
    /// Computes the results from a journal, which may be incomplete.
    pub fn compute(plan: &Plan, environment: &Environment, entries: &[Entry]) -> Results {
        let recorded = Recorded::new(plan, entries);
        let points = plan.points();
        let duts: Vec<DutResult> =
            plan.duts.iter().map(|dut| dut_result(&recorded, dut.name(), &points)).collect();
        let incidents = entries.iter().filter_map(|entry| match entry {
            Entry::Incident { point, what, log } => {
                Some(Incident { point: point.to_string(), what: what.clone(), log: log.clone() })
            }
            _ => None,
        });
        let configurations = entries.iter().filter_map(|entry| match entry {
            Entry::Configuration { server, configuration } => {
                Some(ServerConfig { server: server.clone(), configuration: configuration.clone() })
            }
            _ => None,
        });
        let hosts = entries.iter().filter_map(|entry| match entry {
            Entry::Host { role, environment } => {
                Some(HostFacts { role: role.clone(), environment: environment.clone() })
            }
            _ => None,
        });
        let without_result = without_result(&recorded, &points);
        Results {
            schema_version: VERSION,
            hosts: hosts.collect(),
            host_changes: host_changes(environment, entries),
            configurations: configurations.collect(),
            auth: version_of(&recorded, &plan.auth),
            authdns: plan
                .auths_of_duts()
                .into_iter()
                .map(|auth| auth_result(&recorded, auth))
                .collect(),
            complete: without_result.is_empty(),
            without_result,
            self_tests: points
                .iter()
                .filter_map(|point| self_test::result(&recorded, point))
                .collect(),
            contradictions: contradictions(&duts, |point| recorded.allowed(point)),
            period_unix_s: period(&recorded),
            duts,
            health: health(&recorded, &points),
            noncompliance: noncompliance(&recorded),
            incidents: incidents.collect(),
            trials: Trial::all(entries),
            plan: plan.clone(),
            environment: environment.clone(),
        }
    }

    /// Returns the self-test that validates the tester with the AuthDNS of `[auth]`, or `None` if
    /// the plan has no self-tests.
    pub fn own_self_test(&self) -> Option<&SelfTestResult> {
        self.self_tests.iter().find(|test| test.validates_trials)
    }

    /// Returns the versions of those AuthDNS servers that do not count queries. Only AuthDNS
    /// servers that a DUT queries are considered.
    pub fn without_counters(&self) -> Vec<&str> {
        self.authdns.iter().filter(|auth| !auth.counts).map(|auth| auth.version.as_str()).collect()
    }
}

/// Returns the measurement points without a result, except points with a CPU frequency governor
/// that the DUT's host does not support.
fn without_result(recorded: &Recorded<'_>, points: &[Point]) -> Vec<WithoutResult> {
    let open = points
        .iter()
        .filter(|point| recorded.cannot(point).is_none() && !recorded.has_result(point));
    open.map(|point| WithoutResult {
        point: point.to_string(),
        missing: recorded.missing(point).unwrap_or(NoResult::Unfinished),
    })
    .collect()
}

/// Returns the recorded version of an AuthDNS.
fn version_of(recorded: &Recorded<'_>, auth: &AuthPlan) -> String {
    recorded.version(&auth.role()).unwrap_or_else(|| "not measured".into())
}

fn auth_result(recorded: &Recorded<'_>, auth: &AuthPlan) -> AuthResult {
    AuthResult {
        name: auth.name().into(),
        version: version_of(recorded, auth),
        counts: auth.driver.is_ours(),
    }
}

/// Returns the wall-clock times at which the first trial started and the last trial ended.
fn period(recorded: &Recorded<'_>) -> Option<Period> {
    let spans = || recorded.finished().map(span);
    let begun = spans().map(|(begun, _)| begun).reduce(f64::min)?;
    let ended = spans().map(|(begun, length)| begun + length).reduce(f64::max)?;
    Some(Period { begun, ended, trials_s: spans().map(|(_, length)| length).sum() })
}

fn dut_result(recorded: &Recorded<'_>, name: &str, points: &[Point]) -> DutResult {
    let of_dut = || points.iter().filter(|point| point.dut() == Some(name));
    let loads: Vec<_> = of_dut().filter_map(|point| load::result(recorded, point)).collect();
    let mut searched: Vec<_> =
        of_dut().filter_map(|point| search::result(recorded, point)).collect();
    for load in loads.iter().filter(|load| load.found.passed == Some(false)) {
        let Some(rate) = load.rate else { continue };
        // Load trials run under worst-case conditions. A failed load trial therefore affects the
        // result of the worst case, and the results with lower acceptance ratios.
        let judged = |c: &Conditions| {
            let is_same = (&c.place, c.aaaa, c.cached) == (&load.place, Share::ZERO, Share::ZERO);
            is_same && (c.accept >= 1.0 || load.found.valid.is_some_and(|valid| valid < c.accept))
        };
        for point in searched.iter_mut().filter(|point| judged(&point.conditions)) {
            point.include_failure(recorded, rate);
        }
    }
    DutResult {
        name: name.into(),
        version: recorded.version(name).unwrap_or_else(|| "not measured".into()),
        points: searched,
        loads,
        constant_rates: of_dut()
            .filter_map(|point| constant_rate::result(recorded, point))
            .collect(),
        closed_loops: of_dut().filter_map(|point| closed_loop::result(recorded, point)).collect(),
        conform: conform::result(recorded, name, points),
        paced: paced(recorded, name),
    }
}

/// Returns the accuracy of the query schedule in one trial of a DUT: the full-length trial that
/// passed at the highest rate. If several such trials passed at that rate, the first one is used.
fn paced(recorded: &Recorded<'_>, dut: &str) -> Option<PacedTrial> {
    let mut best: Option<PacedTrial> = None;
    for m in recorded.finished() {
        let counts = m.step.length == Length::Full && m.verdict() == Verdict::Passed;
        let windows = m.at_rate().and_then(|trial| trial.windows.as_ref());
        let Some(windows) = windows.filter(|_| counts && m.step.point.dut() == Some(dut)) else {
            continue;
        };
        if best.as_ref().is_none_or(|best| best.rate < m.step.rate) {
            best = Some(PacedTrial { rate: m.step.rate, windows: windows.clone() });
        }
    }
    best
}

/// Returns the numbers of probes, full trials, invalid trials and skipped trials, each summed over all measurement
/// points. The trials are counted point by point, because a full trial is skipped only after a failed probe at the same
/// point.
fn by_point(recorded: &Recorded<'_>, points: &[Point]) -> Trials {
    let mut sum = Trials::default();
    for point in points {
        let trials = search::count(recorded.finished().filter(|m| m.step.point == *point));
        sum.probes += trials.probes;
        sum.full += trials.full;
        sum.invalid += trials.invalid;
        sum.saved += trials.saved;
    }
    sum
}

fn health(recorded: &Recorded<'_>, points: &[Point]) -> Health {
    let all: Vec<&Measured> = recorded.finished().collect();
    let spread = |get: fn(&TrialResult) -> f64| {
        let values: Vec<f64> = all.iter().filter_map(|m| m.at_rate()).map(get).collect();
        Summary::of(&values).map(|summary| Spread { median: summary.median, worst: summary.max })
    };
    let invalid = all.iter().filter(|m| m.verdict() == Verdict::Invalid);
    let reasons = by_kind(invalid.map(|m| m.reasons()));
    Health {
        trials: by_point(recorded, points),
        window_pct: spread(|t| t.pacing.window_100ms_worst_pct),
        lateness_us: spread(|t| t.pacing.p999_us),
        invalid_reasons: reasons,
        warnings: warned(&all),
        stolen: stolen(&all),
    }
}

/// Returns the stolen CPU time of each host over all trials.
fn stolen(all: &[&Measured]) -> Vec<StolenTime> {
    let of = |role: &str, get: fn(&StolenFrom) -> Option<Stolen>| {
        let each: Vec<Stolen> = all.iter().filter_map(|m| get(&m.stolen)).collect();
        let summary = Summary::of(&each.iter().map(|s| s.all_pct).collect::<Vec<_>>())?;
        let worst_cpu_pct = each.iter().map(|s| s.worst_cpu_pct).fold(0.0, f64::max);
        Some(StolenTime {
            role: role.into(),
            median_pct: summary.median,
            max_pct: summary.max,
            worst_cpu_pct,
        })
    };
    [of("tester", |s| s.tester), of("dut", |s| s.dut), of("auth", |s| s.auth)]
        .into_iter()
        .flatten()
        .collect()
}

/// For each kind of reason why trials were invalid, counts the trials that have a reason of this
/// kind. The kinds are in the order in which they first occur.
fn by_kind<'a>(trials: impl Iterator<Item = &'a [Reason]>) -> Vec<InvalidReason> {
    let mut kinds: Vec<(ReasonKind, usize)> = Vec::new();
    for reasons in trials {
        let mut of_trial: Vec<ReasonKind> = Vec::new();
        for kind in reasons.iter().map(Reason::kind) {
            if !of_trial.contains(&kind) {
                of_trial.push(kind);
            }
        }
        for kind in of_trial {
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, n)) => *n += 1,
                None => kinds.push((kind, 1)),
            }
        }
    }
    kinds.into_iter().map(|(kind, trials)| InvalidReason::new(kind, trials)).collect()
}

/// For each kind of warning, counts the trials that have a warning of this kind. The kinds are in the order in which
/// they first occur. For each kind, only the first warning is returned, although the numbers in later warnings may
/// differ.
fn warned(trials: &[&Measured]) -> Vec<WarningCount> {
    let mut kinds: Vec<WarningCount> = Vec::new();
    for m in trials {
        let mut of_trial: Vec<&Warning> = Vec::new();
        for warning in
            m.warnings.iter().chain(m.at_rate().into_iter().flat_map(|trial| &trial.warnings))
        {
            if !of_trial.iter().any(|known| known.is_like(warning)) {
                of_trial.push(warning);
            }
        }
        for warning in of_trial {
            match kinds.iter_mut().find(|known| known.warning.is_like(warning)) {
                Some(known) => known.trials += 1,
                None => kinds.push(WarningCount {
                    warning: warning.clone(),
                    words: warning.to_string(),
                    trials: 1,
                }),
            }
        }
    }
    kinds
}

/// Returns the deviations of the campaign from RFC 8219, determined from its trials. Only
/// full-length search trials that require a valid reply to every query are used. Results with lower
/// acceptance ratios are labelled in the report.
fn noncompliance(recorded: &Recorded<'_>) -> Vec<Noncompliance> {
    let plan = recorded.plan;
    let repeats = Some(fewest_searches(recorded).unwrap_or(plan.search.repeat));
    let mut vouching: Vec<(Option<&str>, SelfTestCoverage<'_>)> = Vec::new();
    let mut resolutions: Vec<(&Point, Option<Qps>)> = Vec::new();
    let mut all: Vec<Facts> = Vec::new();
    for m in recorded.finished() {
        let is_full = matches!(m.step.point, Point::Search(_)) && m.step.length == Length::Full;
        // A trial that could not start sent no query, so its send settings are ignored.
        let counts =
            |trial: &&TrialResult| is_full && trial.facts.accept.0 >= 1.0 && trial.counts.sent > 0;
        let Some(trial) = m.at_rate().filter(counts) else { continue };
        let auth = m.step.point.authdns();
        if vouching.iter().all(|(of, _)| *of != auth) {
            vouching.push((auth, SelfTestCoverage::new(recorded, &m.step.point)));
        }
        let proof = vouching
            .iter()
            .find(|(of, _)| *of == auth)
            .map_or(TesterProof::None, |(_, of)| of.proof(trial));
        let point = &m.step.point;
        let known = resolutions.iter().find(|(of, _)| *of == point).map(|(_, known)| *known);
        let resolution = known.unwrap_or_else(|| {
            let found = sequence::resolution(recorded, point);
            resolutions.push((point, found));
            found
        });
        all.push(Facts { repeats, resolution, proof, ..trial.facts });
    }
    if all.is_empty() {
        let resolution = Some(plan.search.resolution);
        all.push(Facts { repeats, resolution, ..planned_facts(plan) });
    }
    noncompliance_of(&all)
}

/// For each measurement point that affects the compliance with RFC 8219, counts the searches in
/// which the tester could measure at least the lowest rate. Returns the smallest of these counts,
/// or `None` if none of these points has a trial.
fn fewest_searches(recorded: &Recorded<'_>) -> Option<u32> {
    let of = |point: &Point| {
        let Point::Search(conditions) = point else { return None };
        let replay = recorded.replay(point).filter(|replay| !replay.trials.is_empty())?;
        let found = replay.sequence.searches()?.found();
        let telling = found.iter().filter(|search| !search.is_unmeasurable()).count();
        (conditions.accept >= 1.0).then_some(telling as u32)
    };
    recorded.plan.points().iter().filter_map(of).min()
}

/// Returns the facts that follow from the plan alone, for the check of compliance with RFC 8219.
/// They are used if the campaign has no trial that counts in this check.
fn planned_facts(plan: &Plan) -> Facts {
    let mut trial = TrialPlan::new(std::net::SocketAddr::from(([0u16; 8], 53)), plan.search.min);
    trial.duration = plan.trial.duration.into();
    trial.timeout = plan.trial.timeout(plan.trial.duration).into();
    trial.limits = plan.trial.pacing_limits();
    trial.prefixes = vec![plan.trial.prefix];
    Facts { auth_limit: Some(plan.trial.auth_limit.into()), ..trial.facts(Fact::NotKnown) }
}

/// For the self-test that validates the tester: its reserve δ, as a fraction (RFC 8219 §9.2), and its trials. `None` if
/// there is no such self-test, or if the self-test did not pass.
struct SelfTestCoverage<'a>(Option<(f64, Vec<&'a TrialResult>)>);

impl<'a> SelfTestCoverage<'a> {
    /// Finds the self-test that validates the trials of a measurement point. The result also
    /// applies to other points with the same AuthDNS.
    fn new(recorded: &Recorded<'a>, point: &Point) -> SelfTestCoverage<'a> {
        let replay = || recorded.replay(&recorded.plan.self_test_for(point)?);
        let passed = |replay: &crate::sequence::Replay<'_>| {
            let found = replay.sequence.searches().map(SearchSequence::found).unwrap_or_default();
            replay.void.is_none() && !found.is_empty() && found.iter().all(|f| f.highest.is_some())
        };
        let delta = recorded.plan.self_test.as_ref().map(|test| test.delta);
        let trials = replay()
            .filter(passed)
            .map(|replay| replay.trials.into_iter().filter_map(|m| m.at_rate()).collect());
        SelfTestCoverage(delta.zip(trials.filter(|trials: &Vec<_>| !trials.is_empty())))
    }

    /// Returns the kind of proof that the self-test gives for the tester's reliability in `trial`. The strongest proof
    /// requires that all trials of the self-test had the send settings of `trial`, and that AuthDNS's counters were
    /// read in each of them.
    fn proof(&self, trial: &TrialResult) -> TesterProof {
        let Some((delta, trials)) = &self.0 else { return TesterProof::None };
        let delta = *delta;
        let same = |t: &&TrialResult| {
            t.settings == trial.settings
                && t.sending.priority == trial.sending.priority
                && t.auth.is_some()
        };
        if trials.iter().all(same) {
            TesterProof::SelfTest { delta }
        } else {
            TesterProof::OtherSettings { delta }
        }
    }
}

#[cfg(test)]
mod tests;
