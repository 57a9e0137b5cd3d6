//! Source addresses of queries.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Default number of source addresses, limited by the size of the prefix.
pub(crate) const DEFAULT_ADDRESSES: u32 = 256;

/// Maximum number of source addresses.
pub(crate) const MAX_ADDRESSES: u32 = 65_536;

/// 2¹²⁸ divided by the golden ratio. Multiples of this number are used to distribute the addresses evenly over a
/// prefix.
const GOLDEN: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C834;

/// Source addresses of the queries, all from one prefix. In the format `PREFIX,NUMBER`, the number of addresses is at
/// most 65 536. Without a number (`PREFIX`), there are 256 addresses, or fewer if the prefix is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct SourceAddresses {
    prefix: IpNet,
    /// Number of addresses: 1 to [`MAX_ADDRESSES`], and at most the size of the prefix.
    count: u32,
}

impl SourceAddresses {
    /// Returns the prefix of the addresses.
    pub fn prefix(&self) -> IpNet {
        self.prefix
    }

    /// Returns the number of addresses, 1 to [`MAX_ADDRESSES`].
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns all addresses in the order of their first use in a trial.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let SourceAddresses { prefix, count } = *self;
        (0..count).map(move |n| address(prefix, n))
    }

    /// Returns the first address.
    pub fn first(&self) -> IpAddr {
        address(self.prefix, 0)
    }

    /// True if the addresses are IPv6 addresses, false if they are IPv4 addresses.
    pub fn is_ipv6(&self) -> bool {
        is_ipv6(self.prefix)
    }

    /// Returns the command that makes the prefix local to this host.
    fn route(&self) -> String {
        route(&self.prefix)
    }

    /// Checks that the addresses have the IP version of `server`.
    ///
    /// # Errors
    /// Returns [`SourceError::Family`] if the server's address is of the other IP version.
    pub fn check(&self, server: SocketAddr) -> Result<(), SourceError> {
        let fits = self.is_ipv6() == is_over_ipv6(&server);
        if fits { Ok(()) } else { Err(SourceError::Family { given: *self, server }) }
    }
}

/// Returns source address number `n` (from 0) of a prefix.
fn address(prefix: IpNet, n: u32) -> IpAddr {
    let host_bits = u32::from(prefix.max_prefix_len() - prefix.prefix_len());
    // For a prefix of one address, all 128 bits are shifted out.
    let step = GOLDEN.checked_shr(128 - host_bits).unwrap_or(0) | 1;
    let mask = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
    let offset = (u128::from(n) + 1).wrapping_mul(step) & mask;
    match prefix.network() {
        // The offset has at most as many bits as the host part of the prefix.
        IpAddr::V4(network) => Ipv4Addr::from(u32::from(network) | offset as u32).into(),
        IpAddr::V6(network) => Ipv6Addr::from(u128::from(network) | offset).into(),
    }
}

fn is_ipv6(prefix: IpNet) -> bool {
    matches!(prefix, IpNet::V6(_))
}

/// Returns true if packets to this address are IPv6. An IPv4-mapped IPv6 address is IPv4 (RFC 4291 §2.5.5.2).
pub(crate) fn is_over_ipv6(server: &SocketAddr) -> bool {
    server.ip().to_canonical().is_ipv6()
}

/// Returns the number of addresses of a prefix, at most [`MAX_ADDRESSES`].
fn size_of(prefix: IpNet) -> u32 {
    let host_bits = u32::from(prefix.max_prefix_len() - prefix.prefix_len());
    1 << host_bits.min(MAX_ADDRESSES.ilog2())
}

/// Returns the command that makes a prefix local to this host.
fn route(prefix: &IpNet) -> String {
    let version = if is_ipv6(*prefix) { "-6 " } else { "" };
    format!("ip {version}route add local {prefix} dev lo")
}

/// Returns the command that gives a server's host a route back to these addresses.
pub(crate) fn return_route(sources: &SourceAddresses) -> String {
    let prefix = sources.prefix;
    let version = if is_ipv6(prefix) { "-6 " } else { "" };
    format!("ip {version}route add {prefix} via ADDRESS-OF-THIS-HOST")
}

/// Returns a prefix within one of the blocks that RFC 5180 §8 and RFC 2544 appendix C reserve for benchmarking.
fn example(ipv6: bool) -> IpNet {
    if ipv6 { "2001:2:0:ff::/64" } else { "198.19.0.0/24" }.parse().expect("a constant")
}

/// Returns an example of the `ip route` command that makes a prefix of source addresses local. The prefix has the IP
/// version of `server`.
fn example_route(server: &SocketAddr) -> String {
    route(&example(is_over_ipv6(server)))
}

impl FromStr for SourceAddresses {
    type Err = SourceAddressesError;

    fn from_str(text: &str) -> Result<SourceAddresses, SourceAddressesError> {
        let (prefix, number) =
            text.split_once(',').map_or((text, None), |(prefix, number)| (prefix, Some(number)));
        let example = example(text.contains(':'));
        let bad = |why: String| SourceAddressesError { given: text.into(), why, example };
        let (address, len) =
            prefix.split_once('/').ok_or_else(|| bad("the prefix length is missing".into()))?;
        let address = address
            .parse::<IpAddr>()
            .map_err(|_| bad("the address is not an IPv4 or IPv6 address".into()))?;
        let len = len.parse::<u32>().map_err(|_| bad("the length is not a number".into()))?;
        let most = IpNet::from(address).max_prefix_len();
        let too_long = || bad(format!("the prefix length is too long, it is from 0 to {most}"));
        let len = u8::try_from(len).map_err(|_| too_long())?;
        let prefix = IpNet::new(address, len).map_err(|_| too_long())?;
        if prefix.trunc() != prefix {
            let why = "the address has bits set beyond the prefix length".into();
            return Err(SourceAddressesError { example: prefix.trunc(), ..bad(why) });
        }
        let all = size_of(prefix);
        let count = match number.map(str::trim).map(str::parse::<u32>) {
            None => all.min(DEFAULT_ADDRESSES),
            Some(Ok(number)) if (1..=all).contains(&number) => number,
            Some(_) => {
                let why = format!("the number of addresses is from 1 to {all}");
                return Err(SourceAddressesError { example: prefix, ..bad(why) });
            }
        };
        Ok(SourceAddresses { prefix, count })
    }
}

impl fmt::Display for SourceAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceAddresses { prefix, count } = self;
        let usual = size_of(*prefix).min(DEFAULT_ADDRESSES);
        if *count == usual { write!(f, "{prefix}") } else { write!(f, "{prefix},{count}") }
    }
}

impl TryFrom<String> for SourceAddresses {
    type Error = SourceAddressesError;

    fn try_from(text: String) -> Result<SourceAddresses, SourceAddressesError> {
        text.parse()
    }
}

impl From<SourceAddresses> for String {
    fn from(sources: SourceAddresses) -> String {
        sources.to_string()
    }
}

/// Text that is not a set of source addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{given}' is not a prefix of source addresses: {why}; write for example {example}, made local to this host by: {}",
    route(.example)
)]
pub struct SourceAddressesError {
    given: String,
    why: String,
    example: IpNet,
}

/// Reasons why queries cannot be sent from the source addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The source addresses and the server's address have different IP versions.
    #[error(
        "--source-addresses {given}: {server} is queried over {}; give a prefix of that version, made local to this \
         host for example by: {}",
        if is_over_ipv6(.server) { "IPv6" } else { "IPv4" },
        example_route(.server)
    )]
    Family {
        /// The requested source addresses.
        given: SourceAddresses,
        /// Address and port of the queried server.
        server: SocketAddr,
    },
    /// A source address is not local to this host.
    #[error(
        "--source-addresses {given}: {address} is not local to this host; make the prefix local, as root: {}; the server \
         needs a route back to it",
        .given.route()
    )]
    NotLocal {
        /// The requested source addresses.
        given: SourceAddresses,
        /// The first address that is not local.
        address: IpAddr,
    },
}
