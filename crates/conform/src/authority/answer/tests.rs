use std::sync::LazyLock;

use domain::base::ToName;
use domain::base::iana::Class;
use domain::base::name::ToLabelIter;
use domain::crypto::common::PublicKey;
use domain::dep::octseq::Parser;
use domain::dnssec::common::nsec3_default_hash;
use domain::rdata::dnssec::Timestamp;
use domain::rdata::{Dnskey, Nsec, Nsec3, Rrsig};
use domain::utils::base32;

use super::*;
use crate::message::{Edns, name};

const ZONE: &str = "conform.example";

static ZONES: LazyLock<Zones> =
    LazyLock::new(|| Zones::new(&name(ZONE), [192, 0, 2, 53].into()).unwrap());

/// Returns a name in the zone.
fn inside(labels: &str) -> Name {
    name(&format!("{labels}.{ZONE}"))
}

fn query(labels: &str, qtype: Rtype) -> Message {
    Message::query(&inside(labels), qtype)
}

fn dnssec_query(labels: &str, qtype: Rtype) -> Message {
    let edns = Some(Edns { dnssec_ok: true, ..Edns::default() });
    Message { edns, ..query(labels, qtype) }
}

/// Returns the reply to a UDP query, and requires that it is a single message that is sent without delay.
fn only(query: &Message) -> Message {
    let sendings = answer(&ZONES, query, false);
    let [Sending { after: Duration::ZERO, octets, other_port: false }] = sendings.as_slice() else {
        panic!("{sendings:?}");
    };
    let reply = Message::parse(octets).unwrap();
    assert_eq!((reply.id, &reply.questions), (query.id, &query.questions));
    reply
}

fn ask(labels: &str, qtype: Rtype) -> Message {
    only(&query(labels, qtype))
}

fn ask_dnssec(labels: &str, qtype: Rtype) -> Message {
    only(&dnssec_query(labels, qtype))
}

/// Formats records as `owner type TTL data`. Owner names omit the zone, and addresses and targets are text.
fn short(records: &[Record]) -> Vec<String> {
    let without_zone = |name: &Name| {
        let text = name.to_string().to_lowercase();
        text.strip_suffix(ZONE).map_or(text.clone(), |own| format!("{own}@"))
    };
    let data = |record: &Record| match record.rtype {
        Rtype::A => record.ipv4().unwrap().to_string(),
        Rtype::AAAA => record.ipv6().unwrap().to_string(),
        Rtype::SOA => record.minimum().unwrap().to_string(),
        _ => record.target().map_or("…".into(), |target| without_zone(&target)),
    };
    let line = |record: &Record| {
        format!("{} {} {} {}", without_zone(&record.owner), record.rtype, record.ttl, data(record))
    };
    records.iter().map(line).collect()
}

#[test]
fn records_of_a_name() {
    use Rtype as T;
    for (labels, qtype, expected) in [
        ("x.v4-1-2-3-4.v4-1-2-3-5", T::A, "1.2.3.4 300, 1.2.3.5 300"),
        ("x.v6-20010db8000000000000000000000001.ttl-7", T::AAAA, "2001:db8::1 7"),
        ("x.many-2.ttl-60", T::A, "1.1.0.1 60, 1.1.0.2 60"),
        ("x.many-3.unequal.ttl-60", T::A, "1.1.0.1 60, 1.1.0.2 30, 1.1.0.3 30"),
        ("x.mixed.v4-1-2-3-4.v6-00", T::A, "1.2.3.4 300, :: 300"),
        ("x.mixed.v4-1-2-3-4.v6-00", T::AAAA, ":: 300, 1.2.3.4 300"),
        ("x.mixed.v4-1-2-3-4", T::AAAA, "1.2.3.4 300"),
        ("x.v4-1-2-3-4.v6-00", T::ANY, "1.2.3.4 300, :: 300"),
    ] {
        let reply = ask(labels, qtype);
        let address = |r: &Record| {
            r.ipv4().map(|v4| v4.to_string()).or(r.ipv6().map(|v6| v6.to_string())).unwrap()
        };
        let found: Vec<_> =
            reply.answer.iter().map(|r| format!("{} {}", address(r), r.ttl)).collect();
        assert_eq!(found.join(", "), expected, "{labels}");
        assert!(reply.answer.iter().all(|r| r.owner == inside(labels)), "{labels}");
        assert!(reply.flags.aa && reply.flags.ra && reply.flags.rd && !reply.flags.ad, "{labels}");
    }
}

#[test]
fn additional_data_is_omitted_without_tc() {
    let reply = ask("x.mx.many-60", Rtype::MX);
    assert_eq!(reply.additional.len(), 60);
    let fitting = |limit| Message::parse(&fit(&reply, false, limit)).unwrap();
    let cut = fitting(512);
    assert!(!cut.flags.tc && cut.answer.len() == 1 && cut.additional.is_empty());
    assert_eq!(fitting(4096).additional.len(), 60);
    let cut = fitting(30);
    assert!(cut.flags.tc && cut.answer.is_empty(), "the answer itself does not fit");
}

#[test]
fn records_of_other_types() {
    let data = |labels: &str, qtype| ask(labels, qtype).answer[0].data.clone();
    let host = inside("x.host.v4-1-2-3-4");
    assert_eq!(data("x.mx.v4-1-2-3-4", Rtype::MX)[2..], *host.as_slice());
    assert_eq!(data("x.srv.v4-1-2-3-4", Rtype::SRV)[6..], *host.as_slice());
    assert_eq!(data("x.ns.v4-1-2-3-4", Rtype::NS), *host.as_slice());
    assert_eq!(data("x.txt", Rtype::TXT), b"\x07conform");
    let service = b"\0\x01\0\0\x01\0\x03\x02h2\0\x04\0\x04\x09\x08\x07\x06";
    assert_eq!(data("x.https-9-8-7-6", Rtype::HTTPS), service);
    assert_eq!(data("x.svcb-9-8-7-6", Rtype::SVCB), service);
    let reply = ask("x.mx.v4-1-2-3-4", Rtype::MX);
    assert_eq!(short(&reply.additional), ["x.host.v4-1-2-3-4.@ A 300 1.2.3.4"]);
}

#[test]
fn apexes_and_names_outside() {
    let ns = "A 300 192.0.2.53";
    assert_eq!(short(&ask("ns", Rtype::A).answer), [format!("ns.@ {ns}")]);
    for apex in [ZONE.to_owned(), format!("b.{ZONE}"), format!("nsec3.{ZONE}"), ".".to_owned()] {
        let apex = name(&apex);
        let reply = only(&Message::query(&apex, Rtype::NS));
        assert_eq!(reply.answer[0].target(), Some(inside("ns")), "{apex}");
        assert_eq!(short(&reply.additional), [format!("ns.@ {ns}")], "{apex}");
        let soa = only(&Message::query(&apex, Rtype::SOA));
        assert_eq!((soa.answer[0].rtype, &soa.answer[0].owner), (Rtype::SOA, &apex));
    }
    let ds = ask("secure", Rtype::DS);
    assert_eq!((ds.rcode, short(&ds.authority)), (0, vec!["@ SOA 300 300".to_owned()]));
    let ipv4only = only(&Message::query(&name("ipv4only.arpa"), Rtype::A));
    assert_eq!(
        short(&ipv4only.answer),
        ["ipv4only.arpa A 300 192.0.0.170", "ipv4only.arpa A 300 192.0.0.171"]
    );
    for (outside, qtype, rcode, soa) in [
        ("ipv4only.arpa", Rtype::AAAA, 0, "ipv4only.arpa"),
        ("1.2.3.4.in-addr.arpa", Rtype::A, 0, "in-addr.arpa"),
        ("250.2.3.4.in-addr.arpa", Rtype::PTR, 3, "in-addr.arpa"),
        ("1.ip6.arpa", Rtype::PTR, 3, "ip6.arpa"),
        ("www.test", Rtype::AAAA, 3, "."),
    ] {
        let reply = only(&Message::query(&name(outside), qtype));
        assert_eq!((reply.rcode, reply.answer.len()), (rcode, 0), "{outside}");
        assert_eq!(short(&reply.authority), [format!("{soa} SOA 300 300")], "{outside}");
    }
}

#[test]
fn names_on_the_way_are_there_and_have_no_fate() {
    for labels in ["all-rcode-3", "a-rcode-2.v4-1-2-3-4", "cname.v4-1-2-3-4", "all-silent.secure"] {
        let reply = ask(labels, Rtype::A);
        assert_eq!((reply.rcode, reply.answer.len(), reply.authority.len()), (0, 0, 1), "{labels}");
    }
    let long = format!("{0}.{0}.{0}.{1}.mx", "n".repeat(63), "n".repeat(255 - 3 * 64 - 21));
    assert_eq!(ask(&long, Rtype::MX).answer, []);
}

#[test]
fn denials_have_the_soa_record_that_the_labels_say() {
    for (labels, rcode, soa) in [
        ("x", 0, "@ SOA 300 300"),
        ("x.aaaa-nodata.v6-00.soa-20-10", 0, "soa-20-10.@ SOA 20 10"),
        ("x.all-rcode-3.soa-10-20", 3, "soa-10-20.@ SOA 10 20"),
        ("x.nosoa", 0, ""),
        ("x.all-rcode-3.nosoa", 3, ""),
        ("x.hop.soa-7-8", 0, "soa-7-8.b.@ SOA 7 8"),
        ("x.aaaa-rcode-0", 0, ""),
        ("x.aaaa-rcode-2", 2, ""),
        ("x.aaaa-rcode-5.v6-00", 5, ""),
        ("x.aaaa-rcode-23", 23, ""),
    ] {
        let reply = ask(labels, Rtype::AAAA);
        assert_eq!(reply.rcode, rcode, "{labels}");
        assert_eq!(short(&reply.authority).concat(), soa, "{labels}");
        assert_eq!(reply.answers(Rtype::AAAA).count(), 0, "{labels}");
    }
}

#[test]
fn aliases_are_followed_to_their_end() {
    for (labels, expected) in [
        (
            "x.cname-60.v4-1-2-3-4",
            "x.cname-60.v4-1-2-3-4.@ CNAME 60 x.v4-1-2-3-4.@; x.v4-1-2-3-4.@ A 300 1.2.3.4",
        ),
        (
            "x.cname.cname-9.v4-1-2-3-4",
            "x.cname.cname-9.v4-1-2-3-4.@ CNAME 300 x.cname-9.v4-1-2-3-4.@; \
             x.cname-9.v4-1-2-3-4.@ CNAME 9 x.v4-1-2-3-4.@; x.v4-1-2-3-4.@ A 300 1.2.3.4",
        ),
        (
            "x.hop.v4-1-2-3-4",
            "x.hop.v4-1-2-3-4.@ CNAME 300 x.v4-1-2-3-4.b.@; x.v4-1-2-3-4.b.@ A 300 1.2.3.4",
        ),
        (
            "x.ttl-8.dname.v4-1-2-3-4",
            "dname.v4-1-2-3-4.@ DNAME 8 v4-1-2-3-4.@; \
             x.ttl-8.dname.v4-1-2-3-4.@ CNAME 8 x.v4-1-2-3-4.@; x.v4-1-2-3-4.@ A 300 1.2.3.4",
        ),
        ("x.loop", "x.loop.@ CNAME 300 x.loop.@"),
        ("x.half.cname.v4-1-2-3-4", "x.half.cname.v4-1-2-3-4.@ CNAME 300 x.v4-1-2-3-4.@"),
        (
            "x.cname.half.cname.v4-1-2-3-4",
            "x.cname.half.cname.v4-1-2-3-4.@ CNAME 300 x.half.cname.v4-1-2-3-4.@; \
             x.half.cname.v4-1-2-3-4.@ CNAME 300 x.v4-1-2-3-4.@",
        ),
    ] {
        let reply = ask(labels, Rtype::A);
        assert_eq!(short(&reply.answer).join("; "), expected, "{labels}");
        assert_eq!(short(&reply.authority), [""; 0], "{labels}");
    }
}

#[test]
fn aliases_into_nothing_and_questions_for_aliases() {
    for (labels, rcode, records, authority) in [
        ("x.cname.v4-1-2-3-4", 0, 1, 1),
        ("x.cname.all-rcode-3", 3, 1, 1),
        ("x.cname.hop.aaaa-nodata.v6-00", 0, 2, 1),
        ("x.cname.aaaa-rcode-2", 2, 0, 0),
        ("x.aaaa-rcode-2.cname.v6-00", 2, 0, 0),
        ("x.aaaa-nodata.cname.v6-00", 0, 0, 1),
    ] {
        let reply = ask(labels, Rtype::AAAA);
        let found = (reply.rcode, reply.answer.len(), reply.authority.len());
        assert_eq!(found, (rcode, records, authority), "{labels}");
    }
    assert_eq!(ask("x.cname.v4-1-2-3-4", Rtype::CNAME).answer.len(), 1);
    let dname = ask("dname.v4-1-2-3-4", Rtype::DNAME);
    assert_eq!(short(&dname.answer), ["dname.v4-1-2-3-4.@ DNAME 300 v4-1-2-3-4.@"]);
    assert_eq!(ask("dname.v4-1-2-3-4", Rtype::A).answer, []);
    let chain = format!("x.{}v4-1-2-3-4", "cname.".repeat(30));
    let sendings = answer(&ZONES, &query(&chain, Rtype::A), true);
    assert_eq!(Message::parse(&sendings[0].octets).unwrap().answer.len(), 31);
}

#[test]
fn letter_case() {
    let labels = "x.case.cname.v4-1-2-3-4";
    let reply = ask(labels, Rtype::A);
    let owners: Vec<_> = reply.answer.iter().map(|r| r.owner.to_string()).collect();
    assert_eq!(owners[0], "X.CaSe.cNaMe.v4-1-2-3-4.CoNfOrM.ExAmPlE");
    assert_eq!(reply.questions[0].name.to_string(), format!("{labels}.{ZONE}"));
    assert!(reply.edns.is_some());
    let reply = ask("x.case", Rtype::A);
    assert_eq!(reply.authority[0].owner.to_string(), "CoNfOrM.ExAmPlE");
    // Without the label `case`, owner names have the letter case of the query.
    let reply = ask("X.V4-1-2-3-4.CNAME.v4-4-3-2-1", Rtype::A);
    assert_eq!(reply.answer[0].owner.to_string(), format!("X.V4-1-2-3-4.CNAME.v4-4-3-2-1.{ZONE}"));
}

#[test]
fn flags_errors_and_strangers() {
    let reply = ask("x.ad.ede-15.v4-1-2-3-4", Rtype::A);
    assert!(reply.flags.ad);
    assert_eq!(reply.edns.unwrap().options, [(15, vec![0, 15])]);
    let strange = "x.v4-1-2-3-4.@ A 300 6.6.6.6";
    let reply = ask("x.oob.v4-1-2-3-4", Rtype::A);
    assert_eq!(short(&reply.answer), ["x.oob.v4-1-2-3-4.@ A 300 1.2.3.4", strange]);
    let reply = ask("x.oob.v4-1-2-3-4", Rtype::AAAA);
    assert_eq!(short(&reply.answer), ["x.v4-1-2-3-4.@ AAAA 300 2001:666::666"]);
    assert_eq!(short(&reply.authority), ["@ SOA 300 300"]);
    assert_eq!(ask("x.oob.txt", Rtype::TXT).answer.len(), 1);
    assert_eq!(ask("x.oob.aaaa-rcode-2", Rtype::AAAA).answer, []);
}

#[test]
fn questions_that_cannot_be_answered() {
    let good = query("x.v4-1-2-3-4", Rtype::A);
    let chaos = Question { class: Class::CH, ..good.questions[0].clone() };
    let future = Edns { version: 1, ..Edns::default() };
    for (query, rcode) in [
        (Message { opcode: 4, ..good.clone() }, rcode::NOTIMP),
        (Message { questions: Vec::new(), ..good.clone() }, rcode::FORMERR),
        (Message { questions: vec![good.questions[0].clone(); 2], ..good.clone() }, rcode::FORMERR),
        (Message { questions: vec![chaos], ..good.clone() }, rcode::REFUSED),
        (Message { edns: Some(future), ..good.clone() }, rcode::BADVERS),
    ] {
        let reply = only(&query);
        assert_eq!((reply.rcode, reply.answer.len()), (rcode, 0));
        assert_eq!(reply.opcode, query.opcode);
    }
}

/// Describes the messages that are sent in reply: time, port and contents.
fn fate(labels: &str, qtype: Rtype, tcp: bool) -> Vec<String> {
    let query = query(labels, qtype);
    let sendings = answer(&ZONES, &query, tcp);
    let line = |sending: &Sending| {
        let reply = Message::parse(&sending.octets).unwrap();
        let mut line = format!("{}: ", sending.after.as_millis());
        line.push_str(
            &reply
                .answer
                .iter()
                .filter_map(Record::ipv4)
                .map(|v4| v4.to_string())
                .collect::<String>(),
        );
        for (holds, word) in [
            (reply.flags.tc, "tc"),
            (reply.rcode == rcode::FORMERR, "formerr"),
            (reply.rcode == rcode::SERVFAIL, "servfail"),
            (reply.edns.is_none(), "plain"),
            (reply.id != query.id, "id"),
            (sending.other_port, "port"),
            (reply.questions != query.questions, "question"),
        ] {
            if holds {
                line.push_str(&format!(" {word}"));
            }
        }
        line
    };
    sendings.iter().map(line).collect()
}

#[test]
fn fates() {
    let right = ["0: 1.2.3.4"].as_slice();
    let forged = |how| [format!("0: 6.6.6.6 {how}"), "100: 1.2.3.4".to_owned()];
    for (what, udp, tcp) in [
        ("nodata", ["0: "].as_slice(), ["0: "].as_slice()),
        ("rcode-2", &["0:  servfail"], &["0:  servfail"]),
        ("silent", &[], &[]),
        ("delay-30", &["30: 1.2.3.4"], &["30: 1.2.3.4"]),
        ("delay-18446744073709551615", &["60000: 1.2.3.4"], &["60000: 1.2.3.4"]),
        ("tc", &["0:  tc"], right),
        ("tcponly", &[], right),
        ("noedns", &["0:  formerr plain"], &["0:  formerr plain"]),
        ("badid", &forged("id").each_ref().map(String::as_str), right),
        ("badport", &forged("port").each_ref().map(String::as_str), right),
        ("badquestion", &forged("question").each_ref().map(String::as_str), right),
    ] {
        for (scope, touched) in [("a", true), ("all", true), ("aaaa", false)] {
            let labels = format!("x.{scope}-{what}.v4-1-2-3-4");
            assert_eq!(
                fate(&labels, Rtype::A, false),
                if touched { udp } else { right },
                "{labels}"
            );
            assert_eq!(
                fate(&labels, Rtype::A, true),
                if touched { tcp } else { right },
                "{labels}"
            );
        }
    }
    // The labels to the right of an alias also apply to the reply for the alias.
    assert_eq!(fate("x.cname.a-silent.v4-1-2-3-4", Rtype::A, false), [""; 0]);
    assert_eq!(fate("x.cname.a-delay-30.v4-1-2-3-4", Rtype::A, false), ["30: 1.2.3.4"]);
    assert_eq!(fate("x.half.cname.a-silent.v4-1-2-3-4", Rtype::A, false), ["0: "]);
    // Without an OPT record, `noedns` has no effect.
    let plain = Message { edns: None, ..query("x.a-noedns.v4-1-2-3-4", Rtype::A) };
    assert_eq!(only(&plain).answer.len(), 1);
}

#[test]
fn udp_replies_respect_the_client_limit() {
    for (payload, fits) in [(None, 20), (Some(100), 20), (Some(600), 25), (Some(4096), 60)] {
        let edns = payload.map(|payload| Edns { payload, ..Edns::default() });
        let ask = |count: usize, tcp| {
            let query =
                Message { edns: edns.clone(), ..query(&format!("x.many-{count}"), Rtype::A) };
            let sendings = answer(&ZONES, &query, tcp);
            Message::parse(&sendings[0].octets).unwrap()
        };
        assert_eq!(ask(fits, false).answer.len(), fits, "{payload:?}");
        let cut = ask(100, false);
        assert!(cut.flags.tc && cut.answer.is_empty(), "{payload:?}");
        assert_eq!(cut.edns.is_some(), payload.is_some());
        assert_eq!(ask(4000, true).answer.len(), 4000, "{payload:?}");
        // A complete reply would exceed the maximum message length.
        assert!(ask(4000, false).flags.tc);
    }
    // Names in odd letter case are not compressed.
    let too_long = query("x.case.many-4000", Rtype::A);
    let sendings = answer(&ZONES, &too_long, true);
    assert!(Message::parse(&sendings[0].octets).unwrap().flags.tc);
}

// Signatures.

/// Returns the apex of the signed zone that contains a name.
fn apex_of(owner: &Name) -> Option<Name> {
    let apexes = ["secure", "nsec3", "bogus", "expired"].map(inside);
    apexes.into_iter().find(|apex| owner.ends_with(apex))
}

fn dnskey(apex: &Name) -> Dnskey<Vec<u8>> {
    let reply = only(&Message::query(apex, Rtype::DNSKEY));
    let data = &reply.answer[0].data;
    Dnskey::parse(&mut Parser::from_ref(data.as_slice())).unwrap().convert()
}

/// True if the signature covers these records, by RFC 4034 §3.1.8.1 and RFC 4035 §5.3.2.
/// (`RrsigExt::verify_signed_data` does the same, but belongs to a feature of `domain` that needs tokio.)
fn verifies(rrsig: &Record, records: &[&Record]) -> bool {
    let apex = apex_of(&rrsig.owner).unwrap();
    let data = rrsig.data.as_slice();
    let (signed, signature) = data.split_at(18 + apex.len());
    let parsed = Rrsig::parse(&mut Parser::from_ref(data)).unwrap();
    assert_eq!(parsed.signer_name(), &apex);
    assert_eq!(parsed.key_tag(), dnskey(&apex).key_tag());
    let mut owner = rrsig.owner.clone();
    owner.make_canonical();
    let (labels, all) = (usize::from(parsed.labels()), owner.label_count() - 1);
    let base: Name = owner.iter_suffixes().nth(all - labels).unwrap().to_name();
    let owner = if labels < all { crate::label::prepend("*", &base) } else { owner };
    let mut records = records.to_vec();
    records.sort_by(|a, b| a.data.cmp(&b.data));
    let mut octets = signed.to_vec();
    for record in records {
        octets.extend(owner.as_slice());
        octets.extend(record.rtype.to_int().to_be_bytes());
        octets.extend(record.class.to_int().to_be_bytes());
        octets.extend(&data[4..8]);
        octets.extend((record.data.len() as u16).to_be_bytes());
        octets.extend(&record.data);
    }
    PublicKey::from_dnskey(&dnskey(&apex)).unwrap().verify(&octets, signature).is_ok()
}

/// Returns an entry for each signed RRset in the reply. An entry consists of the type, whether the signature verifies,
/// and whether the current time is within the validity period of the signature.
fn signatures(reply: &Message) -> Vec<(Rtype, bool, bool)> {
    let all: Vec<&Record> =
        reply.answer.iter().chain(&reply.authority).chain(&reply.additional).collect();
    let rrsigs = all.iter().filter(|record| record.rtype == Rtype::RRSIG);
    let judged = rrsigs.map(|rrsig| {
        let parsed = Rrsig::parse(&mut Parser::from_ref(rrsig.data.as_slice())).unwrap();
        let covered = parsed.type_covered();
        let of = |r: &&&Record| r.rtype == covered && r.owner == rrsig.owner;
        let records: Vec<&Record> = all.iter().filter(of).copied().collect();
        assert!(!records.is_empty(), "{covered}");
        let now = Timestamp::now();
        let is_now = parsed.inception() < now && now < parsed.expiration();
        (covered, verifies(rrsig, &records), is_now)
    });
    judged.collect()
}

#[test]
fn signatures_follow_the_zone() {
    use Rtype as T;
    for (labels, qtype, covered) in [
        ("x.v4-1-2-3-4.v4-1-2-3-3", T::A, vec![T::A]),
        ("x.many-3.unequal", T::A, vec![T::A]),
        ("x.case.v6-00", T::AAAA, vec![T::AAAA]),
        ("X.Mx.V4-1-2-3-4", T::MX, vec![T::MX, T::A]),
        ("x.txt.v6-00", T::ANY, vec![T::AAAA, T::TXT]),
        ("x.cname.v4-1-2-3-4", T::A, vec![T::CNAME, T::A]),
        ("x.dname.v4-1-2-3-4", T::A, vec![T::DNAME, T::A]),
        ("x.oob.v4-1-2-3-4", T::A, vec![T::A]),
        ("x.hop.v4-1-2-3-4", T::A, vec![T::CNAME]),
    ] {
        for (tree, right, is_now) in [
            ("secure", true, true),
            ("nsec3", true, true),
            ("bogus", false, true),
            ("expired", true, false),
        ] {
            let labels = format!("{labels}.{tree}");
            let expected: Vec<_> = covered.iter().map(|rtype| (*rtype, right, is_now)).collect();
            assert_eq!(signatures(&ask_dnssec(&labels, qtype)), expected, "{labels}");
            assert_eq!(signatures(&ask(&labels, qtype)), [], "{labels}");
        }
        assert_eq!(signatures(&ask_dnssec(labels, qtype)), []);
    }
    for tree in ["secure", "nsec3", "bogus", "expired"] {
        assert_eq!(signatures(&ask_dnssec(tree, T::DNSKEY)), [(T::DNSKEY, true, true)], "{tree}");
    }
}

#[test]
fn denials_are_signed() {
    use Rtype as T;
    for (tree, nsec) in [("secure", T::NSEC), ("nsec3", T::NSEC3)] {
        for (labels, proofs) in
            [("x.v4-1-2-3-4", 1), ("x.all-rcode-3", 2 + usize::from(nsec == T::NSEC3))]
        {
            let labels = format!("{labels}.{tree}");
            let reply = ask_dnssec(&labels, T::AAAA);
            let mut expected = vec![(T::SOA, true, true)];
            expected.extend(vec![(nsec, true, true); proofs]);
            assert_eq!(signatures(&reply), expected, "{labels}");
            assert_eq!(ask(&labels, T::AAAA).authority.len(), 1, "{labels}");
        }
    }
    let reply = ask_dnssec("x.all-rcode-3.bogus", T::AAAA);
    assert!(signatures(&reply).iter().all(|(_, right, _)| !right));
}

/// Returns the fields of an NSEC record: owner, next name, types.
fn nsec(record: &Record) -> (Name, Name, Vec<Rtype>) {
    let data = Nsec::parse(&mut Parser::from_ref(record.data.as_slice())).unwrap();
    (record.owner.clone(), data.next_name().to_name(), data.types().iter().collect())
}

fn nsecs(reply: &Message) -> Vec<(Name, Name, Vec<Rtype>)> {
    reply.authority.iter().filter(|record| record.rtype == Rtype::NSEC).map(nsec).collect()
}

/// True if the interval of the NSEC record contains the name and all names below it, but not the neighbours.
fn covers((owner, next, _): &(Name, Name, Vec<Rtype>), labels: &str) -> bool {
    use domain::base::cmp::CanonicalOrd;
    let between = |labels: &str| {
        let name = inside(labels);
        owner.canonical_cmp(&name).is_lt() && name.canonical_cmp(next).is_lt()
    };
    let (first, rest) = labels.split_once('.').unwrap();
    between(labels)
        && between(&format!("below.{labels}"))
        && !between(rest)
        && !between(&format!("{first}0.{rest}"))
}

#[test]
fn nsec_proves_denials() {
    let nodata = nsecs(&ask_dnssec("x1.v4-1-2-3-4.txt.secure", Rtype::AAAA));
    let own = inside("x1.v4-1-2-3-4.txt.secure");
    let types = [Rtype::A, Rtype::TXT, Rtype::RRSIG, Rtype::NSEC];
    assert_eq!(nodata[0].0, own);
    assert_eq!(nodata[0].1.iter_suffixes().nth(1).unwrap(), own);
    assert_eq!(nodata[0].2, types);
    // A type that the label `aaaa-nodata` removes is not in the type list of the name.
    let fated = nsecs(&ask_dnssec("x1.aaaa-nodata.v6-00.secure", Rtype::AAAA));
    assert_eq!(fated[0].2, [Rtype::RRSIG, Rtype::NSEC]);
    let apex = nsecs(&ask_dnssec("secure", Rtype::AAAA));
    assert_eq!(apex[0].2, [Rtype::NS, Rtype::SOA, Rtype::RRSIG, Rtype::NSEC, Rtype::DNSKEY]);
    let [name, star] = &nsecs(&ask_dnssec("x1.all-rcode-3.secure", Rtype::AAAA))[..] else {
        panic!("not two");
    };
    assert!(covers(name, "x1.all-rcode-3.secure"));
    assert!(covers(star, "*.all-rcode-3.secure"));
}

#[test]
fn wildcards_are_expanded_and_proved() {
    for qtype in [Rtype::A, Rtype::AAAA] {
        let reply = ask_dnssec("x1.wild.v4-1-2-3-4.secure", qtype);
        assert!(signatures(&reply).iter().all(|(_, right, is_now)| *right && *is_now));
        let nsecs = nsecs(&reply);
        assert!(covers(&nsecs[0], "x1.wild.v4-1-2-3-4.secure"));
        if qtype == Rtype::A {
            let rrsig = reply.answers(Rtype::RRSIG).next().unwrap();
            let labels = usize::from(rrsig.data[3]);
            assert_eq!(labels, inside("wild.v4-1-2-3-4.secure").label_count() - 1);
            assert_eq!((reply.answers(Rtype::A).count(), nsecs.len()), (1, 1));
        } else {
            assert_eq!(nsecs[1].0, inside("*.wild.v4-1-2-3-4.secure"));
            assert_eq!(nsecs[1].2, [Rtype::A, Rtype::RRSIG, Rtype::NSEC]);
        }
    }
    let alias = ask_dnssec("x1.wild.cname.v4-1-2-3-4.nsec3", Rtype::A);
    let covered: Vec<_> = signatures(&alias).into_iter().map(|(rtype, ..)| rtype).collect();
    assert_eq!(covered, [Rtype::CNAME, Rtype::A, Rtype::NSEC3]);
    assert!(signatures(&alias).iter().all(|(_, right, _)| *right));
    assert_eq!(nsec3s(&alias), ["covers x1.wild.cname.v4-1-2-3-4.nsec3"]);
    // The label `wild` has no effect in an unsigned zone.
    assert_eq!(ask_dnssec("x1.wild.v4-1-2-3-4", Rtype::A).authority, []);
}

/// Describes each NSEC3 record of a reply by the names that it matches or covers. The candidates are the queried name,
/// its parents, and their wildcards.
fn nsec3s(reply: &Message) -> Vec<String> {
    let asked = reply.questions[0].name.to_string();
    let asked = asked.strip_suffix(&format!(".{ZONE}")).unwrap();
    let parents = asked.match_indices('.').map(|(at, _)| &asked[at + 1..]);
    let candidates: Vec<String> =
        [asked].into_iter().chain(parents).flat_map(|n| [n.to_owned(), format!("*.{n}")]).collect();
    let say = |record: &Record| {
        let data = Nsec3::parse(&mut Parser::from_ref(record.data.as_slice())).unwrap();
        let label = record.owner.iter_labels().next().unwrap().to_string();
        let (owner, next): (Vec<u8>, _) = (base32::decode_hex(&label).unwrap(), data.next_owner());
        let found = candidates.iter().find_map(|candidate| {
            let hash = nsec3_default_hash::<_, Vec<u8>>(inside(candidate)).unwrap();
            let hash = hash.as_slice();
            let types: Vec<_> = data.types().iter().map(|rtype| rtype.to_string()).collect();
            if hash == owner {
                Some(format!("matches {candidate} {}", types.join(" ")))
            } else {
                (owner.as_slice() < hash && hash < next.as_slice())
                    .then(|| format!("covers {candidate}"))
            }
        });
        found.unwrap()
    };
    reply.authority.iter().filter(|record| record.rtype == Rtype::NSEC3).map(say).collect()
}

#[test]
fn nsec3_proves_denials() {
    for (labels, expected) in [
        ("x1.v4-1-2-3-4.nsec3", vec!["matches x1.v4-1-2-3-4.nsec3 A RRSIG"]),
        ("x1.nsec3", vec!["matches x1.nsec3 "]),
        ("nsec3", vec!["matches nsec3 NS SOA RRSIG DNSKEY NSEC3PARAM"]),
        (
            "x1.all-rcode-3.nsec3",
            vec![
                "matches all-rcode-3.nsec3 ",
                "covers x1.all-rcode-3.nsec3",
                "covers *.all-rcode-3.nsec3",
            ],
        ),
        (
            "x1.v4-1-2-3-4.wild.nsec3",
            vec![
                "matches wild.nsec3 ",
                "covers v4-1-2-3-4.wild.nsec3",
                "matches *.wild.nsec3 A RRSIG",
            ],
        ),
    ] {
        assert_eq!(nsec3s(&ask_dnssec(labels, Rtype::AAAA)), expected, "{labels}");
    }
}

#[test]
fn anchors_are_lines_of_a_zone_file() {
    let anchors = ZONES.keys.anchors();
    assert_eq!(anchors.len(), 8);
    let key = dnskey(&inside("secure"));
    let starts = [
        format!("secure.{ZONE}. 300 IN DNSKEY 257 3 13 "),
        format!("secure.{ZONE}. 300 IN DS {} 13 2 ", key.key_tag()),
    ];
    assert!(anchors[0].starts_with(&starts[0]), "{}", anchors[0]);
    assert!(anchors[1].starts_with(&starts[1]), "{}", anchors[1]);
    assert_eq!(anchors[1].len(), starts[1].len() + 64);
}
