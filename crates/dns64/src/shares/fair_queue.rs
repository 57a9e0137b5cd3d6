//! Queue of work items that wait for a slot, grouped by the networks of the clients. A free slot goes to the network
//! that holds the fewest slots.
//!
//! ```text
//! all ── /32 ── /40 ── /48 ── /56 ── /64: work in the order of its arrival
//!     │                           └─ /64: …
//!     └─ /32 ── …
//! ```
//!
//! A node of this tree exists while its network has waiting work items or holds slots. While slots are scarce, a rule
//! limits the slots of each network (see [`super`]). The remaining slots are reserved for networks that need slots
//! later.

use std::collections::{HashMap, VecDeque};

use super::client::{ClientId, NetworkId};
use super::{Headroom, Slots, Weight};

/// Number of free slots that the queue assumes while slots are not scarce. The number is so large that it never limits
/// a network.
const PLENTY: Slots = Slots { taken: 0, most: 1 << 30 };

/// Waiting work items of all clients, and the number of slots in use for each network.
pub(crate) struct FairQueue<T> {
    all: Node<T>,
}

/// Waiting work items of the clients in one network, and the number of slots that these clients use.
struct Node<T> {
    /// Number of slots in use by clients of this network.
    held: usize,
    /// Waiting work items of a network that is a single client. Empty for larger networks.
    waiting: VecDeque<T>,
    /// Networks directly inside this one.
    inside: HashMap<NetworkId, Node<T>>,
    /// Networks in `inside` that have waiting work items. A network that has received a slot moves to the end of this
    /// list.
    queue: VecDeque<NetworkId>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { all: Node::default() }
    }
}

impl<T> Default for Node<T> {
    fn default() -> Node<T> {
        let (waiting, queue) = (VecDeque::new(), VecDeque::new());
        Node { held: 0, waiting, inside: HashMap::new(), queue }
    }
}

impl<T> FairQueue<T> {
    /// Returns the number of slots in use.
    pub(crate) fn held(&self) -> usize {
        self.all.held
    }

    /// True if no work item waits and no slot is in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a work item of a client to the queue.
    pub(crate) fn wait(&mut self, client: ClientId, work: T) {
        self.all.wait(&client.networks(), work);
    }

    /// Removes and returns the work item that gets the next slot. Returns `None` if no waiting work item may get a
    /// slot.
    pub(crate) fn take(&mut self, slots: Slots) -> Option<T> {
        if slots.free() == 0 {
            return None;
        }
        self.all.take(if slots.are_scarce() { slots } else { PLENTY }.headroom())
    }

    /// Releases a slot of a client.
    pub(crate) fn give_back(&mut self, client: ClientId) {
        self.all.give_back(&client.networks());
    }
}

impl<T> Node<T> {
    fn is_empty(&self) -> bool {
        self.held == 0 && !self.has_waiting()
    }

    fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.queue.is_empty()
    }

    /// Adds a work item of a client to the queue. `path` lists the nested networks that contain the client, and ends
    /// with the client itself.
    fn wait(&mut self, path: &[NetworkId], work: T) {
        let Some((first, rest)) = path.split_first() else { return self.waiting.push_back(work) };
        let node = self.inside.entry(*first).or_default();
        if !node.has_waiting() {
            self.queue.push_back(*first);
        }
        node.wait(rest, work);
    }

    /// Removes and returns the work item that gets the next slot in this network. `headroom` is the number of further
    /// slots that the network may take.
    fn take(&mut self, headroom: Headroom) -> Option<T> {
        let work = self.waiting.pop_front().or_else(|| self.take_inside(headroom));
        self.held += usize::from(work.is_some());
        work
    }

    /// Selects the network that holds the fewest slots among the networks inside this one. Removes and returns one of
    /// its work items. Networks with equal numbers of slots are selected in rotation.
    fn take_inside(&mut self, headroom: Headroom) -> Option<T> {
        let Node { inside, queue, .. } = self;
        queue.make_contiguous().sort_by_cached_key(|id| inside.get(id).map_or(0, |node| node.held));
        for (at, id) in queue.iter().copied().enumerate() {
            let Some(node) =
                inside.get_mut(&id).filter(|node| headroom.admits(node.held, Weight::FULL))
            else {
                continue;
            };
            let Some(work) = node.take(headroom.inside(node.held, Weight::FULL)) else { continue };
            let waits = node.has_waiting();
            queue.remove(at);
            if waits {
                queue.push_back(id);
            }
            return Some(work);
        }
        None
    }

    /// Releases a slot of a client. `path` lists the nested networks that contain the client, and ends with the client
    /// itself.
    fn give_back(&mut self, path: &[NetworkId]) {
        self.held -= 1;
        let Some((first, rest)) = path.split_first() else { return };
        if let Some(node) = self.inside.get_mut(first) {
            node.give_back(rest);
            if node.is_empty() {
                self.inside.remove(first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 100;
    /// Time for which a query of the attacker holds a slot, in milliseconds.
    const SLOW: usize = 1_500;
    /// Time for which a query of a different client holds a slot, in milliseconds.
    const FAST: usize = 1;

    /// Work item of a client, with the time for which the item will hold a slot, and the time at which its wait began.
    struct Work {
        client: ClientId,
        takes: usize,
        since: usize,
    }

    /// Returns the longest wait, in milliseconds, of a client that sends a query every 20 ms during
    /// an attack with `rate` queries per millisecond.
    fn longest_wait(rate: usize, honest: &str, attacker: impl Fn(usize) -> ClientId) -> usize {
        let honest = ClientId::from_address(honest.parse().unwrap());
        let mut queue = FairQueue::default();
        let mut ends: HashMap<usize, Vec<ClientId>> = HashMap::new();
        let (mut asked, mut longest, mut waiting) = (0, 0, 0);
        for now in 0..6_000 {
            for client in ends.remove(&now).unwrap_or_default() {
                queue.give_back(client);
            }
            for _ in 0..rate {
                queue.wait(
                    attacker(asked),
                    Work { client: attacker(asked), takes: SLOW, since: now },
                );
                asked += 1;
            }
            if now % 20 == 0 {
                queue.wait(honest, Work { client: honest, takes: FAST, since: now });
                waiting += 1;
            }
            while let Some(work) = queue.take(Slots { taken: queue.held(), most: MOST }) {
                if work.client == honest {
                    longest = longest.max(now - work.since);
                    waiting -= 1;
                }
                ends.entry(now + work.takes).or_default().push(work.client);
            }
            assert!(queue.held() <= MOST);
        }
        assert!(waiting * 20 <= 200, "{waiting} wait at the end");
        longest
    }

    #[test]
    fn other_networks_need_not_wait_for_an_attack() {
        let of_ipv6 = |n: usize| ClientId(0x2001_0db8_0000_0000 | n as u64);
        let of_ipv4 = |n: usize| {
            ClientId(ClientId::from_address([10, 16, 0, 0].into()).0 | (n % (1 << 20)) as u64)
        };
        for clients in [1, 20, 256, 2_000, 65_536, 1 << 20] {
            for honest in ["2001:db8:100::1", "2001:db9::1", "192.0.2.1"] {
                let waited = longest_wait(1, honest, |n| of_ipv6(n * 257 % clients));
                assert!(waited <= 20, "{waited} ms beside {clients} clients: {honest}");
            }
        }
        let waited = longest_wait(1, "11.0.0.1", |n| of_ipv4(n * 4_099));
        assert!(waited <= 20, "{waited} ms beside a /12");
    }

    #[test]
    fn places_given_back_leave_nothing_behind() {
        let mut queue = FairQueue::default();
        let clients = [1, 2, 1 << 20, 1 << 40].map(ClientId);
        for client in clients {
            queue.wait(client, client);
        }
        let slots = |queue: &FairQueue<_>| Slots { taken: queue.held(), most: 16 };
        let taken: Vec<ClientId> = std::iter::from_fn(|| queue.take(slots(&queue))).collect();
        assert_eq!(taken[..2], [ClientId(1), ClientId(1 << 40)], "the /32 that holds none");
        assert_eq!(queue.held(), 4);
        taken.into_iter().for_each(|client| queue.give_back(client));
        assert!(queue.is_empty() && queue.all.inside.is_empty());
    }
}
