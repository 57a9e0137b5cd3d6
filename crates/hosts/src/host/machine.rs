//! A host of a campaign: requests to the host, and handles for programs that run on it.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use net::cpu_time::{self, CpuTimes};
use tester::authdns::counters::AuthCounters;
use units::Nanos;

use crate::host::pipe::PipeError;
use crate::host::protocol::{Ended, Greeting, Reply, Request};
use crate::interruption::Interruption;
use crate::numa::Numa;
use crate::place::Allowed;
use crate::text::{MESSAGE, plain};
use crate::topology::{CpuTopology, LIST_CPUS};

/// Maximum number of octets that are quoted from the end of a process's log.
const TAIL: u64 = 2_000;
/// Time limit for a request. If the host itself waits during the request, the time
/// [`Request::waits`] is added.
const REQUEST: Duration = Duration::from_secs(30);
/// Time limit for the first message of a host. ssh itself reports a failure after 15 s.
pub(super) const GREETING: Duration = Duration::from_secs(30);
/// Maximum number of octets that are copied from the end of a log on another host.
const WHOLE: u64 = 1 << 20;
/// Maximum number of octets that are read from the kernel's file of CPU times. This is enough for
/// thousands of CPUs.
const CPU_TIMES: u64 = 4 << 20;

/// Failure of the connection to a host, or of a request to the host.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The host cannot be reached.
    #[error("host {host} cannot be reached: {why}")]
    Unreachable {
        /// Name of the host in the plan.
        host: String,
        /// Error reported by ssh or the system.
        why: String,
    },
    /// The versions of dns64bench on the host and on this machine differ.
    #[error(
        "host {host} has dns64bench {theirs}, this is {ours}: install the same build on all hosts"
    )]
    Version {
        /// Name of the host in the plan.
        host: String,
        /// The version of dns64bench on the host.
        theirs: String,
        /// The version of dns64bench on this machine.
        ours: &'static str,
    },
    /// The connection to the host, or the agent there, has ended.
    #[error(
        "the connection to host {host} is lost: {why}; continue with `dns64bench campaign resume` when it is back"
    )]
    Lost {
        /// Name of the host in the plan.
        host: String,
        /// Error reported by ssh or the system.
        why: String,
    },
    /// The host reported that a request failed.
    #[error("host {host} cannot {what}: {why}")]
    Refused {
        /// Name of the host in the plan.
        host: String,
        /// Description of the request, such as `write FILE`.
        what: String,
        /// Reason for the failure, as reported by the host.
        why: String,
    },
    /// The user interrupted the campaign.
    #[error("interrupted")]
    Interrupted,
}

/// A connection to a host.
pub(crate) trait Connection {
    /// Sends a request and waits for the reply. Returns an error if no reply arrives within
    /// `limit`, or if the user interrupts the campaign.
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, PipeError>;
}

/// A host. Clones refer to the same host.
#[derive(Clone)]
pub struct Machine {
    pub(crate) host: Rc<str>,
    pub(crate) link: Rc<RefCell<Box<dyn Connection>>>,
    pub(crate) greeting: Rc<Greeting>,
    /// Run folder on this machine, into which the host's files are copied. `None` if the host uses the run folder
    /// itself.
    pub(crate) copies: Option<Rc<Path>>,
    pub(crate) interruption: Interruption,
}

impl Machine {
    /// Returns the first message of the host's agent. For a host without dns64bench, the message
    /// consists of facts that the host's shell reported.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Returns the name of the host in the plan.
    pub fn name(&self) -> &str {
        &self.host
    }

    /// Returns the path that a file has on the host. `path` is the file's path relative to the run folder.
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

    /// Returns an error if the user interrupted the campaign. Loops of short requests call this
    /// function between the requests.
    ///
    /// # Errors
    /// Returns only [`HostError::Interrupted`].
    pub fn check(&self) -> Result<(), HostError> {
        if self.interruption.is_requested() { Err(HostError::Interrupted) } else { Ok(()) }
    }

    fn unexpected(&self, reply: &Reply) -> HostError {
        HostError::Lost {
            host: self.host.to_string(),
            why: format!("unexpected reply: {}", plain(&format!("{reply:?}"), MESSAGE)),
        }
    }

    /// Writes a file below the host's folder, and stores a copy in the run folder.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable or the request fails.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), HostError> {
        self.ask(
            &format!("write {}", path.display()),
            &Request::Write { path: path.into(), text: text.into() },
        )?;
        self.copy(path, text);
        Ok(())
    }

    /// Stores a copy of a host's file in the run folder on this machine, unless the host uses the run folder itself.
    fn copy(&self, path: &Path, text: &str) {
        if let Some(copies) = self.copies.as_ref().filter(|copies| copies.exists()) {
            let copy = copies.join(path);
            // Errors are ignored, because the file remains on the host.
            let _ = copy.parent().map(fs::create_dir_all);
            let _ = fs::write(copy, text);
        }
    }

    /// Reads the end of a file below the host's folder.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable or the request fails.
    pub fn read(&self, path: &Path, last: u64) -> Result<String, HostError> {
        match self
            .ask(&format!("read {}", path.display()), &Request::Read { path: path.into(), last })?
        {
            Reply::Text(text) => Ok(text),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the path of a program on the host, or `None` if the program is not found.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub fn find(&self, program: &Path) -> Result<Option<PathBuf>, HostError> {
        match self.ask("find a program", &Request::Find { program: program.into() })? {
            Reply::Found(found) => Ok(found),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs a command, and ends it if it is still running after `limit`. Returns true if the exit status was 0,
    /// together with the command's output.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable or the request fails.
    pub fn run(&self, words: &[String], limit: Duration) -> Result<(bool, String), HostError> {
        let what = format!("run {}", words.join(" "));
        let (program, arguments) =
            words.split_first().map_or(("", words), |(first, rest)| (first.as_str(), rest));
        let Some(program) = self.find(Path::new(program))? else {
            let why = format!("program {program:?} not found");
            return Err(HostError::Refused { host: self.host.to_string(), what, why });
        };
        // `timeout` sends SIGTERM to the process group after the limit, and SIGKILL 5 s later.
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

    /// Starts a command. The command is ended when the returned handle is dropped.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable or the request fails.
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

    /// Returns the command line that runs dns64bench with `arguments` on the host.
    pub fn ours(&self, arguments: &[String]) -> Vec<String> {
        [&[self.greeting.program.to_string_lossy().into_owned()], arguments].concat()
    }

    /// Returns the CPU time, in seconds, of the processes `ids` and of their descendants.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub fn cpu(&self, ids: &[u32]) -> Result<f64, HostError> {
        match self.ask("read CPU times", &Request::Cpu { ids: ids.into() })? {
            Reply::Seconds(seconds) => Ok(seconds),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the CPU time that other programs have used so far, in seconds. The sum excludes dns64bench, kernel
    /// threads, and the processes `ours`. Returns `None` if the host does not report all of its processes.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub fn others(&self, ours: Vec<u32>) -> Result<Option<f64>, HostError> {
        match self.ask("read CPU times of other programs", &Request::Others { ours })? {
            Reply::Others(seconds) => Ok(seconds),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the smallest CPU quota, in thousandths of a CPU, among those of the processes `ids` and of their
    /// descendants.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub fn quota(&self, ids: &[u32]) -> Result<Option<u64>, HostError> {
        match self.ask("read CPU quotas", &Request::Quota { ids: ids.into() })? {
            Reply::Quota(quota) => Ok(quota),
            other => Err(self.unexpected(&other)),
        }
    }

    /// True if `other` is on the same machine, possibly in a different network namespace. False if the machine of
    /// either host is unknown.
    pub fn is_same_as(&self, other: &Machine) -> bool {
        let id = &self.greeting.boot_id;
        !id.is_empty() && *id == other.greeting.boot_id
    }

    /// Returns the CPUs on which the threads of the processes `ids`, and of their descendants, may run. Processes that
    /// have ended are omitted.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub fn threads(&self, ids: &[u32]) -> Result<Vec<Allowed>, HostError> {
        match self.ask("read the CPUs of threads", &Request::Threads { ids: ids.into() })? {
            Reply::Threads(allowed) => Ok(allowed),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the CPU topology of the host. The topology is empty if the host does not report it.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub fn topology(&self) -> Result<CpuTopology, HostError> {
        match self.run(&LIST_CPUS.map(str::to_owned), REQUEST) {
            Ok((_, printed)) => Ok(CpuTopology::parse(&printed)),
            Err(HostError::Refused { .. }) => Ok(CpuTopology::default()),
            Err(error) => Err(error),
        }
    }

    /// Returns AuthDNS's counters.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable, or AuthDNS is not running.
    pub fn counters(&self, socket: &Path) -> Result<AuthCounters, HostError> {
        match self.ask("read AuthDNS's counters", &Request::Counters { socket: socket.into() })? {
            Reply::Counters(counters) => Ok(*counters),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns true if `server` answers a query that is sent from the host.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable or the request fails.
    pub fn answers(&self, server: SocketAddr) -> Result<bool, HostError> {
        match self.ask("query a server", &Request::Answers { server })? {
            Reply::Answered(answered) => Ok(answered),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the CPU times since the host started, or `None` if the host does not report them.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub fn cpu_times(&self) -> Result<Option<CpuTimes>, HostError> {
        match self.read(Path::new(cpu_time::FILE), CPU_TIMES) {
            Ok(text) => Ok(CpuTimes::parse(&text)),
            Err(HostError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the wall clock of the host, in nanoseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable, or has no agent.
    pub fn clock(&self) -> Result<Nanos, HostError> {
        match self.ask("read the clock", &Request::Clock)? {
            Reply::Clock(now) => Ok(now),
            other => Err(self.unexpected(&other)),
        }
    }

    /// For each NUMA node, returns the number of page allocations since the host started. Returns `None` if the kernel
    /// does not count page allocations.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub fn numa(&self) -> Result<Option<Numa>, HostError> {
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
    /// Returns the process id on the host.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the host on which the process runs.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Waits up to `wait` for the end of the process. Returns the result of the process, or `None` if it is still
    /// running.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub fn ended(&self, wait: Duration) -> Result<Option<Ended>, HostError> {
        match self.machine.ask("check a process", &Request::Poll { id: self.id, wait })? {
            Reply::State(ended) => Ok(ended),
            other => Err(self.machine.unexpected(&other)),
        }
    }

    /// Returns the end of the process's log, without characters that control a terminal. Returns an
    /// empty text if the log is not readable.
    pub fn log_tail(&self) -> String {
        plain(&self.machine.read(&self.log, TAIL).unwrap_or_default(), TAIL as usize)
    }

    /// Returns the path of the process's log on the host.
    pub fn log_path(&self) -> PathBuf {
        self.machine.place(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error is ignored: an unreachable host ends its processes itself.
        let _ = self.machine.ask("stop a process", &Request::Stop { id: self.id });
        if self.machine.copies.is_some()
            && let Ok(log) = self.machine.read(&self.log, WHOLE)
        {
            self.machine.copy(&self.log, &log);
        }
    }
}
