//! The decision of RFC 6147 §5.1: what the answers so far mean, and what to ask next. No I/O, no clock.
//!
//! ```text
//!                 ┌────────────── alias without its end: ask AAAA of the end ─┐
//!                 ▼                                                           │
//! AAAA query ─► AAAA answer ─► real AAAA records ─► pass (excluded ones stripped)
//!                 ├─► NXDOMAIN ─► pass
//!                 └─► none, all excluded, error, timeout ─► ask A of the end of the aliases
//!                                                             ├─► A records ─► synthesize
//!                                                             └─► none ─► a reply based on that
//! ```
//!
//! [`next`] is called anew with all answers known so far; it holds no state of its own.

use wire::rcode::Rcode;
use wire::view::{CLASS_IN, rtype};

use crate::name::LowerName;
use crate::resolver::answer::{Answer, Kind, MAX_ALIASES};
use crate::resolver::outcome::{Failure, Kept, Outcome};
use crate::translation::local::LocalAnswer;

use crate::translation::policy::{Mode, Policy, TTL_WITHOUT_SOA};

/// What a client asks, as far as the decision needs it.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Name.
    pub name: LowerName,
    /// Type.
    pub qtype: u16,
    /// Class.
    pub qclass: u16,
    /// DO: the client wants signatures.
    pub dnssec_ok: bool,
    /// CD: the client validates for itself.
    pub checking_disabled: bool,
    /// RD.
    pub recursion_desired: bool,
}

/// What is to be done next.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack for one query; a box would be an allocation per query"
)]
pub enum Next<'a> {
    /// Ask upstream for this name and type.
    Ask(LowerName, u16),
    /// Reply.
    Reply(Reply<'a>),
}

/// Why A records were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No AAAA records.
    NoData,
    /// An error of the upstream.
    Rcode,
    /// No answer in time.
    Timeout,
    /// Excluded AAAA records only.
    Excluded,
}

/// Why a AAAA query without AAAA records got no synthesized ones though it has A records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// No prefix carries the IPv4 addresses.
    Unmapped,
    /// The client asked for signatures and the answer has them.
    Signed,
}

/// A reply, made from answers that it borrows. `aliases` are answers of which only the aliases are repeated, in order; failures
/// among them give nothing.
#[derive(Clone, Debug)]
pub enum Reply<'a> {
    /// The aliases, and the last answer whole.
    Pass {
        /// Answers whose aliases lead to the last one.
        aliases: &'a [Outcome],
        /// The answer that is passed on.
        last: &'a Kept,
        /// Whether excluded AAAA records are left out.
        strip: bool,
        /// Set if there were A records, which were not used.
        withheld: Option<Withheld>,
    },
    /// The aliases, those of `a`, and for each A record of `a` a AAAA record for each prefix that carries it.
    Synthesize {
        /// The answers before the one with the A records, to both questions.
        aliases: &'a [Outcome],
        /// The answer with the A records.
        a: &'a Kept,
        /// The highest TTL of the new records, seconds (RFC 6147 §5.1.7).
        ttl_limit: u32,
        /// Why A records were asked for.
        reason: Reason,
    },
    /// The aliases and no data.
    Empty {
        /// Answers whose aliases are repeated.
        aliases: &'a [Outcome],
        /// The answer whose authority section is repeated.
        authority: &'a Kept,
        /// Set if there were A records, which were not used.
        withheld: Option<Withheld>,
    },
    /// Nothing but an RCODE.
    Error {
        /// The RCODE.
        rcode: Rcode,
        /// Why, if it is not an upstream's own.
        failure: Option<Failure>,
    },
    /// An answer that needed no upstream.
    Local(&'a LocalAnswer),
}

impl Reply<'_> {
    /// The RCODE that the client sees.
    pub fn rcode(&self) -> Rcode {
        match self {
            Reply::Pass { last, .. } => last.answer.rcode(),
            Reply::Synthesize { .. } | Reply::Empty { .. } => Rcode::NOERROR,
            Reply::Error { rcode, .. } => *rcode,
            Reply::Local(answer) => answer.rcode,
        }
    }

    /// Why A records that were there have not been used.
    pub fn withheld(&self) -> Option<Withheld> {
        match self {
            Reply::Pass { withheld, .. } | Reply::Empty { withheld, .. } => *withheld,
            Reply::Synthesize { .. } | Reply::Error { .. } | Reply::Local(_) => None,
        }
    }
}

impl Question {
    /// Whether DNS64 may change the answer (items 1, 21, 24: only AAAA of class IN, never with CD).
    pub fn may_translate(&self, policy: &Policy) -> bool {
        self.qtype == rtype::AAAA
            && self.qclass == CLASS_IN
            && policy.translates()
            && !self.checking_disabled
            && (self.recursion_desired || !policy.recursive_only)
    }
}

/// Decides what comes after the answers in `known`, which are in the order in which they were asked for. `mode`: when A records
/// are asked for.
pub fn next<'a>(question: &Question, policy: &Policy, mode: Mode, known: &'a [Outcome]) -> Next<'a> {
    if !question.may_translate(policy) {
        return match known.first() {
            None => Next::Ask(question.name, question.qtype),
            Some(outcome) => Next::Reply(as_it_is(&[], outcome)),
        };
    }
    let aaaa = match follow(question.name, known, 0) {
        Followed::Ask(name) => return Next::Ask(name, rtype::AAAA),
        Followed::Endless => return Next::Reply(error(Failure::AliasLoop)),
        Followed::End(chain) => chain,
    };
    let reason = match reason(policy, &aaaa) {
        Ok(reason) => reason,
        Err(reply) => return Next::Reply(reply),
    };
    if mode == Mode::NodataOnly && matches!(reason, Reason::Rcode | Reason::Timeout) {
        return Next::Reply(as_it_is(aaaa.before, aaaa.last));
    }
    let a = match follow(aaaa.end, known, aaaa.before.len() + 1) {
        Followed::Ask(name) => return Next::Ask(name, rtype::A),
        Followed::Endless => return Next::Reply(error(Failure::AliasLoop)),
        Followed::End(chain) => chain,
    };
    Next::Reply(conclude(question, policy, reason, &aaaa, &a))
}

/// Why A records are to be asked for after this end of the AAAA question, or the reply if they are not (RFC 6147 §5.1.1 to §5.1.4).
fn reason<'a>(policy: &Policy, aaaa: &Chain<'a>) -> Result<Reason, Reply<'a>> {
    let kept = match aaaa.last {
        Outcome::Failed(Failure::Timeout) => return Ok(Reason::Timeout),
        Outcome::Failed(failure) => return Err(error(*failure)),
        Outcome::Answered(kept) => kept,
    };
    let pass = |strip| Reply::Pass { aliases: aaaa.before, last: kept, strip, withheld: None };
    match kept.answer.kind() {
        Kind::NxDomain => Err(pass(false)),
        Kind::Data => match excluded(policy, &kept.answer) {
            Excluded::None => Err(pass(false)),
            Excluded::Some => Err(pass(true)),
            Excluded::All => Ok(Reason::Excluded),
        },
        Kind::NoData | Kind::Unfinished => Ok(Reason::NoData),
        Kind::Failed => Ok(Reason::Rcode),
    }
}

/// The reply when both questions have been answered: based on what came of the A question (RFC 6147 §5.1.6).
fn conclude<'a>(question: &Question, policy: &Policy, reason: Reason, aaaa: &Chain<'a>, a: &Chain<'a>) -> Reply<'a> {
    let found = match a.last {
        Outcome::Failed(failure) => return error(*failure),
        Outcome::Answered(kept) => kept,
    };
    // What the client would have got without DNS64.
    let denial = |withheld| match (reason, aaaa.last) {
        (Reason::NoData, Outcome::Answered(last)) => Reply::Pass { aliases: aaaa.before, last, strip: false, withheld },
        (Reason::Excluded, _) => Reply::Empty { aliases: aaaa.with_last, authority: found, withheld },
        _ => as_it_is(aaaa.before, aaaa.last),
    };
    match found.answer.kind() {
        Kind::Data => {
            let denied = aaaa.last.kept();
            let signed = found.answer.is_signed() || denied.is_some_and(|kept| kept.answer.is_signed());
            if question.dnssec_ok && signed && !policy.break_dnssec {
                return denial(Some(Withheld::Signed));
            }
            if !addresses(&found.answer).any(|v4| policy.embed(v4).next().is_some()) {
                return denial(Some(Withheld::Unmapped));
            }
            let soa = denied.and_then(|kept| kept.answer.negative_ttl().map(|ttl| kept.left(ttl)));
            let ttl_limit = soa.unwrap_or(TTL_WITHOUT_SOA);
            Reply::Synthesize { aliases: a.before, a: found, ttl_limit, reason }
        }
        Kind::NoData | Kind::Unfinished => denial(None),
        Kind::NxDomain | Kind::Failed => as_it_is(a.before, a.last),
    }
}

/// The IPv4 addresses that an answer to an A question gives.
pub fn addresses(answer: &Answer) -> impl Iterator<Item = std::net::Ipv4Addr> + '_ {
    answer
        .answers()
        .filter(|record| record.rtype == rtype::A)
        .filter_map(|record| <[u8; 4]>::try_from(record.data).ok())
        .map(Into::into)
}

/// The reply for what is no loss of DNS64's: the answers, or the error.
fn as_it_is<'a>(aliases: &'a [Outcome], last: &'a Outcome) -> Reply<'a> {
    match last {
        Outcome::Answered(kept) if kept.answer.kind() == Kind::Failed => {
            Reply::Error { rcode: kept.answer.rcode(), failure: None }
        }
        Outcome::Answered(last) => Reply::Pass { aliases, last, strip: false, withheld: None },
        Outcome::Failed(failure) => error(*failure),
    }
}

fn error(failure: Failure) -> Reply<'static> {
    Reply::Error { rcode: Rcode::SERVFAIL, failure: Some(failure) }
}

enum Excluded {
    None,
    Some,
    All,
}

fn excluded(policy: &Policy, answer: &Answer) -> Excluded {
    let (mut good, mut bad) = (false, false);
    for record in answer.answers().filter(|record| record.rtype == rtype::AAAA) {
        match <[u8; 16]>::try_from(record.data) {
            Ok(octets) if !policy.excludes(octets.into()) => good = true,
            _ => bad = true,
        }
    }
    match (good, bad) {
        (true, false) => Excluded::None,
        (true, true) => Excluded::Some,
        (false, _) => Excluded::All,
    }
}

/// Answers to one question, from alias to alias.
struct Chain<'a> {
    /// All answers before the last one, those to an earlier question among them.
    before: &'a [Outcome],
    /// `before` and the last one.
    with_last: &'a [Outcome],
    last: &'a Outcome,
    /// The name at which the aliases end.
    end: LowerName,
}

enum Followed<'a> {
    /// The next name to ask for.
    Ask(LowerName),
    /// The aliases do not end.
    Endless,
    End(Chain<'a>),
}

/// Follows the aliases that upstreams did not follow (RFC 6147 §5.1.5), from answer number `first` on.
fn follow(start: LowerName, known: &[Outcome], first: usize) -> Followed<'_> {
    let mut name = start;
    let mut asked = Vec::new();
    for (i, last) in known.iter().enumerate().skip(first) {
        let end = match last.kept() {
            Some(kept) => kept.answer.target(),
            None => name,
        };
        if last.kept().is_none_or(|kept| kept.answer.kind() != Kind::Unfinished) {
            return Followed::End(Chain { before: &known[..i], with_last: &known[..=i], last, end });
        }
        asked.push(name);
        if asked.contains(&end) || asked.len() > MAX_ALIASES {
            return Followed::Endless;
        }
        name = end;
    }
    Followed::Ask(name)
}

#[cfg(test)]
mod tests;
