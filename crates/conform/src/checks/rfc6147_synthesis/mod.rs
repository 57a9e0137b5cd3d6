//! RFC 6147 §5.1 to §5.2: when AAAA records are made of A records, what they look like, and what
//! else is in the answer.
//!
//! Each file has the checks of some sections, in the RFC's order:
//!
//! | file | sections |
//! |---|---|
//! | `native` | 5.1 (which queries), 5.1.1 (AAAA records exist) |
//! | `failures` | 5.1.2 (errors), 5.1.3 (timeouts) |
//! | `excluded` | 5.1.4 (AAAA records that do not count) |
//! | `aliases` | 5.1.5 (CNAME and DNAME) |
//! | `made` | 5.1.6 (which data), 5.1.7 (fields and TTL), 5.1.8 (in parallel) |
//! | `addresses` | 5.2 (the IPv6 representation), 5.3.3 as far as A records go |

mod addresses;
mod aliases;
mod excluded;
mod failures;
mod made;
mod native;

use std::iter;
use std::net::Ipv6Addr;

use domain::base::iana::Rtype;

use crate::check::{Check, Level, Need};
use crate::label::{self, Behaviour};
use crate::message::{Message, Name, Record};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

pub(super) const CHECKS: &[&[Check]] = &[
    native::CHECKS,
    failures::CHECKS,
    excluded::CHECKS,
    aliases::CHECKS,
    made::CHECKS,
    addresses::CHECKS,
];

/// What most checks of this folder have in common; each fills in the rest.
const RFC6147: Check = Check {
    id: "",
    title: "",
    rfc: 6147,
    section: "",
    sentence: "",
    level: Level::Says,
    needs: &[Need::Zone],
    contradicts: None,
    script: |_| Err(Fault::NotTried("the check has no script".into())),
};

/// The label of [`NATIVE`].
const NATIVE_LABEL: &str = "v6-26000001000000000000000000000053";
/// An address that a host has of its own: global, in no exclusion set, in no prefix of a DNS64.
const NATIVE: Ipv6Addr = Ipv6Addr::new(0x2600, 1, 0, 0, 0, 0, 0, 0x53);

/// Asks for AAAA of a new name with these labels, and wants exactly the addresses that are made of
/// `v4`: each address once for each prefix of the server.
fn synthesized(t: &mut Trial<'_>, labels: &str, v4: &[&str]) -> Judged<(Name, Message)> {
    let (name, reply) = t.aaaa(labels)?;
    reply.has_aaaa(&all_embedded(t, v4))?;
    Ok((name, reply))
}

/// What is made of these IPv4 addresses, with each prefix of the server.
fn all_embedded(t: &Trial<'_>, v4: &[&str]) -> Vec<Ipv6Addr> {
    v4.iter().flat_map(|v4| t.embedded(v4)).collect()
}

/// The addresses of the AAAA records in the answer section.
fn ipv6(reply: &Message) -> Vec<Ipv6Addr> {
    reply.answer.iter().filter_map(Record::ipv6).collect()
}

/// The TTL is `wanted`, or up to 2 s less: time passes between the server's upstream and the check.
fn is_near(ttl: u32, wanted: u32) -> Judged {
    expect((wanted.saturating_sub(2)..=wanted).contains(&ttl), || {
        format!("the TTL is {ttl} s, not {wanted} s")
    })
}

/// What the labels of a name say.
fn behaviour(t: &Trial<'_>, name: &Name) -> Behaviour {
    let zone = t.subject().zone.expect("all checks of this folder that use names need a zone");
    label::read(name, zone).map(|place| place.behaviour).unwrap_or_default()
}

/// All names from `name` to the end of its aliases.
fn way(t: &Trial<'_>, name: &Name) -> Vec<Name> {
    let target = |name: &Name| Some(behaviour(t, name).alias?.target().clone());
    // No check here has as many aliases; it ends a loop.
    iter::successors(Some(name.clone()), target).take(20).collect()
}

/// The name at the end of the aliases of `name`.
fn end(t: &Trial<'_>, name: &Name) -> Name {
    way(t, name).pop().unwrap_or_else(|| name.clone())
}

/// All records of this type in the answer are `owner`'s.
fn belong_to(reply: &Message, rtype: Rtype, owner: &Name) -> Judged {
    reply.answers(rtype).try_for_each(|record| {
        expect(record.owner == *owner, || {
            format!("{} is the owner of an {rtype} record, not {owner}", record.owner)
        })
    })
}
