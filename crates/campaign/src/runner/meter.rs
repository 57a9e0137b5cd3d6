//! CPU use of all that take part in a trial, second by second.

use std::time::{Duration, Instant};

use method::units::Nanos;
use net::cpu_time::CpuTimes;

use crate::archive::Cpu;
use crate::host::{HostError, Machine, Running};
use crate::measures::Task;
use crate::site::{RunningAuth, RunningDut};

/// The Measurer begins a moment after its process does.
const SLACK: Nanos = Nanos::from_millis(200);
/// Between two looks.
const SECOND: Duration = Duration::from_secs(1);

/// CPU time of all that take part in a trial.
pub(super) struct Meter<'a> {
    start: Instant,
    /// When the next second is over.
    next: Instant,
    /// Of each AuthDNS.
    auth_before: Vec<f64>,
    dut_last: (Instant, f64),
    host: &'a Machine,
    host_last: Option<CpuTimes>,
    cpu: Cpu,
}

fn cpu_of(process: &Running) -> Result<f64, HostError> {
    process.machine().cpu(&[process.id()])
}

fn cpu_of_each(auth: &RunningAuth) -> Result<Vec<f64>, HostError> {
    auth.processes().map(cpu_of).collect()
}

impl Meter<'_> {
    /// Begins with a trial; `host` is that of the DUT.
    ///
    /// # Errors
    /// If a host is gone.
    pub(super) fn new<'a>(
        auth: &RunningAuth,
        dut: Option<&RunningDut>,
        host: &'a Machine,
    ) -> Result<Meter<'a>, HostError> {
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
            cpu: Cpu::default(),
        })
    }

    /// To be called often; looks once a second, and once where the DUT's threads may run. What
    /// comes after the trial's own length is no load.
    ///
    /// # Errors
    /// If a host is gone.
    pub(super) fn tick(&mut self, dut: Option<&RunningDut>, task: &Task) -> Result<(), HostError> {
        let (None, Some(running)) = (&self.cpu.place, dut) else {
            return self.second(dut, task);
        };
        // Halfway through a trial; closed loops and checks have no length.
        let is_half = match task {
            Task::Trial(plan) => Nanos::from(self.start.elapsed()).0 >= plan.duration.0 / 2,
            Task::ClosedLoop(_) | Task::Conform(_) => true,
        };
        if is_half {
            self.cpu.place = Some(running.place()?);
        }
        self.second(dut, task)
    }

    /// Looks at the CPU times if a second has passed.
    fn second(&mut self, dut: Option<&RunningDut>, task: &Task) -> Result<(), HostError> {
        if Instant::now() < self.next {
            return Ok(());
        }
        // By the trial's clock: if each second began with the look at the one before, looks would
        // drift away from it.
        while self.next <= Instant::now() {
            self.next += SECOND;
        }
        let Some(dut) = dut else {
            self.dut_last.0 = Instant::now();
            return Ok(());
        };
        let (used, host) = (dut.cpu()?, self.host.cpu_times()?);
        let now = Instant::now();
        // A process that has just died has used less than before.
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

    /// At the end of a trial; `measurers` have ended, and wait to be dropped.
    ///
    /// # Errors
    /// If the host of AuthDNS or of a tester is gone.
    pub(super) fn finish(
        mut self,
        auth: &RunningAuth,
        measurers: &[Running],
    ) -> Result<Cpu, HostError> {
        // Of processes that are not there, or have ended, nothing is known; it is not 0.
        if self.cpu.place.as_ref().is_some_and(|place| place.allowed.is_empty()) {
            self.cpu.dut.clear();
        }
        let seconds = self.start.elapsed().as_secs_f64().max(0.001);
        let used = cpu_of_each(auth)?.into_iter().zip(&self.auth_before);
        // The one that used most is the one that may have been too busy.
        self.cpu.auth = used.map(|(now, before)| now - before).fold(0.0, f64::max) / seconds;
        let used = measurers.iter().map(cpu_of).sum::<Result<f64, HostError>>()?;
        self.cpu.tester = used / seconds;
        Ok(self.cpu)
    }
}
