//! Checks that every value is the same in all outputs. The tests compare journal, JSON, CSV, tables, figures and
//! sentences of simulated campaigns. The campaigns have varying capacities, invalid trials and interruptions.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use campaign::plan::{AtShare, Conditions, Cores, Plan, Point};
use campaign::record::Entry;
use campaign::results::Results;
use campaign::runner::simulated::{Event, journal_of_varying};
use hosts::environment::Environment;
use method::verdict::Verdict;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;
use units::Share;

use crate::chart::read::{Mark, marks};
use crate::csv;
use crate::run::Run;
use crate::sections::{figures, tables};
use crate::table::Table;

/// A simulated campaign.
#[derive(Clone, Debug)]
struct Campaign {
    repeat: u32,
    resolution: u64,
    /// True if the timeout is so long that short trials overstate rates.
    overstates: bool,
    has_self_test: bool,
    varying: [Vec<u64>; 2],
    events: Vec<(usize, Event)>,
}

fn campaigns() -> impl Strategy<Value = Campaign> {
    let resolution = prop_oneof![Just(1_u64), Just(30), Just(100), Just(450)];
    // Only a few capacities are used, so that trials at the same rate have different verdicts.
    let capacity = prop_oneof![Just(50_u64), 100..2_500_u64, Just(5_000)];
    let event = prop_oneof![3 => Just(Event::Invalid), 1 => Just(Event::Killed)];
    (
        (1..=5_u32, resolution, any::<bool>(), any::<bool>()),
        (vec(capacity.clone(), 1..5), vec(capacity, 1..4)),
        vec((0..150_usize, event), 0..4),
    )
        .prop_map(|((repeat, resolution, overstates, has_self_test), (dut, auth), events)| {
            Campaign { repeat, resolution, overstates, has_self_test, varying: [dut, auth], events }
        })
}

impl Campaign {
    fn plan(&self) -> Plan {
        let Campaign { repeat, resolution, overstates, has_self_test, .. } = self;
        let timeout = if *overstates { "timeout = '1s'\n" } else { "" };
        let test = match has_self_test {
            true => format!(
                "[self-test]\nmin = 100\nmax = 4000\nresolution = 100\nrepeat = {}\n",
                repeat.div_ceil(2)
            ),
            false => String::new(),
        };
        let text = format!(
            "name = 'x'\n[trial]\nduration = '2s'\npause = '0s'\n{timeout}[search]\nmin = 100\nmax = 2000\n\
             resolution = {resolution}\nrepeat = {repeat}\ninvalid-retries = 1\n{test}[measure]\nacceptance = [0.99]\n\
             [measure.loads]\nshares = [0.5, 1]\nduration = '6s'\ntransient = '2s'\n\
             [[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'bind'\n"
        );
        Plan::parse(&text, Path::new("p.toml")).unwrap()
    }
}

/// A simulated run with its plan, its journal, and all outputs.
struct Outputs {
    plan: Plan,
    entries: Vec<Entry>,
    json: Value,
    csv: String,
    tables: Vec<Table>,
    worst_case: Vec<Mark>,
    efficiency: Vec<Mark>,
    summary: Vec<String>,
}

impl Outputs {
    fn of(campaign: &Campaign) -> Outputs {
        let plan = campaign.plan();
        let entries = journal_of_varying(&plan, campaign.varying.clone(), &campaign.events);
        let results = Results::compute(&plan, Environment::for_tests(), &entries);
        let json = serde_json::to_value(&results).unwrap();
        let runs = [Run { name: "x".into(), results, notes: Vec::new() }];
        let drawn = figures(&runs);
        let marks_of = |file: &str| {
            let figure = drawn.iter().find(|figure| figure.file == file);
            figure.map_or(Vec::new(), |figure| marks(&figure.svg(false)))
        };
        Outputs {
            csv: csv::csv(&runs),
            tables: tables(&runs[0]),
            worst_case: marks_of("worst-case"),
            efficiency: marks_of("cprdp"),
            summary: runs[0].summary(),
            plan,
            entries,
            json,
        }
    }

    /// Selects the trials at a measurement point that have the verdict `verdict`, and returns their rates.
    fn sent(&self, point: &Point, verdict: Verdict) -> BTreeSet<u64> {
        let of = |entry: &Entry| match entry {
            Entry::Finished(m) if m.step.point == *point && m.verdict() == verdict => {
                Some(m.step.rate.0)
            }
            _ => None,
        };
        self.entries.iter().filter_map(of).collect()
    }

    /// Returns the cells of a measurement point's line in the CSV file, by column.
    fn csv_cell(
        &self,
        measure: &str,
        dut: &str,
        quantity: &str,
        with: &[(&str, &str)],
    ) -> Cells<'_> {
        let header = crate::csv_tests::cells(self.csv.lines().next().unwrap());
        let at = |column: &str| header.iter().position(|name| *name == column).unwrap();
        let wanted: Vec<(usize, &str)> =
            [("measure", measure), ("dut", dut), ("quantity", quantity)]
                .iter()
                .chain(with)
                .map(|(column, value)| (at(column), *value))
                .collect();
        let lines = self.csv.lines().skip(1).map(crate::csv_tests::cells);
        let mut found = lines.filter(|line| wanted.iter().all(|(at, value)| line[*at] == *value));
        let line = found.next().unwrap_or_else(|| panic!("no line {measure}, {dut}, {quantity}"));
        assert!(found.next().is_none(), "two lines {measure}, {dut}, {quantity}");
        Cells { header, line }
    }

    /// Returns a cell of a table with a column for each server.
    fn of_server(&self, title: &str, row: &str, dut: &str) -> &str {
        let table = self.tables.iter().find(|table| table.title == title);
        let header = &table.unwrap_or_else(|| panic!("no table {title}")).header;
        let column = header.iter().position(|name| name.starts_with(&format!("{dut}, ")));
        self.cell(title, row, column.unwrap_or_else(|| panic!("no {dut} in {header:?}")))
    }

    /// Returns a cell of a table. The table is found by the start of its title, and the row by its first cell.
    fn cell(&self, title: &str, row: &str, column: usize) -> &str {
        let table = self.tables.iter().find(|table| table.title.starts_with(title));
        let rows = &table.unwrap_or_else(|| panic!("no table {title}")).rows;
        let row = rows.iter().find(|cells| cells[0] == row);
        &row.unwrap_or_else(|| panic!("no such row in {title}"))[column]
    }
}

/// The header of a CSV file, and the cells of one of its lines.
struct Cells<'a> {
    header: Vec<&'a str>,
    line: Vec<&'a str>,
}

impl Cells<'_> {
    /// Returns the number in a column, or `None` if the cell is empty.
    fn number(&self, column: &str) -> Option<f64> {
        let at = self.header.iter().position(|name| *name == column).unwrap();
        (!self.line[at].is_empty()).then(|| self.line[at].parse().unwrap())
    }

    /// Returns the text in `mark`, the last column.
    fn mark(&self) -> &str {
        assert_eq!(self.header.last(), Some(&"mark"));
        self.line.last().unwrap()
    }
}

/// Returns the numbers in a text, with or without groups of digits.
fn numbers(text: &str) -> Vec<f64> {
    let text = text.replace('\u{202f}', "");
    let parts = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    parts.filter_map(|part| part.trim_end_matches('.').parse().ok()).collect()
}

fn duts() -> [&'static str; 2] {
    ["Unbound", "BIND"]
}

/// A measurement point, and the statistics of its searches in the JSON output.
struct Found<'a> {
    figures: &'a Value,
    point: Point,
}

impl Found<'_> {
    fn get(&self, key: &str) -> Option<f64> {
        let value = match key.split_once('.') {
            Some((outer, inner)) => &self.figures[outer][inner],
            None => &self.figures[key],
        };
        assert_ne!(
            value.as_f64().filter(|_| key != "without_pass" && key != "n"),
            Some(0.0),
            "{key}"
        );
        value.as_f64()
    }

    /// Returns the numbers that a table cell or a sentence about the measurement point must contain.
    fn expected(&self) -> Vec<f64> {
        let n = self.get("n").unwrap();
        let without = self.get("without_pass").filter(|&without| without > 0.0);
        let mut all = Vec::new();
        match (self.get("median"), self.get("refuted_at")) {
            (Some(median), _) if n > 1.0 => {
                all.push(median);
                all.extend(without.into_iter().flat_map(|without| [without, n]));
            }
            (Some(_), _) => {}
            (None, Some(refuted)) => all.push(refuted),
            (None, None) => all.extend([without.unwrap(), n]),
        }
        all.extend([self.get("interval.from"), self.get("interval.to")].into_iter().flatten());
        all
    }

    fn is_at_least(&self) -> bool {
        let median = self.get("median");
        median.is_some() && median == self.get("interval.from") && self.get("interval.to").is_none()
    }
}

/// Checks that each passed rate was offered in a passed trial, and each failed rate in a failed
/// trial. Also checks that derived values follow from these rates.
fn check_rates(outputs: &Outputs, found: &Found<'_>, campaign: &Campaign) {
    let [passed, failed] =
        [Verdict::Passed, Verdict::Failed].map(|verdict| outputs.sent(&found.point, verdict));
    let has = |rates: &BTreeSet<u64>, rate: f64| rates.iter().any(|&sent| sent as f64 == rate);
    for key in ["min", "max", "p1", "p99"] {
        let rate = found.get(key);
        assert!(rate.is_none_or(|rate| has(&passed, rate)), "{key}: {rate:?} of {passed:?}");
    }
    let divisor = if campaign.overstates { 1.5 } else { 1.0 };
    if let Some(from) = found.get("interval.from") {
        let quotients: BTreeSet<u64> =
            passed.iter().map(|&rate| (rate as f64 / divisor).floor() as u64).collect();
        assert!(has(&quotients, from), "from {from}: {quotients:?}");
    }
    let to = found.get("interval.to");
    assert!(to.is_none_or(|to| has(&failed, to)), "to {to:?} of {failed:?}");
    let Some(median) = found.get("median") else { return };
    if !has(&passed, median) {
        let step = 10_u64.pow(campaign.resolution.ilog10());
        let is_mean_of = |a: u64, b: u64| (a + b) / 2 / step * step == median as u64;
        let mut pairs = passed.iter().flat_map(|&a| passed.iter().map(move |&b| (a, b)));
        assert!(pairs.any(|(a, b)| a < b && is_mean_of(a, b)), "{median} of {passed:?}");
    }
}

/// Checks that no median is given for a set of searches if a later trial at a fraction of the median failed. Such a
/// failure contradicts the median.
fn check_refuted(outputs: &Outputs, found: &Found<'_>) {
    let Point::Search(conditions) = &found.point else { return };
    let failed: Vec<u64> = outputs
        .plan
        .points()
        .into_iter()
        .filter(|point| matches!(point, Point::Load(at) if at.dut == conditions.dut))
        .flat_map(|point| outputs.sent(&point, Verdict::Failed))
        .collect();
    if conditions.accept < 1.0 {
        return;
    }
    let refuted = failed.iter().min().map(|&rate| rate as f64);
    assert_eq!(found.get("refuted_at"), refuted, "{:?}", found.figures);
    assert!(refuted.is_none() || found.get("median").is_none());
    let from = found.get("interval.from");
    assert!(refuted.is_none_or(|rate| from.is_none_or(|from| from < rate)), "{from:?}");
}

/// Checks that the worst-case result of a DUT is the same in JSON, CSV, tables, figure and sentence.
fn check_worst_case(outputs: &Outputs, found: &Found<'_>, dut: &str) {
    let row = outputs.csv_cell("search", dut, "rate", &[("acceptance", "1")]);
    for (column, key) in [
        ("median", "median"),
        ("min", "min"),
        ("max", "max"),
        ("interval_from", "interval.from"),
        ("interval_to", "interval.to"),
    ] {
        assert_eq!(row.number(column), found.get(key), "{column} in the CSV of {dut}");
    }
    let is_objected = found.get("without_pass") > Some(0.0) || found.get("refuted_at").is_some();
    assert!(!is_objected || !row.mark().is_empty(), "{dut} has no mark in the CSV: {:?}", row.line);
    let mark = outputs.worst_case.iter().find(|mark| mark.at == dut);
    if found.get("n") == Some(0.0) {
        assert!(mark.is_none(), "{dut} has no result: {mark:?}");
        return;
    }
    let cell = outputs.cell("Worst case", dut, 2);
    assert_eq!(numbers(cell), found.expected(), "{cell}");
    let sentence = &outputs.summary[0];
    assert!(sentence.contains(&format!("{dut} {cell} (")), "{cell} is not in {sentence}");

    let mark = mark.unwrap_or_else(|| panic!("no bar of {dut}"));
    let state = match (found.get("median"), found.is_at_least()) {
        (None, _) => "failed",
        (Some(_), true) => "at-least",
        (Some(_), false) => "",
    };
    assert_eq!((mark.y[0], mark.state.as_str()), (found.get("median").unwrap_or(0.0), state));
    let statistic = |row: &str| outputs.of_server("DNS64 performance by server", row, dut);
    let median = statistic("Median (queries/s)");
    assert_eq!(median.starts_with('≥'), found.is_at_least(), "{median}");
    if let Some(rate) = found.get("median") {
        assert_eq!(numbers(median), [rate], "{median}");
    }
    for (row, key) in [("Minimum (queries/s)", "min"), ("Maximum (queries/s)", "max")] {
        let cell = statistic(row);
        assert_eq!(numbers(cell), found.get(key).into_iter().collect::<Vec<_>>(), "{row}: {cell}");
    }
    let dispersion = statistic("Dispersion (%)");
    if let Some(percent) = found.figures["dispersion_pct"].as_f64() {
        assert_eq!(numbers(dispersion), [percent], "{dispersion}");
    }
}

/// Checks that the efficiency at a load has the same value, to four significant digits, in JSON,
/// CSV, table and figure.
fn check_efficiency(outputs: &Outputs, dut: &str, load: &Value) {
    let share = load["share"].as_f64().unwrap();
    let at = format!("{} %", share * 100.0);
    let json = load["cprdp"]["median"].as_f64();
    let cells = outputs.csv_cell("load", dut, "cprdp", &[("load", &share.to_string())]);
    assert_eq!(cells.number("median"), json);
    let mark =
        outputs.efficiency.iter().find(|mark| mark.of == format!("{dut}, 1 core") && mark.at == at);
    assert_eq!(mark.map(|mark| mark.y[0]), json, "{dut} at {at}");
    let Some(value) = json else { return };
    assert_eq!(format!("{value:.3e}").parse(), Ok(value), "four digits");
    if share < 1.0 {
        let title = "Computing power relative performance (CPRDP) by server";
        let cell = outputs.of_server(title, &format!("CPRDP @{at}"), dut);
        assert_eq!(numbers(cell), [value], "{cell}");
    }
}

/// Checks that a caveat names the highest passed rate if this rate is above the rate that the self-test validates.
fn check_caveat(outputs: &Outputs, found: &Found<'_>, validated: &Value) {
    let validated = validated.as_f64().filter(|&rate| rate > 0.0);
    let expected = found.get("max").filter(|&max| validated.is_some_and(|rate| max > rate));
    let name = found.point.to_string();
    let caveats = outputs.json["contradictions"].as_array().unwrap().iter();
    let mut beyond = caveats.map(|caveat| &caveat["beyond_self_test"]);
    let caveat = beyond.find(|beyond| beyond["point"] == name.as_str());
    assert_eq!(caveat.and_then(|beyond| beyond["passed"].as_f64()), expected, "{name}");
}

/// Checks that a run counts as complete if and only if every measurement point has a result. Also checks that the
/// summary names the points without a result.
fn check_completeness(outputs: &Outputs) {
    let open = outputs.json["without_result"].as_array().unwrap();
    assert_eq!(outputs.json["complete"].as_bool(), Some(open.is_empty()));
    let summary = outputs.summary.join("\n");
    assert_eq!(summary.contains("the run is complete"), open.is_empty(), "{summary}");
    for point in open {
        let name = point["point"].as_str().unwrap();
        assert!(summary.contains(name), "{name} is not in {summary}");
    }
    for dut in outputs.json["duts"].as_array().unwrap() {
        for load in dut["loads"].as_array().unwrap() {
            let at = AtShare {
                dut: dut["name"].as_str().unwrap().into(),
                place: Cores::first(1),
                share: Share::percent((load["share"].as_f64().unwrap() * 100.0) as u8),
            };
            let name = Point::Load(at).to_string();
            let is_open = open.iter().any(|point| point["point"] == name.as_str());
            assert_eq!(is_open, !load["missing"].is_null(), "{name}: {load}");
        }
    }
}

/// Checks that all outputs for a campaign (JSON, CSV, tables, figures, sentences) contain the same
/// values.
fn check(campaign: &Campaign) -> Outputs {
    let outputs = Outputs::of(campaign);
    for (dut, result) in duts().iter().zip(outputs.json["duts"].as_array().unwrap()) {
        for point in result["points"].as_array().unwrap() {
            let accept = point["conditions"]["accept"].as_f64().unwrap();
            let worst = Conditions::worst_case(dut, Cores::first(1));
            let found = Found {
                figures: &point["figures"],
                point: Point::Search(Conditions { accept, ..worst }),
            };
            check_rates(&outputs, &found, campaign);
            check_refuted(&outputs, &found);
            check_caveat(&outputs, &found, &point["vouched"]);
            if accept >= 1.0 {
                check_worst_case(&outputs, &found, dut);
            }
        }
        for load in result["loads"].as_array().unwrap() {
            check_efficiency(&outputs, dut, load);
        }
    }
    check_completeness(&outputs);
    outputs
}

/// Returns the names of the special cases that occur in a campaign, such as a failed self-test. In these cases, a value
/// in one output (such as JSON) could differ from the value in another output (such as CSV).
fn situations(campaign: &Campaign, outputs: &Outputs) -> BTreeSet<&'static str> {
    let mut all = BTreeSet::new();
    let mut searches = BTreeSet::new();
    let mut note = |is: bool, name| {
        if is {
            all.insert(name);
        }
    };
    note(outputs.json["complete"] == true, "complete");
    let caveats = outputs.json["contradictions"].as_array().unwrap();
    let is_beyond = |caveat: &Value| caveat.get("beyond_self_test").is_some();
    note(caveats.iter().any(is_beyond), "above the self-test");
    note(outputs.json["self_tests"][0]["figures"]["without_pass"] == 1, "failed self-test");
    for dut in outputs.json["duts"].as_array().unwrap() {
        let point = &dut["points"][0];
        let figures = &point["figures"];
        let (n, without) = (figures["n"].as_u64().unwrap(), figures["without_pass"] != 0);
        let has_median = !figures["median"].is_null();
        let from = &figures["interval"]["from"];
        searches.insert(n);
        note(!figures["refuted_at"].is_null(), "refuted median");
        note(n > 1 && without && !has_median, "no passing rate in the middle");
        note(without && has_median, "no passing rate in a search, with a median");
        note(has_median && from == &figures["median"], "median at the lower end");
        note(has_median && from != &figures["median"] && !from.is_null(), "median above it");
        note(campaign.overstates && !from.is_null(), "overstated lower end");
        note(figures["interval"]["to"].is_null() && !from.is_null(), "open interval");
        note(n > 0 && point["complete"] == false, "interrupted searches");
        note(point["trials"]["invalid"] != 0, "spoiled trials");
    }
    note(searches.len() > 1, "unequal numbers of searches");
    all
}

#[test]
fn every_number_is_measured_and_equal_everywhere() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) };
    // The random seed is fixed, so that each special case occurs.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let seen = RefCell::new(BTreeSet::new());
    let checked = TestRunner::new_with_rng(config, rng).run(&campaigns(), |campaign| {
        let outputs = check(&campaign);
        seen.borrow_mut().extend(situations(&campaign, &outputs));
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
    let expected = [
        "above the self-test",
        "complete",
        "failed self-test",
        "interrupted searches",
        "median above it",
        "median at the lower end",
        "no passing rate in a search, with a median",
        "no passing rate in the middle",
        "open interval",
        "overstated lower end",
        "refuted median",
        "spoiled trials",
        "unequal numbers of searches",
    ];
    assert_eq!(seen.into_inner(), BTreeSet::from(expected));
}

/// Numbers are recognized in the texts of a report.
#[test]
fn numbers_are_read_from_texts() {
    assert_eq!(numbers("≥ 1\u{202f}200 in [1\u{202f}200, ∞)"), [1_200.0, 1_200.0]);
    assert_eq!(numbers("2 of 4 searches found no passing rate: less than 4."), [2.0, 4.0, 4.0]);
    assert_eq!(numbers("47.06 %; none passed"), [47.06]);
}
