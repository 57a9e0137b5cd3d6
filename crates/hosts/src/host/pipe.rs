//! A process that provides the connection to a host through its standard input and output. The
//! process cannot block the campaign: each reply is limited in size and time, and the user can
//! interrupt a wait.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::interruption::Interruption;
use crate::process::kill_left_over;
use crate::text::plain_line;

/// Time that an agent is given to end its processes before it is killed. An agent may run several
/// servers, and each is given 5 s to end.
const GRACE: Duration = Duration::from_secs(20);
/// Time that ssh is given to end after a failed connection, before it is killed. The other host
/// ends its processes by itself.
const FAR_GRACE: Duration = Duration::from_secs(2);
/// Time for which a pending request may continue after the user interrupts the campaign.
const INTERRUPTED: Duration = Duration::from_secs(2);
/// Interval in milliseconds at which waiting functions check whether the user interrupted the campaign.
const POLL_MS: u16 = 50;
/// Maximum size, in octets, of a reply from dns64bench on the other host. A reply may contain a log of 1 MiB, which takes
/// up to 6 MiB as JSON.
const MOST: usize = 8 << 20;
/// Time to wait for the last output on standard error after the process has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Maximum length of a line of standard error in octets. At most `STDERR_LINES` lines are shown.
const STDERR_LINE: u64 = 2_000;
const STDERR_LINES: usize = 200;

/// Reason why no reply was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PipeError {
    /// The process that provides the connection has ended, did not reply in time, or sent too much data. The connection
    /// is then closed.
    Gone(String),
    /// The user interrupted the campaign.
    Interrupted,
}

impl From<String> for PipeError {
    fn from(why: String) -> PipeError {
        PipeError::Gone(why)
    }
}

/// A process with piped standard input and output. The process receives no signals from this
/// terminal, such as the signal of Ctrl-C. When dns64bench ends, the standard input of the process
/// is closed, and the process therefore ends too.
pub(super) struct Pipe {
    child: Child,
    input: Option<File>,
    output: File,
    /// Thread that prints the process's standard error.
    forwarder: JoinHandle<()>,
    /// Received octets that have not been returned as a line yet.
    ahead: Vec<u8>,
    /// Number of octets received since the start of the pending request.
    taken: usize,
    deadline: Instant,
    interruption: Interruption,
    /// Time at which an interruption by the user was first noticed during the pending request.
    noticed: Option<Instant>,
    /// Error that closed the connection. All further requests fail with this error.
    failed: Option<PipeError>,
    /// Folder in which an agent on this host registers its child processes, so that they can be ended if the agent is
    /// killed. `None` for an agent on a different host.
    registry: Option<PathBuf>,
}

impl Pipe {
    /// Starts `command`. If the command is an agent on this host, `registry` is the folder in which the agent registers
    /// its child processes.
    pub(super) fn open(
        mut command: Command,
        interruption: &Interruption,
        registry: Option<PathBuf>,
    ) -> Result<Pipe, String> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
        let (input, output) =
            (child.stdin.take().expect("just piped"), child.stdout.take().expect("just piped"));
        let errors = child.stderr.take().expect("just piped");
        let forwarder = thread::spawn(|| forward(errors));
        let [input, output] = [OwnedFd::from(input), OwnedFd::from(output)];
        for end in [&input, &output] {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
                .map_err(|e| format!("{program}: {e}"))?;
        }
        Ok(Pipe {
            child,
            input: Some(input.into()),
            output: output.into(),
            forwarder,
            ahead: Vec::new(),
            taken: 0,
            deadline: Instant::now(),
            interruption: interruption.clone(),
            noticed: None,
            failed: None,
            registry,
        })
    }

    /// Starts a request. The request must be written and all lines of the reply must be read within
    /// `limit`.
    pub(super) fn begin(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
        self.taken = self.ahead.len();
        self.noticed = None;
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), PipeError> {
        let mut left = bytes;
        while !left.is_empty() {
            self.check()?;
            let Some(input) = &mut self.input else { return Err(PipeError::Gone("closed".into())) };
            match input.write(left) {
                Ok(n) => left = &left[n..],
                Err(e) if is_retryable(&e) => wait_for(input.as_fd(), PollFlags::POLLOUT),
                Err(e) => return Err(self.gone(&e.to_string())),
            }
        }
        Ok(())
    }

    /// Returns the next line of the process's output, without the newline.
    pub(super) fn line(&mut self) -> Result<String, PipeError> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.ahead[seen..].iter().position(|&octet| octet == b'\n') {
                let rest = self.ahead.split_off(seen + end + 1);
                let line = std::mem::replace(&mut self.ahead, rest);
                // Logs may contain octets that are not valid UTF-8.
                return Ok(String::from_utf8_lossy(&line[..line.len() - 1]).into_owned());
            }
            seen = self.ahead.len();
            self.check()?;
            self.read()?;
        }
    }

    /// Reads the available output of the process. If there is none, waits up to `POLL_MS` for
    /// output.
    fn read(&mut self) -> Result<(), PipeError> {
        let mut bytes = [0; 16 << 10];
        match self.output.read(&mut bytes) {
            Ok(0) => return Err(self.gone("it closed the connection")),
            Ok(n) => {
                self.ahead.extend_from_slice(&bytes[..n]);
                self.taken += n;
            }
            Err(e) if is_retryable(&e) => wait_for(self.output.as_fd(), PollFlags::POLLIN),
            Err(e) => return Err(self.gone(&e.to_string())),
        }
        if self.taken > MOST {
            return Err(
                self.fail(PipeError::Gone(format!("its reply is larger than {} MiB", MOST >> 20)))
            );
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), PipeError> {
        self.check_at(Instant::now())
    }

    /// Returns an error if the pending request must end at the time `now`. The cause is a failure, an interruption by
    /// the user, or the time limit of the request.
    fn check_at(&mut self, now: Instant) -> Result<(), PipeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.interruption.is_requested() {
            let noticed = *self.noticed.get_or_insert(now);
            if self.interruption.is_urgent() || now >= noticed + INTERRUPTED {
                return Err(self.fail(PipeError::Interrupted));
            }
        }
        if now >= self.deadline {
            return Err(self.fail(PipeError::Gone("no reply in time".into())));
        }
        Ok(())
    }

    /// Closes the connection. If the connection stayed open, a late reply could be mistaken for the
    /// reply to a later request.
    fn fail(&mut self, error: PipeError) -> PipeError {
        self.input = None;
        self.ahead = Vec::new();
        self.failed = Some(error.clone());
        error
    }

    /// Waits for the end of the process, and returns an error that contains its exit status. The exit status is more
    /// informative than an error such as "broken pipe".
    fn gone(&mut self, known: &str) -> PipeError {
        self.input = None;
        let ended = self.wait();
        let give_up = Instant::now() + LAST_WORDS;
        while !self.forwarder.is_finished() && Instant::now() < give_up {
            thread::sleep(Duration::from_millis(5));
        }
        let why = ended.map_or_else(|| known.into(), |status| format!("{known} ({status})"));
        self.fail(PipeError::Gone(why))
    }

    /// Waits for the end of the process. If the process does not end in time, kills it.
    fn wait(&mut self) -> Option<ExitStatus> {
        let far = self.registry.is_none() && self.failed.is_some();
        let give_up = Instant::now() + if far { FAR_GRACE } else { GRACE };
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < give_up && !self.interruption.is_urgent() => {
                    thread::sleep(Duration::from_millis(10));
                }
                _ => return self.kill(),
            }
        }
    }

    /// Kills the process that provides the connection, and ends all processes that it started on this host.
    fn kill(&mut self) -> Option<ExitStatus> {
        let _ = self.child.kill();
        let status = self.child.wait().ok();
        if let Some(registry) = &self.registry {
            // Processes that still remain are ended by the next run.
            let _ = kill_left_over(registry);
        }
        status
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.input = None;
        self.wait();
    }
}

/// Returns true if a failed call must be repeated, because it would have blocked or because a signal interrupted it.
fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Waits for at most `POLL_MS` until data can be read or written. Errors are ignored, because the
/// caller reads or writes again in any case.
fn wait_for(end: BorrowedFd<'_>, what: PollFlags) {
    let _ = poll(&mut [PollFd::new(end, what)], PollTimeout::from(POLL_MS));
}

/// Prints the standard error of the process, such as the reason why ssh fails.
fn forward(errors: ChildStderr) {
    let mut errors = BufReader::new(errors);
    for shown in 0.. {
        let mut line = Vec::new();
        match errors.by_ref().take(STDERR_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if shown < STDERR_LINES => {
                let text = plain_line(&String::from_utf8_lossy(&line), STDERR_LINE as usize);
                let _ = writeln!(io::stderr(), "{text}");
            }
            // Further lines are read and discarded. If they were not read, the pipe would become
            // full and block the process.
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, interruption: &Interruption) -> Pipe {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut pipe = Pipe::open(command, interruption, None).unwrap();
        pipe.begin(Duration::from_secs(30));
        pipe
    }

    fn why(result: Result<String, PipeError>) -> String {
        match result {
            Err(PipeError::Gone(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_come_one_by_one_until_the_end_and_its_status() {
        let mut pipe = shell("read a; echo \"1 $a\"; printf '2\\n3'; exit 4", &Interruption::new());
        pipe.write(b"x\n").unwrap();
        assert_eq!((pipe.line(), pipe.line()), (Ok("1 x".into()), Ok("2".into())));
        assert!(why(pipe.line()).contains("exit status: 4"));
        assert!(why(pipe.line()).contains("exit status: 4"), "the connection stays closed");
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut pipe = shell("exec cat /dev/zero", &Interruption::new());
        assert!(why(pipe.line()).contains("larger than 8 MiB"));
        assert!(pipe.ahead.capacity() == 0);
    }

    #[test]
    fn endless_short_lines_for_one_request_are_too() {
        let mut pipe = shell("exec yes", &Interruption::new());
        let last = loop {
            if let Err(error) = pipe.line() {
                break error;
            }
        };
        assert!(matches!(last, PipeError::Gone(why) if why.contains("larger than 8 MiB")));
    }

    #[test]
    fn a_silent_side_is_an_error_after_its_time() {
        let mut pipe = shell("exec sleep 1000", &Interruption::new());
        assert_eq!(pipe.check_at(pipe.deadline - Duration::from_nanos(1)), Ok(()));
        pipe.begin(Duration::ZERO);
        assert!(why(pipe.line()).contains("no reply in time"));
    }

    #[test]
    fn a_reader_that_does_not_read_does_not_block() {
        let mut pipe = shell("exec sleep 1000", &Interruption::new());
        pipe.begin(Duration::from_millis(200));
        let written = pipe.write(&vec![b'x'; 4 << 20]);
        assert!(matches!(written, Err(PipeError::Gone(_))), "{written:?}");
    }

    #[test]
    fn a_pending_request_ends_some_time_after_the_first_interrupt() {
        let interruption = Interruption::new();
        let mut pipe = shell("exec sleep 1000", &interruption);
        let now = Instant::now();
        assert_eq!(pipe.check_at(now), Ok(()));
        interruption.request();
        assert_eq!(pipe.check_at(now), Ok(()), "the interrupt is noticed");
        assert_eq!(pipe.check_at(now + INTERRUPTED - Duration::from_nanos(1)), Ok(()));
        assert_eq!(pipe.check_at(now + INTERRUPTED), Err(PipeError::Interrupted));
        assert_eq!(pipe.line(), Err(PipeError::Interrupted), "the connection stays failed");
    }

    #[test]
    fn a_pending_request_ends_with_the_second_interrupt() {
        let interruption = Interruption::new();
        let mut pipe = shell("exec sleep 1000", &interruption);
        let now = Instant::now();
        interruption.request();
        assert_eq!(pipe.check_at(now), Ok(()));
        interruption.request();
        assert_eq!(pipe.check_at(now), Err(PipeError::Interrupted));
    }
}
