//! RFC 6147 §5.1 (queries to which DNS64 applies) and §5.1.1 (answers with existing AAAA records).

use std::net::Ipv4Addr;

use domain::base::iana::{Class, Rtype};

use super::common::{NATIVE, NATIVE_LABEL, RFC6147, belong_to, ipv6, is_near};
use crate::check::{Check, Level, Need};
use crate::message::Message;
use crate::trial::{Judge, Judged, Trial, expect};

const RETURNED: &str = "If the query results in one or more AAAA records in the answer section, \
     the result is returned to the requesting client as per normal DNS semantics …";
const NOT_BOTH: &str = "If there is (non-excluded) AAAA data available, DNS64 SHOULD NOT include \
     synthetic AAAA RRs in the response …";
const REAL_WINS: &str = "By default, DNS64 implementations MUST NOT synthesize AAAA RRs when \
     real AAAA RRs exist.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6147-5.1-asks-for-aaaa",
        title: "AAAA records are queried upstream, before A records or together with them",
        section: "5.1",
        sentence: "When the DNS64 receives a query for RRs of type AAAA and class IN, it first \
                   attempts to retrieve non-synthetic RRs of this type and class …",
        needs: &[Need::Zone, Need::View],
        script: real_records_are_asked_for,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1-other-classes",
        title: "Nothing is synthesized for a query of a class other than IN",
        section: "5.1",
        sentence: "DNS64 operation for classes other than IN is undefined, and a DNS64 MUST \
                   behave as though no DNS64 function is configured.",
        level: Level::Must,
        script: other_classes_are_left_alone,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1-only-aaaa",
        title: "AAAA records are synthesized for queries of type AAAA only",
        section: "5.1",
        sentence: "When the DNS64 receives a query for RRs of type AAAA and class IN …",
        script: other_types_are_left_alone,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.1-own-address",
        title: "A native AAAA record is returned unchanged, with its owner and TTL",
        section: "5.1.1",
        sentence: RETURNED,
        script: own_address_is_returned,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.1-several-own",
        title: "All native AAAA records of a name are returned",
        section: "5.1.1",
        sentence: RETURNED,
        script: all_own_addresses_are_returned,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.1-real-wins",
        title: "Nothing is synthesized from A records if an AAAA record exists",
        section: "5.1.1",
        sentence: REAL_WINS,
        level: Level::Must,
        script: real_records_win,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.1-not-both",
        title: "Synthesized and native records are not mixed, however many A records there are",
        section: "5.1.1",
        sentence: NOT_BOTH,
        level: Level::Should,
        script: real_and_made_are_not_mixed,
        ..RFC6147
    },
    Check {
        id: "hardening-late-real",
        title: "An AAAA record that takes 0.3 s still has priority over the A record",
        rfc: 0,
        section: "",
        sentence: "RFC 6147 §5.1.3 specifies no timeout. A server with a timeout shorter than many \
            names need synthesizes for names with native addresses.",
        level: Level::Hardening,
        script: late_real_records_win,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.1-a-fails",
        title: "AAAA records are returned even if an A query fails",
        section: "5.1.1",
        sentence: RETURNED,
        script: failing_a_is_no_matter,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.1-inside-prefix",
        title: "An AAAA record inside the server's prefix is returned or excluded, but not mixed \
            with synthesized ones",
        section: "5.1.1",
        sentence: NOT_BOTH,
        level: Level::Should,
        script: real_record_inside_the_prefix,
        ..RFC6147
    },
];

fn real_records_are_asked_for(t: &mut Trial<'_>) -> Judged {
    let (name, _) = t.aaaa("v4-1-2-3-4")?;
    let asked = t.asked(&name)?;
    expect(asked.iter().any(|one| one.qtype == Rtype::AAAA.to_int()), || {
        format!("no query for AAAA of {name} was sent upstream")
    })
}

fn other_classes_are_left_alone(t: &mut Trial<'_>) -> Judged {
    for class in [Class::CH, Class::HS] {
        let name = t.name("v4-1-2-3-4");
        let mut query = Message::query(&name, Rtype::AAAA);
        query.questions.iter_mut().for_each(|question| question.class = class);
        // Most servers refuse other classes. A server that ignores the query is correct too, because it synthesizes
        // nothing.
        let Some(reply) = t.ask_or_silence(&query)? else { continue };
        expect(ipv6(&reply).is_empty(), || {
            format!("there are AAAA records in the reply to a query of class {class}")
        })?;
    }
    Ok(())
}

fn other_types_are_left_alone(t: &mut Trial<'_>) -> Judged {
    for qtype in [Rtype::A, Rtype::TXT, Rtype::MX] {
        let (_, reply) = t.look_up("txt.v4-1-2-3-4", qtype)?;
        reply.lacks(Rtype::AAAA)?;
    }
    Ok(())
}

fn own_address_is_returned(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = t.aaaa(&format!("{NATIVE_LABEL}.ttl-200"))?;
    reply.has_aaaa(&[NATIVE])?;
    belong_to(&reply, Rtype::AAAA, &name)?;
    is_near(reply.ttl(Rtype::AAAA)?, 200)
}

fn all_own_addresses_are_returned(t: &mut Trial<'_>) -> Judged {
    let other = "v6-26000002000000000000000000000054";
    let (_, reply) = t.aaaa(&format!("{NATIVE_LABEL}.{other}"))?;
    reply.has_aaaa(&[NATIVE, "2600:2::54".parse().expect("it is an address")])
}

fn real_records_win(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa(&format!("{NATIVE_LABEL}.v4-1-2-3-4"))?;
    reply.has_aaaa(&[NATIVE])
}

fn real_and_made_are_not_mixed(t: &mut Trial<'_>) -> Judged {
    let name = t.name(&format!("{NATIVE_LABEL}.v4-1-2-3-4.v4-8-8-4-4.v4-9-9-9-9"));
    // After this query, the A records may be in the cache.
    t.ask(&Message::query(&name, Rtype::A))?;
    t.ask(&Message::query(&name, Rtype::AAAA))?.has_aaaa(&[NATIVE])
}

fn late_real_records_win(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa(&format!("aaaa-delay-300.{NATIVE_LABEL}.v4-1-2-3-4"))?;
    reply.has_aaaa(&[NATIVE])
}

fn failing_a_is_no_matter(t: &mut Trial<'_>) -> Judged {
    for fate in ["a-rcode-2", "a-rcode-3", "a-nodata"] {
        let (_, reply) = t.aaaa(&format!("{fate}.{NATIVE_LABEL}.v4-1-2-3-4"))?;
        reply.has_aaaa(&[NATIVE])?;
    }
    Ok(())
}

fn real_record_inside_the_prefix(t: &mut Trial<'_>) -> Judged {
    let inside = t.prefix().with(Ipv4Addr::new(8, 8, 4, 4));
    let (_, reply) = t.aaaa(&format!("v6-{:032x}.v4-1-2-3-4", u128::from(inside)))?;
    // RFC 6147 §5.1.4 does not specify whether the site's prefix is in the exclusion set.
    if reply.has_aaaa(&t.embedded("1.2.3.4")).is_ok() {
        return Ok(());
    }
    reply.has_aaaa(&[inside])
}
