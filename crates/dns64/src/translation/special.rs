//! Special-use names that are never sent to upstreams (RFC 6761, RFC 7686, RFC 9462, RFC 9476).

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::rcode::Rcode;
use wire::view::rtype;

use super::local_answer::{LocalAnswer, LocalRecord};
use crate::name::LowerName;
use crate::translation::policy::Rules;

/// Kind of answer for a domain and all names below it.
#[derive(Clone, Copy)]
enum SpecialAnswer {
    /// Loopback addresses (RFC 6761 §6.3).
    Loopback,
    /// The SVCB records of this resolver (RFC 9462 §4). Other names exist but have no records (RFC 9462 §6.1).
    Resolver,
    /// The names do not exist.
    NxDomain,
}

/// Name of the SVCB records that describe the encrypted transports of a resolver (RFC 9462 §4).
const DISCOVERY: &[u8] = b"\x04_dns\x08resolver\x04arpa\0";

const DOMAINS: [(&[u8], SpecialAnswer); 5] = [
    (b"\x09localhost\0", SpecialAnswer::Loopback),
    // RFC 6761 §6.4.
    (b"\x07invalid\0", SpecialAnswer::NxDomain),
    // RFC 7686 §2.
    (b"\x05onion\0", SpecialAnswer::NxDomain),
    // RFC 9476 §2.
    (b"\x03alt\0", SpecialAnswer::NxDomain),
    (b"\x08resolver\x04arpa\0", SpecialAnswer::Resolver),
];

/// Returns the special-use domains in wire format.
pub(crate) fn domains() -> impl Iterator<Item = &'static [u8]> {
    DOMAINS.iter().map(|(domain, _)| *domain)
}

/// Returns the answer to a question of class IN for a special-use name. Returns `None` for all other names. Also
/// returns `None` if the domain in the name's `[[forward]]` entry is the special-use domain or a subdomain of it.
#[inline]
pub(super) fn find_local(name: &LowerName, qtype: u16, rules: &Rules<'_>) -> Option<LocalAnswer> {
    // This fast check rejects nearly all other names, because their last letters differ from those of
    // the domains above.
    let end = name.wire().last_chunk::<4>()?;
    if !matches!(end, b"ost\0" | b"lid\0" | b"ion\0" | b"alt\0" | b"rpa\0") {
        return None;
    }
    let (domain, answers) = DOMAINS.iter().find(|(domain, _)| name.ends_with(domain))?;
    if rules.forward.len() >= domain.len() {
        return None;
    }
    let ttl = rules.policy.zones.ttl;
    Some(match answers {
        SpecialAnswer::Loopback => LocalAnswer::positive_or_nodata(loopback(qtype, ttl), domain),
        SpecialAnswer::Resolver => {
            let is_asked = name.wire() == DISCOVERY && matches!(qtype, rtype::SVCB | rtype::ANY);
            let record =
                |data: &Vec<u8>| LocalRecord { rtype: rtype::SVCB, ttl, data: data.clone() };
            let records = rules.policy.zones.resolvers.iter().filter(|_| is_asked).map(record);
            LocalAnswer::positive_or_nodata(records.collect(), domain)
        }
        SpecialAnswer::NxDomain => LocalAnswer::negative(Rcode::NXDOMAIN, domain),
    })
}

fn loopback(qtype: u16, ttl: u32) -> Vec<LocalRecord> {
    let a = || LocalRecord { rtype: rtype::A, ttl, data: Ipv4Addr::LOCALHOST.octets().to_vec() };
    let aaaa =
        || LocalRecord { rtype: rtype::AAAA, ttl, data: Ipv6Addr::LOCALHOST.octets().to_vec() };
    match qtype {
        rtype::A => vec![a()],
        rtype::AAAA => vec![aaaa()],
        rtype::ANY => vec![a(), aaaa()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::translation::policy::Policy;
    use crate::translation::zones::LocalZones;

    fn ask(name: &str, qtype: u16, forward: &str) -> Option<LocalAnswer> {
        let (name, forward): (LowerName, LowerName) =
            (name.parse().unwrap(), forward.parse().unwrap());
        let policy = Policy::default();
        let rules = Rules {
            forward: forward.wire(),
            ..Rules::for_all_names(&policy, [127, 0, 0, 1].into())
        };
        find_local(&name, qtype, &rules)
    }

    #[test]
    fn special_names_have_local_answers() {
        let found = |name: &str, qtype| {
            ask(name, qtype, ".").map(|answer| (answer.rcode, answer.records.len()))
        };
        for name in ["localhost", "LOCALHOST", "a.b.localhost"] {
            for (qtype, records) in
                [(rtype::A, 1), (rtype::AAAA, 1), (rtype::ANY, 2), (rtype::HTTPS, 0)]
            {
                assert_eq!(found(name, qtype), Some((Rcode::NOERROR, records)), "{name} {qtype}");
            }
        }
        for name in ["invalid", "a.invalid", "onion", "a.b.onion", "alt", "a.alt"] {
            assert_eq!(found(name, rtype::A), Some((Rcode::NXDOMAIN, 0)), "{name}");
        }
        for name in ["resolver.arpa", "_dns.resolver.arpa"] {
            assert_eq!(found(name, rtype::SVCB), Some((Rcode::NOERROR, 0)), "{name}");
        }
        for name in [".", "arpa", "test", "notlocalhost", "localhost.example", "a.salt", "myonion"]
        {
            assert_eq!(found(name, rtype::A), None, "{name}");
        }
    }

    #[test]
    fn encrypted_transports_are_discovered() {
        let zones = LocalZones { resolvers: vec![vec![1], vec![2]], ..LocalZones::default() };
        let policy = Policy { zones: Arc::new(zones), ..Policy::default() };
        let rules = Rules::for_all_names(&policy, [127, 0, 0, 1].into());
        for (name, qtype, records) in [
            ("_dns.resolver.arpa", rtype::SVCB, 2),
            ("_DNS.resolver.arpa", rtype::ANY, 2),
            ("_dns.resolver.arpa", rtype::HTTPS, 0),
            ("resolver.arpa", rtype::SVCB, 0),
            ("a._dns.resolver.arpa", rtype::SVCB, 0),
        ] {
            let answer = find_local(&name.parse().unwrap(), qtype, &rules).unwrap();
            let found = (answer.rcode, answer.records.len(), answer.zone.is_some());
            assert_eq!(found, (Rcode::NOERROR, records, records == 0), "{name} {qtype}");
        }
    }

    #[test]
    fn every_special_domain_is_found() {
        for (domain, _) in DOMAINS {
            let name = crate::name::text(domain);
            assert!(ask(&name, rtype::A, ".").is_some(), "{name}");
        }
    }

    #[test]
    fn a_forward_at_or_below_a_special_name_comes_first() {
        for forward in ["alt", "corp.alt", "www.corp.alt"] {
            assert_eq!(ask("www.corp.alt", rtype::A, forward), None, "{forward}");
        }
        assert!(ask("www.corp.alt", rtype::A, ".").is_some(), "the route of all names");
        assert_eq!(ask("_dns.resolver.arpa", rtype::SVCB, "resolver.arpa"), None);
        assert!(ask("_dns.resolver.arpa", rtype::SVCB, "arpa").is_some(), "above it");
    }
}
