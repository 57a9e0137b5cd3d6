//! Journal of a search: JSON lines, appended and synced before and after every trial, so that a
//! killed search can be resumed.
//!
//! ```text
//! {"plan": …}                                first line: the search plan
//! {"started": {"repeat", "rate", "first_name", "names"}}
//! {"finished": {"repeat", "trial"}}          one for each `started`, except for a trial that was killed
//! ```

pub(crate) mod plausible;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tester::measurer::result::TrialResult;
use units::Qps;

use crate::plan::SearchPlan;

/// A line of a search's journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchEntry {
    /// The search plan; the first line of every journal.
    Plan(Box<SearchPlan>),
    /// Start of a trial. The names of the trial count as used, even if the trial is killed.
    Started(Started),
    /// End of a trial.
    Finished(Box<Finished>),
}

/// A trial about to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Started {
    /// Index of the search. The first search has index 0.
    pub repeat: u32,
    /// Offered rate of the trial, queries per second.
    pub rate: Qps,
    /// Position of the trial's first name in the tester's list of names.
    pub first_name: u64,
    /// Number of names that the trial uses.
    pub names: u64,
}

/// A finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finished {
    /// Index of the search. The first search has index 0.
    pub repeat: u32,
    /// Result of the trial.
    pub trial: TrialResult,
}

/// Error from reading or writing a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The journal file could not be read or written.
    #[error("cannot {doing} the journal {path}: {source}")]
    Io {
        /// Verb for the failed operation: `read`, `write` or `create`.
        doing: &'static str,
        /// The journal's path.
        path: PathBuf,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The journal has an invalid line.
    #[error("{path}, line {line}: not a line of a journal: {why}")]
    Line {
        /// The journal's path.
        path: PathBuf,
        /// Number of the invalid line. The first line has number 1.
        line: usize,
        /// Description of the error.
        why: String,
    },
    /// Another process is using the journal.
    #[error("{path} is in use by another dns64bench")]
    Busy {
        /// The journal's path.
        path: PathBuf,
    },
}

/// A line of a journal, with a plausibility check. Each kind of journal has its own type of line.
pub trait JournalLine: DeserializeOwned {
    /// Returns the reason why this line is implausible after the `earlier` lines, or `None` if it
    /// is plausible.
    fn fault(&self, earlier: &[Self]) -> Option<String>;
}

/// A file of JSON lines. Only one process at a time can append lines to the file. Each line is
/// synced to disk.
pub struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    /// Creates a file, which must not exist yet.
    ///
    /// # Errors
    /// Returns an error if the file exists, cannot be written, or is in use.
    pub fn create(path: &Path) -> Result<Lines, JournalError> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)
            .map_err(io_error("create", path))?;
        let lines = Lines { path: path.into(), file };
        lines.lock()?;
        // The folder is synced too, so that the new file's name survives a power loss.
        if let Some(folder) = path.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder)
                .and_then(|f| f.sync_all())
                .map_err(io_error("sync the folder of", path))?;
        }
        Ok(lines)
    }

    /// Opens a file for appending, and returns its entries. Removes an incomplete last line, which
    /// a killed process may have left.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened for reading and writing, is in use, or contains invalid lines.
    pub fn open<T: JournalLine>(path: &Path) -> Result<(Lines, Vec<T>), JournalError> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .open(path)
            .map_err(io_error("open", path))?;
        let mut lines = Lines { path: path.into(), file };
        lines.lock()?;
        let mut bytes = Vec::new();
        lines.file.read_to_end(&mut bytes).map_err(io_error("read", path))?;
        let (entries, whole) = parse(&bytes, path)?;
        if whole < bytes.len() {
            lines
                .file
                .set_len(whole as u64)
                .map_err(io_error("cut off the unfinished last line of", path))?;
        }
        Ok((lines, entries))
    }

    /// Reads the entries of a file that another process may be writing.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or contains invalid lines.
    pub fn read<T: JournalLine>(path: &Path) -> Result<Vec<T>, JournalError> {
        let bytes = std::fs::read(path).map_err(io_error("read", path))?;
        Ok(parse(&bytes, path)?.0)
    }

    /// Appends a line and waits until it is on disk.
    ///
    /// # Errors
    /// Returns an error if the line could not be written, for example because the disk is full. A partly written line
    /// is removed.
    pub fn append(&mut self, entry: &impl Serialize) -> Result<(), JournalError> {
        let mut line = serde_json::to_vec(entry)
            .map_err(io::Error::other)
            .map_err(io_error("write", &self.path))?;
        line.push(b'\n');
        let before = self.file.metadata().map(|m| m.len());
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if written.is_err()
            && let Ok(before) = before
        {
            // An incomplete line would make the next line unreadable. If removing it fails here,
            // `open` removes it later.
            let _ = self.file.set_len(before);
        }
        written.map_err(io_error("write", &self.path))
    }

    /// Returns the journal's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> Result<(), JournalError> {
        self.file.try_lock().map_err(|_| JournalError::Busy { path: self.path.clone() })
    }
}

/// Parses the complete lines of a file, and returns their entries and their total length in octets.
fn parse<T: JournalLine>(bytes: &[u8], path: &Path) -> Result<(Vec<T>, usize), JournalError> {
    let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
    let mut entries = Vec::new();
    for (n, line) in bytes[..whole].split_inclusive(|&b| b == b'\n').enumerate() {
        let bad = |why: String| JournalError::Line { path: path.into(), line: n + 1, why };
        let entry: T = serde_json::from_slice(line).map_err(|e| bad(e.to_string()))?;
        if let Some(why) = entry.fault(&entries) {
            return Err(bad(why));
        }
        entries.push(entry);
    }
    Ok((entries, whole))
}

/// The open journal of a search.
pub struct Journal(Lines);

impl Journal {
    /// Creates a journal. Its file must not exist yet.
    ///
    /// # Errors
    /// Returns an error if the file exists, or cannot be written.
    pub fn create(path: &Path, plan: &SearchPlan) -> Result<Journal, JournalError> {
        let mut journal = Journal(Lines::create(path)?);
        journal.append(&SearchEntry::Plan(Box::new(plan.clone())))?;
        Ok(journal)
    }

    /// Opens a journal to continue the search. Returns the plan in the first line, and the entries
    /// of the other lines.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened for reading and writing, is in use, or is not a journal of a
    /// search.
    pub fn open(path: &Path) -> Result<(Journal, SearchPlan, Vec<SearchEntry>), JournalError> {
        let (lines, mut entries) = Lines::open::<SearchEntry>(path)?;
        let first = if entries.is_empty() { None } else { Some(entries.remove(0)) };
        let Some(SearchEntry::Plan(plan)) = first else {
            let why = "the first line contains no plan".to_owned();
            return Err(JournalError::Line { path: path.into(), line: 1, why });
        };
        Ok((Journal(lines), *plan, entries))
    }

    /// Appends a line and waits until it is on disk.
    ///
    /// # Errors
    /// The same errors as those of [`Lines::append`].
    pub fn append(&mut self, entry: &SearchEntry) -> Result<(), JournalError> {
        self.0.append(entry)
    }

    /// Returns the journal's path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io { doing, path, source }
}
