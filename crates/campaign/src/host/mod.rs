//! The hosts of a campaign: what can be asked of one, and a handle on what runs there.
//!
//! ```text
//!                  ┌─ pipe ─────────► dns64bench agent      this machine, or a namespace of it
//! Machine ─ Link ──┼─ ssh's stdio ──► dns64bench agent      another host
//!                  └─ ssh's stdio ──► sh                    a host that has no dns64bench
//! ```
//!
//! Nothing listens. When the pipe or the connection ends, whatever was started over it is ended.

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

/// How much of a log is quoted when its server has died.
const TAIL: u64 = 2_000;
/// How long a host may take for a request, besides what the request itself waits for.
const REQUEST: Duration = Duration::from_secs(30);
/// How long a host may take until it says what it is; ssh itself gives up after 15 s.
const GREETING: Duration = Duration::from_secs(30);
/// How much of a log is copied from another host.
const WHOLE: u64 = 1 << 20;
/// The file of CPU times is not longer than this, also on hosts with thousands of CPUs; octets.
const CPU_TIMES: u64 = 4 << 20;

/// What a host is asked; paths are below its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Writes a file, and the folders above it.
    Write {
        /// Its path on the host.
        path: PathBuf,
        /// The text that it will hold.
        text: String,
    },
    /// The end of a file; nothing where there is none.
    Read {
        /// Its path on the host.
        path: PathBuf,
        /// How many octets at the most.
        last: u64,
    },
    /// Where a program is.
    Find {
        /// Its name or path.
        program: PathBuf,
    },
    /// Runs a command that ends soon.
    Run {
        /// The program and its arguments; no shell reads them.
        words: Vec<String>,
        /// When it ends at the latest.
        limit: Duration,
    },
    /// Starts a command that runs for long.
    Start {
        /// The program and its arguments; no shell reads them.
        words: Vec<String>,
        /// On which CPUs; none: any.
        cpus: Vec<usize>,
        /// Where its output goes.
        log: PathBuf,
        /// Where its standard output goes, if not there too.
        output: Option<PathBuf>,
    },
    /// Whether what was started is still running, after waiting for its end.
    Look {
        /// The id from its start.
        id: u32,
        /// How long to wait for its end.
        wait: Duration,
    },
    /// CPU time of processes with all that descend from them.
    Cpu {
        /// Ids of the processes, as the host's kernel numbers them.
        ids: Vec<u32>,
    },
    /// CPU time of all other programs on the host.
    Others {
        /// Ids of our processes, which do not count, as the host's kernel numbers them.
        ours: Vec<u32>,
    },
    /// On which CPUs the threads of processes, with all that descend from them, may run.
    Threads {
        /// Ids of the processes, as the host's kernel numbers them.
        ids: Vec<u32>,
    },
    /// The smallest CPU quota of processes with all that descend from them.
    Quota {
        /// Ids of the processes, as the host's kernel numbers them.
        ids: Vec<u32>,
    },
    /// Ends what was started.
    Stop {
        /// The id from its start.
        id: u32,
    },
    /// What AuthDNS has been asked.
    Counters {
        /// The path of AuthDNS's status socket on the host.
        socket: PathBuf,
    },
    /// Whether a server answers, with whatever, on the host itself.
    Answers {
        /// Address and port of the server.
        server: SocketAddr,
    },
    /// Page allocations, NUMA node by NUMA node.
    Numa,
    /// What its wall clock says.
    Clock,
}

impl Request {
    /// How long the request itself waits on its host.
    fn waits(&self) -> Duration {
        match self {
            Request::Look { wait, .. } => *wait,
            // `timeout` sends SIGKILL 5 s after its end.
            Request::Run { limit, .. } => *limit + Duration::from_secs(5),
            _ => Duration::ZERO,
        }
    }
}

/// What a host says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// What was asked for is done, and there is nothing to tell.
    Done,
    /// The text that was wanted.
    Text(String),
    /// Where something is, if anywhere.
    Found(Option<PathBuf>),
    /// How a command ended, and all that it printed.
    Ran {
        /// Whether its status was 0.
        success: bool,
        /// What it printed on standard output and standard error.
        output: String,
    },
    /// The id of what was started.
    Started(u32),
    /// It is still running, or ended as told.
    State(Option<Ended>),
    /// CPU time of processes so far, in seconds.
    Seconds(f64),
    /// CPU time of other programs so far, in seconds; `None` where the host does not show them.
    Others(Option<f64>),
    /// A CPU quota in thousandths of a CPU, if there is one.
    Quota(Option<u64>),
    /// Sets of CPUs, and how many threads may run on each.
    Threads(Vec<Allowed>),
    /// What AuthDNS has counted so far.
    Counters(Box<AuthCounters>),
    /// Whether there was an answer.
    Answered(bool),
    /// Counters of NUMA nodes, where the kernel has them.
    Numa(Option<Numa>),
    /// The wall clock, in nanoseconds since 1970-01-01 UTC.
    Clock(Nanos),
    /// It could not be done, and why.
    Refused(String),
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Whether its status was 0.
    pub success: bool,
    /// Its status; absent where a signal ended it.
    pub status: Option<i32>,
    /// How it ended, in words: an exit status or a signal.
    pub how: String,
}

/// What an agent says first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    /// Version of its program, which must be that of this one.
    pub version: String,
    /// Where its program is.
    pub program: PathBuf,
    /// The folder on the host for files of this run.
    pub folder: PathBuf,
    /// A folder for sockets, with a short name, which ends with the agent.
    pub scratch: PathBuf,
    /// Tells its machine from others; empty where it is not known.
    #[serde(default)]
    pub boot_id: String,
    /// The facts of `check` about its host.
    pub environment: Environment,
}

/// Why a host cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The host cannot be reached.
    #[error("host {host} cannot be reached: {why}")]
    Unreachable {
        /// As the plan calls it.
        host: String,
        /// What ssh or the system said.
        why: String,
    },
    /// Another version of this program.
    #[error(
        "host {host} has dns64bench {theirs}, this is {ours}: install the same build on all hosts"
    )]
    Version {
        /// As the plan calls it.
        host: String,
        /// The version of dns64bench on the host.
        theirs: String,
        /// The version of this program.
        ours: &'static str,
    },
    /// The connection to the host, or the agent there, has ended.
    #[error(
        "the connection to host {host} is lost: {why}; `dns64bench campaign resume` goes on when it is back"
    )]
    Lost {
        /// As the plan calls it.
        host: String,
        /// What ssh or the system said.
        why: String,
    },
    /// It could not do what was asked.
    #[error("host {host} cannot {what}: {why}")]
    Refused {
        /// As the plan calls it.
        host: String,
        /// What the host was asked to do.
        what: String,
        /// What the host said.
        why: String,
    },
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// A way to a host.
trait Link {
    /// Asks, and waits for the reply; an error if there is none within `limit`, or the user wants
    /// to stop.
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, PipeError>;
}

/// A host. Clones mean the same one.
#[derive(Clone)]
pub struct Machine {
    host: Rc<str>,
    link: Rc<RefCell<Box<dyn Link>>>,
    greeting: Rc<Greeting>,
    /// The run folder, if the host's own folder is another one.
    copies: Option<Rc<Path>>,
    interruption: Interruption,
}

impl Machine {
    /// What it said first; a host without dns64bench has the facts that a shell can find.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// As the plan calls it.
    pub fn name(&self) -> &str {
        &self.host
    }

    /// The host's folder for `path`, which is below the run folder.
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

    /// An error if the user wants to stop; for loops of requests that are short.
    ///
    /// # Errors
    /// [`HostError::Interrupted`] only.
    pub fn check(&self) -> Result<(), HostError> {
        if self.interruption.is_asked() { Err(HostError::Interrupted) } else { Ok(()) }
    }

    fn unexpected(&self, reply: &Reply) -> HostError {
        HostError::Lost {
            host: self.host.to_string(),
            why: format!("it answers something else: {}", plain(&format!("{reply:?}"), MESSAGE)),
        }
    }

    /// Writes a file below the host's folder, and the same into the run folder.
    ///
    /// # Errors
    /// If the host is gone or cannot.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), HostError> {
        self.ask(
            &format!("write {}", path.display()),
            &Request::Write { path: path.into(), text: text.into() },
        )?;
        self.copy(path, text);
        Ok(())
    }

    /// Keeps what another host has.
    fn copy(&self, path: &Path, text: &str) {
        if let Some(copies) = &self.copies {
            let copy = copies.join(path);
            // What cannot be kept is still on the host.
            let _ = copy.parent().map(fs::create_dir_all);
            let _ = fs::write(copy, text);
        }
    }

    /// The end of a file below the host's folder.
    ///
    /// # Errors
    /// If the host is gone or cannot.
    pub fn read(&self, path: &Path, last: u64) -> Result<String, HostError> {
        match self
            .ask(&format!("read {}", path.display()), &Request::Read { path: path.into(), last })?
        {
            Reply::Text(text) => Ok(text),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Where a program is.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn find(&self, program: &Path) -> Result<Option<PathBuf>, HostError> {
        match self.ask("look for a program", &Request::Find { program: program.into() })? {
            Reply::Found(found) => Ok(found),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs a command that ends by itself, or is ended after `limit`: whether its status was 0, and
    /// what it printed.
    ///
    /// # Errors
    /// If the host is gone or cannot.
    pub fn run(&self, words: &[String], limit: Duration) -> Result<(bool, String), HostError> {
        let what = format!("run {}", words.join(" "));
        let (program, arguments) =
            words.split_first().map_or(("", words), |(first, rest)| (first.as_str(), rest));
        let Some(program) = self.find(Path::new(program))? else {
            let why = format!("there is no program {program:?}");
            return Err(HostError::Refused { host: self.host.to_string(), what, why });
        };
        // Who does not heed SIGTERM gets SIGKILL, with its process group.
        let seconds = limit.as_secs().max(1).to_string();
        let bounded =
            ["timeout", "-k", "5", &seconds, &program.to_string_lossy()].map(str::to_owned);
        let begun = Instant::now();
        match self.ask(&what, &Request::Run { words: [&bounded, arguments].concat(), limit })? {
            Reply::Ran { success: false, output } if begun.elapsed() >= limit => Ok((
                false,
                format!("{output}(ended after {seconds} s, which is all that it is given)"),
            )),
            Reply::Ran { success, output } => Ok((success, output)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Starts a command that runs until the handle is dropped.
    ///
    /// # Errors
    /// If the host is gone or cannot.
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

    /// The command line that runs this program there.
    pub fn ours(&self, arguments: &[String]) -> Vec<String> {
        [&[self.greeting.program.to_string_lossy().into_owned()], arguments].concat()
    }

    /// CPU seconds of processes with all that descend from them.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn cpu(&self, ids: &[u32]) -> Result<f64, HostError> {
        match self.ask("read CPU times", &Request::Cpu { ids: ids.into() })? {
            Reply::Seconds(seconds) => Ok(seconds),
            other => Err(self.unexpected(&other)),
        }
    }

    /// CPU seconds so far of all programs but `ours`, this program and the kernel's threads; `None` if
    /// the host does not show all of its processes.
    ///
    /// # Errors
    /// If the host is gone.
    pub(crate) fn others(&self, ours: Vec<u32>) -> Result<Option<f64>, HostError> {
        match self.ask("read CPU times of other programs", &Request::Others { ours })? {
            Reply::Others(seconds) => Ok(seconds),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The smallest CPU quota of processes with all that descend from them, in thousandths of a CPU.
    ///
    /// # Errors
    /// If the host is gone.
    pub(crate) fn quota(&self, ids: &[u32]) -> Result<Option<u64>, HostError> {
        match self.ask("read CPU quotas", &Request::Quota { ids: ids.into() })? {
            Reply::Quota(quota) => Ok(quota),
            other => Err(self.unexpected(&other)),
        }
    }

    /// True if both are the same machine, perhaps in other namespaces; false where that is not known.
    pub(crate) fn is_same_as(&self, other: &Machine) -> bool {
        let id = &self.greeting.boot_id;
        !id.is_empty() && *id == other.greeting.boot_id
    }

    /// On which CPUs the threads of processes, with all that descend from them, may run; nothing of
    /// processes that are gone.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn threads(&self, ids: &[u32]) -> Result<Vec<Allowed>, HostError> {
        match self.ask("read the CPUs of threads", &Request::Threads { ids: ids.into() })? {
            Reply::Threads(allowed) => Ok(allowed),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Its CPUs; none where it does not say.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn topology(&self) -> Result<CpuTopology, HostError> {
        match self.run(&LOOK.map(str::to_owned), REQUEST) {
            Ok((_, printed)) => Ok(CpuTopology::parse(&printed)),
            Err(HostError::Refused { .. }) => Ok(CpuTopology::default()),
            Err(error) => Err(error),
        }
    }

    /// What AuthDNS has been asked.
    ///
    /// # Errors
    /// If the host is gone, or AuthDNS does not run.
    pub fn counters(&self, socket: &Path) -> Result<AuthCounters, HostError> {
        match self.ask("read AuthDNS's counters", &Request::Counters { socket: socket.into() })? {
            Reply::Counters(counters) => Ok(*counters),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Whether a server on the host answers there.
    ///
    /// # Errors
    /// If the host is gone or cannot ask.
    pub fn answers(&self, server: SocketAddr) -> Result<bool, HostError> {
        match self.ask("ask a server", &Request::Answers { server })? {
            Reply::Answered(answered) => Ok(answered),
            other => Err(self.unexpected(&other)),
        }
    }

    /// What the host's CPUs have done since it started; `None` where it does not tell.
    ///
    /// # Errors
    /// If the host is gone.
    pub(crate) fn cpu_times(&self) -> Result<Option<CpuTimes>, HostError> {
        match self.read(Path::new(cpu_time::FILE), CPU_TIMES) {
            Ok(text) => Ok(CpuTimes::parse(&text)),
            Err(HostError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What its wall clock says, in nanoseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// If the host is gone, or has no agent.
    pub fn clock(&self) -> Result<Nanos, HostError> {
        match self.ask("read the clock", &Request::Clock)? {
            Reply::Clock(now) => Ok(now),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Page allocations since the host started, NUMA node by NUMA node; `None` where the kernel
    /// does not count.
    ///
    /// # Errors
    /// If the host is gone.
    pub(crate) fn numa(&self) -> Result<Option<Numa>, HostError> {
        match self.ask("read NUMA counters", &Request::Numa)? {
            Reply::Numa(numa) => Ok(numa),
            other => Err(self.unexpected(&other)),
        }
    }
}

/// Something that runs on a host, until this is dropped.
pub struct Running {
    machine: Machine,
    id: u32,
    log: PathBuf,
}

impl Running {
    /// Its process id there.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The machine that the process runs on.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// How it ended, if it does within `wait`.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn ended(&self, wait: Duration) -> Result<Option<Ended>, HostError> {
        match self.machine.ask("look at a process", &Request::Look { id: self.id, wait })? {
            Reply::State(ended) => Ok(ended),
            other => Err(self.machine.unexpected(&other)),
        }
    }

    /// The end of its log, as far as it can be had, fit for a terminal.
    pub(crate) fn log_tail(&self) -> String {
        plain(&self.machine.read(&self.log, TAIL).unwrap_or_default(), TAIL as usize)
    }

    /// Where its log is on its host.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.machine.place(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A host that is gone has ended it itself.
        let _ = self.machine.ask("stop a process", &Request::Stop { id: self.id });
        if self.machine.copies.is_some()
            && let Ok(log) = self.machine.read(&self.log, WHOLE)
        {
            self.machine.copy(&self.log, &log);
        }
    }
}
