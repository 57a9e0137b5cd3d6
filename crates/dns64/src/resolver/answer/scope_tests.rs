//! Tests of answers from upstreams that may answer only for some names.

use std::path::Path;
use std::sync::LazyLock;

use domain::base::ToName;
use proptest::prelude::*;
use wire::view::rtype;

use super::*;
use crate::config::Settings;
use crate::testing::{Section, TestAnswer, record, said, wire};

const MX: u16 = 15;

/// Settings with upstream `b` for names in `corp.test` and upstream `a` for all others.
static SETTINGS: LazyLock<Settings> = LazyLock::new(|| {
    let text = "[[upstream]]\naddress = '192.0.2.1'\nname = 'a'\n\
                [[upstream]]\naddress = '192.0.2.2'\nname = 'b'\n\
                [[forward]]\ndomain = '.'\nupstreams = ['a']\n\
                [[forward]]\ndomain = 'corp.test'\nupstreams = ['b']\n";
    Settings::from_text(text, Path::new("test.toml")).unwrap()
});

/// Returns the scope of answers to a question for `name`: the names that have the same upstreams as `name`.
fn scope(name: &str) -> Scope<'static> {
    SETTINGS.upstream_sets.scope(&wire(name)).unwrap()
}

/// Parses an answer to a question for `name`.
fn answer_for(name: &str, said: &TestAnswer) -> Answer {
    said.parse_in(scope(name)).unwrap()
}

/// Returns the types of all records of an answer, section by section.
fn types(answer: &Answer) -> [Vec<u16>; 3] {
    let of = |records: &mut dyn Iterator<Item = AnswerRecord<'_>>| {
        records.map(|record| record.rtype).collect()
    };
    [of(&mut answer.answers()), of(&mut answer.authorities()), of(&mut answer.additional())]
}

impl TestAnswer {
    fn authority(self, owner: &str, rtype: u16, data: &[u8]) -> TestAnswer {
        self.with(Section::Authority, record(&wire(owner), rtype, 300, data))
    }

    fn additional(self, owner: &str) -> TestAnswer {
        self.with(Section::Additional, record(&wire(owner), rtype::A, 300, &[192, 0, 2, 66]))
    }

    fn bad(self, owner: &str) -> TestAnswer {
        self.aaaa(owner, 300, "2001:db8::bad")
    }
}

/// Asserts that the answer to a question for `name` is cut after the alias that has the target `end`.
fn assert_cut(name: &str, said: &TestAnswer, end: &str, expected: &[u16], case: &str) {
    let answer = answer_for(name, said);
    let found = (answer.kind(), answer.rcode(), answer.extended_error(), answer.negative_ttl());
    assert_eq!(found, (AnswerKind::Unfinished, Rcode::NOERROR, None, None), "{case}");
    assert_eq!((answer.target(), answer.ttl()), (&*wire(end), 60), "{case}");
    assert_eq!(types(&answer), [expected.to_vec(), vec![], vec![]], "{case}");
}

#[test]
fn item_08_an_answer_is_cut_at_an_alias_out_of_scope() {
    let end = "x.corp.test";
    let question = || said("a.test", rtype::AAAA);
    let alias = || question().cname("a.test", 60, end);
    for (case, said) in [
        ("an alias alone", alias()),
        ("data", alias().bad(end)),
        ("data first", question().bad(end).cname("a.test", 60, end)),
        ("NODATA", alias().soa("corp.test", 9, 9)),
        ("NODATA of a zone above", alias().soa("test", 9, 9)),
        ("NXDOMAIN", alias().soa("test", 9, 9).rcode(3)),
        ("SERVFAIL", alias().rcode(2).ede(22)),
        ("REFUSED", alias().rcode(5)),
        ("YXDOMAIN", alias().rcode(6)),
        ("a loop", alias().cname(end, 9, "a.test")),
        ("an alias back", alias().cname(end, 9, "b.test").bad("b.test")),
        ("contradictions", alias().cname(end, 9, "b.test").cname(end, 9, "c.test")),
        ("a name server", alias().authority("test", rtype::NS, &wire("ns.test"))),
        ("an additional record", alias().additional(end)),
        ("a record of the question's name", alias().additional("a.test")),
    ] {
        assert_cut("a.test", &said, end, &[rtype::CNAME], case);
    }
    let signed = alias().rrsig("a.test", rtype::CNAME).bad(end).rrsig(end, rtype::AAAA);
    assert_cut("a.test", &signed, end, &[rtype::CNAME, rtype::RRSIG], "signatures");
    let longer = question().cname("a.test", 60, "b.test").cname("b.test", 90, end).bad(end);
    assert_cut("a.test", &longer, end, &[rtype::CNAME, rtype::CNAME], "the second alias");
}

#[test]
fn item_08_every_kind_of_alias_and_direction_is_cut() {
    for qtype in [rtype::A, rtype::AAAA, rtype::PTR, rtype::HTTPS, MX, rtype::DNAME, rtype::DS] {
        let dname =
            || said("a.b.test", qtype).answer("b.test", rtype::DNAME, 60, &wire("corp.test"));
        let both = [rtype::DNAME, rtype::CNAME];
        let with_cname = dname().cname("a.b.test", 60, "a.corp.test").bad("a.corp.test");
        assert_cut("a.b.test", &with_cname, "a.corp.test", &both, "DNAME with CNAME");
        assert_cut("a.b.test", &dname().rcode(3), "a.corp.test", &both, "DNAME");
        let out = said("a.corp.test", qtype).cname("a.corp.test", 60, "b.test").bad("b.test");
        assert_cut("a.corp.test", &out, "b.test", &[rtype::CNAME], "out of the domain");
    }
}

#[test]
fn item_08_cname_query_cannot_leave_the_scope() {
    for qtype in [rtype::CNAME, rtype::ANY] {
        let said = said("a.test", qtype).cname("a.test", 60, "x.corp.test");
        let answer = answer_for("a.test", &said.bad("x.corp.test").additional("x.corp.test"));
        assert_eq!(answer.kind(), AnswerKind::Data, "type {qtype}");
        assert_eq!(types(&answer), [vec![rtype::CNAME], vec![], vec![]], "type {qtype}");
    }
}

#[test]
fn item_08_aliases_within_the_scope_are_followed() {
    let said = said("a.test", rtype::AAAA).cname("a.test", 60, "b.notcorp.test");
    let data = answer_for("a.test", &said.clone().aaaa("b.notcorp.test", 60, "2001:db8::1"));
    assert_eq!((data.kind(), data.answer_count()), (AnswerKind::Data, 2));
    let denied = answer_for("a.test", &said.soa("test", 60, 60).rcode(3));
    assert_eq!((denied.kind(), denied.negative_ttl()), (AnswerKind::NxDomain, Some(60)));
}

/// If validation rejected an answer, its aliases are not followed, because they may be part of the rejected data.
#[test]
fn item_25_rejected_aliases_are_not_followed() {
    let rejected = said("a.test", rtype::AAAA).cname("a.test", 60, "x.corp.test").rcode(2).ede(6);
    let answer = answer_for("a.test", &rejected);
    assert!(answer.is_rejected() && answer.kind() == AnswerKind::Failed);
}

#[test]
fn item_08_records_out_of_scope_are_left_out() {
    let ns = wire("ns.other.test");
    let exchange = |host: &str| [&[0, 10][..], &wire(host)].concat();
    let mail = |host: &str| said("a.test", MX).answer("a.test", MX, 60, &exchange(host));
    let alias_mode = [&[0, 0][..], &wire("x.corp.test")].concat();
    let service = said("a.test", rtype::HTTPS).answer("a.test", rtype::HTTPS, 60, &alias_mode);
    let data = || said("a.test", rtype::AAAA).aaaa("a.test", 60, "2001:db8::1");
    for (case, said, authority, additional) in [
        ("mail in scope", mail("mail.test").additional("mail.test"), vec![], vec![rtype::A]),
        ("mail", mail("mail.corp.test").additional("mail.corp.test"), vec![], vec![]),
        ("AliasMode", service.additional("x.corp.test"), vec![], vec![]),
        ("NS in scope", data().authority("test", rtype::NS, &ns), vec![rtype::NS], vec![]),
        ("NS", data().authority("corp.test", rtype::NS, &ns), vec![], vec![]),
        (
            "glue of NS records that are left out",
            data().authority("corp.test", rtype::NS, &ns).additional("ns.other.test"),
            vec![],
            vec![],
        ),
        (
            "some of several",
            data()
                .authority("corp.test", rtype::NS, &ns)
                .authority("test", rtype::NS, &wire("ns.corp.test"))
                .additional("ns.other.test")
                .additional("ns.corp.test")
                .additional("a.test"),
            vec![rtype::NS],
            vec![rtype::A],
        ),
        ("a SOA beside data", data().soa("corp.test", 60, 60), vec![], vec![]),
    ] {
        let found = answer_for("a.test", &said);
        assert_eq!(found.kind(), AnswerKind::Data, "{case}");
        let [answers, rest @ ..] = types(&found);
        assert_eq!((answers.len(), rest), (1, [authority, additional]), "{case}");
    }
}

#[test]
fn item_08_denials_keep_their_soa_and_proofs() {
    let next = [&wire("y.test")[..], &[0, 1, 0x40]].concat();
    let proof = said("nope.test", rtype::AAAA)
        .soa("test", 60, 60)
        .authority("corp.test", rtype::NSEC, &next)
        .rcode(3);
    let denied = answer_for("nope.test", &proof);
    assert_eq!(types(&denied)[1], [rtype::SOA, rtype::NSEC]);
    // The SOA of a zone above the domain.
    for rcode in [0, 3] {
        let said = said("nope.corp.test", rtype::AAAA).soa("test", 60, 60).rcode(rcode);
        let denied = answer_for("nope.corp.test", &said);
        assert_eq!((denied.negative_ttl(), denied.ttl()), (Some(60), 60));
    }
    let stranger = said("nope.test", rtype::AAAA).soa("corp.test", 60, 60).rcode(3);
    let denied = answer_for("nope.test", &stranger);
    assert_eq!((denied.kind(), denied.negative_ttl()), (AnswerKind::NxDomain, None));
    assert_eq!(types(&denied)[1], [0; 0]);
}

/// If the NS records of a referral are removed because they are out of scope, the message looks like NODATA. However,
/// it must still be treated as an error (RFC 2308 §2.2).
#[test]
fn item_08_a_referral_out_of_scope_is_an_error() {
    for (name, zone) in [("a.corp.test", "."), ("a.corp.test", "test"), ("test", "x.corp.test")] {
        let said = said(name, rtype::AAAA).authority(zone, rtype::NS, &wire("ns.test"));
        assert_eq!(answer_for(name, &said).kind(), AnswerKind::Failed, "{name} {zone}");
    }
}

const NAMES: [&str; 7] =
    [".", "test", "a.test", "b.test", "corp.test", "x.corp.test", "a.corp.test"];
const TYPES: [u16; 6] =
    [rtype::CNAME, rtype::DNAME, rtype::AAAA, rtype::NS, rtype::SOA, rtype::NSEC];

/// A record of any section, with an owner and a target from [`NAMES`].
fn any_record() -> impl Strategy<Value = (Section, Vec<u8>)> {
    let section =
        prop::sample::select(vec![Section::Answer, Section::Authority, Section::Additional]);
    let name = || prop::sample::select(NAMES.to_vec());
    let rtype = prop::sample::select(TYPES.to_vec());
    (section, name(), rtype, name()).prop_map(|(section, owner, rtype, target)| {
        let data = match rtype {
            rtype::AAAA => vec![7; 16],
            rtype::SOA => [&wire(target)[..], &wire(target), &[0; 20]].concat(),
            rtype::NSEC => [&wire(target)[..], &[0, 1, 0x40]].concat(),
            _ => wire(target),
        };
        (section, record(&wire(owner), rtype, 60, &data))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn item_08_no_record_is_out_of_scope(
        records in prop::collection::vec(any_record(), 0..8),
        rcode in 0u8..7,
        asked in prop::sample::select(vec!["a.test", "a.corp.test"]),
        qtype in prop::sample::select(vec![rtype::AAAA, rtype::CNAME, rtype::DNAME, rtype::ANY]),
    ) {
        let said = said(asked, qtype).rcode(rcode);
        let said = records.into_iter().fold(said, |said, (at, record)| said.with(at, record));
        let Ok(answer) = said.parse_in(scope(asked)) else { return Ok(()) };
        for record in answer.answers().chain(answer.authorities()).chain(answer.additional()) {
            let owner = answer.read(&record).unwrap().owner().to_name::<Vec<u8>>();
            let may_be_out = matches!(record.rtype, rtype::SOA | rtype::NSEC | rtype::DNAME);
            prop_assert!(may_be_out || scope(asked).covers(owner.as_slice()));
        }
        if !scope(asked).covers(answer.target()) {
            let is_open = matches!(answer.kind(), AnswerKind::Unfinished | AnswerKind::Failed);
            prop_assert!(is_open && answer.authorities().count() == 0);
        }
    }
}
