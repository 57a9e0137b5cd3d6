//! Networks: unreachable upstreams, and changes of resolv.conf by other programs.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::unix::fs::symlink;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use dns64::config::Settings;
use dns64::server::{Activated, RunningServer, bind};
use domain::base::iana::{Rcode, Rtype};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};

use crate::harness::*;
use crate::operations::Daemon;

/// An address without a server.
fn closed() -> SocketAddr {
    UdpSocket::bind("127.0.0.2:0").unwrap().local_addr().unwrap()
}

/// The names and RCODEs of the next two replies, in order of arrival.
fn next_two(socket: &UdpSocket) -> [(String, Rcode); 2] {
    [(); 2].map(|()| {
        let got = receive(socket, SOON).expect("a reply");
        (got.message.sole_question().unwrap().qname().to_string(), got.rcode())
    })
}

/// Sends queries to a silent upstream, each followed by a query to the upstream at `unreachable`.
/// Asserts that the query to the unreachable upstream fails first.
fn fail_before_silent_ones(unreachable: SocketAddr) {
    let silent = Upstream::new(|_| Vec::new());
    let forward = |domain: &str, upstream: SocketAddr| {
        format!("[[forward]]\ndomain = '{domain}'\nupstreams = ['{}']\n", upstream.ip())
    };
    let forwards = forward("silent.test", silent.address) + &forward("failing.test", unreachable);
    let server = server(&[silent.address, unreachable], &format!("{PREFIX}{forwards}"));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..2 {
        let names = ["silent", "failing"].map(|of| format!("n{n}.{of}.test"));
        for name in &names {
            client.send_to(&ask(name, Rtype::AAAA).bytes(), server.address).unwrap();
        }
        let [silent, failing] = names;
        let wanted = [(failing, Rcode::SERVFAIL), (silent, Rcode::SERVFAIL)];
        assert_eq!(next_two(&client), wanted);
    }
}

#[test]
fn item_43_refused_queries_fail_before_silent_ones() {
    fail_before_silent_ones(closed());
}

#[test]
fn item_43_without_a_route_queries_fail_at_once() {
    on_an_empty_host("item_43_without_a_route_queries_fail_at_once", || {
        for unreachable in ["192.0.2.53:53", "[2001:db8::53]:53"] {
            fail_before_silent_ones(unreachable.parse().unwrap());
        }
    });
}

/// An upstream on fe80::2 at the far end of the Ethernet. If `port` is 0, the kernel selects the
/// port.
fn link_local_upstream(far: &testbed::Namespace, port: u16) -> Upstream {
    far.run(move || {
        let at = SocketAddrV6::new(v6("fe80::2"), port, 0, if_nametoindex("far").unwrap());
        Upstream::at(at.into(), |q| match (q.qtype, q.tcp) {
            (Rtype::A, false) => q.answer().truncated().send(),
            (Rtype::A, true) => q.answer().a(&q.name, 60, "192.0.2.1").send(),
            _ => q.nodata(60, 60).send(),
        })
    })
}

/// A server whose upstream is fe80::2 in the zone `zone`, at the port `port`.
fn server_in_zone(listen: &str, zone: &str, port: u16) -> RunningServer {
    let upstream = format!("[[upstream]]\naddress = 'fe80::2%{zone}'\nport = {port}\n");
    let text = format!("listen = ['{listen}']\nthreads = 1\n{PREFIX}{upstream}");
    let settings = Settings::from_text(&text, Path::new("test.toml")).unwrap();
    bind(settings, Activated::default()).unwrap().start().unwrap()
}

#[test]
fn item_49_link_local_upstreams_and_clients() {
    let test = "item_49_link_local_upstreams_and_clients";
    testbed::with_veth_pair(test, 1, &["fe80::1/64"], &["fe80::2/64"], |far| {
        let upstream = link_local_upstream(&far, 0);
        let port = upstream.address.port();
        let index = if_nametoindex("near").unwrap();
        for zone in ["near".to_owned(), index.to_string()] {
            let server = server_in_zone("[fe80::1%near]:0", &zone, port);
            let got = ask_from_here(server.addresses()[0], "www.test");
            assert_eq!(got.addresses(), [mapped("192.0.2.1")], "over UDP and TCP");
            let label = format!("upstream=\"[fe80::2%{zone}]:{port}\"");
            assert!(server.metrics_text().contains(&label), "{label}");
        }
    });
}

#[test]
fn item_49_interfaces_appear_and_come_back() {
    let test = "item_49_interfaces_appear_and_come_back";
    testbed::with_veth_pair(test, 1, &[], &["fe80::2/64"], |far| {
        let upstream = link_local_upstream(&far, 0);
        let port = upstream.address.port();
        let server = server_in_zone("[::1]:0", "later", port);
        let got = |name: &str| ask_from_here(server.addresses()[0], name);
        assert_eq!(got("a.test").rcode(), Rcode::SERVFAIL, "there is no such interface");
        let up = || {
            testbed::ip("link set later up");
            testbed::ip("addr add fe80::1/64 dev later nodad");
        };
        testbed::ip("link set near down");
        testbed::ip("link set near name later");
        up();
        assert_eq!(got("b.test").addresses(), [mapped("192.0.2.1")]);
        let index = if_nametoindex("later").unwrap();
        testbed::ip("link del later");
        drop(upstream);
        testbed::ip(&format!("link add later type veth peer name far netns {}", far.name()));
        testbed::ip(&format!("-n {} addr add fe80::2/64 dev far nodad", far.name()));
        testbed::ip(&format!("-n {} link set far up", far.name()));
        up();
        assert_ne!(if_nametoindex("later").unwrap(), index);
        let _upstream = link_local_upstream(&far, port);
        let mut names = (0..).map(|n| format!("n{n}.test"));
        eventually("the interface is used again", || {
            got(&names.next().unwrap()).addresses() == [mapped("192.0.2.1")]
        });
    });
}

/// The reply to an AAAA query from this network namespace.
fn ask_from_here(server: SocketAddr, name: &str) -> Got {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    socket.send_to(&ask(name, Rtype::AAAA).bytes(), server).unwrap();
    receive(&socket, SOON).expect("a reply")
}

#[test]
fn item_49_an_interface_that_is_missing_is_named() {
    let text =
        format!("listen = ['[fe80::1%missing]:53']\n{PREFIX}[[upstream]]\naddress = '::1'\n");
    let settings = Settings::from_text(&text, Path::new("test.toml")).unwrap();
    let Err(error) = bind(settings, Activated::default()) else { panic!("it is served") };
    let wanted = "cannot serve [fe80::1%missing]:53 over UDP: there is no interface missing";
    assert_eq!(error.to_string(), wanted);
}

/// Runs a test in a thread with separate network and mount namespaces, in which /etc and /run are
/// empty.
fn on_an_empty_host(test: &str, run: impl FnOnce() + Send) {
    if !testbed::is_root(test) {
        return;
    }
    let in_a_thread = || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
        testbed::ip("link set lo up");
        for line in ["--make-rprivate /", "-t tmpfs etc /etc", "-t tmpfs run /run"] {
            let mounted = Command::new("mount").args(line.split(' ')).status().unwrap();
            assert!(mounted.success(), "mount {line}");
        }
        run();
    };
    let ended = thread::scope(|scope| scope.spawn(in_a_thread).join());
    ended.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Replaces /etc/resolv.conf atomically.
fn replace(make: impl FnOnce(&str)) {
    make("/etc/new");
    fs::rename("/etc/new", "/etc/resolv.conf").unwrap();
}

fn upstream_at(address: &str) -> Upstream {
    Upstream::at((v4(address), 53).into(), |q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        _ => q.nodata(60, 60).send(),
    })
}

fn config(folder: &Path, more: &str) -> PathBuf {
    let file = folder.join("dns64d.toml");
    // Upstreams get no queries for signatures.
    let dnssec = "[dnssec]\nvalidate = false\n";
    fs::write(&file, format!("listen = ['127.0.0.1:0']\nthreads = 1\n{more}{PREFIX}{dnssec}"))
        .unwrap();
    file
}

#[test]
fn item_48_resolv_conf_is_followed_from_nothing_on() {
    on_an_empty_host("item_48_resolv_conf_is_followed_from_nothing_on", || {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "");
        let upstreams = ["127.0.0.51", "127.0.0.52", "127.0.0.53"].map(upstream_at);
        let daemon = Daemon::start(&config);
        let got =
            |name: &str| ask(name, Rtype::AAAA).edns(1232).try_of(daemon.address, SOON).unwrap();
        let failed = got("a.test");
        assert_eq!((failed.rcode(), failed.ede()), (Rcode::SERVFAIL, Some(14)));
        assert_eq!(got("ipv4only.arpa").answers().len(), 2, "local answers need no upstream");
        replace(|file| fs::write(file, "nameserver fe80::1\n").unwrap());
        daemon.line_with("names only link-local addresses without a zone");
        // (query name, upstream that should answer, change of resolv.conf)
        let names = |address: &'static str| {
            move |file: &str| {
                fs::write(file, format!("nameserver {address}\n")).unwrap();
            }
        };
        let links_to = |target: &'static str| move |file: &str| symlink(target, file).unwrap();
        let follows = |name: &str, address: &str| {
            daemon.line_with(&format!("upstreams of /etc/resolv.conf: {address}:53"));
            assert_eq!(got(name).addresses(), [mapped("192.0.2.1")], "{name}");
        };
        replace(names("127.0.0.51"));
        follows("a.test", "127.0.0.51");
        // A symbolic link to a file in a new folder, as created by systemd-resolved.
        fs::create_dir_all("/run/systemd/resolve").unwrap();
        names("127.0.0.52")("/run/systemd/resolve/resolv.conf");
        replace(links_to("../run/systemd/resolve/resolv.conf"));
        follows("b.test", "127.0.0.52");
        // The link stays, and the contents of the file change.
        names("127.0.0.53")("/run/systemd/resolve/resolv.conf");
        follows("c.test", "127.0.0.53");
        // If the file is missing or lists no servers, the upstreams stay unchanged.
        replace(links_to("/run/nothing/resolv.conf"));
        daemon.line_with("cannot be read: No such file or directory");
        assert_eq!(got("d.test").addresses().len(), 1);
        daemon.signal("HUP");
        daemon.line_with("the old configuration stays in effect: no upstream");
        // A link to a different file, as created by NetworkManager.
        fs::create_dir_all("/run/NetworkManager").unwrap();
        names("127.0.0.51")("/run/NetworkManager/resolv.conf");
        replace(links_to("/run/NetworkManager/resolv.conf"));
        follows("e.test", "127.0.0.51");
        let counts = upstreams.map(|upstream| upstream.asked().len());
        assert_eq!(counts, [4, 2, 4]);
    });
}

#[test]
fn item_48_check_warns_without_an_upstream() {
    on_an_empty_host("item_48_check_warns_without_an_upstream", || {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "");
        fs::write("/etc/resolv.conf", "search example.org\n").unwrap();
        let check = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_dns64d"));
            let output = command.arg("--config").arg(&config).arg("check").output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        let (status, said) = check();
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("warning: no upstream: ") && said.contains("names none"), "{said}");
        assert!(
            said.ends_with("\n[[upstream]]\naddress = \"2001:db8::53\"\nport = 53\n"),
            "{said}"
        );
        fs::remove_file("/etc/resolv.conf").unwrap();
        let (status, said) = check();
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("/etc/resolv.conf cannot be read: No such file"), "{said}");
        fs::write("/etc/resolv.conf", "nameserver 192.0.2.1\n").unwrap();
        let (status, said) = check();
        assert_eq!(status, Some(0), "{said}");
        assert!(!said.contains("no upstream"), "{said}");
    });
}
