//! Tests of the tap with real sockets in temporary network namespaces.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

use super::*;
use crate::batch::{OFFLOAD_LEN, ReceiveBatch, Wait};
use crate::neighbour::NextHop;
use crate::socket::Endpoint;
use testbed::{LAST_RESORT, ip, is_root};

use crate::testing::retry_until_free;

/// Receives the datagrams of `endpoint` one by one and returns their number.
fn drain(endpoint: &Endpoint) -> u64 {
    let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
    let mut datagrams = 0;
    while batch.receive(endpoint, Wait::NonBlocking).unwrap() > 0 {
        datagrams += batch.iter().map(|datagram| datagram.segments().count() as u64).sum::<u64>();
    }
    datagrams
}

/// Sends 13 datagrams in one call and 3 single datagrams, and repeats this 50 times. Returns the total number of
/// datagrams.
fn send(to_us: &Endpoint) -> u64 {
    for _ in 0..50 {
        to_us.send_segmented(&[7; 13 * 50], 50).unwrap();
        (0..3).for_each(|_| to_us.send(&[8; 40]).unwrap());
    }
    50 * 16
}

#[test]
fn loopback_counts_agree_with_the_sockets() {
    if !is_root("loopback_counts_agree_with_the_sockets") {
        return;
    }
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link set lo up");
        for server in ["127.0.0.1:53", "[::1]:53"] {
            let server = server.parse().unwrap();
            let (connected, unmatched) = Endpoint::client_pair(server, 0).unwrap();
            connected.use_receive_offload();
            let ours = connected.local_address().unwrap();
            let to_us = Endpoint::connect_from(Some(server), ours).unwrap();
            let stranger =
                Endpoint::connect_from(Some(SocketAddr::new(server.ip(), 0)), ours).unwrap();
            let tap = Tap::new("lo", ours.ip().into(), &[ours.port()]).unwrap();
            // Sent datagrams, and those for other ports, are not counted.
            connected.send(b"query").unwrap();
            let sent = send(&to_us);
            assert_eq!(
                (tap.count().unwrap(), drain(&connected), drain(&unmatched)),
                (sent, sent, 0)
            );
            assert_eq!(send(&stranger), sent);
            assert_eq!(
                (tap.count().unwrap(), drain(&connected), drain(&unmatched)),
                (2 * sent, 0, sent)
            );
        }
    };
    thread::spawn(in_namespace).join().unwrap();
}

#[test]
fn only_addresses_of_the_prefix_count() {
    if !is_root("only_addresses_of_the_prefix_count") {
        return;
    }
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link set lo up");
        ip("-6 route add local 2001:2:0:f0::/60 dev lo");
        // Prefixes that end within a 32-bit word, at its end and at its beginning, with addresses inside each prefix
        // and next to it.
        for (server, ours, inside, outside) in [
            ("127.0.0.1:53", "127.1.16.0/20", ["127.1.16.0", "127.1.31.255"], "127.1.32.1"),
            ("127.0.0.1:53", "127.0.0.0/8", ["127.1.2.3", "127.200.0.1"], "127.0.0.1"),
            (
                "[::1]:53",
                "2001:2:0:f0::/61",
                ["2001:2:0:f0::1", "2001:2:0:f7:ffff::"],
                "2001:2:0:f8::1",
            ),
            (
                "[::1]:53",
                "2001:2:0:ff::/64",
                ["2001:2:0:ff::1", "2001:2:0:ff:8000::"],
                "2001:2:0:fe::1",
            ),
        ] {
            let (server, net): (SocketAddr, IpNet) =
                (server.parse().unwrap(), ours.parse().unwrap());
            let client = Endpoint::client_on_any_address(server, 0).unwrap();
            client.use_receive_offload();
            let port = client.local_address().unwrap().port();
            let tap = Tap::new("lo", net, &[port]).unwrap();
            let to = |address: &str| {
                let ours = SocketAddr::new(address.parse().unwrap(), port);
                send(&retry_until_free(|| Endpoint::connect_from(Some(server), ours)))
            };
            let counted: u64 = inside.iter().map(|address| to(address)).sum();
            // 127.0.0.1 is also in 127.0.0.0/8.
            let beside = to(outside);
            let counted = if ours == "127.0.0.0/8" { counted + beside } else { counted };
            assert_eq!((tap.count().unwrap(), drain(&client)), (counted, 3 * beside), "{ours}");
        }
    };
    thread::spawn(in_namespace).join().unwrap();
}

#[test]
fn segments_over_a_link_count_one_by_one() {
    if !is_root("segments_over_a_link_count_one_by_one") {
        return;
    }
    let (say, hear) = mpsc::channel::<PathBuf>();
    let (ready, begin) = mpsc::channel::<SocketAddr>();
    let far = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        say.send(format!("/proc/self/task/{}/ns/net", gettid()).into()).unwrap();
        // Once the near side has its port, the link exists.
        let ours = begin.recv().unwrap();
        NextHop::towards(ours).unwrap().resolve(ours, LAST_RESORT).unwrap();
        send(&Endpoint::connect_from(Some("[2001:2::2]:53".parse().unwrap()), ours).unwrap())
    });
    let near = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let theirs = hear.recv().unwrap();
        ip("link set lo up");
        ip("link add near type veth peer name far");
        ip("address add 2001:2::1/64 dev near nodad");
        let file = std::fs::File::open(&theirs).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        ip(&format!("link set far netns {path}"));
        let inside = |line: &str| {
            let output = Command::new("nsenter")
                .arg(format!("--net={path}"))
                .arg("ip")
                .args(line.split(' '))
                .output();
            let output = output.unwrap();
            assert!(
                output.status.success(),
                "ip {line}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        };
        inside("address add 2001:2::2/64 dev far nodad");
        inside("link set far up");
        ip("link set near up");
        let server = "[2001:2::2]:53".parse().unwrap();
        let hop = NextHop::towards(server).unwrap();
        assert_eq!((hop.interface.as_str(), hop.needs_address), ("near", true));
        hop.resolve(server, LAST_RESORT).unwrap();
        let (connected, unmatched) = Endpoint::client_pair(server, 0).unwrap();
        connected.use_receive_offload();
        let ours = connected.local_address().unwrap();
        let tap = Tap::new("near", ours.ip().into(), &[ours.port()]).unwrap();
        ready.send(ours).unwrap();
        let sent = far.join().unwrap();
        // A veth hands packets to the other side's softirq, which may not have run yet.
        let (mut received, give_up) = (0, Instant::now() + LAST_RESORT);
        while received < sent && Instant::now() < give_up {
            received += drain(&connected);
        }
        assert_eq!((tap.count().unwrap(), received, drain(&unmatched)), (sent, sent, 0));
    });
    near.join().unwrap();
}
