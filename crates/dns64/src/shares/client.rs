//! Clients, and the nested networks that contain each client.

use std::net::{IpAddr, Ipv6Addr};

/// Number of nested networks that contain a client. The client itself counts as the innermost network.
pub(crate) const LEVELS: usize = 5;

/// Upper half of the identifier of an IPv4 client. No IPv6 client has these bits, because an IPv6 address that begins
/// with them is a multicast address.
const IPV4: u64 = 0xffff_ffff << 32;
/// The first ten bits of a link-local client's identifier.
const LINK_LOCAL: u64 = 0xfe80 << 48;

/// Identifier of a client: an IPv4 address, an IPv6 /64, or a link-local address. A /64 may be assigned to a single
/// host (RFC 8273). Each link-local address is a separate client, because all links have the same prefix (RFC 4291
/// §2.5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(pub(crate) u64);

/// Identifier of a network. It is unique among the networks of the same nesting level.
pub(crate) type NetworkId = u64;

impl ClientId {
    /// Returns the client with this address.
    #[inline]
    pub(crate) fn from_address(address: IpAddr) -> ClientId {
        ClientId(match address {
            IpAddr::V4(v4) => IPV4 | u64::from(u32::from(v4)),
            IpAddr::V6(v6) => link_local(v6).unwrap_or((u128::from(v6) >> 64) as u64),
        })
    }

    /// Returns the networks that contain the client, the widest first and the client itself last.
    /// Except for link-local addresses, a network contains at most 256 networks of the next level.
    ///
    /// | Level | IPv6 | IPv4 | link-local |
    /// |---|---|---|---|
    /// | 0 | /32 | all of IPv4 | all addresses |
    /// | 1 | /40 | /8 | all addresses |
    /// | 2 | /48 | /16 | all addresses |
    /// | 3 | /56 | /24 | one address |
    /// | 4 | /64 | /32 | one address |
    #[inline]
    pub(crate) fn networks(self) -> [NetworkId; LEVELS] {
        let ClientId(id) = self;
        if id >> 54 == LINK_LOCAL >> 54 {
            [LINK_LOCAL, LINK_LOCAL, LINK_LOCAL, id, id]
        } else {
            [id >> 32, id >> 24, id >> 16, id >> 8, id]
        }
    }

    /// Returns the network that usually corresponds to one site: an IPv6 /56, an IPv4 /24, or a link-local address.
    #[inline]
    pub(crate) fn site(self) -> NetworkId {
        self.networks()[3]
    }
}

/// Returns the identifier of a link-local client: ten fixed bits, and 54 bits derived from the
/// interface identifier. The first ten bits of the interface identifier are XORed into its other 54
/// bits.
fn link_local(address: Ipv6Addr) -> Option<u64> {
    let interface = u128::from(address) as u64;
    let folded = (interface ^ interface >> 54) & (u64::MAX >> 10);
    address.is_unicast_link_local().then_some(LINK_LOCAL | folded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(address: &str) -> [NetworkId; LEVELS] {
        ClientId::from_address(address.parse().unwrap()).networks()
    }

    /// Number of levels, from the widest on, at which two addresses are in the same network.
    fn shared(one: &str, other: &str) -> usize {
        let (one, other) = (networks(one), networks(other));
        let same = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
        let differ = one.iter().zip(&other).skip(same).all(|(one, other)| one != other);
        assert!(differ, "{one:x?} {other:x?}");
        same
    }

    #[test]
    fn networks_are_nested_by_prefix_length() {
        for (one, other, levels) in [
            ("2001:db8:1:1::1", "2001:db8:1:1::2", 5),
            ("2001:db8:1:1::1", "2001:db8:1:2::1", 4),
            ("2001:db8:1:1::1", "2001:db8:1:101::1", 3),
            ("2001:db8:1:1::1", "2001:db8:2:1::1", 2),
            ("2001:db8:1:1::1", "2001:db8:101:1::1", 1),
            ("2001:db8:1:1::1", "2001:db9:1:1::1", 0),
            ("192.0.2.1", "192.0.2.1", 5),
            ("192.0.2.1", "192.0.2.2", 4),
            ("192.0.2.1", "192.0.3.1", 3),
            ("192.0.2.1", "192.1.2.1", 2),
            ("192.0.2.1", "193.0.2.1", 1),
            ("192.0.2.1", "::192.0.2.1", 0),
            ("fe80::1", "fe80::1", 5),
            ("fe80::1", "fe80::2", 3),
            ("fe80::1", "febf::1:2", 3),
            ("fe80::1", "2001:db8::1", 0),
        ] {
            assert_eq!(shared(one, other), levels, "{one} {other}");
        }
    }

    #[test]
    fn item_42_a_link_local_client_is_its_address() {
        let (one, other) = ("fe80::11ff:fe23:4567:890a", "fe80::11ff:fe23:4567:890b");
        for level in [3, LEVELS - 1] {
            let of = |address: &str| networks(address)[level];
            assert_eq!(of(one), of(one));
            assert_ne!(of(one), of(other));
            // The first bits of the interface identifier count too.
            assert_ne!(of("fe80::1"), of("fe80::8000:0:0:1"));
            // A host that chooses its interface identifier cannot appear in another network.
            assert_ne!(of("fe80::2001:db8:0:1"), of("2001:db8:0:1::1"));
            assert_ne!(of("fe80::c000:201"), of("192.0.2.1"));
        }
        assert_eq!(networks("fd00::1"), networks("fd00::2"));
    }
}
