//! The DNS64 decision for a client query (RFC 6147 §5.1). The upstream answers so far determine the next upstream
//! query or the reply. This module uses no I/O and no clock.
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
//! With the option `filter-a`, which is for clients that use only IPv6, an A query leads to the same upstream queries
//! as an AAAA query. The client gets A records only if there are no AAAA records:
//!
//! ```text
//! A query ─► as above for AAAA ─► AAAA records, native or synthesized ─► NODATA
//!                              └─► none ─► query A, if not done before ─► pass
//! ```
//!
//! The function [`next`] is called after each upstream answer, with all answers so far. It keeps no state between
//! calls.

use std::net::{Ipv4Addr, Ipv6Addr};

use smallvec::SmallVec;
use wire::edns::ede;
use wire::rcode::Rcode;
use wire::view::{CLASS_IN, rtype};

use crate::name::{KeyBuf, LowerName};
use crate::resolver::answer::{Answer, AnswerKind, MAX_ALIASES};
use crate::resolver::outcome::{CachedAnswer, Failure, Outcome};
use crate::translation::local::{self, Local, LocalAnswer};
use crate::translation::policy::{Mode, Policy, Rules, TTL_WITHOUT_SOA};

/// Number of upstream queries that most client queries need: one for AAAA records and one for A records.
const USUAL_QUESTIONS: usize = 2;

/// The properties of a client query on which the DNS64 decision depends.
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
    /// Query an upstream for the AAAA records of this name with CD set. The answer only shows
    /// whether DNSSEC validation has rejected the records.
    Probe(&'a [u8]),
    /// Query an upstream again for the AAAA records of this name, bypassing the cache. The last probe was answered
    /// later than the failed query, so the upstream may have recovered in the meantime.
    Repeat(&'a [u8]),
    /// Send this reply; no further upstream query is needed.
    Reply(Reply<'a>),
}

/// Reason for an A query after the AAAA query.
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
    /// The client gets AAAA records instead (`filter-a`).
    Filtered,
}

/// The sequence of upstream queries that a client query needs under given rules. An answer is matched to its query only
/// by its position in the sequence. If changed rules require a different sequence, earlier answers must therefore not
/// be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// A query for the client's question, unchanged.
    Unchanged,
    /// A query for AAAA records. Depending on the mode and on the answer, a query for A records follows.
    Translated(Mode),
    /// Queries for a client that requests A records under `filter-a`: first for AAAA records and, if there are none,
    /// for A records. The value is `None` if no AAAA records may be synthesized. Otherwise, it is the condition for the
    /// A query that the synthesis needs.
    Filtered(Option<Mode>),
}

/// AAAA records to be removed from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strip {
    /// No records. The answer is forwarded unchanged.
    Nothing,
    /// AAAA records that the policy excludes.
    Excluded,
    /// AAAA records with IPv4-mapped addresses.
    Mapped,
}

impl Strip {
    /// True if an AAAA record with this address is removed.
    pub(crate) fn hides(self, address: Ipv6Addr, policy: &Policy) -> bool {
        match self {
            Strip::Nothing => false,
            Strip::Excluded => policy.excludes(address),
            Strip::Mapped => address.to_ipv4_mapped().is_some(),
        }
    }
}

/// Upstream answers before the last one. The reply repeats only the aliases in these answers, in order. Failed
/// queries contribute no aliases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AliasChain<'a> {
    aaaa: &'a [Outcome],
    a: &'a [Outcome],
}

impl<'a> AliasChain<'a> {
    /// Returns the answers before the last one. Answers to the AAAA query come first.
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

/// A reply to a client. It borrows the upstream answers from which it is composed.
#[derive(Clone, Debug)]
pub(crate) enum Reply<'a> {
    /// The last upstream answer, preceded by the aliases in earlier answers.
    Pass {
        /// Earlier answers. Their aliases lead to the last answer.
        aliases: AliasChain<'a>,
        /// The answer to be forwarded.
        last: &'a CachedAnswer,
        /// AAAA records to be removed from the last answer.
        strip: Strip,
        /// Reason why existing A records were not used.
        withheld: Option<WithheldReason>,
    },
    /// Aliases, and AAAA records synthesized from the A records in the answer `a`. Each A record results in one AAAA
    /// record per selected prefix.
    Synthesize {
        /// All answers received before `a`, to the AAAA query and to the A query.
        aliases: AliasChain<'a>,
        /// The answer with the A records.
        a: &'a CachedAnswer,
        /// Maximum TTL of the synthesized records, in seconds (RFC 6147 §5.1.7).
        ttl_limit: u32,
        /// Reason for the A query after the AAAA query.
        reason: Reason,
    },
    /// NODATA: the aliases in all answers, and no data.
    Empty {
        /// Earlier answers. The reply repeats their aliases.
        aliases: AliasChain<'a>,
        /// The answer to the last query. If this answer has an SOA record and no data, the reply repeats the SOA
        /// record. Otherwise, the server generates an SOA record. Its TTL is at most the smallest remaining TTL of the
        /// answers.
        last: &'a CachedAnswer,
        /// True if A records are withheld because AAAA records can be synthesized. The lifetime of the prefixes then
        /// limits the TTL of the SOA record.
        synthesized: bool,
        /// Reason why existing A records were not used.
        withheld: Option<WithheldReason>,
    },
    /// An error: an RCODE without records.
    Error {
        /// RCODE of the reply.
        rcode: Rcode,
        /// Origin of the error.
        cause: Cause,
        /// Extended error from the upstream or from this server.
        extended_error: Option<u16>,
    },
    /// An answer that the server produced without an upstream.
    Local(&'a LocalAnswer),
}

/// Origin of an error in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An error response from the upstream.
    Upstream,
    /// A probe has shown that data exist and that DNSSEC validation has rejected them.
    Bogus,
    /// No prefix is available, because no prefix has been announced yet or all prefixes have expired.
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

    /// True if a policy withholds records from the client. These records are AAAA records that the policy excludes
    /// (items 9 and 28 of docs/src/dns64-items.md), A records that no prefix can embed, or A records removed by
    /// `filter-a`.
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
    /// True if DNS64 may change the answer. This requires type AAAA, class IN, and a query without CD (items 1, 21
    /// and 24 of docs/src/dns64-items.md).
    pub(crate) fn may_synthesize(&self, policy: &Policy) -> bool {
        self.qtype == rtype::AAAA && self.may_synthesize_aaaa(policy)
    }

    /// True if AAAA records of the name may be synthesized for a query with these flags. The type of
    /// the query is ignored.
    fn may_synthesize_aaaa(&self, policy: &Policy) -> bool {
        self.qclass == CLASS_IN
            && policy.synthesizes()
            && !self.checking_disabled
            && (self.recursion_desired || !policy.recursive_only)
    }

    /// True if A records in the answer may be withheld.
    fn may_withhold_a(&self, policy: &Policy) -> bool {
        policy.filter_a && self.qtype == rtype::A && self.qclass == CLASS_IN
    }

    /// Returns the upstream queries that the client query needs. `mode` is the condition for A queries.
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

/// Outcomes of the upstream queries of a client query, in the order of the queries.
pub(crate) type Outcomes = SmallVec<[Outcome; USUAL_QUESTIONS]>;

impl Question {
    /// Looks up the answers to the usual upstream queries, and adds them to `known`: one query and, if the name has no
    /// AAAA records and no aliases, a query for its A records. `cached` returns a cached outcome. Returns the first
    /// question that is not cached. In other cases, [`next`] returns further queries.
    #[inline]
    pub(crate) fn usual_answers(
        &self,
        rules: &Rules<'_>,
        known: &mut Outcomes,
        mut cached: impl FnMut(&KeyBuf) -> Option<Outcome>,
    ) -> Option<KeyBuf> {
        let plan = self.plan(rules.policy, rules.mode);
        let qtype = if plan == Plan::Unchanged { self.qtype } else { rtype::AAAA };
        let mut key = self.key(self.name.wire(), qtype);
        let Some(outcome) = cached(&key) else { return Some(key) };
        let is_denial = outcome.kept().is_some_and(|kept| {
            kept.answer.kind() == AnswerKind::NoData && !kept.answer.has_aliases() && !kept.stale
        });
        known.push(outcome);
        if is_denial && matches!(plan, Plan::Translated(_)) {
            key.set_qtype(rtype::A);
            match cached(&key) {
                Some(outcome) => known.push(outcome),
                None => return Some(key),
            }
        }
        None
    }

    /// True if records of the queried type can have address hints (RFC 9460 §7.3).
    #[inline]
    pub(crate) fn has_hints(&self) -> bool {
        matches!(self.qtype, rtype::HTTPS | rtype::SVCB)
    }

    /// Searches for a local answer, which needs no upstream query.
    #[inline]
    pub(crate) fn find_local(&self, rules: &Rules<'_>) -> Local {
        match self.qclass {
            CLASS_IN => local::find_local(&self.name, self.qtype, rules),
            _ => Local::No,
        }
    }

    /// Returns the key of a question for `name` (wire format, lower case) with the class and the flags of the client
    /// query.
    pub(crate) fn key(&self, name: &[u8], qtype: u16) -> KeyBuf {
        KeyBuf::from_wire(name, qtype, self.qclass, self.dnssec_ok, self.checking_disabled)
    }
}

/// Returns the next step of a client query. `known` contains the upstream answers so far, in the order of their
/// queries. All these queries belong to the same plan ([`Question::plan`]). `mode` is the condition for A queries. If
/// `may_ask_again` is true, no query has been repeated yet, and [`Next::Repeat`] may be returned.
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

/// The upstream answers so far, and whether a query may still be repeated.
#[derive(Clone, Copy)]
struct Known<'a> {
    answers: &'a [Outcome],
    may_ask_again: bool,
}

/// Returns the next step if the name and its aliases (RFC 1034 §5.3.3) are resolved without
/// synthesis.
fn without_synthesis<'a>(question: &'a Question, qtype: u16, known: &'a [Outcome]) -> Next<'a> {
    passed_on(question, qtype, known).map_or_else(|open| open, |(reply, _)| Next::Reply(reply))
}

/// Returns the reply without synthesis, and the number of answers from which it is composed. If a further answer is
/// needed, returns the next query as the error.
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
    /// A further answer is needed.
    Open(Next<'a>),
    /// The search ended without an A query. `reply` is the reply to an AAAA query and depends on the first `answers`
    /// answers.
    Alone { reply: Reply<'a>, answers: usize },
    /// Both the AAAA query and the A query have been answered. There are `answers` answers in total.
    WithA { reason: Reason, aaaa: Chain<'a>, a: Chain<'a>, answers: usize },
}

/// Searches for the AAAA records of the question's name, native or synthesized.
#[inline]
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

/// Returns the next step of an A query under `filter-a`. The reply contains A records only if the reply to an AAAA
/// query for the same name would contain no AAAA records. `synthesized` is `None` if no AAAA records may be
/// synthesized. Otherwise, it is the condition for the A query that the synthesis needs.
fn a_unless_aaaa<'a>(
    question: &'a Question,
    policy: &Policy,
    synthesized: Option<Mode>,
    known: Known<'a>,
) -> Next<'a> {
    // The reply to an AAAA query, the number of answers used for this reply, and the reply to the A
    // query. If only the AAAA answer contains aliases, the A query was for the end of the aliases,
    // which may have no records. Such a reply to the A query is used only if it has records.
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
        // No upstream was queried, and no upstream will be queried for this reply.
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
            // AAAA records can become acceptable after the A query has been sent, for example
            // because of a reload. The A answers so far then belong to the end of the aliases, but
            // the reply needs the A records of this name.
            let is_its = |outcome: &Outcome| {
                outcome.kept().is_none_or(|kept| kept.answer.name() == question.name.wire())
            };
            let own = rest.iter().position(is_its).and_then(|at| rest.get(at..));
            without_synthesis(question, rtype::A, own.unwrap_or_default())
        }
    }
}

/// True if the AAAA query may have failed because of DNSSEC validation, although no extended DNS error states this
/// reason. The upstream may then have rejected AAAA records, or the proof of their absence, because of their
/// signatures. A records must not be used in this case: RFC 6147 §5.1.2, which allows an A query after an error, does
/// not apply to validation failures. An upstream query with CD shows whether the rejected data exist.
#[inline]
fn may_be_bogus(aaaa: &Outcome, mode: Mode) -> bool {
    match aaaa.kept() {
        Some(kept) if kept.stale => kept.doubted.is_some(),
        Some(kept) => mode == Mode::Strict && kept.answer.is_unexplained(),
        None => false,
    }
}

/// True if an upstream answered the probe without an error, and the answer is not stale.
fn is_there(probed: &Outcome) -> bool {
    probed.kept().is_some_and(|kept| !kept.stale && kept.answer.kind() != AnswerKind::Failed)
}

/// True if the answer to the probe (a query with CD) is more recent than the failed answer to the AAAA query. The
/// upstream may have recovered between the two answers.
fn is_younger(probed: &Outcome, failed: &Outcome) -> bool {
    let since_failure = failed.kept().map_or(0, CachedAnswer::since_failure);
    probed.kept().is_some_and(|kept| kept.age < since_failure)
}

/// Returns the reply for data that DNSSEC validation has rejected.
fn bogus() -> Reply<'static> {
    Reply::Error {
        rcode: Rcode::SERVFAIL,
        cause: Cause::Bogus,
        extended_error: Some(ede::DNSSEC_BOGUS),
    }
}

/// Returns the reason for an A query, based on the answer to the AAAA query (RFC 6147 §5.1.1 to §5.1.4). If no A
/// query is needed, returns the reply as the error.
#[inline]
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

/// Returns the reply after both the AAAA query and the A query have been answered (RFC 6147 §5.1.6).
#[inline]
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
        // The zone is signed, so the absence of AAAA records must be proven (RFC 6147 §5.5).
        AnswerKind::Data
            if matches!(reason, Reason::Rcode | Reason::Timeout) && found.answer.is_secure() =>
        {
            unchanged_reply(aaaa.earlier, aaaa.last)
        }
        AnswerKind::Data => {
            let denied = aaaa.last.kept();
            let signed =
                found.answer.is_signed() || denied.is_some_and(|kept| kept.answer.is_signed());
            if question.dnssec_ok && signed && !policy.break_dnssec {
                return denial(Some(WithheldReason::Signed));
            }
            if !addresses(&found.answer).any(|v4| policy.carries(v4)) {
                // A NODATA reply would be cached, and would be wrong as soon as a prefix is available.
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

/// Returns a reply with the excluded AAAA records if the policy permits this (`fallback-native`). IPv4-mapped
/// addresses are never returned.
#[inline]
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
#[inline]
pub(crate) fn addresses(answer: &Answer) -> impl Iterator<Item = Ipv4Addr> + '_ {
    answer
        .answers()
        .filter(|record| record.rtype == rtype::A)
        .filter_map(|record| <[u8; 4]>::try_from(record.data).ok())
        .map(Into::into)
}

/// Returns the reply without synthesis: the upstream answers, or an error.
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

/// Number of AAAA records that are removed from an answer: none, some or all.
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

/// Upstream answers that together resolve one question. Each answer after the first is for the target of the alias at
/// the end of the previous answer.
struct Chain<'a> {
    /// The answers before the last one. If the question is for A records, the answers to the earlier AAAA query are
    /// included.
    earlier: AliasChain<'a>,
    /// All answers to the question, including the last one.
    with_last: &'a [Outcome],
    last: &'a Outcome,
    /// The name at the end of the aliases, in wire format, lower case.
    end: &'a [u8],
}

enum Followed<'a> {
    /// The next name to query.
    Ask(&'a [u8]),
    /// The aliases form a loop, or there are too many aliases. The value is the number of answers with these aliases.
    Endless(usize),
    End(Chain<'a>),
}

/// Follows aliases that upstreams did not follow (RFC 6147 §5.1.5, RFC 1034 §5.3.3). An alias is also followed if
/// queries for its target must go to upstreams other than the one that sent the answer. The records after such an alias
/// have been removed from the answer.
#[inline]
fn follow<'a>(start: &'a [u8], known: &'a [Outcome]) -> Followed<'a> {
    match known {
        [] => Followed::Ask(start),
        [last, ..] if !is_unfinished(last) => {
            let earlier = AliasChain::default();
            Followed::End(Chain { earlier, with_last: &known[..1], last, end: end(last, start) })
        }
        _ => follow_aliases(start, known),
    }
}

#[cold]
fn follow_aliases<'a>(start: &'a [u8], known: &'a [Outcome]) -> Followed<'a> {
    let mut name = start;
    let mut asked = Vec::new();
    for (i, last) in known.iter().enumerate() {
        let end = end(last, name);
        if !is_unfinished(last) {
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

/// Returns the name at the end of the aliases in the answer to a query for `asked`.
#[inline]
fn end<'a>(outcome: &'a Outcome, asked: &'a [u8]) -> &'a [u8] {
    outcome.kept().map_or(asked, |kept| kept.answer.target())
}

/// True if the answer consists of aliases, and the name at their end must be queried.
#[inline]
fn is_unfinished(outcome: &Outcome) -> bool {
    outcome.kept().is_some_and(|kept| kept.answer.kind() == AnswerKind::Unfinished)
}

#[cfg(test)]
mod tests;
