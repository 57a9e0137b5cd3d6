//! The hosts of a campaign: requests to a host, and a handle on its processes.
//!
//! ```text
//!                  ┌─ pipe ─────────► dns64bench agent      this machine, or a namespace of it
//! Machine ─ Link ──┼─ ssh's stdio ──► dns64bench agent      another host
//!                  └─ ssh's stdio ──► sh                    a host without dns64bench
//! ```
//!
//! Nothing listens on the network. When the pipe or the connection ends, everything that was
//! started over it is ended.

pub mod agent;
mod pipe;
mod shell;
mod ways;

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use method::units::Nanos;
use net::cpu_time::{self, CpuTimes};
use serde::{Deserialize, Serialize};
use tester::authdns::counters::AuthCounters;

use crate::environment::Environment;
use crate::interruption::Interruption;
use crate::numa::Numa;
use crate::place::Allowed;
use crate::text::{MESSAGE, plain};
use crate::topology::{CpuTopology, LOOK};
use pipe::PipeError;

pub(crate) use ways::{agent_here, over_ssh};

/// Quoted part of a dead server's log, in octets.
const TAIL: u64 = 2_000;
/// Time limit of a request, in addition to the time that the request itself waits for.
const REQUEST: Duration = Duration::from_secs(30);
/// Time limit for a host's greeting; ssh itself gives up after 15 s.
const GREETING: Duration = Duration::from_secs(30);
/// Copied part of a log on another host, in octets.
const WHOLE: u64 = 1 << 20;
/// Maximum size of the file of CPU times, also on hosts with thousands of CPUs; octets.
const CPU_TIMES: u64 = 4 << 20;

/// A request to a host; paths are below its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Writes a file, and creates the folders above it.
    Write {
        /// Its path on the host.
        path: PathBuf,
        /// Contents of the file.
        text: String,
    },
    /// Reads the end of a file; empty if there is no file.
    Read {
        /// Its path on the host.
        path: PathBuf,
        /// Maximum number of octets.
        last: u64,
    },
    /// Finds a program.
    Find {
        /// Its name or path.
        program: PathBuf,
    },
    /// Runs a short command.
    Run {
        /// The program and its arguments, without a shell.
        words: Vec<String>,
        /// Time limit.
        limit: Duration,
    },
    /// Starts a long-running command.
    Start {
        /// The program and its arguments, without a shell.
        words: Vec<String>,
        /// CPUs to run on; empty: any.
        cpus: Vec<usize>,
        /// File for its output.
        log: PathBuf,
        /// File for its standard output, if it differs from the log.
        output: Option<PathBuf>,
    },
    /// Returns whether a process is still running, after waiting for its end.
    Look {
        /// The id returned by its start.
        id: u32,
        /// Time to wait for its end.
        wait: Duration,
    },
    /// Returns the CPU time of processes and their descendants.
    Cpu {
        /// Ids of the processes on the host.
        ids: Vec<u32>,
    },
    /// Returns the CPU time of all other programs on the host.
    Others {
        /// Ids of the campaign's processes on the host, which do not count.
        ours: Vec<u32>,
    },
    /// Returns the CPUs on which the threads of processes and their descendants may run.
    Threads {
        /// Ids of the processes on the host.
        ids: Vec<u32>,
    },
    /// Returns the smallest CPU quota of processes and their descendants.
    Quota {
        /// Ids of the processes on the host.
        ids: Vec<u32>,
    },
    /// Ends a process.
    Stop {
        /// The id returned by its start.
        id: u32,
    },
    /// Returns AuthDNS's counters.
    Counters {
        /// The path of AuthDNS's status socket on the host.
        socket: PathBuf,
    },
    /// Returns whether a server answers a query from the host itself, with any response.
    Answers {
        /// Address and port of the server.
        server: SocketAddr,
    },
    /// Returns the page allocations by NUMA node.
    Numa,
    /// Returns the wall clock.
    Clock,
}

impl Request {
    /// Returns the time that the request itself waits on its host.
    fn waits(&self) -> Duration {
        match self {
            Request::Look { wait, .. } => *wait,
            // `timeout` sends SIGKILL 5 s after the time limit.
            Request::Run { limit, .. } => *limit + Duration::from_secs(5),
            _ => Duration::ZERO,
        }
    }
}

/// A reply of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Success without data.
    Done,
    /// The requested text.
    Text(String),
    /// The path of a program, if it was found.
    Found(Option<PathBuf>),
    /// Result of a short command.
    Ran {
        /// True if its status was 0.
        success: bool,
        /// Its standard output and standard error.
        output: String,
    },
    /// The id of the started process.
    Started(u32),
    /// State of a process: running, or ended in this way.
    State(Option<Ended>),
    /// CPU time of processes so far, in seconds.
    Seconds(f64),
    /// CPU time of other programs so far, in seconds; `None` if the host does not report it.
    Others(Option<f64>),
    /// A CPU quota in thousandths of a CPU, if there is one.
    Quota(Option<u64>),
    /// Sets of CPUs, with the number of threads that may run on each.
    Threads(Vec<Allowed>),
    /// AuthDNS's counters.
    Counters(Box<AuthCounters>),
    /// True if there was an answer.
    Answered(bool),
    /// Counters of NUMA nodes, if the kernel has them.
    Numa(Option<Numa>),
    /// The wall clock, in nanoseconds since 1970-01-01 UTC.
    Clock(Nanos),
    /// The request failed, with the reason.
    Refused(String),
}

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// True if its status was 0.
    pub success: bool,
    /// Its status; absent if a signal ended it.
    pub status: Option<i32>,
    /// Description of the end: an exit status or a signal.
    pub how: String,
}

/// First message of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    /// Version of dns64bench, which must be the same on all hosts.
    pub version: String,
    /// Path of its program.
    pub program: PathBuf,
    /// The folder on the host for files of this run.
    pub folder: PathBuf,
    /// A folder for sockets, with a short name, removed when the agent ends.
    pub scratch: PathBuf,
    /// Identifies its machine; empty if unknown.
    #[serde(default)]
    pub boot_id: String,
    /// Facts of its host, as reported by `check`.
    pub environment: Environment,
}

/// Error of a host.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The host cannot be reached.
    #[error("host {host} cannot be reached: {why}")]
    Unreachable {
        /// Name in the plan.
        host: String,
        /// Error of ssh or the system.
        why: String,
    },
    /// Another version of dns64bench.
    #[error(
        "host {host} has dns64bench {theirs}, this is {ours}: install the same build on all hosts"
    )]
    Version {
        /// Name in the plan.
        host: String,
        /// The version of dns64bench on the host.
        theirs: String,
        /// The version of this program.
        ours: &'static str,
    },
    /// The connection to the host, or the agent there, has ended.
    #[error(
        "the connection to host {host} is lost: {why}; continue with `dns64bench campaign resume` when it is back"
    )]
    Lost {
        /// Name in the plan.
        host: String,
        /// Error of ssh or the system.
        why: String,
    },
    /// The request failed.
    #[error("host {host} cannot {what}: {why}")]
    Refused {
        /// Name in the plan.
        host: String,
        /// The request.
        what: String,
        /// The reason.
        why: String,
    },
    /// The user interrupted the campaign.
    #[error("interrupted")]
    Interrupted,
}

/// A connection to a host.
trait Link {
    /// Sends a request and waits for the reply; an error if there is none within `limit`, or if the
    /// user interrupts.
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, PipeError>;
}

/// A host. Clones refer to the same host.
#[derive(Clone)]
pub struct Machine {
    host: Rc<str>,
    link: Rc<RefCell<Box<dyn Link>>>,
    greeting: Rc<Greeting>,
    /// The run folder, if it is not the host's folder.
    copies: Option<Rc<Path>>,
    interruption: Interruption,
}

impl Machine {
    /// Returns its greeting; for a host without dns64bench, it contains the facts that a shell can
    /// find.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Returns the name in the plan.
    pub fn name(&self) -> &str {
        &self.host
    }

    /// Returns the path on the host for `path`, which is below the run folder.
    pub fn place(&self, path: &Path) -> PathBuf {
        self.greeting.folder.join(path)
    }

    fn ask(&self, what: &str, request: &Request) -> Result<Reply, HostError> {
        let host = || self.host.to_string();
        let limit = REQUEST + request.waits();
        match self.link.borrow_mut().ask(request, limit) {
            Ok(Reply::Refused(why)) => Err(HostError::Refused {
                host: host(),
                what: what.into(),
                why: plain(&why, MESSAGE),
            }),
            Ok(reply) => Ok(reply),
            Err(PipeError::Gone(why)) => {
                Err(HostError::Lost { host: host(), why: plain(&why, MESSAGE) })
            }
            Err(PipeError::Interrupted) => Err(HostError::Interrupted),
        }
    }

    /// Returns an error if the user interrupted; for loops of short requests.
    ///
    /// # Errors
    /// [`HostError::Interrupted`] only.
    pub fn check(&self) -> Result<(), HostError> {
        if self.interruption.is_asked() { Err(HostError::Interrupted) } else { Ok(()) }
    }

    fn unexpected(&self, reply: &Reply) -> HostError {
        HostError::Lost {
            host: self.host.to_string(),
            why: format!("unexpected reply: {}", plain(&format!("{reply:?}"), MESSAGE)),
        }
    }

    /// Writes a file below the host's folder, and a copy into the run folder.
    ///
    /// # Errors
    /// If the host is unreachable or the request fails.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), HostError> {
        self.ask(
            &format!("write {}", path.display()),
            &Request::Write { path: path.into(), text: text.into() },
        )?;
        self.copy(path, text);
        Ok(())
    }

    /// Stores a copy of a file on another host in the run folder.
    fn copy(&self, path: &Path, text: &str) {
        if let Some(copies) = &self.copies {
            let copy = copies.join(path);
            // A copy that cannot be stored is still on the host.
            let _ = copy.parent().map(fs::create_dir_all);
            let _ = fs::write(copy, text);
        }
    }

    /// Reads the end of a file below the host's folder.
    ///
    /// # Errors
    /// If the host is unreachable or the request fails.
    pub fn read(&self, path: &Path, last: u64) -> Result<String, HostError> {
        match self
            .ask(&format!("read {}", path.display()), &Request::Read { path: path.into(), last })?
        {
            Reply::Text(text) => Ok(text),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Finds a program.
    ///
    /// # Errors
    /// If the host is unreachable.
    pub fn find(&self, program: &Path) -> Result<Option<PathBuf>, HostError> {
        match self.ask("find a program", &Request::Find { program: program.into() })? {
            Reply::Found(found) => Ok(found),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs a command that ends by itself, or is ended after `limit`. Returns whether its status
    /// was 0, and its output.
    ///
    /// # Errors
    /// If the host is unreachable or the request fails.
    pub fn run(&self, words: &[String], limit: Duration) -> Result<(bool, String), HostError> {
        let what = format!("run {}", words.join(" "));
        let (program, arguments) =
            words.split_first().map_or(("", words), |(first, rest)| (first.as_str(), rest));
        let Some(program) = self.find(Path::new(program))? else {
            let why = format!("program {program:?} not found");
            return Err(HostError::Refused { host: self.host.to_string(), what, why });
        };
        // A program that ignores SIGTERM gets SIGKILL, together with its process group.
        let seconds = limit.as_secs().max(1).to_string();
        let bounded =
            ["timeout", "-k", "5", &seconds, &program.to_string_lossy()].map(str::to_owned);
        let begun = Instant::now();
        match self.ask(&what, &Request::Run { words: [&bounded, arguments].concat(), limit })? {
            Reply::Ran { success: false, output } if begun.elapsed() >= limit => {
                Ok((false, format!("{output}(ended after its time limit of {seconds} s)")))
            }
            Reply::Ran { success, output } => Ok((success, output)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Starts a command that runs until the handle is dropped.
    ///
    /// # Errors
    /// If the host is unreachable or the request fails.
    pub fn start(
        &self,
        words: &[String],
        cpus: &[usize],
        log: &Path,
        output: Option<&Path>,
    ) -> Result<Running, HostError> {
        let request = Request::Start {
            words: words.into(),
            cpus: cpus.into(),
            log: log.into(),
            output: output.map(Into::into),
        };
        match self.ask(&format!("start {}", words.join(" ")), &request)? {
            Reply::Started(id) => Ok(Running { machine: self.clone(), id, log: log.into() }),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the command line that runs dns64bench there.
    pub fn ours(&self, arguments: &[String]) -> Vec<String> {
        [&[self.greeting.program.to_string_lossy().into_owned()], arguments].concat()
    }

    /// Returns the CPU seconds of processes and their descendants.
    ///
    /// # Errors
    /// If the host is unreachable.
    pub fn cpu(&self, ids: &[u32]) -> Result<f64, HostError> {
        match self.ask("read CPU times", &Request::Cpu { ids: ids.into() })? {
            Reply::Seconds(seconds) => Ok(seconds),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the CPU seconds so far of all programs except `ours`, dns64bench and kernel threads;
    /// `None` if the host does not report all of its processes.
    ///
    /// # Errors
    /// If the host is unreachable.
    pub(crate) fn others(&self, ours: Vec<u32>) -> Result<Option<f64>, HostError> {
        match self.ask("read CPU times of other programs", &Request::Others { ours })? {
            Reply::Others(seconds) => Ok(seconds),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the smallest CPU quota of processes and their descendants, in thousandths of a CPU.
    ///
    /// # Errors
    /// If the host is unreachable.
    pub(crate) fn quota(&self, ids: &[u32]) -> Result<Option<u64>, HostError> {
        match self.ask("read CPU quotas", &Request::Quota { ids: ids.into() })? {
            Reply::Quota(quota) => Ok(quota),
            other => Err(self.unexpected(&other)),
        }
    }

    /// True if both are the same machine, possibly in different namespaces; false if unknown.
    pub(crate) fn is_same_as(&self, other: &Machine) -> bool {
        let id = &self.greeting.boot_id;
        !id.is_empty() && *id == other.greeting.boot_id
    }

    /// Returns the CPUs on which the threads of processes and their descendants may run; empty for
    /// processes that have ended.
    ///
    /// # Errors
    /// If the host is unreachable.
    pub fn threads(&self, ids: &[u32]) -> Result<Vec<Allowed>, HostError> {
        match self.ask("read the CPUs of threads", &Request::Threads { ids: ids.into() })? {
            Reply::Threads(allowed) => Ok(allowed),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns its CPUs; empty if the host does not report them.
    ///
    /// # Errors
    /// If the host is unreachable.
    pub fn topology(&self) -> Result<CpuTopology, HostError> {
        match self.run(&LOOK.map(str::to_owned), REQUEST) {
            Ok((_, printed)) => Ok(CpuTopology::parse(&printed)),
            Err(HostError::Refused { .. }) => Ok(CpuTopology::default()),
            Err(error) => Err(error),
        }
    }

    /// Returns AuthDNS's counters.
    ///
    /// # Errors
    /// If the host is unreachable, or AuthDNS does not run.
    pub fn counters(&self, socket: &Path) -> Result<AuthCounters, HostError> {
        match self.ask("read AuthDNS's counters", &Request::Counters { socket: socket.into() })? {
            Reply::Counters(counters) => Ok(*counters),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns whether a server on the host answers there.
    ///
    /// # Errors
    /// If the host is unreachable or the request fails.
    pub fn answers(&self, server: SocketAddr) -> Result<bool, HostError> {
        match self.ask("query a server", &Request::Answers { server })? {
            Reply::Answered(answered) => Ok(answered),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the CPU times since the host started; `None` if the host does not report them.
    ///
    /// # Errors
    /// If the host is unreachable.
    pub(crate) fn cpu_times(&self) -> Result<Option<CpuTimes>, HostError> {
        match self.read(Path::new(cpu_time::FILE), CPU_TIMES) {
            Ok(text) => Ok(CpuTimes::parse(&text)),
            Err(HostError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns its wall clock, in nanoseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// If the host is unreachable, or has no agent.
    pub fn clock(&self) -> Result<Nanos, HostError> {
        match self.ask("read the clock", &Request::Clock)? {
            Reply::Clock(now) => Ok(now),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the page allocations since the host started, by NUMA node; `None` if the kernel does
    /// not count them.
    ///
    /// # Errors
    /// If the host is unreachable.
    pub(crate) fn numa(&self) -> Result<Option<Numa>, HostError> {
        match self.ask("read NUMA counters", &Request::Numa)? {
            Reply::Numa(numa) => Ok(numa),
            other => Err(self.unexpected(&other)),
        }
    }
}

/// A process on a host, which is ended when this value is dropped.
pub struct Running {
    machine: Machine,
    id: u32,
    log: PathBuf,
}

impl Running {
    /// Returns its process id there.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the machine of the process.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns how it ended, if it does within `wait`.
    ///
    /// # Errors
    /// If the host is unreachable.
    pub fn ended(&self, wait: Duration) -> Result<Option<Ended>, HostError> {
        match self.machine.ask("check a process", &Request::Look { id: self.id, wait })? {
            Reply::State(ended) => Ok(ended),
            other => Err(self.machine.unexpected(&other)),
        }
    }

    /// Returns the end of its log if it is readable, safe for a terminal.
    pub(crate) fn log_tail(&self) -> String {
        plain(&self.machine.read(&self.log, TAIL).unwrap_or_default(), TAIL as usize)
    }

    /// Returns the path of its log on its host.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.machine.place(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An unreachable host has ended the process itself.
        let _ = self.machine.ask("stop a process", &Request::Stop { id: self.id });
        if self.machine.copies.is_some()
            && let Ok(log) = self.machine.read(&self.log, WHOLE)
        {
            self.machine.copy(&self.log, &log);
        }
    }
}
