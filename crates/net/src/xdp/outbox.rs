//! Buffer of datagrams that are collected and then sent together by AF_XDP.

use std::net::SocketAddr;
use std::ops::Range;

use super::frame::Link;

/// Buffer of datagrams that are sent together by AF_XDP ([`super::Sender::put`]).
#[derive(Debug, Default)]
pub struct Outbox {
    octets: Vec<u8>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    link: Link,
    from: SocketAddr,
    to: SocketAddr,
    payload: Range<usize>,
}

/// Maximum payload: the Ethernet MTU of 1500 octets minus the longest headers.
pub(super) const LONGEST: usize = 1500 - 40 - 8;

impl Outbox {
    /// Returns the number of collected datagrams.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if the outbox is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a datagram with the payload that `write` appends. `from` and `to` are of the same address family. Adds
    /// nothing if `write` appends nothing. Returns false if the datagram exceeds an Ethernet MTU of 1500.
    #[inline]
    pub fn push(
        &mut self,
        link: &Link,
        from: SocketAddr,
        to: SocketAddr,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let start = self.octets.len();
        write(&mut self.octets);
        let payload = start..self.octets.len();
        if payload.len() > LONGEST {
            self.octets.truncate(start);
            return false;
        }
        if !payload.is_empty() {
            self.waiting.push(Waiting { link: *link, from, to, payload });
        }
        true
    }

    /// Returns all datagrams in order.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = (&Link, SocketAddr, SocketAddr, &[u8])> {
        self.waiting
            .iter()
            .map(|one| (&one.link, one.from, one.to, &self.octets[one.payload.clone()]))
    }

    pub(super) fn clear(&mut self) {
        self.octets.clear();
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_too_long_datagrams_are_not_queued() {
        let [from, to] = ["192.0.2.1:53", "192.0.2.2:1053"].map(|text| text.parse().unwrap());
        let mut outbox = Outbox::default();
        let mut push =
            |octets: &[u8]| outbox.push(&[7; 12], from, to, |out| out.extend_from_slice(octets));
        assert!(push(b"one") && push(b"") && !push(&[0; LONGEST + 1]) && push(&[9; LONGEST]));
        let waiting: Vec<_> = outbox.datagrams().map(|(.., payload)| payload.to_vec()).collect();
        assert_eq!(waiting, [b"one".to_vec(), vec![9; LONGEST]]);
        outbox.clear();
        assert!(outbox.is_empty() && outbox.datagrams().next().is_none());
    }
}
