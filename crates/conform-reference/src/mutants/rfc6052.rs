//! Mutants for the checks in `rfc6052`, which cover embedded addresses.

use std::net::Ipv4Addr;

use conform::message::{Message, Record, name};
use domain::base::iana::Rtype;
use domain::base::name::ToLabelIter;

use crate::mutant::{Mutant, hears, replies, rule};

pub(super) const MUTANTS: &[Mutant] = &[
    replies("well-known-prefix-mistyped", "rfc6052-2.1-well-known", |_, reply| {
        each_aaaa(reply, |octets| octets[3] ^= 1);
    }),
    replies("prefix-by-address", "rfc6052-2.2-one-prefix", |_, reply| {
        each_aaaa(reply, |octets| octets[3] ^= octets.iter().fold(0, |all, octet| all ^ octet) & 1);
    }),
    replies("embedded-in-host-order", "rfc6052-2.2-length-32", |_, reply| {
        each_aaaa(reply, |octets| octets[4..8].reverse());
    }),
    replies("octet-u-used-40", "rfc6052-2.2-length-40", close_gap),
    replies("octet-u-used-48", "rfc6052-2.2-length-48", close_gap),
    replies("octet-u-used-56", "rfc6052-2.2-length-56", close_gap),
    replies("octet-u-used-64", "rfc6052-2.2-length-64", close_gap),
    replies("octets-swapped-96", "rfc6052-2.2-length-96", |_, reply| {
        each_aaaa(reply, |octets| octets.swap(14, 15));
    }),
    replies("octet-u-set", "rfc6052-2.2-octet-u", |_, reply| {
        each_aaaa(reply, |octets| octets[8] = 2);
    }),
    replies("suffix-set", "rfc6052-2.2-suffix", |_, reply| {
        each_aaaa(reply, |octets| octets[15] = 1);
    }),
    hears("a-octets-reversed", "rfc6052-2.2-most-significant-first", |reply| {
        each_a(reply, |octets| octets.reverse());
    }),
    hears("only-first-a-embedded", "rfc6052-2.3-every-address", |reply| {
        let mut seen = false;
        reply
            .answer
            .retain(|record| record.rtype != Rtype::A || !std::mem::replace(&mut seen, true));
    }),
    hears("octet-255-is-254", "rfc6052-2.3-extreme-octets", |reply| {
        each_a(reply, |octets| {
            for octet in octets.iter_mut().filter(|octet| **octet == 255) {
                *octet = 254;
            }
        });
    }),
    replies("pointer-of-another-address", "rfc6052-2.3-extraction", |query, reply| {
        if let Some(first) = reply.answer.iter_mut().find(|record| record.rtype == Rtype::PTR)
            && is_reverse(query)
            && let Some(target) = first.target()
        {
            let zone = target.iter_labels().skip(1);
            let text: Vec<String> = zone.map(ToString::to_string).collect();
            first.data = name(&format!("ptr-150-71-38-9.{}", text.join("."))).as_slice().to_vec();
        }
    }),
    replies("pointer-with-suffix-denied", "hardening-reverse-suffix", |query, reply| {
        // The last four bits of the address are the first label of the name.
        let ends_in_one = query.question().is_some_and(|q| q.name.as_slice().starts_with(b"\x011"));
        if is_reverse(query) && ends_in_one {
            reply.answer.clear();
        }
    }),
    replies("vector-off-by-one", "rfc6052-2.4-vectors", |_, reply| {
        each_aaaa(reply, |octets| {
            for octet in octets.iter_mut().filter(|octet| **octet == 33) {
                *octet = 34;
            }
        });
    }),
    rule("private-in-well-known-prefix", "rfc6052-3.1-private", |rules| {
        rules.leaves_non_global = false;
    }),
    rule("special-in-well-known-prefix", "rfc6052-3.1-special", |rules| {
        rules.leaves_non_global = false;
    }),
    rule("shared-in-well-known-prefix", "rfc6052-3.1-shared", |rules| {
        rules.leaves_non_global = false;
    }),
    hears("one-private-address-spoils-all", "rfc6052-3.1-mixture", |reply| {
        if reply.answer.iter().any(|r| r.ipv4().is_some_and(|v4| v4.is_private())) {
            reply.answer.retain(|record| record.rtype != Rtype::A);
        }
    }),
    replies("private-denied-without-soa", "hardening-non-global-nodata", |_, reply| {
        reply.authority.clear();
    }),
    hears("ranges-too-wide", "rfc6052-3.4-neighbours", |reply| {
        reply.answer.retain(|r| r.ipv4().is_none_or(|v4| v4.octets()[0] != 172));
    }),
    hears("private-never-embedded", "rfc6052-3.4-private", |reply| {
        reply.answer.retain(|r| r.ipv4().is_none_or(|v4| !v4.is_private()));
    }),
    replies("mapped-beside", "rfc6052-4.2-mapped", |_, reply| {
        let first = reply.answer.iter().find(|record| record.rtype == Rtype::AAAA).cloned();
        reply.answer.extend(first.map(|record| {
            let mapped = Ipv4Addr::new(1, 2, 3, 4).to_ipv6_mapped();
            Record::aaaa(record.owner, record.ttl, mapped)
        }));
    }),
];

fn each_aaaa(reply: &mut Message, change: fn(&mut [u8])) {
    let records = reply.answer.iter_mut().filter(|record| record.ipv6().is_some());
    records.for_each(|record| change(&mut record.data));
}

fn each_a(reply: &mut Message, change: fn(&mut [u8])) {
    let records = reply.answer.iter_mut().filter(|record| record.ipv4().is_some());
    records.for_each(|record| change(&mut record.data));
}

/// Moves the octets after octet "u" one octet to the left, as if octet "u" did not exist.
fn close_gap(_: &Message, reply: &mut Message) {
    each_aaaa(reply, |octets| {
        octets[8..].rotate_left(1);
    });
}

fn is_reverse(query: &Message) -> bool {
    query.question().is_some_and(|q| q.qtype == Rtype::PTR && q.name.ends_with(&name("ip6.arpa")))
}
