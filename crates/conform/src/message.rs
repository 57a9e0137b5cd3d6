//! DNS messages as used in this crate. A message owns all its data, and can represent every error that a server makes.
//!
//! The crate `domain` parses and composes the messages. RDATA is stored as uncompressed octets, so that records can be
//! compared, and records of unknown types can be sent.

use domain::base::iana::{Class, Opcode, OptRcode, OptionCode, Rtype};
use domain::base::message_builder::{AdditionalBuilder, PushError};
use domain::base::name::FlattenInto;
use domain::base::rdata::UnknownRecordData;
use domain::base::wire::ParseError;
use domain::base::{Message as Parsed, MessageBuilder, ToName};
use domain::rdata::AllRecordData;

/// A domain name in its original letter case.
pub type Name = domain::base::Name<Vec<u8>>;

/// UDP payload size that checks offer by default. RFC 9715 §3.2 recommends at most 1400.
pub const PAYLOAD: u16 = 1232;

/// One resource record with uncompressed data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Owner name.
    pub owner: Name,
    /// Type of the record.
    pub rtype: Rtype,
    /// Class of the record.
    pub class: Class,
    /// TTL in seconds.
    pub ttl: u32,
    /// RDATA in wire format, with uncompressed names.
    pub data: Vec<u8>,
}

/// A question of a DNS message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// Queried name.
    pub name: Name,
    /// Queried type.
    pub qtype: Rtype,
    /// Queried class.
    pub class: Class,
}

/// The fields of an OPT record (RFC 6891).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edns {
    /// Maximum UDP payload that the sender accepts, in octets.
    pub payload: u16,
    /// EDNS version; only 0 exists.
    pub version: u8,
    /// The DO bit (RFC 3225).
    pub dnssec_ok: bool,
    /// Codes and contents of the EDNS options.
    pub options: Vec<(u16, Vec<u8>)>,
}

impl Default for Edns {
    fn default() -> Edns {
        Edns { payload: PAYLOAD, version: 0, dnssec_ok: false, options: Vec::new() }
    }
}

/// Flags of the header (RFC 1035 §4.1.1, RFC 4035 §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the bits of a header")]
pub struct Flags {
    /// QR: the message is a response.
    pub qr: bool,
    /// AA: authoritative answer.
    pub aa: bool,
    /// TC: truncated.
    pub tc: bool,
    /// RD: recursion desired.
    pub rd: bool,
    /// RA: recursion available.
    pub ra: bool,
    /// AD: authentic data.
    pub ad: bool,
    /// CD: checking disabled.
    pub cd: bool,
}

/// A complete message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Message ID.
    pub id: u16,
    /// The opcode; 0 is QUERY.
    pub opcode: u8,
    /// The flags.
    pub flags: Flags,
    /// Response code, including the upper eight bits from the OPT record, if there is one.
    pub rcode: u16,
    /// The question section. A valid query has one entry.
    pub questions: Vec<Question>,
    /// The answer section.
    pub answer: Vec<Record>,
    /// The authority section.
    pub authority: Vec<Record>,
    /// The additional section, without OPT.
    pub additional: Vec<Record>,
    /// The OPT record; if there are several, the last one.
    pub edns: Option<Edns>,
    /// Number of OPT records.
    pub opt_records: usize,
}

/// RCODEs used by the checks and the test authoritative server (IANA, DNS RCODEs).
pub mod rcode {
    /// No error.
    pub const NOERROR: u16 = 0;
    /// Format error.
    pub const FORMERR: u16 = 1;
    /// Server failure.
    pub const SERVFAIL: u16 = 2;
    /// The name does not exist.
    pub const NXDOMAIN: u16 = 3;
    /// Not implemented.
    pub const NOTIMP: u16 = 4;
    /// Refused.
    pub const REFUSED: u16 = 5;
    /// Bad EDNS version (RFC 6891 §9).
    pub const BADVERS: u16 = 16;
}

/// Creates a name from text.
///
/// # Panics
/// Panics if `text` is not a domain name. The names in checks are literals, so an invalid name is a defect of a check.
pub fn name(text: &str) -> Name {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

impl Record {
    /// Creates a record of class IN with a TTL in seconds.
    pub fn new(owner: Name, rtype: Rtype, ttl: u32, data: Vec<u8>) -> Record {
        Record { owner, rtype, class: Class::IN, ttl, data }
    }

    /// Creates an A record with a TTL in seconds.
    pub fn a(owner: Name, ttl: u32, address: std::net::Ipv4Addr) -> Record {
        Record::new(owner, Rtype::A, ttl, address.octets().to_vec())
    }

    /// Creates an AAAA record with a TTL in seconds.
    pub fn aaaa(owner: Name, ttl: u32, address: std::net::Ipv6Addr) -> Record {
        Record::new(owner, Rtype::AAAA, ttl, address.octets().to_vec())
    }

    /// Creates a record with one name as its data: CNAME, DNAME, NS or PTR.
    pub fn pointing(owner: Name, rtype: Rtype, ttl: u32, target: &Name) -> Record {
        Record::new(owner, rtype, ttl, target.as_slice().to_vec())
    }

    /// Creates a SOA record with the given MINIMUM (RFC 2308 §4).
    pub fn soa(zone: &Name, ttl: u32, minimum: u32) -> Record {
        let mut data =
            [b"\x02ns".as_slice(), zone.as_slice(), b"\x0ahostmaster", zone.as_slice()].concat();
        for number in [1, 86_400, 7_200, 604_800, minimum] {
            data.extend(number.to_be_bytes());
        }
        Record::new(zone.clone(), Rtype::SOA, ttl, data)
    }

    /// Returns the address of an A record.
    pub fn ipv4(&self) -> Option<std::net::Ipv4Addr> {
        let octets: [u8; 4] = self.data.as_slice().try_into().ok()?;
        (self.rtype == Rtype::A).then(|| octets.into())
    }

    /// Returns the address of an AAAA record.
    pub fn ipv6(&self) -> Option<std::net::Ipv6Addr> {
        let octets: [u8; 16] = self.data.as_slice().try_into().ok()?;
        (self.rtype == Rtype::AAAA).then(|| octets.into())
    }

    /// Returns the name in the data of a CNAME, DNAME, NS or PTR record.
    pub fn target(&self) -> Option<Name> {
        [Rtype::CNAME, Rtype::DNAME, Rtype::NS, Rtype::PTR]
            .contains(&self.rtype)
            .then(|| Name::from_octets(self.data.clone()).ok())?
    }

    /// Returns MINIMUM of a SOA record, in seconds.
    pub fn minimum(&self) -> Option<u32> {
        let at = self.data.len().checked_sub(4).filter(|_| self.rtype == Rtype::SOA)?;
        Some(u32::from_be_bytes(self.data[at..].try_into().ok()?))
    }
}

impl Message {
    /// Creates a query with RD, an unpredictable ID, and an OPT record that offers [`PAYLOAD`].
    pub fn query(name: &Name, qtype: Rtype) -> Message {
        Message {
            id: rand::random(),
            opcode: 0,
            flags: Flags { rd: true, ..Flags::default() },
            rcode: 0,
            questions: vec![Question { name: name.clone(), qtype, class: Class::IN }],
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            edns: Some(Edns::default()),
            opt_records: 1,
        }
    }

    /// Creates a response without records. It copies the ID, opcode, RD, CD and question of this query, and contains an
    /// OPT record if the query does.
    pub fn response(&self) -> Message {
        Message {
            flags: Flags { qr: true, rd: self.flags.rd, cd: self.flags.cd, ..Flags::default() },
            rcode: 0,
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            edns: self
                .edns
                .as_ref()
                .map(|edns| Edns { dnssec_ok: edns.dnssec_ok, ..Edns::default() }),
            opt_records: usize::from(self.edns.is_some()),
            ..self.clone()
        }
    }

    /// Returns the question if there is exactly one.
    pub fn question(&self) -> Option<&Question> {
        match self.questions.as_slice() {
            [question] => Some(question),
            _ => None,
        }
    }

    /// Returns the records of the answer section that have this type.
    pub fn answers(&self, rtype: Rtype) -> impl Iterator<Item = &Record> {
        self.answer.iter().filter(move |record| record.rtype == rtype)
    }

    /// Parses a message.
    ///
    /// # Errors
    /// Returns an error if the message is incomplete or malformed.
    pub fn parse(octets: &[u8]) -> Result<Message, ParseError> {
        let parsed = Parsed::from_octets(octets).map_err(|_| ParseError::ShortInput)?;
        let header = parsed.header();
        let mut questions = Vec::new();
        for question in parsed.question() {
            let question = question?;
            questions.push(Question {
                name: question.qname().to_name(),
                qtype: question.qtype(),
                class: question.qclass(),
            });
        }
        let (_, answer, authority, additional) = parsed.sections()?;
        let mut edns = None;
        let mut opt_records = 0;
        let mut rcode = u16::from(header.rcode().to_int());
        let mut rest = Vec::new();
        for record in records(additional)? {
            if record.rtype != Rtype::OPT {
                rest.push(record);
                continue;
            }
            opt_records += 1;
            let [upper, version, flags, _] = record.ttl.to_be_bytes();
            rcode |= u16::from(upper) << 4;
            edns = Some(Edns {
                payload: record.class.to_int(),
                version,
                dnssec_ok: flags & 0x80 != 0,
                options: options(&record.data),
            });
        }
        Ok(Message {
            id: header.id(),
            opcode: header.opcode().to_int(),
            flags: Flags {
                qr: header.qr(),
                aa: header.aa(),
                tc: header.tc(),
                rd: header.rd(),
                ra: header.ra(),
                ad: header.ad(),
                cd: header.cd(),
            },
            rcode,
            questions,
            answer: records(answer)?,
            authority: records(authority)?,
            additional: rest,
            edns,
            opt_records,
        })
    }

    /// Returns the message in wire format with compressed owner names. Because of the compression, an owner that is
    /// equal to the queried name gets the letter case of the question. The result may be longer than any transport
    /// allows.
    ///
    /// # Panics
    /// Panics if the data of a record is longer than 65 535 octets.
    pub fn octets(&self) -> Vec<u8> {
        self.compose().expect("RDATA of a record is at most 65 535 octets long")
    }

    fn compose(&self) -> Result<Vec<u8>, PushError> {
        let target = domain::base::StaticCompressor::new(Vec::new());
        let mut builder = MessageBuilder::from_target(target).map_err(|_| PushError::ShortBuf)?;
        let header = builder.header_mut();
        header.set_id(self.id);
        header.set_opcode(Opcode::from_int(self.opcode));
        header.set_qr(self.flags.qr);
        header.set_aa(self.flags.aa);
        header.set_tc(self.flags.tc);
        header.set_rd(self.flags.rd);
        header.set_ra(self.flags.ra);
        header.set_ad(self.flags.ad);
        header.set_cd(self.flags.cd);
        header.set_rcode(OptRcode::masked_from_int(self.rcode).rcode());
        let mut builder = builder.question();
        for question in &self.questions {
            builder.push((&question.name, question.qtype, question.class))?;
        }
        let mut builder = builder.answer();
        for record in &self.answer {
            builder.push(composable(record)?)?;
        }
        let mut builder = builder.authority();
        for record in &self.authority {
            builder.push(composable(record)?)?;
        }
        let mut builder = builder.additional();
        for record in &self.additional {
            builder.push(composable(record)?)?;
        }
        if let Some(edns) = &self.edns {
            self.push_opt(edns, &mut builder)?;
        }
        Ok(builder.finish().into_target())
    }

    fn push_opt(
        &self,
        edns: &Edns,
        builder: &mut AdditionalBuilder<domain::base::StaticCompressor<Vec<u8>>>,
    ) -> Result<(), PushError> {
        builder.opt(|opt| {
            opt.set_udp_payload_size(edns.payload);
            opt.set_version(edns.version);
            opt.set_dnssec_ok(edns.dnssec_ok);
            opt.set_rcode(OptRcode::masked_from_int(self.rcode));
            for (code, content) in &edns.options {
                let len = u16::try_from(content.len()).unwrap_or(u16::MAX);
                opt.push_raw_option(OptionCode::from_int(*code), len, |target| {
                    octseq_append(target, content)
                })?;
            }
            Ok(())
        })
    }
}

fn octseq_append<T: domain::dep::octseq::OctetsBuilder + ?Sized>(
    target: &mut T,
    content: &[u8],
) -> Result<(), T::AppendError> {
    target.append_slice(content)
}

type Composable<'a> = (&'a Name, Class, u32, UnknownRecordData<&'a [u8]>);

fn composable(record: &Record) -> Result<Composable<'_>, PushError> {
    let data = UnknownRecordData::from_octets(record.rtype, record.data.as_slice())
        .map_err(|_| PushError::ShortBuf)?;
    Ok((&record.owner, record.class, record.ttl, data))
}

/// Reads all records of a section, with their data uncompressed.
fn records(
    section: domain::base::message::RecordSection<'_, &[u8]>,
) -> Result<Vec<Record>, ParseError> {
    let mut records = Vec::new();
    for record in section {
        let record = record?;
        let (owner, rtype, class) = (record.owner().to_name(), record.rtype(), record.class());
        let ttl = record.ttl().as_secs();
        // OPT is stored unchanged, so that a check can report a malformed OPT record.
        let data = if rtype == Rtype::OPT {
            let opaque = record.into_record::<UnknownRecordData<_>>()?;
            opaque.map(|record| record.data().data().to_vec()).unwrap_or_default()
        } else {
            let typed = record.to_any_record::<AllRecordData<_, domain::base::ParsedName<_>>>()?;
            let flat: AllRecordData<Vec<u8>, Name> =
                typed.data().clone().try_flatten_into().map_err(|_| ParseError::ShortInput)?;
            let mut data = Vec::new();
            domain::base::rdata::ComposeRecordData::compose_rdata(&flat, &mut data)
                .map_err(|_| ParseError::ShortInput)?;
            data
        };
        records.push(Record { owner, rtype, class, ttl, data });
    }
    Ok(records)
}

fn options(mut data: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut options = Vec::new();
    while let [c0, c1, l0, l1, rest @ ..] = data {
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        let Some((content, after)) = rest.split_at_checked(len) else { break };
        options.push((u16::from_be_bytes([*c0, *c1]), content.to_vec()));
        data = after;
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_back_as_it_was_written() {
        let mut message = Message::query(&name("x.example"), Rtype::AAAA);
        message.flags.qr = true;
        message.rcode = rcode::BADVERS;
        message.answer.push(Record::aaaa(name("x.example"), 7, "2001:db8::1".parse().unwrap()));
        message.answer.push(Record::pointing(
            name("y.example"),
            Rtype::CNAME,
            8,
            &name("z.example"),
        ));
        message.authority.push(Record::soa(&name("example"), 9, 10));
        message.additional.push(Record::a(name("ns.example"), 11, "192.0.2.1".parse().unwrap()));
        message.edns.as_mut().unwrap().options.push((15, vec![0, 29]));
        let read = Message::parse(&message.octets()).unwrap();
        assert_eq!(read, message);
        assert_eq!(read.authority[0].minimum(), Some(10));
    }
}
