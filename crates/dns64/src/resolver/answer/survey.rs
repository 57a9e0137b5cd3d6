//! A single pass over an upstream message. The pass collects the contents, and determines whether
//! the message can be cached unchanged.

use std::ops::Range;

use smallvec::SmallVec;
use wire::edns::{OPT_LEN, Opt, ede, option};
use wire::template::HEADER_LEN;
use wire::view::{Malformed, Message, NameReader, Record, rtype};

use super::asked::{Unusable, UpstreamQuestion, sane};
use crate::name::{LowerName, is_at_or_below};

/// Summary of the answer records.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// True if there are records of the queried type.
    pub(super) has_data: bool,
    /// True if there are RRSIG records among the answer records.
    pub(super) signed: bool,
    /// Lowest TTL of the answer records, in seconds.
    pub(super) min_ttl: u32,
}

impl Facts {
    pub(super) const NONE: Facts = Facts { has_data: false, signed: false, min_ttl: u32::MAX };

    #[inline]
    pub(super) fn note(&mut self, rtype: u16, ttl: u32, asked: UpstreamQuestion<'_>) {
        self.has_data |= rtype == asked.qtype || asked.qtype == rtype::ANY;
        self.signed |= rtype == rtype::RRSIG;
        self.min_ttl = self.min_ttl.min(sane(ttl));
    }
}

/// An SOA in the authority section.
pub(super) struct NegativeSoa {
    owner: usize,
    ttl_at: usize,
    /// Negative TTL in seconds: the SOA's TTL or its MINIMUM, whichever is less (RFC 2308 §5).
    pub(super) ttl: u32,
}

/// Facts about an upstream message, collected in a single pass.
pub(super) struct Survey<'a> {
    pub(super) names: NameReader<'a>,
    message: &'a [u8],
    pub(super) records_at: usize,
    /// True if all answer records have the name, class and type of the question, or are signatures
    /// of such records.
    pub(super) plain: bool,
    /// True if every compression pointer leads to octets that are part of a name.
    steady: bool,
    /// True if the message contains records that must not be forwarded, or records after OPT. Records after OPT would
    /// move when OPT is removed.
    must_rebuild: bool,
    /// Summary of the answer section. It is not used if the alias chain of the message is followed.
    pub(super) facts: Facts,
    pub(super) signed_authority: bool,
    /// True if the authority section has NS records.
    has_ns: bool,
    /// The SOA records in the authority section.
    negative_soas: SmallVec<[NegativeSoa; 1]>,
    /// Signatures of SOAs in the authority section, each with the offsets of its owner and its TTL.
    soa_signatures: SmallVec<[(usize, usize); 1]>,
    /// Offsets of the TTLs of all records except OPT, as stored in [`Answer`](super::Answer).
    pub(super) ttls: SmallVec<[[u8; 2]; 16]>,
    /// Offset of the end of the last record except OPT.
    pub(super) end: usize,
    /// Number of additional records except OPT.
    pub(super) arcount: u16,
    /// Upper eight bits of the RCODE, from the OPT record.
    pub(super) rcode_bits: u8,
    pub(super) extended_error: Option<u16>,
    /// Octet ranges of the names in the message, in ascending order. Names that consist only of a pointer to the
    /// question's name are omitted.
    ranges: SmallVec<[Range<usize>; 8]>,
}

/// The compression pointer to the question's name. Most owner names are encoded this way.
const TO_QUESTION: [u8; 2] = [0xc0, HEADER_LEN as u8];

impl<'a> Survey<'a> {
    /// Returns the facts that are known before the records are read ([`Survey::scan`]).
    #[inline]
    pub(super) fn new(view: &Message<'a>, message: &'a [u8], records_at: usize) -> Survey<'a> {
        Survey {
            names: view.names(),
            message,
            records_at,
            plain: true,
            steady: true,
            must_rebuild: false,
            facts: Facts::NONE,
            signed_authority: false,
            has_ns: false,
            negative_soas: SmallVec::new(),
            soa_signatures: SmallVec::new(),
            ttls: SmallVec::new(),
            end: records_at,
            arcount: 0,
            rcode_bits: 0,
            extended_error: None,
            ranges: SmallVec::new(),
        }
    }

    /// Reads all records of the message.
    pub(super) fn scan(
        &mut self,
        view: &Message<'a>,
        asked: UpstreamQuestion<'_>,
    ) -> Result<(), Unusable> {
        if self.message.len() > usize::from(u16::MAX) {
            return Err(Unusable::Malformed);
        }
        self.ranges.push(HEADER_LEN..self.records_at - 4);
        let at = self.walk_answers(view, asked)?;
        let at = self.walk_authority(view, at, asked)?;
        self.walk_additional(view, at, asked)?;
        Ok(())
    }

    /// True if the message can be cached unchanged, without regard to the order of its answer records. The caller
    /// checks that they are in the order of the alias chain.
    pub(super) fn is_clean(&self) -> bool {
        self.steady && !self.must_rebuild
    }

    /// True if the answer section or the authority section contains signatures.
    pub(super) fn is_signed(&self) -> bool {
        self.facts.signed || self.signed_authority
    }

    /// Adds the facts of the original message that are lost when it is rebuilt: its EDNS part, and
    /// the presence of NS records.
    pub(super) fn add_facts_of(&mut self, original: &Survey<'_>) {
        self.rcode_bits = original.rcode_bits;
        self.extended_error = original.extended_error;
        self.has_ns = original.has_ns;
    }

    /// Returns the question's name with the letter case of the message.
    pub(super) fn question_name(&self) -> &'a [u8] {
        &self.message[HEADER_LEN..self.records_at - 4]
    }

    /// Returns the SOA that determines the negative TTL for `name`. An SOA of an unrelated zone
    /// does not apply.
    pub(super) fn negative_soa(&self, name: &[u8]) -> Option<&NegativeSoa> {
        let is_above = |soa: usize| {
            let mut zone = [0; 255];
            self.names.copy_name(soa, &mut zone).is_ok_and(|len| is_at_or_below(name, &zone[..len]))
        };
        self.negative_soas.iter().find(|soa| is_above(soa.owner))
    }

    /// True if the message is a referral: the authority section has NS records and no SOA (RFC 2308 §2.2). The caller
    /// has checked that the message has no records of the queried name.
    pub(super) fn is_referral(&self) -> bool {
        self.has_ns && self.negative_soas.is_empty()
    }

    /// Returns the TTL offsets of a negative answer's SOA, of all other SOAs with the same owner,
    /// and of their signatures. A signature has the TTL of its RRset (RFC 4034 §3).
    pub(super) fn ttls_of(&self, negative_soa: &NegativeSoa) -> impl Iterator<Item = usize> {
        let soas = self.negative_soas.iter().map(|soa| (soa.owner, soa.ttl_at));
        let all = soas.chain(self.soa_signatures.iter().copied());
        let is_its = move |owner: usize| {
            owner == negative_soa.owner
                || self.names.same_name(owner, negative_soa.owner) == Ok(true)
        };
        all.filter(move |&(owner, _)| is_its(owner)).map(|(_, ttl_at)| ttl_at)
    }

    fn walk_answers(
        &mut self,
        view: &Message<'a>,
        asked: UpstreamQuestion<'_>,
    ) -> Result<usize, Unusable> {
        let mut records = view.records(self.records_at, view.ancount());
        for record in records.by_ref() {
            let record = record?;
            self.check(view, &record)?;
            let wanted = asked.qtype == rtype::ANY
                || record.rtype == asked.qtype
                || record.rtype == rtype::RRSIG;
            let proper = record.class == asked.qclass && !is_of_transport(record.rtype);
            self.plain = self.plain
                && wanted
                && proper
                && (self.is_to_question(&record.owner_octets())
                    || self.names.same_name(record.owner, HEADER_LEN)?);
            self.facts.note(record.rtype, record.ttl, asked);
            self.must_rebuild |= asked.drops(record.rtype);
            self.keeps(&record);
        }
        self.end = records.offset();
        Ok(self.end)
    }

    fn walk_authority(
        &mut self,
        view: &Message<'a>,
        at: usize,
        asked: UpstreamQuestion<'_>,
    ) -> Result<usize, Unusable> {
        let mut records = view.records(at, view.nscount());
        for record in records.by_ref() {
            let record = record?;
            self.check(view, &record)?;
            self.must_rebuild |=
                asked.drops_authority(record.rtype, || type_covered(record.rtype, record.data));
            match record.rtype {
                rtype::SOA if record.class == asked.qclass => {
                    if let Some(minimum) = record.data.last_chunk::<4>() {
                        let ttl = sane(record.ttl).min(sane(u32::from_be_bytes(*minimum)));
                        let (owner, ttl_at) = (record.owner, record.ttl_at());
                        self.negative_soas.push(NegativeSoa { owner, ttl_at, ttl });
                    }
                }
                rtype::RRSIG => {
                    self.signed_authority = true;
                    if type_covered(record.rtype, record.data) == Some(rtype::SOA) {
                        self.soa_signatures.push((record.owner, record.ttl_at()));
                    }
                }
                rtype::NS => self.has_ns = true,
                other => self.must_rebuild |= is_of_transport(other),
            }
            self.keeps(&record);
        }
        self.end = records.offset();
        Ok(self.end)
    }

    fn walk_additional(
        &mut self,
        view: &Message<'a>,
        at: usize,
        asked: UpstreamQuestion<'_>,
    ) -> Result<(), Unusable> {
        let mut records = view.records(at, view.arcount());
        let mut opts = 0;
        while let Some(record) = records.next() {
            let record = record?;
            self.check(view, &record)?;
            match Opt::from_record(&record) {
                Some(opt) if opts == 0 && record.data_at == record.owner + OPT_LEN => {
                    opts = 1;
                    self.rcode_bits = opt.rcode_bits;
                    self.extended_error = extended_error(&opt);
                }
                // RFC 6891 §6.1.1: there is at most one OPT, owned by the root.
                Some(_) => opts = 2,
                None if is_of_transport(record.rtype) => self.must_rebuild = true,
                None => {
                    // Records that follow OPT would move when OPT is removed, so that pointers to
                    // them would be wrong. The rebuild then checks whether the owner is related to
                    // the question.
                    self.must_rebuild |= opts > 0 || asked.drops(record.rtype);
                    self.plain = false;
                    self.arcount += 1;
                    self.end = records.offset();
                    self.keeps(&record);
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn keeps(&mut self, record: &Record<'_>) {
        // A message has at most 65 535 octets.
        self.ttls.push((record.ttl_at() as u16).to_be_bytes());
    }

    /// Checks the format of a record's data. Also checks whether the compression pointers in the data lead only to
    /// octets of names.
    #[inline]
    fn check(&mut self, view: &Message<'a>, record: &Record<'a>) -> Result<(), Malformed> {
        self.visit(record.owner_octets())?;
        let mut names = Ok(());
        view.check_data(record, |name| names = names.and_then(|()| self.visit(name)))?;
        names
    }

    /// Records the octet range of a name. Also checks whether its compression pointers lead only to octets of names.
    #[inline]
    fn visit(&mut self, name: Range<usize>) -> Result<(), Malformed> {
        let octets = self.message.get(name.clone()).ok_or(Malformed)?;
        if *octets == TO_QUESTION {
            return Ok(());
        }
        self.ranges.push(name.clone());
        if !is_written_out(octets) {
            self.follow(name.start)?;
        }
        Ok(())
    }

    /// True if a name consists only of a pointer to the question's name, which has been validated.
    #[inline]
    fn is_to_question(&self, name: &Range<usize>) -> bool {
        self.message.get(name.clone()) == Some(&TO_QUESTION)
    }

    /// Follows the compression pointers of a name, and records whether they lead only to octets of names.
    fn follow(&mut self, name: usize) -> Result<(), Malformed> {
        let ranges = &self.ranges;
        // Names are visited in order, so only the last range that begins at or before these octets
        // can contain them.
        let is_name = |octets: &Range<usize>| {
            let after = ranges.partition_point(|range| range.start <= octets.start);
            after.checked_sub(1).is_some_and(|i| octets.end <= ranges[i].end)
        };
        self.steady &= self.names.octets_lie_in(name, is_name)?;
        Ok(())
    }
}

/// True if the encoded name certainly contains no compression pointer. If the octet before the final zero is above
/// 0xbf, this is not certain, because the two octets could be a pointer.
#[inline]
fn is_written_out(octets: &[u8]) -> bool {
    matches!(octets, [0] | [.., 0..=0xbf, 0])
}

/// True for hop-by-hop types: OPT (RFC 6891 §6.1.1) and TSIG (RFC 8945 §5.1).
pub(super) fn is_of_transport(rtype: u16) -> bool {
    matches!(rtype, rtype::OPT | rtype::TSIG)
}

/// Returns the type covered by an RRSIG (RFC 4034 §3.1); `None` for other types.
#[inline]
pub(super) fn type_covered(rtype: u16, data: &[u8]) -> Option<u16> {
    let covered = data.first_chunk::<2>().filter(|_| rtype == rtype::RRSIG)?;
    Some(u16::from_be_bytes(*covered))
}

/// Returns the extended error of an OPT record. Validation errors take precedence, because they
/// determine whether AAAA records may be synthesized.
fn extended_error(opt: &Opt<'_>) -> Option<u16> {
    let codes =
        opt.options().map_while(Result::ok).filter(|(code, _)| *code == option::EXTENDED_ERROR);
    let codes =
        codes.filter_map(|(_, data)| data.first_chunk::<2>().map(|code| u16::from_be_bytes(*code)));
    codes.min_by_key(|code| !ede::is_validation_failure(*code))
}

/// Returns the name at `offset` in lower case.
pub(super) fn lower(names: &NameReader<'_>, offset: usize) -> Result<LowerName, Malformed> {
    let mut octets = [0; 255];
    let len = names.copy_name(offset, &mut octets)?;
    Ok(LowerName::from_wire(&octets[..len]))
}
