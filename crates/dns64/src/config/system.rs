//! The system's name servers: those of resolv.conf(5), without this server itself.
//!
//! A host that runs dns64d often asks it for its own names too, and then resolv.conf names it.
//! Asking itself would be a loop, so such an entry is left out, whichever address of this host it
//! has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use dns64_import::read_file;

use super::error::RESOLV_CONF;

/// The port of DNS (RFC 1035 §4.2); resolv.conf knows no other.
const DNS_PORT: u16 = 53;

/// The text of resolv.conf, or the error that reading it met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolvConf {
    /// The text.
    Text(String),
    /// The error, in words.
    Unreadable(String),
}

impl ResolvConf {
    /// Reads the system's file.
    pub(crate) fn read() -> ResolvConf {
        match read_file(Path::new(RESOLV_CONF)) {
            Ok(text) => ResolvConf::Text(text),
            Err(error) => ResolvConf::Unreadable(error.to_string()),
        }
    }

    /// Its text; empty if it cannot be read.
    pub(super) fn text(&self) -> &str {
        match self {
            ResolvConf::Text(text) => text,
            ResolvConf::Unreadable(_) => "",
        }
    }
}

/// What resolv.conf names: servers to ask, and those that are this server itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameServers {
    /// To be asked, each once, in their order.
    pub(super) others: Vec<SocketAddr>,
    /// Addresses of this server itself, which are not asked.
    pub(super) own: Vec<SocketAddr>,
}

impl NameServers {
    /// Reads the text of a resolv.conf for a server that listens on `listen`. Lines that name no
    /// address that can be asked (one with a scope) are passed over.
    pub(super) fn parse(resolv_conf: &str, listen: &[SocketAddr]) -> NameServers {
        let mut found = NameServers::default();
        for line in resolv_conf.lines() {
            let mut words = line.split_whitespace();
            let address =
                words.next().filter(|word| *word == "nameserver").and_then(|_| words.next());
            let Some(ip) = address.and_then(|address| address.parse::<IpAddr>().ok()) else {
                continue;
            };
            let server = SocketAddr::new(ip, DNS_PORT);
            let list = if is_own(listen, server) { &mut found.own } else { &mut found.others };
            if !list.contains(&server) {
                list.push(server);
            }
        }
        found
    }
}

/// Whether who asks `server` asks a server that listens on `listen`.
pub(crate) fn is_own(listen: &[SocketAddr], server: SocketAddr) -> bool {
    let theirs = server.ip();
    listen.iter().filter(|ours| ours.port() == server.port()).any(|ours| {
        let ours = ours.ip();
        // What is sent to the unspecified address arrives on loopback.
        let to_loopback = theirs.is_unspecified() && (ours.is_loopback() || ours.is_unspecified());
        let to_this_host = ours.is_unspecified() && is_of_this_host(theirs);
        ours == theirs || ours.is_ipv4() == theirs.is_ipv4() && (to_loopback || to_this_host)
    })
}

/// Whether an address is one of this host's. The kernel sends from an address to itself, so a
/// socket that is connected to it (no packet leaves for that) shows it; unlike a list of the
/// interfaces that needs nothing that confinement takes away.
fn is_of_this_host(address: IpAddr) -> bool {
    let any = if address.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, DNS_PORT))?;
        socket.local_addr()
    };
    address.is_loopback() || source().is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn name_servers_are_read_and_this_server_is_left_out() {
        let text = "# nameserver 192.0.2.9\nsearch example.org\nnameserver ::1\nnameserver 192.0.2.1 # main\n\
                    nameserver\nnameserver fe80::1%eth0\n  nameserver 2001:db8::53\nnameserver 192.0.2.1\noptions edns0\n";
        let found = NameServers::parse(text, &addresses(&["[::1]:53"]));
        assert_eq!(found.others, addresses(&["192.0.2.1:53", "[2001:db8::53]:53"]));
        assert_eq!(found.own, addresses(&["[::1]:53"]));
        // The same address on another port is another server.
        let found = NameServers::parse(text, &addresses(&["[::1]:5353"]));
        assert_eq!(found.others, addresses(&["[::1]:53", "192.0.2.1:53", "[2001:db8::53]:53"]));
        assert!(found.own.is_empty());
    }

    #[test]
    fn a_server_on_all_addresses_is_found_behind_each_of_them() {
        for (listen, server, own) in [
            ("0.0.0.0:53", "127.0.0.1:53", true),
            ("0.0.0.0:53", "127.0.0.53:53", true),
            ("0.0.0.0:53", "0.0.0.0:53", true),
            ("127.0.0.1:53", "0.0.0.0:53", true),
            ("0.0.0.0:53", "192.0.2.1:53", false),
            ("0.0.0.0:53", "[::1]:53", false),
            ("[::]:53", "[::1]:53", true),
            ("[::]:53", "127.0.0.1:53", false),
            ("[::]:53", "[2001:db8::1]:53", false),
            ("[::]:5353", "[::1]:53", false),
            ("192.0.2.7:53", "192.0.2.7:53", true),
            ("192.0.2.7:53", "127.0.0.1:53", false),
        ] {
            assert_eq!(
                is_own(&addresses(&[listen]), server.parse().unwrap()),
                own,
                "{listen} {server}"
            );
        }
    }

    #[test]
    fn addresses_of_this_host_are_told_from_others() {
        // Whatever address this host would send from is its own.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(is_of_this_host(socket.local_addr().unwrap().ip()));
        for address in ["192.0.2.1", "2001:db8::1", "198.51.100.255"] {
            assert!(!is_of_this_host(address.parse().unwrap()), "{address}");
        }
    }
}
