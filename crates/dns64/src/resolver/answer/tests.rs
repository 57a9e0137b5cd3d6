//! Acceptance of upstream messages as answers, and the form in which they are cached.

use proptest::prelude::*;
use wire::view::rtype;

use super::*;
use crate::testing::{Section, TestAnswer, record, said, wire};

/// `a.test` AAAA IN.
const QUESTION: &[u8] = b"\x01a\x04test\0\0\x1c\0\x01";

/// Returns an answer with one CNAME of `a.test` whose target is the pointer `to`, and `additional`
/// further records of that name.
fn alias(ttl: u32, to: u16, additional: u16) -> Vec<u8> {
    let mut message = vec![0, 0, 0x81, 0x80, 0, 1, 0, 1, 0, 0];
    message.extend(additional.to_be_bytes());
    message.extend(QUESTION);
    let mut record = |rtype: u16, ttl: u32, data: &[u8]| {
        message.extend([0xc0, HEADER_LEN as u8]);
        message.extend(rtype.to_be_bytes());
        message.extend([0, 1]);
        message.extend(ttl.to_be_bytes());
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
    };
    record(rtype::CNAME, ttl, &(0xc000 | to).to_be_bytes());
    for _ in 0..additional {
        record(rtype::A, 60, &[192, 0, 2, 1]);
    }
    message
}

/// Regression test: the target of the alias is read from its TTL. The target was a valid name
/// before the TTL was limited, but malformed afterwards, and the process aborted.
#[test]
fn alias_target_read_from_a_ttl_is_preserved() {
    let ttl_at = (HEADER_LEN + QUESTION.len() + 6) as u16;
    for offset in 0..4 {
        for ttl in [0x7f00_0000, 0x0000_0001, 0x0161_0000, 0x0001_5180, u32::MAX] {
            let message = alias(ttl, ttl_at + offset, 0);
            let Ok(answer) = Answer::parse(&message, QUESTION, &TtlLimits::default()) else {
                continue;
            };
            let view = Message::new(&message).unwrap();
            let before = survey::lower(&view.names(), usize::from(ttl_at + offset)).unwrap();
            assert_eq!(answer.target(), before.wire(), "TTL {ttl:#x}, octet {offset}");
        }
    }
}

/// The header is overwritten as well, so names must not be read from it.
#[test]
fn alias_target_read_from_the_header_is_malformed() {
    for to in 0..HEADER_LEN as u16 {
        let message = alias(60, to, 5);
        let parsed = Answer::parse(&message, QUESTION, &TtlLimits::default());
        assert!(matches!(parsed, Err(Unusable::Malformed)), "octet {to}: {parsed:?}");
    }
}

#[test]
fn usual_answers_are_kept_as_they_are() {
    let mut message = alias(60, HEADER_LEN as u16 + 2, 0);
    assert!(Answer::parse(&message, QUESTION, &TtlLimits::default()).unwrap().has_aliases());
    // An uncompressed target.
    let end = message.len();
    message[end - 3] = 3;
    message.truncate(end - 2);
    message.extend(b"\x01b\0");
    let answer = Answer::parse(&message, QUESTION, &TtlLimits::default()).unwrap();
    assert_eq!(answer.message()[HEADER_LEN..], message[HEADER_LEN..]);
}

/// Later upstream queries use the name in the cached answer.
#[test]
fn question_is_stored_in_lower_case() {
    let mut message = said("a.test", rtype::AAAA).nodata(60).bytes();
    message[HEADER_LEN + 1] = b'A';
    message[HEADER_LEN + 3] = b'T';
    let answer = parsed(&message).unwrap();
    assert_eq!(answer.target(), wire("a.test"));
    assert_eq!(answer.message()[HEADER_LEN..answer.records_at()], *QUESTION);
}

/// The question, `a.test` AAAA, as a pointer.
const A: &[u8] = &[0xc0, HEADER_LEN as u8];

fn parsed(message: &[u8]) -> Result<Answer, Unusable> {
    Answer::parse(message, QUESTION, &TtlLimits::default())
}

fn types(answer: &Answer) -> Vec<u16> {
    answer.answers().map(|record| record.rtype).collect()
}

#[test]
fn types_are_compared_as_numbers() {
    // HTTPS is 65, "A"; 97 is "a".
    let https = [&b"\x01a\x04test\0"[..], &[0, 65, 0, 1]].concat();
    let mut message = said("a.test", 65).bytes();
    assert!(Answer::parse(&message, &https, &TtlLimits::default()).is_ok());
    let at = HEADER_LEN + https.len() - 3;
    message[at] = 97;
    assert!(matches!(
        Answer::parse(&message, &https, &TtlLimits::default()),
        Err(Unusable::OtherQuestion)
    ));
    message[at] = 65;
    message[HEADER_LEN + 1] = b'A';
    assert!(
        Answer::parse(&message, &https, &TtlLimits::default()).is_ok(),
        "letter case of the name"
    );
}

#[test]
fn kinds_of_answers() {
    let question = || said("a.test", rtype::AAAA);
    let alias = || question().cname("a.test", 60, "b.test");
    for (name, answer, kind) in [
        ("data", question().aaaa("a.test", 60, "2001:db8::1"), AnswerKind::Data),
        ("data behind an alias", alias().aaaa("b.test", 60, "2001:db8::1"), AnswerKind::Data),
        ("nothing", question(), AnswerKind::NoData),
        ("nothing, with SOA", question().nodata(60), AnswerKind::NoData),
        ("an alias", alias(), AnswerKind::Unfinished),
        ("an alias, with SOA", alias().nodata(60), AnswerKind::NoData),
        (
            "an alias, with the SOA of another zone",
            alias().soa("other", 60, 60),
            AnswerKind::Unfinished,
        ),
        ("NXDOMAIN", question().nodata(60).rcode(3), AnswerKind::NxDomain),
        ("SERVFAIL", question().rcode(2), AnswerKind::Failed),
        ("other data", question().aaaa("c.test", 60, "2001:db8::1"), AnswerKind::NoData),
    ] {
        assert_eq!(answer.parse().unwrap().kind(), kind, "{name}");
    }
}

#[test]
fn caching_times_by_kind() {
    let question = || said("a.test", rtype::AAAA);
    let data = question().aaaa("a.test", 90, "2001:db8::1").aaaa("a.test", 60, "2001:db8::2");
    assert_eq!(data.parse().unwrap().ttl(), 60, "the least TTL");
    assert_eq!(
        question().aaaa("a.test", 1 << 31, "2001:db8::1").parse().unwrap().ttl(),
        0,
        "RFC 2181 section 8"
    );
    assert_eq!(question().soa("test", 60, 300).parse().unwrap().ttl(), 60, "RFC 2308 section 5");
    assert_eq!(question().soa("test", 300, 60).parse().unwrap().ttl(), 60, "RFC 2308 section 5");
    assert_eq!(question().parse().unwrap().ttl(), 0, "no SOA");
    let limits = TtlLimits { min: 100, max: 200, negative_max: 50, ..TtlLimits::default() };
    let ttl = |said: TestAnswer| Answer::parse(&said.bytes(), QUESTION, &limits).unwrap().ttl();
    assert_eq!(ttl(question().aaaa("a.test", 60, "2001:db8::1")), 100);
    assert_eq!(ttl(question().aaaa("a.test", 600, "2001:db8::1")), 200);
    assert_eq!(ttl(question().nodata(300)), 50);
    assert_eq!(ttl(question().rcode(2)), limits.failure);
}

/// Returns the TTLs of all records of an answer, in order.
fn ttls(said: &TestAnswer, limits: &TtlLimits) -> Vec<u32> {
    let answer = Answer::parse(&said.bytes(), QUESTION, limits).unwrap();
    answer.ttl_offsets().map(|offset| answer.ttl_at(offset)).collect()
}

/// Clients cache a negative answer for the SOA's TTL or its MINIMUM, whichever is less. MINIMUM
/// does not decrease while the answer is cached here.
#[test]
fn rfc2308_3_soa_has_the_negative_ttl() {
    let question = || said("a.test", rtype::AAAA);
    let limits = TtlLimits { negative_max: 50, ..TtlLimits::default() };
    for (what, said, expected) in [
        ("MINIMUM", question().soa("test", 300, 20), vec![20]),
        ("the SOA's TTL", question().soa("test", 20, 300), vec![20]),
        ("our limit", question().soa("test", 300, 300), vec![50]),
        ("no such name", question().soa("test", 300, 20).rcode(3), vec![20]),
        (
            "behind an alias",
            question().cname("a.test", 10, "b.test").soa("test", 300, 20),
            vec![10, 20],
        ),
        ("a pair of SOAs", question().soa("test", 300, 20).soa("test", 90, 30), vec![20, 20]),
        ("the SOA of another zone", question().soa("other", 300, 20), vec![300]),
        (
            "no denial",
            question().aaaa("a.test", 60, "2001:db8::1").soa("test", 300, 20),
            vec![60, 300],
        ),
    ] {
        assert_eq!(ttls(&said, &limits), expected, "{what}");
    }
    let short = TtlLimits { max: 10, ..TtlLimits::default() };
    assert_eq!(ttls(&question().soa("test", 300, 20), &short), [10], "max-ttl");
}

/// RFC 4034 §3: the TTL of a signature equals that of the covered RRset.
#[test]
fn rfc4034_3_soa_signature_has_the_negative_ttl() {
    const NSEC: u16 = 47;
    let signature = |owner: &str, covered: u16| {
        let mut data = covered.to_be_bytes().to_vec();
        data.extend([15, 1, 0, 0, 1, 44, 0, 0, 0, 2, 0, 0, 0, 1, 0, 7]);
        data.extend(wire("test"));
        data.extend([0; 64]);
        record(&wire(owner), rtype::RRSIG, 300, &data)
    };
    // Signatures before and after the covered record, in a different letter case.
    let answer = said("a.test", rtype::AAAA)
        .with(Section::Authority, signature("test", rtype::SOA))
        .soa("test", 300, 20)
        .with(Section::Authority, signature("test", NSEC))
        .with(Section::Authority, signature("other", rtype::SOA))
        .with(Section::Authority, {
            let mut capital = signature("test", rtype::SOA);
            capital[1] = b'T';
            capital
        });
    assert_eq!(ttls(&answer, &TtlLimits::default()), [20, 20, 300, 300, 20]);
    // In a rebuilt message the offsets differ.
    let stranger = record(&wire("c.test"), rtype::A, 60, &[192, 0, 2, 1]);
    let rebuilt = answer.with(Section::Answer, stranger);
    assert_eq!(ttls(&rebuilt, &TtlLimits::default()), [20, 20, 300, 300, 20]);
}

#[test]
fn rfc2181_5_2_the_records_of_an_rrset_have_its_least_ttl() {
    let answer = said("a.test", rtype::AAAA)
        .cname("a.test", 20, "b.test")
        .aaaa("b.test", 300, "2001:db8::1")
        .aaaa("b.test", 150, "2001:db8::2")
        .rrsig("b.test", rtype::AAAA)
        .parse()
        .unwrap();
    let of = |rtype: u16| {
        let records = answer.answers().filter(move |record| record.rtype == rtype);
        records.map(|record| record.ttl).collect::<Vec<_>>()
    };
    assert_eq!((of(rtype::CNAME), of(rtype::AAAA)), (vec![20], vec![150, 150]));
    assert_eq!(answer.ttl(), 20);
}

#[test]
fn records_are_ordered_and_unrelated_ones_removed() {
    let answer = said("a.test", rtype::AAAA)
        .aaaa("c.test", 60, "2001:db8::1")
        .cname("b.test", 60, "c.test")
        .aaaa("d.test", 60, "2001:db8::2")
        .cname("a.test", 60, "b.test");
    let answer = answer.parse().unwrap();
    assert_eq!(types(&answer), [rtype::CNAME, rtype::CNAME, rtype::AAAA]);
    assert_eq!(answer.target(), wire("c.test"));
}

/// Regression test: if names have more labels than the crate `domain` remembers, each owner was
/// written uncompressed. A message of 42 KiB then exceeded the maximum length.
#[test]
fn rebuilt_message_of_long_names_does_not_grow() {
    let below = |name: &str| format!("{}.{name}", ["a"; 100].join("."));
    let (alias, end) = (below("c.test"), below("b.test"));
    let end_at = HEADER_LEN + wire(&alias).len() + 4;
    let pointer = (0xc000 | end_at as u16).to_be_bytes();
    let answer = said(&alias, rtype::AAAA).aaaa(&end, 60, "2001:db8::");
    let answer = (1..1_500u16).fold(answer, |answer, n| {
        let address = std::net::Ipv6Addr::from_bits(u128::from(n));
        answer.with(Section::Answer, record(&pointer, rtype::AAAA, 60, &address.octets()))
    });
    let answer = answer.with(Section::Answer, record(&wire(&alias), rtype::CNAME, 60, &pointer));
    let parsed = answer.parse().unwrap();
    assert_eq!((parsed.answer_count(), parsed.target()), (1_501, &*wire(&end)));
    assert!(parsed.message().len() <= answer.bytes().len());
}

/// RFC 6672 §2.3: a DNAME applies to names below its owner. Comparing octets alone would ignore
/// label boundaries.
#[test]
fn a_dname_whose_owner_ends_within_a_label_is_left_out() {
    let dname = |name: &str| {
        said(name, rtype::AAAA).answer("a.test", rtype::DNAME, 60, &wire("b.test")).parse().unwrap()
    };
    assert_eq!(types(&dname("z\\001a.test")), [0; 0]);
    assert_eq!(types(&dname("z.y.a.test")), [rtype::DNAME, rtype::CNAME]);
    assert_eq!(types(&dname("ba.test")), [0; 0]);
}

/// RFC 6672 §3.1: a CNAME omitted by the upstream is synthesized from its DNAME.
#[test]
fn a_dname_without_its_cname_is_followed() {
    let dname =
        |target| said("www.a.test", rtype::AAAA).answer("a.test", rtype::DNAME, 60, &wire(target));
    let answer = dname("b.test").aaaa("www.b.test", 60, "2001:db8::1").parse().unwrap();
    assert_eq!(
        (answer.kind(), types(&answer)),
        (AnswerKind::Data, vec![rtype::DNAME, rtype::CNAME, rtype::AAAA])
    );
    assert_eq!(answer.target(), wire("www.b.test"));
    let unfinished = dname("b.test").parse().unwrap();
    assert_eq!(
        (unfinished.kind(), unfinished.target()),
        (AnswerKind::Unfinished, &*wire("www.b.test"))
    );
    let with_cname = dname("b.test").cname("www.a.test", 60, "www.b.test").parse().unwrap();
    assert_eq!(types(&with_cname), [rtype::DNAME, rtype::CNAME]);
    for qtype in [rtype::CNAME, rtype::ANY] {
        let of_alias =
            said("www.a.test", qtype).answer("a.test", rtype::DNAME, 60, &wire("b.test"));
        let of_alias = of_alias.parse().unwrap();
        assert_eq!(of_alias.kind(), AnswerKind::Data);
        assert_eq!(types(&of_alias), [rtype::DNAME, rtype::CNAME]);
    }
    for target in ["a.test", "b.a.test"] {
        for said in [dname(target), dname(target).cname("www.a.test", 60, "www.c.test")] {
            let parsed = said.parse();
            assert!(matches!(parsed, Err(Unusable::AliasLoop)), "{target}: {parsed:?}");
        }
    }
    let long = format!("{0}.{0}.{0}.{1}", "l".repeat(63), "m".repeat(58));
    assert!(
        matches!(dname(&long).parse(), Err(Unusable::Malformed)),
        "RFC 6672 section 2.2: too long"
    );
}

/// RFC 6672 §5.3.1: the DNAME determines the alias. The message is used up to this alias.
#[test]
fn a_cname_that_contradicts_its_dname_is_replaced() {
    let question = |qtype| said("www.a.test", qtype);
    let dname = |said: TestAnswer| said.answer("a.test", rtype::DNAME, 60, &wire("b.test"));
    let wrong = |said: TestAnswer| said.cname("www.a.test", 90, "www.c.test");
    let both = |qtype| wrong(dname(question(qtype)));
    let records = |said: &TestAnswer| {
        let answer = said.parse().unwrap();
        let read = |record| answer.read(&record).unwrap().to_string();
        let counts = (answer.authorities().count(), answer.additional().count());
        assert_eq!((answer.rcode(), counts, answer.ttl()), (Rcode::NOERROR, (0, 0), 60));
        (answer.kind(), answer.answers().map(read).collect::<Vec<_>>())
    };
    let expected = ["a.test. 60 IN DNAME b.test.", "www.a.test. 60 IN CNAME www.b.test."];
    let question = || question(rtype::AAAA);
    let both_of_aaaa = || both(rtype::AAAA);
    for (what, said) in [
        ("no data", both_of_aaaa()),
        ("CNAME first", dname(wrong(question()))),
        ("data of the wrong target", both_of_aaaa().aaaa("www.c.test", 60, "2001:db8::bad")),
        ("data of the right target", both_of_aaaa().aaaa("www.b.test", 60, "2001:db8::1")),
        ("NODATA", both_of_aaaa().nodata(60)),
        ("NXDOMAIN", both_of_aaaa().nodata(60).rcode(3)),
        ("two CNAMEs", both_of_aaaa().cname("www.a.test", 60, "www.b.test")),
        ("signed CNAME", both_of_aaaa().rrsig("www.a.test", rtype::CNAME)),
        ("loop", both_of_aaaa().cname("www.c.test", 60, "www.a.test")),
        ("additional record", {
            let data = record(&wire("www.c.test"), rtype::A, 60, &[192, 0, 2, 66]);
            both_of_aaaa().with(Section::Additional, data)
        }),
    ] {
        let (kind, found) = records(&said);
        assert_eq!(
            (kind, &*found),
            (AnswerKind::Unfinished, &expected.map(String::from)[..]),
            "{what}"
        );
        assert_eq!(said.parse().unwrap().target(), wire("www.b.test"), "{what}");
    }
    // Queries for which no alias is followed.
    for qtype in [rtype::CNAME, rtype::ANY] {
        for said in [both(qtype), both(qtype).nodata(60).rcode(3)] {
            let (kind, found) = records(&said);
            assert_eq!(
                (kind, &*found),
                (AnswerKind::Data, &expected.map(String::from)[..]),
                "{qtype}"
            );
        }
    }
}

#[test]
fn a_wrong_cname_of_a_later_dname_is_replaced() {
    let answer = said("www.a.test", rtype::AAAA)
        .answer("a.test", rtype::DNAME, 60, &wire("b.test"))
        .cname("www.a.test", 60, "www.b.test")
        .answer("b.test", rtype::DNAME, 60, &wire("c.test"))
        .cname("www.b.test", 60, "www.d.test")
        .aaaa("www.d.test", 60, "2001:db8::bad")
        .parse()
        .unwrap();
    let (dname, cname) = (rtype::DNAME, rtype::CNAME);
    assert_eq!(types(&answer), [dname, cname, dname, cname]);
    assert_eq!((answer.kind(), answer.target()), (AnswerKind::Unfinished, &*wire("www.c.test")));
}

/// A CNAME at the owner of a DNAME is no substitution by this DNAME (RFC 6672 §2.3).
#[test]
fn a_cname_at_the_owner_of_a_dname_is_followed() {
    let dname = |name| said(name, rtype::AAAA).answer("a.test", rtype::DNAME, 60, &wire("b.test"));
    let at_owner = dname("a.test").cname("a.test", 60, "c.test").parse().unwrap();
    assert_eq!((types(&at_owner), at_owner.target()), (vec![rtype::CNAME], &*wire("c.test")));
    let below = dname("www.a.test").cname("a.test", 60, "c.test").parse().unwrap();
    assert_eq!(types(&below), [rtype::DNAME, rtype::CNAME]);
    assert_eq!(below.target(), wire("www.b.test"));
}

/// RFC 2308 §2.2.
#[test]
fn a_referral_is_an_error_and_not_nodata() {
    let ns = |zone: &str| record(&wire(zone), rtype::NS, 60, &wire("ns.other"));
    for zone in ["a.test", "test", "."] {
        let referral = said("a.test", rtype::AAAA).with(Section::Authority, ns(zone));
        let answer = referral.parse().unwrap();
        assert_eq!(
            (answer.kind(), answer.rcode()),
            (AnswerKind::Failed, Rcode::SERVFAIL),
            "{zone}"
        );
    }
    let with_soa = said("a.test", rtype::AAAA).nodata(60).with(Section::Authority, ns("test"));
    assert_eq!(with_soa.parse().unwrap().kind(), AnswerKind::NoData);
    let data = said("a.test", rtype::AAAA)
        .aaaa("a.test", 60, "2001:db8::1")
        .with(Section::Authority, ns("test"));
    assert_eq!(data.parse().unwrap().kind(), AnswerKind::Data);
    let alias = said("a.test", rtype::AAAA)
        .cname("a.test", 60, "b.test")
        .with(Section::Authority, ns("test"));
    assert_eq!(alias.parse().unwrap().kind(), AnswerKind::Unfinished, "its end is asked for");
}

/// RFC 6672 §2.2.
#[test]
fn yxdomain_with_its_dname_is_an_answer() {
    let long = format!("{0}.{0}.{0}.{1}", "l".repeat(63), "m".repeat(58));
    for qtype in [rtype::AAAA, rtype::A, rtype::CNAME, rtype::ANY] {
        let too_long = said("www.a.test", qtype)
            .answer("a.test", rtype::DNAME, 60, &wire(&long))
            .rcode(6)
            .parse()
            .unwrap();
        let found = (too_long.kind(), too_long.rcode(), types(&too_long), too_long.ttl());
        let wanted = (AnswerKind::NxDomain, Rcode::YXDOMAIN, vec![rtype::DNAME], 60);
        assert_eq!(found, wanted, "type {qtype}");
    }
    let with_cname = said("www.a.test", rtype::AAAA)
        .answer("a.test", rtype::DNAME, 60, &wire(&long))
        .cname("www.a.test", 60, "www.b.test")
        .rcode(6)
        .parse()
        .unwrap();
    let found = (with_cname.kind(), types(&with_cname), with_cname.has_aliases());
    assert_eq!(found, (AnswerKind::NxDomain, vec![rtype::DNAME], false));
    let without_proof = said("www.a.test", rtype::AAAA).rcode(6).parse().unwrap();
    assert_eq!(without_proof.kind(), AnswerKind::Failed);
    let fits = said("www.a.test", rtype::AAAA)
        .answer("a.test", rtype::DNAME, 60, &wire("b.test"))
        .rcode(6)
        .parse()
        .unwrap();
    assert_eq!(fits.kind(), AnswerKind::Failed, "the name is not too long");
}

#[test]
fn answers_that_contradict_themselves_are_malformed() {
    let question = || said("www.a.test", rtype::AAAA);
    let dname = || question().answer("a.test", rtype::DNAME, 60, &wire("b.test"));
    for (name, answer) in [
        (
            "two CNAMEs",
            question().cname("www.a.test", 60, "b.test").cname("www.a.test", 60, "c.test"),
        ),
        ("two DNAMEs", dname().answer("a.test", rtype::DNAME, 60, &wire("c.test"))),
        ("a DNAME below another with the same result", {
            let below = question().answer("a.test", rtype::DNAME, 60, &wire("a.b"));
            below.answer("test", rtype::DNAME, 60, &wire("b"))
        }),
        (
            "data beside a CNAME",
            question().cname("www.a.test", 60, "b.test").aaaa("www.a.test", 60, "2001:db8::1"),
        ),
        ("data below a DNAME", dname().aaaa("www.a.test", 60, "2001:db8::1")),
    ] {
        assert!(matches!(answer.parse(), Err(Unusable::Malformed)), "{name}");
    }
    let twice = question().cname("www.a.test", 60, "b.test").cname("www.a.test", 60, "b.test");
    assert_eq!(types(&twice.parse().unwrap()), [rtype::CNAME], "said twice");
}

#[test]
fn malformed_data_is_malformed() {
    let question = || said("a.test", rtype::AAAA);
    for section in [Section::Answer, Section::Authority, Section::Additional] {
        for (rtype, data) in [
            (rtype::A, &[1u8, 2, 3, 4, 5][..]),
            (rtype::AAAA, &[0; 4]),
            (rtype::NS, &[]),
            (15, &[0, 1]),
        ] {
            let answer = question().with(section, record(&wire("a.test"), rtype, 60, data));
            assert!(matches!(answer.parse(), Err(Unusable::Malformed)), "type {rtype}");
        }
    }
}

/// RFC 6891 §6.1.1: OPT and TSIG are hop-by-hop records, in every section.
#[test]
fn hop_by_hop_records_are_removed() {
    let opt = || record(&[0], rtype::OPT, 0, &[]);
    for section in [Section::Answer, Section::Authority, Section::Additional] {
        for other in [rtype::OPT, rtype::TSIG] {
            let answer = said("a.test", rtype::AAAA)
                .aaaa("a.test", 60, "2001:db8::1")
                .with(section, record(&[0], other, 0, &[]))
                .with(Section::Additional, opt())
                .with(Section::Additional, opt())
                .with(Section::Additional, record(&wire("a.test"), rtype::A, 60, &[192, 0, 2, 1]));
            let answer = answer.parse().unwrap();
            let message = answer.message();
            let kept: Vec<u16> = Message::new(message)
                .unwrap()
                .all_records(answer.records_at())
                .map(|record| record.unwrap().rtype)
                .collect();
            assert_eq!(kept, [rtype::AAAA, rtype::A]);
        }
    }
}

#[test]
fn unrelated_additional_records_are_removed() {
    let with_additional = |owner: &str| {
        let exchange = [&[0, 10][..], &wire("mail.test")].concat();
        let answer = said("a.test", 15).answer("a.test", 15, 60, &exchange);
        let answer =
            answer.with(Section::Authority, record(&wire("test"), rtype::NS, 60, &wire("ns.test")));
        let answer =
            answer.with(Section::Additional, record(&wire(owner), rtype::A, 60, &[192, 0, 2, 1]));
        answer.parse().unwrap().ttl_offsets().count() - 2
    };
    for (owner, kept) in
        [("mail.test", 1), ("ns.test", 1), ("a.test", 1), ("test", 1), ("bank.example", 0)]
    {
        assert_eq!(with_additional(owner), kept, "{owner}");
    }
}

#[test]
fn extended_errors_of_validation_come_first() {
    let options =
        [&[0u8, 15, 0, 2, 0, 22][..], &[0, 10, 0, 1, 7], &[0, 15, 0, 3, 0, 7, b'x']].concat();
    let servfail = said("a.test", rtype::AAAA).rcode(2);
    let answer = servfail.clone().with(Section::Additional, record(&[0], rtype::OPT, 0, &options));
    assert_eq!(answer.parse().unwrap().extended_error(), Some(7));
    assert_eq!(servfail.parse().unwrap().extended_error(), None);
    let badvers =
        servfail.rcode(0).with(Section::Additional, record(&[0], rtype::OPT, 1 << 24, &[]));
    assert_eq!(badvers.parse().unwrap().kind(), AnswerKind::Failed, "RCODE 16");
}

/// Messages whose names refer to each other through thousands of pointers, and in which aliases
/// must be found among these names. The work is bounded by the length of the message.
#[test]
fn chains_of_pointers_are_malformed() {
    let mut message = said("a.test", rtype::AAAA).bytes();
    let start = message.len();
    // A record of an unknown type that contains a chain of pointers.
    let first = message.len() + A.len() + 10;
    let mut chain = b"\x01x\0".to_vec();
    let mut last = first;
    while chain.len() < 14_000 {
        let at = first + chain.len();
        chain.extend((0xc000 | last as u16).to_be_bytes());
        last = at;
    }
    message.extend(record(A, 65_280, 60, &chain));
    let pointer = (0xc000 | last as u16).to_be_bytes();
    let mut records = 1u16;
    while message.len() < 60_000 {
        message.extend(record(&pointer, rtype::AAAA, 60, &[0; 16]));
        records += 1;
    }
    message[6..8].copy_from_slice(&records.to_be_bytes());
    assert!(matches!(parsed(&message), Err(Unusable::Malformed)));
    // Many names with short pointer chains. Each name points to the hundredth pointer of the long chain.
    message.truncate(start);
    message.extend(record(A, 65_280, 60, &chain));
    let pointer = (0xc000 | (first + 3 + 2 * 100) as u16).to_be_bytes();
    for _ in 1..records {
        message.extend(record(&pointer, rtype::AAAA, 60, &[0; 16]));
    }
    assert!(matches!(parsed(&message), Err(Unusable::Malformed)));
}

/// Pointers to arbitrary offsets: headers, TTLs, data, other names.
fn pointers() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        3 => (0u16..160).prop_map(|to| (0xc000 | to).to_be_bytes().to_vec()),
        1 => (0u16..160).prop_map(|to| [&[1, b'x'][..], &(0xc000 | to).to_be_bytes()].concat()),
        1 => Just(b"\x01b\x04test\0".to_vec()),
    ];
    let rtype = prop::sample::select(vec![rtype::CNAME, rtype::DNAME, rtype::AAAA, rtype::NS]);
    // TTLs that parse as a label and its end, or as pointers.
    let ttl = prop_oneof![
        any::<u32>(),
        Just(0x7f00_0000),
        Just(0x0161_0000),
        Just(0x0001_5180),
        Just(0xc00c_0161)
    ];
    let one = (name.clone(), rtype, ttl, name, prop::sample::select(vec![6usize, 8, 10]));
    prop::collection::vec(one, 1..5).prop_map(|mut records| {
        records.sort_by_key(|record| record.4);
        let mut message = said("a.test", rtype::AAAA).bytes();
        for (owner, rtype, ttl, data, section) in records {
            let data = if rtype == rtype::AAAA { vec![7; 16] } else { data };
            message.extend(record(&owner, rtype, ttl, &data));
            message[section + 1] += 1;
        }
        message
    })
}

/// Returns all names of a message in presentation format.
fn all_names(message: &[u8]) -> Vec<crate::name::LowerName> {
    let view = Message::new(message).unwrap();
    let names = view.names();
    let mut found = Vec::new();
    for record in view.all_records(HEADER_LEN + QUESTION.len()).map(Result::unwrap) {
        found.push(record.owner);
        view.check_data(&record, |name| found.push(name.start)).unwrap();
    }
    found.into_iter().map(|at| survey::lower(&names, at).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Aging an answer, or setting a client's id and flags, changes no name in it.
    #[test]
    fn overwriting_header_and_ttls_changes_no_name(message in pointers(), ttl: u32, header: [u8; 4]) {
        if let Ok(answer) = parsed(&message) {
            let mut copy = answer.message().to_vec();
            let before = all_names(&copy);
            copy[..4].copy_from_slice(&header);
            for offset in answer.ttl_offsets() {
                copy[offset..offset + 4].copy_from_slice(&ttl.to_be_bytes());
            }
            prop_assert_eq!(before, all_names(&copy));
            let aliases = answer.answers().filter(|record| record.rtype == rtype::CNAME).count();
            prop_assert_eq!(aliases > 0, answer.has_aliases());
        }
    }
}
