//! Standard output.

use std::io::{self, Write};

/// Writes to standard output. Who has read enough and is gone is no error.
///
/// # Errors
/// If it cannot be written, for instance to a full disk.
pub(super) fn print(text: &[u8]) -> io::Result<()> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
