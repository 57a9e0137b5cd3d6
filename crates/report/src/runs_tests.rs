//! Tests of reports on simulated campaigns with several AuthDNS servers, failing DUTs or a changed
//! host.

use std::path::Path;

use campaign::plan::{Plan, Point};
use campaign::record::Entry;
use campaign::results::Results;
use campaign::runner::simulated::{Event, Simulated, go_on, journal_of};
use hosts::environment::Environment;

use crate::run::Run;
use crate::section::Section;
use crate::sections::tables;
use campaign::sequence::ConformMeasure;

const PLAN: &str = "name = 'x'\n[trial]\nduration = '1s'\npause = '0s'\nmax-burst = '500us'\n[search]\nmin = 100\nmax = 400\n\
    resolution = 100\nrepeat = 2\ninvalid-retries = 1\nprobe = '100ms'\n[self-test]\nmin = 500\nmax = 1500\nresolution = 500\nrepeat = 1\n\
    [measure]\naaaa-shares = [1]\n[measure.loads]\nshares = [0.5]\nduration = '6s'\ntransient = '1s'\nrepeat = 2\n[measure.closed-loop]\n\
    threads = [4]\nblocks = 1\n[[dut]]\ndriver = 'unbound'\n";

fn run(plan: &Plan, entries: &[Entry]) -> Run {
    let results = Results::compute(plan, Environment::for_tests(), entries);
    Run { name: "here".into(), results, notes: Vec::new() }
}

#[test]
fn rows_and_columns_name_the_authdns_of_a_point() {
    let text = PLAN.replace(
        "[measure]\n",
        "[[authdns]]\ndriver = 'nsd'\nnames = '10.0.0.0/12'\n[measure]\nauthdns = ['AuthDNS', 'NSD']\n",
    );
    let plan = Plan::parse(&text, Path::new("p.toml")).unwrap();
    let run = run(&plan, &journal_of(&plan, 250, &[]));
    let tables = tables(&run);
    let by_cores = tables
        .iter()
        .find(|t| t.title.starts_with("DNS64 performance by the number of CPU cores"))
        .unwrap();
    assert_eq!(by_cores.header, ["CPU cores", "1 with AuthDNS", "1 with NSD"]);
    assert!(tables[0].rows[1][1].contains("AuthDNS: NSD"), "{:?}", tables[0].rows);
    assert!(
        run.summary().iter().any(|line| line.contains("unproven in every result with NSD 1.0"))
    );
}

#[test]
fn a_dut_that_never_starts_is_a_marked_row() {
    let text = format!("{PLAN}[[dut]]\ndriver = 'bind'\n");
    let plan = Plan::parse(&text, Path::new("p.toml")).unwrap();
    let mut hosts = Simulated::new(250, &[]);
    hosts.broken = Some(("Unbound", 1));
    let folder = tempfile::tempdir().unwrap();
    let (ended, entries, _) = go_on(&plan, folder.path(), hosts);
    ended.unwrap();
    let tables = tables(&run(&plan, &entries));
    let marks = tables.iter().flat_map(|table| table.rows.iter().flatten());
    let mark = "not measured: Unbound did not start: exit status: 7";
    assert!(marks.filter(|cell| cell.contains(mark)).count() >= 2, "{tables:?}");
}

#[test]
fn a_dut_that_ends_in_the_checks_is_a_marked_row() {
    let text = PLAN.replace("[measure]\n", "[measure]\nconform = true\n");
    let plan = Plan::parse(&text, Path::new("p.toml")).unwrap();
    let finished = |entries: Vec<Entry>| {
        let of = |entry| if let Entry::Finished(measured) = entry { Some(*measured) } else { None };
        entries.into_iter().filter_map(of).collect::<Vec<_>>()
    };
    let calm = finished(journal_of(&plan, 250, &[]));
    let at = calm.iter().position(|m| matches!(m.step.point, Point::Conform(_))).unwrap();
    for (event, mark) in [(Event::Dies, "DIED: signal: 9"), (Event::Hangs, "HUNG")] {
        let entries = journal_of(&plan, 250, &[(at, event)]);
        let run = run(&plan, &entries);
        let tables = ConformMeasure.tables(&run);
        assert_eq!(tables[0].rows[0].last().unwrap(), mark);
        assert!(ConformMeasure.rows(&run).iter().all(|row| row.mark == mark), "{event:?}");
        let caveat = format!(
            "Unbound: {} during the conformance checks.",
            finished(entries)[at].dut_end.as_ref().unwrap()
        );
        assert!(run.summary().contains(&caveat), "{:?}", run.summary());
    }
}

#[test]
fn deaths_of_a_server_are_beside_its_number() {
    let plan = Plan::parse(PLAN, Path::new("p.toml")).unwrap();
    let entries = journal_of(&plan, 250, &[(3, Event::Dies), (4, Event::Dies), (5, Event::Dies)]);
    let run = run(&plan, &entries);
    assert!(run.summary()[0].contains("died in 3 of"), "{:?}", run.summary());
}

#[test]
fn a_host_that_changed_is_a_caveat() {
    let plan = Plan::parse(PLAN, Path::new("p.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let hosts = |kernel: &str, events: &[(usize, Event)]| {
        let environment = Environment { kernel: kernel.into(), ..Environment::for_tests().clone() };
        let mut hosts = Simulated::new(250, events);
        hosts.facts = vec![("dut".into(), environment)];
        hosts
    };
    let (killed, _, _) = go_on(&plan, folder.path(), hosts("Linux 1", &[(3, Event::Killed)]));
    assert!(killed.is_err());
    let (ended, whole, _) = go_on(&plan, folder.path(), hosts("Linux 2", &[]));
    ended.unwrap();
    let run = run(&plan, &whole);
    let change = run.results.host_changes[0].to_string();
    assert!(run.summary().contains(&change), "{:?}", run.summary());
}
