//! Discovery of an upstream's prefixes from its answer for `ipv4only.arpa` (RFC 7050 §3).
//!
//! The name `ipv4only.arpa` has two A records, 192.0.0.170 and 192.0.0.171, and no native AAAA
//! records. AAAA records in the answer are therefore synthesized: each consists of the prefix and
//! one of these addresses.

use std::net::Ipv6Addr;

use crate::translation::policy::IPV4ONLY;
use crate::translation::prefix::Prefix;

/// Prefix lengths of RFC 6052 §2.2 in bits, longest first, because most networks use /96.
const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];

/// Returns the prefixes in the AAAA records of an answer, without suffixes and without duplicates, in
/// order of appearance.
///
/// An IPv6 address is accepted if it contains one of the two IPv4 addresses of `ipv4only.arpa` at exactly one position.
/// If several positions match, each position yields a candidate for the prefix. The address is then accepted if, for
/// exactly one candidate, the answer contains the synthesized addresses of both IPv4 addresses. All other IPv6
/// addresses are skipped, because they were not synthesized by a DNS64 or may come from an attacker.
pub(crate) fn prefixes(addresses: &[Ipv6Addr]) -> Vec<Prefix> {
    let mut found: Vec<Prefix> = Vec::new();
    for address in addresses {
        let mut matching: Vec<Prefix> = candidates(*address).collect();
        if matching.len() > 1 {
            matching
                .retain(|prefix| IPV4ONLY.iter().all(|&of| addresses.contains(&prefix.embed(of))));
        }
        let [prefix] = &matching[..] else { continue };
        let prefix = Prefix::new(prefix.network(), prefix.len()).ok();
        found.extend(prefix.filter(|prefix| !found.contains(prefix)));
    }
    found
}

/// Returns the prefixes (with suffixes) with which an address may have been synthesized for `ipv4only.arpa`.
fn candidates(address: Ipv6Addr) -> impl Iterator<Item = Prefix> {
    let made = move |len: u8, ipv4| {
        let network = u128::from(address) & !u128::MAX.checked_shr(len.into()).unwrap_or(0);
        let prefix = Prefix::new(network.into(), len).ok()?;
        let rest = u128::from(address) ^ u128::from(prefix.embed(ipv4));
        prefix.with_suffix(rest.into()).ok()
    };
    LENGTHS
        .into_iter()
        .flat_map(move |len| IPV4ONLY.into_iter().filter_map(move |of| made(len, of)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(addresses: &[&str]) -> Vec<String> {
        let addresses: Vec<Ipv6Addr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        prefixes(&addresses).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_prefix_precedes_a_well_known_address() {
        assert_eq!(found(&["64:ff9b::c000:aa", "64:ff9b::c000:ab"]), ["64:ff9b::/96"]);
        // One address is enough.
        assert_eq!(found(&["2001:db8:64::192.0.0.171"]), ["2001:db8:64::/96"]);
        // Several prefixes, in order.
        let two = ["2001:db8:1::c000:aa", "2001:db8:2::c000:ab", "2001:db8:1::c000:ab"];
        assert_eq!(found(&two), ["2001:db8:1::/96", "2001:db8:2::/96"]);
        // Forms of RFC 6052 §2.4.
        assert_eq!(found(&["2001:db8:c000:aa::"]), ["2001:db8::/32"]);
        assert_eq!(found(&["2001:db8:122:344:c0:0:aa00:0"]), ["2001:db8:122:344::/64"]);
        // With a suffix.
        assert_eq!(found(&["2001:db8:c000:aa::1"]), ["2001:db8::/32"]);
    }

    #[test]
    fn answers_of_no_dns64_are_refused() {
        assert_eq!(found(&[]), [""; 0]);
        assert_eq!(found(&["2001:db8::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]), [""; 0]);
        // No NAT64 can use the prefixes in these addresses.
        assert_eq!(found(&["::ffff:192.0.0.170", "::192.0.0.170", "fe80::192.0.0.170"]), [""; 0]);
        // The first address contains 192.0.0.170 at two positions. Only the second address shows
        // which position is right.
        let twice = ["2001:db8:c000:aa::c000:aa", "2001:db8:c000:aa::c000:ab"];
        assert_eq!(found(&twice[..1]), [""; 0]);
        assert_eq!(found(&twice), ["2001:db8:c000:aa::/96"]);
    }

    proptest! {
        #[test]
        fn prefixes_of_synthesized_records_are_found(network: u128, place in 0..LENGTHS.len()) {
            let len = LENGTHS[place];
            // Octet 8 is reserved.
            let network = network & !u128::MAX.checked_shr(len.into()).unwrap_or(0) & !(0xff << 56);
            let Ok(prefix) = Prefix::new(network.into(), len) else { return Ok(()) };
            let addresses = IPV4ONLY.map(|ipv4| prefix.embed(ipv4));
            prop_assert_eq!(prefixes(&addresses), vec![prefix]);
        }

        #[test]
        fn found_prefixes_precede_a_well_known_address(
            addresses in prop::collection::vec((any::<u128>(), 0u32..97, any::<bool>()), 0..6)
        ) {
            // Each address contains one of the two IPv4 addresses at a random bit position.
            let made = |(noise, at, first): (u128, u32, bool)| {
                let ipv4 = u128::from(u32::from(IPV4ONLY[usize::from(first)]));
                Ipv6Addr::from(noise & !(0xffff_ffff << at) | ipv4 << at)
            };
            let addresses: Vec<Ipv6Addr> = addresses.into_iter().map(made).collect();
            for prefix in prefixes(&addresses) {
                let stands_in = |address: &Ipv6Addr| {
                    let bits = u128::from(*address);
                    IPV4ONLY.iter().any(|&of| {
                        let embedded = u128::from(prefix.embed(of));
                        prefix.covers(*address) && bits & embedded == embedded
                    })
                };
                prop_assert!(addresses.iter().any(stands_in), "{} of {:?}", prefix, addresses);
            }
        }
    }
}
