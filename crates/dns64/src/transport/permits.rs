//! Permits for upstream queries over TCP. The number of permits is limited in total and for each upstream. The
//! permits are divided fairly among the networks of clients ([`crate::shares`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use net::address::ServiceAddr;
use tokio::sync::oneshot;

use crate::shares::Slots;
use crate::shares::client::ClientId;
use crate::shares::fair_queue::FairQueue;

/// The permits for upstream queries over TCP that one thread grants.
pub(super) struct Permits {
    most: usize,
    /// Function that returns the maximum number of permits for one upstream. A reload may change this number.
    most_each: Box<dyn Fn() -> usize>,
    upstreams: RefCell<HashMap<ServiceAddr, FairQueue<PendingQuery>>>,
}

/// An upstream query waiting for a permit.
struct PendingQuery {
    client: ClientId,
    /// Sending end of the channel that delivers the permit. The channel is closed if the query has been abandoned.
    sender: oneshot::Sender<Permit>,
}

/// A permit for one query. Dropping this value releases the permit.
pub(super) struct Permit {
    permits: Rc<Permits>,
    upstream: ServiceAddr,
    client: ClientId,
}

impl Permits {
    /// Returns `most` permits. At most `most_each()` of these permits may be in use for the same upstream.
    pub(super) fn new(most: usize, most_each: impl Fn() -> usize + 'static) -> Rc<Permits> {
        Rc::new(Permits { most, most_each: Box::new(most_each), upstreams: RefCell::default() })
    }

    /// Waits for a permit. Dropping the future abandons the request.
    pub(super) async fn acquire(
        self: &Rc<Permits>,
        upstream: ServiceAddr,
        client: ClientId,
    ) -> Option<Permit> {
        let (sender, receiver) = oneshot::channel();
        let waiting = PendingQuery { client, sender };
        self.upstreams.borrow_mut().entry(upstream).or_default().wait(client, waiting);
        self.hand_out();
        receiver.await.ok()
    }

    /// Grants all permits that are available now.
    fn hand_out(self: &Rc<Permits>) {
        while let Some((upstream, PendingQuery { client, sender })) = self.next() {
            if sender.is_closed() {
                self.give_back(upstream, client);
            } else {
                // Sending cannot fail, because the receiver exists and only this thread can drop it.
                let _ = sender.send(Permit { permits: Rc::clone(self), upstream, client });
            }
        }
    }

    /// Removes and returns the waiting query that gets the next permit. Queries to upstreams with fewer permits in
    /// use have priority.
    fn next(&self) -> Option<(ServiceAddr, PendingQuery)> {
        let mut upstreams = self.upstreams.borrow_mut();
        let free = self.most.saturating_sub(upstreams.values().map(FairQueue::held).sum());
        let most = self.most.min((self.most_each)());
        let mut all: Vec<_> = upstreams.iter_mut().collect();
        all.sort_by_key(|(_, queue)| queue.held());
        all.into_iter().find_map(|(address, queue)| {
            let free = free.min(most.saturating_sub(queue.held()));
            queue.take(Slots { taken: most - free, most }).map(|waiting| (*address, waiting))
        })
    }

    fn give_back(&self, upstream: ServiceAddr, client: ClientId) {
        let mut upstreams = self.upstreams.borrow_mut();
        if let Some(queue) = upstreams.get_mut(&upstream) {
            queue.give_back(client);
            if queue.is_empty() {
                upstreams.remove(&upstream);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.give_back(self.upstream, self.client);
        self.permits.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;

    const CLIENT: ClientId = ClientId(0x2001_0db8_0001_0001);
    const OTHER: ClientId = ClientId(0x2001_0db9_0001_0001);

    fn upstream(number: u16) -> ServiceAddr {
        ServiceAddr::from(std::net::SocketAddr::from(([192, 0, 2, 1], number)))
    }

    /// Polls a request once and returns its permit, if it was granted.
    fn poll(attempt: Pin<&mut impl Future<Output = Option<Permit>>>) -> Option<Permit> {
        match attempt.poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(permit) => permit,
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn one_client_leaves_permits_for_others() {
        let permits = Permits::new(100, || 100);
        let held: Vec<Permit> =
            (0..200).filter_map(|_| poll(pin!(permits.acquire(upstream(1), CLIENT)))).collect();
        assert!((50..90).contains(&held.len()), "{}", held.len());
        assert!(poll(pin!(permits.acquire(upstream(1), OTHER))).is_some());
        drop(held);
        assert!(permits.upstreams.borrow().is_empty());
    }

    #[test]
    fn per_upstream_limit_and_abandoned_requests() {
        let share = Rc::new(Cell::new(2));
        let shared = Rc::clone(&share);
        let permits = Permits::new(4, move || shared.get());
        let held: Vec<Permit> = (1..=9)
            .filter_map(|n| poll(pin!(permits.acquire(upstream(1), ClientId(n << 40)))))
            .collect();
        assert_eq!(held.len(), 2);
        {
            let mut given_up = pin!(permits.acquire(upstream(1), OTHER));
            assert!(poll(given_up.as_mut()).is_none());
        }
        let mut next = pin!(permits.acquire(upstream(1), OTHER));
        assert!(poll(next.as_mut()).is_none());
        let elsewhere = poll(pin!(permits.acquire(upstream(2), CLIENT)));
        assert!(elsewhere.is_some());
        // After a reload with only one upstream, this upstream gets all permits.
        share.set(4);
        drop(elsewhere);
        assert!(poll(next.as_mut()).is_some());
        drop(held);
        assert!(permits.upstreams.borrow().is_empty());
    }
}
