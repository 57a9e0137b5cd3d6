//! Admission of connections from clients. The number of open connections is limited in total and for each client
//! ([`ClientId`]). One thread counts the connections.
//!
//! At the total limit, a new connection displaces an open one, as permitted by RFC 7766 §6.2.2 and §6.2.3. The search
//! for the connection to displace begins with the widest networks, and selects the network with the most connections.
//! Among the smaller networks inside it, the search again selects the one with the most connections, and so on down to
//! a client. The client's connection that has been idle longest is displaced. If all connections of the client have
//! queries in progress, the connection whose last query or reply is oldest is displaced.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use net::clock;
use slab::Slab;
use tokio::sync::Notify;
use units::Nanos;

use crate::shares::client::{ClientId, LEVELS, NetworkId};

/// Maximum number of connections compared in a search for a connection to displace. If `tcp-connections` is larger
/// than this number, the search begins at a random connection.
const COMPARED: usize = 4_096;

/// The open connections of clients.
#[derive(Default)]
pub(crate) struct Connections {
    open: RefCell<Open>,
}

#[derive(Default)]
struct Open {
    connections: Slab<Connection>,
    /// For each network, the number of open connections from its clients. The key consists of the nesting level and the
    /// identifier of the network.
    held: HashMap<(usize, NetworkId), Rc<Cell<usize>>>,
}

/// An open connection.
struct Connection {
    client: ClientId,
    /// For each network that contains the client, the number of open connections from this network. The widest network
    /// comes first.
    held: [Rc<Cell<usize>>; LEVELS],
    activity: Rc<Activity>,
}

/// Activity of a connection: queries in progress, and time of the last query or reply.
pub(crate) struct Activity {
    /// Time of the last query or reply. Before the first query, the time at which the connection was opened.
    last: Cell<Nanos>,
    /// Number of queries to which no reply has been written yet.
    in_progress: Cell<usize>,
    is_displaced: Cell<bool>,
    displaced: Notify,
}

/// Slot of an open connection, which counts towards the limits. Dropping this value releases the slot.
pub(crate) struct ConnectionSlot {
    connections: Rc<Connections>,
    number: usize,
    activity: Rc<Activity>,
}

/// Result of a request for a connection slot ([`Connections::enter`]).
pub(crate) enum Admission {
    /// A slot was free, and the new connection has it.
    Free(ConnectionSlot),
    /// A different connection is being closed, so that the new connection can have its slot.
    Displacing(ConnectionSlot),
    /// No slot is available. The client already has the maximum number of connections per client, or no connection may
    /// be displaced for this client.
    Refused,
}

impl Connections {
    /// Returns the number of open connections.
    pub(crate) fn len(&self) -> usize {
        self.open.borrow().connections.len()
    }

    /// Returns the number of open connections of a client.
    pub(crate) fn held_by(&self, ip: IpAddr) -> usize {
        self.open.borrow().held_by(ClientId::from_address(ip))
    }

    /// True if no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.borrow().connections.is_empty()
    }

    /// Requests a slot for a new connection. At most `most` connections in total and `most_each` per client may be
    /// open.
    pub(crate) fn enter(
        self: &Rc<Connections>,
        ip: IpAddr,
        most: usize,
        most_each: usize,
    ) -> Admission {
        let client = ClientId::from_address(ip);
        let mut open = self.open.borrow_mut();
        if open.held_by(client) >= most_each {
            return Admission::Refused;
        }
        let mut displaces = false;
        while open.connections.len() >= most {
            if !open.displace_for(client) {
                return Admission::Refused;
            }
            displaces = true;
        }
        let activity = Rc::new(Activity::new());
        let number = open.insert(client, Rc::clone(&activity));
        let slot = ConnectionSlot { connections: Rc::clone(self), number, activity };
        if displaces { Admission::Displacing(slot) } else { Admission::Free(slot) }
    }
}

impl Open {
    /// Returns the number of connections of a client.
    fn held_by(&self, client: ClientId) -> usize {
        let narrowest = (LEVELS - 1, client.networks()[LEVELS - 1]);
        self.held.get(&narrowest).map_or(0, |held| held.get())
    }

    fn insert(&mut self, client: ClientId, activity: Rc<Activity>) -> usize {
        let networks = client.networks();
        let held = std::array::from_fn(|level| {
            let held = self.held.entry((level, networks[level])).or_default();
            held.set(held.get() + 1);
            Rc::clone(held)
        });
        self.connections.insert(Connection { client, held, activity })
    }

    fn remove(&mut self, number: usize) -> Connection {
        let connection = self.connections.remove(number);
        for (level, network) in connection.client.networks().into_iter().enumerate() {
            let held = &connection.held[level];
            held.set(held.get() - 1);
            if held.get() == 0 {
                self.held.remove(&(level, network));
            }
        }
        connection
    }

    /// Displaces a connection in favour of `client`. Returns false if no connection is open. Also returns false if
    /// the selected connection belongs to `client` and has queries in progress.
    fn displace_for(&mut self, client: ClientId) -> bool {
        let slots = self.connections.capacity();
        let first = if slots > COMPARED { rand::random_range(0..slots) } else { 0 };
        let victim = (first..slots)
            .chain(0..first)
            .filter_map(|number| Some((number, self.connections.get(number)?)))
            .take(COMPARED)
            .max_by_key(|(_, connection)| connection.rank());
        let Some((number, victim)) = victim else { return false };
        if victim.client == client && !victim.activity.is_idle() {
            return false;
        }
        self.remove(number).activity.displace();
        true
    }
}

impl Connection {
    /// Returns the rank of the connection. The connection with the highest rank is displaced.
    fn rank(&self) -> ([usize; LEVELS], bool, Reverse<Nanos>) {
        let held = self.held.each_ref().map(|held| held.get());
        (held, self.activity.is_idle(), Reverse(self.activity.last.get()))
    }
}

impl Activity {
    fn new() -> Activity {
        Activity {
            last: Cell::new(clock::now()),
            in_progress: Cell::new(0),
            is_displaced: Cell::new(false),
            displaced: Notify::new(),
        }
    }

    /// Records that a query was read.
    pub(crate) fn begin_query(&self) {
        self.in_progress.set(self.in_progress.get() + 1);
        self.last.set(clock::now());
    }

    /// Records that the reply to a query was written.
    pub(crate) fn end_query(&self) {
        self.in_progress.set(self.in_progress.get().saturating_sub(1));
        self.last.set(clock::now());
    }

    /// Waits until a new connection displaces this one.
    pub(crate) async fn displaced(&self) {
        while !self.is_displaced.get() {
            self.displaced.notified().await;
        }
    }

    /// Waits until the connection has been idle for the time `idle`.
    pub(super) async fn idle_for(&self, idle: Duration) {
        loop {
            let passed = Duration::from_nanos(clock::now().since(self.last.get()).0);
            match idle.checked_sub(passed).filter(|left| !left.is_zero()) {
                Some(left) => tokio::time::sleep(left).await,
                None if self.is_idle() => return,
                // The end of the query in progress will be later than now.
                None => tokio::time::sleep(idle).await,
            }
        }
    }

    /// Records that a query was read. Its reply is recorded when the returned value is dropped.
    pub(super) fn query(self: &Rc<Activity>) -> QueryInProgress {
        self.begin_query();
        QueryInProgress { activity: Rc::clone(self) }
    }

    /// True if no query is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.in_progress.get() == 0
    }

    /// Causes this connection to be closed, because a new connection needs its slot.
    pub(super) fn displace(&self) {
        self.is_displaced.set(true);
        self.displaced.notify_one();
    }
}

/// A query without a written reply, on a connection.
pub(super) struct QueryInProgress {
    activity: Rc<Activity>,
}

impl Drop for QueryInProgress {
    fn drop(&mut self) {
        self.activity.end_query();
    }
}

#[cfg(test)]
impl Default for Activity {
    fn default() -> Activity {
        Activity::new()
    }
}

impl ConnectionSlot {
    /// Returns the activity of the connection.
    pub(crate) fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if !self.activity.is_displaced.get() {
            self.connections.open.borrow_mut().remove(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a free slot, or the slot of a different connection.
    fn enter(connections: &Rc<Connections>, ip: IpAddr, most: usize) -> ConnectionSlot {
        match connections.enter(ip, most, 50) {
            Admission::Free(slot) | Admission::Displacing(slot) => slot,
            Admission::Refused => panic!("{ip} is refused"),
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns the slots that were displaced.
    fn displaced(slots: &[ConnectionSlot]) -> Vec<usize> {
        let is_displaced = |at: &usize| slots[*at].activity.is_displaced.get();
        (0..slots.len()).filter(is_displaced).collect()
    }

    #[test]
    fn limits_per_client_and_in_all() {
        let connections = Rc::new(Connections::default());
        let enter = |address: &str| connections.enter(ip(address), 3, 2);
        let Admission::Free(first) = enter("fd00::1") else { panic!("refused") };
        let Admission::Free(second) = enter("fd00::2") else { panic!("refused") };
        assert!(matches!(enter("fd00::3"), Admission::Refused), "one client has its share");
        let Admission::Free(third) = enter("192.0.2.1") else { panic!("refused") };
        drop(first);
        let Admission::Free(again) = enter("fd00::3") else { panic!("refused") };
        drop((second, third, again));
        assert!(connections.is_empty());
        assert!(connections.open.borrow().held.is_empty());
    }

    #[test]
    fn the_network_that_holds_most_gives_a_place() {
        let connections = Rc::new(Connections::default());
        let addresses = [
            "192.0.2.1",
            "2001:db8:1:1::1",
            "2001:db8:1:2::1",
            "2001:db8:2:1::1",
            "2001:db9:1:1::1",
        ];
        let mut slots: Vec<ConnectionSlot> =
            addresses.map(|address| enter(&connections, ip(address), 5)).into();
        slots.push(enter(&connections, ip("198.51.100.1"), 5));
        // 2001:db8::/32 holds three connections. Two of them belong to 2001:db8:1::/48.
        assert_eq!(displaced(&slots), [1]);
        slots.push(enter(&connections, ip("198.51.100.2"), 5));
        assert_eq!(displaced(&slots).len(), 2);
        drop(slots);
        assert!(connections.is_empty() && connections.open.borrow().held.is_empty());
    }

    #[test]
    fn the_longest_idle_connection_goes_first() {
        let connections = Rc::new(Connections::default());
        let slots: Vec<ConnectionSlot> =
            (1..=4).map(|n| enter(&connections, [192, 0, 2, n].into(), 4)).collect();
        for (slot, (in_progress, last)) in slots.iter().zip([(1, 1), (0, 4), (0, 3), (1, 2)]) {
            slot.activity.in_progress.set(in_progress);
            slot.activity.last.set(Nanos(last));
        }
        let newcomer = ClientId::from_address(ip("2001:db8::1"));
        for wanted in [&[2][..], &[1, 2], &[0, 1, 2], &[0, 1, 2, 3]] {
            assert!(connections.open.borrow_mut().displace_for(newcomer));
            assert_eq!(displaced(&slots), wanted);
        }
    }

    #[test]
    fn a_client_does_not_displace_its_own_busy_connection() {
        let connections = Rc::new(Connections::default());
        let slot = enter(&connections, ip("192.0.2.1"), 1);
        slot.activity.begin_query();
        assert!(matches!(connections.enter(ip("192.0.2.1"), 1, 50), Admission::Refused));
        slot.activity.end_query();
        assert!(matches!(connections.enter(ip("192.0.2.1"), 1, 50), Admission::Displacing(_)));
    }

    /// Hostile clients hold all slots, and reconnect after a displacement. New clients must get a slot, and keep it
    /// while 20 hostile connections follow.
    fn newcomers_stay(hostile: &[IpAddr], busy: bool) {
        const MOST: usize = 1_000;
        let connections = Rc::new(Connections::default());
        let mut held: Vec<ConnectionSlot> = Vec::new();
        let attack = |held: &mut Vec<ConnectionSlot>, n: usize| {
            held.retain(|slot| !slot.activity.is_displaced.get());
            if let Admission::Free(slot) | Admission::Displacing(slot) =
                connections.enter(hostile[n % hostile.len()], MOST, 50)
            {
                slot.activity.in_progress.set(usize::from(busy));
                held.push(slot);
            }
        };
        (0..MOST).for_each(|n| attack(&mut held, n));
        assert_eq!(held.len(), MOST);
        for newcomer in 0..100 {
            let slots = [enter(&connections, [198, 51, 100, newcomer].into(), MOST)];
            (0..20).for_each(|n| attack(&mut held, usize::from(newcomer) * 20 + n));
            assert_eq!(displaced(&slots), [0; 0], "{} hostile networks", hostile.len());
        }
    }

    #[test]
    fn newcomers_are_admitted_under_attack() {
        for networks in [20, 256, 2_000] {
            let of_ipv6 = |n: u16| IpAddr::from([0xfd00, 1, 0, n, 0, 0, 0, 1]);
            let of_ipv4 = |n: u16| IpAddr::from([10, 16 + (n % 16) as u8, (n >> 4) as u8, 1]);
            let of_sites = |n: u16| IpAddr::from([0xfd00, n % 64, n, 0, 0, 0, 0, 1]);
            for busy in [false, true] {
                newcomers_stay(&(0..networks).map(of_ipv6).collect::<Vec<_>>(), busy);
                newcomers_stay(&(0..networks).map(of_ipv4).collect::<Vec<_>>(), busy);
                newcomers_stay(&(0..networks).map(of_sites).collect::<Vec<_>>(), busy);
            }
        }
    }
}
