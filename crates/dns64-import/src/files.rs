//! Reading of configuration files, and of the files that they include.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use glob::{MatchOptions, Pattern, glob_with};

use super::error::{ImportError, LONGEST_FILE};
use super::notes::Location;

/// Maximum nesting depth of included files. The limit also stops files that include each other.
pub(super) const DEEPEST: usize = 16;

/// Maximum number of included files.
pub(super) const MOST: usize = 1_000;

/// Returns the error for an include directive that exceeds the limit on the nesting depth ([`DEEPEST`]) or on the
/// number of files ([`MOST`]).
pub(super) fn too_many(location: &Location) -> ImportError {
    let reason = "files include each other, or there are too many".to_owned();
    ImportError::Syntax { location: location.clone(), reason }
}

/// Reads a regular file of at most [`LONGEST_FILE`] octets. The file is opened in non-blocking mode. Otherwise opening
/// a pipe would wait for a writer, and a running dns64d that reloads its configuration could not handle signals.
///
/// # Errors
/// Returns an error if the file cannot be read, is not a regular file, is too long, or is not UTF-8.
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

/// Reads a file with [`read_file`], and removes a byte order mark. An error contains the path.
pub(super) fn read(file: &Path) -> Result<String, ImportError> {
    let text =
        read_file(file).map_err(|source| ImportError::Read { file: file.to_owned(), source })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Returns the path of a file in a form for messages: control characters are replaced.
pub(super) fn called(file: &Path) -> Arc<str> {
    let name = file.to_string_lossy();
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>().into()
}

/// Returns the absolute path of a file as text, or `None` if it is not UTF-8. Paths in the result must be absolute,
/// because the working directory of dns64d differs from that of the import.
pub(super) fn absolute_path(file: &Path) -> Option<String> {
    absolute(file).ok()?.to_str().map(str::to_owned)
}

/// Returns the folder of a file.
pub(super) fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// Returns the new working directory for a directive that changes the working directory. The
/// directive is ignored if the directory does not exist on this host, because the configuration may
/// be a copy from another host.
pub(super) fn changed_directory(current: &Path, named: &str) -> PathBuf {
    let next = current.join(named);
    if next.is_dir() { next } else { current.to_owned() }
}

/// Returns the files that an include directive refers to. If `named` is a pattern with `*`, `?` or `[…]`, the result
/// consists of the matching files. Otherwise, the result is the named file, which may not exist. A relative path is
/// resolved against `folder`.
pub(super) fn included(folder: &Path, named: &str) -> Vec<PathBuf> {
    if !named.contains(['*', '?', '[']) {
        return vec![folder.join(named)];
    }
    let pattern = Path::new(&Pattern::escape(&folder.to_string_lossy())).join(named);
    // A wildcard does not match the leading dot of a hidden file, as in glob(3).
    let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
    let found = glob_with(&pattern.to_string_lossy(), options);
    found.map(|found| found.flatten().collect()).unwrap_or_default()
}

/// Returns a folder's files with names that end in `ending`, sorted without regard to case. Hidden
/// files are excluded.
pub(super) fn of_folder(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, ImportError> {
    let bad = |source| ImportError::Read { file: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(bad)? {
        let name = entry.map_err(bad)?.file_name();
        let text = name.to_string_lossy();
        if !text.starts_with('.') && text.ends_with(ending) {
            files.push(folder.join(&name));
        }
    }
    files.sort_by_cached_key(|file| (file.to_string_lossy().to_ascii_lowercase(), file.clone()));
    Ok(files)
}
