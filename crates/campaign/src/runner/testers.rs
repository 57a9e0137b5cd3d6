//! A trial that is distributed among several testers (`[ssh] testers`).
//!
//! ```text
//! clocks compared ─► each tester gets its share and the start time ─► no communication until the last reply timeout
//!                                                                          │
//!              one trial ◄─ merge ◄─ clocks compared again ◄─ results ◄────┘
//! ```
//!
//! There is no communication with the testers during the trial. A tester that misses the start time
//! sends no query, and its result reports the missed start. The trial is invalid and is repeated,
//! with a reason that names the tester, in these cases:
//! - A tester misses the start time.
//! - A tester does not exit.
//! - The clock offset of a tester is above the limit. If the offset is above the limit before the
//!   trial, no tester starts.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use hosts::host::{HostError, Machine, Running};
use method::reason::Reason;
use net::clock;
use tester::measurer::merge::{Offsets, TesterResult, merge};
use tester::measurer::plan::TrialPlan;
use tester::measurer::plan::shard::{Moment, ShardPlan};
use tester::measurer::result::TrialResult;
use units::Nanos;

use crate::record::{Cpu, TaskResult};
use crate::runner::error::CampaignError;
use crate::runner::hosts::{POLL_INTERVAL, RESULT, RealHosts, auth_lives, measure};
use crate::runner::meter::Meter;
use crate::runner::running_servers::{RunningAuth, RunningDut};
use crate::sequence::Task;

/// Delay between the start request for the last tester and the first query of the trial. The time
/// needed to fill the DUT's cache is not included. Each tester must start its process within this
/// delay.
const LEAD: Nanos = Nanos(2 * Nanos::SECOND.0);
/// Time allowed for starting one tester, which takes three requests over ssh. The testers start one
/// after the other.
const TELLING: Nanos = Nanos::from_millis(500);
/// Time allowed for a tester's process to exit after the last reply timeout.
const PRINTS: Duration = Duration::from_secs(30);
/// Number of times that each clock is read. The reading with the shortest round-trip time is used.
const READINGS: u32 = 8;

/// Offset of a remote host's clock from the clock of this host, by the method of F. Cristian
/// (Probabilistic clock synchronization, 1989, doi:10.1007/BF01784024).
#[derive(Clone, Copy, Debug, PartialEq)]
struct ClockReading {
    /// Nanoseconds by which the remote clock is ahead of the clock of this host, if the delays in
    /// both directions are equal.
    ahead: i64,
    /// Maximum error of the offset, in nanoseconds: half of the round-trip time.
    error: u64,
}

impl ClockReading {
    /// Computes the offset between the remote host's clock and this host's clock. The computation uses the times of one
    /// request to the remote host. `asked` is the time at which this host sent the request, by its own clock. `theirs`
    /// is the remote time in the reply, and `way` is the round-trip time.
    fn new(asked: Nanos, theirs: Nanos, way: Nanos) -> ClockReading {
        let error = way.0 / 2;
        ClockReading { ahead: theirs.0 as i64 - (asked.0 + error) as i64, error }
    }

    /// Reads a machine's clock several times, and returns the reading with the smallest error.
    fn take(machine: &Machine) -> Result<ClockReading, HostError> {
        let mut best: Option<ClockReading> = None;
        for _ in 0..READINGS {
            let asked = clock::ClockPair::sample();
            let theirs = machine.clock()?;
            let way = clock::now().since(asked.monotonic());
            let reading = ClockReading::new(asked.wall(), theirs, way);
            if best.is_none_or(|best| reading.error < best.error) {
                best = Some(reading);
            }
        }
        Ok(best.expect("READINGS is not 0"))
    }

    /// Returns the possible offsets of this reading's clock from the clock of the reading `other`,
    /// as a range in nanoseconds. Positive offsets mean that this reading's clock is ahead.
    fn ahead_of(self, other: ClockReading) -> RangeInclusive<i64> {
        let (ahead, error) = (self.ahead - other.ahead, (self.error + other.error) as i64);
        ahead - error..=ahead + error
    }
}

impl RealHosts<'_> {
    /// Executes a trial that is distributed among all testers.
    pub(super) fn shared_trial(
        &self,
        auth: &RunningAuth,
        dut: Option<&RunningDut>,
        plan: &TrialPlan,
    ) -> Result<(TaskResult, Cpu), CampaignError> {
        dut.map_or(Ok(()), RunningDut::refresh_process_ids)?;
        let before = self.clocks()?;
        let off = clock_faults(&self.offsets(&before, &before), plan.limits.lateness_p999);
        if !off.is_empty() {
            return Ok(ended(
                TrialResult::not_begun(plan, with_hosts(off, &self.tester_names())),
                Cpu::default(),
            ));
        }
        let lead = lead(plan, self.deployment.testers.len() as u16);
        let (begun, begins) = (SystemTime::now(), Instant::now() + lead.into());
        // The start time is computed with the clock of the first tester.
        let now = clock::wall().0.saturating_add_signed(before[0].ahead);
        let measurers = self.start_all(plan, Moment(Nanos(now) + lead))?;
        self.wait(begins, || Ok(()))?;
        let task = Task::Trial(Box::new(plan.clone()));
        let mut meter = Meter::new(auth, dut, &measurers, &self.deployment.dut)?;
        let over = begins + plan.duration.into() + plan.timeout.into();
        // The servers are observed as in a trial with one tester: their CPU use is recorded, and
        // the trial ends with an error if AuthDNS exits.
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
            TrialResult::not_begun(plan, faults)
        };
        trial.reasons = with_hosts(trial.reasons, &self.tester_names());
        Ok(ended(trial, cpu))
    }

    /// Returns the names of the testers in the plan.
    fn tester_names(&self) -> Vec<&str> {
        self.deployment.testers.iter().map(Machine::name).collect()
    }

    /// Reads the clocks of all testers.
    fn clocks(&self) -> Result<Vec<ClockReading>, HostError> {
        self.deployment.testers.iter().map(ClockReading::take).collect()
    }

    /// For each tester's clock, returns the range of its offset from the first tester's clock. The
    /// range is computed from readings before and after a trial. The list is empty if all testers
    /// are on one machine, because the testers then use the same clock.
    fn offsets(&self, before: &[ClockReading], after: &[ClockReading]) -> Offsets {
        let ids = self.deployment.testers.iter().map(|tester| &tester.greeting().boot_id);
        let first = &self.deployment.tester().greeting().boot_id;
        if !first.is_empty() && ids.into_iter().all(|id| id == first) {
            return Offsets::new();
        }
        between(before, after)
    }

    /// Starts `dns64bench measure` on each tester. Each tester sends its share of the queries of a
    /// trial. The trial begins at the time `start`.
    fn start_all(&self, plan: &TrialPlan, start: Moment) -> Result<Vec<Running>, CampaignError> {
        let testers = &self.deployment.testers;
        let (of, seed) = (testers.len() as u16, plan.seed_from(start));
        let each = testers.iter().zip(0..).map(|(machine, index)| {
            let [plan_file, log, output] =
                ["plan.json", "log", "json"].map(|what| file(index, what));
            let shard = Some(ShardPlan { index, of, seed, start });
            let plan = TrialPlan { shard, ..plan.clone() };
            let words = machine.ours(&measure(machine, &plan_file, &plan)?);
            machine.write(&log, "")?;
            Ok(machine.start(&words, &[], &log, Some(output.as_path()))?)
        });
        each.collect()
    }

    /// Waits until the time `until`. During the wait, the function `meanwhile` is called at regular
    /// intervals.
    fn wait(
        &self,
        until: Instant,
        mut meanwhile: impl FnMut() -> Result<(), CampaignError>,
    ) -> Result<(), CampaignError> {
        while Instant::now() < until {
            if self.interruption.is_requested() {
                return Err(CampaignError::Interrupted);
            }
            meanwhile()?;
            thread::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Waits until the tester with number `index` has exited, and returns the tester's result.
    /// Returns `None` if the tester does not exit in time.
    fn given(
        &self,
        measurer: &Running,
        index: u16,
        task: &Task,
        begun: SystemTime,
    ) -> Result<Option<TesterResult>, CampaignError> {
        let machine = measurer.machine();
        let give_up = Instant::now() + PRINTS;
        let ended = loop {
            if let Some(ended) = measurer.ended(POLL_INTERVAL)? {
                break ended;
            }
            if self.interruption.is_requested() {
                return Err(CampaignError::Interrupted);
            }
            if Instant::now() >= give_up {
                return Ok(None);
            }
        };
        let text = machine.read(&file(index, "json"), RESULT)?;
        match self.found(task, measurer, &ended, begun, &text)? {
            TaskResult::Trial(trial) => {
                Ok(Some(TesterResult { file: machine.name().to_owned(), trial: *trial }))
            }
            other => unreachable!("a trial finds a trial, not {other:?}"),
        }
    }
}

/// Returns the delay between the start of the first tester's process and the first query of a
/// trial.
fn lead(plan: &TrialPlan, testers: u16) -> Nanos {
    // Before the trial, each tester resolves all names that must be cached, at a rate that
    // decreases with the number of testers. The seed and the start time have no influence on the
    // time returned.
    let shard = ShardPlan { index: 0, of: testers, seed: 0, start: Moment(Nanos(0)) };
    let telling = Nanos(TELLING.0 * u64::from(testers));
    LEAD + telling + TrialPlan { shard: Some(shard), ..plan.clone() }.preload_time()
}

fn ended(trial: TrialResult, cpu: Cpu) -> (TaskResult, Cpu) {
    (TaskResult::Trial(Box::new(trial)), cpu)
}

/// Adds the index of a tester to a reason why a trial is invalid. The reason concerns only this tester.
pub(super) fn of_shard(shard: u16, reason: Reason) -> Reason {
    Reason::OfShard { shard, reason: Box::new(reason) }
}

/// Adds the name of the tester's host to each reason that concerns a single tester. The reasons state why a trial is
/// invalid.
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

/// For each tester with a clock that is too far from another tester's clock, returns a reason why the trial is invalid.
/// Each clock is compared with the first tester's clock. Clocks that are close enough to the first clock are also
/// compared with each other. After a trial, `merge` checks the clocks in the same way.
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

/// Returns the path of a tester's file in a trial, relative to the campaign's folder on the
/// tester's host.
fn file(index: u16, what: &str) -> PathBuf {
    format!("trial-{index}.{what}").into()
}

/// For each tester's clock, returns the range of its offset from the first tester's clock during a trial. The clock
/// readings were taken before and after the trial.
fn between(before: &[ClockReading], after: &[ClockReading]) -> Offsets {
    let of = |all: &[ClockReading]| -> Vec<RangeInclusive<i64>> {
        all.iter().map(|reading| reading.ahead_of(all[0])).collect()
    };
    let both = of(before).into_iter().zip(of(after));
    let ranges = both.map(|(a, b)| *a.start().min(b.start())..=*a.end().max(b.end()));
    // The first clock is the reference, so its offset is 0.
    (0..)
        .zip(ranges)
        .map(|(index, range)| (index, if index == 0 { 0..=0 } else { range }))
        .collect()
}

#[cfg(test)]
mod tests {
    use method::verdict::Verdict;
    use units::{Qps, Share};

    use super::*;

    fn reading(ahead: i64, error: u64) -> ClockReading {
        ClockReading { ahead, error }
    }

    #[test]
    fn clock_offset_refers_to_the_middle_of_the_trip() {
        let of = |theirs| ClockReading::new(Nanos(1_000_000), Nanos(theirs), Nanos(600));
        assert_eq!(of(1_000_300), reading(0, 300));
        assert_eq!(of(1_005_300), reading(5_000, 300));
        assert_eq!(of(995_300), reading(-5_000, 300));
    }

    /// The start time depends on the number of testers, because the testers are started one after
    /// the other.
    #[test]
    fn start_time_grows_with_the_number_of_testers() {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(100_000));
        let times: Vec<Nanos> = [2, 3, 6, 20].map(|testers| lead(&plan, testers)).into();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    }

    /// Each of n testers resolves all names, at 1/n of the rate.
    #[test]
    fn caching_time_grows_with_the_number_of_testers() {
        let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(100_000));
        plan.cached_share = Share::percent(50);
        let without = TrialPlan { cached_share: Share::ZERO, ..plan.clone() };
        let for_names = |testers| lead(&plan, testers).since(lead(&without, testers));
        let times: Vec<Nanos> = [2, 3, 6, 12].map(for_names).into();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        assert!(times[0] > plan.preload_time(), "{times:?}");
    }

    #[test]
    fn clock_offsets_cover_readings_before_and_after() {
        let before = [reading(100, 10), reading(150, 5), reading(-900, 20)];
        let after = [reading(100, 10), reading(400, 5), reading(100, 20)];
        let found = between(&before, &after);
        let expected = [(0, 0..=0), (1, 50 - 15..=300 + 15), (2, -1_000 - 30..=30)];
        assert_eq!(found, Offsets::from(expected));
    }

    /// Returns the number of each tester with a clock fault, and the error of its clock in
    /// nanoseconds. The limit is 100 ns.
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
        assert!(off(&[]).is_empty(), "all testers are on one machine");
        assert_eq!(off(&[(0, 0..=0), (1, -90..=100), (2, 5..=20)]), [(1, 110), (2, 110)]);
        assert!(off(&[(0, 0..=0), (1, -20..=30), (2, 5..=20)]).is_empty());
        // The last clock is ten seconds ahead. The other clocks are not compared with it.
        let ahead = 10_000_000_000;
        assert_eq!(
            off(&[(0, 0..=0), (1, -20..=30), (2, ahead..=ahead + 7)]),
            [(2, ahead as u64 + 7)]
        );
        assert_eq!(off(&[(0, 0..=0), (1, -ahead..=-ahead)]), [(1, ahead as u64)]);
        // The second and the third clock are close enough to the first clock, but too far from each
        // other.
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

    /// Both testers are started too late. Their results are merged, and the reasons name both
    /// testers.
    #[test]
    fn a_late_tester_makes_the_trial_invalid_by_name() {
        let start = Moment(Nanos(5));
        let given = (0..2).map(|index| {
            let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1_000));
            plan.shard = Some(ShardPlan { index, of: 2, seed: 9, start });
            // The start time is in the past for both testers.
            let progress = tester::measurer::Progress::new(&plan);
            let trial = tester::measurer::run(&plan, &progress).unwrap();
            TesterResult { file: format!("load{index}"), trial }
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
