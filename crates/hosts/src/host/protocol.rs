//! Messages between a campaign and the agent on a host.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tester::authdns::counters::AuthCounters;
use units::Nanos;

use crate::environment::Environment;
use crate::numa::Numa;
use crate::place::Allowed;

/// A request to a host. Paths are relative to the host's folder for this run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Writes a file, and creates the folders above it.
    Write {
        /// Path of the file on the host.
        path: PathBuf,
        /// Contents of the file.
        text: String,
    },
    /// Reads the end of a file. The reply is empty if the file does not exist.
    Read {
        /// Path of the file on the host.
        path: PathBuf,
        /// Maximum number of octets to read.
        last: u64,
    },
    /// Finds a program on the host.
    Find {
        /// Name or path of the program.
        program: PathBuf,
    },
    /// Runs a short command, and waits until it ends.
    Run {
        /// Program and arguments, which are executed without a shell.
        words: Vec<String>,
        /// Time limit of the command.
        limit: Duration,
    },
    /// Starts a long-running command, such as a server.
    Start {
        /// Program and arguments, which are executed without a shell.
        words: Vec<String>,
        /// CPUs on which the command may run. If the list is empty, the command may run on any CPU.
        cpus: Vec<usize>,
        /// File for the command's standard error. It also receives standard output if `output` is `None`.
        log: PathBuf,
        /// File for the command's standard output. If it is `None`, standard output goes to `log`.
        output: Option<PathBuf>,
    },
    /// Waits up to `wait` for the end of a process, and returns whether the process is still
    /// running.
    #[serde(rename = "look")]
    Poll {
        /// Id of the process, from the reply to the request that started it.
        id: u32,
        /// Maximum time to wait for the end of the process.
        wait: Duration,
    },
    /// Returns the CPU time of processes and their descendants.
    Cpu {
        /// Ids of the processes on the host.
        ids: Vec<u32>,
    },
    /// Returns the CPU time of all programs on the host except the campaign's processes.
    Others {
        /// Ids of the campaign's processes on the host. Their CPU time is excluded.
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
        /// Id of the process, from the reply to the request that started it.
        id: u32,
    },
    /// Returns AuthDNS's counters.
    Counters {
        /// The path of AuthDNS's status socket on the host.
        socket: PathBuf,
    },
    /// Returns whether a server answers a query that is sent from the host itself. Only the RCODEs
    /// NOERROR and NXDOMAIN count as an answer.
    Answers {
        /// Address and port of the server.
        server: SocketAddr,
    },
    /// Returns the number of page allocations of each NUMA node.
    Numa,
    /// Returns the time of the wall clock.
    Clock,
}

impl Request {
    /// Returns the maximum duration of the wait or of the command that this request causes on the host; 0 if it causes
    /// neither.
    pub(crate) fn waits(&self) -> Duration {
        match self {
            Request::Poll { wait, .. } => *wait,
            // `timeout` sends SIGKILL 5 s after the time limit.
            Request::Run { limit, .. } => *limit + Duration::from_secs(5),
            _ => Duration::ZERO,
        }
    }
}

/// A reply from a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// The request succeeded and returns no data.
    Done,
    /// The text read from a file.
    Text(String),
    /// The path of a program, or `None` if the program was not found.
    Found(Option<PathBuf>),
    /// Result of a command that has ended.
    Ran {
        /// True if the exit status was 0.
        success: bool,
        /// Standard output and standard error of the command.
        output: String,
    },
    /// The id of the started process.
    Started(u32),
    /// Result of a process that has ended, or `None` if the process is still running.
    State(Option<Ended>),
    /// CPU time that the processes and their descendants have used so far, in seconds.
    Seconds(f64),
    /// CPU time that other programs have used so far, in seconds, or `None` if the host does not report it.
    Others(Option<f64>),
    /// Smallest CPU quota of the processes and their descendants, in thousandths of a CPU, or `None` if they have no
    /// quota.
    Quota(Option<u64>),
    /// Sets of CPUs, each with the number of threads that may run on these CPUs.
    Threads(Vec<Allowed>),
    /// AuthDNS's counters.
    Counters(Box<AuthCounters>),
    /// True if the server answered.
    Answered(bool),
    /// Page allocation counters of the NUMA nodes, or `None` if the kernel does not count page allocations.
    Numa(Option<Numa>),
    /// Time of the wall clock, in nanoseconds since 1970-01-01 UTC.
    Clock(Nanos),
    /// Reason why the request failed.
    Refused(String),
}

/// Result of a process that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// True if the exit status was 0.
    pub success: bool,
    /// Exit status; absent if a signal ended the process.
    pub status: Option<i32>,
    /// Description of how the process ended, for use in messages. It contains the exit status or the signal.
    pub how: String,
}

/// First message that an agent sends when it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    /// Version of dns64bench, which must be the same on all hosts.
    pub version: String,
    /// Path of dns64bench on the host.
    pub program: PathBuf,
    /// The folder on the host for files of this run.
    pub folder: PathBuf,
    /// A folder for sockets, which the agent removes when it exits. Its path is short, because the
    /// kernel limits the length of socket paths.
    pub scratch: PathBuf,
    /// Boot id of the kernel, which identifies the machine; empty if unknown.
    #[serde(default)]
    pub boot_id: String,
    /// Facts about the host, the same as in the output of `dns64bench check`.
    pub environment: Environment,
}
