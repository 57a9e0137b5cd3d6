//! A worker's way from a question to its answer: which upstream is asked, again or elsewhere, and what is taken for an answer.

use std::sync::Arc;

use method::units::Nanos;
use net::batch::{BATCH, ReceiveBatch, Wait};
use net::clock;
use wire::rcode::Rcode;
use wire::template::HEADER_LEN;
use wire::view::{Message, rtype};

use super::super::Message as Inbox;
use super::super::fetches::{Attempt, Fetch, FetchId};
use super::super::metrics::Count;
use super::super::tcp::{TcpFailure, TcpQuestion};
use super::super::timers::LEAST_DELAY;
use super::super::upstreams::{LEAST_RTO, SocketId, is_ours};
use super::{BATCHES, Worker};
use crate::name::{Key, KeyBuf, LowerName};
use crate::resolver::answer::{Answer, Kind, Unusable};
use crate::resolver::cache::Found;
use crate::resolver::outcome::{Failure, Kept, Outcome};

/// How much longer than the asking worker another one waits for its word.
const GRACE: Nanos = Nanos::from_millis(100);

impl Worker {
    /// Begins to ask a question, or to wait for another worker that asks it already. If that one has just got the answer, it
    /// is there at once.
    pub(super) fn begin(&mut self, question: &KeyBuf) -> Result<FetchId, Kept> {
        let key = question.to_key();
        let mine = self.shared.flights.claim(&key, self.number);
        if mine
            && self.shared.flights.are_shared()
            && let Found::Usable(kept) = self.shared.cache.get(question.octets(), self.now, &self.settings.ttl)
        {
            self.tell_others(&key, &Outcome::Answered(kept.clone()));
            return Err(kept);
        }
        let forwarding = self.settings.config.forwarding;
        let timeout = Nanos::from(self.settings.timeout());
        let route = self.settings.route(&LowerName::of_wire(key.name()));
        let random_case = forwarding.randomize_case.then_some(&mut self.rng);
        let deadline = self.now + timeout + if mine { Nanos(0) } else { GRACE };
        let mut fetch = Fetch::new(key, route, deadline, random_case);
        fetch.elsewhere = !mine;
        let id = self.fetches.insert(fetch);
        if mine {
            self.attempt(id);
        } else {
            self.wait_until_deadline(id);
        }
        Ok(id)
    }

    /// Tells the workers that wait for this one's question.
    fn tell_others(&self, key: &Key, outcome: &Outcome) {
        for worker in self.shared.flights.land(key) {
            self.shared.mailboxes[worker].post(Inbox::Landed(key.clone(), outcome.clone()));
        }
    }

    /// Asks the next upstream, over UDP.
    fn attempt(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.get(id) else { return };
        let route = &self.settings.routes[fetch.route].upstreams;
        let number = self.upstreams.choose(route, &self.settings.upstreams, &fetch.tried, self.now, &mut self.rng);
        self.attempt_at(id, number);
    }

    /// Asks this upstream, over UDP.
    fn attempt_at(&mut self, id: FetchId, number: usize) {
        let Some(fetch) = self.fetches.get(id) else { return };
        let route = &self.settings.routes[fetch.route].upstreams;
        let server = self.upstreams.server(number);
        let left = fetch.deadline.since(self.now);
        let again = fetch.tried.contains(&number) && fetch.attempts.iter().any(|attempt| attempt.server == number);
        if again && left < LEAST_RTO {
            // An answer would come too late, most likely.
            return self.wait_until_deadline(id);
        }
        if again && !server.may_ask_again(self.now) {
            self.shared.metrics.worker(self.number).count(Count::RetryWithheld);
            if fetch.fallback.is_some() {
                return self.land(id, None, Failure::Timeout);
            }
            fetch.due = self.timers.set(id, self.now, server.patience(), left);
            return;
        }
        if !fetch.tried.contains(&number) {
            fetch.tried.push(number);
        }
        let edns = fetch.plain != Some(number) && !server.is_plain(self.now);
        let asked = server.ask(number, id, &self.poller, &mut self.rng, |id, out| fetch.write_query(id, edns, out));
        let doubled = Nanos(server.patience().0 << fetch.attempts.len().min(4));
        match asked {
            Ok((socket, message_id)) => {
                let attempt = Attempt { server: number, socket, id: message_id, sent: self.now, edns, expired: false };
                fetch.attempts.push(attempt);
                self.shared.metrics.worker(self.number).count(Count::UpstreamUdp);
                if again {
                    self.shared.metrics.worker(self.number).count(Count::RetrySent);
                }
            }
            Err(error) => {
                self.shared.metrics.worker(self.number).count(Count::UpstreamUnreachable);
                if !is_ours(&error) {
                    server.failed(self.now, &error.to_string());
                }
                if self.upstreams.has_another(route, &fetch.tried, self.now) {
                    return self.attempt(id);
                }
            }
        }
        fetch.due = self.timers.set(id, self.now, doubled, left);
    }

    /// Leaves a question alone until its time is over: somebody else works on it.
    pub(super) fn wait_until_deadline(&mut self, id: FetchId) {
        if let Some(fetch) = self.fetches.get(id) {
            let left = fetch.deadline.since(self.now);
            fetch.due = self.timers.set(id, self.now, left, left);
        }
    }

    pub(super) fn read_upstream(&mut self, at: SocketId, batch: &mut ReceiveBatch) {
        for _ in 0..BATCHES {
            let Some(endpoint) = self.upstreams.server(at.server).endpoint(at.socket) else { return };
            match batch.receive(endpoint, Wait::Dont) {
                Ok(received) => {
                    self.now = clock::now();
                    for i in 0..received {
                        for datagram in batch.get(i).segments() {
                            self.on_upstream(at, datagram);
                        }
                    }
                    if received < BATCH {
                        return;
                    }
                }
                Err(error) => return self.on_unreachable(at, &error),
            }
        }
    }

    /// The upstream's host says that nobody listens there: others are asked at once, where there are others.
    pub(super) fn on_unreachable(&mut self, at: SocketId, error: &std::io::Error) {
        self.metrics().count(Count::UpstreamUnreachable);
        self.upstreams.server(at.server).failed(self.now, &error.to_string());
        for id in self.upstreams.server(at.server).waiting_on(at.socket) {
            let Some(fetch) = self.fetches.get(id) else { continue };
            // That these were not answered is known, and counted, by now.
            for attempt in fetch.attempts.iter_mut().filter(|a| (a.server, a.socket) == (at.server, at.socket)) {
                attempt.expired = true;
            }
            let route = &self.settings.routes[fetch.route].upstreams;
            if self.upstreams.has_another(route, &fetch.tried, self.now) {
                self.attempt(id);
            }
        }
    }

    /// Checks that a datagram answers a question that was asked there (RFC 5452 §9.1): the kernel has checked address and port.
    fn on_upstream(&mut self, at: SocketId, bytes: &[u8]) {
        let message = Message::new(bytes).filter(|m| m.is_response() && m.opcode() == 0 && m.qdcount() <= 1);
        let expected = message.and_then(|m| self.upstreams.server(at.server).expects(at.socket, m.id()));
        let (Some(message), Some(id)) = (message, expected) else {
            return self.metrics().count(Count::UpstreamStray);
        };
        let Some(fetch) = self.fetches.get(id) else { return };
        let question = bytes.get(HEADER_LEN..HEADER_LEN + fetch.key.question().len());
        let same = question.is_some_and(|question| fetch.has_sent(question));
        let code = message.rcode();
        // Servers that cannot read a query may leave its question out.
        let unread = message.qdcount() == 0 && matches!(code, Rcode::FORMERR | Rcode::NOTIMP);
        if !(message.qdcount() == 1 && same || unread) {
            return self.metrics().count(Count::UpstreamStray);
        }
        let sent =
            fetch.attempts.iter().find(|a| a.server == at.server && a.socket == at.socket && a.id == message.id());
        let had_edns = sent.is_some_and(|attempt| attempt.edns);
        let plain = fetch.plain == Some(at.server);
        let now = self.now;
        let server = self.upstreams.server(at.server);
        if let Some(attempt) = sent {
            let rtt = now.since(attempt.sent);
            server.answered(rtt, !matches!(code, Rcode::NOERROR | Rcode::NXDOMAIN));
            self.room.answered(now);
            self.shared.metrics.worker(self.number).rtt(rtt);
        }
        let disliked = matches!(code, Rcode::FORMERR | Rcode::NOTIMP);
        if plain && !had_edns && matches!(code, Rcode::NOERROR | Rcode::NXDOMAIN) {
            server.found_plain(now);
        }
        if message.is_truncated() {
            return self.ask_over_tcp(id, at.server);
        }
        if disliked && had_edns && plain {
            // The same again: what is asked without EDNS decides.
            return;
        }
        if disliked && had_edns && !speaks_edns(&message) {
            // It may be older than EDNS (RFC 6891 §6.2.2), or dislike the question: without EDNS it will show.
            fetch.plain = Some(at.server);
            fetch.tried.retain(|server| *server != at.server);
            return self.attempt_at(id, at.server);
        }
        if unread {
            return self.on_unusable(id);
        }
        self.on_answer(id, bytes);
    }

    fn ask_over_tcp(&mut self, id: FetchId, server: usize) {
        let address = self.upstreams.address(server);
        let edns = !self.upstreams.server(server).is_plain(self.now);
        let Some(fetch) = self.fetches.get(id).filter(|fetch| fetch.over_tcp.is_none()) else { return };
        fetch.over_tcp = Some(server);
        let mut query = Vec::with_capacity(HEADER_LEN + fetch.key.question().len() + 11);
        let edns = edns && fetch.plain != Some(server);
        fetch.write_query(rand::Rng::next_u32(&mut self.rng) as u16, edns, &mut query);
        // Where there is another server, it must have time left for it.
        let route = &self.settings.routes[fetch.route].upstreams;
        let left = fetch.deadline.since(self.now);
        let another = self.upstreams.has_another(route, &fetch.tried, self.now);
        let timeout = if another { Nanos(left.0 / 2) } else { left };
        let question = TcpQuestion { worker: self.number, fetch: id, address, query, timeout: timeout.into() };
        self.metrics().count(Count::UpstreamTcp);
        // The TCP side has ended only if the process is about to.
        let _ = self.shared.tcp_questions.send(question);
        self.wait_until_deadline(id);
    }

    pub(super) fn on_tcp_failure(&mut self, id: FetchId, why: TcpFailure) {
        let Some(fetch) = self.fetches.get(id) else { return };
        if let Some(server) = fetch.over_tcp.take().filter(|_| why == TcpFailure::NoAnswer) {
            self.upstreams.server(server).failed(self.now, "no answer over TCP");
        }
        let route = &self.settings.routes[fetch.route].upstreams;
        if self.now < fetch.deadline && self.upstreams.has_another(route, &fetch.tried, self.now) {
            self.attempt(id);
        } else {
            self.land(id, None, Failure::Timeout);
        }
    }

    /// An answer to the right question.
    pub(super) fn on_answer(&mut self, id: FetchId, bytes: &[u8]) {
        let Some(fetch) = self.fetches.get(id) else { return };
        match Answer::parse(bytes, fetch.key.question(), &self.settings.ttl) {
            Ok(answer) => {
                self.shared.metrics.worker(self.number).count(Count::UpstreamAnswer);
                let answer = Arc::new(answer);
                if answer.kind() == Kind::Failed {
                    let route = &self.settings.routes[fetch.route].upstreams;
                    if self.upstreams.has_another(route, &fetch.tried, self.now) {
                        fetch.fallback = Some(answer);
                        return self.attempt(id);
                    }
                }
                self.land(id, Some(answer), Failure::Timeout);
            }
            Err(Unusable::AliasLoop) => self.land(id, None, Failure::AliasLoop),
            Err(Unusable::Malformed | Unusable::OtherQuestion) => self.on_unusable(id),
        }
    }

    /// Something that is not taken for an answer: another upstream, or the timer, decides.
    fn on_unusable(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.get(id) else { return };
        self.shared.metrics.worker(self.number).count(Count::UpstreamMalformed);
        let route = &self.settings.routes[fetch.route].upstreams;
        if self.upstreams.has_another(route, &fetch.tried, self.now) {
            self.attempt(id);
        }
    }

    pub(super) fn on_timeout(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.get(id) else { return };
        if self.now < fetch.due {
            return;
        }
        let over = self.now + LEAST_DELAY >= fetch.deadline;
        let by_us = !fetch.elsewhere && fetch.over_tcp.is_none();
        let mut hopeless = false;
        if let Some(last) = fetch.attempts.last_mut().filter(|_| by_us) {
            let server = self.upstreams.server(last.server);
            // Once for each time that it was asked.
            if !std::mem::replace(&mut last.expired, true) {
                self.shared.metrics.worker(self.number).count(Count::UpstreamTimeout);
                server.failed(self.now, "no answer in time");
            }
            let last = *last;
            // An error is at hand, and who could know better does not answer.
            let twice = fetch.attempts.iter().filter(|attempt| attempt.server == last.server).count() > 1;
            let silent = twice || server.is_left_alone(self.now);
            let route = &self.settings.routes[fetch.route].upstreams;
            hopeless = fetch.fallback.is_some() && silent && !self.upstreams.has_another(route, &fetch.tried, self.now);
        }
        let over = over || hopeless;
        match (over, by_us) {
            (true, _) => self.land(id, None, Failure::Timeout),
            (false, true) => self.attempt(id),
            (false, false) => self.wait_until_deadline(id),
        }
    }

    /// A question is over: its answer is kept, other workers are told, and the jobs that waited go on.
    fn land(&mut self, id: FetchId, answer: Option<Arc<Answer>>, failure: Failure) {
        let Some(fetch) = self.fetches.remove(id) else { return };
        for attempt in &fetch.attempts {
            self.upstreams.server(attempt.server).forget(attempt.socket, attempt.id);
        }
        let answer = answer.or(fetch.fallback);
        let told = (!fetch.elsewhere && self.shared.flights.are_shared()).then(|| fetch.key.clone());
        let outcome = self.outcome(fetch.key, answer, failure, fetch.elsewhere);
        if let Some(key) = told {
            self.tell_others(&key, &outcome);
        }
        self.resume(fetch.waiters, &outcome);
    }

    /// What becomes of an answer or of its absence, the cache considered.
    fn outcome(&self, key: Key, answer: Option<Arc<Answer>>, failure: Failure, elsewhere: bool) -> Outcome {
        let failed = answer.as_ref().is_none_or(|answer| answer.kind() == Kind::Failed);
        if failed && let Some(stale) = self.shared.cache.revive(&key, self.now, &self.settings.ttl, answer.as_deref()) {
            return Outcome::Answered(stale);
        }
        let answer = match (answer, failure) {
            (Some(answer), _) => answer,
            (None, Failure::Timeout | Failure::AliasLoop) if !elsewhere => {
                self.shared.cache.put_failure(key, failure, self.now);
                return Outcome::Failed(failure);
            }
            (None, _) => return Outcome::Failed(failure),
        };
        self.shared.cache.put(key, Arc::clone(&answer), self.now);
        Outcome::Answered(Kept::fresh(answer))
    }

    pub(super) fn resume(&mut self, waiters: impl IntoIterator<Item = usize>, outcome: &Outcome) {
        for index in waiters {
            let mut job = self.jobs.remove(index);
            job.inquiry.learn(outcome.clone());
            self.advance(job);
        }
    }
}

/// Whether a message has an EDNS part.
fn speaks_edns(message: &Message<'_>) -> bool {
    let Ok(at) = message.skip_name(HEADER_LEN).map(|end| end + 4) else { return false };
    let at = if message.qdcount() == 0 { HEADER_LEN } else { at };
    message.all_records(at).flatten().any(|record| record.rtype == rtype::OPT)
}
