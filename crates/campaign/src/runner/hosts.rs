//! Interface between the runner and the hosts: starting servers, executing trials, and reading
//! counters. The runner itself only decides, and can therefore be tested without hosts.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use conform::outcome::Checked;
use hosts::environment::Environment;
use hosts::host::{Ended, HostError, Machine, Running};
use hosts::interruption::Interruption;
use hosts::numa::Numa;
use net::cpu_time::CpuTimes;
use serde::de::Error as _;
use tester::authdns::counters::AuthCounters;
use tester::client::experiments::Experiments;
use tester::measurer::burst::SendCost;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use units::{Nanos, Share, counted};

use crate::archive::Archive;
use crate::plan::{AuthPlan, Cores, DutPlan, Plan, Point, Topology};
use crate::record::{CannotBeMade, Configuration, ConformTrial, Cpu, LoopTrial, Step, TaskResult};
use crate::runner::deployment::Deployment;
use crate::runner::error::CampaignError;
use crate::runner::governor::{GovernorError, GovernorGuard};
use crate::runner::meter::Meter;
use crate::runner::preflight;
use crate::runner::running_servers::{
    RunningAuth, RunningDut, ServedNames, ServerError, auth_version, version_of,
};
use crate::sequence::{FarView, Task};

/// Polling interval for the processes of a trial.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Size of the test write that detects a full disk, in octets.
const PROBE: usize = 16 << 10;
/// Maximum duration of the measurement of the cost of sending.
const SEND_COST: Duration = Duration::from_secs(20);
/// Maximum size of a trial's result in octets. A closed loop reports the times of all experiments,
/// and one of several testers its queries in each 10 ms, about 4 MiB per hour.
pub(super) const RESULT: u64 = 64 << 20;
/// Exit status of a tester that rejects a plan.
const USAGE: i32 = 2;
/// Exit status of a tester whose host lacks a resource, such as room for the records.
const ENVIRONMENT: i32 = 4;

/// Unique ids of the machines; empty if unknown.
pub(super) struct Machines {
    /// Machines of the testers, each once.
    pub(super) testers: Vec<String>,
    /// Machine of the DUT.
    pub dut: String,
    /// Machines of AuthDNS, each once.
    pub(super) auths: Vec<String>,
}

/// The servers of a campaign.
pub(super) trait Servers {
    /// AuthDNS, which runs until it is dropped.
    type Auth;
    /// A DUT, which runs until it is dropped.
    type Dut;

    /// Returns the version of a DUT.
    fn dut_version(&self, dut: &DutPlan) -> Result<String, ServerError>;
    /// Returns the version of an AuthDNS.
    fn auth_version(&self, auth: &AuthPlan) -> Result<String, ServerError>;
    /// Chooses other ports if the topology permits it; no server may run on the old ones.
    fn change_ports(&mut self) -> Result<(), CampaignError>;
    /// Starts AuthDNS as configured in `plan`, with a share of names that have AAAA records, and
    /// waits until it answers.
    fn start_auth(
        &self,
        archive: &Archive,
        plan: &Plan,
        point: &Point,
        aaaa: Share,
    ) -> Result<Self::Auth, ServerError>;
    /// Starts a DUT for a point, configured with `auth` as its upstream. The caller checks that it
    /// answers.
    fn start_dut(
        &self,
        archive: &Archive,
        dut: &DutPlan,
        point: &Point,
        auth: &Self::Auth,
    ) -> Result<Self::Dut, ServerError>;
    /// True if each AuthDNS listens on the addresses that are queried at a point.
    fn serves(&self, auth: &Self::Auth, point: &Point) -> bool;
    /// Returns the configuration of AuthDNS.
    fn auth_configuration(&self, auth: &Self::Auth) -> Configuration;
    /// Returns the configuration of a DUT.
    fn dut_configuration(&self, dut: &Self::Dut) -> Configuration;
    /// Returns the CPUs that a DUT is confined to at a placement; empty if any will do.
    fn cpus_at(&self, place: &Cores) -> Vec<usize>;
    /// Returns the CPUs that a DUT is confined to.
    fn cpus_of(&self, dut: &Self::Dut) -> Vec<usize>;
    /// Waits until `is_ready` returns true; returns an error if the DUT exits first, or takes too
    /// long.
    fn wait_until(
        &self,
        dut: &Self::Dut,
        name: &str,
        is_ready: &mut dyn FnMut() -> Result<bool, CampaignError>,
    ) -> Result<(), CampaignError>;
    /// Returns how a DUT ended, if it has.
    fn dut_ended(&self, dut: &Self::Dut) -> Result<Option<String>, HostError>;
    /// Returns the end of a DUT's log.
    fn dut_log(&self, dut: &Self::Dut) -> String;
}

/// State of the hosts: preconditions, facts, counters and frequency governors.
pub(super) trait Observers: Servers {
    /// A frequency governor of the DUT's host, in effect until it is dropped.
    type GovernorGuard;

    /// Returns what is missing on the hosts for these points, a sentence each.
    fn missing(&self, open: &[Point]) -> Result<Vec<String>, HostError>;
    /// Returns the facts of the hosts with their roles, if the hosts are other machines or network
    /// namespaces of this one.
    fn facts(&self) -> Vec<(String, Environment)>;
    /// Returns the ids of the machines.
    fn machines(&self) -> Machines;
    /// Sets the frequency governor of the DUT's CPUs, or returns why that is impossible. `folder`
    /// is the run folder.
    fn govern(
        &self,
        folder: &Path,
        governor: &str,
    ) -> Result<Result<Self::GovernorGuard, CannotBeMade>, CampaignError>;
    /// Restores the governors that a killed run of this folder has changed.
    fn restore_governors(&self, folder: &Path) -> Result<(), HostError>;
    /// Returns AuthDNS's counters, if it has any.
    fn counters(&self, auth: &Self::Auth) -> Result<Option<AuthCounters>, HostError>;
    /// Returns the page allocations on the DUT's host, if the kernel counts them.
    fn numa(&self) -> Result<Option<Numa>, HostError>;
    /// Returns the CPU times of the hosts of testers, DUT and AuthDNS, if the hosts report them.
    fn cpu_times(&self) -> Result<[Vec<Option<CpuTimes>>; 3], HostError>;
}

/// The testers, which execute the trials.
pub(super) trait Testers: Servers {
    /// Measures the cost of sending on the tester's host.
    fn send_cost(&self) -> Result<SendCost, CampaignError>;
    /// Returns the address that the Measurer queries in a step.
    fn server_of(&self, step: &Step) -> SocketAddr;
    /// Returns the path of a run folder's file on the tester's host.
    fn place(&self, file: &Path) -> PathBuf;
    /// Executes a trial to its end and observes the servers meanwhile; returns its result and the
    /// CPU use.
    fn trial(
        &self,
        auth: &Self::Auth,
        dut: Option<&Self::Dut>,
        task: &Task,
    ) -> Result<(TaskResult, Cpu), CampaignError>;
    /// Sends the few queries of a readiness check. The first tester sends them, even if several
    /// testers share the trials.
    fn check_readiness(
        &self,
        auth: &Self::Auth,
        dut: Option<&Self::Dut>,
        task: &Task,
    ) -> Result<TaskResult, CampaignError>;
}

/// The hosts of a campaign.
pub(super) trait Hosts: Observers + Testers {}

impl<T: Observers + Testers> Hosts for T {}

/// The real hosts: processes on machines.
pub(super) struct RealHosts<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The machines.
    pub(super) deployment: Deployment,
    /// The user's request to stop.
    pub interruption: Interruption,
}

impl Servers for RealHosts<'_> {
    type Auth = RunningAuth;
    type Dut = RunningDut;

    fn dut_version(&self, dut: &DutPlan) -> Result<String, ServerError> {
        version_of(&self.deployment.dut, dut)
    }

    fn auth_version(&self, auth: &AuthPlan) -> Result<String, ServerError> {
        auth_version(&self.deployment.auths[0], auth)
    }

    fn change_ports(&mut self) -> Result<(), CampaignError> {
        Ok(self.deployment.change_ports()?)
    }

    fn start_auth(
        &self,
        archive: &Archive,
        plan: &Plan,
        point: &Point,
        aaaa: Share,
    ) -> Result<RunningAuth, ServerError> {
        let names = if point.is_checked() {
            ServedNames::CheckAccess
        } else {
            ServedNames::OfTrials { aaaa }
        };
        RunningAuth::start(&self.deployment, plan, archive, &self.auth_addresses(point), names)
    }

    fn start_dut(
        &self,
        archive: &Archive,
        dut: &DutPlan,
        point: &Point,
        auth: &RunningAuth,
    ) -> Result<RunningDut, ServerError> {
        let place = point.dut_place();
        let cpus = self.deployment.dut_cpus(self.plan, &place);
        let checked = point.variant().zip(auth.anchors());
        RunningDut::start(&self.deployment, self.plan, archive, dut, place.cores, &cpus, checked)
    }

    fn serves(&self, auth: &RunningAuth, point: &Point) -> bool {
        auth.listens_on() == self.auth_addresses(point)
    }

    fn auth_configuration(&self, auth: &RunningAuth) -> Configuration {
        auth.configuration().clone()
    }

    fn dut_configuration(&self, dut: &RunningDut) -> Configuration {
        dut.configuration().clone()
    }

    fn cpus_at(&self, place: &Cores) -> Vec<usize> {
        self.deployment.dut_cpus(self.plan, place)
    }

    fn cpus_of(&self, dut: &RunningDut) -> Vec<usize> {
        dut.cpus()
    }

    fn wait_until(
        &self,
        dut: &RunningDut,
        name: &str,
        is_ready: &mut dyn FnMut() -> Result<bool, CampaignError>,
    ) -> Result<(), CampaignError> {
        dut.wait_until(name, is_ready)
    }

    fn dut_ended(&self, dut: &RunningDut) -> Result<Option<String>, HostError> {
        dut.ended()
    }

    fn dut_log(&self, dut: &RunningDut) -> String {
        dut.log_tail()
    }
}

impl Observers for RealHosts<'_> {
    type GovernorGuard = GovernorGuard;

    fn missing(&self, open: &[Point]) -> Result<Vec<String>, HostError> {
        preflight::on_hosts(self.plan, &self.deployment, open)
    }

    fn facts(&self) -> Vec<(String, Environment)> {
        // On loopback all hosts are this machine; in the lab they have separate interfaces.
        if self.plan.topology == Topology::Loopback {
            return Vec::new();
        }
        // A further tester is named after its shard number.
        let name = |role: &str, number: usize| match number {
            0 => role.to_owned(),
            _ => format!("{role} {number}"),
        };
        let Deployment { testers, dut, auths, .. } = &self.deployment;
        let testers = testers.iter().enumerate().map(|(n, machine)| (name("tester", n), machine));
        let auths = auths.iter().enumerate().map(|(n, machine)| (name("auth", n), machine));
        let all = testers.chain([("dut".to_owned(), dut)]).chain(auths);
        all.map(|(role, machine)| (role, machine.greeting().environment.clone())).collect()
    }

    fn machines(&self) -> Machines {
        let id = |machine: &Machine| machine.greeting().boot_id.clone();
        let each_once = |machines: &[Machine]| {
            let ids: BTreeSet<String> = machines.iter().map(id).collect();
            ids.into_iter().collect()
        };
        let Deployment { testers, dut, auths, .. } = &self.deployment;
        Machines { testers: each_once(testers), dut: id(dut), auths: each_once(auths) }
    }

    fn govern(
        &self,
        folder: &Path,
        governor: &str,
    ) -> Result<Result<GovernorGuard, CannotBeMade>, CampaignError> {
        GovernorGuard::set(&self.deployment.dut, folder, governor).map_err(|error| match error {
            GovernorError::Host(error) => error.into(),
            GovernorError::Archive(error) => error.into(),
        })
    }

    fn restore_governors(&self, folder: &Path) -> Result<(), HostError> {
        GovernorGuard::restore_left_over(&self.deployment.dut, folder)
    }

    fn counters(&self, auth: &RunningAuth) -> Result<Option<AuthCounters>, HostError> {
        auth.counters()
    }

    fn numa(&self) -> Result<Option<Numa>, HostError> {
        self.deployment.dut.numa()
    }

    fn cpu_times(&self) -> Result<[Vec<Option<CpuTimes>>; 3], HostError> {
        let Deployment { testers, dut, auths, .. } = &self.deployment;
        let testers: Result<Vec<_>, _> = testers.iter().map(Machine::cpu_times).collect();
        let auths: Result<Vec<_>, _> = auths.iter().map(Machine::cpu_times).collect();
        Ok([testers?, vec![dut.cpu_times()?], auths?])
    }
}

impl Testers for RealHosts<'_> {
    fn send_cost(&self) -> Result<SendCost, CampaignError> {
        let mut words = vec!["send-cost".to_owned()];
        if let Some(cpu) = self.plan.cpus.tester.first() {
            words.extend(["--cpu".into(), cpu.to_string()]);
        }
        let of = |machine: &Machine| {
            let (worked, printed) = machine.run(&machine.ours(&words), SEND_COST)?;
            let cost = serde_json::from_str::<SendCost>(&printed).ok().filter(|_| worked);
            cost.ok_or_else(|| CampaignError::Tester(printed.trim().to_owned()))
        };
        let costs = self.deployment.testers.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        // The cost of the slowest tester applies to all.
        let most = |part: fn(&SendCost) -> Nanos| costs.iter().map(part).max().unwrap_or(Nanos(0));
        Ok(SendCost { wake_up: most(|cost| cost.wake_up), query: most(|cost| cost.query) })
    }

    fn server_of(&self, step: &Step) -> SocketAddr {
        match &step.point {
            // Each AuthDNS host is measured on its own, and the smallest result counts.
            Point::SelfTest(_) => {
                let all = self.auth_addresses(&step.point);
                all[step.repeat as usize % all.len()]
            }
            _ => self.deployment.dut_address,
        }
    }

    fn place(&self, file: &Path) -> PathBuf {
        self.deployment.tester().place(file)
    }

    fn trial(
        &self,
        auth: &RunningAuth,
        dut: Option<&RunningDut>,
        task: &Task,
    ) -> Result<(TaskResult, Cpu), CampaignError> {
        if let Task::Trial(plan) = task
            && self.deployment.testers.len() > 1
        {
            return self.shared_trial(auth, dut, plan);
        }
        self.trial_of_first(auth, dut, task)
    }

    fn check_readiness(
        &self,
        auth: &RunningAuth,
        dut: Option<&RunningDut>,
        task: &Task,
    ) -> Result<TaskResult, CampaignError> {
        Ok(self.trial_of_first(auth, dut, task)?.0)
    }
}

impl RealHosts<'_> {
    /// Executes a trial on the first tester only.
    fn trial_of_first(
        &self,
        auth: &RunningAuth,
        dut: Option<&RunningDut>,
        task: &Task,
    ) -> Result<(TaskResult, Cpu), CampaignError> {
        let machine = self.deployment.tester();
        let (output, log) = (Path::new("trial.json"), Path::new("trial.log"));
        machine.write(log, "")?;
        // Conformance checks are not pinned by `conform`; the caller sets their CPU affinity.
        let (words, cpus): (_, &[usize]) = match task {
            Task::Trial(plan) => (measure(machine, Path::new("trial.plan.json"), plan)?, &[]),
            Task::ClosedLoop(plan) => (plan.arguments(), &[]),
            Task::Conform(plan) => (plan.arguments(self.checks_view(auth)), &self.plan.cpus.tester),
        };
        dut.map_or(Ok(()), RunningDut::refresh_process_ids)?;
        let begun = SystemTime::now();
        let measurer = machine.start(&machine.ours(&words), cpus, log, Some(output))?;
        let measurers = std::slice::from_ref(&measurer);
        let mut meter = Meter::new(auth, dut, measurers, &self.deployment.dut)?;
        let ended = loop {
            if let Some(ended) = measurer.ended(POLL_INTERVAL)? {
                break ended;
            }
            if self.interruption.is_requested() {
                return Err(CampaignError::Interrupted);
            }
            auth_lives(auth)?;
            // Otherwise each remaining check would wait for the DUT and fail for this reason only.
            if let Task::Conform(_) = task
                && let Some(how) = dut.map(RunningDut::ended).transpose()?.flatten()
            {
                let how = format!("the DUT ended with {how}");
                let found = ConformTrial::without_report(begun, how);
                let cpu = meter.finish(auth, dut, measurers)?;
                return Ok((TaskResult::Conform(found.into()), cpu));
            }
            meter.tick(dut, task)?;
        };
        let cpu = meter.finish(auth, dut, measurers)?;
        let text = machine.read(output, RESULT)?;
        Ok((self.found(task, &measurer, &ended, begun, &text)?, cpu))
    }

    /// Returns the addresses of each AuthDNS at a point. For checks there is a single AuthDNS,
    /// which receives all upstream queries.
    fn auth_addresses(&self, point: &Point) -> Vec<SocketAddr> {
        let own = self.plan.self_test.as_ref().and_then(|test| test.family);
        let mut all = match point {
            Point::SelfTest(at) => self.deployment.self_test_addresses(at.family.or(own)),
            _ => {
                let family = point.dut().and_then(|name| self.plan.dut(name)?.family);
                self.deployment.auth_addresses(family)
            }
        };
        if point.is_checked() {
            all.truncate(1);
        }
        all
    }

    /// Returns how `conform` on the tester's host reads the queries that the AuthDNS of the checks
    /// received. It uses the path of the status socket if both are on the same machine, otherwise
    /// ssh. `None` if the plan has no name for that host.
    fn checks_view(&self, auth: &RunningAuth) -> Option<FarView> {
        let path = auth.checks_status()?.to_string_lossy().into_owned();
        let id = |machine: &Machine| machine.greeting().boot_id.clone();
        let (tester, on) = (id(self.deployment.tester()), id(&self.deployment.auths[0]));
        if self.plan.topology != Topology::Ssh || !tester.is_empty() && tester == on {
            return Some(FarView { status: path, ssh_config: None });
        }
        let ssh = self.plan.ssh.as_ref()?;
        let status = format!("ssh:{}:{path}", ssh.auth_hosts()[0]?.host);
        // That file is on this machine.
        let ssh_config = ssh.config.clone().filter(|_| ssh.tester_hosts()[0].is_none());
        Some(FarView { status, ssh_config })
    }

    /// Parses the tester's output `text`; the tester was started at `begun`.
    pub(super) fn found(
        &self,
        task: &Task,
        measurer: &Running,
        ended: &Ended,
        begun: SystemTime,
        text: &str,
    ) -> Result<TaskResult, CampaignError> {
        let lacks = ended.status == Some(ENVIRONMENT);
        match (task, parse(task, text, begun)) {
            // The server offers nothing to check, which is the result.
            (Task::Conform(_), Ok(found)) => Ok(found),
            // The records that the plan requires are missing, or AuthDNS ended.
            (_, Ok(_)) if lacks => Err(self.no_result(task, measurer, ended, "incomplete")),
            (_, Ok(found)) => Ok(found),
            (_, Err(e)) => Err(self.no_result(task, measurer, ended, &e.to_string())),
        }
    }

    /// Returns the error of a tester that printed no result.
    fn no_result(
        &self,
        task: &Task,
        measurer: &Running,
        ended: &Ended,
        why: &str,
    ) -> CampaignError {
        let (how, told) = (&ended.how, measurer.log_tail());
        // On a full disk the reason cannot be stored. A test write detects this.
        let written = measurer.machine().write(Path::new("trial.json"), &" ".repeat(PROBE));
        let full = written.err().map_or(String::new(), |e| format!("; {e}"));
        let (command, rate) = match task {
            Task::Trial(plan) => ("measure", Some(plan.rate)),
            Task::ClosedLoop(_) => ("closed-loop", None),
            Task::Conform(_) => ("conform", None),
        };
        let why = format!(
            "dns64bench {command} on {} ended with {how} without a valid result ({why}): {told}{full}",
            measurer.machine().name()
        );
        CampaignError::Trial { rate, why, is_usage: ended.status == Some(USAGE) }
    }
}

/// Writes a trial plan for `dns64bench measure` on a machine and returns the arguments that execute
/// it.
pub(super) fn measure(
    machine: &Machine,
    file: &Path,
    plan: &TrialPlan,
) -> Result<Vec<String>, CampaignError> {
    // Serialization fails only for a folder whose name is not valid UTF-8.
    let unfit = |e: serde_json::Error| CampaignError::Trial {
        rate: Some(plan.rate),
        why: e.to_string(),
        is_usage: true,
    };
    machine.write(file, &serde_json::to_string(plan).map_err(unfit)?)?;
    let place = machine.place(file).to_string_lossy().into_owned();
    // The campaign checks itself whether the DUT replies and its process lives, and has checked the
    // hosts at its start.
    let not_again = ["--liveness", "false", "--environment", "false"];
    let words = [&["measure", "--plan", &place, "--json", "--quiet"][..], &not_again].concat();
    Ok(words.into_iter().map(str::to_owned).collect())
}

/// Returns an error if AuthDNS has exited, which must not happen in a trial.
pub(super) fn auth_lives(auth: &RunningAuth) -> Result<(), CampaignError> {
    for process in auth.processes() {
        if let Some(ended) = process.ended(Duration::ZERO)? {
            let (on, log) = (process.machine().name(), process.log_tail());
            let why = format!("AuthDNS on {on} ended during a trial: {}\n{log}", ended.how);
            return Err(CampaignError::Auth(why));
        }
    }
    Ok(())
}

/// Parses the output of a tester that was started at `begun`.
fn parse(task: &Task, text: &str, begun: SystemTime) -> serde_json::Result<TaskResult> {
    Ok(match task {
        Task::Conform(_) => TaskResult::Conform(Box::new(match serde_json::from_str(text)? {
            Checked::Report(report) => ConformTrial::new(begun, report),
            Checked::Unchecked { unchecked } => ConformTrial::without_report(begun, unchecked),
        })),
        Task::Trial(_) => TaskResult::Trial(Box::new(serde_json::from_str::<TrialResult>(text)?)),
        Task::ClosedLoop(plan) => {
            let experiments: Experiments = serde_json::from_str(text)?;
            let (done, planned) = (experiments.experiments_ms.len(), plan.experiments());
            if done != planned {
                let carried_out =
                    counted(planned as u64, "experiment was executed", "experiments were executed");
                let why = format!("{done} of {carried_out}: the tester was interrupted");
                return Err(serde_json::Error::custom(why));
            }
            TaskResult::ClosedLoop(Box::new(LoopTrial::judge(experiments)))
        }
    })
}
