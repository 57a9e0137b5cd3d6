//! Errors from reading or writing a run folder.

use std::path::PathBuf;

use hosts::new_file::FileError;

use crate::journal::JournalError;
use crate::plan::PlanError;
use crate::record::VERSION;

/// Error from reading or writing a run folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// A file in the run folder could not be read or written.
    #[error(transparent)]
    Io(#[from] FileError),
    /// The plan in the run folder is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The run folder was written by a different version of this program.
    #[error(
        "{folder} has format version {version}, but this program reads version {VERSION}: use the program that wrote it, or \
         measure again into another run folder"
    )]
    Version {
        /// The run folder that was to be read or resumed.
        folder: PathBuf,
        /// The format version of the run folder's journal.
        version: u64,
    },
    /// The folder contains no journal.
    #[error("{folder} is not a run folder: it has no journal.jsonl")]
    NoRun {
        /// Path of the folder that the user gave.
        folder: PathBuf,
    },
    /// The campaign was killed before it wrote the first line of its journal.
    #[error(
        "the journal of {folder} is empty: nothing has been measured yet; continue with: dns64bench campaign resume {folder}"
    )]
    Empty {
        /// The run folder that was to be read.
        folder: PathBuf,
    },
    /// The journal does not contain the plan that its trials used.
    #[error(
        "the journal of {folder} does not contain the plan that it was measured with (older versions did not write it); \
         start another run folder: dns64bench campaign run PLAN --dir DIR"
    )]
    NoPlan {
        /// The run folder that was to be read or resumed.
        folder: PathBuf,
    },
    /// The given plan differs from the plan in the journal.
    #[error(
        "{path} differs from the plan in the journal of {folder}, in: {keys}; restore it, or start another run folder for it \
         (dns64bench campaign run PLAN --dir DIR)"
    )]
    OtherPlan {
        /// Path of the plan that the user gave.
        path: PathBuf,
        /// The run folder that was to be read or resumed.
        folder: PathBuf,
        /// The keys in which the plans differ; a long list is truncated.
        keys: String,
    },
}
