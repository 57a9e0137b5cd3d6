//! Policies by domain and by record type, each over UDP and TCP, through sockets.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::base::iana::{Rcode, Rtype};
use domain::base::rdata::UnknownRecordData;
use domain::rdata::AllRecordData;

use crate::harness::*;

/// `dual…` has AAAA and A records, `four…` A only, `six…` AAAA only, `broken…` fails for AAAA,
/// `silent…` does not answer for AAAA.
fn zone() -> Upstream {
    Upstream::new(|q| {
        let begins = |kind: &str| q.name.starts_with(kind);
        match q.qtype {
            Rtype::AAAA if begins("dual") || begins("six") => {
                q.answer().aaaa(&q.name, 60, "2001:db8:a::1").send()
            }
            Rtype::AAAA if begins("broken") => q.rcode(Rcode::SERVFAIL).ede(22).send(),
            Rtype::AAAA if begins("silent") => Vec::new(),
            Rtype::A if !begins("six") => q.answer().a(&q.name, 60, "192.0.2.1").send(),
            Rtype::PTR => q.answer().ptr(&q.name, 60, "www.test").send(),
            _ => q.nodata(60, 60).send(),
        }
    })
}

/// The AAAA and A records that a client gets for a name. Asserts that they are the same over UDP
/// and TCP.
fn records(server: &Server, client: &str, name: &str) -> Vec<String> {
    let of = |qtype| {
        let query = ask(name, qtype).from(client);
        let [udp, tcp] = [query.of(server), query.over_tcp(server)].map(|got| got.answers());
        let without_ttl = |line: &String| {
            let words: Vec<&str> = line.split(' ').collect();
            words[words.len() - 1].to_owned()
        };
        let [udp, tcp] = [udp, tcp].map(|lines| lines.iter().map(without_ttl).collect::<Vec<_>>());
        assert_eq!(udp, tcp, "{name} {qtype}");
        udp
    };
    [of(Rtype::AAAA), of(Rtype::A)].concat()
}

#[test]
fn domains_are_translated_each_in_its_own_way() {
    let upstream = zone();
    let server = server(
        &[upstream.address],
        &format!(
            "{PREFIX}[forwarding]\ntimeout = '300ms'\n\
             [[domain]]\ndomain = 'off.test'\noff = true\n\
             [[domain]]\ndomain = 'own.test'\nprefixes = [{{ prefix = '2001:db8:77::/96' }}]\n\
             [[domain]]\ndomain = 'ignore.test'\nignore-aaaa = true\n\
             [[domain]]\ndomain = 'back.test'\nignore-aaaa = true\nfallback-native = true\n\
             [[domain]]\ndomain = 'patient.test'\nmode = 'timeout'\n\
             [[group]]\nclients = ['127.0.0.2']\n\
             [[group.domain]]\ndomain = 'four.off.test'\noff = false\n\
             [[group.domain]]\ndomain = 'own.test'\nprefixes = []\n"
        ),
    );
    let made = |prefix: &str| format!("{prefix}c000:201");
    let (own, four, native) = (made("2001:db8:64::"), "192.0.2.1", "2001:db8:a::1");
    let cases: [(&str, &str, &[&str]); 14] = [
        ("127.0.0.1", "four.test", &[&own, four]),
        ("127.0.0.1", "dual.test", &[native, four]),
        ("127.0.0.1", "four.off.test", &[four]),
        ("127.0.0.1", "four.own.test", &[&made("2001:db8:77::"), four]),
        ("127.0.0.1", "dual.ignore.test", &[&own, four]),
        ("127.0.0.1", "six.ignore.test", &[]),
        ("127.0.0.1", "dual.back.test", &[&own, four]),
        ("127.0.0.1", "six.back.test", &[native]),
        ("127.0.0.1", "broken.test", &[&own, four]),
        ("127.0.0.1", "broken.patient.test", &[four]),
        ("127.0.0.1", "silent.patient.test", &[&own, four]),
        ("127.0.0.2", "four.off.test", &[&own, four]),
        ("127.0.0.2", "four.own.test", &[four]),
        ("127.0.0.2", "dual.ignore.test", &[&own, four]),
    ];
    for (client, name, expected) in cases {
        assert_eq!(records(&server, client, name), expected, "{client} {name}");
    }
}

#[test]
fn filter_a_withholds_a_records_if_there_are_aaaa() {
    let upstream = zone();
    let server = server(
        &[upstream.address],
        "[[group]]\nclients = ['127.0.0.2']\nfilter-a = true\n\
         [[group]]\nclients = ['127.0.0.3']\nfilter-a = true\ndns64.prefixes = []\n",
    );
    let (four, native) = ("192.0.2.1", "2001:db8:a::1");
    let cases: [(&str, &str, &[&str]); 6] = [
        // A documentation address, which the well-known prefix must not embed.
        ("127.0.0.2", "four.test", &[four]),
        ("127.0.0.1", "dual.test", &[native, four]),
        ("127.0.0.2", "dual.test", &[native]),
        ("127.0.0.2", "six.test", &[native]),
        ("127.0.0.3", "dual.test", &[native]),
        ("127.0.0.3", "four.test", &[four]),
    ];
    for (client, name, expected) in cases {
        assert_eq!(records(&server, client, name), expected, "{client} {name}");
    }
    let query = ask("dual.test", Rtype::A).from("127.0.0.2").edns(1232);
    for got in [query.of(&server), query.over_tcp(&server)] {
        assert_eq!((got.rcode(), got.has_soa(), got.ede()), (Rcode::NOERROR, true, Some(17)));
    }
    let found = ask("ipv4only.arpa", Rtype::A).from("127.0.0.2").of(&server);
    assert_eq!(found.answers().len(), 2, "never filtered (RFC 7050)");
}

#[test]
fn filtered_a_records_are_those_of_translated_names() {
    let upstream = zone();
    let server = server(
        &[upstream.address],
        &format!("{PREFIX}filter-a = true\n[[domain]]\ndomain = 'off.test'\noff = true\n"),
    );
    let made = mapped("192.0.2.1").to_string();
    let cases: [(&str, &[&str]); 5] = [
        ("four.test", &[&made]),
        ("broken.test", &[&made]),
        ("dual.test", &["2001:db8:a::1"]),
        ("four.off.test", &["192.0.2.1"]),
        ("six.off.test", &["2001:db8:a::1"]),
    ];
    for (name, expected) in cases {
        assert_eq!(records(&server, "127.0.0.1", name), expected, "{name}");
    }
}

/// The configuration is reloaded during the upstream query for AAAA records. The NODATA response to
/// this query must not be used as an answer about A records.
#[test]
fn filter_a_switched_off_by_reload_withholds_nothing() {
    let may_answer = Arc::new(AtomicBool::new(false));
    let is_time = Arc::clone(&may_answer);
    let upstream = Upstream::new(move |q| match (q.qtype, q.name.as_str()) {
        (Rtype::A, _) => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        (_, "slow.test") => {
            let denied = Act::Send(q.nodata(3_600, 3_600).bytes());
            vec![Act::Until(Arc::clone(&is_time)), denied]
        }
        _ => q.nodata(60, 60).send(),
    });
    let server = patient_server(&[upstream.address], &format!("{PREFIX}filter-a = true\n"));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(&ask("slow.test", Rtype::A).bytes(), server.address).unwrap();
    eventually("the upstream query for AAAA records", || !upstream.asked().is_empty());
    server.running.reload(&settings(&[upstream.address], PREFIX)).unwrap();
    eventually("an A record of another name", || {
        !ask("quick.test", Rtype::A).of(&server).answers().is_empty()
    });
    may_answer.store(true, Ordering::Relaxed);
    let got = receive(&client, SOON).expect("a response");
    assert_eq!(got.answers(), ["slow.test 60 a 192.0.2.1"]);
}

/// The data of the HTTPS records of a name, as text. Asserts that the data are the same over UDP
/// and TCP.
fn services(server: &Server, query: &Ask) -> Vec<String> {
    let [udp, tcp] = [query.of(server), query.over_tcp(server)].map(|got| {
        let lines = got.answers();
        lines
            .iter()
            .filter_map(|line| line.split_once(" https "))
            .map(|(_, data)| data.to_owned())
            .collect::<Vec<_>>()
    });
    assert_eq!(udp, tcp, "{}", query.name);
    udp
}

#[test]
fn hints_name_the_addresses_that_aaaa_records_have() {
    // One record: priority 1, this target, alpn h2, ipv4hint 8.8.8.8.
    let service = |target: &[u8]| {
        [&[0, 1][..], target, &[0, 1, 0, 3, 2, b'h', b'2', 0, 4, 0, 4, 8, 8, 8, 8]].concat()
    };
    let upstream = Upstream::new(move |q| {
        let target: &[u8] = if q.name == "far.test" { b"\x03own\x04test\0" } else { b"\0" };
        match q.qtype {
            Rtype::HTTPS => {
                let data = UnknownRecordData::from_octets(Rtype::HTTPS, service(target)).unwrap();
                let reply = q.answer().any(&q.name, 60, AllRecordData::Unknown(data));
                let is_signed = q.name == "signed.test" && q.dnssec_ok();
                if is_signed { reply.rrsig(&q.name, Rtype::HTTPS) } else { reply }.send()
            }
            Rtype::A => q.answer().a(&q.name, 60, "8.8.8.8").send(),
            _ => q.nodata(60, 60).send(),
        }
    });
    let server = server(
        &[upstream.address],
        "[[domain]]\ndomain = 'own.test'\nprefixes = [{ prefix = '2001:db8:77::/96' }]\n\
         [[domain]]\ndomain = 'off.test'\noff = true\n\
         [[group]]\nclients = ['127.0.0.2']\nhttps-hints = 'translate'\n\
         [[group]]\nclients = ['127.0.0.3']\nhttps-hints = 'strip'\n",
    );
    let (kept, made) = ("ipv4hint=8.8.8.8", "ipv6hint=64:ff9b::808:808");
    let own = "ipv6hint=2001:db8:77::808:808";
    for (client, name, hint) in [
        ("127.0.0.1", "www.test", Some(kept)),
        ("127.0.0.2", "www.test", Some(made)),
        ("127.0.0.2", "own.test", Some(own)),
        // The policy for the target of the record applies, not the policy for `far.test`.
        ("127.0.0.2", "far.test", Some(own)),
        ("127.0.0.2", "off.test", Some(kept)),
        ("127.0.0.2", "signed.test", Some(made)),
        ("127.0.0.3", "www.test", None),
    ] {
        let found = services(&server, &ask(name, Rtype::HTTPS).from(client));
        assert_eq!(found.len(), 1, "{client} {name}: {found:?}");
        let hints: Vec<&str> = found[0].split(' ').filter(|word| word.contains("hint")).collect();
        assert_eq!(hints, Vec::from_iter(hint), "{client} {name}: {found:?}");
        assert!(found[0].contains("alpn"), "{found:?}");
    }
    let validates = ask("signed.test", Rtype::HTTPS).from("127.0.0.2").dnssec_ok();
    assert!(services(&server, &validates)[0].contains(kept), "signed, for a client with DO");
    let cd = ask("www.test", Rtype::HTTPS).from("127.0.0.2").checking_disabled();
    assert!(services(&server, &cd)[0].contains(kept), "for a validating client");
}

/// RFC 9460 §4.2.1: hints do not replace AAAA records. RFC 9460 §4.2: if the addresses of a target
/// cannot be found, the HTTPS records are still returned.
#[test]
fn item_20_no_hints_are_made_for_targets_with_aaaa() {
    // Priority 1, alpn h2, and ipv4hint 8.8.8.8, for the name itself and for a target.
    let params = [0, 1, 0, 3, 2, b'h', b'2', 0, 4, 0, 4, 8, 8, 8, 8];
    let https = move |target: &[u8]| {
        let octets = [&[0, 1][..], target, &params].concat();
        AllRecordData::Unknown(UnknownRecordData::from_octets(Rtype::HTTPS, octets).unwrap())
    };
    let upstream = Upstream::new(move |q| match (q.name.as_str(), q.qtype) {
        ("far.test", Rtype::HTTPS) => {
            q.answer().any(&q.name, 60, https(b"\x06native\x04test\0")).send()
        }
        ("lost.test", Rtype::HTTPS) => {
            q.answer().any(&q.name, 60, https(b"\x04gone\x04test\0")).send()
        }
        ("cname.test", Rtype::HTTPS) => {
            let alias = q.answer().cname(&q.name, 60, "native.test");
            alias.any("native.test", 60, https(b"\0")).send()
        }
        (_, Rtype::HTTPS) => q.answer().any(&q.name, 60, https(b"\0")).send(),
        ("native.test", _) => q.answer().aaaa(&q.name, 60, "2600::1").send(),
        ("alias.test", _) => q.answer().cname(&q.name, 60, "native.test").send(),
        ("mapped.test", _) => q.answer().aaaa(&q.name, 60, "::ffff:8.8.8.8").send(),
        ("failed.test", _) => q.rcode(Rcode::REFUSED).send(),
        ("gone.test", _) => q.rcode(Rcode::NXDOMAIN).soa("test", 60, 60).send(),
        _ => q.nodata(20, 60).send(),
    });
    let server = server(&[upstream.address], "[dns64]\nhttps-hints = 'translate'\n");
    let (kept, made) = (Some("ipv4hint=8.8.8.8"), Some("ipv6hint=64:ff9b::808:808"));
    for (name, hint) in [
        ("native.test", None),
        ("far.test", None),
        ("cname.test", None),
        ("alias.test", None),
        ("mapped.test", made),
        ("www.test", made),
        ("failed.test", kept),
        ("lost.test", kept),
    ] {
        // First from the upstream, then from the cache.
        for _ in 0..2 {
            let found = services(&server, &ask(name, Rtype::HTTPS));
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            let mut hints = found[0].split(' ').filter(|word| word.contains("hint"));
            assert_eq!((hints.next(), hints.next()), (hint, None), "{name}: {found:?}");
            assert!(found[0].contains("alpn"), "{name}: {found:?}");
        }
    }
    let asked = upstream.asked();
    let count = |line: &str| asked.iter().filter(|asked| *asked == line).count();
    assert_eq!([count("native.test AAAA"), count("www.test AAAA")], [1, 1], "{asked:?}");
    assert!(asked.iter().all(|asked| !asked.ends_with(" A")), "{asked:?}");
    // The negative answer for AAAA records has 20 s left.
    let ttls = ask("www.test", Rtype::HTTPS).of(&server).ttls();
    assert!(ttls.iter().all(|&ttl| ttl <= 20), "{ttls:?}");
}

/// One HTTPS answer causes a limited number of upstream queries for its targets.
#[test]
fn item_20_at_most_four_targets_are_asked() {
    let upstream = Upstream::new(|q| {
        let https = |reply: Reply, n: u8| {
            let target = [1, b'0' + n, 4, b't', b'e', b's', b't', 0];
            let octets = [&[0, n][..], &target, &[0, 4, 0, 4, 8, 8, 8, n]].concat();
            let data = UnknownRecordData::from_octets(Rtype::HTTPS, octets).unwrap();
            reply.any(&q.name, 60, AllRecordData::Unknown(data))
        };
        match q.qtype {
            Rtype::HTTPS => (1..=9).fold(q.answer(), https).send(),
            _ => q.nodata(60, 60).send(),
        }
    });
    let server = server(&[upstream.address], "[dns64]\nhttps-hints = 'translate'\n");
    let found = services(&server, &ask("www.test", Rtype::HTTPS));
    let count = |hint: &str| found.iter().filter(|line| line.contains(hint)).count();
    assert_eq!([count("ipv6hint"), count("ipv4hint")], [4, 5], "{found:?}");
    let asked = upstream.asked();
    assert_eq!(asked.iter().filter(|asked| asked.ends_with(" AAAA")).count(), 4, "{asked:?}");
}

/// RFC 9460 §2.2: a malformed record is forwarded, because only the client may reject it.
#[test]
fn malformed_services_are_passed_on_unchanged() {
    let good = [0, 1, 0, 0, 1, 0, 3, 2, b'h', b'2', 0, 4, 0, 4, 8, 8, 8, 8];
    // The keys are not in order.
    let bad = [0, 2, 0, 0, 4, 0, 4, 8, 8, 8, 8, 0, 1, 0, 3, 2, b'h', b'2'];
    let upstream = Upstream::new(move |q| {
        let data = |octets: &[u8]| {
            AllRecordData::Unknown(
                UnknownRecordData::from_octets(Rtype::HTTPS, octets.to_vec()).unwrap(),
            )
        };
        match q.qtype {
            Rtype::HTTPS => {
                let reply = q.answer().any(&q.name, 60, data(&good));
                reply.any(&q.name, 60, data(&bad)).send()
            }
            _ => q.nodata(60, 60).send(),
        }
    });
    for (hints, wanted) in [("translate", true), ("strip", false)] {
        let group = format!("[[group]]\nclients = ['127.0.0.2']\nhttps-hints = '{hints}'\n");
        let server = server(&[upstream.address], &group);
        let got = ask("www.test", Rtype::HTTPS).from("127.0.0.2").of(&server);
        assert_eq!(got.rcode(), Rcode::NOERROR, "{hints}");
        let message = got.message.as_slice();
        let holds = |part: &[u8]| message.windows(part.len()).any(|window| window == part);
        assert!(holds(&bad), "{hints}: the malformed one is not what it was");
        assert!(!holds(&good), "{hints}: the other one is");
        let address = v6("64:ff9b::808:808").octets();
        assert_eq!(holds(&address), wanted, "{hints}");
    }
}

#[test]
fn synthesized_zones_have_the_configured_records() {
    let upstream = zone();
    let server = server(
        &[upstream.address],
        "[local]\nname-server = 'ns.example'\ncontact = 'dns.admin@example.org'\nttl = 77\nreverse-ttl = 88\n",
    );
    let apex = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa";
    let soa = ask(apex, Rtype::SOA);
    let pointer = ask(&format!("8.0.8.0.8.0.8.0.{apex}"), Rtype::PTR);
    for (soa, pointer) in
        [(soa.of(&server), pointer.of(&server)), (soa.over_tcp(&server), pointer.over_tcp(&server))]
    {
        let found = soa.answers().remove(0);
        assert!(found.contains(" 77 soa ns.example. dns\\.admin.example.org. 1 "), "{found}");
        assert!(found.ends_with(" 77"), "MINIMUM: {found}");
        let found = pointer.answers().remove(0);
        assert!(found.contains(" 88 cname 8.8.8.8.in-addr.arpa"), "{found}");
    }
}
