//! What is written down about queries for whoever wants to read it: the query log, and dnstap.
//!
//! ```text
//! workers, TCP ─► Observer ─► queue ─► a thread ─► query log: a file, or standard error
//!                   │  └────► queue ─► a thread ─► dnstap: a reader at a socket
//!                   └ no room: lost, and counted
//! ```
//!
//! Nobody who serves clients ever waits for these threads, nor for those who read. Where nothing is
//! configured there is no [`Observer`].

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

/// How long the threads may take for what waits when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How often it is looked whether they have.
const TICK: Duration = Duration::from_millis(5);

/// What a thread tells of the queries that it handles. Each thread has its own.
#[derive(Clone)]
pub(crate) struct Observer {
    log: Option<Lines>,
    tap: Option<Tap>,
}

impl Observer {
    /// A query has been answered; `entry` makes what is written of it, if something is.
    #[inline]
    pub(crate) fn answered(&mut self, metrics: &WorkerMetrics, entry: impl FnOnce() -> Entry) {
        if let Some(log) = &mut self.log
            && log.is_due()
            && !log.put(entry())
        {
            metrics.count(Count::LogDropped);
        }
    }

    /// Where messages to and from clients go, if they go anywhere.
    pub(crate) fn of_clients(&self) -> Option<Tap> {
        self.tap.clone().filter(Tap::takes_clients)
    }

    /// Where messages to and from upstreams go, if they go anywhere.
    pub(crate) fn of_upstreams(&self) -> Option<Tap> {
        self.tap.clone().filter(Tap::takes_upstreams)
    }
}

/// What was opened before the process gave up its privileges.
pub(crate) struct Opened {
    log: Option<Box<dyn query_log::Target>>,
    /// What dnstap calls the server.
    identity: String,
}

impl Opened {
    /// Opens what the configuration says.
    ///
    /// # Errors
    /// If the file of the query log cannot be opened or made.
    pub(crate) fn new(config: &Config) -> io::Result<Opened> {
        let log: Option<Box<dyn query_log::Target>> = match &config.query_log.to {
            None => None,
            Some(LogTarget::Stderr) => Some(Box::new(standard_error::open()?)),
            Some(LogTarget::File(path)) => Some(Box::new(query_log::append_to(path)?)),
        };
        Ok(Opened { log, identity: dnstap::identity(&config.dnstap) })
    }
}

/// The threads that write.
#[derive(Default)]
pub(crate) struct Writers {
    threads: Vec<JoinHandle<()>>,
    /// The file of the query log is to be opened again.
    reopen: Arc<AtomicBool>,
}

impl Writers {
    /// Begins them, and gives what they are told by; `None` if nothing is to be written.
    ///
    /// # Errors
    /// If the system has no room for a thread.
    pub(crate) fn start(
        config: &Config,
        opened: Opened,
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

    /// Begins a thread. A panic ends it, and costs what it would have written: queries are still
    /// answered.
    fn begin(
        &mut self,
        name: &'static str,
        write: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let work = move || {
            guard_thread(|| {
                if let Err(panic) = catch(write) {
                    tracing::error!("internal error, which ends {name}: {panic}");
                }
            });
        };
        self.threads.push(thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }

    /// The file of the query log may have been renamed: from now on lines go to one of its name.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    /// Returns when everything is written that was told, or when that takes too long: whoever reads
    /// it may have stopped. All that they are told by must be gone.
    pub(crate) fn end(&mut self) {
        let give_up = Instant::now() + LAST_WORDS;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < give_up {
                thread::sleep(TICK);
            }
        }
    }
}
