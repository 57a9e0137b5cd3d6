use domain::base::iana::Rtype;
use net::status::StatusSocket;

use super::*;
use crate::ask::{self, Connection};
use crate::authority::status::{self, Remote};
use crate::authority::view::View;
use crate::label::EVIL4;
use crate::message::{Record, name};

/// Timeout that is longer than any step of these tests.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time to wait before concluding that there is no reply.
const SILENCE: Duration = Duration::from_millis(200);

fn far() -> Authority {
    let (zone, ns) = (name("conform.example"), [192, 0, 2, 53].into());
    start(&AuthorityConfig { listen: vec!["127.0.0.1:0".parse().unwrap()], zone, ns }).unwrap()
}

fn query(labels: &str) -> Message {
    Message::query(&name(&format!("{labels}.conform.example")), Rtype::A)
}

fn over_udp(far: &Authority, labels: &str, patience: Duration) -> Option<Message> {
    let octets = ask::datagram(far.addresses()[0], &query(labels).octets(), patience).unwrap();
    octets.map(|octets| Message::parse(&octets).unwrap())
}

fn over_tcp(far: &Authority, labels: &[&str]) -> Vec<Message> {
    let mut connection = Connection::open(far.addresses()[0], PATIENCE).unwrap();
    for labels in labels {
        connection.send(&query(labels).octets()).unwrap();
    }
    let mut next = || Message::parse(&connection.receive(PATIENCE).unwrap().unwrap()).unwrap();
    labels.iter().map(|_| next()).collect()
}

#[test]
fn a_delayed_reply_lets_others_pass() {
    let far = far();
    let begin = Instant::now();
    thread::scope(|scope| {
        let late = scope.spawn(|| over_udp(&far, "x1.all-delay-1000.v4-1-2-3-4", PATIENCE));
        thread::sleep(Duration::from_millis(50));
        assert_eq!(over_udp(&far, "x2.v4-1-2-3-4", PATIENCE).unwrap().answer.len(), 1);
        assert!(!late.is_finished());
        assert_eq!(late.join().unwrap().unwrap().answer.len(), 1);
    });
    assert!(begin.elapsed() >= Duration::from_millis(1000));
}

#[test]
fn pipelined_queries_are_answered_out_of_order() {
    let far = far();
    let asked = ["x1.all-delay-1000.v4-1-2-3-4", "x2.v4-1-2-3-4", "x3.many-2000"];
    let replies = over_tcp(&far, &asked);
    let names: Vec<_> = replies.iter().map(|r| r.questions[0].name.to_string()).collect();
    let asked = asked.map(|labels| format!("{labels}.conform.example"));
    assert_eq!(names, [asked[1].as_str(), &asked[2], &asked[0]]);
    assert_eq!(replies[1].answer.len(), 2000);
}

#[test]
fn a_forged_reply_comes_first() {
    let far = far();
    for (how, right_port) in [("badid", true), ("badport", false), ("badquestion", true)] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let query = query(&format!("x1.a-{how}.v4-1-2-3-4"));
        socket.send_to(&query.octets(), far.addresses()[0]).unwrap();
        let mut replies = Vec::new();
        for _ in 0..2 {
            let mut buffer = [0; 1232];
            let (len, source) = socket.recv_from(&mut buffer).unwrap();
            replies.push((Message::parse(&buffer[..len]).unwrap(), source));
        }
        let [(forged, from), (right, source)] = &replies[..] else { panic!("{replies:?}") };
        let addresses =
            |reply: &Message| reply.answer.iter().filter_map(Record::ipv4).collect::<Vec<_>>();
        assert_eq!(addresses(forged), [EVIL4], "{how}");
        assert_eq!(addresses(right), ["1.2.3.4".parse::<std::net::Ipv4Addr>().unwrap()], "{how}");
        assert_eq!((right.id, &right.questions), (query.id, &query.questions));
        assert_eq!(forged.id == query.id, how != "badid");
        assert_eq!(forged.questions == query.questions, how != "badquestion");
        assert_eq!(*source, far.addresses()[0]);
        assert_eq!(from == source, right_port, "{how}");
    }
}

#[test]
fn some_names_are_answered_over_tcp_only() {
    let far = far();
    let cut = over_udp(&far, "x1.all-tc.v4-1-2-3-4", PATIENCE).unwrap();
    assert!(cut.flags.tc && cut.answer.is_empty());
    assert_eq!(over_udp(&far, "x2.all-tcponly.v4-1-2-3-4", SILENCE), None);
    assert_eq!(over_udp(&far, "x3.all-silent", SILENCE), None);
    for reply in over_tcp(&far, &["x1.all-tc.v4-1-2-3-4", "x2.all-tcponly.v4-1-2-3-4"]) {
        assert!(!reply.flags.tc && reply.answer.len() == 1);
    }
}

#[test]
fn log_and_status_contain_the_queries() {
    let far = far();
    over_udp(&far, "X1.all-silent", SILENCE);
    over_tcp(&far, &["x1.v4-1-2-3-4", "x2.v4-1-2-3-4"]);
    let asked = far.log().asked(&name("x1.ALL-silent.conform.example")).unwrap();
    assert_eq!(asked.len(), 1);
    assert!(!asked[0].tcp && asked[0].name.starts_with("X1."));

    let path = std::env::temp_dir().join(format!("far-status-{}", std::process::id()));
    let socket = StatusSocket::bind(&path).unwrap();
    status::serve(&socket, far.log(), far.anchors()).unwrap();
    let remote = Remote::new(&path);
    let name = name("x1.v4-1-2-3-4.conform.example");
    assert_eq!(remote.asked(&name).unwrap(), far.log().asked(&name).unwrap());
    assert!(remote.asked(&name).unwrap()[0].tcp);
    assert_eq!(remote.asked(&query("x9").questions[0].name).unwrap(), []);
    assert_eq!(remote.anchors().unwrap(), far.anchors());
    drop(socket);
    assert!(remote.asked(&name).is_err());
}

#[test]
fn non_queries_are_ignored_and_drop_stops_the_server() {
    let far = far();
    let address = far.addresses()[0];
    let mut response = query("x1.v4-1-2-3-4");
    response.flags.qr = true;
    for octets in [&response.octets()[..], b"", b"no DNS message at all"] {
        assert_eq!(ask::datagram(address, octets, SILENCE).unwrap(), None);
    }
    assert_eq!(over_udp(&far, "x1.v4-1-2-3-4", PATIENCE).unwrap().answer.len(), 1);
    drop(far);
    assert!(TcpStream::connect(address).is_err());
    // Both ports are free again.
    UdpSocket::bind(address).unwrap();
}

/// Regression test: 17 labels of 4000 records each resulted in a message with 68 000 records, and a panic ended the
/// thread.
#[test]
fn many_labels_of_many_records_end_nothing() {
    let far = far();
    let labels = format!("x1{}", ".many-4000".repeat(17));
    assert!(over_udp(&far, &labels, PATIENCE).unwrap().flags.tc);
    assert_eq!(over_udp(&far, "x2.v4-1-2-3-4", PATIENCE).unwrap().answer.len(), 1);
    let replies = over_tcp(&far, &[labels.as_str(), "x3.v4-1-2-3-4"]);
    assert_eq!(replies.iter().map(|reply| reply.answer.len()).collect::<Vec<_>>(), [4000, 1]);
}

#[test]
fn a_panic_is_answered_with_servfail() {
    let query = query("x1.v4-1-2-3-4");
    let sendings = or_servfail(&query, || panic!("a name that cannot be answered"));
    let [Sending { after: Duration::ZERO, octets, other_port: false }] = &sendings[..] else {
        panic!("{sendings:?}");
    };
    let reply = Message::parse(octets).unwrap();
    assert_eq!((reply.id, reply.rcode), (query.id, rcode::SERVFAIL));
    assert!(reply.flags.qr && reply.questions == query.questions);
    assert_eq!(or_servfail(&query, Vec::new), []);
}

#[test]
fn an_address_in_use_is_an_error() {
    let far = far();
    let config = AuthorityConfig {
        listen: far.addresses().to_vec(),
        zone: name("conform.example"),
        ns: [192, 0, 2, 53].into(),
    };
    assert!(matches!(
        start(&config),
        Err(AuthorityError::Listen { source: ListenError::Udp(_), .. })
    ));
    let label = "n".repeat(60);
    let zone = name(&format!("{label}.{label}.{label}.{label}"));
    assert!(matches!(
        start(&AuthorityConfig { zone, ..config }),
        Err(AuthorityError::LongZone { .. })
    ));
}
