//! State shared by all threads of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use net::clock;
use tokio::sync::mpsc::UnboundedSender;
use units::Nanos;

use super::inbox::Inbox;
use super::validation::ValidationThreads;
use crate::client::cookies::Cookies;
use crate::client::limiter::Limiter;
use crate::config::Settings;
use crate::metrics::{self, Metrics, PrefixRow};
use crate::prefixes::{LivePrefixes, PrefixReport};
use crate::resolver::Common;
use crate::resolver::outside::TcpQuery;
use crate::signatures::SignatureSupport;
use crate::transport::backlog::Backlogs;

/// State shared by all threads.
pub(super) struct Shared {
    /// Settings in effect. Their policies use the prefixes of [`Shared::live`].
    pub(super) settings: ArcSwap<Settings>,
    /// Current state of the prefixes.
    pub(super) live: ArcSwap<LivePrefixes>,
    /// State of the prefixes for status output and metrics, one entry per prefix.
    pub(super) prefixes: ArcSwap<Vec<PrefixReport>>,
    /// Upstreams with and without DNSSEC signatures.
    pub(super) signatures: ArcSwap<SignatureSupport>,
    /// State shared by the resolvers of all workers.
    pub(super) common: Common,
    pub(super) limiter: Limiter,
    /// For each client network, the limit on large replies to unverified addresses. The limit applies to the octets by
    /// which the replies exceed a multiple of the size of their queries.
    pub(super) amplification: Limiter,
    pub(super) cookies: Cookies,
    /// Number of octets in the replies queued on all connections of clients.
    pub(super) backlogs: Backlogs,
    /// Inboxes of the workers, by worker index.
    pub(super) worker_inboxes: Vec<Inbox>,
    pub(super) tcp_questions: UnboundedSender<TcpQuery>,
    /// Threads that validate answers.
    pub(super) validation: ValidationThreads,
    /// True if the workers must stop accepting queries and then end.
    pub(super) stopping: AtomicBool,
    /// Flag for the first phase of stopping the server: the connection threads stop accepting queries, and confirm this.
    /// The workers still run during this phase, because they must answer the queries that were already accepted.
    pub(super) is_closing: AtomicBool,
    /// True after the workers have ended.
    pub(super) ended: AtomicBool,
    /// Interfaces on which router advertisements can be received.
    pub(super) interfaces: Vec<String>,
    /// Start time of the server, in nanoseconds since 1970.
    pub(super) started: Nanos,
    /// Time at which the settings were last loaded, and number of reloads.
    pub(super) loaded: Loaded,
}

/// Time at which the settings were last loaded, and number of reloads.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// Time at which the settings were last loaded, in nanoseconds since 1970.
    pub(super) at: AtomicU64,
    /// Number of reloads.
    pub(super) reloads: AtomicU64,
}

impl Loaded {
    /// Records the first load of the settings.
    pub(super) fn first(at: Nanos) -> Loaded {
        Loaded { at: AtomicU64::new(at.0), reloads: AtomicU64::new(0) }
    }

    /// Records a reload of the settings at the current time.
    fn renew(&self) {
        self.at.store(clock::wall().0, Ordering::Relaxed);
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Replaces the settings for all later queries.
    pub(super) fn replace(&self, settings: &Settings) {
        loop {
            let live = self.live.load_full();
            let signatures = self.signatures.load_full();
            let mut next = settings.with_prefixes(&live).with_signatures((*signatures).clone());
            // The validation threads exist only if the server started with validation.
            let current = self.settings.load();
            next.validate = current.validate;
            next.validator = match (&current.validator, next.validator) {
                (None, _) => None,
                (Some(current), None) => Some(Arc::clone(current)),
                (Some(_), next) => next,
            };
            self.settings.store(Arc::new(next));
            // In the meantime, another thread may have published its results for the old settings.
            if Arc::ptr_eq(&live, &self.live.load())
                && Arc::ptr_eq(&signatures, &self.signatures.load())
            {
                break;
            }
        }
        self.loaded.renew();
        self.ring();
    }

    /// Publishes a new state of the prefixes.
    pub(super) fn publish(&self, live: LivePrefixes) {
        self.live.store(Arc::new(live));
        let live = self.live.load();
        self.settings.rcu(|settings| settings.with_prefixes(&live));
        self.ring();
    }

    /// Publishes the result of the queries for DNSSEC signatures.
    pub(super) fn publish_signatures(&self, signatures: SignatureSupport) {
        self.signatures.store(Arc::new(signatures));
        let signatures = self.signatures.load();
        self.settings.rcu(|settings| settings.with_signatures((**signatures).clone()));
        self.ring();
    }

    /// Wakes all workers, so that they use the new settings.
    fn ring(&self) {
        for inbox in &self.worker_inboxes {
            inbox.alarm.ring();
        }
    }

    /// Returns counters, cache statistics and prefixes in the Prometheus text format.
    pub(super) fn metrics_text(&self) -> String {
        let now = clock::now();
        let validates = self.settings.load().active_validator().is_some();
        self.metrics().validation.is_active.store(validates, Ordering::Relaxed);
        let row = |used: &PrefixReport| PrefixRow {
            prefix: used.prefix.to_string(),
            name: used.name.clone().unwrap_or_default(),
            from: match &*used.announced_by {
                [] => "configuration".to_owned(),
                announcers => announcers.join(", "),
            },
            seconds_left: used.until.map(|until| until.since(now).as_secs_f64()),
            draining: used.draining,
            health: used.health.map(|(health, _)| health.name()),
        };
        let rows: Vec<PrefixRow> = self.prefixes.load().iter().map(row).collect();
        metrics::to_text(self.metrics(), &self.common.cache, &rows)
    }

    /// Returns the counters of all threads.
    #[inline]
    pub(super) fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }
}
