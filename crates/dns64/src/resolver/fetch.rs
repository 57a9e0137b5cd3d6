//! A question in flight, from the first upstream that is asked to its end, as a state machine.
//!
//! ```text
//!            another worker asks it already
//!   begun ────────────────────────────────────► Elsewhere ── that worker's word ──────────────────┐
//!     │                                             │                                             │
//!     │ nobody does                                 └── deadline, a moment after that worker's ───┤
//!     ▼                                                                                           ▼
//!    Udp ── answer; an error and no server left to ask; no server reachable; deadline ────────► landed
//!    │ ▲ └─ asked again or elsewhere: no answer in time, an error, not usable, unreachable        ▲
//!    │ │                                                                                          │
//!    │ └──────────────── no answer, and another server is left ───────────────┐                   │
//!    └── an answer is truncated ──► Tcp ─── answer; deadline; no answer and nobody left ──────────┘
//!        or in another letter case
//! ```
//!
//! What was asked over UDP may still be answered while a server is asked over TCP: a whole answer
//! lands the question, an error waits for what comes over TCP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use method::units::Nanos;
use rand::Rng;
use smallvec::SmallVec;
use wire::edns::{OPT_LEN, UDP_PAYLOAD, put_opt};
use wire::rcode::Rcode;
use wire::template::HEADER_LEN;

use super::answer::Answer;
use super::budget::Charge;
use super::outcome::Failure;
use super::waiter::{NEVER, Waiters};
use crate::ids::{Expected, RouteId, ServerId};
use crate::name::{Key, is_question};

/// A question in flight.
pub(super) struct Fetch {
    pub(super) query: UpstreamQuery,
    pub(super) route: RouteId,
    /// Whose share of the budget it takes.
    pub(super) charge: Charge,
    /// When it is over, whatever has come until then.
    pub(super) deadline: Nanos,
    /// When it is looked at next; timers that ring earlier were set before something else happened.
    pub(super) due: Nanos,
    pub(super) waiters: Waiters,
    /// When the next of those who wait may have waited long enough.
    pub(super) release_due: Nanos,
    pub(super) state: State,
}

/// How far a question in flight has come.
pub(super) enum State {
    /// Another worker asks; this one only waits for its word.
    Elsewhere,
    /// Servers are asked over UDP.
    Udp(Udp),
    /// One server is asked over TCP.
    Tcp(Tcp),
}

/// Servers are asked over UDP.
#[derive(Default)]
pub(super) struct Udp {
    /// Each time that it was sent, the last one last.
    pub(super) attempts: SmallVec<[Attempt; 1]>,
    /// The servers that have been asked, each once.
    pub(super) tried: SmallVec<[ServerId; 1]>,
    /// The server that did not like the question with EDNS; it is asked without from then on.
    pub(super) plain: Option<ServerId>,
    /// The server that answered in another letter case; it is asked in lower case from then on.
    pub(super) lower_case: Option<ServerId>,
    /// An error that a server answered, should the others do no better.
    pub(super) fallback: Option<Arc<Answer>>,
    /// True if a reply was malformed.
    pub(super) was_malformed: bool,
    /// True if it ended because no upstream could be reached and another question is the probe.
    pub(super) withheld: bool,
}

/// One server is asked over TCP.
pub(super) struct Tcp {
    pub(super) server: ServerId,
    pub(super) cause: TcpCause,
    /// Whether there has been room to ask it.
    pub(super) begun: Arc<AtomicBool>,
    /// What has been done over UDP, where it goes on if that server does not answer.
    pub(super) before: Udp,
}

/// The reply over UDP because of which a server is asked over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpCause {
    /// It was truncated.
    Truncated,
    /// It repeated the question in another letter case: the server does not keep the case, or the
    /// reply is forged, which it cannot be over TCP.
    OtherCase,
}

/// Properties of a query that some servers cannot handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// True if the query has an OPT record.
    pub(super) edns: bool,
    /// True if the name may be in random letter case, which the reply must repeat.
    pub(super) random_case: bool,
}

/// One time that a question was sent over UDP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) at: Expected,
    pub(super) sent: Nanos,
    pub(super) form: Form,
    /// It was not answered in time, or its answer sent us to TCP: it is waited for no more.
    pub(super) expired: bool,
}

impl Fetch {
    /// A question that has not been asked yet. `random_case` draws its letter case, where that is
    /// to be random.
    pub(super) fn new(
        key: Key,
        route: RouteId,
        charge: Charge,
        deadline: Nanos,
        state: State,
        random_case: Option<&mut impl Rng>,
    ) -> Fetch {
        let query = UpstreamQuery::new(key, random_case);
        let (waiters, release_due) = (Waiters::new(), NEVER);
        Fetch { query, route, charge, deadline, due: deadline, waiters, release_due, state }
    }
}

impl State {
    /// What has been done over UDP, until now or before TCP.
    pub(super) fn udp(&mut self) -> Option<&mut Udp> {
        match self {
            State::Elsewhere => None,
            State::Udp(udp) => Some(udp),
            State::Tcp(tcp) => Some(&mut tcp.before),
        }
    }

    /// The attempts of which answers are expected.
    pub(super) fn attempts(&self) -> &[Attempt] {
        match self {
            State::Elsewhere => &[],
            State::Udp(udp) => &udp.attempts,
            State::Tcp(tcp) => &tcp.before.attempts,
        }
    }

    /// From UDP to TCP, with `server`. Nothing changes in another state: false. `begun` is set when
    /// there is room to ask it.
    pub(super) fn go_over_to_tcp(
        &mut self,
        server: ServerId,
        cause: TcpCause,
        begun: Arc<AtomicBool>,
    ) -> bool {
        let State::Udp(udp) = self else { return false };
        *self = State::Tcp(Tcp { server, cause, begun, before: std::mem::take(udp) });
        true
    }

    /// Why there is no answer when the time is over. A server that has answered over UDP, and could
    /// not be asked over TCP for want of room here, has not been silent.
    pub(super) fn why_unanswered(&self) -> Failure {
        match self {
            State::Tcp(tcp) if !tcp.begun.load(Ordering::Relaxed) => Failure::Overload,
            _ => Failure::Timeout,
        }
    }

    /// The server that is being asked over TCP, if there has been room for that.
    pub(super) fn asked_over_tcp(&self) -> Option<ServerId> {
        match self {
            State::Tcp(tcp) if tcp.begun.load(Ordering::Relaxed) => Some(tcp.server),
            _ => None,
        }
    }

    /// From TCP back to UDP. Returns the server that was asked, and the cause; none in another state.
    pub(super) fn return_to_udp(&mut self) -> Option<(ServerId, TcpCause)> {
        let State::Tcp(tcp) = self else { return None };
        let asked = (tcp.server, tcp.cause);
        *self = State::Udp(std::mem::take(&mut tcp.before));
        Some(asked)
    }

    /// Replaces a timeout by its cause: a reply was malformed, and none could be used.
    pub(super) fn cause_of(&mut self, failure: Failure) -> Failure {
        let was_malformed = self.udp().is_some_and(|udp| udp.was_malformed);
        if was_malformed && failure == Failure::Timeout { Failure::Malformed } else { failure }
    }

    /// The servers that were asked, over UDP or TCP; a server may occur twice.
    pub(super) fn servers(&self) -> impl Iterator<Item = ServerId> {
        let (udp, over_tcp) = match self {
            State::Elsewhere => (None, None),
            State::Udp(udp) => (Some(udp), None),
            State::Tcp(tcp) => (Some(&tcp.before), Some(tcp.server)),
        };
        let over_udp = udp.into_iter().flat_map(|udp| {
            let attempts = udp.attempts.iter().map(|attempt| attempt.at.port.server);
            attempts.chain(udp.tried.iter().copied()).chain(udp.plain).chain(udp.lower_case)
        });
        over_udp.chain(over_tcp)
    }

    /// The error that is at hand when nobody does better.
    pub(super) fn into_fallback(self) -> Option<Arc<Answer>> {
        match self {
            State::Elsewhere => None,
            State::Udp(udp) => udp.fallback,
            State::Tcp(tcp) => tcp.before.fallback,
        }
    }
}

impl Udp {
    /// Whether a server has been sent the question, with or without an answer, since it was last
    /// said to be fresh.
    pub(super) fn has_asked(&self, server: ServerId) -> bool {
        self.tried.contains(&server)
            && self.attempts.iter().any(|attempt| attempt.at.port.server == server)
    }

    /// How often a server has been sent the question.
    pub(super) fn times(&self, server: ServerId) -> usize {
        self.attempts.iter().filter(|attempt| attempt.at.port.server == server).count()
    }

    /// Of the servers that have been asked, the one that has been sent the question least often.
    pub(super) fn least_asked(&self) -> Option<ServerId> {
        self.tried.iter().copied().min_by_key(|&server| self.times(server))
    }

    /// The attempt that an answer there is to.
    pub(super) fn sent(&self, at: Expected) -> Option<Attempt> {
        self.attempts.iter().find(|attempt| attempt.at == at).copied()
    }

    /// The server is asked, as one that has been tried.
    pub(super) fn try_server(&mut self, server: ServerId) {
        if !self.tried.contains(&server) {
            self.tried.push(server);
        }
    }

    /// The server rejected the question for its EDNS: it counts as fresh, and is asked without.
    pub(super) fn ask_without_edns(&mut self, server: ServerId) {
        self.plain = Some(server);
        self.tried.retain(|tried| *tried != server);
    }

    /// The server answered in another letter case: it counts as fresh, and is asked in lower case.
    pub(super) fn ask_in_lower_case(&mut self, server: ServerId) {
        self.lower_case = Some(server);
        self.tried.retain(|tried| *tried != server);
    }
}

/// A question as upstreams are asked it.
pub(super) struct UpstreamQuery {
    key: Key,
    /// The question section as it is sent, if that is in random letter case.
    random_case: Option<Box<[u8]>>,
}

impl UpstreamQuery {
    fn new(key: Key, random_case: Option<&mut impl Rng>) -> UpstreamQuery {
        let random_case = random_case.map(|rng| {
            let mut question: Box<[u8]> = key.question().into();
            randomize_case(&mut question, key.name().len(), rng);
            question
        });
        UpstreamQuery { key, random_case }
    }

    /// The key of the question that it asks.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// The key of the question that it asked, without a copy.
    pub(super) fn into_key(self) -> Key {
        self.key
    }

    /// True if this is the question section that was sent, letter by letter if its case is random.
    #[inline]
    pub(super) fn has_sent(&self, question: &[u8], random_case: bool) -> bool {
        match self.random_case.as_deref().filter(|_| random_case) {
            Some(sent) => *question == *sent,
            None => is_question(question, self.key.question()),
        }
    }

    /// The most octets of the query.
    pub(super) fn len(&self) -> usize {
        HEADER_LEN + self.key.question().len() + OPT_LEN
    }

    /// Writes the query: an id of its own, EDNS of this hop (RFC 6891 §6.1.1).
    pub(super) fn write(&self, id: u16, form: Form, out: &mut Vec<u8>) {
        // AD asks for the upstream's AD where DO is not set (RFC 6840 §5.7).
        let ad_cd = 0x20 | u8::from(self.key.checking_disabled()) << 4;
        let [i0, i1] = id.to_be_bytes();
        out.extend([i0, i1, 0x01, ad_cd, 0, 1, 0, 0, 0, 0, 0, u8::from(form.edns)]);
        let random_case = self.random_case.as_deref().filter(|_| form.random_case);
        out.extend(random_case.unwrap_or(self.key.question()));
        if form.edns {
            put_opt(out, UDP_PAYLOAD as u16, Rcode::NOERROR, self.key.dnssec_ok(), &[]);
        }
    }
}

/// Random letter case for the letters of a name (draft-vixie-dnsext-dns0x20).
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

    const FORM: Form = Form { edns: true, random_case: true };
    const WITHOUT_EDNS: Form = Form { edns: false, random_case: true };

    fn attempt(server: u32, id: u16) -> Attempt {
        let at = Expected { port: PortId { server: ServerId(server), number: 7 }, id };
        Attempt { at, sent: Nanos::SECOND, form: FORM, expired: false }
    }

    #[test]
    fn tcp_keeps_what_was_done_over_udp_and_goes_back_to_it() {
        let mut state = State::Udp(Udp::default());
        let udp = state.udp().unwrap();
        udp.try_server(ServerId(3));
        udp.try_server(ServerId(3));
        udp.attempts.push(attempt(3, 9));
        assert!(udp.has_asked(ServerId(3)) && udp.tried.len() == 1 && udp.times(ServerId(3)) == 1);
        assert!(state.return_to_udp().is_none());
        let begun = Arc::new(AtomicBool::new(false));
        let cause = TcpCause::Truncated;
        assert!(state.go_over_to_tcp(ServerId(3), cause, Arc::clone(&begun)));
        assert!(!state.go_over_to_tcp(ServerId(4), cause, Arc::default()));
        assert_eq!(state.why_unanswered(), Failure::Overload);
        begun.store(true, Ordering::Relaxed);
        assert_eq!(state.why_unanswered(), Failure::Timeout);
        assert_eq!(state.attempts()[0].at.id, 9);
        assert!(
            state.servers().all(|server| server == ServerId(3)) && state.servers().count() == 3
        );
        assert_eq!(state.return_to_udp(), Some((ServerId(3), cause)));
        assert!(matches!(&state, State::Udp(udp) if udp.sent(attempt(3, 9).at).is_some()));
        assert!(state.udp().unwrap().sent(attempt(3, 10).at).is_none());
    }

    #[test]
    fn who_waits_for_another_worker_has_asked_nobody() {
        let mut state = State::Elsewhere;
        assert!(state.udp().is_none() && state.attempts().is_empty());
        assert!(
            !state.go_over_to_tcp(ServerId(0), TcpCause::Truncated, Arc::default())
                && state.return_to_udp().is_none()
        );
        assert!(state.into_fallback().is_none());
    }

    #[test]
    fn a_server_that_dislikes_edns_counts_as_fresh() {
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
    fn a_query_says_what_is_asked_and_what_may_come_back() {
        let query = UpstreamQuery::new(key("a.test", true), None::<&mut StdRng>);
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
        let query = UpstreamQuery::new(key(name, false), Some(&mut StdRng::seed_from_u64(1)));
        let mut out = Vec::new();
        query.write(0, WITHOUT_EDNS, &mut out);
        let sent = &out[12..];
        assert!(query.has_sent(sent, true) && !query.has_sent(&sent.to_ascii_lowercase(), true));
        assert!(query.has_sent(&sent.to_ascii_lowercase(), false));
        assert!(sent.eq_ignore_ascii_case(query.key().question()));
        let mut out = Vec::new();
        query.write(0, Form { edns: false, random_case: false }, &mut out);
        assert_eq!(out[12..], *query.key().question());
    }
}
