//! An asynchronous thread for the connections of clients. There are at most two: one for TCP, and one for the encrypted
//! transports. Handshakes therefore take no time from TCP, the upstreams and the control socket.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use net::clock;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::panics::{PanicBudget, TooMany};
use super::shared::Shared;
use super::streams::{ClientStreams, ConnectionThread};
use crate::guard::Tasks;
use crate::transport::connections::Connections;

/// Interval at which the thread checks whether the workers have ended.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// Time for which a stopping server waits so that every task of the thread runs at least once. The tasks then
/// detect the stop, and pass on the messages that they have already read.
const HEARD: Duration = Duration::from_millis(5);
/// Time for which a stopping server waits for clients to receive their last replies.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a thread until the server stops. `begin` starts its tasks. The value that `begin` returns is dropped at the end of
/// the thread. `is_closed` is set when the thread has stopped accepting queries.
///
/// # Errors
/// Returns the error of `begin`, or an error if the process has no file descriptor left.
///
/// # Panics
/// Panics if too many tasks have panicked. Each panic of a task is counted and logged, and ends only the work of that
/// task.
pub(super) fn run<T>(
    thread: ConnectionThread,
    shared: &Arc<Shared>,
    is_closed: &AtomicBool,
    begin: impl FnOnce(&ClientStreams) -> io::Result<T>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let too_many = Rc::new(RefCell::new(None));
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let (stop, stopping) = watch::channel(false);
        let connections = Rc::new(Connections::default());
        let streams = ClientStreams {
            thread,
            shared: Arc::clone(shared),
            tasks: tasks(thread, shared, &too_many),
            connections: Rc::clone(&connections),
            stopping,
        };
        let _until_end = begin(&streams)?;
        while !shared.ended.load(Ordering::Relaxed) {
            let closes = stop.send_if_modified(|stop| {
                shared.is_closing.load(Ordering::Relaxed) && !std::mem::replace(stop, true)
            });
            if closes {
                // Within this time, all tasks see the flag, and pass on the messages that they have
                // already read.
                tokio::time::sleep(HEARD).await;
                is_closed.store(true, Ordering::Release);
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
        // QUIC sends the end of its connections in tasks.
        tokio::time::sleep(HEARD).await;
        Ok(())
    })
}

/// Returns the object that starts the tasks of a thread. Panics in tasks are counted and logged. `too_many` is set
/// after too many panics.
fn tasks(
    thread: ConnectionThread,
    shared: &Arc<Shared>,
    too_many: &Rc<RefCell<Option<TooMany>>>,
) -> Tasks {
    let (shared, too_many) = (Arc::clone(shared), Rc::clone(too_many));
    let panics = RefCell::new(PanicBudget::default());
    Tasks::new(move |panic, cost| {
        let metrics = thread.counters(shared.metrics());
        if let Err(error) = panics.borrow_mut().record(panic, cost, clock::now(), metrics) {
            too_many.replace(Some(error));
        }
    })
}
