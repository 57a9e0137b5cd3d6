//! Answers without an upstream: `ipv4only.arpa` (RFC 8880), the reverse tree of the prefixes (RFC
//! 6147 §5.3.1), special-use names, and empty zones.

use std::net::{Ipv4Addr, Ipv6Addr};

use units::Nanos;
use wire::edns::ede;
use wire::rcode::Rcode;
use wire::view::rtype;

use crate::name::{LowerName, labels};
use crate::translation::empty_zones::EmptyZones;
use crate::translation::local_answer::seconds_left;
use crate::translation::policy::{IPV4ONLY, Mapping, Rules};
use crate::translation::prefix::Prefix;
use crate::translation::reverse_name::{IP6_ARPA, in_addr_arpa, ip6_arpa};
use crate::translation::special;
use crate::translation::zones::LocalZones;

pub(crate) use crate::translation::local_answer::{LocalAnswer, LocalRecord, NameServer};

/// The name `ipv4only.arpa` (RFC 7050 §8.2) in wire format.
const IPV4ONLY_ARPA: &[u8] = b"\x08ipv4only\x04arpa\0";
/// Parent of `ipv4only.arpa` and of the reverse trees.
const ARPA: &[u8] = b"\x04arpa\0";
/// TTL of `ipv4only.arpa` in IANA's zone, in seconds. In replies, [`LocalZones::max_ttl`] limits this TTL.
const IPV4ONLY_TTL: u32 = 86_400;

/// Result of the search for a local answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// There is no local answer, so the upstreams must be queried.
    No,
    /// The local answer.
    Answer(LocalAnswer),
    /// The queried name is an alias (CNAME). The value contains its target, which must be resolved by the upstreams.
    Alias(Alias),
}

/// A name in the reverse tree of a prefix. A query for this name is answered with a CNAME record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alias {
    /// Target of the alias, a name in `in-addr.arpa`.
    pub target: LowerName,
    /// Reverse zone of the prefix, in lower case.
    zone: Vec<u8>,
    /// Expiry time of the prefix, or `None` if it never expires.
    until: Option<Nanos>,
}

impl Alias {
    /// Returns a negative answer with the given RCODE. It is sent instead of the CNAME record if the target of the
    /// alias has no data (RFC 6147 §5.3.1).
    pub(crate) fn denial(&self, rcode: Rcode) -> LocalAnswer {
        LocalAnswer::negative(rcode, &self.zone).known_until(self.until)
    }
}

/// Searches for a local answer to a question of class IN.
pub(crate) fn find_local(name: &LowerName, qtype: u16, rules: &Rules<'_>) -> Local {
    let policy = rules.policy;
    if let Some(answer) = special::find_local(name, qtype, rules) {
        return Local::Answer(answer);
    }
    if name.ends_with(ARPA)
        && let Some(found) = arpa(name, qtype, rules)
    {
        return found;
    }
    match policy.empty_zones.answer(name, qtype, rules.forward, &policy.zones) {
        Some(answer) => Local::Answer(answer),
        None => Local::No,
    }
}

/// Returns empty zones with the given apexes. `forwards` contains the domains of all `[[forward]]` entries, and
/// `reverse` the prefixes with local reverse zones. These domains and reverse zones exist as names in the empty zones
/// that contain them. `ipv4only.arpa` and the reverse names of its addresses exist in the same way.
pub(crate) fn empty_zones(
    apexes: &[LowerName],
    forwards: impl Iterator<Item = LowerName>,
    reverse: &[Mapping],
) -> EmptyZones {
    let zone_of = |prefix: &Prefix| ip6_arpa(prefix.network(), u32::from(prefix.len()) / 4);
    let reverse = reverse.iter().map(|mapping| LowerName::from_wire(&zone_of(mapping.prefix())));
    let of_ipv4only = IPV4ONLY.map(in_addr_arpa).into_iter();
    let others = forwards.chain(reverse).chain(of_ipv4only);
    EmptyZones::new(apexes, others.chain([LowerName::from_wire(IPV4ONLY_ARPA)]))
}

/// Searches for a local answer for a name below `arpa`. Returns `None` if the name belongs neither to
/// `ipv4only.arpa` nor to a prefix.
fn arpa(name: &LowerName, qtype: u16, rules: &Rules<'_>) -> Option<Local> {
    let policy = rules.policy;
    if name.ends_with(IPV4ONLY_ARPA) {
        return Some(ipv4only(name, qtype, rules));
    }
    if IPV4ONLY.iter().any(|&v4| *name == in_addr_arpa(v4)) {
        return Some(Local::Answer(ipv4only_pointer(qtype, name)));
    }
    if policy.reverse.is_empty() || !name.ends_with(IP6_ARPA) {
        return None;
    }
    reverse(name, qtype, &policy.reverse, &policy.zones)
}

/// Returns the TTL in seconds of the CNAME record of a local alias ([`find_local`]). The TTL is zero
/// if the prefix of the alias has expired.
pub(crate) fn alias_ttl(name: &LowerName, rules: &Rules<'_>) -> u32 {
    match find_local(name, rtype::PTR, rules) {
        Local::Alias(alias) => {
            let zones = &rules.policy.zones;
            zones.alias_ttl.min(zones.max_ttl).min(seconds_left(alias.until, rules.now))
        }
        Local::No | Local::Answer(_) => 0,
    }
}

/// Answers queries for `ipv4only.arpa` and names below it. Only `ipv4only.arpa` itself exists, and it
/// has only A and AAAA records (RFC 8880 §7.1, §7.2).
fn ipv4only(name: &LowerName, qtype: u16, rules: &Rules<'_>) -> Local {
    if name.wire() != IPV4ONLY_ARPA {
        return Local::Answer(LocalAnswer::negative(Rcode::NXDOMAIN, IPV4ONLY_ARPA));
    }
    let record = |rtype, ttl, data| LocalRecord { rtype, ttl, data };
    let a = || IPV4ONLY.iter().map(|v4| record(rtype::A, IPV4ONLY_TTL, v4.octets().to_vec()));
    let lifetime = IPV4ONLY_TTL.min(rules.lifetime());
    let aaaa = || {
        let addresses = IPV4ONLY.iter().flat_map(|&v4| rules.policy.embed(v4, rules.client));
        addresses.map(|v6: Ipv6Addr| record(rtype::AAAA, lifetime, v6.octets().to_vec()))
    };
    if qtype == rtype::AAAA && rules.policy.awaits_prefix && aaaa().next().is_none() {
        return Local::Answer(LocalAnswer {
            rcode: Rcode::SERVFAIL,
            records: Vec::new(),
            zone: None,
            name_server: NameServer::Configured,
            extended_error: Some(ede::NOT_READY),
            until: None,
        });
    }
    let records: Vec<LocalRecord> = match qtype {
        rtype::A => a().collect(),
        rtype::AAAA => aaaa().collect(),
        rtype::ANY => a().chain(aaaa()).collect(),
        // DS records belong to the parent zone. Validating clients need proof that there are no DS
        // records.
        rtype::DS => return Local::No,
        _ => Vec::new(),
    };
    Local::Answer(LocalAnswer::positive_or_nodata(records, IPV4ONLY_ARPA))
}

/// Answers queries for the reverse name of either address of `ipv4only.arpa`. The PTR record refers to
/// `ipv4only.arpa` (RFC 8880 §7.2).
fn ipv4only_pointer(qtype: u16, zone: &LowerName) -> LocalAnswer {
    let records = match qtype {
        rtype::PTR | rtype::ANY => {
            vec![LocalRecord { rtype: rtype::PTR, ttl: IPV4ONLY_TTL, data: IPV4ONLY_ARPA.to_vec() }]
        }
        _ => Vec::new(),
    };
    LocalAnswer::positive_or_nodata(records, zone.wire())
}

/// Searches the reverse zones of the prefixes for a name below `ip6.arpa` (item 22 of docs/src/dns64-items.md).
fn reverse(
    name: &LowerName,
    qtype: u16,
    mappings: &[Mapping],
    zones: &LocalZones,
) -> Option<Local> {
    let Reversed { address, nibbles, well_formed } = Reversed::read(name);
    // DS records of an apex belong to the parent zone (RFC 4035 §3.1.4.1). A query for these DS
    // records is answered here only if the apex is inside the reverse zone of a shorter prefix.
    let least = u32::from(qtype == rtype::DS && well_formed);
    let ours = |mapping: &&Mapping| {
        let prefix = mapping.prefix();
        nibbles * 4 >= u32::from(prefix.len()) + least && prefix.covers(address)
    };
    let longest = mappings.iter().filter(ours).max_by_key(|mapping| mapping.prefix().len());
    let prefix = longest.map(Mapping::prefix)?;
    let apex = u32::from(prefix.len()) / 4;
    let zone = ip6_arpa(prefix.network(), apex);
    let until = known_until(mappings, prefix);
    let answer = |answer: LocalAnswer| Some(Local::Answer(answer.known_until(until)));
    if !well_formed {
        return answer(LocalAnswer::negative(Rcode::NXDOMAIN, &zone));
    }
    if nibbles == apex {
        let records = zones.apex_records(qtype, zones.name_server.wire());
        return answer(LocalAnswer::positive_or_nodata(records, &zone));
    }
    if nibbles < 32 {
        return answer(LocalAnswer::negative(Rcode::NOERROR, &zone));
    }
    // Every matching prefix is tried, even if it is not used for the embedded IPv4 address.
    let all = || mappings.iter().filter(ours);
    let with = |mapping: &Mapping, v4: Option<Ipv4Addr>| v4.map(|v4| (v4, *mapping.prefix()));
    let extract = |mapping: &Mapping| with(mapping, mapping.prefix().extract(address));
    let ignoring_suffix =
        |mapping: &Mapping| with(mapping, mapping.prefix().extract_ignoring_suffix(address));
    let embedded = all()
        .find_map(|mapping| extract(mapping).filter(|&(v4, _)| mapping.carries(v4)))
        .or_else(|| all().find_map(extract))
        .or_else(|| all().find_map(ignoring_suffix));
    let Some((v4, embedding)) = embedded else {
        return answer(LocalAnswer::negative(Rcode::NXDOMAIN, &zone));
    };
    // The embedding prefix may differ from the prefix of the zone.
    let until = [until, known_until(mappings, &embedding)].into_iter().flatten().min();
    // The synthesized addresses of `ipv4only.arpa` have PTR records and no alias (RFC 8880 §7.2).
    if IPV4ONLY.contains(&v4) {
        let mut answer = ipv4only_pointer(qtype, name).known_until(until);
        answer.zone = answer.zone.map(|_| zone);
        return Some(Local::Answer(answer));
    }
    Some(Local::Alias(Alias { target: in_addr_arpa(v4), zone, until }))
}

/// Returns the expiry time of a prefix. Several mappings can have the same prefix with different suffixes. The result
/// is the latest expiry time of the mappings with this prefix, or `None` if one of them never expires.
fn known_until(mappings: &[Mapping], prefix: &Prefix) -> Option<Nanos> {
    let is_same = |mapping: &&Mapping| {
        let other = mapping.prefix();
        other.network() == prefix.network() && other.len() == prefix.len()
    };
    let mut ends = mappings.iter().filter(is_same).map(|mapping| mapping.state().until);
    ends.try_fold(Nanos(0), |latest, end| end.map(|end| latest.max(end)))
}

/// The address or network that corresponds to a name below `ip6.arpa`.
struct Reversed {
    /// IPv6 address formed by the nibbles in the reverse name. Nibbles that the name lacks are zero.
    address: Ipv6Addr,
    /// Number of valid nibbles in the reverse name, 0 to 32. Counting begins at the label next to `ip6.arpa`.
    nibbles: u32,
    /// True if all labels below `ip6.arpa` are nibbles, and there are at most 32 of them.
    well_formed: bool,
}

impl Reversed {
    fn read(name: &LowerName) -> Reversed {
        let all: Vec<&[u8]> = labels(name.wire()).collect();
        // The labels without "ip6" and "arpa".
        let below = &all[..all.len() - 2];
        let mut bits: u128 = 0;
        let mut nibbles: u32 = 0;
        let mut well_formed = true;
        for label in below.iter().rev() {
            match label {
                [digit] if nibbles < 32 && well_formed => match char::from(*digit).to_digit(16) {
                    Some(value) => {
                        bits |= u128::from(value) << (124 - 4 * nibbles);
                        nibbles += 1;
                    }
                    None => well_formed = false,
                },
                _ => well_formed = false,
            }
        }
        Reversed { address: bits.into(), nibbles, well_formed }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::translation::policy::{Policy, PrefixState};

    fn policy(prefix: &str) -> Policy {
        let prefix: Prefix = prefix.parse().unwrap();
        let mappings = vec![Mapping::new(prefix, vec!["0.0.0.0/0".parse().unwrap()], false)];
        Policy { reverse: mappings.clone().into(), mappings, ..Policy::default() }
    }

    fn ask(name: &str, qtype: u16, policy: &Policy) -> Local {
        let client = Ipv4Addr::LOCALHOST.into();
        find_local(&name.parse().unwrap(), qtype, &Rules::for_all_names(policy, client))
    }

    fn reverse_name(address: &str) -> String {
        let bits = u128::from(address.parse::<Ipv6Addr>().unwrap());
        (0..32).map(|i| format!("{:x}.", bits >> (4 * i) & 0xf)).collect::<String>() + "ip6.arpa"
    }

    fn negative(local: &Local) -> Option<Rcode> {
        match local {
            Local::Answer(answer) if answer.records.is_empty() && answer.zone.is_some() => {
                Some(answer.rcode)
            }
            _ => None,
        }
    }

    /// Returns the target of an alias, or an empty value for other results.
    fn target(found: &Local) -> String {
        match found {
            Local::Alias(alias) => {
                crate::name::text(alias.target.wire()).trim_end_matches('.').into()
            }
            _ => String::new(),
        }
    }

    #[test]
    fn item_22_pointers_under_all_six_lengths() {
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:808:808::"),
            ("2001:db8:100::/40", "2001:db8:108:808:8::"),
            ("2001:db8:122::/48", "2001:db8:122:808:8:800::"),
            ("2001:db8:122:300::/56", "2001:db8:122:308:8:808::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:8:808:800::"),
            ("64:ff9b::/96", "64:ff9b::8.8.8.8"),
        ] {
            let policy = policy(prefix);
            let found = ask(&reverse_name(address), rtype::PTR, &policy);
            assert_eq!(target(&found), "8.8.8.8.in-addr.arpa", "{prefix}");
        }
    }

    #[test]
    fn item_22_names_that_are_no_address() {
        let policy = policy("64:ff9b::/96");
        let good = reverse_name("64:ff9b::8.8.8.8");
        assert_eq!(
            negative(&ask(&format!("1.{good}"), rtype::PTR, &policy)),
            Some(Rcode::NXDOMAIN),
            "33 nibbles"
        );
        assert_eq!(
            negative(&ask(&good.replacen('8', "z", 1), rtype::PTR, &policy)),
            Some(Rcode::NXDOMAIN),
            "letter z"
        );
        assert_eq!(
            negative(&ask(&good.replacen('8', "88", 1), rtype::PTR, &policy)),
            Some(Rcode::NXDOMAIN)
        );
        assert_eq!(
            negative(&ask(&good[2..], rtype::PTR, &policy)),
            Some(Rcode::NOERROR),
            "an empty node"
        );
        let zone = reverse_name("64:ff9b::")[16..].to_owned();
        let Local::Answer(below) = ask(&good[2..], rtype::PTR, &policy) else { panic!("ours") };
        let name: LowerName = zone.parse().unwrap();
        assert_eq!(below.zone.as_deref(), Some(name.wire()), "owner of its SOA");
        assert_eq!(
            negative(&ask(&zone, rtype::PTR, &policy)),
            Some(Rcode::NOERROR),
            "the prefix itself"
        );
        assert_eq!(ask(&zone[2..], rtype::PTR, &policy), Local::No, "above the prefix");
        assert_eq!(ask(&reverse_name("2001:db8::1"), rtype::PTR, &policy), Local::No);
        assert_eq!(ask("z.ip6.arpa", rtype::PTR, &policy), Local::No);
        let elsewhere = good.replace("ip6.arpa", "in-addr.arpa");
        assert_eq!(ask(&elsewhere, rtype::PTR, &policy), Local::No);
        let private = reverse_name("64:ff9b::10.0.0.1");
        assert_eq!(
            target(&ask(&private, rtype::PTR, &policy)),
            "1.0.0.10.in-addr.arpa",
            "an address that is never synthesized is below the prefix, too"
        );
    }

    /// RFC 6052 §2.2: the suffix is ignored, and the octet `u` is zero.
    #[test]
    fn item_22_a_suffix_makes_no_difference() {
        let policy = policy("2001:db8::/32");
        let of = |address| ask(&reverse_name(address), rtype::PTR, &policy);
        assert_eq!(target(&of("2001:db8:808:808::1")), "8.8.8.8.in-addr.arpa");
        assert_eq!(negative(&of("2001:db8:808:808:100::")), Some(Rcode::NXDOMAIN), "octet u");
    }

    /// RFC 6147 §5.3.1: PTR queries for addresses in any prefix are answered locally, for every
    /// client.
    #[test]
    fn pointers_of_all_prefixes_for_every_client() {
        let mut policy = policy("2001:db8::/32");
        policy.reverse = Arc::new([policy.mappings[0].clone(), Mapping::well_known()]);
        policy.mappings.clear();
        for address in ["2001:db8:808:808::", "64:ff9b::8.8.8.8"] {
            let found = ask(&reverse_name(address), rtype::PTR, &policy);
            assert_eq!(target(&found), "8.8.8.8.in-addr.arpa", "{address}");
        }
        policy.reverse = Arc::new([]);
        assert_eq!(
            ask(&reverse_name("64:ff9b::8.8.8.8"), rtype::PTR, &policy),
            Local::No,
            "DNS64 is off"
        );
    }

    /// RFC 7050 §3, RFC 8781 §4: answers that depend on a prefix last no longer than the prefix.
    #[test]
    fn item_47_pointers_last_no_longer_than_their_prefix() {
        let mapping = |prefix: &str, seconds: Option<u64>| {
            let until = seconds.map(|seconds| Nanos(seconds * Nanos::SECOND.0));
            let all = vec!["0.0.0.0/0".parse().unwrap()];
            Mapping::new(prefix.parse().unwrap(), all, false)
                .with_state(PrefixState { until, ..PrefixState::default() })
        };
        let zones = LocalZones { alias_ttl: 86_400, ..LocalZones::default() };
        let policy = |reverse: &[Mapping]| Policy {
            reverse: reverse.into(),
            zones: Arc::new(zones.clone()),
            ..Policy::default()
        };
        // Lifetimes of each kind of answer, and of the alias.
        let lifetimes = |policy: &Policy| {
            let answered = |name: &str| match ask(name, rtype::PTR, policy) {
                Local::Answer(answer) => answer.lifetime(Nanos::SECOND),
                other => panic!("{name}: {other:?}"),
            };
            let pointer = reverse_name("2001:db8:64::8.8.8.8");
            let rules = Rules {
                now: Nanos::SECOND,
                ..Rules::for_all_names(policy, Ipv4Addr::LOCALHOST.into())
            };
            let Local::Alias(alias) = ask(&pointer, rtype::PTR, policy) else { panic!("an alias") };
            let mut all = vec![
                answered(&format!("z.{pointer}")),
                answered(&pointer[2..]),
                answered(&pointer[16..]),
                answered(&reverse_name("2001:db8:64::c000:aa")),
                alias.denial(Rcode::NXDOMAIN).lifetime(Nanos::SECOND),
            ];
            all.dedup();
            (all, alias_ttl(&pointer.parse().unwrap(), &rules))
        };
        let announced = mapping("2001:db8:64::/96", Some(31));
        assert_eq!(lifetimes(&policy(std::slice::from_ref(&announced))), (vec![30], 30));
        let longer = mapping("2001:db8:64::/96", Some(61));
        assert_eq!(lifetimes(&policy(&[longer, announced.clone()])), (vec![60], 60));
        let configured = mapping("2001:db8:64::/96", None);
        let both = policy(&[announced.clone(), configured]);
        assert_eq!(lifetimes(&both), (vec![u32::MAX], 86_400));
        // A different prefix does not extend the lifetime.
        let other = [mapping("2001:db8::/32", None), announced, Mapping::well_known()];
        assert_eq!(lifetimes(&policy(&other)), (vec![30], 30));
        let over = mapping("2001:db8:64::/96", Some(1));
        assert_eq!(lifetimes(&policy(&[over])), (vec![0], 0));
        let name = reverse_name("2001:db8:64::8.8.8.8").parse().unwrap();
        let gone = policy(&[]);
        assert_eq!(alias_ttl(&name, &Rules::for_all_names(&gone, Ipv4Addr::LOCALHOST.into())), 0);
    }

    /// A changed prefix takes effect at clients when their cached records expire.
    #[test]
    fn the_ttl_of_an_alias_is_bounded() {
        let zones = LocalZones { max_ttl: 300, ..LocalZones::default() };
        let policy = Policy { zones: Arc::new(zones), ..policy("64:ff9b::/96") };
        let name = reverse_name("64:ff9b::8.8.8.8").parse().unwrap();
        let rules = Rules::for_all_names(&policy, Ipv4Addr::LOCALHOST.into());
        assert_eq!(alias_ttl(&name, &rules), 300);
    }

    #[test]
    fn the_apex_of_a_made_up_zone_has_soa_and_ns() {
        let mut policy = policy("2001:db8::/32");
        let inner = Mapping::new(
            "2001:db8:64::/96".parse().unwrap(),
            vec!["0.0.0.0/0".parse().unwrap()],
            false,
        );
        policy.reverse = Arc::new([policy.mappings[0].clone(), inner]);
        let types = |name: &str, qtype| match ask(name, qtype, &policy) {
            Local::Answer(answer) => {
                answer.records.iter().map(|record| record.rtype).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        for apex in [&reverse_name("2001:db8::")[48..], &reverse_name("2001:db8:64::")[16..]] {
            assert_eq!(types(apex, rtype::SOA), [rtype::SOA], "{apex}");
            assert_eq!(types(apex, rtype::NS), [rtype::NS]);
            assert_eq!(types(apex, rtype::ANY), [rtype::SOA, rtype::NS]);
            assert_eq!(negative(&ask(apex, rtype::PTR, &policy)), Some(Rcode::NOERROR));
            let below = format!("1.{apex}");
            assert_eq!(
                negative(&ask(&below, rtype::SOA, &policy)),
                Some(Rcode::NOERROR),
                "{below} is no apex"
            );
        }
    }

    /// RFC 4035 §3.1.4.1: DS records, or the proof of their absence, come from the parent zone.
    #[test]
    fn the_ds_records_of_a_made_up_zone_are_its_parents() {
        let all = vec!["0.0.0.0/0".parse().unwrap()];
        let inner = Mapping::new("2001:db8:64::/96".parse().unwrap(), all, false);
        let mut policy = policy("2001:db8::/32");
        policy.reverse = Arc::new([policy.mappings[0].clone(), inner]);
        let outer_apex = &reverse_name("2001:db8::")[48..];
        let inner_apex = &reverse_name("2001:db8:64::")[16..];
        let zone = |name: &str| match ask(name, rtype::DS, &policy) {
            Local::Answer(answer) => {
                assert!(answer.records.is_empty(), "{name}");
                answer.zone.map(|zone| (answer.rcode, LowerName::from_wire(&zone)))
            }
            Local::No => None,
            other => panic!("{name}: {other:?}"),
        };
        let outer: LowerName = outer_apex.parse().unwrap();
        let inner: LowerName = inner_apex.parse().unwrap();
        assert_eq!(zone(outer_apex), None, "its parent zone is not local");
        assert_eq!(zone(inner_apex), Some((Rcode::NOERROR, outer.clone())));
        assert_eq!(zone(&format!("1.{outer_apex}")), Some((Rcode::NOERROR, outer.clone())));
        assert_eq!(zone(&format!("z.{outer_apex}")), Some((Rcode::NXDOMAIN, outer)));
        assert_eq!(zone(&format!("1.{inner_apex}")), Some((Rcode::NOERROR, inner)));
    }

    #[test]
    fn item_23_ipv4only_arpa() {
        let policy = policy("2001:db8:64::/96");
        let data = |qtype| match ask("IPv4only.ARPA", qtype, &policy) {
            Local::Answer(answer) => answer.records.into_iter().map(|r| r.data).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(data(rtype::A), [[192, 0, 0, 170], [192, 0, 0, 171]]);
        let aaaa: Vec<Ipv6Addr> = data(rtype::AAAA)
            .into_iter()
            .map(|d| <[u8; 16]>::try_from(d).unwrap().into())
            .collect();
        assert_eq!(
            aaaa,
            ["2001:db8:64::c000:aa", "2001:db8:64::c000:ab"]
                .map(|a| a.parse::<Ipv6Addr>().unwrap())
        );
        assert_eq!(negative(&ask("ipv4only.arpa", 15, &policy)), Some(Rcode::NOERROR));
        assert_eq!(negative(&ask("x.ipv4only.arpa", rtype::A, &policy)), Some(Rcode::NXDOMAIN));
        assert_eq!(ask("ipv4only.arpa", rtype::DS, &policy), Local::No);
        for name in ["170.0.0.192.in-addr.arpa".to_owned(), reverse_name("2001:db8:64::c000:ab")] {
            match ask(&name, rtype::PTR, &policy) {
                Local::Answer(answer) => {
                    assert_eq!(answer.records[0].data, IPV4ONLY_ARPA, "{name}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(ask("169.0.0.192.in-addr.arpa", rtype::PTR, &policy), Local::No);
    }

    /// NODATA would be cached, and would be wrong as soon as a prefix is available (RFC 7050 §3).
    #[test]
    fn item_23_only_aaaa_records_wait_for_a_prefix() {
        let answer = |qtype, policy: &Policy| match ask("ipv4only.arpa", qtype, policy) {
            Local::Answer(answer) => (answer.rcode, answer.records.len()),
            other => panic!("{other:?}"),
        };
        let known = policy("2001:db8:64::/96");
        assert_eq!(answer(rtype::ANY, &known), (Rcode::NOERROR, 4));
        let more_to_come = Policy { awaits_prefix: true, ..known };
        assert_eq!(answer(rtype::AAAA, &more_to_come), (Rcode::NOERROR, 2));
        let none_yet = Policy { mappings: Vec::new(), ..more_to_come };
        assert_eq!(answer(rtype::AAAA, &none_yet), (Rcode::SERVFAIL, 0));
        assert_eq!(answer(rtype::A, &none_yet), (Rcode::NOERROR, 2));
    }
}
