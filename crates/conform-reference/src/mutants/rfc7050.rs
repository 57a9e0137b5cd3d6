//! Mutants for the checks in `rfc7050`, which cover ipv4only.arpa.

use conform::message::{Message, Question, Record, name, rcode};
use domain::base::iana::Rtype;

use crate::mutant::{Mutant, replies, rule};

/// Name for prefix discovery (RFC 7050 §3).
const NAME: &str = "ipv4only.arpa";

pub(super) const MUTANTS: &[Mutant] = &[
    replies("discovery-denied", "rfc7050-3-positive", |query, reply| {
        clear_if(is_aaaa(query), reply);
    }),
    replies("unexpected-well-known-address", "rfc7050-3-locations", |query, reply| {
        if is_aaaa(query) {
            // 192.0.0.170 and .171 become .172 and .173.
            each_last_octet(reply, |octet| *octet += 2);
        }
    }),
    replies("one-prefix-shown", "rfc7050-5-several", |query, reply| {
        if is_aaaa(query) {
            reply.answer.truncate(1);
        }
    }),
    replies("another-prefix-shown", "rfc7050-5-same-prefix", |query, reply| {
        if is_aaaa(query) {
            reply.answer.iter_mut().for_each(|record| record.data[1] ^= 1);
        }
    }),
    replies("discovery-without-ttl", "hardening-ipv4only-ttl", |query, reply| {
        if is_aaaa(query) {
            reply.answer.iter_mut().for_each(|record| record.ttl = 0);
        }
    }),
    replies("ipv4only-a-incomplete", "rfc8880-7.1-a", |query, reply| {
        if asks_for(query, Rtype::A) {
            reply.answer.truncate(1);
        }
    }),
    replies("ipv4only-aaaa-incomplete", "rfc8880-7.1-aaaa", |query, reply| {
        if is_aaaa(query) {
            reply.answer.pop();
        }
    }),
    replies("ipv4only-other-types-denied", "rfc8880-7.1-nodata", |query, reply| {
        if asks_for(query, Rtype::TXT) {
            reply.rcode = rcode::NXDOMAIN;
        }
    }),
    replies("ipv4only-in-lower-case-only", "rfc8880-7.1-letter-case", |query, reply| {
        let upper = |q: &Question| q.name.as_slice().iter().any(u8::is_ascii_uppercase);
        clear_if(is_ipv4only(query) && query.question().is_some_and(upper), reply);
    }),
    replies("ipv4only-with-edns-only", "rfc8880-7.1-every-query", |query, reply| {
        clear_if(is_ipv4only(query) && query.edns.is_none(), reply);
    }),
    replies("ipv4only-without-do-only", "rfc8880-7.1-do", |query, reply| {
        let with_do = query.edns.as_ref().is_some_and(|edns| edns.dnssec_ok);
        clear_if(is_aaaa(query) && with_do, reply);
    }),
    replies("ipv4only-not-for-validators", "rfc8880-7.1-cd-do", |query, reply| {
        if is_ipv4only(query) && query.flags.cd {
            reply.answer.clear();
            reply.rcode = rcode::SERVFAIL;
        }
    }),
    replies("ipv4only-without-cd-only", "hardening-ipv4only-cd", |query, reply| {
        clear_if(is_aaaa(query) && query.flags.cd, reply);
    }),
    replies("ipv4only-authentic", "rfc8880-5-not-authentic", |query, reply| {
        if is_aaaa(query) {
            reply.flags.ad = true;
        }
    }),
    rule("ipv4only-forwarded", "rfc8880-7.1-asks-nobody", |rules| rules.ipv4only = false),
    rule("below-ipv4only-forwarded", "rfc8880-7.1-below-asks-nobody", |rules| {
        rules.ipv4only = false;
    }),
    replies("ipv4only-ds-refused", "rfc8880-7.1-ds", |query, reply| {
        if asks_for(query, Rtype::DS) {
            reply.rcode = rcode::REFUSED;
        }
    }),
    replies("below-ipv4only-empty", "rfc8880-7.1-below", |query, reply| {
        if query.question().is_some_and(|q| q.name.ends_with(&name(NAME))) {
            reply.rcode = rcode::NOERROR;
        }
    }),
    replies("ipv4only-denied-without-soa", "rfc2308-3-ipv4only-soa", |query, reply| {
        if query.question().is_some_and(|q| q.name.ends_with(&name(NAME))) {
            reply.authority.clear();
        }
    }),
    replies("labels-of-ipv4only-suffice", "hardening-ipv4only-lookalike", |query, reply| {
        let labels = |q: &Question| q.name.to_string().contains(NAME);
        clear_if(!is_ipv4only(query) && query.question().is_some_and(labels), reply);
    }),
    replies("discovery-reverse-special", "rfc8880-7.2-not-special", |query, reply| {
        let special = |q: &Question| q.name == name("170.0.0.192.in-addr.arpa");
        for record in reply.answer.iter_mut().filter(|record| record.rtype == Rtype::PTR) {
            if query.question().is_some_and(special) {
                record.data = name(NAME).as_slice().to_vec();
            }
        }
    }),
    replies("discovery-reverse-has-text", "rfc8880-7.2-one-record", |query, reply| {
        let question = query.question().filter(|q| q.qtype == Rtype::TXT);
        let question = question.filter(|q| q.name.ends_with(&name("0.0.192.in-addr.arpa")));
        reply.answer.extend(
            question.map(|q| Record::new(q.name.clone(), Rtype::TXT, 60, b"\x08discover".to_vec())),
        );
    }),
    replies("below-discovery-reverse-empty", "rfc8880-7.2-below", |query, reply| {
        let below = |q: &Question| q.name.ends_with(&name("0.0.192.in-addr.arpa"));
        if query.question().is_some_and(below) {
            reply.rcode = rcode::NOERROR;
        }
    }),
    replies("discovery-addresses-nameless", "rfc8880-7.2.1-pointer", |query, reply| {
        let pointed =
            reply.answer.iter().filter_map(Record::target).any(|target| target == name(NAME));
        clear_if(pointed && is_reverse(query), reply);
    }),
    replies("pointers-to-discovery", "rfc8880-7.2.1-same-rdata", |query, reply| {
        // 192.0.1.170 is mistaken for 192.0.0.170.
        let neighbour = |record: &Record| record.data.starts_with(b"\x0fptr-192-0-1-170");
        for record in reply.answer.iter_mut().filter(|record| record.rtype == Rtype::PTR) {
            if is_reverse(query) && neighbour(record) {
                record.data = name(NAME).as_slice().to_vec();
            }
        }
    }),
];

fn is_ipv4only(query: &Message) -> bool {
    query.question().is_some_and(|q| q.name == name(NAME))
}

fn asks_for(query: &Message, qtype: Rtype) -> bool {
    is_ipv4only(query) && query.question().is_some_and(|q| q.qtype == qtype)
}

fn is_aaaa(query: &Message) -> bool {
    asks_for(query, Rtype::AAAA)
}

fn is_reverse(query: &Message) -> bool {
    query.question().is_some_and(|q| q.name.ends_with(&name("ip6.arpa")))
}

fn clear_if(condition: bool, reply: &mut Message) {
    if condition {
        reply.answer.clear();
    }
}

/// Changes all octets with the value 170 or 171 in the records of the answer.
fn each_last_octet(reply: &mut Message, change: fn(&mut u8)) {
    let octets = reply.answer.iter_mut().flat_map(|record| record.data.iter_mut());
    octets.filter(|octet| matches!(**octet, 170 | 171)).for_each(change);
}
