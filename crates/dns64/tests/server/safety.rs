//! Items 37 to 43, and faults: dead upstreams, many clients, floods, malformed packets.

use std::io::Read;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dns64::metrics::Count;
use domain::base::iana::{Rcode, Rtype};
use rand::RngExt;

use crate::harness::*;

fn plain(q: &Asked) -> Vec<Act> {
    match q.qtype {
        Rtype::A => q.answer().a(&q.name, 300, "192.0.2.1").send(),
        _ => q.nodata(300, 300).send(),
    }
}

/// An upstream that can be switched off.
fn switchable() -> (Upstream, Arc<AtomicBool>) {
    let on = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&on);
    (Upstream::new(move |q| if on.load(Ordering::Relaxed) { plain(q) } else { Vec::new() }), switch)
}

const GROUPS: &str = "[[group]]\nclients = ['127.0.0.2/32']\n[group.dns64]\nprefixes = [{ prefix = '2001:db8:2::/96' }]\n\
                      [[group]]\nclients = ['127.0.0.3/32']\n[group.dns64]\nprefixes = []\n\
                      [[group]]\nclients = ['127.0.0.4/32']\n[group.dns64]\nrecursive-only = true\nexclude = ['2001:db8::/32']\n";

#[test]
fn items_37_and_41_groups_share_the_cache() {
    let upstream = Upstream::new(plain);
    let server = server(&[upstream.address], &format!("{PREFIX}{GROUPS}"));
    let addresses = |from: &str| ask("www.test", Rtype::AAAA).from(from).of(&server).addresses();
    assert_eq!(addresses("127.0.0.1"), [mapped("192.0.2.1")]);
    assert_eq!(addresses("127.0.0.2"), [v6("2001:db8:2::c000:201")]);
    assert!(addresses("127.0.0.3").is_empty(), "no prefix: off");
    assert_eq!(addresses("127.0.0.4"), [mapped("192.0.2.1")]);
    let mut iterative = ask("www.test", Rtype::AAAA).from("127.0.0.4");
    iterative.recursion_desired = false;
    assert!(iterative.of(&server).addresses().is_empty(), "recursive-only");
    assert_eq!(upstream.asked(), ["www.test AAAA", "www.test A"], "queried once for all of them");
}

#[test]
fn items_09_and_41_excluded_ranges_are_those_of_the_group() {
    let upstream = Upstream::new(|q| match (q.qtype, q.name.as_str()) {
        (Rtype::A, _) => q.answer().a(&q.name, 300, "192.0.2.1").send(),
        (_, "mixed.test") => {
            q.answer().aaaa(&q.name, 300, "2001:db8::1").aaaa(&q.name, 300, "2001:db9::1").send()
        }
        _ => q.answer().aaaa(&q.name, 300, "2001:db8::1").send(),
    });
    let server = server(&[upstream.address], &format!("{PREFIX}{GROUPS}"));
    let addresses =
        |name: &str, from: &str| ask(name, Rtype::AAAA).from(from).of(&server).addresses();
    assert_eq!(addresses("www.test", "127.0.0.1"), [v6("2001:db8::1")]);
    assert_eq!(
        addresses("www.test", "127.0.0.4"),
        [mapped("192.0.2.1")],
        "excluded: as if it were not there"
    );
    assert_eq!(addresses("mixed.test", "127.0.0.1"), [v6("2001:db8::1"), v6("2001:db9::1")]);
    assert_eq!(addresses("mixed.test", "127.0.0.4"), [v6("2001:db9::1")]);
}

#[test]
fn item_38_failures_are_remembered_for_a_moment() {
    let upstream = Upstream::new(|q| q.rcode(Rcode::SERVFAIL).send());
    let server = server(&[upstream.address], &format!("{PREFIX}[cache]\nfailure-ttl = 1\n"));
    for _ in 0..10 {
        assert_eq!(ask("www.test", Rtype::A).of(&server).rcode(), Rcode::SERVFAIL);
    }
    let asked = upstream.asked().len();
    assert!(asked <= 2, "{asked} queries: a second may have passed, not more");
    eventually("it is queried again", || {
        ask("www.test", Rtype::A).of(&server);
        upstream.asked().len() > asked
    });
}

#[test]
fn item_38_negative_ttl_is_that_of_the_soa_or_limit() {
    let upstream = Upstream::new(|q| match q.name.as_str() {
        "without-soa.test" => q.answer().send(),
        _ => q.nodata(86_400, 86_400).send(),
    });
    let server = server(&[upstream.address], &format!("{PREFIX}[cache]\nnegative-max-ttl = 1\n"));
    for _ in 0..3 {
        ask("without-soa.test", Rtype::TXT).of(&server);
    }
    assert_eq!(upstream.asked().len(), 3, "no SOA, so not cached");
    ask("www.test", Rtype::TXT).of(&server);
    eventually("negative-max-ttl passes", || {
        ask("www.test", Rtype::TXT).of(&server);
        upstream.asked().len() > 4
    });
}

/// The cache uses type 0, which no record has (RFC 6895 §3.1), for names that do not exist. A query
/// for type 0 would make the cache treat an alias as nonexistent if its target does not exist.
#[test]
fn items_38_and_44_queries_of_type_0_are_malformed() {
    let upstream = Upstream::new(|q| match (q.name.as_str(), q.qtype) {
        ("al.test", Rtype::CNAME) => q.answer().cname("al.test", 60, "gone.test").send(),
        ("al.test", _) => {
            let alias = q.rcode(Rcode::NXDOMAIN).cname("al.test", 60, "gone.test");
            alias.soa("test", 60, 60).send()
        }
        _ => q.rcode(Rcode::NXDOMAIN).soa("test", 60, 60).send(),
    });
    let server = server(&[upstream.address], PREFIX);
    // The server looks up these cache entries only after a first name was found not to exist.
    assert_eq!(ask("gone.test", Rtype::A).of(&server).rcode(), Rcode::NXDOMAIN);
    let type_0 = ask("al.test", Rtype::from_int(0)).edns(1232);
    for got in [type_0.of(&server), type_0.over_tcp(&server)] {
        assert_eq!((got.rcode(), got.message.opt().is_some()), (Rcode::FORMERR, true));
    }
    let alias = ask("al.test", Rtype::CNAME).of(&server);
    assert_eq!(
        (alias.rcode(), alias.answers()),
        (Rcode::NOERROR, vec!["al.test 60 cname gone.test".to_owned()])
    );
    assert_eq!(upstream.asked(), ["gone.test A", "al.test CNAME"]);
}

#[test]
fn item_39_ten_thousand_clients_one_upstream_pair() {
    const CLIENTS: usize = 10_000;
    let may_answer = Arc::new(AtomicBool::new(false));
    let is_time = Arc::clone(&may_answer);
    let upstream = Upstream::new(move |q| {
        let [Act::Send(bytes)] = &plain(q)[..] else { unreachable!("one act") };
        vec![Act::Until(Arc::clone(&is_time)), Act::Send(bytes.clone())]
    });
    let server = patient_server(&[upstream.address], &format!("threads = 2\n{PREFIX}"));
    // 100 sockets send 100 queries each, with distinct IDs per socket.
    let sockets: Vec<UdpSocket> =
        (0..100).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for id in 0..CLIENTS / sockets.len() {
        for socket in &sockets {
            let mut query = ask("www.test", Rtype::AAAA);
            query.id = id as u16;
            socket.send_to(&query.bytes(), server.address).unwrap();
        }
    }
    may_answer.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for socket in &sockets {
        let mut ids = std::collections::HashSet::new();
        while ids.len() < CLIENTS / sockets.len() {
            let Some(got) = receive(socket, SOON) else { break };
            assert_eq!(got.addresses(), [mapped("192.0.2.1")]);
            ids.insert(got.message.header().id());
        }
        answered += ids.len();
    }
    assert_eq!(answered, CLIENTS);
    assert_eq!(upstream.asked(), ["www.test AAAA", "www.test A"]);
    assert!(server.running.metrics().total(Count::Collapsed) > 0);
}

#[test]
fn item_40_stale_answers_while_the_upstream_is_dead() {
    let on = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&on);
    let upstream = Upstream::new(move |q| match (on.load(Ordering::Relaxed), q.qtype) {
        (false, _) => Vec::new(),
        (true, _) if q.name == "none.test" => q.rcode(Rcode::NXDOMAIN).soa("test", 1, 1).send(),
        (true, Rtype::A) => q.answer().a(&q.name, 1, "192.0.2.1").send(),
        (true, _) => q.nodata(1, 1).send(),
    });
    let configuration =
        format!("{PREFIX}[cache]\nserve-stale = '1h'\n[forwarding]\ntimeout = '200ms'\n");
    let server = server(&[upstream.address], &configuration);
    assert_eq!(ask("www.test", Rtype::AAAA).of(&server).ttls(), [1]);
    assert_eq!(ask("none.test", Rtype::AAAA).of(&server).rcode(), Rcode::NXDOMAIN);
    switch.store(false, Ordering::Relaxed);
    eventually("the answer is stale", || {
        let got = ask("www.test", Rtype::AAAA).edns(1232).of(&server);
        assert_eq!(got.addresses(), [mapped("192.0.2.1")]);
        got.ede() == Some(3) && got.ttls() == [30]
    });
    eventually("the denial is stale", || {
        let got = ask("none.test", Rtype::AAAA).edns(1232).of(&server);
        assert_eq!(got.rcode(), Rcode::NXDOMAIN);
        got.ede() == Some(19)
    });
    assert_eq!(ask("other.test", Rtype::AAAA).of(&server).rcode(), Rcode::SERVFAIL);
    eventually("no query is in flight", || server.running.metrics().in_flight() == 0);
    let of_it = || upstream.asked().iter().filter(|line| line.starts_with("www.test ")).count();
    let before = of_it();
    for _ in 0..5 {
        let got = ask("www.test", Rtype::AAAA).of(&server);
        assert_eq!(got.addresses(), [mapped("192.0.2.1")]);
    }
    assert_eq!(of_it(), before, "not tried again for each query");
}

#[test]
fn item_42_strangers_are_refused() {
    let upstream = Upstream::new(plain);
    let server =
        server(&[upstream.address], &format!("{PREFIX}[access]\nallow = ['127.0.0.1/32']\n"));
    assert_eq!(ask("www.test", Rtype::AAAA).of(&server).rcode(), Rcode::NOERROR);
    let refused = ask("www.test", Rtype::AAAA).edns(1232).from("127.0.0.9").of(&server);
    assert_eq!((refused.rcode(), refused.ede()), (Rcode::REFUSED, Some(18)));
    assert_eq!(upstream.asked().len(), 2);
    let text = server.running.metrics_text();
    for line in
        ["dns64d_queries_total{kind=\"udp_aaaa\"} 2", "dns64d_replies_total{rcode=\"refused\"} 1"]
    {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
}

#[test]
fn item_42_disallowed_tcp_connections_are_closed() {
    let upstream = Upstream::new(plain);
    let limits =
        format!("{PREFIX}[access]\nallow = ['127.0.0.1/32']\n[limits]\ntcp-per-client = 2\n");
    let (few, strict) = (
        server(&[upstream.address], &limits),
        server(&[upstream.address], &format!("{PREFIX}[access]\nallow = ['127.0.0.9/32']\n")),
    );
    let closed = |server: &Server| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.read(&mut [0; 1]).unwrap_or(0) == 0
    };
    let refused = |server: &Server, count| server.running.metrics().total(count);
    let open: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(few.address).unwrap()).collect();
    assert!(closed(&few));
    assert_eq!(
        (refused(&few, Count::TcpRefusedLimit), refused(&few, Count::TcpRefusedAcl)),
        (1, 0)
    );
    drop(open);
    assert!(closed(&strict));
    assert_eq!(
        (refused(&strict, Count::TcpRefusedLimit), refused(&strict, Count::TcpRefusedAcl)),
        (0, 1)
    );
}

#[test]
fn item_42_a_flood_of_names_is_bounded() {
    const LIMIT: usize = 200;
    let upstream =
        Upstream::new(|q| if q.name.starts_with("flood") { Vec::new() } else { plain(q) });
    for (overload, replies) in [("servfail", true), ("drop", false)] {
        let limits = format!("{PREFIX}[limits]\nin-flight = {LIMIT}\noverload = '{overload}'\n");
        let server = patient_server(&[upstream.address], &limits);
        assert_eq!(ask("served.test", Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for i in 0..3 * LIMIT {
            socket
                .send_to(&ask(&format!("flood{i}.test"), Rtype::AAAA).bytes(), server.address)
                .unwrap();
        }
        let metrics = server.running.metrics();
        let denied = || metrics.total(Count::Overload) + metrics.total(Count::ClientShare);
        eventually("all wait or are denied", || denied() + metrics.in_flight() == 3 * LIMIT as u64);
        let waiting = metrics.in_flight();
        assert!((120..190).contains(&waiting), "{waiting}: the share of one client");
        assert_eq!(
            ask("served.test", Rtype::AAAA).of(&server).addresses(),
            [mapped("192.0.2.1")],
            "from the cache"
        );
        if replies {
            let got = receive(&socket, SOON).unwrap();
            assert_eq!(got.rcode(), Rcode::SERVFAIL);
        } else {
            assert!(receive(&socket, NOTHING).is_none(), "{overload}");
        }
    }
}

#[test]
fn item_43_a_dead_upstream_is_replaced_by_another() {
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = dead.local_addr().unwrap();
    let closed = free_address();
    let alive = Upstream::new(plain);
    let server = server(&[silent, closed, alive.address], PREFIX);
    for i in 0..30 {
        let got = ask(&format!("n{i}.test"), Rtype::AAAA).of(&server);
        assert_eq!(got.addresses(), [mapped("192.0.2.1")], "query {i}");
    }
    // After one timeout, the silent upstream is selected last. After three timeouts, it is marked
    // down. Otherwise a third of the 60 upstream queries would wait for this upstream.
    let waited = server.running.metrics().total(Count::UpstreamTimeout);
    assert!((1..10).contains(&waited), "{waited} questions waited for it");
    let text = server.running.metrics_text();
    let failures = |upstream| {
        let start = format!("dns64d_upstream_server_failures_total{{upstream=\"{upstream}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse::<f64>().unwrap()
    };
    assert!(
        failures(silent) >= 1.0 && failures(closed) >= 1.0 && failures(alive.address) == 0.0,
        "{text}"
    );
}

#[test]
fn item_43_retries_to_a_silent_upstream_are_bounded() {
    const NAMES: u64 = 3_000;
    let (upstream, on) = switchable();
    on.store(false, Ordering::Relaxed);
    let server = server(&[upstream.address], PREFIX);
    let started = Instant::now();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let metrics = server.running.metrics();
    for i in 0..NAMES {
        socket.send_to(&ask(&format!("n{i}.test"), Rtype::A).bytes(), server.address).unwrap();
        if i % 200 == 199 {
            eventually("they have been read", || metrics.total(Count::UdpA) == i + 1);
        }
    }
    eventually("all have their SERVFAIL", || metrics.total(Count::Servfail) == NAMES);
    // Without the retry budget, each query would be retransmitted three times in 1.7 s. The budget
    // permits a thousand retransmissions, and a hundred more per second.
    let again = metrics.total(Count::RetrySent);
    let most = 1_000 + 100 * (started.elapsed().as_secs() + 1);
    assert!((1..=most).contains(&again), "{again} of {most}");
    assert_eq!(metrics.total(Count::UpstreamUdp), NAMES + again);
    assert!(metrics.total(Count::RetryWithheld) > 0);
    // New queries are still sent to the upstream, so its recovery is detected.
    on.store(true, Ordering::Relaxed);
    assert_eq!(ask("back.test", Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
}

#[test]
fn item_43_an_error_does_not_wait_for_dead_upstreams() {
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    dead.set_nonblocking(true).unwrap();
    let asked = || std::iter::from_fn(|| dead.recv(&mut [0; 512]).ok()).count();
    let broken = Upstream::new(|q| q.rcode(Rcode::SERVFAIL).send());
    let server = server(
        &[dead.local_addr().unwrap(), broken.address],
        &format!("{PREFIX}[cache]\nfailure-ttl = 1\n"),
    );
    // Sends queries until the dead upstream is marked down.
    for i in 0..12 {
        ask(&format!("first{i}.test"), Rtype::A).of(&server);
    }
    assert!(asked() > 0, "no query has reached the dead upstream");
    for i in 0..5 {
        assert_eq!(ask(&format!("then{i}.test"), Rtype::A).of(&server).rcode(), Rcode::SERVFAIL);
    }
    // A query to the dead upstream would wait for a timeout. At most one query may be sent to it,
    // as a probe.
    let again = asked();
    assert!(again <= 1, "{again} of 5 questions asked it");
}

#[test]
fn an_alias_without_room_for_its_target_is_malformed() {
    // A CNAME without data. Its target would be in the following octets, which are cut off.
    let upstream = Upstream::new(|q| {
        let mut bytes = q.answer().cname(&q.name, 60, "b.test").without_edns().bytes();
        let data = bytes.windows(2).position(|w| w == [1, b'b']).unwrap();
        bytes[data - 2..data].fill(0);
        bytes[data] = 0;
        bytes.truncate(data + 1);
        match q.name.as_str() {
            "bad.test" => vec![Act::Send(bytes)],
            _ => plain(q),
        }
    });
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(ask("bad.test", Rtype::AAAA).of(&server).rcode(), Rcode::SERVFAIL);
    assert_eq!(ask("good.test", Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
}

#[test]
fn item_43_failures_do_not_hide_other_answers() {
    let broken = Upstream::new(|q| q.rcode(Rcode::SERVFAIL).send());
    let alive = Upstream::new(plain);
    let server = server(&[broken.address, alive.address], PREFIX);
    for i in 0..20 {
        assert_eq!(ask(&format!("n{i}.test"), Rtype::A).of(&server).rcode(), Rcode::NOERROR);
    }
    assert!(!broken.asked().is_empty() && !alive.asked().is_empty());
}

#[test]
fn item_43_all_upstreams_dead_is_servfail_except_cached() {
    let (upstream, on) = switchable();
    let server = server(&[upstream.address], &format!("{PREFIX}[cache]\nfailure-ttl = 1\n"));
    assert_eq!(ask("kept.test", Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
    on.store(false, Ordering::Relaxed);
    assert_eq!(ask("new.test", Rtype::AAAA).of(&server).rcode(), Rcode::SERVFAIL);
    assert_eq!(ask("kept.test", Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
    on.store(true, Ordering::Relaxed);
    eventually("the recovery of the upstream is detected", || {
        ask("new.test", Rtype::AAAA).of(&server).addresses() == [mapped("192.0.2.1")]
    });
}

#[test]
fn item_43_an_upstream_that_dies_and_returns() {
    let address = Upstream::new(plain).address;
    // No server listens at this address now.
    let server = server(
        &[address],
        &format!("{PREFIX}[cache]\nfailure-ttl = 1\n[forwarding]\ntimeout = '300ms'\n"),
    );
    assert_eq!(ask("a.test", Rtype::AAAA).of(&server).rcode(), Rcode::SERVFAIL);
    let _returned = Upstream::at(address, plain);
    eventually("it is used again", || {
        ask("b.test", Rtype::AAAA).of(&server).rcode() == Rcode::NOERROR
    });
}

#[test]
fn malformed_packets_from_both_sides_stop_nothing() {
    let upstream = Upstream::new(|q| {
        let mut rng = rand::rng();
        let good = plain(q);
        let [Act::Send(bytes)] = &good[..] else { unreachable!("one act") };
        // First damaged copies with the right ID, then the correct answer.
        let mut acts: Vec<Act> = (0..3)
            .map(|_| {
                let mut damaged = bytes.clone();
                for _ in 0..3 {
                    let at = rng.random_range(2..damaged.len());
                    damaged[at] = rng.random();
                }
                damaged.truncate(rng.random_range(12..=bytes.len()));
                // Without this change, the copy could be a valid answer by chance.
                damaged[4] = 0xff;
                Act::Send(damaged)
            })
            .collect();
        acts.extend(good);
        acts
    });
    let server = server(&[upstream.address], PREFIX);
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut rng = rand::rng();
    let good = ask("www.test", Rtype::AAAA).edns(1232).bytes();
    for i in 0..200 {
        // Some of the 50 malformed datagrams wait in the socket's buffer together with the query.
        // More datagrams could fill the buffer, so that the query would be lost.
        for _ in 0..50 {
            let mut damaged = good.clone();
            for _ in 0..rng.random_range(1..6) {
                let at = rng.random_range(0..damaged.len());
                damaged[at] = rng.random();
            }
            damaged.truncate(rng.random_range(0..=good.len()));
            let _ = noise.send_to(&damaged, server.address);
        }
        let got = ask(&format!("n{i}.test"), Rtype::AAAA).of(&server);
        assert_eq!(got.addresses(), [mapped("192.0.2.1")]);
    }
    assert!(server.running.metrics().total(Count::Formerr) > 0);
}

/// Total octets of the queries from one address, total octets of the UDP replies, and the number of
/// untruncated replies.
struct Exchange {
    asked: usize,
    got: usize,
    whole: u64,
}

/// Sends `queries` queries of a kind, one after the other.
fn exchange(query: &Ask, server: &Server, queries: u64) -> Exchange {
    let mut sums = Exchange { asked: 0, got: 0, whole: 0 };
    for _ in 0..queries {
        let got = query.of(server);
        sums.asked += query.bytes().len();
        sums.got += got.len();
        if got.message.header().tc() {
            assert!(got.answers().is_empty() && got.len() < 100, "{}", got.len());
        } else {
            sums.whole += 1;
        }
    }
    sums
}

#[test]
fn item_42_unverified_replies_are_limited_by_octets() {
    // The first label is the number of addresses.
    let upstream = Upstream::new(|q| {
        let count: u8 = q.name.split('.').next().unwrap().parse().unwrap();
        let address = |n| format!("192.0.2.{n}");
        (0..count).fold(q.answer(), |reply, n| reply.a(&q.name, 300, &address(n))).send()
    });
    let limits = "[limits]\namplification-rate = 1000\namplification-burst = 5000\n";
    // The replies are shorter or longer than 512 octets (RFC 1035). `whole` is the number of
    // untruncated replies that the burst permits. Queries with a cookie are larger, so the smallest
    // reply is below four times their size.
    for (name, edns, whole, is_always_whole) in [
        ("10.test", None, 58, true),
        ("28.test", None, 13, false),
        ("60.test", Some(1232), 5, false),
    ] {
        let server = server(&[upstream.address], &format!("{PREFIX}{limits}"));
        let query = || Ask { edns, ..ask(name, Rtype::A) };
        let started = Instant::now();
        let sums = exchange(&query(), &server, 200);
        let granted = 5_000 + 1_000 * (started.elapsed().as_secs() as usize + 1);
        assert!(sums.got <= 4 * sums.asked + granted, "{name}: {} of {granted}", sums.got);
        assert!(sums.whole >= whole, "{name}: {} whole replies", sums.whole);
        let withheld = server.running.metrics().total(Count::LargeWithheld);
        assert_eq!(withheld, 200 - sums.whole, "{name}");
        // Clients with a valid cookie and clients in other networks are not limited.
        let cookie = query().option(10, &[7; 8]).of(&server).options()[&10].clone();
        for _ in 0..20 {
            assert!(!query().option(10, &cookie).of(&server).message.header().tc(), "{name}");
            assert!(!query().over_tcp(&server).message.header().tc(), "{name}");
        }
        assert!(!query().from("127.9.9.9").of(&server).message.header().tc(), "{name}");
        // A server cookie from a different server does not count as valid.
        let invented = query().option(10, &[&cookie[..8], &[9; 16]].concat());
        let sums = exchange(&invented, &server, 60);
        assert_eq!(sums.whole == 60, is_always_whole, "{name}: {}", sums.whole);
    }
}

#[test]
fn item_42_replies_of_usual_size_are_not_limited() {
    let upstream = Upstream::new(plain);
    let limits = "[limits]\namplification-rate = 1\namplification-burst = 0\n";
    let server = server(&[upstream.address], &format!("{PREFIX}{limits}"));
    for rtype in [Rtype::A, Rtype::AAAA] {
        for query in [ask("www.test", rtype), ask("www.test", rtype).edns(1232)] {
            assert_eq!(exchange(&query, &server, 50).whole, 50, "{rtype}");
        }
    }
    assert_eq!(server.running.metrics().total(Count::LargeWithheld), 0);
}
