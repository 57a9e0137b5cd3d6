//! First state of a trial: all resources that its pairs of threads need are opened and checked before the trial starts.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use method::reason::Reason;
use net::neighbour::NextHop;
use net::socket::Endpoint;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use units::Nanos;
use wire::template::QueryTemplate;

use crate::intervals::Intervals;
use crate::measurer::burst::{Burst, SHORTEST, SendCost};
use crate::measurer::error::TrialError;
use crate::measurer::expect::Expectation;
use crate::measurer::ids::{Blocks, IdPlan, Ids};
use crate::measurer::ledger::Ledger;
use crate::measurer::placement::{cpu_of, owns_cpu, spins};
use crate::measurer::plan::TrialPlan;
use crate::measurer::receiver::{Received, Receiver};
use crate::measurer::recorder::Recorder;
use crate::measurer::result::{Priority, Sending};
use crate::measurer::sender::{MAX_RUN, SendTiming, Sender, Sent};
use crate::measurer::shards::LEAD;
use crate::measurer::sources::SourcePlan;
use crate::measurer::thread_pair::{Ports, Progress};
use crate::measurer::tx_rx_path::{TxPath, XdpRings};
use crate::xdp::XdpInterface;

/// Limits of the search for a range of consecutive free ports: the lowest first port, and the maximum number of
/// attempts.
const LOWEST_PORT: u16 = 32_768;
const ROW_TRIES: u32 = 100;

/// Reasons why no query of a trial is sent.
pub(super) enum NotStarted {
    /// The trial is invalid.
    Invalid(Reason),
    /// The trial cannot be carried out.
    Error(TrialError),
}

impl From<TrialError> for NotStarted {
    fn from(error: TrialError) -> NotStarted {
        match error {
            TrialError::TooLate { start, now } => {
                NotStarted::Invalid(Reason::NotReady { late: (now.0 + LEAD).since(start.0) })
            }
            other => NotStarted::Error(other),
        }
    }
}

/// All resources that the pairs of threads need, opened and checked before the trial starts.
pub(super) struct Prepared<'a> {
    pub(super) plan: &'a TrialPlan,
    pub(super) progress: &'a Arc<Progress>,
    ids: Arc<Ids>,
    pub(super) pace: SendTiming,
    max_burst: Nanos,
    /// For each pair of threads, true if the sender has an exclusive CPU.
    owns_cpu: Vec<bool>,
    expectation: Expectation,
    template: QueryTemplate,
    receive_buffer: usize,
    pub(super) ports: Vec<Arc<Ports>>,
    /// AF_XDP rings, which the sender and receiver take over at the start of the trial; `None` if AF_XDP is not used.
    pub(super) rings: Option<XdpRings>,
    xdp: Option<XdpInterface>,
}

/// The sender thread and the receiver thread of a pair.
pub(super) type PairThreads = (JoinHandle<Sent>, JoinHandle<Received>);

/// State shared by all pairs of a trial while it runs.
#[derive(Clone, Copy)]
pub(super) struct TrialContext<'a> {
    /// Scheduled time of query 0.
    pub(super) start: Nanos,
    pub(super) recorder: Option<&'a Recorder>,
}

impl<'a> Prepared<'a> {
    /// Opens the source ports. If `plan` requests AF_XDP, also opens AF_XDP rings on the interface of the next hop.
    pub(super) fn new(
        plan: &'a TrialPlan,
        progress: &'a Arc<Progress>,
        next_hop: &NextHop,
    ) -> Result<Prepared<'a>, TrialError> {
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
        Ok(Prepared {
            plan,
            progress,
            ids,
            pace,
            max_burst,
            owns_cpu,
            expectation: plan.expectation(),
            template,
            receive_buffer,
            ports,
            rings,
            xdp,
        })
    }

    /// Returns the send settings of the trial, for its result. `priority` is the actual priority of the sender threads.
    pub(super) fn sending(&self, priority: Priority) -> Sending {
        Sending {
            threads: self.plan.threads,
            source_ports: self.plan.source_ports,
            // The number of used addresses is known only at the end of the trial.
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

    /// Starts the threads of all pairs.
    pub(super) fn spawn_threads(
        &mut self,
        start: Nanos,
        recorder: Option<&Recorder>,
    ) -> Result<Vec<PairThreads>, TrialError> {
        // A trial with rings has only one pair.
        let mut rings = self.rings.take();
        let mut pairs = Vec::new();
        for (number, ports) in self.ports.iter().enumerate() {
            let run = TrialContext { start, recorder };
            let (sender, receiver) = self.pair(number as u16, ports, rings.take(), run);
            let spawn = |name: &str| thread::Builder::new().name(format!("{name}-{number}"));
            let at = |source| TrialError::Thread { source };
            let receiving = spawn("receive").spawn(move || receiver.run()).map_err(at)?;
            let sending = spawn("send").spawn(move || sender.run()).map_err(at)?;
            pairs.push((sending, receiving));
        }
        Ok(pairs)
    }

    /// Creates the sender and the receiver of a pair.
    pub(super) fn pair(
        &self,
        number: u16,
        ports: &Arc<Ports>,
        rings: Option<XdpRings>,
        TrialContext { start, recorder }: TrialContext<'_>,
    ) -> (Sender, Receiver) {
        let plan = self.plan;
        // The ledger has slots for outstanding and remembered queries. A fifth of a second is added, because the
        // receiver may be late by that time.
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
            progress: Arc::clone(self.progress),
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
            progress: Arc::clone(self.progress),
        };
        (sender, receiver)
    }
}

/// Returns how many source ports the pair with the index `pair` has.
fn ports_of(pair: u16, plan: &TrialPlan) -> u16 {
    (plan.source_ports - pair).div_ceil(plan.threads)
}

/// Sockets of one source port. If the first socket is connected to the server, the second socket receives datagrams
/// from other senders. If the first socket is bound to all addresses, it receives from any sender, and there is no
/// second socket.
type SourcePort = (Endpoint, Option<Endpoint>);

/// Opens `count` consecutive source ports, because the AF_XDP filter redirects a range of ports.
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

/// Opens the source port `port`. If `port` is 0, opens any free port.
fn open_port(plan: &TrialPlan, port: u16) -> io::Result<SourcePort> {
    let (asking, unmatched) = match plan.source_addresses {
        None => {
            let (connected, unmatched) = Endpoint::client_pair(plan.server, port)?;
            (connected, Some(unmatched))
        }
        Some(_) => (Endpoint::client_on_any_address(plan.canonical_server(), port)?, None),
    };
    asking.use_kernel_timestamps()?;
    // Receive offload would join replies before they reach an XDP filter in generic mode.
    if plan.xdp.is_none() {
        asking.use_receive_offload();
    }
    Ok((asking, unmatched))
}
