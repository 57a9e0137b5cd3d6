//! AuthDNS's status socket: whoever connects gets the counters as one line of JSON.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::counters::AuthCounters;

/// How long the other side may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves the counters on a new socket `path`, until the process ends: an object that has at least
/// the keys of [`AuthCounters`].
///
/// # Errors
/// If the socket cannot be made, for instance because it is left over from a server that was
/// killed.
pub fn serve<T: Serialize>(path: &Path, read: impl Fn() -> T + Send + 'static) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    std::thread::Builder::new().name("status".into()).spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let line = serde_json::to_string(&read()).unwrap_or_default();
            // Whoever asked may have gone.
            let _ =
                stream.set_write_timeout(Some(PATIENCE)).and_then(|()| writeln!(stream, "{line}"));
        }
    })?;
    Ok(())
}

/// What the AuthDNS with the status socket `path` has counted so far.
///
/// # Errors
/// If nobody serves there, or something else does.
pub fn read(path: &Path) -> io::Result<AuthCounters> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(Into::into)
}
