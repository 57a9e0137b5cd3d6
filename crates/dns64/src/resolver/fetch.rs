//! A fetch: a question in flight, from the first upstream query to its end, as a state machine.
//!
//! ```text
//!            another worker fetches it already
//!   begun ────────────────────────────────────► OtherWorker ── result of that worker ─────────────┐
//!     │                                             │                                             │
//!     │ no other worker does                        └── deadline, a moment after that worker's ───┤
//!     ▼                                                                                           ▼
//!    Udp ── answer; error and no server left; no server reachable; deadline ─────────────────► completed
//!    │ ▲ └─ next query: timeout, an error, not usable, unreachable                                ▲
//!    │ │                                                                                          │
//!    │ └──────────────── no answer, and another server is left ───────────────┐                   │
//!    └── response is truncated ──► Tcp ─── answer; deadline; no answer and no server left ────────┘
//!        or in another letter case
//! ```
//!
//! UDP queries may still be answered while a server is queried over TCP. A complete answer
//! completes the fetch; an error is stored until the TCP result arrives.
//!
//! With DNSSEC validation, an answer first leads to the state `Validating` (see [`super::validating`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::Rng;
use smallvec::SmallVec;
use units::Nanos;
use wire::edns::{OPT_LEN, UDP_PAYLOAD, ede, put_opt};
use wire::rcode::Rcode;
use wire::template::HEADER_LEN;

use super::answer::Answer;
use super::budget::AdmissionTicket;
use super::outcome::Failure;
use super::outside::ValidationTask;
use super::waiter::{NEVER, Waiters};
use crate::ids::{Expected, RouteId, ServerId};
use crate::metrics::UpstreamFailure;
use crate::name::{Key, is_question};

/// The hash of a question's key, computed once for lookup and insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    /// Creates a `KeyHash` from the value of a hash.
    pub(super) fn new(value: u64) -> KeyHash {
        KeyHash(value)
    }

    /// Returns the value of the hash.
    #[inline]
    pub(super) fn get(self) -> u64 {
        self.0
    }

    /// Returns an index below `len`, derived from the hash. `len` must be at least one.
    pub(super) fn index(self, len: usize) -> usize {
        (self.0 % len as u64) as usize
    }
}

/// A question that is being resolved, with its state and its waiters.
pub(super) struct Fetch {
    pub(super) query: UpstreamQuery,
    pub(super) route: RouteId,
    /// Client of the fetch and, if upstream queries fail for a subtree of the DNS that contains the name, this subtree.
    /// The budget counts the fetch for both.
    pub(super) ticket: AdmissionTicket,
    /// Time at which the fetch ends, with or without an answer.
    pub(super) deadline: Nanos,
    /// Time at which the most recently set timer of the fetch fires. Timers that fire earlier are outdated.
    pub(super) due: Nanos,
    pub(super) waiters: Waiters,
    /// Earliest time at which one of the waiters gets a stale answer while the fetch continues.
    pub(super) release_due: Nanos,
    pub(super) state: State,
    /// Hash of the question's key.
    pub(super) hash: KeyHash,
    /// Number that distinguishes the fetch from earlier fetches in the same slot.
    pub(super) generation: u32,
}

/// State of a fetch.
pub(super) enum State {
    /// Another worker performs the fetch. This worker only waits for the result.
    OtherWorker,
    /// Servers are queried over UDP.
    Udp(Udp),
    /// One server is queried over TCP.
    Tcp(Tcp),
    /// An answer has arrived and is being validated.
    Validating(Box<Validating>),
}

/// State of a fetch with an answer that is being validated.
pub(super) struct Validating {
    /// The answer that is being validated. It completes the fetch, unless the validation shows that it is bogus.
    pub(super) answer: Answer,
    /// The validation and the query that it needs, while it waits for the response.
    pub(super) waiting: Option<(ValidationTask, dnssec::Query)>,
    /// Responses that arrived during the validation. They are used if the answer is bogus.
    pub(super) later: Vec<Vec<u8>>,
    /// State of the fetch over UDP. The fetch returns to this state if the answer is bogus and another server can be
    /// queried.
    pub(super) before: Udp,
}

/// State of a fetch over UDP.
#[derive(Default)]
pub(super) struct Udp {
    /// UDP queries sent, in order.
    pub(super) attempts: SmallVec<[Attempt; 1]>,
    /// Servers that were queried, without duplicates.
    pub(super) tried: SmallVec<[ServerId; 1]>,
    /// Server that rejected the query with EDNS. The server is queried without EDNS from then on.
    pub(super) plain: Option<ServerId>,
    /// Server that repeated the question in a different letter case. The server is queried in lower case from then on.
    pub(super) lower_case: Option<ServerId>,
    /// Error response to use if no other server gives a better answer.
    pub(super) fallback: Option<Arc<Answer>>,
    /// True if a response was malformed.
    pub(super) was_malformed: bool,
    /// Extended DNS error of an answer that DNSSEC validation rejected.
    pub(super) bogus: Option<u16>,
    /// True if a validation has extended the deadline of the fetch.
    pub(super) is_extended: bool,
    /// True if the fetch ends because no upstream is reachable.
    pub(super) unreachable: bool,
}

/// State of a fetch over TCP.
pub(super) struct Tcp {
    pub(super) server: ServerId,
    pub(super) cause: TcpCause,
    /// Becomes true once a connection slot is free, shortly before the query is sent.
    pub(super) begun: Arc<AtomicBool>,
    /// State of the fetch over UDP. The fetch returns to this state if the server does not answer over TCP.
    pub(super) before: Udp,
}

/// Reason why a UDP response led to a query over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpCause {
    /// The response was truncated.
    Truncated,
    /// The response repeated the question in a different letter case. Either the server does not
    /// preserve the case, or the response is forged. Over TCP, forgery is not possible.
    OtherCase,
}

/// Properties of a query that some servers cannot handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueryForm {
    /// True if the query has an OPT record.
    pub(super) edns: bool,
    /// True if the name may be in random letter case, which the response must repeat.
    pub(super) random_case: bool,
}

/// One UDP query of a fetch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) at: Expected,
    pub(super) sent: Nanos,
    pub(super) form: QueryForm,
    /// True after the query timed out, or after its response led to a query over TCP. A response is then no longer
    /// expected.
    pub(super) expired: bool,
    /// True after a malformed response. A different response may still arrive.
    pub(super) is_malformed: bool,
}

impl Attempt {
    /// Returns the reason why the query failed, if no other response arrives within the time limit.
    pub(super) fn failure(&self) -> UpstreamFailure {
        if self.is_malformed { UpstreamFailure::Malformed } else { UpstreamFailure::Timeout }
    }
}

impl Fetch {
    /// Returns a fetch for which no query has been sent.
    pub(super) fn new(
        query: UpstreamQuery,
        hash: KeyHash,
        route: RouteId,
        ticket: AdmissionTicket,
        deadline: Nanos,
        state: State,
    ) -> Fetch {
        let (waiters, release_due) = (Waiters::new(), NEVER);
        Fetch {
            query,
            route,
            ticket,
            deadline,
            due: deadline,
            waiters,
            release_due,
            state,
            hash,
            // Set when the fetch is inserted.
            generation: 0,
        }
    }
}

impl State {
    /// Returns the state of the fetch's UDP queries. This state also exists while the fetch queries a server over TCP.
    /// Returns `None` if another worker performs the fetch, or if an answer is being validated.
    pub(super) fn udp(&mut self) -> Option<&mut Udp> {
        match self {
            State::OtherWorker => None,
            State::Udp(udp) => Some(udp),
            State::Tcp(tcp) => Some(&mut tcp.before),
            // A further response must not replace the answer that is being validated.
            State::Validating(_) => None,
        }
    }

    /// Returns the UDP queries for which responses may still arrive.
    pub(super) fn attempts(&self) -> &[Attempt] {
        match self {
            State::OtherWorker => &[],
            State::Udp(udp) => &udp.attempts,
            State::Tcp(tcp) => &tcp.before.attempts,
            State::Validating(validating) => &validating.before.attempts,
        }
    }

    /// Changes the fetch from UDP to TCP, in order to query `server`. Has no effect and returns false if the fetch is
    /// not in the UDP state. `begun` becomes true once a connection slot is free, shortly before the query is sent.
    pub(super) fn switch_to_tcp(
        &mut self,
        server: ServerId,
        cause: TcpCause,
        begun: Arc<AtomicBool>,
    ) -> bool {
        let State::Udp(udp) = self else { return false };
        *self = State::Tcp(Tcp { server, cause, begun, before: std::mem::take(udp) });
        true
    }

    /// Returns the reason why the fetch has no answer at its deadline. If an answer is being validated, DS or DNSKEY
    /// records are missing. The reason is overload if the server answered
    /// over UDP, and the local connection limit prevented the query over TCP. Otherwise, the reason is a timeout.
    pub(super) fn unanswered_failure(&self) -> Failure {
        match self {
            State::Tcp(tcp) if !tcp.begun.load(Ordering::Relaxed) => Failure::Overload,
            State::Validating(validating) if validating.waiting.is_some() => {
                Failure::NotValidated(ede::NO_REACHABLE_AUTHORITY)
            }
            State::Validating(_) => Failure::NotValidated(ede::DNSSEC_INDETERMINATE),
            _ => Failure::Timeout,
        }
    }

    /// Returns the server that is being queried over TCP. Returns `None` if there is no such query, or if the query
    /// still waits for a connection slot.
    pub(super) fn asked_over_tcp(&self) -> Option<ServerId> {
        match self {
            State::Tcp(tcp) if tcp.begun.load(Ordering::Relaxed) => Some(tcp.server),
            _ => None,
        }
    }

    /// Changes the fetch from TCP back to UDP. Returns the server that was queried over TCP, and the reason for that
    /// query. Returns `None` if the fetch is not in the TCP state.
    pub(super) fn return_to_udp(&mut self) -> Option<(ServerId, TcpCause)> {
        let State::Tcp(tcp) = self else { return None };
        let asked = (tcp.server, tcp.cause);
        *self = State::Udp(std::mem::take(&mut tcp.before));
        Some(asked)
    }

    /// Returns the failure that is reported as the result of the fetch. If a response was malformed, a timeout is
    /// reported as a malformed response.
    pub(super) fn cause_of(&mut self, failure: Failure) -> Failure {
        let was_malformed = self.udp().is_some_and(|udp| udp.was_malformed);
        if was_malformed && failure == Failure::Timeout { Failure::Malformed } else { failure }
    }

    /// Returns the extended DNS error of an answer that DNSSEC validation rejected.
    pub(super) fn bogus(&mut self) -> Option<u16> {
        match self {
            State::Validating(validating) => validating.before.bogus,
            state => state.udp().and_then(|udp| udp.bogus),
        }
    }

    /// Returns the servers that were queried, over UDP or TCP; a server may occur twice.
    pub(super) fn servers(&self) -> impl Iterator<Item = ServerId> {
        let (udp, over_tcp) = match self {
            State::OtherWorker => (None, None),
            State::Udp(udp) => (Some(udp), None),
            State::Tcp(tcp) => (Some(&tcp.before), Some(tcp.server)),
            State::Validating(validating) => (Some(&validating.before), None),
        };
        let over_udp = udp.into_iter().flat_map(|udp| {
            let attempts = udp.attempts.iter().map(|attempt| attempt.at.port.server);
            attempts.chain(udp.tried.iter().copied()).chain(udp.plain).chain(udp.lower_case)
        });
        over_udp.chain(over_tcp)
    }

    /// Returns the stored error response, if there is one.
    pub(super) fn into_fallback(self) -> Option<Arc<Answer>> {
        match self {
            State::OtherWorker => None,
            State::Udp(udp) => udp.fallback,
            State::Tcp(tcp) => tcp.before.fallback,
            State::Validating(validating) => validating.before.fallback,
        }
    }
}

impl Udp {
    /// True if the server was queried, whether or not it answered. After the fetch switches to queries without EDNS or
    /// in lower case for this server, the result is false until the server is selected again.
    pub(super) fn has_asked(&self, server: ServerId) -> bool {
        self.tried.contains(&server)
            && self.attempts.iter().any(|attempt| attempt.at.port.server == server)
    }

    /// Returns the number of UDP queries that this fetch sent to `server`.
    pub(super) fn times(&self, server: ServerId) -> usize {
        self.attempts.iter().filter(|attempt| attempt.at.port.server == server).count()
    }

    /// Returns the queried server to which this fetch sent the fewest queries.
    pub(super) fn least_asked(&self) -> Option<ServerId> {
        self.tried.iter().copied().min_by_key(|&server| self.times(server))
    }

    /// Returns the UDP query that was sent from the source port and with the message id in `at`.
    pub(super) fn sent(&self, at: Expected) -> Option<Attempt> {
        self.attempts.iter().find(|attempt| attempt.at == at).copied()
    }

    /// Records that the server is queried.
    pub(super) fn try_server(&mut self, server: ServerId) {
        if !self.tried.contains(&server) {
            self.tried.push(server);
        }
    }

    /// Records that the server rejected the query with EDNS. The server then counts as not yet
    /// queried, and is queried without EDNS.
    pub(super) fn ask_without_edns(&mut self, server: ServerId) {
        self.plain = Some(server);
        self.tried.retain(|tried| *tried != server);
    }

    /// Records that the server answered in a different letter case. The server then counts as not
    /// yet queried, and is queried in lower case.
    pub(super) fn ask_in_lower_case(&mut self, server: ServerId) {
        self.lower_case = Some(server);
        self.tried.retain(|tried| *tried != server);
    }
}

/// Query to the upstreams for one question.
pub(super) struct UpstreamQuery {
    key: Key,
    /// The question section as sent, if it is in random letter case.
    random_case: Option<Box<[u8]>>,
    /// True if the answer is validated. The query then has DO, to get signatures, and CD, because this server decides
    /// which data are valid (RFC 6840 §5.9).
    pub(super) is_validated: bool,
}

impl UpstreamQuery {
    /// Returns the query for a question. `random_case` is the random number generator for the letter case, or `None` if
    /// the case is not randomized.
    pub(super) fn new(
        key: Key,
        is_validated: bool,
        random_case: Option<&mut impl Rng>,
    ) -> UpstreamQuery {
        let random_case = random_case.map(|rng| {
            let mut question: Box<[u8]> = key.question().into();
            randomize_case(&mut question, key.name().len(), rng);
            question
        });
        UpstreamQuery { key, random_case, is_validated }
    }

    /// Returns the key of the question.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Consumes the query, and returns the key of its question.
    pub(super) fn into_key(self) -> Key {
        self.key
    }

    /// True if `question` equals the question section that was sent. The comparison is
    /// case-sensitive if the letter case is random.
    #[inline]
    pub(super) fn has_sent(&self, question: &[u8], random_case: bool) -> bool {
        match self.random_case.as_deref().filter(|_| random_case) {
            Some(sent) => *question == *sent,
            None => is_question(question, self.key.question()),
        }
    }

    /// True if the answer needs signatures: it is validated, or the query has DO.
    pub(super) fn needs_signatures(&self) -> bool {
        self.is_validated || self.key.dnssec_ok()
    }

    /// Returns the maximum length of the query in octets.
    pub(super) fn len(&self) -> usize {
        HEADER_LEN + self.key.question().len() + OPT_LEN
    }

    /// Writes the query with the given id. If the server supports EDNS, the query has its own OPT record, because EDNS
    /// applies only to one hop (RFC 6891 §6.1.1).
    pub(super) fn write(&self, id: u16, form: QueryForm, out: &mut Vec<u8>) {
        // With AD set, the upstream returns AD even without DO (RFC 6840 §5.7).
        let checking_disabled = self.is_validated || self.key.checking_disabled();
        let ad_cd = 0x20 | u8::from(checking_disabled) << 4;
        let [i0, i1] = id.to_be_bytes();
        out.extend([i0, i1, 0x01, ad_cd, 0, 1, 0, 0, 0, 0, 0, u8::from(form.edns)]);
        let random_case = self.random_case.as_deref().filter(|_| form.random_case);
        out.extend(random_case.unwrap_or(self.key.question()));
        if form.edns {
            let dnssec_ok = self.is_validated || self.key.dnssec_ok();
            put_opt(out, UDP_PAYLOAD as u16, Rcode::NOERROR, dnssec_ok, &[]);
        }
    }
}

/// Randomizes the letter case of a name (draft-vixie-dnsext-dns0x20).
fn randomize_case(question: &mut [u8], name_len: usize, rng: &mut impl Rng) {
    for octet in &mut question[..name_len] {
        if octet.is_ascii_lowercase() && rng.next_u32() & 1 == 1 {
            octet.make_ascii_uppercase();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PortId;
    use crate::name::KeyBuf;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn key(name: &str, dnssec_ok: bool) -> Key {
        KeyBuf::new(&name.parse().unwrap(), 28, 1, dnssec_ok, true).to_key()
    }

    const FORM: QueryForm = QueryForm { edns: true, random_case: true };
    const WITHOUT_EDNS: QueryForm = QueryForm { edns: false, random_case: true };

    fn attempt(server: u32, id: u16) -> Attempt {
        let at = Expected { port: PortId { server: ServerId(server), number: 7 }, id };
        Attempt { at, sent: Nanos::SECOND, form: FORM, expired: false, is_malformed: false }
    }

    #[test]
    fn tcp_preserves_and_restores_the_udp_state() {
        let mut state = State::Udp(Udp::default());
        let udp = state.udp().unwrap();
        udp.try_server(ServerId(3));
        udp.try_server(ServerId(3));
        udp.attempts.push(attempt(3, 9));
        assert!(udp.has_asked(ServerId(3)) && udp.tried.len() == 1 && udp.times(ServerId(3)) == 1);
        assert!(state.return_to_udp().is_none());
        let begun = Arc::new(AtomicBool::new(false));
        let cause = TcpCause::Truncated;
        assert!(state.switch_to_tcp(ServerId(3), cause, Arc::clone(&begun)));
        assert!(!state.switch_to_tcp(ServerId(4), cause, Arc::default()));
        assert_eq!(state.unanswered_failure(), Failure::Overload);
        begun.store(true, Ordering::Relaxed);
        assert_eq!(state.unanswered_failure(), Failure::Timeout);
        assert_eq!(state.attempts()[0].at.id, 9);
        assert!(
            state.servers().all(|server| server == ServerId(3)) && state.servers().count() == 3
        );
        assert_eq!(state.return_to_udp(), Some((ServerId(3), cause)));
        assert!(matches!(&state, State::Udp(udp) if udp.sent(attempt(3, 9).at).is_some()));
        assert!(state.udp().unwrap().sent(attempt(3, 10).at).is_none());
    }

    #[test]
    fn fetch_of_another_worker_has_no_attempts() {
        let mut state = State::OtherWorker;
        assert!(state.udp().is_none() && state.attempts().is_empty());
        assert!(
            !state.switch_to_tcp(ServerId(0), TcpCause::Truncated, Arc::default())
                && state.return_to_udp().is_none()
        );
        assert!(state.into_fallback().is_none());
    }

    #[test]
    fn server_without_edns_counts_as_not_queried() {
        let mut udp = Udp::default();
        udp.try_server(ServerId(1));
        udp.attempts.push(attempt(1, 1));
        udp.ask_without_edns(ServerId(1));
        assert!(
            !udp.has_asked(ServerId(1))
                && udp.plain == Some(ServerId(1))
                && udp.times(ServerId(1)) == 1
        );
    }

    #[test]
    fn query_bytes_and_accepted_questions() {
        let query = UpstreamQuery::new(key("a.test", true), false, None::<&mut StdRng>);
        let mut out = Vec::new();
        query.write(0x1234, FORM, &mut out);
        let question = b"\x01a\x04test\0\0\x1c\0\x01";
        assert_eq!(out[..12], [0x12, 0x34, 0x01, 0x30, 0, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(out[12..12 + question.len()], *question);
        assert_eq!(out[12 + question.len()..], [0, 0, 41, 0x04, 0xd0, 0, 0, 0x80, 0, 0, 0]);
        out.clear();
        query.write(0x1234, WITHOUT_EDNS, &mut out);
        assert_eq!((out.len(), out[11]), (12 + question.len(), 0));
        let https = UpstreamQuery::new(
            KeyBuf::new(&"a.test".parse().unwrap(), 65, 1, false, false).to_key(),
            false,
            None::<&mut StdRng>,
        );
        assert!(
            https.has_sent(b"\x01A\x04test\0\0A\0\x01", true)
                && !https.has_sent(b"\x01a\x04test\0\0a\0\x01", true),
            "type 97"
        );
        assert!(
            query.has_sent(b"\x01A\x04TEST\0\0\x1c\0\x01", true)
                && !query.has_sent(b"\x01b\x04test\0\0\x1c\0\x01", true)
        );
    }

    #[test]
    fn random_letter_case_must_come_back_as_it_was_sent() {
        let name = "abcdefghijklmnopqrstuvwxyz.test";
        let query =
            UpstreamQuery::new(key(name, false), false, Some(&mut StdRng::seed_from_u64(1)));
        let mut out = Vec::new();
        query.write(0, WITHOUT_EDNS, &mut out);
        let sent = &out[12..];
        assert!(query.has_sent(sent, true) && !query.has_sent(&sent.to_ascii_lowercase(), true));
        assert!(query.has_sent(&sent.to_ascii_lowercase(), false));
        assert!(sent.eq_ignore_ascii_case(query.key().question()));
        let mut out = Vec::new();
        query.write(0, QueryForm { edns: false, random_case: false }, &mut out);
        assert_eq!(out[12..], *query.key().question());
    }
}
