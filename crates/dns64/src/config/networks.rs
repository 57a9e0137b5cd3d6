//! Networks as they are written: `192.0.2.0/24`, or `192.0.2.1` for a single address.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A kind of network, with the addresses that it is made of.
pub(super) trait IpNetwork: FromStr + From<Self::Address> {
    /// The kind of address that a network of this kind has.
    type Address: FromStr;
}

impl IpNetwork for IpNet {
    type Address = IpAddr;
}
impl IpNetwork for Ipv4Net {
    type Address = Ipv4Addr;
}
impl IpNetwork for Ipv6Net {
    type Address = Ipv6Addr;
}

/// Reads a list of networks.
pub(super) fn all<'de, N: IpNetwork, D: Deserializer<'de>>(from: D) -> Result<Vec<N>, D::Error> {
    Ok(Vec::<Written<N>>::deserialize(from)?.into_iter().map(|written| written.0).collect())
}

/// Reads a list of networks that is there.
pub(super) fn optional<'de, N: IpNetwork, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<N>>, D::Error> {
    all(from).map(Some)
}

/// One network; an error is that of its own line.
struct Written<N>(N);

impl<'de, N: IpNetwork> Deserialize<'de> for Written<N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Written<N>, D::Error> {
        from.deserialize_str(Text(PhantomData))
    }
}

struct Text<N>(PhantomData<N>);

impl<N: IpNetwork> Visitor<'_> for Text<N> {
    type Value = Written<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a network as 192.0.2.0/24 or 2001:db8::/32, or a single address")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Written<N>, E> {
        let network = text.parse().ok().or_else(|| text.parse::<N::Address>().ok().map(N::from));
        network
            .map(Written)
            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}
