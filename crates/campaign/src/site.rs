//! AuthDNS and a DUT, running: what a trial is carried out against.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use method::units::Share;
use tester::authdns::counters::AuthCounters;

use crate::archive::{Archive, ArchiveError};
use crate::dut::{self, Kind, Setting};
use crate::lab::{Host, LabError};
use crate::plan::{DutPlan, Plan};
use crate::process::Process;
use crate::world::World;

/// How long a server may take until it answers.
const START: Duration = Duration::from_secs(30);

/// Why there is nothing to measure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// The DUT's program is not there.
    #[error("{name}: there is no program {program}; install it, or name it with program = in the plan")]
    NotFound {
        /// The DUT.
        name: String,
        /// Its program.
        program: PathBuf,
    },
    /// A server did not start.
    #[error("{name} did not start: {why}")]
    NotStarted {
        /// The server.
        name: String,
        /// What is known.
        why: String,
        /// The end of its log.
        log: String,
    },
    /// The hosts cannot be used.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The run folder cannot be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl SiteError {
    fn not_started(name: &str, why: &dyn ToString, log: String) -> SiteError {
        SiteError::NotStarted { name: name.into(), why: why.to_string(), log }
    }
}

/// AuthDNS, running.
pub struct Auth {
    process: Process,
    status: PathBuf,
    /// Holds the status socket: a path in the run folder might be too long for one.
    _folder: tempfile::TempDir,
}

impl Auth {
    /// Starts AuthDNS on `listen` with an AAAA share.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(
        world: &World,
        plan: &Plan,
        archive: &Archive,
        listen: SocketAddr,
        aaaa: Share,
    ) -> Result<Auth, SiteError> {
        let failed = |why: io::Error| SiteError::not_started("AuthDNS", &why, String::new());
        let folder = tempfile::tempdir().map_err(failed)?;
        let status = folder.path().join("status");
        let mut words: Vec<String> =
            ["auth", "--listen", &listen.to_string(), "--status", &status.to_string_lossy()].map(str::to_owned).into();
        let threads = plan.cpus.auth.len();
        words.extend(["--aaaa-share".into(), aaaa.to_string()]);
        if threads > 0 {
            words.extend(["--threads".into(), threads.to_string()]);
        }
        let command = world.ours(Host::Auth, &plan.cpus.auth, &words);
        let log = archive.folder().join("servers/auth.log");
        let process = Process::start(command, None, &log, &archive.registry()).map_err(failed)?;
        let mut auth = Auth { process, status, _folder: folder };
        let give_up = Instant::now() + START;
        while auth.counters().is_err() {
            if auth.process.ended().is_some() || Instant::now() > give_up {
                return Err(SiteError::not_started("AuthDNS", &"see its log", auth.process.log_tail()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(auth)
    }

    /// What it has been asked.
    ///
    /// # Errors
    /// If it does not run.
    pub fn counters(&self) -> io::Result<AuthCounters> {
        let mut line = String::new();
        BufReader::new(UnixStream::connect(&self.status)?).read_line(&mut line)?;
        serde_json::from_str(&line).map_err(Into::into)
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// A DUT, running.
pub struct Dut {
    process: Process,
}

impl Dut {
    /// Writes the configuration of a DUT and starts it on so many cores; whether it answers is for the caller to see.
    ///
    /// # Errors
    /// If its program is not there or cannot be started.
    pub fn start(world: &World, plan: &Plan, archive: &Archive, dut: &DutPlan, cores: usize) -> Result<Dut, SiteError> {
        let name = dut.name();
        let folder = archive.server_folder(name)?;
        let setting = Setting {
            folder: &folder,
            listen: world.dut,
            upstream: world.auth,
            prefix: plan.trial.prefix,
            cores,
            custom: dut.custom.as_ref(),
        };
        let (file, text) = dut.driver.configuration(&setting);
        let failed = |why: io::Error| SiteError::not_started(name, &why, String::new());
        if !text.is_empty() {
            fs::write(folder.join(file), text).map_err(failed)?;
        }
        let mut words = dut.driver.arguments(&setting);
        words.splice(0..0, program_of(dut)?);
        let cpus = &plan.cpus.dut[..cores.min(plan.cpus.dut.len())];
        let command = world.command(Host::Dut, cpus, &words);
        let process = Process::start(command, None, &folder.join("log"), &archive.registry()).map_err(failed)?;
        Ok(Dut { process })
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// The program of a DUT; nothing for `custom`, whose commands name it. dns64d is in this program.
fn program_of(dut: &DutPlan) -> Result<Vec<String>, SiteError> {
    let word = |path: PathBuf| path.to_string_lossy().into_owned();
    let program = dut.program.clone().unwrap_or_else(|| dut.driver.program().into());
    match (dut.driver, &dut.program) {
        (Kind::Custom, _) => Ok(Vec::new()),
        (Kind::Dns64d, None) => {
            let ours = std::env::current_exe().map_err(|e| SiteError::not_started(dut.name(), &e, String::new()))?;
            Ok(vec![word(ours), "dns64d".into()])
        }
        _ => {
            let found = dut::find(&program).ok_or(SiteError::NotFound { name: dut.name().into(), program })?;
            Ok(vec![word(found)])
        }
    }
}

/// The first line of what a DUT prints as its version.
///
/// # Errors
/// If its program is not there.
pub fn version_of(dut: &DutPlan) -> Result<String, SiteError> {
    let mut words = program_of(dut)?;
    words.extend(dut.driver.version_arguments().iter().map(|&word| word.to_owned()));
    words.extend(dut.custom.iter().flat_map(|custom| custom.version.clone()));
    Ok(version_line(&words).unwrap_or_else(|| "unknown".into()))
}

/// The first line with a number in it of what a command prints.
fn version_line(words: &[String]) -> Option<String> {
    let (program, arguments) = words.split_first()?;
    let output = Command::new(program).args(arguments).output().ok()?;
    let both = [output.stdout, output.stderr].concat();
    // PowerDNS has time and process id in front.
    let line = String::from_utf8_lossy(&both).lines().find(|line| line.chars().any(|c| c.is_ascii_digit()))?.to_owned();
    Some(line.rsplit("] ").next().unwrap_or(&line).trim().to_owned())
}
