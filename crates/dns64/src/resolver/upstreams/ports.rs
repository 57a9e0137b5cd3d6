//! The sockets to the upstreams, and the ids in use on each socket. A port may also send and
//! receive over AF_XDP ([`super::xdp`]).
//!
//! An attacker must guess a source port and an id (RFC 5452 §4). Each upstream has several source ports, which the
//! kernel draws at random. Each query uses one of these ports and a random id. In one pass of the worker's event loop,
//! up to [`SHARE_A_PORT`] queries share a port, so that they are sent in one pass through the network stack. Further
//! queries use different ports, so that concurrently outstanding queries have different ports (RFC 5452 §9.2). At most
//! half of a port's ids are in use at once, so that random draws find a free id. After 10 000 queries, or ten minutes,
//! a port is replaced as soon as no response is expected on it.
//!
//! ```text
//! server ─► port ─► id ─► query      a port: opened ─► used 10 000 times or ten minutes ─► nothing expected ─► closed
//! ```

use std::io;
use std::net::SocketAddr;

use net::address::ServiceAddr;
use net::poller::Poller;
use net::queue::SendQueue;
use net::socket::Endpoint;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use rustc_hash::FxHashMap;
use units::Nanos;

use super::xdp::{Egress, XdpRoute, XdpSource, is_same};
use crate::ids::{Expected, FetchId, PortId, ServerId};
use crate::resolver::outside::Access;

/// Number of queries after which a source port is replaced.
const USES: u32 = 10_000;
/// Time after which a source port is replaced, so that a rarely queried server does not use the same port for days.
const AGE: Nanos = Nanos(600 * Nanos::SECOND.0);
/// Maximum number of queries that are sent from one source port in one pass of the event loop. It is half of the
/// maximum number of queries per system call. A lower maximum would spread the queries over more ports, each with one
/// system call for its queries and one for their answers. With a maximum of eight queries, a server under load answered
/// a sixth fewer queries than with this value.
const SHARE_A_PORT: u32 = 32;
/// Maximum number of ids in use on a source port: half of all ids, so that random draws find a free
/// id.
pub(crate) const MOST_IDS: usize = 32_768;
/// Maximum number of attempts, after the first, to find a usable source port at random. If all attempts fail and the
/// last port has no free id, a linear search selects the port.
const DRAWS: usize = 8;

/// Lowest of the numbers (poller tokens) by which the event loop identifies upstream sockets.
pub(crate) const FIRST_TOKEN: usize = 1 << 16;

/// Returns the poller token of a port's socket.
fn token(port: PortId) -> usize {
    FIRST_TOKEN + (port.server.index() << 16 | usize::from(port.number))
}

/// Returns the port for a poller token of its socket.
pub(crate) fn from_token(token: usize) -> Option<PortId> {
    let bits = token.checked_sub(FIRST_TOKEN)?;
    Some(PortId { server: ServerId((bits >> 16) as u32), number: bits as u16 })
}

/// A socket on a separate source port, connected to one server.
struct Port {
    /// Interface and address with which this port uses AF_XDP; `None` if answers arrive on the socket. This field is
    /// dropped before the socket, so that the socket still reserves the port.
    source: Option<XdpSource>,
    endpoint: Endpoint,
    /// The fetches that expect responses, by id.
    ids: FxHashMap<u16, FetchId>,
    used: u32,
    opened: Nanos,
}

impl Port {
    fn has_room(&self) -> bool {
        self.ids.len() < MOST_IDS
    }

    /// True if no response is expected on the port.
    fn is_done(&self) -> bool {
        self.ids.is_empty()
    }

    /// True if the port has reached its maximum age or its maximum number of queries.
    fn is_worn(&self, now: Nanos) -> bool {
        self.used >= USES || now.since(self.opened) >= AGE
    }
}

/// The source ports from which one server is queried.
struct ServerPorts {
    server: ServiceAddr,
    /// The server's address when the last port was opened. It can change if the address is link-local, because a
    /// different interface may get the name in its zone identifier (`%eth0`).
    address: SocketAddr,
    /// The source ports. Ports with an index of `allowed` or more are from an older configuration. They remain until no
    /// response is expected on them.
    ports: Vec<Option<Port>>,
    /// Number of source ports that may be used; zero if the server is no longer configured.
    allowed: usize,
    /// Queries to be sent at the end of this pass of the event loop. A queue occupies 34 KiB, and most servers in a
    /// long list are never queried. The value is therefore `None` until the server is first queried.
    queue: Option<SendQueue>,
    /// AF_XDP route to the server.
    route: XdpRoute,
    /// Source port for the next queries, and the number of queries queued on this port since it was selected.
    turn: Option<(usize, u32)>,
    /// Ports that have had a send error in the current pass of the event loop, each with its error.
    refused: Vec<(usize, io::ErrorKind)>,
}

/// The source ports of a worker, for all servers.
#[derive(Default)]
pub(crate) struct Ports {
    /// For each server identifier, the server's ports, or `None` if the identifier is free.
    servers: Vec<Option<ServerPorts>>,
    ways: Egress,
}

impl Ports {
    /// Creates a worker's table of upstream ports, which is empty at first. Ports that are opened later use the AF_XDP
    /// interfaces in
    /// `ways`.
    pub(crate) fn new(ways: Egress) -> Ports {
        Ports { servers: Vec::new(), ways }
    }

    /// Replaces the list of servers, each with its identifier and parameters. If a server has more source ports than
    /// configured, each surplus port is closed as soon as no response is expected on it. The ports of servers that are
    /// not in the list are closed at once.
    pub(crate) fn configure(&mut self, servers: impl Iterator<Item = (ServerId, Access)>) {
        let mut before = std::mem::take(&mut self.servers);
        for (id, access) in servers {
            let known = before.get_mut(id.index()).and_then(Option::take);
            let mut server = known
                .filter(|known| known.server == access.address)
                .unwrap_or_else(|| ServerPorts::new(access.address));
            server.route.is_enabled = access.xdp;
            server.allow(usize::from(access.source_ports));
            let len = self.servers.len().max(id.index() + 1);
            self.servers.resize_with(len, || None);
            self.servers[id.index()] = Some(server);
        }
    }

    /// Returns the address of a server.
    pub(crate) fn address(&self, id: ServerId) -> Option<SocketAddr> {
        Some(self.servers.get(id.index())?.as_ref()?.address)
    }

    /// Returns the AF_XDP interfaces.
    pub(crate) fn ways(&mut self) -> &mut Egress {
        &mut self.ways
    }

    /// True if a datagram received over AF_XDP is for this port. The destination must be the port's
    /// address, and the source must be the port's server (RFC 5452 §9.1). The kernel checks this
    /// for datagrams received on sockets.
    #[inline]
    pub(crate) fn is_for(&self, id: PortId, from: SocketAddr, to: SocketAddr) -> bool {
        self.address(id.server).is_some_and(|address| is_same(address, from))
            && self.port(id).and_then(|port| port.source.as_ref()).is_some_and(|own| own.is(to))
    }

    /// Queues a query for a server. `write` writes the query with the given id. The query is sent before the next call of
    /// [`flush`](Ports::flush) returns.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no route to the server, or if no file descriptor or id is free. For an error caused
    /// by a missing file descriptor or id, [`is_ours`] returns true.
    #[inline]
    pub(crate) fn ask(
        &mut self,
        server: ServerId,
        fetch: FetchId,
        poller: &Poller,
        now: Nanos,
        rng: &mut StdRng,
        write: impl FnOnce(u16, &mut Vec<u8>),
    ) -> io::Result<Expected> {
        let context = SendContext { poller, ways: &mut self.ways, now, rng };
        let ports = self.servers.get_mut(server.index()).and_then(Option::as_mut);
        ports.ok_or(io::ErrorKind::NotConnected)?.ask(server, fetch, context, write)
    }

    /// Returns the socket of a port, or `None` if the port is closed.
    #[inline]
    pub(crate) fn endpoint(&self, port: PortId) -> Option<&Endpoint> {
        self.port(port).map(|port| &port.endpoint)
    }

    /// Returns the fetch that expects a response with this id on this port.
    #[inline]
    pub(crate) fn expects(&self, at: Expected) -> Option<FetchId> {
        self.port(at.port)?.ids.get(&at.id).copied()
    }

    /// Returns the fetches that expect responses on a port.
    pub(crate) fn waiting_on(&self, port: PortId) -> Vec<FetchId> {
        self.port(port).map(|port| port.ids.values().copied().collect()).unwrap_or_default()
    }

    /// Stops expecting the response with this port and id.
    #[inline]
    pub(crate) fn forget(&mut self, at: Expected) {
        let number = usize::from(at.port.number);
        let Some(Some(server)) = self.servers.get_mut(at.port.server.index()) else { return };
        if let Some(port) = server.ports.get_mut(number).and_then(Option::as_mut) {
            port.ids.remove(&at.id);
            server.close_if_done(number);
        }
    }

    /// Sends the queries of this pass of the event loop. Returns the ports with send errors. The
    /// cause of such an error is a missing route, or an ICMP message that has arrived for an
    /// earlier query.
    pub(crate) fn flush(&mut self) -> Vec<(PortId, io::ErrorKind)> {
        let mut refused = Vec::new();
        for (index, server) in self.servers.iter_mut().enumerate() {
            let Some(server) = server else { continue };
            server.end_turn();
            let server_id = ServerId::from_index(index);
            let port = |number: usize| PortId { server: server_id, number: number as u16 };
            refused.extend(server.refused.drain(..).map(|(number, error)| (port(number), error)));
        }
        refused
    }

    fn port(&self, port: PortId) -> Option<&Port> {
        self.servers
            .get(port.server.index())?
            .as_ref()?
            .ports
            .get(usize::from(port.number))?
            .as_ref()
    }
}

/// Values that are needed to send a query.
struct SendContext<'a> {
    /// Poller of all the worker's sockets.
    poller: &'a Poller,
    ways: &'a mut Egress,
    now: Nanos,
    rng: &'a mut StdRng,
}

/// True if a query was not sent because this host lacks a resource, for example a file descriptor. False for errors
/// caused by the server or the path to it.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    let out_of_room = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.kind() == io::ErrorKind::QuotaExceeded
        || error.raw_os_error().is_some_and(|code| out_of_room.contains(&code))
}

impl ServerPorts {
    fn new(server: ServiceAddr) -> ServerPorts {
        ServerPorts {
            server,
            address: server.without_zone(),
            ports: Vec::new(),
            allowed: 0,
            queue: None,
            route: XdpRoute::default(),
            turn: None,
            refused: Vec::new(),
        }
    }

    fn allow(&mut self, allowed: usize) {
        self.allowed = allowed;
        for number in allowed..self.ports.len() {
            self.close_if_done(number);
        }
    }

    fn ask(
        &mut self,
        server: ServerId,
        fetch: FetchId,
        mut context: SendContext<'_>,
        write: impl FnOnce(u16, &mut Vec<u8>),
    ) -> io::Result<Expected> {
        let (number, sharing) = match self.turn {
            Some(turn) => turn,
            None => (self.draw(server, &mut context)?, 0),
        };
        self.turn = Some((number, sharing + 1));
        let port = self.ports[number].as_mut().ok_or(io::ErrorKind::NotConnected)?;
        // At least half of the port's ids are free, because a port with fewer free ids is not used
        // for the next query (`draw`, and the end of this function). Random draws therefore find a
        // free id.
        let id = loop {
            let id = context.rng.next_u32() as u16;
            if !port.ids.contains_key(&id) {
                break id;
            }
        };
        port.ids.insert(id, fetch);
        port.used += 1;
        let is_enough = !port.has_room() || sharing + 1 == SHARE_A_PORT;
        match self.route.take(self.address, port.source.as_ref(), context.ways, context.now) {
            None => {
                let queue = self.queue.get_or_insert_with(SendQueue::new);
                queue.push(None, |out| write(id, out));
            }
            Some(past) => past.push(|out| write(id, out)),
        }
        if is_enough {
            self.end_turn();
        }
        Ok(Expected { port: PortId { server, number: number as u16 }, id })
    }

    /// Selects a source port at random. A port that is due for replacement is replaced as soon as no response is
    /// expected on it.
    fn draw(&mut self, server: ServerId, context: &mut SendContext<'_>) -> io::Result<usize> {
        let now = context.now;
        let allowed = self.allowed.max(1);
        if self.ports.len() < allowed {
            self.ports.resize_with(allowed, || None);
        }
        let is_good = |port: &Option<Port>| {
            port.as_ref().is_none_or(|port| !port.is_worn(now) && port.has_room() || port.is_done())
        };
        let mut number = context.rng.random_range(0..allowed);
        for _ in 0..DRAWS {
            if is_good(&self.ports[number]) {
                break;
            }
            number = context.rng.random_range(0..allowed);
        }
        if self.ports[number].as_ref().is_none_or(|port| port.is_worn(now) && port.is_done()) {
            match self.open(PortId { server, number: number as u16 }, context) {
                Ok(()) => return Ok(number),
                // Perhaps no file descriptor is left. In that case, an open port is used, regardless of its age.
                Err(error) if self.ports.iter().all(Option::is_none) => return Err(error),
                Err(_) => {}
            }
        }
        let has_room = |number: usize| self.ports[number].as_ref().is_some_and(Port::has_room);
        if has_room(number) {
            return Ok(number);
        }
        (0..allowed)
            .find(|&number| has_room(number))
            .ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
    }

    /// Replaces a port with a new socket. The old socket is closed, which removes it from the poller.
    fn open(&mut self, id: PortId, context: &SendContext<'_>) -> io::Result<()> {
        self.address = self.server.resolve()?;
        let endpoint = Endpoint::connect(self.address)?;
        endpoint.use_receive_offload();
        context.poller.add(&endpoint, token(id))?;
        let source = if self.route.is_enabled {
            endpoint
                .local_address()
                .ok()
                .and_then(|source| context.ways.open(source, self.address, id))
        } else {
            None
        };
        self.ports[usize::from(id.number)] = Some(Port {
            source,
            endpoint,
            ids: FxHashMap::default(),
            used: 0,
            opened: context.now,
        });
        Ok(())
    }

    /// Closes a surplus source port (with an index of `allowed` or more) if no response is expected on it and it is not
    /// selected for the next query.
    fn close_if_done(&mut self, number: usize) {
        let is_extra = number >= self.allowed && self.turn.is_none_or(|(turn, _)| turn != number);
        if is_extra && self.ports[number].as_ref().is_some_and(Port::is_done) {
            self.ports[number] = None;
        }
    }

    /// Sends the queries queued for this server. A source port is selected again for the next query.
    fn end_turn(&mut self) {
        let Some((number, _)) = self.turn.take() else { return };
        let Some(port) = &self.ports[number] else { return };
        let queue = self.queue.as_mut();
        if let Some(error) = queue.and_then(|queue| queue.flush(&port.endpoint).unreachable) {
            self.refused.push((number, error));
            if error != io::ErrorKind::ConnectionRefused {
                // The interface may be gone. All ports are therefore replaced, and new ports may
                // use a different interface.
                self.ports.iter_mut().flatten().for_each(|port| port.used = USES);
            }
        }
        self.close_if_done(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const SERVER: ServerId = ServerId(0);
    /// The fetch of every query in these tests.
    const FETCH: FetchId = FetchId { index: 0, generation: 0 };

    /// Ports to a server that does not respond.
    struct Test {
        silent: std::net::UdpSocket,
        poller: Poller,
        now: Nanos,
        rng: StdRng,
        ports: Ports,
    }

    impl Test {
        fn new(allowed: u16) -> Test {
            let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let (poller, rng) = (Poller::new(8).unwrap(), StdRng::seed_from_u64(1));
            let mut test =
                Test { silent, poller, now: Nanos::SECOND, rng, ports: Ports::default() };
            test.allow(allowed);
            test
        }

        fn allow(&mut self, allowed: u16) {
            let address = self.silent.local_addr().unwrap();
            let access = Access { address: address.into(), source_ports: allowed, xdp: false };
            self.ports.configure([(SERVER, access)].into_iter());
        }

        fn queue(&mut self) -> io::Result<Expected> {
            self.ports.ask(SERVER, FETCH, &self.poller, self.now, &mut self.rng, |_, out| {
                out.push(0);
            })
        }

        fn ask(&mut self) -> io::Result<Expected> {
            let asked = self.queue();
            assert_eq!(self.ports.flush(), []);
            asked
        }

        /// Returns the address of the first port.
        fn source(&self) -> SocketAddr {
            let port = self.ports.port(PortId { server: SERVER, number: 0 });
            port.unwrap().endpoint.local_address().unwrap()
        }

        fn open(&self) -> usize {
            self.ports.servers[0].iter().flat_map(|server| &server.ports).flatten().count()
        }
    }

    #[test]
    fn a_server_whose_ids_are_all_in_use_refuses() {
        let mut test = Test::new(2);
        let asked: Vec<Expected> = (0..2 * MOST_IDS).map(|_| test.ask().unwrap()).collect();
        let error = test.ask().unwrap_err();
        assert!(is_ours(&error), "{error}");
        // Removing an expected response frees its id.
        assert_eq!(test.ports.expects(asked[0]), Some(FETCH));
        test.ports.forget(asked[0]);
        assert_eq!(test.ports.expects(asked[0]), None);
        assert!(test.ask().is_ok());
    }

    /// RFC 5452 §9.2: concurrently outstanding queries are sent from several ports.
    #[test]
    fn queries_of_one_turn_use_several_ports() {
        let mut test = Test::new(64);
        let mut ports = std::collections::HashMap::<u16, u32>::new();
        for _ in 0..8 * SHARE_A_PORT {
            let at = test.queue().unwrap();
            *ports.entry(at.port.number).or_default() += 1;
        }
        assert_eq!(test.ports.flush(), []);
        assert!(ports.len() >= 4, "{ports:?}");
    }

    #[test]
    fn excess_ports_close_when_idle() {
        let mut test = Test::new(16);
        let asked: Vec<Expected> = (0..200).map(|_| test.ask().unwrap()).collect();
        test.allow(1);
        assert_eq!(test.open(), 16, "answers are still expected");
        for at in asked {
            assert!(test.ports.expects(at).is_some());
            test.ports.forget(at);
        }
        assert_eq!(test.open(), 1);
    }

    #[test]
    fn port_is_replaced_after_10000_queries_when_idle() {
        let mut test = Test::new(1);
        let first = test.ask().unwrap();
        let port = test.source();
        for _ in 1..USES {
            let at = test.ask().unwrap();
            test.ports.forget(at);
        }
        let last = test.ask().unwrap();
        assert_eq!(test.source(), port, "an answer is still expected");
        test.ports.forget(first);
        test.ports.forget(last);
        test.ask().unwrap();
        assert_ne!(test.source(), port);
    }

    #[test]
    fn r8_port_is_replaced_after_ten_minutes_when_idle() {
        let mut test = Test::new(1);
        let first = test.ask().unwrap();
        let port = test.source();
        test.now = test.now + AGE;
        let second = test.ask().unwrap();
        assert_eq!(test.source(), port, "an answer is still expected");
        test.ports.forget(first);
        test.ports.forget(second);
        let third = test.ask().unwrap();
        assert_ne!(test.source(), port);
        test.ports.forget(third);
        let port = test.source();
        test.now = test.now + Nanos(AGE.0 - 1);
        test.ask().unwrap();
        assert_eq!(test.source(), port, "the port is still new");
    }

    #[test]
    fn server_without_queries_has_no_buffers() {
        let mut test = Test::new(64);
        let buffers = |test: &Test| {
            let server = test.ports.servers[0].as_ref().unwrap();
            (server.ports.capacity() > 0, server.queue.is_some())
        };
        assert_eq!(buffers(&test), (false, false));
        test.ask().unwrap();
        assert_eq!(buffers(&test), (true, true));
    }

    #[test]
    fn ports_of_a_server_that_is_not_listed_are_closed() {
        let mut test = Test::new(4);
        let at = test.ask().unwrap();
        let access = |port: u16| Access {
            address: ([127, 0, 0, 1], port).into(),
            source_ports: 4,
            xdp: false,
        };
        test.ports.configure([(ServerId(1), access(1))].into_iter());
        assert!(test.ports.endpoint(at.port).is_none() && test.ports.address(SERVER).is_none());
        test.ports.forget(at);
        assert!(test.ask().is_err(), "no such server");
        // A later server with the same identifier does not inherit ports.
        test.ports.configure([(SERVER, access(2))].into_iter());
        assert_eq!(test.ports.address(SERVER), Some(access(2).address.without_zone()));
        assert!(test.ports.endpoint(at.port).is_none() && test.ports.expects(at).is_none());
        assert!(test.ports.address(ServerId(1)).is_none() && test.ports.servers.len() == 1);
    }

    #[test]
    fn tokens_name_ports() {
        for (server, number) in [(0, 0), (3, 4_095), (u32::MAX, u16::MAX)] {
            let port = PortId { server: ServerId(server), number };
            assert_eq!(from_token(token(port)), Some(port));
        }
        assert_eq!(from_token(FIRST_TOKEN - 1), None);
    }
}
