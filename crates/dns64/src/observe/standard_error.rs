//! Access to standard error for threads that may have to wait for its reader.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// Lock that the log thread and the query log thread hold while they write a line.
pub(crate) static WRITE_LOCK: Mutex<()> = Mutex::new(());

/// Returns standard error without the lock of the standard library. A thread must not hold that
/// lock while it waits for a slow reader.
///
/// # Errors
/// Returns an error if standard error is closed.
pub(crate) fn open() -> io::Result<File> {
    io::stderr().as_fd().try_clone_to_owned().map(File::from)
}
