//! Mutants for the checks in `excluded`: AAAA records in excluded ranges.

use std::net::Ipv6Addr;

use conform::message::{Message, rcode};
use domain::base::iana::Rtype;

use super::common::{NATIVE, SYNTHETIC, add_aaaa, ipv6};
use crate::mutant::{Mutant, NO_HOOKS, hook, rule};
use crate::rules::Hooks;

pub(super) const MUTANTS: &[Mutant] = &[
    rule("nothing-excluded", "rfc6147-5.1.4-mapped-by-default", |rules| rules.excluded.clear()),
    // The one that is excluded by default comes first.
    rule("own-range-ignored", "rfc6147-5.1.4-own-range", |rules| rules.excluded.truncate(1)),
    hook(
        "excluded-taken-for-nxdomain",
        "rfc6147-5.1.4-only-excluded",
        Hooks { hears: Some(deny_excluded), ..NO_HOOKS },
    ),
    hook(
        "excluded-without-a-is-nxdomain",
        "rfc6147-5.1.4-only-excluded-no-a",
        Hooks { hears: Some(deny_excluded), ..NO_HOOKS },
    ),
    hook(
        "excluded-below-alias-is-nxdomain",
        "rfc6147-5.1.4-excluded-below-alias",
        Hooks {
            hears: Some(|reply| {
                if reply.answers(Rtype::CNAME).count() > 0 {
                    deny_excluded(reply);
                }
            }),
            ..NO_HOOKS
        },
    ),
    hook(
        "made-beside-usable",
        "rfc6147-5.1.4-some-excluded",
        Hooks {
            reply: Some(|query, reply| {
                if ipv6(reply).contains(&NATIVE) {
                    add_aaaa(query, reply, SYNTHETIC);
                }
            }),
            ..NO_HOOKS
        },
    ),
    hook(
        "excluded-beside-usable",
        "rfc6147-5.1.4-never-returned",
        Hooks {
            reply: Some(|query, reply| {
                if ipv6(reply).contains(&NATIVE) {
                    add_aaaa(query, reply, Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x506, 0x708));
                }
            }),
            ..NO_HOOKS
        },
    ),
];

/// an answer with excluded addresses only becomes NXDOMAIN.
fn deny_excluded(reply: &mut Message) {
    let found = ipv6(reply);
    if !found.is_empty() && found.iter().all(|v6| v6.to_ipv4_mapped().is_some()) {
        reply.answer.clear();
        reply.rcode = rcode::NXDOMAIN;
    }
}
