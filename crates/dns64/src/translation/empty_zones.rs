//! Empty zones that are answered locally (RFC 6303, RFC 6761 §6.2, RFC 6762 §22.1, RFC 8375, RFC
//! 9665).
//!
//! A query for a name below the apex of an empty zone usually gets NXDOMAIN. However, some names in the zone exist:
//! other local zones, domains of `[[forward]]` entries, reverse zones of prefixes, `ipv4only.arpa`, and the reverse
//! names of the two addresses of `ipv4only.arpa`. A query for an ancestor of such a name gets NODATA instead of
//! NXDOMAIN. After an NXDOMAIN for the ancestor, a resolver would not query the names below it (RFC 8020).

use wire::rcode::Rcode;
use wire::view::rtype;

use super::local_answer::{LocalAnswer, NameServer};
use super::zones::LocalZones;
use crate::name::{DomainTable, LowerName, ancestors};

/// Empty zones, and the names that exist in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct EmptyZones {
    /// Names that exist in the zones, each with the apex of its zone.
    names: DomainTable<LowerName>,
}

impl EmptyZones {
    /// Returns empty zones with the given apexes. The names in `others`, and their ancestors, exist in these zones.
    pub(super) fn new(apexes: &[LowerName], others: impl Iterator<Item = LowerName>) -> EmptyZones {
        let mut zones = DomainTable::default();
        for apex in apexes {
            zones.insert(apex, apex.clone());
        }
        let mut names = DomainTable::default();
        for name in apexes.iter().cloned().chain(others) {
            for existing in ancestors(name.wire()) {
                let Some(zone) = zones.get(existing) else { break };
                names.insert(&LowerName::from_wire(existing), zone.clone());
            }
        }
        EmptyZones { names }
    }

    /// Returns the answer to a question of class IN for a name in one of the empty zones. Returns `None` for all other
    /// names. `forward` is the domain of the `[[forward]]` entry that applies to the name. If this domain is the apex
    /// of the empty zone or below it, the function also returns `None`.
    #[inline]
    pub(super) fn answer(
        &self,
        name: &LowerName,
        qtype: u16,
        forward: &[u8],
        local: &LocalZones,
    ) -> Option<LocalAnswer> {
        if self.names.is_empty() { None } else { self.find_local(name, qtype, forward, local) }
    }

    fn find_local(
        &self,
        name: &LowerName,
        qtype: u16,
        forward: &[u8],
        local: &LocalZones,
    ) -> Option<LocalAnswer> {
        // DS records belong to the parent zone (RFC 4035 §3.1.4.1).
        let levels_up = usize::from(qtype == rtype::DS);
        let zone = self.names.get(ancestors(name.wire()).nth(levels_up)?)?;
        if forward.len() >= zone.wire().len() {
            return None;
        }
        let answer = if name == zone {
            let records = local.apex_records(qtype, zone.wire());
            LocalAnswer::positive_or_nodata(records, zone.wire())
        } else {
            let rcode = if self.names.has(name) { Rcode::NOERROR } else { Rcode::NXDOMAIN };
            LocalAnswer::negative(rcode, zone.wire())
        };
        Some(LocalAnswer { name_server: NameServer::Apex, ..answer })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use super::*;
    use crate::translation::local::{Local, empty_zones, find_local};
    use crate::translation::policy::{Policy, Rules};

    const PTR: u16 = 12;
    const NODATA: Option<(Rcode, usize)> = Some((Rcode::NOERROR, 0));
    const NXDOMAIN: Option<(Rcode, usize)> = Some((Rcode::NXDOMAIN, 0));

    fn name(text: &str) -> LowerName {
        text.parse().unwrap()
    }

    /// Returns the default policy with these local zones and the domains of `[[forward]]` entries.
    fn policy(zones: &[&str], forwards: &[&str]) -> Policy {
        let policy = Policy::default();
        let zones: Vec<LowerName> = zones.iter().map(|zone| name(zone)).collect();
        let forwards = forwards.iter().map(|domain| name(domain));
        let zones = empty_zones(&zones, forwards, &policy.reverse);
        Policy { empty_zones: Arc::new(zones), ..policy }
    }

    fn ask(policy: &Policy, asked: &str, qtype: u16, forward: &str) -> Local {
        let forward = name(forward);
        let client = Ipv4Addr::LOCALHOST.into();
        let rules = Rules { forward: forward.wire(), ..Rules::for_all_names(policy, client) };
        find_local(&name(asked), qtype, &rules)
    }

    /// Returns the RCODE and the number of records in a local answer.
    fn found(policy: &Policy, asked: &str, qtype: u16, forward: &str) -> Option<(Rcode, usize)> {
        match ask(policy, asked, qtype, forward) {
            Local::Answer(answer) => Some((answer.rcode, answer.records.len())),
            Local::No => None,
            Local::Alias(alias) => panic!("{asked} is an alias: {alias:?}"),
        }
    }

    #[test]
    fn item_23_empty_zones_have_only_an_apex() {
        let policy = policy(&["home.arpa", "10.in-addr.arpa"], &[]);
        let of = |asked: &str, qtype| found(&policy, asked, qtype, ".");
        for zone in ["home.arpa", "HOME.arpa", "10.in-addr.arpa"] {
            for (qtype, records) in [(rtype::SOA, 1), (rtype::NS, 1), (rtype::ANY, 2), (PTR, 0)] {
                assert_eq!(of(zone, qtype), Some((Rcode::NOERROR, records)), "{zone} {qtype}");
            }
            let below = format!("a.b.{zone}");
            assert_eq!(of(&below, rtype::A), NXDOMAIN, "{below}");
            assert_eq!(of(&below, rtype::SOA), NXDOMAIN, "{below}");
        }
        for other in [".", "arpa", "in-addr.arpa", "110.in-addr.arpa", "myhome.arpa", "example"] {
            assert_eq!(of(other, rtype::A), None, "{other}");
        }
    }

    /// RFC 6303 §3: clients that search for the server of dynamic updates find no address.
    #[test]
    fn rfc6303_3_an_empty_zone_is_its_own_server() {
        let policy = policy(&["home.arpa"], &[]);
        let answer = |asked: &str, qtype| match ask(&policy, asked, qtype, ".") {
            Local::Answer(answer) => answer,
            other => panic!("{other:?}"),
        };
        let zone = name("home.arpa");
        assert_eq!(answer("home.arpa", rtype::NS).records[0].data, zone.wire());
        assert!(answer("home.arpa", rtype::SOA).records[0].data.starts_with(zone.wire()));
        for (asked, qtype) in [("home.arpa", rtype::A), ("a.home.arpa", rtype::A)] {
            let denied = answer(asked, qtype);
            assert_eq!(denied.zone.as_deref(), Some(zone.wire()), "{asked}");
            assert_eq!(denied.name_server, NameServer::Apex, "{asked}");
        }
    }

    /// RFC 4035 §3.1.4.1, RFC 8375 §4.
    #[test]
    fn the_ds_records_of_an_empty_zone_are_its_parents() {
        let policy = policy(&["home.arpa", "inner.home.arpa"], &["other.home.arpa"]);
        let of = |asked: &str| found(&policy, asked, rtype::DS, ".");
        assert_eq!(of("home.arpa"), None);
        assert_eq!(of("inner.home.arpa"), NODATA);
        assert_eq!(of("a.home.arpa"), NXDOMAIN);
        assert_eq!(of("other.home.arpa"), NODATA);
    }

    #[test]
    fn a_forward_in_an_empty_zone_comes_first() {
        let policy = policy(&["10.in-addr.arpa"], &["2.1.10.in-addr.arpa"]);
        for forward in ["10.in-addr.arpa", "2.1.10.in-addr.arpa"] {
            assert_eq!(found(&policy, "3.2.1.10.in-addr.arpa", PTR, forward), None, "{forward}");
        }
        for forward in [".", "arpa", "in-addr.arpa"] {
            let asked = found(&policy, "3.1.10.in-addr.arpa", PTR, forward);
            assert_eq!(asked, NXDOMAIN, "{forward}");
        }
        assert_eq!(found(&policy, "1.10.in-addr.arpa", PTR, "."), NODATA, "above the forward");
    }

    #[test]
    fn names_above_a_nested_zone_exist() {
        let policy = policy(&["test", "a.b.test", "arpa"], &["x.y.elsewhere"]);
        let of = |asked: &str| found(&policy, asked, rtype::A, ".");
        assert_eq!([of("test"), of("b.test"), of("a.b.test")], [NODATA; 3]);
        assert_eq!([of("c.b.test"), of("c.a.b.test")], [NXDOMAIN; 2]);
        assert_eq!(of("y.elsewhere"), None);
        // Names above local answers with data.
        let above = ["arpa", "in-addr.arpa", "192.in-addr.arpa", "0.0.192.in-addr.arpa"];
        assert_eq!(above.map(of), [NODATA; 4]);
        assert_eq!([of("193.in-addr.arpa"), of("only.arpa")], [NXDOMAIN; 2]);
    }

    #[test]
    fn ipv4only_arpa_and_prefix_pointers_come_first() {
        let policy = policy(&["arpa", "b.9.f.f.4.6.0.0.ip6.arpa"], &[]);
        assert_eq!(found(&policy, "ipv4only.arpa", rtype::A, "."), Some((Rcode::NOERROR, 2)));
        assert_eq!(ask(&policy, "ipv4only.arpa", rtype::DS, "."), Local::No);
        let zone = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa";
        let pointer = format!("8.0.8.0.8.0.8.0.{zone}");
        assert!(matches!(ask(&policy, &pointer, PTR, "."), Local::Alias(_)));
        assert_eq!(found(&policy, &zone[2..], PTR, "."), NODATA, "above the prefix");
        assert_eq!(found(&policy, &zone[4..], PTR, "."), NODATA);
        assert_eq!(found(&policy, &format!("1.{}", &zone[4..]), PTR, "."), NXDOMAIN);
        assert_eq!(found(&policy, zone, rtype::DS, "."), NODATA, "the parent is local");
    }

    #[test]
    fn a_special_use_name_in_the_list_keeps_its_answer() {
        let policy = policy(&["localhost", "onion"], &[]);
        assert_eq!(found(&policy, "localhost", rtype::A, "."), Some((Rcode::NOERROR, 1)));
        assert_eq!(found(&policy, "onion", rtype::A, "."), NXDOMAIN);
    }
}
