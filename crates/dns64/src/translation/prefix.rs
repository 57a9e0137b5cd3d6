//! Embedding and extraction of IPv4 addresses in IPv6 addresses (RFC 6052 §2.2), for all six prefix
//! lengths, with or without a suffix.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Octet 8 of an address, which RFC 6052 §2.2 reserves ("u").
const U_OCTET: u128 = 0xff << 56;

/// A prefix for IPv4-embedded IPv6 addresses (RFC 6052 §2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    network: u128,
    len: u8,
    suffix: u128,
}

impl Prefix {
    /// The well-known prefix `64:ff9b::/96` (RFC 6052 §2.1).
    pub const WELL_KNOWN: Prefix = Prefix { network: 0x64_ff9b << 96, len: 96, suffix: 0 };

    /// Returns the prefix `network/len`.
    ///
    /// # Errors
    /// Returns an error if RFC 6052 §2.2 does not allow the length, or if bits beyond the length or in octet 8 are set.
    /// Also returns an error if the prefix is not routable, or if it is a shorter prefix that contains the well-known
    /// prefix.
    pub fn new(network: Ipv6Addr, len: u8) -> Result<Prefix, PrefixError> {
        let bits = u128::from(network);
        if ![32, 40, 48, 56, 64, 96].contains(&len) {
            return Err(PrefixError::Length(len));
        }
        if bits & (u128::MAX >> len) != 0 {
            return Err(PrefixError::HostBits(len));
        }
        if bits & U_OCTET != 0 {
            return Err(PrefixError::ReservedOctet);
        }
        if len < Prefix::WELL_KNOWN.len && Prefix::WELL_KNOWN.network & !(u128::MAX >> len) == bits
        {
            return Err(PrefixError::CoversWellKnown(len));
        }
        // The first 64 bits of unspecified, loopback, IPv4-compatible and IPv4-mapped addresses are zero
        // (RFC 4291 §2.5).
        if bits >> 64 == 0 || network.is_multicast() || network.is_unicast_link_local() {
            return Err(PrefixError::Unroutable(network));
        }
        Ok(Prefix { network: bits, len, suffix: 0 })
    }

    /// Returns the prefix with this suffix. The suffix gives the bits after the IPv4 address.
    ///
    /// # Errors
    /// Returns an error if the suffix overlaps the prefix, the IPv4 address or octet 8.
    pub fn with_suffix(self, suffix: Ipv6Addr) -> Result<Prefix, PrefixError> {
        let suffix = u128::from(suffix);
        if suffix & !self.suffix_mask() != 0 {
            return Err(PrefixError::Suffix { len: self.len, suffix: suffix.into() });
        }
        Ok(Prefix { suffix, ..self })
    }

    /// Returns the length in bits: 32, 40, 48, 56, 64 or 96.
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Always returns false, because no prefix has the length 0. The shortest has 32 bits.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the network address of the prefix.
    pub fn network(&self) -> Ipv6Addr {
        self.network.into()
    }

    /// True if `address` begins with the prefix.
    pub fn covers(&self, address: Ipv6Addr) -> bool {
        u128::from(address) & !(u128::MAX >> self.len) == self.network
    }

    /// Returns the IPv6 address in which `address` is embedded.
    #[inline]
    pub fn embed(&self, address: Ipv4Addr) -> Ipv6Addr {
        (self.network | self.shifted(u32::from(address)) | self.suffix).into()
    }

    /// Returns the IPv4 address embedded in `address`. Returns `None` if embedding that IPv4 address again
    /// ([`Prefix::embed`]) would yield a different IPv6 address.
    pub fn extract(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = u128::from(address);
        let low = match self.len {
            96 => bits as u32,
            len => {
                // The 120 bits of the address without octet 8. The IPv4 address follows the first
                // `len` bits.
                let packed = (bits >> 64) << 56 | bits & (U_OCTET - 1) & ((1 << 56) - 1);
                (packed >> (120 - 32 - u32::from(len))) as u32
            }
        };
        let v4 = Ipv4Addr::from(low);
        (self.embed(v4) == address).then_some(v4)
    }

    /// Returns the IPv4 address embedded in `address`. Unlike [`Prefix::extract`], this function accepts any suffix,
    /// as RFC 6052 §2.2 recommends.
    pub(crate) fn extract_ignoring_suffix(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = u128::from(address) & !self.suffix_mask() | self.suffix;
        self.extract(bits.into())
    }

    /// Returns the bits of an IPv4 address, shifted to their position in the IPv6 address.
    #[inline]
    fn shifted(&self, v4: u32) -> u128 {
        match self.len {
            96 => u128::from(v4),
            len => {
                let packed = u128::from(v4) << (120 - 32 - u32::from(len));
                (packed >> 56) << 64 | packed & ((1 << 56) - 1)
            }
        }
    }

    /// Returns a mask that selects the bits after the IPv4 address, without octet 8.
    fn suffix_mask(&self) -> u128 {
        let last_v4_bit = self.shifted(1);
        (last_v4_bit - 1) & !U_OCTET
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(s: &str) -> Result<Prefix, PrefixError> {
        let unreadable = || PrefixError::Unreadable(s.into());
        let (network, len) = s.split_once('/').ok_or_else(unreadable)?;
        Prefix::new(
            network.parse().map_err(|_| unreadable())?,
            len.parse().map_err(|_| unreadable())?,
        )
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network(), self.len)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} suffix {}", Ipv6Addr::from(self.suffix))
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixError;
    fn try_from(s: String) -> Result<Self, PrefixError> {
        s.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> String {
        prefix.to_string()
    }
}

/// Reason why a prefix is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// The text is not in the form address/length.
    #[error("'{0}' is not an IPv6 prefix; example: 64:ff9b::/96")]
    Unreadable(String),
    /// The length is not a prefix length of RFC 6052.
    #[error("prefix length {0} is not allowed; RFC 6052 §2.2 permits 32, 40, 48, 56, 64 and 96")]
    Length(u8),
    /// Bits beyond the prefix length are set.
    #[error("the address has bits set beyond the prefix length {0}")]
    HostBits(u8),
    /// The prefix contains the well-known prefix, so that one IPv6 address could represent two IPv4 addresses (RFC 6052
    /// §2.1, §3.1).
    #[error(
        "the /{0} prefix contains the well-known prefix; write 64:ff9b::/96, or another prefix"
    )]
    CoversWellKnown(u8),
    /// Packets to addresses in the prefix cannot reach a NAT64.
    #[error(
        "prefix {0} is not routed; write 64:ff9b::/96, or a prefix that is routed to the NAT64"
    )]
    Unroutable(Ipv6Addr),
    /// Octet 8 of the prefix is not zero.
    #[error("bits 64 to 71 must be zero (RFC 6052 §2.2)")]
    ReservedOctet,
    /// A suffix was given for discovered prefixes.
    #[error("prefix = \"discover\" takes no suffix: discovered prefixes have none")]
    DiscoveredSuffix,
    /// The suffix overlaps other parts of the address.
    #[error(
        "the suffix {suffix} overlaps the prefix, the IPv4 address or bits 64 to 71 of a /{len} prefix"
    )]
    Suffix {
        /// Length of the prefix.
        len: u8,
        /// The suffix.
        suffix: Ipv6Addr,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 6052 §2.4, tables 1 and 2.
    const VECTORS: [(&str, &str); 7] = [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
    ];

    #[test]
    fn prefix_containing_well_known_prefix_is_rejected() {
        for len in [32, 40, 48, 56, 64] {
            let refused = format!("64:ff9b::/{len}").parse::<Prefix>();
            assert_eq!(refused, Err(PrefixError::CoversWellKnown(len)));
        }
        // RFC 8215: the local-use prefix is adjacent to the well-known prefix.
        for beside in [
            "64:ff9b::/96",
            "64:ff9b:1::/48",
            "64:ff9b:1:fffe::/96",
            "64:ff9b:0:1::/64",
            "64:ff9a::/32",
        ] {
            assert!(beside.parse::<Prefix>().is_ok(), "{beside}");
        }
    }

    #[test]
    fn prefixes_that_are_not_routed_are_refused() {
        for text in [
            "::/96",
            "::ffff:0:0/96",
            "fe80::/96",
            "fe80::/64",
            "febf:1::/32",
            "ff02::/96",
            "ff00::/32",
        ] {
            let refused = text.parse::<Prefix>().unwrap_err();
            assert!(matches!(refused, PrefixError::Unroutable(_)), "{text}: {refused}");
        }
        for text in ["fec0::/64", "fd00::/96", "100::/64"] {
            assert!(text.parse::<Prefix>().is_ok(), "{text}");
        }
    }

    #[test]
    fn item_12_vectors_of_rfc_6052_section_2_4() {
        let v4 = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, address) in VECTORS {
            let prefix: Prefix = prefix.parse().unwrap();
            let address: Ipv6Addr = address.parse().unwrap();
            assert_eq!(prefix.embed(v4), address, "{prefix}");
            assert_eq!(prefix.extract(address), Some(v4), "{prefix}");
            assert!(!prefix.is_empty(), "{prefix}");
        }
    }

    #[test]
    fn item_12_bad_prefixes_are_refused() {
        for (text, error) in [
            ("64:ff9b::/72", PrefixError::Length(72)),
            ("64:ff9b::/0", PrefixError::Length(0)),
            ("64:ff9b::1/96", PrefixError::HostBits(96)),
            ("2001:db8:0:0:100::/96", PrefixError::ReservedOctet),
            ("64:ff9b::", PrefixError::Unreadable("64:ff9b::".into())),
            ("1.2.3.4/32", PrefixError::Unreadable("1.2.3.4/32".into())),
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(error), "{text}");
        }
    }

    #[test]
    fn item_12_suffixes_stay_behind_the_address() {
        let p32: Prefix = "2001:db8::/32".parse().unwrap();
        assert!(p32.with_suffix("::1:2:3".parse().unwrap()).is_ok());
        assert!(
            p32.with_suffix("::ff:0:0:0".parse::<Ipv6Addr>().unwrap()).is_ok(),
            "bits 72 to 79 are behind it"
        );
        for bad in ["0:0:0:1::", "::100:0:0:0", "1::"] {
            assert!(p32.with_suffix(bad.parse().unwrap()).is_err(), "{bad}");
        }
        assert!(
            Prefix::WELL_KNOWN.with_suffix("::1".parse().unwrap()).is_err(),
            "a /96 has no room"
        );
    }

    #[test]
    fn rfc6052_2_2_the_suffix_is_part_of_the_address() {
        let plain: Prefix = "2001:db8::/32".parse().unwrap();
        let prefix = plain.with_suffix("::1:2:3".parse().unwrap()).unwrap();
        let (v4, address) =
            (Ipv4Addr::new(192, 0, 2, 33), "2001:db8:c000:221:0:1:2:3".parse().unwrap());
        assert_eq!((prefix.embed(v4), prefix.extract(address)), (address, Some(v4)));
        assert_eq!(
            (plain.extract(address), prefix.extract(plain.embed(v4))),
            (None, None),
            "another suffix"
        );
    }

    fn any_prefix() -> impl Strategy<Value = Prefix> {
        (prop::sample::select(vec![32u8, 40, 48, 56, 64, 96]), any::<u128>(), any::<u128>())
            .prop_filter_map("not a valid prefix", |(len, n, s)| {
                let network = n & !(u128::MAX >> len) & !U_OCTET;
                let prefix = Prefix::new(network.into(), len).ok()?;
                prefix.with_suffix((s & prefix.suffix_mask()).into()).ok()
            })
    }

    proptest! {
        #[test]
        fn embedding_and_extraction_are_inverse(prefix in any_prefix(), v4: u32, noise: u128) {
            let v4 = Ipv4Addr::from(v4);
            let address = prefix.embed(v4);
            prop_assert_eq!(prefix.extract(address), Some(v4));
            prop_assert!(prefix.covers(address));
            prop_assert_eq!(u128::from(address) & U_OCTET, u128::from(prefix.network()) & U_OCTET);
            // Any other address is either rejected or embeds a different IPv4 address.
            let other = Ipv6Addr::from(noise);
            if let Some(found) = prefix.extract(other) {
                prop_assert_eq!(prefix.embed(found), other);
            }
        }
    }

    /// The debug output shows the difference between prefixes that are displayed alike.
    #[test]
    fn the_suffix_is_shown_to_developers() {
        let prefix: Prefix = "2001:db8::/32".parse().unwrap();
        let prefix = prefix.with_suffix("::7".parse().unwrap()).unwrap();
        assert_eq!(prefix.to_string(), "2001:db8::/32");
        assert_eq!(format!("{prefix:?}"), "2001:db8::/32 suffix ::7");
    }
}
