//! Mutants for the checks in `excluded`, which cover AAAA records in excluded ranges.

use std::net::Ipv6Addr;

use conform::message::{Message, rcode};
use domain::base::iana::Rtype;

use super::common::{NATIVE, add_aaaa, ipv6};
use crate::mutant::{Mutant, hears, replies, rule};
use crate::mutants::common::SYNTHETIC;

pub(super) const MUTANTS: &[Mutant] = &[
    rule("nothing-excluded", "rfc6147-5.1.4-mapped-by-default", |rules| rules.excluded.clear()),
    // Only the first range remains, which is the default range.
    rule("own-range-ignored", "rfc6147-5.1.4-own-range", |rules| rules.excluded.truncate(1)),
    hears("excluded-taken-for-nxdomain", "rfc6147-5.1.4-only-excluded", deny_excluded),
    hears("excluded-without-a-is-nxdomain", "rfc6147-5.1.4-only-excluded-no-a", deny_excluded),
    hears("excluded-below-alias-is-nxdomain", "rfc6147-5.1.4-excluded-below-alias", |reply| {
        if reply.answers(Rtype::CNAME).count() > 0 {
            deny_excluded(reply);
        }
    }),
    replies("made-beside-usable", "rfc6147-5.1.4-some-excluded", |query, reply| {
        if ipv6(reply).contains(&NATIVE) {
            add_aaaa(query, reply, SYNTHETIC);
        }
    }),
    replies("excluded-beside-usable", "rfc6147-5.1.4-never-returned", |query, reply| {
        if ipv6(reply).contains(&NATIVE) {
            add_aaaa(query, reply, Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x506, 0x708));
        }
    }),
];

/// Changes an answer that contains only excluded addresses to NXDOMAIN.
fn deny_excluded(reply: &mut Message) {
    let found = ipv6(reply);
    if !found.is_empty() && found.iter().all(|v6| v6.to_ipv4_mapped().is_some()) {
        reply.answer.clear();
        reply.rcode = rcode::NXDOMAIN;
    }
}
