//! Mutants for the checks in `aliases`, which cover CNAME and DNAME records between the queried name and its addresses.

use conform::message::{Message, Name, Record, rcode};
use domain::base::iana::Rtype;

use super::common::{ipv6, recode};
use crate::mutant::{Mutant, hears, replies, rule};
use crate::mutants::common::wants;

pub(super) const MUTANTS: &[Mutant] = &[
    hears("alias-not-understood", "rfc6147-5.1.5-alias", |reply| clear_if(reply, Rtype::CNAME)),
    rule("aliases-hidden", "rfc6147-5.1.5-alias-shown", |rules| rules.shows_aliases = false),
    replies("later-aliases-hidden", "rfc6147-5.1.5-two-aliases", |query, reply| {
        let Some(asked) = query.question() else { return };
        reply.answer.retain(|record| record.rtype != Rtype::CNAME || record.owner == asked.name);
    }),
    rule("short-chains-only", "rfc6147-5.1.5-long-chain", |rules| rules.longest_chain = 4),
    rule("follows-nothing", "rfc6147-5.1.5-half-followed", |rules| rules.follows_aliases = false),
    hears("other-zones-unheard", "rfc6147-5.1.5-other-zone", |reply| {
        reply.answer.retain(|record| record.rtype == Rtype::CNAME || !is_other(record));
    }),
    replies("aliases-of-real-records-hidden", "rfc6147-5.1.5-real-wins", |_, reply| {
        reply.answer.retain(|record| record.rtype != Rtype::CNAME);
    }),
    rule("real-records-lose-below-alias", "rfc6147-5.1.5-real-wins", |rules| {
        rules.native_wins = false;
    }),
    replies("alias-to-nothing-is-nodata", "rfc6147-5.1.5-alias-to-nxdomain", |_, reply| {
        recode(reply, rcode::NXDOMAIN, rcode::NOERROR);
    }),
    replies("alias-to-nodata-is-servfail", "rfc6147-5.1.5-alias-to-nodata", |query, reply| {
        if wants(query, Rtype::AAAA) && ipv6(reply).is_empty() {
            reply.rcode = rcode::SERVFAIL;
        }
    }),
    hears("dname-not-understood", "rfc6147-5.1.5-dname", |reply| clear_if(reply, Rtype::DNAME)),
    replies("dname-hidden", "rfc6147-5.1.5-dname-shown", |_, reply| {
        reply.answer.retain(|record| record.rtype != Rtype::DNAME);
    }),
    replies("dname-twice", "rfc6147-5.1.5-dname-shown", |_, reply| {
        let dname = reply.answers(Rtype::DNAME).next().cloned();
        reply.answer.extend(dname);
    }),
    hears("letter-case-matters", "rfc6147-5.1.5-letter-case", |reply| {
        reply.answer.retain(|record| !has_capitals(&record.owner));
    }),
    replies("longest-ttl-for-all", "rfc6147-5.1.5-alias-ttls", |_, reply| {
        let longest = reply.answer.iter().map(|record| record.ttl).max().unwrap_or(0);
        reply.answer.iter_mut().for_each(|record| record.ttl = longest);
    }),
    replies("loops-are-nodata", "rfc1034-3.6.2-alias-loop", |_, reply| {
        recode(reply, rcode::SERVFAIL, rcode::NOERROR);
    }),
];

/// Removes all answer records from replies that contain a record of this type.
fn clear_if(reply: &mut Message, rtype: Rtype) {
    if reply.answers(rtype).count() > 0 {
        reply.answer.clear();
    }
}

/// Returns true if the owner contains the label `b`, which means that the owner is in the zone `b.ZONE`. If a test name
/// contains the label `hop`, it is an alias, and its target is in this zone.
fn is_other(record: &Record) -> bool {
    record.owner.iter().any(|label| label.as_slice().eq_ignore_ascii_case(b"b"))
}

/// Returns true if the name contains upper-case letters.
fn has_capitals(name: &Name) -> bool {
    name.iter().any(|label| label.as_slice().iter().any(u8::is_ascii_uppercase))
}
