//! Item 8: answers with names that belong to different forwards, tested through sockets.

use domain::base::iana::{Rcode, Rtype};
use domain::base::rdata::UnknownRecordData;
use domain::rdata::{AllRecordData, Mx};

use crate::harness::*;

/// The address in answers of the wrong upstream.
const BAD: &str = "198.51.100.66";
/// A classless delegation (RFC 2317).
const CLASSLESS: &str = "0-63.2.0.192.in-addr.arpa";

/// The upstream of all names outside `corp.test`, which also has answers for names in that domain.
fn public(q: &Asked) -> Reply {
    let name = q.name.as_str();
    let bad = |reply: Reply, owner: &str| match q.qtype {
        Rtype::AAAA => reply.aaaa(owner, 300, "2001:db8::bad"),
        _ => reply.a(owner, 300, BAD),
    };
    let alias = |target: &str| q.answer().cname(name, 300, target);
    match name {
        "denied.test" => {
            q.rcode(Rcode::NXDOMAIN).cname(name, 300, "app.corp.test").soa("test", 60, 60)
        }
        "empty.test" => alias("app.corp.test").soa("corp.test", 60, 60),
        "failed.test" => q.rcode(Rcode::SERVFAIL).cname(name, 300, "app.corp.test"),
        "alone.test" => alias("app.corp.test"),
        "data.test" => bad(alias("app.corp.test"), "app.corp.test"),
        "app.moved.test" => bad(q.answer().dname("moved.test", 300, "corp.test"), "app.corp.test"),
        "far.test" => {
            bad(alias("near.test").cname("near.test", 300, "app.corp.test"), "app.corp.test")
        }
        "zigzag.test" => bad(alias("zig.corp.test"), "zig.corp.test"),
        "zag.test" => bad(alias("app.corp.test"), "app.corp.test"),
        "loop.test" => alias("loop.corp.test"),
        "local.test" => alias("localhost"),
        "onion.test" => alias("www.hidden.onion"),
        "home.test" => alias("printer.home.arpa"),
        "gone.test" => bad(alias("gone.corp.test"), "gone.corp.test"),
        "5.2.0.192.in-addr.arpa" => {
            let target = format!("5.{CLASSLESS}");
            alias(&target).ptr(&target, 300, "bad.test")
        }
        "www.test" if q.qtype == Rtype::A => q.answer().a(name, 300, "192.0.2.80"),
        "mail.test" if q.qtype == Rtype::MX => {
            let data = AllRecordData::Mx(Mx::new(10, self::name("app.corp.test")));
            q.answer().any(name, 300, data).ns("corp.test", 300, "ns.corp.test").additional_a(
                "app.corp.test",
                300,
                BAD,
            )
        }
        "service.test" if q.qtype == Rtype::HTTPS => {
            let data = b"\0\0\x03app\x04corp\x04test\0".to_vec();
            let data = UnknownRecordData::from_octets(Rtype::HTTPS, data).unwrap();
            q.answer().any(name, 300, AllRecordData::Unknown(data)).additional_a(
                "app.corp.test",
                300,
                BAD,
            )
        }
        _ if name.ends_with("corp.test") => q.rcode(Rcode::NXDOMAIN).soa("test", 60, 60),
        _ => q.nodata(60, 60),
    }
}

/// The upstream of `corp.test` and of the classless delegation. For other names it has the same
/// records as [`public`].
fn corp(q: &Asked) -> Reply {
    let name = q.name.as_str();
    match name {
        "app.corp.test" if q.qtype == Rtype::A => q.answer().a(name, 300, "10.1.1.1"),
        "zig.corp.test" => q.answer().cname(name, 300, "zag.test").a("zag.test", 300, BAD),
        "loop.corp.test" => q.answer().cname(name, 300, "loop.test"),
        "out.corp.test" => q.answer().cname(name, 300, "www.test").a("www.test", 300, BAD),
        "gone.corp.test" => q.rcode(Rcode::NXDOMAIN).soa("corp.test", 30, 30),
        _ if name.ends_with("corp.test") => q.nodata(60, 60),
        _ if name == format!("5.{CLASSLESS}") && q.qtype == Rtype::PTR => {
            q.answer().ptr(name, 300, "host.corp.test")
        }
        _ => public(q),
    }
}

/// A server with a forward for `corp.test`. If `all` is true, the server also has a forward for all
/// other names.
fn forwarding(main: &Upstream, other: &Upstream, all: bool, more: &str) -> Server {
    let port = |upstream: &Upstream| upstream.address.port();
    let named = |upstream: &Upstream| {
        let (address, port) = (upstream.address.ip(), port(upstream));
        format!("[[upstream]]\nname = '{port}'\naddress = '{address}'\nport = {port}\n")
    };
    let forward = |domain: &str, upstream: &Upstream| {
        format!("[[forward]]\ndomain = '{domain}'\nupstreams = ['{}']\n", port(upstream))
    };
    let mut text = format!("{PREFIX}{more}{}{}", named(main), named(other));
    text += &[forward("corp.test", other), forward(CLASSLESS, other)].concat();
    if all {
        text += &forward(".", main);
    }
    server(&[], &text)
}

/// The answer records without TTLs.
fn records(got: &Got) -> Vec<String> {
    let without_ttl = |line: String| {
        let mut words: Vec<&str> = line.split(' ').collect();
        words.remove(1);
        words.join(" ")
    };
    got.answers().into_iter().map(without_ttl).collect()
}

/// Asserts that the reply to a query over UDP, and the reply from the cache over TCP, have these
/// records.
#[track_caller]
fn assert_records(server: &Server, query: &Ask, expected: &[&str]) {
    for got in [query.of(server), query.over_tcp(server)] {
        assert_eq!(got.rcode(), Rcode::NOERROR, "{} {}", query.name, query.qtype);
        assert_eq!(records(&got), expected, "{} {}", query.name, query.qtype);
        let authority = got.message.authority().unwrap().count();
        let edns = usize::from(got.message.opt().is_some());
        let additional = got.message.additional().unwrap().count() - edns;
        assert_eq!((authority, additional), (0, 0), "{} {}", query.name, query.qtype);
    }
}

#[test]
fn item_08_aliases_into_a_forward_are_asked_of_it() {
    let modes = [
        "",
        "parallel = true\n",
        "mode = 'timeout'\n",
        "[cache]\nserve-stale = '1h'\nprefetch = true\n",
    ];
    for (all, more) in [true, false].into_iter().flat_map(|all| modes.map(|more| (all, more))) {
        let main = Upstream::new(|q| public(q).send());
        let other = Upstream::new(|q| corp(q).send());
        let server = forwarding(&main, &other, all, more);
        let end = ["app.corp.test a 10.1.1.1", "app.corp.test aaaa 2001:db8:64::a01:101"];
        for (name, aliases) in [
            ("denied.test", vec!["denied.test cname app.corp.test"]),
            ("empty.test", vec!["empty.test cname app.corp.test"]),
            ("failed.test", vec!["failed.test cname app.corp.test"]),
            ("alone.test", vec!["alone.test cname app.corp.test"]),
            ("data.test", vec!["data.test cname app.corp.test"]),
            ("far.test", vec!["far.test cname near.test", "near.test cname app.corp.test"]),
            (
                "app.moved.test",
                vec!["moved.test dname corp.test", "app.moved.test cname app.corp.test"],
            ),
            (
                "zigzag.test",
                vec![
                    "zigzag.test cname zig.corp.test",
                    "zig.corp.test cname zag.test",
                    "zag.test cname app.corp.test",
                ],
            ),
        ] {
            for (qtype, end) in [Rtype::A, Rtype::AAAA].into_iter().zip(end) {
                let expected = [&aliases[..], &[end]].concat();
                assert_records(&server, &ask(name, qtype), &expected);
            }
        }
        let out = "out.corp.test cname www.test";
        assert_records(&server, &ask("out.corp.test", Rtype::A), &[out, "www.test a 192.0.2.80"]);
        let made = "www.test aaaa 2001:db8:64::c000:250";
        assert_records(&server, &ask("out.corp.test", Rtype::AAAA), &[out, made]);
        let asked = main.asked();
        assert!(!asked.iter().any(|line| line.contains("corp.test")), "{asked:?}");
        let asked = other.asked();
        assert!(!all || asked.iter().all(|line| line.contains("corp.test")), "{asked:?}");
    }
}

/// DO and CD reach both upstreams.
#[test]
fn item_08_types_that_are_not_translated_follow_too() {
    let main = Upstream::new(|q| public(q).send());
    let other = Upstream::new(|q| match q.qtype {
        Rtype::TXT => q.answer().any(&q.name, 300, text()).send(),
        _ => corp(q).send(),
    });
    let server = forwarding(&main, &other, true, "");
    let alias = "denied.test cname app.corp.test";
    for query in [
        ask("denied.test", Rtype::TXT),
        ask("denied.test", Rtype::TXT).dnssec_ok(),
        ask("denied.test", Rtype::TXT).checking_disabled(),
    ] {
        assert_records(&server, &query, &[alias, "app.corp.test txt \"x\""]);
    }
    let asked = |upstream: &Upstream| {
        let flags = |q: &Asked| (q.dnssec_ok(), q.message.header().cd());
        upstream.queries().iter().map(flags).collect::<Vec<_>>()
    };
    let expected = [(false, false), (true, false), (false, true)];
    assert_eq!((asked(&main), asked(&other)), (expected.to_vec(), expected.to_vec()));
    let untranslated = ask("data.test", Rtype::AAAA).checking_disabled().of(&server);
    assert_eq!(records(&untranslated), ["data.test cname app.corp.test"]);
    assert!(untranslated.has_soa());
}

fn text() -> AllRecordData<Vec<u8>, domain::base::Name<Vec<u8>>> {
    let data = UnknownRecordData::from_octets(Rtype::TXT, b"\x01x".to_vec()).unwrap();
    AllRecordData::Unknown(data)
}

#[test]
fn item_08_denials_are_those_of_the_other_forward() {
    let main = Upstream::new(|q| public(q).send());
    let other = Upstream::new(|q| corp(q).send());
    let server = forwarding(&main, &other, true, "");
    for qtype in [Rtype::A, Rtype::AAAA] {
        for _ in ["fresh", "from the cache"] {
            let gone = ask("gone.test", qtype).of(&server);
            assert_eq!(records(&gone), ["gone.test cname gone.corp.test"]);
            assert_eq!(gone.rcode(), Rcode::NXDOMAIN);
            let authority = gone.message.authority().unwrap();
            let owners = authority.map(|record| record.unwrap().owner().to_string());
            assert_eq!(owners.collect::<Vec<_>>(), ["corp.test"]);
            let endless = ask("loop.test", qtype).of(&server);
            assert_eq!((endless.rcode(), records(&endless).len()), (Rcode::SERVFAIL, 0));
        }
    }
}

#[test]
fn item_08_records_beside_an_answer_are_left_out() {
    let main = Upstream::new(|q| public(q).send());
    let other = Upstream::new(|q| corp(q).send());
    let server = forwarding(&main, &other, true, "");
    assert_records(&server, &ask("mail.test", Rtype::MX), &["mail.test mx 10 app.corp.test"]);
    for got in [0, 1].map(|_| ask("service.test", Rtype::HTTPS).of(&server)) {
        assert_eq!((got.rcode(), got.answers().len()), (Rcode::NOERROR, 1));
        assert_eq!(got.message.additional().unwrap().count(), 0);
    }
}

/// PTR queries of a classless delegation (RFC 2317), including a query for an address in a NAT64
/// prefix (item 22).
#[test]
fn item_08_pointers_of_classless_delegations() {
    let main = Upstream::new(|q| public(q).send());
    let other = Upstream::new(|q| corp(q).send());
    let server = forwarding(&main, &other, true, "");
    let v4 = "5.2.0.192.in-addr.arpa";
    let (alias, end) =
        (format!("{v4} cname 5.{CLASSLESS}"), format!("5.{CLASSLESS} ptr host.corp.test"));
    assert_records(&server, &ask(v4, Rtype::PTR), &[&alias, &end]);
    let bits = u128::from(mapped("192.0.2.5"));
    let nibbles = (0..32).map(|i| format!("{:x}.", bits >> (4 * i) & 0xf));
    let v6 = nibbles.collect::<String>() + "ip6.arpa";
    let first = format!("{v6} cname {v4}");
    assert_records(&server, &ask(&v6, Rtype::PTR), &[&first, &alias, &end]);
}

/// With `filter-a`, A records are withheld if the alias leads into another forward and its target
/// has AAAA records.
#[test]
fn item_46_filter_a_follows_into_a_forward() {
    let main = Upstream::new(|q| public(q).send());
    let other = Upstream::new(|q| corp(q).send());
    let server = forwarding(&main, &other, true, "filter-a = true\n");
    for _ in ["fresh", "from the cache"] {
        let filtered = ask("denied.test", Rtype::A).edns(1232).of(&server);
        assert_eq!(records(&filtered), ["denied.test cname app.corp.test"]);
        assert_eq!((filtered.rcode(), filtered.ede()), (Rcode::NOERROR, Some(17)));
    }
}

#[test]
fn item_08_a_cut_answer_is_in_the_cache() {
    let main = Upstream::new(|q| public(q).send());
    let other = Upstream::new(|q| corp(q).send());
    let server = forwarding(&main, &other, true, "");
    for _ in 0..3 {
        let got = ask("denied.test", Rtype::AAAA).of(&server);
        assert_eq!(got.addresses(), [mapped("10.1.1.1")]);
    }
    assert_eq!(main.asked(), ["denied.test AAAA"]);
    assert_eq!(other.asked(), ["app.corp.test AAAA", "app.corp.test A"]);
}

#[test]
fn item_23_aliases_to_special_names_are_not_asked() {
    let main = Upstream::new(|q| public(q).send());
    let server = server(&[main.address], &format!("local-zones = ['home.arpa']\n{PREFIX}"));
    let alias = "local.test cname localhost";
    let end = ["localhost aaaa ::1", "localhost a 127.0.0.1"];
    assert_records(&server, &ask("local.test", Rtype::AAAA), &[alias, end[0]]);
    assert_records(&server, &ask("local.test", Rtype::A), &[alias, end[1]]);
    for (name, target) in [("onion.test", "www.hidden.onion"), ("home.test", "printer.home.arpa")] {
        for qtype in [Rtype::AAAA, Rtype::A, Rtype::TXT] {
            let got = ask(name, qtype).of(&server);
            assert_eq!(got.rcode(), Rcode::NXDOMAIN, "{name} {qtype}");
            assert_eq!(records(&got), [format!("{name} cname {target}")], "{qtype}");
        }
    }
    for name in main.asked() {
        assert!(name.contains(".test"), "asked upstream: {name}");
    }
}
