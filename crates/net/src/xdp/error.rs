//! Errors of AF_XDP.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// Reasons why an interface cannot be used with AF_XDP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The interface does not exist, or is down.
    #[error("there is no interface {interface} that is up")]
    NoInterface {
        /// Name of the missing interface.
        interface: String,
    },
    /// No interface has the address.
    #[error("no interface that is up has the address {address}")]
    UnknownAddress {
        /// The address that no interface has.
        address: IpAddr,
    },
    /// The interface does not have the address at which AF_XDP should receive datagrams.
    #[error("{interface} does not have the address {address}")]
    ForeignAddress {
        /// Name of the interface that lacks the address.
        interface: String,
        /// The missing address.
        address: IpAddr,
    },
    /// The interface is not an Ethernet interface.
    #[error("{interface} has no Ethernet address: AF_XDP reads and writes Ethernet frames")]
    NoMac {
        /// Name of the interface without an Ethernet address.
        interface: String,
    },
    /// The interface reaches the next hop over a link layer other than Ethernet.
    #[error(
        "{interface} has no Ethernet neighbour towards {address}: AF_XDP writes Ethernet frames"
    )]
    NoEthernet {
        /// Name of the interface that leads to the next hop.
        interface: String,
        /// IP address of the next hop.
        address: IpAddr,
    },
    /// The process lacks the required capabilities.
    #[error(
        "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_IPC_LOCK (root has them): {source}"
    )]
    NotAllowed {
        /// Error returned by the system.
        source: io::Error,
    },
    /// The memory that AF_XDP needs for packets exceeds the limit on locked memory.
    #[error(
        "the memory for packets exceeds the limit of locked memory: raise it (ulimit -l; LimitMEMLOCK= of a \
         systemd unit) or give CAP_IPC_LOCK: {source}"
    )]
    NotLocked {
        /// Error returned by the system.
        source: io::Error,
    },
    /// The kernel was built without AF_XDP.
    #[error(
        "this kernel does not support AF_XDP: it was built without CONFIG_XDP_SOCKETS: {source}"
    )]
    NotBuilt {
        /// Error returned by the system.
        source: io::Error,
    },
    /// The kernel is older than Linux 5.9 and cannot attach XDP programs by BPF links.
    #[error("AF_XDP needs Linux 5.9 or newer, and this is {release}: {source}")]
    TooOld {
        /// Version of the running kernel.
        release: String,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The BPF filter cannot be loaded, or the BPF map of the AF_XDP sockets cannot be created.
    #[error("the filter for AF_XDP cannot be loaded: {source}")]
    Filter {
        /// Error returned by the system, with the log of the kernel's BPF verifier.
        source: io::Error,
    },
    /// There are fewer transmit queues than receive queues. A reply is sent on the transmit queue that has the same
    /// number as the receive queue of its query.
    #[error(
        "{interface} has {receive} receive queues and {transmit} transmit queues; AF_XDP needs at least as many transmit \
         queues as receive queues (ethtool -L)"
    )]
    Queues {
        /// Name of the interface with too few transmit queues.
        interface: String,
        /// Number of receive queues.
        receive: u32,
        /// Number of transmit queues.
        transmit: u32,
    },
    /// The interface's link did not come up after the XDP program was attached.
    #[error(
        "{interface} has no link for {} s after the filter was attached: is the cable in, and the other end up?",
        waited.as_secs_f64()
    )]
    NoLink {
        /// Name of the interface without a link.
        interface: String,
        /// Time spent waiting for the link.
        waited: Duration,
    },
    /// The interface disappeared while in use.
    #[error("{interface} no longer accepts or delivers packets: {source}")]
    Lost {
        /// Name of the interface that disappeared.
        interface: String,
        /// Error returned by the system.
        source: io::Error,
    },
    /// None of the tried modes works on this interface.
    #[error("{interface} does not support AF_XDP here: {}", .tried.join("; "))]
    NoAttachMode {
        /// Name of the interface on which no attach mode works.
        interface: String,
        /// Each mode that was tried, with its error.
        tried: Vec<String>,
    },
}

impl XdpError {
    /// True if the kernel, the driver or this process does not meet a requirement of AF_XDP, so that only sockets can
    /// be used. False if the request itself is invalid.
    pub fn is_missing_requirement(&self) -> bool {
        match self {
            XdpError::NotAllowed { .. }
            | XdpError::NotLocked { .. }
            | XdpError::NotBuilt { .. }
            | XdpError::TooOld { .. }
            | XdpError::Filter { .. }
            | XdpError::Queues { .. }
            | XdpError::NoAttachMode { .. } => true,
            XdpError::NoInterface { .. }
            | XdpError::UnknownAddress { .. }
            | XdpError::ForeignAddress { .. }
            | XdpError::NoMac { .. }
            | XdpError::NoEthernet { .. }
            | XdpError::NoLink { .. }
            | XdpError::Lost { .. } => false,
        }
    }
}

pub(super) fn refused(source: io::Error) -> XdpError {
    if is_not_allowed(&source) {
        XdpError::NotAllowed { source }
    } else {
        XdpError::Filter { source }
    }
}

/// True if the error means that a capability is missing. `EACCES` has a different cause: the verifier returns it for a
/// program that it rejects.
fn is_not_allowed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EPERM)
}
