//! The four rings of an AF_XDP socket, and the memory for its frames (buffers for packets). The kernel has access to
//! all of this memory (Documentation/networking/af_xdp.rst in its source).
//!
//! ```text
//!            fill ring                receive ring
//! we ──── empty frames ───► kernel ──── packets ───► we
//!            transmit ring            completion ring
//! we ──── packets ────────► kernel ── sent frames ─► we
//! ```
//!
//! A ring has one producer and one consumer. The producer and the consumer each write their own index and read the
//! index of the other. Data that was written before an index is published (release) is visible after the index has been
//! read (acquire).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// A memory mapping, which is removed when the value is dropped.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and is not bound to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping only gives out its address and length; code that accesses the memory must exclude other
// accesses.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps anonymous memory that is filled with zeros and already resident.
    ///
    /// # Errors
    /// Returns any error from mmap(2).
    pub(super) fn anonymous(len: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Mapping::new(len, flags, -1, 0)
    }

    /// Maps `len` octets of memory that are shared with the kernel and belong to a descriptor.
    ///
    /// # Errors
    /// Returns any error from mmap(2).
    pub(super) fn shared(of: &impl AsFd, len: usize) -> io::Result<Mapping> {
        Mapping::of(of, len, 0)
    }

    fn of(socket: &impl AsFd, len: usize, offset: libc::off_t) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Mapping::new(len, flags, socket.as_fd().as_raw_fd(), offset)
    }

    fn new(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel touches no memory in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len })
    }

    /// Returns a pointer to the start of the memory mapping.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the length of the memory mapping in octets.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping, which is no longer used: pointers into it live no longer
        // than this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The four rings of an AF_XDP socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum RingKind {
    Fill,
    Completion,
    Receive,
    Transmit,
}

impl RingKind {
    /// Returns the setsockopt(2) option that creates the ring, and the mmap(2) offset of the ring.
    fn numbers(self) -> (libc::c_int, libc::off_t) {
        match self {
            RingKind::Fill => {
                (libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t)
            }
            RingKind::Completion => (
                libc::XDP_UMEM_COMPLETION_RING,
                libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
            ),
            RingKind::Receive => (libc::XDP_RX_RING, libc::XDP_PGOFF_RX_RING),
            RingKind::Transmit => (libc::XDP_TX_RING, libc::XDP_PGOFF_TX_RING),
        }
    }

    fn offsets(self, all: &libc::xdp_mmap_offsets) -> libc::xdp_ring_offset {
        match self {
            RingKind::Fill => all.fr,
            RingKind::Completion => all.cr,
            RingKind::Receive => all.rx,
            RingKind::Transmit => all.tx,
        }
    }
}

/// State that the producer and the consumer of a ring have in common: the memory of the ring, and the offsets of its
/// entries and indices.
struct Ring<T> {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: as for `Mapping`: `entries` points into the ring's own mapping.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Creates a ring with `size` entries for an AF_XDP socket. `size` must be a power of two.
    fn new(socket: &impl AsFd, which: RingKind, size: u32) -> io::Result<Ring<T>> {
        debug_assert!(size.is_power_of_two());
        let (option, at) = which.numbers();
        set_option(socket, option, &size)?;
        // SAFETY: plain numbers, for which all zeros is a valid value.
        let mut all: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        get_option(socket, libc::XDP_MMAP_OFFSETS, &mut all)?;
        let offsets = which.offsets(&all);
        let [producer, consumer, flags, desc] =
            [offsets.producer, offsets.consumer, offsets.flags, offsets.desc].map(|at| at as usize);
        let len = desc + size as usize * size_of::<T>();
        let memory = Mapping::of(socket, len, at)?;
        // SAFETY: the kernel reports that the entries begin `desc` octets into the mapping, which is long enough for
        // that and all entries. A mapping begins at a page, so the entries are aligned.
        let entries = unsafe { NonNull::new_unchecked(memory.start().add(desc).cast::<T>()) };
        Ok(Ring { memory, producer, consumer, flags, entries, mask: size - 1 })
    }

    fn index(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= self.memory.len());
        // SAFETY: the kernel reports that an index, or the flags, is at this offset in the mapping, which lives as long
        // as `self`; all accesses are atomic.
        unsafe { &*self.memory.start().add(at).cast::<AtomicU32>() }
    }

    /// Returns the entry with the index `n` modulo the ring's size. Indices increase continuously and wrap.
    fn entry(&self, n: u32) -> *mut T {
        // SAFETY: the mask keeps the index within the entries.
        unsafe { self.entries.as_ptr().add((n & self.mask) as usize) }
    }
}

/// The end of a ring at which this process adds entries.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Index of the next entry to write.
    next: u32,
    /// The consumer's index, as it was last read.
    taken: u32,
}

impl<T: Copy> Producer<T> {
    /// Creates a ring to which this process adds entries.
    ///
    /// # Errors
    /// Returns any error from setsockopt(2) or mmap(2).
    pub(super) fn new(socket: &impl AsFd, which: RingKind, size: u32) -> io::Result<Producer<T>> {
        Ok(Producer { ring: Ring::new(socket, which, size)?, next: 0, taken: 0 })
    }

    /// Adds an entry to the ring. The kernel sees the entry after the next call of [`Producer::publish`]. Returns false
    /// if the ring is full.
    #[inline]
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.taken) > self.ring.mask {
            self.taken = self.ring.index(self.ring.consumer).load(Ordering::Acquire);
            if self.next.wrapping_sub(self.taken) > self.ring.mask {
                return false;
            }
        }
        // SAFETY: the consumer has taken the previous entry, and reads the new one only after `publish`.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// True if the kernel has not consumed all entries yet.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.ring.index(self.ring.consumer).load(Ordering::Acquire) != self.next
    }

    /// Makes added entries visible to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.index(self.ring.producer).store(self.next, Ordering::Release);
    }

    /// True if the kernel reads new entries only after a system call.
    #[inline]
    pub(super) fn wants_wakeup(&self) -> bool {
        // Publishing must be visible before this read, or both sides could wait for each other.
        fence(Ordering::SeqCst);
        self.ring.index(self.ring.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The end of a ring at which this process removes entries.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Index of the next entry to read.
    next: u32,
    /// The producer's index, as it was last read.
    filled: u32,
}

impl<T: Copy> Consumer<T> {
    /// Creates a ring that the kernel fills.
    ///
    /// # Errors
    /// Returns any error from setsockopt(2) or mmap(2).
    pub(super) fn new(socket: &impl AsFd, which: RingKind, size: u32) -> io::Result<Consumer<T>> {
        Ok(Consumer { ring: Ring::new(socket, which, size)?, next: 0, filled: 0 })
    }

    /// Returns the number of entries that can be read.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        if self.filled == self.next {
            self.filled = self.ring.index(self.ring.producer).load(Ordering::Acquire);
        }
        self.filled.wrapping_sub(self.next)
    }

    /// Removes and returns the next entry. The kernel may overwrite the entry after the next call of
    /// [`Consumer::release`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        (self.available() > 0).then(|| {
            // SAFETY: the producer has written the entry, as its index shows, and does not overwrite it before
            // `release`.
            let entry = unsafe { self.ring.entry(self.next).read() };
            self.next = self.next.wrapping_add(1);
            entry
        })
    }

    /// Returns consumed entries to the kernel for reuse.
    #[inline]
    pub(super) fn release(&mut self) {
        self.ring.index(self.ring.consumer).store(self.next, Ordering::Release);
    }
}

/// Types that consist only of integers, so that each bit pattern is a valid value.
///
/// # Safety
/// The type must have no padding, and each bit pattern must be a valid value.
pub(super) unsafe trait Numbers: Copy {}

// SAFETY: integers, and structures of integers of one size, or of sizes that leave no gaps.
unsafe impl Numbers for u32 {}
// SAFETY: as above: u64 only.
unsafe impl Numbers for libc::xdp_mmap_offsets {}
// SAFETY: as above: u64 only.
unsafe impl Numbers for libc::xdp_statistics {}
// SAFETY: as above: two u64, then four u32.
unsafe impl Numbers for libc::xdp_umem_reg {}

/// Sets an option of an AF_XDP socket.
///
/// # Errors
/// Returns any error from setsockopt(2).
pub(super) fn set_option<T: Numbers>(
    socket: &impl AsFd,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: pointer and length are those of `value`, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option of an AF_XDP socket.
///
/// # Errors
/// Returns any error from getsockopt(2), or `InvalidData` if the kernel's value is shorter than `value`.
pub(super) fn get_option<T: Numbers>(
    socket: &impl AsFd,
    option: libc::c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` octets to `value`, which is that long and consists of integers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_mut(value).cast(),
            &raw mut len,
        )
    };
    match result {
        0 if len as usize == size_of::<T>() => Ok(()),
        0 => Err(io::Error::from(io::ErrorKind::InvalidData)),
        _ => Err(io::Error::last_os_error()),
    }
}
