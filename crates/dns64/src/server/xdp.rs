//! Interfaces with AF_XDP, which bypasses the kernel's network stack. AF_XDP transports two kinds of datagrams: those
//! between clients and the `listen` addresses with `xdp` enabled, and those to and from the upstreams with `xdp`
//! enabled.
//!
//! ```text
//! interface ─► filter ─┬─ to our ports ─► rings of the queue ─► its worker ─┬─ client query ─► Frontend
//!                      │                                                    └─ response ─► worker of the port
//!                      └─ other packets ─► kernel's stack ─► sockets, which stay open in addition to the rings
//! ```
//!
//! The sockets reserve addresses and ports, and receive the traffic that the filter does not
//! redirect: TCP, fragments, and datagrams on other interfaces. Opening an interface needs
//! privileges, which are dropped afterwards; later steps need no privileges.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use net::address::ServiceAddr;
use net::neighbour::NextHop;
use net::socket::{Endpoint, scope_of};
use net::xdp::{self, Arrived, AttachMode, Claim, Exchange, Outbox, PortSet, Ports, XdpError};
use nix::errno::Errno;
use wire::joined;

use crate::config::{Config, Settings};
use crate::ids::{PortId, WorkerId};
use crate::resolver::upstreams::xdp::{Egress, IngressPorts};

/// Errors that occur while AF_XDP is set up for a `listen` address or an upstream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpSetupError {
    /// The interface does not support AF_XDP, or the kernel does not permit its use.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// There is no route to the upstream.
    #[error("no route to the upstream {upstream}: {source}")]
    NoRoute {
        /// Address and port of the upstream.
        upstream: ServiceAddr,
        /// Error returned by the system call.
        source: io::Error,
    },
    /// The route to the upstream goes through an interface without Ethernet.
    #[error(
        "the route to the upstream {upstream} uses {interface}, which is not an Ethernet interface"
    )]
    NoEthernet {
        /// Address and port of the upstream.
        upstream: ServiceAddr,
        /// Name of the interface.
        interface: String,
    },
    /// The interface of a link-local address does not exist.
    #[error("cannot serve {address}: {source}")]
    NoInterface {
        /// Address and port of the `listen` entry or of the upstream.
        address: ServiceAddr,
        /// Error returned by the lookup of the interface.
        source: io::Error,
    },
}

impl XdpSetupError {
    /// True if the server continues with sockets after this error. Three conditions must hold: the machine lacks a
    /// requirement of AF_XDP ([`XdpError::is_missing_requirement`]), `xdp-mode` is `auto`, and `xdp-fallback` is true.
    pub(super) fn leaves_sockets(&self, config: &Config) -> bool {
        config.xdp_mode == xdp::Mode::Auto
            && config.xdp_fallback
            && matches!(self, XdpSetupError::Xdp(error) if error.is_missing_requirement())
    }
}

/// An open interface, before its queues are assigned to workers.
pub(super) struct OpenInterface {
    name: String,
    attach_mode: AttachMode,
    clients: Arc<[ClientAddress]>,
    ingress_ports: Vec<Arc<IngressPorts>>,
    exchanges: Vec<Exchange>,
}

/// A `listen` address at which client queries arrive over AF_XDP.
struct ClientAddress {
    address: SocketAddr,
    /// Index of the worker's socket that is bound to this address.
    endpoint: usize,
    /// Set of destination ports for the filter, which redirects only queries to a port in this set. The set contains
    /// the port of `address`. It is emptied when the sockets must receive new queries.
    port: Arc<PortSet>,
}

impl ClientAddress {
    fn new(address: SocketAddr, endpoint: usize) -> Result<ClientAddress, XdpError> {
        let port = Arc::new(PortSet::new()?);
        port.insert(address.port());
        Ok(ClientAddress { address, endpoint, port })
    }
}

/// The `listen` addresses and source ports of upstream queries for which an interface is to be opened.
struct PlannedInterface {
    name: String,
    clients: Vec<ClientAddress>,
    ingress_ports: Vec<Arc<IngressPorts>>,
}

/// Opens the interfaces that the settings require. `endpoints` are the sockets of one worker.
///
/// # Errors
/// Returns [`XdpSetupError`] if an interface cannot be opened, or if the interface for an upstream cannot be
/// determined.
pub(super) fn open(
    settings: &Settings,
    endpoints: &[Endpoint],
) -> Result<Vec<OpenInterface>, XdpSetupError> {
    let mut all = Vec::new();
    for keys in settings.config.listen.iter().filter(|keys| keys.xdp) {
        let failed = |source| XdpSetupError::NoInterface { address: keys.address, source };
        let listen = keys.address.resolve().map_err(failed)?;
        let ip = listen.ip();
        // The same link-local address may exist on several links.
        let is_its = |address: &SocketAddr| {
            (address.ip(), scope_of(address)) == (ip, scope_of(&listen))
                && [0, address.port()].contains(&listen.port())
        };
        let mut bound = endpoints
            .iter()
            .enumerate()
            .filter_map(|(n, one)| Some((one.local_address().ok()?, n)));
        // The addresses of sockets passed by systemd may differ from those in the configuration.
        let Some((bound, number)) = bound.find(|(address, _)| is_its(address)) else { continue };
        // Frames do not contain the scope of a link-local address.
        let client = ClientAddress::new(SocketAddr::new(ip, bound.port()), number)?;
        wanted(&mut all, xdp::interface_of(listen)?).clients.push(client);
    }
    for upstream in settings.upstreams.iter().filter(|upstream| upstream.xdp) {
        let (interface, source) = route_to(upstream.address)?;
        let ingress_ports = &mut wanted(&mut all, interface).ingress_ports;
        if ingress_ports.iter().all(|door| door.address() != source) {
            ingress_ports.push(Arc::new(IngressPorts::new(source)?));
        }
    }
    all.into_iter().map(|wanted| wanted.open(settings.config.xdp_mode)).collect()
}

/// Returns the errors in listen addresses and upstreams with `xdp` enabled, as far as they can be detected without
/// privileges. Each error has the path of its configuration key.
pub(crate) fn xdp_faults(settings: &Settings) -> Vec<(String, XdpSetupError)> {
    let listen = settings.config.listen.iter().enumerate().filter(|(_, keys)| keys.xdp);
    let listen = listen.map(|(number, keys)| {
        let failed = |source| XdpSetupError::NoInterface { address: keys.address, source };
        let address = keys.address.resolve().map_err(failed);
        let fault = address.and_then(|address| Ok(xdp::check(&xdp::interface_of(address)?)?)).err();
        (format!("listen.{number}"), fault)
    });
    let upstreams = settings.upstreams.iter().enumerate().filter(|(_, upstream)| upstream.xdp);
    let upstreams = upstreams.map(|(number, upstream)| {
        let way = route_to(upstream.address).map(|(interface, _)| interface);
        let fault = way.and_then(|name| Ok(xdp::check(&name)?)).err();
        (format!("upstream.{number}"), fault)
    });
    listen.chain(upstreams).filter_map(|(path, fault)| Some((path, fault?))).collect()
}

/// Returns the entry of the interface with this name. Creates the entry if there is none.
fn wanted(all: &mut Vec<PlannedInterface>, name: String) -> &mut PlannedInterface {
    let known = all.iter().position(|one| one.name == name);
    let index = known.unwrap_or_else(|| {
        all.push(PlannedInterface { name, clients: Vec::new(), ingress_ports: Vec::new() });
        all.len() - 1
    });
    &mut all[index]
}

/// Returns the interface through which an upstream is routed, and the source address on that interface.
fn route_to(upstream: ServiceAddr) -> Result<(String, IpAddr), XdpSetupError> {
    let failed = |source| XdpSetupError::NoRoute { upstream, source };
    let to = upstream.resolve().map_err(failed)?;
    let hop = NextHop::towards(to).map_err(failed)?;
    if !hop.needs_address {
        return Err(XdpSetupError::NoEthernet { upstream, interface: hop.interface });
    }
    Ok((hop.interface, source_of(upstream).map_err(failed)?))
}

/// Returns the source address that the kernel selects for an upstream.
fn source_of(upstream: ServiceAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if upstream.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(upstream.resolve()?)?;
    Ok(socket.local_addr()?.ip())
}

/// Returns the source addresses from which upstreams are queried over AF_XDP.
pub(super) fn sources(all: &[OpenInterface]) -> Vec<IpAddr> {
    all.iter().flat_map(|opened| opened.ingress_ports.iter().map(|door| door.address())).collect()
}

/// True if an upstream with `xdp` enabled is queried from an address that is not among `sources`.
pub(super) fn lacks(sources: &[IpAddr], settings: &Settings) -> bool {
    let is_open = |upstream| source_of(upstream).is_ok_and(|source| sources.contains(&source));
    settings.upstreams.iter().any(|upstream| upstream.xdp && !is_open(upstream.address))
}

impl PlannedInterface {
    fn open(self, mode: xdp::Mode) -> Result<OpenInterface, XdpSetupError> {
        let PlannedInterface { name, clients, ingress_ports } = self;
        let claim = |address, ports: &Arc<PortSet>| {
            Claim::to_address(address, Ports::Set(Arc::clone(ports)))
        };
        let of_clients = clients.iter().map(|of| claim(of.address.ip(), &of.port));
        let of_doors = ingress_ports.iter().map(|door| claim(door.address(), door.ports()));
        let claims: Vec<Claim> = of_clients.chain(of_doors).collect();
        let interface = xdp::Interface::open_both(&name, &claims, mode)?;
        let (way, exchanges) = (interface.attach_mode(), interface.into_exchanges());
        Ok(OpenInterface {
            name,
            attach_mode: way,
            clients: clients.into(),
            ingress_ports,
            exchanges,
        })
    }
}

impl OpenInterface {
    /// Describes the interface for a log message: its queues, and the addresses that use AF_XDP.
    pub(super) fn in_words(&self) -> String {
        let clients = self.clients.iter().map(|of| format!("clients at {}", of.address));
        let ingress_ports =
            self.ingress_ports.iter().map(|door| format!("answers to {}", door.address()));
        let all: Vec<String> = clients.chain(ingress_ports).collect();
        let queues = match self.exchanges.len() {
            1 => "1 queue".to_owned(),
            queues => format!("{queues} queues"),
        };
        format!("AF_XDP on {} ({}, {queues}): {}", self.name, self.attach_mode, all.join(", "))
    }
}

/// Distributes the queues of all interfaces round robin to the workers.
pub(super) fn hand_out(all: Vec<OpenInterface>, workers: usize) -> Vec<Vec<Rings>> {
    let mut handed: Vec<Vec<Rings>> = (0..workers).map(|_| Vec::new()).collect();
    for opened in all {
        let may_join = xdp::may_join(&opened.name, opened.attach_mode);
        for (queue, exchange) in opened.exchanges.into_iter().enumerate() {
            let (clients, ingress_ports) =
                (Arc::clone(&opened.clients), opened.ingress_ports.clone());
            let destinations = Destinations { may_join, clients, ingress_ports };
            let rings = Rings { name: opened.name.clone(), destinations, exchange };
            handed[queue % workers].push(rings);
        }
    }
    handed
}

/// The AF_XDP rings of one interface queue, assigned to a worker.
pub(super) struct Rings {
    name: String,
    pub(super) destinations: Destinations,
    pub(super) exchange: Exchange,
}

/// Addresses and ports of this host to which datagrams in an interface queue can be sent: `listen` addresses, to which
/// clients send their queries, and the source ports of upstream queries, to which upstreams send their responses.
pub(super) struct Destinations {
    /// True if the kernel may join several datagrams into one before the filter receives them ([`xdp::may_join`]).
    may_join: bool,
    clients: Arc<[ClientAddress]>,
    ingress_ports: Vec<Arc<IngressPorts>>,
}

/// Destination of a datagram received over AF_XDP.
pub(super) enum DatagramOwner {
    /// A `listen` address. The value is the index of the worker's socket that is bound to it.
    Clients(usize),
    /// A source port of upstream queries, and the worker that opened it.
    Port(WorkerId, PortId),
    /// A source port of upstream queries that has been closed.
    ClosedPort,
}

impl Rings {
    /// Returns the AF_XDP interfaces for a worker's upstream queries.
    pub(super) fn ways(all: &[Rings], worker: WorkerId) -> Egress {
        let of = |rings: &Rings| (rings.name.clone(), rings.destinations.ingress_ports.clone());
        Egress::new(worker, all.iter().map(of))
    }

    /// Sends the queued datagrams. Returns the number of datagrams that were not sent, and true if
    /// the interface was removed.
    pub(super) fn send(&mut self, outboxes: [&mut Outbox; 2]) -> (u64, bool) {
        let waiting: usize = outboxes.iter().map(|outbox| outbox.len()).sum();
        if waiting == 0 {
            return (0, false);
        }
        let sender = &mut self.exchange.sender;
        let refused: usize = outboxes.into_iter().map(|outbox| sender.put(outbox)).sum();
        match sender.flush() {
            Ok(()) => (refused as u64, false),
            // The interface is busy or down. If it was removed, the kernel has unbound the socket
            // and returns ENXIO.
            Err(error) => (waiting as u64, error.raw_os_error() == Some(Errno::ENXIO as i32)),
        }
    }

    /// Returns the name of the interface.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of datagrams that were dropped or discarded as invalid since the rings were opened.
    ///
    /// # Errors
    /// Returns an error if getsockopt(2) fails. The number is then unknown.
    pub(super) fn drops(&self) -> io::Result<u64> {
        Ok(self.exchange.receiver.drops()? + self.exchange.receiver.unreadable())
    }
}

impl Destinations {
    /// Stops the redirection of client queries to the rings of all workers. The sockets then
    /// receive new queries. Queries that are already in the rings are still read.
    pub(super) fn stop_redirecting_clients(&self) {
        self.clients.iter().for_each(|of| of.port.remove(of.address.port()));
    }

    /// Returns the receiver of a datagram with this destination address and port.
    #[inline]
    pub(super) fn owner_of(&self, to: SocketAddr) -> DatagramOwner {
        if let Some(of) = self.clients.iter().find(|of| of.address == to) {
            return DatagramOwner::Clients(of.endpoint);
        }
        let door = self.ingress_ports.iter().find(|door| door.address() == to.ip());
        match door.and_then(|door| door.owner(to.port())) {
            Some((worker, port)) => DatagramOwner::Port(worker, port),
            None => DatagramOwner::ClosedPort,
        }
    }

    /// True if a datagram from the server `from` to the local address `to` can be a response, because queries to this
    /// server are sent from this address and port. The worker that opened the port checks this again
    /// ([`Ports::is_for`](crate::resolver::upstreams::ports::Ports::is_for)).
    pub(super) fn is_asked(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let door = self.ingress_ports.iter().find(|door| door.address() == to.ip());
        door.is_some_and(|door| door.is_asked(to.port(), from))
    }

    /// Returns the DNS messages in a received datagram. If the sender joined several datagrams into one, there are
    /// several messages.
    #[inline]
    pub(super) fn messages<'a>(
        &self,
        arrived: &Arrived<'a>,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        messages(arrived.bytes, self.may_be_joined(arrived))
    }

    /// True if the sender may have joined several datagrams into this one.
    #[inline]
    pub(super) fn may_be_joined(&self, arrived: &Arrived<'_>) -> bool {
        self.may_join && arrived.has_partial_checksum
    }
}

/// Splits a datagram into messages. `may_join` is true if the kernel may have joined several
/// datagrams into this one. The filter cannot detect whether this has happened. Therefore, a
/// datagram is split only if it has the layout that the kernel produces. Each piece counts as one
/// datagram for every limit.
pub(super) fn messages(octets: &[u8], may_join: bool) -> impl Iterator<Item = &[u8]> {
    let length = if may_join { joined::segment(octets) } else { None };
    // An empty datagram counts as one message.
    let empty = octets.is_empty().then_some(octets);
    empty.into_iter().chain(octets.chunks(length.unwrap_or(octets.len()).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_replace_xdp_only_if_allowed() {
        let source = || io::Error::from(Errno::EPERM);
        let lack = XdpSetupError::Xdp(XdpError::NotAllowed { source: source() });
        let upstream = ServiceAddr::from(([192, 0, 2, 53], 53));
        let mistake = XdpSetupError::NoRoute { upstream, source: source() };
        let leaves = |text: &str| {
            let config: Config = toml::from_str(text).unwrap();
            [&lack, &mistake].map(|error| error.leaves_sockets(&config))
        };
        assert_eq!(leaves(""), [true, false]);
        assert_eq!(leaves("xdp-mode = 'generic'"), [false, false]);
        assert_eq!(leaves("xdp-fallback = false"), [false, false]);
        assert_eq!(leaves("xdp-mode = 'auto'\nxdp-fallback = true"), [true, false]);
    }

    #[test]
    fn only_joined_datagrams_are_split() {
        let query = |name: &[u8]| {
            let head = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, name.len() as u8];
            [&head[..], name, &[0, 0, 28, 0, 1]].concat()
        };
        let (one, two, long) = (query(b"one"), query(b"two"), query(b"another"));
        let split = |octets: &[u8], may_join| -> Vec<Vec<u8>> {
            messages(octets, may_join).map(<[u8]>::to_vec).collect()
        };
        let joined = [&one[..], &two, &one].concat();
        assert_eq!(split(&joined, true), [one.clone(), two.clone(), one.clone()]);
        // A datagram that was not joined gets one answer.
        for other in [&[&one[..], &long, &one][..], &[&one, b"rest"], &[b"no message"], &[b""]] {
            assert_eq!(split(&other.concat(), true), [other.concat()]);
        }
        assert_eq!(split(&joined, false), [joined]);
    }
}
