//! Resolution of a question: from the cache, or by upstream queries that are shared by all waiting
//! callers.
//!
//! ```text
//!                 ┌─ Ready: cached answer or cached failure
//! ask(key) ───────┼─ Rejected: a limit of the `budget` is reached, or the client query is too old
//!   waiter        └─ Pending ─► fetch ─► upstreams ─► outside: UDP, TCP, other workers
//!                                 ▲                        │
//!              timers ─► on_timer ┤                        │
//!                                 └── on_datagram, on_tcp, on_worker_result, on_unreachable
//!                                                          │
//! next_completed ◄── waiters, outcome ◄── cache ◄── answer ◄─┘
//! ```
//!
//! A [`Resolver`] belongs to one worker. It uses sockets only through [`ResolverIo`]. It reads no clock; the caller
//! sets the time. Callers are represented by an opaque [`Waiter`].

pub(crate) mod answer;
mod arriving;
mod asking;
mod budget;
pub(crate) mod cache;
mod fetch;
mod fetches;
pub(crate) mod outcome;
pub(crate) mod outside;
mod prefetcher;
pub(crate) mod question_claims;
pub(crate) mod scope;
#[cfg(test)]
mod tests;
mod timers;
pub(crate) mod ttl;
pub(crate) mod upstreams;
mod validating;
pub(crate) mod waiter;

use net::address::ServiceAddr;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use units::Nanos;

use self::budget::Budget;
use self::cache::{Cache, CacheLookup};
use self::fetch::KeyHash;
use self::fetches::Fetches;
use self::outcome::{Failure, Outcome};
use self::outside::{Access, ResolverIo};
use self::prefetcher::Prefetcher;
use self::question_claims::QuestionClaims;
use self::timers::{LEAST_DELAY, Timers};
use self::ttl::STALE_AFTER;
use self::upstreams::Upstreams;
use self::upstreams::ports::MOST_IDS;
use self::waiter::{
    Completed, Completion, NEVER, QueuedWaiter, Rejection, Resolve, ResolveRequest, Waiters,
};
use crate::config::Settings;
use crate::ids::{FetchId, WorkerId};
use crate::metrics::{Count, Metrics, WorkerMetrics};
use crate::name::{KeyBuf, text};
use crate::shares::Slots;
use crate::shares::client::ClientId;

/// Maximum age of a client query for which a fetch begins. Clients retry soon after this age. Two further fetches, one
/// after the other and each of up to `forwarding.timeout`, would make the client wait for more than four seconds in
/// total.
const PATIENCE: Nanos = Nanos::from_millis(2_100);
/// Ratio of the maximum number of fetches in flight to the maximum number of waiting client
/// queries. The ratio is above 1, because alias chains cause several fetches per client query.
const FETCHES_PER_JOB: usize = 2;

/// Returns the time at which a client query gets a stale answer, if a stale answer is available.
fn stale_at(request: ResolveRequest) -> Nanos {
    request.since + Nanos::from(STALE_AFTER)
}

/// State shared by the resolvers of all workers.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) cache: Arc<Cache>,
    pub(crate) question_claims: Arc<QuestionClaims>,
    pub(crate) metrics: Metrics,
}

/// The resolver of one worker: its fetches in flight and the state of the upstreams.
pub(crate) struct Resolver<O> {
    worker: WorkerId,
    settings: Arc<Settings>,
    common: Common,
    upstreams: Upstreams,
    fetches: Fetches,
    timers: Timers,
    budget: Budget,
    prefetcher: Prefetcher,
    completed: VecDeque<Completed>,
    /// Fetch that is being processed. It is abandoned if an error occurs.
    current: Option<FetchId>,
    /// Fetch that is being completed. Its waiters are notified even if an error occurs.
    completion: Option<Completion>,
    rng: StdRng,
    now: Nanos,
    outside: O,
}

impl<O: ResolverIo> Resolver<O> {
    /// Returns a resolver that has no fetches in flight.
    pub(crate) fn new(
        worker: WorkerId,
        settings: Arc<Settings>,
        common: Common,
        outside: O,
    ) -> Resolver<O> {
        let mut resolver = Resolver {
            worker,
            settings: Arc::clone(&settings),
            common,
            upstreams: Upstreams::default(),
            fetches: Fetches::default(),
            timers: Timers::default(),
            budget: Budget::new(),
            prefetcher: Prefetcher::default(),
            completed: VecDeque::new(),
            current: None,
            completion: None,
            rng: StdRng::from_rng(&mut rand::rng()),
            now: Nanos(0),
            outside,
        };
        resolver.take_settings(settings);
        resolver
    }

    /// Applies a new configuration. Servers that a fetch in flight uses are kept, even if they are not in the new
    /// configuration.
    pub(crate) fn take_settings(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
        self.upstreams.configure(&self.settings, &self.common.metrics);
        self.fetches.reroute(&self.settings);
        self.forget_removed_upstreams();
    }

    /// Removes upstreams that a reload removed from the configuration and that no fetch in flight
    /// uses.
    fn forget_removed_upstreams(&mut self) {
        self.upstreams.forget_removed(&self.fetches.servers(), &self.common.metrics);
        let source_ports = self.settings.config.forwarding.source_ports;
        let xdp: HashSet<ServiceAddr> =
            self.settings.upstreams.iter().filter(|one| one.xdp).map(|one| one.address).collect();
        let servers = self.upstreams.servers().map(|(id, server)| {
            let access = Access {
                address: server.address(),
                source_ports: if server.is_configured() { source_ports } else { 0 },
                xdp: xdp.contains(&server.address()),
            };
            (id, access)
        });
        self.outside.configure(servers);
    }

    /// Sets the current time.
    #[inline]
    pub(crate) fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Returns the interface to sockets and other workers.
    #[inline]
    pub(crate) fn outside(&mut self) -> &mut O {
        &mut self.outside
    }

    /// Returns the answer to a question if it is cached. Otherwise begins a fetch, unless one is in
    /// flight, and queues the waiter. The waiter's result is later returned by
    /// [`next_completed`](Resolver::next_completed).
    #[inline]
    pub(crate) fn ask(&mut self, question: &KeyBuf, request: ResolveRequest) -> Resolve {
        match self.cached(question, request.client, request.max_age) {
            Some(outcome) => Resolve::Ready(outcome),
            None => self.ask_upstreams(question, request),
        }
    }

    /// Returns the answer to a question, or the failure, if it is cached and at most `max_age` seconds old.
    #[inline]
    pub(crate) fn cached(
        &mut self,
        question: &KeyBuf,
        client: ClientId,
        max_age: u32,
    ) -> Option<Outcome> {
        let found = self.common.cache.get(question.octets(), self.now, &self.settings.ttl);
        let outcome = found.outcome(max_age)?;
        self.metrics().count(Count::CacheHit);
        if self.settings.ttl.prefetch {
            self.refresh_if_due(question, &outcome, client);
        }
        Some(outcome)
    }

    /// Handles a question that is not cached (see [`ask`](Resolver::ask)).
    pub(crate) fn ask_upstreams(&mut self, question: &KeyBuf, request: ResolveRequest) -> Resolve {
        if let Some(outcome) = self.stale_without_waiting(question, request) {
            self.metrics().count(Count::CacheHit);
            return Resolve::Ready(outcome);
        }
        self.metrics().count(Count::CacheMiss);
        self.query_upstreams(question, request)
    }

    /// Refreshes an answer that is requested often and will expire soon.
    fn refresh_if_due(&mut self, question: &KeyBuf, outcome: &Outcome, client: ClientId) {
        self.prefetcher.count();
        let Outcome::Answered(kept) = outcome else { return };
        if !Prefetcher::is_near_end(kept) || question.is_probe() {
            return;
        }
        let hash = self.fetches.hash(question.octets());
        if self.fetches.find(question.octets(), hash).is_none()
            && self.prefetcher.should_refresh(hash)
            && self.begin_without_waiter(question, hash, client, 0)
        {
            self.metrics().count(Count::Prefetched);
        }
    }

    /// Returns a stale answer if the client query has waited for the maximum time since its arrival (RFC 8767 §5), or
    /// has already waited unsuccessfully. If the configuration allows stale answers at once, returns one without any
    /// wait, and begins a fetch in the background.
    fn stale_without_waiting(
        &mut self,
        question: &KeyBuf,
        request: ResolveRequest,
    ) -> Option<Outcome> {
        let stale = self.settings.ttl.stale?;
        let at_once = self.settings.ttl.stale_at_once;
        let late = self.now + LEAST_DELAY >= stale_at(request);
        if question.is_probe() {
            return (late && request.optional).then_some(Outcome::Failed(Failure::Timeout));
        }
        // A repeated request needs a current answer.
        let at_once = at_once && request.max_age > 0;
        if !late && !request.waited_before && !at_once {
            return None;
        }
        if at_once && self.common.cache.is_revivable(question.octets(), self.now, stale) {
            self.resolve_early(question, request.client);
        }
        self.common
            .cache
            .revive(&question.to_key(), self.now, &self.settings.ttl, None)
            .map(Outcome::Answered)
    }

    /// Returns the time at which a client query that waits for this question gets a stale answer. Returns `NEVER` if
    /// there is no stale answer.
    fn answer_by(&self, question: &KeyBuf, request: ResolveRequest) -> Nanos {
        let Some(stale) = self.settings.ttl.stale else { return NEVER };
        let will_do = match question.is_probe() {
            true => request.optional,
            false => self.common.cache.is_revivable(question.octets(), self.now, stale),
        };
        if will_do { stale_at(request) } else { NEVER }
    }

    fn query_upstreams(&mut self, question: &KeyBuf, request: ResolveRequest) -> Resolve {
        if self.settings.upstreams.is_empty() {
            return Resolve::Ready(self.without_upstream(question));
        }
        if self.now.since(request.since) > PATIENCE {
            return Resolve::Rejected(Rejection::TooLate);
        }
        let most = self.settings.config.limits.in_flight;
        let slot = match self.budget.admit_waiter(request.client, most, request.first) {
            Ok(slot) => slot,
            Err(denial) => return Resolve::Rejected(denial),
        };
        let hash = self.fetches.hash(question.octets());
        let found = match self.fetches.find(question.octets(), hash) {
            Some(id) => self.join(id, question, request),
            None => self.begin_for(question, hash, request),
        };
        match found {
            Ok(id) => {
                let answer_by = self.answer_by(question, request);
                self.wait(id, QueuedWaiter { waiter: request.waiter, slot, answer_by });
                Resolve::Pending
            }
            Err(asked) => asked,
        }
    }

    /// Returns the outcome of an uncached question if there are no upstreams: an expired answer if
    /// one may be served, otherwise a failure.
    fn without_upstream(&self, question: &KeyBuf) -> Outcome {
        let revive = |key| self.common.cache.revive(&key, self.now, &self.settings.ttl, None);
        let stale = (!question.is_probe()).then(|| question.to_key()).and_then(revive);
        stale.map_or(Outcome::Failed(Failure::NoUpstream), Outcome::Answered)
    }

    /// Checks whether one more query may wait for a fetch in flight.
    fn join(
        &mut self,
        id: FetchId,
        question: &KeyBuf,
        request: ResolveRequest,
    ) -> Result<FetchId, Resolve> {
        let others = self.fetches.get(id).map_or(0, |fetch| fetch.waiters.len());
        let most = self.settings.config.limits.in_flight;
        if request.first {
            self.budget
                .admit_beside(others, question.name(), most, self.now)
                .map_err(Resolve::Rejected)?;
        }
        self.metrics().count(Count::Collapsed);
        Ok(id)
    }

    /// Begins a fetch if the limits for this client permit one more fetch. If the name is in a failing subtree, the
    /// limit of the subtree must permit the fetch too. The limits apply only to the first upstream query of a client
    /// query.
    fn begin_for(
        &mut self,
        question: &KeyBuf,
        hash: KeyHash,
        request: ResolveRequest,
    ) -> Result<FetchId, Resolve> {
        let slots = self.slots();
        let ticket = self.budget.ticket(request.client, question.name(), slots, self.now);
        if request.first {
            self.budget.admit(ticket, slots).map_err(Resolve::Rejected)?;
        }
        self.begin(question, hash, ticket, request.max_age)
            .map_err(|kept| Resolve::Ready(Outcome::Answered(kept)))
    }

    /// Adds a waiter to a fetch.
    fn wait(&mut self, id: FetchId, waiting: QueuedWaiter) {
        if let Some(fetch) = self.fetches.get(id) {
            fetch.waiters.push(waiting);
            self.budget.enter_waiter(waiting.slot);
            if waiting.answer_by != NEVER {
                let left = waiting.answer_by.since(self.now);
                fetch.release_due =
                    fetch.release_due.min(self.timers.set(id, self.now, left, left));
            }
        }
    }

    /// Delivers a stale answer to the waiters that have waited long enough. The fetch continues.
    fn release_late(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.get(id) else { return };
        if self.now < fetch.release_due {
            return;
        }
        let is_late = |waiting: &QueuedWaiter| waiting.answer_by <= self.now + LEAST_DELAY;
        let mut outcome = None;
        if fetch.waiters.iter().any(is_late) {
            let key = fetch.query.key();
            outcome = match key.is_probe() {
                true => Some(Outcome::Failed(Failure::Timeout)),
                false => self
                    .common
                    .cache
                    .revive(key, self.now, &self.settings.ttl, None)
                    .map(Outcome::Answered),
            };
        }
        let (late, others) =
            fetch.waiters.drain(..).partition(|waiting| outcome.is_some() && is_late(waiting));
        fetch.waiters = others;
        // If the stale entry has been evicted in the meantime, late waiters continue to wait for
        // the upstreams.
        let next = fetch
            .waiters
            .iter()
            .filter(|waiting| !is_late(waiting))
            .map(|waiting| waiting.answer_by)
            .min();
        fetch.release_due = match next.filter(|next| *next != NEVER) {
            Some(next) => self.timers.set(id, self.now, next.since(self.now), next.since(self.now)),
            None => NEVER,
        };
        if let Some(outcome) = outcome {
            self.release(late, outcome);
        }
    }

    /// Queues the outcome of a fetch for its waiters.
    fn release(&mut self, waiters: Waiters, outcome: Outcome) {
        self.completed.push_back(Completed { waiters, outcome });
        for waiting in self.completed.back().into_iter().flat_map(|completed| &completed.waiters) {
            self.budget.leave_waiter(waiting.slot);
        }
    }

    /// True if a client query that arrived at the time `since` leaves no time for two fetches. If the first fetch began
    /// now and reached its time limit, the query would then be too old for a second fetch.
    pub(crate) fn leaves_no_time(&self, since: Nanos) -> bool {
        self.now.since(since) + Nanos::from(self.settings.timeout()) > PATIENCE
    }

    /// Begins a fetch for an answer that a client will soon need. Does nothing if the answer is cached, the fetch is in
    /// flight, or the limits on fetches in flight permit no further fetch. The fetch has no waiter, and its answer is
    /// cached.
    pub(crate) fn resolve_early(&mut self, question: &KeyBuf, client: ClientId) {
        let known = self.common.cache.get(question.octets(), self.now, &self.settings.ttl);
        let hash = self.fetches.hash(question.octets());
        if matches!(known, CacheLookup::Missing)
            && self.fetches.find(question.octets(), hash).is_none()
        {
            self.begin_without_waiter(question, hash, client, u32::MAX);
        }
    }

    /// Begins a fetch without a waiter. Returns false if there is no upstream, if the limits on fetches in flight
    /// permit no further fetch, or if another worker has cached an answer that is at most `max_age` seconds old.
    fn begin_without_waiter(
        &mut self,
        question: &KeyBuf,
        hash: KeyHash,
        client: ClientId,
        max_age: u32,
    ) -> bool {
        let slots = self.slots();
        let ticket = self.budget.ticket(client, question.name(), slots, self.now);
        !self.settings.upstreams.is_empty()
            && self.budget.admit(ticket, slots).is_ok()
            && self.begin(question, hash, ticket, max_age).is_ok()
    }

    /// True if no fetch is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.fetches.len() == 0
    }

    /// Returns the number of fetches in flight, and the limit on this number.
    fn slots(&self) -> Slots {
        let forwarding = self.settings.config.forwarding;
        // Half of the ids are reserved for retransmissions.
        let ids = usize::from(forwarding.source_ports) * MOST_IDS / 2;
        let most = self.settings.config.limits.in_flight * FETCHES_PER_JOB;
        let most = most.min(ids).min(self.budget.questions(Nanos::from(forwarding.timeout)));
        Slots { taken: self.fetches.len(), most }
    }

    /// Removes the oldest entry from the queue of completed fetches. Returns this fetch with its waiters.
    #[inline]
    pub(crate) fn next_completed(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    /// Returns the time at which the next timer fires.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// Returns a fetch with a timer that is due, as input for [`on_timer`](Resolver::on_timer).
    pub(crate) fn next_timer(&mut self) -> Option<FetchId> {
        self.timers.pop(self.now)
    }

    /// Records, at the start of a new work item, that no fetch is being processed.
    #[inline]
    pub(crate) fn begin_work(&mut self) {
        self.current = None;
    }

    /// Returns the name and type of the question that was being processed when an error occurred.
    pub(crate) fn current(&mut self) -> Option<String> {
        if let Some(completion) = &self.completion {
            return completion.question();
        }
        let key = self.fetches.get(self.current?)?.query.key();
        Some(format!("{} of type {}", text(key.name()), key.qtype()))
    }

    /// Abandons the fetch that was being processed when an error occurred. Its waiters get a
    /// failure.
    pub(crate) fn abandon(&mut self) {
        self.conclude(Outcome::Failed(Failure::Overload));
        if let Some(id) = self.current.take() {
            self.complete(id, None, Failure::Overload);
        }
    }

    fn metrics(&self) -> &WorkerMetrics {
        self.common.metrics.worker(self.worker)
    }
}
