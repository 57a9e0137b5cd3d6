//! A worker: its sockets, the questions that it has in flight, and the client queries that wait for them.
//!
//! ```text
//! turn: wait ─► client datagrams ─► on_query ──► advance ─► reply queue ─┐
//!          ├──► upstream datagrams ─► on_upstream ─► land ─► advance     ├─► flush
//!          ├──► inbox: TCP queries, TCP answers, other workers' answers  │
//!          └──► timers ─► on_timeout ─► attempt ─► upstream queue ───────┘
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use method::units::Nanos;
use net::batch::{BATCH, OFFLOAD_LEN, Peer, ReceiveBatch, Wait};
use net::clock;
use net::poller::Poller;
use net::queue::SendQueue;
use net::socket::Endpoint;
use rand::SeedableRng;
use rand::rngs::StdRng;
use slab::Slab;
use wire::template::HEADER_LEN;
use wire::view::{CLASS_IN, Message, rtype};

use super::fetches::{Attempt, Fetch, FetchId, Fetches};
use super::jobs::{Client, Job};
use super::metrics::{Count, WorkerMetrics};
use super::tcp::{TcpFailure, TcpQuestion};
use super::timers::{LEAST_DELAY, Timers};
use super::upstreams::{FIRST_TOKEN, SocketId, Upstreams, is_ours};
use super::{Message as Inbox, Shared};
use crate::answer::{Answer, Kept, Kind, Unusable, rcode};
use crate::cache::Found;
use crate::config::{Overload, Settings};
use crate::local::{self, Local};
use crate::name::{Key, KeyBuf, LowerName};
use crate::query::{Query, Received};
use crate::reply::{Form, ede, write_refusal};
use crate::translate::{self, Failure, Next, Outcome, Question, Reason, Reply, Withheld};

/// Batches that are read from one socket before the others have their turn.
const BATCHES: usize = 4;
/// Tokens of the poller: client endpoints from 0 on, then this.
const INBOX: usize = FIRST_TOKEN - 1;
/// A question is not begun for a client query that is older than this: the client is about to ask again, and two more
/// rounds of `forwarding.timeout` would make it wait for more than four seconds.
const PATIENCE: Nanos = Nanos::from_millis(2_100);
/// How much longer than the asking worker another one waits for its word.
const GRACE: Nanos = Nanos::from_millis(100);
/// The longest wait: then the worker looks whether it should end.
const IDLE: Duration = Duration::from_millis(100);
/// Questions in flight for each client query that may wait: chains and parallel questions make more than one.
const FETCHES_PER_JOB: usize = 2;

pub(super) struct Worker {
    number: usize,
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    endpoints: Vec<Endpoint>,
    replies: Vec<SendQueue>,
    poller: Poller,
    inbox: Receiver<Inbox>,
    upstreams: Upstreams,
    fetches: Fetches,
    by_key: HashMap<Key, FetchId>,
    jobs: Slab<Job>,
    timers: Timers,
    rng: StdRng,
    now: Nanos,
}

impl Worker {
    /// A worker on its own sockets, one per address.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub(super) fn new(
        number: usize,
        shared: Arc<Shared>,
        endpoints: Vec<Endpoint>,
        inbox: Receiver<Inbox>,
    ) -> std::io::Result<Worker> {
        let poller = Poller::new(256)?;
        for (token, endpoint) in endpoints.iter().enumerate() {
            endpoint.use_receive_offload();
            poller.add(endpoint, token)?;
        }
        poller.add(&*shared.mailboxes[number].alarm, INBOX)?;
        let settings = shared.settings.load_full();
        let mut upstreams = Upstreams::default();
        upstreams.configure(&settings.upstreams, settings.config.forwarding.source_ports);
        Ok(Worker {
            number,
            replies: endpoints.iter().map(|_| SendQueue::new()).collect(),
            shared,
            settings,
            endpoints,
            poller,
            inbox,
            upstreams,
            fetches: Fetches::default(),
            by_key: HashMap::default(),
            jobs: Slab::new(),
            timers: Timers::default(),
            rng: StdRng::from_rng(&mut rand::rng()),
            now: clock::now(),
        })
    }

    /// Works until it is told to stop, and then until the last client query has its reply.
    pub(super) fn run(mut self) {
        let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
        let mut ready = Vec::with_capacity(256);
        loop {
            let stopping = self.shared.stopping.load(Ordering::Relaxed);
            if stopping {
                // What came over TCP before may still be there.
                self.read_inbox();
                self.flush();
                if self.jobs.is_empty() {
                    break;
                }
            }
            let timeout = self.timers.next().map_or(IDLE, |at| Duration::from(at.since(self.now)).min(IDLE));
            ready.clear();
            match self.poller.wait(timeout) {
                Ok(tokens) => ready.extend(tokens),
                Err(error) => {
                    tracing::error!("worker {} cannot wait for its sockets: {error}", self.number);
                    std::thread::sleep(IDLE);
                }
            }
            self.now = clock::now();
            self.take_settings();
            for &token in &ready {
                match SocketId::of_token(token) {
                    Some(socket) => self.read_upstream(socket, &mut batch),
                    None if token == INBOX => self.read_inbox(),
                    None => self.read_clients(token, &mut batch, stopping),
                }
            }
            while let Some(fetch) = self.timers.pop(self.now) {
                self.on_timeout(fetch);
            }
            self.flush();
        }
    }

    fn metrics(&self) -> &WorkerMetrics {
        self.shared.metrics.worker(self.number)
    }

    /// Looks whether the configuration has been replaced.
    fn take_settings(&mut self) {
        let current = self.shared.settings.load();
        if !Arc::ptr_eq(&current, &self.settings) {
            self.settings = Arc::clone(&current);
            self.upstreams.configure(&self.settings.upstreams, self.settings.config.forwarding.source_ports);
            // Routes are numbers of the old configuration: what is in flight keeps the server that it has.
            self.fetches.reroute(&self.settings);
        }
    }

    fn flush(&mut self) {
        let refused = self.upstreams.flush();
        if !refused.is_empty() {
            for socket in refused {
                self.on_unreachable(socket, &std::io::ErrorKind::ConnectionRefused.into());
            }
            // What others are asked instead; should they refuse as well, the timers will see to it.
            self.upstreams.flush();
        }
        for number in 0..self.replies.len() {
            self.flush_replies(number);
        }
        self.metrics().in_flight.store(self.jobs.len() as u64, Ordering::Relaxed);
    }

    fn flush_replies(&mut self, number: usize) {
        let flushed = self.replies[number].flush(&self.endpoints[number]);
        if flushed.refused > 0 {
            self.metrics().add(Count::SendRefused, flushed.refused as u64);
        }
    }

    // ---- from clients ----

    /// Reads what clients ask; a server that stops takes no more queries, but must not find them again and again.
    fn read_clients(&mut self, endpoint: usize, batch: &mut ReceiveBatch, stopping: bool) {
        for _ in 0..BATCHES {
            // An error is the ICMP message of a client that has gone.
            let received = batch.receive(&self.endpoints[endpoint], Wait::Dont).unwrap_or(0);
            for i in 0..received {
                // Nobody has port 0: what comes from there is forged, and the kernel would refuse to send there.
                let Some(peer) = batch.peer(i).filter(|peer| peer.address.port() != 0 && !stopping) else { continue };
                for datagram in batch.get(i).segments() {
                    self.on_query(Client::Udp(endpoint, peer), datagram);
                }
            }
            if received < BATCH {
                break;
            }
        }
    }

    fn on_query(&mut self, client: Client, bytes: &[u8]) {
        let limits = self.settings.config.limits;
        let admitted = client.is_tcp()
            || self.shared.limiter.admits(client.ip(), self.now, limits.client_rate, limits.client_burst);
        if !admitted {
            return self.limit(&client, bytes);
        }
        if !self.settings.allows(client.ip()) {
            return self.refuse(&client, bytes);
        }
        match Received::read(bytes) {
            Received::Query(query) => self.on_good_query(client, &query),
            Received::Error { rcode, question, edns } => {
                self.count_rcode(rcode);
                self.reply(&client, |out| write_refusal(out, bytes, rcode, question, edns));
            }
            Received::Ignored => {
                self.metrics().count(Count::Ignored);
                self.reply(&client, |_| {});
            }
        }
    }

    fn on_good_query(&mut self, client: Client, query: &Query<'_>) {
        self.count_query(client.is_tcp(), query.qtype);
        let ip = client.ip();
        let form = Form::new(query, client.is_tcp(), self.shared.cookies.answer(query, ip));
        let settings = Arc::clone(&self.settings);
        let policy = settings.policy(ip);
        let mut question = Question::of(query);
        let local = if query.qclass == CLASS_IN { local::look(&query.name, query.qtype, policy) } else { Local::No };
        let alias = match local {
            Local::No => false,
            Local::Alias(target) => {
                question.name = target;
                true
            }
            Local::Answer(answer) => {
                self.metrics().count(Count::Local);
                self.count_rcode(u16::from(answer.rcode));
                return self.reply(&client, |out| form.write_local(out, &answer));
            }
        };
        if query.checking_disabled && query.qtype == rtype::AAAA && policy.translates() {
            self.metrics().count(Count::WithheldCd);
        }
        let arrived = self.now;
        let job = Job { client, form, question, alias, arrived, known: Vec::with_capacity(2) };
        self.advance(job);
    }

    /// A client that must not ask: REFUSED, if it has asked at all.
    fn refuse(&mut self, client: &Client, bytes: &[u8]) {
        self.metrics().count(Count::AclRefused);
        match Received::read(bytes) {
            Received::Query(query) => {
                let form = Form::new(&query, client.is_tcp(), None);
                self.count_rcode(u16::from(rcode::REFUSED));
                self.reply(client, |out| form.write_error(out, rcode::REFUSED, Some(ede::PROHIBITED)));
            }
            _ => self.reply(client, |_| {}),
        }
    }

    /// A client that asks too much. One that has proved its address (RFC 7873) is sent to TCP; others, whose address may be
    /// forged, get nothing.
    fn limit(&mut self, client: &Client, bytes: &[u8]) {
        self.metrics().count(Count::RateLimited);
        let ip = client.ip();
        if let Received::Query(query) = Received::read(bytes)
            && self.settings.allows(ip)
            && self.shared.cookies.proves(&query, ip)
        {
            let form = Form::new(&query, false, self.shared.cookies.answer(&query, ip));
            self.reply(client, |out| form.write_truncated(out));
        }
    }

    // ---- from question to reply ----

    /// Takes a client query as far as what is known allows: to its reply, or to the next question that it waits for.
    fn advance(&mut self, mut job: Job) {
        let settings = Arc::clone(&self.settings);
        let policy = settings.policy(job.client.ip());
        let mode = settings.routes[settings.route(&job.question.name)].mode.unwrap_or(policy.mode);
        loop {
            match translate::next(&job.question, policy, mode, &job.known) {
                Next::Reply(reply) => {
                    self.count_reply(&reply, &job.known);
                    let trust_ad = settings.config.forwarding.trust_ad;
                    let Job { client, form, known, .. } = &job;
                    return self.reply(client, |out| {
                        form.write(out, &reply, known, policy, job.alias_target(), trust_ad);
                    });
                }
                Next::Ask(name, qtype) => {
                    let key = self.key(&job, &name, qtype);
                    match self.shared.cache.get(key.octets(), self.now, &settings.ttl) {
                        Found::Usable(kept) => {
                            self.metrics().count(Count::CacheHit);
                            job.known.push(Outcome::Answered(kept));
                        }
                        Found::Failed(failure) => {
                            self.metrics().count(Count::CacheHit);
                            job.known.push(Outcome::Failed(failure));
                        }
                        Found::Missing => {
                            self.metrics().count(Count::CacheMiss);
                            match self.wait_for(job, &key) {
                                Some(back) => job = back,
                                None => return,
                            }
                        }
                    }
                }
            }
        }
    }

    fn key(&self, job: &Job, name: &LowerName, qtype: u16) -> KeyBuf {
        KeyBuf::new(name, qtype, job.question.qclass, job.question.dnssec_ok, job.question.checking_disabled)
    }

    /// Lets a job wait for a question, which is asked if nobody has. Gives the job back, with a failure, if it cannot wait.
    fn wait_for(&mut self, mut job: Job, key: &KeyBuf) -> Option<Job> {
        if self.now.since(job.arrived) > PATIENCE {
            // No timeout: nobody has been asked, and nothing may be made up for records that may exist.
            job.known = vec![Outcome::Failed(Failure::Overload)];
            return Some(job);
        }
        let limits = self.settings.config.limits;
        let in_flight = self.by_key.get(key.octets()).copied();
        let no_room = self.jobs.len() >= limits.in_flight
            || in_flight.is_none() && self.fetches.len() >= limits.in_flight * FETCHES_PER_JOB;
        if no_room {
            self.metrics().count(Count::Overload);
            if limits.overload == Overload::Drop && !job.client.is_tcp() {
                return None;
            }
            job.known = vec![Outcome::Failed(Failure::Overload)];
            return Some(job);
        }
        let first = job.known.is_empty();
        let parallel = first && {
            let policy = self.settings.policy(job.client.ip());
            policy.parallel && job.question.may_translate(policy)
        };
        let a_key = parallel.then(|| self.key(&job, &job.question.name, rtype::A));
        let index = self.jobs.insert(job);
        let fetch = match in_flight {
            Some(fetch) => {
                self.metrics().count(Count::Collapsed);
                fetch
            }
            None => match self.begin(key) {
                Ok(fetch) => fetch,
                Err(kept) => {
                    let mut job = self.jobs.remove(index);
                    job.known.push(Outcome::Answered(kept));
                    return Some(job);
                }
            },
        };
        if let Some(fetch) = self.fetches.get(fetch) {
            fetch.waiters.push(index);
        }
        if let Some(key) = a_key {
            let missing = matches!(self.shared.cache.get(key.octets(), self.now, &self.settings.ttl), Found::Missing);
            if missing && !self.by_key.contains_key(key.octets()) {
                // If another worker has just got the answer, it is in the cache by now.
                let _ = self.begin(&key);
            }
        }
        None
    }

    /// Begins to ask a question, or to wait for another worker that asks it already. If that one has just got the answer, it
    /// is there at once.
    fn begin(&mut self, question: &KeyBuf) -> Result<FetchId, Kept> {
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
        let timeout = Nanos::from(forwarding.timeout);
        let route = self.settings.route(&LowerName::of_wire(key.name()));
        let random_case = forwarding.randomize_case.then_some(&mut self.rng);
        let deadline = self.now + timeout + if mine { Nanos(0) } else { GRACE };
        let mut fetch = Fetch::new(key.clone(), route, deadline, random_case);
        fetch.elsewhere = !mine;
        let id = self.fetches.insert(fetch);
        self.by_key.insert(key, id);
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

    // ---- upstreams ----

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
        if !fetch.tried.contains(&number) {
            fetch.tried.push(number);
        } else if server.may_ask_again(self.now) {
            self.shared.metrics.worker(self.number).count(Count::RetrySent);
        } else {
            self.shared.metrics.worker(self.number).count(Count::RetryWithheld);
            fetch.due = self.timers.set(id, self.now, server.patience(), left);
            return;
        }
        let edns = fetch.plain != Some(number) && !server.is_plain(self.now);
        let asked = server.ask(number, id, &self.poller, &mut self.rng, |id, out| fetch.write_query(id, edns, out));
        let doubled = Nanos(server.patience().0 << fetch.attempts.len().min(4));
        match asked {
            Ok((socket, message_id)) => {
                let attempt = Attempt { server: number, socket, id: message_id, sent: self.now, edns };
                fetch.attempts.push(attempt);
                self.shared.metrics.worker(self.number).count(Count::UpstreamUdp);
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
    fn wait_until_deadline(&mut self, id: FetchId) {
        if let Some(fetch) = self.fetches.get(id) {
            let left = fetch.deadline.since(self.now);
            fetch.due = self.timers.set(id, self.now, left, left);
        }
    }

    fn read_upstream(&mut self, at: SocketId, batch: &mut ReceiveBatch) {
        for _ in 0..BATCHES {
            let Some(endpoint) = self.upstreams.server(at.server).endpoint(at.socket) else { return };
            match batch.receive(endpoint, Wait::Dont) {
                Ok(received) => {
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
    fn on_unreachable(&mut self, at: SocketId, error: &std::io::Error) {
        self.metrics().count(Count::UpstreamUnreachable);
        self.upstreams.server(at.server).failed(self.now, &error.to_string());
        for id in self.upstreams.server(at.server).waiting_on(at.socket) {
            let Some(fetch) = self.fetches.get(id) else { continue };
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
        let unread = message.qdcount() == 0 && matches!(code, rcode::FORMERR | rcode::NOTIMP);
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
            server.answered(rtt, !matches!(code, rcode::NOERROR | rcode::NXDOMAIN));
            self.shared.metrics.worker(self.number).rtt(rtt);
        }
        let disliked = matches!(code, rcode::FORMERR | rcode::NOTIMP);
        if plain && !had_edns && matches!(code, rcode::NOERROR | rcode::NXDOMAIN) {
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

    /// An answer to the right question.
    fn on_answer(&mut self, id: FetchId, bytes: &[u8]) {
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

    fn on_timeout(&mut self, id: FetchId) {
        let Some(fetch) = self.fetches.get(id) else { return };
        if self.now < fetch.due {
            return;
        }
        let over = self.now + LEAST_DELAY >= fetch.deadline;
        let by_us = !fetch.elsewhere && fetch.over_tcp.is_none();
        let last = fetch.attempts.last().copied();
        let mut hopeless = false;
        if let Some(last) = last.filter(|_| by_us) {
            self.shared.metrics.worker(self.number).count(Count::UpstreamTimeout);
            let server = self.upstreams.server(last.server);
            server.failed(self.now, "no answer in time");
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
        let key = self.by_key.remove_entry(&fetch.key).map_or_else(|| fetch.key.clone(), |(key, _)| key);
        for attempt in &fetch.attempts {
            self.upstreams.server(attempt.server).forget(attempt.socket, attempt.id);
        }
        let answer = answer.or(fetch.fallback);
        let outcome = self.outcome(key, answer, failure, fetch.elsewhere);
        if !fetch.elsewhere {
            self.tell_others(&fetch.key, &outcome);
        }
        self.resume(fetch.waiters, &outcome);
    }

    /// What becomes of an answer or of its absence, the cache considered.
    fn outcome(&self, key: Key, answer: Option<Arc<Answer>>, failure: Failure, elsewhere: bool) -> Outcome {
        let failed = answer.as_ref().is_none_or(|answer| answer.kind() == Kind::Failed);
        if failed && let Some(stale) = self.shared.cache.revive(&key, self.now, &self.settings.ttl) {
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
        Outcome::Answered(Kept { answer, age: 0, stale: false })
    }

    fn resume(&mut self, waiters: Vec<usize>, outcome: &Outcome) {
        for index in waiters {
            let mut job = self.jobs.remove(index);
            job.known.push(outcome.clone());
            self.advance(job);
        }
    }

    // ---- from the TCP side and from other workers ----

    fn read_inbox(&mut self) {
        self.shared.mailboxes[self.number].alarm.reset();
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Inbox::TcpQuery { bytes, from, reply } => self.on_query(Client::Tcp(from, reply), &bytes),
                Inbox::TcpAnswer { fetch, message: Ok(bytes) } => {
                    if let Some(fetch) = self.fetches.get(fetch) {
                        fetch.over_tcp = None;
                    }
                    self.on_answer(fetch, &bytes);
                }
                Inbox::TcpAnswer { fetch, message: Err(why) } => self.on_tcp_failure(fetch, why),
                Inbox::Landed(key, outcome) => {
                    // One that has waited too long may have begun to ask for itself.
                    let waiting = self.by_key.get(&key).copied();
                    let waiting = waiting.filter(|id| self.fetches.get(*id).is_some_and(|fetch| fetch.elsewhere));
                    if let Some(fetch) = waiting.and_then(|id| self.fetches.remove(id)) {
                        self.by_key.remove(&key);
                        self.resume(fetch.waiters, &outcome);
                    }
                }
            }
        }
    }

    fn on_tcp_failure(&mut self, id: FetchId, why: TcpFailure) {
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

    // ---- replies and their counters ----

    fn reply(&mut self, client: &Client, write: impl FnOnce(&mut Vec<u8>)) {
        match client {
            Client::Udp(number, peer) => {
                if self.replies[*number].is_full() {
                    self.flush_replies(*number);
                }
                let peer: Peer = *peer;
                let mut truncated = false;
                self.replies[*number].push(Some(peer), |out| {
                    let start = out.len();
                    write(out);
                    truncated = Message::new(&out[start..]).is_some_and(|reply| reply.is_truncated());
                });
                if truncated {
                    self.metrics().count(Count::Truncated);
                }
            }
            Client::Tcp(_, connection) => {
                let mut message = Vec::new();
                write(&mut message);
                // The client may have gone.
                let _ = connection.send(message);
            }
        }
    }

    fn count_query(&self, tcp: bool, qtype: u16) {
        self.metrics().count(match (tcp, qtype) {
            (false, rtype::A) => Count::UdpA,
            (false, rtype::AAAA) => Count::UdpAaaa,
            (false, rtype::PTR) => Count::UdpPtr,
            (false, _) => Count::UdpOther,
            (true, rtype::A) => Count::TcpA,
            (true, rtype::AAAA) => Count::TcpAaaa,
            (true, rtype::PTR) => Count::TcpPtr,
            (true, _) => Count::TcpOther,
        });
    }

    fn count_rcode(&self, code: u16) {
        self.metrics().count(match code {
            0 => Count::Noerror,
            1 => Count::Formerr,
            2 => Count::Servfail,
            3 => Count::Nxdomain,
            4 => Count::Notimp,
            5 => Count::Refused,
            _ => Count::OtherRcode,
        });
    }

    fn count_reply(&self, reply: &Reply, known: &[Outcome]) {
        let metrics = self.metrics();
        let (code, withheld) = match *reply {
            Reply::Pass { count, strip, withheld } => {
                if strip {
                    metrics.count(Count::Stripped);
                }
                let code = match &known[count - 1] {
                    Outcome::Answered(kept) => kept.answer.rcode(),
                    Outcome::Failed(_) => rcode::SERVFAIL,
                };
                (code, withheld)
            }
            Reply::Synthesize { reason, .. } => {
                metrics.count(match reason {
                    Reason::NoData => Count::SynthesizedNodata,
                    Reason::Rcode => Count::SynthesizedRcode,
                    Reason::Timeout => Count::SynthesizedTimeout,
                    Reason::Excluded => Count::SynthesizedExcluded,
                });
                (rcode::NOERROR, None)
            }
            Reply::Empty { withheld, .. } => (rcode::NOERROR, withheld),
            Reply::Error { rcode, .. } => (rcode, None),
        };
        match withheld {
            Some(Withheld::Unmapped) => metrics.count(Count::WithheldUnmapped),
            Some(Withheld::Signed) => metrics.count(Count::WithheldSigned),
            None => {}
        }
        if known.iter().any(|outcome| matches!(outcome, Outcome::Answered(kept) if kept.stale)) {
            metrics.count(Count::StaleServed);
        }
        self.count_rcode(u16::from(code));
    }
}

/// Whether a message has an EDNS part.
fn speaks_edns(message: &Message<'_>) -> bool {
    let Ok(at) = message.skip_name(HEADER_LEN).map(|end| end + 4) else { return false };
    let at = if message.qdcount() == 0 { HEADER_LEN } else { at };
    message.all_records(at).flatten().any(|record| record.rtype == rtype::OPT)
}
