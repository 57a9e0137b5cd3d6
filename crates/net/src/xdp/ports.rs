//! A set of ports that can change while a BPF filter reads it. Each port is one bit in the memory of a BPF map, which
//! is mapped into this process. Changing the set needs no system call and no privilege.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

use super::bpf::BitMap;
use super::error::{XdpError, refused};
use super::ring::Mapping;

/// Size, in octets, of a bitmap with one bit per port.
pub(super) const OCTETS: usize = (1 << 16) / 8;

/// Destination ports of the datagrams that a filter redirects to AF_XDP sockets. The set is initially empty. A change
/// applies to packets that arrive later.
pub struct PortSet {
    map: BitMap,
    bits: Mapping,
}

impl PortSet {
    /// Creates an empty set.
    ///
    /// # Errors
    /// Returns [`XdpError::NotAllowed`] or [`XdpError::Filter`] if the kernel refuses to create the map.
    pub fn new() -> Result<PortSet, XdpError> {
        PortSet::make().map_err(refused)
    }

    fn make() -> io::Result<PortSet> {
        let map = BitMap::new(OCTETS as u32)?;
        let bits = Mapping::shared(&map, OCTETS)?;
        Ok(PortSet { map, bits })
    }

    /// Adds a port. From now on, AF_XDP receives the datagrams to this port.
    pub fn insert(&self, port: u16) {
        let (octet, bit) = self.place(port);
        octet.fetch_or(bit, Ordering::Relaxed);
    }

    /// Removes a port. From now on, the kernel's stack receives the datagrams to this port.
    pub fn remove(&self, port: u16) {
        let (octet, bit) = self.place(port);
        octet.fetch_and(!bit, Ordering::Relaxed);
    }

    /// Returns the file descriptor of the map. A BPF program refers to the map by this number.
    pub(super) fn number(&self) -> RawFd {
        self.map.number()
    }

    /// Returns the octet that contains the bit of a port, and a mask that selects this bit.
    fn place(&self, port: u16) -> (&AtomicU8, u8) {
        // SAFETY: the mapping has a bit for every port and lives as long as `self`. All readers, including the kernel's
        // program, access it octet by octet, and we change it with atomic operations only.
        let octet = unsafe { AtomicU8::from_ptr(self.bits.start().add(usize::from(port) / 8)) };
        (octet, 1 << (port % 8))
    }
}

impl std::fmt::Debug for PortSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PortSet").field(&self.number()).finish()
    }
}
