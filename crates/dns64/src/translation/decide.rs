//! The decision of RFC 6147 §5.1: what the answers so far mean, and what to ask next. No I/O, no
//! clock.
//!
//! ```text
//!                 ┌────────────── alias without its end: ask AAAA of the end ─┐
//!                 ▼                                                           │
//! AAAA query ─► AAAA answer ─► real AAAA records ─► pass (excluded ones stripped)
//!                 ├─► NXDOMAIN ─► pass
//!                 ├─► SERVFAIL that may be bogus ─► probe with CD ─► there is something ─► SERVFAIL
//!                 │                                                  └─► much later: ask AAAA again
//!                 └─► none, all excluded, error, timeout ─► ask A of the end of the aliases
//!                                                             ├─► A records ─► synthesize
//!                                                             └─► none ─► a reply based on that
//! ```
//!
//! A client that is to use IPv6 only (`filter-a`) gets A records where this leads to no AAAA records:
//!
//! ```text
//! A query ─► as above for AAAA ─► AAAA records, real or synthesized ─► no data
//!                              └─► none ─► ask A, if that has not been done ─► pass
//! ```
//!
//! [`next`] is called anew with all answers known so far; it holds no state of its own.

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::edns::ede;
use wire::rcode::Rcode;
use wire::view::{CLASS_IN, rtype};

use crate::name::LowerName;
use crate::resolver::answer::{Answer, AnswerKind, MAX_ALIASES};
use crate::resolver::outcome::{Failure, Kept, Outcome};
use crate::translation::local::LocalAnswer;

use crate::translation::policy::{Mode, Policy, TTL_WITHOUT_SOA};

/// What a client asks, as far as the decision needs it.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The name that is asked for.
    pub name: LowerName,
    /// The type that is asked for (QTYPE).
    pub qtype: u16,
    /// The class that is asked for (QCLASS).
    pub qclass: u16,
    /// DO: the client wants signatures.
    pub dnssec_ok: bool,
    /// CD: the client validates for itself.
    pub checking_disabled: bool,
    /// RD: the client wants recursion.
    pub recursion_desired: bool,
}

/// What is to be done next.
///
/// Names are in wire format, lower case.
#[derive(Clone, Debug)]
pub(crate) enum Next<'a> {
    /// Ask upstream for this name and type, as the client asks.
    Ask(&'a [u8], u16),
    /// Ask upstream for the AAAA records of this name with CD set: only to learn whether validation
    /// has rejected them.
    Probe(&'a [u8]),
    /// Ask upstream for the AAAA records of this name again, not from the cache: the probe that was
    /// answered last is younger than the failure, so the upstream may have recovered between them.
    Again(&'a [u8]),
    /// Nothing more is needed: this is the reply.
    Reply(Reply<'a>),
}

/// Why A records were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The name has no AAAA records.
    NoData,
    /// An error of the upstream.
    Rcode,
    /// No answer in time.
    Timeout,
    /// Excluded AAAA records only.
    Excluded,
}

/// Why a client got no A records, or none made from them, though there are some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// No prefix carries the IPv4 addresses.
    Unmapped,
    /// The client asked for signatures and the answer has them.
    Signed,
    /// The client is to use the AAAA records, which it is given (`filter-a`).
    Filtered,
}

/// Which questions the rules ask for one of a client. The answers are known by their order alone, so
/// those to the questions of one plan say nothing by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The question as it is.
    AsItIs,
    /// For AAAA records and, as the mode says, for A records.
    Translated(Mode),
    /// For AAAA records, and A records where there are none (`filter-a`). With a mode, AAAA records
    /// are also made of A records.
    Filtered(Option<Mode>),
}

/// Which AAAA records of an answer are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strip {
    /// None: the answer is passed on as it is.
    Nothing,
    /// Those that the policy excludes.
    Excluded,
    /// IPv4-mapped ones.
    Mapped,
}

impl Strip {
    /// Whether a AAAA record is left out.
    pub(crate) fn hides(self, address: Ipv6Addr, policy: &Policy) -> bool {
        match self {
            Strip::Nothing => false,
            Strip::Excluded => policy.excludes(address),
            Strip::Mapped => address.to_ipv4_mapped().is_some(),
        }
    }
}

/// Answers on the way to the last one, of which only the aliases are repeated, in order. Failures
/// among them give nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way<'a> {
    aaaa: &'a [Outcome],
    a: &'a [Outcome],
}

impl<'a> Way<'a> {
    /// The answers, first those to the AAAA question.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &'a Kept> + use<'a> {
        self.aaaa.iter().chain(self.a).filter_map(Outcome::kept)
    }

    /// How many questions there were before the last one.
    pub(crate) fn len(&self) -> usize {
        self.aaaa.len() + self.a.len()
    }

    /// Whether the last question was the first one.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A reply, made from answers that it borrows.
#[derive(Clone, Debug)]
pub(crate) enum Reply<'a> {
    /// The aliases, and the last answer whole.
    Pass {
        /// Answers whose aliases lead to the last one.
        aliases: Way<'a>,
        /// The answer that is passed on.
        last: &'a Kept,
        /// Which AAAA records are left out.
        strip: Strip,
        /// Set if there were A records, which were not used.
        withheld: Option<Withheld>,
    },
    /// The aliases, those of `a`, and for each A record of `a` a AAAA record for each prefix that
    /// carries it.
    Synthesize {
        /// The answers before the one with the A records, to both questions.
        aliases: Way<'a>,
        /// The answer with the A records.
        a: &'a Kept,
        /// The highest TTL of the new records, seconds (RFC 6147 §5.1.7).
        ttl_limit: u32,
        /// Why A records were asked for.
        reason: Reason,
    },
    /// The aliases, those of `last`, and no data.
    Empty {
        /// Answers whose aliases are repeated.
        aliases: Way<'a>,
        /// The answer to the last question: its denial is repeated, or if it has data, a denial is
        /// made up that lasts as long.
        last: &'a Kept,
        /// Whether the records in whose place it stands would be made: then it lasts no longer than
        /// the prefixes are known.
        made: bool,
        /// Set if there were A records, which were not used.
        withheld: Option<Withheld>,
    },
    /// Nothing but an RCODE.
    Error {
        /// The RCODE of the reply.
        rcode: Rcode,
        /// Whose error it is.
        cause: Cause,
        /// The extended error that the upstream gave, or that we have found out.
        extended_error: Option<u16>,
    },
    /// An answer that needed no upstream.
    Local(&'a LocalAnswer),
}

/// Whose error a reply has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An upstream's own: it has answered so.
    Upstream,
    /// Validation has rejected what there is, as a probe has found out.
    Bogus,
    /// Ours: no prefix is known yet, or any more.
    NoPrefix,
    /// Ours: there is no answer to a question.
    Failed(Failure),
}

impl Reply<'_> {
    /// The RCODE that the client sees.
    pub(crate) fn rcode(&self) -> Rcode {
        match self {
            Reply::Pass { last, .. } => last.answer.rcode(),
            Reply::Synthesize { .. } | Reply::Empty { .. } => Rcode::NOERROR,
            Reply::Error { rcode, .. } => *rcode,
            Reply::Local(answer) => answer.rcode,
        }
    }

    /// True if the client does not get records because of a policy: excluded AAAA records (items 9 and
    /// 28), A records without a prefix, or A records that `filter-a` withholds.
    pub(crate) fn is_filtered(&self) -> bool {
        match self {
            Reply::Pass { strip, withheld, .. } => {
                *strip != Strip::Nothing || *withheld == Some(Withheld::Unmapped)
            }
            Reply::Empty { .. } => true,
            Reply::Synthesize { .. } | Reply::Error { .. } | Reply::Local(_) => false,
        }
    }

    /// Why A records that were there have not been used.
    pub(crate) fn withheld(&self) -> Option<Withheld> {
        match self {
            Reply::Pass { withheld, .. } | Reply::Empty { withheld, .. } => *withheld,
            Reply::Synthesize { .. } | Reply::Error { .. } | Reply::Local(_) => None,
        }
    }
}

impl Question {
    /// Whether DNS64 may change the answer (items 1, 21, 24: only AAAA of class IN, never with CD).
    pub(crate) fn may_translate(&self, policy: &Policy) -> bool {
        self.qtype == rtype::AAAA && self.may_have_aaaa_made(policy)
    }

    /// Whether AAAA records of its name may be made for who asks like this, whatever the type.
    fn may_have_aaaa_made(&self, policy: &Policy) -> bool {
        self.qclass == CLASS_IN
            && policy.translates()
            && !self.checking_disabled
            && (self.recursion_desired || !policy.recursive_only)
    }

    /// Whether its A records may be withheld.
    fn may_lose_a(&self, policy: &Policy) -> bool {
        policy.filter_a && self.qtype == rtype::A && self.qclass == CLASS_IN
    }

    /// Which questions are asked for it. `mode`: when A records are asked for.
    #[inline]
    pub(crate) fn plan(&self, policy: &Policy, mode: Mode) -> Plan {
        if self.may_lose_a(policy) {
            Plan::Filtered(self.may_have_aaaa_made(policy).then_some(mode))
        } else if self.may_translate(policy) {
            Plan::Translated(mode)
        } else {
            Plan::AsItIs
        }
    }
}

/// Decides what comes after the answers in `known`, which are in the order in which they were asked
/// for, by the same plan ([`Question::plan`]). `mode`: when A records are asked for. `may_ask_again`:
/// [`Next::Again`] may be returned, because no question has been asked again yet.
pub(crate) fn next<'a>(
    question: &'a Question,
    policy: &Policy,
    mode: Mode,
    known: &'a [Outcome],
    may_ask_again: bool,
) -> Next<'a> {
    let known = Known { answers: known, may_ask_again };
    let mode = match question.plan(policy, mode) {
        Plan::AsItIs => return untranslated(question, question.qtype, known.answers),
        Plan::Filtered(made) => return a_unless_aaaa(question, policy, made, known),
        Plan::Translated(mode) => mode,
    };
    match aaaa(question, policy, mode, known) {
        Aaaa::Open(next) => next,
        Aaaa::Alone { reply, .. } => Next::Reply(reply),
        Aaaa::WithA { reason, aaaa, a, .. } => {
            Next::Reply(conclude(question, policy, reason, &aaaa, &a))
        }
    }
}

/// The answers so far, and whether a question may be asked again.
#[derive(Clone, Copy)]
struct Known<'a> {
    answers: &'a [Outcome],
    may_ask_again: bool,
}

/// Asks for the name, follows its aliases (RFC 1034 §5.3.3) and passes the answer on.
fn untranslated<'a>(question: &'a Question, qtype: u16, known: &'a [Outcome]) -> Next<'a> {
    passed_on(question, qtype, known).map_or_else(|open| open, |(reply, _)| Next::Reply(reply))
}

/// The reply without translation and the number of answers for it, or the next question.
fn passed_on<'a>(
    question: &'a Question,
    qtype: u16,
    known: &'a [Outcome],
) -> Result<(Reply<'a>, usize), Next<'a>> {
    match follow(question.name.wire(), known) {
        Followed::Ask(name) => Err(Next::Ask(name, qtype)),
        Followed::Endless(answers) => Ok((error(Failure::AliasLoop), answers)),
        Followed::End(chain) => Ok((as_it_is(chain.way, chain.last), chain.with_last.len())),
    }
}

/// How far the way to the AAAA records of a name has been gone.
enum Aaaa<'a> {
    /// Another answer is needed.
    Open(Next<'a>),
    /// It has ended, and A records have not been asked for: with this reply to a AAAA query, after
    /// so many answers.
    Alone { reply: Reply<'a>, answers: usize },
    /// Both questions have been answered, with so many answers.
    WithA { reason: Reason, aaaa: Chain<'a>, a: Chain<'a>, answers: usize },
}

/// Goes the way to the AAAA records of the question's name, real or made.
fn aaaa<'a>(question: &'a Question, policy: &Policy, mode: Mode, known: Known<'a>) -> Aaaa<'a> {
    let Known { answers: known, may_ask_again } = known;
    let alone = |reply, answers| Aaaa::Alone { reply, answers };
    let aaaa = match follow(question.name.wire(), known) {
        Followed::Ask(name) => return Aaaa::Open(Next::Ask(name, rtype::AAAA)),
        Followed::Endless(answers) => return alone(error(Failure::AliasLoop), answers),
        Followed::End(chain) => chain,
    };
    let mut answers = aaaa.with_last.len();
    if may_be_bogus(aaaa.last, mode) {
        match known.get(answers) {
            None => return Aaaa::Open(Next::Probe(aaaa.end)),
            Some(found) if is_there(found) => {
                let is_younger = is_younger(found, aaaa.last);
                if is_younger && may_ask_again {
                    let asked = aaaa.last.kept().map_or(aaaa.end, |kept| kept.answer.name());
                    return Aaaa::Open(Next::Again(asked));
                }
                // A stale answer of which nothing new could be learnt goes on (RFC 8767 §5).
                if !is_younger || aaaa.last.kept().is_none_or(|kept| !kept.stale) {
                    return alone(bogus(), answers + 1);
                }
                answers += 1;
            }
            Some(_) => answers += 1,
        }
    }
    let reason = match reason(policy, &aaaa) {
        Ok(reason) => reason,
        Err(reply) => return alone(reply, answers),
    };
    let is_passed_on = match mode {
        Mode::Strict => false,
        Mode::NodataOnly => matches!(reason, Reason::Rcode | Reason::Timeout),
        Mode::Timeout => reason == Reason::Rcode,
    };
    if is_passed_on {
        return alone(as_it_is(aaaa.way, aaaa.last), answers);
    }
    let way = Way { aaaa: aaaa.with_last, a: &[] };
    match follow(aaaa.end, known.get(answers..).unwrap_or_default()) {
        Followed::Ask(name) => Aaaa::Open(Next::Ask(name, rtype::A)),
        Followed::Endless(_) => alone(error(Failure::AliasLoop), answers),
        Followed::End(chain) => {
            let answers = answers + chain.with_last.len();
            let a = Chain { way: Way { a: chain.way.aaaa, ..way }, ..chain };
            Aaaa::WithA { reason, aaaa, a, answers }
        }
    }
}

/// The A records of a name, for who would not be given AAAA records of it by the same answers.
/// `made`: AAAA records may be made, in this mode.
fn a_unless_aaaa<'a>(
    question: &'a Question,
    policy: &Policy,
    made: Option<Mode>,
    known: Known<'a>,
) -> Next<'a> {
    // The reply to a AAAA query, after so many answers, and to the A question, if it was asked for
    // this very name or has been answered with records: at the end of aliases that only the AAAA
    // question has, there may be none.
    let (given, answers, a) = if let Some(mode) = made {
        match aaaa(question, policy, mode, known) {
            Aaaa::Open(next) => return next,
            Aaaa::Alone { reply, answers } => (reply, answers, None),
            Aaaa::WithA { reason, aaaa, a, answers } => {
                let is_data = |kept: &Kept| kept.answer.kind() == AnswerKind::Data;
                let counts = aaaa.end == question.name.wire() || a.last.kept().is_some_and(is_data);
                let reply = counts.then(|| as_it_is(a.way, a.last));
                (conclude(question, policy, reason, &aaaa, &a), answers, reply)
            }
        }
    } else {
        match passed_on(question, rtype::AAAA, known.answers) {
            Ok((reply, answers)) => (reply, answers, None),
            Err(open) => return open,
        }
    };
    if let Reply::Error { cause: Cause::Failed(Failure::Overload | Failure::NoUpstream), .. } =
        given
    {
        // No upstream was asked, and none will be.
        return Next::Reply(given);
    }
    let filtered = match given {
        Reply::Synthesize { aliases, a, .. } => Some((aliases, a, true)),
        Reply::Pass { aliases, last, .. } if last.answer.kind() == AnswerKind::Data => {
            Some((aliases, last, false))
        }
        _ => None,
    };
    // Who validates would take "no data" without a proof for forged.
    let is_forgery =
        |last: &Kept| question.dnssec_ok && last.answer.is_signed() && !policy.break_dnssec;
    match (filtered, a) {
        (Some((aliases, last, made)), _) if !is_forgery(last) => {
            Next::Reply(Reply::Empty { aliases, last, made, withheld: Some(Withheld::Filtered) })
        }
        (_, Some(reply)) => Next::Reply(reply),
        (_, None) => {
            let rest = known.answers.get(answers..).unwrap_or_default();
            // Where AAAA records count that did not before, A records of the aliases' end have been
            // asked for: those of this name are wanted now, and copied into a reply about it.
            let is_its = |outcome: &Outcome| {
                outcome.kept().is_none_or(|kept| kept.answer.name() == question.name.wire())
            };
            let own = rest.iter().position(is_its).and_then(|at| rest.get(at..));
            untranslated(question, rtype::A, own.unwrap_or_default())
        }
    }
}

/// Whether an upstream may have rejected the AAAA records, or their absence, because of their
/// signatures, without saying so: then A records must not stand for them (RFC 6147 §5.1.2 has other
/// errors in mind). Asked with CD it hands them out.
fn may_be_bogus(aaaa: &Outcome, mode: Mode) -> bool {
    match aaaa.kept() {
        Some(kept) if kept.stale => kept.doubted.is_some(),
        Some(kept) => mode == Mode::Strict && kept.answer.is_unexplained(),
        None => false,
    }
}

/// True if an upstream has an answer to a probe. It was asked at the time of the failure or later.
fn is_there(probed: &Outcome) -> bool {
    probed.kept().is_some_and(|kept| !kept.stale && kept.answer.kind() != AnswerKind::Failed)
}

/// True if a probe was answered some time after the failure behind which it looks, so that the
/// upstream may have recovered meanwhile.
fn is_younger(probed: &Outcome, failed: &Outcome) -> bool {
    let since_failure = failed.kept().map_or(0, Kept::since_failure);
    probed.kept().is_some_and(|kept| kept.age < since_failure)
}

/// The reply for what validation has rejected.
fn bogus() -> Reply<'static> {
    Reply::Error {
        rcode: Rcode::SERVFAIL,
        cause: Cause::Bogus,
        extended_error: Some(ede::DNSSEC_BOGUS),
    }
}

/// Why A records are to be asked for after this end of the AAAA question, or the reply if they are
/// not (RFC 6147 §5.1.1 to §5.1.4).
fn reason<'a>(policy: &Policy, aaaa: &Chain<'a>) -> Result<Reason, Reply<'a>> {
    let kept = match aaaa.last {
        Outcome::Failed(Failure::Timeout | Failure::Malformed) => return Ok(Reason::Timeout),
        Outcome::Failed(failure) => return Err(error(*failure)),
        Outcome::Answered(kept) => kept,
    };
    let pass = |strip| Reply::Pass { aliases: aaaa.way, last: kept, strip, withheld: None };
    match kept.answer.kind() {
        AnswerKind::NxDomain => Err(pass(Strip::Nothing)),
        AnswerKind::Data => match hidden(&kept.answer, |v6| policy.excludes(v6)) {
            Hidden::None => Err(pass(Strip::Nothing)),
            Hidden::Some => Err(pass(Strip::Excluded)),
            Hidden::All => Ok(Reason::Excluded),
        },
        AnswerKind::NoData | AnswerKind::Unfinished => Ok(Reason::NoData),
        AnswerKind::Failed if kept.answer.is_rejected() => Err(as_it_is(aaaa.way, aaaa.last)),
        AnswerKind::Failed => Ok(Reason::Rcode),
    }
}

/// The reply when both questions have been answered: based on what came of the A question (RFC 6147
/// §5.1.6).
fn conclude<'a>(
    question: &Question,
    policy: &Policy,
    reason: Reason,
    aaaa: &Chain<'a>,
    a: &Chain<'a>,
) -> Reply<'a> {
    let found = match a.last {
        Outcome::Failed(failure) => return error(*failure),
        Outcome::Answered(kept) => kept,
    };
    let native = native(policy, reason, aaaa);
    // What the client would have got without DNS64.
    let denial = |withheld| match (reason, aaaa.last) {
        (Reason::NoData, Outcome::Answered(last)) => {
            Reply::Pass { aliases: aaaa.way, last, strip: Strip::Nothing, withheld }
        }
        (Reason::Excluded, _) => native.clone().unwrap_or(Reply::Empty {
            aliases: Way { aaaa: aaaa.with_last, a: &[] },
            last: found,
            made: false,
            withheld,
        }),
        _ => as_it_is(aaaa.way, aaaa.last),
    };
    match found.answer.kind() {
        AnswerKind::Data => {
            let denied = aaaa.last.kept();
            let signed =
                found.answer.is_signed() || denied.is_some_and(|kept| kept.answer.is_signed());
            if question.dnssec_ok && signed && !policy.break_dnssec {
                return denial(Some(Withheld::Signed));
            }
            if !addresses(&found.answer).any(|v4| policy.carries(v4)) {
                // "No data" would be kept, and be wrong once the prefix is known.
                return if policy.awaits_prefix {
                    let extended_error = Some(ede::NOT_READY);
                    let failed = || {
                        let cause = Cause::NoPrefix;
                        Reply::Error { rcode: Rcode::SERVFAIL, cause, extended_error }
                    };
                    native.unwrap_or_else(failed)
                } else {
                    denial(Some(Withheld::Unmapped))
                };
            }
            let soa = denied.and_then(|kept| kept.answer.negative_ttl().map(|ttl| kept.left(ttl)));
            let ttl_limit = soa.unwrap_or(TTL_WITHOUT_SOA);
            Reply::Synthesize { aliases: a.way, a: found, ttl_limit, reason }
        }
        AnswerKind::NoData | AnswerKind::Unfinished => denial(None),
        AnswerKind::NxDomain => native.unwrap_or_else(|| as_it_is(a.way, a.last)),
        AnswerKind::Failed => as_it_is(a.way, a.last),
    }
}

/// The excluded AAAA records after all, where the policy wants that rather than none; IPv4-mapped
/// ones never.
fn native<'a>(policy: &Policy, reason: Reason, aaaa: &Chain<'a>) -> Option<Reply<'a>> {
    let last = aaaa.last.kept().filter(|_| reason == Reason::Excluded && policy.fallback_native)?;
    let strip = match hidden(&last.answer, |v6| Strip::Mapped.hides(v6, policy)) {
        Hidden::None => Strip::Nothing,
        Hidden::Some => Strip::Mapped,
        Hidden::All => return None,
    };
    Some(Reply::Pass { aliases: aaaa.way, last, strip, withheld: None })
}

/// The IPv4 addresses that an answer to an A question gives.
pub(crate) fn addresses(answer: &Answer) -> impl Iterator<Item = Ipv4Addr> + '_ {
    answer
        .answers()
        .filter(|record| record.rtype == rtype::A)
        .filter_map(|record| <[u8; 4]>::try_from(record.data).ok())
        .map(Into::into)
}

/// The reply for what is no loss of DNS64's: the answers, or the error.
fn as_it_is<'a>(aliases: Way<'a>, last: &'a Outcome) -> Reply<'a> {
    match last {
        Outcome::Answered(kept) if kept.answer.kind() == AnswerKind::Failed => {
            let extended_error = kept.answer.extended_error();
            Reply::Error { rcode: kept.answer.rcode(), cause: Cause::Upstream, extended_error }
        }
        Outcome::Answered(last) => {
            Reply::Pass { aliases, last, strip: Strip::Nothing, withheld: None }
        }
        Outcome::Failed(failure) => error(*failure),
    }
}

fn error(failure: Failure) -> Reply<'static> {
    let cause = Cause::Failed(failure);
    Reply::Error { rcode: Rcode::SERVFAIL, cause, extended_error: None }
}

/// How many of an answer's AAAA records are left out.
enum Hidden {
    None,
    Some,
    All,
}

fn hidden(answer: &Answer, hides: impl Fn(Ipv6Addr) -> bool) -> Hidden {
    let (mut good, mut bad) = (false, false);
    for record in answer.answers().filter(|record| record.rtype == rtype::AAAA) {
        match <[u8; 16]>::try_from(record.data) {
            Ok(octets) if !hides(octets.into()) => good = true,
            _ => bad = true,
        }
    }
    match (good, bad) {
        (true, false) => Hidden::None,
        (true, true) => Hidden::Some,
        (false, _) => Hidden::All,
    }
}

/// Answers to one question, from alias to alias.
struct Chain<'a> {
    /// The answers before the last one, and those to the AAAA question if this one is for A.
    way: Way<'a>,
    /// The answers to this question.
    with_last: &'a [Outcome],
    last: &'a Outcome,
    /// The name at which the aliases end, in wire format, lower case.
    end: &'a [u8],
}

enum Followed<'a> {
    /// The next name to ask for.
    Ask(&'a [u8]),
    /// The aliases do not end, of so many answers.
    Endless(usize),
    End(Chain<'a>),
}

/// Follows the aliases that upstreams did not follow, and those at which answers were cut because
/// they lead to names of other upstreams (RFC 6147 §5.1.5, RFC 1034 §5.3.3).
fn follow<'a>(start: &'a [u8], known: &'a [Outcome]) -> Followed<'a> {
    let mut name = start;
    let mut asked = Vec::new();
    for (i, last) in known.iter().enumerate() {
        let end = match last.kept() {
            Some(kept) => kept.answer.target(),
            None => name,
        };
        if last.kept().is_none_or(|kept| kept.answer.kind() != AnswerKind::Unfinished) {
            let way = Way { aaaa: &known[..i], a: &[] };
            return Followed::End(Chain { way, with_last: &known[..=i], last, end });
        }
        asked.push(name);
        if asked.contains(&end) || asked.len() > MAX_ALIASES {
            return Followed::Endless(i + 1);
        }
        name = end;
    }
    Followed::Ask(name)
}

#[cfg(test)]
mod tests;
