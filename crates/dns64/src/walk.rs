//! The whole way of one query, without server, cache and clock: upstreams are a function. Property tests and fuzzers walk it,
//! and whoever wants DNS64 as a library.
//!
//! ```text
//! bytes ─► query ─► local ─► decide::next ─► ask(question) ─► answer ─┐
//!                                 ▲      └─► reply ─► bytes              │
//!                                 └──────────────────────────────────────┘
//! ```

use std::sync::Arc;

use wire::view::CLASS_IN;

use crate::client::query::{Query, Received};
use crate::client::reply::{Form, write_refusal};
use crate::name::KeyBuf;
use crate::resolver::answer::{Answer, Unusable};
use crate::resolver::outcome::{Failure, Kept, Outcome};
use crate::resolver::ttl::TtlLimits;
use crate::translation::decide::{self, Next};
use crate::translation::local::{self, Local};
use crate::translation::policy::Policy;

/// The reply to a datagram (or to a message of a TCP stream); `None` if it gets none. `ask` is given the question section of
/// each question that must be asked upstream, and returns the message that answers it, or `None` for a timeout.
pub fn walk(
    bytes: &[u8],
    over_tcp: bool,
    policy: &Policy,
    limits: &TtlLimits,
    mut ask: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match Received::read(bytes) {
        Received::Ignored => return None,
        Received::Error { rcode, question, edns } => write_refusal(&mut out, bytes, rcode, question, edns),
        Received::Query(query) => answer(&query, over_tcp, policy, limits, &mut ask, &mut out),
    }
    Some(out)
}

fn answer(
    query: &Query<'_>,
    over_tcp: bool,
    policy: &Policy,
    limits: &TtlLimits,
    ask: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    out: &mut Vec<u8>,
) {
    let form = Form::new(query, over_tcp, None);
    let mut question = query.to_question();
    let mut alias = None;
    if query.qclass == CLASS_IN {
        match local::look(&query.name, query.qtype, policy) {
            Local::No => {}
            Local::Alias(target) => {
                question.name = target;
                alias = Some(target);
            }
            Local::Answer(local) => return form.write_local(out, &local),
        }
    }
    let mut known = Vec::new();
    loop {
        match decide::next(&question, policy, policy.mode, &known) {
            Next::Reply(reply) => return form.write(out, &reply, &known, policy, alias.as_ref(), false),
            Next::Ask(name, qtype) => {
                let key = KeyBuf::new(&name, qtype, question.qclass, question.dnssec_ok, question.checking_disabled);
                let key = key.to_key();
                known.push(outcome(ask(key.question()), key.question(), limits));
            }
        }
    }
}

fn outcome(message: Option<Vec<u8>>, question: &[u8], limits: &TtlLimits) -> Outcome {
    let Some(message) = message else { return Outcome::Failed(Failure::Timeout) };
    match Answer::parse(&message, question, limits) {
        Ok(answer) => Outcome::Answered(Kept { answer: Arc::new(answer), age: 0, stale: false }),
        Err(Unusable::AliasLoop) => Outcome::Failed(Failure::AliasLoop),
        // The server goes on listening for a better one until the time is over.
        Err(_) => Outcome::Failed(Failure::Timeout),
    }
}
