//! Configuration of the far side, and the errors of its start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use domain::crypto::sign::{FromBytesError, GenerateError};
use net::socket::ListenError;

use crate::message::Name;

/// Longest zone name in octets; below it, no name that the far side makes becomes too long.
pub(super) const LONGEST_ZONE: usize = 200;

/// Zone and addresses of the far side.
#[derive(Clone, Debug)]
pub struct FarConfig {
    /// Addresses to serve, UDP and TCP; port 0 is any free one. On a host with several addresses a
    /// wildcard may let replies leave from another address than the question came to.
    pub listen: Vec<SocketAddr>,
    /// Zone in which the labels of a name select its behaviour; at most 200 octets.
    pub zone: Name,
    /// The address of `ns.ZONE`, which all zones name as their name server.
    pub ns: Ipv4Addr,
}

/// Reasons for which the far side does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FarError {
    /// An address cannot be used.
    #[error("cannot serve {address} {source}")]
    Listen {
        /// The listen address.
        address: SocketAddr,
        /// Transport and operating system's error.
        source: ListenError,
    },
    /// The zone's name leaves no room for labels.
    #[error("the zone {zone} is longer than {LONGEST_ZONE} octets")]
    LongZone {
        /// The name.
        zone: Name,
    },
    /// No key pair could be made.
    #[error("cannot make a key pair: {0}")]
    Generate(#[from] GenerateError),
    /// The key pair that was made could not be used.
    #[error("cannot use the new key pair: {0}")]
    Key(#[from] FromBytesError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}
