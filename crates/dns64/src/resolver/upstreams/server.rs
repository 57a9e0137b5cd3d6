//! State of one upstream in one worker: health, retry budget, network errors, support for EDNS and random letter case,
//! and the related counters.

use std::io;
use std::sync::Arc;

use net::address::ServiceAddr;
use units::Nanos;

use super::health::{HealthChange, UpstreamHealth};
use super::network::NetworkErrors;
use super::retries::Retries;
use super::suspended::Suspended;
use crate::metrics::{Metrics, UpstreamFailure, UpstreamMetrics};

/// State of an upstream server in one worker.
pub(crate) struct Server {
    address: ServiceAddr,
    /// False after a reload removed the upstream from the configuration. The upstream then gets no
    /// further queries.
    configured: bool,
    /// True if the upstream returns no DNSSEC signatures, and answers are validated. It is then queried only if all others
    /// are marked down.
    lacks_signatures: bool,
    health: UpstreamHealth,
    retries: Retries,
    edns: Suspended,
    random_case: Suspended,
    network: NetworkErrors,
    metrics: Arc<UpstreamMetrics>,
}

impl Server {
    /// Returns the state of an upstream that has never been queried.
    pub(super) fn new(address: ServiceAddr, metrics: Arc<UpstreamMetrics>) -> Server {
        Server {
            address,
            configured: true,
            lacks_signatures: false,
            health: UpstreamHealth::default(),
            retries: Retries::default(),
            edns: Suspended::default(),
            random_case: Suspended::default(),
            network: NetworkErrors::default(),
            metrics,
        }
    }

    /// Returns the address and port, which are the same for UDP and TCP.
    pub(crate) fn address(&self) -> ServiceAddr {
        self.address
    }

    /// True if the server is in the current configuration.
    pub(crate) fn is_configured(&self) -> bool {
        self.configured
    }

    pub(super) fn set_configured(&mut self, configured: bool) {
        self.configured = configured;
        self.update_metrics();
    }

    pub(super) fn set_lacks_signatures(&mut self, lacks: bool) {
        self.lacks_signatures = lacks;
    }

    pub(super) fn health(&self) -> &UpstreamHealth {
        &self.health
    }

    /// Returns the network errors of the server.
    pub(super) fn network(&self) -> &NetworkErrors {
        &self.network
    }

    /// True if the server is marked down, or returns no signatures.
    pub(crate) fn is_marked_down(&self, now: Nanos) -> bool {
        now < self.down_until()
    }

    /// Returns the time until which other servers are preferred.
    pub(super) fn down_until(&self) -> Nanos {
        if self.lacks_signatures { Nanos(u64::MAX) } else { self.health.down_until() }
    }

    /// Returns the time to wait for the server's answer before a retransmission, 0.2 to 0.8 s.
    pub(crate) fn patience(&self) -> Nanos {
        self.health.patience()
    }

    /// Records that the server is about to be queried.
    pub(super) fn chosen(&mut self, now: Nanos) {
        self.health.chosen(now);
    }

    /// True if the server's retry budget permits one more retry.
    pub(super) fn may_be_asked_again(&self, now: Nanos) -> bool {
        self.retries.are_left(now)
    }

    /// Takes a retry from the server's budget. Returns false if the budget is exhausted.
    pub(crate) fn take_retry(&mut self, now: Nanos) -> bool {
        self.retries.take(now)
    }

    /// True if queries to the server use EDNS.
    pub(crate) fn uses_edns(&self, now: Nanos) -> bool {
        self.edns.is_over(now)
    }

    /// Records that the server rejected a query with EDNS and then answered it without EDNS. Queries to the server omit
    /// EDNS for the next ten minutes.
    pub(crate) fn mark_without_edns(&mut self, now: Nanos) {
        self.edns.begin(now);
    }

    /// True if names in queries to the server may be in random letter case.
    pub(crate) fn keeps_case(&self, now: Nanos) -> bool {
        self.random_case.is_over(now)
    }

    /// Records that the server repeated the question in a different letter case. Queries to the server are in lower
    /// case for the next ten minutes. This is logged once.
    pub(crate) fn mark_without_case(&mut self, now: Nanos, metrics: &Metrics) {
        self.random_case.begin(now);
        if metrics.is_first_other_case(self.address) {
            tracing::warn!(
                "upstream {} does not preserve the letter case of names; queries to it are sent in lower case",
                self.address
            );
        }
    }

    /// Counts a query over UDP to the server.
    #[inline]
    pub(crate) fn asked(&mut self, now: Nanos) {
        self.network.asked(now);
        self.metrics.asked();
    }

    /// Records an answer that arrived after `rtt`. `is_error` is true for an error response. A fast error response does
    /// not make the upstream preferred. Returns true if the server was marked down or had network errors before.
    pub(crate) fn answered(&mut self, now: Nanos, rtt: Nanos, is_error: bool) -> bool {
        let was_down = self.health.is_down() | self.network.answered(now);
        self.retries.answered();
        self.metrics.answered(rtt);
        if self.health.answered(rtt, is_error) == Some(HealthChange::MarkedUp) {
            tracing::info!("upstream {} marked up again", self.address);
        }
        self.update_metrics();
        was_down
    }

    /// Records a network error of the server. `opening` is true if the error occurred when a socket
    /// was opened.
    pub(crate) fn unreachable(&mut self, now: Nanos, error: &io::Error, opening: bool) {
        self.network.note(now, error, opening);
        self.failed(now, UpstreamFailure::of(error));
    }

    /// Records a failed query to the server. `trouble` is the reason, for example a timeout.
    pub(crate) fn failed(&mut self, now: Nanos, trouble: UpstreamFailure) {
        self.network.timed_out(now);
        self.metrics.failed(trouble);
        if self.health.failed(now) == Some(HealthChange::MarkedDown) {
            tracing::warn!("upstream {} marked down ({trouble}); it will be probed", self.address);
        }
        self.update_metrics();
    }

    /// Updates the metric that shows whether the server is marked down. A server that is no longer configured is shown
    /// as up.
    fn update_metrics(&self) {
        let since = if self.configured { self.health.down_since() } else { None };
        self.metrics.set_down(since);
    }
}
