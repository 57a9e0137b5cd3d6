//! Progress on standard error. On a terminal the progress is redrawn. Without a terminal, or if `TERM` is `dumb`, a
//! line is printed after a second, then every ten seconds, and at the end. With `--quiet`, nothing is printed. All
//! lines fit 80 columns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use campaign::search::{Forecast, SearchProgress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use tester::measurer::{Progress, TrialError};
use units::Qps;

use crate::colour::has_control_sequences;
use crate::lines::{COLUMNS, cut, plain_spaces};
use crate::output::{grouped, remaining, rounded};
use crate::{interruption, lines, metrics};

/// Interval between two updates of the progress on a terminal.
const LOOK: Duration = Duration::from_millis(200);
/// Output without a terminal: delay before the first line, and interval between further lines.
const FIRST_LINE: Duration = Duration::from_secs(1);
const LINES: Duration = Duration::from_secs(10);
/// Template of the display during a trial: a message and, below it, a progress bar.
const BAR: &str = "{msg}\n{bar:16} {pos}/{len} sent, {prefix}, {eta} left";

/// Runs a trial and shows its progress. An interruption by the user ends the trial early.
pub(crate) fn run_trial(
    plan: &TrialPlan,
    quiet: bool,
    title: &str,
) -> Result<TrialResult, TrialError> {
    let progress = Progress::until(plan, interruption::flag());
    // Number of queries that this tester sends. If the trial is distributed over several testers, this is less than the
    // number of queries in the trial.
    let planned = plan.own_part().count();
    metrics::trial_begins(plan, &progress);
    let bar = ProgressBar::with_draw_target(Some(planned), draw_target());
    bar.set_style(ProgressStyle::with_template(BAR).expect("a constant template"));
    bar.set_prefix(so_far(0, 0, Duration::ZERO));
    let shown = ProgressText { bar, text: Mutex::new(title.to_owned()) };
    let began = Instant::now();
    let counts = |title: &str| {
        let [sent, valid, decided] = [progress.sent(), progress.valid(), progress.decided()];
        let so_far = so_far(valid, decided, began.elapsed());
        shown.bar.set_position(sent);
        shown.bar.set_prefix(so_far.clone());
        format!("{title}: {} of {} sent, {so_far}", grouped(sent), grouped(planned))
    };
    let result = shown.during(quiet, &counts, |_| tester::measurer::run(plan, &progress));
    match &result {
        Ok(trial) => metrics::trial_ended(trial),
        Err(_) => metrics::ended(None, [0; 4]),
    }
    result
}

/// Returns standard error as the target of the progress bar. If progress cannot be redrawn there, returns a target that
/// shows nothing.
fn draw_target() -> ProgressDrawTarget {
    if has_control_sequences(&std::io::stderr()) {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    }
}

/// Formats the percentage and the rate of valid replies: `99.98 % valid, 9 998/s`.
fn so_far(valid: u64, decided: u64, time: Duration) -> String {
    let rate = valid as f64 / time.as_secs_f64().max(1e-3);
    let share = if decided > 0 { lines::percent(valid, decided) } else { "–".into() };
    plain_spaces(&format!("{share} valid, {}/s", grouped(rate as u64)))
}

/// Formats the rate and the mean response time of a running closed loop. The mean response time is the number of
/// queries in flight divided by the rate (Little's law; J. D. C. Little, "A Proof for the Queuing Formula: L = λW",
/// 1961).
pub(crate) fn loop_so_far(valid: u64, outstanding: u64, time: Duration) -> String {
    let rate = valid as f64 / time.as_secs_f64().max(1e-3);
    if rate < 1.0 {
        return "no answer so far".into();
    }
    let mean_ms = outstanding as f64 / rate * 1e3;
    plain_spaces(&format!("{} answers/s, {mean_ms:.2} ms each", grouped(rate as u64)))
}

/// Shows the text `words` while the function `work` runs. The function may change the text.
pub(crate) fn during<T>(quiet: bool, words: &str, work: impl FnOnce(&ProgressText) -> T) -> T {
    during_with(quiet, words, &|| None, work)
}

/// Same as [`during`], but also shows the result of `so_far`, which is called at each update.
pub(crate) fn during_with<T>(
    quiet: bool,
    words: &str,
    so_far: &(dyn Fn() -> Option<String> + Sync),
    work: impl FnOnce(&ProgressText) -> T,
) -> T {
    let bar = ProgressBar::with_draw_target(None, draw_target());
    bar.set_style(
        ProgressStyle::with_template("{wide_msg} {prefix} {elapsed}").expect("a constant template"),
    );
    let shown = ProgressText { bar, text: Mutex::new(words.to_owned()) };
    let began = Instant::now();
    let lines = |words: &str| {
        let so_far = so_far().unwrap_or_default();
        shown.bar.set_prefix(so_far.clone());
        let so_far = if so_far.is_empty() { so_far } else { format!("{so_far}, ") };
        format!("{words}: {so_far}{} s", began.elapsed().as_secs())
    };
    shown.during(quiet, &lines, work)
}

/// Pauses for the duration `time`, or until the user interrupts the program. During the pause, shows its length and the
/// text `next`, which describes the step after the pause.
pub(crate) fn pause(time: Duration, quiet: bool, next: &str) {
    if time < FIRST_LINE {
        return interruption::sleep(time);
    }
    let next = next.replace('\n', ", ");
    during(quiet, &format!("Pause of {}, then {next}", rounded(time)), |_| {
        interruption::sleep(time);
    });
}

/// Formats the state of a search before a trial, in two lines. The first line is for example `trial 7 of about 19 at 1
/// 500 q/s in [1 000, 2 000)`. The second line shows the remaining time, if it can be estimated.
pub(crate) fn title(standing: &SearchProgress) -> String {
    let show = |rate: Option<Qps>| rate.map_or("…".to_owned(), |rate| grouped(rate.0));
    let (passed, failed) = standing.bracket;
    let search = if standing.of > 1 {
        format!(" (search {}/{})", standing.repeat + 1, standing.of)
    } else {
        String::new()
    };
    let bracket = match standing.bracket {
        (None, None) => String::new(),
        _ => format!(" in [{}, {})", show(passed), show(failed)),
    };
    let (number, rate) = (grouped(standing.number), grouped(standing.rate.0));
    let title = match standing.forecast {
        None => format!("trial {number}{search} at {rate} q/s{bracket}"),
        Some(Forecast { trials, left }) => format!(
            "trial {number} of about {}{search} at {rate} q/s{bracket}\nabout {} to go, until {} UTC",
            grouped(trials),
            remaining(left),
            clock(SystemTime::now() + left)
        ),
    };
    plain_spaces(&title)
}

/// Formats a time of day (UTC) as hours and minutes.
fn clock(at: SystemTime) -> String {
    let minutes = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60);
    format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

/// Text and progress bar that are shown while a function runs.
pub(crate) struct ProgressText {
    bar: ProgressBar,
    text: Mutex<String>,
}

impl ProgressText {
    /// Replaces the displayed text.
    pub(crate) fn say(&self, words: &str) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = plain_spaces(words);
    }

    /// Hides the progress bar while the function `write` writes to the terminal.
    pub(crate) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Runs `work` and shows its progress. `line` updates the bar, and returns the line that is printed if there is no
    /// terminal.
    fn during<T>(
        &self,
        quiet: bool,
        line: &(dyn Fn(&str) -> String + Sync),
        work: impl FnOnce(&ProgressText) -> T,
    ) -> T {
        if quiet {
            self.bar.set_draw_target(ProgressDrawTarget::hidden());
            return work(self);
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (over, is_redrawn) = (&over, has_control_sequences(&std::io::stderr()));
            let watcher = scope.spawn(move || self.show(line, is_redrawn, over));
            let _end = ClearGuard(over, watcher.thread().clone());
            work(self)
        })
    }

    fn show(&self, line: &(dyn Fn(&str) -> String + Sync), is_redrawn: bool, over: &AtomicBool) {
        let mut next = Instant::now() + FIRST_LINE;
        let mut printed: Option<String> = None;
        loop {
            let is_over = over.load(Ordering::Relaxed);
            let text = self.text.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let line = line(&text.replace('\n', ", "));
            if is_redrawn {
                let lines: Vec<String> = text.lines().map(|line| cut(line, COLUMNS)).collect();
                self.bar.set_message(lines.join("\n"));
                self.bar.tick();
            } else if Instant::now() >= next
                || (is_over && printed.as_ref().is_some_and(|last| *last != line))
            {
                next += LINES;
                eprintln!("{line}");
                printed = Some(line);
            }
            // Checked after printing, so that the last line has the final counts.
            if is_over {
                break;
            }
            thread::park_timeout(LOOK);
        }
        self.bar.finish_and_clear();
    }
}

/// Guard that removes the progress display when dropped, even if `work` panics. For example, printing panics if
/// standard output is closed (see the module `streams`).
struct ClearGuard<'a>(&'a AtomicBool, Thread);

impl Drop for ClearGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_title_has_state_and_remaining_time() {
        let standing = SearchProgress {
            repeat: 1,
            of: 20,
            rate: Qps(1_500),
            bracket: (Some(Qps(1_000)), Some(Qps(2_000))),
            number: 27,
            forecast: Some(Forecast { trials: 380, left: Duration::from_secs(3_600 + 7) }),
        };
        let text = title(&standing);
        let words = "trial 27 of about 380 (search 2/20) at 1 500 q/s in [1 000, 2 000)\nabout 1h to go, until ";
        assert!(text.starts_with(words) && text.ends_with(" UTC"), "{text}");
        let first = title(&SearchProgress {
            of: 1,
            repeat: 0,
            bracket: (None, None),
            forecast: None,
            ..standing
        });
        assert!(!first.contains("about"), "{first}");
        assert!(!first.contains('[') && !first.contains("search"), "{first}");
        assert_eq!(
            clock(UNIX_EPOCH + Duration::from_secs(86_400 + 19 * 3_600 + 40 * 60 + 59)),
            "19:40"
        );
    }

    #[test]
    fn progress_fits_80_columns() {
        let standing = SearchProgress {
            repeat: 18,
            of: 20,
            rate: Qps(131_072),
            bracket: (Some(Qps(129_024)), Some(Qps(131_072))),
            number: 378,
            forecast: Some(Forecast { trials: 380, left: Duration::from_secs(300_000) }),
        };
        for line in title(&standing).lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
        // The bar of 16 columns, the counts of a trial of 60 s, and the remaining time.
        let bar = format!(
            "{} 7864320/7864320 sent, {}, 59s left",
            "#".repeat(16),
            so_far(7_863_000, 7_864_000, Duration::from_secs(60))
        );
        assert!(
            bar.contains(" 99.98 % valid, 131 050/s, ") && bar.chars().count() <= COLUMNS,
            "{bar}"
        );
    }

    #[test]
    fn a_closed_loop_shows_rate_and_time_of_an_answer() {
        let words = |valid| loop_so_far(valid, 40, Duration::from_secs(2));
        assert_eq!(words(16_000), "8 000 answers/s, 5.00 ms each");
        assert_eq!(words(0), "no answer so far");
    }

    #[test]
    fn panic_removes_the_progress_display() {
        let left = std::panic::catch_unwind(|| {
            during(false, "work", |_| std::panic::resume_unwind(Box::new("gone")))
        });
        assert!(left.is_err());
    }
}
