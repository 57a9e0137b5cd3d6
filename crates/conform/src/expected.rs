//! Addresses that a correct server synthesizes with its prefix. This implementation of RFC 6052 is used by the checks
//! only.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Prefix for IPv4-embedded addresses (RFC 6052 §2.2), and the suffix of these addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: u128,
    len: u8,
}

/// The Well-Known Prefix 64:ff9b::/96 (RFC 6052 §2.1).
pub const WELL_KNOWN: Prefix = Prefix { address: 0x64_ff9b << 96, len: 96 };

impl Prefix {
    /// Creates a prefix.
    ///
    /// # Errors
    /// Returns an error if `len` is not 32, 40, 48, 56, 64 or 96. Also returns an error if a bit that must be zero is
    /// set: one of bits 64 to 71 (RFC 6052 §2.2), or a bit at the position of the IPv4 address.
    pub fn new(address: Ipv6Addr, len: u8) -> Result<Prefix, NoPrefix> {
        let address = u128::from(address);
        let all = Prefix { address: 0, len }.with(Ipv4Addr::BROADCAST);
        let fits = [32, 40, 48, 56, 64, 96].contains(&len)
            && address & u128::from(all) == 0
            && (address >> 56) & 0xff == 0;
        if fits { Ok(Prefix { address, len }) } else { Err(NoPrefix) }
    }

    /// Returns the address in which `v4` is embedded (RFC 6052 §2.2). The octets of `v4` follow the prefix, except that
    /// bits 64 to 71 are skipped.
    pub fn with(self, v4: Ipv4Addr) -> Ipv6Addr {
        let mut octets = self.address.to_be_bytes();
        let mut at = usize::from(self.len / 8);
        for octet in v4.octets() {
            if at == 8 {
                at += 1;
            }
            octets[at] = octet;
            at += 1;
        }
        octets.into()
    }

    /// Returns the IPv4 address that is embedded in `v6`, or `None` if `v6` has a different prefix or suffix.
    pub fn embedded(self, v6: Ipv6Addr) -> Option<Ipv4Addr> {
        let octets = v6.octets();
        let mut at = usize::from(self.len / 8);
        let mut v4 = [0; 4];
        for octet in &mut v4 {
            if at == 8 {
                at += 1;
            }
            *octet = octets[at];
            at += 1;
        }
        let v4 = Ipv4Addr::from(v4);
        (self.with(v4) == v6).then_some(v4)
    }

    /// Returns the length of the prefix in bits.
    pub fn length(self) -> u8 {
        self.len
    }

    /// True if the prefix is 64:ff9b::/96.
    pub fn is_well_known(self) -> bool {
        self == WELL_KNOWN
    }
}

/// Error: the text is not a prefix for IPv4-embedded addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a DNS64 prefix is ADDRESS/LENGTH with a length of 32, 40, 48, 56, 64 or 96, and without bits set after it (RFC 6052 §2.2)"
)]
pub struct NoPrefix;

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Prefix, NoPrefix> {
        let (address, len) = text.split_once('/').ok_or(NoPrefix)?;
        Prefix::new(address.parse().map_err(|_| NoPrefix)?, len.parse().map_err(|_| NoPrefix)?)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from(self.address), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6052 §2.4, tables 1 and 2.
    #[test]
    fn the_vectors_of_the_rfc() {
        let v4 = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let prefix: Prefix = prefix.parse().unwrap();
            let address: Ipv6Addr = address.parse().unwrap();
            assert_eq!(prefix.with(v4), address, "{prefix}");
            assert_eq!(prefix.embedded(address), Some(v4), "{prefix}");
        }
        assert!("64:ff9b::/96".parse::<Prefix>().unwrap().is_well_known());
        for wrong in ["64:ff9b::/80", "64:ff9b::1/96", "2001:db8::100:0:0:0/96", "64:ff9b::"] {
            assert_eq!(wrong.parse::<Prefix>(), Err(NoPrefix), "{wrong}");
        }
    }
}
