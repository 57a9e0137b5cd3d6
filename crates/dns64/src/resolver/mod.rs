//! From a question to its answer: the cache, or the upstreams, each of which is asked once for all who wait.
//!
//! ```text
//!                 ┌─ Known: cache, or a failure that is remembered
//! ask(key) ───────┼─ Denied: the budget is used up, or it is too late
//!   waiter        └─ Waiting ─► fetch ─► upstreams ─► outside: UDP, TCP, other workers
//!                                 ▲                        │
//!              timers ─► on_timer ┤                        │
//!                                 └── on_datagram, on_tcp, on_elsewhere, on_unreachable
//!                                                          │
//! next_landed ◄── waiters, outcome ◄── cache ◄── answer ◄──┘
//! ```
//!
//! A [`Resolver`] belongs to one worker. It has no sockets, which are [`Outside`], and no clock: it is told what time it is. Who
//! waits is a [`Waiter`], of which it knows nothing.

pub mod answer;
mod arriving;
mod asking;
mod budget;
pub mod cache;
mod fetch;
mod fetches;
pub(crate) mod flights;
pub mod outcome;
pub(crate) mod outside;
#[cfg(test)]
mod tests;
mod timers;
pub mod ttl;
pub(crate) mod upstreams;
pub(crate) mod waiter;

use std::collections::VecDeque;
use std::sync::Arc;

use method::units::Nanos;
use rand::SeedableRng;
use rand::rngs::StdRng;

use self::budget::Budget;
use self::cache::{Cache, Found};
use self::fetches::Fetches;
use self::flights::Flights;
use self::outcome::{Failure, Kept, Outcome};
use self::outside::Outside;
use self::timers::Timers;
use self::upstreams::Upstreams;
use self::upstreams::ports::MOST_IDS;
use self::waiter::{Asked, Demand, Denial, Landed};
use crate::config::Settings;
use crate::ids::{FetchId, WorkerId};
use crate::metrics::{Count, Metrics, WorkerMetrics};
use crate::name::{KeyBuf, text};

/// A question is not begun for a query that is older than this: the client is about to ask again, and two more rounds of
/// `forwarding.timeout` would make it wait for more than four seconds.
const PATIENCE: Nanos = Nanos::from_millis(2_100);
/// No query begins while so many questions are in flight for each one that may wait: chains make more than one question of one.
const FETCHES_PER_JOB: usize = 2;

/// What the resolvers of all workers share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) cache: Arc<Cache>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) metrics: Metrics,
}

/// One worker's resolver.
pub(crate) struct Resolver<O> {
    worker: WorkerId,
    settings: Arc<Settings>,
    common: Common,
    upstreams: Upstreams,
    fetches: Fetches,
    timers: Timers,
    budget: Budget,
    landed: VecDeque<Landed>,
    /// What is being worked on.
    current: Option<FetchId>,
    rng: StdRng,
    now: Nanos,
    outside: O,
}

impl<O: Outside> Resolver<O> {
    /// A resolver that has asked nothing yet.
    pub(crate) fn new(worker: WorkerId, settings: Arc<Settings>, common: Common, outside: O) -> Resolver<O> {
        let mut resolver = Resolver {
            worker,
            settings: Arc::clone(&settings),
            common,
            upstreams: Upstreams::default(),
            fetches: Fetches::default(),
            timers: Timers::default(),
            budget: Budget::new(&mut rand::rng()),
            landed: VecDeque::new(),
            current: None,
            rng: StdRng::from_rng(&mut rand::rng()),
            now: Nanos(0),
            outside,
        };
        resolver.take_settings(settings);
        resolver
    }

    /// Takes over another configuration. What is in flight keeps the servers that it has asked.
    pub(crate) fn take_settings(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
        self.upstreams.configure(&self.settings, &self.common.metrics);
        let ports = self.settings.config.forwarding.source_ports;
        let allowed = |configured| if configured { ports } else { 0 };
        let servers = self.upstreams.servers().iter();
        self.outside.configure(servers.map(|server| (server.address(), allowed(server.is_configured()))));
        self.fetches.reroute(&self.settings);
    }

    /// Tells it what time it is.
    #[inline]
    pub(crate) fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// What it asks with.
    #[inline]
    pub(crate) fn outside(&mut self) -> &mut O {
        &mut self.outside
    }

    /// The answer to a question, if it is known. If not, it is asked, unless it is in flight already, and the waiter is told what
    /// comes of it ([`next_landed`](Resolver::next_landed)).
    #[inline]
    pub(crate) fn ask(&mut self, question: &KeyBuf, demand: Demand) -> Asked {
        match self.common.cache.get(question.octets(), self.now, &self.settings.ttl) {
            Found::Usable(kept) => {
                self.metrics().count(Count::CacheHit);
                Asked::Known(Outcome::Answered(kept))
            }
            Found::Failed(failure) => {
                self.metrics().count(Count::CacheHit);
                Asked::Known(Outcome::Failed(failure))
            }
            Found::Missing => {
                if let Some(kept) = self.stale_at_once(question, demand) {
                    self.metrics().count(Count::CacheHit);
                    return Asked::Known(Outcome::Answered(kept));
                }
                self.metrics().count(Count::CacheMiss);
                self.ask_upstream(question, demand)
            }
        }
    }

    fn stale_at_once(&self, question: &KeyBuf, demand: Demand) -> Option<Kept> {
        let wanted = demand.in_vain && self.settings.ttl.stale.is_some();
        wanted.then(|| self.common.cache.revive(&question.to_key(), self.now, &self.settings.ttl, None)).flatten()
    }

    fn ask_upstream(&mut self, question: &KeyBuf, demand: Demand) -> Asked {
        if self.now.since(demand.since) > PATIENCE {
            return Asked::Denied(Denial::TooLate);
        }
        if !demand.may_wait {
            return Asked::Denied(Denial::NoRoom);
        }
        let hash = self.fetches.hash(question.octets());
        let id = match self.fetches.find(question.octets(), hash) {
            Some(id) => {
                self.metrics().count(Count::Collapsed);
                id
            }
            None => {
                let charge = self.budget.whose(demand.client, question.name(), self.now);
                if demand.first
                    && let Err(denial) = self.budget.admit(charge, self.free())
                {
                    return Asked::Denied(denial);
                }
                match self.begin(question, hash, charge) {
                    Ok(id) => id,
                    Err(kept) => return Asked::Known(Outcome::Answered(kept)),
                }
            }
        };
        if let Some(fetch) = self.fetches.get(id) {
            fetch.waiters.push(demand.waiter);
        }
        Asked::Waiting
    }

    /// Asks a question whose answer a client will want in a moment, unless it is known or in flight. Nobody is told; the answer
    /// will be in the cache.
    pub(crate) fn ask_ahead(&mut self, question: &KeyBuf, client: u64) {
        let known = self.common.cache.get(question.octets(), self.now, &self.settings.ttl);
        let hash = self.fetches.hash(question.octets());
        if matches!(known, Found::Missing) && self.fetches.find(question.octets(), hash).is_none() {
            // If another worker has just got the answer, it is in the cache by now.
            let charge = self.budget.whose(client, question.name(), self.now);
            let _ = self.begin(question, hash, charge);
        }
    }

    /// Whether no question is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.fetches.len() == 0
    }

    /// How many more questions may be in flight.
    fn free(&self) -> usize {
        let forwarding = self.settings.config.forwarding;
        // Half of the ids are left for those that are asked again.
        let ids = usize::from(forwarding.source_ports) * MOST_IDS / 2;
        let most = self.settings.config.limits.in_flight * FETCHES_PER_JOB;
        let most = most.min(ids).min(self.budget.questions(Nanos::from(forwarding.timeout)));
        most.saturating_sub(self.fetches.len())
    }

    /// A question that is over, with those who wait for its outcome; the one that was over first.
    #[inline]
    pub(crate) fn next_landed(&mut self) -> Option<Landed> {
        self.landed.pop_front()
    }

    /// When the next question must be looked at.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// A question whose time has come, for [`on_timer`](Resolver::on_timer).
    pub(crate) fn next_timer(&mut self) -> Option<FetchId> {
        self.timers.pop(self.now)
    }

    /// Something new begins: nothing is being worked on.
    #[inline]
    pub(crate) fn begin_work(&mut self) {
        self.current = None;
    }

    /// The question that was being worked on when something went wrong, in words.
    pub(crate) fn current(&mut self) -> Option<String> {
        let key = self.fetches.get(self.current?)?.query.key();
        Some(format!("{} of type {}", text(key.name()), key.qtype()))
    }

    /// Gives up the question that was being worked on when something went wrong; those who wait for it are told that it has
    /// failed.
    pub(crate) fn abandon(&mut self) {
        if let Some(id) = self.current.take() {
            self.land(id, None, Failure::Overload);
        }
    }

    fn metrics(&self) -> &WorkerMetrics {
        self.common.metrics.worker(self.worker)
    }
}
