//! DNSSEC validation of answers before they are cached.
//!
//! ```text
//! answer ─► begin_validation ─► validation thread ─► on_validation ─┬─► verdict ─► completed, or another server
//!                                   ▲                               └─► query for DS or DNSKEY records
//!                                   └── on_zone_records ◄── this resolver: cache, or a fetch with CD ◄───┘
//! ```
//!
//! Workers never check signatures. A fetch for DS or DNSKEY records has CD set, so its answer is not validated on its
//! own.

use std::time::Duration;

use bytes::Bytes;
use dnssec::{Progress, Query, Security, Validation, Verdict};
use units::Nanos;
use wire::edns::ede;
use wire::view::CLASS_IN;

use super::Resolver;
use super::answer::{Answer, AnswerKind};
use super::fetch::{State, Validating};
use super::outcome::{Failure, Outcome};
use super::outside::{ResolverIo, ValidationTask};
use super::waiter::{Resolve, ResolveRequest, Waiter};
use crate::ids::FetchId;
use crate::metrics::Count;
use crate::name::{Key, KeyBuf};

impl<O: ResolverIo> Resolver<O> {
    /// True if answers to this question are validated.
    pub(super) fn validates(&self, key: &Key) -> bool {
        self.settings.validator.is_some() && !key.checking_disabled() && key.qclass() == CLASS_IN
    }

    /// Begins the validation of an answer. `bytes` is the response as received.
    pub(super) fn begin_validation(&mut self, id: FetchId, bytes: &[u8], answer: Answer) {
        let Some(validator) = self.settings.validator.clone() else { return };
        let Some(fetch) = self.fetches.get(id) else { return };
        // An alias without its end is followed by another query, whose answer is validated on its own.
        let is_unfinished = answer.kind() == AnswerKind::Unfinished;
        let end = is_unfinished.then(|| answer.target().to_vec());
        let end = end.and_then(|end| dnssec::Name::from_octets(end.into()).ok());
        let validation = Validation::new(Bytes::copy_from_slice(bytes), end.as_ref());
        let State::Udp(udp) = &mut fetch.state else { return };
        let before = std::mem::take(udp);
        fetch.state = State::Validating(Box::new(Validating { answer, waiting: None, before }));
        // The time limit of the fetch is for one question. The validation needs further ones.
        fetch.deadline = self.now + Nanos::from(self.settings.timeout());
        self.wait_until_deadline(id);
        self.submit(ValidationTask {
            worker: self.worker,
            fetch: id,
            validator,
            validation: Box::new(validation),
            spent: Duration::ZERO,
        });
    }

    /// Handles the result of a step of a validation.
    pub(crate) fn on_validation(&mut self, mut task: ValidationTask, progress: Progress) {
        let id = task.fetch;
        self.current = Some(id);
        let query = match progress {
            Progress::Ended(verdict) => return self.on_verdict(id, &verdict),
            Progress::Query(query) => query,
        };
        let Some(fetch) = self.fetches.get(id) else { return };
        let rtype = query.rtype.to_int();
        let key = KeyBuf::from_wire(query.name.as_slice(), rtype, CLASS_IN, true, true);
        let request = ResolveRequest {
            waiter: Waiter::Validation(id),
            client: fetch.ticket.client(),
            since: self.now,
            first: false,
            waited_before: false,
            max_age: u32::MAX,
            optional: false,
        };
        let outcome = match self.ask(&key, request) {
            Resolve::Pending => {
                if let Some(fetch) = self.fetches.get(id)
                    && let State::Validating(validating) = &mut fetch.state
                {
                    validating.waiting = Some((task, query));
                }
                return;
            }
            Resolve::Ready(outcome) => outcome,
            Resolve::Rejected(_) => Outcome::Failed(Failure::Overload),
        };
        add(&mut task.validation, query, &outcome);
        self.submit(task);
    }

    /// Continues a validation with the outcome of a fetch for DS or DNSKEY records.
    pub(crate) fn on_zone_records(&mut self, id: FetchId, outcome: &Outcome) {
        self.current = Some(id);
        let Some(fetch) = self.fetches.get(id) else { return };
        let State::Validating(validating) = &mut fetch.state else { return };
        let Some((mut task, query)) = validating.waiting.take() else { return };
        add(&mut task.validation, query, outcome);
        self.submit(task);
    }

    /// Passes a validation to a validation thread. If too many validations wait, the fetch fails: an answer that was not
    /// validated is never used.
    fn submit(&mut self, task: ValidationTask) {
        let id = task.fetch;
        if !self.outside.validate(task) {
            self.metrics().count(Count::ValidationOverload);
            self.complete(id, None, Failure::NotValidated);
        }
    }

    /// Completes a fetch with the verdict on its answer.
    fn on_verdict(&mut self, id: FetchId, verdict: &Verdict) {
        self.metrics().count(match verdict.security {
            Security::Secure => Count::Secure,
            Security::Insecure => Count::Insecure,
            Security::Indeterminate => Count::Indeterminate,
            Security::Unchecked => Count::Unchecked,
            Security::Bogus => Count::Bogus,
        });
        let Some(fetch) = self.fetches.get(id) else { return };
        let State::Validating(validating) = &mut fetch.state else { return };
        if verdict.security != Security::Bogus {
            let before = std::mem::take(&mut validating.before);
            let State::Validating(validating) =
                std::mem::replace(&mut fetch.state, State::Udp(before))
            else {
                return;
            };
            let mut answer = validating.answer;
            answer.set_verdict(verdict);
            return self.complete(id, Some(answer.into()), Failure::Timeout);
        }
        let code = verdict.extended_error.map_or(ede::DNSSEC_BOGUS, |code| code.to_int());
        let before = std::mem::take(&mut validating.before);
        fetch.state = State::Udp(before);
        if !self.attempt_another(id) {
            self.complete(id, None, Failure::Bogus(code));
        }
    }
}

/// Adds the outcome of a query for DS or DNSKEY records to a validation.
fn add(validation: &mut Validation, query: Query, outcome: &Outcome) {
    let kept = outcome.kept().filter(|kept| kept.answer.kind() != AnswerKind::Failed);
    let response = kept.map(|kept| Bytes::copy_from_slice(kept.answer.message()));
    validation.add(query, response);
}
