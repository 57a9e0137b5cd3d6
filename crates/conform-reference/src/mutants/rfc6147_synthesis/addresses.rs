//! Mutants for the checks in `addresses`, which cover the IPv6 representation of IPv4 addresses,
//! and queries for A records.

use std::net::Ipv6Addr;

use conform::message::Message;
use domain::base::iana::Rtype;

use crate::mutant::{Mutant, replies};

pub(super) const MUTANTS: &[Mutant] = &[
    replies("last-octet-cleared", "rfc6147-5.2-reversible", |_, reply| {
        alter(reply, |v6| v6 & !0xff);
    }),
    replies("address-depends-on-name", "rfc6147-5.2-stable-input", |query, reply| {
        let sum = query
            .question()
            .map_or(0, |asked| asked.name.as_slice().iter().map(|octet| u128::from(*octet)).sum());
        alter(reply, |v6| v6 ^ sum);
    }),
    replies("well-known-prefix-for-all", "rfc6147-5.2-own-prefixes", |_, reply| {
        alter(reply, |v6| 0x64_ff9b << 96 | v6 & u128::from(u32::MAX));
    }),
    replies("other-prefix-for-all", "rfc6147-5.2-well-known-prefix", |_, reply| {
        alter(reply, |v6| 0x2001_0db8_0064 << 80 | v6 & u128::from(u32::MAX));
    }),
    replies("octets-swapped", "rfc6147-5.2-algorithm", |_, reply| {
        for record in reply.answer.iter_mut().filter(|one| one.rtype == Rtype::AAAA) {
            let half = record.data.len() / 2;
            record.data[half..].reverse();
        }
    }),
    replies("a-records-for-a-minute", "rfc6147-5.3.3-a-records", |_, reply| {
        for record in reply.answer.iter_mut().filter(|one| one.rtype == Rtype::A) {
            record.ttl = record.ttl.min(60);
        }
    }),
    replies("aliases-of-a-records-hidden", "rfc6147-5.3.3-a-below-alias", |_, reply| {
        reply.answer.retain(|one| one.rtype != Rtype::CNAME);
    }),
];

/// Changes the address in each AAAA record of the answer.
fn alter(reply: &mut Message, change: impl Fn(u128) -> u128) {
    for record in reply.answer.iter_mut().filter(|record| record.rtype == Rtype::AAAA) {
        if let Some(address) = record.ipv6() {
            record.data = Ipv6Addr::from(change(address.into())).octets().to_vec();
        }
    }
}
