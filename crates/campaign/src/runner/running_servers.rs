//! The running servers of a trial: AuthDNS and the DUT.
//!
//! ```text
//! machine ─► RunningAuth::start ─► it listens ─► RunningDut::start ─► it listens, or `ready` succeeds ─► trials
//!                                                    │ ended, or silent for too long
//!                                                    └──► ServerError, with the end of its log
//! ```
//!
//! A server is ready when it answers, not when its process has started. The command and the
//! configuration file of a server are recorded for the report. The CPU placement of the DUT's
//! threads is read under load. If the Rust value of a server is dropped, the server is stopped, and
//! its large files are removed. The stop command of the server is used if there is one.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hosts::host::{HostError, Machine, Running};
use hosts::place::CpuPlacement;
use hosts::servers::{
    Checked, Driver, Operator, Program, Ready, Release, Serve, Setting, Task, Translate, Variant,
    ZONE_FILE,
};
use hosts::text::plain_line;
use tester::authdns::counters::AuthCounters;
use units::Share;

use crate::archive::{Archive, ArchiveError};
use crate::plan::{AuthPlan, DutPlan, Plan};
use crate::record::Configuration;
use crate::runner::deployment::Deployment;

/// Time limit for a server to answer after its start. The limit is long because loading a zone with
/// millions of names takes a long time.
const START: Duration = Duration::from_secs(60);
/// Time limit for writing a zone file with all names of a plan.
const WRITE: Duration = Duration::from_secs(600);
/// Number of AuthDNS servers that this process has started.
static STARTS: AtomicU32 = AtomicU32::new(0);
/// Maximum size of the trust anchors in octets.
const ANCHORS: u64 = 64 << 10;
/// Maximum length of a version text in characters.
const VERSION: usize = 200;
/// Polling interval for a server that is starting.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Error from starting or controlling a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The program of a server is missing.
    #[error("{name}: program {program} not found; install it, or set program = in the plan")]
    NotFound {
        /// The server's name.
        name: String,
        /// The program of the server.
        program: PathBuf,
    },
    /// A server did not start.
    #[error("{name} did not start: {why}")]
    NotStarted {
        /// The server's name.
        name: String,
        /// The reason why the server did not start.
        why: String,
        /// Last lines of the server's log.
        log: String,
        /// Path of the log on the server's host, or `None` if there is no log yet.
        log_path: Option<PathBuf>,
    },
    /// A host is unreachable.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The run folder cannot be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl ServerError {
    /// Creates the error for a server that did not start.
    pub(crate) fn not_started(name: &str, why: &dyn ToString, log: String) -> ServerError {
        ServerError::NotStarted { name: name.into(), why: why.to_string(), log, log_path: None }
    }

    /// Creates the error for a server that did not become ready although its process was started.
    fn did_not_come_up(name: &str, why: String, process: &Running) -> ServerError {
        let (log, log_path) = (process.log_tail(), Some(process.log_path()));
        ServerError::NotStarted { name: name.into(), why, log, log_path }
    }

    /// Returns the text of the error, with the path and the last lines of the server's log.
    pub(crate) fn with_log(&self) -> String {
        let mut text = self.to_string();
        if let ServerError::NotStarted { log_path: Some(path), .. } = self {
            text += &format!("; its log is {}", path.display());
        }
        let log = self.log().trim();
        if log.is_empty() { text } else { format!("{text}, and ends:\n{log}") }
    }

    /// Returns the last lines of the server's log; empty if the error contains no log.
    pub(crate) fn log(&self) -> &str {
        match self {
            ServerError::NotStarted { log, .. } => log,
            _ => "",
        }
    }

    /// Adds a further reason to the error.
    pub(crate) fn because(mut self, reason: &str) -> ServerError {
        if let ServerError::NotStarted { why, .. } = &mut self {
            why.push_str(&format!("; {reason}"));
        }
        self
    }

    /// If the server did not start, adds the output of a command to the server log that the error contains.
    fn said_by(self, said: &str) -> ServerError {
        match self {
            ServerError::NotStarted { name, why, log, log_path } => ServerError::NotStarted {
                name,
                why,
                log: format!("{log}\n{said}").trim().to_owned(),
                log_path,
            },
            other => other,
        }
    }

    /// Converts an error of a host into an error of a server. If the host refused the request, the
    /// server could not be started. Other errors, such as an unreachable host, are not caused by
    /// the server.
    fn from_host_error(name: &str) -> impl Fn(HostError) -> ServerError {
        move |error| match error {
            HostError::Refused { why, .. } => ServerError::not_started(name, &why, String::new()),
            other => other.into(),
        }
    }
}

/// Guard that removes large files of a server from the server's host when the guard is dropped.
/// Otherwise the files of each measurement point would fill the disk.
struct LargeFilesGuard {
    machine: Machine,
    files: Vec<String>,
}

impl LargeFilesGuard {
    /// Creates the guard for the files of a server that runs in the folder `place` on the host
    /// `machine`.
    fn of(machine: &Machine, place: &Path, files: &[&str]) -> LargeFilesGuard {
        let files = files.iter().map(|file| place.join(file).to_string_lossy().into_owned());
        LargeFilesGuard { machine: machine.clone(), files: files.collect() }
    }
}

impl Drop for LargeFilesGuard {
    fn drop(&mut self) {
        if !self.files.is_empty() {
            let words = [&["rm".to_owned(), "-f".into(), "--".into()], &self.files[..]].concat();
            // If the host is unreachable, the files remain there. This has no effect on results.
            let _ = self.machine.run(&words, START);
        }
    }
}

/// The names for which AuthDNS answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ServedNames {
    /// The names that trials query.
    OfTrials {
        /// Share of the trials' names that have an AAAA record (α).
        aaaa: Share,
    },
    /// The names that the conformance checks query.
    CheckAccess,
}

/// Access to an AuthDNS that answers for the names of the conformance checks.
struct CheckAccess {
    /// Path of the socket on which AuthDNS reports its received queries.
    status: PathBuf,
    /// Trust anchors of AuthDNS's signed zones, as lines of a zone file.
    anchors: Vec<String>,
}

/// A running AuthDNS: a server on each of the AuthDNS hosts.
pub(super) struct RunningAuth {
    /// The servers in the order of the hosts; never empty.
    servers: Vec<AuthServer>,
}

impl RunningAuth {
    /// Starts a server on each address in `listen`, and waits until all servers answer. The servers
    /// answer for the names in `names`. Each address belongs to the host with the same index. If
    /// there are fewer addresses than hosts, the last hosts are not used.
    ///
    /// # Errors
    /// Returns an error if one of the servers does not start.
    pub(super) fn start(
        deployment: &Deployment,
        plan: &Plan,
        archive: &Archive,
        listen: &[SocketAddr],
        names: ServedNames,
    ) -> Result<RunningAuth, ServerError> {
        let each =
            deployment.auths.iter().zip(listen).enumerate().map(|(number, (machine, &listen))| {
                AuthServer::start((number, machine), plan, archive, listen, names)
            });
        Ok(RunningAuth { servers: each.collect::<Result<_, _>>()? })
    }

    /// Returns the sum of the counters of all servers, or `None` if a server does not count
    /// queries.
    ///
    /// # Errors
    /// Returns an error if a host is unreachable, or a server has ended.
    pub(super) fn counters(&self) -> Result<Option<AuthCounters>, HostError> {
        let mut sum: Option<AuthCounters> = None;
        for server in &self.servers {
            let Some(counted) = server.counters()? else { return Ok(None) };
            match &mut sum {
                Some(sum) => sum.merge(&counted),
                None => sum = Some(counted),
            }
        }
        Ok(sum)
    }

    /// Returns the trust anchors of the signed zones, or `None` if the server does not answer for
    /// the names of the conformance checks.
    pub(super) fn anchors(&self) -> Option<&[String]> {
        self.servers[0].checks.as_ref().map(|checks| checks.anchors.as_slice())
    }

    /// Returns the path, on the server's host, of the socket on which the server reports received
    /// queries. Returns `None` if the server does not answer for the names of the conformance
    /// checks.
    pub(crate) fn checks_status(&self) -> Option<&Path> {
        self.servers[0].checks.as_ref().map(|checks| checks.status.as_path())
    }

    /// Returns the processes of the servers.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Running> {
        self.servers.iter().map(|server| &server.process)
    }

    /// Returns the address and port of each server.
    pub(crate) fn listens_on(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.listen).collect()
    }

    /// Returns the configuration of the first server. The configurations of the other servers
    /// differ only in their addresses.
    pub(super) fn configuration(&self) -> &Configuration {
        &self.servers[0].configuration
    }
}

/// A server on one of the AuthDNS hosts.
struct AuthServer {
    process: Running,
    /// Guard that removes the large files of the server. This field comes after `process`, so that
    /// the process has ended before its files are removed.
    _bulk: LargeFilesGuard,
    /// Status socket from which counters are read. `None` for servers without counters, and for
    /// servers that answer for the names of the conformance checks.
    status: Option<PathBuf>,
    /// Access to AuthDNS for the conformance checks; absent if the server answers for the names of
    /// trials.
    checks: Option<CheckAccess>,
    listen: SocketAddr,
    configuration: Configuration,
}

impl AuthServer {
    /// Starts a server on the address `listen` of a machine, and waits until it answers. `of` is
    /// the index of the machine among the AuthDNS hosts.
    fn start(
        (of, machine): (usize, &Machine),
        plan: &Plan,
        archive: &Archive,
        listen: SocketAddr,
        names: ServedNames,
    ) -> Result<AuthServer, ServerError> {
        let driver = plan.auth.driver.driver();
        let refused = ServerError::from_host_error(driver.name);
        let program = program(machine, driver.name, driver, plan.auth.program.as_deref())?;
        let operator = plan.auth.operator();
        let driver = driver.for_release(release(machine, driver, &operator, &program)?);
        // dns64bench's AuthDNS has no configuration file, so all of its starts use the same log
        // file.
        let (folder, log) = match driver.file {
            "" => {
                let log = if of == 0 { "auth.log".into() } else { format!("auth-{of}.log") };
                (PathBuf::from("servers"), Path::new("servers").join(log))
            }
            _ => {
                let folder = archive.server_folder(&format!("auth {}", driver.name))?;
                (folder.clone(), folder.join("log"))
            }
        };
        let place = machine.place(&folder);
        // Each start uses a new socket name, because a killed server leaves its socket behind.
        let number = STARTS.fetch_add(1, Ordering::Relaxed);
        let scratch = &machine.greeting().scratch;
        let status =
            (driver.ready == Ready::Status).then(|| scratch.join(format!("auth-{number}")));
        let (aaaa, anchors) = match names {
            ServedNames::OfTrials { aaaa } => (aaaa, None),
            ServedNames::CheckAccess => {
                (Share::ZERO, Some(scratch.join(format!("anchors-{number}"))))
            }
        };
        let cores = match plan.cpus.auth.len() {
            0 if plan.auth.driver.is_ours() => machine.greeting().environment.cpus,
            pinned => pinned.max(1),
        };
        let threads = plan.auth.threads.unwrap_or(cores);
        let (status_of, anchors_of) = (status.clone(), anchors.clone());
        let task = Serve { zone: ZONE_FILE.into(), aaaa, status: status_of, anchors: anchors_of };
        let setting = Setting { folder: &place, listen, cores, threads, operator: &operator, task };
        let text = driver.configuration(&setting);
        if !driver.file.is_empty() {
            machine.write(&folder.join(driver.file), &text).map_err(&refused)?;
            write_zone(machine, driver.name, &place.join(ZONE_FILE), plan, aaaa)?;
        }
        let words = driver.command(&setting, &program);
        let process = machine.start(&words, &plan.cpus.auth, &log, None).map_err(&refused)?;
        let configuration = Configuration { command: words, file: driver.file.into(), text };
        let _bulk = LargeFilesGuard::of(machine, &place, plan.auth.driver.bulk());
        let mut auth = AuthServer { process, _bulk, status, checks: None, listen, configuration };
        match anchors {
            Some(file) => auth.wait_for_checks(machine, driver.name, &file)?,
            None => auth.wait(driver.name, &mut || auth.is_ready(machine, listen))?,
        }
        Ok(auth)
    }

    /// Waits until a server for the names of the conformance checks has written its trust anchors, and then reads them.
    /// The server writes this file as a whole, after it has created its sockets.
    fn wait_for_checks(
        &mut self,
        machine: &Machine,
        name: &str,
        anchors: &Path,
    ) -> Result<(), ServerError> {
        let status = self.status.take().unwrap_or_default();
        let look = ["test", "-s", &anchors.to_string_lossy()].map(str::to_owned);
        self.wait(name, &mut || {
            machine
                .run(&look, START)
                .map(|(is_there, _)| is_there)
                .map_err(ServerError::from_host_error(name))
        })?;
        let text = machine.read(anchors, ANCHORS)?;
        let anchors = text.lines().map(str::to_owned).collect();
        self.checks = Some(CheckAccess { status, anchors });
        Ok(())
    }

    /// Waits until the function `is_ready` returns true.
    fn wait(
        &self,
        name: &str,
        is_ready: &mut dyn FnMut() -> Result<bool, ServerError>,
    ) -> Result<(), ServerError> {
        let ended = || Ok(self.process.ended(Duration::ZERO)?.map(|ended| ended.how));
        wait_until_ready(name, is_ready, &ended, &self.process)
    }

    fn is_ready(&self, machine: &Machine, listen: SocketAddr) -> Result<bool, ServerError> {
        match &self.status {
            // The server answers on its status socket as soon as it is ready.
            Some(status) => match machine.counters(status) {
                Ok(_) => Ok(true),
                Err(HostError::Refused { .. }) => Ok(false),
                Err(other) => Err(other.into()),
            },
            None => Ok(machine.answers(listen)?),
        }
    }

    /// Returns the server's counters, or `None` if it does not count queries.
    fn counters(&self) -> Result<Option<AuthCounters>, HostError> {
        self.status.as_ref().map(|status| self.process.machine().counters(status)).transpose()
    }
}

/// A running DUT.
pub(super) struct RunningDut {
    process: Running,
    /// Guard that removes the large files of the server. This field comes after `process`, so that
    /// the process has ended before its files are removed.
    _bulk: LargeFilesGuard,
    /// Command that stops the server; may be empty. If there is a command, the started process may
    /// exit while the server keeps running.
    stop: Vec<String>,
    /// Ids of the server's processes. Their CPU time and threads are observed.
    cpu_ids: RefCell<Vec<u32>>,
    /// Command that prints the ids of the server's processes. No command is needed (empty) if the
    /// started process is the server.
    cpu_pids: Vec<String>,
    /// The CPU placement of the DUT as configured, without observations from trials.
    place: CpuPlacement,
    /// The CPUs that the host has; empty if unknown.
    existing: BTreeSet<usize>,
    configuration: Configuration,
}

impl RunningDut {
    /// Writes the configuration of a DUT and starts the DUT. `cores` is the default number of
    /// threads. `cpus` are the CPUs that the DUT is confined to; an empty list means any CPU. For
    /// conformance checks, `checked` contains the variant of the configuration and AuthDNS's trust
    /// anchors. The caller waits until the DUT answers.
    ///
    /// # Errors
    /// Returns an error if the DUT's program is missing or cannot be started.
    pub(super) fn start(
        deployment: &Deployment,
        plan: &Plan,
        archive: &Archive,
        dut: &DutPlan,
        cores: usize,
        cpus: &[usize],
        checked: Option<(&Variant, &[String])>,
    ) -> Result<RunningDut, ServerError> {
        let (name, machine, driver) = (dut.name(), &deployment.dut, dut.driver.driver());
        let refused = ServerError::from_host_error(name);
        let folder = archive.server_folder(name)?;
        let place = machine.place(&folder);
        let operator = dut.operator();
        let program = program(machine, name, driver, dut.program.as_deref())?;
        let driver = driver.for_release(release(machine, driver, &operator, &program)?);
        let usual = plan.trial.prefix;
        let mut upstreams = deployment.auth_addresses(dut.family);
        if checked.is_some() {
            // Conformance checks observe a single AuthDNS, which must receive all upstream queries.
            upstreams.truncate(1);
        }
        let task = Translate {
            upstreams,
            prefixes: checked.map_or(vec![usual], |(variant, _)| variant.prefixes(usual)),
            checked: checked.map(|(variant, anchors)| Checked::for_variant(variant, anchors)),
        };
        if let Some((file, text)) =
            task.checked.as_ref().map(|configuration| dut.driver.anchors(configuration))
        {
            machine.write(&folder.join(file), &text).map_err(&refused)?;
        }
        let threads = dut.threads.unwrap_or(cores);
        let setting = Setting {
            folder: &place,
            listen: deployment.dut_address,
            cores,
            threads,
            operator: &operator,
            task,
        };
        let text = driver.configuration(&setting);
        if !text.is_empty() {
            machine.write(&folder.join(driver.file), &text).map_err(&refused)?;
        }
        let custom = operator.custom.clone().unwrap_or_default();
        let stop = setting.fill_all(&custom.stop);
        if !stop.is_empty() {
            // A server that a killed run left behind is stopped first. Otherwise that server, with
            // a full cache, would answer in place of the new server.
            machine.run(&stop, START).map_err(&refused)?;
        }
        let words = driver.command(&setting, &program);
        let process = machine.start(&words, cpus, &folder.join("log"), None).map_err(&refused)?;
        let configured_threads = driver.configures_threads(&operator).then_some(setting.threads);
        // If there is a `stop` command, the started process only launches the server. The CPUs of
        // the started process are then not the server's CPUs.
        let confined: &[usize] = if stop.is_empty() { cpus } else { &[] };
        let shared = deployment.sharing(plan, confined);
        let place = CpuPlacement {
            cpus: confined.iter().copied().collect(),
            configured_threads,
            shared,
            ..CpuPlacement::default()
        };
        let existing = deployment.topology.cpus();
        let configuration = Configuration { command: words, file: driver.file.into(), text };
        let _bulk = LargeFilesGuard::of(machine, &machine.place(&folder), dut.driver.bulk());
        let started = RunningDut {
            cpu_ids: RefCell::new(vec![process.id()]),
            cpu_pids: setting.fill_all(&custom.cpu_pids),
            process,
            _bulk,
            stop,
            place,
            existing,
            configuration,
        };
        let ready = setting.fill_all(&custom.ready);
        if !ready.is_empty() {
            started.wait_for_ready_command(machine, name, &ready)?;
        }
        Ok(started)
    }

    /// Runs the plan's command that prints the ids of the server's processes. The command runs
    /// before each trial, because processes may have been replaced, or may not have existed at the
    /// start.
    ///
    /// # Errors
    /// Returns an error if the DUT's host is unreachable.
    pub(crate) fn refresh_process_ids(&self) -> Result<(), HostError> {
        if !self.cpu_pids.is_empty() {
            let (_, printed) = self.process.machine().run(&self.cpu_pids, START)?;
            let ids = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            self.cpu_ids.replace(ids);
        }
        Ok(())
    }

    /// Waits until the function `is_ready` returns true. This function queries the server or runs
    /// the command `ready` of the plan.
    ///
    /// # Errors
    /// Returns an error if the server exits first, or takes too long.
    pub(super) fn wait_until<E: From<ServerError>>(
        &self,
        name: &str,
        is_ready: &mut dyn FnMut() -> Result<bool, E>,
    ) -> Result<(), E> {
        wait_until_ready(name, is_ready, &|| Ok(self.ended()?), &self.process)
    }

    /// Waits until the plan's command `ready` exits with status 0.
    fn wait_for_ready_command(
        &self,
        machine: &Machine,
        name: &str,
        ready: &[String],
    ) -> Result<(), ServerError> {
        let mut output = String::new();
        let mut is_ready = || -> Result<bool, ServerError> {
            let (is_ready, said) =
                machine.run(ready, START).map_err(ServerError::from_host_error(name))?;
            output = said;
            Ok(is_ready)
        };
        let waited = self.wait_until(name, &mut is_ready);
        waited.map_err(|error| error.said_by(&format!("{}: {}", ready.join(" "), output.trim())))
    }

    /// Returns how the DUT ended, or `None` if it is still running.
    ///
    /// # Errors
    /// Returns an error if the DUT's host is unreachable.
    pub(super) fn ended(&self) -> Result<Option<String>, HostError> {
        let ended = self.process.ended(Duration::ZERO)?;
        // A process that only launches the server may exit with success after the launch.
        Ok(ended.filter(|ended| self.stop.is_empty() || !ended.success).map(|ended| ended.how))
    }

    /// Returns the CPU time that the DUT has used so far, in seconds.
    ///
    /// # Errors
    /// Returns an error if the DUT's host is unreachable.
    pub(super) fn cpu(&self) -> Result<f64, HostError> {
        self.process.machine().cpu(&self.cpu_ids.borrow())
    }

    /// Returns the ids of the DUT's processes on its host.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.cpu_ids.borrow().clone()
    }

    /// Returns the machine on which the server runs.
    pub(crate) fn machine(&self) -> &Machine {
        self.process.machine()
    }

    /// Returns the configuration of the DUT.
    pub(super) fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Returns the CPUs that the DUT is confined to; empty if it may use any CPU.
    pub(super) fn cpus(&self) -> Vec<usize> {
        self.place.cpus.iter().copied().collect()
    }

    /// Returns the CPU placement of the DUT, with the CPUs on which its threads may run at this
    /// moment.
    ///
    /// # Errors
    /// Returns an error if the DUT's host is unreachable.
    pub(super) fn place(&self) -> Result<CpuPlacement, HostError> {
        let mut allowed = self.process.machine().threads(&self.cpu_ids.borrow())?;
        for set in &mut allowed {
            // The kernel also reports CPUs that do not exist but could be plugged in.
            set.cpus.retain(|cpu| self.existing.is_empty() || self.existing.contains(cpu));
        }
        let quota_millicpu = self.process.machine().quota(&self.cpu_ids.borrow())?;
        Ok(CpuPlacement { allowed, quota_millicpu, ..self.place.clone() })
    }

    /// Returns the last lines of the server's log.
    pub(crate) fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

impl Drop for RunningDut {
    fn drop(&mut self) {
        if !self.stop.is_empty() {
            // Errors of the command are ignored, because processes that remain are stopped together
            // with the started process.
            let _ = self.process.machine().run(&self.stop, START);
        }
    }
}

/// Calls `is_ready` repeatedly until it returns true. Returns an error if the server exits first,
/// or takes longer than [`START`].
fn wait_until_ready<E: From<ServerError>>(
    name: &str,
    is_ready: &mut dyn FnMut() -> Result<bool, E>,
    ended: &dyn Fn() -> Result<Option<String>, ServerError>,
    process: &Running,
) -> Result<(), E> {
    let give_up = Instant::now() + START;
    while !is_ready()? {
        let ended = ended()?;
        if ended.is_some() || Instant::now() > give_up {
            let why = ended.unwrap_or_else(|| format!("not ready after {} s", START.as_secs()));
            return Err(ServerError::did_not_come_up(name, why, process).into());
        }
        process.machine().check().map_err(ServerError::from)?;
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Runs dns64bench on a host to write the zone file with all names of a plan.
fn write_zone(
    machine: &Machine,
    name: &str,
    file: &Path,
    plan: &Plan,
    aaaa: Share,
) -> Result<(), ServerError> {
    let (aaaa, names, file) =
        (aaaa.to_string(), plan.auth.names.to_string(), file.to_string_lossy());
    let words =
        ["zone", "--aaaa-share", &aaaa, "--names", &names, "--output", &file].map(str::to_owned);
    let (written, message) =
        machine.run(&machine.ours(&words), WRITE).map_err(ServerError::from_host_error(name))?;
    if written {
        Ok(())
    } else {
        Err(ServerError::not_started(name, &"its zone file could not be written", message))
    }
}

/// Returns the start of a server's command line: the program on the given host, and its subcommand
/// if it has one. The list is empty if the commands in the plan already name the program.
fn program<T>(
    machine: &Machine,
    name: &str,
    driver: &Driver<T>,
    given: Option<&Path>,
) -> Result<Vec<String>, ServerError> {
    let usual = match (driver.program, given) {
        (Program::OfThePlan, _) => return Ok(Vec::new()),
        (Program::Own { words, .. }, None) => {
            return Ok(machine.ours(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()));
        }
        (Program::Own { name: usual, .. } | Program::Named(usual), _) => usual,
    };
    let program = given.unwrap_or(Path::new(usual));
    match machine.find(program)? {
        Some(found) => Ok(vec![found.to_string_lossy().into_owned()]),
        None => Err(ServerError::NotFound { name: name.into(), program: program.into() }),
    }
}

/// Returns the version of a DUT.
///
/// # Errors
/// Returns an error if the server's program is missing.
pub(super) fn version_of(machine: &Machine, dut: &DutPlan) -> Result<String, ServerError> {
    let driver = dut.driver.driver();
    version(
        machine,
        driver,
        &dut.operator(),
        &program(machine, dut.name(), driver, dut.program.as_deref())?,
    )
}

/// Returns the version of an AuthDNS.
///
/// # Errors
/// Returns an error if the server's program is missing.
pub(super) fn auth_version(machine: &Machine, auth: &AuthPlan) -> Result<String, ServerError> {
    let driver = auth.driver.driver();
    version(
        machine,
        driver,
        &auth.operator(),
        &program(machine, auth.name(), driver, auth.program.as_deref())?,
    )
}

/// Version text of a server that does not report its version.
pub(super) const UNKNOWN: &str = "unknown";

/// Returns the release of a server's program. The server is queried for its version only if its
/// driver depends on the release.
fn release<T: Task>(
    machine: &Machine,
    driver: &Driver<T>,
    operator: &Operator,
    program: &[String],
) -> Result<Release, ServerError> {
    if !driver.depends_on_release() {
        return Ok(Release::UNKNOWN);
    }
    Ok(Release::parse(&version(machine, driver, operator, program)?))
}

/// Returns the version line that a server prints, or [`UNKNOWN`] if it prints no version.
fn version<T: Task>(
    machine: &Machine,
    driver: &Driver<T>,
    operator: &Operator,
    program: &[String],
) -> Result<String, ServerError> {
    let words = driver.version_command(operator, program);
    if words.is_empty() {
        return Ok(UNKNOWN.into());
    }
    let printed = match machine.run(&words, START) {
        Ok((_, printed)) => printed,
        Err(HostError::Interrupted) => return Err(HostError::Interrupted.into()),
        Err(_) => String::new(),
    };
    Ok(version_line(&printed, driver.name).unwrap_or_else(|| UNKNOWN.into()))
}

/// Returns the first line with a digit in a server's output. Text before the server's name is
/// removed, because PowerDNS prints the time first.
fn version_line(printed: &str, name: &str) -> Option<String> {
    let line = printed.lines().find(|line| line.chars().any(|c| c.is_ascii_digit()))?;
    Some(plain_line(line[line.find(name).unwrap_or(0)..].trim(), VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_begin_with_the_name_of_the_server() {
        for (printed, name, expected) in [
            (
                "Nov 22 14:25:00 PowerDNS Recursor 4.8.8 (C) 2001\nmore",
                "PowerDNS",
                "PowerDNS Recursor 4.8.8 (C) 2001",
            ),
            ("Version 1.17.1\n\nConfigure line: x", "Unbound", "Version 1.17.1"),
            ("hello\nBIND 9.18.49 (Extended)\n", "BIND", "BIND 9.18.49 (Extended)"),
        ] {
            assert_eq!(version_line(printed, name).as_deref(), Some(expected));
        }
        assert_eq!(version_line("no number\n", "x"), None);
    }
}
