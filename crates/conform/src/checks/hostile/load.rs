//! Scripts of the checks for situations in which the server must limit its work: alias chains, upstream failures, heavy
//! load, and malformed messages.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use domain::base::iana::Rtype;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::ask;
use crate::message::{Message, name, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect, no_socket};

// Aliases.

pub(super) fn chains_end(t: &mut Trial<'_>) -> Judged {
    const ALIASES: usize = 25;
    // The labels of the chain need 150 octets, and the rest of the name without the zone needs 50. A name has at most
    // 255 octets.
    if t.subject().zone.is_none_or(|zone| zone.len() > 55) {
        return Err(Fault::NotTried("the zone's name is too long for a chain of aliases".into()));
    }
    let asked = t.name(&format!("{}v4-1-2-3-4", "cname.".repeat(ALIASES)));
    let reply = t.ask_whole(&Message::query(&asked, Rtype::AAAA))?;
    match reply.rcode {
        rcode::SERVFAIL => Ok(()),
        _ => reply.has_aaaa(&t.embedded("1.2.3.4")),
    }
}

pub(super) fn loops_are_bounded(t: &mut Trial<'_>) -> Judged {
    let asked = t.name("half.loop");
    t.ask(&Message::query(&asked, Rtype::AAAA))?;
    let questions = t.was_asked(&asked)?.len();
    expect(questions <= 32, || {
        format!("the test authoritative server received {questions} queries")
    })
}

// Failures.

pub(super) fn questions_are_asked_three_times_at_most(t: &mut Trial<'_>) -> Judged {
    let asked = t.name("v4-1-2-3-4.all-silent");
    // This check does not require a reply.
    let query = Message::query(&asked, Rtype::AAAA);
    t.send_octets(&query.octets(), t.subject().patience)?;
    let mut questions: HashMap<_, usize> = HashMap::new();
    for question in t.was_asked(&asked)? {
        // The same question without OPT is a different query (RFC 6891 §6.2.2).
        let query = (question.qtype, question.tcp, question.payload.is_some());
        *questions.entry(query).or_default() += 1;
    }
    let most = questions.values().copied().max().unwrap_or(0);
    expect(most <= 3, || format!("a query for {asked} was sent {most} times over one transport"))
}

pub(super) fn failures_are_of_a_type(t: &mut Trial<'_>) -> Judged {
    let asked = t.name("txt.a-rcode-2.aaaa-rcode-2");
    t.ask(&Message::query(&asked, Rtype::AAAA))?;
    let reply = t.ask(&Message::query(&asked, Rtype::TXT))?;
    reply.has_rcode(rcode::NOERROR)?;
    expect(reply.answers(Rtype::TXT).count() == 1, || "the TXT record is missing".into())
}

// Load.

pub(super) fn crowds_are_answered(t: &mut Trial<'_>) -> Judged {
    let query = Message::query(&t.name("v4-1-2-3-4.all-delay-100"), Rtype::AAAA);
    let wanted = t.embedded("1.2.3.4");
    let (mut clients, mut answered) = (0, 0);
    for _ in 0..4 {
        let crowd: Vec<Message> =
            (0..250).map(|_| Message { id: rand::random(), ..query.clone() }).collect();
        let replies = t.ask_all(&crowd)?;
        clients += replies.len();
        answered +=
            replies.iter().flatten().filter(|reply| reply.has_aaaa(&wanted).is_ok()).count();
        // If many queries of a block got no reply, the block has taken the full timeout, so no further block is sent.
        if answered * 100 < clients * 95 {
            break;
        }
    }
    expect(answered * 100 >= clients * 95, || {
        format!("{answered} of {clients} clients got the answer")
    })
}

pub(super) fn crowds_are_asked_for_once(t: &mut Trial<'_>) -> Judged {
    const CLIENTS: usize = 200;
    let asked = t.name("v4-1-2-3-4.all-delay-300");
    let query = Message::query(&asked, Rtype::AAAA);
    let crowd: Vec<Message> =
        (0..CLIENTS).map(|_| Message { id: rand::random(), ..query.clone() }).collect();
    t.ask_all(&crowd)?;
    let questions = t.was_asked(&asked)?;
    let of = |qtype: Rtype| questions.iter().filter(|q| q.qtype == qtype.to_int()).count();
    let most = of(Rtype::AAAA).max(of(Rtype::A));
    // If threads or processes share no state, each of them may send one query, and a second query after the delay.
    expect(most <= CLIENTS / 10, || {
        format!("{CLIENTS} clients caused {most} equal upstream queries")
    })
}

pub(super) fn dead_names_harm_no_others(t: &mut Trial<'_>) -> Judged {
    // There are four clients per name, so a server that merges equal queries has 25 upstream queries in flight. With
    // more queries in flight, some servers would mark the test authoritative server down, which would affect all other
    // checks.
    let dead: Vec<Vec<u8>> = (0..25)
        .map(|_| Message::query(&t.name("v4-1-2-3-4.all-silent"), Rtype::AAAA).octets())
        .collect();
    let (server, wanted) = (t.subject().server, t.embedded("8.8.4.4"));
    thread::scope(|scope| {
        let mut crowd = Vec::new();
        for octets in dead.iter().cycle().take(100) {
            let ask = move || ask::datagram(server, octets, Duration::from_secs(2)).map(drop);
            crowd.push(scope.spawn(ask));
        }
        // The queries for silent names must be in flight before the other queries are sent.
        thread::sleep(Duration::from_millis(100));
        for _ in 0..5 {
            let query = Message::query(&t.name("v4-8-8-4-4"), Rtype::AAAA);
            let begin = Instant::now();
            let reply = t.ask(&query)?;
            let took = begin.elapsed();
            expect(took < Duration::from_millis(1500), || {
                format!("a responsive name took {} ms", took.as_millis())
            })?;
            reply.has_aaaa(&wanted)?;
        }
        crowd.into_iter().try_for_each(|client| {
            client.join().expect("query threads do not panic").map_err(|error| no_socket(&error))
        })
    })
}

// Malformed messages.

/// Waiting time for a reply to a malformed message. It is short, because the reply is ignored and many such messages
/// are sent.
const SHORTLY: Duration = Duration::from_millis(20);

/// Time after which even a server on a busy host has processed a message.
const PROCESSED: Duration = Duration::from_secs(1);

/// Requires that the server still answers queries.
fn is_alive(t: &mut Trial<'_>) -> Judged {
    t.ask(&Message::query(&name("ipv4only.arpa"), Rtype::AAAA)).map(drop)
}

/// Builds a message from the four record counts of the header, and the octets that follow the header.
fn message(counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
    let mut octets = vec![0x12, 0x34, 0x01, 0x00];
    octets.extend(counts.into_iter().flat_map(u16::to_be_bytes));
    octets.extend(rest);
    octets
}

/// Returns queries on which a careless parser does not terminate, or reads beyond the end of the message.
fn malformed() -> Vec<Vec<u8>> {
    const AAAA_IN: [u8; 4] = [0, 28, 0, 1];
    let one = [1, 0, 0, 0];
    let labels = |count: usize| b"\x01x".repeat(count);
    vec![
        Vec::new(),
        vec![0],
        message([1, 0, 0, 0], &[])[..11].to_vec(),
        message(one, &[]),
        // Names that point to themselves, to each other, forward, and beyond the end.
        message(one, &[b"\xc0\x0c".as_slice(), &AAAA_IN].concat()),
        message(one, &[b"\xc0\x0e\xc0\x0c".as_slice(), &AAAA_IN].concat()),
        message(one, &[b"\xc0\x12".as_slice(), &AAAA_IN, b"\x01x\0"].concat()),
        message(one, &[b"\xff\xff".as_slice(), &AAAA_IN].concat()),
        // A label longer than the message, a label of an undefined type, and a name of 401 octets.
        message(one, &[b"\x3fx".as_slice(), &AAAA_IN].concat()),
        message(one, &[b"\x80x\0".as_slice(), &AAAA_IN].concat()),
        message(one, &[labels(200).as_slice(), b"\0", &AAAA_IN].concat()),
        // Counts that exceed the actual number of records.
        message([0xffff; 4], &[b"\x01x\0".as_slice(), &AAAA_IN].concat()),
        message([1, 0, 0, 0xffff], &[b"\x01x\0".as_slice(), &AAAA_IN].concat()),
        // OPT records whose data or option is longer than the message.
        message([1, 0, 0, 1], b"\x01x\0\0\x1c\0\x01\0\0\x29\x04\xd0\0\0\0\0\xff\xff"),
        message([1, 0, 0, 1], b"\x01x\0\0\x1c\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\x04\0\x0a\xff\xff"),
    ]
}

pub(super) fn malformed_queries_end_nothing(t: &mut Trial<'_>) -> Judged {
    for octets in malformed() {
        t.send_octets(&octets, SHORTLY)?;
    }
    is_alive(t)
}

pub(super) fn noise_ends_nothing(t: &mut Trial<'_>) -> Judged {
    const DATAGRAMS: usize = 200;
    let query = Message::query(&name("ipv4only.arpa"), Rtype::AAAA).octets();
    let mut noise: Vec<Vec<u8>> = (0..query.len()).map(|end| query[..end].to_vec()).collect();
    // The seed is fixed, so that a crash of a server can be reproduced.
    let mut random = StdRng::seed_from_u64(5452);
    while noise.len() < DATAGRAMS {
        let mut octets = vec![0; random.random_range(1..1200)];
        random.fill(octets.as_mut_slice());
        noise.push(octets);
    }
    for octets in noise {
        t.send_octets(&octets, Duration::from_millis(1))?;
    }
    is_alive(t)
}

pub(super) fn stray_tcp_octets_end_nothing(t: &mut Trial<'_>) -> Judged {
    let mut loops = vec![0, 18];
    loops.extend(message([1, 0, 0, 0], b"\xc0\x0c\0\x1c\0\x01"));
    // A server may wait for the rest of an incomplete message, but it processes a complete message.
    let all = [(&[0, 0][..], SHORTLY), (&[0, 1, 0], SHORTLY), (&[0xff, 0xff, 1, 2, 3], SHORTLY)];
    for (octets, wait) in all.into_iter().chain([(&loops[..], PROCESSED)]) {
        let mut connection = t.connect()?;
        // The server may close the connection instead of replying.
        if connection.send_raw(octets).is_ok() {
            connection.receive(wait).ok();
        }
    }
    is_alive(t)?;
    t.ask_tcp(&Message::query(&name("ipv4only.arpa"), Rtype::AAAA)).map(drop)
}
