//! Items 18 to 23.

use domain::base::iana::{Rcode, Rtype};
use domain::base::rdata::UnknownRecordData;
use domain::rdata::{AllRecordData, Mx, Soa};

use crate::harness::*;

#[test]
fn item_18_other_types_are_unchanged() {
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        _ => q.answer().any(&q.name, 60, AllRecordData::Mx(Mx::new(10, name("mail.test")))).send(),
    });
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(ask("www.test", Rtype::A).of(&server).answers(), ["www.test 60 a 192.0.2.1"]);
    assert_eq!(ask("www.test", Rtype::MX).of(&server).answers(), ["www.test 60 mx 10 mail.test"]);
}

#[test]
fn item_19_the_additional_section_is_untouched() {
    let upstream = Upstream::new(|q| {
        q.answer()
            .any(&q.name, 60, AllRecordData::Mx(Mx::new(10, name("mail.test"))))
            .additional_a("mail.test", 60, "192.0.2.7")
            .send()
    });
    let server = server(&[upstream.address], PREFIX);
    for query in [ask("www.test", Rtype::MX), ask("www.test", Rtype::MX).edns(1232)] {
        let got = query.of(&server);
        let additional: Vec<_> =
            got.message.additional().unwrap().map(|r| r.unwrap().rtype()).collect();
        assert_eq!(additional.iter().filter(|t| **t == Rtype::A).count(), 1);
        assert_eq!(
            additional.contains(&Rtype::OPT),
            query.edns.is_some(),
            "item 31: the upstream's OPT is not ours"
        );
    }
}

#[test]
fn item_19_synthesized_answers_lose_it_before_records() {
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::A => {
            let answer = (1..=12)
                .fold(q.answer(), |answer, i| answer.a(&q.name, 60, &format!("192.0.2.{i}")));
            let besides = if q.name == "many.test" { 20 } else { 2 };
            let besides = (1..=besides).fold(answer, |reply, i| {
                reply.additional_a("ns.test", 60, &format!("192.0.2.{}", 100 + i))
            });
            besides.ns("test", 60, "ns.test").send()
        }
        _ => q.nodata(60, 60).send(),
    });
    let server = server(&[upstream.address], PREFIX);
    let besides = |got: &Got| {
        let counts = got.message.header_counts();
        (counts.ancount(), counts.nscount(), counts.arcount())
    };
    let got = ask("few.test", Rtype::AAAA).over_tcp(&server);
    assert_eq!(
        (got.addresses()[11], besides(&got)),
        (mapped("192.0.2.12"), (12, 1, 2)),
        "RFC 6147 section 5.4"
    );
    let whole = ask("many.test", Rtype::AAAA).over_tcp(&server);
    assert_eq!(besides(&whole), (12, 1, 20));
    // 12 addresses fill 512 octets without any other record. This is not a truncation (RFC 2181
    // §9).
    let short = ask("many.test", Rtype::AAAA).of(&server);
    assert_eq!((besides(&short), short.message.header().tc()), ((12, 1, 0), false));
}

#[test]
fn item_20_service_hints_are_untouched() {
    // HTTPS 1 . ipv4hint=192.0.2.1
    let data = vec![0, 1, 0, 0, 4, 0, 4, 192, 0, 2, 1];
    let expected = data.clone();
    let upstream = Upstream::new(move |q| {
        let unknown = UnknownRecordData::from_octets(Rtype::HTTPS, data.clone()).unwrap();
        q.answer().any(&q.name, 60, AllRecordData::Unknown(unknown)).send()
    });
    let server = server(&[upstream.address], PREFIX);
    let got = ask("www.test", Rtype::HTTPS).of(&server);
    let bytes = got.message.as_slice();
    assert!(bytes.windows(expected.len()).any(|w| w == expected));
    assert_eq!(upstream.asked(), ["www.test HTTPS"]);
}

#[test]
fn item_21_any_is_not_synthesized() {
    let upstream = Upstream::new(|q| q.answer().a(&q.name, 60, "192.0.2.1").send());
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(ask("www.test", Rtype::ANY).of(&server).answers(), ["www.test 60 a 192.0.2.1"]);
    assert_eq!(upstream.asked(), ["www.test ANY"]);
}

fn reverse(address: &str) -> String {
    let bits = u128::from(v6(address));
    (0..32).map(|i| format!("{:x}.", bits >> (4 * i) & 0xf)).collect::<String>() + "ip6.arpa"
}

#[test]
fn item_22_pointers_under_a_prefix() {
    let upstream = Upstream::new(|q| match q.name.as_str() {
        "1.2.0.192.in-addr.arpa" => q.answer().ptr(&q.name, 60, "www.test").send(),
        "2.2.0.192.in-addr.arpa" => {
            q.rcode(Rcode::NXDOMAIN).soa("2.0.192.in-addr.arpa", 60, 60).send()
        }
        "3.2.0.192.in-addr.arpa" => q.answer().soa("2.0.192.in-addr.arpa", 60, 60).send(),
        other => q.answer().ptr(other, 60, "elsewhere.test").send(),
    });
    let server = server(&[upstream.address], PREFIX);
    let made = reverse("2001:db8:64::192.0.2.1");
    for _ in 0..2 {
        let got = ask(&made, Rtype::PTR).of(&server).answers();
        let cname = format!("{made} 600 cname 1.2.0.192.in-addr.arpa");
        assert_eq!(got, [cname, "1.2.0.192.in-addr.arpa 60 ptr www.test".into()]);
    }
    // RFC 6147 §5.3.1: no alias to a name that does not exist.
    for (address, rcode) in [("192.0.2.2", Rcode::NXDOMAIN), ("192.0.2.3", Rcode::NOERROR)] {
        let name = reverse(&format!("2001:db8:64::{address}"));
        let query = ask(&name, Rtype::PTR);
        for missing in [query.of(&server), query.over_tcp(&server)] {
            assert_eq!(
                (missing.rcode(), missing.answers().len(), missing.has_soa()),
                (rcode, 0, true)
            );
        }
    }
    let tail = &made[2..];
    assert_eq!(ask(&format!("z.{tail}"), Rtype::PTR).of(&server).rcode(), Rcode::NXDOMAIN);
    assert_eq!(
        ask(&format!("1.{made}"), Rtype::PTR).of(&server).rcode(),
        Rcode::NXDOMAIN,
        "33 nibbles"
    );
    let inside = ask(tail, Rtype::PTR).of(&server);
    assert!(inside.rcode() == Rcode::NOERROR && inside.answers().is_empty() && inside.has_soa());
    assert_eq!(
        upstream.asked(),
        ["1.2.0.192.in-addr.arpa PTR", "2.2.0.192.in-addr.arpa PTR", "3.2.0.192.in-addr.arpa PTR"]
    );
    assert_eq!(
        ask(&reverse("2001:db8::1"), Rtype::PTR).of(&server).answers().len(),
        1,
        "not local, but an upstream answer"
    );
}

#[test]
fn item_23_ipv4only_arpa_needs_no_upstream() {
    let upstream = Upstream::new(|q| q.rcode(Rcode::REFUSED).send());
    let server = server(&[upstream.address], PREFIX);
    let a = ask("ipv4only.arpa", Rtype::A).of(&server).answers();
    assert_eq!(a, ["ipv4only.arpa 86400 a 192.0.0.170", "ipv4only.arpa 86400 a 192.0.0.171"]);
    let aaaa = ask("IPV4only.arpa", Rtype::AAAA).of(&server).addresses();
    assert_eq!(aaaa, [mapped("192.0.0.170"), mapped("192.0.0.171")]);
    for pointer in ["170.0.0.192.in-addr.arpa", &reverse("2001:db8:64::192.0.0.171")] {
        let got = ask(pointer, Rtype::PTR).of(&server).answers();
        assert_eq!(got, [format!("{pointer} 86400 ptr ipv4only.arpa")]);
    }
    let mx = ask("ipv4only.arpa", Rtype::MX).of(&server);
    assert!(mx.rcode() == Rcode::NOERROR && mx.answers().is_empty() && mx.has_soa());
    assert!(upstream.asked().is_empty());
}

/// RFC 6303 §3: an empty zone has SOA and NS records with its apex as the name server.
#[test]
fn item_23_local_zones_need_no_upstream() {
    let upstream = Upstream::new(|q| q.answer().ptr(&q.name, 60, "host.corp.example").send());
    let forward = "[[forward]]\ndomain = '1.10.in-addr.arpa'\n";
    let server = server(&[upstream.address], &format!("local-zones = true\n{PREFIX}{forward}"));
    let zone = "10.in-addr.arpa";
    let soa = format!("{zone} 600 soa {zone}. nobody.invalid. 1 3600 1200 604800 600");
    for (qtype, record) in [(Rtype::SOA, soa), (Rtype::NS, format!("{zone} 600 ns {zone}"))] {
        let query = ask(zone, qtype);
        for got in [query.of(&server), query.over_tcp(&server)] {
            assert_eq!(got.answers(), std::slice::from_ref(&record));
        }
    }
    for (name, qtype, rcode) in [
        (zone, Rtype::PTR, Rcode::NOERROR),
        ("1.0.0.10.in-addr.arpa", Rtype::PTR, Rcode::NXDOMAIN),
        ("printer.local", Rtype::AAAA, Rcode::NXDOMAIN),
        ("1.10.in-addr.arpa.test", Rtype::A, Rcode::NXDOMAIN),
    ] {
        let got = ask(name, qtype).of(&server);
        assert_eq!((got.rcode(), got.answers().len(), got.has_soa()), (rcode, 0, true), "{name}");
    }
    let denied = ask("1.0.0.10.in-addr.arpa", Rtype::PTR).of(&server);
    let authority = denied.message.authority().unwrap().limit_to::<Soa<_>>();
    let mname = authority.map(|record| record.unwrap().data().mname().to_string()).next();
    assert_eq!(mname.as_deref(), Some(zone));
    assert_eq!(upstream.asked(), [""; 0]);

    let forwarded = ask("2.0.1.10.in-addr.arpa", Rtype::PTR).of(&server).answers();
    assert_eq!(forwarded, ["2.0.1.10.in-addr.arpa 60 ptr host.corp.example"]);
    // The target of a PTR query below a prefix is queried upstream.
    let pointer = reverse("2001:db8:64::10.0.0.1");
    let got = ask(&pointer, Rtype::PTR).of(&server).answers();
    let cname = format!("{pointer} 600 cname 1.0.0.10.in-addr.arpa");
    assert_eq!(got, [cname, "1.0.0.10.in-addr.arpa 60 ptr host.corp.example".into()]);
}

#[test]
fn item_38_alias_loops_are_remembered() {
    let upstream = Upstream::new(|q| {
        q.answer().cname("a.test", 60, "b.test").cname("b.test", 60, "a.test").send()
    });
    let server = server(&[upstream.address], PREFIX);
    for _ in 0..3 {
        assert_eq!(ask("a.test", Rtype::AAAA).of(&server).rcode(), Rcode::SERVFAIL);
    }
    assert_eq!(upstream.asked().len(), 1);
}

#[test]
fn item_37_clients_see_ttls_within_the_limits() {
    let upstream = Upstream::new(|q| match q.name.as_str() {
        "long.test" => q.answer().a(&q.name, 86_400, "192.0.2.1").send(),
        "short.test" => q.answer().a(&q.name, 1, "192.0.2.1").send(),
        // The top bit is set (RFC 2181 §8).
        _ => q.answer().a(&q.name, 0x8000_0001, "192.0.2.1").send(),
    });
    let server =
        server(&[upstream.address], &format!("{PREFIX}[cache]\nmin-ttl = 30\nmax-ttl = 60\n"));
    let ttl = |name: &str| ask(name, Rtype::A).of(&server).ttls()[0];
    assert!((58..=60).contains(&ttl("long.test")) && (28..=30).contains(&ttl("short.test")));
    assert!((28..=30).contains(&ttl("odd.test")));
}
