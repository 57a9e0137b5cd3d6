//! The journal of a search: JSON lines, appended and synced before and after every trial, so that a killed search continues.
//!
//! ```text
//! {"plan": …}                                first line: what is searched
//! {"started": {"repeat", "rate", "first_name", "names"}}
//! {"finished": {"repeat", "trial"}}          one for each `started`, but for the trial that was killed
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use method::units::Qps;
use serde::{Deserialize, Serialize};
use tester::measurer::result::TrialResult;

use crate::search::SearchPlan;

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    /// What is searched.
    Plan(Box<SearchPlan>),
    /// A trial is about to begin and takes these names, whatever becomes of it.
    Started(Started),
    /// A trial has ended.
    Finished(Box<Finished>),
}

/// A trial about to begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// Which search of the set, from 0.
    pub repeat: u32,
    /// Its rate.
    pub rate: Qps,
    /// Position of its first name.
    pub first_name: u64,
    /// How many names it takes.
    pub names: u64,
}

/// A trial that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Which search of the set, from 0.
    pub repeat: u32,
    /// What it found.
    pub trial: TrialResult,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The system refused.
    #[error("cannot {doing} the journal {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line that we would not write.
    #[error("{path}, line {line}: not a line of a search journal: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// Another process is searching with it.
    #[error("{path} is in use by another search")]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

/// An open journal.
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Starts a journal; the file must not exist.
    ///
    /// # Errors
    /// If it exists, or cannot be written.
    pub fn create(path: &Path, plan: &SearchPlan) -> Result<Journal, JournalError> {
        let file = OpenOptions::new().append(true).create_new(true).open(path).map_err(io_error("create", path))?;
        let mut journal = Journal { path: path.into(), file };
        journal.lock()?;
        journal.append(&Entry::Plan(Box::new(plan.clone())))?;
        // The name itself must survive a power loss too.
        if let Some(folder) = path.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder).and_then(|f| f.sync_all()).map_err(io_error("sync the folder of", path))?;
        }
        Ok(journal)
    }

    /// Opens a journal to continue it; returns what stands in it. A last line without its end was being written when the
    /// process died; it is cut off.
    ///
    /// # Errors
    /// If it cannot be read and written, is in use, or is no journal.
    pub fn open(path: &Path) -> Result<(Journal, SearchPlan, Vec<Entry>), JournalError> {
        let file = OpenOptions::new().read(true).append(true).open(path).map_err(io_error("open", path))?;
        let mut journal = Journal { path: path.into(), file };
        journal.lock()?;
        let mut bytes = Vec::new();
        journal.file.read_to_end(&mut bytes).map_err(io_error("read", path))?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        let mut entries = Vec::new();
        for (n, line) in bytes[..whole].split_inclusive(|&b| b == b'\n').enumerate() {
            let bad = |why: String| JournalError::Line { path: path.into(), line: n + 1, why };
            entries.push(serde_json::from_slice::<Entry>(line).map_err(|e| bad(e.to_string()))?);
        }
        if entries.is_empty() {
            let why = "it has no first line with the plan".to_owned();
            return Err(JournalError::Line { path: path.into(), line: 1, why });
        }
        let Entry::Plan(plan) = entries.remove(0) else {
            return Err(JournalError::Line { path: path.into(), line: 1, why: "the first line holds no plan".into() });
        };
        if whole < bytes.len() {
            journal.file.set_len(whole as u64).map_err(io_error("cut the unfinished last line off", path))?;
        }
        Ok((journal, *plan, entries))
    }

    /// Appends a line and waits until it is on disk.
    ///
    /// # Errors
    /// If it could not be written, for instance because the disk is full.
    pub fn append(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let mut line = serde_json::to_vec(entry).map_err(io::Error::other).map_err(io_error("write", &self.path))?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(io_error("write", &self.path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> Result<(), JournalError> {
        self.file.try_lock().map_err(|_| JournalError::Busy { path: self.path.clone() })
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io { doing, path, source }
}
