//! AuthDNS and a DUT, running: what a trial is carried out against.
//!
//! ```text
//! machine ─► RunningAuth::start ─► it listens ─► RunningDut::start ─► it listens, or says so ─► trials
//!                                                    │ ended, or silent for too long
//!                                                    └──► SiteError, with the end of its log
//! ```
//!
//! A server is ready when it answers, not when its process runs. What it was told (command and
//! configuration file) is kept for the report, and where its threads may run is asked while it is
//! loaded. Dropping the value ends the server, by its own command if it has one, and removes what
//! it stored in bulk.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use method::units::Share;
use tester::authdns::counters::AuthCounters;

use crate::archive::{Archive, ArchiveError, Configuration};
use crate::host::{HostError, Machine, Running};
use crate::place::Place;
use crate::plan::{AuthPlan, DutPlan, Plan};
use crate::servers::{
    Checked, Driver, Operator, Program, Ready, Release, Serve, Setting, Task, Translate, Variant,
    ZONE_FILE,
};
use crate::text::plain_line;
use crate::world::World;

/// How long a server may take until it answers; zones of millions of names take their time.
const START: Duration = Duration::from_secs(60);
/// How long a zone file of all names may take to be written.
const WRITE: Duration = Duration::from_secs(600);
/// How many AuthDNS were started.
static STARTS: AtomicU32 = AtomicU32::new(0);
/// Trust anchors are not longer than this; octets.
const ANCHORS: u64 = 64 << 10;
/// So many characters of a version are kept.
const VERSION: usize = 200;
/// Between two looks at a server that starts.
const LOOK: Duration = Duration::from_millis(50);

/// Why there is nothing to measure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// A server's program is not there.
    #[error(
        "{name}: there is no program {program}; install it, or name it with program = in the plan"
    )]
    NotFound {
        /// The server's name.
        name: String,
        /// The program that was to be started.
        program: PathBuf,
    },
    /// A server did not start.
    #[error("{name} did not start: {why}")]
    NotStarted {
        /// The server's name.
        name: String,
        /// What is known of the reason.
        why: String,
        /// The end of its log.
        log: String,
        /// Where that log is on its host; none before it has one.
        log_path: Option<PathBuf>,
    },
    /// A host is gone.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The run folder cannot be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl SiteError {
    /// A server that did not start, for whatever reason.
    pub(crate) fn not_started(name: &str, why: &dyn ToString, log: String) -> SiteError {
        SiteError::NotStarted { name: name.into(), why: why.to_string(), log, log_path: None }
    }

    /// A server that was started and did not come up.
    fn did_not_come_up(name: &str, why: String, process: &Running) -> SiteError {
        let (log, log_path) = (process.log_tail(), Some(process.log_path()));
        SiteError::NotStarted { name: name.into(), why, log, log_path }
    }

    /// The error, where its server's log is, and the end of it.
    pub(crate) fn with_log(&self) -> String {
        let mut text = self.to_string();
        if let SiteError::NotStarted { log_path: Some(path), .. } = self {
            text += &format!("; its log is {}", path.display());
        }
        let log = self.log().trim();
        if log.is_empty() { text } else { format!("{text}, and ends:\n{log}") }
    }

    /// The end of the server's log, if there is one.
    pub fn log(&self) -> &str {
        match self {
            SiteError::NotStarted { log, .. } => log,
            _ => "",
        }
    }

    /// The same error with a further reason.
    pub(crate) fn because(mut self, reason: &str) -> SiteError {
        if let SiteError::NotStarted { why, .. } = &mut self {
            why.push_str(&format!("; {reason}"));
        }
        self
    }

    /// With what a command said about a server that did not start.
    fn said_by(self, said: &str) -> SiteError {
        match self {
            SiteError::NotStarted { name, why, log, log_path } => SiteError::NotStarted {
                name,
                why,
                log: format!("{log}\n{said}").trim().to_owned(),
                log_path,
            },
            other => other,
        }
    }

    /// What the host refused to do for a server is about the server; that the host is gone is not.
    fn of(name: &str) -> impl Fn(HostError) -> SiteError {
        move |error| match error {
            HostError::Refused { why, .. } => SiteError::not_started(name, &why, String::new()),
            other => other.into(),
        }
    }
}

/// Large files of a server on its host, which go with this value: caches would fill the disk point
/// by point.
struct Bulk {
    machine: Machine,
    files: Vec<String>,
}

impl Bulk {
    /// Those of a server whose folder is `place` on `machine`.
    fn of(machine: &Machine, place: &Path, files: &[&str]) -> Bulk {
        let files = files.iter().map(|file| place.join(file).to_string_lossy().into_owned());
        Bulk { machine: machine.clone(), files: files.collect() }
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        if !self.files.is_empty() {
            let words = [&["rm".to_owned(), "-f".into(), "--".into()], &self.files[..]].concat();
            // A host that is gone keeps them; what is measured is not less true for that.
            let _ = self.machine.run(&words, START);
        }
    }
}

/// The names that AuthDNS serves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Names {
    /// Those of trials.
    OfTrials {
        /// Share of them that has an AAAA record (α).
        aaaa: Share,
    },
    /// Those of `conform`.
    OfChecks,
}

/// What an AuthDNS that serves the names of checks tells.
struct OfChecks {
    /// The socket on which it tells what it was asked.
    status: PathBuf,
    /// The trust anchors of its signed zones, as lines of a zone file.
    anchors: Vec<String>,
}

/// AuthDNS, running: a server on each of its hosts.
pub(crate) struct RunningAuth {
    /// In the order of their hosts; never none.
    servers: Vec<AuthServer>,
}

impl RunningAuth {
    /// Starts what plays AuthDNS, on each of these addresses its host's, with these names, and waits
    /// until all answer. Fewer addresses than hosts leave out the last ones.
    ///
    /// # Errors
    /// If one of them does not start.
    pub(crate) fn start(
        world: &World,
        plan: &Plan,
        archive: &Archive,
        listen: &[SocketAddr],
        names: Names,
    ) -> Result<RunningAuth, SiteError> {
        let each =
            world.auths.iter().zip(listen).enumerate().map(|(number, (machine, &listen))| {
                AuthServer::start((number, machine), plan, archive, listen, names)
            });
        Ok(RunningAuth { servers: each.collect::<Result<_, _>>()? })
    }

    /// What all have counted so far, if they count.
    ///
    /// # Errors
    /// If a host is gone, or its server is.
    pub(crate) fn counters(&self) -> Result<Option<AuthCounters>, HostError> {
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

    /// The trust anchors of the signed zones, of one with the names of checks.
    pub(crate) fn anchors(&self) -> Option<&[String]> {
        self.servers[0].checks.as_ref().map(|checks| checks.anchors.as_slice())
    }

    /// The socket, on its host, on which one with the names of checks tells what it was asked.
    pub(crate) fn checks_status(&self) -> Option<&Path> {
        self.servers[0].checks.as_ref().map(|checks| checks.status.as_path())
    }

    /// The processes of the servers.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Running> {
        self.servers.iter().map(|server| &server.process)
    }

    /// Address and port of each.
    pub(crate) fn listens_on(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.listen).collect()
    }

    /// What the first one was told. The others were told the same but for their addresses.
    pub(crate) fn configuration(&self) -> &Configuration {
        &self.servers[0].configuration
    }
}

/// A server that plays AuthDNS, or is one of several.
struct AuthServer {
    process: Running,
    /// After the process, which writes them, has ended: fields go in their order.
    _bulk: Bulk,
    /// Status socket of ours with the names of trials; others count nothing.
    status: Option<PathBuf>,
    /// Where it has those of checks.
    checks: Option<OfChecks>,
    listen: SocketAddr,
    configuration: Configuration,
}

impl AuthServer {
    /// Starts what plays AuthDNS on `listen`, on the machine of this number, with these names, and
    /// waits until it answers.
    fn start(
        (of, machine): (usize, &Machine),
        plan: &Plan,
        archive: &Archive,
        listen: SocketAddr,
        names: Names,
    ) -> Result<AuthServer, SiteError> {
        let driver = plan.auth.driver.driver();
        let refused = SiteError::of(driver.name);
        let program = program(machine, driver.name, driver, plan.auth.program.as_deref())?;
        let operator = plan.auth.operator();
        let driver = driver.for_release(release(machine, driver, &operator, &program)?);
        // Ours has no files but its log, however often it is started.
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
        // A socket's name is used once: one that was killed leaves it behind.
        let number = STARTS.fetch_add(1, Ordering::Relaxed);
        let scratch = &machine.greeting().scratch;
        let status =
            (driver.ready == Ready::Status).then(|| scratch.join(format!("auth-{number}")));
        let (aaaa, anchors) = match names {
            Names::OfTrials { aaaa } => (aaaa, None),
            Names::OfChecks => (Share::ZERO, Some(scratch.join(format!("anchors-{number}")))),
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
        let _bulk = Bulk::of(machine, &place, plan.auth.driver.bulk());
        let mut auth = AuthServer { process, _bulk, status, checks: None, listen, configuration };
        match anchors {
            Some(file) => auth.wait_for_checks(machine, driver.name, &file)?,
            None => auth.wait(driver.name, &mut || auth.is_ready(machine, listen))?,
        }
        Ok(auth)
    }

    /// Waits until the status socket of one that has the names of checks is there, which is made
    /// last; then the trust anchors are in their file.
    fn wait_for_checks(
        &mut self,
        machine: &Machine,
        name: &str,
        anchors: &Path,
    ) -> Result<(), SiteError> {
        let status = self.status.take().unwrap_or_default();
        let look = ["test", "-S", &status.to_string_lossy()].map(str::to_owned);
        self.wait(name, &mut || {
            machine.run(&look, START).map(|(is_there, _)| is_there).map_err(SiteError::of(name))
        })?;
        let text = machine.read(anchors, ANCHORS)?;
        let anchors = text.lines().map(str::to_owned).collect();
        self.checks = Some(OfChecks { status, anchors });
        Ok(())
    }

    /// Waits until `is_ready` says so.
    fn wait(
        &self,
        name: &str,
        is_ready: &mut dyn FnMut() -> Result<bool, SiteError>,
    ) -> Result<(), SiteError> {
        let ended = || Ok(self.process.ended(Duration::ZERO)?.map(|ended| ended.how));
        wait_until_ready(name, is_ready, &ended, &self.process)
    }

    fn is_ready(&self, machine: &Machine, listen: SocketAddr) -> Result<bool, SiteError> {
        match &self.status {
            // Its socket is there when it serves.
            Some(status) => match machine.counters(status) {
                Ok(_) => Ok(true),
                Err(HostError::Refused { .. }) => Ok(false),
                Err(other) => Err(other.into()),
            },
            None => Ok(machine.answers(listen)?),
        }
    }

    /// What it has counted so far, if it counts.
    fn counters(&self) -> Result<Option<AuthCounters>, HostError> {
        self.status.as_ref().map(|status| self.process.machine().counters(status)).transpose()
    }
}

/// A DUT, running.
pub(crate) struct RunningDut {
    process: Running,
    /// After the process, which writes them, has ended: fields go in their order.
    _bulk: Bulk,
    /// Ends it, if that takes a command; then its process may end before it.
    stop: Vec<String>,
    /// Whose CPU time and threads are its own.
    cpu_ids: RefCell<Vec<u32>>,
    /// Prints these; empty: what was started is the server.
    cpu_pids: Vec<String>,
    /// What is known of its place before it is looked at.
    place: Place,
    /// The CPUs that its host has.
    existing: BTreeSet<usize>,
    configuration: Configuration,
}

impl RunningDut {
    /// Writes the configuration of a DUT and starts it on the given CPUs (none: any) with so many
    /// threads, for rates, or to be checked in a variant by names with these anchors; whether it
    /// answers is for the caller to see.
    ///
    /// # Errors
    /// If its program is not there or cannot be started.
    pub(crate) fn start(
        world: &World,
        plan: &Plan,
        archive: &Archive,
        dut: &DutPlan,
        cores: usize,
        cpus: &[usize],
        checked: Option<(&Variant, &[String])>,
    ) -> Result<RunningDut, SiteError> {
        let (name, machine, driver) = (dut.name(), &world.dut, dut.driver.driver());
        let refused = SiteError::of(name);
        let folder = archive.server_folder(name)?;
        let place = machine.place(&folder);
        let operator = dut.operator();
        let program = program(machine, name, driver, dut.program.as_deref())?;
        let driver = driver.for_release(release(machine, driver, &operator, &program)?);
        let usual = plan.trial.prefix;
        let mut upstreams = world.auth_addresses(dut.family);
        if checked.is_some() {
            // A check looks at one AuthDNS, and wants to see all questions there.
            upstreams.truncate(1);
        }
        let task = Translate {
            upstreams,
            prefixes: checked.map_or(vec![usual], |(variant, _)| variant.prefixes(usual)),
            checked: checked.map(|(variant, anchors)| Checked::of(variant, anchors)),
        };
        if let Some((file, text)) = task.checked.as_ref().map(|told| dut.driver.anchors(told)) {
            machine.write(&folder.join(file), &text).map_err(&refused)?;
        }
        let threads = dut.threads.unwrap_or(cores);
        let setting = Setting {
            folder: &place,
            listen: world.dut_address,
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
            // What an earlier run that was killed left behind would answer in its place, from a
            // full cache.
            machine.run(&stop, START).map_err(&refused)?;
        }
        let words = driver.command(&setting, &program);
        let process = machine.start(&words, cpus, &folder.join("log"), None).map_err(&refused)?;
        let told = driver.tells_threads(&operator).then_some(setting.threads);
        // What only starts the server is not the server, and its CPUs are not the server's.
        let confined: &[usize] = if stop.is_empty() { cpus } else { &[] };
        let shared = world.sharing(plan, confined);
        let place =
            Place { cpus: confined.iter().copied().collect(), told, shared, ..Place::default() };
        let existing = world.topology.cpus();
        let configuration = Configuration { command: words, file: driver.file.into(), text };
        let _bulk = Bulk::of(machine, &machine.place(&folder), dut.driver.bulk());
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
            started.wait_until_it_says_so(machine, name, &ready)?;
        }
        Ok(started)
    }

    /// Asks the plan's own command which processes count, before each trial: they may be others than
    /// at the start, when the server may not have been there at all.
    ///
    /// # Errors
    /// If its host is gone.
    pub(crate) fn look_for_processes(&self) -> Result<(), HostError> {
        if !self.cpu_pids.is_empty() {
            let (_, printed) = self.process.machine().run(&self.cpu_pids, START)?;
            let ids = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            self.cpu_ids.replace(ids);
        }
        Ok(())
    }

    /// Waits until `is_ready` says so, which asks the server or, for the plan's own, its command.
    ///
    /// # Errors
    /// If it ends before, or takes too long.
    pub(crate) fn wait_until<E: From<SiteError>>(
        &self,
        name: &str,
        is_ready: &mut dyn FnMut() -> Result<bool, E>,
    ) -> Result<(), E> {
        wait_until_ready(name, is_ready, &|| Ok(self.ended()?), &self.process)
    }

    /// Waits until the plan's own command `ready` ends with status 0.
    fn wait_until_it_says_so(
        &self,
        machine: &Machine,
        name: &str,
        ready: &[String],
    ) -> Result<(), SiteError> {
        let mut told = String::new();
        let mut is_ready = || -> Result<bool, SiteError> {
            let (is_ready, said) = machine.run(ready, START).map_err(SiteError::of(name))?;
            told = said;
            Ok(is_ready)
        };
        let waited = self.wait_until(name, &mut is_ready);
        waited.map_err(|error| error.said_by(&format!("{}: {}", ready.join(" "), told.trim())))
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// If its host is gone.
    pub(crate) fn ended(&self) -> Result<Option<String>, HostError> {
        let ended = self.process.ended(Duration::ZERO)?;
        // What only starts the server may end when it has.
        Ok(ended.filter(|ended| self.stop.is_empty() || !ended.success).map(|ended| ended.how))
    }

    /// CPU seconds that it has used.
    ///
    /// # Errors
    /// If its host is gone.
    pub(crate) fn cpu(&self) -> Result<f64, HostError> {
        self.process.machine().cpu(&self.cpu_ids.borrow())
    }

    /// Ids of its processes on its host.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.cpu_ids.borrow().clone()
    }

    /// The machine that it runs on.
    pub(crate) fn machine(&self) -> &Machine {
        self.process.machine()
    }

    /// What it was told.
    pub(crate) fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The CPUs that it is confined to; none: any.
    pub(crate) fn cpus(&self) -> Vec<usize> {
        self.place.cpus.iter().copied().collect()
    }

    /// Where its threads may run at this moment, and what is known of its place besides.
    ///
    /// # Errors
    /// If its host is gone.
    pub(crate) fn place(&self) -> Result<Place, HostError> {
        let mut allowed = self.process.machine().threads(&self.cpu_ids.borrow())?;
        for set in &mut allowed {
            // The kernel also names CPUs that could be plugged in.
            set.cpus.retain(|cpu| self.existing.is_empty() || self.existing.contains(cpu));
        }
        let quota_millicpu = self.process.machine().quota(&self.cpu_ids.borrow())?;
        Ok(Place { allowed, quota_millicpu, ..self.place.clone() })
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

impl Drop for RunningDut {
    fn drop(&mut self) {
        if !self.stop.is_empty() {
            // What it says is in its log; what is left of it is ended with its process.
            let _ = self.process.machine().run(&self.stop, START);
        }
    }
}

/// Looks at a server that starts until `is_ready`; an error if it ends before, or takes longer than
/// [`START`].
fn wait_until_ready<E: From<SiteError>>(
    name: &str,
    is_ready: &mut dyn FnMut() -> Result<bool, E>,
    ended: &dyn Fn() -> Result<Option<String>, SiteError>,
    process: &Running,
) -> Result<(), E> {
    let give_up = Instant::now() + START;
    while !is_ready()? {
        let ended = ended()?;
        if ended.is_some() || Instant::now() > give_up {
            let why =
                ended.unwrap_or_else(|| format!("it is not ready after {} s", START.as_secs()));
            return Err(SiteError::did_not_come_up(name, why, process).into());
        }
        process.machine().check().map_err(SiteError::from)?;
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Has this program write the zone file of all of a plan's names on a host.
fn write_zone(
    machine: &Machine,
    name: &str,
    file: &Path,
    plan: &Plan,
    aaaa: Share,
) -> Result<(), SiteError> {
    let (aaaa, names, file) =
        (aaaa.to_string(), plan.auth.names.to_string(), file.to_string_lossy());
    let words =
        ["zone", "--aaaa-share", &aaaa, "--names", &names, "--output", &file].map(str::to_owned);
    let (written, told) = machine.run(&machine.ours(&words), WRITE).map_err(SiteError::of(name))?;
    if written {
        Ok(())
    } else {
        Err(SiteError::not_started(name, &"its zone file could not be written", told))
    }
}

/// The words that a server's command begins with on a host: its program, as the plan gives it or
/// where it is found; nothing where the plan's commands name it.
fn program<T>(
    machine: &Machine,
    name: &str,
    driver: &Driver<T>,
    given: Option<&Path>,
) -> Result<Vec<String>, SiteError> {
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
        None => Err(SiteError::NotFound { name: name.into(), program: program.into() }),
    }
}

/// What a DUT says that it is.
///
/// # Errors
/// If its program is not there.
pub(crate) fn version_of(machine: &Machine, dut: &DutPlan) -> Result<String, SiteError> {
    let driver = dut.driver.driver();
    version(
        machine,
        driver,
        &dut.operator(),
        &program(machine, dut.name(), driver, dut.program.as_deref())?,
    )
}

/// What plays AuthDNS says that it is.
///
/// # Errors
/// If its program is not there.
pub(crate) fn auth_version(machine: &Machine, auth: &AuthPlan) -> Result<String, SiteError> {
    let driver = auth.driver.driver();
    version(
        machine,
        driver,
        &auth.operator(),
        &program(machine, auth.name(), driver, auth.program.as_deref())?,
    )
}

/// The version of a server that does not tell.
pub(crate) const UNKNOWN: &str = "unknown";

/// Release of a server, which is asked for its version only if the driver depends on it.
fn release<T: Task>(
    machine: &Machine,
    driver: &Driver<T>,
    operator: &Operator,
    program: &[String],
) -> Result<Release, SiteError> {
    if !driver.depends_on_release() {
        return Ok(Release::UNKNOWN);
    }
    Ok(Release::of(&version(machine, driver, operator, program)?))
}

/// The line of its version that a server prints; [`UNKNOWN`] where it prints none.
fn version<T: Task>(
    machine: &Machine,
    driver: &Driver<T>,
    operator: &Operator,
    program: &[String],
) -> Result<String, SiteError> {
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

/// The first line with a number in it of what a server prints, from its name on: PowerDNS has the
/// time in front.
fn version_line(printed: &str, name: &str) -> Option<String> {
    let line = printed.lines().find(|line| line.chars().any(|c| c.is_ascii_digit()))?;
    Some(plain_line(line[line.find(name).unwrap_or(0)..].trim(), VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_begin_with_the_servers_name_where_they_have_it() {
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
