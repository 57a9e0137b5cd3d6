//! The sending and the receiving half of a queue.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use units::Nanos;

use super::frame::{self, HostAddresses, Link};
use super::mode::AttachMode;
use super::outbox::Outbox;
use super::queue::{Incoming, Outgoing, Queue};

/// Maximum time for which a sender retries while the kernel accepts no datagram.
const SEND_TIMEOUT: Duration = Duration::from_millis(5);

/// Sender and receiver of one queue of an interface, for a thread that sends both queries and replies on this queue.
pub struct Exchange {
    /// The sending half of the exchange.
    pub sender: Sender,
    /// The receiving half of the exchange.
    pub receiver: Receiver,
}

impl Exchange {
    pub(super) fn new(queue: Queue, attach_mode: AttachMode, own: HostAddresses) -> Exchange {
        let (sender, incoming) = Sender::split(queue, attach_mode);
        Exchange { sender, receiver: Receiver { queues: vec![incoming], own, unreadable: 0 } }
    }
}

/// Sends datagrams by AF_XDP.
pub struct Sender {
    outgoing: Outgoing,
    /// Addresses of the free frames for sending.
    free: Vec<u64>,
    /// Total number of frames for sending.
    frames: usize,
    /// True if the kernel copies the data of a datagram during the send call. False in zero-copy mode.
    copies: bool,
}

impl Sender {
    pub(super) fn split(queue: Queue, attach_mode: AttachMode) -> (Sender, Incoming) {
        let (outgoing, incoming, own) = queue.split();
        let free: Vec<u64> = own.collect();
        let (frames, copies) = (free.len(), attach_mode != AttachMode::ZeroCopy);
        (Sender { outgoing, free, frames, copies }, incoming)
    }

    /// Sends one or more datagrams over `link`. Their payloads are contiguous in `payloads`, and each is `length`
    /// octets long. Both addresses must be of the same family. Returns the number of accepted datagrams: those at the
    /// beginning of `payloads` for which there was a free frame and ring entry. In zero-copy mode, the accepted
    /// datagrams wait for the device to send them. In other modes, each of them has reached the device, or was dropped
    /// and counted by the interface.
    ///
    /// # Errors
    /// Returns an error if the interface is gone, or `TimedOut` if the device accepts no packet for 5 ms. The state of
    /// the datagrams is then unknown.
    ///
    /// # Panics
    /// Panics if `length` is 0 or a datagram of that length does not fit into a frame.
    pub fn send(
        &mut self,
        payloads: &[u8],
        length: usize,
        link: &Link,
        from: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<usize> {
        let mut taken = 0;
        for payload in payloads.chunks(length) {
            if !self.place(link, from, to, payload) {
                break;
            }
            taken += 1;
        }
        self.flush()?;
        Ok(taken)
    }

    /// Moves the datagrams of the outbox into the transmit ring, to be sent by [`Sender::flush`]. The outbox is empty
    /// afterwards. If the ring becomes full, the remaining datagrams are discarded. Returns the number of discarded
    /// datagrams.
    pub fn put(&mut self, outbox: &mut Outbox) -> usize {
        let mut refused = 0;
        for (link, from, to, payload) in outbox.datagrams() {
            let is_placed = refused == 0
                && (self.place(link, from, to, payload)
                    || (self.makes_room() && self.place(link, from, to, payload)));
            refused += usize::from(!is_placed);
        }
        outbox.clear();
        refused
    }

    /// Puts a datagram into the transmit ring. Returns false if there is no free frame or the ring is full.
    #[inline]
    fn place(&mut self, link: &Link, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> bool {
        let Some(address) = self.free_frame() else { return false };
        let octets = frame::write(self.outgoing.frame(address), link, from, to, payload);
        let is_placed = self.outgoing.send(address, octets);
        if !is_placed {
            self.free.push(address);
        }
        is_placed
    }

    /// Makes the kernel send the queued datagrams.
    ///
    /// # Errors
    /// Returns the same errors as [`Sender::send`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.outgoing.flush()?;
        if self.copies && self.outgoing.is_held() {
            self.insist()?;
        }
        Ok(())
    }

    /// Sends the queued datagrams until one of their frames becomes free. Returns false if no frame becomes free within
    /// 5 ms.
    #[cold]
    fn makes_room(&mut self) -> bool {
        let give_up = Instant::now() + SEND_TIMEOUT;
        loop {
            if self.flush().is_err() {
                return false;
            }
            self.reap();
            if !self.free.is_empty() {
                return true;
            }
            if Instant::now() > give_up {
                return false;
            }
        }
    }

    /// Waits up to `limit` until the device has sent all queued datagrams. Returns the number of unsent datagrams.
    pub fn settle(&mut self, limit: Duration) -> usize {
        let give_up = Instant::now() + limit;
        loop {
            self.reap();
            let unsent = self.frames - self.free.len();
            if unsent == 0 || Instant::now() > give_up || self.flush().is_err() {
                return unsent;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// True if the device reads sent data directly from this process's memory ([`AttachMode::ZeroCopy`]).
    pub fn is_read_by_device(&self) -> bool {
        !self.copies
    }

    /// Frees the frames of all packets that have been sent.
    fn reap(&mut self) {
        while let Some(address) = self.outgoing.left() {
            self.free.push(address);
        }
    }

    /// Returns a free frame.
    #[inline]
    fn free_frame(&mut self) -> Option<u64> {
        if self.free.is_empty() {
            self.reap();
        }
        self.free.pop()
    }

    /// Repeats the send call until the kernel has accepted all queued datagrams.
    #[cold]
    fn insist(&mut self) -> io::Result<()> {
        let give_up = Instant::now() + SEND_TIMEOUT;
        while self.outgoing.is_held() {
            if Instant::now() > give_up {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.outgoing.flush()?;
        }
        Ok(())
    }
}

/// A datagram received by AF_XDP.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Payload of the received datagram.
    pub bytes: &'a [u8],
    /// Source address and port of the datagram.
    pub source: SocketAddr,
    /// Destination address and port of the datagram. The address is one of this host.
    pub destination: SocketAddr,
    /// Ethernet addresses for a reply frame to the sender of the datagram.
    pub link: Link,
    /// Receive time at the filter, on the monotonic clock.
    pub received: Nanos,
    /// True if the sender left the computation of the checksum to a network card. This is always the case if several
    /// datagrams are sent as one large packet (`UDP_SEGMENT`).
    pub has_partial_checksum: bool,
}

/// Receives datagrams by AF_XDP.
pub struct Receiver {
    pub(super) queues: Vec<Incoming>,
    pub(super) own: HostAddresses,
    pub(super) unreadable: u64,
}

impl Receiver {
    /// Returns the sockets of all queues, for use with poll(2) or epoll(7). A socket is readable if its queue has
    /// received a packet.
    pub fn sockets(&self) -> impl ExactSizeIterator<Item = impl AsFd + '_> {
        self.queues.iter().map(AsFd::as_fd)
    }

    /// Reads up to `most` packets from one queue, and passes the datagrams that it can parse to `each`. Returns the
    /// total number of packets read.
    ///
    /// # Errors
    /// Returns an error if the interface is gone.
    ///
    /// # Panics
    /// Panics if there is no such queue.
    pub fn receive(
        &mut self,
        queue: usize,
        most: usize,
        mut each: impl FnMut(&Arrived<'_>),
    ) -> io::Result<usize> {
        let incoming = &mut self.queues[queue];
        let mut packets = 0;
        while packets < most {
            let Some(packet) = incoming.receive() else { break };
            packets += 1;
            let read = incoming.frame(packet).and_then(|(stamp, frame)| {
                let moment = Nanos(u64::from_ne_bytes(stamp));
                arrived(frame, packet.length(), &self.own, moment)
            });
            match read {
                Some(arrived) => each(&arrived),
                None => self.unreadable += 1,
            }
            incoming.release(packet);
        }
        incoming.publish();
        if incoming.wants_frames() {
            incoming.wait(Duration::ZERO)?;
        }
        Ok(packets)
    }

    /// Returns the number of packets that matched the filter but were then dropped. The count begins when the queues
    /// are opened. A packet is dropped if no frame or ring entry of its queue is free.
    ///
    /// # Errors
    /// Returns any error from getsockopt(2). The number of drops is then unknown.
    pub fn drops(&self) -> io::Result<u64> {
        self.queues.iter().map(Incoming::drops).sum()
    }

    /// Returns the number of packets that were discarded because they were invalid. A packet is invalid if its checksum
    /// is wrong, its lengths are inconsistent, or one of its addresses is not allowed, such as this host's own address
    /// as the source.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

/// Parses the datagram in the packet that occupies the first `length` octets of a frame.
#[inline]
fn arrived<'a>(
    frame: &'a [u8],
    length: usize,
    own: &HostAddresses,
    received: Nanos,
) -> Option<Arrived<'a>> {
    let packet = frame.get(..length)?;
    let found = frame::read(packet, own)?;
    Some(Arrived {
        bytes: &packet[found.payload],
        source: found.source,
        destination: found.destination,
        link: frame::link_back(packet),
        received,
        has_partial_checksum: found.has_partial_checksum,
    })
}

/// Parses the packet in the first `length` octets of `frame` in the same way as a [`Receiver`]. `by_cable` is true if
/// the packet is to be treated like one from a physical network card. This function is for fuzzers, which have no
/// interface.
#[doc(hidden)]
pub fn receive_frame(frame: &[u8], length: usize, by_cable: bool) -> Option<Arrived<'_>> {
    let own = HostAddresses::default().with_partial_checksums(!by_cable);
    arrived(frame, length, &own, Nanos(0))
}
