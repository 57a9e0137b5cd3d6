//! Progress of trials: a bar on a terminal, a line a second elsewhere, nothing with `--quiet`.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use tester::measurer::{Progress, TrialError};

use crate::{interruption, metrics};

/// Carries out a trial and shows how it goes on standard error; ends it before its time when the user wants to stop.
pub(crate) fn run_trial(plan: &TrialPlan, quiet: bool, title: &str) -> Result<TrialResult, TrialError> {
    let progress = Progress::until(plan, interruption::flag());
    metrics::trial_begins(plan.rate, plan.schedule().count(), &progress);
    let result = watched(plan, &progress, quiet, title);
    match &result {
        Ok(trial) => metrics::trial_ended(trial),
        Err(_) => metrics::ended(None, [0; 4]),
    }
    result
}

fn watched(plan: &TrialPlan, progress: &Arc<Progress>, quiet: bool, title: &str) -> Result<TrialResult, TrialError> {
    if quiet {
        return tester::measurer::run(plan, progress);
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            if std::io::stderr().is_terminal() {
                show_bar(plan, progress, title, &over);
            } else {
                show_lines(plan, progress, title, &over);
            }
        });
        let result = tester::measurer::run(plan, progress);
        over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        result
    })
}

fn show_bar(plan: &TrialPlan, progress: &Arc<Progress>, title: &str, over: &AtomicBool) {
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} sent, {prefix} valid, {eta} left")
        .expect("a constant template");
    let bar = ProgressBar::new(plan.schedule().count()).with_style(style).with_message(title.to_owned());
    while !over.load(Ordering::Relaxed) {
        bar.set_position(progress.sent());
        bar.set_prefix(progress.valid().to_string());
        thread::park_timeout(Duration::from_millis(200));
    }
    bar.finish_and_clear();
}

fn show_lines(plan: &TrialPlan, progress: &Arc<Progress>, title: &str, over: &AtomicBool) {
    let mut next = Instant::now() + Duration::from_secs(1);
    while !over.load(Ordering::Relaxed) {
        thread::park_timeout(next.saturating_duration_since(Instant::now()));
        if Instant::now() >= next {
            next += Duration::from_secs(1);
            eprintln!("{title}: {}/{} sent, {} valid", progress.sent(), plan.schedule().count(), progress.valid());
        }
    }
}
