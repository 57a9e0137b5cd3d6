//! During an attack from many networks, other clients are served over UDP and TCP. All addresses of
//! 127.0.0.0/8 are on the loopback interface, so no privileges are needed.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use dns64::metrics::Count;
use domain::base::iana::{Rcode, Rtype};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

use crate::harness::*;
use crate::robustness::HalfDead;

/// Maximum number of TCP connections, all used by hostile clients.
const PLACES: u32 = 200;
/// Number of connections of other clients.
const NEWCOMERS: u8 = 100;

/// Uses all TCP connections from `networks` networks (/24), then connects from another network. If
/// `busy`, each hostile connection has an unanswered query.
fn newcomers_are_served(networks: u32, busy: bool) {
    let upstream = HalfDead::new();
    let limits = format!("[limits]\ntcp-connections = {PLACES}\ntcp-idle = '1h'\n");
    let server = server(&[upstream.address], &format!("{PREFIX}{limits}"));
    let hostile: Vec<TcpStream> = (0..PLACES)
        .map(|n| {
            let network = 0x7f10_0001 | (n % networks) << 8;
            let mut stream = connect(Ipv4Addr::from_bits(network).into(), server.address);
            let name = format!("n{n}.{}.test", if busy { "dead" } else { "living" });
            write_tcp(&mut stream, &ask(&name, Rtype::A).bytes());
            stream
        })
        .collect();
    let newcomers: Vec<TcpStream> = (0..NEWCOMERS)
        .map(|n| {
            let mut stream = connect(Ipv4Addr::new(127, 200, n, 9).into(), server.address);
            stream.set_read_timeout(Some(SOON)).unwrap();
            write_tcp(&mut stream, &ask(&format!("new{n}.living.test"), Rtype::A).bytes());
            let got = read_tcp(&mut stream).unwrap_or_else(|| panic!("newcomer {n} is closed"));
            assert_eq!(Got::new(&got).rcode(), Rcode::NOERROR, "newcomer {n}");
            stream
        })
        .collect();
    let metrics = server.running.metrics();
    eventually("each has displaced a hostile one", || {
        metrics.total(Count::TcpDisplaced) == u64::from(NEWCOMERS)
    });
    assert_eq!(metrics.total(Count::TcpRefusedLimit), 0);
    drop((hostile, newcomers));
}

#[test]
fn item_50_newcomers_displace_idle_tcp_of_20_networks() {
    newcomers_are_served(20, false);
}

#[test]
fn item_50_newcomers_displace_idle_tcp_of_200_networks() {
    newcomers_are_served(200, false);
}

#[test]
fn item_50_newcomers_displace_busy_tcp_connections() {
    newcomers_are_served(20, true);
}

/// Number of queries in an attack.
const FLOOD: u32 = 24_000;
/// Minimum number of names that another client queries during the attack.
const LIVING: usize = 500;

/// Sends queries from addresses of 127.0.0.0/8 chosen by `source`, each for a dead name in a
/// separate top-level domain.
fn flood(server: SocketAddr, source: fn(u32) -> u32) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let SocketAddr::V4(to) = server else { panic!("{server}") };
    let to = SockaddrStorage::from(to);
    for n in 0..FLOOD {
        let address = Ipv4Addr::from_bits(source(rand::random()));
        let s_addr = u32::from_ne_bytes(address.octets());
        let from = libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr { s_addr },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        let query = ask(&format!("n{n}.dead{n}"), Rtype::A).bytes();
        let (parts, how) = ([IoSlice::new(&query)], [ControlMessage::Ipv4PacketInfo(&from)]);
        sendmsg(socket.as_raw_fd(), &parts, &how, MsgFlags::empty(), Some(&to)).unwrap();
        if n % 24 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Asserts that a client is served while an attack uses up the places for fetches and waiting
/// queries.
fn others_are_served(source: fn(u32) -> u32) {
    let upstream = HalfDead::new();
    let limits = format!("{PREFIX}[limits]\nin-flight = 1024\n");
    let server = server(&[upstream.address], &limits);
    let address = server.address;
    let attack = thread::spawn(move || flood(address, source));
    let (mut asked, mut answered) = (0, 0);
    while asked < LIVING || !attack.is_finished() {
        let query = ask(&format!("n{asked}.living.test"), Rtype::A).from("127.200.0.9");
        let got = query.try_of(address, SOON);
        answered += usize::from(got.is_some_and(|got| got.rcode() == Rcode::NOERROR));
        asked += 1;
    }
    attack.join().unwrap();
    let metrics = server.running.metrics();
    let [overload, share] = [Count::Overload, Count::ClientShare].map(|c| metrics.total(c));
    let counts = format!("{answered} of {asked}; denied: {overload}, {share}");
    assert!(answered * 100 >= asked * 99, "{counts}");
    assert!(share > 0, "no query of the attack was denied: {counts}");
}

#[test]
fn item_50_attack_from_2000_addresses_is_bounded() {
    others_are_served(|n| 0x7f10_0000 | (n % 2_000));
}

#[test]
fn item_50_attack_from_65536_addresses_is_bounded() {
    others_are_served(|n| 0x7f10_0000 | n >> 16);
}

#[test]
fn item_50_attack_from_a_million_addresses_is_bounded() {
    others_are_served(|n| 0x7f10_0000 | n >> 12);
}
