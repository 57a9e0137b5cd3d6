//! Scripts of the checks for OPT records and their contents.

use domain::base::Message as Parsed;
use domain::base::iana::{Class, Rtype};

use super::common::{NOTIFY, SILENCE, STATUS, UPDATE, is_answered, query};
use crate::message::{Message, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect, rcode_name};

/// EDNS option code for local use (RFC 6891 §9).
const UNKNOWN: u16 = 65_001;
/// Payload size that no server offers by default.
const ODD_PAYLOAD: u16 = 4321;
/// EDNS option code for extended DNS errors (RFC 8914 §2).
const EXTENDED_ERROR: u16 = 15;
/// Unassigned flags of an OPT record. The first three flags are not included: DO (RFC 3225), CO (RFC 9824), and the
/// unassigned flag that is likely to be assigned next.
const NO_MEANING: u16 = 0x1fff;

/// Returns a query that gets an answer. If there is a test zone, also returns queries that get NXDOMAIN, SERVFAIL and a
/// truncated answer.
fn all_sorts(t: &mut Trial<'_>) -> Vec<Message> {
    let mut queries = vec![query(t)];
    if t.subject().zone.is_some() {
        for labels in ["aaaa-rcode-3", "aaaa-rcode-2.a-rcode-2", "many-60"] {
            queries.push(Message::query(&t.name(labels), Rtype::AAAA));
        }
    }
    queries
}

pub(super) fn replies_have_opt(t: &mut Trial<'_>) -> Judged {
    for (n, query) in all_sorts(t).iter().enumerate() {
        let reply = t.ask(query)?;
        // RFC 6891 §7 requires this reply of responders that do not implement EDNS.
        if n == 0 && reply.rcode == rcode::FORMERR && reply.opt_records == 0 {
            return Err(Fault::NotOffered("the server does not implement EDNS".into()));
        }
        expect(reply.opt_records == 1, || {
            format!("the reply has {} OPT records, the query has one", reply.opt_records)
        })?;
    }
    Ok(())
}

/// Returns queries that a recursive server rejects; each query has an OPT record. The queries have two questions or
/// none, an opcode other than QUERY, EDNS version 1, or class CHAOS, or they request a zone transfer.
fn erroneous(t: &mut Trial<'_>) -> Vec<(String, Message)> {
    let mut twice = query(t);
    twice.questions.extend(query(t).questions);
    let mut all = vec![
        ("two questions".to_owned(), twice),
        ("no question".to_owned(), Message { questions: Vec::new(), ..query(t) }),
        ("EDNS version 1".to_owned(), with_version(query(t), 1)),
    ];
    for opcode in [STATUS, 3, NOTIFY, UPDATE, 15] {
        all.push((format!("opcode {opcode}"), Message { opcode, ..query(t) }));
    }
    for (qtype, class) in [(Rtype::AAAA, Class::CH), (Rtype::AXFR, Class::IN)] {
        let mut query = query(t);
        for question in &mut query.questions {
            (question.qtype, question.class) = (qtype, class);
        }
        all.push((format!("type {qtype} and class {class}"), query));
    }
    all
}

/// Requires that error replies have exactly one OPT record. The server need not reply, and this check ignores the
/// RCODE.
pub(super) fn errors_have_opt(t: &mut Trial<'_>) -> Judged {
    let query = query(t);
    if t.ask(&query)?.opt_records == 0 {
        return Err(Fault::NotOffered("the server does not implement EDNS".into()));
    }
    let mut replied = false;
    for (what, query) in erroneous(t) {
        let Some(octets) = t.send_octets(&query.octets(), SILENCE)? else { continue };
        let reply = Message::parse(&octets).map_err(|error| {
            Fault::Wrong(format!("the reply to a query with {what} is no DNS message: {error}"))
        })?;
        expect(reply.opt_records == 1, || {
            let (rcode, found) = (rcode_name(reply.rcode), reply.opt_records);
            format!("{rcode} in reply to a query with {what} has {found} OPT records, not one")
        })?;
        replied = true;
    }
    if replied { Ok(()) } else { Err(Fault::NotTried("no such query gets a reply".into())) }
}

pub(super) fn replies_have_no_opt(t: &mut Trial<'_>) -> Judged {
    for query in all_sorts(t) {
        let reply = t.ask(&Message { edns: None, opt_records: 0, ..query })?;
        expect(reply.opt_records == 0, || {
            "the reply has an OPT record, and the query has none".into()
        })?;
    }
    Ok(())
}

/// Requires that upstream queries contain neither the client's option nor the client's payload size. Other options and
/// other payload sizes are allowed. A DNS64 server generates answers, so it is not a middlebox that simply forwards a
/// message and leaves the OPT record unchanged (§6.2.6).
pub(super) fn opt_goes_no_further(t: &mut Trial<'_>) -> Judged {
    let mut query = query(t);
    if let Some(edns) = &mut query.edns {
        edns.payload = ODD_PAYLOAD;
        edns.options.push((UNKNOWN, vec![1, 2, 3]));
    }
    is_answered(&t.ask(&query)?)?;
    let name = query.question().map(|question| question.name.clone());
    let name = name.ok_or_else(|| Fault::NotTried("the query has no question".into()))?;
    for asked in t.was_asked(&name)? {
        expect(!asked.options.contains(&UNKNOWN), || {
            format!("the client's option {UNKNOWN} was sent upstream")
        })?;
        expect(asked.payload != Some(ODD_PAYLOAD), || {
            format!("the client's payload size, {ODD_PAYLOAD} octets, was sent upstream")
        })?;
    }
    Ok(())
}

/// Sends the octets of a query that the type [`Message`] cannot represent. Requires a reply, and returns it.
fn send(t: &mut Trial<'_>, octets: &[u8], what: &str) -> Judged<(Vec<u8>, Message)> {
    let reply = t.reply_to_octets(octets, what)?;
    let parsed = Message::parse(&reply);
    let parsed = parsed
        .map_err(|error| Fault::Wrong(format!("the reply to {what} is no message: {error}")))?;
    Ok((reply, parsed))
}

/// Length of an OPT record without options, in octets.
const OPT: usize = 11;

pub(super) fn two_are_a_format_error(t: &mut Trial<'_>) -> Judged {
    let mut octets = query(t).octets();
    // The OPT record is the last record, and ARCOUNT is 1.
    octets.extend_from_within(octets.len() - OPT..);
    octets[11] = 2;
    send(t, &octets, "a query with two OPT records")?.1.has_rcode(rcode::FORMERR)
}

pub(super) fn unknown_option_is_ignored(t: &mut Trial<'_>) -> Judged {
    let mut query = query(t);
    if let Some(edns) = &mut query.edns {
        edns.options.push((UNKNOWN, b"conform".to_vec()));
    }
    let reply = t.ask(&query)?;
    is_answered(&reply)?;
    let echoed = reply.edns.iter().flat_map(|edns| &edns.options).any(|(code, _)| *code == UNKNOWN);
    expect(!echoed, || format!("option {UNKNOWN} was returned"))
}

fn with_version(mut query: Message, version: u8) -> Message {
    query.edns.iter_mut().for_each(|edns| edns.version = version);
    query
}

pub(super) fn version_1_is_badvers(t: &mut Trial<'_>) -> Judged {
    let query = with_version(query(t), 1);
    let reply = t.ask(&query)?;
    reply.has_rcode(rcode::BADVERS)?;
    expect(reply.answer.is_empty(), || "there is an answer together with BADVERS".into())
}

pub(super) fn version_is_0(t: &mut Trial<'_>) -> Judged {
    for version in [0, 1] {
        let query = with_version(query(t), version);
        let reply = t.ask(&query)?;
        let said = reply.edns.as_ref().map(|edns| edns.version);
        expect(said == Some(0), || {
            format!("the reply to EDNS version {version} has version {said:?}")
        })?;
    }
    Ok(())
}

/// Returns the flags of the reply's OPT record.
fn flags(octets: &[u8]) -> Option<u16> {
    let message = Parsed::from_octets(octets).ok()?;
    let mut records = message.additional().ok()?.flatten();
    let opt = records.find(|record| record.rtype() == Rtype::OPT)?;
    let [_, _, high, low] = opt.ttl().as_secs().to_be_bytes();
    Some(u16::from_be_bytes([high, low]))
}

pub(super) fn unknown_flags_are_zero(t: &mut Trial<'_>) -> Judged {
    let mut octets = query(t).octets();
    // RDLENGTH follows the flags of an OPT record without options.
    let at = octets.len() - 4;
    octets[at..at + 2].copy_from_slice(&NO_MEANING.to_be_bytes());
    let (octets, reply) = send(t, &octets, "a query with unknown EDNS flags")?;
    is_answered(&reply)?;
    let flags = flags(&octets).ok_or_else(|| Fault::Wrong("there is no OPT record".into()))?;
    expect(flags & NO_MEANING == 0, || format!("the reply has EDNS flags {flags:#06x}"))
}

pub(super) fn falls_back(t: &mut Trial<'_>) -> Judged {
    let made = t.embedded("1.2.3.4");
    t.aaaa("all-noedns.v4-1-2-3-4")?.1.has_aaaa(&made)
}

pub(super) fn long_option_is_a_format_error(t: &mut Trial<'_>) -> Judged {
    let mut octets = query(t).octets();
    let at = octets.len() - 1;
    // RDLENGTH is 4, but the length field of the option is 9.
    octets[at] = 4;
    octets.extend([UNKNOWN.to_be_bytes(), [0, 9]].concat());
    let (_, reply) = send(t, &octets, "a query with an option that is too long")?;
    reply.has_rcode(rcode::FORMERR)?;
    expect(reply.opt_records == 1, || "FORMERR has no OPT record".into())
}

pub(super) fn truncated_reply_has_opt(t: &mut Trial<'_>) -> Judged {
    let mut query = Message::query(&t.name("many-60"), Rtype::A);
    query.edns.iter_mut().for_each(|edns| edns.payload = 512);
    let reply = t.ask(&query)?;
    reply.has_rcode(rcode::NOERROR)?;
    expect(reply.flags.tc, || "60 A records were sent in 512 octets without TC".into())?;
    expect(reply.questions == query.questions, || "the question is missing".into())?;
    expect(reply.opt_records == 1, || "the OPT record is missing".into())
}

pub(super) fn extended_errors_are_well_formed(t: &mut Trial<'_>) -> Judged {
    let mut seen = false;
    for labels in ["all-rcode-2", "all-rcode-2.ede-15", "all-rcode-5.ede-18", "loop"] {
        let (_, reply) = t.aaaa(labels)?;
        let options = reply.edns.iter().flat_map(|edns| &edns.options);
        for (_, content) in options.filter(|(code, _)| *code == EXTENDED_ERROR) {
            seen = true;
            let text = content.get(2..).map(|text| str::from_utf8(text));
            expect(matches!(text, Some(Ok(_))), || {
                format!("the extended error is not a code with UTF-8 text: {content:02x?}")
            })?;
        }
    }
    if seen { Ok(()) } else { Err(Fault::NotOffered("no failure has an extended error".into())) }
}
