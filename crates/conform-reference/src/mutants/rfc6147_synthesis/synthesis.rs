//! Mutants for the checks in `synthesis`, which cover the records and fields of synthesized answers.

use conform::message::{Message, Record, rcode};
use domain::base::iana::{Class, Rtype};

use super::common::recode;
use crate::mutant::{Mutant, hears, replies, rule};
use crate::mutants::common::{repeat_soa, wants};

pub(super) const MUTANTS: &[Mutant] = &[
    rule("makes-nothing", "rfc6147-5.1.6-empty-answer", |rules| rules.synthesize = false),
    hears(
        "empty-without-soa-taken-for-nxdomain",
        "rfc6147-5.1.6-empty-without-soa",
        deny_what_has_no_soa,
    ),
    replies("nodata-is-servfail", "rfc6147-5.1.6-no-addresses", |_, reply| {
        fail_if_empty(reply, rcode::SERVFAIL);
    }),
    replies("nodata-with-two-soa-records", "rfc6147-5.1.6-no-addresses", |_, reply| {
        repeat_soa(reply);
    }),
    replies("nodata-is-nxdomain", "rfc6147-5.1.6-empty-non-terminal", |_, reply| {
        fail_if_empty(reply, rcode::NXDOMAIN);
    }),
    replies("failing-a-is-nodata", "rfc6147-5.1.6-a-fails", servfail_is_nodata),
    replies("silent-a-is-nodata", "rfc6147-5.1.6-a-silent", servfail_is_nodata),
    replies("nxdomain-of-a-is-nodata", "rfc6147-5.1.6-a-nxdomain", |_, reply| {
        recode(reply, rcode::NXDOMAIN, rcode::NOERROR);
    }),
    rule("first-error-returned", "rfc6147-5.1.6-error-then-empty", |rules| {
        rules.errors_are_empty = false;
    }),
    hears("first-a-record-only", "rfc6147-5.1.6-all-a-records", keep_one_a_record),
    replies("first-address-twice", "rfc6147-5.1.6-all-a-records", |_, reply| {
        let first = reply.answers(Rtype::AAAA).next().cloned();
        reply.answer.extend(first);
    }),
    replies("a-record-kept", "rfc6147-5.1.6-a-removed", |query, reply| {
        let first = reply.answers(Rtype::AAAA).next().map(|record| record.owner.clone());
        if let Some(owner) = first.filter(|_| wants(query, Rtype::AAAA)) {
            reply.answer.push(Record::a(owner, 300, [1, 2, 3, 4].into()));
        }
    }),
    replies("question-owns-all", "rfc6147-5.1.7-name", |query, reply| {
        let Some(asked) = query.question() else { return };
        for record in made(reply) {
            record.owner = asked.name.clone();
        }
    }),
    replies("made-of-class-ch", "rfc6147-5.1.7-fields", |_, reply| {
        made(reply).for_each(|record| record.class = Class::CH);
    }),
    replies("made-records-are-short", "rfc6147-5.1.7-fields", |_, reply| {
        made(reply).for_each(|record| record.data.truncate(12));
    }),
    rule("ttl-of-a-ignored", "rfc6147-5.1.7-ttl-of-a", |rules| rules.ttl_of_a = false),
    rule("ttl-of-soa-ignored", "rfc6147-5.1.7-ttl-of-soa", |rules| rules.ttl_of_soa = false),
    rule("minimum-ignored", "hardening-ttl-minimum", |rules| rules.minimum_of_soa = false),
    rule("an-hour-without-soa", "rfc6147-5.1.7-ttl-without-soa", |rules| {
        rules.ttl_without_soa = 3600;
    }),
    rule("an-hour-after-an-error", "rfc6147-5.1.7-ttl-after-error", |rules| {
        rules.ttl_after_error = 3600;
    }),
    rule("an-hour-after-silence", "rfc6147-5.1.7-ttl-after-silence", |rules| {
        rules.ttl_after_error = 3600;
    }),
    replies("ten-minutes-at-least", "rfc6147-5.1.7-ttl-of-a-without-soa", |_, reply| {
        made(reply).for_each(|record| record.ttl = record.ttl.max(600));
    }),
    replies("ttl-of-alias", "rfc6147-5.1.7-ttl-below-alias", |_, reply| {
        let alias = reply.answers(Rtype::CNAME).next().map(|record| record.ttl);
        if let Some(ttl) = alias {
            made(reply).for_each(|record| record.ttl = ttl);
        }
    }),
    rule("a-queried-at-once", "rfc6147-5.1.8-no-needless-a", |rules| rules.waits_for_aaaa = false),
];

/// Returns the AAAA records of the answer.
fn made(reply: &mut Message) -> impl Iterator<Item = &mut Record> {
    reply.answer.iter_mut().filter(|record| record.rtype == Rtype::AAAA)
}

fn deny_what_has_no_soa(reply: &mut Message) {
    let has_soa = reply.authority.iter().any(|record| record.rtype == Rtype::SOA);
    if reply.rcode == rcode::NOERROR && reply.answer.is_empty() && !has_soa {
        reply.rcode = rcode::NXDOMAIN;
    }
}

fn fail_if_empty(reply: &mut Message, code: u16) {
    if reply.rcode == rcode::NOERROR && reply.answer.is_empty() {
        reply.rcode = code;
    }
}

fn servfail_is_nodata(_: &Message, reply: &mut Message) {
    recode(reply, rcode::SERVFAIL, rcode::NOERROR);
}

fn keep_one_a_record(reply: &mut Message) {
    let mut found = false;
    reply.answer.retain(|record| record.rtype != Rtype::A || !std::mem::replace(&mut found, true));
}
