//! AF_XDP on a pair of virtual interfaces in a network namespace of the test.

use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::super::*;
use super::*;
use crate::batch::BATCH;
use crate::neighbour::NextHop;
use testbed::{LAST_RESORT, Namespace, ip, with_veth_pair};

const OURS: &str = "198.18.0.2:53";
const THEIRS: &str = "198.18.0.1:0";

/// Runs a test in a namespace with an interface `near`, which has the server's addresses and is connected to the
/// client's interface.
fn on_a_pair(test: &str, run: impl FnOnce(Namespace) + Send) {
    let here = ["198.18.0.2/24", "2001:2::2/64"];
    with_veth_pair(test, 1, &here, &["198.18.0.1/24", "2001:2::1/64"], run);
}

fn claims() -> Vec<Claim> {
    ["198.18.0.2", "2001:2::2"]
        .map(|address| Claim::to_address(address.parse().unwrap(), 53..=53))
        .into()
}

/// Answers `count` queries by echoing them with one octet changed.
fn answer(servers: &mut [Server], count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut seen, give_up) = (Vec::new(), Instant::now() + LAST_RESORT);
    while seen.len() < count && Instant::now() < give_up {
        for server in &mut *servers {
            let turn = server.turn(Duration::from_millis(5), |query, source, out| {
                let age = crate::clock::wall().since(query.received.unwrap());
                assert!(age < LAST_RESORT.into(), "received {age:?} ago");
                seen.push((source.address().unwrap(), query.bytes.to_vec()));
                out[..query.bytes.len()].copy_from_slice(query.bytes);
                out[0] = b'R';
                query.bytes.len()
            });
            assert_eq!(turn.unwrap().refused, 0);
        }
    }
    seen
}

/// Returns the total number of packets that the servers have lost.
fn drops(servers: &[Server]) -> u64 {
    servers.iter().map(|server| server.drops().unwrap()).sum()
}

/// Sends datagrams to a server and returns the reply to each; `None` if there is none.
fn ask(from: &str, to: &str, payloads: &[&'static [u8]]) -> Vec<Option<Vec<u8>>> {
    let socket = UdpSocket::bind(from).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    payloads
        .iter()
        .map(|payload| {
            socket.send(payload).unwrap();
            let mut reply = [0; 2000];
            socket.recv(&mut reply).ok().map(|n| reply[..n].to_vec())
        })
        .collect()
}

fn queries_are_answered(test: &str, mode: Mode, attach_mode: AttachMode) {
    on_a_pair(test, |client| {
        let interface = Interface::open("near", &claims(), mode).unwrap();
        assert_eq!(interface.attach_mode(), attach_mode);
        let mut servers = interface.into_servers();
        for (from, to) in [(THEIRS, OURS), ("[2001:2::1]:0", "[2001:2::2]:53")] {
            let (from, to) = (from.to_owned(), to.to_owned());
            let asking = client.start(move || ask(&from, &to, &[b"one", b"two", b"a third query"]));
            let seen = answer(&mut servers, 3);
            assert_eq!(seen.len(), 3, "{seen:?}");
            let replies = asking.join().unwrap();
            let wanted = [&b"Rne"[..], b"Rwo", b"R third query"];
            assert_eq!(replies, wanted.map(|reply| Some(reply.to_vec())));
        }
        assert_eq!(drops(&servers), 0);
    });
}

#[test]
fn xdp_server_answers_in_driver_mode() {
    queries_are_answered("xdp-native", Mode::Auto, AttachMode::Copy);
}

#[test]
fn xdp_server_answers_in_generic_mode() {
    queries_are_answered("xdp-generic", Mode::Generic, AttachMode::Generic);
}

/// While AF_XDP is in use, ordinary sockets receive all packets that match no claim. Afterwards, they receive all
/// packets, even if nothing is cleaned up explicitly.
#[test]
fn others_lose_nothing_to_the_filter() {
    on_a_pair("xdp-others", |client| {
        let other = UdpSocket::bind("198.18.0.2:5300").unwrap();
        let same = UdpSocket::bind(OURS).unwrap();
        same.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut servers = Interface::open("near", &claims(), Mode::Auto).unwrap().into_servers();
        let is_over = Arc::new(AtomicBool::new(false));
        let asking = load(&client, &is_over);
        let (sent, mut answered) = (200_000, 0);
        let from = "198.18.0.1".parse().unwrap();
        let received = testbed::flood(&client, from, other, sent, || {
            for server in &mut servers {
                let turn = server.turn(Duration::from_millis(1), |query, _, out| {
                    out[..query.bytes.len()].copy_from_slice(query.bytes);
                    query.bytes.len()
                });
                answered += turn.unwrap().sent;
            }
        });
        assert_eq!(received, sent, "all of what is not ours");
        is_over.store(true, Ordering::Relaxed);
        let asked = asking.join().unwrap();
        assert!(answered > 10_000 && asked >= answered, "{answered} of {asked} were answered");
        assert_eq!(drops(&servers), 0);
        let mut buffer = [0; 100];
        assert!(same.recv(&mut buffer).is_err(), "what is ours does not come twice");

        drop(servers);
        client.run(|| UdpSocket::bind(THEIRS).unwrap().send_to(b"for the socket", OURS).unwrap());
        assert_eq!(same.recv(&mut buffer).unwrap(), b"for the socket".len());
    });
}

/// Sends queries to the claimed port, a few at a time, until `is_over` is set; returns their number.
fn load(client: &Namespace, is_over: &Arc<AtomicBool>) -> thread::JoinHandle<usize> {
    let is_over = Arc::clone(is_over);
    client.start(move || {
        let socket = UdpSocket::bind(THEIRS).unwrap();
        socket.connect(OURS).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (mut asked, mut reply) = (0, [0; 100]);
        while !is_over.load(Ordering::Relaxed) {
            for _ in 0..32 {
                socket.send(b"for us").unwrap();
            }
            asked += 32;
            // The timeout for lost packets is short.
            (0..32).take_while(|_| socket.recv(&mut reply).is_ok()).for_each(drop);
        }
        asked
    })
}

/// A reply to a broadcast would come from the broadcast address.
#[test]
fn broadcasts_on_the_link_are_left_to_the_stack() {
    on_a_pair("xdp-broadcast", |client| {
        let socket = UdpSocket::bind(OURS).unwrap();
        socket.set_read_timeout(Some(LAST_RESORT)).unwrap();
        for mode in [Mode::Copy, Mode::Generic] {
            let mut servers = Interface::open("near", &claims(), mode).unwrap().into_servers();
            let entry = "198.18.0.2 lladdr ff:ff:ff:ff:ff:ff dev far nud permanent";
            ip(&format!("-n {} neigh replace {entry}", client.name()));
            client.run(|| UdpSocket::bind(THEIRS).unwrap().send_to(b"to all", OURS).unwrap());
            let mut buffer = [0; 100];
            assert_eq!(socket.recv(&mut buffer).unwrap(), b"to all".len());
            ip(&format!("-n {} neigh del 198.18.0.2 dev far", client.name()));
            client.run(|| UdpSocket::bind(THEIRS).unwrap().send_to(b"to us", OURS).unwrap());
            let seen = answer(&mut servers, 1);
            assert_eq!(seen[0].1, b"to us");
        }
    });
}

/// Echoes the datagrams sent to `address` in the namespace, with one octet changed, until an empty datagram arrives.
fn echo(namespace: &Namespace, address: &str) -> thread::JoinHandle<()> {
    let address = address.to_owned();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let echoing = namespace.start(move || {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(LAST_RESORT)).unwrap();
        ready.send(()).unwrap();
        let mut bytes = [0; 2000];
        while let Ok((n @ 1.., from)) = socket.recv_from(&mut bytes) {
            bytes[0] = b'R';
            socket.send_to(&bytes[..n], from).unwrap();
        }
    });
    is_ready.recv().unwrap();
    echoing
}

/// Returns the replies to a client, each with its destination, in sorted order.
fn received(receiver: &mut Receiver, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut seen, give_up) = (Vec::new(), Instant::now() + LAST_RESORT);
    while seen.len() < count && Instant::now() < give_up {
        let queues = receiver.sockets().len();
        for queue in 0..queues {
            let each = |arrived: &Arrived<'_>| {
                let age = crate::clock::now().since(arrived.received);
                assert!(age < LAST_RESORT.into(), "received {age:?} ago");
                seen.push((arrived.destination, arrived.bytes.to_vec()));
            };
            receiver.receive(queue, BATCH, each).unwrap();
        }
    }
    seen.sort();
    seen
}

fn a_client_asks(test: &str, mode: Mode, attach_mode: AttachMode) {
    on_a_pair(test, |far| {
        ip("route add local 198.19.0.0/24 dev lo");
        ip(&format!("-n {} route add 198.19.0.0/24 via 198.18.0.2", far.name()));
        for (server, from) in [
            ("198.18.0.1:7777", ["198.18.0.2:40000", "198.18.0.2:40003"]),
            ("198.18.0.1:7777", ["198.19.0.9:40000", "198.19.0.255:40000"]),
            ("[2001:2::1]:7777", ["[2001:2::2]:40000", "[2001:2::2]:40003"]),
        ] {
            let echoing = echo(&far, server);
            let server: SocketAddr = server.parse().unwrap();
            let from = from.map(|address| address.parse::<SocketAddr>().unwrap());
            let hop = NextHop::towards(server).unwrap();
            hop.resolve(server, LAST_RESORT).unwrap();
            let length = if from[0].is_ipv6() { 128 } else { 24 };
            let addresses = IpNet::new(from[0].ip(), length).unwrap().trunc();
            let addresses =
                if addresses.contains(&server.ip()) { from[0].ip().into() } else { addresses };
            let client =
                Client::open(&hop, &[Claim { addresses, ports: (40_000..=40_003).into() }], mode);
            let client = client.unwrap();
            assert_eq!(client.attach_mode(), attach_mode);
            let link = client.link();
            let (mut sender, mut receiver) = client.into_halves();
            assert_eq!(sender.send(b"onetwosix", 3, &link, from[0], server).unwrap(), 3);
            assert_eq!(sender.send(b"a longer one", 12, &link, from[1], server).unwrap(), 1);
            let mut wanted: Vec<(SocketAddr, Vec<u8>)> = [b"Rne", b"Rwo", b"Rix"]
                .map(|reply| (from[0], reply.to_vec()))
                .into_iter()
                .chain([(from[1], b"R longer one".to_vec())])
                .collect();
            wanted.sort();
            assert_eq!(received(&mut receiver, 4), wanted);
            // The client sends more datagrams than it has frames, so that each frame is reused many times.
            for _ in 0..100 {
                assert_eq!(sender.send(&[b'x'; 64 * 50], 50, &link, from[0], server).unwrap(), 64);
                assert_eq!(received(&mut receiver, 64).len(), 64);
            }
            assert_eq!((receiver.drops().unwrap(), receiver.unreadable()), (0, 0));
            UdpSocket::bind((from[0].ip(), 0)).unwrap().send_to(b"", server).unwrap();
            echoing.join().unwrap();
        }
    });
}

#[test]
fn xdp_client_works_in_driver_mode() {
    a_client_asks("xdp-client-native", Mode::Auto, AttachMode::Copy);
}

#[test]
fn xdp_client_works_in_generic_mode() {
    a_client_asks("xdp-client-generic", Mode::Generic, AttachMode::Generic);
}

#[test]
fn a_client_needs_an_ethernet_neighbour() {
    let hop = NextHop::towards("127.0.0.1:53".parse().unwrap()).unwrap();
    let error = Client::open(&hop, &[], Mode::Auto).err().unwrap().to_string();
    assert!(error.contains("lo has no Ethernet neighbour towards 127.0.0.1"), "{error}");
}

#[test]
fn packets_without_room_are_counted() {
    on_a_pair("xdp-drops", |client| {
        let mut servers = Interface::open("near", &claims(), Mode::Auto).unwrap().into_servers();
        // More datagrams than the rings hold, sent a few at a time, so that all of them reach the interface.
        let sent: u64 = 6_000;
        client.run(move || {
            let socket = UdpSocket::bind(THEIRS).unwrap();
            for n in 0..sent {
                socket.send_to(b"an unread packet", OURS).unwrap();
                if n % 50 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let drops = drops(&servers);
        let kept = answer(&mut servers, sent as usize - drops as usize).len() as u64;
        assert!(drops > 1_000, "{drops} dropped");
        assert_eq!(kept + drops, sent);
    });
}

/// Trials follow each other without a pause, but the kernel closes the sockets of a process only a moment after the
/// process has ended.
#[test]
fn opening_waits_for_a_released_interface() {
    on_a_pair("an interface that is given back", |_far| {
        let open = |mode| Interface::open("near", &claims(), mode);
        for mode in [Mode::Copy, Mode::Generic] {
            let first = open(mode).unwrap();
            let leaving = thread::spawn(move || {
                thread::sleep(Duration::from_millis(300));
                drop(first);
            });
            // On a busy machine the kernel may need longer than one attempt waits.
            let second = open(mode).or_else(|_| open(mode)).unwrap();
            leaving.join().unwrap();
            // A running program keeps the queue.
            let error = open(mode).map(drop).unwrap_err().to_string();
            assert!(
                error.contains("ip link set dev near xdp") && error.contains(" off"),
                "{error}"
            );
            drop(second);
        }
    });
}

#[test]
fn a_loop_test_counts_datagrams_between_two_ports() {
    on_a_pair("a loop test", |_far| {
        // Both ends of this cable are in this namespace.
        ip("link add one type veth peer name other");
        ip("link set one up");
        ip("link set other up");
        for (mode, attach_mode) in
            [(Mode::Auto, AttachMode::Copy), (Mode::Generic, AttachMode::Generic)]
        {
            let found = loop_test("one", "other", mode, Duration::from_millis(300)).unwrap();
            assert_eq!((found.out, found.back), (attach_mode, attach_mode));
            assert!(found.sent > 1_000 && found.received > 1_000, "{found:?}");
            assert!(found.received <= found.sent, "{found:?}");
        }
        // The far end of this cable is in a different namespace.
        let found = loop_test("one", "near", Mode::Auto, Duration::from_millis(50)).unwrap();
        assert!(found.sent > 0 && found.received == 0, "{found:?}");
        let error = loop_test("one", "none", Mode::Auto, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("no interface none"), "{error}");
    });
}

#[test]
fn a_link_local_address_is_found_by_its_scope() {
    on_a_pair("an address of several links", |_far| {
        ip("link add other type veth peer name another");
        ip("link set other up");
        for interface in ["near", "other"] {
            ip(&format!("addr add fe80::53/64 dev {interface} nodad"));
        }
        for interface in ["near", "other"] {
            let scope = if_nametoindex(interface).unwrap();
            let address = SocketAddrV6::new("fe80::53".parse().unwrap(), 53, 0, scope);
            assert_eq!(interface_of(address.into()).unwrap(), interface);
        }
        assert_eq!(interface_of("198.18.0.2:53".parse().unwrap()).unwrap(), "near");
        let nobody = interface_of("[fe80::53%9999]:53".parse().unwrap());
        assert!(matches!(nobody, Err(XdpError::UnknownAddress { .. })), "{nobody:?}");
    });
}

/// Many replies may wait for the same upstream answer and are then sent together. There may be more replies than
/// frames.
#[test]
fn a_batch_larger_than_the_ring_is_sent() {
    on_a_pair("more than there is room for", |_far| {
        let hop = NextHop::towards("198.18.0.1:9".parse().unwrap()).unwrap();
        hop.resolve("198.18.0.1:9".parse().unwrap(), LAST_RESORT).unwrap();
        let link = hop.link().unwrap().unwrap();
        let interface = Interface::open_both("near", &claims(), Mode::Copy).unwrap();
        let mut exchange = interface.into_exchanges().remove(0);
        let mut outbox = Outbox::default();
        let [from, to] = [OURS, "198.18.0.1:9"].map(|end| end.parse().unwrap());
        for _ in 0..10_000 {
            outbox.push(&link, from, to, |octets| octets.extend(b"a reply"));
        }
        assert_eq!(exchange.sender.put(&mut outbox), 0);
        exchange.sender.flush().unwrap();
        assert_eq!(exchange.sender.settle(Duration::from_secs(5)), 0);
    });
}

/// Many bridges use the address fe80::1.
#[test]
fn link_local_addresses_of_other_links_may_be_remote() {
    on_a_pair("an address of another link", |_far| {
        ip("link add other type veth peer name another");
        ip("link set other up");
        for (interface, address) in [
            ("near", "fe80::53/64"),
            ("near", "169.254.0.53/16"),
            ("other", "fe80::1/64"),
            ("other", "169.254.0.1/16"),
            ("other", "198.18.7.1/24"),
        ] {
            let at_once = if address.contains(':') { "nodad" } else { "" };
            ip(&format!("addr add {address} dev {interface} {at_once}"));
        }
        let own = own_addresses("near");
        let has = |address: &str| own.has(address.parse().unwrap());
        for address in ["198.18.0.2", "2001:2::2", "fe80::53", "169.254.0.53", "198.18.7.1", "::1"]
        {
            assert!(has(address), "{address}");
        }
        assert!(!has("fe80::1") && !has("169.254.0.1"));
    });
}

#[test]
fn a_sender_waits_for_the_link_or_reports_an_error() {
    on_a_pair("without a link", |far| {
        let far = |state: &str| ip(&format!("-n {} link set far {state}", far.name()));
        let waited = Duration::from_millis(50);
        assert!(await_link("near", waited).is_ok());
        far("down");
        let error = await_link("near", waited).unwrap_err().to_string();
        assert!(error.starts_with("near has no link for 0.05 s after"), "{error}");
        // A server starts even without a link, which comes up with the network.
        thread::scope(|scope| {
            let waiting = scope.spawn(|| await_link("near", LINK));
            far("up");
            assert!(waiting.join().unwrap().is_ok());
        });
    });
}

#[test]
fn only_a_machine_itself_joins_datagrams() {
    let is_device =
        |path: &str| ["/sys/bus/pci/devices/", "/sys/bus/pci/devices/0000:03:00.0"].contains(&path);
    for (name, bus, is_on_card_bus) in [
        ("veth", "", false),
        ("bridge", "", false),
        ("tun", "tap", false),
        ("virtio_net", "0000:03:00.0", false),
        ("hv_netvsc", "f8615163-df3e-46c5-913f-f2d2f965ed0e", false),
        ("e1000e", "0000:03:00.0", true),
        ("macb", "platform", true),
        ("r8152", "usb-0000:00:14.0-1", true),
    ] {
        let (name, bus) = (name.to_owned(), bus.to_owned());
        let driver = ethtool::Driver { name, bus, firmware: String::new() };
        assert_eq!(super::is_on_card_bus(&driver, is_device), is_on_card_bus, "{driver:?}");
    }
    assert!(!is_card(None));
    assert!(may_join("lo", AttachMode::Generic) && !may_join("lo", AttachMode::Copy));
}

/// The kernel has no driver-mode filter for a bridge.
#[test]
fn a_bridge_is_served_in_generic_mode() {
    on_a_pair("xdp-bridge", |client| {
        ip("link add over type bridge");
        ip("link set near master over");
        ip("addr flush dev near");
        ip("link set over up");
        ip("addr add 198.18.0.2/24 dev over");
        let claim = || Claim::to_address("198.18.0.2".parse().unwrap(), 53..=53);
        // The bridge's port has no address.
        let error = Interface::open("near", &[claim()], Mode::Auto).map(drop).unwrap_err();
        assert!(error.to_string().contains("near does not have the address"), "{error}");
        assert_eq!(interface_of(OURS.parse().unwrap()).unwrap(), "over");
        let interface = Interface::open("over", &[claim()], Mode::Auto).unwrap();
        assert_eq!(interface.attach_mode(), AttachMode::Generic);
        let mut servers = interface.into_servers();
        let asking = client.start(|| ask(THEIRS, OURS, &[b"one", b"two"]));
        assert_eq!(answer(&mut servers, 2).len(), 2);
        assert!(asking.join().unwrap().iter().all(Option::is_some));
    });
}

/// The test pretends that the interface is a bond, because this kernel may not support bonds.
#[test]
fn a_filter_that_would_run_at_other_interfaces_is_not_tried() {
    on_a_pair("xdp-bond", |_far| {
        let mut found = find("near").unwrap();
        found.facts.driver = Some(ethtool::Driver { name: "bonding".into(), ..Default::default() });
        let open = |mode| Interface::open_found(&found, &claims(), mode, |_| Capacity::SERVER);
        assert_eq!(open(Mode::Auto).unwrap().attach_mode(), AttachMode::Generic);
        let error = open(Mode::Copy).map(drop).unwrap_err().to_string();
        assert!(error.contains("runs the filter of a bond on its members"), "{error}");
    });
}

/// Each missing requirement is reported by a sentence with advice. Other errors concern only one attach mode.
#[test]
fn host_errors_differ_from_errors_of_one_mode() {
    let result_of = |step, number, release: &str| {
        let error = io::Error::from_raw_os_error(number);
        of_this_mode(step, error, release).map(drop).map_err(|error| error.to_string())
    };
    for (step, number, release, sentence) in [
        (Step::Attach, libc::EPERM, "6.1.0", "CAP_NET_ADMIN"),
        (Step::Open, libc::EPERM, "6.1.0", "CAP_NET_RAW"),
        (
            Step::Open,
            libc::ENOBUFS,
            "6.1.0",
            "LimitMEMLOCK= of a systemd unit) or give CAP_IPC_LOCK",
        ),
        (Step::Open, libc::EAFNOSUPPORT, "6.1.0", "without CONFIG_XDP_SOCKETS"),
        (
            Step::Attach,
            libc::EINVAL,
            "5.4.0-42-generic",
            "Linux 5.9 or newer, and this is 5.4.0-42",
        ),
        (Step::Attach, libc::EINVAL, "4.19.1", "Linux 5.9 or newer"),
    ] {
        let said = result_of(step, number, release).unwrap_err();
        assert!(said.contains(sentence), "{said}");
    }
    for (step, number, release) in [
        (Step::Attach, libc::EINVAL, "5.9.0"),
        (Step::Attach, libc::EINVAL, "5.10-rc1"),
        (Step::Attach, libc::EINVAL, "6.18.44-fc"),
        (Step::Attach, libc::EINVAL, "10.0"),
        (Step::Attach, libc::EINVAL, "unreadable"),
        (Step::Attach, libc::EINVAL, ""),
        (Step::Open, libc::EINVAL, "5.4.0"),
        (Step::Attach, libc::ENOBUFS, "6.1.0"),
        (Step::Attach, libc::EOPNOTSUPP, "6.1.0"),
        (Step::Open, libc::EOPNOTSUPP, "6.1.0"),
        (Step::Open, libc::EBUSY, "6.1.0"),
    ] {
        assert_eq!(result_of(step, number, release), Ok(()), "{step:?} {number} {release}");
    }
    assert!(!is_before_links(&release()));
}

#[test]
fn missing_requirements_have_messages() {
    let error =
        |name: &str| Interface::open(name, &claims(), Mode::Auto).err().unwrap().to_string();
    assert!(error("no-such-interface").contains("no interface no-such-interface"));
    on_a_pair("xdp-lacking", |_far| {
        let claim = Claim::to_address("192.0.2.1".parse().unwrap(), 53..=53);
        let wrong = Interface::open("near", &[claim], Mode::Auto).err().unwrap().to_string();
        assert!(wrong.contains("near does not have the address 192.0.2.1"), "{wrong}");
        let probed = probe("near").unwrap();
        let works: Vec<bool> = probed.attach_modes.iter().map(|(_, tried)| tried.is_ok()).collect();
        assert_eq!(works, [false, true, true], "{probed:?}");
        let zero_copy =
            Interface::open("near", &claims(), Mode::ZeroCopy).err().unwrap().to_string();
        assert!(zero_copy.contains("native, zero-copy:"), "{zero_copy}");
        let _first = Interface::open("near", &claims(), Mode::Auto).unwrap();
        let second = Interface::open("near", &claims(), Mode::Auto).err().unwrap().to_string();
        assert!(second.contains("near does not support AF_XDP here"), "{second}");
    });
}
