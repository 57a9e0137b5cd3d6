//! Ports on the loopback interface for servers that are repeatedly restarted on the same port.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::{fs, io};

/// Lowest port that is tried. Lower ports may belong to well-known services.
const LOWEST: u16 = 10_240;
/// Default start of the range of ephemeral ports in Linux, used if the actual range is not
/// readable.
const USUAL: u16 = 32_768;

/// Returns an address on `ip` with a port that is free for UDP and TCP. The kernel does not pick this port as an
/// ephemeral port (`ip_local_port_range`), so no client can occupy it between two starts of a server.
///
/// # Errors
/// Returns an error if there is no free port, or the host does not have the address `ip`.
pub fn free(ip: IpAddr) -> io::Result<SocketAddr> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = first_of_clients(&text);
    let candidates = u64::from(end.saturating_sub(LOWEST));
    // The first candidate differs between calls, so that two simultaneous campaigns do not try the
    // same ports.
    let begin = RandomState::new().hash_one(ip);
    for n in 0..candidates {
        let port = LOWEST + (begin.wrapping_add(n) % candidates) as u16;
        let address = SocketAddr::new(ip, port);
        match is_free(address) {
            Ok(()) => return Ok(address),
            Err(e)
                if e.kind() == io::ErrorKind::AddrInUse
                    || e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
    }
    // All candidates are ephemeral ports, so any free port will do.
    let address = UdpSocket::bind(SocketAddr::new(ip, 0))?.local_addr()?;
    is_free(address).map(|()| address)
}

/// Returns the first ephemeral port. `text` is the content of the file `ip_local_port_range`.
fn first_of_clients(text: &str) -> u16 {
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(USUAL)
}

/// Checks that this port is free for UDP and TCP.
///
/// # Errors
/// Returns the system's error if the port is in use, or if the host does not have the address.
pub fn is_free(address: SocketAddr) -> io::Result<()> {
    let _udp = UdpSocket::bind(address)?;
    TcpListener::bind(address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn free_ports_are_below_those_of_clients() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let address = free(ip).unwrap();
            let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
            let end = first_of_clients(&text);
            assert!(
                address.ip() == ip && (address.port() < end || end <= LOWEST),
                "{address} {text}"
            );
            is_free(address).unwrap();
        }
    }

    #[test]
    fn a_port_that_is_taken_for_one_protocol_is_not_free() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        is_free(udp.local_addr().unwrap()).unwrap_err();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        is_free(tcp.local_addr().unwrap()).unwrap_err();
    }

    #[test]
    fn the_range_of_clients_is_read() {
        assert_eq!((first_of_clients("40000\t60999\n"), first_of_clients("")), (40_000, USUAL));
    }
}
