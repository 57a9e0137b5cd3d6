//! The running test authoritative server. There is a thread for each UDP socket, for each TCP listener and for each
//! connection. One more thread sends delayed replies, so that a delay does not affect other replies.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use net::socket::{ListenError, listen_udp_and_tcp};

use super::answer::{Sending, answer};
use super::config::{AuthorityConfig, AuthorityError};
use super::log::Log;
use super::zones::Zones;
use crate::message::{Message, Name, rcode};

/// Maximum number of simultaneous connections. Further connections are closed.
const MAX_CONNECTIONS: usize = 1000;
/// Idle timeout of a connection (RFC 7766 §6.2.3), both for reading from the client and for writing to it.
const IDLE: Duration = Duration::from_secs(10);
/// Interval at which a UDP thread checks the stop flag.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// A running test authoritative server. Dropping this value stops the server.
pub struct Authority {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    udp: Vec<JoinHandle<()>>,
    tcp: Vec<JoinHandle<()>>,
}

/// State shared by all threads.
struct Shared {
    zones: Zones,
    log: Arc<Log>,
    later: DelayQueue,
    stop: AtomicBool,
}

/// Starts the test authoritative server. The server answers queries by the time this function returns.
///
/// # Errors
/// Returns an error if the server cannot listen on an address, the zone name is too long, or no keys can be generated.
pub fn start(config: &AuthorityConfig) -> Result<Authority, AuthorityError> {
    let shared = Shared {
        zones: Zones::new(&config.zone, config.ns)?,
        log: Arc::new(Log::new()),
        later: DelayQueue::start().map_err(AuthorityError::Thread)?,
        stop: AtomicBool::new(false),
    };
    let (addresses, udp, tcp) = (Vec::new(), Vec::new(), Vec::new());
    let mut far = Authority { addresses, shared: Arc::new(shared), udp, tcp };
    for &address in &config.listen {
        let failed = |source| AuthorityError::Listen { address, source };
        let (address, socket, listener) = bind(address).map_err(failed)?;
        let spawn = |name: &str| thread::Builder::new().name(format!("far-{name}"));
        let shared = Arc::clone(&far.shared);
        let serving = spawn("udp").spawn(move || serve_udp(&Arc::new(socket), &shared));
        far.udp.push(serving.map_err(AuthorityError::Thread)?);
        let shared = Arc::clone(&far.shared);
        let serving = spawn("tcp").spawn(move || serve_tcp(&listener, &shared));
        far.tcp.push(serving.map_err(AuthorityError::Thread)?);
        far.addresses.push(address);
    }
    Ok(far)
}

impl Authority {
    /// Returns the listen addresses with the actual ports, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the name, in lower case, of the zone in which labels define the behaviour of names.
    pub fn zone(&self) -> &Name {
        &self.shared.zones.zone
    }

    /// Returns the query log.
    pub fn log(&self) -> Arc<Log> {
        Arc::clone(&self.shared.log)
    }

    /// Returns the trust anchors as lines of a zone file, with a DNSKEY and a DS record for each signed zone.
    pub fn anchors(&self) -> Vec<String> {
        self.shared.zones.keys.anchors()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.udp.drain(..) {
            let _ = thread.join();
        }
        for (address, thread) in self.addresses.iter().zip(self.tcp.drain(..)) {
            // A listener checks the stop flag after each accepted connection.
            if TcpStream::connect_timeout(address, STOP_CHECK).is_ok() {
                let _ = thread.join();
            }
        }
    }
}

/// Binds the sockets. The UDP socket has a large receive buffer for bursts of queries.
fn bind(address: SocketAddr) -> Result<(SocketAddr, UdpSocket, TcpListener), ListenError> {
    let (endpoints, listener) = listen_udp_and_tcp(address, 1)?;
    let copy = endpoints[0].as_fd().try_clone_to_owned();
    let socket = UdpSocket::from(copy.map_err(ListenError::Udp)?);
    socket.set_read_timeout(Some(STOP_CHECK)).map_err(ListenError::Udp)?;
    Ok((listener.local_addr().map_err(ListenError::Tcp)?, socket, listener))
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Logs a received message and returns the messages to send. A message that is not a query gets no reply.
    fn respond(&self, octets: &[u8], tcp: bool, source: SocketAddr) -> Vec<Sending> {
        match Message::parse(octets) {
            Ok(query) if !query.flags.qr => {
                self.log.note(&query, tcp, source);
                or_servfail(&query, || answer(&self.zones, &query, tcp))
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the result of `answer` for the query. If `answer` panics, returns SERVFAIL, because the panic would end the
/// thread that answers all queries.
fn or_servfail(query: &Message, answer: impl FnOnce() -> Vec<Sending>) -> Vec<Sending> {
    // The zones do not change, so a panic leaves no inconsistent state.
    catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| {
        let octets = Message { rcode: rcode::SERVFAIL, ..query.response() }.octets();
        vec![Sending { after: Duration::ZERO, octets, other_port: false }]
    })
}

fn serve_udp(socket: &Arc<UdpSocket>, shared: &Shared) {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    while !shared.stops() {
        let Ok((len, source)) = socket.recv_from(&mut buffer) else { continue };
        for Sending { after, octets, other_port } in shared.respond(&buffer[..len], false, source) {
            let own = Arc::clone(socket);
            shared.later.run(after, move || {
                // The client may have closed its socket.
                let _ = if other_port {
                    other_port_socket(&own).and_then(|other| other.send_to(&octets, source))
                } else {
                    own.send_to(&octets, source)
                };
            });
        }
    }
}

/// Returns a new socket on the address of `socket`, with a different port.
fn other_port_socket(socket: &UdpSocket) -> io::Result<UdpSocket> {
    UdpSocket::bind((socket.local_addr()?.ip(), 0))
}

fn serve_tcp(listener: &TcpListener, shared: &Arc<Shared>) {
    // The reference count is the number of connections plus one, because each connection holds a reference.
    let open = Arc::new(());
    while !shared.stops() {
        let Ok((stream, source)) = listener.accept() else {
            // The most likely error is too many open files, which is temporary.
            thread::sleep(STOP_CHECK);
            continue;
        };
        if shared.stops() || Arc::strong_count(&open) > MAX_CONNECTIONS {
            continue;
        }
        let (shared, open) = (Arc::clone(shared), Arc::clone(&open));
        // If no thread can be started, the connection is closed.
        let _ = thread::Builder::new().name("far-connection".into()).spawn(move || {
            // An error needs no handling, because the connection ends in any case.
            let _ = serve_connection(stream, source, &shared);
            drop(open);
        });
    }
}

/// Answers queries as they arrive, without waiting for the replies to earlier ones (RFC 7766 §6.2.1.1).
fn serve_connection(stream: TcpStream, source: SocketAddr, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    stream.set_nodelay(true)?;
    let mut reading = stream.try_clone()?;
    let writing = Arc::new(Mutex::new(stream));
    let mut query = vec![0; usize::from(u16::MAX)];
    loop {
        let mut len = [0; 2];
        reading.read_exact(&mut len)?;
        let query = &mut query[..usize::from(u16::from_be_bytes(len))];
        reading.read_exact(query)?;
        if shared.stops() {
            return Ok(());
        }
        for Sending { after, octets, .. } in shared.respond(query, true, source) {
            let writing = Arc::clone(&writing);
            shared.later.run(after, move || {
                // The messages never exceed the maximum length, so the cast is safe.
                let framed = [&(octets.len() as u16).to_be_bytes(), octets.as_slice()].concat();
                let mut stream = writing.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = stream.write_all(&framed);
            });
        }
    }
}

/// Queue of delayed jobs, which run in a separate thread. The thread ends after the queue is dropped.
struct DelayQueue {
    queue: Sender<Job>,
}

struct Job {
    due: Instant,
    run: Run,
}

type Run = Box<dyn FnOnce() + Send>;

impl DelayQueue {
    fn start() -> io::Result<DelayQueue> {
        let (queue, jobs) = mpsc::channel();
        thread::Builder::new().name("far-later".into()).spawn(move || work(&jobs))?;
        Ok(DelayQueue { queue })
    }

    /// Runs the job after this delay, or at once if the delay is zero.
    fn run(&self, after: Duration, run: impl FnOnce() + Send + 'static) {
        if after.is_zero() {
            run();
        } else {
            let job = Job { due: Instant::now() + after, run: Box::new(run) };
            // Sending cannot fail, because the thread ends only after this sender is dropped.
            let _ = self.queue.send(job);
        }
    }
}

fn work(jobs: &Receiver<Job>) {
    // The number distinguishes the keys of jobs that are due at the same moment.
    let mut waiting: BTreeMap<(Instant, u64), Run> = BTreeMap::new();
    for number in 0_u64.. {
        let next = match waiting.first_entry() {
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(first) => {
                let (due, _) = *first.key();
                match due.saturating_duration_since(Instant::now()) {
                    Duration::ZERO => {
                        first.remove()();
                        continue;
                    }
                    left => jobs.recv_timeout(left),
                }
            }
        };
        match next {
            Ok(Job { due, run }) => {
                waiting.insert((due, number), run);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests;
