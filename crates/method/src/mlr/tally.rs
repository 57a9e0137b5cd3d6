//! Classification of a load for one goal, from all trials at that load (RFC 9971, "Load Classification" and
//! "Conditional Throughput").

use crate::records::Counts;
use units::{Nanos, Qps};

use super::goal::Goal;

/// One trial, reduced to the data that a search needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Planned duration of sending queries.
    pub duration: Nanos,
    /// Number of queries without a valid reply.
    pub missing: u64,
    /// Number of queries sent.
    pub of: u64,
}

impl Trial {
    /// Creates a trial from its planned duration and its counts.
    pub fn of(duration: Nanos, counts: &Counts) -> Trial {
        Trial { duration, missing: counts.sent.saturating_sub(counts.valid), of: counts.sent }
    }

    /// Returns the trial loss ratio, from 0 to 1. If no query was sent, the ratio is 1.
    pub fn loss_ratio(&self) -> f64 {
        if self.of == 0 { 1.0 } else { self.missing as f64 / self.of as f64 }
    }
}

/// Result of classifying a load for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadClass {
    /// The load is a lower bound: the DUT meets the goal at this load.
    Lower,
    /// The load is an upper bound: the DUT does not meet the goal at this load.
    Upper,
    /// The trials so far are not sufficient. Further trials can make the load a lower or an upper bound.
    Undecided,
}

/// Total duration, in seconds, of each kind of trial at one load: full-length or short, with low or high loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    full_low: f64,
    full_high: f64,
    short_low: f64,
    short_high: f64,
}

impl Sums {
    fn of(goal: &Goal, trials: &[Trial]) -> Sums {
        let mut sums = Sums::default();
        for trial in trials {
            let is_full = trial.duration >= goal.final_duration;
            let is_high = trial.loss_ratio() > goal.loss_ratio;
            let sum = match (is_full, is_high) {
                (true, false) => &mut sums.full_low,
                (true, true) => &mut sums.full_high,
                (false, false) => &mut sums.short_low,
                (false, true) => &mut sums.short_high,
            };
            *sum += trial.duration.as_secs_f64();
        }
        sums
    }
}

/// Classifies a load for `goal`. All `trials` were run at this load.
///
/// The goal requires trials with a total duration equal to its duration sum. Some of these trials may not have been run
/// yet. The load is a lower bound if the goal would be met even with high loss in all missing trials. It is an upper
/// bound if the goal would be missed even with low loss in all missing trials. Short trials with low loss can balance
/// short trials with high loss, but a lower bound also requires full-length trials.
pub fn classify(goal: &Goal, trials: &[Trial]) -> LoadClass {
    let sums = Sums::of(goal, trials);
    let balancing = sums.short_low * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    let high = sums.full_high + (sums.short_high - balancing).max(0.0);
    let whole = (sums.full_low + high).max(goal.duration_sum.as_secs_f64());
    let may_exceed = whole * goal.exceed_ratio;
    if whole - sums.full_low <= may_exceed {
        LoadClass::Lower
    } else if high > may_exceed {
        LoadClass::Upper
    } else {
        LoadClass::Undecided
    }
}

/// Returns the conditional throughput of a load that is a lower bound, in valid replies per second. The full-length
/// trials are sorted by loss, lowest loss first, and their durations are added up in this order. The result is the rate
/// of valid replies in the trial at which this sum reaches the fraction (1 − exceed ratio) of the total duration. The
/// total duration is that of all full-length trials, or the duration sum that the goal requires, whichever is longer.
/// If it is longer than the trials, all queries in the remaining time count as lost.
pub fn conditional_throughput(goal: &Goal, load: Qps, trials: &[Trial]) -> f64 {
    let full = || trials.iter().filter(|trial| trial.duration >= goal.final_duration);
    let mut by_loss: Vec<(f64, f64)> =
        full().map(|t| (t.loss_ratio(), t.duration.as_secs_f64())).collect();
    by_loss.sort_by(|a, b| a.0.total_cmp(&b.0));
    let length: f64 = by_loss.iter().map(|(_, seconds)| seconds).sum();
    let mut remaining = length.max(goal.duration_sum.as_secs_f64()) * (1.0 - goal.exceed_ratio);
    let mut quantile = None;
    for (loss, seconds) in by_loss {
        if quantile.is_some() && remaining <= 0.0 {
            break;
        }
        quantile = Some(loss);
        remaining -= seconds;
    }
    let loss = if remaining > 0.0 { 1.0 } else { quantile.unwrap_or(1.0) };
    load.0 as f64 * (1.0 - loss)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(loss_ratio: f64, exceed_ratio: f64, last: u64, sum: u64) -> Goal {
        let seconds = |s: u64| Nanos(s * Nanos::SECOND.0);
        let rfc8219 = Goal::rfc8219(seconds(last), 0.005);
        Goal { loss_ratio, exceed_ratio, duration_sum: seconds(sum), ..rfc8219 }
    }

    fn trials(each: &[(u64, u64)]) -> Vec<Trial> {
        each.iter()
            .map(|&(seconds, missing)| Trial {
                duration: Nanos(seconds * 1_000_000_000),
                missing,
                of: 1000,
            })
            .collect()
    }

    #[test]
    fn rfc8219_is_decided_by_one_full_trial_or_any_loss() {
        let goal = goal(0.0, 0.0, 60, 60);
        let class = |each: &[(u64, u64)]| classify(&goal, &trials(each));
        assert_eq!(class(&[]), LoadClass::Undecided);
        assert_eq!(class(&[(60, 0)]), LoadClass::Lower);
        assert_eq!(class(&[(60, 1)]), LoadClass::Upper);
        assert_eq!(class(&[(1, 0), (1, 0)]), LoadClass::Undecided);
        assert_eq!(class(&[(1, 0), (1, 1)]), LoadClass::Upper);
        assert_eq!(
            class(&[(60, 0), (1, 1)]),
            LoadClass::Upper,
            "no share of the time may have loss"
        );
    }

    #[test]
    fn half_of_the_time_may_have_high_loss() {
        // The second goal of RFC 9971's examples: two trials of 60 s, one of which may have high loss.
        let goal = goal(0.0, 0.5, 60, 120);
        let class = |each: &[(u64, u64)]| classify(&goal, &trials(each));
        assert_eq!(class(&[(60, 0)]), LoadClass::Lower, "the other may be bad");
        assert_eq!(class(&[(60, 9)]), LoadClass::Undecided);
        assert_eq!(class(&[(60, 9), (60, 0)]), LoadClass::Lower);
        assert_eq!(class(&[(60, 9), (60, 9)]), LoadClass::Upper);
        assert_eq!(class(&[(60, 9), (1, 9)]), LoadClass::Upper, "a short bad trial tips it");
        assert_eq!(
            class(&[(60, 9), (1, 9), (1, 0)]),
            LoadClass::Undecided,
            "a short good one balances it"
        );
    }

    /// If a quarter of the time may have high loss, three seconds of short trials with low loss balance one second with
    /// high loss.
    #[test]
    fn short_good_trials_balance_by_the_exceed_ratio() {
        let goal = goal(0.0, 0.25, 30, 120);
        let class = |each: &[(u64, u64)]| classify(&goal, &trials(each));
        assert_eq!(class(&[(30, 9), (4, 9), (9, 0)]), LoadClass::Upper);
        assert_eq!(class(&[(30, 9), (4, 9), (12, 0)]), LoadClass::Undecided);
    }

    #[test]
    fn loss_up_to_the_goals_ratio_is_low() {
        let goal = goal(0.005, 0.0, 1, 1);
        assert_eq!(classify(&goal, &trials(&[(1, 5)])), LoadClass::Lower);
        assert_eq!(classify(&goal, &trials(&[(1, 6)])), LoadClass::Upper);
        assert_eq!(Trial { duration: Nanos::SECOND, missing: 0, of: 0 }.loss_ratio(), 1.0);
    }

    #[test]
    fn conditional_throughput_is_the_worst_counted_one() {
        let strict = goal(0.01, 0.0, 1, 1);
        assert_eq!(conditional_throughput(&strict, Qps(1000), &trials(&[(1, 3)])), 997.0);
        let half = goal(0.01, 0.5, 1, 3);
        // 1.5 of the 3 seconds count. The result is that of the second-best trial, in which the 1.5 seconds end.
        assert_eq!(
            conditional_throughput(&half, Qps(1000), &trials(&[(1, 9), (1, 2), (1, 500)])),
            991.0
        );
        // One second was measured. Half a second is missing and counts as lost.
        assert_eq!(conditional_throughput(&half, Qps(1000), &trials(&[(1, 2)])), 0.0);
        assert_eq!(conditional_throughput(&strict, Qps(1000), &[]), 0.0);
    }
}
