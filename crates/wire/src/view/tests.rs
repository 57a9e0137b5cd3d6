use std::cell::RefCell;

use super::*;
use domain::base::iana::{Class, Rtype};
use domain::base::message_builder::TreeCompressor;
use domain::base::{MessageBuilder, Name, Ttl};
use domain::rdata::{Aaaa, Cname};
use proptest::prelude::*;
use std::str::FromStr;

fn compressed_answer() -> Vec<u8> {
    let name = |s| Name::<Vec<u8>>::from_str(s).unwrap();
    let mut builder =
        MessageBuilder::from_target(TreeCompressor::new(Vec::new())).unwrap().question();
    builder.push((name("a.example.test"), Rtype::AAAA, Class::IN)).unwrap();
    let mut answer = builder.answer();
    let ttl = Ttl::from_secs(60);
    answer.push((name("a.example.test"), ttl, Cname::new(name("B.example.test")))).unwrap();
    answer.push((name("b.example.test"), ttl, Aaaa::new("2001:db8::1".parse().unwrap()))).unwrap();
    answer.finish().into_target()
}

#[test]
fn records_of_a_compressed_message() {
    let bytes = compressed_answer();
    let message = Message::new(&bytes).unwrap();
    let answers = message.skip_name(HEADER_LEN).unwrap() + 4;
    let records: Vec<_> = message.records(answers, message.ancount()).map(Result::unwrap).collect();
    assert_eq!(records.iter().map(|r| r.rtype).collect::<Vec<_>>(), [rtype::CNAME, rtype::AAAA]);
    assert_eq!(records[1].ttl, 60);
    assert!(message.same_name(HEADER_LEN, records[0].owner).unwrap());
    assert!(message.same_name(records[0].data_at, records[1].owner).unwrap());
    assert!(!message.same_name(HEADER_LEN, records[1].owner).unwrap());
}

#[test]
fn pointer_loops_end() {
    let mut bytes = vec![0; 12];
    bytes.extend([0xc0, 12, 0xc0, 12, 1, b'x', 0xc0, 16]);
    let message = Message::new(&bytes).unwrap();
    for offset in 12..bytes.len() {
        let _ = message.same_name(offset, offset);
    }
    assert_eq!(message.same_name(12, 12), Err(Malformed));
    assert_eq!(message.same_name(16, 16), Err(Malformed));
}

/// A chain of pointers, each to the previous one, and names that point to its end.
#[test]
fn pointers_cost_at_most_the_message_length() {
    let mut bytes = vec![0; HEADER_LEN];
    bytes.extend([1, b'a', 0]);
    let mut at = HEADER_LEN;
    for _ in 0..8_000 {
        let next = bytes.len();
        bytes.extend((0xc000 | at as u16).to_be_bytes());
        at = next;
    }
    let message = Message::new(&bytes).unwrap();
    // The limit per name rejects a name that leads through the whole chain (8 000 pointers). It
    // accepts a name that follows only 101 pointers.
    assert_eq!(message.copy_name(at, &mut [0; 255]), Err(Malformed));
    assert_eq!(message.copy_name(HEADER_LEN + 3 + 2 * 100, &mut [0; 255]), Ok(3));
    // All names together may not follow more pointers than the message has octets (16 015). Each
    // name follows 101 pointers.
    let names = message.names();
    let read = (0..1_000)
        .take_while(|_| names.copy_name(HEADER_LEN + 3 + 2 * 100, &mut [0; 255]).is_ok())
        .count();
    assert_eq!(read, bytes.len() / 101);
    assert_eq!(names.same_name(HEADER_LEN + 3 + 2 * 100, HEADER_LEN), Err(Malformed));
}

#[test]
fn names_lie_where_they_are_read_from() {
    let bytes = compressed_answer();
    let message = Message::new(&bytes).unwrap();
    let question = HEADER_LEN..message.skip_name(HEADER_LEN).unwrap();
    let owner = question.end + 4;
    let names = message.names();
    let place =
        |octets: &Range<usize>| question.contains(&octets.start) && octets.end <= question.end;
    assert_eq!(
        names.octets_lie_in(owner, place),
        Ok(false),
        "the pointer itself is behind the question"
    );
    let with_owner = |octets: &Range<usize>| place(octets) || *octets == (owner..owner + 2);
    assert_eq!(names.octets_lie_in(owner, with_owner), Ok(true));
    // From the name's beginning to the end of the pointer, and from the pointer's target to the root label.
    let asked = RefCell::new(Vec::new());
    let all = |octets: &Range<usize>| {
        asked.borrow_mut().push(octets.clone());
        true
    };
    assert_eq!(names.octets_lie_in(owner, all), Ok(true));
    assert_eq!(asked.into_inner(), [owner..owner + 2, question]);
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), offset in 0usize..400, count: u16) {
        if let Some(message) = Message::new(&bytes) {
            for record in message.records(offset, count).flatten() {
                let _ = message.same_name(record.owner, HEADER_LEN);
                let _ = message.same_name(record.data_at, record.owner);
                let _ = message.copy_name(record.owner, &mut [0; 255]);
            }
        }
    }

    #[test]
    fn damaged_answers_do_not_panic(at in 0usize..80, value: u8) {
        let mut bytes = compressed_answer();
        let at = at % bytes.len();
        bytes[at] = value;
        let message = Message::new(&bytes).unwrap();
        if let Ok(end) = message.skip_name(HEADER_LEN) {
            for record in message.records(end + 4, message.ancount()).flatten() {
                let _ = message.same_name(record.owner, record.data_at);
            }
        }
    }
}

/// Returns a message with these octets after a header.
fn with(octets: &[u8]) -> Vec<u8> {
    [&[0; HEADER_LEN], octets].concat()
}

#[test]
fn owner_and_ttl_are_where_the_record_has_them() {
    let bytes = compressed_answer();
    let message = Message::new(&bytes).unwrap();
    let answers = message.skip_name(HEADER_LEN).unwrap() + 4;
    for record in message.records(answers, 2).map(Result::unwrap) {
        assert_eq!(bytes[record.ttl_at()..record.ttl_at() + 4], 60_u32.to_be_bytes());
        let owner = record.owner_octets();
        assert_eq!((owner.start, Ok(owner.end)), (record.owner, message.skip_name(record.owner)));
    }
}

/// Names that certainly end without compression, and others.
#[test]
fn plain_name_cannot_end_in_a_pointer() {
    for (name, is_plain) in [
        (&b"\0"[..], true),
        (b"\x01a\0", true),
        (b"\x01\xbf\0", true),
        (b"\x01\xc0\0", false),
        (b"\x01\xff\0", false),
        // A pointer whose second octet is zero, like a root label.
        (b"\xc1\0", false),
        (b"\x01a\xc0\x0c", false),
    ] {
        // The result does not depend on the octets that follow.
        for after in [&b""[..], b"\0\0\0\0", b"\xff\xff\xff\xff"] {
            let bytes = with(&[name, after].concat());
            let message = Message::new(&bytes).unwrap();
            assert_eq!(message.is_plain_name(HEADER_LEN), is_plain, "{name:?}");
        }
    }
    assert!(!Message::new(&with(b"\x05cut")).unwrap().is_plain_name(HEADER_LEN));
    // The octets before a root label do not matter.
    let mut bytes = with(b"\0");
    bytes[HEADER_LEN - 1] = 0xff;
    assert!(Message::new(&bytes).unwrap().is_plain_name(HEADER_LEN));
}

#[test]
fn pointer_to_malformed_name_equals_nothing() {
    // Pointers to a name that leads to itself, or to a later offset.
    let bytes = with(b"\xc0\x0c\xc0\x0c\xc0\x12\x01a\0");
    let message = Message::new(&bytes).unwrap();
    assert_eq!(message.same_name(14, 12), Err(Malformed));
    assert_eq!(message.same_name(16, 18), Err(Malformed));
}

/// Most owner names are pointers to the name in the question. They are compared without being parsed,
/// and do not count towards the pointer limit of the message.
#[test]
fn a_pointer_to_a_plain_name_costs_nothing() {
    let bytes = with(b"\x01a\0\xc0\x0c");
    let names = Message::new(&bytes).unwrap().names();
    for _ in 0..10 * bytes.len() {
        assert_eq!(names.same_name(15, HEADER_LEN), Ok(true));
    }
    // If the arguments are swapped, the pointer is followed.
    let all = (0..10 * bytes.len()).take_while(|_| names.same_name(HEADER_LEN, 15).is_ok());
    assert_eq!(all.count(), bytes.len());
}

/// A pointer has 14 bits. If the upper bits were cut off, a pointer to octet 16 400 would equal a
/// pointer to octet 16.
#[test]
fn a_pointer_leads_to_one_of_the_first_16384_octets() {
    let mut bytes = with(b"\0\0\0\0\x01a\0");
    bytes.resize(0x4010, 0);
    bytes.extend(b"\x01b\0\xc0\x10");
    let message = Message::new(&bytes).unwrap();
    assert_eq!(message.same_name(0x4013, 0x10), Ok(true));
    assert_eq!(message.same_name(0x4013, 0x4010), Ok(false));
}

/// Each of two compared names may contain as many pointers as a name may have labels.
#[test]
fn comparison_allows_127_pointers_per_name() {
    let mut bytes = with(b"\x01a\0");
    // Two chains of pointers that end in the same name.
    let mut chain = |length: usize| {
        let mut at = HEADER_LEN;
        for _ in 0..length {
            let next = bytes.len();
            bytes.extend((0xc000 | at as u16).to_be_bytes());
            at = next;
        }
        at
    };
    let (one, other, longer) = (chain(127), chain(127), chain(128));
    let message = Message::new(&bytes).unwrap();
    assert_eq!(message.same_name(one, other), Ok(true));
    assert_eq!(message.same_name(longer, other), Err(Malformed));
}

/// Returns a label of this length, with its length octet.
fn label(length: usize) -> Vec<u8> {
    [&[length as u8][..], &vec![b'x'; length]].concat()
}

/// Octets reached by pointers count towards the length of a name.
#[test]
fn a_name_of_two_parts_has_255_octets_at_the_most() {
    let end = [label(63), label(63), vec![0]].concat();
    for (last, same) in [(61, Ok(true)), (62, Err(Malformed)), (63, Err(Malformed))] {
        let bytes = with(&[&end[..], &label(63), &label(last), b"\xc0\x0c"].concat());
        let (message, at) = (Message::new(&bytes).unwrap(), HEADER_LEN + end.len());
        assert_eq!(message.same_name(at, at), same, "{last}");
    }
}

/// Names with different labels differ, regardless of the octets that follow. A label must be complete.
#[test]
fn a_label_ends_within_the_message() {
    let same = |label: &[u8]| {
        let bytes = with(&[b"\x01b\0", label].concat());
        Message::new(&bytes).unwrap().same_name(HEADER_LEN + 3, HEADER_LEN)
    };
    assert_eq!(same(b"\x01a"), Ok(false));
    assert_eq!(same(b"\x02a"), Err(Malformed));
}

#[test]
fn a_name_has_255_octets_at_the_most() {
    // Three labels of 63 octets, and a last label of `last` octets.
    let name = |last| [label(63), label(63), label(63), label(last), vec![0]].concat();
    let skipped = |name: &[u8]| Message::new(&with(name)).unwrap().skip_name(HEADER_LEN);
    assert_eq!(name(61).len(), 255);
    assert_eq!(skipped(&name(61)), Ok(HEADER_LEN + 255));
    for last in [62, 63] {
        assert_eq!(skipped(&name(last)), Err(Malformed));
    }
    let many = [&[63; 64][..]; 6].concat();
    assert_eq!(skipped(&[&many[..], &[0]].concat()), Err(Malformed));
    // A pointer has two octets, and both must be present.
    assert_eq!(skipped(b"\xc0"), Err(Malformed));
    assert_eq!(skipped(b"\xc0\x0c"), Ok(HEADER_LEN + 2));
    assert_eq!(skipped(b"\x01a\xc0"), Err(Malformed));
}

proptest! {
    #[test]
    fn a_header_is_read_as_domain_reads_it(header: [u8; HEADER_LEN]) {
        let ours = Message::new(&header).unwrap();
        let theirs = domain::base::Message::from_slice(&header).unwrap();
        let (flags, counts) = (theirs.header(), theirs.header_counts());
        prop_assert_eq!(ours.id(), flags.id());
        prop_assert_eq!(ours.is_response(), flags.qr());
        prop_assert_eq!(ours.opcode(), flags.opcode().to_int());
        prop_assert_eq!(ours.is_truncated(), flags.tc());
        prop_assert_eq!(ours.rcode().code(), u16::from(flags.rcode().to_int()));
        prop_assert_eq!(
            [ours.qdcount(), ours.ancount(), ours.nscount(), ours.arcount()],
            [counts.qdcount(), counts.ancount(), counts.nscount(), counts.arcount()]
        );
    }
}
