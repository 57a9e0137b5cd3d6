//! Upstream queries over AF_XDP: the path of queries, and the lookup of received answers.
//!
//! ```text
//! query ─► a source port, as without AF_XDP ─► its socket is open, and the port is in IngressPorts
//!    ├─ next hop known ─► Outbox ─► interface
//!    └─ next hop unknown, or verified a second ago ─► socket ─► kernel, which verifies the next hop
//! answer ─► filter: is the port in IngressPorts? ─┬─ yes ─► rings ─► worker that owns the port
//!                                                 └─ no ──► socket
//! ```
//!
//! The port and id of a query, which an attacker must guess (RFC 5452 §4), are chosen as without AF_XDP. The kernel
//! draws each port at random, reserves it, and reports ICMP errors to its socket.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::neighbour::NextHop;
use net::xdp::{EthernetLink, Outbox, PortSet, XdpError};
use units::Nanos;

use crate::ids::{PortId, ServerId, WorkerId};

/// Interval between lookups of the next hop towards a server.
const LOOKUP_INTERVAL: Nanos = Nanos::SECOND;

/// Table for one local address: the source ports at which answers arrive over AF_XDP. For each port, the table contains
/// the worker that opened it and the server that is queried from it.
pub(crate) struct IngressPorts {
    address: IpAddr,
    ports: Arc<PortSet>,
    /// For each port number, one value: worker index plus 1 (16 bits), server identifier (32 bits), and index of the
    /// port among the ports for this server (16 bits). The value 0 means that the port is not open.
    owners: Box<[AtomicU64]>,
    /// For each port number, the hash of the address and port of the server that is queried from this port. The hash
    /// filters out forged answers before they reach the worker that opened the port. The worker then compares the
    /// complete address.
    servers: Box<[AtomicU64]>,
    hashes: RandomState,
}

impl IngressPorts {
    /// Returns an empty table of source ports for a local address.
    ///
    /// # Errors
    ///
    /// Returns the error of [`PortSet::new`] if the kernel refuses to create the set of ports.
    pub(crate) fn new(address: IpAddr) -> Result<IngressPorts, XdpError> {
        let [owners, servers] =
            [(); 2].map(|()| (0..=u16::MAX).map(|_| AtomicU64::new(0)).collect());
        let (ports, hashes) = (Arc::new(PortSet::new()?), RandomState::new());
        Ok(IngressPorts { address, ports, owners, servers, hashes })
    }

    /// Returns the local address of these source ports.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the set of open source ports that the packet filter reads.
    pub(crate) fn ports(&self) -> &Arc<PortSet> {
        &self.ports
    }

    /// Returns the worker that opened a source port, and the worker's identifier for this port.
    #[inline]
    pub(crate) fn owner(&self, port: u16) -> Option<(WorkerId, PortId)> {
        let owner = self.owners[usize::from(port)].load(Ordering::Relaxed);
        let worker = WorkerId((owner >> 48).checked_sub(1)? as usize);
        let server = ServerId((owner >> 16) as u32);
        Some((worker, PortId { server, number: owner as u16 }))
    }

    /// True if `server` is the server that is queried from the source port `port`.
    pub(crate) fn is_asked(&self, port: u16, server: SocketAddr) -> bool {
        self.servers[usize::from(port)].load(Ordering::Relaxed) == self.hash(server)
    }

    fn hash(&self, server: SocketAddr) -> u64 {
        // Frames do not show the interface of a link-local address.
        self.hashes.hash_one((server.ip(), server.port()))
    }

    fn open(
        self: &Arc<IngressPorts>,
        port: u16,
        server: SocketAddr,
        worker: WorkerId,
        id: PortId,
    ) -> OpenIngressPort {
        self.servers[usize::from(port)].store(self.hash(server), Ordering::Relaxed);
        let owner =
            (worker.0 as u64 + 1) << 48 | u64::from(id.server.0) << 16 | u64::from(id.number);
        self.owners[usize::from(port)].store(owner, Ordering::Relaxed);
        self.ports.insert(port);
        OpenIngressPort { ingress: Arc::clone(self), port }
    }
}

/// A port that receives answers over AF_XDP as long as this value exists.
struct OpenIngressPort {
    ingress: Arc<IngressPorts>,
    port: u16,
}

impl Drop for OpenIngressPort {
    fn drop(&mut self) {
        self.ingress.ports.remove(self.port);
        self.ingress.owners[usize::from(self.port)].store(0, Ordering::Relaxed);
    }
}

/// Interface and address with which a source port uses AF_XDP.
pub(super) struct XdpSource {
    /// Index of the port's interface among the worker's interfaces.
    way: usize,
    address: SocketAddr,
    _opened: OpenIngressPort,
}

impl XdpSource {
    /// True if `other` is the local address and port of this source port.
    #[inline]
    pub(super) fn is(&self, other: SocketAddr) -> bool {
        is_same(self.address, other)
    }
}

/// True if both socket addresses have the same IP address and port. The interface of a link-local address is not
/// compared, because frames do not show it.
#[inline]
pub(super) fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// A worker's AF_XDP interfaces for upstream queries.
#[derive(Default)]
pub(crate) struct Egress {
    worker: Option<WorkerId>,
    ways: Vec<EgressInterface>,
}

/// An interface over which upstream queries are sent with AF_XDP.
struct EgressInterface {
    name: String,
    ingress_ports: Vec<Arc<IngressPorts>>,
    outbox: Outbox,
    /// True if the interface has disappeared. A new interface of the same name is not used.
    is_gone: bool,
}

impl Egress {
    /// Returns the interfaces of a worker. Each interface is given by its name and the [`IngressPorts`] of its
    /// addresses.
    pub(crate) fn new(
        worker: WorkerId,
        interfaces: impl Iterator<Item = (String, Vec<Arc<IngressPorts>>)>,
    ) -> Egress {
        let way = |(name, ingress_ports)| EgressInterface {
            name,
            ingress_ports,
            outbox: Outbox::default(),
            is_gone: false,
        };
        Egress { worker: Some(worker), ways: interfaces.map(way).collect() }
    }

    /// Returns the transmit queue of an interface. `number` is the index of the interface.
    pub(crate) fn outbox(&mut self, number: usize) -> &mut Outbox {
        &mut self.ways[number].outbox
    }

    /// Marks the interface with this index as gone. Further queries are sent through the kernel's
    /// network stack. Returns true on the first call.
    pub(crate) fn give_up(&mut self, number: usize) -> bool {
        !std::mem::replace(&mut self.ways[number].is_gone, true)
    }

    /// Prepares a source port to receive the answers of a server over AF_XDP. `source` is the local address and port.
    /// Returns `None` if this address has no [`IngressPorts`].
    pub(super) fn open(
        &self,
        source: SocketAddr,
        server: SocketAddr,
        id: PortId,
    ) -> Option<XdpSource> {
        let at = |way: &EgressInterface| {
            way.ingress_ports.iter().find(|ingress| ingress.address == source.ip()).cloned()
        };
        let (way, ingress) = self
            .ways
            .iter()
            .enumerate()
            .find_map(|(i, way)| at(way).map(|ingress| (i, ingress)))?;
        let opened = ingress.open(source.port(), server, self.worker?, id);
        Some(XdpSource { way, address: source, _opened: opened })
    }
}

/// The next hop towards a server, for queries over AF_XDP.
#[derive(Default)]
pub(super) struct XdpRoute {
    /// True if queries to the server use AF_XDP where possible.
    pub(super) is_enabled: bool,
    lookup_at: Nanos,
    /// Index of the interface, and the next hop.
    hop: Option<(usize, EthernetLink)>,
}

impl XdpRoute {
    /// Returns the AF_XDP path from this source port to the server. Returns `None` if the query is to be sent through
    /// the kernel's network stack. This is the case while the next hop is unknown, and once a second so that the kernel
    /// keeps verifying the next hop.
    #[inline]
    pub(super) fn take<'a>(
        &mut self,
        server: SocketAddr,
        source: Option<&XdpSource>,
        ways: &'a mut Egress,
        now: Nanos,
    ) -> Option<XdpPath<'a>> {
        let source = source.filter(|_| self.is_enabled)?;
        if now >= self.lookup_at {
            self.lookup_at = now + LOOKUP_INTERVAL;
            self.hop = find(server, &ways.ways);
            return None;
        }
        let (way, link) =
            self.hop.filter(|(way, _)| *way == source.way && !ways.ways[*way].is_gone)?;
        Some(XdpPath { outbox: &mut ways.ways[way].outbox, link, from: source.address, to: server })
    }
}

/// Interface, Ethernet addresses and socket addresses for a query over AF_XDP.
pub(super) struct XdpPath<'a> {
    outbox: &'a mut Outbox,
    link: EthernetLink,
    from: SocketAddr,
    to: SocketAddr,
}

impl XdpPath<'_> {
    /// Queues the query that `write` produces. It always fits, because a query is far shorter than a frame.
    #[inline]
    pub(super) fn push(self, write: impl FnOnce(&mut Vec<u8>)) {
        self.outbox.push(&self.link, self.from, self.to, write);
    }
}

/// Returns the index of the interface towards a server, and the Ethernet addresses for its next hop.
#[cold]
fn find(server: SocketAddr, ways: &[EgressInterface]) -> Option<(usize, EthernetLink)> {
    let hop = NextHop::towards(server).ok()?;
    let number = ways.iter().position(|way| way.name == hop.interface && !way.is_gone)?;
    Some((number, hop.link().ok().flatten()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_port_has_an_owner_and_a_server() {
        let test = "open_port_has_an_owner_and_a_server";
        if !testbed::is_root(test) {
            return;
        }
        let ingress = Arc::new(IngressPorts::new("192.0.2.2".parse().unwrap()).unwrap());
        let server: SocketAddr = "192.0.2.1:53".parse().unwrap();
        let id = PortId { server: ServerId(3), number: 7 };
        let opened = ingress.open(40_000, server, WorkerId(1), id);
        assert_eq!(ingress.owner(40_000), Some((WorkerId(1), id)));
        assert!(ingress.is_asked(40_000, server));
        for other in ["192.0.2.1:54", "192.0.2.3:53", "[2001:db8::1]:53"] {
            assert!(!ingress.is_asked(40_000, other.parse().unwrap()), "{other}");
        }
        assert!(!ingress.is_asked(40_001, server));
        let zoned = |scope| {
            SocketAddr::V6(std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 0, scope))
        };
        let link = ingress.open(40_002, zoned(4), WorkerId(0), id);
        assert!(ingress.is_asked(40_002, zoned(0)));
        drop((opened, link));
        assert_eq!((ingress.owner(40_000), ingress.owner(40_002)), (None, None));
    }
}
