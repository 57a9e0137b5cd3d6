//! The name servers that the system lists in resolv.conf(5), except this server itself.
//!
//! A host that runs dns64d often also uses dns64d as its resolver, and lists it in resolv.conf.
//! Upstream queries from dns64d to itself would loop. Entries of resolv.conf with an address on
//! which dns64d listens are therefore skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;

use dns64_import::read_file;
use net::address::{HostAddr, ServiceAddr};

use super::error::RESOLV_CONF;

/// DNS port (RFC 1035 §4.2). resolv.conf supports no other port.
const DNS_PORT: u16 = 53;

/// Result of reading resolv.conf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolvConf {
    /// Contents of resolv.conf.
    Text(String),
    /// The file could not be read, for the reason in this error message.
    Unreadable(String),
}

impl ResolvConf {
    /// Reads /etc/resolv.conf.
    pub(crate) fn read() -> ResolvConf {
        match read_file(Path::new(RESOLV_CONF)) {
            Ok(text) => ResolvConf::Text(text),
            Err(error) => ResolvConf::Unreadable(error.to_string()),
        }
    }

    /// Returns the contents of the file, or an empty text if the file cannot be read.
    pub(super) fn text(&self) -> &str {
        match self {
            ResolvConf::Text(text) => text,
            ResolvConf::Unreadable(_) => "",
        }
    }
}

/// Name servers in resolv.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameServers {
    /// Servers to query, in the order of the file and without duplicates.
    pub(super) others: Vec<ServiceAddr>,
    /// Addresses of this server itself, which are not queried.
    pub(super) own: Vec<ServiceAddr>,
    /// Link-local addresses that cannot be used, because they have no zone identifier.
    pub(super) without_zone: Vec<HostAddr>,
}

impl NameServers {
    /// Parses a resolv.conf for a server that listens on `listen`. Lines without an address are
    /// ignored.
    pub(super) fn parse(resolv_conf: &str, listen: &[ServiceAddr]) -> NameServers {
        let mut found = NameServers::default();
        for line in resolv_conf.lines() {
            let mut words = line.split_whitespace();
            let address =
                words.next().filter(|word| *word == "nameserver").and_then(|_| words.next());
            let Some(host) = address.and_then(|address| address.parse::<HostAddr>().ok()) else {
                continue;
            };
            if host.lacks_zone() {
                found.without_zone.push(host);
                continue;
            }
            let server = ServiceAddr::new(host, DNS_PORT);
            let list = if is_own(listen, server) { &mut found.own } else { &mut found.others };
            if !list.contains(&server) {
                list.push(server);
            }
        }
        found
    }
}

/// True if a query to `server` reaches a server that listens on `listen`.
pub(crate) fn is_own(listen: &[ServiceAddr], server: ServiceAddr) -> bool {
    let theirs = server.ip();
    listen.iter().filter(|ours| ours.port() == server.port()).any(|ours| {
        let (address, ours) = (ours, ours.ip());
        // Packets to the unspecified address arrive on the loopback interface.
        let to_loopback = theirs.is_unspecified() && (ours.is_loopback() || ours.is_unspecified());
        let to_this_host = ours.is_unspecified() && is_of_this_host(server);
        ours == theirs && is_same_zone(*address, server)
            || ours.is_ipv4() == theirs.is_ipv4() && (to_loopback || to_this_host)
    })
}

/// True if two services with the same IP address have the same port, and their zone identifiers refer to the same
/// interface. A zone identifier can be the name or the index of the interface.
fn is_same_zone(one: ServiceAddr, other: ServiceAddr) -> bool {
    let is_same = || Some(one.resolve().ok()? == other.resolve().ok()?);
    one == other || is_same().unwrap_or(false)
}

/// True if `server` is an address of this host. The test connects a UDP socket to `server`, and reads the source
/// address that the kernel chooses. If `server` is an address of this host, the kernel chooses the same address. No
/// packet is sent. Unlike a listing of the interfaces, the test also works in a sandbox.
fn is_of_this_host(server: ServiceAddr) -> bool {
    let any = if server.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server.resolve()?)?;
        socket.local_addr()
    };
    server.ip().is_loopback() || source().is_ok_and(|source| source.ip() == server.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<ServiceAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn name_servers_are_read_and_this_server_is_left_out() {
        let text = "# nameserver 192.0.2.9\nsearch example.org\nnameserver ::1\nnameserver 192.0.2.1 # main\n\
                    nameserver\nnameserver fe80::1%eth0\n  nameserver 2001:db8::53\nnameserver 192.0.2.1\noptions edns0\n\
                    nameserver fe80::2\nnameserver fe80::3%4\nnameserver 2001:db8::1%eth0\n";
        let found = NameServers::parse(text, &addresses(&["[::1]:53"]));
        let (main, zoned) = ("192.0.2.1:53", ["[fe80::1%eth0]:53", "[fe80::3%4]:53"]);
        let others = [main, zoned[0], "[2001:db8::53]:53", zoned[1]];
        assert_eq!(found.others, addresses(&others));
        assert_eq!(found.own, addresses(&["[::1]:53"]));
        assert_eq!(found.without_zone, ["fe80::2".parse::<HostAddr>().unwrap()]);
        // The same address with a different port is a different server.
        let found = NameServers::parse(text, &addresses(&["[::1]:5353"]));
        let with_own = [&["[::1]:53"], &others[..]].concat();
        assert_eq!(found.others, addresses(&with_own));
        assert!(found.own.is_empty());
    }

    #[test]
    fn a_server_on_all_addresses_is_found_at_each_one() {
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
    fn addresses_of_this_host_are_distinguished() {
        // Every source address of this host is local.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(is_of_this_host(socket.local_addr().unwrap().into()));
        for address in ["192.0.2.1:53", "[2001:db8::1]:53", "198.51.100.255:53"] {
            assert!(!is_of_this_host(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_zone_is_the_same_by_name_and_by_index() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        let by_index = format!("[fe80::1%{index}]:53");
        for (listen, server, own) in [
            ("[fe80::1%lo]:53", "[fe80::1%lo]:53", true),
            ("[fe80::1%lo]:53", by_index.as_str(), true),
            ("[fe80::1%lo]:53", "[fe80::1%missing]:53", false),
            ("[fe80::1%missing]:53", "[fe80::1%missing]:53", true),
            ("[fe80::1%lo]:53", "[fe80::2%lo]:53", false),
        ] {
            let listen = addresses(&[listen]);
            assert_eq!(is_own(&listen, server.parse().unwrap()), own, "{listen:?} {server}");
        }
    }
}
