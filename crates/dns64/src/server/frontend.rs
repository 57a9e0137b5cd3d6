//! Client queries: access checks, immediate answers, lookups for the translation decision, and
//! replies.
//!
//! ```text
//! on_query ─► limiter, access ─► begin ─┬─► the usual answers are cached ─► conclude ─► Replies
//!                                       └─► Inquiry ─► advance ─► step ─────▲
//!                                                        ▲         │ ask
//!                                                        │         ▼
//!                                                      resume ◄─ Resolver, jobs
//! ```
//!
//! Each reply is reported to an [`Observer`], if there is one. An explained query
//! ([`super::explain`]) takes the same path, and ends in an explanation instead of a reply.

use std::net::IpAddr;
use std::sync::Arc;

use net::clock;
use net::xdp::Outbox;
use units::Nanos;
use wire::edns::ede;
use wire::rcode::Rcode;
use wire::view::rtype;

use super::admission::Admission;
use super::explain::Trace;
use super::jobs::{Arrival, Job, Jobs};
use super::network::Network;
use super::replies::Replies;
use super::shared::Shared;
use crate::client::inquiry::{Inquiry, ReplySource, Step};
use crate::client::limiter::wide_network;
use crate::client::query::{Query, Received};
use crate::client::reply::{ReplyFrame, write_refusal, write_servfail};
use crate::config::{LimitKeys, Overload, Settings};
use crate::ids::WorkerId;
use crate::metrics::{Count, WorkerMetrics};
use crate::name::{KeyBuf, LowerName};
use crate::observe::{Entry, Observer};
use crate::resolver::Resolver;
use crate::resolver::outcome::{Failure, Outcome};
use crate::resolver::waiter::{Rejection, Resolve, ResolveRequest, Waiter};
use crate::shares::client::ClientId;
use crate::translation::decide::{self, Next, Outcomes, Reason, Reply, Strip, WithheldReason};
use crate::translation::decision::Decision;
use crate::translation::local::Local;
use crate::translation::policy::Rules;
use crate::transport::Transport;
use crate::transport::client::{Client, StreamClient};

/// Ratio of reply size to query size up to which a UDP reply is not rate limited. Octets above this limit count against
/// `limits.amplification-rate`, unless the client's address is verified.
const UNLIMITED: u32 = 4;

/// Progress of a client query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The query waits for a fetch.
    Waiting,
    /// The query has been answered, or gets no reply.
    Ended,
}

/// Handler of the client queries of one worker.
pub(super) struct Frontend {
    worker: WorkerId,
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    replies: Replies,
    /// Observer to which each reply is reported.
    observer: Option<Observer>,
    now: Nanos,
}

impl Frontend {
    /// Creates the handler of a worker's client queries.
    pub(super) fn new(
        worker: WorkerId,
        shared: Arc<Shared>,
        settings: Arc<Settings>,
        replies: Replies,
        observer: Option<Observer>,
    ) -> Frontend {
        Frontend { worker, shared, settings, replies, observer, now: Nanos(0) }
    }

    /// Switches to other settings, for later queries and for the remaining steps of waiting queries.
    pub(super) fn take_settings(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
    }

    /// Returns the settings in effect.
    pub(super) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Sets the current time.
    #[inline]
    pub(super) fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Returns the client sockets and their queued replies.
    pub(super) fn replies(&self) -> &Replies {
        &self.replies
    }

    /// Returns the replies queued for the rings with this index.
    pub(super) fn outbox(&mut self, number: usize) -> &mut Outbox {
        self.replies.outbox(number)
    }

    /// Sends the replies queued in this iteration of the event loop.
    pub(super) fn flush(&mut self) {
        self.replies.flush(self.now, self.shared.metrics().worker(self.worker));
    }

    fn metrics(&self) -> &WorkerMetrics {
        self.shared.metrics().worker(self.worker)
    }

    /// Sends the reply that `write` produces, for a query that has just arrived.
    #[inline]
    fn reply(&mut self, client: &Client, write: impl FnOnce(&mut Vec<u8>)) {
        let metrics = self.shared.metrics().worker(self.worker);
        self.replies.send(client, metrics, Nanos(0), || None, write);
    }

    /// Reports an immediately answered query to the observer, if there is one.
    #[inline]
    fn report_reply(
        &mut self,
        client: &Client,
        question: Option<(&LowerName, u16)>,
        rcode: Rcode,
        decision: Decision,
    ) {
        let metrics = self.shared.metrics().worker(self.worker);
        if let Some(observer) = &mut self.observer {
            observer.answered(metrics, || Entry {
                when: clock::wall(),
                took: Nanos(0),
                client: client.ip(),
                question: question.map(|(name, qtype)| (name.clone(), qtype)),
                transport: client.transport(),
                rcode,
                decision,
                stale: false,
                security: None,
            });
        }
    }

    /// Reports a reply to the observer, if there is one.
    #[inline]
    fn report_answer(
        &mut self,
        client: &Client,
        arrival: &Arrival,
        source: ReplySource<'_>,
        reply: &Reply<'_>,
        sent: Rcode,
        rules: &Rules<'_>,
    ) {
        let metrics = self.shared.metrics().worker(self.worker);
        if let Some(observer) = &mut self.observer {
            observer.answered(metrics, || Entry {
                when: clock::wall(),
                took: self.now.since(arrival.time),
                client: client.ip(),
                question: Some(source.asked()),
                transport: client.transport(),
                rcode: sent,
                decision: source.decision(reply, rules.policy),
                stale: source.is_stale(),
                security: source.security(),
            });
        }
    }

    /// Processes a datagram, or a message from a TCP connection. A query that must wait is added to `jobs`.
    pub(super) fn on_query(
        &mut self,
        resolver: &mut Resolver<Network>,
        jobs: &mut Jobs,
        client: &Client,
        bytes: &[u8],
    ) {
        let received = Received::read(bytes);
        if let Received::Query(query) = &received {
            self.metrics().count_query(client.transport(), query.qtype);
        }
        match Admission::decide(&received, client, &self.settings, &self.shared, self.now) {
            Admission::Answer(query) => {
                self.replies.report_query(client, bytes, self.metrics());
                self.begin(resolver, jobs, client, query, bytes.len(), None);
            }
            Admission::Refuse(query) => {
                self.metrics().count(Count::AclRefused);
                let rcode = Rcode::REFUSED;
                let frame = self.reply_at_once(client, bytes, query, rcode, Decision::Refused);
                self.reply(client, |out| frame.write_error(out, rcode, Some(ede::PROHIBITED)));
            }
            Admission::Truncate(query) => {
                self.metrics().count(Count::RateLimited);
                let rcode = Rcode::NOERROR;
                let frame = self.reply_at_once(client, bytes, query, rcode, Decision::RateLimited);
                self.reply(client, |out| frame.write_truncated(out));
            }
            Admission::Error { rcode, question, edns, cookie } => {
                self.metrics().count_rcode(rcode);
                self.report_reply(client, None, rcode, Decision::Unreadable);
                let cookie = self.shared.cookies.answer(cookie.copied(), client.ip());
                self.reply(client, |out| {
                    write_refusal(out, bytes, rcode, question, edns, cookie);
                });
            }
            Admission::Ignore(reason) => {
                self.metrics().count(reason);
                self.reply(client, |_| {});
            }
        }
    }

    /// Counts and reports an immediate reply to a query that is not processed further. Returns the parts that are the
    /// same in all replies to the query.
    fn reply_at_once(
        &mut self,
        client: &Client,
        bytes: &[u8],
        query: &Query<'_>,
        rcode: Rcode,
        decision: Decision,
    ) -> ReplyFrame {
        self.replies.report_query(client, bytes, self.metrics());
        self.metrics().count_rcode(rcode);
        self.report_reply(client, Some((&query.name, query.qtype)), rcode, decision);
        let cookie = self.shared.cookies.answer(query.cookie(), client.ip());
        ReplyFrame::new(query, client.transport(), cookie)
    }

    /// Processes an `explain` query as if it came from a client at `ip`. The query is not counted
    /// as a client query.
    pub(super) fn on_explain(
        &mut self,
        resolver: &mut Resolver<Network>,
        jobs: &mut Jobs,
        ip: IpAddr,
        bytes: &[u8],
        trace: Box<Trace>,
    ) {
        let query = match Received::read(bytes) {
            Received::Query(query) => query,
            Received::Error { rcode, .. } => {
                return trace.fail(&format!(
                    "such a query is answered with {rcode:?} and cannot be explained"
                ));
            }
            Received::Ignored => return trace.fail("not a query"),
        };
        if !self.settings.allows(ip) {
            let rules = self.settings.rules(ip, &query.name, self.now);
            return trace.refuse(&query, &rules, &self.settings, self.now);
        }
        // Nothing is sent to this client.
        let client = Client::Stream(StreamClient::closed(ip));
        self.begin(resolver, jobs, &client, &query, bytes.len(), Some(trace));
    }

    /// Starts processing a query of `octets` octets from a client that the access rules (`[access]`) allow. If the usual
    /// upstream answers are cached, the reply is sent at once.
    fn begin(
        &mut self,
        resolver: &mut Resolver<Network>,
        jobs: &mut Jobs,
        client: &Client,
        query: &Query<'_>,
        octets: usize,
        trace: Option<Box<Trace>>,
    ) {
        let ip = client.ip();
        let settings = Arc::clone(&self.settings);
        let rules = settings.rules(ip, &query.name, self.now);
        let question = query.to_question();
        let local = question.find_local(&rules);
        if trace.is_none()
            && query.checking_disabled
            && query.qtype == rtype::AAAA
            && rules.policy.synthesizes()
            && !matches!(local, Local::Answer(_))
        {
            self.metrics().count(Count::WithheldCd);
        }
        let cookie = self.shared.cookies.answer(query.cookie(), ip);
        let frame = ReplyFrame::new(query, client.transport(), cookie);
        let arrival = Arrival {
            time: self.now,
            cookie: query.cookie(),
            unlimited: UNLIMITED * octets as u32,
        };
        let (mut known, mut missing) = (Outcomes::new(), None);
        if trace.is_none() && local == Local::No && !question.has_hints() {
            let client_id = ClientId::from_address(ip);
            let cached = |key: &KeyBuf| resolver.cached(key, client_id, u32::MAX);
            missing = question.usual_answers(&rules, &mut known, cached);
            if missing.is_none()
                && let Next::Reply(reply) =
                    decide::next(&question, rules.policy, rules.mode, &known, true)
            {
                let (frame, question, known) = (&frame, &question, &known);
                let source = ReplySource { frame, question, is_alias: false, known };
                return self.conclude(client, &arrival, source, &reply, &settings, &rules);
            }
        }
        let inquiry = Inquiry::new(frame, question, local, known, ip);
        // The target of an alias may be subject to other rules.
        let rules =
            if inquiry.is_alias() { settings.rules(ip, inquiry.name(), self.now) } else { rules };
        let client = client.clone();
        let mut job = Job { id: jobs.next_id(), client, arrival, inquiry, trace };
        if self.advance(resolver, &mut job, missing, &settings, &rules) == Progress::Waiting {
            jobs.insert(job);
        }
    }

    /// Advances a client query as far as possible: to its reply, or to the next fetch that it waits
    /// for. `missing` is the next question to resolve if it is known that the question is not cached.
    fn advance(
        &mut self,
        resolver: &mut Resolver<Network>,
        job: &mut Job,
        mut missing: Option<KeyBuf>,
        settings: &Settings,
        rules: &Rules<'_>,
    ) -> Progress {
        #[cfg(test)]
        crate::guard::panic_if_named(
            if job.inquiry.is_new() { "defect-query" } else { "defect-reply" },
            job.inquiry.name().wire(),
        );
        loop {
            let is_missing = missing.is_some();
            let step = missing.take().map_or_else(|| job.inquiry.step(rules), Step::Ask);
            let key = match step {
                Step::Ask(key) => key,
                Step::Repeat(key) => {
                    job.inquiry.forget_failure();
                    key
                }
                Step::Reply(reply) => {
                    if let Some(trace) = job.trace.take() {
                        trace.tell(&job.inquiry, &reply, rules, settings, self.now);
                    } else {
                        let source = job.inquiry.source();
                        self.conclude(&job.client, &job.arrival, source, &reply, settings, rules);
                    }
                    return Progress::Ended;
                }
            };
            if job.inquiry.may_have_targets() && self.answer_locally(job, &key, settings) {
                continue;
            }
            let demand = ResolveRequest {
                waiter: Waiter::Job(job.id),
                since: job.arrival.time,
                client: ClientId::from_address(job.inquiry.client()),
                first: job.inquiry.is_new(),
                waited_before: job.inquiry.has_waited_before(),
                max_age: job.inquiry.max_age(&key),
                optional: key.is_probe() && job.inquiry.is_stale(),
            };
            let resolved = if is_missing {
                resolver.ask_upstreams(&key, demand)
            } else {
                resolver.ask(&key, demand)
            };
            match resolved {
                Resolve::Ready(outcome) => {
                    job.record(|trace| trace.known(&key, &outcome));
                    job.inquiry.add_outcome(outcome);
                }
                Resolve::Pending => {
                    job.record(|trace| trace.waits(&key, self.now));
                    job.inquiry.wait(rules);
                    // During a probe, the parallel A query is sent at once only if there is no time
                    // left to send it after the probe.
                    let wanted = !key.is_probe() || resolver.leaves_no_time(job.arrival.time);
                    let parallel_question =
                        job.inquiry.parallel_question(&key, rules.policy).filter(|_| wanted);
                    if let Some(key) = parallel_question {
                        resolver.resolve_early(&key, demand.client);
                    }
                    return Progress::Waiting;
                }
                Resolve::Rejected(denial) if job.inquiry.is_optional(&key) => {
                    self.count_denial(denial);
                    job.record(|trace| trace.denied(&key));
                    job.inquiry.add_outcome(Outcome::Failed(Failure::Overload));
                }
                Resolve::Rejected(denial) if self.is_shed(&job.client, denial) => {
                    return Progress::Ended;
                }
                // The failure is `Overload`, not `Timeout`: no upstream was queried, so the records
                // may exist, and nothing may be synthesized in their place.
                Resolve::Rejected(_) => {
                    job.record(|trace| trace.denied(&key));
                    job.inquiry.give_up(Failure::Overload);
                }
            }
        }
    }

    /// Answers a question for the target of an alias locally. Returns false if upstreams must be
    /// queried.
    #[cold]
    fn answer_locally(&self, job: &mut Job, key: &KeyBuf, settings: &Settings) -> bool {
        let client = job.inquiry.client();
        let rules_of = |name: &LowerName| settings.rules(client, name, self.now);
        let Some(outcome) = job.inquiry.local_target(key, rules_of) else { return false };
        job.record(|trace| trace.local(key, &outcome));
        job.inquiry.add_outcome(outcome);
        true
    }

    /// Sends a reply to the client of a query, and counts it.
    #[inline]
    fn conclude(
        &mut self,
        client: &Client,
        arrival: &Arrival,
        source: ReplySource<'_>,
        reply: &Reply<'_>,
        settings: &Settings,
        rules: &Rules<'_>,
    ) {
        let (shared, now) = (&*self.shared, self.now);
        let metrics = shared.metrics().worker(self.worker);
        let mut sent = reply.rcode();
        let (took, security) = (now.since(arrival.time), || source.security());
        self.replies.send(client, metrics, took, security, |out| {
            let start = out.len();
            source.write(out, reply, rules);
            sent = rcode_of(&out[start..], sent);
            // The reply is counted before the client can receive it.
            metrics.count_rcode(sent);
            if sent == reply.rcode() {
                count_reply(metrics, source, reply);
            }
            let octets = (out.len() - start) as u32;
            if octets > arrival.unlimited
                && !may_exceed(shared, client, arrival, octets, &settings.config.limits, now)
            {
                metrics.count(Count::LargeWithheld);
                out.truncate(start);
                source.frame.write_truncated(out);
            }
        });
        self.report_answer(client, arrival, source, reply, sent, rules);
    }

    /// Counts a rejected query. Returns true if the client gets no reply.
    fn is_shed(&self, client: &Client, denial: Rejection) -> bool {
        self.count_denial(denial);
        denial != Rejection::TooLate
            && self.settings.config.limits.overload == Overload::Drop
            && client.transport() == Transport::Udp
    }

    fn count_denial(&self, denial: Rejection) {
        self.metrics().count(match denial {
            Rejection::TooLate => return,
            Rejection::NoRoom => Count::Overload,
            Rejection::ClientShare => Count::ClientShare,
            Rejection::FailingSubtree => Count::FailingSubtree,
        });
    }

    /// Continues a waiting query after its fetch has completed.
    #[inline]
    pub(super) fn resume(
        &mut self,
        resolver: &mut Resolver<Network>,
        job: &mut Job,
        outcome: Outcome,
    ) -> Progress {
        job.record(|trace| trace.completed(&outcome, self.now));
        let settings = Arc::clone(&self.settings);
        let rules = settings.rules(job.inquiry.client(), job.inquiry.name(), self.now);
        job.inquiry.resume(outcome, &rules);
        self.advance(resolver, job, None, &settings, &rules)
    }

    /// Answers SERVFAIL to a query after a panic in its processing. Sends no reply to an `explain` query. The failure
    /// of such a query is reported when its trace is dropped.
    pub(super) fn fail(&mut self, mut job: Job) {
        if job.trace.is_some() {
            return;
        }
        job.inquiry.give_up(Failure::Overload);
        let settings = Arc::clone(&self.settings);
        let rules = settings.rules(job.inquiry.client(), job.inquiry.name(), self.now);
        if let Step::Reply(reply) = job.inquiry.step(&rules) {
            self.metrics().count_rcode(reply.rcode());
            let (client, source) = (&job.client, job.inquiry.source());
            let (name, qtype) = source.asked();
            self.report_reply(client, Some((&name, qtype)), reply.rcode(), Decision::Defect);
            self.reply(client, |out| source.write(out, &reply, &rules));
        }
    }

    /// Answers SERVFAIL to a query after a panic in its first processing step.
    pub(super) fn fail_query(&mut self, client: &Client, bytes: &[u8]) {
        let mut reply = Vec::new();
        let answer = |cookie| self.shared.cookies.answer(cookie, client.ip());
        if write_servfail(&mut reply, bytes, client.transport(), answer) {
            self.metrics().count_rcode(Rcode::SERVFAIL);
            self.report_reply(client, None, Rcode::SERVFAIL, Decision::Defect);
            self.reply(client, |out| out.extend(reply));
        }
    }
}

/// Increments the counters that apply to a reply. The RCODE is counted elsewhere.
fn count_reply(metrics: &WorkerMetrics, source: ReplySource<'_>, reply: &Reply<'_>) {
    match *reply {
        Reply::Pass { strip: Strip::Excluded | Strip::Mapped, .. } => {
            metrics.count(Count::Stripped);
        }
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
        Some(WithheldReason::Unmapped) => metrics.count(Count::WithheldUnmapped),
        Some(WithheldReason::Signed) => metrics.count(Count::WithheldSigned),
        Some(WithheldReason::Filtered) => metrics.count(Count::FilteredA),
        None => {}
    }
    if source.is_stale() {
        metrics.count(Count::StaleServed);
    }
}

/// Returns the RCODE of the written message. This is `wanted`, including the upper bits of an extended RCODE, or
/// SERVFAIL if the reply could not be written.
fn rcode_of(message: &[u8], wanted: Rcode) -> Rcode {
    match message.get(3).map(|octet| octet & 0x0f) {
        Some(low) if low != wanted.in_header() => Rcode::new(low.into()),
        _ => wanted,
    }
}

/// True if a client may get a reply of `octets` octets, which is more than [`UNLIMITED`] times the size of its query.
/// This requires that the client's address is verified, or that the limit of its network permits the additional octets.
/// The limit is per network, because an attacker can forge addresses in a network to flood its hosts.
fn may_exceed(
    shared: &Shared,
    client: &Client,
    arrival: &Arrival,
    octets: u32,
    limits: &LimitKeys,
    now: Nanos,
) -> bool {
    let ip = client.ip();
    client.transport().is_proven()
        || arrival.cookie.is_some_and(|cookie| shared.cookies.is_ours(&cookie, ip))
        || shared.amplification.grants(
            wide_network(ip),
            octets - arrival.unlimited,
            now,
            limits.amplification_rate,
            limits.amplification_burst,
        )
}
