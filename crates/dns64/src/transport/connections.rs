//! How many connections there are, in all and of each client (an IPv4 address, an IPv6 /64, a
//! link-local address). One thread counts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use crate::client::limiter::network;

/// The connections that are open.
#[derive(Default)]
pub(crate) struct Connections {
    /// For each client that has one.
    open: RefCell<HashMap<u64, usize>>,
}

/// A connection that counts while it lives.
pub(crate) struct Place {
    connections: Rc<Connections>,
    network: u64,
}

impl Connections {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// A place for one more connection, if there are fewer than `most`, and fewer than `most_each`
    /// of its client.
    pub(crate) fn enter(
        self: &Rc<Connections>,
        ip: IpAddr,
        most: usize,
        most_each: usize,
    ) -> Option<Place> {
        let mut open = self.open.borrow_mut();
        let network = network(ip);
        if open.values().sum::<usize>() >= most
            || open.get(&network).copied().unwrap_or(0) >= most_each
        {
            return None;
        }
        *open.entry(network).or_default() += 1;
        Some(Place { connections: Rc::clone(self), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.open.borrow_mut();
        if let Some(count) = open.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_places_and_all_together_have_theirs() {
        let connections = Rc::new(Connections::default());
        let enter = |ip: &str| connections.enter(ip.parse().unwrap(), 3, 2);
        let (first, second) = (enter("fd00::1").unwrap(), enter("fd00::2").unwrap());
        assert!(enter("fd00::3").is_none(), "one client has its share");
        let third = enter("192.0.2.1").unwrap();
        assert!(enter("192.0.2.2").is_none(), "all places are taken");
        drop(first);
        let again = enter("fd00::3").unwrap();
        drop((second, third, again));
        assert!(connections.is_empty());
    }
}
