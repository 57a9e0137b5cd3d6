//! Hostile clients and upstreams, through sockets: other clients are still served.
//!
//! The tests of a shortage of file descriptors, of open resolvers and of reloaded files (`r4_`,
//! `r5_`, `r6_`) are in `operations`. The tests of large replies (`item_42_`) are in `safety`.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dns64::metrics::Count;
use domain::base::iana::{Rcode, Rtype};
use nix::sys::socket::{setsockopt, sockopt};

use crate::harness::*;

/// Checks that a name outside the attack is answered over UDP and TCP, and that there was no
/// internal error.
fn assert_well(server: &Server, name: &str) {
    for got in [ask(name, Rtype::A).of(server), ask(name, Rtype::A).over_tcp(server)] {
        assert_eq!((got.rcode(), got.answers().len()), (Rcode::NOERROR, 1), "{name}");
    }
    assert!(server.running.is_whole());
    assert_eq!(server.running.metrics().total(Count::Defect), 0);
}

/// The compression pointer in the target of an alias leads to octets that are rewritten before the
/// answer is cached: the TTL of the alias, or the header.
#[test]
fn r1_aliases_into_a_ttl_or_the_header_are_harmless() {
    let upstream = Upstream::new(|q| {
        let mut bytes = q.answer().without_edns().bytes();
        let record_at = bytes.len();
        let (target, additional) = match q.name.as_str() {
            "ttl.test" => (record_at + 7, 0),
            "arcount.test" => (11, 5),
            // The target of the first alias: its TTL is parsed as the root name.
            name if name.len() < 2 => return q.rcode(Rcode::NXDOMAIN).send(),
            _ => return q.answer().a(&q.name, 60, "192.0.2.1").send(),
        };
        bytes[7] = 1;
        bytes.extend([0xc0, 12, 0, 5, 0, 1, 0x7f, 0, 0, 0, 0, 2, 0xc0, target as u8]);
        for _ in 0..additional {
            bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 9]);
        }
        if additional > 0 {
            bytes[11] = additional + 1;
            bytes.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        }
        vec![Act::Send(bytes)]
    });
    let server = server(&[upstream.address], &format!("{PREFIX}[forwarding]\ntimeout = '300ms'\n"));
    for name in ["ttl.test", "arcount.test"] {
        for _ in 0..3 {
            let got = ask(name, Rtype::AAAA).of(&server);
            assert!(got.addresses().is_empty(), "{name}");
            ask(name, Rtype::AAAA).over_tcp(&server);
        }
    }
    assert_well(&server, "www.test");
}

/// A chain of 7 000 compression pointers, and thousands of names that start at the last pointer of
/// the chain.
#[test]
fn r2_chains_of_compression_pointers_are_malformed() {
    let upstream = Upstream::new(|q| {
        if q.name != "chains.test" {
            return q.answer().a(&q.name, 60, "192.0.2.1").send();
        }
        let mut bytes = q.answer().without_edns().bytes();
        if !q.tcp {
            bytes[2] |= 2;
            return vec![Act::Send(bytes)];
        }
        // A record of an unknown type that contains the chain, which starts with the root label.
        bytes.extend([0xc0, 12, 0xff, 0, 0, 1, 0, 0, 0, 60]);
        let mut chain = vec![0];
        let first = bytes.len() + 2;
        let mut last = first;
        while chain.len() < 14_000 {
            let at = first + chain.len();
            chain.extend((0xc000 | last as u16).to_be_bytes());
            last = at;
        }
        bytes.extend((chain.len() as u16).to_be_bytes());
        bytes.extend(chain);
        let mut records: u16 = 1;
        while bytes.len() < 65_000 {
            bytes.extend((0xc000 | last as u16).to_be_bytes());
            bytes.extend([0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 9]);
            records += 1;
        }
        bytes[6..8].copy_from_slice(&records.to_be_bytes());
        vec![Act::Send(bytes)]
    });
    let server = server(&[upstream.address], &format!("{PREFIX}[forwarding]\ntimeout = '500ms'\n"));
    let query = ask("chains.test", Rtype::A).edns(1232);
    for got in [query.of(&server), query.over_tcp(&server)] {
        assert_eq!((got.rcode(), got.edes()), (Rcode::SERVFAIL, vec![24]));
    }
    assert!(server.running.metrics().total(Count::UpstreamMalformed) > 0);
    assert_well(&server, "www.test");
}

/// An upstream that does not answer queries for names that contain "dead". Other answers need
/// little work, so that the upstream is faster than the attack.
pub(crate) struct HalfDead {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl HalfDead {
    pub(crate) fn new() -> HalfDead {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        // Queries that the upstream cannot read at once stay in the buffer. A query lost here would
        // not be the server's fault.
        let octets = 8 << 20;
        if setsockopt(&socket, sockopt::RcvBufForce, &octets).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &octets);
        }
        let (address, stop) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut bytes = [0; 1024];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
                if bytes[..len].windows(4).any(|part| part == b"dead") {
                    continue;
                }
                // The question without its OPT record, and an address.
                let mut reply = bytes[..len - 11].to_vec();
                reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
                let _ = socket.send_to(&reply, from);
            }
        });
        HalfDead { address, stop, thread: Some(thread) }
    }
}

impl Drop for HalfDead {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Number of queries in an attack.
const FLOOD: usize = 24_000;
/// Minimum and maximum number of names that another client queries during the attack.
const LIVING: usize = 1_000;
const MOST_LIVING: usize = 20_000;

/// Sends about 12 000 queries per second for unanswered names from `clients` clients. Asserts that
/// another client gets answers for other names meanwhile. Half of these names are in a zone with
/// the same parent as the unanswered names.
fn torture(limits: &str, clients: u8, dead: fn(usize) -> String) {
    let upstream = HalfDead::new();
    let server = server(&[upstream.address], &format!("{PREFIX}{limits}"));
    let address = server.address;
    let flood = thread::spawn(move || {
        let sockets: Vec<UdpSocket> = (0..clients)
            .map(|n| UdpSocket::bind((Ipv4Addr::new(127, 1, n, 7), 0)).unwrap())
            .collect();
        for n in 0..FLOOD {
            let query = ask(&dead(n), Rtype::A).bytes();
            sockets[n % sockets.len()].send_to(&query, address).unwrap();
            if n % 24 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
        }
    });
    let (mut asked, mut answered) = (0, 0);
    while asked < LIVING || !flood.is_finished() && asked < MOST_LIVING {
        let zone = if asked % 2 == 0 { "living.zone.test" } else { "elsewhere.test" };
        let got =
            ask(&format!("n{asked}.{zone}"), Rtype::A).from("127.0.0.9").try_of(address, SOON);
        answered += usize::from(
            got.is_some_and(|got| got.rcode() == Rcode::NOERROR && got.answers().len() == 1),
        );
        asked += 1;
    }
    flood.join().unwrap();
    let metrics = server.running.metrics();
    let [overload, share, branch] =
        [Count::Overload, Count::ClientShare, Count::FailingSubtree].map(|c| metrics.total(c));
    assert!(
        answered * 1_000 >= asked * 999,
        "{answered} of {asked}; denied: {overload}, {share}, {branch}"
    );
    assert!(share + branch > 0, "the attack had no effect");
    assert!(server.running.is_whole());
}

#[test]
fn r3_one_client_of_a_dead_zone_blocks_no_others() {
    torture("", 1, |n| format!("n{n}.dead.zone.test"));
}

#[test]
fn r3_200_clients_of_a_dead_zone_block_no_others() {
    torture("", 200, |n| format!("n{n}.dead.zone.test"));
}

/// Queries for a name that is already being resolved cause no further upstream query, but also take
/// places for waiting queries.
#[test]
fn r3_repeated_dead_names_block_no_others() {
    torture("[limits]\nin-flight = 1024\n", 1, |n| format!("n{}.dead.zone.test", n % 20));
}

/// Idle connections to the metrics listener use a limited number of descriptors.
#[test]
fn r4_idle_connections_to_the_metrics_are_bounded() {
    let upstream = Upstream::new(|q| q.answer().a(&q.name, 60, "192.0.2.1").send());
    let server =
        server(&[upstream.address], &format!("{PREFIX}[metrics]\nlisten = '127.0.0.1:0'\n"));
    let metrics = server.running.metrics_address().unwrap();
    let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(metrics).unwrap()).collect();
    let closed = |stream: &&TcpStream| {
        let mut stream: &TcpStream = stream;
        stream.set_nonblocking(true).unwrap();
        !matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    eventually("all but a few are closed", || idle.iter().filter(closed).count() >= 84);
    assert_well(&server, "www.test");
}
