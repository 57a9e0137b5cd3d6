//! Lists of networks in the configuration file. An entry is a network such as `192.0.2.0/24`, a single address such as
//! `192.0.2.1`, or the name of a list in `[networks]`. A `!` before an entry marks an exception.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::networks::{Element, ElementKind, Network, Networks};

/// Type of the networks in a list: both address families, IPv4 only, or IPv6 only.
pub(super) trait IpNetwork:
    Copy + fmt::Display + FromStr + Network<Address: FromStr> + From<Self::Address>
{
    /// Name of this type of network in error messages.
    const KIND: &str;
    /// Returns `network` unchanged if it has this type, otherwise `None`.
    fn of(network: IpNet) -> Option<Self>;
    /// Returns the network with all address bits after the prefix length set to zero.
    fn without_host_bits(self) -> Self;
}

impl IpNetwork for IpNet {
    const KIND: &str = "networks";
    fn of(network: IpNet) -> Option<IpNet> {
        Some(network)
    }
    fn without_host_bits(self) -> IpNet {
        self.trunc()
    }
}
impl IpNetwork for Ipv4Net {
    const KIND: &str = "IPv4 networks";
    fn of(network: IpNet) -> Option<Ipv4Net> {
        if let IpNet::V4(network) = network { Some(network) } else { None }
    }
    fn without_host_bits(self) -> Ipv4Net {
        self.trunc()
    }
}
impl IpNetwork for Ipv6Net {
    const KIND: &str = "IPv6 networks";
    fn of(network: IpNet) -> Option<Ipv6Net> {
        if let IpNet::V6(network) = network { Some(network) } else { None }
    }
    fn without_host_bits(self) -> Ipv6Net {
        self.trunc()
    }
}

/// A list of networks in the configuration file. The first entry that covers an address decides whether the address is
/// in the list. An address that no entry covers is not in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkList<N>(Vec<ListEntry<N>>);

/// An entry of a list of networks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ListEntry<N> {
    /// True if the entry begins with `!`. The list then excludes the addresses that the entry covers.
    is_exception: bool,
    item: NetworkItem<N>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NetworkItem<N> {
    Network(N),
    /// Name of a list in `[networks]`.
    Name(String),
}

impl<N> From<Vec<N>> for NetworkList<N> {
    fn from(networks: Vec<N>) -> NetworkList<N> {
        let written =
            |network| ListEntry { is_exception: false, item: NetworkItem::Network(network) };
        NetworkList(networks.into_iter().map(written).collect())
    }
}

impl<'de, N: IpNetwork> Deserialize<'de> for NetworkList<N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<NetworkList<N>, D::Error> {
        Vec::deserialize(from).map(NetworkList)
    }
}

impl<N: IpNetwork> Serialize for NetworkList<N> {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.collect_seq(self.0.iter().map(ToString::to_string))
    }
}

impl<N: IpNetwork> fmt::Display for ListEntry<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_exception { "!" } else { "" })?;
        match &self.item {
            NetworkItem::Network(network) => network.fmt(f),
            NetworkItem::Name(name) => f.write_str(name),
        }
    }
}

impl<'de, N: IpNetwork> Deserialize<'de> for ListEntry<N> {
    // Each entry is read separately, so that an error message gives the line of the entry.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ListEntry<N>, D::Error> {
        from.deserialize_str(Text(PhantomData))
    }
}

struct Text<N>(PhantomData<N>);

impl<N: IpNetwork> Visitor<'_> for Text<N> {
    type Value = ListEntry<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a network such as 192.0.2.0/24 or 2001:db8::/32, a single address, a name of [networks], or one of these after a '!'",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ListEntry<N>, E> {
        let (is_exception, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, text),
        };
        let network = text.parse().ok().or_else(|| text.parse::<N::Address>().ok().map(N::from));
        let item = match network {
            Some(network) => NetworkItem::Network(N::without_host_bits(network)),
            None if is_name(text) => NetworkItem::Name(text.to_owned()),
            None => {
                let invalid = || E::invalid_value(Unexpected::Str(text), &self);
                return Err(other_kind::<N>(text).map_or_else(invalid, E::custom));
            }
        };
        Ok(ListEntry { is_exception, item })
    }
}

/// Returns an error message if the text is a network or an address, but the list does not accept its IP version.
/// Returns `None` if the text is neither a network nor an address.
fn other_kind<N: IpNetwork>(text: &str) -> Option<String> {
    let network = text.parse::<IpNet>().ok();
    let network = network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    let kind = if network.addr().is_ipv4() { "IPv4" } else { "IPv6" };
    Some(format!("this list takes {}, and {text:?} is {kind}", N::KIND))
}

/// True if a list in `[networks]` may have this name. Names that resemble a mistyped network are
/// not allowed.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// Error in a list of networks: the invalid entry, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadList {
    /// Invalid entry. Its position in the file gives the line of the error.
    pub(crate) word: String,
    /// Description of the error, and the correct form.
    pub(crate) reason: String,
}

/// The lists of `[networks]`, by name.
pub(super) struct NamedNetworks<'a>(&'a BTreeMap<String, NetworkList<IpNet>>);

impl<'a> NamedNetworks<'a> {
    /// Checks all lists, and returns them if they are valid.
    pub(super) fn new(
        written: &'a BTreeMap<String, NetworkList<IpNet>>,
    ) -> Result<NamedNetworks<'a>, BadList> {
        let named = NamedNetworks(written);
        for name in written.keys() {
            if !is_name(name) {
                let reason = format!(
                    "the name '{name}' of a list of networks must begin with a letter and have letters, digits, '-' and '_' only"
                );
                return Err(BadList { word: name.clone(), reason });
            }
            named.named::<IpNet>(name, &mut Vec::new())?;
        }
        Ok(named)
    }

    /// Converts a list of networks. Each name in it is replaced by the list that has this name in `[networks]`.
    pub(super) fn look_up<N: IpNetwork>(
        &self,
        list: &NetworkList<N>,
    ) -> Result<Networks<N>, BadList> {
        self.list(list, Some, &mut Vec::new())
    }

    /// Converts a list of networks in the same way as [`NamedNetworks::look_up`]. The function `of` converts a single
    /// network. `open` contains the names of the lists that are being converted, outermost first.
    fn list<W: IpNetwork, N: IpNetwork>(
        &self,
        list: &NetworkList<W>,
        of: fn(W) -> Option<N>,
        open: &mut Vec<String>,
    ) -> Result<Networks<N>, BadList> {
        let mut elements = Vec::with_capacity(list.0.len());
        for written in &list.0 {
            let item = match &written.item {
                NetworkItem::Name(name) => ElementKind::List(self.named(name, open)?),
                NetworkItem::Network(network) => match of(*network) {
                    Some(network) => ElementKind::Network(network),
                    None => {
                        let name = open.last().cloned().unwrap_or_default();
                        let reason = format!(
                            "only {} are allowed here, but [networks] {name} has {network}",
                            N::KIND
                        );
                        return Err(BadList { word: name, reason });
                    }
                },
            };
            elements.push(Element { includes: !written.is_exception, what: item });
        }
        let networks = Networks::new(elements);
        match list.0.last() {
            Some(last) if networks.is_void() => {
                let reason = format!(
                    "a list of exceptions only is empty; end it with the networks that include them, as in [\"{last}\", \"0.0.0.0/0\", \"::/0\"]"
                );
                Err(BadList { word: last.to_string(), reason })
            }
            _ => Ok(networks),
        }
    }

    /// Converts the list that has this name in `[networks]`.
    fn named<N: IpNetwork>(
        &self,
        name: &str,
        open: &mut Vec<String>,
    ) -> Result<Networks<N>, BadList> {
        let bad = |reason| BadList { word: name.to_owned(), reason };
        let Some(list) = self.0.get(name) else {
            let known = self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            return Err(bad(format!("[networks] has no list '{name}' (it has: {known})")));
        };
        if open.iter().any(|outer| outer == name) {
            return Err(bad(format!("the list '{name}' of [networks] contains itself")));
        }
        open.push(name.to_owned());
        let networks = self.list(list, N::of, open)?;
        open.pop();
        Ok(networks)
    }
}
