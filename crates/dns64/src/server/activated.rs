//! Sockets passed by systemd (socket activation).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt};

/// Sockets passed by systemd (socket activation).
#[derive(Debug, Default)]
pub struct Activated {
    /// Bound UDP sockets.
    pub udp: Vec<UdpSocket>,
    /// Listening TCP sockets.
    pub tcp: Vec<TcpListener>,
}

impl Activated {
    /// True if systemd passed no sockets.
    pub fn is_empty(&self) -> bool {
        self.udp.is_empty() && self.tcp.is_empty()
    }

    /// Returns the addresses at which the sockets receive queries. For a socket bound to all addresses of both
    /// families, one address of each family is returned.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let udp = self.udp.iter().map(|socket| served(socket, &socket.local_addr()));
        let tcp = self.tcp.iter().map(|socket| served(socket, &socket.local_addr()));
        let mut all: Vec<SocketAddr> = udp.chain(tcp).flatten().flatten().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Returns the addresses at which a socket bound to `address` receives queries.
fn served(socket: &impl AsFd, address: &io::Result<SocketAddr>) -> [Option<SocketAddr>; 2] {
    let Ok(address) = address else { return [None, None] };
    let is_for_both = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        && getsockopt(socket, sockopt::Ipv6V6Only).is_ok_and(|only_ipv6| !only_ipv6);
    let too = is_for_both.then(|| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()));
    [Some(*address), too]
}
