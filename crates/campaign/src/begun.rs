//! The plan that a run folder was begun with. The journal's first line holds it, for what the journal holds was measured by it,
//! whatever becomes of `plan.toml`.

use std::path::{Path, PathBuf};

use crate::archive::{ArchiveError, Entry};
use crate::difference;
use crate::plan::Plan;

/// The journal of a run folder.
///
/// # Errors
/// If there is none.
pub(crate) fn journal_of(folder: &Path) -> Result<PathBuf, ArchiveError> {
    let path = folder.join("journal.jsonl");
    if path.is_file() { Ok(path) } else { Err(ArchiveError::NoRun { folder: folder.into() }) }
}

/// The plan of a journal that is not empty.
///
/// # Errors
/// If its first line holds none.
pub(crate) fn plan_of(entries: &[Entry], folder: &Path) -> Result<Plan, ArchiveError> {
    match entries.first() {
        Some(Entry::Plan(plan)) => Ok((**plan).clone()),
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

/// A sentence on `plan.toml` where it is not the plan that the run was begun with; `None` where it is.
pub fn difference_of(begun: &Plan, folder: &Path) -> Option<String> {
    let path = folder.join("plan.toml");
    let what = match Plan::load(&path) {
        Ok(plan) => {
            let keys = difference::of_plans(begun, &plan);
            if keys.is_empty() {
                return None;
            }
            format!("{} differs from the plan of the journal in: {}", path.display(), difference::sentence(&keys))
        }
        Err(error) => error.to_string(),
    };
    Some(format!("{what}; what is shown was measured by the plan of the journal"))
}
