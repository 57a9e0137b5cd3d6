//! Complete processing of one query without sockets or threads. The query is parsed, answered and
//! cached by the same code as in the server. A function supplied by the caller replaces the
//! upstreams. Property tests and fuzzers use this module, and other programs can use it as a DNS64
//! library.
//!
//! ```text
//! bytes ─► Received ─► Inquiry::step ─► cache, or ask(question) ─► Answer ─┐
//!                        ▲      └─► write ─► bytes                         │
//!                        └─────────────────────────────────────────────────┘
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use units::Nanos;

use crate::client::cookies::Cookies;
use crate::client::inquiry::{Inquiry, Step};
use crate::client::query::Received;
use crate::client::reply::write_refusal;
use crate::config::Settings;
use crate::name::{KeyBuf, LowerName};
use crate::resolver::answer::{Answer, DnssecRecords, Unusable};
use crate::resolver::cache::Cache;
use crate::resolver::outcome::{CachedAnswer, Failure, Outcome};
use crate::transport::Transport;

/// State that is needed to answer queries.
pub struct Walk<'a> {
    /// Policies, forward rules and TTL limits.
    pub settings: &'a Settings,
    /// Cache of the answers to earlier upstream queries.
    pub cache: &'a Cache,
    /// Secret with which cookies for clients are generated and verified (RFC 7873).
    pub cookies: &'a Cookies,
    /// Current time, measured from an arbitrary fixed point in time.
    pub now: Nanos,
}

impl Walk<'_> {
    /// Returns the reply to a client's message, received in a datagram or over TCP. Returns `None`
    /// if the message must not be answered. `ask` is called with each upstream query (name, type,
    /// class, DO and CD). It must return the response of the upstream, or `None` for a timeout.
    pub fn reply(
        &self,
        bytes: &[u8],
        client: IpAddr,
        transport: Transport,
        mut ask: impl FnMut(&KeyBuf) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let query = match Received::read(bytes) {
            Received::Ignored => return None,
            Received::Error { rcode, question, edns, cookie } => {
                let cookie = self.cookies.answer(cookie, client);
                write_refusal(&mut out, bytes, rcode, question, edns, cookie);
                return Some(out);
            }
            Received::Query(query) => query,
        };
        let rules = self.settings.rules(client, &query.name, self.now);
        let cookie = self.cookies.answer(query.cookie(), client);
        let mut inquiry = Inquiry::begin(&query, transport, cookie, &rules);
        let rules = self.settings.rules(client, inquiry.name(), self.now);
        loop {
            let (key, again) = match inquiry.step(&rules) {
                Step::Reply(reply) => {
                    inquiry.source().write(&mut out, &reply, &rules);
                    return Some(out);
                }
                Step::Ask(key) => (key, false),
                Step::Repeat(key) => (key, true),
            };
            if again {
                inquiry.forget_failure();
            }
            let rules_of = |name: &LowerName| self.settings.rules(client, name, self.now);
            if let Some(outcome) = inquiry.local_target(&key, rules_of) {
                inquiry.add_outcome(outcome);
                continue;
            }
            let found = self.cache.get(key.octets(), self.now, &self.settings.ttl);
            let known = found.outcome(inquiry.max_age(&key));
            inquiry.add_outcome(known.unwrap_or_else(|| self.keep(&key, ask(&key))));
        }
    }

    /// Converts the response of an upstream to an outcome, and caches the outcome. `message` is
    /// `None` after a timeout.
    fn keep(&self, key: &KeyBuf, message: Option<Vec<u8>>) -> Outcome {
        let scope = self.settings.upstream_sets.scope(key.name());
        let limits = &self.settings.ttl;
        let parsed = message.map(|message| {
            Answer::parse_in(&message, key.question(), limits, scope, DnssecRecords::AsReceived)
        });
        let failure = match parsed {
            Some(Ok(answer)) => {
                let answer = Arc::new(answer);
                self.cache.put(key.to_key(), Arc::clone(&answer), self.now, &self.settings.ttl);
                return Outcome::Answered(CachedAnswer::fresh(answer));
            }
            Some(Err(Unusable::AliasLoop)) => Failure::AliasLoop,
            // The server, in contrast, ignores an unusable response and waits for a different one until the deadline of
            // the upstream query.
            Some(Err(_)) => Failure::Malformed,
            None => Failure::Timeout,
        };
        self.cache.put_failure(&key.to_key(), failure, self.now, &self.settings.ttl);
        Outcome::Failed(failure)
    }
}
