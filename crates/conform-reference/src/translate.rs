//! Implementation of RFC 6052 for the reference server: IPv4-embedded IPv6 addresses, and the names of these addresses
//! in ip6.arpa.

use std::net::{Ipv4Addr, Ipv6Addr};

use conform::expected::Prefix;
use conform::message::{Name, name};
use domain::base::name::ToLabelIter;

/// DNS64 prefix. `bits` also contains the suffix, which follows the IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pref64 {
    bits: u128,
    len: u32,
}

/// Non-global addresses (RFC 6052 §3.1): RFC 1918, RFC 5735 §3, and the shared address space of
/// RFC 6598.
const NON_GLOBAL: [(Ipv4Addr, u32); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Addresses of ipv4only.arpa (RFC 7050 §2.2).
pub(super) const WELL_KNOWN_V4: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

impl Pref64 {
    /// Converts a prefix from the type that the checks use. The prefix is converted to text and parsed again, so that
    /// the reference server and the checks share no code that computes with addresses.
    pub(super) fn from_prefix(prefix: Prefix) -> Pref64 {
        let text = prefix.to_string();
        let address = text.split('/').next().and_then(|address| address.parse::<Ipv6Addr>().ok());
        let bits = u128::from(address.expect("a prefix is written as ADDRESS/LENGTH"));
        Pref64 { bits, len: u32::from(prefix.length()) }
    }

    /// Embeds `v4`. The 32 bits of `v4` follow the prefix. Bits 64 to 71 stay zero. Bits of `v4` that would be at bit
    /// 64 or later are therefore shifted by one octet (RFC 6052 §2.2).
    pub(super) fn embed(self, v4: Ipv4Addr) -> Ipv6Addr {
        let flat = u128::from(u32::from(v4)) << (96 - self.len);
        let placed = match self.len {
            96 => flat,
            _ => flat & LEFT | (flat & RIGHT) >> 8,
        };
        Ipv6Addr::from(self.bits | placed)
    }

    /// Returns the IPv4 address in `v6`, if `v6` lies below the prefix and bits 64 to 71 are zero. Any
    /// suffix is accepted, because it is reserved (RFC 6052 §2.2).
    pub(super) fn extract(self, v6: Ipv6Addr) -> Option<Ipv4Addr> {
        let v6 = u128::from(v6);
        if (v6 ^ self.bits) >> (128 - self.len) != 0 || v6 & U_OCTET != 0 {
            return None;
        }
        let flat = match self.len {
            96 => v6,
            _ => v6 & LEFT | (v6 & RIGHT) << 8,
        };
        let [.., a, b, c, d] = (flat >> (96 - self.len)).to_be_bytes();
        Some(Ipv4Addr::new(a, b, c, d))
    }

    /// Returns true for 64:ff9b::/96.
    pub(super) fn is_well_known(self) -> bool {
        self.bits == 0x64_ff9b << 96 && self.len == 96
    }

    /// Returns true if `node` is the ip6.arpa name of the prefix, or lies between that name and the name of an address
    /// below the prefix.
    pub(super) fn has_node(self, node: &Name) -> bool {
        // The name of an address has 35 labels: 32 nibbles, "ip6", "arpa" and the root.
        let missing = 35_usize.saturating_sub(node.label_count());
        let below = || address_of(&name(&format!("{}{node}", "0.".repeat(missing))));
        (1..=32 - self.len as usize / 4).contains(&missing)
            && below().is_some_and(|v6| self.extract(v6).is_some())
    }

    /// Returns the ip6.arpa name of the prefix.
    pub(super) fn zone(self) -> Name {
        let nibbles = (0..self.len / 4).map(|n| self.bits >> (124 - 4 * n) & 0xf);
        name(&nibbles.fold("ip6.arpa".to_owned(), |text, nibble| format!("{nibble:x}.{text}")))
    }
}

const LEFT: u128 = !0 << 64;
const RIGHT: u128 = !LEFT;
const U_OCTET: u128 = 0xff << 56;

/// Returns true if the Well-Known Prefix may be used with this address (RFC 6052 §3.1). The addresses of ipv4only.arpa
/// are allowed, because otherwise no client could discover the prefix (RFC 7050 §3).
pub(super) fn is_global(v4: Ipv4Addr) -> bool {
    let octets_lie_in =
        |(net, len): (Ipv4Addr, u32)| (u32::from(v4) ^ u32::from(net)) >> (32 - len) == 0;
    WELL_KNOWN_V4.contains(&v4) || !NON_GLOBAL.into_iter().any(octets_lie_in)
}

/// Returns true if `v6` lies in one of the ranges.
pub(super) fn is_in(v6: Ipv6Addr, ranges: &[(Ipv6Addr, u8)]) -> bool {
    ranges.iter().any(|(net, len)| {
        let differing = u128::from(v6) ^ u128::from(*net);
        differing.checked_shr(128 - u32::from(*len)).unwrap_or(0) == 0
    })
}

/// Returns the IPv6 address that a name in ip6.arpa represents (RFC 3596 §2.5).
pub(super) fn address_of(name: &Name) -> Option<Ipv6Addr> {
    let labels: Vec<String> =
        name.iter_labels().map(|label| label.to_string().to_ascii_lowercase()).collect();
    let (nibbles, above) = labels.split_at_checked(32)?;
    let under_arpa = above.len() == 3 && above[0] == "ip6" && above[1] == "arpa";
    let digits = nibbles.iter().all(|nibble| nibble.len() == 1);
    let text: String = nibbles.iter().rev().map(String::as_str).collect();
    let hexadecimal = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !under_arpa || !digits || !hexadecimal {
        return None;
    }
    u128::from_str_radix(&text, 16).ok().map(Ipv6Addr::from)
}

/// Returns the in-addr.arpa name of `v4` (RFC 1035 §3.5).
pub(super) fn reverse_of(v4: Ipv4Addr) -> Name {
    let [a, b, c, d] = v4.octets();
    name(&format!("{d}.{c}.{b}.{a}.in-addr.arpa"))
}

#[cfg(test)]
mod tests {
    use domain::base::ToName;

    use super::*;

    fn pref64(text: &str) -> Pref64 {
        Pref64::from_prefix(text.parse().unwrap())
    }

    /// RFC 6052 §2.4, tables 1 and 2.
    #[test]
    fn rfc_6052_2_4_vectors() {
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 33), address.parse().unwrap());
            assert_eq!(pref64(prefix).embed(v4), v6, "{prefix}");
            assert_eq!(pref64(prefix).extract(v6), Some(v4), "{prefix}");
        }
        assert_eq!(pref64("64:ff9b::/96").extract("64:ff9c::1".parse().unwrap()), None);
        assert!(pref64("64:ff9b::/96").is_well_known());
        assert!(!pref64("2001:db8::/32").is_well_known());
    }

    #[test]
    fn rfc_6052_3_1_global_addresses() {
        for v4 in ["1.2.3.4", "8.8.8.8", "100.63.255.255", "172.32.0.1", "192.0.0.170"] {
            assert!(is_global(v4.parse().unwrap()), "{v4}");
        }
        for v4 in ["10.1.2.3", "100.64.0.1", "172.31.9.9", "192.0.0.1", "198.19.0.1", "255.1.1.1"] {
            assert!(!is_global(v4.parse().unwrap()), "{v4}");
        }
    }

    #[test]
    fn ranges_of_any_length() {
        let mapped = [("::ffff:0:0".parse().unwrap(), 96)];
        assert!(is_in("::ffff:1.2.3.4".parse().unwrap(), &mapped));
        assert!(!is_in("2001:db8::1".parse().unwrap(), &mapped));
        assert!(is_in("2001:db8::1".parse().unwrap(), &[(Ipv6Addr::UNSPECIFIED, 0)]));
        assert!(!is_in("::2".parse().unwrap(), &[("::1".parse().unwrap(), 128)]));
    }

    #[test]
    fn rfc_3596_2_5_names_of_addresses() {
        let zone = pref64("64:ff9b::/96").zone();
        let owner = name(&format!("4.0.3.0.2.0.1.0.{zone}"));
        assert_eq!(address_of(&owner), Some("64:ff9b::1.2.3.4".parse().unwrap()));
        assert_eq!(address_of(&zone), None);
        assert_eq!(address_of(&name(&format!("4.0.3.0.2.0.01.0.{zone}"))), None);
        assert_eq!(address_of(&name(&format!("g.0.3.0.2.0.1.0.{zone}"))), None);
        assert_eq!(reverse_of(Ipv4Addr::new(1, 2, 3, 4)), name("4.3.2.1.in-addr.arpa"));
    }

    #[test]
    fn rfc_8020_2_nodes_above_addresses() {
        let prefix = pref64("64:ff9b::/96");
        let zone = prefix.zone();
        assert!(prefix.has_node(&zone));
        assert!(prefix.has_node(&name(&format!("0.3.0.2.0.1.0.{zone}"))));
        assert!(!prefix.has_node(&name(&format!("4.0.3.0.2.0.1.0.{zone}"))), "an address");
        assert!(!prefix.has_node(&name(&format!("z.0.{zone}"))));
        assert!(!prefix.has_node(&zone.parent().unwrap().to_name()), "above the prefix");
        assert!(!prefix.has_node(&name("ip6.arpa")));
        let prefix = pref64("3fff:64::/32");
        assert!(
            !prefix.has_node(&name(&format!("1.4.0.3.0.2.0.1.0.{}", prefix.zone()))),
            "octet u"
        );
    }
}
