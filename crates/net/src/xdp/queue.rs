//! An AF_XDP socket of one queue, with its rings and the memory of its frames.
//!
//! A [`Queue`] does both: what comes, and what goes, in the same frames. Its halves can part: then
//! [`Incoming`] keeps the frames that packets come in, and [`Outgoing`] sends from frames of its own,
//! each in a thread of its own.

use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Attached;
use super::filter::STAMP;
use super::ring::{Consumer, Mapping, Producer, Which, get_option, set_option};

/// Octets of a frame: the kernel's headroom of 256 octets, and any packet of Ethernet's.
const FRAME: usize = 2048;
/// How many packets the kernel may send in a call (`XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17; 32
/// before).
const SEND_BUDGET: (libc::c_int, u32) = (9, 256);
/// How often a call that sends is repeated while the kernel has no room.
const SEND_TRIES: u32 = 200;
/// How long the last socket of a queue may take to let go of it.
const LETS_GO: Duration = Duration::from_secs(2);
/// The address family, which libc does not have for every target.
const AF_XDP: libc::c_int = 44;

/// How much a queue has room for. Each is a power of two, or zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Frames for packets that come, and for what is sent in them.
    frames: u32,
    /// Of packets that have come so many are kept until somebody looks.
    kept: u32,
    /// Frames for packets that do not answer one that came.
    own: u32,
}

impl Room {
    /// For a server. Of a burst it keeps as many packets as 4 MiB in a socket's buffer do.
    pub(super) const SERVER: Room = Room { frames: Room::FRAMES, kept: 2048, own: 0 };
    /// For who answers what comes, and asks others before.
    pub(super) const BOTH: Room = Room { frames: Room::FRAMES, kept: 2048, own: 4096 };

    /// Packets that all queues of a client keep together: what comes in 16 ms at a million a second.
    const CLIENT_KEEPS: u32 = 16_384;
    /// Frames of a queue at the least: with zero-copy the ring of a network card takes 2048 of them,
    /// on many cards, and as many must be left for what is kept.
    const FRAMES: u32 = 4096;

    /// For one of the `queues` of a client.
    pub(super) fn client(queues: u32) -> Room {
        let kept = (Room::CLIENT_KEEPS / queues.max(1).next_power_of_two()).max(2048);
        Room { frames: kept.max(Room::FRAMES), kept, own: 2048 }
    }

    /// Places of the fill ring, where idle frames wait: more than there are, because the kernel
    /// shows us a packet before it shows that its frame has left the ring.
    fn fill_places(self) -> u32 {
        2 * self.frames
    }

    /// Places of the rings of what is sent.
    fn sending_places(self) -> u32 {
        self.own.max(2048)
    }

    /// Octets of all frames.
    fn octets(self) -> usize {
        (self.frames + self.own) as usize * FRAME
    }

    /// Where the frames of its own are.
    fn own_frames(self) -> impl Iterator<Item = u64> {
        (self.frames..self.frames + self.own).map(|frame| u64::from(frame) * FRAME as u64)
    }
}

/// A packet in the memory of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    address: u64,
    length: u32,
}

/// The socket of one queue. It sends and receives; both by the thread that has it.
pub(super) struct Queue {
    incoming: Incoming,
    outgoing: Outgoing,
    room: Room,
}

/// What comes by a queue.
pub(super) struct Incoming {
    fill: Producer<u64>,
    received: Consumer<libc::xdp_desc>,
    socket: Arc<Socket>,
    /// Whether the device writes into the frames itself.
    zero_copy: bool,
}

/// What goes by a queue.
pub(super) struct Outgoing {
    completion: Consumer<u64>,
    transmit: Producer<libc::xdp_desc>,
    socket: Arc<Socket>,
    /// Whether the device reads the frames itself.
    zero_copy: bool,
    /// How many packets the interface has dropped while the kernel copied and sent them.
    dropped: u64,
}

/// What both halves have in common.
struct Socket {
    descriptor: OwnedFd,
    memory: Mapping,
    /// The filter stays as long as a queue does. After the descriptor, which goes first.
    _attached: Arc<Attached>,
}

impl Packet {
    /// Its length in octets.
    pub(super) fn length(self) -> usize {
        self.length as usize
    }
}

impl Queue {
    /// Makes a socket that of a queue, which is named by the numbers of its interface and its own;
    /// the filter hands it no packet yet.
    ///
    /// # Errors
    /// As setsockopt(2), mmap(2) and bind(2): `EOPNOTSUPP` where the driver has no zero-copy, `EBUSY`
    /// where the queue has a socket, `ENOBUFS` where so much memory may not be locked.
    pub(super) fn open(
        socket: OwnedFd,
        (interface, queue): (u32, u32),
        zero_copy: bool,
        room: Room,
        attached: &Arc<Attached>,
    ) -> io::Result<Queue> {
        let memory = Mapping::anonymous(room.octets())?;
        let registered = libc::xdp_umem_reg {
            addr: memory.start() as u64,
            len: memory.len() as u64,
            chunk_size: FRAME as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set_option(&socket, libc::XDP_UMEM_REG, &registered)?;
        let mut fill = Producer::new(&socket, Which::Fill, room.fill_places())?;
        let completion = Consumer::new(&socket, Which::Completion, room.sending_places())?;
        let received = Consumer::new(&socket, Which::Receive, room.kept)?;
        let transmit = Producer::new(&socket, Which::Transmit, room.sending_places())?;
        // An older kernel sends less in a call.
        let _ = set_option(&socket, SEND_BUDGET.0, &SEND_BUDGET.1);
        for frame in 0..u64::from(room.frames) {
            fill.push(frame * FRAME as u64);
        }
        fill.publish();
        bind_soon(&socket, interface, queue, zero_copy)?;
        let _attached = Arc::clone(attached);
        let socket = Arc::new(Socket { descriptor: socket, memory, _attached });
        Ok(Queue {
            incoming: Incoming { fill, received, socket: Arc::clone(&socket), zero_copy },
            outgoing: Outgoing { completion, transmit, socket, zero_copy, dropped: 0 },
            room,
        })
    }

    /// Its descriptor, as the filter's map takes it.
    pub(super) fn number(&self) -> RawFd {
        self.incoming.socket.descriptor.as_raw_fd()
    }

    /// Its halves, and the frames that the outgoing one has for itself.
    pub(super) fn split(self) -> (Outgoing, Incoming, impl Iterator<Item = u64>) {
        (self.outgoing, self.incoming, self.room.own_frames())
    }

    /// What comes.
    #[inline]
    pub(super) fn incoming(&mut self) -> &mut Incoming {
        &mut self.incoming
    }

    /// Sends the frame of a packet, as it is now and so long, after [`Queue::flush`]; false if there
    /// is no room, and then the frame is free again.
    #[inline]
    pub(super) fn send(&mut self, packet: Packet, length: usize) -> bool {
        let is_taken = self.outgoing.send(packet.address, length);
        if !is_taken {
            self.incoming.release(packet);
        }
        is_taken
    }

    /// Lets the kernel see what was sent and given back, and has it send.
    ///
    /// # Errors
    /// If the interface is gone.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.incoming.publish();
        let result = self.outgoing.flush();
        while let Some(address) = self.outgoing.left() {
            self.incoming.give_back(address);
        }
        self.incoming.publish();
        result
    }

    /// As [`Outgoing::is_held`].
    pub(super) fn is_held(&self) -> bool {
        self.outgoing.is_held()
    }

    /// How many packets the interface has dropped while they were sent, since the queue was opened.
    /// With zero-copy only the device knows.
    pub(super) fn dropped(&self) -> u64 {
        self.outgoing.dropped
    }

    /// As [`Incoming::drops`].
    ///
    /// # Errors
    /// As getsockopt(2): then it is not known whether there are any.
    pub(super) fn drops(&self) -> io::Result<u64> {
        self.incoming.drops()
    }
}

impl Incoming {
    /// A packet that has come, if there is one.
    #[inline]
    pub(super) fn receive(&mut self) -> Option<Packet> {
        let descriptor = self.received.pop()?;
        Some(Packet { address: descriptor.addr, length: descriptor.len })
    }

    /// Whether a packet has come.
    #[inline]
    pub(super) fn has_received(&mut self) -> bool {
        self.received.available() > 0
    }

    /// The frame of a packet from its first octet on, longer than the packet, and the eight octets
    /// before it; `None` if the kernel names a place that is none (it does not).
    #[inline]
    pub(super) fn frame(&mut self, packet: Packet) -> Option<([u8; STAMP], &mut [u8])> {
        let Range { start: begin, end } = stamped(self.socket.memory.len(), packet.address)?;
        // SAFETY: the octets lie in the memory, which is made of whole frames, in one frame, which the kernel has handed to us with
        // the packet and which nobody else looks at before `send` or `release` gives it back;
        // `self` is borrowed exclusively meanwhile.
        let octets = unsafe {
            std::slice::from_raw_parts_mut(self.socket.memory.start().add(begin), end - begin)
        };
        let (stamp, frame) = octets.split_at_mut(STAMP);
        Some((<[u8; STAMP]>::try_from(&*stamp).ok()?, frame))
    }

    /// Gives the frame of a packet back, for another one.
    #[inline]
    pub(super) fn release(&mut self, packet: Packet) {
        self.give_back(packet.address);
    }

    /// Puts the frame that has an address in it into the fill ring.
    #[inline]
    fn give_back(&mut self, address: u64) {
        let is_taken = self.fill.push(address / FRAME as u64 * FRAME as u64);
        debug_assert!(is_taken, "the fill ring has more places than there are frames");
    }

    /// Lets the kernel see what was taken and given back.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.received.release();
        self.fill.publish();
    }

    /// Waits until a packet has come, for `limit` at most; a limit of zero only wakes the kernel,
    /// if it waits for frames.
    ///
    /// # Errors
    /// As poll(2). A signal counts as the end of the time.
    pub(super) fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let millis = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the kernel waits for frames, and wants to be woken.
    pub(super) fn wants_frames(&self) -> bool {
        self.fill.wants_wakeup()
    }

    /// Packets that the filter took and that found no place here, since the socket was opened; with
    /// zero-copy also how often the device found no frame for a packet to come. What the device then
    /// loses is in its interface's counters.
    ///
    /// # Errors
    /// As getsockopt(2): then it is not known whether there are any.
    pub(super) fn drops(&self) -> io::Result<u64> {
        // SAFETY: plain numbers, for which all zeros is a valid value.
        let mut counted: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get_option(&self.socket.descriptor, libc::XDP_STATISTICS, &mut counted)?;
        Ok(lost(&counted, self.zero_copy))
    }
}

/// What of these counters is lost packets. Where the kernel copies, one without a frame is among those
/// that were dropped, and the count of empty fill rings is of the same again. A device that writes
/// itself drops before anybody counts here; it asks for frames ahead, so that an empty fill ring says
/// that packets were lost or nearly so.
fn lost(counted: &libc::xdp_statistics, zero_copy: bool) -> u64 {
    let without_frame = if zero_copy { counted.rx_fill_ring_empty_descs } else { 0 };
    counted.rx_dropped + counted.rx_ring_full + without_frame
}

impl AsFd for Incoming {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.descriptor.as_fd()
    }
}

impl Outgoing {
    /// The frame of its own that is at `address`.
    ///
    /// # Panics
    /// If there is no frame.
    #[inline]
    pub(super) fn frame(&mut self, address: u64) -> &mut [u8] {
        let Range { start, end } =
            place(self.socket.memory.len(), address).expect("an address of a frame");
        // SAFETY: the octets are one frame of the memory, one of those that only this half has and
        // hands to the kernel; who asks for it has it from `Queue::split` or `left`, so that the
        // kernel does not read it now, and `self` is borrowed exclusively meanwhile.
        unsafe {
            std::slice::from_raw_parts_mut(self.socket.memory.start().add(start), end - start)
        }
    }

    /// Sends the frame at `address`, as it is now and so long, after [`Outgoing::flush`]; false if
    /// there is no room.
    #[inline]
    pub(super) fn send(&mut self, address: u64, length: usize) -> bool {
        self.transmit.push(libc::xdp_desc { addr: address, len: length as u32, options: 0 })
    }

    /// Lets the kernel see what was sent, and has it send.
    ///
    /// # Errors
    /// If the interface is gone.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.transmit.publish();
        for _ in 0..SEND_TRIES {
            if !self.is_held() {
                break;
            }
            self.wake()?;
        }
        Ok(())
    }

    /// Whether the kernel has not taken all that it was to send, and goes on only if it is told.
    pub(super) fn is_held(&self) -> bool {
        self.transmit.is_pending() && self.transmit.wants_wakeup()
    }

    /// The address of a frame that has left, as it was sent; none if no further one has.
    #[inline]
    pub(super) fn left(&mut self) -> Option<u64> {
        let address = self.completion.pop();
        if address.is_none() {
            self.completion.release();
        }
        address
    }

    /// Has the kernel send what is in the transmit ring, or a part of it.
    fn wake(&mut self) -> io::Result<()> {
        // SAFETY: no data and no address: the call only makes the kernel look at the ring.
        let sent = unsafe {
            libc::sendto(
                self.socket.descriptor.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Where the kernel copies, the interface has dropped one packet, and goes on with the next:
            // it has no link, or is a veth whose other end has no room. The interface counts it, too.
            Some(libc::EBUSY) => {
                self.dropped += u64::from(!self.zero_copy);
                Ok(())
            }
            // There is more than it sends in one call, or the device has no room at the moment.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }
}

/// From an address to the end of its frame, in a memory of `length` octets, which are whole frames;
/// `None` if it is not there.
#[inline]
fn place(length: usize, address: u64) -> Option<Range<usize>> {
    let address = usize::try_from(address).ok().filter(|at| *at < length)?;
    Some(address..(address / FRAME + 1) * FRAME)
}

/// The same with the octets before it in which the filter writes the moment of receipt; `None` also if
/// the frame does not have them. For fuzzers, which have no kernel.
#[doc(hidden)]
#[inline]
pub fn stamped(length: usize, address: u64) -> Option<Range<usize>> {
    let Range { start, end } = place(length, address)?;
    let begin = start.checked_sub(STAMP).filter(|begin| begin / FRAME == start / FRAME)?;
    Some(begin..end)
}

/// A socket of no queue yet.
///
/// # Errors
/// As socket(2): `EAFNOSUPPORT` where the kernel has none of this family.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; what it returns is checked.
    let number = unsafe { libc::socket(AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this call, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Binds a socket to a queue; one that was closed lets go of it a moment later (RCU, then a work
/// queue).
fn bind_soon(socket: &OwnedFd, interface: u32, queue: u32, zero_copy: bool) -> io::Result<()> {
    let give_up = Instant::now() + LETS_GO;
    loop {
        match bind(socket, interface, queue, zero_copy) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(5));
            }
            bound => return bound,
        }
    }
}

fn bind(socket: &OwnedFd, interface: u32, queue: u32, zero_copy: bool) -> io::Result<()> {
    let copying = if zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
    let address = libc::sockaddr_xdp {
        sxdp_family: AF_XDP as u16,
        sxdp_flags: copying | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: pointer and length are those of `address`, which the kernel only reads.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor is the kernel's word, and not taken for granted.
    #[test]
    fn only_addresses_in_the_memory_are_places() {
        let memory = 3 * FRAME;
        assert_eq!(stamped(memory, 256), Some(248..FRAME));
        assert_eq!(stamped(memory, 8), Some(0..FRAME));
        assert_eq!(stamped(memory, memory as u64 - 1), Some(memory - 9..memory));
        // No room for the moment of receipt in the same frame, or not in the memory.
        for address in [0, 7, FRAME as u64, FRAME as u64 + 7, memory as u64, u64::MAX, 1 << 32] {
            assert_eq!(stamped(memory, address), None, "{address}");
        }
        assert_eq!(place(memory, FRAME as u64), Some(FRAME..2 * FRAME));
    }

    #[test]
    fn a_card_with_a_ring_of_2048_leaves_frames_for_what_is_kept() {
        let rooms = [1, 2, 3, 8, 64].map(Room::client);
        for room in rooms.into_iter().chain([Room::SERVER, Room::BOTH]) {
            assert!(room.frames >= 2048 + room.kept.min(2048), "{room:?}");
        }
    }

    #[test]
    fn a_device_that_finds_no_frame_has_lost_packets() {
        let counted = libc::xdp_statistics {
            rx_dropped: 1,
            rx_invalid_descs: 20,
            tx_invalid_descs: 40,
            rx_ring_full: 2,
            rx_fill_ring_empty_descs: 4,
            tx_ring_empty_descs: 80,
        };
        assert_eq!((lost(&counted, false), lost(&counted, true)), (3, 7));
    }
}
