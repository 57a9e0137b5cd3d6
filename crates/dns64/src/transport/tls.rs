//! TLS for the connections of clients (RFC 7858, RFC 8310).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::server::ServerSessionMemoryCache;
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::Certificate;

/// Protocol names for ALPN (RFC 7858 with the IANA registry, RFC 9113, RFC 9250).
pub(crate) const DOT: &[u8] = b"dot";
pub(crate) const H2: &[u8] = b"h2";
pub(crate) const DOQ: &[u8] = b"doq";

/// Time limit for a TLS handshake.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Number of QUIC sessions that can be resumed. Each session takes about 1 KiB.
const SESSIONS: usize = 4_096;

/// Returns the TLS settings for connections over TCP. Sessions can be resumed with tickets. Early data is not accepted,
/// because DNS over TLS has no rules for it.
///
/// # Errors
/// Returns an error if the system has no random numbers.
pub(crate) fn over_tcp(
    certificate: Arc<Certificate>,
    protocol: &[u8],
    accepts_tls12: bool,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let versions = if accepts_tls12 { &[&TLS13, &TLS12][..] } else { &[&TLS13] };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![protocol.to_vec()];
    config.ticketer = ring::Ticketer::new()?;
    Ok(Arc::new(config))
}

/// Returns the TLS settings for QUIC. Early data is accepted (RFC 9250 §4.5). For this, sessions are stored in the server:
/// each session can be resumed only once, so that early data cannot be replayed.
///
/// # Errors
/// Returns an error if the TLS library does not support TLS 1.3.
pub(crate) fn over_quic(certificate: Arc<Certificate>) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![DOQ.to_vec()];
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    // QUIC has its own limit on early data (RFC 9001 §4.6.1).
    config.max_early_data_size = u32::MAX;
    Ok(config)
}

/// Performs the handshake of a new connection. Returns the encrypted stream, and true if the session was resumed.
///
/// # Errors
/// Returns an error if the handshake fails, or takes longer than [`HANDSHAKE_LIMIT`] ([`io::ErrorKind::TimedOut`]).
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    config: &Arc<ServerConfig>,
    stream: S,
) -> io::Result<(TlsStream<S>, bool)> {
    let acceptor = TlsAcceptor::from(Arc::clone(config));
    let stream = timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await??;
    let is_resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
    Ok((stream, is_resumed))
}
