//! Detection of a server on this host.

use std::net::SocketAddr;

use method::compliance::Fact;
use net::ethtool::driver;
use net::neighbour::NextHop;

/// Determines whether the server is on this host.
///
/// A server at a loopback address, or at another address of this host, is on this host. If the user states that server
/// and tester have separate hosts, a server at any other address is assumed to be on a different host. Without this
/// statement, a server behind a virtual Ethernet pair is assumed to be in a network namespace of this host. Otherwise
/// the result is unknown.
pub(super) fn shares_host(server: SocketAddr, stated_separate: bool) -> Fact {
    let Ok(next_hop) = NextHop::towards(server) else { return Fact::NotKnown };
    if next_hop.loopback {
        return Fact::Yes;
    }
    let is_veth = driver(&next_hop.interface).is_some_and(|driver| driver.name == "veth");
    match (stated_separate, is_veth) {
        (true, _) => Fact::StatedNo,
        (false, true) => Fact::Yes,
        (false, false) => Fact::NotKnown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_always_this_host() {
        for server in ["127.0.0.1:53", "127.3.2.1:53", "[::1]:53"] {
            assert_eq!(shares_host(server.parse().unwrap(), true), Fact::Yes, "{server}");
        }
    }
}
