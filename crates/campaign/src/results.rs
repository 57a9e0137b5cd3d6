//! What a campaign found, computed from its plan and journal alone: the report never measures, and can be drawn again.

use std::collections::BTreeSet;

use method::compliance::{Fact, Facts, Proof};
use method::evidence::{Asked, Deviation, Real, Wanted};
use method::narrow::{Length, NarrowedSearch};
use method::pacing::Windows;
use method::precision::{Figures, overstatement};
use method::reason::{Reason, ReasonKind};
use method::search::{Found, SearchRange, Shortfall};
use method::selftest::allowed_rate;
use method::stats::Summary;
use method::units::{Qps, Share};
use method::verdict::Verdict;
use net::cpu_time::Stolen;
use serde::{Deserialize, Serialize};
use tester::measurer::plan::TrialPlan;

use crate::archive::{Configuration, DutEnd, Entry, Measured, StolenFrom};
use crate::contradictions::{Contradiction, contradictions};
use crate::environment::Environment;
use crate::numa::Numa;
use crate::place::Place;
use crate::plan::Plan;
use crate::point::{Conditions, Point};
use crate::wording::lower_bound_reasons;

/// Everything that a report shows. `results.json`; schema: `schemas/results.schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The plan.
    pub plan: Plan,
    /// The machine on which the campaign was begun.
    pub environment: Environment,
    /// The machines of its hosts, if they are others or namespaces of this one.
    pub hosts: Vec<HostFacts>,
    /// What played AuthDNS, as it calls itself.
    pub auth: String,
    /// What each server was told.
    pub configurations: Vec<Told>,
    /// Whether every point of the plan is complete.
    pub complete: bool,
    /// The self-test, if the plan has one.
    pub self_test: Option<SelfTestResult>,
    /// DUT by DUT.
    pub duts: Vec<DutResult>,
    /// The tester's own health over all trials.
    pub health: Health,
    /// Points in which the campaign is not as RFC 8219 §9.2 wants it, by what its trials were.
    pub noncompliance: Vec<String>,
    /// What contradicts itself in the results.
    pub contradictions: Vec<Contradiction>,
    /// When the first trial began and the last one ended: seconds since 1970-01-01 UTC; absent without a trial.
    pub period_unix_s: Option<(f64, f64)>,
    /// Servers that died, hung or could not be started.
    pub mishaps: Vec<Mishap>,
}

/// What a server was told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// Name of the DUT, or of what plays AuthDNS.
    pub server: String,
    /// Its command and its configuration, as it was first started.
    #[serde(flatten)]
    pub configuration: Configuration,
}

/// The facts of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostFacts {
    /// What it is: tester, dut or auth.
    pub role: String,
    /// What `check` finds there.
    pub environment: Environment,
}

/// What the self-test found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SelfTestResult {
    /// The smallest of the highest rates that passed.
    pub passed: Option<Qps>,
    /// Up to which rate that allows tests at 0 % AAAA and 0 % cached.
    pub allows: Option<Qps>,
    /// Statistics of all searches.
    pub summary: Option<Summary>,
}

/// What was found of one DUT.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DutResult {
    /// Its name.
    pub name: String,
    /// What it says that it is.
    pub version: String,
    /// Searches, in the plan's order.
    pub points: Vec<PointResult>,
    /// CPU use and latency at shares of the maximum.
    pub loads: Vec<LoadResult>,
    /// How the tester kept time in the trial of full length at the highest rate that passed; absent where none did.
    #[serde(default)]
    pub paced: Option<PacedTrial>,
}

/// How the tester kept time in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacedTrial {
    /// Its rate.
    pub rate: Qps,
    /// How far its windows were off.
    pub windows: Windows,
}

/// What a set of searches found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PointResult {
    /// Under which conditions.
    pub conditions: Conditions,
    /// Median, percentiles, dispersion and interval, queries per second; nothing of a point that is void.
    pub figures: Figures,
    /// By how much short trials may overstate; the interval is widened by it.
    pub overstatement: f64,
    /// Each search's result.
    pub found: Vec<Found>,
    /// By how much the lowest rate that failed failed, search by search; absent where none failed.
    pub failed_by: Vec<Option<Shortfall>>,
    /// Whether all repetitions are done.
    pub complete: bool,
    /// Why there can be no number: the DUT was not asked what the point is about.
    pub void: Option<Deviation>,
    /// Why the DUT may do more.
    pub lower_bound_reasons: Vec<String>,
    /// What the trials that passed at full length really were; absent if what plays AuthDNS does not count, and then nothing
    /// proves that new names were not answered from a cache.
    pub real: Option<Real>,
    /// Where the DUT ran in all its trials: what a number of cores is worth. Absent where that was not seen.
    pub place: Option<Place>,
    /// Trials: probes, full ones, and those that the tester spoiled.
    pub trials: Trials,
}

impl PointResult {
    /// Whether the DUT had the number of cores that the point asks for.
    pub fn has_its_cores(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_cores(self.conditions.cores))
    }

    /// On how many cores the DUT ran, or what is true instead.
    pub fn ran_on(&self) -> String {
        match &self.place {
            Some(place) => place.in_words(),
            None => format!("{} asked for, not seen", self.conditions.cores),
        }
    }
}

/// How many trials there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trials {
    /// Short ones.
    pub probes: usize,
    /// Of full length.
    pub full: usize,
    /// Of these, spoiled by the tester.
    pub invalid: usize,
    /// Full trials that failed probes made unnecessary.
    pub saved: usize,
}

/// What was found at a share of the maximum. Trials that the tester spoiled are no part of any number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadResult {
    /// The share.
    pub share: Share,
    /// The rate.
    pub rate: Qps,
    /// Trials that count.
    pub trials: usize,
    /// Trials that the tester spoiled.
    pub spoiled: usize,
    /// Whether all trials that count passed; absent if none counts.
    pub passed: Option<bool>,
    /// How the DUT ended in these trials. If it did, there is no figure of CPU use or latency.
    pub ended: Vec<DutEnd>,
    /// Why there can be no number: the DUT was not asked what the point is about.
    pub void: Option<Deviation>,
    /// CPU use of the DUT without the transient, in cores, trial by trial summarized.
    pub cpu: Option<Summary>,
    /// Valid replies per second for each core that is used (CPRDP), trial by trial summarized.
    pub cprdp: Option<Summary>,
    /// CPU use second by second of the first trial: the transient.
    pub cpu_by_second: Vec<f64>,
    /// Median, 99th and 99.9th percentile of the round-trip time of valid replies in µs, each the median over the trials.
    pub rtt_us: Option<[f64; 3]>,
    /// 99.9th percentile of AuthDNS's own time in µs, the median over the trials: so much of the round-trip times is the tester's.
    pub auth_p999_us: Option<f64>,
    /// Share of valid replies in all trials that count; absent if none does.
    pub valid: Option<f64>,
}

impl LoadResult {
    /// Whether its figures are of a DUT that answered all that it was asked.
    pub fn is_sound(&self) -> bool {
        self.passed == Some(true) && self.ended.is_empty() && self.void.is_none()
    }
}

/// The tester's health.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Health {
    /// All trials.
    pub trials: Trials,
    /// Median and largest of the trials' worst 100 ms windows, per cent off.
    pub window_pct: Option<(f64, f64)>,
    /// Median and largest p99.9 lateness, µs.
    pub lateness_us: Option<(f64, f64)>,
    /// Why trials were invalid: each kind of reason, and how often there was one.
    pub invalid_reasons: Vec<(String, usize)>,
    /// Warnings, each once.
    pub warnings: Vec<String>,
    /// NUMA page allocations: hits and misses.
    pub numa: Option<(u64, u64)>,
    /// What a hypervisor took of the CPU time of each host that tells.
    #[serde(default)]
    pub stolen: Vec<StolenTime>,
}

/// What a hypervisor took of a host's CPU time during trials, in per cent of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mishap {
    /// Where.
    pub point: String,
    /// What.
    pub what: String,
    /// The end of the server's log.
    pub log: String,
}

fn measured<'a>(entries: &'a [Entry], point: &'a Point) -> impl Iterator<Item = &'a Measured> {
    entries.iter().filter_map(move |entry| match entry {
        Entry::Finished(measured) if measured.step.point == *point => Some(&**measured),
        _ => None,
    })
}

/// What each search of a point found, as far as it is done: the searches are walked through again with the journal's verdicts.
fn found(plan: &Plan, entries: &[Entry], point: &Point) -> Vec<Found> {
    let (range, repeat, probes) = match point {
        Point::SelfTest => {
            let Some(t) = &plan.self_test else { return Vec::new() };
            let range = SearchRange { min: t.min, max: t.max, resolution: t.resolution, invalid_retries: 3 };
            (range, t.repeat, false)
        }
        Point::Search(conditions) => {
            let Some((min, max)) = plan.dut(&conditions.dut).map(|dut| plan.range(dut)) else { return Vec::new() };
            let s = &plan.search;
            let range = SearchRange { min, max, resolution: s.resolution, invalid_retries: s.invalid_retries };
            (range, s.repeat, s.probe.is_some())
        }
        Point::Load { .. } => return Vec::new(),
    };
    let mut done = measured(entries, point);
    let mut results = Vec::new();
    for _ in 0..repeat {
        let mut search = NarrowedSearch::new(range, probes);
        while search.next().is_some() {
            let Some(measured) = done.next() else { return results };
            if measured.voids_its_point() {
                return results;
            }
            search.report(measured.trial.verdict);
        }
        results.extend(search.result());
    }
    results
}

/// By how much trials of a plan may overstate.
fn overstated(plan: &Plan) -> f64 {
    let duration = plan.trial.duration;
    overstatement(duration.into(), plan.trial.timeout(duration).into())
}

/// Why a point can have no number, if that is so.
fn void(entries: &[Entry], point: &Point) -> Option<Deviation> {
    measured(entries, point).find(|m| m.voids_its_point())?.trial.deviation
}

/// The median of a point's searches, as far as they are done; `None` where none passed anywhere, or the point is void.
pub fn median(plan: &Plan, entries: &[Entry], point: &Point) -> Option<f64> {
    if void(entries, point).is_some() {
        return None;
    }
    let figures = Figures::of(&found(plan, entries, point), 1.0);
    figures.median.filter(|_| figures.has_rate())
}

/// Up to which rate the self-test vouches for the tester at a point; `None` without a complete self-test.
pub fn self_test_allows(plan: &Plan, entries: &[Entry], point: &Point) -> Option<Qps> {
    let test = plan.self_test.as_ref()?;
    let found = found(plan, entries, &Point::SelfTest);
    // Who passed nowhere vouches for nothing.
    let passed = found.iter().map(|f| f.highest).min()?.unwrap_or(Qps(0));
    let (aaaa, cached) = match point {
        Point::Search(conditions) => (conditions.aaaa, conditions.cached),
        _ => (Share::ZERO, Share::ZERO),
    };
    Some(allowed_rate(passed, aaaa, cached, test.delta))
}

impl Results {
    /// Computes the results.
    pub fn compute(plan: &Plan, environment: &Environment, entries: &[Entry]) -> Results {
        let points = plan.points();
        let duts: Vec<DutResult> = plan.duts.iter().map(|dut| dut_result(plan, entries, dut.name(), &points)).collect();
        let mishaps = entries.iter().filter_map(|entry| match entry {
            Entry::Mishap { point, what, log } => {
                Some(Mishap { point: point.to_string(), what: what.clone(), log: log.clone() })
            }
            _ => None,
        });
        let told = entries.iter().filter_map(|entry| match entry {
            Entry::Configuration { server, told } => Some(Told { server: server.clone(), configuration: told.clone() }),
            _ => None,
        });
        let hosts = entries.iter().filter_map(|entry| match entry {
            Entry::Host { role, environment } => {
                Some(HostFacts { role: role.clone(), environment: environment.clone() })
            }
            _ => None,
        });
        Results {
            hosts: hosts.collect(),
            configurations: told.collect(),
            auth: version(entries, plan.auth.driver.name()).unwrap_or_else(|| "not measured".into()),
            complete: points.iter().all(|point| is_complete(plan, entries, point)),
            self_test: plan.self_test.as_ref().map(|test| {
                let found = found(plan, entries, &Point::SelfTest);
                let passed = found.iter().map(|f| f.highest).min().flatten();
                SelfTestResult {
                    passed,
                    allows: passed.map(|p| allowed_rate(p, Share::ZERO, Share::ZERO, test.delta)),
                    summary: Summary::of(
                        &found.iter().filter_map(|f| f.highest).map(|rate| rate.0 as f64).collect::<Vec<_>>(),
                    ),
                }
            }),
            contradictions: contradictions(&duts, |point| self_test_allows(plan, entries, point)),
            period_unix_s: period(entries),
            duts,
            health: health(entries),
            noncompliance: noncompliance(plan, entries),
            mishaps: mishaps.collect(),
            plan: plan.clone(),
            environment: environment.clone(),
        }
    }
}

/// When the first trial began and the last one ended, by the wall clock.
fn period(entries: &[Entry]) -> Option<(f64, f64)> {
    let trials =
        || entries.iter().filter_map(|entry| if let Entry::Finished(m) = entry { Some(&m.trial) } else { None });
    let begun = trials().map(|t| t.started_unix_s).reduce(f64::min)?;
    let ended = trials().map(|t| t.started_unix_s + t.duration_s + t.timeout_s).reduce(f64::max)?;
    Some((begun, ended))
}

/// Whether all that the plan wants of a point is in the journal. A point that can have no number is complete when that is known.
pub fn is_complete(plan: &Plan, entries: &[Entry], point: &Point) -> bool {
    if void(entries, point).is_some() {
        return true;
    }
    match point {
        Point::SelfTest => {
            found(plan, entries, point).len() == plan.self_test.as_ref().map_or(0, |t| t.repeat as usize)
        }
        Point::Search(_) => found(plan, entries, point).len() == plan.search.repeat as usize,
        Point::Load { .. } => {
            let repeat = plan.measure.loads.as_ref().map_or(0, |loads| loads.repeat);
            (0..repeat).all(|repeat| {
                let of_it = || measured(entries, point).filter(|m| m.step.repeat == repeat);
                let tries = plan.search.invalid_retries as usize + 1;
                of_it().any(|m| m.trial.verdict != Verdict::Invalid) || of_it().count() >= tries
            })
        }
    }
}

/// Whether the campaign has a result for a point: a number, or that the lowest rate failed.
pub fn has_result(plan: &Plan, entries: &[Entry], point: &Point) -> bool {
    if !is_complete(plan, entries, point) || void(entries, point).is_some() {
        return false;
    }
    match point {
        Point::SelfTest => found(plan, entries, point).iter().all(|f| f.highest.is_some()),
        Point::Search(_) => Figures::of(&found(plan, entries, point), 1.0).n > 0,
        Point::Load { .. } => measured(entries, point).any(|m| m.trial.verdict != Verdict::Invalid),
    }
}

/// What a server says that it is.
fn version(entries: &[Entry], name: &str) -> Option<String> {
    entries.iter().find_map(|entry| match entry {
        Entry::Version { dut, text } if dut == name => Some(text.clone()),
        _ => None,
    })
}

fn dut_result(plan: &Plan, entries: &[Entry], name: &str, points: &[Point]) -> DutResult {
    let of_dut = || points.iter().filter(|point| point.dut() == Some(name));
    DutResult {
        name: name.into(),
        version: version(entries, name).unwrap_or_else(|| "not measured".into()),
        points: of_dut().filter_map(|point| point_result(plan, entries, point)).collect(),
        loads: of_dut().filter_map(|point| load_result(plan, entries, point)).collect(),
        paced: paced(entries, name),
    }
}

/// The windows of the trial of full length at the highest rate that a DUT passed; the first of equals.
fn paced(entries: &[Entry], dut: &str) -> Option<PacedTrial> {
    let mut best: Option<PacedTrial> = None;
    for entry in entries {
        let Entry::Finished(m) = entry else { continue };
        let counts = m.step.length == Length::Full && m.trial.verdict == Verdict::Passed;
        let Some(windows) = m.trial.windows.as_ref().filter(|_| counts && m.step.point.dut() == Some(dut)) else {
            continue;
        };
        if best.as_ref().is_none_or(|best| best.rate < m.step.rate) {
            best = Some(PacedTrial { rate: m.step.rate, windows: windows.clone() });
        }
    }
    best
}

fn point_result(plan: &Plan, entries: &[Entry], point: &Point) -> Option<PointResult> {
    let Point::Search(conditions) = point else { return None };
    measured(entries, point).next()?;
    let void = void(entries, point);
    let found = if void.is_some() { Vec::new() } else { found(plan, entries, point) };
    let overstatement = overstated(plan);
    let figures = Figures::of(&found, overstatement);
    let max = plan.dut(&conditions.dut).map_or(plan.search.max, |dut| plan.range(dut).1);
    Some(PointResult {
        conditions: conditions.clone(),
        complete: void.is_some() || found.len() == plan.search.repeat as usize,
        failed_by: shortfalls(entries, point, &found),
        lower_bound_reasons: lower_bound_reasons(&found, &figures, max, self_test_allows(plan, entries, point)),
        figures,
        overstatement,
        found,
        void,
        real: real(entries, point),
        place: measured(entries, point).filter_map(|m| m.cpu.place.clone()).reduce(|a, b| a.and(&b)),
        trials: count(measured(entries, point)),
    })
}

/// By how much the lowest rate that failed failed, search by search: by its full trial, or else by its probe.
fn shortfalls(entries: &[Entry], point: &Point, found: &[Found]) -> Vec<Option<Shortfall>> {
    let of = |(repeat, found): (usize, &Found)| {
        let at = |m: &&Measured| {
            let is_of = m.step.repeat as usize == repeat && Some(m.step.rate) == found.failed;
            is_of && m.trial.verdict == Verdict::Failed
        };
        let failed: Vec<&Measured> = measured(entries, point).filter(at).collect();
        let full = failed.iter().find(|m| m.step.length == Length::Full);
        full.or(failed.first()).map(|m| Shortfall::of(m.trial.rate, &m.trial.counts))
    };
    found.iter().enumerate().map(of).collect()
}

/// What the trials of a point that passed at full length, or were found not to be what was wanted, really were together.
fn real(entries: &[Entry], point: &Point) -> Option<Real> {
    let judged = |m: &&Measured| {
        let passed = m.trial.verdict == Verdict::Passed || m.trial.deviation.is_some();
        passed && m.step.length == Length::Full
    };
    let mut sum: Option<(Asked, Wanted)> = None;
    for m in measured(entries, point).filter(judged) {
        // Only what our AuthDNS counted can be compared.
        let (asked, wanted) = (m.trial.auth.as_ref()?.asked, m.trial.wanted());
        sum = Some(match sum {
            None => (asked, wanted),
            Some((a, w)) => {
                let (valid, preloaded) = (w.valid + wanted.valid, w.preloaded + wanted.preloaded);
                (a.plus(&asked), Wanted { valid, preloaded, ..w })
            }
        });
    }
    let (asked, wanted) = sum?;
    asked.real(&wanted)
}

/// Sums over points: which probe spared which trial is known within a point only.
fn by_point(all: &[&Measured]) -> Trials {
    let mut sum = Trials::default();
    for (i, first) in all.iter().enumerate() {
        let point = &first.step.point;
        if all[..i].iter().all(|m| m.step.point != *point) {
            let trials = count(all.iter().copied().filter(|m| m.step.point == *point));
            sum.probes += trials.probes;
            sum.full += trials.full;
            sum.invalid += trials.invalid;
            sum.saved += trials.saved;
        }
    }
    sum
}

fn count<'a>(all: impl Iterator<Item = &'a Measured>) -> Trials {
    let mut trials = Trials::default();
    let mut probed_failed = 0;
    let mut confirmed = 0;
    let mut last_failed_probe: BTreeSet<(u32, Qps)> = BTreeSet::new();
    for m in all {
        let (repeat, rate) = (m.step.repeat, m.step.rate);
        match m.step.length {
            Length::Probe => {
                trials.probes += 1;
                if m.trial.verdict == Verdict::Failed {
                    probed_failed += 1;
                    last_failed_probe.insert((repeat, rate));
                }
            }
            Length::Full => {
                trials.full += 1;
                trials.invalid += usize::from(m.trial.verdict == Verdict::Invalid);
                confirmed += usize::from(last_failed_probe.remove(&(repeat, rate)));
            }
        }
    }
    trials.saved = probed_failed - confirmed;
    trials
}

fn load_result(plan: &Plan, entries: &[Entry], point: &Point) -> Option<LoadResult> {
    let (Point::Load { share, .. }, Some(loads)) = (point, &plan.measure.loads) else { return None };
    let all: Vec<&Measured> = measured(entries, point).collect();
    let rate = all.first()?.step.rate;
    let counted: Vec<&Measured> = all.iter().copied().filter(|m| m.trial.verdict != Verdict::Invalid).collect();
    let ended: Vec<DutEnd> = counted.iter().filter_map(|m| m.dut_end.clone()).collect();
    let void = void(entries, point);
    // A DUT that ended used CPU for what nobody got.
    let figured: &[&Measured] = if ended.is_empty() && void.is_none() { &counted } else { &[] };
    let steady = |m: &Measured| steady_cpu(m, loads.transient.as_secs_f64(), loads.duration.as_secs_f64());
    let cpu: Vec<f64> = figured.iter().filter_map(|m| steady(m)).collect();
    let cprdp = figured.iter().filter_map(|m| steady(m).filter(|&cpu| cpu > 0.0).map(|cpu| m.trial.throughput / cpu));
    let percentile = |get: fn(&tester::measurer::result::Rtt) -> f64| {
        let values: Vec<f64> = figured.iter().filter_map(|m| m.trial.rtt_us.as_ref().map(get)).collect();
        Summary::of(&values).map(|summary| summary.median)
    };
    let own = figured.iter().filter_map(|m| m.trial.auth.as_ref()?.own_time_us.map(|own| own.p999));
    let own: Vec<f64> = own.collect();
    let rtt = percentile(|r| r.p50).zip(percentile(|r| r.p99)).zip(percentile(|r| r.p999));
    let (valid, sent) =
        counted.iter().fold((0, 0), |(valid, sent), m| (valid + m.trial.counts.valid, sent + m.trial.counts.sent));
    Some(LoadResult {
        share: *share,
        rate,
        trials: counted.len(),
        spoiled: all.len() - counted.len(),
        passed: (!counted.is_empty()).then(|| counted.iter().all(|m| m.trial.verdict == Verdict::Passed)),
        void,
        cpu: Summary::of(&cpu),
        cprdp: Summary::of(&cprdp.collect::<Vec<_>>()),
        cpu_by_second: figured.first().map(|m| m.cpu.dut.clone()).unwrap_or_default(),
        rtt_us: rtt.map(|((p50, p99), p999)| [p50, p99, p999]),
        auth_p999_us: Summary::of(&own).map(|summary| summary.median),
        valid: (sent > 0).then(|| valid as f64 / sent as f64),
        ended,
    })
}

/// The mean CPU use of a trial after its transient; the last second may be partly after the trial.
fn steady_cpu(m: &Measured, transient: f64, duration: f64) -> Option<f64> {
    let (skip, length) = (transient.ceil() as usize, duration as usize);
    let steady = m.cpu.dut.get(skip..length.min(m.cpu.dut.len()))?;
    (!steady.is_empty()).then(|| steady.iter().sum::<f64>() / steady.len() as f64)
}

fn health(entries: &[Entry]) -> Health {
    let all: Vec<&Measured> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Finished(measured) => Some(&**measured),
            _ => None,
        })
        .collect();
    let spread = |get: fn(&Measured) -> f64| {
        let values: Vec<f64> = all.iter().map(|m| get(m)).collect();
        Summary::of(&values).map(|summary| (summary.median, summary.max))
    };
    let invalid = all.iter().filter(|m| m.trial.verdict == Verdict::Invalid);
    let reasons = by_kind(invalid.flat_map(|m| &m.trial.reasons));
    let warnings: BTreeSet<String> =
        all.iter().flat_map(|m| m.warnings.iter().chain(&m.trial.warnings).cloned()).collect();
    let counted = all.iter().filter(|m| m.trial.verdict != Verdict::Invalid && m.dut_end.is_none());
    let numa = counted.filter_map(|m| m.numa.as_ref()).map(Numa::sum).reduce(|a, b| (a.0 + b.0, a.1 + b.1));
    Health {
        trials: by_point(&all),
        window_pct: spread(|m| m.trial.pacing.window_100ms_worst_pct),
        lateness_us: spread(|m| m.trial.pacing.p999_us),
        invalid_reasons: reasons,
        warnings: warnings.into_iter().collect(),
        numa,
        stolen: stolen(&all),
    }
}

/// What a hypervisor took, host by host, over all trials.
fn stolen(all: &[&Measured]) -> Vec<StolenTime> {
    let of = |role: &str, get: fn(&StolenFrom) -> Option<Stolen>| {
        let each: Vec<Stolen> = all.iter().filter_map(|m| get(&m.stolen)).collect();
        let summary = Summary::of(&each.iter().map(|s| s.all_pct).collect::<Vec<_>>())?;
        let worst_cpu_pct = each.iter().map(|s| s.worst_cpu_pct).fold(0.0, f64::max);
        Some(StolenTime { role: role.into(), median_pct: summary.median, max_pct: summary.max, worst_cpu_pct })
    };
    [of("tester", |s| s.tester), of("dut", |s| s.dut), of("auth", |s| s.auth)].into_iter().flatten().collect()
}

/// How often there was each kind of reason, in words, in the order in which they came first.
fn by_kind<'a>(reasons: impl Iterator<Item = &'a Reason>) -> Vec<(String, usize)> {
    let mut kinds: Vec<(ReasonKind, usize)> = Vec::new();
    for kind in reasons.map(Reason::kind) {
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, n)) => *n += 1,
            None => kinds.push((kind, 1)),
        }
    }
    kinds.into_iter().map(|(kind, n)| (kind.to_string(), n)).collect()
}

/// In which points the campaign is not compliant, by the facts of its own trials: of full length, in searches, with every reply
/// demanded (other acceptance ratios are labelled where they are shown).
fn noncompliance(plan: &Plan, entries: &[Entry]) -> Vec<String> {
    let mut points: Vec<String> = Vec::new();
    let mut add = |facts: &Facts| {
        for point in facts.noncompliance() {
            if !points.contains(&point) {
                points.push(point);
            }
        }
    };
    let (repeats, resolution) = (Some(plan.search.repeat), Some(plan.search.resolution));
    let mut seen = false;
    for entry in entries {
        let Entry::Finished(m) = entry else { continue };
        let is_full = matches!(m.step.point, Point::Search(_)) && m.step.length == Length::Full;
        if is_full && m.trial.facts.accept.0 >= 1.0 {
            seen = true;
            add(&Facts { repeats, resolution, proof: proof(plan, entries, m), ..m.trial.facts });
        }
    }
    if !seen {
        add(&Facts { repeats, resolution, ..planned_facts(plan) });
    }
    points
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

/// What vouches for the tester in a trial: a self-test whose trials were sent in the same way, with AuthDNS held to its limit.
fn proof(plan: &Plan, entries: &[Entry], m: &Measured) -> Proof {
    let Some(test) = &plan.self_test else { return Proof::None };
    let delta = test.delta;
    let mut trials = measured(entries, &Point::SelfTest).peekable();
    if trials.peek().is_none() || found(plan, entries, &Point::SelfTest).iter().any(|f| f.highest.is_none()) {
        return Proof::None;
    }
    let same = |t: &Measured| {
        t.trial.settings == m.trial.settings
            && t.trial.sending.priority == m.trial.sending.priority
            && t.trial.auth.is_some()
    };
    if trials.all(same) { Proof::SelfTest { delta } } else { Proof::OtherSettings { delta } }
}

#[cfg(test)]
mod tests;
