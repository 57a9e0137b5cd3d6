//! AuthDNS's status socket, which answers each request with its counters as a line of JSON.
//!
//! ```text
//! connect ───► counters        The connection ends after a second without a request.
//! "begin" ───► counters        A trial runs until "end", or until the connection ends.
//! "end"   ───► counters
//! ```
//!
//! The counters include the number of trials on other connections ([`OtherTrials`]), so two testers that use one
//! AuthDNS at the same time detect each other.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::status::StatusSocket;
use serde::Serialize;

use super::counters::{AuthCounters, OtherTrials};

/// Time limit for the peer to send or read one line.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for a request while no trial runs. After this time, the connection is closed.
const GRACE: Duration = Duration::from_secs(1);
/// Maximum request length in octets.
const LONGEST: u64 = 64;
/// Maximum number of attempts to begin a trial. An attempt fails if its request arrives later than [`GRACE`] after the
/// connection was opened.
const ATTEMPTS: u32 = 3;

const BEGIN: &str = "begin";
const END: &str = "end";

/// Serves the counters on a status socket until the process ends.
///
/// `read` is called for each answer, and returns an object with at least the keys of [`AuthCounters`]. Its argument
/// contains two numbers for all other connections: their running trials, and all trials that they have begun so far.
///
/// # Errors
/// Returns any error from [`StatusSocket::serve`].
pub fn serve<T: Serialize>(
    socket: &StatusSocket,
    read: impl Fn(OtherTrials) -> T + Send + Sync + 'static,
) -> io::Result<()> {
    let trials = Arc::new(Mutex::default());
    socket.serve(move |stream| {
        let visit = ConnectionTrials { trials: Arc::clone(&trials), runs: false, begun: 0 };
        attend(stream, visit, &read)
    })
}

/// Answers one connection until it is closed.
fn attend<T: Serialize>(
    stream: &UnixStream,
    mut visit: ConnectionTrials,
    read: &impl Fn(OtherTrials) -> T,
) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let answer = |others: OtherTrials| {
        let line = serde_json::to_string(&read(others))?;
        let mut out = stream;
        writeln!(out, "{line}")
    };
    answer(visit.others())?;
    let mut requests = BufReader::new(stream);
    loop {
        stream.set_read_timeout(if visit.runs { None } else { Some(GRACE) })?;
        let mut request = String::new();
        requests.by_ref().take(LONGEST).read_line(&mut request)?;
        let others = match request.trim_end() {
            BEGIN => visit.begin(),
            END => visit.end(),
            _ => return Ok(()),
        };
        answer(others)?;
    }
}

/// Record of the trials that were begun through one connection to the status socket.
struct ConnectionTrials {
    /// Number of running trials, and of all trials begun so far, on all connections. The connections share these
    /// numbers.
    trials: Arc<Mutex<OtherTrials>>,
    /// True while a trial of this connection runs.
    runs: bool,
    /// Number of trials that this connection has begun.
    begun: u64,
}

impl ConnectionTrials {
    fn all(&self) -> MutexGuard<'_, OtherTrials> {
        self.trials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns two numbers for all other connections to the status socket: their running trials, and all trials that
    /// they have begun so far.
    fn others(&self) -> OtherTrials {
        let all = self.all();
        OtherTrials { running: all.running - u64::from(self.runs), begun: all.begun - self.begun }
    }

    fn begin(&mut self) -> OtherTrials {
        if !self.runs {
            let mut all = self.all();
            all.running += 1;
            all.begun += 1;
            drop(all);
            self.runs = true;
            self.begun += 1;
        }
        self.others()
    }

    fn end(&mut self) -> OtherTrials {
        if self.runs {
            self.all().running -= 1;
            self.runs = false;
        }
        self.others()
    }
}

impl Drop for ConnectionTrials {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads AuthDNS's counters from the status socket at `path`.
///
/// # Errors
/// Returns an error if no AuthDNS serves the socket.
pub fn read(path: &Path) -> io::Result<AuthCounters> {
    line(&mut connect(path)?)
}

/// A running trial, registered at an AuthDNS so that other testers detect it. The trial ends with [`Session::end`], or
/// when the value is dropped.
pub struct Session {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Session {
    /// Begins a trial at the AuthDNS that serves the status socket `path`. Also returns AuthDNS's counters.
    ///
    /// # Errors
    /// Returns any error from [`read`].
    pub fn begin(path: &Path) -> io::Result<(Session, AuthCounters)> {
        let attempt = || -> io::Result<(Session, AuthCounters)> {
            let mut session = Session { stream: connect(path)?, path: path.to_owned() };
            session.write(BEGIN)?;
            line(&mut session.stream)?;
            let before = line(&mut session.stream)?;
            Ok((session, before))
        };
        let is_early = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe)
        };
        let mut last = attempt();
        for _ in 1..ATTEMPTS {
            match last {
                Err(error) if is_early(&error) => last = attempt(),
                other => return other,
            }
        }
        last
    }

    /// Ends the trial and returns the counters. If AuthDNS was restarted during the trial, the counters begin at the
    /// restart.
    ///
    /// # Errors
    /// Returns any error from [`read`].
    pub fn end(mut self) -> io::Result<AuthCounters> {
        let ended = self.write(END).and_then(|()| line(&mut self.stream));
        ended.or_else(|_| read(&self.path))
    }

    fn write(&mut self, request: &str) -> io::Result<()> {
        writeln!(self.stream.get_mut(), "{request}")
    }
}

fn connect(path: &Path) -> io::Result<BufReader<UnixStream>> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn line(stream: &mut BufReader<UnixStream>) -> io::Result<AuthCounters> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    serde_json::from_str(&line).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use testbed::wait_until;

    use super::*;

    /// Returns a status socket that serves only trials, and its path.
    fn served() -> (Served, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status");
        let socket = StatusSocket::bind(&path).unwrap();
        serve(&socket, |other_trials| AuthCounters { other_trials, ..AuthCounters::default() })
            .unwrap();
        (Served { _socket: socket, _folder: folder }, path)
    }

    /// The socket is dropped before its folder.
    struct Served {
        _socket: StatusSocket,
        _folder: tempfile::TempDir,
    }

    fn others(counters: &AuthCounters) -> (u64, u64) {
        (counters.other_trials.running, counters.other_trials.begun)
    }

    #[test]
    fn concurrent_trials_detect_each_other() {
        let (_served, path) = served();
        let (first, before) = Session::begin(&path).unwrap();
        assert_eq!(others(&before), (0, 0));
        let (second, between) = Session::begin(&path).unwrap();
        assert_eq!(others(&between), (1, 1), "the first runs");
        assert_eq!(others(&second.end().unwrap()), (1, 1));
        assert_eq!(others(&read(&path).unwrap()), (1, 2));
        assert_eq!(others(&first.end().unwrap()), (0, 1), "the second began meanwhile");
    }

    #[test]
    fn consecutive_trials_do_not_conflict() {
        let (_served, path) = served();
        for number in 0..20 {
            let (session, before) = Session::begin(&path).unwrap();
            // A reader of the counters is not a trial.
            read(&path).unwrap();
            let after = session.end().unwrap();
            assert_eq!((others(&before), others(&after)), ((0, number), (0, number)));
        }
    }

    #[test]
    fn a_client_that_only_reads_gets_one_line() {
        let (_served, path) = served();
        let mut all = String::new();
        UnixStream::connect(&path).unwrap().read_to_string(&mut all).unwrap();
        assert_eq!(all.lines().count(), 1);
        serde_json::from_str::<AuthCounters>(&all).unwrap();
    }

    #[test]
    fn a_trial_whose_tester_died_does_not_run() {
        let (_served, path) = served();
        let (session, _) = Session::begin(&path).unwrap();
        assert_eq!(others(&read(&path).unwrap()), (1, 1));
        drop(session);
        wait_until("its trial ends", || others(&read(&path).unwrap()) == (0, 1));
    }

    #[test]
    fn a_restart_during_a_trial_shows_in_its_counters() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status");
        // Serves one connection with this number of requests.
        let serve_once = |start: u32, requests: usize| {
            let listener = UnixListener::bind(&path).unwrap();
            thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                let counters = AuthCounters { start, ..AuthCounters::default() };
                let line = serde_json::to_string(&counters).unwrap();
                writeln!(&stream, "{line}").unwrap();
                for request in BufReader::new(&stream).lines().take(requests) {
                    request.unwrap();
                    writeln!(&stream, "{line}").unwrap();
                }
            })
        };
        let killed = serve_once(7, 1);
        let (session, before) = Session::begin(&path).unwrap();
        killed.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        let again = serve_once(8, 0);
        assert_eq!((before.start, session.end().unwrap().start), (7, 8));
        again.join().unwrap();
    }
}
