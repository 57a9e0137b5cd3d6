//! The asynchronous thread for TCP: clients, upstreams, metrics listener and control socket. DNS
//! processing happens in the workers.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use net::clock;
use net::router::RouterSocket;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, watch};
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::control::{self, Context, OnReload};
use super::inbox::WorkerMessage;
use super::network::message;
use super::panics::{PanicBudget, TooMany, cost_of};
use super::prefixes;
use super::shared::Shared;
use super::signatures;
use crate::client::query::describe;
use crate::client::reply::write_servfail;
use crate::control::socket::{ControlSocket, SocketFile};
use crate::guard::{Tasks, catch};
use crate::ids::WorkerId;
use crate::metrics::{self, Count};
use crate::observe::{MessageKind, Observer, Tap};
use crate::resolver::outside::TcpQuery;
use crate::transport::Transport;
use crate::transport::backlog::{Backlogs, ToStream};
use crate::transport::client::Client;
use crate::transport::connections::{Admission, Connections};
use crate::transport::stream::{self, ConnectionEnd, ConnectionLimits};
use crate::transport::upstream_tcp;

/// Interval at which the TCP thread checks whether the workers have ended.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// Time for which a stopping server waits so that every task of the TCP thread runs at least once. The tasks then
/// detect the stop, and pass on the messages that they have already read.
const HEARD: Duration = Duration::from_millis(5);
/// Time for which a stopping server waits for clients to receive their last replies.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Sockets of the thread, bound before it starts.
pub(super) struct Sockets {
    /// Listeners for clients.
    pub(super) listeners: Vec<std::net::TcpListener>,
    /// Addresses of all sockets for clients, both TCP and UDP.
    pub(super) addresses: Vec<SocketAddr>,
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
/// Panics if too many tasks have panicked. Each panic of a task is counted and logged, and ends only the work of that
/// task.
pub(super) fn run(
    shared: &Arc<Shared>,
    sockets: Sockets,
    questions: UnboundedReceiver<TcpQuery>,
    observer: Option<&Observer>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let too_many = Rc::new(RefCell::new(None));
    let tasks = tasks(shared, &too_many);
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let (stop, stopping) = watch::channel(false);
        let (connections, backlogs) = (Rc::new(Connections::default()), Backlogs::default());
        for listener in sockets.listeners {
            let listener = Rc::new(TcpListener::from_std(listener)?);
            let (shared, backlogs) = (Arc::clone(shared), backlogs.clone());
            let service = TcpService { shared, tasks: tasks.clone(), backlogs };
            let (connections, stopping) = (Rc::clone(&connections), stopping.clone());
            tasks.keep("a connection", move || {
                accept(
                    service.clone(),
                    Rc::clone(&listener),
                    Rc::clone(&connections),
                    stopping.clone(),
                )
            });
        }
        let metrics_address = sockets.metrics.as_ref().and_then(|one| one.local_addr().ok());
        if let Some(listener) = sockets.metrics {
            serve_metrics(&tasks, shared, TcpListener::from_std(listener)?);
        }
        ask_upstreams(&tasks, shared, questions, observer.and_then(Observer::upstream_tap));
        prefixes::watch(&tasks, shared, sockets.routers)?;
        signatures::watch(&tasks, shared);
        let (shared_too, addresses) = (Arc::clone(shared), sockets.addresses);
        let (xdp, on_reload) = (sockets.xdp, sockets.on_reload);
        let context = Context { shared: shared_too, addresses, metrics_address, xdp, on_reload };
        // `_file` removes the file of the control socket when this function returns.
        let _file = match sockets.control {
            Some(socket) => Some(serve_control(&tasks, socket, context)?),
            None => None,
        };
        while !shared.ended.load(Ordering::Relaxed) {
            let closes = stop.send_if_modified(|stop| {
                shared.is_closing.load(Ordering::Relaxed) && !std::mem::replace(stop, true)
            });
            if closes {
                // Within this time, all tasks see the flag, and pass on the messages that they have
                // already read.
                tokio::time::sleep(HEARD).await;
                shared.is_closed.store(true, Ordering::Release);
            }
            tokio::time::sleep(STOP_CHECK).await;
            if let Some(too_many) = too_many.take() {
                panic!("{too_many}");
            }
        }
        let _ = stop.send(true);
        // The workers have answered all queries, but some replies are still being written.
        let written = async {
            while !connections.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(SHUTDOWN_TIMEOUT, written).await;
        Ok(())
    })
}

/// Returns the object that starts the tasks of this thread. Panics in tasks are counted and logged. `too_many` is set
/// after too many panics.
fn tasks(shared: &Arc<Shared>, too_many: &Rc<RefCell<Option<TooMany>>>) -> Tasks {
    let (shared, too_many) = (Arc::clone(shared), Rc::clone(too_many));
    let panics = RefCell::new(PanicBudget::default());
    Tasks::new(move |panic, cost| {
        if let Err(error) =
            panics.borrow_mut().record(panic, cost, clock::now(), shared.metrics().tcp())
        {
            too_many.replace(Some(error));
        }
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

/// State that the connections of all TCP clients share.
#[derive(Clone)]
struct TcpService {
    shared: Arc<Shared>,
    tasks: Tasks,
    /// Number of octets in the replies queued on all connections.
    backlogs: Backlogs,
}

/// Accepts client connections, and distributes their queries to the workers round robin.
async fn accept(
    service: TcpService,
    listener: Rc<TcpListener>,
    connections: Rc<Connections>,
    mut stopping: watch::Receiver<bool>,
) {
    let TcpService { shared, tasks, .. } = &service;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let Ok((stream, peer)) = accepted else {
            // Most likely, the process has no file descriptor left. A descriptor may become free
            // soon.
            shared.metrics().tcp().count(Count::TcpAcceptFailed);
            tokio::time::sleep(STOP_CHECK).await;
            continue;
        };
        let settings = shared.settings.load();
        let limits = settings.config.limits;
        // Connections of disallowed clients, and connections beyond a limit, are closed
        // immediately, so that these clients do not wait for a reply.
        let ip = peer.ip().to_canonical();
        if !settings.allows(ip) {
            shared.metrics().tcp().count(Count::TcpRefusedAcl);
            continue;
        }
        let place = match connections.enter(ip, limits.tcp_connections, limits.tcp_per_client) {
            Admission::Free(place) => place,
            Admission::Displacing(place) => {
                // Yielding lets the displaced connection close its file descriptor first.
                tokio::task::yield_now().await;
                place
            }
            Admission::Refused => {
                shared.metrics().tcp().count(Count::TcpRefusedLimit);
                continue;
            }
        };
        // Without TCP_NODELAY, replies would wait for the client's acknowledgements. Setting the
        // option fails only for a closed connection.
        let _ = stream.set_nodelay(true);
        let bounds = ConnectionLimits { pipeline: limits.tcp_pipeline, idle: limits.tcp_idle };
        let (service, stopping) = (service.clone(), stopping.clone());
        tasks.spawn(move || format!("a connection of {ip}"), async move {
            let mut worker = rand::random_range(0..service.shared.worker_inboxes.len());
            let hand_on = |bytes, reply: ToStream| {
                worker = (worker + 1) % service.shared.worker_inboxes.len();
                service.hand_on(WorkerId(worker), ip, bytes, &reply);
            };
            let activity = place.activity();
            let backlogs = &service.backlogs;
            let end = stream::serve(stream, bounds, backlogs, activity, stopping, hand_on).await;
            let metrics = service.shared.metrics();
            match end {
                ConnectionEnd::Usual => {}
                ConnectionEnd::Unread => metrics.tcp().count(Count::TcpUnread),
                ConnectionEnd::Displaced => metrics.tcp().count(Count::TcpDisplaced),
            }
            drop(place);
        });
    }
}

impl TcpService {
    /// Passes a client's message to a worker. If a panic occurs, the message is answered with
    /// SERVFAIL.
    fn hand_on(&self, worker: WorkerId, ip: IpAddr, bytes: Vec<u8>, reply: &ToStream) {
        let mut held = Some(bytes);
        let handed_on = catch(|| {
            #[cfg(test)]
            crate::guard::panic_if_named(
                "defect-client",
                held.as_ref().and_then(|b| b.get(12..)).unwrap_or_default(),
            );
            if let Some(bytes) = held.take() {
                let client = Client::Stream(Transport::Tcp, ip, reply.clone());
                self.shared.worker_inboxes[worker.0].post(WorkerMessage::Query { bytes, client });
            }
        });
        if let Err(panic) = handed_on {
            let bytes = held.unwrap_or_default();
            self.tasks.report(&panic, &cost_of(&describe(&bytes)));
            let mut servfail = Vec::new();
            let answer = |cookie| self.shared.cookies.answer(cookie, ip);
            write_servfail(&mut servfail, &bytes, Transport::Tcp, answer);
            // Sending fails if the client has closed the connection.
            let _ = reply.send(servfail);
        }
    }
}
