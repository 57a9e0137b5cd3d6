//! The listeners for TLS, HTTPS and QUIC, and the thread that serves them.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use net::socket::{ListenError, listen_tcp, listen_udp};
use quinn::{EndpointConfig, TokioRuntime};

use super::activated::Activated;
use super::connection_thread;
use super::error::ServerError;
use super::shared::Shared;
use super::streams::{ClientStreams, ConnectionThread, Protocol, connection_limits};
use crate::config::{ListenKeys, ListenTransport, Settings};
use crate::metrics::Count;
use crate::transport::Transport;
use crate::transport::certificate::{Certificate, CertificateWatch, Renewal};
use crate::transport::{quic, tls};

/// Interval between checks for changed certificates. A change is used at the second check after it.
const CERTIFICATE_CHECK: Duration = Duration::from_millis(250);

/// Bound sockets of the encrypted transports.
#[derive(Default)]
pub(super) struct EncryptedSockets {
    listeners: Vec<(TcpListener, Protocol)>,
    quic: Vec<(UdpSocket, quinn::ServerConfig)>,
    certificates: Vec<Arc<Certificate>>,
    /// Transports and addresses of all sockets.
    addresses: Vec<(Transport, SocketAddr)>,
}

impl EncryptedSockets {
    /// Reads the certificates, and binds the addresses of the encrypted transports. If systemd passed a socket with one of
    /// these addresses, the socket is taken from `activated` instead.
    ///
    /// # Errors
    /// Returns an error if a certificate cannot be used, or if an address cannot be bound.
    pub(super) fn bind(
        settings: &Settings,
        activated: &mut Activated,
    ) -> Result<EncryptedSockets, ServerError> {
        let mut sockets = EncryptedSockets::default();
        for keys in &settings.config.listen {
            if keys.transport != ListenTransport::Udp {
                sockets.add(keys, settings, activated)?;
            }
        }
        Ok(sockets)
    }

    fn add(
        &mut self,
        keys: &ListenKeys,
        settings: &Settings,
        activated: &mut Activated,
    ) -> Result<(), ServerError> {
        let at = |error| {
            let source = match keys.transport {
                ListenTransport::Quic => ListenError::Udp(error),
                _ => ListenError::Tcp(error),
            };
            ServerError::Listen { address: keys.address, source }
        };
        let certificate = self.certificate(keys)?;
        let here = keys.address.resolve().map_err(at)?;
        if keys.transport == ListenTransport::Quic {
            let certificate = certificate.ok_or(ServerError::NoAddress)?;
            let passed = activated.udp.extract_if(.., |one| is_at(one.local_addr(), here)).next();
            let socket = passed.map_or_else(|| listen_udp(here), Ok).map_err(at)?;
            self.addresses.push((Transport::Quic, socket.local_addr().map_err(at)?));
            let config = quic::settings(tls::over_quic(certificate)?, connection_limits(settings))?;
            self.quic.push((socket, config));
            return Ok(());
        }
        let passed = activated.tcp.extract_if(.., |one| is_at(one.local_addr(), here)).next();
        let listener = passed.map_or_else(|| listen_tcp(here), Ok).map_err(at)?;
        listener.set_nonblocking(true).map_err(at)?;
        self.addresses.push((keys.transport.transport(), listener.local_addr().map_err(at)?));
        let over_tcp = |protocol| {
            certificate
                .map(|certificate| tls::over_tcp(certificate, protocol, keys.tls12))
                .transpose()
        };
        let protocol = match keys.transport {
            ListenTransport::Https => Protocol::Https(over_tcp(tls::H2)?, keys.path().into()),
            _ => Protocol::Tls(over_tcp(tls::DOT)?.ok_or(ServerError::NoAddress)?),
        };
        self.listeners.push((listener, protocol));
        Ok(())
    }

    /// Returns the certificate of a listen address. Listen addresses with the same files share it.
    fn certificate(&mut self, keys: &ListenKeys) -> Result<Option<Arc<Certificate>>, ServerError> {
        let Some(files) = keys.certificate() else { return Ok(None) };
        if let Some(known) = self.certificates.iter().find(|known| *known.files() == files) {
            return Ok(Some(Arc::clone(known)));
        }
        let certificate = Arc::new(Certificate::load(files)?);
        self.certificates.push(Arc::clone(&certificate));
        Ok(Some(certificate))
    }

    /// True if there are no encrypted transports.
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Returns the transports and addresses, with the actual ports.
    pub(super) fn addresses(&self) -> &[(Transport, SocketAddr)] {
        &self.addresses
    }
}

/// True if a passed socket has the address of an encrypted transport.
fn is_at(socket: io::Result<SocketAddr>, address: SocketAddr) -> bool {
    socket.is_ok_and(|local| local == address)
}

/// Runs the thread of the encrypted transports until the server stops.
///
/// # Errors
/// Returns an error if the process has no file descriptor left.
///
/// # Panics
/// Panics if too many tasks have panicked.
pub(super) fn run(
    shared: &Arc<Shared>,
    sockets: EncryptedSockets,
    is_closed: &AtomicBool,
) -> io::Result<()> {
    connection_thread::run(ConnectionThread::Encrypted, shared, is_closed, |streams| {
        for (listener, protocol) in sockets.listeners {
            streams.listen(listener, protocol)?;
        }
        for (socket, config) in sockets.quic {
            let runtime = Arc::new(TokioRuntime);
            let endpoint =
                quinn::Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?;
            streams.listen_quic(endpoint);
        }
        let (watching, certificates) = (streams.clone(), sockets.certificates);
        streams.tasks.keep("a change of a certificate", move || {
            watch(watching.clone(), certificates.clone())
        });
        Ok(())
    })
}

/// Reads certificates again when their files have changed, and at a reload.
async fn watch(streams: ClientStreams, certificates: Vec<Arc<Certificate>>) {
    let shared = &streams.shared;
    let metrics = ConnectionThread::Encrypted.counters(shared.metrics());
    let mut watches: Vec<_> = certificates.into_iter().map(CertificateWatch::new).collect();
    let mut reloads = shared.loaded.reloads.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(CERTIFICATE_CHECK).await;
        let before = std::mem::replace(&mut reloads, shared.loaded.reloads.load(Ordering::Relaxed));
        for watch in &mut watches {
            let renewal = watch.check(before != reloads);
            let file = watch.files().certificate.display();
            match renewal {
                Renewal::Unchanged => {}
                Renewal::Renewed => {
                    metrics.count(Count::CertificateRenewed);
                    tracing::info!("certificate renewed: {file}");
                }
                Renewal::Rejected(error) => {
                    metrics.count(Count::CertificateRejected);
                    tracing::error!("the old certificate of {file} stays in use: {error}");
                }
            }
        }
    }
}
