//! RFC 6147 §5.1.6, which records the answer is made of, §5.1.7, the fields of what is made, and
//! §5.1.8, both questions at once.

use domain::base::iana::{Class, Rtype};

use super::failures::before_patience_ends;
use super::{
    NATIVE, NATIVE_LABEL, RFC6147, belong_to, end, ipv6, is_near, recode, synthesized, wants_aaaa,
};
use crate::check::{Check, Level, Need};
use crate::label;
use crate::message::{Message, Record, rcode};
use crate::mutants::{Mutant, NO_HOOKS, hook, rule};
use crate::reference::rules::Hooks;
use crate::trial::{Fault, Judge, Judged, Trial, expect};

const EMPTY: &str = "If the query results in no error but an empty answer section in the \
     response, the DNS64 attempts to retrieve A records for the name in question …";
const BASIS: &str = "If this new A RR query results in an empty answer or in an error, then the \
     empty result or error is used as the basis for the answer returned to the querying client.";
const ONE_OR_MORE: &str = "If instead the query results in one or more A RRs, the DNS64 \
     synthesizes AAAA RRs based on the A RRs …";
const SMALLEST: &str = "The Time to Live (TTL) field is set to the minimum of the TTL of the \
     original A RR and the SOA RR for the queried domain.";
const NO_SOA: &str = "If the SOA RR was not delivered with the negative response to the AAAA \
     query, then the DNS64 SHOULD use the TTL of the original A RR or 600 seconds, whichever is \
     shorter.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6147-5.1.6-empty-answer",
        title: "AAAA records are made where there is an A record and no AAAA record",
        section: "5.1.6",
        sentence: EMPTY,
        script: |t| synthesized(t, "v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-empty-without-soa",
        title: "An empty answer without a SOA record is empty too",
        section: "5.1.6",
        sentence: EMPTY,
        script: |t| synthesized(t, "v4-1-2-3-4.nosoa", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-no-addresses",
        title: "A name without addresses gets an empty answer, not an error",
        section: "5.1.6",
        sentence: BASIS,
        script: no_addresses,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-empty-non-terminal",
        title: "A name that has no records, but has names below it, gets an empty answer",
        section: "5.1.6",
        sentence: BASIS,
        script: empty_non_terminal,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-a-fails",
        title: "SERVFAIL is returned where AAAA is empty and A is SERVFAIL",
        section: "5.1.6",
        sentence: BASIS,
        script: failing_a,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-a-silent",
        title: "SERVFAIL is returned where AAAA is empty and A is never answered",
        section: "5.1.6",
        sentence: BASIS,
        script: silent_a,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-a-nxdomain",
        title: "NXDOMAIN is returned where AAAA is empty and A is NXDOMAIN",
        section: "5.1.6",
        sentence: BASIS,
        script: a_without_a_name,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-error-then-empty",
        title: "An empty answer is returned where AAAA is SERVFAIL and A is empty",
        section: "5.1.6",
        sentence: BASIS,
        contradicts: Some("hardening-error-then-empty"),
        script: error_then_empty,
        ..RFC6147
    },
    Check {
        id: "hardening-error-then-empty",
        title: "A failure is returned where AAAA is SERVFAIL and A is empty",
        rfc: 0,
        section: "",
        sentence: "That AAAA could not be found out is no proof that there is none: an empty answer \
                   is kept by whoever gets it (RFC 2308 §5), and hides an address of the name's own \
                   that the next question would find.",
        level: Level::Hardening,
        contradicts: Some("rfc6147-5.1.6-error-then-empty"),
        script: error_stays,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-all-a-records",
        title: "Addresses are made of all A records, with each of the server's prefixes, none \
                twice",
        section: "5.1.6",
        sentence: ONE_OR_MORE,
        script: all_a_records_are_used,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-a-removed",
        title: "The A records are not in the answer",
        section: "5.1.6",
        sentence: "The DNS64 returns the synthesized AAAA records in the answer section, \
                   removing the A records that form the basis of the synthesis.",
        script: a_records_are_removed,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-name",
        title: "What is made belongs to the name that the A record belongs to",
        section: "5.1.7",
        sentence: "The NAME field is set to the NAME field from the A record.",
        script: owner_is_that_of_the_a_record,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-fields",
        title: "What is made is of class IN, and has 16 octets of data",
        section: "5.1.7",
        sentence: "The CLASS field is set to the original CLASS field, 1. … The RDLENGTH field \
                   is set to 16.",
        script: fields_of_a_made_record,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-of-a",
        title: "The TTL is the A record's where that is smaller than the SOA record's",
        section: "5.1.7",
        sentence: SMALLEST,
        script: |t| lives(t, "v4-1-2-3-4.ttl-60.soa-250-250", 60),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-of-soa",
        title: "The TTL is the SOA record's where that is smaller than the A record's",
        section: "5.1.7",
        sentence: SMALLEST,
        script: |t| lives(t, "v4-1-2-3-4.ttl-250.soa-60-250", 60),
        ..RFC6147
    },
    Check {
        id: "hardening-ttl-minimum",
        title: "The TTL is at most MINIMUM of the SOA record, also where the upstream gave that \
                record a longer TTL, which RFC 2308 §3 forbids",
        rfc: 0,
        section: "",
        sentence: "RFC 6147 §5.1.7 counts the TTL of the SOA record only: who makes a denial sets \
                   it to MINIMUM where that is smaller (RFC 2308 §3, §5). Of an upstream that does \
                   not, the smaller of the two should be taken: MINIMUM is what the zone wants.",
        level: Level::Hardening,
        script: |t| lives(t, "v4-1-2-3-4.ttl-250.soa-250-60", 60),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-without-soa",
        title: "The TTL is 600 s where the denial has no SOA record and the A record lives \
                longer",
        section: "5.1.7",
        sentence: NO_SOA,
        level: Level::Should,
        script: lives_without_soa,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-of-a-without-soa",
        title: "The TTL is the A record's where that is below 600 s and the denial has no SOA \
                record",
        section: "5.1.7",
        sentence: NO_SOA,
        level: Level::Should,
        script: |t| lives(t, "v4-1-2-3-4.ttl-90.nosoa", 90),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-below-alias",
        title: "Below an alias the TTL is at most that of the A record at its end",
        section: "5.1.7",
        sentence: SMALLEST,
        script: |t| lives_at_most(t, "cname-140.v4-1-2-3-4.ttl-90.soa-200-200", 90),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.8-no-needless-a",
        title: "A is not asked for where the answer to AAAA comes at once and is enough",
        section: "5.1.8",
        sentence: "The DNS64 MAY perform the query for the AAAA RR and for the A RR in parallel \
                   … A possible trade-off would be to perform them sequentially but with a very \
                   short interval between them, so if we obtain a fast reply, we avoid doing \
                   the additional query.",
        level: Level::May,
        needs: &[Need::Zone, Need::View],
        script: no_needless_question,
        ..RFC6147
    },
];

pub(super) const MUTANTS: &[Mutant] = &[
    rule("makes-nothing", "rfc6147-5.1.6-empty-answer", |rules| rules.synthesize = false),
    hook(
        "empty-without-soa-taken-for-nxdomain",
        "rfc6147-5.1.6-empty-without-soa",
        Hooks { hears: Some(deny_what_has_no_soa), ..NO_HOOKS },
    ),
    hook(
        "nodata-is-servfail",
        "rfc6147-5.1.6-no-addresses",
        Hooks { reply: Some(|_, reply| fail_if_empty(reply, rcode::SERVFAIL)), ..NO_HOOKS },
    ),
    hook(
        "nodata-is-nxdomain",
        "rfc6147-5.1.6-empty-non-terminal",
        Hooks { reply: Some(|_, reply| fail_if_empty(reply, rcode::NXDOMAIN)), ..NO_HOOKS },
    ),
    hook(
        "failing-a-is-nodata",
        "rfc6147-5.1.6-a-fails",
        Hooks { reply: Some(servfail_is_nodata), ..NO_HOOKS },
    ),
    hook(
        "silent-a-is-nodata",
        "rfc6147-5.1.6-a-silent",
        Hooks { reply: Some(servfail_is_nodata), ..NO_HOOKS },
    ),
    hook(
        "nxdomain-of-a-is-nodata",
        "rfc6147-5.1.6-a-nxdomain",
        Hooks {
            reply: Some(|_, reply| recode(reply, rcode::NXDOMAIN, rcode::NOERROR)),
            ..NO_HOOKS
        },
    ),
    rule("first-error-returned", "rfc6147-5.1.6-error-then-empty", |rules| {
        rules.errors_are_empty = false;
    }),
    hook(
        "first-a-record-only",
        "rfc6147-5.1.6-all-a-records",
        Hooks { hears: Some(keep_one_a_record), ..NO_HOOKS },
    ),
    hook(
        "first-address-twice",
        "rfc6147-5.1.6-all-a-records",
        Hooks {
            reply: Some(|_, reply| {
                let first = reply.answers(Rtype::AAAA).next().cloned();
                reply.answer.extend(first);
            }),
            ..NO_HOOKS
        },
    ),
    hook(
        "a-record-kept",
        "rfc6147-5.1.6-a-removed",
        Hooks {
            reply: Some(|query, reply| {
                let first = reply.answers(Rtype::AAAA).next().map(|record| record.owner.clone());
                if let Some(owner) = first.filter(|_| wants_aaaa(query)) {
                    reply.answer.push(Record::a(owner, 300, [1, 2, 3, 4].into()));
                }
            }),
            ..NO_HOOKS
        },
    ),
    hook(
        "question-owns-all",
        "rfc6147-5.1.7-name",
        Hooks {
            reply: Some(|query, reply| {
                let Some(asked) = query.question() else { return };
                for record in made(reply) {
                    record.owner = asked.name.clone();
                }
            }),
            ..NO_HOOKS
        },
    ),
    hook(
        "made-of-class-ch",
        "rfc6147-5.1.7-fields",
        Hooks {
            reply: Some(|_, reply| made(reply).for_each(|record| record.class = Class::CH)),
            ..NO_HOOKS
        },
    ),
    hook(
        "made-records-are-short",
        "rfc6147-5.1.7-fields",
        Hooks {
            reply: Some(|_, reply| made(reply).for_each(|record| record.data.truncate(12))),
            ..NO_HOOKS
        },
    ),
    rule("ttl-of-a-ignored", "rfc6147-5.1.7-ttl-of-a", |rules| rules.ttl_of_a = false),
    rule("ttl-of-soa-ignored", "rfc6147-5.1.7-ttl-of-soa", |rules| rules.ttl_of_soa = false),
    rule("minimum-ignored", "hardening-ttl-minimum", |rules| rules.minimum_of_soa = false),
    rule("an-hour-without-soa", "rfc6147-5.1.7-ttl-without-soa", |rules| {
        rules.ttl_without_soa = 3600;
    }),
    hook(
        "ten-minutes-at-least",
        "rfc6147-5.1.7-ttl-of-a-without-soa",
        Hooks {
            reply: Some(|_, reply| made(reply).for_each(|record| record.ttl = record.ttl.max(600))),
            ..NO_HOOKS
        },
    ),
    hook(
        "ttl-of-alias",
        "rfc6147-5.1.7-ttl-below-alias",
        Hooks {
            reply: Some(|_, reply| {
                let alias = reply.answers(Rtype::CNAME).next().map(|record| record.ttl);
                if let Some(ttl) = alias {
                    made(reply).for_each(|record| record.ttl = ttl);
                }
            }),
            ..NO_HOOKS
        },
    ),
];

/// For mutants: the AAAA records of the answer.
fn made(reply: &mut Message) -> impl Iterator<Item = &mut Record> {
    reply.answer.iter_mut().filter(|record| record.rtype == Rtype::AAAA)
}

fn deny_what_has_no_soa(reply: &mut Message) {
    if reply.rcode == rcode::NOERROR && reply.answer.is_empty() && reply.soa().is_none() {
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

fn no_addresses(t: &mut Trial<'_>) -> Judged {
    for labels in ["", "txt", "nosoa"] {
        let (_, reply) = t.aaaa(labels)?;
        reply.has_nodata(Rtype::AAAA)?;
    }
    Ok(())
}

fn empty_non_terminal(t: &mut Trial<'_>) -> Judged {
    // `x1.ZONE` has no records of its own; `y.v4-1-2-3-4.x1.ZONE` has an A record.
    let name = t.name("");
    let below = label::prepend("y", &label::prepend("v4-1-2-3-4", &name));
    t.ask(&Message::query(&below, Rtype::AAAA))?.has_aaaa(&t.embedded("1.2.3.4"))?;
    t.ask(&Message::query(&name, Rtype::AAAA))?.has_nodata(Rtype::AAAA)
}

fn failing_a(t: &mut Trial<'_>) -> Judged {
    for labels in ["a-rcode-2", "all-rcode-2"] {
        let (_, reply) = t.aaaa(labels)?;
        reply.has_rcode(rcode::SERVFAIL)?;
    }
    Ok(())
}

fn silent_a(t: &mut Trial<'_>) -> Judged {
    before_patience_ends(t, "a-silent")?.has_rcode(rcode::SERVFAIL)
}

fn a_without_a_name(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("a-rcode-3")?;
    reply.has_rcode(rcode::NXDOMAIN)
}

fn error_then_empty(t: &mut Trial<'_>) -> Judged {
    for labels in ["aaaa-rcode-2", "aaaa-rcode-5"] {
        let (_, reply) = t.aaaa(labels)?;
        reply.has_nodata(Rtype::AAAA)?;
    }
    Ok(())
}

fn error_stays(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("aaaa-rcode-2")?;
    reply.has_rcode(rcode::SERVFAIL)
}

fn all_a_records_are_used(t: &mut Trial<'_>) -> Judged {
    let two = ["1.2.3.4", "8.8.4.4"];
    synthesized(t, "v4-1-2-3-4.v4-8-8-4-4", &two)?;
    let six = ["1.1.0.1", "1.1.0.2", "1.1.0.3", "1.1.0.4", "1.1.0.5", "1.1.0.6"];
    synthesized(t, "many-6", &six)?;
    synthesized(t, "cname.many-6", &six).map(drop)
}

fn a_records_are_removed(t: &mut Trial<'_>) -> Judged {
    for labels in ["v4-1-2-3-4.v4-8-8-4-4", "cname.v4-1-2-3-4"] {
        let (_, reply) = t.aaaa(labels)?;
        expect(!ipv6(&reply).is_empty(), || "there are no AAAA records".into())?;
        reply.has_nodata(Rtype::A)?;
    }
    Ok(())
}

fn owner_is_that_of_the_a_record(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = synthesized(t, "v4-1-2-3-4", &["1.2.3.4"])?;
    belong_to(&reply, Rtype::AAAA, &name)?;
    let (name, reply) = synthesized(t, "cname.v4-1-2-3-4", &["1.2.3.4"])?;
    belong_to(&reply, Rtype::AAAA, &end(t, &name))
}

fn fields_of_a_made_record(t: &mut Trial<'_>) -> Judged {
    // A record with other data than 16 octets makes the message unreadable, and the trial says so.
    let (_, reply) = synthesized(t, "v4-1-2-3-4", &["1.2.3.4"])?;
    reply.answers(Rtype::AAAA).try_for_each(|record| {
        expect(record.class == Class::IN, || format!("the class is {}", record.class))
    })
}

/// What is made for a new name with these labels, which have the A record 1.2.3.4, has this TTL.
fn lives(t: &mut Trial<'_>, labels: &str, wanted: u32) -> Judged {
    let (_, reply) = synthesized(t, labels, &["1.2.3.4"])?;
    is_near(reply.ttl(Rtype::AAAA)?, wanted)
}

/// As [`lives`], but a shorter time is right too: a cache may shorten TTLs (RFC 2181 §8).
fn lives_at_most(t: &mut Trial<'_>, labels: &str, most: u32) -> Judged {
    let (_, reply) = synthesized(t, labels, &["1.2.3.4"])?;
    let ttl = reply.ttl(Rtype::AAAA)?;
    expect((1..=most).contains(&ttl), || format!("the TTL is {ttl} s, not 1 to {most} s"))
}

fn lives_without_soa(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = synthesized(t, "v4-1-2-3-4.ttl-900.nosoa", &["1.2.3.4"])?;
    let ttl = reply.ttl(Rtype::AAAA)?;
    // "It is possible instead to query explicitly for the SOA RR and use the result of that query".
    is_near(ttl, 600).or_else(|fault| is_near(ttl, label::TTL).map_err(|_| fault))
}

fn no_needless_question(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = t.aaaa(&format!("{NATIVE_LABEL}.v4-1-2-3-4"))?;
    reply.has_aaaa(&[NATIVE])?;
    let asked = t.asked(&name)?;
    if asked.iter().any(|one| one.qtype == Rtype::A.to_int()) {
        return Err(Fault::NotOffered("A is asked for together with AAAA".into()));
    }
    Ok(())
}
