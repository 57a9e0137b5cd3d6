//! Interface between the runner and the hosts: starting servers, executing trials, and reading
//! counters. The runner accesses hosts only through this interface, and can therefore be tested on
//! simulated hosts.

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
/// Time limit for measuring the CPU time needed to send a query.
const SEND_COST: Duration = Duration::from_secs(20);
/// Maximum size of a trial's result in octets. A closed loop reports the times of all experiments.
/// With several testers, each tester reports the number of queries sent in each 10 ms window, which
/// takes about 4 MiB per hour.
pub(super) const RESULT: u64 = 64 << 20;
/// Exit status of a tester that rejects a plan.
const USAGE: i32 = 2;
/// Exit status of a tester if its host lacks a resource, such as memory for the records of the
/// queries.
const ENVIRONMENT: i32 = 4;

/// Boot ids of the machines on which the testers, the DUT and AuthDNS run. An id is empty if it is unknown.
pub(super) struct Machines {
    /// Boot ids of the testers' machines, without duplicates.
    pub(super) testers: Vec<String>,
    /// Boot id of the DUT's machine.
    pub dut: String,
    /// Boot ids of the machines of AuthDNS, without duplicates.
    pub(super) auths: Vec<String>,
}

/// Functions that start, observe and stop the servers of a campaign.
pub(super) trait Servers {
    /// A running AuthDNS; dropping the value stops it.
    type Auth;
    /// A running DUT; dropping the value stops it.
    type Dut;

    /// Returns the version of a DUT.
    fn dut_version(&self, dut: &DutPlan) -> Result<String, ServerError>;
    /// Returns the version of an AuthDNS.
    fn auth_version(&self, auth: &AuthPlan) -> Result<String, ServerError>;
    /// If the topology of the plan is loopback, chooses new ports for the DUT and AuthDNS. All servers must have
    /// stopped before the call.
    fn change_ports(&mut self) -> Result<(), CampaignError>;
    /// Starts the AuthDNS of `plan.auth`, and waits until it answers. `aaaa` is the share of names
    /// with an AAAA record.
    fn start_auth(
        &self,
        archive: &Archive,
        plan: &Plan,
        point: &Point,
        aaaa: Share,
    ) -> Result<Self::Auth, ServerError>;
    /// Starts a DUT for a measurement point, configured with `auth` as its upstream server. The
    /// caller checks that the DUT answers.
    fn start_dut(
        &self,
        archive: &Archive,
        dut: &DutPlan,
        point: &Point,
        auth: &Self::Auth,
    ) -> Result<Self::Dut, ServerError>;
    /// True if the servers of `auth` listen on the addresses that AuthDNS must have at a
    /// measurement point.
    fn serves(&self, auth: &Self::Auth, point: &Point) -> bool;
    /// Returns the configuration of AuthDNS.
    fn auth_configuration(&self, auth: &Self::Auth) -> Configuration;
    /// Returns the configuration of a DUT.
    fn dut_configuration(&self, dut: &Self::Dut) -> Configuration;
    /// Returns the CPUs to which a DUT is confined at a CPU placement; empty if the DUT may use any CPU.
    fn cpus_at(&self, place: &Cores) -> Vec<usize>;
    /// Returns the CPUs to which a running DUT is confined; empty if the DUT may use any CPU.
    fn cpus_of(&self, dut: &Self::Dut) -> Vec<usize>;
    /// Waits until `is_ready` returns true. Returns an error if the DUT exits first, or takes too
    /// long.
    fn wait_until(
        &self,
        dut: &Self::Dut,
        name: &str,
        is_ready: &mut dyn FnMut() -> Result<bool, CampaignError>,
    ) -> Result<(), CampaignError>;
    /// Returns how a DUT's process ended, or `None` if it is still running.
    fn dut_ended(&self, dut: &Self::Dut) -> Result<Option<String>, HostError>;
    /// Returns the last lines of a DUT's log.
    fn dut_log(&self, dut: &Self::Dut) -> String;
}

/// State of the hosts: programs and CPUs, facts, counters and frequency governors.
pub(super) trait Observers: Servers {
    /// Guard of a frequency governor on the DUT's host; dropping the guard restores the previous
    /// governor.
    type GovernorGuard;

    /// Checks that each host has the programs and CPUs for the incomplete measurement points
    /// `open`. Returns a sentence for each missing program or CPU.
    fn missing(&self, open: &[Point]) -> Result<Vec<String>, HostError>;
    /// Returns the role of each host, and the facts about it. The list is empty for topology loopback, in which all
    /// servers run on this machine.
    fn facts(&self) -> Vec<(String, Environment)>;
    /// Returns the boot ids of the machines on which the testers, the DUT and AuthDNS run.
    fn machines(&self) -> Machines;
    /// Sets the frequency governor of the DUT's CPUs, or returns the reason why it cannot be set.
    /// `folder` is the run folder.
    fn govern(
        &self,
        folder: &Path,
        governor: &str,
    ) -> Result<Result<Self::GovernorGuard, CannotBeMade>, CampaignError>;
    /// Restores the frequency governors of the DUT's CPUs if an earlier run in this run folder changed them and was
    /// then killed.
    fn restore_governors(&self, folder: &Path) -> Result<(), HostError>;
    /// Returns AuthDNS's counters, or `None` if AuthDNS does not count queries.
    fn counters(&self, auth: &Self::Auth) -> Result<Option<AuthCounters>, HostError>;
    /// Returns the counters of page allocations on the DUT's host for each NUMA node, or `None` if the kernel does not
    /// count page allocations.
    fn numa(&self) -> Result<Option<Numa>, HostError>;
    /// Returns three lists of CPU times: for the testers' hosts, the DUT's host and the AuthDNS
    /// hosts. `None` stands for a host that does not report them.
    fn cpu_times(&self) -> Result<[Vec<Option<CpuTimes>>; 3], HostError>;
}

/// The testers, which execute the trials.
pub(super) trait Testers: Servers {
    /// Measures the CPU time needed to send a query on the tester's host.
    fn send_cost(&self) -> Result<SendCost, CampaignError>;
    /// Returns the address that the Measurer queries in a trial.
    fn server_of(&self, step: &Step) -> SocketAddr;
    /// Returns the path that a file in the run folder has on the tester's host.
    fn place(&self, file: &Path) -> PathBuf;
    /// Executes a trial, and observes the servers during the trial. Returns the result of the trial
    /// and the CPU use.
    fn trial(
        &self,
        auth: &Self::Auth,
        dut: Option<&Self::Dut>,
        task: &Task,
    ) -> Result<(TaskResult, Cpu), CampaignError>;
    /// Sends the few queries of a readiness check. With several testers, only the first tester
    /// sends queries.
    fn check_readiness(
        &self,
        auth: &Self::Auth,
        dut: Option<&Self::Dut>,
        task: &Task,
    ) -> Result<TaskResult, CampaignError>;
}

/// Everything that the runner needs from the hosts of a campaign.
pub(super) trait Hosts: Observers + Testers {}

impl<T: Observers + Testers> Hosts for T {}

/// The real hosts, on which servers and testers run as processes.
pub(super) struct RealHosts<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The hosts and addresses of the campaign.
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
        // With topology loopback, all hosts are this machine. In the lab, each host has its own
        // network interfaces.
        if self.plan.topology == Topology::Loopback {
            return Vec::new();
        }
        // Further testers and AuthDNS hosts are numbered from 1.
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
        // All testers use the send cost of the slowest tester.
        let most = |part: fn(&SendCost) -> Nanos| costs.iter().map(part).max().unwrap_or(Nanos(0));
        Ok(SendCost { wake_up: most(|cost| cost.wake_up), query: most(|cost| cost.query) })
    }

    fn server_of(&self, step: &Step) -> SocketAddr {
        match &step.point {
            // Each search of a self-test queries one AuthDNS host, and the smallest result counts.
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
        // `dns64bench conform` does not set its CPU affinity, so it is started on the tester's
        // CPUs.
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
            // If the DUT has ended, the checks are stopped. Otherwise each remaining check would
            // wait for a timeout and fail.
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

    /// Returns the address of each AuthDNS at a measurement point. Conformance checks use a single
    /// AuthDNS, which receives all upstream queries.
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

    /// Returns how `dns64bench conform` reads AuthDNS's log of received queries. If tester and
    /// AuthDNS run on the same machine, `conform` opens AuthDNS's status socket directly. Otherwise
    /// it connects to the socket over ssh. Returns `None` if the plan has no ssh name for AuthDNS's
    /// host.
    fn checks_view(&self, auth: &RunningAuth) -> Option<FarView> {
        let path = auth.checks_status()?.to_string_lossy().into_owned();
        let id = |machine: &Machine| machine.greeting().boot_id.clone();
        let (tester, on) = (id(self.deployment.tester()), id(&self.deployment.auths[0]));
        if self.plan.topology != Topology::Ssh || !tester.is_empty() && tester == on {
            return Some(FarView { status: path, ssh_config: None });
        }
        let ssh = self.plan.ssh.as_ref()?;
        let status = format!("ssh:{}:{path}", ssh.auth_hosts()[0]?.host);
        // The ssh configuration file is on this machine, so only a tester on this machine can read
        // it.
        let ssh_config = ssh.config.clone().filter(|_| ssh.tester_hosts()[0].is_none());
        Some(FarView { status, ssh_config })
    }

    /// Parses the output `text` of a tester that was started at the time `begun`. Returns an error
    /// if the output is not a valid result.
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
            // `dns64bench conform` exits with this status if it could not execute any check. Its
            // output is then the result of the trial.
            (Task::Conform(_), Ok(found)) => Ok(found),
            // The result is incomplete: the per-query records are missing, or AuthDNS ended.
            (_, Ok(_)) if lacks => Err(self.no_result(task, measurer, ended, "incomplete")),
            (_, Ok(found)) => Ok(found),
            (_, Err(e)) => Err(self.no_result(task, measurer, ended, &e.to_string())),
        }
    }

    /// Returns the error for a tester that printed no result.
    fn no_result(
        &self,
        task: &Task,
        measurer: &Running,
        ended: &Ended,
        why: &str,
    ) -> CampaignError {
        let (how, log) = (&ended.how, measurer.log_tail());
        // The log contains no reason if the disk is full. A test write detects a full disk.
        let written = measurer.machine().write(Path::new("trial.json"), &" ".repeat(PROBE));
        let full = written.err().map_or(String::new(), |e| format!("; {e}"));
        let (command, rate) = match task {
            Task::Trial(plan) => ("measure", Some(plan.rate)),
            Task::ClosedLoop(_) => ("closed-loop", None),
            Task::Conform(_) => ("conform", None),
        };
        let why = format!(
            "dns64bench {command} on {} ended with {how} without a valid result ({why}): {log}{full}",
            measurer.machine().name()
        );
        CampaignError::Trial { rate, why, is_usage: ended.status == Some(USAGE) }
    }
}

/// Writes the plan of a trial into a file on a machine. Returns the arguments with which dns64bench
/// executes that plan.
pub(super) fn measure(
    machine: &Machine,
    file: &Path,
    plan: &TrialPlan,
) -> Result<Vec<String>, CampaignError> {
    // Serialization fails only if the plan contains a path that is not valid UTF-8.
    let unfit = |e: serde_json::Error| CampaignError::Trial {
        rate: Some(plan.rate),
        why: e.to_string(),
        is_usage: true,
    };
    machine.write(file, &serde_json::to_string(plan).map_err(unfit)?)?;
    let place = machine.place(file).to_string_lossy().into_owned();
    // `measure` need not check the DUT and the host again: the campaign checks the DUT itself, and
    // checked the hosts at its start.
    let not_again = ["--liveness", "false", "--environment", "false"];
    let words = [&["measure", "--plan", &place, "--json", "--quiet"][..], &not_again].concat();
    Ok(words.into_iter().map(str::to_owned).collect())
}

/// Returns an error if AuthDNS has exited, because it must run during the whole trial.
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

/// Parses the output of a tester that was started at the time `begun`.
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
