//! Connections of clients: admission, handshake, and distribution of the queries to the workers.
//!
//! ```text
//! accept ──────► access, slot ─► handshake ─► stream, https ─┐
//! accept_quic ─► access, slot ─► handshake ─► quic ──────────┴─► hand_on ─► worker
//! ```

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint, Incoming, ZeroRttAccepted};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::inbox::WorkerMessage;
use super::panics::cost_of;
use super::shared::Shared;
use crate::client::query::describe;
use crate::client::reply::write_servfail;
use crate::config::Settings;
use crate::guard::{Tasks, catch};
use crate::metrics::{Count, Metrics, WorkerMetrics};
use crate::transport::Transport;
use crate::transport::backlog::ToStream;
use crate::transport::client::{Client, StreamClient};
use crate::transport::connections::{Admission, ConnectionSlot, Connections};
use crate::transport::https::{self, Versions};
use crate::transport::quic;
use crate::transport::stream::{self, ConnectionEnd, ConnectionLimits};
use crate::transport::stream_options::StreamOptions;
use crate::transport::tls::{self, HANDSHAKE_LIMIT};

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Protocol of the connections to a listener.
#[derive(Clone)]
pub(super) enum Protocol {
    Tcp,
    Tls(Arc<ServerConfig>),
    /// HTTPS, or HTTP without TLS settings. The string is the path of the URI.
    Https(Option<Arc<ServerConfig>>, Arc<str>),
}

impl Protocol {
    fn transport(&self) -> Transport {
        match self {
            Protocol::Tcp => Transport::Tcp,
            Protocol::Tls(_) => Transport::Tls,
            Protocol::Https(..) => Transport::Https,
        }
    }
}

/// The two threads for connections of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionThread {
    /// TCP, upstreams, metrics listener and control socket.
    Tcp,
    /// TLS, HTTPS and QUIC.
    Encrypted,
}

impl ConnectionThread {
    /// Returns the counters of this thread.
    pub(super) fn counters(self, metrics: &Metrics) -> &WorkerMetrics {
        match self {
            ConnectionThread::Tcp => metrics.tcp(),
            ConnectionThread::Encrypted => metrics.encrypted(),
        }
    }
}

/// Service for the connections of clients on one thread.
#[derive(Clone)]
pub(super) struct ClientStreams {
    pub(super) thread: ConnectionThread,
    pub(super) shared: Arc<Shared>,
    pub(super) tasks: Tasks,
    /// The open connections of this thread.
    pub(super) connections: Rc<Connections>,
    /// Becomes true when the server stops.
    pub(super) stopping: watch::Receiver<bool>,
}

/// Returns the limits of a connection.
pub(super) fn connection_limits(settings: &Settings) -> ConnectionLimits {
    let limits = settings.config.limits;
    ConnectionLimits { pipeline: limits.tcp_pipeline, idle: limits.tcp_idle }
}

impl ClientStreams {
    /// Starts to accept the connections to a listener.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be registered with the event loop.
    pub(super) fn listen(
        &self,
        listener: std::net::TcpListener,
        protocol: Protocol,
    ) -> std::io::Result<()> {
        let (streams, listener) = (self.clone(), Rc::new(TcpListener::from_std(listener)?));
        self.tasks.keep("a connection", move || {
            streams.clone().accept(Rc::clone(&listener), protocol.clone())
        });
        Ok(())
    }

    /// Starts to accept the connections to a QUIC endpoint.
    pub(super) fn listen_quic(&self, endpoint: Endpoint) {
        let streams = self.clone();
        self.tasks.keep("a connection", move || streams.clone().accept_quic(endpoint.clone()));
    }

    fn metrics(&self) -> &WorkerMetrics {
        self.thread.counters(self.shared.metrics())
    }

    /// Accepts connections until the server stops.
    async fn accept(mut self, listener: Rc<TcpListener>, protocol: Protocol) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.stopping.wait_for(|stopping| *stopping) => break,
            };
            let Ok((stream, peer)) = accepted else {
                // Most likely, the process has no file descriptor left. A descriptor may become free
                // soon.
                self.metrics().count(Count::TcpAcceptFailed);
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let ip = peer.ip().to_canonical();
            let Some(slot) = self.admit(ip).await else { continue };
            // Without TCP_NODELAY, replies would wait for the client's acknowledgements. Setting the
            // option fails only for a closed connection.
            let _ = stream.set_nodelay(true);
            let (streams, protocol) = (self.clone(), protocol.clone());
            self.tasks.spawn(move || format!("a connection of {ip}"), async move {
                streams.serve(stream, protocol, ip, slot).await;
            });
        }
    }

    /// Returns a slot for a new connection, or `None` if the connection must be closed. Connections of disallowed clients,
    /// and connections beyond a limit, are closed immediately, so that these clients do not wait for a reply.
    async fn admit(&self, ip: IpAddr) -> Option<ConnectionSlot> {
        let settings = self.shared.settings.load();
        if !settings.allows(ip) {
            self.metrics().count(Count::TcpRefusedAcl);
            return None;
        }
        let limits = &settings.config.limits;
        match self.connections.enter(ip, limits.tcp_connections, limits.tcp_per_client) {
            Admission::Free(slot) => Some(slot),
            Admission::Displacing(slot) => {
                // Yielding lets the displaced connection close its file descriptor first.
                tokio::task::yield_now().await;
                Some(slot)
            }
            Admission::Refused => {
                self.metrics().count(Count::TcpRefusedLimit);
                None
            }
        }
    }

    /// Serves a connection over TCP, with or without TLS, until it ends.
    async fn serve(&self, stream: TcpStream, protocol: Protocol, ip: IpAddr, slot: ConnectionSlot) {
        let transport = protocol.transport();
        let limits = connection_limits(&self.shared.settings.load());
        let (activity, stopping) = (slot.activity(), self.stopping.clone());
        let hand_on = self.distribute(transport, ip, limits);
        let (backlogs, tasks) = (&self.shared.backlogs, &self.tasks);
        let displaced = slot.activity();
        let handshake = async |config, stream| {
            tokio::select! {
                stream = tls::accept(&config, stream) => self.count_handshake(stream),
                () = displaced.displaced() => Err(ConnectionEnd::Displaced),
            }
        };
        let end = match protocol {
            Protocol::Tcp => {
                stream::serve(stream, limits, backlogs, activity, stopping, hand_on).await
            }
            Protocol::Tls(config) => match handshake(config, stream).await {
                Ok(stream) => {
                    stream::serve(stream, limits, backlogs, activity, stopping, hand_on).await
                }
                Err(end) => end,
            },
            Protocol::Https(Some(config), path) => match handshake(config, stream).await {
                Ok(stream) => {
                    let requests =
                        https::Requests::new(path, backlogs, activity, limits.idle, hand_on);
                    https::serve(stream, Versions::Http2, limits, requests, tasks, stopping).await
                }
                Err(end) => end,
            },
            Protocol::Https(None, path) => {
                let requests = https::Requests::new(path, backlogs, activity, limits.idle, hand_on);
                https::serve(stream, Versions::Any, limits, requests, tasks, stopping).await
            }
        };
        self.count_end(end);
        drop(slot);
    }

    /// Counts the result of a TLS handshake.
    fn count_handshake<S>(&self, result: std::io::Result<(S, bool)>) -> Result<S, ConnectionEnd> {
        let (count, result) = match result {
            Ok((stream, false)) => (Count::HandshakeFull, Ok(stream)),
            Ok((stream, true)) => (Count::HandshakeResumed, Ok(stream)),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                (Count::HandshakeTimeout, Err(ConnectionEnd::Usual))
            }
            Err(error) => {
                tracing::debug!("TLS handshake failed: {error}");
                (Count::HandshakeFailed, Err(ConnectionEnd::Usual))
            }
        };
        self.metrics().count(count);
        result
    }

    fn count_end(&self, end: ConnectionEnd) {
        match end {
            ConnectionEnd::Usual => {}
            ConnectionEnd::Unread => self.metrics().count(Count::TcpUnread),
            ConnectionEnd::Displaced => self.metrics().count(Count::TcpDisplaced),
        }
    }

    /// Accepts QUIC connections until the server stops. If the client, or all clients together, have many connections, the
    /// client must first prove its address (RFC 9000 §8.1). Connections with forged addresses can therefore neither displace
    /// the connections of others nor use up their share.
    async fn accept_quic(mut self, endpoint: Endpoint) {
        loop {
            let accepted = tokio::select! {
                accepted = endpoint.accept() => accepted,
                _ = self.stopping.wait_for(|stopping| *stopping) => break,
            };
            let Some(incoming) = accepted else { break };
            let ip = incoming.remote_address().ip().to_canonical();
            let limits = self.shared.settings.load().config.limits;
            let is_crowded = self.connections.len() >= limits.tcp_connections.div_ceil(2)
                || self.connections.held_by(ip) >= limits.tcp_per_client.div_ceil(4);
            if is_crowded && incoming.may_retry() && !incoming.remote_address_validated() {
                self.metrics().count(Count::QuicRetry);
                // `retry` fails only for a validated address.
                let _ = incoming.retry();
                continue;
            }
            let Some(slot) = self.admit(ip).await else {
                incoming.refuse();
                continue;
            };
            let streams = self.clone();
            self.tasks.spawn(move || format!("a connection of {ip}"), async move {
                streams.serve_quic(incoming, ip, slot).await;
            });
        }
    }

    /// Serves a QUIC connection until it ends. If the client has proved its address with a token, queries are answered before
    /// the end of the handshake (early data).
    async fn serve_quic(&self, incoming: Incoming, ip: IpAddr, slot: ConnectionSlot) {
        let is_proven = incoming.remote_address_validated();
        let begun = incoming.accept().ok().and_then(|connecting| connecting.into_0rtt().ok());
        let Some((connection, established)) = begun else {
            return self.metrics().count(Count::HandshakeFailed);
        };
        let limits = connection_limits(&self.shared.settings.load());
        let hand_on = self.distribute(Transport::Quic, ip, limits);
        let activity = slot.activity();
        let queries = quic::Queries::new(
            connection.clone(),
            &self.shared.backlogs,
            activity,
            limits,
            hand_on,
        );
        let serve = quic::serve(queries, &self.tasks, self.stopping.clone());
        let handshake = self.finish_handshake(&connection, established);
        if is_proven {
            let (end, ()) = tokio::join!(serve, handshake);
            self.count_end(end);
        } else {
            handshake.await;
            self.count_end(serve.await);
        }
        drop(slot);
    }

    /// Waits for the end of a QUIC handshake, and counts its result.
    async fn finish_handshake(&self, connection: &Connection, established: ZeroRttAccepted) {
        let in_time = timeout(HANDSHAKE_LIMIT, established).await.is_ok();
        self.metrics().count(match (in_time, connection.close_reason()) {
            (false, _) => Count::HandshakeTimeout,
            (true, None) => Count::HandshakeQuic,
            (true, Some(reason)) => {
                tracing::debug!("QUIC handshake failed: {reason}");
                Count::HandshakeFailed
            }
        });
        if !in_time {
            connection.close(quic::NO_ERROR, b"handshake took too long");
        }
    }

    /// Returns the function that passes the queries of a connection to the workers round robin.
    fn distribute(
        &self,
        transport: Transport,
        ip: IpAddr,
        limits: ConnectionLimits,
    ) -> impl Fn(Vec<u8>, ToStream) + use<> {
        let streams = self.clone();
        let workers = streams.shared.worker_inboxes.len();
        let worker = Cell::new(rand::random_range(0..workers));
        move |bytes, reply| {
            worker.set((worker.get() + 1) % workers);
            let options = StreamOptions::requested_by(&bytes, transport, limits.idle);
            streams.hand_on(worker.get(), bytes, &StreamClient { transport, options, ip, reply });
        }
    }

    /// Passes a client's message to a worker. If a panic occurs, the message is answered with
    /// SERVFAIL.
    fn hand_on(&self, worker: usize, bytes: Vec<u8>, client: &StreamClient) {
        let mut held = Some(bytes);
        let handed_on = catch(|| {
            #[cfg(test)]
            crate::guard::panic_if_named(
                "defect-client",
                held.as_ref().and_then(|b| b.get(12..)).unwrap_or_default(),
            );
            if let Some(bytes) = held.take() {
                let client = Client::Stream(client.clone());
                self.shared.worker_inboxes[worker].post(WorkerMessage::Query { bytes, client });
            }
        });
        if let Err(panic) = handed_on {
            let bytes = held.unwrap_or_default();
            self.tasks.report(&panic, &cost_of(&describe(&bytes)));
            let mut servfail = Vec::new();
            let answer = |cookie| self.shared.cookies.answer(cookie, client.ip);
            write_servfail(&mut servfail, &bytes, client.transport, answer);
            client.options.add_to(&mut servfail);
            // Sending fails if the client has closed the connection.
            let _ = client.reply.send(servfail);
        }
    }
}
