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
    /// The names exist but have no records (RFC 9462 §6.1).
    NoData,
    /// The names do not exist.
    NxDomain,
}

const DOMAINS: [(&[u8], SpecialAnswer); 5] = [
    (b"\x09localhost\0", SpecialAnswer::Loopback),
    // RFC 6761 §6.4.
    (b"\x07invalid\0", SpecialAnswer::NxDomain),
    // RFC 7686 §2.
    (b"\x05onion\0", SpecialAnswer::NxDomain),
    // RFC 9476 §2.
    (b"\x03alt\0", SpecialAnswer::NxDomain),
    (b"\x08resolver\x04arpa\0", SpecialAnswer::NoData),
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
        SpecialAnswer::NoData => LocalAnswer::negative(Rcode::NOERROR, domain),
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
    use super::*;
    use crate::translation::policy::Policy;

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
