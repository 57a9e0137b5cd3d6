//! Connections to a host: to an agent on this machine through a pipe, to an agent on another
//! machine over ssh, or to a shell over ssh.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::machine::{Connection, GREETING, HostError, Machine};
use crate::host::pipe::{Pipe, PipeError};
use crate::host::protocol::{Greeting, Reply, Request};
use crate::host::shell;
use crate::interruption::Interruption;
use crate::lab::Host;
use crate::text::plain_line;

/// Maximum number of characters that an error message quotes from the unexpected output of a host.
const SAID: usize = 200;

struct AgentLink(Pipe);

impl Connection for AgentLink {
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, PipeError> {
        self.0.begin(limit);
        let mut line = serde_json::to_vec(request).map_err(|e| e.to_string())?;
        line.push(b'\n');
        self.0.write(&line)?;
        Ok(serde_json::from_str(&self.0.line()?).map_err(|e| e.to_string())?)
    }
}

/// Starts the agent of `host` on this machine, with the run folder as the agent's folder. If
/// `in_lab` is true, the agent runs in the lab's network namespace for `host`.
///
/// # Errors
/// Returns an error if the agent does not start.
pub fn local_agent(
    host: Host,
    in_lab: bool,
    run_folder: &Path,
    interruption: &Interruption,
) -> Result<Machine, HostError> {
    let name = host.as_str().to_owned();
    let unreachable = |why: String| HostError::Unreachable { host: name.clone(), why };
    let program = std::env::current_exe().map_err(|e| unreachable(e.to_string()))?;
    let mut command = Command::new(&program);
    if in_lab {
        command.args(["lab", "exec", host.as_str(), "--"]).arg(&program);
    }
    command.arg("agent").arg("--folder").arg(run_folder);
    let pipe =
        Pipe::open(command, interruption, Some(run_folder.join("running"))).map_err(unreachable)?;
    greeted(&name, pipe, None, interruption)
}

/// Connects over ssh to an agent on a different host, or to a shell if the plan sets `agent = false`. The agent or
/// shell works in `folder`, relative to the user's home folder on that host. Files written to the host and the logs of
/// its processes are also stored in the run folder on this machine.
///
/// # Errors
/// Returns an error if the host is unreachable, if its dns64bench has a different version, or if it provides neither an
/// agent nor a shell.
pub fn over_ssh(
    at: &SshHost,
    config: Option<&Path>,
    folder: &Path,
    run_folder: &Path,
    interruption: &Interruption,
) -> Result<Machine, HostError> {
    let mut command = ssh(&at.host, config);
    if !at.agent {
        command.arg("exec sh");
        return shell::greeted(&at.host, command, folder, Some(run_folder), interruption);
    }
    let program = at.program.clone().unwrap_or_else(|| "dns64bench".into());
    let words =
        [&program.to_string_lossy(), "agent", "--remove", "--folder", &folder.to_string_lossy()]
            .map(shell::quoted);
    command.arg(words.join(" "));
    let unreachable = |why| HostError::Unreachable { host: at.host.clone(), why };
    let pipe = Pipe::open(command, interruption, None).map_err(unreachable)?;
    greeted(&at.host, pipe, Some(run_folder), interruption)
}

/// Returns an ssh command for a host, with the user's keys and configuration. The command never
/// prompts, and it detects a dead connection within 15 s.
fn ssh(destination: &str, config: Option<&Path>) -> Command {
    let mut command = Command::new("ssh");
    if let Some(config) = config {
        command.arg("-F").arg(config);
    }
    for option in
        ["BatchMode=yes", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ConnectTimeout=15"]
    {
        command.args(["-o", option]);
    }
    command.args(["-T", "--", destination]);
    command
}

fn greeted(
    host: &str,
    mut pipe: Pipe,
    copies: Option<&Path>,
    interruption: &Interruption,
) -> Result<Machine, HostError> {
    let unreachable = |why: String| HostError::Unreachable { host: host.into(), why };
    pipe.begin(GREETING);
    let line = pipe.line().map_err(|error| match error {
        PipeError::Gone(why) => unreachable(format!("no dns64bench agent answers there: {why}")),
        PipeError::Interrupted => HostError::Interrupted,
    })?;
    let version = serde_json::from_str::<serde_json::Value>(&line)
        .ok()
        .and_then(|v| Some(v["version"].as_str()?.to_owned()));
    let ours = crate::BUILD;
    let theirs = version.ok_or_else(|| {
        unreachable(format!(
            "its output does not begin with the agent's greeting: {}; start-up files of its shell must not print to \
             standard output",
            plain_line(&line, SAID)
        ))
    })?;
    if theirs != ours {
        let theirs = plain_line(&theirs, SAID);
        return Err(HostError::Version { host: host.into(), theirs, ours });
    }
    let greeting: Greeting = serde_json::from_str(&line).map_err(|e| unreachable(e.to_string()))?;
    Ok(Machine {
        host: host.into(),
        link: Rc::new(RefCell::new(Box::new(AgentLink(pipe)))),
        greeting: Rc::new(greeting),
        copies: copies.map(Into::into),
        interruption: interruption.clone(),
    })
}

/// A host reached over ssh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SshHost {
    /// Destination for ssh: `[user@]name`, or a name from the user's ssh configuration.
    pub host: String,
    /// Path of dns64bench on the host. By default, dns64bench is looked up in the host's `PATH`.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// True if dns64bench is installed on the host. Only the host of a DUT may lack dns64bench. In that case a shell on
    /// that host starts the DUT, and only the driver `custom` is supported.
    #[serde(default = "yes")]
    pub agent: bool,
}

fn yes() -> bool {
    true
}
