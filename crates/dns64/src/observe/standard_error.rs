//! Standard error, for threads that may have to wait for its reader.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// Held by who writes lines to it: the thread of the log, or that of the query log.
pub(crate) static ONE_WRITES: Mutex<()> = Mutex::new(());

/// Standard error without the lock of the standard library's: who waits for its reader must not hold
/// that.
///
/// # Errors
/// If it is closed.
pub(crate) fn open() -> io::Result<File> {
    io::stderr().as_fd().try_clone_to_owned().map(File::from)
}
