//! Mutants for the checks in `records`, which cover caching, RRsets and types that are not translated.

use conform::label::EVIL4;
use conform::message::{Message, Name, Record, rcode};
use domain::base::iana::Rtype;

use super::common::{repeat_soa, wants};
use crate::mutant::{Mutant, NO_HOOKS, hears, hook, leaves, replies, rule};
use crate::rules::Hooks;

pub(super) const MUTANTS: &[Mutant] = &[
    replies("denial-prolonged", "rfc2308-3-negative-ttl", |_, reply| {
        reply.authority.iter_mut().for_each(|soa| set_times(soa, 3600, 3600));
    }),
    replies("denial-without-soa-record", "rfc2308-5-soa", |_, reply| reply.authority.clear()),
    replies("denial-with-two-soa-records", "rfc2308-5-soa", |_, reply| repeat_soa(reply)),
    hears("denial-outlives-minimum", "hardening-minimum-expires", |reply| {
        reply.authority.iter_mut().for_each(|soa| set_times(soa, soa.ttl, 3600));
    }),
    hears("denial-outlives-soa-ttl", "rfc2308-5-soa-ttl-expires", |reply| {
        reply.authority.iter_mut().for_each(|soa| set_times(soa, 3600, 3600));
    }),
    replies("nodata-for-all-types", "rfc2308-5-nodata-of-one-type", |query, reply| {
        if wants(query, Rtype::A) {
            reply.answer.clear();
        }
    }),
    hears("nxdomain-not-kept", "rfc2308-5-nxdomain-of-all-types", |reply| {
        if reply.rcode == rcode::NXDOMAIN {
            reply.authority.clear();
        }
    }),
    hears("soa-made-up", "rfc2308-5-no-soa", |reply| {
        let has_soa = reply.authority.iter().any(|record| record.rtype == Rtype::SOA);
        if reply.answer.is_empty() && !has_soa {
            let zone = reply.question().map(|question| question.name.clone());
            reply.authority.extend(zone.map(|zone| Record::soa(&zone, 300, 300)));
        }
    }),
    rule("denial-not-aged", "rfc2308-6-aged-soa", |rules| rules.ages = false),
    hears("denial-not-kept", "rfc2308-8-kept", |reply| reply.authority.clear()),
    hears("answer-kept-too-long", "rfc8767-4-expires", |reply| {
        reply.answer.iter_mut().for_each(|record| record.ttl = 300);
    }),
    replies("ttl-not-capped", "rfc8767-4-cap", |_, reply| {
        reply.answer.iter_mut().for_each(|record| record.ttl = i32::MAX.unsigned_abs());
    }),
    hears("zero-kept", "rfc1035-3.2.1-zero", |reply| {
        reply.answer.iter_mut().for_each(|record| record.ttl = record.ttl.max(60));
    }),
    rule("answer-not-aged", "rfc1035-6.1.3-count-down", |rules| rules.ages = false),
    replies("records-twice", "rfc2181-5-duplicates", |_, reply| {
        let first = reply.answers(Rtype::A).next().cloned();
        reply.answer.extend(first);
    }),
    replies("made-ttls-differ", "rfc2181-5.2-made-rrset", |_, reply| {
        if let Some(record) = reply.answer.first_mut().filter(|r| r.rtype == Rtype::AAAA) {
            record.ttl += 1;
        }
    }),
    rule("ttls-differ", "rfc2181-5.2-received-rrset", |rules| rules.equal_ttls = false),
    hears("highest-ttl-counts", "rfc2181-5.2-lowest", |reply| {
        let highest = reply.answer.iter().map(|record| record.ttl).max().unwrap_or(0);
        reply.answer.iter_mut().for_each(|record| record.ttl = highest);
    }),
    rule("strangers-returned", "rfc1035-4.1-only-answers", |rules| {
        rules.drops_unrelated_records = false;
    }),
    hook(
        "additional-data-as-answer",
        "rfc2181-5.4.1-additional",
        Hooks { query: Some(remove_host), reply: Some(insert_host), ..NO_HOOKS },
    ),
    leaves("truncated-without-tc", "rfc2181-9-partial", |octets| {
        change_octet(octets, 2, |flags| flags & !TC);
    }),
    leaves("tc-always", "rfc2181-9-extra", |octets| change_octet(octets, 2, |flags| flags | TC)),
    replies("fifty-records-at-most", "rfc2181-9-whole-over-tcp", |_, reply| {
        reply.answer.truncate(50);
    }),
    replies("made-at-the-alias", "rfc2181-10.1-alias-alone", |query, reply| {
        let made = reply.answer.iter_mut().filter(|record| record.rtype == Rtype::AAAA);
        for (record, question) in made.zip(query.questions.iter().cycle()) {
            record.owner = question.name.clone();
        }
    }),
    replies("rcode-of-the-alias", "rfc6604-3-rcode", |_, reply| {
        if !reply.answer.is_empty() {
            reply.rcode = rcode::NOERROR;
        }
    }),
    replies("synthesized-ttl-zero", "rfc6672-3.1-cname-ttl", |_, reply| {
        reply.answer.iter_mut().filter(|r| r.rtype == Rtype::CNAME).for_each(|r| r.ttl = 0);
    }),
    replies("question-lower-case", "rfc1034-3.1-case-kept", |_, reply| {
        for question in &mut reply.questions {
            question.name = with_octets(&question.name, <[u8]>::to_ascii_lowercase);
        }
    }),
    replies("hints-translated", "rfc9460-4.2.1-hints", |_, reply| {
        let services = |record: &&mut Record| [Rtype::HTTPS, Rtype::SVCB].contains(&record.rtype);
        for record in reply.answer.iter_mut().filter(services) {
            // ipv6hint, 16 octets: 64:ff9b::1.2.3.4.
            record.data.extend([0, 6, 0, 16, 0, 0x64, 0xff, 0x9b]);
            record.data.extend([0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        }
    }),
    replies("https-needs-addresses", "rfc9460-4.2-no-failure", |query, reply| {
        if wants(query, Rtype::HTTPS) {
            (reply.rcode, reply.answer) = (rcode::SERVFAIL, Vec::new());
        }
    }),
    replies("stranger-in-any", "rfc8482-4.1-any", |query, reply| {
        if wants(query, Rtype::ANY) {
            reply.answer.push(Record::a(Name::root_vec(), 300, EVIL4));
        }
    }),
];

/// The TC bit in the third octet of a header.
const TC: u8 = 2;

/// Sets the TTL and the MINIMUM field of a SOA record, in seconds.
fn set_times(soa: &mut Record, ttl: u32, minimum: u32) {
    if let Some(at) = soa.data.len().checked_sub(4).filter(|_| soa.rtype == Rtype::SOA) {
        soa.ttl = ttl;
        soa.data[at..].copy_from_slice(&minimum.to_be_bytes());
    }
}

/// Changes one octet of a message.
fn change_octet(octets: &mut [u8], at: usize, change: impl Fn(u8) -> u8) {
    if let Some(octet) = octets.get_mut(at) {
        *octet = change(*octet);
    }
}

/// Label that follows the first label in the name of a mail host.
const HOST: &[u8] = b"\x04host";

/// Removes the second label of the queried name if this label is `host`. The test authoritative server has the same
/// addresses for the new name as for the original name, but it receives no query for the original name.
fn remove_host(query: &mut Message) {
    for question in &mut query.questions {
        question.name = with_octets(&question.name, |octets| {
            let at = 1 + usize::from(octets[0]);
            let rest = octets[at.min(octets.len())..].strip_prefix(HOST);
            rest.map_or_else(|| octets.to_vec(), |rest| [&octets[..at], rest].concat())
        });
    }
}

/// Reverses, in the reply, the change that [`remove_host`] has made to the query. A name with A records is assumed to
/// be the name of a host.
fn insert_host(_: &Message, reply: &mut Message) {
    let longer = |name: &Name| {
        with_octets(name, |octets| {
            let at = (1 + usize::from(octets[0])).min(octets.len());
            [&octets[..at], HOST, &octets[at..]].concat()
        })
    };
    if reply.answer.iter().any(|record| record.rtype == Rtype::A) {
        reply.questions.iter_mut().for_each(|question| question.name = longer(&question.name));
        reply.answer.iter_mut().for_each(|record| record.owner = longer(&record.owner));
    }
}

/// Applies `change` to the octets of a name and returns the result. If the result is not a valid name, returns the
/// original name.
fn with_octets(name: &Name, change: impl Fn(&[u8]) -> Vec<u8>) -> Name {
    Name::from_octets(change(name.as_slice())).unwrap_or_else(|_| name.clone())
}
