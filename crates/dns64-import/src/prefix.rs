//! Prefixes for IPv4-embedded addresses (RFC 6052 §2.2). They are checked by the same rules as in
//! the configuration of dns64d.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

/// The well-known prefix `64:ff9b::/96` (RFC 6052 §2.1).
pub(super) const WELL_KNOWN: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Bits 64 to 71, which must be zero (RFC 6052 §2.2).
const RESERVED: u128 = 0xff << 56;

/// Parses a prefix. Returns `None` if dns64d does not accept it.
pub(super) fn parse(text: &str) -> Option<Ipv6Net> {
    text.parse().ok().and_then(checked)
}

/// Returns the prefix, or `None` if dns64d does not accept it. A prefix is not accepted if one of
/// these conditions holds:
///
/// - Its length is not one of those allowed by RFC 6052.
/// - Reserved bits, or bits beyond the length, are set.
/// - It contains the well-known prefix, and is shorter.
/// - It is a multicast or link-local prefix, or its first 64 bits are zero.
pub(super) fn checked(prefix: Ipv6Net) -> Option<Ipv6Net> {
    let (address, bits) = (prefix.addr(), u128::from(prefix.addr()));
    let is_network = address == prefix.network() && bits & RESERVED == 0;
    let is_routed = bits >> 64 != 0 && !address.is_multicast() && !address.is_unicast_link_local();
    (has_length(prefix) && is_network && is_routed && !contains_well_known(prefix))
        .then_some(prefix)
}

/// Returns the reason why dns64d does not accept this text as a prefix.
pub(super) fn rejection(text: &str) -> &'static str {
    match text.parse() {
        Ok(prefix) if has_length(prefix) && contains_well_known(prefix) => {
            "it contains the well-known prefix 64:ff9b::/96, so dns64d does not accept it"
        }
        _ => "not an RFC 6052 prefix that dns64d accepts",
    }
}

/// True if RFC 6052 allows the length.
fn has_length(prefix: Ipv6Net) -> bool {
    matches!(prefix.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96)
}

/// True if the prefix contains the well-known prefix, and is shorter.
fn contains_well_known(prefix: Ipv6Net) -> bool {
    prefix.prefix_len() < WELL_KNOWN.prefix_len() && prefix.contains(&WELL_KNOWN)
}

/// True if the suffix sets only bits that come after the embedded IPv4 address. The IPv4 address follows the prefix.
pub(super) fn takes_suffix(prefix: Ipv6Net, suffix: Ipv6Addr) -> bool {
    // The IPv4 address and the reserved bits take 40 bits; after a /96 no bits are left.
    let free = u128::MAX.checked_shr(u32::from(prefix.prefix_len()) + 40).unwrap_or(0);
    u128::from(suffix) & !free == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_the_form_of_rfc_6052() {
        for good in ["64:ff9b::/96", "64:ff9b:1::/48", "2001:db8::/32", "2001:db8:122:300::/56"] {
            assert_eq!(parse(good).map(|prefix| prefix.to_string()).as_deref(), Some(good));
        }
        for bad in [
            "64:ff9b::/72",
            "64:ff9b::1/96",
            "64:ff9b::/64",
            "2001:db8:0:0:100::/96",
            "64:ff9b::",
            "192.0.2.0/24",
            "::/96",
            "fe80::/64",
            "ff02::/96",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn suffixes_start_after_the_ipv4_address() {
        let takes =
            |prefix, suffix: &str| takes_suffix(parse(prefix).unwrap(), suffix.parse().unwrap());
        assert!(takes("2001:db8::/32", "::1:2:3") && takes("2001:db8::/32", "::ff:0:0:0"));
        assert!(!takes("2001:db8::/32", "::100:0:0:0"), "bit 71");
        assert!(takes("2001:db8:0:1::/64", "::ff:ffff") && !takes("2001:db8:0:1::/64", "::100:0"));
        assert!(takes("64:ff9b::/96", "::") && !takes("64:ff9b::/96", "::1"));
    }
}
