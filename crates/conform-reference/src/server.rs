//! Sockets and threads of the reference server.
//!
//! Each query has a separate thread, so that a query may wait for the upstream while other queries are answered.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use conform::expected::Prefix;
use conform::message::Name;
use net::socket::listen_udp_and_tcp;

use crate::cache::Cache;
use crate::cookies::Cookies;
use crate::front::Front;
use crate::resolver::Resolver;
use crate::rules::{Hooks, Rules};
use crate::translate::Pref64;
use crate::upstream::{Upstream, read_framed, send_framed, unspecified};

/// Maximum number of queries that are answered at the same time.
const MOST_QUERIES: usize = 2048;
/// Stack size of a thread in octets. It is small, because there may be thousands of threads.
const STACK: usize = 256 << 10;
/// Timeout for reading from and writing to a TCP connection (RFC 7766 §6.2.3).
const IDLE: Duration = Duration::from_secs(10);
/// Maximum interval between two checks of the stop flag while no datagrams arrive.
const LOOK_UP: Duration = Duration::from_millis(500);

/// Configuration of the reference server.
#[derive(Clone, Debug)]
pub struct ReferenceConfig {
    /// Listen address for UDP and TCP; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Address of the upstream.
    pub upstream: SocketAddr,
    /// Test zone. Only a reference server that validates uses it ([`Rules::validates`]).
    pub zone: Name,
    /// Prefixes of synthesized addresses.
    pub prefixes: Vec<Prefix>,
    /// Rules that the reference server follows.
    pub rules: Rules,
    /// Changes that a mutant makes to messages.
    pub hooks: Hooks,
}

/// Running reference server. Dropping this value stops the server.
#[derive(Debug)]
pub struct Reference {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Reference {
    /// Returns the listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // One thread waits for a datagram, and the other for a connection. A datagram and a connection therefore wake
        // both threads. If the datagram is lost, the read times out.
        let address = reachable(self.address);
        let any = SocketAddr::new(unspecified(address), 0);
        let _ = UdpSocket::bind(any).and_then(|socket| socket.send_to(&[], address));
        if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
            for thread in self.threads.drain(..) {
                // An error is ignored, because the thread has printed its panic.
                let _ = thread.join();
            }
        }
    }
}

/// Returns the address by which a server with this listen address can be reached on the same host.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Starts the reference server. The server answers queries as soon as this function returns.
///
/// # Errors
/// Returns an error if the reference server cannot listen on the address, or cannot start a thread.
pub fn start(config: ReferenceConfig) -> io::Result<Reference> {
    let ReferenceConfig { listen, upstream, zone, prefixes, rules, hooks } = config;
    let (udp, tcp) = sockets(listen)?;
    let connections = Slots::new(rules.connections);
    let resolver = Resolver {
        zone,
        prefixes: prefixes.into_iter().map(Pref64::from_prefix).collect(),
        cache: Cache::new(rules.clone()),
        upstream: Upstream::new(upstream, rules.clone(), hooks),
        rules,
    };
    let server = Arc::new(Server {
        front: Front {
            resolver,
            hooks,
            cookies: Cookies::default(),
            is_dead: AtomicBool::default(),
        },
        ends: Arc::default(),
        queries: Slots::new(MOST_QUERIES),
        connections,
    });
    let address = tcp.local_addr()?;
    udp.set_read_timeout(Some(LOOK_UP))?;
    let udp = Arc::new(udp);
    let (arrived, waiting) = channel();
    let ends = server.ends.clone();
    let threads = vec![
        on_thread({
            let (udp, ends) = (udp.clone(), ends.clone());
            move || receive(&udp, &arrived, &ends)
        })?,
        on_thread({
            let server = server.clone();
            move || server.hand_out(&udp, &waiting)
        })?,
        on_thread(move || server.accept(&tcp))?,
    ];
    Ok(Reference { address, ends, threads })
}

/// Opens the sockets. The UDP socket has a large receive buffer for bursts of queries.
fn sockets(listen: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let (endpoints, tcp) = listen_udp_and_tcp(listen, 1)?;
    Ok((endpoints[0].as_fd().try_clone_to_owned()?.into(), tcp))
}

fn on_thread(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("reference".into()).stack_size(STACK).spawn(work)
}

type Arrival = (Vec<u8>, SocketAddr);

/// Receives datagrams and does nothing else, so that the socket's buffer does not overflow.
fn receive(udp: &UdpSocket, arrived: &Sender<Arrival>, ends: &AtomicBool) {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    while !ends.load(Ordering::Relaxed) {
        let Ok((len, client)) = udp.recv_from(&mut buffer) else { continue };
        if arrived.send((buffer[..len].to_vec(), client)).is_err() {
            break;
        }
    }
}

struct Server {
    front: Front,
    ends: Arc<AtomicBool>,
    queries: Arc<Slots>,
    connections: Arc<Slots>,
}

impl Server {
    /// Answers each received datagram on a new thread. Returns after the thread that receives the datagrams
    /// ([`receive`]) has ended.
    fn hand_out(self: &Arc<Self>, udp: &Arc<UdpSocket>, waiting: &Receiver<Arrival>) {
        while let Ok((query, client)) = waiting.recv() {
            let udp = udp.clone();
            self.answer(query, client.ip(), false, move |reply| {
                // The client may have closed its socket.
                let _ = udp.send_to(&reply, client);
            });
        }
    }

    /// Answers a query on a new thread. Waits if the maximum number of threads is reached.
    fn answer(
        self: &Arc<Self>,
        query: Vec<u8>,
        client: IpAddr,
        tcp: bool,
        send: impl FnOnce(Vec<u8>) + Send + 'static,
    ) {
        let slot = self.queries.take();
        let server = self.clone();
        // If no thread can be started, the query gets no reply, like a datagram that is lost on the network.
        let _ = on_thread(move || {
            let _slot = slot;
            if let Some(reply) = server.front.respond(query, client, tcp) {
                send(reply);
            }
        });
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while !self.ends.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept() else { continue };
            let slot = self.connections.take();
            let server = self.clone();
            let _ = on_thread(move || {
                let _slot = slot;
                // An error only ends the connection.
                let _ = server.serve(stream);
            });
        }
    }

    /// Answers the queries of a TCP connection, in the order in which the answers become available (RFC 7766 §6.2.1.1).
    fn serve(self: &Arc<Self>, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IDLE))?;
        stream.set_write_timeout(Some(IDLE))?;
        let client = stream.peer_addr()?.ip();
        let writer = Arc::new(Mutex::new(stream.try_clone()?));
        while !self.ends.load(Ordering::Relaxed) {
            let query = match self.front.resolver.rules.joins_segments {
                true => read_framed(&mut stream)?,
                false => read_segment(&mut stream)?,
            };
            let writer = writer.clone();
            self.answer(query, client, true, move |reply| {
                let mut stream = writer.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = send_framed(&mut stream, &reply);
            });
        }
        Ok(())
    }
}

/// Reads a message in a single read. Fails if the message arrives in several segments. Only a mutant of the reference
/// server uses this function.
fn read_segment(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut segment = vec![0; usize::from(u16::MAX)];
    let len = stream.read(&mut segment)?;
    let [high, low, message @ ..] = &segment[..len] else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let wanted = usize::from(u16::from_be_bytes([*high, *low]));
    message.get(..wanted).map(<[u8]>::to_vec).ok_or(io::ErrorKind::UnexpectedEof.into())
}

/// Number of threads that may still be started, for queries or for connections.
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// Permission to start a thread. Dropping this value returns the permission, so that another thread may be started in
/// place of this one.
struct Slot(Arc<Slots>);

impl Slots {
    fn new(count: usize) -> Arc<Slots> {
        Arc::new(Slots { free: Mutex::new(count), freed: Condvar::new() })
    }

    /// Waits until a thread may be started, and returns the permission.
    fn take(self: &Arc<Self>) -> Slot {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free =
            self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests;
