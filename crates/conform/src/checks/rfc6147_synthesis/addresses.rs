//! RFC 6147 §5.2 (the IPv6 representation of an IPv4 address), and the part of §5.3.3 that concerns A records.

use std::net::{Ipv4Addr, Ipv6Addr};

use domain::base::iana::Rtype;

use super::common::{RFC6147, ipv6, is_near, synthesized};
use crate::check::{Check, Level, Need};
use crate::message::{Message, Record};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

const UNCHANGED: &str =
    "All other RRs MUST be returned unchanged. This includes responses to queries for A RRs.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6147-5.2-reversible",
        title: "The IPv4 addresses of the A records can be derived from the synthesized addresses",
        section: "5.2",
        sentence: "The algorithm MUST be reversible; i.e., it MUST be possible to derive the \
                   original IPv4 address from the IPv6 representation.",
        level: Level::Must,
        script: a_records_can_be_derived,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.2-stable-input",
        title: "The same IPv4 address gives the same IPv6 addresses for every name",
        section: "5.2",
        sentence: "The input for the algorithm MUST be limited to the IPv4 address; the IPv6 \
                   prefix (denoted Pref64::/n) used in the IPv6 representations; and, \
                   optionally, a set of stable parameters …",
        level: Level::Must,
        script: same_input_same_output,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.2-own-prefixes",
        title: "The configured prefixes are used, all of them, and not the Well-Known Prefix",
        section: "5.2",
        sentence: "If one or more Pref64::/n are configured in the DNS64 through any means …, \
                   the default algorithm MUST use these prefixes (and not use the Well-Known \
                   Prefix).",
        level: Level::Must,
        needs: &[Need::Zone, Need::OwnPrefix],
        script: own_prefixes_are_used,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.2-well-known-prefix",
        title: "With the Well-Known Prefix, 1.2.3.4 becomes 64:ff9b::102:304",
        section: "5.2",
        sentence: "If no prefix is available, the algorithm MUST use the Well-Known Prefix \
                   64:ff9b::/96 defined in [RFC6052] to represent the IPv4 unicast address \
                   range.",
        level: Level::Must,
        needs: &[Need::Zone, Need::WellKnownPrefix],
        script: well_known_prefix_is_used,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.2-algorithm",
        title: "Addresses are synthesized as in RFC 6052 §2 for any octets",
        section: "5.2",
        sentence: "A DNS64 MUST support the algorithm for generating IPv6 representations of \
                   IPv4 addresses defined in Section 2 of [RFC6052]. Moreover, the \
                   aforementioned algorithm MUST be the default algorithm used by the DNS64.",
        level: Level::Must,
        script: algorithm_is_that_of_rfc6052,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-a-records",
        title: "A records are returned unchanged, even after synthesis from them",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: a_records_are_unchanged,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-a-below-alias",
        title: "A queries for an alias get the alias and the A record at its end",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: a_below_an_alias_is_unchanged,
        ..RFC6147
    },
];

fn a_records_can_be_derived(t: &mut Trial<'_>) -> Judged {
    let name = t.name("v4-9-10-11-12.v4-9-10-11-13.v4-130-129-128-127.v4-223-255-254-253");
    let mut a: Vec<Ipv4Addr> =
        t.ask(&Message::query(&name, Rtype::A))?.answer.iter().filter_map(Record::ipv4).collect();
    expect(a.len() == 4, || format!("there are {} A records, not 4", a.len()))?;
    a.sort_unstable();
    let found = ipv6(&t.ask(&Message::query(&name, Rtype::AAAA))?);
    for prefix in t.subject().prefixes {
        let mut derived: Vec<Ipv4Addr> =
            found.iter().filter_map(|address| prefix.embedded(*address)).collect();
        derived.sort_unstable();
        expect(derived == a, || {
            format!("with {prefix}, {derived:?} is derived from the AAAA records, not {a:?}")
        })?;
    }
    Ok(())
}

fn same_input_same_output(t: &mut Trial<'_>) -> Judged {
    let names = ["v4-1-2-3-4", "v4-1-2-3-4.txt", "cname.v4-1-2-3-4"].map(|labels| t.name(labels));
    let mut first = None;
    // Each name is queried twice, because the second answer may come from a cache.
    for name in names.iter().chain(&names) {
        let mut found = ipv6(&t.ask(&Message::query(name, Rtype::AAAA))?);
        expect(!found.is_empty(), || "there are no AAAA records".into())?;
        found.sort_unstable();
        let first = first.get_or_insert_with(|| found.clone());
        expect(*first == found, || {
            format!("1.2.3.4 became {first:?} for one name and {found:?} for another one")
        })?;
    }
    Ok(())
}

fn own_prefixes_are_used(t: &mut Trial<'_>) -> Judged {
    if t.subject().prefixes.iter().any(|prefix| prefix.is_well_known()) {
        return Err(Fault::NotTried("the Well-Known Prefix is among the server's prefixes".into()));
    }
    synthesized(t, "v4-1-2-3-4", &["1.2.3.4"]).map(drop)
}

fn well_known_prefix_is_used(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("v4-1-2-3-4")?;
    let wanted: Ipv6Addr = "64:ff9b::102:304".parse().expect("it is an address");
    expect(ipv6(&reply).contains(&wanted), || format!("{wanted} is not in the answer"))
}

fn algorithm_is_that_of_rfc6052(t: &mut Trial<'_>) -> Judged {
    for v4 in ["1.2.3.4", "9.0.0.1", "130.129.128.127", "223.255.254.253"] {
        synthesized(t, &format!("v4-{}", v4.replace('.', "-")), &[v4])?;
    }
    Ok(())
}

fn a_records_are_unchanged(t: &mut Trial<'_>) -> Judged {
    let name = t.name("v4-1-2-3-4.v4-8-8-4-4.ttl-200");
    for before in [None, Some(Rtype::AAAA)] {
        if let Some(qtype) = before {
            t.ask(&Message::query(&name, qtype))?;
        }
        let reply = t.ask(&Message::query(&name, Rtype::A))?;
        reply.has_a(&[Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::new(8, 8, 4, 4)])?;
        reply.lacks(Rtype::AAAA)?;
        is_near(reply.ttl(Rtype::A)?, 200)?;
    }
    Ok(())
}

fn a_below_an_alias_is_unchanged(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = t.look_up("cname.v4-1-2-3-4", Rtype::A)?;
    reply.has_a(&[Ipv4Addr::new(1, 2, 3, 4)])?;
    expect(reply.answers(Rtype::CNAME).any(|record| record.owner == name), || {
        format!("there is no CNAME record of {name}")
    })
}
