//! Prefixes in Router Advertisements (RFC 8781), parsed from an ICMPv6 message.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::translation::prefix::Prefix;

/// ICMPv6 type of a Router Advertisement (RFC 4861 §4.2).
const ADVERTISEMENT: u8 = 134;
/// Number of octets before the options of a Router Advertisement.
const HEADER: usize = 16;
/// Type of the PREF64 option (RFC 8781 §4).
const PREF64: u8 = 38;
/// Length of the PREF64 option in units of eight octets.
const PREF64_UNITS: u8 = 2;
/// Length of the PREF64 option in octets.
const PREF64_OCTETS: usize = 16;
/// Hop limit of a packet that no router has forwarded (RFC 4861 §6.1.2).
const HOP_LIMIT: u8 = 255;
/// Prefix lengths in bits, by prefix length code (RFC 8781 §4). Other codes are reserved.
const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];
/// Unit of the lifetime field in the PREF64 option, in seconds.
const UNIT: u64 = 8;

/// A prefix announced by a router. A lifetime of zero withdraws the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnnouncedPrefix {
    pub prefix: Prefix,
    /// Lifetime of the prefix; 0 to 65 528 s.
    pub lifetime: Duration,
}

/// Reasons to ignore an ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The sender may be off-link: the hop limit is not 255, or the source is not link-local.
    NotFromLink,
    /// The message is not a Router Advertisement, or is malformed.
    Malformed,
}

/// Returns the prefixes in an ICMPv6 message that was received from `source` with the hop limit `hop_limit`. A
/// malformed option invalidates the whole message (RFC 4861 §6.1.2). A prefix is skipped if its length code is
/// reserved or if RFC 6052 does not allow the prefix.
pub(crate) fn read(
    message: &[u8],
    source: Ipv6Addr,
    hop_limit: u8,
) -> Result<Vec<AnnouncedPrefix>, Refusal> {
    if hop_limit != HOP_LIMIT || !source.is_unicast_link_local() {
        return Err(Refusal::NotFromLink);
    }
    let [ADVERTISEMENT, 0, ..] = message else { return Err(Refusal::Malformed) };
    let mut options = message.get(HEADER..).ok_or(Refusal::Malformed)?;
    let mut announced = Vec::new();
    while !options.is_empty() {
        let [kind, units, ..] = *options else { return Err(Refusal::Malformed) };
        let len = usize::from(units) * 8;
        if len == 0 || len > options.len() {
            return Err(Refusal::Malformed);
        }
        let (option, rest) = options.split_at(len);
        if kind == PREF64 && units == PREF64_UNITS {
            announced.extend(pref64(option));
        }
        options = rest;
    }
    Ok(announced)
}

/// Parses a PREF64 option. Returns `None` if the prefix must be skipped.
fn pref64(option: &[u8]) -> Option<AnnouncedPrefix> {
    let option: &[u8; PREF64_OCTETS] = option.try_into().ok()?;
    let scaled = u16::from_be_bytes([option[2], option[3]]);
    // The lower three bits encode the prefix length, and the other bits encode the lifetime.
    let len = *LENGTHS.get(usize::from(scaled & 7))?;
    let mut address = [0; 16];
    address[..12].copy_from_slice(&option[4..]);
    let network = u128::from_be_bytes(address) & !u128::MAX.checked_shr(len.into()).unwrap_or(0);
    let prefix = Prefix::new(network.into(), len).ok()?;
    Some(AnnouncedPrefix { prefix, lifetime: Duration::from_secs(u64::from(scaled >> 3) * UNIT) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    /// Returns a Router Advertisement with these options.
    fn message(options: &[&[u8]]) -> Vec<u8> {
        let mut message = vec![ADVERTISEMENT, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        options.iter().for_each(|option| message.extend_from_slice(option));
        message
    }

    fn option(seconds: u16, code: u16, prefix: &str) -> Vec<u8> {
        let address = prefix.parse::<Ipv6Addr>().unwrap().octets();
        let scaled = ((seconds / 8) << 3) | code;
        [&[PREF64, 2][..], &scaled.to_be_bytes(), &address[..12]].concat()
    }

    fn found(message: &[u8]) -> Vec<(String, u64)> {
        let announced = read(message, ROUTER, 255).unwrap();
        announced.iter().map(|one| (one.prefix.to_string(), one.lifetime.as_secs())).collect()
    }

    #[test]
    fn prefixes_of_all_lengths_are_read_with_their_lifetimes() {
        let mtu = [5, 1, 0, 0, 0, 0, 5, 220];
        let several = message(&[
            &mtu,
            &option(1_800, 0, "64:ff9b::"),
            &option(65_528, 1, "2001:db8:64::"),
            &option(0, 5, "2001:db8::"),
        ]);
        let wanted = [("64:ff9b::/96", 1_800), ("2001:db8:64::/64", 65_528), ("2001:db8::/32", 0)];
        assert_eq!(found(&several), wanted.map(|(prefix, time)| (prefix.to_owned(), time)));
        assert_eq!(found(&message(&[])), []);
        // Address bits after the prefix length are ignored.
        assert_eq!(found(&message(&[&option(8, 4, "2001:db8:1ff::")]))[0].0, "2001:db8:100::/40");
    }

    #[test]
    fn reserved_or_disallowed_prefixes_are_skipped() {
        for code in [6, 7] {
            assert_eq!(found(&message(&[&option(600, code, "2001:db8::")])), []);
        }
        // Octet 8 must be zero (RFC 6052 §2.2).
        assert_eq!(found(&message(&[&option(600, 0, "2001:db8:0:0:ff00::")])), []);
        for other in ["::ffff:0:0", "ff02::", "fe80::"] {
            assert_eq!(found(&message(&[&option(600, 0, other)])), [], "{other}");
        }
        // An option with a different length is not a PREF64 option.
        let long = [&[PREF64, 3][..], &[0; 22]].concat();
        assert_eq!(found(&message(&[&long])), []);
    }

    #[test]
    fn off_link_and_malformed_messages_are_ignored() {
        let good = message(&[&option(600, 0, "64:ff9b::")]);
        assert_eq!(read(&good, ROUTER, 64), Err(Refusal::NotFromLink));
        assert_eq!(read(&good, "2001:db8::1".parse().unwrap(), 255), Err(Refusal::NotFromLink));
        let broken = |change: fn(&mut Vec<u8>)| {
            let mut message = good.clone();
            change(&mut message);
            read(&message, ROUTER, 255)
        };
        assert_eq!(broken(|message| message[0] = 133), Err(Refusal::Malformed));
        assert_eq!(broken(|message| message[1] = 1), Err(Refusal::Malformed));
        assert_eq!(broken(|message| message[HEADER + 1] = 0), Err(Refusal::Malformed));
        assert_eq!(broken(|message| message.truncate(HEADER + 8)), Err(Refusal::Malformed));
        assert_eq!(broken(|message| message.truncate(8)), Err(Refusal::Malformed));
        assert_eq!(broken(|message| message.push(1)), Err(Refusal::Malformed));
    }

    proptest! {
        #[test]
        fn no_message_ends_it(octets: Vec<u8>, options: Vec<u8>) {
            let _ = read(&octets, ROUTER, 255);
            for announced in read(&message(&[&options]), ROUTER, 255).unwrap_or_default() {
                prop_assert!(announced.lifetime <= Duration::from_secs(65_528));
            }
        }
    }
}
