//! Files of other servers, and those that they include.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::ImportError;
use super::notes::Place;
use crate::config::read_file;

/// Files in files in files: more than anybody writes, and the end of those that include themselves.
pub(super) const DEEPEST: usize = 16;

/// How many files may be included in all.
pub(super) const MOST: usize = 1_000;

/// The error where a file is included beyond [`DEEPEST`] or [`MOST`].
pub(super) fn too_many(place: &Place) -> ImportError {
    let reason = "files include each other, or are too many".to_owned();
    ImportError::Syntax { place: place.clone(), reason }
}

/// The text of a file, as far as a configuration of ours may be one.
///
/// # Errors
/// If it cannot be read, is none, or is longer.
pub(super) fn read(file: &Path) -> Result<String, ImportError> {
    read_file(file).map_err(|source| ImportError::Read { file: file.to_owned(), source })
}

/// The name by which a file is called in places: in one line.
pub(super) fn called(file: &Path) -> Arc<str> {
    let name = file.to_string_lossy();
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>().into()
}

/// The files that a file includes: `named` with `*` and `?`, from the folder of the including file
/// where it is relative.
pub(super) fn included(by: &Path, named: &str) -> Vec<PathBuf> {
    let path = by.parent().unwrap_or(Path::new("")).join(named);
    let pattern = path.to_string_lossy();
    if !pattern.contains(['*', '?', '[']) {
        return vec![path];
    }
    glob::glob(&pattern).map(|found| found.flatten().collect()).unwrap_or_default()
}
