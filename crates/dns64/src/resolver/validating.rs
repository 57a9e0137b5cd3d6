//! DNSSEC validation of answers before they are cached.
//!
//! ```text
//! answer ─► begin_validation ─► validation thread ─► on_validation ─┬─► verdict ─► completed, or another answer
//!                                   ▲                               └─► query for DS or DNSKEY records
//!                                   └── on_zone_records ◄── this resolver: cache, or a fetch with CD ◄───┘
//! ```
//!
//! Workers never check signatures. A fetch for DS or DNSKEY records has CD set, so its answer is not validated on its
//! own.

use std::time::Duration;

use bytes::Bytes;
use dnssec::{Limit, Progress, Query, Security, Validation, Verdict};
use domain::base::iana::ExtendedErrorCode;
use net::clock;
use units::Nanos;
use wire::edns::ede;
use wire::view::{CLASS_IN, rtype};

use super::Resolver;
use super::answer::{Answer, AnswerKind};
use super::fetch::{State, Validating};
use super::outcome::{Failure, Outcome};
use super::outside::{ResolverIo, ValidationTask};
use super::waiter::{Resolve, ResolveRequest, Waiter};
use crate::config::Settings;
use crate::ids::FetchId;
use crate::metrics::Count;
use crate::name::{Key, KeyBuf};

/// Maximum age of a cached response to a query for DS or DNSKEY records, in seconds. The validator stores the keys of
/// zones itself, so it rarely needs such a response. If the response makes a zone bogus, a current one is needed soon.
const MAX_KEY_AGE: u32 = 5;
/// Maximum number of responses that are kept while an answer is being validated.
const MOST_LATER: usize = 2;

/// True if answers to this question are validated.
pub(super) fn is_validated(settings: &Settings, key: &Key) -> bool {
    settings.active_validator().is_some() && !key.checking_disabled() && key.qclass() == CLASS_IN
}

fn seconds_since_1970() -> u64 {
    clock::wall().0 / Nanos::SECOND.0
}

impl<O: ResolverIo> Resolver<O> {
    /// Begins the validation of an answer. `bytes` is the response as received. No thread is needed for an unsigned
    /// answer from a zone that is known to be unsigned.
    pub(super) fn begin_validation(&mut self, id: FetchId, bytes: &[u8], mut answer: Answer) {
        let Some(fetch) = self.fetches.get(id) else { return };
        let key = fetch.query.key();
        if let Some(validator) = self.settings.active_validator()
            && key.qtype() != rtype::DS
            && !answer.has_aliases()
            && !answer.is_signed()
            && let Some(verdict) = validator.known_insecure(key.name(), seconds_since_1970())
        {
            self.count_verdict(&verdict);
            answer.set_verdict(&verdict);
            return self.complete(id, Some(answer.into()), Failure::Timeout);
        }
        let mut before = match &mut fetch.state {
            State::Udp(udp) => std::mem::take(udp),
            State::Tcp(tcp) => std::mem::take(&mut tcp.before),
            State::OtherWorker | State::Validating(_) => return,
        };
        // The time limit of the fetch is for one question. The validation needs further ones.
        if !std::mem::replace(&mut before.is_extended, true) {
            fetch.deadline = self.now + Nanos::from(self.settings.timeout());
        }
        // An alias without its end is followed by another query, whose answer is validated on its own.
        let is_unfinished = answer.kind() == AnswerKind::Unfinished;
        let end = is_unfinished.then(|| answer.target().to_vec());
        let end = end.and_then(|end| dnssec::Name::from_octets(end.into()).ok());
        let client = fetch.ticket.client();
        let validation = Validation::new(Bytes::copy_from_slice(bytes), end.as_ref());
        let (waiting, later) = (None, Vec::new());
        fetch.state = State::Validating(Box::new(Validating { answer, waiting, later, before }));
        self.wait_until_deadline(id);
        let Some(validator) = self.settings.active_validator().cloned() else {
            return self.complete(id, None, Failure::NotValidated(ede::DNSSEC_INDETERMINATE));
        };
        self.submit(ValidationTask {
            worker: self.worker,
            fetch: id,
            client,
            validator,
            validation: Box::new(validation),
            spent: Duration::ZERO,
        });
    }

    /// Keeps a response that arrives while an earlier one is being validated.
    pub(super) fn keep_for_later(&mut self, id: FetchId, bytes: &[u8]) {
        if let Some(fetch) = self.fetches.get(id)
            && let State::Validating(validating) = &mut fetch.state
            && validating.later.len() < MOST_LATER
        {
            validating.later.push(bytes.to_vec());
        }
    }

    /// Handles the result of a step of a validation. `progress` is `None` if the step panicked.
    pub(crate) fn on_validation(&mut self, task: ValidationTask, progress: Option<Progress>) {
        let id = task.fetch;
        self.current = Some(id);
        let query = match progress {
            None => {
                self.metrics().count(Count::Defect);
                return self.complete(id, None, Failure::NotValidated(ede::DNSSEC_INDETERMINATE));
            }
            Some(Progress::Ended(verdict)) => return self.on_verdict(id, &verdict),
            Some(Progress::Query(query)) => query,
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
            max_age: MAX_KEY_AGE,
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
        self.resume_validation(task, query, &outcome);
    }

    /// Continues a validation with the outcome of a fetch for DS or DNSKEY records.
    pub(crate) fn on_zone_records(&mut self, id: FetchId, outcome: &Outcome) {
        self.current = Some(id);
        let Some(fetch) = self.fetches.get(id) else { return };
        let State::Validating(validating) = &mut fetch.state else { return };
        let Some((task, query)) = validating.waiting.take() else { return };
        self.resume_validation(task, query, outcome);
    }

    /// Adds the outcome of a query for DS or DNSKEY records to a validation. An outcome that is not about the zone ends
    /// the validation.
    fn resume_validation(&mut self, mut task: ValidationTask, query: Query, outcome: &Outcome) {
        let response = match outcome {
            Outcome::Answered(kept) if kept.answer.kind() != AnswerKind::Failed && !kept.stale => {
                Some(Bytes::copy_from_slice(kept.answer.message()))
            }
            Outcome::Failed(Failure::Overload | Failure::NotValidated(_)) => {
                let failure = Failure::NotValidated(ede::DNSSEC_INDETERMINATE);
                return self.complete(task.fetch, None, failure);
            }
            Outcome::Answered(_) | Outcome::Failed(_) => None,
        };
        task.validation.add(query, response);
        self.submit(task);
    }

    /// Passes a validation to a validation thread. If too many validations wait, the fetch fails: an answer that was not
    /// validated is never used.
    fn submit(&mut self, task: ValidationTask) {
        let id = task.fetch;
        if !self.outside.validate(task) {
            self.metrics().count(Count::ValidationOverload);
            self.complete(id, None, Failure::NotValidated(ede::DNSSEC_INDETERMINATE));
        }
    }

    /// Completes a fetch with the verdict on its answer. After a bogus answer, another answer is used if one has arrived
    /// or can still arrive.
    fn on_verdict(&mut self, id: FetchId, verdict: &Verdict) {
        self.count_verdict(verdict);
        let Some(fetch) = self.fetches.get(id) else { return };
        let State::Validating(validating) = &mut fetch.state else { return };
        let (later, mut before) =
            (std::mem::take(&mut validating.later), std::mem::take(&mut validating.before));
        if verdict.security != Security::Bogus {
            let mut answer = validating.answer.clone();
            fetch.state = State::Udp(before);
            answer.set_verdict(verdict);
            return self.complete(id, Some(answer.into()), Failure::Timeout);
        }
        let code = verdict.extended_error.unwrap_or(ExtendedErrorCode::DNSSEC_BOGUS);
        let is_of_zone =
            code != ExtendedErrorCode::NO_REACHABLE_AUTHORITY && verdict.limit != Some(Limit::Time);
        if is_of_zone {
            before.bogus = Some(code.to_int());
        }
        let waits = before.attempts.iter().any(|attempt| !attempt.expired);
        fetch.state = State::Udp(before);
        let mut later = later.into_iter();
        for bytes in later.by_ref() {
            if self.on_answer(id, &bytes) {
                later.for_each(|bytes| self.keep_for_later(id, &bytes));
                return;
            }
        }
        if self.attempt_another(id) {
            return;
        }
        if waits {
            // The response to a query in flight may still arrive.
            return self.wait_until_deadline(id);
        }
        let failure = match (is_of_zone, verdict.limit) {
            (true, _) => Failure::Bogus(code.to_int()),
            (false, Some(_)) => Failure::NotValidated(ede::DNSSEC_INDETERMINATE),
            (false, None) => Failure::NotValidated(ede::NO_REACHABLE_AUTHORITY),
        };
        self.complete(id, None, failure);
    }

    fn count_verdict(&self, verdict: &Verdict) {
        self.metrics().count(match verdict.security {
            Security::Secure => Count::Secure,
            Security::Insecure => Count::Insecure,
            Security::Indeterminate => Count::Indeterminate,
            Security::Unchecked => Count::Unchecked,
            Security::Bogus => Count::Bogus,
        });
        if let Some(limit) = verdict.limit {
            self.metrics().count(match limit {
                Limit::Checks => Count::LimitChecks,
                Limit::FailedChecks => Count::LimitFailedChecks,
                Limit::KeysWithOneTag => Count::LimitKeys,
                Limit::Hashes => Count::LimitHashes,
                Limit::Queries => Count::LimitQueries,
                Limit::Time => Count::LimitTime,
            });
        }
    }
}
