//! Scripts: caching of answers, negative answers and failures.

use std::thread;
use std::time::Duration;

use domain::base::ToName;
use domain::base::iana::Rtype;

use super::common::unique;
use crate::message::{Message, Name, Record, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

/// Kinds of negative answers to AAAA queries. Each has the labels with which a queried name requests it from the test
/// authoritative server, and its RCODE.
const DENIALS: [(&str, u16); 2] = [("", rcode::NOERROR), ("all-rcode-3.", rcode::NXDOMAIN)];
/// Waiting time after which a TTL of six seconds has expired. The time includes one second for rounding.
const OVER: Duration = Duration::from_millis(7200);
/// Waiting time after which the TTL of a cached record must have decreased.
const A_WHILE: Duration = Duration::from_millis(2200);
/// Waiting time between two identical queries whose replies must not be cached. Many servers count TTLs in whole
/// seconds, so the time is longer than one second.
const A_SECOND: Duration = Duration::from_millis(1100);
/// Waiting time for upstream queries that the server sends after its reply to the client.
const A_MOMENT: Duration = Duration::from_millis(50);

/// Result of two identical client queries.
struct RepeatedQuery {
    name: Name,
    first: Message,
    second: Message,
    /// True if the second client query caused an upstream query.
    asked_again: bool,
}

/// Returns a name that is the only child of its parent.
fn only_child(t: &mut Trial<'_>, labels: &str) -> Name {
    let unique = unique(t);
    t.name(&format!("{labels}.{unique}"))
}

/// Returns the number of upstream queries for a name and its parent. A server that minimizes names (RFC 9156) sends no
/// query for the name if its query for the parent got NXDOMAIN.
fn times_asked(t: &Trial<'_>, name: &Name) -> Judged<usize> {
    let parent = name.parent().map_or_else(Name::root_vec, |parent| parent.to_name());
    Ok(t.asked(name)?.len() + t.asked(&parent)?.len())
}

/// Sends all queries, waits, and sends them again.
fn query_twice(
    t: &mut Trial<'_>,
    asking: &[(Name, Rtype)],
    wait: Duration,
) -> Judged<Vec<RepeatedQuery>> {
    let mut first = Vec::new();
    for (name, qtype) in asking {
        first.push(t.ask(&Message::query(name, *qtype))?);
    }
    thread::sleep(wait);
    let mut both = Vec::new();
    for ((name, qtype), first) in asking.iter().zip(first) {
        let before = times_asked(t, name)?;
        let second = t.ask(&Message::query(name, *qtype))?;
        let asked_again = times_asked(t, name)? > before;
        both.push(RepeatedQuery { name: name.clone(), first, second, asked_again });
    }
    Ok(both)
}

/// Returns AAAA queries for a name without addresses and for a name that does not exist. Negative answers for both
/// names contain the SOA record that the label `soa` defines.
fn both_denials(t: &mut Trial<'_>, soa: &str) -> Vec<(Name, Rtype)> {
    DENIALS.map(|(denial, _)| (only_child(t, &format!("{denial}{soa}")), Rtype::AAAA)).to_vec()
}

/// Returns A and AAAA queries for names with an A record.
fn both_answers(t: &mut Trial<'_>, labels: &str) -> [(Name, Rtype); 2] {
    [Rtype::A, Rtype::AAAA].map(|qtype| (only_child(t, labels), qtype))
}

/// True if the server caches answers at all.
fn keeps_answers(t: &mut Trial<'_>) -> Judged<bool> {
    let name = only_child(t, "v4-1-2-3-4");
    Ok(query_twice(t, &[(name, Rtype::A)], A_MOMENT)?
        .iter()
        .all(|query_twice| !query_twice.asked_again))
}

/// Returns the fault for negative answers that are not cached. If the server does not cache answers either, the verdict
/// is
/// `NotOffered` (feature not supported).
fn denials_not_kept(t: &mut Trial<'_>, name: &Name) -> Judged {
    if keeps_answers(t)? {
        let what = format!("{name} was queried upstream again, although answers are cached");
        return Err(Fault::Wrong(what));
    }
    Err(Fault::NotOffered("nothing is cached, neither answers nor denials".into()))
}

/// Returns the first SOA record of a negative answer. A different check counts the SOA records.
fn first_soa(reply: &Message) -> Judged<&Record> {
    let soa = reply.authority.iter().find(|record| record.rtype == Rtype::SOA);
    soa.ok_or_else(|| Fault::Wrong("the denial has no SOA record".into()))
}

pub(super) fn denials_are_not_prolonged(t: &mut Trial<'_>) -> Judged {
    for (denial, code) in DENIALS {
        for soa in ["soa-300-60", "soa-60-300"] {
            let (_, reply) = t.aaaa(&format!("{denial}{soa}"))?;
            reply.has_rcode(code)?;
            let soa = first_soa(&reply)?;
            let seconds = soa.ttl.min(soa.minimum().unwrap_or(u32::MAX));
            expect(seconds <= 60, || {
                format!("a client may cache the denial for {seconds} s, but the zone allows 60 s")
            })?;
        }
    }
    Ok(())
}

pub(super) fn denials_have_a_soa(t: &mut Trial<'_>) -> Judged {
    for (denial, code) in DENIALS {
        let (name, reply) = t.aaaa(&format!("{denial}soa-300-300"))?;
        reply.has_rcode(code)?;
        let soa =
            reply.soa()?.ok_or_else(|| Fault::Wrong("the denial has no SOA record".into()))?;
        let owner = &soa.owner;
        expect(name.ends_with(owner), || format!("{name} is not below {owner}, the SOA's owner"))?;
    }
    Ok(())
}

pub(super) fn denials_expire(t: &mut Trial<'_>, soa: &str) -> Judged {
    let asking = both_denials(t, soa);
    for query_twice in query_twice(t, &asking, OVER)? {
        expect(query_twice.asked_again, || {
            format!("after 7 s the denial of {}, valid for 6 s, was still used", query_twice.name)
        })?;
    }
    Ok(())
}

pub(super) fn nodata_is_of_one_type(t: &mut Trial<'_>) -> Judged {
    let name = t.name("v4-1-2-3-4");
    t.ask(&Message::query(&name, Rtype::TXT))?.lacks(Rtype::TXT)?;
    t.ask(&Message::query(&name, Rtype::A))?.has_a(&[[1, 2, 3, 4].into()])?;
    let made = t.embedded("1.2.3.4");
    t.ask(&Message::query(&name, Rtype::AAAA))?.has_aaaa(&made)
}

pub(super) fn nxdomain_is_of_all_types(t: &mut Trial<'_>) -> Judged {
    let name = only_child(t, "all-rcode-3");
    t.ask(&Message::query(&name, Rtype::AAAA))?.has_rcode(rcode::NXDOMAIN)?;
    thread::sleep(A_MOMENT);
    let before = times_asked(t, &name)?;
    t.ask(&Message::query(&name, Rtype::TXT))?.has_rcode(rcode::NXDOMAIN)?;
    if times_asked(t, &name)? > before {
        return denials_not_kept(t, &name);
    }
    Ok(())
}

pub(super) fn bare_denials_are_not_kept(t: &mut Trial<'_>) -> Judged {
    let asking = both_denials(t, "nosoa");
    for (query_twice, (_, code)) in query_twice(t, &asking, A_SECOND)?.iter().zip(&DENIALS) {
        if query_twice.second.has_rcode(*code).is_err() {
            let why = "a denial without a SOA record is treated as an error here";
            return Err(Fault::NotTried(why.into()));
        }
        expect(query_twice.asked_again, || {
            format!("the denial of {} was cached, although it has no SOA record", query_twice.name)
        })?;
    }
    Ok(())
}

pub(super) fn denials_age(t: &mut Trial<'_>) -> Judged {
    let asking = both_denials(t, "soa-300-300");
    for query_twice in query_twice(t, &asking, A_WHILE)? {
        if query_twice.asked_again {
            return Err(Fault::NotOffered("denials are not cached".into()));
        }
        let (first, second) =
            (first_soa(&query_twice.first)?.ttl, first_soa(&query_twice.second)?.ttl);
        expect(second < first.min(300), || {
            format!("the TTL of the SOA record was {first} s, and 2 s later {second} s")
        })?;
    }
    Ok(())
}

pub(super) fn denials_are_kept(t: &mut Trial<'_>) -> Judged {
    let asking = both_denials(t, "soa-300-300");
    for query_twice in query_twice(t, &asking, A_MOMENT)? {
        if query_twice.asked_again {
            return denials_not_kept(t, &query_twice.name);
        }
    }
    Ok(())
}

pub(super) fn answers_expire(t: &mut Trial<'_>) -> Judged {
    let asking = both_answers(t, "v4-1-2-3-4.ttl-6");
    for (query_twice, (_, qtype)) in query_twice(t, &asking, OVER)?.iter().zip(&asking) {
        expect(query_twice.asked_again, || {
            format!("after 7 s {qtype} was answered from an answer valid for 6 s")
        })?;
    }
    Ok(())
}

pub(super) fn long_ttls_are_capped(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.look_up("v4-1-2-3-4.ttl-2147483647", Rtype::A)?;
    // The sentence of the RFC limits how long a record may be cached, so it does not apply to servers without a cache.
    if !keeps_answers(t)? {
        return Err(Fault::NotOffered("answers are not cached".into()));
    }
    let days = reply.ttl(Rtype::A)? / 86_400;
    expect(days <= 31, || format!("the TTL is {days} days"))
}

pub(super) fn zero_is_not_kept(t: &mut Trial<'_>) -> Judged {
    let asking = both_answers(t, "v4-1-2-3-4.ttl-0");
    for (query_twice, (_, qtype)) in query_twice(t, &asking, A_SECOND)?.iter().zip(&asking) {
        expect(query_twice.asked_again, || {
            format!("{qtype} with a TTL of 0 was answered from the cache")
        })?;
    }
    Ok(())
}

pub(super) fn answers_age(t: &mut Trial<'_>) -> Judged {
    let asking = both_answers(t, "v4-1-2-3-4");
    for (query_twice, (_, qtype)) in query_twice(t, &asking, A_WHILE)?.iter().zip(&asking) {
        if query_twice.asked_again {
            return Err(Fault::NotOffered("answers are not cached".into()));
        }
        let (first, second) = (query_twice.first.ttl(*qtype)?, query_twice.second.ttl(*qtype)?);
        expect(second < first, || {
            format!("the TTL of {qtype} was {first} s, and 2 s later {second} s")
        })?;
    }
    Ok(())
}
