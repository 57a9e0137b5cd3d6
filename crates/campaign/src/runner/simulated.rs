//! Simulated hosts, which need no processes, sockets or waiting.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::UNIX_EPOCH;

use ::hosts::numa::{NodePages, Numa};
use ::hosts::place::{Allowed, CpuPlacement};
use conform::check::Level;
use conform::outcome::{Outcome, Report, Verdict as Checked};
use method::reason::{OtherUse, Reason};
use tester::authdns::counters::AuthCounters;
use tester::client::experiments::Experiments;
use tester::measurer::plan::shard::{Moment, ShardPlan};
use tester::measurer::plan::{Subject, TrialPlan};
use tester::measurer::result::{Rtt, TrialResult};
use units::{Nanos, Share};

use crate::journal::JournalError;
use crate::plan::{AuthPlan, Cores, DutPlan, FIXED};
use crate::record::{Configuration, ConformTrial, LoopTrial};
use crate::runner::hosts::{Machines, Observers, Servers, Testers};
use crate::runner::testers::{of_shard, with_hosts};
use crate::sequence::ConformPlan;

use super::*;

/// Simulated event in a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The DUT's process ends.
    Dies,
    /// The DUT stops answering.
    Hangs,
    /// Every reply is NXDOMAIN.
    Denies,
    /// One query is lost, every reply is NXDOMAIN, and later readiness checks also get NXDOMAIN.
    DeniesLater,
    /// AuthDNS drops a query, which makes the trial invalid.
    Invalid,
    /// One of several testers is not ready at the start.
    NotReady,
    /// The campaign is killed before the trial ends.
    Killed,
}

/// Simulated hosts, on which every DUT answers up to `capacity` queries/s per core.
pub struct Simulated {
    capacity: u64,
    /// Two lists of capacities, for the DUT and for AuthDNS, in queries per second. Trial n uses
    /// entry n of a list, and after the last entry the list begins again. If the list of the DUT is
    /// empty, the DUT's capacity is `capacity`. If the list of AuthDNS is empty, AuthDNS has no
    /// limit.
    varying: [Vec<u64>; 2],
    /// Events, each with the index of its trial. Readiness checks do not count as trials.
    events: Vec<(usize, Event)>,
    /// Number of trials so far.
    pub trials: Cell<usize>,
    /// Number of readiness checks so far.
    pub readiness_checks: Cell<usize>,
    /// Number of testers among which each trial is distributed.
    pub testers: u16,
    /// Names of the DUTs that were started, in order.
    pub started: RefCell<Vec<String>>,
    /// Names of the AuthDNS servers that were started, in order.
    pub auths: RefCell<Vec<String>>,
    /// Name of a DUT that fails to start, and the number of its first failed start, counted from 1.
    pub broken: Option<(&'static str, usize)>,
    /// For each host: its role, and the facts about it.
    pub facts: Vec<(String, Environment)>,
    /// Index of the first trial in which the DUTs report a new version. Before this trial, they
    /// report an older version.
    pub upgraded_at: usize,
    /// True if a DUT that has just started answers readiness checks with NXDOMAIN.
    pub denies_at_start: bool,
    denies: Cell<bool>,
    /// Use of the DUT's CPUs by other programs in all trials; `None` if unknown.
    pub others: Option<OtherUse>,
    /// True if the campaign continues after a failed self-test.
    pub keep_going: bool,
    hangs: Cell<bool>,
    /// For each trial: the number of DUT starts so far, the position of the first queried name in
    /// the list of names, and the number of names.
    pub names: RefCell<Vec<(usize, u64, u64)>>,
    numa: Cell<u64>,
    /// Frequency governors of the DUT's host; empty if the host has no frequency scaling.
    pub governors: &'static [&'static str],
    /// Log of the CPU frequency governors that were set and restored.
    pub governed: Rc<RefCell<Vec<String>>>,
}

/// A CPU frequency governor that is set on the simulated host until this value is dropped. The start and the end are
/// logged.
pub(crate) struct SimulatedGovernor {
    name: String,
    log: Rc<RefCell<Vec<String>>>,
}

impl Drop for SimulatedGovernor {
    fn drop(&mut self) {
        self.log.borrow_mut().push(format!("{} is over", self.name));
    }
}

/// A simulated DUT that runs.
pub(crate) struct SimulatedDut {
    cores: usize,
    start: usize,
    died: Cell<bool>,
}

impl Simulated {
    /// Creates simulated hosts. `capacity` is in queries per second per core. `events` contains simulated events, each
    /// with the index of its trial.
    pub fn new(capacity: u64, events: &[(usize, Event)]) -> Simulated {
        Simulated {
            capacity,
            varying: [Vec::new(), Vec::new()],
            events: events.to_vec(),
            trials: Cell::new(0),
            readiness_checks: Cell::new(0),
            testers: 1,
            started: RefCell::default(),
            auths: RefCell::default(),
            broken: None,
            facts: Vec::new(),
            upgraded_at: usize::MAX,
            denies_at_start: false,
            denies: Cell::new(false),
            others: None,
            keep_going: false,
            hangs: Cell::new(false),
            names: RefCell::default(),
            numa: Cell::new(0),
            governors: &[],
            governed: Rc::default(),
        }
    }

    fn event_in(&self, trial: usize) -> Option<Event> {
        self.events.iter().find(|(at, _)| *at == trial).map(|(_, event)| *event)
    }

    /// If there are several testers, asserts that each tester can send its share of the queries of
    /// a trial.
    fn assert_can_be_shared(&self, plan: &TrialPlan) {
        let (of, start) = (self.testers, Moment(Nanos(0)));
        for index in (0..of).filter(|_| of > 1) {
            let shard = Some(ShardPlan { index, of, seed: 0, start });
            let own = TrialPlan { shard, ..plan.clone() };
            own.check().unwrap_or_else(|why| panic!("tester {index} refuses {plan:?}: {why}"));
        }
    }

    /// Returns the result of conformance checks in which one MUST-level check fails and one SHOULD-level check
    /// is skipped.
    fn checks(
        &self,
        plan: &ConformPlan,
        dut: Option<&SimulatedDut>,
        event: Option<Event>,
    ) -> ConformTrial {
        if let (Some(Event::Dies), Some(dut)) = (event, dut) {
            dut.died.set(true);
            return ConformTrial::without_report(UNIX_EPOCH, "the DUT ended with signal: 9".into());
        }
        self.hangs.set(event == Some(Event::Hangs));
        let outcome = |id: &str, level, verdict| Outcome {
            id: id.into(),
            title: format!("{id} & what it wants"),
            source: "RFC 6147 §5.1.2".into(),
            sentence: "It MUST.".into(),
            level,
            verdict,
            reason: if verdict == Checked::Passed { String::new() } else { "it does <not>".into() },
            setting: None,
            contradicts: None,
            exchanges: Vec::new(),
        };
        let outcomes = vec![
            outcome("a-1", Level::Must, Checked::Passed),
            outcome("a-2", Level::Must, Checked::Failed),
            outcome("b-1", Level::Says, Checked::NotTried),
        ];
        let only = |outcome: &Outcome| plan.only.is_empty() || outcome.id == "a-2";
        let outcomes = outcomes.into_iter().filter(only).collect();
        let prefixes = plan.prefixes.iter().map(ToString::to_string).collect();
        let server = plan.name.clone();
        let report =
            Report { server, version: String::new(), prefixes, outcomes, duration_s: 60.5 };
        ConformTrial::new(UNIX_EPOCH, report)
    }

    fn of_rate(
        &self,
        plan: &TrialPlan,
        dut: Option<&SimulatedDut>,
        event: Option<Event>,
    ) -> TrialResult {
        let sent = plan.schedule().count();
        let [of_dut, of_auth] = self.varying.each_ref().map(|all| {
            let at = self.trials.get().checked_rem(all.len())?;
            all.get(at).copied()
        });
        let capacity = match (dut, plan.subject) {
            (Some(dut), _) => of_dut.unwrap_or(self.capacity) * dut.cores as u64,
            (None, Subject::Tester { .. }) => of_auth.unwrap_or(u64::MAX),
            (None, Subject::Dut) => u64::MAX,
        };
        // Up to a quarter above the capacity, 0.5 % of the queries are lost, so a trial with an
        // acceptance ratio of 0.99 passes. At higher rates, half of the queries are lost.
        let valid = match event {
            Some(Event::Hangs | Event::Denies | Event::DeniesLater) => 0,
            _ if plan.rate.0 <= capacity => sent,
            _ if plan.rate.0 <= capacity.saturating_add(capacity / 4) => sent - sent.div_ceil(200),
            _ => sent / 2,
        };
        let mut counts = Counts { sent, valid, lost: sent - valid, ..Counts::default() };
        if let Some(Event::Denies | Event::DeniesLater) = event {
            counts.lost = u64::from(event == Some(Event::DeniesLater)).min(sent);
            counts.wrong.rcode.insert(3, sent - counts.lost);
        }
        let mut trial = TrialResult::simulated(plan, counts);
        trial.rtt_us = Some(Rtt {
            min: 50.0,
            mean: 100.0,
            stdev: 1.0,
            p50: 100.0,
            p90: 200.0,
            p99: 300.0,
            p999: 400.0 + plan.rate.0 as f64,
            max: 9e3,
        });
        let mut part = AuthDelta::default();
        let fresh = valid - plan.cached_share.count_below(valid);
        let preloaded =
            plan.names_needed().saturating_sub(sent - plan.cached_share.count_below(sent));
        part.asked.aaaa = fresh + preloaded;
        part.asked.aaaa_present = plan.aaaa_share.count_below(part.asked.aaaa);
        part.asked.a = part.asked.aaaa - part.asked.aaaa_present;
        if event == Some(Event::Invalid) {
            part.socket_drops = 1;
        }
        trial.apply_auth(part, plan.auth_limit, plan.subject);
        trial
    }
}

impl Servers for Simulated {
    type Auth = ();
    type Dut = SimulatedDut;

    fn dut_version(&self, dut: &DutPlan) -> Result<String, ServerError> {
        let version = if self.trials.get() < self.upgraded_at { "1.0" } else { "2.0" };
        Ok(format!("{} {version}", dut.name()))
    }

    fn auth_version(&self, auth: &AuthPlan) -> Result<String, ServerError> {
        Ok(format!("{} 1.0", auth.name()))
    }

    fn change_ports(&mut self) -> Result<(), CampaignError> {
        Ok(())
    }

    fn start_auth(&self, _: &Archive, plan: &Plan, _: &Point, _: Share) -> Result<(), ServerError> {
        self.auths.borrow_mut().push(plan.auth.name().into());
        Ok(())
    }

    fn start_dut(
        &self,
        _: &Archive,
        dut: &DutPlan,
        point: &Point,
        (): &(),
    ) -> Result<SimulatedDut, ServerError> {
        self.started.borrow_mut().push(dut.name().into());
        self.hangs.set(false);
        self.denies.set(self.denies_at_start);
        let starts = self.started.borrow().iter().filter(|name| *name == dut.name()).count();
        if self.broken.is_some_and(|(name, from)| name == dut.name() && starts >= from) {
            return Err(ServerError::not_started(dut.name(), &"exit status: 7", "its log".into()));
        }
        Ok(SimulatedDut {
            cores: point.dut_place().cores,
            start: self.started.borrow().len(),
            died: Cell::new(false),
        })
    }

    fn serves(&self, (): &(), _: &Point) -> bool {
        true
    }

    fn auth_configuration(&self, (): &()) -> Configuration {
        Configuration::default()
    }

    fn dut_configuration(&self, _: &SimulatedDut) -> Configuration {
        Configuration::default()
    }

    fn cpus_at(&self, place: &Cores) -> Vec<usize> {
        (0..place.cores).collect()
    }

    fn cpus_of(&self, dut: &SimulatedDut) -> Vec<usize> {
        (0..dut.cores).collect()
    }

    fn wait_until(
        &self,
        _: &SimulatedDut,
        name: &str,
        is_ready: &mut dyn FnMut() -> Result<bool, CampaignError>,
    ) -> Result<(), CampaignError> {
        if is_ready()? {
            return Ok(());
        }
        Err(ServerError::not_started(name, &"it is not ready", String::new()).into())
    }

    fn dut_ended(&self, dut: &SimulatedDut) -> Result<Option<String>, HostError> {
        Ok(dut.died.get().then(|| "signal: 9".into()))
    }

    fn dut_log(&self, _: &SimulatedDut) -> String {
        "the end of its log".into()
    }
}

impl Observers for Simulated {
    type GovernorGuard = SimulatedGovernor;

    fn missing(&self, _: &[Point]) -> Result<Vec<String>, HostError> {
        Ok(Vec::new())
    }

    fn facts(&self) -> Vec<(String, Environment)> {
        self.facts.clone()
    }

    fn machines(&self) -> Machines {
        // Other programs can make a trial invalid only if the DUT runs on the tester's host.
        let dut = if self.others.is_some() { "a" } else { "b" };
        Machines { testers: vec!["a".into()], dut: dut.into(), auths: vec!["c".into()] }
    }

    fn govern(
        &self,
        _: &Path,
        governor: &str,
    ) -> Result<Result<SimulatedGovernor, CannotBeMade>, CampaignError> {
        let obstacle = match (self.governors, governor) {
            ([], FIXED) => None,
            ([], _) => Some(CannotBeMade::NoScaling),
            (known, wanted) if known.contains(&wanted) => None,
            (known, wanted) => {
                let known = known.iter().map(|&name| name.to_owned()).collect();
                Some(CannotBeMade::NoSuchGovernor { wanted: wanted.into(), known })
            }
        };
        let log = Rc::clone(&self.governed);
        log.borrow_mut().push(governor.into());
        Ok(match obstacle {
            Some(why) => Err(why),
            None => Ok(SimulatedGovernor { name: governor.into(), log }),
        })
    }

    fn restore_governors(&self, _: &Path) -> Result<(), HostError> {
        Ok(())
    }

    fn counters(&self, _: &()) -> Result<Option<AuthCounters>, HostError> {
        // `of_rate` has already compared each trial with simulated counters.
        Ok(None)
    }

    fn numa(&self) -> Result<Option<Numa>, HostError> {
        self.numa.set(self.numa.get() + 10 + self.trials.get() as u64 % 3);
        let at = |node: usize| NodePages {
            node,
            hit: self.numa.get() * 7,
            miss: self.numa.get(),
            ..NodePages::default()
        };
        Ok(Some(Numa { nodes: vec![at(0), at(1)] }))
    }

    fn cpu_times(&self) -> Result<[Vec<Option<CpuTimes>>; 3], HostError> {
        Ok([Vec::new(), Vec::new(), Vec::new()])
    }
}

impl Testers for Simulated {
    fn send_cost(&self) -> Result<SendCost, CampaignError> {
        Ok(SendCost { wake_up: Nanos(5_000), query: Nanos(1_000) })
    }

    fn server_of(&self, step: &Step) -> SocketAddr {
        let text = match &step.point {
            Point::SelfTest(at) if at.family == Some(crate::plan::Family::Ipv6) => {
                "[2001:2:1::2]:53"
            }
            Point::SelfTest(_) => "198.18.1.2:53",
            _ => "[2001:2::1]:53",
        };
        text.parse().unwrap()
    }

    fn place(&self, file: &Path) -> PathBuf {
        file.into()
    }

    fn trial(
        &self,
        (): &(),
        dut: Option<&SimulatedDut>,
        task: &Task,
    ) -> Result<(TaskResult, Cpu), CampaignError> {
        let place = dut.map(|dut| {
            let cpus: BTreeSet<usize> = (0..dut.cores).collect();
            let allowed = vec![Allowed { cpus: cpus.clone(), threads: dut.cores }];
            CpuPlacement {
                cpus,
                configured_threads: Some(dut.cores),
                allowed,
                ..CpuPlacement::default()
            }
        });
        let (seconds, host) = (vec![2.0, 0.5, 0.5, 0.5, 0.5, 0.5], vec![0.75, 0.25]);
        let others = self.others.filter(|_| dut.is_some());
        let cpu = Cpu { dut: seconds, host, auth: 0.1, tester: 0.1, place, others };
        let plan = match task {
            Task::Trial(plan) => {
                self.assert_can_be_shared(plan);
                assert!(plan.source_addresses.is_none_or(|from| from.check(plan.server).is_ok()));
                plan
            }
            Task::ClosedLoop(plan) => {
                self.trials.set(self.trials.get() + 1);
                let mut found = Experiments::begin(plan.server.to_string(), plan.threads, 0.0);
                found.experiments_ms = vec![10.0, 12.0];
                (found.counts.sent, found.counts.valid) = (512, 512);
                found.conclude();
                return Ok((TaskResult::ClosedLoop(Box::new(LoopTrial::judge(found))), cpu));
            }
            Task::Conform(plan) => {
                let number = self.trials.replace(self.trials.get() + 1);
                let event = self.event_in(number);
                if event == Some(Event::Killed) {
                    return Err(CampaignError::Interrupted);
                }
                let found = self.checks(plan, dut, event);
                return Ok((TaskResult::Conform(Box::new(found)), cpu));
            }
        };
        let number = self.trials.replace(self.trials.get() + 1);
        let event = self.event_in(number);
        let start = dut.map_or(0, |dut| dut.start);
        self.names.borrow_mut().push((start, plan.first_name, plan.names_needed()));
        match (event, dut) {
            (Some(Event::Killed), _) => return Err(CampaignError::Interrupted),
            (Some(Event::Dies), Some(dut)) => {
                dut.died.set(true);
                let trial = self.of_rate(plan, Some(dut), Some(Event::Hangs));
                return Ok((TaskResult::Trial(Box::new(trial)), cpu));
            }
            (Some(Event::NotReady), _) => {
                let late = of_shard(1, Reason::NotReady { late: Nanos::SECOND });
                let trial =
                    TrialResult::not_begun(plan, with_hosts(vec![late], &["load1", "load2"]));
                return Ok((TaskResult::Trial(Box::new(trial)), cpu));
            }
            (Some(Event::Hangs), _) => self.hangs.set(true),
            (Some(Event::DeniesLater), _) => self.denies.set(true),
            _ => {}
        }
        Ok((TaskResult::Trial(Box::new(self.of_rate(plan, dut, event))), cpu))
    }

    fn check_readiness(
        &self,
        (): &(),
        _: Option<&SimulatedDut>,
        task: &Task,
    ) -> Result<TaskResult, CampaignError> {
        let Task::Trial(plan) = task else { panic!("a look is at a rate, not {task:?}") };
        self.readiness_checks.set(self.readiness_checks.get() + 1);
        let event = match (self.hangs.get(), self.denies.get()) {
            (true, _) => Some(Event::Hangs),
            (_, true) => Some(Event::Denies),
            _ => None,
        };
        Ok(TaskResult::Trial(Box::new(self.of_rate(plan, None, event))))
    }
}

/// Observer that ignores all events.
pub(crate) struct NoWatcher;

impl Watcher for NoWatcher {
    fn begins(&mut self, _: &Step, _: (Option<Qps>, Option<Qps>)) {}
    fn ended(&mut self, _: &Measured) {}
    fn incident(&mut self, _: &Point, _: &str) {}
    fn complete(&mut self, _: &Point) {}
}

/// Opens a run folder, and retries while it is locked. A child process that a different test has just forked holds the
/// lock until the child calls exec.
pub fn reopened(run_folder: &Path) -> (Archive, Vec<Entry>) {
    loop {
        match Archive::open(run_folder) {
            Err(ArchiveError::Journal(JournalError::Busy { .. })) => std::thread::yield_now(),
            opened => {
                let (archive, _, done) = opened.unwrap();
                return (archive, done);
            }
        }
    }
}

/// Starts or continues a campaign in `folder`. Returns the outcome of the campaign, its journal and
/// its hosts.
pub fn go_on(
    plan: &Plan,
    folder: &Path,
    hosts: Simulated,
) -> (Result<(), CampaignError>, Vec<Entry>, Simulated) {
    let run_folder = folder.join("run");
    let (archive, done) = if run_folder.exists() {
        reopened(&run_folder)
    } else {
        (Archive::create(&run_folder, plan, Environment::for_tests()).unwrap(), Vec::new())
    };
    let mut watcher = NoWatcher;
    let keep_going = hosts.keep_going;
    let mut run = Campaign::new(plan, hosts, archive, done, &Interruption::new(), &mut watcher);
    // Simulated servers need no time between trials.
    (run.replies_again, run.pause, run.keep_going) = (Duration::ZERO, Duration::ZERO, keep_going);
    let ended = run.carry_out();
    let (entries, hosts) = (std::mem::take(&mut run.entries), run.hosts);
    (ended, entries, hosts)
}

/// Returns the journal of a complete campaign on simulated hosts.
pub fn journal_of(plan: &Plan, capacity: u64, events: &[(usize, Event)]) -> Vec<Entry> {
    let folder = tempfile::tempdir().unwrap();
    let (ended, entries, _) = go_on(plan, folder.path(), Simulated::new(capacity, events));
    ended.unwrap();
    entries
}

/// Runs a campaign on simulated hosts, and returns its journal. The journal is incomplete if the campaign ends with an
/// error. `varying` contains two lists of capacities, for the DUTs and for AuthDNS. Trial n uses entry n of a list, and
/// after the last entry the list begins again.
pub fn journal_of_varying(
    plan: &Plan,
    varying: [Vec<u64>; 2],
    events: &[(usize, Event)],
) -> Vec<Entry> {
    let folder = tempfile::tempdir().unwrap();
    let hosts = Simulated { varying, ..Simulated::new(0, events) };
    let (_, entries, _) = go_on(plan, folder.path(), hosts);
    entries
}
