//! Processing of received responses. Each response is matched to a fetch, and the fetch then takes
//! its next step.

use std::sync::Arc;

use wire::rcode::Rcode;
use wire::template::HEADER_LEN;
use wire::view::{Message, rtype};

use super::Resolver;
use super::answer::{Answer, AnswerKind, DnssecRecords, Unusable};
use super::asking::preferred_answer;
use super::fetch::{State, TcpCause, Udp};
use super::outcome::{Failure, Outcome};
use super::outside::{ResolverIo, TcpFailure};
use super::validating;
use crate::ids::{Expected, FetchId, PortId, ServerId};
use crate::metrics::{Count, UpstreamFailure};
use crate::name::Key;

impl<O: ResolverIo> Resolver<O> {
    /// Processes a datagram that a server sent to one of the source ports. The caller has checked
    /// the server's address and port. The datagram is accepted as a response if its id is expected
    /// on that port and it repeats the question that was sent (RFC 5452 §9.1). Returns true if the
    /// datagram is accepted.
    pub(crate) fn on_datagram(&mut self, port: PortId, bytes: &[u8]) -> bool {
        let message =
            Message::new(bytes).filter(|m| m.is_response() && m.opcode() == 0 && m.qdcount() <= 1);
        let at = |message: &Message<'_>| Expected { port, id: message.id() };
        let expected = message.and_then(|message| self.outside.expects(at(&message)));
        let (Some(message), Some(id)) = (message, expected) else {
            self.metrics().count(Count::UpstreamStray);
            return false;
        };
        self.current = Some(id);
        let Some(fetch) = self.fetches.get(id) else { return false };
        let question = bytes.get(HEADER_LEN..HEADER_LEN + fetch.query.key().question().len());
        let question = question.filter(|_| message.qdcount() == 1);
        let mut same = question.is_some_and(|question| fetch.query.has_sent(question, true));
        if !same && question.is_some_and(|question| fetch.query.has_sent(question, false)) {
            // The response must repeat the letter case if the query was sent in random case.
            let attempt = fetch.state.udp().and_then(|udp| udp.sent(at(&message)));
            if attempt.is_none_or(|attempt| attempt.form.random_case) {
                self.on_other_case(id, port.server);
                return false;
            }
            same = true;
        }
        // A server that cannot parse a query may omit the question from its response.
        let unread = message.qdcount() == 0 && dislikes(&message);
        if !(same || unread) {
            self.metrics().count(Count::UpstreamStray);
            return false;
        }
        let answer = (!unread).then_some(bytes);
        self.on_expected(id, at(&message), &message, answer);
        true
    }

    /// Handles a response that repeats the question in a different letter case. The response is dropped: it is forged,
    /// or the server does not preserve the case. The server is then queried over TCP. An attacker that cannot observe
    /// the TCP connection cannot forge the answer, so the answer shows whether the server preserves the case.
    fn on_other_case(&mut self, id: FetchId, server: ServerId) {
        self.metrics().count(Count::UpstreamOtherCase);
        let udp = self.fetches.get(id).and_then(|fetch| fetch.state.udp());
        if udp.is_some_and(|udp| udp.lower_case.is_none()) {
            self.query_over_tcp(id, server, TcpCause::OtherCase);
        }
    }

    /// Processes an expected response to a UDP query. `at` contains the port and id of the query. `bytes` contains the
    /// octets of `message`. `bytes` is `None` if the response contains no question because the server could not parse
    /// the query.
    fn on_expected(
        &mut self,
        id: FetchId,
        at: Expected,
        message: &Message<'_>,
        bytes: Option<&[u8]>,
    ) {
        let port = at.port;
        let disliked = dislikes(message);
        let Some(fetch) = self.fetches.get(id) else { return };
        let is_validated = fetch.query.is_validated;
        if matches!(fetch.state, State::Validating(_)) {
            self.outside.forget(at);
            if let Some(bytes) = bytes.filter(|_| !message.is_truncated()) {
                self.keep_for_later(id, bytes);
            }
            return;
        }
        let needs_edns =
            self.settings.active_validator().is_some() && fetch.query.needs_signatures();
        let Some(udp) = fetch.state.udp() else { return };
        let sent = udp.sent(at);
        let had_edns = sent.is_some_and(|attempt| attempt.form.edns);
        let in_lower_case = sent.is_some_and(|attempt| !attempt.form.random_case);
        let plain = udp.plain == Some(port.server);
        let is_error =
            !matches!(message.rcode(), Rcode::NOERROR | Rcode::NXDOMAIN | Rcode::YXDOMAIN);
        let lower_case = udp.lower_case == Some(port.server);
        let server = self.upstreams.server(port.server);
        if lower_case && in_lower_case {
            server.mark_without_case(self.now, &self.common.metrics);
        }
        if let Some(attempt) = sent {
            let rtt = self.now.since(attempt.sent);
            if server.answered(self.now, rtt, is_error) {
                self.common.cache.discard_timeouts(self.now);
            }
            self.budget.count_answer(self.now);
            self.common.metrics.worker(self.worker).rtt(rtt);
        }
        if plain && !had_edns && !is_error {
            server.mark_without_edns(self.now);
        }
        if message.is_truncated() {
            return self.query_over_tcp(id, port.server, TcpCause::Truncated);
        }
        if disliked && had_edns && plain {
            // The server has also been queried without EDNS, and the answer to that query decides.
            return;
        }
        if disliked && had_edns && !speaks_edns(message) && !needs_edns {
            // The server may predate EDNS (RFC 6891 §6.2.2) or reject the question. Its answer to a
            // query without EDNS shows which is the case.
            udp.ask_without_edns(port.server);
            return self.attempt_at(id, port.server);
        }
        if is_validated {
            // A second response to the same query must not delay the fetch.
            self.outside.forget(at);
            if let Some(udp) = self.fetches.get(id).and_then(|fetch| fetch.state.udp()) {
                for attempt in udp.attempts.iter_mut().filter(|attempt| attempt.at == at) {
                    attempt.expired = true;
                }
            }
        }
        let usable = match bytes {
            Some(bytes) => self.on_answer(id, bytes),
            None => self.on_malformed(id),
        };
        if !usable {
            let udp = self.fetches.get(id).and_then(|fetch| fetch.state.udp());
            let attempts = udp.into_iter().flat_map(|udp| &mut udp.attempts);
            attempts
                .filter(|attempt| attempt.at == at)
                .for_each(|attempt| attempt.is_malformed = true);
            // Another upstream may still give the right answer before the fetch's timer expires.
            self.attempt_another(id);
        }
    }

    /// Processes the result of an upstream query over TCP.
    pub(crate) fn on_tcp(&mut self, id: FetchId, message: Result<Vec<u8>, TcpFailure>) {
        self.current = Some(id);
        let Some((server, cause)) =
            self.fetches.get(id).and_then(|fetch| fetch.state.return_to_udp())
        else {
            return;
        };
        if cause == TcpCause::OtherCase && self.on_tcp_for_case(id, server, message.as_deref().ok())
        {
            return;
        }
        let mut failure = Failure::Timeout;
        let usable = match message {
            Ok(bytes) => self.on_answer(id, &bytes),
            Err(TcpFailure::NoRoom) => {
                // The server answered over UDP, and the local connection limit prevented the query
                // over TCP. This is therefore not a timeout.
                failure = Failure::Overload;
                false
            }
            Err(TcpFailure::Timeout) => {
                self.record_tcp_timeout(server);
                false
            }
            Err(TcpFailure::NoAnswer) => {
                self.upstreams.server(server).failed(self.now, UpstreamFailure::TcpClosed);
                false
            }
        };
        if !usable && !self.attempt_another(id) {
            self.complete(id, None, failure);
        }
    }

    /// Handles the result of a TCP query that was sent because of a UDP response in a different
    /// letter case. If the TCP response differs in case too, the server is marked as not preserving
    /// the case. If there is no TCP response, the server is queried over UDP in lower case, with a
    /// different port and id, and this function returns true.
    fn on_tcp_for_case(&mut self, id: FetchId, server: ServerId, reply: Option<&[u8]>) -> bool {
        let Some(fetch) = self.fetches.get(id) else { return false };
        let Some(reply) = reply else {
            if let Some(udp) = fetch.state.udp() {
                udp.ask_in_lower_case(server);
            }
            self.attempt_at(id, server);
            return true;
        };
        let question = reply.get(HEADER_LEN..HEADER_LEN + fetch.query.key().question().len());
        if question.is_some_and(|question| !fetch.query.has_sent(question, true)) {
            self.upstreams.server(server).mark_without_case(self.now, &self.common.metrics);
        }
        false
    }

    /// Processes the result of another worker's fetch. The result is ignored if this worker stopped
    /// waiting for it at the deadline and sent upstream queries itself.
    pub(crate) fn on_worker_result(&mut self, key: &Key, outcome: Outcome) {
        let hash = self.fetches.hash(key.octets());
        let Some(id) = self.fetches.find(key.octets(), hash) else { return };
        let waits =
            self.fetches.get(id).is_some_and(|fetch| matches!(fetch.state, State::OtherWorker));
        if waits {
            self.take_out(id);
            self.conclude(outcome);
        }
    }

    /// Processes a message that repeats the correct question. Returns true if the message is an answer.
    pub(super) fn on_answer(&mut self, id: FetchId, bytes: &[u8]) -> bool {
        let Some(fetch) = self.fetches.get(id) else { return true };
        let metrics = self.common.metrics.worker(self.worker);
        #[cfg(test)]
        crate::guard::panic_if_named("defect-answer", fetch.query.key().name());
        let key = fetch.query.key();
        let is_validated = fetch.query.is_validated;
        if !is_validated && validating::is_validated(&self.settings, key) {
            self.restart_with_validation(id);
            return true;
        }
        let scope = self.settings.upstream_sets.scope(key.name());
        let dnssec = match (is_validated, key.dnssec_ok()) {
            (false, _) => DnssecRecords::AsReceived,
            (true, true) => DnssecRecords::Proofs,
            (true, false) => DnssecRecords::None,
        };
        match Answer::parse_in(bytes, key.question(), &self.settings.ttl, scope, dnssec) {
            Ok(answer) if is_validated && answer.kind() != AnswerKind::Failed => {
                metrics.count(Count::UpstreamAnswer);
                self.begin_validation(id, bytes, answer);
                true
            }
            Ok(mut answer) => {
                metrics.count(Count::UpstreamAnswer);
                if self.settings.active_validator().is_some() {
                    // Only this server decides which data are authentic.
                    answer.set_authentic(false);
                }
                let answer = Arc::new(answer);
                let is_final = answer.kind() != AnswerKind::Failed || answer.is_rejected();
                if is_final || !self.tries_another_server(id, &answer) {
                    self.complete(id, Some(answer), Failure::Timeout);
                }
                true
            }
            Err(Unusable::AliasLoop) => {
                self.complete(id, None, Failure::AliasLoop);
                true
            }
            Err(Unusable::Malformed | Unusable::OtherQuestion) => self.on_malformed(id),
        }
    }

    /// Queries the upstreams again with DO and CD, because validation has begun since the fetch began.
    fn restart_with_validation(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.get(id) else { return };
        fetch.query.is_validated = true;
        let before = std::mem::replace(&mut fetch.state, State::Udp(Udp::default()));
        for attempt in before.attempts() {
            self.outside.forget(attempt.at);
        }
        self.attempt(id);
    }

    /// Counts a malformed response. Returns false, because the response is not an answer.
    fn on_malformed(&mut self, id: FetchId) -> bool {
        self.metrics().count(Count::UpstreamMalformed);
        if let Some(udp) = self.fetches.get(id).and_then(|fetch| fetch.state.udp()) {
            udp.was_malformed = true;
        }
        false
    }

    /// Handles an error response from an upstream. Returns true if a different upstream is now queried, or if a query
    /// over TCP is in progress. In both cases the fetch continues, and the error is stored in case no better response
    /// arrives.
    fn tries_another_server(&mut self, id: FetchId, error: &Arc<Answer>) -> bool {
        let Some(fetch) = self.fetches.get(id) else { return false };
        let over_tcp = matches!(fetch.state, State::Tcp(_));
        let Some(udp) = fetch.state.udp() else { return false };
        let another = over_tcp || self.upstreams.has_another(fetch.route, &udp.tried, self.now);
        if another {
            udp.fallback = preferred_answer(Some(Arc::clone(error)), udp.fallback.take());
            self.attempt(id);
        }
        another
    }
}

/// True if the server rejects the query as malformed or not implemented.
fn dislikes(message: &Message<'_>) -> bool {
    matches!(message.rcode(), Rcode::FORMERR | Rcode::NOTIMP)
}

/// True if the message has an OPT record (EDNS).
fn speaks_edns(message: &Message<'_>) -> bool {
    let Ok(at) = message.skip_name(HEADER_LEN).map(|end| end + 4) else { return false };
    let at = if message.qdcount() == 0 { HEADER_LEN } else { at };
    message.all_records(at).flatten().any(|record| record.rtype == rtype::OPT)
}
