//! A worker: sockets, waiting client queries and their resolver. A *turn* is one iteration of the worker's event loop.
//!
//! ```text
//! turn: wait ─► client datagrams ───► Frontend::on_query ─┐
//!          ├──► upstream datagrams ► Resolver ► Completed ┼─► Frontend::resume ─► replies ─┐
//!          ├──► inbox: TCP, other workers ────────────────┤                                ├─► flush
//!          └──► timers ─────────────► Resolver ───────────┴─► upstream queries ────────────┘
//! ```

mod sockets;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use net::batch::{OFFLOAD_LEN, ReceiveBatch};
use net::clock;
use net::socket::Endpoint;
use units::Nanos;

use super::explain::Trace;
use super::frontend::{Frontend, Progress};
use super::inbox::WorkerMessage;
use super::jobs::Jobs;
use super::lateness::Lateness;
use super::network::{FIRST_RINGS, INBOX, Network};
use super::panics::PanicBudget;
use super::quota::QueryQuota;
use super::replies::Replies;
use super::shared::Shared;
use super::xdp::Rings;
use crate::client::query;
use crate::guard::{self, Panic};
use crate::ids::{FetchId, WorkerId};
use crate::name::text;
use crate::observe::Observer;
use crate::resolver::Resolver;
use crate::resolver::outcome::Outcome;
use crate::resolver::upstreams::ports;
use crate::resolver::waiter::{QueuedWaiter, Waiter};
use crate::transport::client::Client;

/// Maximum time for which an idle worker waits before it checks whether to stop.
const IDLE: Duration = Duration::from_millis(100);
/// Maximum time between the redirection of a packet by the XDP filter and the packet's arrival in an AF_XDP ring.
const SHOWN: Nanos = Nanos::from_millis(10);
/// Maximum time for which a worker continues to read its AF_XDP rings when the server stops. Full rings can be emptied
/// in less time.
const READ_OUT: Nanos = Nanos::from_millis(500);

pub(super) struct Worker {
    id: WorkerId,
    shared: Arc<Shared>,
    inbox: Receiver<WorkerMessage>,
    frontend: Frontend,
    /// Client queries that wait for upstreams.
    jobs: Jobs,
    resolver: Resolver<Network>,
    /// AF_XDP rings of this worker.
    rings: Vec<Rings>,
    /// Time at which the drop counters of the AF_XDP rings are read next.
    next_loss_check: Nanos,
    /// Number of datagrams for other workers that were lost because their inboxes were full.
    undelivered: u64,
    quota: QueryQuota,
    /// For each client socket, the age of its queued datagrams.
    lateness: Vec<Lateness>,
    panics: PanicBudget,
    now: Nanos,
}

/// Client sockets and AF_XDP rings of a worker.
pub(super) struct Served {
    /// Sockets, one per address.
    pub(super) endpoints: Vec<Endpoint>,
    /// True if this worker counts the kernel's drops on these sockets. Among workers that share
    /// sockets, only the one with the lowest index counts them.
    pub(super) counts_drops: bool,
    /// AF_XDP rings, in addition to the sockets.
    pub(super) rings: Vec<Rings>,
}

impl Worker {
    /// Creates a worker. `observer` receives reports of its queries.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptor left.
    pub(super) fn new(
        id: WorkerId,
        shared: Arc<Shared>,
        served: Served,
        inbox: Receiver<WorkerMessage>,
        observer: Option<Observer>,
    ) -> std::io::Result<Worker> {
        let settings = shared.settings.load_full();
        let of_upstreams = observer.as_ref().and_then(Observer::upstream_tap);
        let of_clients = observer.as_ref().and_then(Observer::client_tap);
        let Served { endpoints, counts_drops, rings } = served;
        let lateness = vec![Lateness::default(); endpoints.len()];
        let network = Network::new(id, Arc::clone(&shared), &endpoints, &rings, of_upstreams)?;
        let replies = Replies::new(endpoints, rings.len(), counts_drops, of_clients);
        let (common, same) = (Arc::clone(&shared), Arc::clone(&settings));
        Ok(Worker {
            id,
            frontend: Frontend::new(id, common, same, replies, observer),
            jobs: Jobs::default(),
            resolver: Resolver::new(id, settings, shared.common.clone(), network),
            shared,
            inbox,
            rings,
            next_loss_check: Nanos(0),
            undelivered: 0,
            quota: QueryQuota::default(),
            lateness,
            panics: PanicBudget::default(),
            now: clock::now(),
        })
    }

    /// Runs until a stop is requested, and then until the last client query has been answered.
    pub(super) fn run(mut self) {
        let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
        let mut ready = Vec::with_capacity(256);
        let mut stopped_at = None;
        loop {
            if stopped_at.is_none() && self.shared.stopping.load(Ordering::Relaxed) {
                // Unread queries stay in the sockets. Sockets passed by systemd are then served by
                // the next process.
                for endpoint in self.frontend.replies().endpoints() {
                    let _ = self.resolver.outside().poller.remove(endpoint);
                }
                self.rings.iter().for_each(|rings| rings.destinations.stop_redirecting_clients());
                self.read_clock();
                stopped_at = Some(self.now);
            }
            if let Some(stopped_at) = stopped_at {
                // Queries received over TCP may still be in the inbox, and others in the rings.
                let is_read = self.read_inbox() & self.read_rings_out(stopped_at);
                self.flush();
                // Another worker may wait for a fetch that no query of this worker waits for.
                if is_read && self.jobs.len() == 0 && self.resolver.is_idle() {
                    break;
                }
            }
            let idle = if stopped_at.is_some() { SHOWN.into() } else { IDLE };
            let timeout = self
                .resolver
                .next_due()
                .map_or(idle, |at| Duration::from(at.since(self.now)).min(idle));
            ready.clear();
            match self.resolver.outside().poller.wait(timeout) {
                Ok(tokens) => ready.extend(tokens),
                Err(error) => {
                    tracing::error!("worker {}: cannot poll its sockets: {error}", self.id.0);
                    std::thread::sleep(IDLE);
                }
            }
            self.read_clock();
            self.take_settings();
            // Process pending work before new queries.
            for &token in &ready {
                match ports::from_token(token) {
                    Some(port) => self.read_upstream(port, &mut batch),
                    None if token == INBOX => {
                        self.read_inbox();
                    }
                    None => {}
                }
            }
            for &token in &ready {
                match token {
                    number if number < FIRST_RINGS => self.read_clients(number, &mut batch),
                    token if token < INBOX => {
                        self.read_rings(token - FIRST_RINGS);
                    }
                    _ => {}
                }
            }
            while let Some(id) = self.resolver.next_timer() {
                self.resolve(|resolver| resolver.on_timer(id));
            }
            self.flush();
        }
    }

    /// After a stop, reads the packets that remain in the AF_XDP rings. Returns true if all queries redirected before
    /// the stop have been read, or if the time [`READ_OUT`] has passed since the stop. This time limit exists because a
    /// flood of packets to the upstream ports must not delay the stop. All queries have certainly been read once two
    /// conditions hold: the rings are empty, and at least [`SHOWN`] has passed since the stop.
    fn read_rings_out(&mut self, stopped_at: Nanos) -> bool {
        // Read the clock before the rings, because packets may arrive while this thread is
        // preempted.
        self.read_clock();
        let since = self.now.since(stopped_at);
        let mut is_empty = true;
        for number in 0..self.rings.len() {
            is_empty &= self.read_rings(number);
        }
        self.rings.is_empty() || (is_empty && since >= SHOWN) || since >= READ_OUT
    }

    fn read_clock(&mut self) {
        self.now = clock::now();
        self.resolver.set_now(self.now);
        self.frontend.set_now(self.now);
    }

    /// Switches to new settings if the settings have been replaced.
    fn take_settings(&mut self) {
        let current = self.shared.settings.load();
        if !Arc::ptr_eq(&current, self.frontend.settings()) {
            self.resolver.take_settings(Arc::clone(&current));
            self.frontend.take_settings(Arc::clone(&current));
        }
    }

    /// Processes a client query. If processing panics, the client gets SERVFAIL.
    #[inline]
    fn on_query(&mut self, client: &Client, bytes: &[u8]) {
        let Worker { frontend, jobs, resolver, .. } = self;
        resolver.begin_work();
        if let Err(panic) = guard::catch(|| frontend.on_query(resolver, jobs, client, bytes)) {
            let _ = guard::catch(|| frontend.fail_query(client, bytes));
            self.on_panic(&panic, || query::describe(bytes));
        }
        self.resume();
    }

    /// Processes a query whose answer is to be explained (`explain`). If processing panics, there is no explanation.
    fn on_explain(&mut self, client: IpAddr, bytes: &[u8], trace: Box<Trace>) {
        let Worker { frontend, jobs, resolver, .. } = self;
        resolver.begin_work();
        let explain = || frontend.on_explain(resolver, jobs, client, bytes, trace);
        if let Err(panic) = guard::catch(explain) {
            self.on_panic(&panic, || query::describe(bytes));
        }
        self.resume();
    }

    /// Runs a step of the resolver. If the step panics, the fetch being processed fails for all its waiters.
    #[inline]
    fn resolve(&mut self, work: impl FnOnce(&mut Resolver<Network>)) {
        self.resolver.begin_work();
        if let Err(panic) = guard::catch(|| work(&mut self.resolver)) {
            let question = self.resolver.current();
            self.on_panic(&panic, || question.unwrap_or_default());
        }
        self.resume();
    }

    /// Resumes each client query that waited for a fetch, if the fetch is now complete. If the processing of a query
    /// panics, its client gets SERVFAIL.
    #[inline]
    fn resume(&mut self) {
        while let Some(completed) = self.resolver.next_completed() {
            for QueuedWaiter { waiter, .. } in completed.waiters {
                let id = match waiter {
                    Waiter::Job(id) => id,
                    Waiter::Validation(fetch) => {
                        self.resume_validation(fetch, &completed.outcome);
                        continue;
                    }
                };
                let Worker { frontend, jobs, resolver, .. } = self;
                resolver.begin_work();
                let Some(job) = jobs.get_mut(id) else { continue };
                let outcome = completed.outcome.clone();
                match guard::catch(|| frontend.resume(resolver, job, outcome)) {
                    Ok(Progress::Waiting) => {}
                    Ok(Progress::Ended) => drop(jobs.remove(id)),
                    Err(panic) => {
                        let job = jobs.remove(id);
                        let name = job.as_ref().map(|job| text(job.inquiry.name().wire()));
                        let _ = guard::catch(|| job.into_iter().for_each(|job| frontend.fail(job)));
                        self.on_panic(&panic, || name.unwrap_or_default());
                    }
                }
            }
        }
    }

    /// Continues a validation that waited for a fetch. If this panics, the fetch with the answer to be validated fails.
    fn resume_validation(&mut self, fetch: FetchId, outcome: &Outcome) {
        self.resolver.begin_work();
        if let Err(panic) = guard::catch(|| self.resolver.on_zone_records(fetch, outcome)) {
            let question = self.resolver.current();
            self.on_panic(&panic, || question.unwrap_or_default());
        }
    }

    /// Abandons the current work item after a panic. After too many panics the thread exits.
    #[cold]
    fn on_panic(&mut self, panic: &Panic, question: impl FnOnce() -> String) {
        let _ = guard::catch(|| self.resolver.abandon());
        let question = guard::catch(question).unwrap_or_default();
        self.panics.record_query(panic, &question, self.now, self.shared.metrics().worker(self.id));
    }
}
