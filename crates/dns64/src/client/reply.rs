//! Encoding of replies to clients. A reply is copied from an upstream answer, synthesized, or composed from several
//! answers. It is truncated to the maximum length that the client accepts.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::ops::Deref;
use std::sync::Arc;

use domain::base::iana::{Class, Rtype};
use domain::base::message_builder::{AnswerBuilder, RecordSectionBuilder};
use domain::base::name::Name;
use domain::base::rdata::UnknownRecordData;
use domain::base::record::ComposeRecord;
use domain::base::wire::Composer;
use domain::base::{MessageBuilder, Record, Ttl};
use domain::rdata::{Aaaa, Cname};
use smallvec::{SmallVec, smallvec};
use wire::edns::ede;
use wire::edns::{OPT_LEN, UDP_PAYLOAD, opt_header, option, option_header};
use wire::rcode::Rcode;
use wire::template::HEADER_LEN;
use wire::view::{CLASS_IN, Message, rtype};

use crate::client::hinted::HintedAnswer;
use crate::client::query::{Cookie, Query, Received};
use crate::name::compressor::Compressor;
use crate::name::{LowerName, USUAL_NAME};
use crate::resolver::answer::{Answer, AnswerKind, AnswerRecord, ReadRecord};
use crate::resolver::outcome::{CachedAnswer, Failure, Outcome};
use crate::resolver::ttl::TtlLimits;
use crate::translation::decide::{AliasChain, Cause, Reply, Strip, addresses};
use crate::translation::local::{self, LocalAnswer, NameServer};
use crate::translation::policy::{AdSource, Hints, MAX_SYNTHESIZED, Policy, Rules};
use crate::transport::Transport;

/// Length of the code and the length field of an option, in octets.
const OPTION_HEADER_LEN: usize = 4;

/// Length of the cookie option's data: client cookie (8 octets) and server cookie (16 octets).
pub(crate) const COOKIE_LEN: usize = 24;

/// The properties that all possible replies to a client query have in common.
#[derive(Clone, Debug)]
pub(crate) struct ReplyFrame {
    /// Message id of the query.
    pub id: u16,
    /// Question section in the client's letter case.
    pub question: SmallVec<[u8; USUAL_NAME]>,
    /// RD bit, repeated in the reply (RFC 1035 §4.1.1).
    pub recursion_desired: bool,
    /// CD bit, repeated in the reply (RFC 4035 §3.2.2).
    pub checking_disabled: bool,
    /// DO bit, repeated in the OPT record of the reply (RFC 3225 §3).
    pub dnssec_ok: bool,
    /// True if the client requests AD by setting DO or AD (RFC 6840 §5.7, §5.8).
    pub requests_ad: bool,
    /// Transport of the query.
    pub transport: Transport,
    /// True if the query has an OPT record. Otherwise, the reply must have no OPT record.
    pub edns: bool,
    /// Maximum length of the reply in octets. Over UDP, this is the payload size in the query's OPT record, clamped
    /// to the range 512 to 1232.
    pub limit: usize,
    /// Cookie option of the reply.
    pub cookie: Option<[u8; COOKIE_LEN]>,
}

impl ReplyFrame {
    /// Returns the common properties of the replies to `query`, which was received over `transport`.
    pub(crate) fn new(
        query: &Query<'_>,
        transport: Transport,
        cookie: Option<[u8; COOKIE_LEN]>,
    ) -> ReplyFrame {
        let limit = transport.limit(query.edns.map(|edns| edns.size));
        ReplyFrame {
            id: query.id,
            question: SmallVec::from_slice(query.question),
            recursion_desired: query.recursion_desired,
            checking_disabled: query.checking_disabled,
            dnssec_ok: query.dnssec_ok(),
            requests_ad: query.dnssec_ok() || query.authentic_data,
            transport,
            edns: query.edns.is_some(),
            limit,
            cookie,
        }
    }

    /// Encodes the reply returned by [`crate::translation::decide::next`]. If the queried name is a local alias
    /// ([`crate::translation::local::find_local`]), `alias` is the target of the CNAME record. `known` contains all
    /// upstream answers for the client query.
    pub(crate) fn write(
        &self,
        out: &mut Vec<u8>,
        reply: &Reply<'_>,
        rules: &Rules<'_>,
        alias: Option<&LowerName>,
        known: &[Outcome],
    ) {
        let start = out.len();
        let stale = is_stale(known);
        // Extended errors are options of the OPT record.
        let errors = match self.edns {
            true => self.extended_errors(reply, stale, known),
            false => SmallVec::new(),
        };
        match *reply {
            Reply::Local(answer) => self.write_local(out, answer, rules),
            Reply::Error { rcode, .. } => self.write_header(out, rcode, false),
            Reply::Pass { aliases, last, strip: Strip::Nothing, .. }
                if aliases.is_empty() && alias.is_none() && !self.rewrites_hints(last, rules) =>
            {
                let ad = rules.ad != AdSource::None && self.requests_ad && last.is_authentic();
                self.write_copy(out, last, ad);
            }
            Reply::Synthesize { aliases, a, ttl_limit, .. }
                if alias.is_none()
                    && a.answer.is_bare()
                    && !aliases.answers().any(|kept| kept.answer.has_aliases()) =>
            {
                let ad = self.is_validated(reply, rules, known);
                self.write_synthesized(out, a, rules, ttl_limit, ad);
            }
            _ => {
                // Composing fails only if a part exceeds the limits of a message.
                if self.compose(out, reply, rules, alias, known, self.limit).is_none() {
                    out.truncate(start);
                    self.write_header(out, Rcode::SERVFAIL, false);
                }
            }
        }
        self.finish(out, start, &errors);
    }

    /// True if this server has validated everything from which the reply is composed, and the client requests AD. A
    /// synthesized answer has AD only for clients with DO, and only if `break-dnssec` is on (RFC 6147 §5.5).
    fn is_validated(&self, reply: &Reply<'_>, rules: &Rules<'_>, known: &[Outcome]) -> bool {
        let is_authentic = CachedAnswer::is_authentic;
        rules.ad == AdSource::Validation
            && match *reply {
                Reply::Pass { aliases, last, strip: Strip::Nothing, .. } => {
                    self.requests_ad && is_authentic(last) && aliases.answers().all(is_authentic)
                }
                Reply::Synthesize { .. } => {
                    self.dnssec_ok
                        && rules.policy.break_dnssec
                        && known.iter().all(|outcome| outcome.kept().is_some_and(is_authentic))
                }
                _ => false,
            }
    }

    /// Returns the extended errors for a reply (RFC 8914), including those of upstreams (RFC 8914 §3).
    fn extended_errors(
        &self,
        reply: &Reply<'_>,
        stale: bool,
        known: &[Outcome],
    ) -> SmallVec<[u16; 2]> {
        let own = match *reply {
            Reply::Error {
                cause: Cause::Failed(Failure::Timeout | Failure::Unreachable), ..
            } => {
                return smallvec![ede::NETWORK_ERROR, ede::NO_REACHABLE_AUTHORITY];
            }
            Reply::Error { cause: Cause::Failed(Failure::Malformed), .. } => {
                Some(ede::INVALID_DATA)
            }
            Reply::Error { cause: Cause::Failed(Failure::NoUpstream), .. } => Some(ede::NOT_READY),
            Reply::Error {
                cause: Cause::Failed(Failure::Bogus(code) | Failure::NotValidated(code)),
                ..
            } => Some(code),
            Reply::Error { cause: Cause::Failed(_), .. } => None,
            Reply::Local(answer) => answer.extended_error,
            Reply::Error { extended_error, .. } => extended_error,
            Reply::Pass { last, .. } if stale && last.answer.kind() == AnswerKind::NxDomain => {
                Some(ede::STALE_NXDOMAIN_ANSWER)
            }
            _ if stale => Some(ede::STALE_ANSWER),
            Reply::Synthesize { .. } => Some(ede::SYNTHESIZED),
            Reply::Empty { .. } => None,
            Reply::Pass { last, .. } => last.answer.extended_error(),
        };
        let mut errors: SmallVec<[u16; 2]> = own.into_iter().collect();
        // Explains why an answer from which the reply is synthesized is not secure.
        if matches!(reply, Reply::Synthesize { .. }) {
            let not_secure = known.iter().filter(|outcome| outcome.security().is_some());
            let codes = not_secure.filter_map(|outcome| outcome.kept()?.answer.extended_error());
            errors.extend(codes.take(1));
        }
        if reply.is_filtered() && own != Some(ede::FILTERED) {
            errors.push(ede::FILTERED);
        }
        errors
    }

    /// Writes an answer that needed no upstream query. TTLs are limited to the configured maximum TTL. If the answer
    /// depends on a prefix, they are also limited to the lifetime of this prefix (RFC 7050 §3, RFC 8781 §4).
    fn write_local(&self, out: &mut Vec<u8>, answer: &LocalAnswer, rules: &Rules<'_>) {
        let start = out.len();
        self.write_header(out, answer.rcode, false);
        put_local(out, start, answer, rules);
    }

    /// Writes an error reply without records, with the extended error `ede`.
    pub(crate) fn write_error(&self, out: &mut Vec<u8>, code: Rcode, ede: Option<u16>) {
        let start = out.len();
        self.write_header(out, code, false);
        self.finish(out, start, ede.as_slice());
    }

    /// Writes an empty truncated reply, so that the client retries over TCP.
    pub(crate) fn write_truncated(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.write_header(out, Rcode::NOERROR, false);
        out[start + 2] |= TC;
        self.finish(out, start, &[]);
    }

    fn write_header(&self, out: &mut Vec<u8>, code: Rcode, ad: bool) {
        let ([i0, i1], [f0, f1]) = (self.id.to_be_bytes(), self.flags(code, ad));
        out.extend_from_slice(&[i0, i1, f0, f1, 0, 1, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&self.question);
    }

    fn flags(&self, code: Rcode, ad: bool) -> [u8; 2] {
        let rd = u8::from(self.recursion_desired);
        [QR | rd, RA | u8::from(ad) << 5 | u8::from(self.checking_disabled) << 4 | code.in_header()]
    }

    /// Copies the upstream's message with a new header and the client's question. The TTLs are reduced by the age of
    /// the message.
    fn write_copy(&self, out: &mut Vec<u8>, kept: &CachedAnswer, ad: bool) {
        let start = out.len();
        let answer = &*kept.answer;
        self.write_header(out, answer.rcode(), ad);
        out[start + ANCOUNT..start + HEADER_LEN]
            .copy_from_slice(&answer.message()[ANCOUNT..HEADER_LEN]);
        out.extend(&answer.message()[answer.records_at()..]);
        if kept.age == 0 && !kept.stale {
            return;
        }
        for offset in answer.ttl_offsets() {
            let left = kept.left(answer.ttl_at(offset));
            out[start + offset..start + offset + 4].copy_from_slice(&left.to_be_bytes());
        }
    }

    /// Writes AAAA records for an answer that contains only A records (RFC 6147 §5.1.7). At most [`MAX_SYNTHESIZED`]
    /// records are written, all with the same TTL (item 16 of docs/src/dns64-items.md).
    fn write_synthesized(
        &self,
        out: &mut Vec<u8>,
        a: &CachedAnswer,
        rules: &Rules<'_>,
        ttl_limit: u32,
        ad: bool,
    ) {
        let start = out.len();
        self.write_header(out, Rcode::NOERROR, ad);
        let ttl = synthetic_ttl(a, ttl_limit.min(rules.lifetime()));
        let records_at = out.len();
        // Writing stops after the maximum number of records, or after the record that exceeds the
        // limit, because the message will then be truncated.
        let all = records_at - start + MAX_SYNTHESIZED * AAAA_LEN;
        let full = all.min(self.limit + 1);
        let is_few = a.answer.answer_count() <= FEW;
        let mut seen = (!is_few).then(HashSet::new);
        'records: for v4 in addresses(&a.answer) {
            for v6 in rules.policy.embed(v4, rules.client) {
                let is_new = match &mut seen {
                    None => !has_record(&out[records_at..], v6),
                    Some(seen) => seen.insert(v6),
                };
                if is_new {
                    out.extend_from_slice(&aaaa_record(ttl, v6));
                    if out.len() - start >= full {
                        break 'records;
                    }
                }
            }
        }
        // At most `MAX_SYNTHESIZED` records.
        let records = ((out.len() - records_at) / AAAA_LEN) as u16;
        out[start + ANCOUNT..start + ANCOUNT + 2].copy_from_slice(&records.to_be_bytes());
    }

    /// Returns the target of an HTTPS or SVCB record with address hints, if the AAAA records of this target must be
    /// queried before the reply is written. `known` contains all upstream answers for the client query.
    pub(crate) fn open_target(
        &self,
        reply: &Reply<'_>,
        rules: &Rules<'_>,
        known: &[Outcome],
    ) -> Option<LowerName> {
        match *reply {
            Reply::Pass { last, .. } if self.rewrites_hints(last, rules) => {
                HintedAnswer::new(last, known, rules).open_target()
            }
            _ => None,
        }
    }

    /// True if the address hints for the client may differ from the upstream's hints. As with AAAA
    /// records, hints stay unchanged for queries with CD, and in signed answers to queries with DO.
    fn rewrites_hints(&self, last: &CachedAnswer, rules: &Rules<'_>) -> bool {
        let policy = rules.policy;
        policy.hints != Hints::Keep
            && matches!(self.qtype(), rtype::HTTPS | rtype::SVCB)
            && !self.checking_disabled
            && (self.recursion_desired || !policy.recursive_only)
            && (policy.break_dnssec || !self.dnssec_ok || !last.answer.is_signed())
    }

    /// Returns the QTYPE.
    fn qtype(&self) -> u16 {
        match self.question[..] {
            [.., t0, t1, _, _] => u16::from_be_bytes([t0, t1]),
            _ => 0,
        }
    }

    /// Returns the name of the question in lower case, and the type.
    pub(crate) fn asked(&self) -> (LowerName, u16) {
        (LowerName::from_wire(&self.question[..self.question.len() - 4]), self.qtype())
    }

    /// Composes a reply with compressed names: aliases in order, then data or a negative answer. After a record that
    /// makes the reply longer than `limit` octets, no further record is added, because the reply will be truncated.
    fn compose(
        &self,
        out: &mut Vec<u8>,
        reply: &Reply<'_>,
        rules: &Rules<'_>,
        alias: Option<&LowerName>,
        known: &[Outcome],
        limit: usize,
    ) -> Option<()> {
        let mut builder = MessageBuilder::from_target(Compressor::new(UDP_PAYLOAD, limit)).ok()?;
        builder.header_mut().set_id(self.id);
        let name_end = self.question.len() - 4;
        let name = Name::from_octets(&self.question[..name_end]).ok()?;
        let mut question = builder.question();
        question.push((name.clone(), Rtype::from_int(self.qtype()), Class::IN)).ok()?;
        let mut answer = question.answer();
        if let Some(target) = alias {
            let target = Name::from_octets(target.wire()).ok()?;
            answer
                .push(Record::new(
                    name,
                    Class::IN,
                    Ttl::from_secs(local::alias_ttl(&self.asked().0, rules)),
                    Cname::new(target),
                ))
                .ok()?;
        }
        let last = match *reply {
            Reply::Pass { aliases, last, strip, .. } => {
                push_all_aliases(&mut answer, aliases)?;
                if self.rewrites_hints(last, rules) {
                    HintedAnswer::new(last, known, rules).push(&mut answer)?;
                } else {
                    push_stripped(&mut answer, last, rules.policy, strip)?;
                }
                last
            }
            Reply::Synthesize { aliases, a, ttl_limit, .. } => {
                push_all_aliases(&mut answer, aliases)?;
                push_aliases(&mut answer, a)?;
                push_synthesized(&mut answer, a, rules, ttl_limit)?;
                a
            }
            Reply::Empty { aliases, last, synthesized, .. } => {
                push_all_aliases(&mut answer, aliases)?;
                push_aliases(&mut answer, last)?;
                // An SOA next to data does not make the answer negative.
                let is_data = last.answer.kind() == AnswerKind::Data;
                if is_data || last.answer.negative_ttl().is_none() {
                    let denied = with_generated_soa(answer, aliases, last, rules, synthesized)?;
                    return self.put_composed(out, denied, reply.rcode(), false);
                }
                last
            }
            Reply::Error { .. } | Reply::Local(_) => return None,
        };
        // These sections come from the answer to the last upstream query (RFC 6147 §5.4).
        let mut authority = answer.authority();
        push_records(&mut authority, last, last.answer.authorities())?;
        let mut additional = authority.additional();
        push_records(&mut additional, last, last.answer.additional())?;
        let is_changed = match *reply {
            Reply::Pass { last, .. } => self.rewrites_hints(last, rules),
            _ => false,
        };
        let ad = alias.is_none() && !is_changed && self.is_validated(reply, rules, known);
        self.put_composed(out, additional.finish(), reply.rcode(), ad)
    }

    fn put_composed(
        &self,
        out: &mut Vec<u8>,
        composed: Compressor,
        code: Rcode,
        ad: bool,
    ) -> Option<()> {
        let start = out.len();
        out.extend(composed.into_octets());
        out[start + 2..start + 4].copy_from_slice(&self.flags(code, ad));
        // The builder writes the first name uncompressed, so this question is as long as the client's
        // question.
        let question = out.get_mut(start + HEADER_LEN..start + HEADER_LEN + self.question.len())?;
        question.copy_from_slice(&self.question);
        Some(())
    }

    /// Truncates a reply that is too long, and appends the OPT record.
    fn finish(&self, out: &mut Vec<u8>, start: usize, errors: &[u16]) {
        let mut options = Options { cookie: self.cookie, errors };
        if !self.transport.truncates() && out.len() - start + OPT_LEN + options.len() > self.limit {
            // The answer and the options do not both fit. The answer is sent without options.
            options = Options::default();
        }
        let opt_len = if self.edns { OPT_LEN + options.len() } else { 0 };
        if out.len() - start + opt_len > self.limit {
            self.cut(out, start, self.limit.saturating_sub(opt_len));
        }
        if self.edns {
            options.put(out, start, Rcode::NOERROR, self.dnssec_ok);
        }
    }

    /// Shortens a reply to at most `room` octets. Optional records are removed first. If the answer itself is too long,
    /// it is removed and TC is set (RFC 2181 §9). Over TCP, TC is useless, so the reply becomes a SERVFAIL.
    fn cut(&self, out: &mut Vec<u8>, start: usize, room: usize) {
        let records_at = HEADER_LEN + self.question.len();
        let view = Message::new(&out[start..]);
        let is_positive = view.as_ref().is_some_and(|view| view.ancount() > 0);
        let ends = view.and_then(|view| section_ends(&view, records_at));
        let (end, counts) = match ends {
            Some((_, authority)) if authority <= room => (authority, ARCOUNT),
            // A validating client may need signatures of the authority section, and a negative
            // answer needs its SOA.
            Some((answer, _)) if answer <= room && is_positive && !self.dnssec_ok => {
                (answer, NSCOUNT)
            }
            // A negative answer over TCP is useful even without its SOA.
            Some((answer, _)) if answer <= room && !self.transport.truncates() => (answer, NSCOUNT),
            _ if !self.transport.truncates() => {
                out[start + 3] = out[start + 3] & 0xf0 | Rcode::SERVFAIL.in_header();
                (records_at, ANCOUNT)
            }
            _ => {
                out[start + 2] |= TC;
                (records_at, ANCOUNT)
            }
        };
        out.truncate(start + end);
        out[start + counts..start + HEADER_LEN].fill(0);
    }
}

/// True if at least one of the answers has expired (RFC 8767).
pub(crate) fn is_stale(known: &[Outcome]) -> bool {
    known.iter().filter_map(Outcome::kept).any(|kept| kept.stale)
}

/// Returns the offsets at which the answer section and the authority section end.
fn section_ends(view: &Message<'_>, records_at: usize) -> Option<(usize, usize)> {
    let end = |at: usize, count: u16| {
        let mut records = view.records(at, count);
        records.by_ref().all(|record| record.is_ok()).then(|| records.offset())
    };
    let answer = end(records_at, view.ancount())?;
    Some((answer, end(answer, view.nscount())?))
}

/// Writes SERVFAIL in reply to a query that could not be processed because of an internal error.
/// `answer` returns the cookie option of the reply. Returns false if the message is not a query.
pub(crate) fn write_servfail(
    out: &mut Vec<u8>,
    received: &[u8],
    transport: Transport,
    answer: impl FnOnce(Option<Cookie>) -> Option<[u8; COOKIE_LEN]>,
) -> bool {
    let Received::Query(query) = Received::read(received) else { return false };
    let cookie = answer(query.cookie());
    ReplyFrame::new(&query, transport, cookie).write_error(out, Rcode::SERVFAIL, None);
    true
}

/// Writes an error reply to an invalid query, with the RCODE `code`. The question section `question` is empty if it
/// could not be parsed. If `edns` is true, the reply has an OPT record with the option `cookie`.
pub(crate) fn write_refusal(
    out: &mut Vec<u8>,
    received: &[u8],
    code: Rcode,
    question: &[u8],
    edns: bool,
    cookie: Option<[u8; COOKIE_LEN]>,
) {
    let start = out.len();
    out.extend(&received[..2]);
    // Opcode and RD of the query.
    out.extend([
        QR | received[2] & 0x79,
        code.in_header(),
        0,
        u8::from(!question.is_empty()),
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    out.extend(question);
    if edns {
        Options { cookie, errors: &[] }.put(out, start, code, false);
    }
}

/// Options in the OPT record of a reply.
#[derive(Clone, Copy, Default)]
struct Options<'a> {
    cookie: Option<[u8; COOKIE_LEN]>,
    /// Extended errors (RFC 8914).
    errors: &'a [u16],
}

impl Options<'_> {
    /// Returns the length of the options in octets.
    fn len(&self) -> usize {
        let cookie = if self.cookie.is_some() { OPTION_HEADER_LEN + COOKIE_LEN } else { 0 };
        cookie + self.errors.len() * (OPTION_HEADER_LEN + 2)
    }

    /// Appends an OPT record with the options to the message that begins at `start`.
    fn put(&self, out: &mut Vec<u8>, start: usize, code: Rcode, dnssec_ok: bool) {
        count(out, start, ARCOUNT);
        let header = opt_header(UDP_PAYLOAD as u16, code, dnssec_ok, self.len() as u16);
        out.extend_from_slice(&header);
        if let Some(cookie) = self.cookie {
            out.extend_from_slice(&option_header(option::COOKIE, COOKIE_LEN as u16));
            out.extend_from_slice(&cookie);
        }
        for error in self.errors {
            out.extend_from_slice(&option_header(option::EXTENDED_ERROR, 2));
            out.extend_from_slice(&error.to_be_bytes());
        }
    }
}

const QR: u8 = 0x80;
const TC: u8 = 0x02;
const RA: u8 = 0x80;
/// Offsets of the record counts in the message header.
const ANCOUNT: usize = 6;
const NSCOUNT: usize = 8;
const ARCOUNT: usize = 10;
/// Compression pointer to the name in the question.
const QUESTION_NAME: [u8; 2] = [0xc0, HEADER_LEN as u8];

fn count(out: &mut [u8], start: usize, at: usize) {
    let at = start + at;
    let n = u16::from_be_bytes([out[at], out[at + 1]]).saturating_add(1);
    out[at..at + 2].copy_from_slice(&n.to_be_bytes());
}

fn put_record(out: &mut Vec<u8>, owner: &[u8], rtype: u16, ttl: u32, data: &[u8]) {
    let ([t0, t1], [c0, c1]) = (rtype.to_be_bytes(), CLASS_IN.to_be_bytes());
    let ([s0, s1, s2, s3], [l0, l1]) = (ttl.to_be_bytes(), (data.len() as u16).to_be_bytes());
    out.extend(owner);
    out.extend([t0, t1, c0, c1, s0, s1, s2, s3, l0, l1]);
    out.extend(data);
}

/// Appends the records of a local answer to the message that begins at `start`.
fn put_local(out: &mut Vec<u8>, start: usize, answer: &LocalAnswer, rules: &Rules<'_>) {
    let zones = &rules.policy.zones;
    let lifetime = answer.lifetime(rules.now).min(zones.max_ttl);
    for record in &answer.records {
        count(out, start, ANCOUNT);
        let ttl = record.ttl.min(lifetime);
        put_record(out, &QUESTION_NAME, record.rtype, ttl, &record.data);
    }
    if let Some(zone) = &answer.zone {
        count(out, start, NSCOUNT);
        let name_server = match answer.name_server {
            NameServer::Configured => zones.name_server.wire(),
            NameServer::Apex => zone,
        };
        let data = zones.soa(name_server);
        put_record(out, zone, rtype::SOA, zones.ttl.min(lifetime), &data);
    }
}

/// Converts a local answer into the form of an upstream's response to `question` (name, type and
/// class in wire format).
pub(crate) fn local_outcome(question: &[u8], answer: &LocalAnswer, rules: &Rules<'_>) -> Outcome {
    let mut message = vec![0, 0, QR, RA | answer.rcode.in_header(), 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend(question);
    put_local(&mut message, 0, answer, rules);
    match Answer::parse(&message, question, &TtlLimits::default()) {
        Ok(answer) => Outcome::Answered(CachedAnswer::fresh(Arc::new(answer))),
        Err(_) => Outcome::Failed(Failure::Malformed),
    }
}

/// Length of a synthesized record in octets: pointer, type, class, TTL, length, address.
const AAAA_LEN: usize = 28;

/// Maximum number of records among which duplicates are found by linear search. For more records, a hash table is
/// used.
const FEW: usize = 32;

/// Returns an AAAA record for the name of the question.
#[inline]
fn aaaa_record(ttl: u32, address: Ipv6Addr) -> [u8; AAAA_LEN] {
    let mut record = [0; AAAA_LEN];
    record[..2].copy_from_slice(&QUESTION_NAME);
    record[2..4].copy_from_slice(&rtype::AAAA.to_be_bytes());
    record[4..6].copy_from_slice(&CLASS_IN.to_be_bytes());
    record[6..10].copy_from_slice(&ttl.to_be_bytes());
    record[10..12].copy_from_slice(&16_u16.to_be_bytes());
    record[12..].copy_from_slice(&address.octets());
    record
}

/// True if one of the synthesized records in `records` has this address.
fn has_record(records: &[u8], address: Ipv6Addr) -> bool {
    records.chunks_exact(AAAA_LEN).any(|record| record[12..] == address.octets())
}

/// Returns the TTL of synthesized records: the remaining TTL of the A records, which is the same for all of them, but
/// at most `limit` (RFC 6147 §5.1.7).
#[inline]
pub(crate) fn synthetic_ttl(a: &CachedAnswer, limit: u32) -> u32 {
    let first = a.answer.answers().find(|record| record.rtype == rtype::A);
    first.map_or(0, |record| a.left(record.ttl)).min(limit)
}

/// Writes records of an answer until the reply exceeds its limit. Returns `None` if a record is
/// malformed.
fn push_records<'a, B>(
    builder: &mut B,
    kept: &'a CachedAnswer,
    mut records: impl Iterator<Item = AnswerRecord<'a>>,
) -> Option<()>
where
    B: RecordSectionBuilder<Compressor> + Deref<Target = MessageBuilder<Compressor>>,
{
    while !builder.as_target().is_full() {
        let Some(record) = records.next() else { break };
        builder.push(aged(kept.answer.read(&record)?, kept)).ok()?;
    }
    Some(())
}

fn aged<'a>(mut record: ReadRecord<'a>, kept: &CachedAnswer) -> ReadRecord<'a> {
    record.set_ttl(Ttl::from_secs(kept.left(record.ttl().as_secs())));
    record
}

/// Writes the aliases of all answers. The A answer may contain aliases that the AAAA answer lacks.
fn push_all_aliases(answer: &mut AnswerBuilder<Compressor>, aliases: AliasChain<'_>) -> Option<()> {
    aliases.answers().try_for_each(|kept| push_aliases(answer, kept))
}

/// Finishes a NODATA message with an SOA record of this server. This is necessary if the upstream answer contains data,
/// which is withheld, or lacks an SOA record. The TTLs of the withheld records limit the TTL of the SOA record (RFC
/// 2308 §3). If `synthesized` is true, A records are withheld because AAAA records can be synthesized. The lifetime of
/// the prefixes then limits the TTL too.
fn with_generated_soa(
    answer: AnswerBuilder<Compressor>,
    aliases: AliasChain<'_>,
    last: &CachedAnswer,
    rules: &Rules<'_>,
    synthesized: bool,
) -> Option<Compressor> {
    let zones = &rules.policy.zones;
    let lasting = aliases.answers().chain([last]).map(|kept| kept.left(kept.answer.ttl()));
    let known = if synthesized { rules.lifetime() } else { u32::MAX };
    let ttl = Ttl::from_secs(lasting.min().unwrap_or(0).min(zones.ttl).min(known));
    let owner = Name::from_octets(last.answer.target()).ok()?;
    let data = zones.soa(zones.name_server.wire());
    let data = UnknownRecordData::from_octets(Rtype::SOA, data).ok()?;
    let mut authority = answer.authority();
    authority.push(Record::new(owner, Class::IN, ttl, data)).ok()?;
    Some(authority.additional().finish())
}

/// Writes the whole answer section except for the AAAA records to be removed.
fn push_stripped(
    answer: &mut AnswerBuilder<Compressor>,
    kept: &CachedAnswer,
    policy: &Policy,
    strip: Strip,
) -> Option<()> {
    let is_hidden = |record: &AnswerRecord<'_>| match record.rtype {
        rtype::AAAA => <[u8; 16]>::try_from(record.data)
            .is_ok_and(|address| strip.hides(address.into(), policy)),
        // The signatures cover the whole RRset and no longer match when records are removed.
        _ => strip != Strip::Nothing && record.covered() == Some(rtype::AAAA),
    };
    push_records(answer, kept, kept.answer.answers().filter(|record| !is_hidden(record)))
}

/// Appends AAAA records that are synthesized from the A records. At most [`MAX_SYNTHESIZED`] records are appended.
/// Their owner is the name at the end of the alias chain (RFC 6147 §5.1.7).
fn push_synthesized(
    answer: &mut AnswerBuilder<Compressor>,
    a: &CachedAnswer,
    rules: &Rules<'_>,
    limit: u32,
) -> Option<()> {
    let ttl = synthetic_ttl(a, limit.min(rules.lifetime()));
    let owner = Name::from_octets(a.answer.target()).ok()?;
    let mut synthesized = HashSet::new();
    let mut written = None;
    for v6 in addresses(&a.answer).flat_map(|v4| rules.policy.embed(v4, rules.client)) {
        if answer.as_target().is_full() || synthesized.len() == MAX_SYNTHESIZED {
            break;
        }
        if !synthesized.insert(v6) {
            continue;
        }
        if let Some(owner) = written {
            answer.push(Synthesized { owner, ttl, address: v6 }).ok()?;
        } else {
            let (ttl, data) = (Ttl::from_secs(ttl), Aaaa::new(v6));
            answer.push(Record::new(&owner, Class::IN, ttl, data)).ok()?;
            written = answer.as_target().place_of(&owner);
        }
    }
    Some(())
}

/// A synthesized AAAA record. Its owner name occurs earlier in the message.
struct Synthesized {
    /// Offset of the owner name in the message. The record's compression pointer has this target.
    owner: u16,
    /// TTL in seconds.
    ttl: u32,
    address: Ipv6Addr,
}

impl ComposeRecord for Synthesized {
    fn compose_record<Target: Composer + ?Sized>(
        &self,
        target: &mut Target,
    ) -> Result<(), Target::AppendError> {
        let mut record = Vec::with_capacity(AAAA_LEN);
        let owner = (0xc000 | self.owner).to_be_bytes();
        put_record(&mut record, &owner, rtype::AAAA, self.ttl, &self.address.octets());
        target.append_slice(&record)
    }
}

fn push_aliases(answer: &mut AnswerBuilder<Compressor>, kept: &CachedAnswer) -> Option<()> {
    let is_of_alias = |rtype: u16| matches!(rtype, rtype::CNAME | rtype::DNAME);
    let belongs = |record: &AnswerRecord<'_>| {
        is_of_alias(record.rtype) || record.covered().is_some_and(is_of_alias)
    };
    push_records(answer, kept, kept.answer.answers().filter(belongs))
}

#[cfg(test)]
mod tests;
