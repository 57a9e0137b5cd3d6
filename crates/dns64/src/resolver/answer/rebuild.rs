//! Rebuilds a message from the records that belong to its answer.

use domain::base::iana::{Class, Rtype};
use domain::base::message::RecordSection;
use domain::base::name::Name;
use domain::base::rdata::UnknownRecordData;
use domain::base::{
    Message as DomainMessage, MessageBuilder, ParsedName, ParsedRecord, Record, Ttl,
};
use domain::dep::octseq::Parser;
use domain::rdata::{AllRecordData, Cname};

use super::aliases::{Aliases, Item};
use super::asked::{Unusable, UpstreamQuestion};
use super::survey::is_of_transport;
use crate::name::compressor::Compressor;

/// Builds a message with the answer records of the alias chain, in order, and without hop-by-hop
/// records (OPT, TSIG). Signatures are removed if the question says so.
pub(super) fn rebuild(
    message: &[u8],
    aliases: &Aliases<'_>,
    asked: UpstreamQuestion<'_>,
) -> Result<Vec<u8>, Unusable> {
    write(message, aliases, asked).ok_or(Unusable::Malformed)
}

fn write(message: &[u8], aliases: &Aliases<'_>, asked: UpstreamQuestion<'_>) -> Option<Vec<u8>> {
    let parsed = DomainMessage::from_slice(message).ok()?;
    let (question, answer, authority, additional) = parsed.sections().ok()?;
    let target = Compressor::new(message.len(), usize::from(u16::MAX));
    let mut builder = MessageBuilder::from_target(target).ok()?;
    *builder.header_mut() = parsed.header();
    let mut out = builder.question();
    for asked in question {
        out.push(asked.ok()?).ok()?;
    }

    // Only records that are kept are parsed; the others may be malformed.
    let mut out = out.answer();
    let mut records: Vec<_> = all(answer)?.into_iter().map(Some).collect();
    for item in &aliases.items {
        match item {
            Item::Record(number) => {
                let record = records.get_mut(*number)?.take()?;
                if !asked.drops(record.rtype().to_int()) {
                    out.push(whole(record)?).ok()?;
                }
            }
            Item::Cname(made) => {
                let (owner, target) =
                    (Name::from_octets(&made.owner).ok()?, Name::from_octets(&made.target).ok()?);
                out.push(Record::new(
                    owner,
                    Class::IN,
                    Ttl::from_secs(made.ttl),
                    Cname::new(target),
                ))
                .ok()?;
            }
        }
        fits(&out)?;
    }
    let mut out = out.authority();
    for (number, record) in all(authority)?.into_iter().enumerate() {
        let rtype = record.rtype().to_int();
        if aliases.keeps_authority(number) && !is_of_transport(rtype) {
            let record = whole(record)?;
            let covered = || match record.data() {
                AllRecordData::Rrsig(signature) => Some(signature.type_covered().to_int()),
                _ => None,
            };
            if asked.drops_authority(rtype, covered) {
                continue;
            }
            out.push(record).ok()?;
            fits(&out)?;
        }
    }
    let mut out = out.additional();
    for (record, is_kept) in all(additional)?.into_iter().zip(&aliases.additional) {
        if *is_kept && !asked.drops(record.rtype().to_int()) {
            out.push(whole(record)?).ok()?;
            fits(&out)?;
        }
    }
    Some(out.finish().into_octets())
}

/// Checks the length of the rebuilt message. Returns `None` if it exceeds the maximum length of a message. This can
/// happen because names may compress less well in a different order.
fn fits(out: &MessageBuilder<Compressor>) -> Option<()> {
    (!out.as_target().is_full()).then_some(())
}

fn all(section: RecordSection<'_, [u8]>) -> Option<Vec<ParsedRecord<'_, [u8]>>> {
    section.collect::<Result<_, _>>().ok()
}

/// Parses a record. Data with malformed service parameters is kept as unknown record data, because
/// only the client may reject it (RFC 9460 §2.2).
fn whole(record: ParsedRecord<'_, [u8]>) -> Option<ReadRecord<'_>> {
    let is_service = matches!(record.rtype(), Rtype::HTTPS | Rtype::SVCB);
    if !is_service || record.to_any_record::<AllRecordData<_, _>>().is_ok() {
        return record.into_any_record().ok();
    }
    let raw = record.into_record::<UnknownRecordData<&[u8]>>().ok()??;
    let (owner, class, ttl) = (*raw.owner(), raw.class(), raw.ttl());
    Some(Record::new(owner, class, ttl, AllRecordData::Unknown(raw.into_data())))
}

/// A record, as parsed by the crate `domain`.
pub(crate) type ReadRecord<'a> =
    Record<ParsedName<&'a [u8]>, AllRecordData<&'a [u8], ParsedName<&'a [u8]>>>;

/// Parses the record at an offset in a message. Returns `None` if the record is malformed.
pub(super) fn read_at(message: &[u8], at: usize) -> Option<ReadRecord<'_>> {
    let mut parser = Parser::from_ref(message);
    parser.seek(at).ok()?;
    whole(ParsedRecord::parse(&mut parser).ok()?)
}
