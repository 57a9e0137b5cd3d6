//! Prefixes at run time: discovery from upstreams (RFC 7050), expiry, and selection among several
//! prefixes.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};

use domain::base::iana::{Rcode, Rtype};

use crate::harness::*;

/// The addresses of `ipv4only.arpa` and their TTL, or `None` if the upstream does not answer.
type Announced = Arc<Mutex<Option<(Vec<&'static str>, u32)>>>;

/// An upstream with DNS64. The test can change its AAAA records for `ipv4only.arpa` and their TTL.
/// While they are `None`, the upstream does not answer queries for them. All other names have only
/// an A record.
fn dns64() -> (Upstream, Announced) {
    let announced: Announced = Arc::new(Mutex::new(None));
    let now = Arc::clone(&announced);
    let upstream = Upstream::new(move |q| match (q.name.as_str(), q.qtype) {
        ("ipv4only.arpa", Rtype::AAAA) => match &*now.lock().unwrap() {
            None => Vec::new(),
            Some((addresses, _)) if addresses.is_empty() => q.nodata(60, 60).send(),
            Some((addresses, ttl)) => {
                let add = |reply: Reply, address: &&str| reply.aaaa(&q.name, *ttl, address);
                addresses.iter().fold(q.answer(), add).send()
            }
        },
        (_, Rtype::A) => q.answer().a(&q.name, 300, "8.8.8.8").send(),
        (_, Rtype::PTR) => q.answer().ptr(&q.name, 300, "www.test").send(),
        _ => q.nodata(300, 300).send(),
    });
    (upstream, announced)
}

const DISCOVER: &str = "[dns64]\nprefixes = [{ prefix = 'discover' }]\n";

/// The reply to an AAAA query for `four.test`: RCODE, extended error and addresses.
fn answer(server: &Server) -> (Rcode, Option<u16>, Vec<Ipv6Addr>) {
    let got = ask("four.test", Rtype::AAAA).edns(1232).of(server);
    (got.rcode(), got.ede(), got.addresses())
}

fn made(prefix: &str) -> Vec<Ipv6Addr> {
    vec![v6(&format!("{prefix}808:808"))]
}

/// Item 47.
#[test]
fn a_prefix_is_used_until_its_withdrawal() {
    let (upstream, announced) = dns64();
    let server = server(&[upstream.address], DISCOVER);
    // The reply is SERVFAIL with the extended error 14 (Not Ready), because NODATA would be cached.
    assert_eq!(answer(&server), (Rcode::SERVFAIL, Some(14), vec![]));
    let local = ask("ipv4only.arpa", Rtype::AAAA).edns(1232).of(&server);
    assert_eq!((local.rcode(), local.ede()), (Rcode::SERVFAIL, Some(14)));
    // A records and names that do not exist need no prefix.
    assert_eq!(ask("four.test", Rtype::A).of(&server).answers().len(), 1);

    let first = vec!["2001:db8:1::c000:aa", "2001:db8:1::c000:ab"];
    *announced.lock().unwrap() = Some((first, 3));
    eventually("the prefix is used", || answer(&server).2 == made("2001:db8:1::"));
    // The TTL of records is limited by the lifetime of the prefix.
    let ttls = ask("four.test", Rtype::AAAA).of(&server).ttls();
    assert!(!ttls.is_empty() && ttls.iter().all(|&ttl| ttl <= 3), "{ttls:?}");
    let local = ask("ipv4only.arpa", Rtype::AAAA).of(&server);
    assert_eq!(local.addresses().len(), 2);
    assert!(local.ttls().iter().all(|&ttl| ttl <= 3));
    // PTR queries for addresses in the prefix are answered locally.
    let pointer =
        ask("8.0.8.0.8.0.8.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", Rtype::PTR);
    let aliases = pointer.of(&server).answers();
    assert!(aliases.iter().any(|line| line.contains("8.8.8.8.in-addr.arpa")), "{aliases:?}");

    // After a different prefix replaces the first one, the first prefix is no longer used.
    let second = vec!["2001:db8:2::c000:aa", "2001:db8:2::c000:ab"];
    *announced.lock().unwrap() = Some((second, 3));
    let mut seen = HashSet::new();
    eventually("the other prefix is used", || {
        let addresses = answer(&server).2;
        seen.insert(addresses.clone());
        addresses == made("2001:db8:2::")
    });
    for _ in 0..20 {
        assert_eq!(answer(&server).2, made("2001:db8:2::"));
    }
    let known = [made("2001:db8:1::"), made("2001:db8:2::"), vec![]];
    assert!(seen.iter().all(|addresses| known.contains(addresses)), "{seen:?}");

    // The upstream no longer has DNS64.
    *announced.lock().unwrap() = Some((vec![], 0));
    eventually("it is withdrawn", || answer(&server) == (Rcode::SERVFAIL, Some(14), vec![]));
}

/// Item 47: prefixes are discovered only through the upstreams for the root domain.
#[test]
fn upstreams_of_forwards_are_not_used_for_discovery() {
    let ((of_domain, of_domain_says), (of_all, of_all_says)) = (dns64(), dns64());
    *of_domain_says.lock().unwrap() = Some((vec!["2001:db8:1::c000:aa"], 60));
    *of_all_says.lock().unwrap() = Some((vec!["2001:db8:2::c000:aa"], 60));
    let forward = |domain: &str, to: &Upstream| {
        let (ip, port) = (to.address.ip(), to.address.port());
        format!(
            "[[upstream]]\nname = '{port}'\naddress = '{ip}'\nport = {port}\n\
             [[forward]]\ndomain = '{domain}'\nupstreams = ['{port}']\n"
        )
    };
    let rules = [DISCOVER, &forward("corp.example", &of_domain), &forward(".", &of_all)].concat();
    let server = server(&[], &rules);
    eventually("the prefix is used", || answer(&server).2 == made("2001:db8:2::"));
    assert!(!of_domain.asked().iter().any(|line| line == "ipv4only.arpa AAAA"));
}

#[test]
fn a_prefix_expires_without_further_answers() {
    let (upstream, announced) = dns64();
    *announced.lock().unwrap() = Some((vec!["64:ff9b::c000:aa"], 2));
    let server = server(&[upstream.address], DISCOVER);
    eventually("the prefix is used", || answer(&server).2 == made("64:ff9b::"));
    *announced.lock().unwrap() = None;
    eventually("the prefix has expired", || answer(&server) == (Rcode::SERVFAIL, Some(14), vec![]));
    *announced.lock().unwrap() = Some((vec!["64:ff9b::c000:aa"], 2));
    eventually("the prefix is back", || answer(&server).2 == made("64:ff9b::"));
}

/// Item 47: answers for names in the reverse tree of a prefix are valid only as long as the prefix.
#[test]
fn pointers_last_no_longer_than_their_prefix() {
    const ZONE: &str = "0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
    let (upstream, announced) = dns64();
    *announced.lock().unwrap() = Some((vec!["2001:db8:1::c000:aa"], 30));
    let server = server(
        &[upstream.address],
        &format!("{DISCOVER}[local]\nttl = 86400\nreverse-ttl = 86400\n"),
    );
    eventually("the prefix is used", || answer(&server).2 == made("2001:db8:1::"));
    let own = |below: &str, qtype| {
        let got = ask(&format!("{below}{ZONE}"), qtype).of(&server);
        let authority = got.message.authority().unwrap();
        let denying = authority.map(|record| record.unwrap().ttl().as_secs());
        // Records of the alias's target keep the upstream's TTL.
        got.ttls().first().copied().into_iter().chain(denying).collect::<Vec<u32>>()
    };
    for (below, qtype) in [
        ("8.0.8.0.8.0.8.0.", Rtype::PTR),
        ("a.a.0.0.0.0.0.c.", Rtype::PTR),
        ("0.8.0.8.0.8.0.", Rtype::PTR),
        ("z.", Rtype::PTR),
        ("", Rtype::SOA),
        ("", Rtype::NS),
    ] {
        let ttls = own(below, qtype);
        assert!(ttls.len() == 1 && ttls[0] <= 30, "{below}{ZONE} {qtype}: {ttls:?}");
    }
}

/// A discovered prefix stays in use after a reload if its upstream is still configured.
#[test]
fn a_reload_keeps_prefixes_of_kept_upstreams() {
    let (upstream, announced) = dns64();
    *announced.lock().unwrap() = Some((vec!["2001:db8:1::c000:aa"], 60));
    let server = server(&[upstream.address], DISCOVER);
    let known = || ask("ipv4only.arpa", Rtype::AAAA).of(&server).addresses().len();
    eventually("the prefix is known", || known() == 2);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let dead = silent.local_addr().unwrap();
    server.running.reload(&settings(&[dead, upstream.address], DISCOVER)).unwrap();
    // The check covers the time while the query to the dead upstream is pending, and the time after
    // it.
    for _ in 0..60 {
        assert_eq!(known(), 2);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    server.running.reload(&settings(&[dead], DISCOVER)).unwrap();
    eventually("it is gone with its upstream", || known() == 0);
    // An answer that arrives after the upstream was removed does not restore the prefix.
    server.running.reload(&settings(&[dead, upstream.address], DISCOVER)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    server.running.reload(&settings(&[dead], DISCOVER)).unwrap();
    for _ in 0..60 {
        assert_eq!(known(), 0);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn answers_that_name_no_prefix_are_refused() {
    let (upstream, announced) = dns64();
    // Addresses that contain no well-known IPv4 address, or contain one at two positions.
    let wrong = vec!["2001:db8::1", "2001:db8:c000:aa::c000:aa", "::ffff:192.0.0.170"];
    *announced.lock().unwrap() = Some((wrong, 60));
    let server = server(&[upstream.address], DISCOVER);
    let has_asked = || upstream.asked().iter().any(|line| line == "ipv4only.arpa AAAA");
    eventually("the upstream is asked", has_asked);
    // The checks take longer than the server would need to accept such an answer.
    for _ in 0..20 {
        assert_eq!(answer(&server), (Rcode::SERVFAIL, Some(14), vec![]));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn addresses_of_another_prefix_need_no_discovery() {
    let (upstream, _announced) = dns64();
    let server = server(
        &[upstream.address],
        "[dns64]\nprefixes = [{ prefix = '2001:db8:64::/96', ranges = ['8.0.0.0/8'] }, { prefix = 'discover' }]\n\
         [[group]]\nclients = ['127.0.0.2']\ndns64.prefixes = []\n\
         [[domain]]\ndomain = 'off.test'\noff = true\n",
    );
    assert_eq!(answer(&server).2, made("2001:db8:64::"));
    // Untranslated names and clients do not wait for a prefix.
    let untranslated =
        [ask("four.test", Rtype::AAAA).from("127.0.0.2"), ask("four.off.test", Rtype::AAAA)];
    for query in untranslated {
        let got = query.of(&server);
        assert_eq!((got.rcode(), got.addresses().len()), (Rcode::NOERROR, 0));
    }
}

#[test]
fn select_gives_all_the_first_or_one_per_client() {
    let (upstream, _announced) = dns64();
    let with = |select: &str, more: &str| {
        let prefixes = format!(
            "{{ prefix = '2001:db8:1::/96', name = 'one'{more} }}, {{ prefix = '2001:db8:2::/96' }}"
        );
        let text = format!("[dns64]\nprefixes = [{prefixes}]\nselect = '{select}'\n");
        server(&[upstream.address], &text)
    };
    let of = |server: &Server, client: &str| {
        let query = ask("four.test", Rtype::AAAA).from(client);
        let [udp, tcp] = [query.of(server), query.over_tcp(server)].map(|got| got.addresses());
        assert_eq!(udp, tcp);
        udp
    };
    let both = [made("2001:db8:1::"), made("2001:db8:2::")].concat();
    assert_eq!(of(&with("all", ""), "127.0.0.1"), both);
    assert_eq!(of(&with("first", ""), "127.0.0.1"), both[..1]);
    assert_eq!(of(&with("all", ", draining = true"), "127.0.0.1"), both[1..]);
    let spread = with("spread", "");
    let mut given = HashSet::new();
    for n in 1..60 {
        let client = format!("127.0.0.{n}");
        let one = of(&spread, &client);
        assert!(one.len() == 1 && of(&spread, &client) == one, "{client}: {one:?}");
        given.extend(one);
    }
    assert_eq!(given.len(), 2);
}

#[test]
fn probes_that_cannot_be_sent_are_ignored() {
    let (upstream, _announced) = dns64();
    // Either there is no route to the probe's target, or the probe fails. The prefix is used in
    // both cases, because it is the only one.
    let server = server(
        &[upstream.address],
        "[dns64]\nprefixes = [{ prefix = '2001:db8:1::/96', probe = { address = '8.8.8.8', port = 53, interval = '1s', \
         timeout = '200ms', threshold = 1 } }]\n",
    );
    let probed = std::net::UdpSocket::bind("[::]:0")
        .and_then(|socket| socket.connect("[2001:db8:1::808:808]:53"));
    let state = if probed.is_ok() { "unhealthy" } else { "unknown" };
    let line = format!("dns64d_prefix_health{{prefix=\"2001:db8:1::/96\",state=\"{state}\"}} 1");
    eventually(&line, || server.running.metrics_text().lines().any(|one| one == line));
    assert_eq!(answer(&server).2, made("2001:db8:1::"));
}

/// Opening a socket for router advertisements needs privileges, which the server drops after the
/// start.
#[test]
fn a_reload_with_a_new_interface_is_rejected() {
    let (upstream, _announced) = dns64();
    let server =
        server(&[upstream.address], "[dns64]\nprefixes = [{ prefix = '2001:db8:1::/96' }]\n");
    let other =
        "[dns64]\nprefixes = [{ prefix = 'discover' }]\n[discovery]\ninterfaces = ['eth9']\n";
    let refused = server.running.reload(&settings(&[upstream.address], other)).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("eth9") && refused.contains("restart"), "{refused}");
    assert_eq!(answer(&server).2, made("2001:db8:1::"), "the old one stays");
}

/// Item 45: a synthesized hint is an address of its target. The lifetime of the target's prefix
/// therefore limits the TTL of the HTTPS record.
#[test]
fn hints_last_no_longer_than_the_prefix_of_their_target() {
    use domain::base::rdata::UnknownRecordData;
    use domain::rdata::AllRecordData;

    let announced = ["2001:db8:1::c000:aa", "2001:db8:1::c000:ab"];
    // Priority 1, target own.test, ipv4hint 8.8.8.8.
    let service = [&[0, 1][..], b"\x03own\x04test\0", &[0, 4, 0, 4, 8, 8, 8, 8]].concat();
    let upstream = Upstream::new(move |q| match (q.name.as_str(), q.qtype) {
        ("ipv4only.arpa", Rtype::AAAA) => {
            let add = |reply: Reply, address: &&str| reply.aaaa(&q.name, 30, address);
            announced.iter().fold(q.answer(), add).send()
        }
        (_, Rtype::HTTPS) => {
            let data = UnknownRecordData::from_octets(Rtype::HTTPS, service.clone()).unwrap();
            q.answer().any(&q.name, 3_600, AllRecordData::Unknown(data)).send()
        }
        _ => q.nodata(300, 300).send(),
    });
    let server = server(
        &[upstream.address],
        "[dns64]\nprefixes = [{ prefix = '2001:db8:64::/96' }]\nhttps-hints = 'translate'\n\
         [[domain]]\ndomain = 'own.test'\nprefixes = [{ prefix = 'discover' }]\n",
    );
    let of = |name: &str| ask(name, Rtype::HTTPS).of(&server);
    eventually("the target's prefix is known", || {
        of("www.test").answers().iter().any(|line| line.contains("2001:db8:1::808:808"))
    });
    let ttls = of("www.test").ttls();
    assert!(!ttls.is_empty() && ttls.iter().all(|&ttl| ttl <= 30), "{ttls:?}");
}
