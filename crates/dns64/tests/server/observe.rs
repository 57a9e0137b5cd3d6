//! The query log and dnstap, through sockets and files.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use dns64::metrics::Count;
use domain::base::iana::{Rcode, Rtype};
use serde_json::Value;

use crate::harness::*;

fn zone() -> Upstream {
    Upstream::new(|q| {
        let begins = |kind: &str| q.name.starts_with(kind);
        match q.qtype {
            _ if begins("broken") => q.rcode(Rcode::SERVFAIL).ede(22).send(),
            Rtype::AAAA if begins("native") => q.answer().aaaa(&q.name, 60, "2001:db8:a::1").send(),
            Rtype::A => q.answer().a(&q.name, 300, "192.0.2.1").send(),
            _ => q.nodata(300, 300).send(),
        }
    })
}

// ---- the query log ----

/// The lines of a log, after at least `count` have been written.
fn lines(log: &Path, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(log).unwrap_or_default();
    eventually("the lines are written", || read().lines().count() >= count);
    read().lines().map(str::to_owned).collect()
}

#[test]
fn each_answered_query_has_a_line_with_its_decision() {
    let upstream = zone();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("queries.log");
    let server = server(
        &[upstream.address],
        &format!(
            "{PREFIX}[query-log]\nto = '{}'\nformat = 'json'\n[access]\nallow = ['127.0.0.1', '127.0.0.2']\n\
             [[group]]\nclients = ['127.0.0.2']\ndns64.prefixes = []\n",
            log.display()
        ),
    );
    ask("four.test", Rtype::AAAA).of(&server);
    ask("native.test", Rtype::AAAA).over_tcp(&server);
    ask("four.test", Rtype::AAAA).from("127.0.0.2").of(&server);
    ask("Four.test", Rtype::A).of(&server);
    ask("broken.test", Rtype::AAAA).of(&server);
    ask("ipv4only.arpa", Rtype::AAAA).of(&server);
    ask("four.test", Rtype::A).from("127.0.0.3").of(&server);
    ask("four.test", Rtype::AXFR).of(&server);
    let found = lines(&log, 8);
    let expected = [
        ("127.0.0.1", "four.test.", "AAAA", "UDP", "NOERROR", "translated-no-data"),
        ("127.0.0.1", "native.test.", "AAAA", "TCP", "NOERROR", "native"),
        ("127.0.0.2", "four.test.", "AAAA", "UDP", "NOERROR", "off"),
        ("127.0.0.1", "four.test.", "A", "UDP", "NOERROR", "passed-on"),
        ("127.0.0.1", "broken.test.", "AAAA", "UDP", "SERVFAIL", "upstream-error"),
        ("127.0.0.1", "ipv4only.arpa.", "AAAA", "UDP", "NOERROR", "local"),
        ("127.0.0.3", "four.test.", "A", "UDP", "REFUSED", "refused"),
    ];
    for (line, (client, name, rtype, transport, rcode, decision)) in found.iter().zip(expected) {
        let line: Value = serde_json::from_str(line).unwrap();
        let words = ["client", "name", "type", "transport", "rcode", "decision"]
            .map(|key| line[key].as_str().unwrap_or_default().to_owned());
        assert_eq!(words, [client, name, rtype, transport, rcode, decision]);
        assert!(line["time"].as_str().unwrap().ends_with('Z') && line["took_us"].is_u64());
        assert_eq!(line["stale"], false);
    }
    let last: Value = serde_json::from_str(&found[7]).unwrap();
    assert_eq!((&last["name"], &last["decision"]), (&Value::Null, &"unreadable".into()));
    eventually("they are counted", || server.running.metrics().total(Count::LogWritten) == 8);
    assert_eq!(server.running.metrics().total(Count::LogDropped), 0);
}

#[test]
fn the_query_log_is_sampled_and_optional() {
    let upstream = zone();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("queries.log");
    let keys = format!("{PREFIX}[query-log]\nto = '{}'\nsample = 10\n", log.display());
    let sampled = server(&[upstream.address], &keys);
    (0..30).for_each(|_| drop(ask("four.test", Rtype::A).of(&sampled)));
    let found = lines(&log, 3);
    assert!(found.iter().all(|line| line.contains(" four.test. A UDP NOERROR passed-on ")));
    sampled.running.stop();
    assert_eq!(lines(&log, 3).len(), 3, "everything was written");
    let without = server(&[upstream.address], PREFIX);
    ask("four.test", Rtype::A).of(&without);
    assert_eq!(without.running.metrics().total(Count::LogWritten), 0);
}

// ---- dnstap, decoded without the code under test ----

/// The fields of a protobuf message by number, each as a number or as octets.
#[derive(Debug, Default)]
struct Fields {
    numbers: BTreeMap<u64, u64>,
    octets: BTreeMap<u64, Vec<u8>>,
}

impl Fields {
    fn read(mut rest: &[u8]) -> Fields {
        let mut fields = Fields::default();
        while !rest.is_empty() {
            let key = varint(&mut rest);
            match key & 7 {
                0 => drop(fields.numbers.insert(key >> 3, varint(&mut rest))),
                2 => {
                    let len = varint(&mut rest) as usize;
                    let (octets, after) = rest.split_at(len);
                    fields.octets.insert(key >> 3, octets.to_vec());
                    rest = after;
                }
                5 => {
                    let (octets, after) = rest.split_first_chunk::<4>().unwrap();
                    fields.numbers.insert(key >> 3, u32::from_le_bytes(*octets).into());
                    rest = after;
                }
                other => panic!("wire type {other}"),
            }
        }
        fields
    }
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (octet, after) = rest.split_first().unwrap();
        *rest = after;
        value |= u64::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            break;
        }
    }
    value
}

const CONTENT_TYPE: &[u8] = b"protobuf:dnstap.Dnstap";

/// The reading side of a frame stream.
struct Reader(UnixStream);

impl Reader {
    /// The next connection, after the handshake.
    fn accept(listener: &UnixListener) -> Reader {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut reader = Reader(stream);
        assert_eq!(reader.control(), (4, CONTENT_TYPE.to_vec()), "READY");
        let len = CONTENT_TYPE.len() as u32;
        let body = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &len.to_be_bytes(), CONTENT_TYPE].concat();
        let accept = [&[0; 4][..], &(body.len() as u32).to_be_bytes(), &body].concat();
        reader.0.write_all(&accept).unwrap();
        assert_eq!(reader.control(), (2, CONTENT_TYPE.to_vec()), "START");
        reader
    }

    fn number(&mut self) -> u32 {
        let mut octets = [0; 4];
        self.0.read_exact(&mut octets).unwrap();
        u32::from_be_bytes(octets)
    }

    fn octets(&mut self, len: u32) -> Vec<u8> {
        let mut octets = vec![0; len as usize];
        self.0.read_exact(&mut octets).unwrap();
        octets
    }

    /// Kind and content type of a control frame.
    fn control(&mut self) -> (u32, Vec<u8>) {
        assert_eq!(self.number(), 0);
        self.rest_of_control()
    }

    fn rest_of_control(&mut self) -> (u32, Vec<u8>) {
        let len = self.number();
        let kind = self.number();
        let body = self.octets(len - 4);
        (kind, body.get(8..).unwrap_or_default().to_vec())
    }

    /// The next message, or `None` after STOP, which is answered.
    fn next(&mut self) -> Option<Fields> {
        match self.number() {
            0 => {
                assert_eq!(self.rest_of_control().0, 3, "STOP");
                self.0.write_all(&[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5]).unwrap();
                None
            }
            len => {
                let outer = Fields::read(&self.octets(len));
                assert_eq!(outer.numbers[&15], 1, "MESSAGE");
                assert_eq!(outer.octets[&1], b"ns1");
                assert!(outer.octets[&2].starts_with(b"dns64d "));
                Some(Fields::read(&outer.octets[&14]))
            }
        }
    }
}

const CLIENT_QUERY: u64 = 5;
const CLIENT_RESPONSE: u64 = 6;
const FORWARDER_QUERY: u64 = 7;
const FORWARDER_RESPONSE: u64 = 8;

fn tapped(socket: &Path, more: &str) -> String {
    format!("{PREFIX}[dnstap]\nsocket = '{}'\nidentity = 'ns1'\n{more}", socket.display())
}

#[test]
fn dnstap_has_every_message_as_it_was_on_the_wire() {
    let upstream = zone();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tap.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = server(&[upstream.address], &tapped(&socket, "upstreams = true\n"));
    let mut reader = Reader::accept(&listener);

    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    let query = ask("four.test", Rtype::AAAA).edns(1232).bytes();
    client.send_to(&query, server.address).unwrap();
    let mut reply = [0; 1232];
    let (len, _) = client.recv_from(&mut reply).unwrap();
    let messages: Vec<Fields> = (0..6).map(|_| reader.next().unwrap()).collect();
    let kinds: Vec<u64> = messages.iter().map(|message| message.numbers[&1]).collect();
    assert_eq!(kinds[0], CLIENT_QUERY);
    assert_eq!(kinds[5], CLIENT_RESPONSE);
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    assert_eq!((count(FORWARDER_QUERY), count(FORWARDER_RESPONSE)), (2, 2));

    let loopback = vec![127, 0, 0, 1];
    let port = |address: std::net::SocketAddr| u64::from(address.port());
    for message in [&messages[0], &messages[5]] {
        // INET, UDP; addresses and ports of both.
        assert_eq!((message.numbers[&2], message.numbers[&3]), (1, 1));
        assert_eq!((&message.octets[&4], &message.octets[&5]), (&loopback, &loopback));
        assert_eq!(message.numbers[&6], port(client.local_addr().unwrap()));
        assert_eq!(message.numbers[&7], port(server.address));
        assert!(message.numbers[&8] > 1_700_000_000 && message.numbers.contains_key(&9));
    }
    assert_eq!(messages[0].octets[&10], query);
    assert!(!messages[0].octets.contains_key(&14));
    assert_eq!(messages[5].octets[&14], reply[..len]);
    assert!(messages[5].numbers[&12] >= messages[5].numbers[&8], "after its query");
    let mut asked: Vec<String> = Vec::new();
    for message in &messages[1..5] {
        assert_eq!(message.numbers[&7], port(upstream.address));
        let octets = message.octets.get(&10).or(message.octets.get(&14)).unwrap();
        let got = Got::new(octets);
        let question = got.message.sole_question().unwrap();
        asked.push(format!("{} {}", message.numbers[&1], question.qtype()));
    }
    assert_eq!(asked, ["7 AAAA", "8 AAAA", "7 A", "8 A"]);

    // Two queries over TCP. The AXFR query is refused and not recorded.
    ask("four.test", Rtype::AXFR).over_tcp(&server);
    ask("four.test", Rtype::A).over_tcp(&server);
    let tcp: Vec<Fields> = std::iter::from_fn(|| reader.next())
        .filter(|message| message.octets.contains_key(&10))
        .take(1)
        .collect();
    assert_eq!((tcp[0].numbers[&1], tcp[0].numbers[&3]), (CLIENT_QUERY, 2));
    assert_eq!(Got::new(&tcp[0].octets[&10]).message.sole_question().unwrap().qtype(), Rtype::A);
    let stopping = std::thread::spawn(move || server.running.stop());
    assert!(std::iter::from_fn(|| reader.next()).count() >= 1, "the reply, and then the end");
    stopping.join().unwrap();
}

#[test]
fn dnstap_has_the_configured_messages() {
    let upstream = zone();
    let folder = tempfile::tempdir().unwrap();
    for (keys, kinds) in [
        ("", vec![CLIENT_QUERY, CLIENT_RESPONSE]),
        ("clients = false\nupstreams = true\n", vec![FORWARDER_QUERY, FORWARDER_RESPONSE]),
    ] {
        let socket = folder.path().join("tap.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let server = server(&[upstream.address], &tapped(&socket, keys));
        let mut reader = Reader::accept(&listener);
        ask("four.test", Rtype::A).of(&server);
        let found: Vec<u64> = (0..2).map(|_| reader.next().unwrap().numbers[&1]).collect();
        assert_eq!(found, kinds);
        let stopping = std::thread::spawn(move || server.running.stop());
        assert!(reader.next().is_none(), "nothing else");
        stopping.join().unwrap();
    }
}

#[test]
fn dnstap_readers_never_affect_clients() {
    let upstream = zone();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tap.sock");
    let server = server(&[upstream.address], &tapped(&socket, ""));
    let count = |what| server.running.metrics().total(what);
    let query = || assert_eq!(ask("four.test", Rtype::A).of(&server).answers().len(), 1);
    query();
    eventually("it is lost", || count(Count::TapDropped) == 2);
    let listener = UnixListener::bind(&socket).unwrap();
    let mut reader = Reader::accept(&listener);
    query();
    assert_eq!(reader.next().unwrap().numbers[&1], CLIENT_QUERY);
    eventually("it is sent", || count(Count::TapSent) == 2);
    drop(reader);
    eventually("the reader is missed", || {
        query();
        count(Count::TapDropped) > 2
    });
    let mut again = Reader::accept(&listener);
    query();
    assert!(again.next().is_some());
    // A reader that stops reading delays neither queries nor the end of the server.
    (0..500).for_each(|_| query());
    server.running.stop();
}
