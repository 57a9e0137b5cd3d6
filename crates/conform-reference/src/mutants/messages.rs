//! Mutants for the checks in `messages`, which cover headers, EDNS and malformed queries.

use conform::message::{Edns, Message, name, rcode};
use domain::base::iana::Rtype;

use crate::cookies::{self, COOKIE};
use crate::mutant::{Mutant, arrives, asks, leaves, reads, replies, rule};

pub(super) const MUTANTS: &[Mutant] = &[
    replies("opt-not-answered", "rfc6891-6.1.1-opt-answered", |_, reply| drop_opt(reply)),
    replies("errors-without-opt", "rfc6891-6.1.1-opt-answered", |_, reply| {
        if reply.rcode != rcode::NOERROR {
            drop_opt(reply);
        }
    }),
    replies("notimp-without-opt", "rfc6891-6.1.1-opt-in-errors", |_, reply| {
        if reply.rcode == rcode::NOTIMP {
            drop_opt(reply);
        }
    }),
    replies("two-questions-without-opt", "rfc6891-6.1.1-opt-in-errors", |query, reply| {
        if query.questions.len() > 1 {
            drop_opt(reply);
        }
    }),
    asks("opt-forwarded", "rfc6891-6.1.1-not-forwarded", |query| {
        if let Some(edns) = &mut query.edns {
            edns.options.push((65_001, vec![1, 2, 3]));
        }
    }),
    arrives("last-opt-counts", "rfc6891-6.1.1-two", |octets| {
        if octets.get(10..12) == Some(&[0, 2]) {
            octets[11] = 1;
            octets.truncate(octets.len() - 11);
        }
    }),
    replies("options-echoed", "rfc6891-6.1.2-unknown-option", |query, reply| {
        if let (Some(asked), Some(edns)) = (&query.edns, &mut reply.edns) {
            edns.options.clone_from(&asked.options);
        }
    }),
    replies("unknown-option-formerr", "rfc6891-6.1.2-unknown-option", |query, reply| {
        if query.edns.as_ref().is_some_and(|edns| !edns.options.is_empty()) {
            fail(reply, rcode::FORMERR);
        }
    }),
    reads("versions-ignored", "rfc6891-6.1.3-badvers", |query| {
        query.edns.iter_mut().for_each(|edns| edns.version = 0);
    }),
    replies("version-echoed", "rfc6891-6.1.3-version", |query, reply| {
        if let (Some(asked), Some(edns)) = (&query.edns, &mut reply.edns) {
            edns.version = asked.version;
        }
    }),
    leaves("edns-flags-set", "rfc6891-6.1.4-z", |octets| {
        // An OPT record without options consists of the root name, type 41, and 8 more octets.
        let at = octets.len().saturating_sub(11);
        if octets[at..].starts_with(&[0, 0, 41]) {
            octets[at + 8] |= 1;
        }
    }),
    rule("no-fallback", "rfc6891-6.2.2-fallback", |rules| rules.retries_without_edns = false),
    replies("opt-unasked", "rfc6891-7-no-opt", |_, reply| {
        reply.edns.get_or_insert_with(Edns::default);
    }),
    arrives("option-length-ignored", "rfc6891-7-option-format", |octets| {
        if octets.ends_with(&[0, 9]) {
            let at = octets.len() - 1;
            octets[at] = 0;
        }
    }),
    replies("formerr-without-opt", "rfc6891-7-option-format", |_, reply| {
        if reply.rcode == rcode::FORMERR {
            drop_opt(reply);
        }
    }),
    leaves("truncated-without-opt", "rfc6891-7-minimal", |octets| {
        if let Some(mut reply) = Message::parse(octets).ok().filter(|reply| reply.flags.tc) {
            drop_opt(&mut reply);
            *octets = reply.octets();
        }
    }),
    replies("cookies-echoed", "rfc7873-5.2.3-server-cookie", echo_cookie),
    replies("valid-cookies-refused", "rfc7873-5.2.5-valid", |query, reply| {
        if server_part(query).is_some() {
            fail(reply, rcode::REFUSED);
        }
    }),
    replies("cookies-sent-once", "rfc7873-5.2.5-valid", |query, reply| {
        if server_part(query).is_some() {
            reply.edns.iter_mut().for_each(|edns| edns.options.clear());
        }
    }),
    replies("invalid-cookies-repeated", "rfc7873-5.2.4-invalid", |query, reply| {
        if server_part(query).is_some() {
            echo_cookie(query, reply);
        }
    }),
    reads("cookies-of-any-length", "rfc7873-5.2.2-length", |query| {
        for (_, content) in query.edns.iter_mut().flat_map(|edns| &mut edns.options) {
            content.resize(8, 0);
        }
    }),
    replies("cookie-without-question-formerr", "rfc7873-5.4-no-question", |query, reply| {
        if query.questions.is_empty() {
            reply.rcode = rcode::FORMERR;
        }
    }),
    replies("any-cookie-confirmed", "rfc7873-5.4-confirm", |query, reply| {
        if query.questions.is_empty() {
            reply.rcode = rcode::NOERROR;
        }
    }),
    replies("extended-error-cut", "rfc8914-2-format", |_, reply| {
        for edns in reply.edns.iter_mut().filter(|_| reply.rcode == rcode::SERVFAIL) {
            edns.options = vec![(15, vec![0])];
        }
    }),
    replies("no-question-in-reply", "rfc1035-4.1.1-echo", |_, reply| reply.questions.clear()),
    replies("id-changed", "rfc1035-4.1.1-echo", |_, reply| reply.id ^= 1),
    replies("rd-always", "rfc1035-4.1.1-rd", |_, reply| reply.flags.rd = true),
    replies("ra-never", "rfc1035-4.1.1-ra", |_, reply| reply.flags.ra = false),
    replies("aa-always", "rfc1035-4.1.1-aa", |_, reply| reply.flags.aa = true),
    leaves("reserved-bit-set", "rfc1035-4.1.1-z", |octets| set_bits(octets, 3, 0x40)),
    replies("opcode-query-in-replies", "rfc1035-4.1.1-opcode", |_, reply| reply.opcode = 0),
    reads("opcodes-ignored", "rfc8906-3.1.4-opcode", |query| query.opcode = 0),
    reads("updates-welcome", "hardening-opcode-notify-update", |query| {
        if query.opcode == 5 {
            query.opcode = 0;
        }
    }),
    arrives("responses-answered", "hardening-response-ignored", |octets| {
        if let Some(flags) = octets.get_mut(2) {
            *flags &= 0x7f;
        }
    }),
    replies("unknown-types-refused", "rfc3597-3-unknown-type", |query, reply| {
        if query.question().is_some_and(|question| question.qtype.to_int() >= 256) {
            fail(reply, rcode::NOTIMP);
        }
    }),
    leaves("other-classes-unanswered", "hardening-classes", |octets| {
        if octets.get(3).is_some_and(|octet| octet & 0xf == 5) {
            octets.clear();
        }
    }),
    reads("first-question-counts", "rfc9619-4-two-questions", |query| query.questions.truncate(1)),
    leaves("no-question-is-fine", "rfc1035-4.1.1-no-question", |octets| {
        if octets.get(4..6) == Some(&[0, 0]) {
            octets[3] &= 0xf0;
        }
    }),
    arrives("half-a-query-read", "rfc1035-4.1.1-cut-short", |octets| {
        if Message::parse(octets).is_err() {
            make_fine(octets);
        }
    }),
    arrives("half-a-header-read", "rfc1035-4.1-no-header", |octets| {
        if octets.len() < 12 {
            make_fine(octets);
        }
    }),
    arrives("pointers-followed", "rfc1035-4.1.4-pointer", |octets| {
        if octets.get(12).is_some_and(|octet| *octet >= 0xc0) {
            make_fine(octets);
        }
    }),
    arrives("long-labels-read", "rfc1035-3.1-label-length", |octets| {
        if octets.get(12).is_some_and(|octet| (64..0xc0).contains(octet)) {
            make_fine(octets);
        }
    }),
    arrives("long-names-read", "rfc1035-3.1-name-length", |octets| {
        // A message of this length has room for a header, a name of 256 octets, a type and a class.
        if octets.len() >= 12 + 256 + 4 {
            make_fine(octets);
        }
    }),
    arrives("octets-behind-hurt", "hardening-octets-behind", |octets| {
        if octets.ends_with(&[0xff; 40]) {
            set_bits(octets, 2, 0x78);
        }
    }),
];

/// Returns the server cookie of a query.
fn server_part(query: &Message) -> Option<&[u8]> {
    let (_, server) = cookies::parts(query)?;
    Some(server).filter(|server| !server.is_empty())
}

/// Replaces the COOKIE option of a reply with that of the query.
fn echo_cookie(query: &Message, reply: &mut Message) {
    let options = query.edns.iter().flat_map(|edns| &edns.options);
    let cookies = options.filter(|(code, _)| *code == COOKIE);
    if let Some(edns) = &mut reply.edns {
        edns.options.retain(|(code, _)| *code != COOKIE);
        edns.options.extend(cookies.cloned());
    }
}

fn drop_opt(reply: &mut Message) {
    (reply.edns, reply.opt_records) = (None, 0);
}

fn fail(reply: &mut Message, code: u16) {
    reply.rcode = code;
    reply.answer.clear();
}

fn set_bits(octets: &mut [u8], at: usize, bits: u8) {
    if let Some(octet) = octets.get_mut(at) {
        *octet |= bits;
    }
}

/// Replaces the message with a valid query that has the same ID.
fn make_fine(octets: &mut Vec<u8>) {
    let id = octets.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
    *octets = Message { id, ..Message::query(&name("ipv4only.arpa"), Rtype::A) }.octets();
}
