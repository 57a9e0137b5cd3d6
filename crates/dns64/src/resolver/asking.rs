//! Steps of a fetch: upstream selection, retries, the change to TCP, and completion. The state of a fetch is defined in
//! [`super::fetch`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use units::Nanos;
use wire::template::HEADER_LEN;
use wire::view::{Message, rtype};

use super::Resolver;
use super::answer::{Answer, AnswerKind};
use super::budget::AdmissionTicket;
use super::cache::CacheLookup;
use super::fetch::{Attempt, Fetch, KeyHash, QueryForm, State, TcpCause, Udp, UpstreamQuery};
use super::outcome::{CachedAnswer, Failure, Outcome};
use super::outside::{ResolverIo, TcpQuery};
use super::timers::LEAST_DELAY;
use super::upstreams::LEAST_RTO;
use super::upstreams::Server;
use super::upstreams::ports::is_ours;
use super::validating;
use super::waiter::Completion;
use crate::ids::{FetchId, PortId, ServerId};
use crate::metrics::{Count, UpstreamFailure};
use crate::name::{Key, KeyBuf};

/// Maximum number of UDP queries to one server for one question (RFC 9520 §3.1: at most three).
const MOST_TRIES: usize = 3;
/// Time added to the fetch timeout while a worker waits for the result of another worker's fetch.
const GRACE: Nanos = Nanos::from_millis(100);

impl<O: ResolverIo> Resolver<O> {
    /// Begins a fetch, or waits for another worker's fetch of the same question. If the other
    /// worker has just cached the answer, and the answer is at most `max_age` seconds old, the
    /// answer is returned as the error value. `hash` is the hash of the question.
    ///
    /// The fetch is stored first. After that, this worker claims the question, so that other workers wait for its
    /// result. If an error occurs later, [`abandon`](Resolver::abandon) finds the claim and releases it.
    pub(super) fn begin(
        &mut self,
        question: &KeyBuf,
        hash: KeyHash,
        ticket: AdmissionTicket,
        max_age: u32,
    ) -> Result<FetchId, CachedAnswer> {
        let forwarding = self.settings.config.forwarding;
        let timeout = Nanos::from(self.settings.timeout());
        let route = self.settings.route_of(question.name(), question.qtype());
        let key = question.to_key();
        let is_validated = validating::is_validated(&self.settings, &key);
        let random_case = forwarding.randomize_case.then_some(&mut self.rng);
        let query = UpstreamQuery::new(key, is_validated, random_case);
        // A validation needs further queries, and extends the deadline once.
        let most = if is_validated { timeout + timeout } else { timeout };
        let deadline = self.now + most + GRACE;
        let fetch = Fetch::new(query, hash, route, ticket, deadline, State::OtherWorker);
        let (id, fetch) = self.fetches.insert(fetch);
        self.budget.enter(ticket);
        self.current = Some(id);
        if !self.common.question_claims.claim(fetch.query.key(), self.worker) {
            self.metrics().count(Count::Collapsed);
            self.wait_until_deadline(id);
            return Ok(id);
        }
        fetch.state = State::Udp(Udp::default());
        fetch.deadline = self.now + timeout;
        #[cfg(test)]
        crate::guard::panic_if_named("defect-begin", question.name());
        if self.common.question_claims.are_shared()
            && let CacheLookup::Usable(kept) =
                self.common.cache.get(question.octets(), self.now, &self.settings.ttl)
            && kept.age <= max_age
        {
            self.take_out(id);
            self.conclude(Outcome::Answered(kept.clone()));
            return Err(kept);
        }
        self.attempt(id);
        Ok(id)
    }

    /// Sends the result of a fetch to the other workers that wait for it.
    fn notify_workers(&mut self, key: &Key, outcome: &Outcome) {
        for worker in self.common.question_claims.complete(key) {
            self.outside.tell(worker, key.clone(), outcome.clone());
        }
    }

    /// Queries the next upstream over UDP.
    pub(super) fn attempt(&mut self, id: FetchId) {
        if self.settings.upstreams.is_empty() {
            // A reload has removed all upstreams during the fetch.
            return self.wait_until_deadline(id);
        }
        let Some(mut fetch) = self.fetches.get(id) else { return };
        if self.upstreams.are_being_probed(fetch.route, self.now) {
            if self.end_if_unreachable(id) {
                return;
            }
            let Some(same) = self.fetches.get(id) else { return };
            fetch = same;
        }
        let State::Udp(udp) = &fetch.state else { return };
        let chosen = self.upstreams.choose(fetch.route, &udp.tried, self.now, &mut self.rng);
        let server = if udp.times(chosen) < MOST_TRIES { Some(chosen) } else { udp.least_asked() };
        match server.filter(|&server| udp.times(server) < MOST_TRIES) {
            Some(server) => self.attempt_at(id, server),
            None if udp.fallback.is_some() => self.complete(id, None, Failure::Timeout),
            None if self.end_if_unreachable(id) => {}
            // An answer to one of the queries may still arrive.
            None => self.wait_until_deadline(id),
        }
    }

    /// Queries this upstream over UDP.
    pub(super) fn attempt_at(&mut self, id: FetchId, number: ServerId) {
        let Some(fetch) = self.fetches.get(id) else { return };
        let State::Udp(udp) = &mut fetch.state else { return };
        let server = self.upstreams.server(number);
        let left = fetch.deadline.since(self.now);
        let again = udp.has_asked(number);
        if again && left < LEAST_RTO {
            // An answer would most likely arrive too late.
            return self.wait_until_deadline(id);
        }
        if again && !server.take_retry(self.now) {
            self.common.metrics.worker(self.worker).count(Count::RetryWithheld);
            if udp.fallback.is_some() {
                return self.complete(id, None, Failure::Timeout);
            }
            fetch.due = self.timers.set(id, self.now, server.patience(), left);
            return;
        }
        udp.try_server(number);
        let needs_edns =
            self.settings.active_validator().is_some() && fetch.query.needs_signatures();
        let form = form(udp, number, server, self.now, needs_edns);
        let doubled = Nanos(server.patience().0 << udp.attempts.len().min(4));
        let query = &fetch.query;
        match self
            .outside
            .ask(number, id, self.now, &mut self.rng, |id, out| query.write(id, form, out))
        {
            Ok(at) => {
                let (expired, is_malformed) = (false, false);
                udp.attempts.push(Attempt { at, sent: self.now, form, expired, is_malformed });
                server.asked(self.now);
                let metrics = self.common.metrics.worker(self.worker);
                metrics.count(Count::UpstreamUdp);
                if again {
                    metrics.count(Count::RetrySent);
                }
            }
            Err(error) => {
                self.common.metrics.worker(self.worker).count(Count::UpstreamUnreachable);
                let is_of_network = !is_ours(&error);
                if is_of_network {
                    server.unreachable(self.now, &error, true);
                }
                if self.upstreams.has_another(fetch.route, &udp.tried, self.now) {
                    return self.attempt(id);
                }
                if is_of_network && self.end_if_unreachable(id) {
                    return;
                }
            }
        }
        self.set_timer(id, doubled, left);
    }

    /// Sets the timer of a fetch.
    fn set_timer(&mut self, id: FetchId, delay: Nanos, most: Nanos) {
        if let Some(fetch) = self.fetches.get(id) {
            fetch.due = self.timers.set(id, self.now, delay, most);
        }
    }

    /// Schedules the end of a fetch if two conditions hold: no upstream for the fetch's name is reachable, and none of
    /// the fetch's own queries still awaits a response. The fetch ends the next time that timers are processed, after
    /// its waiters have been registered. Returns false if the fetch continues.
    fn end_if_unreachable(&mut self, id: FetchId) -> bool {
        let Some(fetch) = self.fetches.get(id) else { return false };
        let State::Udp(udp) = &mut fetch.state else { return false };
        let waits = udp.attempts.iter().any(|attempt| !attempt.expired);
        if waits || !self.upstreams.are_unreachable(fetch.route, self.now) {
            return false;
        }
        udp.unreachable = true;
        fetch.deadline = self.now;
        self.wait_until_deadline(id);
        true
    }

    /// Sets the timer of a fetch to its deadline. The result is expected from elsewhere (TCP, another worker, a query
    /// in flight), and may complete the fetch earlier.
    pub(super) fn wait_until_deadline(&mut self, id: FetchId) {
        if let Some(fetch) = self.fetches.get(id) {
            let left = fetch.deadline.since(self.now);
            fetch.due = self.timers.set(id, self.now, left, left);
        }
    }

    /// Queries an upstream that is up and has not been queried yet. Returns false if there is no such upstream, or if
    /// no time is left.
    pub(super) fn attempt_another(&mut self, id: FetchId) -> bool {
        let Some(fetch) = self.fetches.get(id) else { return false };
        let State::Udp(udp) = &fetch.state else { return false };
        let another = self.now < fetch.deadline
            && self.upstreams.has_another(fetch.route, &udp.tried, self.now);
        if another {
            self.attempt(id);
        }
        another
    }

    /// Queries a server over TCP because its UDP response cannot be used, unless a TCP query is in progress. `cause` is
    /// the reason.
    pub(super) fn query_over_tcp(&mut self, id: FetchId, number: ServerId, cause: TcpCause) {
        let Some(fetch) = self.fetches.get(id) else { return };
        let State::Udp(udp) = &mut fetch.state else { return };
        let needs_edns =
            self.settings.active_validator().is_some() && fetch.query.needs_signatures();
        let form = form(udp, number, self.upstreams.server(number), self.now, needs_edns);
        let mut query = Vec::with_capacity(fetch.query.len());
        fetch.query.write(rand::Rng::next_u32(&mut self.rng) as u16, form, &mut query);
        // Leave time for another server, or for querying this one in lower case.
        let left = fetch.deadline.since(self.now);
        let another = cause == TcpCause::OtherCase
            || self.upstreams.has_another(fetch.route, &udp.tried, self.now);
        let timeout = if another { Nanos(left.0 / 2) } else { left };
        let address = self.upstreams.server(number).address();
        // The server has answered over UDP, but only its answer over TCP counts.
        for attempt in udp.attempts.iter_mut().filter(|one| one.at.port.server == number) {
            attempt.expired = true;
        }
        let begun = Arc::<AtomicBool>::default();
        fetch.state.switch_to_tcp(number, cause, Arc::clone(&begun));
        self.common.metrics.worker(self.worker).count(Count::UpstreamTcp);
        let (worker, timeout) = (self.worker, timeout.into());
        let client = fetch.ticket.client();
        self.outside.query_over_tcp(TcpQuery {
            worker,
            fetch: id,
            client,
            address,
            query,
            timeout,
            begun,
        });
        self.wait_until_deadline(id);
    }

    /// Handles a network error on a port. Such an error means that the server does not listen, or that there is no
    /// route. Each affected fetch queries a different server at once, or ends if no server can be reached.
    pub(crate) fn on_unreachable(&mut self, port: PortId, error: &std::io::Error) {
        self.metrics().count(Count::UpstreamUnreachable);
        self.upstreams.server(port.server).unreachable(self.now, error, false);
        for id in self.outside.waiting_on(port) {
            let Some(udp) = self.fetches.get(id).and_then(|fetch| fetch.state.udp()) else {
                continue;
            };
            // The failure of these queries has already been counted.
            for attempt in udp.attempts.iter_mut().filter(|attempt| attempt.at.port == port) {
                attempt.expired = true;
            }
            if !self.attempt_another(id) {
                self.end_if_unreachable(id);
            }
        }
    }

    /// Handles the timer of a fetch, unless the fetch has progressed since the timer was set.
    pub(crate) fn on_timer(&mut self, id: FetchId) {
        self.current = Some(id);
        self.release_late(id);
        let Some(fetch) = self.fetches.get(id) else { return };
        #[cfg(test)]
        crate::guard::panic_if_named("defect-timer", fetch.query.key().name());
        if self.now < fetch.due {
            return;
        }
        let over = self.now + LEAST_DELAY >= fetch.deadline;
        let unanswered = fetch.state.unanswered_failure();
        let over_tcp = fetch.state.asked_over_tcp();
        let State::Udp(udp) = &mut fetch.state else {
            if !over {
                return self.wait_until_deadline(id);
            }
            // The answer over TCP, or the lack of an answer, is recorded when the fetch ends.
            if let Some(server) = over_tcp {
                self.record_tcp_timeout(server);
            }
            return self.complete(id, None, unanswered);
        };
        let mut hopeless = false;
        if let Some(last) = udp.attempts.last_mut() {
            let number = last.at.port.server;
            let server = self.upstreams.server(number);
            // A timeout is counted once per query sent. A malformed response was counted when it arrived.
            if !std::mem::replace(&mut last.expired, true) {
                let failure = last.failure();
                if failure == UpstreamFailure::Timeout {
                    self.common.metrics.worker(self.worker).count(Count::UpstreamTimeout);
                }
                server.failed(self.now, failure);
                self.budget.failed(fetch.query.key().name(), self.now);
            }
            // An error response is stored, and the server that might give a better answer does not
            // respond.
            let silent = udp.times(number) > 1 || server.is_marked_down(self.now);
            hopeless = udp.fallback.is_some()
                && silent
                && !self.upstreams.has_another(fetch.route, &udp.tried, self.now);
        }
        let failure = if udp.unreachable { Failure::Unreachable } else { Failure::Timeout };
        if over || hopeless { self.complete(id, None, failure) } else { self.attempt(id) }
    }

    /// Handles the timeout of a query over TCP.
    pub(super) fn record_tcp_timeout(&mut self, server: ServerId) {
        self.metrics().count(Count::UpstreamTimeout);
        self.upstreams.server(server).failed(self.now, UpstreamFailure::TcpTimeout);
    }

    /// Completes a fetch: caches its answer, and passes the result to other workers that wait for it and to the fetch's
    /// waiters.
    pub(super) fn complete(&mut self, id: FetchId, answer: Option<Arc<Answer>>, failure: Failure) {
        let Some((key, mut state)) = self.take_out(id) else { return };
        for attempt in state.attempts() {
            self.outside.forget(attempt.at);
        }
        let elsewhere = matches!(state, State::OtherWorker);
        let (failure, bogus) = (state.cause_of(failure), state.bogus());
        let answer = preferred_answer(answer, state.into_fallback());
        let is_error = answer.as_ref().is_none_or(|answer| answer.kind() == AnswerKind::Failed);
        let (answer, failure) = match (bogus, failure) {
            // An error of another upstream does not replace the result of the validation.
            (Some(code), _) if is_error => (None, Failure::Bogus(code)),
            (None, Failure::Bogus(_) | Failure::NotValidated(_)) => (None, failure),
            _ => (answer, failure),
        };
        // An unreachable upstream proves nothing about the name, and neither does a validation.
        let proves_nothing =
            matches!(failure, Failure::Unreachable | Failure::Bogus(_) | Failure::NotValidated(_));
        if answer.is_some() || !proves_nothing {
            self.note(&key, answer.as_deref());
        }
        let outcome = self.outcome(key, answer, failure, elsewhere);
        self.conclude(outcome);
    }

    /// Removes a fetch from the fetches in flight. The caller must then call [`conclude`](Resolver::conclude). If an
    /// error occurs before that, the waiters can be found in `completion`.
    pub(super) fn take_out(&mut self, id: FetchId) -> Option<(Key, State)> {
        let had_older = self.fetches.has_older();
        let Fetch { query, ticket, waiters, state, .. } = self.fetches.remove(id)?;
        if had_older && !self.fetches.has_older() && self.upstreams.has_removed() {
            self.forget_removed_upstreams();
        }
        let key = query.into_key();
        let claimed =
            !matches!(state, State::OtherWorker) && self.common.question_claims.are_shared();
        self.completion = Some(Completion { waiters, claimed_key: claimed.then(|| key.clone()) });
        #[cfg(test)]
        crate::guard::panic_if_named("defect-land", key.name());
        self.budget.leave(ticket);
        Some((key, state))
    }

    /// Sends the result to all waiters of the fetch that is being completed. If this worker has claimed the question,
    /// other workers may also wait for the result. They get it first, and the claim ends.
    pub(super) fn conclude(&mut self, outcome: Outcome) {
        if let Some(key) =
            self.completion.as_mut().and_then(|completion| completion.claimed_key.take())
        {
            self.notify_workers(&key, &outcome);
        }
        if let Some(Completion { waiters, .. }) = self.completion.take() {
            self.release(waiters, outcome);
        }
    }

    /// Updates the retry budget, depending on whether the queried name was answered. If the answer comes from a zone above the
    /// name, the name may be the apex of a separate zone. In that case, the answer does not prove that the servers of
    /// the separate zone respond.
    fn note(&mut self, key: &Key, answer: Option<&Answer>) {
        match answer {
            Some(answer) if answer.kind() != AnswerKind::Failed => {
                if self.budget.has_failures(self.now) {
                    let by_parent = !answer.has_aliases() && is_from_above(answer);
                    self.budget.answered(key.name(), by_parent, self.now);
                }
            }
            _ => self.budget.failed(key.name(), self.now),
        }
    }

    /// Returns the outcome of a fetch. If there is no answer, or the answer is an error, a stale cache entry is used if
    /// one is available.
    fn outcome(
        &self,
        key: Key,
        answer: Option<Arc<Answer>>,
        failure: Failure,
        elsewhere: bool,
    ) -> Outcome {
        let cache = &self.common.cache;
        let failed = answer.as_ref().is_none_or(|answer| answer.kind() == AnswerKind::Failed);
        // Failures seen by a DNSSEC probe are not cached.
        if failed
            && !key.is_probe()
            && !matches!(failure, Failure::Bogus(_))
            && let Some(stale) = cache.revive(&key, self.now, &self.settings.ttl, answer.as_deref())
        {
            return Outcome::Answered(stale);
        }
        let answer = match (answer, failure) {
            (Some(answer), _) => answer,
            (
                None,
                Failure::Timeout | Failure::Malformed | Failure::AliasLoop | Failure::Bogus(_),
            ) if !elsewhere => {
                cache.put_failure(&key, failure, self.now, &self.settings.ttl);
                return Outcome::Failed(failure);
            }
            (None, _) => return Outcome::Failed(failure),
        };
        cache.put(key, Arc::clone(&answer), self.now, &self.settings.ttl);
        Outcome::Answered(CachedAnswer::fresh(answer))
    }
}

/// Returns the form of the next query to a server: whether the query uses EDNS, and whether the letter case of its name
/// is random.
fn form(udp: &Udp, number: ServerId, server: &Server, now: Nanos, needs_edns: bool) -> QueryForm {
    QueryForm {
        edns: needs_edns || (udp.plain != Some(number) && server.uses_edns(now)),
        random_case: udp.lower_case != Some(number) && server.keeps_case(now),
    }
}

/// Selects the later of two answers to the same question. However, a SERVFAIL without an extended error takes
/// precedence over later errors of other servers, because it may mean that DNSSEC validation failed.
pub(super) fn preferred_answer(
    later: Option<Arc<Answer>>,
    before: Option<Arc<Answer>>,
) -> Option<Arc<Answer>> {
    match (later, before) {
        (Some(later), Some(before))
            if later.kind() == AnswerKind::Failed
                && !later.is_rejected()
                && before.is_unexplained() =>
        {
            Some(before)
        }
        (later, before) => later.or(before),
    }
}

/// True if the authority section has the SOA or NS records of a zone with its apex above the name.
fn is_from_above(answer: &Answer) -> bool {
    let Some(view) = Message::new(answer.message()) else { return false };
    let mut records = view.all_records(answer.records_at()).flatten().skip(answer.answer_count());
    let owner = records
        .find(|record| matches!(record.rtype, rtype::SOA | rtype::NS))
        .map(|record| record.owner);
    owner.is_some_and(|owner| view.same_name(owner, HEADER_LEN) == Ok(false))
}
