//! IP addresses of this host's interfaces.

use std::io;
use std::net::SocketAddr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// An IP address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Name of the interface, for example `eth0`.
    pub interface: String,
    /// IP address, with port 0. The scope of a link-local IPv6 address is the interface's index.
    pub address: SocketAddr,
    /// True if the interface is a loopback interface.
    pub loopback: bool,
}

/// Returns all addresses of the interfaces that are up, in the calling thread's network namespace.
///
/// # Errors
/// Returns any error from getifaddrs(3).
pub fn held() -> io::Result<Vec<LocalAddress>> {
    let held = getifaddrs()?.filter_map(|entry| {
        let address =
            address_of(&entry).filter(|_| entry.flags.contains(InterfaceFlags::IFF_UP))?;
        let loopback = entry.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        Some(LocalAddress { interface: entry.interface_name, address, loopback })
    });
    Ok(held.collect())
}

/// Returns the IP address in an entry of getifaddrs(3), if the entry has one. The port is 0.
pub(crate) fn address_of(entry: &InterfaceAddress) -> Option<SocketAddr> {
    let address = entry.address.as_ref()?;
    let v4 = address.as_sockaddr_in().map(|a| SocketAddr::V4((*a).into()));
    let v6 = address.as_sockaddr_in6().map(|a| SocketAddr::V6((*a).into()));
    v4.or(v6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        let address = "127.0.0.1:0".parse().unwrap();
        let lo = LocalAddress { interface: "lo".into(), address, loopback: true };
        assert!(held().unwrap().contains(&lo));
    }
}
