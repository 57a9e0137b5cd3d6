//! Rare cases, each over UDP and TCP through sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::base::iana::{Rcode, Rtype};
use domain::rdata::{AllRecordData, Mx};

use crate::harness::*;

/// The reply over UDP and over TCP.
fn both(server: &Server, query: &Ask) -> [Got; 2] {
    [query.of(server), query.over_tcp(server)]
}

/// The name of `address` in ip6.arpa.
fn reverse(address: &str) -> String {
    let bits = u128::from(v6(address));
    (0..32).map(|i| format!("{:x}.", bits >> (4 * i) & 0xf)).collect::<String>() + "ip6.arpa"
}

/// An upstream that validates. The name determines the kind of answer. Bogus data are returned only
/// to queries with CD. If `explains` is true, each SERVFAIL has an extended error.
fn validating(explains: bool) -> Upstream {
    Upstream::new(move |q| {
        let cd = q.message.header().cd();
        let servfail = |code: u16| {
            if explains { q.rcode(Rcode::SERVFAIL).ede(code) } else { q.rcode(Rcode::SERVFAIL) }
        };
        match (q.name.as_str(), q.qtype, cd) {
            ("forged-nodata.test", Rtype::AAAA, true) => q.nodata(60, 60).send(),
            ("forged-nodata.test", Rtype::AAAA, false) => servfail(12).send(),
            ("forged-aaaa.test", Rtype::AAAA, true) => {
                q.answer().aaaa(&q.name, 60, "2001:db8::bad").send()
            }
            ("forged-aaaa.test", Rtype::AAAA, false) => servfail(6).send(),
            ("expired.test", Rtype::AAAA, true) => {
                q.answer().aaaa(&q.name, 60, "2001:db8::01d").send()
            }
            ("expired.test", Rtype::AAAA, false) => servfail(7).send(),
            ("dead.test", Rtype::AAAA, _) => servfail(22).send(),
            (_, Rtype::A, _) => q.answer().a(&q.name, 60, "192.0.2.1").send(),
            _ => q.nodata(60, 60).send(),
        }
    })
}

#[test]
fn a_bogus_aaaa_is_not_translated() {
    for (explains, configuration) in [
        (true, ""),
        (false, ""),
        (true, "[cache]\nmebibytes = 0\n"),
        (false, "[cache]\nmebibytes = 0\n"),
    ] {
        let upstream = validating(explains);
        let server = server(&[upstream.address], &format!("{PREFIX}{configuration}"));
        for (name, code) in
            [("forged-nodata.test", 12), ("forged-aaaa.test", 6), ("expired.test", 7)]
        {
            for got in both(&server, &ask(name, Rtype::AAAA).edns(1232)) {
                assert_eq!((got.rcode(), got.answers().len()), (Rcode::SERVFAIL, 0), "{name}");
                assert_eq!(got.ede(), Some(if explains { code } else { 6 }), "{name}");
            }
        }
        for got in both(&server, &ask("dead.test", Rtype::AAAA).edns(1232)) {
            assert_eq!(
                (got.addresses(), got.ede()),
                (vec![mapped("192.0.2.1")], Some(29)),
                "RFC 6147 section 5.1.2"
            );
        }
        let asked = upstream.asked();
        // A records may be queried only after a slow SERVFAIL without an extended error, in
        // parallel with the probe. These A records are not used.
        assert!(
            !explains
                || !asked.iter().any(|line| line.ends_with(" A") && !line.starts_with("dead")),
            "{asked:?}"
        );
        let probes = upstream.queries().iter().filter(|q| q.message.header().cd()).count();
        assert_eq!(probes == 0, explains, "{asked:?}");
    }
}

#[test]
fn a_bogus_names_are_not_probed_twice() {
    let upstream = validating(false);
    let server = server(&[upstream.address], PREFIX);
    for _ in 0..3 {
        both(&server, &ask("forged-aaaa.test", Rtype::AAAA));
    }
    assert_eq!(
        upstream.asked(),
        ["forged-aaaa.test AAAA", "forged-aaaa.test AAAA"],
        "one with CD, and no A: there is time"
    );
}

/// A zone that is down now is not treated as bogus because of an earlier answer to a probe or to a
/// client query with CD.
#[test]
fn a_an_outage_does_not_make_a_zone_bogus() {
    const ALIVE: usize = 0;
    const BOGUS: usize = 1;
    const DOWN: usize = 2;
    let state = Arc::new(AtomicUsize::new(ALIVE));
    let now = Arc::clone(&state);
    let upstream = Upstream::new(move |q| {
        match (q.qtype, now.load(Ordering::Relaxed), q.message.header().cd()) {
            (Rtype::AAAA, ALIVE, _) | (Rtype::AAAA, BOGUS, true) => {
                q.answer().aaaa(&q.name, 600, "2001:db8::1").send()
            }
            (Rtype::AAAA, ..) => q.rcode(Rcode::SERVFAIL).send(),
            _ => q.answer().a(&q.name, 600, "192.0.2.1").send(),
        }
    });
    let server = server(
        &[upstream.address],
        &format!("{PREFIX}[cache]\nfailure-ttl = 1\nfailure-max-ttl = 1\n"),
    );
    for name in ["cd.test", "probe.test"] {
        state.store(ALIVE, Ordering::Relaxed);
        let query = ask(name, Rtype::AAAA).edns(1232);
        if name == "cd.test" {
            assert_eq!(
                query.clone().checking_disabled().of(&server).addresses(),
                [v6("2001:db8::1")]
            );
        } else {
            state.store(BOGUS, Ordering::Relaxed);
            assert_eq!(query.of(&server).ede(), Some(6));
        }
        state.store(DOWN, Ordering::Relaxed);
        eventually("the failure is queried again", || query.of(&server).ede() == Some(29));
        for got in both(&server, &query) {
            assert_eq!(
                (got.addresses(), got.ede()),
                (vec![mapped("192.0.2.1")], Some(29)),
                "{name}"
            );
        }
    }
}

#[test]
fn a_slow_servfail_is_translated_in_time() {
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::AAAA => {
            let wait = Act::Wait(Duration::from_millis(1_100));
            std::iter::once(wait).chain(q.rcode(Rcode::SERVFAIL).send()).collect()
        }
        _ => q.answer().a(&q.name, 60, "192.0.2.1").send(),
    });
    let server = server(&[upstream.address], PREFIX);
    let got = ask("dead.test", Rtype::AAAA).edns(1232).try_of(server.address, SOON).unwrap();
    assert_eq!(
        got.addresses(),
        [mapped("192.0.2.1")],
        "AAAA and its probe take longer than a client waits, one after the other"
    );
}

#[test]
fn a_stale_records_do_not_stand_for_bogus_ones() {
    for explains in [true, false] {
        let asked = Arc::new(AtomicUsize::new(0));
        let upstream = Upstream::new(move |q| match (q.qtype, q.message.header().cd()) {
            (Rtype::AAAA, false) if asked.fetch_add(1, Ordering::Relaxed) < 1 => {
                q.answer().aaaa(&q.name, 1, "2001:db8::1").send()
            }
            (Rtype::AAAA, false) if explains => q.rcode(Rcode::SERVFAIL).ede(6).send(),
            (Rtype::AAAA, false) => q.rcode(Rcode::SERVFAIL).send(),
            (Rtype::AAAA, true) => q.answer().aaaa(&q.name, 60, "2001:db8::bad").send(),
            _ => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        });
        let server = server(&[upstream.address], &format!("{PREFIX}[cache]\nserve-stale = '1h'\n"));
        let query = ask("www.test", Rtype::AAAA).edns(1232);
        assert_eq!(query.of(&server).addresses(), [v6("2001:db8::1")]);
        eventually("the entry has expired", || query.of(&server).rcode() == Rcode::SERVFAIL);
        for got in both(&server, &query) {
            assert_eq!((got.rcode(), got.ede()), (Rcode::SERVFAIL, Some(6)));
        }
    }
}

/// The upstream answers all queries, including probes, with a SERVFAIL without an extended error,
/// and then recovers (RFC 8767 §5).
#[test]
fn a_recovery_after_an_outage_is_not_bogus() {
    let up = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let switch = Arc::clone(&up);
    let upstream = Upstream::new(move |q| match (up.load(Ordering::Relaxed), q.qtype) {
        (false, _) => q.rcode(Rcode::SERVFAIL).send(),
        (true, Rtype::AAAA) => q.answer().aaaa(&q.name, 1, "2001:db8::1").send(),
        (true, _) => q.answer().a(&q.name, 1, "192.0.2.1").send(),
    });
    let server = server(
        &[upstream.address],
        &format!("{PREFIX}[cache]\nserve-stale = '1h'\nfailure-ttl = 1\nfailure-max-ttl = 1\n"),
    );
    let query = ask("www.test", Rtype::AAAA).edns(1232);
    let got = || {
        let got = query.of(&server);
        assert_eq!((got.rcode(), got.addresses()), (Rcode::NOERROR, vec![v6("2001:db8::1")]));
        got.ede()
    };
    assert_eq!(got(), None);
    switch.store(false, Ordering::Relaxed);
    eventually("the answer is stale", || got() == Some(3));
    switch.store(true, Ordering::Relaxed);
    eventually("the answer is fresh", || got().is_none());
}

/// RFC 6672 §2.2: a DNAME results in a name that is too long.
#[test]
fn c_yxdomain_is_passed_on_with_its_dname() {
    let long = format!("{0}.{0}.{0}.{1}", "l".repeat(60), "m".repeat(55));
    let upstream =
        Upstream::new(move |q| q.rcode(Rcode::YXDOMAIN).dname("old.test", 60, &long).send());
    let server = server(&[upstream.address], PREFIX);
    let name = format!("{}.old.test", "n".repeat(40));
    for qtype in [Rtype::AAAA, Rtype::A] {
        for got in both(&server, &ask(&name, qtype).edns(1232)) {
            assert_eq!((got.rcode(), got.answers().len(), got.ede()), (Rcode::YXDOMAIN, 1, None));
        }
    }
    let asked = upstream.asked();
    assert!(asked.len() <= 2, "no question is repeated: {asked:?}");
}

/// RFC 2308 §2.2.
#[test]
fn b_a_referral_leads_to_the_next_upstream() {
    let referring = Upstream::new(|q| q.answer().ns("test", 60, "ns.test").send());
    let good = Upstream::new(|q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        _ => q.nodata(60, 60).send(),
    });
    let listed = format!("{PREFIX}[forwarding]\norder = 'listed'\n");
    let pair = server(&[referring.address, good.address], &listed);
    for n in 0..4 {
        for got in both(&pair, &ask(&format!("{n}.test"), Rtype::AAAA)) {
            assert_eq!(got.addresses(), [mapped("192.0.2.1")], "{n}");
        }
    }
    assert!(referring.asked().contains(&"0.test AAAA".into()), "{:?}", referring.asked());
    let alone = server(&[referring.address], PREFIX);
    for got in both(&alone, &ask("www.test", Rtype::AAAA)) {
        assert_eq!((got.rcode(), got.answers().len()), (Rcode::SERVFAIL, 0));
    }
}

#[test]
fn b_ptr_queries_below_any_prefix_are_answered() {
    let upstream = Upstream::new(|q| q.answer().ptr(&q.name, 60, "www.test").send());
    let group = "[[group]]\nclients = ['127.0.0.2']\ndns64.prefixes = [{ prefix = '2001:db8:96::/96' }]\n\
                 [[group]]\nclients = ['127.0.0.3']\ndns64.prefixes = []\n";
    let server = server(&[upstream.address], &format!("{PREFIX}{group}"));
    for client in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
        for prefix in ["2001:db8:64::", "2001:db8:96::", "64:ff9b::"] {
            let name = reverse(&format!("{prefix}808:808"));
            for got in both(&server, &ask(&name, Rtype::PTR).from(client)) {
                let alias = format!("{name} 600 cname 8.8.8.8.in-addr.arpa");
                assert_eq!(got.answers().first(), Some(&alias), "{client}");
            }
        }
    }
    assert!(
        upstream.asked().iter().all(|line| line == "8.8.8.8.in-addr.arpa PTR"),
        "{:?}",
        upstream.asked()
    );
}

#[test]
fn c_a_dname_without_its_cname_is_followed() {
    let upstream = Upstream::new(|q| match (q.name.as_str(), q.qtype) {
        ("www.new.test", Rtype::A) => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        ("www.new.test", _) => q.nodata(60, 60).send(),
        ("real.old.test", Rtype::AAAA) => q
            .answer()
            .dname("old.test", 60, "new.test")
            .aaaa("real.new.test", 60, "2001:db8::1")
            .send(),
        _ => q.answer().dname("old.test", 60, "new.test").send(),
    });
    let server = server(&[upstream.address], PREFIX);
    for got in both(&server, &ask("www.old.test", Rtype::AAAA)) {
        assert_eq!(
            got.answers(),
            [
                "old.test 60 dname new.test",
                "www.old.test 60 cname www.new.test",
                "www.new.test 60 aaaa 2001:db8:64::c000:201"
            ],
        );
    }
    for got in both(&server, &ask("real.old.test", Rtype::AAAA)) {
        assert_eq!(got.addresses(), [v6("2001:db8::1")]);
    }
}

#[test]
fn c_a_cname_that_contradicts_its_dname_is_ignored() {
    let upstream = Upstream::new(|q| match (q.name.as_str(), q.qtype) {
        ("www.new.test", Rtype::A) => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        ("www.new.test", _) => q.nodata(60, 60).send(),
        _ => q
            .answer()
            .cname("www.old.test", 60, "www.evil.test")
            .dname("old.test", 60, "new.test")
            .a("www.evil.test", 60, "192.0.2.66")
            .aaaa("www.evil.test", 60, "2001:db8::66")
            .send(),
    });
    let server = server(&[upstream.address], PREFIX);
    let expected = ["old.test 60 dname new.test", "www.old.test 60 cname www.new.test"];
    let query = |qtype| ask("www.old.test", qtype);
    for (query, last) in [
        (query(Rtype::AAAA), Some("www.new.test 60 aaaa 2001:db8:64::c000:201")),
        (query(Rtype::A), Some("www.new.test 60 a 192.0.2.1")),
        (query(Rtype::A).dnssec_ok().checking_disabled(), Some("www.new.test 60 a 192.0.2.1")),
        (query(Rtype::CNAME), None),
    ] {
        for got in both(&server, &query) {
            let expected: Vec<_> = expected.into_iter().chain(last).collect();
            assert_eq!(got.answers(), expected, "{}", query.qtype);
        }
    }
    assert!(!upstream.asked().iter().any(|line| line.contains("evil")), "{:?}", upstream.asked());
}

#[test]
fn d_prefixes_over_the_well_known_one_are_refused() {
    let upstream = "[[upstream]]\naddress = '192.0.2.1'\n";
    for len in [32, 40, 48, 56, 64] {
        let text = format!("[dns64]\nprefixes = [{{ prefix = '64:ff9b::/{len}' }}]\n{upstream}");
        let refused = dns64::config::Settings::from_text(&text, std::path::Path::new("test.toml"));
        let error = refused.expect_err("it must be refused").to_string();
        assert!(error.contains("line 2") && error.contains("well-known"), "{error}");
    }
    // The well-known prefix itself is accepted. A prefix of one of these lengths is accepted if it
    // does not contain the well-known prefix.
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 60, "8.8.8.8").send(),
        _ => q.nodata(60, 60).send(),
    });
    for (prefix, address) in
        [("64:ff9b::/96", "64:ff9b::808:808"), ("64:ff9a::/32", "64:ff9a:808:808::")]
    {
        let configuration = format!("[dns64]\nprefixes = [{{ prefix = '{prefix}' }}]\n");
        let server = server(&[upstream.address], &configuration);
        for got in both(&server, &ask("www.test", Rtype::AAAA)) {
            assert_eq!(got.addresses(), [v6(address)]);
        }
    }
}

#[test]
fn e_a_signed_excluded_answer_is_denied_with_a_reason() {
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 60, "192.0.2.1").rrsig(&q.name, Rtype::A).send(),
        _ => q.answer().aaaa(&q.name, 50, "::ffff:192.0.2.1").rrsig(&q.name, Rtype::AAAA).send(),
    });
    let server = server(&[upstream.address], PREFIX);
    for got in both(&server, &ask("www.test", Rtype::AAAA).dnssec_ok()) {
        assert_eq!((got.rcode(), got.answers().len(), got.ede()), (Rcode::NOERROR, 0, Some(17)));
        let soa = got.message.authority().unwrap().next().unwrap().unwrap();
        assert!(
            soa.rtype() == Rtype::SOA && (48..=50).contains(&soa.ttl().as_secs()),
            "as long as the AAAA record"
        );
    }
    for got in both(&server, &ask("www.test", Rtype::AAAA)) {
        assert_eq!(got.addresses(), [mapped("192.0.2.1")], "DO=0");
    }
}

#[test]
fn f_extended_errors_identify_the_failing_side() {
    let upstream = Upstream::new(|q| match (q.name.as_str(), q.qtype) {
        ("silent.test", _) => Vec::new(),
        ("broken.test", _) => q.rcode(Rcode::SERVFAIL).send(),
        ("explained.test", _) => q.rcode(Rcode::SERVFAIL).ede(22).send(),
        ("private.test", Rtype::A) => q.answer().a(&q.name, 60, "10.0.0.1").send(),
        _ => q.nodata(60, 60).send(),
    });
    let configuration =
        "[dns64]\nprefixes = [{ prefix = '64:ff9b::/96' }]\n[forwarding]\ntimeout = '200ms'\n";
    let server = server(&[upstream.address], configuration);
    for (name, rcode, error) in [
        ("silent.test", Rcode::SERVFAIL, Some(23)),
        ("broken.test", Rcode::SERVFAIL, None),
        ("explained.test", Rcode::SERVFAIL, Some(22)),
        ("private.test", Rcode::NOERROR, Some(17)),
        ("nothing.test", Rcode::NOERROR, None),
    ] {
        for got in both(&server, &ask(name, Rtype::AAAA).edns(1232)) {
            assert_eq!((got.rcode(), got.edes().first().copied()), (rcode, error), "{name}");
            assert_eq!(got.edes().contains(&23), name == "silent.test", "{name}");
        }
    }
}

/// Answers that contradict themselves have EDE 24 (Invalid Data), and not 22 or 23.
#[test]
fn f_malformed_answers_have_an_error_of_their_own() {
    let upstream = Upstream::new(|q| match q.name.as_str() {
        "short.test" => {
            // The address is cut to three octets.
            let mut bytes = q.answer().without_edns().a(&q.name, 60, "192.0.2.1").bytes();
            let length_at = bytes.len() - 5;
            bytes[length_at] = 3;
            bytes.pop();
            vec![Act::Send(bytes)]
        }
        "beside.test" => {
            q.answer().cname(&q.name, 60, "www.test").a(&q.name, 60, "192.0.2.1").send()
        }
        _ => q.answer().dname("old.test", 60, "new.test").dname("old.test", 60, "www.test").send(),
    });
    let server = server(&[upstream.address], &format!("{PREFIX}[forwarding]\ntimeout = '300ms'\n"));
    for name in ["short.test", "beside.test", "www.old.test"] {
        for got in both(&server, &ask(name, Rtype::A).edns(1232)) {
            assert_eq!((got.rcode(), got.edes()), (Rcode::SERVFAIL, vec![24]), "{name}");
        }
    }
}

/// EDE 23 (Network Error) means that no upstream answered. EDE 23 does not apply if an upstream
/// answered over UDP and only the local limit prevented a TCP connection.
#[test]
fn f_a_server_without_room_for_tcp_blames_no_network() {
    let upstream =
        Upstream::new(|q| if q.tcp { Vec::new() } else { q.answer().truncated().send() });
    for (connections, errors) in [(0, vec![]), (1, vec![23, 22])] {
        let configuration = format!("{PREFIX}[forwarding]\ntimeout = '200ms'\n");
        let server = server_with(&[upstream.address], &configuration, |settings| {
            settings.upstream_connections = connections;
        });
        for got in both(&server, &ask("www.test", Rtype::A).edns(1232)) {
            assert_eq!(
                (got.rcode(), got.edes()),
                (Rcode::SERVFAIL, errors.clone()),
                "{connections}"
            );
        }
    }
}

#[test]
fn g_synthesized_zones_have_an_apex() {
    let upstream = Upstream::new(|q| q.nodata(60, 60).send());
    let server = server(&[upstream.address], PREFIX);
    let apex = reverse("2001:db8:64::")[16..].to_owned();
    for got in both(&server, &ask(&apex, Rtype::SOA)) {
        assert_eq!(
            got.answers(),
            [format!("{apex} 600 soa localhost. nobody.invalid. 1 3600 1200 604800 600")]
        );
    }
    for got in both(&server, &ask(&apex, Rtype::NS)) {
        assert_eq!(got.answers(), [format!("{apex} 600 ns localhost")]);
    }
    for got in both(&server, &ask(&format!("1.{apex}"), Rtype::SOA)) {
        assert!(got.answers().is_empty() && got.has_soa());
    }
    for got in both(&server, &ask("ipv4only.arpa", Rtype::NS)) {
        assert!(got.answers().is_empty() && got.has_soa(), "RFC 8880 section 7.1");
    }
    assert!(upstream.asked().is_empty());
}

/// The resolver's tests cover the timing (RFC 8767 §5).
#[test]
fn h_a_silent_upstream_makes_the_answer_stale() {
    let up = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let switch = Arc::clone(&up);
    let upstream = Upstream::new(move |q| match (up.load(Ordering::Relaxed), q.qtype) {
        (false, _) => Vec::new(),
        (true, Rtype::A) => q.answer().a(&q.name, 1, "192.0.2.1").send(),
        (true, _) => q.nodata(1, 1).send(),
    });
    let configuration =
        format!("{PREFIX}[cache]\nserve-stale = '1h'\n[forwarding]\ntimeout = '1900ms'\n");
    let server = server(&[upstream.address], &configuration);
    for name in ["udp.test", "tcp.test"] {
        assert_eq!(ask(name, Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
    }
    switch.store(false, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(2_100));
    let got = ask("udp.test", Rtype::AAAA).edns(1232).of(&server);
    assert_eq!((got.addresses(), got.ede()), (vec![mapped("192.0.2.1")], Some(3)));
    let got = ask("tcp.test", Rtype::AAAA).edns(1232).over_tcp(&server);
    assert_eq!((got.addresses(), got.ede()), (vec![mapped("192.0.2.1")], Some(3)));
}

/// The resolver's tests cover the timing (RFC 8767 §5).
#[test]
fn h_a_slow_upstream_makes_the_answer_stale() {
    let up = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let switch = Arc::clone(&up);
    let slowly = |acts: Vec<Act>| {
        std::iter::once(Act::Wait(Duration::from_millis(1_200))).chain(acts).collect()
    };
    let upstream =
        Upstream::new(move |q| match (up.load(Ordering::Relaxed), q.qtype, &q.name[..4]) {
            (true, Rtype::A, _) => q.answer().a(&q.name, 1, "192.0.2.1").send(),
            (true, _, "slow") => q.nodata(1, 1).send(),
            (true, ..) => q.answer().aaaa(&q.name, 1, "2001:db8::1").send(),
            (false, Rtype::AAAA, "slow") => slowly(q.nodata(1, 1).send()),
            (false, Rtype::AAAA, _) if !q.message.header().cd() => {
                slowly(q.rcode(Rcode::SERVFAIL).send())
            }
            _ => Vec::new(),
        });
    let server = server(&[upstream.address], &format!("{PREFIX}[cache]\nserve-stale = '1h'\n"));
    let names = ["slow-udp.test", "slow-tcp.test", "fail-udp.test", "fail-tcp.test"];
    let before: Vec<_> =
        names.iter().map(|name| ask(name, Rtype::AAAA).of(&server).addresses()).collect();
    switch.store(false, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(2_100));
    for (name, addresses) in names.iter().zip(before) {
        let query = ask(name, Rtype::AAAA).edns(1232);
        let got = if name.contains("tcp") { query.over_tcp(&server) } else { query.of(&server) };
        assert_eq!((got.addresses(), got.ede()), (addresses, Some(3)), "{name}");
    }
}

#[test]
fn i_an_address_without_length_is_one_address() {
    let upstream = Upstream::new(|q| q.answer().a(&q.name, 60, "192.0.2.1").send());
    let configuration = format!("{PREFIX}[access]\nallow = ['127.0.0.1']\n");
    let server = server(&[upstream.address], &configuration);
    for got in both(&server, &ask("www.test", Rtype::A)) {
        assert_eq!(got.rcode(), Rcode::NOERROR);
    }
    let stranger = ask("www.test", Rtype::A).from("127.0.0.2");
    assert_eq!(stranger.of(&server).rcode(), Rcode::REFUSED);
    assert!(stranger.try_over_tcp(&server).is_none(), "its connection is closed");
}

#[test]
fn j_the_additional_section_has_what_the_others_mention() {
    let upstream = Upstream::new(|q| {
        q.answer()
            .any(&q.name, 60, AllRecordData::Mx(Mx::new(10, name("mail.test"))))
            .ns("test", 60, "ns.test")
            .additional_a("mail.test", 60, "192.0.2.7")
            .additional_a("ns.test", 60, "192.0.2.8")
            .additional_a(&q.name, 60, "192.0.2.9")
            .additional_a("bank.example", 60, "192.0.2.66")
            .send()
    });
    let server = server(&[upstream.address], PREFIX);
    for query in [ask("www.test", Rtype::MX), ask("www.test", Rtype::MX).edns(1232)] {
        for got in both(&server, &query) {
            let additional = got.message.additional().unwrap().map(Result::unwrap);
            let owners: Vec<_> = additional.map(|record| record.owner().to_string()).collect();
            let opt = query.edns.map(|_| "");
            let expected = ["mail.test", "ns.test", "www.test"].into_iter().chain(opt);
            assert_eq!(owners, expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn k_ad_without_do_is_answered() {
    let upstream = Upstream::new(|q| match (q.name.as_str(), q.qtype) {
        ("real.test", Rtype::AAAA) => {
            q.answer().aaaa(&q.name, 60, "2001:db8::1").authentic().send()
        }
        (_, Rtype::A) => q.answer().a(&q.name, 60, "192.0.2.1").authentic().send(),
        _ => q.nodata(60, 60).authentic().send(),
    });
    let trusting = server(&[upstream.address], &format!("{PREFIX}[forwarding]\ntrust-ad = true\n"));
    let plain = server(&[upstream.address], PREFIX);
    let ad =
        |server: &Server, query: Ask| both(server, &query).map(|got| got.message.header().ad());
    assert_eq!(ad(&trusting, ask("real.test", Rtype::AAAA).authentic_data()), [true; 2]);
    assert_eq!(ad(&trusting, ask("real.test", Rtype::AAAA)), [false; 2], "neither AD nor DO");
    assert_eq!(
        ad(&trusting, ask("made.test", Rtype::AAAA).authentic_data()),
        [false; 2],
        "synthetic"
    );
    assert_eq!(
        ad(&plain, ask("real.test", Rtype::AAAA).authentic_data()),
        [false; 2],
        "trust-ad is off"
    );
    assert!(
        upstream.queries().iter().all(|q| q.message.header().ad()),
        "upstreams are asked for it (RFC 6840 section 5.7)"
    );
}

#[test]
fn l_answers_of_65535_octets_come_over_tcp() {
    // One text record that fills a message.
    let whole = |name: &str| {
        let header_and_question = 12 + name.len() + 2 + 4;
        65_535 - header_and_question - 12
    };
    let upstream = Upstream::new(move |q| {
        let mut reply = q.message.as_slice().to_vec();
        let question = 12 + q.name.len() + 2 + 4;
        reply.truncate(question);
        reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        if !q.tcp {
            reply[2] |= 2;
            reply[7] = 0;
            return vec![Act::Send(reply)];
        }
        let len = whole(&q.name);
        reply.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60]);
        reply.extend((len as u16).to_be_bytes());
        let mut data = Vec::new();
        while data.len() < len {
            let string = (len - data.len() - 1).min(255);
            data.push(string as u8);
            data.extend(vec![b'x'; string]);
        }
        reply.extend(data);
        vec![Act::Send(reply)]
    });
    let server = server(&[upstream.address], PREFIX);
    for _ in 0..2 {
        let got = ask("big.test", Rtype::TXT).over_tcp(&server);
        assert_eq!(
            (got.len(), got.rcode(), got.message.header_counts().ancount()),
            (65_535, Rcode::NOERROR, 1)
        );
    }
    let short = ask("big.test", Rtype::TXT).of(&server);
    assert!(short.message.header().tc() && short.answers().is_empty(), "over UDP there is TCP");
}
