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

/// Signatures of the SOA record in a response to [`query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signatures {
    /// The record has no signature.
    Missing,
    /// Period in which each signature is valid, in seconds since 1970.
    Found(Vec<(u32, u32)>),
}

impl Signatures {
    /// Returns the signatures in a response to [`query`]. Returns `None` if the response is an error, or does not have
    /// the record.
    pub(crate) fn of(response: &[u8]) -> Option<Signatures> {
        let message = Message::from_octets(response).ok()?;
        if message.header().rcode() != Rcode::NOERROR || !message.header().qr() {
            return None;
        }
        let mut has_soa = false;
        let mut periods = Vec::new();
        for record in message.answer().ok()? {
            let record = record.ok()?;
            has_soa |= record.rtype() == Rtype::SOA;
            if let Ok(Some(record)) = record.into_record::<Rrsig<_, _>>()
                && record.data().type_covered() == Rtype::SOA
            {
                let signature = record.data();
                periods.push((signature.inception().into_int(), signature.expiration().into_int()));
            }
        }
        let found =
            || if periods.is_empty() { Signatures::Missing } else { Signatures::Found(periods) };
        has_soa.then(found)
    }

    /// True if there is a signature.
    pub(crate) fn are_found(&self) -> bool {
        matches!(self, Signatures::Found(_))
    }

    /// Returns the period of a signature if none is valid at the time `now`, in seconds since 1970.
    pub(crate) fn period_without(&self, now: u32) -> Option<(u32, u32)> {
        let Signatures::Found(periods) = self else { return None };
        // Times are modulo 2³² (RFC 4034 §3.1.5).
        let is_until = |from: u32, to: u32| to.wrapping_sub(from) < 1 << 31;
        let is_valid = |&(from, until): &(u32, u32)| is_until(from, now) && is_until(now, until);
        if periods.iter().any(is_valid) { None } else { periods.first().copied() }
    }
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
            let found = Signatures::of(&response).map(|signatures| signatures.are_found());
            assert_eq!(found, expected, "{rcode} {answer:?}");
        }
        let query = query(&dnssec::Name::root_bytes());
        assert_eq!(Signatures::of(&query), None);
        let query = Message::from_octets(query).unwrap();
        assert!(query.header().rd() && query.header().cd());
        assert!(query.opt().unwrap().dnssec_ok());
    }

    #[test]
    fn a_time_outside_of_all_periods_is_found() {
        let both = Signatures::Found(vec![(100, 200), (150, 300)]);
        assert_eq!(both.period_without(99), Some((100, 200)));
        assert_eq!([100, 250, 300].map(|now| both.period_without(now)), [None; 3]);
        assert_eq!(both.period_without(301), Some((100, 200)));
        assert_eq!(Signatures::Missing.period_without(0), None);
    }
}
