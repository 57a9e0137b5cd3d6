//! What a campaign found, computed from its plan and journal alone: the report never measures, and
//! can be drawn again.

use method::compliance::{Fact, Facts, Proof, noncompliance_of};
use method::narrow::Length;
use method::noncompliance::Noncompliance;
use method::pacing::Windows;
use method::reason::{Reason, ReasonKind};
use method::stats::Summary;
use method::units::{Qps, Share};
use method::verdict::Verdict;
use method::warning::Warning;
use net::cpu_time::Stolen;
use serde::{Deserialize, Serialize};
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;

use crate::archive::{Configuration, Entry, Measured, StolenFrom, VERSION};
use crate::contradictions::{Contradiction, contradictions};
use crate::environment::Environment;
use crate::host_change::{HostChange, host_changes};
use crate::measures::closed_loop::{self, ClosedLoopResult};
use crate::measures::conform::{self, ConformResult};
use crate::measures::constant_rate::{self, ConstantRateResult};
use crate::measures::load::{self, LoadResult};
use crate::measures::search::{self, PointResult, Trials};
use crate::measures::self_test::{self, SelfTestResult};
use crate::missing::Missing;
use crate::plan::{AuthPlan, Plan};
use crate::plausible::span;
use crate::point::{Conditions, Point};
use crate::recorded::Recorded;
use crate::search::SearchCourse;
use crate::trials::Trial;

/// Content of `results.json`: everything that a report shows. `dns64bench schema results` prints its
/// schema.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Results {
    /// The version of this object: [`VERSION`].
    pub schema_version: u32,
    /// The plan as it was begun, defaults included.
    pub plan: Plan,
    /// The machine on which the campaign was begun.
    pub environment: Environment,
    /// The machines of its hosts, if they are others or namespaces of this one.
    pub hosts: Vec<HostFacts>,
    /// Hosts that changed while the campaign was interrupted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_changes: Vec<HostChange>,
    /// What played AuthDNS by `[auth]`, as it calls itself.
    pub auth: String,
    /// Each server that plays AuthDNS for a DUT.
    pub authdns: Vec<AuthResult>,
    /// What each server was told.
    pub configurations: Vec<Told>,
    /// True if every point of the plan has a result, or cannot be made on this machine.
    pub complete: bool,
    /// The points without a result, in the plan's order.
    #[serde(default)]
    pub without_result: Vec<WithoutResult>,
    /// The self-tests, if the plan has them: first the one that vouches for the trials.
    pub self_tests: Vec<SelfTestResult>,
    /// What was found of each DUT, in the plan's order.
    pub duts: Vec<DutResult>,
    /// The tester's own health over all trials.
    pub health: Health,
    /// Points in which the campaign is not as RFC 8219 §9.2 wants it, by what its trials were. In
    /// JSON `noncompliance` are the words and `noncompliance_causes` the data.
    #[serde(flatten, with = "method::noncompliance::in_words")]
    #[schemars(with = "method::noncompliance::in_words::Written<'static>")]
    pub noncompliance: Vec<Noncompliance>,
    /// What contradicts itself in the results.
    pub contradictions: Vec<Contradiction>,
    /// When the first trial began and the last one ended; absent without a trial.
    pub period_unix_s: Option<Period>,
    /// Servers that died, hung or could not be started.
    pub mishaps: Vec<Mishap>,
    /// All trials of the journal; not part of the object.
    #[serde(skip)]
    pub trials: Vec<Trial>,
}

/// What a server was told.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Told {
    /// Name of the DUT, or of what plays AuthDNS.
    pub server: String,
    /// Its command and its configuration, as it was first started.
    #[serde(flatten)]
    pub configuration: Configuration,
}

/// A server that plays AuthDNS.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuthResult {
    /// As the plan calls it.
    pub name: String,
    /// As it calls itself.
    pub version: String,
    /// Whether it counts what it is asked; where it does not, nothing proves that new names were
    /// not answered from a cache.
    pub counts: bool,
}

/// A span of the wall clock: seconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Period {
    /// When the first trial began, seconds since 1970-01-01 UTC.
    pub begun: f64,
    /// When the last trial ended, seconds since 1970-01-01 UTC.
    pub ended: f64,
    /// How long all trials took together, with their timeouts; seconds.
    pub trials_s: f64,
}

/// The facts of a host.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HostFacts {
    /// What it is: tester, dut or auth.
    pub role: String,
    /// What `check` finds there.
    pub environment: Environment,
}

/// What was found of one DUT.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DutResult {
    /// The DUT's name in the plan.
    pub name: String,
    /// What it says that it is.
    pub version: String,
    /// Searches, in the plan's order.
    pub points: Vec<PointResult>,
    /// CPU use and latency at shares of the maximum.
    pub loads: Vec<LoadResult>,
    /// CPU use, latency and memory at rates of the plan.
    pub constant_rates: Vec<ConstantRateResult>,
    /// Time of experiments in a closed loop.
    pub closed_loops: Vec<ClosedLoopResult>,
    /// Whether its answers are right; absent where the plan does not ask for that.
    #[serde(default)]
    pub conform: Option<ConformResult>,
    /// How the tester kept time in the trial of full length at the highest rate that passed; absent
    /// where none did.
    #[serde(default)]
    pub paced: Option<PacedTrial>,
}

/// How the tester kept time in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PacedTrial {
    /// The rate that was sent, queries per second.
    pub rate: Qps,
    /// How far its windows were off.
    pub windows: Windows,
}

/// How well the tester did its part, over all trials of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Health {
    /// How many trials of each sort there were.
    pub trials: Trials,
    /// The trials' worst 100 ms windows, per cent off.
    pub window_pct: Option<Spread>,
    /// The trials' p99.9 lateness, µs.
    pub lateness_us: Option<Spread>,
    /// Why trials were invalid: each kind of reason, and how often there was one.
    pub invalid_reasons: Vec<InvalidReason>,
    /// What else trials warn of: each kind of warning, and of how many trials it is.
    pub warnings: Vec<Warned>,
    /// What a hypervisor took of the CPU time of each host that tells.
    #[serde(default)]
    pub stolen: Vec<StolenTime>,
}

/// What a hypervisor took of a host's CPU time during trials, in per cent of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StolenTime {
    /// The host: tester, dut or auth.
    pub role: String,
    /// Of all CPUs, the median over the trials.
    pub median_pct: f64,
    /// Of all CPUs, in the trial in which it took most.
    pub max_pct: f64,
    /// Of the CPU that lost most in a trial.
    pub worst_cpu_pct: f64,
}

/// Median and worst of all trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Spread {
    /// The median over the trials.
    pub median: f64,
    /// The largest value of a trial.
    pub worst: f64,
}

/// A sort of reason, and how many trials there are of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InvalidReason {
    /// Why they were invalid.
    pub kind: ReasonKind,
    /// The same in words, for readers.
    pub reason: String,
    /// How many trials were invalid for it.
    pub trials: usize,
}

impl InvalidReason {
    /// So many trials with reasons of that sort.
    fn of(kind: ReasonKind, trials: usize) -> InvalidReason {
        InvalidReason { kind, reason: kind.to_string(), trials }
    }
}

/// Warnings of one sort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Warned {
    /// The first of them.
    #[serde(flatten)]
    pub warning: Warning,
    /// The same in words, for readers.
    pub words: String,
    /// How many trials have one of that sort.
    pub trials: usize,
}

/// A point without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WithoutResult {
    /// The point, in words.
    pub point: String,
    /// The reason.
    pub missing: Missing,
}

/// Something that happened and is no result: a server died or hung, a point could not be measured.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Mishap {
    /// The point at which it happened, in words.
    pub point: String,
    /// What happened, in words.
    pub what: String,
    /// The end of the server's log.
    pub log: String,
}

impl Results {
    /// Computes the results from the lines of a journal, which may be of a run that is not
    /// complete.
    pub fn compute(plan: &Plan, environment: &Environment, entries: &[Entry]) -> Results {
        let recorded = Recorded::new(plan, entries);
        let points = plan.points();
        let duts: Vec<DutResult> =
            plan.duts.iter().map(|dut| dut_result(&recorded, dut.name(), &points)).collect();
        let mishaps = entries.iter().filter_map(|entry| match entry {
            Entry::Mishap { point, what, log } => {
                Some(Mishap { point: point.to_string(), what: what.clone(), log: log.clone() })
            }
            _ => None,
        });
        let told = entries.iter().filter_map(|entry| match entry {
            Entry::Configuration { server, told } => {
                Some(Told { server: server.clone(), configuration: told.clone() })
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
            configurations: told.collect(),
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
            mishaps: mishaps.collect(),
            trials: Trial::all(entries),
            plan: plan.clone(),
            environment: environment.clone(),
        }
    }

    /// The self-test that vouches for the tester, if the plan has one: that with the AuthDNS of
    /// `[auth]`.
    pub(crate) fn own_self_test(&self) -> Option<&SelfTestResult> {
        self.self_tests.iter().find(|test| test.vouches)
    }

    /// The servers that DUTs ask and that do not count what they are asked, as they call
    /// themselves.
    pub(crate) fn silent(&self) -> Vec<&str> {
        self.authdns.iter().filter(|auth| !auth.counts).map(|auth| auth.version.as_str()).collect()
    }
}

/// The points without a result, of those that this machine can make.
fn without_result(recorded: &Recorded<'_>, points: &[Point]) -> Vec<WithoutResult> {
    let open = points
        .iter()
        .filter(|point| recorded.cannot(point).is_none() && !recorded.has_result(point));
    open.map(|point| WithoutResult {
        point: point.to_string(),
        missing: point.measure().missing(recorded, point).unwrap_or(Missing::Unfinished),
    })
    .collect()
}

/// What an AuthDNS says that it is.
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

/// When the first trial began and the last one ended, by the wall clock.
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
        // Loads are sent as the worst case is, so they judge it at every acceptance ratio.
        let judged = |c: &Conditions| {
            let is_same = (&c.place, c.aaaa, c.cached) == (&load.place, Share::ZERO, Share::ZERO);
            is_same && (c.accept >= 1.0 || load.found.valid.is_some_and(|valid| valid < c.accept))
        };
        for point in searched.iter_mut().filter(|point| judged(&point.conditions)) {
            point.take_in_failure(recorded, rate);
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

/// The windows of the trial of full length at the highest rate that a DUT passed; the first of
/// equals.
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

/// Sums over points: which probe spared which trial is known within a point only.
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

/// What a hypervisor took, host by host, over all trials.
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

/// In how many trials there was each kind of reason, in words, in the order in which they came
/// first.
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
    kinds.into_iter().map(|(kind, trials)| InvalidReason::of(kind, trials)).collect()
}

/// In how many trials there was each sort of warning, in the order in which they came first.
/// Numbers differ from trial to trial; the first stands for all.
fn warned(trials: &[&Measured]) -> Vec<Warned> {
    let mut kinds: Vec<Warned> = Vec::new();
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
                None => kinds.push(Warned {
                    warning: warning.clone(),
                    words: warning.to_string(),
                    trials: 1,
                }),
            }
        }
    }
    kinds
}

/// In which points the campaign is not compliant, by the facts of its own trials: of full length,
/// in searches, with every reply demanded (other acceptance ratios are labelled where they are
/// shown).
fn noncompliance(recorded: &Recorded<'_>) -> Vec<Noncompliance> {
    let plan = recorded.plan;
    let repeats = Some(fewest_searches(recorded).unwrap_or(plan.search.repeat));
    let mut vouching: Vec<(Option<&str>, Vouching<'_>)> = Vec::new();
    let mut resolutions: Vec<(&Point, Option<Qps>)> = Vec::new();
    let mut all: Vec<Facts> = Vec::new();
    for m in recorded.finished() {
        let is_full = matches!(m.step.point, Point::Search(_)) && m.step.length == Length::Full;
        // A trial that could not begin sent nothing, in no way.
        let counts =
            |trial: &&TrialResult| is_full && trial.facts.accept.0 >= 1.0 && trial.counts.sent > 0;
        let Some(trial) = m.at_rate().filter(counts) else { continue };
        let auth = m.step.point.authdns();
        if vouching.iter().all(|(of, _)| *of != auth) {
            vouching.push((auth, Vouching::of(recorded, &m.step.point)));
        }
        let proof = vouching
            .iter()
            .find(|(of, _)| *of == auth)
            .map_or(Proof::None, |(_, of)| of.proof(trial));
        let point = &m.step.point;
        let known = resolutions.iter().find(|(of, _)| *of == point).map(|(_, known)| *known);
        let resolution = known.unwrap_or_else(|| {
            let found = search::resolution(recorded, point);
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

/// How many searches say something at the point that has the fewest, of those that compliance is
/// about; `None` where none has begun.
fn fewest_searches(recorded: &Recorded<'_>) -> Option<u32> {
    let of = |point: &Point| {
        let Point::Search(conditions) = point else { return None };
        let walk = recorded.walk(point).filter(|walk| !walk.trials.is_empty())?;
        let found = walk.course.searches()?.found();
        let telling = found.iter().filter(|search| !search.says_nothing()).count();
        (conditions.accept >= 1.0).then_some(telling as u32)
    };
    recorded.plan.points().iter().filter_map(of).min()
}

/// What is known of the trials before there is one.
fn planned_facts(plan: &Plan) -> Facts {
    let mut trial = TrialPlan::new(std::net::SocketAddr::from(([0u16; 8], 53)), plan.search.min);
    trial.duration = plan.trial.duration.into();
    trial.timeout = plan.trial.timeout(plan.trial.duration).into();
    trial.limits = plan.trial.pacing_limits();
    trial.prefixes = vec![plan.trial.prefix];
    Facts { auth_limit: Some(plan.trial.auth_limit.into()), ..trial.facts(Fact::NotKnown) }
}

/// The self-test that vouches for the tester: none, or its reserve and its trials.
struct Vouching<'a>(Option<(f64, Vec<&'a TrialResult>)>);

impl<'a> Vouching<'a> {
    /// For the trials of a point and of others with the same AuthDNS.
    fn of(recorded: &Recorded<'a>, point: &Point) -> Vouching<'a> {
        let walk = || recorded.walk(&recorded.plan.self_test_for(point)?);
        let passed = |walk: &crate::recorded::Walk<'_>| {
            let found = walk.course.searches().map(SearchCourse::found).unwrap_or_default();
            walk.void.is_none() && !found.is_empty() && found.iter().all(|f| f.highest.is_some())
        };
        let delta = recorded.plan.self_test.as_ref().map(|test| test.delta);
        let trials = walk()
            .filter(passed)
            .map(|walk| walk.trials.into_iter().filter_map(|m| m.at_rate()).collect());
        Vouching(delta.zip(trials.filter(|trials: &Vec<_>| !trials.is_empty())))
    }

    /// What vouches for the tester in a trial: a self-test whose trials were sent in the same way,
    /// with AuthDNS held to its limit.
    fn proof(&self, trial: &TrialResult) -> Proof {
        let Some((delta, trials)) = &self.0 else { return Proof::None };
        let delta = *delta;
        let same = |t: &&TrialResult| {
            t.settings == trial.settings
                && t.sending.priority == trial.sending.priority
                && t.auth.is_some()
        };
        if trials.iter().all(same) {
            Proof::SelfTest { delta }
        } else {
            Proof::OtherSettings { delta }
        }
    }
}

#[cfg(test)]
mod tests;
