//! Checks for RFC 6147 §5.1.6 (source of synthesized records), §5.1.7 (fields of synthesized records), and §5.1.8 (A
//! and AAAA queries in parallel).

use domain::base::iana::{Class, Rtype};

use super::common::{NATIVE, NATIVE_LABEL, RFC6147, belong_to, end, ipv6, is_near, synthesized};
use super::failures::before_patience_ends;
use crate::check::{Check, Level, Need};
use crate::label;
use crate::message::{Message, rcode};
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
        title: "AAAA records are synthesized if there is an A record and no AAAA record",
        section: "5.1.6",
        sentence: EMPTY,
        script: |t| synthesized(t, "v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-empty-without-soa",
        title: "An empty answer without a SOA record is also empty",
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
        title: "SERVFAIL is returned if AAAA is empty and A is SERVFAIL",
        section: "5.1.6",
        sentence: BASIS,
        script: failing_a,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-a-silent",
        title: "SERVFAIL is returned if AAAA is empty and A is never answered",
        section: "5.1.6",
        sentence: BASIS,
        script: silent_a,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-a-nxdomain",
        title: "NXDOMAIN is returned if AAAA is empty and A is NXDOMAIN",
        section: "5.1.6",
        sentence: BASIS,
        script: a_without_a_name,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-error-then-empty",
        title: "An empty answer is returned if AAAA is SERVFAIL and A is empty",
        section: "5.1.6",
        sentence: BASIS,
        contradicts: Some("hardening-error-then-empty"),
        script: error_then_empty,
        ..RFC6147
    },
    Check {
        id: "hardening-error-then-empty",
        title: "A failure is returned if AAAA is SERVFAIL and A is empty",
        rfc: 0,
        section: "",
        sentence: "A failed AAAA query is no proof that there is no AAAA record. Clients cache an \
            empty answer (RFC 2308 §5), and it hides a native address that the next query would \
            find.",
        level: Level::Hardening,
        contradicts: Some("rfc6147-5.1.6-error-then-empty"),
        script: error_stays,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.6-all-a-records",
        title: "Addresses are synthesized from all A records, with each of the server's prefixes, \
            none twice",
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
        title: "Synthesized records have the owner of the A record",
        section: "5.1.7",
        sentence: "The NAME field is set to the NAME field from the A record.",
        script: owner_is_that_of_the_a_record,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-fields",
        title: "Synthesized records are of class IN, and have 16 octets of data",
        section: "5.1.7",
        sentence: "The CLASS field is set to the original CLASS field, 1. … The RDLENGTH field \
                   is set to 16.",
        script: fields_of_a_made_record,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-of-a",
        title: "The TTL is that of the A record if it is smaller than that of the SOA record",
        section: "5.1.7",
        sentence: SMALLEST,
        script: |t| lives(t, "v4-1-2-3-4.ttl-60.soa-250-250", 60),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-of-soa",
        title: "The TTL is that of the SOA record if it is smaller than that of the A record",
        section: "5.1.7",
        sentence: SMALLEST,
        script: |t| lives(t, "v4-1-2-3-4.ttl-250.soa-60-250", 60),
        ..RFC6147
    },
    Check {
        id: "hardening-ttl-minimum",
        title: "The TTL is at most MINIMUM of the SOA record, even if the upstream sent a longer \
            TTL, which RFC 2308 §3 forbids",
        rfc: 0,
        section: "",
        sentence: "RFC 6147 §5.1.7 uses the TTL of the SOA record only, because the server that \
            creates a denial sets it to MINIMUM if that is smaller (RFC 2308 §3, §5). If an \
            upstream does not, the smaller of the two should be used, because MINIMUM is the \
            choice of the zone.",
        level: Level::Hardening,
        script: |t| lives(t, "v4-1-2-3-4.ttl-250.soa-250-60", 60),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-without-soa",
        title: "The TTL is 600 s if the denial has no SOA record and the A record has a longer TTL",
        section: "5.1.7",
        sentence: NO_SOA,
        level: Level::Should,
        script: lives_without_soa,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-of-a-without-soa",
        title: "The TTL is that of the A record if it is below 600 s and the denial has no SOA \
            record",
        section: "5.1.7",
        sentence: NO_SOA,
        level: Level::Should,
        script: |t| lives(t, "v4-1-2-3-4.ttl-90.nosoa", 90),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-after-error",
        title: "The TTL is at most 600 s if the AAAA query ended in an error, which has no SOA \
            record",
        section: "5.1.7",
        sentence: NO_SOA,
        level: Level::Should,
        script: has_ttl_after_error,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-after-silence",
        title: "The TTL is at most 600 s if the AAAA query got no response",
        section: "5.1.7",
        sentence: NO_SOA,
        level: Level::Should,
        script: |t| {
            let reply = before_patience_ends(t, "aaaa-silent.v4-1-2-3-4.ttl-900")?;
            lives_ten_minutes_at_most(&reply)
        },
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.7-ttl-below-alias",
        title: "Below an alias the TTL is at most that of the A record at its end",
        section: "5.1.7",
        sentence: SMALLEST,
        script: |t| has_ttl_at_most(t, "cname-140.v4-1-2-3-4.ttl-90.soa-200-200", 90),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.8-no-needless-a",
        title: "A is not queried if the answer to AAAA arrives at once and is sufficient",
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
        reply.lacks(Rtype::A)?;
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
    // If the data of a record is not 16 octets long, the message is unreadable, which the trial reports.
    let (_, reply) = synthesized(t, "v4-1-2-3-4", &["1.2.3.4"])?;
    reply.answers(Rtype::AAAA).try_for_each(|record| {
        expect(record.class == Class::IN, || format!("the class is {}", record.class))
    })
}

/// Requires that records synthesized from 1.2.3.4 for a new name with these labels have the TTL `wanted`.
fn lives(t: &mut Trial<'_>, labels: &str, wanted: u32) -> Judged {
    let (_, reply) = synthesized(t, labels, &["1.2.3.4"])?;
    is_near(reply.ttl(Rtype::AAAA)?, wanted)
}

/// Requires that records synthesized from 1.2.3.4 for a new name with these labels have a TTL of at most `most`. Unlike
/// [`lives`], this function accepts a shorter TTL, because a cache may reduce TTLs (RFC 2181 §8).
fn has_ttl_at_most(t: &mut Trial<'_>, labels: &str, most: u32) -> Judged {
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

/// Requires a TTL of at most 600 s for records that are synthesized after an error reply to the AAAA query. SERVFAIL,
/// NOTIMP and REFUSED count as empty answers (RFC 6147 §5.1.2).
fn has_ttl_after_error(t: &mut Trial<'_>) -> Judged {
    for code in [rcode::SERVFAIL, rcode::NOTIMP, rcode::REFUSED] {
        let (_, reply) = t.aaaa(&format!("aaaa-rcode-{code}.v4-1-2-3-4.ttl-900"))?;
        lives_ten_minutes_at_most(&reply)?;
    }
    Ok(())
}

/// Requires that synthesized records have a TTL of at most 600 s. They are synthesized from an A record with a TTL of
/// 900 s, and the reply to the AAAA query contained no SOA record.
fn lives_ten_minutes_at_most(reply: &Message) -> Judged {
    if ipv6(reply).is_empty() {
        let what = "it synthesizes nothing after a failed AAAA query";
        return Err(Fault::NotOffered(what.into()));
    }
    let ttl = reply.ttl(Rtype::AAAA)?;
    expect(ttl <= 600, || format!("the TTL is {ttl} s, not at most 600 s"))
}

fn no_needless_question(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = t.aaaa(&format!("{NATIVE_LABEL}.v4-1-2-3-4"))?;
    reply.has_aaaa(&[NATIVE])?;
    let asked = t.asked(&name)?;
    if asked.iter().any(|one| one.qtype == Rtype::A.to_int()) {
        return Err(Fault::NotOffered("A is queried together with AAAA".into()));
    }
    Ok(())
}
