use super::*;
use units::Qps;

/// Returns one search for each rate in `passed`. In each search, that rate passed, and the rate that is higher by
/// `resolution` failed.
fn searches(passed: &[u64], resolution: u64) -> Searches {
    let found = |&rate: &u64| Found {
        highest: (rate > 0).then_some(Qps(rate)),
        failed: Some(Qps(rate + resolution)),
        lower_bound: false,
        unmeasurable: None,
    };
    Searches::of(&passed.iter().map(found).collect::<Vec<_>>(), 1.0, None)
}

#[test]
fn searches_are_counted() {
    let two = searches(&[10_000, 0], 10);
    assert_eq!((two.len(), two.is_empty()), (2, false));
    let none = searches(&[], 10);
    assert_eq!((none.len(), none.is_empty(), none.median()), (0, true, None));
    assert_eq!(two.median(), None, "one of the middle searches found no passing rate");
    assert_eq!(searches(&[10_000, 5_000, 0], 10).median(), Some(5_000.0));
    assert_eq!(searches(&[3, 9, 4], 10).median(), Some(4.0));
}

#[test]
fn an_interval_decides_against_a_limit() {
    let of = |from, to, limit| judge(&Ratio { from, to }, limit);
    for (from, to, outcome) in [
        (Some(0.90), Some(0.94), ChangeOutcome::Regressed),
        (Some(0.90), Some(0.96), ChangeOutcome::Undecided),
        (Some(0.96), Some(0.99), ChangeOutcome::NoRegression),
        (Some(0.96), Some(1.20), ChangeOutcome::NoRegression),
        (Some(1.01), Some(1.20), ChangeOutcome::Improved),
        (Some(1.01), None, ChangeOutcome::Improved),
        (Some(1.0), Some(1.20), ChangeOutcome::NoRegression),
        (None, Some(0.5), ChangeOutcome::Regressed),
        (None, Some(1.5), ChangeOutcome::Undecided),
        (None, None, ChangeOutcome::Undecided),
        // At the limit itself the comparison is undecided.
        (Some(0.95), Some(0.95), ChangeOutcome::Undecided),
    ] {
        assert_eq!(of(from, to, 0.05), outcome, "{from:?}, {to:?}");
    }
    assert_eq!(of(Some(0.96), Some(0.99), 0.0), ChangeOutcome::Regressed);
}

#[test]
fn clear_differences_decide() {
    let baseline = searches(&[10_000, 10_100, 9_900, 10_050, 9_950, 10_020], 10);
    let slower = searches(&[9_000, 9_100, 8_900, 9_050, 8_950, 9_020], 10);
    let change = compare(&baseline, &slower, 0.05);
    assert_eq!((change.outcome, change.wanted), (ChangeOutcome::Regressed, None), "{change:?}");
    assert_eq!((change.baseline_searches, change.searches), (6, 6));
    assert!(
        (change.ratio.unwrap() - 9_010.0 / 10_010.0).abs() < 1e-12,
        "10 010 is the median of six"
    );
    assert_eq!(compare(&slower, &baseline, 0.05).outcome, ChangeOutcome::Improved);
    assert_eq!(compare(&baseline, &baseline, 0.05).outcome, ChangeOutcome::NoRegression);
    assert_eq!(compare(&baseline, &baseline, 0.0).outcome, ChangeOutcome::Undecided);
}

#[test]
fn three_searches_need_one_more() {
    let (baseline, slower) = (searches(&[10_000; 3], 1), searches(&[5_000; 3], 1));
    let change = compare(&baseline, &slower, 0.05);
    assert_eq!(
        (change.outcome, change.wanted),
        (ChangeOutcome::Undecided, Some(WouldDecide::Searches(1))),
        "{change:?}"
    );
    assert_eq!(change.interval, Ratio { from: None, to: None });
    let none = searches(&[], 1);
    assert_eq!(compare(&baseline, &none, 0.05).wanted, Some(WouldDecide::Searches(LEAST_SEARCHES)));
    assert_eq!(compare(&none, &none, 0.05).ratio, None);
    assert_eq!(compare(&searches(&[0; 4], 1), &slower, 0.05).ratio, None, "of nothing");
    assert_eq!(
        compare(&searches(&[10_000; 4], 1), &searches(&[5_000; 4], 1), 0.05).outcome,
        ChangeOutcome::Regressed
    );
}

/// The suggested number of searches leads to a decision if their results are like the existing results.
#[test]
fn the_suggested_number_of_searches_decides() {
    let baseline = [9_000, 9_500, 10_000, 10_500, 11_000];
    let slower = [8_400, 8_900, 9_400, 9_900, 10_400];
    let (few, few_slower) = (searches(&baseline, 1), searches(&slower, 1));
    let change = compare(&few, &few_slower, 0.01);
    let Some(WouldDecide::Searches(more)) = change.wanted else { panic!("{change:?}") };
    assert!((5..300).contains(&more), "{more}");
    let enlarged =
        |rates: &[u64]| searches(&rates.repeat((rates.len() + more).div_ceil(rates.len())), 1);
    let after = compare(&enlarged(&baseline), &enlarged(&slower), 0.01);
    assert_eq!(after.outcome, ChangeOutcome::Regressed, "{more} more: {after:?}");
}

#[test]
fn undecidable_comparisons_give_their_reason() {
    // The limits of both servers are between 1 000 and 6 000, so one server may be six times as fast as the other.
    let coarse = searches(&[1_000; 8], 5_000);
    assert_eq!(compare(&coarse, &coarse, 0.05).wanted, Some(WouldDecide::Resolution));
    // If two servers passed at the end of the range, either may be the faster one.
    let open = |rate| {
        let found =
            Found { highest: Some(Qps(rate)), failed: None, lower_bound: true, unmeasurable: None };
        Searches::of(&[found; 8], 1.0, None)
    };
    assert_eq!(compare(&open(1_000), &open(1_000), 0.05).wanted, Some(WouldDecide::Bounds));
    let known = searches(&[500; 8], 1);
    assert_eq!(compare(&known, &open(1_000), 0.05).outcome, ChangeOutcome::Improved);
    assert_eq!(compare(&open(1_000), &known, 0.05).outcome, ChangeOutcome::Regressed);
    // Exactly at the limit.
    let (full, limit) = (
        searches(&[9_000, 10_000, 11_000, 12_000], 1),
        searches(&[8_550, 9_500, 10_450, 11_400], 1),
    );
    let at = compare(&full, &limit, 0.05);
    assert!(
        matches!(
            at.wanted,
            Some(WouldDecide::MoreSearchesThan(MOST_SEARCHES) | WouldDecide::Resolution)
        ),
        "{at:?}"
    );
}

/// A failure at a rate for which the tester is not validated does not count against the server. If short trials may
/// overstate a passed rate, the rate is reduced.
#[test]
fn only_proven_rates_count() {
    let found = |passed, failed| Found {
        highest: Some(Qps(passed)),
        failed: Some(Qps(failed)),
        lower_bound: false,
        unmeasurable: None,
    };
    let all = [found(1_000, 1_100), found(1_000, 1_300)];
    assert_eq!(Searches::of(&all, 1.0, Some(1_200)).failed, [1_100.0, f64::INFINITY]);
    assert_eq!(Searches::of(&all, 1.25, None).passed, [800.0, 800.0]);
    let nothing =
        Found { highest: None, failed: None, lower_bound: true, unmeasurable: Some(Qps(10)) };
    assert_eq!(Searches::of(&[nothing], 1.0, None).len(), 0);
    let nowhere =
        Found { highest: None, failed: Some(Qps(100)), lower_bound: false, unmeasurable: None };
    assert_eq!(Searches::of(&[nowhere], 1.0, None).passed, [0.0]);
    assert_eq!(searches(&[5], 1).and(&searches(&[3, 7], 1)).passed, [3.0, 5.0, 7.0]);
}

#[test]
fn percentiles_come_from_tables() {
    // Abramowitz and Stegun, tables 26.10 and 26.1.
    for (freedom, t) in [(3.0, 3.182), (4.0, 2.776), (9.0, 2.262), (19.0, 2.093), (120.0, 1.980)] {
        assert!((student(freedom) / t - 1.0).abs() < 0.01, "{freedom}: {}", student(freedom));
    }
    assert!((normal_below(-1.959_963_985) - 0.025).abs() < 1e-6);
    assert!((normal_below(-3.0) - 0.001_349_9).abs() < 1e-6);
    assert!(tail(4) < tail(5) && tail(100) < 0.025 && tail(100) > 0.02);
}

/// Recorded scatter of searches: a campaign of the plan `smoke` on a machine with two virtual CPUs. One line per point
/// with the bounds of each search, `passed-failed`.
const RECORDED: &str = include_str!("../../testdata/scatter.txt");

/// Recorded searches of a point, as bounds relative to the point's median.
type Scatter = Vec<(f64, f64)>;

fn recorded() -> Vec<Scatter> {
    let points = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let of = |line: &str| {
        let (_, found) = line.split_once(": ").expect("a point and its searches");
        let rates = found.split(' ').map(|search| {
            let (passed, failed) = search.split_once('-').expect("two rates");
            [passed, failed].map(|rate| rate.parse::<f64>().expect("a rate"))
        });
        let rates: Vec<[f64; 2]> = rates.collect();
        let middle =
            median(&sorted(rates.iter().map(|[passed, failed]| (passed + failed) / 2.0).collect()));
        let middle = middle.expect("a point has searches");
        rates.iter().map(|[passed, failed]| (passed / middle, failed / middle)).collect()
    };
    points.map(of).collect()
}

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", 2014,
/// DOI 10.1145/2660193.2660195).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns `n` searches of a server with the recorded scatter and a resolution of 1/500.
    fn searches(&mut self, scatter: &Scatter, capacity: f64, n: usize) -> Searches {
        let resolution = 200;
        let one = |_| {
            let (passed, failed) = scatter[(self.next() % scatter.len() as u64) as usize];
            let limit = capacity * (passed + (failed - passed) * self.share());
            (limit as u64) / resolution * resolution
        };
        searches(&(0..n).map(one).collect::<Vec<_>>(), resolution)
    }
}

/// Returns how many of 1 000 comparisons satisfy `is_it`. The candidate's capacity is `part` times the baseline's
/// capacity.
fn of_a_thousand(part: f64, n: usize, limit: f64, is_it: fn(ChangeOutcome) -> bool) -> usize {
    let (points, mut random) = (recorded(), Random(part.to_bits() ^ n as u64));
    let comparisons = (0..1_000).filter(|number| {
        let scatter = &points[number % points.len()];
        let baseline = random.searches(scatter, 100_000.0, n);
        let candidate = random.searches(scatter, 100_000.0 * part, n);
        is_it(judge(&interval(&baseline, &candidate, (n, n)), limit))
    });
    comparisons.count()
}

#[test]
fn equal_servers_give_few_alarms() {
    for n in [4, 5, 10, 20] {
        for limit in [0.0, 0.01, 0.03, 0.05] {
            let alarms =
                of_a_thousand(1.0, n, limit, |outcome| outcome == ChangeOutcome::Regressed);
            let praise = of_a_thousand(1.0, n, limit, |outcome| outcome == ChangeOutcome::Improved);
            println!(
                "{n} searches each, limit {limit}: {alarms} alarms, {praise} improvements of 1 000"
            );
            assert!(
                alarms <= 50 && praise <= 50,
                "{n} searches each, limit {limit}: {alarms}, {praise}"
            );
        }
    }
}

#[test]
fn a_slowdown_is_rarely_called_none() {
    let is_called_none =
        |outcome| matches!(outcome, ChangeOutcome::NoRegression | ChangeOutcome::Improved);
    for n in [4, 5, 10, 20] {
        for limit in [0.0, 0.01, 0.03] {
            let missed = of_a_thousand(0.97, n, limit, is_called_none);
            println!(
                "{n} searches each, limit {limit}: 3 % slower is called no regression in {missed} of 1 000"
            );
            assert!(missed <= 50, "{n} searches each, limit {limit}: {missed}");
        }
    }
}

/// A method that never decides would pass the tests above. Here the scatter is as small as on a quiet machine, and the
/// method must decide.
#[test]
fn large_slowdowns_are_found() {
    let (mut random, mut found) = (Random(5), 0);
    for _ in 0..200 {
        let narrow = vec![(0.99, 1.01)];
        let baseline = random.searches(&narrow, 100_000.0, 10);
        let candidate = random.searches(&narrow, 97_000.0, 10);
        found += usize::from(
            judge(&interval(&baseline, &candidate, (10, 10)), 0.01) == ChangeOutcome::Regressed,
        );
    }
    assert!(found >= 160, "{found} of 200");
}

/// Compares both approximations with exact values: the first with its own series, computed independently, and the
/// second with the normal distribution.
#[test]
fn each_term_of_the_series_counts() {
    for (freedom, t) in
        [(1.0, 11.300_117_574_107), (2.0, 4.270_551_344_333), (10.0, 2.228_130_897_446)]
    {
        assert!((student(freedom) - t).abs() < 1e-9, "{freedom}: {}", student(freedom));
    }
    for (x, below) in [
        (-0.1, 0.460_172_163),
        (-0.5, 0.308_537_539),
        (-1.0, 0.158_655_254),
        (-2.0, 0.022_750_132),
        (-3.0, 0.001_349_898),
    ] {
        assert!((normal_below(x) - below).abs() < 1e-7, "{x}: {}", normal_below(x));
    }
}

/// The suggested number of searches leads to a decision, and one search fewer does not.
#[test]
fn one_search_less_than_suggested_does_not_decide() {
    let rates = [9_000, 9_500, 10_000, 10_500, 11_000];
    let baseline = searches(&rates, 1);
    let mut asked = Vec::new();
    for part in [97, 93, 90, 85] {
        let slower = searches(&rates.map(|rate| rate * part / 100), 1);
        let decides = |more: usize| {
            let planned = interval(&baseline, &slower, (5 + more, 5 + more));
            judge(&planned, 0.01) != ChangeOutcome::Undecided
        };
        let Some(WouldDecide::Searches(more)) = compare(&baseline, &slower, 0.01).wanted else {
            panic!("{part} %")
        };
        assert!(decides(more) && !decides(more - 1), "{part} %: {more}");
        asked.push(more);
    }
    assert!(asked.is_sorted_by(|a, b| a > b), "{asked:?}");
}

/// A bound of zero is no bound: "at least 0" carries no information.
#[test]
fn a_server_that_passed_nowhere_has_no_lower_bound() {
    let (baseline, slow) = (searches(&[1_000; 8], 1), searches(&[0; 8], 20_000));
    let change = compare(&baseline, &slow, 0.05);
    assert_eq!(change.interval.from, None);
    assert_eq!(change.wanted, Some(WouldDecide::Bounds), "{change:?}");
}

/// Covers the range up to the maximum, not only up to a power of two below it.
#[test]
fn the_maximum_number_of_searches_can_be_suggested() {
    let rates: Vec<u64> = (0..27).map(|step| 9_000 + 80 * step).collect();
    let slower: Vec<u64> = rates.iter().map(|rate| rate * 977 / 1_000).collect();
    let wanted = compare(&searches(&rates, 1), &searches(&slower, 1), 0.01).wanted;
    let most = MOST_SEARCHES - rates.len();
    let Some(WouldDecide::Searches(more)) = wanted else { panic!("{wanted:?}") };
    assert!((513..=most).contains(&more), "{more}");
}

/// Values from tables of the normal distribution and of Student's t distribution: Φ(−√(n ÷ (n − 1)) · t₀.₉₇₅(n − 1)).
#[test]
fn the_tails_of_few_values_are_thinner_than_a_fortieth() {
    for (n, wanted) in [(10, 0.008_55), (20, 0.015_9), (1_000, 0.024_8)] {
        let ratio = tail(n) / wanted;
        assert!((0.9..1.1).contains(&ratio), "{n}: {}", tail(n));
    }
}
