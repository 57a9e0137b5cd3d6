//! Upstream answers after checks and the removal of unrelated records, in the form in which they
//! are cached.
//!
//! ```text
//! message ─► survey ──────────────► plain and steady ──────────────────────► keep ─► Answer
//!              └─► aliases: follow ─► in place and steady ───────────────────┘ ▲
//!                          └─► otherwise: rebuild, all names written again ────┘
//! ```
//!
//! `survey` collects the contents of the message in one pass. A message is *plain* if all its answer
//! records, except signatures, have the name, class and type of the question. *Steady* is explained
//! below.
//!
//! An [`Answer`] is the upstream's message without its EDNS part, with the question's name in lower case. Its question
//! section is as long as that of any client query for the same name. A reply to a client is therefore a copy with a
//! different id, the client's spelling of the name, and smaller TTLs. The SOA of a negative answer gets the negative
//! TTL when it is stored, so that clients cache the negative answer no longer than its zone allows.
//!
//! In each reply, the header and the TTLs of the cached message are overwritten. A compression pointer could point into
//! these octets. The name that contains the pointer would then change or become malformed. A message is therefore
//! cached unchanged only if it is *steady*: every compression pointer leads to octets that are part of a name. Later
//! accesses to an [`Answer`] (records, TTL offsets, the name at the end of the aliases) use the results of `survey`;
//! names are not parsed again.
//!
//! With `[[forward]]`, an answer is cut at the first alias to a name with other upstreams ([`Scope`]). The aliases up
//! to that point form an [`AnswerKind::Unfinished`] answer. The answer is then treated as if the upstream had stopped
//! at that alias.

mod aliases;
mod asked;
mod rebuild;
#[cfg(test)]
mod scope_tests;
mod survey;
#[cfg(test)]
mod tests;

use std::slice::ChunksExact;

use dnssec::{Security, Verdict};
use domain::base::name::ToName;
use wire::edns::ede;
use wire::rcode::Rcode;
use wire::template::HEADER_LEN;
use wire::view::Message;

use self::aliases::Aliases;
use self::asked::{UpstreamQuestion, sane};
use self::survey::{Facts, NegativeSoa, Survey, type_covered};
use crate::name::{is_at_or_below, is_question};
use crate::resolver::scope::Scope;
use crate::resolver::ttl::TtlLimits;

pub(crate) use self::asked::{DnssecRecords, MAX_ALIASES, Unusable};
pub(crate) use self::rebuild::ReadRecord;

/// Kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// Records of the queried type.
    Data,
    /// NODATA: the name at the end of the aliases has no records of the type.
    NoData,
    /// The name does not exist: NXDOMAIN, or YXDOMAIN because a DNAME substitution exceeds the
    /// maximum name length.
    NxDomain,
    /// Only aliases: for the name at the end of the alias chain, the answer has neither records nor a negative result.
    /// Either the upstream did not resolve this name, or the name belongs to other upstreams.
    Unfinished,
    /// An error response from the upstream.
    Failed,
}

/// An upstream answer in the form in which it is cached.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The message, then the name at the end of its aliases in lower case, then the offset of each
    /// TTL (two octets each). Without aliases, the name is omitted.
    octets: Box<[u8]>,
    /// Time for which the answer may be cached, in seconds.
    ttl: u32,
    /// Negative TTL in seconds: the SOA's TTL or its MINIMUM, whichever is less (RFC 2308 §5).
    negative_ttl: Option<u32>,
    message_len: u16,
    records_at: u16,
    extended_error: Option<u16>,
    target_len: u8,
    kind: AnswerKind,
    /// True if the answer contains signatures. Before the verdict of the DNSSEC validation: true if the message contained
    /// signatures when it was received.
    signed: bool,
    /// Result of the DNSSEC validation by this server; `None` if the answer was not validated.
    security: Option<Security>,
}

/// One resource record of an answer: all its fields except the owner name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerRecord<'a> {
    /// Offset of the record in the message.
    at: usize,
    /// The record's type.
    pub rtype: u16,
    /// Original TTL of the record, in seconds.
    pub ttl: u32,
    /// Record data; names in it may be compressed.
    pub data: &'a [u8],
}

impl AnswerRecord<'_> {
    /// Returns the type covered by the record if it is an RRSIG.
    pub(crate) fn covered(&self) -> Option<u16> {
        type_covered(self.rtype, self.data)
    }
}

impl Answer {
    /// Parses `message` as the answer to `question` (name in lower case, type, class). The upstream may answer for all
    /// names.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Answer::parse_in`], for example if the message is malformed.
    pub(crate) fn parse(
        message: &[u8],
        question: &[u8],
        limits: &TtlLimits,
    ) -> Result<Answer, Unusable> {
        Answer::parse_in(message, question, limits, None, DnssecRecords::AsReceived)
    }

    /// Parses `message` as the answer to `question` (name in lower case, type, class). The answer is cut after the
    /// first alias that leads to a name outside `scope`. Records owned by names outside `scope` are removed, unless
    /// they prove the absence of data.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is malformed, contradicts itself or answers a different question. Also returns
    /// an error if its aliases form a loop or are too numerous.
    pub(crate) fn parse_in(
        message: &[u8],
        question: &[u8],
        limits: &TtlLimits,
        scope: Option<Scope<'_>>,
        dnssec: DnssecRecords,
    ) -> Result<Answer, Unusable> {
        let view = Message::new(message).ok_or(Unusable::Malformed)?;
        let asked = UpstreamQuestion::of(question, dnssec).ok_or(Unusable::OtherQuestion)?;
        let records_at = HEADER_LEN + question.len();
        if view.qdcount() != 1
            || !message.get(HEADER_LEN..records_at).is_some_and(|said| is_question(said, question))
        {
            return Err(Unusable::OtherQuestion);
        }
        let mut survey = Survey::new(&view, message, records_at);
        survey.scan(&view, asked)?;
        let may_leave_out = scope.is_some() && view.nscount() > 0;
        if survey.plain && survey.is_clean() && !may_leave_out {
            return Ok(Answer::keep(message, &survey, None, limits));
        }
        let aliases = Aliases::follow(&view, &survey, asked, scope)?;
        if aliases.are_in_place() && survey.is_clean() && !aliases.leaves_out {
            return Ok(Answer::keep(message, &survey, Some(&aliases), limits));
        }
        let clean = rebuild::rebuild(message, &aliases, asked)?;
        let view = Message::new(&clean).ok_or(Unusable::Malformed)?;
        let mut again = Survey::new(&view, &clean, records_at);
        again.scan(&view, asked)?;
        again.add_facts_of(&survey);
        let is_cut = aliases.is_cut;
        let mut aliases = Aliases::follow(&view, &again, asked, scope)?;
        if is_cut {
            aliases.cut();
        }
        // A rebuilt message needs no further rebuilding.
        if !again.is_clean() || !aliases.are_in_place() {
            return Err(Unusable::Malformed);
        }
        let mut answer = Answer::keep(&clean, &again, Some(&aliases), limits);
        answer.signed |= dnssec != DnssecRecords::AsReceived && survey.is_signed();
        Ok(answer)
    }

    /// Creates an answer that consists of a copy of the message and of the facts collected from it. `aliases` is `None`
    /// if all answer records are owned by the question's name.
    fn keep(
        message: &[u8],
        survey: &Survey<'_>,
        aliases: Option<&Aliases<'_>>,
        limits: &TtlLimits,
    ) -> Answer {
        let target = aliases.and_then(Aliases::target);
        let target_len = target.map_or(0, <[u8]>::len);
        let mut octets = Vec::with_capacity(survey.end + target_len + 2 * survey.ttls.len());
        octets.extend(&message[..survey.end]);
        octets[..2].fill(0);
        // The question's name in lower case: length octets are below 64, so only letters in labels
        // change.
        octets[HEADER_LEN..survey.records_at - 4].make_ascii_lowercase();
        octets[10..12].copy_from_slice(&survey.arcount.to_be_bytes());
        let facts = aliases.map_or(survey.facts, |aliases| aliases.facts);
        let has_aliases = target_len > 0;
        let is_cut = aliases.is_some_and(|aliases| aliases.is_cut);
        let is_empty = !facts.has_data && !has_aliases;
        let rcode = effective_rcode(octets[3] & 0xf, survey, is_empty, is_cut);
        octets[3] = octets[3] & 0xf0 | rcode.in_header();
        let negative_soa = survey.negative_soa(target.unwrap_or(survey.question_name()));
        let negative_ttl = negative_soa.map(|negative_soa| negative_soa.ttl);
        let is_too_long = aliases.is_some_and(|aliases| aliases.is_too_long);
        let kind = match rcode {
            Rcode::NOERROR if facts.has_data => AnswerKind::Data,
            Rcode::NOERROR if has_aliases && negative_ttl.is_none() => AnswerKind::Unfinished,
            Rcode::NOERROR => AnswerKind::NoData,
            Rcode::NXDOMAIN => AnswerKind::NxDomain,
            Rcode::YXDOMAIN if is_too_long => AnswerKind::NxDomain,
            _ => AnswerKind::Failed,
        };
        limit_ttls(&mut octets, &survey.ttls, kind, limits);
        let answers = usize::from(u16::from_be_bytes([octets[6], octets[7]]));
        if kind == AnswerKind::Data && answers > 1 {
            level_ttls(&mut octets, &survey.ttls[..answers.min(survey.ttls.len())], survey);
        }
        if let (AnswerKind::NoData | AnswerKind::NxDomain, Some(negative_soa)) =
            (kind, negative_soa)
        {
            limit_negative_ttl(&mut octets, survey, negative_soa, limits);
        }
        // The DNAME proves that the name does not exist.
        let proven = is_too_long.then_some(facts.min_ttl);
        let ttl = kept_for(kind, facts, negative_ttl.or(proven), limits);
        octets.extend(target.unwrap_or_default());
        octets.extend(survey.ttls.as_flattened());
        Answer {
            octets: octets.into(),
            ttl,
            negative_ttl,
            message_len: survey.end as u16,
            records_at: survey.records_at as u16,
            extended_error: survey.extended_error.filter(|_| !is_cut || kind == AnswerKind::Failed),
            target_len: target_len as u8,
            kind,
            signed: facts.signed || survey.signed_authority,
            security: None,
        }
    }

    /// Returns the kind of answer, which determines the caching time and the next upstream query.
    pub(crate) fn kind(&self) -> AnswerKind {
        self.kind
    }
    /// Returns the RCODE. The parser has mapped extended RCODEs to SERVFAIL.
    pub(crate) fn rcode(&self) -> Rcode {
        Rcode::new(u16::from(self.octets[3] & 0xf))
    }
    /// Returns the first extended error of the upstream (RFC 8914), or `None` if there is none. A
    /// DNSSEC validation error takes precedence over other errors.
    pub(crate) fn extended_error(&self) -> Option<u16> {
        self.extended_error
    }
    /// True if the upstream reports a DNSSEC validation failure (SERVFAIL with a validation error
    /// defined in RFC 8914).
    pub(crate) fn is_rejected(&self) -> bool {
        self.rcode() == Rcode::SERVFAIL
            && self.extended_error.is_some_and(ede::is_validation_failure)
    }
    /// True for a SERVFAIL without an extended error.
    pub(crate) fn is_unexplained(&self) -> bool {
        self.rcode() == Rcode::SERVFAIL && self.extended_error.is_none()
    }
    /// True if the answer contains signatures.
    pub(crate) fn is_signed(&self) -> bool {
        self.signed
    }
    /// True if DNSSEC validation by this server has found the answer secure.
    pub(crate) fn is_secure(&self) -> bool {
        self.security == Some(Security::Secure)
    }
    /// Returns the result of the DNSSEC validation by this server, or `None` if the answer was not validated.
    pub(crate) fn security(&self) -> Option<Security> {
        self.security
    }
    /// True if the upstream set AD, which reports the answer as validated.
    pub(crate) fn is_authentic(&self) -> bool {
        self.octets[3] & 0x20 != 0
    }
    /// Sets or clears the bit that reports the answer as validated.
    pub(crate) fn set_authentic(&mut self, is_authentic: bool) {
        self.octets[3] = self.octets[3] & !0x20 | u8::from(is_authentic) << 5;
    }

    /// Records the verdict of the DNSSEC validation: the answer counts as signed and as validated if it is secure, and
    /// no TTL exceeds that of the verdict. The extended error of the verdict explains a status other than secure.
    pub(crate) fn set_verdict(&mut self, verdict: &Verdict) {
        let is_secure = verdict.security == Security::Secure;
        self.set_authentic(is_secure);
        self.signed = is_secure;
        self.security = Some(verdict.security);
        if let Some(code) = verdict.extended_error {
            self.extended_error = Some(code.to_int());
        }
        if verdict.ttl == u32::MAX {
            return;
        }
        self.ttl = self.ttl.min(verdict.ttl);
        let offsets: Vec<usize> = self.ttl_offsets().collect();
        for offset in offsets {
            let ttl = self.ttl_at(offset).min(verdict.ttl);
            self.octets[offset..offset + 4].copy_from_slice(&ttl.to_be_bytes());
        }
    }

    /// True if the data is reached through aliases.
    pub(crate) fn has_aliases(&self) -> bool {
        self.target_len > 0
    }
    /// Returns the number of seconds for which the answer may be cached.
    pub(crate) fn ttl(&self) -> u32 {
        self.ttl
    }
    /// Returns the negative TTL in seconds: the SOA's TTL or its MINIMUM, whichever is less (RFC
    /// 2308 §5).
    pub(crate) fn negative_ttl(&self) -> Option<u32> {
        self.negative_ttl
    }
    /// Returns the message without EDNS, with id 0 and the question's name in lower case.
    pub(crate) fn message(&self) -> &[u8] {
        &self.octets[..usize::from(self.message_len)]
    }
    /// Returns the offset of the first record in the message.
    pub(crate) fn records_at(&self) -> usize {
        usize::from(self.records_at)
    }
    /// Returns the number of octets that the answer occupies on the heap.
    pub(crate) fn octets_len(&self) -> usize {
        self.octets.len()
    }
    /// Returns the number of records in the answer section.
    pub(crate) fn answer_count(&self) -> usize {
        usize::from(self.field(6))
    }

    fn authority_count(&self) -> usize {
        usize::from(self.field(8))
    }

    /// True if the message has no aliases, and no records in the authority and additional sections.
    pub(crate) fn is_bare(&self) -> bool {
        !self.has_aliases() && self.octets[8..HEADER_LEN] == [0; 4]
    }

    /// Returns the question's name in wire format, lower case.
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        &self.octets[HEADER_LEN..self.records_at() - 4]
    }

    /// Returns the name at the end of the aliases in wire format, lower case.
    #[inline]
    pub(crate) fn target(&self) -> &[u8] {
        let message_len = usize::from(self.message_len);
        match usize::from(self.target_len) {
            0 => self.name(),
            len => &self.octets[message_len..message_len + len],
        }
    }

    /// True if an alias in the answer leads to `name` (wire format, lower case) or to a name below
    /// it.
    pub(crate) fn leads_to(&self, name: &[u8]) -> bool {
        let is_of = |record: AnswerRecord<'_>| {
            let owner = self.read(&record).map(|read| read.owner().to_name::<Vec<u8>>());
            owner.is_some_and(|owner| is_at_or_below(owner.as_slice(), name))
        };
        self.has_aliases() && (is_at_or_below(self.target(), name) || self.answers().any(is_of))
    }

    /// Returns the offsets of the TTLs of all records in the message, in order.
    #[inline]
    pub(crate) fn ttl_offsets(&self) -> impl Iterator<Item = usize> + '_ {
        let offsets = &self.octets[usize::from(self.message_len) + usize::from(self.target_len)..];
        offsets.chunks_exact(2).map(|at| usize::from(u16::from_be_bytes([at[0], at[1]])))
    }

    /// Returns the TTL, in seconds, that is stored at an offset in the message. The offset must be one of
    /// [`Answer::ttl_offsets`].
    #[inline]
    pub(crate) fn ttl_at(&self, offset: usize) -> u32 {
        let ttl = &self.octets[offset..offset + 4];
        u32::from_be_bytes([ttl[0], ttl[1], ttl[2], ttl[3]])
    }

    /// Returns the records of the answer section.
    #[inline]
    pub(crate) fn answers(&self) -> impl Iterator<Item = AnswerRecord<'_>> {
        self.records().take(self.answer_count())
    }

    /// Returns the records of the authority section.
    pub(crate) fn authorities(&self) -> impl Iterator<Item = AnswerRecord<'_>> {
        self.records().skip(self.answer_count()).take(self.authority_count())
    }

    /// Returns the records of the additional section.
    pub(crate) fn additional(&self) -> impl Iterator<Item = AnswerRecord<'_>> {
        self.records().skip(self.answer_count() + self.authority_count())
    }

    /// Parses one of this answer's records, including its owner and the names in its data. Returns
    /// `None` if the data is malformed.
    pub(crate) fn read(&self, record: &AnswerRecord<'_>) -> Option<ReadRecord<'_>> {
        rebuild::read_at(self.message(), record.at)
    }

    #[inline]
    fn records(&self) -> AnswerRecords<'_> {
        let offsets = usize::from(self.message_len) + usize::from(self.target_len);
        AnswerRecords {
            octets: &self.octets,
            ttl_offsets: self.octets[offsets..].chunks_exact(2),
            next: self.records_at(),
        }
    }

    #[inline]
    fn field(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.octets[at], self.octets[at + 1]])
    }
}

/// Iterator over the records of an answer.
struct AnswerRecords<'a> {
    octets: &'a [u8],
    ttl_offsets: ChunksExact<'a, u8>,
    /// Offset of the next record.
    next: usize,
}

impl<'a> Iterator for AnswerRecords<'a> {
    type Item = AnswerRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<AnswerRecord<'a>> {
        let [o0, o1] = *self.ttl_offsets.next()?.first_chunk()?;
        let ttl_at = usize::from(u16::from_be_bytes([o0, o1]));
        // Type and class precede the TTL; length and data follow it (RFC 1035 §4.1.3).
        let [t0, t1, _, _, s0, s1, s2, s3, l0, l1] =
            *self.octets.get(ttl_at - 4..)?.first_chunk()?;
        let data_at = ttl_at + 6;
        let end = data_at + usize::from(u16::from_be_bytes([l0, l1]));
        let at = std::mem::replace(&mut self.next, end);
        let (rtype, ttl) = (u16::from_be_bytes([t0, t1]), u32::from_be_bytes([s0, s1, s2, s3]));
        Some(AnswerRecord { at, rtype, ttl, data: self.octets.get(data_at..end)? })
    }
}

/// Returns the RCODE of an answer. It may differ from the RCODE in the message header (`header`). For example, a
/// referral with NOERROR in the header yields SERVFAIL.
fn effective_rcode(header: u8, survey: &Survey<'_>, is_empty: bool, is_cut: bool) -> Rcode {
    let is_rejected = survey.extended_error.is_some_and(ede::is_validation_failure);
    match Rcode::new(header.into()) {
        // BADVERS and similar codes concern only this hop. The header contains only the lower bits
        // of these codes, which look like success.
        _ if survey.rcode_bits != 0 => Rcode::SERVFAIL,
        // The aliases may be part of the data that validation rejected.
        Rcode::SERVFAIL if is_rejected => Rcode::SERVFAIL,
        // The RCODE describes the name at the end of the aliases (RFC 6604 §3), which a different
        // upstream resolves.
        _ if is_cut => Rcode::NOERROR,
        // A referral is not NODATA: it shows that the upstream does not recurse for this server.
        Rcode::NOERROR if is_empty && survey.is_referral() => Rcode::SERVFAIL,
        rcode => rcode,
    }
}

/// Returns the caching time of an answer, in seconds.
fn kept_for(kind: AnswerKind, facts: Facts, negative_ttl: Option<u32>, limits: &TtlLimits) -> u32 {
    match kind {
        AnswerKind::Data => facts.min_ttl.clamp(limits.min, limits.max.max(limits.min)),
        AnswerKind::NoData | AnswerKind::NxDomain => {
            // Without an SOA the negative TTL is unknown (RFC 2308 §5).
            let negative_soa = negative_ttl.unwrap_or(0).min(limits.negative_max);
            negative_soa.min(facts.min_ttl).min(limits.max)
        }
        AnswerKind::Unfinished => facts.min_ttl.min(limits.max),
        // Caching time of a first failure. The cache itself counts repeated failures.
        AnswerKind::Failed => limits.failure,
    }
}

/// Limits the TTL of a negative answer's SOA, and of its signatures, to the negative TTL (RFC 2308 §3). Clients cache
/// the negative answer for the SOA's TTL or its MINIMUM, whichever is less. Only the TTL shows how long the answer has
/// been cached here (§6). Validators accept a TTL below the original TTL in the signature (RFC 4034 §3.1.4).
fn limit_negative_ttl(
    octets: &mut [u8],
    survey: &Survey<'_>,
    negative_soa: &NegativeSoa,
    limits: &TtlLimits,
) {
    let most = negative_soa.ttl.min(limits.negative_max).min(limits.max);
    for at in survey.ttls_of(negative_soa) {
        let Some(ttl) = octets[at..].first_chunk_mut::<4>() else { continue };
        *ttl = u32::from_be_bytes(*ttl).min(most).to_be_bytes();
    }
}

/// Sets the TTLs of all records of the queried type, which form one RRset, to the lowest TTL among
/// them (RFC 2181 §5.2). An answer to ANY contains several RRsets and is not changed.
fn level_ttls(octets: &mut [u8], offsets: &[[u8; 2]], survey: &Survey<'_>) {
    let asked_at = survey.records_at - 4;
    let asked = [octets[asked_at], octets[asked_at + 1]];
    let of_rrset = |octets: &[u8], at: usize| octets[at - 4..at - 2] == asked;
    let offset = |at: &[u8; 2]| usize::from(u16::from_be_bytes(*at));
    let ttl = |octets: &[u8], at: usize| octets[at..].first_chunk::<4>().copied();
    let ttls = offsets.iter().map(offset).filter(|&at| of_rrset(octets, at));
    // Octets in network byte order sort in the same order as the numbers.
    let Some(least) = ttls.filter_map(|at| ttl(octets, at)).min() else { return };
    for at in offsets.iter().map(offset) {
        if of_rrset(octets, at) {
            octets[at..at + 4].copy_from_slice(&least);
        }
    }
}

/// Raises or lowers the TTLs that clients receive to the configured limits.
fn limit_ttls(octets: &mut [u8], offsets: &[[u8; 2]], kind: AnswerKind, limits: &TtlLimits) {
    let least = if kind == AnswerKind::Data { limits.min } else { 0 };
    for &at in offsets {
        let Some(ttl) = octets[usize::from(u16::from_be_bytes(at))..].first_chunk_mut::<4>() else {
            continue;
        };
        *ttl = sane(u32::from_be_bytes(*ttl)).clamp(least, limits.max.max(least)).to_be_bytes();
    }
}
