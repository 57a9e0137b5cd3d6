//! Progress on standard error: drawn anew on a terminal, a line after a second and then every ten
//! elsewhere, nothing with `--quiet`.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use campaign::search::{Forecast, Standing};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use method::units::Qps;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use tester::measurer::{Progress, TrialError};

use crate::output::{grouped, remaining, rounded};
use crate::{interruption, metrics};

/// Between two looks at what is going on.
const LOOK: Duration = Duration::from_millis(200);
/// When the first line is due where no terminal is, and the time between the others.
const FIRST_LINE: Duration = Duration::from_secs(1);
const LINES: Duration = Duration::from_secs(10);
/// A bar above which the words stand; they are cut to the terminal's width.
const BAR: &str = "{wide_msg}\n{bar:30} {pos}/{len} sent, {prefix} valid, {eta} left";

/// Carries out a trial and shows how it goes; ends it before its time when the user wants to stop.
pub(crate) fn run_trial(
    plan: &TrialPlan,
    quiet: bool,
    title: &str,
) -> Result<TrialResult, TrialError> {
    let progress = Progress::until(plan, interruption::flag());
    // Of a trial that several testers share, what is this one's.
    let planned = plan.own_part().count();
    metrics::trial_begins(plan, &progress);
    let bar = ProgressBar::with_draw_target(Some(planned), ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template(BAR).expect("a constant template"));
    let shown = Shown { bar, text: Mutex::new(title.to_owned()) };
    let counts = |title: &str| {
        let [sent, valid] = [progress.sent(), progress.valid()];
        shown.bar.set_position(sent);
        shown.bar.set_prefix(grouped(valid));
        format!("{title}: {} of {} sent, {} valid", grouped(sent), grouped(planned), grouped(valid))
    };
    let result = shown.during(quiet, &counts, |_| tester::measurer::run(plan, &progress));
    match &result {
        Ok(trial) => metrics::trial_ended(trial),
        Err(_) => metrics::ended(None, [0; 4]),
    }
    result
}

/// Does `work`, during which there are no counts to show but words, which it may change.
pub(crate) fn during<T>(quiet: bool, words: &str, work: impl FnOnce(&Shown) -> T) -> T {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(
        ProgressStyle::with_template("{wide_msg} {elapsed}").expect("a constant template"),
    );
    let shown = Shown { bar, text: Mutex::new(words.to_owned()) };
    let began = Instant::now();
    let lines = |words: &str| format!("{words}: {} s", began.elapsed().as_secs());
    shown.during(quiet, &lines, work)
}

/// Waits for `time`, or until the user wants to stop.
pub(crate) fn pause(time: Duration, quiet: bool, next: &str) {
    if time < FIRST_LINE {
        return interruption::sleep(time);
    }
    during(quiet, &format!("Pause of {}, then {next}", rounded(time)), |_| {
        interruption::sleep(time);
    });
}

/// Where a search stands, before a trial of it: `trial 7 of about 19 at 1 500 q/s in [1 000,
/// 2 000), …`.
pub(crate) fn title(standing: &Standing) -> String {
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
    match standing.forecast {
        None => format!("trial {number}{search} at {rate} q/s{bracket}"),
        Some(Forecast { trials, left }) => format!(
            "trial {number} of about {}{search} at {rate} q/s{bracket}, about {} to go, until {} UTC",
            grouped(trials),
            remaining(left),
            clock(SystemTime::now() + left)
        ),
    }
}

/// Hours and minutes of a moment (UTC).
fn clock(at: SystemTime) -> String {
    let minutes = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60);
    format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

/// What is shown while something goes on.
pub(crate) struct Shown {
    bar: ProgressBar,
    text: Mutex<String>,
}

impl Shown {
    /// From now on it says this.
    pub(crate) fn say(&self, words: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    /// Does something that writes to the terminal too.
    pub(crate) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Does `work` and shows it; `line` makes the line for where no terminal is, and brings the bar
    /// up to date.
    fn during<T>(
        &self,
        quiet: bool,
        line: &(dyn Fn(&str) -> String + Sync),
        work: impl FnOnce(&Shown) -> T,
    ) -> T {
        if quiet {
            self.bar.set_draw_target(ProgressDrawTarget::hidden());
            return work(self);
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (over, is_terminal) = (&over, std::io::stderr().is_terminal());
            let watcher = scope.spawn(move || self.show(line, is_terminal, over));
            let _end = End(over, watcher.thread().clone());
            work(self)
        })
    }

    fn show(&self, line: &(dyn Fn(&str) -> String + Sync), is_terminal: bool, over: &AtomicBool) {
        let mut next = Instant::now() + FIRST_LINE;
        while !over.load(Ordering::Relaxed) {
            let text = self.text.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let line = line(&text);
            if is_terminal {
                self.bar.set_message(text);
                self.bar.tick();
            } else if Instant::now() >= next {
                next += LINES;
                eprintln!("{line}");
            }
            thread::park_timeout(LOOK);
        }
        self.bar.finish_and_clear();
    }
}

/// Ends what is shown, also where `work` is left by a panic: standard output may be gone
/// (`streams`).
struct End<'a>(&'a AtomicBool, Thread);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_says_where_a_search_stands_and_when_it_ends() {
        let standing = Standing {
            repeat: 1,
            of: 20,
            rate: Qps(1_500),
            bracket: (Some(Qps(1_000)), Some(Qps(2_000))),
            number: 27,
            forecast: Some(Forecast { trials: 380, left: Duration::from_secs(3_600 + 7) }),
        };
        let text = title(&standing).replace('\u{202f}', " ");
        let words = "trial 27 of about 380 (search 2/20) at 1 500 q/s in [1 000, 2 000), about 1h to go, until ";
        assert!(text.starts_with(words) && text.ends_with(" UTC"), "{text}");
        let first = title(&Standing {
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
    fn work_that_is_left_by_a_panic_ends_what_is_shown() {
        let left = std::panic::catch_unwind(|| {
            during(false, "work", |_| std::panic::resume_unwind(Box::new("gone")))
        });
        assert!(left.is_err());
    }
}
