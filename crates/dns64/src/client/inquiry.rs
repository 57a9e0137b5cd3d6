//! One query of a client, from its question to its reply: what it waits for next, and what it gets.
//!
//! ```text
//! begin ─► step ─► Ask(question) ─► somebody finds out ─► learn ─┐
//!           ▲  └─► Reply ─► write                                │
//!           └────────────────────────────────────────────────────┘
//! ```
//!
//! There are no sockets, no clock and no cache here: the server asks and waits in its own way,
//! [`crate::walk`] in another.

use std::net::IpAddr;

use smallvec::{SmallVec, smallvec};
use wire::rcode::Rcode;
use wire::view::{CLASS_IN, rtype};

use crate::client::query::Query;
use crate::client::reply::{COOKIE_LEN, ReplyFrame, is_stale, local_outcome};
use crate::name::{KeyBuf, LowerName};
use crate::resolver::outcome::{Failure, Kept, Outcome};
use crate::translation::decide::{self, Next, Plan, Question, Reply};
use crate::translation::decision::Decision;
use crate::translation::local::{self, Local, LocalAnswer};
use crate::translation::policy::{Policy, Rules};
use crate::transport::Transport;

/// Most queries need the answers to no more questions: AAAA and A.
const USUAL_QUESTIONS: usize = 2;

/// A query that has not been answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Inquiry {
    client: IpAddr,
    frame: ReplyFrame,
    /// What is asked; for a name in the reverse tree of a prefix the question for the name that it
    /// is a CNAME of.
    question: Question,
    /// Set if the question is for another name than the client's, of which that is an alias.
    alias: Option<Box<Denials>>,
    local: Option<Box<LocalAnswer>>,
    /// What is known so far, in the order in which it was asked for.
    known: SmallVec<[Outcome; USUAL_QUESTIONS]>,
    /// The plan by which it has asked what it waits for, once it has waited.
    waits_by: Option<Plan>,
    /// Whether it has begun anew, because the rules ask for something else by now.
    begun_anew: bool,
    /// Progress of asking a question again.
    again: Again,
}

/// A failed question is asked again at most once per query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    NotYet,
    /// Its answer is awaited.
    Asked,
    Answered,
}

impl Again {
    /// The progress once an answer has come.
    fn answered(self) -> Again {
        if self == Again::Asked { Again::Answered } else { self }
    }
}

/// The replies for an alias whose target has nothing.
#[derive(Clone, Debug)]
struct Denials {
    name_error: LocalAnswer,
    no_data: LocalAnswer,
}

/// What comes next for a query.
#[derive(Clone, Debug)]
pub(crate) enum Step<'a> {
    /// The answer to this question is needed: [`Inquiry::learn`] takes it.
    Ask(KeyBuf),
    /// The same, after [`Inquiry::forget_failure`].
    Again(KeyBuf),
    /// This is the reply: [`Inquiry::write`] writes it.
    Reply(Reply<'a>),
}

impl Inquiry {
    /// Begins with a client's query, to which `rules` apply. `cookie` is the cookie option for its
    /// reply.
    pub(crate) fn begin(
        query: &Query<'_>,
        transport: Transport,
        cookie: Option<[u8; COOKIE_LEN]>,
        rules: &Rules<'_>,
    ) -> Inquiry {
        let mut inquiry = Inquiry {
            client: rules.client,
            frame: ReplyFrame::new(query, transport, cookie),
            question: query.to_question(),
            alias: None,
            local: None,
            known: SmallVec::new(),
            waits_by: None,
            begun_anew: false,
            again: Again::NotYet,
        };
        if query.qclass == CLASS_IN {
            match local::look(&query.name, query.qtype, rules) {
                Local::No => {}
                Local::Alias(alias) => {
                    inquiry.alias = Some(Box::new(Denials {
                        name_error: alias.denial(Rcode::NXDOMAIN),
                        no_data: alias.denial(Rcode::NOERROR),
                    }));
                    inquiry.question.name = alias.target;
                }
                Local::Answer(answer) => inquiry.local = Some(Box::new(answer)),
            }
        }
        inquiry
    }

    /// The address of the client that has asked, which decides about its policy.
    pub(crate) fn client(&self) -> IpAddr {
        self.client
    }

    /// The name that upstreams are asked for first; it decides about the route.
    pub(crate) fn name(&self) -> &LowerName {
        &self.question.name
    }

    /// Whether the question is for another name than the client's, of which that is an alias.
    pub(crate) fn is_alias(&self) -> bool {
        self.alias.is_some()
    }

    /// Whether it needs no upstream.
    pub(crate) fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Whether no question has been answered for it yet.
    pub(crate) fn is_new(&self) -> bool {
        self.known.is_empty() && !self.begun_anew && self.again == Again::NotYet
    }

    /// Whether an answer that it leans on is served though its time is over (RFC 8767).
    pub(crate) fn is_stale(&self) -> bool {
        is_stale(&self.known)
    }

    /// True if the reply does not depend on this question, which [`Inquiry::step`] gave: it is for
    /// the AAAA records of the target of an address hint.
    pub(crate) fn is_optional(&self, asked: &KeyBuf) -> bool {
        matches!(self.question.qtype, rtype::HTTPS | rtype::SVCB) && asked.qtype() == rtype::AAAA
    }

    /// Whether it has waited for upstreams in vain: an answer came too late, or an old one had to
    /// do.
    pub(crate) fn has_waited_in_vain(&self) -> bool {
        let in_vain = |outcome: &Outcome| match outcome {
            Outcome::Answered(kept) => kept.stale,
            Outcome::Failed(failure) => {
                matches!(failure, Failure::Timeout | Failure::Malformed)
            }
        };
        self.known.iter().any(in_vain)
    }

    /// The name and the type that the client asks for.
    pub(crate) fn asked(&self) -> (LowerName, u16) {
        self.frame.asked()
    }

    /// What decided the reply that [`Inquiry::step`] gave.
    pub(crate) fn decision(&self, reply: &Reply<'_>, policy: &Policy) -> Decision {
        match Decision::of(&self.question, policy, reply) {
            Decision::PassedOn if self.is_alias() => Decision::Pointer,
            decision => decision,
        }
    }

    /// What comes next, by all that is known.
    #[inline]
    pub(crate) fn step<'a>(&'a self, rules: &Rules<'_>) -> Step<'a> {
        if let Some(answer) = &self.local {
            return Step::Reply(Reply::Local(answer));
        }
        let may_ask_again = self.again == Again::NotYet;
        match decide::next(&self.question, rules.policy, rules.mode, &self.known, may_ask_again) {
            Next::Ask(name, qtype) => Step::Ask(self.key(name, qtype)),
            Next::Probe(name) => {
                Step::Ask(KeyBuf::probe(name, self.question.qclass, self.question.dnssec_ok))
            }
            Next::Again(name) => Step::Again(self.key(name, rtype::AAAA)),
            Next::Reply(reply) => match self.open_target(&reply, rules) {
                Some(target) => Step::Ask(target),
                None => Step::Reply(self.denial(&reply).map_or(reply, Reply::Local)),
            },
        }
    }

    /// The question for the AAAA records of a target of address hints, if it must be answered first.
    #[inline]
    fn open_target(&self, reply: &Reply<'_>, rules: &Rules<'_>) -> Option<KeyBuf> {
        let has_hints = matches!(self.question.qtype, rtype::HTTPS | rtype::SVCB);
        if has_hints { self.open_target_of_hints(reply, rules) } else { None }
    }

    #[cold]
    fn open_target_of_hints(&self, reply: &Reply<'_>, rules: &Rules<'_>) -> Option<KeyBuf> {
        let target = self.frame.open_target(reply, rules, &self.known)?;
        Some(self.key(target.wire(), rtype::AAAA))
    }

    /// The reply to a question for a pointer whose alias would lead to nothing (RFC 6147 §5.3.1).
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

    /// The question that may be asked together with `asked`: A with the first one (RFC 6147
    /// §5.1.8), if the policy wants that; and A with the one that looks behind an unexplained
    /// SERVFAIL, because both after each other take longer than a client waits.
    pub(crate) fn companion(&self, asked: &KeyBuf, policy: &Policy) -> Option<KeyBuf> {
        if asked.is_probe() {
            return Some(self.key(asked.name(), rtype::A));
        }
        let wanted = self.is_new() && policy.parallel && self.question.may_translate(policy);
        wanted.then(|| self.key(self.question.name.wire(), rtype::A))
    }

    /// How old an answer to the question that [`Inquiry::step`] gave last may be, seconds. What a
    /// probe finds must be no older than the failure behind which it looks: what a zone said before
    /// it went down does not make it bogus.
    #[inline]
    pub(crate) fn max_age(&self, asked: &KeyBuf) -> u32 {
        if !asked.is_probe() {
            return if self.again == Again::Asked { 0 } else { u32::MAX };
        }
        self.known.last().and_then(Outcome::kept).map_or(0, Kept::since_failure)
    }

    /// Forgets the last question, which failed, and its probe: [`Inquiry::step`] asks it again.
    pub(crate) fn forget_failure(&mut self) {
        self.known.truncate(self.known.len().saturating_sub(2));
        self.again = Again::Asked;
    }

    /// Takes what became of the question that [`Inquiry::step`] gave last.
    pub(crate) fn learn(&mut self, outcome: Outcome) {
        self.again = self.again.answered();
        self.known.push(outcome);
    }

    /// Returns the local answer to a question that [`Inquiry::step`] gave for the target of an alias or
    /// of a service record, such as `localhost` (RFC 6761 §6, RFC 7686 §2). `rules_of` gives the rules
    /// for a name, because the target can belong to another `[[forward]]`. Targets of pointers are
    /// always queried upstream (RFC 6147 §5.3.1).
    #[inline]
    pub(crate) fn local_target<'r>(
        &self,
        asked: &KeyBuf,
        rules_of: impl FnOnce(&LowerName) -> Rules<'r>,
    ) -> Option<Outcome> {
        if self.is_new() || asked.name() == self.question.name.wire() || self.is_alias() {
            return None;
        }
        let name = LowerName::of_wire(asked.name());
        let rules = rules_of(&name);
        match local::look(&name, asked.qtype(), &rules) {
            Local::Answer(answer) if self.question.qclass == CLASS_IN => {
                Some(local_outcome(asked.question(), &answer, &rules))
            }
            _ => None,
        }
    }

    /// Notes by which rules it has asked the question that [`Inquiry::step`] gave last, now that it
    /// waits for the answer.
    pub(crate) fn wait(&mut self, rules: &Rules<'_>) {
        self.waits_by = Some(self.question.plan(rules.policy, rules.mode));
    }

    /// Takes what became of the question that it has waited for; `rules` apply from now on. Where
    /// they ask for something else than those before, it begins anew: what is known would be taken
    /// for answers to other questions. What of it is wanted is in the cache by now.
    pub(crate) fn resume(&mut self, outcome: Outcome, rules: &Rules<'_>) {
        let plan = self.question.plan(rules.policy, rules.mode);
        if self.waits_by.is_some_and(|before| before != plan) {
            self.known.clear();
            self.begun_anew = true;
            self.again = self.again.answered();
        } else {
            self.learn(outcome);
        }
    }

    /// Ends it with a failure, whatever is known: nothing is made up for records that may exist.
    pub(crate) fn give_up(&mut self, failure: Failure) {
        self.known = smallvec![Outcome::Failed(failure)];
    }

    /// Writes the reply that [`Inquiry::step`] gave.
    pub(crate) fn write(&self, out: &mut Vec<u8>, reply: &Reply<'_>, rules: &Rules<'_>) {
        let alias = self.is_alias().then_some(&self.question.name);
        self.frame.write(out, reply, rules, alias, &self.known);
    }

    /// Writes a reply that only says that TCP has a better one.
    pub(crate) fn write_truncated(&self, out: &mut Vec<u8>) {
        self.frame.write_truncated(out);
    }

    /// The key of a question for `name` (wire format, lower case) as the client asks.
    fn key(&self, name: &[u8], qtype: u16) -> KeyBuf {
        let question = &self.question;
        KeyBuf::of_wire(
            name,
            qtype,
            question.qclass,
            question.dnssec_ok,
            question.checking_disabled,
        )
    }
}

#[cfg(test)]
mod tests {
    use wire::view::rtype::{A, AAAA};

    use super::*;
    use crate::client::query::Received;
    use crate::testing::{Said, said};
    use crate::translation::policy::Mode;

    /// Begins with a query for the A records of `a.test`.
    fn begin(rules: &Rules<'_>) -> Inquiry {
        let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\x04test\0\0\x01\0\x01";
        let Received::Query(query) = Received::read(query) else { panic!("a query") };
        Inquiry::begin(&query, Transport::Udp, None, rules)
    }

    /// The type that is asked for next, if the reply is not there yet.
    fn asks(inquiry: &Inquiry, rules: &Rules<'_>) -> Option<u16> {
        match inquiry.step(rules) {
            Step::Ask(key) | Step::Again(key) => Some(key.qtype()),
            Step::Reply(_) => None,
        }
    }

    /// How many records the client is given, and whether A records were withheld.
    fn given(inquiry: &Inquiry, rules: &Rules<'_>) -> (usize, bool) {
        match inquiry.step(rules) {
            Step::Reply(Reply::Pass { last, withheld, .. }) => {
                (last.answer.answer_count(), withheld.is_some())
            }
            Step::Reply(Reply::Empty { withheld, .. }) => (0, withheld.is_some()),
            other => panic!("{other:?}"),
        }
    }

    fn denied() -> Said {
        said("a.test", AAAA).nodata(3_600)
    }

    fn address() -> Said {
        said("a.test", A).a("a.test", 60, "8.8.8.8")
    }

    /// A reload, or a client that moves to another group, while the query waits.
    #[test]
    fn what_other_rules_have_asked_for_is_no_answer() {
        let policy = |filter_a: bool| Policy { filter_a, ..Policy::default() };
        let (on, off) = (policy(true), policy(false));
        let client = IpAddr::from([127, 0, 0, 1]);
        let (on, off) = (Rules::of_all(&on, client), Rules::of_all(&off, client));

        // That there are no AAAA records says nothing of A records.
        let mut inquiry = begin(&on);
        assert!(inquiry.is_new() && asks(&inquiry, &on) == Some(AAAA));
        inquiry.wait(&on);
        inquiry.resume(denied().kept(), &off);
        assert_eq!(asks(&inquiry, &off), Some(A));
        assert!(!inquiry.is_new(), "something has been asked for it");
        inquiry.wait(&off);
        inquiry.resume(address().kept(), &off);
        assert_eq!(given(&inquiry, &off), (1, false));

        // Nor are A records AAAA records.
        let mut inquiry = begin(&off);
        assert_eq!(asks(&inquiry, &off), Some(A));
        inquiry.wait(&off);
        inquiry.resume(address().kept(), &on);
        assert_eq!(asks(&inquiry, &on), Some(AAAA));
        inquiry.wait(&on);
        inquiry.resume(denied().kept(), &on);
        assert_eq!(asks(&inquiry, &on), Some(A));
        inquiry.learn(address().kept());
        assert_eq!(given(&inquiry, &on), (0, true));
    }

    /// What is probed for in one mode is not asked for in another.
    #[test]
    fn another_mode_begins_anew_and_the_same_goes_on() {
        let policy = Policy { filter_a: true, ..Policy::default() };
        let strict = Rules::of_all(&policy, IpAddr::from([127, 0, 0, 1]));
        let other = Rules { mode: Mode::NodataOnly, ..strict };
        let failed = || said("a.test", AAAA).rcode(2).kept();
        for (after, asked) in [(strict, A), (other, AAAA)] {
            let mut inquiry = begin(&strict);
            inquiry.learn(failed());
            inquiry.wait(&strict);
            // The probe fails as well.
            inquiry.resume(failed(), &after);
            assert_eq!(asks(&inquiry, &after), Some(asked));
        }
    }
}
