//! Reading of configuration files, and of the files that they include.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glob::{MatchOptions, glob_with};

use super::error::{ImportError, LONGEST_FILE};
use super::notes::Place;

/// Maximum nesting depth of included files; it also ends recursive includes.
pub(super) const DEEPEST: usize = 16;

/// Maximum number of included files.
pub(super) const MOST: usize = 1_000;

/// Returns the error for an include beyond [`DEEPEST`] or [`MOST`].
pub(super) fn too_many(place: &Place) -> ImportError {
    let reason = "files include each other, or there are too many".to_owned();
    ImportError::Syntax { place: place.clone(), reason }
}

/// Reads a regular file of at most [`LONGEST_FILE`] octets. Opening a pipe fails instead of waiting
/// for a writer, because a running dns64d that reloads its configuration must still handle signals.
///
/// # Errors
/// If the file cannot be read, is not a regular file, is too long, or is not UTF-8.
pub fn read_file(file: &Path) -> io::Result<String> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    file.take(LONGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST_FILE {
        return Err(io::Error::other(format!("longer than {LONGEST_FILE} octets")));
    }
    Ok(text)
}

/// Reads a file with [`read_file`], without a byte order mark; the error has its path.
pub(super) fn read(file: &Path) -> Result<String, ImportError> {
    let text =
        read_file(file).map_err(|source| ImportError::Read { file: file.to_owned(), source })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Returns the name of a file for messages, on one line.
pub(super) fn called(file: &Path) -> Arc<str> {
    let name = file.to_string_lossy();
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>().into()
}

/// Returns the files of an include. `named` may contain `*` and `?`, and a relative path is
/// relative to the including file.
pub(super) fn included(by: &Path, named: &str) -> Vec<PathBuf> {
    let path = by.parent().unwrap_or(Path::new("")).join(named);
    let pattern = path.to_string_lossy();
    if !pattern.contains(['*', '?', '[']) {
        return vec![path];
    }
    // As glob(3): a wildcard does not match the dot of a hidden file.
    let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
    glob_with(&pattern, options).map(|found| found.flatten().collect()).unwrap_or_default()
}
