//! RFC 6147 §5.1.4: AAAA records that are treated as missing. The checks use the range ::ffff:0:0/96, which is excluded
//! by default, and an additional range if the user specifies one.

use std::net::Ipv6Addr;

use domain::base::iana::Rtype;

use super::common::{NATIVE, NATIVE_LABEL, RFC6147, ipv6};
use crate::check::{Check, Level, Need};
use crate::message::{Message, Name, Record, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

/// Label that gives a test name an AAAA record with the address ::ffff:5.6.7.8.
const MAPPED: &str = "v6-00000000000000000000ffff05060708";
/// Label that gives a test name an AAAA record with the address ::ffff:9.9.9.9.
const MAPPED_TOO: &str = "v6-00000000000000000000ffff09090909";

const ONLY_EXCLUDED: &str = "… if it receives an answer with only AAAA records containing \
     addresses in the excluded range(s), then it MUST treat the answer as though it were an \
     empty answer, and proceed accordingly.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6147-5.1.4-mapped-by-default",
        title: "Addresses of ::ffff:0:0/96 are excluded without being configured",
        section: "5.1.4",
        sentence: "An implementation SHOULD include the ::ffff/96 network in that range by \
                   default.",
        level: Level::Should,
        script: mapped_addresses_are_excluded,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.4-own-range",
        title: "Addresses of the configured range are treated as missing, those next to it are not",
        section: "5.1.4",
        sentence: "A DNS64 implementation SHOULD provide a mechanism to specify IPv6 prefix \
                   ranges to be treated as though the AAAA containing them were an empty answer.",
        level: Level::Should,
        needs: &[Need::Zone, Need::ExcludedRange],
        script: the_configured_range_is_excluded,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.4-only-excluded",
        title: "AAAA records are synthesized from A records if all native ones are excluded",
        section: "5.1.4",
        sentence: ONLY_EXCLUDED,
        level: Level::Must,
        script: only_excluded_is_empty,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.4-only-excluded-no-a",
        title: "The answer is empty if all AAAA records are excluded and there is no A record",
        section: "5.1.4",
        sentence: ONLY_EXCLUDED,
        level: Level::Must,
        script: only_excluded_without_a,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.4-excluded-below-alias",
        title: "AAAA records are synthesized if all native ones at the end of an alias are excluded",
        section: "5.1.4",
        sentence: ONLY_EXCLUDED,
        level: Level::Must,
        script: only_excluded_below_an_alias,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.4-some-excluded",
        title: "With excluded and usable AAAA records, the usable ones are returned, or all are \
            treated as missing",
        section: "5.1.4",
        sentence: "If it receives an answer with at least one AAAA record containing an address \
                   outside any of the excluded range(s), then it by default SHOULD build an \
                   answer section for a response including only the AAAA record(s) that do not \
                   contain any of the addresses inside the excluded ranges. … Alternatively, it \
                   MAY treat the answer as though it were an empty answer …",
        level: Level::Should,
        script: some_excluded,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.4-never-returned",
        title: "An excluded AAAA record is in no section of a reply",
        section: "5.1.4",
        sentence: "It MUST NOT return the offending AAAA records as part of a response.",
        level: Level::Must,
        script: excluded_records_are_never_returned,
        ..RFC6147
    },
];

/// True if the address is in ::ffff:0:0/96.
fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

/// Returns the number of AAAA records in ::ffff:0:0/96 in all sections.
fn mapped(reply: &Message) -> usize {
    let sections = [&reply.answer, &reply.authority, &reply.additional];
    sections.into_iter().flatten().filter_map(Record::ipv6).filter(|v6| is_mapped(*v6)).count()
}

/// Queries the AAAA records of a new name with these labels, which define only AAAA records that are excluded by
/// default. If the server returns these records, it does not exclude them, so its treatment of excluded records cannot
/// be tested.
fn where_excluded(t: &mut Trial<'_>, labels: &str) -> Judged<(Name, Message)> {
    let (name, reply) = t.aaaa(labels)?;
    if ipv6(&reply).into_iter().any(is_mapped) {
        return Err(Fault::NotOffered("::ffff:0:0/96 is not excluded".into()));
    }
    Ok((name, reply))
}

fn mapped_addresses_are_excluded(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa(&format!("{MAPPED}.v4-1-2-3-4"))?;
    reply.has_rcode(rcode::NOERROR)?;
    expect(mapped(&reply) == 0, || "an address of ::ffff:0:0/96 is returned".into())
}

/// Returns the label that gives a test name an AAAA record with this address.
fn label_of(address: u128) -> String {
    format!("v6-{address:032x}")
}

fn the_configured_range_is_excluded(t: &mut Trial<'_>) -> Judged {
    let range = t.excluded();
    let (first, last) = (u128::from(range.network()), u128::from(range.broadcast()));
    for inside in [first, last] {
        let (_, reply) = t.aaaa(&format!("{}.v4-1-2-3-4", label_of(inside)))?;
        reply.has_aaaa(&t.embedded("1.2.3.4"))?;
    }
    for outside in [first.checked_sub(1), last.checked_add(1)].into_iter().flatten() {
        let (_, reply) = t.aaaa(&format!("{}.v4-1-2-3-4", label_of(outside)))?;
        reply.has_aaaa(&[outside.into()])?;
    }
    Ok(())
}

fn only_excluded_is_empty(t: &mut Trial<'_>) -> Judged {
    for labels in [format!("{MAPPED}.v4-1-2-3-4"), format!("{MAPPED}.{MAPPED_TOO}.v4-1-2-3-4")] {
        let (_, reply) = where_excluded(t, &labels)?;
        reply.has_aaaa(&t.embedded("1.2.3.4"))?;
    }
    Ok(())
}

fn only_excluded_without_a(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = where_excluded(t, MAPPED)?;
    reply.has_nodata(Rtype::AAAA)
}

fn only_excluded_below_an_alias(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = where_excluded(t, &format!("cname.{MAPPED}.v4-1-2-3-4"))?;
    reply.has_aaaa(&t.embedded("1.2.3.4"))
}

fn some_excluded(t: &mut Trial<'_>) -> Judged {
    where_excluded(t, &format!("{MAPPED}.v4-1-2-3-4"))?;
    let (_, reply) = t.aaaa(&format!("{MAPPED}.{NATIVE_LABEL}.v4-1-2-3-4"))?;
    if reply.has_aaaa(&t.embedded("1.2.3.4")).is_ok() {
        return Ok(());
    }
    reply.has_aaaa(&[NATIVE])
}

fn excluded_records_are_never_returned(t: &mut Trial<'_>) -> Judged {
    where_excluded(t, &format!("{MAPPED}.v4-1-2-3-4"))?;
    for labels in [
        format!("{MAPPED}.{NATIVE_LABEL}"),
        format!("{NATIVE_LABEL}.{MAPPED}.{MAPPED_TOO}.v4-1-2-3-4"),
        format!("cname.{MAPPED}.{NATIVE_LABEL}.v4-1-2-3-4"),
    ] {
        let (_, reply) = t.aaaa(&labels)?;
        expect(mapped(&reply) == 0, || {
            "an address of ::ffff:0:0/96 is returned together with a usable one".into()
        })?;
    }
    Ok(())
}
