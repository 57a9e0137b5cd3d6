//! The AF_XDP socket of one queue, with its rings and its frames: buffers for packets, in memory shared with the
//! kernel.
//!
//! A [`Queue`] sends replies in the frames in which it received their queries. For use by two threads, a queue can be
//! split into halves. [`Incoming`] then uses the frames for received packets, and [`Outgoing`] sends from separate
//! frames.

use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::bpf::Attached;
use super::filter::STAMP;
use super::ring::{Consumer, Mapping, Producer, RingKind, get_option, set_option};

/// Size of a frame in octets. A frame is a buffer for one packet, in memory shared with the kernel. It has space for
/// the kernel's headroom of 256 octets and an Ethernet packet of the usual MTU.
const FRAME: usize = 2048;
/// Socket option and value for the maximum number of packets that the kernel sends per call (`XDP_MAX_TX_SKB_BUDGET`,
/// since Linux 6.17). Earlier kernels send at most 32.
const SEND_BUDGET: (libc::c_int, u32) = (9, 256);
/// Maximum number of send calls for the packets in the transmit ring, if the kernel does not accept all of them at
/// once.
const SEND_TRIES: u32 = 200;
/// Maximum time to wait until the previous socket of a queue has released the queue.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Address family AF_XDP, which libc does not define for every platform.
const AF_XDP: libc::c_int = 44;

/// Capacity of a queue: how many frames and ring entries it has. Each number is a power of two, or zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    /// Number of frames that are used for received packets and for the replies to them.
    frames: u32,
    /// Maximum number of received packets that wait to be read.
    kept: u32,
    /// Number of frames that are used only for sending. Replies do not use them.
    own: u32,
}

impl Capacity {
    /// Capacity of a queue for a server that sends only replies. The queue can store as many packets of a burst as a
    /// socket buffer of 4 MiB.
    pub(super) const SERVER: Capacity = Capacity { frames: Capacity::FRAMES, kept: 2048, own: 0 };
    /// Capacity of a queue for a server that sends queries as well as replies.
    pub(super) const BOTH: Capacity = Capacity { frames: Capacity::FRAMES, kept: 2048, own: 4096 };

    /// Maximum number of received packets that wait to be read, over all queues of a client. It corresponds to 16 ms of
    /// traffic at one million packets per second.
    const CLIENT_KEEPS: u32 = 16_384;
    /// Minimum number of frames of a queue for received packets. In zero-copy mode, many network cards put 2048 frames
    /// into their own ring. A further 2048 frames are needed for packets that wait to be read.
    const FRAMES: u32 = 4096;

    /// Returns the capacity of one queue of a client that has `queues` queues.
    pub(super) fn client(queues: u32) -> Capacity {
        let kept = (Capacity::CLIENT_KEEPS / queues.max(1).next_power_of_two()).max(2048);
        Capacity { frames: kept.max(Capacity::FRAMES), kept, own: 2048 }
    }

    /// Returns the size of the fill ring, which contains the frames that the kernel may use for new packets. The ring
    /// has more entries than there are frames. The reason is a delay: the kernel delivers a packet before it marks the
    /// ring entry of the packet's frame as consumed.
    fn fill_places(self) -> u32 {
        2 * self.frames
    }

    /// Returns the size of the transmit ring, which is also the size of the completion ring, in entries.
    fn sending_places(self) -> u32 {
        self.own.max(2048)
    }

    /// Returns the total length of all frames in octets.
    fn octets(self) -> usize {
        (self.frames + self.own) as usize * FRAME
    }

    /// Returns the addresses of the frames that are used only for sending.
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

/// The AF_XDP socket of one queue of an interface. One thread sends and receives on the socket.
pub(super) struct Queue {
    incoming: Incoming,
    outgoing: Outgoing,
    room: Capacity,
}

/// Receiving half of the AF_XDP socket of a queue.
pub(super) struct Incoming {
    fill: Producer<u64>,
    received: Consumer<libc::xdp_desc>,
    socket: Arc<Socket>,
    /// True if the device writes received packets directly into the shared memory.
    zero_copy: bool,
}

/// Sending half of the AF_XDP socket of a queue.
pub(super) struct Outgoing {
    completion: Consumer<u64>,
    transmit: Producer<libc::xdp_desc>,
    socket: Arc<Socket>,
    /// True if the device reads sent packets directly from the shared memory.
    zero_copy: bool,
    /// Number of packets that the interface dropped when the kernel sent them; always 0 in zero-copy mode.
    dropped: u64,
}

/// State shared by the receiving half and the sending half of a queue.
struct Socket {
    descriptor: OwnedFd,
    memory: Mapping,
    /// Keeps the filter attached as long as a queue exists. This field is declared after `descriptor`, so that the
    /// socket is closed before the filter is detached.
    _attached: Arc<Attached>,
}

impl Packet {
    /// Returns the length of the packet in octets.
    pub(super) fn length(self) -> usize {
        self.length as usize
    }
}

impl Queue {
    /// Binds a socket to the queue with the number `queue` of the interface with the index `interface`. The filter does
    /// not redirect packets to this socket yet.
    ///
    /// # Errors
    /// Returns any error from setsockopt(2), mmap(2) or bind(2): `EOPNOTSUPP` if the driver does not support zero-copy,
    /// `EBUSY` if the queue has a socket, `ENOBUFS` if the limit of locked memory is too low.
    pub(super) fn open(
        socket: OwnedFd,
        (interface, queue): (u32, u32),
        zero_copy: bool,
        room: Capacity,
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
        let mut fill = Producer::new(&socket, RingKind::Fill, room.fill_places())?;
        let completion = Consumer::new(&socket, RingKind::Completion, room.sending_places())?;
        let received = Consumer::new(&socket, RingKind::Receive, room.kept)?;
        let transmit = Producer::new(&socket, RingKind::Transmit, room.sending_places())?;
        // An older kernel sends fewer packets per call.
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

    /// Returns the descriptor of the queue's socket. The descriptor is inserted into the filter's map.
    pub(super) fn number(&self) -> RawFd {
        self.incoming.socket.descriptor.as_raw_fd()
    }

    /// Splits the queue into its sending half and its receiving half. Also returns the addresses of the frames that
    /// only the sending half uses.
    pub(super) fn split(self) -> (Outgoing, Incoming, impl Iterator<Item = u64>) {
        (self.outgoing, self.incoming, self.room.own_frames())
    }

    /// Returns the receiving half of this queue.
    #[inline]
    pub(super) fn incoming(&mut self) -> &mut Incoming {
        &mut self.incoming
    }

    /// Queues the first `length` octets in the frame of `packet` for sending by [`Queue::flush`]. If the transmit ring
    /// is full, returns false and releases the frame.
    #[inline]
    pub(super) fn send(&mut self, packet: Packet, length: usize) -> bool {
        let is_taken = self.outgoing.send(packet.address, length);
        if !is_taken {
            self.incoming.release(packet);
        }
        is_taken
    }

    /// Makes the kernel send the queued frames, and passes the released frames to the kernel for new packets.
    ///
    /// # Errors
    /// Returns an error if the interface is gone.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.incoming.publish();
        let result = self.outgoing.flush();
        while let Some(address) = self.outgoing.left() {
            self.incoming.give_back(address);
        }
        self.incoming.publish();
        result
    }

    /// True if the kernel has not sent all queued packets yet (see [`Outgoing::is_held`]).
    pub(super) fn is_held(&self) -> bool {
        self.outgoing.is_held()
    }

    /// Returns the number of packets that the interface dropped while sending, since the queue was opened. In zero-copy
    /// mode, only the device counts such packets, so the result is 0.
    pub(super) fn dropped(&self) -> u64 {
        self.outgoing.dropped
    }

    /// Returns the number of received packets that were dropped because no frame or ring entry of the queue was free
    /// (see [`Incoming::drops`]).
    ///
    /// # Errors
    /// Returns any error from getsockopt(2). The number of drops is then unknown.
    pub(super) fn drops(&self) -> io::Result<u64> {
        self.incoming.drops()
    }
}

impl Incoming {
    /// Returns the next received packet, if there is one.
    #[inline]
    pub(super) fn receive(&mut self) -> Option<Packet> {
        let descriptor = self.received.pop()?;
        Some(Packet { address: descriptor.addr, length: descriptor.len })
    }

    /// True if a packet has been received.
    #[inline]
    pub(super) fn has_received(&mut self) -> bool {
        self.received.available() > 0
    }

    /// Returns the eight octets before a packet, and the octets from the packet's start to the end of its frame.
    /// Returns `None` if the kernel gave an invalid address, which is not expected.
    #[inline]
    pub(super) fn frame(&mut self, packet: Packet) -> Option<([u8; STAMP], &mut [u8])> {
        let Range { start: begin, end } = stamped(self.socket.memory.len(), packet.address)?;
        // SAFETY: the memory consists of whole frames, and the octets lie in one of them. The kernel has handed that
        // frame to us with the packet, and nothing else accesses it before `send` or `release` gives it back. `self` is
        // borrowed exclusively while the slice exists.
        let octets = unsafe {
            std::slice::from_raw_parts_mut(self.socket.memory.start().add(begin), end - begin)
        };
        let (stamp, frame) = octets.split_at_mut(STAMP);
        Some((<[u8; STAMP]>::try_from(&*stamp).ok()?, frame))
    }

    /// Releases the frame of a packet for reuse.
    #[inline]
    pub(super) fn release(&mut self, packet: Packet) {
        self.give_back(packet.address);
    }

    /// Finds the frame that contains `address`, and puts this frame into the fill ring.
    #[inline]
    fn give_back(&mut self, address: u64) {
        let is_taken = self.fill.push(address / FRAME as u64 * FRAME as u64);
        debug_assert!(is_taken, "the fill ring has more places than there are frames");
    }

    /// Makes the latest ring indices visible to the kernel. From them, the kernel detects which packets have been read
    /// and which frames are free for new packets.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.received.release();
        self.fill.publish();
    }

    /// Waits up to `limit` for a packet. If the kernel waits for free frames, this call also makes it continue. With a
    /// limit of zero, the call has only this second effect.
    ///
    /// # Errors
    /// Returns any error from poll(2). A signal ends the wait without an error.
    pub(super) fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let millis = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// True if the kernel waits for free frames, and continues only after a system call such as [`Incoming::wait`].
    pub(super) fn wants_frames(&self) -> bool {
        self.fill.wants_wakeup()
    }

    /// Returns the number of received packets that were dropped since the socket was opened, because no frame or ring
    /// entry of the queue was free. In zero-copy mode, the result includes the number of times at which the device
    /// found no free frame. This number may differ from the number of packets that the device lost. Only a counter of
    /// the interface shows the exact number of lost packets.
    ///
    /// # Errors
    /// Returns any error from getsockopt(2). The number of drops is then unknown.
    pub(super) fn drops(&self) -> io::Result<u64> {
        // SAFETY: plain numbers, for which all zeros is a valid value.
        let mut counted: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get_option(&self.socket.descriptor, libc::XDP_STATISTICS, &mut counted)?;
        Ok(lost(&counted, self.zero_copy))
    }
}

/// Returns the number of lost packets, computed from the statistics of a socket. In copy modes, the kernel counts each
/// packet without a free frame as dropped. Adding the count of empty fill rings would then count that packet twice. In
/// zero-copy mode, the device drops packets before the kernel can count them, so empty fill rings are counted instead.
/// The device requests frames ahead of time, so an empty fill ring does not always mean a lost packet.
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
    /// Returns the contents of the frame at `address`, which is used for sending.
    ///
    /// # Panics
    /// Panics if there is no frame at `address`.
    #[inline]
    pub(super) fn frame(&mut self, address: u64) -> &mut [u8] {
        let Range { start, end } =
            place(self.socket.memory.len(), address).expect("an address of a frame");
        // SAFETY: the octets are one frame of the memory, which only this half uses and hands to the kernel. The caller
        // has its address from `Queue::split` or `left`, so the kernel does not read it now. `self` is borrowed
        // exclusively while the slice exists.
        unsafe {
            std::slice::from_raw_parts_mut(self.socket.memory.start().add(start), end - start)
        }
    }

    /// Queues `length` octets of a frame, beginning at `address`, for sending by [`Outgoing::flush`]. Returns false if
    /// the transmit ring is full.
    #[inline]
    pub(super) fn send(&mut self, address: u64, length: usize) -> bool {
        self.transmit.push(libc::xdp_desc { addr: address, len: length as u32, options: 0 })
    }

    /// Makes the kernel send the queued frames.
    ///
    /// # Errors
    /// Returns an error if the interface is gone.
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

    /// True if queued packets are still in the transmit ring, and the kernel continues only after a further send call.
    pub(super) fn is_held(&self) -> bool {
        self.transmit.is_pending() && self.transmit.wants_wakeup()
    }

    /// Returns the address of the next frame that has been sent; `None` if there is none.
    #[inline]
    pub(super) fn left(&mut self) -> Option<u64> {
        let address = self.completion.pop();
        if address.is_none() {
            self.completion.release();
        }
        address
    }

    /// Makes the kernel send all or part of the transmit ring.
    fn wake(&mut self) -> io::Result<()> {
        // SAFETY: no data and no address: the call only makes the kernel process the ring.
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
            // In copy modes, the interface has dropped and counted one packet, and the next call continues with the
            // next packet. The interface has no link, or is a veth whose peer has a full queue.
            Some(libc::EBUSY) => {
                self.dropped += u64::from(!self.zero_copy);
                Ok(())
            }
            // The ring has more packets than the kernel sends in one call, or the device's queue is full at the moment.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }
}

/// Returns the range of octets from `address` to the end of the frame that contains it. The shared memory of `length`
/// octets consists of whole frames. Returns `None` if the address is outside the memory.
#[inline]
fn place(length: usize, address: u64) -> Option<Range<usize>> {
    let address = usize::try_from(address).ok().filter(|at| *at < length)?;
    Some(address..(address / FRAME + 1) * FRAME)
}

/// Returns a range of octets in the shared memory of `length` octets. The range begins with the receive time in front
/// of the packet at `address`, and ends with the packet's frame. Returns `None` if the address is outside the memory,
/// or if the receive time would lie in a different frame. The function is public for fuzzers, which run without a
/// kernel.
#[doc(hidden)]
#[inline]
pub fn stamped(length: usize, address: u64) -> Option<Range<usize>> {
    let Range { start, end } = place(length, address)?;
    let begin = start.checked_sub(STAMP).filter(|begin| begin / FRAME == start / FRAME)?;
    Some(begin..end)
}

/// Opens an unbound AF_XDP socket.
///
/// # Errors
/// Returns any error from socket(2). The error is `EAFNOSUPPORT` if the kernel does not support AF_XDP.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the return value is checked.
    let number = unsafe { libc::socket(AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us; there is no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Binds a socket to a queue. Retries while the queue is busy, because the kernel releases the queue of a closed socket
/// with a delay (RCU, then a work queue).
fn bind_soon(socket: &OwnedFd, interface: u32, queue: u32, zero_copy: bool) -> io::Result<()> {
    let give_up = Instant::now() + RELEASE_TIMEOUT;
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

    /// Addresses in descriptors are checked, although they come from the kernel.
    #[test]
    fn only_addresses_in_the_memory_are_valid() {
        let memory = 3 * FRAME;
        assert_eq!(stamped(memory, 256), Some(248..FRAME));
        assert_eq!(stamped(memory, 8), Some(0..FRAME));
        assert_eq!(stamped(memory, memory as u64 - 1), Some(memory - 9..memory));
        // The receive time does not fit into the same frame, or lies outside the memory.
        for address in [0, 7, FRAME as u64, FRAME as u64 + 7, memory as u64, u64::MAX, 1 << 32] {
            assert_eq!(stamped(memory, address), None, "{address}");
        }
        assert_eq!(place(memory, FRAME as u64), Some(FRAME..2 * FRAME));
    }

    #[test]
    fn a_ring_of_2048_leaves_frames_for_kept_packets() {
        let rooms = [1, 2, 3, 8, 64].map(Capacity::client);
        for room in rooms.into_iter().chain([Capacity::SERVER, Capacity::BOTH]) {
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
