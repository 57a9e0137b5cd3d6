//! The plan in the first line of a journal. This plan applies to all results in the journal, even
//! if `plan.toml` is changed later.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::archive::error::ArchiveError;
use crate::plan::{Plan, plan_diff};
use crate::record::{Entry, VERSION};

/// Returns the path of a run folder's journal.
///
/// # Errors
/// Returns an error if the folder contains no journal, or a journal with a format version other than the current one.
pub(super) fn journal_of(folder: &Path) -> Result<PathBuf, ArchiveError> {
    let path = folder.join("journal.jsonl");
    if !path.is_file() {
        return Err(ArchiveError::NoRun { folder: folder.into() });
    }
    match version_of(&path) {
        Some(version) if version != u64::from(VERSION) => {
            Err(ArchiveError::Version { folder: folder.into(), version })
        }
        _ => Ok(path),
    }
}

/// Returns the format version in a journal's first line, or `None` if that line is not valid.
fn version_of(journal: &Path) -> Option<u64> {
    let mut line = String::new();
    BufReader::new(File::open(journal).ok()?).read_line(&mut line).ok()?;
    let first: serde_json::Value = serde_json::from_str(&line).ok()?;
    // The first line of a version 1 journal contains the plan, but no version.
    let old = first.get("plan").map(|_| 1);
    first.pointer("/begun/version").and_then(serde_json::Value::as_u64).or(old)
}

/// Returns the plan from a journal that has at least one line.
///
/// # Errors
/// Returns an error if the first line contains no plan.
pub(super) fn plan_of(entries: &[Entry], folder: &Path) -> Result<Plan, ArchiveError> {
    match entries.first() {
        Some(Entry::Begun { plan, .. }) => Ok((**plan).clone()),
        _ => Err(ArchiveError::NoPlan { folder: folder.into() }),
    }
}

/// Checks that the plan in the file `path` equals the plan `begun`, which was read from the journal
/// in `folder`.
///
/// # Errors
/// Returns an error if the plan differs, or cannot be read.
pub fn same_plan(begun: &Plan, path: &Path, folder: &Path) -> Result<(), ArchiveError> {
    let keys = plan_diff::differing_keys(begun, &Plan::load(path)?);
    if keys.is_empty() {
        return Ok(());
    }
    let keys = plan_diff::sentence(&keys);
    Err(ArchiveError::OtherPlan { path: path.into(), folder: folder.into(), keys })
}

/// Returns a message if `plan.toml` cannot be read or differs from the plan in the journal;
/// otherwise `None`.
pub fn difference_of(begun: &Plan, folder: &Path) -> Option<String> {
    let path = folder.join("plan.toml");
    let what = match Plan::load(&path) {
        Ok(plan) => {
            let keys = plan_diff::differing_keys(begun, &plan);
            if keys.is_empty() {
                return None;
            }
            format!(
                "{} differs from the plan in the journal, in: {}",
                path.display(),
                plan_diff::sentence(&keys)
            )
        }
        Err(error) => error.to_string(),
    };
    Some(format!("{what}; the results shown were measured with the plan in the journal"))
}
