//! A trial from plan to result: sets up the pairs, starts them at the same time, and combines their results.

use std::io;
use std::sync::Arc;
use std::thread;

use hdrhistogram::Histogram;
use method::pacing::PacingRecorder;
use method::reason::Reason;
use method::records::Counts;
use method::verdict::{Evidence, Verdict, decide};
use method::warning::Warning;
use net::clock::{self, ClockRate};
use net::cpu_time::{CpuTimes, Stolen};
use net::neighbour::NextHop;
use net::socket::Endpoint;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use units::Nanos;
use wire::template::QueryTemplate;

use super::burst::{Burst, SHORTEST, SendCost};
use super::error::TrialError;
use super::expect::Expectation;
use super::host_losses::{self, HostLosses, Losses};
use super::ids::{Blocks, IdPlan, Ids};
use super::ledger::Ledger;
use super::placement::{cpu_of, owns_cpu, spins};
use super::plan::TrialPlan;
use super::preload::preload;
use super::receiver::{Received, Receiver};
use super::recorder::{RecordContext, Recorder};
use super::result::{Findings, Priority, Rtt, Sending, TrialResult};
use super::sender::{MAX_RUN, SendTiming, Sender, Sent};
use super::shards::{AskedClock, LEAD, ShardPart, await_start};
use super::sources::{SourcePlan, SourcesUsed};
use super::thread_pair::{Ports, Progress};
use super::tx_rx_path::{TxPath, XdpRings};
use crate::authdns::auth_delta::AuthDelta;
use crate::authdns::counters::AuthCounters;
use crate::authdns::status::Session;
use crate::intervals::Intervals;
use crate::xdp::XdpInterface;

/// Traffic that the receive buffers should hold while the receiver does not run.
const BUFFERED: Nanos = Nanos::from_millis(50);
/// Octets that the kernel charges a buffer for one small packet.
const PACKET_CHARGE: u64 = 768;

/// Lowest first port of a contiguous range, and maximum number of attempts to find one.
const LOWEST_PORT: u16 = 32_768;
const ROW_TRIES: u32 = 100;

/// Maximum frequency offset of the clock from the hardware's, and thus of the rate, in parts per million. Clock
/// synchronization needs no more than 500 (`MAXFREQ` of kernel/time/ntp.c).
const SLEW_LIMIT_PPM: f64 = 1_000.0;

/// Share of any CPU's time taken by a hypervisor above which there is a warning, in per cent.
const STOLEN_LIMIT: f64 = 1.0;

/// Carries out one trial. `progress` must be created from the same plan.
///
/// # Errors
/// Only reasons that prevent the trial. The server's behaviour is part of the result, and so is a tester that is not
/// ready when several begin together.
pub fn run(plan: &TrialPlan, progress: &Arc<Progress>) -> Result<TrialResult, TrialError> {
    plan.check()?;
    plan.check_sources()?;
    plan.check_xdp()?;
    let session = begin_at_auth(plan)?;
    let mut result = match offer(plan, progress) {
        Err(TrialError::TooLate { start, now }) => not_ready(plan, (now.0 + LEAD).since(start.0)),
        other => other?,
    };
    if let Some((session, before)) = session {
        match session.end() {
            Ok(after) => result.apply_auth(
                AuthDelta::between(&before, &after, plan.timeout, plan.auth_limit),
                plan.auth_limit,
                plan.subject,
            ),
            // The counts cannot be obtained again.
            Err(error) => result.invalidate([Reason::AuthLost { error: error.to_string() }]),
        }
    }
    Ok(result)
}

/// Returns the result of one of several testers that was `late` for their common start.
fn not_ready(plan: &TrialPlan, late: Nanos) -> TrialResult {
    let reasons = vec![Reason::NotReady { late }];
    TrialResult { reasons, ..TrialResult::not_begun(plan, 0) }
}

/// Begins the trial at AuthDNS and reads its counters, if the plan has its status socket.
fn begin_at_auth(plan: &TrialPlan) -> Result<Option<(Session, AuthCounters)>, TrialError> {
    plan.auth_status
        .as_deref()
        .map(|path| Session::begin(path).map_err(auth_status(plan)))
        .transpose()
}

fn auth_status(plan: &TrialPlan) -> impl Fn(io::Error) -> TrialError {
    let path = plan.auth_status.clone().unwrap_or_default();
    move |source| TrialError::AuthStatus { path: path.clone(), source }
}

/// Sends all queries of `plan`, calls `await_replies`, then reads and checks the replies, all in the
/// calling thread.
///
/// Every query is already due and every reply already there, so the number of instructions does
/// not depend on the clock. Preloading, shards and AF_XDP are not supported; the plan has one pair
/// of threads.
///
/// # Errors
/// Same as [`run`], and those of `await_replies`.
#[doc(hidden)]
pub fn run_without_clock(
    plan: &TrialPlan,
    await_replies: impl FnOnce() -> io::Result<()>,
) -> Result<Counts, TrialError> {
    plan.check()?;
    let next_hop = host_losses::reach(plan.server)?;
    let setup = Setup::new(plan, plan.expectation(), &next_hop)?;
    let start = Nanos(clock::now().0.saturating_sub(plan.duration.0));
    let progress = Progress::new(plan);
    let run = TrialContext { start, recorder: None, progress: &progress };
    let (sender, receiver) = setup.pair(0, &setup.ports[0], None, run);
    let sent = sender.run();
    await_replies().map_err(|source| TrialError::Socket { server: plan.server, source })?;
    Ok(TrialTotals::of(plan, vec![(sent, receiver.run())]).counts)
}

/// Sends the queries and checks the replies, without AuthDNS's part.
fn offer(plan: &TrialPlan, progress: &Arc<Progress>) -> Result<TrialResult, TrialError> {
    let expectation = plan.expectation();
    // Names to be cached are not resolved while others measure.
    if let Some(shard) = &plan.shard {
        shard.has_time()?;
    }
    let at = |source| TrialError::Interface { server: plan.server, source };
    let next_hop = host_losses::reach(plan.server)?;
    let unresolved = if plan.cached_share.per_hundred() > 0 {
        preload(plan, &expectation, progress.stop())?
    } else {
        0
    };
    if progress.is_stopped() {
        return Err(TrialError::Interrupted);
    }
    if unresolved > 0 {
        return Ok(TrialResult::not_begun(plan, unresolved));
    }

    let mut setup = Setup::new(plan, expectation, &next_hop)?;
    let clock = AskedClock::now();
    let agreed = plan.shard.map(|shard| await_start(&shard, &clock, progress)).transpose()?;
    // Resolved again: a driver may take its link down for a moment when a filter is attached, and then this host and
    // the next hop have lost each other's addresses. The entry may also expire during a long wait.
    let next_hop = host_losses::reach(plan.server)?;
    let mut losses = HostLosses::begin(next_hop, &setup.ports, plan).map_err(at)?;
    let started = clock::ClockPair::sample();
    let start = agreed.unwrap_or(started.monotonic() + LEAD);
    let wall = plan.shard.map_or(started.wall() + LEAD, |shard| shard.start.0);
    let began = TrialStart { wall, clock, rate: ClockRate::sample() };
    let context = RecordContext::new(plan, wall);
    let recorder =
        plan.records.as_deref().map(|path| Recorder::start(path, context)).transpose()?;
    let times = CpuTimes::now().ok();
    let run = TrialContext { start, recorder: recorder.as_ref(), progress };
    let outcome = setup.run_pairs(run, &mut losses)?;
    let stolen = times.zip(CpuTimes::now().ok()).map(|(before, after)| after.stolen_since(&before));
    let sum = |of: fn(&Received) -> u64| outcome.iter().map(|(_, received)| of(received)).sum();
    let (datagrams, rings) = (sum(|r| r.datagrams), sum(|r| r.ring_drops));
    let losses = losses.conclude(&setup.ports, datagrams, rings).map_err(at)?;
    let sent: u64 = outcome.iter().map(|(sent, _)| sent.queries + sent.refused).sum();
    let own = plan.own_part();
    if sent < own.count() && progress.is_stopped() {
        // The records of a partial trial must not be mistaken for those of a trial.
        if let Some(recorder) = recorder {
            recorder.discard();
        }
        let cut = TrialPlan {
            duration: own.schedule().deadline(own.index(sent)).max(Nanos(1)),
            ..plan.clone()
        };
        let reason = Reason::Interrupted { duration: cut.duration, planned: plan.duration };
        let (verdict, reasons) = (Verdict::Invalid, vec![reason]);
        let mut result = conclude(&cut, &setup, outcome, &losses, 0, &began);
        if let Some(shard) = &mut result.shard {
            shard.plan = plan.clone();
        }
        return Ok(TrialResult { verdict, reasons, ..result });
    }
    // A full disk costs the records, but not the verdict of a trial that cannot be repeated.
    let (records_lost, records_error) = match recorder.map(Recorder::finish) {
        None => (0, None),
        Some(Ok(lost)) => (lost, None),
        Some(Err(error)) => (0, Some(error.to_string())),
    };
    let mut result = conclude(plan, &setup, outcome, &losses, records_lost, &began);
    result.records_error = records_error;
    result.warnings.extend(stolen.and_then(stolen_warning));
    result.stolen = stolen;
    Ok(result)
}

/// Returns the number of the pair's source ports.
fn ports_of(pair: u16, plan: &TrialPlan) -> u16 {
    (plan.source_ports - pair).div_ceil(plan.threads)
}

/// Everything that the pairs need, opened and checked before the clock starts.
struct Setup<'a> {
    plan: &'a TrialPlan,
    ids: Arc<Ids>,
    pace: SendTiming,
    max_burst: Nanos,
    /// For each pair, true if its sender has an exclusive CPU.
    owns_cpu: Vec<bool>,
    expectation: Expectation,
    template: QueryTemplate,
    receive_buffer: usize,
    ports: Vec<Arc<Ports>>,
    /// AF_XDP rings, if used, until sending begins.
    rings: Option<XdpRings>,
    xdp: Option<XdpInterface>,
}

type PairOutcome = (Sent, Received);

/// State shared by all pairs of a trial while it runs.
#[derive(Clone, Copy)]
struct TrialContext<'a> {
    /// Scheduled time of query 0.
    start: Nanos,
    recorder: Option<&'a Recorder>,
    progress: &'a Arc<Progress>,
}

impl<'a> Setup<'a> {
    fn new(
        plan: &'a TrialPlan,
        expectation: Expectation,
        next_hop: &NextHop,
    ) -> Result<Setup<'a>, TrialError> {
        let at = |source| TrialError::Socket { server: plan.server, source };
        let mut receive_buffer = usize::MAX;
        let mut ports = Vec::new();
        for number in 0..plan.threads {
            let share = ports_of(number, plan);
            let opened = if plan.xdp.is_some() {
                open_row(plan, share)
            } else {
                (0..share).map(|_| open_port(plan, 0)).collect()
            };
            let (connected, unmatched): (Vec<_>, Vec<Option<_>>) =
                opened.map_err(at)?.into_iter().unzip();
            receive_buffer = connected
                .iter()
                .map(Endpoint::receive_buffer)
                .min()
                .unwrap_or(0)
                .min(receive_buffer);
            let unmatched = unmatched.into_iter().flatten().collect();
            ports.push(Arc::new(Ports { asking: connected, unmatched }));
        }
        let open = |wanted| XdpRings::open(plan, wanted, next_hop, &ports[0]);
        let rings = plan.xdp.as_ref().map(open).transpose()?;
        let xdp = rings.as_ref().map(|rings| rings.xdp().clone());
        let spinning = spins(plan);
        let interval = plan.part_of(0).interval();
        let owns_cpu: Vec<bool> = (0..plan.threads).map(|number| owns_cpu(plan, number)).collect();
        let max_burst = match plan.max_burst {
            Burst::Fixed(time) => time,
            Burst::Auto if spinning || owns_cpu.iter().all(|&owns| owns) => SHORTEST,
            Burst::Auto => {
                let measure = || {
                    SendCost::measure(cpu_of(plan, 0, 0))
                        .map_err(|source| TrialError::SendCost { source })
                };
                let cost = plan.send_cost.map_or_else(measure, Ok)?;
                cost.burst(plan.paced_rate() / f64::from(plan.threads))
            }
        };
        let pace = SendTiming::choose(spinning, plan.offload, interval, max_burst);
        let template = QueryTemplate::aaaa(&plan.domain);
        let ids = Arc::new(match plan.shard {
            None => Ids::new(&mut rand::rng()),
            Some(shard) => Ids::new(&mut StdRng::seed_from_u64(shard.seed)),
        });
        Ok(Setup {
            plan,
            ids,
            pace,
            max_burst,
            owns_cpu,
            expectation,
            template,
            receive_buffer,
            ports,
            rings,
            xdp,
        })
    }

    /// Returns the actual send settings for senders with this priority.
    fn sending(&self, priority: Priority) -> Sending {
        Sending {
            threads: self.plan.threads,
            source_ports: self.plan.source_ports,
            // The number in use is known at the end.
            source_addresses: None,
            xdp: self.xdp.clone(),
            spinning: self.pace.spinning,
            real_time: priority == Priority::RealTime,
            priority,
            owns_cpu: self.owns_cpu.iter().all(|&owns| owns),
            max_burst_us: self.max_burst.0 as f64 / 1e3,
            auto_burst: self.plan.max_burst == Burst::Auto,
            run: self.pace.run,
            block: self.pace.block,
            receive_buffer: self.receive_buffer,
        }
    }

    fn run_pairs(
        &mut self,
        run: TrialContext<'_>,
        losses: &mut HostLosses,
    ) -> Result<Vec<PairOutcome>, TrialError> {
        let mut threads = Vec::new();
        // There is one pair if there are rings.
        let mut rings = self.rings.take();
        for (number, ports) in self.ports.iter().enumerate() {
            let (sender, receiver) = self.pair(number as u16, ports, rings.take(), run);
            let spawn = |name: &str| thread::Builder::new().name(format!("{name}-{number}"));
            let at = |source| TrialError::Thread { source };
            let receiving = spawn("receive").spawn(move || receiver.run()).map_err(at)?;
            let sending = spawn("send").spawn(move || sender.run()).map_err(at)?;
            threads.push((sending, receiving));
        }
        losses.watch_while(|| {
            threads
                .iter()
                .any(|(sending, receiving)| !sending.is_finished() || !receiving.is_finished())
        });
        // A panic of a pair is a defect of the tester; it must not look like a verdict.
        let join =
            |(sending, receiving): (thread::JoinHandle<Sent>, thread::JoinHandle<Received>)| {
                (
                    sending.join().expect("a sender never panics"),
                    receiving.join().expect("a receiver never panics"),
                )
            };
        Ok(threads.into_iter().map(join).collect())
    }

    fn pair(
        &self,
        number: u16,
        ports: &Arc<Ports>,
        rings: Option<XdpRings>,
        TrialContext { start, recorder, progress }: TrialContext<'_>,
    ) -> (Sender, Receiver) {
        let plan = self.plan;
        // Room for outstanding and remembered queries, and for a receiver that is a fifth of a second behind.
        let remembered = plan.retention() + Nanos::from_millis(200);
        let part = plan.part_of(number);
        let capacity = (part.rate() * remembered.as_secs_f64()).ceil() as u64;
        let ledger = Arc::new(Ledger::new(capacity + 2 * MAX_RUN));
        let blocks = Blocks::new(self.pace.block);
        let ids = Arc::clone(&self.ids);
        let ids = Arc::new(IdPlan::new(ids, part, ports.asking.len() as u16, blocks));
        let sources = plan
            .source_addresses
            .map(|given| Arc::new(SourcePlan::new(plan, given, ports.asking.len(), blocks)));
        let (tx_path, rx_path) = match rings {
            Some(rings) => {
                let (tx_path, rx_path) = rings.into_halves(sources.as_ref());
                (tx_path, Some(rx_path))
            }
            None => {
                let joins = self.pace.block > 1;
                (TxPath::sockets(Arc::clone(ports), sources.clone(), joins), None)
            }
        };
        let sender = Sender {
            part,
            pace: self.pace,
            names: plan.name_sequence(),
            template: self.template.clone(),
            ids: Arc::clone(&ids),
            ledger: Arc::clone(&ledger),
            tx_path,
            cpu: cpu_of(plan, number, 0),
            owns_cpu: self.owns_cpu[usize::from(number)],
            start,
            progress: Arc::clone(progress),
        };
        let receiver = Receiver {
            number,
            part,
            timeout: plan.timeout,
            retention: plan.retention(),
            spinning: self.pace.spinning,
            names: plan.name_sequence(),
            template: self.template.clone(),
            expectation: self.expectation.clone(),
            ids,
            ledger,
            ports: Arc::clone(ports),
            rx_path,
            sources,
            cpu: cpu_of(plan, number, 1),
            start,
            recorder: recorder.map(Recorder::for_pair),
            intervals: plan.interval.map(Intervals::new),
            progress: Arc::clone(progress),
        };
        (sender, receiver)
    }
}

/// A source port, and the socket for datagrams from other sources if the first one does not receive them.
type SourcePort = (Endpoint, Option<Endpoint>);

/// Opens this number of consecutive source ports: AF_XDP claims a range of ports.
fn open_row(plan: &TrialPlan, count: u16) -> io::Result<Vec<SourcePort>> {
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..ROW_TRIES {
        let first = rand::rng().random_range(LOWEST_PORT..=u16::MAX - count);
        let row = (first..first + count).map(|port| open_port(plan, port));
        match row.collect::<io::Result<Vec<_>>>() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            opened => return opened,
        }
    }
    Err(last)
}

/// Opens a source port, any one if `port` is 0.
fn open_port(plan: &TrialPlan, port: u16) -> io::Result<SourcePort> {
    let (asking, unmatched) = match plan.source_addresses {
        None => {
            let (connected, unmatched) = Endpoint::client_pair(plan.server, port)?;
            (connected, Some(unmatched))
        }
        Some(_) => (Endpoint::client_on_any_address(plan.canonical_server(), port)?, None),
    };
    asking.use_kernel_timestamps()?;
    // It would join replies before a filter in generic mode sees them.
    if plan.xdp.is_none() {
        asking.use_receive_offload();
    }
    Ok((asking, unmatched))
}

/// Totals of all pairs.
struct TrialTotals {
    counts: Counts,
    faults: Vec<Reason>,
    rtt: Option<Histogram<u64>>,
    pacing: Option<PacingRecorder>,
    intervals: Option<Intervals>,
    /// Lowest priority of the senders.
    priority: Priority,
}

impl TrialTotals {
    fn of(plan: &TrialPlan, pairs: Vec<PairOutcome>) -> TrialTotals {
        let mut all = TrialTotals {
            counts: Counts::default(),
            faults: Vec::new(),
            rtt: None,
            pacing: None,
            intervals: plan.interval.map(Intervals::new),
            priority: Priority::RealTime,
        };
        for (sent, received) in pairs {
            if let (Some(sum), Some(pair)) = (&mut all.intervals, &received.intervals) {
                sum.merge(pair);
            }
            all.counts.merge(&Counts {
                sent: sent.queries,
                refused: sent.refused,
                sent_again: sent.again,
                ..received.counts
            });
            all.priority = all.priority.min(sent.priority);
            all.faults.extend(sent.faults);
            all.faults.extend(received.faults);
            match &mut all.rtt {
                Some(sum) => sum.add(&received.rtt).expect("equal bounds"),
                None => all.rtt = Some(received.rtt),
            }
            match &mut all.pacing {
                Some(sum) => sum.merge(&sent.pacing),
                None => all.pacing = Some(sent.pacing),
            }
        }
        all
    }
}

/// Start of a trial.
struct TrialStart {
    /// By the wall clock.
    wall: Nanos,
    /// Clock that its start was taken from.
    clock: AskedClock,
    /// Rate of the clock that its queries were sent by.
    rate: ClockRate,
}

/// Combines the pairs and decides the verdict.
fn conclude(
    plan: &TrialPlan,
    setup: &Setup<'_>,
    pairs: Vec<PairOutcome>,
    losses: &Losses,
    records_lost: u64,
    began: &TrialStart,
) -> TrialResult {
    let tried = pairs.iter().map(|(sent, _)| sent.queries + sent.refused);
    let source_addresses = SourcesUsed::of(plan, setup.pace.block, tried);
    let TrialTotals { counts, mut faults, rtt, pacing, intervals, priority } =
        TrialTotals::of(plan, pairs);
    let ppm = began.rate.ppm_until(ClockRate::sample());
    if ppm.abs() > SLEW_LIMIT_PPM {
        faults.push(Reason::ClockSlewed { ppm, limit_ppm: SLEW_LIMIT_PPM });
    }
    if records_lost > 0 {
        faults.push(Reason::RecordsLost { records: records_lost });
    }
    let own = plan.own_part();
    let shard = plan.shard.and(pacing.as_ref().zip(rtt.as_ref()));
    let part = |(pacing, rtt): (_, &Histogram<_>)| {
        Box::new(ShardPart::new(plan, &began.clock, pacing, rtt.clone()))
    };
    let shard = shard.map(part);
    let windows = pacing.as_ref().map(|p| p.windows(&own));
    let pacing = pacing.map(|p| p.audit(&own)).unwrap_or_default();
    let evidence = Evidence {
        planned: own.count(),
        counts: &counts,
        pacing: &pacing,
        host_losses: &losses.places,
        missed: losses.drops.missed.unwrap_or(0),
        faults: &faults,
    };
    let (verdict, reasons) = decide(&evidence, plan.accept, &plan.limits);
    let sending = Sending { source_addresses, ..setup.sending(priority) };
    let mut warnings = warnings(plan, &sending);
    warnings.extend(losses.warnings(&counts, plan.accept));
    let (drops, rtt) = (losses.drops, rtt.as_ref().and_then(Rtt::of));
    let found = Findings {
        began: began.wall,
        counts,
        drops,
        rtt,
        pacing,
        windows,
        sending,
        verdict,
        reasons,
        warnings,
        intervals,
    };
    TrialResult { shard, ..TrialResult::new(plan, found) }
}

fn warnings(plan: &TrialPlan, sending: &Sending) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let held = plan.own_rate() * BUFFERED.as_secs_f64() / f64::from(plan.source_ports)
        * PACKET_CHARGE as f64;
    if (sending.receive_buffer as f64) < held {
        warnings.push(Warning::SmallReceiveBuffer {
            octets: sending.receive_buffer,
            holds: BUFFERED,
            wanted: net::socket::REQUESTED_BUFFER,
        });
    }
    if plan.retention() < Nanos(plan.timeout.0 * 2) {
        warnings.push(Warning::ShortMemory {
            source_ports: plan.source_ports,
            retention: plan.retention(),
        });
    }
    warnings
}

/// Returns a warning if a hypervisor took a noticeable share.
fn stolen_warning(stolen: Stolen) -> Option<Warning> {
    let worst_cpu_pct = stolen.worst_cpu_pct;
    (worst_cpu_pct > STOLEN_LIMIT).then_some(Warning::Stolen { worst_cpu_pct })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_one_per_cent_stolen_time_is_a_warning() {
        let of =
            |worst_cpu_pct| stolen_warning(Stolen { all_pct: 0.5, worst_cpu_pct, worst_cpu: 1 });
        assert_eq!(of(1.0), None);
        assert_eq!(of(1.1), Some(Warning::Stolen { worst_cpu_pct: 1.1 }));
    }
}
