//! A running AuthDNS with its UDP workers, its TCP server and its counters.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use method::reason::ZoneFacts;
use net::affinity::{pin_to, set_high_priority};
use net::clock;
use net::socket::{Endpoint, ListenError, listen_udp_and_tcp};
use net::xdp::XdpError;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use units::CpuId;

use super::answer::{AuthTransport, Zone};
use super::counters::{AuthCounters, BatchCounts, BatchTimes, WorkerCounters};
use super::host_drops::HostWatch;
use super::recent::RecentQueries;
use super::state_samples::SAMPLE_INTERVAL;
use crate::delay_line::{Delay, DelayLine};
use crate::port::Port;
use crate::tcp::{self, TcpServer};
use crate::xdp::{XdpConfig, XdpInterface};

/// Interval at which an idle worker checks for a stop request.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Configuration of AuthDNS: zone, addresses and CPUs.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// Addresses to serve over UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// The served zone.
    pub zone: Zone,
    /// Number of UDP worker threads per address; at least 1.
    pub threads: usize,
    /// CPUs for the workers, used round robin; if empty, the kernel selects the CPUs.
    pub cpus: Vec<CpuId>,
    /// Delay of each UDP reply.
    pub delay: Delay,
    /// Share of UDP replies that are withheld at random, from 0 to 1.
    pub loss: f64,
    /// Seed of the random decisions for `loss` and `delay`.
    pub seed: u64,
    /// Interface on which queries are also answered by AF_XDP, with a worker per queue. The interface must have all
    /// addresses of `listen`, and `delay` must be zero.
    pub xdp: Option<XdpConfig>,
}

/// Reasons why AuthDNS cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// AuthDNS cannot listen on an address.
    #[error("cannot serve {address} {source}")]
    Listen {
        /// The listen address.
        address: SocketAddr,
        /// Transport, and the error returned by the system.
        source: ListenError,
    },
    /// A delay is configured for a wildcard address. A delayed reply is sent after its batch of queries has been
    /// processed. The query's destination address is then no longer available as the reply's source.
    #[error("--delay needs addresses of this host to listen on, not the wildcard {address}")]
    WildcardDelay {
        /// The wildcard address.
        address: SocketAddr,
    },
    /// A delay is configured for AF_XDP. Delayed replies can only be sent through sockets.
    #[error("--delay and --xdp cannot be combined: delayed replies are sent through sockets")]
    XdpDelay,
    /// The interface does not support the requested AF_XDP mode.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The list of this host's network interfaces cannot be read.
    #[error("cannot find this host's interfaces: {0}")]
    Interfaces(io::Error),
    /// A worker cannot be started.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}

/// A running AuthDNS. Dropping this value stops the server.
pub struct RunningAuth {
    addresses: Vec<SocketAddr>,
    counters: Arc<Vec<WorkerCounters>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// One TCP server per address.
    tcp: Vec<TcpServer>,
    xdp: Option<XdpInterface>,
    /// Counter of the packets lost on this host. The lock is taken only to read the counters, never by a thread that
    /// answers queries.
    host: Arc<Mutex<HostWatch>>,
    /// Random number drawn when AuthDNS started ([`AuthCounters::start`]).
    start: u32,
    zone: ZoneFacts,
}

impl RunningAuth {
    /// Returns the served addresses with their actual ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the interface on which queries are also answered by AF_XDP; `None` if AF_XDP is not used.
    pub fn xdp(&self) -> Option<&XdpInterface> {
        self.xdp.as_ref()
    }

    /// Returns the counters so far, including the losses of this host.
    ///
    /// The losses are read from the kernel, so the calling thread must be in the same network namespace as the caller
    /// of [`start`].
    pub fn counters(&self) -> AuthCounters {
        self.reader()()
    }

    /// Returns a reader of the counters for another thread. The state of this host's queues and neighbours is sampled
    /// every 20 ms until both the reader and AuthDNS are dropped.
    ///
    /// # Errors
    /// Returns an error if the system does not start a thread.
    pub fn counter_reader(&self) -> io::Result<impl Fn() -> AuthCounters + Send + Sync + 'static> {
        let host = Arc::downgrade(&self.host);
        thread::Builder::new().name("host".into()).spawn(move || {
            while let Some(host) = host.upgrade() {
                host.lock().unwrap_or_else(PoisonError::into_inner).sample_state();
                drop(host);
                thread::sleep(SAMPLE_INTERVAL);
            }
        })?;
        Ok(self.reader())
    }

    fn reader(&self) -> impl Fn() -> AuthCounters + Send + Sync + 'static {
        let (counters, xdp) = (Arc::clone(&self.counters), self.xdp.clone());
        let (host, start, zone) = (Arc::clone(&self.host), self.start, self.zone.clone());
        move || {
            let (xdp, zones) = (xdp.clone(), vec![zone.clone()]);
            let received = || counters.iter().map(WorkerCounters::at_socket).sum();
            let host_drops = host.lock().unwrap_or_else(PoisonError::into_inner).sample(received);
            AuthCounters { start, zones, host_drops, xdp, ..AuthCounters::sum(&counters) }
        }
    }

    fn spawn(&mut self, worker: Worker) -> Result<(), AuthError> {
        let named = thread::Builder::new().name(format!("auth-{}", worker.number));
        self.threads.push(named.spawn(move || worker.run()).map_err(AuthError::Worker)?);
        Ok(())
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

/// Starts AuthDNS. By the time this function returns, AuthDNS answers queries.
///
/// # Errors
/// Returns an error if an address cannot be served, or if AF_XDP does not work on the interface.
pub fn start(config: &AuthConfig) -> Result<RunningAuth, AuthError> {
    if config.xdp.is_some() && !config.delay.is_none() {
        return Err(AuthError::XdpDelay);
    }
    let bound = config
        .listen
        .iter()
        .map(|&address| Bound::open(address, config))
        .collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<SocketAddr> = bound.iter().map(|bound| bound.address).collect();
    let (xdp, servers) = match &config.xdp {
        Some(wanted) => {
            let (xdp, servers) = XdpInterface::serve(wanted, &addresses)?;
            (Some(xdp), servers)
        }
        None => (None, Vec::new()),
    };
    let host = HostWatch::begin(&addresses, xdp.as_ref()).map_err(AuthError::Interfaces)?;
    let host = Arc::new(Mutex::new(host));
    let workers = bound.len() * config.threads + servers.len();
    // The last set of counters is for TCP.
    let counters: Arc<Vec<WorkerCounters>> =
        Arc::new((0..=workers).map(|_| WorkerCounters::default()).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let mut running = RunningAuth {
        addresses,
        counters,
        stop,
        threads: Vec::new(),
        tcp: Vec::new(),
        xdp,
        host,
        start: rand::random(),
        zone: ZoneFacts {
            domain: config.zone.domain().to_string(),
            aaaa_share: config.zone.aaaa_share(),
        },
    };
    let (zone, recent) = (Arc::new(config.zone.clone()), Arc::new(RecentQueries::new()));
    let mut ports: Vec<(Port, usize)> = Vec::new();
    for Bound { endpoints, listener, address } in bound {
        let counters = Arc::clone(&running.counters);
        let serving = serve_tcp(listener, Arc::clone(&zone), counters, workers);
        let error = |source| AuthError::Listen { address, source: ListenError::Tcp(source) };
        running.tcp.push(serving.map_err(error)?);
        let sockets = endpoints.into_iter().map(|endpoint| Port::socket(Arc::new(endpoint)));
        ports.extend(sockets.zip(0..));
    }
    if let Some(interface) = &running.xdp {
        ports.extend(Port::rings(servers, interface).zip(0..));
    }
    for (number, (port, n)) in ports.into_iter().enumerate() {
        running.spawn(Worker {
            port,
            zone: Arc::clone(&zone),
            counters: Arc::clone(&running.counters),
            recent: Arc::clone(&recent),
            number,
            stop: Arc::clone(&running.stop),
            cpu: config.cpus.get(n % config.cpus.len().max(1)).copied(),
            delay: config.delay,
            loss: config.loss,
            rng: StdRng::seed_from_u64(config.seed.wrapping_add(number as u64)),
        })?;
    }
    Ok(running)
}

/// The sockets that serve one address over UDP and TCP.
struct Bound {
    endpoints: Vec<Endpoint>,
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    fn open(address: SocketAddr, config: &AuthConfig) -> Result<Bound, AuthError> {
        if !config.delay.is_none() && address.ip().is_unspecified() {
            return Err(AuthError::WildcardDelay { address });
        }
        let at = |source| AuthError::Listen { address, source };
        let udp = |source| at(ListenError::Udp(source));
        let (endpoints, listener) = listen_udp_and_tcp(address, config.threads).map_err(at)?;
        for endpoint in &endpoints {
            endpoint.set_receive_timeout(STOP_CHECK).map_err(udp)?;
            endpoint.use_kernel_timestamps().map_err(udp)?;
        }
        let address = endpoints[0].local_address().map_err(udp)?;
        Ok(Bound { endpoints, listener, address })
    }
}

/// Starts answering over TCP. The replies are counted in `counters[number]`.
fn serve_tcp(
    listener: TcpListener,
    zone: Arc<Zone>,
    counters: Arc<Vec<WorkerCounters>>,
    number: usize,
) -> io::Result<TcpServer> {
    let answer = move |query: &[u8], out: &mut [u8]| {
        let mut counts = BatchCounts::default();
        let answered = zone.answer(query, AuthTransport::Tcp, out);
        counts.add(&answered);
        counters[number].publish(&counts, 0);
        answered.len
    };
    tcp::serve(listener, answer)
}

struct Worker {
    port: Port,
    zone: Arc<Zone>,
    counters: Arc<Vec<WorkerCounters>>,
    recent: Arc<RecentQueries>,
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
        // If AuthDNS shares a CPU with the Measurer or the DUT, AuthDNS's replies must not wait for the threads of
        // these programs.
        set_high_priority();
        let is_socket = self.port.endpoint().is_some();
        let line = self.port.endpoint().filter(|_| !self.delay.is_none()).map(DelayLine::new);
        let mut times = BatchTimes::default();
        let counters = Arc::clone(&self.counters);
        while !self.stop.load(Ordering::Relaxed) {
            let mut counts = BatchCounts::default();
            let turn = self.port.turn(STOP_CHECK, |query, source, out| {
                let answered = self.zone.answer(query.bytes, AuthTransport::Udp, out);
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
            // A receive error reports an ICMP message from a client that no longer listens, so it is ignored.
            let turn = turn.unwrap_or_default();
            counters[self.number].publish(&counts, turn.refused);
            if is_socket {
                counters[self.number].received.fetch_add(turn.received as u64, Ordering::Relaxed);
            }
            counters[self.number].publish_times(&mut times, clock::wall());
            counters[self.number].socket_drops.store(self.port.drops(), Ordering::Relaxed);
        }
    }
}
