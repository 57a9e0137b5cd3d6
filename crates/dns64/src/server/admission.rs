//! Admission of a received message. Rate limit, access list and cookies are combined in one
//! decision.

use units::Nanos;
use wire::rcode::Rcode;

use super::shared::Shared;
use crate::client::query::{Cookie, Query, Received};
use crate::config::Settings;
use crate::metrics::Count;
use crate::transport::client::Client;

/// Decision on a received message.
pub(super) enum Admission<'r, 'q> {
    /// The query is answered. `[access]` allows the client, and the query is within the rate limit.
    Answer(&'r Query<'q>),
    /// The query gets REFUSED, because `[access]` does not allow the client.
    Refuse(&'r Query<'q>),
    /// The query gets a reply with TC=1. The query is above the rate limit, but a cookie verifies
    /// the client's address (RFC 7873).
    Truncate(&'r Query<'q>),
    /// The message gets a reply without records (see [`Received::Error`]).
    Error { rcode: Rcode, question: &'q [u8], edns: bool, cookie: Option<&'r Cookie> },
    /// The message gets no reply, for example because it is above the rate limit and its source address may be forged.
    /// The value is the counter to increment.
    Ignore(Count),
}

impl<'r, 'q> Admission<'r, 'q> {
    /// Decides how a message from `client` is handled.
    #[inline]
    pub(super) fn decide(
        received: &'r Received<'q>,
        client: &Client,
        settings: &Settings,
        shared: &Shared,
        now: Nanos,
    ) -> Admission<'r, 'q> {
        let ip = client.ip();
        let limits = &settings.config.limits;
        let is_within_rate = client.transport().is_proven()
            || shared.limiter.admits(ip, now, limits.client_rate, limits.client_burst);
        let is_allowed = settings.allows(ip);
        match received {
            Received::Query(query) if is_within_rate && is_allowed => Admission::Answer(query),
            Received::Query(query) if is_within_rate => Admission::Refuse(query),
            Received::Query(query) if is_allowed && shared.cookies.proves(query, ip) => {
                Admission::Truncate(query)
            }
            _ if !is_within_rate => Admission::Ignore(Count::RateLimited),
            _ if !is_allowed => Admission::Ignore(Count::AclRefused),
            Received::Error { rcode, question, edns, cookie } => {
                let cookie = cookie.as_ref();
                let rcode = shared.cookies.confirm(*rcode, cookie, ip);
                Admission::Error { rcode, question, edns: *edns, cookie }
            }
            Received::Query(_) | Received::Ignored => Admission::Ignore(Count::Ignored),
        }
    }
}
