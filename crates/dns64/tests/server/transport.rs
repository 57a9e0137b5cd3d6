//! Items 29 to 35 and 44.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dns64::config::Settings;
use dns64::server::{Activated, bind};
use domain::base::iana::{Rcode, Rtype};

use crate::harness::*;

/// The first label is the number of A records: `50.test`.
fn many() -> Upstream {
    Upstream::new(|q| {
        let count: u32 = q.name.split('.').next().unwrap().parse().unwrap_or(1);
        match (q.qtype, q.tcp) {
            (Rtype::AAAA, _) => q.nodata(60, 60).send(),
            (_, false) if count > 70 => q.answer().truncated().send(),
            _ => {
                let add = |reply: Reply, i: u32| {
                    reply.a(&q.name, 60, &format!("192.0.{}.{}", i / 256, i % 256))
                };
                (0..count).fold(q.answer(), add).send()
            }
        }
    })
}

#[test]
fn item_29_truncated_replies_have_no_partial_set() {
    let upstream = many();
    let server = server(&[upstream.address], PREFIX);
    // 50 A records are 844 octets, 50 AAAA records 1444.
    let got = ask("50.test", Rtype::AAAA).edns(4096).of(&server);
    assert!(got.message.header().tc() && got.answers().is_empty() && got.len() <= 1232);
    let whole = ask("50.test", Rtype::AAAA).edns(4096).over_tcp(&server);
    assert!(!whole.message.header().tc());
    assert_eq!(whole.addresses().len(), 50);
    let fits = ask("40.test", Rtype::AAAA).edns(1232).of(&server);
    assert_eq!(fits.addresses().len(), 40);
    let small = ask("40.test", Rtype::AAAA).of(&server);
    assert!(small.message.header().tc() && small.len() <= 512);
}

#[test]
fn item_30_truncated_upstream_answers_are_fetched_over_tcp() {
    let upstream = many();
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(ask("120.test", Rtype::AAAA).over_tcp(&server).addresses().len(), 120);
    assert_eq!(upstream.asked(), ["120.test AAAA", "120.test A", "120.test A tcp"]);
    assert!(ask("120.test", Rtype::AAAA).edns(1232).of(&server).message.header().tc());
    assert_eq!(upstream.asked().len(), 3, "kept whole");
}

#[test]
fn item_30_tcp_queries_may_be_pipelined_and_overtake_each_other() {
    let may_answer = Arc::new(AtomicBool::new(false));
    let is_time = Arc::clone(&may_answer);
    let upstream = Upstream::new(move |q| {
        let answer = q.answer().a(&q.name, 60, "192.0.2.1").bytes();
        match q.name.as_str() {
            "slow.test" => vec![Act::Until(Arc::clone(&is_time)), Act::Send(answer)],
            _ => vec![Act::Send(answer)],
        }
    });
    let server = patient_server(&[upstream.address], PREFIX);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let (slow, quick) = (ask("slow.test", Rtype::A), ask("quick.test", Rtype::A));
    write_tcp(&mut stream, &slow.bytes());
    write_tcp(&mut stream, &quick.bytes());
    let mut next_id = || Got::new(&read_tcp(&mut stream).unwrap()).message.header().id();
    assert_eq!(next_id(), quick.id);
    may_answer.store(true, Ordering::Relaxed);
    assert_eq!(next_id(), slow.id);
}

#[test]
fn item_30_idle_and_slow_tcp_clients_are_closed() {
    let upstream = many();
    let limits = format!("{PREFIX}[limits]\ntcp-idle = '300ms'\ntcp-per-client = 3\n");
    let server = server(&[upstream.address], &limits);
    let mut slow: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    // Each client sends only the first octet of a message.
    slow.iter_mut().for_each(|stream| stream.write_all(&[0]).unwrap());
    let mut fourth = TcpStream::connect(server.address).unwrap();
    fourth.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(fourth.read(&mut [0; 1]).unwrap_or(0), 0, "more than tcp-per-client");
    assert_eq!(ask("1.test", Rtype::A).of(&server).rcode(), Rcode::NOERROR, "UDP goes on");
    for stream in &mut slow {
        stream.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "closed after tcp-idle");
    }
    assert_eq!(
        ask("1.test", Rtype::A).over_tcp(&server).rcode(),
        Rcode::NOERROR,
        "there is room again"
    );
}

#[test]
fn item_30_a_tcp_client_that_never_reads_is_let_go() {
    let upstream = many();
    let server = server(
        &[upstream.address],
        &format!("{PREFIX}[limits]\ntcp-idle = '300ms'\ntcp-pipeline = 10\n"),
    );
    let mut deaf = TcpStream::connect(server.address).unwrap();
    deaf.set_write_timeout(Some(SOON)).unwrap();
    // Sends queries until the buffers of both sides are full, first with replies, then with
    // queries. The server stops reading from a client that does not read replies, so that the
    // server's memory does not grow.
    let query = ask("120.test", Rtype::AAAA).bytes();
    let (give_up, mut asked) = (Instant::now() + SOON * 4, 0_u64);
    let refused = loop {
        assert!(Instant::now() < give_up, "still there after {asked} queries");
        let mut framed = (query.len() as u16).to_be_bytes().to_vec();
        framed.extend(&query);
        match deaf.write_all(&framed) {
            Ok(()) => asked += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{refused}"
    );
    assert_eq!(
        ask("1.test", Rtype::A).over_tcp(&server).rcode(),
        Rcode::NOERROR,
        "others are served"
    );
    eventually("no query is left", || server.running.metrics().in_flight() == 0);
}

#[test]
fn item_31_edns_is_of_each_hop() {
    let upstream = many();
    let server = server(&[upstream.address], PREFIX);
    let plain = ask("1.test", Rtype::AAAA).of(&server);
    assert!(plain.message.opt().is_none(), "no OPT in reply to a query without one");
    let edns = ask("1.test", Rtype::AAAA).option(65_001, b"what is this").of(&server);
    let opt = edns.message.opt().unwrap();
    assert_eq!(opt.udp_payload_size(), 1232);
    assert!(!edns.options().contains_key(&65_001), "unknown options are not echoed");
    let sent =
        upstream.queries()[0].message.opt().expect("EDNS towards the upstream").udp_payload_size();
    assert_eq!(sent, 1232);

    let mut version = ask("1.test", Rtype::AAAA).edns(1232).bytes();
    let at = version.len() - 5;
    version[at] = 1;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&version, server.address).unwrap();
    let got = receive(&socket, SOON).unwrap();
    assert_eq!(got.message.opt_rcode().to_int(), 16, "BADVERS");
}

#[test]
fn item_31_upstreams_without_edns_are_asked_without() {
    let upstream = Upstream::new(|q| match q.message.opt() {
        Some(_) => q.rcode(Rcode::FORMERR).without_edns().send(),
        None => q.answer().a(&q.name, 60, "192.0.2.1").without_edns().send(),
    });
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(ask("a.test", Rtype::A).of(&server).answers().len(), 1);
    assert_eq!(ask("b.test", Rtype::A).of(&server).answers().len(), 1);
    assert_eq!(upstream.asked(), ["a.test A", "a.test A", "b.test A"], "detected once");
}

#[test]
fn item_31_upstreams_without_edns_are_queried_without() {
    let upstream = Upstream::new(|q| match q.message.opt() {
        // Only a header.
        Some(_) => {
            let mut header = q.rcode(Rcode::FORMERR).bytes();
            header.truncate(12);
            header[4..].fill(0);
            vec![Act::Send(header)]
        }
        None => q.answer().a(&q.name, 60, "192.0.2.1").without_edns().send(),
    });
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(ask("a.test", Rtype::A).of(&server).answers().len(), 1);
    assert_eq!(upstream.asked().len(), 2);
}

#[test]
fn item_31_an_error_for_one_query_keeps_edns() {
    for speaks in [true, false] {
        let upstream = Upstream::new(move |q| match (q.qtype, speaks) {
            (Rtype::ANY, true) => q.rcode(Rcode::NOTIMP).send(),
            (Rtype::ANY, false) => q.rcode(Rcode::NOTIMP).without_edns().send(),
            _ => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        });
        let server = server(&[upstream.address], PREFIX);
        assert_eq!(ask("a.test", Rtype::ANY).dnssec_ok().of(&server).rcode(), Rcode::NOTIMP);
        ask("a.test", Rtype::A).dnssec_ok().of(&server);
        let queries = upstream.queries();
        assert!(queries.last().unwrap().dnssec_ok(), "asked without EDNS from then on");
        assert_eq!(queries.len(), if speaks { 2 } else { 3 });
    }
}

#[test]
fn item_31_queries_with_edns_that_get_an_error_get_edns() {
    let server = server(&[many().address], PREFIX);
    let got = ask("a.test", Rtype::AXFR).edns(1232).of(&server);
    assert_eq!((got.rcode(), got.message.opt().is_some()), (Rcode::NOTIMP, true));
    assert!(ask("a.test", Rtype::AXFR).of(&server).message.opt().is_none());
}

#[test]
fn item_30_another_upstream_is_asked_over_tcp_too() {
    let broken = Upstream::new(|q| match q.tcp {
        true => q.rcode(Rcode::SERVFAIL).send(),
        false => q.answer().truncated().send(),
    });
    let whole = many();
    for upstreams in [[broken.address, whole.address], [whole.address, broken.address]] {
        let server = server(&upstreams, PREFIX);
        for i in 0..8 {
            // Different names, so that each upstream is the first choice for some.
            let name = format!("{}.n{i}.test", 100 + i);
            assert_eq!(ask(&name, Rtype::A).over_tcp(&server).answers().len(), 100 + i, "{name}");
        }
    }
    assert!(broken.asked().iter().any(|line| line.ends_with("tcp")));
}

#[test]
fn item_29_large_sets_are_truncated_and_whole_over_tcp() {
    let upstream = many();
    let server = server(&[upstream.address], PREFIX);
    let got = ask("2000.test", Rtype::AAAA).edns(1232).of(&server);
    assert!(got.message.header().tc() && got.answers().is_empty());
    assert_eq!(ask("2000.test", Rtype::AAAA).over_tcp(&server).addresses().len(), 2000);
    // At most 2 000 records are synthesized (item 11), both for a new answer and for a cached one.
    for _ in 0..2 {
        let got = ask("4000.test", Rtype::AAAA).over_tcp(&server);
        assert_eq!((got.rcode(), got.addresses().len()), (Rcode::NOERROR, 2000));
    }
    assert!(
        server.running.metrics_text().contains("replies_truncated_total 1"),
        "{}",
        server.running.metrics_text()
    );
}

#[test]
fn both_families_are_served_side_by_side() {
    let upstream = many();
    let text = settings(&[upstream.address], PREFIX).to_toml();
    let old = text.lines().find(|line| line.starts_with("listen")).unwrap();
    // A port that is free for UDP may be in use for TCP: try again.
    let listening = (0..20).find_map(|_| {
        let free = UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port();
        let listen = format!("listen = ['[::]:{free}', '0.0.0.0:{free}']");
        let settings =
            Settings::from_text(&text.replace(old, &listen), "test.toml".as_ref()).unwrap();
        Some((bind(settings, Activated::default()).ok()?, free))
    });
    let (bound, free) = listening.expect("a free port");
    let running = bound.start().unwrap();
    for from in ["127.0.0.1", "::1"] {
        let server = SocketAddr::new(from.parse().unwrap(), free);
        let got = ask("1.test", Rtype::A).from(from).try_of(server, SOON).expect(from);
        assert_eq!(got.answers().len(), 1, "{from}");
        TcpStream::connect(server).expect(from);
    }
    drop(running);
}

#[test]
fn ipv4_clients_of_a_dual_stack_socket_are_ipv4() {
    let upstream = many();
    // Without `BindIPv6Only=`, systemd binds sockets in this way.
    let udp = UdpSocket::bind("[::]:0").unwrap();
    let port = udp.local_addr().unwrap().port();
    let activated = Activated { udp: vec![udp], tcp: Vec::new() };
    // The upstream 127.0.0.1 is this server.
    let both = [format!("0.0.0.0:{port}"), format!("[::]:{port}")].map(|at| at.parse().unwrap());
    assert_eq!(activated.addresses(), both);
    let running = bind(settings(&[upstream.address], PREFIX), activated).unwrap().start().unwrap();
    let got =
        ask("1.test", Rtype::A).try_of(([127, 0, 0, 1], port).into(), SOON).expect("an answer");
    assert_eq!((got.rcode(), got.answers().len()), (Rcode::NOERROR, 1));
    drop(running);
}

#[test]
fn item_32_forged_answers_are_not_taken() {
    let upstream = Upstream::new(|q| {
        let forged = || q.answer().a(&q.name, 60, "203.0.113.66").bytes();
        let mut wrong_id = forged();
        wrong_id[1] ^= 1;
        let mut wrong_name = forged();
        wrong_name[13] ^= 1;
        let mut query = forged();
        query[2] &= 0x7f;
        let true_answer = q.answer().a(&q.name, 60, "192.0.2.1").bytes();
        vec![
            Act::Send(wrong_id),
            Act::Send(wrong_name),
            Act::Send(query),
            Act::SendFromElsewhere(forged()),
            Act::Send(vec![0; 5]),
            Act::Wait(Duration::from_millis(100)),
            Act::Send(true_answer),
        ]
    });
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(ask("www.test", Rtype::A).of(&server).answers(), ["www.test 60 a 192.0.2.1"]);
    assert!(
        server.running.metrics_text().contains("dns64d_upstream_results_total{result=\"stray\"} 4")
    );
}

#[test]
fn item_32_ports_and_ids_are_random() {
    let upstream = many();
    let server = server(&[upstream.address], PREFIX);
    for i in 0..200 {
        let mut query = ask(&format!("1.n{i}.test"), Rtype::A);
        query.id = 7;
        assert_eq!(query.of(&server).message.header().id(), 7);
    }
    let queries = upstream.queries();
    let ports: HashSet<u16> = queries.iter().map(|q| q.from.port()).collect();
    let ids: HashSet<u16> = queries.iter().map(|q| q.message.header().id()).collect();
    assert!(ports.len() > 40, "{} ports of 64 for 200 queries", ports.len());
    assert!(ids.len() > 190, "{} ids for 200 queries", ids.len());
}

#[test]
fn item_33_clients_keep_case_upstreams_get_random_case() {
    let upstream = many();
    let server =
        server(&[upstream.address], &format!("{PREFIX}[forwarding]\nrandomize-case = true\n"));
    for spelling in ["1.WwW.example.TEST", "1.www.EXAMPLE.test"] {
        for qtype in [Rtype::AAAA, Rtype::A] {
            let got = ask(spelling, qtype).of(&server);
            assert_eq!(got.message.sole_question().unwrap().qname().to_string(), spelling);
            assert_eq!(got.answers().len(), 1);
        }
    }
    let sent: Vec<String> = upstream
        .queries()
        .iter()
        .map(|q| q.message.sole_question().unwrap().qname().to_string())
        .collect();
    assert_eq!(sent.len(), 2);
    // Fourteen letters twice: all lower case once in 2²⁸ runs.
    assert!(sent.iter().any(|name| *name != name.to_lowercase()), "{sent:?}");
}

#[test]
fn item_33_an_upstream_that_changes_case_is_asked_over_tcp() {
    let upstream = Upstream::new(|q| {
        let mut answer = q.answer().a(&q.name, 60, "192.0.2.1").bytes();
        answer[12..12 + q.name.len()].make_ascii_lowercase();
        vec![Act::Send(answer)]
    });
    let forwarding = "[forwarding]\nrandomize-case = true\n";
    let server = server(&[upstream.address], &format!("{PREFIX}{forwarding}"));
    let [one, other] = ["one", "other"].map(|n| format!("{n}-long-name-with-many-letters.test"));
    for name in [&one, &other] {
        assert_eq!(ask(name, Rtype::A).of(&server).answers().len(), 1);
    }
    let asked = [format!("{one} A"), format!("{one} A tcp"), format!("{other} A")];
    assert_eq!(upstream.asked(), asked);
}

#[test]
fn item_34_cookies() {
    let upstream = many();
    let limited = format!("{PREFIX}[limits]\nclient-rate = 1\nclient-burst = 2\n");
    let server = server(&[upstream.address], &limited);
    let got = ask("1.test", Rtype::A).option(10, &[7; 8]).of(&server);
    let cookie = got.options()[&10].clone();
    assert_eq!(
        (cookie.len(), &cookie[..8], cookie[8]),
        (24, &[7; 8][..], 1),
        "RFC 9018: version 1"
    );
    let mut short = ask("1.test", Rtype::A).option(10, &[7; 5]);
    short.from = "127.0.0.2".parse().unwrap();
    assert_eq!(short.of(&server).rcode(), Rcode::FORMERR);

    // Above the rate limit, a client with a valid cookie gets a truncated reply, and other clients
    // get no reply.
    assert!(ask("1.test", Rtype::A).try_of(server.address, SOON).is_some());
    assert!(ask("1.test", Rtype::A).try_of(server.address, NOTHING).is_none());
    let proven = ask("1.test", Rtype::A).option(10, &cookie).of(&server);
    assert!(proven.message.header().tc() && proven.answers().is_empty());
    // Each query and each reply is counted, including those for limited clients.
    let counted = |kind: &str| -> u64 {
        let text = server.running.metrics_text();
        let of = |line: &&str| line.starts_with(&format!("dns64d_{kind}_total{{"));
        let number = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        text.lines().filter(of).map(number).sum()
    };
    assert_eq!((counted("queries"), counted("replies")), (4, 4));
    let stolen = ask("1.test", Rtype::A).option(10, &cookie);
    let mut forged = cookie.clone();
    forged[20] ^= 1;
    assert!(ask("1.test", Rtype::A).option(10, &forged).try_of(server.address, NOTHING).is_none());
    assert!(stolen.try_of(server.address, SOON).is_some());
}

/// RFC 7873 §5.3: a client with the server's cookie ignores replies without a cookie.
#[test]
fn item_34_errors_have_cookies() {
    let upstream = many();
    let access = format!("{PREFIX}[access]\nallow = ['127.0.0.1/32']\n");
    let server = server(&[upstream.address], &access);
    for (qtype, from, rcode) in
        [(Rtype::AXFR, "127.0.0.1", Rcode::NOTIMP), (Rtype::A, "127.0.0.9", Rcode::REFUSED)]
    {
        let got = ask("1.test", qtype).option(10, &[7; 8]).from(from).of(&server);
        let cookie = got.options()[&10].clone();
        assert_eq!((got.rcode(), cookie.len(), &cookie[..8]), (rcode, 24, &[7; 8][..]));
    }
}

/// 4 094 A records fill a message and leave no room for an OPT record.
#[test]
fn a_failed_reply_is_counted_with_the_sent_rcode() {
    let upstream = Upstream::new(|q| {
        let add = |reply: Reply, n: u32| reply.a("a.test", 60, &Ipv4Addr::from(n).to_string());
        match q.tcp {
            true => (0..4_094).fold(q.answer(), add).without_edns().send(),
            false => q.answer().truncated().send(),
        }
    });
    let server = server(&[upstream.address], PREFIX);
    let got = ask("a.test", Rtype::A).edns(1_232).over_tcp(&server);
    assert_eq!((got.rcode(), got.answers().len()), (Rcode::SERVFAIL, 0));
    let text = server.running.metrics_text();
    for line in
        ["dns64d_replies_total{rcode=\"servfail\"} 1", "dns64d_replies_total{rcode=\"noerror\"} 0"]
    {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
}

/// If the server reads a query of one of sixteen clients, the server also replies, unless the query
/// arrives exactly at the stop. If the server did not wait for TCP connections to close, all
/// sixteen clients would lose a query.
#[test]
fn a_stop_answers_queries_read_over_tcp() {
    let upstream = many();
    let server = server(&[upstream.address], PREFIX);
    let (address, query) = (server.address, ask("1.test", Rtype::A).bytes());
    ask("1.test", Rtype::A).over_tcp(&server);
    let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
    let (answered, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let client = || {
        // Sends queries until the port is closed.
        while let Ok(mut stream) = TcpStream::connect(address) {
            stream.set_read_timeout(Some(SOON)).unwrap();
            // If this thread was delayed, the server may have closed the connection. In that case
            // no query is sent.
            stream.set_nonblocking(true).unwrap();
            let is_over = matches!(stream.peek(&mut [0; 1]), Ok(0));
            stream.set_nonblocking(false).unwrap();
            if is_over {
                continue;
            }
            let sent = stream.write_all(&framed);
            match sent.and_then(|()| stream.read(&mut [0; 512])) {
                Ok(0) => left.fetch_add(1, Ordering::Relaxed),
                Ok(_) => answered.fetch_add(1, Ordering::Relaxed),
                // A reset shows that the server did not read the query, so the client may send the
                // query to another server.
                Err(_) => 0,
            };
        }
    };
    std::thread::scope(|scope| {
        (0..16).for_each(|_| drop(scope.spawn(client)));
        eventually("clients come", || answered.load(Ordering::Relaxed) > 100);
        drop(server);
    });
    let left = left.into_inner();
    assert!(left < 10, "{left} of 16 were left without a reply");
}

#[test]
fn item_35_extended_errors_explain() {
    let upstream = Upstream::new(|q| match (q.name.as_str(), q.qtype) {
        ("dead.test", _) => Vec::new(),
        ("broken.test", _) => q.rcode(Rcode::SERVFAIL).send(),
        (_, Rtype::A) => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        _ => q.nodata(60, 60).send(),
    });
    let server = server(&[upstream.address], &format!("{PREFIX}[forwarding]\ntimeout = '200ms'\n"));
    let ede = |name: &str| ask(name, Rtype::AAAA).edns(1232).of(&server).ede();
    assert_eq!(ede("made.test"), Some(29));
    assert_eq!(ede("dead.test"), Some(22));
    assert_eq!(ede("broken.test"), None, "an upstream answered without a reason");
    assert_eq!(ask("made.test", Rtype::AAAA).of(&server).ede(), None, "not without EDNS");
    assert_eq!(ask("made.test", Rtype::A).edns(1232).of(&server).ede(), None);
}

#[test]
fn item_44_messages_that_are_not_queries() {
    let upstream = many();
    let server = server(&[upstream.address], PREFIX);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let good = ask("1.test", Rtype::A).bytes();
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    for (bytes, rcode) in [
        (changed(5, 0), Rcode::FORMERR),
        (changed(5, 2), Rcode::FORMERR),
        (changed(2, 0x28), Rcode::NOTIMP),
        (good[..15].to_vec(), Rcode::FORMERR),
    ] {
        socket.send_to(&bytes, server.address).unwrap();
        let got = receive(&socket, SOON).unwrap();
        assert_eq!(got.rcode(), rcode);
        assert_eq!(got.message.as_slice()[..2], good[..2]);
    }
    socket.send_to(&changed(2, 0x81), server.address).unwrap();
    socket.send_to(&[1, 2, 3], server.address).unwrap();
    socket.send_to(&[], server.address).unwrap();
    assert!(receive(&socket, NOTHING).is_none(), "responses and fragments get no reply");
}

/// RFC 7873 §5.4: a client may request a cookie without a question. RFC 6891 §6.1.1: error replies
/// contain OPT.
#[test]
fn item_44_replies_without_question_have_opt() {
    let upstream = many();
    let server = server(&[upstream.address], PREFIX);
    let query = ask("1.test", Rtype::A).option(10, &[7; 8]).bytes();
    let (header, rest) = query.split_at(12);
    let (question, opt) = rest.split_at("\x011\x04test\0".len() + 4);
    let of = |opcode: u8, questions: u8| {
        let mut bytes = header.to_vec();
        (bytes[2], bytes[5]) = (opcode << 3, questions);
        (0..questions).for_each(|_| bytes.extend(question));
        bytes.extend(opt);
        bytes
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (bytes, rcode) in
        [(of(0, 0), Rcode::NOERROR), (of(0, 2), Rcode::FORMERR), (of(5, 1), Rcode::NOTIMP)]
    {
        socket.send_to(&bytes, server.address).unwrap();
        let mut stream = connect(Ipv4Addr::LOCALHOST.into(), server.address);
        stream.set_read_timeout(Some(SOON)).unwrap();
        write_tcp(&mut stream, &bytes);
        let over_tcp = read_tcp(&mut stream).expect("a reply over TCP");
        for got in [receive(&socket, SOON).unwrap(), Got::new(&over_tcp)] {
            let options = got.options();
            let cookie = options.get(&10).expect("a COOKIE option");
            assert_eq!((got.rcode(), cookie.len(), &cookie[..8]), (rcode, 24, &[7; 8][..]));
        }
    }
}
