//! The asynchronous thread for TCP: clients, upstreams, metrics listener and control socket. DNS
//! processing happens in the workers.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use net::router::RouterSocket;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use super::connection_thread;
use super::control::{self, Context, OnReload};
use super::inbox::WorkerMessage;
use super::network::message;
use super::prefixes;
use super::shared::Shared;
use super::signatures;
use super::streams::{ConnectionThread, Protocol};
use crate::control::socket::{ControlSocket, SocketFile};
use crate::guard::Tasks;
use crate::metrics;
use crate::observe::{MessageKind, Observer, Tap};
use crate::resolver::outside::TcpQuery;
use crate::transport::Transport;
use crate::transport::upstream_tcp;

/// Sockets of the thread, bound before it starts.
pub(super) struct Sockets {
    /// Listeners for clients.
    pub(super) listeners: Vec<std::net::TcpListener>,
    /// Addresses of the sockets for clients over UDP and TCP.
    pub(super) addresses: Vec<SocketAddr>,
    /// Transports and addresses of the encrypted transports, which another thread serves.
    pub(super) encrypted_addresses: Vec<(Transport, SocketAddr)>,
    pub(super) metrics: Option<std::net::TcpListener>,
    pub(super) control: Option<ControlSocket>,
    /// Handler of reload requests from the control socket.
    pub(super) on_reload: Option<OnReload>,
    /// One socket for router advertisements per configured interface.
    pub(super) routers: Vec<RouterSocket>,
    /// Descriptions of the network interfaces on which AF_XDP is used.
    pub(super) xdp: Vec<String>,
}

/// Runs the TCP thread until the server stops.
///
/// # Errors
/// Returns an error if the process has no file descriptor left.
///
/// # Panics
/// Panics if too many tasks have panicked.
pub(super) fn run(
    shared: &Arc<Shared>,
    sockets: Sockets,
    questions: UnboundedReceiver<TcpQuery>,
    observer: Option<&Observer>,
    is_closed: &AtomicBool,
) -> io::Result<()> {
    connection_thread::run(ConnectionThread::Tcp, shared, is_closed, |streams| {
        let tasks = &streams.tasks;
        for listener in sockets.listeners {
            streams.listen(listener, Protocol::Tcp)?;
        }
        let metrics_address = sockets.metrics.as_ref().and_then(|one| one.local_addr().ok());
        if let Some(listener) = sockets.metrics {
            serve_metrics(tasks, shared, TcpListener::from_std(listener)?);
        }
        ask_upstreams(tasks, shared, questions, observer.and_then(Observer::upstream_tap));
        prefixes::watch(tasks, shared, sockets.routers)?;
        signatures::watch(tasks, shared);
        let context = Context {
            shared: Arc::clone(shared),
            addresses: sockets.addresses,
            encrypted_addresses: sockets.encrypted_addresses,
            metrics_address,
            xdp: sockets.xdp,
            on_reload: sockets.on_reload,
        };
        // Dropping the returned guard removes the file of the control socket.
        sockets.control.map(|socket| serve_control(tasks, socket, context)).transpose()
    })
}

/// Starts the HTTP listener that returns the metrics.
fn serve_metrics(tasks: &Tasks, shared: &Arc<Shared>, listener: TcpListener) {
    let (shared, tasks, listener) = (Arc::clone(shared), tasks.clone(), Rc::new(listener));
    tasks.clone().keep("a request for the metrics", move || {
        let shared = Arc::clone(&shared);
        let text = move || shared.metrics_text();
        metrics::http::serve(tasks.clone(), Rc::clone(&listener), text)
    });
}

/// Starts to accept connections to the control socket. Returns a guard that removes the socket's file.
fn serve_control(tasks: &Tasks, socket: ControlSocket, context: Context) -> io::Result<SocketFile> {
    let (listener, file) = socket.into_parts();
    let listener = Rc::new(UnixListener::from_std(listener)?);
    let (tasks, context) = (tasks.clone(), Rc::new(context));
    tasks.clone().keep("a request at the control socket", move || {
        control::serve(tasks.clone(), Rc::clone(&listener), Rc::clone(&context))
    });
    Ok(file)
}

/// Sends the workers' upstream queries over TCP, and passes the results to the workers.
fn ask_upstreams(
    tasks: &Tasks,
    shared: &Arc<Shared>,
    questions: UnboundedReceiver<TcpQuery>,
    tap: Option<Tap>,
) {
    let connections = shared.settings.load().upstream_connections;
    let (shared, questions) = (Arc::clone(shared), Rc::new(Mutex::new(questions)));
    let begin = {
        let tasks = tasks.clone();
        move || {
            let (shared, tap) = (Arc::clone(&shared), tap.clone());
            let server = Arc::clone(&shared);
            // If there are several upstreams, each of them gets at most half of the connections.
            let share = move || match server.settings.load().upstreams.len() {
                1 => connections,
                _ => connections.div_ceil(2),
            };
            upstream_tcp::run(
                tasks.clone(),
                connections,
                share,
                Rc::clone(&questions),
                move |question, answer| {
                    if let (Some(tap), Ok(octets)) = (&tap, &answer) {
                        let kind = MessageKind::ForwarderResponse;
                        let upstream = question.address.without_zone();
                        let message = message(kind, Transport::Tcp, Some(upstream), octets);
                        tap.put(message, shared.metrics().tcp());
                    }
                    shared.worker_inboxes[question.worker.0]
                        .post(WorkerMessage::TcpAnswer { fetch: question.fetch, message: answer });
                },
            )
        }
    };
    tasks.keep("an upstream query over TCP", begin);
}
