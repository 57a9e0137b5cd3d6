//! dns64d over AF_XDP, on a virtual Ethernet with clients and upstreams at the other end.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dns64::config::Settings;
use dns64::metrics::Count;
use dns64::server::{Activated, RunningServer, bind};
use domain::base::iana::{Rcode, Rtype};
use net::socket::Endpoint;
use testbed::{Namespace, with_veth_pair};

use crate::harness::*;
use crate::operations::{hesitant, stops_for_the_next_one};

/// Upstreams get no queries for signatures.
const OFF: &str = "[dnssec]\nvalidate = false\n";

/// Address pairs for IPv6 and IPv4: the server's address, and the address of its clients.
const ENDS: [(&str, &str); 2] = [("2001:2::2", "2001:2::1"), ("198.18.0.2", "198.18.0.1")];

/// Runs a test on a virtual Ethernet. The server's addresses are at this end, and the clients'
/// addresses are at the far end.
fn on_our_ethernet(test: &str, queues: u32, run: impl FnOnce(Namespace) + Send) {
    let here = ENDS.map(|(server, _)| server).map(with_length);
    let there = ENDS.map(|(_, client)| client).map(with_length);
    let [here, there] = [&here, &there].map(|all| all.each_ref().map(String::as_str));
    with_veth_pair(test, queues, &here, &there, run);
}

fn with_length(address: &str) -> String {
    format!("{address}/{}", if address.contains(':') { 64 } else { 24 })
}

/// A server with these upstreams. It uses AF_XDP on the interface that has the address `address`.
fn server(mode: &str, threads: usize, address: &str, upstreams: &[SocketAddr]) -> Server {
    let upstreams: String = upstreams
        .iter()
        .map(|a| format!("[[upstream]]\naddress = '{}'\nport = {}\nxdp = true\n", a.ip(), a.port()))
        .collect();
    let listen = SocketAddr::new(address.parse().unwrap(), 53);
    let text = format!(
        "listen = [{{ address = '{listen}', xdp = true }}]\nxdp-mode = '{mode}'\nthreads = {threads}\n\
         [access]\nallow = ['::/0', '0.0.0.0/0']\nopen-resolver = true\n{PREFIX}{OFF}{upstreams}"
    );
    let settings = Settings::from_text(&text, Path::new("test.toml")).unwrap();
    let running = start(settings);
    Server { address: running.addresses()[0], running }
}

fn start(settings: Settings) -> RunningServer {
    bind(settings, Activated::default()).unwrap().start().unwrap()
}

/// An upstream in the namespace: no AAAA records, and an A record that differs by name.
fn upstream(far: &Namespace, address: &'static str) -> Upstream {
    let address = SocketAddr::new(address.parse().unwrap(), 0);
    far.run(move || {
        Upstream::at(address, |q| match q.qtype {
            Rtype::A => {
                let n: u8 = q.name.split('.').next().unwrap()[1..].parse().unwrap();
                let right = q.answer().a(&q.name, 300, &format!("192.0.2.{n}")).bytes();
                // A forged answer arrives first.
                let forged = q.answer().a(&q.name, 300, "192.0.2.255").bytes();
                vec![Act::SendFromElsewhere(forged), Act::Send(right)]
            }
            _ => q.nodata(300, 300).send(),
        })
    })
}

/// Number of UDP datagrams that the network stack of this thread's namespace has received, with or
/// without a socket, and number that it has sent.
fn through_the_stack() -> (u64, u64) {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let ipv4 = read("snmp");
    let mut ipv4 = ipv4.lines().filter(|line| line.starts_with("Udp:")).map(str::split_whitespace);
    let of_ipv4 = ipv4.next().unwrap().zip(ipv4.next().unwrap());
    let of_ipv4 = of_ipv4.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let ipv6 = read("snmp6");
    let of_ipv6 = ipv6.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("Udp6")?.split_once(char::is_whitespace)?;
        Some((name.to_owned(), value.trim().to_owned()))
    });
    let all: Vec<(String, String)> = of_ipv4.chain(of_ipv6).collect();
    let sum = |names: &[&str]| -> u64 {
        let found = all.iter().filter(|(name, _)| names.contains(&name.as_str()));
        found.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    };
    (sum(&["InDatagrams", "NoPorts"]), sum(&["OutDatagrams"]))
}

fn queries_of_clients(mode: &'static str, threads: usize, queues: u32) {
    on_our_ethernet("queries past the stack", queues, move |far| {
        for (own, others) in ENDS {
            let upstream = upstream(&far, others);
            let server = Arc::new(server(mode, threads, own, &[upstream.address]));
            let (before, asked) = (through_the_stack(), Arc::clone(&server));
            far.run(move || {
                for n in 0..200_u8 {
                    let question = ask(&format!("n{n}.test"), Rtype::AAAA).from(others);
                    assert_eq!(
                        question.of(&asked).addresses(),
                        [mapped(&format!("192.0.2.{n}"))],
                        "{n}"
                    );
                }
                // TCP still uses the stack, and the cache is shared.
                let question = ask("n7.test", Rtype::AAAA).from(others);
                assert_eq!(question.over_tcp(&asked).addresses(), [mapped("192.0.2.7")]);
            });
            let (came, went) = through_the_stack();
            let went = went - before.1;
            if threads == 1 || u64::from(queues) == threads as u64 {
                assert_eq!(came, before.0, "{mode}: datagrams came through the stack");
                // One upstream query per second uses the stack, so that the kernel keeps the next
                // hop's address.
                assert!((1..40).contains(&went), "{mode}: {went} of 400 questions went through it");
            }
            let metrics = server.running.metrics();
            // The kernel drops forged answers to the queries that went through the stack.
            let stray = metrics.total(Count::UpstreamStray);
            assert!(
                stray + went >= 200,
                "{mode}: {stray} forged answers, {went} through the stack"
            );
            let lost = [Count::RingsLostIn, Count::RingsLostOut];
            assert_eq!(lost.map(|what| metrics.total(what)), [0; 2], "{mode}");
            // If this host stalls, some upstream queries time out. If the path were broken, every
            // second query would time out.
            let timeouts = metrics.total(Count::UpstreamTimeout);
            assert!(timeouts < 40, "{mode}: {timeouts} of 400 questions");
        }
    });
}

#[test]
fn clients_are_answered_past_the_stack_in_the_driver() {
    queries_of_clients("copy", 1, 1);
}

#[test]
fn clients_are_answered_over_generic_xdp() {
    queries_of_clients("generic", 1, 1);
}

/// The device selects the queue of an answer, which often belongs to another worker.
#[test]
fn answers_on_any_queue_reach_the_right_worker() {
    queries_of_clients("copy", 2, 2);
}

/// A worker without an AF_XDP queue uses sockets.
#[test]
fn workers_without_a_queue_serve_as_ever() {
    queries_of_clients("copy", 2, 1);
}

/// RFC 5452 §9.2: source ports are assigned by the kernel, and datagrams to other ports of the same
/// address reach other programs.
#[test]
fn other_programs_on_the_interface_get_their_datagrams() {
    on_our_ethernet("other programs on the interface", 1, |far| {
        for (own, others) in ENDS {
            let own_ip: IpAddr = own.parse().unwrap();
            let upstream = upstream(&far, others);
            let server = Arc::new(server("copy", 1, own, &[upstream.address]));
            let other = UdpSocket::bind((own_ip, 0)).unwrap();
            let asked = Arc::clone(&server);
            let is_over = Arc::new(AtomicBool::new(false));
            let until = Arc::clone(&is_over);
            let asking = far.start(move || {
                let mut count = 0;
                while count < 200 || !until.load(Ordering::Relaxed) {
                    let question = ask(&format!("n{}.test", count % 200), Rtype::A).from(others);
                    assert_eq!(question.of(&asked).rcode(), Rcode::NOERROR);
                    count += 1;
                }
                count
            });
            let (sent, wait) = (200_000, || thread::sleep(Duration::from_millis(5)));
            let received = testbed::flood(&far, others.parse().unwrap(), other, sent, wait);
            assert_eq!(received, sent, "all datagrams to other programs");
            is_over.store(true, Ordering::Relaxed);
            let questions = asking.join().unwrap();
            assert!(questions >= 200, "{questions} questions");
            let mut octets = [0; 8];
            let ports: HashSet<u16> =
                upstream.queries().iter().map(|asked| asked.from.port()).collect();
            assert!(ports.len() > 30, "{} source ports", ports.len());
            // After the stop, the packet filter is removed and datagrams reach ordinary sockets
            // again.
            drop(Arc::into_inner(server));
            assert!(!has_program("near"));
            let again = UdpSocket::bind((own_ip, 53)).unwrap();
            again.set_read_timeout(Some(SOON)).unwrap();
            far.run(move || {
                let any = UdpSocket::bind((others.parse::<IpAddr>().unwrap(), 0)).unwrap();
                any.send_to(b"x", (own_ip, 53)).unwrap();
            });
            assert_eq!(again.recv(&mut octets).unwrap(), 1);
        }
    });
}

/// Queries that arrive during a stop wait in the socket for the next process, as they do without
/// AF_XDP.
#[test]
fn queries_during_a_stop_are_left_to_the_socket() {
    on_our_ethernet("stopping past the stack", 2, |far| {
        let (own, others) = ENDS[0];
        let upstream = hesitant();
        let socket = UdpSocket::bind((own, 0)).unwrap();
        let (address, next) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
        let text = format!(
            "listen = [{{ address = '{address}', xdp = true }}]\nxdp-mode = 'copy'\nthreads = 2\n\
             [access]\nallow = ['::/0']\nopen-resolver = true\n{PREFIX}{OFF}\
             [[upstream]]\naddress = '{}'\nport = {}\n",
            upstream.address.ip(),
            upstream.address.port()
        );
        let settings = Settings::from_text(&text, Path::new("test.toml")).unwrap();
        let activated = Activated { udp: vec![socket], tcp: Vec::new() };
        let running = bind(settings, activated).unwrap().start().unwrap();
        assert!(has_program("near"));
        let client = far.run(move || UdpSocket::bind((others, 0)).unwrap());
        stops_for_the_next_one(running, address, &upstream, &client, &next);
    });
}

/// A link-local `listen` address has an interface scope, which frames do not contain.
#[test]
fn clients_of_a_link_are_answered_past_the_stack() {
    on_our_ethernet("a link-local address", 1, |far| {
        testbed::ip("addr add fe80::53/64 dev near nodad");
        testbed::ip(&format!("-n {} addr add fe80::1/64 dev far nodad", far.name()));
        let upstream = upstream(&far, ENDS[0].1);
        let scoped = |address: &str, interface: &str| {
            let scope = nix::net::if_::if_nametoindex(interface).unwrap();
            SocketAddrV6::new(address.parse().unwrap(), 53, 0, scope)
        };
        let text = format!(
            "listen = [{{ address = '{}', xdp = true }}]\nthreads = 1\n\
             [access]\nallow = ['::/0']\nopen-resolver = true\n{PREFIX}{OFF}\
             [[upstream]]\naddress = '{}'\nport = {}\nxdp = true\n",
            scoped("fe80::53", "near"),
            upstream.address.ip(),
            upstream.address.port()
        );
        let running = start(Settings::from_text(&text, Path::new("test.toml")).unwrap());
        let (came, _) = through_the_stack();
        far.run(move || {
            let mut from = scoped("fe80::1", "far");
            from.set_port(0);
            let socket = UdpSocket::bind(from).unwrap();
            socket.set_read_timeout(Some(SOON)).unwrap();
            for n in 0..50_u8 {
                let question = ask(&format!("n{n}.test"), Rtype::AAAA);
                socket.send_to(&question.bytes(), scoped("fe80::53", "far")).unwrap();
                let mut octets = [0; 512];
                let (length, server) = socket.recv_from(&mut octets).unwrap();
                let reply = Got::new(&octets[..length]);
                assert_eq!(reply.addresses(), [mapped(&format!("192.0.2.{n}"))], "{server}");
            }
        });
        assert_eq!(through_the_stack().0, came, "queries came through the stack");
        drop(running);
    });
}

fn has_program(interface: &str) -> bool {
    let shown = Command::new("ip").args(["link", "show", interface]).output().unwrap();
    assert!(shown.status.success());
    String::from_utf8_lossy(&shown.stdout).contains("xdp")
}

/// True if this host reports a closed port at `closed` to a socket at `own`.
fn reports_closed_ports(own: &str, closed: SocketAddr) -> bool {
    let socket = UdpSocket::bind((own, 0)).unwrap();
    socket.connect(closed).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    socket.send(b"x").unwrap();
    let error = socket.recv(&mut [0; 1]).unwrap_err();
    error.kind() == std::io::ErrorKind::ConnectionRefused
}

/// ICMP errors are reported to the socket that reserves the source port.
#[test]
fn an_upstream_that_is_not_there_is_noticed_at_once() {
    on_our_ethernet("an upstream that is not there", 1, |far| {
        for (own, others) in ENDS {
            let closed = SocketAddr::new(others.parse().unwrap(), 9);
            if !reports_closed_ports(own, closed) {
                let why = format!("this kernel sends no ICMP port unreachable from {others}");
                testbed::note_skipped("an_upstream_that_is_not_there_is_noticed_at_once", &why);
                continue;
            }
            let server = Arc::new(server("copy", 1, own, &[closed]));
            let asked = Arc::clone(&server);
            far.run(move || {
                for n in 0..3 {
                    let question = ask(&format!("n{n}.test"), Rtype::A).from(others);
                    assert_eq!(question.of(&asked).rcode(), Rcode::SERVFAIL);
                }
            });
            let metrics = server.running.metrics();
            assert!(metrics.total(Count::UpstreamUnreachable) > 0);
            assert_eq!(metrics.total(Count::UpstreamTimeout), 0);
        }
    });
}

/// After a driver is reloaded, or a card is unplugged and plugged in again, the interface has the
/// same name. However, the kernel has removed the AF_XDP rings.
#[test]
fn upstreams_use_the_stack_without_the_interface() {
    on_our_ethernet("an interface that goes", 1, |far| {
        let (own, others) = ENDS[0];
        let upstream = upstream(&far, others);
        // The listen address is on another interface.
        let text = format!(
            "listen = ['127.0.0.1:0']\nthreads = 1\n{PREFIX}{OFF}\
             [[upstream]]\naddress = '{others}'\nport = {}\nxdp = true\n",
            upstream.address.port()
        );
        let running = start(Settings::from_text(&text, Path::new("test.toml")).unwrap());
        let server = Server { address: running.addresses()[0], running };
        let asked = Cell::new(0_u8);
        let next_rcode = || {
            let n = asked.replace(asked.get() + 1);
            ask(&format!("n{n}.test"), Rtype::A).of(&server).rcode()
        };
        // On a busy machine upstream queries time out before the kernel has resolved the next hop.
        let is_answered = || next_rcode() == Rcode::NOERROR;
        eventually("an answer over AF_XDP", is_answered);
        testbed::ip("link del near");
        let far = far.name();
        testbed::ip(&format!("link add near type veth peer name far netns {far}"));
        testbed::ip(&format!("addr add {own}/64 dev near nodad"));
        testbed::ip(&format!("-n {far} addr add {others}/64 dev far nodad"));
        testbed::ip("link set near up");
        testbed::ip(&format!("-n {far} link set far up"));
        eventually("an answer through the stack", is_answered);
        for _ in 0..20 {
            assert_eq!(next_rcode(), Rcode::NOERROR, "query {}", asked.get());
        }
        let lost = server.running.metrics().total(Count::RingsLostOut);
        assert!(lost < 10, "{lost} questions were lost");
    });
}

/// An attacker may join many forged answers in one datagram. Only the first answer counts as a
/// guess of the id.
#[test]
fn only_the_first_of_joined_answers_may_be_a_guess() {
    on_our_ethernet("joined answers", 1, |far| {
        let (own, others) = ENDS[0];
        let upstream = {
            let address = SocketAddr::new(others.parse().unwrap(), 0);
            far.run(move || {
                Upstream::at(address, |q| {
                    let forged = q.answer().a(&q.name, 300, "192.0.2.66").bytes();
                    let mut guess = forged.clone();
                    guess[1] ^= 1;
                    let right = q.answer().a(&q.name, 300, "192.0.2.1").bytes();
                    vec![Act::SendJoined([guess, forged]), Act::Send(right)]
                })
            })
        };
        let server = server("generic", 1, own, &[upstream.address]);
        let asked = Arc::new(server);
        let got = far.run(move || {
            let question = ask("n1.test", Rtype::A).from(others);
            question.of(&asked).answers()
        });
        assert!(got.iter().any(|line| line.contains("192.0.2.1")), "{got:?}");
    });
}

/// In generic mode, the filter receives joined datagrams of a sender on the same machine before the
/// kernel splits them.
#[test]
fn joined_queries_are_all_answered() {
    on_our_ethernet("joined queries", 1, |far| {
        let (own, others) = ENDS[0];
        let upstream = upstream(&far, others);
        let server = Arc::new(server("generic", 1, own, &[upstream.address]));
        let address = server.address;
        let got = far.run(move || {
            let (client, _strays) = Endpoint::client_pair(address, 0).unwrap();
            let mut queries = Vec::new();
            for n in 10..20_u16 {
                let mut question = ask(&format!("n{n}.test"), Rtype::AAAA);
                question.id = n;
                queries.extend(question.bytes());
            }
            client.send_segmented(&queries, (queries.len() / 10) as u16).unwrap();
            client.set_receive_timeout(SOON).unwrap();
            let mut got: Vec<(u16, Vec<Ipv6Addr>)> = Vec::new();
            let mut batch = net::batch::ReceiveBatch::new(65_535);
            while got.len() < 10 {
                assert!(batch.receive(&client, net::batch::Wait::ForFirst).unwrap() > 0, "{got:?}");
                for datagram in batch.iter() {
                    got.extend(datagram.segments().map(|bytes| {
                        let reply = Got::new(bytes);
                        (reply.message.header().id(), reply.addresses())
                    }));
                }
            }
            got.sort();
            got
        });
        let wanted = (10..20).map(|n| (n, vec![mapped(&format!("192.0.2.{n}"))]));
        assert_eq!(got, wanted.collect::<Vec<_>>());
    });
}

/// Joined datagrams that exceed a frame of a ring (1792 octets) are lost and counted.
#[test]
fn joined_queries_beyond_a_frame_are_counted_as_lost() {
    on_our_ethernet("long joined queries", 1, |far| {
        let (own, others) = ENDS[0];
        let upstream = upstream(&far, others);
        let server = Arc::new(server("generic", 1, own, &[upstream.address]));
        let address = server.address;
        let ask_joined = |names: std::ops::Range<u16>| {
            far.run(move || {
                let (client, _strays) = Endpoint::client_pair(address, 0).unwrap();
                let label = "x".repeat(60);
                let mut queries = Vec::new();
                for n in names.clone() {
                    queries.extend(ask(&format!("n{n}.{label}.test"), Rtype::AAAA).bytes());
                }
                let length = queries.len();
                client.send_segmented(&queries, (length / names.len()) as u16).unwrap();
                length
            })
        };
        let lost = || server.running.metrics().total(Count::RingsLostIn);
        // Names are counted instead of queries, because a query may be retransmitted.
        let asked = || {
            let queries = upstream.queries();
            queries.iter().map(|query| &query.name).collect::<HashSet<_>>().len()
        };
        // Joined datagrams that fit into a frame are not lost.
        assert!(ask_joined(10..20) < 1_700);
        eventually("ten names are queried", || asked() == 10);
        assert_eq!(lost(), 0);
        assert!(ask_joined(20..45) > 1_792);
        eventually("a loss is counted", || lost() == 1);
        assert_eq!(asked(), 10);
    });
}

#[test]
fn missing_support_is_reported() {
    let refused = |text: &str| {
        let text = format!("{text}[[upstream]]\naddress = '127.0.0.1'\nport = 9\n");
        match Settings::from_text(&text, Path::new("test.toml")) {
            Ok(settings) => bind(settings, Activated::default()).err().unwrap().to_string(),
            Err(error) => error.to_string(),
        }
    };
    let said = refused("listen = [{ address = '[::]:0', xdp = true }]\n");
    assert!(said.contains("test.toml") && said.contains("list each address"), "{said}");
    let said = refused("listen = [5]\n");
    assert!(said.contains("write for example \"[::1]:53\""), "{said}");
    let said = refused("listen = [{ address = '127.0.0.1:0', xpd = true }]\n");
    assert!(said.contains("write for example"), "{said}");
    let said =
        refused("listen = ['127.0.0.1:0']\n[[upstream]]\naddress = '127.0.0.2'\nxdp = true\n");
    assert!(
        said.contains(
            "the route to the upstream 127.0.0.2:53 uses lo, which is not an Ethernet interface"
        ),
        "{said}"
    );
}
