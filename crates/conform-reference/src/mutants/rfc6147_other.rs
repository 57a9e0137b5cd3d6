//! Mutants for the checks in `rfc6147_other`, which cover reverse names, other types, and the assembly of replies.

use std::sync::{Mutex, PoisonError};

use conform::message::{Message, Record, name, rcode};
use domain::base::iana::Rtype;

use super::common::{SYNTHETIC, wants};
use crate::mutant::{Mutant, replies, rule};

pub(super) const MUTANTS: &[Mutant] = &[
    rule("ptr-passed-on", "rfc6147-5.3.1-ptr", |rules| rules.reverse = false),
    replies("ptr-answered-both-ways", "rfc6147-5.3.1-not-both", |query, reply| {
        // Only queries for addresses with an odd last nibble get both answers.
        if asked(query).starts_with(['1', '3', '5', '7', '9']) && is_aliased(reply) {
            let record = pointer(query, "dns64.example");
            reply.answer = vec![record];
        }
    }),
    replies("ptr-octets-swapped", "rfc6147-5.3.1-alias-target", |query, reply| {
        if is_aliased(reply) && wants(query, Rtype::PTR) {
            alias(query, reply, "7.6.9.8.in-addr.arpa");
        }
    }),
    replies("ptr-below-one-prefix-only", "rfc6147-5-ptr-all-prefixes", |query, reply| {
        // The defect affects the configuration with two prefixes, the second of which is 3fff:65:65::/48.
        if asked(query).ends_with("5.6.0.0.5.6.0.0.f.f.f.3.ip6.arpa") {
            deny(reply, rcode::NXDOMAIN);
        }
    }),
    replies("reverse-nodes-denied", "rfc8020-2-reverse-nodes", |query, reply| {
        // The name of an address has 35 labels: 32 nibbles, "ip6", "arpa" and the root.
        let is_node = query.question().is_some_and(|question| question.name.label_count() < 35);
        if is_node && wants(query, Rtype::PTR) && reply.answer.is_empty() {
            deny(reply, rcode::NXDOMAIN);
        }
    }),
    replies("nibbles-in-capitals-unknown", "rfc1034-3.1-ptr-letter-case", |query, reply| {
        if asked(query).contains(|c: char| c.is_ascii_uppercase()) {
            deny(reply, rcode::NXDOMAIN);
        }
    }),
    replies("alias-to-nxdomain", "rfc6147-5.3.1-nxdomain-behind", |query, reply| {
        if wants(query, Rtype::PTR) && reply.rcode == rcode::NXDOMAIN {
            alias(query, reply, "250.9.9.9.in-addr.arpa");
        }
    }),
    replies("alias-to-nodata", "rfc6147-5.3.1-nodata-behind", |query, reply| {
        if wants(query, Rtype::PTR) && reply.answer.is_empty() {
            alias(query, reply, "251.9.9.9.in-addr.arpa");
        }
    }),
    replies("failure-behind-denied", "rfc6147-5.3.1-servfail-behind", |query, reply| {
        if wants(query, Rtype::PTR) && reply.rcode == rcode::SERVFAIL {
            deny(reply, rcode::NXDOMAIN);
        }
    }),
    replies("nibbles-not-counted", "rfc6147-5.3.1-nibble-count", |query, reply| {
        let nibbles = query.question().map_or(0, |question| question.name.label_count());
        if wants(query, Rtype::PTR) && nibbles == 33 + 3 {
            alias(query, reply, "4.3.2.1.in-addr.arpa");
        }
    }),
    replies("letters-taken-for-nibbles", "rfc6147-5.3.1-no-nibbles", |query, reply| {
        if wants(query, Rtype::PTR) && asked(query).contains('z') {
            alias(query, reply, "4.3.2.0.in-addr.arpa");
        }
    }),
    replies("suffix-fails", "rfc6147-5.3.1-suffix", |query, reply| {
        if wants(query, Rtype::PTR) && asked(query).starts_with("1.0.0.0.0.0.") {
            deny(reply, rcode::SERVFAIL);
        }
    }),
    replies("all-addresses-aliased", "rfc6147-5.3.1-other-addresses", |query, reply| {
        if wants(query, Rtype::PTR) && reply.rcode == rcode::NXDOMAIN {
            alias(query, reply, "4.3.2.1.in-addr.arpa");
            reply.rcode = rcode::NOERROR;
        }
    }),
    replies("additional-made", "rfc6147-5.3.2-nothing-made", |_, reply| {
        let made = |record: &Record| {
            let v4 = record.ipv4()?;
            let address = u128::from(SYNTHETIC) & !0xffff_ffff | u128::from(u32::from(v4));
            Some(Record::aaaa(record.owner.clone(), record.ttl, address.into()))
        };
        let made: Vec<Record> = reply.additional.iter().filter_map(made).collect();
        reply.additional.extend(made);
    }),
    replies("additional-a-changed", "rfc6147-5.3.2-unchanged", |_, reply| {
        for record in reply.additional.iter_mut().filter(|record| record.rtype == Rtype::A) {
            record.data.reverse();
        }
    }),
    replies("host-names-not-made", "rfc6147-5.3.2-asked-for-later", |query, reply| {
        if asked(query).contains(".host.") {
            deny(reply, rcode::NOERROR);
        }
    }),
    replies("made-beside-txt", "rfc6147-5.3.3-txt", |q, r| add_made(q, r, Rtype::TXT)),
    replies("mx-replaced-by-its-host", "rfc6147-5.3.3-hosts", |_, reply| {
        for record in reply.answer.iter_mut().filter(|record| record.rtype == Rtype::MX) {
            *record = Record::aaaa(record.owner.clone(), record.ttl, SYNTHETIC);
        }
    }),
    replies("https-hint-made", "rfc6147-5.3.3-https", |_, reply| add_hint(reply, Rtype::HTTPS)),
    replies("svcb-hint-made", "rfc6147-5.3.3-svcb", |_, reply| add_hint(reply, Rtype::SVCB)),
    replies("made-for-any", "rfc6147-5.3.3-any", |q, r| add_made(q, r, Rtype::ANY)),
    replies("any-from-cached-aaaa", "rfc6147-5.3.3-any-after-aaaa", add_synthesized_before),
    replies("made-beside-cname", "rfc6147-5.3.3-cname", |q, r| add_made(q, r, Rtype::CNAME)),
    replies("other-types-made", "rfc6147-5.3.3-denial", |query, reply| {
        if !wants(query, Rtype::AAAA) && reply.answer.is_empty() && reply.rcode == rcode::NOERROR {
            reply.answer.push(made(query));
        }
    }),
    replies("question-in-small-letters", "rfc6147-5.4-question", |_, reply| {
        for question in &mut reply.questions {
            question.name = name(&question.name.to_string().to_ascii_lowercase());
        }
    }),
    replies("aa-copied", "rfc6147-5.4-header", |_, reply| reply.flags.aa = true),
    replies("denial-beside-the-made", "rfc6147-5.4-authority", |query, reply| {
        if wants(query, Rtype::AAAA) && !reply.answer.is_empty() {
            reply.authority.push(Record::soa(&name("example"), 300, 300));
        }
    }),
    replies("denial-without-soa", "rfc6147-5.4-empty", |query, reply| {
        if wants(query, Rtype::AAAA) && reply.answer.is_empty() {
            reply.authority.clear();
        }
    }),
    replies("aliases-last", "rfc1034-4.3.1-aliases-first", |_, reply| reply.answer.reverse()),
    replies("dname-last", "rfc1034-4.3.1-aliases-first", |_, reply| {
        // The sort is stable, so the other records keep their order.
        reply.answer.sort_by_key(|record| record.rtype == Rtype::DNAME);
    }),
    rule("made-answer-too-long", "rfc6147-5.4-truncation", |rules| rules.truncates = false),
];

/// Returns the queried name in its original letter case.
fn asked(query: &Message) -> String {
    query.question().map(|question| question.name.to_string()).unwrap_or_default()
}

/// Returns true if the answer begins with an alias.
fn is_aliased(reply: &Message) -> bool {
    reply.answer.first().is_some_and(|record| record.rtype == Rtype::CNAME)
}

/// Sets the RCODE, and empties the answer.
fn deny(reply: &mut Message, code: u16) {
    reply.rcode = code;
    reply.answer.clear();
}

/// Returns a PTR record of the queried name.
fn pointer(query: &Message, target: &str) -> Record {
    Record::pointing(name(&asked(query)), Rtype::PTR, 300, &name(target))
}

/// Replaces the aliases in the answer with an alias that points to `target`.
fn alias(query: &Message, reply: &mut Message, target: &str) {
    let record = Record::pointing(name(&asked(query)), Rtype::CNAME, 300, &name(target));
    reply.answer.retain(|record| record.rtype != Rtype::CNAME);
    reply.answer.insert(0, record);
}

/// Returns a synthesized AAAA record of the queried name.
fn made(query: &Message) -> Record {
    Record::aaaa(name(&asked(query)), 300, SYNTHETIC)
}

/// Adds a synthesized record to replies to queries of this type.
fn add_made(query: &Message, reply: &mut Message, qtype: Rtype) {
    if wants(query, qtype) {
        reply.answer.push(made(query));
    }
}

/// Stores the AAAA records of all replies. If the query is for ANY, adds the stored records of the queried name to the
/// reply, as if the server cached synthesized records.
fn add_synthesized_before(query: &Message, reply: &mut Message) {
    static KEPT: Mutex<Vec<Record>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    match query.question() {
        Some(asked) if asked.qtype == Rtype::ANY => {
            reply.answer.extend(kept.iter().filter(|record| record.owner == asked.name).cloned());
        }
        _ => kept.extend(reply.answers(Rtype::AAAA).cloned()),
    }
}

/// Adds `ipv6hint` (RFC 9460 §14.3.2: key 6) to records of this type.
fn add_hint(reply: &mut Message, rtype: Rtype) {
    for record in reply.answer.iter_mut().filter(|record| record.rtype == rtype) {
        record.data.extend([0, 6, 0, 16]);
        record.data.extend(SYNTHETIC.octets());
    }
}
