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

use std::sync::Arc;

use wire::view::{CLASS_IN, rtype};

use crate::name::LowerName;
use crate::resolver::answer::{Answer, Kind, MAX_ALIASES, rcode};
use crate::resolver::outcome::{Failure, Outcome};

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
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack for one query; a box would be an allocation per query"
)]
pub enum Next {
    /// Ask upstream for this name and type.
    Ask(LowerName, u16),
    /// Reply.
    Reply(Reply),
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

/// A reply, made from the answers with the given numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Aliases of all but the last of the first `count` answers, and the last one whole.
    Pass {
        /// How many.
        count: usize,
        /// Leave out excluded AAAA records.
        strip: bool,
        /// If A records were there and not used.
        withheld: Option<Withheld>,
    },
    /// Aliases of all answers; for each A record of the last a AAAA record.
    Synthesize {
        /// How many answers are to the AAAA question; the others are to the A question.
        aaaa: usize,
        /// How many answers in all.
        count: usize,
        /// TTL limit of the new records, seconds (item 16).
        ttl_limit: u32,
        /// Why.
        reason: Reason,
    },
    /// Aliases of the first `aliases` answers and no data, with the authority section of answer `authority`.
    Empty {
        /// How many answers give their aliases.
        aliases: usize,
        /// Whose authority section it gets.
        authority: usize,
        /// If A records were there and not used.
        withheld: Option<Withheld>,
    },
    /// Nothing but an RCODE.
    Error {
        /// The RCODE.
        rcode: u8,
        /// Why, if it is not an upstream's own.
        failure: Option<Failure>,
    },
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

/// Decides what comes after the answers in `known`.
pub fn next(question: &Question, policy: &Policy, mode: Mode, known: &[Outcome]) -> Next {
    if !question.may_translate(policy) {
        return match known.first() {
            None => Next::Ask(question.name, question.qtype),
            Some(outcome) => Next::Reply(pass_or_fail(outcome, 1)),
        };
    }
    let aaaa = match follow(question.name, known) {
        Followed::Ask(name) => return Next::Ask(name, rtype::AAAA),
        Followed::Endless => return Next::Reply(error(Failure::AliasLoop)),
        Followed::End(chain) => chain,
    };
    let reason = match aaaa.kind() {
        Some(Kind::NxDomain) => return Next::Reply(pass(aaaa.count)),
        Some(Kind::Data) => match excluded(policy, aaaa.answer()) {
            Excluded::None => return Next::Reply(pass(aaaa.count)),
            Excluded::Some => {
                return Next::Reply(Reply::Pass { count: aaaa.count, strip: true, withheld: None });
            }
            Excluded::All => Reason::Excluded,
        },
        Some(Kind::NoData | Kind::Unfinished) => Reason::NoData,
        Some(Kind::Failed) => Reason::Rcode,
        None => match aaaa.last {
            Outcome::Failed(Failure::Timeout) => Reason::Timeout,
            Outcome::Failed(failure) => return Next::Reply(error(*failure)),
            Outcome::Answered(_) => unreachable!("an answer has a kind"),
        },
    };
    if mode == Mode::NodataOnly && matches!(reason, Reason::Rcode | Reason::Timeout) {
        return Next::Reply(pass_or_fail(aaaa.last, aaaa.count));
    }
    let a = match follow(aaaa.end, &known[aaaa.count..]) {
        Followed::Ask(name) => return Next::Ask(name, rtype::A),
        Followed::Endless => return Next::Reply(error(Failure::AliasLoop)),
        Followed::End(chain) => chain,
    };
    Next::Reply(conclude(question, policy, reason, &aaaa, &a))
}

/// The reply when both questions have been answered (item 7: based on what came of the A question).
fn conclude(question: &Question, policy: &Policy, reason: Reason, aaaa: &Chain<'_>, a: &Chain<'_>) -> Reply {
    let count = aaaa.count + a.count;
    // What the client would have got without DNS64.
    let denial = |withheld| match reason {
        Reason::NoData => Reply::Pass { count: aaaa.count, strip: false, withheld },
        Reason::Excluded => Reply::Empty { aliases: aaaa.count, authority: count - 1, withheld },
        Reason::Rcode | Reason::Timeout => pass_or_fail(aaaa.last, aaaa.count),
    };
    match a.kind() {
        Some(Kind::Data) => {
            let signed = a.answer().is_signed() || aaaa.kind().is_some() && aaaa.answer().is_signed();
            if question.dnssec_ok && signed && !policy.break_dnssec {
                return denial(Some(Withheld::Signed));
            }
            if !addresses(a.answer()).any(|v4| policy.embed(v4).next().is_some()) {
                return denial(Some(Withheld::Unmapped));
            }
            let soa = match aaaa.last {
                Outcome::Answered(kept) => kept.answer.negative_ttl().map(|ttl| kept.left(ttl)),
                Outcome::Failed(_) => None,
            };
            Reply::Synthesize { aaaa: aaaa.count, count, ttl_limit: soa.unwrap_or(TTL_WITHOUT_SOA), reason }
        }
        Some(Kind::NoData | Kind::Unfinished) => denial(None),
        Some(Kind::NxDomain) => pass(count),
        Some(Kind::Failed) | None => pass_or_fail(a.last, count),
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
fn pass_or_fail(last: &Outcome, count: usize) -> Reply {
    match last {
        Outcome::Answered(kept) if kept.answer.kind() == Kind::Failed => {
            Reply::Error { rcode: kept.answer.rcode(), failure: None }
        }
        Outcome::Answered(_) => pass(count),
        Outcome::Failed(failure) => error(*failure),
    }
}

fn pass(count: usize) -> Reply {
    Reply::Pass { count, strip: false, withheld: None }
}

fn error(failure: Failure) -> Reply {
    Reply::Error { rcode: rcode::SERVFAIL, failure: Some(failure) }
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
    count: usize,
    last: &'a Outcome,
    /// The name at which they end.
    end: LowerName,
}

impl Chain<'_> {
    fn kind(&self) -> Option<Kind> {
        match self.last {
            Outcome::Answered(kept) => Some(kept.answer.kind()),
            Outcome::Failed(_) => None,
        }
    }

    fn answer(&self) -> &Arc<Answer> {
        match self.last {
            Outcome::Answered(kept) => &kept.answer,
            Outcome::Failed(_) => unreachable!("only asked of a chain whose kind() is known"),
        }
    }
}

enum Followed<'a> {
    /// The next name to ask for.
    Ask(LowerName),
    /// The aliases do not end.
    Endless,
    End(Chain<'a>),
}

/// Follows what upstreams did not (item 8).
fn follow(start: LowerName, known: &[Outcome]) -> Followed<'_> {
    let mut name = start;
    let mut asked = Vec::new();
    for (i, outcome) in known.iter().enumerate() {
        let target = match outcome {
            Outcome::Answered(kept) => kept.answer.target(),
            Outcome::Failed(_) => name,
        };
        let chain = Chain { count: i + 1, last: outcome, end: target };
        match chain.kind() {
            Some(Kind::Unfinished) => {
                asked.push(name);
                if asked.contains(&target) || asked.len() > MAX_ALIASES {
                    return Followed::Endless;
                }
                name = target;
            }
            _ => return Followed::End(chain),
        }
    }
    Followed::Ask(name)
}
