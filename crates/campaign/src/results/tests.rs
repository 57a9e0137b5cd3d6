//! Tests of results that are computed from hand-written journals: included trials, labels and
//! contradictions.

use std::path::Path;

use hosts::numa::{NodePages, Numa};
use method::evidence::Deviation;
use method::narrow::NarrowedSearch;
use method::pacing::Windows;
use method::precision::Interval;
use method::records::Counts;
use method::search::SearchRange;
use tester::authdns::auth_delta::AuthDelta;
use units::Nanos;

use crate::plan::{AtShare, Cores};
use crate::record::{self, Cpu, DutEnd, Step};
use crate::results::sustained::Sustained;

use super::*;

const PLAN: &str = "name = 'x'\n[trial]\nduration = '2s'\n[search]\nmin = 100\nmax = 400\nresolution = 100\nrepeat = 1\n\
    invalid-retries = 1\n[measure]\nacceptance = [0.99]\n[measure.loads]\nshares = [1]\nduration = '4s'\ntransient = '1s'\n\
    repeat = 1\n[[dut]]\ndriver = 'unbound'\n";

fn plan() -> Plan {
    Plan::parse(PLAN, Path::new("p.toml")).unwrap()
}

fn search_point(accept: f64) -> Point {
    Point::Search(Conditions { accept, ..Conditions::worst_case("Unbound", Cores::first(1)) })
}

fn load_point() -> Point {
    Point::Load(AtShare { dut: "Unbound".into(), place: Cores::first(1), share: Share::ONE })
}

/// Returns a trial in which `valid` per cent of the queries got a valid reply.
fn trial(point: &Point, rate: u64, valid: u64, verdict: Verdict) -> Measured {
    let mut plan = TrialPlan::new("[2001:2::1]:53".parse().unwrap(), Qps(rate));
    plan.duration = Nanos(2 * Nanos::SECOND.0);
    let (valid, lost) = (rate * valid / 100, rate - rate * valid / 100);
    let mut trial =
        TrialResult::simulated(&plan, Counts { sent: rate, valid, lost, ..Counts::default() });
    trial.throughput = trial.counts.valid as f64;
    trial.verdict = verdict;
    let step = Step { point: point.clone(), repeat: 0, rate: Qps(rate), length: Length::Full };
    let cpu = Cpu { dut: vec![1.0, 0.5, 0.5, 0.5], ..Cpu::default() };
    let found = record::TaskResult::Trial(Box::new(trial));
    Measured {
        step,
        found,
        dut_end: None,
        cpu,
        numa: None,
        stolen: StolenFrom::default(),
        warnings: Vec::new(),
        records: None,
    }
}

fn search(capacity: u64, accept: f64) -> Vec<Measured> {
    let point = search_point(accept);
    let of = |rate: u64| {
        let verdict = if rate <= capacity { Verdict::Passed } else { Verdict::Failed };
        trial(&point, rate, if verdict == Verdict::Passed { 100 } else { 99 }, verdict)
    };
    let mut search = NarrowedSearch::new(
        SearchRange { min: Qps(100), max: Qps(400), resolution: Qps(100), invalid_retries: 1 },
        false,
    );
    let mut all = Vec::new();
    while let Some((rate, _)) = search.next() {
        let measured = of(rate.0);
        search.report(measured.verdict());
        all.push(measured);
    }
    all
}

fn results(trials: impl IntoIterator<Item = Measured>) -> Results {
    let entries: Vec<Entry> = trials.into_iter().map(|m| Entry::Finished(Box::new(m))).collect();
    Results::compute(&plan(), &Environment::observe(), &entries)
}

fn load_of(mut trials: Vec<Measured>) -> Sustained {
    let mut all = search(200, 1.0);
    all.append(&mut trials);
    results(all).duts[0].loads[0].found.clone()
}

#[test]
fn invalid_trials_are_excluded_from_load_figures() {
    let invalid = trial(&load_point(), 175, 100, Verdict::Invalid);
    let load = load_of(vec![invalid.clone()]);
    assert_eq!((load.trials, load.invalid, load.passed), (0, 1, None));
    assert!(
        load.cpu.is_none() && load.cprdp.is_none() && load.rtt_us.is_none() && load.valid.is_none()
    );
    let mut busy = trial(&load_point(), 175, 100, Verdict::Passed);
    busy.cpu.dut = vec![1.0, 0.25, 0.25, 0.25];
    let load = load_of(vec![invalid, busy]);
    assert_eq!((load.trials, load.invalid, load.passed), (1, 1, Some(true)));
    assert_eq!(load.cprdp.unwrap().median, 700.0, "value of the valid trial");
}

#[test]
fn efficiency_counts_valid_replies_only() {
    let load = load_of(vec![trial(&load_point(), 175, 50, Verdict::Failed)]);
    let valid = (175u64 / 2) as f64;
    assert_eq!(
        (load.cprdp.unwrap().median, load.valid),
        (valid * 2.0, Some(valid / 175.0)),
        "for half a core"
    );
    assert!(!load.is_sound());
}

#[test]
fn a_dut_that_ended_has_no_figures() {
    for end in [DutEnd::Hung, DutEnd::Died("signal: 9".into())] {
        let ended =
            Measured { dut_end: Some(end), ..trial(&load_point(), 175, 10, Verdict::Failed) };
        let load = load_of(vec![ended]);
        assert!(load.cpu.is_none() && load.cprdp.is_none() && load.rtt_us.is_none(), "{load:?}");
        assert_eq!((load.ended.len(), load.passed), (1, Some(false)));
    }
}

#[test]
fn a_median_that_does_not_hold_is_a_contradiction() {
    let mut all = search(200, 1.0);
    all.push(trial(&load_point(), 175, 11, Verdict::Failed));
    let results = results(all);
    let said = &results.contradictions[0];
    assert!(
        matches!(said, Contradiction::DoesNotHold { valid, .. } if (valid - 19.0 / 175.0).abs() < 1e-9),
        "{said:?}"
    );
    let figures = &results.duts[0].points[0].figures;
    assert_eq!((figures.median, figures.refuted_at), (None, Some(Qps(175))));
    assert_eq!((figures.min, figures.max), (Some(175.0), Some(175.0)), "rates that passed");
}

#[test]
fn the_smallest_result_of_a_self_test_counts() {
    let test = "[self-test]\nmin = 100\nmax = 900\nresolution = 100\nrepeat = 3\n[measure]\n";
    let plan = Plan::parse(&PLAN.replace("[measure]\n", test), Path::new("p.toml")).unwrap();
    let point = plan.own_self_test().unwrap();
    let range =
        SearchRange { min: Qps(100), max: Qps(900), resolution: Qps(100), invalid_retries: 1 };
    let mut entries = Vec::new();
    for (repeat, capacity) in (0..).zip([900, 500, 700]) {
        let mut search = NarrowedSearch::new(range, false);
        while let Some((rate, _)) = search.next() {
            let verdict = if rate.0 <= capacity { Verdict::Passed } else { Verdict::Failed };
            search.report(verdict);
            let mut measured = trial(&point, rate.0, 100, verdict);
            measured.step.repeat = repeat;
            entries.push(Entry::Finished(Box::new(measured)));
        }
    }
    // The smallest passing rate, 500, divided by 2 · 1.1.
    let allowed = Recorded::new(&plan, &entries).allowed(&search_point(1.0));
    assert_eq!(allowed, Some(Qps(227)));
}

/// A server may lose a query occasionally. Two runs must not contradict each other if only one of
/// them observed such a loss.
#[test]
fn the_interval_includes_a_refuted_median() {
    let interval = |more: Option<Measured>| {
        let all = search(200, 1.0).into_iter().chain(more);
        results(all).duts[0].points[0].figures.interval
    };
    let lower_end = |rate, verdict| interval(Some(trial(&load_point(), rate, 90, verdict))).from;
    assert_eq!(interval(None), Interval { from: Some(175.0), to: Some(250.0) });
    assert_eq!(lower_end(175, Verdict::Passed), Some(175.0));
    assert_eq!(lower_end(175, Verdict::Invalid), Some(175.0), "the tester's fault is no evidence");
    assert_eq!(lower_end(175, Verdict::Failed), Some(100.0));
    let lowest = search(100, 1.0).into_iter();
    let lowest = lowest.chain([trial(&load_point(), 100, 90, Verdict::Failed)]);
    let lowest = results(lowest).duts[0].points[0].figures.interval;
    assert_eq!(lowest, Interval { from: None, to: Some(175.0) }, "nothing passed below");
    let both = search(200, 1.0).into_iter().chain(search(200, 0.99));
    let failed = trial(&load_point(), 175, 90, Verdict::Failed);
    let points = results(both.chain([failed])).duts.remove(0).points;
    assert!(points.len() == 2 && points.iter().all(|p| p.figures.interval.from == Some(100.0)));
}

#[test]
fn less_with_a_lower_acceptance_is_a_contradiction() {
    let contradictions = |strict: u64, loose: u64| {
        results(search(strict, 1.0).into_iter().chain(search(loose, 0.99))).contradictions
    };
    assert!(matches!(contradictions(300, 100)[..], [Contradiction::LessForLess { .. }]));
    assert_eq!(contradictions(200, 200), []);
    assert_eq!(contradictions(100, 300), []);
}

#[test]
fn a_point_with_deviating_queries_has_no_result() {
    let mut all = search(300, 1.0);
    let last = all.last_mut().unwrap();
    // The DUT sent no upstream queries for half of the names.
    let mut part = AuthDelta::default();
    let record::TaskResult::Trial(trial) = &mut last.found else { panic!("a search is at rates") };
    (part.asked.aaaa, part.asked.a) = (trial.counts.valid / 2, trial.counts.valid / 2);
    trial.verdict = Verdict::Passed;
    trial.apply_auth(part, Nanos::SECOND, tester::measurer::plan::Subject::Dut);
    let point = results(all).duts[0].points[0].clone();
    assert!(matches!(point.void, Some(Deviation::CachedShare { .. })), "{point:?}");
    assert_eq!((point.figures.n, point.figures.median, point.complete), (0, None, true));
}

#[test]
fn one_search_shows_its_interval_and_shortfall() {
    let point = results(search(200, 1.0)).duts[0].points[0].clone();
    assert_eq!((point.figures.median, point.figures.dispersion_pct), (Some(175.0), None));
    assert_eq!(
        (point.figures.interval.from, point.figures.interval.to),
        (Some(175.0), Some(250.0))
    );
    let shortfall = point.failed_by[0].unwrap();
    assert_eq!((shortfall.rate, shortfall.missing, shortfall.of), (Qps(250), 3, 250));
}

#[test]
fn compliance_is_that_of_the_trials_and_not_of_the_plan() {
    let all: Vec<String> =
        results(search(200, 1.0)).noncompliance.iter().map(ToString::to_string).collect();
    let all = all.join("; ");
    assert!(all.contains("trials last 2 s") && all.contains("tester not validated"), "{all}");
    assert!(all.contains("rates may be overstated"), "the trial's timeout is a second: {all}");
}

#[test]
fn reasons_are_counted_by_kind() {
    let off = |worst_pct, limit_pct| Reason::WindowOff { worst_pct, limit_pct };
    // The second trial was invalid twice for the same kind of reason.
    let trials = [vec![off(1.55, 1.0), Reason::LedgerFull], vec![off(12.0, 5.0), off(2.0, 1.0)]];
    let counted = by_kind(trials.iter().map(Vec::as_slice));
    assert_eq!(
        counted,
        [
            InvalidReason::new(ReasonKind::WindowOff, 2),
            InvalidReason::new(ReasonKind::LedgerFull, 1)
        ]
    );
}

#[test]
fn warnings_are_counted_by_kind() {
    let with = |rate, used: f64, allowed: u64| {
        let mut measured = trial(&search_point(1.0), rate, 100, Verdict::Passed);
        measured.warnings = vec![Warning::AuthBusy { used, cores: 1 }];
        let record::TaskResult::Trial(at_rate) = &mut measured.found else {
            panic!("a search is at rates")
        };
        at_rate.warnings = vec![Warning::BeyondSelfTest { allowed: Qps(allowed) }; 2];
        measured
    };
    let quiet = trial(&search_point(1.0), 100, 100, Verdict::Passed);
    let warned = results([with(100, 0.91, 50), quiet, with(200, 0.97, 50)]).health.warnings;
    let found: Vec<_> = warned.iter().map(|of| (of.words.as_str(), of.trials)).collect();
    let beyond = "the self-test validates the tester only up to 50 queries/s";
    assert_eq!(found, [("AuthDNS used 0.91 of its 1 core", 2), (beyond, 2)]);
    let json = serde_json::to_value(&warned[0]).unwrap();
    assert_eq!((json["kind"].as_str(), json["used"].as_f64()), (Some("auth_busy"), Some(0.91)));
    assert_eq!(serde_json::from_value::<WarningCount>(json).unwrap(), warned[0]);
}

#[test]
fn json_has_noncompliance_as_names_and_sentences() {
    let results = results(search(200, 1.0));
    let json = serde_json::to_value(&results).unwrap();
    let (words, data) = (
        json["noncompliance"].as_array().unwrap(),
        json["noncompliance_causes"].as_array().unwrap(),
    );
    assert!(
        words.len() == data.len()
            && words.len() == results.noncompliance.len()
            && !words.is_empty()
    );
    let at = data.iter().position(|point| point["kind"] == "short_trials").unwrap();
    assert_eq!(words[at], "trials last 2 s, not at least 60 s");
    let again: Results = serde_json::from_value(json).unwrap();
    assert_eq!(again.noncompliance, results.noncompliance);
}

#[test]
fn stolen_time_is_listed_by_host() {
    let with = |all_pct: f64, worst_cpu_pct: f64| {
        let stolen = Some(Stolen { all_pct, worst_cpu_pct, worst_cpu: 0 });
        Measured {
            stolen: StolenFrom { dut: stolen, ..StolenFrom::default() },
            ..trial(&load_point(), 200, 100, Verdict::Passed)
        }
    };
    let stolen = results([with(1.0, 2.0), with(3.0, 9.0), with(2.0, 2.0)]).health.stolen;
    assert_eq!(stolen.len(), 1, "hosts without data are left out: {stolen:?}");
    assert_eq!(
        (stolen[0].role.as_str(), stolen[0].median_pct, stolen[0].max_pct, stolen[0].worst_cpu_pct),
        ("dut", 2.0, 3.0, 9.0)
    );
}

#[test]
fn pacing_windows_are_those_of_the_highest_pass() {
    let with = |rate: u64, verdict: Verdict| {
        let mut measured = trial(&search_point(1.0), rate, 100, verdict);
        let record::TaskResult::Trial(at_rate) = &mut measured.found else {
            panic!("a search is at rates")
        };
        at_rate.windows = Some(Windows { stretch_ms: rate, ..Windows::default() });
        measured
    };
    let all = [
        (100, Verdict::Passed),
        (300, Verdict::Passed),
        (400, Verdict::Failed),
        (350, Verdict::Invalid),
    ];
    let paced =
        results(all.map(|(rate, verdict)| with(rate, verdict))).duts[0].paced.clone().unwrap();
    assert_eq!((paced.rate, paced.windows.stretch_ms), (Qps(300), 300));
    assert_eq!(results([with(400, Verdict::Failed)]).duts[0].paced, None);
}

#[test]
fn page_allocations_count_valid_trials_by_node() {
    let node = |node, hit, miss| NodePages { node, hit, miss, ..NodePages::default() };
    let with = |verdict, hit| {
        let numa = Numa { nodes: vec![node(0, hit, 1), node(1, 20, 3)] };
        Measured { numa: Some(numa), ..trial(&load_point(), 175, 100, verdict) }
    };
    let numa = load_of(vec![with(Verdict::Invalid, 7), with(Verdict::Passed, 100)]).numa;
    let found: Vec<_> = numa.iter().map(|of| (of.node, of.hit.median, of.miss.max)).collect();
    assert_eq!(found, [(Some(0), 100.0, 1.0), (Some(1), 20.0, 3.0), (None, 120.0, 4.0)]);
}
