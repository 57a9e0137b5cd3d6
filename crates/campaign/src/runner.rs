//! Carries out a plan: point by point, trial by trial, each trial a process of this program, each noted in the journal.
//!
//! ```text
//! plan.points() ─► point ─► search / self-test / load ─► step ─► in the journal? ── yes ─► its verdict
//!                                    ▲                              │ no
//!                                    │                              ▼
//!                                    └──────────── verdict ◄── site + `dns64bench measure` + counters, CPU, NUMA
//! ```

mod start;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use method::compliance::Fact;
use method::narrow::{Length, NarrowedSearch};
use method::search::SearchRange;
use method::selftest::{MIN_DELTA, factor};
use method::units::{Nanos, Qps, Share};
use method::verdict::{Acceptance, Verdict};
use net::cpu_time::CpuTimes;
use tester::authdns::part::AuthPart;
use tester::measurer::burst::{Burst, SendCost};
use tester::measurer::plan::{Subject, TrialPlan};
use tester::measurer::result::TrialResult;
use wire::name::NameRange;

use crate::archive::{Archive, ArchiveError, Cpu, DutEnd, Entry, Measured, Step, StolenFrom};
use crate::host::{HostError, Running};
use crate::interruption::Interruption;
use crate::plan::{DutPlan, Plan, Topology};
use crate::point::{Conditions, Point};
use crate::results;
use crate::roles::{Role, shared};
use crate::servers;
use crate::site::{Auth, Dut, SiteError, auth_version, version_of};
use crate::world::{World, WorldError};

/// How often a trial of a search is repeated because the DUT died or hung in it; then its result stands. A trial at a load is
/// not: that the DUT ends there is what was found.
const DEATHS: u32 = 2;
/// How long a DUT may take to answer again after a trial that was too much for it; then it hangs.
const COMES_BACK: Duration = Duration::from_secs(5);
/// Names of the trials begin here; the DUT starts anew with each search, and so do they.
const FIRST_NAME: u64 = 10 << 24;
/// So many names at the begin of a zone file are for seeing whether a DUT answers, and no trial asks for them.
const FOR_LOOKING: u64 = 256;
/// The Measurer begins a moment after its process does.
const SLACK: Nanos = Nanos::from_millis(200);
/// Between two looks at who takes part in a trial.
const LOOK: Duration = Duration::from_millis(100);
/// So much is written to see whether there is room.
const PROBE: usize = 16 << 10;
/// How long the measurement of what sending costs may take.
const SEND_COST: Duration = Duration::from_secs(20);
/// A trial's result is not longer than this.
const RESULT: u64 = 1 << 20;
/// The status with which `dns64bench measure` refuses a plan.
const USAGE: i32 = 2;
/// From this share of its cores on, AuthDNS may be what limited the DUT.
const BUSY: f64 = 0.9;

/// Why a campaign did not end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CampaignError {
    /// The run folder cannot be written; what is in it is whole.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The hosts cannot be made ready.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A host is gone.
    #[error(transparent)]
    Host(HostError),
    /// Programs or CPUs that the plan names are not there; nothing was started.
    #[error("the plan cannot be carried out:\n  {}", .0.join("\n  "))]
    Impossible(Vec<String>),
    /// A DUT does not start, as was seen before anything was measured.
    #[error("{}", .0.with_log())]
    NotReady(SiteError),
    /// A DUT does not run.
    #[error(transparent)]
    Site(SiteError),
    /// AuthDNS does not run.
    #[error("{0}")]
    Auth(String),
    /// The tester's host does not say what sending costs there.
    #[error("cannot measure what sending costs on the tester's host: {0}")]
    Tester(String),
    /// `dns64bench measure` refused.
    #[error("the trial at {rate} queries/s could not be carried out: {why}")]
    Trial {
        /// Its rate.
        rate: Qps,
        /// What it said.
        why: String,
        /// Whether that is the plan's fault.
        is_usage: bool,
    },
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<HostError> for CampaignError {
    fn from(error: HostError) -> CampaignError {
        match error {
            HostError::Interrupted => CampaignError::Interrupted,
            other => CampaignError::Host(other),
        }
    }
}

impl From<SiteError> for CampaignError {
    /// What is the fault of a host or of the run folder is no server's.
    fn from(error: SiteError) -> CampaignError {
        match error {
            SiteError::Host(error) => error.into(),
            SiteError::Archive(error) => error.into(),
            other => CampaignError::Site(other),
        }
    }
}

/// Who watches a campaign.
pub trait Watcher {
    /// A trial is about to begin; `bracket` is what the search knows.
    fn begins(&mut self, step: &Step, bracket: (Option<Qps>, Option<Qps>));
    /// A trial has ended.
    fn ended(&mut self, measured: &Measured);
    /// Something happened that is no result.
    fn mishap(&mut self, point: &Point, what: &str);
    /// A point is complete.
    fn complete(&mut self, point: &Point);
}

/// Carries out what is left of a plan. `done` is what the journal holds. First it is seen whether all of it can be done.
///
/// # Errors
/// If the run folder, the hosts or AuthDNS cannot be used, or the user interrupts. DUTs that fail are part of the result.
pub fn run(
    plan: &Plan,
    archive: Archive,
    done: Vec<Entry>,
    interruption: &Interruption,
    watcher: &mut dyn Watcher,
) -> Result<Archive, CampaignError> {
    let world = World::make(plan, &archive, interruption).map_err(|error| match error {
        WorldError::Host(HostError::Interrupted) => CampaignError::Interrupted,
        other => other.into(),
    })?;
    let missing = Vec::new();
    let mut run = Run { plan, world, archive, entries: done, interruption: interruption.clone(), watcher, missing };
    run.rehearse()?;
    run.note_hosts()?;
    run.note_send_cost()?;
    for point in plan.points() {
        if point.dut().is_some_and(|dut| run.missing.iter().any(|m| m == dut)) {
            continue;
        }
        match run.point(&point) {
            Ok(()) => run.watcher.complete(&point),
            // A host that is gone may come back; a server that does not start will not.
            Err(CampaignError::Site(error)) if point.dut().is_some() => run.give_up(&point, &error)?,
            Err(error @ (CampaignError::Trial { .. } | CampaignError::Auth(_))) => {
                // Where the disk is full, that is what noting it says.
                run.mishap(&point, &error.to_string(), String::new())?;
                return Err(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(run.archive)
}

struct Run<'a> {
    plan: &'a Plan,
    world: World,
    archive: Archive,
    entries: Vec<Entry>,
    interruption: Interruption,
    watcher: &'a mut dyn Watcher,
    /// DUTs that cannot be started.
    missing: Vec<String>,
}

/// AuthDNS, for DUT points the DUT, and where their names go on.
struct Site {
    auth: Auth,
    dut: Option<Dut>,
    next_name: u64,
}

/// What a trial was, seen from outside.
enum Seen {
    Ended(Box<TrialResult>, Cpu),
    Died(String),
}

impl Run<'_> {
    fn point(&mut self, point: &Point) -> Result<(), CampaignError> {
        match point {
            Point::SelfTest => self.self_test(point),
            Point::Search(conditions) => {
                let Some(dut) = self.plan.dut(&conditions.dut) else { return Ok(()) };
                let (min, max) = self.plan.range(dut);
                let s = &self.plan.search;
                let range = SearchRange { min, max, resolution: s.resolution, invalid_retries: s.invalid_retries };
                self.note_version(dut)?;
                self.searches(point, range, s.repeat, s.probe.is_some())
            }
            Point::Load { dut, share } => self.load(point, dut, *share),
        }
    }

    fn note_version(&mut self, dut: &DutPlan) -> Result<(), CampaignError> {
        let name = dut.name().to_owned();
        if self.entries.iter().any(|e| matches!(e, Entry::Version { dut, .. } if *dut == name)) {
            return Ok(());
        }
        let text = version_of(&self.world.dut, dut)?;
        self.append(Entry::Version { dut: name, text })
    }

    /// Notes what plays AuthDNS and, once, the facts of the hosts.
    fn note_hosts(&mut self) -> Result<(), CampaignError> {
        let name = self.plan.auth.driver.name();
        if !self.entries.iter().any(|e| matches!(e, Entry::Version { dut, .. } if dut == name)) {
            let text = auth_version(&self.world.auth, self.plan)?;
            self.append(Entry::Version { dut: name.into(), text })?;
        }
        // On loopback all hosts are this one; in the lab they have interfaces of their own.
        if self.plan.topology == Topology::Loopback {
            return Ok(());
        }
        for (role, machine) in [("tester", &self.world.tester), ("dut", &self.world.dut), ("auth", &self.world.auth)]
            .map(|(r, m)| (r, m.clone()))
        {
            if !self.entries.iter().any(|e| matches!(e, Entry::Host { role: noted, .. } if noted == role)) {
                let environment = machine.greeting().environment.clone();
                self.append(Entry::Host { role: role.into(), environment })?;
            }
        }
        Ok(())
    }

    /// Measures once what sending costs on the tester's host, so that all trials send alike, also after a resume. Where the
    /// senders have CPUs of their own it is not needed.
    fn note_send_cost(&mut self) -> Result<(), CampaignError> {
        let step = Step { point: Point::SelfTest, repeat: 0, rate: self.plan.search.min, length: Length::Full };
        let (any, _) = self.trial_plan(&step, 0);
        if any.send_cost.is_some() || any.max_burst != Burst::Auto || any.gives_senders_cpus() {
            return Ok(());
        }
        let machine = &self.world.tester;
        let mut words = vec!["send-cost".to_owned()];
        if let Some(cpu) = self.plan.cpus.tester.first() {
            words.extend(["--cpu".into(), cpu.to_string()]);
        }
        let (worked, printed) = machine.run(&machine.ours(&words), SEND_COST)?;
        let cost = serde_json::from_str(&printed).ok().filter(|_| worked);
        let cost = cost.ok_or_else(|| CampaignError::Tester(printed.trim().to_owned()))?;
        self.append(Entry::SendCost(cost))
    }

    fn send_cost(&self) -> Option<SendCost> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::SendCost(cost) => Some(*cost),
            _ => None,
        })
    }

    /// Whether the Measurer's CPUs may be those of AuthDNS or of a DUT.
    fn shares_tester_cpus(&self) -> bool {
        let points = self.plan.points();
        let conditions = points.iter().filter_map(|point| match point {
            Point::Search(conditions) => Some(conditions),
            _ => None,
        });
        let places: Vec<Vec<usize>> = conditions.map(|c| self.world.dut_cpus(self.plan, c)).collect();
        let duts = places.iter().map(|cpus| self.dut_role(cpus));
        // What is not known is no reason to keep others waiting.
        duts.chain([self.auth_role()]).any(|other| shared(&[self.tester_role(), other]).1 != Fact::No)
    }

    fn self_test(&mut self, point: &Point) -> Result<(), CampaignError> {
        let Some(test) = self.plan.self_test.clone() else { return Ok(()) };
        let range = SearchRange { min: test.min, max: test.max, resolution: test.resolution, invalid_retries: 3 };
        self.searches(point, range, test.repeat, false)
    }

    fn searches(&mut self, point: &Point, range: SearchRange, repeat: u32, probes: bool) -> Result<(), CampaignError> {
        let mut done = self.done(point);
        for repeat in 0..repeat {
            let mut search = NarrowedSearch::new(range, probes);
            let mut site = None;
            while let Some((rate, length)) = search.next() {
                let step = Step { point: point.clone(), repeat, rate, length };
                let measured = match done.pop_front_if(|m| m.step == step) {
                    Some(measured) => measured,
                    None => self.measure(&mut site, step, search.bracket())?,
                };
                if measured.voids_its_point() {
                    // The DUT was not asked what the point is about; more trials would not change that.
                    return Ok(());
                }
                search.report(measured.trial.verdict);
            }
        }
        Ok(())
    }

    fn load(&mut self, point: &Point, dut: &str, share: Share) -> Result<(), CampaignError> {
        let Some(loads) = &self.plan.measure.loads else { return Ok(()) };
        let worst = Conditions::worst_case(dut, self.plan.cores()[0]);
        let median = results::median(self.plan, &self.entries, &Point::Search(worst)).unwrap_or(0.0);
        let rate = Qps((median * share.fraction()) as u64);
        if rate.0 == 0 {
            return self.mishap(point, "there is no rate to take a share of", String::new());
        }
        let mut done = self.done(point);
        let mut site = None;
        for repeat in 0..loads.repeat {
            let step = Step { point: point.clone(), repeat, rate, length: Length::Full };
            // What the tester spoiled is tried again as in a search, and is never part of a number.
            for _ in 0..=self.plan.search.invalid_retries {
                let measured = match done.pop_front_if(|m| m.step == step) {
                    Some(measured) => measured,
                    None => self.measure(&mut site, step.clone(), (None, None))?,
                };
                if measured.voids_its_point() {
                    return Ok(());
                }
                if measured.trial.verdict != Verdict::Invalid {
                    break;
                }
            }
        }
        Ok(())
    }

    /// What the journal holds of a point, in order.
    fn done(&self, point: &Point) -> VecDeque<Measured> {
        let finished = self.entries.iter().filter_map(|entry| match entry {
            Entry::Finished(measured) if measured.step.point == *point => Some((**measured).clone()),
            _ => None,
        });
        finished.collect()
    }

    /// Carries out one trial, again if the DUT dies or hangs in it, and notes it.
    fn measure(
        &mut self,
        site: &mut Option<Site>,
        step: Step,
        bracket: (Option<Qps>, Option<Qps>),
    ) -> Result<Measured, CampaignError> {
        let deaths = if matches!(step.point, Point::Load { .. }) { 0 } else { DEATHS };
        for death in 0..=deaths {
            if self.interruption.is_asked() {
                return Err(CampaignError::Interrupted);
            }
            self.make_room(site, &step)?;
            let ready = match site {
                Some(site) => site,
                None => site.insert(self.start(&step.point)?),
            };
            self.watcher.begins(&step, bracket);
            self.append(Entry::Started(step.clone()))?;
            let (mut plan, used) = self.trial_plan(&step, ready.next_name);
            ready.next_name += used;
            let records = self.records_file()?;
            plan.records = records.as_ref().map(|file| self.world.tester.place(file));
            let before = ready.auth.counters()?;
            let (numa_before, times) = (self.world.dut.numa()?, self.cpu_times()?);
            let (mut trial, cpu) = match self.trial(ready, &plan, death == deaths)? {
                Seen::Ended(trial, cpu) => (*trial, cpu),
                Seen::Died(how) => {
                    let log = ready.dut.as_ref().map(Dut::log_tail).unwrap_or_default();
                    *site = None;
                    self.mishap(&step.point, &format!("at {} queries/s: {how}", step.rate), log)?;
                    continue;
                }
            };
            let stolen = stolen(times, self.cpu_times()?);
            // Before others ask it anything.
            let after = ready.auth.counters()?;
            let cpus = ready.dut.as_ref().map(Dut::cpus);
            let dut_end = if trial.counts.lost > 0 { self.dut_end(ready, &step.point)? } else { None };
            if let Some(end) = &dut_end {
                let log = ready.dut.as_ref().map(Dut::log_tail).unwrap_or_default();
                // The next trial is to find a living one.
                *site = None;
                self.mishap(&step.point, &format!("at {} queries/s: {end}", step.rate), log)?;
                if death < deaths {
                    continue;
                }
            }
            if let Some((before, after)) = before.zip(after) {
                let part = AuthPart::between(&before, &after, plan.timeout, plan.auth_limit);
                trial.weigh_auth(part, plan.auth_limit, plan.subject);
            }
            let numa = numa_before.zip(self.world.dut.numa()?).map(|(before, after)| after.since(&before));
            trial.set_facts(self.facts_of(&trial, cpus.as_deref()));
            // There are none of a trial that could not begin, or whose disk did not keep up.
            let records = records.filter(|file| self.archive.has(file));
            let mut measured = Measured { step, trial, dut_end, cpu, numa, stolen, warnings: Vec::new(), records };
            self.warn(&mut measured);
            self.watcher.ended(&measured);
            self.append(Entry::Finished(Box::new(measured.clone())))?;
            self.interruption.sleep(self.plan.trial.pause);
            return Ok(measured);
        }
        unreachable!("the last turn takes the trial as it is")
    }

    /// Starts anew where the names of the zone file do not suffice for another trial.
    fn make_room(&self, site: &mut Option<Site>, step: &Step) -> Result<(), CampaignError> {
        let (names, first) = self.names();
        let next = site.as_ref().map_or(first, |site| site.next_name);
        let (_, used) = self.trial_plan(step, next);
        if next + used <= names.count() {
            return Ok(());
        }
        *site = None;
        if first + used <= names.count() {
            return Ok(());
        }
        let has = names.count() - first;
        let why =
            format!("it needs {used} names, [auth] names = \"{names}\" has {has} for a search; give a larger block");
        Err(CampaignError::Trial { rate: step.rate, why, is_usage: true })
    }

    /// Where the records of the next trial to be finished go, if they are wanted.
    fn records_file(&self) -> Result<Option<PathBuf>, ArchiveError> {
        let Some(format) = self.plan.trial.records else { return Ok(None) };
        let finished = self.entries.iter().filter(|entry| matches!(entry, Entry::Finished(_))).count();
        self.archive.records_file(finished + 1, format.extension()).map(Some)
    }

    /// The block of the trials' names, and the position of the first.
    fn names(&self) -> (NameRange, u64) {
        match self.plan.auth.driver {
            servers::Auth::Dns64bench => (NameRange::ALL, FIRST_NAME),
            _ => (self.plan.auth.names, FOR_LOOKING),
        }
    }

    /// How the DUT ended, if it did not survive a trial.
    fn dut_end(&self, site: &Site, point: &Point) -> Result<Option<DutEnd>, CampaignError> {
        let Some(dut) = &site.dut else { return Ok(None) };
        if let Some(how) = dut.ended()? {
            return Ok(Some(DutEnd::Died(how)));
        }
        Ok(if self.comes_back(site, point)? { None } else { Some(DutEnd::Hung) })
    }

    /// What decides over a trial's compliance: what the Measurer saw of it, and where the campaign runs its roles.
    /// `dut` are the CPUs of the DUT, none in a self-test.
    fn facts_of(&self, trial: &TrialResult, dut: Option<&[usize]>) -> method::compliance::Facts {
        let roles: Vec<Role<'_>> =
            [self.tester_role(), self.auth_role()].into_iter().chain(dut.map(|cpus| self.dut_role(cpus))).collect();
        let (shares_host, shares_cpus) = shared(&roles);
        method::compliance::Facts { shares_host, shares_cpus, ..trial.facts }
    }

    fn tester_role(&self) -> Role<'_> {
        Role { machine: &self.world.tester.greeting().boot_id, cpus: &self.plan.cpus.tester }
    }

    fn dut_role<'a>(&'a self, cpus: &'a [usize]) -> Role<'a> {
        Role { machine: &self.world.dut.greeting().boot_id, cpus }
    }

    fn auth_role(&self) -> Role<'_> {
        Role { machine: &self.world.auth.greeting().boot_id, cpus: &self.plan.cpus.auth }
    }

    /// Warns of the tester's own load.
    fn warn(&self, measured: &mut Measured) {
        let Measured { step, cpu, warnings, .. } = measured;
        let cores = self.plan.cpus.auth.len();
        if cores > 0 && cpu.auth > BUSY * cores as f64 {
            warnings.push(format!("AuthDNS used {:.2} of its {cores} cores", cpu.auth));
        }
        if let Some(allowed) = results::self_test_allows(self.plan, &self.entries, &step.point)
            && step.rate > allowed
        {
            warnings.push(format!("the self-test vouches for the tester up to {allowed} queries/s only"));
        }
    }

    /// What the CPUs of tester, DUT and AuthDNS have done.
    fn cpu_times(&self) -> Result<[Option<CpuTimes>; 3], HostError> {
        let World { tester, dut, auth, .. } = &self.world;
        Ok([tester.cpu_times()?, dut.cpu_times()?, auth.cpu_times()?])
    }

    fn trial_plan(&self, step: &Step, first_name: u64) -> (TrialPlan, u64) {
        let t = &self.plan.trial;
        let to_auth = step.point == Point::SelfTest;
        let family = self.plan.self_test.as_ref().and_then(|test| test.family);
        let server = if to_auth { self.world.self_test_address(family) } else { self.world.dut_address };
        let mut plan = TrialPlan::new(server, step.rate);
        let full = match (&step.point, &self.plan.measure.loads) {
            (Point::Load { .. }, Some(loads)) => loads.duration,
            _ => t.duration,
        };
        let probe = self.plan.search.probe.filter(|_| step.length == Length::Probe);
        plan.duration = Nanos::from(probe.unwrap_or(full));
        plan.timeout = t.timeout(full).into();
        plan.names = self.names().0;
        plan.first_name = first_name;
        plan.prefixes = vec![t.prefix];
        plan.threads = t.threads;
        plan.source_ports = t.source_ports;
        plan.max_burst = t.max_burst;
        plan.send_cost = self.send_cost();
        plan.real_time = !self.shares_tester_cpus();
        plan.limits = t.pacing_limits();
        plan.auth_limit = t.auth_limit.into();
        plan.cpus = self.plan.cpus.tester.iter().map(|&cpu| method::units::CpuId(cpu)).collect();
        match &step.point {
            Point::SelfTest => {
                plan.timeout = method::selftest::timeout(plan.timeout);
                plan.aaaa_share = Share::ONE;
                let delta = self.plan.self_test.as_ref().map_or(MIN_DELTA, |test| test.delta);
                plan.subject = Subject::Tester { factor: factor(Share::ZERO, Share::ZERO, delta), delta };
            }
            Point::Search(c) => {
                (plan.aaaa_share, plan.cached_share, plan.accept) = (c.aaaa, c.cached, Acceptance(c.accept));
            }
            Point::Load { .. } => {}
        }
        let used = plan.names_needed();
        (plan, used)
    }

    /// Whether the DUT answers again after it has lost queries; an overloaded one may need a moment.
    fn comes_back(&self, site: &Site, point: &Point) -> Result<bool, CampaignError> {
        let give_up = Instant::now() + COMES_BACK;
        while !self.answers(site, point)? {
            if Instant::now() > give_up {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the DUT answers a few names right, which no trial asks for.
    fn answers(&self, site: &Site, point: &Point) -> Result<bool, CampaignError> {
        let step = Step { point: point.clone(), repeat: 0, rate: Qps(50), length: Length::Probe };
        let (mut plan, _) = self.trial_plan(&step, 0);
        if self.plan.auth.driver == servers::Auth::Dns64bench {
            plan.names = "9.0.0.0/24".parse().expect("a constant");
        }
        (plan.cached_share, plan.duration) = (Share::ZERO, Nanos::from_millis(100));
        plan.timeout = Nanos::from_millis(500);
        Ok(match self.trial(site, &plan, false)? {
            Seen::Ended(trial, _) => trial.counts.valid > 0,
            Seen::Died(_) => false,
        })
    }

    /// Runs `dns64bench measure` and watches the servers meanwhile. A death of the DUT ends it at once, unless `to_the_end`.
    fn trial(&self, site: &Site, plan: &TrialPlan, to_the_end: bool) -> Result<Seen, CampaignError> {
        let machine = &self.world.tester;
        let (output, log, planned) = (Path::new("trial.json"), Path::new("trial.log"), Path::new("trial.plan.json"));
        machine.write(log, "")?;
        // Only a folder whose name is no UTF-8 cannot be written down.
        let unfit = |e: serde_json::Error| CampaignError::Trial { rate: plan.rate, why: e.to_string(), is_usage: true };
        machine.write(planned, &serde_json::to_string(plan).map_err(unfit)?)?;
        let planned = machine.place(planned).to_string_lossy().into_owned();
        // The campaign asks the DUT itself, and knows whether its process lives.
        let words = ["measure", "--plan", &planned, "--json", "--quiet", "--liveness", "false"].map(str::to_owned);
        let measurer = machine.start(&machine.ours(&words), &[], log, Some(output))?;
        let mut meter = Meter::new(site, &measurer)?;
        let ended = loop {
            if let Some(ended) = measurer.ended(LOOK)? {
                break ended;
            }
            if self.interruption.is_asked() {
                return Err(CampaignError::Interrupted);
            }
            if let Some(ended) = site.auth.process().ended(Duration::ZERO)? {
                let log = site.auth.process().log_tail();
                return Err(CampaignError::Auth(format!("AuthDNS ended in a trial: {}\n{log}", ended.how)));
            }
            if let Some(dut) = &site.dut
                && let Some(how) = dut.ended()?
                && !to_the_end
            {
                return Ok(Seen::Died(format!("the DUT ended with {how}")));
            }
            meter.tick(site, &measurer, plan.duration)?;
        };
        let cpu = meter.finish(site)?;
        let text = machine.read(output, RESULT)?;
        match serde_json::from_str::<TrialResult>(&text) {
            Ok(trial) => Ok(Seen::Ended(Box::new(trial), cpu)),
            Err(e) => {
                let (how, told) = (&ended.how, measurer.log_tail());
                // A full disk keeps the reason from being written down; whoever writes next is told.
                let full = machine.write(output, &" ".repeat(PROBE)).err().map_or(String::new(), |e| format!("; {e}"));
                let why = format!("dns64bench measure ended with {how}, its result is no trial ({e}): {told}{full}");
                Err(CampaignError::Trial { rate: plan.rate, why, is_usage: ended.status == Some(USAGE) })
            }
        }
    }

    fn give_up(&mut self, point: &Point, error: &SiteError) -> Result<(), CampaignError> {
        self.missing.extend(point.dut().map(str::to_owned));
        self.mishap(point, &error.to_string(), error.log().to_owned())
    }

    fn mishap(&mut self, point: &Point, what: &str, log: String) -> Result<(), CampaignError> {
        self.watcher.mishap(point, what);
        self.append(Entry::Mishap { point: point.clone(), what: what.into(), log })
    }

    fn append(&mut self, entry: Entry) -> Result<(), CampaignError> {
        self.archive.append(&entry)?;
        self.entries.push(entry);
        Ok(())
    }
}

/// What a hypervisor took from tester, DUT and AuthDNS between two moments.
fn stolen(before: [Option<CpuTimes>; 3], after: [Option<CpuTimes>; 3]) -> StolenFrom {
    let mut each = before.into_iter().zip(after).map(|(before, after)| Some(after?.stolen_since(&before?)));
    let [tester, dut, auth] = std::array::from_fn(|_| each.next().flatten());
    StolenFrom { tester, dut, auth }
}

/// CPU time of all that take part in a trial.
struct Meter {
    start: Instant,
    auth_before: f64,
    dut_last: (Instant, f64),
    tester_used: f64,
    cpu: Cpu,
}

fn cpu_of(process: &Running) -> Result<f64, HostError> {
    process.machine().cpu(&[process.id()])
}

impl Meter {
    fn new(site: &Site, measurer: &Running) -> Result<Meter, HostError> {
        let used = site.dut.as_ref().map_or(Ok(0.0), Dut::cpu)?;
        let auth_before = cpu_of(site.auth.process())?;
        let now = Instant::now();
        let tester_used = cpu_of(measurer)?;
        Ok(Meter { start: now, auth_before, dut_last: (now, used), tester_used, cpu: Cpu::default() })
    }

    /// To be called often; looks once a second, and once in the middle of the trial where the DUT's threads may run.
    /// What comes after the trial's own length is no load.
    fn tick(&mut self, site: &Site, measurer: &Running, length: Nanos) -> Result<(), HostError> {
        if let (None, Some(dut)) = (&self.cpu.place, &site.dut)
            && Nanos::from(self.start.elapsed()).0 >= length.0 / 2
        {
            self.cpu.place = Some(dut.place()?);
        }
        if self.dut_last.0.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        // The tester's process is gone when the trial is over, so its time is read while it runs.
        self.tester_used = cpu_of(measurer)?;
        if let Some(dut) = &site.dut {
            let used = dut.cpu()?;
            let now = Instant::now();
            // A process that has just died has used less than before.
            let share = ((used - self.dut_last.1) / (now - self.dut_last.0).as_secs_f64()).max(0.0);
            if Nanos::from(now - self.start) <= length + SLACK {
                self.cpu.dut.push(share);
            }
            self.dut_last = (now, used);
        } else {
            self.dut_last.0 = Instant::now();
        }
        Ok(())
    }

    fn finish(mut self, site: &Site) -> Result<Cpu, HostError> {
        let seconds = self.start.elapsed().as_secs_f64().max(0.001);
        self.cpu.auth = (cpu_of(site.auth.process())? - self.auth_before) / seconds;
        self.cpu.tester = self.tester_used / seconds;
        Ok(self.cpu)
    }
}
