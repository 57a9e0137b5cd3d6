//! Queries that show whether an upstream returns DNSSEC signatures.
//!
//! The query is for the SOA record of the highest zone with a trust anchor, usually the root. This zone is signed, so an
//! answer without signatures shows that the upstream removes them, or did not request them.

use domain::base::iana::{Rcode, Rtype};
use domain::base::{Message, MessageBuilder};
use domain::rdata::Rrsig;
use net::address::ServiceAddr;
use wire::edns::UDP_PAYLOAD;

/// Result of the queries for signatures to all upstreams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignatureSupport {
    /// True if an upstream has returned signatures since the start of the server.
    pub(crate) is_proven: bool,
    /// Upstreams that return answers without signatures.
    pub(crate) without: Vec<ServiceAddr>,
}

/// Returns the query for the SOA record of a signed zone, with DO and CD set.
pub(crate) fn query(zone: &dnssec::Name) -> Vec<u8> {
    let mut message = MessageBuilder::new_vec();
    let header = message.header_mut();
    header.set_random_id();
    header.set_rd(true);
    header.set_cd(true);
    let mut question = message.question();
    // A query of one question and one OPT record fits into every message.
    let _ = question.push((zone, Rtype::SOA));
    let mut additional = question.additional();
    let _ = additional.opt(|opt| {
        opt.set_udp_payload_size(UDP_PAYLOAD as u16);
        opt.set_dnssec_ok(true);
        Ok(())
    });
    additional.finish()
}

/// True if a response to [`query`] has a signature of the SOA record, and false if it has the record without a
/// signature. Returns `None` if the response is an error, or does not have the record.
pub(crate) fn are_in(response: &[u8]) -> Option<bool> {
    let message = Message::from_octets(response).ok()?;
    if message.header().rcode() != Rcode::NOERROR || !message.header().qr() {
        return None;
    }
    let mut has_soa = false;
    let mut has_signature = false;
    for record in message.answer().ok()? {
        let record = record.ok()?;
        has_soa |= record.rtype() == Rtype::SOA;
        if let Ok(Some(record)) = record.into_record::<Rrsig<_, _>>() {
            has_signature |= record.data().type_covered() == Rtype::SOA;
        }
    }
    has_soa.then_some(has_signature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::signed::{World, message, name, records, soa};

    #[test]
    fn signatures_are_found_in_answers() {
        let world = World::new(&["."]);
        let signed = world.zone(".").sign(&soa("."));
        let unsigned = records(&soa("."));
        let other = world.zone(".").sign(". NS a.");
        for (expected, rcode, answer) in [
            (Some(true), Rcode::NOERROR, &signed),
            (Some(false), Rcode::NOERROR, &unsigned),
            (Some(false), Rcode::NOERROR, &[&unsigned[..], &other[1..]].concat()),
            (None, Rcode::SERVFAIL, &signed),
            (None, Rcode::NOERROR, &other),
            (None, Rcode::NOERROR, &Vec::new()),
        ] {
            let response = message(&name("."), Rtype::SOA, rcode, answer, &[]);
            assert_eq!(are_in(&response), expected, "{rcode} {answer:?}");
        }
        let query = query(&dnssec::Name::root_bytes());
        assert_eq!(are_in(&query), None);
        let query = Message::from_octets(query).unwrap();
        assert!(query.header().rd() && query.header().cd());
        assert!(query.opt().unwrap().dnssec_ok());
    }
}
