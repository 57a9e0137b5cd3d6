//! Client queries that wait for upstreams, from arrival to reply.

use slab::Slab;
use units::Nanos;

use super::explain::Trace;
use crate::client::inquiry::Inquiry;
use crate::client::query::Cookie;
use crate::ids::JobId;
use crate::transport::client::Client;

/// A client query that has not been answered yet.
pub(super) struct Job {
    /// Identifier of the query while it waits.
    pub(super) id: JobId,
    pub(super) client: Client,
    pub(super) arrival: Arrival,
    pub(super) inquiry: Inquiry,
    /// Trace of a query that comes from the command `dns64d explain`; `None` for a query from a client.
    pub(super) trace: Option<Box<Trace>>,
}

/// Arrival of a client query, and limits on the reply.
pub(super) struct Arrival {
    pub(super) time: Nanos,
    /// Cookie that may verify the client's address (RFC 7873).
    pub(super) cookie: Option<Cookie>,
    /// Size, in octets, up to which a UDP reply is not rate limited. It is a fixed multiple of the size of the query.
    pub(super) unlimited: u32,
}

impl Job {
    /// Records an event in the trace of the query, if the query has a trace.
    #[inline]
    pub(super) fn record(&mut self, record: impl FnOnce(&mut Trace)) {
        if let Some(trace) = &mut self.trace {
            record(trace);
        }
    }
}

/// Table of the waiting client queries.
#[derive(Default)]
pub(super) struct Jobs {
    slab: Slab<Job>,
    /// Serial number of the last client query.
    serial: u32,
}

impl Jobs {
    /// Returns the identifier for the client query that is stored next. It differs from all earlier identifiers.
    #[inline]
    pub(super) fn next_id(&mut self) -> JobId {
        self.serial = self.serial.wrapping_add(1);
        JobId { index: self.slab.vacant_key() as u32, serial: self.serial }
    }

    /// Stores a waiting client query. Its identifier must be the last result of [`next_id`](Jobs::next_id).
    #[inline]
    pub(super) fn insert(&mut self, job: Job) {
        debug_assert_eq!(
            job.id.index as usize,
            self.slab.vacant_key(),
            "its number is the next one"
        );
        self.slab.insert(job);
    }

    /// Returns the waiting client query with this identifier, or `None` if there is none.
    #[inline]
    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.slab.get_mut(id.index as usize).filter(|job| job.id == id)
    }

    /// Removes the waiting client query with this identifier, and returns it.
    #[inline]
    pub(super) fn remove(&mut self, id: JobId) -> Option<Job> {
        self.get_mut(id)?;
        Some(self.slab.remove(id.index as usize))
    }

    /// Returns the number of waiting client queries.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::query::Received;
    use crate::translation::policy::{Policy, Rules};
    use crate::transport::Transport;
    use crate::transport::client::StreamClient;

    fn job(id: JobId) -> Job {
        let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x1c\0\x01";
        let Received::Query(query) = Received::read(query) else { panic!("a query") };
        let ip = [127, 0, 0, 1].into();
        let policy = Policy::default();
        let inquiry =
            Inquiry::begin(&query, Transport::Tcp, None, &Rules::for_all_names(&policy, ip));
        let client = Client::Stream(StreamClient::closed(ip));
        let arrival = Arrival { time: Nanos(0), cookie: None, unlimited: u32::MAX };
        Job { id, client, arrival, inquiry, trace: None }
    }

    #[test]
    fn a_place_that_is_used_again_has_another_number() {
        let mut jobs = Jobs::default();
        // The identifier of a job that ends without waiting is not used again. After a panic, a
        // fetch may still refer to the job.
        let unused = jobs.next_id();
        let first = jobs.next_id();
        assert!(first.index == unused.index && first != unused);
        jobs.insert(job(first));
        assert!(jobs.remove(first).is_some() && jobs.remove(first).is_none());
        let second = jobs.next_id();
        jobs.insert(job(second));
        assert!(second.index == first.index && second != first);
        assert!(jobs.remove(first).is_none() && jobs.len() == 1);
        assert!(jobs.remove(second).is_some() && jobs.len() == 0);
    }
}
