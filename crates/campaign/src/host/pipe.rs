//! A process whose standard input and output are a way to a host.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long the other side has to end what it started, several servers with 5 s each, before it is killed.
const GRACE: Duration = Duration::from_secs(20);

/// A process whose standard input and output we have. It gets no signals of our terminal, and ends when we do.
pub(super) struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Pipe {
    pub(super) fn open(mut command: Command) -> Result<Pipe, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("just piped"));
        Ok(Pipe { child, input, output: BufReader::new(output) })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("closed")?;
        input.write_all(bytes).and_then(|()| input.flush()).map_err(|e| self.why(&e.to_string()))
    }

    /// The next line, without its end.
    pub(super) fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        match self.output.read_until(b'\n', &mut line) {
            Ok(0) => Err(self.why("it says nothing more")),
            // Logs may hold anything.
            Ok(_) => Ok(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned()),
            Err(e) => Err(self.why(&e.to_string())),
        }
    }

    /// The status of the process tells more than a broken pipe.
    fn why(&mut self, known: &str) -> String {
        self.input = None;
        let ended = self.wait();
        ended.map_or_else(|| known.into(), |status| format!("{known} ({status})"))
    }
}

impl Pipe {
    /// Waits for the end of the process, killed if it takes too long.
    fn wait(&mut self) -> Option<ExitStatus> {
        let give_up = Instant::now() + GRACE;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < give_up => thread::sleep(Duration::from_millis(10)),
                _ => {
                    let _ = self.child.kill();
                    return self.child.wait().ok();
                }
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.input = None;
        self.wait();
    }
}
