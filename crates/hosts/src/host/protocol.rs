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

/// A request to a host; paths are below its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
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
    #[serde(rename = "look")]
    Poll {
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
    pub(crate) fn waits(&self) -> Duration {
        match self {
            Request::Poll { wait, .. } => *wait,
            // `timeout` sends SIGKILL 5 s after the time limit.
            Request::Run { limit, .. } => *limit + Duration::from_secs(5),
            _ => Duration::ZERO,
        }
    }
}

/// A reply of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
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
    /// CPU time of other programs so far, in seconds, or `None` if the host does not report it.
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
