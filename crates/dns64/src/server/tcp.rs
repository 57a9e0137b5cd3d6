//! The thread for TCP: clients, upstreams, and the metrics listener, asynchronous; the workers do the DNS.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use super::mail::Mail;
use super::shared::Shared;
use crate::guard::catch_async;
use crate::metrics::{self, Count};
use crate::resolver::outside::TcpQuestion;
use crate::transport::Transport;
use crate::transport::client::Client;
use crate::transport::connections::Connections;
use crate::transport::stream::{self, Bounds};
use crate::transport::upstream_tcp;

/// How often it is looked at whether the server stops.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// How long a server that stops waits for clients to take their last replies.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves until the server stops.
///
/// # Errors
/// If the process has no file descriptor left.
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
        let connections = Rc::new(Connections::default());
        for listener in listeners {
            let listener = TcpListener::from_std(listener)?;
            spawn_local(accept(listener, Arc::clone(shared), Rc::clone(&connections), stopping.clone()));
        }
        if let Some(listener) = metrics_listener {
            let (metrics, cache) = (shared.metrics().clone(), Arc::clone(&shared.common.cache));
            let text = move || metrics::to_text(&metrics, &cache);
            spawn_local(metrics::http::serve(TcpListener::from_std(listener)?, text));
        }
        let (mail, most) = (Arc::clone(shared), shared.settings.load().upstream_connections);
        spawn_local(upstream_tcp::run(most, questions, move |question, message| {
            mail.mailboxes[question.worker.0].post(Mail::TcpAnswer { fetch: question.fetch, message });
        }));
        while !shared.ended.load(Ordering::Relaxed) {
            stop.send_if_modified(|stop| shared.stopping.load(Ordering::Relaxed) && !std::mem::replace(stop, true));
            tokio::time::sleep(STOP_CHECK).await;
        }
        let _ = stop.send(true);
        // The workers have answered everything; it is on its way.
        let written = async {
            while !connections.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(LAST_WORDS, written).await;
        Ok(())
    })
}

/// Accepts connections of clients, and hands their queries to the workers in turn.
async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    connections: Rc<Connections>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of file descriptors, most likely; a moment later there may be one.
            shared.metrics().tcp().count(Count::TcpAcceptFailed);
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
        let Some(place) = connections.enter(ip, limits.tcp_connections, limits.tcp_per_client) else {
            shared.metrics().tcp().count(Count::TcpRefusedLimit);
            continue;
        };
        // Replies that wait for one another would wait for the client's acknowledgements. It can only fail for a client that
        // has gone.
        let _ = stream.set_nodelay(true);
        let bounds = Bounds { pipeline: limits.tcp_pipeline, idle: limits.tcp_idle };
        let (shared, stopping) = (Arc::clone(&shared), stopping.clone());
        let mut worker = rand::random_range(0..shared.mailboxes.len());
        spawn_local(async move {
            let hand_on = |bytes, reply| {
                worker = (worker + 1) % shared.mailboxes.len();
                let client = Client::Stream(Transport::Tcp, ip, reply);
                shared.mailboxes[worker].post(Mail::Query { bytes, client });
            };
            let served = catch_async(stream::serve(stream, bounds, stopping, hand_on)).await;
            if let Err(panic) = served {
                shared.metrics().tcp().count(Count::Defect);
                tracing::error!("a defect of dns64d cost {ip} a connection: {panic}");
            }
            drop(place);
        });
    }
}
