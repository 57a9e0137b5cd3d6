//! Carries out a plan: point by point, trial by trial, each trial a process of this program, each noted in the journal.
//!
//! ```text
//! plan.points() ─► point ─► search / self-test / load ─► step ─► in the journal? ── yes ─► its verdict
//!                                    ▲                              │ no
//!                                    │                              ▼
//!                                    └──────────── verdict ◄── site + `dns64bench measure` + counters, CPU, NUMA
//! ```

use std::collections::VecDeque;
use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use method::narrow::{Length, NarrowedSearch};
use method::search::SearchRange;
use method::units::{Nanos, Qps, Share};
use method::verdict::{Acceptance, Verdict};
use tester::authdns::counters::QueryCounters;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use wire::name::NameRange;

use crate::archive::{Archive, ArchiveError, Cpu, Entry, Measured, Numa, Step};
use crate::lab::{Host, LabError};
use crate::plan::{DutPlan, Plan};
use crate::point::{Conditions, Point};
use crate::process::{Process, cpu_seconds, end_left_over};
use crate::results;
use crate::site::{Auth, Dut, SiteError, version_of};
use crate::world::World;

/// How often a trial is repeated because the DUT died or hung in it; then its result stands.
const DEATHS: u32 = 2;
/// How long a DUT may take to answer again after a trial that was too much for it; then it hangs.
const COMES_BACK: Duration = Duration::from_secs(5);
/// Names of the trials begin here; the DUT starts anew with each search, and so do they.
const FIRST_NAME: u64 = 10 << 24;
/// Below this share of the expected AAAA queries at AuthDNS, a DUT has answered new names without asking.
const ASKED: f64 = 0.999;
/// From this share of its cores on, AuthDNS may be what limited the DUT.
const BUSY: f64 = 0.9;

/// Why a campaign did not end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CampaignError {
    /// The run folder cannot be written; what is in it is whole.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The hosts cannot be used.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// AuthDNS does not run.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// `dns64bench measure` refused.
    #[error("the trial at {rate} queries/s could not be carried out: {why}")]
    Trial {
        /// Its rate.
        rate: Qps,
        /// What it said.
        why: String,
    },
    /// The user wants to stop.
    #[error("interrupted; `dns64bench campaign resume` goes on")]
    Interrupted,
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
    /// Whether the user wants to stop.
    fn is_interrupted(&self) -> bool;
}

/// Carries out what is left of a plan. `done` is what the journal holds.
///
/// # Errors
/// If the run folder, the hosts or AuthDNS cannot be used, or the user interrupts. DUTs that fail are part of the result.
pub fn run(
    plan: &Plan,
    archive: Archive,
    done: Vec<Entry>,
    watcher: &mut dyn Watcher,
) -> Result<Archive, CampaignError> {
    end_left_over(&archive.registry()).map_err(|source| ArchiveError::Io {
        doing: "read",
        path: archive.registry(),
        source,
    })?;
    let world = World::make(plan)?;
    let mut run = Run { plan, world, archive, entries: done, watcher, missing: Vec::new() };
    for point in plan.points() {
        if point.dut().is_some_and(|dut| run.missing.iter().any(|m| m == dut)) {
            continue;
        }
        match run.point(&point) {
            Ok(()) => run.watcher.complete(&point),
            Err(CampaignError::Site(error)) if point.dut().is_some() => run.give_up(&point, &error)?,
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
        let text = version_of(dut)?;
        self.append(Entry::Version { dut: name, text })
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
                let verdict = match done.pop_front_if(|m| m.step == step) {
                    Some(measured) => measured.trial.verdict,
                    None => self.measure(&mut site, step, search.bracket())?,
                };
                search.report(verdict);
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
            if done.pop_front_if(|m| m.step == step).is_none() {
                self.measure(&mut site, step, (None, None))?;
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
    ) -> Result<Verdict, CampaignError> {
        for death in 0..=DEATHS {
            if self.watcher.is_interrupted() {
                return Err(CampaignError::Interrupted);
            }
            let ready = match site {
                Some(site) => site,
                None => site.insert(self.start(&step.point)?),
            };
            self.watcher.begins(&step, bracket);
            self.append(Entry::Started(step.clone()))?;
            let (plan, used) = self.trial_plan(&step, ready.next_name);
            ready.next_name += used;
            let before = ready.auth.counters().map(|c| c.queries).unwrap_or_default();
            let numa_before = numa();
            let seen = self.trial(ready, &plan, death == DEATHS)?;
            let (trial, cpu) = match seen {
                Seen::Ended(trial, cpu) => (*trial, cpu),
                Seen::Died(how) => {
                    let log = ready.dut.as_mut().map(|dut| dut.process().log_tail()).unwrap_or_default();
                    *site = None;
                    self.mishap(&step.point, &format!("at {} queries/s: {how}", step.rate), log)?;
                    continue;
                }
            };
            if ready.dut.is_some() && trial.counts.lost > 0 && death < DEATHS && !self.comes_back(ready, &step.point) {
                let log = ready.dut.as_mut().map(|dut| dut.process().log_tail()).unwrap_or_default();
                *site = None;
                self.mishap(&step.point, &format!("at {} queries/s: it hangs", step.rate), log)?;
                continue;
            }
            let after = ready.auth.counters().map(|c| c.queries).unwrap_or_default();
            let numa = numa_before.zip(numa()).map(|(a, b)| Numa { hit: b.hit - a.hit, miss: b.miss - a.miss });
            let mut measured =
                Measured { step, trial, upstream: difference(before, after), cpu, numa, warnings: Vec::new() };
            self.cross_check(&mut measured);
            self.watcher.ended(&measured);
            let verdict = measured.trial.verdict;
            self.append(Entry::Finished(Box::new(measured)))?;
            thread::sleep(self.plan.trial.pause);
            return Ok(verdict);
        }
        unreachable!("the last turn takes the trial as it is")
    }

    /// Holds a trial against what AuthDNS saw, and the tester's own load against its limits.
    fn cross_check(&self, measured: &mut Measured) {
        let Measured { step, trial, upstream, cpu, warnings, .. } = measured;
        if let Point::Search(conditions) = &step.point
            && conditions.cached == Share::ZERO
            && trial.verdict == Verdict::Passed
            && (upstream.aaaa as f64) < trial.counts.sent as f64 * ASKED
        {
            trial.verdict = Verdict::Invalid;
            trial.reasons.push(format!(
                "AuthDNS was asked for {} AAAA records in {} queries: not all names were new to the DUT",
                upstream.aaaa, trial.counts.sent
            ));
        }
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

    fn trial_plan(&self, step: &Step, first_name: u64) -> (TrialPlan, u64) {
        let t = &self.plan.trial;
        let server = if step.point == Point::SelfTest { self.world.self_test } else { self.world.dut };
        let mut plan = TrialPlan::new(server, step.rate);
        let full = match (&step.point, &self.plan.measure.loads) {
            (Point::Load { .. }, Some(loads)) => loads.duration,
            _ => t.duration,
        };
        let probe = self.plan.search.probe.filter(|_| step.length == Length::Probe);
        plan.duration = Nanos::from(probe.unwrap_or(full));
        plan.timeout = t.timeout.into();
        plan.names = NameRange::ALL;
        plan.first_name = first_name;
        plan.prefixes = vec![t.prefix];
        plan.threads = t.threads;
        plan.source_ports = t.source_ports;
        plan.max_burst = t.max_burst.into();
        plan.cpus = self.plan.cpus.tester.iter().map(|&cpu| method::units::CpuId(cpu)).collect();
        match &step.point {
            Point::SelfTest => {
                plan.timeout = method::selftest::timeout(plan.timeout);
                plan.aaaa_share = Share::ONE;
                // It must look like the traffic of a DUT (methodology.md).
                plan.offload = false;
            }
            Point::Search(c) => {
                (plan.aaaa_share, plan.cached_share, plan.accept) = (c.aaaa, c.cached, Acceptance(c.accept));
            }
            Point::Load { .. } => {}
        }
        let used = plan.names_needed();
        (plan, used)
    }

    /// Starts AuthDNS and, for points of a DUT, the DUT with a cold cache.
    fn start(&mut self, point: &Point) -> Result<Site, CampaignError> {
        let (aaaa, listen) = match point {
            Point::SelfTest => (Share::ONE, self.world.self_test),
            Point::Search(conditions) => (conditions.aaaa, self.world.auth),
            Point::Load { .. } => (Share::ZERO, self.world.auth),
        };
        let auth = Auth::start(&self.world, self.plan, &self.archive, listen, aaaa)?;
        let mut site = Site { auth, dut: None, next_name: FIRST_NAME };
        let Some(dut) = point.dut().and_then(|name| self.plan.dut(name)) else { return Ok(site) };
        let cores = match point {
            Point::Search(conditions) => conditions.cores,
            _ => self.plan.cores()[0],
        };
        site.dut = Some(Dut::start(&self.world, self.plan, &self.archive, dut, cores)?);
        let give_up = Instant::now() + Duration::from_secs(30);
        while !self.answers(&mut site, point) {
            let process = site.dut.as_mut().expect("started above").process();
            let ended = process.ended();
            if ended.is_some() || Instant::now() > give_up {
                let why = ended.map_or("it does not answer".to_owned(), |status| format!("it ended with {status}"));
                let log = process.log_tail();
                return Err(SiteError::NotStarted { name: dut.name().into(), why, log }.into());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(site)
    }

    /// Whether the DUT answers again after it has lost queries; an overloaded one may need a moment.
    fn comes_back(&self, site: &mut Site, point: &Point) -> bool {
        let give_up = Instant::now() + COMES_BACK;
        while !self.answers(site, point) {
            if Instant::now() > give_up {
                return false;
            }
        }
        true
    }

    /// Whether the DUT answers a few names right, which no trial asks for.
    fn answers(&self, site: &mut Site, point: &Point) -> bool {
        let step = Step { point: point.clone(), repeat: 0, rate: Qps(50), length: Length::Probe };
        let (mut plan, _) = self.trial_plan(&step, 0);
        plan.names = "9.0.0.0/24".parse().expect("a constant");
        (plan.cached_share, plan.duration) = (Share::ZERO, Nanos::from_millis(100));
        plan.timeout = Nanos::from_millis(500);
        matches!(self.trial(site, &plan, false), Ok(Seen::Ended(trial, _)) if trial.counts.valid > 0)
    }

    /// Runs `dns64bench measure` and watches the servers meanwhile. A death of the DUT ends it at once, unless `to_the_end`.
    fn trial(&self, site: &mut Site, plan: &TrialPlan, to_the_end: bool) -> Result<Seen, CampaignError> {
        let failed = |why: String| CampaignError::Trial { rate: plan.rate, why };
        let io = |e: std::io::Error| failed(e.to_string());
        let (output, log) = (self.archive.folder().join("trial.json"), self.archive.folder().join("trial.log"));
        let _ = fs::remove_file(&log);
        let stdout = File::create(&output).map_err(io)?;
        let command = self.world.ours(Host::Tester, &[], &measure_arguments(plan));
        let mut measurer = Process::start(command, Some(stdout), &log, &self.archive.registry()).map_err(io)?;
        let mut meter = Meter::new(site, measurer.pid());
        let status = loop {
            if let Some(status) = measurer.ended() {
                break status;
            }
            if self.watcher.is_interrupted() {
                return Err(CampaignError::Interrupted);
            }
            if let Some(dut) = &mut site.dut
                && let Some(status) = dut.process().ended()
                && !to_the_end
            {
                return Ok(Seen::Died(format!("the DUT ended with {status}")));
            }
            meter.tick();
            thread::sleep(Duration::from_millis(20));
        };
        let cpu = meter.finish();
        let text = fs::read_to_string(&output).map_err(io)?;
        let _ = fs::remove_file(&output);
        match serde_json::from_str::<TrialResult>(&text) {
            Ok(trial) => Ok(Seen::Ended(Box::new(trial), cpu)),
            Err(e) => {
                let told = measurer.log_tail();
                Err(failed(format!("dns64bench measure ended with {status}, its result is no trial ({e}): {told}")))
            }
        }
    }

    fn give_up(&mut self, point: &Point, error: &SiteError) -> Result<(), CampaignError> {
        let log = match error {
            SiteError::NotStarted { log, .. } => log.clone(),
            _ => String::new(),
        };
        self.missing.extend(point.dut().map(str::to_owned));
        self.mishap(point, &error.to_string(), log)
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

/// CPU time of all that take part in a trial.
struct Meter {
    dut: Option<u32>,
    auth: u32,
    tester: u32,
    start: Instant,
    auth_before: f64,
    dut_last: (Instant, f64),
    tester_used: f64,
    cpu: Cpu,
}

impl Meter {
    fn new(site: &mut Site, tester: u32) -> Meter {
        let dut = site.dut.as_mut().map(|dut| dut.process().pid());
        let auth = site.auth.process().pid();
        let now = Instant::now();
        let dut_last = (now, dut.map_or(0.0, cpu_seconds));
        let auth_before = cpu_seconds(auth);
        Meter { dut, auth, tester, start: now, auth_before, dut_last, tester_used: 0.0, cpu: Cpu::default() }
    }

    /// To be called often; looks once a second.
    fn tick(&mut self) {
        let passed = self.dut_last.0.elapsed();
        if passed < Duration::from_secs(1) {
            return;
        }
        // The tester's process is gone when the trial is over, so its time is read while it runs.
        self.tester_used = cpu_seconds(self.tester);
        let now = Instant::now();
        let used = self.dut.map_or(0.0, cpu_seconds);
        if self.dut.is_some() {
            self.cpu.dut.push((used - self.dut_last.1) / passed.as_secs_f64());
        }
        self.dut_last = (now, used);
    }

    fn finish(mut self) -> Cpu {
        let seconds = self.start.elapsed().as_secs_f64().max(0.001);
        self.cpu.auth = (cpu_seconds(self.auth) - self.auth_before) / seconds;
        self.cpu.tester = self.tester_used / seconds;
        self.cpu
    }
}

/// The arguments of `dns64bench measure` for a trial.
pub fn measure_arguments(plan: &TrialPlan) -> Vec<String> {
    let time = |t: Nanos| format!("{}ns", t.0);
    let mut words: Vec<String> = ["measure", "--json", "--quiet"].map(str::to_owned).into();
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("server", plan.server.to_string());
    option("rate", plan.rate.to_string());
    option("duration", time(plan.duration));
    option("timeout", time(plan.timeout));
    option("names", plan.names.to_string());
    option("first-name", plan.first_name.to_string());
    option("domain", plan.domain.to_string());
    option("aaaa-share", plan.aaaa_share.to_string());
    option("cached-share", plan.cached_share.to_string());
    option("accept", plan.accept.0.to_string());
    option("threads", plan.threads.to_string());
    option("source-ports", plan.source_ports.to_string());
    option("max-burst", time(plan.max_burst));
    option("offload", plan.offload.to_string());
    for prefix in &plan.prefixes {
        option("expect-prefix", prefix.to_string());
    }
    if !plan.cpus.is_empty() {
        let cpus: Vec<String> = plan.cpus.iter().map(|cpu| cpu.0.to_string()).collect();
        option("cpus", cpus.join(","));
    }
    words
}

fn difference(before: QueryCounters, after: QueryCounters) -> QueryCounters {
    QueryCounters {
        a: after.a.saturating_sub(before.a),
        aaaa: after.aaaa.saturating_sub(before.aaaa),
        other: after.other.saturating_sub(before.other),
    }
}

/// The sums of `numastat` over all nodes; `None` where the kernel does not count.
fn numa() -> Option<Numa> {
    let mut sum = Numa::default();
    let mut found = false;
    for entry in fs::read_dir("/sys/devices/system/node").ok()?.flatten() {
        let Ok(text) = fs::read_to_string(entry.path().join("numastat")) else { continue };
        found = true;
        for line in text.lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            let value: u64 = value.trim().parse().unwrap_or(0);
            match name {
                "numa_hit" => sum.hit += value,
                "numa_miss" => sum.miss += value,
                _ => {}
            }
        }
    }
    found.then_some(sum)
}
