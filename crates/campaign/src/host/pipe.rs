//! The way to an agent: its standard input and output, here or through ssh.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Greeting, HostError, Link, Machine, Reply, Request, shell};
use crate::lab::Host;
use crate::plan::SshHost;

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

struct AgentLink(Pipe);

impl Link for AgentLink {
    fn ask(&mut self, request: &Request) -> Result<Reply, String> {
        let mut line = serde_json::to_vec(request).map_err(|e| e.to_string())?;
        line.push(b'\n');
        self.0.write(&line)?;
        serde_json::from_str(&self.0.line()?).map_err(|e| e.to_string())
    }
}

/// The agent of a host of this machine, working in the run folder: in a namespace of the lab, or simply here.
///
/// # Errors
/// If it does not start.
pub fn agent_here(host: Host, in_lab: bool, run_folder: &Path) -> Result<Machine, HostError> {
    let name = host.word().to_owned();
    let unreachable = |why: String| HostError::Unreachable { host: name.clone(), why };
    let program = std::env::current_exe().map_err(|e| unreachable(e.to_string()))?;
    let mut command = Command::new(&program);
    if in_lab {
        command.args(["lab", "exec", host.word(), "--"]).arg(&program);
    }
    command.arg("agent").arg("--folder").arg(run_folder);
    greeted(&name, command, None)
}

/// Another host, over the user's ssh: its agent, or its shell where the plan says that it has no dns64bench. It works in
/// `folder` there, below the user's own, and what matters of it is copied into the run folder.
///
/// # Errors
/// If there is no way there, or no agent of our version, or no shell.
pub fn over_ssh(at: &SshHost, config: Option<&Path>, folder: &Path, run_folder: &Path) -> Result<Machine, HostError> {
    let mut command = ssh(&at.host, config);
    if !at.agent {
        command.arg("exec sh");
        return shell::greeted(&at.host, command, folder, Some(run_folder));
    }
    let program = at.program.clone().unwrap_or_else(|| "dns64bench".into());
    let words =
        [&program.to_string_lossy(), "agent", "--remove", "--folder", &folder.to_string_lossy()].map(shell::quoted);
    command.arg(words.join(" "));
    greeted(&at.host, command, Some(run_folder))
}

/// The system's ssh to a host, with the user's keys and configuration. It never asks, and notices within 15 s that the
/// connection is dead.
fn ssh(destination: &str, config: Option<&Path>) -> Command {
    let mut command = Command::new("ssh");
    if let Some(config) = config {
        command.arg("-F").arg(config);
    }
    for option in ["BatchMode=yes", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ConnectTimeout=15"] {
        command.args(["-o", option]);
    }
    command.args(["-T", "--", destination]);
    command
}

fn greeted(host: &str, command: Command, copies: Option<&Path>) -> Result<Machine, HostError> {
    let unreachable = |why: String| HostError::Unreachable { host: host.into(), why };
    let mut pipe = Pipe::open(command).map_err(unreachable)?;
    let line = pipe.line().map_err(|why| unreachable(format!("no dns64bench agent answers there: {why}")))?;
    let version =
        serde_json::from_str::<serde_json::Value>(&line).ok().and_then(|v| Some(v["version"].as_str()?.to_owned()));
    let ours = env!("CARGO_PKG_VERSION");
    let theirs = version.ok_or_else(|| unreachable(format!("what answers there is no agent: {line}")))?;
    if theirs != ours {
        return Err(HostError::Version { host: host.into(), theirs, ours });
    }
    let greeting: Greeting = serde_json::from_str(&line).map_err(|e| unreachable(e.to_string()))?;
    Ok(Machine {
        host: host.into(),
        link: Rc::new(RefCell::new(Box::new(AgentLink(pipe)))),
        greeting: Rc::new(greeting),
        copies: copies.map(Into::into),
    })
}
