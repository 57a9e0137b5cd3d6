//! The run folder: all inputs and results of a campaign, and the state needed to resume it after it
//! was killed.
//!
//! ```text
//! plan.toml           the plan at the start of the run
//! environment.json    the facts reported by `check`
//! id                  identifies this run's folders on other hosts
//! journal.jsonl       version and plan at the start, then a line before and after every trial, synced
//! records/            records of every query, a file per trial, if the plan asks for them
//! servers/            configurations and logs of the DUTs, a folder per start
//! governors           original frequency governors of the CPUs, while a point uses others
//! lab                 present if this run created the lab and will remove it
//! trial.plan.json     the current or last trial, as `measure --plan` takes it; trial.json is its result, trial.log its log
//! running/            ids of processes, ended by the next run if this one is killed together with its agents
//! results.json        computed from the journal at the end of the run, and by `report`
//! ```

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use method::evidence::Deviation;
use method::narrow::Length;
use method::reason::{OtherUse, Reason};
use method::records::Counts;
use method::units::Qps;
use method::verdict::Verdict;
use method::warning::Warning;
use net::cpu_time::Stolen;
use serde::{Deserialize, Serialize};
use tester::measurer::burst::SendCost;
use tester::measurer::result::TrialResult;

use crate::begun::{journal_of, plan_of, same_plan};
use crate::environment::Environment;
use crate::governor::CannotBeMade;
use crate::journal::{JournalError, Lines};
use crate::measures::closed_loop::LoopTrial;
use crate::measures::conform::ConformTrial;
use crate::new_file::NewFile;
use crate::numa::Numa;
use crate::place::Place;
use crate::plan::{Plan, PlanError};
use crate::point::Point;
use crate::text::is_hidden;

/// Version of run folders and `results.json`. Version 1 had values by position, and points without
/// a placement.
pub const VERSION: u32 = 2;

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The first line.
    Begun {
        /// Version of the run folder's format: [`VERSION`].
        version: u32,
        /// The plan at the start of the run, which applies to every other line.
        plan: Box<Plan>,
    },
    /// Version of a server.
    Version {
        /// Name of the DUT.
        dut: String,
        /// First line of the server's version output.
        text: String,
    },
    /// Configuration of a server at its first start.
    Configuration {
        /// Name of the DUT, or of the server that plays AuthDNS.
        server: String,
        /// The command and the configuration file.
        told: Configuration,
    },
    /// Facts of a host that is another machine or a network namespace of this one.
    Host {
        /// Role of the host: tester, dut or auth. "tester N" is a further tester, with the number
        /// of its shard.
        role: String,
        /// The facts reported by `check` there.
        environment: Environment,
    },
    /// A host whose kernel, CPUs or dns64bench build differ from those recorded last. The campaign
    /// continues there.
    HostChanged {
        /// Role as in `Host`; "all" is the single machine of a campaign on loopback.
        role: String,
        /// The facts now reported by `check` there.
        environment: Environment,
    },
    /// Cost of sending on the tester's host, which determines the bursts of all trials.
    SendCost(SendCost),
    /// Start of a trial.
    Started(Step),
    /// End of a trial.
    Finished(Box<Measured>),
    /// A trial in which the DUT died or hung. It was repeated with a restarted server and is not
    /// included in any result.
    Repeated(Box<Measured>),
    /// Request to measure these points again: their trials above this line do not count.
    Redone(Redo),
    /// A point that the DUT's host cannot provide, also after a resume.
    CannotBeMade {
        /// The point, which has no trials for that reason.
        point: Point,
        /// The missing feature, or the host's refusal.
        why: CannotBeMade,
    },
    /// An incident that is not a result: a server died or hung, or a point cannot be measured.
    Mishap {
        /// The point at which it happened.
        point: Point,
        /// Description of the incident.
        what: String,
        /// The end of the server's log.
        log: String,
    },
}

/// Points that `campaign resume --redo` measures again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Redo {
    /// All self-tests of the plan.
    SelfTest,
}

impl Redo {
    /// True for points that it measures again.
    pub(crate) fn covers(self, point: &Point) -> bool {
        match self {
            Redo::SelfTest => matches!(point, Point::SelfTest(_)),
        }
    }
}

/// Command and configuration file of a server, which determine the subject of the measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Configuration {
    /// The command that starts the server.
    pub command: Vec<String>,
    /// Name of the configuration file; empty without one.
    pub file: String,
    /// Contents of that file.
    pub text: String,
}

impl Entry {
    /// Returns the first line of a journal.
    pub fn begun(plan: &Plan) -> Entry {
        Entry::Begun { version: VERSION, plan: Box::new(plan.clone()) }
    }
}

/// Identity of a trial: its point, its search or repetition, its rate and its length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Step {
    /// The point of the trial.
    pub point: Point,
    /// Number of the search or repetition, from 0.
    pub repeat: u32,
    /// The rate that is sent, queries per second.
    pub rate: Qps,
    /// A probe, or a trial of full length.
    pub length: Length,
}

/// A trial and the observations around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measured {
    /// Identity of the trial.
    #[serde(flatten)]
    pub step: Step,
    /// The tester's result.
    #[serde(flatten)]
    pub found: TaskResult,
    /// The way in which the DUT ended during the trial, if it did. CPU use and latency are then
    /// meaningless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut_end: Option<DutEnd>,
    /// CPU use of the DUT, of AuthDNS and of the hosts, in cores.
    pub cpu: Cpu,
    /// Page allocations of the DUT's host during the trial, by NUMA node; absent if the kernel does
    /// not count them.
    pub numa: Option<Numa>,
    /// CPU time stolen by a hypervisor.
    #[serde(default)]
    pub stolen: StolenFrom,
    /// Doubts about the tester that did not make the trial invalid. In JSON `warnings` contains the
    /// sentences and `warning_causes` the data.
    #[serde(flatten, with = "method::warning::in_words")]
    #[schemars(with = "method::warning::in_words::Written<'static>")]
    pub warnings: Vec<Warning>,
    /// Path of its records below the run folder, if the plan asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<PathBuf>,
}

impl Measured {
    /// Returns the verdict.
    pub fn verdict(&self) -> Verdict {
        match &self.found {
            TaskResult::Trial(trial) => trial.verdict,
            TaskResult::ClosedLoop(trial) => trial.verdict,
            TaskResult::Conform(trial) => trial.verdict(),
        }
    }

    /// Returns the reasons of the verdict; empty if the trial passed.
    pub fn reasons(&self) -> &[Reason] {
        match &self.found {
            TaskResult::Trial(trial) => &trial.reasons,
            TaskResult::ClosedLoop(trial) => &trial.reasons,
            TaskResult::Conform(_) => &[],
        }
    }

    /// Returns the deviation from the plan's conditions, if any.
    pub fn deviation(&self) -> Option<Deviation> {
        match &self.found {
            TaskResult::Trial(trial) => trial.deviation,
            TaskResult::ClosedLoop(trial) => trial.deviation,
            TaskResult::Conform(_) => None,
        }
    }

    /// Returns the trial if it sent at a rate.
    pub fn at_rate(&self) -> Option<&TrialResult> {
        match &self.found {
            TaskResult::Trial(trial) => Some(trial),
            TaskResult::ClosedLoop(_) | TaskResult::Conform(_) => None,
        }
    }

    /// Returns the trial if it was a closed loop.
    pub(crate) fn in_loop(&self) -> Option<&LoopTrial> {
        match &self.found {
            TaskResult::ClosedLoop(trial) => Some(trial),
            TaskResult::Trial(_) | TaskResult::Conform(_) => None,
        }
    }

    /// Returns the trial if it consisted of conformance checks.
    pub fn checked(&self) -> Option<&ConformTrial> {
        match &self.found {
            TaskResult::Conform(trial) => Some(trial),
            TaskResult::Trial(_) | TaskResult::ClosedLoop(_) => None,
        }
    }

    /// True if the DUT may have ended in the trial: queries had no reply, or the trial does not
    /// count queries.
    pub(crate) fn may_have_ended_the_dut(&self) -> bool {
        self.counts().lost > 0 || self.checked().is_some()
    }

    /// Returns the queries by outcome; zeros for conformance checks, which are not counted.
    pub fn counts(&self) -> &Counts {
        static NOT_COUNTED: LazyLock<Counts> = LazyLock::new(Counts::default);
        match &self.found {
            TaskResult::Trial(trial) => &trial.counts,
            TaskResult::ClosedLoop(trial) => &trial.experiments.counts,
            TaskResult::Conform(_) => &NOT_COUNTED,
        }
    }
}

/// The tester's result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskResult {
    /// Queries at a rate.
    Trial(Box<TrialResult>),
    /// A closed loop: each query waited for the answer to the previous one.
    ClosedLoop(Box<LoopTrial>),
    /// Results of the conformance checks.
    Conform(Box<ConformTrial>),
}

/// The way in which a DUT ended in a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DutEnd {
    /// Its process ended, with this status.
    Died(String),
    /// It runs, but does not answer, even some seconds after the trial.
    Hung,
}

impl std::fmt::Display for DutEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DutEnd::Died(how) => write!(f, "the DUT ended with {how}"),
            DutEnd::Hung => write!(f, "the DUT hangs"),
        }
    }
}

/// CPU use during a trial, in cores, and the DUT's CPU placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cpu {
    /// CPU use of the DUT, second by second.
    pub dut: Vec<f64>,
    /// Share of the time that the CPUs of the DUT's host were not idle, second by second, from 0 to
    /// 1; empty if the host does not report it.
    #[serde(default)]
    pub host: Vec<f64>,
    /// Mean CPU use of AuthDNS; with several, that of the one that used most.
    pub auth: f64,
    /// Mean CPU use of the Measurer.
    pub tester: f64,
    /// CPU placement of the DUT, observed in the middle of the trial; absent in self-tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Use of the DUT's CPUs by processes other than the DUT and the tester; absent in self-tests
    /// and if the host does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OtherUse>,
}

/// CPU time that a hypervisor stole from each host during a trial, if the host reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StolenFrom {
    /// From the tester's host; with several, from the one that lost most.
    pub tester: Option<Stolen>,
    /// From the DUT's host.
    pub dut: Option<Stolen>,
    /// From AuthDNS's host, with several from the one that lost most; absent if no host reports it.
    pub auth: Option<Stolen>,
}

/// Error of a run folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The system refused to read or write a file of the run folder.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The failed operation: `read`, `write`, `create`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The plan in the run folder is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The run folder was written by another version of this program.
    #[error(
        "{folder} has format version {version}, but this program reads version {VERSION}: use the program that wrote it, or \
         measure again into another run folder"
    )]
    Version {
        /// The run folder that was to be read or resumed.
        folder: PathBuf,
        /// The format version of its journal.
        version: u64,
    },
    /// There is no journal.
    #[error("{folder} is not a run folder: it has no journal.jsonl")]
    NoRun {
        /// The given folder.
        folder: PathBuf,
    },
    /// The campaign was killed before its first line.
    #[error(
        "the journal of {folder} is empty: nothing has been measured yet; continue with: dns64bench campaign resume {folder}"
    )]
    Empty {
        /// The run folder that was to be read.
        folder: PathBuf,
    },
    /// The journal does not contain the plan that it was measured with.
    #[error(
        "the journal of {folder} does not contain the plan that it was measured with (older versions did not write it); \
         start another run folder: dns64bench campaign run PLAN --dir DIR"
    )]
    NoPlan {
        /// The run folder that was to be read or resumed.
        folder: PathBuf,
    },
    /// The given plan differs from the one in the journal.
    #[error(
        "{path} differs from the plan in the journal of {folder}, in: {keys}; restore it, or start another run folder for it \
         (dns64bench campaign run PLAN --dir DIR)"
    )]
    OtherPlan {
        /// File of the given plan.
        path: PathBuf,
        /// The run folder that was to be read or resumed.
        folder: PathBuf,
        /// The keys in which they differ, truncated if there are many.
        keys: String,
    },
}

/// Returns a path that no program mistakes for an option.
fn as_operand(path: &Path) -> PathBuf {
    let is_like_option = path.as_os_str().as_encoded_bytes().starts_with(b"-");
    if is_like_option { Path::new(".").join(path) } else { path.into() }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |source| ArchiveError::Io { doing, path, source }
}

/// A run folder open for writing.
pub struct Archive {
    folder: PathBuf,
    journal: Lines,
}

impl Archive {
    /// Creates a run folder, which must not exist, with the facts of this machine.
    ///
    /// # Errors
    /// If the folder exists, or cannot be written.
    pub fn create(
        folder: &Path,
        plan: &Plan,
        environment: &Environment,
    ) -> Result<Archive, ArchiveError> {
        let folder = &as_operand(folder);
        fs::create_dir(folder).map_err(io_error("create", folder))?;
        for name in ["servers", "running"] {
            let path = folder.join(name);
            fs::create_dir(&path).map_err(io_error("create", &path))?;
        }
        let path = folder.join("id");
        let id = tempfile::Builder::new()
            .prefix("")
            .make(|_| Ok(()))
            .map_err(io_error("create an id for", &path))?;
        let id = id
            .path()
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        write_whole(&path, id.as_bytes())?;
        let text = toml::to_string(plan)
            .map_err(|e| io_error("write the plan into", folder)(io::Error::other(e)))?;
        write_whole(&folder.join("plan.toml"), text.as_bytes())?;
        write_json(&folder.join("environment.json"), environment)?;
        let mut journal = Lines::create(&folder.join("journal.jsonl"))?;
        journal.append(&Entry::begun(plan))?;
        Ok(Archive { folder: folder.clone(), journal })
    }

    /// Opens a run folder to resume it; returns the journal's plan and entries.
    ///
    /// # Errors
    /// If it is not a run folder, is in use, or has a `plan.toml` that differs from the plan in its
    /// journal.
    pub fn open(folder: &Path) -> Result<(Archive, Plan, Vec<Entry>), ArchiveError> {
        let folder = &as_operand(folder);
        let path = journal_of(folder)?;
        let file = folder.join("plan.toml");
        let (mut journal, entries) = Lines::open(&path)?;
        if entries.is_empty() {
            // The campaign was killed before its first line, so nothing is measured yet.
            let plan = Plan::load(&file)?;
            journal.append(&Entry::begun(&plan))?;
            return Ok((Archive { folder: folder.clone(), journal }, plan, entries));
        }
        let plan = plan_of(&entries, folder)?;
        same_plan(&plan, &file, folder)?;
        Ok((Archive { folder: folder.clone(), journal }, plan, entries))
    }

    /// Appends an entry to the journal.
    ///
    /// # Errors
    /// If the entry could not be written.
    pub fn append(&mut self, entry: &Entry) -> Result<(), ArchiveError> {
        Ok(self.journal.append(entry)?)
    }

    /// Creates a new folder for a server's files; returns its path below the run folder.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(crate) fn server_folder(&self, name: &str) -> Result<PathBuf, ArchiveError> {
        let word: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        for n in 1.. {
            let below = PathBuf::from(format!("servers/{}-{n}", word.to_lowercase()));
            let path = self.folder.join(&below);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(below),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(io_error("create", &path)(e)),
            }
        }
        unreachable!("the loop has no end")
    }

    /// Returns the path, below the run folder, for the records of trial number `number`. Files left
    /// there by a killed trial are removed.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(crate) fn records_file(
        &self,
        number: usize,
        extension: &str,
    ) -> Result<PathBuf, ArchiveError> {
        let (below, file) = (PathBuf::from("records"), format!("trial-{number:05}.{extension}"));
        let path = self.folder.join(&below);
        fs::create_dir_all(&path).map_err(io_error("create", &path))?;
        for entry in fs::read_dir(&path).map_err(io_error("read", &path))?.flatten() {
            let other = entry.file_name();
            if other == *file || other.as_encoded_bytes().starts_with(b".") {
                fs::remove_file(entry.path()).map_err(io_error("remove", &entry.path()))?;
            }
        }
        Ok(below.join(file))
    }

    /// True if a file below the run folder exists.
    pub fn has(&self, file: &Path) -> bool {
        self.folder.join(file).exists()
    }

    /// Returns the name of its folders on other hosts, which is unique to this run.
    ///
    /// # Errors
    /// If its id cannot be read.
    pub fn far_name(&self) -> Result<String, ArchiveError> {
        let path = self.folder.join("id");
        let id = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        let whole = self.folder.canonicalize().map_err(io_error("find", &self.folder))?;
        let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(format!("{name}-{}", id.trim()))
    }

    /// Returns the run folder's path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Reads a run folder, which may be in use by another process; the plan is the journal's.
///
/// # Errors
/// If it is not a run folder.
pub fn read(folder: &Path) -> Result<(Plan, Environment, Vec<Entry>), ArchiveError> {
    let entries = Lines::read(&journal_of(folder)?)?;
    let plan = if entries.is_empty() {
        Plan::load(&folder.join("plan.toml"))?
    } else {
        plan_of(&entries, folder)?
    };
    Ok((plan, machine_of(folder)?, entries))
}

/// Returns the facts of the machine on which a run was started.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn machine_of(folder: &Path) -> Result<Environment, ArchiveError> {
    let path = folder.join("environment.json");
    let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
    serde_json::from_str(&text).map_err(|e| io_error("read", &path)(e.into()))
}

/// Writes a file atomically. Its mode follows the umask.
///
/// # Errors
/// If the file could not be written; a previous file is then unchanged.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    let write = || -> io::Result<()> {
        let mut file = NewFile::open(path)?;
        file.write_all(bytes)?;
        file.finish()
    };
    write().map_err(io_error("write", path))
}

/// Writes a value as JSON, atomically.
///
/// # Errors
/// Same as [`write_whole`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), ArchiveError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| io_error("write", path)(e.into()))?;
    write_whole(path, without_hidden(&text).as_bytes())
}

/// Escapes the control and direction-changing characters that JSON allows in texts (RFC 8259 §7).
/// All of them are in the basic multilingual plane.
fn without_hidden(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) && c != '\n' {
            out += &format!("\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::{Conditions, Cores};

    /// Opens a journal, retrying while it is busy: a process that another test has just forked
    /// holds the lock until its exec.
    fn open(path: &Path) -> (Lines, Vec<Entry>) {
        loop {
            match Lines::open(path) {
                Err(JournalError::Busy { .. }) => std::thread::yield_now(),
                other => return other.unwrap(),
            }
        }
    }

    /// Power loss may leave any prefix of the written data: complete lines count, and the rest is
    /// overwritten.
    #[test]
    fn a_truncated_journal_resumes_with_complete_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let step = |rate| {
            let point = Point::Search(Conditions::worst_case("BIND \"9\"", Cores::first(1)));
            Entry::Started(Step { point, repeat: 0, rate: Qps(rate), length: Length::Probe })
        };
        let point = Point::Search(Conditions::worst_case("x", Cores::first(2)));
        let mishap = Entry::Mishap { point, what: "a\nb".into(), log: "ü".into() };
        let entries =
            [Entry::Version { dut: "x".into(), text: "1".into() }, step(1), mishap, step(2)];
        let mut journal = Lines::create(&path).unwrap();
        for entry in &entries {
            journal.append(entry).unwrap();
        }
        drop(journal);
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let lines = whole[..cut].iter().filter(|&&octet| octet == b'\n').count();
            assert_eq!(Lines::read::<Entry>(&path).unwrap(), entries[..lines], "cut off at {cut}");
            let (mut journal, found) = open(&path);
            assert_eq!(found, entries[..lines], "cut off at {cut}");
            journal.append(&step(3)).unwrap();
            drop(journal);
            let after = Lines::read::<Entry>(&path).unwrap();
            assert_eq!(
                (after.len(), after.last()),
                (lines + 1, Some(&step(3))),
                "cut off at {cut}"
            );
        }
    }
}
