//! Names of addresses in the reverse trees (RFC 1035 §3.5, RFC 3596 §2.5).

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::name::LowerName;

/// Root of the reverse tree of IPv6 addresses.
pub(super) const IP6_ARPA: &[u8] = b"\x03ip6\x04arpa\0";

/// Returns the reverse name of an IPv4 address, `d.c.b.a.in-addr.arpa`.
pub(super) fn in_addr_arpa(v4: Ipv4Addr) -> LowerName {
    let mut wire = Vec::with_capacity(32);
    for octet in v4.octets().iter().rev() {
        let digits = octet.to_string();
        wire.push(digits.len() as u8);
        wire.extend(digits.bytes());
    }
    wire.extend(b"\x07in-addr\x04arpa\0");
    LowerName::from_wire(&wire)
}

/// Returns the reverse name of the first `nibbles` nibbles of an IPv6 address, in wire format.
pub(super) fn ip6_arpa(address: Ipv6Addr, nibbles: u32) -> Vec<u8> {
    let bits = u128::from(address);
    let mut wire = Vec::with_capacity(74);
    for i in (0..nibbles).rev() {
        let nibble = (bits >> (124 - 4 * i)) as u32 & 0xf;
        wire.push(1);
        wire.push(char::from_digit(nibble, 16).expect("four bits") as u8);
    }
    wire.extend(IP6_ARPA);
    wire
}
