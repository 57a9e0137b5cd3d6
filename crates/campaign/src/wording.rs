//! Rates in words, the same ones everywhere: an interval says what was proven, and no digit goes
//! beyond the resolution.

use method::mlr::goal::Goal;
use method::precision::{Figures, Interval, Ratio, rounded_down, rounded_up};
use method::search::Shortfall;
use method::set::LowerBound;
use method::units::{Qps, counted, grouped};

use crate::report::chart::{AT_LEAST, number};
use crate::search::GoalFigures;

/// `66 000 queries/s failed by 3 of 3 960 000 queries`.
pub fn shortfall(shortfall: &Shortfall) -> String {
    let Shortfall { rate, missing, of } = *shortfall;
    let of = counted(of, "query", "queries");
    format!("{} queries/s failed by {} of {of}", grouped(rate.0), grouped(missing))
}

/// `[22 000, 25 000)`, `less than 1 000`, `at least 66 000`; queries per second.
pub fn interval(interval: &Interval, resolution: Qps) -> String {
    let from = interval.from.map(|from| number(rounded_down(from, resolution) as f64));
    let to = interval.to.map(|to| number(rounded_up(to, resolution) as f64));
    match (from, to) {
        (Some(from), Some(to)) => format!("[{from}, {to})"),
        (Some(from), None) => format!("at least {from}"),
        (None, Some(to)) => format!("less than {to}"),
        (None, None) => "not known".into(),
    }
}

/// As [`interval`], but in brackets in any case, for what follows "in": `[66 000, ∞)`, `[0, 1 000)`.
pub fn range(interval: &Interval, resolution: Qps) -> String {
    let from = number(rounded_down(interval.from.unwrap_or(0.0), resolution) as f64);
    let to = interval.to.map(|to| number(rounded_up(to, resolution) as f64));
    format!("[{from}, {})", to.as_deref().unwrap_or("∞"))
}

/// The median of the rates that passed, without digits beyond the resolution; `less than …` where
/// the median search passed nowhere.
pub fn median(figures: &Figures, resolution: Qps) -> String {
    match figures.median {
        None => "not measured".into(),
        Some(median) if median > 0.0 => number(rounded_down(median, resolution) as f64),
        Some(_) => interval(&Interval { from: None, to: figures.interval.to }, resolution),
    }
}

/// Why the DUT may do more than the median.
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
        LowerBound::SelfTest { allowed } => {
            format!(
                "the self-test vouches for the tester up to {} queries/s only",
                number(allowed.0 as f64)
            )
        }
    }
}

/// As [`lower_bound`], of all reasons.
pub fn lower_bounds(reasons: &[LowerBound]) -> Vec<String> {
    reasons.iter().map(lower_bound).collect()
}

/// What a goal of an MLRsearch asks for: `at most 0.5 % lost in all but 50 % of 21 s, in trials of
/// 1 s`. The length of the trials that decide is left out where one of them is the whole sum.
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

/// What an MLRsearch found for a goal: `20 050 queries/s in [20 050, 20 110)`.
pub(crate) fn goal_found(found: &GoalFigures) -> String {
    let GoalFigures { figures, resolution, .. } = found;
    if figures.n == 0 {
        return "not measured".into();
    }
    let bound = if found.lower_bound_reasons.is_empty() { "" } else { AT_LEAST };
    let (median, range) = (median(figures, *resolution), range(&figures.interval, *resolution));
    format!("{bound}{median} queries/s in {range}")
}

/// The valid replies per second at the load of a goal, of the search that had the fewest: RFC 9971's
/// conditional throughput.
pub(crate) fn conditional_throughput(found: &GoalFigures) -> Option<String> {
    let of = found.searches.iter().filter_map(|search| search.conditional_throughput);
    of.reduce(f64::min).map(|rate| number(rate.floor()))
}

/// What an MLRsearch found for a goal beside that of RFC 8219, in a line: `at most 0.5 % lost in all
/// but 50 % of 21 s: 20 050 queries/s in [20 050, 20 110), 19 950 replies/s at the least`.
pub fn goal_line(found: &GoalFigures) -> String {
    let replies = conditional_throughput(found)
        .map_or(String::new(), |rate| format!(", {rate} replies/s at the least"));
    let overstated = match found.overstatement > 1.0 {
        true => {
            format!(", short trials may overstate by a factor of up to {:.3}", found.overstatement)
        }
        false => String::new(),
    };
    let (goal, rates) = (goal(&found.goal), goal_found(found));
    format!("{goal}: {rates}{replies}{overstated} (not RFC 8219 compliant)")
}

/// `1 search`, `20 searches`.
pub(crate) fn counted_searches(n: usize) -> String {
    counted(n as u64, "search", "searches")
}

/// The rows of tables in the form of the papers.
pub(crate) const STATISTICS: [&str; 6] = [
    "Median (queries/s)",
    "Minimum (queries/s)",
    "Maximum (queries/s)",
    "Dispersion (%)",
    "[passed, failed)",
    "Searches",
];

/// The cells of a point for [`STATISTICS`].
pub fn statistics(figures: &Figures, resolution: Qps) -> [String; STATISTICS.len()] {
    let rate = |rate: Option<f64>| match rate {
        Some(rate) if rate > 0.0 => number(rounded_down(rate, resolution) as f64),
        Some(_) => "none passed".into(),
        None => "not measured".into(),
    };
    let dispersion = match figures.dispersion_pct {
        Some(dispersion) => format!("{dispersion:.2}"),
        None if figures.n < 2 => "one search".into(),
        None => "median is 0".into(),
    };
    [
        median(figures, resolution),
        rate(figures.min),
        rate(figures.max),
        dispersion,
        interval(&figures.interval, resolution),
        figures.n.to_string(),
    ]
}

/// How much a result of so many searches is worth: one is a look, not a result.
pub fn searches(n: usize) -> String {
    match n {
        0 => "not measured".into(),
        1 => "one look (1 search)".into(),
        n => counted_searches(n),
    }
}

/// How many times as fast, with two significant digits: `3.1 to 8.2 times`, `at least 18 times`;
/// `None` if the ratio does not say who is faster.
pub fn ratio(ratio: &Ratio) -> Option<String> {
    let digits = |value: f64, up: bool| {
        let step = 10f64.powi(value.log10().floor() as i32 - 1);
        let steps = value / step;
        number((if up { steps.ceil() } else { steps.floor() }) * step)
    };
    match (ratio.from, ratio.to) {
        _ if !ratio.is_decided() => None,
        (Some(from), Some(to)) => {
            Some(format!("{} to {} times", digits(from, false), digits(to, true)))
        }
        (Some(from), None) => Some(format!("at least {} times", digits(from, false))),
        (None, Some(to)) => Some(format!("at most {} times", digits(to, true))),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use method::units::Nanos;

    use super::*;

    #[test]
    fn intervals_in_words() {
        let words = |from: Option<u64>, to: Option<u64>| {
            let value = |n: Option<u64>| n.map(|n| n as f64);
            let found = Interval { from: value(from), to: value(to) };
            [interval, range].map(|said| said(&found, Qps(3_000)).replace('\u{202f}', " "))
        };
        assert_eq!(words(Some(22_875), Some(25_312)), ["[22 000, 26 000)"; 2]);
        assert_eq!(words(Some(66_000), None), ["at least 66 000", "[66 000, ∞)"]);
        assert_eq!(words(None, Some(1_000)), ["less than 1 000", "[0, 1 000)"]);
    }

    #[test]
    fn what_is_one_is_in_the_singular() {
        let words = |of| shortfall(&Shortfall { rate: Qps(1_000), missing: 1, of });
        assert_eq!(words(1), "1\u{202f}000 queries/s failed by 1 of 1 query");
        assert_eq!(words(2_000), "1\u{202f}000 queries/s failed by 1 of 2\u{202f}000 queries");
        let words = |of| lower_bound(&LowerBound::RangeEnd { searches: 1, of, max: Qps(9_000) });
        assert_eq!(words(1), "1 of 1 search passed at the highest rate, 9\u{202f}000");
        assert_eq!([1, 2].map(searches), ["one look (1 search)", "2 searches"]);
    }

    #[test]
    fn goals_that_differ_only_in_the_length_of_their_trials_are_told_apart() {
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
        assert_eq!(words(Some(18.857), None).unwrap(), "at least 18 times");
        assert_eq!(words(Some(3.12), Some(8.21)).unwrap(), "3.1 to 8.3 times");
        assert_eq!(words(Some(0.9), Some(1.2)), None);
        assert_eq!(words(None, Some(1.2)), None);
    }
}
