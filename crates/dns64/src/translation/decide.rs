//! The decision of RFC 6147 §5.1: the meaning of the answers so far, and the next upstream query.
//! No I/O, no clock.
//!
//! ```text
//!                 ┌────────────── alias without its end: query AAAA of the end ─┐
//!                 ▼                                                             │
//! AAAA query ─► AAAA answer ─► native AAAA records ─► pass (excluded ones stripped)
//!                 ├─► NXDOMAIN ─► pass
//!                 ├─► SERVFAIL that may be bogus ─► probe with CD ─► there is data ─► SERVFAIL
//!                 │                                                  └─► much later: query AAAA again
//!                 └─► none, all excluded, error, timeout ─► query A of the end of the aliases
//!                                                             ├─► A records ─► synthesize
//!                                                             └─► none ─► a reply based on that answer
//! ```
//!
//! A client that uses only IPv6 (`filter-a`) gets A records if this leads to no AAAA records:
//!
//! ```text
//! A query ─► as above for AAAA ─► AAAA records, native or synthesized ─► NODATA
//!                              └─► none ─► query A, if not done before ─► pass
//! ```
//!
//! [`next`] is called after each answer, with all answers so far; it keeps no state.

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::edns::ede;
use wire::rcode::Rcode;
use wire::view::{CLASS_IN, rtype};

use crate::name::LowerName;
use crate::resolver::answer::{Answer, AnswerKind, MAX_ALIASES};
use crate::resolver::outcome::{CachedAnswer, Failure, Outcome};
use crate::translation::local::LocalAnswer;

use crate::translation::policy::{Mode, Policy, TTL_WITHOUT_SOA};

/// The parts of a client query that the decision depends on.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Name (QNAME).
    pub name: LowerName,
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
    /// DO bit: the client requests signatures.
    pub dnssec_ok: bool,
    /// CD bit: the client validates answers.
    pub checking_disabled: bool,
    /// RD bit: the client requests recursion.
    pub recursion_desired: bool,
}

/// The next step of a client query.
///
/// Names are in wire format, lower case.
#[derive(Clone, Debug)]
pub(crate) enum Next<'a> {
    /// Query an upstream for this name and type, with the client's flags.
    Ask(&'a [u8], u16),
    /// Query an upstream for the AAAA records of this name with CD set, only to find out if
    /// validation has rejected them.
    Probe(&'a [u8]),
    /// Query an upstream again for the AAAA records of this name, bypassing the cache. The last
    /// probe was answered some time after the failure, so the upstream may have recovered
    /// meanwhile.
    Repeat(&'a [u8]),
    /// Send this reply; no further upstream query is needed.
    Reply(Reply<'a>),
}

/// Reason for an A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The name has no AAAA records.
    NoData,
    /// The upstream responded with an error.
    Rcode,
    /// No upstream answered in time.
    Timeout,
    /// All AAAA records are excluded.
    Excluded,
}

/// Reason why existing A records are neither sent nor used for synthesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithheldReason {
    /// No prefix can embed the IPv4 addresses.
    Unmapped,
    /// The client requested signatures, and the answer is signed.
    Signed,
    /// The client gets AAAA records and has to use them (`filter-a`).
    Filtered,
}

/// The upstream queries that a client query needs under given rules. Answers are identified only by
/// their order, so answers obtained under one plan are meaningless under another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The question unchanged.
    Unchanged,
    /// AAAA records and, depending on the mode, A records.
    Translated(Mode),
    /// AAAA records, and A records if there are none (`filter-a`). With a mode, AAAA records are
    /// also synthesized from A records.
    Filtered(Option<Mode>),
}

/// AAAA records to be removed from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strip {
    /// None: the answer is forwarded unchanged.
    Nothing,
    /// Records excluded by the policy.
    Excluded,
    /// IPv4-mapped addresses.
    Mapped,
}

impl Strip {
    /// True if an AAAA record is removed.
    pub(crate) fn hides(self, address: Ipv6Addr, policy: &Policy) -> bool {
        match self {
            Strip::Nothing => false,
            Strip::Excluded => policy.excludes(address),
            Strip::Mapped => address.to_ipv4_mapped().is_some(),
        }
    }
}

/// Answers before the last one. Only their aliases are repeated, in order; failures among them
/// contribute nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AliasChain<'a> {
    aaaa: &'a [Outcome],
    a: &'a [Outcome],
}

impl<'a> AliasChain<'a> {
    /// Returns the answers, beginning with those to the AAAA query.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &'a CachedAnswer> + use<'a> {
        self.aaaa.iter().chain(self.a).filter_map(Outcome::kept)
    }

    /// Returns the number of upstream queries before the last one.
    pub(crate) fn len(&self) -> usize {
        self.aaaa.len() + self.a.len()
    }

    /// True if there was only one upstream query.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A reply, borrowing the answers that it consists of.
#[derive(Clone, Debug)]
pub(crate) enum Reply<'a> {
    /// The aliases, and the complete last answer.
    Pass {
        /// Answers with the aliases that lead to the last one.
        aliases: AliasChain<'a>,
        /// The answer to be forwarded.
        last: &'a CachedAnswer,
        /// AAAA records to be removed.
        strip: Strip,
        /// Set if there were A records that were not used.
        withheld: Option<WithheldReason>,
    },
    /// The aliases, the aliases in `a`, and synthesized AAAA records: one for each A record in `a`
    /// and each prefix that can embed it.
    Synthesize {
        /// The answers before the one with the A records, to both queries.
        aliases: AliasChain<'a>,
        /// The answer with the A records.
        a: &'a CachedAnswer,
        /// Maximum TTL of the synthesized records, seconds (RFC 6147 §5.1.7).
        ttl_limit: u32,
        /// Reason for the A query.
        reason: Reason,
    },
    /// The aliases, those of `last`, and no data.
    Empty {
        /// Answers from which the aliases are repeated.
        aliases: AliasChain<'a>,
        /// The answer to the last query. If it is negative, its SOA is repeated; if it has data, an
        /// SOA with the same lifetime is generated.
        last: &'a CachedAnswer,
        /// True if the reply replaces synthesized records: its TTL is then limited by the lifetime
        /// of the prefixes.
        synthesized: bool,
        /// Set if there were A records that were not used.
        withheld: Option<WithheldReason>,
    },
    /// Only an RCODE.
    Error {
        /// RCODE of the reply.
        rcode: Rcode,
        /// Origin of the error.
        cause: Cause,
        /// Extended error from the upstream or from this server.
        extended_error: Option<u16>,
    },
    /// An answer that needed no upstream.
    Local(&'a LocalAnswer),
}

/// Origin of an error in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An error response of the upstream.
    Upstream,
    /// Validation has rejected existing data, as shown by a probe.
    Bogus,
    /// No prefix is available, because none was announced yet or all have expired.
    NoPrefix,
    /// An upstream query failed.
    Failed(Failure),
}

impl Reply<'_> {
    /// Returns the RCODE of the reply.
    pub(crate) fn rcode(&self) -> Rcode {
        match self {
            Reply::Pass { last, .. } => last.answer.rcode(),
            Reply::Synthesize { .. } | Reply::Empty { .. } => Rcode::NOERROR,
            Reply::Error { rcode, .. } => *rcode,
            Reply::Local(answer) => answer.rcode,
        }
    }

    /// True if a policy withholds records from the client: excluded AAAA records (items 9 and 28),
    /// A records without a prefix, or A records removed by `filter-a`.
    pub(crate) fn is_filtered(&self) -> bool {
        match self {
            Reply::Pass { strip, withheld, .. } => {
                *strip != Strip::Nothing || *withheld == Some(WithheldReason::Unmapped)
            }
            Reply::Empty { .. } => true,
            Reply::Synthesize { .. } | Reply::Error { .. } | Reply::Local(_) => false,
        }
    }

    /// Returns the reason why existing A records were not used.
    pub(crate) fn withheld(&self) -> Option<WithheldReason> {
        match self {
            Reply::Pass { withheld, .. } | Reply::Empty { withheld, .. } => *withheld,
            Reply::Synthesize { .. } | Reply::Error { .. } | Reply::Local(_) => None,
        }
    }
}

impl Question {
    /// True if DNS64 may change the answer (items 1, 21, 24: only AAAA of class IN, never with CD).
    pub(crate) fn may_synthesize(&self, policy: &Policy) -> bool {
        self.qtype == rtype::AAAA && self.may_synthesize_aaaa(policy)
    }

    /// True if AAAA records of its name may be synthesized for a query with these flags, whatever
    /// the type.
    fn may_synthesize_aaaa(&self, policy: &Policy) -> bool {
        self.qclass == CLASS_IN
            && policy.synthesizes()
            && !self.checking_disabled
            && (self.recursion_desired || !policy.recursive_only)
    }

    /// True if its A records may be withheld.
    fn may_withhold_a(&self, policy: &Policy) -> bool {
        policy.filter_a && self.qtype == rtype::A && self.qclass == CLASS_IN
    }

    /// Returns the upstream queries that it needs. `mode` is the condition for A queries.
    #[inline]
    pub(crate) fn plan(&self, policy: &Policy, mode: Mode) -> Plan {
        if self.may_withhold_a(policy) {
            Plan::Filtered(self.may_synthesize_aaaa(policy).then_some(mode))
        } else if self.may_synthesize(policy) {
            Plan::Translated(mode)
        } else {
            Plan::Unchanged
        }
    }
}

/// Returns the next step after the answers in `known`, which are in the order of their queries and
/// belong to the same plan ([`Question::plan`]). `mode` is the condition for A queries. If
/// `may_ask_again` is true, no query was repeated yet, and [`Next::Repeat`] may be returned.
pub(crate) fn next<'a>(
    question: &'a Question,
    policy: &Policy,
    mode: Mode,
    known: &'a [Outcome],
    may_ask_again: bool,
) -> Next<'a> {
    let known = Known { answers: known, may_ask_again };
    let mode = match question.plan(policy, mode) {
        Plan::Unchanged => return without_synthesis(question, question.qtype, known.answers),
        Plan::Filtered(synthesized) => return a_unless_aaaa(question, policy, synthesized, known),
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

/// The answers so far, and the permission to repeat a query.
#[derive(Clone, Copy)]
struct Known<'a> {
    answers: &'a [Outcome],
    may_ask_again: bool,
}

/// Resolves the name with its aliases (RFC 1034 §5.3.3), and forwards the answer.
fn without_synthesis<'a>(question: &'a Question, qtype: u16, known: &'a [Outcome]) -> Next<'a> {
    passed_on(question, qtype, known).map_or_else(|open| open, |(reply, _)| Next::Reply(reply))
}

/// Returns the reply without synthesis and the number of answers used for it, or the next query.
fn passed_on<'a>(
    question: &'a Question,
    qtype: u16,
    known: &'a [Outcome],
) -> Result<(Reply<'a>, usize), Next<'a>> {
    match follow(question.name.wire(), known) {
        Followed::Ask(name) => Err(Next::Ask(name, qtype)),
        Followed::Endless(answers) => Ok((error(Failure::AliasLoop), answers)),
        Followed::End(chain) => {
            Ok((unchanged_reply(chain.earlier, chain.last), chain.with_last.len()))
        }
    }
}

/// Progress of the search for the AAAA records of a name.
enum Aaaa<'a> {
    /// Another answer is needed.
    Open(Next<'a>),
    /// The search ended without an A query, after `answers` answers, with this reply to an AAAA
    /// query.
    Alone { reply: Reply<'a>, answers: usize },
    /// The AAAA and the A query have been answered, with `answers` answers in all.
    WithA { reason: Reason, aaaa: Chain<'a>, a: Chain<'a>, answers: usize },
}

/// Searches for the AAAA records of the question's name, native or synthesized.
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
                    return Aaaa::Open(Next::Repeat(asked));
                }
                // If the probe gives no new information, a stale answer is still used (RFC 8767
                // §5).
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
        return alone(unchanged_reply(aaaa.earlier, aaaa.last), answers);
    }
    let earlier = AliasChain { aaaa: aaaa.with_last, a: &[] };
    match follow(aaaa.end, known.get(answers..).unwrap_or_default()) {
        Followed::Ask(name) => Aaaa::Open(Next::Ask(name, rtype::A)),
        Followed::Endless(_) => alone(error(Failure::AliasLoop), answers),
        Followed::End(chain) => {
            let answers = answers + chain.with_last.len();
            let a = Chain { earlier: AliasChain { a: chain.earlier.aaaa, ..earlier }, ..chain };
            Aaaa::WithA { reason, aaaa, a, answers }
        }
    }
}

/// Returns the A records of a name if an AAAA query with the same answers would result in no AAAA
/// records. `synthesized` is the mode of synthesis if AAAA records may be synthesized.
fn a_unless_aaaa<'a>(
    question: &'a Question,
    policy: &Policy,
    synthesized: Option<Mode>,
    known: Known<'a>,
) -> Next<'a> {
    // The reply to an AAAA query, the number of its answers, and the reply to the A query. The
    // latter counts only if it was for this very name or has records: the end of an alias chain
    // that only the AAAA answer contains may have no records.
    let (given, answers, a) = if let Some(mode) = synthesized {
        match aaaa(question, policy, mode, known) {
            Aaaa::Open(next) => return next,
            Aaaa::Alone { reply, answers } => (reply, answers, None),
            Aaaa::WithA { reason, aaaa, a, answers } => {
                let is_data = |kept: &CachedAnswer| kept.answer.kind() == AnswerKind::Data;
                let counts = aaaa.end == question.name.wire() || a.last.kept().is_some_and(is_data);
                let reply = counts.then(|| unchanged_reply(a.earlier, a.last));
                (conclude(question, policy, reason, &aaaa, &a), answers, reply)
            }
        }
    } else {
        match passed_on(question, rtype::AAAA, known.answers) {
            Ok((reply, answers)) => (reply, answers, None),
            Err(open) => return open,
        }
    };
    if let Reply::Error { cause: Cause::Failed(failure), .. } = given
        && matches!(failure, Failure::Overload | Failure::Unreachable | Failure::NoUpstream)
    {
        // No upstream was queried, and none will be.
        return Next::Reply(given);
    }
    let filtered = match given {
        Reply::Synthesize { aliases, a, .. } => Some((aliases, a, true)),
        Reply::Pass { aliases, last, .. } if last.answer.kind() == AnswerKind::Data => {
            Some((aliases, last, false))
        }
        _ => None,
    };
    // A validating client would treat NODATA without a proof as forged.
    let is_forgery =
        |last: &CachedAnswer| question.dnssec_ok && last.answer.is_signed() && !policy.break_dnssec;
    match (filtered, a) {
        (Some((aliases, last, synthesized)), _) if !is_forgery(last) => Next::Reply(Reply::Empty {
            aliases,
            last,
            synthesized,
            withheld: Some(WithheldReason::Filtered),
        }),
        (_, Some(reply)) => Next::Reply(reply),
        (_, None) => {
            let rest = known.answers.get(answers..).unwrap_or_default();
            // If AAAA records count that did not count before, the A records queried so far belong
            // to the end of the aliases. The A records of this name are needed now, because the
            // reply is about this name.
            let is_its = |outcome: &Outcome| {
                outcome.kept().is_none_or(|kept| kept.answer.name() == question.name.wire())
            };
            let own = rest.iter().position(is_its).and_then(|at| rest.get(at..));
            without_synthesis(question, rtype::A, own.unwrap_or_default())
        }
    }
}

/// True if an upstream may have rejected the AAAA records, or the proof of their absence, because
/// of their signatures, without an extended error. A records must not be used in their place then,
/// because RFC 6147 §5.1.2 means other errors. An upstream query with CD returns such records.
fn may_be_bogus(aaaa: &Outcome, mode: Mode) -> bool {
    match aaaa.kept() {
        Some(kept) if kept.stale => kept.doubted.is_some(),
        Some(kept) => mode == Mode::Strict && kept.answer.is_unexplained(),
        None => false,
    }
}

/// True if an upstream answered a probe, which was sent at the time of the failure or later.
fn is_there(probed: &Outcome) -> bool {
    probed.kept().is_some_and(|kept| !kept.stale && kept.answer.kind() != AnswerKind::Failed)
}

/// True if a probe was answered some time after the failure that it explains, so that the upstream
/// may have recovered meanwhile.
fn is_younger(probed: &Outcome, failed: &Outcome) -> bool {
    let since_failure = failed.kept().map_or(0, CachedAnswer::since_failure);
    probed.kept().is_some_and(|kept| kept.age < since_failure)
}

/// Returns the reply for data that validation has rejected.
fn bogus() -> Reply<'static> {
    Reply::Error {
        rcode: Rcode::SERVFAIL,
        cause: Cause::Bogus,
        extended_error: Some(ede::DNSSEC_BOGUS),
    }
}

/// Returns the reason for an A query after this result of the AAAA query, or the reply if none is
/// needed (RFC 6147 §5.1.1 to §5.1.4).
fn reason<'a>(policy: &Policy, aaaa: &Chain<'a>) -> Result<Reason, Reply<'a>> {
    let kept = match aaaa.last {
        Outcome::Failed(Failure::Timeout | Failure::Malformed) => return Ok(Reason::Timeout),
        Outcome::Failed(failure) => return Err(error(*failure)),
        Outcome::Answered(kept) => kept,
    };
    let pass = |strip| Reply::Pass { aliases: aaaa.earlier, last: kept, strip, withheld: None };
    match kept.answer.kind() {
        AnswerKind::NxDomain => Err(pass(Strip::Nothing)),
        AnswerKind::Data => match hidden(&kept.answer, |v6| policy.excludes(v6)) {
            Hidden::None => Err(pass(Strip::Nothing)),
            Hidden::Some => Err(pass(Strip::Excluded)),
            Hidden::All => Ok(Reason::Excluded),
        },
        AnswerKind::NoData | AnswerKind::Unfinished => Ok(Reason::NoData),
        AnswerKind::Failed if kept.answer.is_rejected() => {
            Err(unchanged_reply(aaaa.earlier, aaaa.last))
        }
        AnswerKind::Failed => Ok(Reason::Rcode),
    }
}

/// Returns the reply after both queries have been answered, based on the result of the A query (RFC
/// 6147 §5.1.6).
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
    // The reply that the client would get without DNS64.
    let denial = |withheld| match (reason, aaaa.last) {
        (Reason::NoData, Outcome::Answered(last)) => {
            Reply::Pass { aliases: aaaa.earlier, last, strip: Strip::Nothing, withheld }
        }
        (Reason::Excluded, _) => native.clone().unwrap_or(Reply::Empty {
            aliases: AliasChain { aaaa: aaaa.with_last, a: &[] },
            last: found,
            synthesized: false,
            withheld,
        }),
        _ => unchanged_reply(aaaa.earlier, aaaa.last),
    };
    match found.answer.kind() {
        AnswerKind::Data => {
            let denied = aaaa.last.kept();
            let signed =
                found.answer.is_signed() || denied.is_some_and(|kept| kept.answer.is_signed());
            if question.dnssec_ok && signed && !policy.break_dnssec {
                return denial(Some(WithheldReason::Signed));
            }
            if !addresses(&found.answer).any(|v4| policy.carries(v4)) {
                // NODATA would be cached, and be wrong as soon as a prefix is available.
                return if policy.awaits_prefix {
                    let extended_error = Some(ede::NOT_READY);
                    let failed = || {
                        let cause = Cause::NoPrefix;
                        Reply::Error { rcode: Rcode::SERVFAIL, cause, extended_error }
                    };
                    native.unwrap_or_else(failed)
                } else {
                    denial(Some(WithheldReason::Unmapped))
                };
            }
            let soa = denied.and_then(|kept| kept.answer.negative_ttl().map(|ttl| kept.left(ttl)));
            let ttl_limit = soa.unwrap_or(TTL_WITHOUT_SOA);
            Reply::Synthesize { aliases: a.earlier, a: found, ttl_limit, reason }
        }
        AnswerKind::NoData | AnswerKind::Unfinished => denial(None),
        AnswerKind::NxDomain => native.unwrap_or_else(|| unchanged_reply(a.earlier, a.last)),
        AnswerKind::Failed => unchanged_reply(a.earlier, a.last),
    }
}

/// Returns the excluded AAAA records if the policy prefers them to none; IPv4-mapped ones are never
/// returned.
fn native<'a>(policy: &Policy, reason: Reason, aaaa: &Chain<'a>) -> Option<Reply<'a>> {
    let last = aaaa.last.kept().filter(|_| reason == Reason::Excluded && policy.fallback_native)?;
    let strip = match hidden(&last.answer, |v6| Strip::Mapped.hides(v6, policy)) {
        Hidden::None => Strip::Nothing,
        Hidden::Some => Strip::Mapped,
        Hidden::All => return None,
    };
    Some(Reply::Pass { aliases: aaaa.earlier, last, strip, withheld: None })
}

/// Returns the IPv4 addresses in the A records of an answer.
pub(crate) fn addresses(answer: &Answer) -> impl Iterator<Item = Ipv4Addr> + '_ {
    answer
        .answers()
        .filter(|record| record.rtype == rtype::A)
        .filter_map(|record| <[u8; 4]>::try_from(record.data).ok())
        .map(Into::into)
}

/// Returns the reply without synthesis: the answers, or the error.
fn unchanged_reply<'a>(aliases: AliasChain<'a>, last: &'a Outcome) -> Reply<'a> {
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

/// Extent to which an answer's AAAA records are removed.
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
    /// The answers before the last one; for an A query also those to the AAAA query.
    earlier: AliasChain<'a>,
    /// The answers to this question.
    with_last: &'a [Outcome],
    last: &'a Outcome,
    /// The name at the end of the aliases, in wire format, lower case.
    end: &'a [u8],
}

enum Followed<'a> {
    /// The next name to query.
    Ask(&'a [u8]),
    /// The aliases form a loop; with the number of answers.
    Endless(usize),
    End(Chain<'a>),
}

/// Follows aliases that upstreams did not follow, and aliases at which answers were cut because
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
            let earlier = AliasChain { aaaa: &known[..i], a: &[] };
            return Followed::End(Chain { earlier, with_last: &known[..=i], last, end });
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
