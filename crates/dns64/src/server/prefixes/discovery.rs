//! Discovery of the upstreams' prefixes by queries for `ipv4only.arpa` (RFC 7050 §3).

use std::future::{Future, poll_fn};
use std::io;
use std::net::Ipv6Addr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use net::address::ServiceAddr;
use net::clock;
use rand::RngExt;
use tokio::time::{sleep, timeout};
use units::Nanos;
use wire::view::{Message, rtype};

use super::state::{Announcement, PrefixesWithTtl, SharedState, TICK};
use crate::config::{PrefixKeys, Settings};
use crate::prefixes::discovery;
use crate::resolver::answer::{Answer, AnswerKind};
use crate::resolver::ttl::TtlLimits;
use crate::server::shared::Shared;
use crate::server::upstream_query;

/// The root name.
const ROOT: &[u8] = b"\0";
/// Header of the query, without the ID. RD is set, and there is one question. CD is clear, because a DNS64 does not
/// synthesize for queries with CD (RFC 7050 §3).
const HEADER: &[u8] = b"\x01\0\0\x01\0\0\0\0\0\x01";
/// Question for the AAAA records of ipv4only.arpa.
const QUESTION: &[u8] = b"\x08ipv4only\x04arpa\0\0\x1c\0\x01";
/// An OPT record for answers of up to 1 232 octets (RFC 6891 §6.1.2).
const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";

/// Queries the upstreams for `ipv4only.arpa` each time a query is due. Sends no queries while
/// discovery from upstreams is not configured.
pub(super) async fn query_periodically(shared: Arc<Shared>, state: SharedState) {
    let wanted = || upstreams(&shared.settings.load());
    loop {
        let upstreams = wanted();
        let is_due = state.borrow_mut().is_due(&upstreams, clock::now());
        if is_due {
            let still = || wanted() == upstreams;
            // If the list of upstreams has changed in the meantime, the answers from the old list
            // are discarded.
            let Some(announcement) = query_while(&upstreams, still).await else { continue };
            state.borrow_mut().record_announcement(announcement, clock::now());
        }
        sleep(TICK).await;
    }
}

/// Returns the upstreams used for discovery. These are the upstreams for all names outside of
/// `[[forward]]` domains. The list is empty if discovery from upstreams is off.
fn upstreams(settings: &Settings) -> Vec<ServiceAddr> {
    let wanted = settings.config.discovery.upstreams
        && settings.config.written_prefixes().any(PrefixKeys::is_discovered);
    if !wanted {
        return Vec::new();
    }
    let numbers = &settings.routes[settings.route(ROOT).0].upstreams;
    numbers.iter().map(|&number| settings.upstreams[number].address).collect()
}

/// Queries the upstreams in the same way as [`ask`], and returns the result. If `wanted` returns false before the
/// result is available, the function stops and returns `None`.
async fn query_while(
    upstreams: &[ServiceAddr],
    wanted: impl Fn() -> bool,
) -> Option<Option<Announcement>> {
    let mut asking = pin!(ask(upstreams));
    loop {
        let answered = timeout(TICK, asking.as_mut()).await;
        if !wanted() {
            return None;
        }
        if let Ok(announcement) = answered {
            return Some(announcement);
        }
    }
}

/// Returns the announcement of the first upstream in the list that announces at least one prefix. If all upstreams have
/// answered and none announces a prefix, returns an announcement without prefixes. If no upstream announces a prefix
/// and at least one has not answered, the result is `None`. All upstreams are queried in parallel, because waiting for
/// several dead upstreams in turn could take so long that a known prefix expires.
async fn ask(upstreams: &[ServiceAddr]) -> Option<Announcement> {
    let asked = |&upstream| Box::pin(ask_one(upstream));
    let mut asked: Vec<_> = upstreams.iter().map(|to| (asked(to), None)).collect();
    poll_fn(|context| {
        for (asking, said) in asked.iter_mut().filter(|(_, said)| said.is_none()) {
            if let Poll::Ready(answer) = asking.as_mut().poll(context) {
                // A timeout, an error and an invalid answer are treated alike.
                *said = Some(answer.ok().flatten());
            }
        }
        let mut none = None;
        let mut have_all_answered = true;
        for (&upstream, (_, said)) in upstreams.iter().zip(&asked) {
            match said {
                // The answer of this upstream is pending, and takes precedence over answers from
                // later upstreams.
                None => return Poll::Pending,
                Some(None) => have_all_answered = false,
                Some(Some(found)) if found.0.is_empty() => {
                    none = Some(Announcement { by: None, found: found.clone() });
                }
                Some(Some(found)) => {
                    let found = found.clone();
                    return Poll::Ready(Some(Announcement { by: Some(upstream), found }));
                }
            }
        }
        Poll::Ready(none.filter(|_| have_all_answered))
    })
    .await
}

/// Queries one upstream. Returns `None` if the answer is not usable.
async fn ask_one(upstream: ServiceAddr) -> io::Result<Option<PrefixesWithTtl>> {
    let id: [u8; 2] = rand::rng().random();
    let query = [&id[..], HEADER, QUESTION, OPT].concat();
    Ok(read(&upstream_query::ask(upstream, &query).await?))
}

/// Returns the prefixes in an answer, and the lowest TTL of its AAAA records. An answer without
/// AAAA records means that the upstream is not a DNS64, and the list of prefixes is empty. If the
/// AAAA records contain no prefix, the answer is invalid, and the result is `None`.
fn read(message: &[u8]) -> Option<PrefixesWithTtl> {
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
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;
    use crate::translation::prefix::Prefix;

    /// Queries these upstreams. After the configuration has been checked `looks` times, the upstreams are no longer
    /// configured.
    fn asked(upstreams: &[ServiceAddr], looks: u32) -> Option<Option<Announcement>> {
        let left = Cell::new(looks);
        let wanted = || left.replace(left.get().saturating_sub(1)) > 0;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(query_while(upstreams, wanted))
    }

    #[test]
    fn removed_upstreams_are_not_waited_for() {
        let at = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (dead, live) = (at(), at());
        let [to_dead, to_live] = [&dead, &live].map(|socket| socket.local_addr().unwrap().into());
        std::thread::spawn(move || {
            live.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut query = [0; 512];
            while let Ok((_, from)) = live.recv_from(&mut query) {
                let mut answer = reply(0, &[(SAME, 60, "64:ff9b::c000:aa")]);
                answer[..2].copy_from_slice(&query[..2]);
                let _ = live.send_to(&answer, from);
            }
        });
        // The queries to dead upstreams end only when they time out.
        let found = (vec![Prefix::WELL_KNOWN], Nanos(60 * Nanos::SECOND.0));
        let announcement = Announcement { by: Some(to_live), found };
        let wanted = [&[to_dead; 20][..], &[to_live]].concat();
        assert_eq!(asked(&wanted, u32::MAX), Some(Some(announcement)));
        // Answers that arrive after the query was cancelled are ignored.
        assert_eq!(asked(&[to_live], 0), None);
        // Answers from removed upstreams are not awaited. All upstreams are queried in parallel, so
        // each of them has received a query by then.
        dead.set_nonblocking(true).unwrap();
        let questions = || std::iter::from_fn(|| dead.recv(&mut [0; 512]).ok()).count();
        questions();
        assert_eq!(asked(&[to_dead; 20], 2), None);
        assert_eq!(questions(), 20);
    }

    /// A reply with these records: owner (a pointer or a name), TTL, address.
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
    fn prefixes_have_the_lowest_ttl_of_their_records() {
        let two = [(SAME, 600, "64:ff9b::c000:aa"), (SAME, 60, "2001:db8::c000:ab")];
        let wanted = vec!["64:ff9b::/96".to_owned(), "2001:db8::/96".to_owned()];
        assert_eq!(found(&reply(0, &two)), Some((wanted, 60)));
        assert_eq!(found(&reply(0, &[])), Some((vec![], 0)), "no DNS64");
        assert_eq!(found(&reply(3, &[])), Some((vec![], 0)), "nor here");
    }

    #[test]
    fn invalid_answers_are_ignored() {
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
