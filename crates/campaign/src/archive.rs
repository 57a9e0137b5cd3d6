//! The run folder: all inputs and results of a campaign, and the state that is needed to resume a
//! killed campaign.
//!
//! ```text
//! plan.toml           the plan at the start of the run
//! environment.json    the facts reported by `check`
//! id                  identifies this run's folders on other hosts
//! journal.jsonl       version and plan, then a line before and a line after every trial, each synced to disk
//! records/            a record of every query, in one file per trial; only if the plan sets `records`
//! servers/            configurations and logs of the DUTs, a folder per start
//! governors           original CPU frequency governors; exists while a point uses other governors
//! lab                 present if this run created the lab and will remove it
//! trial.plan.json     plan of the current or last trial, in the format that `measure --plan` reads
//! trial.json          result of the current or last trial; trial.log is its log
//! running/            ids of running processes, which the next run ends if this run and its agents are killed
//! results.json        computed from the journal at the end of the run, and by `report`
//! ```

mod error;
pub mod journal_header;

use std::fs;
use std::io::{self};
use std::path::{Path, PathBuf};

use hosts::environment::Environment;
use hosts::new_file::{FileError, write_json, write_whole};
use serde::Serialize;

use crate::archive::journal_header::{journal_of, plan_of, same_plan};
use crate::journal::Lines;
use crate::plan::Plan;
use crate::record::{Entry, VERSION};

pub use error::ArchiveError;

/// Returns `path` in a form that no program parses as an option: if the path begins with `-`, the
/// result begins with `./-`.
fn as_operand(path: &Path) -> PathBuf {
    let is_like_option = path.as_os_str().as_encoded_bytes().starts_with(b"-");
    if is_like_option { Path::new(".").join(path) } else { path.into() }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let error = FileError::of(doing, path);
    move |source| error(source).into()
}

/// A run folder open for writing.
pub struct Archive {
    folder: PathBuf,
    journal: Lines,
}

impl Archive {
    /// Creates a run folder that contains the plan `plan` and the facts about this machine. The folder must not exist.
    ///
    /// # Errors
    /// Returns an error if the folder exists, or cannot be written.
    pub fn create(
        folder: &Path,
        plan: &Plan,
        environment: &Environment,
    ) -> Result<Archive, ArchiveError> {
        let folder = &as_operand(folder);
        fs::create_dir(folder).map_err(io_error("create", folder))?;
        for name in ["servers", "running"] {
            let path = folder.join(name);
            fs::create_dir(&path).map_err(io_error("create", &path))?;
        }
        let path = folder.join("id");
        let id = tempfile::Builder::new()
            .prefix("")
            .make(|_| Ok(()))
            .map_err(io_error("create an id for", &path))?;
        let id = id
            .path()
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        write_whole(&path, id.as_bytes())?;
        let text = toml::to_string(plan)
            .map_err(|e| io_error("write the plan into", folder)(io::Error::other(e)))?;
        write_whole(&folder.join("plan.toml"), text.as_bytes())?;
        let environment = VersionedEnvironment { schema_version: VERSION, environment };
        write_json(&folder.join("environment.json"), &environment)?;
        let mut journal = Lines::create(&folder.join("journal.jsonl"))?;
        journal.append(&Entry::begun(plan))?;
        Ok(Archive { folder: folder.clone(), journal })
    }

    /// Opens a run folder to resume its campaign, and returns the plan and the entries of the
    /// journal.
    ///
    /// # Errors
    /// Returns an error if `folder` is not a run folder, is in use, or has a `plan.toml` that differs from the plan in
    /// its journal.
    pub fn open(folder: &Path) -> Result<(Archive, Plan, Vec<Entry>), ArchiveError> {
        let folder = &as_operand(folder);
        let path = journal_of(folder)?;
        let file = folder.join("plan.toml");
        let (mut journal, entries) = Lines::open(&path)?;
        if entries.is_empty() {
            // The campaign was killed before it wrote the first line of its journal, so it has
            // measured nothing.
            let plan = Plan::load(&file)?;
            journal.append(&Entry::begun(&plan))?;
            return Ok((Archive { folder: folder.clone(), journal }, plan, entries));
        }
        let plan = plan_of(&entries, folder)?;
        same_plan(&plan, &file, folder)?;
        Ok((Archive { folder: folder.clone(), journal }, plan, entries))
    }

    /// Appends an entry to the journal.
    ///
    /// # Errors
    /// Returns an error if the entry could not be written.
    pub fn append(&mut self, entry: &Entry) -> Result<(), ArchiveError> {
        Ok(self.journal.append(entry)?)
    }

    /// Creates a new folder for a server's files, and returns its path relative to the run folder.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created.
    pub(crate) fn server_folder(&self, name: &str) -> Result<PathBuf, ArchiveError> {
        let word: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        for n in 1.. {
            let below = PathBuf::from(format!("servers/{}-{n}", word.to_lowercase()));
            let path = self.folder.join(&below);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(below),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(io_error("create", &path)(e)),
            }
        }
        unreachable!("the loop has no end")
    }

    /// Returns the path of the record file of the trial with number `number`, relative to the run
    /// folder. Removes files that a killed trial left in the folder `records`.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created.
    pub(crate) fn records_file(
        &self,
        number: usize,
        extension: &str,
    ) -> Result<PathBuf, ArchiveError> {
        let (below, file) = (PathBuf::from("records"), format!("trial-{number:05}.{extension}"));
        let path = self.folder.join(&below);
        match fs::create_dir(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(io_error("create", &path)(e));
            }
            _ => {}
        }
        for entry in fs::read_dir(&path).map_err(io_error("read", &path))?.flatten() {
            let other = entry.file_name();
            if other == *file || other.as_encoded_bytes().starts_with(b".") {
                fs::remove_file(entry.path()).map_err(io_error("remove", &entry.path()))?;
            }
        }
        Ok(below.join(file))
    }

    /// True if the run folder contains a file with the relative path `file`.
    pub fn has(&self, file: &Path) -> bool {
        self.folder.join(file).exists()
    }

    /// Returns the name of this run's folder on other hosts. The name is unique to this run.
    ///
    /// # Errors
    /// Returns an error if the id of this run cannot be read.
    pub(crate) fn far_name(&self) -> Result<String, ArchiveError> {
        let path = self.folder.join("id");
        let id = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        let whole = self.folder.canonicalize().map_err(io_error("find", &self.folder))?;
        let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(format!("{name}-{}", id.trim()))
    }

    /// Returns the run folder's path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Reads a run folder that another process may be using. The returned plan is the one in the journal, or the one in
/// `plan.toml` if the journal is empty.
///
/// # Errors
/// Returns an error if `folder` is not a run folder, or one of its files cannot be read.
pub fn read(folder: &Path) -> Result<(Plan, Environment, Vec<Entry>), ArchiveError> {
    let entries = Lines::read(&journal_of(folder)?)?;
    let plan = if entries.is_empty() {
        Plan::load(&folder.join("plan.toml"))?
    } else {
        plan_of(&entries, folder)?
    };
    Ok((plan, machine_of(folder)?, entries))
}

/// Contents of `environment.json`: the facts about a machine, and the version of the file format. No program needs the
/// version, and files in older run folders do not contain it.
#[derive(Serialize)]
struct VersionedEnvironment<'a> {
    schema_version: u32,
    #[serde(flatten)]
    environment: &'a Environment,
}

/// Returns the facts about the machine on which a run was started.
///
/// # Errors
/// Returns an error if `environment.json` cannot be read.
pub(crate) fn machine_of(folder: &Path) -> Result<Environment, ArchiveError> {
    let path = folder.join("environment.json");
    let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
    serde_json::from_str(&text).map_err(|e| io_error("read", &path)(e.into()))
}

#[cfg(test)]
mod tests {
    use method::narrow::Length;
    use units::Qps;

    use crate::journal::JournalError;
    use crate::plan::{Conditions, Cores, Point};
    use crate::record::Step;

    use super::*;

    /// Opens a journal, and retries while it is locked. A child process that a different test has just forked holds the
    /// lock until the child calls exec.
    fn open(path: &Path) -> (Lines, Vec<Entry>) {
        loop {
            match Lines::open(path) {
                Err(JournalError::Busy { .. }) => std::thread::yield_now(),
                other => return other.unwrap(),
            }
        }
    }

    /// A power loss may leave any prefix of the written data. Complete lines are read, and an
    /// incomplete last line is removed.
    #[test]
    fn a_truncated_journal_resumes_with_complete_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let step = |rate| {
            let point = Point::Search(Conditions::worst_case("BIND \"9\"", Cores::first(1)));
            Entry::Started(Step { point, repeat: 0, rate: Qps(rate), length: Length::Probe })
        };
        let point = Point::Search(Conditions::worst_case("x", Cores::first(2)));
        let incident = Entry::Incident { point, what: "a\nb".into(), log: "ü".into() };
        let entries =
            [Entry::Version { dut: "x".into(), text: "1".into() }, step(1), incident, step(2)];
        let mut journal = Lines::create(&path).unwrap();
        for entry in &entries {
            journal.append(entry).unwrap();
        }
        drop(journal);
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let lines = whole[..cut].iter().filter(|&&octet| octet == b'\n').count();
            assert_eq!(Lines::read::<Entry>(&path).unwrap(), entries[..lines], "cut off at {cut}");
            let (mut journal, found) = open(&path);
            assert_eq!(found, entries[..lines], "cut off at {cut}");
            journal.append(&step(3)).unwrap();
            drop(journal);
            let after = Lines::read::<Entry>(&path).unwrap();
            assert_eq!(
                (after.len(), after.last()),
                (lines + 1, Some(&step(3))),
                "cut off at {cut}"
            );
        }
    }
}
