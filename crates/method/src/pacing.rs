//! Pacing audit: checks that the tester sent the queries on schedule.
//!
//! The windows of 100 ms and of 10 ms are taken from G. Lencse and A. Pivoda, "Checking and Increasing the Accuracy of
//! the Dns64perf++ Measurement Tool for Benchmarking DNS64 Servers" (2018, DOI 10.11601/ijates.v7i1.255), figures 2 to
//! 5.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::reason::Reason;
use crate::schedule::Part;
use units::Nanos;

/// Length of the windows in which a deviation from the schedule can invalidate the trial.
pub(crate) const COARSE_WINDOW: Nanos = Nanos::from_millis(100);
/// Length of the windows in which a deviation from the schedule is only reported.
pub(crate) const FINE_WINDOW: Nanos = Nanos::from_millis(10);

/// Maximum number of periods into which a trial is divided for [`Windows`]. A period consists of whole 100 ms windows.
pub(crate) const MOST_PERIODS: usize = 120;

const FINE_PER_COARSE: usize = (COARSE_WINDOW.0 / FINE_WINDOW.0) as usize;
/// Maximum recorded lateness: one minute; larger values are clamped.
const MAX_LATENESS: u64 = 60 * Nanos::SECOND.0;

/// Adds the counts of the histogram `other` to the histogram `sum`. The two histograms may have different bounds.
/// Values above the maximum of `sum` are clamped.
pub fn add_clamped(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    for step in other.iter_recorded() {
        sum.saturating_record_n(step.value_iterated_to(), step.count_since_last_iteration());
    }
}

fn no_lateness() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENESS, 3)
        .expect("constant bounds that HdrHistogram accepts")
}

/// Limits that the send timing of a valid trial must meet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PacingLimits {
    /// Maximum difference between the number of queries sent in a 100 ms window and the scheduled number, in per cent.
    pub window_100ms_pct: f64,
    /// Maximum permitted value of the 99.9th percentile of lateness.
    pub lateness_p999: Nanos,
    /// Maximum difference between the total number of queries sent and the planned number, in per cent.
    pub total_pct: f64,
}

impl Default for PacingLimits {
    /// Returns the default limits: a difference of 1 % in any 100 ms window and of 0.001 % in the total, and 10 ms for
    /// the 99.9th percentile of lateness.
    fn default() -> Self {
        PacingLimits {
            window_100ms_pct: 1.0,
            lateness_p999: Nanos::from_millis(10),
            total_pct: 0.001,
        }
    }
}

/// Recorder of the send times of one thread pair. It needs four bytes of memory per 10 ms of the trial, and a histogram
/// of fixed size.
#[derive(Clone, Debug, PartialEq)]
pub struct PacingRecorder {
    fine: Vec<u32>,
    lateness: Histogram<u64>,
}

impl PacingRecorder {
    /// Creates a recorder for trials of up to about `duration`. The recorder grows during longer trials.
    pub fn new(duration: Nanos) -> PacingRecorder {
        let windows = (duration.0 / FINE_WINDOW.0 + 2) as usize;
        PacingRecorder { fine: vec![0; windows], lateness: no_lateness() }
    }

    /// Restores a recorder from its data: the number of queries sent in each 10 ms window, and the lateness of the
    /// queries in nanoseconds. Lateness above the maximum is clamped.
    pub fn of(fine: Vec<u32>, lateness: &Histogram<u64>) -> PacingRecorder {
        let mut ours = no_lateness();
        add_clamped(&mut ours, lateness);
        PacingRecorder { fine, lateness: ours }
    }

    /// Returns the number of queries sent in each 10 ms window since the trial's start.
    pub fn sent_per_10ms(&self) -> &[u32] {
        &self.fine
    }

    /// Returns the lateness of the queries in nanoseconds.
    pub fn lateness(&self) -> &Histogram<u64> {
        &self.lateness
    }

    /// Records that a query scheduled for `scheduled` was sent at `sent`. Both times are relative to the trial's start.
    #[inline]
    pub fn record(&mut self, scheduled: Nanos, sent: Nanos) {
        let window = (sent.0 / FINE_WINDOW.0) as usize;
        if window >= self.fine.len() {
            self.fine.resize(window + 1, 0);
        }
        self.fine[window] += 1;
        self.lateness.saturating_record(sent.since(scheduled).0);
    }

    /// Adds the data recorded by a second pair of threads (sender and receiver) to this recorder.
    pub fn merge(&mut self, other: &PacingRecorder) {
        self.fine.resize(self.fine.len().max(other.fine.len()), 0);
        for (sum, n) in self.fine.iter_mut().zip(&other.fine) {
            *sum += n;
        }
        self.lateness.add(&other.lateness).expect("equal bounds");
    }

    /// Returns the number of queries sent in each 100 ms window, and the number sent in each 10 ms window.
    fn sent(&self) -> (Vec<u64>, Vec<u64>) {
        let fine: Vec<u64> = self.fine.iter().map(|&n| u64::from(n)).collect();
        (fine.chunks(FINE_PER_COARSE).map(|chunk| chunk.iter().sum()).collect(), fine)
    }

    /// Returns the deviation of each window from the schedule. `part` is the schedule of all queries that this recorder
    /// should contain.
    pub fn windows(&self, part: &Part) -> Windows {
        let (coarse, fine) = self.sent();
        Windows::of(part, &coarse, &fine)
    }

    /// Compares the send times with the schedule. `part` is the schedule of all queries that this recorder should
    /// contain.
    pub fn audit(&self, part: &Part) -> Pacing {
        let us = |quantile: f64| self.lateness.value_at_quantile(quantile) as f64 / 1000.0;
        let (coarse, fine) = self.sent();
        Pacing {
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: if self.lateness.is_empty() {
                0.0
            } else {
                self.lateness.max() as f64 / 1000.0
            },
            window_100ms_worst_pct: worst_window(part, &coarse, COARSE_WINDOW),
            window_10ms_worst_pct: worst_window(part, &fine, FINE_WINDOW),
        }
    }
}

/// Returns, for each window, the number of queries due, and the number sent minus the number due. The last window is
/// the one in which the last query is due.
fn deviations(part: &Part, sent: &[u64], window: Nanos) -> impl Iterator<Item = (u64, i64)> {
    (0..part.end().0 / window.0 + 1).map(move |w| {
        let due = part.due_before(Nanos((w + 1) * window.0)) - part.due_before(Nanos(w * window.0));
        let sent = sent.get(w as usize).copied().unwrap_or(0);
        (due, sent as i64 - due as i64)
    })
}

/// Returns the largest relative deviation of any window from the schedule, in per cent.
///
/// A deviation of one query is always allowed: a query due a microsecond before a window's end may rightly be sent in
/// the next window. Windows in which no query is due are ignored. A delay at the end of a trial is still detected,
/// because the delayed queries are missing in the windows in which they were due.
fn worst_window(part: &Part, sent: &[u64], window: Nanos) -> f64 {
    deviations(part, sent, window)
        .filter(|(due, _)| *due > 0)
        .map(|(due, off)| off.unsigned_abs().saturating_sub(1) as f64 / due as f64 * 100.0)
        .fold(0.0, f64::max)
}

/// Number of queries sent minus the number of queries due, in the time windows of a trial. The difference is negative
/// if too few queries were sent.
///
/// The trial is divided into at most 120 periods of equal length, each of one or more 100 ms windows. For each
/// period, the lowest and the highest value of this difference in any window are stored. Stalls and bursts are
/// therefore not averaged away even in a long trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Windows {
    /// Length in milliseconds of each period into which the trial is divided; a multiple of 100.
    pub stretch_ms: u64,
    /// For each period, the lowest value of "sent minus due" in any of its 100 ms windows.
    pub least_100ms: Vec<i32>,
    /// For each period, the highest value of "sent minus due" in any of its 100 ms windows. If a period consists of a
    /// single window, its values in `most_100ms` and `least_100ms` are equal.
    pub most_100ms: Vec<i32>,
    /// For each period, the lowest value of "sent minus due" in any of its 10 ms windows.
    pub least_10ms: Vec<i32>,
    /// For each period, the highest value of "sent minus due" in any of its 10 ms windows.
    pub most_10ms: Vec<i32>,
}

impl Windows {
    fn of(part: &Part, coarse: &[u64], fine: &[u64]) -> Windows {
        let off = |sent: &[u64], window: Nanos| -> Vec<i32> {
            let clamped = |off: i64| off.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            deviations(part, sent, window).map(|(_, off)| clamped(off)).collect()
        };
        let (coarse, fine) = (off(coarse, COARSE_WINDOW), off(fine, FINE_WINDOW));
        let per_stretch = coarse.len().div_ceil(MOST_PERIODS).max(1);
        let least =
            |all: &[i32], n: usize| all.chunks(n).filter_map(|c| c.iter().min().copied()).collect();
        let most =
            |all: &[i32], n: usize| all.chunks(n).filter_map(|c| c.iter().max().copied()).collect();
        Windows {
            stretch_ms: per_stretch as u64 * COARSE_WINDOW.0 / 1_000_000,
            least_100ms: least(&coarse, per_stretch),
            most_100ms: most(&coarse, per_stretch),
            least_10ms: least(&fine, per_stretch * FINE_PER_COARSE),
            most_10ms: most(&fine, per_stretch * FINE_PER_COARSE),
        }
    }
}

/// Result of a trial's pacing audit. Lateness is the actual send time minus the scheduled send time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Pacing {
    /// Median lateness, in µs.
    pub p50_us: f64,
    /// 99th percentile of lateness, in µs.
    pub p99_us: f64,
    /// 99.9th percentile of lateness, in µs.
    pub p999_us: f64,
    /// Maximum lateness, in µs.
    pub max_us: f64,
    /// Largest deviation of any 100 ms window from the schedule, in per cent of the queries due in that window. A
    /// deviation of one query is ignored.
    pub window_100ms_worst_pct: f64,
    /// Largest deviation of any 10 ms window from the schedule, computed in the same way as for the 100 ms windows.
    pub window_10ms_worst_pct: f64,
}

impl Pacing {
    /// Returns the violated limits, or an empty list if all limits were met. `planned` and `sent` are numbers of
    /// queries.
    pub(crate) fn violations(&self, limits: &PacingLimits, planned: u64, sent: u64) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if self.window_100ms_worst_pct > limits.window_100ms_pct {
            let (worst_pct, limit_pct) = (self.window_100ms_worst_pct, limits.window_100ms_pct);
            reasons.push(Reason::WindowOff { worst_pct, limit_pct });
        }
        if self.p999_us > limits.lateness_p999.0 as f64 / 1e3 {
            reasons.push(Reason::Late { p999_us: self.p999_us, limit: limits.lateness_p999 });
        }
        if sent.abs_diff(planned) as f64 > planned as f64 * limits.total_pct / 100.0 {
            reasons.push(Reason::TotalOff { sent, planned, limit_pct: limits.total_pct });
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;
    use units::{Qps, QueryIndex};

    fn audit(schedule: Schedule, sent_at: impl Fn(u64, Nanos) -> Nanos) -> Pacing {
        let mut recorder = PacingRecorder::new(Nanos::SECOND);
        for i in 0..schedule.count() {
            let due = schedule.deadline(QueryIndex(i));
            recorder.record(due, sent_at(i, due));
        }
        recorder.audit(&schedule.whole())
    }

    #[test]
    fn exact_sending_is_clean() {
        let schedule = Schedule::new(Qps(50_000), Nanos::SECOND);
        let pacing = audit(schedule, |_, due| due);
        assert_eq!(
            (pacing.window_100ms_worst_pct, pacing.window_10ms_worst_pct, pacing.max_us),
            (0.0, 0.0, 0.0)
        );
        assert_eq!(pacing.violations(&PacingLimits::default(), 50_000, 50_000), []);
    }

    #[test]
    fn spread_lag_of_the_original_timing_is_caught() {
        // 90 ns too much per query at 250 000/s: 24 450 instead of 25 000 queries per 100 ms (Table I of the paper by
        // Lencse and Pivoda).
        let schedule = Schedule::new(Qps(250_000), Nanos::SECOND);
        let pacing = audit(schedule, |i, _| Nanos(i * 4090));
        assert!((pacing.window_100ms_worst_pct - 2.2).abs() < 0.1, "{pacing:?}");
        let reasons = pacing.violations(&PacingLimits::default(), 250_000, 250_000);
        assert_eq!(reasons.len(), 2, "{reasons:?}");
    }

    #[test]
    fn a_stall_is_seen_in_both_windows() {
        // Nothing is sent for 5 ms, then all overdue queries at once.
        let schedule = Schedule::new(Qps(10_000), Nanos::SECOND);
        let stall = Nanos::from_millis(295)..Nanos::from_millis(302);
        let pacing = audit(schedule, |_, due| if stall.contains(&due) { stall.end } else { due });
        assert!((pacing.window_100ms_worst_pct - 4.9).abs() < 0.2, "{pacing:?}");
        assert!((pacing.window_10ms_worst_pct - 49.0).abs() < 2.0, "{pacing:?}");
        assert!(pacing.max_us >= 6_900.0, "{pacing:?}");
    }

    #[test]
    fn windows_keep_every_extreme_whatever_the_length() {
        // 60 s: a period is five windows. Nothing is sent from 30.005 s to 30.015 s, then all overdue queries at once.
        for (seconds, stretch_ms, stretches) in [(60, 500, 120), (2, 100, 20), (13, 200, 65)] {
            let schedule = Schedule::new(Qps(1_000), Nanos(seconds * Nanos::SECOND.0));
            let mut recorder = PacingRecorder::new(Nanos::SECOND);
            let from = Nanos((seconds * 1000 / 2 + 5) * 1_000_000);
            let stall = from..Nanos(from.0 + 10_000_000);
            for i in 0..schedule.count() {
                let due = schedule.deadline(QueryIndex(i));
                recorder.record(due, if stall.contains(&due) { stall.end } else { due });
            }
            let windows = recorder.windows(&schedule.whole());
            assert_eq!(
                (windows.stretch_ms, windows.least_10ms.len()),
                (stretch_ms, stretches),
                "{seconds} s"
            );
            let (least, most) = (windows.least_10ms.iter().min(), windows.most_10ms.iter().max());
            assert_eq!((least, most), (Some(&-5), Some(&5)), "{seconds} s");
            assert!(
                windows.least_100ms.iter().chain(&windows.most_100ms).all(|&off| off == 0),
                "{windows:?}"
            );
            assert_eq!(windows.most_10ms.iter().filter(|&&off| off != 0).count(), 1, "{seconds} s");
            for each in [&windows.least_100ms, &windows.most_100ms, &windows.most_10ms] {
                assert_eq!(each.len(), stretches, "{seconds} s");
            }
        }
    }

    #[test]
    fn parts_and_their_sum_are_audited() {
        let schedule = Schedule::new(Qps(1_000), Nanos::SECOND);
        // The second of three parts is complete but is sent 30 ms late.
        let recorded = |number| {
            let (part, mut recorder) =
                (schedule.part(number, 3), PacingRecorder::new(Nanos::SECOND));
            for k in 0..part.count() {
                let due = schedule.deadline(part.index(k));
                recorder.record(due, due + Nanos::from_millis(30 * number % 60));
            }
            (part, recorder)
        };
        let [clean, late, clean_too] = [0, 1, 2].map(recorded);
        for (part, recorder) in [&clean, &clean_too] {
            assert_eq!(recorder.audit(part).window_100ms_worst_pct, 0.0);
        }
        assert!(late.1.audit(&late.0).window_100ms_worst_pct > 20.0);
        let mut sum = clean.1;
        sum.merge(&late.1);
        sum.merge(&clean_too.1);
        let together = sum.audit(&schedule.whole());
        assert!((together.window_100ms_worst_pct - 9.0).abs() < 1.0, "{together:?}");
        let read = PacingRecorder::of(sum.sent_per_10ms().to_vec(), sum.lateness());
        assert_eq!(read, sum);
    }

    #[test]
    fn the_last_window_counts() {
        // Half of the queries due in the last 100 ms are sent after the end.
        let schedule = Schedule::new(Qps(1_000), Nanos::SECOND);
        let half = Nanos::from_millis(950);
        let pacing =
            audit(schedule, |_, due| if due < half { due } else { Nanos::from_millis(1_010) });
        assert!((pacing.window_100ms_worst_pct - 49.0).abs() < 1.5, "{pacing:?}");
        assert!((pacing.window_10ms_worst_pct - 90.0).abs() < 1.5, "{pacing:?}");
    }

    #[test]
    fn windows_in_which_nothing_is_due_do_not_count() {
        // Ten queries per second: three are sent together in a window in which no query is due.
        let schedule = Schedule::new(Qps(10), Nanos::SECOND);
        let pacing =
            audit(
                schedule,
                |i, due| {
                    if (3..6).contains(&i) { Nanos::from_millis(575) } else { due }
                },
            );
        assert_eq!(pacing.window_10ms_worst_pct, 0.0, "one query is allowed for in each");
    }

    #[test]
    fn on_its_limit_a_trial_is_clean() {
        let limits = PacingLimits::default();
        let pacing = Pacing {
            window_100ms_worst_pct: limits.window_100ms_pct,
            p999_us: limits.lateness_p999.0 as f64 / 1e3,
            ..Pacing::default()
        };
        assert_eq!(pacing.violations(&limits, 100_000, 99_999), []);
        let late = Pacing { p999_us: pacing.p999_us + 0.1, ..pacing };
        assert_eq!(late.violations(&limits, 100_000, 100_000).len(), 1);
    }

    #[test]
    fn lateness_is_in_microseconds() {
        // 1 % of the queries are sent 8 ms late, the others 2 ms.
        let schedule = Schedule::new(Qps(1_000), Nanos::SECOND);
        let pacing =
            audit(schedule, |i, due| due + Nanos::from_millis(if i % 100 == 50 { 8 } else { 2 }));
        let found = [pacing.p50_us, pacing.p99_us, pacing.p999_us, pacing.max_us];
        for (found, wanted) in found.iter().zip([2_000.0, 2_000.0, 8_000.0, 8_000.0]) {
            assert!((found / wanted - 1.0_f64).abs() < 0.002, "{pacing:?}");
        }
        let limits = |limit| PacingLimits {
            lateness_p999: Nanos::from_millis(limit),
            window_100ms_pct: 100.0,
            ..PacingLimits::default()
        };
        assert_eq!(pacing.violations(&limits(9), 1_000, 1_000), []);
        assert_eq!(pacing.violations(&limits(7), 1_000, 1_000).len(), 1);
    }

    #[test]
    fn recorders_of_any_length_are_added_up() {
        let second = Schedule::new(Qps(1_000), Nanos::SECOND);
        let of = |late: Nanos| {
            let mut recorder = PacingRecorder::new(Nanos::SECOND);
            for i in 0..second.count() {
                let due = second.deadline(QueryIndex(i));
                recorder.record(due, due + late);
            }
            recorder
        };
        // The second recorder ends half a minute after the first.
        let half_a_minute = Nanos(30 * Nanos::SECOND.0);
        let (short, long) = (of(Nanos(0)), of(half_a_minute));
        for (mut sum, other) in [(short.clone(), &long), (long.clone(), &short)] {
            sum.merge(other);
            let sent = sum.sent_per_10ms();
            assert_eq!((sent.len(), sent.iter().sum::<u32>()), (long.sent_per_10ms().len(), 2_000));
            assert_eq!((sent[0], sent[3_099]), (10, 10));
            let latest = sum.lateness().max();
            assert!(latest.abs_diff(half_a_minute.0) < half_a_minute.0 / 500, "{latest}");
        }
    }

    #[test]
    fn one_query_across_a_boundary_is_allowed_at_low_rates() {
        let schedule = Schedule::new(Qps(20), Nanos::SECOND);
        let pacing = audit(schedule, |i, due| if i == 1 { Nanos::from_millis(101) } else { due });
        assert_eq!(pacing.window_100ms_worst_pct, 0.0);
    }

    #[test]
    fn missing_queries_break_the_total() {
        let limits = PacingLimits::default();
        assert_eq!(Pacing::default().violations(&limits, 100_000, 99_999).len(), 0);
        assert_eq!(Pacing::default().violations(&limits, 100_000, 99_998).len(), 1);
    }
}
