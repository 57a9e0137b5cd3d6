//! A worker: its sockets, the client queries that wait, and the resolver that they wait for, a turn
//! at a time.
//!
//! ```text
//! turn: wait ─► client datagrams ───► Frontend::on_query ─┐
//!          ├──► upstream datagrams ─► Resolver ─► Landed ─┼─► Frontend::resume ─► replies ─┐
//!          ├──► inbox: TCP, other workers ────────────────┤                                ├─► flush
//!          └──► timers ─────────────► Resolver ───────────┴─► upstream queries ────────────┘
//! ```

mod sockets;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use method::units::Nanos;
use net::batch::{OFFLOAD_LEN, ReceiveBatch};
use net::clock;
use net::socket::Endpoint;

use super::defects::Defects;
use super::explain::Trace;
use super::frontend::Frontend;
use super::intake::Intake;
use super::lateness::Lateness;
use super::mail::Mail;
use super::network::{FIRST_RINGS, INBOX, Network};
use super::past_stack::Rings;
use super::replies::Replies;
use super::shared::Shared;
use crate::client::query;
use crate::guard::{self, Panic};
use crate::ids::WorkerId;
use crate::name::text;
use crate::observe::Observer;
use crate::resolver::Resolver;
use crate::resolver::upstreams::ports;
use crate::resolver::waiter::{Waiter, Waiting};
use crate::transport::client::Client;

/// The longest wait: then the worker looks whether it should end.
const IDLE: Duration = Duration::from_millis(100);
/// Longest time from the filter's redirection of a packet to its appearance in a ring.
const SHOWN: Nanos = Nanos::from_millis(10);
/// Longest time for which rings are read after a stop. Reading full rings takes less.
const READ_OUT: Nanos = Nanos::from_millis(500);

pub(super) struct Worker {
    id: WorkerId,
    shared: Arc<Shared>,
    inbox: Receiver<Mail>,
    frontend: Frontend,
    resolver: Resolver<Network>,
    /// What comes and goes past the stack.
    rings: Vec<Rings>,
    /// When the rings are asked again what they have lost.
    losses_due: Nanos,
    /// Datagrams that came by the rings for other workers, whose inboxes were full.
    undelivered: u64,
    intake: Intake,
    /// One for each socket of clients.
    lateness: Vec<Lateness>,
    defects: Defects,
    now: Nanos,
}

/// What a worker serves with.
pub(super) struct Served {
    /// Its sockets, one per address.
    pub(super) endpoints: Vec<Endpoint>,
    /// It counts what the kernel drops on them; of workers that share sockets only the one with the
    /// lowest number does.
    pub(super) counts_drops: bool,
    /// Its rings, beside them.
    pub(super) rings: Vec<Rings>,
}

impl Worker {
    /// A worker that serves with these. `observer` is told of what the worker does.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub(super) fn new(
        id: WorkerId,
        shared: Arc<Shared>,
        served: Served,
        inbox: Receiver<Mail>,
        observer: Option<Observer>,
    ) -> std::io::Result<Worker> {
        let settings = shared.settings.load_full();
        let of_upstreams = observer.as_ref().and_then(Observer::of_upstreams);
        let of_clients = observer.as_ref().and_then(Observer::of_clients);
        let Served { endpoints, counts_drops, rings } = served;
        let lateness = vec![Lateness::default(); endpoints.len()];
        let network = Network::new(id, Arc::clone(&shared), &endpoints, &rings, of_upstreams)?;
        let replies = Replies::new(endpoints, rings.len(), counts_drops, of_clients);
        let (common, same) = (Arc::clone(&shared), Arc::clone(&settings));
        Ok(Worker {
            id,
            frontend: Frontend::new(id, common, same, replies, observer),
            resolver: Resolver::new(id, settings, shared.common.clone(), network),
            shared,
            inbox,
            rings,
            losses_due: Nanos(0),
            undelivered: 0,
            intake: Intake::default(),
            lateness,
            defects: Defects::default(),
            now: clock::now(),
        })
    }

    /// Works until it is told to stop, and then until the last client query has its reply.
    pub(super) fn run(mut self) {
        let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
        let mut ready = Vec::with_capacity(256);
        let mut stopped_at = None;
        loop {
            if stopped_at.is_none() && self.shared.stopping.load(Ordering::Relaxed) {
                // Queries that have not been read stay in the sockets: those of systemd are served
                // by the next process.
                for endpoint in self.frontend.replies().endpoints() {
                    let _ = self.resolver.outside().poller.remove(endpoint);
                }
                self.rings.iter().for_each(|rings| rings.destinations.leave_clients());
                self.look_at_the_clock();
                stopped_at = Some(self.now);
            }
            if let Some(stopped_at) = stopped_at {
                // Queries that came over TCP before may still be in the inbox, and others in the
                // rings.
                let is_read = self.read_inbox() & self.read_rings_out(stopped_at);
                self.flush();
                // Another worker may wait for a question for which no query of this one waits.
                if is_read && self.frontend.waiting() == 0 && self.resolver.is_idle() {
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
                    tracing::error!("worker {}: polling its sockets failed: {error}", self.id.0);
                    std::thread::sleep(IDLE);
                }
            }
            self.look_at_the_clock();
            self.take_settings();
            // What is under way comes before what is new.
            for &token in &ready {
                match ports::of_token(token) {
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

    /// Reads the packets that a stop leaves in the rings. Returns true if all queries that the filter
    /// redirected before the stop have been read: the rings were empty when they were read [`SHOWN`]
    /// after it. A flood of our source ports must not delay the end of the stop, hence [`READ_OUT`].
    fn read_rings_out(&mut self, stopped_at: Nanos) -> bool {
        // Before the rings are read: packets may come into them while this thread is preempted.
        self.look_at_the_clock();
        let since = self.now.since(stopped_at);
        let mut is_empty = true;
        for number in 0..self.rings.len() {
            is_empty &= self.read_rings(number);
        }
        self.rings.is_empty() || (is_empty && since >= SHOWN) || since >= READ_OUT
    }

    fn look_at_the_clock(&mut self) {
        self.now = clock::now();
        self.resolver.set_now(self.now);
        self.frontend.set_now(self.now);
    }

    /// Looks whether the configuration has been replaced.
    fn take_settings(&mut self) {
        let current = self.shared.settings.load();
        if !Arc::ptr_eq(&current, self.frontend.settings()) {
            self.resolver.take_settings(Arc::clone(&current));
            self.frontend.take_settings(Arc::clone(&current));
        }
    }

    /// Does a client query's work. If it panics, its client gets SERVFAIL.
    #[inline]
    fn on_query(&mut self, client: &Client, bytes: &[u8]) {
        let Worker { frontend, resolver, .. } = self;
        resolver.begin_work();
        if let Err(panic) = guard::catch(|| frontend.on_query(resolver, client, bytes)) {
            let _ = guard::catch(|| frontend.fail_query(client, bytes));
            self.on_panic(&panic, || query::describe(bytes));
        }
        self.resume();
    }

    /// Does the work of a query that is to be explained. If it panics, there is no explanation.
    fn on_explain(&mut self, client: IpAddr, bytes: &[u8], trace: Box<Trace>) {
        let Worker { frontend, resolver, .. } = self;
        resolver.begin_work();
        if let Err(panic) = guard::catch(|| frontend.on_explain(resolver, client, bytes, trace)) {
            self.on_panic(&panic, || query::describe(bytes));
        }
        self.resume();
    }

    /// Does a question's work. If it panics, those who wait for it are told that it has failed.
    #[inline]
    fn resolve(&mut self, work: impl FnOnce(&mut Resolver<Network>)) {
        self.resolver.begin_work();
        if let Err(panic) = guard::catch(|| work(&mut self.resolver)) {
            let question = self.resolver.current();
            self.on_panic(&panic, || question.unwrap_or_default());
        }
        self.resume();
    }

    /// Lets those go on whose questions are over. If that panics, their clients get SERVFAIL.
    #[inline]
    fn resume(&mut self) {
        while let Some(landed) = self.resolver.next_landed() {
            for Waiting { waiter: Waiter::Job(id), .. } in landed.waiters {
                let Worker { frontend, resolver, .. } = self;
                resolver.begin_work();
                let mut job = frontend.take(id);
                if let Err(panic) =
                    guard::catch(|| frontend.resume(resolver, &mut job, landed.outcome.clone()))
                {
                    let name = job.as_ref().map(|job| text(job.inquiry.name().wire()));
                    let _ = guard::catch(|| job.into_iter().for_each(|job| frontend.fail(job)));
                    self.on_panic(&panic, || name.unwrap_or_default());
                }
            }
        }
    }

    /// What was being worked on is given up; too many panics are not survived.
    #[cold]
    fn on_panic(&mut self, panic: &Panic, question: impl FnOnce() -> String) {
        let _ = guard::catch(|| self.resolver.abandon());
        let question = guard::catch(question).unwrap_or_default();
        self.defects.note_query(panic, &question, self.now, self.shared.metrics().worker(self.id));
    }
}
