//! CPU use of tester, AuthDNS and DUT during a trial. For the DUT and its host, CPU use is recorded
//! for each second.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hosts::host::{HostError, Machine, Running};
use method::reason::OtherUse;
use net::cpu_time::CpuTimes;
use units::Nanos;

use crate::record::Cpu;
use crate::runner::running_servers::{RunningAuth, RunningDut};
use crate::sequence::Task;

/// Maximum delay from the start of the Measurer's process to its first query.
const SLACK: Nanos = Nanos::from_millis(200);
/// Interval between two readings of the CPU times.
const SECOND: Duration = Duration::from_secs(1);

/// Measurement of the CPU use of the tester, AuthDNS and the DUT during one trial.
pub(super) struct Meter<'a> {
    start: Instant,
    /// Time of the next reading of the CPU times: the end of the current second of the trial.
    next: Instant,
    /// CPU time of each AuthDNS at the start of the trial, in seconds.
    auth_before: Vec<f64>,
    dut_last: (Instant, f64),
    host: &'a Machine,
    host_last: Option<CpuTimes>,
    first: Option<CpuSample>,
    cpu: Cpu,
}

/// CPU times on the DUT's host at one moment.
struct CpuSample {
    host: CpuTimes,
    dut: f64,
    /// CPU time of other programs in seconds, or `None` if the host does not report it.
    others: Option<f64>,
}

impl CpuSample {
    /// Returns the use of the DUT's CPUs by other programs between this sample and the sample
    /// `now`. `cpus` are the DUT's CPUs. Returns `None` if the times of these CPUs are unknown.
    fn others_until(&self, now: &CpuSample, cpus: &BTreeSet<usize>) -> Option<OtherUse> {
        let used = now.host.used_since(&self.host, cpus).filter(|used| used.total > 0.0)?;
        // Other programs may also have run on CPUs that the DUT does not use. On the DUT's CPUs,
        // their use is at most the time of all programs minus the time of the DUT.
        let most = (used.programs - (now.dut - self.dut).max(0.0)).max(0.0);
        let others =
            self.others.zip(now.others).map(|(before, now)| (now - before).clamp(0.0, most));
        let percent = |seconds: f64| seconds / used.total * 100.0;
        Some(OtherUse {
            programs_pct: others.map(percent),
            stolen_pct: percent(used.stolen),
            interrupts_pct: percent(used.interrupts),
        })
    }
}

/// Reads the CPU times on the DUT's host, or returns `None` if the host does not report them. The
/// processes `measurers` belong to the tester and do not count as other programs.
fn look(
    auth: &RunningAuth,
    dut: &RunningDut,
    measurers: &[Running],
) -> Result<Option<CpuSample>, HostError> {
    let machine = dut.machine();
    let ours =
        auth.processes().chain(measurers).filter(|process| process.machine().is_same_as(machine));
    let ours: Vec<u32> = ours.map(Running::id).chain(dut.ids()).collect();
    let others = machine.others(ours)?;
    let Some(host) = machine.cpu_times()? else { return Ok(None) };
    Ok(Some(CpuSample { host, dut: dut.cpu()?, others }))
}

fn cpu_of(process: &Running) -> Result<f64, HostError> {
    process.machine().cpu(&[process.id()])
}

fn cpu_of_each(auth: &RunningAuth) -> Result<Vec<f64>, HostError> {
    auth.processes().map(cpu_of).collect()
}

impl Meter<'_> {
    /// Creates the meter at the start of a trial. `host` is the host of the DUT.
    ///
    /// # Errors
    /// Returns an error if a host is no longer reachable.
    pub(super) fn new<'a>(
        auth: &RunningAuth,
        dut: Option<&RunningDut>,
        measurers: &[Running],
        host: &'a Machine,
    ) -> Result<Meter<'a>, HostError> {
        let first = dut.map_or(Ok(None), |dut| look(auth, dut, measurers))?;
        let used = dut.map_or(Ok(0.0), RunningDut::cpu)?;
        let auth_before = cpu_of_each(auth)?;
        let (host_last, start) = (host.cpu_times()?, Instant::now());
        let next = start + SECOND;
        Ok(Meter {
            start,
            next,
            auth_before,
            dut_last: (start, used),
            host,
            host_last,
            first,
            cpu: Cpu::default(),
        })
    }

    /// Reads the CPU times once a second, and the CPU placement of the DUT's threads once per
    /// trial. The caller must call this method several times a second. CPU times after the end of
    /// sending are ignored.
    ///
    /// # Errors
    /// Returns an error if a host is no longer reachable.
    pub(super) fn tick(&mut self, dut: Option<&RunningDut>, task: &Task) -> Result<(), HostError> {
        let (None, Some(running)) = (&self.cpu.place, dut) else {
            return self.second(dut, task);
        };
        // The placement is read in the middle of a trial. Closed loops and conformance checks have
        // no fixed length, so the placement is read at their start.
        let is_half = match task {
            Task::Trial(plan) => Nanos::from(self.start.elapsed()).0 >= plan.duration.0 / 2,
            Task::ClosedLoop(_) | Task::Conform(_) => true,
        };
        if is_half {
            self.cpu.place = Some(running.place()?);
        }
        self.second(dut, task)
    }

    /// Reads the CPU times if a second has passed since the last reading.
    fn second(&mut self, dut: Option<&RunningDut>, task: &Task) -> Result<(), HostError> {
        if Instant::now() < self.next {
            return Ok(());
        }
        // The next reading is due at a whole second after the start of the trial. If it were due a
        // second after this reading, delays would add up.
        while self.next <= Instant::now() {
            self.next += SECOND;
        }
        let Some(dut) = dut else {
            self.dut_last.0 = Instant::now();
            return Ok(());
        };
        let (used, host) = (dut.cpu()?, self.host.cpu_times()?);
        let now = Instant::now();
        // The total CPU time of the DUT decreases if one of its processes has just died.
        let share = ((used - self.dut_last.1) / (now - self.dut_last.0).as_secs_f64()).max(0.0);
        let is_within = match task {
            Task::Trial(plan) => Nanos::from(now - self.start) <= plan.duration + SLACK,
            Task::ClosedLoop(_) | Task::Conform(_) => true,
        };
        if is_within {
            self.cpu.dut.push(share);
            let busy = host
                .as_ref()
                .zip(self.host_last.as_ref())
                .map(|(now, before)| now.busy_since(before));
            self.cpu.host.extend(busy.map(|percent| percent / 100.0));
        }
        (self.dut_last, self.host_last) = ((now, used), host);
        Ok(())
    }

    /// Returns the CPU use of the whole trial. The processes `measurers` have exited, but their CPU
    /// times can still be read.
    ///
    /// # Errors
    /// Returns an error if the host of AuthDNS or of a tester is no longer reachable.
    pub(super) fn finish(
        mut self,
        auth: &RunningAuth,
        dut: Option<&RunningDut>,
        measurers: &[Running],
    ) -> Result<Cpu, HostError> {
        // On a busy host, a short trial can end before `tick` reads the CPU placement.
        if let (None, Some(running)) = (&self.cpu.place, dut) {
            self.cpu.place = Some(running.place()?);
        }
        if let (Some(first), Some(dut), Some(place)) = (&self.first, dut, &self.cpu.place) {
            let cpus = place.allowed.iter().flat_map(|allowed| &allowed.cpus).copied().collect();
            let now = look(auth, dut, measurers)?;
            self.cpu.others = now.and_then(|now| first.others_until(&now, &cpus));
        }
        // If the DUT's processes have exited or were not found, their CPU use is unknown.
        if self.cpu.place.as_ref().is_some_and(|place| place.allowed.is_empty()) {
            self.cpu.dut.clear();
        }
        let seconds = self.start.elapsed().as_secs_f64().max(0.001);
        let used = cpu_of_each(auth)?.into_iter().zip(&self.auth_before);
        // With several AuthDNS hosts, the busiest host may have limited the DUT, so its CPU use is
        // returned.
        self.cpu.auth = used.map(|(now, before)| now - before).fold(0.0, f64::max) / seconds;
        let used = measurers.iter().map(cpu_of).sum::<Result<f64, HostError>>()?;
        self.cpu.tester = used / seconds;
        Ok(self.cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the CPU times of a host with CPU 0 and CPU 1. The ticks of a CPU are given for
    /// programs, interrupts, stolen time and idle time.
    fn host(cpus: [[u64; 4]; 2]) -> CpuTimes {
        let line = |name: &str, [programs, interrupts, stolen, idle]: [u64; 4]| {
            format!("{name} {programs} 0 0 {idle} 0 {interrupts} 0 {stolen} 0 0\n")
        };
        let text = line("cpu ", [0; 4]) + &line("cpu0", cpus[0]) + &line("cpu1", cpus[1]);
        CpuTimes::parse(&text).unwrap()
    }

    #[test]
    fn the_use_by_others_is_bounded_by_what_the_dut_left() {
        let before = CpuSample { host: host([[0; 4]; 2]), dut: 5.0, others: Some(100.0) };
        let of = |others: Option<f64>, cpus: &[usize]| {
            // Ten seconds pass. CPU 0 runs programs for 9 s. CPU 1 runs programs for 4 s and
            // interrupts for 2 s, and 1 s of its time is stolen.
            let host = host([[900, 0, 0, 100], [400, 200, 100, 300]]);
            let now = CpuSample { host, dut: 8.0, others };
            before.others_until(&now, &cpus.iter().copied().collect())
        };
        let use_of =
            |programs_pct| OtherUse { programs_pct, stolen_pct: 10.0, interrupts_pct: 20.0 };
        // The DUT used 3 s, so other programs used at most 1 s of CPU 1.
        assert_eq!(of(Some(109.5), &[1]), Some(use_of(Some(10.0))));
        assert_eq!(of(Some(100.5), &[1]), Some(use_of(Some(5.0))));
        assert_eq!(of(Some(90.0), &[1]), Some(use_of(Some(0.0))));
        assert_eq!(of(None, &[1]), Some(use_of(None)));
        assert_eq!(of(Some(109.5), &[0, 1]).unwrap().programs_pct, Some(47.5));
        assert_eq!((of(Some(109.5), &[]), of(Some(109.5), &[7])), (None, None));
    }
}
