//! Counters of lost packets on the path through this host to a next hop.

use std::io;

use crate::drops::{InterfaceCounters, PacketPath, UdpErrors, interface_counters, udp_errors};
use crate::neighbour::NextHop;
use crate::queueing::{Queueing, discipline};

/// All counters of the path through this host, read at nearly the same time.
pub struct PathCounters {
    /// Counters of the interface.
    pub interface: InterfaceCounters,
    /// UDP error counters of this host.
    pub udp: UdpErrors,
    /// Counters of the interface's queueing discipline; `None` if they cannot be read.
    pub queueing: Option<Queueing>,
    /// Number of packets dropped because the link-layer address of a neighbour was unknown; `None` if this number
    /// cannot be read.
    pub discards: Option<u64>,
}

impl PathCounters {
    /// Reads the counters.
    ///
    /// # Errors
    /// Returns an error if the counters of the interface or of UDP cannot be read.
    pub fn new(hop: &NextHop, path: PacketPath) -> io::Result<PathCounters> {
        Ok(PathCounters {
            interface: interface_counters(&hop.interface, path)?,
            udp: udp_errors()?,
            queueing: discipline(&hop.interface).ok(),
            discards: hop.discards(),
        })
    }
}
