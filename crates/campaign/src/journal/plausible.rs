//! Plausibility checks of the trials in a journal. A journal can be edited or damaged, and results
//! must not be computed from impossible numbers.

use method::records::Counts;
use method::verdict::Verdict;
use tester::measurer::result::TrialResult;

use crate::journal::{JournalLine, SearchEntry};
use crate::record::{Entry, Measured, TaskResult};

/// Latest possible end of a trial, seconds since 1970: the end of the year 9999.
const LATEST: f64 = 253_402_300_799.0;
/// Maximum possible number of queries or other packets in a trial. At a million packets per second,
/// a trial of this size would last three years.
const MOST: u64 = 100_000_000_000_000;

impl JournalLine for Entry {
    fn fault(&self, earlier: &[Entry]) -> Option<String> {
        let ours = measured(self)?;
        let (started, length) = span(ours);
        let counted = || fault_of_counts(ours.counts(), ours.verdict());
        fault_of_span(started, length)
            .or_else(|| if ours.checked().is_some() { None } else { counted() })
            .or_else(|| {
                let is_same = |other: &Entry| {
                    measured(other).is_some_and(|other| span(other).0 == started && other == ours)
                };
                same_as(earlier.iter().position(is_same))
            })
    }
}

impl JournalLine for SearchEntry {
    fn fault(&self, earlier: &[SearchEntry]) -> Option<String> {
        let SearchEntry::Finished(finished) = self else { return None };
        let trial = &finished.trial;
        fault_of_trial(trial).or_else(|| {
            let is_same = |other: &SearchEntry| match other {
                SearchEntry::Finished(other) => {
                    other.trial.started_unix_s == trial.started_unix_s && other == finished
                }
                SearchEntry::Plan(_) | SearchEntry::Started(_) => false,
            };
            same_as(earlier.iter().position(is_same))
        })
    }
}

/// Returns the trial that a journal line records (`Finished` or `Repeated`). Returns `None` for other kinds of lines.
fn measured(entry: &Entry) -> Option<&Measured> {
    match entry {
        Entry::Finished(measured) | Entry::Repeated(measured) => Some(measured),
        _ => None,
    }
}

/// Returns the start of a trial, seconds since 1970, and its length in seconds.
pub(crate) fn span(measured: &Measured) -> (f64, f64) {
    match &measured.found {
        TaskResult::Trial(trial) => (trial.started_unix_s, trial.duration_s + trial.timeout_s),
        TaskResult::ClosedLoop(trial) => {
            let length = trial.experiments.experiments_ms.iter().sum::<f64>() / 1e3;
            (trial.experiments.started_unix_s, length)
        }
        TaskResult::Conform(trial) => (trial.started_unix_s, trial.duration_s),
    }
}

fn fault_of_trial(trial: &TrialResult) -> Option<String> {
    fault_of_span(trial.started_unix_s, trial.duration_s + trial.timeout_s)
        .or_else(|| fault_of_counts(&trial.counts, trial.verdict))
}

fn fault_of_span(started: f64, length: f64) -> Option<String> {
    let is_right = started >= 0.0 && length >= 0.0 && started + length <= LATEST;
    (!is_right).then(|| format!("a trial cannot begin at {started:e} s and take {length:e} s"))
}

fn fault_of_counts(counts: &Counts, verdict: Verdict) -> Option<String> {
    let Counts { sent, duplicates, stray, refused, sent_again, .. } = *counts;
    let outcomes = counts.outcomes().filter(|&outcomes| outcomes <= MOST);
    let Some(outcomes) = outcomes else {
        return Some(format!("its outcomes exceed {MOST} queries"));
    };
    if let Some(most) = [sent, duplicates, stray, refused, sent_again].iter().find(|n| **n > MOST) {
        return Some(format!("it counts {most} packets, but a trial has at most {MOST}"));
    }
    // The counts of an invalid trial may be wrong.
    let is_wrong = verdict != Verdict::Invalid && !counts.is_balanced();
    is_wrong.then(|| format!("{sent} queries were sent, but {outcomes} have an outcome"))
}

/// Returns the error text for a line that repeats the trial of an earlier line. `at` is the index of the earlier line.
/// If there is no such line, `at` and the result are `None`.
fn same_as(at: Option<usize>) -> Option<String> {
    at.map(|at| format!("it repeats the trial of line {}", at + 1))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hosts::environment::Environment;

    use crate::archive::{self, Archive};
    use crate::journal::{JournalError, Lines};
    use crate::plan::Plan;
    use crate::runner::simulated::journal_of;

    use super::*;

    /// Creates a run folder with a complete journal, and returns the journal's lines.
    fn run(folder: &Path) -> Vec<String> {
        let text = "name = 'x'\n[trial]\nduration = '2s'\npause = '0s'\n[search]\nmin = 100\nmax = 900\n\
                    resolution = 100\nrepeat = 1\n[measure]\nconform = true\n[measure.closed-loop]\n\
                    threads = [1]\nblocks = 1\n[[dut]]\ndriver = 'unbound'\n";
        let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
        let mut archive = Archive::create(folder, &plan, Environment::for_tests()).unwrap();
        for entry in journal_of(&plan, 500, &[]) {
            archive.append(&entry).unwrap();
        }
        let text = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Writes `lines` into the journal, and returns the error that results when the run folder is
    /// read.
    fn why(folder: &Path, lines: &[String]) -> Option<String> {
        std::fs::write(folder.join("journal.jsonl"), lines.join("\n") + "\n").unwrap();
        archive::read(folder).err().map(|error| error.to_string())
    }

    #[test]
    fn impossible_trials_are_refused_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let lines = run(&folder);
        assert_eq!(why(&folder, &lines), None);
        let mut found = 0;
        for (at, line) in lines.iter().enumerate() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let Some(finished) = value.get("finished") else { continue };
            let kind =
                ["trial", "closed_loop", "conform"].into_iter().find(|k| finished.get(k).is_some());
            let kind = kind.unwrap();
            let mut wrong = vec![
                ("started_unix_s", serde_json::json!(1e300)),
                ("started_unix_s", serde_json::json!(-1.0)),
            ];
            if kind != "conform" {
                let valid = finished[kind]["valid"].as_u64().unwrap();
                wrong.extend([
                    ("sent", serde_json::json!(1u64 << 63)),
                    ("valid", serde_json::json!(u64::MAX)),
                    ("stray", serde_json::json!(u64::MAX)),
                    ("valid", serde_json::json!(valid + 1)),
                ]);
            } else {
                wrong.push(("duration_s", serde_json::json!(-1e300)));
            }
            for (key, bad) in wrong {
                let mut edited = value.clone();
                assert!(edited["finished"][kind].get(key).is_some(), "{kind} {key}");
                edited["finished"][kind][key] = bad.clone();
                let mut lines = lines.clone();
                lines[at] = edited.to_string();
                let why = why(&folder, &lines).unwrap_or_else(|| panic!("{kind} {key} {bad}"));
                let place = format!("journal.jsonl, line {}: ", at + 1);
                assert!(why.contains(&place), "{kind} {key} {bad}: {why}");
                found += 1;
            }
            let mut doubled = lines.clone();
            doubled.insert(at + 1, line.clone());
            let why = why(&folder, &doubled).unwrap();
            assert!(why.contains(&format!("line {}: ", at + 2)), "{why}");
            assert!(why.ends_with(&format!("the trial of line {}", at + 1)), "{why}");
        }
        assert!(found > 20, "{found}");
    }

    #[test]
    fn a_miscounted_trial_is_kept_if_it_is_invalid() {
        let counts = Counts { sent: 3, valid: 1, ..Counts::default() };
        assert_eq!(fault_of_counts(&counts, Verdict::Invalid), None);
        assert!(fault_of_counts(&counts, Verdict::Failed).is_some());
    }

    #[test]
    fn a_doubled_trial_of_a_search_is_refused() {
        let plan =
            tester::measurer::plan::TrialPlan::new("[::1]:53".parse().unwrap(), units::Qps(1_000));
        let counts = Counts { sent: 10, valid: 10, ..Counts::default() };
        let trial = TrialResult::simulated(&plan, counts);
        let line = SearchEntry::Finished(Box::new(crate::journal::Finished { repeat: 0, trial }));
        let text = serde_json::to_string(&line).unwrap() + "\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        std::fs::write(&path, text.repeat(2)).unwrap();
        let error = Lines::read::<SearchEntry>(&path).err().unwrap();
        assert!(matches!(error, JournalError::Line { line: 2, .. }), "{error}");
    }
}
