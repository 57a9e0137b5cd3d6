//! The upstreams' prefixes, from their answers for `ipv4only.arpa` (RFC 7050 §3).

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use method::units::Nanos;
use net::clock;
use rand::RngExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};
use wire::view::{Message, rtype};

use super::state::{Found, Shares, TICK};
use crate::config::{PrefixKeys, Settings};
use crate::prefixes::discovery;
use crate::resolver::answer::{Answer, AnswerKind};
use crate::resolver::ttl::TtlLimits;
use crate::server::shared::Shared;
use crate::transport::framing::{read_message, write_message};

/// How long an upstream may take to answer, TCP included.
const PATIENCE: Duration = Duration::from_secs(2);
/// RD and one question; CD is not set, or a DNS64 would make no address (RFC 7050 §3).
const HEADER: &[u8] = b"\x01\0\0\x01\0\0\0\0\0\x01";
/// AAAA of ipv4only.arpa.
const QUESTION: &[u8] = b"\x08ipv4only\x04arpa\0\0\x1c\0\x01";
/// An OPT record for answers of up to 1 232 octets (RFC 6891 §6.1.2).
const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";

/// Asks the upstreams as often as it is needed, as long as prefixes are looked for there.
pub(super) async fn ask_again(shared: Arc<Shared>, state: Shares) {
    loop {
        let settings = shared.settings.load_full();
        let wanted = settings.config.discovery.upstreams
            && settings.config.written_prefixes().any(PrefixKeys::is_discovered);
        let upstreams = if wanted { upstreams(&settings) } else { Vec::new() };
        let is_due = state.borrow_mut().is_due(&upstreams, clock::now());
        if is_due {
            let found = ask(&upstreams).await;
            state.borrow_mut().note(found, clock::now());
        }
        sleep(TICK).await;
    }
}

/// The upstreams that are asked for all but the domains of forward rules.
fn upstreams(settings: &Settings) -> Vec<SocketAddr> {
    let numbers = settings.routes.last().into_iter().flat_map(|route| &route.upstreams);
    numbers.map(|&number| settings.upstreams[number].address).collect()
}

/// The prefixes that the first upstream names which names any. None at all, if all have answered and
/// none of them does.
async fn ask(upstreams: &[SocketAddr]) -> Option<Found> {
    let (mut none, mut have_all_answered) = (None, true);
    for &upstream in upstreams {
        match timeout(PATIENCE, ask_one(upstream)).await {
            Ok(Ok(Some((prefixes, ttl)))) if prefixes.is_empty() => none = Some((prefixes, ttl)),
            Ok(Ok(Some(found))) => return Some(found),
            _ => have_all_answered = false,
        }
    }
    none.filter(|_| have_all_answered)
}

/// What one upstream answers; `None` if that is no answer to the question.
async fn ask_one(upstream: SocketAddr) -> io::Result<Option<Found>> {
    let id: [u8; 2] = rand::rng().random();
    let query = [&id[..], HEADER, QUESTION, OPT].concat();
    let answer = ask_over_udp(upstream, &query).await?;
    if Message::new(&answer).is_some_and(|message| message.is_truncated()) {
        return Ok(read(&ask_over_tcp(upstream, &query).await?));
    }
    Ok(read(&answer))
}

/// The first datagram of the upstream that has the query's id.
async fn ask_over_udp(upstream: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = match upstream {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(upstream).await?;
    socket.send(query).await?;
    let mut buffer = vec![0; 4_096];
    loop {
        let len = socket.recv(&mut buffer).await?;
        // Somebody else's guess is not waited for in vain.
        if buffer[..len].starts_with(&query[..2]) {
            buffer.truncate(len);
            return Ok(buffer);
        }
    }
}

async fn ask_over_tcp(upstream: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(upstream).await?;
    write_message(&mut stream, query).await?;
    read_message(&mut stream, PATIENCE).await
}

/// The prefixes in an answer, and the least TTL of its AAAA records. Without such records there is no
/// DNS64; records that name no prefix are no answer to this question.
fn read(message: &[u8]) -> Option<Found> {
    if !Message::new(message)?.is_response() {
        return None;
    }
    let answer = Answer::parse(message, QUESTION, &TtlLimits::default()).ok()?;
    let (mut addresses, mut ttl) = (Vec::new(), u32::MAX);
    match answer.kind() {
        AnswerKind::Data => {
            for record in answer.answers().filter(|record| record.rtype == rtype::AAAA) {
                addresses.push(Ipv6Addr::from(<[u8; 16]>::try_from(record.data).ok()?));
                ttl = ttl.min(record.ttl);
            }
        }
        AnswerKind::NoData | AnswerKind::NxDomain => ttl = answer.negative_ttl().unwrap_or(0),
        AnswerKind::Unfinished | AnswerKind::Failed => return None,
    }
    let prefixes = discovery::prefixes(&addresses);
    let is_wrong = prefixes.is_empty() && !addresses.is_empty();
    (!is_wrong).then(|| (prefixes, Nanos(u64::from(ttl) * Nanos::SECOND.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply to the question with these records: owner (a pointer, or a name), TTL, address.
    fn reply(rcode: u8, records: &[(&[u8], u32, &str)]) -> Vec<u8> {
        let count = [0, records.len() as u8];
        let mut message = [&b"\0\0\x81"[..], &[0x80 | rcode, 0, 1], &count, &[0; 4]].concat();
        message.extend(QUESTION);
        for (owner, ttl, address) in records {
            let address = address.parse::<Ipv6Addr>().unwrap().octets();
            let ttl = ttl.to_be_bytes();
            message.extend([*owner, b"\0\x1c\0\x01", &ttl, b"\0\x10", &address].concat());
        }
        message
    }

    const SAME: &[u8] = b"\xc0\x0c";

    fn found(message: &[u8]) -> Option<(Vec<String>, u64)> {
        let (prefixes, lifetime) = read(message)?;
        let prefixes = prefixes.iter().map(ToString::to_string).collect();
        Some((prefixes, lifetime.0 / Nanos::SECOND.0))
    }

    #[test]
    fn the_prefixes_are_those_of_the_records_for_the_shortest_ttl() {
        let two = [(SAME, 600, "64:ff9b::c000:aa"), (SAME, 60, "2001:db8::c000:ab")];
        let wanted = vec!["64:ff9b::/96".to_owned(), "2001:db8::/96".to_owned()];
        assert_eq!(found(&reply(0, &two)), Some((wanted, 60)));
        assert_eq!(found(&reply(0, &[])), Some((vec![], 0)), "no DNS64");
        assert_eq!(found(&reply(3, &[])), Some((vec![], 0)), "nor here");
    }

    #[test]
    fn what_is_no_answer_says_nothing() {
        assert_eq!(found(&reply(2, &[])), None, "SERVFAIL");
        let mut query = reply(0, &[(SAME, 60, "64:ff9b::c000:aa")]);
        query[2] &= 0x7f;
        assert_eq!(found(&query), None);
        let mut other = reply(0, &[(SAME, 60, "64:ff9b::c000:aa")]);
        other[13] = b'x';
        assert_eq!(found(&other), None, "the answer to another question");
        assert_eq!(found(&reply(0, &[(SAME, 60, "2001:db8::1")])), None, "no address of the name");
        assert_eq!(found(b""), None);
    }

    #[test]
    fn records_of_other_names_do_not_count() {
        let other = [(&b"\x01x\x04arpa\0"[..], 60, "64:ff9b::c000:aa")];
        let found = found(&reply(0, &other));
        assert!(found.is_none_or(|(prefixes, _)| prefixes.is_empty()));
    }
}
