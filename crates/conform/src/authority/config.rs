//! Configuration of the test authoritative server, and its start-up errors.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use domain::crypto::sign::{FromBytesError, GenerateError};
use net::socket::ListenError;

use crate::message::Name;

/// Maximum length of the zone name in octets. It leaves room for all names that the server generates.
pub(super) const LONGEST_ZONE: usize = 200;

/// Zone and addresses of the test authoritative server.
#[derive(Clone, Debug)]
pub struct AuthorityConfig {
    /// Listen addresses for UDP and TCP; port 0 selects a free port. If a wildcard address is used on a host with
    /// several addresses, a reply may be sent from a different address than the one that received the query.
    pub listen: Vec<SocketAddr>,
    /// Zone in which the labels of a name select the reply. At most 200 octets.
    pub zone: Name,
    /// Address of `ns.ZONE`, the name server in the NS records of all zones.
    pub ns: Ipv4Addr,
}

/// Errors that prevent the test authoritative server from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// The server cannot listen on an address.
    #[error("cannot serve {address} {source}")]
    Listen {
        /// The listen address.
        address: SocketAddr,
        /// Transport, and the error of the system call.
        source: ListenError,
    },
    /// The name of the zone leaves no room for labels.
    #[error("the zone {zone} is longer than {LONGEST_ZONE} octets")]
    LongZone {
        /// Name of the zone.
        zone: Name,
    },
    /// No key pair could be generated.
    #[error("cannot make a key pair: {0}")]
    Generate(#[from] GenerateError),
    /// The generated key pair could not be used.
    #[error("cannot use the new key pair: {0}")]
    Key(#[from] FromBytesError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}
