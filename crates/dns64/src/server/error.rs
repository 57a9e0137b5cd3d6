//! Errors of the server's start and reload.

use std::io;
use std::path::PathBuf;

use net::address::ServiceAddr;
use net::socket::ListenError;

use super::xdp::XdpSetupError;
use crate::transport::certificate::BadCertificate;

/// Errors that occur while the server opens its sockets or starts its threads.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address cannot be bound.
    #[error("cannot serve {address} {source}")]
    Listen {
        /// Address and port that cannot be bound.
        address: ServiceAddr,
        /// Transport, and error returned by the system call.
        source: ListenError,
    },
    /// AF_XDP cannot be used on an interface.
    #[error("cannot use AF_XDP (xdp = true): {0}")]
    Xdp(#[from] XdpSetupError),
    /// The address of the metrics listener cannot be bound.
    #[error("cannot serve metrics at {address}: {source}")]
    ListenMetrics {
        /// Address and port that cannot be bound.
        address: ServiceAddr,
        /// Error returned by the system call.
        source: io::Error,
    },
    /// Router advertisements cannot be received on an interface.
    #[error("cannot receive router advertisements on {interface}: {source}")]
    Advertisements {
        /// Name of the interface.
        interface: String,
        /// Error returned by the system call.
        source: io::Error,
    },
    /// The control socket cannot be created.
    #[error("cannot create the control socket {}: {source}", .path.display())]
    Control {
        /// Path of the control socket.
        path: PathBuf,
        /// Error returned by the system call.
        source: io::Error,
    },
    /// The query log cannot be opened.
    #[error("cannot write the query log {}: {source}", .file.display())]
    QueryLog {
        /// Path of the query log.
        file: PathBuf,
        /// Error returned by the system call.
        source: io::Error,
    },
    /// A certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
    /// The TLS library rejects the settings of an encrypted transport.
    #[error("cannot use TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The TLS library does not support QUIC.
    #[error("cannot use QUIC: {0}")]
    Quic(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
    /// No address is configured.
    #[error("nothing to serve: `listen` has no address, and systemd passed no socket")]
    NoAddress,
    /// A reload adds an interface to the table `[discovery]`. Receiving advertisements on this interface needs
    /// privileges that were dropped at startup.
    #[error(
        "[discovery] interfaces has a new interface {0}, which needs privileges that were dropped: restart"
    )]
    TooLate(String),
    /// A thread, or a resource that it needs, could not be created.
    #[error("cannot start {what}: {source}")]
    Start {
        /// Name of the thread or resource that could not be created, for the error message.
        what: &'static str,
        /// Error returned by the system call.
        source: io::Error,
    },
}
