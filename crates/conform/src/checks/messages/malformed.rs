//! Scripts of the checks that send malformed queries.

use domain::utils::base16;

use super::common::{SILENCE, is_answered, query};
use crate::message::{Message, rcode};
use crate::trial::{Fault, Judged, Trial, expect, rcode_name};

/// Length of a header, in octets.
const HEADER: usize = 12;
/// QTYPE AAAA and QCLASS IN in wire format.
const AAAA_IN: [u8; 4] = [0, 28, 0, 1];

/// Returns a query with the given question and without an OPT record.
fn with_question(question: &[u8]) -> Vec<u8> {
    let [high, low] = rand::random::<u16>().to_be_bytes();
    [&[high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], question].concat()
}

/// Formats octets as hexadecimal digits, so that a query can be repeated by hand. If there are more than 40 octets,
/// only the first 40 are shown.
fn shown(octets: &[u8]) -> String {
    let begin = base16::encode_string(&octets[..octets.len().min(40)]);
    let more = if octets.len() > 40 { "…" } else { "" };
    format!("{begin}{more} ({} octets)", octets.len())
}

/// Requires the correct result for a malformed query: no reply, or FORMERR with the ID of the query.
fn is_refused(t: &mut Trial<'_>, octets: &[u8]) -> Judged {
    let Some(reply) = t.send_octets(octets, SILENCE)? else { return Ok(()) };
    let code = reply.get(3).map(|octet| u16::from(octet & 0xf));
    let sent = || shown(octets);
    let code =
        code.ok_or_else(|| Fault::Wrong(format!("half a header was returned for {}", sent())))?;
    expect(code == rcode::FORMERR, || format!("{} was returned for {}", rcode_name(code), sent()))?;
    let ids_differ = octets.len() >= HEADER && reply[..2] != octets[..2];
    expect(!ids_differ, || format!("FORMERR with another ID was returned for {}", sent()))
}

/// Requires that each query is rejected and that the server still answers at the end.
fn all_are_refused(t: &mut Trial<'_>, queries: &[Vec<u8>]) -> Judged {
    for octets in queries {
        is_refused(t, octets)?;
    }
    let query = query(t);
    is_answered(&t.ask(&query)?)
}

pub(super) fn two_questions(t: &mut Trial<'_>) -> Judged {
    let mut twice = query(t);
    twice.questions.extend(query(t).questions);
    let twice = Message { edns: None, opt_records: 0, ..twice };
    all_are_refused(t, &[twice.octets()])
}

pub(super) fn no_question(t: &mut Trial<'_>) -> Judged {
    let none = Message { questions: Vec::new(), edns: None, opt_records: 0, ..query(t) };
    all_are_refused(t, &[none.octets()])
}

pub(super) fn cut_short(t: &mut Trial<'_>) -> Judged {
    let whole = query(t).octets();
    let question = whole.len() - 11;
    // No question, half a name, no class, no OPT record, half an OPT record.
    let ends = [HEADER, HEADER + 5, question - 2, question, question + 6];
    all_are_refused(t, &ends.map(|end| whole[..end].to_vec()))
}

pub(super) fn no_header(t: &mut Trial<'_>) -> Judged {
    let whole = query(t).octets();
    all_are_refused(t, &[0, 1, 2, 3, HEADER - 1].map(|end| whole[..end].to_vec()))
}

pub(super) fn pointers(t: &mut Trial<'_>) -> Judged {
    // The question begins at octet 12. The four pointers lead to the pointer itself, to the octets after it, to a label
    // before it, and beyond the end of the message.
    let names: [&[u8]; 4] =
        [&[0xc0, 12], &[0xc0, 14], &[1, b'x', 0xc0, 12], &[1, b'x', 0xff, 0xff]];
    all_are_refused(t, &names.map(|name| with_question(&[name, &AAAA_IN].concat())))
}

pub(super) fn long_labels(t: &mut Trial<'_>) -> Judged {
    // The lengths 64, 100 and 191 have one of the two high-order bits set.
    let queries = [64_u8, 100, 191].map(|len| {
        let label = vec![b'x'; usize::from(len)];
        with_question(&[&[len], label.as_slice(), &[0], &AAAA_IN].concat())
    });
    all_are_refused(t, &queries)
}

pub(super) fn long_name(t: &mut Trial<'_>) -> Judged {
    let label = |len: u8| [vec![len], vec![b'x'; usize::from(len)]].concat();
    // Four labels of 63 octets and the root form a name of 257 octets. If the last label has 62 octets, the name has
    // 256.
    let names = [[63, 63, 63, 62], [63, 63, 63, 63]];
    let queries = names.map(|lengths| {
        let name = lengths.map(label).concat();
        with_question(&[name.as_slice(), &[0], &AAAA_IN].concat())
    });
    all_are_refused(t, &queries)
}

pub(super) fn octets_behind(t: &mut Trial<'_>) -> Judged {
    for behind in [&[0][..], &[0xff; 40]] {
        let octets = [query(t).octets().as_slice(), behind].concat();
        let Some(reply) = t.send_octets(&octets, SILENCE)? else { continue };
        let code = u16::from(reply.get(3).map_or(0xf, |octet| octet & 0xf));
        expect([rcode::NOERROR, rcode::FORMERR].contains(&code), || {
            format!("{} was returned for {}", rcode_name(code), shown(&octets))
        })?;
    }
    let query = query(t);
    is_answered(&t.ask(&query)?)
}
