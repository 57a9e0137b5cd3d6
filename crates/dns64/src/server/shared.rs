//! What all threads of a server share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use tokio::sync::mpsc::UnboundedSender;

use super::flights::Flights;
use super::mail::{Mailbox, TcpQuestion};
use crate::client::cookies::Cookies;
use crate::client::limiter::Limiter;
use crate::config::Settings;
use crate::metrics::Metrics;
use crate::resolver::cache::Cache;

/// What all threads share.
pub(super) struct Shared {
    pub(super) settings: ArcSwap<Settings>,
    pub(super) cache: Arc<Cache>,
    pub(super) flights: Flights,
    pub(super) limiter: Limiter,
    pub(super) cookies: Cookies,
    pub(super) metrics: Metrics,
    /// One for each worker, by its number.
    pub(super) mailboxes: Vec<Mailbox>,
    pub(super) tcp_questions: UnboundedSender<TcpQuestion>,
    /// No new queries are taken.
    pub(super) stopping: AtomicBool,
    /// The workers have ended.
    pub(super) ended: AtomicBool,
}
