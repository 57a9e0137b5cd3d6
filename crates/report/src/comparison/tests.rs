use std::path::Path;

use campaign::runner::simulated::journal_of;
use hosts::environment::{Environment, Finding};
use method::precision::Ratio;

use super::*;

fn text(repeat: u32, more: &str) -> String {
    format!(
        "name = 'x'\n[trial]\nduration = '2s'\npause = '0s'\n[search]\nmin = 100\nmax = 3000\nresolution = 10\nrepeat = {repeat}\n{more}\
         [[dut]]\ndriver = 'unbound'\n"
    )
}

/// Returns the facts about the machine, which are the same in every run.
fn environment() -> Environment {
    Environment {
        dns64bench: "1".into(),
        host: "h".into(),
        kernel: "k".into(),
        cpu: "c".into(),
        cpus: 4,
        memory: 1,
        findings: Vec::<Finding>::new(),
    }
}

fn run(name: &str, capacity: u64, text: &str) -> Run {
    let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
    let entries = journal_of(&plan, capacity, &[]);
    Run {
        name: name.into(),
        results: Results::compute(&plan, &environment(), &entries),
        notes: Vec::new(),
    }
}

fn only(comparison: &Comparison) -> &Row {
    assert_eq!(comparison.rows.len(), 1, "{comparison:#?}");
    &comparison.rows[0]
}

fn compared(before: &Run, now: &Run, limit: f64) -> Row {
    only(&Comparison::new(&[before], &[now], limit)).clone()
}

#[test]
fn the_four_outcomes() {
    let before = run("before", 1_000, &text(4, ""));
    for (capacity, limit, outcome, status) in [
        (900, 0.05, ChangeOutcome::Regressed, (true, true)),
        (970, 0.01, ChangeOutcome::Regressed, (true, true)),
        (970, 0.10, ChangeOutcome::NoRegression, (false, true)),
        (1_000, 0.05, ChangeOutcome::NoRegression, (false, true)),
        (1_200, 0.05, ChangeOutcome::Improved, (false, true)),
        (1_000, 0.0, ChangeOutcome::Undecided, (false, false)),
    ] {
        let now = run("now", capacity, &text(4, ""));
        let comparison = Comparison::new(&[&before], &[&now], limit);
        let row = only(&comparison);
        assert_eq!(row.outcome(), Some(outcome), "{capacity} at limit {limit}: {row:#?}");
        assert_eq!((comparison.has_regressed(), comparison.is_decided()), status, "{row:#?}");
    }
    let row = compared(&before, &run("now", 1_000, &text(4, "")), 0.0);
    assert_eq!(
        row.in_words(),
        "undecided: a finer resolution (mlrsearch: width) is needed, or a shorter timeout for short trials"
    );
}

#[test]
fn few_searches_are_undecided_and_runs_add_up() {
    let (before, now) = (run("before", 1_000, &text(2, "")), run("now", 500, &text(2, "")));
    let row = compared(&before, &now, 0.05);
    assert_eq!(row.in_words(), "undecided: at least 2 more searches of each are needed");
    let comparison = Comparison::in_turn(&[&before, &before], &[&now, &now], 0.05);
    let row = only(&comparison);
    assert_eq!((row.outcome(), row.change.unwrap().searches), (Some(ChangeOutcome::Regressed), 4));
    assert_eq!(
        (comparison.baseline.as_str(), row.run.as_str()),
        ("before and before", "now and now")
    );
}

#[test]
fn a_ratio_near_the_limit_has_its_own_words() {
    let change = Change {
        baseline_searches: 4,
        searches: 4,
        ratio: Some(0.95),
        interval: Ratio { from: Some(0.9), to: Some(1.0) },
        outcome: ChangeOutcome::Undecided,
        wanted: Some(WouldDecide::MoreSearchesThan(1_000)),
    };
    assert_eq!(
        change_in_words(&change).replace('\u{202f}', " "),
        "undecided: the ratio is too close to the limit; even 1 000 searches of each would not decide it"
    );
}

#[test]
fn only_equally_measured_points_are_compared() {
    let before = run("before", 1_000, &text(4, ""));
    let other = text(4, "").replace("'2s'", "'3s'").replace("max = 3000", "max = 4000");
    let row = compared(&before, &run("now", 500, &other), 0.05);
    assert_eq!(
        row.in_words(),
        "not comparable: measured with another plan: search.max, trial.duration differ"
    );
    assert!(!Comparison::new(&[&before], &[&run("now", 500, &other)], 0.05).is_decided());

    // The description of the server is the subject of the comparison, and other measurements do not
    // matter.
    let built = text(4, "[measure]\ncores = [1, 2]\n")
        + "program = '/opt/new/unbound'\nextra = ['verbosity: 0']\n";
    let now = run("now", 500, &built.replace("name = 'x'", "name = 'y'"));
    let comparison = Comparison::new(&[&before], &[&now], 0.05);
    assert_eq!(comparison.rows[0].outcome(), Some(ChangeOutcome::Regressed), "{comparison:#?}");
    assert_eq!(comparison.rows[1].incomparable, Some(Incomparable::NotInBaseline));
    let reverse = Comparison::new(&[&now], &[&before], 0.05);
    assert_eq!(reverse.rows[1].incomparable, Some(Incomparable::NotInRun));

    let mut elsewhere = run("now", 500, &text(4, ""));
    elsewhere.results.environment.cpus = 8;
    assert_eq!(
        compared(&before, &elsewhere, 0.05).in_words(),
        "not comparable: the machines differ: 4 × c in the baseline, 8 × c in this run"
    );
    let mut placed = run("now", 500, &text(4, ""));
    placed.results.duts[0].points[0].place = None;
    assert_eq!(
        compared(&before, &placed, 0.05).in_words(),
        "not comparable: the cores differ: 1 in the baseline, 1 requested, not observed in this run"
    );
}

#[test]
fn missing_results_are_not_compared() {
    let before = run("before", 1_000, &text(4, ""));
    let plan = Plan::parse(&text(4, ""), Path::new("p.toml")).unwrap();
    let empty = Run {
        name: "now".into(),
        results: Results::compute(&plan, &environment(), &[]),
        notes: Vec::new(),
    };
    let row = compared(&before, &empty, 0.05);
    assert_eq!(
        row.incomparable,
        Some(Incomparable::NoResult(NoResult::NotBegun { because: None }))
    );
    let row = compared(&empty, &before, 0.05);
    assert_eq!(
        row.incomparable,
        Some(Incomparable::BaselineMissing(NoResult::NotBegun { because: None }))
    );
    assert_eq!((row.median, row.baseline_median), (Some(1_000.0), None));
}

/// Above the validated rate, the tester may have caused a failure.
#[test]
fn failures_above_the_validated_rate_do_not_count() {
    let test = "[self-test]\nmin = 100\nmax = 1000\nresolution = 10\nrepeat = 1\n";
    let (before, now) = (run("before", 1_000, &text(4, test)), run("now", 800, &text(4, test)));
    assert_eq!(now.results.duts[0].points[0].vouched, Some(Qps(454)));
    let row = compared(&before, &now, 0.05);
    assert_eq!(row.outcome(), Some(ChangeOutcome::Undecided), "{row:#?}");
    assert_eq!(row.change.unwrap().wanted, Some(WouldDecide::Bounds));
}

/// A possible overstatement by short trials widens the intervals. The medians are the same as in
/// the report.
#[test]
fn medians_of_short_trials_are_those_of_the_report() {
    let short = text(4, "").replace("duration = '2s'", "duration = '2s'\ntimeout = '1s'");
    let (before, now) = (run("before", 1_000, &short), run("now", 800, &short));
    let row = compared(&before, &now, 0.05);
    let [then, after] = [&before, &now].map(|run| &run.results.duts[0].points[0]);
    assert_eq!((then.overstatement, after.overstatement), (1.5, 1.5));
    assert_eq!((row.baseline_median, row.median), (then.figures.median, after.figures.median));
    let change = row.change.unwrap();
    assert_eq!(change.ratio, row.median.zip(row.baseline_median).map(|(now, then)| now / then));
    let from = change.interval.from.unwrap();
    assert!((0.5..0.6).contains(&from), "800 ÷ 1.5 of 1 000 is proven: {change:?}");
}

#[test]
fn each_goal_of_an_mlrsearch_has_its_row() {
    let text = |goals: &str| {
        text(4, "")
            .replace("resolution = 10", &format!("method = 'mlrsearch'\ngoals = [{goals}]"))
            .replace("duration = '2s'", "duration = '2s'\ntimeout = '10ms'")
    };
    let tolerant = text("'0.5%,exceed=50%,final=1s,sum=5s'");
    let (before, mut now) = (run("before", 1_000, &tolerant), run("now", 1_000, &tolerant));
    // The server is as fast as before for the goal without loss, but slower for the other goal.
    for search in &mut now.results.duts[0].points[0].goals[1].searches {
        let slower = |bound: Option<Qps>| bound.map(|rate| Qps(rate.0 * 4 / 5));
        search.relevant_lower_bound = slower(search.relevant_lower_bound);
        search.relevant_upper_bound = slower(search.relevant_upper_bound);
    }
    let comparison = Comparison::new(&[&before], &[&now], 0.05);
    let [strict, further] = &comparison.rows[..] else { panic!("{comparison:#?}") };
    assert_eq!((strict.goal, strict.outcome()), (None, Some(ChangeOutcome::NoRegression)));
    assert_eq!(further.goal.map(|goal| goal.loss_ratio), Some(0.005));
    assert_eq!(further.outcome(), Some(ChangeOutcome::Regressed), "{further:#?}");
    let point = further.point();
    assert!(
        point.ends_with(", at most 0.5 % lost in all but 50 % of 5 s, in trials of 1 s"),
        "{point}"
    );
    let then = &before.results.duts[0].points[0].goals[1];
    assert_eq!(further.baseline_median, then.figures.median);

    // A server without a result has no result for any goal. A goal that exists only in the baseline
    // or only in the run does not affect the other goals.
    let plan = Plan::parse(&tolerant, Path::new("p.toml")).unwrap();
    let nothing = Run {
        name: "nothing".into(),
        results: Results::compute(&plan, &environment(), &[]),
        notes: Vec::new(),
    };
    for row in &Comparison::new(&[&before], &[&nothing], 0.05).rows {
        assert!(matches!(row.incomparable, Some(Incomparable::NoResult(_))), "{row:#?}");
    }
    let another = run("another", 1_000, &text("'1%,exceed=50%,final=1s,sum=5s'"));
    let comparison = Comparison::new(&[&before], &[&another], 0.05);
    let found: Vec<_> = comparison.rows.iter().map(|row| row.incomparable.clone()).collect();
    let [Some(Incomparable::Plans(keys)), first, second] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(keys[..], ["search.goals"]);
    assert_eq!(
        (first, second),
        (&Some(Incomparable::NotInRun), &Some(Incomparable::NotInBaseline))
    );
}
