//! Items 1 to 17 and 24 to 28.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::base::iana::{Class, Rcode, Rtype};
use domain::rdata::{AllRecordData, Mx};

use crate::harness::*;

/// An upstream with A records for all names and AAAA records for none.
fn v4_only() -> Upstream {
    Upstream::new(|q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 300, "192.0.2.1").send(),
        _ => q.nodata(300, 300).send(),
    })
}

#[test]
fn item_01_only_aaaa_of_class_in() {
    let upstream = v4_only();
    let server = server(&[upstream.address], PREFIX);
    let mut chaos = ask("www.test", Rtype::AAAA);
    chaos.class = Class::CH;
    assert!(chaos.of(&server).answers().is_empty());
    assert!(ask("www.test", Rtype::MX).of(&server).answers().is_empty());
    assert_eq!(upstream.asked(), ["www.test AAAA", "www.test MX"], "no A query");
}

#[test]
fn item_02_real_aaaa_records_pass_alone() {
    let upstream = Upstream::new(|q| q.answer().aaaa(&q.name, 77, "2001:db8::1").send());
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(
        ask("www.test", Rtype::AAAA).of(&server).answers(),
        ["www.test 77 aaaa 2001:db8::1"]
    );
    assert_eq!(upstream.asked(), ["www.test AAAA"]);
}

#[test]
fn item_03_nodata_leads_to_synthesis_without_the_a_records() {
    let upstream = v4_only();
    let server = server(&[upstream.address], PREFIX);
    let got = ask("www.test", Rtype::AAAA).of(&server);
    assert_eq!(got.answers(), ["www.test 300 aaaa 2001:db8:64::c000:201"]);
    assert_eq!((got.rcode(), got.has_soa()), (Rcode::NOERROR, false));
    assert_eq!(upstream.asked(), ["www.test AAAA", "www.test A"]);
}

#[test]
fn item_03_empty_non_terminals_stay_empty() {
    let upstream = Upstream::new(|q| q.nodata(60, 60).send());
    let server = server(&[upstream.address], PREFIX);
    let got = ask("empty.test", Rtype::AAAA).of(&server);
    assert!(got.answers().is_empty() && got.has_soa() && got.rcode() == Rcode::NOERROR);
}

#[test]
fn item_04_nxdomain_is_returned() {
    let upstream = Upstream::new(|q| q.rcode(Rcode::NXDOMAIN).soa("test", 60, 60).send());
    let server = server(&[upstream.address], PREFIX);
    let got = ask("no.test", Rtype::AAAA).of(&server);
    assert!(got.rcode() == Rcode::NXDOMAIN && got.has_soa());
    assert_eq!(upstream.asked(), ["no.test AAAA"]);
}

#[test]
fn item_05_other_rcodes_lead_to_the_a_records() {
    for rcode in [Rcode::SERVFAIL, Rcode::REFUSED, Rcode::NOTIMP, Rcode::FORMERR, Rcode::YXDOMAIN] {
        let upstream = Upstream::new(move |q| match q.qtype {
            Rtype::A => q.answer().a(&q.name, 1000, "192.0.2.1").send(),
            _ => q.rcode(rcode).send(),
        });
        let server = server(&[upstream.address], PREFIX);
        let got = ask("www.test", Rtype::AAAA).of(&server);
        assert_eq!(got.addresses(), [mapped("192.0.2.1")], "{rcode}");
        assert_eq!(got.ttls(), [600], "item 16: no SOA");
    }
}

#[test]
fn item_06_a_timeout_leads_to_the_a_records() {
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 300, "192.0.2.1").send(),
        _ => Vec::new(),
    });
    let server = server(&[upstream.address], &format!("{PREFIX}[forwarding]\ntimeout = '300ms'\n"));
    assert_eq!(ask("www.test", Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
}

#[test]
fn item_06_the_policy_nodata_only_passes_errors_on() {
    let upstream = Upstream::new(|q| match (q.qtype, q.name.as_str()) {
        (Rtype::A, _) => q.answer().a(&q.name, 300, "192.0.2.1").send(),
        (_, "slow.test") => Vec::new(),
        (_, "empty.test") => q.nodata(60, 60).send(),
        _ => q.rcode(Rcode::SERVFAIL).send(),
    });
    let configuration = format!("{PREFIX}mode = 'nodata-only'\n[forwarding]\ntimeout = '300ms'\n");
    let lenient = server(&[upstream.address], &configuration);
    assert_eq!(ask("broken.test", Rtype::AAAA).of(&lenient).rcode(), Rcode::SERVFAIL);
    assert_eq!(ask("slow.test", Rtype::AAAA).of(&lenient).rcode(), Rcode::SERVFAIL);
    assert_eq!(ask("empty.test", Rtype::AAAA).of(&lenient).addresses(), [mapped("192.0.2.1")]);
    assert!(!upstream.asked().contains(&"broken.test A".into()));

    let by_domain = format!("{PREFIX}[[forward]]\ndomain = 'broken.test'\nmode = 'nodata-only'\n");
    let mixed = server(&[upstream.address], &by_domain);
    assert_eq!(ask("a.broken.test", Rtype::AAAA).of(&mixed).rcode(), Rcode::SERVFAIL);
    assert_eq!(ask("other.test", Rtype::AAAA).of(&mixed).addresses(), [mapped("192.0.2.1")]);
}

#[test]
fn item_07_without_a_records_the_reply_is_the_upstreams() {
    let upstream = Upstream::new(|q| match (q.name.as_str(), q.qtype) {
        ("fail-empty.test", Rtype::AAAA) => q.rcode(Rcode::SERVFAIL).send(),
        ("fail-empty.test", _) => q.nodata(60, 60).send(),
        ("empty-fail.test", Rtype::A) => q.rcode(Rcode::REFUSED).send(),
        ("empty-no.test", Rtype::A) => q.rcode(Rcode::NXDOMAIN).soa("test", 60, 60).send(),
        _ => q.nodata(60, 60).send(),
    });
    let server = server(&[upstream.address], PREFIX);
    for (name, rcode) in [
        ("fail-empty.test", Rcode::SERVFAIL),
        ("empty-fail.test", Rcode::REFUSED),
        ("empty-no.test", Rcode::NXDOMAIN),
        ("empty-empty.test", Rcode::NOERROR),
    ] {
        let got = ask(name, Rtype::AAAA).of(&server);
        assert_eq!(got.rcode(), rcode, "{name}");
        assert!(got.answers().is_empty());
    }
}

#[test]
fn item_08_aliases_are_kept_once_and_in_order() {
    let upstream = Upstream::new(|q| {
        let chain = q.answer().cname("a.test", 100, "b.test").cname("b.test", 50, "c.test");
        match (q.qtype, q.name.as_str()) {
            (Rtype::AAAA, "a.test") => chain.soa("test", 300, 300).send(),
            (Rtype::A, "c.test") => {
                q.answer().a("c.test", 300, "192.0.2.1").a("c.test", 300, "192.0.2.2").send()
            }
            _ => q.rcode(Rcode::REFUSED).send(),
        }
    });
    let server = server(&[upstream.address], PREFIX);
    for _ in 0..2 {
        let got = ask("A.test", Rtype::AAAA).of(&server).answers();
        let expected = [
            "a.test 100 cname b.test",
            "b.test 50 cname c.test",
            "c.test 300 aaaa 2001:db8:64::c000:201",
            "c.test 300 aaaa 2001:db8:64::c000:202",
        ];
        assert_eq!(got, expected);
    }
    assert_eq!(upstream.asked().len(), 2, "the second time from the cache");
}

#[test]
fn item_08_aliases_that_the_upstream_did_not_follow_are_chased() {
    let upstream = Upstream::new(|q| match (q.qtype, q.name.as_str()) {
        (_, "a.test") => q.answer().cname("a.test", 100, "b.example").send(),
        (_, "b.example") => q.answer().cname("b.example", 100, "c.example").send(),
        (Rtype::A, "c.example") => q.answer().a("c.example", 300, "192.0.2.1").send(),
        (Rtype::MX, "c.example") => {
            let data = AllRecordData::Mx(Mx::new(10, name("mail.example")));
            q.answer().any("c.example", 300, data).send()
        }
        _ => q.answer().soa("example", 300, 300).send(),
    });
    let server = server(&[upstream.address], PREFIX);
    for (qtype, end) in [
        (Rtype::AAAA, "c.example 300 aaaa 2001:db8:64::c000:201"),
        (Rtype::A, "c.example 300 a 192.0.2.1"),
        (Rtype::MX, "c.example 300 mx 10 mail.example"),
    ] {
        let got = ask("a.test", qtype).of(&server).answers();
        let expected = ["a.test 100 cname b.example", "b.example 100 cname c.example", end];
        assert_eq!(got, expected);
    }
    let asked = upstream.asked();
    assert_eq!(asked[..4], ["a.test AAAA", "b.example AAAA", "c.example AAAA", "c.example A"]);
    assert_eq!(
        asked[4..],
        ["a.test A", "b.example A", "a.test MX", "b.example MX", "c.example MX"],
        "c.example A is cached"
    );
}

#[test]
fn item_08_shuffled_and_unrelated_records_are_put_right() {
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::AAAA => q
            .answer()
            .aaaa("evil.test", 300, "2001:db8::bad")
            .aaaa("c.test", 300, "2001:db8::1")
            .cname("b.test", 100, "c.test")
            .cname("a.test", 100, "b.test")
            .send(),
        _ => q.rcode(Rcode::REFUSED).send(),
    });
    let server = server(&[upstream.address], PREFIX);
    let got = ask("a.test", Rtype::AAAA).of(&server).answers();
    assert_eq!(
        got,
        ["a.test 100 cname b.test", "b.test 100 cname c.test", "c.test 300 aaaa 2001:db8::1"]
    );
}

#[test]
fn item_08_dnames() {
    let upstream = Upstream::new(|q| {
        let dname = q.answer().dname("old.test", 100, "new.test").cname(
            "www.old.test",
            100,
            "www.new.test",
        );
        match (q.qtype, q.name.as_str()) {
            (Rtype::AAAA, "www.old.test") => dname.soa("test", 300, 300).send(),
            (Rtype::A, "www.new.test") => q.answer().a("www.new.test", 300, "192.0.2.1").send(),
            _ => q.rcode(Rcode::REFUSED).send(),
        }
    });
    let server = server(&[upstream.address], PREFIX);
    let got = ask("www.old.test", Rtype::AAAA).of(&server).answers();
    assert_eq!(got[..2], ["old.test 100 dname new.test", "www.old.test 100 cname www.new.test"]);
    assert_eq!(got[2], "www.new.test 300 aaaa 2001:db8:64::c000:201");
}

#[test]
fn item_08_a_question_for_a_dname_below_another() {
    let upstream = Upstream::new(|q| {
        q.answer()
            .dname("old.test", 100, "new.test")
            .cname("www.old.test", 100, "www.new.test")
            .send()
    });
    let server = server(&[upstream.address], PREFIX);
    let got = ask("www.old.test", Rtype::DNAME).of(&server);
    assert_eq!(
        got.answers(),
        ["old.test 100 dname new.test", "www.old.test 100 cname www.new.test"]
    );
    assert_eq!(got.rcode(), Rcode::NOERROR);
}

#[test]
fn item_08_loops_and_endless_aliases_are_servfail() {
    let upstream = Upstream::new(|q| {
        let next = |n: u32| format!("n{}.test", n + 1);
        match q.name.as_str() {
            "loop.test" => q
                .answer()
                .cname("loop.test", 60, "pool.test")
                .cname("pool.test", 60, "loop.test")
                .send(),
            "self.test" => q.answer().cname("self.test", 60, "self.test").send(),
            "x.test" => q.answer().cname("x.test", 60, "y.test").send(),
            "y.test" => q.answer().cname("y.test", 60, "x.test").send(),
            endless => {
                let n = endless[1..].split('.').next().unwrap().parse().unwrap();
                q.answer().cname(endless, 60, &next(n)).send()
            }
        }
    });
    let server = server(&[upstream.address], PREFIX);
    for name in ["loop.test", "self.test", "x.test", "n1.test"] {
        assert_eq!(ask(name, Rtype::AAAA).of(&server).rcode(), Rcode::SERVFAIL, "{name}");
    }
    assert!(upstream.asked().len() < 60, "{}", upstream.asked().len());
}

#[test]
fn item_09_excluded_records_count_as_none_and_never_pass() {
    let upstream = Upstream::new(|q| match (q.qtype, q.name.as_str()) {
        (Rtype::A, _) => q.answer().a(&q.name, 300, "192.0.2.1").send(),
        (_, "all.test") => q.answer().aaaa("all.test", 60, "::ffff:1.2.3.4").send(),
        (_, "alias.test") => q
            .answer()
            .cname("alias.test", 60, "end.test")
            .aaaa("end.test", 60, "::ffff:1.2.3.4")
            .send(),
        _ => q.answer().aaaa(&q.name, 60, "::ffff:1.2.3.4").aaaa(&q.name, 60, "2001:db8::1").send(),
    });
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(ask("all.test", Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
    assert_eq!(ask("mixed.test", Rtype::AAAA).of(&server).addresses(), [v6("2001:db8::1")]);
    let alias = ask("alias.test", Rtype::AAAA).of(&server).answers();
    assert_eq!(alias, ["alias.test 60 cname end.test", "end.test 300 aaaa 2001:db8:64::c000:201"]);
}

/// RFC 6147 §5.1.4 "MUST NOT return", §5.5.
#[test]
fn items_09_and_28_signed_sets_lose_excluded_records() {
    let upstream = Upstream::new(|q| {
        let sign = |reply: Reply, covered| {
            // The proof for a wildcard: no closer name exists.
            let signed = |reply: Reply| reply.rrsig(&q.name, covered).signed_authority();
            if q.dnssec_ok() { signed(reply) } else { reply }
        };
        match (q.name.as_str(), q.qtype) {
            (_, Rtype::A) => sign(q.answer().a(&q.name, 60, "192.0.2.1"), Rtype::A).send(),
            ("all.test", _) => {
                sign(q.answer().aaaa(&q.name, 60, "::ffff:1.2.3.4"), Rtype::AAAA).send()
            }
            _ => {
                let mixed = q.answer().aaaa(&q.name, 60, "::ffff:1.2.3.4");
                sign(mixed.aaaa(&q.name, 60, "2001:db8::1"), Rtype::AAAA).send()
            }
        }
    });
    let careful = server(&[upstream.address], PREFIX);
    let bold = server(&[upstream.address], &format!("{PREFIX}break-dnssec = true\n"));
    for server in [&careful, &bold] {
        let mixed = || ask("mixed.test", Rtype::AAAA);
        for query in [mixed().dnssec_ok(), mixed().edns(1232)] {
            // The reply from the upstream, the reply from the cache, and the reply from the cache
            // over TCP.
            for got in [query.of(server), query.of(server), query.over_tcp(server)] {
                assert_eq!(got.answers().len(), 1, "without a signature");
                assert_eq!((got.addresses(), got.edes()), (vec![v6("2001:db8::1")], vec![17]));
            }
        }
        let whole = mixed().dnssec_ok().checking_disabled();
        for got in [whole.of(server), whole.of(server)] {
            assert_eq!((got.answers().len(), got.edes()), (3, Vec::new()), "CD");
        }
    }
    let all = ask("all.test", Rtype::AAAA).dnssec_ok();
    for got in [all.of(&careful), all.of(&careful), all.over_tcp(&careful)] {
        assert_eq!((got.rcode(), got.answers().len(), got.edes()), (Rcode::NOERROR, 0, vec![17]));
    }
    assert_eq!(all.of(&bold).addresses(), [mapped("192.0.2.1")]);
}

#[test]
fn items_10_and_11_each_address_in_each_prefix() {
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::A => q
            .answer()
            .a(&q.name, 60, "10.0.0.1")
            .a(&q.name, 60, "192.0.2.1")
            .a(&q.name, 60, "10.0.0.1")
            .send(),
        _ => q.nodata(60, 60).send(),
    });
    let server = server(
        &[upstream.address],
        "[dns64]\nprefixes = [{ prefix = '2001:db8:a::/96', ranges = ['10.0.0.0/8'] }, \
         { prefix = '2001:db8:b::/48', suffix = '::42' }]\n",
    );
    let got = ask("www.test", Rtype::AAAA).of(&server).addresses();
    let expected = ["2001:db8:a::a00:1", "2001:db8:b:a00:0:100:0:42", "2001:db8:b:c000:2:100:0:42"];
    assert_eq!(got, expected.map(v6));
}

#[test]
fn items_14_and_15_the_well_known_prefix_and_private_addresses() {
    let upstream = Upstream::new(|q| match (q.qtype, q.name.as_str()) {
        (Rtype::A, "private.test") => q.answer().a(&q.name, 60, "10.0.0.1").send(),
        (Rtype::A, "mixed.test") => {
            q.answer().a(&q.name, 60, "10.0.0.1").a(&q.name, 60, "8.8.8.8").send()
        }
        (Rtype::A, _) => q.answer().a(&q.name, 60, "192.0.0.170").send(),
        _ => q.nodata(60, 60).send(),
    });
    let strict = server(&[upstream.address], "");
    let private = ask("private.test", Rtype::AAAA).of(&strict);
    assert!(private.answers().is_empty() && private.has_soa() && private.rcode() == Rcode::NOERROR);
    assert_eq!(ask("mixed.test", Rtype::AAAA).of(&strict).addresses(), [v6("64:ff9b::808:808")]);
    assert_eq!(
        ask("discovery.test", Rtype::AAAA).of(&strict).addresses(),
        [v6("64:ff9b::192.0.0.170")]
    );
    let configuration =
        "[dns64]\nprefixes = [{ prefix = '64:ff9b::/96', allow-non-global = true }]\n";
    let lax = server(&[upstream.address], configuration);
    assert_eq!(ask("private.test", Rtype::AAAA).of(&lax).addresses(), [v6("64:ff9b::10.0.0.1")]);
}

#[test]
fn item_16_ttl_is_the_least_of_a_and_the_negative_answer() {
    let upstream = Upstream::new(|q| match (q.qtype, q.name.as_str()) {
        (Rtype::A, "a.test") => {
            q.answer().a("a.test", 120, "192.0.2.1").a("a.test", 90, "192.0.2.2").send()
        }
        (Rtype::A, _) => q.answer().a(&q.name, 5000, "192.0.2.1").send(),
        (_, "soa.test") => q.nodata(200, 3000).send(),
        (_, "minimum.test") => q.nodata(3000, 150).send(),
        (_, "foreign.test") => q.answer().soa("elsewhere", 10, 10).send(),
        (_, "without.test") => q.answer().send(),
        _ => q.nodata(4000, 4000).send(),
    });
    let server = server(&[upstream.address], PREFIX);
    for (name, ttls) in [
        ("a.test", vec![90, 90]),
        ("soa.test", vec![200]),
        ("minimum.test", vec![150]),
        ("without.test", vec![600]),
        ("foreign.test", vec![600]),
    ] {
        assert_eq!(ask(name, Rtype::AAAA).of(&server).ttls(), ttls, "{name}");
    }
}

#[test]
fn item_16_the_remaining_negative_ttl_applies() {
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 5000, "192.0.2.1").send(),
        _ => q.nodata(100, 100).send(),
    });
    let server = server(&[upstream.address], PREFIX);
    assert_eq!(ask("www.test", Rtype::AAAA).of(&server).ttls(), [100]);
    eventually("the TTL goes down", || {
        let ttl = ask("www.test", Rtype::AAAA).of(&server).ttls()[0];
        assert!((90..=100).contains(&ttl), "{ttl}");
        ttl < 100
    });
    assert_eq!(upstream.asked().len(), 2);
}

/// TTLs of all records in the answer and authority sections.
fn all_ttls(got: &Got) -> Vec<u32> {
    let authority = got.message.authority().unwrap();
    let of_authority = authority.map(|record| record.unwrap().ttl().as_secs());
    got.ttls().into_iter().chain(of_authority).collect()
}

#[test]
fn cached_records_of_every_kind_of_reply_age() {
    const TTL: u32 = 1_000;
    let upstream = Upstream::new(|q| {
        let alias = q.answer().cname(&q.name, TTL, "host.test");
        match (q.qtype, q.name.as_str()) {
            (Rtype::AAAA, "alias.test") => alias.soa("test", TTL, TTL).send(),
            (Rtype::A, "alias.test") => alias.a("host.test", TTL, "192.0.2.1").send(),
            (_, "empty-alias.test") => alias.soa("test", TTL, TTL).send(),
            (_, "gone.test") => q.rcode(Rcode::NXDOMAIN).soa("test", TTL, TTL).send(),
            (Rtype::A, _) => q.answer().a(&q.name, TTL, "192.0.2.1").send(),
            (Rtype::PTR, _) => q.answer().ptr(&q.name, TTL, "www.test").send(),
            _ => q.nodata(TTL, TTL).send(),
        }
    });
    let server = server(&[upstream.address], &format!("{PREFIX}[local]\nreverse-ttl = 1000\n"));
    let queries = [
        ask("www.test", Rtype::A),
        ask("www.test", Rtype::AAAA),
        ask("alias.test", Rtype::AAAA),
        ask("empty-alias.test", Rtype::AAAA),
        ask("gone.test", Rtype::AAAA),
        ask("1.2.0.192.in-addr.arpa", Rtype::PTR),
    ];
    let smallest_of_first_replies = queries.each_ref().map(|query| {
        let ttls = all_ttls(&query.of(&server));
        // A second may have passed since an earlier query for the same name.
        let is_recent = |&ttl: &u32| (TTL - 100..=TTL).contains(&ttl);
        assert!(!ttls.is_empty() && ttls.iter().all(is_recent), "{}: {ttls:?}", query.name);
        ttls.into_iter().min().unwrap()
    });
    for (query, before) in queries.iter().zip(smallest_of_first_replies) {
        eventually("all TTLs go down", || {
            all_ttls(&query.of(&server)).iter().all(|&ttl| ttl < before)
        });
    }
}

#[test]
fn item_17_both_questions_in_parallel_if_wanted() {
    let may_answer = Arc::new(AtomicBool::new(false));
    let is_time = Arc::clone(&may_answer);
    let upstream = Upstream::new(move |q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 300, "192.0.2.1").send(),
        _ => vec![Act::Until(Arc::clone(&is_time)), Act::Send(q.nodata(300, 300).bytes())],
    });
    let server = patient_server(&[upstream.address], &format!("{PREFIX}parallel = true\n"));
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(&ask("www.test", Rtype::AAAA).bytes(), server.address).unwrap();
    eventually("both queries have arrived", || upstream.asked().len() == 2);
    // The upstream has not answered yet. A new query that needs no upstream is answered first.
    client.send_to(&ask("ipv4only.arpa", Rtype::A).bytes(), server.address).unwrap();
    assert_eq!(receive(&client, SOON).unwrap().answers().len(), 2, "the two A records");
    may_answer.store(true, Ordering::Relaxed);
    assert_eq!(receive(&client, SOON).unwrap().addresses(), [mapped("192.0.2.1")]);
    assert_eq!(upstream.asked().len(), 2);
}

#[test]
fn item_24_cd_means_no_synthesis() {
    let upstream = v4_only();
    let server = server(&[upstream.address], PREFIX);
    for query in [
        ask("a.test", Rtype::AAAA).checking_disabled(),
        ask("b.test", Rtype::AAAA).checking_disabled().dnssec_ok(),
    ] {
        let got = query.of(&server);
        assert!(got.answers().is_empty() && got.has_soa() && got.message.header().cd());
    }
    assert_eq!(upstream.asked(), ["a.test AAAA", "b.test AAAA"]);
    assert!(upstream.queries().iter().all(|q| q.message.header().cd()));
}

#[test]
fn items_26_and_27_ad_is_not_ours_to_give() {
    let upstream = Upstream::new(|q| match (q.qtype, q.name.as_str()) {
        (Rtype::AAAA, "real.test") => {
            q.answer().aaaa(&q.name, 60, "2001:db8::1").authentic().send()
        }
        (Rtype::AAAA, _) => q.nodata(60, 60).authentic().send(),
        _ => q.answer().a(&q.name, 60, "192.0.2.1").authentic().send(),
    });
    let ad = |server: &Server, query: Ask| query.of(server).message.header().ad();
    let plain = server(&[upstream.address], PREFIX);
    assert!(!ad(&plain, ask("real.test", Rtype::AAAA).dnssec_ok()));
    let trusting = server(&[upstream.address], &format!("{PREFIX}[forwarding]\ntrust-ad = true\n"));
    assert!(ad(&trusting, ask("real.test", Rtype::AAAA).dnssec_ok()));
    assert!(!ad(&trusting, ask("real.test", Rtype::AAAA)), "DO=0");
    assert!(!ad(&trusting, ask("made.test", Rtype::AAAA).dnssec_ok()), "synthetic");
}

#[test]
fn items_27_and_28_break_dnssec_is_opt_in() {
    let upstream = Upstream::new(|q| match (q.qtype, q.dnssec_ok()) {
        (Rtype::A, true) => q.answer().a(&q.name, 60, "192.0.2.1").rrsig(&q.name, Rtype::A).send(),
        (Rtype::A, false) => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        (_, true) => q.nodata(60, 60).signed_authority().send(),
        _ => q.nodata(60, 60).send(),
    });
    let careful = server(&[upstream.address], PREFIX);
    assert!(ask("www.test", Rtype::AAAA).dnssec_ok().of(&careful).answers().is_empty());
    assert_eq!(
        ask("www.test", Rtype::AAAA).of(&careful).addresses(),
        [mapped("192.0.2.1")],
        "DO=0"
    );
    let bold = server(&[upstream.address], &format!("{PREFIX}break-dnssec = true\n"));
    let got = ask("www.test", Rtype::AAAA).dnssec_ok().of(&bold);
    assert_eq!(
        got.answers(),
        ["www.test 60 aaaa 2001:db8:64::c000:201"],
        "and no signature over it"
    );
}
