//! Tests of the reference server that use sockets. The reference server runs between a client and the test
//! authoritative server.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use conform::ask::{Connection, PATIENCE, datagram};
use conform::authority::view::View;
use conform::authority::{self, Authority, AuthorityConfig};
use conform::label::EVIL6;
use conform::message::{Message, Name, Record, name, rcode};
use domain::base::iana::Rtype;

use super::*;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const MADE: &str = "64:ff9b::102:304";

/// A test authoritative server, and a reference server that forwards queries to it.
struct Pair {
    far: Authority,
    reference: Reference,
}

impl Pair {
    fn new(change: impl FnOnce(&mut Rules)) -> Pair {
        let zone = name("conform.example");
        let ns = Ipv4Addr::LOCALHOST;
        let far =
            authority::start(&AuthorityConfig { listen: vec![LOOPBACK], zone: zone.clone(), ns })
                .unwrap();
        let mut rules = Rules::default();
        change(&mut rules);
        let reference = start(ReferenceConfig {
            listen: LOOPBACK,
            upstream: far.addresses()[0],
            zone,
            prefixes: vec!["64:ff9b::/96".parse().unwrap()],
            rules,
            hooks: Hooks::default(),
        });
        Pair { far, reference: reference.unwrap() }
    }

    fn ask(&self, query: &Message) -> Message {
        let octets = datagram(self.reference.address(), &query.octets(), PATIENCE).unwrap();
        let reply = Message::parse(&octets.expect("a reply")).unwrap();
        assert_eq!((reply.id, reply.flags.qr), (query.id, true));
        reply
    }

    fn aaaa(&self, labels: &str) -> Message {
        self.ask(&Message::query(&of(labels), Rtype::AAAA))
    }

    /// Sends a query with DO and the given CD bit, and returns the reply.
    fn signed(&self, labels: &str, cd: bool) -> Message {
        let mut query = Message::query(&of(labels), Rtype::AAAA);
        query.edns.as_mut().unwrap().dnssec_ok = true;
        query.flags.cd = cd;
        self.ask(&query)
    }

    /// Returns the number of upstream queries for a name and a type.
    fn asked(&self, labels: &str, qtype: Rtype) -> usize {
        let asked = self.far.log().asked(&of(labels)).unwrap();
        asked.iter().filter(|asked| asked.qtype == qtype.to_int()).count()
    }
}

fn of(labels: &str) -> Name {
    name(&format!("{labels}.conform.example"))
}

fn addresses(reply: &Message) -> Vec<String> {
    reply.answer.iter().filter_map(Record::ipv6).map(|v6| v6.to_string()).collect()
}

fn ttls(reply: &Message) -> Vec<u32> {
    reply.answers(Rtype::AAAA).map(|record| record.ttl).collect()
}

#[test]
fn rfc_6147_5_1_synthesis() {
    let pair = Pair::new(|_| {});
    let v4 = "v4-1-2-3-4";
    let own = "v6-20010db8000000000000000000000001";
    for (labels, expected) in [
        (format!("x1.{v4}"), vec![MADE]),
        (format!("x2.{v4}.{own}"), vec!["2001:db8::1"]),
        (format!("x3.{v4}.aaaa-rcode-2"), vec![MADE]),
        (format!("x4.{v4}.v6-00000000000000000000ffff01020304"), vec![MADE]),
        (format!("x5.cname.cname.{v4}"), vec![MADE]),
        (format!("x6.half.cname.half.cname.{v4}"), vec![MADE]),
        (format!("x7.half.hop.{v4}"), vec![MADE]),
        (format!("x8.dname.{v4}"), vec![MADE]),
        (format!("x9.{v4}.case"), vec![MADE]),
        (format!("xa.{v4}.aaaa-tc.a-tc"), vec![MADE]),
        (format!("xb.{v4}.all-noedns"), vec![MADE]),
        (format!("xc.{v4}.a-badid"), vec![MADE]),
        (format!("xd.{v4}.a-badport"), vec![MADE]),
        (format!("xe.{v4}.a-badquestion"), vec![MADE]),
        (format!("xf.{v4}.mixed"), vec![MADE]),
        ("xg.v4-10-0-0-1".to_owned(), vec![]),
        ("xh".to_owned(), vec![]),
        (format!("xi.half.cname.{v4}.aaaa-rcode-5"), vec![MADE]),
    ] {
        let reply = pair.aaaa(&labels);
        assert_eq!(
            (reply.rcode, addresses(&reply)),
            (0, expected.iter().map(|a| (*a).to_owned()).collect()),
            "{labels}"
        );
        assert!(!reply.flags.ad && !reply.flags.aa && reply.flags.ra, "{labels}");
        assert!(reply.answers(Rtype::A).next().is_none(), "{labels}");
    }
    for (labels, expected) in [
        ("y1.v4-1-2-3-4.aaaa-rcode-3", rcode::NXDOMAIN),
        ("y2.all-rcode-2", rcode::SERVFAIL),
        ("y3.loop", rcode::SERVFAIL),
        ("y4.v4-1-2-3-4.a-rcode-5", rcode::SERVFAIL),
        ("y5.cname.all-rcode-3", rcode::NXDOMAIN),
        ("y6.half.cname.all-rcode-3", rcode::NXDOMAIN),
    ] {
        let reply = pair.aaaa(labels);
        assert_eq!((reply.rcode, reply.answers(Rtype::AAAA).count()), (expected, 0), "{labels}");
    }
    let denial = pair.aaaa("z1.all-nodata.soa-90-40");
    assert_eq!((denial.authority[0].rtype, denial.authority[0].ttl), (Rtype::SOA, 40));
}

#[test]
fn rfc_6147_5_1_7_ttls() {
    let pair = Pair::new(|_| {});
    for (labels, expected) in [
        ("x1.v4-1-2-3-4.ttl-60", 60),
        ("x2.v4-1-2-3-4.ttl-900.soa-50-300", 50),
        ("x3.v4-1-2-3-4.ttl-900.soa-300-50", 50),
        ("x4.v4-1-2-3-4.ttl-900.nosoa", 600),
        ("x5.v4-1-2-3-4.ttl-900.aaaa-rcode-2", 600),
    ] {
        assert_eq!(ttls(&pair.aaaa(labels)), [expected], "{labels}");
    }
    assert_eq!(ttls(&pair.aaaa("x6.v4-1-2-3-4.v4-5-6-7-8.ttl-60.unequal")), [30, 30]);
}

#[test]
fn rfc_2308_5_caching() {
    let pair = Pair::new(|_| {});
    let labels = "x1.v4-1-2-3-4.ttl-60";
    assert_eq!(ttls(&pair.aaaa(labels)), [60]);
    thread::sleep(Duration::from_millis(1100));
    assert!(ttls(&pair.aaaa(&labels.to_ascii_uppercase()))[0] < 60);
    assert_eq!((pair.asked(labels, Rtype::AAAA), pair.asked(labels, Rtype::A)), (1, 1));
    pair.aaaa("x2.all-nodata.nosoa");
    pair.aaaa("x2.all-nodata.nosoa");
    assert_eq!(pair.asked("x2.all-nodata.nosoa", Rtype::AAAA), 2);
    let forgetful = Pair::new(|rules| rules.caches = false);
    forgetful.aaaa(labels);
    forgetful.aaaa(labels);
    assert_eq!(forgetful.asked(labels, Rtype::AAAA), 2);
}

#[test]
fn rfc_6147_5_1_3_reply_before_stub_timeout() {
    let pair = Pair::new(|_| {});
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(addresses(&pair.aaaa("x1.v4-1-2-3-4.aaaa-silent")), [MADE]);
        });
        scope.spawn(|| {
            assert_eq!(addresses(&pair.aaaa("x2.v4-1-2-3-4.all-tcponly")), [MADE]);
        });
        scope.spawn(|| {
            let reply = pair.aaaa("x3.all-silent");
            assert_eq!(reply.rcode, rcode::SERVFAIL);
            assert_eq!(reply.edns.unwrap().options, [(15, vec![0, 22])]);
        });
    });
}

/// RFC 9520 §3.1 allows at most three transmissions over each transport.
#[test]
fn how_often_a_question_is_sent() {
    for (tries, asks_over_tcp, expected) in [(2, true, 3), (2, false, 2), (1, false, 1)] {
        let pair = Pair::new(|rules| {
            (rules.tries, rules.asks_over_tcp) = (tries, asks_over_tcp);
            // This time is sufficient for a TCP connection on a busy machine.
            rules.upstream_patience = Duration::from_secs(1);
        });
        pair.aaaa("x.all-silent");
        assert_eq!(pair.asked("x.all-silent", Rtype::A), expected);
    }
}

/// RFC 7766 §8: one read from the connection may return less than a message.
#[test]
fn messages_in_pieces() {
    for joins_segments in [true, false] {
        let pair = Pair::new(|rules| rules.joins_segments = joins_segments);
        let octets = Message::query(&of("x.v4-1-2-3-4"), Rtype::A).octets();
        let framed = [&(octets.len() as u16).to_be_bytes(), octets.as_slice()].concat();
        for (at, is_answered) in [(framed.len(), true), (1, joins_segments), (9, joins_segments)] {
            let mut connection = Connection::open(pair.reference.address(), PATIENCE).unwrap();
            connection.send_raw(&framed[..at]).unwrap();
            thread::sleep(Duration::from_millis(100));
            // The server may have closed the connection.
            let _ = connection.send_raw(&framed[at..]);
            assert_eq!(connection.receive(PATIENCE).unwrap().is_some(), is_answered, "{at}");
        }
    }
}

#[test]
fn rfc_6147_5_5_validation_by_label() {
    let pair = Pair::new(|rules| rules.validates = true);
    for (labels, cd, code, ad, made) in [
        ("x1.v4-1-2-3-4.secure", false, 0, true, 1),
        ("x2.v4-1-2-3-4.nsec3", false, 0, true, 1),
        ("x3.v4-1-2-3-4.secure", true, 0, false, 0),
        ("x4.v4-1-2-3-4.bogus", false, rcode::SERVFAIL, false, 0),
        ("x5.v4-1-2-3-4.expired", false, rcode::SERVFAIL, false, 0),
        ("x6.v4-1-2-3-4.bogus", true, 0, false, 0),
        ("x7.v4-1-2-3-4", false, 0, false, 1),
        ("x8.hop.v4-1-2-3-4.secure", false, 0, false, 1),
    ] {
        let reply = pair.signed(labels, cd);
        let found = (reply.rcode, reply.flags.ad, addresses(&reply).len());
        assert_eq!(found, (code, ad, made), "{labels}");
    }
    // Item 1: a client that does not set DO gets no AD. It also gets no signatures (RFC 4035
    // §3.2.1).
    let reply = pair.aaaa("x9.v4-1-2-3-4.secure");
    assert_eq!((reply.flags.ad, addresses(&reply).len()), (false, 1));
    let mut query = Message::query(&of("xa.v4-1-2-3-4.secure"), Rtype::A);
    query.flags.ad = true;
    let reply = pair.ask(&query);
    assert_eq!((reply.flags.ad, reply.answers(Rtype::RRSIG).count()), (true, 0));
}

#[test]
fn rfc_6147_5_5_a_server_that_does_not_validate() {
    let pair = Pair::new(|_| {});
    assert!(!pair.signed("x1.v4-1-2-3-4.ad", false).flags.ad);
    let untouched = pair.signed("x2.v4-1-2-3-4.secure", true);
    assert_eq!((untouched.flags.cd, addresses(&untouched).len()), (true, 0));
    assert!(untouched.authority.iter().any(|record| record.rtype == Rtype::RRSIG));
    let credulous = Pair::new(|rules| rules.drops_ad = false);
    assert!(credulous.signed("x3.v4-1-2-3-4.ad", false).flags.ad);
}

#[test]
fn rfc_6147_5_3_1_and_rfc_8880_reverse_names() {
    let pair = Pair::new(|_| {});
    let ptr = |v6: &str| {
        let v6: Ipv6Addr = v6.parse().unwrap();
        let nibbles = format!("{:032x}", u128::from(v6));
        let labels: Vec<String> = nibbles.chars().rev().map(String::from).collect();
        pair.ask(&Message::query(&name(&format!("{}.ip6.arpa", labels.join("."))), Rtype::PTR))
    };
    let reply = ptr("64:ff9b::1.2.3.4");
    assert_eq!(reply.answer[0].target(), Some(name("4.3.2.1.in-addr.arpa")));
    assert_eq!(reply.answer[1].target(), Some(of("ptr-1-2-3-4")));
    assert_eq!(ptr("64:ff9b::192.0.0.171").answer[0].target(), Some(name("ipv4only.arpa")));
    for (v6, code) in [
        ("64:ff9b::1.2.3.250", rcode::NXDOMAIN),
        ("64:ff9b::1.2.3.251", rcode::NOERROR),
        ("64:ff9b::1.2.3.252", rcode::SERVFAIL),
        ("2001:db8::1", rcode::NXDOMAIN),
    ] {
        let reply = ptr(v6);
        assert_eq!((reply.rcode, reply.answer.len()), (code, 0), "{v6}");
    }
    let ask = |text: &str, qtype| pair.ask(&Message::query(&name(text), qtype));
    let reply = ask("IPV4only.arpa", Rtype::AAAA);
    assert_eq!(addresses(&reply), ["64:ff9b::c000:aa", "64:ff9b::c000:ab"]);
    assert_eq!(reply.answer[0].owner.to_string(), "IPV4only.arpa");
    assert_eq!(ask("ipv4only.arpa", Rtype::A).answer.len(), 2);
    assert_eq!(ask("ipv4only.arpa", Rtype::TXT).authority.len(), 1);
    assert_eq!(ask("x.ipv4only.arpa", Rtype::A).rcode, rcode::NXDOMAIN);
    assert!(pair.far.log().asked(&name("ipv4only.arpa")).unwrap().is_empty());
    let in_addr = Message::query(&name("170.0.0.192.in-addr.arpa"), Rtype::PTR);
    assert_eq!(pair.ask(&in_addr).answer[0].target(), Some(of("ptr-192-0-0-170")));
}

#[test]
fn strangers_and_other_types() {
    let labels = "oob.v4-1-2-3-4";
    let victim = |pair: &Pair| {
        pair.aaaa(&format!("x1.{labels}"));
        addresses(&pair.aaaa("x1.v4-1-2-3-4"))
    };
    assert_eq!(victim(&Pair::new(|_| {})), [MADE]);
    let evil = EVIL6.to_string();
    assert_eq!(victim(&Pair::new(|rules| rules.drops_unrelated_records = false)), [evil]);
    let pair = Pair::new(|_| {});
    let ask = |labels: &str, qtype| pair.ask(&Message::query(&of(labels), qtype));
    let reply = ask("x2.mx.v4-1-2-3-4", Rtype::MX);
    assert_eq!((reply.answer.len(), reply.additional.len()), (1, 1));
    assert_eq!(ask("x3.https-1-2-3-4", Rtype::HTTPS).answer.len(), 1);
    let reply = ask("x4.v4-1-2-3-4.v4-1-2-3-5.txt", Rtype::ANY);
    assert!(reply.answer.iter().all(|record| record.rtype == reply.answer[0].rtype));
    assert_eq!(ask("x5.ede-15.all-rcode-2", Rtype::A).edns.unwrap().options, [(15, vec![0, 15])]);
}

#[test]
fn rfc_7766_truncation_and_tcp() {
    let pair = Pair::new(|_| {});
    let query = Message::query(&of("x1.cname.many-200"), Rtype::AAAA);
    let cut = pair.ask(&query);
    assert!(cut.flags.tc);
    assert_eq!((cut.answer.len(), cut.answer[0].rtype), (1, Rtype::CNAME));
    let mut connection = Connection::open(pair.reference.address(), PATIENCE).unwrap();
    let slow = Message::query(&of("x2.v4-1-2-3-4.a-delay-500"), Rtype::AAAA);
    let huge = Message::query(&of("x3.many-4000"), Rtype::AAAA);
    for query in [&slow, &query, &huge] {
        connection.send(&query.octets()).unwrap();
    }
    let mut replies = Vec::new();
    for _ in 0..3 {
        replies.push(Message::parse(&connection.receive(PATIENCE).unwrap().unwrap()).unwrap());
    }
    // The reply to the slow query arrives last, and an unparsable message gets an error.
    assert_eq!(replies[2].id, slow.id);
    let reply = |id| replies.iter().find(|reply| reply.id == id).unwrap();
    assert_eq!((reply(query.id).answer.len(), reply(query.id).flags.tc), (201, false));
    assert_eq!((reply(huge.id).answer.len(), reply(huge.id).flags.tc), (0, true));
}

/// Each of 1000 clients gets an answer, whether all clients query the same name or different names.
#[test]
fn a_burst_is_answered() {
    // Each client needs a socket, and so do the tests that run in parallel.
    let limit = net::descriptors::raise_limit();
    if limit < 2_000 {
        let why = format!("1000 clients need more descriptors than the limit {limit} of this user");
        return testbed::skip("a_burst_is_answered", &why);
    }
    let pair = Pair::new(|_| {});
    let address = pair.reference.address();
    for own_names in [false, true] {
        let labels = |n| format!("x{}.v4-1-2-3-4.aaaa-delay-300", if own_names { n } else { 9999 });
        let answered: usize = thread::scope(|scope| {
            let clients: Vec<_> = (0..1000)
                .map(|n| {
                    let octets = Message::query(&of(&labels(n)), Rtype::AAAA).octets();
                    // A burst may overflow the socket's buffer on a busy machine.
                    let once = move |_| datagram(address, &octets, PATIENCE).unwrap().is_some();
                    let ask = move || (0..2).any(once);
                    thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, ask).unwrap()
                })
                .collect();
            clients.into_iter().map(|client| usize::from(client.join().unwrap())).sum()
        });
        assert_eq!(answered, 1000);
    }
    assert_eq!(pair.asked("x9999.v4-1-2-3-4.aaaa-delay-300", Rtype::AAAA), 1);
}

#[test]
fn it_stops_and_its_port_is_free() {
    let pair = Pair::new(|_| {});
    let address = pair.reference.address();
    let Pair { far, reference } = pair;
    drop(reference);
    assert!(
        datagram(address, &Message::query(&of("x"), Rtype::A).octets(), PATIENCE)
            .unwrap()
            .is_none()
    );
    drop(far);
}
