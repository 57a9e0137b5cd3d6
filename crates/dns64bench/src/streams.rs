//! Handling of write errors on standard output and standard error, such as a closed pipe or a full disk.
//!
//! On such an error the standard library's `println!` panics. The macros in `main.rs` end the program cleanly instead,
//! so that servers started by the program are stopped, and temporary files are removed. If the pipe is closed, the
//! program ends without a message. If the disk is full, the program prints a message. If standard error cannot be
//! written, the program continues, because only progress output is lost.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

use anyhow::Context;
use hosts::new_file::NewFile;

use crate::lines::plain_spaces;
use crate::output::{Failure, Outcome};

/// Number of octets that are buffered before they are written.
const BUFFER: usize = 1 << 20;
/// Exit status of a program ended by SIGPIPE, as reported by shells.
const BROKEN_PIPE: u8 = 128 + 13;

/// The main thread, which is the only one that ends the program after a write error.
static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Error of a write to standard output. The error propagates to `main` as the payload of a panic without a message.
pub(crate) struct Unwritable(io::Error);

impl Unwritable {
    /// Returns the exit status after a write error. Also prints a message, except if the pipe was closed.
    pub(crate) fn report(self) -> ExitCode {
        match self.0.kind() {
            io::ErrorKind::BrokenPipe => ExitCode::from(BROKEN_PIPE),
            _ => {
                Failure::environment(anyhow::anyhow!("cannot write to standard output: {}", self.0))
                    .report()
            }
        }
    }
}

/// Registers the calling thread as the main thread.
pub(crate) fn begin() {
    MAIN.get_or_init(|| thread::current().id());
}

/// Ends the program because standard output cannot be written. Does nothing in threads other than the main thread. The
/// main thread detects the error the next time that it prints.
pub(crate) fn give_up(error: io::Error) {
    if MAIN.get() == Some(&thread::current().id()) {
        resume_unwind(Box::new(Unwritable(error)));
    }
}

/// Writes to standard output, and replaces narrow spaces with plain spaces. Ends the program on an error.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    let text = plain_spaces(&text.to_string());
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    drop(out);
    if let Err(error) = written {
        give_up(error);
    }
}

/// Writes to the file `path`, or to standard output if `path` is `None`. The file appears only when it is complete.
///
/// # Errors
/// Returns an error if the file cannot be written. The program ends if standard output cannot be
/// written.
pub(crate) fn write_to(
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Outcome {
    if let Some(path) = path {
        let to_file = || -> io::Result<()> {
            let mut out = BufWriter::with_capacity(BUFFER, NewFile::open(path)?);
            write(&mut out)?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
        };
        let written = to_file().with_context(|| format!("cannot write {}", path.display()));
        return written.map(|()| ExitCode::SUCCESS).map_err(Failure::environment);
    }
    let mut out = BufWriter::with_capacity(BUFFER, io::stdout());
    let written = write(&mut out).and_then(|()| out.flush());
    // Discards the buffer, because dropping the writer would try to write the rest again.
    drop(out.into_parts());
    written.map_or_else(give_up, |()| {});
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard error, and replaces narrow spaces with plain spaces. Ignores errors.
pub(crate) fn print_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(plain_spaces(&text.to_string()).as_bytes());
}
