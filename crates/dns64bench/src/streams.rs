//! Standard output and standard error where nobody reads them any more, or there is no room for
//! them.
//!
//! The standard library's `println!` panics there. Ours (in `main.rs`) end the program instead, in
//! order, so that servers that it has started end and temporary files go: quietly when the reader
//! has gone, with a sentence when a disk is full. Standard error shows progress; the program goes
//! on where it cannot be written, because no result is lost.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

use anyhow::Context;
use campaign::new_file::NewFile;

use crate::lines::plain_spaces;
use crate::output::{Failure, Outcome};

/// Octets that are collected before they are written.
const BUFFER: usize = 1 << 20;
/// As a shell tells of a program that SIGPIPE ended.
const BROKEN_PIPE: u8 = 128 + 13;

/// The thread that may end the program.
static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Why standard output cannot be written; travels up to `main` as a panic that tells nothing.
pub(crate) struct Unwritable(io::Error);

impl Unwritable {
    /// Says what is to be said, and returns the status.
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

/// From now on this thread ends the program when standard output is gone.
pub(crate) fn begin() {
    MAIN.get_or_init(|| thread::current().id());
}

/// Ends the program for want of standard output. In any other thread than `main`'s it does nothing:
/// that will notice itself.
pub(crate) fn give_up(error: io::Error) {
    if MAIN.get() == Some(&thread::current().id()) {
        resume_unwind(Box::new(Unwritable(error)));
    }
}

/// Writes to standard output, with plain spaces; the program ends if that is not possible.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    let text = plain_spaces(&text.to_string());
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    drop(out);
    if let Err(error) = written {
        give_up(error);
    }
}

/// Writes the file `path` whole or not at all, or standard output if there is no path.
///
/// # Errors
/// If the file cannot be written. The program ends if standard output cannot be.
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
    // What is left over is written nowhere.
    drop(out.into_parts());
    written.map_or_else(give_up, |()| {});
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard error, with plain spaces. An error of standard error is ignored.
pub(crate) fn tell(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(plain_spaces(&text.to_string()).as_bytes());
}
