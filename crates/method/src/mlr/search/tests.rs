//! Simulated servers: with a capacity, with noise, with random trial failures, with non-monotonic loss.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::search::{Search, SearchRange};

const LIMITS: Limits = Limits { min: Qps(100), max: Qps(131_072), invalid_retries: 2 };

fn minute() -> Nanos {
    Nanos(60 * Nanos::SECOND.0)
}

fn rfc8219() -> Goal {
    Goal::rfc8219(minute(), 0.005)
}

/// Returns a goal that allows half of the one-second trials to lose more than `loss_ratio`.
fn tolerant(loss_ratio: f64) -> Goal {
    let sum = Nanos(21 * Nanos::SECOND.0);
    Goal {
        loss_ratio,
        exceed_ratio: 0.5,
        final_duration: Nanos::SECOND,
        duration_sum: sum,
        ..rfc8219()
    }
}

struct Walk {
    search: MlrSearch,
    tried: Vec<MlrDue>,
}

impl Walk {
    fn measured(&self) -> f64 {
        self.tried.iter().map(|due| due.duration.as_secs_f64()).sum()
    }

    fn result(&self) -> Vec<GoalResult> {
        self.search.result().expect("the search is over")
    }
}

/// Runs a search against a simulated server. `loses` returns the fraction of a trial's queries that are lost, or `None`
/// for an invalid trial.
fn walk(limits: Limits, goals: &[Goal], mut loses: impl FnMut(MlrDue) -> Option<f64>) -> Walk {
    let mut search = MlrSearch::new(limits, goals).unwrap();
    let mut tried = Vec::new();
    while let Some(due) = search.due() {
        assert!(tried.len() < 3000, "the search does not end: {:?}", &tried[tried.len() - 10..]);
        assert!((limits.min..=limits.max).contains(&due.rate), "{due:?}");
        tried.push(due);
        let sent = (due.rate.0 as f64 * due.duration.as_secs_f64()) as u64;
        match loses(due) {
            None => search.report(Verdict::Invalid, &Counts::default()),
            Some(share) => {
                let missing = (sent as f64 * share).ceil() as u64;
                let counts =
                    Counts { sent, valid: sent - missing, lost: missing, ..Counts::default() };
                search
                    .report(if missing == 0 { Verdict::Passed } else { Verdict::Failed }, &counts);
            }
        }
    }
    Walk { search, tried }
}

/// Returns the fraction of queries that a server with this capacity loses at `rate`.
fn overload(capacity: f64, rate: Qps) -> f64 {
    (1.0 - capacity / rate.0 as f64).max(0.0)
}

#[test]
fn a_steady_server_is_found_to_the_width_with_few_long_trials() {
    for capacity in [150.0, 4_321.0, 47_000.0, 130_000.0] {
        let walk = walk(LIMITS, &[rfc8219()], |due| Some(overload(capacity, due.rate)));
        let [found] = walk.result()[..] else { panic!("one goal") };
        let (lower, upper) =
            (found.relevant_lower_bound.unwrap(), found.relevant_upper_bound.unwrap());
        assert!(lower.0 as f64 <= capacity && capacity < upper.0 as f64, "{lower} {upper}");
        assert!(found.goal.is_met_by(lower, upper), "{lower} {upper}");
        assert_eq!(found.conditional_throughput, Some(lower.0 as f64));
        let full = walk.tried.iter().filter(|due| due.duration == minute()).count();
        assert!(full <= 3, "{full} full trials at {capacity}");
        // The plain search halves the range down to this width with full trials.
        let halvings = (131_072.0 / (0.005 * capacity)).log2().ceil() + 2.0;
        assert!(
            walk.measured() <= halvings * 60.0 / 4.0,
            "{} s against {halvings} minutes",
            walk.measured()
        );
    }
}

#[test]
fn the_ends_of_the_range_give_irregular_results() {
    let all = walk(LIMITS, &[rfc8219()], |_| Some(0.0));
    let found = all.result()[0];
    assert_eq!((found.relevant_lower_bound, found.relevant_upper_bound), (Some(LIMITS.max), None));
    assert!(!found.is_regular());
    let none = walk(LIMITS, &[rfc8219()], |_| Some(0.3));
    let found = none.result()[0];
    assert_eq!((found.relevant_lower_bound, found.relevant_upper_bound), (None, Some(LIMITS.min)));
    assert_eq!((found.conditional_throughput, none.measured() < 60.0), (None, true));
}

#[test]
fn one_search_serves_several_goals() {
    // The server loses 0.3 % of the queries from 30 000 on, and answers at most 50 000 per second.
    let loses = |due: MlrDue| {
        Some(overload(50_000.0, due.rate).max(if due.rate.0 < 30_000 { 0.0 } else { 0.003 }))
    };
    let goals = [
        rfc8219(),
        Goal { loss_ratio: 0.001, ..rfc8219() },
        Goal { loss_ratio: 0.005, ..rfc8219() },
    ];
    let together = walk(LIMITS, &goals, loses);
    let lower: Vec<u64> =
        together.result().iter().map(|g| g.relevant_lower_bound.unwrap().0).collect();
    for (found, limit) in lower.iter().zip([30_000.0, 30_000.0, 50_000.0 / 0.995]) {
        assert!((limit * 0.995 - 1.0..=limit).contains(&(*found as f64)), "{lower:?}");
    }
    let apart: f64 = goals.iter().map(|goal| walk(LIMITS, &[*goal], loses).measured()).sum();
    assert!(
        together.measured() < 0.9 * apart,
        "{} s together, {apart} s apart",
        together.measured()
    );
}

#[test]
fn a_goal_that_tolerates_bad_trials_is_not_misled_by_them() {
    // At any rate, every tenth trial loses a tenth of its queries, as if a hypervisor had taken the CPU.
    let mut chance = StdRng::seed_from_u64(7);
    let walk = walk(LIMITS, &[tolerant(0.005)], |due| {
        Some(if chance.random_bool(0.1) { 0.1 } else { overload(20_000.0, due.rate) })
    });
    let found = walk.result()[0];
    let limit = 20_000.0 / 0.995;
    let lower = found.relevant_lower_bound.unwrap().0 as f64;
    assert!((limit * 0.99..=limit).contains(&lower), "{found:?}");
}

#[test]
fn unmeasurable_rates_leave_the_result_open() {
    let walk = walk(LIMITS, &[rfc8219()], |due| if due.rate.0 > 40_000 { None } else { Some(0.0) });
    let found = walk.result()[0];
    let (lower, blocked) = (found.relevant_lower_bound.unwrap(), found.unmeasurable.unwrap());
    assert!(lower.0 <= 40_000 && blocked.0 > 40_000, "{found:?}");
    assert!(found.goal.is_met_by(lower, blocked) && found.relevant_upper_bound.is_none());
    // A failure below the unmeasurable rates is the DUT's limit, so the result has an upper bound.
    let walk = self::walk(LIMITS, &[rfc8219()], |due| {
        if due.rate.0 > 40_000 { None } else { Some(overload(9_000.0, due.rate)) }
    });
    assert_eq!((walk.result()[0].unmeasurable, walk.result()[0].is_regular()), (None, true));
    // A failure above the unmeasurable rates is not the DUT's limit.
    let walk = self::walk(LIMITS, &[rfc8219()], |due| match due.rate.0 {
        0..=40_000 => Some(0.0),
        40_001..=100_000 => None,
        _ => Some(0.5),
    });
    let found = walk.result()[0];
    assert!(found.unmeasurable.unwrap() < found.relevant_upper_bound.unwrap(), "{found:?}");
}

#[test]
fn an_invalid_trial_is_repeated() {
    let mut spoil = 2;
    let walk = walk(LIMITS, &[rfc8219()], |due| {
        spoil -= 1;
        if spoil >= 0 { None } else { Some(overload(5_000.0, due.rate)) }
    });
    assert!(walk.tried[..3].iter().all(|due| due.rate == LIMITS.max));
    assert!(walk.result()[0].is_regular());
}

/// Retries are counted separately for each trial, even if one load needs many trials.
#[test]
fn invalid_trials_are_counted_per_trial() {
    let mut is_spoiled = false;
    let walk = walk(Limits { invalid_retries: 1, ..LIMITS }, &[tolerant(0.001)], |due| {
        is_spoiled = !is_spoiled;
        (!is_spoiled).then(|| overload(5_000.0, due.rate))
    });
    let found = walk.result()[0];
    assert!(found.is_regular() && found.unmeasurable.is_none(), "{found:?}");
}

#[test]
fn impossible_searches_are_rejected() {
    assert_eq!(MlrSearch::new(LIMITS, &[]).unwrap_err(), GoalError::NoGoal);
    for (min, max) in [(0, 5), (6, 5)] {
        let limits = Limits { min: Qps(min), max: Qps(max), ..LIMITS };
        assert!(MlrSearch::new(limits, &[rfc8219()]).unwrap_err().to_string().contains("must be"));
    }
    assert!(MlrSearch::new(LIMITS, &[Goal { width: 2.0, ..rfc8219() }]).is_err());
}

/// Number of compared searches of each kind.
const SEARCHES: usize = 20;

/// Halves the range down to a width of 0.5 % with full trials, some of which fail at random. Returns the rate found and
/// the seconds measured.
fn halving(capacity: f64, mut fails: impl FnMut() -> bool) -> (f64, f64) {
    let Limits { min, max, invalid_retries } = LIMITS;
    let resolution = Qps((capacity * 0.005) as u64);
    let mut search = Search::new(SearchRange { min, max, resolution, invalid_retries });
    let mut measured = 0.0;
    while let Some(rate) = search.next() {
        measured += minute().as_secs_f64();
        let is_lost = overload(capacity, rate) > 0.0 || fails();
        search.report(if is_lost { Verdict::Failed } else { Verdict::Passed });
    }
    (search.result().unwrap().highest.map_or(0.0, |rate| rate.0 as f64), measured)
}

/// Runs MLRsearch instead, and returns the same values as [`halving`].
fn by_mlrsearch(capacity: f64, mut fails: impl FnMut() -> bool) -> (f64, f64) {
    let walk = walk(LIMITS, &[rfc8219()], |due| {
        Some(overload(capacity, due.rate).max(if fails() { 0.02 } else { 0.0 }))
    });
    (walk.result()[0].relevant_lower_bound.map_or(0.0, |rate| rate.0 as f64), walk.measured())
}

/// Ten capacities, and random trial failures: never, one in 500, one in 100.
#[test]
fn it_takes_a_quarter_of_the_time_and_finds_the_same() {
    let mut chance = StdRng::seed_from_u64(9_971);
    for capacity in (0..10).map(|n| 1_234.5 * 1.6_f64.powi(n)) {
        for fails in [0.0, 0.002, 0.01] {
            let many = |search: fn(f64, &mut dyn FnMut() -> bool) -> (f64, f64),
                        chance: &mut StdRng| {
                let mut all: Vec<(f64, f64)> = (0..SEARCHES)
                    .map(|_| search(capacity, &mut || chance.random_bool(fails)))
                    .collect();
                all.sort_by(|one, other| one.0.total_cmp(&other.0));
                let seconds = all.iter().map(|(_, seconds)| seconds).sum::<f64>();
                let found: Vec<f64> = all.into_iter().map(|(found, _)| found / capacity).collect();
                (found, seconds / SEARCHES as f64)
            };
            let (plain, long) = many(|c, f| halving(c, f), &mut chance);
            let (found, short) = many(|c, f| by_mlrsearch(c, f), &mut chance);
            let [low, high] = [plain[0], plain[SEARCHES - 1]];
            let median = f64::midpoint(plain[SEARCHES / 2 - 1], plain[SEARCHES / 2]);
            let width = rfc8219().width;
            let is_found = |found: &&f64| {
                ((low.min(median * (1.0 - width)))..=high.max(median * (1.0 + width)))
                    .contains(*found)
            };
            let alike = found.iter().filter(is_found).count();
            println!(
                "capacity {capacity:.0}, {fails} fail: plain {low:.4} to {high:.4}, median {median:.4}, {:.1} min; \
                 MLRsearch {:.4} to {:.4}, {:.1} min ({:.2}); {alike} of {SEARCHES} within",
                long / 60.0,
                found[0],
                found[SEARCHES - 1],
                short / 60.0,
                short / long
            );
            assert!(short <= long / 4.0, "{short} s against {long} s at {capacity}");
            let wanted = if fails == 0.0 { SEARCHES } else { SEARCHES * 3 / 4 };
            assert!(alike >= wanted, "{alike} of {SEARCHES} at {capacity}: {found:?}, {plain:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Despite noise, random failures and dips, the search ends, and each bound satisfies RFC 9971's rules.
    #[test]
    fn it_ends_and_its_bounds_are_bounds(
        seed: u64,
        capacity in 50.0f64..200_000.0,
        noise in 0.0f64..0.1,
        fails in prop::sample::select(vec![0.0, 0.002, 0.01, 0.2]),
        spoils in prop::sample::select(vec![0.0, 0.1]),
        dip in 100u64..131_072,
    ) {
        let goals = [rfc8219(), tolerant(0.001), tolerant(0.005)];
        let mut chance = StdRng::seed_from_u64(seed);
        let walk = walk(LIMITS, &goals, |due| {
            let now = capacity * (1.0 + noise * (chance.random::<f64>() - 0.5));
            if chance.random_bool(spoils) { return None; }
            let fails = chance.random_bool(fails) || (dip..dip + dip / 20).contains(&due.rate.0);
            Some(overload(now, due.rate).max(if fails { 0.02 } else { 0.0 }))
        });
        for found in walk.result() {
            let class = |load: Qps| classify(&found.goal, &walk.search.loads()[&load]);
            if let Some(lower) = found.relevant_lower_bound {
                prop_assert_eq!(class(lower), LoadClass::Lower);
            }
            if let Some(upper) = found.relevant_upper_bound {
                prop_assert_eq!(class(upper), LoadClass::Upper);
                prop_assert!(found.relevant_lower_bound.is_none_or(|lower| lower < upper));
            }
            let above = found.relevant_upper_bound.into_iter().chain(found.unmeasurable).min();
            match (found.relevant_lower_bound, above) {
                (Some(lower), Some(above)) => prop_assert!(found.goal.is_met_by(lower, above), "{:?}", found),
                (Some(lower), None) => prop_assert_eq!(lower, LIMITS.max),
                (None, Some(above)) => prop_assert_eq!(above, LIMITS.min),
                (None, None) => prop_assert!(false, "nothing found"),
            }
        }
    }
}

/// If nothing passes, each step down of a stage is twice as long as the previous one; otherwise hundreds of loads would
/// be tried.
#[test]
fn steps_outward_become_longer() {
    let walk = walk(LIMITS, &[rfc8219()], |_| Some(0.001));
    let rates: Vec<u64> = walk.tried.iter().map(|due| due.rate.0).collect();
    assert_eq!((rates[0], rates.last()), (LIMITS.max.0, Some(&LIMITS.min.0)));
    assert!(rates.len() < 40, "{rates:?}");
}

#[test]
fn each_step_outward_is_twice_the_one_before_it() {
    let target = rfc8219();
    let mut search = MlrSearch::new(LIMITS, &[target]).unwrap();
    let mut steps = |from: u64, direction: Direction| {
        search.outward = 0;
        [(); 4].map(|()| search.away(Qps(from), &target, direction).0)
    };
    // The factors are 0.995 to the power of 1, 2, 4 and 8.
    assert_eq!(steps(100_000, Direction::Up), [100_502, 101_007, 102_025, 104_091]);
    assert_eq!(steps(100_000, Direction::Down), [99_500, 99_002, 98_014, 96_069]);
    // A step is at least one query per second and stays within the limits.
    assert_eq!(steps(100, Direction::Up), [101, 101, 102, 104]);
    assert_eq!(steps(131_000, Direction::Up), [131_072; 4]);
    assert_eq!(steps(101, Direction::Down), [100; 4]);
}

/// An overloaded server answers at its limit; the search continues near that rate.
#[test]
fn the_second_load_is_the_rate_of_replies_at_the_first() {
    let walk = walk(LIMITS, &[rfc8219()], |due| Some(overload(4_321.0, due.rate)));
    let [first, second] = [0, 1].map(|at| walk.tried[at].rate);
    assert_eq!((first, second), (LIMITS.max, Qps(4_321)));
}

#[test]
fn the_middle_lies_strictly_between() {
    for (low, high, between) in [
        (1, 3, 2),
        (1, 4, 2),
        (10, 12, 11),
        (10, 13, 11),
        (100, 400, 200),
        (999_998, 1_000_000, 999_999),
    ] {
        assert_eq!(middle(Qps(low), Qps(high)), Qps(between));
    }
}

/// If one query per second is more than the width, the bounds are one query per second apart.
#[test]
fn low_limits_are_found_to_one_query_per_second() {
    let limits = Limits { min: Qps(1), max: Qps(12), invalid_retries: 0 };
    for capacity in 1..12 {
        for goal in [rfc8219(), tolerant(0.001)] {
            let walk = walk(limits, &[goal], |due| Some(overload(capacity as f64, due.rate)));
            let found = walk.result()[0];
            let bounds = (found.relevant_lower_bound, found.relevant_upper_bound);
            assert_eq!(bounds, (Some(Qps(capacity)), Some(Qps(capacity + 1))));
        }
    }
}

/// Returns the next trial after these trials. Each entry contains a rate, a duration in milliseconds, the number of
/// queries per thousand without a valid reply, and the number of such trials.
fn due_after(goal: Goal, trials: &[(u64, u64, u64, usize)]) -> MlrDue {
    let mut search = MlrSearch::new(LIMITS, &[goal]).unwrap();
    for &(rate, ms, missing, n) in trials {
        let trial = Trial { duration: Nanos::from_millis(ms), missing, of: 1000 };
        search.loads.entry(Qps(rate)).or_default().extend([trial].repeat(n));
    }
    search.choose();
    search.due().expect("the search is not over")
}

/// Five trials decide a bound of the stage before the last, and are too few for the last stage. If the bounds are too
/// far apart, the last stage first tries their middle. It then tries the lower bound, then the upper bound.
#[test]
fn the_bounds_of_the_stage_before_are_tried_first() {
    let next = |trials: &[(u64, u64, u64, usize)]| {
        let due = due_after(tolerant(0.001), trials);
        (due.rate.0, due.bracket)
    };
    let none = (None, None);
    assert_eq!(next(&[(10_000, 1000, 0, 5), (10_080, 1000, 9, 5)]), (10_040, none));
    assert_eq!(next(&[(10_000, 1000, 0, 5), (10_040, 1000, 9, 5)]), (10_000, none));
    let shown = (Some(Qps(10_000)), None);
    assert_eq!(next(&[(10_000, 1000, 0, 11), (10_040, 1000, 9, 5)]), (10_040, shown));
}

/// If a goal tolerates no loss, an upper bound of the previous stage is also an upper bound of the last stage.
#[test]
fn a_proven_upper_bound_is_not_tried_again() {
    for (upper, rate) in [(10_040, 10_000), (10_080, 10_040)] {
        let due = due_after(rfc8219(), &[(10_000, 8000, 0, 1), (upper, 8000, 1, 1)]);
        assert_eq!((due.rate.0, due.bracket), (rate, (None, Some(Qps(upper)))));
        assert_eq!(due.duration, minute());
    }
}

/// If a queue takes a second to overflow, a load passes short trials (perhaps many, run for a different goal) and fails
/// in long trials. A search that tried this load again would not end.
#[test]
fn a_load_that_fails_in_long_trials_only_is_not_tried_again() {
    let goal = Goal {
        initial_duration: Nanos::from_millis(500),
        final_duration: Nanos(2 * Nanos::SECOND.0),
        duration_sum: Nanos(2 * Nanos::SECOND.0),
        ..tolerant(0.0)
    };
    let trials = [(10_000, 1000, 0, 4), (10_000, 2000, 9, 1), (10_040, 1000, 9, 1)];
    let due = due_after(goal, &trials);
    // A step of half a per cent down.
    assert_eq!((due.rate.0, due.bracket), (9_950, (None, Some(Qps(10_000)))));
    assert_eq!(due.duration, goal.final_duration);
}

/// Another goal may need further trials at a load that is already an upper bound for the first goal. If those trials
/// are invalid, the first goal keeps its upper bound.
#[test]
fn a_failure_stands_where_the_tester_could_not_measure_later() {
    let limits = Limits { min: Qps(100), max: Qps(100), invalid_retries: 0 };
    let goals = [rfc8219(), tolerant(0.001)];
    let walk = walk(limits, &goals, |due| (due.goal == 0).then_some(0.5));
    let found: Vec<_> = walk
        .result()
        .iter()
        .map(|found| (found.relevant_upper_bound, found.unmeasurable))
        .collect();
    let rate = Some(Qps(100));
    assert_eq!(found, [(rate, None), (None, rate)]);
}
