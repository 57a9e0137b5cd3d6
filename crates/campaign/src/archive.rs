//! The run folder: everything that a campaign was told and found, and all that is needed to go on
//! after it was killed.
//!
//! ```text
//! plan.toml           as it was begun
//! environment.json    the facts of `check`
//! id                  tells this run's folders on other hosts from those of others
//! journal.jsonl       version and plan as it was begun, then a line before and after every trial, synced
//! records/            records of every query, a file per trial, if the plan wants them
//! servers/            configurations and logs of the DUTs, a folder per start
//! governors           the CPUs' frequency governors as they were, while a point has others
//! lab                 that the lab was put up for this run, which takes it down
//! trial.plan.json     the trial that runs, or ran last, as `measure --plan` takes it; trial.json is its result, trial.log its log
//! running/            ids of processes, to be ended by the next run if this one is killed with its agents
//! results.json        made from the journal at the end, and by `report`
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

/// The version of run folders and `results.json`. Version 1 had values by position, and points
/// without a place.
pub const VERSION: u32 = 2;

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The first line.
    Begun {
        /// The version of the run folder's format: [`VERSION`].
        version: u32,
        /// The plan as it was begun, by which every other line was measured.
        plan: Box<Plan>,
    },
    /// What a server says that it is.
    Version {
        /// Name of the DUT.
        dut: String,
        /// First line of what it prints.
        text: String,
    },
    /// What a server was told when it was first started.
    Configuration {
        /// Name of the DUT, or of what plays AuthDNS.
        server: String,
        /// The command and the file.
        told: Configuration,
    },
    /// The facts of a host, where it is another one or a namespace of this one.
    Host {
        /// What it is: tester, dut or auth; "tester N" is a further one of several, with the number
        /// of its shard.
        role: String,
        /// What `check` finds there.
        environment: Environment,
    },
    /// A host is not what it was when it was noted last: its kernel, its CPUs or the build of this
    /// program are others. The campaign goes on there.
    HostChanged {
        /// As of a host; "all" is the one machine of a campaign on loopback.
        role: String,
        /// What `check` finds there now.
        environment: Environment,
    },
    /// What sending costs on the tester's host, by which the bursts of all trials are chosen.
    SendCost(SendCost),
    /// A trial is about to begin.
    Started(Step),
    /// A trial has ended.
    Finished(Box<Measured>),
    /// A trial in which the DUT died or hung. It was repeated with a new server and is part of no
    /// number.
    Repeated(Box<Measured>),
    /// Request to measure these points again: their trials above this line do not count.
    Redone(Redo),
    /// A point cannot be made on the DUT's host, whoever goes on.
    CannotBeMade {
        /// The point that has no trials for that reason.
        point: Point,
        /// What the DUT's host lacks, or refused.
        why: CannotBeMade,
    },
    /// Something happened that is no result: a server died or hung, a point cannot be measured.
    Mishap {
        /// The point at which it happened.
        point: Point,
        /// What happened, in words.
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

/// What a server is told: it decides what is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Configuration {
    /// The command that starts it.
    pub command: Vec<String>,
    /// Name of its configuration file; empty where it has none.
    pub file: String,
    /// What is in that file.
    pub text: String,
}

impl Entry {
    /// The first line of a journal.
    pub fn begun(plan: &Plan) -> Entry {
        Entry::Begun { version: VERSION, plan: Box::new(plan.clone()) }
    }
}

/// Which trial it is: its point, its search or repetition, and its place in that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Step {
    /// The point that the trial is of.
    pub point: Point,
    /// Which repetition, from 0.
    pub repeat: u32,
    /// The rate that is sent, queries per second.
    pub rate: Qps,
    /// A probe, or of full length.
    pub length: Length,
}

/// A trial and what was seen around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measured {
    /// Which trial it was.
    #[serde(flatten)]
    pub step: Step,
    /// What the tester found.
    #[serde(flatten)]
    pub found: TaskResult,
    /// How the DUT ended in the trial, if it did; then neither CPU use nor latency says anything
    /// about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut_end: Option<DutEnd>,
    /// CPU use of the DUT, of AuthDNS and of the hosts, in cores.
    pub cpu: Cpu,
    /// Page allocations of the DUT's host during the trial, NUMA node by NUMA node, where the
    /// kernel counts them.
    pub numa: Option<Numa>,
    /// What a hypervisor took.
    #[serde(default)]
    pub stolen: StolenFrom,
    /// What speaks against the tester, though the trial was not invalid. In JSON `warnings` are the
    /// words and `warning_causes` the data.
    #[serde(flatten, with = "method::warning::in_words")]
    #[schemars(with = "method::warning::in_words::Written<'static>")]
    pub warnings: Vec<Warning>,
    /// Its records, as a path below the run folder, if the plan wants them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<PathBuf>,
}

impl Measured {
    /// Its verdict.
    pub fn verdict(&self) -> Verdict {
        match &self.found {
            TaskResult::Trial(trial) => trial.verdict,
            TaskResult::ClosedLoop(trial) => trial.verdict,
            TaskResult::Conform(trial) => trial.verdict(),
        }
    }

    /// What decided it; empty for one that passed.
    pub fn reasons(&self) -> &[Reason] {
        match &self.found {
            TaskResult::Trial(trial) => &trial.reasons,
            TaskResult::ClosedLoop(trial) => &trial.reasons,
            TaskResult::Conform(_) => &[],
        }
    }

    /// In which way it was not what the plan wanted.
    pub fn deviation(&self) -> Option<Deviation> {
        match &self.found {
            TaskResult::Trial(trial) => trial.deviation,
            TaskResult::ClosedLoop(trial) => trial.deviation,
            TaskResult::Conform(_) => None,
        }
    }

    /// The trial, if it sent at a rate.
    pub fn at_rate(&self) -> Option<&TrialResult> {
        match &self.found {
            TaskResult::Trial(trial) => Some(trial),
            TaskResult::ClosedLoop(_) | TaskResult::Conform(_) => None,
        }
    }

    /// The trial, if it was a closed loop.
    pub(crate) fn in_loop(&self) -> Option<&LoopTrial> {
        match &self.found {
            TaskResult::ClosedLoop(trial) => Some(trial),
            TaskResult::Trial(_) | TaskResult::Conform(_) => None,
        }
    }

    /// The checks, if it was these.
    pub fn checked(&self) -> Option<&ConformTrial> {
        match &self.found {
            TaskResult::Conform(trial) => Some(trial),
            TaskResult::Trial(_) | TaskResult::ClosedLoop(_) => None,
        }
    }

    /// Whether the DUT may have ended in it: it left queries without a reply, or nobody counted
    /// them.
    pub(crate) fn may_have_ended_the_dut(&self) -> bool {
        self.counts().lost > 0 || self.checked().is_some()
    }

    /// What became of its queries; those of checks are not counted.
    pub fn counts(&self) -> &Counts {
        static NOT_COUNTED: LazyLock<Counts> = LazyLock::new(Counts::default);
        match &self.found {
            TaskResult::Trial(trial) => &trial.counts,
            TaskResult::ClosedLoop(trial) => &trial.experiments.counts,
            TaskResult::Conform(_) => &NOT_COUNTED,
        }
    }
}

/// What the tester found in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskResult {
    /// Queries at a rate.
    Trial(Box<TrialResult>),
    /// Queries of which each waited for the answer to the one before.
    ClosedLoop(Box<LoopTrial>),
    /// What each check came to.
    Conform(Box<ConformTrial>),
}

/// How a DUT ended in a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DutEnd {
    /// Its process ended, in this way.
    Died(String),
    /// It runs and answers nothing, also some seconds after the trial.
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

/// CPU use during a trial, in cores, and on which CPUs that was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cpu {
    /// Of the DUT, second by second.
    pub dut: Vec<f64>,
    /// Share of the time that the CPUs of the DUT's host were not idle, second by second, from 0 to
    /// 1; empty where the host does not say.
    #[serde(default)]
    pub host: Vec<f64>,
    /// Of AuthDNS, on average; of several, of the one that used most.
    pub auth: f64,
    /// Of the Measurer, on average.
    pub tester: f64,
    /// Where the DUT ran, as it was seen in the middle of the trial; absent in self-tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Use of the CPUs on which the DUT may run by others than the DUT and the tester; absent in
    /// self-tests and where the host does not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OtherUse>,
}

/// What a hypervisor took of the CPU time of each host during a trial, where the host tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StolenFrom {
    /// Of the tester's host; of several, of the one that lost most.
    pub tester: Option<Stolen>,
    /// Of the DUT's host.
    pub dut: Option<Stolen>,
    /// What it took of AuthDNS's host, of several of the one that lost most; absent where no host
    /// tells.
    pub auth: Option<Stolen>,
}

/// Why a run folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The system refused to read or write a file of the run folder.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was to be done with the file: `read`, `write`, `create`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The plan in it is none.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Its journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Written by another version of this program.
    #[error(
        "{folder} was written in version {version} of the format, this program reads version {VERSION}: measure again into another \
         run folder, or use the program that wrote it"
    )]
    Version {
        /// The run folder that was to be read or gone on with.
        folder: PathBuf,
        /// The version of the format in which its journal is written.
        version: u64,
    },
    /// There is no journal.
    #[error("{folder} is no run folder: there is no journal.jsonl in it")]
    NoRun {
        /// The folder that was given as a run folder.
        folder: PathBuf,
    },
    /// The campaign was killed before its first line.
    #[error(
        "the journal of {folder} is empty: nothing is measured yet; go on with: dns64bench campaign resume {folder}"
    )]
    Empty {
        /// The run folder that was to be read.
        folder: PathBuf,
    },
    /// The journal does not say by which plan it was measured.
    #[error(
        "the journal of {folder} does not begin with the plan that it was measured by, as those of older versions do not; \
         begin another run folder: dns64bench campaign run PLAN --dir DIR"
    )]
    NoPlan {
        /// The run folder that was to be read or gone on with.
        folder: PathBuf,
    },
    /// A plan is not the one that the journal was begun with.
    #[error(
        "{path} differs from the plan that {folder} was begun with, in: {keys}; begin another run folder for it \
         (dns64bench campaign run PLAN --dir DIR), or restore what it was"
    )]
    OtherPlan {
        /// The file of the plan that was given.
        path: PathBuf,
        /// The run folder that was to be read or gone on with.
        folder: PathBuf,
        /// The keys in which they differ, the first of many.
        keys: String,
    },
}

/// A path that no program takes for an option.
fn as_operand(path: &Path) -> PathBuf {
    let is_like_option = path.as_os_str().as_encoded_bytes().starts_with(b"-");
    if is_like_option { Path::new(".").join(path) } else { path.into() }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |source| ArchiveError::Io { doing, path, source }
}

/// A run folder that is being written.
pub struct Archive {
    folder: PathBuf,
    journal: Lines,
}

impl Archive {
    /// Begins a run folder, which must not exist, on a machine of which this was observed.
    ///
    /// # Errors
    /// If it exists, or cannot be written.
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
            .map_err(io_error("draw an id for", &path))?;
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

    /// Opens a run folder to go on; returns the journal's plan, and what has been done.
    ///
    /// # Errors
    /// If it is none, or in use, or its `plan.toml` is not the plan that its journal was begun
    /// with.
    pub fn open(folder: &Path) -> Result<(Archive, Plan, Vec<Entry>), ArchiveError> {
        let folder = &as_operand(folder);
        let path = journal_of(folder)?;
        let file = folder.join("plan.toml");
        let (mut journal, entries) = Lines::open(&path)?;
        if entries.is_empty() {
            // Killed before its first line: nothing is measured yet.
            let plan = Plan::load(&file)?;
            journal.append(&Entry::begun(&plan))?;
            return Ok((Archive { folder: folder.clone(), journal }, plan, entries));
        }
        let plan = plan_of(&entries, folder)?;
        same_plan(&plan, &file, folder)?;
        Ok((Archive { folder: folder.clone(), journal }, plan, entries))
    }

    /// Appends to the journal.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn append(&mut self, entry: &Entry) -> Result<(), ArchiveError> {
        Ok(self.journal.append(entry)?)
    }

    /// A new folder for a server's files, as a path below the run folder.
    ///
    /// # Errors
    /// If it cannot be made.
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

    /// Where the records of trial number `number` go, as a path below the run folder: there is
    /// nothing yet, nor what a trial that was killed has left.
    ///
    /// # Errors
    /// If the folder cannot be made.
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

    /// Whether a file below the run folder is there.
    pub fn has(&self, file: &Path) -> bool {
        self.folder.join(file).exists()
    }

    /// What its folders on other hosts are called: no other run's are.
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

    /// The run folder's path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// What a run folder holds, read while it may be written; the plan is the journal's.
///
/// # Errors
/// If it is no run folder.
pub fn read(folder: &Path) -> Result<(Plan, Environment, Vec<Entry>), ArchiveError> {
    let entries = Lines::read(&journal_of(folder)?)?;
    let plan = if entries.is_empty() {
        Plan::load(&folder.join("plan.toml"))?
    } else {
        plan_of(&entries, folder)?
    };
    Ok((plan, machine_of(folder)?, entries))
}

/// What was observed of the machine on which a run was begun.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn machine_of(folder: &Path) -> Result<Environment, ArchiveError> {
    let path = folder.join("environment.json");
    let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
    serde_json::from_str(&text).map_err(|e| io_error("read", &path)(e.into()))
}

/// Writes a file whole or not at all. Its mode follows the umask, as that of any file.
///
/// # Errors
/// If it could not be written; then what was there before is still there.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    let write = || -> io::Result<()> {
        let mut file = NewFile::open(path)?;
        file.write_all(bytes)?;
        file.finish()
    };
    write().map_err(io_error("write", path))
}

/// Writes a value as JSON, whole or not at all.
///
/// # Errors
/// As [`write_whole`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), ArchiveError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| io_error("write", path)(e.into()))?;
    write_whole(path, without_hidden(&text).as_bytes())
}

/// Escapes the control and direction-changing characters that JSON allows in texts (RFC 8259 §7).
/// All of them are of the basic plane.
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

    /// Another test's process that has just been forked holds our lock until it becomes another
    /// program.
    fn open(path: &Path) -> (Lines, Vec<Entry>) {
        loop {
            match Lines::open(path) {
                Err(JournalError::Busy { .. }) => std::thread::yield_now(),
                other => return other.unwrap(),
            }
        }
    }

    /// Power loss may leave any prefix of what was written: whole lines count, what is behind them
    /// is overwritten.
    #[test]
    fn a_journal_cut_off_at_any_octet_goes_on_with_its_whole_lines() {
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
