//! Replies as octets: copying, synthesis, truncation.

use units::Nanos;
use wire::edns::put_opt;
use wire::view::rtype::{A, AAAA, CNAME, SOA};

use super::*;
use crate::client::query::Received;
use crate::resolver::outcome::Outcome;
use crate::testing::{Section, TestAnswer, record, said, wire};
use crate::translation::decide::{self, Next, Question};
use crate::translation::policy::{Mapping, Mode, PrefixState};

/// Returns a query for `a.test` AAAA with these flags in octets 2 and 3, and optionally EDNS with a
/// size and DO.
fn query(flags: [u8; 2], edns: Option<(u16, bool)>) -> Vec<u8> {
    let mut bytes =
        vec![0x12, 0x34, flags[0], flags[1], 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    bytes.extend([1, b'A', 4, b't', b'e', b's', b't', 0]);
    bytes.extend([0, 28, 0, 1]);
    if let Some((size, dnssec_ok)) = edns {
        put_opt(&mut bytes, size, Rcode::NOERROR, dnssec_ok, &[]);
    }
    bytes
}

/// Returns the reply to a query, given the answers to all its upstream queries.
fn reply(query: &[u8], transport: Transport, trust_ad: bool, known: &[Outcome]) -> Vec<u8> {
    reply_by(&Policy::default(), query, transport, trust_ad, known)
}

/// Returns the reply to a query under the given policy (see [`reply`]).
fn reply_by(
    policy: &Policy,
    query: &[u8],
    transport: Transport,
    trust_ad: bool,
    known: &[Outcome],
) -> Vec<u8> {
    let Received::Query(query) = Received::read(query) else { panic!("a query") };
    let client = std::net::Ipv4Addr::LOCALHOST.into();
    let ad = if trust_ad { AdSource::Upstream } else { AdSource::None };
    let rules = Rules { ad, ..Rules::for_all_names(policy, client) };
    let question: Question = query.to_question();
    let Next::Reply(reply) = decide::next(&question, policy, Mode::Strict, known, true) else {
        panic!("a question is open")
    };
    let mut out = b"before".to_vec();
    ReplyFrame::new(&query, transport, None).write(&mut out, &reply, &rules, None, known);
    out.split_off(6)
}

/// Returns type and TTL of all records except OPT.
fn records(message: &[u8]) -> Vec<(u16, u32)> {
    let view = Message::new(message).unwrap();
    let all = view.all_records(HEADER_LEN + 12).map(Result::unwrap);
    all.filter(|record| record.rtype != rtype::OPT)
        .map(|record| (record.rtype, record.ttl))
        .collect()
}

fn errors(message: &[u8]) -> Vec<u16> {
    let view = Message::new(message).unwrap();
    let opt = view
        .all_records(HEADER_LEN + 12)
        .flatten()
        .find_map(|record| wire::edns::Opt::from_record(&record));
    let options = opt.unwrap().options().map(Result::unwrap);
    let errors = options.filter(|(code, _)| *code == option::EXTENDED_ERROR);
    errors.map(|(_, data)| u16::from_be_bytes([data[0], data[1]])).collect()
}

fn real() -> TestAnswer {
    said("a.test", AAAA).aaaa("a.test", 60, "2001:db8::1")
}

fn nodata() -> TestAnswer {
    said("a.test", AAAA).nodata(120)
}

const RD: [u8; 2] = [1, 0];

#[test]
fn an_answer_is_copied_with_the_clients_letters_and_less_ttl() {
    let got = reply(&query(RD, None), Transport::Udp, false, &[real().aged(20)]);
    assert_eq!(got[..4], [0x12, 0x34, 0x81, 0x80], "the client's id; QR, RD, RA");
    assert_eq!(got[HEADER_LEN..HEADER_LEN + 8], *b"\x01A\x04test\0");
    assert_eq!(records(&got), [(AAAA, 40)]);
}

#[test]
fn ad_needs_request_and_unchanged_answer() {
    let mut authentic = real();
    authentic.set_authentic();
    let is_set = |query: &[u8], trust, known: &[Outcome]| {
        reply(query, Transport::Udp, trust, known)[3] & 0x20 != 0
    };
    let known = [authentic.kept()];
    assert!(is_set(&query([1, 0x20], None), true, &known), "AD, no EDNS (RFC 6840 section 5.7)");
    assert!(is_set(&query(RD, Some((1232, true))), true, &known), "DO");
    assert!(!is_set(&query(RD, Some((1232, false))), true, &known), "neither");
    assert!(!is_set(&query([1, 0x20], None), false, &known), "trust-ad is off");
    assert!(
        !is_set(&query([1, 0x20], None), true, &[real().kept()]),
        "the upstream did not set AD"
    );
    let mut denial = nodata();
    denial.set_authentic();
    let mut a = said("a.test", A).a("a.test", 60, "8.8.8.8");
    a.set_authentic();
    assert!(!is_set(&query([1, 0x20], None), true, &[denial.kept(), a.kept()]), "synthesized");
}

#[test]
fn synthesized_records_have_one_ttl_and_their_aliases() {
    let a = said("a.test", A).a("a.test", 300, "8.8.8.8").a("a.test", 90, "8.8.4.4");
    let got =
        reply(&query(RD, Some((1232, false))), Transport::Udp, false, &[nodata().kept(), a.kept()]);
    assert_eq!(
        (records(&got), errors(&got)),
        (vec![(AAAA, 90), (AAAA, 90)], vec![ede::SYNTHESIZED])
    );
    let alias = said("a.test", A).cname("a.test", 30, "b.test").a("b.test", 300, "8.8.8.8");
    let got = reply(&query(RD, None), Transport::Udp, false, &[nodata().kept(), alias.kept()]);
    assert_eq!(records(&got), [(CNAME, 30), (AAAA, 120)]);
}

#[test]
fn rfc6147_5_1_5_separate_alias_precedes_its_target() {
    let alias = said("a.test", AAAA).cname("a.test", 30, "b.test");
    let end = said("b.test", AAAA).aaaa("b.test", 60, "2001:db8::1");
    let got = reply(&query(RD, None), Transport::Udp, false, &[alias.kept(), end.kept()]);
    assert_eq!(records(&got), [(CNAME, 30), (AAAA, 60)]);
}

#[test]
fn extended_errors_by_reply() {
    let of = |known: &[Outcome]| {
        errors(&reply(&query(RD, Some((1232, false))), Transport::Udp, false, known))
    };
    for (failure, expected) in [
        (Failure::Timeout, &[23, 22][..]),
        (Failure::Unreachable, &[23, 22]),
        (Failure::Malformed, &[24]),
        (Failure::NoUpstream, &[14]),
        (Failure::AliasLoop, &[]),
        (Failure::Overload, &[]),
    ] {
        let both = [Outcome::Failed(failure), Outcome::Failed(failure)];
        assert_eq!(of(&both), expected, "{failure:?}");
    }
    let refused = said("a.test", AAAA).rcode(5);
    let answered = |a: TestAnswer| of(&[refused.kept(), a.rcode(2).kept()]);
    assert_eq!(answered(said("a.test", A)), [0; 0], "somebody answered");
    assert_eq!(
        answered(said("a.test", A).ede(22)),
        [22],
        "with an extended error (RFC 8914 section 3)"
    );
    assert_eq!(of(&[said("a.test", AAAA).rcode(2).ede(7).kept()]), [7]);
    let private = said("a.test", A).a("a.test", 60, "10.0.0.1");
    assert_eq!(of(&[nodata().kept(), private.kept()]), [ede::FILTERED], "no prefix carries it");
    assert_eq!(of(&[real().ede(15).kept()]), [15]);
}

/// Items 9 and 28.
#[test]
fn stale_filtered_reply_has_both_extended_errors() {
    let mixed = real().aaaa("a.test", 60, "::ffff:192.0.2.1").rrsig("a.test", AAAA);
    let of = |known: Outcome| {
        let query = query(RD, Some((1232, true)));
        let got = reply(&query, Transport::Udp, false, &[known]);
        (records(&got).into_iter().map(|(rtype, _)| rtype).collect::<Vec<_>>(), errors(&got))
    };
    for age in [0, 20] {
        assert_eq!(of(mixed.aged(age)), (vec![AAAA], vec![ede::FILTERED]), "{age} s");
    }
    let Outcome::Answered(kept) = mixed.kept() else { panic!("an answer") };
    let stale = Outcome::Answered(crate::resolver::outcome::CachedAnswer { stale: true, ..kept });
    assert_eq!(of(stale), (vec![AAAA], vec![ede::STALE_ANSWER, ede::FILTERED]));
    let explained = mixed.ede(15).kept();
    assert_eq!(of(explained).1, [15, ede::FILTERED], "RFC 8914 section 3");
}

#[test]
fn signed_excluded_answer_becomes_cacheable_nodata() {
    let excluded = said("a.test", AAAA).aaaa("a.test", 50, "::ffff:192.0.2.1");
    let a = said("a.test", A).a("a.test", 70, "8.8.8.8").rrsig("a.test", A);
    let got = reply(
        &query(RD, Some((1232, true))),
        Transport::Udp,
        false,
        &[excluded.aged(10), a.kept()],
    );
    assert_eq!((records(&got), errors(&got)), (vec![(SOA, 40)], vec![ede::FILTERED]));
    let view = Message::new(&got).unwrap();
    assert_eq!((view.ancount(), view.nscount(), view.rcode()), (0, 1, Rcode::NOERROR));
    let soa = view.all_records(HEADER_LEN + 12).next().unwrap().unwrap();
    assert_eq!(view.same_name(soa.owner, HEADER_LEN), Ok(true));
}

/// Item 47: the negative answer in place of withheld A records lasts no longer than the prefix.
#[test]
fn filtered_nodata_expires_with_its_prefix() {
    let until = Some(Nanos(24 * Nanos::SECOND.0));
    let announced =
        Mapping::well_known().with_state(PrefixState { until, ..PrefixState::default() });
    let policy = Policy { mappings: vec![announced], filter_a: true, ..Policy::default() };
    let mut asked = query(RD, None);
    asked[HEADER_LEN + 9] = 1;
    let of = |known: &[Outcome]| records(&reply_by(&policy, &asked, Transport::Udp, false, known));
    let a = said("a.test", A).a("a.test", 3_600, "8.8.8.8");
    assert_eq!(of(&[nodata().kept(), a.kept()]), [(SOA, 24)]);
    let with_soa = a.soa("test", 300, 300);
    assert_eq!(
        of(&[nodata().kept(), with_soa.kept()]),
        [(SOA, 24)],
        "an SOA next to data is not negative"
    );
    assert_eq!(of(&[real().kept()]), [(SOA, 60)], "native records need no prefix");
}

/// RFC 2308 §6: the TTL of a cached negative answer is reduced by its time in the cache.
#[test]
fn client_ttl_of_nodata_ends_with_the_cache_entry() {
    let denied = said("a.test", AAAA).soa("test", 300, 20);
    let no_a = said("a.test", A).nodata(60);
    let of = |age: u32| {
        let known = [denied.aged(age), no_a.kept()];
        records(&reply(&query(RD, None), Transport::Udp, false, &known))
    };
    assert_eq!(of(0), [(SOA, 20)], "RFC 2308 section 3");
    assert_eq!(of(4), [(SOA, 16)]);
    assert_eq!(of(19), [(SOA, 1)]);
}

/// A changed prefix takes effect at clients when their cached records expire, so the TTLs are
/// limited.
#[test]
fn local_answers_last_no_longer_than_others() {
    let client = std::net::Ipv4Addr::LOCALHOST.into();
    let ttls = |name: &str, qtype: u16, max_ttl: u32| {
        let zones = local_zones(max_ttl);
        let policy = Policy { zones: std::sync::Arc::new(zones), ..Policy::default() };
        let rules = Rules::for_all_names(&policy, client);
        let local::Local::Answer(answer) = local::find_local(&name.parse().unwrap(), qtype, &rules)
        else {
            panic!("a local answer")
        };
        let asked = query_of(qtype);
        let Received::Query(query) = Received::read(&asked) else { panic!("a query") };
        let frame = ReplyFrame::new(&query, Transport::Udp, None);
        let mut out = Vec::new();
        frame.write(&mut out, &Reply::Local(&answer), &rules, None, &[]);
        records(&out).into_iter().map(|(_, ttl)| ttl).collect::<Vec<u32>>()
    };
    for (name, qtype, usual) in [
        ("ipv4only.arpa", AAAA, vec![86_400; 2]),
        ("ipv4only.arpa", A, vec![86_400; 2]),
        ("170.0.0.192.in-addr.arpa", 12, vec![86_400]),
        ("ipv4only.arpa", 16, vec![600]),
    ] {
        assert_eq!(ttls(name, qtype, 86_400), usual, "{name} {qtype}");
        assert_eq!(ttls(name, qtype, 300), vec![300; usual.len()], "{name} {qtype}");
    }
}

fn local_zones(max_ttl: u32) -> crate::translation::zones::LocalZones {
    crate::translation::zones::LocalZones { max_ttl, ..Default::default() }
}

/// Returns an answer with one TXT record. The data of the record have `octets` octets and consist
/// of strings of up to 255 octets.
fn text(octets: usize) -> TestAnswer {
    let mut data = Vec::new();
    while data.len() < octets {
        let len = (octets - data.len() - 1).min(255);
        data.push(len as u8);
        data.extend(vec![b'x'; len]);
    }
    said("a.test", 16).answer("a.test", 16, 60, &data)
}

/// Returns a query for the type TXT (see [`query`]).
fn text_query(edns: Option<(u16, bool)>) -> Vec<u8> {
    let mut bytes = query(RD, edns);
    bytes[HEADER_LEN + 9] = 16;
    bytes
}

#[test]
fn over_tcp_a_whole_message_fits() {
    // Octets of the header, the question and the fixed part of the record. The data of the record
    // fill the rest of the 65 535 octets.
    let fixed = HEADER_LEN + 12 + wire("a.test").len() + 10;
    let whole = text(65_535 - fixed);
    let got = reply(&text_query(None), Transport::Tcp, false, &[whole.kept()]);
    assert_eq!((got.len(), records(&got)), (65_535, vec![(16, 60)]));
    // If the query has EDNS, the reply has no room for OPT. The reply is SERVFAIL, because the
    // answer cannot be sent.
    let got = reply(&text_query(Some((1232, false))), Transport::Tcp, false, &[whole.kept()]);
    let view = Message::new(&got).unwrap();
    assert_eq!((view.rcode(), view.is_truncated(), view.ancount()), (Rcode::SERVFAIL, false, 0));
    let room_for_opt = text(65_535 - fixed - OPT_LEN);
    let Outcome::Answered(kept) = room_for_opt.kept() else { panic!("an answer") };
    let stale = Outcome::Answered(crate::resolver::outcome::CachedAnswer { stale: true, ..kept });
    let got = reply(&text_query(Some((1232, false))), Transport::Tcp, false, &[stale]);
    assert_eq!(
        (got.len(), records(&got)),
        (65_535, vec![(16, 30)]),
        "the answer takes precedence over extended errors"
    );
    assert_eq!(errors(&got), [0; 0]);
    let got = reply(&text_query(None), Transport::Udp, false, &[whole.kept()]);
    assert!(Message::new(&got).unwrap().is_truncated(), "over UDP there is TCP");
}

/// Adds A records 8.0.0.0, 8.0.0.1, … owned by the name at offset `owner` of the message.
fn many_addresses(said: TestAnswer, owner: usize, count: u32) -> TestAnswer {
    (0..count).fold(said, |said, n| {
        let address = (0x0800_0000 + n).to_be_bytes();
        said.with(Section::Answer, record(&[0xc0, owner as u8], A, 60, &address))
    })
}

/// Returns the addresses of the AAAA records of a message, in order.
fn aaaa_of(message: &[u8]) -> Vec<Ipv6Addr> {
    let view = Message::new(message).unwrap();
    let all = view.all_records(HEADER_LEN + 12).map(Result::unwrap);
    all.filter(|record| record.rtype == AAAA)
        .map(|record| <[u8; 16]>::try_from(record.data).unwrap().into())
        .collect()
}

/// Item 11: for an A RRset of any size, the answer fits in a message. This applies to new and to cached answers.
#[test]
fn item_11_at_most_2000_records_are_synthesized() {
    let direct = many_addresses(said("a.test", A), HEADER_LEN, 4_000);
    let alias = said("a.test", A).cname("a.test", 60, "b.test");
    // The owner follows the question and the fixed part of the CNAME record.
    let alias = many_addresses(alias, HEADER_LEN + 12 + 8 + 10, 4_000);
    let first: Ipv6Addr = "64:ff9b::800:0".parse().unwrap();
    let expected: Vec<Ipv6Addr> =
        (0..2_000).map(|n| Ipv6Addr::from_bits(first.to_bits() + n)).collect();
    for (name, a) in [("direct", &direct), ("alias", &alias)] {
        for age in [0, 20] {
            let known = [nodata().kept(), a.aged(age)];
            let got = reply(&query(RD, Some((1_232, false))), Transport::Tcp, false, &known);
            let view = Message::new(&got).unwrap();
            assert_eq!((view.rcode(), view.is_truncated()), (Rcode::NOERROR, false), "{name}");
            assert!(aaaa_of(&got) == expected, "{name}, {age} s: {}", aaaa_of(&got).len());
            let got = reply(&query(RD, Some((1_232, false))), Transport::Udp, false, &known);
            let view = Message::new(&got).unwrap();
            assert_eq!((view.is_truncated(), view.ancount()), (true, 0), "{name}");
        }
    }
    // Two prefixes: two records for each of the first addresses.
    let all = || vec!["0.0.0.0/0".parse().unwrap()];
    let other = Mapping::new("2001:db8:64::/96".parse().unwrap(), all(), false);
    let mappings = vec![Mapping::well_known(), other];
    let policy = Policy { mappings, ..Policy::default() };
    let known = [nodata().kept(), direct.kept()];
    let got = aaaa_of(&reply_by(&policy, &query(RD, None), Transport::Tcp, false, &known));
    let last: Ipv6Addr = "2001:db8:64::800:3e7".parse().unwrap();
    assert_eq!((got.len(), got.last()), (2_000, Some(&last)));
    // Duplicate records count once.
    let once = many_addresses(said("a.test", A), HEADER_LEN, 1_900);
    let few = many_addresses(once, HEADER_LEN, 1_900);
    let known = [nodata().kept(), few.kept()];
    assert_eq!(aaaa_of(&reply(&query(RD, None), Transport::Tcp, false, &known)).len(), 1_900);
}

/// Item 20: hints are limited like AAAA records, so that the answer fits in a message.
#[test]
fn item_20_at_most_2000_hints_are_made() {
    let addresses: Vec<u8> = (0..4_000_u32).flat_map(|n| (0x0800_0000 + n).to_be_bytes()).collect();
    for (records, each) in [(1_u16, 2_000), (4, 500)] {
        let part = &addresses[..addresses.len() / usize::from(records)];
        let service = (1..=records).fold(said("a.test", rtype::HTTPS), |said, n| {
            let len = (part.len() as u16).to_be_bytes();
            let data = [&n.to_be_bytes()[..], &[0, 0, 4], &len, part].concat();
            said.answer("a.test", rtype::HTTPS, 60, &data)
        });
        let policy = Policy { hints: Hints::Translate, ..Policy::default() };
        let known = [service.kept(), nodata().kept()];
        let query = query_of(rtype::HTTPS);
        let got = reply_by(&policy, &query, Transport::Tcp, false, &known);
        let view = Message::new(&got).unwrap();
        assert_eq!((view.rcode(), view.ancount()), (Rcode::NOERROR, records));
        let mut made = view.all_records(HEADER_LEN + 12).map(|record| record.unwrap().data.len());
        assert!(made.all(|len| len == 3 + 4 + 16 * each), "{records}");
    }
}

/// Returns a query for `a.test` of type `qtype`.
fn query_of(qtype: u16) -> Vec<u8> {
    let mut bytes = query(RD, None);
    bytes[HEADER_LEN + 8..HEADER_LEN + 10].copy_from_slice(&qtype.to_be_bytes());
    bytes
}

/// Returns the reply as composed with the limit `limit`, and the same reply after `finish` with the
/// limit `finished`.
fn composed(
    policy: &Policy,
    query: &[u8],
    (limit, finished): (usize, usize),
    known: &[Outcome],
) -> (Vec<u8>, Vec<u8>) {
    let Received::Query(query) = Received::read(query) else { panic!("a query") };
    let rules = Rules::for_all_names(policy, std::net::Ipv4Addr::LOCALHOST.into());
    let question: Question = query.to_question();
    let Next::Reply(reply) = decide::next(&question, policy, Mode::Strict, known, true) else {
        panic!("a question is open")
    };
    let frame = ReplyFrame { limit: finished, ..ReplyFrame::new(&query, Transport::Udp, None) };
    let mut out = Vec::new();
    frame.compose(&mut out, &reply, &rules, None, known, limit).unwrap();
    let whole = out.clone();
    frame.finish(&mut out, 0, &[]);
    (whole, out)
}

/// Returns one case for each part of a reply that can be long. In each case, the upstream's answer
/// has at least `count` records of this part.
fn long_answers(count: u8) -> Vec<(&'static str, u16, Policy, Vec<Outcome>)> {
    let usual = Policy::default;
    let many = |said: TestAnswer| {
        (0..count).fold(said, |said, n| said.a("b.test", 60, &format!("8.8.8.{n}")))
    };
    let aliased = || said("a.test", A).cname("a.test", 60, "b.test");
    let named = |said: TestAnswer, section| {
        (0..count).fold(said, |said, n| {
            let data = wire(&format!("ns{n}.test"));
            said.with(section, record(&wire("test"), 2, 60, &data))
        })
    };
    let glue = |said: TestAnswer| {
        (0..count).fold(named(said, Section::Authority), |said, n| {
            let owner = wire(&format!("ns{n}.test"));
            said.with(Section::Additional, record(&owner, A, 60, &[192, 0, 2, n]))
        })
    };
    let one = || aliased().a("b.test", 60, "8.8.8.8");
    let excluded = (0..count).fold(said("a.test", AAAA), |said, n| {
        said.aaaa("a.test", 60, &format!("2001:db8::{n}")).aaaa(
            "a.test",
            60,
            &format!("::ffff:8.8.8.{n}"),
        )
    });
    let hints = Policy { hints: Hints::Strip, ..Policy::default() };
    let service = (0..count).fold(said("a.test", rtype::HTTPS), |said, n| {
        said.answer("a.test", rtype::HTTPS, 60, &[0, n + 1, 0, 0, 4, 0, 4, 192, 0, 2, n])
    });
    vec![
        ("synthesized", AAAA, usual(), vec![nodata().kept(), many(aliased()).kept()]),
        (
            "authority",
            AAAA,
            usual(),
            vec![nodata().kept(), named(one(), Section::Authority).kept()],
        ),
        ("additional", AAAA, usual(), vec![nodata().kept(), glue(one()).kept()]),
        ("excluded", AAAA, usual(), vec![excluded.kept()]),
        ("hints", rtype::HTTPS, hints, vec![service.kept()]),
    ]
}

/// The work for a reply is bounded by the client's limit, not by the length of the answer.
#[test]
fn composition_stops_at_the_limit() {
    let end = format!("{}.test", ["a"; 120].join("."));
    let many = (0..4_000u16).fold(said("a.test", A).cname("a.test", 60, &end), |said, n| {
        let address = std::net::Ipv4Addr::from_bits(0x0808_0000 + u32::from(n));
        let pointed = [0xc0, (HEADER_LEN + 12 + 8 + 10) as u8];
        said.with(Section::Answer, record(&pointed, A, 60, &address.octets()))
    });
    let known = [nodata().kept(), many.kept()];
    let longest_record = 255 + 10 + 16;
    for limit in [512, 1_232] {
        let (whole, cut) = composed(&Policy::default(), &query(RD, None), (limit, limit), &known);
        assert!((limit + 1..limit + longest_record).contains(&whole.len()), "{}", whole.len());
        let view = Message::new(&cut).unwrap();
        assert_eq!((view.is_truncated(), view.ancount(), cut.len()), (true, 0, HEADER_LEN + 12));
    }
}

#[test]
fn limited_composition_truncates_like_a_full_one() {
    for (what, qtype, policy, known) in long_answers(30) {
        let query = query_of(qtype);
        let mut truncated = 0;
        for limit in (40..=2_000).step_by(3) {
            let (_, of_whole) = composed(&policy, &query, (usize::MAX, limit), &known);
            let (_, of_part) = composed(&policy, &query, (limit, limit), &known);
            assert_eq!(of_part, of_whole, "{what}, {limit} octets");
            truncated += usize::from(Message::new(&of_whole).unwrap().is_truncated());
        }
        assert!((1..600).contains(&truncated), "{what}: {truncated}");
    }
}

#[test]
fn the_owner_of_synthesized_records_is_written_once() {
    let end = format!("{}.test", ["a"; 100].join("."));
    let a = said("a.test", A).cname("a.test", 60, &end);
    let a = a.a(&end, 60, "8.8.8.8").a(&end, 60, "8.8.4.4");
    let (whole, _) = composed(
        &Policy::default(),
        &query(RD, None),
        (usize::MAX, 2_000),
        &[nodata().kept(), a.kept()],
    );
    // The last labels of this name are the labels of the question.
    let target = 99 * 2 + 2;
    assert_eq!(whole.len(), HEADER_LEN + 12 + 12 + target + 2 * AAAA_LEN);
    assert_eq!(records(&whole), [(CNAME, 60), (AAAA, 60), (AAAA, 60)]);
}

/// RFC 7873 §5.3: a client with a cookie of this server rejects replies without a cookie.
#[test]
fn item_34_errors_have_the_cookie() {
    let cookie = [5; COOKIE_LEN];
    let option = [&option_header(option::COOKIE, COOKIE_LEN as u16)[..], &cookie].concat();
    let query = query([1, 0], Some((1232, false)));
    let [mut refusal, mut servfail] = [Vec::new(), Vec::new()];
    write_refusal(&mut refusal, &query, Rcode::BADVERS, &query[12..24], true, Some(cookie));
    assert!(write_servfail(&mut servfail, &query, Transport::Udp, |_| Some(cookie)));
    for error in [refusal, servfail] {
        assert!(error.ends_with(&option), "{error:?}");
        assert_eq!(error.len(), 24 + OPT_LEN + option.len());
    }
}
