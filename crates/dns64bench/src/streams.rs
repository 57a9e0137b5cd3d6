//! Standard output and standard error that are closed, or on a full disk.
//!
//! In these cases, the standard library's `println!` panics. The macros in `main.rs` end the program cleanly instead,
//! so that its servers end and temporary files are removed. A closed pipe ends the program silently, and a full disk
//! with a message. If standard error cannot be written, the program continues, because only progress is lost.

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

/// Thread that may end the program.
static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Reason why standard output cannot be written; propagates to `main` as a silent panic.
pub(crate) struct Unwritable(io::Error);

impl Unwritable {
    /// Prints the message, if any, and returns the exit status.
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

/// Makes this thread the one that ends the program when standard output is closed.
pub(crate) fn begin() {
    MAIN.get_or_init(|| thread::current().id());
}

/// Ends the program because standard output cannot be written. Has no effect in threads other than `main`. The thread
/// `main` detects the error when it prints.
pub(crate) fn give_up(error: io::Error) {
    if MAIN.get() == Some(&thread::current().id()) {
        resume_unwind(Box::new(Unwritable(error)));
    }
}

/// Writes to standard output, with plain spaces; ends the program on an error.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    let text = plain_spaces(&text.to_string());
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    drop(out);
    if let Err(error) = written {
        give_up(error);
    }
}

/// Writes the file `path` completely or not at all, or standard output if there is no path.
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
    // The rest of the buffer is discarded.
    drop(out.into_parts());
    written.map_or_else(give_up, |()| {});
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard error, with plain spaces. Errors are ignored.
pub(crate) fn print_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(plain_spaces(&text.to_string()).as_bytes());
}
