//! DNSSEC validation: answers of a server whose upstream serves signed zones.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use domain::base::iana::{Rcode, Rtype};
use testbed::signed::{self, TestRecord, World, soa};

use crate::control::{control, explained};
use crate::harness::{Act, Ask, Asked, PREFIX, Server, Upstream, ask, eventually, mapped, server};

/// A root with `signed.test` and the unsigned delegation `plain.test`, both below `test`.
fn world() -> Arc<World> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as u32;
    let mut world = World::at(now, &[".", "test.", "signed.test."]);
    world.unsigned.push(signed::name("plain.test."));
    Arc::new(world)
}

fn owner(q: &Asked) -> signed::TestName {
    signed::name(if q.name.is_empty() { "." } else { &q.name })
}

/// Response of the upstream with these records, with the id of the query.
fn respond(q: &Asked, rcode: Rcode, answer: &[TestRecord], authority: &[TestRecord]) -> Vec<Act> {
    with_id(q, &signed::message(&owner(q), q.qtype, rcode, answer, authority))
}

fn with_id(q: &Asked, message: &[u8]) -> Vec<Act> {
    let mut message = message.to_vec();
    message[..2].copy_from_slice(&q.message.header().id().to_be_bytes());
    vec![Act::Send(message)]
}

/// Answers of an upstream that does not validate. `native` has AAAA records, all other names have A records. The records
/// of `bad` have no signatures.
fn answer(world: &World, q: &Asked) -> Vec<Act> {
    let zone = world.zone("signed.test.");
    let name = &q.name;
    if name.is_empty() && q.qtype == Rtype::SOA {
        return respond(q, Rcode::NOERROR, &world.zone(".").sign(&soa(".")), &[]);
    }
    if matches!(q.qtype, Rtype::DS | Rtype::DNSKEY) {
        return world
            .response(&owner(q), q.qtype)
            .map_or(Vec::new(), |message| with_id(q, &message));
    }
    let is_signed = name.ends_with("signed.test") && !name.contains("bad");
    let sign = |text: &str| if is_signed { zone.sign(text) } else { signed::records(text) };
    let address = match q.qtype {
        Rtype::A => Some(format!("{name}. A 192.0.2.1")),
        Rtype::AAAA if name.starts_with("native") => Some(format!("{name}. AAAA 2001:db8::1")),
        _ => None,
    };
    match address {
        Some(address) => respond(q, Rcode::NOERROR, &sign(&address), &[]),
        None => {
            let apex = name.split_once('.').unwrap().1;
            let denial =
                format!("{}\n{name}. NSEC \\000.{name}. A RRSIG NSEC", soa(&format!("{apex}.")));
            respond(q, Rcode::NOERROR, &[], &sign(&denial))
        }
    }
}

fn upstream(world: &Arc<World>) -> Upstream {
    let world = Arc::clone(world);
    Upstream::new(move |q| answer(&world, q))
}

/// A server that validates with the trust anchor of `world`.
fn validating(world: &World, upstreams: &[&Upstream], more: &str) -> Server {
    validating_if("true", world, upstreams, more)
}

/// A server with the trust anchor of `world` and this value of `validate`.
fn validating_if(validate: &str, world: &World, upstreams: &[&Upstream], more: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("anchors");
    std::fs::write(&file, world.anchor()).unwrap();
    let addresses: Vec<_> = upstreams.iter().map(|upstream| upstream.address).collect();
    let text = format!(
        "{PREFIX}{more}[dnssec]\nvalidate = {validate}\ntrust-anchors = '{}'\n",
        file.display()
    );
    server(&addresses, &text)
}

/// RCODE, AD, number of answer and authority records, and extended errors of the reply.
fn outcome(server: &Server, query: &Ask) -> (Rcode, bool, usize, usize, Vec<u16>) {
    let reply = query.of(server);
    let counts = reply.message.header_counts();
    let header = reply.message.header();
    (header.rcode(), header.ad(), counts.ancount().into(), counts.nscount().into(), reply.edes())
}

#[test]
fn secure_insecure_and_bogus_answers_follow_the_table() {
    let world = world();
    let upstream = upstream(&world);
    let server = validating(&world, &[&upstream], "");
    let aaaa = |name: &str| ask(name, Rtype::AAAA);
    const OK: Rcode = Rcode::NOERROR;
    for (query, expected) in [
        // Without DO: synthesized, AD clear.
        (aaaa("a.signed.test").authentic_data().edns(1232), (OK, false, 1, 0, vec![29])),
        (aaaa("a.plain.test").authentic_data().edns(1232), (OK, false, 1, 0, vec![29])),
        // Native: AD if requested, signatures only with DO.
        (aaaa("native.signed.test").edns(1232), (OK, false, 1, 0, vec![])),
        (aaaa("native.signed.test").authentic_data().edns(1232), (OK, true, 1, 0, vec![])),
        (aaaa("native.signed.test").dnssec_ok(), (OK, true, 2, 0, vec![])),
        (aaaa("native.plain.test").dnssec_ok(), (OK, false, 1, 0, vec![])),
        // With DO, secure names are not synthesized: the denial with its proof. Insecure names are.
        (aaaa("a.signed.test").dnssec_ok(), (OK, true, 0, 4, vec![])),
        (aaaa("a.plain.test").dnssec_ok(), (OK, false, 1, 0, vec![29])),
        // With CD: data as received, AD clear, nothing synthesized.
        (aaaa("a.signed.test").dnssec_ok().checking_disabled(), (OK, false, 0, 4, vec![])),
        (
            ask("bad.signed.test", Rtype::A).edns(1232).checking_disabled(),
            (OK, false, 1, 0, vec![]),
        ),
        // Bogus data are never used, also not for synthesis.
        (aaaa("bad.signed.test").edns(1232), (Rcode::SERVFAIL, false, 0, 0, vec![12])),
        (ask("bad.signed.test", Rtype::A).edns(1232), (Rcode::SERVFAIL, false, 0, 0, vec![10])),
    ] {
        for attempt in ["fresh", "cached"] {
            let text = format!("{attempt}: {} {} DO {}", query.name, query.qtype, query.dnssec_ok);
            assert_eq!(outcome(&server, &query), expected, "{text}");
        }
    }
    assert_eq!(aaaa("a.signed.test").of(&server).addresses(), [mapped("192.0.2.1")]);
    let validated = upstream.queries().into_iter().filter(|q| q.dnssec_ok());
    assert!(validated.clone().count() > 10 && validated.clone().all(|q| q.message.header().cd()));
}

#[test]
fn with_break_dnssec_secure_names_are_synthesized() {
    let world = world();
    let upstream = upstream(&world);
    let server = validating(&world, &[&upstream], "break-dnssec = true\n");
    let aaaa = |name: &str| ask(name, Rtype::AAAA);
    assert_eq!(aaaa("a.signed.test").dnssec_ok().of(&server).addresses(), [mapped("192.0.2.1")]);
    // AD only for clients with DO, and only if the denial and the A records are both secure.
    let ad = |query: Ask| outcome(&server, &query).1;
    assert!(ad(aaaa("a.signed.test").dnssec_ok()));
    assert!(!ad(aaaa("a.signed.test").authentic_data()));
    assert!(!ad(aaaa("a.plain.test").dnssec_ok()));
    let query = ask("bad.signed.test", Rtype::AAAA).dnssec_ok();
    assert_eq!(outcome(&server, &query).0, Rcode::SERVFAIL);
}

/// The signed DNAME record decides, and the target that follows from it is queried.
#[test]
fn a_cname_that_contradicts_a_signed_dname_is_ignored() {
    let world = world();
    let upstream = {
        let world = Arc::clone(&world);
        Upstream::new(move |q| {
            if q.name != "www.old.signed.test" || q.qtype == Rtype::DS {
                return answer(&world, q);
            }
            let zone = world.zone("signed.test.");
            let mut records = zone.sign("old.signed.test. DNAME signed.test.");
            records.extend(signed::records("www.old.signed.test. CNAME evil.plain.test."));
            records.extend(signed::records("evil.plain.test. A 192.0.2.66"));
            respond(q, Rcode::NOERROR, &records, &[])
        })
    };
    let server = validating(&world, &[&upstream], "");
    let query = |qtype| ask("www.old.signed.test", qtype).dnssec_ok();
    for attempt in ["fresh", "cached"] {
        // DNAME, CNAME and A records, and two signatures.
        let (rcode, ad, answers, ..) = outcome(&server, &query(Rtype::A));
        assert_eq!((rcode, ad, answers), (Rcode::NOERROR, true, 5), "{attempt}");
        let answers = ask("www.old.signed.test", Rtype::A).of(&server).answers();
        assert_eq!(answers.last().unwrap(), "www.signed.test 300 a 192.0.2.1", "{attempt}");
        let (rcode, ad, answers, ..) = outcome(&server, &query(Rtype::CNAME));
        assert_eq!((rcode, ad, answers), (Rcode::NOERROR, true, 3), "{attempt}");
    }
    assert!(!upstream.asked().iter().any(|line| line.contains("evil")), "{:?}", upstream.asked());
}

#[test]
fn another_upstream_is_asked_after_a_bogus_answer() {
    let world = world();
    let stripping = {
        let world = Arc::clone(&world);
        Upstream::new(move |q| match q.qtype {
            Rtype::A => {
                respond(q, Rcode::NOERROR, &signed::records("b.signed.test. A 192.0.2.66"), &[])
            }
            _ => answer(&world, q),
        })
    };
    let good = upstream(&world);
    let server = validating(&world, &[&stripping, &good], "");
    for _ in 0..3 {
        let reply = ask("b.signed.test", Rtype::A).of(&server);
        assert_eq!(reply.answers(), ["b.signed.test 300 a 192.0.2.1"]);
    }
}

#[test]
fn keys_that_cannot_be_fetched_are_no_reason_to_trust() {
    let world = world();
    let silent = {
        let world = Arc::clone(&world);
        Upstream::new(move |q| match (q.qtype, q.name.as_str()) {
            (Rtype::DNSKEY, "signed.test") => respond(q, Rcode::SERVFAIL, &[], &[]),
            _ => answer(&world, q),
        })
    };
    let server = validating(&world, &[&silent], "");
    let query = ask("a.signed.test", Rtype::AAAA).edns(1232);
    assert_eq!(outcome(&server, &query), (Rcode::SERVFAIL, false, 0, 0, vec![22]));
    assert_eq!(
        outcome(&server, &ask("a.plain.test", Rtype::AAAA)).2,
        1,
        "other zones are not affected"
    );
}

/// A private domain below a signed one: its answers are bogus unless the domain is exempt.
#[test]
fn a_forward_can_be_exempt() {
    let world = world();
    let upstream = upstream(&world);
    let (folder, port) = (tempfile::tempdir().unwrap(), upstream.address.port());
    let file = folder.path().join("anchors");
    std::fs::write(&file, world.anchor()).unwrap();
    let own = format!("[[upstream]]\nname = 'own'\naddress = '127.0.0.1'\nport = {port}\n");
    let rcode = |line: &str| {
        let text = format!(
            "{PREFIX}[dnssec]\nvalidate = true\ntrust-anchors = '{}'\n{own}[[forward]]\ndomain = 'bad.signed.test'\n\
             upstreams = ['own']\n{line}\n",
            file.display()
        );
        outcome(&server(&[], &text), &ask("www.bad.signed.test", Rtype::A)).0
    };
    assert_eq!(rcode(""), Rcode::SERVFAIL);
    assert_eq!(rcode("validate = false"), Rcode::NOERROR);
}

#[test]
fn negative_trust_anchors_exempt_a_domain() {
    let world = world();
    let upstream = upstream(&world);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("anchors");
    std::fs::write(&file, world.anchor()).unwrap();
    let text = format!(
        "{PREFIX}[dnssec]\nvalidate = true\ntrust-anchors = '{}'\nnegative-trust-anchors = ['bad.signed.test']\n",
        file.display()
    );
    let server = server(&[upstream.address], &text);
    let reply = ask("bad.signed.test", Rtype::AAAA).of(&server);
    assert_eq!(reply.addresses(), [mapped("192.0.2.1")]);
    // The reason why the answers were not validated (RFC 7646).
    let edns = |rtype| ask("bad.signed.test", rtype).edns(1232);
    assert_eq!(outcome(&server, &edns(Rtype::A)).4, [33]);
    assert_eq!(outcome(&server, &edns(Rtype::AAAA)).4, [29, 33]);
    assert_eq!(outcome(&server, &ask("bad2.signed.test", Rtype::A)).0, Rcode::SERVFAIL);
}

/// An upstream that removes signatures and proofs from its responses.
fn stripping(world: &Arc<World>) -> Upstream {
    let world = Arc::clone(world);
    Upstream::new(move |q| match (q.qtype, q.name.as_str()) {
        (Rtype::SOA, "") => respond(q, Rcode::NOERROR, &signed::records(&soa(".")), &[]),
        (Rtype::A, name) => {
            respond(q, Rcode::NOERROR, &signed::records(&format!("{name}. A 192.0.2.66")), &[])
        }
        (Rtype::DS | Rtype::DNSKEY, _) => respond(q, Rcode::NOERROR, &[], &[]),
        _ => answer(&world, q),
    })
}

const IF_POSSIBLE: &str = "'if-possible'";

#[test]
fn validation_begins_when_an_upstream_returns_signatures() {
    let world = world();
    let upstream = upstream(&world);
    let server = validating_if(IF_POSSIBLE, &world, &[&upstream], "");
    let native = ask("native.signed.test", Rtype::AAAA).authentic_data();
    eventually("AD", || outcome(&server, &native).1);
    assert_eq!(outcome(&server, &ask("bad.signed.test", Rtype::A)).0, Rcode::SERVFAIL);
}

#[test]
fn answers_are_not_validated_if_no_upstream_returns_signatures() {
    let world = world();
    let upstream = stripping(&world);
    let server = validating_if(IF_POSSIBLE, &world, &[&upstream], "");
    let soa_queries =
        || upstream.queries().iter().filter(|q| q.qtype == Rtype::SOA && q.name.is_empty()).count();
    eventually("queries for signatures", || soa_queries() >= 2);
    let query = ask("a.signed.test", Rtype::A).authentic_data();
    assert_eq!(outcome(&server, &query), (Rcode::NOERROR, false, 1, 0, vec![]));
    let query = upstream.queries().into_iter().find(|q| q.qtype == Rtype::A).unwrap();
    assert!(!query.message.header().cd(), "the upstream may validate instead");
}

#[test]
fn upstreams_without_signatures_are_not_used() {
    let world = world();
    let (stripping, good) = (stripping(&world), upstream(&world));
    for validate in ["true", IF_POSSIBLE] {
        let server = validating_if(validate, &world, &[&stripping, &good], "");
        let has = |upstream: &Upstream| upstream.queries().iter().any(|q| q.qtype == Rtype::SOA);
        eventually("queries for signatures", || has(&stripping) && has(&good));
        eventually("AD", || {
            outcome(&server, &ask("native.signed.test", Rtype::AAAA).authentic_data()).1
        });
        let stripped = || stripping.queries().iter().filter(|q| q.qtype != Rtype::SOA).count();
        let before = stripped();
        for number in 0..20 {
            let reply = ask(&format!("n{number}.signed.test"), Rtype::A).of(&server);
            assert_eq!(reply.answers(), [format!("n{number}.signed.test 300 a 192.0.2.1")]);
        }
        assert_eq!(stripped(), before, "validate = {validate}");
    }
}

#[test]
fn a_negative_trust_anchor_can_expire() {
    let world = world();
    let upstream = upstream(&world);
    for (until, rcode) in
        [("2001-01-01T00:00:00Z", Rcode::SERVFAIL), ("2101-01-01T00:00:00Z", Rcode::NOERROR)]
    {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("anchors");
        std::fs::write(&file, world.anchor()).unwrap();
        let text = format!(
            "{PREFIX}[dnssec]\nvalidate = true\ntrust-anchors = '{}'\n\
             negative-trust-anchors = [{{ domain = 'bad.signed.test', until = {until} }}]\n",
            file.display()
        );
        let server = server(&[upstream.address], &text);
        assert_eq!(outcome(&server, &ask("bad.signed.test", Rtype::A)).0, rcode, "{until}");
    }
}

#[test]
fn explain_has_the_verdicts_and_the_chain_of_trust() {
    let world = world();
    let upstream = upstream(&world);
    let (_folder, socket, lines) = control();
    let server = validating(&world, &[&upstream], &lines);
    for (name, verdict, zones) in [
        ("a.signed.test", "secure", [". secure", "test. secure", "signed.test. secure"]),
        ("a.plain.test", "insecure", [". secure", "test. secure", "plain.test. insecure"]),
        ("bad.signed.test", "bogus", [". secure", "test. secure", "signed.test. secure"]),
    ] {
        let found = explained(&socket, "127.0.0.1", name, Rtype::A);
        assert_eq!(found.questions[0].security.as_deref(), Some(verdict), "{found:#?}");
        let chain: Vec<String> =
            found.chain.iter().map(|zone| format!("{} {}", zone.zone, zone.security)).collect();
        assert_eq!(chain, zones);
        assert_eq!(found.chain[0].key_tags.len(), 1);
    }
    drop(server);
}
