//! Text and JSON of every reason.

use std::collections::BTreeSet;

use super::*;

/// Returns each reason with its text.
fn all() -> Vec<(Reason, &'static str)> {
    let interface = || "to-dut".to_owned();
    let limit = Nanos::from_millis(10);
    let neighbour = |packets| {
        let address = "2001:2::1".parse().unwrap();
        Reason::HostLoss(HostLoss::Neighbour {
            packets,
            address,
            interface: interface(),
            unresolved: Nanos::from_millis(340),
        })
    };
    let discipline = |discipline| {
        Reason::HostLoss(HostLoss::QueueingDiscipline {
            packets: 1691,
            discipline,
            interface: interface(),
        })
    };
    let zone = |domain: &str, aaaa: u8| ZoneFacts {
        domain: domain.into(),
        aaaa_share: Share::percent(aaaa),
    };
    vec![
        (
            Reason::WindowOff { worst_pct: 1.554, limit_pct: 1.0 },
            "pacing: a 100 ms window was off by 1.55 %, limit 1 %",
        ),
        (
            Reason::Late { p999_us: 12_345.6, limit },
            "pacing: p99.9 lateness 12\u{202f}346 µs, limit 10\u{202f}000 µs",
        ),
        (
            Reason::TotalOff { sent: 998, planned: 1000, limit_pct: 0.001 },
            "pacing: 998 queries sent of 1\u{202f}000 planned, limit ± 0.001 % of the total",
        ),
        (
            Reason::NotPinned { half: Half::Sender, cpu: CpuId(9), error: "EINVAL".into() },
            "cannot pin the sender to CPU 9: EINVAL",
        ),
        (
            Reason::NotPinned { half: Half::Receiver, cpu: CpuId(9), error: "EINVAL".into() },
            "cannot pin the receiver to CPU 9: EINVAL",
        ),
        (
            Reason::LedgerFull,
            "the receiver was too slow: no room for further queries in the ledger",
        ),
        (
            Reason::SendRefused { query: 5, error: Some("No buffer space".into()) },
            "send error for query 5: No buffer space",
        ),
        (
            Reason::SendRefused { query: 5, error: None },
            "send error for query 5: sending works again",
        ),
        (Reason::QueriesRefused { queries: 1 }, "send errors for 1 query"),
        (Reason::CannotReceive { error: "EBADF".into() }, "cannot receive: EBADF"),
        (Reason::RecordsLost { records: 12 }, "the disk was too slow: 12 records are missing"),
        (
            Reason::HostLoss(HostLoss::Sockets { packets: 3 }),
            "the tester's sockets had no room for 3 packets, which were dropped",
        ),
        (
            Reason::HostLoss(HostLoss::Rings { packets: 6, interface: interface() }),
            "the tester's AF_XDP rings on to-dut had no room for 6 packets, which were dropped",
        ),
        (
            Reason::HostLoss(HostLoss::InterfaceReceive { packets: 4, interface: interface() }),
            "the tester's interface to-dut dropped 4 received packets",
        ),
        (
            Reason::HostLoss(HostLoss::InterfaceSend { packets: 5, interface: interface() }),
            "the tester's interface to-dut dropped 5 packets to be sent",
        ),
        (
            discipline(Some("tbf".into())),
            "the tester's queueing discipline (tbf on to-dut) dropped 1\u{202f}691 packets",
        ),
        (
            discipline(None),
            "the tester's queueing discipline (of unknown kind on to-dut) dropped 1\u{202f}691 packets",
        ),
        (
            Reason::HostLoss(HostLoss::Waited {
                packets: 1_691,
                longest: Nanos::from_millis(340),
                limit,
                discipline: Some("tbf".into()),
                interface: interface(),
            }),
            "1\u{202f}691 packets waited longer than 10 ms in the tester's queueing discipline (tbf on to-dut), up \
             to 340 ms",
        ),
        (
            neighbour(Some(7)),
            "the tester's neighbour 2001:2::1 on to-dut was not resolved for 340 ms; its queue dropped 7 packets",
        ),
        (
            neighbour(None),
            "the tester's neighbour 2001:2::1 on to-dut was not resolved for 340 ms; the number of packets dropped by \
             its queue is unknown",
        ),
        (
            Reason::Unbalanced { sent: 10 },
            "internal error: outcomes do not add up to 10 queries sent",
        ),
        (
            Reason::Missed { datagrams: 8, lost: 9 },
            "the interface received 8 datagrams for the tester that its sockets did not; 9 queries count as lost: \
             check for a packet filter (dns64bench check)",
        ),
        (
            Reason::NotPreloaded { names: 1000 },
            "1\u{202f}000 of the names to be cached could not be resolved before the trial",
        ),
        (Reason::AuthDropped { queries: 3 }, "AuthDNS dropped 3 queries: it was too slow to read"),
        (Reason::AuthSendRefused { replies: 2 }, "send errors for 2 of AuthDNS's replies"),
        (
            Reason::AuthSlow { p999_us: 41_260.0, limit },
            "AuthDNS took 41.3 ms for one query in a thousand, limit 10 ms",
        ),
        (
            Reason::AuthDecides { questions: 11, limit, unanswered: 10 },
            "AuthDNS took longer than 10 ms for 11 queries, which may be why 10 queries got no valid reply in time",
        ),
        (
            Reason::AuthMissed { datagrams: 17, came: 8_000 },
            "the interface of AuthDNS's host received 8\u{202f}000 datagrams for AuthDNS, but AuthDNS's sockets did \
             not receive 17 of them: check for a packet filter there (dns64bench check)",
        ),
        (
            Reason::AuthServes {
                served: zone("other.test", 50),
                wanted: zone("dns64perf.test", 0),
            },
            "AuthDNS serves other.test with an AAAA share of 50 %, and the trial needs dns64perf.test with an AAAA share \
             of 0 %",
        ),
        (
            Reason::AuthRefused { refused: 4_000, questions: 4_001 },
            "AuthDNS refused or denied 4\u{202f}000 of 4\u{202f}001 queries: their names are not in its zone",
        ),
        (
            Reason::OtherTrials { trials: 1 },
            "1 other trial used this AuthDNS at the same time: names cached for one trial count for both",
        ),
        (
            Reason::OtherNames { asked: 8_000, names: 4_000 },
            "AuthDNS was queried for 8\u{202f}000 names, but the trial has 4\u{202f}000: another client used the DUT \
             or AuthDNS at the same time",
        ),
        (
            Reason::AuthHostLoss(HostLoss::InterfaceReceive { packets: 4, interface: interface() }),
            "at AuthDNS: the tester's interface to-dut dropped 4 received packets",
        ),
        (Reason::AuthRestarted, "AuthDNS was restarted during the trial"),
        (
            Reason::AuthLost { error: "Connection refused".into() },
            "AuthDNS's counters cannot be read after the trial, so it probably ended: Connection refused",
        ),
        (
            Reason::Interrupted {
                duration: Nanos::from_millis(2_540),
                planned: Nanos(60 * Nanos::SECOND.0),
            },
            "interrupted after 2.5 of 60.0 s",
        ),
        (
            Reason::OfShard { shard: 2, reason: Box::new(Reason::LedgerFull) },
            "shard 2: the receiver was too slow: no room for further queries in the ledger",
        ),
        (
            Reason::OfShard {
                shard: 1,
                reason: Box::new(Reason::OnHost {
                    host: "load2".into(),
                    reason: Box::new(Reason::NotReady { late: Nanos::from_millis(2_500) }),
                }),
            },
            "shard 1: load2: not ready when the trial began, only 2.500 s later by its clock; it sent nothing",
        ),
        (
            Reason::NotEnded { waited: Nanos(30 * Nanos::SECOND.0) },
            "not finished 30 s after the time of the last reply; its results are missing",
        ),
        (
            Reason::ClockOff { error: Some(Nanos(12_345_678)), limit },
            "its clock may be off by 12\u{202f}346 µs, limit 10\u{202f}000 µs",
        ),
        (
            Reason::ClockOff { error: None, limit },
            "the error of its clock is unknown, limit 10\u{202f}000 µs: synchronize it with chrony (rtcsync), or give \
             --offset",
        ),
        (
            Reason::NothingCameBack { sent: 20_000, expected: 19_998 },
            "none of its 20\u{202f}000 queries got a valid reply; about 19\u{202f}998 were expected from the results \
             of the others: is there a route back to it?",
        ),
        (
            Reason::ClockSlewed { ppm: -83_333.0, limit_ppm: 1_000.0 },
            "the clock ran 8.33 % slower than the hardware's, limit 0.10 %, and so did the sending: it was being \
             slewed; wait until that is over (chronyc tracking)",
        ),
        (
            Reason::Deviation { deviation: Deviation::CachedShare { wanted: 0.0, real: 0.5 } },
            "the DUT answered 50.0 % of the queries from its cache, not 0.0 % as planned",
        ),
        (
            Reason::Deviation { deviation: Deviation::AaaaShare { wanted: 0.0, real: 0.5 } },
            "50.0 % of the names queried at AuthDNS had an AAAA record, not 0.0 % as planned",
        ),
        (
            Reason::OtherPrograms {
                used: OtherUse { programs_pct: Some(61.25), stolen_pct: 0.5, interrupts_pct: 3.0 },
                limit_pct: 5.0,
            },
            "on the DUT's CPUs other programs used 61.2 %, a hypervisor 0.5 % and interrupts 3.0 %; the \
             limit of the first two is 5 %",
        ),
        (
            Reason::TooFewValid { sent: 1000, valid: 990, lost: 5, late: 3, wrong: 2 },
            "990 of 1\u{202f}000 queries got a valid reply (99.0000 %): 5 lost, 3 late, 2 wrong",
        ),
    ]
}

#[test]
fn each_reason_has_its_text() {
    for (reason, words) in all() {
        assert_eq!(reason.to_string(), words, "{reason:?}");
    }
}

#[test]
fn each_reason_is_read_back_from_its_json() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Trial {
        rate: u64,
        #[serde(flatten, with = "in_words")]
        reasons: Vec<Reason>,
    }
    let trial = Trial { rate: 1, reasons: all().into_iter().map(|(reason, _)| reason).collect() };
    let json = serde_json::to_value(&trial).unwrap();
    for (i, (_, words)) in all().into_iter().enumerate() {
        assert_eq!(json["reasons"][i], words);
        assert!(json["causes"][i]["kind"].is_string(), "{json}");
    }
    assert_eq!(serde_json::from_value::<Trial>(json).unwrap(), trial);
    let text = serde_json::to_string(&trial).unwrap();
    assert_eq!(serde_json::from_str::<Trial>(&text).unwrap(), trial);
    let words_only = serde_json::from_str::<Trial>(r#"{"rate": 1, "reasons": ["because"]}"#);
    assert!(words_only.unwrap_err().to_string().contains("causes"));
}

#[test]
fn names_in_json_are_those_of_the_kinds() {
    for (reason, _) in all() {
        let json = serde_json::to_value(&reason).unwrap();
        let kind = serde_json::to_value(reason.kind()).unwrap();
        let mut inner = &json;
        // The reason nested in the reasons for a tester or a host.
        while matches!(inner["kind"].as_str(), Some("of_shard" | "on_host")) {
            inner = &inner["reason"];
        }
        let name = if inner["kind"] == "host_loss" { &inner["place"] } else { &inner["kind"] };
        assert_eq!(*name, kind, "{json}");
    }
}

#[test]
fn kinds_have_different_texts_without_numbers() {
    let kinds: BTreeSet<ReasonKind> = all().iter().map(|(reason, _)| reason.kind()).collect();
    let words: BTreeSet<String> = kinds.iter().map(ReasonKind::to_string).collect();
    assert_eq!((kinds.len(), words.len()), (40, 40), "{words:?}");
    let one = Reason::WindowOff { worst_pct: 1.55, limit_pct: 1.0 };
    let other = Reason::WindowOff { worst_pct: 12.0, limit_pct: 5.0 };
    assert_eq!(one.kind(), other.kind());
}
