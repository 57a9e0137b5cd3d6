//! Records of queries for external readers: the query log and dnstap.
//!
//! ```text
//! workers, TCP ─► Observer ─► queue ─► a thread ─► query log: a file, or standard error
//!                   │  └────► queue ─► a thread ─► dnstap: a reader at a socket
//!                   └ queue full: dropped and counted
//! ```
//!
//! Threads that serve clients never wait for the writing threads or for the readers. There is no
//! [`Observer`] if neither the query log nor dnstap is configured.

mod dnstap;
mod query_log;
pub(crate) mod queue;
pub(crate) mod standard_error;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::config::{Config, LogTarget};
use crate::guard::{catch, guard_thread};
use crate::metrics::{Count, Metrics, WorkerMetrics};

pub(crate) use self::dnstap::{End, Ends, Message, MessageKind, Tap};
pub(crate) use self::query_log::Entry;

use self::query_log::Lines;

/// Time limit for writing all queued records when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between checks that determine whether the writing threads have ended.
const TICK: Duration = Duration::from_millis(5);

/// Handle that one thread uses to report queries to the query log and to dnstap.
#[derive(Clone)]
pub(crate) struct Observer {
    log: Option<Lines>,
    tap: Option<Tap>,
}

impl Observer {
    /// Logs an answered query if it is part of the sample. The function `entry` creates the log entry. It is called
    /// only for queries in the sample.
    #[inline]
    pub(crate) fn answered(&mut self, metrics: &WorkerMetrics, entry: impl FnOnce() -> Entry) {
        if let Some(log) = &mut self.log
            && log.is_due()
            && !log.put(entry())
        {
            metrics.count(Count::LogDropped);
        }
    }

    /// Returns the dnstap handle for messages to and from clients. Returns `None` if these messages are not copied.
    pub(crate) fn client_tap(&self) -> Option<Tap> {
        self.tap.clone().filter(Tap::takes_clients)
    }

    /// Returns the dnstap handle for messages to and from upstreams. Returns `None` if these messages are not copied.
    pub(crate) fn upstream_tap(&self) -> Option<Tap> {
        self.tap.clone().filter(Tap::takes_upstreams)
    }
}

/// Output of the query log, and identity for dnstap. The output is opened before the process drops its privileges.
pub(crate) struct OpenOutputs {
    log: Option<Box<dyn query_log::Target>>,
    /// Identity of the server in dnstap.
    identity: String,
}

impl OpenOutputs {
    /// Opens the configured output of the query log.
    ///
    /// # Errors
    /// Returns an error if the file of the query log cannot be opened or created.
    pub(crate) fn new(config: &Config) -> io::Result<OpenOutputs> {
        let log: Option<Box<dyn query_log::Target>> = match &config.query_log.to {
            None => None,
            Some(LogTarget::Stderr) => Some(Box::new(standard_error::open()?)),
            Some(LogTarget::File(path)) => Some(Box::new(query_log::append_to(path)?)),
        };
        Ok(OpenOutputs { log, identity: dnstap::identity(&config.dnstap) })
    }
}

/// Threads that write the query log and the dnstap messages.
#[derive(Default)]
pub(crate) struct Writers {
    threads: Vec<JoinHandle<()>>,
    /// True if the file of the query log must be reopened.
    reopen: Arc<AtomicBool>,
}

impl Writers {
    /// Starts the threads. Returns the threads and the observer that supplies their input. The
    /// observer is `None` if neither the query log nor dnstap is configured.
    ///
    /// # Errors
    /// Returns an error if the system cannot create a thread.
    pub(crate) fn start(
        config: &Config,
        opened: OpenOutputs,
        metrics: &Metrics,
    ) -> io::Result<(Writers, Option<Observer>)> {
        let mut writers = Writers::default();
        let log = opened.log.map(|target| {
            let (lines, writer) =
                query_log::lines(&config.query_log, target, Arc::clone(&writers.reopen));
            let metrics = metrics.clone();
            let write = move || writer.run(metrics.log_writer());
            writers.begin("query-log", write).map(|()| lines)
        });
        let log = log.transpose()?;
        let tap = config.dnstap.socket.as_ref().map(|socket| {
            let (tap, writer) = dnstap::tap(&config.dnstap, socket, &opened.identity);
            let metrics = metrics.clone();
            let write = move || writer.run(metrics.tap_writer());
            writers.begin("dnstap", write).map(|()| tap)
        });
        let tap = tap.transpose()?;
        let is_wanted = log.is_some() || tap.is_some();
        Ok((writers, is_wanted.then_some(Observer { log, tap })))
    }

    /// Starts a writing thread. A panic ends the thread, and its further output is lost. Queries are still answered.
    fn begin(
        &mut self,
        name: &'static str,
        write: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let work = move || {
            guard_thread(|| {
                if let Err(panic) = catch(write) {
                    tracing::error!("internal error in {name}, which has ended: {panic}");
                }
            });
        };
        self.threads.push(thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }

    /// Requests that the file of the query log be reopened, because it may have been renamed.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    /// Waits until all queued records are written. The caller must first drop all senders. The wait has a time limit,
    /// because a reader may have stopped.
    pub(crate) fn end(&mut self) {
        let give_up = Instant::now() + SHUTDOWN_TIMEOUT;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < give_up {
                thread::sleep(TICK);
            }
        }
    }
}
