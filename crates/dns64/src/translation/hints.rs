//! Address hints of HTTPS and SVCB records (RFC 9460 §7.3) for clients behind a NAT64.
//!
//! A client may connect to a hint without asking for addresses at all, so an `ipv4hint` leads a
//! client without IPv4 nowhere, or to a translator of its own. It can be left out, or become the
//! `ipv6hint` that the AAAA records of the same name would have led to; an `ipv6hint` of excluded
//! addresses is left out then, as such AAAA records are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::translation::policy::{Hints, Policy};

/// Keys of service parameters (RFC 9460 §14.3.2).
const MANDATORY: u16 = 0;
const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;

/// The data of an HTTPS or SVCB record, its name uncompressed.
#[derive(Clone, Debug)]
pub(crate) struct Service<'a> {
    /// Priority and target as they stand.
    head: &'a [u8],
    /// The parameters, by ascending keys.
    params: Vec<(u16, &'a [u8])>,
}

impl<'a> Service<'a> {
    /// Reads a record's data; `None` if it is malformed, or has no parameters because it is an alias
    /// (RFC 9460 §2.4.2).
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

    /// The name whose addresses the hints are, in wire format; `None`: that of the record.
    pub(crate) fn target(&self) -> Option<&'a [u8]> {
        Some(&self.head[2..]).filter(|name| name.len() > 1)
    }

    /// The record's data for a client who is given AAAA records of the target by this policy; `None`
    /// if it stays as it is.
    pub(crate) fn rewritten(&self, policy: &Policy, client: IpAddr) -> Option<Vec<u8>> {
        let (ipv4, ipv6) = match policy.hints {
            Hints::Keep => return None,
            Hints::Strip => {
                let ipv4: Vec<Ipv4Addr> = self.hint(IPV4_HINT)?;
                if ipv4.is_empty() {
                    return None;
                }
                (None, self.param(IPV6_HINT).map(<[u8]>::to_vec))
            }
            Hints::Translate => self.translated(policy, client)?,
        };
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

    /// The `ipv4hint` and the `ipv6hint` in place of both. The second one has the native addresses
    /// that the policy does not exclude, or else what the prefixes make of the IPv4 addresses, as with
    /// AAAA records; it is left out if there are none. The first one stays then, and only then. `None`
    /// if both stay as they are, or one of them is malformed.
    fn translated(&self, policy: &Policy, client: IpAddr) -> Option<Hinted> {
        if !policy.translates() {
            return None;
        }
        let ipv4: Vec<Ipv4Addr> = self.hint(IPV4_HINT)?;
        let native: Vec<Ipv6Addr> = self.hint(IPV6_HINT)?;
        let is_given = |address: &Ipv6Addr| !policy.excludes(*address);
        let mut hints: Vec<Ipv6Addr> = native.iter().copied().filter(is_given).collect();
        if hints.is_empty() {
            hints = ipv4.iter().flat_map(|&address| policy.embed(address, client)).collect();
        }
        let made: Option<Vec<u8>> =
            (!hints.is_empty()).then(|| hints.iter().flat_map(Ipv6Addr::octets).collect());
        let kept = self.param(IPV4_HINT).filter(|_| made.is_none()).map(<[u8]>::to_vec);
        let is_changed = hints != native || kept.as_deref() != self.param(IPV4_HINT);
        is_changed.then_some((kept, made))
    }

    /// The addresses of a hint, none if it is not there; `None` if it is malformed.
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

/// The values of `ipv4hint` and `ipv6hint`; `None` for one that is left out.
type Hinted = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The keys that a client must understand (RFC 9460 §8): what is not there any more cannot be among
/// them, and an `ipv6hint` that was made of an `ipv4hint` takes its place. `None` if none is left.
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

    /// A record's data: priority, target, parameters.
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

    fn rewritten(data: &[u8], policy: &Policy) -> Option<Vec<u8>> {
        Service::read(data)?.rewritten(policy, Ipv4Addr::LOCALHOST.into())
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
    /// MAPPED's address and NATIVE's.
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
        let cases: [(&str, Hints, Params<'_>, Option<Params<'_>>); 24] = [
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
            ("excluded, stripped", Hints::Strip, &[MAPPED], None),
        ];
        for (name, hints, params, expected) in cases {
            let found = rewritten(&data(1, "svc.test", params), &policy(hints));
            assert_eq!(found, expected.map(|params| data(1, "svc.test", params)), "{name}");
        }
        let off = Policy { mappings: Vec::new(), ..policy(Hints::Translate) };
        assert_eq!(rewritten(&data(1, ".", &[V4]), &off), None, "no prefix");
        let ignoring = Policy { ignore_aaaa: true, ..policy(Hints::Translate) };
        let found = rewritten(&data(1, ".", &[V4, NATIVE]), &ignoring);
        assert_eq!(found, Some(data(1, ".", &[MADE])), "as for AAAA records");
        let found = rewritten(&data(1, ".", &[ALPN, NATIVE]), &ignoring);
        assert_eq!(found, Some(data(1, ".", &[ALPN])), "as for AAAA records, without an ipv4hint");
    }

    #[test]
    fn rfc9460_2_2_what_is_malformed_or_an_alias_is_not_touched() {
        let strip = policy(Hints::Strip);
        let good = data(1, "svc.test", &[ALPN, V4]);
        for len in 0..good.len() {
            // Cut between two parameters it is another record, without the hint.
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
