//! A trial that several testers share (`[ssh] testers`).
//!
//! ```text
//! clocks compared ─► each tester gets its part, and when all begin ─► silence until the last reply's time is over
//!                                                                        │
//!              one trial ◄─ merge ◄─ clocks compared again ◄─ results ◄──┘
//! ```
//!
//! While the trial runs, no tester is asked anything. A tester that has not begun in time has sent
//! none of its queries, and its process says so at the end. That, a tester that does not end, and
//! a clock that is off make the trial invalid, with the tester's name: it is repeated like others
//! that a tester spoiled. Where a clock is off before the trial, nobody begins.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use method::reason::Reason;
use method::units::Nanos;
use net::clock;
use tester::measurer::merge::{Given, Offsets, merge};
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use tester::measurer::shards::{Moment, ShardPlan};

use super::CampaignError;
use super::hosts::{LOOK, RESULT, RealHosts, auth_lives, measure};
use super::meter::Meter;
use crate::archive::{Cpu, TaskResult};
use crate::host::{HostError, Machine, Running};
use crate::measures::Task;
use crate::site::{RunningAuth, RunningDut};

/// From when the last of several testers has been told of a trial to its first query, names that
/// must be cached aside: each must have started its process.
const LEAD: Nanos = Nanos(2 * Nanos::SECOND.0);
/// How long it may take to tell one of them, which are told one after the other: three requests over
/// ssh.
const TELLING: Nanos = Nanos::from_millis(500);
/// How long a tester may take after the last reply's time until its process has ended.
const PRINTS: Duration = Duration::from_secs(30);
/// So often a clock is read; the reading that took the shortest way counts.
const READINGS: u32 = 8;

/// A reading of a host's clock, between two moments of this one's (F. Cristian, Probabilistic clock
/// synchronization, 1989, doi:10.1007/BF01784024).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    /// By how many nanoseconds it was ahead, if the way there took as long as the way back.
    ahead: i64,
    /// By how many nanoseconds that may be wrong: half of the way there and back.
    error: u64,
}

impl Reading {
    /// It was asked at the moment `asked` of this host's clock, said `theirs`, and that was here
    /// `way` later.
    fn of(asked: Nanos, theirs: Nanos, way: Nanos) -> Reading {
        let error = way.0 / 2;
        Reading { ahead: theirs.0 as i64 - (asked.0 + error) as i64, error }
    }

    /// The best of several readings of a machine's clock.
    fn take(machine: &Machine) -> Result<Reading, HostError> {
        let mut best: Option<Reading> = None;
        for _ in 0..READINGS {
            let asked = clock::ClockPair::sample();
            let theirs = machine.clock()?;
            let way = clock::now().since(asked.monotonic());
            let reading = Reading::of(asked.wall(), theirs, way);
            if best.is_none_or(|best| reading.error < best.error) {
                best = Some(reading);
            }
        }
        Ok(best.expect("READINGS is not 0"))
    }

    /// By how much this clock was ahead of another one, in nanoseconds: at the least and at the most.
    fn ahead_of(self, other: Reading) -> RangeInclusive<i64> {
        let (ahead, error) = (self.ahead - other.ahead, (self.error + other.error) as i64);
        ahead - error..=ahead + error
    }
}

impl RealHosts<'_> {
    /// Carries out a trial that all testers share.
    pub(super) fn shared_trial(
        &self,
        auth: &RunningAuth,
        dut: Option<&RunningDut>,
        plan: &TrialPlan,
    ) -> Result<(TaskResult, Cpu), CampaignError> {
        dut.map_or(Ok(()), RunningDut::look_for_processes)?;
        let before = self.clocks()?;
        let off = clock_faults(&self.offsets(&before, &before), plan.limits.lateness_p999);
        if !off.is_empty() {
            return Ok(ended(spoiled(plan, with_hosts(off, &self.tester_names())), Cpu::default()));
        }
        let lead = lead(plan, self.world.testers.len() as u16);
        let (begun, begins) = (SystemTime::now(), Instant::now() + lead.into());
        // What the first tester's clock will say then.
        let now = clock::wall().0.saturating_add_signed(before[0].ahead);
        let measurers = self.start_all(plan, Moment(Nanos(now) + lead))?;
        self.wait(begins, || Ok(()))?;
        let task = Task::Trial(Box::new(plan.clone()));
        let mut meter = Meter::new(auth, dut, &measurers, &self.world.dut)?;
        let over = begins + plan.duration.into() + plan.timeout.into();
        // Servers are looked at as in any trial: what they use is part of the result, and without
        // AuthDNS there is none.
        self.wait(over, || {
            auth_lives(auth)?;
            Ok(meter.tick(dut, &task)?)
        })?;
        let (mut given, mut faults) = (Vec::new(), Vec::new());
        for (measurer, index) in measurers.iter().zip(0..) {
            match self.given(measurer, index, &task, begun)? {
                Some(part) => given.push(part),
                None => faults.push(of_shard(index, Reason::NotEnded { waited: PRINTS.into() })),
            }
        }
        let cpu = meter.finish(auth, dut, &measurers)?;
        auth_lives(auth)?;
        let mut trial = if faults.is_empty() {
            let unfit =
                |why: String| CampaignError::Trial { rate: Some(plan.rate), why, is_usage: false };
            let merged = merge(given, &self.offsets(&before, &self.clocks()?));
            merged.map_err(|error| unfit(error.to_string()))?.trial
        } else {
            spoiled(plan, faults)
        };
        trial.reasons = with_hosts(trial.reasons, &self.tester_names());
        Ok(ended(trial, cpu))
    }

    /// What the plan calls the testers.
    fn tester_names(&self) -> Vec<&str> {
        self.world.testers.iter().map(Machine::name).collect()
    }

    /// What the clocks of all testers say.
    fn clocks(&self) -> Result<Vec<Reading>, HostError> {
        self.world.testers.iter().map(Reading::take).collect()
    }

    /// How far each tester's clock may be from that of the first one, from before to after a trial;
    /// nothing where all are of one machine, which has one clock.
    fn offsets(&self, before: &[Reading], after: &[Reading]) -> Offsets {
        let ids = self.world.testers.iter().map(|tester| &tester.greeting().boot_id);
        let first = &self.world.tester().greeting().boot_id;
        if !first.is_empty() && ids.into_iter().all(|id| id == first) {
            return Offsets::new();
        }
        between(before, after)
    }

    /// Starts `measure` on each tester, for its part of a trial that begins at `start`.
    fn start_all(&self, plan: &TrialPlan, start: Moment) -> Result<Vec<Running>, CampaignError> {
        let testers = &self.world.testers;
        let (of, seed) = (testers.len() as u16, plan.seed_from(start));
        let each = testers.iter().zip(0..).map(|(machine, index)| {
            let [told, log, output] = ["plan.json", "log", "json"].map(|what| file(index, what));
            let shard = Some(ShardPlan { index, of, seed, start });
            let plan = TrialPlan { shard, ..plan.clone() };
            let words = machine.ours(&measure(machine, &told, &plan)?);
            machine.write(&log, "")?;
            Ok(machine.start(&words, &[], &log, Some(output.as_path()))?)
        });
        each.collect()
    }

    /// Waits until a moment, and does something now and then meanwhile.
    fn wait(
        &self,
        until: Instant,
        mut meanwhile: impl FnMut() -> Result<(), CampaignError>,
    ) -> Result<(), CampaignError> {
        while Instant::now() < until {
            if self.interruption.is_asked() {
                return Err(CampaignError::Interrupted);
            }
            meanwhile()?;
            thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// What the tester with this number found of its part, when it has ended; `None` if it does not
    /// end.
    fn given(
        &self,
        measurer: &Running,
        index: u16,
        task: &Task,
        begun: SystemTime,
    ) -> Result<Option<Given>, CampaignError> {
        let machine = measurer.machine();
        let give_up = Instant::now() + PRINTS;
        let ended = loop {
            if let Some(ended) = measurer.ended(LOOK)? {
                break ended;
            }
            if self.interruption.is_asked() {
                return Err(CampaignError::Interrupted);
            }
            if Instant::now() >= give_up {
                return Ok(None);
            }
        };
        let text = machine.read(&file(index, "json"), RESULT)?;
        match self.found(task, measurer, &ended, begun, &text)? {
            TaskResult::Trial(trial) => {
                Ok(Some(Given { file: machine.name().to_owned(), trial: *trial }))
            }
            other => unreachable!("a trial finds a trial, not {other:?}"),
        }
    }
}

/// From when `testers` are told of a trial to its first query.
fn lead(plan: &TrialPlan, testers: u16) -> Nanos {
    // Each resolves all names to be cached, the more slowly the more there are: seed and start do
    // not matter here.
    let shard = ShardPlan { index: 0, of: testers, seed: 0, start: Moment(Nanos(0)) };
    let telling = Nanos(TELLING.0 * u64::from(testers));
    LEAD + telling + TrialPlan { shard: Some(shard), ..plan.clone() }.preload_time()
}

fn ended(trial: TrialResult, cpu: Cpu) -> (TaskResult, Cpu) {
    (TaskResult::Trial(Box::new(trial)), cpu)
}

/// The result of a trial that testers spoiled in these ways, and of which there is nothing to merge.
pub(super) fn spoiled(plan: &TrialPlan, reasons: Vec<Reason>) -> TrialResult {
    TrialResult { reasons, ..TrialResult::not_begun(plan, 0) }
}

/// That the tester with this number spoiled a trial in this way.
pub(super) fn of_shard(shard: u16, reason: Reason) -> Reason {
    Reason::OfShard { shard, reason: Box::new(reason) }
}

/// The reasons of a trial; those of one of several testers name its host.
pub(super) fn with_hosts(reasons: Vec<Reason>, hosts: &[&str]) -> Vec<Reason> {
    let with_host = |reason| match reason {
        Reason::OfShard { shard, reason } => match hosts.get(usize::from(shard)) {
            Some(&host) => of_shard(shard, Reason::OnHost { host: host.into(), reason }),
            None => Reason::OfShard { shard, reason },
        },
        other => other,
    };
    reasons.into_iter().map(with_host).collect()
}

/// Which testers' clocks are too far from the first one's or, where they are near enough to that,
/// from one another's: what `merge` would say of them.
fn clock_faults(offsets: &Offsets, limit: Nanos) -> Vec<Reason> {
    let apart = |one: &RangeInclusive<i64>, other: &RangeInclusive<i64>| {
        Nanos(one.end().abs_diff(*other.start()).max(other.end().abs_diff(*one.start())))
    };
    let off = |ahead: &RangeInclusive<i64>| apart(ahead, &(0..=0));
    let error = |(index, own): (&u16, &RangeInclusive<i64>)| {
        if off(own) > limit {
            return (*index, off(own));
        }
        let others = offsets.iter().filter(|(other, ahead)| *other != index && off(ahead) <= limit);
        (*index, others.map(|(_, ahead)| apart(own, ahead)).fold(off(own), Nanos::max))
    };
    let errors = offsets.iter().map(error).filter(|(_, error)| *error > limit);
    errors.map(|(index, e)| of_shard(index, Reason::ClockOff { error: Some(e), limit })).collect()
}

/// A file of a tester's part in a trial, below the folder of its host.
fn file(index: u16, what: &str) -> PathBuf {
    format!("trial-{index}.{what}").into()
}

/// Of readings before and after a trial, by how much each clock may have been ahead of the first one
/// in between.
fn between(before: &[Reading], after: &[Reading]) -> Offsets {
    let of = |all: &[Reading]| -> Vec<RangeInclusive<i64>> {
        all.iter().map(|reading| reading.ahead_of(all[0])).collect()
    };
    let both = of(before).into_iter().zip(of(after));
    let ranges = both.map(|(a, b)| *a.start().min(b.start())..=*a.end().max(b.end()));
    // The first one is what the others are held against.
    (0..)
        .zip(ranges)
        .map(|(index, range)| (index, if index == 0 { 0..=0 } else { range }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use method::units::{Qps, Share};
    use method::verdict::Verdict;

    fn reading(ahead: i64, error: u64) -> Reading {
        Reading { ahead, error }
    }

    #[test]
    fn a_clock_is_ahead_by_what_it_says_against_the_middle_of_the_way() {
        let of = |theirs| Reading::of(Nanos(1_000_000), Nanos(theirs), Nanos(600));
        assert_eq!(of(1_000_300), reading(0, 300));
        assert_eq!(of(1_005_300), reading(5_000, 300));
        assert_eq!(of(995_300), reading(-5_000, 300));
    }

    /// They are told one after the other.
    #[test]
    fn more_testers_are_given_more_time_to_be_told() {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(100_000));
        let times: Vec<Nanos> = [2, 3, 6, 20].map(|testers| lead(&plan, testers)).into();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    }

    /// Each of n testers resolves all of the names, at the n-th part of the rate.
    #[test]
    fn more_testers_are_given_more_time_for_the_names_to_be_cached() {
        let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(100_000));
        plan.cached_share = Share::percent(50);
        let without = TrialPlan { cached_share: Share::ZERO, ..plan.clone() };
        let for_names = |testers| lead(&plan, testers).since(lead(&without, testers));
        let times: Vec<Nanos> = [2, 3, 6, 12].map(for_names).into();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        assert!(times[0] > plan.preload_time(), "{times:?}");
    }

    #[test]
    fn clocks_are_as_far_apart_as_the_ways_allow_before_or_after() {
        let before = [reading(100, 10), reading(150, 5), reading(-900, 20)];
        let after = [reading(100, 10), reading(400, 5), reading(100, 20)];
        let found = between(&before, &after);
        let expected = [(0, 0..=0), (1, 50 - 15..=300 + 15), (2, -1_000 - 30..=30)];
        assert_eq!(found, Offsets::from(expected));
    }

    /// By whom and how far: what is said of clocks before a trial.
    fn off(offsets: &[(u16, RangeInclusive<i64>)]) -> Vec<(u16, u64)> {
        let faults = clock_faults(&offsets.iter().cloned().collect(), Nanos(100));
        let data = |fault: &Reason| match fault {
            Reason::OfShard { shard, reason } => match **reason {
                Reason::ClockOff { error: Some(error), limit: Nanos(100) } => (*shard, error.0),
                ref other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        faults.iter().map(data).collect()
    }

    #[test]
    fn a_clock_that_is_off_before_the_trial_is_its_testers_fault() {
        assert!(off(&[]).is_empty(), "all are of one machine");
        assert_eq!(off(&[(0, 0..=0), (1, -90..=100), (2, 5..=20)]), [(1, 110), (2, 110)]);
        assert!(off(&[(0, 0..=0), (1, -20..=30), (2, 5..=20)]).is_empty());
        // Ten seconds ahead: the others are not off for that.
        let ahead = 10_000_000_000;
        assert_eq!(
            off(&[(0, 0..=0), (1, -20..=30), (2, ahead..=ahead + 7)]),
            [(2, ahead as u64 + 7)]
        );
        assert_eq!(off(&[(0, 0..=0), (1, -ahead..=-ahead)]), [(1, ahead as u64)]);
        // Both near enough to the first, and too far from each other.
        assert_eq!(off(&[(0, 0..=0), (1, -60..=-60), (2, 60..=60)]), [(1, 120), (2, 120)]);
    }

    #[test]
    fn reasons_of_a_tester_name_its_host() {
        let late = Reason::NotReady { late: Nanos(1) };
        let named =
            with_hosts(vec![of_shard(1, late.clone()), Reason::LedgerFull], &["load1", "load2"]);
        let on_host = Reason::OnHost { host: "load2".into(), reason: Box::new(late) };
        assert_eq!(named, [of_shard(1, on_host), Reason::LedgerFull]);
        assert!(named[0].to_string().starts_with("shard 1: load2: "), "{}", named[0]);
    }

    /// What a tester leaves that is told too late is merged like what the others leave.
    #[test]
    fn a_tester_that_is_not_ready_makes_the_trial_invalid_and_is_named() {
        let start = Moment(Nanos(5));
        let given = (0..2).map(|index| {
            let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1_000));
            plan.shard = Some(ShardPlan { index, of: 2, seed: 9, start });
            // The moment is past for both.
            let progress = tester::measurer::Progress::new(&plan);
            let trial = tester::measurer::run(&plan, &progress).unwrap();
            Given { file: format!("load{index}"), trial }
        });
        let trial = merge(given.collect(), &Offsets::new()).unwrap().trial;
        assert_eq!(trial.verdict, Verdict::Invalid);
        let is_named = |shard: u16| {
            let is_late = |reason: &Reason| matches!(reason, Reason::NotReady { .. });
            trial.reasons.iter().any(|reason| match reason {
                Reason::OfShard { shard: of, reason } => *of == shard && is_late(reason),
                _ => false,
            })
        };
        assert!(is_named(0) && is_named(1), "{:?}", trial.reasons);
    }
}
