//! The plan that a run folder was begun with. The journal's first line holds it, for what the
//! journal holds was measured by it, whatever becomes of `plan.toml`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::archive::{ArchiveError, Entry, VERSION};
use crate::difference;
use crate::plan::Plan;

/// The journal of a run folder.
///
/// # Errors
/// If there is none.
pub(crate) fn journal_of(folder: &Path) -> Result<PathBuf, ArchiveError> {
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

/// The version of a journal by its first line; none where that is no first line of ours, whatever
/// it is.
fn version_of(journal: &Path) -> Option<u64> {
    let mut line = String::new();
    BufReader::new(File::open(journal).ok()?).read_line(&mut line).ok()?;
    let first: serde_json::Value = serde_json::from_str(&line).ok()?;
    // Version 1 began with the plan alone.
    let old = first.get("plan").map(|_| 1);
    first.pointer("/begun/version").and_then(serde_json::Value::as_u64).or(old)
}

/// The plan of a journal that is not empty.
///
/// # Errors
/// If its first line holds none.
pub(crate) fn plan_of(entries: &[Entry], folder: &Path) -> Result<Plan, ArchiveError> {
    match entries.first() {
        Some(Entry::Begun { plan, .. }) => Ok((**plan).clone()),
        _ => Err(ArchiveError::NoPlan { folder: folder.into() }),
    }
}

/// Whether the plan in `path` is the one that a run folder was begun with.
///
/// # Errors
/// If it is another one, or cannot be read.
pub fn same_plan(begun: &Plan, path: &Path, folder: &Path) -> Result<(), ArchiveError> {
    let keys = difference::of_plans(begun, &Plan::load(path)?);
    if keys.is_empty() {
        return Ok(());
    }
    let keys = difference::sentence(&keys);
    Err(ArchiveError::OtherPlan { path: path.into(), folder: folder.into(), keys })
}

/// A sentence on `plan.toml` where it is not the plan that the run was begun with; `None` where it
/// is.
pub fn difference_of(begun: &Plan, folder: &Path) -> Option<String> {
    let path = folder.join("plan.toml");
    let what = match Plan::load(&path) {
        Ok(plan) => {
            let keys = difference::of_plans(begun, &plan);
            if keys.is_empty() {
                return None;
            }
            format!(
                "{} differs from the plan of the journal in: {}",
                path.display(),
                difference::sentence(&keys)
            )
        }
        Err(error) => error.to_string(),
    };
    Some(format!("{what}; what is shown was measured by the plan of the journal"))
}
