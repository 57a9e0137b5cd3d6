//! RFC 6052: conversion of an IPv4 address to an IPv6 address, for each of the six prefix lengths, and addresses that
//! the Well-Known Prefix must not represent.
//!
//! The positions of the four octets are listed here again, as in the RFC, so that an error in [`crate::expected`] is
//! detected.

use std::net::{Ipv4Addr, Ipv6Addr};

use domain::base::iana::Rtype;

use crate::check::{Check, Level, Need};
use crate::expected::{Prefix, WELL_KNOWN};
use crate::label;
use crate::message::{Message, Name, Record, name, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

/// For each prefix length, the positions of the IPv4 octets in a synthesized IPv6 address (RFC 6052 §2.2).
const PLACES: [(u8, [usize; 4]); 6] = [
    (32, [4, 5, 6, 7]),
    (40, [5, 6, 7, 9]),
    (48, [6, 7, 9, 10]),
    (56, [7, 9, 10, 11]),
    (64, [9, 10, 11, 12]),
    (96, [12, 13, 14, 15]),
];

/// Prefixes, each with the address in which 192.0.2.33 is embedded (RFC 6052 §2.4, table 1).
const VECTORS: [(&str, &str); 6] = [
    ("2001:db8::/32", "2001:db8:c000:221::"),
    ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
    ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
    ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
    ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
    ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
];

/// IPv4 addresses without symmetry: no octet occurs twice, and no octet is zero.
const ASYMMETRIC: [&str; 2] = ["9.38.71.150", "203.14.5.90"];

const NON_GLOBAL: &str = "The Well-Known Prefix MUST NOT be used to represent non-global IPv4 \
    addresses, such as those defined in [RFC1918] or listed in Section 3 of [RFC5735].";

const REPRESENTED: &str = "When these services are used, IPv6 nodes are addressed through standard \
    IPv6 addresses, while IPv4 nodes are represented by IPv4-converted IPv6 addresses, as \
    specified in Section 2.2.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6052-2.1-well-known",
        title: "The Well-Known Prefix is 64:ff9b::/96",
        rfc: 6052,
        section: "2.1",
        sentence: "This document reserves a \"Well-Known Prefix\" for use in an algorithmic \
                   mapping. The value of this IPv6 prefix is: 64:ff9b::/96",
        level: Level::Says,
        needs: &[Need::Zone, Need::WellKnownPrefix],
        contradicts: None,
        script: well_known,
    },
    Check {
        id: "rfc6052-2.2-one-prefix",
        title: "All names get addresses below the same prefixes",
        rfc: 6052,
        section: "2.2",
        sentence: "In these addresses, the prefix shall be either the \"Well-Known Prefix\" or a \
                   \"Network-Specific Prefix\" unique to the organization deploying the address \
                   translators.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: one_prefix,
    },
    Check {
        id: "rfc6052-2.2-length-32",
        title: "A /32 prefix holds the IPv4 address in bits 32 to 63",
        rfc: 6052,
        section: "2.2",
        sentence: "When the prefix is 32 bits long, the IPv4 address is encoded in positions 32 to \
                   63.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |t| encoded(t, 32),
    },
    Check {
        id: "rfc6052-2.2-length-40",
        title: "A /40 prefix holds the IPv4 address in bits 40 to 63 and 72 to 79",
        rfc: 6052,
        section: "2.2",
        sentence: "When the prefix is 40 bits long, 24 bits of the IPv4 address are encoded in \
                   positions 40 to 63, with the remaining 8 bits in position 72 to 79.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |t| encoded(t, 40),
    },
    Check {
        id: "rfc6052-2.2-length-48",
        title: "A /48 prefix holds the IPv4 address in bits 48 to 63 and 72 to 87",
        rfc: 6052,
        section: "2.2",
        sentence: "When the prefix is 48 bits long, 16 bits of the IPv4 address are encoded in \
                   positions 48 to 63, with the remaining 16 bits in position 72 to 87.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |t| encoded(t, 48),
    },
    Check {
        id: "rfc6052-2.2-length-56",
        title: "A /56 prefix holds the IPv4 address in bits 56 to 63 and 72 to 95",
        rfc: 6052,
        section: "2.2",
        sentence: "When the prefix is 56 bits long, 8 bits of the IPv4 address are encoded in \
                   positions 56 to 63, with the remaining 24 bits in position 72 to 95.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |t| encoded(t, 56),
    },
    Check {
        id: "rfc6052-2.2-length-64",
        title: "A /64 prefix holds the IPv4 address in bits 72 to 103",
        rfc: 6052,
        section: "2.2",
        sentence: "When the prefix is 64 bits long, the IPv4 address is encoded in positions 72 to \
                   103.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |t| encoded(t, 64),
    },
    Check {
        id: "rfc6052-2.2-length-96",
        title: "A /96 prefix holds the IPv4 address in bits 96 to 127",
        rfc: 6052,
        section: "2.2",
        sentence: "When the prefix is 96 bits long, the IPv4 address is encoded in positions 96 to \
                   127.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |t| encoded(t, 96),
    },
    Check {
        id: "rfc6052-2.2-octet-u",
        title: "Bits 64 to 71 are zero",
        rfc: 6052,
        section: "2.2",
        sentence: "Bits 64 to 71 of the address are reserved for compatibility with the host \
                   identifier format defined in the IPv6 addressing architecture [RFC4291]. These \
                   bits MUST be set to zero.",
        level: Level::Must,
        needs: &[Need::Zone],
        contradicts: None,
        script: octet_u,
    },
    Check {
        id: "rfc6052-2.2-most-significant-first",
        title: "The octets of the IPv4 address keep their order",
        rfc: 6052,
        section: "2.2",
        sentence: "The IPv4 address is encoded following the prefix, most significant bits first.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |t| ASYMMETRIC.iter().try_for_each(|v4| embeds(t, &[v4])),
    },
    Check {
        id: "rfc6052-2.2-suffix",
        title: "The bits after the IPv4 address are zero",
        rfc: 6052,
        section: "2.2",
        sentence: "In the other cases, the remaining bits of the address constitute the suffix. \
                   These bits are reserved for future extensions and SHOULD be set to zero.",
        level: Level::Should,
        needs: &[Need::Zone],
        contradicts: None,
        script: suffix,
    },
    Check {
        id: "rfc6052-2.3-every-address",
        title: "Each of several A records gives an address below each prefix",
        rfc: 6052,
        section: "2.3",
        sentence: "Concatenate the prefix, the 32 bits of the IPv4 address, and the suffix (if \
                   needed) to obtain a 128-bit address.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |t| embeds(t, &["1.2.3.4", "8.8.4.4", "9.9.9.9"]),
    },
    Check {
        id: "rfc6052-2.3-extreme-octets",
        title: "Octets of 0 and 255 are embedded unchanged",
        rfc: 6052,
        section: "2.3",
        sentence: "If the prefix length is less than 96 bits, insert the null octet \"u\" at the \
                   appropriate position (bits 64 to 71), thus causing the least significant octet \
                   to be excluded, as documented in Figure 1.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |t| {
            ["1.0.0.0", "1.0.0.255", "1.255.255.0", "223.255.255.254"]
                .iter()
                .try_for_each(|v4| embeds(t, &[v4]))
        },
    },
    Check {
        id: "rfc6052-2.3-extraction",
        title: "A reverse name below a prefix leads to its embedded IPv4 address",
        rfc: 6052,
        section: "2.3",
        sentence: "The IPv4 addresses are extracted from the IPv4-embedded IPv6 addresses \
                   according to the following algorithm […] remove the \"u\" octet to obtain a \
                   120-bit sequence […], then extract the 32 bits following the prefix.",
        level: Level::Says,
        needs: &[Need::Zone, Need::Everything],
        contradicts: None,
        script: |t| points(t, "9.38.71.150", 0),
    },
    Check {
        id: "hardening-reverse-suffix",
        title: "A reverse name leads to the IPv4 address for any suffix",
        rfc: 0,
        section: "",
        sentence: "RFC 6052 §2.2 requires translators to ignore a suffix that is not zero \
            (SHOULD). The same applies to reverse names: the packets are translated, so the \
            address has a name.",
        level: Level::Hardening,
        needs: &[Need::Zone, Need::Everything],
        contradicts: None,
        script: |t| points(t, "9.38.71.150", 1),
    },
    Check {
        id: "rfc6052-2.4-vectors",
        title: "192.0.2.33 is embedded as in table 1, below the prefix of this length",
        rfc: 6052,
        section: "2.4",
        sentence: "Examples of such representations are presented in Tables 1 and 2.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: vectors,
    },
    Check {
        id: "rfc6052-3.1-private",
        title: "The Well-Known Prefix is not used with private addresses (RFC 1918)",
        rfc: 6052,
        section: "3.1",
        sentence: NON_GLOBAL,
        level: Level::Must,
        needs: &[Need::Zone, Need::WellKnownPrefix],
        contradicts: None,
        script: |t| {
            left_out(
                t,
                &[
                    "10.0.0.1",
                    "10.255.255.254",
                    "172.16.0.1",
                    "172.31.255.254",
                    "192.168.0.1",
                    "192.168.255.254",
                ],
            )
        },
    },
    Check {
        id: "rfc6052-3.1-special",
        title: "The Well-Known Prefix is not used with special-use addresses (RFC 5735 §3)",
        rfc: 6052,
        section: "3.1",
        sentence: NON_GLOBAL,
        level: Level::Must,
        needs: &[Need::Zone, Need::WellKnownPrefix],
        contradicts: None,
        script: |t| {
            left_out(
                t,
                &[
                    "0.1.2.3",
                    "127.0.0.1",
                    "169.254.1.2",
                    "192.0.0.1",
                    "192.0.2.33",
                    "198.18.0.1",
                    "198.19.255.254",
                    "198.51.100.7",
                    "203.0.113.9",
                    "224.0.0.251",
                    "240.0.0.1",
                    "255.255.255.255",
                ],
            )
        },
    },
    Check {
        id: "rfc6052-3.1-shared",
        title: "The Well-Known Prefix is not used with shared addresses of providers (RFC 6598)",
        rfc: 6052,
        section: "3.1",
        sentence: NON_GLOBAL,
        level: Level::Must,
        needs: &[Need::Zone, Need::WellKnownPrefix],
        contradicts: None,
        script: |t| left_out(t, &["100.64.0.1", "100.100.1.2", "100.127.255.254"]),
    },
    Check {
        id: "rfc6052-3.1-mixture",
        title: "For global and private addresses, the Well-Known Prefix is used with the global \
            ones only",
        rfc: 6052,
        section: "3.1",
        sentence: NON_GLOBAL,
        level: Level::Must,
        needs: &[Need::Zone, Need::WellKnownPrefix],
        contradicts: None,
        script: mixture,
    },
    Check {
        id: "hardening-non-global-nodata",
        title: "A name with private addresses only gets NODATA with a SOA record",
        rfc: 0,
        section: "",
        sentence: "If nothing may be synthesized from the A records, the name has no AAAA records, \
            and the denial can be cached (RFC 2308 §5).",
        level: Level::Hardening,
        needs: &[Need::Zone, Need::WellKnownPrefix],
        contradicts: None,
        script: private_is_nodata,
    },
    Check {
        id: "rfc6052-3.4-neighbours",
        title: "The Well-Known Prefix is used with the global addresses next to special-use ones",
        rfc: 6052,
        section: "3.4",
        sentence: REPRESENTED,
        level: Level::Says,
        needs: &[Need::Zone, Need::WellKnownPrefix],
        contradicts: None,
        script: neighbours,
    },
    Check {
        id: "rfc6052-3.4-private",
        title: "A Network-Specific Prefix is also used with private addresses",
        rfc: 6052,
        section: "3.4",
        sentence: REPRESENTED,
        level: Level::Says,
        needs: &[Need::Zone, Need::OwnPrefix],
        contradicts: None,
        script: |t| embeds(t, &["10.1.2.3", "172.16.4.5", "192.168.6.7"]),
    },
    Check {
        id: "rfc6052-4.2-mapped",
        title: "No IPv4-mapped address (::ffff:0:0/96) is synthesized",
        rfc: 6052,
        section: "4.2",
        sentence: "We thus eliminated the first choice, i.e., decided to not reuse the IPv4-mapped \
                   prefix, ::ffff:0:0/96.",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: mapped,
    },
];

/// Returns the addresses of the AAAA records in the answer section.
pub(super) fn addresses(reply: &Message) -> Vec<Ipv6Addr> {
    reply.answer.iter().filter_map(Record::ipv6).collect()
}

/// Formats addresses as text for reports: a list, or "none".
pub(super) fn list(addresses: &[Ipv6Addr]) -> String {
    match addresses {
        [] => "none".into(),
        all => all.iter().map(Ipv6Addr::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the ip6.arpa name of an address (RFC 3596 §2.5).
pub(super) fn reverse(address: Ipv6Addr) -> Name {
    let bits = u128::from(address);
    let digits: String = (0..32).map(|n| format!("{:x}.", bits >> (4 * n) & 0xf)).collect();
    name(&format!("{digits}ip6.arpa"))
}

/// True if an IPv6 address contains the octets of the IPv4 address `v4` at the positions that RFC 6052 specifies for
/// one of the prefix lengths.
pub(super) fn holds(address: Ipv6Addr, v4: Ipv4Addr) -> bool {
    let octets = address.octets();
    let at = |places: [usize; 4]| places.map(|place| octets[place]) == v4.octets();
    octets[8] == 0 && PLACES.iter().any(|(_, places)| at(*places))
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().expect("addresses of checks are literals")
}

/// Returns the labels that define A records with these addresses.
fn with_a(v4: &[&str]) -> String {
    v4.iter().map(|v4| format!("v4-{}", v4.replace('.', "-"))).collect::<Vec<_>>().join(".")
}

/// Queries the AAAA records of a name with these IPv4 addresses. Requires exactly one synthesized address for each
/// combination of IPv4 address and prefix.
fn embeds(t: &mut Trial<'_>, v4: &[&str]) -> Judged {
    let (_, reply) = t.aaaa(&with_a(v4))?;
    let wanted: Vec<Ipv6Addr> = v4.iter().flat_map(|v4| t.embedded(v4)).collect();
    reply.has_aaaa(&wanted)
}

fn well_known(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("v4-8-8-4-4")?;
    reply.has_aaaa(&["64:ff9b::808:404".parse().expect("a literal")])
}

fn one_prefix(t: &mut Trial<'_>) -> Judged {
    ["1.2.3.4", "1.2.3.5", "8.8.4.4", "9.9.9.8", "203.14.5.90"]
        .iter()
        .try_for_each(|v4| embeds(t, &[v4]))
}

/// Returns the server's prefixes of this length, each with the positions of the IPv4 octets.
fn of_length(t: &Trial<'_>, len: u8) -> Vec<(Prefix, [usize; 4])> {
    let places = PLACES.into_iter().find(|(of, _)| *of == len);
    let prefixes = t.subject().prefixes.iter().filter(|prefix| prefix.length() == len);
    prefixes.filter_map(|prefix| Some((*prefix, places?.1))).collect()
}

/// Returns an IPv6 address with this prefix, and with the octets of the IPv4 address `v4` at these positions.
fn placed(prefix: Prefix, places: [usize; 4], v4: Ipv4Addr) -> Ipv6Addr {
    let mut octets = prefix.with(Ipv4Addr::UNSPECIFIED).octets();
    for (place, octet) in places.into_iter().zip(v4.octets()) {
        octets[place] = octet;
    }
    octets.into()
}

fn encoded(t: &mut Trial<'_>, len: u8) -> Judged {
    let prefixes = of_length(t, len);
    if prefixes.is_empty() {
        return Err(Fault::NotOffered(format!("no prefix of /{len}")));
    }
    for text in ASYMMETRIC {
        let (_, reply) = t.aaaa(&with_a(&[text]))?;
        let found = addresses(&reply);
        for (prefix, places) in &prefixes {
            let wanted = placed(*prefix, *places, v4(text));
            expect(found.contains(&wanted), || {
                let found = list(&found);
                format!("{text} below {prefix} is {wanted}, but the addresses are {found}")
            })?;
        }
    }
    Ok(())
}

fn octet_u(t: &mut Trial<'_>) -> Judged {
    for text in ASYMMETRIC.into_iter().chain(["126.255.255.254"]) {
        let (_, reply) = t.aaaa(&with_a(&[text]))?;
        let found = addresses(&reply);
        expect(!found.is_empty(), || format!("nothing is synthesized from {text}"))?;
        for address in found {
            let octet = address.octets()[8];
            expect(octet == 0, || {
                format!("{address}, synthesized from {text}, has {octet:#04x} in bits 64 to 71")
            })?;
        }
    }
    Ok(())
}

fn suffix(t: &mut Trial<'_>) -> Judged {
    let short: Vec<_> = PLACES
        .iter()
        .filter(|(len, _)| *len < 96)
        .flat_map(|(len, _)| of_length(t, *len))
        .collect();
    if short.is_empty() {
        return Err(Fault::NotOffered("no prefix shorter than /96: no suffix".into()));
    }
    let (_, reply) = t.aaaa(&with_a(&ASYMMETRIC[..1]))?;
    let found = addresses(&reply);
    for (prefix, places) in short {
        let wanted = placed(prefix, places, v4(ASYMMETRIC[0]));
        let end = places[3] + 1;
        let begins = |address: &&Ipv6Addr| address.octets()[..end] == wanted.octets()[..end];
        let made: Vec<Ipv6Addr> = found.iter().filter(begins).copied().collect();
        expect(!made.is_empty(), || {
            format!("no address begins with {wanted}; the addresses are {}", list(&found))
        })?;
        expect(made == [wanted], || {
            format!("below {prefix} the address with suffix zero is {wanted}, not {}", list(&made))
        })?;
    }
    Ok(())
}

/// Returns those prefixes of the server that do not overlap with any other prefix of the server. If prefixes overlap,
/// RFC 6052 does not specify to which of them a reverse name belongs.
pub(super) fn apart(t: &Trial<'_>) -> Judged<Vec<Prefix>> {
    let all = t.subject().prefixes;
    let bits = |prefix: &Prefix| u128::from(prefix.with(Ipv4Addr::UNSPECIFIED));
    let overlap = |one: &Prefix, other: &Prefix| {
        let shorter = one.length().min(other.length());
        one != other && (bits(one) ^ bits(other)) >> (128 - shorter) == 0
    };
    let alone = |one: &&Prefix| !all.iter().any(|other| overlap(one, other));
    let apart: Vec<Prefix> = all.iter().filter(alone).copied().collect();
    if apart.is_empty() {
        return Err(Fault::NotOffered("all prefixes are below each other".into()));
    }
    Ok(apart)
}

/// For each prefix, sends a PTR query for the IPv6 address that embeds the IPv4 address `text` and has the suffix
/// `suffix`. Requires the correct target: for 1.2.3.4, the test authoritative server returns `ptr-1-2-3-4.ZONE`.
fn points(t: &mut Trial<'_>, text: &str, suffix: u128) -> Judged {
    let Some(zone) = t.subject().zone.cloned() else {
        return Err(Fault::NotTried("needs a zone".into()));
    };
    let wanted = label::prepend(&format!("ptr-{}", text.replace('.', "-")), &zone);
    let mut prefixes = apart(t)?;
    prefixes.retain(|prefix| suffix == 0 || prefix.length() < 96);
    if prefixes.is_empty() {
        return Err(Fault::NotOffered("no prefix shorter than /96: no suffix".into()));
    }
    for prefix in prefixes {
        let address = prefix.with(v4(text));
        if pointer(t, address)?.is_none_or(|target| !target.ends_with(&zone)) {
            return Err(Fault::NotOffered(format!(
                "no reverse mapping by in-addr.arpa below {prefix}"
            )));
        }
        let address = Ipv6Addr::from(u128::from(address) | suffix);
        let target = pointer(t, address)?;
        expect(target.as_ref() == Some(&wanted), || {
            let target = target.map_or_else(|| "to no name".into(), |name| format!("to {name}"));
            format!("the reverse name of {address} leads {target}, not to {wanted}")
        })?;
    }
    Ok(())
}

/// Returns the target of the PTR record of an address. The record may be reached through an alias.
pub(super) fn pointer(t: &mut Trial<'_>, address: Ipv6Addr) -> Judged<Option<Name>> {
    let reply = t.ask(&Message::query(&reverse(address), Rtype::PTR))?;
    Ok(reply.answers(Rtype::PTR).find_map(Record::target))
}

/// Requires the correct bits after the prefix (the IPv4 address and the suffix) in the address synthesized from
/// 192.0.2.33. The correct bits are those in table 1 of RFC 6052 §2.4.
fn vectors(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("v4-192-0-2-33")?;
    let found = addresses(&reply);
    let mut tried = false;
    for own in t.subject().prefixes.iter().filter(|own| !own.is_well_known()) {
        for (prefix, address) in VECTORS {
            let prefix: Prefix = prefix.parse().expect("a literal");
            if prefix.length() != own.length() {
                continue;
            }
            let bits = |address: Ipv6Addr| u128::from(address);
            let network = |prefix: &Prefix| bits(prefix.with(Ipv4Addr::UNSPECIFIED));
            let behind = bits(address.parse().expect("a literal")) ^ network(&prefix);
            let wanted = Ipv6Addr::from(network(own) | behind);
            tried = true;
            expect(found.contains(&wanted), || {
                format!(
                    "192.0.2.33 below {own} is {wanted}, but the addresses are {}",
                    list(&found)
                )
            })?;
        }
    }
    let why = "64:ff9b::/96 must not be used with 192.0.2.33, although table 2 shows it (§3.1)";
    if tried { Ok(()) } else { Err(Fault::NotOffered(why.into())) }
}

/// Requires that no AAAA record with the Well-Known Prefix is synthesized from any of these IPv4 addresses.
fn left_out(t: &mut Trial<'_>, all: &[&str]) -> Judged {
    for text in all {
        let (_, reply) = t.aaaa(&with_a(&[text]))?;
        // A failure must not pass, although its reply contains no address either.
        reply.has_rcode(rcode::NOERROR)?;
        let made = WELL_KNOWN.with(v4(text));
        expect(!addresses(&reply).contains(&made), || {
            format!("{text}, which is not global, was synthesized as {made}")
        })?;
    }
    Ok(())
}

fn mixture(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("v4-10-0-0-1.v4-1-2-3-4.v4-192-168-7-7.v4-8-8-4-4")?;
    let wanted: Vec<Ipv6Addr> =
        ["1.2.3.4", "8.8.4.4"].iter().flat_map(|v4| t.embedded(v4)).collect();
    reply.has_aaaa(&wanted)
}

fn private_is_nodata(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("v4-10-0-0-1.v4-192-168-0-1")?;
    reply.has_nodata(Rtype::AAAA)?;
    expect(reply.soa()?.is_some(), || "the denial has no SOA record".into())
}

fn neighbours(t: &mut Trial<'_>) -> Judged {
    embeds(t, &["9.255.255.254", "11.0.0.1", "100.63.255.254", "100.128.0.1", "126.255.255.254"])?;
    embeds(t, &["169.253.255.254", "169.255.0.1", "172.15.255.254", "172.32.0.1"])?;
    embeds(t, &["192.0.1.1", "192.0.3.1", "192.167.255.254", "192.169.0.1"])?;
    embeds(t, &["198.17.255.254", "198.20.0.1", "198.51.99.254", "203.0.114.1", "223.255.255.254"])
}

fn mapped(t: &mut Trial<'_>) -> Judged {
    for text in ["1.2.3.4", "127.0.0.1"] {
        let (_, reply) = t.aaaa(&with_a(&[text]))?;
        for address in addresses(&reply) {
            expect(address.to_ipv4_mapped().is_none(), || {
                format!(
                    "{text} was synthesized as \
                {address}"
                )
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_the_octets_are_those_of_the_vectors() {
        for (prefix, address) in VECTORS {
            let prefix: Prefix = prefix.parse().unwrap();
            let address: Ipv6Addr = address.parse().unwrap();
            let (_, places) = PLACES.into_iter().find(|(len, _)| *len == prefix.length()).unwrap();
            assert_eq!(placed(prefix, places, v4("192.0.2.33")), address, "{prefix}");
            assert!(holds(address, v4("192.0.2.33")), "{prefix}");
            assert!(!holds(address, v4("192.0.2.34")), "{prefix}");
        }
    }

    #[test]
    fn the_reverse_name_of_an_address() {
        assert_eq!(
            reverse("64:ff9b::192.0.0.170".parse().unwrap()).to_string(),
            "a.a.0.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa"
        );
    }
}
