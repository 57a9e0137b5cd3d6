//! AuthDNS running: workers on their sockets, TCP beside them, counters to read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use method::units::CpuId;
use net::affinity::{be_favoured, pin_to};
use net::batch::{ServerBatch, Wait};
use net::clock;
use net::socket::{Endpoint, ListenError, listen_both};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::answer::{MAX_REPLY, Transport, Zone};
use super::counters::{AuthCounters, BatchCounts, BatchTimes, WorkerCounters};
use super::recent::Recent;
use crate::delay_line::{Delay, DelayLine};
use crate::tcp;

/// The longest query that is read: larger than any that we send or answer with more than an error.
const QUERY_LEN: usize = 1500;
/// How often an idle worker looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// What AuthDNS serves, where, and on which CPUs.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// Addresses to serve, UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// The zone that it answers for.
    pub zone: Zone,
    /// Worker threads for UDP of each address; 1 or more.
    pub threads: usize,
    /// CPUs for the workers, round robin; none: the kernel decides.
    pub cpus: Vec<CpuId>,
    /// How long each UDP reply is held back.
    pub delay: Delay,
    /// Share of UDP replies that are withheld, 0 to 1, by a generator that begins with `seed`.
    pub loss: f64,
    /// Where `loss` and `delay` begin.
    pub seed: u64,
}

/// Why AuthDNS does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// An address cannot be used.
    #[error("cannot serve {address} {source}")]
    Listen {
        /// The address that it was to listen on.
        address: SocketAddr,
        /// Over which transport, and what the system says.
        source: ListenError,
    },
    /// Delayed replies are sent outside the batch that knows the query's destination.
    #[error("--delay needs addresses of this host to listen on, not the wildcard {address}")]
    WildcardDelay {
        /// The wildcard address that it was to listen on.
        address: SocketAddr,
    },
}

/// A running AuthDNS. Dropping it stops it.
pub struct RunningAuth {
    addresses: Vec<SocketAddr>,
    counters: Arc<Vec<WorkerCounters>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl RunningAuth {
    /// The addresses that it serves, ports filled in.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What was asked and answered so far.
    pub fn counters(&self) -> AuthCounters {
        AuthCounters::sum(&self.counters)
    }

    /// A reader of the counters for another thread.
    pub fn counter_reader(&self) -> impl Fn() -> AuthCounters + Send + Sync + 'static {
        let counters = Arc::clone(&self.counters);
        move || AuthCounters::sum(&counters)
    }
}

impl Drop for RunningAuth {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Starts AuthDNS; it serves when this returns.
///
/// # Errors
/// If an address cannot be served.
pub fn start(config: &AuthConfig) -> Result<RunningAuth, AuthError> {
    let workers = config.listen.len() * config.threads;
    // The last set of counters is that of the TCP side.
    let counters: Arc<Vec<WorkerCounters>> =
        Arc::new((0..=workers).map(|_| WorkerCounters::default()).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let mut running = RunningAuth { addresses: Vec::new(), counters, stop, threads: Vec::new() };
    let zone = Arc::new(config.zone.clone());
    let recent = Arc::new(Recent::new());
    for (group, &address) in config.listen.iter().enumerate() {
        if !config.delay.is_none() && address.ip().is_unspecified() {
            return Err(AuthError::WildcardDelay { address });
        }
        let at = |source| AuthError::Listen { address, source };
        let udp = |source| at(ListenError::Udp(source));
        let (endpoints, listener) = listen_both(address, config.threads).map_err(at)?;
        let bound = endpoints[0].local_address().map_err(udp)?;
        let (tcp_zone, tcp_counters) = (Arc::clone(&zone), Arc::clone(&running.counters));
        let answer = move |query: &[u8], out: &mut [u8]| {
            let mut counts = BatchCounts::default();
            let answered = tcp_zone.answer(query, Transport::Tcp, out);
            counts.add(&answered);
            tcp_counters[workers].publish(&counts, 0);
            answered.len
        };
        let serving = tcp::serve(listener, answer, Arc::clone(&running.stop));
        running.threads.push(serving.map_err(|source| at(ListenError::Tcp(source)))?);
        for (n, endpoint) in endpoints.into_iter().enumerate() {
            let number = group * config.threads + n;
            endpoint.set_receive_timeout(STOP_CHECK).map_err(udp)?;
            endpoint.use_kernel_timestamps().map_err(udp)?;
            let worker = Worker {
                endpoint: Arc::new(endpoint),
                zone: Arc::clone(&zone),
                counters: Arc::clone(&running.counters),
                recent: Arc::clone(&recent),
                number,
                stop: Arc::clone(&running.stop),
                cpu: config.cpus.get(n % config.cpus.len().max(1)).copied(),
                delay: config.delay,
                loss: config.loss,
                rng: StdRng::seed_from_u64(config.seed.wrapping_add(number as u64)),
            };
            let spawned =
                thread::Builder::new().name(format!("auth-{number}")).spawn(move || worker.run());
            running.threads.push(spawned.map_err(udp)?);
        }
        running.addresses.push(bound);
    }
    Ok(running)
}

struct Worker {
    endpoint: Arc<Endpoint>,
    zone: Arc<Zone>,
    counters: Arc<Vec<WorkerCounters>>,
    recent: Arc<Recent>,
    number: usize,
    stop: Arc<AtomicBool>,
    cpu: Option<CpuId>,
    delay: Delay,
    loss: f64,
    rng: StdRng,
}

impl Worker {
    fn run(mut self) {
        if let Some(cpu) = self.cpu
            && let Err(error) = pin_to(cpu)
        {
            tracing::warn!("cannot pin an AuthDNS worker to CPU {}: {error}", cpu.0);
        }
        // On a CPU that it shares with the Measurer neither is to keep the other waiting, and the
        // DUT is to wait for neither.
        be_favoured();
        let line = (!self.delay.is_none()).then(|| DelayLine::new(Arc::clone(&self.endpoint)));
        let mut times = BatchTimes::default();
        let mut batch = ServerBatch::new(QUERY_LEN, MAX_REPLY);
        let counters = Arc::clone(&self.counters);
        while !self.stop.load(Ordering::Relaxed) {
            let mut counts = BatchCounts::default();
            let turn = batch.turn(&self.endpoint, Wait::ForOne, |query, source, out| {
                let answered = self.zone.answer(query.bytes, Transport::Udp, out);
                let len = answered.len;
                counts.add(&answered);
                times.received.extend(query.received.filter(|_| len > 0));
                if let (Some(name), Some(received)) = (answered.name, query.received)
                    && let Some(age) = self.recent.note(name, answered.qtype, received)
                {
                    times.repeats.push((answered.qtype, age));
                }
                if len > 0 && self.loss > 0.0 && self.rng.random_bool(self.loss) {
                    counts.lost += 1;
                    return 0;
                }
                if let (1.., Some(line), Some(to)) = (len, &line, source.address()) {
                    line.send_at(clock::now() + self.delay.draw(&mut self.rng), to, &out[..len]);
                    return 0;
                }
                len
            });
            // A receive error is an ICMP error of a client that has gone; there is nothing to do
            // about it.
            let turn = turn.unwrap_or_default();
            counters[self.number].publish(&counts, turn.refused);
            counters[self.number].publish_times(&mut times, clock::wall());
            counters[self.number].socket_drops.store(self.endpoint.drops(), Ordering::Relaxed);
        }
    }
}
