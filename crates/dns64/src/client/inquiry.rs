//! State machine of one client query. Each step is the next upstream query or the reply.
//!
//! ```text
//! begin ─► step ─► Ask(question) ─► the caller resolves it ─► learn ─┐
//!           ▲  └─► Reply ─► write                                    │
//!           └────────────────────────────────────────────────────────┘
//! ```
//!
//! This module uses no sockets, no clock and no cache. The server resolves questions asynchronously, and
//! [`crate::walk`] resolves them synchronously.

use std::net::IpAddr;

use dnssec::Security;
use smallvec::smallvec;
use wire::rcode::Rcode;
use wire::view::{CLASS_IN, rtype};

use crate::client::query::Query;
use crate::client::reply::{COOKIE_LEN, ReplyFrame, is_stale, local_outcome};
use crate::name::{KeyBuf, LowerName};
use crate::resolver::answer::AnswerKind;
use crate::resolver::outcome::{CachedAnswer, Failure, Outcome};
use crate::translation::decide::{self, Next, Outcomes, Plan, Question, Reply};
use crate::translation::decision::Decision;
use crate::translation::local::{self, Local, LocalAnswer};
use crate::translation::policy::{Policy, Rules};
use crate::transport::Transport;

/// A client query to which no reply has been sent yet.
#[derive(Clone, Debug)]
pub(crate) struct Inquiry {
    client: IpAddr,
    frame: ReplyFrame,
    /// The question to resolve. If the queried name is in the reverse tree of a prefix, this question is for the target
    /// of the CNAME record that is synthesized for this name.
    question: Question,
    /// Replies to send if the name in `question` has no records. Present only if the queried name is a local alias of
    /// that name.
    alias: Option<Box<NegativeReplies>>,
    local: Option<Box<LocalAnswer>>,
    /// Outcomes of the upstream queries so far, in the order of the queries.
    known: Outcomes,
    /// Sequence of upstream queries that was planned when the current upstream query was sent. `None` before the
    /// first upstream query.
    waits_by: Option<Plan>,
    /// True if the state was reset because the rules changed and require other upstream queries.
    restarted: bool,
    /// Progress of a repeated upstream query.
    again: Repeat,
}

/// Progress of a repeated upstream query. At most one failed query is repeated per client query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    NotYet,
    /// The query was repeated and has no answer yet.
    Asked,
    Answered,
}

impl Repeat {
    /// Returns the progress of the repeated query after an upstream answer has arrived.
    fn answered(self) -> Repeat {
        if self == Repeat::Asked { Repeat::Answered } else { self }
    }
}

/// Replies to a PTR query for a local alias with a target that has no records: one if the target does not exist
/// (NXDOMAIN), and one for NODATA.
#[derive(Clone, Debug)]
struct NegativeReplies {
    name_error: LocalAnswer,
    no_data: LocalAnswer,
}

/// The next step of a client query.
#[derive(Clone, Debug)]
pub(crate) enum Step<'a> {
    /// Resolve this question, and pass the outcome to [`Inquiry::add_outcome`].
    Ask(KeyBuf),
    /// Call [`Inquiry::forget_failure`], then resolve this question again.
    Repeat(KeyBuf),
    /// Send this reply, which [`Inquiry::write`] encodes.
    Reply(Reply<'a>),
}

impl Inquiry {
    /// Returns the initial state of a client query to which `rules` apply. `cookie` is the cookie option for the
    /// reply.
    pub(crate) fn begin(
        query: &Query<'_>,
        transport: Transport,
        cookie: Option<[u8; COOKIE_LEN]>,
        rules: &Rules<'_>,
    ) -> Inquiry {
        let question = query.to_question();
        let local = question.find_local(rules);
        let frame = ReplyFrame::new(query, transport, cookie);
        Inquiry::new(frame, question, local, Outcomes::new(), rules.client)
    }

    /// Returns the state of a client query from `client`. `known` contains the outcomes of the first upstream queries.
    pub(crate) fn new(
        frame: ReplyFrame,
        mut question: Question,
        local: Local,
        known: Outcomes,
        client: IpAddr,
    ) -> Inquiry {
        let (alias, local) = match local {
            Local::No => (None, None),
            Local::Alias(alias) => {
                let name_error = alias.denial(Rcode::NXDOMAIN);
                let no_data = alias.denial(Rcode::NOERROR);
                question.name = alias.target;
                (Some(Box::new(NegativeReplies { name_error, no_data })), None)
            }
            Local::Answer(answer) => (None, Some(Box::new(answer))),
        };
        Inquiry {
            client,
            frame,
            question,
            alias,
            local,
            known,
            waits_by: None,
            restarted: false,
            again: Repeat::NotYet,
        }
    }

    /// Returns the query and its answers, from which the reply is written.
    pub(crate) fn source(&self) -> ReplySource<'_> {
        ReplySource {
            frame: &self.frame,
            question: &self.question,
            is_alias: self.is_alias(),
            known: &self.known,
        }
    }

    /// Returns the client's address, which selects the policy.
    pub(crate) fn client(&self) -> IpAddr {
        self.client
    }

    /// Returns the name to resolve first. This name selects the upstreams.
    pub(crate) fn name(&self) -> &LowerName {
        &self.question.name
    }

    /// True if the queried name is a local alias of a different name.
    pub(crate) fn is_alias(&self) -> bool {
        self.alias.is_some()
    }

    /// True if no upstream query for this client query has been answered yet.
    pub(crate) fn is_new(&self) -> bool {
        self.known.is_empty() && !self.restarted && self.again == Repeat::NotYet
    }

    /// True if the client query uses an expired answer (RFC 8767).
    pub(crate) fn is_stale(&self) -> bool {
        is_stale(&self.known)
    }

    /// True if a reply is possible without an answer to `asked`, the question of the last step. This is the case if
    /// `asked` is an AAAA query for the target of an HTTPS or SVCB record with address hints.
    pub(crate) fn is_optional(&self, asked: &KeyBuf) -> bool {
        self.question.has_hints() && asked.qtype() == rtype::AAAA
    }

    /// True if the client query has already waited for upstreams without success: a query timed
    /// out, an answer was malformed, or a stale answer was used.
    pub(crate) fn has_waited_before(&self) -> bool {
        let in_vain = |outcome: &Outcome| match outcome {
            Outcome::Answered(kept) => kept.stale,
            Outcome::Failed(failure) => {
                matches!(failure, Failure::Timeout | Failure::Malformed)
            }
        };
        self.known.iter().any(in_vain)
    }

    /// Returns the next step of the client query. It depends on the outcomes of the upstream queries so far.
    #[inline]
    pub(crate) fn step<'a>(&'a self, rules: &Rules<'_>) -> Step<'a> {
        if let Some(answer) = &self.local {
            return Step::Reply(Reply::Local(answer));
        }
        let may_ask_again = self.again == Repeat::NotYet;
        match decide::next(&self.question, rules.policy, rules.mode, &self.known, may_ask_again) {
            Next::Ask(name, qtype) => Step::Ask(self.question.key(name, qtype)),
            Next::Probe(name) => {
                Step::Ask(KeyBuf::probe(name, self.question.qclass, self.question.dnssec_ok))
            }
            Next::Repeat(name) => Step::Repeat(self.question.key(name, rtype::AAAA)),
            Next::Reply(reply) => {
                if let Some(target) = self.open_target(&reply, rules) {
                    return Step::Ask(target);
                }
                if let Some(denial) = self.denial(&reply) {
                    return Step::Reply(Reply::Local(denial));
                }
                Step::Reply(reply)
            }
        }
    }

    /// Returns the AAAA question that must be resolved before the reply, or `None` if there is none. The question is
    /// for the target of an HTTPS or SVCB record with address hints.
    #[inline]
    fn open_target(&self, reply: &Reply<'_>, rules: &Rules<'_>) -> Option<KeyBuf> {
        let has_hints = self.question.has_hints();
        if has_hints { self.open_target_of_hints(reply, rules) } else { None }
    }

    #[cold]
    fn open_target_of_hints(&self, reply: &Reply<'_>, rules: &Rules<'_>) -> Option<KeyBuf> {
        let target = self.frame.open_target(reply, rules, &self.known)?;
        Some(self.question.key(target.wire(), rtype::AAAA))
    }

    /// Returns the reply to a PTR query for a local alias with a target that has no records (RFC 6147 §5.3.1).
    fn denial(&self, reply: &Reply<'_>) -> Option<&LocalAnswer> {
        let denials = self.alias.as_deref().filter(|_| self.question.qtype == rtype::PTR)?;
        match reply {
            Reply::Pass { aliases, last, .. }
                if !aliases.is_empty() || last.answer.answer_count() > 0 =>
            {
                None
            }
            Reply::Pass { last, .. } => match last.answer.rcode() {
                Rcode::NXDOMAIN => Some(&denials.name_error),
                Rcode::NOERROR => Some(&denials.no_data),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the question to be resolved in parallel with the question `asked`. If the policy permits it, an A query
    /// is sent in parallel with the first AAAA query (RFC 6147 §5.1.8). After a SERVFAIL without an extended error, the
    /// query is repeated with CD set (a probe), and an A query is sent in parallel with the probe. In sequence, these
    /// two queries would take longer than a client waits.
    pub(crate) fn parallel_question(&self, asked: &KeyBuf, policy: &Policy) -> Option<KeyBuf> {
        if asked.is_probe() {
            return Some(self.question.key(asked.name(), rtype::A));
        }
        let wanted = self.is_new() && policy.parallel && self.question.may_synthesize(policy);
        wanted.then(|| self.question.key(self.question.name.wire(), rtype::A))
    }

    /// Returns the maximum age, in seconds, of a cached answer to the question of the last step. The answer to a probe
    /// (a failed query that is repeated with CD set) must not be older than the failure. Otherwise, after a zone has
    /// become unreachable, an answer from an earlier time would make the zone appear bogus.
    #[inline]
    pub(crate) fn max_age(&self, asked: &KeyBuf) -> u32 {
        if !asked.is_probe() {
            return if self.again == Repeat::Asked { 0 } else { u32::MAX };
        }
        self.known.last().and_then(Outcome::kept).map_or(0, CachedAnswer::since_failure)
    }

    /// Discards the outcomes of the last failed question and of its probe (the same question with CD set).
    /// [`Inquiry::step`] then returns the question again.
    pub(crate) fn forget_failure(&mut self) {
        self.known.truncate(self.known.len().saturating_sub(2));
        self.again = Repeat::Asked;
    }

    /// Adds the outcome of the last step's question.
    pub(crate) fn add_outcome(&mut self, outcome: Outcome) {
        self.again = self.again.answered();
        self.known.push(outcome);
    }

    /// True if the question that [`Inquiry::step`] returns may have a local answer ([`Inquiry::local_target`]). Such a
    /// question is for the target of a service record, or of an alias that upstreams did not follow.
    #[inline]
    pub(crate) fn may_have_targets(&self) -> bool {
        let is_open = |outcome: &Outcome| {
            outcome.kept().is_some_and(|kept| kept.answer.kind() == AnswerKind::Unfinished)
        };
        self.known.iter().any(is_open) || self.question.has_hints()
    }

    /// Returns the local answer to a question for the target of an alias or service record, for example `localhost`
    /// (RFC 6761 §6, RFC 7686 §2). `rules_of` returns the rules for a name, because the target can belong to a
    /// different forward rule (`[[forward]]`). If the queried name is in the reverse tree of a prefix, the target is
    /// always queried upstream (RFC 6147 §5.3.1).
    #[cold]
    pub(crate) fn local_target<'r>(
        &self,
        asked: &KeyBuf,
        rules_of: impl FnOnce(&LowerName) -> Rules<'r>,
    ) -> Option<Outcome> {
        if asked.name() == self.question.name.wire() || self.is_alias() {
            return None;
        }
        let name = LowerName::from_wire(asked.name());
        let rules = rules_of(&name);
        match local::find_local(&name, asked.qtype(), &rules) {
            Local::Answer(answer) if self.question.qclass == CLASS_IN => {
                Some(local_outcome(asked.question(), &answer, &rules))
            }
            _ => None,
        }
    }

    /// Records the rules under which the question of the last step is being resolved.
    pub(crate) fn wait(&mut self, rules: &Rules<'_>) {
        self.waits_by = Some(self.question.plan(rules.policy, rules.mode));
    }

    /// Adds the outcome of the question for which the client query has waited. `rules` are the rules that apply from
    /// now on. If the previous rules required different upstream queries, all outcomes are discarded, because they
    /// belong to other questions. Reusable outcomes are still in the cache.
    pub(crate) fn resume(&mut self, outcome: Outcome, rules: &Rules<'_>) {
        let plan = self.question.plan(rules.policy, rules.mode);
        if self.waits_by.is_some_and(|before| before != plan) {
            self.known.clear();
            self.restarted = true;
            self.again = self.again.answered();
        } else {
            self.add_outcome(outcome);
        }
    }

    /// Ends the client query with a failure. All outcomes so far are discarded, so that no record is
    /// synthesized for a name that may have AAAA records.
    pub(crate) fn give_up(&mut self, failure: Failure) {
        self.known = smallvec![Outcome::Failed(failure)];
    }
}

/// A client query and the upstream answers to it, from which its reply is written.
#[derive(Clone, Copy)]
pub(crate) struct ReplySource<'a> {
    /// Parts that all replies to the query have in common.
    pub frame: &'a ReplyFrame,
    /// The question that was resolved.
    pub question: &'a Question,
    /// True if the queried name is a local alias of the name in `question`.
    pub is_alias: bool,
    /// Outcomes of the upstream queries, in the order of the queries.
    pub known: &'a [Outcome],
}

impl ReplySource<'_> {
    /// Returns the name and the type of the client query.
    pub(crate) fn asked(&self) -> (LowerName, u16) {
        self.frame.asked()
    }

    /// Returns the decision that led to a reply.
    pub(crate) fn decision(&self, reply: &Reply<'_>, policy: &Policy) -> Decision {
        match Decision::from_reply(self.question, policy, reply) {
            Decision::PassedOn if self.is_alias => Decision::Pointer,
            decision => decision,
        }
    }

    /// True if an expired answer is used (RFC 8767).
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        is_stale(self.known)
    }

    /// Returns the worst result of the DNSSEC validation of all answers, or `None` if none of them was validated.
    pub(crate) fn security(&self) -> Option<Security> {
        self.known.iter().filter_map(Outcome::security).max()
    }

    /// Writes a reply.
    #[inline]
    pub(crate) fn write(&self, out: &mut Vec<u8>, reply: &Reply<'_>, rules: &Rules<'_>) {
        let alias = self.is_alias.then_some(&self.question.name);
        self.frame.write(out, reply, rules, alias, self.known);
    }
}

#[cfg(test)]
mod tests {
    use wire::view::rtype::{A, AAAA};

    use super::*;
    use crate::client::query::Received;
    use crate::testing::{TestAnswer, said};
    use crate::translation::policy::Mode;

    /// Begins a query for the A records of `a.test`.
    fn begin(rules: &Rules<'_>) -> Inquiry {
        let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\x04test\0\0\x01\0\x01";
        let Received::Query(query) = Received::read(query) else { panic!("a query") };
        Inquiry::begin(&query, Transport::Udp, None, rules)
    }

    /// Returns the type of the next upstream query, or `None` if the reply is ready.
    fn asks(inquiry: &Inquiry, rules: &Rules<'_>) -> Option<u16> {
        match inquiry.step(rules) {
            Step::Ask(key) | Step::Repeat(key) => Some(key.qtype()),
            Step::Reply(_) => None,
        }
    }

    /// Returns the number of records in the reply, and true if A records were withheld.
    fn given(inquiry: &Inquiry, rules: &Rules<'_>) -> (usize, bool) {
        match inquiry.step(rules) {
            Step::Reply(Reply::Pass { last, withheld, .. }) => {
                (last.answer.answer_count(), withheld.is_some())
            }
            Step::Reply(Reply::Empty { withheld, .. }) => (0, withheld.is_some()),
            other => panic!("{other:?}"),
        }
    }

    fn denied() -> TestAnswer {
        said("a.test", AAAA).nodata(3_600)
    }

    fn address() -> TestAnswer {
        said("a.test", A).a("a.test", 60, "8.8.8.8")
    }

    /// The rules change during the wait, after a reload or because the client moves to a different group.
    #[test]
    fn answers_obtained_under_other_rules_are_discarded() {
        let policy = |filter_a: bool| Policy { filter_a, ..Policy::default() };
        let (on, off) = (policy(true), policy(false));
        let client = IpAddr::from([127, 0, 0, 1]);
        let (on, off) = (Rules::for_all_names(&on, client), Rules::for_all_names(&off, client));

        // NODATA for AAAA does not apply to A.
        let mut inquiry = begin(&on);
        assert!(inquiry.is_new() && asks(&inquiry, &on) == Some(AAAA));
        inquiry.wait(&on);
        inquiry.resume(denied().kept(), &off);
        assert_eq!(asks(&inquiry, &off), Some(A));
        assert!(!inquiry.is_new(), "an upstream query was sent for it");
        inquiry.wait(&off);
        inquiry.resume(address().kept(), &off);
        assert_eq!(given(&inquiry, &off), (1, false));

        // Data for A does not apply to AAAA.
        let mut inquiry = begin(&off);
        assert_eq!(asks(&inquiry, &off), Some(A));
        inquiry.wait(&off);
        inquiry.resume(address().kept(), &on);
        assert_eq!(asks(&inquiry, &on), Some(AAAA));
        inquiry.wait(&on);
        inquiry.resume(denied().kept(), &on);
        assert_eq!(asks(&inquiry, &on), Some(A));
        inquiry.add_outcome(address().kept());
        assert_eq!(given(&inquiry, &on), (0, true));
    }

    /// A probe that one mode needs is not sent in a different mode.
    #[test]
    fn changed_mode_restarts_same_mode_continues() {
        let policy = Policy { filter_a: true, ..Policy::default() };
        let strict = Rules::for_all_names(&policy, IpAddr::from([127, 0, 0, 1]));
        let other = Rules { mode: Mode::NodataOnly, ..strict };
        let failed = || said("a.test", AAAA).rcode(2).kept();
        for (after, asked) in [(strict, A), (other, AAAA)] {
            let mut inquiry = begin(&strict);
            inquiry.add_outcome(failed());
            inquiry.wait(&strict);
            // The probe fails as well.
            inquiry.resume(failed(), &after);
            assert_eq!(asks(&inquiry, &after), Some(asked));
        }
    }
}
