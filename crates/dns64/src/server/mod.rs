//! The server: workers for UDP, one thread for TCP, one for the encrypted transports, and the state that they share.
//!
//! ```text
//! Settings ─► bind ─► BoundServer ─► start ─► RunningServer ─► reload, stop
//!             sockets    (drop root, confine)     threads
//! ```

mod activated;
mod admission;
mod connection_thread;
mod control;
mod encrypted;
mod error;
mod explain;
mod frontend;
mod inbox;
mod jobs;
mod lateness;
mod network;
mod panics;
mod prefixes;
mod quota;
mod replies;
mod shared;
mod signatures;
mod streams;
mod tcp;
mod upstream_query;
mod validation;
mod worker;
mod xdp;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use net::address::ServiceAddr;
use net::affinity::pin_to;
use net::clock;
use net::router::RouterSocket;
use net::socket::{Endpoint, ListenError, listen_udp_and_tcp};
use tokio::sync::mpsc::unbounded_channel;
use units::CpuId;

use crate::client::cookies::Cookies;
use crate::client::limiter::Limiter;
use crate::config::Settings;
use crate::control::socket::ControlSocket;
use crate::guard::guard_thread;
use crate::ids::WorkerId;
use crate::metrics::Metrics;
use crate::observe::{OpenOutputs, Writers};
use crate::prefixes::LivePrefixes;
use crate::resolver::Common;
use crate::resolver::cache::Cache;
use crate::resolver::outside::ValidationTask;
use crate::resolver::question_claims::QuestionClaims;
use crate::transport::Transport;
use crate::transport::backlog::Backlogs;
pub use activated::Activated;
pub(crate) use control::ReloadRequest;
use encrypted::EncryptedSockets;
pub use error::ServerError;
use inbox::{Inbox, WorkerMessage};
use shared::{Loaded, Shared};
use tcp::Sockets;
use validation::ValidationThreads;
use worker::{Served, Worker};
pub use xdp::XdpSetupError;
pub(crate) use xdp::xdp_faults;

/// Size of the receive buffer of client sockets, in octets. The kernel doubles the size and counts
/// about 768 octets per query, so that the buffer has room for 20 000 queries. In a larger buffer,
/// a query could wait so long that its client has already retried.
const CLIENT_BUFFER: usize = 8 << 20;
/// Interval at which [`RunningServer::stop`] checks whether the connection threads have stopped accepting queries.
const CLOSING: Duration = Duration::from_millis(1);

/// A server that has opened its sockets, but has not started its threads. Privileges are dropped in
/// this state.
pub struct BoundServer {
    settings: Settings,
    /// Sockets of each worker, one per address.
    endpoints: Vec<Vec<Endpoint>>,
    /// True if all workers share the sockets that systemd passed.
    adopted: bool,
    /// Interfaces opened for AF_XDP.
    xdp: Vec<xdp::OpenInterface>,
    /// True if AF_XDP is configured but not available, and sockets are used instead.
    falls_back: bool,
    warnings: Vec<String>,
    listeners: Vec<TcpListener>,
    encrypted: EncryptedSockets,
    metrics_listener: Option<TcpListener>,
    control: Option<ControlSocket>,
    /// Handler of reload requests from the control socket.
    on_reload: Option<control::OnReload>,
    /// Opened outputs for the query log and dnstap.
    opened: OpenOutputs,
    /// One socket for router advertisements per configured interface.
    routers: Vec<RouterSocket>,
    addresses: Vec<SocketAddr>,
    metrics_address: Option<SocketAddr>,
}

/// Binds the addresses in the settings, or adopts the sockets that systemd passed.
///
/// # Errors
/// Returns an error if an address cannot be bound, or if no address is configured.
pub fn bind(settings: Settings, mut activated: Activated) -> Result<BoundServer, ServerError> {
    let threads = settings.config.threads;
    let file = settings.config.query_log.file().unwrap_or(Path::new("")).to_owned();
    let failed = |source| ServerError::QueryLog { file, source };
    let opened = OpenOutputs::new(&settings.config).map_err(failed)?;
    let mut bound = BoundServer {
        endpoints: (0..threads).map(|_| Vec::new()).collect(),
        adopted: false,
        xdp: Vec::new(),
        falls_back: false,
        warnings: Vec::new(),
        listeners: Vec::new(),
        encrypted: EncryptedSockets::default(),
        metrics_listener: None,
        control: None,
        on_reload: None,
        opened,
        routers: Vec::new(),
        addresses: Vec::new(),
        metrics_address: None,
        settings,
    };
    let is_activated = !activated.is_empty();
    bound.encrypted = EncryptedSockets::bind(&bound.settings, &mut activated)?;
    if is_activated {
        bound.adopt(activated)?;
    } else {
        let addresses: Vec<ServiceAddr> = bound.settings.config.addresses().collect();
        addresses.into_iter().try_for_each(|address| bound.listen(address))?;
    }
    if bound.addresses.is_empty() && bound.listeners.is_empty() && bound.encrypted.is_empty() {
        return Err(ServerError::NoAddress);
    }
    let endpoints = bound.endpoints.first().map_or(&[][..], Vec::as_slice);
    match xdp::open(&bound.settings, endpoints) {
        Ok(opened) => bound.xdp = opened,
        // The sockets replace AF_XDP. They are already bound to the same addresses and ports.
        Err(error) if error.leaves_sockets(&bound.settings.config) => {
            let error = ServerError::Xdp(error);
            bound.falls_back = true;
            bound.warnings.push(format!("{error}; sockets are used instead"));
        }
        Err(error) => return Err(error.into()),
    }
    for interface in bound.settings.config.discovery.interfaces.clone() {
        let failed = |source| ServerError::Advertisements { interface: interface.clone(), source };
        bound.routers.push(RouterSocket::open(&interface).map_err(failed)?);
    }
    if let Some(address) = bound.settings.config.metrics.listen {
        let at = |source| ServerError::ListenMetrics { address, source };
        let listener = address.resolve().and_then(net::socket::listen_tcp).map_err(at)?;
        listener.set_nonblocking(true).map_err(at)?;
        bound.metrics_address = listener.local_addr().ok();
        bound.metrics_listener = Some(listener);
    }
    // The control socket is created last, so that its file does not remain if another step fails.
    let control = &bound.settings.config.control;
    if let Some(path) = &control.socket {
        let failed = |source| ServerError::Control { path: path.clone(), source };
        let socket = ControlSocket::bind(path, control.group.as_deref()).map_err(failed)?;
        bound.control = Some(socket);
    }
    Ok(bound)
}

impl BoundServer {
    fn listen(&mut self, address: ServiceAddr) -> Result<(), ServerError> {
        let at = |source| ServerError::Listen { address, source };
        let udp = |source| at(ListenError::Udp(source));
        let tcp = |source| at(ListenError::Tcp(source));
        let here = address.resolve().map_err(udp)?;
        let (endpoints, listener) = listen_udp_and_tcp(here, self.endpoints.len()).map_err(at)?;
        for endpoint in &endpoints {
            endpoint.limit_buffers(CLIENT_BUFFER).map_err(udp)?;
        }
        listener.set_nonblocking(true).map_err(tcp)?;
        self.addresses.push(listener.local_addr().map_err(tcp)?);
        self.listeners.push(listener);
        self.hand_out(endpoints);
        Ok(())
    }

    fn adopt(&mut self, activated: Activated) -> Result<(), ServerError> {
        let failed =
            |source| ServerError::Start { what: "on the sockets that systemd passed", source };
        self.adopted = true;
        for socket in activated.udp {
            self.addresses.push(socket.local_addr().map_err(failed)?);
            let endpoints = Endpoint::adopt(socket, self.endpoints.len()).map_err(failed)?;
            self.hand_out(endpoints);
        }
        for listener in activated.tcp {
            listener.set_nonblocking(true).map_err(failed)?;
            self.listeners.push(listener);
        }
        Ok(())
    }

    fn hand_out(&mut self, endpoints: Vec<Endpoint>) {
        for (worker, endpoint) in self.endpoints.iter_mut().zip(endpoints) {
            worker.push(endpoint);
        }
    }

    /// Returns a sentence for each deviation of the server from its configuration.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Sets the handler of reload requests from the control socket. The handler runs on the TCP thread and must not
    /// block. Without a handler, reload requests are rejected.
    pub(crate) fn on_reload(&mut self, handler: impl Fn(ReloadRequest) + Send + 'static) {
        self.on_reload = Some(Box::new(handler));
    }

    /// Describes the AF_XDP traffic of each interface, one line per interface.
    pub fn xdp(&self) -> Vec<String> {
        self.xdp.iter().map(xdp::OpenInterface::in_words).collect()
    }

    /// Starts the threads. The server accepts queries when this function returns.
    ///
    /// # Errors
    /// Returns an error if the system cannot create a thread or its resources.
    pub fn start(self) -> Result<RunningServer, ServerError> {
        let failed = |what| move |source| ServerError::Start { what, source };
        let workers = self.endpoints.len();
        let (worker_inboxes, inboxes) = worker_inboxes(workers).map_err(failed("a worker"))?;
        let (tcp_questions, questions) = unbounded_channel();
        let cpus = self.settings.config.cpus.clone();
        let (metrics, started) = (Metrics::new(workers), clock::wall());
        let xdp = self.xdp();
        let (writers, observer) = Writers::start(&self.settings.config, self.opened, &metrics)
            .map_err(failed("the threads of the query log and dnstap"))?;
        let common = Common {
            cache: Arc::new(Cache::new(self.settings.config.cache.mebibytes)),
            question_claims: Arc::new(QuestionClaims::new(workers)),
            metrics,
        };
        let threads = if self.settings.validator.is_some() { workers } else { 0 };
        let (validation, queues) = ValidationThreads::new(threads, &common.metrics.validation);
        let shared = Arc::new(Shared {
            common,
            limiter: Limiter::new(),
            amplification: Limiter::new(),
            cookies: Cookies::new(),
            backlogs: Backlogs::default(),
            worker_inboxes,
            tcp_questions,
            validation,
            stopping: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            live: ArcSwap::from_pointee(LivePrefixes::default()),
            prefixes: ArcSwap::default(),
            signatures: ArcSwap::default(),
            interfaces: self.settings.config.discovery.interfaces.clone(),
            settings: ArcSwap::from_pointee(self.settings),
            started,
            loaded: Loaded::first(started),
        });
        let validated = Arc::downgrade(&shared);
        let deliver = move |task: ValidationTask, progress| {
            let Some(shared) = validated.upgrade() else { return false };
            let inbox = &shared.worker_inboxes[task.worker.0];
            inbox.post(WorkerMessage::Validation(task, progress));
            true
        };
        queues.start(deliver).map_err(failed("a validation thread"))?;
        let xdp_sources = (!self.falls_back).then(|| xdp::sources(&self.xdp));
        let mut running = RunningServer {
            shared: Arc::clone(&shared),
            xdp_sources,
            addresses: self.addresses.clone(),
            encrypted_addresses: self.encrypted.addresses().to_vec(),
            metrics_address: self.metrics_address,
            workers: Vec::new(),
            connection_threads: Vec::new(),
            writers: Writers::default(),
        };
        let rings = xdp::hand_out(self.xdp, workers);
        let served = self.endpoints.into_iter().zip(rings).enumerate();
        let served = served.map(|(number, (endpoints, rings))| Served {
            endpoints,
            counts_drops: number == 0 || !self.adopted,
            rings,
        });
        for (number, (served, inbox)) in served.zip(inboxes).enumerate() {
            let (id, shared, observer) = (WorkerId(number), Arc::clone(&shared), observer.clone());
            let worker = Worker::new(id, shared, served, inbox, observer);
            let worker = worker.map_err(failed("a worker"))?;
            let cpu = cpus.get(number % cpus.len().max(1)).copied();
            let thread = begin_worker(worker, number, cpu);
            running.workers.push(thread.map_err(failed("a worker"))?);
        }
        let sockets = Sockets {
            listeners: self.listeners,
            addresses: self.addresses,
            encrypted_addresses: self.encrypted.addresses().to_vec(),
            metrics: self.metrics_listener,
            control: self.control,
            on_reload: self.on_reload,
            routers: self.routers,
            xdp,
        };
        let of_tcp = Arc::clone(&shared);
        let tcp = ClosingThread::start("tcp", move |is_closed| {
            tcp::run(&of_tcp, sockets, questions, observer.as_ref(), is_closed)
        });
        running.connection_threads.push(tcp.map_err(failed("the TCP thread"))?);
        if !self.encrypted.is_empty() {
            let thread = ClosingThread::start("encrypted", move |is_closed| {
                encrypted::run(&shared, self.encrypted, is_closed)
            });
            running
                .connection_threads
                .push(thread.map_err(failed("the thread of the encrypted transports"))?);
        }
        // The writers are set last. If an earlier step failed with the writers set, dropping them
        // would wait for threads that still have senders.
        running.writers = writers;
        Ok(running)
    }
}

/// A thread for connections of clients.
struct ClosingThread {
    handle: JoinHandle<()>,
    /// True if the thread has stopped accepting queries.
    is_closed: Arc<AtomicBool>,
}

impl ClosingThread {
    fn start(
        name: &'static str,
        run: impl FnOnce(&AtomicBool) -> io::Result<()> + Send + 'static,
    ) -> io::Result<ClosingThread> {
        let is_closed = Arc::<AtomicBool>::default();
        let closed = Arc::clone(&is_closed);
        let handle = thread::Builder::new().name(name.into()).spawn(move || {
            guard_thread(|| {
                if let Err(error) = run(&closed) {
                    tracing::error!("thread {name} ended: {error}");
                }
            });
        })?;
        Ok(ClosingThread { handle, is_closed })
    }

    /// True if the thread accepts no more queries.
    fn is_closed(&self) -> bool {
        self.handle.is_finished() || self.is_closed.load(Ordering::Acquire)
    }
}

/// Starts a worker's thread. If `cpu` is given, the thread is pinned to this CPU.
fn begin_worker(worker: Worker, number: usize, cpu: Option<usize>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        if let Some(cpu) = cpu
            && let Err(error) = pin_to(CpuId(cpu))
        {
            tracing::warn!("cannot pin worker {number} to CPU {cpu}: {error}");
        }
        guard_thread(|| worker.run());
    })
}

/// Creates one inbox per worker. Returns two lists in the same order: the inboxes, and the channels from which the
/// workers receive the messages.
fn worker_inboxes(workers: usize) -> io::Result<(Vec<Inbox>, Vec<Receiver<WorkerMessage>>)> {
    let pairs: io::Result<Vec<_>> = std::iter::repeat_with(|| {
        let (sender, inbox) = channel();
        Ok((Inbox::new(sender)?, inbox))
    })
    .take(workers)
    .collect();
    Ok(pairs?.into_iter().unzip())
}

/// A running server. The server stops when this value is dropped.
pub struct RunningServer {
    shared: Arc<Shared>,
    /// Source addresses from which upstreams can be queried over AF_XDP, or `None` if this machine
    /// lacks AF_XDP.
    xdp_sources: Option<Vec<IpAddr>>,
    addresses: Vec<SocketAddr>,
    encrypted_addresses: Vec<(Transport, SocketAddr)>,
    metrics_address: Option<SocketAddr>,
    workers: Vec<JoinHandle<()>>,
    /// Threads for connections of clients: TCP, and the encrypted transports.
    connection_threads: Vec<ClosingThread>,
    writers: Writers,
}

impl RunningServer {
    /// Returns the listen addresses, with the actual ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the transports and addresses of the encrypted transports, with the actual ports.
    pub fn encrypted_addresses(&self) -> &[(Transport, SocketAddr)] {
        &self.encrypted_addresses
    }

    /// Returns the address and the actual port of the metrics listener, or `None` if there is no
    /// metrics listener.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Returns the settings in effect.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.shared.settings.load_full()
    }

    /// Returns the counters of all threads.
    pub fn metrics(&self) -> &Metrics {
        self.shared.metrics()
    }

    /// Returns the metrics in the Prometheus text format.
    pub fn metrics_text(&self) -> String {
        self.shared.metrics_text()
    }

    /// Replaces the configuration in one step, for all later queries. These settings keep their
    /// values until the next start: addresses, threads, CPUs, user, cache size, metrics listener,
    /// control socket, query log and dnstap. The file of the query log is reopened.
    ///
    /// # Errors
    /// Returns an error if the settings name an interface for router advertisements that was not configured at the
    /// start. The old settings then stay in effect.
    pub fn reload(&self, settings: &Settings) -> Result<(), ServerError> {
        let mut wanted = settings.config.discovery.interfaces.iter();
        if let Some(other) = wanted.find(|interface| !self.shared.interfaces.contains(interface)) {
            return Err(ServerError::TooLate(other.clone()));
        }
        self.shared.replace(settings);
        self.writers.reopen();
        Ok(())
    }

    /// True if the settings require AF_XDP for an upstream, and the interface to this upstream is
    /// not open for AF_XDP. A restart would open the interface.
    pub(crate) fn lacks_xdp(&self, settings: &Settings) -> bool {
        self.xdp_sources.as_ref().is_some_and(|sources| xdp::lacks(sources, settings))
    }

    /// True if all threads are running. A thread exits after too many panics. The panic hook of the process has
    /// reported each panic.
    pub fn is_whole(&self) -> bool {
        let others = self.connection_threads.iter().map(|thread| &thread.handle);
        !self.workers.iter().chain(others).any(JoinHandle::is_finished)
    }

    /// Stops accepting queries, and returns after all pending queries have been answered.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
        while !self.connection_threads.iter().all(ClosingThread::is_closed) {
            thread::sleep(CLOSING);
        }
        self.shared.stopping.store(true, Ordering::Relaxed);
        for inbox in &self.shared.worker_inboxes {
            inbox.alarm.ring();
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        self.shared.ended.store(true, Ordering::Relaxed);
        for thread in self.connection_threads.drain(..) {
            let _ = thread.handle.join();
        }
        // All threads that send data to the writers have ended.
        self.writers.end();
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.end();
    }
}
