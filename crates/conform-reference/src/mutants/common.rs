//! Helpers that are used by several files of mutants.

use std::net::Ipv6Addr;

use conform::message::Message;
use domain::base::iana::Rtype;

/// Address that mutants add to answers. It is synthesized from 1.2.3.4 with the Well-Known Prefix.
pub(super) const SYNTHETIC: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0x102, 0x304);

/// Duplicates the SOA record of a negative answer.
pub(super) fn repeat_soa(reply: &mut Message) {
    let soa = reply.authority.iter().find(|record| record.rtype == Rtype::SOA).cloned();
    reply.authority.extend(soa);
}

/// Returns true if the query is for records of this type.
pub(super) fn wants(query: &Message, qtype: Rtype) -> bool {
    query.question().is_some_and(|question| question.qtype == qtype)
}
