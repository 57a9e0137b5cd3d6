//! Counts of the slots in use, for each client and for each network that contains clients. Only networks with slots in
//! use are recorded. The number of slots therefore limits the memory for the counts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::client::{ClientId, LEVELS, NetworkId};
use super::{Slots, Weight};

/// For each network, the number of slots in use by its clients.
#[derive(Default)]
pub(crate) struct Counts {
    /// The hasher of this map has a random secret. Clients can choose the networks in the map, and must not be able to
    /// predict the hashes.
    held: HashMap<Key, SlotCount>,
}

/// Key of a count: a kind of slot, and a network with its nesting level. Level 0 is the network that contains all
/// clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: u64,
    level: u8,
    network: NetworkId,
}

/// Number of slots in use by the clients of a network, and number of networks directly inside it that have slots in
/// use.
#[derive(Clone, Copy, Default)]
struct SlotCount {
    slots: u32,
    /// Number of networks that are directly inside this network and have slots in use.
    networks: u32,
}

/// Returns the keys of the networks to which a client belongs. The first key is for the network of all clients.
fn keys(kind: u64, client: ClientId) -> [Key; LEVELS + 1] {
    let mut keys = [Key { kind, level: 0, network: 0 }; LEVELS + 1];
    for (level, (key, network)) in (1..).zip(keys[1..].iter_mut().zip(client.networks())) {
        *key = Key { kind, level, network };
    }
    keys
}

impl Counts {
    /// True if a client may take a further slot. `slots` gives the number of slots in use and the total number of
    /// slots. Slots of different kinds (`kind`) are counted separately.
    pub(crate) fn admit(&self, kind: u64, client: ClientId, slots: Slots) -> bool {
        let [all, networks @ ..] =
            keys(kind, client).map(|key| self.held.get(&key).copied().unwrap_or_default());
        let (mut weight, mut around) = (Weight::FULL, all);
        for (level, own) in networks.into_iter().enumerate() {
            let [held, all, beside] =
                [own.slots, around.slots, around.networks].map(|count| count as usize);
            weight = weight.and(level, held, all, beside);
            if held == 0 {
                break;
            }
            around = own;
        }
        let mut headroom = slots.headroom();
        for held in networks.map(|own| own.slots as usize) {
            if !headroom.admits(held, weight) {
                return false;
            }
            if held == 0 {
                // Networks inside this one hold no slots either.
                break;
            }
            headroom = headroom.inside(held, weight);
        }
        true
    }

    /// Adds one slot of a client to the counts.
    pub(crate) fn enter(&mut self, kind: u64, client: ClientId) {
        let mut around = None;
        for key in keys(kind, client) {
            let held = self.held.entry(key).or_default();
            held.slots += 1;
            if held.slots == 1 {
                self.change_networks(around, 1);
            }
            around = Some(key);
        }
    }

    /// Removes one slot of a client from the counts.
    pub(crate) fn leave(&mut self, kind: u64, client: ClientId) {
        let mut around = None;
        for key in keys(kind, client) {
            let Entry::Occupied(mut held) = self.held.entry(key) else { return };
            held.get_mut().slots -= 1;
            if held.get().slots == 0 {
                held.remove();
                self.change_networks(around, -1);
            }
            around = Some(key);
        }
    }

    /// Adds `by` to the number of networks that are directly inside the network `around` and have slots in use.
    fn change_networks(&mut self, around: Option<Key>, by: i32) {
        if let Some(held) = around.and_then(|key| self.held.get_mut(&key)) {
            held.networks = held.networks.saturating_add_signed(by);
        }
    }
}

#[cfg(test)]
impl Counts {
    /// True if no slot is in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const SLOTS: usize = 8_192;

    fn client(address: &str) -> ClientId {
        ClientId::from_address(address.parse().unwrap())
    }

    /// Takes slots for one client after the other. Returns the number of slots taken.
    fn fill(counts: &mut Counts, tries: usize, client: impl Fn(usize) -> ClientId) -> usize {
        let mut taken = 0;
        for client in (0..tries).map(client) {
            let slots = Slots { taken, most: SLOTS };
            if slots.free() > 0 && counts.admit(0, client, slots) {
                counts.enter(0, client);
                taken += 1;
            }
        }
        taken
    }

    fn assert_admitted(counts: &Counts, taken: usize, addresses: &[&str]) {
        for address in addresses {
            let slots = Slots { taken, most: SLOTS };
            assert!(counts.admit(0, client(address), slots), "{address}: {taken} taken");
        }
    }

    #[test]
    fn one_client_gets_most_and_its_neighbours_are_admitted() {
        let mut counts = Counts::default();
        let taken = fill(&mut counts, 10_000, |_| client("192.0.2.1"));
        assert!(taken > SLOTS * 9 / 10 && taken < SLOTS, "{taken}");
        assert!(!counts.admit(0, client("192.0.2.1"), Slots { taken, most: SLOTS }));
        let neighbours = ["192.0.2.2", "192.0.3.1", "192.1.2.1", "10.0.0.1", "2001:db8::1"];
        assert_admitted(&counts, taken, &neighbours);
        for _ in 0..taken {
            counts.leave(0, client("192.0.2.1"));
        }
        assert!(counts.held.is_empty());
    }

    #[test]
    fn clients_of_one_network_leave_room_for_others_nearby() {
        let of_ipv6 = |n: usize| ClientId(0x2001_0db8_0000_0000 | n as u64);
        for (clients, neighbours) in [
            (20, ["2001:db8:0:20::1", "2001:db8:0:100::1", "2001:db8:1::1", "192.0.2.1"]),
            (256, ["2001:db8:0:100::1", "2001:db8:1::1", "2001:db8:100::1", "fe80::1"]),
            (65_536, ["2001:db8:1::1", "2001:db8:100::1", "2001:db9::1", "192.0.2.1"]),
            (1 << 20, ["2001:db8:1000::1", "2001:db8:100::1", "2001:db9::1", "192.0.2.1"]),
        ] {
            let mut counts = Counts::default();
            let taken = fill(&mut counts, 100_000, |n| of_ipv6(n * 257 % clients));
            assert_admitted(&counts, taken, &neighbours);
        }
        let of_ipv4 = |n: usize| {
            let address = Ipv4Addr::from_bits(0x0a10_0000 | (n % (1 << 20)) as u32);
            ClientId::from_address(IpAddr::V4(address))
        };
        let mut counts = Counts::default();
        let taken = fill(&mut counts, 100_000, |n| of_ipv4(n * 4_099));
        assert_admitted(&counts, taken, &["10.0.0.1", "10.32.0.1", "11.0.0.1", "2001:db8::1"]);
    }

    #[test]
    fn kinds_of_places_are_counted_apart() {
        let mut counts = Counts::default();
        let slots = Slots { taken: 8, most: 9 };
        counts.enter(1, client("192.0.2.1"));
        assert!(!counts.admit(1, client("192.0.2.1"), slots));
        assert!(counts.admit(2, client("192.0.2.1"), slots));
    }
}
