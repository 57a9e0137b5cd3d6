use method::reason::ReasonKind;
use method::records::Outcome;
use method::verdict::Acceptance;
use net::xdp::AttachMode;
use proptest::prelude::*;
use units::{Qps, QueryIndex};

use super::super::plan::shard::{Moment, ShardPlan};
use super::super::shards::AskedClock;
use super::*;
use crate::xdp::XdpConfig;

/// Outcome of a query: its lateness, and the time until its reply, if one arrived.
type QueryFate = (u64, Option<u64>);

fn plan(rate: u64, shard: Option<(u16, u16)>) -> TrialPlan {
    let start = Moment(Nanos(1_795_608_000_000_000_000));
    TrialPlan {
        duration: Nanos::SECOND,
        timeout: Nanos::from_millis(100),
        shard: shard.map(|(index, of)| ShardPlan { index, of, seed: 7, start }),
        ..TrialPlan::new("[2001:2::1]:53".parse().unwrap(), Qps(rate))
    }
}

/// Returns the result, as read from a file, of a tester that sent its part of these queries.
fn result_of(plan: &TrialPlan, fates: &[QueryFate]) -> TrialResult {
    let (part, schedule) = (plan.own_part(), plan.schedule());
    let (mut counts, mut rtt) = (Counts::default(), rtt_histogram());
    let mut pacing = PacingRecorder::new(plan.duration);
    for k in 0..part.count() {
        let QueryIndex(index) = part.index(k);
        let (late, reply) = fates[index as usize];
        let due = schedule.deadline(QueryIndex(index));
        pacing.record(due, due + Nanos(late));
        counts.sent += 1;
        counts.add(match reply {
            None => Outcome::Lost,
            Some(after) if after >= plan.timeout.0 => Outcome::Late,
            Some(after) => {
                rtt.saturating_record(after.max(1));
                Outcome::Valid
            }
        });
    }
    let audit = pacing.audit(&part);
    let evidence = Evidence {
        planned: part.count(),
        counts: &counts,
        pacing: &audit,
        host_losses: &[],
        missed: 0,
        faults: &[],
    };
    let (verdict, reasons) = decide(&evidence, plan.accept, &plan.limits);
    let shard = Box::new(ShardPart::new(plan, &AskedClock::now(), &pacing, rtt.clone()));
    let trial = TrialResult::new(
        plan,
        Findings {
            began: Nanos(0),
            counts: counts.clone(),
            drops: TesterDrops::default(),
            rtt: Rtt::of(&rtt),
            pacing: audit,
            windows: Some(pacing.windows(&part)),
            sending: Sending::none(plan),
            verdict,
            reasons,
            warnings: Vec::new(),
            intervals: None,
        },
    );
    let text = serde_json::to_string(&TrialResult { shard: Some(shard), ..trial }).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns the results of `of` testers.
fn shards_of(of: u16, fates: &[QueryFate]) -> Vec<TesterResult> {
    let rate = fates.len() as u64;
    let given = |index: u16| TesterResult {
        file: format!("{index}.json"),
        trial: result_of(&plan(rate, Some((index, of))), fates),
    };
    (0..of).map(given).collect()
}

/// Returns the results of three testers whose clocks were not set during the trial.
fn at_once(fates: &[QueryFate]) -> Vec<TesterResult> {
    let mut given = shards_of(3, fates);
    given.iter_mut().for_each(|one| one.trial.shard.as_mut().unwrap().clock_step_ns = 0);
    given
}

fn fair(queries: usize) -> Vec<QueryFate> {
    vec![(3_000, Some(200_000)); queries]
}

fn merged(given: Vec<TesterResult>) -> Result<Merged, MergeError> {
    merge(given, &Offsets::new())
}

fn fates() -> impl Strategy<Value = Vec<QueryFate>> {
    let reply = proptest::option::weighted(0.999, 1u64..150_000_000);
    proptest::collection::vec((0u64..400_000, reply), 200..1_500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn merged_shards_equal_one_tester(fates in fates(), of in 1u16..9, turn in 0usize..9) {
        let alone = result_of(&plan(fates.len() as u64, Some((0, 1))), &fates);
        let mut given = shards_of(of, &fates);
        given.rotate_left(turn % usize::from(of));
        let merged = merged(given).unwrap();
        let trial = &merged.trial;
        prop_assert_eq!(&trial.counts, &alone.counts);
        prop_assert_eq!(trial.rtt_us, alone.rtt_us);
        prop_assert_eq!(trial.pacing, alone.pacing);
        prop_assert_eq!(&trial.windows, &alone.windows);
        prop_assert_eq!(trial.throughput, alone.throughput);
        prop_assert_eq!(&trial.names, &alone.names);
        // If no shard is invalid, the merged verdict equals the verdict of a single tester. A shard can be invalid
        // because some limits apply to each shard separately.
        if merged.shards.iter().all(|shard| shard.verdict != Verdict::Invalid) {
            prop_assert_eq!((trial.verdict, &trial.reasons), (alone.verdict, &alone.reasons));
        }
        let order: Vec<u16> = merged.shards.iter().map(|shard| shard.index).collect();
        prop_assert_eq!(order, (0..of).collect::<Vec<_>>());
    }
}

#[test]
fn the_xdp_interface_of_each_shard_is_kept() {
    let xdp = |interface: &str, attach_mode| {
        Some(XdpInterface { interface: interface.into(), attach_mode, queues: 4 })
    };
    let merged_of = |ways: [Option<XdpInterface>; 2]| {
        let mut given = shards_of(2, &fair(200));
        for (one, attach_mode) in given.iter_mut().zip(ways) {
            one.trial.sending.xdp = attach_mode;
        }
        let merged = merged(given).unwrap();
        let of_shards: Vec<_> = merged.shards.into_iter().map(|shard| shard.xdp).collect();
        (merged.trial.sending.xdp, of_shards)
    };
    let (one, other) = (xdp("eth1", AttachMode::Copy), xdp("eth2", AttachMode::Copy));
    for (ways, common) in [
        ([one.clone(), one.clone()], one.clone()),
        ([one.clone(), other.clone()], None),
        ([one.clone(), xdp("eth1", AttachMode::Generic)], None),
        ([one, None], None),
        ([None, None], None),
    ] {
        assert_eq!(merged_of(ways.clone()), (common, ways.to_vec()));
    }
}

#[test]
fn one_invalid_shard_makes_the_trial_invalid_and_is_named() {
    let mut fates = fair(3_000);
    // Shard 1 of 3 stalls for the second half: its queries are sent 300 ms late.
    for (index, fate) in fates.iter_mut().enumerate().skip(1_500) {
        fate.0 = if index % 3 == 1 { 300_000_000 } else { fate.0 };
    }
    let merged = merged(shards_of(3, &fates)).unwrap();
    assert_eq!(merged.trial.verdict, Verdict::Invalid);
    let of_one = |reason: &&Reason| matches!(reason, Reason::OfShard { shard: 1, .. });
    let named: Vec<_> = merged.trial.reasons.iter().filter(of_one).collect();
    assert!(named.iter().any(|reason| reason.kind() == ReasonKind::WindowOff), "{named:?}");
    assert!(named[0].to_string().starts_with("shard 1: pacing"), "{}", named[0]);
    let others = |reason: &Reason| matches!(reason, Reason::OfShard { shard: 0 | 2, .. });
    assert!(!merged.trial.reasons.iter().any(others), "{:?}", merged.trial.reasons);
}

#[test]
fn the_dut_fails_by_the_sum_of_all_shards() {
    let mut fates = fair(900);
    fates[4].1 = None;
    let merged = merged(shards_of(3, &fates)).unwrap();
    assert_eq!(merged.trial.verdict, Verdict::Failed);
    let verdicts: Vec<Verdict> = merged.shards.iter().map(|shard| shard.verdict).collect();
    assert_eq!(verdicts, [Verdict::Passed, Verdict::Failed, Verdict::Passed]);
    // One loss in 900 is accepted for the trial, but not one in 300.
    let lenient = |mut given: TesterResult| {
        let accept = method::verdict::Acceptance(0.998);
        given.trial.shard.as_mut().unwrap().plan.accept = accept;
        given
    };
    let given = shards_of(3, &fates).into_iter().map(lenient).collect();
    assert_eq!(merge(given, &Offsets::new()).unwrap().trial.verdict, Verdict::Passed);
}

#[test]
fn wrong_or_unknown_clocks_invalidate() {
    let kinds = |merged: &Merged| {
        let of = |reason: &Reason| match reason {
            Reason::OfShard { shard, reason } => (*shard, reason.kind()),
            other => panic!("{other}"),
        };
        merged.trial.reasons.iter().map(of).collect::<Vec<_>>()
    };
    // All testers on one host share one clock.
    assert_eq!(merged(shards_of(3, &fair(900))).unwrap().trial.verdict, Verdict::Passed);
    let measured = |ns| merge(at_once(&fair(900)), &Offsets::from([(2, ns..=ns)])).unwrap();
    assert_eq!(measured(-10_000_000).trial.verdict, Verdict::Passed);
    assert_eq!(kinds(&measured(-10_000_001)), [(2, ReasonKind::ClockOff)]);
    assert_eq!(measured(5_000).shards[2].offset_us, Some(5.0));

    let of_hosts = |clocks: [Option<ClockError>; 3]| {
        let mut given = at_once(&fair(900));
        for (shard, clock) in given.iter_mut().zip(clocks) {
            let part = shard.trial.shard.as_mut().unwrap();
            (part.boot_id, part.clock) = (shard.file.clone(), clock);
        }
        given
    };
    let known =
        |us| Some(ClockError { synchronized: true, estimated_us: Some(us), largest_us: 1_000_000 });
    let alone = Some(ClockError { synchronized: false, ..ClockError::default() });
    // With systemd-timesyncd and phc2sys, the clock is synchronized, but its error is not estimated.
    let untold = Some(ClockError { synchronized: true, ..ClockError::default() });
    let fine = merged(of_hosts([known(0), known(300), known(9_700)])).unwrap();
    assert_eq!(fine.trial.verdict, Verdict::Passed, "{:?}", fine.trial.reasons);
    // Each clock is close enough to the true time, but the clocks are not close enough to each other.
    let apart = merged(of_hosts([known(0), known(301), known(9_700)])).unwrap();
    assert_eq!(kinds(&apart), [1, 2].map(|shard| (shard, ReasonKind::ClockOff)));
    // Two testers are on one host, and so share one clock.
    let mut neighbours = of_hosts([known(6_000), known(6_000), known(0)]);
    neighbours[1].trial.shard.as_mut().unwrap().boot_id = neighbours[0].file.clone();
    assert_eq!(merged(neighbours).unwrap().trial.verdict, Verdict::Passed);
    let with_offsets = |offsets: [RangeInclusive<i64>; 3]| {
        merge(at_once(&fair(900)), &(0..).zip(offsets).collect()).unwrap()
    };
    let both = with_offsets([9_000_000..=9_000_000, 0..=0, -9_000_000..=-9_000_000]);
    assert_eq!(kinds(&both), [0, 2].map(|shard| (shard, ReasonKind::ClockOff)));
    // Both clocks were 9 ms ahead before the trial. After the trial, one of them was 8.9 ms behind.
    let moved = with_offsets([0..=0, 9_000_000..=9_000_000, -8_900_000..=9_000_000]);
    assert_eq!(kinds(&moved), [1, 2].map(|shard| (shard, ReasonKind::ClockOff)));
    assert_eq!(moved.shards[2].offset_us, Some(9_000.0));
    let unknown_clocks = [[known(10_001), alone, None], [untold; 3]];
    let offsets: Offsets = (0..3).map(|index| (index, 1..=3)).collect();
    for clocks in unknown_clocks {
        let off = merged(of_hosts(clocks)).unwrap();
        assert_eq!(kinds(&off), [0, 1, 2].map(|shard| (shard, ReasonKind::ClockOff)));
        let merged = merge(of_hosts(clocks), &offsets).unwrap();
        assert_eq!(merged.trial.verdict, Verdict::Passed);
    }
}

/// The clock was set while a tester waited for the start, or sent.
#[test]
fn a_clock_step_after_reading_the_start_counts() {
    let after = |steps: [i64; 3], change: fn(&mut ShardPart), offsets: &Offsets| {
        let mut given = at_once(&fair(900));
        for (shard, step) in given.iter_mut().zip(steps) {
            let part = shard.trial.shard.as_mut().unwrap();
            part.clock_step_ns = step;
            change(part);
        }
        let trial = merge(given, offsets).unwrap().trial;
        let shards = trial.reasons.iter().map(|reason| match reason {
            Reason::OfShard { shard, reason } if reason.kind() == ReasonKind::ClockOff => *shard,
            other => panic!("{other}"),
        });
        (trial.verdict, shards.collect::<Vec<_>>())
    };
    let (none, ms) = (Offsets::new(), 1_000_000);
    // All testers share the clock of one host.
    let on_one_host = |steps| after(steps, |_| (), &none);
    assert_eq!(on_one_host([0, 9 * ms, 9 * ms]), (Verdict::Passed, vec![]));
    assert_eq!(on_one_host([0, 0, 40 * ms]), (Verdict::Invalid, vec![2]));
    assert_eq!(on_one_host([0, 0, -40 * ms]), (Verdict::Invalid, vec![2]));
    assert_eq!(on_one_host([6 * ms, 0, -6 * ms]), (Verdict::Invalid, vec![0, 2]));
    // Clocks that each report a final error of at most 5 µs.
    let on_three = |steps| {
        let right = |part: &mut ShardPart| {
            let known = ClockError { synchronized: true, estimated_us: Some(5), largest_us: 9 };
            (part.boot_id, part.clock) = (rand::random::<u64>().to_string(), Some(known));
        };
        after(steps, right, &none)
    };
    assert_eq!(on_three([0; 3]), (Verdict::Passed, vec![]));
    assert_eq!(on_three([0, 40 * ms, 0]), (Verdict::Invalid, vec![1]));
    // The offset may have been measured before or after the step.
    let measured: Offsets = (0..3).map(|index| (index, 0..=0)).collect();
    assert_eq!(after([0, -40 * ms, 0], |_| (), &measured), (Verdict::Invalid, vec![1]));
}

/// If one of three testers is cut off from the server, the server seems to have lost a third of the queries.
#[test]
fn a_tester_without_valid_replies_invalidates() {
    let cut_off = |answered: fn(usize) -> bool| {
        let mut fates = fair(3_000);
        let silent = fates.iter_mut().enumerate().filter(|(index, _)| !answered(*index));
        silent.for_each(|(_, fate)| fate.1 = None);
        merge(at_once(&fates), &Offsets::new()).unwrap().trial
    };
    let trial = cut_off(|index| index % 3 != 1);
    let reason = Reason::NothingCameBack { sent: 1_000, expected: 1_000 };
    let of_one = Reason::OfShard { shard: 1, reason: Box::new(reason) };
    assert_eq!((trial.verdict, trial.reasons), (Verdict::Invalid, vec![of_one]));
    // If the server answers none, or hardly any, of the testers' queries, the server has failed.
    for few in [cut_off(|index| index % 300 == 0), cut_off(|_| false)] {
        assert_eq!(few.verdict, Verdict::Failed, "{:?}", few.reasons);
    }
}

/// A datagram missed by one tester's sockets is not a reply to a query of a different tester.
#[test]
fn misses_of_one_tester_do_not_excuse_another() {
    let mut fates = fair(900);
    fates[4].1 = None;
    let missed_by = |index: usize| {
        let mut given = at_once(&fates);
        given[index].trial.tester_drops_at.missed = Some(5);
        merge(given, &Offsets::new()).unwrap().trial
    };
    assert_eq!(missed_by(0).verdict, Verdict::Failed);
    assert_eq!(missed_by(1).verdict, Verdict::Invalid);
    // Missed datagrams also do not excuse the loss if a different acceptance criterion is applied to the sum.
    assert_eq!(missed_by(0).tester_drops_at.missed, Some(0));
    assert!(!missed_by(0).is_in_doubt(Acceptance::ALL));
}

#[test]
fn each_tester_has_its_own_interface_and_intervals() {
    let mut given = shards_of(3, &fair(900));
    let interface = Some("eth1".into());
    let plan = &mut given[1].trial.shard.as_mut().unwrap().plan;
    plan.xdp = Some(XdpConfig { interface, mode: net::xdp::Mode::Auto });
    plan.interval = Some(Nanos::SECOND);
    assert_eq!(merged(given).unwrap().trial.verdict, Verdict::Passed);
}

#[test]
fn results_of_different_trials_are_rejected_by_file() {
    let of = |change: fn(&mut Vec<TesterResult>)| {
        let mut given = shards_of(3, &fair(900));
        change(&mut given);
        merged(given).unwrap_err().to_string()
    };
    fn plan_of(given: &mut TesterResult) -> &mut TrialPlan {
        &mut given.trial.shard.as_mut().unwrap().plan
    }
    for (said, words) in [
        (of(|all| all[2].trial.shard = None), "2.json: not the result of a shard"),
        (of(|all| drop(all.remove(1))), "shard 1 of 3 is missing"),
        (of(|all| all.push(all[0].clone())), "0.json and 0.json are both shard 0"),
        (
            of(|all| plan_of(&mut all[1]).first_name = 5),
            "1.json: its first_name is 5, and 0.json has 0",
        ),
        (
            of(|all| plan_of(&mut all[1]).shard.as_mut().unwrap().seed = 8),
            "1.json: its shard's seed is 8, and 0.json has 7",
        ),
        (of(|all| plan_of(&mut all[1]).shard.as_mut().unwrap().of = 4), "its shard's of is 4"),
        (of(|all| plan_of(&mut all[1]).rate = Qps(0)), "1.json: --rate 0"),
        (of(|all| plan_of(&mut all[1]).shard.as_mut().unwrap().index = 3), "1.json: --shard 3/3"),
    ] {
        assert!(said.contains(words), "{said}");
    }
    // Settings that each tester may choose do not count.
    let mut own_way = shards_of(3, &fair(900));
    plan_of(&mut own_way[1]).threads = 2;
    plan_of(&mut own_way[1]).source_ports = 8;
    assert!(merged(own_way).is_ok());
    let wrong = merge(shards_of(3, &fair(900)), &Offsets::from([(3, 1..=1)]));
    assert_eq!(wrong, Err(MergeError::NoSuchShard { index: 3, last: 2 }));
}

#[test]
fn interrupted_and_late_testers_are_named() {
    let mut given = shards_of(2, &fair(900));
    let plan_of_one = plan(900, Some((1, 2)));
    let reasons = vec![Reason::NotPreloaded { names: 3 }];
    let text = serde_json::to_string(&TrialResult::not_begun(&plan_of_one, reasons)).unwrap();
    given[1].trial = serde_json::from_str(&text).unwrap();
    let merged = merged(given).unwrap();
    assert_eq!(merged.trial.verdict, Verdict::Invalid);
    let words: Vec<String> = merged.trial.reasons.iter().map(ToString::to_string).collect();
    assert!(words[0].starts_with("shard 1: 3 of the names to be cached"), "{words:?}");
    assert_eq!(merged.trial.counts.sent, 450);
}
