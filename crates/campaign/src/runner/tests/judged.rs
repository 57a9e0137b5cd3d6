//! Tests of misconfigured DUTs, other programs and failed self-tests.

use method::reason::OtherUse;
use method::records::Wrong;
use method::warning::Warning;

use crate::record::Redo;
use crate::runner::simulated::reopened;

use super::*;

#[test]
fn a_failed_self_test_ends_the_campaign() {
    let folder = tempfile::tempdir().unwrap();
    let failing =
        || Simulated::new(250, &[(0, Event::Hangs), (1, Event::Hangs), (2, Event::Hangs)]);
    let (ended, entries, _) = go_on(&plan(), folder.path(), failing());
    let Err(CampaignError::SelfTest(failed)) = ended else { panic!("{ended:?}") };
    assert_eq!(incidents(&entries), [failed.to_string()], "announced when it happens");
    assert!(steps(&entries).iter().all(|step| matches!(step.point, Point::SelfTest(_))));
    // The failure is recorded only once. A resumed campaign ends with the same error.
    let (ended, again, hosts) = go_on(&plan(), folder.path(), Simulated::new(250, &[]));
    assert!(matches!(ended, Err(CampaignError::SelfTest(_))) && hosts.trials.get() == 0);
    assert_eq!(incidents(&again).len(), 1);
    // With `keep_going`, the campaign continues after the failed self-test.
    let mut hosts = Simulated::new(250, &[]);
    hosts.keep_going = true;
    let (ended, whole, _) = go_on(&plan(), folder.path(), hosts);
    ended.unwrap();
    let found = results(&plan(), &whole);
    let missing: Vec<&str> = found.without_result.iter().map(|of| of.point.as_str()).collect();
    assert!(missing.len() == 1 && missing[0].contains("self-test"), "{missing:?}");
    // The self-test is repeated after all other points have been measured. Its new result counts.
    let (mut archive, _) = reopened(&folder.path().join("run"));
    archive.append(&Entry::Redone(Redo::SelfTest)).unwrap();
    drop(archive);
    let before = steps(&whole).len();
    let (ended, redone, hosts) = go_on(&plan(), folder.path(), Simulated::new(250, &[]));
    ended.unwrap();
    assert_eq!(hosts.trials.get(), steps(&redone).len() - before, "only the self-test is repeated");
    let test = results(&plan(), &redone).self_tests[0].clone();
    assert!(test.passed == Some(Qps(1_500)) && test.complete, "{test:?}");
}

#[test]
fn a_first_trial_with_wrong_replies_marks_its_row() {
    let all: Vec<_> = (2..60).map(|at| (at, Event::Denies)).collect();
    let entries = journal_of(&plan(), 250, &all);
    let found = results(&plan(), &entries);
    let point = &found.duts[0].points[0];
    let missing = crate::results::NoResult::WrongReplies(Wrong::Rcode(3));
    assert_eq!((point.missing.as_ref(), point.figures.n), (Some(&missing), 0));
    assert!(missing.to_string().contains("every reply was wrong (NXDOMAIN)"), "{missing}");
    assert!(found.without_result.iter().any(|of| of.missing == missing), "{found:?}");
    assert!(incidents(&entries)[0].contains("does not forward dns64perf.test"));
    // If only a later trial has wrong replies, it is an ordinary failed trial.
    let entries = journal_of(&plan(), 250, &[(7, Event::Denies)]);
    assert!(incidents(&entries).is_empty(), "{:?}", incidents(&entries));
    let point = results(&plan(), &entries).duts[0].points[0].clone();
    assert!(point.missing.is_none() && point.figures.n > 0, "{point:?}");
}

#[test]
fn a_dut_with_wrong_replies_at_its_start_ends_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let mut hosts = Simulated::new(250, &[]);
    hosts.denies_at_start = true;
    let (ended, entries, _) = go_on(&plan(), folder.path(), hosts);
    let why = ended.unwrap_err().to_string();
    assert!(why.contains("it is not ready; every reply is wrong: NXDOMAIN"), "{why}");
    assert!(finished(&entries).is_empty());
}

/// A DUT counts as hung only if it does not reply at all. If a DUT sends wrong replies after an
/// overload, its trial fails, but the DUT does not count as hung.
#[test]
fn a_dut_with_wrong_replies_after_a_trial_has_failed_it() {
    let entries = journal_of(&plan(), 250, &[(7, Event::DeniesLater)]);
    assert!(
        incidents(&entries).iter().all(|what| !what.contains("hangs")),
        "{:?}",
        incidents(&entries)
    );
    let failed = finished(&entries)[7];
    assert_eq!((failed.verdict(), &failed.dut_end), (Verdict::Failed, &None));
    assert!(!entries.iter().any(|entry| matches!(entry, Entry::Repeated(_))));
}

/// If the DUT runs on the tester's host, the failed trial is repeated twice. The third trial is
/// used for the result, with a warning.
#[test]
fn failed_trials_are_repeated_while_other_programs_run() {
    let text = PLAN.replace("invalid-retries = 1", "invalid-retries = 3");
    let plan = Plan::parse(&text, Path::new("p.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut hosts = Simulated::new(250, &[]);
    hosts.others = Some(OtherUse { programs_pct: Some(60.0), ..OtherUse::default() });
    let (ended, entries, _) = go_on(&plan, folder.path(), hosts);
    ended.unwrap();
    let found = results(&plan, &entries);
    assert_eq!(found.duts[0].points[0].figures.median, Some(250.0));
    // Probes are not counted here, because an invalid probe is not repeated: the full trial
    // follows.
    let counts = |m: &&Measured| {
        let is_full = m.step.length == Length::Full && m.step.point.dut().is_some();
        is_full && m.verdict() != Verdict::Passed
    };
    let trials: Vec<&Measured> = finished(&entries).into_iter().filter(counts).collect();
    for three in trials.chunks(3) {
        let verdicts: Vec<Verdict> = three.iter().map(|m| m.verdict()).collect();
        assert_eq!(verdicts, [Verdict::Invalid, Verdict::Invalid, Verdict::Failed]);
        let is_noted = |m: &&Measured| matches!(m.warnings[..], [Warning::OtherPrograms { .. }]);
        assert!(three.iter().all(|m| m.step == three[0].step) && is_noted(&three[2]), "{three:?}");
    }
    assert!(!trials.is_empty());
}
