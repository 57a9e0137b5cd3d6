//! Code paths whose instructions are counted, and the runs under callgrind that count them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use method::stats::{MeanAndDeviation, Summary};
use net::affinity::{allowed_cpus, pin_to};

use super::client::Load;
use super::count::{Count, Paths};
use crate::process::{self, Server, find};
use crate::servers::wait_until_listens;

/// Numbers of queries in the short load and in the long load.
const SHORT: u32 = 500;
const LONG: u32 = 3_500;
/// Number of names in the paths with a cache. The names are in the cache before the load begins.
const CACHED: u32 = 50;
/// Waiting time after which all timers for upstream queries in dns64d have expired. A pending timer costs instructions
/// in each iteration of the event loop.
const TIMERS_EXPIRED: Duration = Duration::from_secs(2);
/// Maximum number of parallel runs, each on a separate CPU.
const MOST_CPUS: usize = 2;
/// Time limit of a program that terminates.
const LIMIT: Duration = Duration::from_secs(60);
/// Function that is called by all threads that answer or send queries, and by no other threads.
const RECEIVE: &str = "recvmmsg";
/// Function by which the workers of dns64d wait for events.
const WAIT: &str = "epoll_wait";
/// First part of the names of callgrind's files.
const COUNTS: &str = "counts";

/// A program whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Dns64d,
    AuthDns,
    /// Sender and receiver of the Measurer, without its clock.
    Measurer,
}

impl Program {
    fn file(self) -> &'static str {
        match self {
            Program::Dns64d => "dns64d",
            Program::AuthDns => "dns64bench",
            Program::Measurer => "measurer-without-clock",
        }
    }
}

/// A code path whose instructions are counted.
struct CountedPath {
    /// Key in the counts file.
    name: &'static str,
    program: Program,
    in_flight: u32,
    is_cached: bool,
}

const PATHS: [CountedPath; 6] = [
    CountedPath::cached("dns64d-cached-1", 1),
    CountedPath::cached("dns64d-cached-50", 50),
    CountedPath::uncached("dns64d-uncached-1", Program::Dns64d, 1),
    CountedPath::uncached("dns64d-uncached-50", Program::Dns64d, 50),
    // With more queries in flight, the number of answers per loop iteration depends on the client's speed.
    CountedPath::uncached("authdns", Program::AuthDns, 1),
    CountedPath::uncached("measurer", Program::Measurer, LONG),
];

impl CountedPath {
    const fn cached(name: &'static str, in_flight: u32) -> CountedPath {
        CountedPath { name, program: Program::Dns64d, in_flight, is_cached: true }
    }

    const fn uncached(name: &'static str, program: Program, in_flight: u32) -> CountedPath {
        CountedPath { name, program, in_flight, is_cached: false }
    }

    /// Sends `queries` queries to a server.
    fn send(&self, queries: u32, server: SocketAddr) -> Result<()> {
        let in_flight = self.in_flight;
        if self.is_cached {
            Load { queries: CACHED, in_flight: 1, names: CACHED }.send(server)?;
            thread::sleep(TIMERS_EXPIRED);
            return Load { queries, in_flight, names: CACHED }.send(server);
        }
        Load { queries, in_flight, names: queries }.send(server)
    }
}

/// Counts the instructions of each path `rounds` times. Paths are omitted if their program is not in the folder
/// `programs`.
pub(super) fn count(programs: &Path, rounds: usize) -> Result<Paths> {
    let bench = Bench::start(programs)?;
    let is_there = |path: &&CountedPath| programs.join(path.program.file()).is_file();
    let runs = (0..rounds).flat_map(|_| PATHS.iter().filter(is_there));
    let mut cpus = allowed_cpus();
    cpus.truncate(MOST_CPUS);
    let (at_a_time, free) = (cpus.len(), Mutex::new(cpus));
    let counted = process::at_the_same_time(at_a_time, runs, |path| {
        let free = || free.lock().expect("no thread panics while it holds the lock");
        let cpu = free().pop().context("more runs than CPUs")?;
        let mut count = pin_to(cpu).map_err(Into::into).and_then(|()| bench.per_query(path));
        if let Err(error) = &count {
            println!("{}: counted again after an error: {error:#}", path.name);
            count = bench.per_query(path);
        }
        free().push(cpu);
        count.map(|count| (path.name, count)).context(path.name)
    });
    let counted = counted.into_iter().collect::<Result<Vec<_>>>()?;
    let of = |path: &CountedPath| {
        let rounds = counted.iter().filter(|(name, _)| *name == path.name);
        Count::of(&rounds.map(|(_, count)| *count).collect::<Vec<_>>())
            .map(|count| (path.name.to_owned(), count))
    };
    Ok(PATHS.iter().filter_map(of).collect())
}

impl Count {
    /// Returns the median and the scatter of the rounds, or `None` if there are no rounds.
    fn of(rounds: &[f64]) -> Option<Count> {
        let (summary, spread) = (Summary::of(rounds)?, MeanAndDeviation::of(rounds)?);
        let scatter = spread.stdev / spread.mean * 100.0;
        Some(Count {
            instructions: summary.median.round() as u64,
            scatter_percent: (scatter * 100.0).round() / 100.0,
        })
    }
}

/// Programs whose instructions are counted, and the servers that these programs need. The instructions of the servers
/// are not counted.
struct Bench {
    programs: PathBuf,
    folder: tempfile::TempDir,
    /// Address of the AuthDNS that dns64d queries.
    auth: SocketAddr,
    /// Address of the reference DUT that the Measurer queries.
    reference: SocketAddr,
    _servers: [Server; 2],
}

impl Bench {
    fn start(programs: &Path) -> Result<Bench> {
        let [auth, reference] = [free_address()?, free_address()?];
        let program = programs.join("dns64bench");
        let serve = |address: SocketAddr, words: &[&str]| -> Result<Server> {
            let listen = ["--listen", &address.to_string()];
            let server = Server::start(&program, &[words, &listen].concat())?;
            wait_until_listens(&[], address.port())?;
            Ok(server)
        };
        let servers = [
            serve(auth, &["auth", "--threads", "1"])?,
            serve(reference, &["reference-dut", "--capacity", "10000000"])?,
        ];
        Ok(Bench {
            programs: programs.into(),
            folder: tempfile::tempdir()?,
            auth,
            reference,
            _servers: servers,
        })
    }

    /// Returns the instructions per query of a path.
    fn per_query(&self, path: &CountedPath) -> Result<f64> {
        let [short, long] = [SHORT, LONG].map(|queries| self.instructions(path, queries));
        Ok((long? as f64 - short? as f64) / f64::from(LONG - SHORT))
    }

    /// Returns the number of instructions in one run of the path's program, from its start to its end.
    fn instructions(&self, path: &CountedPath, queries: u32) -> Result<u64> {
        let address = free_address()?;
        let listen = address.to_string();
        let run = Run::new(self, path.program)?;
        let load = || path.send(queries, address);
        match path.program {
            Program::Measurer => {
                run.to_end(&[&self.reference.to_string(), &queries.to_string()])?;
            }
            Program::AuthDns => {
                let words = ["auth", "--listen", &listen, "--threads", "1", "--aaaa-share", "1"];
                run.under_load(&words, address, load)?;
            }
            Program::Dns64d => {
                let file = run.folder.path().join("dns64d.toml");
                fs::write(&file, configuration(address, self.auth))?;
                run.under_load(&["--config", &file.to_string_lossy()], address, load)?;
            }
        }
        run.total()
    }
}

/// Returns a free address on loopback.
fn free_address() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, process::free_port()?).into())
}

/// Returns a configuration for dns64d.
fn configuration(listen: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "listen = ['{listen}']\nthreads = 1\n[access]\nallow = ['127.0.0.0/8']\n\
         [dns64]\nprefixes = [{{ prefix = '64:ff9b::/96', allow-non-global = true }}]\n\
         [dnssec]\nvalidate = false\n\
         [[upstream]]\naddress = '{}'\nport = {}\n",
        upstream.ip(),
        upstream.port()
    )
}

/// One run of a program under callgrind.
struct Run {
    folder: tempfile::TempDir,
    /// Command with its program, without the arguments of the counted program.
    command: Vec<String>,
}

impl Run {
    fn new(bench: &Bench, program: Program) -> Result<Run> {
        let folder = tempfile::tempdir_in(bench.folder.path())?;
        let mut command = callgrind(folder.path())?;
        command.push(text(&bench.programs.join(program.file())));
        Ok(Run { folder, command })
    }

    fn command(&self, arguments: &[&str]) -> Vec<String> {
        self.command.iter().cloned().chain(arguments.iter().map(|&word| word.to_owned())).collect()
    }

    /// Runs a program that terminates.
    fn to_end(&self, arguments: &[&str]) -> Result<()> {
        let command = self.command(arguments);
        process::output(&command[0], &command[1..], LIMIT).map(drop)
    }

    /// Runs a server while a client sends queries to it.
    fn under_load(
        &self,
        arguments: &[&str],
        address: SocketAddr,
        load: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let log = self.folder.path().join("log");
        let command = self.command(arguments);
        let server = Server::start_logged(&command[0], &command[1..], &log)?;
        wait_until_listens(&[], address.port())
            .and_then(|()| load())
            .with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        server.end().map(drop)
    }

    /// Returns the number of instructions of the threads that answer or send queries. Other threads are excluded,
    /// because their work depends on the clock.
    fn total(&self) -> Result<u64> {
        let total =
            threads(self.folder.path())?.iter().filter_map(|text| total_of_receiver(text)).sum();
        ensure!(total > 0, "no thread of the program calls {RECEIVE}");
        Ok(total)
    }
}

/// Returns the beginning of a command that runs a program under callgrind, which writes its counts into `folder`.
pub(crate) fn callgrind(folder: &Path) -> Result<Vec<String>> {
    let chrt = find("chrt").context("chrt not found (Debian package util-linux)")?;
    let valgrind = find("valgrind").context("valgrind not found (Debian package valgrind)")?;
    Ok(vec![
        "env".to_owned(),
        // The environment is empty, so that it is the same everywhere.
        "--ignore-environment".to_owned(),
        // With the batch policy, a process that wakes up does not preempt its client.
        text(&chrt),
        "--batch".to_owned(),
        "0".to_owned(),
        text(&valgrind),
        "--tool=callgrind".to_owned(),
        "--separate-threads=yes".to_owned(),
        format!("--callgrind-out-file={}", text(&folder.join(COUNTS))),
    ])
}

/// Returns the number of instructions of the busiest thread that waits for events. In dns64d with one worker and a load,
/// this thread is the worker. With AF_XDP it need not call [`RECEIVE`].
pub(crate) fn of_worker(folder: &Path) -> Result<u64> {
    let threads = threads(folder)?;
    let workers = threads.iter().filter(|text| text.contains(WAIT));
    workers.filter_map(|text| total(text)).max().context("callgrind wrote no counts of a worker")
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns callgrind's files in a folder, one for each thread.
fn threads(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(COUNTS) {
            files.push(fs::read_to_string(entry.path())?);
        }
    }
    Ok(files)
}

/// Returns the number of instructions in callgrind's file for a thread.
fn total(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// Same as [`total`], but only if the thread receives datagrams.
fn total_of_receiver(text: &str) -> Option<u64> {
    total(text).filter(|_| text.contains(RECEIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_that_receive_are_counted() {
        let file = |function: &str| {
            format!(
                "# callgrind format\nthread: 3\nevents: Ir\nfn=(1) {function}\n1 7\n\ntotals: 138\n"
            )
        };
        assert_eq!(total_of_receiver(&file("recvmmsg")), Some(138));
        assert_eq!(total_of_receiver(&file("epoll_wait")), None);
        assert_eq!(total_of_receiver("fn=(1) recvmmsg\n"), None);
    }

    #[test]
    fn the_busiest_thread_that_waits_is_the_worker() {
        let folder = tempfile::tempdir().unwrap();
        assert!(of_worker(folder.path()).is_err());
        for (name, function, total) in [
            ("counts-01", "poll", 999),
            ("counts-02", "epoll_wait", 7),
            ("counts-03", "epoll_wait", 138),
            ("log", "epoll_wait", 999),
        ] {
            let text = format!("fn=(1) {function}\n\ntotals: {total}\n");
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(of_worker(folder.path()).unwrap(), 138);
    }

    #[test]
    fn a_count_is_the_median_of_its_rounds() {
        let count = Count::of(&[100.0, 99.0, 104.4]).unwrap();
        assert_eq!(count, Count { instructions: 100, scatter_percent: 2.84 });
        assert_eq!(Count::of(&[]), None);
    }

    #[test]
    fn the_counts_file_has_every_path_and_no_other() {
        let kept = super::super::Counts::read().unwrap();
        let mut names = PATHS.map(|path| path.name);
        names.sort_unstable();
        assert!(kept.paths.keys().eq(names), "{:?}", kept.paths);
    }
}
