//! What a campaign found, computed from its plan and journal alone: the report never measures, and can be drawn again.

use std::collections::BTreeSet;

use method::narrow::{Length, NarrowedSearch};
use method::search::{Found, SearchRange};
use method::selftest::allowed_rate;
use method::stats::Summary;
use method::units::{Nanos, Qps, Share};
use method::verdict::Verdict;
use serde::{Deserialize, Serialize};

use crate::archive::{Entry, Measured};
use crate::environment::Environment;
use crate::plan::Plan;
use crate::point::{Conditions, Point};
use crate::search_plan::COMPLIANT_REPEATS;

/// Everything that a report shows. `results.json`; schema: `schemas/results.schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The plan.
    pub plan: Plan,
    /// The machine on which the campaign was begun.
    pub environment: Environment,
    /// The machines of its hosts, if they are others.
    pub hosts: Vec<HostFacts>,
    /// What played AuthDNS, as it calls itself.
    pub auth: String,
    /// Whether every point of the plan is complete.
    pub complete: bool,
    /// The self-test, if the plan has one.
    pub self_test: Option<SelfTestResult>,
    /// DUT by DUT.
    pub duts: Vec<DutResult>,
    /// The tester's own health over all trials.
    pub health: Health,
    /// Points in which the campaign is not as RFC 8219 §9.2 wants it.
    pub noncompliance: Vec<String>,
    /// Servers that died, hung or could not be started.
    pub mishaps: Vec<Mishap>,
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
}

/// What a set of searches found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PointResult {
    /// Under which conditions.
    pub conditions: Conditions,
    /// Median, percentiles, dispersion, queries per second.
    pub summary: Summary,
    /// Each search's result.
    pub found: Vec<Found>,
    /// Whether all repetitions are done.
    pub complete: bool,
    /// Why the DUT may do more.
    pub lower_bound_reasons: Vec<String>,
    /// Upstream queries per test query in trials that passed at full length.
    pub upstream_per_query: Option<f64>,
    /// Share of names that really had AAAA records, by what the DUT asked for: of the names that it asked AAAA records of,
    /// those for which it asked no A record.
    pub real_aaaa: Option<f64>,
    /// Share of queries that were really answered from the cache.
    pub real_cached: Option<f64>,
    /// Trials: probes, full ones, and those that the tester spoiled.
    pub trials: Trials,
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

/// What was found at a share of the maximum.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadResult {
    /// The share.
    pub share: Share,
    /// The rate.
    pub rate: Qps,
    /// CPU use of the DUT without the transient, in cores, trial by trial summarized.
    pub cpu: Option<Summary>,
    /// Queries per second for each core that is used (CPRDP).
    pub cprdp: Option<f64>,
    /// CPU use second by second of the first trial: the transient.
    pub cpu_by_second: Vec<f64>,
    /// Median, 99th and 99.9th percentile of the round-trip time in µs, each the median over the trials.
    pub rtt_us: Option<[f64; 3]>,
    /// Share of valid replies in all trials.
    pub valid: f64,
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
    /// Why trials were invalid, with numbers.
    pub invalid_reasons: Vec<(String, usize)>,
    /// Warnings, each once.
    pub warnings: Vec<String>,
    /// NUMA page allocations: hits and misses.
    pub numa: Option<(u64, u64)>,
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
            search.report(measured.trial.verdict);
        }
        results.extend(search.result());
    }
    results
}

fn rates(found: &[Found]) -> Vec<f64> {
    found.iter().map(|f| f.highest.map_or(0.0, |rate| rate.0 as f64)).collect()
}

/// The median of a point's searches, as far as they are done.
pub fn median(plan: &Plan, entries: &[Entry], point: &Point) -> Option<f64> {
    Summary::of(&rates(&found(plan, entries, point))).map(|summary| summary.median)
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
        let hosts = entries.iter().filter_map(|entry| match entry {
            Entry::Host { role, environment } => {
                Some(HostFacts { role: role.clone(), environment: environment.clone() })
            }
            _ => None,
        });
        Results {
            hosts: hosts.collect(),
            auth: version(entries, plan.auth.driver.name()).unwrap_or_else(|| "not measured".into()),
            complete: points.iter().all(|point| is_complete(plan, entries, point)),
            self_test: plan.self_test.as_ref().map(|test| {
                let found = found(plan, entries, &Point::SelfTest);
                let passed = found.iter().map(|f| f.highest).min().flatten();
                SelfTestResult {
                    passed,
                    allows: passed.map(|p| allowed_rate(p, Share::ZERO, Share::ZERO, test.delta)),
                    summary: Summary::of(&rates(&found)),
                }
            }),
            duts,
            health: health(entries),
            noncompliance: noncompliance(plan),
            mishaps: mishaps.collect(),
            plan: plan.clone(),
            environment: environment.clone(),
        }
    }
}

/// Whether all that the plan wants of a point is in the journal.
pub fn is_complete(plan: &Plan, entries: &[Entry], point: &Point) -> bool {
    match point {
        Point::SelfTest => {
            found(plan, entries, point).len() == plan.self_test.as_ref().map_or(0, |t| t.repeat as usize)
        }
        Point::Search(_) => found(plan, entries, point).len() == plan.search.repeat as usize,
        Point::Load { .. } => {
            measured(entries, point).count() == plan.measure.loads.as_ref().map_or(0, |l| l.repeat as usize)
        }
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
    }
}

fn point_result(plan: &Plan, entries: &[Entry], point: &Point) -> Option<PointResult> {
    let Point::Search(conditions) = point else { return None };
    let found = found(plan, entries, point);
    let summary = Summary::of(&rates(&found))?;
    let passed: Vec<&Measured> = measured(entries, point)
        .filter(|m| m.trial.verdict == Verdict::Passed && m.step.length == Length::Full)
        .collect();
    let asked = |m: &Measured| m.upstream.unwrap_or_default();
    let total = |value: &dyn Fn(&Measured) -> u64| passed.iter().map(|m| value(m)).sum::<u64>() as f64;
    let (aaaa, a) = (total(&|m| asked(m).aaaa), total(&|m| asked(m).a));
    let (sent, preloaded) = (total(&|m| m.trial.counts.sent), total(&preloaded));
    // Only what our AuthDNS counted can be compared.
    let some = sent > 0.0 && passed.iter().all(|m| m.upstream.is_some());
    // What was resolved before the trials took A questions in the same proportion.
    let per_query = ((aaaa - preloaded) * (1.0 + a / aaaa.max(1.0)) / sent.max(1.0)).max(0.0);
    let mut reasons = Vec::new();
    let open = found.iter().filter(|f| f.lower_bound && f.unmeasurable.is_none()).count();
    if open > 0 {
        reasons.push(format!("{open} of {} searches passed at the highest rate of the plan", found.len()));
    }
    let blocked = found.iter().filter(|f| f.unmeasurable.is_some()).count();
    if blocked > 0 {
        reasons.push(format!(
            "in {blocked} of {} searches the tester could not measure the next higher rate",
            found.len()
        ));
    }
    if let Some(allowed) = self_test_allows(plan, entries, point)
        && summary.median > allowed.0 as f64
    {
        reasons.push(format!("the self-test vouches for the tester up to {allowed} queries/s only"));
    }
    Some(PointResult {
        conditions: conditions.clone(),
        complete: found.len() == plan.search.repeat as usize,
        summary,
        found,
        lower_bound_reasons: reasons,
        upstream_per_query: some.then_some(per_query),
        real_aaaa: (aaaa > 0.0 && some).then(|| (1.0 - a / aaaa).clamp(0.0, 1.0)),
        real_cached: some.then(|| (1.0 - (aaaa - preloaded) / sent).clamp(0.0, 1.0)),
        trials: count(measured(entries, point)),
    })
}

/// Names that were resolved before a trial so that its cached queries find them.
fn preloaded(m: &Measured) -> u64 {
    let fresh = m.trial.counts.sent - m.trial.cached_share.count_below(m.trial.counts.sent);
    m.trial.names.count.saturating_sub(fresh)
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
    let first = all.first()?;
    let skip = loads.transient.as_secs_f64().ceil() as usize;
    let means: Vec<f64> = all
        .iter()
        .filter_map(|m| {
            // The last second may be partly after the trial.
            let length = loads.duration.as_secs() as usize;
            let steady = m.cpu.dut.get(skip..length.min(m.cpu.dut.len()))?;
            (!steady.is_empty()).then(|| steady.iter().sum::<f64>() / steady.len() as f64)
        })
        .collect();
    let cpu = Summary::of(&means);
    let percentile = |get: fn(&tester::measurer::result::Rtt) -> f64| {
        let values: Vec<f64> = all.iter().filter_map(|m| m.trial.rtt_us.as_ref().map(get)).collect();
        Summary::of(&values).map(|summary| summary.median)
    };
    let rtt = percentile(|r| r.p50).zip(percentile(|r| r.p99)).zip(percentile(|r| r.p999));
    let (valid, sent) =
        all.iter().fold((0, 0), |(valid, sent), m| (valid + m.trial.counts.valid, sent + m.trial.counts.sent));
    Some(LoadResult {
        share: *share,
        rate: first.step.rate,
        cprdp: cpu.filter(|cpu| cpu.median > 0.0).map(|cpu| first.step.rate.0 as f64 / cpu.median),
        cpu,
        cpu_by_second: first.cpu.dut.clone(),
        rtt_us: rtt.map(|((p50, p99), p999)| [p50, p99, p999]),
        valid: valid as f64 / (sent as f64).max(1.0),
    })
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
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for m in all.iter().filter(|m| m.trial.verdict == Verdict::Invalid) {
        for reason in &m.trial.reasons {
            let kind = without_numbers(reason);
            match reasons.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, n)) => *n += 1,
                None => reasons.push((kind, 1)),
            }
        }
    }
    let warnings: BTreeSet<String> =
        all.iter().flat_map(|m| m.warnings.iter().chain(&m.trial.warnings).cloned()).collect();
    let numa = all.iter().filter_map(|m| m.numa).map(|n| (n.hit, n.miss)).reduce(|a, b| (a.0 + b.0, a.1 + b.1));
    Health {
        trials: by_point(&all),
        window_pct: spread(|m| m.trial.pacing.window_100ms_worst_pct),
        lateness_us: spread(|m| m.trial.pacing.p999_us),
        invalid_reasons: reasons,
        warnings: warnings.into_iter().collect(),
        numa,
    }
}

/// A reason by its kind: numbers differ from trial to trial, what was wrong does not.
fn without_numbers(reason: &str) -> String {
    let word =
        |word: &'_ str| if word.starts_with(|c: char| c.is_ascii_digit()) { "…".to_owned() } else { word.to_owned() };
    reason.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn noncompliance(plan: &Plan) -> Vec<String> {
    let mut points = Vec::new();
    if plan.trial.duration.as_secs() < 60 {
        points.push(format!("trials last {} s, not at least 60 s", plan.trial.duration.as_secs_f64()));
    }
    if Nanos::from(plan.trial.timeout) > Nanos::SECOND {
        points.push(format!("the timeout is {} s, more than 1 s", plan.trial.timeout.as_secs_f64()));
    }
    if plan.search.repeat < COMPLIANT_REPEATS {
        points.push(format!("{} searches of each point, not at least {COMPLIANT_REPEATS}", plan.search.repeat));
    }
    if plan.search.resolution > Qps(1) {
        points.push(format!("the resolution is {} queries/s, not 1", plan.search.resolution));
    }
    points.extend(plan.trial.pacing_limits().noncompliance());
    match &plan.self_test {
        None => points.push("there is no self-test".into()),
        Some(test) if test.delta < method::selftest::MIN_DELTA => {
            points.push(format!("the self-test's reserve is {}, less than 0.1", test.delta));
        }
        Some(_) => {}
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_by_kind() {
        let [one, other] =
            ["1.55 %, limit 1 %", "12 %, limit 5 %"].map(|end| format!("pacing: a 100 ms window was off by {end}"));
        assert_eq!(without_numbers(&one), "pacing: a … ms window was off by … %, limit … %");
        assert_eq!(without_numbers(&one), without_numbers(&other));
        assert_ne!(without_numbers(&one), without_numbers("pacing: p99.9 lateness is 12 ms"));
    }
}
