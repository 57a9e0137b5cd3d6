//! Formatting of results as text. All outputs use these functions and therefore contain the same
//! texts. Rates are printed without rounding, because `method::precision` has already rounded
//! derived rates.

use campaign::sequence::GoalFigures;
use method::mlr::goal::Goal;
use method::precision::{Figures, Interval, Ratio};
use method::search::Shortfall;
use method::set::LowerBound;
use units::{Qps, counted, grouped};

use crate::format::{AT_LEAST, number};

/// Formats the number of queries without a valid reply in a failed trial: `66 000 queries/s: 3 of 3 960 000 queries had
/// no valid reply`.
pub fn shortfall(shortfall: &Shortfall) -> String {
    let Shortfall { rate, missing, of } = *shortfall;
    let of = counted(of, "query", "queries");
    format!("{} queries/s: {} of {of} had no valid reply", grouped(rate.0), grouped(missing))
}

/// Formats an interval of rates, in queries per second: `[22 875, 25 312)`, `less than 1 000`, `at least 66 000`.
pub fn interval(interval: &Interval) -> String {
    match (interval.from.map(number), interval.to.map(number)) {
        (Some(from), Some(to)) => format!("[{from}, {to})"),
        (Some(from), None) => format!("at least {from}"),
        (None, Some(to)) => format!("less than {to}"),
        (None, None) => "not known".into(),
    }
}

/// Formats an interval to be appended to a value: ` in [66 000, ∞)`, `, less than 1 000`, `, interval not known`.
fn with_interval(interval: &Interval) -> String {
    match (interval.from.map(number), interval.to.map(number)) {
        (Some(from), to) => format!(" in [{from}, {})", to.as_deref().unwrap_or("∞")),
        (None, Some(to)) => format!(", less than {to}"),
        (None, None) => ", interval not known".into(),
    }
}

/// Formats the median, or returns the reason why there is none. If the searches prove that the rate is at least the
/// median, but show no upper bound, the median is preceded by "≥".
pub fn median(figures: &Figures) -> String {
    match (figures.median, figures.refuted_at) {
        _ if figures.n == 0 => "not measured".into(),
        (Some(median), _) => {
            format!("{}{}", if figures.is_at_least() { AT_LEAST } else { "" }, number(median))
        }
        (None, Some(rate)) => format!("refuted by a trial that failed at {}", grouped(rate.0)),
        (None, None) => without_pass(figures),
    }
}

/// Formats the number of searches without a passing rate: `2 of 4 searches found no passing rate`.
fn without_pass(figures: &Figures) -> String {
    format!("{} of {} found no passing rate", figures.without_pass, counted_searches(figures.n))
}

/// Formats the result of searches for sentences and tables. The result of a single search is an interval. The result of
/// several searches is a median and an interval.
pub fn found(figures: &Figures) -> String {
    let (interval, proven) = (interval(&figures.interval), with_interval(&figures.interval));
    match (figures.n, figures.median) {
        (1, Some(_)) => interval,
        (0, _) => median(figures),
        (_, Some(_)) if figures.without_pass > 0 => {
            format!("{} ({}){proven}", median(figures), without_pass(figures))
        }
        (_, Some(_)) => format!("{}{proven}", median(figures)),
        (_, None) if figures.interval == Interval::default() => median(figures),
        (_, None) => format!("{}: {interval}", median(figures)),
    }
}

/// Returns a caveat about the median rate of a measurement point; empty if there is none.
pub(crate) fn objection(figures: &Figures) -> String {
    match figures.refuted_at {
        Some(_) => median(figures),
        None if figures.without_pass > 0 => without_pass(figures),
        None => String::new(),
    }
}

/// Describes a reason why the DUT's highest passing rate may be above the median.
pub fn lower_bound(reason: &LowerBound) -> String {
    match *reason {
        LowerBound::RangeEnd { searches, of, max } => {
            format!(
                "{searches} of {} passed at the highest rate, {}",
                counted_searches(of),
                grouped(max.0)
            )
        }
        LowerBound::Unmeasurable { searches, of } => {
            format!(
                "in {searches} of {} the next higher rate could not be measured",
                counted_searches(of)
            )
        }
        LowerBound::SelfTest { allowed: Qps(0) } => "the self-test passed at no rate".into(),
        LowerBound::SelfTest { allowed } => {
            format!(
                "the self-test validates the tester only up to {} queries/s",
                grouped(allowed.0)
            )
        }
    }
}

/// Describes the reasons why the DUT's highest passing rate may be above the median, each as in [`lower_bound`].
pub fn lower_bounds(reasons: &[LowerBound]) -> Vec<String> {
    reasons.iter().map(lower_bound).collect()
}

/// Describes a goal of an MLRsearch: `at most 0.5 % lost in all but 50 % of 21 s, in trials of 1 s`. The part `in
/// trials of …` is omitted if the length of a single trial equals the "duration sum" of the goal (RFC 9971).
pub fn goal(goal: &Goal) -> String {
    let percent = |share: f64| number(share * 100.0);
    let seconds = number(goal.duration_sum.as_secs_f64());
    let lost = match goal.loss_ratio > 0.0 {
        true => format!("at most {} % lost", percent(goal.loss_ratio)),
        false => "no query lost".into(),
    };
    let trials = match goal.final_duration == goal.duration_sum {
        true => String::new(),
        false => format!(", in trials of {} s", number(goal.final_duration.as_secs_f64())),
    };
    match goal.exceed_ratio > 0.0 {
        true => {
            format!("{lost} in all but {} % of {seconds} s{trials}", percent(goal.exceed_ratio))
        }
        false => format!("{lost} in {seconds} s{trials}"),
    }
}

/// Describes a goal with its width, its initial duration and its irregular results (RFC 9971): `no query lost in 20 s;
/// width 1 %, first trials of 1 s; irregular in 1 of 3 searches`.
pub fn goal_terms(found: &GoalFigures) -> String {
    let width = number(found.goal.width * 100.0);
    let first = number(found.goal.initial_duration.as_secs_f64());
    let irregular = match found.searches.iter().filter(|search| !search.is_regular()).count() {
        0 => String::new(),
        n => format!("; irregular in {n} of {}", counted_searches(found.searches.len())),
    };
    format!("{}; width {width} %, first trials of {first} s{irregular}", goal(&found.goal))
}

/// Formats the result of an MLRsearch for a goal: `20 050 in [20 050, 20 110) queries/s`.
pub(crate) fn goal_found(goal: &GoalFigures) -> String {
    match goal.figures.n {
        0 => found(&goal.figures),
        _ => format!("{} queries/s", found(&goal.figures)),
    }
}

/// Returns the conditional throughput (RFC 9971): the valid replies per second at the load of a
/// goal. The search with the fewest replies determines the result.
pub(crate) fn conditional_throughput(found: &GoalFigures) -> Option<String> {
    let of = found.searches.iter().filter_map(|search| search.conditional_throughput);
    of.reduce(f64::min).map(|rate| number(rate.floor()))
}

/// Formats a line with the result of an MLRsearch for an additional goal, which RFC 8219 does not define: `at most 0.5
/// % lost in all but 50 % of 21 s; width 1 %, first trials of 1 s: 20 050 in [20 050, 20 110) queries/s, at least 19
/// 950 replies/s`.
pub fn goal_line(found: &GoalFigures) -> String {
    let replies = conditional_throughput(found)
        .map_or(String::new(), |rate| format!(", at least {rate} replies/s"));
    let overstated = match found.overstatement > 1.0 {
        true => {
            format!(", short trials may overstate by a factor of up to {:.3}", found.overstatement)
        }
        false => String::new(),
    };
    let (goal, rates) = (goal_terms(found), goal_found(found));
    format!("{goal}: {rates}{replies}{overstated} (not RFC 8219 compliant)")
}

/// Formats a number of searches: `1 search`, `20 searches`.
pub(crate) fn counted_searches(n: usize) -> String {
    counted(n as u64, "search", "searches")
}

/// Row names of tables with search results, in the form used in papers on DNS64 benchmarking.
pub(crate) const STATISTICS: [&str; 6] = [
    "Median (queries/s)",
    "Minimum (queries/s)",
    "Maximum (queries/s)",
    "Dispersion (%)",
    "[passed, failed)",
    "Searches",
];

/// Returns the table cells of a measurement point, one for each row in [`STATISTICS`].
pub fn statistics(figures: &Figures) -> [String; STATISTICS.len()] {
    let rate = |rate: Option<f64>| match rate {
        Some(rate) => number(rate),
        None if figures.n > 0 => "none passed".into(),
        None => "not measured".into(),
    };
    let dispersion = match figures.dispersion_pct {
        Some(dispersion) => format!("{dispersion:.2}"),
        None if figures.n < 2 => "one search".into(),
        None if figures.refuted_at.is_some() => "median refuted".into(),
        None => without_pass(figures),
    };
    [
        median(figures),
        rate(figures.min),
        rate(figures.max),
        dispersion,
        interval(&figures.interval),
        figures.n.to_string(),
    ]
}

/// Formats the number of searches. For a single search, the text adds that a single search is not a
/// result.
pub fn searches(n: usize) -> String {
    match n {
        0 => "not measured".into(),
        1 => "1 search, which is not a result".into(),
        n => counted_searches(n),
    }
}

/// Formats a ratio of rates with two decimals: `3.12 to 8.21 times`, `at least 18.85 times`. Returns
/// `None` if the ratio does not show which server is faster.
pub fn ratio(ratio: &Ratio) -> Option<String> {
    let Ratio { from, to } = ratio.rounded();
    match (from, to) {
        _ if !ratio.is_decided() => None,
        (Some(from), Some(to)) => Some(format!("{from:.2} to {to:.2} times")),
        (Some(from), None) => Some(format!("at least {from:.2} times")),
        (None, Some(to)) => Some(format!("at most {to:.2} times")),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use method::search::Found;
    use units::Nanos;

    use super::*;

    /// Returns figures of searches, each with its highest passed and its lowest failed rate.
    fn figures(each: &[(Option<u64>, Option<u64>)]) -> Figures {
        let found = |&(highest, failed): &(Option<u64>, Option<u64>)| Found {
            highest: highest.map(Qps),
            failed: failed.map(Qps),
            lower_bound: failed.is_none(),
            unmeasurable: None,
        };
        Figures::of(&each.iter().map(found).collect::<Vec<_>>(), 1.0, Qps(1_000))
    }

    fn plain(text: &str) -> String {
        text.replace('\u{202f}', " ")
    }

    #[test]
    fn intervals_in_words() {
        let words = |from: Option<u64>, to: Option<u64>| {
            let value = |n: Option<u64>| n.map(|n| n as f64);
            let found = Interval { from: value(from), to: value(to) };
            [interval, with_interval].map(|said| plain(&said(&found)))
        };
        assert_eq!(words(Some(22_875), Some(25_312)), ["[22 875, 25 312)", " in [22 875, 25 312)"]);
        assert_eq!(words(Some(66_000), None), ["at least 66 000", " in [66 000, ∞)"]);
        assert_eq!(words(None, Some(1_000)), ["less than 1 000", ", less than 1 000"]);
        assert_eq!(words(None, None), ["not known", ", interval not known"]);
    }

    #[test]
    fn results_in_words_claim_no_more_than_was_measured() {
        let (none, low, open) = ((None, Some(200)), (Some(200), Some(1_200)), (Some(4_000), None));
        let high = (Some(3_050), Some(4_000));
        for (searches, words) in [
            (vec![], "not measured"),
            (vec![low], "[200, 1 200)"),
            (vec![open], "at least 4 000"),
            (vec![none], "1 of 1 search found no passing rate: less than 200"),
            (vec![low, low], "200 in [200, 1 200)"),
            (vec![open, open], "≥ 4 000 in [4 000, ∞)"),
            (vec![low, open], "2 000 in [200, ∞)"),
            (vec![low, none, low], "200 (1 of 3 searches found no passing rate), less than 1 200"),
            (
                vec![low, none, open],
                "200 (1 of 3 searches found no passing rate), interval not known",
            ),
            (vec![none, open, none, high], "2 of 4 searches found no passing rate"),
            (vec![none, low, none, high], "2 of 4 searches found no passing rate: less than 4 000"),
        ] {
            assert_eq!(plain(&found(&figures(&searches))), words);
        }
        let mut refuted = figures(&[open, open]);
        refuted.refute(Qps(4_000), Some(2_000.0));
        assert_eq!(
            plain(&found(&refuted)),
            "refuted by a trial that failed at 4 000: at least 2 000"
        );
        let cells = statistics(&refuted).map(|cell| plain(&cell));
        assert_eq!(cells[1..4], ["4 000", "4 000", "median refuted"]);
        let cells = statistics(&figures(&[none, high])).map(|cell| plain(&cell));
        let missing = "1 of 2 searches found no passing rate";
        assert_eq!(cells, [missing, "none passed", "3 050", missing, "less than 4 000", "2"]);
    }

    #[test]
    fn one_item_is_in_the_singular() {
        let words = |of| shortfall(&Shortfall { rate: Qps(1_000), missing: 1, of });
        assert_eq!(words(1), "1\u{202f}000 queries/s: 1 of 1 query had no valid reply");
        assert_eq!(
            words(2_000),
            "1\u{202f}000 queries/s: 1 of 2\u{202f}000 queries had no valid reply"
        );
        let words = |of| lower_bound(&LowerBound::RangeEnd { searches: 1, of, max: Qps(9_000) });
        assert_eq!(words(1), "1 of 1 search passed at the highest rate, 9\u{202f}000");
        assert_eq!([1, 2].map(searches), ["1 search, which is not a result", "2 searches"]);
    }

    #[test]
    fn goals_with_different_trial_lengths_differ_in_text() {
        let words = |last: u64, exceed_ratio: f64| {
            let whole = Goal::rfc8219(Nanos(60_000_000_000), 0.005);
            let (last, loss_ratio) = (Nanos(last * 1_000_000_000), exceed_ratio / 100.0);
            goal(&Goal { final_duration: last, loss_ratio, exceed_ratio, ..whole })
        };
        assert_eq!(words(60, 0.0), "no query lost in 60 s");
        assert_eq!(words(1, 0.0), "no query lost in 60 s, in trials of 1 s");
        assert_eq!(
            [1, 60].map(|last| words(last, 0.5)),
            [
                "at most 0.5 % lost in all but 50 % of 60 s, in trials of 1 s",
                "at most 0.5 % lost in all but 50 % of 60 s"
            ]
        );
    }

    #[test]
    fn ratios_in_words_only_if_they_decide() {
        let words = |from: Option<f64>, to: Option<f64>| ratio(&Ratio { from, to });
        assert_eq!(words(Some(18.857), None).unwrap(), "at least 18.85 times");
        assert_eq!(words(Some(3.121), Some(8.211)).unwrap(), "3.12 to 8.22 times");
        assert_eq!(words(Some(0.9), Some(1.2)), None);
        assert_eq!(words(None, Some(1.2)), None);
    }
}
