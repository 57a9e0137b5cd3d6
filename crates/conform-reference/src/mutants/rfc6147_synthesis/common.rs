//! Helpers that are used by several files in this folder.

use std::net::Ipv6Addr;

use conform::message::{Message, Record};
/// Address in the AAAA record of names that have a native address. It is global, and outside all
/// excluded ranges and prefixes.
pub(super) const NATIVE: Ipv6Addr = Ipv6Addr::new(0x2600, 1, 0, 0, 0, 0, 0, 0x53);

/// Returns the addresses of the AAAA records in the answer section.
pub(super) fn ipv6(reply: &Message) -> Vec<Ipv6Addr> {
    reply.answer.iter().filter_map(Record::ipv6).collect()
}

/// Adds an AAAA record with this address to the answer, owned by the queried name.
pub(super) fn add_aaaa(query: &Message, reply: &mut Message, address: Ipv6Addr) {
    if let Some(question) = query.question() {
        reply.answer.push(Record::aaaa(question.name.clone(), 300, address));
    }
}

/// Changes the RCODE of a message to `to`, if the RCODE is `from`.
pub(super) fn recode(message: &mut Message, from: u16, to: u16) {
    if message.rcode == from {
        message.rcode = to;
    }
}
