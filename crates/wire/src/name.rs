//! The name space `AAA-BBB-CCC-DDD.dns64perf.test`: conversions between index, IPv4 address and
//! name, and the selection of names with an AAAA record.
//!
//! The names are the same as in dns64perf++ (G. Lencse and D. Bakai, DOI
//! 10.1587/transcom.2016EBN0007): four decimal octets, zero-padded to three digits. The A record of
//! a name is the address encoded in the name. The presence of an AAAA record is a function of the
//! name.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use domain::base::Name;
use domain::base::name::ToName;
use serde::{Deserialize, Serialize};
use units::Share;

/// Length of the label `AAA-BBB-CCC-DDD` in octets, without its length octet.
pub const LABEL_LEN: usize = 15;

/// Prefix of native AAAA records. The last 32 bits of such an address are the name's IPv4 address.
/// The prefix is part of the documentation prefix (RFC 3849), so that it is not confused with a
/// DNS64 prefix.
const AAAA_PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0xaaaa, 0, 0, 0, 0);

/// Returns the IPv6 address in the native AAAA record of the name that encodes `address`. The caller must check that
/// the name has such a record ([`has_aaaa`]).
pub fn native_aaaa(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(AAAA_PREFIX) | u128::from(u32::from(address)))
}

/// True if the name of `address` has an AAAA record. `aaaa` is the fraction of names with an AAAA record. This fraction
/// is exact in every window of 100 consecutive names (except a window that spans 255.255.255.255).
pub fn has_aaaa(address: Ipv4Addr, aaaa: Share) -> bool {
    aaaa.selects(u64::from(u32::from(address)))
}

/// Writes the label that encodes `address`, for example `192-000-002-001`.
#[inline]
pub fn write_label(address: Ipv4Addr, label: &mut [u8; LABEL_LEN]) {
    for (i, octet) in address.octets().into_iter().enumerate() {
        label[i * 4..i * 4 + 3].copy_from_slice(&DIGITS[usize::from(octet)]);
        if i < 3 {
            label[i * 4 + 3] = b'-';
        }
    }
}

/// Returns the address that a label encodes, or `None` if the label does not have exactly the format of
/// [`write_label`].
#[inline]
pub fn parse_label(label: &[u8]) -> Option<Ipv4Addr> {
    let label: &[u8; LABEL_LEN] = label.try_into().ok()?;
    let mut octets = [0; 4];
    for (i, octet) in octets.iter_mut().enumerate() {
        let at = i * 4;
        if i > 0 && label[at - 1] != b'-' {
            return None;
        }
        let mut value = 0u16;
        for &digit in &label[at..at + 3] {
            if !digit.is_ascii_digit() {
                return None;
            }
            value = value * 10 + u16::from(digit - b'0');
        }
        *octet = u8::try_from(value).ok()?;
    }
    Some(Ipv4Addr::from(octets))
}

/// All values of an octet, each as three decimal digits, from "000" to "255".
const DIGITS: [[u8; 3]; 256] = {
    let mut table = [[0; 3]; 256];
    let mut n = 0;
    while n < 256 {
        table[n] = [b'0' + (n / 100) as u8, b'0' + (n / 10 % 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    table
};

/// A domain name in wire format and lower case, short enough to be preceded by a label of
/// [`LABEL_LEN`] octets.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Domain {
    wire: Vec<u8>,
}

impl Domain {
    /// Returns `dns64perf.test`, the domain used in the papers on dns64perf++.
    pub fn dns64perf() -> Domain {
        Domain { wire: b"\x09dns64perf\x04test\0".to_vec() }
    }

    /// Returns the domain in uncompressed wire format, with the root label.
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// Returns the name of `address` in presentation format, without the final dot.
    pub fn name_of(&self, address: Ipv4Addr) -> String {
        let mut label = [0; LABEL_LEN];
        write_label(address, &mut label);
        format!("{}.{self}", std::str::from_utf8(&label).expect("digits and hyphens"))
    }
}

impl FromStr for Domain {
    type Err = NameError;

    /// Accepts absolute and relative names; relative ones are treated as absolute.
    fn from_str(s: &str) -> Result<Self, NameError> {
        let bad = |why: String| NameError::Domain { given: s.into(), why };
        let name = Name::<Vec<u8>>::from_str(s).map_err(|e| bad(e.to_string()))?;
        let wire = name.to_vec().as_slice().to_ascii_lowercase();
        if wire.len() == 1 {
            return Err(bad("the root cannot be used as a test zone".into()));
        }
        if wire.len() + 1 + LABEL_LEN > 255 {
            return Err(bad(format!(
                "names in it would be longer than 255 octets ({} too many)",
                wire.len() + 16 - 255
            )));
        }
        Ok(Domain { wire })
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Name::from_octets(self.wire.as_slice()).expect("checked when parsed").fmt(f)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({self})")
    }
}

impl TryFrom<String> for Domain {
    type Error = NameError;
    fn try_from(s: String) -> Result<Self, NameError> {
        s.parse()
    }
}

impl From<Domain> for String {
    fn from(domain: Domain) -> String {
        domain.to_string()
    }
}

/// Range of queried names, as a block of IPv4 addresses, written `a.b.c.d/len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct NameRange {
    network: u32,
    len: u8,
}

impl NameRange {
    /// All 2³² names.
    pub const ALL: NameRange = NameRange { network: 0, len: 0 };

    /// Returns the number of names in the range.
    pub fn count(&self) -> u64 {
        1 << (32 - self.len)
    }

    /// Returns the address of the name with index `n` in the range. An index beyond the last name wraps around to the
    /// first name.
    #[inline]
    pub fn address(&self, n: u64) -> Ipv4Addr {
        // Both operands are below 2³², and the network's host bits are zero, so the sum stays
        // inside the block.
        Ipv4Addr::from(self.network + (n & (self.count() - 1)) as u32)
    }

    /// True if `address` belongs to the range.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        u64::from(u32::from(address) ^ self.network) < self.count()
    }

    /// Returns the first address of the range. It is the address of the name with index 0.
    pub fn first(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.network)
    }
}

impl FromStr for NameRange {
    type Err = NameError;

    fn from_str(s: &str) -> Result<Self, NameError> {
        let bad = |why: &str| NameError::Range { given: s.into(), why: why.into() };
        let (address, len) =
            s.split_once('/').ok_or_else(|| bad("the prefix length is missing"))?;
        let network = u32::from(
            address.parse::<Ipv4Addr>().map_err(|_| bad("the address is not an IPv4 address"))?,
        );
        let len = len
            .parse::<u8>()
            .ok()
            .filter(|&l| l <= 32)
            .ok_or_else(|| bad("the length must be 0 to 32"))?;
        let range = NameRange { network, len };
        if u64::from(network) & (range.count() - 1) != 0 {
            return Err(bad("the address has bits set beyond the prefix length"));
        }
        Ok(range)
    }
}

impl fmt::Display for NameRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.len)
    }
}

impl TryFrom<String> for NameRange {
    type Error = NameError;
    fn try_from(s: String) -> Result<Self, NameError> {
        s.parse()
    }
}

impl From<NameRange> for String {
    fn from(range: NameRange) -> String {
        range.to_string()
    }
}

/// Error in the text form of a domain, or of a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The text is not a usable domain.
    #[error("'{given}' is not a usable domain: {why}")]
    Domain {
        /// The original text.
        given: String,
        /// Reason for the error.
        why: String,
    },
    /// The text is not a range of addresses.
    #[error("'{given}' is not a range of names: {why}; example: 10.0.0.0/8")]
    Range {
        /// The original text.
        given: String,
        /// Reason for the error.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn labels_are_inverse(address: u32) {
            let mut label = [0; LABEL_LEN];
            write_label(Ipv4Addr::from(address), &mut label);
            prop_assert_eq!(parse_label(&label), Some(Ipv4Addr::from(address)));
        }

        #[test]
        fn any_other_label_is_refused(label in "[0-9-]{15}") {
            if let Some(address) = parse_label(label.as_bytes()) {
                let mut written = [0; LABEL_LEN];
                write_label(address, &mut written);
                prop_assert_eq!(label.as_bytes(), written);
            }
        }

        #[test]
        fn aaaa_share_is_exact_in_every_window(percent in 0u8..=100, start in 0..u32::MAX - 100) {
            let n = (start..start + 100).filter(|&a| has_aaaa(Ipv4Addr::from(a), Share::percent(percent))).count();
            prop_assert_eq!(n, usize::from(percent));
        }

        #[test]
        fn ranges_hold_their_names(network: u32, len in 0u8..=32, n: u64) {
            let network = if len == 0 { 0 } else { network & (u32::MAX << (32 - len)) };
            let range: NameRange = format!("{}/{len}", Ipv4Addr::from(network)).parse().unwrap();
            prop_assert!(range.contains(range.address(n)));
            prop_assert_eq!(range.address(n), range.address(n % range.count()));
            prop_assert_eq!(range.to_string().parse::<NameRange>().unwrap(), range);
        }
    }

    #[test]
    fn the_names_of_the_papers() {
        let name = Domain::dns64perf().name_of(Ipv4Addr::new(10, 0, 3, 255));
        assert_eq!(name, "010-000-003-255.dns64perf.test");
        assert_eq!("DNS64perf.Test.".parse::<Domain>().unwrap(), Domain::dns64perf());
        assert_eq!(native_aaaa(Ipv4Addr::new(10, 1, 2, 3)).to_string(), "2001:db8:0:aaaa::a01:203");
    }

    #[test]
    fn bad_labels_domains_and_ranges() {
        for label in [
            "010-000-003-256",
            "10-0-3-255",
            "010.000.003.255",
            "010-000-003-25a",
            "010-000-003-2555",
            "",
        ] {
            assert_eq!(parse_label(label.as_bytes()), None, "{label}");
        }
        for domain in
            [".", "", "a..b", &"x".repeat(64), &format!("{0}.{0}.{0}.{0}", "y".repeat(60))]
        {
            assert!(domain.parse::<Domain>().is_err(), "{domain} was accepted");
        }
        for range in ["10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "::/0", "10.0.0/8", "/8"] {
            assert!(range.parse::<NameRange>().is_err(), "{range} was accepted");
        }
    }

    #[test]
    fn a_domain_leaves_room_for_the_label() {
        // The wire format has two octets more than the text: one length octet and the root label.
        let domain = |last: usize| {
            let labels = [63, 63, 63, last].map(|length| "z".repeat(length));
            labels.join(".").parse::<Domain>()
        };
        let longest = domain(45).unwrap();
        assert_eq!(longest.wire().len() + 1 + LABEL_LEN, 255);
        let error = domain(46).unwrap_err().to_string();
        assert!(error.contains("(1 too many)"), "{error}");
    }

    #[test]
    fn a_range_has_its_names_and_no_others() {
        let range: NameRange = "10.1.0.0/16".parse().unwrap();
        let has = |address: &str| range.contains(address.parse().unwrap());
        assert!(has("10.1.0.0") && has("10.1.255.255"));
        assert!(!has("10.2.0.0") && !has("10.0.255.255") && !has("11.1.0.0"));
        assert!(!has("10.0.0.0"));
        assert!(NameRange::ALL.contains(Ipv4Addr::BROADCAST));
    }

    #[test]
    fn domains_and_ranges_are_written_as_they_are_read() {
        let domain: Domain = "Example.org".parse().unwrap();
        assert_eq!(String::from(domain.clone()), "example.org");
        assert_eq!(format!("{domain:?}"), "Domain(example.org)");
        assert_eq!(String::from("10.0.0.0/8".parse::<NameRange>().unwrap()), "10.0.0.0/8");
    }
}
