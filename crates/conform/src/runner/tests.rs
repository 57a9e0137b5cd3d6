//! Tests of the runner with a simulated server and test-only checks.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use domain::base::iana::Rtype;

use super::*;
use crate::authority::view::Asked;
use crate::message::{Message, Record, name, rcode};
use crate::trial::Judge;

/// Timeout of the runner for tests in which no reply is expected.
const PATIENCE: Duration = Duration::from_millis(150);

/// Generous timeout of the runner for tests in which a reply is expected.
const LONG: Duration = Duration::from_secs(20);

/// A UDP server in a thread. The given function returns the reply to a query, or `None` for no reply.
struct Fake {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Fake {
    fn start(mut reply: impl FnMut(&Message) -> Option<Message> + Send + 'static) -> Fake {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let address = socket.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !ends.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
                let query = Message::parse(&buffer[..len]).unwrap();
                if let Some(reply) = reply(&query) {
                    socket.send_to(&reply.octets(), from).unwrap();
                }
            }
        });
        Fake { address, is_over, thread: Some(thread) }
    }

    fn settings(&self, patience: Duration) -> Settings {
        Settings { patience, ..Settings::new(self.address) }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Returns the reply of a DNS64 server with the Well-Known Prefix. All names except ipv4only.arpa have the A record
/// 1.2.3.4.
fn dns64(query: &Message) -> Option<Message> {
    let mut reply = query.response();
    let question = query.question()?;
    let owner = question.name.clone();
    let is_well_known = owner == name("ipv4only.arpa");
    let v4: &[[u8; 4]] =
        if is_well_known { &[[192, 0, 0, 170], [192, 0, 0, 171]] } else { &[[1, 2, 3, 4]] };
    for octets in v4 {
        let v4 = Ipv4Addr::from(*octets);
        reply.answer.push(match question.qtype {
            Rtype::AAAA => Record::aaaa(owner.clone(), 300, crate::expected::WELL_KNOWN.with(v4)),
            _ => Record::a(owner.clone(), 300, v4),
        });
    }
    Some(reply)
}

/// Returns the reply of a DNS64 server that validates completely or in part.
fn validating(query: &Message, refuses: bool, sets_ad: bool) -> Option<Message> {
    let mut reply = dns64(query)?;
    let labels = query.question()?.name.to_string();
    if refuses && labels.contains(".bogus.") && !query.flags.cd {
        reply.answer.clear();
        reply.rcode = rcode::SERVFAIL;
    }
    reply.flags.ad = sets_ad && labels.contains(".secure.") && query.flags.ad;
    Some(reply)
}

/// A query log in which every name was queried this number of times.
struct Seen(usize);

impl View for Seen {
    fn asked(&self, name: &Name) -> io::Result<Vec<Asked>> {
        let asked = Asked::from_port(4242, name.to_string(), Rtype::A);
        Ok(vec![asked; self.0])
    }
}

const CHECK: Check = Check {
    id: "rfc1-1-passes",
    title: "It passes",
    rfc: 1,
    section: "1",
    sentence: "It MUST pass.",
    level: Level::Must,
    needs: &[],
    contradicts: None,
    script: |_| Ok(()),
};

fn of(id: &'static str, script: fn(&mut Trial<'_>) -> Judged) -> Check {
    Check { id, script, ..CHECK }
}

fn needing(id: &'static str, needs: &'static [Need]) -> Check {
    Check { id, needs, ..CHECK }
}

fn asks(t: &mut Trial<'_>) -> Judged {
    let reply = t.ask(&Message::query(&name("silent.example"), Rtype::AAAA))?;
    reply.has_aaaa(&t.embedded("1.2.3.4"))
}

fn run_checks(settings: &Settings, checks: &[Check]) -> Result<Report, RunError> {
    let all: Vec<&Check> = checks.iter().collect();
    run_these(&all, settings, None, &|_| {})
}

fn verdicts(report: &Report) -> Vec<(&str, Verdict)> {
    report.outcomes.iter().map(|outcome| (outcome.id.as_str(), outcome.verdict)).collect()
}

#[test]
fn a_server_that_replies_to_nothing_is_an_error() {
    let silent = Fake::start(|_| None);
    let mut settings = silent.settings(PATIENCE);
    let error = run_checks(&settings, &[CHECK]).unwrap_err();
    let RunError::Silent { server, queries } = &error else { panic!("{error:?}") };
    assert_eq!(*server, silent.address);
    assert_eq!(queries, "ipv4only.arpa AAAA, . NS, . NS without EDNS");
    settings.expect = vec![crate::expected::WELL_KNOWN];
    assert_eq!(run_checks(&settings, &[CHECK]).unwrap_err(), error, "also where it is expected");
    let gone = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let error = run_checks(&Settings::new(gone), &[CHECK]).unwrap_err();
    assert!(matches!(error, RunError::Silent { server, .. } if server == gone), "{error:?}");
}

#[test]
fn hidden_prefix_must_be_given() {
    let plain = Fake::start(|query| Some(query.response()));
    let mut settings = plain.settings(LONG);
    let error = run_checks(&settings, &[CHECK]).unwrap_err();
    assert!(matches!(error, RunError::NoPrefix { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("NOERROR without an address") && text.contains("--expect-prefix"),
        "{text}"
    );
    settings.expect = vec!["3fff::/96".parse().unwrap()];
    let report = run_checks(&settings, &[CHECK]).unwrap();
    assert_eq!(verdicts(&report), [(CHECK.id, Verdict::Passed)]);
    assert_eq!(report.prefixes, ["3fff::/96"]);
}

/// Each server ignores queries for ipv4only.arpa, and replies to one other kind of query.
#[test]
fn a_server_silent_only_to_ipv4only_arpa_is_not_dead() {
    type Replies = fn(&Message) -> bool;
    let cases: [(Replies, &str); 3] = [
        (|query| query.question().is_some_and(|q| q.qtype == Rtype::NS), ". NS over UDP is"),
        (|query| query.edns.is_none(), ". NS without EDNS over UDP is NOERROR"),
        (|query| query.question().is_some_and(|q| q.qtype == Rtype::A), "example A over UDP is"),
    ];
    for (replies, said) in cases {
        let fake = Fake::start(move |query| replies(query).then(|| query.response()));
        let zone = Some(name("conform.example"));
        let settings = Settings { zone, ..fake.settings(PATIENCE) };
        let error = run_checks(&settings, &[CHECK]).unwrap_err();
        let RunError::NoPrefix { came, .. } = &error else { panic!("{error:?}") };
        assert!(came.starts_with("no reply over UDP and TCP, while "), "{came}");
        assert!(came.contains(said), "{came}");
    }
}

/// The server has no AAAA records for ipv4only.arpa.
#[test]
fn two_names_of_the_zone_show_the_prefix() {
    let fake = Fake::start(|query| {
        let mut reply = query.response();
        let owner = query.question()?.name.clone();
        let place = crate::label::read(&owner, &name("conform.example"));
        let v4 = place.into_iter().flat_map(|place| place.behaviour.v4);
        let synthesized = v4.map(|v4| crate::expected::WELL_KNOWN.with(v4));
        reply.answer.extend(synthesized.map(|v6| Record::aaaa(owner.clone(), 300, v6)));
        Some(reply)
    });
    let settings = Settings { zone: Some(name("conform.example")), ..fake.settings(LONG) };
    let report = run_checks(&settings, &[CHECK]).unwrap();
    assert_eq!(report.prefixes, ["64:ff9b::/96"]);
    let without_zone = run_checks(&fake.settings(LONG), &[CHECK]).unwrap_err();
    assert!(matches!(without_zone, RunError::NoPrefix { .. }), "{without_zone:?}");
}

#[test]
fn a_prefix_that_is_not_the_expected_one_is_a_finding() {
    let fake = Fake::start(dns64);
    let mut settings = fake.settings(LONG);
    settings.expect = vec!["3fff::/96".parse().unwrap()];
    let report = run_checks(&settings, &[CHECK]).unwrap();
    assert_eq!(
        verdicts(&report),
        [(EXPECTED_PREFIX, Verdict::Failed), (CHECK.id, Verdict::Passed)]
    );
    let finding = &report.outcomes[0];
    assert_eq!(finding.level, Level::Must);
    assert!(
        finding.reason.contains("64:ff9b::/96") && finding.reason.contains("3fff::/96"),
        "{}",
        finding.reason
    );
    assert!(finding.exchanges[0].dig.contains("ipv4only.arpa"), "{:?}", finding.exchanges);
    assert_eq!(report.prefixes, ["3fff::/96"], "the user's prefix is used");
    assert!(report.fails_a_must());
    settings.expect = vec![crate::expected::WELL_KNOWN];
    let report = run_checks(&settings, &[CHECK]).unwrap();
    assert_eq!(verdicts(&report), [(CHECK.id, Verdict::Passed)]);
}

#[test]
fn a_panic_of_a_script_is_no_verdict_on_the_server() {
    let fake = Fake::start(dns64);
    let checks = [
        of("rfc1-1-panics", |t| {
            asks(t)?;
            panic!("the script is at its end ({})", 7)
        }),
        CHECK,
    ];
    let report = run_checks(&fake.settings(LONG), &checks).unwrap();
    assert_eq!(
        verdicts(&report),
        [("rfc1-1-panics", Verdict::NotTried), (CHECK.id, Verdict::Passed)]
    );
    let outcome = &report.outcomes[0];
    assert!(outcome.reason.ends_with("panicked: the script is at its end (7)"), "{outcome:?}");
    assert_eq!(outcome.exchanges.len(), 1, "the exchanges before the panic are shown");
}

#[test]
fn missing_requirements_are_reported() {
    let fake = Fake::start(dns64);
    let all = [
        needing("a-zone", &[Need::Zone]),
        needing("a-view", &[Need::View]),
        needing("a-everything", &[Need::Everything]),
        needing("a-validation", &[Need::Validation]),
        needing("a-no-validation", &[Need::NoValidation]),
        needing("a-well-known", &[Need::WellKnownPrefix]),
        needing("a-own", &[Need::OwnPrefix]),
        needing("a-excluded", &[Need::ExcludedRange]),
    ];
    let report = run_checks(&fake.settings(LONG), &all).unwrap();
    let words: Vec<(Verdict, &str)> =
        report.outcomes.iter().map(|o| (o.verdict, o.reason.as_str())).collect();
    assert!(words[0].0 == Verdict::NotTried && words[0].1.contains("--zone"), "{words:?}");
    assert!(words[1].0 == Verdict::NotTried && words[1].1.contains("--auth-status"), "{words:?}");
    for n in [2, 3, 4] {
        assert!(words[n].0 == Verdict::NotTried && !words[n].1.is_empty(), "{words:?}");
    }
    assert_eq!(words[5], (Verdict::Passed, ""));
    assert_eq!(words[6].0, Verdict::NotOffered, "{words:?}");
    assert!(words[6].1.contains("64:ff9b::/96"), "{words:?}");
    assert_eq!(words[7].0, Verdict::NotOffered, "{words:?}");
    assert!(words[7].1.contains("--excludes"), "{words:?}");

    let settings = Settings {
        zone: Some(name("conform.example")),
        everything: true,
        validation: Some(true),
        expect: vec!["3fff::/96".parse().unwrap()],
        excluded: Some("3fff:bad::/32".parse().unwrap()),
        ..fake.settings(LONG)
    };
    let checks: Vec<&Check> = all.iter().collect();
    let report = run_these(&checks, &settings, Some(&Seen(1)), &|_| {}).unwrap();
    let met = |id| report.outcomes.iter().find(|o| o.id == id).unwrap().verdict;
    for id in ["a-zone", "a-view", "a-everything", "a-validation", "a-own", "a-excluded"] {
        assert_eq!(met(id), Verdict::Passed, "{id}");
    }
    for id in ["a-no-validation", "a-well-known"] {
        assert_eq!(met(id), Verdict::NotOffered, "{id}");
    }
}

#[test]
fn whether_a_server_validates_is_found_out() {
    let checks = [
        needing("a", &[Need::Zone, Need::Validation]),
        needing("b", &[Need::Zone, Need::NoValidation]),
    ];
    let (passed, not_offered, not_tried) =
        (Verdict::Passed, Verdict::NotOffered, Verdict::NotTried);
    for (refuses, sets_ad, wanted) in [
        (true, true, [passed, not_offered]),
        (false, false, [not_offered, passed]),
        (true, false, [not_tried, not_tried]),
        (false, true, [not_tried, not_tried]),
    ] {
        let fake = Fake::start(move |query| validating(query, refuses, sets_ad));
        let zone = Some(name("conform.example"));
        let report = run_checks(&Settings { zone, ..fake.settings(LONG) }, &checks).unwrap();
        let found: Vec<Verdict> = report.outcomes.iter().map(|o| o.verdict).collect();
        assert_eq!(found, wanted, "refuses {refuses}, sets AD {sets_ad}");
    }
}

/// A server that implements RFC 4035 but not RFC 6840: it sets AD only if the query has DO.
#[test]
fn a_server_that_sets_ad_for_do_only_validates() {
    let checks = [needing("a", &[Need::Zone, Need::Validation])];
    let fake = Fake::start(|query| {
        let mut reply = validating(query, true, true)?;
        reply.flags.ad &= query.edns.as_ref().is_some_and(|edns| edns.dnssec_ok);
        Some(reply)
    });
    let zone = Some(name("conform.example"));
    let report = run_checks(&Settings { zone, ..fake.settings(LONG) }, &checks).unwrap();
    assert_eq!(report.outcomes[0].verdict, Verdict::Passed);
}

#[test]
fn a_zone_that_the_server_does_not_know_is_an_error() {
    let fake = Fake::start(|query| {
        let mut reply = dns64(query)?;
        if query.question()?.name != name("ipv4only.arpa") {
            reply.answer.clear();
            reply.rcode = rcode::NXDOMAIN;
        }
        Some(reply)
    });
    let zone = name("conform.example");
    let settings = Settings { zone: Some(zone.clone()), ..fake.settings(LONG) };
    let error = run_checks(&settings, &[needing("a", &[Need::Zone])]).unwrap_err();
    assert_eq!(
        error,
        RunError::NoZone { server: fake.address, zone, came: "NXDOMAIN without an address".into() }
    );
    let report = run_checks(&settings, &[CHECK]).unwrap();
    assert_eq!(report.outcomes[0].verdict, Verdict::Passed, "no check here needs the zone");
}

#[test]
fn view_of_another_authority_is_an_error() {
    let fake = Fake::start(dns64);
    let settings = Settings { zone: Some(name("conform.example")), ..fake.settings(LONG) };
    let check = needing("a", &[Need::Zone, Need::View]);
    let run = |view| run_these(&[&check], &settings, Some(view), &|_| {});
    let error = run(&Seen(0)).unwrap_err();
    assert!(matches!(error, RunError::OtherView { .. }), "{error:?}");
    assert!(error.to_string().contains("--auth-status"), "{error}");
    assert_eq!(run(&Seen(1)).unwrap().outcomes[0].verdict, Verdict::Passed);
}

/// The simulated server behaves as if it had stopped querying its only upstream for a while.
#[test]
fn servfail_is_retried_before_troubling_checks() {
    let mut asked = 0;
    let fake = Fake::start(move |query| {
        let mut reply = dns64(query)?;
        if query.question()?.name != name("ipv4only.arpa") {
            asked += 1;
            reply.rcode = if asked == 1 { rcode::SERVFAIL } else { rcode::NOERROR };
        }
        Some(reply)
    });
    let asks = |t: &mut Trial<'_>| {
        let query = Message::query(&name("quiet.example"), Rtype::AAAA);
        t.ask(&query)?.has_rcode(rcode::NOERROR)
    };
    let troubling = |_: &mut Trial<'_>| Ok(());
    let checks = [of(TROUBLING[0], troubling), of("a-quiet", asks)];
    let all: Vec<&Check> = checks.iter().collect();
    let order = RefCell::new(Vec::new());
    let note = |outcome: &Outcome| order.borrow_mut().push(outcome.id.clone());
    let report = run_these(&all, &fake.settings(LONG), None, &note).unwrap();
    let quiet = &report.outcomes[1];
    assert_eq!(quiet.verdict, Verdict::Passed);
    assert!(quiet.reason.starts_with("passed on the second attempt only"), "{quiet:?}");
    assert_eq!(order.into_inner(), ["a-quiet", TROUBLING[0]]);
}

#[test]
fn silence_is_tried_again_and_the_second_try_counts() {
    let mut asked = 0;
    let fake = Fake::start(move |query| {
        let owner = query.question()?.name.to_string();
        if owner.starts_with("silent") {
            asked += 1;
        }
        let is_ignored = owner.starts_with("dead") || (owner.starts_with("silent") && asked == 1);
        if is_ignored { None } else { dns64(query) }
    });
    let dead =
        |t: &mut Trial<'_>| t.ask(&Message::query(&name("dead.example"), Rtype::AAAA)).map(|_| ());
    let wrong = |t: &mut Trial<'_>| {
        t.ask(&Message::query(&name("wrong.example"), Rtype::AAAA))?
            .has_aaaa(&[Ipv6Addr::LOCALHOST])
    };
    let checks = [of("a-dead", dead), of("a-silent", asks), of("a-wrong", wrong)];
    let report = run_checks(&fake.settings(Duration::from_secs(2)), &checks).unwrap();
    let [dead, silent, wrong] = report.outcomes.as_slice() else { panic!("{report:?}") };
    assert_eq!(dead.verdict, Verdict::Failed);
    assert!(dead.reason.starts_with("no reply"), "{dead:?}");
    assert_eq!(dead.exchanges.len(), 1, "of the second attempt only");
    assert_eq!(dead.exchanges[0].reply, "no reply");
    assert_eq!(silent.verdict, Verdict::Passed);
    assert!(silent.reason.starts_with("passed on the second attempt only"), "{silent:?}");
    assert!(silent.exchanges.is_empty());
    assert_eq!(wrong.verdict, Verdict::Failed);
    assert!(wrong.reason.contains("not ::1"), "{wrong:?}");
    assert!(wrong.exchanges[0].reply.contains("AAAA 64:ff9b::"), "{wrong:?}");
}

/// Number of scripts that are running, and the maximum so far.
static RUNNING: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

#[test]
fn checks_run_together_up_to_the_bound_and_some_alone() {
    fn sleeps(_: &mut Trial<'_>) -> Judged {
        let now = RUNNING[0].fetch_add(1, Ordering::SeqCst) + 1;
        RUNNING[1].fetch_max(now, Ordering::SeqCst);
        // Waits until two scripts run, or have run, at the same time.
        for _ in 0..3_000 {
            if RUNNING[1].load(Ordering::SeqCst) > 1 {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        RUNNING[0].fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
    fn alone(t: &mut Trial<'_>) -> Judged {
        let others = RUNNING[0].load(Ordering::SeqCst);
        crate::trial::expect(others == 0, || format!("{others} others run"))?;
        sleeps(t)
    }
    let fake = Fake::start(dns64);
    let mut checks = vec![of("hardening-overload-x", alone), of("rfc5452-9.2-ports", alone)];
    checks.resize(20, of("rfc1-1-sleeps", sleeps));
    let reported = RefCell::new(0);
    let all: Vec<&Check> = checks.iter().collect();
    let settings = Settings { parallel: 3, ..fake.settings(LONG) };
    let report = run_these(&all, &settings, None, &|_| *reported.borrow_mut() += 1).unwrap();
    assert!(report.outcomes.iter().all(|o| o.verdict == Verdict::Passed), "{report:?}");
    assert_eq!(report.outcomes[0].id, "hardening-overload-x", "the order of the list");
    assert!((2..=3).contains(&RUNNING[1].load(Ordering::SeqCst)));
    assert_eq!(reported.into_inner(), 20);
}

#[test]
fn interruption_leaves_remaining_checks_untried() {
    let fake = Fake::start(dns64);
    let checks =
        ["rfc1-1-first", "rfc1-1-second", "hardening-overload-x"].map(|id| of(id, |_| Ok(())));
    let all: Vec<&Check> = checks.iter().collect();
    let settings = Settings { parallel: 1, ..fake.settings(LONG) };
    // The second check may have begun before the first outcome was reported. The last check begins after both.
    let stop = |_: &Outcome| settings.until.store(true, Ordering::SeqCst);
    let report = run_these(&all, &settings, None, &stop).unwrap();
    let [first, _, last] = &report.outcomes[..] else { panic!("{report:?}") };
    assert_eq!((first.verdict, last.verdict), (Verdict::Passed, Verdict::NotTried), "{report:?}");
    assert!(last.reason.contains("interrupted"), "{report:?}");
}
