//! The next hop towards a server: its interface, and the state of its link-layer address.
//!
//! ```text
//! server ─ RTM_GETROUTE ─► interface, gateway or the server itself ─ RTM_GETNEIGH ─► reachable, stale, incomplete, none …
//! ```
//!
//! While the link-layer address is unknown, the kernel queues a few packets for the neighbour and drops the others. The
//! counters of sockets and interfaces do not include these drops.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Deref;
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourHeader, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_indextoname};

use crate::netlink::Routing;

/// The discard service (RFC 863), which sends no replies.
const DISCARD: u16 = 9;
/// Interval between datagrams that make the kernel resolve a neighbour.
const AGAIN: Duration = Duration::from_millis(500);
/// Interval between reads of the state of a neighbour that is being resolved.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

/// First hop of packets to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Name of the interface through which packets leave, for example `eth0`.
    pub interface: String,
    /// Address of the gateway, or of the server itself if the server is on the same link.
    pub address: IpAddr,
    /// True if packets need the neighbour's link-layer address. False on loopback, point-to-point and NOARP interfaces,
    /// and for addresses of this host.
    pub needs_address: bool,
    /// True if the interface is a loopback interface.
    pub loopback: bool,
    index: u32,
}

/// State of a neighbour's link-layer address in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// The link-layer address is known, or no link-layer address is needed. Packets leave at once.
    Known,
    /// Address resolution is in progress or has failed. Packets wait in a short queue, or are dropped.
    Unresolved,
    /// The kernel has no entry for the neighbour. The next packet to the neighbour starts address resolution.
    Absent,
}

/// A next hop to which packets leave at once, because its link-layer address is known or no link-layer address is
/// needed.
#[derive(Clone, Debug)]
pub struct ResolvedHop(NextHop);

/// Reasons why the link-layer address of a next hop could not be determined, so that there is no [`ResolvedHop`].
#[derive(Debug)]
pub enum Unresolved {
    /// There is no route, or the interface is gone.
    NoRoute(io::Error),
    /// The neighbour does not answer.
    Silent {
        /// The next hop that does not answer.
        hop: NextHop,
        /// Error returned by the kernel, or `TimedOut` if the kernel returned no error.
        source: io::Error,
    },
}

impl ResolvedHop {
    /// Finds the next hop towards `server`, and resolves its link-layer address for up to `limit`. No query is sent to
    /// the server.
    ///
    /// # Errors
    /// Returns any error from [`NextHop::towards`] or [`NextHop::resolve`].
    pub fn new(server: SocketAddr, limit: Duration) -> Result<ResolvedHop, Unresolved> {
        let hop = NextHop::towards(server).map_err(Unresolved::NoRoute)?;
        match hop.resolve(server, limit) {
            Ok(()) => Ok(ResolvedHop(hop)),
            Err(source) => Err(Unresolved::Silent { hop, source }),
        }
    }

    /// Returns the next hop.
    pub fn into_inner(self) -> NextHop {
        self.0
    }
}

impl Deref for ResolvedHop {
    type Target = NextHop;

    fn deref(&self) -> &NextHop {
        &self.0
    }
}

impl NextHop {
    /// Returns the next hop towards `server` in the calling thread's network namespace. Nothing is sent.
    ///
    /// # Errors
    /// Returns an error if there is no route, or the interface is gone.
    pub fn towards(server: SocketAddr) -> io::Result<NextHop> {
        let target = server.ip().to_canonical();
        let mut question = route_request(target);
        if let SocketAddr::V6(v6) = server
            && v6.scope_id() != 0
        {
            question.attributes.push(RouteAttribute::Oif(v6.scope_id()));
        }
        let RouteNetlinkMessage::NewRoute(route) =
            Routing::open()?.get(RouteNetlinkMessage::GetRoute(question))?
        else {
            return Err(io::Error::other("the kernel's answer to a route request is not a route"));
        };
        let index = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        let index = index
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the route has no interface"))?;
        let interface = if_indextoname(index)?.to_string_lossy().into_owned();
        let flags = getifaddrs()?.find(|i| i.interface_name == interface).map(|i| i.flags);
        let flags = flags.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no interface {interface}"))
        })?;
        let alone = InterfaceFlags::IFF_LOOPBACK
            | InterfaceFlags::IFF_NOARP
            | InterfaceFlags::IFF_POINTOPOINT;
        Ok(NextHop {
            address: route.attributes.iter().find_map(gateway).unwrap_or(target),
            needs_address: !flags.intersects(alone) && route.header.kind == RouteType::Unicast,
            loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
            interface,
            index,
        })
    }

    /// Makes the kernel resolve the next hop's link-layer address, if this address is needed and unknown. For this
    /// purpose, empty datagrams are sent to the discard port of `server` for up to `limit`. No privilege is needed.
    ///
    /// # Errors
    /// Returns `TimedOut` if the neighbour does not answer, or any error from the kernel.
    pub fn resolve(&self, server: SocketAddr, limit: Duration) -> io::Result<()> {
        let mut watch = Watch::new(self.clone())?;
        let give_up = Instant::now() + limit;
        let mut ask_at = Instant::now();
        while watch.sample()? != Reachability::Known {
            let now = Instant::now();
            if now >= give_up {
                let why = format!(
                    "its link-layer address is still unknown after {:.1} s",
                    limit.as_secs_f64()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            if now >= ask_at {
                // The kernel may refuse to send because resolution failed a moment ago. The error is ignored, because
                // the state of the entry shows when the neighbour answers.
                let _ = discard(server);
                ask_at = now + AGAIN;
            }
            thread::sleep(SAMPLE_INTERVAL);
        }
        Ok(())
    }

    /// Returns, in wire order, the two Ethernet addresses of a frame to the next hop: first the address of the next
    /// hop, then the address of the interface. Returns `None` if no link-layer address is needed, or if the address of
    /// the next hop is unknown.
    ///
    /// # Errors
    /// Returns an error if the kernel does not answer, or the interface is gone.
    pub fn link(&self) -> io::Result<Option<[u8; 12]>> {
        if !self.needs_address {
            return Ok(None);
        }
        let address = Watch::new(self.clone())?.link_layer_address()?;
        let own = link_address(&self.interface)?;
        let ethernet = |octets: Vec<u8>| <[u8; 6]>::try_from(octets).ok();
        Ok(address.and_then(ethernet).zip(own).map(|(next, own)| {
            let mut link = [0; 12];
            link[..6].copy_from_slice(&next);
            link[6..].copy_from_slice(&own);
            link
        }))
    }

    /// Returns the number of packets that this machine dropped since boot because a neighbour could not be resolved.
    /// The number covers all neighbours of this address family in all network namespaces. Returns `None` outside the
    /// initial network namespace, because only its /proc/net has these counters.
    pub fn discards(&self) -> Option<u64> {
        discards_in(if self.address.is_ipv4() { ARP_CACHE } else { NDISC_CACHE })
    }
}

/// Returns the number of packets dropped because a neighbour could not be resolved. Unlike [`NextHop::discards`], the
/// number covers both address families.
pub fn all_discards() -> Option<u64> {
    Some(discards_in(ARP_CACHE)? + discards_in(NDISC_CACHE).unwrap_or(0))
}

/// Names of the files with the kernel's neighbour statistics, for IPv4 and for IPv6.
const ARP_CACHE: &str = "arp_cache";
const NDISC_CACHE: &str = "ndisc_cache";

fn discards_in(file: &str) -> Option<u64> {
    let read = |process: &str| fs::read_to_string(format!("/proc/{process}/net/stat/{file}")).ok();
    read("thread-self").or_else(|| read("1")).as_deref().and_then(parse_discards)
}

/// Returns the Ethernet address of an interface, or `None` if the interface does not exist or has
/// no such address.
///
/// # Errors
/// Returns any error from getifaddrs(3).
pub(crate) fn link_address(interface: &str) -> io::Result<Option<[u8; 6]>> {
    let of_it = getifaddrs()?.filter(|entry| entry.interface_name == interface);
    Ok(of_it.filter_map(|entry| entry.address?.as_link_addr()?.addr()).next())
}

/// Repeated readings of the state of one neighbour.
pub struct Watch {
    next_hop: NextHop,
    routing: Routing,
}

impl Watch {
    /// Opens a netlink socket for reading the state of `next_hop`, in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns an error if no netlink socket can be opened.
    pub fn new(next_hop: NextHop) -> io::Result<Watch> {
        Ok(Watch { next_hop, routing: Routing::open()? })
    }

    /// Returns the current state of the neighbour's link-layer address. The request to the kernel takes some
    /// microseconds.
    ///
    /// # Errors
    /// Returns an error if the kernel does not support the request (before Linux 5.0), or the interface is gone.
    pub fn sample(&mut self) -> io::Result<Reachability> {
        if !self.next_hop.needs_address {
            return Ok(Reachability::Known);
        }
        Ok(match self.entry()? {
            None => Reachability::Absent,
            Some(entry) => match entry.header.state {
                NeighbourState::Incomplete | NeighbourState::Failed => Reachability::Unresolved,
                NeighbourState::None => Reachability::Absent,
                _ => Reachability::Known,
            },
        })
    }

    /// Returns the neighbour's link-layer address, if the kernel has it.
    fn link_layer_address(&mut self) -> io::Result<Option<Vec<u8>>> {
        let attributes = self.entry()?.map(|entry| entry.attributes).unwrap_or_default();
        Ok(attributes.into_iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(octets) => Some(octets),
            _ => None,
        }))
    }

    /// Returns the kernel's entry for the neighbour, if there is one.
    fn entry(&mut self) -> io::Result<Option<NeighbourMessage>> {
        let NextHop { address, index, .. } = self.next_hop;
        let mut question = NeighbourMessage::default();
        question.header = NeighbourHeader {
            family: family(address),
            ifindex: index,
            ..NeighbourHeader::default()
        };
        question.attributes.push(NeighbourAttribute::Destination(address.into()));
        match self.routing.get(RouteNetlinkMessage::GetNeighbour(question)) {
            Ok(RouteNetlinkMessage::NewNeighbour(found)) => Ok(Some(found)),
            Ok(_) => Err(io::Error::other(
                "the kernel's answer to a neighbour request is not a neighbour",
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Repeated readings of all neighbours of one network namespace.
pub struct Neighbours(Routing);

impl Neighbours {
    /// Opens a netlink socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to open the socket.
    pub fn open() -> io::Result<Neighbours> {
        Routing::open().map(Neighbours)
    }

    /// Returns the neighbours for which a link-layer address is being resolved, with the names of their interfaces.
    /// Packets to these neighbours wait in a short queue. A neighbour that did not answer is included only while
    /// further packets make the kernel repeat the resolution.
    ///
    /// # Errors
    /// Returns an error if the kernel does not list the neighbours.
    pub fn unresolved(&mut self) -> io::Result<Vec<(String, IpAddr)>> {
        let all = self.0.dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))?;
        let unresolved = all.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(entry)
                if entry.header.state == NeighbourState::Incomplete =>
            {
                let address = entry.attributes.iter().find_map(|attribute| match attribute {
                    NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                        Some(IpAddr::from(*v4))
                    }
                    NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                        Some(IpAddr::from(*v6))
                    }
                    _ => None,
                })?;
                let interface = if_indextoname(entry.header.ifindex).ok()?;
                Some((interface.to_string_lossy().into_owned(), address))
            }
            _ => None,
        });
        Ok(unresolved.collect())
    }
}

/// Returns the first address in `addresses` that is not local in the calling thread's network namespace, or `None` if
/// all are local. An address is local if the kernel's route to it is of type local. Local addresses are those of this
/// host's interfaces, 127.0.0.0/8, and prefixes made local by a command such as `ip route add local 198.19.0.0/24 dev
/// lo`. Nothing is sent.
///
/// # Errors
/// Returns an error if no netlink socket can be opened, or the kernel does not answer.
pub fn first_not_local(addresses: impl IntoIterator<Item = IpAddr>) -> io::Result<Option<IpAddr>> {
    let mut routing = Routing::open()?;
    for address in addresses {
        match routing.get(RouteNetlinkMessage::GetRoute(route_request(address.to_canonical()))) {
            Ok(RouteNetlinkMessage::NewRoute(route)) if route.header.kind == RouteType::Local => {}
            Ok(_) => return Ok(Some(address)),
            // There is no route, the route rejects packets, or the address is not a destination.
            Err(error)
                if error.raw_os_error().is_some_and(|code| UNREACHABLE_ERRORS.contains(&code)) =>
            {
                return Ok(Some(address));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Kernel errors for an unreachable address.
const UNREACHABLE_ERRORS: [i32; 4] =
    [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];

/// Returns the request for the route to an address.
fn route_request(target: IpAddr) -> RouteMessage {
    let mut question = RouteMessage::default();
    question.header.address_family = family(target);
    question.header.destination_prefix_length = if target.is_ipv4() { 32 } else { 128 };
    question.attributes.push(RouteAttribute::Destination(target.into()));
    question
}

fn discard(server: SocketAddr) -> io::Result<()> {
    let any: SocketAddr = if server.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let mut target = server;
    target.set_port(DISCARD);
    UdpSocket::bind(any)?.send_to(&[], target).map(drop)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(a)) | RouteAttribute::Via(RouteVia::Inet(a)) => {
            Some((*a).into())
        }
        RouteAttribute::Gateway(RouteAddress::Inet6(a))
        | RouteAttribute::Via(RouteVia::Inet6(a)) => Some((*a).into()),
        _ => None,
    }
}

/// Returns the sum of the column `unresolved_discards` over all CPUs, from a table with a header and hexadecimal
/// numbers.
fn parse_discards(table: &str) -> Option<u64> {
    let mut lines = table.lines();
    let column = lines.next()?.split_whitespace().position(|name| name == "unresolved_discards")?;
    let of_cpu = |line: &str| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok();
    lines.map(of_cpu).sum()
}

#[cfg(test)]
mod tests {
    use testbed::with_veth_pair;

    use super::*;

    #[test]
    fn discards_are_found_by_their_header_and_added_up() {
        let table = "entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast rcv_probes_ucast \
                     periodic_gc_runs forced_gc_runs unresolved_discards table_fulls\n\
                     00000005 00000010 0000000b 00000000 0 0 0 0 0 0 0 0000001f 00000000\n\
                     00000005 00000010 0000000b 00000000 0 0 0 0 0 0 0 00000001 00000000\n";
        assert_eq!(parse_discards(table), Some(32));
        assert_eq!(parse_discards("entries allocs\n1 2\n"), None);
        assert_eq!(parse_discards(""), None);
    }

    #[test]
    fn a_silent_neighbour_is_unresolved() {
        let silent: SocketAddr = "198.18.0.9:53".parse().unwrap();
        let found = with_veth_pair(
            "a_silent_neighbour_is_unresolved",
            1,
            &["198.18.0.1/24"],
            &["198.18.0.2/24"],
            |_| {
                let mut neighbours = Neighbours::open().unwrap();
                let before = neighbours.unresolved().unwrap();
                discard(silent).unwrap();
                (before, neighbours.unresolved().unwrap())
            },
        );
        let Some((before, after)) = found else { return };
        assert_eq!((before, after), (vec![], vec![("near".to_owned(), silent.ip())]));
    }

    #[test]
    fn addresses_with_a_local_route_are_local() {
        let first = |all: &[&str]| {
            first_not_local(all.iter().map(|text| text.parse::<IpAddr>().unwrap())).unwrap()
        };
        assert_eq!(first(&["127.0.0.1", "127.1.2.3", "::1"]), None);
        for other in ["192.0.2.1", "2001:db8::1", "127.255.255.255", "224.0.0.1"] {
            assert_eq!(first(&["127.0.0.1", other]), Some(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn addresses_of_this_host_need_no_neighbour() {
        for server in ["127.0.0.1:53", "127.9.9.9:53", "[::1]:53", "[::ffff:127.0.0.1]:53"] {
            let server = server.parse().unwrap();
            let hop = NextHop::towards(server).unwrap();
            assert_eq!(
                (hop.interface.as_str(), hop.needs_address, hop.loopback),
                ("lo", false, true),
                "{server}"
            );
            hop.resolve(server, Duration::ZERO).unwrap();
        }
    }
}
