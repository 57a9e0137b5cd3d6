//! Tests of the runner on simulated hosts.

use std::path::Path;

use method::narrow::Length;
use method::verdict::Verdict;

use crate::results::Results;
use crate::runner::simulated::{self, Event, Simulated, go_on, journal_of};

use super::*;

/// Returns hosts on which every start of Unbound fails from start number `start` on.
fn broken_from(start: usize) -> Simulated {
    let mut hosts = Simulated::new(250, &[]);
    hosts.broken = Some(("Unbound", start));
    hosts
}

const PLAN: &str = "name = 'x'\n[trial]\nduration = '1s'\npause = '0s'\nmax-burst = '500us'\n[search]\nmin = 100\nmax = 400\n\
    resolution = 100\nrepeat = 2\ninvalid-retries = 1\nprobe = '100ms'\n[self-test]\nmin = 500\nmax = 1500\nresolution = 500\nrepeat = 1\n\
    [measure]\naaaa-shares = [1]\n[measure.loads]\nshares = [0.5]\nduration = '6s'\ntransient = '1s'\nrepeat = 2\n[measure.closed-loop]\n\
    threads = [4]\nblocks = 1\n[[dut]]\ndriver = 'unbound'\n";

fn plan() -> Plan {
    Plan::parse(PLAN, Path::new("p.toml")).unwrap()
}

fn results(plan: &Plan, entries: &[Entry]) -> Results {
    Results::compute(plan, Environment::for_tests(), entries)
}

fn finished(entries: &[Entry]) -> Vec<&Measured> {
    let mut all = Vec::new();
    for entry in entries {
        if let Entry::Finished(measured) = entry {
            all.push(&**measured);
        }
    }
    all
}

fn steps(entries: &[Entry]) -> Vec<Step> {
    finished(entries).iter().map(|m| m.step.clone()).collect()
}

fn incidents(entries: &[Entry]) -> Vec<&str> {
    let mut all = Vec::new();
    for entry in entries {
        if let Entry::Incident { what, .. } = entry {
            all.push(what.as_str());
        }
    }
    all
}

#[test]
fn a_campaign_measures_every_point_once() {
    let entries = journal_of(&plan(), 250, &[]);
    let found = results(&plan(), &entries);
    assert!(found.complete && found.incidents.is_empty(), "{:?}", found.incidents);
    let dut = &found.duts[0];
    assert_eq!((dut.points.len(), dut.loads.len(), dut.closed_loops.len()), (2, 1, 1));
    assert_eq!(dut.points[0].figures.median, Some(250.0), "the highest rate tried that passes");
    assert_eq!(dut.loads[0].rate, Some(Qps(125)));
    assert_eq!((dut.loads[0].found.trials, dut.loads[0].found.passed), (2, Some(true)));
    assert_eq!(dut.closed_loops[0].time_ms.map(|t| (t.n, t.mean)), Some((2, 11.0)));
    assert!(Recorded::new(&plan(), &entries).has_result(&plan().points()[0]));
}

/// A readiness check has five queries, which are too few for six testers. A single tester sends all
/// of them.
#[test]
fn readiness_checks_use_a_single_tester() {
    let folder = tempfile::tempdir().unwrap();
    let mut hosts = Simulated::new(250, &[]);
    hosts.testers = 6;
    let (ended, entries, hosts) = go_on(&plan(), folder.path(), hosts);
    ended.unwrap();
    assert!(results(&plan(), &entries).complete && hosts.readiness_checks.get() > 0);
}

/// If one of several testers makes a trial invalid, the trial is repeated like any other invalid
/// trial.
#[test]
fn a_trial_for_which_a_tester_was_not_ready_is_repeated() {
    let calm = steps(&journal_of(&plan(), 250, &[]));
    let entries = journal_of(&plan(), 250, &[(3, Event::NotReady)]);
    let found = results(&plan(), &entries);
    assert!(found.complete && found.incidents.is_empty(), "{:?}", found.incidents);
    assert_eq!(found.duts[0].points[0].figures.median, Some(250.0));
    let all = finished(&entries);
    let invalid = all[3].at_rate().unwrap();
    assert_eq!((invalid.verdict, all.len()), (Verdict::Invalid, calm.len() + 1));
    assert!(invalid.reasons[0].to_string().starts_with("shard 1: load2: "));
    assert_eq!((&all[3].step, &all[4].step), (&calm[3], &calm[3]));
}

#[test]
fn source_prefixes_match_the_ip_version() {
    let from = "source-addresses = ['2001:2:0:ff::/64', '198.19.0.0/24']\n[search]";
    let plan = Plan::parse(&PLAN.replacen("[search]", from, 1), Path::new("p.toml")).unwrap();
    let entries = journal_of(&plan, 250, &[]);
    let trials: Vec<_> = finished(&entries).into_iter().filter_map(Measured::at_rate).collect();
    for version in ["[2001:", "198."] {
        assert!(trials.iter().any(|trial| trial.server.starts_with(version)), "{version}");
    }
    assert!(trials.iter().all(|trial| trial.settings.source_addresses == Some(256)));
}

#[test]
fn a_campaign_killed_in_any_trial_resumes_exactly() {
    let whole = journal_of(&plan(), 250, &[]);
    let all = steps(&whole).len();
    for killed in 0..all - 1 {
        let folder = tempfile::tempdir().unwrap();
        let hosts = Simulated::new(250, &[(killed, Event::Killed)]);
        let (ended, before, _) = go_on(&plan(), folder.path(), hosts);
        assert!(matches!(ended, Err(CampaignError::Interrupted)), "killed in trial {killed}");
        let done = steps(&before).len();
        let (ended, after, hosts) = go_on(&plan(), folder.path(), Simulated::new(250, &[]));
        ended.unwrap();
        assert_eq!(steps(&after), steps(&whole), "killed in trial {killed}");
        assert_eq!(hosts.trials.get(), all - done, "killed in trial {killed}");
    }
}

/// A power failure may leave any prefix of the journal's lines.
#[test]
fn a_campaign_goes_on_from_any_line_of_its_journal() {
    let whole_folder = tempfile::tempdir().unwrap();
    let (ended, whole, _) = go_on(&plan(), whole_folder.path(), Simulated::new(250, &[]));
    ended.unwrap();
    let text = std::fs::read_to_string(whole_folder.path().join("run/journal.jsonl")).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for cut in 0..=lines.len() {
        let folder = tempfile::tempdir().unwrap();
        drop(
            Archive::create(&folder.path().join("run"), &plan(), Environment::for_tests()).unwrap(),
        );
        std::fs::write(folder.path().join("run/journal.jsonl"), lines[..cut].concat()).unwrap();
        let (ended, entries, _) = go_on(&plan(), folder.path(), Simulated::new(250, &[]));
        ended.unwrap();
        assert_eq!(steps(&entries), steps(&whole), "cut off after {cut} lines");
        let figures = |entries: &[Entry]| results(&plan(), entries).duts[0].points[0].figures;
        assert_eq!(figures(&entries), figures(&whole), "cut off after {cut} lines");
    }
}

#[test]
fn a_dead_or_hung_dut_is_restarted_for_the_same_trial() {
    let calm = steps(&journal_of(&plan(), 250, &[]));
    // The self-test has two trials, so trial 3 is a trial of the DUT.
    for event in [Event::Dies, Event::Hangs] {
        let entries = journal_of(&plan(), 250, &[(3, event)]);
        assert_eq!(steps(&entries), calm, "{event:?}");
        assert_eq!(incidents(&entries).len(), 1, "{event:?}");
        let words =
            if event == Event::Dies { "the DUT ended with signal: 9" } else { "the DUT hangs" };
        assert!(incidents(&entries)[0].contains(words), "{:?}", incidents(&entries));
    }
    // The DUT dies in the trial and in both repetitions. The result of the second repetition is
    // used.
    let entries = journal_of(&plan(), 250, &[(3, Event::Dies), (4, Event::Dies), (5, Event::Dies)]);
    let ended = finished(&entries).into_iter().find(|m| m.dut_end.is_some()).unwrap();
    assert_eq!(ended.dut_end, Some(DutEnd::Died("signal: 9".into())));
    // One of the two searches then has no rate. The fourth incident is the missing median for the
    // load trials.
    assert_eq!((ended.verdict(), incidents(&entries).len()), (Verdict::Failed, 4));
    // The journal contains each repeated trial with its counts. The report shows the number of
    // repeated trials beside the result.
    let repeated: Vec<&Measured> = entries
        .iter()
        .filter_map(
            |entry| if let Entry::Repeated(measured) = entry { Some(&**measured) } else { None },
        )
        .collect();
    assert!(repeated.len() == 2 && repeated.iter().all(|m| m.counts().lost > 0), "{repeated:?}");
    let found = results(&plan(), &entries);
    let point = found.duts[0].points.iter().find(|point| point.ends.died > 0).unwrap();
    let (of, words) = (point.ends.of, point.ends.in_words().unwrap());
    assert_eq!((point.ends.died, words), (3, format!("died in 3 of {of} trials")));
}

#[test]
fn a_dut_that_ends_at_a_load_is_a_finding_and_not_repeated() {
    let calm = journal_of(&plan(), 250, &[]);
    let at = steps(&calm).iter().position(|step| matches!(step.point, Point::Load(_))).unwrap();
    for (event, end) in
        [(Event::Dies, DutEnd::Died("signal: 9".into())), (Event::Hangs, DutEnd::Hung)]
    {
        let entries = journal_of(&plan(), 250, &[(at, event)]);
        assert_eq!(steps(&entries), steps(&calm), "{event:?}");
        let load = results(&plan(), &entries).duts[0].loads[0].found.clone();
        assert_eq!(
            (load.ended, load.trials, load.cprdp.is_none()),
            (vec![end], 2, true),
            "{event:?}"
        );
    }
}

#[test]
fn invalid_trials_are_repeated_and_then_given_up() {
    let calm = journal_of(&plan(), 250, &[]);
    let at = steps(&calm).iter().position(|step| matches!(step.point, Point::Load(_))).unwrap();
    let once = results(&plan(), &journal_of(&plan(), 250, &[(at, Event::Invalid)])).duts[0].loads
        [0]
    .clone();
    assert_eq!((once.found.trials, once.found.invalid, once.found.complete), (2, 1, true));
    let all: Vec<_> = (at..at + 4).map(|at| (at, Event::Invalid)).collect();
    let never = results(&plan(), &journal_of(&plan(), 250, &all)).duts[0].loads[0].clone();
    assert_eq!((never.found.trials, never.found.invalid, never.found.complete), (0, 4, true));
    assert_eq!(never.found.missing, Some(crate::results::NoResult::Invalid));
}

#[test]
fn a_load_without_a_worst_case_rate_is_complete() {
    let text = "name = 'x'\n[trial]\nduration = '1s'\npause = '0s'\nmax-burst = '500us'\n[search]\nmin = 100\nmax = 400\n\
        resolution = 100\nrepeat = 2\n[measure.loads]\nshares = [0.5]\nduration = '6s'\ntransient = '1s'\n\
        [[dut]]\ndriver = 'unbound'\n";
    let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (ended, first, hosts) = go_on(&plan, folder.path(), Simulated::new(50, &[]));
    ended.unwrap();
    assert!(!hosts.started.borrow().is_empty());
    let found = results(&plan, &first);
    let load = &found.duts[0].loads[0].found;
    assert_eq!(
        (load.complete, load.missing.clone()),
        (true, Some(crate::results::NoResult::NoRate))
    );
    let figures = &found.duts[0].points[0].figures;
    assert_eq!((figures.n, figures.without_pass, figures.median), (2, 2, None));
    let open: Vec<&str> = found.without_result.iter().map(|of| of.point.as_str()).collect();
    assert_eq!((open, found.complete), (vec!["Unbound, 1 core, load 0.5"], false));
    let (ended, again, hosts) = go_on(&plan, folder.path(), Simulated::new(50, &[]));
    ended.unwrap();
    assert_eq!((hosts.trials.get(), hosts.started.borrow().len()), (0, 0), "nothing is left to do");
    assert_eq!(
        again[1..],
        first,
        "and no entry is repeated; the first line was written when the journal was created"
    );
}

#[test]
fn a_load_waits_for_the_search_of_its_worst_case() {
    let recorded_of = |entries: &[Entry]| {
        let (plan, points) = (plan(), plan().points());
        let load = points.iter().find(|point| matches!(point, Point::Load(_))).unwrap().clone();
        Recorded::new(&plan, entries).is_complete(&load)
    };
    let whole = journal_of(&plan(), 50, &[]);
    let worst = |entry: &Entry| match entry {
        Entry::Finished(m) => {
            matches!(&m.step.point, Point::Search(conditions) if conditions.is_worst_case())
        }
        _ => false,
    };
    let last = whole.iter().rposition(worst).unwrap();
    assert!(recorded_of(&whole) && recorded_of(&whole[..=last]));
    assert!(!recorded_of(&whole[..last]) && !recorded_of(&[]));
}

#[test]
fn governors_are_set_for_points_and_restored_after() {
    let text = PLAN.replace(
        "threads = [4]\n",
        "threads = [4]\ngovernors = ['performance', 'ondemand', 'schedutil']\n",
    );
    let plan = Plan::parse(&text, Path::new("p.toml")).unwrap();
    let with = |governors: &'static [&'static str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut hosts = Simulated::new(250, &[]);
        hosts.governors = governors;
        let (ended, entries, hosts) = go_on(&plan, folder.path(), hosts);
        ended.unwrap();
        let (ended, again, later) = go_on(&plan, folder.path(), Simulated::new(250, &[]));
        ended.unwrap();
        assert_eq!(
            (later.trials.get(), later.governed.borrow().len()),
            (0, 0),
            "impossible points are not tried again"
        );
        assert_eq!(
            again[1..],
            entries,
            "except for the first line, which was written when the journal was created"
        );
        let found = results(&plan, &entries);
        assert!(found.complete, "impossible points count as complete");
        let words: Vec<_> = found.duts[0]
            .closed_loops
            .iter()
            .map(|at| at.missing.as_ref().map(ToString::to_string))
            .collect();
        (words, hosts.governed.borrow().clone())
    };
    let (words, governed) = with(&["ondemand", "performance"]);
    assert_eq!((&words[0], &words[1]), (&None, &None));
    assert!(
        words[2]
            .as_ref()
            .unwrap()
            .ends_with("no frequency governor schedutil, only ondemand, performance"),
        "{words:?}"
    );
    assert_eq!(
        governed,
        ["performance", "performance is over", "ondemand", "ondemand is over", "schedutil"]
    );
    let (words, _) = with(&[]);
    assert_eq!(words[0], None, "CPUs that do not scale are at their frequency");
    for word in &words[1..] {
        assert!(
            word.as_ref().unwrap().starts_with("not possible here: the DUT's host has no"),
            "{words:?}"
        );
    }
}

/// The text of each measurement point names the DUT's AuthDNS, and each AuthDNS has its own
/// self-test.
#[test]
fn a_dut_is_measured_with_several_authdns_servers() {
    let text = PLAN.replace(
        "[measure]\n",
        "[[authdns]]\ndriver = 'nsd'\nnames = '10.0.0.0/12'\n[measure]\nauthdns = ['AuthDNS', 'NSD']\n",
    );
    let plan = Plan::parse(&text, Path::new("p.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (ended, entries, hosts) = go_on(&plan, folder.path(), Simulated::new(250, &[]));
    ended.unwrap();
    let auths = hosts.auths.borrow();
    assert_eq!(auths[..2], ["AuthDNS", "NSD"], "both are tried out before anything is measured");
    let found = results(&plan, &entries);
    assert!(found.complete && found.incidents.is_empty(), "{:?}", found.incidents);
    let asked: Vec<_> =
        found.duts[0].points.iter().map(|p| p.conditions.place.authdns.clone().unwrap()).collect();
    assert_eq!(asked, ["AuthDNS", "NSD", "AuthDNS", "NSD"], "the worst case, and one AAAA share");
    assert!(found.duts[0].points.iter().all(|p| p.complete && p.figures.n == 2));
    assert_eq!((found.duts[0].loads.len(), found.duts[0].closed_loops.len()), (2, 2));
    let tests: Vec<_> =
        found.self_tests.iter().map(|test| (test.server.as_str(), test.validates_trials)).collect();
    assert_eq!(tests, [("AuthDNS", true), ("NSD", true)]);
    let known: Vec<_> =
        found.authdns.iter().map(|auth| (auth.version.as_str(), auth.counts)).collect();
    assert_eq!(known, [("AuthDNS 1.0", true), ("NSD 1.0", false)]);
    let servers: Vec<_> =
        found.configurations.iter().map(|configuration| configuration.server.as_str()).collect();
    assert!(
        ["AuthDNS", "AuthDNS NSD", "Unbound"].iter().all(|server| servers.contains(server)),
        "{servers:?}"
    );
}

/// A self-test with one AuthDNS does not validate trials with a different AuthDNS.
#[test]
fn trials_are_validated_by_the_matching_self_test() {
    let text = PLAN.replace(
        "[measure]\n",
        "[[authdns]]\ndriver = 'nsd'\n[measure]\nauthdns = ['AuthDNS', 'NSD']\n",
    );
    let plan = Plan::parse(&text, Path::new("p.toml")).unwrap();
    let entries = journal_of(&plan, 250, &[]);
    let points = plan.points();
    let with = |name: &str| points.iter().find(|p| p.authdns() == Some(name)).unwrap();
    let is_of_nsd = |entry: &Entry| matches!(entry, Entry::Finished(m) if matches!(&m.step.point, Point::SelfTest(at) if at.named.is_some()));
    let without: Vec<Entry> = entries.iter().filter(|entry| !is_of_nsd(entry)).cloned().collect();
    assert!(without.len() < entries.len());
    let both = Recorded::new(&plan, &entries);
    assert!(both.allowed(with("NSD")).is_some() && both.allowed(with("AuthDNS")).is_some());
    let one = Recorded::new(&plan, &without);
    assert_eq!(
        (one.allowed(with("NSD")), one.allowed(with("AuthDNS"))),
        (None, both.allowed(with("AuthDNS")))
    );
    let unproven = |entries: &[Entry]| {
        results(&plan, entries)
            .noncompliance
            .contains(&method::noncompliance::Noncompliance::Unproven)
    };
    assert!(unproven(&without) && !unproven(&entries));
}

/// Returns [`PLAN`] with a second DUT, BIND.
fn two_duts() -> Plan {
    let text = format!("{PLAN}[[dut]]\ndriver = 'bind'\n");
    Plan::parse(&text, Path::new("p.toml")).unwrap()
}

#[test]
fn a_dut_that_never_starts_is_a_marked_row() {
    let (plan, folder) = (two_duts(), tempfile::tempdir().unwrap());
    let (ended, entries, hosts) = go_on(&plan, folder.path(), broken_from(1));
    ended.unwrap();
    // Both starts happen in the check before the first trial.
    assert_eq!(hosts.started.borrow().iter().filter(|name| *name == "Unbound").count(), 2);
    let found = results(&plan, &entries);
    assert!(!found.complete && found.duts[1].points.iter().all(|point| point.complete));
    let recorded = Recorded::new(&plan, &entries);
    assert_eq!(recorded.version("Unbound").as_deref(), Some("Unbound 1.0"));
    let of_unbound: Vec<Point> =
        plan.points().into_iter().filter(|point| point.dut() == Some("Unbound")).collect();
    assert!(!of_unbound.is_empty() && of_unbound.iter().all(|point| !recorded.has_result(point)));
    // A resumed run starts Unbound again, and measures the incomplete points.
    let (ended, entries, _) = go_on(&plan, folder.path(), Simulated::new(250, &[]));
    ended.unwrap();
    assert!(results(&plan, &entries).complete);
}

#[test]
fn a_campaign_none_of_whose_duts_starts_ends_at_once() {
    let (plan, folder) = (plan(), tempfile::tempdir().unwrap());
    let (ended, entries, _) = go_on(&plan, folder.path(), broken_from(1));
    let Err(error @ CampaignError::NotReady(_)) = ended else { panic!("{ended:?}") };
    assert!(error.to_string().contains("exit status: 7") && finished(&entries).is_empty());
}

#[test]
fn a_dut_that_stops_starting_is_given_up() {
    // Unbound starts only once, in the check before the first trial.
    let (plan, folder) = (two_duts(), tempfile::tempdir().unwrap());
    let (ended, entries, hosts) = go_on(&plan, folder.path(), broken_from(2));
    ended.unwrap();
    assert_eq!(hosts.started.borrow().iter().filter(|name| *name == "Unbound").count(), 3);
    assert_eq!(incidents(&entries).len(), 2, "{:?}", incidents(&entries));
    let found = results(&plan, &entries);
    assert!(!found.complete && found.duts[1].points.iter().all(|point| point.complete));
    let words = found.duts[0].points[0].missing.as_ref().unwrap().to_string();
    assert!(words.contains("exit status: 7"), "{words}");
}

#[test]
fn names_never_repeat_and_more_names_need_a_restart() {
    let plan = with_few_names("1s");
    let folder = tempfile::tempdir().unwrap();
    let (ended, _, hosts) = go_on(&plan, folder.path(), Simulated::new(350, &[]));
    ended.unwrap();
    let all = hosts.names.borrow();
    let size = plan.auth.names.count();
    for (i, &(start, first, count)) in all.iter().enumerate() {
        assert!(first + count <= size, "{all:?}");
        for &(other, from, names) in &all[..i] {
            assert!(other != start || from + names <= first, "trial {i} repeats names: {all:?}");
        }
    }
    let searches = 2;
    let starts: std::collections::BTreeSet<usize> = all.iter().map(|of| of.0).collect();
    assert!(starts.len() > searches, "a search took more names than there are: {all:?}");
    // A trial cannot be executed if it needs more names than the block has for a search. If the
    // readiness checks use the whole block, there are no names for a search.
    let none = crate::plan::AuthPlan {
        names: "10.0.0.0/26".parse().unwrap(),
        ..with_few_names("1s").auth
    };
    for plan in [with_few_names("10s"), Plan { auth: none, ..with_few_names("1s") }] {
        let folder = tempfile::tempdir().unwrap();
        let (ended, ..) = go_on(&plan, folder.path(), Simulated::new(1000, &[]));
        assert!(matches!(ended, Err(CampaignError::Trial { is_usage: true, .. })));
    }
}

/// Returns a plan whose zone file has 768 names for a search. Its trials have the duration
/// `duration`.
fn with_few_names(duration: &str) -> Plan {
    let text = format!(
        "name = 'x'\n[auth]\ndriver = 'nsd'\nnames = '10.0.0.0/22'\n[trial]\nduration = '{duration}'\npause = '0s'\n\
         max-burst = '500us'\n[search]\nmin = 100\nmax = 400\nresolution = 50\nrepeat = 2\n[[dut]]\ndriver = 'unbound'\n"
    );
    Plan::parse(&text, Path::new("p.toml")).unwrap()
}

#[test]
fn a_deviating_trial_ends_its_point() {
    let mut entries = journal_of(&plan(), 250, &[]);
    let at = entries.iter().position(|entry| match entry {
        Entry::Finished(m) => {
            matches!(m.step.point, Point::Search(_)) && m.step.length == Length::Full
        }
        _ => false,
    });
    let Some(Entry::Finished(m)) = at.map(|at| &mut entries[at]) else { panic!("no full trial") };
    let deviation = method::evidence::Deviation::CachedShare { wanted: 0.0, real: 0.5 };
    let TaskResult::Trial(trial) = &mut m.found else { panic!("a search is at rates") };
    (trial.verdict, trial.deviation) = (Verdict::Invalid, Some(deviation));
    let point = m.step.point.clone();
    let (plan, recorded) = (plan(), entries);
    let replay = Recorded::new(&plan, &recorded).replay(&point).unwrap();
    assert_eq!((replay.due(), replay.void), (None, Some(deviation)));
}

/// Returns [`PLAN`] with conformance checks.
fn checking() -> Plan {
    let text = PLAN.replace("[measure]\n", "[measure]\nconform = true\n");
    Plan::parse(&text, Path::new("p.toml")).unwrap()
}

/// Returns the steps of a campaign without events, and the number of the trial in which the checks
/// begin. The first of these trials runs all checks, and each of the other trials runs the checks
/// for one variant.
fn checks_in(plan: &Plan) -> (Vec<Step>, usize) {
    let calm = steps(&journal_of(plan, 250, &[]));
    let at: Vec<usize> = (0..calm.len()).filter(|&at| calm[at].point.is_checked()).collect();
    assert_eq!(at.len(), variants(plan), "once with each variant");
    assert!(calm[at[0]].point.variant().unwrap().is_usual());
    (calm, at[0])
}

/// Returns the number of configurations in which the DUT's answers are checked.
fn variants(plan: &Plan) -> usize {
    plan.duts[0].driver.variants(plan.trial.prefix).len()
}

#[test]
fn answers_are_checked_once_with_a_separate_authdns() {
    let (plan, folder) = (checking(), tempfile::tempdir().unwrap());
    let (ended, entries, hosts) = go_on(&plan, folder.path(), Simulated::new(250, &[]));
    ended.unwrap();
    let auths = hosts.auths.borrow();
    assert_eq!(
        auths[..2],
        ["AuthDNS", "conform"],
        "both are tried out before anything is measured"
    );
    let started = auths.iter().filter(|auth| *auth == "conform").count();
    assert_eq!(started, 1 + variants(&plan), "tried out, then once with each variant");
    let found = results(&plan, &entries);
    assert!(found.complete && found.incidents.is_empty(), "{:?}", found.incidents);
    let conform = found.duts[0].conform.as_ref().unwrap();
    let counts = conform.counts.unwrap();
    assert_eq!((counts.must.passed, counts.must.failed, counts.should.not_tried), (1, 1, 1));
    assert_eq!(conform.report.as_ref().unwrap().version, "Unbound 1.0");
    assert!(conform.complete && conform.missing.is_none() && conform.ended.is_none());
    let servers: Vec<_> =
        found.configurations.iter().map(|configuration| configuration.server.as_str()).collect();
    assert!(
        ["AuthDNS conform", "Unbound for conform", "Unbound for conform, without validation"]
            .iter()
            .all(|name| servers.contains(name)),
        "{servers:?}"
    );
    let point = plan.points().into_iter().find(Point::is_checked).unwrap();
    assert!(Recorded::new(&plan, &entries).has_result(&point));
}

#[test]
fn a_dut_that_ends_in_checks_is_not_checked_again() {
    let plan = checking();
    let (calm, at) = checks_in(&plan);
    let point = &calm[at].point;
    for (event, end) in
        [(Event::Dies, DutEnd::Died("signal: 9".into())), (Event::Hangs, DutEnd::Hung)]
    {
        let entries = journal_of(&plan, 250, &[(at, event)]);
        assert_eq!(steps(&entries), calm, "{event:?}");
        assert_eq!(incidents(&entries).len(), 1, "{event:?}");
        let found = results(&plan, &entries);
        let conform = found.duts[0].conform.clone().unwrap();
        assert_eq!((conform.complete, conform.ended), (true, Some(end)), "{event:?}");
        assert_eq!(conform.report.is_none(), event == Event::Dies, "completed checks are kept");
        assert!(Recorded::new(&plan, &entries).has_result(point), "{event:?}");
    }
}

/// If the DUT dies in one variant, the result is labelled with that variant, and the results of the
/// other variants remain.
#[test]
fn a_dut_that_ends_in_one_variant_keeps_its_other_checks() {
    let plan = checking();
    let (calm, at) = checks_in(&plan);
    let entries = journal_of(&plan, 250, &[(at + 1, Event::Dies)]);
    assert_eq!(steps(&entries), calm);
    let conform = results(&plan, &entries).duts[0].conform.clone().unwrap();
    assert_eq!(conform.ended, Some(DutEnd::Died("signal: 9".into())));
    assert_eq!(conform.ended_in.as_deref(), Some("with the prefix 3fff:64::/32"));
    assert_eq!(conform.report.unwrap().outcomes.len(), 3);

    let mut entries = journal_of(&plan, 250, &[]);
    for entry in &mut entries {
        let Entry::Finished(measured) = entry else { continue };
        let is_last = measured.step.point == calm[at + variants(&plan) - 1].point;
        if let (true, TaskResult::Conform(trial)) = (is_last, &mut measured.found) {
            (trial.report, trial.why) = (None, "it shows no prefix".into());
        }
    }
    let conform = results(&plan, &entries).duts[0].conform.clone().unwrap();
    let words = conform.missing.unwrap().to_string();
    assert_eq!(words, "not checked: without validation: it shows no prefix");
    assert!(conform.complete && conform.counts.is_some());
}

#[test]
fn checks_that_were_killed_are_made_again() {
    let plan = checking();
    let (calm, at) = checks_in(&plan);
    let folder = tempfile::tempdir().unwrap();
    let killed = Simulated::new(250, &[(at, Event::Killed)]);
    let (ended, before, _) = go_on(&plan, folder.path(), killed);
    assert!(matches!(ended, Err(CampaignError::Interrupted)));
    assert_eq!(steps(&before), calm[..at]);
    let (ended, after, hosts) = go_on(&plan, folder.path(), Simulated::new(250, &[]));
    ended.unwrap();
    assert_eq!((steps(&after), hosts.trials.get()), (calm.clone(), calm.len() - at));
    let (ended, _, hosts) = go_on(&plan, folder.path(), Simulated::new(250, &[]));
    ended.unwrap();
    assert_eq!((hosts.trials.get(), hosts.started.borrow().len()), (0, 0), "nothing is left to do");
}

/// If no check could be executed, the result contains a reason instead of the counts.
#[test]
fn a_dut_without_checks_has_a_reason_and_no_result() {
    let plan = checking();
    let mut entries = journal_of(&plan, 250, &[]);
    for entry in &mut entries {
        let Entry::Finished(measured) = entry else { continue };
        if let TaskResult::Conform(trial) = &mut measured.found {
            (trial.report, trial.why) = (None, "it shows no prefix".into());
        }
    }
    let found = results(&plan, &entries);
    let conform = found.duts[0].conform.as_ref().unwrap();
    let words = conform.missing.as_ref().unwrap().to_string();
    assert_eq!((conform.complete, words.as_str()), (true, "not checked: it shows no prefix"));
    let point = plan.points().into_iter().find(Point::is_checked).unwrap();
    assert!(!Recorded::new(&plan, &entries).has_result(&point));
}

/// A measurement point must not mix searches of two versions.
#[test]
fn a_server_that_is_upgraded_in_the_middle_ends_the_campaign() {
    let folder = tempfile::tempdir().unwrap();
    let upgraded = |at| {
        let mut hosts = Simulated::new(250, &[]);
        hosts.upgraded_at = at;
        hosts
    };
    let (ended, before, _) = go_on(&plan(), folder.path(), upgraded(30));
    let why = ended.unwrap_err().to_string();
    assert!(why.contains("was Unbound 1.0") && why.contains("is Unbound 2.0 now"), "{why}");
    let (ended, refused, hosts) = go_on(&plan(), folder.path(), upgraded(0));
    assert!(ended.is_err());
    assert_eq!((hosts.trials.get(), steps(&refused)), (0, steps(&before)));
    let (ended, whole, _) = go_on(&plan(), folder.path(), Simulated::new(250, &[]));
    ended.unwrap();
    assert!(results(&plan(), &whole).complete);
}

/// A resumed campaign continues after a host has changed. The report names the measurement points
/// that have trials from before and after the change.
#[test]
fn a_host_changed_during_an_interruption_is_a_caveat() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = |kernel: &str, memory, events: &[(usize, Event)]| {
        let known = Environment::for_tests().clone();
        let environment = Environment { kernel: kernel.into(), memory, ..known };
        let mut hosts = Simulated::new(250, events);
        hosts.facts = ["tester", "dut"].map(|role| (role.into(), environment.clone())).into();
        hosts.facts[0].1.kernel = "Linux 1".into();
        hosts
    };
    let changes = |entries: &[Entry]| results(&plan(), entries).host_changes;
    let uninterrupted = steps(&journal_of(&plan(), 250, &[]));
    let is_within = |at: &usize| {
        let two = &uninterrupted[at - 1..=*at];
        matches!(two[0].point, Point::Search(_)) && two[0].point == two[1].point
    };
    let at = (1..uninterrupted.len()).find(is_within).unwrap();
    let killed = hosts("Linux 1", 1, &[(at, Event::Killed)]);
    let (ended, before, _) = go_on(&plan(), folder.path(), killed);
    assert!(matches!(ended, Err(CampaignError::Interrupted)));
    assert!(changes(&before).is_empty());
    let after = hosts("Linux 2", 2, &[(3, Event::Killed)]);
    let (ended, _, _) = go_on(&plan(), folder.path(), after);
    assert!(matches!(ended, Err(CampaignError::Interrupted)));
    // A change is recorded only once. Changes of facts that do not affect results, such as the
    // memory size, are not recorded.
    let (ended, whole, _) = go_on(&plan(), folder.path(), hosts("Linux 2", 3, &[]));
    ended.unwrap();
    let changes = changes(&whole);
    let [change] = &changes[..] else { panic!("{changes:?}") };
    let finished = steps(&before).len();
    assert_eq!((&change.roles[..], change.trials_before), (&["dut".to_owned()][..], finished));
    let [point] = &change.points[..] else { panic!("one point was interrupted: {change:?}") };
    assert_eq!(
        change.to_string(),
        format!(
            "The host of dut changed after {finished} trials of this run: kernel was Linux 1, now Linux 2. \
             Points with trials from before and after the change: {point}."
        )
    );
}

#[test]
fn a_changed_loopback_machine_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    let begun = Environment::for_tests();
    let archive = Archive::create(&run_folder, &plan(), begun).unwrap();
    let (plan, interruption, mut watcher) = (plan(), Interruption::new(), simulated::NoWatcher);
    let hosts = Simulated::new(250, &[]);
    let mut run = Campaign::new(&plan, hosts, archive, Vec::new(), &interruption, &mut watcher);
    run.record_machine(begun.clone()).unwrap();
    assert!(run.entries.is_empty());
    let other = Environment { cpus: begun.cpus + 1, ..begun.clone() };
    for _ in 0..2 {
        run.record_machine(other.clone()).unwrap();
    }
    assert_eq!(run.entries.len(), 1);
    let changes = results(&plan, &run.entries).host_changes;
    assert_eq!((&changes[0].facts[0].what[..], changes.len()), ("CPU", 1));
    assert!(
        changes[0].to_string().starts_with("The machine changed after 0 trials"),
        "{changes:?}"
    );
}

mod judged;
