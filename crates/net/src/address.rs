//! Addresses with a zone identifier (RFC 4007 §11), such as `fe80::1%eth0` and `[fe80::1%eth0]:53`.
//!
//! A zone identifier is the name or the index of an interface. The interface is looked up each time a socket is opened.
//! By then, it may have been created, or replaced by an interface with a different index.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use nix::net::if_::{if_indextoname, if_nametoindex};
use serde::{Deserialize, Serialize};

/// Errors in the text form of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadAddress {
    /// The text is not an IP address, or it lacks a required port.
    #[error("not an IP address")]
    Address,
    /// The zone identifier is not valid, for example because it is empty or longer than an interface name.
    #[error("a zone is the name or the index of an interface, as in fe80::1%eth0")]
    Zone,
    /// The address has a zone identifier, but is not link-local.
    #[error("only a link-local address has a zone, as in fe80::1%eth0")]
    NotLinkLocal,
}

/// Maximum length of an interface name in octets (IFNAMSIZ without the final 0).
const LONGEST_ZONE: usize = 15;

/// Zone identifier of an address: the name or the index of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone {
    /// Name or index of the interface in UTF-8, padded with zeros.
    octets: [u8; LONGEST_ZONE],
    len: u8,
}

impl Zone {
    fn new(text: &str) -> Result<Zone, BadAddress> {
        let is_bad = |c: char| c.is_whitespace() || c.is_control() || "/%[]\"'".contains(c);
        if text.is_empty() || text.len() > LONGEST_ZONE || text.contains(is_bad) {
            return Err(BadAddress::Zone);
        }
        let mut octets = [0; LONGEST_ZONE];
        octets[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Zone { octets, len: text.len() as u8 })
    }

    fn text(&self) -> &str {
        str::from_utf8(&self.octets[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Returns the current index of the interface.
    ///
    /// # Errors
    /// Returns an error if there is no such interface. The error message contains its name.
    fn index(&self) -> io::Result<u32> {
        let by_index = || {
            let index = self.text().parse().ok()?;
            // nix returns an empty name if there is no such interface.
            let name = if_indextoname(index).ok()?;
            (!name.is_empty()).then_some(index)
        };
        if_nametoindex(self.text()).ok().or_else(by_index).ok_or_else(|| {
            let message = format!("there is no interface {self}");
            io::Error::new(io::ErrorKind::NetworkUnreachable, message)
        })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// IP address of a host. A link-local address may have a zone identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostAddr {
    ip: IpAddr,
    zone: Option<Zone>,
}

impl HostAddr {
    /// Returns the IP address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// True if the address is a link-local IPv6 address without a zone identifier. A socket cannot use such an address.
    pub fn lacks_zone(&self) -> bool {
        self.zone.is_none() && is_link_local(self.ip)
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

impl From<IpAddr> for HostAddr {
    fn from(ip: IpAddr) -> HostAddr {
        HostAddr { ip, zone: None }
    }
}

impl FromStr for HostAddr {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<HostAddr, BadAddress> {
        let (ip, zone) = text.split_once('%').map_or((text, None), |(ip, zone)| (ip, Some(zone)));
        let ip = ip.parse().map_err(|_| BadAddress::Address)?;
        let zone = zone.map(Zone::new).transpose()?;
        if zone.is_some() && !is_link_local(ip) {
            return Err(BadAddress::NotLinkLocal);
        }
        Ok(HostAddr { ip, zone })
    }
}

impl fmt::Display for HostAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zone {
            Some(zone) => write!(f, "{}%{zone}", self.ip),
            None => write!(f, "{}", self.ip),
        }
    }
}

impl TryFrom<String> for HostAddr {
    type Error = BadAddress;

    fn try_from(text: String) -> Result<HostAddr, BadAddress> {
        text.parse()
    }
}

impl From<HostAddr> for String {
    fn from(host: HostAddr) -> String {
        host.to_string()
    }
}

/// IP address and port of a service. A link-local address may have a zone identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceAddr {
    host: HostAddr,
    port: u16,
}

impl ServiceAddr {
    /// Creates the address of a service from a host and a port.
    pub fn new(host: impl Into<HostAddr>, port: u16) -> ServiceAddr {
        ServiceAddr { host: host.into(), port }
    }

    /// Returns the host without the port.
    pub fn host(&self) -> HostAddr {
        self.host
    }

    /// Returns the host's IP address.
    pub fn ip(&self) -> IpAddr {
        self.host.ip
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// True if the address is an IPv4 address.
    pub fn is_ipv4(&self) -> bool {
        self.host.ip.is_ipv4()
    }

    /// Returns the address and port without the zone identifier. A socket for a link-local address also needs the zone
    /// identifier.
    pub fn without_zone(&self) -> SocketAddr {
        SocketAddr::new(self.host.ip, self.port)
    }

    /// Returns the address for a socket. If the address has a zone identifier, the result contains the current index of
    /// the interface.
    ///
    /// # Errors
    /// Returns an error if there is no such interface. The error message contains its name.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        match (self.host.ip, self.host.zone) {
            (IpAddr::V6(ip), Some(zone)) => {
                Ok(SocketAddrV6::new(ip, self.port, 0, zone.index()?).into())
            }
            _ => Ok(self.without_zone()),
        }
    }
}

impl From<SocketAddr> for ServiceAddr {
    fn from(address: SocketAddr) -> ServiceAddr {
        let scope = match address {
            SocketAddr::V6(v6) if is_link_local(address.ip()) => v6.scope_id(),
            _ => 0,
        };
        let zone = (scope != 0).then(|| Zone::new(&scope.to_string()).ok()).flatten();
        ServiceAddr { host: HostAddr { ip: address.ip(), zone }, port: address.port() }
    }
}

impl<I: Into<IpAddr>> From<(I, u16)> for ServiceAddr {
    fn from((ip, port): (I, u16)) -> ServiceAddr {
        ServiceAddr::new(ip.into(), port)
    }
}

impl FromStr for ServiceAddr {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<ServiceAddr, BadAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(BadAddress::Address)?;
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_digit = |c: char| c.is_ascii_digit();
        if port.is_empty() || !port.chars().all(is_digit) {
            return Err(BadAddress::Address);
        }
        let port = port.parse().map_err(|_| BadAddress::Address)?;
        let host: HostAddr = in_brackets.unwrap_or(host).parse()?;
        if host.ip.is_ipv6() != in_brackets.is_some() {
            return Err(BadAddress::Address);
        }
        Ok(ServiceAddr { host, port })
    }
}

impl fmt::Display for ServiceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ipv4() {
            write!(f, "{}:{}", self.host, self.port)
        } else {
            write!(f, "[{}]:{}", self.host, self.port)
        }
    }
}

impl TryFrom<String> for ServiceAddr {
    type Error = BadAddress;

    fn try_from(text: String) -> Result<ServiceAddr, BadAddress> {
        text.parse()
    }
}

impl From<ServiceAddr> for String {
    fn from(address: ServiceAddr) -> String {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_through_text() {
        for text in ["192.0.2.1", "2001:db8::1", "fe80::1", "fe80::1%eth0", "fe80::1%3"] {
            assert_eq!(text.parse::<HostAddr>().unwrap().to_string(), text);
        }
        for text in ["192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1%eth0]:0", "[febf::1%br-lan.7]:9"]
        {
            assert_eq!(text.parse::<ServiceAddr>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_addresses_are_rejected_with_a_reason() {
        let of_host = |text: &str| text.parse::<HostAddr>().unwrap_err();
        for text in ["", "%eth0", "eth0", "fe80::1%", "fe80::1%eth0%1", "fe80::1%sixteen-letters-"]
        {
            let is_zone = text.starts_with("fe80");
            let wanted = if is_zone { BadAddress::Zone } else { BadAddress::Address };
            assert_eq!(of_host(text), wanted, "{text}");
        }
        for text in ["2001:db8::1%eth0", "::1%lo", "192.0.2.1%eth0"] {
            assert_eq!(of_host(text), BadAddress::NotLinkLocal, "{text}");
        }
        for text in [
            "",
            "192.0.2.1",
            "[192.0.2.1]:53",
            "fe80::1:53",
            "[fe80::1]",
            "[::1]:",
            "[::1]:+53",
            "[::1]:65536",
            "[::1:53",
            "::1]:53",
        ] {
            let bad = text.parse::<ServiceAddr>().unwrap_err();
            assert_eq!(bad, BadAddress::Address, "{text}");
            assert!(text.parse::<SocketAddr>().is_err(), "{text}");
        }
    }

    #[test]
    fn zones_are_looked_up_among_current_interfaces() {
        let index = if_nametoindex("lo").unwrap();
        for zone in ["lo".to_owned(), index.to_string()] {
            let address: ServiceAddr = format!("[fe80::1%{zone}]:53").parse().unwrap();
            let SocketAddr::V6(resolved) = address.resolve().unwrap() else { panic!("{address}") };
            assert_eq!((resolved.scope_id(), resolved.port()), (index, 53));
        }
        for zone in ["no-such-one", "4294967290", "0"] {
            let address: ServiceAddr = format!("[fe80::1%{zone}]:53").parse().unwrap();
            let error = address.resolve().unwrap_err();
            assert_eq!(error.to_string(), format!("there is no interface {zone}"));
            assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
        }
        let global: ServiceAddr = "[2001:db8::1]:53".parse().unwrap();
        assert_eq!(global.resolve().unwrap(), global.without_zone());
    }

    #[test]
    fn the_scope_of_a_socket_is_its_zone() {
        let of = |text: &str| ServiceAddr::from(text.parse::<SocketAddr>().unwrap()).to_string();
        for text in ["[fe80::1%3]:53", "[fe80::1]:53", "127.0.0.1:5380", "[::]:53"] {
            assert_eq!(of(text), text);
        }
    }

    #[test]
    fn only_link_local_ipv6_addresses_need_a_zone() {
        let lacks = |text: &str| text.parse::<HostAddr>().unwrap().lacks_zone();
        assert!(lacks("fe80::1") && lacks("febf::ffff"));
        for text in ["fe80::1%eth0", "fec0::1", "169.254.0.1", "::1", "ff02::1"] {
            assert!(!lacks(text), "{text}");
        }
    }
}
