//! Client side of the control socket.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::protocol::{Answer, PATIENCE, Request};

/// Maximum length of an answer from the server, in octets.
const LONGEST_ANSWER: u64 = 16 << 20;

/// Errors that can occur during a request to a running server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// No server listens at the socket, or this user is not permitted to connect.
    #[error("no dns64d listens at its [control] socket {}: {source}", .socket.display())]
    Unreachable {
        /// Path of the socket.
        socket: PathBuf,
        /// Error returned by the system call.
        source: io::Error,
    },
    /// The server closed the connection, or its answer timed out.
    #[error("no answer at {}: {source}", .socket.display())]
    NoAnswer {
        /// Path of the socket.
        socket: PathBuf,
        /// Error returned by the system call.
        source: io::Error,
    },
    /// The answer is malformed.
    #[error("cannot read the answer at {}: {source}", .socket.display())]
    Unreadable {
        /// Path of the socket.
        socket: PathBuf,
        /// Error returned by the JSON parser.
        source: serde_json::Error,
    },
}

/// Sends a request to the server at a socket and returns the answer.
///
/// # Errors
/// Returns an error if the server sends no valid answer.
pub(crate) fn ask(socket: &Path, request: &Request) -> Result<Answer, ControlError> {
    let unreachable = |source| ControlError::Unreachable { socket: socket.into(), source };
    let no_answer = |source| ControlError::NoAnswer { socket: socket.into(), source };
    let stream = UnixStream::connect(socket).map_err(unreachable)?;
    let answer = exchange(stream, request).map_err(no_answer)?;
    serde_json::from_slice(&answer)
        .map_err(|source| ControlError::Unreadable { socket: socket.into(), source })
}

/// Sends a request and reads the answer.
fn exchange(mut stream: UnixStream, request: &Request) -> io::Result<Vec<u8>> {
    let patience = Some(PATIENCE + Duration::from_secs(1));
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    serde_json::to_writer(&mut stream, request)?;
    stream.write_all(b"\n")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    if answer.is_empty() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(answer) }
}
