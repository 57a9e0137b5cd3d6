//! Derivation of the prefixes of a server that embeds IPv4 addresses with octets at wrong positions.
//!
//! Discovery by RFC 7050 §3 finds no prefix of such a server, but the checks need a prefix to describe the error. The
//! prefix ends where the octets of the IPv4 address begin, even if the octets are in the wrong order.

use std::cmp::Reverse;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::expected::Prefix;

/// Lengths of prefixes in bits (RFC 6052 §2.2).
const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// An IPv4 address, and all IPv6 addresses that a server returned for it, synthesized or not.
pub(super) type Sample<'a> = (Ipv4Addr, &'a [Ipv6Addr]);

/// Returns the prefixes that explain all samples. A prefix explains a sample if an IPv6 address of the sample consists
/// of this prefix, followed by the octets of the IPv4 address in any order. If prefixes of several lengths explain the
/// same IPv6 address, only the prefix with the fewest errors is returned.
pub(super) fn nearest(samples: &[Sample<'_>]) -> Vec<Prefix> {
    let [(v4, addresses), others @ ..] = samples else { return Vec::new() };
    let mut found = Vec::new();
    for address in *addresses {
        let explained = |len: &u8| {
            let mut fit = Fit::of(*address, *v4, *len)?;
            for (v4, addresses) in others {
                let fits = addresses.iter().filter_map(|v6| Fit::of(*v6, *v4, *len));
                fit =
                    fit.with(fits.filter(|other| other.prefix == fit.prefix).min_by_key(Fit::key)?);
            }
            Some(fit)
        };
        let fits = LENGTHS.iter().filter_map(explained);
        let best = fits.min_by_key(Fit::key).map(|fit| fit.prefix);
        found.extend(best.filter(|prefix| !found.contains(prefix)));
    }
    found
}

/// A prefix with which a server may have synthesized its addresses, with the number of errors in these addresses.
#[derive(Clone, Copy)]
struct Fit {
    prefix: Prefix,
    /// Number of addresses in which octet "u" is not zero (RFC 6052 §2.2); always 0 for prefixes of 32 or 96 bits. For
    /// other lengths, the order of the five octets after the prefix is not checked: octet "u" is the one that remains
    /// after the four octets of the IPv4 address have been found.
    strange: usize,
    /// Number of octets that differ from those of correctly synthesized addresses.
    wrong: usize,
}

impl Fit {
    /// Returns the prefix of this length in the IPv6 address `v6` if the octets of the IPv4 address `v4` follow it, in
    /// any order. One of these octets may be at the position of octet "u" (bits 64 to 71).
    fn of(v6: Ipv6Addr, v4: Ipv4Addr, len: u8) -> Option<Fit> {
        let octets = v6.octets();
        let begin = usize::from(len / 8);
        let mut network = octets;
        network[begin..].fill(0);
        network[8] = 0;
        let prefix = Prefix::new(network.into(), len).ok()?;
        let end = begin + if (40..=64).contains(&len) { 5 } else { 4 };
        let mut rest = octets[begin..end].to_vec();
        for octet in v4.octets() {
            rest.remove(rest.iter().position(|found| *found == octet)?);
        }
        let right = prefix.with(v4).octets();
        let wrong = right.iter().zip(octets).filter(|(right, found)| **right != *found).count();
        Some(Fit { prefix, strange: usize::from(rest.iter().any(|octet| *octet != 0)), wrong })
    }

    /// Adds the errors that `other` counts in another address with the same prefix.
    fn with(self, other: Fit) -> Fit {
        let (strange, wrong) = (self.strange + other.strange, self.wrong + other.wrong);
        Fit { strange, wrong, ..self }
    }

    /// Returns the sort key. The prefix with fewer nonzero octets "u" comes first. If these are equally many, the
    /// prefix with fewer wrong octets comes first, and after that the longer prefix.
    fn key(&self) -> (usize, usize, Reverse<u8>) {
        (self.strange, self.wrong, Reverse(self.prefix.length()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIXES: [&str; 7] = [
        "64:ff9b::/96",
        "3fff:64::/32",
        "3fff:64:6400::/40",
        "3fff:64:64::/48",
        "3fff:64:64:6400::/56",
        "3fff:64:64:64::/64",
        "3fff:64:64:64:0:64::/96",
    ];
    const WELL_KNOWN: [Ipv4Addr; 2] =
        [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
    const ASYMMETRIC: [Ipv4Addr; 2] =
        [Ipv4Addr::new(9, 38, 71, 150), Ipv4Addr::new(203, 14, 5, 90)];

    /// Returns the prefixes derived from two addresses with this prefix, each changed by `mistake`.
    fn derived(prefix: &str, v4: [Ipv4Addr; 2], mistake: fn(&mut [u8; 16])) -> Vec<String> {
        let prefix: Prefix = prefix.parse().unwrap();
        let made = v4.map(|v4| {
            let mut octets = prefix.with(v4).octets();
            mistake(&mut octets);
            Ipv6Addr::from(octets)
        });
        let found = nearest(&[(v4[0], &made), (v4[1], &made)]);
        found.iter().map(Prefix::to_string).collect()
    }

    #[test]
    fn octet_u_does_not_hide_the_prefix() {
        for prefix in PREFIXES {
            for v4 in [WELL_KNOWN, ASYMMETRIC] {
                assert_eq!(derived(prefix, v4, |octets| octets[8] = 2), [prefix], "{v4:?}");
                assert_eq!(derived(prefix, v4, |_| {}), [prefix], "{v4:?}");
            }
        }
    }

    #[test]
    fn octets_in_another_order_show_the_prefix() {
        for v4 in [WELL_KNOWN, ASYMMETRIC] {
            assert_eq!(derived(PREFIXES[0], v4, |octets| octets.swap(14, 15)), [PREFIXES[0]]);
            assert_eq!(derived(PREFIXES[0], v4, |octets| octets[12..].reverse()), [PREFIXES[0]]);
            assert_eq!(derived(PREFIXES[1], v4, |octets| octets[4..8].reverse()), [PREFIXES[1]]);
            // The IPv4 address also occupies octet "u".
            for prefix in &PREFIXES[2..6] {
                let found = derived(prefix, v4, |octets| octets[8..].rotate_left(1));
                assert_eq!(found, [*prefix], "{v4:?}");
            }
        }
    }

    #[test]
    fn several_prefixes_are_derived_in_their_order() {
        let prefixes: Vec<Prefix> = PREFIXES[..2].iter().map(|p| p.parse().unwrap()).collect();
        let made: Vec<Ipv6Addr> =
            prefixes.iter().flat_map(|prefix| WELL_KNOWN.map(|v4| prefix.with(v4))).collect();
        assert_eq!(nearest(&[(WELL_KNOWN[0], &made), (WELL_KNOWN[1], &made)]), prefixes);
    }

    #[test]
    fn unrelated_addresses_show_no_prefix() {
        let native: [Ipv6Addr; 2] = ["2001:db8::1".parse().unwrap(), "2600::aa".parse().unwrap()];
        assert_eq!(nearest(&[(WELL_KNOWN[0], &native), (WELL_KNOWN[1], &native)]), []);
        // One of the two addresses is not sufficient to derive a prefix.
        let one = ["64:ff9b::c000:aa".parse().unwrap()];
        assert_eq!(nearest(&[(WELL_KNOWN[0], &one), (WELL_KNOWN[1], &one)]), []);
        assert_eq!(nearest(&[]), []);
    }
}
