//! DNS over QUIC (RFC 9250). Each query has its own stream.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn::{
    Connection, IdleTimeout, RecvStream, SendStream, ServerConfig, TransportConfig, VarInt,
};
use tokio::sync::watch;
use tokio::time::timeout;

use super::LONGEST_QUERY;
use super::backlog::{Backlogs, ConnectionBacklog, ToStream};
use super::connections::Activity;
use super::framing::write_message;
use super::stream::{ConnectionEnd, ConnectionLimits};
use super::stream_options::has_keepalive;
use crate::guard::Tasks;

/// Error codes (RFC 9250 §8.4).
pub(crate) const NO_ERROR: VarInt = VarInt::from_u32(0);
const PROTOCOL_ERROR: VarInt = VarInt::from_u32(2);
const REQUEST_CANCELLED: VarInt = VarInt::from_u32(3);
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(4);

/// Length of the length field before each message, in octets.
const LENGTH: usize = 2;
/// Maximum length of a query with its length field, in octets.
const LONGEST: usize = LENGTH + LONGEST_QUERY;
/// Octets of one connection that may be sent before they are acknowledged.
const SEND_WINDOW: u64 = 256 << 10;
/// Interval between checks whether the queries in progress have been answered.
const IDLE_CHECK: Duration = Duration::from_millis(5);
/// Maximum number of connections that wait for the beginning of their handshake.
const WAITING: usize = 1_024;
/// Octets of all these connections that are kept until the handshake begins, and octets of one of them.
const WAITING_OCTETS: u64 = 4 << 20;
const WAITING_OCTETS_EACH: u64 = 16 << 10;

/// Returns the QUIC settings for these TLS settings.
///
/// # Errors
/// Returns an error if the TLS settings have no cipher suite for QUIC.
pub(crate) fn settings(
    tls: rustls::ServerConfig,
    limits: ConnectionLimits,
) -> Result<ServerConfig, NoInitialCipherSuite> {
    let mut transport = TransportConfig::default();
    let streams = u32::try_from(limits.pipeline).unwrap_or(u32::MAX);
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_idle_timeout(IdleTimeout::try_from(limits.idle).ok())
        .stream_receive_window(VarInt::from_u32(LONGEST as u32))
        .receive_window(VarInt::from_u32(4 * LONGEST as u32))
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None);
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config
        .transport_config(Arc::new(transport))
        .max_incoming(WAITING)
        .incoming_buffer_size(WAITING_OCTETS_EACH)
        .incoming_buffer_size_total(WAITING_OCTETS)
        // A client's address must be proven before policies apply to it. After a change of the address, the library processes
        // packets before that.
        .migration(false);
    Ok(config)
}

/// The queries of a connection.
pub(crate) struct Queries<F> {
    connection: Connection,
    backlog: ConnectionBacklog,
    activity: Rc<Activity>,
    limits: ConnectionLimits,
    hand_on: F,
}

/// Answers the queries of a connection until the client closes it, it is idle for too long, or `stopping` becomes true.
pub(crate) async fn serve<F: Fn(Vec<u8>, ToStream) + 'static>(
    queries: Queries<F>,
    tasks: &Tasks,
    mut stopping: watch::Receiver<bool>,
) -> ConnectionEnd {
    let queries = Rc::new(queries);
    let Queries { connection, activity, limits, .. } = &*queries;
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept_bi() => accepted,
            () = activity.displaced() => {
                connection.close(EXCESSIVE_LOAD, b"");
                return ConnectionEnd::Displaced;
            }
            () = activity.idle_for(limits.idle) => break,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let Ok((send, receive)) = accepted else { return ConnectionEnd::Usual };
        let queries = Rc::clone(&queries);
        tasks.spawn(|| "a query over QUIC".to_owned(), async move {
            queries.answer(send, receive).await;
        });
    }
    // The queries in progress are answered before the connection is closed.
    let answered = async {
        while !activity.is_idle() {
            tokio::time::sleep(IDLE_CHECK).await;
        }
    };
    let _ = timeout(limits.idle, answered).await;
    connection.close(NO_ERROR, b"");
    ConnectionEnd::Usual
}

impl<F: Fn(Vec<u8>, ToStream)> Queries<F> {
    /// Creates the state of a new connection. The function `hand_on` is called with each query and the sender for its reply,
    /// as in [`super::stream::serve`].
    pub(crate) fn new(
        connection: Connection,
        backlogs: &Backlogs,
        activity: Rc<Activity>,
        limits: ConnectionLimits,
        hand_on: F,
    ) -> Queries<F> {
        Queries { connection, backlog: backlogs.multiplexed(), activity, limits, hand_on }
    }

    /// Answers the query of a stream. A stream without a reply is reset, because the end of an empty stream would be a
    /// protocol error (RFC 9250 §4.3.3).
    async fn answer(&self, mut send: SendStream, mut receive: RecvStream) {
        if let Err(code) = self.reply(&mut send, &mut receive).await {
            // Errors of these two calls mean that the stream is already closed.
            let _ = receive.stop(code);
            let _ = send.reset(code);
            if code == PROTOCOL_ERROR {
                self.connection.close(code, b"not one DNS query with message ID 0");
            }
        }
    }

    /// Reads the query of a stream, and writes the reply.
    ///
    /// # Errors
    /// Returns the error code for the stream if there is no reply.
    async fn reply(&self, send: &mut SendStream, receive: &mut RecvStream) -> Result<(), VarInt> {
        let idle = self.limits.idle;
        let octets = timeout(idle, read(receive)).await.map_err(|_| EXCESSIVE_LOAD)??;
        let query = message(&octets).ok_or(PROTOCOL_ERROR)?;
        let (reply, mut replies) = self.backlog.queue();
        reply.below_limit().await;
        let _in_progress = self.activity.query();
        (self.hand_on)(query.to_vec(), reply);
        let reply = replies.next().await.filter(|reply| !reply.message().is_empty());
        let reply = reply.ok_or(EXCESSIVE_LOAD)?;
        match timeout(idle, write_message(send, reply.message())).await {
            Ok(Ok(())) => send.finish().map_err(|_| REQUEST_CANCELLED),
            _ => Err(REQUEST_CANCELLED),
        }
    }
}

/// Reads the octets of a stream. They are read in order and copied, because a small part of a packet would otherwise keep the
/// memory of the whole packet.
///
/// # Errors
/// Returns the error code for a stream that is too long, or that the client has reset.
async fn read(receive: &mut RecvStream) -> Result<Vec<u8>, VarInt> {
    let (mut octets, mut part) = (Vec::new(), [0; 512]);
    while let Some(length) = receive.read(&mut part).await.map_err(|_| REQUEST_CANCELLED)? {
        octets.extend_from_slice(&part[..length]);
        if octets.len() > LONGEST {
            return Err(PROTOCOL_ERROR);
        }
    }
    Ok(octets)
}

/// Returns the query in the octets of a stream. Returns `None` if these octets are a protocol error (RFC 9250 §4.2.1, §4.3.3,
/// §5.5.2).
fn message(octets: &[u8]) -> Option<&[u8]> {
    let (length, query) = octets.split_first_chunk::<LENGTH>()?;
    let is_whole = usize::from(u16::from_be_bytes(*length)) == query.len();
    (is_whole && query.starts_with(&[0, 0]) && !has_keepalive(query)).then_some(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_errors_are_detected() {
        let query = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x1c\0\x01";
        let framed = |query: &[u8]| [&(query.len() as u16).to_be_bytes()[..], query].concat();
        assert_eq!(message(&framed(query)), Some(&query[..]));
        let mut with_id = query.to_vec();
        with_id[1] = 1;
        let mut with_keepalive = query.to_vec();
        with_keepalive[11] = 1;
        with_keepalive.extend(b"\0\0\x29\x04\xd0\0\0\0\0\0\x04\0\x0b\0\0");
        let two = [framed(query), framed(query)].concat();
        for octets in [framed(&with_id), framed(&with_keepalive), two, vec![0], Vec::new()] {
            assert_eq!(message(&octets), None, "{octets:?}");
        }
        assert_eq!(message(&framed(query)[..10]), None);
    }
}
