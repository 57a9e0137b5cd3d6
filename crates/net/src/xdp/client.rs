//! Who asks past the stack: a sender and a receiver, which can be in threads of their own.
//!
//! ```text
//! Sender ─► frame of its own ─► transmit ring of queue 0 ─► interface ─► next hop
//!    ▲           └─── completion ring ◄──────────────────────────┘            │
//! Receiver ◄─ receive rings of all queues ◄─ filter (to our addresses and ports) ◄─ server
//! ```
//!
//! Replies come by the queue that the device chooses for them, which is not always the one that
//! their query left by: a [`Client`] reads all queues. Who answers as well, and whose threads each
//! have a queue, takes an [`Exchange`] of each.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use method::units::Nanos;

use super::frame::{self, Link, Own};
use super::outbox::Outbox;
use super::queue::{Incoming, Outgoing, Queue, Room};
use super::{Claim, Interface, LINK, Mode, Way, XdpError, await_link, find};
use crate::neighbour::NextHop;

/// For so long a sender tells a kernel to send that has no room at the moment.
const HELD: Duration = Duration::from_millis(5);

/// Both halves of a client.
pub struct Client {
    way: Way,
    link: Link,
    sender: Sender,
    receiver: Receiver,
}

impl Client {
    /// Takes the datagrams of these claims from the interface that the next hop is behind, and sends
    /// there. The next hop's link-layer address must be known ([`NextHop::resolve`]).
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn open(hop: &NextHop, claims: &[Claim], mode: Mode) -> Result<Client, XdpError> {
        let Some(link) = hop.link().ok().flatten() else {
            let (interface, address) = (hop.interface.clone(), hop.address);
            return Err(XdpError::NoEthernet { interface, address });
        };
        let opened = Interface::open_found(&find(&hop.interface)?, claims, mode, Room::client)?;
        await_link(&hop.interface, LINK)?;
        let (way, own) = (opened.way, opened.own);
        let (mut first, mut incomings) = (None, Vec::new());
        for queue in opened.queues {
            let (sender, incoming) = Sender::split(queue, way);
            first.get_or_insert(sender);
            incomings.push(incoming);
        }
        let sender = first.expect("an interface has a queue");
        let receiver = Receiver { queues: incomings, own, unreadable: 0 };
        Ok(Client { way, link, sender, receiver })
    }

    /// The Ethernet addresses of what it sends: the next hop's, as it was when the client was
    /// opened, and the interface's.
    pub fn link(&self) -> Link {
        self.link
    }

    /// How packets get to and from the interface.
    pub fn way(&self) -> Way {
        self.way
    }

    /// How many queues are read.
    pub fn queues(&self) -> usize {
        self.receiver.queues.len()
    }

    /// The half that sends and the half that receives.
    pub fn into_halves(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

/// Both halves of a queue, for a thread that asks and answers by it.
pub struct Exchange {
    /// The half that sends.
    pub sender: Sender,
    /// The half that receives.
    pub receiver: Receiver,
}

impl Exchange {
    pub(super) fn new(queue: Queue, way: Way, own: Own) -> Exchange {
        let (sender, incoming) = Sender::split(queue, way);
        Exchange { sender, receiver: Receiver { queues: vec![incoming], own, unreadable: 0 } }
    }
}

/// Sends datagrams past the stack.
pub struct Sender {
    outgoing: Outgoing,
    /// Where the frames are that no packet is in.
    free: Vec<u64>,
    /// How many frames it has in all.
    frames: usize,
    /// Whether the kernel copies what is sent before a call that sends returns.
    copies: bool,
}

impl Sender {
    fn split(queue: Queue, way: Way) -> (Sender, Incoming) {
        let (outgoing, incoming, own) = queue.split();
        let free: Vec<u64> = own.collect();
        let (frames, copies) = (free.len(), way != Way::ZeroCopy);
        (Sender { outgoing, free, frames, copies }, incoming)
    }

    /// Sends the datagrams that are laid end to end in `payloads`, each `length` octets long, over
    /// `link` from one address to another of the same family; returns how many of them, the first
    /// ones, there was room for. Where the kernel copies, these have gone to the device, or the
    /// interface has dropped them and counts them; else the device has been handed them.
    ///
    /// # Errors
    /// If the interface is gone, or `TimedOut` if the device takes no packet for 5 ms. What became
    /// of the datagrams is not known then.
    ///
    /// # Panics
    /// If `length` is 0 or no datagram of that length fits into a frame.
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

    /// Takes what is in the box, which is empty then, to be sent by [`Sender::flush`]; returns for
    /// how many datagrams, the last ones, there was no room.
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

    /// Puts a datagram into the transmit ring; false if there is no room.
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

    /// Has the kernel send what was taken.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.outgoing.flush()?;
        if self.copies && self.outgoing.is_held() {
            self.insist()?;
        }
        Ok(())
    }

    /// Has what was taken sent, so that there is room again; false if there is none within 5 ms.
    #[cold]
    fn makes_room(&mut self) -> bool {
        let give_up = Instant::now() + HELD;
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

    /// Waits until the device has sent all that it was handed, for `limit` at most; returns how many
    /// datagrams it has not.
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

    /// Whether the device itself reads what is sent, when it comes to it ([`Way::ZeroCopy`]).
    pub fn is_read_by_device(&self) -> bool {
        !self.copies
    }

    /// Takes the frames back whose packets have left.
    fn reap(&mut self) {
        while let Some(address) = self.outgoing.left() {
            self.free.push(address);
        }
    }

    /// A frame that no packet is in.
    #[inline]
    fn free_frame(&mut self) -> Option<u64> {
        if self.free.is_empty() {
            self.reap();
        }
        self.free.pop()
    }

    /// Has a kernel send that had no room.
    #[cold]
    fn insist(&mut self) -> io::Result<()> {
        let give_up = Instant::now() + HELD;
        while self.outgoing.is_held() {
            if Instant::now() > give_up {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.outgoing.flush()?;
        }
        Ok(())
    }
}

/// A datagram that has come past the stack.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// What was sent.
    pub bytes: &'a [u8],
    /// Who sent it.
    pub source: SocketAddr,
    /// To which of our addresses and ports.
    pub destination: SocketAddr,
    /// The Ethernet addresses of a frame back to where it came from.
    pub link: Link,
    /// When the filter saw it, on the monotonic clock.
    pub received: Nanos,
    /// Whether its sender left the checksum to a network card. The kernel does so with every
    /// datagram that it joins others to (`UDP_SEGMENT`).
    pub checksum_left: bool,
}

/// Receives datagrams past the stack.
pub struct Receiver {
    queues: Vec<Incoming>,
    own: Own,
    unreadable: u64,
}

impl Receiver {
    /// What to wait at for each of its queues: there is something to read where there is a packet.
    pub fn sockets(&self) -> impl ExactSizeIterator<Item = impl AsFd + '_> {
        self.queues.iter().map(AsFd::as_fd)
    }

    /// Gives `each` up to `most` datagrams that have come by one of its queues; returns how many
    /// packets there were, be they readable or not.
    ///
    /// # Errors
    /// If the interface is gone.
    ///
    /// # Panics
    /// If there is no such queue.
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

    /// Packets that came for us and found no room, since it was opened.
    ///
    /// # Errors
    /// As getsockopt(2): then it is not known whether there are any.
    pub fn drops(&self) -> io::Result<u64> {
        self.queues.iter().map(Incoming::drops).sum()
    }

    /// Packets that were taken and are no datagrams of others: wrong checksums, lengths that
    /// contradict each other, this host's own addresses as their source.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

/// The datagram in the packet that is the first `length` octets of a frame.
#[inline]
fn arrived<'a>(frame: &'a [u8], length: usize, own: &Own, received: Nanos) -> Option<Arrived<'a>> {
    let packet = frame.get(..length)?;
    let found = frame::read(packet, own)?;
    Some(Arrived {
        bytes: &packet[found.payload],
        source: found.source,
        destination: found.destination,
        link: frame::link_back(packet),
        received,
        checksum_left: found.checksum_left,
    })
}

/// Reads a packet as a [`Receiver`] does; `by_cable`: the interface is a network card's. For fuzzers,
/// which have no interface.
#[doc(hidden)]
pub fn receive_frame(frame: &[u8], length: usize, by_cable: bool) -> Option<Arrived<'_>> {
    let own = Own::default().whose_checksums_may_be_left(!by_cable);
    arrived(frame, length, &own, Nanos(0))
}
