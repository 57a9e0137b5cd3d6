//! Standard error, for threads that may block on its reader.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// Held while a line is written, by the log thread or the query log thread.
pub(crate) static WRITE_LOCK: Mutex<()> = Mutex::new(());

/// Returns standard error without the lock of the standard library, which must not be held while
/// waiting for a reader.
///
/// # Errors
/// If standard error is closed.
pub(crate) fn open() -> io::Result<File> {
    io::stderr().as_fd().try_clone_to_owned().map(File::from)
}
