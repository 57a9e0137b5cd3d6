//! Answers of upstreams: checked, stripped of what does not belong, and in the form in which they are kept.
//!
//! An [`Answer`] is the upstream's message without its EDNS part. As its question is as long as any client's question for the
//! same name, a client's reply is a copy with another id, the client's spelling and smaller TTLs.

use std::ops::Range;

use domain::base::iana::Rtype;
use domain::base::message::RecordSection;
use domain::base::message_builder::StaticCompressor;
use domain::base::{Message as DomainMessage, MessageBuilder, ParsedName, ParsedRecord, Record as DomainRecord};
use domain::rdata::AllRecordData;
use wire::template::HEADER_LEN;
use wire::view::{Malformed, Message, Record, rtype};

use crate::name::LowerName;
use crate::resolver::ttl::TtlLimits;

/// Aliases in a row that are followed; more are taken for a loop (item 8).
pub const MAX_ALIASES: usize = 16;

/// RCODEs (RFC 1035 §4.1.1).
pub mod rcode {
    #![allow(missing_docs)]
    pub const NOERROR: u8 = 0;
    pub const FORMERR: u8 = 1;
    pub const SERVFAIL: u8 = 2;
    pub const NXDOMAIN: u8 = 3;
    pub const NOTIMP: u8 = 4;
    pub const REFUSED: u8 = 5;
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records of the type that was asked for.
    Data,
    /// The name (at the end of its aliases) has no records of the type.
    NoData,
    /// There is no such name.
    NxDomain,
    /// Aliases, whose end the upstream has not looked up.
    Unfinished,
    /// An error of the upstream.
    Failed,
}

/// Why a message cannot be an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// It breaks the format.
    #[error("malformed")]
    Malformed,
    /// It answers something else.
    #[error("not the question that was asked")]
    OtherQuestion,
    /// Its aliases lead back to themselves, or too far.
    #[error("alias loop")]
    AliasLoop,
}

impl From<Malformed> for Unusable {
    fn from(_: Malformed) -> Unusable {
        Unusable::Malformed
    }
}

/// An answer of an upstream, ready to be kept.
#[derive(Clone, Debug)]
pub struct Answer {
    message: Box<[u8]>,
    records_at: u16,
    /// Offset of the name at the end of the aliases.
    target_at: u16,
    kind: Kind,
    signed: bool,
    has_aliases: bool,
    authentic: bool,
    /// Seconds that it may be kept, and how long its denial holds.
    ttl: u32,
    negative_ttl: Option<u32>,
}

impl Answer {
    /// Takes `message` as the answer to `question` (name in lower case, type, class).
    ///
    /// # Errors
    /// If it is malformed, answers another question, or its aliases form a loop.
    pub fn parse(message: &[u8], question: &[u8], limits: &TtlLimits) -> Result<Answer, Unusable> {
        let view = Message::new(message).ok_or(Unusable::Malformed)?;
        let records_at = HEADER_LEN + question.len();
        let asked = message.get(HEADER_LEN..records_at).filter(|_| view.qdcount() == 1);
        if !asked.is_some_and(|asked| asked.eq_ignore_ascii_case(question)) {
            return Err(Unusable::OtherQuestion);
        }
        let [.., t0, t1, c0, c1] = *question else { return Err(Unusable::OtherQuestion) };
        let asked = Asked { qtype: u16::from_be_bytes([t0, t1]), qclass: u16::from_be_bytes([c0, c1]) };
        let survey = Survey::of(&view, records_at, asked)?;
        if survey.must_rebuild || names_lean_on_ttls(&view, message, records_at, &survey) {
            let clean = rebuild(message, survey.relevant.as_deref())?;
            let view = Message::new(&clean).ok_or(Unusable::Malformed)?;
            let has_extended_rcode = survey.has_extended_rcode;
            let survey = Survey { has_extended_rcode, ..Survey::of(&view, records_at, asked)? };
            // `rebuild` leaves nothing to rebuild; a second time would find the same.
            return Ok(Answer::from_survey(&clean, records_at, &survey, limits));
        }
        Ok(Answer::from_survey(message, records_at, &survey, limits))
    }

    fn from_survey(message: &[u8], records_at: usize, survey: &Survey<'_>, limits: &TtlLimits) -> Answer {
        let mut bytes: Box<[u8]> = message[..survey.end].into();
        bytes[..2].fill(0);
        bytes[10..12].copy_from_slice(&survey.arcount.to_be_bytes());
        if survey.has_extended_rcode {
            // BADVERS and its like concern the two of us; the header's half of it would look like success.
            bytes[3] = bytes[3] & 0xf0 | rcode::SERVFAIL;
        }
        let kind = survey.kind(bytes[3] & 0xf);
        limit_ttls(&mut bytes, records_at, kind, limits);
        let ttl = match kind {
            Kind::Data => survey.min_ttl.clamp(limits.min, limits.max.max(limits.min)),
            Kind::NoData | Kind::NxDomain => {
                // Without SOA nothing says how long (RFC 2308 §5).
                let denial = survey.negative_ttl.unwrap_or(0).min(limits.negative_max);
                denial.min(survey.min_ttl).min(limits.max)
            }
            Kind::Unfinished => survey.min_ttl.min(limits.max),
            Kind::Failed => limits.failure,
        };
        Answer {
            authentic: bytes[3] & 0x20 != 0,
            message: bytes,
            records_at: records_at as u16,
            target_at: survey.target_at as u16,
            kind,
            signed: survey.signed,
            has_aliases: survey.aliases > 0,
            ttl,
            negative_ttl: survey.negative_ttl,
        }
    }

    /// What it says.
    pub fn kind(&self) -> Kind {
        self.kind
    }
    /// The RCODE.
    pub fn rcode(&self) -> u8 {
        self.message[3] & 0xf
    }
    /// Whether it has signatures.
    pub fn is_signed(&self) -> bool {
        self.signed
    }
    /// The upstream's AD.
    pub fn is_authentic(&self) -> bool {
        self.authentic
    }
    /// Whether aliases lead to its data.
    pub fn has_aliases(&self) -> bool {
        self.has_aliases
    }
    /// Seconds that it may be kept.
    pub fn ttl(&self) -> u32 {
        self.ttl
    }
    /// How long its denial holds, in seconds: the SOA's TTL or MINIMUM, whichever is less (RFC 2308 §5).
    pub fn negative_ttl(&self) -> Option<u32> {
        self.negative_ttl
    }
    /// The message without EDNS, id 0.
    pub fn bytes(&self) -> &[u8] {
        &self.message
    }
    /// Offset after the question.
    pub fn records_at(&self) -> usize {
        usize::from(self.records_at)
    }
    /// Octets of memory for it.
    pub fn size(&self) -> usize {
        size_of::<Answer>() + self.message.len()
    }
    /// The message, to look at.
    pub fn view(&self) -> Message<'_> {
        Message::new(&self.message).expect("it has a header")
    }
    /// The name at the end of the aliases.
    pub fn target(&self) -> LowerName {
        LowerName::at(&self.view(), usize::from(self.target_at)).expect("a name that has been walked")
    }
    /// The records of the answer section.
    pub fn answers(&self) -> impl Iterator<Item = Record<'_>> {
        let view = self.view();
        view.records(self.records_at(), view.ancount()).map(|r| r.expect("records that have been walked"))
    }
    /// Whether a record of the answer section is owned by the name at the end of the aliases.
    pub fn is_at_target(&self, record: &Record<'_>) -> bool {
        record.owner == usize::from(self.target_at)
            || self.view().same_name(record.owner, usize::from(self.target_at)) == Ok(true)
    }
}

/// Type and class of the question.
#[derive(Clone, Copy)]
struct Asked {
    qtype: u16,
    qclass: u16,
}

/// What a walk over a message finds.
struct Survey<'a> {
    /// The answer records that belong to the question, aliases first and in order; `None`: all of them, as they are.
    relevant: Option<Vec<Record<'a>>>,
    must_rebuild: bool,
    aliases: usize,
    target_at: usize,
    has_data: bool,
    signed: bool,
    min_ttl: u32,
    negative_ttl: Option<u32>,
    /// End of the last record before OPT, and how many additional records there are without it.
    end: usize,
    arcount: u16,
    has_extended_rcode: bool,
}

impl<'a> Survey<'a> {
    fn of(view: &Message<'a>, records_at: usize, asked: Asked) -> Result<Survey<'a>, Unusable> {
        let mut survey = Survey {
            relevant: None,
            must_rebuild: false,
            aliases: 0,
            target_at: HEADER_LEN,
            has_data: false,
            signed: false,
            min_ttl: u32::MAX,
            negative_ttl: None,
            end: records_at,
            arcount: 0,
            has_extended_rcode: false,
        };
        let after_answers = survey.walk_answers(view, records_at, asked)?;
        survey.walk_others(view, after_answers, asked)?;
        Ok(survey)
    }

    fn walk_answers(&mut self, view: &Message<'a>, at: usize, asked: Asked) -> Result<usize, Unusable> {
        let Asked { qtype, qclass } = asked;
        let mut records = view.records(at, view.ancount());
        let mut plain = true;
        for record in records.by_ref() {
            let record = record?;
            let wanted = qtype == rtype::ANY || record.rtype == qtype || record.rtype == rtype::RRSIG;
            plain &= record.class == qclass && wanted && view.same_name(record.owner, HEADER_LEN)?;
            self.note(&record, qtype);
        }
        let end = records.offset();
        if plain {
            return Ok(end);
        }
        let all: Vec<Record<'_>> = view.records(at, view.ancount()).collect::<Result<_, _>>()?;
        (self.has_data, self.signed, self.min_ttl) = (false, false, u32::MAX);
        self.follow_aliases(view, &all, asked)?;
        let in_place = self.relevant.as_deref() == Some(&all);
        self.must_rebuild = !in_place;
        Ok(end)
    }

    fn note(&mut self, record: &Record<'_>, qtype: u16) {
        self.has_data |= record.rtype == qtype || qtype == rtype::ANY;
        self.signed |= record.rtype == rtype::RRSIG;
        self.min_ttl = self.min_ttl.min(sane(record.ttl));
    }

    /// Orders the records: each alias once, with what belongs to it, and the data at the end (RFC 6147 §5.1.5).
    fn follow_aliases(&mut self, view: &Message<'a>, all: &[Record<'a>], asked: Asked) -> Result<(), Unusable> {
        let Asked { qtype, qclass } = asked;
        let mut taken = vec![false; all.len()];
        let relevant = self.relevant.insert(Vec::new());
        loop {
            let owner = LowerName::at(view, self.target_at)?;
            // DNAMEs above the name, and everything that the name owns.
            let mut alias = None;
            let mut has_data = false;
            for (i, record) in all.iter().enumerate() {
                if taken[i] || record.class != qclass {
                    continue;
                }
                let record_owner = LowerName::at(view, record.owner)?;
                let owns = record_owner == owner;
                let above = !owns && owner.ends_with(record_owner.wire());
                let belongs = match record.rtype {
                    rtype::DNAME => above || owns && qtype == rtype::DNAME,
                    rtype::RRSIG => owns || above && record.data.starts_with(&rtype::DNAME.to_be_bytes()),
                    rtype::CNAME if owns && qtype != rtype::CNAME && qtype != rtype::ANY => {
                        if alias.is_some() {
                            continue;
                        }
                        // What lies behind its data may be cut off later, and is not its target.
                        if view.skip_name(record.data_at)? != record.data_at + record.data.len() {
                            return Err(Unusable::Malformed);
                        }
                        alias = Some(record.data_at);
                        true
                    }
                    other => owns && (qtype == rtype::ANY || other == qtype),
                };
                if belongs {
                    has_data |= owns && record.rtype == qtype;
                    taken[i] = true;
                    relevant.push(*record);
                }
            }
            let Some(next) = alias else { break };
            if has_data {
                // Data beside an alias at one name: which one is true?
                return Err(Unusable::Malformed);
            }
            self.aliases += 1;
            self.target_at = next;
            let target = LowerName::at(view, next)?;
            let seen =
                |r: &Record<'_>| Ok::<_, Malformed>(r.rtype == rtype::CNAME && LowerName::at(view, r.owner)? == target);
            for record in &*relevant {
                if seen(record)? {
                    return Err(Unusable::AliasLoop);
                }
            }
            if self.aliases > MAX_ALIASES {
                return Err(Unusable::AliasLoop);
            }
        }
        for record in self.relevant.iter().flatten().copied().collect::<Vec<_>>() {
            self.note(&record, qtype);
        }
        Ok(())
    }

    fn walk_others(&mut self, view: &Message<'a>, at: usize, asked: Asked) -> Result<(), Unusable> {
        let mut authority = view.records(at, view.nscount());
        for record in authority.by_ref() {
            let record = record?;
            match record.rtype {
                rtype::SOA if record.class == asked.qclass && self.negative_ttl.is_none() => {
                    let zone = LowerName::at(view, record.owner)?;
                    // An SOA of somewhere else says nothing about this name.
                    if LowerName::at(view, self.target_at)?.ends_with(zone.wire())
                        && let Some(minimum) = record.data.last_chunk::<4>()
                    {
                        self.negative_ttl = Some(sane(record.ttl).min(sane(u32::from_be_bytes(*minimum))));
                    }
                }
                rtype::RRSIG => self.signed = true,
                _ => {}
            }
        }
        self.end = authority.offset();
        let mut additional = view.records(authority.offset(), view.arcount());
        let mut after_opt = false;
        while let Some(record) = additional.next() {
            let record = record?;
            if record.rtype == rtype::OPT {
                after_opt = true;
                self.has_extended_rcode |= record.ttl >> 24 != 0;
            } else {
                // Something after OPT would move when OPT is cut out.
                self.must_rebuild |= after_opt;
                self.arcount += 1;
                self.end = additional.offset();
            }
        }
        Ok(())
    }

    fn kind(&self, code: u8) -> Kind {
        match code {
            rcode::NOERROR if self.has_data => Kind::Data,
            rcode::NOERROR if self.aliases > 0 && self.negative_ttl.is_none() => Kind::Unfinished,
            rcode::NOERROR => Kind::NoData,
            rcode::NXDOMAIN => Kind::NxDomain,
            _ => Kind::Failed,
        }
    }
}

/// Whether the target of the aliases, or the owner of an answer record, is read in part from the octets of a TTL, which a
/// compression pointer can lead to. TTLs are written anew, here and as they grow older, and the name would be another one then, or
/// none at all. Names written out again by [`rebuild`] lean on nothing.
fn names_lean_on_ttls(view: &Message<'_>, message: &[u8], records_at: usize, survey: &Survey<'_>) -> bool {
    // Nearly every name is that of the question, or points to it.
    let question = (0xc000 | HEADER_LEN as u16).to_be_bytes();
    let is_usual = |name: usize| name == HEADER_LEN || message.get(name..name + 2) == Some(&question);
    let owners = view.records(records_at, view.ancount()).flatten().map(|record| record.owner);
    let mut unusual = owners.chain([survey.target_at]).filter(|&name| !is_usual(name)).peekable();
    if unusual.peek().is_none() {
        return false;
    }
    let ttls: Vec<usize> = view.all_records(records_at).flatten().map(|record| record.data_at - 6).collect();
    let is_ttl = |octets: &Range<usize>| ttls.iter().any(|&ttl| octets.start < ttl + 4 && ttl < octets.end);
    unusual.any(|name| view.name_reads(name, is_ttl) != Ok(false))
}

/// Brings the TTLs that clients will see within the limits.
fn limit_ttls(bytes: &mut [u8], records_at: usize, kind: Kind, limits: &TtlLimits) {
    let least = if kind == Kind::Data { limits.min } else { 0 };
    let Some(view) = Message::new(bytes) else { return };
    let limited = |ttl: u32| sane(ttl).clamp(least, limits.max.max(least));
    let mut others = Vec::new();
    for record in view.all_records(records_at).flatten() {
        if limited(record.ttl) != record.ttl {
            others.push((record.data_at - 6, limited(record.ttl)));
        }
    }
    for (at, ttl) in others {
        bytes[at..at + 4].copy_from_slice(&ttl.to_be_bytes());
    }
}

/// RFC 2181 §8: a TTL with the top bit set is zero.
fn sane(ttl: u32) -> u32 {
    if ttl > i32::MAX as u32 { 0 } else { ttl }
}

/// The message with only the answer records that belong there, in order, and without OPT.
fn rebuild(message: &[u8], relevant: Option<&[Record<'_>]>) -> Result<Vec<u8>, Unusable> {
    let parsed = DomainMessage::from_slice(message).map_err(|_| Unusable::Malformed)?;
    let (question, answer, authority, additional) = parsed.sections().map_err(|_| Unusable::Malformed)?;
    let target = StaticCompressor::new(Vec::with_capacity(message.len()));
    let mut builder = MessageBuilder::from_target(target).map_err(|_| Unusable::Malformed)?;
    *builder.header_mut() = parsed.header();
    let mut out = builder.question();
    for q in question {
        out.push(q.map_err(|_| Unusable::Malformed)?).map_err(|_| Unusable::Malformed)?;
    }

    let mut out = out.answer();
    let records = readable(answer)?;
    let order: Vec<usize> = match relevant {
        None => (0..records.len()).collect(),
        Some(relevant) => {
            // domain's records come in the order in which ours were walked; the place of the data identifies them.
            let view = Message::new(message).ok_or(Unusable::Malformed)?;
            let at = view.skip_name(HEADER_LEN)? + 4;
            let places: Vec<usize> =
                view.records(at, view.ancount()).map(|r| r.map(|r| r.data_at)).collect::<Result<_, _>>()?;
            relevant.iter().filter_map(|r| places.iter().position(|&at| at == r.data_at)).collect()
        }
    };
    for record in order.into_iter().filter_map(|i| records.get(i)) {
        out.push(record).map_err(|_| Unusable::Malformed)?;
    }
    let mut out = out.authority();
    for record in readable(authority)? {
        out.push(record).map_err(|_| Unusable::Malformed)?;
    }
    let mut out = out.additional();
    for record in readable(additional)? {
        if record.rtype() != Rtype::OPT {
            out.push(record).map_err(|_| Unusable::Malformed)?;
        }
    }
    Ok(out.finish().into_target())
}

/// A record as domain reads it.
pub(crate) type ReadRecord<'a> = DomainRecord<ParsedName<&'a [u8]>, AllRecordData<&'a [u8], ParsedName<&'a [u8]>>>;

/// The records of a section.
///
/// # Errors
/// If one of them is malformed.
pub(crate) fn readable(section: RecordSection<'_, [u8]>) -> Result<Vec<ReadRecord<'_>>, Unusable> {
    section.map(|record| record.and_then(ParsedRecord::into_any_record).map_err(|_| Unusable::Malformed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a.test` AAAA IN.
    const QUESTION: &[u8] = b"\x01a\x04test\0\0\x1c\0\x01";

    /// An answer with one CNAME of `a.test` whose target is the pointer `to`, and `additional` records of that name besides.
    fn alias(ttl: u32, to: u16, additional: u16) -> Vec<u8> {
        let mut message = vec![0, 0, 0x81, 0x80, 0, 1, 0, 1, 0, 0];
        message.extend(additional.to_be_bytes());
        message.extend(QUESTION);
        let mut record = |rtype: u16, ttl: u32, data: &[u8]| {
            message.extend([0xc0, HEADER_LEN as u8]);
            message.extend(rtype.to_be_bytes());
            message.extend([0, 1]);
            message.extend(ttl.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        };
        record(rtype::CNAME, ttl, &(0xc000 | to).to_be_bytes());
        for _ in 0..additional {
            record(rtype::A, 60, &[192, 0, 2, 1]);
        }
        message
    }

    /// An alias whose target was read from its own TTL was a name before the TTL was limited, and none afterwards: the answer
    /// ended the process.
    #[test]
    fn an_alias_that_leans_on_a_ttl_keeps_its_target() {
        let ttl_at = (HEADER_LEN + QUESTION.len() + 6) as u16;
        for offset in 0..4 {
            for ttl in [0x7f00_0000, 0x0000_0001, 0x0161_0000, 0x0001_5180, u32::MAX] {
                let message = alias(ttl, ttl_at + offset, 0);
                let Ok(answer) = Answer::parse(&message, QUESTION, &TtlLimits::default()) else { continue };
                let view = Message::new(&message).unwrap();
                let before = LowerName::at(&view, usize::from(ttl_at + offset)).unwrap();
                assert_eq!(answer.target(), before, "TTL {ttl:#x}, octet {offset}");
            }
        }
    }

    /// There are no names in the header, which is written anew as well.
    #[test]
    fn an_alias_that_leans_on_the_header_is_malformed() {
        for to in 0..HEADER_LEN as u16 {
            let message = alias(60, to, 5);
            let parsed = Answer::parse(&message, QUESTION, &TtlLimits::default());
            assert!(matches!(parsed, Err(Unusable::Malformed)), "octet {to}: {parsed:?}");
        }
    }

    #[test]
    fn usual_answers_are_kept_as_they_are() {
        let mut message = alias(60, HEADER_LEN as u16 + 2, 0);
        assert!(Answer::parse(&message, QUESTION, &TtlLimits::default()).unwrap().has_aliases());
        // A target that is written out.
        let end = message.len();
        message[end - 3] = 3;
        message.truncate(end - 2);
        message.extend(b"\x01b\0");
        let answer = Answer::parse(&message, QUESTION, &TtlLimits::default()).unwrap();
        assert_eq!(answer.bytes()[HEADER_LEN..], message[HEADER_LEN..]);
    }
}
