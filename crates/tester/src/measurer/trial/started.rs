//! Second state of a trial: the pairs of threads send and receive, and the host is monitored for packet losses.

use net::clock::{ClockPair, ClockRate};
use net::cpu_time::CpuTimes;
use units::Nanos;

use super::prepared::{NotStarted, PairThreads, Prepared};
use crate::measurer::error::TrialError;
use crate::measurer::host_losses::{self, HostLosses};
use crate::measurer::recorder::{RecordContext, Recorder};
use crate::measurer::shards::{AskedClock, LEAD, await_start};

/// Start time of a trial, and state of the clocks at that time.
pub(super) struct TrialStart {
    /// Start time by the wall clock.
    pub(super) wall: Nanos,
    /// State of the wall clock when the start time was converted to the monotonic clock.
    pub(super) clock: AskedClock,
    /// Readings of two clocks at the start: the clock that determines the send times of the queries, and the hardware
    /// clock. Later readings show how much the rates of these clocks differ.
    pub(super) rate: ClockRate,
}

/// A running trial.
pub(super) struct Started<'a> {
    pub(super) prepared: Prepared<'a>,
    pub(super) began: TrialStart,
    pub(super) losses: HostLosses,
    pub(super) recorder: Option<Recorder>,
    /// CPU times at the start; `None` if the kernel does not report them.
    pub(super) cpu_times: Option<CpuTimes>,
    pub(super) pairs: Vec<PairThreads>,
}

impl<'a> Started<'a> {
    /// Starts the pairs of threads. If several testers share the trial, waits for the common start first.
    pub(super) fn begin(mut prepared: Prepared<'a>) -> Result<Started<'a>, NotStarted> {
        let plan = prepared.plan;
        let at = |source| TrialError::Interface { server: plan.server, source };
        let clock = AskedClock::now();
        let agreed =
            plan.shard.map(|shard| await_start(&shard, &clock, prepared.progress)).transpose()?;
        // The next hop is resolved again. A driver may have taken the link down for a moment when the XDP filter was
        // attached, and the neighbour entries are then lost. The neighbour entry may also have expired during a long
        // wait.
        let next_hop = host_losses::reach(plan.server)?;
        let losses = HostLosses::begin(next_hop, &prepared.ports, plan).map_err(at)?;
        let started = ClockPair::sample();
        let start = agreed.unwrap_or(started.monotonic() + LEAD);
        let wall = plan.shard.map_or(started.wall() + LEAD, |shard| shard.start.0);
        let began = TrialStart { wall, clock, rate: ClockRate::sample() };
        let context = RecordContext::new(plan, wall);
        let recorder = plan
            .records
            .as_deref()
            .map(|path| Recorder::start(path, context))
            .transpose()
            .map_err(TrialError::from)?;
        let cpu_times = CpuTimes::now().ok();
        let pairs = prepared.spawn_threads(start, recorder.as_ref())?;
        Ok(Started { prepared, began, losses, recorder, cpu_times, pairs })
    }
}
