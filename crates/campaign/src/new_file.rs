//! Files that are whole or not there: opened before there is anything to write, named when all is
//! written.
//!
//! ```text
//! open ─► temporary file beside the path ─ write ─► … ─ finish ─► synced, renamed to the path
//!    └──► device, pipe or socket: written as it is               dropped before: nothing is left
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file that will be at a path, if it is finished.
pub struct NewFile {
    path: PathBuf,
    target: Target,
}

/// What is written until then.
enum Target {
    /// A file without the name that it will have.
    Unnamed(NamedTempFile),
    /// What is no ordinary file, such as `/dev/null`, must not be replaced by one.
    Special(File),
}

impl NewFile {
    /// Opens a file that will be at `path`. What is there stays as it is until [`NewFile::finish`].
    ///
    /// # Errors
    /// If the folder is not there or cannot be written to.
    pub fn open(path: &Path) -> io::Result<NewFile> {
        // What a link leads to is written, and the link stays.
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
            // A file of std's has the mode that the umask leaves to it, where a temporary file's own,
            // 0600, would keep others from a result, and its errors do not have a name in them that
            // nobody has chosen.
            let mut builder = Builder::new();
            let file =
                builder.prefix(".dns64bench-").make_in(folder, |path| File::create_new(path))?;
            Target::Unnamed(file)
        };
        Ok(NewFile { path: path.into(), target })
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name, when it is on the disk.
    ///
    /// # Errors
    /// If it cannot be written; then what was there before is still there.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// The mode that the umask of this process leaves to a file.
    fn usual_mode(folder: &Path) -> u32 {
        let path = folder.join("usual");
        fs::write(&path, "").unwrap();
        fs::metadata(path).unwrap().permissions().mode()
    }

    #[test]
    fn a_file_has_the_mode_of_any_other_and_is_whole_or_not_there() {
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
            "nothing is left of a file that was not finished"
        );
    }

    #[test]
    fn what_is_wrong_is_said_without_the_name_of_the_temporary_file() {
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
