//! Client queries that wait for upstreams, from their arrival to their reply.

use method::units::Nanos;
use slab::Slab;

use super::explain::Trace;
use crate::client::inquiry::Inquiry;
use crate::client::query::Cookie;
use crate::ids::JobId;
use crate::transport::client::Client;

/// A client query that has not been answered yet.
pub(super) struct Job {
    pub(super) client: Client,
    pub(super) inquiry: Inquiry,
    pub(super) arrived: Nanos,
    /// What may prove the client's address (RFC 7873).
    pub(super) cookie: Option<Cookie>,
    /// Octets of a UDP reply that are not limited, a multiple of the query's.
    pub(super) unlimited: u32,
    /// Set if it is no client's, but to be explained.
    pub(super) trace: Option<Box<Trace>>,
}

impl Job {
    /// Notes something, if it is to be explained.
    #[inline]
    pub(super) fn note(&mut self, note: impl FnOnce(&mut Trace)) {
        if let Some(trace) = &mut self.trace {
            note(trace);
        }
    }
}

/// The client queries that wait.
#[derive(Default)]
pub(super) struct Jobs {
    slab: Slab<(u32, Job)>,
    /// Of the next one.
    serial: u32,
}

impl Jobs {
    /// The number that the next job will have.
    #[inline]
    pub(super) fn next_id(&self) -> JobId {
        JobId { place: self.slab.vacant_key(), serial: self.serial }
    }

    /// Lets a job wait, under [`next_id`](Jobs::next_id).
    #[inline]
    pub(super) fn insert(&mut self, job: Job) {
        self.slab.insert((self.serial, job));
        self.serial = self.serial.wrapping_add(1);
    }

    /// Takes a job out that waits no more.
    #[inline]
    pub(super) fn remove(&mut self, id: JobId) -> Option<Job> {
        self.slab.get(id.place).filter(|(serial, _)| *serial == id.serial)?;
        Some(self.slab.remove(id.place).1)
    }

    /// How many client queries wait.
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
    use crate::transport::backlog::ToStream;

    fn job() -> Job {
        let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x1c\0\x01";
        let Received::Query(query) = Received::read(query) else { panic!("a query") };
        let ip = [127, 0, 0, 1].into();
        let policy = Policy::default();
        let inquiry = Inquiry::begin(&query, Transport::Tcp, None, &Rules::of_all(&policy, ip));
        Job {
            client: Client::Stream(Transport::Tcp, ip, ToStream::closed()),
            inquiry,
            arrived: Nanos(0),
            cookie: None,
            unlimited: u32::MAX,
            trace: None,
        }
    }

    #[test]
    fn a_place_that_is_used_again_has_another_number() {
        let mut jobs = Jobs::default();
        let first = jobs.next_id();
        jobs.insert(job());
        assert!(jobs.remove(first).is_some() && jobs.remove(first).is_none());
        let second = jobs.next_id();
        jobs.insert(job());
        assert!(second.place == first.place && second != first);
        assert!(jobs.remove(first).is_none() && jobs.len() == 1);
        assert!(jobs.remove(second).is_some() && jobs.len() == 0);
    }
}
