//! Searches for several goals at once, on simulated hosts.

use std::path::Path;

use campaign::plan::{Plan, Point};
use campaign::record::{Entry, Step, TaskResult};
use campaign::results::Results;
use campaign::runner::simulated::journal_of;
use campaign::sequence::Recorded;
use hosts::environment::Environment;
use method::evidence::Deviation;
use method::narrow::Length;
use method::set::LowerBound;
use method::verdict::Verdict;
use units::{Nanos, Qps};

use crate::run::Run;
use crate::sections::search;
use crate::wording;

const CAPACITY: u64 = 2_500;

fn parsed(search: &str) -> Result<Plan, String> {
    let text = format!(
        "name = 'x'\n[trial]\nduration = '20s'\npause = '0s'\n[search]\nmax = 10000\nrepeat = 3\n\
         {search}\n[measure]\nacceptance = [0.99]\n[[dut]]\ndriver = 'unbound'\n"
    );
    Plan::parse(&text, Path::new("p.toml")).map_err(|error| format!("{error:#}"))
}

fn plan() -> Plan {
    parsed("method = 'mlrsearch'\nwidth = 0.01\ngoals = ['0.5%,exceed=50%,final=1s,sum=5s']")
        .unwrap()
}

fn steps(entries: &[Entry], point: &Point) -> Vec<Step> {
    let finished = entries.iter().filter_map(|entry| match entry {
        Entry::Finished(measured) => Some(measured.step.clone()),
        _ => None,
    });
    finished.filter(|step| step.point == *point).collect()
}

#[test]
fn each_goal_has_bounds_beside_those_of_rfc_8219() {
    let (plan, entries) = (plan(), journal_of(&plan(), CAPACITY, &[]));
    let results = Results::compute(&plan, Environment::for_tests(), &entries);
    let strict = &results.duts[0].points[0];
    assert!(strict.complete && strict.missing.is_none(), "{strict:?}");
    let [first, second] = &strict.goals[..] else { panic!("{:?}", strict.goals) };
    assert_eq!((first.goal.loss_ratio, first.goal.final_duration.0), (0.0, 20 * Nanos::SECOND.0));
    assert_eq!((second.goal.loss_ratio, second.goal.exceed_ratio), (0.005, 0.5));
    // The other tables show the goal of RFC 8219.
    assert_eq!((strict.figures.median, strict.figures.n), (first.figures.median, 3));
    for goal in [first, second] {
        let interval = goal.figures.interval;
        let (from, to) = (interval.from.unwrap() * goal.overstatement, interval.to.unwrap());
        assert!(from <= CAPACITY as f64 && to > CAPACITY as f64, "{interval:?}");
        assert!(to - from <= 0.01 * to + 1.0, "{interval:?}");
    }
    // Short trials send for one second and wait one second for late replies, so they may overstate
    // the rate by a factor of 2. In trials of 20 s, the overstatement is within the limits of RFC
    // 8219.
    assert_eq!((first.overstatement, second.overstatement), (1.0, 2.0));
    assert_eq!(second.figures.interval.from.unwrap() * 2.0, second.figures.min.unwrap());
    // At a separate point, one query in a hundred may be lost.
    assert_eq!(results.duts[0].points[1].goals[0].goal.loss_ratio, 0.01);
    let coarse = results.noncompliance.iter().any(|point| point.to_string().contains("resolution"));
    assert!(coarse, "{:?}", results.noncompliance);
}

#[test]
fn due_trials_are_the_same_after_a_replay() {
    let (plan, entries) = (plan(), journal_of(&plan(), CAPACITY, &[]));
    let point = plan.points().into_iter().find(|point| matches!(point, Point::Search(_))).unwrap();
    let whole = steps(&entries, &point);
    assert!(whole.iter().any(|step| step.length == Length::Of(Nanos::SECOND)), "{whole:?}");
    assert!(whole.iter().any(|step| step.length == Length::Full), "{whole:?}");
    for (at, entry) in entries.iter().enumerate() {
        let done = steps(&entries[..at], &point).len();
        if !matches!(entry, Entry::Finished(_)) || done == whole.len() {
            continue;
        }
        let due = Recorded::new(&plan, &entries[..at]).replay(&point).unwrap().due().unwrap();
        let next = &whole[done];
        assert_eq!((due.repeat, due.rate, due.length), (next.repeat, next.rate, next.length));
    }
    assert_eq!(Recorded::new(&plan, &entries).replay(&point).unwrap().due(), None);
}

/// The result of a measurement point is discarded if the number of the DUT's upstream queries deviates from the
/// expected number. The deviation is found before any full trial, and no full trial follows.
#[test]
fn a_void_point_has_no_result() {
    let (plan, mut entries) = (plan(), journal_of(&plan(), CAPACITY, &[]));
    let of_search = |entry: &Entry| match entry {
        Entry::Finished(measured) => matches!(measured.step.point, Point::Search(_)),
        _ => false,
    };
    let first = entries.iter().position(of_search).unwrap();
    let Entry::Finished(measured) = &mut entries[first] else { unreachable!("found above") };
    assert_eq!(measured.step.length, Length::Of(Nanos::SECOND));
    let deviation = Deviation::CachedShare { wanted: 0.0, real: 0.5 };
    let TaskResult::Trial(trial) = &mut measured.found else { panic!("a search is at rates") };
    (trial.verdict, trial.deviation) = (Verdict::Invalid, Some(deviation));
    let point = measured.step.point.clone();
    let replay = Recorded::new(&plan, &entries).replay(&point).unwrap();
    assert_eq!((replay.due(), replay.void), (None, Some(deviation)));
}

#[test]
fn a_goal_that_ends_at_the_highest_rate_is_a_lower_bound() {
    let plan = plan();
    let entries = journal_of(&plan, 1_000_000, &[]);
    let results = Results::compute(&plan, Environment::for_tests(), &entries);
    for goal in &results.duts[0].points[0].goals {
        let reasons = &goal.lower_bound_reasons;
        assert!(matches!(reasons[..], [LowerBound::RangeEnd { searches: 3, .. }]), "{reasons:?}");
        let words = wording::goal_found(goal);
        // Short trials may overstate the median of the second goal, so it is no lower bound.
        assert_eq!(words.starts_with('≥'), goal.overstatement == 1.0, "{words}");
        assert!(words.contains(", ∞)"), "{words}");
        let line = wording::goal_line(goal);
        assert!(line.contains("first trials of 1 s; irregular in 3 of 3 searches: "), "{line}");
        // The width of the bounds is unknown, so the resolution is the requested one.
        assert_eq!(goal.resolution, Qps(100));
    }
}

#[test]
fn the_report_labels_each_goal() {
    let plan = plan();
    let entries = journal_of(&plan, CAPACITY, &[]);
    let results = Results::compute(&plan, Environment::for_tests(), &entries);
    let run = Run { name: "x".into(), results, notes: Vec::new() };
    let tables = search::tables(&run);
    let table = tables.iter().find(|table| table.title.contains("RFC 9971")).expect("the table");
    let goals: Vec<&str> = table.rows.iter().map(|row| row[4].as_str()).collect();
    assert_eq!(
        goals[..3],
        [
            "RFC 8219: no query lost in 20 s; width 1 %, first trials of 1 s",
            "RFC 9971: at most 0.5 % lost in all but 50 % of 5 s, in trials of 1 s; width 1 %, first trials of 1 s",
            "RFC 8219 except for the loss: at most 1 % lost in 20 s; width 1 %, first trials of 1 s",
        ]
    );
    assert!(table.rows[1][5].contains("overstated by up to 2"), "{:?}", table.rows[1]);
    assert!(tables[0].note.contains("MLRsearch (RFC 9971)"), "{}", tables[0].note);
    let halving = parsed("").unwrap();
    let results =
        Results::compute(&halving, Environment::for_tests(), &journal_of(&halving, CAPACITY, &[]));
    let tables = search::tables(&Run { name: "x".into(), results, notes: Vec::new() });
    assert!(tables.iter().all(|table| !table.title.contains("9971")));
}

#[test]
fn keys_of_the_other_method_are_refused() {
    for (search, says) in [
        ("goals = ['0.5%']", "are for method = \"mlrsearch\""),
        ("width = 0.01", "are for method = \"mlrsearch\""),
        ("method = 'mlrsearch'\nresolution = 10", "for mlrsearch use width"),
        ("method = 'mlrsearch'\nprobe = '1s'", "its own short trials"),
        ("method = 'mlrsearch'\nwidth = 1.5", "width of a goal is 1.5"),
        ("method = 'mlrsearch'\nmin = 0", "at least 1"),
        ("method = 'mlrsearch'\ngoals = ['half']", "is not a share"),
        ("method = 'mlr'", "mlrsearch"),
    ] {
        let why = parsed(search).unwrap_err();
        assert!(why.contains(says), "{search}: {why}");
    }
    assert_eq!(plan().search.goals[0].to_string(), "0.005,exceed=0.5,final=1s,sum=5s");
    assert_eq!(plan().search.resolution, Qps(1));
}
