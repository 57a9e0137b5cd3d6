//! Files that are written atomically. A temporary file is opened before there is anything to write,
//! and is renamed to the final path once everything has been written.
//!
//! ```text
//! open ─► temporary file in the same folder ─ write ─► … ─ finish ─► synced, renamed to the path
//!     └──► device, pipe or socket: written directly               dropped before: nothing is left
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::{Builder, NamedTempFile};

use crate::text::is_hidden;

/// A file that appears at its final path only once it is finished.
pub struct NewFile {
    path: PathBuf,
    target: Target,
}

/// Destination of the data until the file is finished.
enum Target {
    /// A temporary file.
    Unnamed(NamedTempFile),
    /// A special file, such as `/dev/null`, which must not be replaced by a regular one.
    Special(File),
}

impl NewFile {
    /// Opens a file for `path`. An existing file stays unchanged until [`NewFile::finish`] is called.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist or is not writable.
    pub fn open(path: &Path) -> io::Result<NewFile> {
        // If the path is a symbolic link, the target of the link is replaced, and the link remains.
        let path = &if path.is_symlink() {
            path.canonicalize().unwrap_or_else(|_| path.into())
        } else {
            path.into()
        };
        let is_special = path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir());
        let target = if is_special {
            Target::Special(File::options().write(true).open(path)?)
        } else if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        } else {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            // `File::create_new` applies the umask to the mode of the file. By default, `tempfile`
            // creates files with mode 0600, so other users could not read results. The errors of
            // `tempfile` would also contain a random file name.
            let mut builder = Builder::new();
            let file =
                builder.prefix(".dns64bench-").make_in(folder, |path| File::create_new(path))?;
            Target::Unnamed(file)
        };
        Ok(NewFile { path: path.into(), target })
    }

    /// Returns the path that the file has once it is finished.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file to disk and renames it to its final path.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. A previous file at the path is then unchanged.
    pub fn finish(self) -> io::Result<()> {
        match self.target {
            Target::Unnamed(file) => {
                file.as_file().sync_all()?;
                file.persist(&self.path).map(drop).map_err(|e| e.error)
            }
            Target::Special(mut file) => file.flush(),
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.target {
            Target::Unnamed(file) => file.as_file_mut().write(bytes),
            Target::Special(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Unnamed(file) => file.as_file_mut().flush(),
            Target::Special(file) => file.flush(),
        }
    }
}

/// Error returned by the system when a file was read, written or created.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {source}")]
pub struct FileError {
    /// The operation that failed: `read`, `write` or `create`.
    pub doing: &'static str,
    /// Path of the file or folder.
    pub path: PathBuf,
    /// Error returned by the system.
    pub source: io::Error,
}

impl FileError {
    /// Returns a function that adds the operation and the path to an error returned by the system.
    pub fn of(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_owned();
        move |source| FileError { doing, path, source }
    }
}

/// Writes a file atomically. Its mode follows the umask.
///
/// # Errors
/// Returns an error if the file could not be written. A previous file at the path is then unchanged.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let write = || -> io::Result<()> {
        let mut file = NewFile::open(path)?;
        file.write_all(bytes)?;
        file.finish()
    };
    write().map_err(FileError::of("write", path))
}

/// Writes a value to a file as JSON, atomically.
///
/// # Errors
/// Returns the same errors as [`write_whole`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), FileError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| FileError::of("write", path)(e.into()))?;
    write_whole(path, escape_hidden(&text).as_bytes())
}

/// Escapes control characters and direction-changing characters that JSON allows unescaped in
/// strings (RFC 8259 §7). All of them are in the basic multilingual plane, so `\uXXXX` with four
/// digits suffices.
fn escape_hidden(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) && c != '\n' {
            out += &format!("\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Returns the mode of a file under the umask of this process.
    fn usual_mode(folder: &Path) -> u32 {
        let path = folder.join("usual");
        fs::write(&path, "").unwrap();
        fs::metadata(path).unwrap().permissions().mode()
    }

    #[test]
    fn files_are_atomic_and_follow_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        fs::write(&path, "before").unwrap();
        let mut file = NewFile::open(&path).unwrap();
        file.write_all(b"after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        file.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode(), usual_mode(folder.path()));
        drop(NewFile::open(&path).unwrap());
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            2,
            "an unfinished file leaves nothing behind"
        );
    }

    #[test]
    fn errors_do_not_name_the_temporary_file() {
        let said = NewFile::open(Path::new("/nonexistent/x")).err().unwrap().to_string();
        assert_eq!(said, io::Error::from_raw_os_error(2).to_string());
    }

    #[test]
    fn a_device_is_written_and_not_replaced() {
        let mut file = NewFile::open(Path::new("/dev/null")).unwrap();
        file.write_all(b"gone").unwrap();
        file.finish().unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
        let mut full = NewFile::open(Path::new("/dev/full")).unwrap();
        assert_eq!(full.write_all(b"x").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(
            NewFile::open(Path::new("/nonexistent/x")).is_err()
                && NewFile::open(Path::new("/tmp")).is_err()
        );
    }
}
