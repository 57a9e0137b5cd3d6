//! What all threads of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use method::units::Nanos;
use net::clock;
use tokio::sync::mpsc::UnboundedSender;

use super::mail::Mailbox;
use crate::client::cookies::Cookies;
use crate::client::limiter::Limiter;
use crate::config::Settings;
use crate::metrics::{self, Metrics, PrefixRow};
use crate::prefixes::{InUse, Live};
use crate::resolver::Common;
use crate::resolver::outside::TcpQuestion;

/// What all threads share.
pub(super) struct Shared {
    /// With the prefixes as [`Shared::live`] has them.
    pub(super) settings: ArcSwap<Settings>,
    /// How prefixes stand.
    pub(super) live: ArcSwap<Live>,
    /// The same for people and metrics, a prefix each.
    pub(super) prefixes: ArcSwap<Vec<InUse>>,
    /// What the workers' resolvers share.
    pub(super) common: Common,
    pub(super) limiter: Limiter,
    /// Octets of replies to unverified addresses beyond a multiple of their queries, by network.
    pub(super) amplification: Limiter,
    pub(super) cookies: Cookies,
    /// One for each worker, by its number.
    pub(super) mailboxes: Vec<Mailbox>,
    pub(super) tcp_questions: UnboundedSender<TcpQuestion>,
    /// No new queries are taken.
    pub(super) stopping: AtomicBool,
    /// Before that: nothing new comes over TCP any more; and that it does not. Workers that had ended
    /// could not answer it.
    pub(super) is_closing: AtomicBool,
    pub(super) is_closed: AtomicBool,
    /// The workers have ended.
    pub(super) ended: AtomicBool,
    /// The interfaces whose advertisements can be had.
    pub(super) interfaces: Vec<String>,
    /// When the server was started, since 1970.
    pub(super) started: Nanos,
    /// When its settings were read.
    pub(super) loaded: Loaded,
}

/// When settings were read.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// The last time, nanoseconds since 1970.
    pub(super) at: AtomicU64,
    /// How often they have been replaced.
    pub(super) again: AtomicU64,
}

impl Loaded {
    /// They have been read at this moment, for the first time.
    pub(super) fn first(at: Nanos) -> Loaded {
        Loaded { at: AtomicU64::new(at.0), again: AtomicU64::new(0) }
    }

    /// They have been replaced just now.
    fn renew(&self) {
        self.at.store(clock::wall().0, Ordering::Relaxed);
        self.again.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Replaces the settings: for every query that comes after.
    pub(super) fn replace(&self, settings: &Settings) {
        loop {
            let live = self.live.load_full();
            self.settings.store(Arc::new(settings.with_prefixes(&live)));
            // Somebody may have published meanwhile, for the settings before.
            if Arc::ptr_eq(&live, &self.live.load()) {
                break;
            }
        }
        self.loaded.renew();
        self.ring();
    }

    /// Prefixes stand so from now on.
    pub(super) fn publish(&self, live: Live) {
        self.live.store(Arc::new(live));
        let live = self.live.load();
        self.settings.rcu(|settings| settings.with_prefixes(&live));
        self.ring();
    }

    /// Has all workers look at what has changed.
    fn ring(&self) {
        for mailbox in &self.mailboxes {
            mailbox.alarm.ring();
        }
    }

    /// Counters, cache and prefixes as Prometheus reads them.
    pub(super) fn metrics_text(&self) -> String {
        let now = clock::now();
        let row = |used: &InUse| PrefixRow {
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

    /// The counters of all threads.
    #[inline]
    pub(super) fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }
}
