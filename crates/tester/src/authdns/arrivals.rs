//! Counts of datagrams for AuthDNS that arrived at the interfaces and at the sockets of its host.
//!
//! ```text
//! interface ─► tap ─► packet filter, checksum ─► sockets' buffers ─► workers
//!              interfaces                        sockets = read + dropped + wrong checksum
//! ```
//!
//! A *tap* is a packet socket that counts the datagrams at an interface. Datagrams that are counted at the interface
//! but not at a socket were lost in between, for instance in a packet filter.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use net::interfaces::LocalAddress;
use net::socket::scope_of;
use net::tap::Tap;
use serde::{Deserialize, Serialize};

/// Maximum number of taps. There is a limit because each tap slows down all packets.
const MOST_TAPS: usize = 32;
/// Interval between comparisons of the counts at the interfaces and at the sockets, while datagrams wait in the
/// sockets' buffers.
const AGAIN: Duration = Duration::from_millis(1);
/// Maximum number of comparisons of the counts at the interfaces and at the sockets. If the count at the sockets is
/// still lower after the last comparison, the difference counts as missed datagrams. By then each worker has published
/// its counters.
const COMPARISONS: u32 = 200;

/// Counts of the datagrams for AuthDNS that arrived after its status was first read. Datagrams received by AF_XDP are
/// not counted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Arrived {
    /// Number of datagrams that the interfaces of AuthDNS's host received.
    pub interfaces: u64,
    /// Number of datagrams that AuthDNS's sockets received or dropped, plus the number of datagrams with a wrong
    /// checksum.
    pub sockets: u64,
}

impl Arrived {
    /// Returns the number of datagrams that arrived at an interface after `before` was read, and then did not arrive at
    /// a socket.
    pub(super) fn missed_since(&self, before: &Arrived) -> u64 {
        let came = self.interfaces.saturating_sub(before.interfaces);
        came.saturating_sub(self.sockets.saturating_sub(before.sockets))
    }

    /// Returns the count at the interfaces minus the count at the sockets. The result is negative if more datagrams
    /// were counted at the sockets.
    fn missed(&self) -> i128 {
        i128::from(self.interfaces) - i128::from(self.sockets)
    }

    /// Returns the sums of the counts of two servers.
    pub(super) fn plus(&self, other: &Arrived) -> Arrived {
        Arrived {
            interfaces: self.interfaces + other.interfaces,
            sockets: self.sockets + other.sockets,
        }
    }
}

/// Taps (packet sockets that count datagrams) on the interfaces that have a server's addresses.
pub(super) struct Taps {
    taps: Vec<Tap>,
    last: Arrived,
}

impl Taps {
    /// Starts counting datagrams to `listen`. Returns `None` if the process lacks the privilege, or if more than
    /// [`MOST_TAPS`] taps are needed.
    ///
    /// An address gets a tap on each interface that has it. If no interface has the address, it gets a tap on each
    /// interface in `names`.
    pub(super) fn on(
        listen: &[SocketAddr],
        names: &[String],
        held: &[LocalAddress],
    ) -> Option<Taps> {
        let places = places(listen, names, held);
        if places.len() > MOST_TAPS {
            return None;
        }
        let tap = |((interface, address), ports): (&(String, IpAddr), &Vec<u16>)| {
            Tap::new(interface, (*address).into(), ports).ok()
        };
        let taps = places.iter().map(tap).collect::<Option<Vec<_>>>()?;
        Some(Taps { taps, last: Arrived::default() })
    }

    /// Returns the counts at the interfaces and at the sockets; `at_sockets` reads the count at the sockets. Waits for
    /// a limited time until the workers have read the datagrams in the sockets' buffers.
    pub(super) fn compare(&mut self, at_sockets: impl Fn() -> u64) -> Option<Arrived> {
        let taps = &self.taps;
        let interfaces = || taps.iter().map(|tap| tap.count().ok()).sum::<Option<u64>>();
        self.last = settled(&self.last, interfaces, at_sockets, || thread::sleep(AGAIN))?;
        Some(self.last)
    }
}

/// Reads the counts at the interfaces and at the sockets repeatedly, and returns the pair of counts with the smallest
/// difference.
///
/// The difference is the number of missed datagrams, or more while datagrams still wait in the sockets' buffers. The
/// number of missed datagrams never decreases. The function therefore returns as soon as the difference is not above
/// that in `last`, the previous result.
fn settled(
    last: &Arrived,
    interfaces: impl Fn() -> Option<u64>,
    sockets: impl Fn() -> u64,
    wait: impl Fn(),
) -> Option<Arrived> {
    // The interfaces are read first, so that a datagram arriving between the two reads does not count as missed.
    let read = || Some(Arrived { interfaces: interfaces()?, sockets: sockets() });
    let mut best = read()?;
    for _ in 1..COMPARISONS {
        if best.missed() <= last.missed() {
            break;
        }
        wait();
        let now = read()?;
        if now.missed() <= best.missed() {
            best = now;
        }
    }
    Some(best)
}

/// Returns the interfaces, addresses and ports at which datagrams to `listen` arrive.
fn places(
    listen: &[SocketAddr],
    names: &[String],
    held: &[LocalAddress],
) -> BTreeMap<(String, IpAddr), Vec<u16>> {
    let mut places: BTreeMap<_, Vec<u16>> = BTreeMap::new();
    for address in listen {
        let ip = address.ip().to_canonical();
        let is_reached = |held: &&LocalAddress| match ip {
            IpAddr::V4(v4) if v4.is_unspecified() => held.address.is_ipv4(),
            IpAddr::V6(v6) if v6.is_unspecified() => true,
            _ => is_of(*address, held),
        };
        let mut found: Vec<(String, IpAddr)> = held
            .iter()
            .filter(is_reached)
            .map(|held| (held.interface.clone(), held.address.ip()))
            .collect();
        if found.is_empty() {
            found.extend(names.iter().map(|name| (name.clone(), ip)));
        }
        for place in found {
            let ports = places.entry(place).or_default();
            if !ports.contains(&address.port()) {
                ports.push(address.port());
            }
        }
    }
    places
}

/// Returns true if a server that listens on `address` receives datagrams sent to the interface address `held`. Several
/// interfaces may have the same link-local address, so the scopes are compared too.
pub(super) fn is_of(address: SocketAddr, held: &LocalAddress) -> bool {
    address.ip().to_canonical() == held.address.ip()
        && [0, scope_of(&held.address)].contains(&scope_of(&address))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn misses_are_interface_minus_socket_counts() {
        let at = |interfaces, sockets| Arrived { interfaces, sockets };
        assert_eq!(at(100, 90).missed_since(&at(50, 45)), 5);
        assert_eq!(at(100, 95).missed_since(&at(50, 45)), 0);
        // Some datagrams arrived at the sockets before the taps were set up.
        assert_eq!(at(100, 190).missed_since(&at(50, 145)), 5);
        assert_eq!(at(1, 2).plus(&at(10, 20)), at(11, 22));
    }

    #[test]
    fn datagrams_in_a_buffer_are_waited_for() {
        let turns = Cell::new(0);
        let counted = |at_interfaces: u64, read_in: &[u64]| {
            turns.set(0);
            let sockets = || read_in[turns.get().min(read_in.len() - 1)];
            let wait = || turns.set(turns.get() + 1);
            let last = Arrived { interfaces: 10, sockets: 8 };
            let found = settled(&last, || Some(at_interfaces), sockets, wait).unwrap();
            (found.missed_since(&last), turns.get())
        };
        assert_eq!(counted(30, &[28]), (0, 0));
        assert_eq!(counted(30, &[20, 24, 28]), (0, 2));
        // A packet filter drops three datagrams.
        assert_eq!(counted(30, &[20, 25]), (3, COMPARISONS as usize - 1));
        assert_eq!(settled(&Arrived::default(), || None, || 0, || ()), None);
    }

    #[test]
    fn taps_are_where_datagrams_arrive() {
        let on = |interface: &str, address: &str| {
            let address = address.parse().unwrap();
            LocalAddress { interface: interface.into(), address, loopback: interface == "lo" }
        };
        let held = [on("lo", "127.0.0.1:0"), on("eth1", "198.18.0.2:0"), on("eth1", "[fd00::2]:0")];
        let names = ["eth1".to_owned(), "lo".to_owned()];
        let of = |listen: &[&str]| {
            let listen: Vec<SocketAddr> = listen.iter().map(|text| text.parse().unwrap()).collect();
            let found = places(&listen, &names, &held);
            let text = |((interface, ip), ports): (&(String, IpAddr), &Vec<u16>)| {
                format!("{interface} {ip} {ports:?}")
            };
            found.iter().map(text).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(of(&["198.18.0.2:53", "198.18.0.2:54"]), "eth1 198.18.0.2 [53, 54]");
        assert_eq!(of(&["[::ffff:198.18.0.2]:53"]), "eth1 198.18.0.2 [53]");
        assert_eq!(of(&["0.0.0.0:53"]), "eth1 198.18.0.2 [53], lo 127.0.0.1 [53]");
        assert_eq!(of(&["[::]:53"]), "eth1 198.18.0.2 [53], eth1 fd00::2 [53], lo 127.0.0.1 [53]");
        assert_eq!(of(&["203.0.113.9:53"]), "eth1 203.0.113.9 [53], lo 203.0.113.9 [53]");
    }
}
