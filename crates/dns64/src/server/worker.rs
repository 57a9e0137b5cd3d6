//! A worker: its sockets, the questions that it has in flight, and the client queries that wait for them.
//!
//! ```text
//! turn: wait ─► client datagrams ─► on_query ──► advance ─► reply queue ─┐
//!          ├──► upstream datagrams ─► on_upstream ─► land ─► advance     ├─► flush
//!          ├──► inbox: TCP queries, TCP answers, other workers' answers  │
//!          └──► timers ─► on_timeout ─► attempt ─► upstream queue ───────┘
//! ```

mod asking;

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
use wire::edns::ede;
use wire::rcode::Rcode;
use wire::view::{Message, rtype};

use super::fetches::Fetches;
use super::jobs::{Client, Job};
use super::metrics::{Count, WorkerMetrics};
use super::room::Room;
use super::timers::Timers;
use super::upstreams::{FIRST_TOKEN, MOST_IDS, SocketId, Upstreams};
use super::{Message as Inbox, Shared};
use crate::client::inquiry::{Inquiry, Step};
use crate::client::query::{Query, Received};
use crate::client::reply::{ReplyFrame, write_refusal};
use crate::config::{Overload, Settings};
use crate::name::KeyBuf;
use crate::resolver::cache::Found;
use crate::resolver::outcome::{Failure, Kept, Outcome};
use crate::translation::decide::{Reason, Reply, Withheld};

/// Batches that are read from one socket before the others have their turn.
const BATCHES: usize = 4;
/// Tokens of the poller: client endpoints from 0 on, then this.
const INBOX: usize = FIRST_TOKEN - 1;
/// A question is not begun for a client query that is older than this: the client is about to ask again, and two more
/// rounds of `forwarding.timeout` would make it wait for more than four seconds.
const PATIENCE: Nanos = Nanos::from_millis(2_100);
/// The longest wait: then the worker looks whether it should end.
const IDLE: Duration = Duration::from_millis(100);
/// No query begins while so many questions are in flight for each one that may wait: chains make more than one question of one.
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
    room: Room,
    jobs: Slab<Job>,
    timers: Timers,
    rng: StdRng,
    now: Nanos,
    /// What the kernel had thrown away when this worker began; `None` if another worker has the same sockets and counts.
    drops_before: Option<u64>,
    /// When the kernel is asked again.
    drops_due: Nanos,
}

impl Worker {
    /// A worker on its own sockets, one per address. `counts_drops`: no other worker of lower number has the same ones.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub(super) fn new(
        number: usize,
        shared: Arc<Shared>,
        endpoints: Vec<Endpoint>,
        counts_drops: bool,
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
        upstreams.configure(&settings.upstreams, settings.config.forwarding.source_ports, &shared.metrics);
        Ok(Worker {
            number,
            replies: endpoints.iter().map(|_| SendQueue::new()).collect(),
            drops_before: counts_drops.then(|| drops(&endpoints)),
            shared,
            settings,
            endpoints,
            poller,
            inbox,
            upstreams,
            fetches: Fetches::default(),
            room: Room::default(),
            jobs: Slab::new(),
            timers: Timers::default(),
            rng: StdRng::from_rng(&mut rand::rng()),
            now: clock::now(),
            drops_due: Nanos(0),
        })
    }

    /// Works until it is told to stop, and then until the last client query has its reply.
    pub(super) fn run(mut self) {
        let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
        let mut ready = Vec::with_capacity(256);
        let mut stopping = false;
        loop {
            if !stopping && self.shared.stopping.load(Ordering::Relaxed) {
                stopping = true;
                // What has not been read stays where it is: systemd's sockets are served by the next process.
                for endpoint in &self.endpoints {
                    let _ = self.poller.remove(endpoint);
                }
            }
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
                    None => self.read_clients(token, &mut batch),
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
            let ports = self.settings.config.forwarding.source_ports;
            self.upstreams.configure(&self.settings.upstreams, ports, &self.shared.metrics);
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
        if let Some(before) = self.drops_before
            && self.now >= self.drops_due
        {
            self.drops_due = self.now + Nanos::from(IDLE);
            self.metrics().set(Count::SocketDrops, drops(&self.endpoints) - before);
        }
    }

    fn flush_replies(&mut self, number: usize) {
        let flushed = self.replies[number].flush(&self.endpoints[number]);
        if flushed.refused > 0 {
            self.metrics().add(Count::SendRefused, flushed.refused as u64);
        }
    }

    // ---- from clients ----

    fn read_clients(&mut self, endpoint: usize, batch: &mut ReceiveBatch) {
        for _ in 0..BATCHES {
            // An error is the ICMP message of a client that has gone.
            let received = batch.receive(&self.endpoints[endpoint], Wait::Dont).unwrap_or(0);
            self.now = clock::now();
            for i in 0..received {
                // Nobody has port 0: what comes from there is forged, and the kernel would refuse to send there.
                let Some(peer) = batch.peer(i).filter(|peer| peer.address.port() != 0) else { continue };
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
                self.metrics().count_rcode(rcode);
                self.reply(&client, |out| write_refusal(out, bytes, rcode, question, edns));
            }
            Received::Ignored => {
                self.metrics().count(Count::Ignored);
                self.reply(&client, |_| {});
            }
        }
    }

    fn on_good_query(&mut self, client: Client, query: &Query<'_>) {
        self.metrics().count_query(client.is_tcp(), query.qtype);
        let ip = client.ip();
        let settings = Arc::clone(&self.settings);
        let policy = settings.policy(ip);
        let cookie = self.shared.cookies.answer(query, ip);
        let inquiry = Inquiry::begin(query, ip, client.is_tcp(), cookie, policy);
        if !inquiry.is_local() && query.checking_disabled && query.qtype == rtype::AAAA && policy.translates() {
            self.metrics().count(Count::WithheldCd);
        }
        self.advance(Job { client, inquiry, arrived: self.now });
    }

    /// A client that must not ask: REFUSED, if it has asked at all.
    fn refuse(&mut self, client: &Client, bytes: &[u8]) {
        self.metrics().count(Count::AclRefused);
        match Received::read(bytes) {
            Received::Query(query) => {
                let frame = ReplyFrame::new(&query, client.is_tcp(), None);
                self.metrics().count_rcode(Rcode::REFUSED);
                self.reply(client, |out| frame.write_error(out, Rcode::REFUSED, Some(ede::PROHIBITED)));
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
            let frame = ReplyFrame::new(&query, false, self.shared.cookies.answer(&query, ip));
            self.reply(client, |out| frame.write_truncated(out));
        }
    }

    // ---- from question to reply ----

    /// Takes a client query as far as what is known allows: to its reply, or to the next question that it waits for.
    fn advance(&mut self, mut job: Job) {
        let settings = Arc::clone(&self.settings);
        let rules = settings.rules(settings.policy(job.inquiry.client()), job.inquiry.name());
        loop {
            match job.inquiry.step(&rules) {
                Step::Reply(reply) => {
                    self.count_reply(&job.inquiry, &reply);
                    let Job { client, inquiry, .. } = &job;
                    return self.reply(client, |out| inquiry.write(out, &reply, &rules));
                }
                Step::Ask(key) => match self.shared.cache.get(key.octets(), self.now, &settings.ttl) {
                    Found::Usable(kept) => {
                        self.metrics().count(Count::CacheHit);
                        job.inquiry.learn(Outcome::Answered(kept));
                    }
                    Found::Failed(failure) => {
                        self.metrics().count(Count::CacheHit);
                        job.inquiry.learn(Outcome::Failed(failure));
                    }
                    Found::Missing => {
                        if let Some(kept) = self.stale_at_once(&job, &key) {
                            self.metrics().count(Count::CacheHit);
                            job.inquiry.learn(Outcome::Answered(kept));
                            continue;
                        }
                        self.metrics().count(Count::CacheMiss);
                        match self.wait_for(job, &key) {
                            Some(back) => job = back,
                            None => return,
                        }
                    }
                },
            }
        }
    }

    /// A stale answer to a further question of a query that has waited for upstreams in vain: waiting once more would be too long
    /// for a client (RFC 8767 §5).
    fn stale_at_once(&self, job: &Job, key: &KeyBuf) -> Option<Kept> {
        let in_vain = self.settings.ttl.stale.is_some() && job.inquiry.has_waited_in_vain();
        in_vain.then(|| self.shared.cache.revive(&key.to_key(), self.now, &self.settings.ttl, None)).flatten()
    }

    /// Whether the first question of one more query may be in flight.
    fn may_ask_more(&self) -> bool {
        let forwarding = self.settings.config.forwarding;
        // Half of the ids are left for those that are asked again.
        let ids = usize::from(forwarding.source_ports) * MOST_IDS / 2;
        let most = self.settings.config.limits.in_flight * FETCHES_PER_JOB;
        self.fetches.len() < most.min(ids).min(self.room.questions(Nanos::from(forwarding.timeout)))
    }

    /// Lets a job wait for a question, which is asked if nobody has. Gives the job back, with a failure, if it cannot wait.
    fn wait_for(&mut self, mut job: Job, key: &KeyBuf) -> Option<Job> {
        if self.now.since(job.arrived) > PATIENCE {
            // No timeout: nobody has been asked, and nothing may be made up for records that may exist.
            job.inquiry.give_up(Failure::Overload);
            return Some(job);
        }
        let limits = self.settings.config.limits;
        let in_flight = self.fetches.find(key.octets());
        let first = job.inquiry.is_new();
        // A query for which something has been asked gets the rest as well: else that were for nothing.
        let no_room = self.jobs.len() >= limits.in_flight || first && in_flight.is_none() && !self.may_ask_more();
        if no_room {
            self.metrics().count(Count::Overload);
            if limits.overload == Overload::Drop && !job.client.is_tcp() {
                return None;
            }
            job.inquiry.give_up(Failure::Overload);
            return Some(job);
        }
        let a_key = job.inquiry.companion(self.settings.policy(job.inquiry.client()));
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
                    job.inquiry.learn(Outcome::Answered(kept));
                    return Some(job);
                }
            },
        };
        if let Some(fetch) = self.fetches.get(fetch) {
            fetch.waiters.push(index);
        }
        if let Some(key) = a_key {
            let missing = matches!(self.shared.cache.get(key.octets(), self.now, &self.settings.ttl), Found::Missing);
            if missing && self.fetches.find(key.octets()).is_none() {
                // If another worker has just got the answer, it is in the cache by now.
                let _ = self.begin(&key);
            }
        }
        None
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
                    let waiting = self.fetches.find(key.octets());
                    let waiting = waiting.filter(|id| self.fetches.get(*id).is_some_and(|fetch| fetch.elsewhere));
                    if let Some(fetch) = waiting.and_then(|id| self.fetches.remove(id)) {
                        self.resume(fetch.waiters, &outcome);
                    }
                }
            }
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

    fn count_reply(&self, inquiry: &Inquiry, reply: &Reply<'_>) {
        let metrics = self.metrics();
        match *reply {
            Reply::Pass { strip: true, .. } => metrics.count(Count::Stripped),
            Reply::Synthesize { reason, .. } => metrics.count(match reason {
                Reason::NoData => Count::SynthesizedNodata,
                Reason::Rcode => Count::SynthesizedRcode,
                Reason::Timeout => Count::SynthesizedTimeout,
                Reason::Excluded => Count::SynthesizedExcluded,
            }),
            Reply::Local(_) => metrics.count(Count::Local),
            Reply::Pass { .. } | Reply::Empty { .. } | Reply::Error { .. } => {}
        }
        match reply.withheld() {
            Some(Withheld::Unmapped) => metrics.count(Count::WithheldUnmapped),
            Some(Withheld::Signed) => metrics.count(Count::WithheldSigned),
            None => {}
        }
        if inquiry.is_stale() {
            metrics.count(Count::StaleServed);
        }
        metrics.count_rcode(reply.rcode());
    }
}

/// Datagrams that found these sockets full.
fn drops(endpoints: &[Endpoint]) -> u64 {
    endpoints.iter().map(Endpoint::drops).sum()
}
