//! Mutants for the checks in `rfc6147_dnssec`, which cover DO, CD and AD.

use conform::message::{Message, Record, name, rcode};
use domain::base::iana::Rtype;

use super::common::{SYNTHETIC, wants};
use crate::mutant::{Mutant, reads, replies, rule};

/// Returns a mutant that is based on the validating reference server and changes its replies to clients.
const fn validating(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&Message, &mut Message),
) -> Mutant {
    Mutant { rules: |rules| rules.validates = true, ..replies(name, caught_by, change) }
}

/// Returns a mutant that is based on the validating reference server and changes the client's query.
const fn mistaking(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&mut Message),
) -> Mutant {
    Mutant { rules: |rules| rules.validates = true, ..reads(name, caught_by, change) }
}

pub(super) const MUTANTS: &[Mutant] = &[
    replies("native-and-made-with-do", "rfc6147-5.1.1-any-bits", |query, reply| {
        if has_do(query) && has(reply, Rtype::AAAA) {
            reply.answer.push(made(query));
        }
    }),
    replies("nothing-made-with-ad", "rfc6147-3-ad-query", |query, reply| {
        if query.flags.ad {
            reply.answer.clear();
        }
    }),
    replies("cd-alone-fails", "rfc6147-3-cd-alone", |query, reply| {
        if query.flags.cd && !has_do(query) {
            fail(reply);
        }
    }),
    replies("nothing-made-with-do", "rfc6147-3-do-alone", |query, reply| {
        if has_do(query) {
            reply.answer.clear();
        }
    }),
    rule("trusting-makes-with-cd-do", "rfc6147-3-cd-do", |rules| rules.leaves_cd_do = false),
    rule("ad-copied", "rfc4035-3.2.3-ad-not-copied", |rules| rules.drops_ad = false),
    replies("ad-echoed", "rfc4035-3.2.3-ad-not-echoed", |query, reply| {
        reply.flags.ad |= query.flags.ad;
    }),
    replies("signatures-unasked", "rfc4035-3.2.1-no-signatures", |query, reply| {
        if has(reply, Rtype::AAAA) && !has_do(query) {
            reply.answer.push(signature(query, Rtype::AAAA));
        }
    }),
    replies("made-records-signed", "hardening-signed-made", |query, reply| {
        if has(reply, Rtype::AAAA) && has_do(query) {
            reply.answer.push(signature(query, Rtype::A));
        }
    }),
    rule("made-with-cd-do", "rfc6147-5.5-cd-do", |rules| {
        rules.validates = true;
        rules.leaves_cd_do = false;
    }),
    validating("unsigned-made-with-cd-do", "rfc6147-5.5-cd-do-unsigned", |query, reply| {
        let signed = ["secure", "nsec3"].iter().any(|zone| asked(query).contains(zone));
        if query.flags.cd && has_do(query) && !signed {
            reply.answer = vec![made(query)];
        }
    }),
    mistaking("cd-and-do-not-seen", "rfc6147-5.5-cd-do-cached", |query| {
        if query.flags.cd && has_do(query) {
            query.flags.cd = false;
            query.edns = None;
        }
    }),
    validating("cd-do-without-proof", "rfc6147-5.5-cd-do-proof", |query, reply| {
        if query.flags.cd {
            reply.authority.retain(|record| record.rtype == Rtype::SOA);
        }
    }),
    validating("cd-do-bogus-fails", "rfc6147-5.5-cd-do-bogus", |query, reply| {
        if query.flags.cd && has_do(query) && is_bad(query) {
            fail(reply);
        }
    }),
    validating("bogus-denial-translated", "rfc6147-5.5-bogus-denial", |query, reply| {
        if reply.rcode == rcode::SERVFAIL && asked(query).contains(".v4-1-2-3-4.") {
            reply.rcode = rcode::NOERROR;
            reply.answer = vec![made(query)];
        }
    }),
    mistaking("bogus-data-returned", "rfc6147-5.5-bogus-native", |query| query.flags.cd = true),
    validating("bogus-nxdomain-believed", "rfc4035-5.5-bogus-nxdomain", |query, reply| {
        if reply.rcode == rcode::SERVFAIL && asked(query).contains(".all-rcode-3.") {
            reply.rcode = rcode::NXDOMAIN;
        }
    }),
    validating("signed-names-not-made", "rfc6147-5.5-plain", |query, reply| {
        if asked(query).contains("secure") || asked(query).contains("nsec3") {
            reply.answer.clear();
        }
    }),
    validating("unsigned-zones-fail", "rfc6147-5.5-plain-insecure", |query, reply| {
        if asked(query).contains(".b.") {
            fail(reply);
        }
    }),
    validating("signed-aliases-fail", "rfc6147-5.5-plain-aliases", |query, reply| {
        if has(reply, Rtype::CNAME) && asked(query).contains("secure") {
            fail(reply);
        }
    }),
    validating("wildcards-fail", "rfc6147-5.5-plain-wildcard", |query, reply| {
        if asked(query).contains(".wild.") {
            fail(reply);
        }
    }),
    validating("ad-without-do", "rfc6147-5.5-plain-no-ad", |query, reply| {
        reply.flags.ad |= !query.flags.cd && reply.rcode == rcode::NOERROR;
    }),
    validating("do-gets-failure", "rfc6147-5.5-do", |query, reply| {
        if has_do(query) && !query.flags.cd && wants(query, Rtype::AAAA) {
            fail(reply);
        }
    }),
    validating("made-without-ad", "rfc6147-5.5-do-ad", |query, reply| {
        if asked(query).contains(".v4-") {
            reply.flags.ad = false;
        }
    }),
    validating("denials-without-ad", "rfc4035-3.2.3-ad", |_, reply| {
        if reply.answer.is_empty() {
            reply.flags.ad = false;
        }
    }),
    validating("ad-of-insecure", "rfc4035-3.2.3-ad-insecure", |query, reply| {
        reply.flags.ad |= has_do(query) && asked(query).contains(".ad.");
    }),
    validating("ad-of-the-first-alias", "rfc4035-3.2.3-ad-mixed", |query, reply| {
        reply.flags.ad |= has_do(query) && asked(query).contains(".secure.");
    }),
    validating("signatures-dropped", "rfc4035-3.1.1-signatures", |_, reply| {
        reply.answer.retain(|record| record.rtype != Rtype::RRSIG);
    }),
    validating("wildcard-without-proof", "rfc4035-3.1.3.3-wildcard", |query, reply| {
        if asked(query).contains(".wild.") {
            reply.authority.clear();
        }
    }),
    rule("do-not-passed-on", "rfc4035-3.2.1-do-upstream", |rules| {
        rules.validates = true;
        rules.passes_do = false;
    }),
    validating("cd-not-copied", "rfc4035-3.2.2-cd-copied", |_, reply| reply.flags.cd = false),
    replies("do-not-copied", "rfc3225-3-do-copied", |_, reply| {
        if let Some(edns) = &mut reply.edns {
            edns.dnssec_ok = false;
        }
    }),
    validating("cd-ignored-after-failure", "rfc4035-3.2.2-bad-cache-cd", |query, reply| {
        if query.flags.cd && is_bad(query) {
            fail(reply);
        }
    }),
    mistaking("bogus-data-for-all", "rfc4035-3.2.2-bad-cache", |query| query.flags.cd = true),
    validating("ad-brings-signatures", "rfc6840-5.7-ad-query", |query, reply| {
        if query.flags.ad && !has_do(query) && has(reply, Rtype::AAAA) {
            reply.answer.push(signature(query, Rtype::AAAA));
        }
    }),
    validating("cd-brings-ad", "rfc6840-5.8-ad-unasked", |query, reply| {
        reply.flags.ad |= query.flags.cd;
    }),
    validating("cd-alone-bogus-fails", "rfc6840-5.9-cd-bogus", |query, reply| {
        if query.flags.cd && !has_do(query) && is_bad(query) {
            fail(reply);
        }
    }),
    rule("cd-not-passed-on", "rfc6840-5.9-cd-upstream", |rules| {
        rules.validates = true;
        rules.passes_cd = false;
    }),
];

/// Returns the queried name in lower case.
fn asked(query: &Message) -> String {
    let name = query.question().map(|question| question.name.to_string());
    name.unwrap_or_default().to_ascii_lowercase()
}

/// Returns true if the queried name is in a zone with invalid signatures.
fn is_bad(query: &Message) -> bool {
    asked(query).contains(".bogus.") || asked(query).contains(".expired.")
}

fn has_do(query: &Message) -> bool {
    query.edns.as_ref().is_some_and(|edns| edns.dnssec_ok)
}

fn has(reply: &Message, rtype: Rtype) -> bool {
    reply.answers(rtype).next().is_some()
}

/// Changes the reply to SERVFAIL.
fn fail(reply: &mut Message) {
    reply.rcode = rcode::SERVFAIL;
    reply.flags.ad = false;
    reply.answer.clear();
    reply.authority.clear();
}

/// Returns a synthesized AAAA record of the queried name.
fn made(query: &Message) -> Record {
    let owner = name(&asked(query));
    Record::aaaa(owner, 300, SYNTHETIC)
}

/// Returns an invalid signature over the records of this type (RFC 4034 §3.1).
fn signature(query: &Message, covered: Rtype) -> Record {
    let owner = name(&asked(query));
    let mut data = covered.to_int().to_be_bytes().to_vec();
    // The fields are algorithm 13, four labels, TTL, expiration, inception and key tag.
    data.extend([13, 4, 0, 0, 1, 44, 0x7f, 0, 0, 0, 0x60, 0, 0, 0, 0, 1]);
    data.extend(b"\x07example\0");
    data.extend([0; 64]);
    Record::new(owner, Rtype::RRSIG, 300, data)
}
