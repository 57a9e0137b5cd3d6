//! `search`: searches for the highest rate that passes, several times, and records the trials in a journal.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use campaign::journal::{Journal, JournalError, Lines, SearchEntry};
use campaign::plan::SearchPlan;
use campaign::search::{Runner, SearchError, SearchProgress, SearchResult};
use hosts::state;
use method::verdict::Verdict;
use tester::measurer::TrialError;
use tester::measurer::liveness;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use units::{Nanos, Qps};

use super::measured_send_cost;
use crate::args::Search;
use crate::lines::wrapped_for;
use crate::output::{
    DUT_FAILED, Failure, INVALID, Outcome, grouped, is_interrupted, print_json, print_search,
};
use crate::progress::{run_trial, title};
use crate::{colour, interruption, metrics, progress};

pub(crate) fn run(args: Search) -> Outcome {
    interruption::install_handlers()?;
    let (json, quiet) = (args.display.json, args.display.quiet);
    let (mut journal, plan, done) = match args.resume {
        Some(path) => Journal::open(&path).map_err(SearchError::from)?,
        None => {
            let new = args.new.resolve(&args.traffic, &args.replies)?;
            let path = args.new.journal.unwrap_or_else(usual_journal);
            (
                Journal::create(&path, &new).map_err(|error| not_begun(error, &path))?,
                new,
                Vec::new(),
            )
        }
    };
    metrics::serve(args.display.metrics, "search", &plan.trial.cpus, quiet)?;
    if !quiet {
        eprintln!(
            "Journal: {0} (a killed search continues with: dns64bench search --resume {0})",
            journal.path().display()
        );
    }
    let plan = SearchPlan {
        trial: TrialPlan { send_cost: measured_send_cost(&plan.trial)?, ..plan.trial },
        ..plan
    };
    let used = UsedNames { first: plan.trial.first_name, count: plan.most_names() };
    let mut terminal = Terminal::new(quiet, args.asking.liveness.then_some(used));
    let found = campaign::search::run(&plan, &mut journal, done, &mut terminal);
    let result = match found {
        Ok(Some(result)) => result,
        Ok(None) => return Err(Failure::usage(anyhow::anyhow!("there was nothing to search"))),
        Err(SearchError::NamesUsedUp { range, found: Some(result) }) => {
            show(&result, json)?;
            return Err(SearchError::NamesUsedUp { range, found: None }.into());
        }
        Err(error) => {
            if json && matches!(error, SearchError::Trial(TrialError::Interrupted)) {
                print_so_far(&plan, journal.path())?;
            }
            return Err(on_failure(error, journal.path()));
        }
    };
    show(&result, json)?;
    Ok(status(&result))
}

fn show(result: &SearchResult, json: bool) -> Result<(), Failure> {
    if json {
        return print_json(result);
    }
    print_search(result);
    Ok(())
}

/// Prints the JSON object of an interrupted search, if at least one trial has ended.
fn print_so_far(plan: &SearchPlan, journal: &Path) -> Result<(), Failure> {
    let done = Lines::read(journal).map_err(SearchError::from)?;
    match campaign::search::interrupted(plan, done)? {
        Some(result) => print_json(&result),
        None => Ok(()),
    }
}

/// Returns the error for a journal that cannot be created. If the file exists, the error contains the command that
/// resumes the search.
fn not_begun(error: JournalError, path: &Path) -> Failure {
    let failure = Failure::from(SearchError::from(error));
    if !path.exists() {
        return failure;
    }
    failure.with_advice(&format!(
        "continue it: dns64bench search --resume {}, or choose another file",
        path.display()
    ))
}

/// Returns the default path of a journal: in the user's state folder or, if there is none, in the current folder. The
/// path contains the process ID, so searches that begin in the same second have different journals.
fn usual_journal() -> PathBuf {
    let name = format!("dns64bench-search-{}-{}.jsonl", unix_seconds(), std::process::id());
    state::state_folder().map_or_else(|_| PathBuf::from(&name), |folder| folder.join(&name))
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Returns the error that ends a search. The error contains the rates that have passed so far, and the command that
/// resumes the search.
fn on_failure(error: SearchError, journal: &Path) -> Failure {
    let entries: Vec<SearchEntry> = Lines::read(journal).unwrap_or_default();
    let has_trial = entries.iter().any(|entry| matches!(entry, SearchEntry::Finished(_)));
    let when = match error {
        SearchError::Trial(TrialError::NoAnswer { .. } | TrialError::NoAnswerToSource { .. }) => {
            "continue when it responds"
        }
        SearchError::Trial(TrialError::WrongReplies { .. }) if has_trial => {
            return Failure::from(error).with_advice(
                "then start a new search; this one has a trial with wrong replies (--liveness false counts it as failed)",
            );
        }
        SearchError::Trial(TrialError::WrongReplies { .. }) => "continue after the change",
        SearchError::Trial(TrialError::Interrupted) => "continue it",
        SearchError::Journal(JournalError::Io { .. }) => "continue when it can be written",
        SearchError::NamesUsedUp { .. } => {
            let so_far = so_far(&entries);
            return Failure::from(error).with_advice(&so_far);
        }
        _ => return error.into(),
    };
    let so_far = so_far(&entries);
    let journal = journal.display();
    Failure::from(error)
        .with_advice(&format!("{so_far}; {when}: dns64bench search --resume {journal}"))
}

/// Describes the highest rate that passed in each search of a journal. Only full-length trials count.
fn so_far(entries: &[SearchEntry]) -> String {
    let mut passed: Vec<(u32, Qps)> = Vec::new();
    let mut full = Nanos(0);
    for entry in entries {
        let finished = match entry {
            SearchEntry::Plan(plan) => {
                full = plan.trial.duration;
                continue;
            }
            SearchEntry::Started(_) => continue,
            SearchEntry::Finished(finished) => finished,
        };
        // A short trial of an MLRsearch does not prove a lower bound.
        let is_full = finished.trial.facts.duration >= full;
        if finished.trial.verdict != Verdict::Passed || !is_full {
            continue;
        }
        match passed.last_mut() {
            Some((repeat, rate)) if *repeat == finished.repeat => {
                *rate = (*rate).max(finished.trial.rate);
            }
            _ => passed.push((finished.repeat, finished.trial.rate)),
        }
    }
    if passed.is_empty() {
        return "no trial has passed".into();
    }
    let each = passed
        .iter()
        .map(|(repeat, rate)| format!("{} queries/s in search {}", grouped(rate.0), repeat + 1));
    format!("so far passed: {}", each.collect::<Vec<_>>().join(", "))
}

fn status(result: &SearchResult) -> ExitCode {
    if result.repeats.iter().any(|found| found.highest.is_none() && found.unmeasurable.is_some()) {
        return INVALID.into();
    }
    if result.repeats.iter().all(|found| found.highest.is_none()) {
        DUT_FAILED.into()
    } else {
        ExitCode::SUCCESS
    }
}

/// Range of names that the trials of a search may use.
#[derive(Clone, Copy)]
pub(crate) struct UsedNames {
    /// Index of the first name that a trial may use. The first name of the block has index 0.
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// Runner that runs trials in this process and shows their progress on standard error. If liveness checks are enabled,
/// a search ends if the server does not respond, or if all replies to the probes have the same fault.
pub(crate) struct Terminal {
    quiet: bool,
    /// Names that the liveness check must not use; `None` if liveness checks are disabled.
    liveness: Option<UsedNames>,
    /// True if the liveness check before the first trial was successful.
    heard: bool,
}

impl Terminal {
    pub(crate) fn new(quiet: bool, liveness: Option<UsedNames>) -> Terminal {
        Terminal { quiet, liveness, heard: false }
    }
}

impl Runner for Terminal {
    fn trial(
        &mut self,
        plan: &TrialPlan,
        standing: SearchProgress,
    ) -> Result<TrialResult, TrialError> {
        if interruption::is_asked() {
            return Err(TrialError::Interrupted);
        }
        metrics::search(metrics::SearchState {
            number: standing.repeat + 1,
            passed: standing.bracket.0,
            failed: standing.bracket.1,
        });
        if let (false, Some(used)) = (self.heard, self.liveness) {
            plan.check()?;
            liveness::require_right(&from_first(plan, used), used.count)?;
            self.heard = true;
        }
        let trial = run_trial(plan, self.quiet, &title(&standing))?;
        if is_interrupted(&trial) {
            // A search uses complete trials only.
            return Err(TrialError::Interrupted);
        }
        if self.liveness.is_some() && trial.counts.valid == 0 {
            liveness::require_reply(plan)?;
        }
        Ok(trial)
    }

    fn first(&mut self, plan: &TrialPlan, trial: &TrialResult) -> Result<(), TrialError> {
        let Some(used) = self.liveness.filter(|_| trial.verdict == Verdict::Failed) else {
            return Ok(());
        };
        match liveness::misconfigured(&from_first(plan, used), used.count, &trial.counts) {
            None => Ok(()),
            Some(replies) => {
                let replies = Box::new(replies);
                Err(TrialError::WrongReplies { server: plan.server, replies })
            }
        }
    }

    fn finished(&mut self, trial: &TrialResult) {
        if !self.quiet {
            let reason = trial.reasons.first().map_or(String::new(), |r| format!(": {r}"));
            let (rate, err) = (grouped(trial.rate.0), std::io::stderr());
            let line = format!("{rate:>9} q/s {}{reason}", colour::verdict(trial.verdict, &err));
            eprintln!("{}", wrapped_for(&line, &err));
        }
    }

    fn pause(&mut self, pause: Duration, next: SearchProgress) {
        progress::pause(pause, self.quiet, &title(&next));
    }
}

/// Returns a copy of `plan` in which the trial begins at a different name: the first name that the search may use.
fn from_first(plan: &TrialPlan, used: UsedNames) -> TrialPlan {
    TrialPlan { first_name: used.first, ..plan.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campaign::journal::Finished;
    use campaign::plan::Method;
    use method::records::Counts;
    use method::search::SearchRange;

    #[test]
    fn short_mlrsearch_trial_is_not_reported_as_passed() {
        let trial = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1));
        let range =
            SearchRange { min: Qps(1), max: Qps(9), resolution: Qps(1), invalid_retries: 0 };
        let plan = SearchPlan {
            trial: trial.clone(),
            range,
            repeat: 1,
            pause: Duration::ZERO,
            reuse_names: false,
            self_test: None,
            method: Method::Bisection,
        };
        let mut journal = vec![SearchEntry::Plan(Box::new(plan))];
        let passed = |rate, duration| {
            let plan = TrialPlan { rate: Qps(rate), duration, ..trial.clone() };
            let counts = Counts { sent: 9, valid: 9, ..Counts::default() };
            let trial = TrialResult::simulated(&plan, counts);
            SearchEntry::Finished(Box::new(Finished { repeat: 0, trial }))
        };
        journal.push(passed(7, Nanos::SECOND));
        assert_eq!(so_far(&journal), "no trial has passed");
        journal.push(passed(3, trial.duration));
        assert_eq!(so_far(&journal), "so far passed: 3 queries/s in search 1");
    }
}
