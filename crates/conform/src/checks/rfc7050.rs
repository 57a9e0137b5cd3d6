//! RFC 7050 and RFC 8880: the name ipv4only.arpa, by which hosts discover the prefix, and the answers that a DNS64
//! server must give without an upstream query.
//!
//! RFC 8880 §7.1 updates RFC 7050 §5, which prohibited any special treatment of the name. If a check depends on
//! upstream queries, it uses a type or a name that is new to every cache.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Duration;

use domain::base::iana::Rtype;

use super::rfc6052::{addresses, apart, holds, list, pointer};
use crate::check::{Check, Level, Need};
use crate::expected::Prefix;
use crate::label;
use crate::message::{Message, Name, Record, name, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

/// Name by which hosts discover the prefix.
const NAME: &str = "ipv4only.arpa";
/// Addresses of ipv4only.arpa (RFC 7050 §2.2).
const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
/// The in-addr.arpa names of the addresses of ipv4only.arpa.
const REVERSE: [&str; 2] = ["170.0.0.192.in-addr.arpa", "171.0.0.192.in-addr.arpa"];
/// Types for which ipv4only.arpa has no records. No server synthesizes records of these types.
const OTHER_TYPES: [Rtype; 4] = [Rtype::MX, Rtype::TXT, Rtype::SRV, Rtype::HTTPS];

const GENERATES: &str = "DNS64 recursive resolvers MUST generate the 192.0.0.170 and 192.0.0.171 \
    responses for IPv4 address queries (DNS qtype \"A\"), the appropriate synthesized IPv6 address \
    record responses for IPv6 address queries (DNS qtype \"AAAA\"), and a negative (\"no error no \
    answer\") response for all other query types except DS.";

const AUTHORITATIVE: &str = "DNS64 recursive resolvers MUST act as authoritative for this zone, by \
    generating immediate responses for all queries for 'ipv4only.arpa' (and any subdomain of \
    'ipv4only.arpa'), with the one exception of queries for the DS record.";

const BELOW: &str = "For all subdomains of 'ipv4only.arpa', DNS64 recursive resolvers MUST \
    generate immediate NXDOMAIN responses.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc7050-3-positive",
        title: "ipv4only.arpa has AAAA records",
        rfc: 7050,
        section: "3",
        sentence: "A DNS reply with one or more AAAA resource records indicates that the access \
                   network is utilizing IPv6 address synthesis.",
        level: Level::Says,
        needs: &[],
        contradicts: None,
        script: positive,
    },
    Check {
        id: "rfc7050-3-locations",
        title: "The AAAA records of ipv4only.arpa hold a well-known address at a standard position",
        rfc: 7050,
        section: "3",
        sentence: "If the well-known IPv4 addresses are not found within the standard locations \
                   […] the Pref64::/n cannot be determined and the heuristic procedure has failed.",
        level: Level::Says,
        needs: &[],
        contradicts: None,
        script: locations,
    },
    Check {
        id: "rfc7050-5-several",
        title: "ipv4only.arpa shows each of several prefixes",
        rfc: 7050,
        section: "5",
        sentence: "If the network operator would like nodes to utilize multiple Pref64::/n \
                   prefixes, the operator needs to configure DNS64 servers to respond with \
                   multiple synthetic AAAA records.",
        level: Level::Says,
        needs: &[],
        contradicts: None,
        script: several,
    },
    Check {
        id: "rfc7050-5-same-prefix",
        title: "The prefixes of ipv4only.arpa are those of other names",
        rfc: 7050,
        section: "5",
        sentence: "Besides choosing how many Pref64::/n prefixes to respond and what TTL to use, \
                   DNS64 servers MUST NOT interfere with or perform other special procedures for \
                   the queries related to the well-known name.",
        level: Level::Must,
        needs: &[Need::Zone],
        contradicts: None,
        script: same_prefix,
    },
    Check {
        id: "hardening-ipv4only-ttl",
        title: "The AAAA records of ipv4only.arpa last longer than ten seconds",
        rfc: 0,
        section: "",
        sentence: "Hosts repeat the discovery ten seconds before the TTL expires (RFC 7050 §3); \
            with a shorter TTL they would repeat it continuously.",
        level: Level::Hardening,
        needs: &[],
        contradicts: None,
        script: lasting,
    },
    Check {
        id: "rfc8880-7.1-a",
        title: "ipv4only.arpa has the A records 192.0.0.170 and 192.0.0.171",
        rfc: 8880,
        section: "7.1",
        sentence: GENERATES,
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: |t| ask(t, NAME, Rtype::A)?.has_a(&WELL_KNOWN),
    },
    Check {
        id: "rfc8880-7.1-aaaa",
        title: "ipv4only.arpa has AAAA records for both addresses below each prefix, and no others",
        rfc: 8880,
        section: "7.1",
        sentence: GENERATES,
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: |t| ask(t, NAME, Rtype::AAAA)?.has_aaaa(&synthesized(t)),
    },
    Check {
        id: "rfc8880-7.1-nodata",
        title: "ipv4only.arpa has no records of other types",
        rfc: 8880,
        section: "7.1",
        sentence: GENERATES,
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: nothing_else,
    },
    Check {
        id: "rfc8880-7.1-letter-case",
        title: "ipv4only.arpa is recognized in any letter case",
        rfc: 8880,
        section: "7.1",
        sentence: "All DNS64 recursive resolvers MUST recognize 'ipv4only.arpa' (and all of its \
                   subdomains) as special",
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: letter_case,
    },
    Check {
        id: "rfc8880-7.1-every-query",
        title: "ipv4only.arpa is also answered over TCP and without EDNS",
        rfc: 8880,
        section: "7.1",
        sentence: AUTHORITATIVE,
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: every_query,
    },
    Check {
        id: "rfc8880-7.1-do",
        title: "ipv4only.arpa is also answered for clients that set DO",
        rfc: 8880,
        section: "7.1",
        sentence: GENERATES,
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: |t| ask_with(t, Rtype::AAAA, dnssec_ok)?.has_aaaa(&synthesized(t)),
    },
    Check {
        id: "rfc8880-7.1-cd-do",
        title: "ipv4only.arpa is answered for clients that validate (CD and DO)",
        rfc: 8880,
        section: "7.1",
        sentence: AUTHORITATIVE,
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: client_validates,
    },
    Check {
        id: "hardening-ipv4only-cd",
        title: "ipv4only.arpa also has its AAAA records for clients that set CD without DO",
        rfc: 0,
        section: "",
        sentence: "Hosts that discover the prefix must not set CD (RFC 7050 §3), but RFC 8880 §7.1 \
            has no exception for those that do, and no signature is invalidated: the zone has none.",
        level: Level::Hardening,
        needs: &[],
        contradicts: None,
        script: |t| {
            ask_with(t, Rtype::AAAA, |query| query.flags.cd = true)?.has_aaaa(&synthesized(t))
        },
    },
    Check {
        id: "rfc8880-5-not-authentic",
        title: "AAAA records of ipv4only.arpa have neither AD nor signatures",
        rfc: 8880,
        section: "5",
        sentence: "The path from the DNS64 recursive resolver to the ultimate client (queries for \
                   IPv6 address records) *cannot* be protected by DNSSEC because the DNS64 \
                   recursive resolver is synthesizing IPv6 address answers and does not possess \
                   the DNSSEC secret key required to sign those answers.",
        level: Level::Says,
        needs: &[],
        contradicts: None,
        script: not_authentic,
    },
    Check {
        id: "rfc8880-7.1-asks-nobody",
        title: "No upstream query is sent for ipv4only.arpa",
        rfc: 8880,
        section: "7.1",
        sentence: "All DNS64 recursive resolvers MUST recognize 'ipv4only.arpa' (and all of its \
                   subdomains) as special, and they MUST NOT attempt to look up NS records for \
                   'ipv4only.arpa' or otherwise query authoritative name servers in an attempt to \
                   resolve this name.",
        level: Level::Must,
        needs: &[Need::View, Need::Everything],
        contradicts: None,
        script: asks_nobody,
    },
    Check {
        id: "rfc8880-7.1-ds",
        title: "The DS record of ipv4only.arpa is resolved like any other",
        rfc: 8880,
        section: "7.1",
        sentence: "Queries for the DS record are resolved the usual way to allow a client to \
                   securely verify that the 'ipv4only.arpa' zone has an insecure delegation.",
        level: Level::Says,
        needs: &[Need::View, Need::Everything],
        contradicts: None,
        script: delegation_signer,
    },
    Check {
        id: "rfc8880-7.1-below",
        title: "Names below ipv4only.arpa do not exist",
        rfc: 8880,
        section: "7.1",
        sentence: BELOW,
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: below,
    },
    Check {
        id: "rfc8880-7.1-below-asks-nobody",
        title: "No upstream query is sent for names below ipv4only.arpa",
        rfc: 8880,
        section: "7.1",
        sentence: BELOW,
        level: Level::Must,
        needs: &[Need::View, Need::Everything],
        contradicts: None,
        script: below_asks_nobody,
    },
    Check {
        id: "rfc2308-3-ipv4only-soa",
        title: "Denials of the zone ipv4only.arpa have a SOA record",
        rfc: 2308,
        section: "3",
        sentence: "Name servers authoritative for a zone MUST include the SOA record of the zone \
                   in the authority section of the response when reporting an NXDOMAIN or \
                   indicating that no data of the requested type exists.",
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: denials_have_soa,
    },
    Check {
        id: "hardening-ipv4only-lookalike",
        title: "A name that only begins with ipv4only.arpa is not special",
        rfc: 0,
        section: "",
        sentence: "The name ipv4only.arpa and the names below it are special (RFC 8880 §7.1), but \
            not every name that contains its labels.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: lookalike,
    },
    Check {
        id: "rfc8880-7.2-not-special",
        title: "170.0.0.192.in-addr.arpa is resolved like any other name",
        rfc: 8880,
        section: "7.2",
        sentence: "Recursive resolvers SHOULD NOT recognize these two reverse mapping names as \
                   special and SHOULD NOT, by default, give them any special treatment.",
        level: Level::Should,
        needs: &[Need::Zone, Need::Everything],
        contradicts: Some("hardening-ipv4only-reverse"),
        script: reverse_is_not_special,
    },
    Check {
        id: "hardening-ipv4only-reverse",
        title: "170.0.0.192.in-addr.arpa is ipv4only.arpa, whatever the upstream returns",
        rfc: 0,
        section: "",
        sentence: "The name has one fixed record (RFC 8880 §7.2). A server that answers the \
            forward name, and the ip6.arpa names of its addresses (§7.2.1), without upstream \
            queries can do the same here, and saves load on the servers of in-addr.arpa.",
        level: Level::Hardening,
        needs: &[Need::Zone, Need::Everything],
        contradicts: Some("rfc8880-7.2-not-special"),
        script: reverse_is_fixed,
    },
    Check {
        id: "rfc8880-7.2-one-record",
        title: "170.0.0.192.in-addr.arpa has no records of other types",
        rfc: 8880,
        section: "7.2",
        sentence: "The name '170.0.0.192.in-addr.arpa' is defined, by IETF specification \
                   [RFC7050], to have only one DNS record, type PTR, with rdata 'ipv4only.arpa'.",
        level: Level::Says,
        needs: &[Need::Everything],
        contradicts: None,
        script: reverse_has_nothing_else,
    },
    Check {
        id: "rfc8880-7.2-below",
        title: "Names below 170.0.0.192.in-addr.arpa do not exist",
        rfc: 8880,
        section: "7.2",
        sentence: "There are no subdomains of '170.0.0.192.in-addr.arpa' or \
                   '171.0.0.192.in-addr.arpa'. All names falling below these names are defined to \
                   be nonexistent (NXDOMAIN).",
        level: Level::Says,
        needs: &[Need::Everything],
        contradicts: None,
        script: reverse_has_nothing_below,
    },
    Check {
        id: "rfc8880-7.2.1-pointer",
        title: "The addresses of ipv4only.arpa have that name in ip6.arpa",
        rfc: 8880,
        section: "7.2.1",
        sentence: "In the case of synthesized IPv6 addresses corresponding to the IPv4 addresses \
                   192.0.0.170 and 192.0.0.171, the DNS64 recursive resolver does not issue \
                   reverse mapping queries for those IPv4 addresses, but instead […] immediately \
                   returns the answer 'ipv4only.arpa'.",
        level: Level::Says,
        needs: &[Need::Zone, Need::Everything],
        contradicts: None,
        script: pointers,
    },
    Check {
        id: "rfc8880-7.2.1-same-rdata",
        title: "A synthesized address has the name of its embedded IPv4 address",
        rfc: 8880,
        section: "7.2.1",
        sentence: "Generally, a DNS64 recursive resolver synthesizes appropriate 'ip6.arpa' \
                   reverse mapping PTR records by extracting the embedded IPv4 address […], \
                   performing a reverse mapping PTR query for that IPv4 address, and then \
                   synthesizing a corresponding 'ip6.arpa' reverse mapping PTR record containing \
                   the same rdata.",
        level: Level::Says,
        needs: &[Need::Zone, Need::Everything],
        contradicts: None,
        script: same_rdata,
    },
];

fn ask(t: &mut Trial<'_>, text: &str, qtype: Rtype) -> Judged<Message> {
    t.ask(&Message::query(&name(text), qtype))
}

/// Creates a query for ipv4only.arpa, changes it by the function `change`, and sends it.
fn ask_with(t: &mut Trial<'_>, qtype: Rtype, change: fn(&mut Message)) -> Judged<Message> {
    let mut query = Message::query(&name(NAME), qtype);
    change(&mut query);
    t.ask(&query)
}

fn dnssec_ok(query: &mut Message) {
    query.edns.iter_mut().for_each(|edns| edns.dnssec_ok = true);
}

/// Returns the IPv6 addresses synthesized from the two addresses of ipv4only.arpa with each prefix of the server.
fn synthesized(t: &Trial<'_>) -> Vec<Ipv6Addr> {
    let prefixes = t.subject().prefixes.iter();
    prefixes.flat_map(|prefix| WELL_KNOWN.map(|v4| prefix.with(v4))).collect()
}

fn positive(t: &mut Trial<'_>) -> Judged {
    let reply = ask(t, NAME, Rtype::AAAA)?;
    reply.has_rcode(rcode::NOERROR)?;
    expect(!addresses(&reply).is_empty(), || "ipv4only.arpa has no AAAA record".into())
}

fn locations(t: &mut Trial<'_>) -> Judged {
    let found = addresses(&ask(t, NAME, Rtype::AAAA)?);
    expect(!found.is_empty(), || "ipv4only.arpa has no AAAA record".into())?;
    for address in found {
        expect(WELL_KNOWN.iter().any(|v4| holds(address, *v4)), || {
            format!("{address} holds neither 192.0.0.170 nor 192.0.0.171 at a position of RFC 6052")
        })?;
    }
    Ok(())
}

fn several(t: &mut Trial<'_>) -> Judged {
    let prefixes = t.subject().prefixes;
    if prefixes.len() < 2 {
        return Err(Fault::NotOffered("one prefix only".into()));
    }
    let found = addresses(&ask(t, NAME, Rtype::AAAA)?);
    for prefix in prefixes {
        let shown = WELL_KNOWN.iter().any(|v4| found.contains(&prefix.with(*v4)));
        expect(shown, || format!("{prefix} is not shown; the addresses are {}", list(&found)))?;
    }
    Ok(())
}

/// Requires that the prefixes in the AAAA records of ipv4only.arpa are the prefixes with which the server synthesizes
/// addresses.
fn same_prefix(t: &mut Trial<'_>) -> Judged {
    let shown = addresses(&ask(t, NAME, Rtype::AAAA)?);
    let (_, reply) = t.aaaa("v4-1-2-3-4")?;
    let made = addresses(&reply);
    expect(!made.is_empty(), || "nothing is synthesized from 1.2.3.4".into())?;
    for prefix in t.subject().prefixes {
        let is_shown = WELL_KNOWN.iter().any(|v4| shown.contains(&prefix.with(*v4)));
        let is_used = made.contains(&prefix.with(Ipv4Addr::new(1, 2, 3, 4)));
        expect(is_shown == is_used, || {
            let (shown, made) = (list(&shown), list(&made));
            format!("{prefix} is used for one only: ipv4only.arpa is {shown}, 1.2.3.4 is {made}")
        })?;
    }
    Ok(())
}

fn lasting(t: &mut Trial<'_>) -> Judged {
    let ttl = ask(t, NAME, Rtype::AAAA)?.ttl(Rtype::AAAA)?;
    if ttl > 10 {
        return Ok(());
    }
    // The TTL may be the remainder of a longer TTL.
    thread::sleep(Duration::from_secs(u64::from(ttl.min(6)) + 1));
    let again = ask(t, NAME, Rtype::AAAA)?.ttl(Rtype::AAAA)?;
    expect(again > 10 || again < ttl, || format!("the TTL is {again} s"))
}

fn nothing_else(t: &mut Trial<'_>) -> Judged {
    for qtype in OTHER_TYPES {
        let reply = ask(t, NAME, qtype)?;
        reply.lacks(qtype)?;
        let found = reply.answer.len();
        expect(found == 0, || format!("the answer to {qtype} has {found} records"))?;
    }
    Ok(())
}

fn letter_case(t: &mut Trial<'_>) -> Judged {
    for text in ["IPv4only.arpa", "ipv4ONLY.ARPA"] {
        ask(t, text, Rtype::AAAA)?.has_aaaa(&synthesized(t))?;
        ask(t, text, Rtype::A)?.has_a(&WELL_KNOWN)?;
    }
    Ok(())
}

fn every_query(t: &mut Trial<'_>) -> Judged {
    let plain = ask_with(t, Rtype::AAAA, |query| query.edns = None)?;
    // Without EDNS a reply has at most 512 octets, which is sufficient for six prefixes. A truncated reply is accepted,
    // because this check does not concern the size.
    if !plain.flags.tc {
        plain.has_aaaa(&synthesized(t))?;
    }
    let reply = t.ask_tcp(&Message::query(&name(NAME), Rtype::AAAA))?;
    reply.has_aaaa(&synthesized(t))
}

/// For clients that set CD and DO, requires the A records of ipv4only.arpa, and either all of its AAAA records or none.
/// RFC 8880 §7.1 requires the AAAA records, but RFC 6147 §5.5 forbids synthesis for such clients.
fn client_validates(t: &mut Trial<'_>) -> Judged {
    let validates = |query: &mut Message| {
        query.flags.cd = true;
        dnssec_ok(query);
    };
    ask_with(t, Rtype::A, validates)?.has_a(&WELL_KNOWN)?;
    let reply = ask_with(t, Rtype::AAAA, validates)?;
    if addresses(&reply).is_empty() {
        return reply.lacks(Rtype::AAAA);
    }
    reply.has_aaaa(&synthesized(t))
}

fn not_authentic(t: &mut Trial<'_>) -> Judged {
    let reply = ask_with(t, Rtype::AAAA, |query| {
        query.flags.ad = true;
        dnssec_ok(query);
    })?;
    expect(!reply.flags.ad, || "AD is set".into())?;
    let signatures = reply.answers(Rtype::RRSIG).count();
    expect(signatures == 0, || format!("the answer has {signatures} RRSIG records"))
}

/// Returns a type for private use (RFC 6895 §3.1) for which the test authoritative server has received no query yet.
fn fresh_type(t: &Trial<'_>, of: &Name) -> Judged<Rtype> {
    let asked = t.asked(of)?;
    let is_fresh = |qtype: &u16| asked.iter().all(|question| question.qtype != *qtype);
    let begin = rand::random_range(65280..65535);
    (begin..65535)
        .chain(65280..begin)
        .find(is_fresh)
        .map(Rtype::from_int)
        .ok_or_else(|| Fault::NotTried("every private type was already queried upstream".into()))
}

fn asks_nobody(t: &mut Trial<'_>) -> Judged {
    let of = name(NAME);
    let qtype = fresh_type(t, &of)?;
    let reply = t.ask(&Message::query(&of, qtype))?;
    let asked = t.asked(&of)?;
    expect(asked.iter().all(|question| question.qtype != qtype.to_int()), || {
        format!("a query for ipv4only.arpa {qtype} was sent upstream")
    })?;
    reply.has_rcode(rcode::NOERROR)
}

fn delegation_signer(t: &mut Trial<'_>) -> Judged {
    let of = name(NAME);
    let count = |t: &Trial<'_>| -> Judged<usize> {
        Ok(t.asked(&of)?.iter().filter(|asked| asked.qtype == Rtype::DS.to_int()).count())
    };
    let before = count(t)?;
    let reply = t.ask(&Message::query(&of, Rtype::DS))?;
    reply.has_rcode(rcode::NOERROR)?;
    if count(t)? > before {
        return Ok(());
    }
    expect(before > 0, || "no query for ipv4only.arpa DS was sent upstream".into())?;
    Err(Fault::NotTried("the record was queried upstream before, so it may be cached".into()))
}

/// Returns a new name below ipv4only.arpa.
fn child() -> Name {
    name(&format!("x{:x}.{NAME}", rand::random::<u64>()))
}

fn below(t: &mut Trial<'_>) -> Judged {
    for qtype in [Rtype::A, Rtype::AAAA, Rtype::TXT] {
        t.ask(&Message::query(&child(), qtype))?.has_rcode(rcode::NXDOMAIN)?;
    }
    let deep = label::prepend("a", &label::prepend("b", &child()));
    t.ask(&Message::query(&deep, Rtype::AAAA))?.has_rcode(rcode::NXDOMAIN)
}

fn below_asks_nobody(t: &mut Trial<'_>) -> Judged {
    for qtype in [Rtype::A, Rtype::AAAA] {
        let of = child();
        let reply = t.ask(&Message::query(&of, qtype))?;
        expect(reply.rcode != rcode::SERVFAIL, || format!("{of} {qtype} is SERVFAIL"))?;
        let asked = t.asked(&of)?.len();
        expect(asked == 0, || format!("{asked} queries for {of} were sent upstream"))?;
    }
    Ok(())
}

fn denials_have_soa(t: &mut Trial<'_>) -> Judged {
    for (of, qtype) in [(name(NAME), Rtype::TXT), (child(), Rtype::A)] {
        let reply = t.ask(&Message::query(&of, qtype))?;
        let soa = reply.soa()?;
        expect(soa.is_some_and(|soa| of.ends_with(&soa.owner)), || {
            let found = soa.map_or_else(|| "none".into(), |soa| format!("one of {}", soa.owner));
            format!(
                "the denial of {of} {qtype} needs a SOA record of a zone above it, but has {found}"
            )
        })?;
    }
    Ok(())
}

fn lookalike(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("ipv4only.arpa.v4-1-2-3-4")?;
    reply.has_aaaa(&t.embedded("1.2.3.4"))
}

/// Returns the target of the PTR record that the test authoritative server has for an IPv4 address. For 1.2.3.4, the
/// target is `ptr-1-2-3-4.ZONE`.
fn ptr_target(t: &Trial<'_>, v4: Ipv4Addr) -> Judged<Name> {
    let zone = t.subject().zone.ok_or_else(|| Fault::NotTried("needs a zone".into()))?;
    Ok(label::prepend(&format!("ptr-{}", v4.to_string().replace('.', "-")), zone))
}

/// Requires that the PTR record of 192.0.0.170 has the target `wanted`.
fn reverse_is(t: &mut Trial<'_>, wanted: &Name) -> Judged {
    let reply = ask(t, REVERSE[0], Rtype::PTR)?;
    reply.has_rcode(rcode::NOERROR)?;
    let found: Vec<Name> = reply.answers(Rtype::PTR).filter_map(Record::target).collect();
    expect(found == [wanted.clone()], || {
        let found: Vec<String> = found.iter().map(Name::to_string).collect();
        format!("the name is {:?}, not {wanted}", found.join(", "))
    })
}

/// Requires that the PTR record of 192.0.0.170 is that of the test authoritative server. No other server has a record
/// with this target.
fn reverse_is_not_special(t: &mut Trial<'_>) -> Judged {
    let wanted = ptr_target(t, WELL_KNOWN[0])?;
    reverse_is(t, &wanted)
}

fn reverse_is_fixed(t: &mut Trial<'_>) -> Judged {
    reverse_is(t, &name(NAME))
}

fn reverse_has_nothing_else(t: &mut Trial<'_>) -> Judged {
    for (text, qtype) in REVERSE.into_iter().zip([Rtype::TXT, Rtype::AAAA]) {
        let reply = ask(t, text, qtype)?;
        reply.lacks(qtype)?;
        let found = reply.answer.len();
        expect(found == 0, || format!("the answer to {text} {qtype} has {found} records"))?;
    }
    Ok(())
}

fn reverse_has_nothing_below(t: &mut Trial<'_>) -> Judged {
    for text in REVERSE {
        let below = format!("x{:x}.{text}", rand::random::<u64>());
        ask(t, &below, Rtype::PTR)?.has_rcode(rcode::NXDOMAIN)?;
    }
    Ok(())
}

/// Returns the prefixes of the server. Requires that the server answers PTR queries for synthesized addresses with the
/// PTR records of the embedded IPv4 addresses in in-addr.arpa.
fn mapped_reverse(t: &mut Trial<'_>) -> Judged<Vec<Prefix>> {
    let prefixes = apart(t)?;
    let zone = t.subject().zone.cloned();
    let target = pointer(t, prefixes[0].with(Ipv4Addr::new(1, 2, 3, 4)))?;
    match (target, zone) {
        (Some(target), Some(zone)) if target.ends_with(&zone) => Ok(prefixes),
        _ => Err(Fault::NotOffered("no reverse mapping of synthesized addresses".into())),
    }
}

fn pointers(t: &mut Trial<'_>) -> Judged {
    for prefix in mapped_reverse(t)? {
        for v4 in WELL_KNOWN {
            points_to(t, prefix.with(v4), &name(NAME))?;
        }
    }
    Ok(())
}

fn same_rdata(t: &mut Trial<'_>) -> Judged {
    for prefix in mapped_reverse(t)? {
        for v4 in [Ipv4Addr::new(8, 8, 4, 4), Ipv4Addr::new(192, 0, 1, 170)] {
            points_to(t, prefix.with(v4), &ptr_target(t, v4)?)?;
        }
    }
    Ok(())
}

fn points_to(t: &mut Trial<'_>, address: Ipv6Addr, wanted: &Name) -> Judged {
    let target = pointer(t, address)?;
    expect(target.as_ref() == Some(wanted), || {
        let target = target.map_or_else(|| "none".into(), |target| target.to_string());
        format!("the name of {address} is {target}, not {wanted}")
    })
}
