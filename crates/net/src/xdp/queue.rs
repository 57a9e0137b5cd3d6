//! An AF_XDP socket of one queue, with its rings and the memory of its frames.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Attached;
use super::filter::STAMP;
use super::ring::{Consumer, Mapping, Producer, Which, get_option, set_option};

/// Octets of a frame: the kernel's headroom of 256 octets, and any packet of Ethernet's.
const FRAME: usize = 2048;
/// How many frames there are.
const FRAMES: u32 = 4096;
/// Places of the fill ring, where idle frames wait: more than there are, because the kernel shows
/// us a packet before it shows that its frame has left the ring.
const FILL_PLACES: u32 = 2 * FRAMES;
/// Places of the other rings. Of a burst so many packets are kept, as of 4 MiB in a socket's buffer.
const PLACES: u32 = 2048;
/// How many packets the kernel may send in a call (`XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17; 32
/// before).
const SEND_BUDGET: (libc::c_int, u32) = (9, 256);
/// How often a call that sends is repeated while the kernel has no room.
const SEND_TRIES: u32 = 200;
/// How long the last socket of a queue may take to let go of it.
const LETS_GO: Duration = Duration::from_secs(2);
/// The address family, which libc does not have for every target.
const AF_XDP: libc::c_int = 44;

/// A packet in the memory of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    address: u64,
    length: u32,
}

/// The socket of one queue. It sends and receives; both by the thread that has it.
pub(super) struct Queue {
    socket: OwnedFd,
    memory: Mapping,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    received: Consumer<libc::xdp_desc>,
    transmit: Producer<libc::xdp_desc>,
    /// The filter stays as long as a queue does. After the socket, which goes first.
    _attached: Arc<Attached>,
}

impl Packet {
    /// Its length in octets.
    pub(super) fn length(self) -> usize {
        self.length as usize
    }
}

impl Queue {
    /// Opens the socket of a queue; the filter hands it no packet yet.
    ///
    /// # Errors
    /// As socket(2), setsockopt(2), mmap(2) and bind(2): `EOPNOTSUPP` where the driver has no
    /// zero-copy, `EBUSY` where the queue has a socket.
    pub(super) fn open(
        interface: u32,
        queue: u32,
        zero_copy: bool,
        attached: &Arc<Attached>,
    ) -> io::Result<Queue> {
        // SAFETY: no pointers; what it returns is checked.
        let number = unsafe { libc::socket(AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened it for this call, and nobody else knows of it.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        let memory = Mapping::anonymous(FRAMES as usize * FRAME)?;
        let registered = libc::xdp_umem_reg {
            addr: memory.start() as u64,
            len: memory.len() as u64,
            chunk_size: FRAME as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set_option(&socket, libc::XDP_UMEM_REG, &registered)?;
        let mut fill = Producer::new(&socket, Which::Fill, FILL_PLACES)?;
        let completion = Consumer::new(&socket, Which::Completion, PLACES)?;
        let received = Consumer::new(&socket, Which::Receive, PLACES)?;
        let transmit = Producer::new(&socket, Which::Transmit, PLACES)?;
        // An older kernel sends less in a call.
        let _ = set_option(&socket, SEND_BUDGET.0, &SEND_BUDGET.1);
        for frame in 0..u64::from(FRAMES) {
            fill.push(frame * FRAME as u64);
        }
        fill.publish();
        bind_soon(&socket, interface, queue, zero_copy)?;
        let _attached = Arc::clone(attached);
        Ok(Queue { socket, memory, fill, completion, received, transmit, _attached })
    }

    /// Its descriptor, as the filter's map takes it.
    pub(super) fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

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
        let address = usize::try_from(packet.address).ok().filter(|at| *at < self.memory.len())?;
        let end = (address / FRAME + 1) * FRAME;
        let begin = address.checked_sub(STAMP).filter(|begin| begin / FRAME == address / FRAME)?;
        // SAFETY: the octets lie in the memory, which is made of whole frames, in one frame, which the kernel has handed to us with
        // the packet and which nobody else looks at before `send` or `release` gives it back;
        // `self` is borrowed exclusively meanwhile.
        let octets =
            unsafe { std::slice::from_raw_parts_mut(self.memory.start().add(begin), end - begin) };
        let (stamp, frame) = octets.split_at_mut(STAMP);
        Some((<[u8; STAMP]>::try_from(&*stamp).ok()?, frame))
    }

    /// Sends the frame of a packet, as it is now and so long, after [`Queue::flush`]; false if there
    /// is no room, and then the frame is free again.
    #[inline]
    pub(super) fn send(&mut self, packet: Packet, length: usize) -> bool {
        let descriptor = libc::xdp_desc { addr: packet.address, len: length as u32, options: 0 };
        let is_taken = self.transmit.push(descriptor);
        if !is_taken {
            self.release(packet);
        }
        is_taken
    }

    /// Gives the frame of a packet back, for another one.
    #[inline]
    pub(super) fn release(&mut self, packet: Packet) {
        self.give_back(packet.address);
    }

    /// Lets the kernel see what was sent and given back, and has it send.
    ///
    /// # Errors
    /// If the interface is gone.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.received.release();
        self.fill.publish();
        self.transmit.publish();
        let mut result = Ok(());
        for _ in 0..SEND_TRIES {
            if !self.transmit.is_pending() || !self.transmit.wants_wakeup() {
                break;
            }
            result = self.wake();
            if result.is_err() {
                break;
            }
        }
        self.collect();
        result
    }

    /// Frees the frames that have left.
    fn collect(&mut self) {
        while let Some(address) = self.completion.pop() {
            self.give_back(address);
        }
        self.completion.release();
        self.fill.publish();
    }

    /// Puts the frame that has an address in it into the fill ring.
    #[inline]
    fn give_back(&mut self, address: u64) {
        let is_taken = self.fill.push(address / FRAME as u64 * FRAME as u64);
        debug_assert!(is_taken, "the fill ring has more places than there are frames");
    }

    /// Has the kernel send what is in the transmit ring, or a part of it.
    fn wake(&self) -> io::Result<()> {
        // SAFETY: no data and no address: the call only makes the kernel look at the ring.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
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
            // There is more than it sends in one call, or the device has no room at the moment. A
            // veth whose other end has none says so as well, and has dropped the packet.
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }

    /// Waits until a packet has come, for `limit` at most; a limit of zero only wakes the kernel,
    /// if it waits for frames.
    ///
    /// # Errors
    /// As poll(2). A signal counts as the end of the time.
    pub(super) fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let millis = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the kernel waits for frames, and wants to be woken.
    pub(super) fn wants_frames(&self) -> bool {
        self.fill.wants_wakeup()
    }

    /// Packets that the filter took and that found no place here, since the socket was opened. What a
    /// device loses that writes here itself is in its own statistics.
    pub(super) fn drops(&self) -> u64 {
        // SAFETY: plain numbers, for which all zeros is a valid value.
        let mut counted: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        let read = get_option(&self.socket, libc::XDP_STATISTICS, &mut counted);
        // Packets without a frame are among the dropped ones; the other count of them is of attempts.
        read.map_or(0, |()| counted.rx_dropped + counted.rx_ring_full)
    }
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
