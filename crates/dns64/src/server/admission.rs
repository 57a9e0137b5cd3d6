//! Admission of a received message: rate limit, access list and cookies, gathered in one decision.

use std::net::IpAddr;

use units::Nanos;
use wire::rcode::Rcode;

use super::shared::Shared;
use crate::client::query::{Cookie, Query, Received};
use crate::config::Settings;
use crate::metrics::{Count, WorkerMetrics};
use crate::transport::Transport;
use crate::transport::client::Client;

/// Decision on a received message.
pub(super) enum Admission<'q> {
    /// A query of a client that `[access]` allows, within its rate: an answer.
    Answer(Query<'q>),
    /// A query of a client that `[access]` does not allow: REFUSED.
    Refuse(Query<'q>),
    /// A query above the rate limit from a verified address (RFC 7873): TC=1.
    Truncate(Query<'q>),
    /// Another message above the rate limit, whose source may be forged: no reply.
    Drop(Option<Query<'q>>),
    /// Another message that gets a reply without records; see [`Received::Error`].
    Error { rcode: Rcode, question: &'q [u8], edns: bool, cookie: Option<Cookie> },
    /// Any other message, counted as this: no reply.
    Ignore(Count),
}

impl<'q> Admission<'q> {
    /// Decides on a message that `client` has sent.
    #[inline]
    pub(super) fn decide(
        bytes: &'q [u8],
        client: &Client,
        settings: &Settings,
        shared: &Shared,
        now: Nanos,
    ) -> Admission<'q> {
        let (ip, transport) = (client.ip(), client.transport());
        let is_within_rate = transport.is_proven() || is_within_rate(ip, settings, shared, now);
        let is_allowed = settings.allows(ip);
        match Received::read(bytes) {
            Received::Query(query) if !is_within_rate => {
                if is_allowed && shared.cookies.proves(&query, ip) {
                    Admission::Truncate(query)
                } else {
                    Admission::Drop(Some(query))
                }
            }
            _ if !is_within_rate => Admission::Drop(None),
            Received::Query(query) if !is_allowed => Admission::Refuse(query),
            _ if !is_allowed => Admission::Ignore(Count::AclRefused),
            Received::Query(query) => Admission::Answer(query),
            Received::Error { rcode, question, edns, cookie } => {
                let rcode = shared.cookies.confirm(rcode, cookie.as_ref(), ip);
                Admission::Error { rcode, question, edns, cookie }
            }
            Received::Ignored => Admission::Ignore(Count::Ignored),
        }
    }

    /// Counts the message.
    #[inline]
    pub(super) fn count(&self, transport: Transport, metrics: &WorkerMetrics) {
        match self {
            Admission::Answer(query) => metrics.count_query(transport, query.qtype),
            Admission::Refuse(query) => {
                metrics.count(Count::AclRefused);
                metrics.count_query(transport, query.qtype);
            }
            Admission::Truncate(query) | Admission::Drop(Some(query)) => {
                metrics.count(Count::RateLimited);
                metrics.count_query(transport, query.qtype);
            }
            Admission::Drop(None) => metrics.count(Count::RateLimited),
            Admission::Error { .. } => {}
            Admission::Ignore(what) => metrics.count(*what),
        }
    }

    /// True for a query that gets a reply.
    #[inline]
    pub(super) fn is_replied(&self) -> bool {
        matches!(self, Admission::Answer(_) | Admission::Refuse(_) | Admission::Truncate(_))
    }
}

#[inline]
fn is_within_rate(ip: IpAddr, settings: &Settings, shared: &Shared, now: Nanos) -> bool {
    let limits = &settings.config.limits;
    shared.limiter.admits(ip, now, limits.client_rate, limits.client_burst)
}
