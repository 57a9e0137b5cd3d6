//! State of one upstream in one worker: health, retries, properties of its queries, and the counters
//! that show them.

use std::io;
use std::sync::Arc;

use method::units::Nanos;
use net::address::ServiceAddr;

use super::health::{News, UpstreamHealth};
use super::network::NetworkErrors;
use super::retries::Retries;
use super::suspended::Suspended;
use crate::metrics::{Metrics, Trouble, UpstreamMetrics};

/// What one worker knows of an upstream server.
pub(crate) struct Server {
    address: ServiceAddr,
    /// Whether the configuration still has it; one that it has not is asked no more.
    configured: bool,
    health: UpstreamHealth,
    retries: Retries,
    edns: Suspended,
    random_case: Suspended,
    network: NetworkErrors,
    metrics: Arc<UpstreamMetrics>,
}

impl Server {
    /// Nothing is known of it yet.
    pub(super) fn new(address: ServiceAddr, metrics: Arc<UpstreamMetrics>) -> Server {
        Server {
            address,
            configured: true,
            health: UpstreamHealth::default(),
            retries: Retries::default(),
            edns: Suspended::default(),
            random_case: Suspended::default(),
            network: NetworkErrors::default(),
            metrics,
        }
    }

    /// Address and port, the same for UDP and TCP.
    pub(crate) fn address(&self) -> ServiceAddr {
        self.address
    }

    /// Whether the configuration has it.
    pub(crate) fn is_configured(&self) -> bool {
        self.configured
    }

    pub(super) fn set_configured(&mut self, configured: bool) {
        self.configured = configured;
        self.tell_metrics();
    }

    pub(super) fn health(&self) -> &UpstreamHealth {
        &self.health
    }

    /// Errors of the network about it.
    pub(super) fn network(&self) -> &NetworkErrors {
        &self.network
    }

    /// Whether it has failed so often that it is not asked for a while.
    pub(crate) fn is_left_alone(&self, now: Nanos) -> bool {
        now < self.health.down_until()
    }

    /// How long to wait for its answer before asking again, 0.2 to 0.8 s.
    pub(crate) fn patience(&self) -> Nanos {
        self.health.patience()
    }

    /// The server is about to be asked.
    pub(super) fn chosen(&mut self, now: Nanos) {
        self.health.chosen(now);
    }

    /// Whether one more question may be asked again, as far as its retries go.
    pub(super) fn may_be_asked_again(&self, now: Nanos) -> bool {
        self.retries.are_left(now)
    }

    /// Whether one more question may be asked again, which is counted as done.
    pub(crate) fn take_retry(&mut self, now: Nanos) -> bool {
        self.retries.take(now)
    }

    /// Whether it is to be asked with EDNS.
    pub(crate) fn uses_edns(&self, now: Nanos) -> bool {
        self.edns.is_over(now)
    }

    /// The server has answered a question without EDNS that it rejected with EDNS: it is asked
    /// without for a while.
    pub(crate) fn found_plain(&mut self, now: Nanos) {
        self.edns.begin(now);
    }

    /// True if names in queries to it may be in random letter case.
    pub(crate) fn keeps_case(&self, now: Nanos) -> bool {
        self.random_case.is_over(now)
    }

    /// The server has answered in another letter case: for a while it is asked in lower case, which
    /// is logged once.
    pub(crate) fn found_other_case(&mut self, now: Nanos, metrics: &Metrics) {
        self.random_case.begin(now);
        if metrics.is_first_other_case(self.address) {
            tracing::warn!(
                "upstream {} does not keep the letter case of names: it is asked without randomize-case",
                self.address
            );
        }
    }

    /// The server was asked a question over UDP, which is counted.
    #[inline]
    pub(crate) fn asked(&mut self, now: Nanos) {
        self.network.asked(now);
        self.metrics.asked();
    }

    /// The server answered after `rtt`; `is_error`: with an error, which does not make it count as
    /// fast. Returns true if it was marked down or could not be reached before.
    pub(crate) fn answered(&mut self, rtt: Nanos, is_error: bool) -> bool {
        let was_down = self.health.is_down() | self.network.answered();
        self.retries.answered();
        self.metrics.answered(rtt);
        if self.health.answered(rtt, is_error) == Some(News::MarkedUp) {
            tracing::info!("upstream {} marked up again", self.address);
        }
        self.tell_metrics();
        was_down
    }

    /// The network reported an error about the server. `opening`: when a socket was opened.
    pub(crate) fn unreachable(&mut self, now: Nanos, error: &io::Error, opening: bool) {
        self.network.note(now, error, opening);
        self.failed(now, Trouble::of(error));
    }

    /// The server did not answer, or could not be reached, for this reason.
    pub(crate) fn failed(&mut self, now: Nanos, trouble: Trouble) {
        self.network.silent(now);
        self.metrics.failed(trouble);
        if self.health.failed(now) == Some(News::MarkedDown) {
            tracing::warn!("upstream {} marked down ({trouble}); it is probed", self.address);
        }
        self.tell_metrics();
    }

    /// Shows whether it is marked down; one that is no longer in the configuration is not.
    fn tell_metrics(&self) {
        let since = if self.configured { self.health.down_since() } else { None };
        self.metrics.set_down(since);
    }
}
