//! The thread for TCP: clients (RFC 7766), upstreams, and the metrics listener, asynchronous; the workers do the DNS.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;
use wire::template::HEADER_LEN;
use wire::view::Message as View;

use super::mail::Mail;
use super::shared::Shared;
use crate::client::limiter::network;
use crate::config::LimitKeys;
use crate::metrics::{self, Count};
use crate::resolver::outside::{TcpFailure, TcpQuestion};
use crate::transport::framing::{read_message, write_message};

/// Questions to upstreams over TCP at once; others wait.
const UPSTREAM_CONNECTIONS: usize = 100;
/// Idle connections kept to an upstream.
const IDLE_CONNECTIONS: usize = 4;
/// How often it is looked at whether the server stops.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// How long a server that stops waits for clients to take their last replies.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Serves until the server stops.
pub(super) fn run(
    shared: &Arc<Shared>,
    listeners: Vec<std::net::TcpListener>,
    metrics_listener: Option<std::net::TcpListener>,
    questions: UnboundedReceiver<TcpQuestion>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let (stop, stopping) = watch::channel(false);
        let clients = Rc::new(Clients { open: RefCell::default(), stopping });
        for listener in listeners {
            spawn_local(accept(TcpListener::from_std(listener)?, Arc::clone(shared), Rc::clone(&clients)));
        }
        if let Some(listener) = metrics_listener {
            let (metrics, cache) = (shared.metrics().clone(), Arc::clone(&shared.common.cache));
            spawn_local(metrics::http::serve(TcpListener::from_std(listener)?, metrics, cache));
        }
        spawn_local(ask_upstreams(Arc::clone(shared), questions));
        while !shared.ended.load(Ordering::Relaxed) {
            stop.send_if_modified(|stop| shared.stopping.load(Ordering::Relaxed) && !std::mem::replace(stop, true));
            tokio::time::sleep(STOP_CHECK).await;
        }
        let _ = stop.send(true);
        // The workers have answered everything; it is on its way.
        let written = async {
            while clients.some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(LAST_WORDS, written).await;
        Ok(())
    })
}

// ---- clients ----

/// Connections by client (`limiter::network`), and whether they are to end.
struct Clients {
    open: RefCell<HashMap<u64, usize>>,
    stopping: watch::Receiver<bool>,
}

/// A connection that counts while it lives.
struct Place {
    clients: Rc<Clients>,
    network: u64,
}

impl Clients {
    /// Whether there is a connection.
    fn some(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    fn enter(self: &Rc<Clients>, ip: IpAddr, most: usize, most_each: usize) -> Option<Place> {
        let mut open = self.open.borrow_mut();
        let network = network(ip);
        if open.values().sum::<usize>() >= most || open.get(&network).copied().unwrap_or(0) >= most_each {
            return None;
        }
        *open.entry(network).or_default() += 1;
        Some(Place { clients: Rc::clone(self), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.clients.open.borrow_mut();
        if let Some(count) = open.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.network);
            }
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, clients: Rc<Clients>) {
    let mut stopping = clients.stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of file descriptors, most likely; a moment later there may be one.
            tokio::time::sleep(STOP_CHECK).await;
            continue;
        };
        let settings = shared.settings.load();
        let limits = settings.config.limits;
        // Others are closed at once: better than a connection on which nothing happens.
        let ip = peer.ip().to_canonical();
        if !settings.allows(ip) {
            shared.metrics().tcp().count(Count::TcpRefusedAcl);
            continue;
        }
        let Some(place) = clients.enter(ip, limits.tcp_connections, limits.tcp_per_client) else {
            shared.metrics().tcp().count(Count::TcpRefusedLimit);
            continue;
        };
        let (shared, stopping) = (Arc::clone(&shared), stopping.clone());
        spawn_local(async move {
            // However it ends, the client knows as much as we do.
            let _ = serve_connection(stream, ip, &shared, limits, stopping).await;
            drop(place);
        });
    }
}

/// Reads queries and hands them to the workers in turn; replies go back in the order in which they are ready.
async fn serve_connection(
    stream: TcpStream,
    ip: IpAddr,
    shared: &Arc<Shared>,
    limits: LimitKeys,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let idle = limits.tcp_idle;
    let (mut reader, writer) = stream.into_split();
    let (reply, replies) = mpsc::unbounded_channel();
    let free = Rc::new(Semaphore::new(limits.tcp_pipeline));
    let writing = spawn_local(write_replies(writer, replies, Rc::clone(&free), idle));
    let mut worker = rand::random_range(0..shared.mailboxes.len());
    while !writing.is_finished() {
        let read = tokio::select! {
            read = read_message(&mut reader, idle) => read,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let Ok(bytes) = read else { break };
        let Ok(permit) = free.acquire().await else { break };
        // Given back when its reply has been written.
        permit.forget();
        worker = (worker + 1) % shared.mailboxes.len();
        shared.mailboxes[worker].post(Mail::TcpQuery { bytes, from: ip, reply: reply.clone() });
    }
    // What has been asked is still answered: the writer ends with the last sender.
    drop(reply);
    let _ = writing.await;
    Ok(())
}

async fn write_replies(
    mut writer: OwnedWriteHalf,
    mut replies: UnboundedReceiver<Vec<u8>>,
    free: Rc<Semaphore>,
    patience: Duration,
) {
    while let Some(reply) = replies.recv().await {
        if !reply.is_empty() {
            let write = write_message(&mut writer, &reply);
            if !matches!(timeout(patience, write).await, Ok(Ok(()))) {
                break;
            }
        }
        free.add_permits(1);
    }
    free.close();
}

// ---- upstreams ----

/// Connections that wait for their next question.
type Idle = Rc<RefCell<HashMap<SocketAddr, Vec<TcpStream>>>>;

async fn ask_upstreams(shared: Arc<Shared>, mut questions: UnboundedReceiver<TcpQuestion>) {
    let room = Rc::new(Semaphore::new(UPSTREAM_CONNECTIONS));
    let idle = Idle::default();
    while let Some(question) = questions.recv().await {
        let (shared, room, idle) = (Arc::clone(&shared), Rc::clone(&room), Rc::clone(&idle));
        spawn_local(async move {
            let mut begun = false;
            let ask = async {
                let _permit = room.acquire().await.ok()?;
                begun = true;
                ask(&question, &idle).await.ok()
            };
            let answer = timeout(question.timeout, ask).await.ok().flatten();
            let message = answer.ok_or(if begun { TcpFailure::NoAnswer } else { TcpFailure::NoRoom });
            shared.mailboxes[question.worker.0].post(Mail::TcpAnswer { fetch: question.fetch, message });
        });
    }
}

async fn ask(question: &TcpQuestion, idle: &Idle) -> io::Result<Vec<u8>> {
    let kept = idle.borrow_mut().get_mut(&question.address).and_then(Vec::pop);
    if let Some(stream) = kept {
        // The upstream may have closed it meanwhile, or be gone without a word.
        if let Ok(Ok(answer)) = timeout(question.timeout / 2, ask_on(stream, question, idle)).await {
            return Ok(answer);
        }
    }
    let stream = TcpStream::connect(question.address).await?;
    stream.set_nodelay(true)?;
    ask_on(stream, question, idle).await
}

async fn ask_on(mut stream: TcpStream, question: &TcpQuestion, idle: &Idle) -> io::Result<Vec<u8>> {
    write_message(&mut stream, &question.query).await?;
    let answer = read_message(&mut stream, question.timeout).await?;
    let is_ours = View::new(&answer)
        .is_some_and(|view| view.is_response() && !view.is_truncated() && answer[..2] == question.query[..2]);
    if !is_ours || answer.len() < HEADER_LEN {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut idle = idle.borrow_mut();
    let kept = idle.entry(question.address).or_default();
    if kept.len() < IDLE_CONNECTIONS {
        kept.push(stream);
    }
    Ok(answer)
}
