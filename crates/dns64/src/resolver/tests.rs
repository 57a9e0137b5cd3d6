//! The resolver without sockets, on a clock that the test controls: each state of a fetch and each
//! transition.

mod reload;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use net::address::ServiceAddr;

use super::outside::{Access, TcpFailure, TcpQuery, ValidationTask};
use super::waiter::Waiter;
use super::*;
use crate::config::ResolvConf;
use crate::ids::{Expected, FetchId, JobId, PortId, ServerId};
use crate::metrics::UpstreamFailure;
use crate::name::Key;
use crate::resolver::outcome::Failure;
use wire::view::Message;

/// A query that was sent over UDP.
#[derive(Clone)]
struct Sent {
    at: Expected,
    query: Vec<u8>,
}

impl Sent {
    fn server(&self) -> u16 {
        self.at.port.server.0 as u16
    }

    fn has_edns(&self) -> bool {
        self.query[11] == 1
    }

    /// Returns a response with this RCODE, and an A record for each of `addresses`.
    fn answer(&self, code: u8, addresses: &[[u8; 4]]) -> Vec<u8> {
        let mut answer = self.query.clone();
        let end = 12 + question_len(&answer);
        answer.truncate(end);
        answer[2] |= 0x80;
        answer[3] |= 0x80 | code;
        answer[7] = addresses.len() as u8;
        answer[11] = 0;
        for address in addresses {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            answer.extend(address);
        }
        answer
    }

    fn truncated(&self) -> Vec<u8> {
        let mut answer = self.answer(0, &[]);
        answer[2] |= 0x02;
        answer
    }
}

/// Returns the message with its question in lower case.
fn in_lower_case(mut message: Vec<u8>) -> Vec<u8> {
    let end = 12 + question_len(&message) - 4;
    message[12..end].make_ascii_lowercase();
    message
}

fn question_len(message: &[u8]) -> usize {
    Message::new(message).unwrap().skip_name(12).unwrap() + 4 - 12
}

/// Records the actions of the resolver.
#[derive(Default)]
struct Notes {
    /// Queries that the test has not inspected yet.
    sent: Vec<Sent>,
    tcp: Vec<TcpQuery>,
    notified: Vec<(WorkerId, Key)>,
    expected: HashMap<Expected, FetchId>,
    next_id: u16,
    /// Servers in the most recent list.
    servers: Vec<(ServerId, ServiceAddr)>,
    /// Servers to which sending fails, each with the error.
    refuses: HashMap<u16, io::ErrorKind>,
}

impl ResolverIo for Notes {
    fn configure(&mut self, servers: impl Iterator<Item = (ServerId, Access)>) {
        self.servers = servers.map(|(id, access)| (id, access.address)).collect();
    }

    fn ask(
        &mut self,
        server: ServerId,
        fetch: FetchId,
        _: Nanos,
        _: &mut StdRng,
        write: impl FnOnce(u16, &mut Vec<u8>),
    ) -> io::Result<Expected> {
        if let Some(&kind) = self.refuses.get(&(server.0 as u16)) {
            return Err(kind.into());
        }
        self.next_id += 1;
        let at = Expected { port: PortId { server, number: 0 }, id: self.next_id };
        let mut query = Vec::new();
        write(at.id, &mut query);
        self.sent.push(Sent { at, query });
        self.expected.insert(at, fetch);
        Ok(at)
    }

    fn expects(&self, at: Expected) -> Option<FetchId> {
        self.expected.get(&at).copied()
    }

    fn forget(&mut self, at: Expected) {
        self.expected.remove(&at);
    }

    fn waiting_on(&self, port: PortId) -> Vec<FetchId> {
        self.expected.iter().filter(|(at, _)| at.port == port).map(|(_, id)| *id).collect()
    }

    fn query_over_tcp(&mut self, question: TcpQuery) {
        self.tcp.push(question);
    }

    fn validate(&mut self, _: ValidationTask) -> bool {
        false
    }

    fn tell(&mut self, worker: WorkerId, key: Key, _: Outcome) {
        self.notified.push((worker, key));
    }
}

/// A resolver with a number of upstreams.
struct Test {
    resolver: Resolver<Notes>,
    now: Nanos,
}

const JOB: Waiter = Waiter::Job(JobId { index: 7, serial: 7 });

fn settings(upstreams: u16, more: &str) -> Arc<Settings> {
    let upstream = |n| format!("[[upstream]]\naddress = '127.0.0.1'\nport = {}\n", 1 + n);
    let text =
        (0..upstreams).map(upstream).fold(more.to_owned(), |text, upstream| text + &upstream);
    Arc::new(Settings::from_text(&text, Path::new("test.toml")).unwrap())
}

fn common(workers: usize) -> Common {
    let cache = Arc::new(Cache::new(1));
    Common {
        cache,
        question_claims: Arc::new(QuestionClaims::new(workers)),
        metrics: Metrics::new(workers),
    }
}

/// Returns the waiters of a completed fetch.
fn waiters_of(completed: &Completed) -> Vec<Waiter> {
    completed.waiters.iter().map(|waiting| waiting.waiter).collect()
}

fn key(name: &str) -> KeyBuf {
    KeyBuf::new(&name.parse().unwrap(), 1, 1, false, false)
}

impl Test {
    fn new(upstreams: u16) -> Test {
        Test::with(upstreams, "", WorkerId(0), common(1))
    }

    fn with(upstreams: u16, more: &str, worker: WorkerId, common: Common) -> Test {
        let mut resolver =
            Resolver::new(worker, settings(upstreams, more), common, Notes::default());
        resolver.rng = StdRng::seed_from_u64(1);
        let mut test = Test { resolver, now: Nanos(100 * Nanos::SECOND.0) };
        test.pass(0);
        test
    }

    /// Advances the clock.
    fn pass(&mut self, ms: u64) {
        let until = self.now + Nanos::from_millis(ms);
        while let Some(due) = self.resolver.next_due().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.resolver.set_now(self.now);
            while let Some(id) = self.resolver.next_timer() {
                self.resolver.on_timer(id);
            }
        }
        self.now = until;
        self.resolver.set_now(until);
    }

    fn ask(&mut self, name: &str) -> Resolve {
        let request = ResolveRequest {
            waiter: JOB,
            client: ClientId(1),
            since: self.now,
            first: true,
            waited_before: false,
            max_age: u32::MAX,
            optional: false,
        };
        self.resolver.ask(&key(name), request)
    }

    /// Resolves an uncached name and returns the queries sent for it.
    fn begin(&mut self, name: &str) -> Vec<Sent> {
        self.sent();
        assert!(matches!(self.ask(name), Resolve::Pending));
        self.sent()
    }

    /// Resolves an uncached name, and answers with an address.
    fn begin_kept(&mut self, name: &str) {
        let sent = self.begin(name).remove(0);
        self.answer(&sent, &sent.answer(0, &[[192, 0, 2, 1]]));
        assert_eq!(self.outcome(), Some(Ok((0, 1))));
    }

    fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.resolver.outside.sent)
    }

    /// Returns the only query that was sent.
    fn one(&mut self) -> Sent {
        let sent = self.sent();
        assert_eq!(sent.len(), 1);
        sent[0].clone()
    }

    fn answer(&mut self, sent: &Sent, bytes: &[u8]) {
        self.resolver.on_datagram(sent.at.port, bytes);
    }

    fn tcp(&mut self) -> TcpQuery {
        assert_eq!(self.resolver.outside.tcp.len(), 1);
        self.resolver.outside.tcp.remove(0)
    }

    /// Returns the outcome for the only waiter of the only completed fetch: RCODE and number of
    /// records, or the failure.
    fn outcome(&mut self) -> Option<Result<(u8, usize), Failure>> {
        let completed = self.resolver.next_completed()?;
        assert!(waiters_of(&completed) == [JOB] && self.resolver.next_completed().is_none());
        assert_eq!(self.resolver.fetches.len(), 0);
        assert!(self.resolver.outside.expected.is_empty(), "completed fetches expect no responses");
        Some(match completed.outcome {
            Outcome::Answered(kept) => {
                Ok((kept.answer.rcode().in_header(), kept.answer.answers().count()))
            }
            Outcome::Failed(failure) => Err(failure),
        })
    }

    fn count(&self, what: Count) -> u64 {
        self.resolver.common.metrics.total(what)
    }

    /// Returns the failure counter of a server.
    fn failures(&self, server: u16) -> u64 {
        let upstreams = self.resolver.common.metrics.upstreams();
        let mut of_it = upstreams.iter().filter(|(address, _)| address.port() == 1 + server);
        of_it.next().unwrap().1.failures
    }
}

#[test]
fn udp_answer_completes_the_fetch_and_is_cached() {
    let mut test = Test::new(1);
    let sent = test.begin("a.test").remove(0);
    assert!(sent.has_edns() && test.resolver.next_due().is_some());
    test.pass(5);
    test.answer(&sent, &sent.answer(0, &[[192, 0, 2, 1]]));
    assert_eq!(test.outcome(), Some(Ok((0, 1))));
    assert!(matches!(test.ask("a.test"), Resolve::Ready(Outcome::Answered(_))));
    test.pass(61_000);
    assert_eq!(test.begin("a.test").len(), 1, "its TTL has expired");
}

#[test]
fn udp_unexplained_servfail_outweighs_later_error() {
    let mut test = Test::new(2);
    let first = test.begin("a.test").remove(0);
    test.answer(&first, &first.answer(2, &[]));
    let second = test.one();
    assert_ne!(second.server(), first.server());
    test.answer(&second, &second.answer(5, &[]));
    assert_eq!(test.outcome(), Some(Ok((2, 0))), "the upstream may have rejected signatures");
}

#[test]
fn udp_equal_requests_share_one_fetch() {
    let mut test = Test::new(1);
    let sent = test.begin("a.test").remove(0);
    assert!(test.begin("a.test").is_empty() && test.begin("A.Test").is_empty());
    test.answer(&sent, &sent.answer(3, &[]));
    let completed = test.resolver.next_completed().unwrap();
    assert!(completed.waiters.len() == 3 && test.resolver.next_completed().is_none());
}

#[test]
fn udp_response_must_repeat_the_question() {
    let mut test = Test::new(1);
    let sent = test.begin("a.test").remove(0);
    let good = sent.answer(0, &[[192, 0, 2, 1]]);
    let mut other_id = good.clone();
    other_id[1] ^= 1;
    let mut other_name = good.clone();
    other_name[13] = b'b';
    let mut query = good.clone();
    query[2] &= 0x7f;
    for wrong in [&other_id, &other_name, &query, &good[..11].to_vec(), &Vec::new()] {
        test.answer(&sent, wrong);
    }
    let elsewhere = PortId { server: ServerId(0), number: 1 };
    test.resolver.on_datagram(elsewhere, &good);
    assert_eq!((test.outcome(), test.count(Count::UpstreamStray)), (None, 6));
    let mut malformed = good.clone();
    malformed[7] = 2;
    test.answer(&sent, &malformed);
    assert_eq!((test.outcome(), test.count(Count::UpstreamMalformed)), (None, 1));
    test.answer(&sent, &good);
    assert_eq!(test.outcome(), Some(Ok((0, 1))));
}

#[test]
fn udp_silent_upstream_is_retried_until_deadline() {
    let mut test = Test::new(1);
    assert_eq!(test.begin("a.test").len(), 1);
    test.pass(399);
    assert!(test.sent().is_empty());
    test.pass(1);
    let again = test.one();
    // A late answer to the first query would also be accepted. This test answers the second query.
    test.pass(10);
    test.answer(&again, &again.answer(0, &[[192, 0, 2, 1]]));
    assert_eq!(test.outcome(), Some(Ok((0, 1))));

    assert_eq!(test.begin("b.test").len(), 1);
    test.pass(1_700);
    assert_eq!(test.outcome(), Some(Err(Failure::Timeout)));
    assert!(
        matches!(test.ask("b.test"), Resolve::Ready(Outcome::Failed(Failure::Timeout))),
        "the timeout is cached"
    );
    test.pass(5_000);
    assert_eq!(test.begin("b.test").len(), 1, "cached for failure-ttl");
}

#[test]
fn rfc9520_3_1_silent_upstream_gets_three_queries() {
    for upstreams in [1, 2] {
        let mut test = Test::new(upstreams);
        // A short round-trip time is established first, so that retransmissions come early.
        for n in 0..8 * usize::from(upstreams) {
            for sent in test.begin(&format!("quick-{n}.test")) {
                test.answer(&sent, &sent.answer(0, &[[192, 0, 2, 1]]));
            }
            assert_eq!(test.outcome(), Some(Ok((0, 1))));
        }
        let mut to = vec![0; usize::from(upstreams)];
        let mut note = |sent: Vec<Sent>| {
            sent.iter().for_each(|sent| to[usize::from(sent.server())] += 1);
        };
        note(test.begin("a.test"));
        while test.outcome().is_none() {
            test.pass(1);
            note(test.sent());
        }
        assert!(to.iter().all(|&times| (1..=3).contains(&times)), "{to:?}");
    }
}

#[test]
fn rfc9520_3_2_timeout_ttl_doubles_until_recovery() {
    let mut test = Test::new(1);
    for lasts in [5, 10, 20] {
        assert_eq!(test.begin("a.test").len(), 1);
        test.pass(1_700);
        assert_eq!(test.outcome(), Some(Err(Failure::Timeout)));
        test.pass(lasts * 1_000 - 1_000);
        assert!(
            matches!(test.ask("a.test"), Resolve::Ready(Outcome::Failed(Failure::Timeout))),
            "{lasts} s"
        );
        test.pass(1_000);
    }
    test.begin("a.test");
    test.pass(2_700);
    assert_eq!(test.outcome(), Some(Err(Failure::Timeout)));
    assert!(matches!(test.ask("a.test"), Resolve::Ready(_)));
    let sent = test.begin("b.test").remove(0);
    test.answer(&sent, &sent.answer(0, &[]));
    assert_eq!(test.outcome(), Some(Ok((0, 0))));
    test.pass(1_000);
    assert!(matches!(test.ask("a.test"), Resolve::Pending), "the upstream is up again");
}

#[test]
fn udp_retries_stay_within_the_retry_budget() {
    let mut test = Test::new(1);
    for n in 0..1_500 {
        test.begin(&format!("n{n}.test"));
    }
    test.pass(1_600);
    let again = test.sent().len();
    assert!((1_000..=1_170).contains(&again), "{again}");
    assert_eq!(test.count(Count::RetrySent), again as u64);
    assert!(test.count(Count::RetryWithheld) > 0);
}

#[test]
fn udp_timeout_leads_to_another_server() {
    let mut test = Test::new(2);
    let first = test.begin("a.test").remove(0);
    test.pass(400);
    let second = test.one();
    assert_ne!(first.server(), second.server());
    test.answer(&first, &first.answer(0, &[[192, 0, 2, 1]]));
    assert_eq!(test.outcome(), Some(Ok((0, 1))), "a late answer is accepted");
}

#[test]
fn udp_malformed_responses_are_no_timeouts() {
    let mut test = Test::new(1);
    let sent: Vec<_> = (0..3).map(|n| test.begin(&format!("n{n}.test")).remove(0)).collect();
    for sent in &sent {
        let mut malformed = sent.answer(0, &[[192, 0, 2, 1]]);
        malformed.pop();
        test.answer(sent, &malformed);
    }
    test.pass(450);
    let counts = (test.count(Count::UpstreamMalformed), test.count(Count::UpstreamTimeout));
    assert_eq!(counts, (3, 0));
    let upstream = test.resolver.common.metrics.upstreams().into_values().next().unwrap();
    assert_eq!((upstream.failures, upstream.timeouts), (3, 0));
    assert_eq!(upstream.down_since.unwrap().1, UpstreamFailure::Malformed);
}

#[test]
fn udp_error_counts_only_without_better_answer() {
    let mut test = Test::new(2);
    let first = test.begin("a.test").remove(0);
    test.answer(&first, &first.answer(2, &[]));
    let second = test.one();
    assert_ne!(first.server(), second.server());
    test.answer(&second, &second.answer(0, &[[192, 0, 2, 1]]));
    assert_eq!(test.outcome(), Some(Ok((0, 1))));

    let first = test.begin("b.test").remove(0);
    test.answer(&first, &first.answer(5, &[]));
    let second = test.one();
    test.answer(&second, &second.answer(5, &[]));
    assert_eq!(test.outcome(), Some(Ok((5, 0))));

    // Two queries to the other server get no response, so the stored error is used.
    let first = test.begin("c.test").remove(0);
    test.answer(&first, &first.answer(2, &[]));
    assert_eq!(test.sent().len(), 1);
    test.pass(1_700);
    assert_eq!(test.outcome(), Some(Ok((2, 0))));
}

#[test]
fn udp_formerr_leads_to_query_without_edns() {
    let mut test = Test::new(1);
    let with = test.begin("a.test").remove(0);
    test.answer(&with, &with.answer(1, &[]));
    let without = test.one();
    assert!(with.has_edns() && !without.has_edns());
    // A second response to the first query decides nothing.
    test.answer(&with, &with.answer(1, &[]));
    assert!(test.sent().is_empty() && test.outcome().is_none());
    test.answer(&without, &without.answer(0, &[[192, 0, 2, 1]]));
    assert_eq!(test.outcome(), Some(Ok((0, 1))));
    assert!(!test.begin("b.test")[0].has_edns(), "queried without EDNS");
    test.pass(600_000);
    assert!(test.begin("c.test")[0].has_edns(), "for ten minutes");
}

#[test]
fn udp_formerr_without_edns_too_keeps_edns() {
    let mut test = Test::new(1);
    let with = test.begin("a.test").remove(0);
    test.answer(&with, &with.answer(1, &[]));
    let without = test.one();
    test.answer(&without, &without.answer(1, &[]));
    assert_eq!(test.outcome(), Some(Ok((1, 0))));
    assert!(test.begin("b.test")[0].has_edns());
}

#[test]
fn udp_unreachable_server_is_replaced_at_once() {
    let mut test = Test::new(2);
    let first = test.begin("a.test").remove(0);
    test.resolver.on_unreachable(first.at.port, &io::ErrorKind::ConnectionRefused.into());
    let second = test.one();
    assert_ne!(first.server(), second.server());
    assert_eq!(test.count(Count::UpstreamUnreachable), 1);
    test.answer(&second, &second.answer(0, &[]));
    assert_eq!(test.outcome(), Some(Ok((0, 0))));
    // A server to which sending fails.
    test.resolver.outside.refuses =
        HashMap::from([(second.server(), io::ErrorKind::NetworkUnreachable)]);
    // The first server listens again.
    test.pass(200);
    let probe = test.begin("probe.test").remove(0);
    test.answer(&probe, &probe.answer(0, &[]));
    for n in 0..50 {
        let sent = test.begin(&format!("n{n}.test"));
        assert!(sent.len() == 1 && sent[0].server() == first.server());
    }
}

#[test]
fn udp_without_a_route_a_question_fails_at_once() {
    let mut test = Test::new(2);
    let no_route = io::ErrorKind::NetworkUnreachable;
    test.resolver.outside.refuses = HashMap::from([(0, no_route), (1, no_route)]);
    for name in ["a.test", "b.test", "c.test", "d.test"] {
        assert!(test.begin(name).is_empty());
        test.pass(0);
        assert_eq!(test.outcome(), Some(Err(Failure::Unreachable)), "{name}");
    }
    // A server that only timed out may still answer.
    test.resolver.outside.refuses.remove(&0);
    test.pass(60_000);
    assert_eq!(test.begin("e.test").len(), 1);
    test.pass(0);
    assert_eq!(test.outcome(), None);
}

#[test]
fn udp_a_server_that_never_answered_fails_at_once() {
    let mut test = Test::new(1);
    let sent = test.begin("a.test").remove(0);
    test.resolver.on_unreachable(sent.at.port, &io::ErrorKind::ConnectionRefused.into());
    test.pass(0);
    assert_eq!(test.outcome(), Some(Err(Failure::Unreachable)));
    // The upstream may just be starting, so the failure is not cached.
    test.pass(200);
    assert_eq!(test.begin("a.test").len(), 1);
}

/// A server that is restarted refuses queries for a moment.
#[test]
fn udp_a_refused_question_is_sent_again_for_a_second() {
    let refused = io::ErrorKind::ConnectionRefused;
    let mut test = Test::new(1);
    let sent = test.begin("first.test").remove(0);
    test.answer(&sent, &sent.answer(0, &[]));
    assert_eq!(test.outcome(), Some(Ok((0, 0))));
    let sent = test.begin("a.test").remove(0);
    test.resolver.on_unreachable(sent.at.port, &refused.into());
    test.pass(400);
    let again = test.one();
    test.answer(&again, &again.answer(0, &[]));
    assert_eq!(test.outcome(), Some(Ok((0, 0))));

    let begun = test.now;
    let mut sent = test.begin("b.test");
    while test.resolver.fetches.len() > 0 {
        for sent in sent {
            test.resolver.on_unreachable(sent.at.port, &refused.into());
        }
        test.pass(25);
        sent = test.sent();
    }
    assert_eq!(test.outcome(), Some(Err(Failure::Unreachable)));
    let lasted = test.now.since(begun);
    assert!(lasted >= Nanos::SECOND && lasted < Nanos::from_millis(1_500), "{lasted:?}");
}

#[test]
fn udp_unreachable_servers_get_one_probe() {
    let refused = io::ErrorKind::ConnectionRefused;
    let mut test = Test::new(1);
    let sent = test.begin("first.test").remove(0);
    test.resolver.on_unreachable(sent.at.port, &refused.into());
    test.pass(1_700);
    assert_eq!(test.outcome(), Some(Err(Failure::Unreachable)));
    // Hosts limit the rate of their ICMP messages, so none arrives for this query.
    let probe = test.begin("probe.test").remove(0);
    test.pass(199);
    assert!(test.begin("a.test").is_empty());
    let completed = |test: &mut Test| std::iter::from_fn(|| test.resolver.next_completed()).count();
    test.pass(0);
    // After a timeout, AAAA records could be synthesized although the name may have native ones.
    let outcome = test.resolver.next_completed().map(|completed| completed.outcome);
    assert!(matches!(outcome, Some(Outcome::Failed(Failure::Unreachable))), "no query was sent");
    test.pass(1);
    assert_eq!(test.begin("b.test").len(), 1, "200 ms later");
    test.answer(&probe, &probe.answer(0, &[]));
    assert_eq!(completed(&mut test), 1);
    assert_eq!(test.begin("c.test").len(), 1, "the upstream has answered");
    test.pass(1_000);
    assert!(matches!(test.ask("a.test"), Resolve::Pending), "the failure is discarded");
}

/// Returns settings that follow a resolv.conf.
fn following(resolv_conf: &str) -> Arc<Settings> {
    let settings = Settings::from_text("cache.serve-stale = '1h'\n", Path::new("test.toml"));
    let resolv_conf = ResolvConf::Text(resolv_conf.to_owned());
    Arc::new(settings.unwrap().with_resolv_conf(resolv_conf).unwrap())
}

#[test]
fn without_an_upstream_queries_fail_until_there_is_one() {
    let mut test = Test::new(1);
    test.resolver.take_settings(following("nameserver 192.0.2.1\n"));
    test.begin_kept("kept.test");
    let in_flight = test.begin("in-flight.test").remove(0);
    test.resolver.take_settings(following("# none\n"));
    // Late answers to earlier queries are used.
    test.answer(&in_flight, &in_flight.answer(0, &[]));
    assert_eq!(test.outcome(), Some(Ok((0, 0))));
    assert!(matches!(test.ask("kept.test"), Resolve::Ready(Outcome::Answered(_))));
    for _ in 0..2 {
        let asked = test.ask("a.test");
        assert!(matches!(asked, Resolve::Ready(Outcome::Failed(Failure::NoUpstream))));
    }
    test.resolver.resolve_early(&key("a.test"), ClientId(1));
    test.pass(61_000);
    let Resolve::Ready(Outcome::Answered(kept)) = test.ask("kept.test") else {
        panic!("not stale")
    };
    assert!(kept.stale && test.resolver.is_idle());
    test.resolver.take_settings(following("nameserver 192.0.2.1\n"));
    assert_eq!(test.begin("a.test").len(), 1, "the failure is not cached");
}

#[test]
fn fetch_ends_if_reload_leaves_no_upstream() {
    let mut test = Test::new(1);
    test.begin("a.test");
    test.resolver.take_settings(following(""));
    test.pass(1_700);
    assert_eq!(test.outcome(), Some(Err(Failure::Timeout)));
}

#[test]
fn udp_send_error_is_retried_until_deadline() {
    let mut test = Test::new(1);
    test.resolver.outside.refuses = HashMap::from([(0, io::ErrorKind::QuotaExceeded)]);
    assert!(test.begin("a.test").is_empty());
    test.pass(400);
    test.resolver.outside.refuses.clear();
    test.pass(400);
    assert_eq!(test.sent().len(), 1);
    test.pass(900);
    assert_eq!(test.outcome(), Some(Err(Failure::Timeout)));
}

#[test]
fn udp_alias_loop_is_cached_as_failure() {
    let mut test = Test::new(1);
    let sent = test.begin("a.test").remove(0);
    let mut looped = sent.answer(0, &[]);
    looped[7] = 1;
    looped.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 12]);
    test.answer(&sent, &looped);
    assert_eq!(test.outcome(), Some(Err(Failure::AliasLoop)));
    assert!(matches!(test.ask("a.test"), Resolve::Ready(Outcome::Failed(Failure::AliasLoop))));
}

/// A name so long that randomization with the fixed seed of the tests never leaves it in all lower case.
const LETTERS: &str = "a-rather-long-name-with-many-letters.test";

fn with_random_case() -> Test {
    Test::with(1, "[forwarding]\nrandomize-case = true\n", WorkerId(0), common(1))
}

fn is_in_lower_case(sent: &Sent) -> bool {
    sent.query == in_lower_case(sent.query.clone())
}

#[test]
fn case_changed_case_leads_to_tcp() {
    let mut test = with_random_case();
    let sent = test.begin(LETTERS).remove(0);
    assert!(!is_in_lower_case(&sent));
    test.answer(&sent, &in_lower_case(sent.answer(0, &[])));
    test.answer(&sent, &in_lower_case(sent.answer(0, &[])));
    assert_eq!((test.outcome(), test.count(Count::UpstreamOtherCase)), (None, 2));
    let question = test.tcp();
    test.resolver.on_tcp(question.fetch, Ok(in_lower_case(sent.answer(0, &[[192, 0, 2, 1]]))));
    assert_eq!(test.outcome(), Some(Ok((0, 1))));
    assert_eq!(test.failures(0), 0);
    // From now on the server is queried in lower case, and its answers are accepted.
    let sent = test.begin("another-long-name-with-many-letters.test").remove(0);
    assert!(is_in_lower_case(&sent));
    test.answer(&sent, &sent.answer(0, &[]));
    assert_eq!(test.outcome(), Some(Ok((0, 0))));
    test.pass(600_000);
    assert!(!is_in_lower_case(&test.begin(LETTERS)[0]), "for ten minutes");
}

#[test]
fn case_a_server_without_tcp_is_asked_in_lower_case() {
    for failure in [TcpFailure::NoAnswer, TcpFailure::Timeout, TcpFailure::NoRoom] {
        let mut test = with_random_case();
        let first = test.begin(LETTERS).remove(0);
        test.answer(&first, &in_lower_case(first.answer(0, &[])));
        let question = test.tcp();
        assert_eq!(question.timeout, std::time::Duration::from_millis(850));
        test.resolver.on_tcp(question.fetch, Err(failure));
        let again = test.one();
        assert!(is_in_lower_case(&again) && again.at != first.at);
        // The response may be forged. Therefore nothing is recorded about the server yet, and the
        // first query no longer accepts a response in a different case.
        test.answer(&first, &in_lower_case(first.answer(0, &[])));
        assert!(test.outcome().is_none() && test.resolver.outside.tcp.is_empty());
        test.answer(&again, &again.answer(0, &[[192, 0, 2, 1]]));
        assert_eq!(test.outcome(), Some(Ok((0, 1))));
        assert_eq!(test.failures(0), 0);
        assert!(is_in_lower_case(&test.begin("b-long-name-with-many-letters.test")[0]));
    }
}

#[test]
fn case_a_forged_reply_changes_nothing() {
    for over_tcp in [false, true] {
        let mut test = with_random_case();
        let sent = test.begin(LETTERS).remove(0);
        test.answer(&sent, &in_lower_case(sent.answer(0, &[[203, 0, 113, 6]])));
        let question = test.tcp();
        let good = sent.answer(0, &[[192, 0, 2, 1]]);
        if over_tcp {
            test.resolver.on_tcp(question.fetch, Ok(good));
        } else {
            test.answer(&sent, &good);
        }
        assert_eq!(test.outcome(), Some(Ok((0, 1))));
        assert!(!is_in_lower_case(&test.begin("c-long-name-with-many-letters.test")[0]));
    }
}

#[test]
fn case_the_log_names_a_server_once() {
    let metrics = Metrics::new(2);
    let [one, other] = [1, 2].map(|port| ServiceAddr::from(([127, 0, 0, 1], port)));
    let _workers = [one, one, other].map(|address| metrics.add_upstream(address));
    assert!(metrics.is_first_other_case(one) && !metrics.is_first_other_case(one));
    assert!(metrics.is_first_other_case(other));
}

#[test]
fn tcp_truncated_response_is_retried() {
    let mut test = Test::new(1);
    let sent = test.begin("a.test").remove(0);
    test.answer(&sent, &sent.truncated());
    test.answer(&sent, &sent.truncated());
    let question = test.tcp();
    assert_eq!((question.address.port(), question.worker), (1, WorkerId(0)));
    assert_eq!(question.timeout, std::time::Duration::from_millis(1_700));
    // No timer retransmits over UDP.
    test.pass(800);
    assert!(test.sent().is_empty() && test.resolver.outside.tcp.is_empty());
    test.resolver.on_tcp(question.fetch, Ok(sent.answer(0, &[[192, 0, 2, 1], [192, 0, 2, 2]])));
    assert_eq!(test.outcome(), Some(Ok((0, 2))));
    // A result that arrives after the end is ignored.
    test.resolver.on_tcp(question.fetch, Err(TcpFailure::NoAnswer));
    assert_eq!(test.outcome(), None);
}

#[test]
fn tcp_timeout_leads_to_another_server() {
    for answer in [
        Err(TcpFailure::Timeout),
        Err(TcpFailure::NoAnswer),
        Err(TcpFailure::NoRoom),
        Ok(vec![0; 40]),
    ] {
        let mut test = Test::new(2);
        let first = test.begin("a.test").remove(0);
        test.answer(&first, &first.truncated());
        let question = test.tcp();
        assert_eq!(
            question.timeout,
            std::time::Duration::from_millis(850),
            "half of the time is reserved for the other server"
        );
        test.resolver.on_tcp(question.fetch, answer.clone());
        let second = test.one();
        assert_ne!(first.server(), second.server());
        test.answer(&second, &second.truncated());
        let question = test.tcp();
        let failure = match &answer {
            Err(TcpFailure::NoRoom) => Failure::Overload,
            Ok(_) => Failure::Malformed,
            Err(_) => Failure::Timeout,
        };
        test.resolver.on_tcp(question.fetch, answer);
        assert_eq!(test.outcome(), Some(Err(failure)), "no server is left");
    }
}

#[test]
fn tcp_udp_error_waits_for_the_tcp_result() {
    let mut test = Test::new(2);
    let first = test.begin("a.test").remove(0);
    test.pass(400);
    let second = test.one();
    test.answer(&first, &first.truncated());
    let question = test.tcp();
    test.answer(&second, &second.answer(2, &[]));
    assert_eq!(test.outcome(), None);
    test.resolver.on_tcp(question.fetch, Ok(first.answer(0, &[[192, 0, 2, 1]])));
    assert_eq!(test.outcome(), Some(Ok((0, 1))));
}

#[test]
fn tcp_ends_at_the_deadline() {
    let mut test = Test::new(1);
    let sent = test.begin("a.test").remove(0);
    test.answer(&sent, &sent.truncated());
    test.tcp().begun.store(true, std::sync::atomic::Ordering::Relaxed);
    test.pass(1_700);
    assert_eq!(test.outcome(), Some(Err(Failure::Timeout)));
}

#[test]
fn tcp_a_server_that_is_silent_is_counted_once() {
    // The deadline passes before the missing answer is reported.
    let mut test = Test::new(1);
    let sent = test.begin("a.test").remove(0);
    test.answer(&sent, &sent.truncated());
    let question = test.tcp();
    question.begun.store(true, std::sync::atomic::Ordering::Relaxed);
    test.pass(1_700);
    assert_eq!(test.outcome(), Some(Err(Failure::Timeout)));
    test.resolver.on_tcp(question.fetch, Err(TcpFailure::Timeout));
    assert_eq!((test.count(Count::UpstreamTimeout), test.failures(0)), (1, 1));

    // The missing answer is reported before the deadline, and nothing can be sent to the other
    // server.
    let mut test = Test::new(2);
    let sent = test.begin("a.test").remove(0);
    test.answer(&sent, &sent.truncated());
    let question = test.tcp();
    test.resolver.outside.refuses.insert(1 - sent.server(), io::ErrorKind::ConnectionRefused);
    test.resolver.on_tcp(question.fetch, Err(TcpFailure::Timeout));
    while test.sent().is_empty() && test.resolver.fetches.len() > 0 {
        test.pass(25);
    }
    assert_eq!((test.count(Count::UpstreamTimeout), test.failures(sent.server())), (1, 1));
}

#[test]
fn tcp_connection_limit_is_not_a_timeout() {
    let mut test = Test::new(1);
    let sent = test.begin("a.test").remove(0);
    test.answer(&sent, &sent.truncated());
    test.pass(1_700);
    assert_eq!(test.outcome(), Some(Err(Failure::Overload)));
    assert_eq!((test.count(Count::UpstreamTimeout), test.failures(0)), (0, 0));
    assert!(matches!(test.ask("a.test"), Resolve::Pending), "the timeout is not cached");
}

#[test]
fn elsewhere_one_worker_fetches_for_both() {
    let common = common(2);
    let mut asks = Test::with(1, "", WorkerId(0), common.clone());
    let mut waits = Test::with(1, "", WorkerId(1), common);
    let sent = asks.begin("a.test").remove(0);
    assert!(waits.begin("a.test").is_empty());
    let collapsed = |test: &Test| {
        let metrics = &test.resolver.common.metrics;
        metrics.worker(test.resolver.worker).get(Count::Collapsed)
    };
    assert_eq!((collapsed(&asks), collapsed(&waits)), (0, 1), "the same fetch is in flight");
    asks.answer(&sent, &sent.answer(0, &[[192, 0, 2, 1]]));
    let completed = asks.resolver.next_completed().unwrap();
    let (worker, key) = asks.resolver.outside.notified.remove(0);
    assert_eq!(worker, WorkerId(1));
    waits.resolver.on_worker_result(&key, completed.outcome.clone());
    assert_eq!(waits.outcome(), Some(Ok((0, 1))));
    // A worker that no longer waits is not affected.
    waits.resolver.on_worker_result(&key, completed.outcome);
    assert_eq!(waits.outcome(), None);
}

#[test]
fn panic_at_start_of_fetch_releases_its_claim() {
    let common = common(2);
    let mut first = Test::with(1, "", WorkerId(0), common.clone());
    let mut second = Test::with(1, "", WorkerId(1), common);
    first.resolver.begin_work();
    assert!(crate::guard::catch(|| first.ask("defect-begin.test")).is_err());
    first.resolver.abandon();
    // The query panics in this worker too, because the worker performs the fetch itself and does not wait for the first
    // worker.
    second.resolver.begin_work();
    assert!(crate::guard::catch(|| second.ask("defect-begin.test")).is_err());
    second.resolver.abandon();
    for test in [&mut first, &mut second] {
        let key = key("defect-begin.test").to_key();
        assert!(test.resolver.is_idle());
        assert!(
            test.resolver.common.question_claims.claim(&key, test.resolver.worker),
            "no worker has claimed it"
        );
        assert_eq!(test.resolver.common.question_claims.complete(&key).count(), 0);
    }
}

#[test]
fn elsewhere_missing_result_times_out() {
    let common = common(2);
    let mut asks = Test::with(1, "", WorkerId(0), common.clone());
    let mut waits = Test::with(1, "", WorkerId(1), common);
    asks.begin("a.test");
    assert!(waits.begin("a.test").is_empty());
    waits.pass(1_700);
    assert_eq!(waits.outcome(), None);
    waits.pass(100);
    assert_eq!(waits.outcome(), Some(Err(Failure::Timeout)));
    // This worker only timed out while waiting for the other worker. Such a timeout is not cached as a failure.
    assert!(matches!(waits.ask("a.test"), Resolve::Pending));
}

#[test]
fn old_or_excess_requests_are_rejected() {
    let mut test = Test::with(1, "[limits]\nin-flight = 2\n", WorkerId(0), common(1));
    let late = ResolveRequest {
        waiter: JOB,
        client: ClientId(1),
        since: Nanos(test.now.0 - 2 * PATIENCE.0),
        first: false,
        waited_before: false,
        max_age: u32::MAX,
        optional: false,
    };
    assert!(matches!(
        test.resolver.ask(&key("a.test"), late),
        Resolve::Rejected(Rejection::TooLate)
    ));
    for n in 0..2 {
        assert_eq!(test.begin(&format!("n{n}.test")).len(), 1);
    }
    assert!(matches!(test.ask("n1.test"), Resolve::Rejected(Rejection::NoRoom)), "two wait");
    assert!(matches!(test.ask("n2.test"), Resolve::Rejected(Rejection::NoRoom)));
    test.pass(1_700);
    while test.resolver.next_completed().is_some() {}
    for n in 2..6 {
        test.resolver.resolve_early(&key(&format!("n{n}.zone{n}")), ClientId(n << 40));
    }
    assert!(
        matches!(test.ask("n6.zone6"), Resolve::Rejected(Rejection::NoRoom)),
        "no waiters, but four fetches in flight"
    );
    assert!(
        matches!(test.ask("n3.zone3"), Resolve::Pending),
        "joining a fetch needs no place for a fetch"
    );
    let further = ResolveRequest {
        waiter: JOB,
        client: ClientId(1),
        since: test.now,
        first: false,
        waited_before: false,
        max_age: u32::MAX,
        optional: false,
    };
    assert!(matches!(test.resolver.ask(&key("n6.zone6"), further), Resolve::Pending));
}

#[test]
fn answer_above_max_age_is_refreshed() {
    let mut test = Test::new(1);
    test.begin_kept("a.test");
    test.pass(2_000);
    let request = ResolveRequest {
        waiter: JOB,
        client: ClientId(1),
        since: test.now,
        first: false,
        waited_before: false,
        max_age: 0,
        optional: false,
    };
    let known = |test: &mut Test, key: &KeyBuf, max_age| {
        matches!(test.resolver.ask(key, ResolveRequest { max_age, ..request }), Resolve::Ready(_))
    };
    assert!(known(&mut test, &key("a.test"), u32::MAX) && known(&mut test, &key("a.test"), 2));
    assert!(!known(&mut test, &key("a.test"), 1));
}

#[test]
fn early_fetch_fills_the_cache() {
    let mut test = Test::new(1);
    test.resolver.resolve_early(&key("a.test"), ClientId(1));
    let sent = test.one();
    test.resolver.resolve_early(&key("a.test"), ClientId(1));
    test.answer(&sent, &sent.answer(0, &[[192, 0, 2, 1]]));
    test.resolver.resolve_early(&key("a.test"), ClientId(1));
    assert!(test.sent().is_empty());
    assert!(test.resolver.next_completed().unwrap().waiters.is_empty());
    assert!(matches!(test.ask("a.test"), Resolve::Ready(Outcome::Answered(_))));
}

#[test]
fn early_fetch_needs_room_and_little_time() {
    let mut test = Test::with(1, "[limits]\nin-flight = 2\n", WorkerId(0), common(1));
    for n in 0..9 {
        test.resolver.resolve_early(&key(&format!("n{n}.zone{n}")), ClientId(n << 40));
    }
    assert_eq!(test.sent().len(), 2 * FETCHES_PER_JOB);
    let since = |ms| Nanos(test.now.0 - Nanos::from_millis(ms).0);
    assert!(!test.resolver.leaves_no_time(since(400)) && test.resolver.leaves_no_time(since(401)));
}

#[test]
fn expired_answer_is_served_after_timeout() {
    let mut test = Test::with(1, "[cache]\nserve-stale = '1h'\n", WorkerId(0), common(1));
    let sent = test.begin("a.test").remove(0);
    test.answer(&sent, &sent.answer(0, &[[192, 0, 2, 1]]));
    assert_eq!(test.outcome(), Some(Ok((0, 1))));
    test.pass(120_000);
    test.begin("a.test");
    test.pass(1_700);
    assert_eq!(test.outcome(), Some(Ok((0, 1))));
}

#[test]
fn reload_changes_servers_and_keeps_fetches() {
    let mut test = Test::new(2);
    let first = test.begin("a.test").remove(0);
    // Route indices of the old configuration are invalid in the new configuration, or refer to other routes.
    test.resolver.take_settings(settings(1, "[[forward]]\ndomain = 'corp.test'\n"));
    test.pass(400);
    test.answer(&first, &first.answer(0, &[[192, 0, 2, 1]]));
    assert_eq!(test.outcome(), Some(Ok((0, 1))));
    test.sent();
    for n in 0..20 {
        assert_eq!(test.begin(&format!("n{n}.corp.test"))[0].server(), 0);
    }
}

#[test]
fn r3_a_dead_zone_leaves_room_for_living_names() {
    let mut test = Test::new(1);
    let mut served = 0;
    for n in 0..24_000_u64 {
        let request = ResolveRequest {
            waiter: JOB,
            client: ClientId(n % 200),
            since: test.now,
            first: true,
            waited_before: false,
            max_age: u32::MAX,
            optional: false,
        };
        let _ = test.resolver.ask(&key(&format!("n{n}.dead.test")), request);
        if n % 12 == 0 {
            test.pass(1);
            let request = ResolveRequest { client: ClientId(1_000), since: test.now, ..request };
            test.sent();
            if matches!(
                test.resolver.ask(&key(&format!("n{n}.living.test")), request),
                Resolve::Pending
            ) {
                let sent = test.one();
                test.answer(&sent, &sent.answer(0, &[[192, 0, 2, 1]]));
                served += 1;
            }
            while test.resolver.next_completed().is_some() {}
        }
    }
    assert_eq!(served, 2_000, "of 2 000 living names");
    assert!(
        test.resolver.fetches.len() < 2_000,
        "share of the dead zone: {}",
        test.resolver.fetches.len()
    );
}

/// A client that repeats queries for dead names begins no fetches, but occupies places for waiting
/// queries.
#[test]
fn r3_repeated_dead_names_leave_waiting_places() {
    let mut test = Test::with(1, "[limits]\nin-flight = 900\n", WorkerId(0), common(1));
    let mut denied = 0;
    for n in 0..12_000_u64 {
        denied += u64::from(matches!(
            test.ask(&format!("n{}.dead.test", n % 10)),
            Resolve::Rejected(Rejection::ClientShare)
        ));
    }
    let got = 12_000 - denied;
    assert!((750..850).contains(&got), "{got} of 900 places");
    let other = ResolveRequest {
        waiter: JOB,
        client: ClientId(2),
        since: test.now,
        first: true,
        waited_before: false,
        max_age: u32::MAX,
        optional: false,
    };
    assert!(matches!(test.resolver.ask(&key("www.living.test"), other), Resolve::Pending));
    // More clients than places.
    for client in 0..12_000_u64 {
        let request = ResolveRequest { client: ClientId(100 + client), ..other };
        let _ = test.resolver.ask(&key(&format!("n{}.dead.test", client % 10)), request);
    }
    test.pass(400);
    let room = |test: &mut Test| {
        matches!(test.resolver.ask(&key("new.living.test"), other), Resolve::Pending)
    };
    assert!(!room(&mut test), "there was no failure when they arrived");
    test.pass(1_300);
    while test.resolver.next_completed().is_some() {}
    test.pass(10_000);
    for client in 0..12_000_u64 {
        let request = ResolveRequest { client: ClientId(100 + client), since: test.now, ..other };
        let _ = test.resolver.ask(&key(&format!("n{}.dead.test", client % 10)), request);
    }
    let other = ResolveRequest { since: test.now, ..other };
    assert!(
        matches!(test.resolver.ask(&key("new.living.test"), other), Resolve::Pending),
        "the subtree is failing"
    );
}

#[test]
fn current_fetch_can_be_abandoned() {
    let common = common(2);
    let mut test = Test::with(1, "", WorkerId(0), common);
    let sent = test.begin("a.test").remove(0);
    assert_eq!(test.resolver.current().unwrap(), "a.test. of type 1");
    test.resolver.abandon();
    assert_eq!(test.outcome(), Some(Err(Failure::Overload)));
    test.resolver.begin_work();
    test.resolver.abandon();
    assert_eq!((test.outcome(), test.resolver.current()), (None, None));
    // The question may be resolved again, and an answer to the abandoned query is ignored.
    test.answer(&sent, &sent.answer(0, &[]));
    assert_eq!(test.count(Count::UpstreamStray), 1);
    assert_eq!(test.begin("a.test").len(), 1);
}

#[test]
fn udp_validation_failure_is_final() {
    let mut test = Test::new(2);
    let sent = test.begin("a.test").remove(0);
    let mut rejected = sent.answer(2, &[]);
    rejected[11] += 1;
    wire::edns::put_opt(
        &mut rejected,
        1232,
        wire::rcode::Rcode::NOERROR,
        false,
        &[0, 15, 0, 2, 0, 6],
    );
    test.answer(&sent, &rejected);
    assert_eq!(test.outcome(), Some(Ok((2, 0))));
    assert!(test.sent().is_empty(), "the server without validation is not queried");
}

#[test]
fn second_wait_gets_stale_answer_at_once() {
    let mut test = Test::with(1, "[cache]\nserve-stale = '1h'\n", WorkerId(0), common(1));
    let sent = test.begin("a.test").remove(0);
    test.answer(&sent, &sent.answer(0, &[[192, 0, 2, 1]]));
    assert_eq!(test.outcome(), Some(Ok((0, 1))));
    test.pass(61_000);
    let request = ResolveRequest {
        waiter: JOB,
        client: ClientId(1),
        since: test.now,
        first: false,
        waited_before: true,
        max_age: u32::MAX,
        optional: false,
    };
    match test.resolver.ask(&key("a.test"), request) {
        Resolve::Ready(Outcome::Answered(kept)) => assert!(kept.stale),
        other => panic!("{other:?}"),
    }
    assert!(test.sent().is_empty());
}

/// RFC 8767 §5 permits a stale answer first and a refresh afterwards.
#[test]
fn stale_at_once_serves_then_refreshes() {
    let text = "[cache]\nserve-stale = '1h'\nstale-at-once = true\n";
    let mut test = Test::with(1, text, WorkerId(0), common(1));
    test.begin_kept("a.test");
    test.pass(61_000);
    let request = ResolveRequest {
        waiter: JOB,
        client: ClientId(1),
        since: test.now,
        first: true,
        waited_before: false,
        max_age: u32::MAX,
        optional: false,
    };
    let is_stale = |test: &mut Test| match test.resolver.ask(&key("a.test"), request) {
        Resolve::Ready(Outcome::Answered(kept)) => kept.stale,
        other => panic!("{other:?}"),
    };
    assert!(is_stale(&mut test));
    let sent = test.one();
    assert!(is_stale(&mut test), "until it is refreshed");
    assert!(test.sent().is_empty(), "asked once");
    test.answer(&sent, &sent.answer(0, &[[192, 0, 2, 2]]));
    assert!(!is_stale(&mut test), "renewed");
    assert!(
        matches!(test.resolver.ask(&key("new.test"), request), Resolve::Pending),
        "nothing old"
    );
}

/// The answer has a TTL of 60 s: its last tenth begins after 54 s.
#[test]
fn prefetch_refreshes_after_two_late_requests() {
    for (prefetch, renewed) in [(true, 1), (false, 0)] {
        let text = format!("[cache]\nprefetch = {prefetch}\n");
        let mut test = Test::with(1, &text, WorkerId(0), common(1));
        test.begin_kept("a.test");
        let ask = |test: &mut Test| {
            let request = ResolveRequest {
                waiter: JOB,
                client: ClientId(1),
                since: test.now,
                first: true,
                waited_before: false,
                max_age: u32::MAX,
                optional: false,
            };
            match test.resolver.ask(&key("a.test"), request) {
                Resolve::Ready(Outcome::Answered(kept)) => kept.age,
                other => panic!("{other:?}"),
            }
        };
        test.pass(53_000);
        (0..20).for_each(|_| assert_eq!(ask(&mut test), 53));
        assert!(test.sent().is_empty(), "enough time is left");
        test.pass(2_000);
        assert_eq!(ask(&mut test), 55);
        assert!(test.sent().is_empty(), "asked once");
        (0..5).for_each(|_| assert_eq!(ask(&mut test), 55, "nobody waits"));
        let sent = test.sent();
        assert_eq!(sent.len(), renewed);
        for sent in &sent {
            test.answer(sent, &sent.answer(0, &[[192, 0, 2, 2]]));
            assert_eq!(ask(&mut test), 0, "renewed");
        }
    }
}

/// RFC 8767 §5: the time is measured from the arrival of the client's query, and includes earlier waits.
#[test]
fn rfc8767_5_earlier_wait_counts_for_stale_answer() {
    let mut test = Test::with(1, "[cache]\nserve-stale = '1h'\n", WorkerId(0), common(1));
    test.begin_kept("a.test");
    test.pass(61_000);
    let before = |test: &Test, ms| Nanos(test.now.0 - Nanos::from_millis(ms).0);
    let arrived = |since| ResolveRequest {
        waiter: JOB,
        client: ClientId(1),
        since,
        first: false,
        waited_before: false,
        max_age: u32::MAX,
        optional: false,
    };
    let request = arrived(before(&test, 1_000));
    assert!(matches!(test.resolver.ask(&key("a.test"), request), Resolve::Pending));
    let sent = test.one();
    // A second waiter has just arrived.
    let just = arrived(test.now);
    assert!(matches!(test.resolver.ask(&key("a.test"), just), Resolve::Pending));
    test.pass(700);
    assert!(test.resolver.next_completed().is_none());
    test.pass(50);
    let completed = test.resolver.next_completed().expect("1.75 s after its arrival");
    assert!(completed.waiters.len() == 1 && completed.outcome.kept().unwrap().stale);
    assert_eq!(test.resolver.fetches.len(), 1, "the fetch continues");
    test.answer(&sent, &sent.answer(0, &[[192, 0, 2, 2]]));
    let completed = test.resolver.next_completed().unwrap();
    assert!(
        completed.waiters.len() == 1 && !completed.outcome.kept().unwrap().stale,
        "for the other waiter"
    );
    // A query that joins a fetch too late does not wait at all if there is a stale answer.
    test.pass(61_000);
    let request = arrived(before(&test, 1_750));
    match test.resolver.ask(&key("a.test"), request) {
        Resolve::Ready(Outcome::Answered(kept)) => assert!(kept.stale),
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(test.resolver.ask(&key("new.test"), request), Resolve::Pending),
        "nothing old"
    );
}

#[test]
fn rfc8767_5_a_probe_does_not_keep_a_stale_answer_back() {
    let mut test = Test::with(1, "[cache]\nserve-stale = '1h'\n", WorkerId(0), common(1));
    let probe = KeyBuf::probe(&crate::testing::wire("a.test"), 1, false);
    let since = Nanos(test.now.0 - Nanos::from_millis(1_000).0);
    let request = ResolveRequest {
        waiter: JOB,
        client: ClientId(1),
        since,
        first: false,
        waited_before: true,
        max_age: 0,
        optional: true,
    };
    assert!(matches!(test.resolver.ask(&probe, request), Resolve::Pending));
    assert!(matches!(
        test.resolver.ask(&probe, ResolveRequest { optional: false, ..request }),
        Resolve::Pending
    ));
    test.pass(750);
    let completed = test.resolver.next_completed().expect("1.75 s after its arrival");
    assert!(
        completed.waiters.len() == 1
            && matches!(completed.outcome, Outcome::Failed(Failure::Timeout))
    );
    assert!(
        test.resolver.next_completed().is_none(),
        "a waiter without a stale answer continues to wait"
    );
    let request =
        ResolveRequest { since: Nanos(test.now.0 - Nanos::from_millis(1_750).0), ..request };
    assert!(matches!(
        test.resolver.ask(&probe, request),
        Resolve::Ready(Outcome::Failed(Failure::Timeout))
    ));
}
