//! Executes the trials of a plan. The measurement points are measured one after another. Each trial
//! is a `dns64bench` process, or one process on each of several testers. The result is recorded in
//! the journal.
//!
//! ```text
//! plan.points() ─► point ─► Recorded::replay ─► due ─► servers, `dns64bench measure`, counters, CPU, NUMA ─► journal
//!                                   ▲                                                                          │
//!                                   └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A resumed campaign replays its journal in the same way. Its results therefore do not differ from
//! those of an uninterrupted campaign.

mod colocation;
mod deployment;
mod error;
mod governor;
mod hosts;
mod meter;
mod other_programs;
pub mod preflight;
mod running_servers;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
mod start;
mod tasks;
mod testers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::hosts::environment::Environment;
use ::hosts::host::HostError;
use ::hosts::interruption::Interruption;
use method::records::Counts;
use method::set::Due;
use method::warning::Warning;
use net::cpu_time::CpuTimes;
use tester::authdns::auth_delta::AuthDelta;
use tester::measurer::burst::{Burst, SendCost};
use tester::measurer::wrong_replies::WrongReplies;
use units::Qps;

use crate::archive::{Archive, ArchiveError, machine_of};
use crate::plan::{Plan, Point, Topology};
use crate::record::{CannotBeMade, Cpu, DutEnd, Entry, Measured, Step, StolenFrom, TaskResult};
use crate::results::{self, ALL_ROLES, changed_facts};
use crate::runner::deployment::{Deployment, DeploymentError};
use crate::runner::hosts::{Hosts, RealHosts};
use crate::runner::running_servers::{ServerError, UNKNOWN};
use crate::sequence::{Recorded, Task};

pub use error::CampaignError;

/// Maximum number of repetitions of a trial in which the DUT died or hung. The result of the last
/// repetition is used.
const DEATHS: u32 = 2;
/// Time after an overload within which a DUT must reply again. Otherwise the DUT counts as hung.
const COMES_BACK: Duration = Duration::from_secs(5);
/// Limit for AuthDNS's CPU use, as a fraction of the capacity of its cores. Above this limit,
/// AuthDNS may have been the bottleneck.
const BUSY: f64 = 0.9;

/// Observer of a campaign's progress.
pub trait Watcher {
    /// Called before a trial starts. `bracket` contains the highest passed and the lowest failed
    /// rate so far.
    fn begins(&mut self, step: &Step, bracket: (Option<Qps>, Option<Qps>));
    /// Called after a trial has ended.
    fn ended(&mut self, measured: &Measured);
    /// Called for an incident that is not a result.
    fn incident(&mut self, point: &Point, what: &str);
    /// Called when a measurement point is complete.
    fn complete(&mut self, point: &Point);
}

/// Checks that the incomplete measurement points of a plan can be measured, and then measures them.
/// `done` contains the journal's entries. If `keep_going` is true, a failed self-test does not end
/// the campaign.
///
/// # Errors
/// Returns an error if the run folder, the hosts or AuthDNS cannot be used, if no DUT starts, if the self-test fails,
/// or if the user interrupts the campaign. If some DUTs start and others do not, the failed starts are recorded as
/// results and are not an error.
pub fn run(
    plan: &Plan,
    archive: Archive,
    done: Vec<Entry>,
    keep_going: bool,
    interruption: &Interruption,
    watcher: &mut dyn Watcher,
) -> Result<Archive, CampaignError> {
    let deployment =
        Deployment::make(plan, &archive, interruption).map_err(|error| match error {
            DeploymentError::Host(HostError::Interrupted) => CampaignError::Interrupted,
            other => other.into(),
        })?;
    let hosts = RealHosts { plan, deployment, interruption: interruption.clone() };
    let is_resumed = !done.is_empty();
    let mut run = Campaign::new(plan, hosts, archive, done, interruption, watcher);
    run.keep_going = keep_going;
    // With other topologies, each host reports its own facts.
    if is_resumed && plan.topology == Topology::Loopback {
        run.record_machine(Environment::observe())?;
    }
    run.carry_out()?;
    Ok(run.archive)
}

/// A campaign in progress.
struct Campaign<'a, H: Hosts> {
    plan: &'a Plan,
    hosts: H,
    archive: Archive,
    entries: Vec<Entry>,
    interruption: Interruption,
    watcher: &'a mut dyn Watcher,
    /// Name of each DUT that did not start, with a flag. The flag is true if the start for conformance checks failed,
    /// and false if the start for other trials failed.
    given_up: Vec<(String, bool)>,
    replies_again: Duration,
    /// Pause between trials.
    pause: Duration,
    /// True if the campaign continues after a failed self-test.
    keep_going: bool,
}

/// A running AuthDNS, the DUT that runs with it (none in a self-test), and the index of the next name to query.
struct Testbed<H: Hosts> {
    // This field comes first, so that the DUT is stopped before AuthDNS.
    dut: Option<H::Dut>,
    auth: H::Auth,
    /// Name of the running AuthDNS.
    of: String,
    next_name: u64,
    /// Index of the search or repetition for which the servers were started. `None` if the servers
    /// are not restarted for each search or repetition.
    repeat: Option<u32>,
    /// True until the first trial with these servers has ended.
    is_new: bool,
}

impl<'a, H: Hosts> Campaign<'a, H> {
    fn new(
        plan: &'a Plan,
        hosts: H,
        archive: Archive,
        entries: Vec<Entry>,
        interruption: &Interruption,
        watcher: &'a mut dyn Watcher,
    ) -> Campaign<'a, H> {
        let (interruption, given_up) = (interruption.clone(), Vec::new());
        Campaign {
            plan,
            hosts,
            archive,
            entries,
            interruption,
            watcher,
            given_up,
            replies_again: COMES_BACK,
            pause: plan.trial.pause,
            keep_going: false,
        }
    }

    fn carry_out(&mut self) -> Result<(), CampaignError> {
        self.hosts.restore_governors(self.archive.folder())?;
        self.rehearse()?;
        self.record_hosts()?;
        self.record_send_cost()?;
        for point in self.plan.points() {
            if self.is_given_up(&point) {
                continue;
            }
            let was_complete = self.recorded().is_complete(&point);
            match self.point(&point) {
                Ok(()) => {
                    self.watcher.complete(&point);
                    self.judge_self_test(&point, was_complete)?;
                }
                // A DUT that does not start is skipped. An unreachable host ends the campaign,
                // which can be resumed when the host is back.
                Err(CampaignError::Testbed(error)) if point.dut().is_some() => {
                    self.give_up(&point, &error)?;
                }
                Err(error @ (CampaignError::Trial { .. } | CampaignError::Auth(_))) => {
                    // If the disk is full, this call returns the error.
                    self.incident(&point, &error.to_string(), String::new())?;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Records a failed self-test as an incident, at most once. If `keep_going` is false, returns an error that ends
    /// the campaign after a failed self-test.
    fn judge_self_test(&mut self, point: &Point, was_complete: bool) -> Result<(), CampaignError> {
        let failed = self.recorded().failed_self_test().filter(|failed| failed.point == *point);
        let Some(failed) = failed else { return Ok(()) };
        if !was_complete {
            self.incident(point, &failed.to_string(), String::new())?;
        }
        if self.keep_going { Ok(()) } else { Err(CampaignError::SelfTest(failed.into())) }
    }

    /// Runs the remaining trials of a measurement point.
    fn point(&mut self, point: &Point) -> Result<(), CampaignError> {
        if self.recorded().replay(point).is_none() {
            // The incident is recorded only once, even if the campaign is resumed several times.
            let is_said =
                |entry: &Entry| matches!(entry, Entry::Incident { point: of, .. } if of == point);
            return match self.entries.iter().any(is_said) {
                true => Ok(()),
                false => self.incident(
                    point,
                    "the worst case has no median to take a share of",
                    String::new(),
                ),
            };
        }
        if self.recorded().is_complete(point) {
            return Ok(());
        }
        // This guard is dropped after the servers, so the governor is in effect until they have
        // stopped.
        let _governed = match self.govern(point)? {
            Ok(governed) => governed,
            Err(why) if why.is_final() => {
                return self.append(Entry::CannotBeMade { point: point.clone(), why });
            }
            Err(why) => return self.incident(point, &why.to_string(), String::new()),
        };
        let mut site: Option<Testbed<H>> = None;
        while let Some(due) = self.recorded().replay(point).and_then(|replay| replay.due()) {
            let Due { repeat, rate, length, bracket } = due;
            if site.as_ref().is_some_and(|site| site.repeat.is_some_and(|of| of != repeat)) {
                site = None;
            }
            if site.is_none()
                && let Some(dut) = point.dut().and_then(|name| self.plan.dut(name))
            {
                let text = self.hosts.dut_version(dut)?;
                self.record_version(dut.name().into(), text)?;
            }
            self.measure(&mut site, &Step { point: point.clone(), repeat, rate, length }, bracket)?;
        }
        Ok(())
    }

    /// Sets the frequency governor that a measurement point requires. The previous governor is
    /// restored when the returned guard is dropped.
    fn govern(
        &self,
        point: &Point,
    ) -> Result<Result<Option<H::GovernorGuard>, CannotBeMade>, CampaignError> {
        let Some(governor) = point.governor() else { return Ok(Ok(None)) };
        Ok(self.hosts.govern(self.archive.folder(), governor)?.map(Some))
    }

    fn recorded(&self) -> Recorded<'_> {
        Recorded::new(self.plan, &self.entries)
    }

    /// Executes one trial and records it. The trial is repeated if the DUT dies or hangs.
    fn measure(
        &mut self,
        site: &mut Option<Testbed<H>>,
        step: &Step,
        bracket: (Option<Qps>, Option<Qps>),
    ) -> Result<(), CampaignError> {
        let deaths = if step.point.measure().repeats_deaths() { DEATHS } else { 0 };
        for death in 0..=deaths {
            if self.interruption.is_requested() {
                return Err(CampaignError::Interrupted);
            }
            self.ensure_names(site, step)?;
            if site.is_none() {
                *site = Some(self.start(step)?);
            }
            self.watcher.begins(step, bracket);
            self.append(Entry::Started(step.clone()))?;
            let mut measured = self.try_once(site, step)?;
            if measured.dut_end.is_some() && death < deaths {
                // The repetition overwrites the record file.
                measured.records = None;
                self.append(Entry::Repeated(measured))?;
                continue;
            }
            self.weigh_others(&mut measured);
            self.warn(&mut measured);
            self.watcher.ended(&measured);
            let is_first = site.as_mut().is_some_and(|site| std::mem::take(&mut site.is_new));
            let advice = is_first.then(|| self.misconfigured(&step.point, measured.counts()));
            self.append(Entry::Finished(measured))?;
            if let Some(advice) = advice.flatten() {
                self.incident(&step.point, &advice, String::new())?;
            }
            // Each closed-loop trial uses the same names, and the DUT must not have them in its
            // cache. The servers are therefore restarted.
            if matches!(step.point, Point::ClosedLoop(_)) {
                *site = None;
            }
            self.interruption.sleep(self.pause);
            return Ok(());
        }
        unreachable!("the last try counts as it is")
    }

    /// Executes one trial on the running servers in `site`. If the DUT died or hung, `site` is
    /// empty afterwards.
    fn try_once(
        &mut self,
        site: &mut Option<Testbed<H>>,
        step: &Step,
    ) -> Result<Box<Measured>, CampaignError> {
        let ready = site.as_mut().expect("servers are started before each trial");
        let (mut task, used) = self.task(step, ready.next_name);
        ready.next_name += used;
        let records = self.records_file(&task)?;
        if let (Task::Trial(plan), Some(file)) = (&mut task, &records) {
            plan.records = Some(self.hosts.place(file));
        }
        let before = self.hosts.counters(&ready.auth)?;
        let (numa_before, times) = (self.hosts.numa()?, self.hosts.cpu_times()?);
        let (found, cpu) = self.hosts.trial(&ready.auth, ready.dut.as_ref(), &task)?;
        let stolen = stolen(times, self.hosts.cpu_times()?);
        // The counters are read before any other query is sent.
        let after = self.hosts.counters(&ready.auth)?;
        let numa = numa_before.zip(self.hosts.numa()?).map(|(before, after)| after.since(&before));
        let mut measured = measured(step, found, cpu);
        (measured.numa, measured.stolen) = (numa, stolen);
        if let Some((before, after)) = before.zip(after) {
            self.weigh(&mut measured.found, &task, &before, &after);
        }
        let cpus = ready.dut.as_ref().map(|dut| self.hosts.cpus_of(dut));
        if let TaskResult::Trial(trial) = &mut measured.found {
            let facts = self.facts_of(trial, self.plan.auth_cpus(&step.point), cpus.as_deref());
            trial.set_facts(facts);
        }
        if measured.may_have_ended_the_dut() {
            measured.dut_end = self.dut_end(ready, &step.point)?;
        }
        if let Some(end) = &measured.dut_end {
            self.dut_is_gone(site, step, &end.to_string())?;
        }
        // There is no record file if the trial could not start, or if the disk was too slow.
        measured.records = records.filter(|file| self.archive.has(file));
        Ok(Box::new(measured))
    }

    /// Checks the verdict of a trial against the change in AuthDNS's counters during the trial, and
    /// corrects the verdict if necessary.
    fn weigh(
        &self,
        found: &mut TaskResult,
        task: &Task,
        before: &tester::authdns::counters::AuthCounters,
        after: &tester::authdns::counters::AuthCounters,
    ) {
        match (found, task) {
            (TaskResult::Trial(trial), Task::Trial(plan)) => {
                let part = AuthDelta::between(before, after, plan.timeout, plan.auth_limit);
                trial.apply_auth(part, plan.auth_limit, plan.subject);
            }
            (TaskResult::ClosedLoop(trial), Task::ClosedLoop(plan)) => {
                let limit = self.plan.trial.auth_limit.into();
                trial.apply_auth(
                    AuthDelta::between(before, after, plan.timeout.into(), limit),
                    limit,
                );
            }
            _ => {}
        }
    }

    /// Stops the servers after the DUT died or hung, and records the incident. The next trial
    /// starts new servers.
    fn dut_is_gone(
        &mut self,
        site: &mut Option<Testbed<H>>,
        step: &Step,
        how: &str,
    ) -> Result<(), CampaignError> {
        let gone = site.take().and_then(|site| site.dut);
        let log = gone.as_ref().map(|dut| self.hosts.dut_log(dut)).unwrap_or_default();
        drop(gone);
        let what = match &step.point {
            Point::ClosedLoop(_) | Point::Conform(_) => how.to_owned(),
            _ => format!("at {} queries/s: {how}", step.rate),
        };
        self.watcher.incident(&step.point, &what);
        self.append(Entry::Incident { point: step.point.clone(), what, log })
    }

    /// Returns the path of the record file of the next trial, or `None` if the plan does not request records (key
    /// `records`).
    fn records_file(&self, task: &Task) -> Result<Option<PathBuf>, ArchiveError> {
        let (Some(format), Task::Trial(_)) = (self.plan.trial.records, task) else {
            return Ok(None);
        };
        let finished =
            self.entries.iter().filter(|entry| matches!(entry, Entry::Finished(_))).count();
        self.archive.records_file(finished + 1, format.extension()).map(Some)
    }

    /// Returns how the DUT failed in a trial, or `None` if it is still running and replies.
    fn dut_end(&self, site: &Testbed<H>, point: &Point) -> Result<Option<DutEnd>, CampaignError> {
        let Some(dut) = &site.dut else { return Ok(None) };
        if let Some(how) = self.hosts.dut_ended(dut)? {
            return Ok(Some(DutEnd::Died(how)));
        }
        Ok(if self.replies_again(site, point)? { None } else { Some(DutEnd::Hung) })
    }

    /// True if the DUT replies again after it lost queries. Any reply is accepted, even a wrong
    /// one. An overloaded DUT is given some time to recover.
    fn replies_again(&self, site: &Testbed<H>, point: &Point) -> Result<bool, CampaignError> {
        let give_up = Instant::now() + self.replies_again;
        while self.replies(site, point)?.replies() == 0 {
            if Instant::now() > give_up {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts the DUT's replies to a few queries for names that no trial uses.
    fn replies(&self, site: &Testbed<H>, point: &Point) -> Result<Counts, CampaignError> {
        let found = self.hosts.check_readiness(
            &site.auth,
            site.dut.as_ref(),
            &self.readiness_task(point),
        )?;
        Ok(measured(&self.readiness_step(point), found, Cpu::default()).counts().clone())
    }

    /// Returns advice for the user if nearly all replies of a DUT are wrong in the same way,
    /// otherwise `None`.
    fn misconfigured(&self, point: &Point, counts: &Counts) -> Option<String> {
        let wrong = counts.wrong_in_one_way()?;
        let Task::Trial(plan) = self.readiness_task(point) else { return None };
        Some(format!("every reply is wrong: {}", WrongReplies::in_campaign(&plan, wrong)))
    }

    /// Adds a warning if AuthDNS was busy, or if the rate is above the limit up to which the
    /// self-test validates the tester.
    fn warn(&self, measured: &mut Measured) {
        let cores = self.plan.auth_cpus(&measured.step.point).len();
        if cores > 0 && measured.cpu.auth > BUSY * cores as f64 {
            measured.warnings.push(Warning::AuthBusy { used: measured.cpu.auth, cores });
        }
        if let Some(allowed) = self.recorded().allowed(&measured.step.point)
            && measured.at_rate().is_some_and(|trial| trial.rate > allowed)
            && measured.step.point.dut().is_some()
        {
            measured.warnings.push(Warning::BeyondSelfTest { allowed });
        }
    }

    /// Records the version of a server. If the version has changed, the campaign ends, because
    /// results of two versions must not be mixed.
    fn record_version(&mut self, server: String, text: String) -> Result<(), CampaignError> {
        match self.recorded().version(&server) {
            None => self.append(Entry::Version { dut: server, text }),
            Some(known) if known != text && ![&*known, &*text].contains(&UNKNOWN) => {
                Err(CampaignError::Impossible(vec![format!(
                    "{server} was {known} at the start of this run, but is {text} now: install the earlier version again, or \
                     start another run"
                )]))
            }
            Some(_) => Ok(()),
        }
    }

    /// Records the versions of the AuthDNS servers and the facts about the hosts. If the facts
    /// about a host have changed since the last record, they are recorded again.
    fn record_hosts(&mut self) -> Result<(), CampaignError> {
        let plan = self.plan;
        let mut asked = plan.auths_of_duts();
        if asked.iter().all(|auth| auth.name() != plan.auth.name()) {
            asked.insert(0, &plan.auth);
        }
        for auth in asked {
            let text = self.hosts.auth_version(auth)?;
            self.record_version(auth.role(), text)?;
        }
        for (role, environment) in self.hosts.facts() {
            match results::last_recorded(&self.entries, &role) {
                None => self.append(Entry::Host { role, environment })?,
                Some(known) if !changed_facts(known, &environment).is_empty() => {
                    self.append(Entry::HostChanged { role, environment })?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// If the topology is loopback, records the facts about the machine if they differ from the last recorded facts. If
    /// no facts have been recorded yet, the comparison is with the facts at the start of the run.
    fn record_machine(&mut self, environment: Environment) -> Result<(), CampaignError> {
        let begun = machine_of(self.archive.folder())?;
        let known = results::last_recorded(&self.entries, ALL_ROLES).unwrap_or(&begun);
        if changed_facts(known, &environment).is_empty() {
            return Ok(());
        }
        self.append(Entry::HostChanged { role: ALL_ROLES.into(), environment })
    }

    /// Measures the CPU time needed to send a query on the tester's host, and records it. The measurement is made only
    /// once, so that all trials use the same burst size, even after a resume. The measurement is skipped if the sending
    /// threads have exclusive CPUs or the plan sets the burst size.
    fn record_send_cost(&mut self) -> Result<(), CampaignError> {
        let Some(point) = self.plan.points().into_iter().next() else { return Ok(()) };
        let any = self.base(&Step { rate: self.plan.search.min, ..self.readiness_step(&point) }, 0);
        if any.send_cost.is_some() || any.max_burst != Burst::Auto || any.gives_senders_cpus() {
            return Ok(());
        }
        let cost = self.hosts.send_cost()?;
        self.append(Entry::SendCost(cost))
    }

    fn send_cost(&self) -> Option<SendCost> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::SendCost(cost) => Some(*cost),
            _ => None,
        })
    }

    /// Records that a DUT does not start. If the failed start was for conformance checks, the
    /// conformance checks of the DUT are skipped. Otherwise its other measurement points are
    /// skipped.
    fn give_up(&mut self, point: &Point, error: &ServerError) -> Result<(), CampaignError> {
        self.given_up.extend(point.dut().map(|dut| (dut.to_owned(), point.is_checked())));
        self.incident(point, &error.to_string(), error.log().to_owned())
    }

    fn is_given_up(&self, point: &Point) -> bool {
        let is_of = |(dut, checked): &(String, bool)| {
            point.dut() == Some(dut) && point.is_checked() == *checked
        };
        self.given_up.iter().any(is_of)
    }

    fn incident(&mut self, point: &Point, what: &str, log: String) -> Result<(), CampaignError> {
        self.watcher.incident(point, what);
        let (point, what) = (point.clone(), what.into());
        self.append(Entry::Incident { point, what, log })
    }

    fn append(&mut self, entry: Entry) -> Result<(), CampaignError> {
        self.archive.append(&entry)?;
        self.entries.push(entry);
        Ok(())
    }
}

/// Returns the CPU time that a hypervisor stole from the hosts of tester, DUT and AuthDNS between
/// two moments. If tester or AuthDNS has several hosts, the value applies to the host that lost the
/// most CPU time.
fn stolen(before: [Vec<Option<CpuTimes>>; 3], after: [Vec<Option<CpuTimes>>; 3]) -> StolenFrom {
    let of_host =
        |(before, after): (Option<CpuTimes>, Option<CpuTimes>)| Some(after?.stolen_since(&before?));
    let mut roles = before.into_iter().zip(after).map(|(before, after)| {
        let hosts = before.into_iter().zip(after).filter_map(of_host);
        hosts.max_by(|a, b| a.worst_cpu_pct.total_cmp(&b.worst_cpu_pct))
    });
    let [tester, dut, auth] = std::array::from_fn(|_| roles.next().flatten());
    StolenFrom { tester, dut, auth }
}

/// True if the replies counted in `counts` show that the DUT is ready. For conformance checks any
/// reply is accepted, because the AuthDNS of these checks has no answers for the queried names.
fn is_right(counts: &Counts, point: &Point) -> bool {
    counts.valid > 0 || point.is_checked() && counts.wrong.total() > 0
}

/// Returns the record of a trial, with the tester's result and the CPU use. All other fields of the record are empty.
fn measured(step: &Step, found: TaskResult, cpu: Cpu) -> Measured {
    Measured {
        step: step.clone(),
        found,
        dut_end: None,
        cpu,
        numa: None,
        stolen: StolenFrom::default(),
        warnings: Vec::new(),
        records: None,
    }
}

#[cfg(test)]
mod tests;
