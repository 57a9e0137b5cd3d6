//! What all threads of a server share.

use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use tokio::sync::mpsc::UnboundedSender;

use super::mail::Mailbox;
use crate::client::cookies::Cookies;
use crate::client::limiter::Limiter;
use crate::config::Settings;
use crate::metrics::Metrics;
use crate::resolver::Common;
use crate::resolver::outside::TcpQuestion;

/// What all threads share.
pub(super) struct Shared {
    pub(super) settings: ArcSwap<Settings>,
    /// What the workers' resolvers share.
    pub(super) common: Common,
    pub(super) limiter: Limiter,
    /// Large replies to networks in which nobody has proven an address.
    pub(super) large_replies: Limiter,
    pub(super) cookies: Cookies,
    /// One for each worker, by its number.
    pub(super) mailboxes: Vec<Mailbox>,
    pub(super) tcp_questions: UnboundedSender<TcpQuestion>,
    /// No new queries are taken.
    pub(super) stopping: AtomicBool,
    /// The workers have ended.
    pub(super) ended: AtomicBool,
}

impl Shared {
    /// The counters of all threads.
    #[inline]
    pub(super) fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }
}
