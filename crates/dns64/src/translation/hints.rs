//! Address hints of HTTPS and SVCB records (RFC 9460 §7.3) for clients behind a NAT64.
//!
//! A client may connect to an address in a hint without querying for addresses. An `ipv4hint` is useless to a client
//! without IPv4. The hint can be removed, or replaced by an `ipv6hint` with the synthesized addresses of the target.
//! The replacement departs from RFC 9460 §4.2.1. In both cases, excluded addresses are also removed from an `ipv6hint`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::translation::policy::{Hints, Policy};

/// Keys of service parameters (RFC 9460 §14.3.2).
const MANDATORY: u16 = 0;
const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;

/// The data of an HTTPS or SVCB record with an uncompressed name.
#[derive(Clone, Debug)]
pub(crate) struct Service<'a> {
    /// Priority and target name, in wire format.
    head: &'a [u8],
    /// Service parameters in ascending order of their keys.
    params: Vec<(u16, &'a [u8])>,
}

impl<'a> Service<'a> {
    /// Parses the data of a record. Returns `None` if the data are malformed. Also returns `None` if the record is in
    /// AliasMode, which allows no parameters (RFC 9460 §2.4.2).
    pub(crate) fn read(data: &'a [u8]) -> Option<Service<'a>> {
        if data.get(..2)? == [0, 0] {
            return None;
        }
        let mut at = 2;
        loop {
            let len = usize::from(*data.get(at)?);
            at += 1 + len;
            match len {
                0 => break,
                1..=63 => {}
                _ => return None,
            }
        }
        let (head, mut rest) = data.split_at_checked(at)?;
        let mut params: Vec<(u16, &[u8])> = Vec::new();
        while !rest.is_empty() {
            let (&[k0, k1, l0, l1], after) = rest.split_first_chunk::<4>()?;
            let (key, len) = (u16::from_be_bytes([k0, k1]), u16::from_be_bytes([l0, l1]));
            let (value, after) = after.split_at_checked(len.into())?;
            if params.last().is_some_and(|(before, _)| *before >= key) {
                return None;
            }
            params.push((key, value));
            rest = after;
        }
        Some(Service { head, params })
    }

    /// Returns the name to which the hints belong (wire format), or `None` if this name is the owner
    /// of the record.
    pub(crate) fn target(&self) -> Option<&'a [u8]> {
        Some(&self.head[2..]).filter(|name| name.len() > 1)
    }

    /// Returns the record data after the address hints have been adapted to a client. Returns `None` if the data stay
    /// unchanged, for example because a hint is malformed. At most `most` hints are synthesized.
    pub(crate) fn rewritten(
        &self,
        policy: &Policy,
        client: IpAddr,
        native: Native,
        most: usize,
    ) -> Option<Vec<u8>> {
        let ipv4: Vec<Ipv4Addr> = self.hint(IPV4_HINT)?;
        let before: Vec<Ipv6Addr> = self.hint(IPV6_HINT)?;
        let mut ipv6 = given(&before, policy);
        let keeps_ipv4 = match policy.hints {
            Hints::Keep => return None,
            Hints::Strip => false,
            Hints::Translate if !policy.synthesizes() => return None,
            Hints::Translate => {
                if ipv6.is_empty() && matches!(native, Native::None(_)) {
                    ipv6 = embedded(&ipv4, policy, client).take(most).collect();
                }
                ipv6.is_empty() && native != Native::Some
            }
        };
        if ipv6 == before && (keeps_ipv4 || ipv4.is_empty()) {
            return None;
        }
        let ipv4 = self.param(IPV4_HINT).filter(|_| keeps_ipv4).map(<[u8]>::to_vec);
        let ipv6: Vec<u8> = ipv6.iter().flat_map(Ipv6Addr::octets).collect();
        self.with_hints(ipv4, Some(ipv6).filter(|hints| !hints.is_empty()))
    }

    /// True if an `ipv6hint` can be synthesized for this record. The caller must also check that the target has no AAAA
    /// records.
    pub(crate) fn is_synthesized(&self, policy: &Policy, client: IpAddr) -> bool {
        let hints = || Some((self.hint(IPV4_HINT)?, self.hint(IPV6_HINT)?));
        policy.hints == Hints::Translate
            && policy.synthesizes()
            && hints().is_some_and(|(ipv4, ipv6): (Vec<Ipv4Addr>, Vec<Ipv6Addr>)| {
                given(&ipv6, policy).is_empty() && embedded(&ipv4, policy, client).next().is_some()
            })
    }

    /// Returns the data of the record with new IPv4 hints (`ipv4hint`) and IPv6 hints (`ipv6hint`). The list of
    /// mandatory keys (`mandatory`) is changed accordingly. Returns `None` if a value is too long.
    fn with_hints(&self, ipv4: Option<Vec<u8>>, ipv6: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let mut params: Vec<(u16, Vec<u8>)> = Vec::with_capacity(self.params.len() + 1);
        for &(key, value) in &self.params {
            match key {
                IPV4_HINT | IPV6_HINT => {}
                MANDATORY => {
                    let keys = mandatory(value, ipv4.is_some(), ipv6.is_some());
                    params.extend(keys.map(|keys| (key, keys)));
                }
                _ => params.push((key, value.to_vec())),
            }
        }
        params.extend(ipv4.map(|hints| (IPV4_HINT, hints)));
        params.extend(ipv6.map(|hints| (IPV6_HINT, hints)));
        params.sort_by_key(|(key, _)| *key);
        let mut data = self.head.to_vec();
        for (key, value) in params {
            data.extend(key.to_be_bytes());
            data.extend(u16::try_from(value.len()).ok()?.to_be_bytes());
            data.extend(value);
        }
        Some(data)
    }

    /// Returns the addresses of a hint. The list is empty if the hint is absent. Returns `None` if
    /// the hint is malformed.
    fn hint<const N: usize, A: From<[u8; N]>>(&self, key: u16) -> Option<Vec<A>> {
        let Some(value) = self.param(key) else { return Some(Vec::new()) };
        let (all, rest) = value.as_chunks::<N>();
        (rest.is_empty() && !all.is_empty())
            .then(|| all.iter().map(|&octets| A::from(octets)).collect())
    }

    fn param(&self, key: u16) -> Option<&'a [u8]> {
        self.params.iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }
}

/// Information on the native AAAA records of a hint's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Native {
    /// The target has AAAA records that are not excluded.
    Some,
    /// The target has no AAAA records, or only excluded ones. This information is valid for the given number of
    /// seconds.
    None(u32),
    /// It is not known whether the target has AAAA records.
    Unknown,
}

/// Returns the addresses of an `ipv6hint` without those that the policy excludes.
fn given(native: &[Ipv6Addr], policy: &Policy) -> Vec<Ipv6Addr> {
    let is_given = |address: &Ipv6Addr| !policy.synthesizes() || !policy.excludes(*address);
    native.iter().copied().filter(is_given).collect()
}

/// Returns the IPv6 addresses that are synthesized from the addresses of an `ipv4hint`.
fn embedded(ipv4: &[Ipv4Addr], policy: &Policy, client: IpAddr) -> impl Iterator<Item = Ipv6Addr> {
    ipv4.iter().flat_map(move |&address| policy.embed(address, client))
}

/// Returns the list of keys that a client must understand (RFC 9460 §8), without the keys of removed hints. If an
/// `ipv4hint` was removed, its key is replaced by the key of the `ipv6hint`. Returns `None` if no key is left.
fn mandatory(keys: &[u8], has_ipv4: bool, has_ipv6: bool) -> Option<Vec<u8>> {
    let (keys, _) = keys.as_chunks::<2>();
    let replaced = keys.iter().map(|&key| match u16::from_be_bytes(key) {
        IPV4_HINT if !has_ipv4 => IPV6_HINT,
        key => key,
    });
    let mut kept: Vec<u16> = replaced.filter(|&key| key != IPV6_HINT || has_ipv6).collect();
    kept.sort_unstable();
    kept.dedup();
    Some(kept.iter().flat_map(|key| key.to_be_bytes()).collect())
        .filter(|keys: &Vec<u8>| !keys.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wire;

    /// Returns a record's data: priority, target, parameters.
    fn data(priority: u16, target: &str, params: &[(u16, &[u8])]) -> Vec<u8> {
        let mut data = priority.to_be_bytes().to_vec();
        data.extend(wire(target));
        for (key, value) in params {
            data.extend(key.to_be_bytes());
            data.extend((value.len() as u16).to_be_bytes());
            data.extend(*value);
        }
        data
    }

    fn policy(hints: Hints) -> Policy {
        Policy { hints, ..Policy::default() }
    }

    const MANY: usize = 2_000;

    /// Returns the data for a target without AAAA records.
    fn rewritten(data: &[u8], policy: &Policy) -> Option<Vec<u8>> {
        rewritten_for(data, policy, Native::None(60))
    }

    fn rewritten_for(data: &[u8], policy: &Policy, native: Native) -> Option<Vec<u8>> {
        Service::read(data)?.rewritten(policy, Ipv4Addr::LOCALHOST.into(), native, MANY)
    }

    const ALPN: (u16, &[u8]) = (1, b"\x02h2");
    const NO_DEFAULT: (u16, &[u8]) = (2, b"");
    const ECH: (u16, &[u8]) = (5, b"ech");
    const V4: (u16, &[u8]) = (4, &[8, 8, 8, 8]);
    const PRIVATE: (u16, &[u8]) = (4, &[10, 0, 0, 1]);
    /// 64:ff9b::808:808.
    const MADE: (u16, &[u8]) = (6, &[0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8]);
    const NATIVE: (u16, &[u8]) = (6, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    const MAPPED: (u16, &[u8]) = (6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 8, 8, 8, 8]);
    /// The addresses of MAPPED and NATIVE.
    const BOTH: (u16, &[u8]) = (
        6,
        &[
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 8, 8, 8, 8, //
            0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        ],
    );

    #[test]
    fn rfc9460_7_3_hints_are_kept_stripped_or_translated() {
        type Params<'a> = &'a [(u16, &'a [u8])];
        let cases: [(&str, Hints, Params<'_>, Option<Params<'_>>); 28] = [
            ("kept", Hints::Keep, &[V4], None),
            (
                "stripped",
                Hints::Strip,
                &[ALPN, NO_DEFAULT, V4, ECH],
                Some(&[ALPN, NO_DEFAULT, ECH]),
            ),
            ("nothing left", Hints::Strip, &[V4], Some(&[])),
            ("native stays", Hints::Strip, &[V4, NATIVE], Some(&[NATIVE])),
            ("no hint", Hints::Strip, &[ALPN, NATIVE], None),
            ("translated", Hints::Translate, &[ALPN, V4, ECH], Some(&[ALPN, ECH, MADE])),
            ("native counts", Hints::Translate, &[V4, NATIVE], Some(&[NATIVE])),
            ("mapped is excluded", Hints::Translate, &[V4, MAPPED], Some(&[MADE])),
            ("no prefix carries it", Hints::Translate, &[ALPN, PRIVATE], None),
            (
                "mandatory",
                Hints::Translate,
                &[(0, &[0, 1, 0, 4]), ALPN, V4],
                Some(&[(0, &[0, 1, 0, 6]), ALPN, MADE]),
            ),
            (
                "both mandatory",
                Hints::Translate,
                &[(0, &[0, 4, 0, 6]), V4, NATIVE],
                Some(&[(0, &[0, 6]), NATIVE]),
            ),
            (
                "mandatory, stripped",
                Hints::Strip,
                &[(0, &[0, 1, 0, 4]), ALPN, V4],
                Some(&[(0, &[0, 1]), ALPN]),
            ),
            ("nothing mandatory left", Hints::Strip, &[(0, &[0, 4]), ALPN, V4], Some(&[ALPN])),
            ("half an address", Hints::Strip, &[(4, &[8, 8])], None),
            ("one and a half", Hints::Translate, &[(4, &[8, 8, 8, 8, 8, 8])], None),
            ("half a native address", Hints::Translate, &[V4, (6, &[0x20, 1])], None),
            ("no hint to translate", Hints::Translate, &[ALPN], None),
            ("native only", Hints::Translate, &[ALPN, NATIVE], None),
            ("excluded only", Hints::Translate, &[ALPN, ECH, MAPPED], Some(&[ALPN, ECH])),
            ("one of two is excluded", Hints::Translate, &[BOTH], Some(&[NATIVE])),
            (
                "excluded and mandatory",
                Hints::Translate,
                &[(0, &[0, 1, 0, 6]), ALPN, MAPPED],
                Some(&[(0, &[0, 1]), ALPN]),
            ),
            ("only that is mandatory", Hints::Translate, &[(0, &[0, 6]), MAPPED], Some(&[])),
            (
                "excluded, and no prefix carries the other one",
                Hints::Translate,
                &[(0, &[0, 4, 0, 6]), PRIVATE, MAPPED],
                Some(&[(0, &[0, 4]), PRIVATE]),
            ),
            ("excluded, stripped", Hints::Strip, &[ALPN, MAPPED], Some(&[ALPN])),
            ("both kinds, stripped", Hints::Strip, &[V4, MAPPED], Some(&[])),
            ("one of two, stripped", Hints::Strip, &[BOTH], Some(&[NATIVE])),
            ("half a native address, stripped", Hints::Strip, &[V4, (6, &[0x20, 1])], None),
            (
                "excluded and mandatory, stripped",
                Hints::Strip,
                &[(0, &[0, 1, 0, 6]), ALPN, MAPPED],
                Some(&[(0, &[0, 1]), ALPN]),
            ),
        ];
        for (name, hints, params, expected) in cases {
            let found = rewritten(&data(1, "svc.test", params), &policy(hints));
            assert_eq!(found, expected.map(|params| data(1, "svc.test", params)), "{name}");
        }
        let off = |hints| Policy { mappings: Vec::new(), ..policy(hints) };
        assert_eq!(rewritten(&data(1, ".", &[V4]), &off(Hints::Translate)), None, "no prefix");
        let mapped = data(1, ".", &[MAPPED]);
        assert_eq!(rewritten(&mapped, &off(Hints::Strip)), None, "nothing is excluded");
        let ignoring = Policy { ignore_aaaa: true, ..policy(Hints::Translate) };
        let found = rewritten(&data(1, ".", &[V4, NATIVE]), &ignoring);
        assert_eq!(found, Some(data(1, ".", &[MADE])), "as for AAAA records");
        let found = rewritten(&data(1, ".", &[ALPN, NATIVE]), &ignoring);
        assert_eq!(found, Some(data(1, ".", &[ALPN])), "as for AAAA records, without an ipv4hint");
    }

    /// RFC 9460 §4.2.1: the target's AAAA records are not replaced.
    #[test]
    fn item_20_hints_only_without_aaaa_records() {
        let translate = policy(Hints::Translate);
        let mandatory = (0, &[0, 1, 0, 4][..]);
        for (name, native, params, expected) in [
            ("native", Native::Some, &[ALPN, V4][..], Some(&[ALPN][..])),
            (
                "native, mandatory",
                Native::Some,
                &[mandatory, ALPN, V4],
                Some(&[(0, &[0, 1]), ALPN]),
            ),
            ("native, with hint", Native::Some, &[V4, NATIVE], Some(&[NATIVE])),
            ("native, excluded hint", Native::Some, &[ALPN, V4, MAPPED], Some(&[ALPN])),
            ("unknown", Native::Unknown, &[ALPN, V4], None),
            ("unknown, with hint", Native::Unknown, &[V4, NATIVE], Some(&[NATIVE])),
            ("unknown, excluded hint", Native::Unknown, &[V4, MAPPED], Some(&[V4])),
        ] {
            let found = rewritten_for(&data(1, ".", params), &translate, native);
            assert_eq!(found, expected.map(|params| data(1, ".", params)), "{name}");
        }
        let is_synthesized = |params: &[(u16, &[u8])], policy: &Policy| {
            let data = data(1, ".", params);
            Service::read(&data).unwrap().is_synthesized(policy, Ipv4Addr::LOCALHOST.into())
        };
        for (params, expected) in [
            (&[ALPN, V4][..], true),
            (&[V4, MAPPED], true),
            (&[ALPN, PRIVATE], false),
            (&[V4, NATIVE], false),
            (&[ALPN, NATIVE], false),
            (&[(4, &[8, 8])], false),
        ] {
            assert_eq!(is_synthesized(params, &translate), expected, "{params:?}");
            assert!(!is_synthesized(params, &policy(Hints::Strip)), "{params:?}");
        }
    }

    #[test]
    fn item_20_documents_quote_the_deviation() {
        let quotation =
            "DNS64 resolvers MUST NOT extrapolate the AAAA synthesis logic to the IP hints";
        for page in [
            include_str!("../../../../docs/src/dns64-items.md"),
            include_str!("../../../../docs/src/dns64d/configuration.md"),
        ] {
            let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(quotation), "{}", page.lines().next().unwrap());
        }
    }

    #[test]
    fn rfc9460_2_2_malformed_and_alias_unchanged() {
        let strip = policy(Hints::Strip);
        let good = data(1, "svc.test", &[ALPN, V4]);
        for len in 0..good.len() {
            // If the data are cut between two parameters, the result is a valid record without the hint.
            assert_eq!(rewritten(&good[..len], &strip), None, "{len} octets");
        }
        assert_eq!(rewritten(&data(0, "svc.test", &[V4]), &strip), None, "alias");
        assert_eq!(rewritten(&data(1, "svc.test", &[V4, ALPN]), &strip), None, "out of order");
        assert_eq!(
            rewritten(&[0, 1, 0xc0, 12, 0, 4, 0, 4, 8, 8, 8, 8], &strip),
            None,
            "compressed"
        );
        assert_eq!(Service::read(&good).unwrap().target(), Some(&wire("svc.test")[..]));
        assert_eq!(Service::read(&data(1, ".", &[V4])).unwrap().target(), None);
    }
}
