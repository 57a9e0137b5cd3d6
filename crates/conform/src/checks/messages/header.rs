//! Scripts of the checks for the message header, opcodes, types and classes.

use domain::base::iana::{Class, Rtype};

use super::common::{NOTIFY, SILENCE, STATUS, UPDATE, known, query};
use crate::message::{Flags, Message, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect, rcode_name};

/// Opcodes that a recursive server does not support: STATUS, and two unassigned ones.
const UNKNOWN_OPCODES: [u8; 3] = [STATUS, 3, 15];

pub(super) fn id_and_question_are_echoed(t: &mut Trial<'_>) -> Judged {
    let name = known(t);
    for (id, qtype) in [(0, Rtype::AAAA), (1, Rtype::A), (0xffff, Rtype::TXT)] {
        // The trial compares the ID of each reply with that of the query.
        let query = Message { id, ..Message::query(&name, qtype) };
        let reply = t.ask(&query)?;
        expect(reply.questions == query.questions, || {
            format!("the question was {name} {qtype}, the reply has {:?}", reply.questions)
        })?;
    }
    Ok(())
}

pub(super) fn rd_is_copied(t: &mut Trial<'_>) -> Judged {
    for rd in [true, false] {
        let mut query = query(t);
        query.flags.rd = rd;
        let reply = t.ask(&query)?;
        expect(reply.flags.rd == rd, || format!("RD is {rd} in the query but not in the reply"))?;
    }
    Ok(())
}

/// Requires correct flags in answers and, if there is a test zone, in negative answers.
pub(super) fn flag(t: &mut Trial<'_>, wrong: &str, right: fn(Flags) -> bool) -> Judged {
    let mut queries = vec![query(t)];
    if t.subject().zone.is_some() {
        queries.push(Message::query(&t.name("v4-1-2-3-4"), Rtype::A));
        queries.push(Message::query(&t.name("aaaa-rcode-3"), Rtype::AAAA));
    }
    for query in queries {
        let reply = t.ask(&query)?;
        expect(right(reply.flags), || wrong.into())?;
    }
    Ok(())
}

/// Reserved bit in the fourth octet of a header.
const RESERVED: u8 = 0x40;

pub(super) fn reserved_bit_is_zero(t: &mut Trial<'_>) -> Judged {
    for set in [0, RESERVED] {
        let mut octets = query(t).octets();
        octets[3] |= set;
        let reply = t.reply_to_octets(&octets, "a query with the reserved bit")?;
        expect(reply.get(3).is_some_and(|octet| octet & RESERVED == 0), || {
            "the reserved bit of the header is set in the reply".into()
        })?;
    }
    Ok(())
}

/// Returns a query with this opcode that consists of a header and a question only.
fn with_opcode(t: &mut Trial<'_>, opcode: u8) -> Message {
    Message { opcode, edns: None, opt_records: 0, ..query(t) }
}

/// Requires that a reply has the opcode of the query. A different check reports missing replies.
pub(super) fn opcode_is_copied(t: &mut Trial<'_>) -> Judged {
    let mut replied = false;
    for opcode in UNKNOWN_OPCODES {
        let query = with_opcode(t, opcode);
        let Some(octets) = t.send_octets(&query.octets(), SILENCE)? else { continue };
        let came = octets.get(2).map(|octet| octet >> 3 & 0xf);
        expect(came == Some(opcode), || {
            format!("the opcode was {opcode}, and that of the reply is {came:?}")
        })?;
        replied = true;
    }
    if replied { Ok(()) } else { Err(Fault::NotTried("no such query gets a reply".into())) }
}

pub(super) fn unknown_opcode_is_notimp(t: &mut Trial<'_>) -> Judged {
    for opcode in UNKNOWN_OPCODES {
        let query = with_opcode(t, opcode);
        t.ask(&query)?.has_rcode(rcode::NOTIMP)?;
    }
    Ok(())
}

pub(super) fn notify_and_update_do_nothing(t: &mut Trial<'_>) -> Judged {
    for opcode in [NOTIFY, UPDATE] {
        let mut query = with_opcode(t, opcode);
        query.questions.iter_mut().for_each(|question| question.qtype = Rtype::SOA);
        let Some(octets) = t.send_octets(&query.octets(), SILENCE)? else { continue };
        let code = u16::from(octets.get(3).map_or(0, |octet| octet & 0xf));
        expect(code != rcode::NOERROR, || {
            format!("opcode {opcode} from a client is {}", rcode_name(code))
        })?;
    }
    Ok(())
}

pub(super) fn responses_are_not_answered(t: &mut Trial<'_>) -> Judged {
    let mut response = query(t);
    response.flags.qr = true;
    let broken = response.octets()[..20].to_vec();
    for octets in [response.octets(), broken] {
        let reply = t.send_octets(&octets, SILENCE)?;
        expect(reply.is_none(), || "there is a reply to a message with QR set".into())?;
    }
    Ok(())
}

/// Requires NOERROR for queries of types for which the name has no records. The types are unassigned or for private use
/// (RFC 6895 §3.1), and are not meta-types.
pub(super) fn unknown_types_pass(t: &mut Trial<'_>) -> Judged {
    for number in [1000, 40_000, 65_399] {
        let qtype = Rtype::from_int(number);
        t.look_up("v4-1-2-3-4", qtype)?.1.lacks(qtype)?;
    }
    Ok(())
}

pub(super) fn classes_are_replied_to(t: &mut Trial<'_>) -> Judged {
    for class in [Class::CH, Class::NONE, Class::ANY] {
        let mut query = query(t);
        query.questions.iter_mut().for_each(|question| question.class = class);
        let reply = t.ask(&query)?;
        // RFC 1035 §3.2.5: class ANY is any class, including IN.
        let made = class != Class::ANY && reply.answers(Rtype::AAAA).next().is_some();
        expect(!made, || format!("there are AAAA records in the reply to class {class}"))?;
    }
    Ok(())
}
