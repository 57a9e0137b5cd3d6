//! AuthDNS's answers, which depend only on the query and the zone (RFC 1034 §4.3.2, RFC 2308, RFC 6891).

use std::net::Ipv4Addr;
use std::time::Duration;

use units::Share;
use wire::edns::{OPT_LEN, Opt, opt_header};
use wire::name::{Domain, LABEL_LEN, has_aaaa, native_aaaa, parse_label};
use wire::rcode::Rcode;
use wire::template::HEADER_LEN;
use wire::view::{CLASS_IN, Message, rtype};

/// Maximum UDP payload in octets, also advertised in EDNS (dnsflagday.net/2020; RFC 9715 §3.1 recommends at most 1400).
pub const MAX_UDP: usize = 1232;
/// UDP payload size, in octets, that every client accepts (RFC 1035 §2.3.4).
const MIN_UDP: usize = 512;
/// Maximum length of a reply in octets.
pub const MAX_REPLY: usize = 1024;

/// Label of the zone's name server.
const NS_LABEL: &[u8] = b"\x02ns";
/// Label of the mailbox in the SOA record.
const RNAME_LABEL: &[u8] = b"\x0ahostmaster";

/// Transport of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthTransport {
    /// UDP: the reply size is limited.
    Udp,
    /// TCP: the reply may have the maximum length of a DNS message (65 535 octets).
    Tcp,
}

/// Kind of reply to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NOERROR with an answer record.
    Answer,
    /// NOERROR without a record, because the name exists but has no record of this type.
    NoData,
    /// NXDOMAIN: the served zone has no such name.
    NxDomain,
    /// REFUSED: the name is outside the zone.
    Refused,
    /// FORMERR: the query cannot be parsed.
    FormErr,
    /// NOTIMP: the opcode is not QUERY.
    NotImp,
    /// BADVERS: the EDNS version is not supported.
    BadVers,
    /// No reply, because the message is a response or too short for a header.
    Ignored,
}

/// Types of queries that a DNS64 server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryType {
    /// Record type A. A DNS64 server synthesizes AAAA records from A records.
    A,
    /// Record type AAAA. A DNS64 server queries AAAA records to check for native addresses.
    Aaaa,
    /// Any other type, and queries without a readable question.
    Other,
}

/// Result of answering a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Length of the reply in octets; 0 if no reply is to be sent.
    pub len: usize,
    /// Kind of the reply.
    pub kind: Kind,
    /// Queried type.
    pub qtype: QueryType,
    /// Address encoded in the queried name; `None` if the name does not have the format of the tester's names.
    pub name: Option<Ipv4Addr>,
}

impl Answered {
    fn nothing_of_a_name(len: usize, kind: Kind) -> Answered {
        Answered { len, kind, qtype: QueryType::Other, name: None }
    }
}

/// The zone that AuthDNS serves.
#[derive(Clone, Debug)]
pub struct Zone {
    domain: Domain,
    aaaa_share: Share,
    ttl: u32,
    ns_address: Ipv4Addr,
    /// Prefix with which AAAA records are synthesized for names without a native AAAA record. Without a prefix, the
    /// reply to an AAAA query for these names is NODATA.
    synthesis: Option<u128>,
}

/// A reply under construction. The buffer has at least [`MAX_REPLY`] octets.
struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn count(&mut self, at: usize) {
        self.out[at + 1] += 1;
    }

    /// Appends a record. Its owner name is a pointer to offset `owner` of the message.
    #[inline]
    fn record(&mut self, section: usize, owner: usize, rtype: u16, ttl: u32, data: &[u8]) {
        self.count(section);
        self.put(&pointer(owner));
        self.put(&rtype.to_be_bytes());
        self.put(&CLASS_IN.to_be_bytes());
        self.put(&ttl.to_be_bytes());
        self.put(&(data.len() as u16).to_be_bytes());
        self.put(data);
    }
}

/// Offset of the header field ANCOUNT, the number of answer records. The constants `NSCOUNT` (authority records) and
/// `ARCOUNT` (additional records) are the offsets of the two other counts.
const ANCOUNT: usize = 6;
const NSCOUNT: usize = 8;
const ARCOUNT: usize = 10;

const AA: u8 = 0x04;
const QR: u8 = 0x80;
const TC: u8 = 0x02;

fn pointer(offset: usize) -> [u8; 2] {
    (0xc000 | offset as u16).to_be_bytes()
}

/// Fields of the query's OPT record that affect the reply (RFC 6891).
#[derive(Clone, Copy)]
struct QueryEdns {
    size: usize,
    version: u8,
    dnssec_ok: bool,
}

/// The question of a query, as references into the message.
struct Question<'a> {
    /// The name in wire format, uncompressed.
    name: &'a [u8],
    qtype: u16,
    qclass: u16,
    /// Offset of the octet after the question.
    end: usize,
}

impl Zone {
    /// Creates the zone `domain`, in which the share `aaaa_share` of the names has an AAAA record. All records have the
    /// TTL `ttl`. The zone's name server `ns` has the address `ns_address`.
    pub fn new(domain: Domain, aaaa_share: Share, ttl: Duration, ns_address: Ipv4Addr) -> Zone {
        let ttl = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX).min(i32::MAX as u32);
        Zone { domain, aaaa_share, ttl, ns_address, synthesis: None }
    }

    /// Returns the zone as seen through a DNS64 server, which synthesizes missing AAAA records with the /96 `prefix`.
    pub(crate) fn seen_through_dns64(mut self, prefix: std::net::Ipv6Addr) -> Zone {
        self.synthesis = Some(u128::from(prefix));
        self
    }

    /// Returns the name of the zone.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Returns the share of names with an AAAA record.
    pub fn aaaa_share(&self) -> Share {
        self.aaaa_share
    }

    /// Returns the TTL of all records in seconds.
    pub fn ttl(&self) -> u32 {
        self.ttl
    }

    /// Returns the address of the zone's name server.
    pub fn ns_address(&self) -> Ipv4Addr {
        self.ns_address
    }

    /// Writes the reply to `query` into `out`, which has at least [`MAX_REPLY`] octets.
    pub fn answer(&self, query: &[u8], transport: AuthTransport, out: &mut [u8]) -> Answered {
        // Responses are not answered, because two servers could answer each other forever. Messages with an incomplete
        // header are not answered either.
        let Some(message) = Message::new(query).filter(|m| !m.is_response()) else {
            return Answered::nothing_of_a_name(0, Kind::Ignored);
        };
        let mut reply = Writer { out, len: 0 };
        reply.put(&query[..2]);
        // Sets QR, and copies the opcode and RD of the query.
        reply.put(&[QR | query[2] & 0x79, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        if message.opcode() != 0 {
            reply.out[3] = Rcode::NOTIMP.in_header();
            return Answered::nothing_of_a_name(reply.len, Kind::NotImp);
        }
        let parsed = parse_question(&message, query)
            .and_then(|q| parse_edns(&message, q.end).map(|edns| (q, edns)));
        let Some((question, edns)) = parsed else {
            reply.out[3] = Rcode::FORMERR.in_header();
            return Answered::nothing_of_a_name(reply.len, Kind::FormErr);
        };
        reply.count(4);
        reply.put(&query[HEADER_LEN..question.end]);
        let qtype = match question.qtype {
            rtype::A => QueryType::A,
            rtype::AAAA => QueryType::Aaaa,
            _ => QueryType::Other,
        };
        let limit = match (transport, edns) {
            (AuthTransport::Tcp, _) => usize::from(u16::MAX),
            (AuthTransport::Udp, Some(edns)) => edns.size.clamp(MIN_UDP, MAX_UDP),
            (AuthTransport::Udp, None) => MIN_UDP,
        };
        let question_end = reply.len;
        let opt_len = if edns.is_some() { OPT_LEN } else { 0 };
        let (kind, name) = match edns {
            Some(QueryEdns { version: 1.., .. }) => (Kind::BadVers, None),
            _ => self.answer_question(&question, &mut reply),
        };
        if reply.len + opt_len > limit {
            // RFC 2181 §9: a truncated reply contains no partial RRset. The client repeats the query over TCP.
            reply.out[2] |= TC;
            reply.out[ANCOUNT..HEADER_LEN].fill(0);
            reply.len = question_end;
        }
        if let Some(edns) = edns {
            reply.count(ARCOUNT);
            let rcode = if kind == Kind::BadVers { Rcode::BADVERS } else { Rcode::NOERROR };
            reply.put(&opt_header(MAX_UDP as u16, rcode, edns.dnssec_ok, 0));
        }
        Answered { len: reply.len, kind, qtype, name }
    }

    fn answer_question(
        &self,
        question: &Question<'_>,
        reply: &mut Writer<'_>,
    ) -> (Kind, Option<Ipv4Addr>) {
        let zone = self.domain.wire();
        let Some(above) = question.name.len().checked_sub(zone.len()) else {
            return (refuse(reply), None);
        };
        let (labels, suffix) = question.name.split_at(above);
        if question.qclass != CLASS_IN
            || !suffix.eq_ignore_ascii_case(zone)
            || !ends_between_labels(labels)
        {
            return (refuse(reply), None);
        }
        reply.out[2] |= AA;
        let zone_at = HEADER_LEN + above;
        if let [15, label @ ..] = labels
            && label.len() == LABEL_LEN
            && let Some(address) = parse_label(label)
        {
            return (self.answer_name(address, question.qtype, zone_at, reply), Some(address));
        }
        let kind = match labels {
            [] => self.answer_apex(question.qtype, zone_at, reply),
            label if label.eq_ignore_ascii_case(NS_LABEL) => match question.qtype {
                rtype::A | rtype::ANY => {
                    reply.record(
                        ANCOUNT,
                        HEADER_LEN,
                        rtype::A,
                        self.ttl,
                        &self.ns_address.octets(),
                    );
                    Kind::Answer
                }
                _ => self.deny(Kind::NoData, zone_at, reply),
            },
            _ => self.deny(Kind::NxDomain, zone_at, reply),
        };
        (kind, None)
    }

    #[inline]
    fn answer_name(
        &self,
        address: Ipv4Addr,
        qtype: u16,
        zone_at: usize,
        reply: &mut Writer<'_>,
    ) -> Kind {
        match qtype {
            rtype::AAAA => {
                let aaaa = if has_aaaa(address, self.aaaa_share) {
                    native_aaaa(address).octets()
                } else if let Some(prefix) = self.synthesis {
                    (prefix | u128::from(u32::from(address))).to_be_bytes()
                } else {
                    return self.deny(Kind::NoData, zone_at, reply);
                };
                reply.record(ANCOUNT, HEADER_LEN, rtype::AAAA, self.ttl, &aaaa);
                Kind::Answer
            }
            // RFC 8482: one RRset is a sufficient answer to ANY.
            rtype::A | rtype::ANY => {
                reply.record(ANCOUNT, HEADER_LEN, rtype::A, self.ttl, &address.octets());
                Kind::Answer
            }
            _ => self.deny(Kind::NoData, zone_at, reply),
        }
    }

    fn answer_apex(&self, qtype: u16, zone_at: usize, reply: &mut Writer<'_>) -> Kind {
        match qtype {
            rtype::SOA | rtype::ANY => self.put_soa(ANCOUNT, zone_at, reply),
            rtype::NS => {
                let mut data = [0; 5];
                data[..3].copy_from_slice(NS_LABEL);
                data[3..].copy_from_slice(&pointer(zone_at));
                reply.record(ANCOUNT, zone_at, rtype::NS, self.ttl, &data);
            }
            _ => return self.deny(Kind::NoData, zone_at, reply),
        }
        Kind::Answer
    }

    /// Appends the SOA record of a negative answer, which sets the answer's TTL (RFC 2308 §2, §3).
    #[inline]
    fn deny(&self, kind: Kind, zone_at: usize, reply: &mut Writer<'_>) -> Kind {
        if kind == Kind::NxDomain {
            reply.out[3] = Rcode::NXDOMAIN.in_header();
        }
        self.put_soa(NSCOUNT, zone_at, reply);
        kind
    }

    fn put_soa(&self, section: usize, zone_at: usize, reply: &mut Writer<'_>) {
        let mut data = [0; 38];
        let mut at = 0;
        let zone = pointer(zone_at);
        let numbers = soa_numbers(self.ttl).map(u32::to_be_bytes);
        for part in [NS_LABEL, &zone, RNAME_LABEL, &zone]
            .into_iter()
            .chain(numbers.iter().map(<[u8; 4]>::as_slice))
        {
            data[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        debug_assert_eq!(at, data.len());
        reply.record(section, zone_at, rtype::SOA, self.ttl, &data);
    }
}

/// Returns serial, refresh, retry, expire and minimum of the zone's SOA. The minimum is the TTL, so negative answers
/// are cached as long as positive answers.
pub(super) fn soa_numbers(ttl: u32) -> [u32; 5] {
    [1, 86_400, 7_200, 604_800, ttl]
}

fn refuse(reply: &mut Writer<'_>) -> Kind {
    reply.out[3] = Rcode::REFUSED.in_header();
    Kind::Refused
}

/// Returns true if `labels` ends at a label boundary. `labels` is the part of a name before the zone's name.
fn ends_between_labels(mut labels: &[u8]) -> bool {
    while let [len, rest @ ..] = labels {
        match rest.get(usize::from(*len)..) {
            Some(next) => labels = next,
            None => return false,
        }
    }
    true
}

/// Parses the question. Returns `None` if it is malformed, or if it is not the only question.
#[inline]
fn parse_question<'a>(message: &Message<'_>, query: &'a [u8]) -> Option<Question<'a>> {
    if message.qdcount() != 1 {
        return None;
    }
    let mut at = HEADER_LEN;
    loop {
        let len = usize::from(*query.get(at)?);
        // Compression is an error here, because only the header precedes the first name.
        if len > 63 {
            return None;
        }
        at += 1 + len;
        if len == 0 {
            break;
        }
    }
    let name = query.get(HEADER_LEN..at).filter(|name| name.len() <= 255)?;
    let fixed: &[u8; 4] = query.get(at..)?.first_chunk()?;
    let qtype = u16::from_be_bytes([fixed[0], fixed[1]]);
    let qclass = u16::from_be_bytes([fixed[2], fixed[3]]);
    Some(Question { name, qtype, qclass, end: at + 4 })
}

/// Parses the OPT record. The outer `None` means a format error; the inner `None` means that there is no OPT record.
///
/// A query has at most one OPT record, in the additional section and owned by the root (RFC 6891 §6.1.1).
#[inline]
#[expect(clippy::option_option, reason = "format error and absence are different things here")]
fn parse_edns(message: &Message<'_>, end: usize) -> Option<Option<QueryEdns>> {
    if message.ancount() == 0 && message.nscount() == 0 && message.arcount() == 0 {
        return Some(None);
    }
    let mut before = message.records(end, message.ancount().checked_add(message.nscount())?);
    for record in before.by_ref() {
        record.ok().filter(|r| r.rtype != rtype::OPT)?;
    }
    let mut edns = None;
    for record in message.records(before.offset(), message.arcount()) {
        let record = record.ok()?;
        let Some(opt) = Opt::from_record(&record) else { continue };
        let is_root = record.data_at == record.owner + OPT_LEN;
        if edns.is_some() || !is_root {
            return None;
        }
        edns = Some(QueryEdns {
            size: opt.payload.into(),
            version: opt.version,
            dnssec_ok: opt.dnssec_ok,
        });
    }
    Some(edns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::iana::{Class, Rcode, Rtype};
    use domain::base::{Message as Reader, MessageBuilder, Name};
    use domain::rdata::AllRecordData;
    use proptest::prelude::*;

    fn zone(percent: u8) -> Zone {
        let ns = Ipv4Addr::new(198, 18, 0, 2);
        Zone::new(Domain::dns64perf(), Share::percent(percent), Duration::from_secs(60), ns)
    }

    fn query(name: &str, qtype: Rtype) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(0x1234);
        builder.header_mut().set_rd(true);
        let mut question = builder.question();
        question.push((name.parse::<Name<Vec<u8>>>().unwrap(), qtype, Class::IN)).unwrap();
        question.finish()
    }

    fn with_edns(name: &str, qtype: Rtype, version: u8) -> Vec<u8> {
        let mut bytes = query(name, qtype);
        bytes[11] = 1;
        // OPT: root, 4096 octets, DO, and an unknown option.
        bytes.extend([0, 0, 41, 0x10, 0, 0, version, 0x80, 0, 0, 4, 0xfd, 0xe9, 0, 0]);
        bytes
    }

    fn ask(zone: &Zone, query: &[u8]) -> Vec<u8> {
        let mut out = vec![0xff; MAX_REPLY];
        let len = zone.answer(query, AuthTransport::Udp, &mut out).len;
        out.truncate(len);
        out
    }

    /// Returns RCODE, AA, answers and authority as parsed by an independent library.
    fn read(reply: &[u8]) -> (Rcode, bool, Vec<String>, Vec<String>) {
        let message = Reader::from_octets(reply).unwrap();
        let mut sections = Vec::new();
        for section in [message.answer().unwrap(), message.authority().unwrap()] {
            let records = section.limit_to::<AllRecordData<_, _>>().map(Result::unwrap);
            sections.push(
                records
                    .map(|r| format!("{} {} {}", r.owner(), r.rtype(), r.data()))
                    .collect::<Vec<_>>(),
            );
        }
        let authority = sections.pop().unwrap();
        (message.header().rcode(), message.header().aa(), sections.pop().unwrap(), authority)
    }

    const NAME: &str = "010-000-000-001.dns64perf.test";
    const SOA: &str =
        "dns64perf.test SOA ns.dns64perf.test. hostmaster.dns64perf.test. 1 86400 7200 604800 60";

    #[test]
    fn names_have_the_address_in_them() {
        let (rcode, aa, answer, authority) = read(&ask(&zone(0), &query(NAME, Rtype::A)));
        assert_eq!((rcode, aa, authority.len()), (Rcode::NOERROR, true, 0));
        assert_eq!(answer, [format!("{NAME} A 10.0.0.1")]);
        let (_, _, answer, _) = read(&ask(&zone(100), &query(NAME, Rtype::AAAA)));
        assert_eq!(answer, [format!("{NAME} AAAA 2001:db8:0:aaaa::a00:1")]);
    }

    #[test]
    fn negative_answers_contain_the_soa() {
        for (name, qtype, rcode) in [
            (NAME, Rtype::AAAA, Rcode::NOERROR),
            (NAME, Rtype::TXT, Rcode::NOERROR),
            ("dns64perf.test", Rtype::A, Rcode::NOERROR),
            ("ns.dns64perf.test", Rtype::AAAA, Rcode::NOERROR),
            ("10-0-0-1.dns64perf.test", Rtype::A, Rcode::NXDOMAIN),
            ("x.010-000-000-001.dns64perf.test", Rtype::A, Rcode::NXDOMAIN),
        ] {
            let (given, aa, answer, authority) = read(&ask(&zone(0), &query(name, qtype)));
            assert_eq!(
                (given, aa, answer.len(), authority),
                (rcode, true, 0, vec![SOA.to_owned()]),
                "{name} {qtype}"
            );
        }
    }

    #[test]
    fn the_apex_and_the_name_server() {
        assert_eq!(read(&ask(&zone(0), &query("dns64perf.test", Rtype::SOA))).2, [SOA]);
        let ns = read(&ask(&zone(0), &query("dns64perf.test", Rtype::NS))).2;
        assert_eq!(ns, ["dns64perf.test NS ns.dns64perf.test."]);
        assert_eq!(
            read(&ask(&zone(0), &query("ns.dns64perf.test", Rtype::A))).2,
            ["ns.dns64perf.test A 198.18.0.2"]
        );
    }

    #[test]
    fn letter_case_is_kept_and_other_zones_get_refused() {
        let mixed = query("010-000-000-001.DNS64Perf.tEST", Rtype::A);
        let reply = ask(&zone(0), &mixed);
        assert_eq!(reply[12..mixed.len()], mixed[12..]);
        assert_eq!(read(&reply).2.len(), 1);
        for other in ["example.org", ".", "xdns64perf.test", "test"] {
            let (rcode, aa, ..) = read(&ask(&zone(0), &query(other, Rtype::A)));
            assert_eq!((rcode, aa), (Rcode::REFUSED, false), "{other}");
        }
    }

    #[test]
    fn edns_is_answered_per_hop() {
        let reply = ask(&zone(0), &with_edns(NAME, Rtype::A, 0));
        let message = Reader::from_octets(&reply[..]).unwrap();
        let opt = message.opt().unwrap();
        assert_eq!(
            (
                opt.udp_payload_size(),
                opt.dnssec_ok(),
                opt.opt().iter::<domain::base::opt::AllOptData<_, _>>().count()
            ),
            (1232, true, 0)
        );
        let reply = ask(&zone(0), &with_edns(NAME, Rtype::A, 1));
        let message = Reader::from_octets(&reply[..]).unwrap();
        assert_eq!(message.opt_rcode(), domain::base::iana::OptRcode::BADVERS);
        assert_eq!(message.header_counts().ancount(), 0);
        let plain = ask(&zone(0), &query(NAME, Rtype::A));
        assert!(Reader::from_octets(&plain[..]).unwrap().opt().is_none());
        let mut twice = with_edns(NAME, Rtype::A, 0);
        twice[11] = 2;
        twice.extend([0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read(&ask(&zone(0), &twice)).0, Rcode::FORMERR);
    }

    #[test]
    fn bad_messages() {
        let ok = query(NAME, Rtype::A);
        assert_eq!(ask(&zone(0), &ok[..11]), [0; 0]);
        let mut response = ok.clone();
        response[2] |= 0x80;
        assert_eq!(ask(&zone(0), &response), [0; 0]);
        let mut notify = ok.clone();
        notify[2] |= 4 << 3;
        assert_eq!(read(&ask(&zone(0), &notify)).0, Rcode::NOTIMP);
        let mut two = ok.clone();
        two[5] = 2;
        for bad in [two, ok[..ok.len() - 1].to_vec(), ok[..12].to_vec()] {
            assert_eq!(read(&ask(&zone(0), &bad)).0, Rcode::FORMERR);
        }
    }

    #[test]
    fn long_names_are_truncated_never_cut() {
        let long: Domain = format!("{0}.{0}.{0}", "y".repeat(60)).parse().unwrap();
        let zone =
            Zone::new(long.clone(), Share::ZERO, Duration::from_secs(1), Ipv4Addr::LOCALHOST);
        let reply = ask(&zone, &query(&long.name_of(Ipv4Addr::LOCALHOST), Rtype::AAAA));
        assert!(reply.len() <= MIN_UDP);
        read(&reply);
    }

    proptest! {
        #[test]
        fn any_bytes_get_a_readable_reply_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let reply = ask(&zone(50), &bytes);
            if !reply.is_empty() {
                prop_assert!(reply.len() <= MIN_UDP || reply.len() <= MAX_UDP);
                read(&reply);
            }
        }

        #[test]
        fn damaged_queries_get_a_readable_reply_or_none(at in 0usize..63, value: u8) {
            let mut bytes = with_edns(NAME, Rtype::AAAA, 0);
            let at = at % bytes.len();
            bytes[at] = value;
            let reply = ask(&zone(50), &bytes);
            if !reply.is_empty() {
                read(&reply);
            }
        }
    }
}
