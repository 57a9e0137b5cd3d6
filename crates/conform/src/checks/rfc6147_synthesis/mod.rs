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

use super::File;
use crate::check::{Check, Level, Need};
use crate::label::{self, Behaviour};
use crate::message::{Message, Name, Record};
use crate::mutants::Mutant;
use crate::trial::{Fault, Judge, Judged, Trial, expect};

pub(super) const FILE: File = File { checks: &ALL_CHECKS, mutants: &ALL_MUTANTS };

const CHECKS: &[&[Check]] = &[
    native::CHECKS,
    failures::CHECKS,
    excluded::CHECKS,
    aliases::CHECKS,
    made::CHECKS,
    addresses::CHECKS,
];

const MUTANTS: &[&[Mutant]] = &[
    native::MUTANTS,
    failures::MUTANTS,
    excluded::MUTANTS,
    aliases::MUTANTS,
    made::MUTANTS,
    addresses::MUTANTS,
];

const ALL_CHECKS: [Check; count(CHECKS)] = joined(CHECKS);
const ALL_MUTANTS: [Mutant; count(MUTANTS)] = joined(MUTANTS);

/// How many entries all lists have together.
const fn count<T>(lists: &[&[T]]) -> usize {
    let (mut sum, mut list) = (0, 0);
    while list < lists.len() {
        sum += lists[list].len();
        list += 1;
    }
    sum
}

/// All lists as one; `N` is their [`count`].
const fn joined<T: Copy, const N: usize>(lists: &[&[T]]) -> [T; N] {
    let mut all = [lists[0][0]; N];
    let (mut at, mut list) = (0, 0);
    while list < lists.len() {
        let mut entry = 0;
        while entry < lists[list].len() {
            all[at] = lists[list][entry];
            at += 1;
            entry += 1;
        }
        list += 1;
    }
    all
}

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
/// The address that mutants add to answers: 1.2.3.4 below the Well-Known Prefix.
const SYNTHETIC: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0x102, 0x304);

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

/// For mutants: adds an AAAA record with this address to the answer, owned by the name asked for.
fn add_aaaa(query: &Message, reply: &mut Message, address: Ipv6Addr) {
    if let Some(question) = query.question() {
        reply.answer.push(Record::aaaa(question.name.clone(), 300, address));
    }
}

/// For mutants: whether AAAA records are asked for.
fn wants_aaaa(query: &Message) -> bool {
    query.question().is_some_and(|question| question.qtype == Rtype::AAAA)
}

/// For mutants: an RCODE becomes another one.
fn recode(message: &mut Message, from: u16, to: u16) {
    if message.rcode == from {
        message.rcode = to;
    }
}
