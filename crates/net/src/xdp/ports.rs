//! A set of ports that changes while a filter looks at it: a bit for each, in memory that is the
//! kernel's map and ours at once. Changing it takes no system call and no privilege.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

use super::bpf::BitMap;
use super::ring::Mapping;
use super::{XdpError, refused};

/// Octets that hold a bit for every port.
pub(super) const OCTETS: usize = (1 << 16) / 8;

/// Ports whose datagrams a filter takes; at first there are none. What it is changed to counts for
/// the packets that come afterwards.
pub struct PortSet {
    map: BitMap,
    bits: Mapping,
}

impl PortSet {
    /// An empty set.
    ///
    /// # Errors
    /// [`XdpError::NotAllowed`] or [`XdpError::Filter`].
    pub fn new() -> Result<PortSet, XdpError> {
        PortSet::make().map_err(refused)
    }

    fn make() -> io::Result<PortSet> {
        let map = BitMap::new(OCTETS as u32)?;
        let bits = Mapping::shared(&map, OCTETS)?;
        Ok(PortSet { map, bits })
    }

    /// From now on datagrams to this port are taken.
    pub fn insert(&self, port: u16) {
        let (octet, bit) = self.place(port);
        octet.fetch_or(bit, Ordering::Relaxed);
    }

    /// From now on they are left to the kernel.
    pub fn remove(&self, port: u16) {
        let (octet, bit) = self.place(port);
        octet.fetch_and(!bit, Ordering::Relaxed);
    }

    /// The descriptor of its map, as a program names it.
    pub(super) fn number(&self) -> RawFd {
        self.map.number()
    }

    /// Where the bit of a port is.
    fn place(&self, port: u16) -> (&AtomicU8, u8) {
        // SAFETY: the mapping is as long as there are ports' bits, and lives as long as `self`;
        // everybody, the kernel's program as well, looks at it octet by octet, and we change it with
        // atomic operations only.
        let octet = unsafe { AtomicU8::from_ptr(self.bits.start().add(usize::from(port) / 8)) };
        (octet, 1 << (port % 8))
    }
}

impl std::fmt::Debug for PortSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PortSet").field(&self.number()).finish()
    }
}
