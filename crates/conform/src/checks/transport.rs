//! Transport: TCP as a full transport (RFC 7766), maximum length of a datagram (RFC 1035, 6891, 9715), and truncated
//! upstream replies (RFC 2181). Slow or silent upstreams must not delay the replies to other queries.
//!
//! Checks that do not need a test zone send queries for `ipv4only.arpa`, which every DNS64 server answers (RFC 7050).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use domain::base::iana::Rtype;

use crate::ask::{self, Connection};
use crate::check::{Check, Level, Need};
use crate::message::{Edns, Message, Record, name, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc7766-5-tcp",
        title: "A query over TCP gets the same reply as over UDP",
        rfc: 7766,
        section: "5",
        sentence: "All general-purpose DNS implementations MUST support both UDP and TCP \
             transport.",
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: tcp_is_served,
    },
    Check {
        id: "rfc7766-5-large",
        title: "A reply with 90 addresses is complete over TCP",
        rfc: 7766,
        section: "5",
        sentence: "Recursive server (or forwarder) implementations MUST support TCP so that they \
             do not prevent large responses from a TCP-capable server from reaching its \
             TCP-capable clients.",
        level: Level::Must,
        needs: &[Need::Zone],
        contradicts: None,
        script: large_replies_arrive,
    },
    Check {
        id: "rfc7766-5-same-connection",
        title: "Each of two connections gets the reply to its own query",
        rfc: 7766,
        section: "5",
        sentence: "… all recursive and authoritative servers MUST send responses using the same \
             transport as the query arrived on. In the case of TCP, this MUST also be the same \
             connection.",
        level: Level::Must,
        needs: &[Need::Zone],
        contradicts: None,
        script: replies_stay_on_their_connection,
    },
    Check {
        id: "rfc7766-6.2.1-reuse",
        title: "Three consecutive queries are answered on one connection",
        rfc: 7766,
        section: "6.2.1",
        sentence: "To amortise connection setup costs, both clients and servers SHOULD support \
             connection reuse by sending multiple queries and responses over a single persistent \
             TCP connection.",
        level: Level::Should,
        needs: &[],
        contradicts: None,
        script: connections_are_reused,
    },
    Check {
        id: "rfc7766-6.2.1.1-pipelined",
        title: "Three queries that arrive together are all answered",
        rfc: 7766,
        section: "6.2.1.1",
        sentence: "DNS servers (especially recursive) MUST expect to receive pipelined queries.",
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: pipelined_queries_are_expected,
    },
    Check {
        id: "rfc7766-6.2.1.1-all-answered",
        title: "Ten pipelined queries for ten names are all answered correctly",
        rfc: 7766,
        section: "6.2.1.1",
        sentence: "The server SHOULD answer all pipelined queries, even if they are received in \
             quick succession.",
        level: Level::Should,
        needs: &[Need::Zone],
        contradicts: None,
        script: all_pipelined_queries_are_answered,
    },
    Check {
        id: "rfc7766-6.2.3-idle",
        title: "A connection is still open two seconds after a reply",
        rfc: 7766,
        section: "6.2.3",
        sentence: "A timeout of at least a few seconds is advisable for normal operations ….",
        level: Level::Says,
        needs: &[],
        contradicts: None,
        script: idle_connections_stay_open,
    },
    Check {
        id: "rfc7766-7-out-of-order",
        title: "A slow name does not delay the reply to the next query on the connection",
        rfc: 7766,
        section: "7",
        sentence: "… recursive resolvers SHOULD process TCP queries in parallel and return \
             individual responses as soon as they are available, possibly out of order.",
        level: Level::Should,
        needs: &[Need::Zone],
        contradicts: None,
        script: slow_names_hold_nothing_back_over_tcp,
    },
    Check {
        id: "rfc7766-7-parallel-udp",
        title: "Slow names do not delay replies over UDP",
        rfc: 7766,
        section: "7",
        sentence: "Authoritative servers and recursive resolvers are RECOMMENDED to support the \
             preparing of responses in parallel and sending them out of order, regardless of the \
             transport protocol in use.",
        level: Level::Should,
        needs: &[Need::Zone],
        contradicts: None,
        script: slow_names_hold_nothing_back_over_udp,
    },
    Check {
        id: "rfc7766-8-split",
        title: "A query that arrives in four segments is answered",
        rfc: 7766,
        section: "8",
        sentence: "To clarify, DNS servers MUST NOT close a connection simply because the first \
             \"read\" from the TCP layer does not contain the entire DNS message ….",
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: queries_may_arrive_in_pieces,
    },
    Check {
        id: "rfc1035-4.2.2-length",
        title: "One and a half messages in a segment and the rest in the next are two queries",
        rfc: 1035,
        section: "4.2.2",
        sentence: "This length field allows the low-level processing to assemble a complete \
             message before beginning to parse it.",
        level: Level::Says,
        needs: &[],
        contradicts: None,
        script: segments_need_not_end_with_messages,
    },
    Check {
        id: "rfc1035-4.2.2-half-message",
        title: "Connections with half a message do not block other clients",
        rfc: 1035,
        section: "4.2.2",
        sentence: "The server should not block other activities waiting for TCP data.",
        level: Level::Says,
        needs: &[],
        contradicts: None,
        script: half_messages_stop_nobody,
    },
    Check {
        id: "rfc1035-4.2.2-connections",
        title: "Four simultaneous connections are served",
        rfc: 1035,
        section: "4.2.2",
        sentence: "The server should support multiple connections.",
        level: Level::Says,
        needs: &[],
        contradicts: None,
        script: several_connections_are_served,
    },
    Check {
        id: "rfc1035-4.2.1-truncated",
        title: "Without OPT a datagram has at most 512 octets and TC, and TCP gives the complete \
            reply",
        rfc: 1035,
        section: "4.2.1",
        sentence: "Messages carried by UDP are restricted to 512 bytes (not counting the IP or UDP \
             headers). Longer messages are truncated and the TC bit is set in the header.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: without_opt_512_octets,
    },
    Check {
        id: "rfc6891-6.2.3-below-512",
        title: "A client that offers 100 octets gets up to 512",
        rfc: 6891,
        section: "6.2.3",
        sentence: "Values lower than 512 MUST be treated as equal to 512.",
        level: Level::Must,
        needs: &[Need::Zone],
        contradicts: None,
        script: less_than_512_is_512,
    },
    Check {
        id: "rfc6891-6.2.3-payload",
        title: "A datagram is no longer than the client offers, and has TC if it is not complete",
        rfc: 6891,
        section: "6.2.3",
        sentence: "The requestor's UDP payload size (encoded in the RR CLASS field) is the number \
             of octets of the largest UDP payload that can be reassembled and delivered in the \
             requestor's network stack.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: datagrams_fit_the_client,
    },
    Check {
        id: "rfc9715-3.1-fragments",
        title: "A datagram is not longer than 1400 octets, even if the client offers 4096",
        rfc: 9715,
        section: "3.1",
        sentence: "UDP responders should compose response packets that fit in the minimum of the \
             offered requestor's maximum UDP payload size …, the interface MTU, … and the \
             RECOMMENDED maximum DNS/UDP payload size 1400.",
        level: Level::Should,
        needs: &[Need::Zone],
        contradicts: None,
        script: datagrams_are_not_fragmented,
    },
    Check {
        id: "rfc2181-9-a-truncated",
        title: "A truncated reply to an A query is retried over TCP",
        rfc: 2181,
        section: "9",
        sentence: "When a DNS client receives a reply with TC set, it should ignore that response, \
             and query again, using a mechanism, such as a TCP connection, that will permit larger \
             replies.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: truncated_a_is_asked_over_tcp,
    },
    Check {
        id: "rfc2181-9-aaaa-truncated",
        title: "A truncated reply to an AAAA query is retried over TCP",
        rfc: 2181,
        section: "9",
        sentence: "When a DNS client receives a reply with TC set, it should ignore that response, \
             and query again, using a mechanism, such as a TCP connection, that will permit larger \
             replies.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: truncated_aaaa_is_asked_over_tcp,
    },
    Check {
        id: "hardening-upstream-tcp-only",
        title: "An upstream that answers over TCP only causes an answer or SERVFAIL, not silence",
        rfc: 0,
        section: "",
        sentence: "Whatever the upstream does, a client should have a reply within its timeout of \
            five seconds.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: tcp_only_upstream_is_no_silence,
    },
    Check {
        id: "hardening-upstream-slow",
        title: "An upstream that takes two seconds causes an answer or SERVFAIL, not silence",
        rfc: 0,
        section: "",
        sentence: "Whatever the upstream does, a client should have a reply within its timeout of \
            five seconds.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: slow_upstream_is_no_silence,
    },
    Check {
        id: "hardening-upstream-silent",
        title: "A silent upstream causes SERVFAIL within a stub resolver's timeout",
        rfc: 0,
        section: "",
        sentence: "An unanswered query should become SERVFAIL (RFC 1123 §6.1.3.3: a soft error) \
            within the stub resolver's timeout of five seconds: for a stub resolver, silence looks \
            like a dead server.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: silent_upstream_is_servfail,
    },
];

// Queries, messages on a connection, and sizes.

/// Returns queries with different IDs that the server answers without a test zone.
fn simple_queries<const N: usize>() -> [Message; N] {
    let first: u16 = rand::random();
    std::array::from_fn(|n| {
        let qtype = if n % 2 == 0 { Rtype::AAAA } else { Rtype::A };
        let id = first.wrapping_add(n as u16);
        Message { id, ..Message::query(&name("ipv4only.arpa"), qtype) }
    })
}

/// Returns the messages, each preceded by its length (RFC 1035 §4.2.2).
fn framed(queries: &[Message]) -> Vec<u8> {
    let mut stream = Vec::new();
    for query in queries {
        let octets = query.octets();
        stream.extend((octets.len() as u16).to_be_bytes());
        stream.extend(octets);
    }
    stream
}

fn send_raw(connection: &mut Connection, octets: &[u8]) -> Judged {
    connection.send_raw(octets).map_err(|error| Fault::Wrong(format!("TCP: {error}")))
}

/// Returns the next reply on a connection. It must be the reply to one of `queries`.
fn next_reply(t: &Trial<'_>, connection: &mut Connection, queries: &[Message]) -> Judged<Message> {
    let octets = connection
        .receive(t.subject().patience)
        .map_err(|error| Fault::NotTried(format!("TCP: {error}")))?
        .ok_or_else(|| Fault::Silent("no reply over TCP, or the connection was closed".into()))?;
    let reply = Message::parse(&octets)
        .map_err(|error| Fault::Wrong(format!("the reply is no DNS message: {error}")))?;
    let fits = |query: &Message| query.id == reply.id && query.questions == reply.questions;
    expect(reply.flags.qr && queries.iter().any(fits), || {
        "a reply over TCP does not belong to any query on its connection".into()
    })?;
    Ok(reply)
}

/// Returns the replies to all queries, in the order of the queries.
fn all_replies(
    t: &Trial<'_>,
    connection: &mut Connection,
    queries: &[Message],
) -> Judged<Vec<Message>> {
    let mut replies: Vec<Message> = Vec::new();
    for n in 0..queries.len() {
        let reply = next_reply(t, connection, queries).map_err(|fault| match fault {
            Fault::Wrong(what) => {
                Fault::Wrong(format!("after {n} of {} replies: {what}", queries.len()))
            }
            Fault::Silent(what) => {
                Fault::Silent(format!("after {n} of {} replies: {what}", queries.len()))
            }
            other => other,
        })?;
        expect(replies.iter().all(|earlier| earlier.id != reply.id), || {
            "a query over TCP got two replies, and another one none".into()
        })?;
        replies.push(reply);
    }
    replies.sort_by_key(|reply| queries.iter().position(|query| query.id == reply.id));
    Ok(replies)
}

/// Returns the query with an OPT record that offers the UDP payload size `payload`. If `payload` is `None`, the query
/// has no OPT record.
fn offering(payload: Option<u16>, query: Message) -> Message {
    let edns = payload.map(|payload| Edns { payload, ..Edns::default() });
    Message { opt_records: usize::from(edns.is_some()), edns, ..query }
}

/// Returns the length of the reply to `query` over UDP, in octets.
fn size(t: &mut Trial<'_>, query: &Message) -> Judged<usize> {
    t.reply_to_octets(&query.octets(), "a query").map(|octets| octets.len())
}

fn fits(t: &mut Trial<'_>, query: &Message, limit: usize) -> Judged {
    let size = size(t, query)?;
    expect(size <= limit, || format!("the datagram has {size} octets; {limit} are allowed"))
}

/// Returns the addresses synthesized from the A records that the label `many-COUNT` defines.
fn many(t: &Trial<'_>, count: u32) -> Vec<Ipv6Addr> {
    let first = u32::from(Ipv4Addr::new(1, 1, 0, 1));
    (first..first + count).flat_map(|v4| t.embedded(&Ipv4Addr::from(v4).to_string())).collect()
}

fn is_servfail(reply: &Message) -> bool {
    reply.rcode == rcode::SERVFAIL
}

// TCP.

fn tcp_is_served(t: &mut Trial<'_>) -> Judged {
    let [query] = simple_queries();
    let udp = t.ask(&query)?;
    let tcp = t.ask_tcp(&query)?;
    let addresses = |reply: &Message| {
        let mut addresses: Vec<_> = reply.answer.iter().filter_map(Record::ipv6).collect();
        addresses.sort_unstable();
        addresses
    };
    expect(tcp.rcode == udp.rcode && addresses(&tcp) == addresses(&udp), || {
        "the reply over TCP differs from the one over UDP".into()
    })
}

fn large_replies_arrive(t: &mut Trial<'_>) -> Judged {
    let query = Message::query(&t.name("many-90"), Rtype::AAAA);
    let reply = t.ask_tcp(&query)?;
    expect(!reply.flags.tc, || "the reply over TCP is truncated".into())?;
    let (found, wanted) = (reply.answers(Rtype::AAAA).count(), many(t, 90));
    expect(found == wanted.len(), || {
        format!("there are {found} of {} addresses, RCODE {}", wanted.len(), reply.rcode)
    })?;
    reply.has_aaaa(&wanted)
}

fn replies_stay_on_their_connection(t: &mut Trial<'_>) -> Judged {
    let slow = Message::query(&t.name("v4-1-2-3-4.aaaa-delay-400"), Rtype::AAAA);
    let quick = Message::query(&t.name("v4-8-8-4-4"), Rtype::AAAA);
    let (mut first, mut second) = (t.connect()?, t.connect()?);
    let begin = Instant::now();
    send_raw(&mut first, &framed(std::slice::from_ref(&slow)))?;
    send_raw(&mut second, &framed(std::slice::from_ref(&quick)))?;
    let to_quick = t.receive(&mut second, &quick, begin)?;
    let to_slow = t.receive(&mut first, &slow, begin)?;
    expect(to_quick.questions == quick.questions && to_slow.questions == slow.questions, || {
        "a connection got the reply to a query of the other one".into()
    })?;
    to_quick.has_aaaa(&t.embedded("8.8.4.4"))
}

fn connections_are_reused(t: &mut Trial<'_>) -> Judged {
    let mut connection = t.connect()?;
    for query in simple_queries::<3>() {
        let begin = Instant::now();
        send_raw(&mut connection, &framed(std::slice::from_ref(&query)))?;
        t.receive(&mut connection, &query, begin)?;
    }
    Ok(())
}

/// A server that loses any of the queries after the first one does not support pipelining.
fn pipelined_queries_are_expected(t: &mut Trial<'_>) -> Judged {
    let queries = simple_queries::<3>();
    let mut connection = t.connect()?;
    send_raw(&mut connection, &framed(&queries))?;
    all_replies(t, &mut connection, &queries).map(drop)
}

fn all_pipelined_queries_are_answered(t: &mut Trial<'_>) -> Judged {
    let first: u16 = rand::random();
    let mut queries = Vec::new();
    for n in 1..=10 {
        let query = Message::query(&t.name(&format!("v4-9-9-9-{n}")), Rtype::AAAA);
        queries.push(Message { id: first.wrapping_add(n), ..query });
    }
    let mut connection = t.connect()?;
    send_raw(&mut connection, &framed(&queries))?;
    let replies = all_replies(t, &mut connection, &queries)?;
    for (n, reply) in (1..).zip(replies) {
        reply.has_aaaa(&t.embedded(&format!("9.9.9.{n}")))?;
    }
    Ok(())
}

fn idle_connections_stay_open(t: &mut Trial<'_>) -> Judged {
    let mut connection = t.connect()?;
    for (n, query) in simple_queries::<2>().iter().enumerate() {
        if n > 0 {
            thread::sleep(Duration::from_secs(2));
        }
        let begin = Instant::now();
        send_raw(&mut connection, &framed(std::slice::from_ref(query)))?;
        t.receive(&mut connection, query, begin)?;
    }
    Ok(())
}

fn slow_names_hold_nothing_back_over_tcp(t: &mut Trial<'_>) -> Judged {
    let slow = Message::query(&t.name("v4-1-2-3-4.aaaa-delay-800"), Rtype::AAAA);
    let quick = Message::query(&t.name("v4-8-8-4-4"), Rtype::AAAA);
    let queries = [slow, quick];
    let mut connection = t.connect()?;
    send_raw(&mut connection, &framed(&queries[..1]))?;
    // The slow query must be in flight before the next query is sent.
    thread::sleep(Duration::from_millis(100));
    send_raw(&mut connection, &framed(&queries[1..]))?;
    let reply = next_reply(t, &mut connection, &queries)?;
    expect(reply.questions == queries[1].questions, || {
        "the reply to the second query waited for the slow first one".into()
    })?;
    reply.has_aaaa(&t.embedded("8.8.4.4"))
}

fn slow_names_hold_nothing_back_over_udp(t: &mut Trial<'_>) -> Judged {
    let slow: Vec<Vec<u8>> = (0..3)
        .map(|_| Message::query(&t.name("v4-1-2-3-4.all-delay-800"), Rtype::AAAA).octets())
        .collect();
    let quick = Message::query(&t.name("v4-8-8-4-4"), Rtype::AAAA);
    let (server, wanted) = (t.subject().server, t.embedded("8.8.4.4"));
    thread::scope(|scope| {
        let asking: Vec<_> = slow
            .iter()
            .map(|octets| {
                scope.spawn(move || {
                    let reply = ask::datagram(server, octets, Duration::from_secs(2));
                    reply.ok().flatten().map(|_| Instant::now())
                })
            })
            .collect();
        // The slow queries must be in flight before the next query is sent.
        thread::sleep(Duration::from_millis(100));
        let reply = t.ask(&quick)?;
        let here = Instant::now();
        let slow = asking.into_iter().filter_map(|asking| asking.join().ok().flatten());
        let before = slow.filter(|slow| *slow < here).count();
        expect(before == 0, || format!("the reply was delayed by {before} slow names"))?;
        reply.has_aaaa(&wanted)
    })
}

fn queries_may_arrive_in_pieces(t: &mut Trial<'_>) -> Judged {
    let [query] = simple_queries();
    let octets = framed(std::slice::from_ref(&query));
    let mut connection = t.connect()?;
    let begin = Instant::now();
    // The cuts are within the length, within the header, and before the last octet.
    for piece in [&octets[..1], &octets[1..6], &octets[6..octets.len() - 1]] {
        send_raw(&mut connection, piece)?;
        thread::sleep(Duration::from_millis(100));
    }
    send_raw(&mut connection, &octets[octets.len() - 1..])?;
    t.receive(&mut connection, &query, begin).map(drop)
}

fn segments_need_not_end_with_messages(t: &mut Trial<'_>) -> Judged {
    let queries = simple_queries::<2>();
    let octets = framed(&queries);
    let middle = octets.len() / 2 + 7;
    let mut connection = t.connect()?;
    send_raw(&mut connection, &octets[..middle])?;
    thread::sleep(Duration::from_millis(100));
    send_raw(&mut connection, &octets[middle..])?;
    all_replies(t, &mut connection, &queries).map(drop)
}

fn half_messages_stop_nobody(t: &mut Trial<'_>) -> Judged {
    let [stuck, over_udp, over_tcp] = simple_queries();
    let octets = framed(&[stuck]);
    let mut connections = [t.connect()?, t.connect()?];
    for (connection, end) in connections.iter_mut().zip([1, octets.len() / 2]) {
        send_raw(connection, &octets[..end])?;
    }
    t.ask(&over_udp)?;
    t.ask_tcp(&over_tcp).map(drop)
}

fn several_connections_are_served(t: &mut Trial<'_>) -> Judged {
    let mut connections = Vec::new();
    for _ in 0..4 {
        connections.push(t.connect()?);
    }
    // The connections are used in reverse order. The earlier connections are thus open and idle while a later one is
    // used.
    for (connection, query) in connections.iter_mut().rev().zip(&simple_queries::<4>()) {
        let begin = Instant::now();
        send_raw(connection, &framed(std::slice::from_ref(query)))?;
        t.receive(connection, query, begin)?;
    }
    Ok(())
}

// Sizes of datagrams.

fn without_opt_512_octets(t: &mut Trial<'_>) -> Judged {
    let query = offering(None, Message::query(&t.name("many-40"), Rtype::AAAA));
    let reply = t.ask(&query)?;
    expect(reply.flags.tc, || "40 addresses do not fit into 512 octets, but TC is clear".into())?;
    fits(t, &query, 512)?;
    let wanted = many(t, 40);
    t.ask_tcp(&query)?.has_aaaa(&wanted)
}

fn less_than_512_is_512(t: &mut Trial<'_>) -> Judged {
    // With one prefix, the reply has 12 addresses and about 420 octets.
    let count = 12 / t.subject().prefixes.len().clamp(1, 12) as u32;
    let query = Message::query(&t.name(&format!("many-{count}")), Rtype::AAAA);
    let query = offering(Some(100), query);
    let wanted = many(t, count);
    let reply = t.ask(&query)?;
    expect(!reply.flags.tc, || "a reply that fits into 512 octets is truncated".into())?;
    reply.has_aaaa(&wanted)?;
    fits(t, &query, 512)
}

fn datagrams_fit_the_client(t: &mut Trial<'_>) -> Judged {
    for payload in [512, 900, 1232] {
        let query = Message::query(&t.name("many-60"), Rtype::AAAA);
        let query = offering(Some(payload), query);
        let reply = t.ask(&query)?;
        expect(reply.flags.tc, || {
            format!("60 addresses do not fit into {payload} octets, but TC is clear")
        })?;
        fits(t, &query, usize::from(payload))?;
    }
    Ok(())
}

fn datagrams_are_not_fragmented(t: &mut Trial<'_>) -> Judged {
    let query = Message::query(&t.name("many-90"), Rtype::AAAA);
    let query = offering(Some(4096), query);
    t.ask(&query)?.has_rcode(rcode::NOERROR)?;
    fits(t, &query, 1400)
}

// Truncated and late replies of the upstream.

fn truncated_a_is_asked_over_tcp(t: &mut Trial<'_>) -> Judged {
    let asked = t.name("v4-1-2-3-4.a-tc");
    let reply = t.ask_whole(&Message::query(&asked, Rtype::AAAA))?;
    reply.has_aaaa(&t.embedded("1.2.3.4"))
}

fn truncated_aaaa_is_asked_over_tcp(t: &mut Trial<'_>) -> Judged {
    let asked = t.name("v6-20010db8000000000000000000000001.v4-1-2-3-4.aaaa-tc");
    let reply = t.ask_whole(&Message::query(&asked, Rtype::AAAA))?;
    reply.has_aaaa(&[Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)])
}

/// Requires that the reply is SERVFAIL, or contains the correct addresses.
fn right_or_servfail(reply: &Message, wanted: &[Ipv6Addr]) -> Judged {
    if is_servfail(reply) { Ok(()) } else { reply.has_aaaa(wanted) }
}

fn tcp_only_upstream_is_no_silence(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("v4-1-2-3-4.all-tcponly")?;
    right_or_servfail(&reply, &t.embedded("1.2.3.4"))
}

fn slow_upstream_is_no_silence(t: &mut Trial<'_>) -> Judged {
    let labels = ["v4-1-2-3-4.a-delay-2000", "v4-1-2-3-4.aaaa-delay-2000"];
    let queries = labels.map(|labels| Message::query(&t.name(labels), Rtype::AAAA));
    let wanted = t.embedded("1.2.3.4");
    for (labels, reply) in labels.into_iter().zip(t.ask_all(&queries)?) {
        let reply = reply.ok_or_else(|| Fault::Silent(format!("no reply for {labels}")))?;
        right_or_servfail(&reply, &wanted)?;
    }
    Ok(())
}

fn silent_upstream_is_servfail(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("v4-1-2-3-4.all-silent")?;
    reply.has_rcode(rcode::SERVFAIL)
}
