//! How questions get past the kernel's network stack (AF_XDP), and how answers are found there.
//!
//! ```text
//! question ─► a source port, as ever ─► its socket is open, and its number is in a Door
//!    ├─ next hop known ─► Outbox ─► interface
//!    └─ once a second, and if not ─► the socket ─► kernel, which keeps the next hop's address fresh
//! answer ─► filter: is its port in the Door? ─┬─ yes ─► rings ─► Door: whose port? ─► that worker
//!                                             └─ no ──► the socket
//! ```
//!
//! So what a forger must guess (RFC 5452 §4) is what it is without AF_XDP: the kernel draws each port
//! at random, keeps it from others, and tells its socket what ICMP says.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use method::units::Nanos;
use net::neighbour::NextHop;
use net::xdp::{EthernetLink, Outbox, PortSet, XdpError};

use crate::ids::{PortId, ServerId, WorkerId};

/// How often the kernel is asked for the next hop towards a server.
const LOOK: Nanos = Nanos::SECOND;

/// The source ports of an address whose answers come past the stack, and whose they are.
pub(crate) struct Door {
    address: IpAddr,
    ports: Arc<PortSet>,
    /// By port: worker + 1 (16 bits), server (32) and number (16). 0: the port is not open.
    owners: Box<[AtomicU64]>,
    /// By port: the hash of the address and port of the server that is asked from there. It keeps
    /// what others forge from the worker that has the port, which compares the address itself.
    servers: Box<[AtomicU64]>,
    hashes: RandomState,
}

impl Door {
    /// Of one of our addresses. No port is open.
    ///
    /// # Errors
    /// See [`PortSet::new`].
    pub(crate) fn new(address: IpAddr) -> Result<Door, XdpError> {
        let [owners, servers] =
            [(); 2].map(|()| (0..=u16::MAX).map(|_| AtomicU64::new(0)).collect());
        let (ports, hashes) = (Arc::new(PortSet::new()?), RandomState::new());
        Ok(Door { address, ports, owners, servers, hashes })
    }

    /// The address.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// The open ports, as a filter looks at them.
    pub(crate) fn ports(&self) -> &Arc<PortSet> {
        &self.ports
    }

    /// Whose port this is.
    #[inline]
    pub(crate) fn owner(&self, port: u16) -> Option<(WorkerId, PortId)> {
        let owner = self.owners[usize::from(port)].load(Ordering::Relaxed);
        let worker = WorkerId((owner >> 48).checked_sub(1)? as usize);
        let server = ServerId((owner >> 16) as u32);
        Some((worker, PortId { server, number: owner as u16 }))
    }

    /// Whether this is the server that is asked from the port.
    pub(crate) fn is_asked(&self, port: u16, server: SocketAddr) -> bool {
        self.servers[usize::from(port)].load(Ordering::Relaxed) == self.hash(server)
    }

    fn hash(&self, server: SocketAddr) -> u64 {
        // Frames do not say of which interface a link-local address is.
        self.hashes.hash_one((server.ip(), server.port()))
    }

    fn open(
        self: &Arc<Door>,
        port: u16,
        server: SocketAddr,
        worker: WorkerId,
        id: PortId,
    ) -> Opened {
        self.servers[usize::from(port)].store(self.hash(server), Ordering::Relaxed);
        let owner =
            (worker.0 as u64 + 1) << 48 | u64::from(id.server.0) << 16 | u64::from(id.number);
        self.owners[usize::from(port)].store(owner, Ordering::Relaxed);
        self.ports.insert(port);
        Opened { door: Arc::clone(self), port }
    }
}

/// A port whose answers come past the stack for as long as the value lives.
struct Opened {
    door: Arc<Door>,
    port: u16,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.door.ports.remove(self.port);
        self.door.owners[usize::from(self.port)].store(0, Ordering::Relaxed);
    }
}

/// What of a port's is past the stack.
pub(super) struct Source {
    /// The number of its interface among the worker's.
    way: usize,
    address: SocketAddr,
    _opened: Opened,
}

impl Source {
    /// Whether it is this address and port.
    #[inline]
    pub(super) fn is(&self, other: SocketAddr) -> bool {
        is_same(self.address, other)
    }
}

/// Whether address and port are the same; frames do not say of which interface a link-local address
/// is.
#[inline]
pub(super) fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// A worker's interfaces, as its questions leave by them.
#[derive(Default)]
pub(crate) struct Ways {
    worker: Option<WorkerId>,
    ways: Vec<Way>,
}

/// An interface.
struct Way {
    name: String,
    doors: Vec<Arc<Door>>,
    outbox: Outbox,
    /// The interface has gone; another one of its name is not it.
    is_gone: bool,
}

impl Ways {
    /// Those of a worker: the name of each, and the doors of its addresses.
    pub(crate) fn new(
        worker: WorkerId,
        interfaces: impl Iterator<Item = (String, Vec<Arc<Door>>)>,
    ) -> Ways {
        let way = |(name, doors)| Way { name, doors, outbox: Outbox::default(), is_gone: false };
        Ways { worker: Some(worker), ways: interfaces.map(way).collect() }
    }

    /// What waits to leave by the interface with this number.
    pub(crate) fn outbox(&mut self, number: usize) -> &mut Outbox {
        &mut self.ways[number].outbox
    }

    /// The interface with this number has gone: from now on questions take the stack. Whether that is
    /// news.
    pub(crate) fn give_up(&mut self, number: usize) -> bool {
        !std::mem::replace(&mut self.ways[number].is_gone, true)
    }

    /// Opens the door for a server's answers to a source port, if its address has one.
    pub(super) fn open(
        &self,
        source: SocketAddr,
        server: SocketAddr,
        id: PortId,
    ) -> Option<Source> {
        let at = |way: &Way| way.doors.iter().find(|door| door.address == source.ip()).cloned();
        let (way, door) =
            self.ways.iter().enumerate().find_map(|(i, way)| at(way).map(|door| (i, door)))?;
        let opened = door.open(source.port(), server, self.worker?, id);
        Some(Source { way, address: source, _opened: opened })
    }
}

/// How to get to a server past the stack.
#[derive(Default)]
pub(super) struct Route {
    /// Whether it is to be asked past the stack, where that is possible.
    pub(super) is_wanted: bool,
    look_at: Nanos,
    /// The number of the interface, and the next hop there.
    hop: Option<(usize, EthernetLink)>,
}

impl Route {
    /// The way from this source to the server, if the question is to leave past the stack.
    /// Otherwise the question takes the stack: once a second, so that the kernel goes on making sure
    /// that the next hop is there, and while that is not known.
    #[inline]
    pub(super) fn take<'a>(
        &mut self,
        server: SocketAddr,
        source: Option<&Source>,
        ways: &'a mut Ways,
        now: Nanos,
    ) -> Option<Past<'a>> {
        let source = source.filter(|_| self.is_wanted)?;
        if now >= self.look_at {
            self.look_at = now + LOOK;
            self.hop = find(server, &ways.ways);
            return None;
        }
        let (way, link) =
            self.hop.filter(|(way, _)| *way == source.way && !ways.ways[*way].is_gone)?;
        Some(Past { outbox: &mut ways.ways[way].outbox, link, from: source.address, to: server })
    }
}

/// The way of a question past the stack.
pub(super) struct Past<'a> {
    outbox: &'a mut Outbox,
    link: EthernetLink,
    from: SocketAddr,
    to: SocketAddr,
}

impl Past<'_> {
    /// Queues what `write` writes. A question is far shorter than a frame.
    #[inline]
    pub(super) fn push(self, write: impl FnOnce(&mut Vec<u8>)) {
        self.outbox.push(&self.link, self.from, self.to, write);
    }
}

/// The interface and the link to the next hop towards a server.
#[cold]
fn find(server: SocketAddr, ways: &[Way]) -> Option<(usize, EthernetLink)> {
    let hop = NextHop::towards(server).ok()?;
    let number = ways.iter().position(|way| way.name == hop.interface && !way.is_gone)?;
    Some((number, hop.link().ok().flatten()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_knows_the_server_of_each_port_while_it_is_open() {
        let test = "a_door_knows_the_server_of_each_port_while_it_is_open";
        if !testbed::is_root(test) {
            return;
        }
        let door = Arc::new(Door::new("192.0.2.2".parse().unwrap()).unwrap());
        let server: SocketAddr = "192.0.2.1:53".parse().unwrap();
        let id = PortId { server: ServerId(3), number: 7 };
        let opened = door.open(40_000, server, WorkerId(1), id);
        assert_eq!(door.owner(40_000), Some((WorkerId(1), id)));
        assert!(door.is_asked(40_000, server));
        for other in ["192.0.2.1:54", "192.0.2.3:53", "[2001:db8::1]:53"] {
            assert!(!door.is_asked(40_000, other.parse().unwrap()), "{other}");
        }
        assert!(!door.is_asked(40_001, server));
        let zoned = |scope| {
            SocketAddr::V6(std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 0, scope))
        };
        let link = door.open(40_002, zoned(4), WorkerId(0), id);
        assert!(door.is_asked(40_002, zoned(0)));
        drop((opened, link));
        assert_eq!((door.owner(40_000), door.owner(40_002)), (None, None));
    }
}
