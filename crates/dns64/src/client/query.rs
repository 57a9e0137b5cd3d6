//! Parsing of client queries, and the errors for invalid queries (items 31, 34 and 44 of docs/src/dns64-items.md).

use domain::base::opt::cookie::{ClientCookie, ServerCookie};
use wire::edns::{LEAST_PAYLOAD, OPT_LEN, Opt, option};
use wire::rcode::Rcode;
use wire::template::HEADER_LEN;
use wire::view::{CLASS_IN, Malformed, Message, rtype};

use crate::name::{LowerName, text};
use crate::translation::decide::Question;

/// Contents of the OPT record (EDNS) in a client query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edns {
    /// Maximum UDP payload size of the client in octets; at least 512.
    pub size: usize,
    /// DO bit: the client requests signatures (RFC 3225 §3).
    pub dnssec_ok: bool,
    /// Cookie option (RFC 7873).
    pub cookie: Option<Cookie>,
}

/// Cookie option of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cookie {
    /// Client cookie, 8 octets, repeated in the reply.
    pub client: ClientCookie,
    /// Server cookie. If the length differs from that of this server's cookies, the value is all
    /// zeros, which is never valid.
    pub server: Option<[u8; 16]>,
}

impl Cookie {
    /// Returns the server cookie as a type of the crate `domain`.
    pub(crate) fn server_cookie(&self) -> Option<ServerCookie> {
        self.server.as_ref().map(|octets| ServerCookie::from_octets(octets))
    }
}

/// A valid query.
#[derive(Clone, Debug)]
pub(crate) struct Query<'a> {
    /// Message id, repeated in the reply.
    pub id: u16,
    /// Question section in the client's letter case.
    pub question: &'a [u8],
    /// Queried name in lower case.
    pub name: LowerName,
    /// QTYPE: ANY, or a record type (not 0).
    pub qtype: u16,
    /// QCLASS, 1 to 253.
    pub qclass: u16,
    /// RD bit: the client requests recursion (RFC 1035 §4.1.1).
    pub recursion_desired: bool,
    /// CD bit: the client validates answers (RFC 4035 §3.2.2).
    pub checking_disabled: bool,
    /// AD bit: the client requests the AD bit in the reply but no signatures (RFC 6840 §5.7).
    pub authentic_data: bool,
    /// Contents of the OPT record, or `None` if the query has no OPT record.
    pub edns: Option<Edns>,
}

/// Returns a description of the question in a client's message, for logs. The description is empty if the message is
/// not a valid query.
pub(crate) fn describe(bytes: &[u8]) -> String {
    match Received::read(bytes) {
        Received::Query(query) => format!("{} of type {}", text(query.name.wire()), query.qtype),
        Received::Error { .. } | Received::Ignored => String::new(),
    }
}

/// Classification of a received message.
#[derive(Clone, Debug)]
pub(crate) enum Received<'a> {
    /// A valid query.
    Query(Query<'a>),
    /// A message that gets a reply without records. The reply reports an error or supplies a server cookie.
    Error {
        /// RCODE of the reply.
        rcode: Rcode,
        /// Question section, repeated in the reply. Empty if it could not be parsed.
        question: &'a [u8],
        /// True if the message has an OPT record. The reply must then have one too (RFC 6891 §6.1.1).
        edns: bool,
        /// Cookie option of the message, from which the cookie option of the reply is generated (RFC 7873 §5.3).
        /// `None` if the option is missing or malformed.
        cookie: Option<Cookie>,
    },
    /// A message that gets no reply: a response, or a message shorter than a header.
    Ignored,
}

impl<'a> Received<'a> {
    /// Parses a datagram, or a message from a TCP stream.
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Received<'a> {
        // A response must not be answered, because two servers could then answer each other forever.
        let Some(message) = Message::new(bytes).filter(|m| !m.is_response()) else {
            return Received::Ignored;
        };
        if message.opcode() != 0 {
            return Received::without_question(&message, Rcode::NOTIMP);
        }
        let Some((name_end, question)) = read_question(&message, bytes) else {
            return Received::without_question(&message, Rcode::FORMERR);
        };
        let f = &bytes[name_end..];
        let (qtype, qclass) = (u16::from_be_bytes([f[0], f[1]]), u16::from_be_bytes([f[2], f[3]]));
        let edns = match read_edns(&message, HEADER_LEN + question.len()) {
            Ok(edns) => edns,
            Err(BadEdns { rcode, edns, cookie }) => {
                return Received::Error { rcode, question, edns, cookie };
            }
        };
        let is_odd = qclass != CLASS_IN && (qclass == 0 || qclass >= 254);
        if let Some(rcode) = refusal(qtype).or(is_odd.then_some(Rcode::NOTIMP)) {
            let cookie = edns.and_then(|edns| edns.cookie);
            return Received::Error { rcode, question, edns: edns.is_some(), cookie };
        }
        Received::Query(Query {
            id: message.id(),
            question,
            name: LowerName::from_wire(&bytes[HEADER_LEN..name_end]),
            qtype,
            qclass,
            recursion_desired: bytes[2] & 0x01 != 0,
            checking_disabled: bytes[3] & 0x10 != 0,
            authentic_data: bytes[3] & 0x20 != 0,
            edns,
        })
    }

    /// Classifies a message that is not a query with one question. A client can obtain a server
    /// cookie by sending a query that has a COOKIE option and no question (RFC 7873 §5.4).
    #[cold]
    fn without_question(message: &Message<'_>, rcode: Rcode) -> Received<'a> {
        let (edns, cookie) = match edns_of_any(message) {
            Ok(edns) => (edns.is_some(), edns.and_then(|edns| edns.cookie)),
            Err(BadEdns { edns, cookie, .. }) => {
                return Received::Error { rcode, question: &[], edns, cookie };
            }
        };
        let asks_for_cookie = message.opcode() == 0 && message.qdcount() == 0 && cookie.is_some();
        let rcode = if asks_for_cookie { Rcode::NOERROR } else { rcode };
        Received::Error { rcode, question: &[], edns, cookie }
    }
}

impl Query<'_> {
    /// Returns the properties of the query on which the DNS64 decision (RFC 6147) depends.
    pub(crate) fn to_question(&self) -> Question {
        Question {
            name: self.name.clone(),
            qtype: self.qtype,
            qclass: self.qclass,
            dnssec_ok: self.dnssec_ok(),
            checking_disabled: self.checking_disabled,
            recursion_desired: self.recursion_desired,
        }
    }

    /// Returns the cookie option of the query, or `None` if the query has no cookie option.
    pub(crate) fn cookie(&self) -> Option<Cookie> {
        self.edns?.cookie
    }

    /// True if DO is set (RFC 3225 §3); false without EDNS.
    pub(crate) fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }
}

/// Returns the error for a type that cannot be queried (RFC 6895 §3.1), or `None` for other types.
#[inline]
fn refusal(qtype: u16) -> Option<Rcode> {
    match qtype {
        // Type 0 is not a record type. The cache uses type 0 for entries that apply to all types.
        0 | rtype::OPT => Some(Rcode::FORMERR),
        // ANY is the only forwarded meta type. Zone transfers, for example, are refused.
        128..=254 => Some(Rcode::NOTIMP),
        _ => None,
    }
}

/// If the message has exactly one complete question, returns the offset at which the queried name ends, and the
/// question section. Otherwise, returns `None`.
fn read_question<'a>(message: &Message<'_>, bytes: &'a [u8]) -> Option<(usize, &'a [u8])> {
    if message.qdcount() != 1 {
        return None;
    }
    let mut at = HEADER_LEN;
    loop {
        let len = usize::from(*bytes.get(at)?);
        // A pointer in the first name of a message could only lead into the header.
        if len > 63 {
            return None;
        }
        at += 1 + len;
        if at - HEADER_LEN > 255 {
            return None;
        }
        if len == 0 {
            break;
        }
    }
    Some((at, bytes.get(HEADER_LEN..at + 4)?))
}

/// Returns the contents of the OPT record in a message with any number of questions (see [`read_edns`]).
fn edns_of_any(message: &Message<'_>) -> Result<Option<Edns>, BadEdns> {
    let mut at = HEADER_LEN;
    for _ in 0..message.qdcount() {
        let after = message.skip_name(at).map(|end| end + 4);
        at = after.map_err(|Malformed| BadEdns {
            rcode: Rcode::FORMERR,
            edns: false,
            cookie: None,
        })?;
    }
    read_edns(message, at)
}

/// Error in the records that follow the question section of a query.
struct BadEdns {
    rcode: Rcode,
    /// True if an OPT record was parsed before the error. An OPT record in the reply then shows
    /// that the server supports EDNS (RFC 6891 §7).
    edns: bool,
    /// Cookie option that was parsed before the error.
    cookie: Option<Cookie>,
}

/// Parses the OPT record of a query (RFC 6891 §6.1), and skips all other records. A malformed record is an error.
fn read_edns(message: &Message<'_>, at: usize) -> Result<Option<Edns>, BadEdns> {
    let bad = |edns, cookie| BadEdns { rcode: Rcode::FORMERR, edns, cookie };
    let mut others = message.records(at, message.ancount().saturating_add(message.nscount()));
    if others.any(|record| record.is_err()) {
        return Err(bad(false, None));
    }
    let mut edns: Option<Edns> = None;
    for record in message.records(others.offset(), message.arcount()) {
        let before = edns.and_then(|edns| edns.cookie);
        let Ok(record) = record else { return Err(bad(edns.is_some(), before)) };
        let Some(opt) = Opt::from_record(&record) else { continue };
        // There must be only one OPT record, and its owner must be the root.
        if edns.is_some() || record.data_at != record.owner + OPT_LEN {
            return Err(bad(true, before));
        }
        let cookie = read_cookie(&opt);
        if opt.version != 0 {
            let cookie = cookie.ok().flatten();
            return Err(BadEdns { rcode: Rcode::BADVERS, edns: true, cookie });
        }
        let cookie = cookie.map_err(|Malformed| bad(true, None))?;
        let size = usize::from(opt.payload).max(LEAST_PAYLOAD);
        edns = Some(Edns { size, dnssec_ok: opt.dnssec_ok, cookie });
    }
    Ok(edns)
}

/// Parses the first cookie option and ignores any others. Returns an error if an option or the
/// cookie is malformed (RFC 7873 §5.2.2).
fn read_cookie(opt: &Opt<'_>) -> Result<Option<Cookie>, Malformed> {
    let mut cookie = None;
    for option in opt.options() {
        let (code, data) = option?;
        if code == option::COOKIE && cookie.is_none() {
            let (client, server) = data.split_first_chunk::<8>().ok_or(Malformed)?;
            if !server.is_empty() && !(8..=32).contains(&server.len()) {
                return Err(Malformed);
            }
            cookie = Some(Cookie {
                client: ClientCookie::from_octets(*client),
                server: (!server.is_empty()).then(|| server.try_into().unwrap_or_default()),
            });
        }
    }
    Ok(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query(flags: u16, qtype: u16, additional: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34];
        bytes.extend(flags.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 0, 0, 0, u8::from(!additional.is_empty())]);
        bytes.extend(b"\x03WwW\x04test\0");
        bytes.extend(qtype.to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(additional);
        bytes
    }

    fn opt(size: u16, ttl: u32, options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 41];
        bytes.extend(size.to_be_bytes());
        bytes.extend(ttl.to_be_bytes());
        bytes.extend((options.len() as u16).to_be_bytes());
        bytes.extend(options);
        bytes
    }

    fn rcode_of(bytes: &[u8]) -> Option<Rcode> {
        match Received::read(bytes) {
            Received::Error { rcode, .. } => Some(rcode),
            _ => None,
        }
    }

    #[test]
    fn item_44_invalid_queries_get_error_or_no_reply() {
        let good = query(0x0100, 28, &[]);
        assert!(
            matches!(Received::read(&good), Received::Query(q) if q.recursion_desired && q.qtype == 28)
        );
        assert!(matches!(Received::read(&query(0x8000, 28, &[])), Received::Ignored));
        assert!(matches!(Received::read(&good[..11]), Received::Ignored));
        assert_eq!(rcode_of(&query(0x2800, 28, &[])), Some(Rcode::NOTIMP), "UPDATE");
        for questions in [0, 2] {
            let mut other = good.clone();
            other[5] = questions;
            assert_eq!(rcode_of(&other), Some(Rcode::FORMERR), "{questions} questions");
        }
        assert_eq!(rcode_of(&good[..20]), Some(Rcode::FORMERR));
        assert_eq!(rcode_of(&query(0, 252, &[])), Some(Rcode::NOTIMP), "AXFR");
    }

    /// RFC 6891 §6.1.1, RFC 7873 §5.4.
    #[test]
    fn item_44_replies_without_question_have_edns() {
        let cookie = [&[0, 10, 0, 8][..], &[7; 8]].concat();
        let of = |flags: u16, questions: u8, options: &[u8]| {
            let mut bytes = query(flags, 28, &[]);
            let question = bytes.split_off(HEADER_LEN);
            (bytes[5], bytes[11]) = (questions, 1);
            (0..questions).for_each(|_| bytes.extend(&question));
            bytes.extend(opt(1232, 0, options));
            bytes
        };
        for (bytes, wanted, known) in [
            (of(0, 0, &[]), Rcode::FORMERR, false),
            (of(0, 0, &cookie), Rcode::NOERROR, true),
            (of(0, 0, &[0, 10, 0, 1, 7]), Rcode::FORMERR, false),
            (of(0, 2, &[]), Rcode::FORMERR, false),
            (of(0, 2, &cookie), Rcode::FORMERR, true),
            (of(0x7800, 1, &[]), Rcode::NOTIMP, false),
            (of(0x1000, 0, &cookie), Rcode::NOTIMP, true),
            (of(0x2800, 1, &cookie), Rcode::NOTIMP, true),
        ] {
            let Received::Error { rcode, edns: true, cookie, question: [] } =
                Received::read(&bytes)
            else {
                panic!("{bytes:?}")
            };
            assert_eq!((rcode, cookie.is_some()), (wanted, known), "{bytes:?}");
        }
        // A message that ends within its question section.
        let cut = &of(0, 2, &cookie)[..30];
        assert!(matches!(
            Received::read(cut),
            Received::Error { rcode: Rcode::FORMERR, edns: false, cookie: None, .. }
        ));
    }

    /// RFC 6895 §3.1: type 0 is never a record type, and the cache relies on that.
    #[test]
    fn item_44_types_that_cannot_be_asked_for() {
        for (qtype, rcode) in [
            (0, Some(Rcode::FORMERR)),
            (1, None),
            (rtype::OPT, Some(Rcode::FORMERR)),
            (127, None),
            (128, Some(Rcode::NOTIMP)),
            (254, Some(Rcode::NOTIMP)),
            (rtype::ANY, None),
            (u16::MAX, None),
        ] {
            assert_eq!(rcode_of(&query(0, qtype, &[])), rcode, "{qtype}");
            let with_edns = query(0, qtype, &opt(1232, 0, &[]));
            assert_eq!(rcode_of(&with_edns), rcode, "{qtype} with EDNS");
            if let Received::Error { question, edns, .. } = Received::read(&with_edns) {
                assert!(edns && question.len() == 14, "{qtype}");
            }
        }
    }

    #[test]
    fn item_31_edns() {
        let edns = |additional: &[u8]| match Received::read(&query(0, 28, additional)) {
            Received::Query(query) => query.edns,
            other => panic!("{other:?}"),
        };
        assert!(edns(&[]).is_none());
        assert_eq!(edns(&opt(100, 0, &[])).unwrap().size, 512);
        let wide = edns(&opt(4096, 0x8000, &[0, 3, 0, 0])).unwrap();
        assert!(wide.size == 4096 && wide.dnssec_ok && wide.cookie.is_none());
        assert_eq!(rcode_of(&query(0, 28, &opt(1232, 1 << 16, &[]))), Some(Rcode::BADVERS));
        let mut two = query(0, 28, &[opt(1232, 0, &[]), opt(1232, 0, &[])].concat());
        two[11] = 2;
        let cut_off = query(0, 28, &opt(1232, 0, &[0, 3, 0, 5]));
        for bad in [two, cut_off] {
            // RFC 6891 §7: the OPT record in the reply shows that the server supports EDNS. FORMERR then means that
            // the OPT record of the query is malformed.
            assert!(
                matches!(
                    Received::read(&bad),
                    Received::Error { rcode: Rcode::FORMERR, edns: true, .. }
                ),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn item_34_cookies_have_their_lengths() {
        for (len, good) in [
            (0, false),
            (7, false),
            (8, true),
            (12, false),
            (16, true),
            (24, true),
            (40, true),
            (41, false),
        ] {
            let mut option = vec![0, 10, 0, len];
            option.extend(vec![7; usize::from(len)]);
            let bytes = query(0, 28, &opt(1232, 0, &option));
            assert_eq!(matches!(Received::read(&bytes), Received::Query(_)), good, "{len}");
        }
    }

    #[test]
    fn item_34_odd_server_cookies_become_zeros() {
        for (len, server) in [(8, None), (16, Some([0; 16])), (24, Some([7; 16]))] {
            let mut option = vec![0, 10, 0, len];
            option.extend(vec![7; usize::from(len)]);
            let bytes = query(0, 28, &opt(1232, 0, &option));
            let Received::Query(query) = Received::read(&bytes) else { panic!("{bytes:?}") };
            assert_eq!(query.cookie().map(|cookie| cookie.server), Some(server), "{len}");
        }
    }

    /// RFC 7873 §5.3: a client that has the server's cookie rejects replies without a cookie.
    #[test]
    fn item_34_errors_carry_the_parsed_cookie() {
        let cookie = [&[0, 10, 0, 8][..], &[7; 8]].concat();
        let (with_cookie, with_bad) = (opt(1232, 0, &cookie), opt(1232, 0, &[0, 10, 0, 1, 7]));
        let mut two = query(0, 28, &[&with_cookie[..], &opt(1232, 0, &[])].concat());
        two[11] = 2;
        for (bytes, code, known) in [
            (query(0, 252, &with_cookie), Rcode::NOTIMP, true),
            (query(0, 0, &with_cookie), Rcode::FORMERR, true),
            (query(0, 28, &opt(1232, 1 << 16, &cookie)), Rcode::BADVERS, true),
            (query(0, 28, &opt(1232, 1 << 16, &[0, 10, 0, 1, 7])), Rcode::BADVERS, false),
            (two, Rcode::FORMERR, true),
            (query(0, 28, &with_bad), Rcode::FORMERR, false),
            (query(0, 252, &opt(1232, 0, &[])), Rcode::NOTIMP, false),
        ] {
            let Received::Error { rcode, edns: true, cookie, .. } = Received::read(&bytes) else {
                panic!("{bytes:?}")
            };
            let client = cookie.map(|cookie| cookie.client.into_octets());
            assert_eq!((rcode, client), (code, known.then_some([7; 8])), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Received::read(&bytes);
        }

        #[test]
        fn damaged_queries_do_not_panic(at in 0usize..60, value: u8) {
            let mut bytes = query(0x0100, 28, &opt(1232, 0x8000, &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]));
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = Received::read(&bytes);
        }
    }
}
